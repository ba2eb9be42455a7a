"""Devices of ResourceSlices as the values that expressions see.

Names without a domain are of the driver's. An attribute that Kubernetes would not read makes a device unfit for any expression.
"""

from __future__ import annotations

from typing import Any, Final, cast

from gangline.api.selecting import amounts

_DYNAMIC: Final[tuple[tuple[str, type], ...]] = (("int", int), ("bool", bool), ("string", str))
_LISTS: Final[tuple[tuple[str, type], ...]] = (("ints", int), ("bools", bool), ("strings", str))
_INT64: Final = 2**63
DRIVER: Final = "driver"
SHARED: Final = "allowMultipleAllocations"
ATTRIBUTES: Final = "attributes"
CAPACITY: Final = "capacity"

Json = dict[str, Any]


class UnfitError(ValueError):
    """A device has an attribute or a capacity that cannot be read."""


def value(driver: str, device: Json) -> Json:
    """`device`: one of `spec.devices` of a ResourceSlice. Raises UnfitError."""
    attributes: dict[str, Json] = {}
    for name, written in _entries(device, ATTRIBUTES):
        domain, key = _qualified(name, driver)
        attributes.setdefault(domain, {})[key] = _attribute(name, written)
    capacity: dict[str, Json] = {}
    for name, written in _entries(device, CAPACITY):
        domain, key = _qualified(name, driver)
        capacity.setdefault(domain, {})[key] = _quantity(name, written)
    return {DRIVER: driver, SHARED: device.get(SHARED) is True, ATTRIBUTES: attributes, CAPACITY: capacity}


def _entries(device: Json, key: str) -> list[tuple[str, Json]]:
    found = device.get(key)
    rows = cast("dict[str, Any]", found).items() if isinstance(found, dict) else ()
    return [(name, cast("Json", row) if isinstance(row, dict) else {}) for name, row in rows]


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, key = name.partition("/")
    return (domain, key) if slash else (driver, name)


def _attribute(name: str, written: Json) -> Any:
    for key, kind in _DYNAMIC:
        if key in written:
            return _scalar(name, written[key], kind)
    if "version" in written:
        return _version(name, written["version"])
    for key, kind in (*_LISTS, ("versions", dict)):
        if isinstance(row := written.get(key), list):
            each = cast("list[Any]", row)
            return [_version(name, item) if kind is dict else _scalar(name, item, kind) for item in each]
    raise UnfitError(f"attribute {name}: unsupported attribute value")


def _scalar(name: str, found: Any, kind: type) -> Any:
    if type(found) is not kind or (kind is int and not -_INT64 <= found < _INT64):
        raise UnfitError(f"attribute {name}: unsupported attribute value")
    return found


def _version(name: str, written: Any) -> amounts.Value:
    try:
        return amounts.of_version(written if isinstance(written, str) else "")
    except amounts.AmountError as error:
        raise UnfitError(f"attribute {name}: parse semantic version: {error}") from None


def _quantity(name: str, written: Json) -> amounts.Value:
    try:
        return amounts.of_quantity(written.get("value"))
    except amounts.AmountError as error:
        raise UnfitError(f"capacity {name}: {error}") from None
