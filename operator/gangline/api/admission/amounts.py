"""Quantities as users write them: valid, not negative, and small enough to be counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from gangline.api import quantity
from gangline.api.admission.findings import NEGATIVE, FieldError, invalid, required

#: quantities are counted in signed 64-bit integers of canonical units (milli-cpu, bytes, whole devices)
LARGEST: Final = 2**63 - 1

_FORM: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_TOO_LARGE: Final = "must be less than 2^63 in the units that quota is counted in"
#: longer than any meaningful quantity; parsing an arbitrarily long number would cost time
_LONGEST: Final = 64

_NUMBER: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?")
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(["", "k", "M", "G", "T", "P", "E"])},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


class BadAmountError(ValueError):
    """A quantity that cannot be counted; the text says why."""


def amount(value: object, resource: str) -> int:
    """The quantity in canonical units, rounded up. Raises BadAmountError."""
    number = _counted(value)
    if number * (1000 if resource == "cpu" else 1) > LARGEST:
        raise BadAmountError(_TOO_LARGE)
    return quantity.parse(str(value), resource)


def _counted(value: object) -> Fraction:
    number = exact(value)
    if number < 0:
        raise BadAmountError(NEGATIVE)
    return number


def exact(value: object) -> Fraction:
    """The quantity as a number, unrounded, of either sign, before conversion to a unit."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or len(str(value)) > _LONGEST:
        raise BadAmountError(_FORM)
    match = _NUMBER.fullmatch(str(value))
    if match is None:
        raise BadAmountError(_FORM)
    number, suffix = match[1], match[2] or ""
    if suffix in _SUFFIXES:
        return Fraction(number) * _SUFFIXES[suffix]
    return Fraction(f"{number}{suffix}")  # an exponent


def amount_or_none(value: object, resource: str) -> int | None:
    try:
        return amount(value, resource)
    except BadAmountError:
        return None


def check(path: str, value: object, resource: str) -> list[FieldError]:
    """A required, valid quantity."""
    return _checked(path, value, lambda: amount(value, resource))


def check_quota(path: str, value: object) -> list[FieldError]:
    """A required, valid quantity; quota too large to be counted has no bound."""
    return _checked(path, value, lambda: _counted(value))


def _checked(path: str, value: object, read: Callable[[], object]) -> list[FieldError]:
    if value is None:
        return [required(path)]
    try:
        read()
    except BadAmountError as error:
        return [invalid(path, value, str(error))]
    return []


def exceeds(value: object, other: object) -> bool:
    """Whether a quantity is larger than another one; False if one of them is invalid."""
    try:
        return exact(value) > exact(other)
    except BadAmountError:
        return False
