"""Names in the API: groups, labels, annotations, conditions, reasons."""

from __future__ import annotations

from collections.abc import Mapping
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
#: label on Workloads and jobs that a manager cluster has sent here: the manager's own name
MULTIKUEUE_ORIGIN: Final = f"{GROUP}/multikueue-origin"
#: annotation on jobs that a manager cluster has sent here: the UID that the job has there
MULTIKUEUE_ORIGIN_UID: Final = f"{GROUP}/multikueue-origin-uid"
#: label on pods of Workloads that another cluster has sent
MULTIKUEUE_WORKER_POD: Final = f"{GROUP}/multikueue-worker-workload-pod"
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
#: annotation on jobs and Workloads, "true": it grows and shrinks while it runs
ELASTIC: Final = f"{GROUP}/elastic-job"
#: scheduling gate of the pods of elastic jobs: those beyond what is admitted wait behind it
ELASTIC_GATE: Final = f"{GROUP}/elastic-job"
#: annotation on Workloads and pods of elastic jobs: the name of the job's first slice
SLICE_NAME: Final = f"{GROUP}/workload-slice-name"
#: annotation on Workloads: the key of the slice that this one replaces
REPLACEMENT_FOR: Final = f"{GROUP}/workload-slice-replacement-for"
#: annotation on RayJobs and RayServices, in which Kueue keeps the generation of their RayCluster; not read
RAY_CLUSTER_GENERATION: Final = f"{GROUP}/raycluster-generation"
#: annotation on RayJobs and RayServices, in which Kueue kept the sizes of their RayCluster's groups; not read
RAY_CLUSTER_SIZES: Final = f"{GROUP}/raycluster-podset-replica-sizes"
#: annotation on jobs and Workloads, comma-separated: not admitted while a gate is listed here
ADMISSION_GATED_BY: Final = f"{GROUP}/admission-gated-by"
#: annotation on jobs and Workloads, a number: added to the priority
PRIORITY_BOOST: Final = f"{GROUP}/priority-boost"
#: annotation on Workloads, comma-separated: the only flavors that it may use
ALLOWED_FLAVORS: Final = f"{GROUP}/workload-allowed-resource-flavors"
#: label on Workloads, "true": its variants, one per flavor, are tried at a time
CONCURRENT_PARENT: Final = f"{GROUP}/concurrent-admission-parent"
#: preemption gate of variants: only one of a workload's variants at a time has others preempted for it
CONCURRENT_GATE: Final = f"{GROUP}/concurrent-admission"
#: preemption gate of copies in other clusters: only one of a workload's copies at a time has others preempted for it
MULTIKUEUE_GATE: Final = f"{GROUP}/multikueue"
#: annotation on pods, "true": deleted by force a minute after their grace period if their node is unreachable
SAFE_TO_DELETE: Final = f"{GROUP}/safe-to-forcefully-delete"
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
#: annotation on pod templates: the index of the first pod
POD_INDEX_OFFSET: Final = f"{GROUP}/pod-index-offset"
#: label on pods, "true": they are placed by topology
TAS_LABEL: Final = f"{GROUP}/tas"
#: scheduling gate of pods until their place by topology is known
TOPOLOGY_GATE: Final = f"{GROUP}/topology"

#: scheduling gate of pods that wait in a queue
ADMISSION_GATE: Final = f"{GROUP}/admission"
#: label or annotation on pods: the group that they belong to
POD_GROUP: Final = f"{GROUP}/pod-group-name"
#: annotation on pods, a number: how many pods their group has
POD_GROUP_TOTAL: Final = f"{GROUP}/pod-group-total-count"
#: annotation on pods, "true": their group is queued as soon as its first pod exists
POD_GROUP_FAST: Final = f"{GROUP}/pod-group-fast-admission"
#: annotation on pods, "true": their group serves, and never finishes
POD_GROUP_SERVING: Final = f"{GROUP}/pod-group-serving"
#: label on pods: their index in the group
POD_GROUP_INDEX: Final = f"{GROUP}/pod-group-pod-index"
#: annotation on pods: the label that holds their index in the group
POD_GROUP_INDEX_LABEL: Final = f"{GROUP}/pod-group-pod-index-label"
#: annotation on pods, "false": failed pods of their group are not replaced
RETRIABLE_IN_GROUP: Final = f"{GROUP}/retriable-in-group"
#: annotation on pods: their role, which is the name of their pod set in a group
ROLE_HASH: Final = f"{GROUP}/role-hash"
#: annotation on Workloads, "true": that of a pod group
IS_GROUP_WORKLOAD: Final = f"{GROUP}/is-group-workload"
#: annotation on pods: the kind of their managed owner, which made them wait
SUSPENDED_BY_PARENT: Final = f"{GROUP}/pod-suspending-parent"

