"""Shapes of a configuration file: which fields there are at every depth, and of which type. Data, and one function that checks.

A shape is a kind of value (`TEXT`, `FLAG`, …), a dict of field names and their shapes, a list with the shape of its items, or a
`Map` of any names. A field may always be null, which is the same as its absence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from gangline.api import quantity
from gangline.api.read.configuration import selectors
from gangline.api.read.configuration.fields import ConfigurationError

#: kinds of values
TEXT: Final = "a text"
FLAG: Final = "true or false"
WHOLE: Final = "a whole number"
NUMBER: Final = "a number"
DURATION: Final = "a duration such as 30s"
SELECTOR: Final = "a label selector"
#: read and checked by a module of its own
ANY: Final = "any value"


@dataclass(frozen=True, slots=True)
class Map:
    """A mapping from any texts."""

    values: Shape


Shape: TypeAlias = "str | Mapping[str, Shape] | list[Shape] | Map"

#: characters of the longest text and name, and items of the longest list or mapping: what Kueue's own files never reach
LONGEST_TEXT: Final = 4096
MOST_ITEMS: Final = 1024
#: the largest number: 64 bits, as in Kueue
MOST: Final = 2**63 - 1
_SELECTOR_FIELDS: Final[Shape] = {
    "matchLabels": Map(TEXT),
    "matchExpressions": [{"key": TEXT, "operator": TEXT, "values": [TEXT]}],
}


def check(value: Any, shape: Shape, path: str = "") -> None:
    """Check that a value has the shape. Raises ConfigurationError, which names the first field that does not fit."""
    if value is None:
        return
    if isinstance(shape, str):
        _check_kind(value, shape, path)
    elif isinstance(shape, list):
        items = _sized(value, list, "a list", path)
        for i, item in enumerate(cast("list[Any]", items)):
            check(item, shape[0], f"{path}[{i}]")
    else:
        fields = cast("Mapping[Any, Any]", _sized(value, Mapping, "a mapping", path))
        for name, inner in fields.items():
            if not isinstance(name, str) or len(name) > LONGEST_TEXT:
                raise ConfigurationError(f"{_join(path, str(name)[:80])}: a name is wanted, not {str(name)[:80]!r}")
            where = _join(path, name[:80])
            if isinstance(shape, Map):
                check(inner, shape.values, where)
            elif name not in shape:
                raise ConfigurationError(f"{where}: there is no such field")
            else:
                check(inner, shape[name], where)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _sized(value: Any, kind: type, called: str, path: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(called, value, path)
    if len(cast("list[Any]", value)) > MOST_ITEMS:
        raise ConfigurationError(f"{path}: at most {MOST_ITEMS} entries are wanted")
    return value


def _check_kind(value: Any, kind: str, path: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "a text":
            fits = isinstance(value, str)
        case "true or false":
            fits = isinstance(value, bool)
        case "a whole number":
            fits = number and isinstance(value, int) and abs(value) <= MOST
        case "a number":
            fits = number and abs(value) <= MOST  # not of "not a number" either
        case "a duration such as 30s":
            fits = isinstance(value, str) and _is_duration(value)
        case "a label selector":
            check(value, _SELECTOR_FIELDS, path)
            selectors.selector(cast("Mapping[str, Any]", value), path)
            return
        case _:
            return
    if not fits:
        raise _wrong(kind, value, path)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ConfigurationError(f"{path}: at most {LONGEST_TEXT} characters are wanted")


def _is_duration(value: str) -> bool:
    try:
        quantity.parse_duration(value)
    except ValueError:
        return False
    return True


def _wrong(wanted: str, value: Any, path: str) -> ConfigurationError:
    return ConfigurationError(f"{path or 'the configuration'}: {wanted} is wanted, not {str(value)[:80]!r}")
