"""Room that strangers' pods take, and places for the pods of placed gangs.

The pods of a gang whose admission names topology domains wait behind a scheduling gate. Each gets the node selector of one
domain and loses its gate: by its rank where the kind numbers its pods (neighbours in rank are neighbours in the topology), else
wherever a domain of the gang still lacks pods. A pod that replaces a lost one gets the lost one's place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gangline import bounded
from gangline.api import names
from gangline.api.read import parse
from gangline.engine import model
from gangline.kube.resources import key_of

Json: TypeAlias = dict[str, Any]
Selector: TypeAlias = Mapping[str, str]


@dataclass(slots=True)
class Pods:
    """What is known of pods. `observe` receives the room that foreign pods take."""

    observe: Callable[[model.Change], None]
    #: workloads whose pods have to be looked at again
    dirty: set[str] = field(default_factory=set)
    _ours: dict[str, Json] = field(default_factory=dict)
    _of: dict[str, set[str]] = field(default_factory=dict)  # workload -> its pods
    _foreign: dict[str, model.ForeignPod] = field(default_factory=dict)

    def upsert(self, pod: Json) -> None:
        key, workload = key_of(pod), workload_of(pod)
        if workload is None:
            self._forget(key)
            self._take_foreign(key, _foreign(pod))
            return
        pod["metadata"].pop("managedFields", None)
        self._ours[key] = pod
        self._of.setdefault(workload, set()).add(key)
        self.dirty.add(workload)

    def remove(self, key: str) -> None:
        self._take_foreign(key, None)
        self._forget(key)

    def _forget(self, key: str) -> None:
        pod = self._ours.pop(key, None)
        if pod is not None:
            workload = workload_of(pod) or ""
            self._of.get(workload, set()).discard(key)
            if not self._of.get(workload):
                self._of.pop(workload, None)
            self.dirty.add(workload)

    def of(self, workload: str) -> list[Json]:
        return [self._ours[key] for key in sorted(self._of.get(workload, ()))]

    def _take_foreign(self, key: str, pod: model.ForeignPod | None) -> None:
        if self._foreign.get(key) == pod:
            return
        if pod is None:
            del self._foreign[key]
            self.observe(model.Gone(model.ForeignPod, key))
        else:
            self._foreign[key] = pod
            self.observe(model.Put(pod))


def _foreign(pod: Json) -> model.ForeignPod | None:
    try:
        return parse.foreign_pod(pod)
    except parse.ParseError:  # the API server has checked it; what we can't read takes no room
        return None


def workload_of(pod: Json) -> str | None:
    """The placed Workload that a pod belongs to."""
    meta = pod["metadata"]
    name = (meta.get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
    if not name or names.TAS_LABEL not in (meta.get("labels") or {}):
        return None
    return f"{meta['namespace']}/{name}"


# --- places -----------------------------------------------------------------------------------------------------------


def gated(pod: Json) -> bool:
    return any(gate["name"] == names.TOPOLOGY_GATE for gate in pod["spec"].get("schedulingGates") or ())


def ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]


def ungating(workload: model.Workload, pod_sets: Iterable[Json], pods: Iterable[Json]) -> list[tuple[Json, Json]]:
    """Each gated pod that has a place, and the merge patch that lets it go there. `pod_sets` are those of the Workload's spec."""
    if workload.admission is None or not workload.admitted or workload.evicted or workload.finished:
        return []
    by_pod_set: dict[str, list[Json]] = {}
    for pod in pods:
        by_pod_set.setdefault(pod["metadata"]["labels"].get(names.PODSET, ""), []).append(pod)
    asked = {pod_set["name"]: pod_set for pod_set in pod_sets}
    patches: list[tuple[Json, Json]] = []
    for assignment in workload.admission.pod_sets:
        if assignment.topology is None or assignment.delayed_topology == "Pending":
            continue
        members = by_pod_set.get(assignment.name, [])
        for pod, place in places(assignment.topology, members, rank_of(asked.get(assignment.name, {}))):
            gates = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != names.TOPOLOGY_GATE]
            selector = {**(pod["spec"].get("nodeSelector") or {}), **place}
            version = pod["metadata"]["resourceVersion"]
            body = {
                "metadata": {"resourceVersion": version},
                "spec": {"nodeSelector": selector, "schedulingGates": gates},
            }
            patches.append((pod, body))
    return patches


def rank_of(pod_set: Json) -> Callable[[Json], int | None]:
    """How to read a pod's rank in its pod set: index, or group × group size + index; None where it has none."""
    request = pod_set.get("topologyRequest") or {}
    index_label = request.get("podIndexLabel") or INDEX_LABEL
    group_label, groups = request.get("subGroupIndexLabel"), request.get("subGroupCount") or 0

    def rank(pod: Json) -> int | None:
        labels = pod["metadata"].get("labels") or {}
        index = bounded.whole(labels.get(index_label))
        if index is None or not group_label or not groups:
            return index
        group = bounded.whole(labels.get(group_label))
        return None if group is None else group * (pod_set.get("count", 1) // groups) + index

    return rank


#: what the Job controller puts on the pods of an Indexed Job
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


def places(
    topology: model.TopologyAssignment, pods: Sequence[Json], rank: Callable[[Json], int | None]
) -> list[tuple[Json, Selector]]:
    """A place for each gated pod, as node labels. Never more pods in a domain than the gang has there.

    Once nodes were replaced, pods may sit elsewhere than their rank says now: then what is missing is filled up.
    """
    living = [pod for pod in pods if not ended(pod)]
    waiting = [pod for pod in living if gated(pod)]
    selectors = [dict(zip(topology.levels, domain.values, strict=True)) for domain in topology.domains]
    ranks = [rank(pod) for pod in living]
    seats = [number for number, domain in enumerate(topology.domains) for _ in range(domain.count)]
    numbered = all(number is not None and number < len(seats) for number in ranks) and len(set(ranks)) == len(ranks)
    if numbered and all(_seat(pod, selectors) == seats[rank(pod) or 0] for pod in living if not gated(pod)):
        return [(pod, selectors[seats[rank(pod) or 0]]) for pod in waiting]
    taken = Counter(_seat(pod, selectors) for pod in living if not gated(pod))
    free = [number for number in range(len(selectors)) for _ in range(topology.domains[number].count - taken[number])]
    return [(pod, selectors[number]) for pod, number in zip(waiting, free, strict=False)]


def _seat(pod: Json, selectors: Sequence[Selector]) -> int | None:
    """The domain that a pod was sent to."""
    chosen = pod["spec"].get("nodeSelector") or {}
    return next((number for number, place in enumerate(selectors) if place.items() <= chosen.items()), None)
