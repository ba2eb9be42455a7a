"""The preemptions of the last day, and whether more of them are within the limits of the queues that they concern.

A limit counts what a queue has caused (workloads that were preempted for its own) or suffered (its own that were preempted): how
many within any hour, and how many GPU-hours of work were lost within any 24 hours. Only queues with limits are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gangline.engine.model import Millis, PastPreemption, PreemptionBounds, PreemptionsUnknown, accelerators_of
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.wording import hours_text, minute_text

HOUR: Final[Millis] = 3_600_000
DAY: Final[Millis] = 24 * HOUR
#: the reason of the preemption of a workload that moves to other nodes (engine.preemption.moves)
MOVED: Final = "Moved"
#: preemptions that are remembered; of more the oldest ones are forgotten
MOST: Final = 20_000


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit that does not permit a preemption: the sentence about it, and when it does; NEVER: not by itself."""

    text: str
    until: Millis


class PreemptionLog:
    """What was preempted lately."""

    def __init__(self) -> None:
        #: by key, in the order in which they were noted
        self.past: dict[str, PastPreemption] = {}
        #: what was preempted before is not known yet, by the fact that says so
        self.unknown: dict[str, PreemptionsUnknown] = {}
        self._caused: dict[str, dict[str, PastPreemption]] = {}
        self._suffered: dict[str, dict[str, PastPreemption]] = {}
        #: the moves by ClusterQueue, and the last one of each workload
        self._moved: dict[str, dict[str, PastPreemption]] = {}
        self._last_moves: dict[str, Millis] = {}

    def put(self, key: str, past: PastPreemption | None) -> None:
        """Note a preemption, or forget it."""
        known = self.past.pop(key, None)
        if known is not None:
            _drop(self._caused, known.by_queue, key)
            _drop(self._suffered, known.queue, key)
            if known.moved:
                _drop(self._moved, known.queue, key)
                if self._last_moves.get(known.workload) == known.at:
                    del self._last_moves[known.workload]
        if past is not None:
            self.past[key] = past
            self._caused.setdefault(past.by_queue, {})[key] = past
            self._suffered.setdefault(past.queue, {})[key] = past
            if past.moved:
                self._moved.setdefault(past.queue, {})[key] = past
                self._last_moves[past.workload] = max(past.at, self._last_moves.get(past.workload, past.at))
            if len(self.past) > MOST:
                self.put(next(iter(self.past)), None)

    def note(self, victim: WorkloadState, queue: ClusterQueueState, now: Millis, *, moved: bool = False) -> None:
        """Note that a workload is preempted for one of `queue`, where one of their queues has limits, or it is `moved`."""
        own = queue_of(victim)
        if own is None or not (moved or own.config.preemption_limits or queue.config.preemption_limits):
            return
        for key in [key for key, past in self.past.items() if past.at <= now - DAY]:
            self.put(key, None)
        lost = self.cost_of_move(victim, own, now) if moved else _lost(victim, now)
        past = PastPreemption(victim.key, now, own.name, queue.name, lost, moved)
        self.put(past.key, past)

    def undo(self, workload: str) -> None:
        """Forget the last preemption of a workload, which could not be written."""
        last = max((past for past in self.past.values() if past.workload == workload), key=_at, default=None)
        if last is not None:
            self.put(last.key, None)

    # --- moves ---

    def unknown_until(self, now: Millis) -> Millis:
        """Until when, at most, it is not known what was preempted before; 0: it is known."""
        until = max((each.until for each in self.unknown.values()), default=0)
        return until if until > now else 0

    def cost_of_move(self, mover: WorkloadState, queue: ClusterQueueState, now: Millis) -> int:
        """What a workload of `queue` loses if it is moved now, its restart included, in GPU-milliseconds."""
        restart = queue.config.moves.restart if queue.config.moves is not None else 0
        return _lost(mover, now) + accelerators_of(mover.workload.pod_sets) * restart

    def last_move(self, workload: str) -> Millis | None:
        """When a workload was last moved; None: not within the last day."""
        return self._last_moves.get(workload)

    def lost_by_moves(self, queue: str, now: Millis) -> int:
        """What workloads of a ClusterQueue lost by moves within the last day, in GPU-milliseconds."""
        return sum(past.lost for past in self._moved.get(queue, {}).values() if past.at > now - DAY)

    def moves_again(self, queue: str, cost: int, most: int, now: Millis) -> Millis | None:
        """When moves at this cost are within a bound for any 24 hours; None: they are now, NEVER: not by themselves."""
        past = sorted((each for each in self._moved.get(queue, {}).values() if each.at > now - DAY), key=_at)
        return _frees([(each.at, each.lost) for each in past], cost, most, DAY)

    # --- limits ---

    def obstacle(
        self, victims: Collection[WorkloadState], queue: ClusterQueueState, now: Millis
    ) -> LimitReached | None:
        """The limit that does not permit to preempt these for a workload of `queue` now; of several the one that does so last."""
        return max(self._obstacles(victims, queue, now), key=lambda each: each.until, default=None)

    def _obstacle_of_the_past(
        self, victims: Collection[WorkloadState], queue: ClusterQueueState, now: Millis
    ) -> Iterator[LimitReached]:
        """The obstacle while it is not known what was preempted before."""
        until = self.unknown_until(now)
        if until and (_has_limits(queue) or any(_has_limits(queue_of(victim)) for victim in victims)):
            said = "Workload would preempt others, but it is not known yet how many were preempted within the last day"
            yield LimitReached(said, until)

    def _obstacles(
        self, victims: Collection[WorkloadState], queue: ClusterQueueState, now: Millis
    ) -> Iterator[LimitReached]:
        yield from self._obstacle_of_the_past(victims, queue, now)
        if (limits := queue.config.preemption_limits) is not None:
            past = self._caused.get(queue.name, {}).values()
            yield from _beyond(limits.causes, past, victims, f"ClusterQueue {queue.name} may cause", now)
        by_queue: dict[str, tuple[ClusterQueueState, list[WorkloadState]]] = {}
        for victim in victims:
            if (own := queue_of(victim)) is not None and own.config.preemption_limits is not None:
                by_queue.setdefault(own.name, (own, []))[1].append(victim)
        for name, (own, mine) in sorted(by_queue.items()):
            if (limits := own.config.preemption_limits) is not None:
                past = self._suffered.get(name, {}).values()
                yield from _beyond(limits.suffers, past, mine, f"ClusterQueue {name} may suffer", now)


