"""Dominant resource shares: how much a node uses above its own quota, relative to what its parent could lend.

A share is a pair that compares as it should: (False, weighted ratio), or (True, ratio) for a weight of 0, which ranks above
every other share as soon as anything is borrowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gangline.engine.quota.quota_ledger import FlavorResource, Node


class Share(NamedTuple):
    weightless: bool
    value: float


NO_SHARE = Share(False, 0.0)


class Standing(NamedTuple):
    """A node's share, and whether it borrows at all (which it can with a share of 0, where nothing is lendable)."""

    borrows: bool
    share: Share


_WITHIN = Standing(False, NO_SHARE)


def standing(node: Node) -> Standing:
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


def _weighted(ratio: float, weight: float) -> Share:
    if ratio == 0.0:
        return NO_SHARE
    if weight == 0.0:
        return Share(True, ratio)
    return Share(False, ratio / weight)


def borrows_any(node: Node, amounts: Mapping[FlavorResource, int]) -> bool:
    """Whether the node uses more than its quota of one of these."""
    return node.over_quota(amounts)
