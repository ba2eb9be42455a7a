"""The small configuration kinds: Cohort, ResourceFlavor, Topology, AdmissionCheck, WorkloadPriorityClass."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangline.api.schema.common import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    QUALIFIED_NAME,
    Conditions,
    FairSharing,
    FairSharingStatus,
    Int32,
    KubeObject,
    LabelValue,
    ObjectName,
    Taint,
    Toleration,
)
from gangline.api.schema.json_schema import ATOMIC_MAP, ApiModel, Cel, checked, rules
from gangline.api.schema.v1beta2.clusterqueue import ResourceGroups

HOSTNAME = "kubernetes.io/hostname"


class CohortSpec(ApiModel):
    """The parent of a cohort and its own quota."""

    parent_name: ObjectName | None = None
    """The cohort above. Left out: this one is the root of its tree. A cycle makes all its members inactive."""
    resource_groups: ResourceGroups | None = None
    """Quota that belongs to the cohort as a whole: all its members may borrow it."""
    fair_sharing: FairSharing | None = None
    """How much this cohort counts when its parent shares out idle quota."""


class CohortStatus(ApiModel):
    """The status of the cohort."""

    fair_sharing: FairSharingStatus | None = None
    """Where the cohort stands in fair sharing."""


class Cohort(KubeObject):
    """A group of ClusterQueues, and of other cohorts, that lend each other idle quota."""

    spec: CohortSpec | None = None
    """The parent of the cohort, and the cohort's own quota."""
    status: CohortStatus | None = None
    """The status of the cohort."""


_TOLERATION_RULE = Cel(
    "self.all(t, has(t.key) && t.key != '' || has(t.operator) && t.operator == 'Exists')",
    "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
)
_VALUE_RULE = Cel(
    "self.all(t, !(has(t.operator) && t.operator == 'Exists' && has(t.value)))",
    "a value must be empty when 'operator' is 'Exists'",
)
_SECONDS_RULE = Cel(
    "self.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",
    "effect must be 'NoExecute' when 'tolerationSeconds' is set",
)

Tolerations = Annotated[list[Toleration], Field(max_length=8), checked(_TOLERATION_RULE, _VALUE_RULE, _SECONDS_RULE)]


class ResourceFlavorSpec(ApiModel):
    """The nodes of the flavor."""

    model_config = rules(
        Cel(
            "!has(self.topologyName) || has(self.nodeLabels) && size(self.nodeLabels) >= 1",
            "at least one nodeLabel is required when topology is set",
        ),
        Cel(
            "!has(oldSelf.topologyName) || has(self.topologyName) && self.topologyName == oldSelf.topologyName",
            "topologyName is immutable when topologyName is set",
        ),
    )
    node_labels: Annotated[dict[str, LabelValue], Field(max_length=8), ATOMIC_MAP] | None = None
    """Labels that the nodes of this flavor carry. Pods admitted with the flavor get them as node selector."""
    node_taints: Annotated[list[Taint], Field(max_length=8)] | None = None
    """Taints that the nodes of this flavor carry. Workloads that do not tolerate them do not get the flavor."""
    tolerations: Tolerations | None = None
    """Tolerations that pods get with the flavor, and that count against its taints."""
    topology_name: ObjectName | None = None
    """The Topology of the nodes: pods are then placed node by node, close together. It can't be changed once set."""


class ResourceFlavor(KubeObject):
    """A kind of nodes, such as one GPU model or spot machines, for which quota is counted."""

    spec: ResourceFlavorSpec | None = None
    """The nodes of the flavor."""


class TopologyLevel(ApiModel):
    """One level of the hierarchy."""

    node_label: Annotated[
        str,
        Field(min_length=1, max_length=316, pattern=QUALIFIED_NAME),
    ]
    """The node label whose value says which part of this level a node is in."""


_UNIQUE_LEVELS = Cel("self.all(x, self.exists_one(y, x.nodeLabel == y.nodeLabel))", "must be unique")
_HOSTNAME_LAST = Cel(
    f"!self.exists(l, l.nodeLabel == '{HOSTNAME}') || self[size(self) - 1].nodeLabel == '{HOSTNAME}'",
    f"the {HOSTNAME} label can only be used at the lowest level of topology",
)
_LEVELS_MUTABLE = Cel(
    f"self == oldSelf || [self, oldSelf].all(levels, levels[size(levels) - 1].nodeLabel == '{HOSTNAME}')",
    f"levels are mutable only when {HOSTNAME} is the lowest level both before and after the change",
)
LEVEL_RULES = (_UNIQUE_LEVELS, _HOSTNAME_LAST)
Levels = Annotated[list[TopologyLevel], Field(min_length=1, max_length=16)]


class TopologySpec(ApiModel):
    """The hierarchy."""

    levels: Annotated[Levels, checked(*LEVEL_RULES, _LEVELS_MUTABLE)]
    """The levels, from the widest (a block) to the narrowest (a rack, a node)."""


class Topology(KubeObject):
    """The hierarchy of nodes, from large domains to small ones, by which gangs are placed close together."""

    spec: TopologySpec | None = None
    """The hierarchy."""


class AdmissionCheckParameters(ApiModel):
    """An object with parameters for the controller."""

    api_group: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    """The API group of the parameters."""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$")]
    """The kind of the parameters."""
    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """The name of the parameters."""


class AdmissionCheckSpecBase(ApiModel):
    """What both versions of an AdmissionCheck's spec say alike."""

    controller_name: Annotated[
        str, Field(min_length=1, max_length=253), checked(Cel("self == oldSelf", "field is immutable"))
    ]
    """The controller that answers this check, such as kueue.x-k8s.io/provisioning-request. It can't be changed."""
    parameters: AdmissionCheckParameters | None = None
    """An object with parameters for the controller."""


class AdmissionCheckSpec(AdmissionCheckSpecBase):
    """The controller of the check."""


class AdmissionCheckStatus(ApiModel):
    """Whether the controller handles the check."""

    conditions: Conditions | None = None
    """Active: whether a controller answers this check."""


class AdmissionCheck(KubeObject):
    """A condition that a controller must confirm before a workload with quota starts."""

    spec: AdmissionCheckSpec | None = None
    """The controller of the check."""
    status: AdmissionCheckStatus | None = None
    """Whether the controller handles the check."""


class WorkloadPriorityClass(KubeObject):
    """A named priority for workloads. It decides the order of admission and preemption, not the scheduling of pods. A job names
    it in the label kueue.x-k8s.io/priority-class.
    """

    value: Int32
    """The priority; higher goes first."""
    description: Annotated[str, Field(max_length=2048)] | None = None
    """When to use this class."""
