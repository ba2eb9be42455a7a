"""From objects as the API server gives them (JSON, v1beta2) to the engine's facts.

Pure functions; a malformed object raises ParseError and nothing else. Values that live long share what is equal: pod
templates are read once per content (see `podspec`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gangline.api import names, podspec, topology_slices
from gangline.api.reading import (
    Json,
    ParseError,
    amounts,
    child,
    flag,
    items,
    labels,
    millis,
    needed,
    number,
    optional_amount,
    optional_millis,
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
    "local_queue",
    "namespace",
    "node",
    "topology",
    "workload",
]

_NO_CONDITION: Final[Json] = {}


# --- configuration ----------------------------------------------------------------------------------------------------


def flavor(obj: Any) -> model.Flavor:
    spec = child(root(obj), "spec", "")
    return model.Flavor(
        name=_name(obj),
        node_labels=labels(spec, "nodeLabels", "spec"),
        taints=podspec.taints(spec, "nodeTaints", "spec"),
        tolerations=podspec.tolerations(spec, "tolerations", "spec"),
        topology=text(spec, "topologyName", "spec"),
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
        active=_is_true(_conditions(status).get(names.ACTIVE, _NO_CONDITION)),
    )


def topology(obj: Any) -> model.Topology:
    levels = items(child(root(obj), "spec", ""), "levels", "spec")
    keys = tuple(needed(level, "nodeLabel", f"spec.levels[{i}]") for i, level in enumerate(levels))
    return model.Topology(_name(obj), keys)


def namespace(obj: Any) -> model.Namespace:
    name = _name(root(obj))
    return model.Namespace(name, labels(child(obj, "metadata", ""), "labels", "metadata"))


def node(obj: Any) -> model.Node:
    spec, status = child(root(obj), "spec", ""), child(obj, "status", "")
    return model.Node(
        name=_name(obj),
        labels=labels(child(obj, "metadata", ""), "labels", "metadata"),
        allocatable=amounts(status, "allocatable", "status"),
        taints=podspec.taints(spec, "taints", "spec"),
        ready=_is_true(_conditions(status).get("Ready", _NO_CONDITION)),
        unschedulable=flag(spec, "unschedulable", "spec", False),
    )


def foreign_pod(obj: Any) -> model.ForeignPod | None:
    """The pod as a taker of node capacity; None while it is on no node or when it has ended."""
    spec = child(root(obj), "spec", "")
    node_name = text(spec, "nodeName", "spec")
    if not node_name or text(child(obj, "status", ""), "phase", "status") in ("Succeeded", "Failed"):
        return None
    metadata = child(obj, "metadata", "")
    key = f"{needed(metadata, 'namespace', 'metadata')}/{_name(obj)}"
    return model.ForeignPod(key, node_name, _needs(spec, "spec").requests)


# --- workloads --------------------------------------------------------------------------------------------------------


def workload(obj: Any) -> model.Workload:
    """Spec and status as one fact. It holds an admission only while QuotaReserved is True."""
    metadata, spec, status = child(root(obj), "metadata", ""), child(obj, "spec", ""), child(obj, "status", "")
    annotations = labels(metadata, "annotations", "metadata")
    conditions = _conditions(status)
    reserved = conditions.get(names.QUOTA_RESERVED, _NO_CONDITION)
    admitted = conditions.get(names.ADMITTED, _NO_CONDITION)
    evicted = conditions.get(names.EVICTED, _NO_CONDITION)
    ready = conditions.get(names.PODS_READY, _NO_CONDITION)
    requeued = conditions.get(names.REQUEUED)
    requeue = child(status, "requeueState", "status")
    pod_sets = _pod_sets(spec)
    held = _held(status, pod_sets) if _is_true(reserved) else None
    return model.Workload(
        uid=text(metadata, "uid", "metadata"),
        namespace=needed(metadata, "namespace", "metadata"),
        name=needed(metadata, "name", "metadata"),
        queue=text(spec, "queueName", "spec"),
        pod_sets=pod_sets,
        priority=number(spec, "priority", "spec"),
        boost=_boost(annotations.get(names.PRIORITY_BOOST, "")),
        created=millis(metadata, "creationTimestamp", "metadata"),
        active=flag(spec, "active", "spec", True),
        gates=_gates(annotations.get(names.ADMISSION_GATED_BY, "")),
        max_execution_seconds=optional_number(spec, "maximumExecutionTimeSeconds", "spec"),
        job_uid=labels(metadata, "labels", "metadata").get(names.JOB_UID, ""),
        admission=held,
        reserved_at=_since(reserved) if held else 0,
        admitted=_is_true(admitted),
        admitted_at=_since(admitted) if _is_true(admitted) else 0,
        evicted=_reason_if_true(evicted),
        evicted_at=_since(evicted) if _is_true(evicted) else 0,
        preempted=_reason_if_true(conditions.get(names.PREEMPTED, _NO_CONDITION)),
        pods_ready=_is_true(ready),
        pods_ready_at=_since(ready),
        pods_were_ready=ready.get("status") == "False" and ready.get("reason") == "WaitForRecovery",
        finished=_is_true(conditions.get(names.FINISHED, _NO_CONDITION)),
        on_hold=reserved.get("status") == "False" and reserved.get("reason") == "OnHold",
        requeued=None if requeued is None else _is_true(requeued),
        requeue_count=number(requeue, "count", "status.requeueState"),
        requeue_at=optional_millis(requeue, "requeueAt", "status.requeueState"),
        past_execution_seconds=number(status, "accumulatedPastExecutionTimeSeconds", "status"),
        reclaimable=_counts(status, "reclaimablePods"),
        checks=_checks(status),
        unhealthy_nodes=tuple(
            needed(failed, "name", f"status.unhealthyNodes[{i}]")
            for i, failed in enumerate(items(status, "unhealthyNodes", "status"))
        ),
    )


def _boost(written: str) -> int:
    """What is not a number does not count: a wrong annotation must not hide a workload that holds quota."""
    try:
        return int(written) if len(written) <= 11 else 0
    except ValueError:
        return 0


def _gates(written: str) -> tuple[str, ...]:
    return tuple(gate.strip() for gate in written.split(",") if gate.strip()) if written else ()


def _pod_sets(spec: Json) -> tuple[model.PodSet, ...]:
    return tuple(_pod_set(body, f"spec.podSets[{i}]") for i, body in enumerate(items(spec, "podSets", "spec")))


def _pod_set(body: Json, path: str) -> model.PodSet:
    found = _needs(child(child(body, "template", path), "spec", path), f"{path}.template.spec")
    count = number(body, "count", path, 1)
    if count < 0:
        raise ParseError(f"{path}.count", f"{count} must not be negative")
    return model.PodSet(
        name=text(body, "name", path, "main"),
        count=count,
        requests=found.requests,
        min_count=optional_number(body, "minCount", path),
        node_selector=found.node_selector,
        tolerations=found.tolerations,
        affinity=found.affinity,
        preferred_affinity=found.preferred_affinity,
        topology=_topology_request(child(body, "topologyRequest", path), f"{path}.topologyRequest"),
        shape=found.shape,
    )


def _needs(spec: Json, path: str) -> podspec.PodNeeds:
    try:
        return podspec.needs(spec)
    except ParseError as error:
        raise error.within(path) from None


def _topology_request(body: Json, path: str) -> model.TopologyRequest | None:
    if not body:
        return None
    request = model.TopologyRequest(
        required=text(body, "required", path),
        preferred=text(body, "preferred", path),
        unconstrained=flag(body, "unconstrained", path, False),
        slices=_slices(body, path),
        group=text(body, "podSetGroupName", path),
    )
    return None if request == model.TopologyRequest() else request


def _slices(body: Json, path: str) -> tuple[model.Slice, ...]:
    key = "podsetSliceRequiredTopologyConstraints"
    layers = [
        (text(layer, "topology", f"{path}.{key}[{i}]"), number(layer, "size", f"{path}.{key}[{i}]", 1))
        for i, layer in enumerate(items(body, key, path))
    ]
    level = text(body, "podSetSliceRequiredTopology", path)
    if level and not layers:
        layers = [(level, number(body, "podSetSliceSize", path, 1))]
    if any(size < 1 for _, size in layers):
        raise ParseError(path, "the size of a slice must be 1 or more")
    return tuple(model.Slice(topology, size) for topology, size in layers)


# --- status -----------------------------------------------------------------------------------------------------------


def _conditions(status: Json) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for i, condition in enumerate(items(status, "conditions", "status")):
        kind = condition.get("type")
        if not isinstance(kind, str):
            raise ParseError(f"status.conditions[{i}].type", "must be a string")
        found[kind] = condition
    return found


def _is_true(condition: Json) -> bool:
    return condition.get("status") == "True"


def _since(condition: Json) -> int:
    return millis(condition, "lastTransitionTime", f"status.conditions[{condition.get('type')}]") if condition else 0


def _reason_if_true(condition: Json) -> str:
    return text(condition, "reason", "status.conditions") if condition.get("status") == "True" else ""


def _counts(status: Json, key: str) -> dict[str, int]:
    rows = items(status, key, "status")
    return {
        text(row, "name", f"status.{key}[{i}]"): number(row, "count", f"status.{key}[{i}]")
        for i, row in enumerate(rows)
    }


def _checks(status: Json) -> tuple[model.CheckState, ...]:
    rows = items(status, "admissionChecks", "status")
    return tuple(_check(row, f"status.admissionChecks[{i}]") for i, row in enumerate(rows))


def _check(row: Json, path: str) -> model.CheckState:
    return model.CheckState(
        name=needed(row, "name", path),
        state=text(row, "state", path, "Pending"),
        message=text(row, "message", path),
        at=millis(row, "lastTransitionTime", path),
        requeue_after_seconds=optional_number(row, "requeueAfterSeconds", path),
        retry_count=optional_number(row, "retryCount", path),
    )


# --- admission --------------------------------------------------------------------------------------------------------


def _held(status: Json, pod_sets: Iterable[model.PodSet]) -> model.Admission | None:
    body = child(status, "admission", "status")
    return admission(body, {pod_set.name: pod_set.count for pod_set in pod_sets}) if body else None


def admission(body: Json, counts: dict[str, int] | None = None, path: str = "status.admission") -> model.Admission:
    """`status.admission` as the engine's value. `counts` are used where an assignment does not say how many pods.

    The inverse of `render.admission`. Raises ParseError.
    """
    assignments = items(body, "podSetAssignments", path)
    return model.Admission(
        text(body, "clusterQueue", path),
        tuple(_assignment(row, counts or {}, f"{path}.podSetAssignments[{i}]") for i, row in enumerate(assignments)),
    )


def _assignment(row: Json, counts: dict[str, int], path: str) -> model.PodSetAssignment:
    name = text(row, "name", path, "main")
    return model.PodSetAssignment(
        name=name,
        count=number(row, "count", path, counts.get(name, 0)),
        flavors=labels(row, "flavors", path),
        usage=amounts(row, "resourceUsage", path),
        topology=_topology_assignment(child(row, "topologyAssignment", path), f"{path}.topologyAssignment"),
        delayed_topology=text(row, "delayedTopologyRequest", path),
    )


def _topology_assignment(body: Json, path: str) -> model.TopologyAssignment | None:
    if not body:
        return None
    levels = texts(body, "levels", path)
    try:
        domains = topology_slices.decode(body.get("slices") or [], len(levels))
    except topology_slices.SlicesError as error:
        raise ParseError(f"{path}.{error.path}", error.message) from None
    return model.TopologyAssignment(levels, tuple(model.Domain(values, count) for values, count in domains))


def _name(obj: Json) -> str:
    return needed(child(obj, "metadata", ""), "name", "metadata")
