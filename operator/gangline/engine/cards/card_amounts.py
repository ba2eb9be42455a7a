"""What is taken of cards as amounts, beside those of a node: `free` of a host says what is left of each of its cards.

So cards follow the hosts in everything: what workloads take, what is lifted in a trial, what the future holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Final

from gangline.engine.cards.card_room import CardRoom, Resident
from gangline.engine.model import CardSeat, CardUse, Device, Part
from gangline.engine.model.devices import AFFINITY, ANTI_AFFINITY, EXCLUSION

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
#: by name that neighbours look at, the number of pods that have it
_NAMED: Final = "#named:"
#: what such a name is of a resident
_FIELDS: Final = {AFFINITY: "affinity", ANTI_AFFINITY: "anti_affinity", EXCLUSION: "exclusion"}
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


def of_seats(
    pods: Iterable[Sequence[CardSeat]], kind: str = "", utilisation: int | None = None, names: Iterable[str] = ()
) -> dict[str, int]:
    """What these pods take of cards. `kind` of work, `utilisation` in percent of one card, `names` of its shares: what each pod
    says of itself.
    """
    found: dict[str, int] = {}
    for pod in pods:
        busy = _ALL if utilisation is None else on_each(utilisation, len(pod))
        for seat in pod:
            _add(found, seat.card, Part(seat.milli, seat.memory), seat.alone, seat.profile)
            found[seat.card + _BUSY] = found.get(seat.card + _BUSY, 0) + busy
            for told in ((_KIND + kind,) if kind else ()) + tuple(_NAMED + name for name in names):
                found[seat.card + told] = found.get(seat.card + told, 0) + 1
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
        for each in use.names:
            found[name + _NAMED + each] = found.get(name + _NAMED + each, 0) + 1
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
    """Whether this is the name of an amount of a card that bounds no number: what kinds of pods sit there, beside whom, and how
    much they use.
    """
    _, sign, what = name.rpartition("#")
    return bool(sign) and f"#{what}".startswith((_BUSY, _KIND, _NAMED))


def unwanted(devices: Sequence[Device], free: Mapping[str, int], amounts: Mapping[str, int]) -> bool:
    """Whether pods that take these amounts of cards would get neighbours there, or among themselves, that one of both sides does
    not want.
    """
    if not (_are_named(amounts) or _are_named(free)):
        return False
    left = dict(free)
    for name, amount in amounts.items():
        left[name] = left.get(name, 0) - amount
    for room in rooms_of(devices, left):
        card = name_of(room.device.uuid)
        if amounts.get(card + _PODS):
            if len({each.exclusion for each in room.residents}) > 1:
                return True
            apart = [each.anti_affinity for each in room.residents]
            head = f"{card}{_NAMED}{ANTI_AFFINITY}"
            if any(apart.count(name.removeprefix(head)) > 1 for name in amounts if name.startswith(head)):
                return True
    return False


def _are_named(amounts: Iterable[str]) -> bool:
    """Whether some of the amounts stand for names that neighbours look at."""
    return any(_NAMED in each for each in amounts)


def is_of_card(name: str) -> bool:
    """Whether this is the name of an amount of a card, and not that of a resource, which has no such sign."""
    return "#" in name


def of_card(amounts: Mapping[str, int], card: str, parts: int, of: int) -> dict[str, int]:
    """The amounts that `parts` of the `of` pods of one card take of it."""
    head = f"{card}#"
    return {key: amount * parts // of for key, amount in amounts.items() if key.startswith(head)}


def rooms_of(devices: Sequence[Device], free: Mapping[str, int]) -> list[CardRoom]:
    """The cards of a host with what is free of each. Of who sits there the kinds of work and the names are known."""
    told: dict[str, list[tuple[str, int]]] = {}
    for key, amount in free.items() if devices else ():
        if amount < 0 and (_KIND in key or _NAMED in key):
            card, _, what = key.rpartition("#")
            told.setdefault(card, []).append(("#" + what, -amount))
    return [_room(device, free, told.get(name_of(device.uuid), ())) for device in devices]


def _room(device: Device, free: Mapping[str, int], told: Sequence[tuple[str, int]]) -> CardRoom:
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
    if told:
        _introduce(residents, told)
    residents[0] = replace(residents[0], utilisation=max(0, -free.get(name + _BUSY, 0)))
    room.residents = residents
    room.milli = min(device.milli, free.get(name + _MILLI, device.milli))
    room.memory = min(device.memory, free.get(name + _MEMORY, device.memory))
    return room


def _introduce(residents: list[Resident], told: Sequence[tuple[str, int]]) -> None:
    """Let residents have the kinds and names that pods there have, each as often; who has both nobody asks."""
    met: dict[str, int] = {}
    for what, number in told:
        if what.startswith(_KIND):
            known, value = "kind", what.removeprefix(_KIND)
        else:
            of, _, value = what.removeprefix(_NAMED).partition(" ")
            known = _FIELDS[of + " "]
        first = met.get(known, 0)
        met[known] = first + number
        for position in range(first, min(first + number, len(residents))):
            residents[position] = replace(residents[position], **{known: value})
