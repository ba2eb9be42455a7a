"""Workload: one gang in the queue: its pods, its priority, its quota and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import (
    CheckName,
    Conditions,
    Count,
    Int32,
    KubeObject,
    ObjectName,
    Opaque,
    PodSetName,
    PositiveInt32,
    Quantity,
    Time,
)
from gangline.api.schema.json_schema import ApiModel, Cel, list_map, rules
from gangline.api.schema.v1beta2.config import Tolerations

MAX_POD_SETS = 18

_TopologyKey = Annotated[str, Field(max_length=63)]
_IndexLabel = Annotated[str, Field(max_length=317)]
_Level = Annotated[str, Field(max_length=317)]
_Gate = Annotated[str, Field(min_length=1, max_length=63)]


class PodTemplate(ApiModel):
    """A pod template. Its inside is checked where pods are made from it, not here."""

    metadata: Opaque | None = None
    """Labels and annotations of the pods."""
    spec: Opaque | None = None
    """The pods' spec."""


class SliceConstraint(ApiModel):
    """One layer of slices."""

    topology: Annotated[str, Field(min_length=1, max_length=63)]
    """The level that each slice must fit in, as node label."""
    size: PositiveInt32
    """Pods per slice."""


class TopologyRequestBase(ApiModel):
    """What both versions of a topology request say alike."""

    required: _TopologyKey | None = None
    """All pods must be in one domain of this level, given as node label."""
    preferred: _TopologyKey | None = None
    """All pods should be in one domain of this level; wider levels are tried when they do not fit."""
    unconstrained: bool | None = None
    """Pods may be placed on any nodes, but node by node."""
    pod_index_label: _IndexLabel | None = None
    """The pod label that holds a pod's index."""
    sub_group_index_label: _IndexLabel | None = None
    """The pod label that holds the index of the pod's subgroup, such as a replicated job."""
    sub_group_count: Count | None = None
    """How many subgroups there are."""
    pod_set_group_name: Annotated[str, Field(max_length=256)] | None = None
    """Pod sets of one group are placed together and get the same flavors."""
    pod_set_slice_required_topology: _TopologyKey | None = None
    """Each slice of the pods must be in one domain of this level."""
    pod_set_slice_size: PositiveInt32 | None = None
    """Pods per slice."""


class PodSetTopologyRequest(TopologyRequestBase):
    """The placement of the pods relative to each other."""

    podset_slice_required_topology_constraints: Annotated[list[SliceConstraint], Field(max_length=3)] | None = None
    """Slices within slices, outermost first."""


MIN_COUNT_RULE = Cel(
    "!has(self.minCount) || self.minCount <= self.count", "minCount should be positive and less or equal to count"
)


class PodSetBase(ApiModel):
    """What both versions of a pod set say alike."""

    name: PodSetName = "main"
    """The pod set's name, unique in the workload."""
    template: PodTemplate
    """What each pod looks like."""
    count: Count = 1
    """How many pods."""
    min_count: PositiveInt32 | None = None
    """The workload may also start with fewer pods, down to this many. Only one pod set can say so."""


class PodSet(PodSetBase):
    """Equal pods."""

    model_config = rules(MIN_COUNT_RULE)
    topology_request: PodSetTopologyRequest | None = None
    """The placement of the pods relative to each other."""


class PriorityClassRef(ApiModel):
    """The class of the priority."""

    model_config = rules(
        Cel(
            "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'",
            "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
        ),
        Cel(
            "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
        ),
    )
    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """kueue.x-k8s.io for a WorkloadPriorityClass, scheduling.k8s.io for a PriorityClass."""
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """The kind of the class."""
    name: Annotated[ObjectName, Field(min_length=1)]
    """The name of the class."""


class PreemptionGate(ApiModel):
    """A condition that must hold before this workload may preempt others."""

    name: _Gate
    """The gate's name."""


