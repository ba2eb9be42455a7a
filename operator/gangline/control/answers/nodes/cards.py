"""The cards of a node as people see them: what is free of each, and who sits on it. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gangline.api import quantity
from gangline.control.answers.sight import Sight
from gangline.engine.model import CardUse, Device, NodeCards


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a pod: a job in a queue, or what the pod belongs to outside of any. `workload`: key of the Workload, "" = of
    none.
    """

    name: str
    namespace: str
    outside: bool = False
    workload: str = ""
    hidden: bool = False

    def seen_by(self, sight: Sight) -> Owner:
        """The owner with a label in place of what the asker may not read."""
        if sight.sees(self.namespace):
            return self
        label = sight.label(self.workload or f"{self.namespace}/{self.name}")
        return replace(self, name=label, namespace="", workload="", hidden=True)


@dataclass(frozen=True, slots=True)
class Sitter:
    """The share of one card that the pods of one owner take."""

    owner: Owner
    pods: int
    milli: int
    memory: int

    def as_json(self) -> dict[str, Any]:
        owner = self.owner
        return {
            "job": owner.name,
            "namespace": owner.namespace,
            "outside": owner.outside,
            "hidden": owner.hidden,
            "pods": self.pods,
            "milli": self.milli,
            "memory": _memory(self.memory),
        }


@dataclass(frozen=True, slots=True)
class Card:
    """One card of a node. `free_memory`: MiB; None: how much memory the card has is not known."""

    device: Device
    free_milli: int
    free_memory: int | None
    sitters: tuple[Sitter, ...] = ()

    def as_json(self) -> dict[str, Any]:
        device = self.device
        return {
            "uuid": device.uuid if device.named else "",
            "index": device.index if device.index >= 0 else None,
            "model": device.model,
            "mode": device.mode,
            "healthy": device.healthy,
            "milli": device.milli,
            "freeMilli": self.free_milli,
            "memory": _memory(device.memory) if device.memory else None,
            "freeMemory": None if self.free_memory is None else _memory(self.free_memory),
            "occupants": [each.as_json() for each in self.sitters],
        }


@dataclass(frozen=True, slots=True)
class CardsSeen:
    """The cards of a node. `on_some_card`: owners of pods that sit on some card of the node, where nobody says on which."""

    cards: tuple[Card, ...]
    on_some_card: tuple[Sitter, ...] = ()

    def seen_by(self, sight: Sight) -> CardsSeen:
        return CardsSeen(
            tuple(replace(card, sitters=_seen(sight, card.sitters)) for card in self.cards),
            _seen(sight, self.on_some_card),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "cards": [each.as_json() for each in self.cards],
            "onSomeCard": [each.as_json() for each in self.on_some_card],
        }


def cards_of(known: NodeCards, owners: Mapping[str, Owner]) -> CardsSeen:
    """The cards of a node, with the pods that sit on each. `owners`: by the key of the pod."""
    by_card: dict[str, list[CardUse]] = {}
    for use in known.uses:
        by_card.setdefault(use.uuid, []).append(use)
    cards = tuple(_card(device, by_card.get(device.uuid, ()), owners) for device in known.devices)
    return CardsSeen(cards, _sitters(by_card.get("", ()), owners))


def _card(device: Device, uses: Iterable[CardUse], owners: Mapping[str, Owner]) -> Card:
    uses = list(uses)
    alone = any(use.exclusive for use in uses) or not device.healthy
    milli = 0 if alone else max(0, device.milli - sum(use.part.milli for use in uses))
    memory = 0 if alone else max(0, device.memory - sum(use.part.memory for use in uses))
    return Card(device, milli, memory if device.memory else None, _sitters(uses, owners))


def _sitters(uses: Iterable[CardUse], owners: Mapping[str, Owner]) -> tuple[Sitter, ...]:
    found: dict[Owner, list[CardUse]] = {}
    for use in uses:
        namespace, _, name = use.pod.partition("/")
        owner = owners.get(use.pod) or Owner(use.workload or f"pod/{name}", namespace, not use.workload, use.workload)
        found.setdefault(owner, []).append(use)
    return tuple(
        Sitter(
            owner,
            len({use.pod for use in each}),
            sum(use.part.milli for use in each),
            sum(use.part.memory for use in each),
        )
        for owner, each in sorted(found.items(), key=lambda pair: (pair[0].namespace, pair[0].name))
    )


def _seen(sight: Sight, sitters: Iterable[Sitter]) -> tuple[Sitter, ...]:
    return tuple(replace(each, owner=each.owner.seen_by(sight)) for each in sitters)


def _memory(mebibytes: int) -> str:
    return quantity.format(mebibytes << 20, "memory")
