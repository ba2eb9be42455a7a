"""Labels, annotations, finalizers, gates and condition types of Kueue: what each does in Gangline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scripts.reference.compatibility.fields import WORKS, Support, differs, no

_READ_FROM_CLUSTER: Final = (
    "neither written nor read, and a warning says so: sizes and names follow the RayCluster itself"
)

#: key -> what it does
KEYS: Final[Mapping[str, Support]] = {
    "kueue.x-k8s.io/admission": WORKS,
    "kueue.x-k8s.io/admission-gated-by": WORKS,
    "kueue.x-k8s.io/auto-generated": no("set by Kueue's populator, which is not part of Gangline"),
    "kueue.x-k8s.io/cluster-queue-name": WORKS,
    "kueue.x-k8s.io/component-workload-index": WORKS,
    "kueue.x-k8s.io/concurrent-admission": WORKS,
    "kueue.x-k8s.io/concurrent-admission-parent": WORKS,
    "kueue.x-k8s.io/elastic-job": WORKS,
    "kueue.x-k8s.io/is-group-workload": WORKS,
    "kueue.x-k8s.io/job-completions-equal-parallelism": WORKS,
    "kueue.x-k8s.io/job-min-parallelism": WORKS,
    "kueue.x-k8s.io/job-owner-gvk": WORKS,
    "kueue.x-k8s.io/job-owner-name": WORKS,
    "kueue.x-k8s.io/job-uid": WORKS,
    "kueue.x-k8s.io/local-queue-name": WORKS,
    "kueue.x-k8s.io/managed": WORKS,
    "kueue.x-k8s.io/manager": WORKS,
    "kueue.x-k8s.io/max-exec-time-seconds": WORKS,
    "kueue.x-k8s.io/multikueue": differs("names the check's controller; nothing closes the gate of that name"),
    "kueue.x-k8s.io/multikueue-dispatcher-all-at-once": WORKS,
    "kueue.x-k8s.io/multikueue-dispatcher-incremental": WORKS,
    "kueue.x-k8s.io/multikueue-origin": WORKS,
    "kueue.x-k8s.io/multikueue-origin-uid": WORKS,
    "kueue.x-k8s.io/multikueue-worker-workload-pod": WORKS,
    "kueue.x-k8s.io/pod-group-fast-admission": WORKS,
    "kueue.x-k8s.io/pod-group-name": WORKS,
    "kueue.x-k8s.io/pod-group-pod-index": WORKS,
    "kueue.x-k8s.io/pod-group-pod-index-label": WORKS,
    "kueue.x-k8s.io/pod-group-serving": WORKS,
    "kueue.x-k8s.io/pod-group-total-count": WORKS,
    "kueue.x-k8s.io/pod-index-offset": WORKS,
    "kueue.x-k8s.io/pod-suspending-parent": WORKS,
    "kueue.x-k8s.io/podset": WORKS,
    "kueue.x-k8s.io/podset-group-name": WORKS,
    "kueue.x-k8s.io/podset-preferred-topology": WORKS,
    "kueue.x-k8s.io/podset-required-topology": WORKS,
    "kueue.x-k8s.io/podset-slice-required-topology": WORKS,
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": WORKS,
    "kueue.x-k8s.io/podset-slice-size": WORKS,
    "kueue.x-k8s.io/podset-unconstrained-topology": WORKS,
    "kueue.x-k8s.io/prebuilt-workload-name": WORKS,
    "kueue.x-k8s.io/priority-boost": WORKS,
    "kueue.x-k8s.io/priority-class": WORKS,
    "kueue.x-k8s.io/provisioning-request": WORKS,
    "kueue.x-k8s.io/queue-name": WORKS,
    "kueue.x-k8s.io/raycluster-generation": differs(_READ_FROM_CLUSTER),
    "kueue.x-k8s.io/raycluster-podset-replica-sizes": differs(_READ_FROM_CLUSTER),
    "kueue.x-k8s.io/resource-in-use": WORKS,
    "kueue.x-k8s.io/retriable-in-group": WORKS,
    "kueue.x-k8s.io/role-hash": WORKS,
    "kueue.x-k8s.io/safe-to-forcefully-delete": WORKS,
    "kueue.x-k8s.io/stopping": WORKS,
    "kueue.x-k8s.io/tas": WORKS,
    "kueue.x-k8s.io/topology": WORKS,
    "kueue.x-k8s.io/workload": WORKS,
    "kueue.x-k8s.io/workload-allowed-resource-flavors": WORKS,
    "kueue.x-k8s.io/workload-slice-name": WORKS,
    "kueue.x-k8s.io/workload-slice-replacement-for": WORKS,
    "kueue.x-k8s.io/workloadpriorityclass": WORKS,
    "provreq.kueue.x-k8s.io/": WORKS,
}

#: kind and type of a condition -> what it does
CONDITIONS: Final[Mapping[str, Support]] = {
    "Workload QuotaReserved": WORKS,
    "Workload Admitted": WORKS,
    "Workload PodsReady": WORKS,
    "Workload Evicted": WORKS,
    "Workload Preempted": WORKS,
    "Workload Requeued": WORKS,
    "Workload Finished": WORKS,
    "Workload DeactivationTarget": differs(
        "set on copies in other clusters, and followed, also by workloads that wait; here a workload is deactivated at once"
    ),
    "Workload WaitingForReplacementPods": WORKS,
    "Workload BlockedOnPreemptionGates": WORKS,
    "ClusterQueue Active": WORKS,
    "ClusterQueue MultiKueueManagerQuotaAutomation": WORKS,
    "LocalQueue Active": WORKS,
    "AdmissionCheck Active": WORKS,
    "MultiKueueCluster Active": WORKS,
}