def _has_limits(queue: ClusterQueueState | None) -> bool:
    return queue is not None and queue.config.preemption_limits is not None


def _beyond(
    bounds: PreemptionBounds, past: Iterable[PastPreemption], victims: Collection[WorkloadState], who: str, now: Millis
) -> Iterator[LimitReached]:
    """The bounds that these victims would exceed."""
    lately = sorted((each for each in past if each.at > now - DAY), key=_at)
    if (most := bounds.per_hour) is not None:
        times = [(each.at, 1) for each in lately if each.at > now - HOUR]
        until = _frees(times, len(victims), most, HOUR)
        if until is not None:
            yield _reached(f"{who} {most} preemption(s) an hour, and {len(times)} were within the last hour", until)
    if (hours := bounds.lost_gpu_hours_per_day) is not None:
        lost = [(each.at, each.lost) for each in lately]
        more = sum(_lost(victim, now) for victim in victims)
        until = _frees(lost, more, round(hours * HOUR), DAY)
        if until is not None:
            so_far = hours_text(sum(amount for _, amount in lost) / HOUR)
            yield _reached(
                f"{who} {hours_text(hours)} lost GPU-hours a day, and {so_far} were within the last day", until
            )


def _frees(past: list[tuple[Millis, int]], more: int, most: int, span: Millis) -> Millis | None:
    """When there is room for `more` within a limit; None: there is now."""
    over = sum(amount for _, amount in past) + more - most
    if over <= 0:
        return None
    for at, amount in past:
        over -= amount
        if over <= 0:
            return at + span
    return NEVER


def _reached(limit: str, until: Millis) -> LimitReached:
    when = "needs fewer or other victims" if until >= NEVER else f"may go on at {minute_text(until)}"
    return LimitReached(f"Workload would preempt others, but {limit}; the workload {when}", until)


def _lost(victim: WorkloadState, now: Millis) -> int:
    """The work that a workload loses if it stops now, in GPU-milliseconds."""
    return accelerators_of(victim.workload.pod_sets) * victim.unsaved(now)


def _at(past: PastPreemption) -> tuple[Millis, str]:
    return past.at, past.workload


def _drop(table: dict[str, dict[str, PastPreemption]], name: str, key: str) -> None:
    table[name].pop(key, None)
    if not table[name]:
        del table[name]