#: annotation on Workloads: version and kind of the object that they were made for, such as "apps/v1, Kind=StatefulSet"
JOB_OWNER_GVK: Final = f"{GROUP}/job-owner-gvk"
#: annotation on Workloads: its name
JOB_OWNER_NAME: Final = f"{GROUP}/job-owner-name"
#: annotation on Workloads, a number: which group of the object they were made for
COMPONENT_INDEX: Final = f"{GROUP}/component-workload-index"

#: label on ProvisioningRequests and PodTemplates, "true": they were made for a Workload; on pods: they are queued. Also the
#: finalizer of queued pods
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
#: annotation on CustomResourceDefinitions, ms since 1970: when `gangline admin webhooks --unregister` ended their conversion
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
#: annotation on jobs, duration: their author's expected runtime; on pod templates, for scorers of placement policies
EXPECTED_RUNTIME: Final = f"{OWN_GROUP}/expected-runtime"
#: annotation on jobs, such as a100=2.5,v100=1: how fast they run on which flavor, as a ratio (`gangline.api.flavor_speeds`)
FLAVOR_SPEEDS: Final = f"{OWN_GROUP}/flavor-speeds"
#: the ConfigMap of a namespace that says what `gangline submit` adds to its jobs
SUBMIT_PROFILE: Final = "gangline-submit"
#: label on jobs: the account that `gangline submit --account` names
ACCOUNT: Final = f"{OWN_GROUP}/account"
#: label on jobs of one array, annotation on Workloads: its name
ARRAY: Final = f"{OWN_GROUP}/array"
#: annotation on jobs with that label and on their Workloads, a number: so many of the array's tasks may run at a time
ARRAY_LIMIT: Final = f"{OWN_GROUP}/array-limit"
#: annotation on jobs: what their user remarks on them
COMMENT: Final = f"{OWN_GROUP}/comment"
#: label on jobs: their user, for forecasts where users share a namespace
USER: Final = f"{OWN_GROUP}/user"
#: annotation on jobs: "true" keeps a job that waits from starting, until the annotation is gone
HOLD: Final = f"{OWN_GROUP}/hold"
#: annotation on jobs and Workloads, such as `job/prepare=Succeeded,gpujob/server=Running`: the job is queued once all of it is so
AFTER: Final = f"{OWN_GROUP}/after"
#: annotation on jobs and Workloads, "Hold" (the default) or "Cancel": what happens where that can't come true any more
AFTER_FAILED: Final = f"{OWN_GROUP}/after-failed"
#: annotations on jobs by which they wait for others, which their Workloads have too
DEPENDENCIES: Final = (AFTER, AFTER_FAILED)
#: annotation on Workloads, comma-separated: what of `gangline.io/after` has come true
AFTER_MET: Final = f"{OWN_GROUP}/after-met"
#: annotation on Workloads, comma-separated: jobs of `gangline.io/after` that existed, so that their deletion is noticed
AFTER_SEEN: Final = f"{OWN_GROUP}/after-seen"
#: annotation on namespaces, comma-separated: the only priority classes that jobs there may name
ALLOWED_CLASSES: Final = f"{OWN_GROUP}/allowed-priority-classes"
#: annotation on JobSets: each child Job runs alone in a domain of this node label
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
# names of those who share GPUs out
#: annotation on pods (KAI), which request no GPU: the part of a GPU that they use, such as 0.5
KAI_FRACTION: Final = "gpu-fraction"
#: annotation on pods (KAI): MiB of a GPU's memory that they use
KAI_MEMORY: Final = "gpu-memory"
#: annotation on pods (KAI): of how many GPUs they use so much
KAI_DEVICES: Final = "gpu-fraction-num-devices"
#: label on pods (KAI): those with the same one share a card; also the prefix, before a slash, of labels for several cards
KAI_GROUP: Final = "runai-gpu-group"
#: annotation on KAI's own pods, each of which keeps a card for those who share it: the card's uuid, whatever its name says
KAI_CARD: Final = "run.ai/reserve_for_gpu_index"
#: namespaces of these pods
KAI_NAMESPACES: Final = frozenset({"kai-resource-reservation", "runai-reservation"})
#: resource (HAMi): GPUs of which a container may use a part
HAMI_GPU: Final = "nvidia.com/gpu"
#: resource (HAMi): percent of the compute power of each GPU
HAMI_CORES: Final = "nvidia.com/gpucores"
#: resource (HAMi): percent of the memory of each GPU
HAMI_PERCENT: Final = "nvidia.com/gpumem-percentage"
#: resource (HAMi): MiB of the memory of each GPU
HAMI_MEMORY: Final = "nvidia.com/gpumem"
#: annotation on pods (HAMi), uuids with commas: the only cards that will do
HAMI_USE_UUID: Final = "nvidia.com/use-gpuuuid"
#: annotation on pods (HAMi), uuids with commas: cards that will not do
HAMI_NO_UUID: Final = "nvidia.com/nouse-gpuuuid"
#: annotation on pods (HAMi), with commas: the only models of cards that will do
HAMI_USE_TYPE: Final = "nvidia.com/use-gputype"
#: annotation on pods (HAMi), with commas: models of cards that will not do
HAMI_NO_TYPE: Final = "nvidia.com/nouse-gputype"
#: annotation on nodes (HAMi): their cards
HAMI_NODE: Final = "hami.io/node-nvidia-register"
#: annotation on pods (HAMi): what they got of which card
HAMI_POD: Final = "hami.io/vgpu-devices-allocated"
#: characters of a card's uuid or model
LONGEST_UUID: Final = 253
#: resource (Tencent's GPU manager): units of 256 MiB of a GPU's memory
TENCENT_MEMORY: Final = "tencent.com/vcuda-memory"
#: resource (Tencent's GPU manager): percent of one GPU, or a multiple of 100
TENCENT_CORES: Final = "tencent.com/vcuda-core"

