"""The findings of checks: one line each, with advice."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

#: `failure`: something does not work, or stops working; `unknown`: the check could not be made
Verdict = Literal["ok", "warning", "failure", "unknown"]

SYMBOLS: Final[dict[Verdict, str]] = {"ok": "✓", "warning": "!", "failure": "✗", "unknown": "?"}
#: names of objects in one line
SHOWN: Final = 3
#: characters of a text from the cluster in one line
LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of the check named `check`. `objects`: the objects concerned, at most `SHOWN` of them."""

    verdict: Verdict
    detail: str
    advice: str = ""
    objects: tuple[str, ...] = ()
    check: str = ""

    def as_json(self, verdict: str) -> dict[str, Any]:
        return {
            "check": self.check,
            "verdict": verdict,
            "detail": self.detail,
            "advice": self.advice,
            "objects": list(self.objects),
        }


def ok(detail: str) -> Finding:
    return Finding("ok", short(detail))


def warning(detail: str, advice: str, objects: Collection[str] = ()) -> Finding:
    return Finding("warning", short(detail), advice, _first(objects))


def failure(detail: str, advice: str, objects: Collection[str] = ()) -> Finding:
    return Finding("failure", short(detail), advice, _first(objects))


def unknown(detail: str, advice: str = "") -> Finding:
    return Finding("unknown", short(detail), advice)


def some(objects: Collection[str]) -> str:
    """The first names, and how many more there are."""
    first = ", ".join(_first(objects))
    return first if len(objects) <= SHOWN else f"{first} and {len(objects) - SHOWN} more"


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `2 ClusterQueues`."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def short(text: str) -> str:
    """One line of printable characters: texts from the cluster may hold anything."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * LONGEST]).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _first(objects: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(short, objects))[:SHOWN])
