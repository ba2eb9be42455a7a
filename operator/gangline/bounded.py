"""Limits on text and JSON from outside: user input is measured before it is read.

Every function that reads a text from outside is marked with `parser`, which refuses too long a text before the function sees
it, and lists the function in `PARSERS`: a test feeds each of them the worst megabyte it can make. Lengths are characters, sizes
bytes, depths levels of nested objects and lists.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import accumulate
from typing import Any, Final, ParamSpec, TypeVar

import orjson

P = ParamSpec("P")
T = TypeVar("T")

#: digits of the longest whole number that is read: it fits in 64 bits
MOST_DIGITS: Final = 18
#: levels of the deepest JSON that is read: a pod has about ten, a schema in a custom resource rarely thirty
MOST_DEPTH: Final = 100
#: values in the largest JSON that is read: every object and list, and everything that stands in one
MOST_VALUES: Final = 1_000_000
#: characters of a user's text that a message quotes
SHOWN: Final = 80

_NOTHING: Final[Any] = object()


class TooLongError(ValueError):
    """A text is longer than its reader allows."""


class BadJsonError(ValueError):
    """The text is not JSON, or not within the limits of its reader; the message says which."""


class TooLargeJsonError(BadJsonError):
    """JSON of too many bytes, levels or values."""


@dataclass(frozen=True, slots=True)
class Parser:
    """A function that reads a text from outside. `worst` are pieces that, repeated, are hard for it to read."""

    name: str
    longest: int
    call: Callable[..., Any]
    worst: tuple[str, ...] = ()


#: every marked function by its module and name
PARSERS: Final[dict[str, Parser]] = {}


def parser(
    longest: int,
    *,
    refuse: Callable[[str], Exception] | None = None,
    instead: Any = _NOTHING,
    worst: tuple[str, ...] = (),
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Marks a function whose first argument is a text from outside, and keeps texts longer than `longest` from it.

    For such a text `refuse(text)` is raised, or `instead` is returned; without either a TooLongError is raised.
    """

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def measured(*args: P.args, **named: P.kwargs) -> T:
            text = args[0]
            if isinstance(text, str) and len(text) > longest:
                if instead is not _NOTHING:
                    return instead
                raise refuse(text) if refuse else TooLongError(f"{shown(text)} is longer than {longest} characters")
            return function(*args, **named)

        name = f"{function.__module__}.{function.__qualname__}"
        PARSERS[name] = Parser(name, longest, measured, worst)
        return measured

    return mark


def shown(text: object, most: int = SHOWN) -> str:
    """The text in a message: in quotes, cut to a maximum length."""
    if isinstance(text, str):
        text = text[: most + 1]
    quoted = repr(text)
    return quoted if len(quoted) <= most else quoted[: most - 3] + "..."


def some(words: Iterable[str], most: int, *, of: int = 0) -> str:
    """The first words, and how many more there are; `of` is the number of all, if there are more than `words`.

    >>> some(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    items = list(words)
    more = max(of, len(items)) - min(most, len(items))
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


#: what a terminal shows as nothing, though Unicode calls them letters, symbols and marks
_BLANK: Final = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0))


class _Printable(dict[int, str]):
    """Code point -> what is printed in its place, found when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        kind = unicodedata.category(char)
        # control, format (bidi overrides, zero width), surrogate, private, unassigned; line and paragraph separators
        hidden = kind[0] == "C" or kind in ("Zl", "Zp") or code in _BLANK
        self[code] = found = "�" if hidden else " " if kind == "Zs" else char
        return found


_PRINTABLE: Final = _Printable()


def printable(text: str) -> str:
    r"""The text of somebody else as it may be shown: in place of every character that moves a cursor, changes the direction of
    writing or cannot be seen stands `�`.

    >>> printable("a\x1b[2Jb\u202ec")
    'a�[2Jb�c'
    """
    return text if text.isascii() and text.isprintable() else text.translate(_PRINTABLE)


@parser(MOST_DIGITS, instead=None, worst=("9", "0", "٣"))
def whole(text: str | None) -> int | None:
    """A whole number from 0, in ASCII digits only; None for anything else, and for too many digits."""
    return int(text) if text and text.isascii() and text.isdigit() else None


