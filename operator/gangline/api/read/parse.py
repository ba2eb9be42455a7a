"""From objects as the API server gives them (JSON, v1beta2) to the engine's facts.

Pure functions; a malformed object raises ParseError and nothing else. Values that live long share what is equal: pod
templates are read once per content (see `podspec`).
"""

from __future__ import annotations

from typing import Any

from gangline.api import names
from gangline.api.read import podspec
from gangline.api.read.parse_workload import NO_CONDITION, admission, conditions, holding, is_true, needs, workload
from gangline.api.read.reading import (
    Json,
    ParseError,
    amounts,
    child,
    flag,
    items,
    labels,
    millis,
    needed,
    optional_amount,
    optional_number,
    root,
    text,
    texts,
    weight,
)
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
    "topology",
    "workload",
]

# --- configuration ----------------------------------------------------------------------------------------------------


def flavor(obj: Any) -> model.Flavor:
    spec = child(root(obj), "spec", "")
    return model.Flavor(
        name=_name(obj),
        node_labels=labels(spec, "nodeLabels", "spec"),
        taints=podspec.taints(spec, "nodeTaints", "spec"),
        tolerations=podspec.tolerations(spec, "tolerations", "spec"),
        topology=text(spec, "topologyName", "spec"),
        autoscaled=labels(child(obj, "metadata", ""), "annotations", "metadata").get(names.AUTOSCALED) == "true",
    )


def cohort(obj: Any) -> model.Cohort:
    spec = child(root(obj), "spec", "")
    return model.Cohort(
        name=_name(obj),
        parent=text(spec, "parentName", "spec"),
        groups=_groups(spec),
        weight=weight(spec, "spec"),
    )


def cluster_queue(obj: Any) -> model.ClusterQueue:
    spec = child(root(obj), "spec", "")
    metadata = child(obj, "metadata", "")
    scope = child(spec, "admissionScope", "spec")
    selector = child(spec, "namespaceSelector", "spec")
    selects_none = spec.get("namespaceSelector") is None
    return model.ClusterQueue(
        name=_name(obj),
        cohort=text(spec, "cohortName", "spec"),
        strategy=text(spec, "queueingStrategy", "spec", "BestEffortFIFO"),
        groups=_groups(spec),
        fungibility=_fungibility(child(spec, "flavorFungibility", "spec")),
        preemption=_preemption(child(spec, "preemption", "spec")),
        weight=weight(spec, "spec"),
        namespace_selector=None
        if selects_none
        else model.LabelSelector(podspec.selector(selector, "spec.namespaceSelector")),
        stop_policy=text(spec, "stopPolicy", "spec", "None"),
        checks=_check_refs(child(spec, "admissionChecksStrategy", "spec")),
        admission_mode=text(scope, "admissionMode", "spec.admissionScope"),
        terminating=metadata.get("deletionTimestamp") is not None,
        labels=labels(metadata, "labels", "metadata"),
    )


def _groups(spec: Json) -> tuple[model.ResourceGroup, ...]:
    groups = items(spec, "resourceGroups", "spec")
    return tuple(_group(group, f"spec.resourceGroups[{i}]") for i, group in enumerate(groups))


def _group(group: Json, path: str) -> model.ResourceGroup:
    flavors = tuple(_quotas(f, f"{path}.flavors[{i}]") for i, f in enumerate(items(group, "flavors", path)))
    covered = texts(group, "coveredResources", path)
    for i, quotas in enumerate(flavors):
        if set(quotas.resources) != set(covered):
            raise ParseError(f"{path}.flavors[{i}].resources", "must list exactly the resources in coveredResources")
    return model.ResourceGroup(covered, flavors)


def _quotas(flavor: Json, path: str) -> model.FlavorQuotas:
    resources = [
        _quota(resource, f"{path}.resources[{i}]") for i, resource in enumerate(items(flavor, "resources", path))
    ]
    return model.FlavorQuotas(needed(flavor, "name", path), dict(resources))


def _quota(resource: Json, path: str) -> tuple[str, model.Quota]:
    name = needed(resource, "name", path)
    nominal = optional_amount(resource, "nominalQuota", name, path)
    if nominal is None:
        raise ParseError(f"{path}.nominalQuota", "is required")
    borrowing = optional_amount(resource, "borrowingLimit", name, path)
    lending = optional_amount(resource, "lendingLimit", name, path)
    return name, model.Quota(nominal, borrowing, lending)


