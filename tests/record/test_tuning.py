"""`gangline admin tune`: what is better for certain is proposed as a QueuePolicy, and what may be chance is not."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.record import clusters

from gangline.console.cli import main
from gangline.console.replaying import policy_file
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert
from gangline.record.advice import tuning
from gangline.record.advice.tuning import PolicyRun, interval
from gangline.record.recorder import Recorder


def tune(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(
        main,
        ["admin", "tune", str(folder), "--workers", "1", "--tries", "2", "--runs", "3", "--longer-tail", "3", *options],
    )


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shortest first would help, and hints say how long jobs run."""
    folder = tmp_path_factory.mktemp("crowded")
    clusters.busy(folder, 300, gpus=2, sizes=(1,), load=0.95)
    return folder


@pytest.fixture(scope="module")
def proposed(crowded: Path) -> Result:
    result = tune(crowded, "--predictor", "true")
    assert result.exit_code == 0, result.output
    return result


def test_a_policy_is_proposed_that_a_replay_reads(proposed: Result) -> None:
    text = proposed.stdout
    document = yaml.safe_load(text)
    assert (document["kind"], document["metadata"]["name"]) == ("QueuePolicy", "tuned")
    assert document["spec"]["clusterQueues"] == {"names": ["cq"]}
    assert {"order", "backfill"} & document["spec"].keys()
    ((policy,), notes) = policy_file.read(text, "proposed")
    assert policy.name == "tuned" and not notes
    assert "95 % interval +" in text and "Risk: p99 of waits" in text


def test_the_same_seed_proposes_the_same(crowded: Path, proposed: Result, tmp_path: Path) -> None:
    again = tune(crowded, "--predictor", "true", "-o", str(tmp_path / "policy.yaml"))
    assert again.exit_code == 0, again.output
    assert (tmp_path / "policy.yaml").read_text() == proposed.stdout and not again.stdout


def test_nothing_is_proposed_where_nobody_waits(tmp_path: Path) -> None:
    clusters.busy(tmp_path, 200, gpus=64, sizes=(1, 2), load=0.05)
    result = tune(tmp_path, "--predictor", "true")
    assert result.exit_code == 1 and not result.stdout
    assert "nothing is proposed" in result.stderr


def test_nothing_is_proposed_when_the_time_is_up(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_SEARCH", 0.0)  # the share of the time that the search has
    result = tune(crowded, "--predictor", "true", "--tries", "1000", "--runs", "100")
    assert result.exit_code == 1 and not result.stdout
    assert "the time is up" in result.stderr


def test_too_short_a_record_is_said(tmp_path: Path) -> None:
    clusters.busy(tmp_path, 30)
    result = tune(tmp_path, "--predictor", "true")
    assert result.exit_code == 1 and "at least 50 are needed" in result.stderr


def test_a_record_without_jobs_where_they_are_needed_is_told_in_dates(tmp_path: Path) -> None:
    """No option was given, so none is named."""
    early = Recorder(tmp_path, clusters.Clock(clusters.BEGIN - 60 * 86_400_000))
    early.observe(kube.QUEUE_POLICIES, Upsert(clusters.policy("ours")))
    early.close()
    clusters.busy(tmp_path, 100)
    result = tune(tmp_path, "--predictor", "true")
    assert result.exit_code == 1 and "--from" not in result.stderr and "Unix" not in result.stderr
    assert re.search(
        r"no job that ran was submitted from [\d-]{10} [\d:]{8} UTC to .* UTC; the record runs", result.stderr
    )


def test_the_policy_in_force_is_changed_and_keeps_its_other_parts(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, clusters.Clock())
    parts = {"preemption": {"minRuntime": "10m"}, "order": {"key": "SmallestFirst"}, "notify": [{"url": "https://x"}]}
    recorder.observe(kube.QUEUE_POLICIES, Upsert(clusters.policy("ours", **parts)))
    recorder.close()
    clusters.busy(tmp_path, 250, gpus=2, sizes=(1,), load=0.95)
    result = tune(tmp_path, "--predictor", "true", "--for", "slowdown")
    assert result.exit_code == 0, result.output
    document = yaml.safe_load(result.stdout)
    assert document["metadata"]["name"] == "ours"
    assert document["spec"]["preemption"] == {"minRuntime": "10m"}
    assert document["spec"].get("order", {}).get("key") != "SmallestFirst"
    assert "add yours" in result.stdout


def test_queues_are_chosen_by_name(crowded: Path) -> None:
    result = tune(crowded, "-q", "unknown")
    assert result.exit_code == 1 and "--cluster-queue unknown: the record has cq" in result.stderr


def test_every_candidate_is_a_valid_policy() -> None:
    for lost, saving in ((0.01, True), (0.0, True), (0.01, False)):
        found = tuning.tried(100, 7, lost, saving=saving)
        assert len({repr(spec) for spec in found}) == len(found) == 100
        for number, parts in enumerate(found):
            assert lost > 0 or not {"revoke", "giveWay"} & parts.get("backfill", {}).keys()
            assert saving or "giveWay" not in parts.get("backfill", {})
            name = f"p{number}"
            document = {"kind": "QueuePolicy", "metadata": {"name": name}, "spec": {"clusterQueues": {}, **parts}}
            policy_file.read(yaml.safe_dump(document), name)
    assert tuning.tried(40, 7, 0.01, saving=True) == tuning.tried(40, 7, 0.01, saving=True)
    assert tuning.tried(40, 7, 0.01, saving=True) != tuning.tried(40, 8, 0.01, saving=True)


def run(waits: list[float]) -> PolicyRun:
    return PolicyRun(np.arange(len(waits)) * 3.6e6, np.array(waits), np.full(len(waits), 600.0), 0.0)


def test_the_interval_of_pure_chance_holds_zero() -> None:
    """Pairs that differ by noise alone: the interval leaves zero out in about one of twenty."""
    wrong = 0
    for seed in range(16):
        chance = random.Random(seed)
        pairs = [
            (run([chance.expovariate(0.01) for _ in range(300)]), run([chance.expovariate(0.01) for _ in range(300)]))
        ]
        found = interval(pairs * 3, "mean", seed)
        wrong += not found.low <= 0 <= found.high
    assert wrong <= 3


def test_a_gain_on_one_day_alone_is_not_certain_and_one_on_all_days_is() -> None:
    usual = [100.0] * 240
    one_day = [100.0] * 230 + [0.0] * 10
    every = [70.0] * 240
    one = interval([(run(usual), run(one_day))] * 3, "mean", 1)
    assert one.gain > 0 and one.low <= 0
    all_days = interval([(run(usual), run(every))] * 3, "mean", 1)
    assert (all_days.low, all_days.high) == pytest.approx((0.3, 0.3))
