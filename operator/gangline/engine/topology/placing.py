"""Placing a workload's pod sets, in order, on one topology flavor: groups, earlier pod sets' pods, and trials."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from gangline.engine.model import Domain, Requests, Share, TopologyAssignment
from gangline.engine.occupancy.fitting import HOSTNAME
from gangline.engine.occupancy.power_ledger import PowerAsk
from gangline.engine.topology.balanced import DealtShare
from gangline.engine.topology.domain_counts import Counts, CountsKey
from gangline.engine.topology.domain_search import Search, no_replacement, over_power
from gangline.engine.topology.domain_search import stale_domain as stale_text
from gangline.engine.topology.leaf_ranking import LeafRanking
from gangline.engine.topology.node_filter import NodeSelection
from gangline.engine.topology.placement_request import (
    KUEUE_DEFAULTS,
    Goal,
    PlacementRequest,
    PlacementResult,
    PlacementRules,
    Unplaceable,
    goal_of,
    level_index,
)
from gangline.engine.topology.seating import Seating, counted, joined
from gangline.engine.topology.topology_ledger import TopologyLedger, usage_at


class PlacedPods(NamedTuple):
    """Placed pods: where, and what each of them takes (without its one of `pods`)."""

    assignment: TopologyAssignment
    requests: Requests


#: Assignments by pod set name.
Placed: TypeAlias = dict[str, TopologyAssignment]


def place(
    ledger: TopologyLedger,
    requests: Sequence[PlacementRequest],
    *,
    profile: PlacementRules = KUEUE_DEFAULTS,
    simulate_empty: bool = False,
    assumed: Iterable[PlacedPods] = (),
    without: Iterable[PlacedPods] = (),
    ranking: LeafRanking | None = None,
) -> PlacementResult:
    """Place a workload's pod sets; each sees the pods of the earlier ones. The ledger is left as it was.

    `simulate_empty` assumes that no topology-aware workload runs; `without` that these holders (victims) are gone; `assumed`
    that these pods, too, are there (this workload's on sibling flavors), even in an empty cluster. Pod sets without pods are
    skipped. Groups are placed in the order in which they first appear; the first failure ends it. `ranking` orders the leaves,
    which are hosts; an empty cluster has no order.
    """
    placed: Placed = {}
    groups = groups_of(requests)
    with what_if(ledger, assumed, without) as assume:
        for number, members in enumerate(groups, start=1):
            try:
                found = _place_group(ledger, members, profile, simulate_empty, None if simulate_empty else ranking)
            except GroupFailure as failure:
                return PlacementResult(placed, failure.text, failure.pod_sets)
            placed.update(found)
            if number < len(groups):
                for member in members:
                    assume.take(found[member.pod_set.name], member.takes)
    return PlacementResult(placed)


class Assume:
    """Pods of the workload that is being placed, taken from the ledger until the question is answered."""

    __slots__ = ("_holds", "_ledger")

    def __init__(self, ledger: TopologyLedger) -> None:
        self._ledger = ledger
        self._holds: list[PlacedPods] = []

    def take(self, assignment: TopologyAssignment, requests: Requests) -> None:
        self._ledger.assume(assignment, requests)
        self._holds.append(PlacedPods(assignment, requests))

    def undo(self) -> None:
        while self._holds:
            self._ledger.assume(*self._holds.pop(), sign=-1)


@contextmanager
def what_if(ledger: TopologyLedger, assumed: Iterable[PlacedPods], without: Iterable[PlacedPods]) -> Generator[Assume]:
    """The ledger with some pods more and some holders less; everything is undone at the end."""
    gone = tuple(without)
    for hold in gone:
        ledger.remove(*hold)
    assume = Assume(ledger)
    try:
        for hold in assumed:
            assume.take(*hold)
        yield assume
    finally:
        assume.undo()
        for hold in gone:
            ledger.add(*hold)


class GroupFailure(Exception):  # noqa: N818 - an answer, not an error
    """A group cannot be placed; the text is about these pod sets."""

    def __init__(self, text: str, pod_sets: tuple[str, ...]) -> None:
        super().__init__(text)
        self.text = text
        self.pod_sets = pod_sets


def groups_of(requests: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    """Pod sets that are placed together, in the order in which groups first appear; those without pods are left out."""
    groups: dict[tuple[str, str], list[PlacementRequest]] = {}
    for request in requests:
        pod_set = request.pod_set
        if pod_set.count > 0:
            group = pod_set.topology.group if pod_set.topology else ""
            groups.setdefault(("group", group) if group else ("pod set", pod_set.name), []).append(request)
    return list(groups.values())


def _place_group(
    ledger: TopologyLedger,
    members: list[PlacementRequest],
    profile: PlacementRules,
    simulate_empty: bool,
    ranking: LeafRanking | None,
) -> Placed:
    names = tuple(member.pod_set.name for member in members)
    if len(members) > 2:
        raise GroupFailure(f"pod set group of {', '.join(names)}: at most one leader and one worker pod set", names)
    leader, workers = _leader_and_workers(members)
    if workers.previous is not None:
        kept = _keep_previous(ledger, leader, workers, profile, simulate_empty, ranking)
        if kept is not None:
            return kept
    try:
        return find(ledger, workers, leader, profile=profile, simulate_empty=simulate_empty, ranking=ranking)
    except Unplaceable as failure:
        raise GroupFailure(str(failure), names) from None


def _leader_and_workers(members: list[PlacementRequest]) -> tuple[PlacementRequest | None, PlacementRequest]:
    """The leader is the smaller pod set, the later one of two equals."""
    if len(members) == 1:
        return None, members[0]
    first, second = members
    return (first, second) if first.pod_set.count < second.pod_set.count else (second, first)


# --- one search -------------------------------------------------------------------------------------------------------


def _demand(
    ledger: TopologyLedger,
    workers: PlacementRequest,
    leader: PlacementRequest | None,
    goal: Goal,
    profile: PlacementRules,
    *,
    simulate_empty: bool = False,
) -> CountsKey:
    """What has to be counted to place a pod set, with one pod of its leader."""
    capped = ledger.node_ledger.power is not None and ledger.hostnames
    return CountsKey(
        pod_requests=counted(ledger, workers.pod_set, workers.shares, workers.policy),
        slice_level=goal.slice_level,
        slice_size=goal.slice_size,
        inner_sizes=tuple(goal.inner_sizes.items()),
        leader=counted(ledger, leader.pod_set, leader.shares, leader.policy) if leader else None,
        selection=NodeSelection.of(
            workers.pod_set,
            ledger.flavor.tolerations,
            scored=profile.respect_preferred_affinity and ledger.hostnames,
            policy=workers.policy if ledger.hostnames else None,
        ),
        simulate_empty=simulate_empty,
        shares=workers.shares,
        leader_shares=leader.shares if leader else (),
        power=PowerAsk.of_pods(workers.pod_set) if capped else None,
        leader_power=PowerAsk.of_pods(leader.pod_set) if capped and leader else None,
    )


def room_for(ledger: TopologyLedger, members: list[PlacementRequest], profile: PlacementRules) -> tuple[Goal, Counts]:
    """What a group asks for, and how many of its workers fit where, as the ledger is. Raises Unplaceable."""
    leader, workers = _leader_and_workers(members)
    goal = goal_of(workers, ledger.levels, profile)
    return goal, ledger.counts(_demand(ledger, workers, leader, goal, profile))


def find(
    ledger: TopologyLedger,
    workers: PlacementRequest,
    leader: PlacementRequest | None = None,
    *,
    profile: PlacementRules,
    simulate_empty: bool = False,
    within: range | None = None,
    ranking: LeafRanking | None = None,
) -> Placed:
    """Place one pod set, with one pod of its leader. Raises Unplaceable with Kueue's text if that is not possible.

    Leaves outside `within` are not considered (node replacement).
    """
    goal = goal_of(workers, ledger.levels, profile)
    demand = _demand(ledger, workers, leader, goal, profile, simulate_empty=simulate_empty)
    closed = workers.closed
    if workers.unranked:
        ranking = None
    if ranking is not None and leader is None and not closed and _goes_anywhere(goal, ledger):
        dealt = ranking.deal(demand.pod_requests, demand.selection, goal.count, demand.shares)
        if dealt is not None:
            return {workers.pod_set.name: TopologyAssignment(levels_of(ledger), dealt)}
    counts = ledger.counts(demand) if within is None else ledger.counts_within(demand, within)
    ledger.node_ledger.looks += len(counts.pods[goal.level])
    if closed:
        counts = counts.closing(closed)
        ledger.node_ledger.looks += ledger.size
    scores = None if ranking is None else ranking.scores(demand.pod_requests, demand.selection, demand.shares)
    placed = _search(ledger, goal, demand, counts, (workers, leader), profile, scores)
    if demand.power is None or simulate_empty or _within_power(ledger, placed, (workers, leader)):
        return placed
    together = ledger.counts_together(demand, counts, within)
    if closed:
        together = together.closing(closed)
    placed = _search(ledger, goal, demand, together, (workers, leader), profile, scores)
    if not _within_power(ledger, placed, (workers, leader)):
        raise Unplaceable(over_power(ledger.topology.name))
    return placed


def _within_power(
    ledger: TopologyLedger, placed: Placed, members: tuple[PlacementRequest, PlacementRequest | None]
) -> bool:
    """Whether all of these pods together are within the caps of their power domains."""
    taken = [
        ((ledger.spot_flavor, domain.values), usage_at(domain, member.takes))
        for member in members
        if member is not None
        for domain in placed[member.pod_set.name].domains
    ]
    return ledger.node_ledger.within_power(tuple(taken))


def _search(
    ledger: TopologyLedger,
    goal: Goal,
    demand: CountsKey,
    counts: Counts,
    members: tuple[PlacementRequest, PlacementRequest | None],
    profile: PlacementRules,
    leaf_scores: Sequence[int] | None,
) -> Placed:
    workers, leader = members
    search = Search(
        counts,
        goal,
        topology=ledger.topology.name,
        levels=ledger.levels,
        hostnames=ledger.hostnames,
        balanced=profile.balanced,
        leaf_scores=leaf_scores,
    )
    shares = _first(search.place(), goal.count)
    on_cards = Seating(ledger, simulate_empty=demand.simulate_empty)
    placed: Placed = {}
    if leader:
        leading = [DealtShare(share.position, 1, 0) for share in shares if share.leaders]
        placed[leader.pod_set.name] = _assignment(ledger, leading, demand.leader_shares, on_cards)
    placed[workers.pod_set.name] = _assignment(ledger, shares, demand.shares, on_cards)
    return placed


def _first(shares: list[DealtShare], count: int) -> list[DealtShare]:
    """The shares of so many pods, in path order: those of the last slice may be fewer than its size."""
    kept: list[DealtShare] = []
    for share in shares:
        kept.append(DealtShare(share.position, min(share.units, count), share.leaders))
        count -= kept[-1].units
    return kept


def _goes_anywhere(goal: Goal, ledger: TopologyLedger) -> bool:
    """Whether nothing keeps the pods together: each may go to any leaf by itself."""
    return goal.level == len(ledger.levels) - 1 and not (goal.required or goal.climbs or goal.layers)


def _assignment(
    ledger: TopologyLedger, dealt: list[DealtShare], shares: tuple[Share, ...], on_cards: Seating
) -> TopologyAssignment:
    """Pods in path order as an assignment, each with its cards."""
    domains = tuple(
        Domain(ledger.leaf_at(each.position).key, each.units, on_cards.seat(each.position, shares, each.units))
        for each in dealt
        if each.units
    )
    return TopologyAssignment(levels_of(ledger), domains)


def levels_of(ledger: TopologyLedger) -> tuple[str, ...]:
    """The levels that assignments of this flavor name."""
    return (HOSTNAME,) if ledger.hostnames else ledger.levels


# --- assignments ------------------------------------------------------------------------------------------------------


def stale_domain(ledger: TopologyLedger, assignment: TopologyAssignment) -> str | None:
    """The first domain of an assignment that is not in the topology (any more), by its first value."""
    for domain in assignment.domains:
        if ledger.leaf(domain.values) is None:
            return domain.values[0]
    return None


def merge(ledger: TopologyLedger, one: TopologyAssignment, other: TopologyAssignment) -> TopologyAssignment:
    """The two assignments together in path order; all domains must be in the topology."""
    found: dict[tuple[str, ...], Domain] = {}
    for domain in (*one.domains, *other.domains):
        known = found.get(domain.values)
        found[domain.values] = domain if known is None else joined(known, domain)
    ledger.tree()

    def position(values: tuple[str, ...]) -> int:
        leaf = ledger.leaf(values)
        if leaf is None:
            raise ValueError(f"topology assignment: domain {values} is not in topology {ledger.topology.name!r}")
        return leaf.position

    return TopologyAssignment(levels_of(ledger), tuple(found[values] for values in sorted(found, key=position)))


# --- elastic jobs -----------------------------------------------------------------------------------------------------


def _keep_previous(
    ledger: TopologyLedger,
    leader: PlacementRequest | None,
    workers: PlacementRequest,
    profile: PlacementRules,
    simulate_empty: bool,
    ranking: LeafRanking | None,
) -> Placed | None:
    """Extend or cut the placement of the replaced workload slice; None where that is not possible."""
    previous = workers.previous
    if previous is None or stale_domain(ledger, previous) is not None:
        return None
    pod_set = workers.pod_set
    placed: Placed = {pod_set.name: _cut(previous, pod_set.count)}
    kept = [PlacedPods(placed[pod_set.name], workers.takes)]
    if leader is not None:
        if leader.previous is None or stale_domain(ledger, leader.previous) is not None:
            return None
        placed[leader.pod_set.name] = leader.previous
        kept.append(PlacedPods(leader.previous, leader.takes))
    missing = pod_set.count - sum(domain.count for domain in previous.domains)
    if missing > 0:
        more = replace(workers, pod_set=replace(pod_set, count=missing), previous=None)
        try:
            with what_if(ledger, kept, ()):
                found = find(ledger, more, profile=profile, simulate_empty=simulate_empty, ranking=ranking)[
                    pod_set.name
                ]
        except Unplaceable as failure:
            raise GroupFailure(str(failure), (pod_set.name,)) from None
        placed[pod_set.name] = merge(ledger, previous, found)
    return placed


def _cut(assignment: TopologyAssignment, count: int) -> TopologyAssignment:
    """The first `count` pods of an assignment."""
    domains: list[Domain] = []
    for domain in assignment.domains:
        if count <= 0:
            break
        domains.append(Domain(domain.values, min(domain.count, count), domain.cards[:count]))
        count -= domain.count
    return TopologyAssignment(assignment.levels, tuple(domains))


# --- replacing --------------------------------------------------------------------------------------------------------
# Replacing a failed node under a running workload: only the failed node's pods are placed again.


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
                with _without_draw(ledger, request, host):
                    moved = _move(ledger, request.pod_set, remaining, missing, host, profile)
            except Unplaceable as failure:
                return PlacementResult(placed, str(failure), (name,))
            assume.take(moved, request.pod_set.takes)
            placed[name] = merge(ledger, moved, remaining)
    return PlacementResult(placed)


@contextmanager
def _without_draw(ledger: TopologyLedger, request: ReplacementRequest, host: str) -> Generator[None]:
    """The power domains as they are when the pods on the failed host draw nothing any more."""
    power = ledger.node_ledger.power
    if power is None:
        yield
        return
    lost = [domain for domain in request.existing.domains if domain.values[-1] == host]
    gone = [
        (name, usage_at(domain, request.pod_set.takes)) for domain in lost for name in ledger.node_ledger.nodes_at(host)
    ]
    for name, amounts in gone:
        power.assume(name, amounts, -1)
    try:
        yield
    finally:
        for name, amounts in gone:
            power.assume(name, amounts, 1)


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
