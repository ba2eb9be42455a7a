"""A second reader of Workloads: with the model of their CRD, to hold the first one against.

It shares with `parse_workload` the names of conditions, quantities, what pods need and what they count for, which have tests of
their own, and nothing else. What annotations and labels say is not in it: to the model metadata is any object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gangline.api import names, quantity
from gangline.api.read import podspec
from gangline.api.read.counting import namespace_rules
from gangline.api.read.counting.gpu_shares import gpu_shares
from gangline.api.read.workloads.parse_workload import _within_64_bits
from gangline.api.schema.common import Condition
from gangline.api.schema.v1beta2 import workload as schema
from gangline.engine import MOVED, model

_ABSENT = Condition(type="", status="Unknown", last_transition_time="1970-01-01T00:00:00Z", reason="-", message="")


def facts(said: schema.Workload) -> dict[str, Any]:
    """Fields of `model.Workload`, by name: all that spec and status say."""
    spec, status = said.spec or schema.WorkloadSpec(), said.status or schema.WorkloadStatus()
    conditions = {each.type: each for each in status.conditions or ()}
    pod_sets = _within_64_bits([_pod_set(each) for each in spec.pod_sets or ()])
    specs = [(each.name, _completed(each)) for each in spec.pod_sets or ()]
    unclaimable = namespace_rules.unclaimable(specs, namespace_rules.NO_RULES)
    requeue = status.requeue_state or schema.RequeueState()

    def said_of(kind: str) -> Condition:
        return conditions.get(kind, _ABSENT)

    def holds(kind: str) -> bool:
        return said_of(kind).status == "True"

    def since(kind: str, counts: bool = True) -> int:
        return _millis(said_of(kind).last_transition_time) if counts else 0

    def why(kind: str) -> str:
        return said_of(kind).reason if holds(kind) else ""

    held = _admission(status.admission, pod_sets) if holds(names.QUOTA_RESERVED) else None
    return {
        "queue": spec.queue_name or "",
        "pod_sets": pod_sets,
        "priority": spec.priority or 0,
        "violation": unclaimable or namespace_rules.violation([each for _, each in specs], namespace_rules.NO_RULES),
        "overtaken": bool(unclaimable),
        "active": spec.active,
        "preemption_gates": tuple(
            gate.name
            for gate in spec.preemption_gates or ()
            if not any(each.name == gate.name and each.position == "Open" for each in status.preemption_gates or ())
        ),
        "max_execution_seconds": spec.maximum_execution_time_seconds,
        "admission": held,
        "reserved_at": since(names.QUOTA_RESERVED, held is not None),
        "admitted": holds(names.ADMITTED),
        "admitted_at": since(names.ADMITTED, holds(names.ADMITTED)),
        "evicted": why(names.EVICTED),
        "evicted_at": since(names.EVICTED, holds(names.EVICTED)),
        "preempted": why(names.PREEMPTED),
        "moved_for": _moved_for(said_of(names.PREEMPTED).message) if why(names.PREEMPTED) == MOVED else "",
        "pods_ready": holds(names.PODS_READY),
        "pods_ready_at": since(names.PODS_READY),
        "pods_were_ready": _is(said_of(names.PODS_READY), "False", "WaitForRecovery"),
        "finished": holds(names.FINISHED),
        "on_hold": _is(said_of(names.QUOTA_RESERVED), "False", "OnHold"),
        "deactivation": (
            (said_of(names.DEACTIVATION_TARGET).reason, said_of(names.DEACTIVATION_TARGET).message)
            if holds(names.DEACTIVATION_TARGET)
            else None
        ),
        "lacks_pods": holds(names.WAITING_FOR_REPLACEMENT),
        "requeued": holds(names.REQUEUED) if names.REQUEUED in conditions else None,
        "requeue_count": requeue.count or 0,
        "requeue_at": None if requeue.requeue_at is None else _millis(requeue.requeue_at),
        "past_execution_seconds": status.accumulated_past_execution_time_seconds or 0,
        "preemptions": _preemptions(status.scheduling_stats or schema.SchedulingStats()),
        "reclaimable": {each.name: each.count for each in status.reclaimable_pods or ()},
        "checks": tuple(_check(each) for each in status.admission_checks or ()),
        "unhealthy_nodes": tuple(each.name for each in status.unhealthy_nodes or ()),
        "backfilled": holds(names.BACKFILLED),
        "overrun": why(names.OVERRUN),
        "converged": holds(names.CONVERGED),
        "overran": said_of(names.OVERRUN).reason == "Overdue",
        "stalled": why(names.STALLED),
        "refused_at": since(names.PODS_REFUSED, holds(names.PODS_REFUSED)),
        "unscheduled": (
            model.Unscheduled(
                since(names.PODS_UNSCHEDULED),
                (said_of(names.PODS_UNSCHEDULED).message or "not scheduled") if holds(names.PODS_UNSCHEDULED) else "",
                said_of(names.PODS_UNSCHEDULED).reason == names.CAUSED_BY_JOB,
            )
            if names.PODS_UNSCHEDULED in conditions
            else None
        ),
    }


def _moved_for(message: str) -> str:
    before, _, after = message.partition("Moved to other nodes to make room for workload ")
    key, _, uid = after.partition(" ")
    return key if not before and uid.startswith("(UID: ") else ""


def _is(condition: Condition, status: str, reason: str) -> bool:
    return (condition.status, condition.reason) == (status, reason)


def _millis(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def _amounts(said: Mapping[str, int | str] | None) -> dict[str, int]:
    return {resource: quantity.parse(size, resource) for resource, size in (said or {}).items()}


def _pod_set(said: schema.PodSet) -> model.PodSet:
    needs = podspec.needs(_completed(said))
    asked = gpu_shares({"metadata": said.template.metadata or {}}, _completed(said), ())
    return model.PodSet(
        name=said.name,
        count=said.count,
        requests=needs.requests,
        charges=asked.charges,
        shares=asked.shares,
        min_count=said.min_count,
        node_selector=needs.node_selector,
        tolerations=needs.tolerations,
        affinity=needs.affinity,
        preferred_affinity=needs.preferred_affinity,
        topology=None if said.topology_request is None else _topology_request(said.topology_request),
        shape=needs.shape,
    )


def _completed(said: schema.PodSet) -> dict[str, Any]:
    return namespace_rules.completed(said.template.spec or {}, namespace_rules.NO_RULES)


def _topology_request(said: schema.PodSetTopologyRequest) -> model.TopologyRequest | None:
    slices = [model.Slice(each.topology, each.size) for each in said.podset_slice_required_topology_constraints or ()]
    if not slices and said.pod_set_slice_required_topology:
        slices = [model.Slice(said.pod_set_slice_required_topology, said.pod_set_slice_size or 1)]
    found = model.TopologyRequest(
        required=said.required or "",
        preferred=said.preferred or "",
        unconstrained=bool(said.unconstrained),
        slices=tuple(slices),
        group=said.pod_set_group_name or "",
    )
    return None if found == model.TopologyRequest() else found


def _admission(said: schema.Admission | None, pod_sets: tuple[model.PodSet, ...]) -> model.Admission | None:
    if said is None:
        return None
    counts = {each.name: each.count for each in pod_sets}
    return model.Admission(
        said.cluster_queue,
        tuple(
            model.PodSetAssignment(
                name=each.name,
                count=counts.get(each.name, 0) if each.count is None else each.count,
                flavors=each.flavors or {},
                usage=_amounts(each.resource_usage),
                topology=None if each.topology_assignment is None else _domains(each.topology_assignment),
                delayed_topology=each.delayed_topology_request or "",
            )
            for each in said.pod_set_assignments
        ),
    )


def _domains(said: schema.TopologyAssignment) -> model.TopologyAssignment:
    domains = (domain for part in said.slices for domain in _slice(part))
    return model.TopologyAssignment(tuple(said.levels), tuple(domains))


def _slice(said: schema.TopologyAssignmentSlice) -> list[model.Domain]:
    columns = [_values(level, said.domain_count) for level in said.values_per_level]
    counts = said.pod_counts.individual or [said.pod_counts.universal or 0] * said.domain_count
    return [model.Domain(tuple(values), count) for *values, count in zip(*columns, counts, strict=True)]


def _values(said: schema.LevelValues, domains: int) -> list[str]:
    if said.individual is None:
        return [said.universal or ""] * domains
    affixes = said.individual.prefix or "", said.individual.suffix or ""
    return [root.join(affixes) for root in said.individual.roots]


def _preemptions(said: schema.SchedulingStats) -> int:
    return sum(each.count for each in said.evictions or () if each.reason == names.PREEMPTED)


def _check(said: schema.AdmissionCheckState) -> model.CheckState:
    return model.CheckState(
        name=said.name,
        state=said.state,
        message=said.message,
        at=_millis(said.last_transition_time),
        requeue_after_seconds=said.requeue_after_seconds,
        retry_count=said.retry_count,
        selectors=_selectors(said.pod_set_updates or ()),
    )


def _selectors(updates: Sequence[schema.PodSetUpdate]) -> dict[str, dict[str, str]]:
    chosen = [each for each in updates if each.node_selector]
    return {
        name: {key: value for each in chosen if each.name == name for key, value in (each.node_selector or {}).items()}
        for name in {each.name for each in chosen}
    }
