"""`kueue.x-k8s.io/v1beta1`: still served, deprecated. Only what differs from v1beta2 is written here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema import common
from gangline.api.schema.common import (
    CheckName,
    Int32,
    Int64,
    KubeObject,
    LabelKey,
    LabelValue,
    ObjectName,
    PositiveInt32,
    Quantity,
    ResourceName,
    Taint,
    Time,
)
from gangline.api.schema.json_schema import ATOMIC_MAP, LIST_SET, ApiModel, Cel, checked, list_map, rules
from gangline.api.schema.v1beta2 import clusterqueue, config, localqueue, multikueue, workload

# --- AdmissionCheck and Topology in v1beta1; the other configuration kinds are the same in both versions --------------


class V1Beta1AdmissionCheckSpec(config.AdmissionCheckSpecBase):
    """The controller of the check."""

    retry_delay_minutes: Int64 = 15
    """Has no effect."""


class V1Beta1AdmissionCheck(KubeObject):
    """A condition that a controller must confirm before a workload with quota starts."""

    spec: V1Beta1AdmissionCheckSpec | None = None
    """The controller of the check."""
    status: config.AdmissionCheckStatus | None = None
    """Whether the controller handles the check."""


class V1Beta1AdmissionFairSharingStatus(ApiModel):
    """Usage over time."""

    consumed_resources: dict[str, Quantity]
    """What was used, older use counting less and less."""
    last_update: Time
    """The time at which the usage was last computed."""


class V1Beta1FairSharingStatus(common.FairSharingStatus):
    """The member's status in fair sharing."""

    admission_fair_sharing_status: V1Beta1AdmissionFairSharingStatus | None = None
    """This is not filled in: usage over time is that of LocalQueues."""


class V1Beta1TopologySpec(ApiModel):
    """The hierarchy."""

    levels: Annotated[config.Levels, checked(*config.LEVEL_RULES, Cel("self == oldSelf", "field is immutable"))]
    """The levels, from the widest (a block) to the narrowest (a rack, a node). They can't be changed."""


class V1Beta1Topology(KubeObject):
    """The hierarchy of nodes, from large domains to small ones, by which gangs are placed close together."""

    spec: V1Beta1TopologySpec | None = None
    """The hierarchy."""


# --- ClusterQueue in v1beta1, with the legacy recipe form that published manifests still use --------------------------


class V1Beta1ResourceGroup(ApiModel):
    """Resources that a pod set gets from the same flavor, and the flavors in the order they are tried."""

    model_config = rules(
        Cel(
            "!has(self.coveredResources) || self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
        )
    )
    covered_resources: (
        Annotated[list[ResourceName], Field(min_length=1, max_length=clusterqueue.MAX_PER_GROUP)] | None
    ) = None
    """The resources of this group. Left out (legacy manifests): the resources that its flavors list."""
    flavors: Annotated[
        list[clusterqueue.FlavorQuotas], Field(min_length=1, max_length=clusterqueue.MAX_PER_GROUP), list_map("name")
    ]
    """The flavors that provide them, first choice first. A flavor is in one group only."""


class ReclaimOutOfCohort(ApiModel):
    """Legacy form of preemption within the queue, found in published manifests."""

    enable: bool = False
    """True: a workload may preempt workloads of lower priority in this queue."""
    reclaim_more_than_nominal_quota: bool = False
    """Has no effect: a workload never gets more than nominal quota without a cohort."""


class V1Beta1Preemption(clusterqueue.Preemption):
    """The running workloads that may be preempted."""

    reclaim_out_of_cohort: ReclaimOutOfCohort | None = None
    """Legacy. Use withinClusterQueue: LowerPriority."""


class V1Beta1FlavorFungibility(clusterqueue.FlavorFungibility):
    """When to try the next flavor instead of taking the present one."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor", "Borrow"] = "MayStopSearch"  # pyright: ignore[reportIncompatibleVariableOverride]
    """A workload fits this flavor only by borrowing: MayStopSearch (formerly Borrow) takes it, TryNextFlavor looks
    further first."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor", "Preempt"] = "TryNextFlavor"  # pyright: ignore[reportIncompatibleVariableOverride]
    """A workload fits this flavor only by preempting: MayStopSearch (formerly Preempt) takes it, TryNextFlavor looks
    further first."""


