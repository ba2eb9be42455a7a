"""Replacing a failed node under a running workload: only the failed node's pods are placed again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gangline.engine.model import TopologyAssignment
from gangline.engine.topology.placement_failures import no_replacement
from gangline.engine.topology.placement_failures import stale_domain as stale_text
from gangline.engine.topology.placement_request import (
    KUEUE_DEFAULTS,
    PlacementRequest,
    PlacementResult,
    PlacementRules,
    Unplaceable,
)
from gangline.engine.topology.placing import Placed, PlacedPods, find, merge, stale_domain, what_if
from gangline.engine.topology.topology_ledger import TopologyLedger
from gangline.engine.topology.topology_tree import level_index


@dataclass(frozen=True, slots=True)
class ReplacementRequest:
    """A pod set of a running workload and where its pods are now (the failed node's included)."""

    pod_set: PlacementRequest
    existing: TopologyAssignment


def replace_node(
    ledger: TopologyLedger,
    requests: Sequence[ReplacementRequest],
    host: str,
    *,
    profile: PlacementRules = KUEUE_DEFAULTS,
    without: Iterable[PlacedPods] = (),
) -> PlacementResult:
    """New assignments for the pod sets that have pods on `host`; the others are left out of the answer.

    The workload's own pods must be in the ledger as they are now. The host is not avoided: if it is usable and has room, it may
    be chosen again (a failed node is not in the topology, as it is not ready). The first failure ends it.
    """
    placed: Placed = {}
    with what_if(ledger, (), without) as assume:
        for request in requests:
            remaining, missing = _without_host(request.existing, host)
            if missing == 0:
                continue
            name = request.pod_set.pod_set.name
            try:
                moved = _move(ledger, request.pod_set, remaining, missing, host, profile)
            except Unplaceable as failure:
                return PlacementResult(placed, str(failure), (name,))
            assume.take(moved, request.pod_set.takes)
            placed[name] = merge(ledger, moved, remaining)
    return PlacementResult(placed)


def _without_host(existing: TopologyAssignment, host: str) -> tuple[TopologyAssignment, int]:
    remaining = tuple(domain for domain in existing.domains if domain.values[-1] != host)
    missing = sum(domain.count for domain in existing.domains) - sum(domain.count for domain in remaining)
    return TopologyAssignment(existing.levels, remaining), missing


def _move(
    ledger: TopologyLedger,
    request: PlacementRequest,
    remaining: TopologyAssignment,
    missing: int,
    host: str,
    profile: PlacementRules,
) -> TopologyAssignment:
    stale = stale_domain(ledger, remaining)
    if stale is not None:
        raise Unplaceable(stale_text(stale))
    resized = replace(request, pod_set=replace(request.pod_set, count=missing), previous=None)
    within = _restriction(ledger, resized, remaining)
    asked = resized.pod_set.topology
    if within is not None and asked and asked.slices and missing % asked.slices[0].size:
        resized = _mended(resized)
    moved = find(ledger, resized, profile=profile, within=within)[request.pod_set.name]
    if not moved.domains:
        raise Unplaceable(no_replacement(host))
    return moved


def _restriction(ledger: TopologyLedger, request: PlacementRequest, remaining: TopologyAssignment) -> range | None:
    """The leaves among which the pods must stay, None if they may go anywhere."""
    asked = request.pod_set.topology
    if asked is None or not remaining.domains:
        return None
    tree, missing = ledger.tree(), request.pod_set.count
    positions = [leaf.position for domain in remaining.domains if (leaf := ledger.leaf(domain.values)) is not None]
    broken = [layer for layer in asked.slices if layer.size > 0 and missing % layer.size]
    if asked.slices and missing % asked.slices[0].size:
        layer = broken[-1]
        level = level_index(ledger.levels, layer.level)
        if level is None:
            return None
        pods: dict[int, int] = {}
        for position, domain in zip(positions, remaining.domains, strict=True):
            ancestor = tree.ancestor(position, level)
            pods[ancestor] = pods.get(ancestor, 0) + domain.count
        incomplete = next((found for found in pods if (pods[found] + missing) % layer.size == 0), None)
        return None if incomplete is None else tree.leaves(level, incomplete)
    level = level_index(ledger.levels, asked.required) if asked.required else None
    return None if level is None else tree.leaves(level, tree.ancestor(positions[0], level))


def _mended(request: PlacementRequest) -> PlacementRequest:
    """Mend an incomplete slice with the innermost layer that the missing pods fill, or else pod by pod."""
    pod_set, asked = request.pod_set, request.pod_set.topology
    if asked is None:
        return request
    whole = [layer for layer in asked.slices if pod_set.count % layer.size == 0]
    return replace(request, pod_set=replace(pod_set, topology=replace(asked, slices=tuple(whole[-1:]))))
