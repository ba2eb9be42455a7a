"""Feeds the inventory of cards with what is published of them, and passes on what is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gangline.control.feed.selector_queue import SelectorQueue
from gangline.control.feed.watched_kinds import INVENTORY
from gangline.control.isolation.time_limit import limited
from gangline.control.kernel.context import Context
from gangline.control.nodes.cards.card_inventory import CardInventory
from gangline.control.parts.part import Part
from gangline.engine.model import Change, Gone, NodeCards, Put
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Resource
from gangline.objects import Stored

#: milliseconds until selectors are evaluated again that could not be
_POSTPONED: Final = 5000
_SLICES: Final = (kube.RESOURCE_SLICES, kube.OLD_RESOURCE_SLICES)


def put(cards: CardInventory, resource: Resource, key: str, obj: Stored | None) -> None:
    """Store the newest version of an object of one of the kinds that say something of cards; None if it was deleted.

    Raises ParseError: then nothing has changed.
    """
    if resource == kube.NODES:
        cards.put_node(key, obj)
    elif resource == kube.PODS:
        cards.put_pod(key, obj)
    elif resource in _SLICES:
        cards.put_slice(resource, key, obj)
    else:
        cards.put_claim(key, obj)


def of_node(cards: NodeCards) -> Change:
    """The engine's fact about the cards of a node; without cards nothing is known of them."""
    return Put(cards) if cards.devices else Gone(NodeCards, cards.node)


class InventoryFeed(Part):
    """Feeds the inventory. An object that cannot be read is quarantined, and what it said before stays in force.

    `count_anew` is called when shares may count differently; `tell` is called with each node whose cards or users have changed.
    `selectors`: where the selectors of claims are evaluated, in its own time.
    """

    name = "inventory"
    kinds = (kube.NODES, kube.PODS, *INVENTORY)

    def __init__(
        self,
        context: Context,
        *,
        count_anew: Callable[[], None],
        tell: Callable[[NodeCards], None] = lambda cards: None,
        selectors: SelectorQueue | None = None,
    ) -> None:
        self.cards = CardInventory(context.pods.workload_of)
        self._mirror = context.mirror
        self._quarantine = context.quarantine
        self._now = context.now
        self._count_anew = count_anew
        self._supplied = False
        self._tell = tell
        self._selectors = selectors
        self._moved = context.pods.changed_nodes.subscribe(worth=lambda node: True)

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            work = partial(limited, partial(put, self.cards, resource, event.obj.key, event.obj))
            self._quarantine.attempt("reading its cards", resource, event.obj.key, work, event.obj)
            self._put_devices(resource, event.obj.key, event.obj)
        elif isinstance(event, Removed):
            put(self.cards, resource, event.key, None)
            self._put_devices(resource, event.key, None)

    def _put_devices(self, resource: Resource, key: str, obj: Stored | None) -> None:
        """Read a ResourceSlice for the devices that claims can get, whatever cards are among them."""
        if resource == kube.RESOURCE_SLICES:
            self._supplied = True
            work = partial(limited, partial(self._mirror.rules.put, resource, key, obj))
            self._quarantine.attempt("reading its devices", resource, key, work, obj)

    def _has_answers(self) -> bool:
        return self._selectors is not None and self._selectors.take_answered()

    async def close(self) -> None:
        if self._selectors is not None:
            self._selectors.close()

    def settle(self) -> None:
        self.cards.look_again(self._moved.take())
        changed, different = self.cards.refresh()
        if different:
            self._mirror.rules.put_cards(self.cards.sizes())
        rules = self._mirror.rules
        if self._has_answers() or (self.due is not None and self.due <= self._now()):
            rules.try_again()
            self._supplied, self.due = True, None
        if different or self._supplied or rules.unfinished:
            self._count_anew()
        self._supplied = False
        if rules.unfinished:
            self.due = self._now()
        elif not rules.postponed:
            self.due = None
        elif self.due is None:
            self.due = self._now() + _POSTPONED
        for each in changed:
            self._tell(each)
