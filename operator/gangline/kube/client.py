"""The one HTTP client of Gangline: get, list, watch and write JSON objects on a Kubernetes API server.

Plain dictionaries in and out, typed errors, no caching and no retries, but for one: after a 401 the credentials are
renewed and the request is sent once more. Who wants retries on top (the writer, the reflector) knows better what to
repeat and when.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, TypeAlias
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

import gangline
from gangline.kube.config import Login, LoginError
from gangline.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    from_response,
    from_status,
)
from gangline.kube.resources import Json, ObjectKey, Resource, key_of

__all__ = [
    "AlreadyExists",
    "ApiClient",
    "ApiError",
    "Body",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "Json",
    "Listing",
    "NotFound",
    "ObjectKey",
    "PatchKind",
    "Resource",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "WatchEvent",
    "key_of",
]

#: a request body: JSON as text already, or something to serialise
Body: TypeAlias = bytes | Mapping[str, Any] | list[Any]
Query: TypeAlias = Mapping[str, str]
PatchKind: TypeAlias = Literal["merge", "json", "strategic", "apply"]
#: called after every request with verb, resource, HTTP status (0 = no answer) and seconds until its headers came
Observer: TypeAlias = Callable[[str, Resource, int, float], None]

PAGE_SIZE = 500
_JSON = "application/json"
_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}


class _Call(NamedTuple):
    """One request, before it is dressed for the wire; `within` is its timeout in seconds."""

    verb: str
    resource: Resource
    method: str
    path: str
    query: Query = MappingProxyType({})
    body: Body | None = None
    content_type: str = ""
    subresource: str = ""
    within: float | None = None

    @property
    def label(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


class Listing(NamedTuple):
    """Objects and the resourceVersion at which the whole list was true (a watch may start there)."""

    items: list[Json]
    resource_version: str


class WatchEvent(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK (whose object only carries a resourceVersion)."""

    type: str
    object: Json


