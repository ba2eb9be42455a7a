"""The operator's own HTTP in this process: what it answers to any request. Nothing of the operator runs beside it."""

from __future__ import annotations

import asyncio
import copy
import functools
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from fastapi import FastAPI, Request, Response
from starlette.routing import Route
from tests.builders import clusters
from tests.builders.written import cluster_queue, workload
from tests.fuzz.draw import Draw
from tests.fuzz.objects import ODD, Json, edit, objects

from gangline.api.names import V1BETA2
from gangline.console.views.own_answers import ClusterInstant
from gangline.control.answers.api.aggregated_api import AggregatedApi, AggregatedApiOptions
from gangline.control.answers.api.front_proxy import Trust
from gangline.control.answers.usage.happenings import Log
from gangline.control.forecasting.promises import Ledger
from gangline.control.process.operator_process import Operator
from gangline.control.process.operator_process import OperatorOptions as OperatorOptions
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.config import Login
from gangline.kube.errors import from_response
from gangline.kube.reflector import Upsert
from gangline.kube.transport import Call, ClusterClock
from gangline.tls.asgi import AsgiServer
from gangline.tls.connections import runner_of
from gangline.ui.app import Dashboard, Server
from gangline.ui.pages import Pages
from gangline.ui.sessions import CSRF_HEADER, LaptopSessions

RUNNING, WAITING, SINCE = "job-train-12345", "job-wait-12345", "2026-01-31T12:00:00Z"
#: what a path may name, by what it is about
NAMES = {
    "progress": (RUNNING, WAITING),
    "queuedjobs": (RUNNING, WAITING),
    "clusterqueues": ("team", "x"),
    "localqueues": ("main", "bare"),
}
#: what a part of the dashboard's paths may be, by its name
PARTS = {
    "kind": ("workload", "job", "x"),
    "name": (RUNNING, WAITING, "x"),
    "part": ("why", "remedies", "victims", "story", "promises", "pods", "events", "logs", "attempts", "x"),
}
#: what the webhooks ask about
PLANS: tuple[Json, ...] = (
    {
        "kind": "Reservation",
        "name": "weekly",
        "spec": {
            "window": {
                "schedule": {"days": ["Sunday"], "time": "02:00", "duration": "6h", "timeZone": "Europe/Berlin"}
            },
            "nodes": {"names": ["n1"], "anyOf": {"flavor": "gpu", "count": 6}},
            "for": {"clusterQueues": ["team"], "users": ["mira"]},
        },
    },
    {
        "kind": "QuotaPlan",
        "name": "day",
        "spec": {
            "clusterQueue": "team",
            "overrides": [
                {
                    "name": "launch",
                    "window": {"start": "2026-12-01T08:00:00Z", "end": "2026-12-01T10:00:00Z"},
                    "quotas": [{"flavor": "gpu", "resource": "nvidia.com/gpu", "nominalQuota": 8}],
                }
            ],
        },
    },
)
HEADERS = ("X-Remote-User", "X-Remote-Group", "X-Remote-Extra-a", "Content-Type", "Accept", "Expect", "Cookie", "Range")
AGGREGATOR = {"subject": ((("commonName", "front-proxy-client"),),)}
PARAMETERS = (
    "limit",
    "offset",
    "x",
    "continue",
    "clusterQueue",
    "finished",
    "times",
    "kind",
    "horizonSeconds",
    "sinceSeconds",
    "namespace",
    "since",
    "until",
    "by",
    "keys",
    "about",
    "pod",
    "key",
    "next",
)
#: paths of the dashboard whose answer ends when the browser goes
ENDLESS = ("/api/live",)
#: seconds for an answer, where nothing is waited for
PATIENCE = 10.0


class Wire(asyncio.Transport):
    """A connection of which the other side is a list of bytes."""

    def __init__(self) -> None:
        super().__init__({"peercert": AGGREGATOR, "peername": ("127.0.0.1", 1)})
        self.answer = bytearray()
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        self.answer += data

    def writelines(self, list_of_data: Any) -> None:
        self.answer += b"".join(list_of_data)

    def close(self) -> None:
        self.closed.set()

    abort = close

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Cluster:
    """In place of the API server, which says that "nobody" may see nothing."""

    def __init__(self) -> None:
        self.requests: Counter[Any] = Counter()
        self.clock = ClusterClock()

    async def create(self, resource: kube.Resource, namespace: str | None, body: Json, **_: Any) -> Json:
        return {**body, "status": {"allowed": body["spec"]["user"] != "nobody"}}


