"""The cluster that is examined: reads that several checks share, and the clock of its API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, TypeVar

import aiohttp

from gangline import bounded
from gangline.control.answers.api.api_service import ENDPOINT_SLICES
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json, Resource
from gangline.kube.transport import Call

# --- the findings of checks: one line each, with advice ---------------------------------------------------------------


#: `failure`: something does not work, or stops working; `unknown`: the check could not be made
Verdict = Literal["ok", "warning", "failure", "unknown"]

SYMBOLS: Final[dict[Verdict, str]] = {"ok": "✓", "warning": "!", "failure": "✗", "unknown": "?"}
#: names of objects in one line
SHOWN: Final = 3
#: characters of a text from the cluster in one line
LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of the check named `check`. `objects`: the objects concerned, at most `SHOWN` of them."""

    verdict: Verdict
    detail: str
    advice: str = ""
    objects: tuple[str, ...] = ()
    check: str = ""

    def as_json(self, verdict: str) -> dict[str, Any]:
        return {
            "check": self.check,
            "verdict": verdict,
            "detail": self.detail,
            "advice": self.advice,
            "objects": list(self.objects),
        }


def ok(detail: str) -> Finding:
    return Finding("ok", short(detail))


def warning(detail: str, advice: str, objects: Collection[str] = ()) -> Finding:
    return Finding("warning", short(detail), advice, _first(objects))


def failure(detail: str, advice: str, objects: Collection[str] = ()) -> Finding:
    return Finding("failure", short(detail), advice, _first(objects))


def unknown(detail: str, advice: str = "") -> Finding:
    return Finding("unknown", short(detail), advice)


def some(objects: Collection[str]) -> str:
    """The first names, and how many more there are."""
    return bounded.some(_first(objects), SHOWN, of=len(objects))


def short(text: str) -> str:
    """One line of printable characters: texts from the cluster may hold anything."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * LONGEST]).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _first(objects: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(short, objects))[:SHOWN])


T = TypeVar("T")

VERSION: Final = Resource("", "", "version", namespaced=False)
#: seconds for one request
PATIENCE: Final = 8.0


class ClusterReads:
    """Reads of one examination. What several checks read is requested once."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api
        self._reads: dict[object, asyncio.Task[object]] = {}

    async def close(self) -> None:
        """End reads that nobody waits for any more."""
        for task in self._reads.values():
            task.cancel()
        await asyncio.gather(*self._reads.values(), return_exceptions=True)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json | None:
        """The object; None where there is none, or no such kind."""

        async def read() -> Json | None:
            try:
                return await self.api.get(resource, namespace, name, within=PATIENCE)
            except NotFound:
                return None

        return await self._once((resource, namespace, name), read)

    async def list(self, resource: Resource, namespace: str | None = None, selector: str = "") -> list[Json]:
        """The objects of a kind; none where the kind is not served. For kinds of which there are few: they stay in memory."""

        async def read() -> list[Json]:
            try:
                return (await self.api.list(resource, namespace, label_selector=selector)).items
            except NotFound:
                return []

        return await self._once((resource, namespace, "", selector), read)

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server has this kind, in this version."""
        path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.api_version}"
        group = Resource("", "", path.lstrip("/"), namespaced=False)

        async def read() -> Json | None:
            try:
                return await self.api.json(Call("get", group, "GET", path, within=PATIENCE))
            except NotFound:
                return None

        found = await self._once((path,), read)
        return any(row.get("name") == resource.plural for row in (found or {}).get("resources") or ())

    async def version(self) -> Json:
        """The API server's answer to /version."""
        return await self._once(
            ("version",), lambda: self.api.json(Call("get", VERSION, "GET", "/version", within=PATIENCE))
        )

    async def server_clock(self) -> tuple[int, float]:
        """The API server's time now, in milliseconds, and by how many seconds it is ahead of this machine's clock. Accurate to a
        second.
        """

        async def read() -> float:
            asked = time.time()
            timeout = aiohttp.ClientTimeout(total=PATIENCE)
            async with await self.api.send(Call("get", VERSION, "GET", "/version"), timeout) as response:
                said = _date(response.headers["Date"])
            return said + 0.5 - (asked + time.time()) / 2  # the header has whole seconds, rounded down

        ahead = await self._once(("clock",), read)
        return round((time.time() + ahead) * 1000), ahead

    async def ready_endpoints(self, namespace: str, service: str) -> int | None:
        """How many addresses behind a Service accept connections; None where there is no such Service.

        An ExternalName Service is an alias outside the cluster, and counts as one.
        """
        found = await self.get(kube.SERVICES, namespace, service)
        if found is None:
            return None
        if found["spec"].get("type") == "ExternalName":
            return 1
        slices = await self.list(ENDPOINT_SLICES, namespace, f"kubernetes.io/service-name={service}")
        endpoints = [endpoint for row in slices for endpoint in row.get("endpoints") or ()]
        return sum((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in endpoints)

    async def _once(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        """The answer to the first such read that succeeded. It goes on when the check that began it runs out of time."""
        task = self._reads.get(key)
        if task is None or (task.done() and task.exception() is not None):
            task = self._reads[key] = asyncio.ensure_future(read())
        return await asyncio.shield(task)  # type: ignore[return-value]


@bounded.parser(64, worst=("Tue, 24 Nov 2026 12:00:00 GMT", ",", "9"))
def _date(header: str) -> float:
    """Seconds since the epoch, from the header of an HTTP answer."""
    return parsedate_to_datetime(header).timestamp()
