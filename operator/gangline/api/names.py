"""Names in the API: groups, labels, annotations, conditions, reasons."""

from __future__ import annotations

from typing import Final

GROUP: Final = "kueue.x-k8s.io"
V1BETA1: Final = f"{GROUP}/v1beta1"
V1BETA2: Final = f"{GROUP}/v1beta2"
OWN_GROUP: Final = "gangline.io"
V1ALPHA1: Final = f"{OWN_GROUP}/v1alpha1"

# labels and annotations of Kueue
#: label on jobs: their LocalQueue; in older manifests an annotation
QUEUE_NAME: Final = f"{GROUP}/queue-name"
#: label on jobs: a WorkloadPriorityClass
PRIORITY_CLASS: Final = f"{GROUP}/priority-class"
#: label on jobs, seconds: they are stopped for good after this runtime
MAX_EXEC_TIME: Final = f"{GROUP}/max-exec-time-seconds"
#: label or annotation on jobs: the name of a Workload that exists already
PREBUILT_WORKLOAD: Final = f"{GROUP}/prebuilt-workload-name"
#: label on Workloads: the UID of their job
JOB_UID: Final = f"{GROUP}/job-uid"
#: label on pods: the pod set they belong to
PODSET: Final = f"{GROUP}/podset"
#: label on pods: the ClusterQueue that admitted them
CLUSTER_QUEUE_LABEL: Final = f"{GROUP}/cluster-queue-name"
#: label on pods: their LocalQueue
LOCAL_QUEUE_LABEL: Final = f"{GROUP}/local-queue-name"
#: annotation on pods: their Workload
WORKLOAD_ANNOTATION: Final = f"{GROUP}/workload"
#: annotation on Jobs: set while the job is being stopped
STOPPING: Final = f"{GROUP}/stopping"
#: annotation on Jobs: the job may start with fewer pods, down to this many
MIN_PARALLELISM: Final = f"{GROUP}/job-min-parallelism"
#: annotation on Jobs, "true": completions follow parallelism when the job starts with fewer pods
COMPLETIONS_EQUAL_PARALLELISM: Final = f"{GROUP}/job-completions-equal-parallelism"
#: annotation on jobs and Workloads, comma-separated: not admitted while a gate is listed here
ADMISSION_GATED_BY: Final = f"{GROUP}/admission-gated-by"
#: annotation on jobs and Workloads, a number: added to the priority
PRIORITY_BOOST: Final = f"{GROUP}/priority-boost"
#: annotation on Workloads: Kueue's, without effect here
ALLOWED_FLAVORS: Final = f"{GROUP}/workload-allowed-resource-flavors"
#: finalizer on Workloads, ClusterQueues, ResourceFlavors, Topologies and AdmissionChecks: they are in use
IN_USE_FINALIZER: Final = f"{GROUP}/resource-in-use"

#: annotation on pod templates: all pods must be placed within one domain of this topology level
REQUIRED_TOPOLOGY: Final = f"{GROUP}/podset-required-topology"
#: annotation on pod templates: all pods should be placed within one domain of this topology level
PREFERRED_TOPOLOGY: Final = f"{GROUP}/podset-preferred-topology"
#: annotation on pod templates, "true": pods are placed by topology, wherever there is room
UNCONSTRAINED_TOPOLOGY: Final = f"{GROUP}/podset-unconstrained-topology"
#: annotation on pod templates: each slice of the pods must be placed within one domain of this topology level
SLICE_REQUIRED_TOPOLOGY: Final = f"{GROUP}/podset-slice-required-topology"
#: annotation on pod templates: how many pods a slice has
SLICE_SIZE: Final = f"{GROUP}/podset-slice-size"
#: annotation on pod templates, JSON: [{topology, size}], outermost first: slices within slices
SLICE_CONSTRAINTS: Final = f"{GROUP}/podset-slice-required-topology-constraints"
#: annotation on pod templates: pod sets of one group are placed together
PODSET_GROUP: Final = f"{GROUP}/podset-group-name"
#: label on pods, "true": they are placed by topology
TAS_LABEL: Final = f"{GROUP}/tas"
#: scheduling gate of pods until their place by topology is known
TOPOLOGY_GATE: Final = f"{GROUP}/topology"

#: label on ProvisioningRequests and PodTemplates, "true": they were made for a Workload
MANAGED: Final = f"{GROUP}/managed"
#: annotation on jobs and Workloads, the name of a parameter after the slash: a parameter of their ProvisioningRequest
PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"
#: annotation on pods: the ProvisioningRequest whose nodes they use
CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
#: annotation on pods: the class of that request
PROVISIONING_CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"

