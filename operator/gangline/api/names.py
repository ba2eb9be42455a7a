"""Names on the wire: groups, labels, annotations, conditions, reasons. One place, so that a typo is one typo."""

from __future__ import annotations

from typing import Final

GROUP: Final = "kueue.x-k8s.io"
V1BETA1: Final = f"{GROUP}/v1beta1"
V1BETA2: Final = f"{GROUP}/v1beta2"
OWN_GROUP: Final = "gangline.io"
V1ALPHA1: Final = f"{OWN_GROUP}/v1alpha1"

# labels and annotations of Kueue
QUEUE_NAME: Final = f"{GROUP}/queue-name"  # label; as annotation in older manifests
PRIORITY_CLASS: Final = f"{GROUP}/priority-class"
MAX_EXEC_TIME: Final = f"{GROUP}/max-exec-time-seconds"
PREBUILT_WORKLOAD: Final = f"{GROUP}/prebuilt-workload-name"
JOB_UID: Final = f"{GROUP}/job-uid"
PODSET: Final = f"{GROUP}/podset"
CLUSTER_QUEUE_LABEL: Final = f"{GROUP}/cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = f"{GROUP}/local-queue-name"
WORKLOAD_ANNOTATION: Final = f"{GROUP}/workload"
STOPPING: Final = f"{GROUP}/stopping"
MIN_PARALLELISM: Final = f"{GROUP}/job-min-parallelism"
COMPLETIONS_EQUAL_PARALLELISM: Final = f"{GROUP}/job-completions-equal-parallelism"
ADMISSION_GATED_BY: Final = f"{GROUP}/admission-gated-by"
PRIORITY_BOOST: Final = f"{GROUP}/priority-boost"
ALLOWED_FLAVORS: Final = f"{GROUP}/workload-allowed-resource-flavors"
IN_USE_FINALIZER: Final = f"{GROUP}/resource-in-use"

REQUIRED_TOPOLOGY: Final = f"{GROUP}/podset-required-topology"
PREFERRED_TOPOLOGY: Final = f"{GROUP}/podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY: Final = f"{GROUP}/podset-unconstrained-topology"
SLICE_REQUIRED_TOPOLOGY: Final = f"{GROUP}/podset-slice-required-topology"
SLICE_SIZE: Final = f"{GROUP}/podset-slice-size"
SLICE_CONSTRAINTS: Final = (
    f"{GROUP}/podset-slice-required-topology-constraints"  # JSON: [{topology, size}], outermost first
)
PODSET_GROUP: Final = f"{GROUP}/podset-group-name"
TAS_LABEL: Final = f"{GROUP}/tas"  # on pods that wait for their place
TOPOLOGY_GATE: Final = f"{GROUP}/topology"

# our own
GPUJOB_LABEL: Final = f"{OWN_GROUP}/gpujob"  # on child Jobs, Services and pods: the GPUJob they belong to
ROLE_LABEL: Final = f"{OWN_GROUP}/role"
ADMISSION_DIGEST: Final = f"{OWN_GROUP}/admission"  # annotation on child Jobs: the admission and attempt they run for
SIMULATED_RUNTIME: Final = f"{OWN_GROUP}/simulated-runtime"  # pod annotation, Go duration: kwok completes the pod then
SIMULATED_EXIT_CODE: Final = f"{OWN_GROUP}/simulated-exit-code"  # pod annotation: kwok fails the pod with it instead
SIMULATED_FAILURE: Final = f"{OWN_GROUP}/simulated-failure"  # node and pod annotation: dead, kwok plays nothing on it
SIMULATED_SHUTDOWN: Final = f"{OWN_GROUP}/simulated-shutdown"  # pod annotation: how long it takes to stop
SIMULATED_ARRIVAL: Final = (
    f"{OWN_GROUP}/simulated-arrival"  # job annotation, Go duration: `gangline run` submits it then
)
EXPECTED_RUNTIME: Final = f"{OWN_GROUP}/expected-runtime"  # job annotation, Go duration: what its author expects
USER: Final = f"{OWN_GROUP}/user"  # job label: who submitted it, for forecasts where namespaces are shared
EXCLUSIVE_TOPOLOGY: Final = (
    "alpha.jobset.sigs.k8s.io/exclusive-topology"  # JobSet's: each child Job alone in a domain of this node label
)
AUTOSCALED: Final = f"{OWN_GROUP}/autoscaled"  # on ResourceFlavors, "true": nodes are added when pods need them
DOMAIN_GATE: Final = f"{OWN_GROUP}/domain"  # scheduling gate of pods that wait for word of their domain
WHOLE_DOMAINS: Final = f"{OWN_GROUP}/whole-domains"  # on Workloads, JSON: {pod set: {"by": node label, "count": n}}
CHECKPOINT_INTERVAL: Final = (
    f"{OWN_GROUP}/checkpoint-interval"  # on jobs and Workloads: how often the job saves its work
)
NODE_LOSS: Final = f"{OWN_GROUP}/node-loss"  # on Workloads: "Restart" where a lost pod means that all must start anew
RECOVERY: Final = (
    f"{OWN_GROUP}/recovery"  # on Workloads, JSON: what became of it when nodes failed; see control.recovery.swaps
)
ATTEMPT: Final = f"{OWN_GROUP}/attempt"  # on pods: how often their gang was started anew before, within its admission
PROGRESS: Final = f"{OWN_GROUP}/progress"  # job or pod annotation: a sign of life, `step=120 total=5000`
PROGRESS_URL: Final = f"{OWN_GROUP}/progress-url"  # pod annotation: where gangline.progress reports to
HEARTBEAT: Final = f"{OWN_GROUP}/heartbeat"  # job annotation, Go duration: it reports at least this often
STALL: Final = f"{OWN_GROUP}/stall"  # job annotation: "none" = never taken for stalled
NOTIFY: Final = f"{OWN_GROUP}/notify"  # job annotation: "none", or the only kinds that are told of it
NOTIFY_TO: Final = f"{OWN_GROUP}/notify-to"  # job annotation: the address put into receivers that ask for one
LEFT_BEHIND: Final = f"{OWN_GROUP}/left-behind"  # on pods that can't be ended: the Workload that goes on without them
LEGACY_RECLAIM: Final = f"{OWN_GROUP}/reclaim-out-of-cohort"  # keeps v1beta1's reclaimOutOfCohort through conversion
V1BETA1_FIELDS: Final = f"{OWN_GROUP}/v1beta1-fields"  # on v1beta2 objects: what only v1beta1 can say, as JSON
V1BETA2_FIELDS: Final = f"{OWN_GROUP}/v1beta2-fields"  # on v1beta1 objects: what only v1beta2 can say, as JSON

# condition types of a Workload
QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
PODS_READY: Final = "PodsReady"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
REQUEUED: Final = "Requeued"
FINISHED: Final = "Finished"
RECOVERED: Final = "Recovered"  # ours: False while nodes are replaced under it, True when it runs again
DEACTIVATION_TARGET: Final = "DeactivationTarget"
ACTIVE: Final = "Active"
BACKFILLED: Final = "Backfilled"  # ours: it was started before one that goes first, beside whose reservation it fits
OVERRUN: Final = "Overrun"  # ours: it runs longer than forecast; the reason says how far it is
STALLED: Final = "Stalled"  # ours: it hangs; the reason is what is done about it

LOCAL_QUEUE_DEFAULT: Final = "default"
SYSTEM_NAMESPACE: Final = "gangline-system"
#: namespaces whose objects Gangline never touches
EXCLUDED_NAMESPACES: Final = ("kube-system", SYSTEM_NAMESPACE)
