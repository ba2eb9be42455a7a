"""What shares count for in quota: thousandths of cards, and bytes of their memory.

A flavor may have cards of several sizes, and quota is counted before a card is chosen. So a share counts for what it takes of
the card where that is most. Where nothing is known of cards, parts of unknown size count as whole cards, and memory that is not
said in bytes as more than any quota has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.api import names
from gangline.api.sharing import mig, numbers
from gangline.api.sharing.dra import CapacityPolicy, memory_consumed
from gangline.engine.model import UNLIMITED, Device, Part, Requests, Share
from gangline.engine.model.devices import WHOLE

_MIB: Final = 1 << 20
#: MiB of a card of unknown size
_NOT_KNOWN: Final = numbers.MOST_MEMORY


@dataclass(frozen=True, slots=True)
class CardSizes:
    """What is known of the cluster's cards. `smallest`, `largest`: MiB of a card, 0 = not known; `units`: resource -> what one
    unit of it is at most; `policies`: how cards that are claimed round requests for their memory.
    """

    smallest: int = 0
    largest: int = 0
    units: Mapping[str, Part] = field(default_factory=dict[str, Part])
    policies: tuple[CapacityPolicy, ...] = ()


#: nothing is known of cards
UNKNOWN: Final = CardSizes()


def sizes_of(devices: Iterable[Device], policies: Iterable[CapacityPolicy] = ()) -> CardSizes:
    smallest = largest = 0
    units: dict[str, Part] = {}
    for device in devices:
        if device.memory:
            smallest = min(smallest or device.memory, device.memory)
            largest = max(largest, device.memory)
        for name, size in _units(device):
            known = units.get(name, Part())
            units[name] = Part(max(known.milli, size.milli), max(known.memory, size.memory))
    return CardSizes(smallest, largest, units, tuple(sorted(set(policies), key=repr)))


def _units(device: Device) -> Iterable[tuple[str, Part]]:
    if device.resource and not device.resource.startswith(mig.PREFIX):
        taken = Share(unit=True).of(device)
        if taken is not None:
            yield device.resource, taken
    for profile in device.profiles:
        taken = Share(profile=profile.name).of(device)
        if taken is not None:
            yield f"{mig.PREFIX}{profile.name}", taken


def charged(shares: Iterable[Share], sizes: CardSizes, explained: Iterable[str] = ()) -> Requests:
    """What one pod with these shares counts for besides its requests; nothing if it asks for none.

    `explained` are resources that the configuration transforms: it says what they count for.
    """
    milli = memory = 0
    left_out = frozenset(explained)
    asked = [share for share in shares if share.resource not in left_out]
    for share in asked:
        each, mebibytes = _milli(share, sizes), _memory(share, sizes)
        milli += share.count * each
        memory += share.count * mebibytes * _MIB
    return {names.GPU_MILLI: min(UNLIMITED, milli), names.GPU_MEM: min(UNLIMITED, memory)} if asked else _NOTHING


def _milli(share: Share, sizes: CardSizes) -> int:
    """Thousandths of each card that the share counts as."""
    if share.unit or share.profile:
        known = sizes.units.get(share.resource)
        return known.milli if known is not None else WHOLE
    if share.exclusive:
        return WHOLE
    if share.milli and not share.by_memory:
        return share.milli
    if share.memory:
        return min(WHOLE, -(-WHOLE * share.memory // sizes.smallest)) if sizes.smallest else WHOLE
    return share.memory_milli or WHOLE


def _memory(share: Share, sizes: CardSizes) -> int:
    """MiB of each card."""
    if share.unit or share.profile:
        known = sizes.units.get(share.resource, Part())
        return known.memory or mig.nominal_memory(share.profile) or sizes.largest or _NOT_KNOWN
    if share.mode == "Claim" and not share.exclusive:
        return memory_consumed(share.memory, sizes.policies) or sizes.largest or _NOT_KNOWN
    if share.memory:
        return share.memory
    return -(-sizes.largest * (share.memory_milli or WHOLE) // WHOLE) or _NOT_KNOWN


_NOTHING: Final[Requests] = {}
