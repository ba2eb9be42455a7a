"""The events that the operator writes, as data: of which object, by which reason, and when. `docs/reference/events.md` shows it.

Reasons of Kueue's mean what they mean in Kueue. `tests/test_reference.py` compares the table with what the code records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

KUEUE: Final = "Kueue"
OURS: Final = "Gangline"
_JOB, _WORKLOAD, _POLICY, _POD = "job", "Workload", "QueuePolicy", "Pod"


class EventRow(NamedTuple):
    """An event that the operator writes. `about`: the kind of object ("job": of any job kind); `by`: whose reason it is; `when`
    completes "recorded when …".
    """

    about: str
    by: str
    when: str


#: reason -> the event; an ellipsis stands for a word that depends on the case
EVENTS: Final[Mapping[str, EventRow]] = {
    # jobs and their Workloads
    "CreatedWorkload": EventRow(_JOB, KUEUE, "its Workload is created"),
    "UpdatedWorkload": EventRow(_JOB, KUEUE, "its Workload follows a change of the job"),
    "DeletedWorkload": EventRow(_JOB, KUEUE, "its Workload is deleted, since the job does not match it any more"),
    "Started": EventRow(_JOB, KUEUE, "it is unsuspended"),
    "Stopped": EventRow(_JOB, KUEUE, "it is suspended again"),
    "FinishedWorkload": EventRow(_JOB, KUEUE, "it has finished"),
    "UpdatedAdmissionCheck": EventRow(_JOB, KUEUE, "a pending admission check says something new"),
    "WorkloadDeletedAgain": EventRow(
        _JOB, OURS, "its Workload was deleted again and again, and the next one is created later"
    ),
    "PriorityClassNotAllowed": EventRow(_JOB, OURS, "its namespace does not allow the priority that it asks for"),
    "WorkloadPriorityClassNotFound": EventRow(_JOB, KUEUE, "it names a priority class that is not there"),
    "ErrWorkloadCompose": EventRow(_JOB, KUEUE, "no Workload can be derived from it"),
    "JobNestingTooDeep": EventRow(_JOB, KUEUE, "it has more than ten owners, one above the other"),
    "PrebuiltWorkloadNotFound": EventRow(_JOB, OURS, "the Workload that it names is not there, or another job's"),
    "FieldIgnored": EventRow(_JOB, OURS, "what it asks for has no place in the object that describes its pods"),
    "FailedToStart": EventRow(_JOB, OURS, "its pods cannot get what its admission says"),
    "WriteRefused": EventRow(_JOB, OURS, "the API server refuses a write that the job needs"),
    "Deleted": EventRow("job or Workload", KUEUE, "it is deleted after its retention"),
    # admission
    "QuotaReserved": EventRow(_WORKLOAD, KUEUE, "its quota is reserved"),
    "Admitted": EventRow(_WORKLOAD, KUEUE, "it may start"),
    "AdmissionGated": EventRow(_WORKLOAD, KUEUE, "admission gates keep it from queueing"),
    "AdmissionGateCleared": EventRow(_WORKLOAD, KUEUE, "its last admission gate is removed"),
    "AdmissionCheckUpdated": EventRow(_WORKLOAD, KUEUE, "the state of an admission check changes"),
    "AdmissionCheckRejected": EventRow(_WORKLOAD, KUEUE, "an admission check rejects it"),
    "ProvisioningRequestCreated": EventRow(_WORKLOAD, KUEUE, "a ProvisioningRequest is created for it"),
    "FailedCreate": EventRow(_WORKLOAD, KUEUE, "a ProvisioningRequest cannot be created for it"),
    "ProvisioningDetailSkipped": EventRow(_WORKLOAD, OURS, "a detail of its ProvisioningRequest is no node selector"),
    "WorkloadSliceReplaced": EventRow(_WORKLOAD, KUEUE, "a slice of an elastic job is replaced by another one"),
    # waiting: the reasons of QuotaReserved=False
    "Pending": EventRow(_WORKLOAD, KUEUE, "it waits, in the words of Kueue up to 0.19"),
    "Inadmissible": EventRow(_WORKLOAD, KUEUE, "it cannot be admitted, in the words of Kueue up to 0.19"),
    "Waiting": EventRow(_WORKLOAD, KUEUE, "it waits for others, in the words of Kueue up to 0.19"),
    "PendingEvaluation": EventRow(_WORKLOAD, KUEUE, "it has not been looked at"),
    "WaitingForQuota": EventRow(_WORKLOAD, KUEUE, "others use the quota"),
    "WaitingForPreemptedWorkloads": EventRow(_WORKLOAD, KUEUE, "those that it preempts still run"),
    "WaitingForPodsReady": EventRow(_WORKLOAD, KUEUE, "an admitted gang is not ready yet"),
    "WaitingForCapacity": EventRow(_WORKLOAD, OURS, "there is quota, but no room on nodes"),
    "WaitingForArrayTasks": EventRow(_WORKLOAD, OURS, "as many tasks of its array run as may"),
    "PreemptionLimited": EventRow(_WORKLOAD, OURS, "it would preempt others beyond a limit of their queues or its own"),
    "WaitingForReservation": EventRow(_WORKLOAD, OURS, "the room is reserved for another one"),
    "ExceedsMaxQuota": EventRow(_WORKLOAD, KUEUE, "it asks for more than there can ever be"),
    "NoMatchingFlavor": EventRow(_WORKLOAD, KUEUE, "no flavor suits its pods"),
    "TopologyPlacementFailed": EventRow(_WORKLOAD, KUEUE, "its pods fit in no topology domain"),
    "Suspended": EventRow(_WORKLOAD, KUEUE, "its LocalQueue is stopped"),
    "OnHold": EventRow(_WORKLOAD, KUEUE, "it is on hold"),
    "WaitingForDependencies": EventRow(_WORKLOAD, OURS, "it waits for other jobs, which its annotation names"),
    "DependencyNeverSatisfied": EventRow(_WORKLOAD, OURS, "a job that it waits for can't become so any more"),
    "DependenciesMet": EventRow(_WORKLOAD, OURS, "jobs that it waited for are as its annotation asks"),
    "Deactivated": EventRow(_WORKLOAD, KUEUE, "it is not active"),
    "Misconfigured": EventRow(
        "any object that is read", KUEUE, "it cannot be read, or asks for what its limits do not allow"
    ),
    # the end of an admission
    "Preempted": EventRow(_WORKLOAD, KUEUE, "it gives way to another one"),
    "PreemptedWorkload": EventRow(_WORKLOAD, KUEUE, "others give way to it; further ones count as repetitions"),
    "EvictedDueToPreempted": EventRow(_WORKLOAD, KUEUE, "it is evicted since it gives way"),
    "EvictedDueTo…": EventRow(_WORKLOAD, KUEUE, "it is evicted for another reason"),
    "EvictedDueTo…DueTo…": EventRow(_WORKLOAD, KUEUE, "it is evicted, and the reason has a cause of its own"),
    "MaximumExecutionTimeExceeded": EventRow(_WORKLOAD, KUEUE, "it ran as long as it may"),
    # several flavors at a time, and other clusters
    "CreatedVariant": EventRow(_WORKLOAD, KUEUE, "a variant for one flavor is created"),
    "ActivatedVariant": EventRow(_WORKLOAD, KUEUE, "a variant is tried, since its flavor would be preferred"),
    "DeactivatedVariant": EventRow(_WORKLOAD, KUEUE, "a variant is not tried any more"),
    "DeletedVariant": EventRow(_WORKLOAD, KUEUE, "a variant is deleted"),
    "PreemptionUngatedVariant": EventRow(_WORKLOAD, KUEUE, "others may be preempted for a variant"),
    "ConcurrentAdmissionOff": EventRow("ClusterQueue", OURS, "its policy has no effect"),
    "MultiKueue": EventRow(_WORKLOAD, KUEUE, "it is admitted in another cluster, or goes back"),
    "DeprecatedPathUsage": EventRow("MultiKueueCluster", KUEUE, "its kubeconfig is a file whose path is not checked"),
    # pods that queue themselves
    "ExcessPodDeleted": EventRow(_POD, KUEUE, "its group has more pods than it says"),
    "OwnerReferencesAdded": EventRow(_WORKLOAD, KUEUE, "further pods of its group own it"),
    "WaitingForReplacementPods": EventRow(_WORKLOAD, KUEUE, "pods of its group are missing"),
    "WorkloadNameConflict": EventRow(_POD, KUEUE, "another object's Workload has the name of its group"),
    "ScaledBeyondQuota": EventRow(
        "StatefulSet, LeaderWorkerSet", OURS, "it has more pods than its Workload has quota for"
    ),
    # running
    "NodeLost": EventRow("Node", OURS, "it counts as lost"),
    "NodesLost": EventRow(_WORKLOAD, OURS, "nodes under its pods are lost"),
    "PodsUnschedulable": EventRow(_WORKLOAD, OURS, "pods of it can't be bound to the node that they were sent to"),
    "Recovered": EventRow(_WORKLOAD, OURS, "all its pods are ready again after a healing"),
    "RecoveryPaused": EventRow("ClusterQueue", OURS, "so many nodes of a flavor are lost that nothing is healed"),
    "RecoveryResumed": EventRow("ClusterQueue", OURS, "its gangs are healed again"),
    "PodKeepsItsName": EventRow(
        _WORKLOAD, OURS, "its gang waits for a pod that cannot end and whose successor has its name"
    ),
    "PodLeftBehind": EventRow(_WORKLOAD, OURS, "its gang goes on without a pod that cannot end"),
    "PodDeletedByForce": EventRow(_WORKLOAD, OURS, "a pod that cannot end is deleted without grace"),
    "SecondPassFailed": EventRow(
        _WORKLOAD, KUEUE, "nodes for its pods were looked for after its quota was reserved, in vain"
    ),
    "PodTerminatedByKueue": EventRow(
        _POD, KUEUE, "it waits for a node where it has no place any more, and is reported as failed"
    ),
    "KueueForcefullyDeleted": EventRow(_POD, KUEUE, "failure recovery reports it as failed and deletes it"),
    "ClaimRefused": EventRow(
        _POD, OURS, "the API server refuses the claim for its cards, without which it is not started"
    ),
    "PodsRefused": EventRow("job and Workload", OURS, "the API server refuses its pods"),
    "Stalled": EventRow(_WORKLOAD, OURS, "it makes no progress"),
    "IdleGPUs": EventRow(_WORKLOAD, OURS, "it does not use its GPUs"),
    "Overdue": EventRow(_WORKLOAD, OURS, "it runs far longer than was forecast"),
    "RanPastForecast": EventRow(_WORKLOAD, OURS, "it runs longer than was forecast"),
    "SaveBy": EventRow(
        _WORKLOAD,
        OURS,
        "a Reservation keeps its nodes for others soon, or its quota falls: it should save its work by then",
    ),
    "StartMoved": EventRow(_WORKLOAD, OURS, "its expected start moves"),
    "NotificationLimited": EventRow(
        _WORKLOAD, OURS, "its job's own address is not permitted, or its namespace has reached a bound of notifications"
    ),
    # policies
    "ForecastModelInUse": EventRow(_POLICY, OURS, "forecasts come from the trained model"),
    "ForecastModelOff": EventRow(_POLICY, OURS, "forecasts are too wrong to be used"),
    "BudgetUsed": EventRow(
        "QueuePolicy, Workload", OURS, "80 % of a budget, or all of it, is used; a workload does not start for it"
    ),
    "TelemetryUnavailable": EventRow(_POLICY, OURS, "the query of a telemetry rule is not answered"),
    "NotificationFailed": EventRow(_POLICY, OURS, "a notification cannot be delivered"),
}
