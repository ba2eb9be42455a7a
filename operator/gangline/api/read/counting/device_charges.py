"""What claims of devices (DRA) count for in quota: devices of ResourceSlices, and which of them a claim can get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import orjson

from gangline.api import quantity
from gangline.api.read.counting.device_claims import CAPACITY, COUNTER, Claim, DeviceRequest, Devices, DeviceSource
from gangline.api.read.reading import Json, ParseError, child, items, needed, number, root
from gangline.api.selecting import CelVerdicts, DeviceGroup, UnavailableError, Verdict
from gangline.api.sharing.device_shares import CapacityPolicy
from gangline.api.unchecked import listing, mapping
from gangline.engine.model import UNLIMITED, Requests

# --- ResourceSlices (resource.k8s.io/v1): the devices that claims can get, and what these consume ---------------------
#
# Devices are kept as JSON, which costs a tenth of the memory of objects.


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


def device_names(group: DeviceGroup) -> list[str]:
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


# --- device charges ---------------------------------------------------------------------------------------------------
#
# What one claim counts as in the cluster as it is, or why it does not count, by Kueue's rules and in its words.
#
# First Kueue checks whether there are devices that the claim's selectors select: it looks at all slices, and takes a device
# for one request of a claim. Then it counts what such devices consume, where the DeviceClass has sources: it looks at complete
# pools, and each device of a request counts as the one that consumes most.


_INTERNAL: Final = "Internal error"
_INVALID: Final = 'Invalid value: "null"'
_CLASS_SELECTOR: Final = "DeviceClass selector"
_REQUEST_SELECTOR: Final = "request selector"
#: whether a device is selected, or the number of the expression that cannot be evaluated for it, and why
_Found: TypeAlias = bool | tuple[int, str]
#: characters of an expression that a message quotes
_SHOWN: Final = 256


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """`where`: the path within the claim; `kind` and `words` as in Kueue's message."""

    where: str
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Charge:
    """What a claim counts as. Faults in the order in which Kueue looks for them: `first` the claim itself and its selectors,
    then its `counters`, then its `capacities`. A charge with `first` has no amounts.
    """

    amounts: Requests = field(default_factory=dict[str, int])
    first: tuple[DeviceFault, ...] = ()
    counters: tuple[DeviceFault, ...] = ()
    capacities: tuple[DeviceFault, ...] = ()
    #: selectors could not be evaluated yet
    postponed: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDevices:
    """`slices` by name, `classes`: DeviceClass -> its selectors."""

    slices: Mapping[str, DeviceSlice]
    classes: Mapping[str, tuple[str, ...]]
    verdicts: CelVerdicts


class _FaultError(Exception):
    def __init__(self, where: str, kind: str, words: str) -> None:
        super().__init__(words)
        self.fault = DeviceFault(where, kind, words)


def charge(claim: Claim, devices: Devices, cluster: ClusterDevices) -> Charge:
    try:
        return _charge(claim, devices, cluster)
    except UnavailableError as error:
        return Charge(first=(DeviceFault("", _INTERNAL, str(error)),), postponed=True)


def _charge(claim: Claim, devices: Devices, cluster: ClusterDevices) -> Charge:
    if fault := _malformed(claim, cluster.verdicts):
        return Charge(first=(fault,))
    if first := tuple(_unsatisfied(claim, devices, cluster)):
        return Charge(first=first)
    total: dict[str, int] = {}
    for request in claim.counted:
        if not devices.sources.get(request.device_class) and (name := devices.resources.get(request.device_class)):
            _add(total, name, request.count)
    counters, capacities = (_consume(kind, claim, devices, cluster, total) for kind in (COUNTER, CAPACITY))
    return Charge(total, (), counters, capacities)


def _add(total: dict[str, int], name: str, amount: int) -> None:
    total[name] = min(UNLIMITED, total.get(name, 0) + amount)


# --- the claim itself -------------------------------------------------------------------------------------------------


