"""`gangline nodes --cards`: the cards of nodes, what is free of each, and who sits there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from gangline.api import quantity
from gangline.console.output.columns import Column, Listing
from gangline.kube.resources import Json

_Column: TypeAlias = Column[Json]
#: in place of a card, for pods of which nobody says on which card they are
SOME: Final = "some card"


def of(nodes: Sequence[Json]) -> list[Json]:
    """One entry per card, with its node; one more where pods sit on some card of the node."""
    found: list[Json] = []
    for node in nodes:
        name = {"node": node["metadata"]["name"]}
        found += ({**name, **card} for card in node.get("cards") or ())
        if sitters := node.get("onSomeCard"):
            found.append({**name, "uuid": "", "index": None, "occupants": sitters})
    return found


def listing(most: int | None = None) -> Listing[Json]:
    """One row per card; of more than `most` who sit there the others are counted."""
    return Listing(
        columns=(
            _Column("NODE", lambda card, _: card["node"], least=20),
            _Column("CARD", lambda card, _: _number(card), key=_order),
            _Column("UUID", lambda card, _: card["uuid"], rank=2, least=12),
            _Column("MODEL", lambda card, _: card.get("model", ""), rank=3, least=10, sparse=True),
            _Column("STATE", lambda card, _: _state(card)),
            _Column("USED", lambda card, _: _used(card), right=True),
            _Column("FREE", lambda card, _: _free(card), right=True, key=lambda card, _: card.get("freeMilli", -1)),
            _Column("MEMORY", lambda card, _: _memory(card), right=True, rank=1, sparse=True),
            _Column("PODS", lambda card, _: str(_pods(card)), right=True, rank=4, key=lambda card, _: _pods(card)),
            _Column("WHO", lambda card, _: _sitting(card["occupants"], most)),
        ),
        as_json=lambda card: card,
        name=lambda card: f"node/{card['node']}/{card['uuid'] or _number(card)}",
        empty="Nothing is known of cards of these nodes.",
        style=lambda card: "" if card.get("healthy", True) else "red",
        state=lambda card: (_state(card),),
    )


def _number(card: Json) -> str:
    return SOME if "milli" not in card else "" if card["index"] is None else str(card["index"])


def _order(card: Json, _: float) -> tuple[str, int]:
    return card["node"], 1 << 30 if card["index"] is None else card["index"]


def _state(card: Json) -> str:
    return "" if "milli" not in card else "Ready" if card["healthy"] else "Failed"


def _used(card: Json) -> str:
    """The thousandths of a card that are used, and all of them, as text."""
    return "" if "milli" not in card else f"{card['milli'] - card['freeMilli']}m/{card['milli']}m"


def _free(card: Json) -> str:
    return "" if "milli" not in card else f"{card['freeMilli']}m"


def _memory(card: Json) -> str:
    """The memory of a card that is in use, and all of it, as text."""
    if not card.get("memory"):
        return ""
    total, free = (quantity.parse(card[key], "memory") for key in ("memory", "freeMemory"))
    return f"{quantity.format(total - free, 'memory')}/{card['memory']}"


def _pods(card: Json) -> int:
    return sum(each["pods"] for each in card["occupants"])


def _sitting(occupants: Sequence[Json], most: int | None) -> str:
    named = [
        (f"{each['namespace']}/" if each["namespace"] else "")
        + each["job"]
        + (" (outside queues, " if each["outside"] else " (")
        + f"{each['milli']}m, {each['memory']})"
        for each in occupants[:most]
    ]
    return ", ".join(named) + (f" and {len(occupants) - len(named)} more" if len(occupants) > len(named) else "")
