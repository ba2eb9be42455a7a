"""Pools of ResourceSlices: which slices of each pool hold.

A driver replaces the slices of a pool one after the other, each with a higher generation, and may delete some before it has
written the others. As for Kubernetes' allocator, a pool counts with the slices of its newest generation once all of these are
there. Until then it counts as it was when it was last complete, except that cards have failed that have by its newest slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from gangline.api.read.inventory import ResourceSlice

_Pool: TypeAlias = tuple[ResourceSlice, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The slices that hold. On `partial` nodes there may be cards that are in none of them."""

    slices: tuple[ResourceSlice, ...] = ()
    partial: frozenset[str] = frozenset()


class SlicePools:
    def __init__(self) -> None:
        #: pool -> its slices when it was last complete
        self._complete: dict[str, _Pool] = {}

    def publish(self, slices: Iterable[ResourceSlice]) -> Published:
        """The slices of each pool that hold, given all slices as they are now, in a fixed order."""
        pools: dict[str, list[ResourceSlice]] = {}
        for each in slices:
            pools.setdefault(each.pool, []).append(each)
        self._complete = {pool: known for pool, known in self._complete.items() if pool in pools}
        found: list[ResourceSlice] = []
        partial: set[str] = set()
        for pool, there in sorted(pools.items()):
            generation = max(each.generation for each in there)
            newest = tuple(each for each in there if each.generation == generation)
            if _is_complete(newest):
                self._complete[pool] = newest
                found += newest
            elif pool in self._complete:
                found += _with_failures(self._complete[pool], newest)
            else:
                found += newest
                partial.update(device.node for each in there for device in each.devices)
                partial.update(each.node for each in there if each.node)
        return Published(tuple(found), frozenset(partial))


def _is_complete(newest: Sequence[ResourceSlice]) -> bool:
    return all(each.count in (0, len(newest)) for each in newest)


def _with_failures(known: _Pool, newest: _Pool) -> Iterable[ResourceSlice]:
    failed = {(device.node, device.uuid) for each in newest for device in each.devices if not device.healthy}
    for each in known:
        devices = (
            replace(device, healthy=False) if (device.node, device.uuid) in failed else device
            for device in each.devices
        )
        yield replace(each, devices=tuple(devices))
