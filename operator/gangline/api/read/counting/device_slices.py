"""ResourceSlices (resource.k8s.io/v1): the devices that claims can get, and what these consume.

Devices are kept as JSON, which costs a tenth of the memory of objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import orjson

from gangline.api import quantity
from gangline.api.read.reading import Json, ParseError, child, items, needed, number, root
from gangline.api.selecting import DeviceGroup
from gangline.api.sharing import CapacityPolicy
from gangline.api.unchecked import listing, mapping
from gangline.engine.model import UNLIMITED

#: devices of one slice: the API server takes 128
_MOST_DEVICES: Final = 512
#: what selectors and sources look at
_KEPT: Final = ("name", "attributes", "capacity", "allowMultipleAllocations", "consumesCounters")
#: slices whose amounts are kept
_MOST_KNOWN: Final = 16384


@dataclass(frozen=True, slots=True)
class DeviceSlice:
    """`generation`: a pool consists of its slices of the newest one, and is complete with `count` of them. `group`: its driver
    and devices.
    """

    pool: str
    generation: int
    count: int
    group: DeviceGroup
    size: int = 0

    @property
    def driver(self) -> str:
        return self.group.driver


def resource_slice(obj: Any) -> DeviceSlice:
    """Read a ResourceSlice. Raises ParseError."""
    spec = child(root(obj), "spec", "")
    pool = child(spec, "pool", "spec")
    devices = items(spec, "devices", "spec")
    if len(devices) > _MOST_DEVICES:
        raise ParseError("spec.devices", f"a list of at most {_MOST_DEVICES} devices is read")
    kept = [{key: device[key] for key in _KEPT if device.get(key) is not None} for device in devices]
    try:
        group = DeviceGroup(needed(spec, "driver", "spec"), orjson.dumps(kept))
    except orjson.JSONEncodeError as error:
        raise ParseError("spec.devices", f"is not JSON: {error}") from None
    return DeviceSlice(
        needed(pool, "name", "spec.pool"),
        number(pool, "generation", "spec.pool"),
        number(pool, "resourceSliceCount", "spec.pool"),
        group,
        len(devices),
    )


def complete(slices: Iterable[DeviceSlice]) -> list[DeviceSlice]:
    """The slices of one driver that are of complete pools, in their newest generations; by pool."""
    pools: dict[str, list[DeviceSlice]] = {}
    for each in slices:
        there = pools.setdefault(each.pool, [each])
        if each is not there[0] and each.generation == there[0].generation:
            there.append(each)
        elif each.generation > there[0].generation:
            pools[each.pool] = [each]
    return [each for _, there in sorted(pools.items()) if len(there) == there[0].count for each in there]


def names(group: DeviceGroup) -> list[str]:
    """The names of the devices of a group."""
    return [str(device.get("name", "")) for device in _devices(group)]


def _devices(group: DeviceGroup) -> list[Json]:
    return cast("list[Json]", orjson.loads(group.devices))


@lru_cache(maxsize=_MOST_KNOWN)
def counters(group: DeviceGroup, name: str, resource: str) -> tuple[int | None, ...]:
    """How much of the counter each device consumes, over all counter sets the most, in units of the resource; None: nothing."""
    return tuple(max(_consumed(device, name, resource), default=None) for device in _devices(group))


def _consumed(device: Json, name: str, resource: str) -> list[int]:
    sets = listing(device.get("consumesCounters"))
    rows = (mapping(mapping(each).get("counters")).get(name) for each in sets)
    found = (_size(row, "value", resource) for row in rows if row is not None)
    return [size for size in found if size is not None]


@dataclass(frozen=True, slots=True)
class Dimension:
    """A capacity of a device. `usual`: what is consumed where a request does not say how much; `policy`: how requests are
    rounded.
    """

    usual: int
    policy: CapacityPolicy

    def consumed(self, asked: int | None) -> int | None:
        """How much of the dimension a request consumes; None: it cannot give so much. `asked`: None = the request does not say
        how much.
        """
        return self.policy.consumed(self.usual if asked is None else asked)


@lru_cache(maxsize=_MOST_KNOWN)
def capacities(group: DeviceGroup, name: str, resource: str) -> tuple[Dimension | None, ...]:
    """The capacity of each device, in units of the resource; None: it has none of this name."""
    return tuple(_dimension(mapping(device.get("capacity")).get(name), resource) for device in _devices(group))


def _dimension(row: Any, resource: str) -> Dimension | None:
    value, policy = _size(row, "value", resource), mapping(row).get("requestPolicy")
    if value is None:
        return None
    default = _size(policy, "default", resource)
    return Dimension(value if default is None else default, _policy(policy, resource))


def _policy(policy: Any, resource: str) -> CapacityPolicy:
    rows, valid = listing(mapping(policy).get("validValues")), mapping(policy).get("validRange")
    values = [_amount(row, resource) for row in rows]
    most, least = _size(valid, "max", resource), _size(valid, "min", resource)
    return CapacityPolicy(
        most=UNLIMITED if most is None else most,
        values=tuple(value for value in values if value is not None),
        least=least,
        step=_size(valid, "step", resource) or 0,
    )


def _size(row: Any, key: str, resource: str) -> int | None:
    return _amount(mapping(row).get(key), resource)


def _amount(written: Any, resource: str) -> int | None:
    """The quantity that is written; None if it is none. A negative amount counts as 0."""
    try:
        return None if written is None else max(0, quantity.parse(written, resource))
    except quantity.QuantityError:
        return None
