"""The logs of histories as they are to be: tests/data/histories."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.engine.histories.configuration import THEMES

RECORDED: Final = Path(__file__).parents[2] / "data/histories"
#: histories per theme
NUMBERS: Final = 8


def names() -> list[tuple[str, int]]:
    return [(theme, number) for number in range(NUMBERS) for theme in THEMES]


def recorded(theme: str, number: int) -> list[str]:
    with gzip.open(RECORDED / f"{theme}-{number}.txt.gz", "rt") as file:
        return file.read().splitlines()


def difference(expected: Sequence[str], found: Sequence[str]) -> str:
    """Where two logs part, with what came before; "" if they are equal."""
    for position, (old, new) in enumerate(zip(expected, found, strict=False)):
        if old != new:
            before = "\n".join(expected[max(0, position - 12) : position])
            return f"{before}\n- {old}\n+ {new}"
    return "" if len(expected) == len(found) else f"one ends after {min(len(expected), len(found))} lines"