class OperatorHttp:
    """A leading operator with two workloads, and its part of the API server."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        cluster: Any = Cluster()
        self.operator = Operator(OperatorOptions(), cluster)
        self.operator._pulse._behind = lambda: 0.0
        self.operator.leading.set()
        self.operator._settled = True
        for resource, obj in _objects():
            self.operator.controller.sink(resource)(Upsert(obj))
        while not self.operator.controller.absorb():
            pass
        answers = _forecasting().answers()
        answers.log = Log(lambda: 1_700_000_000_000)
        answers.record = clusters.attempt_record(answers)
        aggregated = AggregatedApi(
            cluster,
            self.operator.visibility,
            AggregatedApiOptions(("127.0.0.1", 0), "localhost"),
            "system",
            answers=answers,
            accuracy=lambda: {"runtimes": [], "since": None, "model": {}, "starts": {}},
        )
        await aggregated.close()  # the port that it holds; streams end at once
        aggregated._trust = Trust("")
        self._operator, self._visibility = self.operator.app(), aggregated.app()
        runner = runner_of(self._visibility)
        await runner.setup()
        assert runner.server is not None
        self._protocols: dict[str, Callable[[], asyncio.Protocol]] = {
            "operator": AsgiServer(self._operator).protocol,
            "visibility": runner.server,
        }
        self._sessions = LaptopSessions(Login(""))
        self._dashboard = self._dashboard_app()
        self._protocols["dashboard"] = AsgiServer(self._dashboard).protocol
        self.apps = tuple(self._protocols)

    def _dashboard_app(self) -> FastAPI:
        """The dashboard, whose questions the API server of this process answers."""
        pages = Pages.__new__(Pages)
        pages.answer = lambda _: Response("a page")  # type: ignore[method-assign]
        verbs = dict.fromkeys(("hold", "release", "cancel", "move", "top", "cordon", "uncordon"), _changed)
        server = Server(Dashboard(self._sessions, pages, verbs, "team", doctor=_examined))
        client = InProcess(self)

        @asynccontextmanager
        async def of(_: object) -> AsyncIterator[InProcess]:
            yield client

        server._clients.of = of  # type: ignore[method-assign, assignment]
        return server.app()

    @property
    def signed_in(self) -> list[tuple[str, str]]:
        """Headers of the browser that is signed in to the dashboard."""
        of = Request({"type": "http", "headers": [(b"cookie", self._cookie.encode())]})
        return [("Cookie", self._cookie), (CSRF_HEADER, self._sessions.of(of).csrf)]

    @property
    def _cookie(self) -> str:
        return f"{self._sessions._cookie}={self._sessions._session}"

    def routes(self, app: str) -> list[tuple[str, str]]:
        """Method and pattern of the path of all that one app serves."""
        if app != "visibility":
            routes = self._operator.routes if app == "operator" else self._dashboard.routes
            served = (route for route in routes if isinstance(route, Route) and route.path not in ENDLESS)
            return sorted((method, _plain(route.path)) for route in served for method in route.methods or ())
        found = self._visibility.router.routes()
        return sorted((route.method, route.resource.canonical) for route in found if route.resource is not None)

    def ask(self, app: str, request: bytes) -> bytes:
        """What is answered on a connection of its own. The loops of the operator make progress only here."""
        self.operator._pulse.beat()
        return self._loop.run_until_complete(asyncio.wait_for(self._ask(app, request), PATIENCE))

    async def _ask(self, app: str, request: bytes) -> bytes:
        wire, protocol = Wire(), self._protocols[app]()
        protocol.connection_made(wire)
        protocol.data_received(request)
        await wire.closed.wait()
        protocol.connection_lost(None)
        await asyncio.sleep(0)
        return bytes(wire.answer)


class InProcess(ApiClient):
    """In place of the dashboard's client: the API server that asks the operator of this process."""

    def __init__(self, served: OperatorHttp) -> None:
        super().__init__(Login(""))
        self._served = served

    async def exchange(self, call: Call) -> bytes:
        path = quote(call.path, safe="/%") + (f"?{urlencode(call.query)}" if call.query else "")
        if not call.path.startswith("/apis/answers.gangline.io/"):
            listed = {"kind": f"{call.resource.kind}List", "metadata": {"resourceVersion": "1"}, "items": []}
            reviewed = {"status": {"allowed": True, "userInfo": {"username": "alice"}}}
            return orjson.dumps(listed if call.method == "GET" else reviewed)
        body = orjson.dumps(call.body) if call.body is not None else b""
        answer = await self._served._ask("visibility", request(call.method, path, body))
        head, _, found = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status >= 300:
            raise from_response(status, found)
        return found


