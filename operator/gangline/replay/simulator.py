"""The production engine under a virtual clock.

Events are processed in the order of time; at one instant finishes precede arrivals, then the engine decides. An admission
starts the job at once, a preemption or eviction stops it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

from gangline.engine import POLICY, Engine, Floor, has_floor
from gangline.engine.model import (
    Admission,
    Admit,
    Change,
    ClusterQueue,
    Decision,
    Evict,
    Gone,
    Millis,
    Preempt,
    Put,
    RuntimeForecast,
    Settings,
    Workload,
)
from gangline.replay.foresight import Foresight
from gangline.replay.replayed import LONGEST, TRUTH, Cluster, Headship, Job, Outcome, Result, Sample, Stint, number_of
from gangline.replay.trace_facts import GPU, SETTINGS, Workloads, facts, node_number
from gangline.replay.world import Happening, World

_HAPPENING, _FINISH, _SUBMIT = -1, 0, 1
#: the reason of an eviction by the loss of a node
NODE_LOST: Final = "NodeLost"
#: starts after which the engine is asked for its reserved heads
_HEARING: Final = 500
#: decisions at one instant after which the policy is considered broken
_PATIENCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What saving costs, and a stop. What the trace says of a job's checkpoints precedes the rules."""

    checkpoint: Millis | None = None  #: the checkpoint interval; None = all work is lost
    restart: Millis = 60_000  #: extra cost of a restart
    save: Millis = 0  #: what one save costs: the job does nothing else meanwhile

    def applied(self, job: Job) -> Job:
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


@dataclass(slots=True)
class _Running:
    outcome: Outcome
    stint: Stint
    version: int


