"""Links between the cards of a node: what a set of cards costs, and which set costs least."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

from gangline.engine.model import Device
from gangline.engine.model.devices import SYS

#: more sets than this are not compared one by one
_MOST_SETS = 2_000


def distance(one: Device, other: Device) -> int:
    return min(one.links.get(other.uuid, SYS), other.links.get(one.uuid, SYS))


def cost(devices: Sequence[Device]) -> int:
    """The distances of all pairs together."""
    return sum(distance(one, other) for one, other in combinations(devices, 2))


def cheapest(devices: Sequence[Device], count: int) -> tuple[int, ...]:
    """The positions of `count` cards that are closest to one another.

    Among equal sets, the one that takes least from what stays: whose cards are farther from all cards that are left; then the
    first. Large sets grow card by card, from each card in turn.
    """
    everything = range(len(devices))
    if count >= len(devices):
        return tuple(everything)
    if not any(device.links for device in devices):
        return tuple(everything[:count])
    if comb(len(devices), count) <= _MOST_SETS:
        sets = list(combinations(everything, count))
    else:
        sets = [_grown(devices, first, count) for first in everything]

    def rank(chosen: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        left = [place for place in everything if place not in chosen]
        torn = sum(SYS - distance(devices[one], devices[other]) for one in chosen for other in left)
        return cost([devices[place] for place in chosen]), torn, chosen

    return min(sets, key=rank)


def _grown(devices: Sequence[Device], first: int, count: int) -> tuple[int, ...]:
    chosen = [first]
    while len(chosen) < count:
        left = (place for place in range(len(devices)) if place not in chosen)
        chosen.append(min(left, key=lambda place: sum(distance(devices[place], devices[other]) for other in chosen)))
    return tuple(sorted(chosen))
