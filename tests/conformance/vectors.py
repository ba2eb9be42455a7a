"""Recorded scenarios, read from files and run through the engine: `python -m tests.conformance FILE…` prints the differences."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from tests.conformance import tas_vectors
from tests.conformance.scheduling_vectors import compare as compare_scheduling

from gangline import bounded
from gangline.console.output import terminal
from gangline.files import read_lines
from gangline.kube.resources import Json


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def command(files: tuple[Path, ...]) -> None:
    """Run recorded scenarios (scheduling or topology placement, .jsonl or .jsonl.gz) through the engine.

    Prints per file how many scenarios agree in every recorded field, and the first differing field of each other scenario.
    """
    total = agreed = 0
    for file in files:
        count = good = 0
        for number, (scenario, result) in enumerate(read(file), start=1):
            difference = compare(scenario, result)
            count += 1
            if difference is None:
                good += 1
            else:
                terminal.say(f"{file.name}, line {number}, {scenario.get('name', 'unnamed')}: {difference}")
        terminal.say(f"{_name(file)}: {good} of {count} scenarios agree")
        total, agreed = total + count, agreed + good
    terminal.say(f"total: {agreed} of {total} scenarios agree")
    sys.exit(0 if agreed == total else 1)


def compare(scenario: Json, result: Json) -> str | None:
    """Compare an outcome with the recorded one: None if the engine agrees in every field, otherwise the first
    difference as text.
    """
    if "levels" in scenario or "nodes" in scenario:
        return tas_vectors.compare(scenario, result)
    return compare_scheduling(scenario, result)


#: bytes of a scenario, and of a file of them, unpacked
LONGEST_LINE: Final = 16 * 2**20
MOST_BYTES: Final = 2**30


def read(file: Path) -> Iterator[tuple[Json, Json]]:
    """The scenarios of a file with their recorded results."""
    try:
        for number, line in enumerate(read_lines(file, longest=LONGEST_LINE, most=MOST_BYTES), start=1):
            if not line.strip():
                continue
            try:
                entry = bounded.load_json(line, most_bytes=LONGEST_LINE)
                yield entry["scenario"], entry["result"]
            except (ValueError, KeyError, TypeError) as error:
                raise click.ClickException(f"{file}, line {number}: not a recorded scenario: {error!r}") from error
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be read: {error.strerror or error}") from error


def _name(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".jsonl")
