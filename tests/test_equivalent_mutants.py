"""The list of mutants that no test can tell from the original: it speaks of the engine as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTRIES = tomllib.loads((ROOT / "tests/engine/equivalent_mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{Path(entry['file']).name}: {entry['becomes']}")
def test_an_equivalent_mutant_is_of_a_line_that_is_there(entry: dict[str, str]) -> None:
    lines = [line.strip() for line in (ROOT / entry["file"]).read_text().splitlines()]
    assert entry["line"] in lines
    assert entry["becomes"] != entry["line"]
    assert entry["why"]
