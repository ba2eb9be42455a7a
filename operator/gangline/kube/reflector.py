"""A list-watch that never lies: what the sink has received always converges to what the server holds.

The rules, which the tests hold it to:

- The sink sees the events of one kind in one order, from one task: `Upsert`, `Removed`, and `Synced` after each full
  list.
- A list *replaces*: an object that was known and is not in it is `Removed`, though no deletion was ever seen. A key
  that comes back with another uid is `Removed`, then `Upsert`.
- A broken stream is resumed from the last resourceVersion seen, without a list. Only 410 Gone, a store that went back, or
  `restart(relist=True)` lead to a new list.
- The store went back (it was restored from a backup) if a list has a lower resourceVersion than anything before, or has an
  object that should have been known already. A watch cannot tell: it waits in silence for versions to come. So before a stream is
  resumed, the first page of a list of one object is asked for.
- Otherwise resourceVersions are compared for equality only. The same uid at the same resourceVersion is not delivered twice.
- No failure of the server ends `run()`: it retries for ever with jittered backoff. An exception of the *sink* does.

Per object it keeps its key, uid and resourceVersion, nothing else. Measured: 4 µs of CPU per event of 3 KB, beside the
reading of the socket and the decoding (3.7 µs).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from gangline.kube.client import (
    PAGE_SIZE,
    ApiClient,
    ApiError,
    Expired,
    Json,
    NotFound,
    ObjectList,
    Resource,
    Unavailable,
    key_of,
)
from gangline.kube.discovery import ServedVersions
from gangline.kube.errors import Forbidden
from gangline.kube.resources import as_revision, revision

logger = logging.getLogger(__name__)

#: seconds after which a stream counts as good, so that its end starts a new count of failures
STOOD_WELL = 5.0
#: versions that are remembered as reported, so that a slower observer's report is not taken for a missing event
RECENT = 2048

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Upsert(Generic[T]):
    """The object exists, new or changed."""

    obj: T


@dataclass(frozen=True, slots=True)
class Removed:
    """The object was deleted. `obj` is its last state as the server sent it, None if only a list showed its absence."""

    key: str
    uid: str
    obj: Json | None = None


@dataclass(frozen=True, slots=True)
class Synced:
    """A full list was delivered: every existing object is known."""


Event: TypeAlias = Upsert[Any] | Removed | Synced
Sink: TypeAlias = Callable[[Event], None]
#: called when the store went back, with what shows it
OnRewind: TypeAlias = Callable[[str], object]


class Restart(Exception):  # noqa: N818
    """Leaves a stream on request; not an error."""


@dataclass(slots=True)
class Backoff:
    """Full-jitter exponential backoff, in seconds."""

    first: float = 0.1
    most: float = 10.0
    failures: int = 0

    def next(self) -> float:
        ceiling = min(self.most, self.first * 2 ** min(self.failures, 30))
        self.failures += 1
        return random.uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        self.failures = 0


@dataclass(slots=True)
class Counters:
    """Counts of what the reflector did, for metrics and tests."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    duplicates: int = 0
    undecodable: int = 0
    restarts: dict[str, int] = field(default_factory=dict[str, int])

    def restarted(self, reason: str) -> None:
        self.restarts[reason] = self.restarts.get(reason, 0) + 1


