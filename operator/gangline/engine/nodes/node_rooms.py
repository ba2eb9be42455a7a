"""Room for assigned pods: per shape of pods a table of how many fit on which node.

Tables catch up from the log of changed nodes when they are next asked, so that a question costs what changed since the last one.
A *ground* is the set of nodes that some node labels select: the nodes of a flavor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.model import Node, Requests
from gangline.engine.occupancy.fitting import PodRequests, how_many_more
from gangline.engine.occupancy.node_ledger import HOSTS, LeafKey, NodeLedger, TrackedNode
from gangline.engine.occupancy.power_ledger import PowerAsk
from gangline.engine.topology.node_filter import NodeSelection

#: Counts of nodes that the tables of one ground keep together, some 100 MB; the oldest table is dropped first.
_COUNTS_KEPT: Final = 1_000_000
#: but so many tables are kept in any case
_TABLES_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class PodShape:
    """What pods ask of a node: amounts per pod, and which nodes."""

    requests: PodRequests
    selection: NodeSelection
    #: None = no policy caps power
    power: PowerAsk | None = None


@dataclass(slots=True, eq=False)
class Ground:
    """The nodes that labels select, by name; `reported` are the resources that any of them has."""

    labels: Mapping[str, str]
    names: tuple[str, ...]
    reported: frozenset[str]
    #: by shape, the oldest first
    tables: dict[PodShape, FitTable] = field(default_factory=dict["PodShape", "FitTable"])
    #: the table if no gang held anything; `seen` is the version of the nodes then
    empty: dict[PodShape, FitTable] = field(default_factory=dict["PodShape", "FitTable"])

    def counted(self, shape: PodShape) -> PodRequests:
        """What bounds the number of such pods: resources that no node reports do not."""
        return tuple((resource, amount) for resource, amount in shape.requests if resource in self.reported)

    def keep(self, tables: dict[PodShape, FitTable], shape: PodShape, counts: dict[str, int], seen: int) -> FitTable:
        """A new table of the shape, with room made for it: every tenant's jobs may have another shape."""
        tables.pop(shape, None)
        most = max(_TABLES_KEPT, _COUNTS_KEPT // len(self.names))
        while len(tables) >= most:
            del tables[next(iter(tables))]
        table = tables[shape] = FitTable(counts, sum(counts.values()), seen)
        return table


@dataclass(slots=True)
class FitTable:
    """How many pods of one shape each node of a ground still takes; nodes that take none are left out."""

    counts: dict[str, int]
    total: int
    seen: int  # of the log


class NodeRooms:
    """How many pods of each shape fit on which node, by ground."""

    def __init__(self, ledger: NodeLedger) -> None:
        self.ledger = ledger
        ledger.watch(self)
        self._grounds: dict[tuple[tuple[str, str], ...], Ground | None] = {}
        #: changes with the nodes, and when they become usable or unusable
        self._version = 0
        #: changes when other nodes may belong to a ground
        self.grounds_version = 0
        self._follows_hosts = False

    # --- following the ledger -----------------------------------------------------------------------------------------

    def node_put(self, tracked: TrackedNode, old: Node | None) -> None:
        self._version += 1
        node = tracked.node
        if old is None or old.labels != node.labels or old.allocatable.keys() != node.allocatable.keys():
            self._forget_grounds()
        else:
            self.ledger.changes.append(node.name)

    def node_gone(self, name: str) -> None:
        del name
        self._version += 1
        self._forget_grounds()

    def _forget_grounds(self) -> None:
        self._grounds.clear()
        self.grounds_version += 1
        self.ledger.changes.start_over()

    def foreign_shifted(self, node: str, amounts: Requests, sign: int) -> None:
        """The ledger's log of changed nodes has it, where no assignment accounts for them."""

    def cards_put(self, node: str) -> None:
        """Cards do not bound assigned pods: device plugins choose them."""

    def power_capped(self) -> None:
        self._version += 1
        self._forget_grounds()

    def power_shifted(self, nodes: Iterable[str]) -> None:
        self.ledger.changes.extend(name for name in nodes if name in self.ledger.nodes)

    def released(self, key: str) -> None:
        """What it took was given back before."""

    def spot_shifted(self, key: LeafKey, amounts: Requests, sign: int) -> None:
        self.ledger.changes.extend(self.ledger.nodes_at(key[0]))

    def get(self, name: str) -> TrackedNode | None:
        return self.ledger.nodes.get(name)

    def label(self, name: str, key: str) -> str | None:
        tracked = self.ledger.nodes.get(name)
        return tracked.node.labels.get(key) if tracked else None

    def ground(self, labels: Mapping[str, str]) -> Ground | None:
        """The nodes with these labels; None if there are no labels or no such nodes."""
        key = tuple(sorted(labels.items()))
        if key not in self._grounds:
            self._grounds[key] = self._find(labels) if labels else None
        return self._grounds[key]

    def _find(self, labels: Mapping[str, str]) -> Ground | None:
        wanted, nodes = labels.items(), self.ledger.nodes
        names = tuple(sorted(name for name, tracked in nodes.items() if wanted <= tracked.node.labels.items()))
        if not names:
            return None
        if not self._follows_hosts:
            self._follows_hosts = True
            self.ledger.watch_spots(HOSTS, self)
        return Ground(labels, names, frozenset(name for each in names for name in nodes[each].node.allocatable))

    # --- looking ------------------------------------------------------------------------------------------------------

    def table(self, ground: Ground, shape: PodShape) -> FitTable:
        """The table as of now; not to be modified, and valid until the next change of any node."""
        changes, table = self.ledger.changes, ground.tables.get(shape)
        changed = changes.since(table.seen) if table is not None else None
        if table is None or changed is None:
            return ground.keep(ground.tables, shape, self._counts(ground, shape), changes.end)
        if changed:
            self._catch_up(table, ground, shape, changed)
        return table

    def _catch_up(self, table: FitTable, ground: Ground, shape: PodShape, changed: Iterable[str]) -> None:
        labels, nodes, counted = ground.labels.items(), self.ledger.nodes, ground.counted(shape)
        names = set(changed)
        self.ledger.looks += len(names)
        for name in names:
            if not labels <= nodes[name].node.labels.items():
                continue
            table.total -= table.counts.pop(name, 0)
            count = _count(nodes[name], shape.selection, counted)
            if shape.power is not None:
                count = self.within_power(name, shape, count)
            if count:
                table.counts[name] = count
                table.total += count
        table.seen = self.ledger.changes.end

    def _counts(self, ground: Ground, shape: PodShape, *, empty: bool = False) -> dict[str, int]:
        nodes, selection, counted = self.ledger.nodes, shape.selection, ground.counted(shape)
        self.ledger.looks += len(ground.names)
        each = ((name, _count(nodes[name], selection, counted, empty=empty)) for name in ground.names)
        if shape.power is not None and self.ledger.power is not None:
            each = ((name, self.within_power(name, shape, count, empty=empty)) for name, count in each)
        return {name: count for name, count in each if count}

    def within_power(self, name: str, shape: PodShape, count: int, *, empty: bool = False) -> int:
        """How many of so many pods that fit on a node the caps of its power domains allow, for these pods alone."""
        power = self.ledger.power
        if power is None or shape.power is None or not count:
            return count
        return min(count, power.how_many(name, shape.power, empty=empty))

    def without_caps(self, ground: Ground, shape: PodShape) -> dict[str, int]:
        """How many pods would fit on each node if no domain of power had a cap."""
        nodes, counted = self.ledger.nodes, ground.counted(shape)
        return {name: _count(nodes[name], shape.selection, counted) for name in ground.names}

    def empty_table(self, ground: Ground, shape: PodShape) -> FitTable:
        """How many pods would fit on each usable node if no gang held anything."""
        table = ground.empty.get(shape)
        if table is None or table.seen != self._version:
            return ground.keep(ground.empty, shape, self._counts(ground, shape, empty=True), self._version)
        return table

    def unusable(self, ground: Ground) -> int:
        """The number of unusable nodes of the ground."""
        return sum(not self.ledger.nodes[name].usable for name in ground.names)

    def usable(self, ground: Ground) -> Iterator[tuple[str, TrackedNode]]:
        for name in ground.names:
            tracked = self.ledger.nodes[name]
            if tracked.usable:
                yield name, tracked

    def domains(self, names: Iterable[str], label: str) -> dict[str, list[str]]:
        """The values of a label among these nodes, each with its nodes."""
        found: dict[str, list[str]] = {}
        for name in names:
            value = self.label(name, label)
            if value is not None:
                found.setdefault(value, []).append(name)
        return found


def _count(tracked: TrackedNode, selection: NodeSelection, counted: PodRequests, *, empty: bool = False) -> int:
    """How many pods still fit on a node, or would if no gang held anything (`empty`)."""
    node = tracked.node
    if not tracked.usable or selection.judge(node.name, node.labels, node.taints)[0]:
        return 0
    if empty:
        return how_many_more(node.allocatable, (), counted)
    return how_many_more(node.allocatable, (tracked.assigned, tracked.placed, tracked.others), counted)
