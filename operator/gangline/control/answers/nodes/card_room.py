"""Room on cards, for a job whose pods ask for shares of them: what is free of one card, which a sum over a node does not say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gangline.api import quantity
from gangline.control.answers.nodes.cards import Card
from gangline.control.answers.nodes.machines import Machine
from gangline.engine.model import Share

#: different shares of a job that are looked at
_MOST: Final = 3


def lines(flavor: str, nodes: Iterable[Machine], shares: Sequence[Share]) -> Iterator[str]:
    """One line per share; none where nothing is known of the cards of these nodes."""
    known = [each.cards for each in nodes if each.cards is not None]
    cards = [card for each in known for card in each.cards]
    for share in shares[:_MOST] if cards else ():
        fitting = sum(1 for card in cards if _fits(card, share))
        said = f"{flavor}: a pod asks for {_asked(share)} of a card; {fitting} of {len(cards)} cards have that free"
        unseen = sum(sitter.pods for each in known for sitter in each.on_some_card)
        beside = f" ({unseen} pods sit on cards of which nobody says which)" if unseen else ""
        yield f"{said}{'' if fitting else _most(cards)}{beside}"


def _fits(card: Card, share: Share) -> bool:
    part, device = share.of(card.device), card.device
    if part is None or not device.healthy or (share.cards and device.uuid not in share.cards):
        return False
    if device.uuid in share.not_cards or (share.alone_on(device) and card.sitters):
        return False
    return part.milli <= card.free_milli and part.memory <= (card.free_memory or 0)


def _most(cards: Iterable[Card]) -> str:
    """The most that is free on a single card, by compute and by memory, as text."""
    cards = list(cards)
    milli = max(card.free_milli for card in cards)
    memory = max((card.free_memory or 0 for card in cards), default=0)
    return f": at most {milli}m" + (f", at most {quantity.format(memory << 20, 'memory')}" if memory else "")


def _asked(share: Share) -> str:
    if share.profile:
        return f"an instance {share.profile}"
    memory = quantity.format(share.memory << 20, "memory") if share.memory else ""
    if share.unit or share.exclusive:
        return f"all, with {memory} or more," if memory else "all"
    part = "" if share.by_memory or not share.milli else f"{share.milli}m"
    if not memory and share.memory_milli:
        memory = f"{share.memory_milli // 10} % of its memory"
    return " and ".join(each for each in (part, memory) if each)
