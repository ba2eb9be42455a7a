"""A small API server that misbehaves on cue: the real one cannot be made to drop, stall, lie late or answer 429 *now*.

It keeps objects of any kind in memory with one resourceVersion counter and one event log, serves paged lists, watches
with bookmarks, and all writes. `script.append(...)` queues a misbehaviour for the next matching request;
`drop_streams`, `silence_streams` and `compact` act at once.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from tests.merging import merge_patch

from gangline.kube.config import FixedToken, Login

Json = dict[str, Any]


@dataclass
class Answer:
    """Instead of serving: HTTP status and reason, or a `body`; `delay` seconds first; status 0 cuts the connection.

    `verb` and `plural` narrow it down to some requests; `after=True` does the work first and then misbehaves.
    """

    status: int = 500
    reason: str = "InternalError"
    verb: str = ""
    plural: str = ""
    delay: float = 0.0
    retry_after: str = ""
    after: bool = False
    body: bytes = b""


@dataclass
class Stored:
    path: str  # of the collection in its namespace
    obj: Json


@dataclass
class FakeServer:
    version: int = 100
    objects: dict[str, Stored] = field(default_factory=dict)
    log: list[tuple[int, str, str, Json]] = field(default_factory=list)  # version, type, collection path, object
    compacted: int = 0
    script: list[Answer] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    served: list[tuple[str, str]] = field(default_factory=list)
    streams: set[Stream] = field(default_factory=set)
    token: str = ""
    end_streams_at_once: bool = False
    apis: list[str] = field(default_factory=list)  # the API versions that discovery shows, such as example.com/v1

    async def __aenter__(self) -> FakeServer:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in list(self.streams):
            stream.abort()
        await self.runner.cleanup()

    def login(self, token: str = "") -> Login:
        return Login(self.url, tokens=FixedToken(token) if token else None)

    # --- what a test does behind the client's back --------------------------------------------------------------------

    def put(self, collection: str, name: str, **content: Any) -> Json:
        """Create or change an object; a new uid where it was not there."""
        known = self.objects.get(f"{collection}/{name}")
        self.version += 1
        obj = copy.deepcopy(known.obj) if known else {"metadata": {"name": name, "uid": f"uid-{self.version}"}}
        if not known and "/namespaces/" in collection:
            obj["metadata"]["namespace"] = collection.split("/namespaces/")[1].split("/")[0]
        obj = merge_patch(obj, content)
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[f"{collection}/{name}"] = Stored(collection, obj)
        self.log.append((self.version, "MODIFIED" if known else "ADDED", collection, obj))
        self.wake()
        return obj

    def delete(self, collection: str, name: str) -> None:
        obj = copy.deepcopy(self.objects.pop(f"{collection}/{name}").obj)
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.log.append((self.version, "DELETED", collection, obj))
        self.wake()

    def compact(self) -> None:
        """Forget all history: a watch from any older version is Gone."""
        self.compacted = self.version

    def backup(self) -> Json:
        return copy.deepcopy({"version": self.version, "objects": self.objects, "log": self.log})

    def restore(self, saved: Json, *, raised_by: int = 0) -> None:
        """The state of a backup comes back. With `raised_by`, the store's version is raised and its history compacted."""
        self.__dict__ |= copy.deepcopy(saved)
        self.version += raised_by
        self.compacted = self.version if raised_by else 0
        self.drop_streams()

    def drop_streams(self) -> None:
        for stream in list(self.streams):
            stream.abort()
        self.streams.clear()

    def silence_streams(self) -> None:
        for stream in self.streams:
            stream.silent = True

    def repeat_last_event(self) -> None:
        """Send every stream its newest event a second time."""
        for stream in self.streams:
            stream.repeat = True
        self.wake()

    def bookmark(self) -> None:
        for stream in self.streams:
            stream.bookmark = True
        self.wake()

    def state(self, under: str = "") -> dict[str, tuple[str, str]]:
        """name → (uid, resourceVersion), to compare a reflector's view with."""
        return {
            stored.obj["metadata"]["name"]: (stored.obj["metadata"]["uid"], stored.obj["metadata"]["resourceVersion"])
            for path, stored in self.objects.items()
            if path.startswith(under)
        }

    def wake(self) -> None:
        for stream in self.streams:
            stream.wake.set()

    # --- serving ------------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        collection, name, subresource, plural = split(request.path)
        watching = "watch" in request.query
        verb = "watch" if watching else VERBS[request.method, bool(name)]
        self.requests[f"{verb} {plural}"] += 1
        self.served.append((verb, f"{request.path}"))
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return failure(401, "Unauthorized", "who are you?")
        body = await request.json() if request.can_read_body else None
        answer = next((a for a in self.script if a.verb in ("", verb) and a.plural in ("", plural)), None)
        if answer:
            self.script.remove(answer)
            await asyncio.sleep(answer.delay)
            if not answer.after and (answer.status != 200 or answer.body):
                return self.misbehave(request, answer)
        if request.path == "/apis":
            return web.json_response({"groups": [{"versions": [{"groupVersion": each}]} for each in self.apis]})
        if watching:
            return await self.watch(request, collection)
        response = await self.serve(request, verb, collection, name, subresource, body)
        return self.misbehave(request, answer) if answer and answer.after else response

    def misbehave(self, request: web.Request, answer: Answer) -> web.Response:
        if answer.status == 0:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer.body:
            return web.Response(status=answer.status, body=answer.body)
        return failure(answer.status, answer.reason, "as scripted", answer.retry_after)

    async def serve(
        self, request: web.Request, verb: str, collection: str, name: str, subresource: str, body: Any
    ) -> web.Response:
        if verb == "list":
            return self.list(request, collection)
        if verb == "create":
            name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self.version}"
            if f"{collection}/{name}" in self.objects:
                return failure(409, "AlreadyExists", f"{name} exists")
            return web.json_response(self.put(collection, name, **body), status=201)
        stored = self.objects.get(f"{collection}/{name}")
        if stored is None:
            return failure(404, "NotFound", f"{name} not found")
        if verb == "get":
            return web.json_response(stored.obj)
        wanted = ((body or {}).get("metadata") or (body or {}).get("preconditions") or {}).get("resourceVersion")
        if wanted and wanted != stored.obj["metadata"]["resourceVersion"]:
            return failure(409, "Conflict", "the object has been modified")
        if verb == "delete":
            self.delete(collection, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        if verb == "replace":
            identity = {key: stored.obj["metadata"][key] for key in ("uid", "name")}
            stored.obj = {**body, "metadata": {**body["metadata"], **identity}}
            return web.json_response(self.put(collection, name))
        return web.json_response(self.put(collection, name, **body))

    def list(self, request: web.Request, collection: str) -> web.Response:
        token = json.loads(request.query.get("continue", "null"))
        at, start = token or (self.version, "")
        if token and at < self.compacted:
            return failure(410, "Expired", "the continue token is too old")
        past = self.snapshot(at)
        paths = sorted(path for path, stored in past.items() if within(stored.path, collection) and path > start)
        limit = int(request.query.get("limit", "0")) or len(paths)
        metadata: Json = {"resourceVersion": str(at)}
        if len(paths) > limit:
            metadata["continue"] = json.dumps([at, paths[limit - 1]])
        items = [past[path].obj for path in paths[:limit]]
        return web.json_response({"apiVersion": "v1", "kind": "ThingList", "metadata": metadata, "items": items})

    def snapshot(self, version: int) -> dict[str, Stored]:
        """The objects as of a version: a paged list is true at one moment."""
        if version == self.version:
            return self.objects
        past: dict[str, Stored] = {}
        for at, kind, collection, obj in self.log:
            if at <= version:
                path = f"{collection}/{obj['metadata']['name']}"
                past.pop(path, None) if kind == "DELETED" else past.update({path: Stored(collection, obj)})
        return past

    async def watch(self, request: web.Request, collection: str) -> web.StreamResponse:
        start = int(request.query["resourceVersion"])
        if start < self.compacted:
            return failure(410, "Expired", f"too old resource version: {start} ({self.compacted})")
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        stream = Stream(request)
        self.streams.add(stream)
        try:
            async with asyncio.timeout(int(request.query.get("timeoutSeconds", "300"))):
                while not self.end_streams_at_once:
                    start = await self.feed(response, stream, collection, start)
                    await stream.wake.wait()
                    stream.wake.clear()
        except (TimeoutError, ConnectionResetError):
            pass
        finally:
            self.streams.discard(stream)
        return response

    async def feed(self, response: web.StreamResponse, stream: Stream, collection: str, start: int) -> int:
        if stream.silent:
            return start
        if start < self.compacted:
            status = json.loads(failure(410, "Expired", "compacted").body)  # type: ignore[arg-type]
            await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return self.version
        for at, kind, _, obj in [entry for entry in self.log if entry[0] > start and within(entry[2], collection)]:
            stream.last = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
            half = len(stream.last) // 2  # lines do not come in one piece
            await response.write(stream.last[:half])
            await response.write(stream.last[half:])
            start = at
        if stream.repeat and stream.last:
            stream.repeat = False
            await response.write(stream.last)
        if stream.bookmark:
            stream.bookmark = False
            start = self.version
            mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(start)}}}
            await response.write(json.dumps(mark).encode() + b"\n")
        return start


