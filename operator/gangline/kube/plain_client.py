"""Lists objects over one connection of the standard library: for a shell that waits for names to complete.

To import aiohttp takes longer than a shell may. Proxies and other names in certificates are for `ApiClient`: see `suffices`.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Self
from urllib.parse import urlencode, urlsplit

from gangline import bounded
from gangline.kube.client import PAGE_BYTES, PAGE_SIZE, ObjectList
from gangline.kube.config import Login
from gangline.kube.errors import Unavailable, from_response
from gangline.kube.resources import Json, Resource


class PlainClient:
    """Async context manager, as `ApiClient`. It blocks, and gives up after `patience` seconds."""

    def __init__(self, login: Login, patience: float) -> None:
        self.login = login
        self._end = time.monotonic() + patience
        server = urlsplit(login.server)
        self._root = server.path
        host, port = server.hostname or "", server.port
        self._connection = (
            HTTPSConnection(host, port, timeout=patience, context=login.ssl_context)
            if server.scheme == "https"
            else HTTPConnection(host, port, timeout=patience)
        )

    @staticmethod
    def suffices(login: Login) -> bool:
        """Whether a plain connection reaches this server."""
        return not (login.proxy or login.server_hostname)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.close()

    async def list(self, resource: Resource, namespace: str | None = None) -> ObjectList:
        """All objects, fetched in pages. Raises ApiError."""
        headers = {**await self.login.headers(), "Accept": "application/json"}
        items: list[Json] = []
        query = {"limit": str(PAGE_SIZE)}
        while True:
            page = self._get(f"{self._root}{resource.path(namespace)}?{urlencode(query)}", headers)
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return ObjectList(items, metadata.get("resourceVersion") or "")
            query["continue"] = metadata["continue"]

    def _get(self, path: str, headers: dict[str, str]) -> Json:
        if time.monotonic() > self._end:
            raise Unavailable(0, "Timeout", "it takes too long", timeout=True)
        try:
            self._connection.request("GET", path, headers=headers)
            response = self._connection.getresponse()
            body = response.read(PAGE_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise Unavailable(0, type(error).__name__, str(error)) from error
        if len(body) > PAGE_BYTES:
            raise Unavailable(0, "TooLong", f"the answer has more than {PAGE_BYTES} bytes")
        if response.status != 200:
            raise from_response(response.status, body, asked=f"GET {path}")
        try:
            return bounded.load_shallow(body)
        except bounded.BadJsonError as error:
            raise Unavailable(0, "BadAnswer", f"the answer is not JSON: {error}") from error
