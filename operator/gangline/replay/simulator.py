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

from gangline.engine import Engine
from gangline.engine.model import (
    Admission,
    Admit,
    ClusterQueue,
    Decision,
    Evict,
    Gone,
    Millis,
    Preempt,
    Put,
    RuntimeForecast,
    Workload,
)
from gangline.replay.foresight import Foresight
from gangline.replay.replayed import Cluster, Job, Outcome, Result, Sample, Stint, number_of
from gangline.replay.trace_facts import GPU, SETTINGS, Workloads, facts, node_number

_FINISH, _SUBMIT = 0, 1
#: starts after which the engine is asked for its reserved heads
_HEARING: Final = 500
#: decisions at one instant after which the policy is considered broken
_PATIENCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What happens to a stopped job."""

    checkpoint: Millis | None = None  #: the checkpoint interval; None = all work is lost
    restart: Millis = 60_000  #: extra cost of a restart


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
    ) -> None:
        self._jobs = jobs
        self._cluster = cluster
        self._rules = rules
        self._foresight = foresight
        self._progress = progress
        checkpoint = None if rules.checkpoint is None else rules.checkpoint / 1000
        self._workloads = Workloads(
            cluster, queue.name, by_tenant=quotas is not None, checkpoint=checkpoint, ranked=ranked
        )
        self._engine = Engine(SETTINGS)
        for fact in facts(cluster, queue, quotas):
            self._engine.observe(fact)
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

    def run(self) -> Result:
        begun = time.perf_counter()
        self._arrivals()
        now: Millis = 0
        wake: Millis | None = None
        while self._upcoming() is not None or wake is not None:
            now = self._next(wake)
            crowded = bool(self._waiting)
            self._happen(now)
            wake = self._settle(now, crowded)
            self._sample(now)
            if not self._waiting and not self._running:
                wake = None
            if self._upcoming() is None and self._waiting and not self._running and wake is None:
                break
        self._hear_of_heads()
        return Result(
            cluster=self._cluster,
            outcomes=self._outcomes,
            samples=self._samples,
            decisions=self._decided,
            seconds=time.perf_counter() - begun,
            head_delay=self._head_delay(),
            promises=self._promises,
        )

    def _head_delay(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for causes in self._engine.head_delay_seconds().values():
            for cause, seconds in causes.items():
                total[cause] = total.get(cause, 0.0) + seconds
        return total

    def _hear_of_heads(self) -> None:
        """The engine keeps its last thousand reserved heads; read often enough, none is missed."""
        for head in self._engine.head_starts():
            if head.promised is not None:
                self._promises.setdefault(number_of(head.workload), (head.promised, head.started))

    def _arrivals(self) -> None:
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
            if what == _SUBMIT or (running is not None and running.version == version):
                return at
            heappop(self._events)
        return None

    # --- events -------------------------------------------------------------------------------------------------------

    def _happen(self, now: Millis) -> None:
        """Process all due events: finishes first, then arrivals."""
        events, arrived = self._events, 0
        while events and events[0][0] <= now:
            _, what, number, version = heappop(events)
            if what == _SUBMIT:
                arrived += 1
                self._submit(self._jobs[number], now)
            elif (running := self._running.get(number)) is not None and running.version == version:
                self._finish(number, running, now)
        if self._progress is not None and arrived:
            self._progress(arrived)

    def _submit(self, job: Job, now: Millis) -> None:
        self._foresight.submitted(job, now)
        self._wait(job, self._workloads.of(job))

    def _wait(self, job: Job, workload: Workload) -> None:
        self._waiting[job.number] = workload
        self._waiting_gpus += job.gpus
        self._engine.observe(Put(workload))

    def _finish(self, number: int, running: _Running, now: Millis) -> None:
        del self._running[number]
        job = running.outcome.job
        running.stint.end = running.outcome.finish = now
        self._allocated -= job.gpus
        self._foresight.finished(job, now)
        self._engine.observe(Gone(Workload, job.key))
        self._engine.observe(Gone(RuntimeForecast, job.key))

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _settle(self, now: Millis, crowded: bool) -> Millis | None:
        """Decide until nothing more follows at this instant.

        `crowded`: jobs waited before; otherwise arriving jobs may simply fit, and estimates can wait. Returns when the engine
        wants to be called again.
        """
        for _ in range(_PATIENCE):
            for forecast in self._foresight.news(now, crowded):
                self._engine.observe(Put(forecast))
            decisions = self._engine.decide(now)
            self._decided += len(decisions)
            self._apply(decisions, now)
            settled = crowded or not self._waiting
            crowded = bool(self._waiting)
            if settled and (wake := self._engine.next_wakeup(now)) != now:
                return wake
        raise StuckError(f"the engine is still deciding at {now} ms after {_PATIENCE} calls")

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
        del self._waiting[number]
        outcome = self._outcomes[number]
        job = outcome.job
        self._waiting_gpus -= job.gpus
        self._allocated += job.gpus
        stint = Stint(now, now, backfilled, _places(admission))
        outcome.stints.append(stint)
        self._version += 1
        if self._version % _HEARING == 0:
            self._hear_of_heads()
        self._running[number] = _Running(outcome, stint, self._version)
        heappush(self._events, (now + self._left.get(number, job.duration), _FINISH, number, self._version))
        self._foresight.started(job, now)

    def _stop(self, number: int, reason: str, now: Millis) -> None:
        """Evicted: unsaved work is lost, and the job waits again with its original time."""
        running = self._running.pop(number, None)
        if running is None:
            return
        job, stint, every = running.outcome.job, running.stint, self._rules.checkpoint
        before = self._saved.get(number, 0)
        ran = now - stint.start
        saved = 0 if every is None else ran // every * every
        stint.end, stint.lost = now, ran - saved + self._rules.restart
        running.outcome.evictions += 1
        self._saved[number] = before + saved
        self._left[number] = self._left.get(number, job.duration) - saved + self._rules.restart
        self._allocated -= job.gpus
        self._foresight.stopped(job, before + ran, before + saved, now)
        evictions = running.outcome.evictions
        self._wait(job, replace(self._workloads.of(job), evicted=reason, evicted_at=now, preemptions=evictions))

    def _sample(self, now: Millis) -> None:
        sample = Sample(now, self._allocated, len(self._waiting), self._waiting_gpus)
        if self._samples and self._samples[-1].at == now:
            self._samples[-1] = sample
        else:
            self._samples.append(sample)


def _places(admission: Admission) -> tuple[tuple[int, int], ...]:
    """(node, GPUs) of an admission; () in a flat pool."""
    return tuple(
        (node_number(domain.values[-1]), domain.count * pod_set.usage[GPU] // pod_set.count)
        for pod_set in admission.pod_sets
        if pod_set.topology is not None
        for domain in pod_set.topology.domains
    )
