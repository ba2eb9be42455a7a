"""One topology flavor's state: its nodes, their usage, and the counts that answer placement requests.

Facts arrive one by one (`put_node`, `shift_foreign`, `add`/`remove` of a holder's placement) and each costs what it touches.
Counts are kept per `Demand` and catch up from a log of changed leaves when they are next asked. Only when leaves come or go is
the tree built again, at the next question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from gangline.engine.model import Flavor, Node, Requests, Taint, Topology, TopologyAssignment, TopologyRequest
from gangline.engine.topology.domain_counts import PODS, Counts, Demand, PodRequests, how_many
from gangline.engine.topology.node_filter import Selection, Verdict
from gangline.engine.topology.topology_tree import Path, TopologyTree

#: A leaf as assignments name it: the hostname alone where that is the lowest level, otherwise the whole path.
LeafKey: TypeAlias = tuple[str, ...]

HOSTNAME = "kubernetes.io/hostname"

#: Tables kept per ledger; the least recently used one is dropped first.
_TABLES_KEPT = 64
#: The log of changed leaves starts over when it is this many times longer than the list of leaves.
_LOG_LENGTH = 4
_LOG_LEAST = 1024


class Usage:
    """What topology-aware workloads hold per leaf, shared by the ledgers that watch it.

    Flavors whose topologies end at the hostname may share nodes, so they share one `Usage`. It outlives nodes: usage of a host
    that left counts again when the host is back.
    """

    __slots__ = ("_held", "_watchers")

    def __init__(self) -> None:
        self._held: dict[LeafKey, dict[str, int]] = {}
        self._watchers: list[TopologyLedger] = []

    def watch(self, ledger: TopologyLedger) -> None:
        self._watchers.append(ledger)

    def unwatch(self, ledger: TopologyLedger) -> None:
        self._watchers.remove(ledger)

    def on(self, key: LeafKey) -> Mapping[str, int]:
        return self._held.get(key, _NOTHING)

    def leaves(self) -> Mapping[LeafKey, Mapping[str, int]]:
        """Usage per leaf; leaves without usage are absent."""
        return self._held

    def shift(self, key: LeafKey, amounts: Requests) -> None:
        """Add amounts (negative to take away) to the usage of a leaf."""
        held = self._held.setdefault(key, {})
        _add(held, amounts)
        for name in [name for name in amounts if not held[name]]:
            del held[name]
        if not held:
            del self._held[key]
        for ledger in self._watchers:
            ledger.usage_shifted(key, amounts)


class Leaf:
    """A lowest domain: its nodes (one, where leaves are hosts), and the capacity left with and without the holders."""

    __slots__ = ("free", "idle", "key", "labels", "nodes", "path", "position", "taints")

    def __init__(self, key: LeafKey) -> None:
        self.key = key
        self.path: Path = key
        self.position = -1
        self.nodes: dict[str, Node] = {}
        self.free: dict[str, int] = {}
        self.idle: dict[str, int] = {}
        self.labels: Mapping[str, str] = {}
        self.taints: Sequence[Taint] = ()


class TopologyLedger:
    """See the module's docstring. `usage` is shared with the other hostname-level flavors, if given."""

    def __init__(self, flavor: Flavor, topology: Topology, usage: Usage | None = None) -> None:
        if not topology.levels:
            raise ValueError(f"topology {topology.name!r}: levels must not be empty")
        self.flavor = flavor
        self.topology = topology
        self.levels = topology.levels
        #: Leaves are hosts: taints, selectors and affinity are checked, and assignments name the hostname only.
        self.hostnames = topology.levels[-1] == HOSTNAME
        self.usage = usage if usage is not None else Usage()
        self.usage.watch(self)
        self._leaves: dict[LeafKey, Leaf] = {}
        self._leaf_of_node: dict[str, Leaf] = {}
        self._foreign: dict[str, dict[str, int]] = {}
        self._forget_structure()

    def close(self) -> None:
        """Stop following the shared usage; the ledger must not be used afterwards."""
        self.usage.unwatch(self)

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
        leaf.idle = {}
        for name, node in leaf.nodes.items():
            _add(leaf.idle, node.allocatable)
            _subtract(leaf.idle, self._foreign.get(name, _NOTHING))
        leaf.free = dict(leaf.idle)
        _subtract(leaf.free, self.usage.on(leaf.key))
        if leaf.position < 0 or path != leaf.path:
            leaf.path = path
            self._forget_structure()
            return
        if self._tree is not None:
            for selection, verdicts in self._verdicts.items():
                verdicts[leaf.position] = self._judge(selection, leaf)
            self._log.append(leaf.position)

    # --- usage --------------------------------------------------------------------------------------------------------

    def shift_foreign(self, node: str, amounts: Requests) -> bool:
        """Pods of others take `amounts` more of a node (negative: less); `pods` is up to the caller.

        Returns whether the node is in this topology. Usage of a node outside it is remembered for the time when it is inside.
        """
        taken = self._foreign.setdefault(node, {})
        _add(taken, amounts)
        if not any(taken.values()):
            del self._foreign[node]
        leaf = self._leaf_of_node.get(node)
        if leaf is None:
            return False
        _subtract(leaf.idle, amounts)
        self._take(leaf, amounts)
        return True

    def add(self, assignment: TopologyAssignment, requests: Requests) -> None:
        """A workload's pods, each taking `requests` and one of `pods`, hold this placement."""
        self._shift(assignment, requests, 1)

    def remove(self, assignment: TopologyAssignment, requests: Requests) -> None:
        """The exact reverse of `add`."""
        self._shift(assignment, requests, -1)

    def _shift(self, assignment: TopologyAssignment, requests: Requests, sign: int) -> None:
        for domain in assignment.domains:
            self.usage.shift(domain.values, usage_of(requests, sign * domain.count))

    def usage_shifted(self, key: LeafKey, amounts: Requests) -> None:
        """The shared usage of a leaf changed."""
        leaf = self._leaves.get(key)
        if leaf is not None:
            self._take(leaf, amounts)

    def assume(self, assignment: TopologyAssignment, requests: Requests, sign: int = 1) -> None:
        """Temporarily, pods of the workload that is being placed take these domains, even of an otherwise empty cluster."""
        for domain in assignment.domains:
            leaf = self._leaves.get(domain.values)
            if leaf is not None:
                amounts = usage_of(requests, sign * domain.count)
                _subtract(leaf.idle, amounts)
                self._take(leaf, amounts)

    def _take(self, leaf: Leaf, amounts: Requests) -> None:
        _subtract(leaf.free, amounts)
        if self._tree is not None:
            self._log.append(leaf.position)

    # --- looking ------------------------------------------------------------------------------------------------------

    def has_levels(self, asked: TopologyRequest) -> bool:
        """Whether the topology has every level that a request names."""
        named = [level for level in (asked.required, asked.preferred) if level]
        return all(level in self.levels for level in [*named, *(layer.level for layer in asked.slices)])

    def leaf(self, key: LeafKey) -> Leaf | None:
        """The leaf that an assignment's domain names, None if it is not (any more) in the topology."""
        return self._leaves.get(key)

    def leaves(self) -> Iterable[Leaf]:
        """All leaves, in no particular order."""
        return self._leaves.values()

    def leaf_at(self, position: int) -> Leaf:
        """The leaf at a position of the present tree."""
        return self._rooms[position]

    def tree(self) -> TopologyTree:
        """The tree as of now."""
        if self._tree is None:
            self._rooms = sorted(self._leaves.values(), key=lambda leaf: leaf.path)
            for position, leaf in enumerate(self._rooms):
                leaf.position = position
            self._tree = TopologyTree(len(self.levels), (leaf.path for leaf in self._rooms))
        return self._tree

    def counts(self, demand: Demand) -> Counts:
        """What fits now, for one shape of pods. Valid, and not to be changed, until the next change of the ledger."""
        tree = self.tree()
        if len(self._log) > _LOG_LENGTH * len(self._rooms) + _LOG_LEAST:
            self._forget_tables()
        known = self._tables.pop(demand, None)
        verdicts = self._verdicts_for(demand.selection)
        if known is None:
            counts = Counts(tree, demand)
            counts.fill(self._rooms, verdicts)
            while len(self._tables) >= _TABLES_KEPT:
                del self._tables[next(iter(self._tables))]
        else:
            counts, seen = known
            if seen < len(self._log):
                counts.update(set(self._log[seen:]), self._rooms, verdicts)
        self._tables[demand] = counts, len(self._log)
        return counts

    def pods_that_fit(self, pod_requests: PodRequests) -> int:
        """The number of pods that find room now, one by one and anywhere; labels and taints are not checked."""
        self.tree()
        if len(self._log) > _LOG_LENGTH * len(self._rooms) + _LOG_LEAST:
            self._forget_tables()
        known = self._vacant.get(pod_requests)
        if known is None:
            while len(self._vacant) >= _TABLES_KEPT:
                del self._vacant[next(iter(self._vacant))]
            each = [how_many(leaf.free, pod_requests) for leaf in self._rooms]
            self._vacant[pod_requests] = each, sum(each), len(self._log)
            return self._vacant[pod_requests][1]
        each, total, seen = known
        if seen < len(self._log):
            for position in set(self._log[seen:]):
                fitting = how_many(self._rooms[position].free, pod_requests)
                total += fitting - each[position]
                each[position] = fitting
            self._vacant[pod_requests] = each, total, len(self._log)
        return total

    def counts_within(self, demand: Demand, leaves: range) -> Counts:
        """The same with every other leaf left out; such counts are not kept."""
        counts = Counts(self.tree(), demand)
        counts.fill(self._rooms, self._verdicts_for(demand.selection), leaves)
        return counts

    def _verdicts_for(self, selection: Selection) -> list[Verdict]:
        verdicts = self._verdicts.pop(selection, None)
        if verdicts is None:
            verdicts = [self._judge(selection, leaf) for leaf in self._rooms]
            while len(self._verdicts) >= _TABLES_KEPT:
                del self._verdicts[next(iter(self._verdicts))]
        self._verdicts[selection] = verdicts
        return verdicts

    def _judge(self, selection: Selection, leaf: Leaf) -> Verdict:
        """Above hosts a leaf is a group of nodes: the scheduler decides which of them a pod tolerates."""
        return selection.judge(leaf.labels, leaf.taints) if self.hostnames else _WELCOME

    def _forget_structure(self) -> None:
        self._tree: TopologyTree | None = None
        self._rooms: list[Leaf] = []
        self._verdicts: dict[Selection, list[Verdict]] = {}
        self._forget_tables()

    def _forget_tables(self) -> None:
        #: demand -> its counts and how much of the log they have processed; least recently used first.
        self._tables: dict[Demand, tuple[Counts, int]] = {}
        #: requests of a pod -> how many fit into each leaf, and in all, and how much of the log is processed
        self._vacant: dict[PodRequests, tuple[list[int], int, int]] = {}
        self._log: list[int] = []


_NOTHING: Mapping[str, int] = {}
_WELCOME: Verdict = ("", 0)


def usage_of(requests: Requests, count: int) -> dict[str, int]:
    """The usage of `count` pods of these per-pod requests, their slots (`pods`) included."""
    amounts = {name: amount * count for name, amount in requests.items()}
    amounts[PODS] = amounts.get(PODS, 0) + count
    return amounts


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _subtract(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) - amount
