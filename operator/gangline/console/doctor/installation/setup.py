"""What administrators set up wrong: flavors without nodes, quota that nobody can use, namespaces that no queue selects.

Found before the first job; `gangline.api.read.setup_faults` says what each fault is, and what mends it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from gangline.api import names, quantity
from gangline.api.read import parse, setup_faults
from gangline.api.read.configuration import Configuration, ConfigurationError
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules
from gangline.api.read.reading import ParseError
from gangline.api.read.setup_faults import FlavorsAndNodes, SetupFault
from gangline.console.doctor import node_growth
from gangline.console.doctor.cluster import ClusterReads, Finding, failure, ok, some, warning
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.installation import granted
from gangline.control.answers.workloads.snapshot import pod_requests
from gangline.control.answers.workloads.words import counted
from gangline.engine.model import Flavor, Node, Requests
from gangline.jobs import KINDS
from gangline.jobs.base import JobKind
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import Json, key_of
from gangline.objects import JobObject, Stored

#: findings of one kind of fault before the rest is counted
_MOST: Final = 10


async def flavors(cluster: ClusterReads) -> Findings:
    """Flavors without nodes, flavors that tolerate too little, and flavors of which there is more quota than there are nodes."""
    known = await _flavors_and_nodes(cluster)
    queues = [*await cluster.list(kube.CLUSTER_QUEUES), *await cluster.list(kube.COHORTS)]
    faults = [fault for name in sorted(known.flavors) for fault in known.flavor_faults(name)]
    for finding in _findings([*faults, *known.quota_faults(queues)]):
        yield finding
    if not known.nodes:
        yield warning("the cluster has no nodes", "add nodes: until then no job that is admitted runs")
    elif not faults:
        yield ok(f"{counted(len(known.flavors), 'ResourceFlavor')}, each with nodes that its pods get onto")


async def quota(cluster: ClusterReads) -> Findings:
    """Resources that no node offers, and queues that lack what nearly every job asks for."""
    known, rules = await _flavors_and_nodes(cluster), await _rules(cluster)
    queues = await cluster.list(kube.CLUSTER_QUEUES)
    offered = [fault for queue in queues for fault in known.resource_faults(queue, rules)]
    lacking = [fault for queue in queues for fault in setup_faults.coverage_faults(queue, rules)]
    for finding in _findings([*offered, *lacking]):
        yield finding
    if not offered and not lacking:
        yield ok(
            f"{counted(len(queues), 'ClusterQueue')}: nodes offer what there is quota for, cpu and memory are covered"
        )


async def namespaces(cluster: ClusterReads) -> Findings:
    """ClusterQueues that refuse the jobs of the namespaces whose LocalQueues lead to them, or of all namespaces."""
    labels = {
        row["metadata"]["name"]: row["metadata"].get("labels") or {} for row in await cluster.list(kube.NAMESPACES)
    }
    users: dict[str, list[str]] = defaultdict(list)
    for row in await cluster.list(kube.LOCAL_QUEUES):
        users[(row.get("spec") or {}).get("clusterQueue") or ""].append(row["metadata"]["namespace"])
    faults = list[SetupFault]()
    for queue in await cluster.list(kube.CLUSTER_QUEUES):
        name = queue["metadata"]["name"]
        try:
            selector = parse.cluster_queue(queue).namespace_selector
        except ParseError:  # its condition Active says so
            continue
        faults += setup_faults.selector_faults(name, selector, users[name], labels)
    for finding in _findings(faults):
        yield finding
    if not faults:
        yield ok("each ClusterQueue admits jobs of the namespaces whose LocalQueues lead to it")


async def policies(cluster: ClusterReads) -> Findings:
    """QueuePolicies that select no ClusterQueue."""
    queues, found = await cluster.list(kube.CLUSTER_QUEUES), await cluster.list(kube.QUEUE_POLICIES)
    faults = list(setup_faults.idle_policies(found, queues))
    for finding in _findings(faults):
        yield finding
    if not faults:
        yield ok(f"{len(found)} QueuePolicies, each for some ClusterQueue" if found else "there is no QueuePolicy")


async def unqueued_jobs(cluster: ClusterReads) -> Findings:
    """Jobs without a queue in namespaces that have one: they run, and take room that quota says is free."""
    queues: dict[str, list[str]] = defaultdict(list)
    for row in await cluster.list(kube.LOCAL_QUEUES):
        queues[row["metadata"]["namespace"]].append(row["metadata"]["name"])
    found = list[str]()
    advice = ""
    for kind in KINDS:
        try:
            async for page in cluster.api.pages(kind.resource, label_selector=f"!{names.QUEUE_NAME}"):
                for job in page.items:
                    namespace = job["metadata"]["namespace"]
                    if namespace in queues and _is_unqueued(kind, job):
                        found.append(f"{kind.kind} {key_of(job)}")
                        advice = advice or (
                            f"delete it and create it again with the label {names.QUEUE_NAME}: "
                            f"{sorted(queues[namespace])[0]} (namespace {namespace})"
                        )
        except NotFound:  # the kind is not installed
            continue
    if found:
        what = f"{counted(len(found), 'job')} without a queue in namespaces that have one ({some(found)})"
        yield warning(f"{what}: quota does not count {'it' if len(found) == 1 else 'them'}", advice, found)
    else:
        yield ok("each job in a namespace with a LocalQueue names a queue")


def _is_unqueued(kind: JobKind, job: Json) -> bool:
    """Whether a job that has not ended names no queue, also not by the annotation of old manifests, and belongs to no other."""
    meta = job["metadata"]
    if (
        meta.get("ownerReferences")
        or names.QUEUE_NAME in (meta.get("annotations") or {})
        or meta.get("deletionTimestamp")
    ):
        return False
    return kind.finished(JobObject(job)) is None


async def pod_sizes(cluster: ClusterReads) -> Findings:
    """Waiting Workloads with pods that are larger than any node of their queue's flavors."""
    known = await _flavors_and_nodes(cluster)
    largest = {
        name: setup_faults.most_of(nodes) if (nodes := known.nodes_of(name)) and not flavor.autoscaled else None
        for name, flavor in known.flavors.items()
    }
    queues = {row["metadata"]["name"]: (row.get("spec") or {}) for row in await cluster.list(kube.CLUSTER_QUEUES)}
    leads = {
        key_of(row): (row.get("spec") or {}).get("clusterQueue") or "" for row in await cluster.list(kube.LOCAL_QUEUES)
    }
    found, first, waiting = list[str](), "", 0
    async for page in cluster.api.pages(kube.WORKLOADS):
        for workload in page.items:
            stored, spec = Stored(workload), workload.get("spec") or {}
            if stored.true_condition(names.QUOTA_RESERVED) or stored.true_condition(names.FINISHED):
                continue
            waiting += 1
            queue = queues.get(leads.get(f"{workload['metadata']['namespace']}/{spec.get('queueName')}", ""), {})
            for pods in spec.get("podSets") or ():
                asked = pod_requests((pods.get("template") or {}).get("spec") or {})
                if wide := setup_faults.wider_than_nodes(queue.get("resourceGroups") or (), asked, largest):
                    found.append(key_of(workload))
                    first = first or _too_wide(asked, *wide)
                    break
    if found:
        detail = (
            f"{counted(len(found), 'Workload')} with pods that fit on no node ({some(found)}): a pod asks for {first}"
        )
        yield warning(detail, "ask for less in each pod, and for more pods", found)
    else:
        yield ok(f"{counted(waiting, 'Workload')} waiting, none with a pod that is larger than the nodes")


