"""Puts together what is published of one node's cards, and what one pod takes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.read.reading import Json, ParseError, child, flag, items, needed, root, text
from gangline.api.sharing import numbers, vendor_shares
from gangline.bounded import parser
from gangline.engine.model import CardUse, Device, Mode, Node, Part, Profile, Share
from gangline.engine.model.devices import WHOLE

# --- ResourceClaims (resource.k8s.io v1, v1beta1): which devices they were given, and for which pods ------------------


#: devices, and pods, of one claim that are read: the API server takes no more
_MOST_DEVICES: Final = 32
_MOST_PODS: Final = 256


@dataclass(frozen=True, slots=True)
class Allocation:
    """A device of a claim. `consumed`: capacity by name without its domain, in engine units; empty = the whole device."""

    device: str  #: driver/pool/device
    pods: tuple[str, ...]  #: namespace/name of those that may use it
    consumed: Mapping[str, int] = field(default_factory=dict[str, int])


def allocations(obj: Any) -> tuple[Allocation, ...]:
    """Read what a ResourceClaim has been allocated. Raises ParseError."""
    namespace = needed(child(root(obj), "metadata", ""), "namespace", "metadata")
    status = child(obj, "status", "")
    pods = tuple(
        f"{namespace}/{needed(row, 'name', f'status.reservedFor[{i}]')}"
        for i, row in enumerate(items(status, "reservedFor", "status")[:_MOST_PODS])
        if row.get("resource") == "pods"
    )
    devices = child(child(status, "allocation", "status"), "devices", "status.allocation")
    found: list[Allocation] = []
    for i, row in enumerate(items(devices, "results", "status.allocation.devices")[:_MOST_DEVICES]):
        path = f"status.allocation.devices.results[{i}]"
        if flag(row, "adminAccess", path, False):
            continue  # it looks at what others use
        key = "/".join(needed(row, part, path) for part in ("driver", "pool", "device"))
        found.append(Allocation(key, pods, _consumed(row, path)))
    return tuple(found) if pods else ()


def _consumed(row: Json, path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in child(row, "consumedCapacity", path):
        written = text(child(row, "consumedCapacity", path), name, f"{path}.consumedCapacity")
        try:
            found[name.rpartition("/")[2]] = max(0, quantity.parse(written))
        except quantity.QuantityError:
            continue  # the API server has validated it
    return found


# --- hami nodes -------------------------------------------------------------------------------------------------------
#
# HAMi's annotations: the cards of a node (`hami.io/node-nvidia-register`), and what a pod got of which card
# (`hami.io/vgpu-devices-allocated`).
#
# Two forms of the first are in use: JSON, and older rows of nine or seven fields (uuid, pods, MiB, percent of compute, model,
# NUMA node, health, number, mode), each ended by a colon.


#: characters of an annotation, its cards, and levels of its JSON
_LONGEST: Final = 131_072
_MOST: Final = 256
_DEEPEST: Final = 6
_MODES: Final[Mapping[str, Mode]] = {"hami-core": "Software", "mig": "MIG", "mps": "MPS"}
_TRUE: Final = frozenset({"true", "True", "TRUE", "t", "T", "1"})


def _too_long(written: str) -> ParseError:
    return ParseError(names.HAMI_NODE, f"is longer than {_LONGEST} characters")


@parser(_LONGEST, refuse=_too_long, worst=("a,1,1,1,m,0,true:", ":", ",", "[", '[{"id":"a"},', "9"))
def hami_cards(written: str, node: str) -> tuple[Device, ...]:
    """Read the cards of a node from HAMi's annotation. Raises ParseError."""
    rows = _from_json(written) if written.lstrip().startswith("[") else _from_text(written)
    return tuple(_card(node, row) for row in rows)


def _from_json(written: str) -> Iterator[Mapping[str, Any]]:
    try:
        found = bounded.load_json(written, most_bytes=4 * _LONGEST, most_depth=_DEEPEST)
    except bounded.BadJsonError as error:
        raise ParseError(names.HAMI_NODE, str(error)) from None
    for row in cast("list[Any]", found)[:_MOST]:
        if not isinstance(row, dict):
            raise ParseError(names.HAMI_NODE, "must be a list of cards")
        yield cast("dict[str, Any]", row)