class WorkloadSpecBase(ApiModel):
    """What both versions of a Workload's spec say alike."""

    queue_name: ObjectName | None = None
    """The LocalQueue it waits in. It can't be changed while quota is reserved."""
    priority: Int32 | None = None
    """Higher goes first. Taken from the priority class."""
    active: bool = True
    """False: never admit it, and evict it if it runs."""
    maximum_execution_time_seconds: PositiveInt32 | None = None
    """Deactivate it after it has been admitted for this long in total."""


class WorkloadSpec(WorkloadSpecBase):
    """The gang's requests."""

    model_config = rules(
        Cel(
            "!has(self.priorityClassRef) || has(self.priority)",
            "priority should not be nil when priorityClassRef is set",
        )
    )
    pod_sets: Annotated[list[PodSet], Field(min_length=1, max_length=MAX_POD_SETS), list_map("name")] | None = None
    """The pods, by groups that are alike. All get quota at the same time, or none."""
    priority_class_ref: PriorityClassRef | None = None
    """The class of the priority."""
    preemption_gates: Annotated[list[PreemptionGate], Field(max_length=8), list_map("name")] | None = None
    """The preemption gates: until all of them are open the workload preempts no other one."""


class IndividualValues(ApiModel):
    """One value per domain: prefix + root + suffix."""

    prefix: Annotated[str, Field(max_length=63)] | None = None
    """The beginning of all values."""
    suffix: Annotated[str, Field(max_length=63)] | None = None
    """The end of all values."""
    roots: Annotated[list[Annotated[str, Field(max_length=63)]], Field(min_length=1, max_length=100_000)]
    """The middle of each value, domain by domain."""


_ONE_FORM = Cel(
    "has(self.universal) != has(self.individual)", "exactly one of the fields in [universal individual] must be set"
)


class LevelValues(ApiModel):
    """The values of one level's node label, for all domains of the slice."""

    model_config = rules(_ONE_FORM)
    universal: Annotated[str, Field(max_length=63)] | None = None
    """The one value that all domains have."""
    individual: IndividualValues | None = None
    """A value for each domain."""


class PodCounts(ApiModel):
    """The number of pods in each domain."""

    model_config = rules(_ONE_FORM)
    universal: PositiveInt32 | None = None
    """The one count that all domains have."""
    individual: Annotated[list[PositiveInt32], Field(min_length=1, max_length=100_000)] | None = None
    """A count for each domain."""


class TopologyAssignmentSlice(ApiModel):
    """Some of the domains, written compactly."""

    model_config = rules(
        Cel(
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            "podCounts.individual must have length equal to domainCount",
        ),
        Cel(
            "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this "
            "TopologyAssignmentSlice",
        ),
    )
    domain_count: PositiveInt32
    """How many domains this slice describes."""
    values_per_level: Annotated[list[LevelValues], Field(min_length=1, max_length=16)]
    """One entry per level."""
    pod_counts: PodCounts
    """The number of pods in each domain."""


class TopologyAssignment(ApiModel):
    """The topology domains of the pods."""

    model_config = rules(
        Cel(
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
        )
    )
    levels: Annotated[list[_Level], Field(min_length=1, max_length=16)]
    """The node labels that name a domain, widest first; the hostname alone where that is the narrowest."""
    slices: Annotated[list[TopologyAssignmentSlice], Field(max_length=1000)]
    """The domains, in slices that are each written compactly."""


