"""The drawn pictures of docs/pictures/: an SVG in light colours, written by hand, and its dark form, which is made of it.

    python -m scripts.pictures.diagrams     writes the dark forms anew

A group `data-after="N"` of a page of docs/concepts shows the jobs after its N-th block of decisions; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.pictures.shots import FOLDER

#: the dashboard's colours: light -> dark
COLOURS: Final = {
    "#182023": "#e3eaec",  # text
    "#556166": "#98a7ad",  # quiet text
    "#ffffff": "#06181b",  # text on bars
    "#f4f6f6": "#141c1f",  # ground
    "#d3dbdd": "#2a373c",  # free
    "#2b8a9c": "#3f9fb1",  # used
    "#8a5fb4": "#b795dc",  # of another team, or urgent
    "#a8d0d7": "#275059",  # starting
    "#96690b": "#d3a84a",  # waiting
    "#8a979c": "#66777e",  # lines
}
_COLOUR: Final = re.compile("#[0-9a-f]{6}")


def sources() -> list[Path]:
    return sorted(FOLDER.glob("*-light.svg"))


def dark_form(light: Path) -> Path:
    return light.with_name(light.name.replace("-light", "-dark"))


def darkened(text: str) -> str:
    """The drawing in dark colours. Raises KeyError for a colour that has no dark one."""
    return _COLOUR.sub(lambda found: COLOURS[found[0]], text)


def files() -> Iterator[Path]:
    """All drawings, light and dark."""
    for light in sources():
        yield light
        yield dark_form(light)


if __name__ == "__main__":
    for each in sources():
        dark_form(each).write_text(darkened(each.read_text()))
