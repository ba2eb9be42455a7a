"""Devices that pods claim by ResourceClaimTemplates, counted as the resources that Kueue's `deviceClassMappings` name.

Kubernetes also claims devices for pods that request a resource which a DeviceClass stands for (`spec.extendedResourceName`). They
count as the same resources as those that are claimed (Kueue's gate `KueueDRAIntegrationExtendedResource`).

Kueue's gate `KueueDRAIntegration` turns it on, which is the default. Whether the cluster has a device that a claim's CEL
selectors select is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gangline.api.read import conditions
from gangline.api.read.reading import Json, ParseError, amounts, child, flag, items, number, root, text
from gangline.api.sharing import DeviceAsk
from gangline.engine.model import UNLIMITED, Requests

_CONTAINERS: Final = ("initContainers", "containers")
#: claims of one pod that are looked at for cards
_MOST_CLAIMS: Final = 64
_ALL: Final = "AllocationMode 'All' is not supported"
_FIRST: Final = "FirstAvailable device selection is not supported"


@dataclass(frozen=True, slots=True)
class Claim:
    """What one ResourceClaimTemplate asks for: devices by DeviceClass, or why they cannot be counted, in Kueue's words.

    `where` is the field within the claim that `refused` is about. `asks` are its requests with the capacity that they ask for.
    """

    devices: Requests = field(default_factory=dict[str, int])
    where: str = ""
    refused: str = ""
    asks: tuple[DeviceAsk, ...] = ()


@dataclass(frozen=True, slots=True)
class Devices:
    """How devices count. `resources`: DeviceClass -> the resource that its devices are counted as.

    `counted`: they are. If they are not, Workloads that claim some are refused, or (`ignored`) admitted without quota for them.
    `extended`: a requested resource that a DeviceClass stands for -> the resource that it counts as, where (`extends`) that is
    looked at.
    """

    resources: Mapping[str, str] = field(default_factory=dict[str, str])
    counted: bool = True
    ignored: bool = False
    extends: bool = True
    extended: Mapping[str, str] = field(default_factory=dict[str, str])


#: no device counts as anything
NO_DEVICES: Final = Devices()


def claim(obj: Any) -> Claim:
    """Of a ResourceClaimTemplate (resource.k8s.io/v1). Raises ParseError."""
    found: dict[str, int] = {}
    asks: list[DeviceAsk] = []
    spec = child(child(root(obj), "spec", ""), "spec", "spec")
    for i, request in enumerate(items(child(spec, "devices", "spec.spec"), "requests", "spec.spec.devices")):
        where = f"devices.requests[{i}]"
        if request.get("firstAvailable"):
            return Claim(where=f'{where}: Invalid value: "null"', refused=_FIRST)
        exactly = child(request, "exactly", where)
        if flag(exactly, "adminAccess", where, False):
            continue  # it looks at devices that others use
        mode = text(exactly, "allocationMode", where) or "ExactCount"
        if mode != "ExactCount":
            said = _ALL if mode == "All" else f"unsupported allocation mode: {mode}"
            return Claim(where=f'{where}.exactly.allocationMode: Invalid value: "{mode}"', refused=said)
        count = number(exactly, "count", where, 1)
        if count < 0:
            raise ParseError(f"spec.spec.{where}.exactly.count", "must not be negative")
        if name := text(exactly, "deviceClassName", where):
            found[name] = min(UNLIMITED, found.get(name, 0) + count)
            asks.append(DeviceAsk(name, count, _capacity(exactly, where)))
    return Claim(found, asks=tuple(asks))


def _capacity(exactly: Json, where: str) -> tuple[tuple[str, int], ...]:
    """By name without its domain."""
    asked = amounts(child(exactly, "capacity", f"{where}.exactly"), "requests", f"{where}.exactly.capacity")
    return tuple(sorted((name.rpartition("/")[2], size) for name, size in asked.items()))


@dataclass(frozen=True, slots=True)
class ExtendedClass:
    """The resource that a DeviceClass stands for, and when the class was created, in milliseconds since the epoch."""

    resource: str
    created: int


def extended_class(obj: Any) -> ExtendedClass | None:
    """Of a DeviceClass (resource.k8s.io/v1); None for one that stands for no resource. Raises ParseError."""
    body = root(obj)
    name = text(child(body, "spec", ""), "extendedResourceName", "spec")
    created = conditions.millis_of(text(child(body, "metadata", ""), "creationTimestamp", "metadata"))
    return ExtendedClass(name, created) if "/" in name else None


def extended(classes: Mapping[str, ExtendedClass], devices: Devices) -> dict[str, str]:
    """Requested resource -> the resource that it counts as: that of its DeviceClass, without a mapping itself.

    Of several classes for one resource Kubernetes takes the newest, and of equally new ones the first by name.
    """
    if not (devices.counted and devices.extends):
        return {}
    chosen: dict[str, str] = {}
    for name in sorted(classes):
        found = classes[name]
        if found.resource not in chosen or classes[chosen[found.resource]].created < found.created:
            chosen[found.resource] = name
    return {resource: devices.resources.get(name, resource) for resource, name in chosen.items()}


def requested(pod_sets: Any) -> set[str]:
    """The resources that containers of pod sets request or limit, of whatever shape what is written there may be."""
    specs = (_inner(_inner(pod_set, "template"), "spec") for pod_set in _rows_of(pod_sets))
    containers = (row for spec in specs for key in _CONTAINERS for row in _rows_of(_inner(spec, key)))
    amounts = (_inner(_inner(row, "resources"), key) for row in containers for key in ("requests", "limits"))
    return {str(name) for row in amounts if isinstance(row, dict) for name in cast("dict[Any, Any]", row)}


def templates(pod_sets: Any) -> set[str]:
    """The ResourceClaimTemplates that pod sets name, of whatever shape what is written there may be."""
    specs = (_inner(_inner(pod_set, "template"), "spec") for pod_set in _rows_of(pod_sets))
    rows = (row for spec in specs for row in _rows_of(_inner(spec, "resourceClaims")))
    found = (_inner(row, "resourceClaimTemplateName") for row in rows)
    return {name for name in found if isinstance(name, str)}


def _inner(value: Any, key: str) -> Any:
    return cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None


def _rows_of(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def claimed(spec: Json, claims: Mapping[str, Claim], devices: Devices) -> dict[str, int]:
    """What the claims of one pod with this spec count as; those that cannot be counted are left out."""
    total: dict[str, int] = {}
    for i, row in enumerate(items(spec, "resourceClaims", "")) if devices.counted else ():
        found = claims.get(text(row, "resourceClaimTemplateName", f"resourceClaims[{i}]"))
        for name, count in found.devices.items() if found is not None else ():
            if resource := devices.resources.get(name):
                total[resource] = min(UNLIMITED, total.get(resource, 0) + count)
    return total


def asked(spec: Json, claims: Mapping[str, Claim]) -> list[DeviceAsk]:
    """What the claims of one pod with this spec ask for, as far as they are known."""
    found: list[DeviceAsk] = []
    for i, row in enumerate(items(spec, "resourceClaims", "")[:_MOST_CLAIMS]):
        claim = claims.get(text(row, "resourceClaimTemplateName", f"resourceClaims[{i}]"))
        found += claim.asks if claim is not None else ()
    return found


def refusal(pod_sets: Sequence[tuple[str, Json]], claims: Mapping[str, Claim], devices: Devices) -> str:
    """Why a Workload is not admitted whose claims cannot be counted, in Kueue's words; "" if they can, or if it has none.

    `pod_sets`: name and pod spec of each.
    """
    rows = [(i, name, j, row) for i, (name, spec) in enumerate(pod_sets) for j, row in _rows(spec)]
    if not rows or devices.ignored:
        return ""
    if not devices.counted:
        return "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
    if any(row.get("resourceClaimName") for _, _, _, row in rows):
        return "KueueDRAIntegration feature does not support use of resource claims"
    errors = (
        error
        for i, name, j, row in rows
        for error in _errors(f"spec.podSets[{i}].template.spec.resourceClaims[{j}]", name, row, claims, devices)
    )
    return next(errors, "")


def _rows(spec: Json) -> Iterator[tuple[int, Json]]:
    for j, row in enumerate(items(spec, "resourceClaims", "")):
        if row.get("resourceClaimTemplateName") or row.get("resourceClaimName"):
            yield j, row


def _errors(path: str, pod_set: str, row: Json, claims: Mapping[str, Claim], devices: Devices) -> Iterator[str]:
    template = text(row, "resourceClaimTemplateName", "resourceClaims")
    found = claims.get(template)
    if found is None:
        missing = f'ResourceClaimTemplate.resource.k8s.io "{template}" not found'
        words = f"failed to get claim spec for ResourceClaimTemplate {template} in podset {pod_set}: {missing}"
        yield f"{path}: Internal error: {words}"
    elif found.refused:
        yield f"{path}.{found.where}: ResourceClaimTemplate {template}: {found.refused}"
    else:
        for name in sorted(found.devices.keys() - devices.resources.keys()):
            words = f"DeviceClass {name} is not mapped in DRA configuration for podset {pod_set}"
            yield f'{path}.resourceClaimTemplateName: Not found: "{words}"'
