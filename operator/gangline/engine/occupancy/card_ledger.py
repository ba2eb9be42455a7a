"""The ledger of cards: which cards every node has, and what pods take of them that were seen there and have no seats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

from gangline.engine.cards import card_amounts
from gangline.engine.cards.card_amounts import cards_in, name_of, of_card, of_uses
from gangline.engine.model import CardUse, Device, NodeCards, Requests

# --- card uses --------------------------------------------------------------------------------------------------------
# What pods that were seen on the cards of a node take of them, beside those whose seats count already.


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


# --- card ledger ------------------------------------------------------------------------------------------------------


class Places(Protocol):
    """The ledger of room, of which cards are a part: where nodes are and what is placed there, and what is taken besides."""

    def host_at(self, node: str) -> str | None:
        """The host that topologies know a node by; None for an unknown node."""
        ...

    def taken_at(self, host: str) -> Mapping[str, int]:
        """What placed pods take of a host."""
        ...

    def placed_at(self, key: str, host: str) -> Mapping[str, int]:
        """What a workload's placed pods take of a host."""
        ...

    def has_seats(self, key: str) -> bool:
        """Whether a workload's placed pods have seats on cards, wherever."""
        ...

    def shift_foreign(self, node: str, amounts: Requests, sign: int) -> None: ...

    def cards_changed(self, node: str | None) -> None:
        """The cards of this node are other ones; None: only what is taken of some."""
        ...


class LostCards(NamedTuple):
    """Cards of a host on which somebody has a seat, by their names in admissions.

    `failed` is certain. `missing`: the inventory has no such card any more, or offers fewer than it has; perhaps it is back soon.
    """

    failed: frozenset[str]
    missing: frozenset[str]


class CardLedger:
    def __init__(self, places: Places) -> None:
        self._places = places
        #: node -> its cards, and what pods take of them that hold no seats there
        self._cards: dict[str, NodeCards] = {}
        self._on_cards: dict[str, dict[str, int]] = {}
        #: workload -> the nodes on whose cards its pods were seen
        self._seen_on: dict[str, set[str]] = {}
        #: node -> the workloads with pods on its cards that have seats on other hosts only
        self._strayed: dict[str, set[str]] = {}
        #: nodes where somebody may have a seat on a card that is lost
        self._doubtful: set[str] = set()

    # --- in -----------------------------------------------------------------------------------------------------------

    def put(self, cards: NodeCards) -> bool:
        """The cards of a node and who sits there, as they are now; without devices: nothing is known of its cards.

        Returns whether its cards are other ones than before.
        """
        node, old = cards.node, self._cards.pop(cards.node, None)
        for key in {use.workload for use in old.uses} if old is not None else ():
            self._seen_on.get(key, set()).discard(node)
            if not self._seen_on.get(key):
                self._seen_on.pop(key, None)
        if cards.devices:
            self._cards[node] = cards
            for use in cards.uses:
                if use.workload:
                    self._seen_on.setdefault(use.workload, set()).add(node)
        self._count_uses(node)
        self._doubtful.add(node)
        different = old is None or old.devices != cards.devices
        if different:
            self._places.cards_changed(node)
        return different

    def copy_from(self, other: CardLedger, node: str) -> None:
        """The cards of a node, and what is taken of them, as another ledger has them."""
        known = other._cards.get(node)
        self._cards.pop(node, None)
        if known is not None:
            self._cards[node] = NodeCards(node, known.devices)
        self.take(node, other.taken(node))
        self._places.cards_changed(node)

    def placed(self, key: str, nodes: Sequence[str]) -> list[str]:
        """A workload has places on these nodes now. Returns the nodes where it was seen, which count anew."""
        self._doubtful.update(nodes)
        seen = sorted(self._seen_on.get(key, ()))
        for node in seen:
            self._count_uses(node)
        return seen

    def _count_uses(self, node: str) -> None:
        """Count what those that were seen on the cards of a node take of them, except as far as seats count."""
        cards = self._cards.get(node, NodeCards(node))
        seats = {use.workload: self._seats_on(use.workload, node) for use in cards.uses if use.workload}
        strays = {key for key, taken in seats.items() if not taken and self._places.has_seats(key)}
        self._strayed.pop(node, None)
        if strays:
            self._strayed[node] = strays
        self.take(node, taken_beside(cards, lambda key: seats[key]))

    def _seats_on(self, key: str, node: str) -> Mapping[str, int]:
        """What a workload takes of the cards of a node by its admission."""
        host = self._places.host_at(node)
        amounts = self._places.placed_at(key, host if host is not None else node)
        return amounts if card_amounts.cards_in(amounts) else {}

    def take(self, node: str, taken: Mapping[str, int]) -> None:
        """Pods without seats there take this of the cards of a node."""
        before = self._on_cards.pop(node, {})
        if taken:
            self._on_cards[node] = dict(taken)
        if before != taken:
            self._places.cards_changed(None)
            if before:
                self._places.shift_foreign(node, before, -1)
            if taken:
                self._places.shift_foreign(node, taken, 1)

    # --- out ----------------------------------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Whether there is an inventory of some node."""
        return bool(self._cards)

    def nodes(self) -> Sequence[str]:
        return list(self._cards)

    def taken(self, node: str) -> Mapping[str, int]:
        return self._on_cards.get(node, {})

    def devices(self, node: str) -> Sequence[Device]:
        """The cards of a node; none where nothing is known of them."""
        cards = self._cards.get(node)
        return cards.devices if cards is not None else ()

    def number_and_model(self, node: str) -> tuple[int, str]:
        """How many cards a node has, and the model of the first; none where nothing is known of them."""
        devices = self.devices(node)
        return len(devices), devices[0].model if devices else ""

    def lost(self) -> dict[str, LostCards]:
        """The lost cards by host. Nothing is known of cards of a node without inventory."""
        found: dict[str, LostCards] = {}
        for node in sorted(self._doubtful):
            host, cards = self._places.host_at(node), self._cards.get(node)
            if host is None:
                continue  # it may come
            lost = self._lost_of(cards, host) if cards is not None else None
            if lost is not None and (lost.failed or lost.missing):
                found[host] = lost
            else:
                self._doubtful.discard(node)
        return found

    def _lost_of(self, cards: NodeCards, host: str) -> LostCards:
        used = card_amounts.cards_in(self._places.taken_at(host)).keys()
        listed = {card_amounts.name_of(each.uuid): each for each in cards.devices}
        failed = frozenset(name for name in used & listed.keys() if not listed[name].healthy and listed[name].named)
        # of cards that are only counted nobody knows which one failed, and a plugin that starts again offers none
        fewer = frozenset(name for name in used & listed.keys() if not listed[name].healthy and not listed[name].named)
        return LostCards(failed, fewer if cards.partial else fewer | (used - listed.keys()))

    def seen_on_other_hosts(self) -> set[str]:
        """Workloads with seats on cards and with pods on the cards of a host where they have none."""
        return {key for keys in self._strayed.values() for key in keys}
