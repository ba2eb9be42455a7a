"""What judges read the cluster with: the official client, and nothing of Gangline's."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bench.official import BOOKMARK, Kind, OfficialClient, ReadError
from tests.kube.fake_server import Answer, FakeServer
from tests.kube.kubeconfigs import kubeconfig

Json = dict[str, Any]
THINGS = Kind("", "v1", "things")
WIDGETS = Kind("example.com", "v1", "widgets")
COLLECTION = "/api/v1/namespaces/ns/things"
ROOT = Path(__file__).parents[2]
#: judges that share no code with what they judge
INDEPENDENT = (
    "bench/official.py",
    "bench/card_proof.py",
    "bench/power_proof.py",
    "bench/evidence.py",
    "bench/proof.py",
    "bench/revisions.py",
    "tests/cluster/witness.py",
)


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_an_independent_judge_imports_nothing_of_gangline(name: str) -> None:
    ours = {module for module in imported(ROOT / name) if module.partition(".")[0] not in ("kubernetes", "urllib3")}
    local = {module for module in ours if (ROOT / f"{module.replace('.', '/')}.py").exists()}
    assert {f"{module.replace('.', '/')}.py" for module in local} <= set(INDEPENDENT)
    assert not [module for module in ours - local if module.startswith(("gangline", "tests", "bench"))]


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as found:
        yield found


@pytest.fixture
def official(server: FakeServer, tmp_path: Path) -> OfficialClient:
    server.token = "t"
    return OfficialClient(kubeconfig(tmp_path, {"token": "t"}, server=server.url))


async def test_lists_and_objects(server: FakeServer, official: OfficialClient) -> None:
    server.put(COLLECTION, "a", data={"x": 1})
    server.put("/apis/example.com/v1/widgets", "w:1")
    listing = await official.list(THINGS)
    assert [(item["kind"], item["metadata"]["name"], item["data"]) for item in listing.items] == [
        ("Thing", "a", {"x": 1})
    ]
    assert listing.version == str(server.version)
    assert (await official.list(THINGS, "other")).items == []
    assert (await official.get(THINGS, "ns", "a"))["data"] == {"x": 1}
    assert (await official.get(WIDGETS, None, "w:1"))["metadata"]["name"] == "w:1"


async def test_what_goes_wrong(server: FakeServer, official: OfficialClient) -> None:
    with pytest.raises(ReadError, match="404 NotFound: a not found") as caught:
        await official.get(THINGS, "ns", "a")
    assert caught.value.status == 404
    for answer in (Answer(0), Answer(0), Answer(0), Answer(0)):
        server.script.append(answer)
    with pytest.raises(ReadError) as caught:
        await official.list(THINGS)
    assert caught.value.status == 0
    server.script.append(Answer(503, retry_after="0"))
    await official.list(THINGS)
    server.script.append(Answer(200, body=b"<html>"))
    with pytest.raises(ReadError):
        await official.list(THINGS)


async def test_a_watch(server: FakeServer, official: OfficialClient) -> None:
    before = str(server.version)
    server.put(COLLECTION, "a", data={"x": 1})
    found = list[tuple[str, str]]()
    async for event in official.watch(THINGS, before):
        found.append((event.type, event.object["metadata"].get("name", "")))
        if len(found) == 1:
            server.put(COLLECTION, "a", data={"x": "ä" * 50_000})
        elif len(found) == 2:
            server.bookmark()
        elif len(found) == 3:
            server.delete(COLLECTION, "a")
        else:
            break
    assert found == [("ADDED", "a"), ("MODIFIED", "a"), (BOOKMARK, ""), ("DELETED", "a")]
    for _ in range(100):
        if not any(thread.name == "official watch" for thread in threading.enumerate()):
            return
        await asyncio.sleep(0.02)
    pytest.fail("the thread goes on after its watch was left")


async def test_a_watch_that_is_too_late(server: FakeServer, official: OfficialClient) -> None:
    server.put(COLLECTION, "a")
    server.compact()
    with pytest.raises(ReadError) as caught:
        await anext(official.watch(THINGS, "1"))
    assert caught.value.gone
    events = official.watch(THINGS, str(server.version))
    server.put(COLLECTION, "b")
    await anext(events)
    server.version += 5
    server.compact()
    server.wake()
    with pytest.raises(ReadError) as caught:
        await anext(events)
    assert caught.value.gone, "an ERROR within the stream"


async def test_following_survives_broken_streams_and_gaps(server: FakeServer, official: OfficialClient) -> None:
    seen: dict[str, Json] = {}

    def tell(name: str, obj: Json | None) -> None:
        seen.pop(name, None)
        if obj is not None:
            seen[name] = obj

    async def agrees() -> None:
        for _ in range(300):
            there = {stored.obj["metadata"]["name"] for stored in server.objects.values()}
            versions = {stored.obj["metadata"]["resourceVersion"] for stored in server.objects.values()}
            if seen.keys() == {f"ns/{name}" for name in there} and versions == {
                obj["metadata"]["resourceVersion"] for obj in seen.values()
            }:
                return
            await asyncio.sleep(0.02)
        pytest.fail(f"{seen.keys()}")

    server.put(COLLECTION, "a")
    listed = asyncio.Event()
    task = asyncio.create_task(official.follow(THINGS, tell, listed))
    await asyncio.wait_for(listed.wait(), 5)
    server.put(COLLECTION, "b")
    await agrees()
    server.drop_streams()
    server.put(COLLECTION, "a", data={"x": 2})
    await agrees()
    server.drop_streams()
    server.delete(COLLECTION, "a")
    server.put(COLLECTION, "c")
    server.compact()
    await agrees()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
