"""Seating pods on the cards of one host: how many with the same shares fit, which cards each gets, and what is lacking."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Final

from gangline.engine.cards.card_amounts import MOST_CARDS, NO_COMPUTE, NO_MARGIN, NO_MEMORY, CardRoom, Resident, name_of
from gangline.engine.model import CardSeat, Device, Share
from gangline.engine.model.devices import SYS

# --- links ------------------------------------------------------------------------------------------------------------
# Links between the cards of a node: what a set of cards costs, and which set costs least.


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


# --- card seating -----------------------------------------------------------------------------------------------------


#: of all cards of a host
_OF_NONE: Final = {
    NO_MEMORY: "memory of no card suffices",
    NO_MARGIN: "memory of no card suffices with its margin",
    NO_COMPUTE: "compute of no card suffices",
}


def bound(devices: Sequence[Device], shares: Sequence[Share]) -> tuple[Share, ...]:
    """The shares that the cards of a host bound: not those for which it has no inventory, which only its amounts bound.

    A pod with more cards than can be written down is not bound by cards.
    """
    found = tuple(
        share for share in shares if not share.resource or any(each.resource == share.resource for each in devices)
    )
    return found if sum(share.count for share in found) <= MOST_CARDS else ()


def pods_that_fit(rooms: Sequence[CardRoom], shares: Sequence[Share], most: int) -> int:
    """The number of pods with these shares that fit, at most `most`."""
    if len(shares) == 1:
        most = min(most, how_many(rooms, shares[0]))
        if shares[0].count == 1:
            return most
    return len(seat_pods([room.copy() for room in rooms], shares, most))


def why_none(rooms: Sequence[CardRoom], shares: Sequence[Share]) -> str:
    """Why not one pod fits."""
    reasons = (why_not(rooms, share) for share in shares)
    found = next((reason for reason in reasons if reason), "cards do not suffice together")
    return _OF_NONE.get(found, found)


def seat_pods(rooms: Sequence[CardRoom], shares: Sequence[Share], most: int) -> list[tuple[CardSeat, ...]]:
    """The cards of each pod, for as many pods as fit, at most `most`. They sit on `rooms` then."""
    found: list[tuple[CardSeat, ...]] = []
    while len(found) < most:
        pod = seat_pod(rooms, shares)
        if pod is None:
            break
        found.append(pod)
    return found


def seat_pod(rooms: Sequence[CardRoom], shares: Sequence[Share]) -> tuple[CardSeat, ...] | None:
    """One pod more; None if it does not fit, and then the rooms are as before."""
    taken: list[tuple[CardRoom, Resident]] = []
    for share in shares:
        for count in (share.count,) if share.apart else (1,) * share.count:
            chosen = _choose(rooms, share, count)
            if chosen is None:
                for room, resident in reversed(taken):
                    room.unseat(resident)
                return None
            for room in chosen:
                resident = Resident.of("", share, room.device)
                room.seat(resident)
                taken.append((room, resident))
    return tuple(seat_of(room.device, resident) for room, resident in taken)


def seat_of(device: Device, resident: Resident) -> CardSeat:
    part = resident.part
    return CardSeat(name_of(device.uuid), part.milli, part.memory, resident.exclusive, resident.profile)


def _choose(rooms: Sequence[CardRoom], share: Share, count: int) -> list[CardRoom] | None:
    """Choose `count` cards for the share; None if fewer have room. A single card is the one of which least is left. Several are
    those with most room, so that as many pods as possible fit; where each takes one pod, those that are closest together. Cards
    with pods of the share's affinity go before.
    """
    able = [(number, room) for room in rooms if (number := room.how_many(share))]
    if len(able) < count:
        return None
    wanted = [(number, room) for number, room in able if room.wants(share)] if share.affinity else []
    if count == 1:
        return [min((room for _, room in wanted or able), key=lambda room: (room.milli, room.memory))]
    if all(number == 1 for number, _ in able):
        offered = wanted if len(wanted) >= count else able
        near = cheapest([room.device for _, room in offered], count)
        return [offered[position][1] for position in near]
    able.sort(key=lambda each: (-each[0], not each[1].wants(share), each[1].milli, each[1].memory))
    return [room for _, room in able[:count]]


# --- a share of one kind ------------------------------------------------------------------------------------------------


def how_many(cards: Sequence[CardRoom], share: Share) -> int:
    """The number of pods that fit, each with the share on `count` different cards of the node.

    k pods fit where the cards together have k × count seats, of which no pod takes two on one card: no card counts more than k.
    """
    each = [number for room in cards if (number := room.how_many(share))]
    if share.count <= 1:
        return sum(each)
    few, many = 0, sum(each) // share.count
    while few < many:
        middle = (few + many + 1) // 2
        if sum(min(number, middle) for number in each) >= middle * share.count:
            few = middle
        else:
            many = middle - 1
    return few


def why_not(cards: Sequence[CardRoom], share: Share) -> str:
    """Why not one pod fits: what most cards lack, then the first by name; "" = one fits."""
    reasons = [room.refuses(share) for room in cards]
    if reasons.count("") >= share.count:
        return ""
    named = sorted({reason for reason in reasons if reason})
    return max(named, key=reasons.count) if named else "the node has too few cards"