class Reflector:
    """Follows one kind. `decode` turns the server's JSON into the value of `Upsert` (by default: the JSON itself).

    An object that `decode` fails on is logged and counted, and its last good state stands: one invalid object must not stop the
    others, nor look deleted. `optional`: a kind that the server does not serve counts as empty (and is asked for again every
    `absent_retry` seconds, or when `served` shows its version); `refusable`: so does an optional one that this account may not
    list. `on_rewind` is called when the store went back, before the sink gets what it holds now. Times are in seconds.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        decode: Callable[[Json], Any] | None = None,
        optional: bool = False,
        refusable: bool = False,
        page_size: int = PAGE_SIZE,
        silence: float = 90.0,
        stream_seconds: int = 300,
        backoff: Backoff | None = None,
        absent_retry: float = 30.0,
        served: ServedVersions | None = None,
        on_rewind: OnRewind = lambda what: None,
    ) -> None:
        self.resource = resource
        self.counters = Counters()
        self.synced = asyncio.Event()
        #: time.monotonic() of the last sign of life (list page, event or bookmark)
        self.last_heard = 0.0
        #: the server did not serve the kind at the last request
        self.absent = False
        #: what the server said then, if this account may not list the kind
        self.refusal = ""
        self._client = client
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._decode = decode
        self._optional = optional
        self._refusable = optional and refusable
        self._page_size = page_size
        self._silence = silence
        self._stream_seconds = stream_seconds
        self._backoff = backoff or Backoff()
        self._absent_retry = absent_retry
        self._served = served
        self._on_rewind = on_rewind
        self._known: dict[str, tuple[str, str]] = {}
        self._version: str | None = None  # where the next watch starts; None = a list is due
        self._newest = 0  # the highest revision that the server has shown
        self._expected: OrderedDict[str, tuple[tuple[str, str] | None, float]] = (
            OrderedDict()
        )  # what was known then, deadline
        self._recent: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._heard_at_overdue = -1.0
        self._interrupt: asyncio.Task[None] | None = None
        self._restarting = False
        self._sink: Sink = lambda event: None

    def __len__(self) -> int:
        return len(self._known)

    # --- the watchdog's side ------------------------------------------------------------------------------------------

    def restart(self, reason: str = "asked", *, relist: bool = False) -> None:
        """Drop the stream at once and open another: an observer has reason to consider it dead."""
        self.counters.restarted(reason)
        if relist:
            self._version = None
        self._restarting = True  # also while nothing can be interrupted: between a step and its pause
        if self._interrupt is not None:
            self._interrupt.cancel()

    def expect(self, key: str, resource_version: str, within: float = 10.0) -> None:
        """Another source knows this version (a write of ours created it, or another watch showed it), so the stream must
        deliver it.

        The stream has `within` seconds. Any event of the object counts, since the stream may be ahead of the observer, and a
        list skips versions. `check()` acts on overdue events; the group calls it every second.
        """
        known = self._known.get(key)
        if (key, resource_version) in self._recent or (known and known[1] == resource_version):
            return
        self._expected.pop(key, None)  # moved to the end: the dictionary stays in the order of deadlines
        self._expected[key] = (known, time.monotonic() + within)

    def check(self) -> bool:
        """Restart if an expected event is overdue; the second time in a row without any event, list again."""
        if not self._overdue():
            return False
        relist = self._heard_at_overdue == self.last_heard
        self._heard_at_overdue = self.last_heard
        self.restart("overdue", relist=relist)
        return True

    def _overdue(self) -> bool:
        now = time.monotonic()
        while self._expected:
            key, (before, deadline) = next(iter(self._expected.items()))
            paid = self._known.get(key) != before
            if not paid and now < deadline:
                return False
            if not paid:
                self._expected.clear()
                return True
            del self._expected[key]
        return False

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """Deliver all events to `sink`, for ever. Ends only by cancellation or by an exception of the sink."""
        self._sink = sink
        while True:
            self._restarting = False
            delay = await self._interruptible(self._step())
            if delay and not self._restarting:
                await self._interruptible(asyncio.sleep(delay))

    async def _interruptible(self, work: Any) -> float:
        """Run in a task of its own, so that `restart()` can cancel just that. Returns the seconds to wait next."""
        task = asyncio.ensure_future(work)
        self._interrupt = task
        try:
            return await task or 0.0
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise
            return 0.0
        finally:
            self._interrupt = None

    async def _step(self) -> float:
        """List if one is due, then watch until the stream ends. Returns the seconds to wait before the next step."""
        try:
            if self._version is None or await self._has_gone_back():
                await self._list()
            await self._watch(self._version or "")
        except Expired as error:
            logger.info("%s: %s; listing again", self.resource, error)
            self.counters.restarted("gone")
            self._version = None
            first = self._backoff.failures == 0
            delay = self._backoff.next()
            return 0.0 if first else delay
        except ApiError as error:
            if isinstance(error, NotFound) or (self._refusable and isinstance(error, Forbidden)):
                delay = self._absent(error)
                if self._served is None or self.refusal or not self._optional:
                    return delay
                await self._served.wait_for(self.resource.api_version)
                return 0.0
            delay = self._backoff.next()
            if error.retry_after:  # the server's own wait; waiting longer does not help
                delay = error.retry_after * random.uniform(1.0, 1.2)
            self.counters.restarted("error")
            # a stream that breaks is normal; an unreachable server is not
            level = logging.WARNING if self._backoff.failures > 2 else logging.INFO
            logger.log(level, "%s: %s; again in %.1f s", self.resource, error, delay)
            return delay
        return 0.0

    def _absent(self, error: ApiError) -> float:
        """The kind is not served: not yet, after a restart of the server, or not at all. Or this account may not list it. Known
        objects are never forgotten for it.
        """
        if self._optional and not self.synced.is_set():
            self._tell_synced()
        self.absent = True
        self.refusal = error.message if isinstance(error, Forbidden) else ""
        self.counters.restarted("absent")
        delay = self._absent_retry if self._optional else self._backoff.next()
        logger.log(
            logging.DEBUG if self._optional else logging.WARNING,
            "%s is not %s (%s); again in %.1f s",
            self.resource,
            "allowed" if self.refusal else "served",
            error.message,
            delay,
        )
        return delay

    async def _has_gone_back(self) -> bool:
        """Whether the newest state of the server is older than what it has shown before."""
        pages = self._client.pages(self.resource, self._namespace, limit=1, **self._selectors)
        async with aclosing(pages) as listing:
            return self._evidence(await anext(listing)) != ""

    def _evidence(self, page: ObjectList) -> str:
        """What shows that the store went back; empty if nothing does.

        Not only the version of a list: a restore may raise the store's version above all that it ever was, and objects keep
        theirs. An object of a version that has been passed, but was never shown, is of another history.
        """
        if 0 < (version := as_revision(page.resource_version)) < self._newest:
            return f"{self.resource} are at version {version} after {self._newest}"
        for obj in page.items:
            _, known = self._known.get(key_of(obj), ("", ""))
            is_news = known != obj["metadata"]["resourceVersion"]
            if is_news and 0 < revision(obj) <= self._newest and not self.counters.undecodable:
                return f"{self.resource} {key_of(obj)} is at version {revision(obj)}, never seen until {self._newest}"
        return ""

    def _rewind(self, evidence: str) -> None:
        logger.warning("the store went back: %s", evidence)
        self.counters.restarted("rewound")
        self._newest = 0
        self._on_rewind(evidence)

    async def _list(self) -> None:
        self.counters.lists += 1
        seen: set[str] = set()
        version = ""
        pages = self._client.pages(self.resource, self._namespace, limit=self._page_size, **self._selectors)
        async with aclosing(pages) as listing:
            async for page in listing:
                self.last_heard = time.monotonic()
                if evidence := self._evidence(page):
                    self._rewind(evidence)
                for obj in page.items:
                    seen.add(self._upsert(obj))
                version = page.resource_version
        for key in [key for key in self._known if key not in seen]:
            self._remove(key, None)
        self._reach(version)
        self.absent, self.refusal = False, ""
        self._tell_synced()

    def _tell_synced(self) -> None:
        self._expected.clear()
        self._sink(Synced())
        self.synced.set()

    async def _watch(self, version: str) -> None:
        self.counters.watches += 1
        received = False
        opened: list[float] = []
        stream = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=version,
            silence=self._silence,
            timeout_seconds=int(self._stream_seconds * random.uniform(0.8, 1.2)) or 1,
            on_open=lambda: opened.append(time.monotonic()),
            label_selector=self._selectors["label_selector"],
            field_selector=self._selectors["field_selector"],
        )

        try:
            async with aclosing(stream) as events:
                async for kind, obj in events:
                    if not received:
                        received = True
                        self._backoff.reset()
                    self.last_heard = time.monotonic()
                    self._take(kind, obj)
        except Unavailable as error:
            self._reset_backoff_after(opened)
            if not (opened and error.timeout):
                raise
            self.counters.restarted("silent")  # a server sends no bookmarks for a kind that does not change at all
            return
        if not received and time.monotonic() - opened[0] < 1.0:  # ended at once: no busy loop
            raise Unavailable(0, "EmptyStream", "the watch ended before it brought anything")
        self._reset_backoff_after(opened)

    def _reset_backoff_after(self, opened: list[float]) -> None:
        if opened and time.monotonic() - opened[0] >= STOOD_WELL:
            self._backoff.reset()

    def _take(self, kind: str, obj: Json) -> None:
        self._reach(obj["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return
        self.counters.events += 1
        if kind == "DELETED":
            key = key_of(obj)
            known = self._known.get(key)
            if known and known[0] == obj["metadata"]["uid"]:
                self._remove(key, obj)
            else:
                self.counters.duplicates += 1
        else:
            self._upsert(obj)

    def _reach(self, version: str) -> None:
        """Note that the sink has got everything up to this version."""
        self._version = version
        self._newest = max(self._newest, as_revision(version))

    def _upsert(self, obj: Json) -> str:
        metadata = obj["metadata"]
        key = key_of(obj)
        now = (metadata["uid"], metadata["resourceVersion"])
        known = self._known.get(key)
        if known == now:
            self.counters.duplicates += 1
            return key
        if known and known[0] != now[0]:
            self._remove(key, None)
        try:
            decoded = self._decode(obj) if self._decode else obj
        except Exception:
            logger.exception("%s %s cannot be understood; its last good state stands", self.resource, key)
            self.counters.undecodable += 1
            return key
        self._known[key] = now
        self._remember(key, now[1])
        self._sink(Upsert(decoded))
        return key

    def _remember(self, key: str, version: str) -> None:
        self._recent[key, version] = None
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)

    def _remove(self, key: str, obj: Json | None) -> None:
        uid, _ = self._known.pop(key)
        self._sink(Removed(key, uid, obj))


class ReflectorGroup:
    """Several reflectors with one barrier: `wait_synced()` returns when every kind has been listed once.

    Also the watchdog: every second it restarts a stream with an overdue event.
    """

    def __init__(self) -> None:
        self._members: list[tuple[Reflector, Sink]] = []

    def add(self, reflector: Reflector, sink: Sink) -> Reflector:
        self._members.append((reflector, sink))
        return reflector

    def __iter__(self) -> Iterator[Reflector]:
        return iter([reflector for reflector, _ in self._members])

    def missing(self) -> list[Resource]:
        """The kinds that have not been listed yet."""
        return [reflector.resource for reflector in self if not reflector.synced.is_set()]

    @property
    def synced(self) -> bool:
        return not self.missing()

    async def wait_synced(self) -> None:
        for reflector in self:
            await reflector.synced.wait()

    async def run(self) -> None:
        """Run all until cancelled. An exception of one sink ends all and is raised (as an ExceptionGroup)."""
        async with asyncio.TaskGroup() as tasks:
            for reflector, sink in self._members:
                tasks.create_task(reflector.run(sink), name=f"reflect {reflector.resource}")
            tasks.create_task(self._watchdog(), name="reflector watchdog")

    async def _watchdog(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for reflector in self:
                if reflector.check():
                    logger.warning("%s: an expected event did not come; reconnecting", reflector.resource)
