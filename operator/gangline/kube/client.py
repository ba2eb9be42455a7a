"""Gangline's HTTP client of the Kubernetes API: get, list, watch and write JSON objects.

Plain dictionaries in and out, typed errors, no caching, and no retries (but see `transport`): the writer and the reflector
decide what to repeat and when.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from gangline import bounded
from gangline.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    from_status,
)
from gangline.kube.resources import Json, ObjectKey, Resource, key_of
from gangline.kube.transport import TOO_LONG, Body, Call, Observer, Query, Transport, lines, unavailable

__all__ = [
    "AlreadyExists",
    "ApiClient",
    "ApiError",
    "Body",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "Json",
    "NotFound",
    "ObjectKey",
    "ObjectList",
    "Observer",
    "PatchKind",
    "Resource",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "WatchEvent",
    "key_of",
]

PatchKind: TypeAlias = Literal["merge", "json", "strategic", "apply"]

#: objects of one page of a list, and its bytes: a page that would have more is asked for again with fewer objects
PAGE_SIZE = 500
PAGE_BYTES = 8 << 20
_FEWER = 8
_JSON = "application/json"
_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}


class ObjectList(NamedTuple):
    """Objects and the resourceVersion at which the whole list was true (a watch may start there)."""

    items: list[Json]
    resource_version: str


class WatchEvent(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK (whose object only carries a resourceVersion)."""

    type: str
    object: Json


def _path(resource: Resource, namespace: str | None, name: str, subresource: str = "") -> str:
    """The URL path of one object. Raises NotFound for a name that no object can have, since API servers refuse such: anybody can
    write one into a reference, and in a URL it would name a list, a subresource or something else.
    """
    for part in (name, namespace or name):
        if part in ("", ".", "..") or "/" in part or "%" in part:
            raise NotFound(404, "NotFound", f"{resource} {bounded.shown(part)} not found: no object can have this name")
    return resource.path(namespace, name, subresource)


class ApiClient(Transport):
    """The verbs of the API. See `Transport` for its construction and its counters."""

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, namespace: str | None, name: str, *, within: float | None = None) -> Json:
        """One object. Raises NotFound."""
        return await self.json(Call("get", resource, "GET", _path(resource, namespace, name), within=within))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> ObjectList:
        """All objects, fetched in pages of `limit` (0 = in one answer). Raises Gone if paging took too long."""
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
        return ObjectList(items, version)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> AsyncGenerator[ObjectList]:
        """The list page by page. Without a `resource_version` it is the newest; "0" accepts a cached one."""
        query = _selectors(label_selector, field_selector)
        first = query if resource_version is None else {**query, "resourceVersion": resource_version}
        path = resource.path(namespace)
        answer, limit = await self._page(resource, path, first, limit)
        while True:
            metadata = answer.get("metadata") or {}
            if "resourceVersion" not in metadata:
                raise Unavailable(0, "BadAnswer", f"{path}: the answer is not a list of objects")
            items = answer.get("items") or []
            for item in items:  # lists of built-in kinds leave these out, watches do not
                item.setdefault("apiVersion", answer["apiVersion"])
                item.setdefault("kind", answer["kind"].removesuffix("List"))
            yield ObjectList(items, metadata["resourceVersion"])
            token = metadata.get("continue")
            if not token:
                return
            answer, limit = await self._page(resource, path, {**query, "continue": token}, limit)

    async def _page(self, resource: Resource, path: str, query: Query, limit: int) -> tuple[Json, int]:
        """A page of so many objects, or of fewer large ones; and how many the next one should have."""
        while limit > 1:
            try:
                call = Call("list", resource, "GET", path, {**query, "limit": str(limit)}, most=PAGE_BYTES)
                return await self.json(call), limit
            except Unavailable as error:
                if error.reason != TOO_LONG:
                    raise
                limit = max(1, limit // _FEWER)
        return await self.json(Call("list", resource, "GET", path, {**query, "limit": "1"} if limit else query)), limit

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
        more: Query = MappingProxyType({}),
    ) -> AsyncGenerator[WatchEvent]:
        """The events after `resource_version`, until the server ends the stream after `timeout_seconds`.

        Raises Gone if that version is too old, Unavailable if the stream breaks or is silent for `silence` seconds, without
        even a bookmark (one arrives about every minute while objects of the kind change anywhere). `on_open` is called once the
        stream is open; `more`: further parameters.
        """
        import aiohttp

        query = _selectors(label_selector, field_selector)
        query |= {
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            **more,
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(10.0, self._timeout), sock_read=silence)
        response = await self.send(Call("watch", resource, "GET", resource.path(namespace), query), timeout)
        try:
            if on_open:
                on_open()
            async for line in lines(response, self._most_bytes):
                event = bounded.load_shallow(line)
                if event["type"] == "ERROR":
                    raise from_status(event["object"])
                yield WatchEvent(event["type"], event["object"])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unavailable(error) from error
        except (bounded.BadJsonError, KeyError, TypeError) as error:
            raise Unavailable(0, "BadStream", f"the watch stream holds a broken line: {error!r}") from error
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
        return await self.json(Call("create", resource, "POST", path, query, body, _JSON, within=within))

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
        path = _path(resource, namespace, name, subresource)
        return await self.json(Call("replace", resource, "PUT", path, query, body, _JSON, subresource, within))

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
        path = _path(resource, namespace, name, subresource)
        content = _PATCH_TYPES[kind]
        return await self.json(Call("patch", resource, "PATCH", path, query, body, content, subresource, within))

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
        path = _path(resource, namespace, name)
        return await self.json(Call("delete", resource, "DELETE", path, {}, options, _JSON, within=within))

    async def raw(self, path: str, *, within: float | None = None) -> bytes:
        """GET any path of the server, such as `/readyz` or `/version`."""
        return await self.exchange(Call("get", Resource("", "", path.lstrip("/")), "GET", path, within=within))


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: text for name, text in both.items() if text}
