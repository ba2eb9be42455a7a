"""Workloads from JSON (v1beta2) to the engine's facts: spec, status and admission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.read import counting, podspec, swap_record, topology_slices
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
    number,
    optional_millis,
    optional_number,
    root,
    text,
    texts,
)
from gangline.engine import model

NO_CONDITION: Final[Json] = {}


class _Counted(NamedTuple):
    """Pod sets, and why they are not admitted, see `counting.violation` and `counting.unclaimable`."""

    pod_sets: tuple[model.PodSet, ...]
    violation: str
    unclaimable: str


#: Pod sets by the rules that hold for them and their JSON; a queue of 15,000 workloads has a few hundred different ones.
_KNOWN: Final[dict[bytes, _Counted]] = {}
_MOST_KNOWN: Final = 4096
_CLAIMS: Final = b'"resourceClaims"'
#: priorities are numbers of 32 bits
_MOST_BOOST: Final = 2**31 - 1


def workload(obj: Any, rules: counting.Rules = counting.NO_RULES) -> model.Workload:
    """Spec and status as one fact. It holds an admission only while QuotaReserved is True.

    `rules` say what its pods count for in its namespace.
    """
    metadata, spec, status = child(root(obj), "metadata", ""), child(obj, "spec", ""), child(obj, "status", "")
    annotations = labels(metadata, "annotations", "metadata")
    found = conditions(status)
    reserved = found.get(names.QUOTA_RESERVED, NO_CONDITION)
    admitted = found.get(names.ADMITTED, NO_CONDITION)
    evicted = found.get(names.EVICTED, NO_CONDITION)
    ready = found.get(names.PODS_READY, NO_CONDITION)
    requeued = found.get(names.REQUEUED)
    requeue = child(status, "requeueState", "status")
    pod_sets, violation, unclaimable = _pod_sets(spec, swap_record.whole_domains(annotations), rules)
    record = swap_record.read(annotations)
    held = _held(status, pod_sets) if is_true(reserved) else None
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
        gates=gates_in(annotations.get(names.ADMISSION_GATED_BY, "")),
        max_execution_seconds=optional_number(spec, "maximumExecutionTimeSeconds", "spec"),
        job_uid=labels(metadata, "labels", "metadata").get(names.JOB_UID, ""),
        violation=unclaimable or violation,
        overtaken=bool(unclaimable),
        admission=held,
        reserved_at=_since(reserved) if held else 0,
        admitted=is_true(admitted),
        admitted_at=_since(admitted) if is_true(admitted) else 0,
        evicted=_reason_if_true(evicted),
        evicted_at=_since(evicted) if is_true(evicted) else 0,
        preempted=_reason_if_true(found.get(names.PREEMPTED, NO_CONDITION)),
        pods_ready=is_true(ready),
        pods_ready_at=_since(ready),
        pods_were_ready=ready.get("status") == "False" and ready.get("reason") == "WaitForRecovery",
        finished=is_true(found.get(names.FINISHED, NO_CONDITION)),
        on_hold=reserved.get("status") == "False" and reserved.get("reason") == "OnHold",
        requeued=None if requeued is None else is_true(requeued),
        requeue_count=number(requeue, "count", "status.requeueState"),
        requeue_at=optional_millis(requeue, "requeueAt", "status.requeueState"),
        past_execution_seconds=number(status, "accumulatedPastExecutionTimeSeconds", "status"),
        preemptions=_preemptions(status),
        reclaimable=_counts(status, "reclaimablePods"),
        checks=_checks(status),
        unhealthy_nodes=tuple(
            needed(failed, "name", f"status.unhealthyNodes[{i}]")
            for i, failed in enumerate(items(status, "unhealthyNodes", "status"))
        ),
        checkpoint_seconds=_checkpoint(annotations.get(names.CHECKPOINT_INTERVAL, "")),
        replaced=record.replaced,
        avoid=record.avoid,
        healed_at=record.at,
        backfilled=is_true(found.get(names.BACKFILLED, NO_CONDITION)),
        overrun=_reason_if_true(found.get(names.OVERRUN, NO_CONDITION)),
        overran=found.get(names.OVERRUN, NO_CONDITION).get("reason") == "Overdue",
        stalled=_reason_if_true(found.get(names.STALLED, NO_CONDITION)),
        refused_at=_refused_at(found.get(names.PODS_REFUSED, NO_CONDITION)),
        restarts_whole=annotations.get(names.NODE_LOSS, "") not in ("", swap_record.REPLACE),
    )


def holding(obj: Any) -> model.Workload | None:
    """The facts needed to count the quota of a workload that cannot be read otherwise; None if it holds none.

    Its pod sets are those of its admission. Raises ParseError if not even that can be read.
    """
    metadata, status = child(root(obj), "metadata", ""), child(obj, "status", "")
    found = conditions(status)
    if not is_true(found.get(names.QUOTA_RESERVED, NO_CONDITION)) or is_true(found.get(names.FINISHED, NO_CONDITION)):
        return None
    admitted = found.get(names.ADMITTED, NO_CONDITION)
    rows = items(child(status, "admission", "status"), "podSetAssignments", "status.admission")
    bare = [{name: value for name, value in row.items() if name != "topologyAssignment"} for row in rows]
    held = admission({**child(status, "admission", "status"), "podSetAssignments": bare})
    return model.Workload(
        uid=text(metadata, "uid", "metadata"),
        namespace=needed(metadata, "namespace", "metadata"),
        name=needed(metadata, "name", "metadata"),
        queue=text(child(obj, "spec", ""), "queueName", "spec"),
        pod_sets=tuple(_of_assignment(each) for each in held.pod_sets),
        created=millis(metadata, "creationTimestamp", "metadata"),
        admission=held,
        reserved_at=_since(found[names.QUOTA_RESERVED]),
        admitted=is_true(admitted),
        admitted_at=_since(admitted) if is_true(admitted) else 0,
        evicted=_reason_if_true(found.get(names.EVICTED, NO_CONDITION)),
        pods_ready=True,
    )


def _of_assignment(assignment: model.PodSetAssignment) -> model.PodSet:
    count = max(1, assignment.count)
    return model.PodSet(assignment.name, count, {name: -(-size // count) for name, size in assignment.usage.items()})


def _checkpoint(written: str) -> float | None:
    """A value that is no duration is ignored, see `_boost`."""
    try:
        return max(0.0, quantity.parse_duration(written)) or None if written else None
    except quantity.QuantityError:
        return None


def _boost(written: str) -> int:
    """A value that is not a number is ignored: a wrong annotation must not hide a workload that holds quota."""
    size = bounded.whole(written[1:] if written[:1] in ("+", "-") else written)
    if size is None or size > _MOST_BOOST:
        return 0
    return -size if written.startswith("-") else size


@bounded.parser(65_536, instead=("(too long a list)",), worst=(",", " ,", "a,", "a/b,"))
def gates_in(written: str) -> tuple[str, ...]:
    """The controllers that gate it. Of too long a list only its existence is known: the workload stays gated."""
    return tuple(gate.strip() for gate in written.split(",") if gate.strip()) if written else ()


def _pod_sets(spec: Json, whole: Mapping[str, tuple[str, int]], rules: counting.Rules) -> _Counted:
    """Equal pod sets are read once, and are one object afterwards, which makes comparing them cheap as well."""
    bodies = items(spec, "podSets", "spec")
    try:
        content = orjson.dumps([bodies, whole])
    except orjson.JSONEncodeError as error:
        raise ParseError("spec.podSets", f"is not JSON: {error}") from None
    shape = rules.digest + content
    if _CLAIMS in content:
        shape += rules.of_claims(bodies)
    known = _KNOWN.get(shape)
    if known is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _count(bodies, whole, rules)
        if len(content) <= podspec.MOST_KEPT:
            _KNOWN[shape] = known
    return known


def _count(bodies: Sequence[Json], whole: Mapping[str, tuple[str, int]], rules: counting.Rules) -> _Counted:
    specs = [_completed_spec(body, f"spec.podSets[{i}]", rules) for i, body in enumerate(bodies)]
    pod_sets = [
        _pod_set(body, spec, f"spec.podSets[{i}]", whole, rules)
        for i, (body, spec) in enumerate(zip(bodies, specs, strict=True))
    ]
    named = [(pod_set.name, spec) for pod_set, spec in zip(pod_sets, specs, strict=True)]
    return _Counted(_within_64_bits(pod_sets), counting.violation(specs, rules), counting.unclaimable(named, rules))


def _completed_spec(body: Json, path: str, rules: counting.Rules) -> Json:
    spec = child(child(body, "template", path), "spec", f"{path}.template")
    try:
        return counting.completed(spec, rules)
    except ParseError as error:
        raise error.within(f"{path}.template.spec") from None


def _within_64_bits(pod_sets: Sequence[model.PodSet]) -> tuple[model.PodSet, ...]:
    """The requests of one pod, such that all pods of the workload together request at most UNLIMITED."""
    pods = sum(pod_set.count for pod_set in pod_sets)
    most = model.UNLIMITED // max(1, pods)
    return tuple(
        replace(
            pod_set,
            requests=_at_most(most, pod_set.requests),
            quota=None if pod_set.quota is None else _at_most(most, pod_set.quota),
        )
        if any(size > most for size in (*pod_set.requests.values(), *(pod_set.quota or {}).values()))
        else pod_set
        for pod_set in pod_sets
    )


def _at_most(most: int, requests: model.Requests) -> dict[str, int]:
    return {name: min(most, size) for name, size in requests.items()}


def _pod_set(
    body: Json, spec: Json, path: str, whole: Mapping[str, tuple[str, int]], rules: counting.Rules
) -> model.PodSet:
    found = needs(spec, f"{path}.template.spec")
    count = number(body, "count", path, 1)
    if count < 0:
        raise ParseError(f"{path}.count", f"{count} must not be negative")
    name = text(body, "name", path, "main")
    exclusive, domains = whole.get(name, ("", 0))
    quota = rules.quota(spec, found.requests)
    return model.PodSet(
        name=name,
        count=count,
        requests=found.requests,
        quota=None if quota is found.requests else quota,
        min_count=optional_number(body, "minCount", path),
        node_selector=found.node_selector,
        tolerations=found.tolerations,
        affinity=found.affinity,
        preferred_affinity=found.preferred_affinity,
        topology=_topology_request(child(body, "topologyRequest", path), f"{path}.topologyRequest"),
        shape=found.shape,
        exclusive=exclusive,
        domains=domains,
    )


def needs(spec: Json, path: str) -> podspec.PodNeeds:
    """The needs of pods with this spec; `path` is the path of the spec."""
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


def conditions(status: Json) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for i, condition in enumerate(items(status, "conditions", "status")):
        kind = condition.get("type")
        if not isinstance(kind, str):
            raise ParseError(f"status.conditions[{i}].type", "must be a string")
        found[kind] = condition
    return found


def is_true(condition: Json) -> bool:
    return condition.get("status") == "True"


def _since(condition: Json) -> int:
    return millis(condition, "lastTransitionTime", f"status.conditions[{condition.get('type')}]") if condition else 0


def _refused_at(condition: Json) -> int:
    return millis(condition, "lastTransitionTime", "status.conditions") if condition.get("status") == "True" else 0


def _reason_if_true(condition: Json) -> str:
    return text(condition, "reason", "status.conditions") if condition.get("status") == "True" else ""


def _counts(status: Json, key: str) -> dict[str, int]:
    rows = items(status, key, "status")
    return {
        text(row, "name", f"status.{key}[{i}]"): number(row, "count", f"status.{key}[{i}]")
        for i, row in enumerate(rows)
    }


def _preemptions(status: Json) -> int:
    """The number of its preemptions, as Kueue counts them in the statistics of its evictions."""
    path = "status.schedulingStats"
    rows = items(child(status, "schedulingStats", "status"), "evictions", path)
    return sum(
        number(row, "count", f"{path}.evictions[{i}]")
        for i, row in enumerate(rows)
        if row.get("reason") == names.PREEMPTED
    )


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
        selectors=_selectors(row, path),
    )


def _selectors(row: Json, path: str) -> dict[str, dict[str, str]]:
    """The node selectors among a check's updates of pod sets; several updates of one pod set add up."""
    found: dict[str, dict[str, str]] = {}
    for i, update in enumerate(items(row, "podSetUpdates", path)):
        where = f"{path}.podSetUpdates[{i}]"
        name = needed(update, "name", where)
        if selector := labels(update, "nodeSelector", where):
            found[name] = {**found.get(name, {}), **selector}
    return found


# --- admission --------------------------------------------------------------------------------------------------------


def _held(status: Json, pod_sets: Iterable[model.PodSet]) -> model.Admission | None:
    body = child(status, "admission", "status")
    return admission(body, {pod_set.name: pod_set.count for pod_set in pod_sets}) if body else None


def admission(body: Json, counts: dict[str, int] | None = None, path: str = "status.admission") -> model.Admission:
    """`status.admission` as the engine's value. `counts` are used if an assignment has no number of pods.

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
