"""A course: one possible future of the cluster, in which every run gets a length from its forecast and ends after it, and the
engine decides what follows, with all its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from gangline.engine.engine import Engine
from gangline.engine.model import (
    Admission,
    Change,
    ForeignPod,
    Gone,
    Millis,
    Put,
    RuntimeForecast,
    Settings,
    Workload,
    WorkloadPods,
)
from gangline.engine.model.runtime import NEVER, Runtime, of_the_rest
from gangline.engine.model.units import SECOND
from gangline.engine.queues.estimates import flavors_of
from gangline.engine.simulation.simulation import SimulatedRun, Simulation, healthy

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
        self._pods: dict[str, tuple[str, ...]] = {}  # the bound pods of each workload
        #: the workloads that released something at an instant, and what; and that instant
        self._released: dict[str, Admission] = {}
        self._released_at = now
        self._after: dict[str, tuple[str, ...]] = {}  # what let each run start
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

    def leave(self, workload: Workload) -> None:
        self.observe(Put(replace(workload, finished=workload.admission is not None)))

    # --- lengths ------------------------------------------------------------------------------------------------------

    def length(self, workload: Workload, run: SimulatedRun) -> Millis | None:
        """What the workload has left, or a length that is drawn from its forecast. None = nothing is known."""
        most = None if workload.execution_left is None else max(SECOND, workload.execution_left)
        left = self._unfinished.pop(workload.key, None)
        if left is not None:
            return left if most is None else min(left, most)
        runtime = Runtime.of(self._forecasts.get(workload.key), most, flavors_of(workload.admission))
        return None if runtime is None else runtime.total(max(0, self.now - run.began), self._level(workload.uid))

    def _lose(self, workload: Workload, run: SimulatedRun) -> None:
        """What it did since its last checkpoint is to be done again; and it is known to take longer than it ran."""
        ran = max(0, self.now - run.began)
        saved = workload.kept(ran)
        if run.end < NEVER:
            self._unfinished[workload.key] = max(1, run.end - self.now + ran - saved)
        forecast = self._forecasts.get(workload.key)
        if forecast is not None:
            forecast = self._forecasts[workload.key] = of_the_rest(forecast, ran, saved)
            self.observe(Put(forecast))

    # --- what is recorded ---------------------------------------------------------------------------------------------

    def started(self, workload: Workload) -> None:
        key = workload.key
        self._result.starts.setdefault(key, self.now)
        if self._wanted is not None:
            self._wanted.discard(key)
        self._after[key] = self._made_room(workload)

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        self._release(workload, run)
        if run is not None:
            self._lose(workload, run)

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        self._release(workload, run)

    def _release(self, workload: Workload, run: SimulatedRun | None) -> None:
        key, admission = workload.key, workload.admission
        self._pods_end(key)
        if admission is None:
            return
        if run is not None:
            self._note(key, admission, run, self.now)
        if self._released_at < self.now:
            self._released, self._released_at = {}, self.now
        self._released[key] = admission

    def _note(self, key: str, admission: Admission, run: SimulatedRun, end: Millis) -> None:
        after = self._after.pop(key, ())
        self._result.stretches.append(Stretch(key, admission.cluster_queue, run.began, end, admission, after))

    def _cut_off(self) -> None:
        """Runs still in progress: they last until their end, as far as it is known."""
        for key, run in self.runs.items():
            admission = self.workloads[key].admission
            if admission is not None:
                self._note(key, admission, run, min(self._end, run.end))
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
