"""The live table: all rows with the revision at which each changed last, looked at again every few seconds while anybody watches.

However many watch, the rows are made once and each row is encoded once for all who see the same of it. What a look costs bounds
how often it comes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import orjson

from gangline.control.answers.live.rows import LiveRow
from gangline.control.answers.sight import Sight

log = logging.getLogger(__name__)

#: seconds between two looks at least, and the part of the time that looks may take
PERIOD: Final = 2.0
SHARE: Final = 0.1
#: rows that are gone and remembered, for clients to which that was not sent yet
MOST_GONE: Final = 20_000
#: revisions whose changed rows are found at once; who is behind by more looks through all rows
RECENT: Final = 32


@dataclass(slots=True)
class Entry:
    """A row of the table. `number` names it for good, and tells nobody what it is; `since`: the revision of its last change."""

    number: int
    since: int
    row: LiveRow
    _encoded: dict[object, bytes] = field(default_factory=dict[object, bytes])

    def encoded(self, sight: Sight, jobs: Mapping[str, str]) -> bytes:
        """The row as JSON for this asker; b"" if the asker may not know of it."""
        if not sight.everything and self.row.is_personal(sight):
            return self._encode(sight, jobs)
        variant = "all" if sight.everything else self.row.queue in sight.queues
        found = self._encoded.get(variant)
        if found is None:
            found = self._encoded[variant] = self._encode(sight, jobs)
        return found

    def _encode(self, sight: Sight, jobs: Mapping[str, str]) -> bytes:
        row = self.row.as_json(sight, jobs)
        return b"" if row is None else orjson.dumps(row)


@dataclass(frozen=True, slots=True)
class Gone:
    """A row that is no longer there, and since which revision."""

    number: int
    since: int
    table: str


class LiveTable:
    """Keeps the rows current while somebody watches. `look` returns all rows by table and key; `forget` drops what it keeps from
    look to look; `now`: seconds since the epoch.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[Mapping[tuple[str, str], LiveRow]]],
        forget: Callable[[], None] = lambda: None,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        period: float = PERIOD,
    ) -> None:
        self.revision = 0
        #: when the rows were looked at last, in seconds since the epoch
        self.at = 0.0
        self._at_clock = float("-inf")
        self._look, self._forget, self._now, self._clock, self._period = look, forget, now, clock, period
        self._entries: dict[tuple[str, str], Entry] = {}
        self._recent: deque[tuple[int, list[Entry]]] = deque(maxlen=RECENT)
        self._gone: deque[Gone] = deque(maxlen=MOST_GONE)
        self._forgotten = 0  # the newest revision at which a row went of which nobody knows any more
        self._numbers = itertools.count(1)
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Condition()
        self._looks = 0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Keeps the table current inside the block; its rows are there at its beginning."""
        self._watchers += 1
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._keep(), name="live rows")
            async with self._looked:
                seen = self._looks
                if self._clock() - self._at_clock > 2 * self._period:
                    await self._looked.wait_for(lambda: self._looks > seen)
            yield
        finally:
            self._watchers -= 1

    async def _keep(self) -> None:
        """Look again and again, until nobody watches any more. Then nothing is kept."""
        while self._watchers:
            begun = self._clock()
            try:
                self._take(await self._look())
            except Exception:  # the next look may succeed; admission goes on in any case
                log.exception("the live rows could not be made")
            took = self._clock() - begun
            async with self._looked:
                self._looks += 1
                self._looked.notify_all()
            await asyncio.sleep(max(self._period, took / SHARE - took))
        self._entries.clear()
        self._recent.clear()
        self._gone.clear()
        self._at_clock = float("-inf")
        self._forget()

    def _take(self, rows: Mapping[tuple[str, str], LiveRow]) -> None:
        gone, revision = False, self.revision + 1
        changed: list[Entry] = []
        for key in [key for key in self._entries if key not in rows]:
            entry = self._entries.pop(key)
            if len(self._gone) == MOST_GONE:
                self._forgotten = self._gone[0].since
            self._gone.append(Gone(entry.number, revision, entry.row.table))
            gone = True
        for key, row in rows.items():
            entry = self._entries.get(key)
            if entry is None or entry.row != row:
                number = next(self._numbers) if entry is None else entry.number
                self._entries[key] = entry = Entry(number, revision, row)
                changed.append(entry)
        if changed or gone:
            self.revision = revision
            self._recent.append((revision, changed))
        self.at, self._at_clock = self._now(), self._clock()

    async def next_look(self, seconds: float) -> bool:
        """Wait for the next look, for so many seconds at most. Whether there was one."""
        async with self._looked:
            seen = self._looks
            try:
                async with asyncio.timeout(seconds):
                    await self._looked.wait_for(lambda: self._looks > seen)
            except TimeoutError:
                return False
        return True

    def rows(self, after: int) -> list[Entry]:
        """The rows that changed after a revision, each once."""
        if self._recent and after + 1 >= self._recent[0][0]:
            changed = (each for revision, rows in self._recent if revision > after for each in rows)
            return list({each.number: each for each in changed}.values())
        return [each for each in self._entries.values() if each.since > after]

    def gone(self, after: int) -> list[Gone] | None:
        """The rows that have gone after a revision; None if that is not remembered any more."""
        if self._forgotten > after:
            return None
        return [each for each in self._gone if each.since > after]
