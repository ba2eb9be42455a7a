"""The quota ledger: a tree of nodes, and per node one `Cell` for each flavor and resource.

Leaves are ClusterQueues, inner nodes cohorts. The part that a node keeps to itself (by its lending limit) is *local*; only
usage above it shows in the parent. All numbers follow from the leaves, so removal is the exact reverse of addition: a
trial works on the ledger itself and is then undone, never on a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from gangline.engine.model import UNLIMITED, Quota

#: (flavor, resource)
FlavorResource: TypeAlias = tuple[str, str]

#: "No limit" inside the ledger: sums and differences with ordinary amounts stay above every ordinary amount.
BOUNDLESS = 1 << 200


class Cell:
    """One flavor and resource at one node."""

    __slots__ = (
        "borrowing_limit",
        "ceiling",
        "fr",
        "lending_limit",
        "listed",
        "local",
        "node",
        "nominal",
        "parent",
        "potential",
        "subtree",
        "usage",
    )

    def __init__(self, node: QuotaNode, fr: FlavorResource, quota: Quota | None = None) -> None:
        self.node = node
        self.fr = fr
        #: the node, or a node below it, has quota of this
        self.listed = quota is not None
        self.nominal = _bounded(quota.nominal) if quota else 0
        self.borrowing_limit = _limit(quota.borrowing_limit) if quota else None
        self.lending_limit = _limit(quota.lending_limit) if quota else None
        self.parent: Cell | None = None
        #: quota of the node and of what its children lend
        self.subtree = self.nominal
        #: the part of `subtree` that is not lent
        self.local = 0
        #: the most that may ever be used of the parent's, None = no limit
        self.ceiling: int | None = None
        #: the most that could be used if nothing were in use
        self.potential = self.subtree
        self.usage = 0

    def settle(self) -> None:
        """Derive `local` and `ceiling`, once `subtree` is known."""
        lent, borrowed = self.lending_limit, self.borrowing_limit
        self.local = 0 if lent is None else max(0, self.subtree - lent)
        self.ceiling = None if borrowed is None else self.subtree - self.local + borrowed

    def settle_potential(self) -> None:
        """Derive `potential`, once the parent's is known."""
        if self.parent is None:
            self.potential = self.subtree
            return
        self.potential = self.local + self.parent.potential
        if self.borrowing_limit is not None:
            self.potential = min(self.potential, self.subtree + self.borrowing_limit)

    def add(self, amount: int) -> None:
        """Use `amount` more; what exceeds the free local part is passed to the parent."""
        cell: Cell | None = self
        while cell is not None:
            free = cell.local - cell.usage
            cell.usage += amount
            if free > 0:
                amount -= free
                if amount <= 0:
                    return
            elif amount <= 0:
                return
            cell = cell.parent

    def remove(self, amount: int) -> None:
        """The exact reverse of `add`."""
        cell: Cell | None = self
        while cell is not None:
            above = cell.usage - cell.local
            cell.usage -= amount
            if above <= 0 or amount <= 0:
                return
            if above < amount:
                amount = above
            cell = cell.parent

    def available(self) -> int:
        """What may still be used here; negative where more is used than there is."""
        parent = self.parent
        if parent is None:
            return self.subtree - self.usage
        above = parent.available()
        free = self.local - self.usage
        if self.ceiling is not None:
            room = self.ceiling + free if free < 0 else self.ceiling
            if room < above:
                above = room
        return above + free if free > 0 else above

    def height(self, amount: int) -> tuple[int, bool]:
        """How high up `amount` more has to borrow (0 = within nominal quota), and whether that is possible below the root."""
        parent = self.parent
        if parent is None:
            return 0, False
        if self.usage + amount <= self.nominal:
            return 0, True
        cell: Cell = self
        while parent is not None:
            amount -= max(0, cell.local - cell.usage)
            cell, parent = parent, parent.parent
            if cell.usage + amount <= cell.subtree:
                return cell.node.height, parent is not None
        return cell.node.height, False


