"""`gangline admin forecast` from a trace file to a forecast."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.forecast.generator import make_runs

from gangline import traces
from gangline.console.cli import main
from gangline.forecast.history.runs import Run
from gangline.traces import TraceJob


def trace_job(run: Run) -> TraceJob:
    assert run.start is not None
    assert run.seconds is not None
    return TraceJob(
        run.uid,
        run.submit,
        run.seconds,
        run.gpus,
        run.user,
        run.queue,
        run.name,
        wait=run.start - run.submit,
        limit=run.limit,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forecast")
    traces.write(path / "trace.csv.gz", map(trace_job, make_runs(2000)))
    return path


def call(place: Path, *words: str) -> Result:
    paths = {"GANGLINE_HISTORY": str(place / "h.db"), "GANGLINE_MODEL": str(place / "model.gz")}
    return CliRunner().invoke(main, ["admin", "forecast", *words], env=paths)


def test_from_a_trace_to_a_forecast(place: Path) -> None:
    assert "no job 'run-1999' in the history" in call(place, "show", "run-1999").output
    outputs = [call(place, "import", str(place / "trace.csv.gz")).output for _ in range(2)]
    assert all("the history holds 2000 runs" in words for words in outputs)
    without = json.loads(call(place, "show", "run-1999", "-o", "json").output)
    assert without["source"] == "History"
    assert "no model yet" in without["model"]

    trained = json.loads(call(place, "train", "--until", str(25 * 86400), "-o", "json").output)
    assert trained["samples"] > 1000
    found = json.loads(call(place, "show", "run-1999", "-o", "json").output)
    assert found["source"] == "Model"
    assert found["samples"] == trained["samples"]
    assert found["forecast"]["q10"] < found["took"] * 20
    early = call(place, "show", "run-50").output
    assert "trained after this job's submission" in early


def test_eval_prints_all_measures(place: Path) -> None:
    words = ["eval", str(place / "trace.csv.gz"), "--train-until", str(20 * 86400), "--to", str(28 * 86400)]
    shown = call(place, *words).stdout
    for expected in ("COVERAGE", "PINBALL", "SPEARMAN", "last-two", "class-median", "request", "queue-1", ">8 GPUs"):
        assert expected in shown
    document = json.loads(call(place, *words, "-o", "json").stdout)
    assert document["overall"]["forecast"]["runs"] == pytest.approx(2000 * 8 / 30, abs=60)
    assert document["overall"]["points"]["request"]["under"] == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["eval", "--train-until", "noon"], "is neither a date"),
        (["eval", "--train-until", "1", "--retrain-every", "soon"], "is not a duration"),
        (["eval", "--train-until", "9", "--from", "5"], "there are no runs"),
        (["train"], "a model needs 200"),
        (["train", "--db", "nosuch://x"], "nosuch"),
        (["import", "{here}/bad.csv"], "not recognised"),
        (
            ["eval", "{here}/one.csv", "--train-until", "9", "--from", "5"],
            "--from 1970-01-01 00:00 lies before --train",
        ),
        (
            ["eval", "{here}/one.csv", "--train-until", "2020-01-01"],
            "no run to test: runs were submitted from 1970-01-01",
        ),
    ],
)
def test_what_goes_wrong_is_said(tmp_path: Path, words: list[str], expected: str) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n")
    (tmp_path / "one.csv").write_text("id,submit,duration,gpus\na,60,5,1\n")
    result = call(tmp_path, *(word.replace("{here}", str(tmp_path)) for word in words))
    assert result.exit_code
    assert expected in result.output
    assert "Traceback" not in result.output


def test_show_says_which_flavor_it_is_for_and_what_it_would_be_on_others(place: Path) -> None:
    from gangline.console.commands.admin.forecast import _by_flavor, _show
    from gangline.forecast.forecaster import Forecaster

    forecaster = Forecaster()
    forecaster.restore(make_runs(200))
    waits = Run("new", 40 * 86400.0, gpus=8, name="train")
    forecaster.submitted(waits)
    assert _by_flavor(forecaster, waits, waits.submit) == {}, "nothing is known of flavors"
    forecaster.compare_flavors({"fast": -0.5, "slow": 0.5})
    there = _by_flavor(forecaster, waits, waits.submit)
    total = forecaster.forecast("new", waits.submit)
    assert total is not None
    assert there["fast"]["q50"] < total.q50 < there["slow"]["q50"]
    forecaster.started("new", waits.submit + 1, "slow")
    runs = Run("new", waits.submit, start=waits.submit + 1, flavor="slow")
    assert _by_flavor(forecaster, runs, waits.submit) == {}, "it runs where it runs"
    answer = {"job": "j", "uid": "new", "forecast": {}, "class": None, "took": None, "model": ""}
    text = _show({**answer, "flavor": None, "byFlavor": there}, total)
    assert "flavor    not known yet: forecast for a flavor of average speed\n  on fast" in text
    assert "flavor    slow\n  took" in _show({**answer, "flavor": "slow", "byFlavor": {}}, total)
