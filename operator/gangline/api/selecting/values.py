"""The values that CEL selectors of devices see: quantities, versions, and devices of ResourceSlices."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, cast

from gangline import bounded
from gangline.api import quantity

# --- quantities and semantic versions in CEL: the functions of Kubernetes' libraries `quantity` and `semver` ----------
#
# A value of either kind is a map with one entry, whose text is the same for equal values: the runtime of CEL knows no values
# of other types, and maps can be compared for equality and nothing else.


_QUANTITY: Final = "quantity"
_SEMVER: Final = "semver"
#: characters of a text that is read
_LONGEST: Final = 256
_INT64: Final = 2**63
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?"
)
_PLAIN: Final = re.compile(r"[0-9]{1,18}")

Value = dict[str, str]


class AmountError(ValueError):
    """A text is no quantity or no version, or a function is called with the other kind of value."""


def _refused(text: str) -> AmountError:
    return AmountError(f"{bounded.shown(text)} is too long")


# --- quantities -------------------------------------------------------------------------------------------------------


def of_quantity(written: Any) -> Value:
    """The value of a quantity as it is written. Raises AmountError."""
    try:
        return _known_quantity(written if isinstance(written, str) else str(written))
    except quantity.QuantityError as error:
        raise AmountError(f"quantities must match the regular expression of Kubernetes: {error}") from None


@lru_cache(maxsize=1024)
def _known_quantity(text: str) -> Value:
    return {_QUANTITY: str(quantity.exact(text))}


def is_quantity(text: str) -> bool:
    try:
        of_quantity(text)
    except AmountError:
        return False
    return True


def sign(value: Value) -> int:
    found = _fraction(value)
    return (found > 0) - (found < 0)


def is_integer(value: Value) -> bool:
    found = _fraction(value)
    return found.denominator == 1 and -_INT64 <= found < _INT64


def as_integer(value: Value) -> int:
    if not is_integer(value):
        raise AmountError("cannot convert value to integer")
    return int(_fraction(value))


def as_float(value: Value) -> float:
    try:
        return float(_fraction(value))
    except OverflowError:
        raise AmountError("cannot convert value to double") from None


def add(value: Value, other: Value | int) -> Value:
    return {_QUANTITY: str(_fraction(value) + _fraction(other))}


def sub(value: Value, other: Value | int) -> Value:
    return {_QUANTITY: str(_fraction(value) - _fraction(other))}


def _fraction(value: Value | int) -> Fraction:
    if isinstance(value, int):
        return Fraction(value)
    if not isinstance(value.get(_QUANTITY), str):
        raise AmountError("no such overload")
    return Fraction(value[_QUANTITY])


# --- versions ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
@bounded.parser(_LONGEST, refuse=_refused, worst=("1.", "9", "-", "v", "٣", "."))
def of_version(written: str, normalize: bool = False) -> Value:
    """The value of a semantic version. `normalize` takes `v1.2` for 1.2.0, and 01.02.03 for 1.2.3. Raises AmountError."""
    text = _normalized(written) if normalize else written
    match = _VERSION.fullmatch(text)
    if match is None or not all(_is_identifier(each) for each in (match[4] or "0").split(".")):
        raise AmountError(f"{bounded.shown(written)} is no semantic version")
    core = f"{match[1]}.{match[2]}.{match[3]}"
    return {_SEMVER: f"{core}-{match[4]}" if match[4] else core}  # builds are equal


def is_version(text: str, normalize: bool = False) -> bool:
    try:
        of_version(text, normalize)
    except AmountError:
        return False
    return True


def _normalized(text: str) -> str:
    core = text.removeprefix("v")
    ends = min((core.index(mark) for mark in "-+" if mark in core), default=len(core))
    numbers = core[:ends].split(".")
    numbers += ["0"] * (3 - len(numbers))
    return ".".join(str(int(each)) if _PLAIN.fullmatch(each) else each for each in numbers) + core[ends:]


def _is_identifier(text: str) -> bool:
    return bool(text) and not (text.isdigit() and len(text) > 1 and text[0] == "0")


def major(value: Value) -> int:
    return _numbers(value)[0]


def minor(value: Value) -> int:
    return _numbers(value)[1]


def patch(value: Value) -> int:
    return _numbers(value)[2]


def _numbers(value: Value) -> tuple[int, int, int]:
    if not isinstance(value.get(_SEMVER), str):
        raise AmountError("no such overload")
    first, second, third = value[_SEMVER].partition("-")[0].split(".")
    return int(first), int(second), int(third)


def _order(value: Value) -> tuple[tuple[int, int, int], bool, list[tuple[bool, int, str]]]:
    """The key by which versions are ordered: numbers, then pre-releases before the release, by their parts."""
    before = value[_SEMVER].partition("-")[2] if _SEMVER in value else ""
    parts = [(not each.isdigit(), int(each) if each.isdigit() else 0, each) for each in before.split(".") if each]
    return _numbers(value), not parts, parts


# --- both -------------------------------------------------------------------------------------------------------------


def compare(value: Value, other: Value) -> int:
    """-1, 0 or 1."""
    one: Any
    two: Any
    if _QUANTITY in value or _QUANTITY in other:
        one, two = _fraction(value), _fraction(other)
    else:
        one, two = _order(value), _order(other)
    return (one > two) - (one < two)


def is_less(value: Value, other: Value) -> bool:
    return compare(value, other) < 0


def is_greater(value: Value, other: Value) -> bool:
    return compare(value, other) > 0


# --- devices of ResourceSlices as the values that expressions see -----------------------------------------------------
#
# Names without a domain are of the driver's. An attribute that Kubernetes would not read makes a device unfit for any
# expression.


_DYNAMIC: Final[tuple[tuple[str, type], ...]] = (("int", int), ("bool", bool), ("string", str))
_LISTS: Final[tuple[tuple[str, type], ...]] = (("ints", int), ("bools", bool), ("strings", str))
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


def _version(name: str, written: Any) -> Value:
    try:
        return of_version(written if isinstance(written, str) else "")
    except AmountError as error:
        raise UnfitError(f"attribute {name}: parse semantic version: {error}") from None


def _quantity(name: str, written: Json) -> Value:
    try:
        return of_quantity(written.get("value"))
    except AmountError as error:
        raise UnfitError(f"capacity {name}: {error}") from None