class PodSetAssignmentBase(ApiModel):
    """What both versions of a pod set's admission say alike."""

    name: PodSetName = "main"
    """The pod set."""
    flavors: dict[str, ObjectName] | None = None
    """The flavor that each resource comes from."""
    resource_usage: dict[str, Quantity] | None = None
    """The quota held for all its pods together."""
    count: Count | None = None
    """The number of pods with which the pod set was admitted."""
    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Pending: its place is found once its nodes exist. Ready: they do."""


class PodSetAssignment(PodSetAssignmentBase):
    """The assignment of one pod set."""

    topology_assignment: TopologyAssignment | None = None
    """The topology domains of the pods, if the flavor has a topology."""


class Admission(ApiModel):
    """The quota of a workload."""

    cluster_queue: ObjectName
    """The ClusterQueue that gave it."""
    pod_set_assignments: Annotated[list[PodSetAssignment], Field(max_length=MAX_POD_SETS), list_map("name")]
    """What each pod set got."""


class RequeueState(ApiModel):
    """The back-off of a workload after an eviction."""

    count: Count | None = None
    """The number of times that the workload was put back."""
    requeue_at: Time | None = None
    """The time from which the workload may be considered again."""


class ReclaimablePod(ApiModel):
    """Pods that no longer need their quota."""

    name: PodSetName
    """The pod set."""
    count: Count
    """The number of the pod set's pods that have ended for good."""


class PodSetUpdate(ApiModel):
    """The changes that an admission check makes to the pods."""

    name: PodSetName
    """The pod set."""
    labels: dict[str, str] | None = None
    """Labels to add."""
    annotations: dict[str, str] | None = None
    """Annotations to add."""
    node_selector: dict[str, str] | None = None
    """Node selector to add."""
    tolerations: Tolerations | None = None
    """Tolerations to add."""


class AdmissionCheckState(ApiModel):
    """The state of one admission check."""

    name: CheckName
    """The AdmissionCheck."""
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """Pending: no answer yet. Ready: yes. Retry: not now, give the quota back. Rejected: never."""
    last_transition_time: Time
    """When `state` last changed."""
    message: Annotated[str, Field(max_length=32768)]
    """The reason, in a sentence for people."""
    requeue_after_seconds: Count | None = None
    """The time to wait before the next try, with Retry."""
    retry_count: Count | None = None
    """The number of times that the check answered Retry."""
    pod_set_updates: Annotated[list[PodSetUpdate], Field(max_length=MAX_POD_SETS)] | None = None
    """The changes that the check makes to the pods."""


class PodSetRequest(ApiModel):
    """The total requests of a pod set."""

    name: PodSetName
    """The pod set."""
    resources: dict[str, Quantity] | None = None
    """The requests of all its pods together."""


class EvictionCount(ApiModel):
    """The number of evictions for one reason."""

    reason: Annotated[str, Field(max_length=316)]
    """The reason."""
    underlying_cause: Annotated[str, Field(max_length=316)]
    """The reason behind the reason; may be empty."""
    count: Count
    """The number of such evictions."""


class SchedulingStats(ApiModel):
    """Statistics of its past."""

    evictions: Annotated[list[EvictionCount], Field(max_length=256), list_map("reason", "underlyingCause")] | None = (
        None
    )
    """Evictions, by reason."""


class UnhealthyNode(ApiModel):
    """A node that failed."""

    name: Annotated[str, Field(max_length=63)]
    """The node."""


class PreemptionGateState(PreemptionGate):
    """The state of a preemption gate."""

    position: Literal["Closed", "Open"]
    """Open: the workload may preempt as far as this gate is concerned."""
    last_transition_time: Time
    """When `position` last changed."""


class WorkloadStatusBase(ApiModel):
    """What both versions of a Workload's status say alike."""

    conditions: Conditions | None = None
    """QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished and others."""
    requeue_state: RequeueState | None = None
    """The workload's back-off after an eviction."""
    reclaimable_pods: Annotated[list[ReclaimablePod], Field(max_length=MAX_POD_SETS), list_map("name")] | None = None
    """Pods that need their quota no more though others still run."""
    admission_checks: Annotated[list[AdmissionCheckState], Field(max_length=8), list_map("name")] | None = None
    """The answers of the admission checks."""
    resource_requests: Annotated[list[PodSetRequest], Field(max_length=MAX_POD_SETS), list_map("name")] | None = None
    """While it waits: what it asked for when last considered, defaults and overheads included."""
    scheduling_stats: SchedulingStats | None = None
    """Statistics of its past."""
    nominated_cluster_names: Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=20)] | None = None
    """Clusters that are asked to run it. Empty once clusterName is set."""
    cluster_name: Annotated[str, Field(max_length=256)] | None = None
    """The cluster that runs it."""
    unhealthy_nodes: Annotated[list[UnhealthyNode], Field(max_length=8), list_map("name")] | None = None
    """Failed nodes whose pods need another place."""


