"""A course: one possible future of the cluster, in which every run gets a length from its forecast and ends after it, and the
engine decides what follows, with all its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from gangline.engine.engine import Engine
from gangline.engine.model import (
    Admission,
    Admit,
    AskChecks,
    Change,
    CheckState,
    CompleteAdmission,
    Decision,
    Evict,
    ForeignPod,
    Gone,
    Heal,
    Millis,
    Preempt,
    Put,
    ReportPending,
    Requeue,
    RuntimeForecast,
    Settings,
    Swap,
    Warn,
    Withdraw,
    Workload,
    WorkloadPods,
)
from gangline.engine.model.runtime import NEVER, Runtime, of_the_rest
from gangline.engine.model.units import SECOND
from gangline.engine.queues.estimates import flavors_of

#: rounds of decisions at one instant; more would be a loop
_PATIENCE: Final = 100


#: the quantile of a workload's length in a course
Level = Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Stretch:
    """One run of a workload in a course, from its start to its end. `began` lies before now for runs in progress."""

    workload: str
    cluster_queue: str
    began: Millis
    ended: Millis
    admission: Admission
    after: tuple[str, ...] = ()  # workloads whose end or eviction let it start


@dataclass(slots=True)
class Sight:
    """One course so far."""

    starts: dict[str, Millis] = field(default_factory=dict[str, Millis])  # the first start of each workload
    stretches: list[Stretch] = field(default_factory=list[Stretch])


def passed(checks: Iterable[str], now: Millis) -> tuple[CheckState, ...]:
    """Admission checks pass at once: what is played forward is about room."""
    return tuple(CheckState(name, "Ready", at=now) for name in checks)


def healthy(workload: Workload, now: Millis) -> Workload:
    """One with an admission as it is when its pods have become ready, and its admission checks have passed."""
    if workload.admission is None:
        return workload
    checks = passed((check.name for check in workload.checks), now)
    at = max(workload.admitted_at, workload.pods_ready_at)
    return replace(workload, checks=checks, pods_ready=workload.admitted, pods_ready_at=at, unhealthy_nodes=())


def confirmed(
    workload: Workload, decision: AskChecks | CompleteAdmission | Withdraw | Requeue | Swap, now: Millis
) -> Workload:
    """The workload once this has been carried out."""
    match decision:
        case AskChecks(checks=checks):
            return replace(workload, checks=passed(checks, now))
        case CompleteAdmission():
            return replace(workload, admitted=True, admitted_at=now)
        case Withdraw():
            return replace(workload, admission=None, reserved_at=0)
        case Requeue():
            return replace(workload, requeued=True, requeue_at=None)
        case Swap(admission=admission):
            return replace(workload, admission=admission)


def stopped(workload: Workload, now: Millis, *, requeued: bool) -> Workload:
    """The workload once it has been evicted and its pods have ended."""
    at_rest = replace(workload, admission=None, reserved_at=0, admitted=False, admitted_at=0, pods_ready=False)
    return replace(at_rest, checks=(), evicted_at=now, requeued=requeued)


def _all_flavors(admission: Admission | None) -> frozenset[str]:
    return frozenset(flavor for row in (admission.pod_sets if admission else ()) for flavor in row.flavors.values())


@dataclass(frozen=True, slots=True)
class _Run:
    number: int
    began: Millis
    end: Millis  #: NEVER = nobody knows
    after: tuple[str, ...]  #: what let it start


class Course:
    """One course: an engine with all facts, and then with the consequences of its own decisions."""

    def __init__(self, facts: Iterable[Change], settings: Settings, now: Millis, level: Level) -> None:
        self._engine = Engine(settings)
        self._engine.begin_with_full_loss_budgets()
        self._now = now
        self._level = level
        self._workloads: dict[str, Workload] = {}
        self._forecasts: dict[str, RuntimeForecast] = {}
        self._ends: list[tuple[Millis, int, str]] = []
        self._running: dict[str, _Run] = {}
        self._numbers = 0
        self._unfinished: dict[str, Millis] = {}  # what evicted workloads still have to run
        self._pods: dict[str, tuple[str, ...]] = {}  # the bound pods of each workload
        self._left: dict[str, Admission] = {}  # workloads that released something at this instant, and what
        self._sight = Sight()
        for fact in facts:
            self._take_in(fact)
        for workload in list(self._workloads.values()):
            if workload.admission is not None and workload.admitted:
                self._begin(workload, workload.admitted_at, ())

    def play(
        self,
        horizon: Millis,
        only: frozenset[str] | None = None,
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> Sight:
        """Play it for so long, or until all of `only` have started."""
        until, rounds = self._now + horizon, 0
        wanted = set(only) if only is not None else None
        while True:
            before = len(self._sight.starts)
            self._decide()
            if wanted is not None and len(self._sight.starts) > before:
                wanted -= self._sight.starts.keys()
            moment = self._next()
            if moment is None or moment > until or (wanted is not None and not wanted) or out_of_time():
                break
            rounds = rounds + 1 if moment <= self._now else 0
            if rounds > _PATIENCE:
                break
            if moment > self._now:
                self._now, self._left = moment, {}
            self._end_due()
        self._cut_off(until)
        return self._sight

    # --- facts --------------------------------------------------------------------------------------------------------

    def _take_in(self, fact: Change) -> None:
        match fact:
            case Put(Workload() as workload):
                if workload.finished:
                    return
                workload = self._workloads[workload.key] = healthy(workload, self._now)
                fact = Put(workload)
            case Put(RuntimeForecast() as forecast):
                self._forecasts[forecast.workload] = forecast
            case Put(WorkloadPods() as bound):
                namespace = bound.workload.partition("/")[0]
                self._pods[bound.workload] = tuple(f"{namespace}/{pod.name}" for pod in bound.pods)
            case Gone(kind, key) if kind is Workload:
                self._workloads.pop(key, None)
            case Gone(kind, key) if kind is WorkloadPods:
                self._pods_end(key)
                return
            case _:
                pass
        self._engine.observe(fact)

    def _put(self, workload: Workload) -> None:
        workload = healthy(workload, self._now)
        self._workloads[workload.key] = workload
        self._engine.observe(Put(workload))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _next(self) -> Millis | None:
        while self._ends and not self._goes_on(*self._ends[0][1:]):
            heappop(self._ends)  # that run was stopped before
        moments = [self._ends[0][0]] if self._ends else []
        due = self._engine.next_wakeup(self._now)
        if due is not None:
            moments.append(max(self._now, due))
        return min(moments, default=None)

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= self._now:
            _, number, key = heappop(self._ends)
            if self._goes_on(number, key):
                self._stop(key)
                ended = self._workloads.pop(key)
                self._engine.observe(Put(replace(ended, finished=True)))
                self._leave(ended)

    def _goes_on(self, number: int, key: str) -> bool:
        run = self._running.get(key)
        return run is not None and run.number == number

    def _begin(self, workload: Workload, at: Millis, after: tuple[str, ...]) -> None:
        self._numbers += 1
        length = self._length(workload, max(0, self._now - at))
        end = NEVER if length is None else max(self._now + 1, at + length)
        self._running[workload.key] = _Run(self._numbers, at, end, after)
        if length is not None:
            heappush(self._ends, (end, self._numbers, workload.key))

    def _length(self, workload: Workload, elapsed: Millis) -> Millis | None:
        """The length of a run that has lasted so long: what its workload has left, or drawn from its forecast. None = nothing is
        known.
        """
        most = None if workload.execution_left is None else max(SECOND, workload.execution_left)
        left = self._unfinished.pop(workload.key, None)
        if left is not None:
            return left if most is None else min(left, most)
        runtime = Runtime.of(self._forecasts.get(workload.key), most, flavors_of(workload.admission))
        return None if runtime is None else runtime.total(elapsed, self._level(workload.uid))

    def _stop(self, key: str) -> _Run | None:
        self._pods_end(key)
        run = self._running.pop(key, None)
        admission = self._workloads[key].admission
        if run is not None and admission is not None:
            self._sight.stretches.append(
                Stretch(key, admission.cluster_queue, run.began, self._now, admission, run.after)
            )
        return run

    def _pods_end(self, key: str) -> None:
        """The pods of a workload leave their nodes, on which each is known by itself, too."""
        for pod in self._pods.pop(key, ()):
            self._engine.observe(Gone(ForeignPod, pod))
        self._engine.observe(Gone(WorkloadPods, key))

    def _cut_off(self, until: Millis) -> None:
        """Runs still in progress: they last until their end, as far as it is known."""
        for key, run in self._running.items():
            admission = self._workloads[key].admission
            if admission is not None:
                end = min(until, run.end)
                stretch = Stretch(key, admission.cluster_queue, run.began, end, admission, run.after)
                self._sight.stretches.append(stretch)
        self._sight.stretches.sort(key=lambda stretch: (stretch.began, stretch.workload))

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        for decision in self._engine.decide(self._now):
            if not isinstance(decision, ReportPending | Warn | Heal):
                self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        assert not isinstance(decision, Warn)
        workload = self._workloads.get(decision.workload)
        if workload is None:
            return
        match decision:
            case Admit(admission=admission, admitted=admitted, checks=checks, backfilled=backfilled):
                self._put(
                    replace(
                        workload,
                        admission=admission,
                        reserved_at=self._now,
                        admitted=admitted,
                        admitted_at=self._now if admitted else 0,
                        checks=passed(checks, self._now),
                        backfilled=backfilled,
                        evicted="",
                        preempted="",
                        requeued=None,
                    )
                )
                if admitted:
                    self._started(decision.workload)
            case CompleteAdmission():
                self._put(confirmed(workload, decision, self._now))
                self._started(decision.workload)
            case AskChecks() | Withdraw() | Requeue() | Swap():
                self._put(confirmed(workload, decision, self._now))
            case Preempt(reason=reason):
                victim = replace(workload, evicted="Preempted", preempted=reason, preemptions=workload.preemptions + 1)
                self._evict(victim, requeued=True)
            case Evict():
                self._evict(
                    replace(
                        workload,
                        evicted=decision.reason,
                        active=workload.active and not decision.deactivate,
                        requeue_at=decision.requeue_at,
                        requeue_count=decision.requeue_count or workload.requeue_count,
                    ),
                    requeued=decision.requeue_at is None and not decision.deactivate,
                )
            case _:
                pass

    def _started(self, key: str) -> None:
        self._sight.starts.setdefault(key, self._now)
        workload = self._workloads[key]
        self._begin(workload, self._now, self._made_room(workload))

    def _made_room(self, workload: Workload) -> tuple[str, ...]:
        """The workloads that released something now on flavors that the workload uses; all that released something, where none
        did there.
        """
        found = [key for key, released in self._left.items() if self._share(released, workload.admission)]
        return tuple(found or self._left)

    def _share(self, released: Admission, used: Admission | None) -> bool:
        """Whether the two admissions use a flavor in common, of one cohort's quota or of nodes whose room is counted."""
        common = _all_flavors(released) & _all_flavors(used)
        if not common or used is None:
            return False
        on_nodes = any(pod_set.topology is not None for pod_set in used.pod_sets)
        return on_nodes or self._root(released.cluster_queue) == self._root(used.cluster_queue)

    def _root(self, cluster_queue: str) -> tuple[str, str]:
        cohorts = self._engine.cohorts_of(cluster_queue)
        return ("Cohort", cohorts[-1]) if cohorts else ("ClusterQueue", cluster_queue)

    def _leave(self, workload: Workload) -> None:
        if workload.admission is not None:
            self._left[workload.key] = workload.admission

    def _evict(self, workload: Workload, *, requeued: bool) -> None:
        """Stop the workload, release its quota and requeue it at once: how long pods take to end is not simulated."""
        run = self._stop(workload.key)
        self._leave(workload)
        ran = max(0, self._now - run.began) if run is not None else 0
        if run is not None:
            self._lose(workload, run, ran)
        self._put(stopped(workload, self._now, requeued=requeued).with_past(ran))

    def _lose(self, workload: Workload, run: _Run, ran: Millis) -> None:
        """What it did since its last checkpoint is to be done again; and it is known to take longer than it ran."""
        saved = workload.kept(ran)
        if run.end < NEVER:
            self._unfinished[workload.key] = max(1, run.end - self._now + ran - saved)
        forecast = self._forecasts.get(workload.key)
        if forecast is not None:
            forecast = self._forecasts[workload.key] = of_the_rest(forecast, ran, saved)
            self._engine.observe(Put(forecast))