class QuotaNode:
    """A ClusterQueue or a cohort in the tree."""

    __slots__ = (
        "cells",
        "cohorts",
        "fair_usage",
        "flushes",
        "height",
        "lendable",
        "name",
        "parent",
        "queues",
        "root",
        "rounds",
        "weight",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = 1.0
        #: of a ClusterQueue: LocalQueue -> its usage over time, where that decides the order
        self.fair_usage: Callable[[str], float] | None = None
        self.parent: QuotaNode | None = None
        self.root: QuotaNode = self
        #: scheduling cycles that this tree (if the node is a root) took part in
        self.rounds = 0
        #: how often something of this tree was released or changed, so that whoever waits tries again
        self.flushes = 0
        self.cohorts: list[QuotaNode] = []
        #: the ClusterQueues directly below it
        self.queues: list[QuotaNode] = []
        self.cells: dict[FlavorResource, Cell] = {}
        #: the longest way down to a ClusterQueue
        self.height = 0
        #: resource -> the most that can be had of it here; filled by `settle`
        self.lendable: dict[str, int] = {}

    def sort_key(self) -> tuple[str, bool]:
        """An order of roots; a cohort and a ClusterQueue may have the same name."""
        return self.name, not (self.cohorts or self.queues)

    def cell(self, fr: FlavorResource) -> Cell:
        """The cell of `fr`, created if usage exists without quota."""
        found = self.cells.get(fr)
        if found is None:
            found = self.cells[fr] = Cell(self, fr)
            if self.parent is not None:
                found.parent = self.parent.cell(fr)
            found.settle()
            found.settle_potential()
        return found

    def path(self) -> Iterator[QuotaNode]:
        """The node, its parent, … up to the root."""
        node: QuotaNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def leaves(self) -> Iterator[QuotaNode]:
        """All ClusterQueues below (a ClusterQueue is its own only one)."""
        yield from self.queues
        for cohort in self.cohorts:
            yield from cohort.leaves()

    def over_quota(self, frs: Iterable[FlavorResource]) -> bool:
        """Whether more than the subtree's quota is used of one of these."""
        cells = self.cells
        for fr in frs:
            cell = cells.get(fr)
            if cell is not None and cell.usage > cell.subtree:
                return True
        return False


def reset(node: QuotaNode, quotas: Mapping[FlavorResource, Quota]) -> None:
    """Detach a node, reset its usage and give it these quotas; `settle` on the root makes the tree complete again."""
    node.parent, node.root = None, node
    node.cohorts, node.queues = [], []
    node.cells = {fr: Cell(node, fr, quota) for fr, quota in quotas.items()}


def settle(root: QuotaNode) -> None:
    """Compute everything that follows from the quotas of a whole tree. Nothing may be in use yet."""
    _settle_up(root)
    _settle_down(root, root)


def _settle_up(node: QuotaNode) -> None:
    for child in (*node.cohorts, *node.queues):
        _settle_up(child)
        for fr, cell in child.cells.items():
            above = node.cells.get(fr)
            if above is None:
                above = node.cells[fr] = Cell(node, fr)
            above.listed = True
            above.subtree = min(above.subtree + cell.subtree - cell.local, BOUNDLESS)
            cell.parent = above
    node.height = max(min(1, len(node.queues)), *(cohort.height + 1 for cohort in node.cohorts), 0)
    for cell in node.cells.values():
        cell.settle()


def _settle_down(node: QuotaNode, root: QuotaNode) -> None:
    node.root = root
    if node.parent is not None:
        for fr in node.parent.cells:
            if node.queues or node.cohorts:
                node.cell(fr)
    node.lendable = {}
    for fr, cell in node.cells.items():
        cell.settle_potential()
        node.lendable[fr[1]] = node.lendable.get(fr[1], 0) + cell.potential
    for child in (*node.cohorts, *node.queues):
        _settle_down(child, root)


def _bounded(amount: int) -> int:
    return BOUNDLESS if amount >= UNLIMITED else amount


def _limit(amount: int | None) -> int | None:
    return None if amount is None else _bounded(amount)


# --- dominant share ---------------------------------------------------------------------------------------------------
# Dominant resource shares: how much a node uses above its own quota, relative to what its parent could lend.
#
# A share is a pair that compares as it should: (False, weighted ratio), or (True, ratio) for a weight of 0, which ranks above
# every other share as soon as anything is borrowed.


class DominantShare(NamedTuple):
    weightless: bool
    value: float


NO_SHARE = DominantShare(False, 0.0)


class Standing(NamedTuple):
    """A node's share, and whether it borrows at all (which it can with a share of 0, where nothing is lendable)."""

    borrows: bool
    share: DominantShare


_WITHIN = Standing(False, NO_SHARE)


def standing(node: QuotaNode) -> Standing:
    """The standing by the present ledger. A root has no share."""
    parent = node.parent
    if parent is None:
        return _WITHIN
    borrowed: dict[str, int] | None = None
    for fr, cell in node.cells.items():
        over = cell.usage - cell.subtree
        if over > 0 and cell.listed:
            if borrowed is None:
                borrowed = {}
            borrowed[fr[1]] = borrowed.get(fr[1], 0) + over
    if borrowed is None:
        return _WITHIN
    ratio = 0.0
    for resource, amount in borrowed.items():
        lendable = parent.lendable.get(resource, 0)
        if lendable > 0:
            ratio = max(ratio, amount * 1000.0 / lendable)
    return Standing(True, _weighted(ratio, node.weight))


def _weighted(ratio: float, weight: float) -> DominantShare:
    if ratio == 0.0:
        return NO_SHARE
    if weight == 0.0:
        return DominantShare(True, ratio)
    return DominantShare(False, ratio / weight)


# --- limits -----------------------------------------------------------------------------------------------------------
# What keeps a ClusterQueue from more of a flavor's resource: borrowing limits, or that all is in use. Pure.


@dataclass(frozen=True, slots=True)
class BorrowingLimit:
    """A borrowing limit that binds: of the ClusterQueue or of a cohort above it. `without`: what could be used without it."""

    owner: str
    cohort: bool
    limit: int
    without: int


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """`available`: what may be used now. `unlimited`: what could be used without any borrowing limit.

    `kept`: what other members have free and do not lend. `binding`: each limit that alone keeps more from being used.
    """

    available: int
    unlimited: int
    kept: int = 0
    binding: tuple[BorrowingLimit, ...] = ()


def limits(cell: Cell) -> QuotaLimits:
    path = _path(cell)
    now = cell.available()
    found = [
        BorrowingLimit(each.node.name, index > 0, each.borrowing_limit or 0, without)
        for index, each in enumerate(path)
        if each.ceiling is not None and (without := _available(path, without=each)) > now
    ]
    return QuotaLimits(now, _available(path), _kept(path), tuple(found))


def _path(cell: Cell) -> list[Cell]:
    """The cell and those above it."""
    found: list[Cell] = []
    here: Cell | None = cell
    while here is not None:
        found.append(here)
        here = here.parent
    return found


def _available(path: list[Cell], without: Cell | None = None) -> int:
    """What is available along a path, as `Cell.available`, without the limit of one cell, or without any."""
    root = path[-1]
    above = root.subtree - root.usage
    for cell in reversed(path[:-1]):
        free = cell.local - cell.usage
        limited = without is not None and cell is not without and cell.ceiling is not None
        if limited and cell.ceiling is not None:
            above = min(above, cell.ceiling + free if free < 0 else cell.ceiling)
        above = above + free if free > 0 else above
    return above


def _kept(path: list[Cell]) -> int:
    """What members of the tree have free in the part that they do not lend, those on the path excepted."""
    own = set(map(id, path))
    total, left = 0, [path[-1].node]
    while left:
        node = left.pop()
        left.extend(node.cohorts)
        for member in (node, *node.queues):
            cell = member.cells.get(path[0].fr)
            if cell is not None and id(cell) not in own and cell.parent is not None:
                total += max(0, cell.local - cell.usage)
    return total
