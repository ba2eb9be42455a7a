"""`gangline admin replay --reservation --quota-plan`: files of these over a trace's cluster, and the report on what they cost."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.replay.jobs import trace_jobs

from gangline import traces
from gangline.console.cli import main

DAY = 86_400
#: the trace begins on Thursday, 1 January 1970
FRIDAY = {"days": ["Friday"], "time": "06:00", "duration": "3h"}


def manifest(name: str = "weekly", nodes: Any = None, window: Any = None, owners: Any = None, **spec: Any) -> str:
    chosen = {"anyOf": {"flavor": "h100", "count": 1}} if nodes is None else nodes
    if owners is not None:
        spec["for"] = owners
    body = {"window": {"schedule": FRIDAY} if window is None else window, "nodes": chosen, **spec}
    return yaml.safe_dump(
        {"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": body}
    )


def replay(folder: Path, text: str, *options: str, days: float = 3.0) -> Result:
    trace, file = folder / "trace.csv.gz", folder / "reserved.yaml"
    traces.write(trace, trace_jobs(200, days=days))
    file.write_text(text)
    fixed = ("--gpus", "32", "--workers", "1", "--predictor", "true", "--policy", "easy-true", "--out", str(folder))
    return CliRunner().invoke(
        main, ["admin", "replay", str(trace), *fixed, "--reservation", str(file), *options], catch_exceptions=False
    )


def test_a_policy_is_played_beside_itself_without_windows_and_as_a_drain(tmp_path: Path) -> None:
    result = replay(tmp_path, manifest())
    assert result.exit_code == 0, result.output
    body = json.loads((tmp_path / "replay.json").read_text())
    assert list(body["policies"]) == ["easy-true", "easy-true-without", "easy-true-drain"]
    by_policy = {name: measures["windows"] for name, measures in body["policies"].items()}
    (window,) = by_policy["easy-true"]["each"]
    assert datetime.fromtimestamp(window["stops"], UTC).isoformat() == "1970-01-02T05:59:00+00:00"
    assert datetime.fromtimestamp(window["end"], UTC).isoformat() == "1970-01-02T09:00:00+00:00"
    assert window["nodes"] == 1 and len(window["busy_by_hour_before"]) == 24
    assert (
        by_policy["easy-true"]["gpu_hours_of_others_inside"]
        == by_policy["easy-true-drain"]["gpu_hours_of_others_inside"]
        == 0
    )
    assert by_policy["easy-true-without"]["gpu_hours_of_others_inside"] > 0
    assert by_policy["easy-true"]["stopped"] == by_policy["easy-true-without"]["stopped"] == 0
    assert by_policy["easy-true-drain"]["gpu_hours_lost"] > 0
    (cost,) = body["windows"]
    assert cost["policy"] == "easy-true" and cost["lost_share_of_drain"] == 0
    assert 0 < cost["use_in_the_day_before"] <= 1.5
    assert "Windows under easy-true: " in " ".join(result.output.split())
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Windows</h2>" in page and "GPUs busy before a window" in page


def test_whom_a_window_is_for_may_be_in_it(tmp_path: Path) -> None:
    whose = {"localQueues": [{"namespace": "replay", "name": "replay"}]}
    result = replay(tmp_path, manifest(owners=whose))
    assert result.exit_code == 0, result.output
    windows = json.loads((tmp_path / "replay.json").read_text())["policies"]["easy-true-drain"]["windows"]
    assert windows["gpu_hours_of_others_inside"] == windows["stopped"] == 0 and windows["each"][0]["busy_inside"] > 24


def test_what_cannot_be_honoured_is_said(tmp_path: Path) -> None:
    result = replay(tmp_path, manifest(nodes={"names": ["node-00001", "n9"]}, owners={"clusterQueues": ["vision"]}))
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "Reservation weekly: There is no node n9" in said
    assert "Reservation weekly: There is no ClusterQueue vision" in said


def quota_plan(queue: str = "replay", flavor: str = "gpu", gpus: int = 8) -> str:
    """Of 32 GPUs only some by day; who exceeds them is warned half an hour before, and stopped a minute before."""
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    day = {
        "name": "day",
        "window": {"schedule": {"days": days, "time": "08:00", "duration": "12h"}},
        "quotas": [{"flavor": flavor, "resource": "nvidia.com/gpu", "nominalQuota": gpus}],
    }
    spec = {"clusterQueue": queue, "overrides": [day], "recall": {"notice": "30m", "stopBefore": "1m"}}
    kind = {"apiVersion": "gangline.io/v1alpha1", "kind": "QuotaPlan", "metadata": {"name": "daily"}}
    return yaml.safe_dump({**kind, "spec": spec})


def test_quotas_by_the_hour_are_kept_and_who_exceeds_them_is_told(tmp_path: Path) -> None:
    trace, file = tmp_path / "trace.csv.gz", tmp_path / "daily.yaml"
    traces.write(trace, trace_jobs(200, days=3.0))
    file.write_text(quota_plan())
    fixed = (
        "--gpus",
        "32",
        "--workers",
        "1",
        "--predictor",
        "limit",
        "--limit",
        "6h",
        "--policy",
        "easy",
        "--schedule",
    )
    options = (*fixed, "--out", str(tmp_path), "--quota-plan", str(file))
    result = CliRunner().invoke(main, ["admin", "replay", str(trace), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    body = json.loads((tmp_path / "replay.json").read_text())
    assert list(body["policies"]) == ["easy", "easy-without", "easy-drain"] and "windows" not in body
    busy = {policy: most_by_day(tmp_path / "schedule" / f"{policy}.csv") for policy in body["policies"]}
    assert busy["easy"] <= 8 < busy["easy-drain"] <= 32 and busy["easy-without"] > 8
    recalled = body["policies"]["easy"]["recalled"]
    assert recalled["stopped"] > 0 and recalled["gpu_hours_lost"] < recalled["stopped"] * 32 / 60 + 1e-6, (
        "restarts alone"
    )
    assert "recalled" not in body["policies"]["easy-drain"]


def most_by_day(schedule: Path) -> int:
    """The most GPUs that are busy at any time from 8 to 20 o'clock."""
    with schedule.open() as file:
        runs = [
            (float(row["start"]), float(row["end"]), int(row["gpus"])) for row in csv.DictReader(file) if row["start"]
        ]
    moments = [max(start, day * DAY + 8 * 3600) for start, _, _ in runs for day in range(8)]
    by_day = {moment for moment in moments if 8 * 3600 <= moment % DAY < 20 * 3600}
    return max(sum(gpus for start, end, gpus in runs if start <= moment < end) for moment in by_day)