async def _changed(_: object, namespace: str, name: str, *more: str, dry_run: bool) -> str:
    return f"{namespace}/{name} is changed{'' if not dry_run else ' perhaps'} {more}"


async def _examined(_: object) -> list[Json]:
    return [{"name": "clocks", "level": "ok", "text": "agree", "advice": "", "objects": []}]


def _plain(path: str) -> str:
    """The pattern of a path without the kinds of its parameters."""
    return re.sub(r":\w+}", "}", path)


def _forecasting() -> ClusterInstant:
    """The same objects with forecasts, which the operator makes in processes of its own."""
    listed: dict[kube.Resource, list[Json]] = {}
    for resource, obj in _objects():
        listed.setdefault(resource, []).append(obj)
    here = ClusterInstant()
    here.fill(listed)
    here.forecast(None)
    here.ledger = Ledger()
    return here


def _objects() -> Iterator[tuple[kube.Resource, Json]]:
    """A queue with a job that runs and one that waits, and doors to it, one of which says nothing."""
    yield kube.CLUSTER_QUEUES, cluster_queue()
    for name, spec in (("main", {"spec": {"clusterQueue": "team"}}), ("bare", {})):
        meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1"}
        yield kube.LOCAL_QUEUES, {"apiVersion": V1BETA2, "kind": "LocalQueue", "metadata": meta, **spec}
    for name in (RUNNING, WAITING):
        obj = workload()
        obj["metadata"] |= {
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": SINCE,
        }
        yield kube.WORKLOADS, obj | ({"status": _admitted()} if name == RUNNING else {})


def _admitted() -> Json:
    rows = [
        {"type": kind, "status": "True", "reason": "A", "message": "", "lastTransitionTime": SINCE}
        for kind in ("QuotaReserved", "Admitted")
    ]
    assigned = {
        "name": "main",
        "flavors": {"nvidia.com/gpu": "h100"},
        "resourceUsage": {"nvidia.com/gpu": "32"},
        "count": 8,
    }
    return {"conditions": rows, "admission": {"clusterQueue": "team", "podSetAssignments": [assigned]}}


@functools.cache
def operator_http() -> OperatorHttp:
    return OperatorHttp()


def drawn_request(app: str, method: str, pattern: str, draw: Draw) -> bytes:
    """A request to this path, with any names, parameters, headers and body."""

    known = next((names for about, names in NAMES.items() if about in pattern), ("x",))

    def part(match: re.Match[str]) -> str:
        chosen = draw.below(8)
        if chosen == 7:
            return quote(draw.text(), safe="")
        if app == "dashboard" and match[1] in PARTS:
            return draw.one_of(PARTS[match[1]])
        return "team" if match[1] == "namespace" else known[chosen % len(known)]

    path = re.sub(r"\{(\w+)\}", part, pattern)
    pairs = [
        (draw.one_of(PARAMETERS), draw.one_of((draw.text(), "9" * 40, "-1", "true", "team")))
        for _ in range(draw.below(3))
    ]
    if pairs:
        path += "?" + "&".join(f"{name}={quote(text, safe='')}" for name, text in pairs)
    user = draw.one_of(("alice", "nobody", ""))
    headers = [("X-Remote-User", user)]
    headers += [(draw.one_of(HEADERS[1:]), re.sub(r"[^ -~]", "?", draw.text())) for _ in range(draw.below(3))]
    if app == "dashboard":
        pairs = operator_http().signed_in
        headers = [*headers[1:], *(pairs if draw.below(8) < 7 else pairs[draw.below(2) :][:1])]
        body = b"" if method in ("GET", "HEAD") else _for_dashboard(draw)
    else:
        body = b"" if method in ("GET", "HEAD") else _asked(pattern, draw)
    return request(method, path, body, headers)


