"""What is taken of cards as amounts, beside those of a node: `free` of a host says what is left of each of its cards.

So cards follow the hosts in everything: what workloads take, what is lifted in a trial, what the future holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Final

from gangline.engine.interference.joining import CompanyShare
from gangline.engine.model import CardSeat, CardUse, Device, Part, Share
from gangline.engine.model.devices import AFFINITY, ANTI_AFFINITY, EXCLUSION, SLOWDOWN, WHOLE

# --- card room --------------------------------------------------------------------------------------------------------
# One card: what of it is free, who sits on it, and whether a share fits.


#: Why a card is not for a share, as `gangline why` counts it. "" = it is.
FAILED: Final = "the card has failed"
OTHER_RESOURCE: Final = "the card is offered by another resource"
NOT_CHOSEN: Final = "the pod names other cards"
OTHER_MODEL: Final = "the card is of another model"
OTHER_MODE: Final = "the card is shared in another way"
NO_PROFILE: Final = "the card has no such MIG profile"
TOO_SMALL: Final = "the share is larger than the card"
IN_USE: Final = "the card is in use"
TAKEN_WHOLE: Final = "the card is taken as a whole"
NO_SLOT: Final = "no slot of the card is free"
NO_COMPUTE: Final = "compute of the card does not suffice"
NO_MEMORY: Final = "memory of the card does not suffice"
NO_SLICES: Final = "MIG slices of the card do not suffice"
NO_MARGIN: Final = "memory of the card does not suffice with its margin"
SAME_NAME: Final = "a pod of the same anti-affinity is on the card"
OTHER_NAME: Final = "a pod of another exclusion is on the card"

#: the way of sharing a card in which no pod gets more memory than it asked for; what else does so has instances
ENFORCED: Final = "Software"
#: the number of pods on a card without a limit
_ANY_NUMBER: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod on a card: whose it is, what it takes, and beside whom it may sit."""

    holder: str
    part: Part
    exclusive: bool = False
    profile: str = ""
    #: kind of work: equal kinds run the same program
    kind: str = ""
    #: percent of the card that it uses on average, where that is known
    utilisation: int = 0
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    #: thousandths: how much it may be slowed by others; "" = not said
    max_slowdown: str = ""

    @classmethod
    def of(cls, holder: str, share: Share, device: Device, *, kind: str = "", utilisation: int = 0) -> Resident:
        """A pod with this share on this card, which must be able to take it."""
        part = share.of(device)
        if part is None:
            raise ValueError(f"{holder}: a share that {device.uuid} never fits")
        if not kind and isinstance(share, CompanyShare):
            kind = share.company.kind
        return cls(
            holder,
            part,
            share.alone_on(device),
            share.profile,
            kind,
            utilisation,
            share.affinity,
            share.anti_affinity,
            share.exclusion,
        )


