"""How long workloads wait in reality and in each counterfactual, and how these compare."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.floor.modes import MODES, PLAIN, POLICY, Mode
from gangline.engine.model import Millis, Workload

#: of the lists in a `WorkloadWaits`: reality, then one counterfactual for each mode
REAL: Final = 0
LANE: Final[Mapping[Mode, int]] = {mode: number + 1 for number, mode in enumerate(MODES)}
_LANES: Final = 1 + len(MODES)
#: the tail is the mean of this share of the longest waits
_TAIL: Final = 0.02
#: waits are compared as if all were longer by this, in milliseconds: seconds do not matter; the tail by ten times as much
_SLACK: Final[Millis] = 30_000
#: a mode may cost this many times the better plain mode
TOLERATED: Final = 1.05
_NOT: Final[Millis] = -1
_WORDS: Final[Mapping[Mode, str]] = {"Policy": "their policy", "BestEffort": "best effort", "Easy": "EASY"}


@dataclass(slots=True)
class WorkloadWaits:
    """A workload and its waits. `since`: since when it waits, by lane."""

    workload: Workload
    root: str
    submitted: Millis
    waited: list[Millis] = field(default_factory=lambda: [0] * _LANES)
    since: list[Millis] = field(default_factory=lambda: [_NOT] * _LANES)
    #: it has started at least once in some lane
    started: bool = False
    #: in reality: since when it runs, None = it waits, or is over; the work before that is not repeated
    runs_since: Millis | None = None
    saved: Millis = 0
    #: what its work came to, None = it is not over
    length: Millis | None = None
    #: see `quantile`; None = not drawn yet
    level: float | None = None

    def quantile(self) -> float:
        """The level of what is forecast for it at which it is taken to end: its own."""
        if self.level is None:
            self.level = random.Random(self.workload.uid).uniform(0.02, 0.98)
        return self.level

    def ran(self, now: Millis) -> Millis:
        """The real work that is done by now and will not be repeated, in milliseconds."""
        return self.saved + (now - self.runs_since if self.runs_since is not None else 0)

    def starts(self, lane: int, now: Millis) -> None:
        if self.since[lane] != _NOT:
            self.waited[lane] += max(0, now - self.since[lane])
            self.since[lane] = _NOT
        self.started = True

    def stops(self, lane: int, now: Millis, lost: Millis) -> None:
        self.waited[lane] += max(0, lost)
        self.since[lane] = now

    def wait(self, lane: int, now: Millis) -> Millis:
        since = self.since[lane]
        return self.waited[lane] + (max(0, now - since) if since != _NOT else 0)


@dataclass(frozen=True, slots=True)
class Figures:
    """The mean wait, and the mean of the longest waits, of the jobs that started in at least one lane, in milliseconds."""

    jobs: int
    mean: float
    tail: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of every mode, at a time."""

    at: Millis
    by_mode: Mapping[Mode, Figures]

    @property
    def plain(self) -> Mode:
        """The better one of the plain modes: of those whose mean is near the shorter one, that with the shorter tail."""
        means = {mode: self.by_mode[mode].mean + _SLACK for mode in PLAIN}
        near: list[Mode] = [mode for mode in PLAIN if means[mode] <= TOLERATED * min(means.values())]
        return min(near, key=lambda mode: (self.by_mode[mode].tail, PLAIN.index(mode)))

    def cost(self, mode: Mode) -> float:
        """The larger one of two ratios to the better plain mode: that of the means, and that of the tails."""
        mine, other = self.by_mode[mode], self.by_mode[self.plain]
        means = (mine.mean + _SLACK) / (other.mean + _SLACK)
        return max(means, (mine.tail + 10 * _SLACK) / (other.tail + 10 * _SLACK))

    def why(self, left: Mode, taken: Mode) -> str:
        """Why one mode is left for another, in words."""
        mine, other = self.by_mode[left], self.by_mode[taken]
        return (
            f"{mine.jobs} workloads would have waited {_lasting(mine.mean)} on average and {_lasting(mine.tail)} in the longest "
            f"fiftieth under {_WORDS[left]}, {_lasting(other.mean)} and {_lasting(other.tail)} under {_WORDS[taken]}"
        )

    @property
    def jobs(self) -> int:
        return self.by_mode[POLICY].jobs


def figures(jobs: Sequence[WorkloadWaits], lane: int, now: Millis) -> Figures:
    waits = [
        job.waited[lane] if (since := job.since[lane]) == _NOT else job.waited[lane] + max(0, now - since)
        for job in jobs
    ]
    waits.sort(reverse=True)
    worst = waits[: max(1, round(_TAIL * len(waits)))]
    return Figures(len(waits), _mean(waits), _mean(worst))


def without_each_spell(
    jobs: Sequence[WorkloadWaits], lane: int, other: int, now: Millis, spell: Millis
) -> Iterator[list[WorkloadWaits]]:
    """The jobs without those submitted in one spell, for every spell; first the spell in which the waits of these lanes differ
    most.
    """
    difference: dict[int, Millis] = {}
    for job in jobs:
        number = job.submitted // spell
        difference[number] = difference.get(number, 0) + job.wait(lane, now) - job.wait(other, now)
    for number in sorted(difference, key=lambda each: -abs(difference[each])):
        yield [job for job in jobs if job.submitted // spell != number]


def _lasting(millis: float) -> str:
    seconds = round(millis / 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _mean(values: Iterable[Millis]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
