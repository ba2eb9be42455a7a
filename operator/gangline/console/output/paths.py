"""Paths into JSON, as in kubectl's custom columns: `.metadata.name`, `.flavors[0]`, `.occupants[*].job`, `.amounts['a.b/c']`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from gangline import bounded

#: characters of the longest path, and of the longest list of columns
LONGEST: Final = 1000
LONGEST_COLUMNS: Final = 10_000
#: what is printed where there is nothing
NONE: Final = "<none>"
_STEP: Final = re.compile(
    r"\.?(?P<word>(?:[\w/@:-]|\\.)+)|\.?\[(?:'(?P<quoted>[^']*)'|(?P<number>\d{1,9})|(?P<all>\*))\]"
)
_ESCAPED: Final = re.compile(r"\\(.)")


class PathError(ValueError):
    """Says that a text is no path, and quotes it."""


@dataclass(frozen=True, slots=True)
class Path:
    """Steps: a name, a number, or None for all elements of a list."""

    steps: tuple[str | int | None, ...]

    def values(self, found: Any) -> list[Any]:
        """The values to which the path leads; none for a path that leads nowhere."""
        values = [found]
        for step in self.steps:
            values = [below for value in values for below in _below(value, step)]
        return [value for value in values if value is not None]

    def text(self, found: Any) -> str:
        return ",".join(map(_text, self.values(found))) or NONE


def _refusal(text: str) -> Exception:
    return PathError(f"{bounded.shown(text)} is too long")


@bounded.parser(LONGEST, refuse=_refusal, worst=("a", ".", "\\", "[0]", "['"))
def path(text: str) -> Path:
    """Parse a path. Raises PathError."""
    rest = text.strip()
    if rest.startswith("{") and rest.endswith("}"):
        rest = rest[1:-1].strip()
    whole, at = rest, 0
    steps: list[str | int | None] = []
    while at < len(whole):
        step = _STEP.match(whole, at)
        if step is None:
            raise PathError(f"{bounded.shown(text)} is no path such as .name, .flavors[0] or .occupants[*].job")
        at = step.end()
        steps.append(_step(step))
    return Path(tuple(steps))


def _step(found: re.Match[str]) -> str | int | None:
    if found["word"] is not None:
        return _ESCAPED.sub(r"\1", found["word"])
    if found["quoted"] is not None:
        return found["quoted"]
    return None if found["all"] else bounded.whole(found["number"])


@bounded.parser(LONGEST_COLUMNS, refuse=_refusal, worst=("a:", "a:.b,", ","))
def columns(text: str) -> tuple[tuple[str, Path], ...]:
    """Parse `HEADER:PATH,…`. Raises PathError."""
    found: list[tuple[str, Path]] = []
    for part in text.split(","):
        header, colon, where = part.partition(":")
        if not header.strip() or not colon or not where.strip():
            raise PathError(f"custom-columns: {bounded.shown(part)} must be HEADER:PATH, such as NAME:.jobName")
        found.append((header.strip(), path(where)))
    return tuple(found)


def _below(value: Any, step: str | int | None) -> list[Any]:
    if step is None:
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if isinstance(step, int):
        return [value[step]] if isinstance(value, list) and step < len(value) else []
    return [value[step]] if isinstance(value, dict) and step in value else []


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + " ".join(map(_text, value)) + "]"
    return "{" + " ".join(f"{k}:{_text(v)}" for k, v in value.items()) + "}" if isinstance(value, dict) else str(value)
