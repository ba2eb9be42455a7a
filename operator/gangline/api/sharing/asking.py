"""What a pod asks of cards, in whatever words, and what that counts for in quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gangline.api import names
from gangline.api.sharing import numbers
from gangline.api.sharing.device_shares import CapacityPolicy, DeviceAsk, claim_shares, memory_consumed
from gangline.api.sharing.share_annotations import (
    ShareFault,
    asks_for_share,
    neighbour_faults,
    own_shares,
    share_faults,
    variable_faults,
    with_names,
)
from gangline.api.sharing.vendor_shares import (
    MIG_PREFIX,
    container_doubts,
    hami_shares,
    kai_shares,
    mig_shares,
    name_doubts,
    nominal_memory,
    pod_doubts,
    requests_cards,
    tencent_shares,
    whole_cards,
)
from gangline.engine.model import UNLIMITED, Device, Part, Requests, Share
from gangline.engine.model.devices import WHOLE

# --- puts together what a pod asks of cards, in whatever words: resources, annotations and claims ---------------------


@dataclass(frozen=True, slots=True)
class PodAsk:
    """What a pod asks with: the requests of each of its containers that runs at the same time, the annotations of its template,
    and what its claims ask for.
    """

    containers: Sequence[Requests]
    annotations: Mapping[str, object] = field(default_factory=dict[str, object])
    claims: Sequence[DeviceAsk] = ()


def shares(ask: PodAsk) -> tuple[Share, ...]:
    return with_names(ask.annotations, own_shares(ask.annotations, _in_other_words(ask)))


def faults(ask: PodAsk) -> list[ShareFault]:
    """What contradicts itself in Gangline's own words; what others would not read counts as whole cards instead."""
    words = ask.annotations
    others = _in_other_words(ask) if asks_for_share(words) or names.GPU_VISIBLE in words else ()
    return share_faults(words, others) + neighbour_faults(words) + variable_faults(words, others)


def doubts(ask: PodAsk, *, claims: bool = False) -> list[str]:
    """What its author should know, and what refuses nothing. `claims`: it has some, and `ask` does not say what they ask for."""
    requested = any(map(requests_cards, ask.containers))
    of_containers = (said for requests in ask.containers for said in container_doubts(requests))
    beside = () if claims else name_doubts(ask.annotations, shares(ask))
    return list(dict.fromkeys((*pod_doubts(ask.annotations, requested), *of_containers, *beside)))


def _in_other_words(ask: PodAsk) -> tuple[Share, ...]:
    found = kai_shares(ask.annotations) + claim_shares(ask.claims)
    for requests in ask.containers:
        found += _container_shares(requests, ask.annotations)
    return found


def _container_shares(requests: Requests, annotations: Mapping[str, object]) -> tuple[Share, ...]:
    found = hami_shares(requests, annotations)
    plain = {
        name: amount
        for name, amount in requests.items()
        if not (found and name == names.HAMI_GPU) and not name.startswith(MIG_PREFIX) and name != names.TENCENT_CORES
    }
    return (
        *found,
        *mig_shares(requests),
        *tencent_shares(requests),
        *whole_cards(plain),
    )


# --- what shares count for in quota: thousandths of cards, and bytes of their memory ----------------------------------
#
# A flavor may have cards of several sizes, and quota is counted before a card is chosen. So a share counts for what it takes
# of the card where that is most. Where nothing is known of cards, parts of unknown size count as whole cards, and memory that
# is not said in bytes as more than any quota has.


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
    if device.resource and not device.resource.startswith(MIG_PREFIX):
        taken = Share(unit=True).of(device)
        if taken is not None:
            yield device.resource, taken
    for profile in device.profiles:
        taken = Share(profile=profile.name).of(device)
        if taken is not None:
            yield f"{MIG_PREFIX}{profile.name}", taken


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
        return known.memory or nominal_memory(share.profile) or sizes.largest or _NOT_KNOWN
    if share.mode == "Claim" and not share.exclusive:
        return memory_consumed(share.memory, sizes.policies) or sizes.largest or _NOT_KNOWN
    if share.memory:
        return share.memory
    return -(-sizes.largest * (share.memory_milli or WHOLE) // WHOLE) or _NOT_KNOWN


_NOTHING: Final[Requests] = {}
