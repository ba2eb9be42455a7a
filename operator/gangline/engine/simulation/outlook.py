"""The start outlook: the engine itself, played forward under a virtual clock, if no more workloads are submitted.

A *course* is one possible future: every run gets a length from its forecast, ends after it, and the engine decides what
follows, with all its rules. The starts in several courses give the quantiles: as likely as not before `p50`, nine times in ten
before `p90`. Courses differ only by the lengths that are drawn, which depend on the workloads and the course's number: the same
facts at the same time give the same outlook.

Pure, but not cheap: a course costs a decision for every start and end. It is meant for processes that do not decide for the
cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.engine.engine import Engine
from gangline.engine.model import (
    Admission,
    Awaited,
    Change,
    ClusterQueue,
    Dependencies,
    ForeignPod,
    Gone,
    Millis,
    Put,
    QuotaAhead,
    RuntimeForecast,
    Settings,
    Workload,
    WorkloadPods,
)
from gangline.engine.model.runtime import NEVER, Runtime, of_the_rest
from gangline.engine.model.units import SECOND
from gangline.engine.queues.ordering import flavors_of
from gangline.engine.simulation.simulation import EventKind, SimulatedRun, Simulation, healthy
from gangline.engine.text.change_log import ChangeLog

# --- course -----------------------------------------------------------------------------------------------------------
# A course: one possible future of the cluster, in which every run gets a length from its forecast and ends after it, and the
# engine decides what follows, with all its rules.


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
    backfilled: bool = False
    must_end_by: Millis | None = None  # of a backfilled run: the reserved start that counts on its end, as it was then


@dataclass(slots=True)
class CourseResult:
    """What a course has shown so far."""

    starts: dict[str, Millis] = field(default_factory=dict[str, Millis])  # the first start of each workload
    stretches: list[Stretch] = field(default_factory=list[Stretch])


class Course(Simulation):
    """One course: an engine with all facts, and then with the consequences of its own decisions."""

    def __init__(self, facts: Iterable[Change], settings: Settings, now: Millis, level: Level) -> None:
        super().__init__(Engine(settings), now)
        self.engine.begin_with_full_loss_budgets()
        self._level = level
        self._forecasts: dict[str, RuntimeForecast] = {}
        self._unfinished: dict[str, Millis] = {}  # what evicted workloads still have to run
        self._alone: dict[str, Millis | None] = {}  # how long each run takes alone
        #: whether some policy looks at company, and up to where it was followed
        self._company = False
        self._company_seen = ChangeLog.UNREAD
        self._pods: dict[str, tuple[str, ...]] = {}  # the bound pods of each workload
        #: the workloads that released something at an instant, and what; and that instant
        self._released: dict[str, Admission] = {}
        self._released_at = now
        self._after: dict[str, tuple[str, ...]] = {}  # what let each run start
        self._ends_by: dict[str, Millis] = {}  # the reserved starts that count on the end of a run
        #: workload -> whom it waits for; and the other way round
        self._awaited: dict[str, set[Awaited]] = {}
        self._dependents: dict[str, list[str]] = {}
        #: the ClusterQueues, and the changes of their quotas to come, by the number of the event
        self._cluster_queues: dict[str, ClusterQueue] = {}
        self._quotas_ahead: dict[str, QuotaAhead] = {}
        self._quota_changes: list[tuple[QuotaAhead, int]] = []
        self._result = CourseResult()
        #: when the course ends, before which it may break off; and the workloads that have to start in it, None = all
        self._end: Millis = NEVER
        self._out_of_time: Callable[[], bool] = lambda: False
        self._wanted: set[str] | None = None
        for fact in facts:
            self._take_in(fact)
        for workload in self.workloads.values():
            if workload.admission is not None and workload.admitted:
                self.begin(workload.key, workload.admitted_at)

    def play_for(
        self,
        horizon: Millis,
        only: frozenset[str] | None = None,
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> CourseResult:
        """Play it for so long, or until all of `only` have started."""
        self._end, self._out_of_time = self.now + horizon, out_of_time
        self._wanted = set(only) if only is not None else None
        self.play()
        self._cut_off()
        return self._result

    def until(self) -> Millis:
        done = self._wanted is not None and not self._wanted
        return 0 if done or self._out_of_time() else self._end + 1

    # --- facts --------------------------------------------------------------------------------------------------------

    def _take_in(self, fact: Change) -> None:
        match fact:
            case Put(Workload() as workload):
                if not workload.finished:
                    self.put(healthy(workload, self.now))
                return
            case Put(RuntimeForecast() as forecast):
                self._forecasts[forecast.workload] = forecast
            case Put(WorkloadPods() as bound):
                namespace = bound.workload.partition("/")[0]
                self._pods[bound.workload] = tuple(f"{namespace}/{pod.name}" for pod in bound.pods)
            case Put(Dependencies() as dependencies):
                self._awaited[dependencies.workload] = set(dependencies.awaited)
                for each in dependencies.awaited:
                    self._dependents.setdefault(each.workload, []).append(dependencies.workload)
            case Put(ClusterQueue() as queue):
                self._cluster_queues[queue.name] = queue
                self._company |= queue.placement is not None and queue.placement.interference is not None
            case Put(QuotaAhead() as ahead):
                self._quotas_ahead[ahead.name] = ahead
                for number, step in enumerate(ahead.steps):
                    self.schedule(step.at, EventKind.CHANGE, len(self._quota_changes))
                    self._quota_changes.append((ahead, number))
            case Gone(kind, key) if kind is Workload:
                self.workloads.pop(key, None)
            case Gone(kind, key) if kind is WorkloadPods:
                self._pods_end(key)
                return
            case _:
                pass
        self.observe(fact)

    def _pods_end(self, key: str) -> None:
        """The pods of a workload leave their nodes, on which each is known by itself, too."""
        for pod in self._pods.pop(key, ()):
            self.observe(Gone(ForeignPod, pod))
        self.observe(Gone(WorkloadPods, key))

    def happens(self, kind: EventKind, number: int) -> None:
        """The quotas of a ClusterQueue change."""
        ahead, step = self._quota_changes[number]
        queue = self._cluster_queues.get(ahead.name)
        if queue is not None and self._quotas_ahead[ahead.name] is ahead:  # else another fact has replaced it
            self.observe(Put(replace(queue, groups=ahead.steps[step].groups)))
            self.observe(Put(replace(ahead, steps=ahead.steps[step + 1 :])))

    def leave(self, workload: Workload) -> None:
        self.observe(Put(replace(workload, finished=workload.admission is not None)))

    # --- workloads that wait for others -------------------------------------------------------------------------------

    def _has_come_true(self, key: str, *, ended: bool) -> None:
        """Queue the workloads that waited only for this one to start, or, where it has `ended`, to end, as if with success."""
        for dependent in self._dependents.get(key, ()):
            left = self._awaited[dependent]
            done = {each for each in left if each.workload == key and (ended or each.runs)}
            left -= done
            workload = self.workloads.get(dependent)
            if done and not left and workload is not None:
                self.put(replace(workload, waits_for=()))

    # --- lengths ------------------------------------------------------------------------------------------------------

    def length(self, workload: Workload, run: SimulatedRun) -> Millis | None:
        """What the workload has left, or a length that is drawn from its forecast, in its company. None = nothing is known."""
        if not self._company:
            return self._length_alone(workload, run, 0)
        key = workload.key
        if key not in self._alone:
            self._alone[key] = self._length_alone(workload, run, self.engine.lost_to_company(key, self.now))
        end = self.engine.end_in_company(key, self._alone, self.now)
        return self._alone[key] if end is None else end - run.began

    def _length_alone(self, workload: Workload, run: SimulatedRun, lost: Millis) -> Millis | None:
        """The same for a run that is alone from now on, and has done so much less until now as it has `lost`."""
        most = None if workload.execution_left is None else max(SECOND, workload.execution_left)
        left = self._unfinished.pop(workload.key, None)
        if left is not None:
            return left if most is None else min(left, most)
        runtime = Runtime.of(self._forecasts.get(workload.key), most, flavors_of(workload.admission))
        return (
            None if runtime is None else runtime.total(max(0, self.now - run.began - lost), self._level(workload.uid))
        )

    def decide(self) -> None:
        """Decide, and plan the ends of the runs whose company is another one then."""
        super().decide()
        if self._company:
            self._company_seen, changed = self.engine.slowed_since(self._company_seen, self.now)
            for key in changed:
                if key in self.runs:
                    self.plan_end(key)

    def _lose(self, workload: Workload, run: SimulatedRun) -> None:
        """What it did since its last checkpoint is to be done again; and it is known to take longer than it ran."""
        ran = max(0, self.now - run.began)
        saved, end = workload.kept(ran), run.end
        if self._company:
            lost = self.engine.lost_to_company(workload.key, self.now)  # or the engine has noted already that it stops
            lost = lost or self.engine.lost_to_company_by_end(workload.uid, self.now)
            ran, saved = max(0, ran - lost), max(0, saved - lost)
            alone = self._alone.get(workload.key)
            end = NEVER if alone is None else self.now - ran + alone
        if end < NEVER:
            self._unfinished[workload.key] = max(1, end - self.now + ran - saved)
        forecast = self._forecasts.get(workload.key)
        if forecast is not None:
            forecast = self._forecasts[workload.key] = of_the_rest(forecast, ran, saved)
            self.observe(Put(forecast))

    # --- what is recorded ---------------------------------------------------------------------------------------------

    def started(self, workload: Workload) -> None:
        key = workload.key
        self._alone.pop(key, None)
        self._result.starts.setdefault(key, self.now)
        if self._wanted is not None:
            self._wanted.discard(key)
        self._after[key] = self._made_room(workload)
        self._has_come_true(key, ended=False)
        if workload.backfilled and (ends_by := self.engine.backfill_ends().get(key)) is not None:
            self._ends_by[key] = ends_by

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        self._release(workload, run)
        if run is not None:
            self._lose(workload, run)

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        self._release(workload, run)
        self._has_come_true(workload.key, ended=True)

    def _release(self, workload: Workload, run: SimulatedRun | None) -> None:
        key, admission = workload.key, workload.admission
        self._pods_end(key)
        if admission is None:
            return
        if run is not None:
            self._note(workload, admission, run, self.now)
        if self._released_at < self.now:
            self._released, self._released_at = {}, self.now
        self._released[key] = admission

    def _note(self, workload: Workload, admission: Admission, run: SimulatedRun, end: Millis) -> None:
        key, backfilled = workload.key, workload.backfilled
        after, must_end_by = self._after.pop(key, ()), self._ends_by.pop(key, None)
        queue = admission.cluster_queue
        self._result.stretches.append(
            Stretch(key, queue, run.began, end, admission, after, backfilled=backfilled, must_end_by=must_end_by)
        )

    def _cut_off(self) -> None:
        """Runs still in progress: they last until their end, as far as it is known."""
        for key, run in self.runs.items():
            workload = self.workloads[key]
            if workload.admission is not None:
                self._note(workload, workload.admission, run, min(self._end, run.end))
        self._result.stretches.sort(key=lambda stretch: (stretch.began, stretch.workload))

    def _made_room(self, workload: Workload) -> tuple[str, ...]:
        """The workloads that released something now on flavors that the workload uses; all that released something, where none
        did there.
        """
        released = self._released if self._released_at == self.now else {}
        found = [key for key, admission in released.items() if self._share(admission, workload.admission)]
        return tuple(found or released)

    def _share(self, released: Admission, used: Admission | None) -> bool:
        """Whether the two admissions use a flavor in common, of one cohort's quota or of nodes whose room is counted."""
        common = _all_flavors(released) & _all_flavors(used)
        if not common or used is None:
            return False
        on_nodes = any(pod_set.topology is not None for pod_set in used.pod_sets)
        return on_nodes or self._root(released.cluster_queue) == self._root(used.cluster_queue)

    def _root(self, cluster_queue: str) -> tuple[str, str]:
        cohorts = self.engine.cohorts_of(cluster_queue)
        return ("Cohort", cohorts[-1]) if cohorts else ("ClusterQueue", cluster_queue)


