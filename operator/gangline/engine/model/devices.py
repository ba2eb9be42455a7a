"""Cards (GPUs and other accelerators) of nodes, the shares of them that pods ask for, and who sits on them.

Compute is counted in thousandths of one card (milli), memory in MiB, pods on a card in slots. 0 MiB means: not known (of a card),
not said (of a share).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, TypeAlias

#: One card, in thousandths.
WHOLE: Final = 1000

#: What the name of a share is for, as neighbours see it.
AFFINITY: Final = "affinity "
ANTI_AFFINITY: Final = "anti-affinity "
EXCLUSION: Final = "exclusion "
#: and in thousandths how much it may be slowed by them
SLOWDOWN: Final = "max-slowdown "

#: How a card is divided, and how a share is given. "" of a card: nothing divides it, or nothing says so; "" of a share: in any
#: way. "Software": a library in the pod bounds it (HAMi); "Claim": by a ResourceClaim (DRA), which counts its capacity.
Mode: TypeAlias = Literal["", "Software", "TimeSlice", "MPS", "MIG", "Claim"]

#: The distance of two cards by the link between them: NVLink, one PCIe switch, (3: several), a host bridge, one NUMA node, the
#: system.
NVLINK: Final = 1
PIX: Final = 2
PHB: Final = 4
NODE: Final = 5
SYS: Final = 6


@dataclass(frozen=True, slots=True)
class Profile:
    """A way to cut a MIG instance out of a card; instances of all profiles share the card's slices."""

    name: str  #: such as 1g.10gb
    slices: int  #: compute slices that an instance takes
    memory: int  #: MiB of an instance
    most: int  #: instances of this profile alone that a card takes
    memory_slices: int = 0  #: memory slices that an instance takes; 0 = not known


@dataclass(frozen=True, slots=True)
class Device:
    """A card of a node."""

    node: str
    #: unique in the cluster; where `named` is False it is made up of node and number
    uuid: str
    #: its number on the node, from 0; -1 = not known
    index: int = -1
    #: the product, such as NVIDIA-A100-SXM4-80GB; "" = not known
    model: str = ""
    #: thousandths of compute that can be given; more than 1000 where a card may be promised more than once
    milli: int = WHOLE
    #: MiB; 0 = not known: then no share of memory fits, and no share whose compute follows from memory
    memory: int = 0
    #: pods that may sit on it at a time; 0 = any number (who asks for whole cards asks for exclusive ones)
    slots: int = 0
    #: NUMA node; -1 = not known
    numa: int = -1
    #: uuid of another card of the node -> distance, NVLINK … SYS; a card that is not listed is SYS away
    links: Mapping[str, int] = field(default_factory=dict[str, int])
    #: False: it has failed, or is kept free (a device taint): nothing new goes there
    healthy: bool = True
    mode: Mode = ""
    profiles: tuple[Profile, ...] = ()
    #: the resource by which nodes offer it, such as nvidia.com/gpu; "" = only claims get it
    resource: str = ""
    #: driver/pool/device of the ResourceSlice that publishes it; "" = none does
    slice: str = ""
    #: False: counted from node labels: which card a pod gets can be neither chosen nor seen
    named: bool = True

    @property
    def sliced(self) -> bool:
        """Whether the card's node offers it in equal slices, one per slot."""
        return self.mode in ("TimeSlice", "MPS") and self.slots > 0


@dataclass(frozen=True, slots=True)
class Part:
    """An amount of one card."""

    milli: int = 0
    memory: int = 0  #: MiB