class V1Beta1ClusterQueueSpec(clusterqueue.ClusterQueueSpecBase):
    """The queue's quota and the rules for it."""

    model_config = rules(
        Cel(
            "has(self.cohort) || !has(self.resourceGroups) || self.resourceGroups.all(g, "
            "g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
            "borrowingLimit must be nil when cohort is empty",
        )
    )
    resource_groups: Annotated[list[V1Beta1ResourceGroup], Field(max_length=clusterqueue.MAX_GROUPS)] | None = None
    """The quotas, by groups of resources that come from the same flavors."""
    cohort: ObjectName | None = None
    """The cohort it shares idle quota with."""
    flavor_fungibility: V1Beta1FlavorFungibility = V1Beta1FlavorFungibility()
    """When to go on to the next flavor instead of borrowing or preempting in the one at hand."""
    preemption: V1Beta1Preemption = V1Beta1Preemption()
    """The running workloads that may be preempted."""
    admission_checks: Annotated[list[CheckName], Field(max_length=64), LIST_SET] | None = None
    """Admission checks for all flavors. Use admissionChecksStrategy, which can also bind them to flavors."""


class PendingWorkload(ApiModel):
    """A waiting workload."""

    name: str
    """The name of the workload."""
    namespace: str
    """The namespace of the workload."""


class PendingWorkloadsStatus(ApiModel):
    """The first waiting workloads. No longer filled in."""

    cluster_queue_pending_workload: Annotated[list[PendingWorkload], Field(max_length=4000)] | None = None
    """The first in line."""
    last_change_time: Time
    """The time of the last change."""


class V1Beta1ClusterQueueStatus(clusterqueue.ClusterQueueStatus):
    """The queue's present usage."""

    fair_sharing: V1Beta1FairSharingStatus | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    """The queue's status in fair sharing."""
    pending_workloads_status: PendingWorkloadsStatus | None = None
    """No longer filled in: ask the visibility API or `gangline queue`."""


class V1Beta1ClusterQueue(KubeObject):
    """The quota of a team, and the rules by which its workloads get it. Users submit to it through a LocalQueue in their
    namespace.
    """

    spec: V1Beta1ClusterQueueSpec | None = None
    """The queue's quota and the rules for it."""
    status: V1Beta1ClusterQueueStatus | None = None
    """The queue's present usage."""


# --- LocalQueue in v1beta1 --------------------------------------------------------------------------------------------


class TopologyInfo(ApiModel):
    """A topology."""

    name: ObjectName
    """The name of the topology."""
    levels: Annotated[list[LabelKey], Field(min_length=1, max_length=16)]
    """The levels of the topology, as node labels."""


class FlavorInfo(ApiModel):
    """A flavor that the ClusterQueue has."""

    name: ObjectName
    """The name of the flavor."""
    resources: Annotated[list[ResourceName], Field(max_length=64), LIST_SET] | None = None
    """The resources that the flavor provides."""
    node_labels: Annotated[dict[str, LabelValue], Field(max_length=8), ATOMIC_MAP] | None = None
    """The node labels of the flavor."""
    node_taints: Annotated[list[Taint], Field(max_length=8)] | None = None
    """The taints of the flavor."""
    topology: TopologyInfo | None = None
    """The topology of the flavor."""


class V1Beta1LocalQueueStatus(localqueue.LocalQueueStatusBase):
    """The present usage of the queue's workloads."""

    flavor_usage: localqueue.LocalQueueUsages | None = None
    """Quota held by admitted workloads."""
    flavors: Annotated[list[FlavorInfo], Field(max_length=64), list_map("name")] | None = None
    """No longer filled in."""


class V1Beta1LocalQueue(KubeObject):
    """A namespace's access to a ClusterQueue. A job names it in the label kueue.x-k8s.io/queue-name."""

    spec: localqueue.LocalQueueSpec | None = None
    """The ClusterQueue of the LocalQueue, and settings."""
    status: V1Beta1LocalQueueStatus | None = None
    """The present usage of the queue's workloads."""


# --- MultiKueueConfig and MultiKueueCluster in v1beta1 ----------------------------------------------------------------


class V1Beta1MultiKueueConfigSpec(ApiModel):
    """The clusters."""

    clusters: Annotated[list[str], Field(min_length=1, max_length=multikueue.MAX_CLUSTERS), LIST_SET]
    """The MultiKueueClusters among which workloads are distributed."""


class V1Beta1MultiKueueConfig(KubeObject):
    """Clusters among which the workloads of a ClusterQueue are distributed."""

    spec: V1Beta1MultiKueueConfigSpec | None = None
    """The clusters."""


class V1Beta1KubeConfig(ApiModel):
    """A kubeconfig and where it is kept."""

    location: str
    """The name of a Secret with the key `kubeconfig` in the operator's namespace, or a path. Empty with a
    ClusterProfile."""
    location_type: Literal["Secret", "Path"] = "Secret"
    """The kind of place that `location` names."""