# our own
#: annotation on PodTemplates of ProvisioningRequests: digest of what was asked, before the API server added its defaults
TEMPLATE_DIGEST: Final = f"{OWN_GROUP}/template-digest"
#: label on child Jobs, Services and pods: their GPUJob
GPUJOB_LABEL: Final = f"{OWN_GROUP}/gpujob"
#: annotation on CustomResourceDefinitions, ms since 1970: when `gangline webhooks --unregister` ended their conversion
WEBHOOKS_WITHDRAWN: Final = f"{OWN_GROUP}/webhooks-withdrawn"
#: label on child Jobs and pods: their role of the GPUJob
ROLE_LABEL: Final = f"{OWN_GROUP}/role"
#: annotation on child Jobs: their admission and attempt
ADMISSION_DIGEST: Final = f"{OWN_GROUP}/admission"
#: annotation on pods, duration: kwok completes the pod after that
SIMULATED_RUNTIME: Final = f"{OWN_GROUP}/simulated-runtime"
#: annotation on pods: kwok fails the pod with this exit code instead
SIMULATED_EXIT_CODE: Final = f"{OWN_GROUP}/simulated-exit-code"
#: annotation on nodes and pods: simulated failure, kwok stops updating them
SIMULATED_FAILURE: Final = f"{OWN_GROUP}/simulated-failure"
#: annotation on pods: the time that they take to stop
SIMULATED_SHUTDOWN: Final = f"{OWN_GROUP}/simulated-shutdown"
#: annotation on jobs, duration: `gangline run` submits the job this much later
SIMULATED_ARRIVAL: Final = f"{OWN_GROUP}/simulated-arrival"
#: annotation on jobs, duration: their author's expected runtime
EXPECTED_RUNTIME: Final = f"{OWN_GROUP}/expected-runtime"
#: label on jobs: their user, for forecasts where users share a namespace
USER: Final = f"{OWN_GROUP}/user"
#: annotation on JobSets: each child Job runs alone in a domain of this node label
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
#: annotation on ResourceFlavors, "true": an autoscaler adds nodes when pods need them
AUTOSCALED: Final = f"{OWN_GROUP}/autoscaled"
#: scheduling gate of pods until their domain is known
DOMAIN_GATE: Final = f"{OWN_GROUP}/domain"
#: annotation on Workloads, JSON: {pod set: {"by": node label, "count": n}}: pod sets that take whole domains
WHOLE_DOMAINS: Final = f"{OWN_GROUP}/whole-domains"
#: annotation on jobs and Workloads, duration: the job's checkpoint interval
CHECKPOINT_INTERVAL: Final = f"{OWN_GROUP}/checkpoint-interval"
#: annotation on jobs and Workloads: "Restart" if a lost pod means that all pods must start again, "Replace" if not
NODE_LOSS: Final = f"{OWN_GROUP}/node-loss"
#: annotation on Workloads, JSON: the record of swaps after node failures (`gangline.api.read.swap_record`)
RECOVERY: Final = f"{OWN_GROUP}/recovery"
#: annotation on pods: how often their gang was restarted before, within its admission
ATTEMPT: Final = f"{OWN_GROUP}/attempt"
#: annotation on jobs and pods: progress, such as `step=120 total=5000`
PROGRESS: Final = f"{OWN_GROUP}/progress"
#: annotation on pods: the URL to which `gangline.progress` reports
PROGRESS_URL: Final = f"{OWN_GROUP}/progress-url"
#: annotation on jobs, duration: the job reports progress at least this often
HEARTBEAT: Final = f"{OWN_GROUP}/heartbeat"
#: annotation on jobs: "none" turns stall detection off
STALL: Final = f"{OWN_GROUP}/stall"
#: annotation on jobs: "none", or the kinds of notifications that are sent about the job, comma-separated
NOTIFY: Final = f"{OWN_GROUP}/notify"
#: annotation on jobs: the address for receivers whose URL contains {to}
NOTIFY_TO: Final = f"{OWN_GROUP}/notify-to"
#: taint on nodes that do not answer (`gangline.control.recovery.silent_nodes`)
SILENT: Final = f"{OWN_GROUP}/silent"
#: annotation on pods that cannot end: the Workload that continues without them
LEFT_BEHIND: Final = f"{OWN_GROUP}/left-behind"
#: annotation on ClusterQueues: keeps v1beta1's reclaimOutOfCohort through conversion
LEGACY_RECLAIM: Final = f"{OWN_GROUP}/reclaim-out-of-cohort"
#: annotation on objects in v1beta2, JSON: values for which only v1beta1 has fields
V1BETA1_FIELDS: Final = f"{OWN_GROUP}/v1beta1-fields"
#: annotation on objects in v1beta1, JSON: values for which only v1beta2 has fields
V1BETA2_FIELDS: Final = f"{OWN_GROUP}/v1beta2-fields"

# condition types of a Workload
#: quota is reserved; if False, the reason says why the workload waits
QUOTA_RESERVED: Final = "QuotaReserved"
#: quota is reserved and all admission checks are ready: the job may run
ADMITTED: Final = "Admitted"
#: all pods are ready or have succeeded
PODS_READY: Final = "PodsReady"
#: the workload was stopped, or never started, and releases its quota
EVICTED: Final = "Evicted"
#: it was evicted to make room for another one; the reason says by which rule
PREEMPTED: Final = "Preempted"
#: it is requeued after an eviction; False while it backs off
REQUEUED: Final = "Requeued"
#: the job has ended
FINISHED: Final = "Finished"
#: False while lost nodes are replaced under the workload, True when it runs again; Gangline only
RECOVERED: Final = "Recovered"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
#: a queue takes workloads, a policy is in force, a check is answered
ACTIVE: Final = "Active"
#: the workload was backfilled: started before one that precedes it and has a reservation; Gangline only
BACKFILLED: Final = "Backfilled"
#: it runs longer than forecast; the reason says by how much; Gangline only
OVERRUN: Final = "Overrun"
#: it hangs; the reason is the action, or how it is known that it does not; Gangline only
STALLED: Final = "Stalled"
#: the API server refuses its pods; the reason says on what ground; Gangline only
PODS_REFUSED: Final = "PodsRefused"

LOCAL_QUEUE_DEFAULT: Final = "default"
SYSTEM_NAMESPACE: Final = "gangline-system"
#: Kueue's own namespace, and the Lease in it that Kueue's leader holds
KUEUE_NAMESPACE: Final = "kueue-system"
KUEUE_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
#: namespaces whose objects Gangline never changes
EXCLUDED_NAMESPACES: Final = ("kube-system", SYSTEM_NAMESPACE)
