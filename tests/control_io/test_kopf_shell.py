"""kopf around an operator process: what it sees of the cluster, what it writes there, and what of kopf is used."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import kopf
import orjson
import pytest
from aiohttp import web
from tests.kube.fake_server import FakeServer

import gangline
from gangline.control.process import kopf_shell
from gangline.kube import resources as kube
from gangline.kube.resources import Resource

ROOT: Final = Path(gangline.__file__).parents[2]
#: deeper than Python's own JSON decoder reads
DEEP: Final = '{"a":' * 5000 + "1" + "}" * 5000
CORE: Final = {
    "namespaces": ("Namespace", False),
    "events": ("Event", True),
}
JOBS: Final = f"/apis/{kube.GPU_JOBS.api_version}/namespaces/ml/{kube.GPU_JOBS.plural}"


def files_that_import_kopf() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("operator", "webhooks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "kopf" in (text := path.read_text()):
                yield path, ast.parse(text)


def test_kopf_is_used_through_its_public_interface_only() -> None:
    used: list[str] = []
    for path, tree in files_that_import_kopf():
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=imported):
                    used += [each.name for each in imported if each.name.startswith("kopf")]
                case ast.ImportFrom(module=str(module), names=imported) if module.split(".")[0] == "kopf":
                    used += [f"{module}.{each.name}" for each in imported]
                case ast.Attribute(value=ast.Name(id="kopf"), attr=name):
                    used.append(f"kopf.{name}")
                case ast.ClassDef(bases=bases):
                    inherited = [ast.unparse(base) for base in bases if "kopf" in ast.unparse(base)]
                    assert not inherited, f"{path}: {node.name} overrides what kopf does"
                case _:
                    pass
    assert "kopf.OperatorRegistry" in used, "this test finds what is used"
    assert {name for name in used if name != "kopf"} <= {f"kopf.{name}" for name in kopf.__all__}


class Cluster(FakeServer):
    """An API server with the kinds that kopf watches. Each list of GPUJobs has one that is nested deeply."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        kinds: dict[str, list[dict[str, Any]]] = {
            "/api/v1": [_kind(name, kind, namespaced) for name, (kind, namespaced) in CORE.items()]
        }
        for each in kopf_shell.WATCHED:
            found = kinds.setdefault(f"/apis/{each.api_version}", [])
            found.append(_kind(each.plural, each.kind, each.namespaced))
        if request.path in kinds:
            return web.json_response({"kind": "APIResourceList", "resources": kinds[request.path]})
        if request.path == "/api":
            return web.json_response({"versions": ["v1"]})
        if request.path == "/apis":
            groups = {(each.group, each.version) for each in kopf_shell.WATCHED}
            return web.json_response({"groups": [_group(*each) for each in sorted(groups)]})
        answer = await super().handle(request)
        if request.path.endswith("/gpujobs") and isinstance(answer, web.Response) and isinstance(answer.body, bytes):
            answer.body = answer.body.replace(b'"<deep>"', DEEP.encode())
        return answer


def _group(name: str, version: str) -> dict[str, Any]:
    known = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [known], "preferredVersion": known}


def _kind(plural: str, kind: str, namespaced: bool) -> dict[str, Any]:
    verbs = ["create", "delete", "get", "list", "patch", "watch"]
    return {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": namespaced, "verbs": verbs}


async def test_each_event_is_witnessed_and_nothing_is_written_whatever_an_object_holds() -> None:
    seen: asyncio.Queue[tuple[Resource, str, str]] = asyncio.Queue()
    stop, life = asyncio.Event(), list[str]()

    async def startup() -> None:
        life.append("started")

    async def cleanup() -> None:
        life.append("cleaned")

    async def witnessed() -> tuple[Resource, str, str]:
        return await asyncio.wait_for(seen.get(), 60)

    async with Cluster() as server:
        deep = server.put(JOBS, "deep", kind="GPUJob", spec={"template": {"spec": {"x": "<deep>"}}})
        handlers = kopf_shell.registry(
            server.login(), lambda *event: seen.put_nowait(event), startup=startup, cleanup=cleanup
        )
        running = asyncio.ensure_future(kopf_shell.run(handlers, stop, "one"))
        assert await witnessed() == (kube.GPU_JOBS, "ml/deep", deep["metadata"]["resourceVersion"])
        claimed = server.put(
            JOBS,
            "claimed",
            metadata={
                "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
                "annotations": {"kopf.zalando.org/last-handled-configuration": "{" * 1000},
            },
        )
        assert await witnessed() == (kube.GPU_JOBS, "ml/claimed", claimed["metadata"]["resourceVersion"])
        queues = f"/apis/{kube.CLUSTER_QUEUES.api_version}/{kube.CLUSTER_QUEUES.plural}"
        queue = server.put(queues, "team", spec={"cohortName": "all"})
        assert await witnessed() == (kube.CLUSTER_QUEUES, "team", queue["metadata"]["resourceVersion"])
        server.delete(JOBS, "claimed")
        again = server.put(queues, "team", spec={"cohortName": "none"})
        assert await witnessed() == (kube.CLUSTER_QUEUES, "team", again["metadata"]["resourceVersion"])
        assert life == ["started"] and not running.done()
        stop.set()
        await asyncio.wait_for(running, 60)
        assert life == ["started", "cleaned"]
        assert {verb for verb, _ in server.served} == {"list", "watch"}, "kopf only reads"
        assert server.objects[f"{JOBS}/deep"].obj == deep


async def test_a_watch_is_read_line_by_line_with_the_heads_of_objects() -> None:
    assert sys.getrecursionlimit() < DEEP.count("{")
    events = [
        b'{"type":"ADDED","object":{"kind":"GPUJob","metadata":{"name":"a","uid":"u","annotations":{"x":"y"}},"spec":'
        + DEEP.encode()
        + b"}}",
        b'{"type":"BOOKMARK","object":{"kind":"GPUJob","metadata":{"resourceVersion":"7"},"spec":{}}}',
        b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}',
        b"no JSON",
    ]
    sent = b"\n".join(events)

    class Content:
        async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
            for first in range(0, len(sent), size):
                yield sent[first : first + size]

    content: Any = Content()
    for size in (1000, len(sent)):
        read = b"".join([part async for part in kopf_shell._Heads(content).iter_chunked(size)]).split(b"\n")
        assert [orjson.loads(line) for line in read[:3]] == [
            {"type": "ADDED", "object": {"kind": "GPUJob", "metadata": {"name": "a", "uid": "u"}}},
            {"type": "BOOKMARK", "object": {"kind": "GPUJob", "metadata": {"resourceVersion": "7"}}},
            orjson.loads(events[2]),
        ]
        assert read[3:] == events[3:]


@pytest.mark.parametrize("answer", [b'{"groups": [{"name": "a"}]}', b'{"resources": []}', b"no JSON", b"[1]", b""])
def test_what_is_neither_a_list_nor_an_event_is_read_as_it_is(answer: bytes) -> None:
    assert kopf_shell._with_heads(answer) == answer