#: resource in ClusterQueues: what pods use of GPUs, in thousandths of one
GPU_MILLI: Final = f"{OWN_GROUP}/gpu-milli"
#: resource in ClusterQueues: what pods use of GPUs' memory, in bytes
GPU_MEM: Final = f"{OWN_GROUP}/gpu-mem"
#: topology level of assignments below the host: the first card of each pod, the second one, …
CARD_LEVEL: Final = f"{OWN_GROUP}/card-"
#: annotation on pods: the cards that were chosen for it, with commas between
CARDS: Final = f"{OWN_GROUP}/cards"
#: annotation on pod templates that request no GPU: the part of a card that each pod uses, such as 0.5 or 500m
GPU_SHARE: Final = f"{OWN_GROUP}/gpu-share"
#: annotation on pod templates: the memory that each pod uses of each of its cards, such as 8Gi
GPU_MEMORY: Final = f"{OWN_GROUP}/gpu-memory"
#: annotation on pod templates: of how many cards each pod uses so much (1)
GPU_COUNT: Final = f"{OWN_GROUP}/gpu-count"
#: annotation on pod templates with a share and memory: a ResourceClaim of this DeviceClass gives it to each pod
GPU_CLASS: Final = f"{OWN_GROUP}/gpu-device-class"
#: annotation on these: the capacity by which the claim asks for compute, milli (default) or cores, with a domain if it has one
GPU_COMPUTE: Final = f"{OWN_GROUP}/gpu-compute"
#: annotation on pod templates with a share: the environment variable by which the containers learn their cards
GPU_VISIBLE: Final = f"{OWN_GROUP}/gpu-visible-devices"
#: annotation on pod templates: pods of this name in their namespace share a card where they can
GPU_AFFINITY: Final = f"{OWN_GROUP}/gpu-affinity"
#: annotation on pod templates: no two pods of this name in their namespace share a card
GPU_ANTI_AFFINITY: Final = f"{OWN_GROUP}/gpu-anti-affinity"
#: annotation on pod templates: only pods of this name in their namespace share their cards
GPU_EXCLUSION: Final = f"{OWN_GROUP}/gpu-exclusion"
#: annotation on nodes: the Mbit/s of their network interfaces, such as ib0=200000,ib1=200000; and on pod templates: how much of
#: them each pod takes
NETWORK: Final = f"{OWN_GROUP}/network-mbps"
#: annotation on nodes: what the node draws without work, in watts
IDLE_WATTS: Final = f"{OWN_GROUP}/idle-watts"
#: annotation on nodes: what each accelerator of the node draws at most, in watts
GPU_WATTS: Final = f"{OWN_GROUP}/gpu-watts"
#: annotation on pod templates: the kind of work; placement policies put equal kinds together
CLASS: Final = f"{OWN_GROUP}/class"
#: annotation on pod templates with a class: how much pods that share their card or node may slow this one, such as 1.25
MAX_SLOWDOWN: Final = f"{OWN_GROUP}/max-slowdown"
#: annotation on pod templates: percent of one GPU that each pod uses
GPU_UTILISATION: Final = f"{OWN_GROUP}/gpu-utilisation"
#: annotation on pod templates: the datasets that each pod reads, with their sizes, such as a=800Gi,b=20Gi
DATA: Final = f"{OWN_GROUP}/data"
#: annotation on nodes: the datasets that they have near, with commas between them
DATASETS: Final = f"{OWN_GROUP}/datasets"
#: annotation on nodes: the Mbit/s at which they get other data
DOWNLOAD: Final = f"{OWN_GROUP}/download-mbps"
#: label on nodes: how fast pods run there, in percent of what is usual
SPEED: Final = f"{OWN_GROUP}/speed"
#: annotation on QueuePolicies: the SHA-256, in hexadecimal, of the key that a scheduler has in the path of the extender
EXTENDER_KEY: Final = f"{OWN_GROUP}/extender-key"
#: annotation on ResourceFlavors, "true": an autoscaler adds nodes when pods need them; "false": none does, whatever is found
AUTOSCALED: Final = f"{OWN_GROUP}/autoscaled"
#: scheduling gate of pods until the node or domain is known that they are sent to
DOMAIN_GATE: Final = f"{OWN_GROUP}/domain"
#: annotation on Workloads, JSON: {pod set: {"by": node label, "count": n}}: pod sets that take whole domains
WHOLE_DOMAINS: Final = f"{OWN_GROUP}/whole-domains"
#: annotation on jobs and Workloads, duration: the job's checkpoint interval
CHECKPOINT_INTERVAL: Final = f"{OWN_GROUP}/checkpoint-interval"
#: annotation on jobs and Workloads, time: room is made for the job by then, when running jobs that move for it lose least
START_BY: Final = f"{OWN_GROUP}/start-by"
#: annotation on jobs and Workloads: "Restart" if a lost pod means that all pods must start again, "Replace" if not
NODE_LOSS: Final = f"{OWN_GROUP}/node-loss"
#: annotation on Workloads, JSON: the record of swaps after node failures (`gangline.api.read.workloads.swap_record`)
RECOVERY: Final = f"{OWN_GROUP}/recovery"
#: annotation on prebuilt Workloads of elastic jobs: the operator cuts it when its job has shrunk, so nobody else has to
CUT_WITH_JOB: Final = f"{OWN_GROUP}/cut-with-job"
#: annotation on Workloads of elastic jobs that have shrunk: the `reclaimablePods` of their former size, which count no more
OUTDATED_RECLAIMABLE: Final = f"{OWN_GROUP}/outdated-reclaimable-pods"
#: annotation on pods: how often their gang was restarted before, within its admission
ATTEMPT: Final = f"{OWN_GROUP}/attempt"
#: annotation on jobs and pods: progress, such as `step=120 total=5000`
PROGRESS: Final = f"{OWN_GROUP}/progress"
#: annotation on pods: the URL to which `gangline.progress` reports
PROGRESS_URL: Final = f"{OWN_GROUP}/progress-url"
#: annotation on jobs, duration: the job reports progress at least this often
HEARTBEAT: Final = f"{OWN_GROUP}/heartbeat"
#: annotation on jobs and Workloads, duration: how long the scheduler may find no node for a pod of the job that was admitted
UNSCHEDULED_TIMEOUT: Final = f"{OWN_GROUP}/unscheduled-timeout"
#: annotation on jobs: "none" turns stall detection off
STALL: Final = f"{OWN_GROUP}/stall"
#: annotation on jobs: "none", or the kinds of notifications that are sent about the job, comma-separated
NOTIFY: Final = f"{OWN_GROUP}/notify"
#: annotation on jobs: the address for receivers whose URL contains {to}
NOTIFY_TO: Final = f"{OWN_GROUP}/notify-to"
#: annotations that are read while a job waits and runs: pods and what serves, which have no job, hand them to their Workloads
HINTS: Final = (
    CHECKPOINT_INTERVAL,
    EXPECTED_RUNTIME,
    FLAVOR_SPEEDS,
    UNSCHEDULED_TIMEOUT,
    HEARTBEAT,
    STALL,
    NOTIFY,
    NOTIFY_TO,
)
#: taint on nodes that do not answer (`gangline.control.nodes.recovery.silent_nodes`)
SILENT: Final = f"{OWN_GROUP}/silent"
#: taint on nodes that gangs are to leave as soon as other nodes have room (`gangline admin swap now`)
VACATE: Final = f"{OWN_GROUP}/vacate"
#: annotation on nodes: the Reservation in whose window the operator cordoned them, and which uncordons them after it
CORDONED_FOR: Final = f"{OWN_GROUP}/cordoned-for"
#: annotation on pods: by when their workload should save its work, since a Reservation keeps their node for others then
SAVE_BY: Final = f"{OWN_GROUP}/save-by"
#: annotation on pods that cannot end: the Workload that continues without them
LEFT_BEHIND: Final = f"{OWN_GROUP}/left-behind"
#: annotation on pods: when `gangline admin import` made them members of their Workload, in seconds since the epoch
IMPORTED_AT: Final = f"{OWN_GROUP}/imported-at"
#: annotation on objects without a suspend field that `gangline admin import` is adopting, JSON: what it restores at the end
IMPORTING: Final = f"{OWN_GROUP}/importing"
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
#: the reason of Evicted for a deactivation with a cause, which is not its user's doing, begins so
DEACTIVATED_DUE_TO: Final = "DeactivatedDueTo"
#: the workload was evicted to make room for another one; the reason says by which rule
PREEMPTED: Final = "Preempted"
#: a closed preemption gate keeps others from being preempted for the workload
BLOCKED_ON_GATES: Final = "BlockedOnPreemptionGates"
#: the workload is queued again after an eviction; False while it backs off, or while its devices cannot be counted
REQUEUED: Final = "Requeued"
#: reason of Requeued=False for a workload whose devices cannot be counted; it waits for no time
NOT_QUEUED: Final = "Inadmissible"
#: the job has ended
FINISHED: Final = "Finished"
#: False while lost nodes are replaced under the workload, True when it runs again; Gangline only
RECOVERED: Final = "Recovered"
#: pods of a pod group are missing; the reason is that of an eviction, or PodsFailed
WAITING_FOR_REPLACEMENT: Final = "WaitingForReplacementPods"
#: somebody wants the workload deactivated; the reason says why
DEACTIVATION_TARGET: Final = "DeactivationTarget"
#: a queue takes workloads, a policy is in force, a check is answered
ACTIVE: Final = "Active"
#: the workload was backfilled: started before one that precedes it and has a reservation; Gangline only
BACKFILLED: Final = "Backfilled"
#: the places that a placement policy with dryRun would give the pods
PLACEMENT_PREVIEW: Final = "PlacementPreview"
#: how a search has found the places of the pods; Gangline only
PLACEMENT_SEARCHED: Final = "PlacementSearched"
#: condition of QueuePolicies: the scorers of users that the policy names are in use
SCORERS_READY: Final = "ScorersReady"
BUDGETS_KNOWN: Final = "BudgetsKnown"
#: of QueuePolicies: the queries of the telemetry rules are answered; Gangline only
TELEMETRY_AVAILABLE: Final = "TelemetryAvailable"
#: the workload runs longer than forecast; the reason says by how much; Gangline only
OVERRUN: Final = "Overrun"
#: the QueuePolicy of a ClusterQueue: the message is the name of the QueuePolicy that is in force for it; Gangline only
POLICY: Final = "QueuePolicy"
#: of Reservations: a window is ahead or open, and something keeps it from being honoured; Gangline only
SCHEDULED: Final = "Scheduled"
CONFLICT: Final = "Conflict"
#: of QuotaPlans: the shares of all ClusterQueues that follow the nodes of a flavor sum above 100 %; Gangline only
OVERSUBSCRIBED: Final = "Oversubscribed"
#: of a JobProfile: what is expected of pairs that nobody measured is used; Gangline only
PRIOR_USED: Final = "PriorUsed"
#: of a ClusterQueue whose workloads go to other clusters: its quota is kept at the sum of theirs
QUOTA_AUTOMATION: Final = "MultiKueueManagerQuotaAutomation"
#: the workload hangs; the reason is the action, or the sign that it does not hang; Gangline only
STALLED: Final = "Stalled"
#: the metric that the job reports hardly changes any more; the reason is the phase of its training; Gangline only
CONVERGED: Final = "Converged"
#: the API server refuses the pods; the reason says on what ground; Gangline only
PODS_REFUSED: Final = "PodsRefused"
#: the scheduler finds no node for pods; the reason says whether the job is the cause; Gangline only
PODS_UNSCHEDULED: Final = "PodsUnscheduled"
#: reasons of PodsUnscheduled: as things are no node has room, or the job asks for something that does not exist
UNSCHEDULABLE: Final = "Unschedulable"
CAUSED_BY_JOB: Final = "CausedByJob"

