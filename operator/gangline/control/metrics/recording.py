"""Counters and histograms of Kueue's names: what decisions that were carried out, and observed transitions, came to."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import gangline
from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.configuration.metrics_settings import (
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    USUAL,
    WORKLOAD,
    MetricsSettings,
)
from gangline.control.metrics.custom_labels import CustomLabels, Values
from gangline.control.metrics.kueue_table import TABLE, read_at_scrape, there_is
from gangline.control.metrics.series import MetricFamily, labelled
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored, WorkloadObject

#: the newest version of an object by its kind and key; None if there is none
Get: TypeAlias = Callable[[Resource, str], Stored | None]

LEADER, FOLLOWER, STANDALONE = "leader", "follower", "standalone"
SUCCESS, INADMISSIBLE = "success", "inadmissible"
#: an object of which nothing is known
_UNKNOWN: Final = Stored({"metadata": {}})


@dataclass(frozen=True, slots=True)
class SeriesLabels:
    """Labels of a workload's series. `queue`: None if its ClusterQueue does not exist; `local_queue`: None if not shown."""

    queue: str | None
    local_queue: tuple[str, str] | None
    priority_class: str
    custom: dict[str, Values]


class KueueMetrics:
    """The recorder. Until `attach`, every object counts as existing, without labels."""

    def __init__(self, settings: MetricsSettings = USUAL, *, fair: bool = False, by_usage: bool = False) -> None:
        self.settings = settings
        self.custom = CustomLabels(settings.custom_labels)
        self.role = STANDALONE
        self.shown: Final = {
            name: metric for name, metric in TABLE.items() if there_is(metric, settings, fair=fair, by_usage=by_usage)
        }
        self._families: dict[str, MetricFamily] = {
            name: MetricFamily(metric, self.custom.names(metric.custom))
            for name, metric in self.shown.items()
            if not read_at_scrape(metric)
        }
        self._get: Get = lambda resource, key: _UNKNOWN
        self._cohorts_of: Callable[[str], Iterable[str]] = lambda queue: ()

    def attach(self, get: Get, cohorts_of: Callable[[str], Iterable[str]]) -> None:
        """Set where objects come from, and the cohorts above a ClusterQueue."""
        self._get, self._cohorts_of = get, cohorts_of

    def has_queue(self, name: str) -> bool:
        return not name or self._get(kube.CLUSTER_QUEUES, name) is not None

    # --- deciding ---

    def attempted(self, *, success: bool, seconds: float) -> None:
        """Count a round of deciding that tried workloads."""
        values = (SUCCESS if success else INADMISSIBLE, self.role)
        self._add("kueue_admission_attempts_total", "", values)
        self._add("kueue_admission_attempt_duration_seconds", "", values, seconds)

    # --- admission ---

    def reserved(self, workload: WorkloadObject, queue: str, waited: float, *, admitted: bool) -> None:
        """Count a workload that got quota, `waited` seconds after it was queued; `admitted`: nothing else stands in its way."""
        place = self._place(workload, queue)
        self._both("quota_reserved_workloads_total", place, place.priority_class)
        self._both("quota_reserved_wait_time_seconds", place, place.priority_class, amount=waited)
        if admitted:
            checked = bool(workload.checks)
            self.admitted(workload, queue, waited, 0.0 if checked else None)

    def admitted(self, workload: WorkloadObject, queue: str, waited: float, checks: float | None) -> None:
        """Count a workload that was admitted: seconds since it was queued, and since its quota was reserved (None: it has no
        checks).
        """
        place = self._place(workload, queue)
        self._both("admitted_workloads_total", place, place.priority_class)
        self._both("admission_wait_time_seconds", place, place.priority_class, amount=waited)
        if checks is not None:
            self._both("admission_checks_wait_time_seconds", place, place.priority_class, amount=checks)
        for cohort in self._cohorts_of(queue):
            custom = self.custom.values(COHORT, self._get(kube.COHORTS, cohort))
            values = (cohort, place.priority_class, self.role, *custom)
            self._add("kueue_cohort_subtree_admitted_workloads_total", cohort, values)

    def ready(self, workload: WorkloadObject, now: int) -> None:
        """Count that all pods of a workload are ready for the first time since it was admitted. `now`: ms since the epoch."""
        place = self._place(workload, workload.admitted_by)
        row, admitted = workload.condition(names.PODS_READY), workload.condition(names.ADMITTED)
        queued = (now - queued_since(workload)) / 1000
        self._both("ready_wait_time_seconds", place, place.priority_class, amount=queued)
        if row is not None and admitted is not None:
            seconds = _seconds(admitted, row)
            self._both("admitted_until_ready_wait_time_seconds", place, place.priority_class, amount=seconds)

    # --- other clusters ---

    def dispatched(self, queue: str, cluster: str) -> None:
        """Count a copy of a workload that was created in a worker cluster."""
        self._add("multikueue_workloads_dispatched_total", queue, (queue, cluster, self.role))

    def admitted_on_other_cluster(self, queue: str, cluster: str) -> None:
        """Count a workload of this ClusterQueue that a worker cluster admitted."""
        self._add("multikueue_workloads_admitted_total", queue, (queue, cluster, self.role))

    # --- ends ---

    def evicted(
        self, workload: WorkloadObject, reason: str, cause: str = "", *, held: WorkloadObject | None = None
    ) -> None:
        """Count an eviction that was written into the workload's status. `held`: the workload before that write, which may have
        released its quota, too; None: it did not.
        """
        held = workload if held is None else held
        place = self._place(workload, held.admitted_by)
        self._both("evicted_workloads_total", place, reason, cause, place.priority_class)
        rows = (workload.status.get("schedulingStats") or {}).get("evictions") or ()
        if any(
            (row.get("reason"), row.get("underlyingCause", ""), row.get("count")) == (reason, cause, 1) for row in rows
        ):
            self._queue("evicted_workloads_once_total", place, reason, cause, place.priority_class)
        ready, evicted = held.true_condition(names.PODS_READY), workload.condition(names.EVICTED)
        if ready is not None and evicted is not None:
            seconds = _seconds(ready, evicted)
            self._queue("pods_ready_to_evicted_time_seconds", place, reason, cause, amount=seconds)

    def preempted(self, preemptor: WorkloadObject, reason: str) -> None:
        """Count a workload that was preempted for this one."""
        local_queue = self._get(kube.LOCAL_QUEUES, _local_queue_of(preemptor))
        queue = local_queue.spec.get("clusterQueue", "") if local_queue is not None else ""
        self._queue("preempted_workloads_total", self._place(preemptor, queue), reason)

    def slice_replaced(self, old: WorkloadObject, queue: str) -> None:
        """Count a slice of an elastic job that was replaced by another one."""
        self._queue("replaced_workload_slices_total", self._place(old, queue))

    def released(self, workload: WorkloadObject, queue: str, now: int) -> None:
        """Count how long an evicted workload took until it held no quota of `queue` any more."""
        row = workload.true_condition(names.EVICTED)
        if row is not None and queue:
            seconds = (now - conditions.millis_of(row.get("lastTransitionTime"))) / 1000
            place = self._place(workload, queue)
            self._queue("workload_eviction_latency_seconds", place, row.get("reason", ""), amount=seconds)

    def finished(self, workload: WorkloadObject) -> None:
        place = self._place(workload, workload.admitted_by)
        self._both("finished_workloads_total", place, place.priority_class)
        admitted, end = workload.true_condition(names.ADMITTED), workload.condition(names.FINISHED)
        if admitted is not None and end is not None:
            before = workload.status.get("accumulatedPastExecutionTimeSeconds") or 0
            seconds = before + _seconds(admitted, end)
            self._both("execution_time_seconds", place, place.priority_class, amount=seconds)

    # --- jobs and pods ---

    def workload_created(self, kind: str, job: Stored, workload: WorkloadObject) -> None:
        """Count how long it took to create the Workload of a new job; for a job that has changed since nothing is counted."""
        if job.generation > 1:
            return
        born = [conditions.millis_of(each.created) for each in (job, workload)]
        custom = self.custom.values(LOCAL_QUEUE, self._get(kube.LOCAL_QUEUES, _local_queue_of(workload)))
        values = (kind, self.role, *custom)
        self._add("kueue_workload_creation_latency_seconds", "", values, (born[1] - born[0]) / 1000)

    def gate_removed(self, gate: str, workload: WorkloadObject, now: int) -> None:
        """Count a pod of an admitted workload that lost a scheduling gate."""
        row, queue = workload.true_condition(names.ADMITTED), workload.admitted_by
        place = self._place(workload, queue)
        if row is None or place.queue is None:
            return
        seconds = (now - conditions.millis_of(row.get("lastTransitionTime"))) / 1000
        grouped = names.IS_GROUP_WORKLOAD in workload.annotations
        values = (gate, queue, str(grouped).lower(), self.role, *place.custom[CLUSTER_QUEUE])
        self._add("kueue_pod_scheduling_gate_removal_seconds", queue, values, seconds)

    # --- objects that go ---

    def forget(self, resource: Resource, key: str) -> None:
        """Drop the series of a ClusterQueue, LocalQueue or Cohort that was deleted, or of a queue that has other labels now."""
        wanted = {
            kube.CLUSTER_QUEUES: ("cluster_queue", "preempting_cluster_queue"),
            kube.LOCAL_QUEUES: ("name",),
            kube.COHORTS: ("cohort",),
        }[resource]
        for family in self._families.values():
            if family.metric.owner in wanted:
                family.forget(key)

    def keep_cohorts(self, known: Collection[str]) -> None:
        """Drop the series of all cohorts but these: of a cohort without an object, nothing says that its last queue has left."""
        for family in self._families.values():
            if family.metric.owner == "cohort":
                for gone in set(family.owners()).difference(known):
                    family.forget(gone)

    # --- out ---

    def text(self) -> Iterator[bytes]:
        """The text of all counters and histograms, in many small parts."""
        for family in self._families.values():
            yield family.head
            for owner in family.owners():
                yield from family.texts(owner)

    # --- labels ---

    def _place(self, workload: WorkloadObject, queue: str) -> SeriesLabels:
        key = _local_queue_of(workload)
        found = self._get(kube.CLUSTER_QUEUES, queue) if queue else _UNKNOWN
        local_queue = self._get(kube.LOCAL_QUEUES, key)
        shown = local_queue is not None and self.settings.shows(local_queue)
        namespace, _, name = key.partition("/")
        return SeriesLabels(
            queue if found is not None else None,
            (name, namespace) if shown else None,
            self._priority_class(workload),
            {
                CLUSTER_QUEUE: self.custom.values(CLUSTER_QUEUE, found),
                LOCAL_QUEUE: self.custom.values(LOCAL_QUEUE, local_queue),
                WORKLOAD: self.custom.values(WORKLOAD, workload),
            },
        )

    def _priority_class(self, workload: WorkloadObject) -> str:
        """The name of its priority class; "" for one that does not exist, as anybody may write any name."""
        name = (workload.spec.get("priorityClassRef") or {}).get("name", "")
        kinds = (kube.WORKLOAD_PRIORITY_CLASSES, kube.PRIORITY_CLASSES)
        return name if name and any(self._get(kind, name) is not None for kind in kinds) else ""

    # --- counting ---

    def _both(self, name: str, place: SeriesLabels, *values: str, amount: float = 1.0) -> None:
        """Count for the ClusterQueue, and for the LocalQueue if that is shown."""
        self._queue(name, place, *values, amount=amount)
        if place.local_queue is not None:
            own, namespace = place.local_queue
            metric = f"kueue_local_queue_{name}"
            everything = (own, namespace, *values, self.role, *self._custom(metric, place))
            self._add(metric, f"{namespace}/{own}", everything, amount)

    def _queue(self, name: str, place: SeriesLabels, *values: str, amount: float = 1.0) -> None:
        if place.queue is not None:
            metric = f"kueue_{name}"
            everything = (place.queue, *values, self.role, *self._custom(metric, place))
            self._add(metric, place.queue, everything, amount)

    def _custom(self, metric: str, place: SeriesLabels) -> Values:
        return tuple(value for kind in TABLE[metric].custom for value in place.custom[kind])

    def _add(self, metric: str, owner: str, values: Values, amount: float = 1.0) -> None:
        family = self._families.get(metric)
        if family is not None:
            family.add(owner, values, amount)


def build_info() -> str:
    """Labels of `kueue_build_info`: of Gangline and the Python that runs it."""
    values = (
        f"v{gangline.__version__}",
        "",
        "",
        "",
        f"{platform.python_implementation()} {platform.python_version()}",
        f"{sys.platform}/{platform.machine()}",
    )
    return labelled(TABLE["kueue_build_info"].labels, values)


def queued_since(workload: WorkloadObject) -> int:
    """The time at which the workload last entered its queue, in ms: its creation, or its last requeueing."""
    requeued = workload.true_condition(names.REQUEUED)
    times = [conditions.millis_of(workload.created)]
    if requeued is not None:
        times.append(conditions.millis_of(requeued.get("lastTransitionTime")))
    return max(times)


def _local_queue_of(workload: WorkloadObject) -> str:
    """The key of the LocalQueue that it names."""
    return f"{workload.namespace}/{workload.queue_name}"


def _seconds(first: Json, second: Json) -> float:
    then = conditions.millis_of(first.get("lastTransitionTime"))
    return max(0, conditions.millis_of(second.get("lastTransitionTime")) - then) / 1000
