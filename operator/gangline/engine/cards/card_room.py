"""One card: what of it is free, who sits on it, and whether a share fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gangline.engine.model import Device, Part, Share
from gangline.engine.model.devices import WHOLE

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

    @classmethod
    def of(cls, holder: str, share: Share, device: Device, *, kind: str = "", utilisation: int = 0) -> Resident:
        """A pod with this share on this card, which must be able to take it."""
        part = share.of(device)
        if part is None:
            raise ValueError(f"{holder}: a share that {device.uuid} never fits")
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
        return ""

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
        if share.profile:
            most = min(most, self._instances(share, most))
        return most

    def _instances(self, share: Share, most: int) -> int:
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
