"""Workloads from JSON (v1beta2) to the engine's facts: pod sets, spec and status; `admissions` reads their admission."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson

from gangline import bounded
from gangline.api import dependencies, names, quantity
from gangline.api.label_syntax import annotation_faults, label_faults
from gangline.api.read import podspec
from gangline.api.read.counting import namespace_rules
from gangline.api.read.counting.gpu_shares import GpuShares, gpu_shares
from gangline.api.read.counting.namespace_rules import NO_RULES, NamespaceRules, completed
from gangline.api.read.reading import (
    Json,
    ParseError,
    child,
    flag,
    items,
    labels,
    millis,
    moment,
    needed,
    number,
    optional_millis,
    optional_number,
    root,
    text,
)
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.admissions import admission, held_by
from gangline.api.sharing import share_annotations, traits
from gangline.engine import MOVED, model

# --- parse pod sets ---------------------------------------------------------------------------------------------------
#
# The pod sets of a Workload from JSON (v1beta2): what its pods need and count for, and what they ask of topologies.


class Counted(NamedTuple):
    """Pod sets, and why they are not admitted, see `namespace_rules.violation` and `namespace_rules.unclaimable`."""

    pod_sets: tuple[model.PodSet, ...]
    violation: str
    unclaimable: str


#: Pod sets by the rules that hold for them and their JSON; a queue of 15,000 workloads has a few hundred different ones.
_KNOWN: Final[dict[bytes, Counted]] = {}
_MOST_KNOWN: Final = 4096
_CLAIMS: Final = b'"resourceClaims"'
#: names of shares are of one namespace
_NAMED: Final = tuple(f'"{key}"'.encode() for key in share_annotations.NEIGHBOUR_KEYS)


def pod_sets_of(spec: Json, whole: Mapping[str, tuple[str, int]], rules: NamespaceRules, namespace: str) -> Counted:
    """Equal pod sets are read once, and are one object afterwards, which makes comparing them cheap as well."""
    bodies = items(spec, "podSets", "spec")
    try:
        content = orjson.dumps([bodies, whole])
    except orjson.JSONEncodeError as error:
        raise ParseError("spec.podSets", f"is not JSON: {error}") from None
    shape = rules.digest + content
    if _CLAIMS in content:
        shape += rules.of_claims(bodies)
    named = any(key in content for key in _NAMED)
    if named:
        shape += b"\0" + namespace.encode()
    known = _KNOWN.get(shape)
    if known is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _count(bodies, whole, rules)
        if named:
            own = (replace(each, shares=share_annotations.within(namespace, each.shares)) for each in known.pod_sets)
            known = known._replace(pod_sets=tuple(own))
        if len(content) <= podspec.MOST_KEPT:
            _KNOWN[shape] = known
    return known


def _count(bodies: Sequence[Json], whole: Mapping[str, tuple[str, int]], rules: NamespaceRules) -> Counted:
    specs = [_completed_spec(body, f"spec.podSets[{i}]", rules) for i, body in enumerate(bodies)]
    asked = [
        _asked(body, spec, f"spec.podSets[{i}]", rules)
        for i, (body, spec) in enumerate(zip(bodies, specs, strict=True))
    ]
    pod_sets = [
        _pod_set(body, spec, f"spec.podSets[{i}]", whole, rules, asked[i])
        for i, (body, spec) in enumerate(zip(bodies, specs, strict=True))
    ]
    named = [(pod_set.name, spec) for pod_set, spec in zip(pod_sets, specs, strict=True)]
    faults = (f"spec.podSets[{i}].template.{each.fault}" for i, each in enumerate(asked) if each.fault)
    countable = _within_64_bits(pod_sets)
    violation = (
        _impossible(bodies)
        or namespace_rules.violation(specs, rules)
        or next(faults, "")
        or _beyond_counting(pod_sets, countable)
    )
    return Counted(countable, violation, namespace_rules.unclaimable(named, rules))


def _impossible(bodies: Sequence[Json]) -> str:
    """Why no pod of a template can exist; "" if it can. Webhooks refuse such a template where they see it."""
    for i, body in enumerate(bodies):
        path = f"spec.podSets[{i}].template"
        meta = child(child(body, "template", f"spec.podSets[{i}]"), "metadata", path)
        for part, faults in (("labels", label_faults), ("annotations", annotation_faults)):
            for value, fault in faults(child(meta, part, f"{path}.metadata")):
                named = "" if value is None else f"Invalid value: {bounded.shown(str(value))}: "
                return f"{path}.metadata.{part}: {named}{fault}"
    return ""


def _completed_spec(body: Json, path: str, rules: NamespaceRules) -> Json:
    spec = child(child(body, "template", path), "spec", f"{path}.template")
    try:
        return completed(spec, rules)
    except ParseError as error:
        raise error.within(f"{path}.template.spec") from None


def _asked(body: Json, spec: Json, path: str, rules: NamespaceRules) -> GpuShares:
    needs(spec, f"{path}.template.spec")  # a spec that cannot be read is an error of that field
    template, explained = child(body, "template", path), rules.resources.transformations
    try:
        return gpu_shares(template, spec, explained, rules.cards, rules.claims)
    except ParseError as error:
        raise error.within(path) from None


def _within_64_bits(pod_sets: Sequence[model.PodSet]) -> tuple[model.PodSet, ...]:
    """The requests of one pod, such that all pods of the workload together request at most UNLIMITED."""
    pods = sum(pod_set.count for pod_set in pod_sets)
    most = model.UNLIMITED // max(1, pods)
    return tuple(
        replace(
            pod_set,
            requests=_at_most(most, pod_set.requests),
            quota=None if pod_set.quota is None else _at_most(most, pod_set.quota),
            charges=_at_most(most, pod_set.charges),
        )
        if any(
            size > most for each in (pod_set.requests, pod_set.quota or {}, pod_set.charges) for size in each.values()
        )
        else pod_set
        for pod_set in pod_sets
    )


def _beyond_counting(asked: Sequence[model.PodSet], bounded: Sequence[model.PodSet]) -> str:
    """Why pods that together request more than 64 bits can say are not admitted: no quota is known to be enough for them."""
    for i, (before, after) in enumerate(zip(asked, bounded, strict=True)):
        cut = sorted(name for name, size in before.requests.items() if size > after.requests[name])
        if cut:
            return f"spec.podSets[{i}].count: all pods together request more of {cut[0]} than can be counted"
    return ""


def _at_most(most: int, requests: model.Requests) -> dict[str, int]:
    return {name: min(most, size) for name, size in requests.items()}


def _pod_set(
    body: Json,
    spec: Json,
    path: str,
    whole: Mapping[str, tuple[str, int]],
    rules: NamespaceRules,
    asked: GpuShares,
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
        charges=asked.charges,
        shares=asked.shares,
        min_count=optional_number(body, "minCount", path),
        node_selector=found.node_selector,
        tolerations=found.tolerations,
        affinity=found.affinity,
        preferred_affinity=found.preferred_affinity,
        topology=_topology_request(child(body, "topologyRequest", path), f"{path}.topologyRequest"),
        shape=found.shape,
        exclusive=exclusive,
        domains=domains,
        most_per_node=podspec.neighbours(child(body, "template", path)).most_per_node if found.shape else 0,
        traits=traits.traits(_template_annotations(body, path), spec, images=rules.images),
    )


def _template_annotations(body: Json, path: str) -> Json:
    metadata = child(child(body, "template", path), "metadata", f"{path}.template")
    return child(metadata, "annotations", f"{path}.template.metadata")


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


# --- parse workload ---------------------------------------------------------------------------------------------------
#
# Workloads from JSON (v1beta2) to the engine's facts: spec, status, its pod sets and its admission (`admissions.admission`).


NO_CONDITION: Final[Json] = {}


#: priorities are numbers of 32 bits
_MOST_BOOST: Final = 2**31 - 1


def _gates(annotations: Mapping[str, str], *, waits: bool) -> tuple[str, ...]:
    """The gates that keep a workload from being admitted. The hold of its author is one while it waits."""
    gates = names_in(annotations.get(names.ADMISSION_GATED_BY, ""))
    return (*gates, names.HOLD) if waits and names.is_held(annotations) else gates


def workload(obj: Any, rules: NamespaceRules = NO_RULES) -> model.Workload:
    """Spec and status as one fact. It holds an admission only while QuotaReserved is True.

    `rules` say what its pods count for in its namespace.
    """
    metadata, spec, status = child(root(obj), "metadata", ""), child(obj, "spec", ""), child(obj, "status", "")
    annotations = labels(metadata, "annotations", "metadata")
    found = conditions(status)
    true = _true_conditions(found)
    reserved = found.get(names.QUOTA_RESERVED, NO_CONDITION)
    ready = found.get(names.PODS_READY, NO_CONDITION)
    requeued = found.get(names.REQUEUED)
    requeue = child(status, "requeueState", "status")
    namespace = needed(metadata, "namespace", "metadata")
    pod_sets, violation, unclaimable = pod_sets_of(spec, swap_record.whole_domains(annotations), rules, namespace)
    record = swap_record.read(annotations)
    held = held_by(status, pod_sets) if names.QUOTA_RESERVED in true else None
    marks = labels(metadata, "labels", "metadata")
    return model.Workload(
        uid=text(metadata, "uid", "metadata"),
        namespace=namespace,
        name=needed(metadata, "name", "metadata"),
        queue=text(spec, "queueName", "spec"),
        pod_sets=pod_sets,
        priority=number(spec, "priority", "spec"),
        boost=_boost(annotations[names.PRIORITY_BOOST]) if names.PRIORITY_BOOST in annotations else 0,
        created=millis(metadata, "creationTimestamp", "metadata"),
        active=flag(spec, "active", "spec", True),
        gates=_gates(annotations, waits=held is None),
        waits_for=dependencies.waits_for(annotations) if names.AFTER in annotations and held is None else (),
        preemption_gates=closed_gates(spec, status) if "preemptionGates" in spec else (),
        allowed_flavors=names_in(annotations[names.ALLOWED_FLAVORS]) if names.ALLOWED_FLAVORS in annotations else None,
        variant_of=variant_of(metadata) if names.ALLOWED_FLAVORS in annotations else "",
        replaces=annotations.get(names.REPLACEMENT_FOR, ""),
        has_variants=marks.get(names.CONCURRENT_PARENT) == "true",
        array=_array(annotations, metadata) if names.ARRAY_LIMIT in annotations else None,
        max_execution_seconds=optional_number(spec, "maximumExecutionTimeSeconds", "spec"),
        start_by=_time(annotations[names.START_BY]) if names.START_BY in annotations else None,
        job_uid=marks.get(names.JOB_UID, ""),
        violation=unclaimable or violation,
        overtaken=bool(unclaimable),
        admission=held,
        reserved_at=_since(reserved) if held else 0,
        admitted=names.ADMITTED in true,
        admitted_at=_since(true[names.ADMITTED]) if names.ADMITTED in true else 0,
        evicted=_reason(true, names.EVICTED),
        evicted_at=_since(true[names.EVICTED]) if names.EVICTED in true else 0,
        preempted=_reason(true, names.PREEMPTED),
        moved_for=_moved_for(true[names.PREEMPTED]) if names.PREEMPTED in true else "",
        pods_ready=names.PODS_READY in true,
        pods_ready_at=_since(ready),
        pods_were_ready=ready.get("status") == "False" and ready.get("reason") == "WaitForRecovery",
        finished=names.FINISHED in true,
        on_hold=reserved.get("status") == "False" and reserved.get("reason") == "OnHold",
        lacks_pods=names.WAITING_FOR_REPLACEMENT in true,
        requeued=None if requeued is None or _is_not_queued(requeued) else is_true(requeued),
        requeue_count=number(requeue, "count", "status.requeueState"),
        requeue_at=optional_millis(requeue, "requeueAt", "status.requeueState"),
        past_execution_seconds=number(status, "accumulatedPastExecutionTimeSeconds", "status"),
        preemptions=_preemptions(status) if "schedulingStats" in status else 0,
        reclaimable=_reclaimable(status, annotations.get(names.OUTDATED_RECLAIMABLE, ""))
        if "reclaimablePods" in status
        else {},
        checks=_checks(status) if "admissionChecks" in status else (),
        unhealthy_nodes=_unhealthy_nodes(status) if "unhealthyNodes" in status else (),
        deactivation=_deactivation(true[names.DEACTIVATION_TARGET]) if names.DEACTIVATION_TARGET in true else None,
        checkpoint_seconds=_above_zero(annotations.get(names.CHECKPOINT_INTERVAL, "")),
        replaced=record.replaced,
        avoid=record.avoid,
        healed_at=record.at,
        backfilled=names.BACKFILLED in true,
        overrun=_reason(true, names.OVERRUN),
        overran=names.OVERRUN in found and found[names.OVERRUN].get("reason") == "Overdue",
        stalled=_reason(true, names.STALLED),
        converged=names.CONVERGED in true,
        refused_at=_since(true[names.PODS_REFUSED]) if names.PODS_REFUSED in true else 0,
        unscheduled=_unscheduled(found[names.PODS_UNSCHEDULED]) if names.PODS_UNSCHEDULED in found else None,
        unscheduled_seconds=_above_zero(annotations.get(names.UNSCHEDULED_TIMEOUT, "")),
        unowned=not metadata.get("ownerReferences"),
        lone_pod=_is_of_one_pod(metadata, annotations),
        restarts_whole=annotations.get(names.NODE_LOSS, "") not in ("", swap_record.REPLACE),
    )


def holding(obj: Any) -> model.Workload | None:
    """The facts needed to count the quota of a workload that cannot be read otherwise; None if it holds none.

    Its pod sets are those of its admission. Raises ParseError if not even that can be read.
    """
    metadata, status = child(root(obj), "metadata", ""), child(obj, "status", "")
    true = _true_conditions(conditions(status))
    if names.QUOTA_RESERVED not in true or names.FINISHED in true:
        return None
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
        reserved_at=_since(true[names.QUOTA_RESERVED]),
        admitted=names.ADMITTED in true,
        admitted_at=_since(true[names.ADMITTED]) if names.ADMITTED in true else 0,
        evicted=_reason(true, names.EVICTED),
        pods_ready=True,
    )


def _deactivation(condition: Json) -> tuple[str, str]:
    where = f"status.conditions[{names.DEACTIVATION_TARGET}]"
    return text(condition, "reason", where), text(condition, "message", where)


def _of_assignment(assignment: model.PodSetAssignment) -> model.PodSet:
    count = max(1, assignment.count)
    return model.PodSet(assignment.name, count, {name: -(-size // count) for name, size in assignment.usage.items()})


def _above_zero(written: str) -> float | None:
    """A duration in seconds. A value that is none is ignored, see `_boost`."""
    try:
        return max(0.0, quantity.parse_duration(written)) or None if written else None
    except quantity.QuantityError:
        return None


def _time(written: str) -> int | None:
    """A value that is no time is ignored, see `_boost`."""
    try:
        return moment(written, "")
    except ParseError:
        return None


#: whom a moved workload made room for, in the message of its condition
_MADE_ROOM_FOR: Final = re.compile(
    r"Moved to other nodes to make room for workload ([a-z0-9-]{1,63}/[a-z0-9.-]{1,253}) \(UID: "
)


def _moved_for(preempted: Json) -> str:
    """The key of the workload for which another one was moved; "" = it was not."""
    if preempted.get("reason") != MOVED:
        return ""
    found = _MADE_ROOM_FOR.match(preempted.get("message") or "")
    return found[1] if found is not None else ""


def _array(annotations: Mapping[str, str], metadata: Json) -> model.ArrayLimit | None:
    """The array with a limit that the Workload is a task of. A limit that is no number above zero counts as 1: no more tasks run
    than its author can have meant. The number of the task ends its job's name.
    """
    name = annotations.get(names.ARRAY, "")
    if not name:
        return None
    owners = (
        text(owner, "name", "metadata.ownerReferences") for owner in items(metadata, "ownerReferences", "metadata")
    )
    numbers = (bounded.whole(owner.removeprefix(f"{name}-")) for owner in owners)
    task = next((number for number in numbers if number is not None), 0)
    return model.ArrayLimit(name, bounded.whole(annotations[names.ARRAY_LIMIT]) or 1, task)


def _is_not_queued(requeued: Json) -> bool:
    """Whether the condition Requeued only says that the requests of the Workload cannot be counted yet. They are read anew each
    time, so that this is no back-off.
    """
    return (requeued.get("status"), requeued.get("reason")) == ("False", names.NOT_QUEUED)


def _boost(written: str) -> int:
    """A value that is not a number is ignored: a wrong annotation must not hide a workload that holds quota."""
    size = bounded.whole(written[1:] if written[:1] in ("+", "-") else written)
    if size is None or size > _MOST_BOOST:
        return 0
    return -size if written.startswith("-") else size


@bounded.parser(65_536, instead=("(too long a list)",), worst=(",", " ,", "a,", "a/b,"))
def names_in(written: str) -> tuple[str, ...]:
    """The names in a list with commas: the controllers that gate it, the flavors that it may use. Of too long a list only its
    existence is known: the workload stays gated, or without a flavor.
    """
    return tuple(name.strip() for name in written.split(",") if name.strip()) if written else ()


def closed_gates(spec: Json, status: Json) -> tuple[str, ...]:
    """The preemption gates of a Workload that its status does not say to be open."""
    rows = items(status, "preemptionGates", "status")
    opened = {row.get("name") for row in rows if row.get("position") == "Open"}
    gates = items(spec, "preemptionGates", "spec")
    named = (needed(gate, "name", f"spec.preemptionGates[{i}]") for i, gate in enumerate(gates))
    return tuple(name for name in named if name not in opened)


def _is_of_one_pod(metadata: Json, annotations: Mapping[str, str]) -> bool:
    """Whether a pod that is queued by itself owns the Workload; a group of pods may get other members."""
    if not metadata.get("ownerReferences"):
        return False
    owners = items(metadata, "ownerReferences", "metadata")
    if len(owners) != 1 or annotations.get(names.IS_GROUP_WORKLOAD) == "true":
        return False
    return (owners[0].get("apiVersion"), owners[0].get("kind")) == ("v1", "Pod")


def variant_of(metadata: Json) -> str:
    """The uid of the Workload that controls this one and allows it some flavors only, "" = it is no variant."""
    if names.ALLOWED_FLAVORS not in (metadata.get("annotations") or ()):
        return ""
    for i, owner in enumerate(items(metadata, "ownerReferences", "metadata")):
        ours = owner.get("kind") == "Workload" and str(owner.get("apiVersion", "")).startswith(f"{names.GROUP}/")
        if ours and owner.get("controller") is True:
            return needed(owner, "uid", f"metadata.ownerReferences[{i}]")
    return ""


# --- status -----------------------------------------------------------------------------------------------------------


def conditions(status: Json) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for i, condition in enumerate(items(status, "conditions", "status")):
        kind = condition.get("type")
        if not isinstance(kind, str):
            raise ParseError(f"status.conditions[{i}].type", "must be a string")
        found[kind] = condition
    return found


def _true_conditions(found: Mapping[str, Json]) -> dict[str, Json]:
    return {kind: row for kind, row in found.items() if row.get("status") == "True"}


def is_true(condition: Json) -> bool:
    return condition.get("status") == "True"


def _since(condition: Json) -> int:
    return millis(condition, "lastTransitionTime", f"status.conditions[{condition.get('type')}]") if condition else 0


def _unscheduled(condition: Json) -> model.Unscheduled:
    message = text(condition, "message", "status.conditions") or "not scheduled"
    by_job = text(condition, "reason", "status.conditions") == names.CAUSED_BY_JOB
    return model.Unscheduled(_since(condition), message if is_true(condition) else "", by_job)


def _reason(true: Mapping[str, Json], kind: str) -> str:
    """The reason of a condition among those that are true; "" where it is not."""
    return text(true[kind], "reason", "status.conditions") if kind in true else ""


def _reclaimable(status: Json, outdated: str) -> dict[str, int]:
    """Reclaimable pods by pod set. Counts of a former size are left out: pods that run would seem to have given their
    quota back.
    """
    found = _counts(status, "reclaimablePods")
    return found if not outdated or shown_counts(found) != outdated else {}


def shown_counts(counts: Mapping[str, int]) -> str:
    """Counts by pod set as a text such as `head=1,workers=4`."""
    return ",".join(f"{name}={count}" for name, count in sorted(counts.items()))


def _counts(status: Json, key: str) -> dict[str, int]:
    rows = items(status, key, "status")
    return {
        text(row, "name", f"status.{key}[{i}]"): number(row, "count", f"status.{key}[{i}]")
        for i, row in enumerate(rows)
    }


def _preemptions(status: Json) -> int:
    """How often the Workload was preempted, as Kueue counts that in the statistics of its evictions."""
    path = "status.schedulingStats"
    rows = items(child(status, "schedulingStats", "status"), "evictions", path)
    return sum(
        number(row, "count", f"{path}.evictions[{i}]")
        for i, row in enumerate(rows)
        if row.get("reason") == names.PREEMPTED
    )


def _unhealthy_nodes(status: Json) -> tuple[str, ...]:
    rows = items(status, "unhealthyNodes", "status")
    return tuple(needed(failed, "name", f"status.unhealthyNodes[{i}]") for i, failed in enumerate(rows))


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
