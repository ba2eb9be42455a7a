"""One topology flavor's view of the rooms: its nodes as leaves of a tree, and the counts that answer placement requests.

What is taken of a leaf is in the ledger of nodes. Changes arrive one by one and each costs what it touches.
Counts are kept per `CountsKey` and catch up from a log of changed leaves when they are next asked. Only when leaves come or go is
the tree built again, at the next question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gangline.engine.cards import card_amounts
from gangline.engine.model import (
    Device,
    Domain,
    Flavor,
    Node,
    Requests,
    Taint,
    Topology,
    TopologyAssignment,
    TopologyRequest,
)
from gangline.engine.model.nodes import INTERFACE
from gangline.engine.occupancy.fitting import HOSTNAME, PodRequests, add, how_many, usage_of
from gangline.engine.occupancy.node_ledger import HOSTS, LeafKey, NodeLedger
from gangline.engine.occupancy.power_ledger import PowerAsk, PowerLedger
from gangline.engine.topology.domain_counts import Counts, CountsKey
from gangline.engine.topology.node_filter import NodeSelection, Verdict
from gangline.engine.topology.placement_request import Path, TopologyTree
from gangline.engine.topology.policy_filter import is_mark, said_by

#: Tables kept per ledger; the least recently used one is dropped first.
_TABLES_KEPT = 64
#: The log of changed leaves starts over when it is this many times longer than the list of leaves.
_LOG_LENGTH = 4
_LOG_LEAST = 1024


class Leaf:
    """A lowest domain: its nodes (one, where leaves are hosts), and the capacity left with and without the holders."""

    __slots__ = (
        "annotations",
        "devices",
        "free",
        "idle",
        "images",
        "key",
        "labels",
        "nodes",
        "path",
        "position",
        "power",
        "taints",
        "total",
    )

    def __init__(self, key: LeafKey) -> None:
        self.key = key
        self.path: Path = key
        self.position = -1
        self.nodes: dict[str, Node] = {}
        self.free: dict[str, int] = {}
        self.idle: dict[str, int] = {}
        self.labels: Mapping[str, str] = {}
        self.taints: Sequence[Taint] = ()
        #: of its first node, as far as policies look at them
        self.annotations: Mapping[str, str] = {}
        self.images: Mapping[str, int] = {}
        self.total: Mapping[str, int] = {}
        #: the cards of its host, where they are known; what is free of them is in `free`
        self.devices: Sequence[Device] = ()
        #: the name of its node, and the caps of power that bound it; None = there are none, or it is no host
        self.power: tuple[str, PowerLedger] | None = None

    def within_power(self, ask: PowerAsk, count: int, most: int, *, empty: bool) -> tuple[int, str]:
        """How many of so many pods the caps of its power domains allow, for these pods alone and at most `most`; and why none."""
        if self.power is None:
            return count, ""
        node, power = self.power
        allowed = min(count, most, power.how_many(node, ask, empty=empty))
        return allowed, "" if allowed or not count else power.why((node,), ask)


class TopologyLedger:
    """See the module's docstring. Flavors whose topologies end at the hostname share what is taken of hosts."""

    def __init__(self, flavor: Flavor, topology: Topology, node_ledger: NodeLedger | None = None) -> None:
        if not topology.levels:
            raise ValueError(f"topology {topology.name!r}: levels must not be empty")
        self.flavor = flavor
        self.topology = topology
        self.levels = topology.levels
        #: Leaves are hosts: taints, selectors and affinity are checked, and assignments name the hostname only.
        self.hostnames = topology.levels[-1] == HOSTNAME
        self.node_ledger = node_ledger if node_ledger is not None else NodeLedger()
        #: the flavor has no topology of its own: it is for pods of queues with a placement policy
        self.of_policy = not flavor.topology
        #: grows whenever the log of changed leaves starts over
        self._epoch = 0
        #: of its spots in the ledger of nodes
        self.spot_flavor = HOSTS if self.hostnames else flavor.name
        self.node_ledger.watch_spots(self.spot_flavor, self)
        self._leaves: dict[LeafKey, Leaf] = {}
        self._leaf_of_node: dict[str, Leaf] = {}
        self._forget_structure()

    def close(self) -> None:
        """Stop following the rooms; the ledger must not be used afterwards."""
        self.node_ledger.unwatch_spots(self.spot_flavor, self)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> bool:
        """A node as it is now. True if that changes anything here."""
        leaf = self._leaf_of_node.get(node.name)
        if leaf is not None and leaf.nodes[node.name] == node:
            return False
        path = self._path(node)
        moved = leaf is not None and (path is None or self._key(path) != leaf.key)
        if moved:
            self.remove_node(node.name)
        if path is None:
            return moved
        key = self._key(path)
        leaf = self._leaves.setdefault(key, Leaf(key))
        leaf.nodes[node.name] = node
        self._leaf_of_node[node.name] = leaf
        self._renew(leaf)
        return True

    def remove_node(self, name: str) -> bool:
        """A node was deleted (unknown names are ignored). True if that changes anything here."""
        leaf = self._leaf_of_node.pop(name, None)
        if leaf is None:
            return False
        del leaf.nodes[name]
        self._renew(leaf)
        return True

    def _path(self, node: Node) -> Path | None:
        """The path of a node in the topology, None if it does not count: not ready, cordoned, other labels, no level."""
        labels = node.labels
        if not node.ready or node.unschedulable:
            return None
        if any(labels.get(key) != value for key, value in self.flavor.node_labels.items()):
            return None
        if any(level not in labels for level in self.levels):
            return None
        return tuple(labels[level] for level in self.levels)

    def _key(self, path: Path) -> LeafKey:
        return path[-1:] if self.hostnames else path

    def _renew(self, leaf: Leaf) -> None:
        """The nodes of a leaf changed: sum them up again. If two nodes have one hostname, the first name counts."""
        if not leaf.nodes:
            del self._leaves[leaf.key]
            self._forget_structure()
            return
        first = leaf.nodes[min(leaf.nodes)]
        path = self._path(first) or leaf.path
        leaf.labels, leaf.taints = first.labels, first.taints
        leaf.annotations, leaf.images, leaf.total = first.annotations, first.images, first.allocatable
        leaf.idle = {}
        for name, node in leaf.nodes.items():
            add(leaf.idle, node.allocatable)
            add(leaf.idle, {INTERFACE + each: amount for each, amount in node.interfaces.items()})
            add(leaf.idle, self.node_ledger.foreign_on(name), -1)
        power = self.node_ledger.power
        leaf.power = (min(leaf.nodes), power) if power is not None and self.hostnames else None
        leaf.devices = self.node_ledger.cards.devices(min(leaf.nodes)) if self.hostnames else ()
        if leaf.devices:
            add(leaf.idle, card_amounts.capacity(leaf.devices))
        leaf.free = dict(leaf.idle)
        add(leaf.free, self.node_ledger.on_spot((self.spot_flavor, leaf.key)), -1)
        if leaf.position < 0 or path != leaf.path:
            leaf.path = path
            self._forget_structure()
            return
        if self._tree is not None:
            self._judged_anew.append(leaf.position)
            self._log.append(leaf.position)

    def cards_put(self, node: str) -> bool:
        """The cards of a node are others. Returns whether the node is in this topology."""
        leaf = self._leaf_of_node.get(node)
        if leaf is not None:
            self._renew(leaf)
        return leaf is not None

    # --- usage --------------------------------------------------------------------------------------------------------

    def foreign_shifted(self, node: str, amounts: Requests, sign: int) -> bool:
        """Pods of others take `amounts` more of a node (sign -1: less). Returns whether the node is in this topology."""
        leaf = self._leaf_of_node.get(node)
        if leaf is None:
            return False
        add(leaf.idle, amounts, -sign)
        self._take(leaf, amounts, sign)
        return True

    def add(self, assignment: TopologyAssignment, requests: Requests) -> None:
        """A workload's pods, each taking `requests` and one of `pods`, hold this placement."""
        self._shift(assignment, requests, 1)

    def remove(self, assignment: TopologyAssignment, requests: Requests) -> None:
        """The exact reverse of `add`."""
        self._shift(assignment, requests, -1)

    def _shift(self, assignment: TopologyAssignment, requests: Requests, sign: int) -> None:
        for domain in assignment.domains:
            self.node_ledger.shift_spot((self.spot_flavor, domain.values), usage_at(domain, requests), sign)

    def spot_shifted(self, key: LeafKey, amounts: Requests, sign: int) -> None:
        """The usage of a leaf, which other flavors may share, changed."""
        leaf = self._leaves.get(key)
        if leaf is not None:
            self._take(leaf, amounts, sign)

    def assume(self, assignment: TopologyAssignment, requests: Requests, sign: int = 1) -> None:
        """Temporarily, pods of the workload that is being placed take these domains, even of an otherwise empty cluster."""
        for domain in assignment.domains:
            leaf = self._leaves.get(domain.values)
            if leaf is not None:
                amounts = usage_at(domain, requests)
                add(leaf.idle, amounts, -sign)
                self._take(leaf, amounts, sign)
                if leaf.power is not None:
                    leaf.power[1].assume(leaf.power[0], amounts, sign)

    def positions_of(self, nodes: Iterable[str]) -> list[int]:
        """The positions of the leaves of these nodes, as far as they have any."""
        return [leaf.position for name in nodes if (leaf := self._leaf_of_node.get(name)) is not None]

    def power_shifted(self, nodes: Iterable[str]) -> None:
        """Other amounts may be left of what the power domains of these nodes may draw."""
        if self._tree is not None and self.hostnames:
            self._log.extend(self.positions_of(nodes))

    def start_over(self) -> None:
        """Other caps hold: count everything afresh."""
        for leaf in list(self._leaves.values()):
            self._renew(leaf)
        self._forget_tables()

    def _take(self, leaf: Leaf, amounts: Requests, sign: int) -> None:
        add(leaf.free, amounts, -sign)
        if self._tree is not None:
            self._log.append(leaf.position)

    # --- looking ------------------------------------------------------------------------------------------------------

    def has_levels(self, asked: TopologyRequest) -> bool:
        """Whether the topology has every level that a request names."""
        named = [level for level in (asked.required, asked.preferred) if level]
        return all(level in self.levels for level in [*named, *(layer.level for layer in asked.slices)])

    def reports(self, resource: str) -> bool:
        """Whether any node has such a resource."""
        return any(resource in node.allocatable for leaf in self._leaves.values() for node in leaf.nodes.values())

    def leaf(self, key: LeafKey) -> Leaf | None:
        """The leaf that an assignment's domain names, None if it is not (any more) in the topology."""
        return self._leaves.get(key)

    def has_room(self, key: LeafKey, amounts: Requests, *, by_bandwidth: bool = False) -> bool:
        """Whether a leaf exists and has at least this free, beside wanted neighbours. Marks for policies bound nothing, except
        those of interfaces `by_bandwidth`.
        """
        leaf = self._leaves.get(key)
        if leaf is None or not all(
            amount <= leaf.free.get(name, 0) or (is_mark(name) and not (by_bandwidth and name.startswith(INTERFACE)))
            for name, amount in amounts.items()
        ):
            return False
        return not (leaf.devices and card_amounts.unwanted(leaf.devices, leaf.free, amounts))

    def leaves(self) -> Iterable[Leaf]:
        """All leaves, in no particular order."""
        return self._leaves.values()

    def leaf_at(self, position: int) -> Leaf:
        """The leaf at a position of the present tree."""
        return self._in_order[position]

    def tree(self) -> TopologyTree:
        """The tree as of now."""
        if self._tree is None:
            self._in_order = sorted(self._leaves.values(), key=lambda leaf: leaf.path)
            for position, leaf in enumerate(self._in_order):
                leaf.position = position
            self._tree = TopologyTree(len(self.levels), (leaf.path for leaf in self._in_order))
        return self._tree

    def counts(self, demand: CountsKey) -> Counts:
        """What fits now, for one shape of pods. Valid, and not to be changed, until the next change of the ledger."""
        tree = self.tree()
        if len(self._log) > _LOG_LENGTH * len(self._in_order) + _LOG_LEAST:
            self._forget_tables()
        if len(self._judged_anew) > _LOG_LENGTH * len(self._in_order) + _LOG_LEAST:
            self._forget_verdicts()
        known = self._tables.pop(demand, None)
        verdicts = self._verdicts_for(demand.selection)
        if known is None:
            self.node_ledger.looks += len(self._in_order) * demand.looks
            counts = Counts(tree, demand)
            counts.fill(self._in_order, verdicts)
            while len(self._tables) >= _TABLES_KEPT:
                del self._tables[next(iter(self._tables))]
        else:
            counts, seen = known
            if seen < len(self._log):
                changed = set(self._log[seen:])
                self.node_ledger.looks += len(changed) * demand.looks
                counts.update(changed, self._in_order, verdicts)
        self._tables[demand] = counts, len(self._log)
        return counts

    def pods_that_fit(self, pod_requests: PodRequests) -> int:
        """The number of pods that find room now, one by one and anywhere; labels and taints are not checked."""
        self.tree()
        if len(self._log) > _LOG_LENGTH * len(self._in_order) + _LOG_LEAST:
            self._forget_tables()
        known = self._vacant.get(pod_requests)
        if known is None:
            while len(self._vacant) >= _TABLES_KEPT:
                del self._vacant[next(iter(self._vacant))]
            self.node_ledger.looks += len(self._in_order)
            each = [how_many(leaf.free, pod_requests) for leaf in self._in_order]
            self._vacant[pod_requests] = each, sum(each), len(self._log)
            return self._vacant[pod_requests][1]
        each, total, seen = known
        if seen < len(self._log):
            changed = set(self._log[seen:])
            self.node_ledger.looks += len(changed)
            for position in changed:
                fitting = how_many(self._in_order[position].free, pod_requests)
                total += fitting - each[position]
                each[position] = fitting
            self._vacant[pod_requests] = each, total, len(self._log)
        return total

    def counts_within(self, demand: CountsKey, leaves: range) -> Counts:
        """The same with every other leaf left out; such counts are not kept."""
        self.node_ledger.looks += len(self._in_order) * demand.looks
        counts = Counts(self.tree(), demand)
        counts.fill(self._in_order, self._verdicts_for(demand.selection), leaves)
        return counts

    def counts_together(self, demand: CountsKey, counts: Counts, within: range | None) -> Counts:
        """The same with as many pods on each leaf that all together are within the caps of power; such counts are not kept."""
        power, lowest = self.node_ledger.power, counts.pods[-1]
        assert power is not None
        assert demand.power is not None
        names = {leaf.power[0]: leaf.position for leaf in self._in_order if leaf.power is not None}
        fitting = [(name, lowest[position]) for name, position in names.items() if lowest[position]]
        self.node_ledger.looks += len(self._in_order) * demand.looks
        most = {names[name]: count for name, count in power.split(fitting, demand.power, demand.leader_power).items()}
        together = Counts(self.tree(), demand)
        together.fill(self._in_order, self._verdicts_for(demand.selection), within, most)
        return together

    @property
    def size(self) -> int:
        """The number of leaves in the present tree."""
        self.tree()
        return len(self._in_order)

    def changed_since(self, mark: tuple[int, int]) -> tuple[Sequence[int] | None, tuple[int, int]]:
        """The positions of leaves that changed since a mark (None: look at all of them), and the mark of now."""
        self.tree()
        now = self._epoch, len(self._log)
        return (self._log[mark[1] :] if mark[0] == self._epoch else None), now

    def _verdicts_for(self, selection: NodeSelection) -> list[Verdict]:
        verdicts, seen = self._verdicts.pop(selection, (None, 0))
        if verdicts is None:
            self.node_ledger.looks += len(self._in_order)
            verdicts = [self._judge(selection, leaf) for leaf in self._in_order]
            while len(self._verdicts) >= _TABLES_KEPT:
                del self._verdicts[next(iter(self._verdicts))]
        else:
            for position in set(self._judged_anew[seen:]):
                verdicts[position] = self._judge(selection, self._in_order[position])
        self._verdicts[selection] = verdicts, len(self._judged_anew)
        return verdicts

    def _judge(self, selection: NodeSelection, leaf: Leaf) -> Verdict:
        """Whether a leaf is excluded, and its score. Above hosts a leaf is a group of nodes: the scheduler decides which of them
        a pod tolerates.
        """
        if not self.hostnames:
            return _WELCOME
        verdict = selection.judge(min(leaf.nodes), leaf.labels, leaf.taints)
        if selection.policy is None or verdict[0]:
            return verdict
        return selection.policy.excludes(leaf), verdict[1]

    def _forget_structure(self) -> None:
        self._tree: TopologyTree | None = None
        self._in_order: list[Leaf] = []
        self._forget_verdicts()
        self._forget_tables()

    def _forget_verdicts(self) -> None:
        #: selection -> its verdicts by leaf, and how much of `_judged_anew` they have processed; least recently used first
        self._verdicts: dict[NodeSelection, tuple[list[Verdict], int]] = {}
        #: positions of leaves whose node has other labels or taints
        self._judged_anew: list[int] = []

    def _forget_tables(self) -> None:
        self._epoch += 1
        #: demand -> its counts and how much of the log they have processed; least recently used first.
        self._tables: dict[CountsKey, tuple[Counts, int]] = {}
        #: requests of a pod -> how many fit into each leaf, and in all, and how much of the log is processed
        self._vacant: dict[PodRequests, tuple[list[int], int, int]] = {}
        self._log: list[int] = []


def usage_at(domain: Domain, requests: Requests) -> dict[str, int]:
    """What pods of these per-pod requests take of their domain, its cards included."""
    amounts = usage_of(requests, domain.count)
    if domain.cards:
        add(amounts, card_amounts.of_seats(domain.cards, *said_by(requests)))
    return amounts


_WELCOME: Verdict = ("", 0)