def _too_wide(asked: Requests, resource: str, flavors: tuple[str, ...], most: int) -> str:
    text, largest = quantity.format(asked[resource], resource), quantity.format(most, resource)
    return f"{text} {resource}, and no node of {some(flavors)} has more than {largest}"


# --- what the checks share --------------------------------------------------------------------------------------------


async def _flavors_and_nodes(cluster: ClusterReads) -> FlavorsAndNodes:
    raw, listed = await cluster.list(kube.RESOURCE_FLAVORS), await cluster.list(kube.NODES)
    grows = await node_growth.growing(cluster, raw, listed)
    return flavors_and_nodes(raw, listed, grows)


def flavors_and_nodes(raw: Iterable[Json], listed: Iterable[Json], grows: Iterable[str] = ()) -> FlavorsAndNodes:
    """The flavors and nodes as values; those that cannot be read are left out, since other checks name them."""
    able = set(grows)
    flavors, nodes = dict[str, Flavor](), list[Node]()
    for each in raw:
        try:
            flavor = parse.flavor(each)
        except ParseError:
            continue
        flavors[flavor.name] = replace(flavor, autoscaled=flavor.name in able)
    for each in listed:
        try:
            nodes.append(parse.node(each))
        except ParseError:
            continue
    return FlavorsAndNodes(flavors, nodes)


async def _rules(cluster: ClusterReads) -> ResourceRules:
    """How the configuration counts resources; as they are where it cannot be read."""
    try:
        chosen: Configuration | None = await granted.stored(cluster)
    except (ConfigurationError, Forbidden):  # another check tells it
        return EVERYTHING
    return chosen.resources if chosen is not None else EVERYTHING


def _findings(faults: list[SetupFault]) -> Iterator[Finding]:
    """A finding for each fault, the serious ones first, and one for those beyond the first."""
    ranked = sorted(faults, key=lambda fault: not fault.serious)
    for fault in ranked[:_MOST]:
        found = failure if fault.serious else warning
        yield found(f"{fault.subject}: {fault.detail}", fault.advice, [fault.subject.rpartition(" ")[2]])
    if len(ranked) > _MOST:
        others = [fault.subject for fault in ranked[_MOST:]]
        found = failure if any(fault.serious for fault in ranked[_MOST:]) else warning
        yield found(f"{len(others)} more of the same kind ({some(others)})", "mend these first, and look again", others)