class ApiClient:
    """Async context manager; one connection pool. Safe to share between any number of tasks of one event loop.

    `connections` bounds the sockets, watches included (0 = no bound); `timeout` is seconds for a whole request unless
    the call says otherwise. `requests` counts by (verb, plural[/subresource]).
    """

    def __init__(
        self,
        login: Login,
        *,
        connections: int = 100,
        timeout: float = 30.0,
        observe: Observer | None = None,
        user_agent: str = f"gangline/{gangline.__version__}",
    ) -> None:
        self.login = login
        self.requests: Counter[tuple[str, str]] = Counter()
        self._timeout = timeout
        self._connections = connections
        self._observe = observe
        self._headers = {
            "Accept": "application/json",
            # the server would spend its CPU, which is the bottleneck, on compressing long answers
            "Accept-Encoding": "identity",
            "User-Agent": user_agent,
        }
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._connections, ssl=self.login.ssl_context or True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**18,
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, namespace: str | None, name: str, *, within: float | None = None) -> Json:
        """One object. Raises NotFound."""
        return await self._json(_Call("get", resource, "GET", resource.path(namespace, name), within=within))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> Listing:
        """All objects, fetched in pages of `limit` (0 = in one answer). Raises Gone where paging took too long."""
        items: list[Json] = []
        version = ""
        async for page in self.pages(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            limit=limit,
        ):
            items += page.items
            version = page.resource_version
        return Listing(items, version)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> AsyncGenerator[Listing]:
        """The list page by page. Without a `resource_version` it is the newest there is; "0" takes what a cache has."""
        query = _selectors(label_selector, field_selector)
        if limit:
            query["limit"] = str(limit)
        first = query if resource_version is None else {**query, "resourceVersion": resource_version}
        path = resource.path(namespace)
        answer = await self._json(_Call("list", resource, "GET", path, first))
        while True:
            metadata = answer["metadata"]
            items = answer.get("items") or []
            for item in items:  # lists of built-in kinds leave these out, watches don't
                item.setdefault("apiVersion", answer["apiVersion"])
                item.setdefault("kind", answer["kind"].removesuffix("List"))
            yield Listing(items, metadata["resourceVersion"])
            token = metadata.get("continue")
            if not token:
                return
            answer = await self._json(_Call("list", resource, "GET", path, {**query, "continue": token}))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        silence: float = 90.0,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        """What happens after `resource_version`, until the server ends the stream after `timeout_seconds`.

        Raises Gone where that version is too old, Unavailable where the stream breaks or `silence` seconds bring
        nothing, not even a bookmark (one comes about every minute while objects of the kind change anywhere).
        `on_open` is called once the stream stands.
        """
        query = _selectors(label_selector, field_selector)
        query |= {
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(10.0, self._timeout), sock_read=silence)
        response = await self._send(_Call("watch", resource, "GET", resource.path(namespace), query), timeout)
        try:
            if on_open:
                on_open()
            async for line in _lines(response):
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise from_status(event["object"])
                yield WatchEvent(event["type"], event["object"])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unavailable(error) from error
        except orjson.JSONDecodeError as error:
            raise Unavailable(0, "BadStream", f"the watch stream holds a broken line: {error}") from error
        finally:
            response.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        *,
        query: Query = MappingProxyType({}),
        within: float | None = None,
    ) -> Json:
        """The object as stored. Raises AlreadyExists, Invalid, NotFound (its namespace). `query`: dryRun and such."""
        if resource.namespaced and not namespace:
            raise ValueError(f"create {resource}: a namespace is needed")
        path = resource.path(namespace)
        return await self._json(_Call("create", resource, "POST", path, query, body, _JSON, within=within))

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Body,
        *,
        subresource: str = "",
        query: Query = MappingProxyType({}),
        within: float | None = None,
    ) -> Json:
        """PUT; `metadata.resourceVersion` in the body makes it conditional. Raises Conflict, NotFound, Invalid."""
        path = resource.path(namespace, name, subresource)
        return await self._json(_Call("replace", resource, "PUT", path, query, body, _JSON, subresource, within))

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Body,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        query: Query = MappingProxyType({}),
        within: float | None = None,
    ) -> Json:
        """PATCH; "apply" needs a `field_manager`. `metadata.resourceVersion` in a merge patch makes it conditional."""
        if kind == "apply" and not field_manager:
            raise ValueError("patch: an apply patch needs a field_manager")
        if field_manager or force:
            more = {"fieldManager": field_manager, "force": "true" if force else ""}
            query = {**query, **{name: text for name, text in more.items() if text}}
        path = resource.path(namespace, name, subresource)
        content = _PATCH_TYPES[kind]
        return await self._json(_Call("patch", resource, "PATCH", path, query, body, content, subresource, within))

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        within: float | None = None,
    ) -> Json:
        """The object or a Status. `uid` and `resource_version` are preconditions: Conflict where they don't hold."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: Json = {"preconditions": {k: v for k, v in preconditions.items() if v}}
        if propagation:
            options["propagationPolicy"] = propagation
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = resource.path(namespace, name)
        return await self._json(_Call("delete", resource, "DELETE", path, {}, options, _JSON, within=within))

    async def raw(self, path: str, *, within: float | None = None) -> bytes:
        """GET any path of the server, such as `/readyz` or `/version`."""
        return await self._exchange(_Call("get", Resource("", "", path.lstrip("/")), "GET", path, within=within))

    # --- the wire -----------------------------------------------------------------------------------------------------

    async def _json(self, call: _Call) -> Json:
        return orjson.loads(await self._exchange(call))

    async def _exchange(self, call: _Call) -> bytes:
        within = self._timeout if call.within is None else call.within
        async with await self._send(call, aiohttp.ClientTimeout(total=within)) as response:
            return await _read(response)

    async def _send(self, call: _Call, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:  # noqa: ASYNC109
        """An answer of 2xx with its body still to be read; anything else is raised."""
        url = URL(f"{self.login.server}{call.path}{'?' + urlencode(call.query) if call.query else ''}", encoded=True)
        data = call.body if call.body is None or isinstance(call.body, bytes) else orjson.dumps(call.body)
        for last_try in (False, True):
            try:
                headers = await self.login.headers()
            except LoginError as error:  # an exec plugin or a token file that may come back
                raise Unauthorized(0, "LoginFailed", str(error)) from error
            if data is not None:
                headers = {**headers, "Content-Type": call.content_type}
            response = await self._request(call, url, data, headers, timeout)
            if response.status < 300:
                return response
            async with response:
                answer = await _read(response)
            if response.status != 401 or last_try or not self.login.reject():
                break
        raise from_response(response.status, answer, response.headers.get("Retry-After"))

    async def _request(
        self,
        call: _Call,
        url: URL,
        data: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("ApiClient is not open: use it in `async with`")
        self.requests[call.verb, call.label] += 1
        started = time.perf_counter()
        status = 0
        try:
            response = await self._session.request(
                call.method,
                url,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self.login.server_hostname,
                proxy=self.login.proxy,
            )
            status = response.status
            return response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unavailable(error) from error
        finally:
            if self._observe:
                self._observe(call.verb, call.resource, status, time.perf_counter() - started)


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: text for name, text in both.items() if text}


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _unavailable(error) from error


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream, however long (readline() has a limit that a large object breaks)."""
    rest: list[bytes] = []
    async for chunk in response.content.iter_any():
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest.append(chunk)
            continue
        for line in b"".join((*rest, head)).split(b"\n"):
            if line:
                yield line
        rest = [tail] if tail else []


def _unavailable(error: BaseException) -> Unavailable:
    refused = isinstance(error, aiohttp.ClientConnectorError)
    timeout = isinstance(error, TimeoutError) and not refused
    name = "Timeout" if timeout else type(error).__name__
    return Unavailable(0, name, str(error) or name, timeout=timeout)