def _all_flavors(admission: Admission | None) -> frozenset[str]:
    return frozenset(flavor for row in (admission.pod_sets if admission else ()) for flavor in row.flavors.values())


# --- outlook ----------------------------------------------------------------------------------------------------------


#: courses played for one outlook, if time allows; with fewer than the least number the spread comes from two of them
COURSES: Final = 20
LEAST: Final = 8
#: the quantile of every run's length in the course used for p90 where there are too few others: not all runs are that long
LATE: Final = 0.8
#: how far courses are played
HORIZON: Final[Millis] = 30 * 86_400_000
#: number of workloads listed that have to end first
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """When a waiting workload will start. `p90` is None where it starts that late, or never, in more than one course of ten."""

    workload: str
    p50: Millis
    p90: Millis | None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    now: Millis
    starts: Mapping[str, ExpectedStart]
    stretches: tuple[
        Stretch, ...
    ]  # the first run of each workload: its median start and end; later ones of the median course
    courses: int


def outlook(
    facts: Sequence[Change],
    settings: Settings,
    now: Millis,
    *,
    only: frozenset[str] | None = None,
    horizon: Millis = HORIZON,
    courses: int = COURSES,
    seconds: float = 10.0,
    patience: float = 60.0,
    clock: Callable[[], float],
) -> Outlook:
    """Play `facts` forward from `now`. `only`: a course ends when these workloads have started.

    `seconds` is the time for further courses once there is one; with less time the quantiles are coarser. A single course is
    broken off after `patience` seconds; later starts are then unknown. `clock` returns seconds.
    """

    def course(level: Level) -> CourseResult:
        end = clock() + patience
        return Course(facts, settings, now, level).play_for(horizon, only, lambda: clock() > end)

    deadline = clock() + seconds
    median = course(_fixed(0.5))
    results = [median]
    while len(results) < courses and clock() < deadline:
        results.append(course(_drawn(len(results))))
    if len(results) < LEAST:
        results = [median, course(_fixed(LATE))]
    waiting = sorted({key for result in results for key in result.starts} & (only or _all(results)))
    agreed = _agreed(results)
    reasons = {stretch.workload: _because(stretch) for stretch in reversed(agreed)}
    starts = {key: start for key in waiting if (start := _expected(key, results, reasons.get(key, ""))) is not None}
    return Outlook(now, starts, tuple(agreed), len(results))


