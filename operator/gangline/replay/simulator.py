"""A replay: the forward simulation (`engine.simulation`) of a trace's jobs, or of a recorded cluster's, under one policy.

Jobs arrive and last as the trace says. At one instant the cluster changes first, then jobs end, then others arrive, and then the
engine decides. It knows no length before a job has ended; what it knows of lengths is what `foresight` forecasts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from gangline.engine import (
    MOVED,
    POLICY,
    RECALLED,
    RESERVED_FOR_OTHERS,
    Engine,
    EventKind,
    Floor,
    SimulatedRun,
    Simulation,
    has_floor,
)
from gangline.engine.model import (
    Admission,
    Change,
    ClusterQueue,
    Gone,
    Millis,
    Put,
    QuotaAhead,
    ReservedHead,
    ReservedWindow,
    ResourceGroup,
    RuntimeForecast,
    Settings,
    Workload,
)
from gangline.replay.foresight import Foresight
from gangline.replay.planned import NOTHING_PLANNED, Planned
from gangline.replay.policies import WindowHandling, with_restart
from gangline.replay.replayed import (
    LONGEST,
    TRUTH,
    Headship,
    ReplayedCluster,
    ReplayedJob,
    ReplayedOutcome,
    ReplayResult,
    Sample,
    Stint,
    number_of,
)
from gangline.replay.trace_facts import GPU, SETTINGS, Workloads, facts, node_number
from gangline.replay.world import ReplayedWorld, ReplayEvent

#: the reason of an eviction by the loss of a node
NODE_LOST: Final = "NodeLost"
#: starts after which the engine is asked for its reserved heads
_HEARING: Final = 500


@dataclass(frozen=True, slots=True)
class SavingRules:
    """What saving costs, and a stop. What the trace says of a job's checkpoints precedes the rules."""

    checkpoint: Millis | None = None  #: the checkpoint interval; None = all work is lost
    restart: Millis = 60_000  #: extra cost of a restart
    save: Millis = 0  #: what one save costs: the job does nothing else meanwhile

    def applied(self, job: ReplayedJob) -> ReplayedJob:
        """The job as it runs: with the time that saving takes, and the real interval between the ends of two saves."""
        every = self.checkpoint if job.saves == TRUTH else job.saves
        cost = self.save if job.save is None else job.save
        if every is None:
            return replace(job, saves=None, save=0)
        every = max(SHORTEST_INTERVAL, every)
        duration = min(LONGEST, job.duration + cost * ((job.duration - 1) // every))
        return replace(job, duration=duration, saves=every + cost, save=cost, saving=duration - job.duration)


#: jobs that save more often count as if they saved this often
SHORTEST_INTERVAL: Final[Millis] = 1000


class StuckError(RuntimeError):
    """The engine does not come to rest, or never starts a job that fits: a bug, not a result."""


class Simulator(Simulation):
    """One policy's run through one list of jobs; used once."""

    CONFIRMS: ClassVar[bool] = False  # no job has admission checks, and pods run from admission to end
    MOST_ROUNDS: ClassVar[int] = 10_000  # a whole trace may arrive at once, and is decided in many rounds

    def __init__(
        self,
        jobs: Sequence[ReplayedJob],
        cluster: ReplayedCluster,
        queue: ClusterQueue,
        foresight: Foresight,
        *,
        rules: SavingRules = SavingRules(),
        quotas: Mapping[str, int] | None = None,
        ranked: bool = False,
        progress: Callable[[int], None] | None = None,
        world: ReplayedWorld | None = None,
        settings: Settings = SETTINGS,
        planned: Planned = NOTHING_PLANNED,
        handling: WindowHandling = "announced",
    ) -> None:
        """`world`: a cluster of its own, in which `queue` and `quotas` say nothing. `planned`: windows of Reservations, and
        `handling`: how the policy handles them.
        """
        super().__init__(Engine(settings), 0)
        jobs = [rules.applied(job) for job in jobs]
        self._jobs = jobs
        self._cluster = cluster
        self._rules = rules
        self._foresight = foresight
        self._progress = progress
        made = Workloads(cluster, queue.name, by_tenant=quotas is not None, ranked=ranked)
        self._workload_of = made.of if world is None else world.of
        self._places = _places if world is None else world.places
        self._number = node_number if world is None else world.number
        #: the quotas that plans give ClusterQueues now; and the ClusterQueues as their own facts say
        self._quotas: dict[str, tuple[ResourceGroup, ...] | None] = {}
        self._planned = planned
        windows = planned.under(handling)
        begin = min((job.submit for job in jobs), default=0)
        later = [event for event in windows if event.at > begin]
        self._happenings = sorted((*(() if world is None else world.later()), *later), key=lambda event: event.at)
        queue = with_restart(queue, rules.restart / 1000)
        first = list(facts(cluster, queue, quotas) if world is None else world.begins())
        for event in windows:
            if event.at <= begin:
                first += event.changes
                self._quotas.update(event.quotas)
        self._queues: dict[str, ClusterQueue] = {}
        first = [self._effective(change) for change in first]
        changes = (change for happening in self._happenings for change in happening.changes)
        self._floor = Floor(settings) if any(map(_has_floor, (*first, *changes))) else None
        self._modes: list[tuple[Millis, str, str]] = []
        for fact in first:
            self.observe(fact)
        self._outcomes = [ReplayedOutcome(job) for job in jobs]
        self._left: dict[int, Millis] = {}  # remaining work of stopped jobs
        self._restarts: dict[
            int, Millis
        ] = {}  # the next restart of stopped jobs with speeds, which is not part of that work
        self._saved: dict[int, Millis] = {}  # … and saved work, which is not repeated
        #: whether jobs waited at the end of the last round: otherwise those that arrive may simply fit, and estimates can wait
        self._crowded = False
        self._allocated = 0
        self._waiting_gpus = 0
        self._arrived = 0
        self._starts = 0
        self._samples: list[Sample] = []
        self._reserved: dict[int, ReservedHead] = {}
        self._headships: list[Headship] = []
        self._heads: dict[str, tuple[str, Millis]] = {}
        #: the windows that the engine knows, each with the time since when
        self._windows: dict[str, tuple[ReservedWindow, Millis]] = {}
        #: how long before its quotas fall a ClusterQueue's jobs are warned
        self._notices: dict[str, Millis] = {}
        for fact in first:
            self._follow_plans(fact, begin)
        self._windows_of_queues = [each.window for each in planned.windows if not each.window.is_maintenance]
        #: the jobs that may use windows, by window
        self._guests: dict[str, set[int]] = {}

    def run(self) -> ReplayResult:
        begun = time.perf_counter()
        self._schedule_all()
        first = self.next_event()
        if first is not None:
            self.now = first
            self.play()
        self._hear_of_heads()
        self._note_heads({})
        return ReplayResult(
            cluster=self._cluster,
            outcomes=self._outcomes,
            samples=self._samples,
            decisions=self.decided,
            seconds=time.perf_counter() - begun,
            head_delay=self._head_delay(),
            heads=self._reserved,
            headships=self._headships,
            modes=self._modes,
            windows=tuple(
                replace(window, guests=frozenset(self._guests.get(window.name, ())))
                for window in self._planned.played(self._number)
            ),
        )

    def _schedule_all(self) -> None:
        for number, happening in enumerate(self._happenings):
            self.schedule(happening.at, EventKind.CHANGE, number)
        for job in self._jobs:
            if job.gpus > self._cluster.largest:
                self._outcomes[job.number].impossible = f"asks for {job.gpus} of {self._cluster.largest} GPUs"
            else:
                self.schedule(job.submit, EventKind.ARRIVAL, job.number)

    # --- events -------------------------------------------------------------------------------------------------------

    def happens(self, kind: EventKind, number: int) -> None:
        if kind == EventKind.CHANGE:
            self._change(self._happenings[number])
        else:
            self._submit(self._jobs[number])

    def order(self, key: str, number: int) -> int:
        return number_of(key)

    def _change(self, happening: ReplayEvent) -> None:
        self._quotas.update(happening.quotas)
        for name in happening.quotas:
            if (queue := self._queues.get(name)) is not None:
                self.observe(self._effective(Put(queue)))
        for change in happening.changes:
            self.observe(self._effective(change))
            self._follow_plans(change, self.now)
        self._put_under_floor(happening)
        if happening.lost:
            for key in list(self.runs):
                if any(node in happening.lost for node, _ in self._outcomes[number_of(key)].stints[-1].places):
                    self.stop(replace(self.workloads[key], evicted=NODE_LOST), NODE_LOST)

    def _put_under_floor(self, happening: ReplayEvent) -> None:
        """A ClusterQueue that changed is still in the mode of its tree."""
        if self._floor is None or not self._floor.modes:
            return
        if happening.quotas or any(
            isinstance(each, Put) and isinstance(each.item, ClusterQueue) for each in happening.changes
        ):
            for queue in self._floor.under_floor():
                self.engine.observe(Put(queue))

    def _submit(self, job: ReplayedJob) -> None:
        self._arrived += 1
        self._foresight.submitted(job, self.now)
        self._waiting_gpus += job.gpus
        self.put(self._workload_of(job))

    # --- what is observed ---------------------------------------------------------------------------------------------

    def tell(self, change: Change) -> None:
        super().tell(change)
        if self._floor is not None:
            self._floor.observe(change, self.now)

    def leave(self, workload: Workload) -> None:
        super().leave(workload)
        self.learn(Gone(RuntimeForecast, workload.key))

    def decide(self) -> None:
        for forecast in self._foresight.news(self.now, self._crowded):
            self.learn(Put(self._by_flavor(forecast)))
        super().decide()
        followed = self._follow_floor()
        if followed or (self.waiting and not self._crowded):
            self.ask_again()
        self._crowded = self.waiting > 0

    def _by_flavor(self, forecast: RuntimeForecast) -> RuntimeForecast:
        """The forecast with what the job's speeds make of it on each flavor."""
        speeds = self._jobs[number_of(forecast.workload)].speeds
        if not speeds:
            return forecast
        by_flavor = {
            flavor: tuple((level, max(1, round(millis / speed))) for level, millis in forecast.quantiles)
            for flavor, speed in speeds.items()
        }
        return replace(forecast, by_flavor=by_flavor)

    def _follow_floor(self) -> bool:
        """Trees whose mode changed are configured anew. Returns whether there are any."""
        changed = self._floor.advance(self.now) if self._floor is not None else ()
        for tree in changed:
            assert self._floor is not None
            self._modes.append((self.now, tree, self._floor.modes.get(tree, POLICY)))
            for queue in self._floor.under_floor():
                self.engine.observe(Put(queue))
        return bool(changed)

    def out_of_rounds(self) -> None:
        raise StuckError(f"the engine is still deciding at {self.now} ms after {self.MOST_ROUNDS} calls")

    # --- runs ---------------------------------------------------------------------------------------------------------

    def length(self, workload: Workload, run: SimulatedRun) -> Millis:
        number = number_of(workload.key)
        job = self._jobs[number]
        left = self._left.get(number, job.duration)
        if not job.speeds:
            return left
        return max(1, math.ceil(left / job.speed(_flavors(workload)))) + self._restarts.get(number, 0)

    def started(self, workload: Workload) -> None:
        assert workload.admission is not None
        number, now = number_of(workload.key), self.now
        outcome = self._outcomes[number]
        job = outcome.job
        for window in self._windows_of_queues:
            if (
                workload.admission.cluster_queue in window.cluster_queues
                or _local_queue(workload) in window.local_queues
            ):
                self._guests.setdefault(window.name, set()).add(number)
        self._waiting_gpus -= job.gpus
        self._allocated += job.gpus
        places, flavors = self._places(workload.admission), _flavors(workload) if job.speeds else ()
        outcome.stints.append(Stint(now, now, workload.backfilled, places, flavors=flavors))
        self._starts += 1
        if self._starts % _HEARING == 0:
            self._hear_of_heads()
        self._foresight.started(job, now)
        if self._floor is not None:
            self._floor.observe(Put(workload), now)

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        """Unsaved work is lost, and the job waits again with its original time."""
        if run is None:
            return
        number, now = number_of(workload.key), self.now
        outcome = self._outcomes[number]
        job, stint = outcome.job, outcome.stints[-1]
        speed = job.speed(stint.flavors)
        before, ran = self._saved.get(number, 0), round((now - run.began) * speed)
        saved = 0 if job.saves is None else ran // job.saves * job.saves
        if job.saves is not None and self._warned_before(workload, run, reason) > (job.save or 0):
            saved = max(
                saved, ran - (job.save or 0)
            )  # by the deadline it saved all but what it would have done meanwhile
        stint.end, stint.lost, stint.evicted = now, round((ran - saved) / speed) + self._rules.restart, reason
        stint.moved_for = number_of(workload.moved_for) if reason == MOVED else None
        outcome.evictions += 1
        self._saved[number] = before + saved
        left = self._left.get(number, job.duration) - saved
        if job.speeds:  # on another flavor a restart takes as long, and the work does not
            left += round(self._restarts.get(number, 0) * speed)
            self._left[number], self._restarts[number] = left, self._rules.restart
        else:
            self._left[number] = left + self._rules.restart
        self._allocated -= job.gpus
        self._foresight.stopped(job, before + ran, before + saved, now)
        if workload.active:
            self._waiting_gpus += job.gpus

    def _effective(self, change: Change) -> Change:
        """A ClusterQueue has the quotas that a plan gives it."""
        match change:
            case Put(ClusterQueue() as queue):
                self._queues[queue.name] = queue
                groups = self._quotas.get(queue.name)
                return change if groups is None else Put(replace(queue, groups=groups))
            case _:
                return change

    def _follow_plans(self, change: Change, now: Millis) -> None:
        match change:
            case Put(QuotaAhead() as ahead) if ahead.recall is not None:
                self._notices[ahead.name] = ahead.recall.notice
            case Put(ReservedWindow() as window):
                self._windows[window.name] = window, now
            case Gone(kind, name) if kind is ReservedWindow:
                self._windows.pop(name, None)
            case _:
                pass

    def _warned_before(self, workload: Workload, run: SimulatedRun, reason: str) -> Millis:
        """How long ago a run that is stopped now was warned by when to save its work; 0 = it was not."""
        if reason == RECALLED and workload.admission is not None:
            return min(self._notices.get(workload.admission.cluster_queue, 0), self.now - run.began)
        if reason != RESERVED_FOR_OTHERS:
            return 0
        warned = (
            self.now - max(run.began, window.begin - window.notice, since)
            for window, since in self._windows.values()
            if window.begin <= self.now < window.end
        )
        return max(warned, default=0)

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        outcome = self._outcomes[number_of(workload.key)]
        outcome.stints[-1].end = outcome.finish = self.now
        self._allocated -= outcome.job.gpus
        self._foresight.finished(outcome.job, self.now)

    # --- what is recorded ---------------------------------------------------------------------------------------------

    def settled(self) -> None:
        self._samples.append(Sample(self.now, self._allocated, self.waiting, self._waiting_gpus))
        self._note_heads(self.engine.heads())
        if self._progress is not None and self._arrived:
            self._progress(self._arrived)
            self._arrived = 0

    def _note_heads(self, heads: Mapping[str, str]) -> None:
        """Note which workload heads each queue: whoever is no head of its queue any more was it until now."""
        now = self.now
        for queue, (key, since) in list(self._heads.items()):
            if heads.get(queue) != key:
                del self._heads[queue]
                if now > since:
                    self._headships.append(Headship(queue, number_of(key), since, now))
        for queue, key in heads.items():
            self._heads.setdefault(queue, (key, now))

    def _hear_of_heads(self) -> None:
        """The engine keeps its last thousand reserved heads; read often enough, none is missed."""
        for head in self.engine.head_starts():
            if head.planned is not None:
                self._reserved.setdefault(number_of(head.workload), head)

    def _head_delay(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for causes in self.engine.head_delay_seconds().values():
            for cause, seconds in causes.items():
                total[cause] = total.get(cause, 0.0) + seconds
        return total


def _has_floor(change: Change) -> bool:
    return isinstance(change, Put) and isinstance(change.item, ClusterQueue) and has_floor(change.item)


def _local_queue(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.queue}"


def _flavors(workload: Workload) -> tuple[str, ...]:
    """The flavors of a workload that runs."""
    admission = workload.admission
    return () if admission is None else tuple(each.flavors[GPU] for each in admission.pod_sets)


def _places(admission: Admission) -> tuple[tuple[int, int], ...]:
    """(node, GPUs) of an admission; () in a flat pool."""
    return tuple(
        (node_number(domain.values[-1]), domain.count * pod_set.usage[GPU] // pod_set.count)
        for pod_set in admission.pod_sets
        if pod_set.topology is not None
        for domain in pod_set.topology.domains
    )
