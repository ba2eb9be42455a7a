"""Kubernetes quantities and Go durations, parsed strictly, as the integers and seconds that Gangline uses.

`parse` and `format` are inverse on canonical text: `format(parse(t, r), r)` is what Kubernetes itself would print.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Final

from gangline import bounded
from gangline.engine.model import UNLIMITED

#: The syntax of a quantity; also the `pattern` of every quantity field in the CRDs.
PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

_SHAPE: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exp>[+-]?[0-9]{1,18}))?",
    re.ASCII,
)
_DECIMAL_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SHIFTS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES: Final = ("", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
#: resources in bytes; what the configuration adds is known once a process has read it
_BYTES: Final = {"memory", "ephemeral-storage", "gangline.io/gpu-mem"}
_LONGEST: Final = 256
#: Beyond this power of ten a value saturates, below its negative it rounds to the smallest step: no need to compute it.
_FARTHEST_EXPONENT: Final = 400


class QuantityError(ValueError):
    """`text` is not a Kubernetes quantity (or not a Go duration)."""

    def __init__(self, text: object, what: str = "a Kubernetes quantity") -> None:
        super().__init__(f"{bounded.shown(text)} is not {what}")


def parse(value: str | int | float, resource: str = "") -> int:
    """The amount in engine units: milli-units for cpu, whole units for all others; rounded away from zero.

    Saturates at ±`UNLIMITED`. Raises QuantityError for a text that Kubernetes would not accept.
    """
    if isinstance(value, str):
        return _parse_text(value, resource == "cpu")
    if type(value) is int:
        return _saturate(value * 1000 if resource == "cpu" else value)
    if type(value) is float:
        return _parse_text(repr(value), resource == "cpu")
    raise QuantityError(type(value).__name__)


def parse_number(value: str | int | float) -> float:
    """A quantity as a plain number, such as the weight `1500m` = 1.5. Raises QuantityError."""
    if isinstance(value, str):
        return _parse_number(value)
    if type(value) is int:
        return float(_saturate(value))
    if type(value) is float:
        return _parse_number(repr(value))
    raise QuantityError(type(value).__name__)


def exact(value: str | int | float) -> Fraction:
    """A quantity without any rounding, such as the factor `250m` = 1/4. Raises QuantityError, also for absurdly large and small
    ones.
    """
    mantissa, power = _read(str(value) if type(value) in (int, float, str) else "")
    if abs(power) > _FARTHEST_EXPONENT:
        raise QuantityError(value)
    return Fraction(mantissa) * Fraction(10) ** power


def format(amount: int, resource: str = "") -> str:
    """Engine units of `resource` as Kubernetes prints them canonically: 200m, 2, 1500m, 2Ti, 1k."""
    return _format(amount, resource)


def is_bytes(resource: str) -> bool:
    """Whether this resource is counted in bytes and therefore printed with binary suffixes."""
    return resource in _BYTES or resource.startswith("hugepages-")


def print_as_bytes(resources: Iterable[str]) -> None:
    """Print these resources of the configuration with binary suffixes in this process from now on, as Kueue prints them."""
    _BYTES.update(resources)
    _format.cache_clear()


@lru_cache(maxsize=8192)
def _parse_text(text: str, milli: bool) -> int:
    mantissa, power = _read(text)
    amount = _scaled(abs(mantissa), power + 3 if milli else power)
    return _saturate(-amount if mantissa < 0 else amount)


@lru_cache(maxsize=1024)
def _parse_number(text: str) -> float:
    mantissa, power = _read(text)
    return max(-float(UNLIMITED), min(float(UNLIMITED), float(f"{mantissa}e{power}")))


@bounded.parser(_LONGEST, refuse=QuantityError, worst=("9", "0", ".", "1e", "1Ki", "-", "٣"))
def _read(text: str) -> tuple[int, int]:
    """(mantissa, power of ten). Raises QuantityError."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise QuantityError(text)
    sign, whole, part, suffix, exponent = match.group("sign", "whole", "part", "suffix", "exp")
    digits = whole + (part or "")
    if not digits:
        raise QuantityError(text)
    mantissa = int(digits) << _BINARY_SHIFTS.get(suffix or "", 0)
    power = int(exponent) if exponent else _DECIMAL_EXPONENTS.get(suffix or "", 0)
    return -mantissa if sign == "-" else mantissa, power - len(part or "")


def _scaled(mantissa: int, power: int) -> int:
    if mantissa == 0:
        return 0
    if power >= 0:
        return mantissa * 10**power if power < _FARTHEST_EXPONENT else UNLIMITED
    return -(-mantissa // 10**-power) if power > -_FARTHEST_EXPONENT else 1


def _saturate(amount: int) -> int:
    return max(-UNLIMITED, min(UNLIMITED, amount))


@lru_cache(maxsize=8192)
def _format(amount: int, resource: str) -> str:
    if resource == "cpu":
        whole, milli = divmod(amount, 1000)
        return f"{amount}m" if milli else _with_suffix(whole, 1000, _DECIMAL_SUFFIXES)
    if is_bytes(resource) and abs(amount) >= 1024:
        return _with_suffix(amount, 1024, _BINARY_SUFFIXES)
    return _with_suffix(amount, 1000, _DECIMAL_SUFFIXES)


def _with_suffix(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    step = 0
    while amount and amount % base == 0 and step + 1 < len(suffixes):
        amount //= base
        step += 1
    return f"{amount}{suffixes[step]}"


# --- durations --------------------------------------------------------------------------------------------------------

#: A Go duration of zero or more; the `pattern` of duration fields in our own CRDs.
DURATION_PATTERN: Final = r"^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)$"
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNIT_NANOS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}


#: Go's durations are nanoseconds in 64 bits: 292 years
_LONGEST_NANOS: Final = 2**63


def _no_duration(text: object) -> QuantityError:
    return QuantityError(text, "a duration such as 1h30m")


@lru_cache(maxsize=1024)
@bounded.parser(_LONGEST, refuse=_no_duration, worst=("9", "1h", "1.", ".", "1h1", "1µs", "m", "-", "٣"))
def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as `1h30m`, `250ms` or `0`. Raises QuantityError, also for more than 292 years."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0.0
    nanos, read = 0.0, 0
    while part := _DURATION_PART.match(body, read):
        nanos, read = nanos + float(part[1]) * _UNIT_NANOS[part[2]], part.end()
    if not read or read < len(body) or nanos >= _LONGEST_NANOS:
        raise _no_duration(text)
    return (-nanos if text[0] == "-" else nanos) / 1e9


def format_duration(seconds: float) -> str:
    """Seconds as Go prints a duration: 1h30m0s, 1.5s, 250ms, 0s; to the nanosecond."""
    nanos = round(abs(seconds) * 1e9)
    return ("-" if seconds < 0 and nanos else "") + _go_duration(nanos)


def _go_duration(nanos: int) -> str:
    if nanos == 0:
        return "0s"
    for unit in ("ns", "µs", "ms"):
        if nanos < _UNIT_NANOS[unit] * 1000:
            return _trimmed(nanos, _UNIT_NANOS[unit]) + unit
    minutes, rest = divmod(nanos, _UNIT_NANOS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if minutes or hours else ""
    return text + _trimmed(rest, _UNIT_NANOS["s"]) + "s"


def _trimmed(nanos: int, unit: int) -> str:
    whole, part = divmod(nanos, unit)
    decimals = f"{part:0{len(str(unit)) - 1}d}".rstrip("0") if part else ""
    return f"{whole}.{decimals}" if decimals else str(whole)