def _agreed(results: Sequence[CourseResult]) -> list[Stretch]:
    """The runs as all courses together have them: the first of each workload at its median start, with the cause of the course
    at that median, until its median end. Later runs are those of the median course.
    """
    firsts: dict[str, list[Stretch]] = {}
    later: list[Stretch] = []
    for number, result in enumerate(results):
        known: set[str] = set()
        for stretch in result.stretches:
            if stretch.workload not in known:
                known.add(stretch.workload)
                firsts.setdefault(stretch.workload, []).append(stretch)
            elif number == 0:
                later.append(stretch)
    middle = (len(results) - 1) // 2
    found = [_median(runs, middle) for runs in firsts.values() if middle < len(runs)]
    kept = {stretch.workload for stretch in found}
    later = [stretch for stretch in later if stretch.workload in kept]
    return sorted([*found, *later], key=lambda stretch: (stretch.began, stretch.workload))


def _median(runs: list[Stretch], middle: int) -> Stretch:
    """A run that courses place differently; `middle`: its place among all courses, those without it come last."""
    at = sorted(runs, key=lambda run: (run.began, run.ended))[middle]
    return replace(at, ended=max(at.began, sorted(run.ended for run in runs)[(len(runs) - 1) // 2]))


def _all(results: Iterable[CourseResult]) -> frozenset[str]:
    return frozenset(key for result in results for key in result.starts)


def _expected(key: str, results: Sequence[CourseResult], because: str) -> ExpectedStart | None:
    """When a workload is expected to start; None where it starts in fewer than half of the courses."""
    times = sorted(result.starts.get(key, NEVER) for result in results)
    if len(times) < LEAST:
        p50, p90 = times[0], times[-1]
    else:
        p50, p90 = times[(len(times) - 1) // 2], times[(9 * len(times)) // 10]
    if p50 >= NEVER:
        return None
    return ExpectedStart(key, p50, p90 if p90 < NEVER else None, because)


def _because(stretch: Stretch) -> str:
    if not stretch.after:
        return "it can start now"
    named = ", ".join(stretch.after[:_NAMED])
    more = len(stretch.after) - _NAMED
    return (
        f"after {named}" + (f" and {more} more" if more > 0 else "") + (" end" if len(stretch.after) > 1 else " ends")
    )


def _fixed(level: float) -> Level:
    return lambda uid: level


def _drawn(number: int) -> Level:
    return lambda uid: random.Random(f"{uid} {number}").uniform(0.02, 0.98)
