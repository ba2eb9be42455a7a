"""Every recorded placement, field by field; and that the comparison would notice a difference in any of them."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.tas_vectors import compare

VECTORS = Path(__file__).parent.parent / "data" / "vectors"
FILES = {"tas-1": 120, "tas-2": 100, "tas-3": 87, "tas-4": 69, "tas-5": 93}


def read(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_scenario_agrees(name: str) -> None:
    recorded = read(name)
    differing = {
        line["scenario"]["name"]: difference
        for line in recorded
        if (difference := compare(line["scenario"], line["result"])) is not None
    }
    assert differing == {}
    assert len(recorded) == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_the_order_of_nodes_and_usage_does_not_matter(name: str) -> None:
    for line in read(name):
        scenario = copy.deepcopy(line["scenario"])
        scenario["nodes"].reverse()
        scenario["used"] = list(reversed(scenario.get("used") or []))
        assert compare(scenario, line["result"]) is None


def change_ok(result: dict[str, Any]) -> None:
    result["ok"] = not result["ok"]


def change_count(result: dict[str, Any]) -> None:
    result["podSets"][0]["domains"][-1]["count"] += 1


def change_host(result: dict[str, Any]) -> None:
    result["podSets"][0]["domains"][0]["values"] = ["elsewhere"]


def drop_domain(result: dict[str, Any]) -> None:
    result["podSets"][0]["domains"].pop()


def add_pod_set(result: dict[str, Any]) -> None:
    result["podSets"].append({"podSet": "more", "failure": ""})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_ok, "result.ok"),
        (change_count, "].count: recorded"),
        (change_host, "result.podSets[0].domains[0].values: recorded ['elsewhere'"),
        (drop_domain, "result.podSets[0].domains: recorded"),
        (add_pod_set, "result.podSets: recorded 2 entries, the engine gives 1"),
    ],
)
def test_a_difference_is_named(change: Any, words: str) -> None:
    line = next(line for line in read("tas-1") if line["result"]["ok"])
    change(line["result"])
    difference = compare(line["scenario"], line["result"])
    assert difference is not None
    assert words in difference


def test_a_changed_failure_text_is_named() -> None:
    line = next(line for line in read("tas-1") if not line["result"]["ok"])
    line["result"]["podSets"][0]["failure"] += "."
    assert "failure: recorded" in (compare(line["scenario"], line["result"]) or "")
