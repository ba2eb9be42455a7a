"""What answers ask of the audit record: pages of decisions, the inputs of one, and whether all are decided the same again.

Nothing of it runs on the event loop: lines are read in threads, and replays are processes of low priority.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from gangline.control.audit import replay_process
from gangline.control.audit.decision_index import (
    DecisionIndex,
    DecisionPage,
    PreemptedSpan,
    RecordedDecision,
    RecordPart,
)
from gangline.control.audit.hindsight import Hindsight, Hindsights
from gangline.control.audit.replay_process import ReplayError
from gangline.engine import model
from gangline.kube.resources import Json

#: milliseconds from one check to the next
EVERY: Final = 600_000
_UNCHECKED: Final[Json] = {
    "at": None,
    "from": None,
    "to": None,
    "runs": 0,
    "rounds": 0,
    "decisions": 0,
    "differing": 0,
    "differences": [],
    "headsDelayed": 0.0,
    "missed": 0,
    "error": "",
}


class AuditReader:
    """Reads the record that this process writes. `now` returns milliseconds since the epoch."""

    def __init__(self, index: DecisionIndex, now: Callable[[], int]) -> None:
        self._index = index
        self._hindsights = Hindsights(index)
        self._now = now
        self._checked = _UNCHECKED
        self._check: asyncio.Task[None] | None = None
        self._begun: model.Millis | None = None  # when the last check began

    @property
    def covered_from(self) -> model.Millis | None:
        """The instant from which on all decisions are listed; None while nothing is recorded."""
        return self._index.covered_from

    async def page(self, after: int, most: int, **window: Any) -> DecisionPage:
        """See `DecisionIndex.page`."""
        return await asyncio.to_thread(self._index.page, after, most, **window)

    async def find(self, number: int) -> tuple[RecordedDecision, RecordPart | None] | None:
        """See `DecisionIndex.find`."""
        return await asyncio.to_thread(self._index.find, number)

    async def inputs(self, decision: RecordedDecision, part: RecordPart) -> Json:
        """See `replay_process.inputs`."""
        return await replay_process.inputs(part, decision.number - decision.round)

    async def hindsight(self, spans: Sequence[PreemptedSpan]) -> list[Hindsight]:
        """See `Hindsights.of`."""
        return await self._hindsights.of(spans)

    def check(self) -> Json:
        """The result of the last check, and whether one is running: it is begun by whoever asks, at most every ten minutes."""
        now = self._now()
        if self._check is None and (self._begun is None or now - self._begun >= EVERY):
            self._begun = now
            self._check = asyncio.get_running_loop().create_task(self._run(), name="check of the audit record")
        return {**self._checked, "running": self._check is not None}

    async def _run(self) -> None:
        try:
            found = await replay_process.checked(self._index.all_parts())
            self._checked = {**found, "at": self._now() / 1000}
        except ReplayError as error:  # of the last check that came to an end the result is kept
            self._checked = {**self._checked, "error": str(error)}
        finally:
            self._check = None

    async def close(self) -> None:
        """End replays that are running."""
        await self._hindsights.close()
        if (running := self._check) is not None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
