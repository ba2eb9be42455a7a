"""The admission of a Workload from JSON (v1beta2): flavors, usage, places of its pod sets. `render.admission` is the inverse."""

from __future__ import annotations

from collections.abc import Iterable

from gangline.api.read.reading import Json, ParseError, amounts, child, items, labels, number, text, texts
from gangline.api.read.workloads import card_levels, topology_slices
from gangline.engine import model


def held_by(status: Json, pod_sets: Iterable[model.PodSet]) -> model.Admission | None:
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
        return card_levels.assignment(levels, topology_slices.decode(body.get("slices") or [], len(levels)))
    except topology_slices.SlicesError as error:
        raise ParseError(f"{path}.{error.path}", error.message) from None
