"""The labels, tolerations, scheduling gates and identity that an admission adds to the pods of its job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.api import names
from gangline.api.read import podspec
from gangline.api.read.workloads import swap_record
from gangline.control.feed.pod import GATE
from gangline.control.kinds.steps import Lookups
from gangline.jobs import workload as workloads
from gangline.jobs.base import PodSetInfo
from gangline.kube.resources import Json
from gangline.objects import Stored, WorkloadObject

#: fields of a topology request that say where all pods of a pod set may be
_PLACES: Final = {"required", "preferred", "unconstrained"}


@dataclass(slots=True)
class Merged:
    """A map of strings that several sources give, each of which may give a key another value: the first such `conflict`."""

    what: str
    values: dict[str, str] = field(default_factory=dict[str, str])
    conflict: str = ""
    _sources: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, more: Mapping[str, str], source: str) -> None:
        for key, value in more.items():
            known = self.values.setdefault(key, value)
            first = self._sources.setdefault(key, source)
            if known != value and not self.conflict:
                self.conflict = f'{self.what}[{key}] is "{known}" by {first} and "{value}" by {source}'
            self.values[key] = value


def pod_set_infos(workload: WorkloadObject, lookups: Lookups) -> list[PodSetInfo]:
    """The additions that the admission of `workload` makes to each pod set: flavor labels and tolerations, check updates,
    identity.
    """
    status = workload.status
    record = swap_record.of(workload)
    patience = _patience(lookups.patience(status["admission"]["clusterQueue"]))
    avoid = sorted(lookups.host_name(node) for node in record.avoid)
    whole = swap_record.whole_domains(workload.annotations)
    updates: dict[str, list[tuple[str, Json]]] = {}
    for check in status.get("admissionChecks", ()):
        for update in check.get("podSetUpdates", ()):
            updates.setdefault(update["name"], []).append((check["name"], update))
    infos: list[PodSetInfo] = []
    templates = {each["name"]: each.get("template") or {} for each in workload.pod_sets}
    for assignment in status["admission"]["podSetAssignments"]:
        name = assignment["name"]
        selector = Merged("nodeSelector")
        tolerations: list[Json] = []
        # to nodes by the engine, which knows no rules between pods, if flavors select any and none of them says otherwise
        assigned = not podspec.neighbours(templates.get(name, {})).others
        labels = Merged("labels")
        identity = {
            names.PODSET: name,
            names.CLUSTER_QUEUE_LABEL: status["admission"]["clusterQueue"],
        }
        if names.MULTIKUEUE_ORIGIN in workload.labels:
            identity[names.MULTIKUEUE_WORKER_POD] = "true"
        if queue := workload.queue_name:  # somebody else may have reserved quota for one without
            identity[names.LOCAL_QUEUE_LABEL] = queue
        labels.add(identity, "the Workload")
        annotations = Merged("annotations")
        marks = {names.WORKLOAD_ANNOTATION: workload.name}
        if workload.annotations.get(names.ELASTIC) == "true":
            marks[names.SLICE_NAME] = workload.annotations.get(names.SLICE_NAME) or workload.name
        if record.attempt:
            marks[names.ATTEMPT] = str(record.attempt)
        annotations.add(marks, "the Workload")
        for flavor_name in dict.fromkeys(assignment.get("flavors", {}).values()):
            flavor = lookups.flavor(flavor_name) or Stored()
            spec = flavor.spec
            selector.add(spec.get("nodeLabels", {}), f"flavor {flavor_name}")
            tolerations.extend(spec.get("tolerations", ()))
            assigned = assigned and not (spec.get("topologyName") or _is_autoscaled(flavor))
        bound = bool(selector.values) and lookups.selects_nodes(selector.values)
        for check, update in updates.get(name, ()):
            assigned = assigned and not update.get("nodeSelector")  # the engine does not know of it
            selector.add(update.get("nodeSelector", {}), f"admission check {check}")
            tolerations.extend(update.get("tolerations", ()))
            labels.add(update.get("labels", {}), f"admission check {check}")
            annotations.add(update.get("annotations", {}), f"admission check {check}")
        if lookups.progress_url:
            where = f"{workload.namespace}/{workload.name}/{workload.uid}"
            annotations.values[names.PROGRESS_URL] = f"{lookups.progress_url}/progress/{where}"
        written_labels = {key: value for key, value in labels.values.items() if len(value) <= 63}  # longer are invalid
        placed = "topologyAssignment" in assignment or "delayedTopologyRequest" in assignment
        if placed:
            written_labels[names.TAS_LABEL] = "true"
        gates = [{"name": names.TOPOLOGY_GATE}] if placed else []
        if bound and (name in whole or (assigned and not placed)):
            gates.append(dict(GATE))
        infos.append(
            PodSetInfo(
                name=name,
                count=assignment.get("count", 0),
                node_selector=selector.values,
                conflict=selector.conflict or labels.conflict or annotations.conflict,
                tolerations=tolerations,
                labels=written_labels,
                annotations=annotations.values,
                scheduling_gates=gates,
                patience=patience,
                avoid=avoid,
            )
        )
    return infos


def _is_autoscaled(flavor: Stored) -> bool:
    return (flavor.get("metadata", {}).get("annotations") or {}).get(names.AUTOSCALED) == "true"


def unconstrained(infos: Sequence[PodSetInfo], workload: WorkloadObject) -> list[PodSetInfo]:
    """The infos, in which pods that are placed although their gang named no level for all of them say so, as if any place had
    been asked for.

    Kueue needs it: after a change back to it, it opens the gate of a pod that is made again only where the pod asks.
    """
    silent = {
        each["name"] for each in workload.spec["podSets"] if not _PLACES & workloads.asked_of_topology(each).keys()
    }
    says = {names.UNCONSTRAINED_TOPOLOGY: "true"}
    return [
        replace(info, annotations={**says, **info.annotations})
        if info.name in silent and names.TAS_LABEL in info.labels
        else info
        for info in infos
    ]


def behind_gate(infos: Sequence[PodSetInfo], resizable: Collection[str]) -> list[PodSetInfo]:
    """The infos of an elastic job with a gate behind which its pods wait; it is removed from as many as are admitted."""
    gate = {"name": names.ELASTIC_GATE}
    return [
        replace(info, scheduling_gates=[gate, *info.scheduling_gates]) if info.name in resizable else info
        for info in infos
    ]


def _patience(seconds: int | None) -> list[Json]:
    """Tolerations of the taints that Kubernetes puts on failing nodes."""
    if seconds is None:
        return []
    toleration: Json = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [{"key": f"node.kubernetes.io/{state}", **toleration} for state in ("not-ready", "unreachable")]