LOCAL_QUEUE_DEFAULT: Final = "default"
SYSTEM_NAMESPACE: Final = "gangline-system"
#: Kueue's own namespace, and the Lease in it that Kueue's leader holds
KUEUE_NAMESPACE: Final = "kueue-system"
KUEUE_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
#: namespaces whose objects Gangline never changes
EXCLUDED_NAMESPACES: Final = ("kube-system", SYSTEM_NAMESPACE)

# --- the ClusterRoles of people, each may what the one before it may --------------------------------------------------

VIEWER: Final = "gangline-viewer-role"
RESEARCHER: Final = "gangline-researcher-role"
TEAM_LEAD: Final = "gangline-team-lead-role"
ADMINISTRATOR: Final = "gangline-administrator-role"
#: lets people run commands in pods. No other role of people contains it: it is for all pods of a namespace, whoever made them
TERMINAL_USER: Final = "gangline-terminal-user-role"
#: lets people see which WorkloadPriorityClasses there are; these belong to no namespace, so a ClusterRoleBinding gives it
PRIORITY_CLASSES_VIEWER: Final = "kueue-workloadpriorityclass-viewer-role"


def is_held(annotations: Mapping[str, str]) -> bool:
    """Whether its author holds a job, by the annotations of the job or of its Workload."""
    return annotations.get(HOLD) == "true"
