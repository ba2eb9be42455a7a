"""Devices that pods claim by ResourceClaimTemplates, counted as the resources that Kueue's `deviceClassMappings` name.

Kubernetes also claims devices for pods that request a resource which a DeviceClass stands for (`spec.extendedResourceName`). They
count as the same resources as those that are claimed (Kueue's gate `KueueDRAIntegrationExtendedResource`).

Kueue's gate `KueueDRAIntegration` turns it on, which is the default. What a claim counts as in the cluster as it is, with its
selectors and what devices consume, is in `device_charges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gangline.api import quantity
from gangline.api.read import conditions
from gangline.api.read.reading import Json, ParseError, all_amounts, child, flag, items, number, root, text
from gangline.api.selecting import LONGEST
from gangline.api.sharing.device_shares import DeviceAsk
from gangline.api.unchecked import listing, mapping
from gangline.engine.model import UNLIMITED, Requests

#: where a pod has containers
CONTAINERS: Final = ("initContainers", "containers")
#: claims of one pod that are looked at for cards
_MOST_CLAIMS: Final = 64
#: CEL selectors of one claim: Kubernetes allows 32 for each of 32 requests
MOST_SELECTORS: Final = 64
_ALL: Final = "AllocationMode 'All' is not supported"
_FIRST: Final = "FirstAvailable device selection is not supported"
_NEITHER: Final = "Exactly must be set if FirstAvailable is nil"
_NULL: Final = 'Invalid value: "null"'


#: the kinds of sources
COUNTER: Final = "counter"
CAPACITY: Final = "capacity"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim. `where`: its path within the claim. `selectors`: their indices and CEL expressions. `capacity`:
    as it is written, by full name. `admin`: for administrators, who look at devices that others use: it counts as nothing.
    """

    where: str
    device_class: str
    count: int = 1
    selectors: tuple[tuple[int, str], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()
    admin: bool = False

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.selectors)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one ResourceClaimTemplate asks for, or why that cannot be counted.

    `where` and `kind`: the path within the claim that `refused` is about, and the kind of the error, in Kueue's words. `requests`
    go up to that one.
    """

    requests: tuple[DeviceRequest, ...] = ()
    where: str = ""
    kind: str = ""
    refused: str = ""

    @property
    def counted(self) -> tuple[DeviceRequest, ...]:
        return tuple(request for request in self.requests if not request.admin and request.device_class)

    @property
    def devices(self) -> Requests:
        """Devices by DeviceClass."""
        found: dict[str, int] = {}
        for request in self.counted:
            found[request.device_class] = min(UNLIMITED, found.get(request.device_class, 0) + request.count)
        return found

    @property
    def asks(self) -> tuple[DeviceAsk, ...]:
        """The requests with the capacity that they ask for, by name without its domain."""
        return () if self.refused else tuple(_ask(request) for request in self.counted)


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """How the configuration counts devices of a DeviceClass by what they consume: the counter or the capacity `name` of the
    driver's devices that the CEL expression `selector` selects counts as `resource`.
    """

    kind: str
    resource: str
    driver: str
    name: str
    selector: str


@dataclass(frozen=True, slots=True)
class Devices:
    """How devices count. `resources`: DeviceClass -> the resource that its devices are counted as, unless it has `sources`.

    `counted`: they are. If they are not, Workloads that claim some are refused, or (`ignored`) admitted without quota for them.
    `extended`: a requested resource that a DeviceClass stands for -> the resource that it counts as, where (`extends`) that is
    looked at; `unextended`: one whose class has sources -> why it cannot be counted.
    """

    resources: Mapping[str, str] = field(default_factory=dict[str, str])
    sources: Mapping[str, tuple[DeviceSource, ...]] = field(default_factory=dict[str, tuple[DeviceSource, ...]])
    counted: bool = True
    ignored: bool = False
    extends: bool = True
    extended: Mapping[str, str] = field(default_factory=dict[str, str])
    unextended: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def consumed(self) -> set[str]:
        """The resources that count what devices consume, which is mostly memory: Kueue prints them as bytes."""
        return {source.resource for sources in self.sources.values() for source in sources}


#: no device counts as anything
NO_DEVICES: Final = Devices()


def claim(obj: Any) -> Claim:
    """Read what a ResourceClaimTemplate (resource.k8s.io/v1) claims. Raises ParseError."""
    requests: list[DeviceRequest] = []
    spec = child(child(root(obj), "spec", ""), "spec", "spec")
    for i, request in enumerate(items(child(spec, "devices", "spec.spec"), "requests", "spec.spec.devices")):
        where = f"devices.requests[{i}]"
        if request.get("firstAvailable"):
            return Claim(tuple(requests), where, _NULL, _FIRST)
        if request.get("exactly") is None:
            return Claim(tuple(requests), where, _NULL, _NEITHER)
        exactly = child(request, "exactly", where)
        requests.append(_request(exactly, where))
        if sum(len(each.selectors) for each in requests) > MOST_SELECTORS:
            said = f"has more than {MOST_SELECTORS} CEL selectors in all, of which no more are evaluated"
            return Claim(tuple(requests[:-1]), f"{where}.exactly.selectors", "Too many", said)
        mode = text(exactly, "allocationMode", where) or "ExactCount"
        if mode != "ExactCount" and not requests[-1].admin:
            said = _ALL if mode == "All" else f"unsupported allocation mode: {mode}"
            return Claim(tuple(requests), f"{where}.exactly.allocationMode", f'Invalid value: "{mode}"', said)
    return Claim(tuple(requests))


def _request(exactly: Json, where: str) -> DeviceRequest:
    path = f"spec.spec.{where}.exactly"
    count = number(exactly, "count", path, 1)
    if count < 0:
        raise ParseError(f"{path}.count", "must not be negative")
    capacity = child(child(exactly, "capacity", path), "requests", f"{path}.capacity")
    all_amounts(capacity, f"{path}.capacity.requests")
    return DeviceRequest(
        where,
        text(exactly, "deviceClassName", path),
        count,
        _selectors(exactly, path),
        tuple(sorted((name, str(written)) for name, written in capacity.items())),
        flag(exactly, "adminAccess", path, False),
    )


def _selectors(parent: Json, path: str) -> tuple[tuple[int, str], ...]:
    """The CEL selectors, each with its index in the list; there are no selectors of another kind. Raises ParseError."""
    rows = ((i, child(row, "cel", f"{path}.selectors[{i}]")) for i, row in enumerate(items(parent, "selectors", path)))
    found = [(i, text(row, "expression", f"{path}.selectors[{i}].cel")) for i, row in rows if row]
    if any(len(expression) > LONGEST for _, expression in found):
        raise ParseError(f"{path}.selectors", f"an expression has at most {LONGEST} characters")
    return tuple(found)


def _ask(request: DeviceRequest) -> DeviceAsk:
    asked = {name.rpartition("/")[2]: quantity.parse(written, name) for name, written in request.capacity}
    return DeviceAsk(request.device_class, request.count, tuple(sorted(asked.items())))


def class_selectors(obj: Any) -> tuple[str, ...]:
    """The CEL expressions of a DeviceClass (resource.k8s.io/v1). Raises ParseError."""
    return tuple(expression for _, expression in _selectors(child(root(obj), "spec", ""), "spec"))


@dataclass(frozen=True, slots=True)
class ExtendedClass:
    """The resource that a DeviceClass stands for, and when the class was created, in milliseconds since the epoch."""

    resource: str
    created: int


def extended_class(obj: Any) -> ExtendedClass | None:
    """Read the extended resource of a DeviceClass (resource.k8s.io/v1); None for one that stands for no resource. Raises
    ParseError.
    """
    body = root(obj)
    name = text(child(body, "spec", ""), "extendedResourceName", "spec")
    created = conditions.millis_of(text(child(body, "metadata", ""), "creationTimestamp", "metadata"))
    return ExtendedClass(name, created) if "/" in name else None


def extended(classes: Mapping[str, ExtendedClass], devices: Devices) -> Devices:
    """The same with what requested resources count as: as those of their DeviceClasses, without a mapping as themselves.

    Of several classes for one resource Kubernetes takes the newest, and of equally new ones the first by name.
    """
    if not (devices.counted and devices.extends):
        return devices
    chosen: dict[str, str] = {}
    for name in sorted(classes):
        found = classes[name]
        if found.resource not in chosen or classes[chosen[found.resource]].created < found.created:
            chosen[found.resource] = name
    counted = {resource: devices.resources.get(name, resource) for resource, name in chosen.items()}
    refused = {
        resource: _unextended(resource, name, sources[0].kind)
        for resource, name in chosen.items()
        if (sources := devices.sources.get(name))
    }
    return replace(devices, extended=counted, unextended=refused)


def _unextended(resource: str, name: str, kind: str) -> str:
    has, use = (
        ("counters configured", "CEL selectors for counter-based quota")
        if kind == COUNTER
        else ("capacity sources configured", "capacity.requests for capacity-based quota")
    )
    return (
        f"extended resource {resource} resolves to DeviceClass {name} with {has}; use ResourceClaimTemplates with {use}"
    )


def requested(pod_sets: Any) -> set[str]:
    """The resources that containers of pod sets request or limit, of whatever shape what is written there may be."""
    containers = (row for spec in _specs(pod_sets) for key in CONTAINERS for row in listing(spec.get(key)))
    amounts = (mapping(mapping(row).get("resources")).get(key) for row in containers for key in ("requests", "limits"))
    return {str(name) for row in amounts for name in mapping(row)}


def templates(pod_sets: Any) -> set[str]:
    """The ResourceClaimTemplates that pod sets name, of whatever shape what is written there may be."""
    rows = (row for spec in _specs(pod_sets) for row in listing(spec.get("resourceClaims")))
    found = (mapping(row).get("resourceClaimTemplateName") for row in rows)
    return {name for name in found if isinstance(name, str)}


def _specs(pod_sets: Any) -> Iterator[Json]:
    """The pod specs of these pod sets."""
    return (mapping(mapping(mapping(pod_set).get("template")).get("spec")) for pod_set in listing(pod_sets))


def device_asks(spec: Json, claims: Mapping[str, Claim]) -> list[DeviceAsk]:
    """What the claims of one pod with this spec ask for, as far as they are known."""
    found: list[DeviceAsk] = []
    for i, row in enumerate(items(spec, "resourceClaims", "")[:_MOST_CLAIMS]):
        claim = claims.get(text(row, "resourceClaimTemplateName", f"resourceClaims[{i}]"))
        found += claim.asks if claim is not None else ()
    return found
