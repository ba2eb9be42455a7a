"""Assigns the pods of placed gangs to their topology domains.

The pods of a gang whose admission names topology domains wait behind a scheduling gate. Each gets the node selector of one domain
and loses its gate: by its rank where the kind numbers its pods (neighbours in rank are neighbours in the topology), else in any
domain of the gang that still lacks pods. A pod that replaces a lost one gets the domain of the lost pod. Pods that claim a
Workload without owner get its domains, too. A pod that gets its cards by DRA has its claim before it loses its gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from gangline import bounded
from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.nodes.gates.card_choice import CardChoice
from gangline.control.nodes.gates.gate_removal import GateRemoval
from gangline.control.nodes.gates.pod_claims import PodClaims
from gangline.control.parts.changed_keys import ChangedKeys
from gangline.engine import model
from gangline.jobs import podspec
from gangline.kube.resources import Json
from gangline.objects import PodObject, WorkloadObject

Selector: TypeAlias = Mapping[str, str]


class PodGates(GateRemoval):
    """Removes the gates of the pods of placed gangs, each with the node selector of its domain."""

    name = "places"
    gate = names.TOPOLOGY_GATE
    doing = "placing its pods"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._owners = context.owners
        self._owners.changed.feed(self._changed)
        self._claims = PodClaims(
            self._mirror, self._writes, context.recorder, again=self._again, later=self._look_later
        )

    def _changes(self, context: Context) -> tuple[ChangedKeys[str], ChangedKeys[str]]:
        return context.mirror.changes.placed, context.pods.changed_placed

    def _ungating(self, key: str, workload: model.Workload, raw: WorkloadObject) -> Iterable[tuple[PodObject, Json]]:
        pods = [pod.manifest for pod in self._pods.of(key) if pod.placed and pod.manifest]
        if workload.unowned:  # as in Kueue: nobody can prove that a pod is of it, and its places bound how many are
            pods += self._owners.claimants(key)
        asked = {row["name"]: podspec.annotations_of(row.get("template") or {}) for row in raw.pod_sets}
        for pod, body in ungating(workload, raw.pod_sets, [self._as_asked(pod) for pod in pods], self._claims.cards_of):
            cards = body["metadata"].get("annotations", {}).get(names.CARDS, "")
            if self._claims.are_there(key, pod, asked.get(_pod_set_of(pod), {}), cards):
                yield pod, body


# --- places -----------------------------------------------------------------------------------------------------------


def gated(pod: PodObject) -> bool:
    return names.TOPOLOGY_GATE in pod.gates


def ended(pod: PodObject) -> bool:
    return pod.has_ended or pod.deleting


def ungating(
    workload: model.Workload,
    pod_sets: Iterable[Json],
    pods: Iterable[PodObject],
    claimed: Callable[[PodObject], str] = lambda pod: "",
) -> list[tuple[PodObject, Json]]:
    """The gated pods that have a domain, each with the merge patch that removes its gate. `pod_sets` come from the Workload's
    spec; `claimed`: the cards for which a pod that waits has a claim.
    """
    if workload.admission is None or not workload.admitted or workload.evicted or workload.finished:
        return []
    by_pod_set: dict[str, list[PodObject]] = {}
    for pod in pods:
        by_pod_set.setdefault(_pod_set_of(pod), []).append(pod)
    asked = {pod_set["name"]: pod_set for pod_set in pod_sets}
    first = _first_indexes(workload.admission.pod_sets, asked)
    patches: list[tuple[PodObject, Json]] = []
    for assignment in workload.admission.pod_sets:
        if assignment.topology is None or assignment.delayed_topology == "Pending":
            continue
        members = by_pod_set.get(assignment.name, [])
        rank = rank_of(asked.get(assignment.name, {}), first.get(assignment.name, 0))
        started = [pod for pod in members if not ended(pod) and not gated(pod)]
        placed = places(assignment.topology, members, rank)
        with_claims = [(pod, place, cards) for pod, place in placed if (cards := claimed(pod))]
        choice = CardChoice(assignment.topology, started, with_claims)
        for pod, place in placed:
            gates = [gate for gate in pod.spec["schedulingGates"] if gate["name"] != names.TOPOLOGY_GATE]
            selector = {**(pod.spec.get("nodeSelector") or {}), **place}
            told = choice.annotations(pod, place)
            body = {
                "metadata": {"resourceVersion": pod.resource_version, **({"annotations": told} if told else {})},
                "spec": {"nodeSelector": selector, "schedulingGates": gates},
            }
            patches.append((pod, body))
    return patches


def _pod_set_of(pod: PodObject) -> str:
    return pod.labels.get(names.PODSET, "")


def _first_indexes(assigned: Iterable[model.PodSetAssignment], asked: Mapping[str, Json]) -> dict[str, int]:
    """The first indexes of pod sets: of two that are placed as one group, a leader and its workers, the larger is numbered after
    the smaller.
    """
    groups: dict[str, list[model.PodSetAssignment]] = {}
    for each in assigned:
        if group := (asked.get(each.name, {}).get("topologyRequest") or {}).get("podSetGroupName"):
            groups.setdefault(group, []).append(each)
    pairs = (sorted(group, key=lambda each: each.count) for group in groups.values() if len(group) == 2)
    return {workers.name: leader.count for leader, workers in pairs}


def rank_of(pod_set: Json, first: int = 0) -> Callable[[PodObject], int | None]:
    """Returns a function that reads a pod's rank in its pod set: index, or group × group size + index; None where it has none.

    Indexes begin at `first`, or later by the pod's own annotation.
    """
    request = pod_set.get("topologyRequest") or {}
    index_label = request.get("podIndexLabel") or INDEX_LABEL
    group_label, groups = request.get("subGroupIndexLabel"), request.get("subGroupCount") or 0

    def rank(pod: PodObject) -> int | None:
        labels = pod.labels
        later = bounded.whole(pod.annotations.get(names.POD_INDEX_OFFSET)) or 0
        index = bounded.whole(labels.get(index_label))
        group = bounded.whole(labels.get(group_label)) if group_label and groups else 0
        if index is None or group is None:
            return None
        found = index - first - later
        if groups:
            found += group * (pod_set.get("count", 1) // groups)
        return found if found >= 0 else None

    return rank


#: the label that the Job controller sets on the pods of an Indexed Job
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


def places(
    topology: model.TopologyAssignment, pods: Sequence[PodObject], rank: Callable[[PodObject], int | None]
) -> list[tuple[PodObject, Selector]]:
    """A domain for each gated pod, as node labels. Never more pods in a domain than the gang has there.

    After nodes were replaced, pods may run in another domain than their rank gives now: then free places are filled in order.
    """
    living = [pod for pod in pods if not ended(pod)]
    waiting = [pod for pod in living if gated(pod)]
    selectors = [dict(zip(topology.levels, domain.values, strict=True)) for domain in topology.domains]
    ranks = [rank(pod) for pod in living]
    domain_by_rank = [number for number, domain in enumerate(topology.domains) for _ in range(domain.count)]
    numbered = all(number is not None and number < len(domain_by_rank) for number in ranks) and len(set(ranks)) == len(
        ranks
    )
    if numbered and all(
        _domain_of(pod, selectors) == domain_by_rank[rank(pod) or 0] for pod in living if not gated(pod)
    ):
        return [(pod, selectors[domain_by_rank[rank(pod) or 0]]) for pod in waiting]
    taken = Counter(_domain_of(pod, selectors) for pod in living if not gated(pod))
    free = [number for number in range(len(selectors)) for _ in range(topology.domains[number].count - taken[number])]
    return [(pod, selectors[number]) for pod, number in zip(waiting, free, strict=False)]


def _domain_of(pod: PodObject, selectors: Sequence[Selector]) -> int | None:
    """The number of the domain that a pod was assigned to."""
    chosen = pod.spec.get("nodeSelector") or {}
    return next((number for number, selector in enumerate(selectors) if selector.items() <= chosen.items()), None)