def _malformed(claim: Claim, verdicts: CelVerdicts) -> DeviceFault | None:
    """The fault of a claim with selectors that do not compile, or that is of a kind that cannot be counted; None if there is no
    fault. Raises UnavailableError, once it has been asked about all selectors.
    """
    verdicts.ask(text for request in claim.requests for _, text in request.selectors)
    for request in claim.requests:
        where = f"{request.where}.exactly.selectors"
        faults = [
            f"{where}[{i}].cel.expression: Invalid value: {_quoted(text)}: CEL compilation failed: {words}"
            for i, text in request.selectors
            if (words := verdicts.fault(text))
        ]
        if faults:
            return DeviceFault(f".{where}", _INVALID, joined(faults))
    return DeviceFault(f".{claim.where}", claim.kind, claim.refused) if claim.refused else None


def joined(faults: Sequence[str]) -> str:
    """Several errors, as Kubernetes writes them."""
    return faults[0] if len(faults) == 1 else f"[{', '.join(dict.fromkeys(faults))}]"


def _quoted(text: str) -> str:
    return orjson.dumps(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...").decode()


# --- are there such devices? ------------------------------------------------------------------------------------------


def _unsatisfied(claim: Claim, devices: Devices, cluster: ClusterDevices) -> Iterator[DeviceFault]:
    """The faults of requests with selectors for which the cluster has too few devices. Requests for administrators are checked as
    well.
    """
    selecting = [request for request in claim.requests if request.selectors]
    if not selecting:
        return
    slices = _looked_at(selecting, devices, cluster.slices)
    taken: set[tuple[int, int]] = set()
    for request in selecting:
        where = f".{request.where}.exactly.selectors"
        try:
            selectors = _class_selectors(request, cluster)
        except _FaultError as error:
            yield error.fault
            continue
        rows = _rows((*selectors, *request.expressions), slices, cluster.verdicts)
        found = _take(rows, request.count, taken)
        name = request.device_class
        if isinstance(found, str):
            yield DeviceFault(where, _INVALID, f"CEL evaluation failed for DeviceClass {name}: {found}")
        elif found < request.count:
            words = f"{found} device(s) match in the cluster but {request.count} requested"
            lacks = f"insufficient matching devices for CEL selector in DeviceClass {name}: {words}"
            yield DeviceFault(where, _INTERNAL, lacks)


def _looked_at(
    requests: Sequence[DeviceRequest], devices: Devices, slices: Mapping[str, DeviceSlice]
) -> list[DeviceSlice]:
    """The slices in which devices are looked for: all of them, unless all requests are of classes with sources; then those of the
    sources' drivers.
    """
    ordered = [each for _, each in sorted(slices.items())]
    sources = [devices.sources.get(request.device_class, ()) for request in requests]
    if not all(sources):
        return ordered
    drivers = dict.fromkeys(source.driver for several in sources for source in several)
    return [each for driver in drivers for each in ordered if each.driver == driver]


def _take(rows: Iterable[Sequence[_Found]], count: int, taken: set[tuple[int, int]]) -> int | str:
    """How many devices are selected that are not taken, up to the count; they are taken. An error ends it."""
    found = 0
    for i, row in enumerate(rows):
        for j, selected in enumerate(row):
            if selected is False or (i, j) in taken:
                continue
            if selected is not True:
                return selected[1]
            taken.add((i, j))
            found += 1
            if found >= count:
                return found
    return found


def _class_selectors(request: DeviceRequest, cluster: ClusterDevices) -> tuple[str, ...]:
    """The CEL selectors of the request's DeviceClass. Raises _FaultError."""
    name = request.device_class
    if not name:
        return ()
    where = f".{request.where}"
    if name not in cluster.classes:
        missing = f'DeviceClass.resource.k8s.io "{name}" not found'
        raise _FaultError(where, _INTERNAL, f"failed to get DeviceClass {name}: {missing}")
    for i, text in enumerate(cluster.classes[name]):
        if words := cluster.verdicts.fault(text):
            kind = f"Invalid value: {_quoted(text)}"
            invalid = f"DeviceClass {name} has invalid CEL selector: {words}"
            raise _FaultError(f"{where}[{i}].cel.expression", kind, invalid)
    return cluster.classes[name]


def _rows(
    expressions: Sequence[str], slices: Sequence[DeviceSlice], verdicts: CelVerdicts
) -> Iterator[Sequence[_Found]]:
    """A row for each slice, which says which of its devices are selected by all expressions."""
    layers: list[Mapping[int, Sequence[Verdict]]] = []
    live: Sequence[int] = range(len(slices))
    for text in expressions:
        found = dict(zip(live, verdicts.of(text, [slices[i].group for i in live]), strict=True))
        layers.append(found)
        live = [i for i, row in found.items() if True in row]
    for i, each in enumerate(slices):
        yield _together([layer[i] for layer in layers if i in layer], each.size)


def _together(rows: Sequence[Sequence[Verdict]], size: int) -> Sequence[_Found]:
    """The first expression that does not select a device decides."""
    found: list[_Found] = [True] * size
    for index, row in enumerate(rows):
        for j, verdict in enumerate(row):
            if verdict is not True and found[j] is True:
                found[j] = False if verdict is False else (index, verdict)
    return found


# --- what they consume ------------------------------------------------------------------------------------------------


def _consume(
    kind: str, claim: Claim, devices: Devices, cluster: ClusterDevices, total: dict[str, int]
) -> tuple[DeviceFault, ...]:
    """Adds what the sources of this kind say to `total`; the first fault ends it."""
    for request in claim.counted:
        sources = [source for source in devices.sources.get(request.device_class, ()) if source.kind == kind]
        try:
            selectors = _class_selectors(request, cluster) if sources else ()
            for source in sources:
                most = _most(source, request, selectors, cluster)
                _add(total, source.resource, min(UNLIMITED, most * max(1, request.count)))
        except _FaultError as error:
            return (error.fault,)
    return ()


def _most(source: DeviceSource, request: DeviceRequest, selectors: Sequence[str], cluster: ClusterDevices) -> int:
    """What the device consumes that consumes most, of those that this request may get. Raises _FaultError."""
    where = f".{request.where}"
    slices = complete(each for _, each in sorted(cluster.slices.items()) if each.driver == source.driver)
    expressions = (source.selector, *selectors, *request.expressions)
    matched: list[tuple[int, int]] = []
    for i, row in enumerate(_rows(expressions, slices, cluster.verdicts)):
        for j, selected in enumerate(row):
            if selected is True:
                matched.append((i, j))
            elif selected is not False:
                number, words = selected
                what = (
                    "deviceSelector"
                    if not number
                    else _CLASS_SELECTOR
                    if number <= len(selectors)
                    else _REQUEST_SELECTOR
                )
                name = device_names(slices[i].group)[j]
                raise _FaultError(where, _INTERNAL, f"CEL evaluation error in {what} for device {name}: {words}")
    if len(matched) < request.count:
        words = f"{len(matched)} device(s) match but {request.count} requested"
        raise _FaultError(where, _INTERNAL, f"insufficient matching devices for {source.kind} driver: {words}")
    if source.kind == COUNTER:
        return _most_counted(source, where, slices, matched)
    return _most_capacity(source, request, where, slices, matched)


def _most_counted(
    source: DeviceSource, where: str, slices: Sequence[DeviceSlice], matched: Sequence[tuple[int, int]]
) -> int:
    by_slice = {i: counters(slices[i].group, source.name, source.resource) for i, _ in matched}
    most = max((found for i, j in matched if (found := by_slice[i][j]) is not None), default=None)
    if most is None:
        words = f"matched devices have no consumesCounters entry for counter {_quoted(source.name)}"
        raise _FaultError(where, _INTERNAL, words)
    return most


def _most_capacity(
    source: DeviceSource,
    request: DeviceRequest,
    where: str,
    slices: Sequence[DeviceSlice],
    matched: Sequence[tuple[int, int]],
) -> int:
    by_slice = {i: capacities(slices[i].group, source.name, source.resource) for i, _ in matched}
    dimensions = [found for i, j in matched if (found := by_slice[i][j]) is not None]
    if not dimensions:
        raise _FaultError(where, _INTERNAL, f"matched devices have no capacity dimension {_quoted(source.name)}")
    written = dict(request.capacity).get(source.name)
    asked = None if written is None else quantity.parse(written, source.resource)
    given = [found for each in dimensions if (found := each.consumed(asked)) is not None]
    if not given:
        words = "capacity request cannot be satisfied by any matched device's RequestPolicy for dimension"
        raise _FaultError(where, _INVALID, f"{words} {_quoted(source.name)}")
    return max(given)
