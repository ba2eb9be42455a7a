"""ClusterQueue in v1beta1, with the legacy recipe form that published manifests still use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import CheckName, KubeObject, ObjectName, ResourceName, Time
from gangline.api.schema.json_schema import LIST_SET, ApiModel, Cel, list_map, rules
from gangline.api.schema.v1beta1 import config
from gangline.api.schema.v1beta2 import clusterqueue as v1beta2


class V1Beta1ResourceGroup(ApiModel):
    """Resources that a pod set gets from the same flavor, and the flavors in the order they are tried."""

    model_config = rules(
        Cel(
            "!has(self.coveredResources) || self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
        )
    )
    covered_resources: Annotated[list[ResourceName], Field(min_length=1, max_length=v1beta2.MAX_PER_GROUP)] | None = (
        None
    )
    """The resources of this group. Left out (legacy manifests): the resources that its flavors list."""
    flavors: Annotated[
        list[v1beta2.FlavorQuotas], Field(min_length=1, max_length=v1beta2.MAX_PER_GROUP), list_map("name")
    ]
    """The flavors that provide them, first choice first. A flavor is in one group only."""


class ReclaimOutOfCohort(ApiModel):
    """Legacy form of preemption within the queue, found in published manifests."""

    enable: bool = False
    """True: a workload may preempt workloads of lower priority in this queue."""
    reclaim_more_than_nominal_quota: bool = False
    """Has no effect: a workload never gets more than nominal quota without a cohort."""


class V1Beta1Preemption(v1beta2.Preemption):
    """The running workloads that may be preempted."""

    reclaim_out_of_cohort: ReclaimOutOfCohort | None = None
    """Legacy. Use withinClusterQueue: LowerPriority."""


class V1Beta1FlavorFungibility(v1beta2.FlavorFungibility):
    """When to try the next flavor instead of taking the present one."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor", "Borrow"] = "MayStopSearch"  # pyright: ignore[reportIncompatibleVariableOverride]
    """A workload fits this flavor only by borrowing: MayStopSearch (formerly Borrow) takes it, TryNextFlavor looks
    further first."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor", "Preempt"] = "TryNextFlavor"  # pyright: ignore[reportIncompatibleVariableOverride]
    """A workload fits this flavor only by preempting: MayStopSearch (formerly Preempt) takes it, TryNextFlavor looks
    further first."""


class V1Beta1ClusterQueueSpec(v1beta2.ClusterQueueSpecBase):
    """The queue's quota and the rules for it."""

    model_config = rules(
        Cel(
            "has(self.cohort) || !has(self.resourceGroups) || self.resourceGroups.all(g, "
            "g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
            "borrowingLimit must be nil when cohort is empty",
        )
    )
    resource_groups: Annotated[list[V1Beta1ResourceGroup], Field(max_length=v1beta2.MAX_GROUPS)] | None = None
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


class V1Beta1ClusterQueueStatus(v1beta2.ClusterQueueStatus):
    """The queue's present usage."""

    fair_sharing: config.V1Beta1FairSharingStatus | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
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
