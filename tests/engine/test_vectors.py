"""Every recorded decision of Kueue's scheduler is the engine's decision, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.conformance.vectors import command, compare, read

VECTORS = Path(__file__).parent.parent / "data" / "vectors"
FILES = sorted(VECTORS.glob("tier-*.jsonl.gz"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".jsonl.gz"))
def test_every_scenario_agrees_in_every_field(file: Path) -> None:
    differences = [
        f"{scenario['name']}: {difference}"
        for scenario, result in read(file)
        if (difference := compare(scenario, result)) is not None
    ]
    assert not differences


def test_a_large_scenario_agrees_in_what_is_recorded_of_it() -> None:
    scenario, result = next(iter(read(VECTORS / "timing.jsonl.gz")))
    assert compare(scenario, result) is None
    result["cycles"][5]["reserved"].pop()
    assert "cycle 6.reserved" in (compare(scenario, result) or "")


def test_all_tiers_are_there() -> None:
    assert [file.name for file in FILES] == [f"tier-{tier}.jsonl.gz" for tier in range(1, 9)]


def first_scenario() -> tuple[dict[str, object], dict[str, object]]:
    return next(iter(read(FILES[0])))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("heads", ["nobody"]),
        ("order", {}),
        ("active", {"cq": ["nobody"]}),
        ("inadmissible", {}),
        ("requeued", []),
    ],
)
def test_a_difference_in_any_field_is_found(field: str, wrong: object) -> None:
    scenario, result = json.loads(json.dumps(first_scenario()))
    result["cycles"][0][field] = wrong
    difference = compare(scenario, result)
    assert difference is not None
    assert field in difference


@pytest.mark.parametrize("field", ["stop", "final", "usage"])
def test_a_difference_at_the_end_is_found(field: str) -> None:
    scenario, result = json.loads(json.dumps(first_scenario()))
    result[field] = "something else"
    assert field in (compare(scenario, result) or "")


def test_the_command_counts_and_exits_with_1_on_a_difference(tmp_path: Path) -> None:
    scenario, result = json.loads(json.dumps(first_scenario()))
    good = json.dumps({"scenario": scenario, "result": result})
    result["cycles"][0]["heads"] = ["nobody"]
    bad = json.dumps({"scenario": scenario, "result": result})
    file = tmp_path / "mixed.jsonl"
    file.write_text(f"{good}\n{bad}\n")
    run = CliRunner().invoke(command, [str(file)])
    assert run.exit_code == 1
    assert "mixed: 1 of 2 scenarios agree" in run.output
    assert "cycle 1.heads: recorded ['nobody'], the engine gives" in run.output
    assert run.output.splitlines()[-1] == "total: 1 of 2 scenarios agree"


def test_a_file_that_is_no_scenario_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text("{}\n")
    run = CliRunner().invoke(command, [str(file)])
    assert run.exit_code == 1
    assert "line 1: not a recorded scenario" in run.output
