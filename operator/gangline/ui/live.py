"""The live rows for browsers: one watch of the operator for all who look with the same rights, as server-sent events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import orjson

from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Expired, Forbidden, NotFound, TooManyRequests, Unauthorized, Unavailable
from gangline.kube.resources import Json
from gangline.ui.sessions import Credentials
from gangline.ui.upstream import LIVE_ROWS, Clients

log = logging.getLogger(__name__)

#: seconds of one watch, and without any line of it
WATCHED: Final = 3000
SILENCE: Final = 20.0
#: seconds before the next try after a failure, at first and at most, and after a refusal
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 10.0
REFUSED_PAUSE: Final = 30.0
#: seconds for which a watch goes on after the last browser has left: a page that is loaded again finds it
LINGER: Final = 15.0
#: events that wait for one browser; one that is behind by more gets all rows instead
MOST_WAITING: Final = 32
#: watches at a time
MOST_FEEDS: Final = 256
#: seconds between two signs of life to a browser
BEAT: Final = 15.0


def event(name: str, data: Json) -> bytes:
    """A server-sent event. JSON has no raw line break, so its text is one line."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


class TooManyFeedsError(Exception):
    """So many people look already that no more can."""


@dataclass(slots=True, eq=False)
class _Browser:
    """One open page: what waits to be sent to it."""

    waiting: deque[bytes] = field(default_factory=deque[bytes])
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, *events: bytes) -> None:
        self.waiting.extend(events)
        self.woken.set()


class Feed:
    """The rows of one person's view of a namespace ("" = of the cluster), kept current by a watch."""

    def __init__(self, clients: Clients, credentials: Credentials, namespace: str) -> None:
        self.rows: dict[str, dict[str, Json]] = {}
        self.revision, self.at = "", 0.0
        self._clients, self._credentials, self._namespace = clients, credentials, namespace
        self._browsers: set[_Browser] = set()
        self._trouble = b""
        self._synced = False
        self._snapshot = b""  # encoded, until the next change
        self.task = asyncio.get_running_loop().create_task(self._follow(), name=f"live rows of {namespace or 'all'}")

    # --- to browsers --------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[bytes]:
        """What a browser is sent: all rows, then what changes, and what goes wrong meanwhile."""
        browser = _Browser()
        self._browsers.add(browser)
        try:
            if self._synced:
                browser.put(self._all())
            if self._trouble:
                browser.put(self._trouble)
            while True:
                try:
                    async with asyncio.timeout(BEAT):
                        await browser.woken.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                browser.woken.clear()
                waiting, browser.waiting = browser.waiting, deque[bytes]()
                yield b"".join(waiting)
        finally:
            self._browsers.discard(browser)

    @property
    def watched(self) -> bool:
        return bool(self._browsers)

    def _all(self) -> bytes:
        if not self._snapshot:
            self._snapshot = event("snapshot", {"revision": self.revision, "at": self.at, "rows": self.rows})
        return self._snapshot

    def _tell(self, message: bytes) -> None:
        for browser in self._browsers:
            if len(browser.waiting) >= MOST_WAITING:
                browser.waiting.clear()
                browser.put(self._all(), *([self._trouble] if self._trouble else ()))
            else:
                browser.put(message)

    def _fail(self, kind: str, error: str) -> None:
        self._trouble = event("trouble", {"kind": kind, "error": error})
        self._tell(self._trouble)

    # --- from the operator --------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        failures = 0
        while True:
            begun = time.monotonic()
            try:
                async with self._clients.of(self._credentials) as client:
                    await self._watch(client)
                failures, pause = -1, FIRST_PAUSE if time.monotonic() - begun < FIRST_PAUSE else 0.0
            except Expired:  # what the person may see has changed, or too much else has
                pause = FIRST_PAUSE if time.monotonic() - begun < FIRST_PAUSE else 0.0
            except Unauthorized:
                self._fail("Expired", "The API server does not accept these credentials any more.")
                return
            except Forbidden as error:
                self._fail("Forbidden", error.message)
                pause = REFUSED_PAUSE
            except (NotFound, Unavailable, TooManyRequests) as error:
                self._fail(*_words(error))
                failures = 0 if time.monotonic() - begun > WATCHED / 100 else failures
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**failures)
            except ApiError as error:
                self._fail("Unreachable", error.message)
                pause = LONGEST_PAUSE
            except Exception as error:  # the page says so, and the next watch may succeed
                log.exception("the live rows could not be read")
                self._fail("Unreachable", f"The dashboard failed: {type(error).__name__}.")
                pause = LONGEST_PAUSE
            failures += 1
            await asyncio.sleep(pause)

    async def _watch(self, client: ApiClient) -> None:
        """Follow one watch to its end."""
        rows: dict[str, dict[str, Json]] = {}
        put: dict[str, dict[str, Json]] = {}
        gone: dict[str, list[str]] = {}
        first = True
        more = {"sendInitialEvents": "true"}
        stream = client.watch(
            LIVE_ROWS, self._namespace or None, resource_version="", timeout_seconds=WATCHED, silence=SILENCE, more=more
        )
        try:
            async for kind, obj in stream:
                if kind == "BOOKMARK":
                    self.revision, self.at = obj["metadata"]["resourceVersion"], obj["at"]
                    if first:
                        self.rows, first = rows, False
                        self._synced, self._snapshot, self._trouble = True, b"", b""
                        self._tell(self._all())
                    elif put or gone:
                        self._snapshot = b""
                        change = {"revision": self.revision, "at": self.at, "put": put, "gone": gone}
                        self._tell(event("change", change))
                    else:
                        self._snapshot = b""
                        self._tell(event("beat", {"at": self.at}))
                    put, gone = {}, {}
                    continue
                table, name = obj["table"], obj["metadata"]["name"]
                if kind == "DELETED":
                    rows.get(table, {}).pop(name, None)
                    put.get(table, {}).pop(name, None)
                    gone.setdefault(table, []).append(name)
                else:
                    rows.setdefault(table, {})[name] = obj["row"]
                    put.setdefault(table, {})[name] = obj["row"]
        finally:
            await stream.aclose()


def _words(error: ApiError) -> tuple[str, str]:
    """The kind of a failure, and a sentence for people."""
    if isinstance(error, Unavailable) and not error.status:
        return "Unreachable", f"The API server does not answer: {error.message}."
    if isinstance(error, TooManyRequests):
        return "NoLeader", "The operator serves as many dashboards as it can."
    return "NoLeader", "No operator answers: it is away, or another one is about to lead."


class Feeds:
    """The feeds that somebody looks at."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._feeds: dict[tuple[str, str], Feed] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def of(self, credentials: Credentials, namespace: str) -> AsyncIterator[Feed]:
        """The feed of a person's view of a namespace. Raises TooManyFeedsError."""
        key = credentials.key, namespace
        found = self._feeds.get(key)
        if found is None or found.task.done():
            if len(self._feeds) >= MOST_FEEDS:
                raise TooManyFeedsError
            found = self._feeds[key] = Feed(self._clients, credentials, namespace)
        try:
            yield found
        finally:
            closing = asyncio.get_running_loop().create_task(self._close_later(key, found))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _close_later(self, key: tuple[str, str], feed: Feed) -> None:
        await asyncio.sleep(LINGER)
        if not feed.watched and self._feeds.get(key) is feed:
            del self._feeds[key]
            feed.task.cancel()
            await asyncio.gather(feed.task, return_exceptions=True)

    async def close(self) -> None:
        tasks = [*self._closing, *(feed.task for feed in self._feeds.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._feeds.clear()