def _from_text(written: str) -> Iterator[Mapping[str, Any]]:
    for row in written.split(":", _MOST)[:_MOST]:
        fields = row.strip().split(",", 9)
        if fields == [""]:
            continue
        if len(fields) not in (7, 9):
            raise ParseError(names.HAMI_NODE, f"{bounded.shown(row)} has not the 7 or 9 fields of a card")
        keys = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")
        yield dict(zip(keys, fields, strict=False)) | {"health": fields[6] in _TRUE}


def _card(node: str, row: Mapping[str, Any]) -> Device:
    uuid = row.get("id")
    if not isinstance(uuid, str) or not 0 < len(uuid) <= names.LONGEST_UUID:
        raise ParseError(names.HAMI_NODE, "every card needs an id")
    model, mode = row.get("type"), row.get("mode")
    return Device(
        node=node,
        uuid=uuid,
        index=_number(row, "index"),
        model=model[: names.LONGEST_UUID] if isinstance(model, str) else "",
        milli=_number(row, "devcore", WHOLE) * 10,
        memory=_number(row, "devmem", numbers.MOST_MEMORY),
        slots=_number(row, "count"),
        numa=_number(row, "numa"),
        healthy=row.get("health") is True,
        mode=_MODES.get(mode, "") if isinstance(mode, str) else "Software",
        profiles=tuple(_profiles(row.get("migProfiles"))),
        resource=names.HAMI_GPU,
    )


def _profiles(value: Any) -> Iterator[Profile]:
    for row in cast("list[Any]", value)[:_MOST] if isinstance(value, list) else ():
        found = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        name, places = found.get("name"), found.get("placements")
        if isinstance(name, str) and len(name) <= names.LONGEST_UUID and isinstance(places, list):
            memory = _number(found, "memoryMB", numbers.MOST_MEMORY)
            yield Profile(name, _number(found, "sliceCount"), memory, len(cast("list[Any]", places)))


def _number(row: Mapping[str, Any], key: str, most: int = 9999) -> int:
    """A whole number from 0, which may be left out and then is 0."""
    value = row.get(key, 0)
    found = bounded.whole(value) if isinstance(value, str) else value if type(value) is int else None
    if found is None or not 0 <= found <= most:
        raise ParseError(names.HAMI_NODE, f"{key} {bounded.shown(value)} is not a whole number from 0 to {most}")
    return found


@parser(_LONGEST, instead=(), worst=("a,NVIDIA,1,1:;", ":", ";", ","))
def allocated(written: str) -> tuple[tuple[str, Part], ...]:
    """What each container got of which card, by uuid; rows that HAMi would not read are left out."""
    found: list[tuple[str, Part]] = []
    for row in written.replace(";", ":").split(":"):
        fields = row.strip().split(",", 4)
        if len(fields) < 4 or not 0 < len(fields[0]) <= names.LONGEST_UUID:
            continue
        memory, percent = bounded.whole(fields[2]), bounded.whole(fields[3])
        if memory is not None and percent is not None and len(found) < _MOST:
            found.append((fields[0], Part(min(percent, 100) * 10, min(memory, numbers.MOST_MEMORY))))
    return tuple(found)


# --- node labels ------------------------------------------------------------------------------------------------------
#
# Labels of GPU feature discovery: how many cards a node has, of which model and size, and how its plugin shares them out.
#
# They tell neither which card is which nor which one has failed: a node that offers fewer units than its cards have has as
# many cards fewer.


_GPU: Final = "nvidia.com/gpu"
_SHARED: Final = "nvidia.com/gpu.shared"
_STRATEGIES: Final[Mapping[str, Mode]] = {"time-slicing": "TimeSlice", "mps": "MPS"}


