"""Workload between versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangline.api.convert.fields import Json, Shape, is_time, items, move, own, own_items, rename
from gangline.api.read.workloads import admissions
from gangline.api.unchecked import listing, mapping

_SOURCES: Final = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_SOURCE_OF: Final = {kind: source for source, (_, kind) in _SOURCES.items()}
_NAME: Final = "priorityClassName"
_SOURCE: Final = "priorityClassSource"
_GATES: Final = "preemptionGates"
_GATE_STATES: Final = "preemptionGateStates"
_CONSTRAINTS: Final = "podsetSliceRequiredTopologyConstraints"
_TOPOLOGY: Final = "topologyAssignment"
_TOPOLOGIES: Final = "topologyAssignments"
_PAST_OLD: Final = "accumulatedPastExexcutionTimeSeconds"  # misspelt in v1beta1
_PAST: Final = "accumulatedPastExecutionTimeSeconds"

_SLICE: Final = {
    "domainCount": int,
    "valuesPerLevel": [{"universal": str, "individual": {"prefix": str, "suffix": str, "roots": [str]}}],
    "podCounts": {"universal": int, "individual": [int]},
}
NOTES: Final[Mapping[str, Shape]] = {
    _NAME: str,
    _SOURCE: str,
    _GATES: [{"name": str}],
    _GATE_STATES: [{"name": str, "position": str, "lastTransitionTime": is_time}],
    _CONSTRAINTS: {"*": [{"topology": str, "size": int}]},
    _TOPOLOGIES: {"*": {"levels": [str], "slices": [_SLICE]}},
}


def upgrade(workload: Json, restored: Json) -> Json:
    """Turn a v1beta1 workload into v1beta2, in place. Returns the notes. `restored` are the notes of `downgrade`.

    Raises topology_slices.SlicesError.
    """
    notes: Json = {}
    spec = own(workload, "spec")
    if spec is not None:
        _upgrade_priority_class(spec, notes)
        move(restored, _GATES, spec)
        _restore_constraints(spec, restored.get(_CONSTRAINTS))
    status = own(workload, "status")
    if status is not None:
        rename(status, _PAST_OLD, _PAST)
        move(restored, _GATE_STATES, status, _GATES)
        _restore_topologies(status, mapping(restored.get(_TOPOLOGIES)))
    return notes


def downgrade(workload: Json, restored: Json) -> Json:
    """Turn a v1beta2 workload into v1beta1, in place. Returns the notes. `restored` are the notes of `upgrade`."""
    notes: Json = {}
    spec = own(workload, "spec")
    if spec is not None:
        _downgrade_priority_class(spec, restored)
        move(spec, _GATES, notes)
        _note_constraints(spec, notes)
    status = own(workload, "status")
    if status is not None:
        rename(status, _PAST, _PAST_OLD)
        move(status, _GATES, notes, _GATE_STATES)
        _note_topologies(status, notes)
    return notes


# --- priority class ---------------------------------------------------------------------------------------------------


def _upgrade_priority_class(spec: Json, notes: Json) -> None:
    name, source = spec.pop(_NAME, None), spec.pop(_SOURCE, None)
    if name and isinstance(source, str) and source in _SOURCES:
        group, kind = _SOURCES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    else:
        notes.update({key: value for key, value in ((_NAME, name), (_SOURCE, source)) if value is not None})


def _downgrade_priority_class(spec: Json, restored: Json) -> None:
    reference = mapping(spec.pop("priorityClassRef", None))
    if not reference:
        spec.update({key: restored[key] for key in (_NAME, _SOURCE) if key in restored})
        return
    spec[_NAME] = reference.get("name", "")
    spec[_SOURCE] = _SOURCE_OF.get(str(reference.get("kind")), "")


# --- topology ---------------------------------------------------------------------------------------------------------


def _note_constraints(spec: Json, notes: Json) -> None:
    """Layers of slices, by pod set."""
    found: Json = {}
    for pod_set in own_items(spec, "podSets"):
        move(own(pod_set, "topologyRequest"), _CONSTRAINTS, found, str(pod_set.get("name", "main")))
    if found:
        notes[_CONSTRAINTS] = found


def _restore_constraints(spec: Json, noted: Any) -> None:
    for pod_set in own_items(spec, "podSets") if noted else ():
        request = own(pod_set, "topologyRequest")
        constraints = mapping(noted).get(str(pod_set.get("name", "main")))
        if request is not None and constraints is not None:
            request[_CONSTRAINTS] = constraints


def _restore_topologies(status: Json, noted: Json) -> None:
    """Domains become slices; without domains, the noted slices are restored. Raises topology_slices.SlicesError."""
    for i, holder in enumerate(own_items(own(status, "admission"), "podSetAssignments")):
        assignment = own(holder, _TOPOLOGY)
        if assignment is not None:
            path = f"status.admission.podSetAssignments[{i}].{_TOPOLOGY}"
            assignment["slices"] = admissions.encode(_domains(assignment, path))
            assignment.pop("domains", None)
        else:
            move(noted, str(holder.get("name", "main")), holder, _TOPOLOGY)


def _note_topologies(status: Json, notes: Json) -> None:
    """Slices become domains, and inconsistent ones a note: the schema lets them in."""
    for holder in own_items(own(status, "admission"), "podSetAssignments"):
        assignment = own(holder, _TOPOLOGY)
        if assignment is None:
            continue
        try:
            domains = admissions.decode(assignment.get("slices", []), _levels(assignment))
        except admissions.SlicesError:
            move(holder, _TOPOLOGY, notes.setdefault(_TOPOLOGIES, {}), str(holder.get("name", "main")))
            continue
        assignment["domains"] = [{"values": list(values), "count": count} for values, count in domains]
        assignment.pop("slices", None)


def _levels(assignment: Json) -> int:
    return len(listing(assignment.get("levels")))


def _domains(assignment: Json, path: str) -> list[admissions.Domain]:
    levels = _levels(assignment)
    domains: list[admissions.Domain] = []
    for i, domain in enumerate(items(assignment.get("domains"))):
        values, count = listing(domain.get("values")), domain.get("count")
        if len(values) != levels:
            raise admissions.SlicesError(
                f"{path}.domains[{i}].values", f"must have one value for each of the {levels} levels"
            )
        if type(count) is not int:
            raise admissions.SlicesError(f"{path}.domains[{i}].count", "must be a number")
        domains.append((tuple(str(value) for value in values), count))
    return domains
