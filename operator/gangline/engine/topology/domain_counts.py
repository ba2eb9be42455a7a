"""How many pods, slices and leaders fit into every domain of a topology, for one shape of pods.

`Counts` is a table over the tree: filled once, then updated leaf by leaf as capacity changes, so that a question costs what
changed since the last question of the same kind and not the size of the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gangline.engine.cards import card_amounts, card_seating
from gangline.engine.interference.joining import CompanyShare
from gangline.engine.model import Device, Share
from gangline.engine.occupancy.fitting import PodRequests, how_many, how_many_beside, limit
from gangline.engine.occupancy.power_ledger import PowerAsk
from gangline.engine.topology.node_filter import ANY_NODE, NodeSelection, Verdict
from gangline.engine.topology.placement_request import DomainAt, TopologyTree
from gangline.engine.topology.policy_filter import how_many_join


class NodeRoom(Protocol):
    """A leaf as the counts see it."""

    @property
    def free(self) -> Mapping[str, int]:
        """Unused capacity; negative where a leaf is over-used."""
        ...

    @property
    def idle(self) -> Mapping[str, int]:
        """Unused capacity if no topology-aware workload ran."""
        ...

    @property
    def devices(self) -> Sequence[Device]:
        """The cards of the node, of which `free` and `idle` say what is left."""
        ...

    def within_power(self, ask: PowerAsk, count: int, most: int, *, empty: bool) -> tuple[int, str]:
        """How many of so many pods the caps of power allow, for these pods alone and at most `most`; and why none."""
        ...


@dataclass(frozen=True, slots=True)
class CountsKey:
    """What the counts of a table depend on, besides the leaves. Equal demands share a table."""

    pod_requests: PodRequests
    slice_level: int
    slice_size: int = 1
    #: inner slice layers: (level, size) for every level at which children hold whole multiples only.
    inner_sizes: tuple[tuple[int, int], ...] = ()
    leader: PodRequests | None = None
    selection: NodeSelection = ANY_NODE
    simulate_empty: bool = False
    #: what each pod, and the leader, asks of cards
    shares: tuple[Share, ...] = ()
    leader_shares: tuple[Share, ...] = ()
    #: what decides how much each pod, and the leader, draws; None = no policy caps power
    power: PowerAsk | None = None
    leader_power: PowerAsk | None = None

    @property
    def looks(self) -> int:
        """What it takes to count a leaf (`NodeLedger.looks`)."""
        return card_amounts.looks_for((*self.shares, *self.leader_shares))


#: every leaf may get as many pods as it has room for
NO_LIMITS: Final[Mapping[int, int]] = {}


class Counts:
    """Counts per level and domain: `pods` and `slices` that fit, both again beside one leader (`led_…`), and which domains can
    lead.

    Without a leader the `led_…` tables are the plain ones and `leads` is None. `scores` is None unless preferences count.
    `reasons` says for each leaf why it is excluded ("" = it is not); `tally` counts them.
    """

    __slots__ = (
        "_inner",
        "_most",
        "demand",
        "leads",
        "led_pods",
        "led_slices",
        "pods",
        "reasons",
        "scores",
        "slices",
        "tally",
        "tree",
    )

    def __init__(self, tree: TopologyTree, demand: CountsKey) -> None:
        self.tree = tree
        self.demand = demand
        self._inner = dict(demand.inner_sizes)
        self._most: Mapping[int, int] = NO_LIMITS
        self.pods = self._zeros()
        single_pods = demand.slice_size == 1 and demand.slice_level == tree.lowest
        self.slices = self.pods if single_pods else self._zeros()
        self.leads: list[list[int]] | None = None
        self.led_pods, self.led_slices = self.pods, self.slices
        if demand.leader is not None:
            self.leads, self.led_pods = self._zeros(), self._zeros()
            self.led_slices = self.led_pods if single_pods else self._zeros()
        self.scores = self._zeros() if demand.selection.preferred else None
        self.reasons = [""] * tree.size(tree.lowest)
        self.tally: Counter[str] = Counter()

    def _zeros(self) -> list[list[int]]:
        return [[0] * self.tree.size(level) for level in range(self.tree.depth)]

    # --- filling ------------------------------------------------------------------------------------------------------

    def fill(
        self,
        rooms: Sequence[NodeRoom],
        verdicts: Sequence[Verdict],
        within: range | None = None,
        most: Mapping[int, int] = NO_LIMITS,
    ) -> None:
        """Count everything afresh. Leaves outside `within` are excluded as outside the topology domain. Some leaves get at most
        so many pods (`most`).
        """
        self._most = most
        everything = range(len(rooms))
        for leaf in everything:
            verdict = verdicts[leaf]
            if within is not None and leaf not in within and not verdict[0]:
                verdict = ("topologyDomain", verdict[1])
            self._count_leaf(leaf, rooms[leaf], verdict)
        for level in range(self.tree.lowest - 1, -1, -1):
            for position in range(self.tree.size(level)):
                self._count_parent(level, position, self._inner)

    def update(self, leaves: Collection[int], rooms: Sequence[NodeRoom], verdicts: Sequence[Verdict]) -> None:
        """Count these leaves again, and the domains that contain them."""
        for leaf in leaves:
            self._count_leaf(leaf, rooms[leaf], verdicts[leaf])
        changed: Iterable[int] = leaves
        for level in range(self.tree.lowest, 0, -1):
            parents = self.tree.parents[level]
            changed = {parents[position] for position in changed}
            for position in changed:
                self._count_parent(level - 1, position, self._inner)

    def _count_leaf(self, leaf: int, room: NodeRoom, verdict: Verdict) -> None:
        demand, lowest = self.demand, self.tree.lowest
        reason, score = verdict
        fitting = leading = beside = 0
        if not reason:
            free = room.idle if demand.simulate_empty else room.free
            fitting = how_many(free, demand.pod_requests)
            if not fitting:
                reason = limit(free, demand.pod_requests)
            if demand.leader is not None:
                leading = 1 if how_many(free, demand.leader) else 0
                beside = how_many_beside(free, demand.leader, demand.pod_requests) if leading else fitting
            if room.devices and (demand.shares or demand.leader_shares):
                fitting, leading, beside, lacking = _on_cards(demand, room.devices, free, (fitting, leading, beside))
                reason = reason or lacking
            if demand.power is not None and not reason:
                fitting, leading, beside, reason = self._by_power(demand.power, leaf, room, (fitting, leading, beside))
        self._note(leaf, reason)
        at_slice_level = demand.slice_level == lowest
        self.pods[lowest][leaf] = fitting
        if at_slice_level:
            self.slices[lowest][leaf] = fitting // demand.slice_size
        if self.leads is not None:
            self.leads[lowest][leaf] = leading
            self.led_pods[lowest][leaf] = beside
            if at_slice_level:
                self.led_slices[lowest][leaf] = beside // demand.slice_size
        if self.scores is not None:
            self.scores[lowest][leaf] = score

    def _by_power(
        self, ask: PowerAsk, leaf: int, room: NodeRoom, counts: tuple[int, int, int]
    ) -> tuple[int, int, int, str]:
        """How many of so many pods, and leaders, and pods beside a leader, the caps of power allow; and why none."""
        demand, (fitting, leading, beside) = self.demand, counts
        empty = demand.simulate_empty
        fitting, reason = room.within_power(ask, fitting, self._most.get(leaf, fitting), empty=empty)
        if demand.leader_power is not None and leading:
            leading, _ = room.within_power(demand.leader_power, leading, leading, empty=empty)
        return fitting, leading, min(beside, fitting), reason

    def _note(self, leaf: int, reason: str) -> None:
        before = self.reasons[leaf]
        if before == reason:
            return
        self.reasons[leaf] = reason
        if before:
            self.tally[before] -= 1
        if reason:
            self.tally[reason] += 1

    def _count_parent(self, level: int, position: int, inner: Mapping[int, int]) -> None:
        children = self.tree.children(level, position)
        first, end = children.start, children.stop
        below = self.pods[level + 1][first:end]
        multiple = inner.get(level + 1, 1)
        if multiple > 1:
            below = [pods - pods % multiple for pods in below]
        pods = sum(below)
        self.pods[level][position] = pods
        if self.scores is not None:
            self.scores[level][position] = sum(self.scores[level + 1][first:end])
        slices = 0
        if self.slices is not self.pods:
            slices = self._slices_of_parent(level, pods, self.slices[level + 1][first:end])
            self.slices[level][position] = slices
        if self.leads is not None:
            self._count_led_parent(level, position, children, below, multiple)

    def _slices_of_parent(self, level: int, pods: int, below: list[int]) -> int:
        if level == self.demand.slice_level:
            return pods // self.demand.slice_size
        return sum(below)

    def _count_led_parent(self, level: int, position: int, children: range, below: list[int], multiple: int) -> None:
        """The leader is placed where it costs least: the minimum is taken for pods and slices separately."""
        assert self.leads is not None
        down = level + 1
        leaders = [child for child in children if self.leads[down][child]]
        self.leads[level][position] = 1 if leaders else 0
        led_pods = led_slices = 0
        if leaders:
            beside, first = self.led_pods[down], children.start
            loss = min(below[child - first] - (beside[child] - beside[child] % multiple) for child in leaders)
            led_pods = sum(below) - loss
            whole, led = self.slices[down], self.led_slices[down]
            led_slices = sum(whole[children.start : children.stop]) - min(whole[c] - led[c] for c in leaders)
        self.led_pods[level][position] = led_pods
        if self.led_slices is not self.led_pods:
            at_slice_level = level == self.demand.slice_level
            self.led_slices[level][position] = led_pods // self.demand.slice_size if at_slice_level else led_slices

    # --- trying out (balanced placement, searches) --------------------------------------------------------------------

    def clone(self) -> Counts:
        """A copy to prune; it shares what pruning does not change."""
        twin = object.__new__(Counts)
        twin.tree, twin.demand = self.tree, self.demand
        twin._inner, twin.reasons, twin.tally, twin.scores = self._inner, self.reasons, self.tally, self.scores
        twin._most = self._most
        twin.pods = _copy(self.pods)
        twin.slices = twin.pods if self.slices is self.pods else _copy(self.slices)
        twin.led_pods, twin.led_slices, twin.leads = twin.pods, twin.slices, None
        if self.leads is not None:
            twin.leads, twin.led_pods = _copy(self.leads), _copy(self.led_pods)
            twin.led_slices = twin.led_pods if self.led_slices is self.led_pods else _copy(self.led_slices)
        return twin

    def closing(self, closed: Collection[DomainAt]) -> Counts:
        """A copy in which nothing fits into these domains."""
        twin = self.clone()
        for level, position in closed:
            twin.empty(level, position)
        changed: set[int] = set()
        for level in range(self.tree.lowest, 0, -1):
            changed |= {position for at, position in closed if at == level}
            changed = {self.tree.parents[level][position] for position in changed}
            for position in changed:
                twin._count_parent(level - 1, position, self._inner)
        return twin

    def empty(self, level: int, position: int) -> None:
        """Set the counts of a domain to zero: nothing fits into it any more, nor anywhere inside it."""
        tables = [self.pods, self.slices]
        if self.leads is not None:
            tables += [self.led_pods, self.led_slices, self.leads]
        self._zero(tables, level, position)

    def bar_leader(self, level: int, position: int) -> None:
        """The leader may not be placed in this domain any more; workers may."""
        if self.leads is not None:
            self._zero([self.led_pods, self.led_slices, self.leads], level, position)

    def _zero(self, tables: list[list[list[int]]], level: int, position: int) -> None:
        first, end = position, position + 1
        while True:
            for table in tables:
                table[level][first:end] = [0] * (end - first)
            if level == self.tree.lowest or first == end:
                return
            first, end = self.tree.children(level, first).start, self.tree.children(level, end - 1).stop
            level += 1

    def recount(self, level: int, position: int) -> None:
        """Sum up this domain from its leaves again, without regard to inner slice layers."""
        spans = [(position, position + 1)]
        for step in range(level, self.tree.lowest):
            first, end = spans[-1]
            spans.append((self.tree.children(step, first).start, self.tree.children(step, end - 1).stop))
        for step in range(self.tree.lowest - 1, level - 1, -1):
            for domain in range(*spans[step - level]):
                self._count_parent(step, domain, {})


def _on_cards(
    demand: CountsKey, devices: Sequence[Device], free: Mapping[str, int], counts: tuple[int, int, int]
) -> tuple[int, int, int, str]:
    """How many of so many pods, and leaders, and pods beside a leader, also find room on the cards of a host; and why none."""
    fitting, leading, beside = counts
    own, leaders = card_seating.bound(devices, demand.shares), card_seating.bound(devices, demand.leader_shares)
    lacking = ""
    if own and fitting:
        fitting, lacking = fitting_on_cards(devices, own, free, fitting)
    if leaders and leading:
        rooms = card_amounts.rooms_of(devices, free)
        leading = int(card_seating.seat_pod(rooms, leaders) is not None)
        if own and leading:
            beside = card_seating.pods_that_fit(rooms, own, beside)
    return fitting, leading, min(beside, fitting) if own and demand.leader is not None else beside, lacking


def fitting_on_cards(
    devices: Sequence[Device], shares: Sequence[Share], free: Mapping[str, int], most: int, *, explained: bool = True
) -> tuple[int, str]:
    """How many of so many pods, one at least, also find room on the cards of a host; and why none, which costs as much again.
    `shares`: what each asks of cards that have an inventory, which is something.
    """
    if isinstance(shares[0], CompanyShare):
        most, lacking = how_many_join(shares[0].company, free, most)
        if not most:
            return 0, lacking
    rooms = card_amounts.rooms_of(devices, free)
    fitting = card_seating.pods_that_fit(rooms, shares, most)
    return fitting, card_seating.why_none(rooms, shares) if explained and not fitting else ""


def _copy(table: list[list[int]]) -> list[list[int]]:
    return [row.copy() for row in table]
