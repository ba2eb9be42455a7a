"""ClusterQueue: the quota of a team, and the rules by which its jobs get it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import (
    AtomicLabelSelector,
    CheckName,
    Conditions,
    FairSharing,
    FairSharingStatus,
    Int32,
    KubeObject,
    ObjectName,
    Quantity,
    ResourceName,
    StopPolicy,
)
from gangline.api.schema.json_schema import LIST_SET, ApiModel, Cel, list_map, rules

MAX_GROUPS = 16
MAX_PER_GROUP = 64


class ResourceQuota(ApiModel):
    """The quota of one resource in one flavor."""

    name: ResourceName
    """The resource, such as cpu, memory or nvidia.com/gpu."""
    nominal_quota: Quantity
    """How much this queue owns. 0 is fine for a queue that only borrows."""
    borrowing_limit: Quantity | None = None
    """How much the queue may use above its own quota while others in the cohort leave theirs idle. Left out: no limit. Only
    with a cohort."""
    lending_limit: Quantity | None = None
    """How much of its idle quota others may borrow. Left out: all of it; 0: nothing. The queue needs a cohort for it."""


class FlavorQuotas(ApiModel):
    """The quotas of one flavor."""

    name: ObjectName
    """The ResourceFlavor."""
    resources: Annotated[list[ResourceQuota], Field(min_length=1, max_length=MAX_PER_GROUP), list_map("name")]
    """One quota per covered resource, in the order of coveredResources."""


_Covered = Annotated[list[ResourceName], Field(min_length=1, max_length=MAX_PER_GROUP)]
_Flavors = Annotated[list[FlavorQuotas], Field(min_length=1, max_length=MAX_PER_GROUP), list_map("name")]


class ResourceGroup(ApiModel):
    """Resources that a pod set gets from the same flavor, and the flavors in the order they are tried."""

    model_config = rules(
        Cel(
            "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
        )
    )
    covered_resources: _Covered
    """The resources of this group. A resource is in one group only."""
    flavors: _Flavors
    """The flavors that provide them, first choice first. A flavor is in one group only."""


ResourceGroups = Annotated[list[ResourceGroup], Field(max_length=MAX_GROUPS)]


PREFERENCE_RULE = Cel(
    "!has(self.preference) || self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor'",
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
)


class FlavorFungibility(ApiModel):
    """When to try the next flavor instead of taking the present one."""

    model_config = rules(PREFERENCE_RULE)
    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """A workload fits this flavor only by borrowing: MayStopSearch takes it, TryNextFlavor looks further first."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """A workload fits this flavor only by preempting: MayStopSearch takes it, TryNextFlavor looks further first."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which is better when no flavor does without both. Needs TryNextFlavor in both fields above."""


class BorrowWithinCohort(ApiModel):
    """Preemption by a workload that itself borrows."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """LowerPriority: a borrowing workload may preempt workloads of lower priority in other queues."""
    max_priority_threshold: Int32 | None = None
    """Only workloads of this priority or lower may be preempted that way. Left out: no such bound."""


_RECLAIM_RULE = Cel(
    "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never'",
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
)


class Preemption(ApiModel):
    """The running workloads that may be preempted."""

    model_config = rules(_RECLAIM_RULE)
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Whether workloads of other queues that borrow this queue's quota may be preempted to get it back: Never, only
    those of LowerPriority, or Any."""
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()
    """Whether a workload that has to borrow may preempt in other queues."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Whether workloads of this queue may be preempted for another of this queue: Never, only those of LowerPriority,
    or also newer ones of equal priority."""


class AdmissionCheckRule(ApiModel):
    """An admission check and the flavors it is for."""

    name: CheckName
    """The AdmissionCheck."""
    on_flavors: Annotated[list[ObjectName], Field(max_length=64), LIST_SET] | None = None
    """Only workloads that got one of these flavors need the check. Empty: all workloads do."""


class AdmissionChecksStrategy(ApiModel):
    """The admission checks between quota and start."""

    admission_checks: Annotated[list[AdmissionCheckRule], Field(min_length=1, max_length=64), list_map("name")]
    """The checks."""


