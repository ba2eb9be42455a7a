"""The cluster as the official Kubernetes client reads it: objects as plain JSON, for judges of Gangline.

Nothing of Gangline is imported here (tests/bench/test_official.py), so a bug in Gangline's own client cannot hide itself. The
official client is synchronous: each request runs in a thread, each watch in a thread of its own. A server that asks to be asked
later is asked three times more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import urllib3
from kubernetes import client
from kubernetes.config import load_kube_config
from kubernetes.watch.watch import iter_resp_lines

Json = dict[str, Any]
BOOKMARK = "BOOKMARK"
#: seconds to connect, and between two pieces of an answer
CONNECT, SILENCE = 5.0, 90.0
#: seconds after which the server ends a watch
LASTING = 300
#: seconds before a watch that broke is opened again
PAUSE = 0.2


class Kind(NamedTuple):
    """What is read, by its place in the API."""

    group: str
    version: str
    plural: str


class Addressed(Protocol):
    """A `Kind`, or whatever else names such a place."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...


class Listing(NamedTuple):
    items: list[Json]
    version: str


class Event(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Json


class ReadError(Exception):
    """A request that brought no object. `status` is that of the answer, 0 where none came."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def gone(self) -> bool:
        """The server remembers less than was asked for."""
        return self.status == 410

    @classmethod
    def of(cls, status: Json) -> ReadError:
        return cls(int(status.get("code") or 0), str(status.get("reason")), str(status.get("message")))


class OfficialClient:
    def __init__(self, kubeconfig: Path) -> None:
        configuration = client.Configuration()
        load_kube_config(str(kubeconfig), client_configuration=configuration)
        configuration.connection_pool_maxsize = 32
        self._client = client.ApiClient(configuration)

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    async def get(self, kind: Addressed, namespace: str | None, name: str) -> Json:
        return await asyncio.to_thread(self._json, f"{_path(kind, namespace)}/{quote(name, safe=':')}", {})

    async def list(self, kind: Addressed, namespace: str | None = None, selector: str = "") -> Listing:
        """All objects of a kind, of all namespaces unless one is named."""
        query = {"labelSelector": selector} if selector else {}
        answer = await asyncio.to_thread(self._json, _path(kind, namespace), query)
        about = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        items = [{**about, **item} for item in answer["items"] or ()]  # lists of built-in kinds leave this out
        return Listing(items, answer["metadata"]["resourceVersion"])

    async def watch(self, kind: Addressed, version: str) -> AsyncIterator[Event]:
        """What happens after this version, until the server ends it. Raises ReadError."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[Event | ReadError | None]()
        stream = _Stream(lambda: self._lines(_path(kind), {**WATCH, "resourceVersion": version}))

        def tell(item: Event | ReadError | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(arrived.put_nowait, item)

        threading.Thread(target=stream.read, args=(tell,), name="official watch", daemon=True).start()
        try:
            while (item := await arrived.get()) is not None:
                if isinstance(item, ReadError):
                    raise item
                yield item
        finally:
            stream.stop()

    async def follow(self, kind: Addressed, tell: Callable[[str, Json | None], None], listed: asyncio.Event) -> None:
        """Tells of every object as it is, then of every change, by its key; None: it is gone. For ever."""
        known = set[str]()
        while True:
            try:
                listing = await self.list(kind)
                found = {key(item): item for item in listing.items}
                for name in known - found.keys():
                    tell(name, None)
                for name, item in found.items():
                    tell(name, item)
                known = set(found)
                listed.set()
                await self._follow_from(listing.version, kind, tell, known)
            except ReadError:
                await asyncio.sleep(PAUSE)

    async def _follow_from(
        self, version: str, kind: Addressed, tell: Callable[[str, Json | None], None], known: set[str]
    ) -> None:
        """Raises ReadError once the server no longer remembers how it goes on."""
        while True:
            try:
                async for event in self.watch(kind, version):
                    version = event.object["metadata"]["resourceVersion"]
                    if event.type == BOOKMARK:
                        continue
                    name, gone = key(event.object), event.type == "DELETED"
                    (known.discard if gone else known.add)(name)
                    tell(name, None if gone else event.object)
            except ReadError as error:
                if error.gone:
                    raise
                await asyncio.sleep(PAUSE)

    # --- in threads ---------------------------------------------------------------------------------------------------

    def _json(self, path: str, query: dict[str, str]) -> Json:
        try:
            return json.loads(self._send(path, query).read())
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ReadError(0, type(error).__name__, str(error)) from error

    def _lines(self, path: str, query: dict[str, str]) -> tuple[Any, Iterator[str]]:
        answer = self._send(path, query).response
        return answer, iter_resp_lines(answer)

    def _send(self, path: str, query: dict[str, str]) -> Any:
        headers = {"Accept": "application/json"}
        request = self._client.param_serialize(
            "GET", path, query_params=list(query.items()), header_params=headers, auth_settings=["BearerToken"]
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=(CONNECT, SILENCE))
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise ReadError(0, type(error).__name__, str(error)) from error
        if not 200 <= answer.status < 300:
            raise _refusal(answer)
        return answer


class _Stream:
    """One watch and the thread that reads it."""

    def __init__(self, opened: Callable[[], tuple[Any, Iterator[str]]]) -> None:
        self._opened = opened
        self._answer: Any = None
        self._stopped = False
        self._lock = threading.Lock()

    def read(self, tell: Callable[[Event | ReadError | None], None]) -> None:
        try:
            answer, lines = self._opened()
            with self._lock:
                self._answer = answer
            while not self._stopped and (line := next(lines, None)) is not None:
                if line:
                    event = json.loads(line)
                    tell(ReadError.of(event["object"]) if event["type"] == "ERROR" else Event(**event))
            tell(None)
        except ReadError as error:
            tell(error)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            tell(ReadError(0, type(error).__name__, str(error)))
        finally:
            with self._lock:
                if self._answer is not None:
                    self._answer.close()

    def stop(self) -> None:
        """As `kubernetes.watch.Watch` ends a thread that reads: by its socket."""
        self._stopped = True
        with self._lock, contextlib.suppress(OSError, AttributeError):
            self._answer.connection.sock.shutdown(socket.SHUT_RDWR)


WATCH = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(LASTING)}


def key(obj: Json) -> str:
    """`namespace/name`, or `name` for kinds without namespaces."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


def _path(kind: Addressed, namespace: str | None = None) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{quote(namespace)}/{kind.plural}" if namespace else f"{root}/{kind.plural}"


def _refusal(answer: Any) -> ReadError:
    body = answer.read()
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"reason": answer.reason, "message": body[:500].decode(errors="replace")}
    return ReadError.of({**status, "code": answer.status})
