"""The choice among flavors by expected completion, where a QueuePolicy asks for it.

Of the flavors that a workload may get, it is given the one on which it is expected to end first. Where it fits, that is now and
the time that it runs there. Where it does not fit yet, it is its expected start by the timeline and that time. Kueue's rules of
borrowing and preemption decide what fits: nobody is preempted for the sake of a faster flavor.

A workload that waits for a flavor though another one is free holds up nobody. It is tried again when something is released, when
its expected start comes or moves, when its forecast changes, and when it has waited for as long as the policy lets it. A wait is
begun only where it gains a tenth of the time, and goes on for as long as it gains anything, so that little changes no decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gangline.engine.backfill.reservation import PlannedStart
from gangline.engine.backfill.timeline import Timeline
from gangline.engine.flavors.assignment import PODS, WAITING, Mode, asked_of, verdict_of
from gangline.engine.flavors.flavor_assigner import Assigner
from gangline.engine.model import Millis, RuntimeForecast, is_accelerator
from gangline.engine.model.runtime import NEVER
from gangline.engine.preemption.preemptor import Preemptor
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.ordering import Estimates, Flavors, working_flavors
from gangline.engine.queues.timed_queue import TimedQueue
from gangline.engine.queues.workload_parts import NO_NAMES, FlavorWait
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store

#: The first workloads of a ClusterQueue whose starts are planned. Those behind them wait for no flavor while another one is free.
MOST_PLANNED: Final = 16
#: A wait is begun where it gains a part of the time until the end without it, and at least this.
_GAIN: Final = 0.1
_LEAST_GAIN: Final[Millis] = 60_000
#: The quantile of runtimes that are compared.
_MEDIAN: Final = 0.5


class _Free(NamedTuple):
    """Flavors on which a workload fits now, and its expected end there."""

    end: Millis
    flavors: Flavors
    left_out: frozenset[str]


class FlavorChoice:
    """Chooses for the heads of queues with such a policy. Without one it costs nothing."""

    def __init__(self, store: Store, timeline: Timeline) -> None:
        self._store = store
        self._timeline = timeline
        self._estimates: Estimates = store.estimates
        self._now: Millis = 0
        #: by key: those that wait for a flavor though another one is free, and the forecast by which they do
        self._waiting: dict[str, tuple[WorkloadState, RuntimeForecast | None]] = {}
        #: ClusterQueue -> its first workloads, in its order, as far as that was needed in this `decide`
        self._first: dict[str, list[WorkloadState]] = {}

    # --- time ---------------------------------------------------------------------------------------------------------

    def begin(self, now: Millis) -> None:
        """Advance to `now`: those whose expectation does not stand any more are tried again."""
        self._now = now
        self._first.clear()
        if self._store.choosing or self._waiting:
            self._timeline.keep_up(now)
        for planned in list(self._timeline.planned):
            if not self._waits_in(planned.gang, planned.queue):
                self._timeline.forget(planned)
        if self._waiting:
            starts = {planned.gang: planned for planned in self._timeline.planned}
            for key, (gang, forecast) in list(self._waiting.items()):
                same = self._store.forecasts.get(key) is forecast
                if not (same and self._stands(gang, starts.get(gang))):
                    del self._waiting[key]
                    gang.backfill.wait_for(None)
                    self._try_again(gang)

    def due_times(self, now: Millis) -> list[Millis]:
        """When expected starts come, and waits end."""
        waits = [wait for gang, _ in self._waiting.values() if (wait := gang.backfill.waits_for) is not None]
        return [at for wait in waits for at in (wait.start, wait.until) if at > now]

    def _waits_in(self, gang: WorkloadState, queue: str) -> bool:
        """Whether a workload still waits in a ClusterQueue with such a policy."""
        state = queue_of(gang)
        if state is None or state.name != queue or state.config.flavors is None:
            return False
        return self._store.gangs.get(gang.key) is gang and not gang.holds

    def _stands(self, gang: WorkloadState, planned: PlannedStart | None) -> bool:
        """Whether it may go on waiting for what it expects."""
        wait = gang.backfill.waits_for
        if wait is None or planned is None or planned.worse or _moved(wait, planned.start, self._now):
            return False
        return self._now < min(wait.start, wait.until)

    def _try_again(self, gang: WorkloadState) -> None:
        queue = queue_of(gang)
        if queue is None or self._store.gangs.get(gang.key) is not gang or not gang.inadmissible_alone:
            return
        if self._store.may_try(gang):
            queue.pending.take_out(gang)
            queue.pending.arrive(gang)
            self._store.touch(queue)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def choose(self, gang: WorkloadState, queue: ClusterQueueState, preemptor: Preemptor) -> None:
        """Let a head get the best of its flavors alone, or wait for it. Where it fits on none, its flavors have their order."""
        before = gang.backfill.waits_for
        gang.backfill.wait_for(None)
        self._waiting.pop(gang.key, None)
        options = self._options(gang, queue)
        if not options:
            return
        first = Assigner(gang, queue, preemptor).assign()
        if first.mode is not Mode.FIT:
            return
        here = working_flavors(pod_set.flavors for pod_set in first.pod_sets)
        free = [self._free(gang, here, options.get(here[0], NO_NAMES) if len(here) == 1 else NO_NAMES)]
        taken: list[str] = []
        for flavor, left_out in options.items():
            if here == (flavor,):
                continue
            with gang.without(left_out):
                found = Assigner(gang, queue, preemptor).assign()
            borrows = found.borrowing > first.borrowing
            if found.mode is not Mode.FIT:
                taken.append(flavor)
            elif not borrows or queue.config.fungibility.when_can_borrow != "TryNextFlavor":
                free.append(self._free(gang, (flavor,), left_out))
        best = min(free, key=lambda each: each.end)  # of several that are as good, the first in order
        wait = self._wait(gang, queue, best, {flavor: options[flavor] for flavor in taken})
        if wait is None:
            gang.leave_out(best.left_out)
            return
        gang.backfill.wait_for(before if before is not None and _alike(before, wait, self._now) else wait)
        self._waiting[gang.key] = gang, self._store.forecasts.get(gang.key)
        gang.leave_out(options[wait.flavor])

    def _free(self, gang: WorkloadState, flavors: Flavors, left_out: frozenset[str]) -> _Free:
        return _Free(self._now + self._estimates.length(gang, _MEDIAN, flavors), flavors, left_out)

    def _options(self, gang: WorkloadState, queue: ClusterQueueState) -> Mapping[str, frozenset[str]]:
        """The flavors that one resource group has for the workload, in order: each with the others. It has none where the choice
        makes no difference, or is made by something else.

        The group is the one of its accelerators, or the only one of a workload without these.
        """
        if gang.variant or gang.replaces or queue.multikueue or not self._estimates.varies(gang):
            return _NO_OPTIONS
        store = self._store
        ignore = store.settings.ignore_undeclared_resources
        asked = asked_of(gang, queue, store.topology, None, ignore_missing=ignore)
        needs = [(each, {resource for resource, _ in each.amounts} - {PODS}) for group in asked for each in group.needs]
        fast = [each for each, resources in needs if any(map(is_accelerator, resources))]
        deciding = fast or [each for each, resources in needs if resources]
        if len({tuple(way.option.name for way in each.ways) for each in deciding}) != 1:
            return _NO_OPTIONS
        refused = {way.option.name for each in deciding for way in each.ways if way.refused}
        names = [way.option.name for way in deciding[0].ways if way.option.name not in refused]
        return {name: frozenset(names) - {name} for name in names} if len(names) > 1 else _NO_OPTIONS

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wait(
        self, gang: WorkloadState, queue: ClusterQueueState, best: _Free, taken: Mapping[str, frozenset[str]]
    ) -> FlavorWait | None:
        """The wait for one of the flavors that are taken, if it is worth it."""
        policy = queue.config.flavors
        runs = {flavor: self._estimates.length(gang, _MEDIAN, (flavor,)) for flavor in taken}
        worth = {flavor: self._latest_end(gang, flavor, best) - length for flavor, length in runs.items()}
        worth = {flavor: start for flavor, start in worth.items() if start > self._now}
        if policy is None or not worth or queue.pending.strict:
            return None
        until = gang.own_turn + policy.wait_at_most
        if until <= self._now or any(each.gang is gang for each in self._timeline.reservations):
            return None
        ahead = self._planned_before(gang, queue)
        if ahead is None:
            return None
        found = [(self._expected(gang, queue, taken[flavor], ahead), flavor) for flavor in worth]
        found = [(each, flavor) for each, flavor in found if each.start <= min(until, worth[flavor])]
        if not found:
            return None
        planned, flavor = min(found, key=lambda each: each[0].start + runs[each[1]])
        self._plan(planned)
        end = planned.start + runs[flavor]
        return FlavorWait(flavor, planned.start, end, ", ".join(best.flavors), best.end, until)

    def _latest_end(self, gang: WorkloadState, flavor: str, best: _Free) -> Millis:
        """The latest end on a flavor with which a workload waits for that flavor."""
        if gang.backfill.waited_for == flavor or best.end >= NEVER:
            return best.end
        return best.end - max(_LEAST_GAIN, round(_GAIN * (best.end - self._now)))

    def _expected(
        self, gang: WorkloadState, queue: ClusterQueueState, left_out: frozenset[str], ahead: Sequence[PlannedStart]
    ) -> PlannedStart:
        """The expected start without some flavors."""
        planned = PlannedStart(gang, queue.name, self._estimates.length(gang, self._timeline.level))
        with gang.without(left_out):
            self._timeline.expect(planned, self._now, ahead)
        return planned

    def _plan(self, planned: PlannedStart) -> None:
        """This is what the workload is expected to do."""
        for other in [each for each in self._timeline.planned if each.gang is planned.gang]:
            self._timeline.forget(other)
        self._timeline.planned.append(planned)

    def _planned_before(self, gang: WorkloadState, queue: ClusterQueueState) -> list[PlannedStart] | None:
        """The expected starts of those that wait before a workload, and have none reserved; None if they are too many."""
        first = self._first.get(queue.name)
        if first is None:
            pending = queue.pending
            order = pending.in_queue_order()
            if isinstance(pending, TimedQueue):  # which has the head that is tried before all others
                order.sort(key=pending.turn)
            first = self._first[queue.name] = order[:MOST_PLANNED]
        if gang not in first:
            return None
        self._timeline.sync(self._now)
        known = {planned.gang: planned for planned in self._timeline.planned}
        reserved = {reservation.gang for reservation in self._timeline.reservations}
        ahead: list[PlannedStart] = []
        for other in first[: first.index(gang)]:
            if other in reserved or not self._may_start(other, queue):
                continue
            planned = known.get(other)
            if planned is None or planned.worse or planned.better or planned.start <= self._now:
                planned = self._best_start(other, queue, ahead)
                self._plan(planned)
            ahead.append(planned)
        return ahead

    def _may_start(self, gang: WorkloadState, queue: ClusterQueueState) -> bool:
        """Whether a workload before another one may start at all."""
        if not self._waits_in(gang, queue.name) or not self._store.may_try(gang):
            return False
        verdict = verdict_of(queue.pending.representative(gang))
        return verdict is None or verdict.mode is not Mode.NO_FIT or verdict.severity == WAITING

    def _best_start(self, gang: WorkloadState, queue: ClusterQueueState, ahead: Sequence[PlannedStart]) -> PlannedStart:
        """The start that a workload is expected to have on the flavor on which it ends first, or on the one that it waits for."""
        options, wait = self._options(gang, queue), gang.backfill.waits_for
        if wait is not None and wait.flavor in options:
            return self._expected(gang, queue, options[wait.flavor], ahead)
        if not options:
            return self._expected(gang, queue, NO_NAMES, ahead)
        found = [(self._expected(gang, queue, left_out, ahead), flavor) for flavor, left_out in options.items()]
        return min(found, key=lambda each: each[0].start + self._estimates.length(gang, _MEDIAN, (each[1],)))[0]


_NO_OPTIONS: Mapping[str, frozenset[str]] = {}


def _moved(wait: FlavorWait, start: Millis, now: Millis) -> bool:
    """Whether a start is another one than was expected by more than little."""
    return abs(start - wait.start) > max(_LEAST_GAIN, _GAIN * (wait.start - now))


def _alike(before: FlavorWait, wait: FlavorWait, now: Millis) -> bool:
    """Whether a wait says nothing new."""
    if (before.flavor, before.instead, before.until) != (wait.flavor, wait.instead, wait.until):
        return False
    same_length = before.end - before.start == wait.end - wait.start
    return same_length and before.start > now and not _moved(before, wait.start, now)
