"""What keeps a ClusterQueue from more of a flavor's resource: borrowing limits, or that all is in use. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.engine.quota.quota_ledger import Cell


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
