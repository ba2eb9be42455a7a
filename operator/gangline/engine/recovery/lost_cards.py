"""Cards under running gangs that are lost: those that failed at once, and those that are missing once they have been for a while.

A driver that starts again, or replaces what it publishes, may list fewer cards for a moment. Nobody moves for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangline.engine.model import Millis
from gangline.engine.state.store import Store

#: the cause where a card of a gang has failed, and its node has not
CARD_FAILED: Final = "CardFailed"
#: the cause where a card of a gang is missing in an inventory that lists others
CARD_MISSING: Final = "CardMissing"


class LostCardsWatch:
    """`watch` takes the cards as they are now; then the others answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed: dict[str, frozenset[str]] = {}
        #: host -> its missing cards, and since when that is known
        self._missing: dict[str, dict[str, Millis]] = {}
        self._due: list[Millis] = []

    def watch(self, now: Millis) -> None:
        lost = self._store.node_ledger.cards.lost()
        self._failed = {host: cards.failed for host, cards in lost.items() if cards.failed}
        before = self._missing
        self._missing = {
            host: {card: before.get(host, {}).get(card, now) for card in sorted(cards.missing)}
            for host, cards in lost.items()
            if cards.missing
        }
        grace = self._store.health.patience_with_devices
        self._due = [
            since + grace for cards in self._missing.values() for since in cards.values() if since + grace > now
        ]

    def next_due(self) -> Millis | None:
        """When next a missing card will count as lost."""
        return min(self._due, default=None)

    def hosts(self) -> set[str]:
        """The hosts where a card is lost, or will be."""
        return {*self._failed, *self._missing}

    def under(self, seats: Mapping[str, Iterable[str]], now: Millis) -> dict[str, tuple[str, Millis]]:
        """The hosts of these cards where one is lost: the cause, and since when it shows."""
        grace = self._store.health.patience_with_devices
        found: dict[str, tuple[str, Millis]] = {}
        for host, cards in seats.items():
            missing = self._missing.get(host, {})
            over = [missing[card] for card in cards if card in missing and missing[card] + grace <= now]
            if not self._failed.get(host, frozenset()).isdisjoint(cards):
                found[host] = CARD_FAILED, now
            elif over:
                found[host] = CARD_MISSING, min(over)
        return found
