"""The cards of all nodes as they were last published, with those who sit on them. It reads nothing anew that has not changed.

Pools of ResourceSlices: which slices of each pool hold.

A driver replaces the slices of a pool one after the other, each with a higher generation, and may delete some before it has
written the others. As for Kubernetes' allocator, a pool counts with the slices of its newest generation once all of these are
there. Until then it counts as it was when it was last complete, except that cards have failed that have by its newest slices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from gangline.api import names
from gangline.api.read import inventory, parse
from gangline.api.read.counting.gpu_shares import gpu_shares
from gangline.api.read.inventory import Allocation, ResourceSlice
from gangline.api.sharing.asking import CardSizes, sizes_of
from gangline.api.sharing.device_shares import CapacityPolicy
from gangline.api.sharing.share_annotations import names_of_pod
from gangline.engine import is_accelerator
from gangline.engine.model import CardUse, Device, NodeCards, Share
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored

_Pool: TypeAlias = tuple[ResourceSlice, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The slices that hold. On `partial` nodes there may be cards that are in none of them."""

    slices: tuple[ResourceSlice, ...] = ()
    partial: frozenset[str] = frozenset()


class SlicePools:
    def __init__(self) -> None:
        #: pool -> its slices when it was last complete
        self._complete: dict[str, _Pool] = {}

    def publish(self, slices: Iterable[ResourceSlice]) -> Published:
        """The slices of each pool that hold, given all slices as they are now, in a fixed order."""
        pools: dict[str, list[ResourceSlice]] = {}
        for each in slices:
            pools.setdefault(each.pool, []).append(each)
        self._complete = {pool: known for pool, known in self._complete.items() if pool in pools}
        found: list[ResourceSlice] = []
        partial: set[str] = set()
        for pool, there in sorted(pools.items()):
            generation = max(each.generation for each in there)
            newest = tuple(each for each in there if each.generation == generation)
            if _is_complete(newest):
                self._complete[pool] = newest
                found += newest
            elif pool in self._complete:
                found += _with_failures(self._complete[pool], newest)
            else:
                found += newest
                partial.update(device.node for each in there for device in each.devices)
                partial.update(each.node for each in there if each.node)
        return Published(tuple(found), frozenset(partial))


def _is_complete(newest: Sequence[ResourceSlice]) -> bool:
    return all(each.count in (0, len(newest)) for each in newest)


def _with_failures(known: _Pool, newest: _Pool) -> Iterable[ResourceSlice]:
    failed = {(device.node, device.uuid) for each in newest for device in each.devices if not device.healthy}
    for each in known:
        devices = (
            replace(device, healthy=False) if (device.node, device.uuid) in failed else device
            for device in each.devices
        )
        yield replace(each, devices=tuple(devices))


_ENDED = ("Succeeded", "Failed")
_ASKING = frozenset({names.KAI_FRACTION, names.KAI_MEMORY, names.GPU_SHARE, names.GPU_MEMORY, names.HAMI_POD})


@dataclass(frozen=True, slots=True)
class _Pod:
    """A bound pod that has not ended and uses cards, by its own words or by claims."""

    node: str
    shares: tuple[Share, ...]
    annotations: Mapping[str, str]
    #: KAI's groups of pods that share a card; where `keeps` is a card's uuid, it only keeps that card for its group
    groups: tuple[str, ...] = ()
    keeps: str = ""
    #: of its shares, see `Share.names`
    names: tuple[str, ...] = ()


