"""Recorded topology placements: run a scenario through the engine and report the first difference from the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.conformance.recordings import Json, first_difference, tolerations

from gangline.engine import (
    PlacementRequest,
    PlacementResult,
    PlacementRules,
    ReplacementRequest,
    TopologyLedger,
    levels_of,
    place,
    replace_node,
    usage_of,
)
from gangline.engine.model import (
    Domain,
    Expression,
    Flavor,
    Node,
    PodSet,
    PreferredTerm,
    Slice,
    Taint,
    Topology,
    TopologyAssignment,
    TopologyRequest,
)

#: The topology's name in recorded texts.
TOPOLOGY = "default"


def compare(scenario: Json, result: Json) -> str | None:
    """The first recorded field of `result` that the engine gives differently, in words; None if it gives them all."""
    return first_difference("result", result, run(scenario))


def run(scenario: Json) -> Json:
    """The engine's result for a scenario, in the form of a recorded result."""
    ledger = _ledger(scenario)
    profile = replace(PlacementRules.of_gates(scenario.get("featureGates") or {}), whole=False)
    host = scenario.get("unhealthyNode") or ""
    pod_sets: list[Json] = scenario["podSets"]
    if host:
        replacements = [
            ReplacementRequest(_request(pod_set, previous=None), existing)
            for pod_set in pod_sets
            if (existing := _existing(ledger, pod_set)) is not None
        ]
        answer = replace_node(ledger, replacements, host, profile=profile)
    else:
        requests = [_request(pod_set, previous=_existing(ledger, pod_set)) for pod_set in pod_sets]
        answer = place(ledger, requests, profile=profile, simulate_empty=bool(scenario.get("simulateEmpty")))
    return _result(answer, [pod_set["name"] for pod_set in pod_sets])


# --- reading a scenario -----------------------------------------------------------------------------------------------


def _ledger(scenario: Json) -> TopologyLedger:
    flavor = scenario.get("flavor") or {}
    ledger = TopologyLedger(
        Flavor(
            name="tas",
            node_labels=flavor.get("nodeLabels") or {},
            tolerations=tolerations(flavor),
            topology=TOPOLOGY,
        ),
        Topology(TOPOLOGY, tuple(scenario["levels"])),
    )
    for used in scenario.get("nonTASUsed") or ():
        ledger.node_ledger.shift_foreign(used["node"], usage_of(used["requests"], used["count"]), 1)
    nodes = [_node(node) for node in scenario["nodes"]]
    for node in nodes:
        ledger.put_node(node)
    by_name = {node.name: node for node in nodes}
    for used in scenario.get("used") or ():
        domain = Domain(_values(by_name[used["node"]], ledger), used["count"])
        ledger.add(TopologyAssignment(levels_of(ledger), (domain,)), used["requests"])
    return ledger


def _values(node: Node, ledger: TopologyLedger) -> tuple[str, ...]:
    return tuple(node.labels.get(level, "") for level in levels_of(ledger))


def _node(node: Json) -> Node:
    return Node(
        name=node["name"],
        labels=node.get("labels") or {},
        allocatable=node.get("allocatable") or {},
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in node.get("taints") or ()),
        ready=not node.get("notReady"),
        unschedulable=bool(node.get("unschedulable")),
    )


def _request(pod_set: Json, previous: TopologyAssignment | None) -> PlacementRequest:
    return PlacementRequest(_pod_set(pod_set), implied=pod_set["mode"] == "implied", previous=previous)


def _pod_set(pod_set: Json) -> PodSet:
    preferred = tuple(
        PreferredTerm(term["weight"], _expressions(term["match"])) for term in pod_set.get("preferredAffinity") or ()
    )
    return PodSet(
        name=pod_set["name"],
        count=pod_set["count"],
        requests=pod_set["requests"],
        node_selector=pod_set.get("nodeSelector") or {},
        tolerations=tolerations(pod_set),
        affinity=tuple(_expressions(term) for term in pod_set.get("affinity") or ()),
        preferred_affinity=preferred,
        topology=_topology_request(pod_set),
    )


def _topology_request(pod_set: Json) -> TopologyRequest | None:
    mode, level = pod_set["mode"], pod_set.get("level") or ""
    group = pod_set.get("group") or ""
    slices = tuple(Slice(layer["level"], layer["size"]) for layer in pod_set.get("slices") or ())
    match mode:
        case "required":
            return TopologyRequest(required=level, slices=slices, group=group)
        case "preferred":
            return TopologyRequest(preferred=level, slices=slices, group=group)
        case "unconstrained":
            return TopologyRequest(unconstrained=True, slices=slices, group=group)
        case "slicesOnly":
            return TopologyRequest(slices=slices, group=group)
        case "implied":
            return TopologyRequest(group=group) if group else None
        case _:
            raise ValueError(f"podSets[{pod_set['name']}].mode: unknown mode {mode!r}")


def _expressions(term: Sequence[Json]) -> tuple[Expression, ...]:
    return tuple(Expression(e["key"], e["operator"], tuple(e.get("values") or ())) for e in term)


def _existing(ledger: TopologyLedger, pod_set: Json) -> TopologyAssignment | None:
    domains = pod_set.get("existing")
    if not domains:
        return None
    return TopologyAssignment(levels_of(ledger), tuple(Domain(tuple(d["values"]), d["count"]) for d in domains))


# --- writing a result -------------------------------------------------------------------------------------------------


def _result(answer: PlacementResult, order: Sequence[str]) -> Json:
    pod_sets: list[Json] = []
    for name in order:
        if name in answer.failed:
            pod_sets.append({"podSet": name, "failure": answer.failure})
        elif name in answer.assignments:
            pod_sets.append({"podSet": name, **_assignment(answer.assignments[name])})
    return {"ok": answer.ok, "podSets": pod_sets}


def _assignment(assignment: TopologyAssignment) -> Json:
    domains = [{"values": list(domain.values), "count": domain.count} for domain in assignment.domains]
    return {"levels": list(assignment.levels), "domains": domains}
