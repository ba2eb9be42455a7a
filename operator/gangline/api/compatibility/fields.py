"""Fields of all kinds of Kueue, and which of an object's fields have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

# --- what a part of Kueue's API does in Gangline ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Support:
    """What a part of Kueue's API does here: `does` is as in Kueue, otherwise, or nothing. `words` say how it differs, or what
    holds without it.
    """

    does: Literal["works", "differs", "no"]
    words: str = ""


def works(words: str) -> Support:
    """The state of what works as in Kueue; the words say what that is where it may surprise."""
    return Support("works", words)


def differs(words: str) -> Support:
    """The state of what has another effect than in Kueue, or another place; the words say which."""
    return Support("differs", words)


def no(words: str) -> Support:
    """The state of what has no effect; the words say what holds instead."""
    return Support("no", words)


#: as in Kueue
WORKS: Final = Support("works")

#: path of a field -> what it does
Fields: TypeAlias = Mapping[str, Support]


# --- fields of all other kinds of Kueue: what each does in Gangline ---------------------------------------------------
#
# A row for each field of the CRD, by its path: `[]` stands for the items of a list. Where v1beta1 has it under the same path,
# too, the row holds for both versions. The conditions' own fields have no rows.


OTHERS: Final[Mapping[str, Fields]] = {
    "AdmissionCheck": {
        "spec": WORKS,
        "spec.controllerName": WORKS,
        "spec.parameters": WORKS,
        "spec.parameters.apiGroup": WORKS,
        "spec.parameters.kind": WORKS,
        "spec.parameters.name": WORKS,
        "status": WORKS,
        "status.conditions": WORKS,
        # v1beta1 only
        "spec.retryDelayMinutes": works("kept; it decides nothing, as in Kueue"),
    },
    "MultiKueueCluster": {
        "spec": WORKS,
        "spec.clusterSource": WORKS,
        "spec.clusterSource.clusterProfileRef": WORKS,
        "spec.clusterSource.clusterProfileRef.name": WORKS,
        "spec.clusterSource.kubeConfig": WORKS,
        "spec.clusterSource.kubeConfig.location": WORKS,
        "spec.clusterSource.kubeConfig.locationType": WORKS,
        "status": WORKS,
        "status.conditions": WORKS,
        # v1beta1 only
        "spec.clusterProfileRef": WORKS,
        "spec.clusterProfileRef.name": WORKS,
        "spec.kubeConfig": WORKS,
        "spec.kubeConfig.location": WORKS,
        "spec.kubeConfig.locationType": WORKS,
    },
    "MultiKueueConfig": {
        "spec": WORKS,
        "spec.clusters": WORKS,
        "spec.quotaManagement": differs("a cluster that was lost counts until workerLostTimeout"),
    },
    "ProvisioningRequestConfig": {
        "spec": WORKS,
        "spec.managedResources": WORKS,
        "spec.parameters": WORKS,
        "spec.podSetMergePolicy": WORKS,
        "spec.podSetUpdates": WORKS,
        "spec.podSetUpdates.nodeSelector": WORKS,
        "spec.podSetUpdates.nodeSelector[].key": WORKS,
        "spec.podSetUpdates.nodeSelector[].valueFromProvisioningClassDetail": WORKS,
        "spec.provisioningClassName": WORKS,
        "spec.retryStrategy": WORKS,
        "spec.retryStrategy.backoffBaseSeconds": WORKS,
        "spec.retryStrategy.backoffLimitCount": WORKS,
        "spec.retryStrategy.backoffMaxSeconds": WORKS,
    },
    "ResourceFlavor": {
        "spec": WORKS,
        "spec.nodeLabels": WORKS,
        "spec.nodeTaints": WORKS,
        "spec.nodeTaints[].effect": WORKS,
        "spec.nodeTaints[].key": WORKS,
        "spec.nodeTaints[].timeAdded": works("kept; it decides nothing, as in Kueue"),
        "spec.nodeTaints[].value": WORKS,
        "spec.tolerations": WORKS,
        "spec.tolerations[].effect": WORKS,
        "spec.tolerations[].key": WORKS,
        "spec.tolerations[].operator": WORKS,
        "spec.tolerations[].tolerationSeconds": WORKS,
        "spec.tolerations[].value": WORKS,
        "spec.topologyName": WORKS,
    },
    "Topology": {
        "spec": WORKS,
        "spec.levels": WORKS,
        "spec.levels[].nodeLabel": WORKS,
    },
    "WorkloadPriorityClass": {
        "description": WORKS,
        "value": WORKS,
    },
}


# --- fields of the kinds that make a queue: what each does in Gangline ------------------------------------------------
#
# A row for each field of the CRD, by its path: `[]` stands for the items of a list. Where v1beta1 has it under the same path,
# too, the row holds for both versions. The conditions' own fields have no rows.


#: a field of v1beta1 that Kueue wrote up to 0.14
_NEVER_WRITTEN: Final = works("never written, as in Kueue from 0.15 on: read the ResourceFlavors of the ClusterQueue")

QUEUES: Final[Mapping[str, Fields]] = {
    "ClusterQueue": {
        "spec": WORKS,
        "spec.admissionChecksStrategy": WORKS,
        "spec.admissionChecksStrategy.admissionChecks": WORKS,
        "spec.admissionChecksStrategy.admissionChecks[].name": WORKS,
        "spec.admissionChecksStrategy.admissionChecks[].onFlavors": WORKS,
        "spec.admissionScope": WORKS,
        "spec.admissionScope.admissionMode": WORKS,
        "spec.cohortName": WORKS,
        "spec.concurrentAdmissionPolicy": WORKS,
        "spec.concurrentAdmissionPolicy.migration": WORKS,
        "spec.concurrentAdmissionPolicy.migration.constraints": WORKS,
        "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName": WORKS,
        "spec.concurrentAdmissionPolicy.migration.mode": WORKS,
        "spec.fairSharing": WORKS,
        "spec.fairSharing.weight": WORKS,
        "spec.flavorFungibility": WORKS,
        "spec.flavorFungibility.preference": WORKS,
        "spec.flavorFungibility.whenCanBorrow": WORKS,
        "spec.flavorFungibility.whenCanPreempt": WORKS,
        "spec.namespaceSelector": WORKS,
        "spec.namespaceSelector.matchExpressions": WORKS,
        "spec.namespaceSelector.matchExpressions[].key": WORKS,
        "spec.namespaceSelector.matchExpressions[].operator": WORKS,
        "spec.namespaceSelector.matchExpressions[].values": WORKS,
        "spec.namespaceSelector.matchLabels": WORKS,
        "spec.preemption": WORKS,
        "spec.preemption.borrowWithinCohort": WORKS,
        "spec.preemption.borrowWithinCohort.maxPriorityThreshold": WORKS,
        "spec.preemption.borrowWithinCohort.policy": WORKS,
        "spec.preemption.reclaimWithinCohort": WORKS,
        "spec.preemption.withinClusterQueue": WORKS,
        "spec.queueingStrategy": WORKS,
        "spec.resourceGroups": WORKS,
        "spec.resourceGroups[].coveredResources": WORKS,
        "spec.resourceGroups[].flavors": WORKS,
        "spec.resourceGroups[].flavors[].name": WORKS,
        "spec.resourceGroups[].flavors[].resources": WORKS,
        "spec.resourceGroups[].flavors[].resources[].borrowingLimit": WORKS,
        "spec.resourceGroups[].flavors[].resources[].lendingLimit": WORKS,
        "spec.resourceGroups[].flavors[].resources[].name": WORKS,
        "spec.resourceGroups[].flavors[].resources[].nominalQuota": WORKS,
        "spec.stopPolicy": WORKS,
        "status": WORKS,
        "status.admittedWorkloads": WORKS,
        "status.conditions": WORKS,
        "status.fairSharing": WORKS,
        "status.fairSharing.admissionFairSharingStatus": works("never written, as in Kueue: LocalQueues have it"),
        "status.fairSharing.admissionFairSharingStatus.consumedResources": works(
            "never written, as in Kueue: LocalQueues have it"
        ),
        "status.fairSharing.admissionFairSharingStatus.lastUpdate": works(
            "never written, as in Kueue: LocalQueues have it"
        ),
        "status.fairSharing.weightedShare": WORKS,
        "status.flavorsReservation": WORKS,
        "status.flavorsReservation[].name": WORKS,
        "status.flavorsReservation[].resources": WORKS,
        "status.flavorsReservation[].resources[].borrowed": WORKS,
        "status.flavorsReservation[].resources[].name": WORKS,
        "status.flavorsReservation[].resources[].total": WORKS,
        "status.flavorsUsage": WORKS,
        "status.flavorsUsage[].name": WORKS,
        "status.flavorsUsage[].resources": WORKS,
        "status.flavorsUsage[].resources[].borrowed": WORKS,
        "status.flavorsUsage[].resources[].name": WORKS,
        "status.flavorsUsage[].resources[].total": WORKS,
        "status.pendingWorkloads": WORKS,
        "status.reservingWorkloads": WORKS,
        # v1beta1 only
        "spec.admissionChecks": works("in v1beta2 `admissionChecksStrategy`"),
        "spec.cohort": works("in v1beta2 `cohortName`"),
        "spec.preemption.reclaimOutOfCohort": differs("not in Kueue: read as the recipe means it"),
        "spec.preemption.reclaimOutOfCohort.enable": differs("not in Kueue: read as the recipe means it"),
        "spec.preemption.reclaimOutOfCohort.reclaimMoreThanNominalQuota": differs(
            "not in Kueue: read as the recipe means it"
        ),
        "status.pendingWorkloadsStatus": works("never written, as in Kueue: the visibility API took its place"),
        "status.pendingWorkloadsStatus.clusterQueuePendingWorkload": works(
            "never written, as in Kueue: the visibility API took its place"
        ),
        "status.pendingWorkloadsStatus.clusterQueuePendingWorkload[].name": works(
            "never written, as in Kueue: the visibility API took its place"
        ),
        "status.pendingWorkloadsStatus.clusterQueuePendingWorkload[].namespace": works(
            "never written, as in Kueue: the visibility API took its place"
        ),
        "status.pendingWorkloadsStatus.lastChangeTime": works(
            "never written, as in Kueue: the visibility API took its place"
        ),
    },
    "LocalQueue": {
        "spec": WORKS,
        "spec.clusterQueue": WORKS,
        "spec.fairSharing": WORKS,
        "spec.fairSharing.weight": WORKS,
        "spec.stopPolicy": WORKS,
        "status": WORKS,
        "status.admittedWorkloads": WORKS,
        "status.conditions": WORKS,
        "status.fairSharing": WORKS,
        "status.fairSharing.admissionFairSharingStatus": WORKS,
        "status.fairSharing.admissionFairSharingStatus.consumedResources": WORKS,
        "status.fairSharing.admissionFairSharingStatus.lastUpdate": WORKS,
        "status.fairSharing.weightedShare": WORKS,
        "status.flavorsReservation": WORKS,
        "status.flavorsReservation[].name": WORKS,
        "status.flavorsReservation[].resources": WORKS,
        "status.flavorsReservation[].resources[].name": WORKS,
        "status.flavorsReservation[].resources[].total": WORKS,
        "status.flavorsUsage": WORKS,
        "status.flavorsUsage[].name": WORKS,
        "status.flavorsUsage[].resources": WORKS,
        "status.flavorsUsage[].resources[].name": WORKS,
        "status.flavorsUsage[].resources[].total": WORKS,
        "status.pendingWorkloads": WORKS,
        "status.reservingWorkloads": WORKS,
        # v1beta1 only
        "status.flavorUsage": works("in v1beta2 `flavorsUsage`"),
        "status.flavorUsage[].name": WORKS,
        "status.flavorUsage[].resources": WORKS,
        "status.flavorUsage[].resources[].name": WORKS,
        "status.flavorUsage[].resources[].total": WORKS,
        "status.flavors": _NEVER_WRITTEN,
        "status.flavors[].name": _NEVER_WRITTEN,
        "status.flavors[].nodeLabels": _NEVER_WRITTEN,
        "status.flavors[].nodeTaints": _NEVER_WRITTEN,
        "status.flavors[].nodeTaints[].effect": _NEVER_WRITTEN,
        "status.flavors[].nodeTaints[].key": _NEVER_WRITTEN,
        "status.flavors[].nodeTaints[].timeAdded": _NEVER_WRITTEN,
        "status.flavors[].nodeTaints[].value": _NEVER_WRITTEN,
        "status.flavors[].resources": _NEVER_WRITTEN,
        "status.flavors[].topology": _NEVER_WRITTEN,
        "status.flavors[].topology.levels": _NEVER_WRITTEN,
        "status.flavors[].topology.name": _NEVER_WRITTEN,
    },
    "Cohort": {
        "spec": WORKS,
        "spec.fairSharing": WORKS,
        "spec.fairSharing.weight": WORKS,
        "spec.parentName": WORKS,
        "spec.resourceGroups": WORKS,
        "spec.resourceGroups[].coveredResources": WORKS,
        "spec.resourceGroups[].flavors": WORKS,
        "spec.resourceGroups[].flavors[].name": WORKS,
        "spec.resourceGroups[].flavors[].resources": WORKS,
        "spec.resourceGroups[].flavors[].resources[].borrowingLimit": WORKS,
        "spec.resourceGroups[].flavors[].resources[].lendingLimit": WORKS,
        "spec.resourceGroups[].flavors[].resources[].name": WORKS,
        "spec.resourceGroups[].flavors[].resources[].nominalQuota": WORKS,
        "status": WORKS,
        "status.fairSharing": WORKS,
        "status.fairSharing.weightedShare": WORKS,
    },
}


# --- fields of Workloads: what each does in Gangline ------------------------------------------------------------------
#
# A row for each field of the CRD, by its path: `[]` stands for the items of a list. Where v1beta1 has it under the same path,
# too, the row holds for both versions. The conditions' own fields have no rows.


WORKLOAD: Final[Mapping[str, Fields]] = {
    "Workload": {
        "spec": WORKS,
        "spec.active": WORKS,
        "spec.maximumExecutionTimeSeconds": WORKS,
        "spec.podSets": WORKS,
        "spec.podSets[].count": WORKS,
        "spec.podSets[].minCount": WORKS,
        "spec.podSets[].name": WORKS,
        "spec.podSets[].template": differs(
            "the webhook checks what decides; the schema leaves it open: nothing is pruned, `kubectl explain` ends there"
        ),
        "spec.podSets[].topologyRequest": WORKS,
        "spec.podSets[].topologyRequest.podIndexLabel": WORKS,
        "spec.podSets[].topologyRequest.podSetGroupName": WORKS,
        "spec.podSets[].topologyRequest.podSetSliceRequiredTopology": WORKS,
        "spec.podSets[].topologyRequest.podSetSliceSize": WORKS,
        "spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints": WORKS,
        "spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints[].size": WORKS,
        "spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints[].topology": WORKS,
        "spec.podSets[].topologyRequest.preferred": WORKS,
        "spec.podSets[].topologyRequest.required": WORKS,
        "spec.podSets[].topologyRequest.subGroupCount": WORKS,
        "spec.podSets[].topologyRequest.subGroupIndexLabel": WORKS,
        "spec.podSets[].topologyRequest.unconstrained": WORKS,
        "spec.preemptionGates": WORKS,
        "spec.preemptionGates[].name": WORKS,
        "spec.priority": WORKS,
        "spec.priorityClassRef": WORKS,
        "spec.priorityClassRef.group": WORKS,
        "spec.priorityClassRef.kind": WORKS,
        "spec.priorityClassRef.name": WORKS,
        "spec.queueName": WORKS,
        "status": WORKS,
        "status.accumulatedPastExecutionTimeSeconds": WORKS,
        "status.admission": WORKS,
        "status.admission.clusterQueue": WORKS,
        "status.admission.podSetAssignments": WORKS,
        "status.admission.podSetAssignments[].count": WORKS,
        "status.admission.podSetAssignments[].delayedTopologyRequest": WORKS,
        "status.admission.podSetAssignments[].flavors": WORKS,
        "status.admission.podSetAssignments[].name": WORKS,
        "status.admission.podSetAssignments[].resourceUsage": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.levels": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].domainCount": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].podCounts": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].podCounts.individual": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].podCounts.universal": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].valuesPerLevel": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].valuesPerLevel[].individual": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].valuesPerLevel[].individual.prefix": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].valuesPerLevel[].individual.roots": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].valuesPerLevel[].individual.suffix": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.slices[].valuesPerLevel[].universal": WORKS,
        "status.admissionChecks": WORKS,
        "status.admissionChecks[].lastTransitionTime": WORKS,
        "status.admissionChecks[].message": WORKS,
        "status.admissionChecks[].name": WORKS,
        "status.admissionChecks[].podSetUpdates": WORKS,
        "status.admissionChecks[].podSetUpdates[].annotations": WORKS,
        "status.admissionChecks[].podSetUpdates[].labels": WORKS,
        "status.admissionChecks[].podSetUpdates[].name": WORKS,
        "status.admissionChecks[].podSetUpdates[].nodeSelector": WORKS,
        "status.admissionChecks[].podSetUpdates[].tolerations": WORKS,
        "status.admissionChecks[].podSetUpdates[].tolerations[].effect": WORKS,
        "status.admissionChecks[].podSetUpdates[].tolerations[].key": WORKS,
        "status.admissionChecks[].podSetUpdates[].tolerations[].operator": WORKS,
        "status.admissionChecks[].podSetUpdates[].tolerations[].tolerationSeconds": WORKS,
        "status.admissionChecks[].podSetUpdates[].tolerations[].value": WORKS,
        "status.admissionChecks[].requeueAfterSeconds": WORKS,
        "status.admissionChecks[].retryCount": WORKS,
        "status.admissionChecks[].state": WORKS,
        "status.clusterName": WORKS,
        "status.conditions": WORKS,
        "status.nominatedClusterNames": WORKS,
        "status.preemptionGates": WORKS,
        "status.preemptionGates[].lastTransitionTime": WORKS,
        "status.preemptionGates[].name": WORKS,
        "status.preemptionGates[].position": WORKS,
        "status.reclaimablePods": WORKS,
        "status.reclaimablePods[].count": WORKS,
        "status.reclaimablePods[].name": WORKS,
        "status.requeueState": WORKS,
        "status.requeueState.count": WORKS,
        "status.requeueState.requeueAt": WORKS,
        "status.resourceRequests": WORKS,
        "status.resourceRequests[].name": WORKS,
        "status.resourceRequests[].resources": WORKS,
        "status.schedulingStats": WORKS,
        "status.schedulingStats.evictions": WORKS,
        "status.schedulingStats.evictions[].count": WORKS,
        "status.schedulingStats.evictions[].reason": WORKS,
        "status.schedulingStats.evictions[].underlyingCause": WORKS,
        "status.unhealthyNodes": WORKS,
        "status.unhealthyNodes[].name": WORKS,
        # v1beta1 only
        "spec.priorityClassName": works("in v1beta2 `priorityClassRef.name`"),
        "spec.priorityClassSource": works("in v1beta2 `priorityClassRef.group`"),
        "status.accumulatedPastExexcutionTimeSeconds": works("in v1beta2 `accumulatedPastExecutionTimeSeconds`"),
        "status.admission.podSetAssignments[].topologyAssignment.domains": works("in v1beta2 `slices`"),
        "status.admission.podSetAssignments[].topologyAssignment.domains[].count": WORKS,
        "status.admission.podSetAssignments[].topologyAssignment.domains[].values": WORKS,
    },
}


#: kind -> its fields
FIELDS: Final[Mapping[str, Fields]] = {**WORKLOAD, **QUEUES, **OTHERS}


def _outer(path: str) -> str:
    """The field that this one is in."""
    return path.rpartition(".")[0].removesuffix("[]")


#: kind -> fields of a spec that have no effect, the outermost alone, as the steps to them; and the words
_WITHOUT_EFFECT: Final[Mapping[str, tuple[tuple[tuple[str, ...], str], ...]]] = {
    kind: tuple(
        (tuple(path.split(".")), state.words)
        for path, state in fields.items()
        if state.does == "no" and path.startswith("spec.") and fields[_outer(path)].does != "no"
    )
    for kind, fields in FIELDS.items()
}


def without_effect(kind: str, obj: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each field that the author of the object has set and that does nothing."""
    for steps, words in _WITHOUT_EFFECT.get(kind, ()):
        if _is_set(obj, steps):
            yield f"{'.'.join(steps)} has no effect: {words}"


def _is_set(value: Any, steps: tuple[str, ...]) -> bool:
    """Whether something stands at this place, in any item of the lists on the way."""
    if not steps:
        return value not in (None, {}, [], "")
    name = steps[0].removesuffix("[]")
    inner: Any = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    if name == steps[0]:
        return _is_set(inner, steps[1:])
    return isinstance(inner, list) and any(_is_set(item, steps[1:]) for item in cast("list[Any]", inner))