class CardInventory:
    """The cards of all nodes. `workload_of`: the Workload that a pod was proven to belong to, "" = none."""

    def __init__(self, workload_of: Callable[[str], str]) -> None:
        self._workload_of = workload_of
        #: what nodes themselves say of their cards
        self._nodes: dict[str, tuple[Device, ...]] = {}
        #: version -> name -> slice; the newest version that has any counts
        self._slices: dict[Resource, dict[str, ResourceSlice]] = {
            kube.RESOURCE_SLICES: {},
            kube.OLD_RESOURCE_SLICES: {},
        }
        self._pools = SlicePools()
        self._published: dict[str, list[Device]] = {}
        self._partial: frozenset[str] = frozenset()
        self._parts: dict[str, tuple[str, str]] = {}
        self._policies: set[CapacityPolicy] = set()
        self._claims: dict[str, tuple[Allocation, ...]] = {}
        #: pod -> its claims
        self._claimed: dict[str, set[str]] = defaultdict(set)
        self._pods: dict[str, _Pod] = {}
        self._on: dict[str, set[str]] = defaultdict(set)
        #: node and KAI's group of pods -> the card that they share
        self._kept: dict[tuple[str, str], str] = {}
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._cards: dict[str, NodeCards] = {}
        self._stale_slices = False
        self._stale_nodes: set[str] = set()
        self._stale_uses: set[str] = set()

    # --- in; each raises ParseError, and then nothing has changed ------------------------------------------------------

    def put_node(self, name: str, obj: Stored | None) -> None:
        if obj is None:
            self._nodes.pop(name, None)
        else:
            own = inventory.own_cards(parse.node(obj))
            if self._nodes.get(name) == own:
                return
            self._nodes[name] = own
        self._stale_nodes.add(name)

    def put_slice(self, resource: Resource, name: str, obj: Stored | None) -> None:
        if obj is None:
            self._slices[resource].pop(name, None)
        else:
            found = inventory.resource_slice(obj)
            if self._slices[resource].get(name) == found:
                return
            self._slices[resource][name] = found
        self._stale_slices = True

    def put_claim(self, key: str, obj: Stored | None) -> None:
        found = () if obj is None else inventory.allocations(obj)
        if self._claims.get(key, ()) == found:
            return
        for pod in _pods_of(self._claims.pop(key, ())):
            self._note(pod)
            self._claimed[pod].discard(key)
            if not self._claimed[pod]:
                del self._claimed[pod]
        if found:
            self._claims[key] = found
        for pod in _pods_of(found):
            self._note(pod)
            self._claimed[pod].add(key)

    def put_pod(self, key: str, obj: Stored | None) -> None:
        old, new = self._pods.get(key), None if obj is None else _pod(obj)
        if old == new:
            return
        if old is not None:
            self._note(key)
            self._on[old.node].discard(key)
            if not self._on[old.node]:
                del self._on[old.node]
            for group in old.groups if old.keeps else ():
                self._kept.pop((old.node, group), None)
            del self._pods[key]
        if new is not None:
            self._pods[key] = new
            self._on[new.node].add(key)
            for group in new.groups if new.keeps else ():
                self._kept[new.node, group] = new.keeps
            self._note(key)

    def look_again(self, nodes: Iterable[str]) -> None:
        """Look again at who uses cards of these nodes: their pods may belong to other Workloads now."""
        self._stale_uses.update(node for node in nodes if node in self._on)

    def _note(self, pod: str) -> None:
        if pod in self._pods:
            self._stale_uses.add(self._pods[pod].node)

    # --- out ----------------------------------------------------------------------------------------------------------

    def refresh(self) -> tuple[list[NodeCards], bool]:
        """The nodes whose cards or their users have changed, and whether any card has come, gone or changed itself.

        A node that has no cards any more is reported once, without devices.
        """
        different = False
        if self._stale_slices:
            self._stale_nodes.update(self._published, self._partial)
            before = self._policies
            self._publish()
            self._stale_nodes.update(self._published, self._partial)
            self._stale_slices, different = False, before != self._policies
        for name in self._stale_nodes:
            different |= self._survey(name)
        stale, self._stale_nodes, self._stale_uses = self._stale_nodes | self._stale_uses, set(), set()
        return [found for name in sorted(stale) if (found := self._changed(name)) is not None], different

    def _publish(self) -> None:
        newest = self._slices[kube.RESOURCE_SLICES] or self._slices[kube.OLD_RESOURCE_SLICES]
        found = self._pools.publish(each for _, each in sorted(newest.items()))
        self._published, self._parts, self._policies = defaultdict(list), {}, set()
        self._partial = found.partial
        for each in found.slices:
            self._parts.update(each.parts)
            self._policies |= each.policies
            for device in each.devices:
                self._published[device.node].append(device)

    def _survey(self, name: str) -> bool:
        """Read the cards of a node anew. Returns whether they have changed."""
        own = self._nodes.get(name)
        found = inventory.node_devices(own, self._published.get(name, ())) if own is not None else ()
        before = self._devices.pop(name, ())
        if found:
            self._devices[name] = found
        return before != found

    def _changed(self, name: str) -> NodeCards | None:
        devices = self._devices.get(name, ())
        uses = (
            tuple(use for key in sorted(self._on.get(name, ())) for use in self._uses(key, devices)) if devices else ()
        )
        partial = bool(devices) and (name in self._partial or not any(device.named for device in devices))
        found = NodeCards(name, devices, uses, partial)
        if self._cards.get(name, NodeCards(name)) == found:
            return None
        if devices:
            self._cards[name] = found
        else:
            self._cards.pop(name, None)
        return found

    def _uses(self, key: str, devices: tuple[Device, ...]) -> tuple[CardUse, ...]:
        pod = self._pods[key]
        allocated = [
            allocation
            for claim in sorted(self._claimed.get(key, ()))
            for allocation in self._claims[claim]
            if key in allocation.pods
        ]
        workload = self._workload_of(key)
        shared = tuple(self._kept[pod.node, group] for group in pod.groups if (pod.node, group) in self._kept)
        uses = inventory.pod_uses(key, workload, pod.annotations, allocated, pod.shares, devices, self._parts, shared)
        return tuple(replace(use, names=pod.names) for use in uses) if pod.names else uses

    def of(self, node: str) -> NodeCards | None:
        """The cards of a node; None where nothing is known of them."""
        return self._cards.get(node)

    def sizes(self) -> CardSizes:
        """The sizes of all cards in the cluster."""
        devices = (device for devices in self._devices.values() for device in devices)
        return sizes_of(devices, self._policies)


