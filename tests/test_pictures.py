"""The pictures in docs/pictures/: pages show no other ones, screenshots are made by `make pictures`, drawings have a dark form,
and all stay small.
"""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from scripts import links
from scripts.pictures import diagrams, png, shots

ROOT = Path(__file__).parents[1]
PICTURE = re.compile(r"\b(?:src|srcset)=\"([^\"]+\.(?:png|svg))\"|!\[[^\]]*\]\(([^)\s]+\.(?:png|svg))\)")
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
    assert there == {*shots.files(), *diagrams.files()}
    assert there <= set(shown())


@pytest.mark.parametrize("shot", shots.SHOTS, ids=lambda shot: shot.name)
def test_pages_show_the_light_and_the_dark_form_together(shot: shots.Shot) -> None:
    seen = shown()
    light, dark = (seen[shot.file(theme)] for theme in shots.THEMES)
    assert light == dark


@pytest.mark.parametrize("light", diagrams.sources(), ids=lambda light: light.stem)
def test_drawings_have_a_dark_form_and_say_what_they_show(light: Path) -> None:
    dark = diagrams.dark_form(light)
    assert shown()[light] == shown()[dark]
    assert dark.read_text() == diagrams.darkened(light.read_text()), "python -m scripts.pictures.diagrams"
    text = light.read_text()
    assert "<title" in text and "<desc" in text and "<script" not in text and "href" not in text
    assert light.stat().st_size < 8_000


def test_pictures_are_small_and_of_one_size() -> None:
    files = list(shots.files())
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", head[16:24]) == (shots.WIDTH, shots.HEIGHT)


def written(pixels: np.ndarray) -> bytes:
    """A PNG as browsers write it: each row with another filter."""
    height, width, _ = pixels.shape
    rows = pixels.astype(np.int16).reshape(height, -1)
    raw = b""
    for number, row in enumerate(rows):
        above = rows[number - 1] if number else np.zeros_like(row)
        left = np.concatenate([np.zeros(3, np.int16), row[:-3]])
        corner = np.concatenate([np.zeros(3, np.int16), above[:-3]])
        near = left + above - corner
        far = [np.abs(near - each) for each in (left, above, corner)]
        paeth = np.where((far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], above, corner))
        guesses = (np.zeros_like(row), left, above, (left + above) // 2, paeth)
        raw += bytes([number % 5]) + ((row - guesses[number % 5]) & 255).astype(np.uint8).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(png._chunk(kind, data) for kind, data in parts)


def read_palette(data: bytes) -> np.ndarray:
    """The pixels of a picture with a palette and without filters."""
    width, height = struct.unpack(">II", data[16:24])
    at = data.index(b"PLTE")
    palette = np.frombuffer(data[at + 4 : at + 4 + struct.unpack(">I", data[at - 4 : at])[0]], np.uint8).reshape(-1, 3)
    at = data.index(b"IDAT")
    raw = zlib.decompress(data[at + 4 : at + 4 + struct.unpack(">I", data[at - 4 : at])[0]])
    return palette[np.frombuffer(raw, np.uint8).reshape(height, width + 1)[:, 1:]]


def test_a_picture_of_few_colours_stays_as_it_is() -> None:
    drawn = np.random.default_rng(1)
    pixels = drawn.integers(0, 256, (200, 3), np.uint8)[drawn.integers(0, 200, (40, 60))]
    assert np.array_equal(read_palette(png.reduced(written(pixels))), pixels)


def test_a_picture_of_many_colours_changes_little() -> None:
    across = np.linspace(0, 255, 120)
    pixels = np.stack(
        [np.tile(across, (80, 1)), np.tile(255 - across, (80, 1)), np.tile(across[:80, None], (1, 120))], 2
    )
    pixels = pixels.astype(np.uint8)
    pixels[:40] = 250  # what most of a page is
    seen = read_palette(png.reduced(written(pixels)))
    assert np.array_equal(seen[:40], pixels[:40])
    assert np.abs(seen.astype(int) - pixels.astype(int)).mean() < 8
