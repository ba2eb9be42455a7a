"""ResourceClaims (resource.k8s.io v1, v1beta1): which devices they were given, and for which pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gangline.api import quantity
from gangline.api.read.reading import Json, child, flag, items, needed, root, text

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