CLUSTER_NAME_RULES = (
    Cel(
        "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        "clusterName is immutable once set",
    ),
    Cel(
        "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
        "clusterName and nominatedClusterNames are mutually exclusive",
    ),
)


class WorkloadStatus(WorkloadStatusBase):
    """The quota of a workload and its progress."""

    model_config = rules(*CLUSTER_NAME_RULES)
    admission: Admission | None = None
    """The quota it holds. Absent while it waits."""
    accumulated_past_execution_time_seconds: Int32 | None = None
    """The total time for which the workload was admitted before its last eviction."""
    preemption_gates: Annotated[list[PreemptionGateState], Field(max_length=8), list_map("name")] | None = None
    """The positions of the preemption gates."""


def _same(field: str) -> str:
    return (
        f"has(self.spec.{field}) == has(oldSelf.spec.{field}) && "
        f"(!has(self.spec.{field}) || self.spec.{field} == oldSelf.spec.{field})"
    )


#: Quota was and stays reserved. The admission says so as well as the condition does, and is cheaper to look at.
_HELD = " && ".join(f"has({side}.status) && has({side}.status.admission)" for side in ("oldSelf", "self"))
_ADMITTED = " && ".join(
    f"has({side}.status) && has({side}.status.conditions) && "
    f"{side}.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')"
    for side in ("oldSelf", "self")
)


WHILE_RESERVED = "while workload quota reserved"


def workload_rules(same_priority_class: Mapping[str, str]) -> tuple[Cel, ...]:
    """Rules on the whole object; pod sets are compared by the validating webhook, since their templates are opaque here.

    `same_priority_class`: message -> what must hold while quota is reserved. Every status write pays for these rules, so what
    is nearly always true stands first.
    """
    return (
        Cel(
            "!has(self.status) || !has(self.status.admission) || "
            "size(self.status.admission.podSetAssignments) == size(self.spec.podSets)",
            "podSetAssignments must have the same number of podSets as the spec",
        ),
        Cel(f"({_same('queueName')}) || !({_HELD})", f"queueName is immutable {WHILE_RESERVED}"),
        *(Cel(f"({same}) || !({_HELD})", message) for message, same in same_priority_class.items()),
        Cel(
            f"({_same('maximumExecutionTimeSeconds')}) || !({_ADMITTED})",
            f"maximumExecutionTimeSeconds is immutable {WHILE_RESERVED}",
        ),
    )


_NO_CLASS = "!has(self.spec.priorityClassRef) || !has(oldSelf.spec.priorityClassRef)"
_SAME_CLASS = {
    f"priorityClassRef is immutable {WHILE_RESERVED}": "has(self.spec.priorityClassRef) == has(oldSelf.spec.priorityClassRef)",
    # its kind follows from it, by a rule of its own
    f"priorityClassRef.group is immutable {WHILE_RESERVED}": (
        f"{_NO_CLASS} || self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group"
    ),
    f"priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass {WHILE_RESERVED}": (
        f"{_NO_CLASS} || self.spec.priorityClassRef.group != 'scheduling.k8s.io' || "
        "self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name"
    ),
}


class Workload(KubeObject):
    """One gang in the queue. The controller creates it for a job; `kubectl describe` shows why the job waits."""

    model_config = rules(*workload_rules(_SAME_CLASS))
    spec: WorkloadSpec | None = None
    """The gang's requests."""
    status: WorkloadStatus | None = None
    """The quota and the progress of the workload."""
