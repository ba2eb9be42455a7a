"""What pods that were seen on the cards of a node take of them, beside those whose seats count already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from gangline.engine.cards.card_amounts import cards_in, name_of, of_card, of_uses
from gangline.engine.model import CardUse, Device, NodeCards

#: Workload -> what it takes of the cards of this node by its admission; nothing if it has no seat there
SeatsOf: TypeAlias = Callable[[str], Mapping[str, int]]


def taken_beside(cards: NodeCards, seats_of: SeatsOf) -> dict[str, int]:
    """A pod of a workload with seats on the node takes nothing besides. Where it sits on another card than that of its seat, what
    it takes is moved there: below zero of the one card, and more of the other. It is the same in whatever order facts arrive.
    """
    known = {device.uuid: device for device in cards.devices}
    taken: dict[str, int] = {}
    by_holder: dict[str, list[CardUse]] = {}
    somewhere: list[CardUse] = []
    for use in cards.uses:
        if use.workload and seats_of(use.workload):
            if use.uuid in known:
                by_holder.setdefault(use.workload, []).append(use)
        elif use.uuid in known:
            _shift(taken, of_uses((use,)), 1)
        elif not use.uuid:
            somewhere.append(use)
    for key, uses in by_holder.items():
        _move_seats(seats_of(key), uses, taken)
    _seat_somewhere(somewhere, cards.devices, taken)
    return {name: amount for name, amount in taken.items() if amount}


def _move_seats(seats: Mapping[str, int], uses: Sequence[CardUse], taken: dict[str, int]) -> None:
    there = cards_in(seats)
    left = Counter(there)
    strays: list[CardUse] = []
    for use in uses:
        name = name_of(use.uuid)
        if left[name] > 0:
            left[name] -= 1
        else:
            strays.append(use)
    empty = [card for card, number in sorted(left.items()) for _ in range(number)]
    for use, card in zip(strays, empty, strict=False):
        _shift(taken, of_card(seats, card, 1, there[card]), -1)
        _shift(taken, of_uses((use,)), 1)


def _seat_somewhere(uses: Sequence[CardUse], devices: Sequence[Device], taken: dict[str, int]) -> None:
    """Pods on cards of which nobody says which they are: on those with the fewest pods."""
    for use in uses:
        if devices:
            busy = cards_in(taken)
            device = min(devices, key=lambda each: (busy.get(name_of(each.uuid), 0), each.index))
            _shift(taken, of_uses((replace(use, uuid=device.uuid),)), 1)


def _shift(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