class Simulator:
    """One policy's run through one list of jobs; used once."""

    def __init__(
        self,
        jobs: Sequence[Job],
        cluster: Cluster,
        queue: ClusterQueue,
        foresight: Foresight,
        *,
        rules: Rules = Rules(),
        quotas: Mapping[str, int] | None = None,
        ranked: bool = False,
        progress: Callable[[int], None] | None = None,
        world: World | None = None,
        settings: Settings = SETTINGS,
    ) -> None:
        """`world`: a cluster of its own, in which `queue` and `quotas` say nothing."""
        jobs = [rules.applied(job) for job in jobs]
        self._jobs = jobs
        self._cluster = cluster
        self._rules = rules
        self._foresight = foresight
        self._progress = progress
        made = Workloads(cluster, queue.name, by_tenant=quotas is not None, ranked=ranked)
        self._workload_of = made.of if world is None else world.of
        self._places = _places if world is None else world.places
        self._happenings = () if world is None else world.later()
        if queue.backfill is not None:
            queue = replace(queue, backfill=replace(queue.backfill, restart_seconds=rules.restart / 1000))
        self._engine = Engine(settings)
        first = list(facts(cluster, queue, quotas) if world is None else world.begins())
        later = (change for happening in self._happenings for change in happening.changes)
        self._floor = Floor(settings) if any(map(_has_floor, (*first, *later))) else None
        self._modes: list[tuple[Millis, str, str]] = []
        for fact in first:
            self._observe(fact, 0)
        self._events: list[tuple[Millis, int, int, int]] = []  # time, event, job, number of its run
        self._outcomes = [Outcome(job) for job in jobs]
        self._running: dict[int, _Running] = {}
        self._left: dict[int, Millis] = {}  # remaining work of stopped jobs
        self._saved: dict[int, Millis] = {}  # … and saved work, which is not repeated
        self._waiting: dict[int, Workload] = {}
        self._allocated = 0
        self._waiting_gpus = 0
        self._version = 0
        self._decided = 0
        self._samples: list[Sample] = []
        self._promises: dict[int, tuple[Millis, Millis]] = {}
        self._headships: list[Headship] = []
        self._heads: dict[str, tuple[str, Millis]] = {}

    def run(self) -> Result:
        begun = time.perf_counter()
        self._arrivals()
        now: Millis = 0
        wake: Millis | None = None
        while self._upcoming() is not None or wake is not None:
            now = self._next(wake)
            crowded = bool(self._waiting)
            only_ends = not self._happen(now)
            if only_ends and not self._waiting and wake != now:
                wake = self._pass_by(now, wake)
            else:
                wake = self._settle(now, crowded)
            self._sample(now)
            self._note_heads(self._engine.heads(), now)
            if not self._waiting and not self._running:
                wake = None
            if self._upcoming() is None and self._waiting and not self._running and wake is None:
                break
        self._hear_of_heads()
        self._note_heads({}, now)
        return Result(
            cluster=self._cluster,
            outcomes=self._outcomes,
            samples=self._samples,
            decisions=self._decided,
            seconds=time.perf_counter() - begun,
            head_delay=self._head_delay(),
            promises=self._promises,
            headships=self._headships,
            modes=self._modes,
        )

    def _head_delay(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for causes in self._engine.head_delay_seconds().values():
            for cause, seconds in causes.items():
                total[cause] = total.get(cause, 0.0) + seconds
        return total

    def _note_heads(self, heads: Mapping[str, str], now: Millis) -> None:
        """Note which workload heads each queue: whoever is no head of its queue any more was it until now."""
        for queue, (key, since) in list(self._heads.items()):
            if heads.get(queue) != key:
                del self._heads[queue]
                if now > since:
                    self._headships.append(Headship(queue, number_of(key), since, now))
        for queue, key in heads.items():
            self._heads.setdefault(queue, (key, now))

    def _hear_of_heads(self) -> None:
        """The engine keeps its last thousand reserved heads; read often enough, none is missed."""
        for head in self._engine.head_starts():
            if head.promised is not None:
                self._promises.setdefault(number_of(head.workload), (head.promised, head.started))

    def _arrivals(self) -> None:
        for number, happening in enumerate(self._happenings):
            heappush(self._events, (happening.at, _HAPPENING, number, 0))
        for job in self._jobs:
            if job.gpus > self._cluster.gpus:
                self._outcomes[job.number].impossible = f"asks for {job.gpus} of {self._cluster.gpus} GPUs"
            else:
                heappush(self._events, (job.submit, _SUBMIT, job.number, 0))

    def _next(self, wake: Millis | None) -> Millis:
        at = self._upcoming()
        if at is None:
            assert wake is not None
            return wake
        return at if wake is None else min(at, wake)

    def _upcoming(self) -> Millis | None:
        """The time of the next event. The planned end of a stopped run is no event: deciding then would use the unknown length
        of that run.
        """
        while self._events:
            at, what, number, version = self._events[0]
            running = self._running.get(number)
            if what in (_SUBMIT, _HAPPENING) or (running is not None and running.version == version):
                return at
            heappop(self._events)
        return None

    # --- events -------------------------------------------------------------------------------------------------------

    def _happen(self, now: Millis) -> bool:
        """Process all due events: changes of the cluster first, then finishes, then arrivals. Returns whether there were others
        than finishes.
        """
        events, arrived, changed = self._events, 0, False
        while events and events[0][0] <= now:
            _, what, number, version = heappop(events)
            if what == _HAPPENING:
                changed = True
                self._take_place(self._happenings[number], now)
            elif what == _SUBMIT:
                arrived += 1
                self._submit(self._jobs[number], now)
            elif (running := self._running.get(number)) is not None and running.version == version:
                self._finish(number, running, now)
        if self._progress is not None and arrived:
            self._progress(arrived)
        return changed or arrived > 0

    def _take_place(self, happening: Happening, now: Millis) -> None:
        for change in happening.changes:
            self._observe(change, now)
        if happening.lost:
            for number, running in list(self._running.items()):
                if any(node in happening.lost for node, _ in running.stint.places):
                    self._stop(number, NODE_LOST, now)

    def _submit(self, job: Job, now: Millis) -> None:
        self._foresight.submitted(job, now)
        self._wait(job, self._workload_of(job), now)

    def _observe(self, change: Change, now: Millis) -> None:
        self._engine.observe(change)
        if self._floor is not None:
            self._floor.observe(change, now)

    def _wait(self, job: Job, workload: Workload, now: Millis) -> None:
        self._waiting[job.number] = workload
        self._waiting_gpus += job.gpus
        self._observe(Put(workload), now)

    def _finish(self, number: int, running: _Running, now: Millis) -> None:
        del self._running[number]
        job = running.outcome.job
        running.stint.end = running.outcome.finish = now
        self._allocated -= job.gpus
        self._foresight.finished(job, now)
        self._observe(Gone(Workload, job.key), now)
        self._observe(Gone(RuntimeForecast, job.key), now)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _settle(self, now: Millis, crowded: bool) -> Millis | None:
        """Decide until nothing more follows at this instant.

        `crowded`: jobs waited before; otherwise arriving jobs may simply fit, and estimates can wait. Returns when the engine
        wants to be called again.
        """
        for _ in range(_PATIENCE):
            for forecast in self._foresight.news(now, crowded):
                self._observe(Put(forecast), now)
            decisions = self._engine.decide(now)
            self._decided += len(decisions)
            self._apply(decisions, now)
            followed = self._follow_floor(now)
            settled = (crowded or not self._waiting) and not followed
            crowded = bool(self._waiting)
            if settled and (wake := self._engine.next_wakeup(now)) != now:
                return wake
        raise StuckError(f"the engine is still deciding at {now} ms after {_PATIENCE} calls")

    def _pass_by(self, now: Millis, wake: Millis | None) -> Millis | None:
        """Jobs ended and nothing waits: nothing is to be decided, unless the floor changed a queue. Returns as `_settle`."""
        for forecast in self._foresight.news(now, False):
            self._observe(Put(forecast), now)
        return self._settle(now, False) if self._follow_floor(now) else wake

    def _follow_floor(self, now: Millis) -> bool:
        """Trees whose mode changed are configured anew. Returns whether there are any."""
        changed = self._floor.advance(now) if self._floor is not None else ()
        for tree in changed:
            assert self._floor is not None
            self._modes.append((now, tree, self._floor.modes.get(tree, POLICY)))
            for queue in self._floor.under_floor():
                self._engine.observe(Put(queue))
        return bool(changed)

    def _apply(self, decisions: Iterable[Decision], now: Millis) -> None:
        for decision in decisions:
            match decision:
                case Admit(key, _, admission):
                    self._start(number_of(key), admission, now, backfilled=decision.backfilled)
                case Preempt(key) | Evict(key):
                    self._stop(number_of(key), decision.reason, now)
                case _:
                    pass  # what users are told

    def _start(self, number: int, admission: Admission, now: Millis, *, backfilled: bool) -> None:
        workload = self._waiting.pop(number)
        outcome = self._outcomes[number]
        job = outcome.job
        self._waiting_gpus -= job.gpus
        self._allocated += job.gpus
        stint = Stint(now, now, backfilled, self._places(admission))
        outcome.stints.append(stint)
        self._version += 1
        if self._version % _HEARING == 0:
            self._hear_of_heads()
        self._running[number] = _Running(outcome, stint, self._version)
        heappush(self._events, (now + self._left.get(number, job.duration), _FINISH, number, self._version))
        self._foresight.started(job, now)
        if self._floor is not None:
            running = replace(
                workload,
                admission=admission,
                reserved_at=now,
                admitted=True,
                admitted_at=now,
                evicted="",
                backfilled=backfilled,
            )
            self._floor.observe(Put(running), now)

    def _stop(self, number: int, reason: str, now: Millis) -> None:
        """Evicted: unsaved work is lost, and the job waits again with its original time."""
        running = self._running.pop(number, None)
        if running is None:
            return
        job, stint, every = running.outcome.job, running.stint, running.outcome.job.saves
        before = self._saved.get(number, 0)
        ran = now - stint.start
        saved = 0 if every is None else ran // every * every
        stint.end, stint.lost, stint.evicted = now, ran - saved + self._rules.restart, reason
        running.outcome.evictions += 1
        self._saved[number] = before + saved
        self._left[number] = self._left.get(number, job.duration) - saved + self._rules.restart
        self._allocated -= job.gpus
        self._foresight.stopped(job, before + ran, before + saved, now)
        evictions = running.outcome.evictions
        again = replace(self._workload_of(job), evicted=reason, evicted_at=now, preemptions=evictions)
        self._wait(job, again, now)

    def _sample(self, now: Millis) -> None:
        sample = Sample(now, self._allocated, len(self._waiting), self._waiting_gpus)
        if self._samples and self._samples[-1].at == now:
            self._samples[-1] = sample
        else:
            self._samples.append(sample)


def _has_floor(change: Change) -> bool:
    return isinstance(change, Put) and isinstance(change.item, ClusterQueue) and has_floor(change.item)


def _places(admission: Admission) -> tuple[tuple[int, int], ...]:
    """(node, GPUs) of an admission; () in a flat pool."""
    return tuple(
        (node_number(domain.values[-1]), domain.count * pod_set.usage[GPU] // pod_set.count)
        for pod_set in admission.pod_sets
        if pod_set.topology is not None
        for domain in pod_set.topology.domains
    )
