"""What is set up wrong, as far as one job waits for it: the part of `gangline admin doctor` that `gangline why` says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gangline.api.read import parse, setup_faults
from gangline.api.read.reading import ParseError
from gangline.api.read.setup_faults import FlavorsAndNodes, SetupFault
from gangline.control.answers.circumstances import flavors_of
from gangline.control.answers.nodes.room import FOR_NODES
from gangline.control.answers.sight import Sight
from gangline.control.answers.source import Source
from gangline.control.answers.workloads.reasons import parse as parsed
from gangline.control.answers.workloads.snapshot import JobState, WorkloadView
from gangline.control.feed.mirror import Mirror
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import Stored

#: faults that one answer names
MOST: Final = 4


@dataclass(frozen=True, slots=True)
class JobSetup:
    """Faults that concern one job. `blocking`: the job does not run before one of them is mended; `by_author`: by whoever wrote
    the job.
    """

    faults: Sequence[SetupFault] = ()
    blocking: bool = False
    by_author: bool = False

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of an explanation, each a label and a text."""
        for fault in self.faults[:MOST]:
            yield "setup", str(fault)
        if self.blocking:
            who = "" if self.by_author else "an administrator to mend it: "
            yield "needs", f"{who}{self.faults[0].advice}"


def setup_of(source: Source, sight: Sight, view: WorkloadView, queue: str, *, unscheduled: bool) -> JobSetup:
    """The faults because of which the job waits, or its pods do. `unscheduled`: the scheduler finds no node for some.

    The asker learns of her own namespace and queue; of QueuePolicies and other queues only who may see everything.
    """
    waits = view.state is JobState.PENDING
    if view.hidden or not (waits or unscheduled):
        return JobSetup()
    mirror = source.mirror
    raw = mirror.get(kube.CLUSTER_QUEUES, queue)
    if raw is None:
        return JobSetup(tuple(_lost(mirror, sight, view)))
    if waits and (refused := _refused(mirror, view, raw)):
        return JobSetup(refused, blocking=True)
    missing = {each.resource for each in parsed(view.message).obstacles if each.kind == "undeclared"}
    everywhere = FlavorsAndNodes({}, tuple(source.engine.nodes().values()))
    if waits and (misspelt := tuple(everywhere.misspelt(view.job, missing))):
        return JobSetup(misspelt, blocking=True, by_author=True)
    flavors = view.flavors or flavors_of(mirror, {queue})
    known = _known(source, flavors)
    by_flavor = {name: _of_flavor(source, known, name, view, raw) for name in known.flavors}
    found = sorted((fault for each in by_flavor.values() for fault in each), key=lambda fault: not fault.serious)
    blocking = bool(by_flavor) and all(any(fault.serious for fault in each) for each in by_flavor.values())
    if unscheduled or view.reason in FOR_NODES:
        queues = (*mirror.objects[kube.CLUSTER_QUEUES].values(), *mirror.objects[kube.COHORTS].values())
        found += known.quota_faults(queues, view.amounts, named=sight.everything)
    if waits and sight.everything:
        others = list(mirror.objects[kube.CLUSTER_QUEUES].values())
        found += setup_faults.idle_policies(mirror.objects[kube.QUEUE_POLICIES].values(), others)
    return JobSetup(tuple(found), blocking)


def _of_flavor(
    source: Source, known: FlavorsAndNodes, name: str, view: WorkloadView, queue: Stored
) -> list[SetupFault]:
    """The faults of one flavor that the job has, or may get."""
    value = source.mirror.workload_value(view.key)
    tolerations = value.pod_sets[0].tolerations if value is not None and value.pod_sets else ()
    covered = sorted({resource for _, resource in setup_faults.quotas(queue)})
    wanted = {*view.amounts, *(near for each in view.amounts if (near := setup_faults.close(each, covered)))}
    asked = {"metadata": {"name": queue.name}, "spec": _only(queue, name, wanted)}
    return [*known.flavor_faults(name, tolerations), *known.resource_faults(asked, source.mirror.rules.resources)]


def _only(queue: Stored, flavor: str, wanted: Collection[str]) -> Json:
    """The queue's quotas of one flavor, of these resources."""
    rows = [
        {"name": flavor, "resources": [each for each in row.get("resources") or () if each["name"] in wanted]}
        for group in queue.spec.get("resourceGroups") or ()
        for row in group.get("flavors") or ()
        if row["name"] == flavor
    ]
    return {"resourceGroups": [{"flavors": rows}]}


def _known(source: Source, flavors: Collection[str]) -> FlavorsAndNodes:
    """These flavors, and all nodes."""
    found: dict[str, model.Flavor] = {}
    for name in flavors:
        raw = source.mirror.get(kube.RESOURCE_FLAVORS, name)
        try:
            flavor = parse.flavor(raw) if raw is not None else None
        except ParseError:  # a condition of the queue says so
            continue
        if flavor is not None:
            found[name] = replace(flavor, autoscaled=flavor.autoscaled or name in source.mirror.growing)
    return FlavorsAndNodes(found, tuple(source.engine.nodes().values()))


def _refused(mirror: Mirror, view: WorkloadView, queue: Stored) -> tuple[SetupFault, ...]:
    """The fault of a queue that does not select the job's namespace."""
    try:
        selector = parse.cluster_queue(queue).namespace_selector
    except ParseError:
        return ()
    namespace = mirror.get(kube.NAMESPACES, view.namespace)
    if selector is not None and selector.expressions and namespace is None:
        return ()  # the namespace is not known
    labels = {view.namespace: namespace.labels if namespace is not None else {}}
    return tuple(setup_faults.selector_faults(queue.name, selector, [view.namespace], labels))


def _lost(mirror: Mirror, sight: Sight, view: WorkloadView) -> Iterator[SetupFault]:
    """The fault of a LocalQueue that leads nowhere."""
    local = mirror.get(kube.LOCAL_QUEUES, f"{view.namespace}/{view.queue}")
    if local is not None and (wanted := local.spec.get("clusterQueue")):
        known = mirror.objects[kube.CLUSTER_QUEUES] if sight.everything else ()
        yield setup_faults.lost_local_queue(local.key, wanted, known)
