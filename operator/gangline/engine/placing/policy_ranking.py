"""A placement policy on the hosts of a topology: a pipeline whose hosts are the leaves, kept in step with the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gangline.engine.cards.card_amounts import looks_for, rooms_of
from gangline.engine.cards.card_seating import seat_of
from gangline.engine.model import (
    READING,
    TAKEN,
    CardSeat,
    Domain,
    Node,
    PlacementPolicy,
    PlacementScore,
    PodSet,
    Requests,
    Share,
    Workload,
)
from gangline.engine.model.nodes import INTERFACE
from gangline.engine.occupancy.fitting import PodRequests, add, as_pod_requests, how_many, limit
from gangline.engine.occupancy.node_ledger import LeafKey
from gangline.engine.occupancy.power_ledger import PowerLedger, power_marks
from gangline.engine.placing.hosts import CPU, Host, PodRequest
from gangline.engine.placing.own_scorers import Fragments, TypicalPod
from gangline.engine.placing.pipeline import PROFILES, Pipeline, PlacingProfile, Score
from gangline.engine.placing.scorers import DATASETS, DOWNLOAD, Args, Field
from gangline.engine.topology.node_filter import NodeSelection
from gangline.engine.topology.policy_filter import PolicyAsk, full_name, marks_of
from gangline.engine.topology.topology_ledger import Leaf, TopologyLedger

#: what excludes a host, as for all placements: its free amounts; taints, node selector and required affinity
_FILTERS: Final = ("Fits", "NodeSelector")
#: the affinity of shares goes before every policy, and so does preferred affinity (where it counts at all)
_FIRST: Final = (Score("ShareAffinity", -2), Score("NodeAffinity", -1))
#: what a scorer of hosts means for their cards
_OF_CARDS: Final = {"ClassAffinity": "CardClass", "CardBalance": "CardUse"}
#: the mix is taken again after so many new workloads, or a quarter of those it is made of
_LEAST_NEW: Final = 20
#: kinds of pods whose tables are kept for each topology and policy
_TABLES_KEPT: Final = 64
#: what it takes to judge a host by a policy, as so many looks at a room (`NodeLedger.looks`); so many hosts are compared in one
_LOOKS_TO_JUDGE: Final = 50
_COMPARED_PER_LOOK: Final = 16


def profile_of(policy: PlacementPolicy) -> PlacingProfile:
    """The tiers of a policy: its own scores, or else those of its profile."""
    own = tuple(Score(each.name, each.tier, each.weight, _args(each)) for each in policy.scores)
    chosen = own or PROFILES[policy.profile].scores
    # hosts are compared first, and between equal ones and on the one that is best, cards
    scores = [replace(each, tier=2 * each.tier) for each in chosen]
    scores += [Score(_OF_CARDS[each.name], 2 * each.tier + 1) for each in chosen if each.name in _OF_CARDS]
    return PlacingProfile(_FILTERS, (*_FIRST, *scores))


def _args(score: PlacementScore) -> Args:
    found: dict[str, object] = {}
    for name in ("label", "value", "annotation", "deviation", "resource", "plugin"):
        if getattr(score, name):
            found[name] = getattr(score, name)
    found |= {"least": score.least, "most": score.most, "target": score.target, "sensitivity": score.sensitivity}
    return {**found, "weights": dict(score.weights)} if score.weights else found


def looks_at(policy: PlacementPolicy) -> frozenset[str]:
    """The annotations of nodes that a policy looks at, and what telemetry rules say of them."""
    found = {each.annotation for each in (*policy.filters, *policy.scores)} | {each.deviation for each in policy.scores}
    found |= {key + TAKEN for key in found if key.startswith(READING)}
    if any(score.name == "DataLocality" for score in profile_of(policy).scores):
        found |= {DATASETS, DOWNLOAD}
    return frozenset(found - {""})


def excludes_by(policy: PlacementPolicy) -> frozenset[str]:
    """The annotations by which a policy may exclude a node."""
    return frozenset(each.annotation for each in policy.filters if each.annotation)


def ask_of(pod_requests: PodRequests, selection: NodeSelection, shares: tuple[Share, ...] = ()) -> PodRequest:
    """What one pod asks of a host, with what policies know of it."""
    if selection.policy is None:
        return PodRequest(pod_requests, shares, selection)
    traits = selection.policy.traits
    return PodRequest(
        pod_requests,
        shares,
        selection,
        kind=traits.kind,
        utilisation=traits.utilisation or 0,
        images=tuple((full_name(image), 0) for image in traits.images),
        data=traits.data,
        seconds=traits.seconds,
    )


class TypicalMix:
    """What the pods of all workloads ask for: for which pods the room that is left should be of use."""

    def __init__(self, workloads: Callable[[], Iterable[Workload]]) -> None:
        self._workloads = workloads
        self._new = 0
        self._size = -1
        self._fragments = Fragments({})
        #: grows when the mix is another
        self.version = 0

    def note(self) -> None:
        """A workload arrived."""
        self._new += 1

    def fragments(self) -> Fragments:
        if self._size < 0 or self._new > max(_LEAST_NEW, self._size // 4):
            self._count()
        return self._fragments

    def _count(self) -> None:
        pods: dict[TypicalPod, int] = {}
        self._size = self._new = 0
        for workload in self._workloads():
            self._size += 1
            for pod_set in workload.pod_sets if not workload.finished else ():
                pod = TypicalPod.of(PodRequest(as_pod_requests(pod_set.requests)))
                pods[pod] = pods.get(pod, 0) + pod_set.count
        self._fragments = Fragments(pods)
        self.version += 1


class PolicyRanking:
    """Ranks the hosts of a topology by a placement policy, see `topology.leaf_ranking.LeafRanking`."""

    def __init__(self, ledger: TopologyLedger, policy: PlacementPolicy, mix: TypicalMix) -> None:
        self._ledger = ledger
        self._profile = profile_of(policy)
        self._mix = mix
        self._mixed = -1
        self._mark = (-1, 0)
        self._leaves: list[Leaf] = []
        self._pipeline = Pipeline(self._profile, [])

    def deal(
        self, pod_requests: PodRequests, selection: NodeSelection, count: int, shares: tuple[Share, ...] = ()
    ) -> tuple[Domain, ...] | None:
        if self._ledger.pods_that_fit(pod_requests) < count:
            return None
        pipeline, ask = self._caught_up(), ask_of(pod_requests, selection, shares)
        before = pipeline.looks
        taken = dict(pod_requests)
        if selection.policy is not None:
            taken |= marks_of(selection.policy.traits, taken)
        drawn = taken | power_marks(taken, shares, ask.kind)
        dealt: dict[int, list[tuple[CardSeat, ...]]] = {}
        try:
            for _ in range(count):
                choice = pipeline.best(ask)
                if choice is None:
                    return None
                seated = choice.place.residents(ask, "")
                dealt.setdefault(choice.position, []).append(
                    tuple(seat_of(room.device, resident) for room, resident in seated)
                )
                host = pipeline.hosts[choice.position]
                host.free = dict(host.free)
                add(host.free, taken, -1)
                host.dealt_cpu += taken.get(CPU, 0)
                for room, resident in seated:
                    room.seat(resident)
                pipeline.changed(choice.position)
                if host.power is not None:
                    host.power[1].assume(host.power[0], drawn, 1)
                    self._note_peers(pipeline, host.power)
        finally:
            self._note_looks(pipeline, before, shares, count)
            for position, pods in dealt.items():
                if (power := pipeline.hosts[position].power) is not None:
                    for _ in pods:
                        power[1].assume(power[0], drawn, -1)
                    self._note_peers(pipeline, power)
                leaf, host = self._leaves[position], pipeline.hosts[position]
                host.free, host.cards, host.dealt_cpu = leaf.free, rooms_of(leaf.devices, leaf.free), 0
                pipeline.changed(position)
        return tuple(_domain(self._leaves[position].key, pods) for position, pods in sorted(dealt.items()))

    def _note_looks(self, pipeline: Pipeline, before: int, shares: tuple[Share, ...], compared: int) -> None:
        """What it took to judge hosts since so many looks, and to compare all of them so many times."""
        judged = (pipeline.looks - before) * (_LOOKS_TO_JUDGE + looks_for(shares))
        self._ledger.node_ledger.looks += judged + compared * len(pipeline.hosts) // _COMPARED_PER_LOOK

    def _note_peers(self, pipeline: Pipeline, power: tuple[str, PowerLedger]) -> None:
        """Other hosts may draw less now, or more again."""
        node, ledger = power
        for position in self._ledger.positions_of(ledger.affected(node)):
            pipeline.changed(position)

    def scores(
        self, pod_requests: PodRequests, selection: NodeSelection, shares: tuple[Share, ...] = ()
    ) -> Sequence[int]:
        pipeline = self._caught_up()
        before = pipeline.looks
        ranks = pipeline.ranks(ask_of(pod_requests, selection, shares))
        self._note_looks(pipeline, before, shares, 1)
        order = {rank: number for number, rank in enumerate(sorted(set(ranks)))}
        return [order[rank] for rank in ranks]

    def _caught_up(self) -> Pipeline:
        """The pipeline with the leaves as they are now."""
        fragments = self._mix.fragments()
        changed, self._mark = self._ledger.changed_since(self._mark)
        if changed is None or self._mixed != self._mix.version or self._has_new_images(changed):
            self._mixed = self._mix.version
            self._leaves = [self._ledger.leaf_at(place) for place in range(self._ledger.size)]
            hosts = [_host(leaf) for leaf in self._leaves]
            self._pipeline = Pipeline(self._profile, hosts, Field(fragments=fragments), _TABLES_KEPT)
            return self._pipeline
        for position in set(changed):
            leaf, host = self._leaves[position], self._pipeline.hosts[position]
            host.free, host.labels, host.taints, host.total = leaf.free, leaf.labels, leaf.taints, _total(leaf)
            host.annotations, host.images, host.power = leaf.annotations, leaf.images, leaf.power
            host.idle_watts, host.gpu_watts = _watts(leaf)
            host.cards = rooms_of(leaf.devices, leaf.free)
            self._pipeline.field.grow(host)
            self._pipeline.changed(position)
        return self._pipeline

    def _has_new_images(self, changed: Iterable[int]) -> bool:
        """Images that no host had before: their sizes change what all hosts have of a pod's images."""
        known = self._pipeline.field.images
        return any(
            size > known.get(image, 0)
            for position in set(changed)
            if self._leaves[position].images is not self._pipeline.hosts[position].images
            for image, size in self._leaves[position].images.items()
        )


