"""The kinds that Gangline serves: names, versions, and columns of `kubectl get`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gangline.api import names
from gangline.api.schema import v1beta1
from gangline.api.schema.common import KubeObject
from gangline.api.schema.crdgen import ApiKind, ApiVersion, PrinterColumn
from gangline.api.schema.v1alpha1 import gpujob, jobprofile, queuepolicy, quotaplan, reservation
from gangline.api.schema.v1beta1 import limits
from gangline.api.schema.v1beta2 import clusterqueue, config, localqueue, multikueue, provisioning, workload

_DEPRECATED: Final = "This version is deprecated. Use v1beta2 instead."

_AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date", description="Time since it was created")


def _condition(name: str, description: str) -> PrinterColumn:
    return PrinterColumn(name, f".status.conditions[?(@.type=='{name}')].status", description=description)


_PENDING: Final = PrinterColumn(
    "Pending Workloads", ".status.pendingWorkloads", "integer", description="Number of workloads that wait"
)
_ADMITTED: Final = PrinterColumn(
    "Admitted Workloads",
    ".status.admittedWorkloads",
    "integer",
    description="Number of admitted workloads that have not finished",
)
_CLUSTER_QUEUE_COLUMNS: Final = (
    PrinterColumn("Cohort", ".spec.cohortName", description="Cohort that it shares idle quota with"),
    PrinterColumn("Strategy", ".spec.queueingStrategy", priority=1, description="How workloads are ordered"),
    _PENDING,
    replace(_ADMITTED, priority=1),
    PrinterColumn(
        "Policy",
        f".status.conditions[?(@.type=='{names.POLICY}')].message",
        description="QueuePolicy that is in force for it",
    ),
)
_LOCAL_QUEUE_COLUMNS: Final = (
    PrinterColumn("ClusterQueue", ".spec.clusterQueue", description="ClusterQueue behind it"),
    _PENDING,
    _ADMITTED,
)
_WORKLOAD_COLUMNS: Final = (
    PrinterColumn("Queue", ".spec.queueName", description="LocalQueue that it waits in"),
    PrinterColumn("Reserved in", ".status.admission.clusterQueue", description="ClusterQueue that it holds quota of"),
    _condition("Admitted", "Whether the workload may run"),
    _condition("Finished", "Whether the workload has finished"),
    _AGE,
)
_GPU_JOB_COLUMNS: Final = (
    PrinterColumn("Phase", ".status.phase", description="The phase of the job"),
    PrinterColumn("Queue", r".metadata.labels.kueue\.x-k8s\.io/queue-name", description="LocalQueue that it waits in"),
    PrinterColumn("GPUs", ".status.gpus", "integer", description="GPUs of the whole gang"),
    PrinterColumn("Ready", ".status.ready", description="Ready pods of all pods"),
    PrinterColumn(
        "Restarts", ".status.restarts", "integer", priority=1, description="How often the gang was restarted"
    ),
    PrinterColumn("Expected Start", ".status.expectedStart.to", priority=1, description="When it will most likely run"),
    _AGE,
)
_QUEUE_POLICY_COLUMNS: Final = (
    PrinterColumn("Profile", ".spec.profile", description="The profile that sets the parts left out"),
    PrinterColumn("Order", ".spec.order.key", description="The order of workloads"),
    PrinterColumn(
        "Backfill", ".spec.backfill.depth", "integer", description="The number of workloads that get a reservation"
    ),
    _condition("Active", "Whether the policy is in force"),
    PrinterColumn("Queues", ".status.matched", description="ClusterQueues for which the policy is in force"),
    _AGE,
)

_RESERVATION_COLUMNS: Final = (
    _condition("Active", "Whether a window is open"),
    PrinterColumn("Next", ".status.windows[0].start", description="When the open or the next window begins"),
    PrinterColumn("Nodes", ".status.nodeCount", "integer", description="Number of reserved nodes"),
    PrinterColumn("For", ".spec.for.clusterQueues", priority=1, description="ClusterQueues that it is for"),
    _condition("Conflict", "Whether something keeps it from being honoured"),
    _AGE,
)
_JOB_PROFILE_COLUMNS: Final = (
    PrinterColumn("Class", ".spec.class", description="The class of jobs, if it is not the name"),
    PrinterColumn("Family", ".spec.family", description="The classes that are variants of one program"),
    _condition("Active", "Whether placement policies look at it"),
    _AGE,
)

_QUOTA_PLAN_COLUMNS: Final = (
    PrinterColumn("ClusterQueue", ".spec.clusterQueue", description="ClusterQueue whose quotas it changes"),
    _condition("Active", "Whether it is in force"),
    PrinterColumn("Overrides", ".status.activeOverrides", description="Active overrides"),
    PrinterColumn("Next", ".status.nextChange.time", description="When quotas change next"),
    _condition("Conflict", "Whether something keeps it from being honoured"),
    _AGE,
)


def _both(new: ApiVersion, old: type[KubeObject] | None = None, **changes: object) -> tuple[ApiVersion, ApiVersion]:
    """v1beta1 beside v1beta2; with the same model unless `old` is given."""
    return new.older("v1beta1", old or new.model, _DEPRECATED, **changes), new


CLUSTER_QUEUE: Final = ApiKind(
    names.GROUP,
    "ClusterQueue",
    "clusterqueues",
    _both(
        ApiVersion("v1beta2", clusterqueue.ClusterQueue, _CLUSTER_QUEUE_COLUMNS),
        v1beta1.V1Beta1ClusterQueue,
        lacks=limits.CLUSTER_QUEUE,
        columns=(replace(_CLUSTER_QUEUE_COLUMNS[0], path=".spec.cohort"), *_CLUSTER_QUEUE_COLUMNS[1:]),
    ),
    short_names=("cq",),
)
LOCAL_QUEUE: Final = ApiKind(
    names.GROUP,
    "LocalQueue",
    "localqueues",
    _both(
        ApiVersion("v1beta2", localqueue.LocalQueue, _LOCAL_QUEUE_COLUMNS),
        v1beta1.V1Beta1LocalQueue,
        lacks=limits.LOCAL_QUEUE,
    ),
    namespaced=True,
    short_names=("queue", "queues", "lq"),
)
WORKLOAD: Final = ApiKind(
    names.GROUP,
    "Workload",
    "workloads",
    _both(
        ApiVersion("v1beta2", workload.Workload, _WORKLOAD_COLUMNS, selectable=(".status.admission.clusterQueue",)),
        v1beta1.V1Beta1Workload,
        lacks=limits.WORKLOAD,
        selectable=(),  # fields selectable in all versions alike are refused while the versions' schemas differ
    ),
    namespaced=True,
    short_names=("kwl", "kueueworkload", "kueueworkloads"),
)
RESOURCE_FLAVOR: Final = ApiKind(
    names.GROUP,
    "ResourceFlavor",
    "resourceflavors",
    _both(ApiVersion("v1beta2", config.ResourceFlavor)),
    short_names=("flavor", "flavors", "rf"),
    status=False,
)
COHORT: Final = ApiKind(
    names.GROUP, "Cohort", "cohorts", _both(ApiVersion("v1beta2", config.Cohort)), short_names=("co",)
)
WORKLOAD_PRIORITY_CLASS: Final = ApiKind(
    names.GROUP,
    "WorkloadPriorityClass",
    "workloadpriorityclasses",
    _both(
        ApiVersion(
            "v1beta2",
            config.WorkloadPriorityClass,
            (PrinterColumn("Value", ".value", "integer", description="The priority; higher goes first"),),
        ),
        lacks=limits.WORKLOAD_PRIORITY_CLASS,
    ),
    short_names=("wpc",),
    status=False,
)
ADMISSION_CHECK: Final = ApiKind(
    names.GROUP,
    "AdmissionCheck",
    "admissionchecks",
    _both(ApiVersion("v1beta2", config.AdmissionCheck), v1beta1.V1Beta1AdmissionCheck, lacks=limits.ADMISSION_CHECK),
    short_names=("ac",),
)
TOPOLOGY: Final = ApiKind(
    names.GROUP,
    "Topology",
    "topologies",
    _both(ApiVersion("v1beta2", config.Topology), v1beta1.V1Beta1Topology),
    short_names=("topo",),
    status=False,
)
MULTI_KUEUE_CONFIG: Final = ApiKind(
    names.GROUP,
    "MultiKueueConfig",
    "multikueueconfigs",
    _both(ApiVersion("v1beta2", multikueue.MultiKueueConfig), v1beta1.V1Beta1MultiKueueConfig),
    short_names=("mkconf",),
    status=False,
)
MULTI_KUEUE_CLUSTER: Final = ApiKind(
    names.GROUP,
    "MultiKueueCluster",
    "multikueueclusters",
    _both(
        ApiVersion(
            "v1beta2",
            multikueue.MultiKueueCluster,
            (
                PrinterColumn(
                    "Connected", _condition("Active", "").path, description="Whether the cluster can be reached"
                ),
                _AGE,
            ),
        ),
        v1beta1.V1Beta1MultiKueueCluster,
        lacks=limits.MULTI_KUEUE_CLUSTER,
    ),
    short_names=("mkc",),
)
PROVISIONING_REQUEST_CONFIG: Final = ApiKind(
    names.GROUP,
    "ProvisioningRequestConfig",
    "provisioningrequestconfigs",
    _both(ApiVersion("v1beta2", provisioning.ProvisioningRequestConfig)),
    short_names=("prc",),
    status=False,
)
GPU_JOB: Final = ApiKind(
    names.OWN_GROUP,
    "GPUJob",
    "gpujobs",
    (ApiVersion("v1alpha1", gpujob.GPUJob, _GPU_JOB_COLUMNS),),
    namespaced=True,
    short_names=("gj",),
)
QUEUE_POLICY: Final = ApiKind(
    names.OWN_GROUP,
    "QueuePolicy",
    "queuepolicies",
    (ApiVersion("v1alpha1", queuepolicy.QueuePolicy, _QUEUE_POLICY_COLUMNS),),
    short_names=("qp",),
)
RESERVATION: Final = ApiKind(
    names.OWN_GROUP,
    "Reservation",
    "reservations",
    (ApiVersion("v1alpha1", reservation.Reservation, _RESERVATION_COLUMNS),),
    short_names=("resv",),
)
QUOTA_PLAN: Final = ApiKind(
    names.OWN_GROUP,
    "QuotaPlan",
    "quotaplans",
    (ApiVersion("v1alpha1", quotaplan.QuotaPlan, _QUOTA_PLAN_COLUMNS),),
    short_names=("qpl",),
)
JOB_PROFILE: Final = ApiKind(
    names.OWN_GROUP,
    "JobProfile",
    "jobprofiles",
    (ApiVersion("v1alpha1", jobprofile.JobProfile, _JOB_PROFILE_COLUMNS),),
    short_names=("jp",),
)

KINDS: Final = (
    RESOURCE_FLAVOR,
    COHORT,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    WORKLOAD,
    WORKLOAD_PRIORITY_CLASS,
    ADMISSION_CHECK,
    TOPOLOGY,
    MULTI_KUEUE_CONFIG,
    MULTI_KUEUE_CLUSTER,
    PROVISIONING_REQUEST_CONFIG,
    GPU_JOB,
    QUEUE_POLICY,
    RESERVATION,
    QUOTA_PLAN,
    JOB_PROFILE,
)
#: Kinds whose two versions differ in their fields: their CRDs need the conversion webhook.
CONVERTED: Final = (CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, ADMISSION_CHECK, MULTI_KUEUE_CONFIG, MULTI_KUEUE_CLUSTER)
