"""`gangline admin replay` from a trace file to its report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from tests.replay.jobs import trace_jobs

from gangline import traces
from gangline.console.cli import main

DAY = 86400


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve days: ten to learn from, and two more."""
    path = tmp_path_factory.mktemp("trace") / "made.csv.gz"
    traces.write(path, trace_jobs(700, days=12.0))
    return path


def replay(trace: Path, out: Path, *options: str) -> Result:
    fixed = ("--gpus", "32", "--train-until", str(10 * DAY), "--from", str(10 * DAY), "--workers", "1")
    return CliRunner().invoke(main, ["admin", "replay", str(trace), *fixed, "--out", str(out), *options])


@pytest.fixture(scope="module")
def done(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    out = tmp_path_factory.mktemp("out")
    result = replay(
        trace,
        out,
        "--policy",
        "besteffort,easy,gangline,gangline-any",
        "--jitter",
        "1",
        "--workers",
        "2",
        "--to",
        str(11 * DAY),
    )
    assert result.exit_code == 0, result.output
    return json.loads((out / "replay.json").read_text()), (out / "report.html").read_text(), result.output


def test_the_json_has_every_policy_with_every_measure(done: tuple[dict[str, Any], str, str]) -> None:
    document, _, _ = done
    assert list(document["policies"]) == ["besteffort", "easy", "gangline", "gangline-any"]
    for measures in document["policies"].values():
        for name in ("wait", "wait_gt8", "wait_le8", "jct"):
            assert {"mean", "p50", "p90", "p99", "max"} <= measures[name].keys()
        assert measures["finished"] == measures["jobs"] > 30
        assert measures["unfinished"] == 0
        assert measures["shaken"]["runs"] == 1
        assert 0 < measures["utilisation"] <= 1
        assert measures["replay_seconds"] > 0
    assert document["policies"]["besteffort"]["evictions"] == 0


def test_promises_are_kept(done: tuple[dict[str, Any], str, str]) -> None:
    document, _, _ = done
    assert document["policies"]["gangline"]["head_delay_backfill_seconds"] == 0
    assert document["policies"]["gangline-any"]["head_delay_backfill_seconds"] == 0


def test_shaken_runs_say_what_they_promised(done: tuple[dict[str, Any], str, str]) -> None:
    document, _, text = done
    assert document["policies"]["gangline"]["shaken"].keys() >= {"promises_made", "wait_mean"}
    assert "PROMISED: heads that were promised a start; KEPT" in " ".join(text.split())


def test_the_forecasts_are_scored(done: tuple[dict[str, Any], str, str]) -> None:
    document, _, _ = done
    forecast = document["forecast"]
    assert set(forecast["coverage"]) == {"q10", "q50", "q80", "q90", "q95"}
    assert forecast["jobs"] == document["policies"]["gangline"]["jobs"]
    assert forecast["mean_abs_log_error"] < forecast["last_two_mean_abs_log_error"]
    assert set(forecast["by_policy"]) == {"gangline", "gangline-any"}


def test_the_report_is_one_file_that_needs_no_other(done: tuple[dict[str, Any], str, str]) -> None:
    _, page, _ = done
    assert not re.search(r"<script|<link|<img|src=|href=|@import|url\(", page)
    for heading in ("Policies", "Queue delay", "Utilisation over time", "Nodes", "Fairness", "Forecasts"):
        assert f"<h2>{heading}</h2>" in page
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 9
    for drawing in drawings:
        assert len(ElementTree.fromstring(drawing)) > 5
    assert "NaN" not in page and "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", page)


def test_a_row_per_policy_is_printed(done: tuple[dict[str, Any], str, str]) -> None:
    _, _, output = done
    for policy in ("besteffort", "easy", "gangline", "gangline-any"):
        assert re.search(rf"^{policy} .* \d", output, re.MULTILINE)


@pytest.mark.parametrize("predictor", ["true", "limit", "last-two", "random", "noisy"])
def test_other_predictors_and_tenants(trace: Path, tmp_path: Path, predictor: str) -> None:
    result = replay(
        trace, tmp_path, "--policy", "gangline", "--predictor", predictor, "--tenants", "--to", str(11 * DAY),
        "--checkpoint", "none", "-o", "json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    measures = json.loads((tmp_path / "replay.json").read_text())["policies"]["gangline"]
    assert measures["unfinished"] == 0 and measures["finished"] > 20
    assert measures["head_delay_backfill_seconds"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policy", "best"), "--policy best: use some of fifo"),
        (("--gpus", "30"), "--gpus 30 is no multiple"),
        (("--from", "0"), "--train-until must not be after --from"),
        (("--from", str(90 * DAY), "--to", str(91 * DAY)), "no job that asks for GPUs was submitted"),
        (("--to", "0"), "--from must be before --to"),
        (("--limit", "soon"), "is not a duration such as 30m"),
    ],
)
def test_what_is_wrong_is_named(trace: Path, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    result = replay(trace, tmp_path, *options)
    assert result.exit_code != 0
    assert words in result.output
    assert "Traceback" not in result.output
