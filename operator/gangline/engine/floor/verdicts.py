"""Which mode each tree follows: it leaves one that costs more than it should, on enough evidence, and returns later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log
from typing import Final

from gangline.engine.floor.lengths import Lengths
from gangline.engine.floor.modes import MODES, POLICY, FallenBack, Mode
from gangline.engine.floor.trees import Trees
from gangline.engine.floor.waits import TOLERATED, Comparison, Job, figures, without_each_spell
from gangline.engine.model import Millis

#: a comparison needs so many workloads that started
FLOOR_LEAST: Final = 100
#: forecasts are trusted if half of them were off by this factor at most, as a logarithm
TRUSTED: Final = log(2)
#: a policy that lets saved work give way may cost this many times the better plain mode, and this much more, on average; its tail
#: does not count: who gives way has waited long already, while in a plain mode the others' wait is yet to come
TOLERATED_OF_SAVED: Final = 1.25
SLACK_OF_SAVED: Final[Millis] = 60_000
#: a mode other than the policy is only replaced by one that costs at most this share of it
CLEARLY: Final = 0.9
#: a tree stays in a mode for at least this long; without its policy for this long, twice as long each time it left it again
DWELL: Final[Millis] = 3_600_000
AWAY: Final[Millis] = 24 * 3_600_000
MOST_AWAY: Final[Millis] = 14 * 86_400_000


class Verdicts:
    def __init__(self, trees: Trees, lengths: Lengths, lane: Callable[[Mode], int]) -> None:
        """`lane`: where a `Job` keeps its waits in a mode."""
        self._trees = trees
        self._lengths = lengths
        self._lane = lane
        #: by the name of a tree; absent = its policy
        self.modes: dict[str, Mode] = {}
        self.comparisons: dict[str, Comparison] = {}
        self.changed_at: dict[str, Millis] = {}
        self._why: dict[str, str] = {}
        #: how often a tree left its policy, and when last
        self._left: dict[str, tuple[int, Millis]] = {}

    def adopt(self, tree: str, before: FallenBack) -> None:
        """What an earlier floor has found. What this one finds counts more."""
        if tree not in self.modes:
            self.modes[tree], self.changed_at[tree], self._why[tree] = before
            self._left[tree] = 1, before.since

    def keep(self, trees: Iterable[str]) -> None:
        """Only these trees have a floor."""
        kept = set(trees)
        self.modes = {tree: mode for tree, mode in self.modes.items() if tree in kept}

    def fallen_back(self, tree: str) -> FallenBack | None:
        """None: the tree follows its policy."""
        mode = self.modes.get(tree)
        return None if mode is None else FallenBack(mode, self.changed_at.get(tree, 0), self._why.get(tree, ""))

    def judge(self, tree: str, jobs: Sequence[Job], now: Millis, seen: Millis) -> bool:
        """Compare how long these waited by `seen`, the time until which all modes have been played. Returns whether the tree's
        mode changed.
        """
        if len(jobs) < FLOOR_LEAST:
            return False
        found = self.comparisons[tree] = self._compared(jobs, seen)
        mode = self.modes.get(tree, POLICY)
        if now < self.changed_at.get(tree, 0) + DWELL:
            return False
        best = self._better(tree, mode, found, now)
        if best is None:
            return False
        if mode == POLICY and not self._is_doubted(tree, jobs, best, now, seen):
            return False
        self.changed_at[tree], self._why[tree] = now, found.why(mode, best)
        if mode == POLICY:
            self._left[tree] = min(16, self._left.get(tree, (0, 0))[0] + 1), now
        if best == POLICY:
            self.modes.pop(tree, None)
        else:
            self.modes[tree] = best
        return True

    def _saves(self, tree: str, jobs: Sequence[Job]) -> bool:
        """The policy lets work give way that is saved."""
        saving = sum(job.workload.checkpoint is not None for job in jobs)
        return 2 * saving > len(jobs) and self._trees.give_way(tree)

    def _is_doubted(self, tree: str, jobs: Sequence[Job], best: Mode, now: Millis, seen: Millis) -> bool:
        """The evidence against the policy is enough, by what it lives on: saved work, or forecasts that come true."""
        if self._saves(tree, jobs):
            found = self.comparisons[tree]
            tolerated = TOLERATED_OF_SAVED * found.by_mode[found.plain].mean + SLACK_OF_SAVED
            return found.by_mode[POLICY].mean > tolerated and self._is_sure(tree, jobs, best, now, seen)
        error = self._lengths.error(job.workload.key for job in jobs)
        trusted = error is not None and error <= TRUSTED
        return not trusted or self._is_sure(tree, jobs, best, now, seen)

    def _is_sure(self, tree: str, jobs: Sequence[Job], best: Mode, now: Millis, seen: Millis) -> bool:
        """Whether that mode is better than the policy whichever spell is left out: in a single rush, chance decides."""
        return all(
            len(others) >= FLOOR_LEAST and self._better(tree, POLICY, self._compared(others, seen), now) == best
            for others in without_each_spell(jobs, self._lane(POLICY), self._lane(best), seen)
        )

    def _compared(self, jobs: Sequence[Job], seen: Millis) -> Comparison:
        return Comparison(seen, {mode: figures(jobs, self._lane(mode), seen) for mode in MODES})

    def _better(self, tree: str, mode: Mode, found: Comparison, now: Millis) -> Mode | None:
        """The mode for which this one is to be left; None = it is not."""
        times, last = self._left.get(tree, (0, 0))
        away = min(MOST_AWAY, AWAY << max(0, times - 1))
        may_return = mode == POLICY or now >= last + away
        options: list[Mode] = [each for each in MODES if each != POLICY or may_return]
        best = min(options, key=found.cost)
        enough = found.cost(mode) / TOLERATED if mode == POLICY else CLEARLY * found.cost(mode)
        return best if best != mode and found.cost(best) <= enough else None
