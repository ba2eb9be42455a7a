"""Puts together what is published of one node's cards, and what one pod takes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gangline.api import names
from gangline.api.read.inventory import hami_nodes, node_labels
from gangline.api.read.inventory.allocations import Allocation
from gangline.engine.model import CardUse, Device, Node, Part, Share
from gangline.engine.model.devices import WHOLE

_MIB = 1 << 20


def own_cards(node: Node) -> tuple[Device, ...]:
    """What the node itself says of its cards: by HAMi's annotation, or else by labels. Raises ParseError."""
    written = node.annotations.get(names.HAMI_NODE, "")
    return hami_nodes.cards(written, node.name) if written else node_labels.cards(node)


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
    rows = [(part, uuid) for uuid, part in hami_nodes.allocated(written) if uuid in cards] if written and asked else []
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
        for _ in range(min(share.count, len(devices) if share.apart else share.count, _MOST)):
            yield CardUse(pod, "", part, workload, share.alone_on(card), share.profile)


#: cards that a pod is seen to take of one node for one share
_MOST = 256


def _offers(card: Device, share: Share) -> bool:
    return not share.resource or share.resource == card.resource or bool(share.profile)
