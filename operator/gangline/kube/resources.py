"""Addresses on an API server: a kind's place in the URL space, and the kinds that Gangline uses."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

Json: TypeAlias = dict[str, Any]


class Resource(NamedTuple):
    """One served kind. `group` is empty for the core API; `kind` is the name in manifests.

    A tuple because it is part of nearly every key: a dataclass's hash cost 3 % of a busy operator's CPU.
    """

    group: str
    version: str
    plural: str
    namespaced: bool = True
    kind: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The URL path of a collection (no name) or of one object; `namespace=None` means all namespaces.

        Raises ValueError for an incomplete address: an object of a namespaced kind needs its namespace.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root = f"{root}/namespaces/{quote(namespace, safe='')}"
        elif self.namespaced and name:
            raise ValueError(f"{self}: the object {name!r} needs a namespace")
        path = f"{root}/{self.plural}"
        if name:
            path = f"{path}/{quote(name, safe=':')}"
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class ObjectKey(NamedTuple):
    """One object on the server; `namespace` is empty for cluster-scoped kinds."""

    resource: Resource
    namespace: str
    name: str

    @classmethod
    def of(cls, resource: Resource, obj: Json) -> ObjectKey:
        return cls(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    @classmethod
    def parse(cls, resource: Resource, text: str) -> ObjectKey:
        """The key of the object with this identity in the engine: `name` or `namespace/name`."""
        namespace, _, name = text.rpartition("/")
        return cls(resource, namespace, name)

    @property
    def text(self) -> str:
        """The engine's identity of the object: `namespace/name`, or `name` for cluster-scoped kinds."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.resource}:{self.text}"


def deleting(obj: Json) -> bool:
    """Whether the object is being deleted, and not gone yet."""
    return "deletionTimestamp" in obj["metadata"]


def controller_of(obj: Json) -> Json | None:
    """The reference to the object's controller: its managing owner, of which there is at most one."""
    return next((ref for ref in obj["metadata"].get("ownerReferences") or () if ref.get("controller")), None)


def controller_uid(obj: Json) -> str | None:
    ref = controller_of(obj)
    return ref["uid"] if ref is not None else None


