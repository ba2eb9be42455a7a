"""The kinds of objects that the mirror holds: which of them the engine reads and how, and which a cluster may lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gangline.api import jobkinds, names
from gangline.api.jobkinds.others import others
from gangline.api.read import parse
from gangline.engine import model
from gangline.jobs import BY_RESOURCE, EXTERNAL
from gangline.jobs.base import JobKind
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource

#: Resources whose objects the engine reads, and how. The key of each is its engine key.
READERS: dict[Resource, tuple[type[model.Item], Callable[[Json], model.Item]]] = {
    kube.RESOURCE_FLAVORS: (model.Flavor, parse.flavor),
    kube.COHORTS: (model.Cohort, parse.cohort),
    kube.CLUSTER_QUEUES: (model.ClusterQueue, parse.cluster_queue),
    kube.LOCAL_QUEUES: (model.LocalQueue, parse.local_queue),
    kube.ADMISSION_CHECKS: (model.AdmissionCheck, parse.admission_check),
    kube.TOPOLOGIES: (model.Topology, parse.topology),
    kube.NAMESPACES: (model.Namespace, parse.namespace),
    kube.NODES: (model.Node, parse.node),
    kube.WORKLOADS: (model.Workload, parse.workload),
}

#: Resources that say what the pods of Workloads count for, see `request_rules`.
COUNTING: tuple[Resource, ...] = (
    kube.LIMIT_RANGES,
    kube.RUNTIME_CLASSES,
    kube.RESOURCE_CLAIM_TEMPLATES,
    kube.DEVICE_CLASSES,
)

#: Resources that say which cards nodes have, and who got which, see `control.nodes.cards`.
INVENTORY: tuple[Resource, ...] = (
    kube.RESOURCE_SLICES,
    kube.RESOURCE_CLAIMS,
    kube.OLD_RESOURCE_SLICES,
    kube.OLD_RESOURCE_CLAIMS,
)

#: Objects that describe the pods of jobs.
DESCRIPTIONS: tuple[Resource, ...] = tuple(resource for each in jobkinds.BUILT_IN for resource in each.descriptions)

#: Resources that only the plans read.
PLAIN: tuple[Resource, ...] = (
    kube.QUEUE_POLICIES,
    kube.RESERVATIONS,
    kube.QUOTA_PLANS,
    kube.JOB_PROFILES,
    kube.WORKLOAD_PRIORITY_CLASSES,
    kube.PRIORITY_CLASSES,
    kube.SERVICES,
    kube.PROVISIONING_CONFIGS,
    kube.PROVISIONING_REQUESTS,
    kube.POD_TEMPLATES,
    kube.MULTI_KUEUE_CONFIGS,
    kube.MULTI_KUEUE_CLUSTERS,
    kube.STATEFUL_SETS,
    kube.LEADER_WORKER_SETS,
    *DESCRIPTIONS,
)

#: Kinds with an object or more for each job.
_MANY = frozenset(
    {
        *(kube.SERVICES, kube.WORKLOADS, kube.NODES, kube.NAMESPACES),
        *(kube.PROVISIONING_REQUESTS, kube.POD_TEMPLATES),
        *(kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS),
    }
)

#: Kinds that are few and change rarely: null fields are removed from their objects at all depths, as in Kubernetes' own kinds.
CONFIGURATION: frozenset[Resource] = frozenset({*COUNTING, *PLAIN, *READERS} - _MANY)

#: AdmissionChecks, and what their controllers are configured by.
CHECK_CONFIGURATION: frozenset[Resource] = frozenset(
    {kube.ADMISSION_CHECKS, kube.PROVISIONING_CONFIGS, kube.MULTI_KUEUE_CONFIGS, kube.MULTI_KUEUE_CLUSTERS}
)

#: Kinds with the finalizer `resource-in-use`: such an object is deleted only when nothing uses it any more.
KEPT_WHILE_IN_USE: frozenset[Resource] = frozenset(
    {kube.CLUSTER_QUEUES, kube.RESOURCE_FLAVORS, kube.TOPOLOGIES, kube.ADMISSION_CHECKS}
)

#: the kinds of jobs that this process knows, among them those that its configuration declares
JOB_KINDS: Mapping[Resource, JobKind] = BY_RESOURCE

#: Resources whose objects are looked up by their controller, which of claims is a pod, besides jobs.
OWNED: frozenset[Resource] = frozenset(
    {
        *(kube.WORKLOADS, kube.SERVICES, kube.PROVISIONING_REQUESTS, kube.POD_TEMPLATES),
        *(kube.RESOURCE_CLAIM_TEMPLATES, kube.RESOURCE_CLAIMS),
    }
)

_OPTIONAL: frozenset[Resource] = frozenset(
    {
        *(kube.RESOURCE_CLAIM_TEMPLATES, kube.DEVICE_CLASSES, *INVENTORY),
        *(kube.QUEUE_POLICIES, kube.RESERVATIONS, kube.QUOTA_PLANS, kube.JOB_PROFILES),
        *(kube.PROVISIONING_CONFIGS, kube.PROVISIONING_REQUESTS),
        *(kube.MULTI_KUEUE_CONFIGS, kube.MULTI_KUEUE_CLUSTERS, kube.LEADER_WORKER_SETS),
    }
)

#: Label selectors that keep foreign objects out of memory where every object of ours carries the label.
SELECTORS: dict[Resource, str] = {kube.SERVICES: names.GPUJOB_LABEL, kube.POD_TEMPLATES: f"{names.MANAGED}=true"}


def unqueued() -> tuple[Resource, ...]:
    """Kinds of which only objects with a queue label are watched, to say that they are not managed."""
    return others(jobkinds.known())


def makers() -> tuple[Resource, ...]:
    """The kinds whose objects make pods."""
    return (*JOB_KINDS, kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS, *unqueued())


def selector(resource: Resource) -> str:
    """The label selector by which a kind is watched, "" = all of its objects."""
    return names.QUEUE_NAME if resource in unqueued() else SELECTORS.get(resource, "")


def optional() -> frozenset[Resource]:
    """Resources that a cluster may lack, for example one that has Kueue's CRDs but not Gangline's: they count as empty then."""
    jobs = [kind.declaration for kind in JOB_KINDS.values()]
    described = {resource for each in jobs for resource in each.descriptions}
    return _OPTIONAL | described | {each.resource for each in jobs if each.optional} | {*_foreign()}


def resources() -> list[Resource]:
    """The resources that have to be watched."""
    return [*COUNTING, *INVENTORY, *READERS, *PLAIN, *JOB_KINDS, *_foreign(), *unqueued()]


def _foreign() -> list[Resource]:
    """The kinds that other controllers queue: those that own what is not queued again, and those sent to other clusters."""
    return list(dict.fromkeys([*jobkinds.external(), *EXTERNAL]))