def labelled_cards(node: Node) -> tuple[Device, ...]:
    count = min(_MOST, _label_number(node, f"{_GPU}.count"))
    memory = min(numbers.MOST_MEMORY, _label_number(node, f"{_GPU}.memory"))
    model = node.labels.get(f"{_GPU}.product", "").removesuffix("-SHARED")
    slots = _label_number(node, f"{_GPU}.replicas")
    mode = _STRATEGIES.get(node.labels.get(f"{_GPU}.sharing-strategy", ""), "TimeSlice") if slots > 1 else ""
    profiles = _labelled_profiles(node, count)
    resource = _SHARED if node.allocatable.get(_SHARED, 0) and slots > 1 else _GPU
    if profiles:
        mode, slots, resource = "MIG", 0, f"{vendor_shares.MIG_PREFIX}{profiles[0].name}"
        working = (
            count if any(node.allocatable.get(f"{vendor_shares.MIG_PREFIX}{each.name}", 0) for each in profiles) else 0
        )
    else:
        working = min(count, -(-node.allocatable.get(resource, 0) // max(1, slots)))
    return tuple(
        Device(
            node=node.name,
            uuid=f"{node.name}/{i}",
            index=i,
            model=model,
            memory=memory,
            slots=slots if slots > 1 else 0,
            healthy=i < working,
            mode=mode,
            profiles=profiles,
            resource=resource,
            named=False,
        )
        for i in range(count)
    )


def _labelled_profiles(node: Node, count: int) -> tuple[Profile, ...]:
    """The profiles into which the cards are divided now."""
    found: dict[str, tuple[int, int, int]] = {}
    for label in node.labels:
        if label.startswith(vendor_shares.MIG_PREFIX) and label.endswith(".count"):
            base = label.removesuffix(".count")
            name = base.removeprefix(vendor_shares.MIG_PREFIX)
            instances = _label_number(node, label)
            memory = _label_number(node, f"{base}.memory") or vendor_shares.nominal_memory(name)
            if instances:
                found[name] = _label_number(node, f"{base}.slices.gi") or 1, min(numbers.MOST_MEMORY, memory), instances
    total = sum(slices * instances for slices, _, instances in found.values())
    return tuple(
        # as many as all slices that are there now would give: an instance is at least its part of them
        Profile(name, slices, memory, max(1, total // max(1, slices * max(1, count))))
        for name, (slices, memory, _) in sorted(found.items())
    )


def _label_number(node: Node, label: str) -> int:
    return min(1 << 40, bounded.whole(node.labels.get(label)) or 0)


_MIB = 1 << 20


def own_cards(node: Node) -> tuple[Device, ...]:
    """What the node itself says of its cards: by HAMi's annotation, or else by labels. Raises ParseError."""
    written = node.annotations.get(names.HAMI_NODE, "")
    return hami_cards(written, node.name) if written else labelled_cards(node)


def node_devices(own: Iterable[Device], published: Iterable[Device]) -> tuple[Device, ...]:
    """All cards of a node: its `own`, and those that ResourceSlices have `published`."""
    found = {each.uuid: each for each in published}
    by_slices = bool(found)
    for card in (each for each in own if each.named or not by_slices):
        other = found.get(card.uuid)
        found[card.uuid] = card if other is None else _together(card, other)
    return tuple(sorted(found.values(), key=lambda card: (card.index, card.uuid)))


def _together(hami: Device, other: Device) -> Device:
    """HAMi gives the card to pods, and its driver publishes it, too."""
    return replace(
        hami,
        links=other.links,
        slice=other.slice,
        healthy=hami.healthy and other.healthy,
        index=max(hami.index, other.index),
    )


def pod_uses(
    pod: str,
    workload: str,
    annotations: Mapping[str, str],
    allocated: Sequence[Allocation],
    shares: Sequence[Share],
    devices: Sequence[Device],
    parts: Mapping[str, tuple[str, str]],
    shared: Sequence[str] = (),
) -> tuple[CardUse, ...]:
    """What a pod takes of cards of its node, with an empty uuid where nobody says of which.

    HAMi's annotation, which anyone can write who creates pods, is believed of cards that HAMi gives out, and of no more than the
    pod asks for. `allocated`: what its claims got. `shares`: what it asks for. `parts`: MIG instances that can be claimed, see
    `Slice.parts`. `shared`: uuids of the cards that KAI lets it share.
    """
    of_claims = tuple(_of_claims(pod, workload, allocated, devices, parts))
    of_hami = tuple(_of_hami(pod, workload, annotations.get(names.HAMI_POD, ""), shares, devices))
    if of_hami:
        return (*of_claims, *of_hami)
    of_kai = tuple(_of_kai(pod, workload, shares, {card.uuid: card for card in devices}, shared))
    rest = [share for share in shares if not (of_kai and _is_kais(share)) and not (of_claims and share.mode == "Claim")]
    return (*of_claims, *of_kai, *_unseen(pod, workload, rest, devices))


def _of_hami(
    pod: str, workload: str, written: str, shares: Sequence[Share], devices: Sequence[Device]
) -> Iterator[CardUse]:
    asked = [share for share in shares if share.resource == names.HAMI_GPU]
    cards = {card.uuid: card for card in devices if card.named and card.resource == names.HAMI_GPU}
    rows = [(part, uuid) for uuid, part in allocated(written) if uuid in cards] if written and asked else []
    rows.sort(
        key=lambda row: (-row[0].milli, -row[0].memory, row[1])
    )  # of more rows than it asks for the largest count
    for part, uuid in rows[: sum(share.count for share in asked)]:
        most = [found for share in asked if (found := share.of(cards[uuid])) is not None]
        milli = min(part.milli, max((each.milli for each in most), default=0))
        memory = min(part.memory, max((each.memory for each in most), default=0))
        yield CardUse(pod, uuid, Part(milli, memory), workload, milli == WHOLE)


def _of_kai(
    pod: str, workload: str, shares: Sequence[Share], cards: Mapping[str, Device], shared: Sequence[str]
) -> Iterator[CardUse]:
    for share in filter(_is_kais, shares):
        for uuid in shared[: share.count]:
            part = share.of(cards[uuid]) if uuid in cards else None
            if part is not None:
                yield CardUse(pod, uuid, part, workload)


def _is_kais(share: Share) -> bool:
    """Whether the share may be one that KAI places: it asks for no resource, and for a part of a card, as only annotations do."""
    return not share.resource and not share.exclusive and not share.mode


def _of_claims(
    pod: str,
    workload: str,
    allocated: Iterable[Allocation],
    devices: Sequence[Device],
    parts: Mapping[str, tuple[str, str]],
) -> Iterator[CardUse]:
    cards = {card.slice: card for card in devices if card.slice} | {card.uuid: card for card in devices}
    for each in allocated:
        parent, profile = parts.get(each.device, ("", ""))
        card = cards.get(parent or each.device)
        if card is None:
            continue
        if profile:
            part = Share(profile=profile).of(card) or Part()
        elif each.consumed:
            part = Part(_milli(each.consumed), -(-each.consumed.get("memory", 0) // _MIB))
        else:
            part = Part(card.milli, card.memory)
        if each.pods and each.pods[0] != pod:
            part = Part()  # the first pod of a claim stands for all that share it
        yield CardUse(pod, card.uuid, part, workload, not each.consumed and not profile, profile)


def _milli(consumed: Mapping[str, int]) -> int:
    return consumed["milli"] if "milli" in consumed else 10 * consumed.get("cores", 0)


def _unseen(pod: str, workload: str, shares: Iterable[Share], devices: Sequence[Device]) -> Iterator[CardUse]:
    """What shares take of cards that are not known: on some card of the node, as much as of the card of which they would take
    most.
    """
    for share in shares:
        fitting = [(part, card) for card in devices if (part := share.of(card)) is not None and _offers(card, share)]
        if not fitting:
            continue
        part, card = max(fitting, key=lambda pair: (pair[0].milli, pair[0].memory))
        for _ in range(min(share.count, len(devices) if share.apart else share.count, _MOST_OFFERS)):
            yield CardUse(pod, "", part, workload, share.alone_on(card), share.profile)


#: cards that a pod is seen to take of one node for one share
_MOST_OFFERS = 256


def _offers(card: Device, share: Share) -> bool:
    return not share.resource or share.resource == card.resource or bool(share.profile)
