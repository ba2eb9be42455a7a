"""The table of Kueue's metrics: name, type and labels of each, as Kueue has them, and when it has series.

The registry is made from this table, and so is docs/reference/metrics.md. A row with `absent` has no series: it says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gangline.api.read.configuration.metrics_settings import (
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    WORKLOAD,
    MetricsSettings,
)

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

# conditions
RESOURCES: Final = "`metrics.enableClusterQueueResources`"
FAIR: Final = "fair sharing"
FAIR_RESOURCES: Final = f"{FAIR} and {RESOURCES}"
BY_USAGE: Final = "admission fair sharing"
COHORTS: Final = "gate `MetricsForCohorts`"
UNADMITTED: Final = "gate `UnadmittedWorkloadsObservability`"
HASHES: Final = "gate `SchedulingEquivalenceHashing`"
CREATION: Final = "gate `MetricForWorkloadCreationLatency`"
#: of all whose names begin with `kueue_local_queue_`
LOCAL_QUEUES: Final = "gate `LocalQueueMetrics`, `metrics.localQueueMetrics`"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `name` is that of its series, `custom` are the kinds whose objects give it labels of the configuration.

    `buckets`: upper bounds in seconds. `when`: the setting that it depends on, "" = it is always there. `absent`: why it has no
    series, "" = it has. `owner`: the label that names the object with which its series go.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str
    custom: tuple[str, ...] = (CLUSTER_QUEUE,)
    buckets: tuple[float, ...] = ()
    when: str = ""
    absent: str = ""

    @property
    def of_local_queues(self) -> bool:
        return self.name.startswith("kueue_local_queue_")

    @property
    def owner(self) -> str:
        """The label that names the object with which its series come and go."""
        for label in ("cluster_queue", "preempting_cluster_queue", "cohort"):
            if label in self.labels and not self.of_local_queues:
                return label
        return "name" if self.of_local_queues else ""


def exponential(count: int) -> tuple[float, ...]:
    """Bounds of 1 s, then 2.5·2ⁿ s."""
    return (1.0, *(2.5 * 2**n for n in range(count - 1)))


#: where Kueue leaves the bounds to Prometheus' client
DEFAULT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_14, _16 = exponential(14), exponential(16)
_CREATION: Final = tuple(0.01 * 2**n for n in range(11))

_ROLE: Final = "replica_role"
_RESULT: Final = ("result", _ROLE)
_CQ: Final = ("cluster_queue", _ROLE)
_CQ_STATUS: Final = ("cluster_queue", "status", _ROLE)
_CQ_CLASS: Final = ("cluster_queue", "priority_class", _ROLE)
_CQ_CAUSE: Final = ("cluster_queue", "reason", "underlying_cause", _ROLE)
_CQ_EVICTED: Final = ("cluster_queue", "reason", "underlying_cause", "priority_class", _ROLE)
_CQ_FLAVOR: Final = ("cohort", "cluster_queue", "flavor", "resource", _ROLE)
_LQ: Final = ("name", "namespace", _ROLE)
_LQ_CLASS: Final = ("name", "namespace", "priority_class", _ROLE)
_LQ_FLAVOR: Final = ("name", "namespace", "flavor", "resource", _ROLE)
_COHORT: Final = ("cohort", _ROLE)
_COHORT_FLAVOR: Final = ("cohort", "flavor", "resource", _ROLE)
_FROM_LQ: Final = (LOCAL_QUEUE,)
_FROM_COHORT: Final = (COHORT,)

_ALL: Final = (
    # --- deciding ---
    Metric("kueue_admission_attempts_total", COUNTER, _RESULT, "Rounds of deciding that tried workloads.", ()),
    Metric(
        "kueue_admission_attempt_duration_seconds",
        HISTOGRAM,
        _RESULT,
        "How long such a round took.",
        (),
        DEFAULT_BUCKETS,
    ),
    Metric(
        "kueue_admission_cycle_preemption_skips",
        GAUGE,
        _CQ,
        "Heads that had victims and were passed over, since others of the cycle needed the same; in the last cycle with any.",
    ),
    Metric(
        "kueue_preemption_target_recomputations_total",
        COUNTER,
        ("cluster_queue", "result", _ROLE),
        "Searches for victims that were made again, since another workload of the cycle had chosen the same.",
    ),
    Metric(
        "kueue_build_info",
        GAUGE,
        ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
        "1 for the version of Gangline; there is no Go in it.",
        (),
    ),
    # --- waiting ---
    Metric(
        "kueue_pending_workloads",
        GAUGE,
        _CQ_STATUS,
        "Workloads that wait, by whether they are offered to the scheduler.",
        (CLUSTER_QUEUE, WORKLOAD),
    ),
    Metric(
        "kueue_pending_scheduling_hashes",
        GAUGE,
        _CQ_STATUS,
        "Different shapes among the workloads that wait.",
        when=HASHES,
    ),
    Metric(
        "kueue_unadmitted_workloads",
        GAUGE,
        _CQ_CAUSE,
        "Workloads that are not admitted, by the reasons in their conditions.",
        when=UNADMITTED,
    ),
    Metric(
        "kueue_cluster_queue_resource_pending",
        GAUGE,
        ("cluster_queue", "resource", _ROLE),
        "What all workloads that wait request.",
        when=RESOURCES,
    ),
    # --- admission ---
    Metric("kueue_quota_reserved_workloads_total", COUNTER, _CQ_CLASS, "Workloads that got quota."),
    Metric("kueue_quota_reserved_wait_time_seconds", HISTOGRAM, _CQ_CLASS, "From queued to quota.", buckets=_14),
    Metric("kueue_admitted_workloads_total", COUNTER, _CQ_CLASS, "Workloads that were admitted."),
    Metric("kueue_admission_wait_time_seconds", HISTOGRAM, _CQ_CLASS, "From queued to admitted.", buckets=_16),
    Metric("kueue_admission_checks_wait_time_seconds", HISTOGRAM, _CQ_CLASS, "From quota to admitted.", buckets=_14),
    Metric("kueue_ready_wait_time_seconds", HISTOGRAM, _CQ_CLASS, "From queued to all pods ready.", buckets=_14),
    Metric(
        "kueue_admitted_until_ready_wait_time_seconds",
        HISTOGRAM,
        _CQ_CLASS,
        "From admitted to all pods ready.",
        buckets=_14,
    ),
    Metric("kueue_reserving_active_workloads", GAUGE, _CQ, "Workloads that hold quota."),
    Metric(
        "kueue_admitted_active_workloads",
        GAUGE,
        _CQ,
        "Admitted, unfinished workloads.",
        (CLUSTER_QUEUE, WORKLOAD),
    ),
    # --- ends ---
    Metric("kueue_finished_workloads", GAUGE, _CQ, "Finished Workloads that still exist."),
    Metric("kueue_finished_workloads_total", COUNTER, _CQ_CLASS, "Workloads that finished."),
    Metric(
        "kueue_execution_time_seconds",
        HISTOGRAM,
        _CQ_CLASS,
        "How long finished workloads ran, in all their admissions.",
        buckets=_16,
    ),
    Metric("kueue_evicted_workloads_total", COUNTER, _CQ_EVICTED, "Evictions."),
    Metric(
        "kueue_evicted_workloads_once_total",
        COUNTER,
        _CQ_EVICTED,
        "Workloads that were evicted, once for each reason and cause.",
    ),
    Metric(
        "kueue_preempted_workloads_total",
        COUNTER,
        ("preempting_cluster_queue", "reason", _ROLE),
        "Workloads that were preempted for one of this ClusterQueue.",
    ),
    Metric(
        "kueue_pods_ready_to_evicted_time_seconds",
        HISTOGRAM,
        _CQ_CAUSE,
        "From all pods ready to the eviction.",
        buckets=_14,
    ),
    Metric(
        "kueue_workload_eviction_latency_seconds",
        HISTOGRAM,
        ("cluster_queue", "reason", _ROLE),
        "From the eviction until the quota was released.",
        buckets=_14,
    ),
    Metric(
        "kueue_replaced_workload_slices_total",
        COUNTER,
        _CQ,
        "Slices of elastic jobs that were replaced.",
    ),
    # --- jobs and pods ---
    Metric(
        "kueue_workload_creation_latency_seconds",
        HISTOGRAM,
        ("job_kind", _ROLE),
        "From the creation of a job to that of its Workload.",
        _FROM_LQ,
        _CREATION,
        CREATION,
    ),
    Metric(
        "kueue_pod_scheduling_gate_removal_seconds",
        HISTOGRAM,
        ("name", "cluster_queue", "is_group", _ROLE),
        "From admission to the removal of a pod's scheduling gate.",
        buckets=DEFAULT_BUCKETS,
    ),
    # --- ClusterQueues ---
    Metric("kueue_cluster_queue_status", GAUGE, _CQ_STATUS, "1 for the queue's state: pending, active, terminating."),
    Metric(
        "kueue_cluster_queue_info",
        GAUGE,
        ("cluster_queue", "parent_cohort", "root_cohort", _ROLE),
        "1; the labels are the queue's place.",
        when=COHORTS,
    ),
    Metric("kueue_cluster_queue_resource_reservation", GAUGE, _CQ_FLAVOR, "Quota that workloads hold.", when=RESOURCES),
    Metric(
        "kueue_cluster_queue_resource_usage", GAUGE, _CQ_FLAVOR, "Quota that admitted workloads hold.", when=RESOURCES
    ),
    Metric("kueue_cluster_queue_nominal_quota", GAUGE, _CQ_FLAVOR, "The queue's own quota.", when=RESOURCES),
    Metric(
        "kueue_cluster_queue_borrowing_limit",
        GAUGE,
        _CQ_FLAVOR,
        "What it may use beyond it; +Inf without a limit.",
        when=RESOURCES,
    ),
    Metric(
        "kueue_cluster_queue_lending_limit",
        GAUGE,
        _CQ_FLAVOR,
        "What others may use of it; +Inf without a limit.",
        when=RESOURCES,
    ),
    Metric(
        "kueue_cluster_queue_weighted_share",
        GAUGE,
        ("cluster_queue", "cohort", _ROLE),
        "Share of the cohort's quota used beyond the queue's own, by its weight; NaN for a weight of 0.",
        when=FAIR_RESOURCES,
    ),
    # --- cohorts ---
    Metric(
        "kueue_cohort_info",
        GAUGE,
        ("cohort", "parent_cohort", "root_cohort", _ROLE),
        "1; the labels are the cohort's place.",
        _FROM_COHORT,
        when=COHORTS,
    ),
    Metric(
        "kueue_cohort_weighted_share",
        GAUGE,
        _COHORT,
        "Share of its parent's quota used beyond its own, by its weight; NaN for a weight of 0.",
        _FROM_COHORT,
        when=FAIR,
    ),
    Metric("kueue_cohort_subtree_quota", GAUGE, _COHORT_FLAVOR, "Quota of all below it.", _FROM_COHORT),
    Metric(
        "kueue_cohort_subtree_resource_reservations",
        GAUGE,
        _COHORT_FLAVOR,
        "Quota that workloads of all queues below it hold.",
        _FROM_COHORT,
    ),
    Metric(
        "kueue_cohort_subtree_admitted_workloads_total",
        COUNTER,
        ("cohort", "priority_class", _ROLE),
        "Workloads of all queues below it that were admitted.",
        _FROM_COHORT,
    ),
    Metric(
        "kueue_cohort_subtree_admitted_active_workloads",
        GAUGE,
        _COHORT,
        "Admitted, unfinished workloads of all queues below it.",
    ),
    # --- LocalQueues ---
    Metric(
        "kueue_local_queue_pending_workloads",
        GAUGE,
        ("name", "namespace", "status", _ROLE),
        "Workloads that wait, by whether they are offered to the scheduler.",
        _FROM_LQ,
    ),
    Metric(
        "kueue_local_queue_unadmitted_workloads",
        GAUGE,
        ("name", "namespace", "cluster_queue", "reason", "underlying_cause", _ROLE),
        "Workloads that are not admitted, by the reasons in their conditions.",
        _FROM_LQ,
        when=UNADMITTED,
    ),
    Metric(
        "kueue_local_queue_quota_reserved_workloads_total", COUNTER, _LQ_CLASS, "Workloads that got quota.", _FROM_LQ
    ),
    Metric(
        "kueue_local_queue_quota_reserved_wait_time_seconds",
        HISTOGRAM,
        _LQ_CLASS,
        "From queued to quota.",
        _FROM_LQ,
        _14,
    ),
    Metric(
        "kueue_local_queue_admitted_workloads_total",
        COUNTER,
        _LQ_CLASS,
        "Workloads that were admitted.",
        (LOCAL_QUEUE, WORKLOAD),
    ),
    Metric(
        "kueue_local_queue_admission_wait_time_seconds",
        HISTOGRAM,
        _LQ_CLASS,
        "From queued to admitted.",
        (LOCAL_QUEUE, WORKLOAD),
        _14,
    ),
    Metric(
        "kueue_local_queue_admission_checks_wait_time_seconds",
        HISTOGRAM,
        _LQ_CLASS,
        "From quota to admitted.",
        _FROM_LQ,
        _14,
    ),
    Metric(
        "kueue_local_queue_ready_wait_time_seconds",
        HISTOGRAM,
        _LQ_CLASS,
        "From queued to all pods ready.",
        _FROM_LQ,
        _14,
    ),
    Metric(
        "kueue_local_queue_admitted_until_ready_wait_time_seconds",
        HISTOGRAM,
        _LQ_CLASS,
        "From admitted to all pods ready.",
        _FROM_LQ,
        _14,
    ),
    Metric("kueue_local_queue_reserving_active_workloads", GAUGE, _LQ, "Workloads that hold quota.", _FROM_LQ),
    Metric(
        "kueue_local_queue_admitted_active_workloads",
        GAUGE,
        _LQ,
        "Admitted, unfinished workloads.",
        (LOCAL_QUEUE, WORKLOAD),
    ),
    Metric("kueue_local_queue_finished_workloads", GAUGE, _LQ, "Finished Workloads that still exist.", _FROM_LQ),
    Metric("kueue_local_queue_finished_workloads_total", COUNTER, _LQ_CLASS, "Workloads that finished.", _FROM_LQ),
    Metric(
        "kueue_local_queue_execution_time_seconds",
        HISTOGRAM,
        _LQ_CLASS,
        "How long finished workloads ran, in all their admissions.",
        _FROM_LQ,
        _16,
    ),
    Metric(
        "kueue_local_queue_evicted_workloads_total",
        COUNTER,
        ("name", "namespace", "reason", "underlying_cause", "priority_class", _ROLE),
        "Evictions.",
        _FROM_LQ,
    ),
    Metric(
        "kueue_local_queue_status",
        GAUGE,
        ("name", "namespace", "active", _ROLE),
        "1 for the queue's state: True, False, Unknown.",
        _FROM_LQ,
    ),
    Metric("kueue_local_queue_resource_reservation", GAUGE, _LQ_FLAVOR, "Quota that workloads hold.", _FROM_LQ),
    Metric("kueue_local_queue_resource_usage", GAUGE, _LQ_FLAVOR, "Quota that admitted workloads hold.", _FROM_LQ),
    Metric(
        "kueue_local_queue_admission_fair_sharing_usage",
        GAUGE,
        ("name", "namespace", "cluster_queue", _ROLE),
        "The usage over time by which LocalQueues are ordered; +Inf for a weight of 0.",
        _FROM_LQ,
        when=BY_USAGE,
    ),
    # --- other clusters ---
    Metric(
        "multikueue_workloads_dispatched_total",
        COUNTER,
        ("cluster_queue", "cluster", _ROLE),
        "Workloads created in a worker cluster.",
        (),
    ),
    Metric(
        "multikueue_workloads_admitted_total",
        COUNTER,
        ("cluster_queue", "cluster", _ROLE),
        "Workloads admitted in a worker cluster.",
        (),
    ),
)

TABLE: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}

#: the counter that the engine keeps
RECOMPUTATIONS: Final = "kueue_preemption_target_recomputations_total"


def read_at_scrape(metric: Metric) -> bool:
    """Whether the metric's values are read off the engine at a scrape; those of others are counted as things happen."""
    return metric.kind == GAUGE or metric.name == RECOMPUTATIONS


def there_is(metric: Metric, settings: MetricsSettings, *, fair: bool, by_usage: bool) -> bool:
    """Whether the metric has series with these settings; `fair` and `by_usage`: the engine's two ways of fair sharing."""
    if metric.absent or (metric.of_local_queues and not settings.local_queues):
        return False
    conditions = {
        "": True,
        RESOURCES: settings.cluster_queue_resources,
        FAIR: fair,
        FAIR_RESOURCES: fair and settings.cluster_queue_resources,
        BY_USAGE: by_usage,
        COHORTS: settings.cohort_info,
        UNADMITTED: settings.unadmitted,
        HASHES: settings.hashes,
        CREATION: settings.creation_latency,
    }
    return conditions[metric.when]