def test_what_of_a_quota_plan_is_not_honoured_is_said(tmp_path: Path) -> None:
    file = tmp_path / "daily.yaml"
    file.write_text(quota_plan(flavor="h100"))
    result = replay(tmp_path, manifest(), "--quota-plan", str(file), days=1.0)
    said = " ".join(result.output.split())
    assert "QuotaPlan daily: ClusterQueue replay has no quota of nvidia.com/gpu in flavor h100" in said
    file.write_text(quota_plan(queue="vision"))
    result = replay(tmp_path, manifest(), "--quota-plan", str(file), days=1.0)
    assert "QuotaPlan daily: There is no ClusterQueue vision" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("kind: Pod", (), "reserved.yaml has no Reservation"),
        (manifest() + "---\n" + manifest(), (), "there are two objects Reservation weekly"),
        (manifest(name="We ekly"), (), "metadata.name of a Reservation is no name"),
        (manifest(stopAfter="1m"), (), "Reservation weekly: spec.stopAfter: there is no such field"),
        (manifest(nodes={}), (), "Reservation weekly: spec.nodes: give names, matchLabels or anyOf"),
        (manifest(window={"start": "2026-01-31"}), (), "Reservation weekly: spec.window.start"),
        (manifest(), ("--gpus-per-node", "0"), "a flat pool has no nodes"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, options: tuple[str, ...], words: str) -> None:
    result = replay(tmp_path, text, *options, days=1.0)
    assert result.exit_code == 1
    assert words in " ".join(result.output.split())
