"""The facts about a cluster that decide an import: queues, flavors, nodes, classes, and what its pods count for."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gangline.api import jobkinds
from gangline.api.read import parse
from gangline.api.read.counting.namespace_rules import NamespaceRules
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.api.read.reading import amount
from gangline.console.importing.adoptions import Adoption
from gangline.control.feed.request_rules import RequestRules
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json, Resource
from gangline.objects import PodObject, Stored, view

#: the kinds that the planning looks up by name
_LOOKED_UP = (
    kube.LOCAL_QUEUES,
    kube.CLUSTER_QUEUES,
    kube.RESOURCE_FLAVORS,
    kube.TOPOLOGIES,
    kube.WORKLOAD_PRIORITY_CLASSES,
    kube.PRIORITY_CLASSES,
)
#: what stands between pods and the job that made them, beside other jobs
_BETWEEN = (kube.DEPLOYMENTS, kube.REPLICA_SETS, kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS)
_COUNTING = (kube.LIMIT_RANGES, kube.RUNTIME_CLASSES, kube.RESOURCE_CLAIM_TEMPLATES, kube.DEVICE_CLASSES)


@dataclass(frozen=True, slots=True)
class ImportFacts:
    """Objects by kind and key, labels of nodes by name, and the pods of each job by the job's uid."""

    objects: Mapping[Resource, Mapping[str, Stored]] = field(default_factory=dict[Resource, Mapping[str, Stored]])
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    pods: Mapping[str, Sequence[PodObject]] = field(default_factory=dict[str, Sequence[PodObject]])
    counting: RequestRules = field(default_factory=RequestRules)
    #: pods, by their uids, that an object of a kind has made which queues or has queued pods
    of_others: frozenset[str] = frozenset()

    def find(self, resource: Resource, key: str) -> Stored | None:
        return self.objects.get(resource, {}).get(key)

    def rules(self, namespace: str) -> NamespaceRules:
        return self.counting.of(namespace)

    def priority_class(self, reference: Json) -> Stored | None:
        """The class that a `priorityClassRef` names."""
        return self.find(kube.BY_KIND[reference["kind"]], reference["name"])

    def default_priority_class(self) -> Stored | None:
        """The PriorityClass for pods that name none."""
        classes = self.objects.get(kube.PRIORITY_CLASSES, {}).values()
        return next((found for found in classes if found.get("globalDefault")), None)


async def read(
    api: ApiClient,
    namespaces: Sequence[str],
    resources: ResourceRules,
    owners: Sequence[Stored],
    pods: Sequence[PodObject],
) -> ImportFacts:
    """The facts of these namespaces. `owners` are the jobs in them, `pods` their pods."""
    looked_up = (*_LOOKED_UP, *(kind for each in jobkinds.known() for kind in each.descriptions))
    every = await asyncio.gather(*(_listed(api, kind) for kind in (*looked_up, *_COUNTING)))
    objects = {kind: {obj.key: obj for obj in found} for kind, found in zip(looked_up, every, strict=False)}
    counted = dict(zip(_COUNTING, every[len(looked_up) :], strict=True))
    if counted[kube.RESOURCE_CLAIM_TEMPLATES]:  # without claims, devices count for nobody
        counted[kube.RESOURCE_SLICES] = await _listed(api, kube.RESOURCE_SLICES)
    counting = RequestRules(resources)
    for kind, found in counted.items():
        for obj in found:
            counting.put(kind, obj.key, obj)
    nodes = {obj.name: obj.labels for obj in await _listed(api, kube.NODES)}
    between = {kind: [obj for each in namespaces for obj in await _listed(api, kind, each)] for kind in _BETWEEN}
    by_owner = pods_of(pods, [*owners, *(obj for made in between.values() for obj in made)])
    alone = {obj.uid for obj in between[kube.REPLICA_SETS]}
    of_others = (pod.uid for owner, made in by_owner.items() if owner not in alone for pod in made)
    return ImportFacts(objects, nodes, by_owner, counting, frozenset(of_others))


async def listed(api: ApiClient, kind: Resource, namespace: str) -> list[Json]:
    """The objects of a namespace, with the kind that they have when read alone; none of a kind that the cluster does not have."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [{**head, **obj} for obj in await _listed(api, kind, namespace)]


async def _listed(api: ApiClient, kind: Resource, namespace: str | None = None) -> list[Stored]:
    """The objects as lists return them; none of a kind that the cluster does not have."""
    try:
        return [view(kind, obj) for obj in (await api.list(kind, namespace)).items]
    except NotFound:
        return []


def pods_of(pods: Sequence[PodObject], owners: Sequence[Stored]) -> dict[str, list[PodObject]]:
    """Unfinished pods by the uid of the topmost of `owners` that they belong to. Pods may own pods: a driver of Spark does."""
    owners = [*owners, *(pod for pod in pods if pod.controller is not None)]
    above = {obj.uid: uid for obj in owners if (uid := obj.controller_uid) is not None}
    known = {obj.uid for obj in owners}
    found: dict[str, list[PodObject]] = defaultdict(list)
    for pod in pods:
        owner = pod.controller_uid
        if owner is None or pod.has_ended:
            continue
        for _ in range(10):  # owners cannot be nested deeper
            if above.get(owner) not in known:
                break
            owner = above[owner]
        if owner in known:
            found[owner].append(pod)
    return dict(found)


# --- the use of each quota by all adoptions together. Pure ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlavorUse:
    """The use of one flavor of a ClusterQueue by adopted jobs, beside what is reserved there already. Engine units."""

    cluster_queue: str
    flavor: str
    resource: str
    adopted: int
    reserved: int
    nominal: int

    @property
    def over(self) -> int:
        """The amount by which the nominal quota is exceeded."""
        return max(0, self.adopted + self.reserved - self.nominal)


def uses(adoptions: Sequence[Adoption], facts: ImportFacts) -> list[FlavorUse]:
    adopted: Counter[tuple[str, str, str]] = Counter()
    for adoption in adoptions:
        for assignment in adoption.admission.pod_sets:
            for resource, size in assignment.usage.items():
                adopted[adoption.admission.cluster_queue, assignment.flavors[resource], resource] += size
    return [
        FlavorUse(queue, flavor, resource, total, *_quota(queue, flavor, resource, facts))
        for (queue, flavor, resource), total in sorted(adopted.items())
    ]


def _quota(queue: str, flavor: str, resource: str, facts: ImportFacts) -> tuple[int, int]:
    """The amount that is reserved already, and the nominal quota."""
    obj = facts.find(kube.CLUSTER_QUEUES, queue) or {}
    rows = (obj.get("status") or {}).get("flavorsReservation") or ()
    reserved = next(
        (
            amount(each.get("total", "0"), resource, "status.flavorsReservation")
            for row in rows
            if row.get("name") == flavor
            for each in row.get("resources") or ()
            if each.get("name") == resource
        ),
        0,
    )
    for group in parse.cluster_queue(obj).groups:
        for quotas in group.flavors:
            if quotas.name == flavor and resource in quotas.resources:
                return reserved, quotas.resources[resource].nominal
    return reserved, 0
