"""What people call Kueue's features, and what each does in Gangline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scripts.reference.compatibility.fields import WORKS, Support, differs, works


@dataclass(frozen=True, slots=True)
class Feature:
    """`gates`: those that switch it; `page`: where docs/ tells more of it."""

    state: Support
    gates: tuple[str, ...] = ()
    page: str = ""


_REPLACEMENT: Final = (
    "list and gates as Kueue's; jobs that Gangline runs are moved earlier, and off several nodes at once"
)

#: name -> what it does. A feature whose gate Gangline does not follow can't stand here as one that works.
FEATURES: Final[Mapping[str, Feature]] = {
    "Quota, borrowing, lending": Feature(WORKS, ("LendingLimit",), "engine.md"),
    "Cohorts in a tree": Feature(WORKS, ("HierarchicalCohorts",), "engine.md"),
    "StrictFIFO, BestEffortFIFO": Feature(WORKS, ("SchedulingEquivalenceHashing",), "engine.md"),
    "Flavor fungibility": Feature(WORKS, ("FlavorFungibility", "FlavorFungibilityPreserveScanProgress"), "engine.md"),
    "Preemption": Feature(
        WORKS, ("PrioritizePreemptorWorkloads", "PriorityBoost", "PrioritySortingWithinCohort"), "preemption.md"
    ),
    "Fair sharing": Feature(
        WORKS, ("FairSharingPreemptWithinNominal", "FairSharingPrioritizeNonBorrowing"), "preemption.md"
    ),
    "Admission fair sharing": Feature(WORKS, ("AdmissionFairSharing",), "engine.md"),
    "Partial admission": Feature(WORKS, ("PartialAdmission",)),
    "Topology-aware scheduling": Feature(
        WORKS, ("TopologyAwareScheduling", "TASProfileMixed", "TASBalancedPlacement", "TASMultiLayerTopology")
    ),
    "Replacement of failed nodes": Feature(
        differs(_REPLACEMENT),
        (
            *("TASFailedNodeReplacement", "TASFailedNodeReplacementFailFast", "TASReplaceNodeOnNodeTaints"),
            *("TASReplaceNodeOnPodTermination", "SkipReassignmentForPodOwnedWorkloads"),
        ),
        "hotswap.md",
    ),
    "Wait for pods ready": Feature(WORKS, ("DisableWaitForPodsReady",), "kueue-compatibility.md"),
    "Maximum execution time": Feature(WORKS, (), "runaway.md"),
    "Stop policies, deactivation": Feature(WORKS),
    "Admission checks": Feature(works("also those of other controllers"), (), "provisioning.md"),
    "ProvisioningRequests": Feature(WORKS, ("CleanupProvisioningRequestsOnEviction",), "provisioning.md"),
    "Admission gated by controllers": Feature(WORKS, ("AdmissionGatedBy",)),
    "Default LocalQueue, default priority class": Feature(
        WORKS, ("LocalQueueDefaulting", "WorkloadPriorityClassDefaulting")
    ),
    "Jobs without a queue, selected namespaces": Feature(
        WORKS, ("ManagedJobsNamespaceSelectorAlwaysRespected",), "kueue-compatibility.md"
    ),
    "Retention of objects": Feature(WORKS, ("ObjectRetentionPolicies",), "kueue-compatibility.md"),
    "Resource transformations": Feature(
        WORKS, ("ConfigurableResourceTransformations", "QuotaCheckStrategy"), "requests.md"
    ),
    "Devices of DRA": Feature(
        differs("all of it; a few functions in CEL selectors are missing"),
        (
            "KueueDRAIntegration",
            "KueueDRAIntegrationConsumableCapacity",
            "KueueDRAIntegrationExtendedResource",
            "KueueDRAIntegrationPartitionableDevices",
            "KueueDRARejectWorkloadsWhenDRADisabled",
        ),
        "requests.md",
    ),
    "Visibility API": Feature(WORKS, ("VisibilityOnDemand",), "kueue-compatibility.md"),
    "Reclaimable pods": Feature(WORKS, ("ReclaimablePods",)),
    "Prebuilt Workloads": Feature(WORKS, ("WorkloadIdentifierAnnotations",), "kueue-compatibility.md"),
    "Pods and pod groups": Feature(
        differs("a group starts when all its pods are there; lost pods are not replaced"),
        ("PodIntegrationValidateGroupOwner",),
        "plain-pods.md",
    ),
    "Deployments, StatefulSets, LeaderWorkerSets": Feature(
        differs(
            "a group of a LeaderWorkerSet starts whole; quota at zero replicas is free once the last pod has ended"
        ),
        ("LWSImmutableGroupSize", "WorkloadIdentifierAnnotations"),
        "serving.md",
    ),
    "Elastic jobs": Feature(
        differs("a job that grew before it started starts with what it was admitted with"),
        ("ElasticJobsViaWorkloadSlices", "ElasticJobsViaWorkloadSlicesWithTAS"),
        "elastic-jobs.md",
    ),
    "Concurrent admission": Feature(
        differs("a variant keeps its quota until the job has stopped; siblings are tried in the order of flavors"),
        ("ConcurrentAdmission",),
        "concurrent-admission.md",
    ),
    "Preemption gates": Feature(
        differs("a gated workload is set aside, so it does not hold up those behind it"),
        ("ConcurrentAdmission", "MultiKueueOrchestratedPreemption"),
        "concurrent-admission.md",
    ),
    "Failure recovery": Feature(WORKS, ("FailureRecoveryPolicy",), "kueue-compatibility.md"),
    "MultiKueue": Feature(
        differs("a workload that has its cluster looks at no other one; kubeconfigs are in Secrets that are granted"),
        (
            "MultiKueue",
            "MultiKueueManagerQuotaAutomation",
            "MultiKueueAdaptersForCustomJobs",
            "MultiKueueRemoteSpecSync",
            "MultiKueueClusterProfile",
            "MultiKueueOrchestratedPreemption",
        ),
        "multikueue.md",
    ),
    "Importer": Feature(
        differs("adopts jobs with a suspend field, pod groups, Deployments and StatefulSets, too; Kueue's adopts pods"),
        (),
        "import.md",
    ),
}
