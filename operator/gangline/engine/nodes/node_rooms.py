"""Free room on nodes: one `NodeRoom` per node, and per shape of pods a table of how many fit into which room.

Tables catch up from a log of changed rooms when they are next asked, so that a question costs what changed since the last one.
A *ground* is the set of rooms that some node labels select: the nodes of a flavor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.engine.model import Node
from gangline.engine.topology.node_filter import Selection

#: A node label and its value: a domain that exclusive work takes for itself alone.
DomainKey: TypeAlias = tuple[str, str]

PODS = "pods"

#: Pods that ask for nothing that their nodes report: any number fits.
ANY_NUMBER = 1 << 40

#: The log of changed rooms starts over at this length.
_LOG_LENGTH = 8192


@dataclass(slots=True)
class NodeRoom:
    node: Node
    usable: bool
    held: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def idle(self) -> bool:
        return not self.held

    @property
    def overfull(self) -> bool:
        capacity = self.node.allocatable
        return any(resource in capacity and amount > capacity[resource] for resource, amount in self.held.items())


@dataclass(frozen=True, slots=True)
class PodShape:
    """What pods ask of a node: amounts per pod, and which nodes."""

    requests: tuple[tuple[str, int], ...]
    selection: Selection


@dataclass(slots=True, eq=False)
class Ground:
    """The rooms that labels select, by name; `reported` are the resources that any of them has."""

    labels: Mapping[str, str]
    names: tuple[str, ...]
    reported: frozenset[str]
    tables: dict[PodShape, FitTable] = field(default_factory=dict["PodShape", "FitTable"])
    #: the table if no gang held anything; `seen` is the version of the nodes then
    empty: dict[PodShape, FitTable] = field(default_factory=dict["PodShape", "FitTable"])


@dataclass(slots=True)
class FitTable:
    """How many pods of one shape each room of a ground still takes; rooms that take none are left out."""

    counts: dict[str, int]
    total: int
    seen: int  # of the log


class NodeRooms:
    def __init__(self) -> None:
        self._rooms: dict[str, NodeRoom] = {}
        #: usage on nodes that are not known (any more)
        self._elsewhere: dict[str, dict[str, int]] = {}
        self._grounds: dict[tuple[tuple[str, str], ...], Ground | None] = {}
        self._log: list[str] = []
        #: changes with the nodes, and when they become usable or unusable
        self._version = 0
        self._owners: dict[DomainKey, dict[str, int]] = {}

    # --- nodes --------------------------------------------------------------------------------------------------------

    def put(self, node: Node, *, usable: bool) -> None:
        self._version += 1
        room = self._rooms.get(node.name)
        if room is None:
            self._rooms[node.name] = NodeRoom(node, usable, self._elsewhere.pop(node.name, {}))
            self._forget_grounds()
            return
        old, room.node, room.usable = room.node, node, usable
        if old.labels != node.labels or old.allocatable.keys() != node.allocatable.keys():
            self._forget_grounds()
        else:
            self._log.append(node.name)

    def remove(self, name: str) -> None:
        room = self._rooms.pop(name, None)
        if room is not None:
            if room.held:
                self._elsewhere[name] = room.held
            self._forget_grounds()

    def get(self, name: str) -> NodeRoom | None:
        return self._rooms.get(name)

    def label(self, name: str, key: str) -> str | None:
        room = self._rooms.get(name)
        return room.node.labels.get(key) if room else None

    def ground(self, labels: Mapping[str, str]) -> Ground | None:
        """The rooms with these labels; None if there are no labels or no such rooms."""
        key = tuple(sorted(labels.items()))
        if key not in self._grounds:
            self._grounds[key] = self._find(labels) if labels else None
        return self._grounds[key]

    def _find(self, labels: Mapping[str, str]) -> Ground | None:
        wanted = labels.items()
        names = tuple(sorted(name for name, room in self._rooms.items() if wanted <= room.node.labels.items()))
        if not names:
            return None
        nodes = [self._rooms[name].node for name in names]
        return Ground(labels, names, frozenset(resource for node in nodes for resource in node.allocatable))

    def _forget_grounds(self) -> None:
        self._grounds.clear()
        self._log.clear()

    # --- holding ------------------------------------------------------------------------------------------------------

    def shift(self, name: str, requests: Mapping[str, int], count: int) -> None:
        """`count` more pods (negative: fewer) with these requests are on a node."""
        room = self._rooms.get(name)
        held = room.held if room is not None else self._elsewhere.setdefault(name, {})
        for resource, amount in requests.items():
            total = held.get(resource, 0) + amount * count
            if total:
                held[resource] = total
            else:
                held.pop(resource, None)
        if room is not None:
            self._log.append(name)
        elif not held:
            del self._elsewhere[name]

    def own(self, domain: DomainKey, key: str, count: int) -> None:
        """`key` takes a domain for itself alone, `count` times more (negative: fewer)."""
        owners = self._owners.setdefault(domain, {})
        owners[key] = owners.get(key, 0) + count
        if not owners[key]:
            del owners[key]
        if not owners:
            del self._owners[domain]

    def owners(self, domain: DomainKey) -> Mapping[str, int]:
        return self._owners.get(domain, _NOBODY)

    # --- looking ------------------------------------------------------------------------------------------------------

    def table(self, ground: Ground, shape: PodShape) -> FitTable:
        """The table as of now; not to be modified, and valid until the next change of any room."""
        if len(self._log) > _LOG_LENGTH:
            self._log.clear()
            for known in self._grounds.values():
                if known is not None:
                    known.tables.clear()
        table = ground.tables.get(shape)
        if table is None:
            counts = {name: count for name in ground.names if (count := self._count(name, ground, shape))}
            table = ground.tables[shape] = FitTable(counts, sum(counts.values()), len(self._log))
        elif table.seen < len(self._log):
            self._catch_up(table, ground, shape)
        return table

    def _catch_up(self, table: FitTable, ground: Ground, shape: PodShape) -> None:
        labels = ground.labels.items()
        for name in set(self._log[table.seen :]):
            if not labels <= self._rooms[name].node.labels.items():
                continue
            table.total -= table.counts.pop(name, 0)
            count = self._count(name, ground, shape)
            if count:
                table.counts[name] = count
                table.total += count
        table.seen = len(self._log)

    def _count(self, name: str, ground: Ground, shape: PodShape) -> int:
        """How many pods of this shape still fit into a room."""
        room = self._rooms[name]
        if not room.usable or shape.selection.judge(room.node.labels, room.node.taints)[0]:
            return 0
        return _fitting(shape, ground, room.node.allocatable, room.held)

    def empty_table(self, ground: Ground, shape: PodShape) -> FitTable:
        """How many pods would fit into each usable room if no gang held anything."""
        table = ground.empty.get(shape)
        if table is None or table.seen != self._version:
            counts = {name: self._count_empty(name, ground, shape) for name in ground.names}
            counts = {name: count for name, count in counts.items() if count}
            table = ground.empty[shape] = FitTable(counts, sum(counts.values()), self._version)
        return table

    def _count_empty(self, name: str, ground: Ground, shape: PodShape) -> int:
        room = self._rooms[name]
        if not room.usable or shape.selection.judge(room.node.labels, room.node.taints)[0]:
            return 0
        return _fitting(shape, ground, room.node.allocatable, _NOTHING)

    def unusable(self, ground: Ground) -> int:
        """The number of its unusable rooms."""
        return sum(not self._rooms[name].usable for name in ground.names)

    def usable(self, ground: Ground) -> Iterator[tuple[str, NodeRoom]]:
        for name in ground.names:
            room = self._rooms[name]
            if room.usable:
                yield name, room

    def domains(self, names: Iterable[str], label: str) -> dict[str, list[str]]:
        """The values of a label among these rooms, each with its rooms."""
        found: dict[str, list[str]] = {}
        for name in names:
            value = self.label(name, label)
            if value is not None:
                found.setdefault(value, []).append(name)
        return found


def _fitting(shape: PodShape, ground: Ground, allocatable: Mapping[str, int], held: Mapping[str, int]) -> int:
    fitting = ANY_NUMBER
    for resource, amount in shape.requests:
        if amount > 0 and resource in ground.reported:
            fitting = min(fitting, (allocatable.get(resource, 0) - held.get(resource, 0)) // amount)
    return max(0, fitting)


_NOTHING: Mapping[str, int] = {}
_NOBODY: Mapping[str, int] = {}