def load_json(
    data: bytes | str, *, most_bytes: int, most_depth: int = MOST_DEPTH, most_values: int = MOST_VALUES
) -> Any:
    """A JSON document. Raises BadJsonError.

    The limits are checked on the text: what is over them never becomes objects, which take up to fifty times its memory.
    """
    if len(data) > most_bytes:
        raise TooLargeJsonError(f"JSON of more than {most_bytes} bytes")
    _measure(data, most_depth, most_values)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadJsonError(f"not JSON: {str(error)[:SHOWN]}") from None


#: what opens a value, ends it, or stands around a text
_STRUCTURE: Final = b'"[]{},'
_OTHER: Final = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
#: as signed bytes: one level more, and one less
_LEVELS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _measure(data: bytes | str, most_depth: int, most_values: int) -> None:
    """Check the size of a JSON text. Raises TooLargeJsonError for a text with more levels or values. Every step is one pass over
    the text in C.

    Of a text that is no JSON only the part before the first mistake counts, which a decoder would read as well.
    """
    if _opened(data) <= most_depth and _counted(data) < most_values:  # brackets and commas in texts included
        return
    structure = _structure(data.encode(errors="surrogatepass") if isinstance(data, str) else data, most_values)
    if _counted(structure) >= most_values:
        raise TooLargeJsonError(f"JSON of more than {most_values} values")
    levels = memoryview(structure.translate(_LEVELS, b",")).cast("b")
    if max(accumulate(levels), default=0) > most_depth:
        raise TooLargeJsonError(f"JSON of more than {most_depth} levels")


def _opened(data: bytes | str) -> int:
    """How many brackets are opened, those in texts included."""
    return data.count("{") + data.count("[") if isinstance(data, str) else data.count(b"{") + data.count(b"[")


def _counted(data: bytes | str) -> int:
    """An upper bound of the number of values without the outermost one: each is the first in an object or a list, or follows a
    comma.
    """
    return _opened(data) + (data.count(",") if isinstance(data, str) else data.count(b","))


def _structure(data: bytes, most_values: int) -> bytes:
    """The brackets and commas outside of texts. Raises TooLargeJsonError if there are more texts than values are allowed."""
    kept = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHER).replace(b'""', b"")
    quotes = kept.count(b'"')
    if quotes > 4 * most_values:  # a name and a text for each
        raise TooLargeJsonError(f"JSON of more than {most_values} values")
    return b"".join(kept.split(b'"')[::2]) if quotes else kept


def load_shallow(data: bytes, most_depth: int = MOST_DEPTH) -> Any:
    """A JSON document in which values nested too deeply are null, so that the rest of it can be read.

    For answers with many objects, one of which may be undecodable. Raises BadJsonError.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        try:
            return orjson.loads(_cut(data, most_depth))
        except orjson.JSONDecodeError:
            raise BadJsonError(f"not JSON: {str(error)[:SHOWN]}") from None


#: a text, or the beginning or end of an object or a list
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def _cut(data: bytes, most_depth: int) -> bytes:
    """The text with `null` in place of everything below this many levels. Looks at each token once."""
    kept: list[bytes] = []
    depth, begin = 0, 0
    for token in _TOKEN.finditer(data):
        match token.group():
            case b"{" | b"[":
                depth += 1
                if depth == most_depth + 1:
                    kept += (data[begin : token.start()], b"null")
            case b"}" | b"]":
                if depth == most_depth + 1:
                    begin = token.end()
                depth -= 1
            case _:
                pass
    return b"".join((*kept, data[begin:])) if depth <= most_depth else b""


#: characters of the longest name of a time zone
LONGEST_ZONE: Final = 64
#: what such a name looks like
ZONE: Final = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$"
_ZONE: Final = re.compile(ZONE)


def _no_zone(name: object) -> ValueError:
    return ValueError(f"there is no time zone {shown(name)}")


@parser(LONGEST_ZONE, refuse=_no_zone, worst=("Europe/", "../", "A", "/", "\x00"))
def time_zone(name: str) -> tzinfo:
    """The time zone of this name, such as Europe/Berlin. Raises ValueError."""
    if name == "UTC":  # which needs no data about zones
        return UTC
    if not _ZONE.fullmatch(name):
        raise _no_zone(name)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # the names of its folders are no zones
        raise _no_zone(name) from None
