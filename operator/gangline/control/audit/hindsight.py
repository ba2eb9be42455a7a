"""Whether recorded preemptions could have lost less: worked out by replays of the record, one at a time, and remembered."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.control.audit import replay_process
from gangline.control.audit.decision_index import DecisionIndex, PreemptedSpan, RecordedDecision, RecordPart
from gangline.control.audit.replay_process import ReplayError
from gangline.kube.resources import Json

#: seconds that one answer waits for what is not known yet
PATIENCE: Final = 8.0
#: preemptions that one replay is asked about, the newest
AT_ONCE: Final = 250
#: preemptions that are remembered
MOST: Final = 5_000
#: seconds after which a replay that failed is tried again
RETRY: Final = 600.0

_NOT_RECORDED: Final = "the record has not this preemption, or not any more"
_NO_BEGINNING: Final = "the record has not any more what was known before this preemption"
_NOT_YET: Final = "it is being worked out: ask again in a minute"
_TOO_LONG: Final = "a replay of the record does not come to this preemption in time"

_Found: TypeAlias = tuple[RecordedDecision, RecordPart]


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Whether a preemption could have lost less. `cheaper`: what another choice of victims would have lost
    (`decision_inputs.cheaper`), None = no other one less. `unknown`: why that cannot be said; "" where it is known.
    """

    cheaper: Json | None = None
    unknown: str = ""


class Hindsights:
    """Answers for the record that this process writes. However many ask, one replay runs at a time, and after each there is a
    pause as long as it took.
    """

    def __init__(self, index: DecisionIndex) -> None:
        self._index = index
        self._known: OrderedDict[int, Hindsight] = OrderedDict()  # by the number of the decision
        self._failed: OrderedDict[int, tuple[Hindsight, float]] = OrderedDict()  # until when they are not tried again
        self._task: asyncio.Task[None] | None = None
        self._rests_until = 0.0

    async def of(self, spans: Sequence[PreemptedSpan]) -> list[Hindsight]:
        """What is known of the last preemption in each span of time, or is within a few seconds. Raises OSError."""
        found = await asyncio.to_thread(self._index.preemptions, spans)
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        wanted = {each.number: (each, part) for each, part in found.values() if part is not None}
        while missing := [each for number, each in wanted.items() if self._at_hand(number) is None]:
            if self._task is None:
                if loop.time() < self._rests_until:
                    break
                self._task = loop.create_task(self._work(missing), name="replay of preemptions")
            done, _ = await asyncio.wait({self._task}, timeout=max(0.0, until - loop.time()))
            if not done:
                break
        return [self._result(found.get(place)) for place in range(len(spans))]

    async def close(self) -> None:
        """End a replay that is running."""
        if (running := self._task) is not None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def _result(self, found: tuple[RecordedDecision, RecordPart | None] | None) -> Hindsight:
        if found is None:
            return Hindsight(unknown=_NOT_RECORDED)
        decision, part = found
        known = self._at_hand(decision.number)
        return known or Hindsight(unknown=_NOT_YET if part is not None else _NO_BEGINNING)

    def _at_hand(self, number: int) -> Hindsight | None:
        if (known := self._known.get(number)) is not None:
            self._known.move_to_end(number)
            return known
        failed, until = self._failed.get(number, (None, 0.0))
        return failed if asyncio.get_running_loop().time() < until else None

    async def _work(self, missing: Sequence[_Found]) -> None:
        """Work out the newest of these preemptions. Each of them is then known, or noted as failed."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        newest = sorted(missing, key=lambda each: -each[0].number)[:AT_ONCE]
        runs: dict[tuple[tuple[int, int], int], list[_Found]] = {}
        for each in newest:
            runs.setdefault((each[1].file.identity, each[1].begin), []).append(each)
        try:
            for run in runs.values():
                await self._replay(sorted(run, key=lambda each: each[0].number))
        finally:
            self._task = None
            self._rests_until = 2 * loop.time() - began

    async def _replay(self, run: Sequence[_Found]) -> None:
        """Work out preemptions of one run of the operator, which are in their order."""
        rounds: dict[int, list[_Found]] = {}
        for each in run:
            rounds.setdefault(each[1].end, []).append(each)
        parts, begin = list[RecordPart](), run[0][1].begin
        for end, (first, *_) in rounds.items():
            parts.append(RecordPart(first[1].file, begin, end))
            begin = end
        places = [[each.number - each.round for each, _ in found] for found in rounds.values()]
        trouble, answers = _TOO_LONG, list[list[Json]]()
        try:
            answers = await replay_process.cheaper(parts, places)
        except ReplayError as error:
            trouble = str(error)
        verdicts = [each for answer in answers for each in answer]
        for place, (decision, _) in enumerate(run):
            self._note(decision.number, verdicts[place] if place < len(verdicts) else {}, trouble)

    def _note(self, number: int, verdict: Mapping[str, Json], trouble: str) -> None:
        if "cheaper" in verdict:
            self._known[number] = Hindsight(verdict["cheaper"])
            self._failed.pop(number, None)
        else:
            why = str(verdict.get("notRepeatable", trouble))
            self._failed[number] = Hindsight(unknown=why), asyncio.get_running_loop().time() + RETRY
            self._failed.move_to_end(number)
        for kept in (self._known, self._failed):
            while len(kept) > MOST:
                kept.popitem(last=False)