def request(
    method: str, path: str, body: bytes, headers: Iterable[tuple[str, str]] = (("X-Remote-User", "alice"),)
) -> bytes:
    """A request on a connection that ends with it."""
    rows = [
        ("Host", "a"),
        ("Connection", "close"),
        ("X-Remote-Group", "g"),
        *headers,
        ("Content-Length", str(len(body))),
    ]
    head = "".join(f"{name}: {text}\r\n" for name, text in rows)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def filled(pattern: str) -> str:
    """A path of this pattern whose objects exist."""
    known = next((names for about, names in NAMES.items() if about in pattern), ("x",))
    return re.sub(r"\{(\w+)\}", lambda match: "team" if match[1] == "namespace" else known[0], pattern)


def _body(draw: Draw) -> bytes:
    """A report with any fields, or any bytes."""
    if draw.below(2):
        return draw.raw(draw.left)
    fields: Json = {"step": 7, "total": 100, "phase": "evaluation", "pod": "a"}
    for _ in range(draw.below(4)):
        name = draw.one_of((*fields, draw.text()))
        fields[name] = (draw.number(), draw.text(), draw.one_of(ODD))[draw.below(3)]
    return orjson.dumps(fields)


def _for_dashboard(draw: Draw) -> bytes:
    """An action, a question or a token, with any changes, or any bytes."""
    if draw.below(4) == 3:
        return draw.raw(draw.left)
    target: Json = {"namespace": "team", "kind": "Job", "name": "train"}
    action = {
        "verb": draw.one_of(("hold", "move", "cordon", "x")),
        "targets": [target, {"node": "n1"}],
        "queue": "main",
    }
    change = {"kind": "Workload", "name": WAITING, "durationSeconds": 60}
    asked: Json = draw.one_of((action, {"namespace": "team", "change": change}, {"token": "a.b.c"}))
    body = copy.deepcopy({**asked, "metadata": {}})
    for _ in range(draw.below(4)):
        edit(body, draw)
    return orjson.dumps(body)


def _asked(pattern: str, draw: Draw) -> bytes:
    if "whatifs" in pattern:
        return _question(draw)
    return _plan(draw) if "planchecks" in pattern else _body(draw)


def _plan(draw: Draw) -> bytes:
    """A Reservation or QuotaPlan with any changes, or any bytes."""
    if draw.below(4) == 3:
        return draw.raw(draw.left)
    plan = copy.deepcopy(draw.one_of(PLANS))
    body: Json = {"kind": "PlanCheck", "spec": plan}
    for _ in range(draw.below(4)):
        edit(plan, draw)
    return orjson.dumps(body)


def _question(draw: Draw) -> bytes:
    """A job with any changes, with fields around it that may be wrong, or any bytes."""
    if draw.below(4) == 3:
        return draw.raw(draw.left)
    job = copy.deepcopy(draw.one_of(objects()))
    for _ in range(draw.below(4)):
        edit(job, draw)
    body: Json = {"kind": "WhatIf", "spec": {"job": job}}
    if draw.below(8) == 7:
        edit(body, draw)
    return orjson.dumps(body)


def whole_requests() -> Iterator[bytes]:
    """Inputs of `drawn_request` to start with."""
    yield b""
    yield bytes(4) + b"\x00\x00\x00\x01" + b'{"step": 3, "total": 10}'
    yield bytes(32)
    for number in range(10):  # parameters of each kind, and objects of each kind
        yield bytes((0, 0, 1, number, 3)) + bytes((number,)) * 8


def judge(app: str, request: bytes) -> None:
    answer = operator_http().ask(app, request)
    status = re.match(rb"HTTP/1\.\d (\d{3}) ", answer)
    assert status is not None, f"no HTTP: {answer[:100]!r}"
    assert int(status[1]) < 500, f"{answer[:500]!r}"
    head, _, body = answer.partition(b"\r\n\r\n")
    if int(status[1]) >= 400:
        assert 0 < len(body) < 4096, "a refusal without words, or with too many"
    if b"application/json" in head and body:
        orjson.loads(body)
