"""The pictures in docs/pictures/: pages show no other ones, all are made by `make pictures`, and they stay small."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from scripts import links
from scripts.pictures import shots

ROOT = Path(__file__).parents[1]
PICTURE = re.compile(r"\b(?:src|srcset)=\"([^\"]+\.png)\"|!\[[^\]]*\]\(([^)\s]+\.png)\)")
MOST_BYTES = 3_000_000


def shown() -> dict[Path, set[Path]]:
    """Picture -> the pages that show it."""
    found: dict[Path, set[Path]] = {}
    for page in links.pages():
        for one, other in PICTURE.findall(page.read_text(encoding="utf-8")):
            found.setdefault((page.parent / (one or other)).resolve(), set()).add(page)
    return found


def test_each_picture_that_a_page_shows_is_there() -> None:
    assert {path for path in shown() if not path.is_file()} == set()
    assert len(shown()) >= 2 * len(shots.SHOTS)


def test_each_picture_is_shown_by_a_page_and_made_by_the_script() -> None:
    there = set(shots.FOLDER.iterdir())
    assert there == set(shots.files())
    assert there <= set(shown())


@pytest.mark.parametrize("shot", shots.SHOTS, ids=lambda shot: shot.name)
def test_pages_show_the_light_and_the_dark_form_together(shot: shots.Shot) -> None:
    seen = shown()
    light, dark = (seen[shot.file(theme)] for theme in shots.THEMES)
    assert light == dark


def test_pictures_are_small_and_of_one_size() -> None:
    files = list(shots.files())
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", head[16:24]) == (shots.WIDTH, shots.HEIGHT)