class V1Beta1MultiKueueClusterSpec(ApiModel):
    """The way to the cluster."""

    kube_config: V1Beta1KubeConfig
    """A kubeconfig and where it is kept."""
    cluster_profile_ref: multikueue.ClusterProfileReference | None = None
    """A ClusterProfile, which says how the cluster is reached (gate `MultiKueueClusterProfile`)."""


class V1Beta1MultiKueueCluster(KubeObject):
    """A cluster that workloads may be sent to."""

    spec: V1Beta1MultiKueueClusterSpec | None = None
    """The way to the cluster."""
    status: multikueue.MultiKueueClusterStatus | None = None
    """Whether the cluster can be reached."""


# --- workload in v1beta1 ----------------------------------------------------------------------------------------------


class V1Beta1PodSetTopologyRequest(workload.TopologyRequestBase):
    """The placement of the pods relative to each other."""


class V1Beta1PodSet(workload.PodSetBase):
    """Equal pods."""

    model_config = rules(workload.MIN_COUNT_RULE)
    topology_request: V1Beta1PodSetTopologyRequest | None = None
    """The placement of the pods relative to each other."""


class V1Beta1WorkloadSpec(workload.WorkloadSpecBase):
    """The gang's requests."""

    model_config = rules(
        Cel(
            "!has(self.priorityClassName) || has(self.priority)",
            "priority should not be nil when priorityClassName is set",
        )
    )
    pod_sets: Annotated[list[V1Beta1PodSet], Field(min_length=1, max_length=workload.MAX_POD_SETS), list_map("name")]
    """The pods, by groups that are alike. All get quota at the same time, or none."""
    priority_class_name: ObjectName | None = None
    """The class of the priority."""
    priority_class_source: (
        Literal["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""] | None
    ) = None
    """The kind of the priority class."""


class TopologyDomain(ApiModel):
    """Pods in one domain."""

    values: Annotated[list[Annotated[str, Field(max_length=63)]], Field(min_length=1, max_length=16)]
    """The values of the levels' node labels."""
    count: PositiveInt32
    """How many pods."""


class V1Beta1TopologyAssignment(ApiModel):
    """The topology domains of the pods."""

    levels: Annotated[list[LabelKey], Field(min_length=1, max_length=16)]
    """The node labels that name a domain, widest first; the hostname alone where that is the narrowest."""
    domains: Annotated[list[TopologyDomain], Field(max_length=100_000)]
    """The domains."""


class V1Beta1PodSetAssignment(workload.PodSetAssignmentBase):
    """The assignment of one pod set."""

    topology_assignment: V1Beta1TopologyAssignment | None = None
    """The topology domains of the pods, if the flavor has a topology."""


class V1Beta1Admission(ApiModel):
    """The quota of a workload."""

    cluster_queue: ObjectName
    """The ClusterQueue that gave it."""
    pod_set_assignments: Annotated[
        list[V1Beta1PodSetAssignment], Field(max_length=workload.MAX_POD_SETS), list_map("name")
    ]
    """What each pod set got."""


class V1Beta1WorkloadStatus(workload.WorkloadStatusBase):
    """The quota of a workload and its progress."""

    model_config = rules(*workload.CLUSTER_NAME_RULES)
    admission: V1Beta1Admission | None = None
    """The quota it holds. Absent while it waits."""
    accumulated_past_execution_time_seconds: Annotated[
        Int32 | None, Field(alias="accumulatedPastExexcutionTimeSeconds")
    ] = None
    """The total time for which the workload was admitted before its last eviction. (Misspelt in this version.)"""


_SOURCE, _OLD_SOURCE = (
    f"(has({side}.spec.priorityClassSource) ? {side}.spec.priorityClassSource : '')" for side in ("self", "oldSelf")
)
_SAME_CLASS = {
    f"priorityClassSource is immutable {workload.WHILE_RESERVED}": f"{_SOURCE} == {_OLD_SOURCE}",
    f"priorityClassName is immutable {workload.WHILE_RESERVED} and priorityClassSource is not equal to "
    "kueue.x-k8s.io/workloadpriorityclass": (
        "has(self.spec.priorityClassName) == has(oldSelf.spec.priorityClassName) && "
        "(!has(self.spec.priorityClassName) || self.spec.priorityClassName == oldSelf.spec.priorityClassName || "
        f"{_SOURCE} == 'kueue.x-k8s.io/workloadpriorityclass')"
    ),
}


class V1Beta1Workload(KubeObject):
    """One gang in the queue. The controller creates it for a job; `kubectl describe` shows why the job waits."""

    model_config = rules(*workload.workload_rules(_SAME_CLASS))
    spec: V1Beta1WorkloadSpec | None = None
    """The gang's requests."""
    status: V1Beta1WorkloadStatus | None = None
    """The quota and the progress of the workload."""