def _host(leaf: Leaf) -> Host:
    idle_watts, gpu_watts = _watts(leaf)
    return Host(
        leaf.path[-1],
        _total(leaf),
        leaf.free,
        leaf.labels,
        rooms_of(leaf.devices, leaf.free),
        taints=leaf.taints,
        images=leaf.images,
        annotations=leaf.annotations,
        idle_watts=idle_watts,
        gpu_watts=gpu_watts,
        power=leaf.power,
        knows_cards_of_pods=False,
    )


def _domain(values: LeafKey, pods: list[tuple[CardSeat, ...]]) -> Domain:
    return Domain(values, len(pods), tuple(pods) if any(pods) else ())


def _watts(leaf: Leaf) -> tuple[int, int]:
    node = leaf.nodes[min(leaf.nodes)]
    return node.idle_watts, node.gpu_watts


def _total(leaf: Leaf) -> dict[str, int]:
    """What the nodes of a host have (one node, unless labels are wrong)."""
    total: dict[str, int] = {}
    for node in leaf.nodes.values():
        add(total, node.allocatable)
    return total


# --- single pods ------------------------------------------------------------------------------------------------------
# One pod outside of all gangs on nodes that somebody else offers: whom a policy excludes, and how good the others are.


def rank_nodes(
    policy: PlacementPolicy,
    pod_set: PodSet,
    nodes: Sequence[tuple[Node, Sequence[Requests]]],
    fragments: Fragments,
) -> dict[str, str | tuple[int, ...]]:
    """How the policy ranks nodes for a pod, by node: why it excludes the node, or the node's worth by tier. `nodes`: each with
    what is taken of it.

    Whether there is room, and whether the pod tolerates the node, is the scheduler's to decide, apart from interfaces, which it
    does not know.
    """
    hosts = [_single_host(node, taken) for node, taken in nodes]
    selection = NodeSelection.of(pod_set, (), scored=True, policy=PolicyAsk(policy.filters, pod_set.traits))
    ask = ask_of(as_pod_requests(pod_set.requests), selection)
    excluded = {host.name: _excludes(selection.policy, host) for host in hosts if selection.policy is not None}
    kept = [host for host in hosts if not excluded.get(host.name)]
    profile = PlacingProfile((), profile_of(policy).scores)
    ranks: Mapping[str, tuple[int, ...]] = dict(
        zip((host.name for host in kept), Pipeline(profile, kept, Field(fragments=fragments)).ranks(ask), strict=True)
    )
    return {host.name: excluded.get(host.name) or ranks[host.name] for host in hosts}


def _excludes(policy: PolicyAsk, host: Host) -> str:
    wanted = tuple(sorted(policy.interfaces.items()))
    return policy.excludes(host) or (limit(host.free, wanted) if wanted and not how_many(host.free, wanted) else "")


def _single_host(node: Node, taken: Sequence[Requests]) -> Host:
    free = dict(node.allocatable) | {INTERFACE + name: amount for name, amount in node.interfaces.items()}
    for amounts in taken:
        add(free, amounts, -1)
    return Host(
        node.name,
        node.allocatable,
        free,
        node.labels,
        images=node.images,
        annotations=node.annotations,
        idle_watts=node.idle_watts,
        gpu_watts=node.gpu_watts,
    )
