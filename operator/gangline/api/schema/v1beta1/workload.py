"""Workload in v1beta1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import Int32, KubeObject, LabelKey, ObjectName, PositiveInt32
from gangline.api.schema.json_schema import ApiModel, Cel, list_map, rules
from gangline.api.schema.v1beta2 import workload as v1beta2


class V1Beta1PodSetTopologyRequest(v1beta2.TopologyRequestBase):
    """The placement of the pods relative to each other."""


class V1Beta1PodSet(v1beta2.PodSetBase):
    """Equal pods."""

    model_config = rules(v1beta2.MIN_COUNT_RULE)
    topology_request: V1Beta1PodSetTopologyRequest | None = None
    """The placement of the pods relative to each other."""


class V1Beta1WorkloadSpec(v1beta2.WorkloadSpecBase):
    """The gang's requests."""

    model_config = rules(
        Cel(
            "!has(self.priorityClassName) || has(self.priority)",
            "priority should not be nil when priorityClassName is set",
        )
    )
    pod_sets: Annotated[list[V1Beta1PodSet], Field(min_length=1, max_length=v1beta2.MAX_POD_SETS), list_map("name")]
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


class V1Beta1PodSetAssignment(v1beta2.PodSetAssignmentBase):
    """The assignment of one pod set."""

    topology_assignment: V1Beta1TopologyAssignment | None = None
    """The topology domains of the pods, if the flavor has a topology."""


class V1Beta1Admission(ApiModel):
    """The quota of a workload."""

    cluster_queue: ObjectName
    """The ClusterQueue that gave it."""
    pod_set_assignments: Annotated[
        list[V1Beta1PodSetAssignment], Field(max_length=v1beta2.MAX_POD_SETS), list_map("name")
    ]
    """What each pod set got."""


class V1Beta1WorkloadStatus(v1beta2.WorkloadStatusBase):
    """The quota of a workload and its progress."""

    model_config = rules(*v1beta2.CLUSTER_NAME_RULES)
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
    f"priorityClassSource is immutable {v1beta2.WHILE_RESERVED}": f"{_SOURCE} == {_OLD_SOURCE}",
    f"priorityClassName is immutable {v1beta2.WHILE_RESERVED} and priorityClassSource is not equal to "
    "kueue.x-k8s.io/workloadpriorityclass": (
        "has(self.spec.priorityClassName) == has(oldSelf.spec.priorityClassName) && "
        "(!has(self.spec.priorityClassName) || self.spec.priorityClassName == oldSelf.spec.priorityClassName || "
        f"{_SOURCE} == 'kueue.x-k8s.io/workloadpriorityclass')"
    ),
}


class V1Beta1Workload(KubeObject):
    """One gang in the queue. The controller creates it for a job; `kubectl describe` shows why the job waits."""

    model_config = rules(*v1beta2.workload_rules(_SAME_CLASS))
    spec: V1Beta1WorkloadSpec | None = None
    """The gang's requests."""
    status: V1Beta1WorkloadStatus | None = None
    """The quota and the progress of the workload."""
