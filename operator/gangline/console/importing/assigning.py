"""Admissions of what runs already: the flavors and the topology domains of the nodes that its pods are on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from gangline.api import names
from gangline.api.read import parse
from gangline.api.read.workloads import parse_workload
from gangline.console.importing.adoptions import Adoption, NotAdoptableError, Subject
from gangline.console.importing.cluster_facts import ImportFacts
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import PodObject

#: keeps the new Workload out of its queue until its admission is written
GATE: Final = f"{names.OWN_GROUP}/import"
_HOST_NAME: Final = "kubernetes.io/hostname"
#: the pods of a pod set: (its name, how many pod sets there are) -> pods
PodsOf: TypeAlias = Callable[[str, int], Sequence[PodObject]]


def adoption(
    subject: Subject, queue: str, body: Json, pods_of: PodsOf, facts: ImportFacts, labels: Mapping[str, str]
) -> Adoption:
    """The adoption with the Workload `body`, which gets these labels more. Raises NotAdoptableError and ParseError."""
    namespace = body["metadata"]["namespace"]
    cluster_queue = _cluster_queue(namespace, queue, facts)
    body["metadata"].setdefault("labels", {}).update(labels)
    for row in body["metadata"]["ownerReferences"]:
        # no controller yet: the operator leaves it alone until what runs names it, and it is gone when that is
        row |= {"controller": False, "blockOwnerDeletion": False}
    body["metadata"].setdefault("annotations", {})[names.ADMISSION_GATED_BY] = GATE
    # its uid is given by the API server
    fact = parse_workload.workload({**body, "metadata": {**body["metadata"], "uid": "new"}}, facts.rules(namespace))
    assignments = [
        _assignment(pod_set, cluster_queue, pods_of(pod_set.name, len(fact.pod_sets)), facts)
        for pod_set in fact.pod_sets
    ]
    admission = model.Admission(cluster_queue.name, tuple(assignments))
    return Adoption(subject, queue, body, admission, _checks(cluster_queue, admission))


def _cluster_queue(namespace: str, queue: str, facts: ImportFacts) -> model.ClusterQueue:
    local = facts.find(kube.LOCAL_QUEUES, f"{namespace}/{queue}")
    if local is None:
        raise NotAdoptableError(f'namespace {namespace} has no LocalQueue "{queue}"')
    name = parse.local_queue(local).cluster_queue
    found = facts.find(kube.CLUSTER_QUEUES, name)
    if found is None:
        raise NotAdoptableError(f'LocalQueue "{queue}" leads to ClusterQueue "{name}", which does not exist')
    cluster_queue = parse.cluster_queue(found)
    if not cluster_queue.groups:
        raise NotAdoptableError(f'ClusterQueue "{name}" has no resourceGroups')
    return cluster_queue


def _assignment(
    pod_set: model.PodSet, queue: model.ClusterQueue, pods: Sequence[PodObject], facts: ImportFacts
) -> model.PodSetAssignment:
    usage = {resource: max(0, size) * pod_set.count for resource, size in pod_set.counted.items()}
    if any("pods" in group.covered for group in queue.groups):
        usage["pods"] = pod_set.count
    flavors: dict[str, str] = {}
    for resource, size in usage.items():
        group = next((group for group in queue.groups if resource in group.covered), None)
        if group is not None:
            flavors[resource] = _flavor(group, pods, facts)
        elif size:
            raise NotAdoptableError(f'ClusterQueue "{queue.name}" has no quota for {resource}')
    usage = {resource: size for resource, size in usage.items() if resource in flavors}
    return model.PodSetAssignment(pod_set.name, pod_set.count, flavors, usage, _topology(pod_set, flavors, pods, facts))


def _flavor(group: model.ResourceGroup, pods: Sequence[PodObject], facts: ImportFacts) -> str:
    """The first flavor whose node labels all nodes of the pods have; without nodes, the first flavor."""
    nodes = sorted({node for pod in pods if (node := pod.node)})
    for quotas in group.flavors:
        flavor = _flavor_object(quotas.name, facts)
        if all(flavor.node_labels.items() <= facts.nodes.get(node, {}).items() for node in nodes):
            return quotas.name
    offered = ", ".join(quotas.name for quotas in group.flavors)
    raise NotAdoptableError(f"its pods run on {', '.join(nodes[:3])}, which no flavor has alone (flavors: {offered})")


def _flavor_object(name: str, facts: ImportFacts) -> model.Flavor:
    found = facts.find(kube.RESOURCE_FLAVORS, name)
    if found is None:
        raise NotAdoptableError(f'ResourceFlavor "{name}" does not exist')
    return parse.flavor(found)


def _topology(
    pod_set: model.PodSet, flavors: Mapping[str, str], pods: Sequence[PodObject], facts: ImportFacts
) -> model.TopologyAssignment | None:
    """The topology domains of a pod set's pods, if its flavor has a topology; None if not."""
    topologies = {_flavor_object(flavor, facts).topology for flavor in flavors.values()} - {""}
    if not topologies:
        return None
    name = sorted(topologies)[0]
    found = facts.find(kube.TOPOLOGIES, name)
    if found is None:
        raise NotAdoptableError(f'Topology "{name}" does not exist')
    levels = parse.topology(found).levels
    shown = levels[-1:] if levels[-1] == _HOST_NAME else levels
    domains: Counter[tuple[str, ...]] = Counter()
    for pod in pods:
        labels = facts.nodes.get(pod.node, {})
        if all(level in labels for level in levels):
            domains[tuple(labels[level] for level in shown)] += 1
    if domains.total() != pod_set.count:
        raise NotAdoptableError(
            f'{domains.total()} of its {pod_set.count} pods are on nodes of topology "{name}": it can be adopted while all are'
        )
    rows = (model.Domain(values, count) for values, count in sorted(domains.items()))
    return model.TopologyAssignment(tuple(shown), tuple(rows))


def _checks(queue: model.ClusterQueue, admission: model.Admission) -> tuple[str, ...]:
    used = {flavor for assignment in admission.pod_sets for flavor in assignment.flavors.values()}
    return tuple(check.name for check in queue.checks if not check.on_flavors or used & set(check.on_flavors))