def key_of(obj: Json) -> str:
    """The engine's identity of an object: `namespace/name`, or `name` for cluster-scoped kinds."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else metadata["name"]


def namespace_of(key: str | tuple[Resource, str]) -> str:
    """The namespace of an object with this key, alone or with its kind; "" if the object has none."""
    text = key if isinstance(key, str) else key[1]
    return text[: max(0, text.find("/"))]


def revision(obj: Json | None) -> int:
    """The resourceVersion as a number: of one kind's objects, the greater one is the newer (Kubernetes guarantees it since
    1.35, and every API server on etcd has kept to it). 0 for no object, and for a version that is no number.
    """
    return as_revision(obj["metadata"].get("resourceVersion", "") if obj is not None else "")


def as_revision(version: str) -> int:
    """A resourceVersion as a number; 0 if it is none."""
    return int(version) if version.isdecimal() else 0


_KUEUE = ("kueue.x-k8s.io", "v1beta2")
CLUSTER_QUEUES = Resource(*_KUEUE, "clusterqueues", namespaced=False, kind="ClusterQueue")
LOCAL_QUEUES = Resource(*_KUEUE, "localqueues", kind="LocalQueue")
COHORTS = Resource(*_KUEUE, "cohorts", namespaced=False, kind="Cohort")
RESOURCE_FLAVORS = Resource(*_KUEUE, "resourceflavors", namespaced=False, kind="ResourceFlavor")
WORKLOADS = Resource(*_KUEUE, "workloads", kind="Workload")
WORKLOAD_PRIORITY_CLASSES = Resource(*_KUEUE, "workloadpriorityclasses", namespaced=False, kind="WorkloadPriorityClass")
ADMISSION_CHECKS = Resource(*_KUEUE, "admissionchecks", namespaced=False, kind="AdmissionCheck")
TOPOLOGIES = Resource(*_KUEUE, "topologies", namespaced=False, kind="Topology")
MULTI_KUEUE_CONFIGS = Resource(*_KUEUE, "multikueueconfigs", namespaced=False, kind="MultiKueueConfig")
MULTI_KUEUE_CLUSTERS = Resource(*_KUEUE, "multikueueclusters", namespaced=False, kind="MultiKueueCluster")
PROVISIONING_CONFIGS = Resource(
    *_KUEUE, "provisioningrequestconfigs", namespaced=False, kind="ProvisioningRequestConfig"
)

_OWN = ("gangline.io", "v1alpha1")
GPU_JOBS = Resource(*_OWN, "gpujobs", kind="GPUJob")
QUEUE_POLICIES = Resource(*_OWN, "queuepolicies", namespaced=False, kind="QueuePolicy")
JOB_PROFILES = Resource(*_OWN, "jobprofiles", namespaced=False, kind="JobProfile")
RESERVATIONS = Resource(*_OWN, "reservations", namespaced=False, kind="Reservation")
QUOTA_PLANS = Resource(*_OWN, "quotaplans", namespaced=False, kind="QuotaPlan")

NAMESPACES = Resource("", "v1", "namespaces", namespaced=False, kind="Namespace")
NODES = Resource("", "v1", "nodes", namespaced=False, kind="Node")
PODS = Resource("", "v1", "pods", kind="Pod")
SERVICES = Resource("", "v1", "services", kind="Service")
LIMIT_RANGES = Resource("", "v1", "limitranges", kind="LimitRange")
POD_TEMPLATES = Resource("", "v1", "podtemplates", kind="PodTemplate")
SECRETS = Resource("", "v1", "secrets", kind="Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", kind="ConfigMap")
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False, kind="PersistentVolume")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", kind="PersistentVolumeClaim")
JOBS = Resource("batch", "v1", "jobs", kind="Job")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", kind="JobSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", kind="Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", kind="ReplicaSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", kind="StatefulSet")
LEADER_WORKER_SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", kind="LeaderWorkerSet")
_TRAINER = ("trainer.kubeflow.org", "v1alpha1")
TRAINING_RUNTIMES = Resource(*_TRAINER, "trainingruntimes", kind="TrainingRuntime")
CLUSTER_TRAINING_RUNTIMES = Resource(
    *_TRAINER, "clustertrainingruntimes", namespaced=False, kind="ClusterTrainingRuntime"
)
CLUSTER_PROFILES = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", kind="ClusterProfile")
#: of Karpenter
NODE_POOLS = Resource("karpenter.sh", "v1", "nodepools", namespaced=False, kind="NodePool")
PROVISIONING_REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", kind="ProvisioningRequest")
LEASES = Resource("coordination.k8s.io", "v1", "leases", kind="Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", kind="Event")
#: the same objects under their older name, by which kubectl reads them
CORE_EVENTS = Resource("", "v1", "events", kind="Event")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", kind="RoleBinding")
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False, kind="ClusterRoleBinding"
)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, kind="PriorityClass")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False, kind="RuntimeClass")
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False, kind="DeviceClass")
#: of clusters that do not serve v1 yet
OLD_RESOURCE_SLICES = Resource("resource.k8s.io", "v1beta1", "resourceslices", namespaced=False, kind="ResourceSlice")
OLD_RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1beta1", "resourceclaims", kind="ResourceClaim")
RESOURCE_SLICES = OLD_RESOURCE_SLICES._replace(version="v1")
RESOURCE_CLAIMS = OLD_RESOURCE_CLAIMS._replace(version="v1")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", kind="ResourceClaimTemplate")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False, kind="CustomResourceDefinition"
)
_ADMISSION = ("admissionregistration.k8s.io", "v1")
MUTATING_WEBHOOKS = Resource(
    *_ADMISSION, "mutatingwebhookconfigurations", namespaced=False, kind="MutatingWebhookConfiguration"
)
VALIDATING_WEBHOOKS = Resource(
    *_ADMISSION, "validatingwebhookconfigurations", namespaced=False, kind="ValidatingWebhookConfiguration"
)
VALIDATING_POLICIES = Resource(
    *_ADMISSION, "validatingadmissionpolicies", namespaced=False, kind="ValidatingAdmissionPolicy"
)
VALIDATING_POLICY_BINDINGS = Resource(
    *_ADMISSION, "validatingadmissionpolicybindings", namespaced=False, kind="ValidatingAdmissionPolicyBinding"
)
MUTATING_POLICIES = Resource(*_ADMISSION, "mutatingadmissionpolicies", namespaced=False, kind="MutatingAdmissionPolicy")
MUTATING_POLICY_BINDINGS = Resource(
    *_ADMISSION, "mutatingadmissionpolicybindings", namespaced=False, kind="MutatingAdmissionPolicyBinding"
)

#: every kind above, by its manifest name
BY_KIND: dict[str, Resource] = {
    resource.kind: resource for resource in list(globals().values()) if isinstance(resource, Resource)
}