class Stream:
    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.wake = asyncio.Event()
        self.silent = False
        self.repeat = False
        self.bookmark = False
        self.last = b""

    def abort(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()
        self.wake.set()


VERBS = {
    ("GET", False): "list",
    ("GET", True): "get",
    ("POST", False): "create",
    ("PUT", True): "replace",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
}


def split(path: str) -> tuple[str, str, str, str]:
    """(path of the collection, name, subresource, plural); of a path such as `/version`, itself and its name"""
    parts = path.strip("/").split("/")
    if len(parts) == 1:
        return path, "", "", parts[0]
    at = 2 if parts[0] == "api" else 3
    if len(parts) > at + 2 and parts[at] == "namespaces":
        at += 2
    name = parts[at + 1] if len(parts) > at + 1 else ""
    return "/" + "/".join(parts[: at + 1]), name, "/".join(parts[at + 2 :]), parts[at]


def within(where: str, collection: str) -> bool:
    """Is an object stored at `where` part of this collection, which may span all namespaces?"""
    if "/namespaces/" not in where or "/namespaces/" in collection:
        return where == collection
    root, _, rest = where.partition("/namespaces/")
    return f"{root}/{rest.split('/')[1]}" == collection


def failure(code: int, reason: str, message: str, retry_after: str = "") -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    status |= {"reason": reason, "message": message}
    return web.json_response(status, status=code, headers={"Retry-After": retry_after} if retry_after else {})