class CardRoom:
    """A card and who sits on it. `milli` and `memory` are what is free, below zero where facts say that more is taken."""

    __slots__ = ("device", "memory", "milli", "residents")

    def __init__(self, device: Device, residents: Iterable[Resident] = ()) -> None:
        self.device = device
        self.milli, self.memory = device.milli, device.memory
        self.residents: list[Resident] = []
        for resident in residents:
            self.seat(resident)

    def copy(self) -> CardRoom:
        """The same card with the same pods, to try something out."""
        twin = CardRoom(self.device)
        twin.milli, twin.memory, twin.residents = self.milli, self.memory, list(self.residents)
        return twin

    @property
    def idle(self) -> bool:
        return not self.residents

    @property
    def untouched(self) -> bool:
        """Whether nobody sits on it, and nothing of it is taken by pods whose card is not known."""
        return self.idle and self.milli >= self.device.milli

    @property
    def slots(self) -> int:
        """Pods that may still come."""
        return self.device.slots - len(self.residents) if self.device.slots else _ANY_NUMBER

    @property
    def utilisation(self) -> int:
        """Percent that the card's pods use on average, all together; above 100 where they compete."""
        return sum(resident.utilisation for resident in self.residents)

    def seat(self, resident: Resident) -> None:
        self.milli -= resident.part.milli
        self.memory -= resident.part.memory
        self.residents.append(resident)

    def unseat(self, resident: Resident) -> None:
        """The exact reverse of `seat`, in any order."""
        self.residents.remove(resident)
        self.milli += resident.part.milli
        self.memory += resident.part.memory

    def refuses(self, share: Share) -> str:
        """Why one more pod with this share may not sit here."""
        return unsuited(self.device, share) or self._lacks(share) or self._bars(share)

    def _lacks(self, share: Share) -> str:
        part = share.of(self.device)
        if part is None:
            return NO_PROFILE if share.profile else TOO_SMALL
        if self.residents:
            if share.alone_on(self.device):
                return IN_USE
            if any(resident.exclusive for resident in self.residents):
                return TAKEN_WHOLE
        if self.slots <= 0:
            return NO_SLOT
        if part.milli > self.milli and not share.profile:  # slices decide about instances
            return NO_COMPUTE
        if part.memory + (self._margin(share) if self.residents else 0) > self.memory and part.memory:
            return NO_MEMORY if part.memory - share.beyond > self.memory else NO_MARGIN
        if share.profile and not self._slices_left(share.profile):
            return NO_SLICES
        return ""

    def _margin(self, share: Share) -> int:
        """MiB that stay free beside a share and its neighbours; a pod that is alone disturbs nobody."""
        return self.device.memory * share.headroom // WHOLE

    def _slices_left(self, profile: str) -> bool:
        """Whether compute slices and memory slices suffice for one more instance; all profiles share them."""
        known = {each.name: each for each in self.device.profiles}
        wanted = [known[name] for name in (profile, *(each.profile for each in self.residents)) if name in known]
        compute = max(each.slices * each.most for each in known.values())
        memory = max(each.memory_slices * each.most for each in known.values())
        return (
            sum(each.slices for each in wanted) <= compute
            and sum(each.memory_slices for each in wanted) <= memory
            and sum(each.name == profile for each in wanted) <= known[profile].most
        )

    def _bars(self, share: Share) -> str:
        """Neighbours that one of both sides does not want: with anti-affinity never equal names, with an exclusion only equal
        ones.
        """
        for each in self.residents:
            if share.anti_affinity and share.anti_affinity == each.anti_affinity:
                return SAME_NAME
            if (share.exclusion or each.exclusion) and share.exclusion != each.exclusion:
                return OTHER_NAME
        if self.residents and isinstance(share, CompanyShare) and not share.profile:  # instances of MIG don't meet
            caps = [int(each.max_slowdown) for each in self.residents if each.max_slowdown]
            enforced = ENFORCED in (share.mode, self.device.mode)
            return share.company.refuses(self.device, self.kinds, min(caps, default=0), enforced=enforced)
        return ""

    @property
    def kinds(self) -> list[str]:
        """The kind of work of each pod, "" where it is not known."""
        return [each.kind for each in self.residents]

    def wants(self, share: Share) -> bool:
        """Whether others with the share's affinity sit here."""
        return bool(share.affinity) and any(each.affinity == share.affinity for each in self.residents)

    def how_many(self, share: Share) -> int:
        """The number of pods with this share that fit, each once."""
        if self.refuses(share):
            return 0
        part = share.of(self.device)
        assert part is not None
        if share.alone_on(self.device) or share.anti_affinity:
            return 1
        most = self.slots
        if part.milli and not share.profile:
            most = min(most, self.milli // part.milli)
        if part.memory:
            most = min(most, max(1, (self.memory - self._margin(share)) // part.memory))
        if share.profile or isinstance(share, CompanyShare):
            most = min(most, self._one_by_one(share, most))
        return most

    def _one_by_one(self, share: Share, most: int) -> int:
        trial = self.copy()
        resident = Resident.of("", share, self.device)
        for number in range(most):
            if trial.refuses(share):
                return number
            trial.seat(resident)
        return most


def unsuited(device: Device, share: Share) -> str:
    """Why a card is not for a share, whoever sits there."""
    if not device.healthy:
        return FAILED
    if share.resource and device.resource != share.resource:
        return OTHER_RESOURCE
    if (share.cards and device.uuid not in share.cards) or device.uuid in share.not_cards:
        return NOT_CHOSEN
    if share.models or share.not_models:
        model = device.model.lower()
        if share.models and not any(name.lower() in model for name in share.models):
            return OTHER_MODEL
        if any(name.lower() in model for name in share.not_models):
            return OTHER_MODEL
    if share.mode and device.mode and share.mode != device.mode:
        return OTHER_MODE
    return ""


#: what it takes to look at the cards of a node, and at who sits there, as so many looks at its other room
_LOOKS_AT_CARDS, _LOOKS_AT_COMPANY = 200, 2_000


def looks_for(shares: Sequence[Share]) -> int:
    """What it takes to count the pods with these shares that fit on a node (`NodeLedger.looks`)."""
    if any(isinstance(share, CompanyShare) for share in shares):
        return _LOOKS_AT_COMPANY
    return _LOOKS_AT_CARDS if shares else 1


# --- card amounts -----------------------------------------------------------------------------------------------------


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
_FIELDS: Final = {
    AFFINITY: "affinity",
    ANTI_AFFINITY: "anti_affinity",
    EXCLUSION: "exclusion",
    SLOWDOWN: "max_slowdown",
}
#: pods on a card without a limit
_SLOTS_WITHOUT_LIMIT: Final = 1 << 20


@lru_cache(maxsize=1 << 14)
def name_of(uuid: str) -> str:
    """The name of a card in amounts and admissions: its uuid, unless that is too long."""
    return uuid if len(uuid) <= LONGEST_NAME else "~" + sha256(uuid.encode()).hexdigest()[: LONGEST_NAME - 1]


#: the same for whoever reads admissions
card_name: Final = name_of


def capacity(devices: Iterable[Device]) -> dict[str, int]:
    """What cards have; of those that have failed nothing is to be had."""
    found: dict[str, int] = {}
    for device in devices:
        if device.healthy:
            name = name_of(device.uuid)
            found[name + _MILLI], found[name + _MEMORY] = device.milli, device.memory
            found[name + _PODS] = device.slots or _SLOTS_WITHOUT_LIMIT
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
            for mark in ((_KIND + kind,) if kind else ()) + tuple(_NAMED + name for name in names):
                found[seat.card + mark] = found.get(seat.card + mark, 0) + 1
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


def kinds_in(amounts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The number of pods of each kind of work that meet others on a card, by card: instances do not."""
    found: dict[str, dict[str, int]] = {}
    for key, number in amounts.items():
        card, sign, kind = key.partition(_KIND)
        if sign:
            found.setdefault(card, {})[kind] = number
    parted = {key.partition(_PROFILE)[0] for key in amounts if _PROFILE in key} if found else ()
    return {card: kinds for card, kinds in found.items() if card not in parted}


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
    marks: dict[str, list[tuple[str, int]]] = {}
    for key, amount in free.items() if devices else ():
        if amount < 0 and (_KIND in key or _NAMED in key):
            card, _, what = key.rpartition("#")
            marks.setdefault(card, []).append(("#" + what, -amount))
    return [_room(device, free, marks.get(name_of(device.uuid), ())) for device in devices]


def _room(device: Device, free: Mapping[str, int], marks: Sequence[tuple[str, int]]) -> CardRoom:
    room = CardRoom(device)
    if not device.healthy:
        return room
    name = name_of(device.uuid)
    pods = (device.slots or _SLOTS_WITHOUT_LIMIT) - free.get(name + _PODS, 0)
    if pods <= 0:
        return room
    alone = 1 - free.get(name + _ALONE, 1) > 0
    residents = [
        Resident("", Part(), alone, each.name)
        for each in device.profiles
        for _ in range(each.most - free.get(f"{name}{_PROFILE}{each.name}", each.most))
    ]
    residents += [Resident("", Part(), alone)] * (pods - len(residents))
    if marks:
        _introduce(residents, marks)
    residents[0] = replace(residents[0], utilisation=max(0, -free.get(name + _BUSY, 0)))
    room.residents = residents
    room.milli = min(device.milli, free.get(name + _MILLI, device.milli))
    room.memory = min(device.memory, free.get(name + _MEMORY, device.memory))
    return room


def _introduce(residents: list[Resident], marks: Sequence[tuple[str, int]]) -> None:
    """Let residents have the kinds and names that pods there have, each as often; who has both nobody asks."""
    met: dict[str, int] = {}
    for what, number in marks:
        if what.startswith(_KIND):
            known, value = "kind", what.removeprefix(_KIND)
        else:
            of, _, value = what.removeprefix(_NAMED).partition(" ")
            known = _FIELDS[of + " "]
        first = met.get(known, 0)
        met[known] = first + number
        for position in range(first, min(first + number, len(residents))):
            residents[position] = replace(residents[position], **{known: value})
