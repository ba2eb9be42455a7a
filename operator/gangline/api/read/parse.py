"""Reads objects as the API server delivers them (JSON, v1beta2) into the engine's facts.

Kinds that change rarely are read with the models of their CRDs, see `models`; nodes, pods and namespaces by hand, since there
are many of them and few of their fields matter. Pure functions; an invalid object raises ParseError and nothing else. Equal
long-lived values are shared: pod templates are read once per content (see `podspec`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from gangline.api import names
from gangline.api.read import models, podspec
from gangline.api.read.reading import (
    Json,
    ParseError,
    all_amounts,
    amount,
    amounts,
    child,
    flag,
    labels,
    millis,
    moment,
    needed,
    root,
    text,
    weight,
)
from gangline.api.read.workloads.admissions import admission
from gangline.api.read.workloads.parse_workload import NO_CONDITION, conditions, holding, is_true, needs, workload
from gangline.api.schema import common
from gangline.api.schema.v1beta2 import clusterqueue, config, localqueue
from gangline.api.sharing import traits
from gangline.engine import model

__all__ = [
    "ParseError",
    "admission",
    "admission_check",
    "cluster_queue",
    "cohort",
    "flavor",
    "foreign_pod",
    "holding",
    "local_queue",
    "namespace",
    "node",
    "priority_class",
    "topology",
    "workload",
]

# --- configuration ----------------------------------------------------------------------------------------------------


def flavor(obj: Any) -> model.Flavor:
    spec = models.read(config.ResourceFlavorSpec, child(root(obj), "spec", ""), "spec")
    return model.Flavor(
        name=_name(obj),
        node_labels=spec.node_labels or {},
        taints=tuple(model.Taint(taint.key, taint.value or "", taint.effect) for taint in spec.node_taints or ()),
        tolerations=tuple(_toleration(each) for each in spec.tolerations or ()),
        topology=spec.topology_name or "",
        autoscaled=labels(child(obj, "metadata", ""), "annotations", "metadata").get(names.AUTOSCALED) == "true",
    )


def _toleration(section: common.Toleration) -> model.Toleration:
    return model.Toleration(section.key or "", section.operator or "Equal", section.value or "", section.effect or "")


def cohort(obj: Any) -> model.Cohort:
    spec = models.read(config.CohortSpec, child(root(obj), "spec", ""), "spec")
    return model.Cohort(
        name=_name(obj),
        parent=spec.parent_name or "",
        groups=_groups(spec.resource_groups or ()),
        weight=_weight(spec.fair_sharing),
    )


def cluster_queue(obj: Any) -> model.ClusterQueue:
    spec = models.read(clusterqueue.ClusterQueueSpec, child(root(obj), "spec", ""), "spec")
    metadata = child(obj, "metadata", "")
    strategy, scope = spec.admission_checks_strategy, spec.admission_scope
    return model.ClusterQueue(
        name=_name(obj),
        cohort=spec.cohort_name or "",
        strategy=spec.queueing_strategy,
        groups=_groups(spec.resource_groups or ()),
        fungibility=_fungibility(spec.flavor_fungibility),
        preemption=_preemption(spec.preemption),
        weight=_weight(spec.fair_sharing),
        namespace_selector=None if spec.namespace_selector is None else _selector(spec.namespace_selector),
        stop_policy=spec.stop_policy,
        checks=tuple(
            model.CheckRef(rule.name, tuple(rule.on_flavors or ()))
            for rule in (() if strategy is None else strategy.admission_checks)
        ),
        admission_mode="" if scope is None else scope.admission_mode,
        concurrent_admission=_concurrent_admission(spec.concurrent_admission_policy),
        terminating=metadata.get("deletionTimestamp") is not None,
        labels=labels(metadata, "labels", "metadata"),
    )


def _concurrent_admission(policy: clusterqueue.ConcurrentAdmissionPolicy | None) -> model.ConcurrentAdmission | None:
    if policy is None:
        return None
    bounds = policy.migration.constraints
    return model.ConcurrentAdmission(policy.migration.mode, (bounds and bounds.last_acceptable_flavor_name) or "")


def _groups(groups: Sequence[clusterqueue.ResourceGroup]) -> tuple[model.ResourceGroup, ...]:
    return tuple(_group(group, f"spec.resourceGroups[{i}]") for i, group in enumerate(groups))


def _group(group: clusterqueue.ResourceGroup, path: str) -> model.ResourceGroup:
    covered = tuple(group.covered_resources)
    flavors = tuple(_quotas(flavor, f"{path}.flavors[{i}]") for i, flavor in enumerate(group.flavors))
    for i, quotas in enumerate(flavors):
        if set(quotas.resources) != set(covered):
            raise ParseError(f"{path}.flavors[{i}].resources", "must list exactly the resources in coveredResources")
    return model.ResourceGroup(covered, flavors)


def _quotas(flavor: clusterqueue.FlavorQuotas, path: str) -> model.FlavorQuotas:
    resources = {each.name: _quota(each, f"{path}.resources[{i}]") for i, each in enumerate(flavor.resources)}
    return model.FlavorQuotas(flavor.name, resources)


def _quota(section: clusterqueue.ResourceQuota, path: str) -> model.Quota:
    borrowing, lending = section.borrowing_limit, section.lending_limit
    return model.Quota(
        amount(section.nominal_quota, section.name, f"{path}.nominalQuota"),
        None if borrowing is None else amount(borrowing, section.name, f"{path}.borrowingLimit"),
        None if lending is None else amount(lending, section.name, f"{path}.lendingLimit"),
    )


def _fungibility(section: clusterqueue.FlavorFungibility) -> model.Fungibility:
    return model.Fungibility(section.when_can_borrow, section.when_can_preempt, section.preference or "")


def _preemption(section: clusterqueue.Preemption) -> model.PreemptionPolicy:
    return model.PreemptionPolicy(
        within_cluster_queue=section.within_cluster_queue,
        reclaim_within_cohort=section.reclaim_within_cohort,
        borrow_within_cohort=section.borrow_within_cohort.policy,
        max_priority_threshold=section.borrow_within_cohort.max_priority_threshold,
    )


def _selector(section: common.LabelSelector) -> model.LabelSelector:
    exact = tuple(model.Expression(key, "In", (value,)) for key, value in (section.match_labels or {}).items())
    return model.LabelSelector((*exact, *_expressions(section.match_expressions or (), "spec.namespaceSelector")))


def _expressions(section: Iterable[common.LabelSelectorRequirement], path: str) -> Iterable[model.Expression]:
    for i, each in enumerate(section):
        podspec.check_operator(each.operator, f"{path}.matchExpressions[{i}]", podspec.SELECTOR_OPERATORS)
        yield model.Expression(each.key, each.operator, tuple(each.values or ()))


def _weight(section: common.FairSharing | None) -> float:
    return 1.0 if section is None else weight(section.weight, "spec.fairSharing.weight")


def local_queue(obj: Any) -> model.LocalQueue:
    """`consumed` is in engine units (cpu in milli)."""
    spec = models.read(localqueue.LocalQueueSpec, child(root(obj), "spec", ""), "spec")
    fair = child(child(obj, "status", ""), "fairSharing", "status")
    usage = models.read(
        localqueue.LocalQueueFairSharingStatus, fair, "status.fairSharing"
    ).admission_fair_sharing_status
    consumed, since = (usage.consumed_resources, usage.last_update) if usage is not None else (None, None)
    path = "status.fairSharing.admissionFairSharingStatus"
    metadata = child(obj, "metadata", "")
    return model.LocalQueue(
        namespace=needed(metadata, "namespace", "metadata"),
        name=_name(obj),
        cluster_queue=spec.cluster_queue or "",
        stop_policy=spec.stop_policy,
        weight=_weight(spec.fair_sharing),
        terminating=metadata.get("deletionTimestamp") is not None,
        consumed=_consumed(consumed or {}, f"{path}.consumedResources"),
        consumed_at=0 if since is None else moment(since, f"{path}.lastUpdate"),
    )


def _consumed(section: Mapping[str, int | str], path: str) -> dict[str, float]:
    return {name: float(size) for name, size in all_amounts(section, path).items()}


def admission_check(obj: Any) -> model.AdmissionCheck:
    section = child(root(obj), "spec", "")
    active = conditions(child(obj, "status", "")).get(names.ACTIVE, NO_CONDITION)
    return model.AdmissionCheck(
        name=_name(obj),
        controller=models.read(config.AdmissionCheckSpec, section, "spec").controller_name if section else "",
        active=is_true(active),
    )


def topology(obj: Any) -> model.Topology:
    section = child(root(obj), "spec", "")
    levels = models.read(config.TopologySpec, section, "spec").levels if section else ()
    return model.Topology(_name(obj), tuple(level.node_label for level in levels))


def priority_class(obj: Any) -> int:
    """The value of a WorkloadPriorityClass; or of a PriorityClass, which has the same field."""
    return models.read(config.WorkloadPriorityClass, {"value": root(obj).get("value")}, "").value


# --- namespaces, nodes, pods ------------------------------------------------------------------------------------------


def namespace(obj: Any) -> model.Namespace:
    name = _name(root(obj))
    return model.Namespace(name, labels(child(obj, "metadata", ""), "labels", "metadata"))


def node(obj: Any, *, images: bool = False) -> model.Node:
    """Heartbeats are left out, and annotations of Kubernetes' own components: they change often and decide nothing. So are
    images, unless a placement policy looks at them.
    """
    metadata, spec, status = child(root(obj), "metadata", ""), child(obj, "spec", ""), child(obj, "status", "")
    found, written = conditions(status), labels(metadata, "annotations", "metadata")
    return model.Node(
        name=_name(obj),
        labels=labels(metadata, "labels", "metadata"),
        allocatable=amounts(status, "allocatable", "status"),
        taints=podspec.taints(spec, "taints", "spec"),
        ready=is_true(found.get("Ready", NO_CONDITION)),
        unschedulable=flag(spec, "unschedulable", "spec", False),
        uid=text(metadata, "uid", "metadata"),
        conditions={kind: _observed(row, kind) for kind, row in found.items()},
        annotations={
            key: value for key, value in written.items() if not key.partition("/")[0].endswith(_KUBERNETES_OWN)
        },
        capacity=amounts(status, "capacity", "status"),
        images=_images(status) if images else {},
        interfaces=dict(traits.interfaces_of(written)) if names.NETWORK in written else {},
        idle_watts=traits.watts(written[names.IDLE_WATTS]) or 0 if names.IDLE_WATTS in written else 0,
        gpu_watts=traits.watts(written[names.GPU_WATTS]) or 0 if names.GPU_WATTS in written else 0,
    )


#: images of a node that are read, each by all its names
_MOST_IMAGES = 512
_MOST_NAMES = 8


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _images(status: Json) -> dict[str, int]:
    """What the node has of images, by each of their names. A list that is shortened or wrong excludes nobody from the queue: what
    cannot be read is not there.
    """
    rows, found = status.get("images"), dict[str, int]()
    for row in _list(rows)[:_MOST_IMAGES]:
        body = cast(Json, row) if isinstance(row, dict) else {}
        size = body.get("sizeBytes")
        for name in _list(body.get("names"))[:_MOST_NAMES]:
            if isinstance(name, str) and len(name) <= 512:
                found[name] = size if isinstance(size, int) and 0 <= size < 1 << 50 else 0
    return found


#: writers of node annotations without relevance for health
_KUBERNETES_OWN = (".kubernetes.io", "kwok.x-k8s.io")


def _observed(condition: Json, kind: str) -> tuple[str, int]:
    path = f"status.conditions[{kind}]"
    return text(condition, "status", path), millis(condition, "lastTransitionTime", path)


#: annotations of a pod that asks for a place by topology
_PLACED_BY_TOPOLOGY = frozenset(
    {
        names.REQUIRED_TOPOLOGY,
        names.PREFERRED_TOPOLOGY,
        names.UNCONSTRAINED_TOPOLOGY,
        names.SLICE_REQUIRED_TOPOLOGY,
        names.SLICE_CONSTRAINTS,
    }
)


def lone_pod(obj: Any, *, images: bool = False) -> model.PodSet:
    """What a pod outside of all gangs asks of nodes. Raises ParseError."""
    spec = child(root(obj), "spec", "")
    found = needs(spec, "spec")
    annotations = child(child(obj, "metadata", ""), "annotations", "metadata")
    return model.PodSet(
        name="main",
        count=1,
        requests=found.requests,
        node_selector=found.node_selector,
        tolerations=found.tolerations,
        affinity=found.affinity,
        preferred_affinity=found.preferred_affinity,
        traits=traits.traits(annotations, spec, images=images),
    )


def foreign_pod(obj: Any) -> model.ForeignPod | None:
    """The pod's use of node capacity; None while it is not bound, when it has ended, or when its Workload counts for it.

    The latter is so wherever the pod asks for a place by topology, as in Kueue: pods of other controllers prove their gang to
    nobody, and must not count twice.
    """
    spec = child(root(obj), "spec", "")
    node_name = text(spec, "nodeName", "spec")
    if not node_name or text(child(obj, "status", ""), "phase", "status") in ("Succeeded", "Failed"):
        return None
    metadata = child(obj, "metadata", "")
    annotations = child(metadata, "annotations", "metadata")
    if not _PLACED_BY_TOPOLOGY.isdisjoint(annotations):
        return None
    key = f"{needed(metadata, 'namespace', 'metadata')}/{_name(obj)}"
    taken = {model.INTERFACE + name: amount for name, amount in traits.interfaces_of(annotations)}
    return model.ForeignPod(key, node_name, {**needs(spec, "spec").requests, **taken})


def _name(obj: Json) -> str:
    return needed(child(obj, "metadata", ""), "name", "metadata")