def _fungibility(body: Json) -> model.Fungibility:
    path = "spec.flavorFungibility"
    return model.Fungibility(
        when_can_borrow=text(body, "whenCanBorrow", path, "MayStopSearch"),
        when_can_preempt=text(body, "whenCanPreempt", path, "TryNextFlavor"),
        preference=text(body, "preference", path),
    )


def _preemption(body: Json) -> model.PreemptionPolicy:
    path = "spec.preemption"
    borrow = child(body, "borrowWithinCohort", path)
    return model.PreemptionPolicy(
        within_cluster_queue=text(body, "withinClusterQueue", path, "Never"),
        reclaim_within_cohort=text(body, "reclaimWithinCohort", path, "Never"),
        borrow_within_cohort=text(borrow, "policy", f"{path}.borrowWithinCohort", "Never"),
        max_priority_threshold=optional_number(borrow, "maxPriorityThreshold", f"{path}.borrowWithinCohort"),
    )


def _check_refs(strategy: Json) -> tuple[model.CheckRef, ...]:
    path = "spec.admissionChecksStrategy"
    rules = items(strategy, "admissionChecks", path)
    return tuple(
        model.CheckRef(
            needed(rule, "name", f"{path}.admissionChecks[{i}]"),
            texts(rule, "onFlavors", f"{path}.admissionChecks[{i}]"),
        )
        for i, rule in enumerate(rules)
    )


def local_queue(obj: Any) -> model.LocalQueue:
    """`consumed` is in engine units (cpu in milli)."""
    spec = child(root(obj), "spec", "")
    metadata = child(obj, "metadata", "")
    path = "status.fairSharing.admissionFairSharingStatus"
    fair = child(child(obj, "status", ""), "fairSharing", "status")
    usage = child(fair, "admissionFairSharingStatus", "status.fairSharing")
    return model.LocalQueue(
        namespace=needed(metadata, "namespace", "metadata"),
        name=_name(obj),
        cluster_queue=text(spec, "clusterQueue", "spec"),
        stop_policy=text(spec, "stopPolicy", "spec", "None"),
        weight=weight(spec, "spec"),
        terminating=metadata.get("deletionTimestamp") is not None,
        consumed={name: float(size) for name, size in amounts(usage, "consumedResources", path).items()},
        consumed_at=millis(usage, "lastUpdate", path),
    )


def admission_check(obj: Any) -> model.AdmissionCheck:
    status = child(root(obj), "status", "")
    return model.AdmissionCheck(
        name=_name(obj),
        controller=text(child(obj, "spec", ""), "controllerName", "spec"),
        active=is_true(conditions(status).get(names.ACTIVE, NO_CONDITION)),
    )


def topology(obj: Any) -> model.Topology:
    levels = items(child(root(obj), "spec", ""), "levels", "spec")
    keys = tuple(needed(level, "nodeLabel", f"spec.levels[{i}]") for i, level in enumerate(levels))
    return model.Topology(_name(obj), keys)


def namespace(obj: Any) -> model.Namespace:
    name = _name(root(obj))
    return model.Namespace(name, labels(child(obj, "metadata", ""), "labels", "metadata"))


def node(obj: Any) -> model.Node:
    """Heartbeats are left out, and annotations that Kubernetes' own parts keep: they change and decide nothing."""
    metadata, spec, status = child(root(obj), "metadata", ""), child(obj, "spec", ""), child(obj, "status", "")
    found = conditions(status)
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
            key: value
            for key, value in labels(metadata, "annotations", "metadata").items()
            if not key.partition("/")[0].endswith(_KUBERNETES_OWN)
        },
        capacity=amounts(status, "capacity", "status"),
    )


#: whose annotations of nodes say nothing of their health
_KUBERNETES_OWN = (".kubernetes.io", "kwok.x-k8s.io")


def _observed(condition: Json, kind: str) -> tuple[str, int]:
    path = f"status.conditions[{kind}]"
    return text(condition, "status", path), millis(condition, "lastTransitionTime", path)


def foreign_pod(obj: Any) -> model.ForeignPod | None:
    """The pod as a taker of node capacity; None while it is on no node or when it has ended."""
    spec = child(root(obj), "spec", "")
    node_name = text(spec, "nodeName", "spec")
    if not node_name or text(child(obj, "status", ""), "phase", "status") in ("Succeeded", "Failed"):
        return None
    metadata = child(obj, "metadata", "")
    key = f"{needed(metadata, 'namespace', 'metadata')}/{_name(obj)}"
    return model.ForeignPod(key, node_name, needs(spec, "spec").requests)


def _name(obj: Json) -> str:
    return needed(child(obj, "metadata", ""), "name", "metadata")
