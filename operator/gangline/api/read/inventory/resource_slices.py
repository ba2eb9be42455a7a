"""ResourceSlices (resource.k8s.io v1, and v1beta1 with its attributes under `basic`): the cards among the devices of a driver.

MIG devices are instances of their parent: a card with the profiles that its driver publishes. A device whose driver is of no
accelerator (a network card) is no card.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from gangline.api import quantity
from gangline.api.read.reading import Json, child, flag, items, needed, number, root, text
from gangline.api.sharing import numbers
from gangline.api.sharing.device_shares import CapacityPolicy
from gangline.engine.model import Device, Profile, is_accelerator
from gangline.engine.model.devices import NODE, PHB, SYS, WHOLE

#: devices of one slice that are read: the API server takes no more
_MOST_DEVICES: Final = 128
#: values of a policy that are read: the API server takes no more
_MOST_VALUES: Final = 10
#: characters of a text that is kept
_LONGEST: Final = 253
_MIB: Final = 1 << 20
_KEPT_FREE: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """`generation`: of several slices of one pool only those of the newest generation hold, once all `count` are there; 0 = it
    does not say how many. `node`: of all its devices; "" = they say themselves, or it has no cards. `devices`: by node.

    `parts`: driver/pool/device of a MIG instance -> uuid of its card, and its profile. `policies`: of the cards' memory.
    """

    pool: str  #: driver/pool
    generation: int = 0
    count: int = 0
    node: str = ""
    devices: tuple[Device, ...] = ()
    parts: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    policies: frozenset[CapacityPolicy] = frozenset()


@dataclass(frozen=True, slots=True)
class _Published:
    """One device as it is published."""

    node: str
    key: str  #: driver/pool/device
    name: str
    attributes: Mapping[str, str | int | bool]
    capacity: Mapping[str, Any]
    shared: bool
    healthy: bool
    policy: Json  #: of its memory

    def text(self, attribute: str) -> str:
        value = self.attributes.get(attribute)
        return value[:_LONGEST] if isinstance(value, str) else ""

    def whole(self, attribute: str) -> int:
        value = self.attributes.get(attribute)
        return value if type(value) is int and 0 <= value < 1 << 16 else -1

    def mebibytes(self) -> int:
        return self._amount("memory") // _MIB

    def milli(self) -> int:
        """What can be given of its compute, where its driver counts it in thousandths or in percent."""
        if "milli" in self.capacity:
            return min(WHOLE * WHOLE, self._amount("milli"))
        return min(WHOLE * WHOLE, 10 * self._amount("cores")) if "cores" in self.capacity else WHOLE

    def memory_policy(self) -> CapacityPolicy:
        """How requests may consume the memory of the device, in bytes."""
        valid = cast("dict[str, Any]", found) if isinstance(found := self.policy.get("validRange"), dict) else {}
        rows = cast("list[Any]", listed) if isinstance(listed := self.policy.get("validValues"), list) else []
        most, total = _size(valid.get("max")), self._amount("memory")
        return CapacityPolicy(
            most=min(most, total) if most else total,
            default=_size(self.policy.get("default")),
            values=tuple(sorted(_size(row) for row in rows[:_MOST_VALUES])),
            least=_size(valid["min"]) if valid.get("min") is not None else None,
            step=_size(valid.get("step")),
        )

    def _amount(self, name: str) -> int:
        return _size(self.capacity.get(name))


def _size(written: Any) -> int:
    """A quantity of zero or more; 0 if it is none."""
    try:
        found = quantity.parse(written or 0)
    except quantity.QuantityError:
        return 0
    return max(0, min(numbers.MOST_MEMORY * _MIB, found))


def resource_slice(obj: Any) -> ResourceSlice:
    """Read the cards that a ResourceSlice publishes. Raises ParseError."""
    spec = child(root(obj), "spec", "")
    driver, pool = needed(spec, "driver", "spec"), child(spec, "pool", "spec")
    name = f"{driver}/{needed(pool, 'name', 'spec.pool')}"
    generation = number(pool, "generation", "spec.pool")
    count, node = number(pool, "resourceSliceCount", "spec.pool"), text(spec, "nodeName", "spec")
    if not is_accelerator(f"/{driver}"):
        return ResourceSlice(name, generation, count)
    published = list(_published(spec, name))
    parts = {each.key: (each.text("parentUUID"), each.text("profile")) for each in published if _is_part(each)}
    cards = [_card(each) for each in published if not _is_part(each)]
    policies = frozenset(each.memory_policy() for each in published if each.shared and "memory" in each.capacity)
    devices = tuple(_linked([*_divided(cards, published)], published))
    return ResourceSlice(name, generation, count, node, devices, parts, policies)


def _published(spec: Json, pool: str) -> Iterator[_Published]:
    node = text(spec, "nodeName", "spec")
    for i, row in enumerate(items(spec, "devices", "spec")[:_MOST_DEVICES]):
        path = f"spec.devices[{i}]"
        body = {**row, **child(row, "basic", path)}
        name, where = needed(row, "name", path), text(body, "nodeName", path) or node
        if not where:
            continue  # a device of several nodes is no card of one
        yield _Published(
            where,
            f"{pool}/{name}",
            name,
            {_last(key): _value(each) for key, each in child(body, "attributes", path).items()},
            {_last(key): _amount(each) for key, each in child(body, "capacity", path).items()},
            flag(body, "allowMultipleAllocations", path, False),
            not any(taint.get("effect") in _KEPT_FREE for taint in items(body, "taints", path)),
            _memory_policy(child(body, "capacity", path)),
        )


def _last(key: str) -> str:
    """A name without the domain of its driver."""
    return key.rpartition("/")[2]


def _value(attribute: Any) -> str | int | bool:
    found = cast("dict[str, Any]", attribute) if isinstance(attribute, dict) else {}
    value = next((found[kind] for kind in ("string", "int", "bool", "version") if found.get(kind) is not None), "")
    return value if isinstance(value, str | int) else ""


def _amount(capacity: Any) -> Any:
    return cast("dict[str, Any]", capacity).get("value") if isinstance(capacity, dict) else capacity


def _memory_policy(capacities: Json) -> Json:
    for key, capacity in capacities.items():
        found = cast("dict[str, Any]", capacity).get("requestPolicy") if isinstance(capacity, dict) else None
        if _last(key) == "memory" and isinstance(found, dict):
            return cast("dict[str, Any]", found)
    return {}


def _is_part(each: _Published) -> bool:
    return bool(each.text("parentUUID"))


def _card(each: _Published) -> Device:
    return Device(
        node=each.node,
        uuid=each.text("uuid") or each.key,
        index=each.whole("index"),
        model=each.text("productName") or each.text("model"),
        milli=each.milli(),
        memory=each.mebibytes(),
        slots=0 if each.shared else 1,
        numa=each.whole("numaNode") if "numaNode" in each.attributes else each.whole("numa"),
        healthy=each.healthy,
        mode="Claim",
        slice=each.key,
    )


def _divided(cards: Iterable[Device], published: Iterable[_Published]) -> Iterator[Device]:
    """Cards with the profiles of their MIG instances; a card of which only instances are published is one as well."""
    parts: dict[str, list[_Published]] = defaultdict(list)
    for each in published:
        if _is_part(each):
            parts[each.text("parentUUID")].append(each)
    for card in cards:
        found = parts.pop(card.uuid, [])
        yield replace(card, mode="MIG", slots=0, profiles=_profiles(found)) if found else card
    for uuid, found in sorted(parts.items()):
        first = found[0]
        yield Device(
            node=first.node,
            uuid=uuid,
            index=first.whole("parentIndex"),
            model=first.text("productName"),
            memory=sum(each.mebibytes() for each in found),
            healthy=any(each.healthy for each in found),
            mode="MIG",
            profiles=_profiles(found),
            slice=f"{first.key.rpartition('/')[0]}/",
        )


def _profiles(parts: Iterable[_Published]) -> tuple[Profile, ...]:
    found: dict[str, _Published] = {}
    counts: Counter[str] = Counter()
    for each in parts:
        if name := each.text("profile"):
            found[name] = each
            counts[name] += 1
    return tuple(Profile(name, _slices(name), each.mebibytes(), counts[name]) for name, each in sorted(found.items()))


def _slices(profile: str) -> int:
    """The compute slices in the name of a profile, such as 3g.40gb; 0 for any other name."""
    return numbers.count(profile.partition("g.")[0]) or 0


def _linked(cards: list[Device], published: Iterable[_Published]) -> Iterator[Device]:
    """The cards with the distances between those of one node: under one PCIe root, on one NUMA node, or neither."""
    roots = {each.key: each.text("pcieRoot") for each in published}
    for card in cards:
        links: dict[str, int] = {}
        for other in cards:
            if other.uuid != card.uuid and other.node == card.node:
                root_ = roots.get(card.slice, "")
                near = NODE if card.numa >= 0 and card.numa == other.numa else SYS
                links[other.uuid] = PHB if root_ and root_ == roots.get(other.slice) else near
        yield replace(card, links={uuid: distance for uuid, distance in links.items() if distance < SYS})
