"""What is taken of cards as amounts, beside those of a node: `free` of a host says what is left of each of its cards.

So cards follow the hosts in everything: what workloads take, what is lifted in a simulation, what the future holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Final

from gangline.engine.cards.card_room import CardRoom, Resident
from gangline.engine.model import CardSeat, CardUse, Device, Part

#: longer names are replaced: what a pod takes of a card has to fit into one value of a topology level
LONGEST_NAME: Final = 40
#: cards of one pod that can be written down: a topology assignment has sixteen levels, one of which is the host
MOST_CARDS: Final = 15

_MILLI: Final = "#milli"
_MEMORY: Final = "#memory"
_PODS: Final = "#pods"
_ALONE: Final = "#alone"
_PROFILE: Final = "#profile:"
#: percent that its pods use, all together; a pod that does not say counts for all of each of its cards
_BUSY: Final = "#busy"
_ALL: Final = 100
#: by kind of work, the number of its pods
_KIND: Final = "#kind:"
#: pods on a card without a limit
_ANY_NUMBER: Final = 1 << 20


@lru_cache(maxsize=1 << 14)
def name_of(uuid: str) -> str:
    """The name of a card in amounts and admissions: its uuid, unless that is too long."""
    return uuid if len(uuid) <= LONGEST_NAME else "~" + sha256(uuid.encode()).hexdigest()[: LONGEST_NAME - 1]


def capacity(devices: Iterable[Device]) -> dict[str, int]:
    """What cards have; of those that have failed nothing is to be had."""
    found: dict[str, int] = {}
    for device in devices:
        if device.healthy:
            name = name_of(device.uuid)
            found[name + _MILLI], found[name + _MEMORY] = device.milli, device.memory
            found[name + _PODS] = device.slots or _ANY_NUMBER
            found[name + _ALONE] = 1
            found.update((f"{name}{_PROFILE}{each.name}", each.most) for each in device.profiles)
    return found


def of_seats(pods: Iterable[Sequence[CardSeat]], kind: str = "", utilisation: int | None = None) -> dict[str, int]:
    """What these pods take of cards. `kind` of work, `utilisation` in percent of one card: what each pod says of itself."""
    found: dict[str, int] = {}
    for pod in pods:
        busy = _ALL if utilisation is None else on_each(utilisation, len(pod))
        for seat in pod:
            _add(found, seat.card, Part(seat.milli, seat.memory), seat.alone, seat.profile)
            found[seat.card + _BUSY] = found.get(seat.card + _BUSY, 0) + busy
            if kind:
                found[seat.card + _KIND + kind] = found.get(seat.card + _KIND + kind, 0) + 1
    return found


def on_each(utilisation: int, cards: int) -> int:
    """Percent of each card of a pod that uses so much of one."""
    return -(-utilisation // max(1, cards))


def of_uses(uses: Iterable[CardUse]) -> dict[str, int]:
    """What pods take of cards that are known."""
    found: dict[str, int] = {}
    for use in uses:
        name = name_of(use.uuid)
        _add(found, name, use.part, use.exclusive, use.profile)
        found[name + _BUSY] = found.get(name + _BUSY, 0) + _ALL
    return found


def _add(total: dict[str, int], card: str, part: Part, alone: bool, profile: str) -> None:
    amounts = {_MILLI: part.milli, _MEMORY: part.memory, _PODS: 1}
    if alone:
        amounts[_ALONE] = 1
    if profile:
        amounts[_PROFILE + profile] = 1
    for what, amount in amounts.items():
        total[card + what] = total.get(card + what, 0) + amount


def cards_in(amounts: Mapping[str, int]) -> dict[str, int]:
    """The cards of which something is taken, each with the number of pods there."""
    end = len(_PODS)
    return {key[:-end]: number for key, number in amounts.items() if key.endswith(_PODS) and len(key) > end}


def is_trait(name: str) -> bool:
    """An amount of a card that bounds nothing: what kinds of pods sit there, and how much they use."""
    _, sign, what = name.rpartition("#")
    return bool(sign) and f"#{what}".startswith((_BUSY, _KIND))


def is_of_card(name: str) -> bool:
    """An amount of a card, and not of a resource, whose name has no such sign."""
    return "#" in name


def of_card(amounts: Mapping[str, int], card: str, parts: int, of: int) -> dict[str, int]:
    """Of what is taken of one card, that of `parts` of its `of` pods."""
    head = f"{card}#"
    return {key: amount * parts // of for key, amount in amounts.items() if key.startswith(head)}


def rooms_of(devices: Sequence[Device], free: Mapping[str, int]) -> list[CardRoom]:
    """The cards of a host with what is free of each. Of who sits there only the kinds of work are known."""
    kinds: dict[str, list[str]] = {}
    for key, amount in free.items() if devices else ():
        card, sign, kind = key.partition(_KIND)
        if sign:
            kinds.setdefault(card, []).extend([kind] * -amount)
    return [_room(device, free, kinds.get(name_of(device.uuid), ())) for device in devices]


def _room(device: Device, free: Mapping[str, int], kinds: Sequence[str]) -> CardRoom:
    room = CardRoom(device)
    if not device.healthy:
        return room
    name = name_of(device.uuid)
    pods = (device.slots or _ANY_NUMBER) - free.get(name + _PODS, 0)
    if pods <= 0:
        return room
    alone = 1 - free.get(name + _ALONE, 1) > 0
    residents = [
        Resident("", Part(), alone, each.name)
        for each in device.profiles
        for _ in range(each.most - free.get(f"{name}{_PROFILE}{each.name}", each.most))
    ]
    residents += [Resident("", Part(), alone)] * (pods - len(residents))
    for position, kind in enumerate(kinds[: len(residents)]):
        residents[position] = replace(residents[position], kind=kind)
    residents[0] = replace(residents[0], utilisation=max(0, -free.get(name + _BUSY, 0)))
    room.residents = residents
    room.milli = min(device.milli, free.get(name + _MILLI, device.milli))
    room.memory = min(device.memory, free.get(name + _MEMORY, device.memory))
    return room
