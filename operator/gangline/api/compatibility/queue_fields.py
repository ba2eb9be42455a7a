"""Fields of the kinds that make a queue: what each does in Gangline.

A row for each field of the CRD, by its path: `[]` stands for the items of a list. Where v1beta1 has it under the same path, too,
the row holds for both versions. The conditions' own fields have no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api.compatibility.states import WORKS, Fields, differs, works

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
