"""Dominant resource shares: how much a node uses above its own quota, relative to what its parent could lend.

A share is a pair that compares as it should: (False, weighted ratio), or (True, ratio) for a weight of 0, which ranks above
every other share as soon as anything is borrowed.
"""

from __future__ import annotations

from typing import NamedTuple

from gangline.engine.quota.quota_ledger import QuotaNode


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