def _pods_of(allocations: Iterable[Allocation]) -> set[str]:
    return {pod for allocation in allocations for pod in allocation.pods}


def _pod(obj: Stored) -> _Pod | None:
    spec, annotations = obj.spec, obj.annotations
    node = spec.get("nodeName")
    if not node or obj.status.get("phase") in _ENDED or not _uses_cards(spec, annotations):
        return None
    groups = tuple(_groups(obj.labels))
    if groups and obj.namespace in names.KAI_NAMESPACES:
        card = annotations.get(names.KAI_CARD)
        return _Pod(node, (), {}, groups, card if isinstance(card, str) else "")
    written = annotations.get(names.HAMI_POD)
    kept = {names.HAMI_POD: written} if isinstance(written, str) else {}
    named = names_of_pod(annotations, obj.namespace)
    return _Pod(node, gpu_shares(obj, spec, ()).shares, kept, groups, names=named)


def _groups(labels: Json) -> Iterator[str]:
    """KAI's groups of a pod: one label for one card, and a label each for several."""
    for key, value in labels.items():
        if key == names.KAI_GROUP or key.startswith(f"{names.KAI_GROUP}/"):
            yield value


def _uses_cards(spec: Json, annotations: Json) -> bool:
    """Whether a pod uses cards. Most pods do not."""
    if spec.get("resourceClaims") or not _ASKING.isdisjoint(annotations):
        return True
    containers = (each for part in ("containers", "initContainers") for each in spec.get(part) or ())
    amounts = ((each.get("resources") or {}).get(part) or {} for each in containers for part in ("limits", "requests"))
    return any(name == names.TENCENT_CORES or is_accelerator(name) for each in amounts for name in each)
