"""The kinds of objects that the mirror holds: which of them the engine reads and how, and which a cluster may lack."""

from __future__ import annotations

from collections.abc import Callable

from gangline.api import names
from gangline.api.read import parse
from gangline.engine import model
from gangline.jobs import KINDS
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
)

#: Resources that only the plans read.
PLAIN: tuple[Resource, ...] = (
    kube.QUEUE_POLICIES,
    kube.WORKLOAD_PRIORITY_CLASSES,
    kube.PRIORITY_CLASSES,
    kube.SERVICES,
    kube.PROVISIONING_CONFIGS,
    kube.PROVISIONING_REQUESTS,
    kube.POD_TEMPLATES,
)

#: Kinds with an object or more for each job.
_MANY = frozenset(
    {
        *(kube.SERVICES, kube.WORKLOADS, kube.NODES, kube.NAMESPACES),
        *(kube.PROVISIONING_REQUESTS, kube.POD_TEMPLATES),
    }
)

#: Kinds that are few and change rarely: null fields are removed from their objects at all depths, as in Kubernetes' own kinds.
CONFIGURATION: frozenset[Resource] = frozenset({*COUNTING, *PLAIN, *READERS} - _MANY)

#: Kinds with the finalizer `resource-in-use`: such an object is deleted only when nothing uses it any more.
KEPT_WHILE_IN_USE: frozenset[Resource] = frozenset(
    {kube.CLUSTER_QUEUES, kube.RESOURCE_FLAVORS, kube.TOPOLOGIES, kube.ADMISSION_CHECKS}
)

JOB_KINDS: dict[Resource, JobKind] = {kind.resource: kind for kind in KINDS}

#: Resources whose objects are looked up by their controller.
OWNED: frozenset[Resource] = frozenset(
    {kube.WORKLOADS, kube.SERVICES, kube.PROVISIONING_REQUESTS, kube.POD_TEMPLATES, *JOB_KINDS}
)

#: Resources that a cluster may lack, for example one that has Kueue's CRDs but not Gangline's: they count as empty then.
OPTIONAL: frozenset[Resource] = frozenset(
    {
        kube.RESOURCE_CLAIM_TEMPLATES,
        *(kube.QUEUE_POLICIES, kube.PROVISIONING_CONFIGS, kube.PROVISIONING_REQUESTS),
        *(kind.resource for kind in KINDS if kind.optional),
    }
)

#: Label selectors that keep foreign objects out of memory where every object of ours carries the label.
SELECTORS: dict[Resource, str] = {kube.SERVICES: names.GPUJOB_LABEL, kube.POD_TEMPLATES: f"{names.MANAGED}=true"}


def resources() -> list[Resource]:
    """All resources that have to be watched."""
    return [*COUNTING, *READERS, *PLAIN, *JOB_KINDS]