@dataclass(frozen=True, slots=True)
class Share:
    """What a pod asks of each of `count` cards. A pod that asks in several places has several shares."""

    count: int = 1
    #: these are different cards; False: it asks `count` times, and one card may be found several times
    apart: bool = True
    #: it asks for whatever one unit of `resource` is where it lands: a whole card, or a slice of one; `milli` is not looked at
    unit: bool = False
    #: thousandths of the compute of each; 0 = none is set aside for it, it uses what others leave
    milli: int = WHOLE
    #: thousandths that it uses at most where others leave them; 0 = `milli`
    limit: int = 0
    #: MiB of each; 0 = not said in MiB
    memory: int = 0
    #: thousandths of the memory of each; 0 = not said so
    memory_milli: int = 0
    #: its compute is its part of the memory of the card that it gets (`milli` is not looked at)
    by_memory: bool = False
    #: nobody else sits on these cards
    exclusive: bool = False
    #: the MIG profile of the instance that it asks for: one of `Device.profiles` by name; "" = no instance
    profile: str = ""
    mode: Mode = ""
    #: the resource by which it is asked for, such as nvidia.com/gpu: only cards that are offered by it; "" = any
    resource: str = ""
    #: only these cards, by uuid (empty = any); and not these
    cards: frozenset[str] = frozenset()
    not_cards: frozenset[str] = frozenset()
    #: only cards whose model contains one of these, in any case (empty = any); and none of these
    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    #: it sits on a card with others of this name if there is one; never with others of this name; only with those of this name
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    #: where a policy wants a margin: MiB that the pod takes beyond what it asks for, and thousandths of the card's memory that
    #: stay free beside it and its neighbours
    beyond: int = 0
    headroom: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The share's names as its neighbours see them, each after what it is for."""
        found = ((AFFINITY, self.affinity), (ANTI_AFFINITY, self.anti_affinity), (EXCLUSION, self.exclusion))
        return tuple(f"{what}{name}" for what, name in found if name)

    def alone_on(self, device: Device) -> bool:
        """Whether nobody else sits on the card that the share gets."""
        return self.exclusive or (self.unit and not device.sliced)

    def of(self, device: Device) -> Part | None:
        """What it takes of one card; None if it never fits there, whoever else sits on it. Filters by name, model, resource and
        health are not looked at.
        """
        if self.profile:
            found = next((each for each in device.profiles if each.name == self.profile), None)
            return None if found is None else Part(_part(WHOLE, 1, found.most), found.memory)
        if self.memory and not device.memory:
            return None
        if self.unit and device.sliced:
            slice_ = Part(_part(device.milli, 1, device.slots), device.memory // device.slots)
            return slice_ if self.memory <= slice_.memory else None
        if self.unit or self.exclusive:
            return Part(device.milli, device.memory) if self.memory <= device.memory else None
        memory = max(self.memory, _part(device.memory, self.memory_milli, WHOLE))
        if self.by_memory:
            if not device.memory:
                return None
            milli = _part(WHOLE, memory, device.memory)
        else:
            milli = self.milli
        if milli > device.milli or memory > device.memory:
            return None
        return Part(milli, min(device.memory, memory + self.beyond) if memory else 0)


@dataclass(frozen=True, slots=True)
class CardSeat:
    """What one pod of an admitted gang takes of one card; the card as `cards.card_amounts.name_of` names it."""

    card: str
    milli: int = 0
    memory: int = 0  #: MiB
    #: nobody else sits there
    alone: bool = False
    #: the MIG profile of its instance
    profile: str = ""


@dataclass(frozen=True, slots=True)
class CardUse:
    """What a pod that runs takes of one card, as the cluster says."""

    pod: str  #: namespace/name
    uuid: str
    part: Part
    #: the key of its Workload; "" = a pod of others
    workload: str = ""
    exclusive: bool = False
    profile: str = ""
    #: see `Share.names`
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeCards:
    """The whole truth about the cards of one node: a fact, its key is the node's name. A node without inventory has none."""

    node: str
    devices: tuple[Device, ...] = ()
    uses: tuple[CardUse, ...] = ()
    #: a card that is not listed may be there all the same: its driver is still publishing, or nobody says which cards these are
    partial: bool = False


def _part(whole: int, amount: int, of: int) -> int:
    """`amount` / `of` of the whole, rounded up."""
    return -(-whole * amount // max(1, of))


# --- accelerators -----------------------------------------------------------------------------------------------------
# Which resources are accelerators: what "GPUs" means in sizes, shares, forecasts and tables.


#: By name, since Kubernetes has no kinds of devices. Parts of a shared GPU (memory, cores, percent, thousandths) are not counted
#: again; network cards, licenses and the like are not accelerators.
_NAMES = re.compile(
    r"gpu(?![-_.]?(?:mem|core|percent|milli))|/(?:mig-|[tnh]pu|mlu|dcu|gaudi|neuron|i915|xe$|ascend)|furiosa\.ai/|rebellions\.ai/",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def is_accelerator(resource: str) -> bool:
    """Whether a resource of this name counts as an accelerator."""
    return _NAMES.search(resource) is not None


def accelerators(amounts: Mapping[str, int]) -> int:
    """The number of accelerators among these amounts by resource. Those of cards (`engine.cards`), whose names have a sign that
    those of resources have not, are none.
    """
    return sum(amount for resource, amount in amounts.items() if "#" not in resource and is_accelerator(resource))
