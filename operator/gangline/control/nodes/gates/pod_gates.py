"""Assigns the pods of placed gangs to their topology domains.

The pods of a gang whose admission names topology domains wait behind a scheduling gate. Each gets the node selector of one domain
and loses its gate: by its rank where the kind numbers its pods (neighbours in rank are neighbours in the topology), else in any
domain of the gang that still lacks pods. A pod that replaces a lost one gets the domain of the lost pod. Pods that claim a
Workload without owner get its domains, too. A pod that gets its cards by DRA has its claim before it loses its gate.

The cards of the pods of placed gangs, as annotations of the pods: `gangline.io/cards`, and HAMi's for pods that ask HAMi.

Which of the cards of its host a pod gets is decided when its gate is taken off, and stands on the pod from then on: whoever looks
later, after a crash too, gives the others the cards that are left. Of a pod with a claim it is decided when that is written.

The ResourceClaims of pods that get their share of cards by DRA and wait for their place (`gangline.api.sharing`).

The claim of each is for the cards of its seat, and is there before its gate is taken off. It is named after all that it asks for,
and says for which cards it is: whoever looks after a crash finds it, and gives the pod the same cards. One for other cards, of a
seat that the pod had before, is deleted first; nothing is allocated to it while its pod waits.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gangline import bounded
from gangline.api import names
from gangline.api.sharing import share_annotations
from gangline.control.feed.mirror import Mirror
from gangline.control.kernel.context import Context
from gangline.control.nodes.gates.gate_removal import GateRemoval
from gangline.control.parts.changed_keys import ChangedKeys
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority, Verb
from gangline.control.writes.writes import Writes
from gangline.engine import model
from gangline.jobs import podspec
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import PodObject, Stored, WorkloadObject

#: by it the controller of claims knows which claim of its pod a claim is
_OF: Final = "resource.kubernetes.io/pod-claim-name"
_DIGEST_LENGTH: Final = 16
_LONGEST_NAME: Final = 200


class PodClaims:
    """Writes the ResourceClaims of pods. `again` and `later` have the pods of a Workload looked at again, at
    once or in a while.
    """

    def __init__(
        self,
        mirror: Mirror,
        writes: Writes,
        recorder: EventRecorder,
        *,
        again: Callable[[str], None],
        later: Callable[[str], None],
    ) -> None:
        self._mirror = mirror
        self._writes = writes
        self._recorder = recorder
        self._again = again
        self._later = later

    def cards_of(self, pod: PodObject) -> str:
        """The cards for which a pod that waits has a claim; "" = it has none."""
        there = (claim for claim in self._of(pod) if not claim.deleting) if _claims(pod) else ()
        return next((claim.annotations.get(names.CARDS) or "" for claim in there), "")

    def are_there(self, workload: str, pod: PodObject, asked: Mapping[str, Any], cards: str) -> bool:
        """Whether the claims of a pod that starts on these cards exist; if not, the next write for that is sent. `asked`:
        annotations of its template, as admitted.
        """
        wanted = claim_of(pod, asked, cards)
        if wanted is None:
            return True
        name, there = wanted["metadata"]["name"], self._of(pod)
        outdated = [claim for claim in there if claim.name != name or claim.deleting]
        for claim in outdated:
            if claim.deleting:
                self._later(workload)
            else:
                self._send(workload, pod, claim, "delete", {"uid": claim.uid})
        if not there:
            self._send(workload, pod, wanted, "create", wanted)
        return bool(there) and not outdated

    def _of(self, pod: PodObject) -> list[Stored]:
        owned = self._mirror.controlled_by(pod, kube.RESOURCE_CLAIMS)
        return [claim for claim in owned if claim.annotations.get(_OF) == share_annotations.CLAIM]

    def _send(self, workload: str, pod: PodObject, claim: Json, verb: Verb, body: Json) -> None:
        key = ObjectKey.of(kube.RESOURCE_CLAIMS, claim)
        if self._writes.pending(kube.RESOURCE_CLAIMS, key.text):
            return

        def failed(error: ApiError) -> None:
            if isinstance(error, Conflict) or (verb == "delete" and isinstance(error, NotFound)):
                self._again(workload)  # it is as it should be, or is looked at anew
                return
            note = f"ResourceClaim {key.name}: {error.message}"
            self._recorder.record({"apiVersion": "v1", "kind": "Pod", **pod}, "Warning", "ClaimRefused", note)
            self._later(workload)

        done = lambda answer: self._again(workload)  # noqa: E731
        self._writes.send(key, verb, body, priority=Priority.START_STOP, done=done, failed=failed)


def claim_of(pod: PodObject, asked: Mapping[str, Any], cards: str) -> Json | None:
    """The claim of a pod for these cards; None for a pod whose claim the operator does not write."""
    spec = share_annotations.spec(asked, cards.split(",") if cards else ()) if _claims(pod) else None
    if spec is None:
        return None
    digest = hashlib.sha256(json.dumps([pod.uid, cards, spec], sort_keys=True).encode()).hexdigest()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    return {
        "apiVersion": kube.RESOURCE_CLAIMS.api_version,
        "kind": kube.RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": f"{pod.name[:_LONGEST_NAME].rstrip('-.')}-{digest[:_DIGEST_LENGTH]}",
            "namespace": pod.namespace,
            "annotations": {_OF: share_annotations.CLAIM, names.CARDS: cards},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _claims(pod: PodObject) -> bool:
    """Whether the pod names the ResourceClaimTemplate for which the operator makes claims itself: no such template exists."""
    return any(
        row.get("name") == share_annotations.CLAIM
        and row.get("resourceClaimTemplateName") == share_annotations.BY_OPERATOR
        for row in pod.spec.get("resourceClaims") or ()
    )


_HAMI: Final = frozenset({names.HAMI_CORES, names.HAMI_MEMORY, names.HAMI_PERCENT})


class CardChoice:
    """The cards of the domains of one pod set that no pod has yet. `started`: its living pods without their gate; `claimed`: the
    cards for which pods that wait have a claim, by pod, and the place that each of these gets now."""

    def __init__(
        self,
        topology: model.TopologyAssignment,
        started: Iterable[PodObject],
        claimed: Iterable[tuple[PodObject, Mapping[str, str], str]] = (),
    ) -> None:
        self._level = topology.levels[-1]
        self._kept: dict[str, str] = {}
        self._left = {domain.values[-1]: [_text(pod) for pod in domain.cards] for domain in topology.domains}
        if not any(self._left.values()):
            return
        for pod in started:
            left = self._left.get((pod.spec.get("nodeSelector") or {}).get(self._level, ""))
            chosen = pod.annotations.get(names.CARDS)
            if left and chosen in left:
                left.remove(chosen)
            elif left:  # it started before its cards were chosen: some are its own
                left.pop()
        for pod, place, cards in claimed:
            left = self._left.get(place.get(self._level, ""), [])
            if cards in left:
                left.remove(cards)
                self._kept[pod.key] = cards

    def annotations(self, pod: PodObject, place: Mapping[str, str]) -> dict[str, str]:
        """The annotations of a pod that starts in this place, which name its cards; none where cards do not bound it."""
        left = self._left.get(place.get(self._level, ""))
        chosen = self._kept.get(pod.key) or (left.pop(0) if left else "")
        if not chosen:
            return {}
        by_hami = _asks_hami(pod.spec) and not chosen.startswith("~")
        return {names.CARDS: chosen, **({names.HAMI_USE_UUID: chosen} if by_hami else {})}


def _text(pod: Iterable[model.CardSeat]) -> str:
    return ",".join(dict.fromkeys(seat.card for seat in pod))


def _asks_hami(spec: Json) -> bool:
    containers = (each for part in ("containers", "initContainers") for each in spec.get(part) or ())
    amounts = ((each.get("resources") or {}).get(part) or {} for each in containers for part in ("limits", "requests"))
    return any(not _HAMI.isdisjoint(each) for each in amounts)


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
            annotations = choice.annotations(pod, place)
            body = {
                "metadata": {
                    "resourceVersion": pod.resource_version,
                    **({"annotations": annotations} if annotations else {}),
                },
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