class AdmissionScope(ApiModel):
    """The order of workloads of different LocalQueues."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """UsageBasedAdmissionFairSharing: LocalQueues that used less lately go first."""


class MigrationConstraints(ApiModel):
    """Bounds of a migration."""

    last_acceptable_flavor_name: ObjectName | None = None
    """Flavors after this one in the list are not worth migrating to."""


class Migration(ApiModel):
    """What happens to a running workload when a better flavor has room."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """TryPreferredFlavors: move it; RetainFirstAdmission: leave it where it started."""
    constraints: MigrationConstraints | None = None
    """Bounds of the migration."""


class ConcurrentAdmissionPolicy(ApiModel):
    """Try several flavors at a time."""

    migration: Migration
    """What happens when a better flavor opens later."""


class ClusterQueueSpecBase(ApiModel):
    """What both versions of a ClusterQueue's spec say alike."""

    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """StrictFIFO: the first in line blocks all behind it until it fits. BestEffortFIFO: those behind it that fit may
    start."""
    namespace_selector: AtomicLabelSelector | None = None
    """The namespaces whose workloads may use this queue. {} selects all namespaces; left out it selects none."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Admission checks that a workload must pass after it has got quota and before it starts."""
    stop_policy: StopPolicy = "None"
    """None: the queue works. Hold: nothing new is admitted. HoldAndDrain: running workloads are evicted too."""
    fair_sharing: FairSharing | None = None
    """How much this queue counts when its cohort shares out idle quota."""
    admission_scope: AdmissionScope | None = None
    """How workloads of different LocalQueues of this queue are ordered."""


class ClusterQueueSpec(ClusterQueueSpecBase):
    """The queue's quota and the rules for it."""

    model_config = rules(
        Cel(
            "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g, "
            "g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
            "borrowingLimit must be nil when cohort is empty",
        )
    )
    resource_groups: ResourceGroups | None = None
    """The quotas, by groups of resources that come from the same flavors."""
    cohort_name: ObjectName | None = None
    """The cohort it shares idle quota with. A Cohort object of that name is optional."""
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    """When to go on to the next flavor instead of borrowing or preempting in the one at hand."""
    preemption: Preemption = Preemption()
    """The running workloads that may be preempted."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Try several flavors at a time and move to a better one when it opens."""


class ResourceUsage(ApiModel):
    """The usage of one resource."""

    name: ResourceName
    """The resource."""
    total: Quantity | None = None
    """All that is in use, borrowed quota included."""
    borrowed: Quantity | None = None
    """The part above the queue's own quota."""


class FlavorUsage(ApiModel):
    """The usage of one flavor."""

    name: ObjectName
    """The flavor."""
    resources: Annotated[list[ResourceUsage], Field(max_length=64), list_map("name")]
    """Usage by resource."""


FlavorUsages = Annotated[list[FlavorUsage], Field(max_length=64), list_map("name")]


class ClusterQueueStatus(ApiModel):
    """The queue's present usage."""

    conditions: Conditions | None = None
    """Active: whether the queue can admit workloads, and if not, why."""
    flavors_reservation: FlavorUsages | None = None
    """Quota held by all workloads that have it reserved, started or not."""
    flavors_usage: FlavorUsages | None = None
    """Quota held by admitted workloads."""
    pending_workloads: Int32 | None = None
    """Workloads that wait."""
    reserving_workloads: Int32 | None = None
    """Workloads that hold quota, admitted or not."""
    admitted_workloads: Int32 | None = None
    """Admitted workloads that have not finished."""
    fair_sharing: FairSharingStatus | None = None
    """The queue's status in fair sharing."""


class ClusterQueue(KubeObject):
    """The quota of a team, and the rules by which its workloads get it. Users submit to it through a LocalQueue in their
    namespace.
    """

    spec: ClusterQueueSpec | None = None
    """The queue's quota and the rules for it."""
    status: ClusterQueueStatus | None = None
    """The queue's present usage."""
