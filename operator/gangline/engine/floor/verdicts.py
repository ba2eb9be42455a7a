"""Which mode each tree follows: its policy, if that has something to live on or has proved itself, until it costs more than it
should; else a plain mode, until another one would surely cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import exp, log
from typing import Final, TypeAlias

from gangline.engine.floor.modes import BEST_EFFORT, MODES, POLICY, Mode, PolicyFallback, Trees
from gangline.engine.floor.waits import TOLERATED, Comparison, Lengths, WorkloadWaits, figures, without_each_spell
from gangline.engine.model import Millis

DAY: Final[Millis] = 86_400_000

#: a comparison needs so many workloads that started
FLOOR_LEAST: Final = 100
#: a policy is judged by at most so many, the newest ones, submitted within this time
FLOOR_MOST: Final = 3_000
RECENTLY: Final[Millis] = 7 * DAY
#: a plain mode is left on the evidence of at most so many, submitted within this time: what is better one week is not the next
RETURN_MOST: Final = 20_000
LONG: Final[Millis] = 28 * DAY
#: forecasts are trusted if half of them were off by this factor at most, as a logarithm
TRUSTED: Final = log(1.25)
#: a policy that lives on saved work or true forecasts may cost this many times the better plain mode, and this much more, on
#: average; its tail does not count: who gives way or is passed has waited long already, while in a plain mode the others' wait is
#: yet to come
TOLERATED_OF_TRUSTED: Final = 1.25
SLACK_OF_TRUSTED: Final[Millis] = 60_000
#: workloads that are submitted within this time wait for the same reasons
SPELL: Final[Millis] = 4 * 3_600_000
#: a mode other than the policy is only replaced by one that costs at most this share of it
CLEARLY: Final = 0.9
#: a tree follows its policy for at least this long; a plain mode is questioned every so often; and a policy that was left is not
#: followed for this long, twice as long each time
DWELL: Final[Millis] = 3_600_000
PATIENCE: Final[Millis] = 6 * 3_600_000
AWAY: Final[Millis] = DAY
MOST_AWAY: Final[Millis] = 14 * DAY


#: the workloads of a tree that started and were submitted within a time, oldest first
Within: TypeAlias = Callable[[Millis], Sequence[WorkloadWaits]]


class FloorVerdicts:
    def __init__(self, trees: Trees, lengths: Lengths, lane: Callable[[Mode], int]) -> None:
        """`lane`: where a `WorkloadWaits` keeps its waits in a mode."""
        self._trees = trees
        self._lengths = lengths
        self._lane = lane
        #: by the name of a tree; absent = its policy
        self.modes: dict[str, Mode] = {}
        self.comparisons: dict[str, Comparison] = {}
        self.changed_at: dict[str, Millis] = {}
        #: when a mode was last taken, or another one instead of it considered
        self._questioned: dict[str, Millis] = {}
        self._why: dict[str, str] = {}
        #: how often a tree left its policy, and when last
        self._left: dict[str, tuple[int, Millis]] = {}

    def adopt(self, tree: str, before: PolicyFallback) -> None:
        """What an earlier floor has found. What this one finds counts more."""
        if tree not in self.modes:
            self.modes[tree], self.changed_at[tree], self._why[tree] = before
            self._questioned[tree] = before.since
            self._left[tree] = 1, before.since

    def keep(self, trees: Iterable[str]) -> None:
        """Forget all trees but these, which are the only ones with a floor."""
        kept = set(trees)
        self.modes = {tree: mode for tree, mode in self.modes.items() if tree in kept}

    def fallen_back(self, tree: str) -> PolicyFallback | None:
        """The mode that a tree has fallen back to, since when and why; None: the tree follows its policy."""
        mode = self.modes.get(tree)
        return None if mode is None else PolicyFallback(mode, self.changed_at.get(tree, 0), self._why.get(tree, ""))

    def judge(self, tree: str, within: Within, now: Millis, seen: Millis) -> bool:
        """Compare how long workloads waited by `seen`, the time until which all modes have been played. Returns whether the
        tree's mode changed.
        """
        recent = within(RECENTLY)[-FLOOR_MOST:]
        if len(recent) < FLOOR_LEAST:
            return False
        self.comparisons[tree] = self._compared(recent, seen)
        mode = self.modes.get(tree, POLICY)
        if now < self._questioned.get(tree, 0) + (DWELL if mode == POLICY else PATIENCE):
            return False
        if mode == POLICY:
            jobs, best = recent, self._instead_of_policy(tree, within, recent, now, seen)
        else:
            jobs = within(LONG)
            self._questioned[tree], best = now, self._instead_of_plain(tree, mode, jobs, recent, now, seen)
        if best is None:
            return False
        self.changed_at[tree] = self._questioned[tree] = now
        if best == POLICY:
            self.modes.pop(tree, None)
            return True
        self.modes[tree], self._why[tree] = best, self._compared(jobs, seen).why(mode, best)
        if mode == POLICY:
            self._why[tree] = self._doubt(tree, jobs) + self._why[tree]
            self._left[tree] = min(16, self._left.get(tree, (0, 0))[0] + 1), now
        return True

    def _instead_of_policy(
        self, tree: str, within: Within, recent: Sequence[WorkloadWaits], now: Millis, seen: Millis
    ) -> Mode | None:
        """What the policy is left for; None = it is not.

        The recent workloads of a rush that lasts for days are the end of it: those that best effort let wait at its beginning are
        not among them, and what the policy pays for it is. So a trusted policy is judged by all of them, too.
        """
        if not self._is_trusted(tree, recent):
            return None if self._is_proven(tree, recent, seen) else BEST_EFFORT
        if _tolerable(self.comparisons[tree]) or _tolerable(self._compared(within(LONG), seen)):
            return None
        return self._surely_better(tree, POLICY, recent, SPELL, now, seen)

    def _instead_of_plain(
        self,
        tree: str,
        mode: Mode,
        jobs: Sequence[WorkloadWaits],
        recent: Sequence[WorkloadWaits],
        now: Millis,
        seen: Millis,
    ) -> Mode | None:
        """What a plain mode is left for; None = it is not."""
        best = self._surely_better(tree, mode, jobs, _day(jobs, seen), now, seen)
        if best != POLICY or self._is_trusted(tree, recent) or self._is_proven(tree, recent, seen):
            return best
        return None

    def _surely_better(
        self, tree: str, mode: Mode, jobs: Sequence[WorkloadWaits], spell: Millis, now: Millis, seen: Millis
    ) -> Mode | None:
        """The mode for which this one is to be left whichever spell is left out: chance decides which is better in one."""
        best = self._better(tree, mode, self._compared(jobs, seen), now)
        if best is None:
            return None
        left_out = self._without_each(mode, best, jobs, spell, seen)
        return best if all(self._better(tree, mode, others, now) == best for others in left_out) else None

    def _is_trusted(self, tree: str, jobs: Sequence[WorkloadWaits]) -> bool:
        """Whether the policy has what it lives on: work that is saved and that it lets give way, or forecasts that came true."""
        saving = sum(job.workload.checkpoint is not None for job in jobs)
        if 2 * saving > len(jobs) and self._trees.give_way(tree):
            return True
        error = self._error(jobs)
        return error is not None and error <= TRUSTED

    def _is_proven(self, tree: str, recent: Sequence[WorkloadWaits], seen: Millis) -> bool:
        """Whether the policy costs less than the plain modes, whichever day is left out."""
        plain, day = self.comparisons[tree].plain, _day(recent, seen)
        return all(others.cost(POLICY) < 1 for others in self._without_each(POLICY, plain, recent, day, seen))

    def _without_each(
        self, mode: Mode, other: Mode, jobs: Sequence[WorkloadWaits], spell: Millis, seen: Millis
    ) -> Iterator[Comparison]:
        """A comparison without each spell; of too few workloads, one that says nothing."""
        for others in without_each_spell(jobs, self._lane(mode), self._lane(other), seen, spell):
            yield self._compared(others if len(others) >= FLOOR_LEAST else [], seen)

    def _error(self, jobs: Sequence[WorkloadWaits]) -> float | None:
        return self._lengths.error(job.workload.key for job in jobs)

    def _doubt(self, tree: str, jobs: Sequence[WorkloadWaits]) -> str:
        """Why a policy that is left must prove itself first, in words; "" = it need not."""
        if self._is_trusted(tree, jobs):
            return ""
        error = self._error(jobs)
        forecasts = (
            "no workload with a forecast has ended yet"
            if error is None
            else f"half of the forecasts were off by a factor of {exp(error):.2g} or more"
        )
        return f"the policy is on trial: {forecasts}, and few workloads save checkpoints; "

    def _compared(self, jobs: Sequence[WorkloadWaits], seen: Millis) -> Comparison:
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


def _tolerable(found: Comparison) -> bool:
    """Whether the mean of a trusted policy is not far above that of the better plain mode."""
    return found.by_mode[POLICY].mean <= TOLERATED_OF_TRUSTED * found.by_mode[found.plain].mean + SLACK_OF_TRUSTED


def _day(jobs: Sequence[WorkloadWaits], seen: Millis) -> Millis:
    """The spell of which one must not decide on a policy that is played forward, since that looks good in a rush: what it passes
    over has not waited long yet. A day; or where so many workloads come in a few days that no more are compared, a quarter of
    these.
    """
    if len(jobs) < FLOOR_MOST:
        return DAY
    span = seen - min(job.submitted for job in jobs)
    return max(1, min(DAY, span // 4))
