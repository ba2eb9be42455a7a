"""`gangline admin replay --cluster-record`: a record under the cluster's own settings gives what happened, and others compare."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.record import clusters
from tests.record.clusters import BEGIN, HOUR, MINUTE, Clock, Json, workload

from gangline.console.cli import main
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.record.recorder import Recorder


def replay(folder: Path, out: Path, *options: str) -> Result:
    fixed = ("--cluster-record", str(folder), "--out", str(out), "--workers", "1")
    return CliRunner().invoke(main, ["admin", "replay", *fixed, *options])


def played(folder: Path, out: Path, *options: str) -> Json:
    result = replay(folder, out, *options)
    assert result.exit_code == 0, result.output
    return json.loads((out / "replay.json").read_text())


def rows(out: Path, policy: str) -> list[dict[str, str]]:
    with (out / "schedule" / f"{policy}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record")
    clusters.busy(folder)
    return folder


def test_the_own_settings_give_what_happened(busy: Path, tmp_path: Path) -> None:
    """The recorded cluster started all that fit, in the order of submission: so does Kueue's default queue."""
    told = played(busy, tmp_path, "--policy", "own", "--jitter", "0")
    recorded, own = told["policies"]["recorded"], told["policies"]["own"]
    assert list(told["policies"]) == ["recorded", "own"]
    assert recorded["jobs"] == own["jobs"] == own["finished"] == 150
    assert recorded["wait"]["mean"] > 600
    for figure in ("mean", "p99", "max"):
        assert own["wait"][figure] == pytest.approx(recorded["wait"][figure], abs=1)
    assert recorded["utilisation"] == pytest.approx(own["utilisation"], abs=0.01)
    assert told["cluster"]["gpus"] == 16


def test_what_would_have_been_saved_has_an_interval(busy: Path, tmp_path: Path) -> None:
    shortest = tmp_path / "policies.yaml"
    shortest.write_text(
        "kind: QueuePolicy\nmetadata: {name: shortest}\nspec: {order: {key: ShortestFirst}}\n"
        "---\nkind: QueuePolicy\nmetadata: {name: elsewhere}\n"
        "spec: {clusterQueues: {names: [another]}, order: {key: ShortestFirst}}\n"
    )
    options = ("--policy", "own", "--policy-file", str(shortest), "--jitter", "4", "--predictor", "true")
    result = replay(busy, tmp_path, *options)
    assert result.exit_code == 0, result.output
    told = json.loads((tmp_path / "replay.json").read_text())["savings"]
    assert told["against"] == "own"
    mean = told["shortest"]["wait_mean"]
    assert 0 < mean["low"] < mean["saved"] < mean["high"] and mean["certain"]
    assert "shortest saves against own: mean wait" in result.output
    nothing = told["elsewhere"]["wait_mean"]  # it selects a queue that the cluster has not
    assert nothing["saved"] == 0 and not nothing["certain"]


def test_hints_and_learning_are_played(busy: Path, tmp_path: Path) -> None:
    middle = BEGIN // 1000 + 86_400
    told = played(busy, tmp_path, "--policy", "gangline", "--jitter", "0", "--from", str(middle))
    assert told["policies"]["gangline"]["jobs"] < 150
    assert told["forecast"]["mean_abs_log_error"] < 1.0
    assert told["policies"]["gangline"]["wait"]["mean"] < told["policies"]["own"]["wait"]["mean"]


def recorded(folder: Path) -> tuple[Recorder, Clock]:
    clock = Clock()
    recorder = Recorder(folder, clock)
    return recorder, clock


def test_quotas_count_from_the_day_on_which_they_changed(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    recorder, clock = recorded(folder)
    clusters.configuration(recorder, gpus=8)
    for name, at in (("a", MINUTE), ("b", 2 * MINUTE)):
        clock.now = BEGIN + at
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, clock.now, 8)))
    clock.now = BEGIN + HOUR
    recorder.observe(kube.CLUSTER_QUEUES, Upsert(clusters.queue(gpus=16)))
    clock.now = BEGIN + 5 * HOUR
    for name, at in (("a", MINUTE), ("b", 2 * MINUTE)):
        life: dict[str, Any] = {"admitted": BEGIN + at, "finished": BEGIN + at + 4 * HOUR}
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, BEGIN + at, 8, **life)))
    recorder.close()
    told = played(folder, tmp_path / "out", "--policy", "own", "--jitter", "0", "--schedule")
    starts = {row["id"]: float(row["start"]) - BEGIN / 1000 for row in rows(tmp_path / "out", "own")}
    assert starts == {"uid-a": 60, "uid-b": 3600}
    assert told["cluster"]["gpus"] == 16


def test_a_lost_node_stops_who_is_on_it_and_takes_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    recorder, clock = recorded(folder)
    recorder.observe(kube.TOPOLOGIES, Upsert(clusters.topology()))
    recorder.observe(kube.RESOURCE_FLAVORS, Upsert(clusters.flavor(topology="hosts")))
    recorder.observe(kube.CLUSTER_QUEUES, Upsert(clusters.queue()))
    recorder.observe(kube.LOCAL_QUEUES, Upsert(clusters.local_queue()))
    for name in ("node-1", "node-2"):
        recorder.observe(kube.NODES, Upsert(clusters.node(name)))
    lives = {"a": (MINUTE, 3 * HOUR), "b": (2 * MINUTE, 3 * HOUR)}
    for name, (at, _) in lives.items():
        clock.now = BEGIN + at
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, clock.now, 8, topology=True, checkpoint="30m")))
    clock.now = BEGIN + HOUR + MINUTE
    recorder.observe(kube.NODES, Upsert(clusters.node("node-1", ready=False)))
    clock.now = BEGIN + 2 * HOUR
    recorder.observe(kube.NODES, Upsert(clusters.node("node-1")))
    clock.now = BEGIN + 9 * HOUR
    for name, (at, length) in lives.items():
        life: dict[str, Any] = {"admitted": BEGIN + at, "finished": BEGIN + at + length}
        gang = workload(name, BEGIN + at, 8, topology=True, checkpoint="30m", **life)
        recorder.observe(kube.WORKLOADS, Upsert(gang))
    recorder.close()
    told = played(folder, tmp_path / "out", "--policy", "own", "--jitter", "0", "--schedule")
    runs = [
        (row["id"], row["outcome"], row["reason"], float(row["start"]) - BEGIN / 1000)
        for row in rows(tmp_path / "out", "own")
    ]
    assert len(runs) == 3, runs
    assert sum(run[1] == "evicted" for run in runs) == 1
    (evicted,) = [run for run in runs if run[1] == "evicted"]
    assert evicted[2] == "NodeLost"
    (resumed,) = [run for run in runs if run[0] == evicted[0] and run[1] == "finished"]
    assert resumed[3] == 7200  # the other node is taken, and this one is away until then
    # what it did since its last save, and the restart
    since = (
        BEGIN / 1000 + 3660 - float(next(row["start"] for row in rows(tmp_path / "out", "own") if row["reason"]))
    ) % 1800
    assert told["policies"]["own"]["gpu_hours_lost"] == pytest.approx(8 * (since + 60) / 3600, rel=0.01)


def test_priorities_preempt_as_in_kueue(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    recorder, clock = recorded(folder)
    clusters.configuration(recorder)
    within = {"withinClusterQueue": "LowerPriority"}
    recorder.observe(kube.CLUSTER_QUEUES, Upsert(clusters.queue(preemption=within)))
    for name, at, priority in (("low", MINUTE, 0), ("high", HOUR, 100)):
        clock.now = BEGIN + at
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, clock.now, 16, priority=priority)))
    clock.now = BEGIN + 9 * HOUR
    for name, at, priority in (("low", MINUTE, 0), ("high", HOUR, 100)):
        life: dict[str, Any] = {"admitted": BEGIN + at, "finished": BEGIN + at + 2 * HOUR}
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, BEGIN + at, 16, priority=priority, **life)))
    recorder.close()
    played(folder, tmp_path / "out", "--policy", "own", "--jitter", "0", "--schedule")
    runs = [(row["id"], row["outcome"]) for row in rows(tmp_path / "out", "own")]
    assert sorted(runs) == [("uid-high", "finished"), ("uid-low", "evicted"), ("uid-low", "finished")]


@pytest.mark.parametrize(
    ("config", "first"), [("", "uid-a2"), ("fairSharing: {enable: true}", "uid-b2"), ("webhook: {port: 9}", "uid-a2")]
)
def test_fair_sharing_is_played_as_the_configuration_file_says(tmp_path: Path, config: str, first: str) -> None:
    """When two GPUs come free, both queues would borrow them: the older job is next, or that of the queue with less."""
    folder = tmp_path / "record"
    recorder, clock = recorded(folder)
    recorder.observe(kube.RESOURCE_FLAVORS, Upsert(clusters.flavor()))
    for name, gpus in (("a", 2), ("b", 2), ("c", 4)):
        recorder.observe(kube.CLUSTER_QUEUES, Upsert(clusters.queue(name, gpus, cohortName="lab")))
        recorder.observe(kube.LOCAL_QUEUES, Upsert(clusters.local_queue(name, name)))
    lives = {"a0": (1, 4, 4), "b0": (2, 2, 4), "a1": (3, 2, 1), "a2": (10, 2, 2), "b2": (20, 2, 2)}

    def gang(name: str, **life: Any) -> Json:
        at, gpus, _ = lives[name]
        found = workload(name, BEGIN + at * MINUTE, gpus, **life)
        found["spec"]["queueName"] = name[0]
        return found

    for name, (at, _, _) in lives.items():
        clock.now = BEGIN + at * MINUTE
        recorder.observe(kube.WORKLOADS, Upsert(gang(name)))
    clock.now = BEGIN + 9 * HOUR
    for name, (at, _, hours) in lives.items():
        begun = BEGIN + at * MINUTE
        recorder.observe(kube.WORKLOADS, Upsert(gang(name, admitted=begun, finished=begun + hours * HOUR)))
    recorder.close()
    options = ["--policy", "own", "--jitter", "0", "--schedule"]
    if config:
        file = tmp_path / "kueue.yaml"
        file.write_text(f"apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n{config}\n")
        options += ["--config", str(file)]
    played(folder, tmp_path / "out", *options)
    starts = {row["id"]: float(row["start"]) - BEGIN / 1000 for row in rows(tmp_path / "out", "own")}
    assert starts["uid-a1"] == 180 and min(starts["uid-a2"], starts["uid-b2"]) == 3780
    assert min(("uid-a2", "uid-b2"), key=lambda name: starts[name]) == first


def test_a_configuration_is_nothing_to_a_trace_and_a_wrong_one_is_named(busy: Path, tmp_path: Path) -> None:
    file = tmp_path / "kueue.yaml"
    file.write_text("fairSharing: [")
    result = replay(busy, tmp_path, "--config", str(file))
    assert result.exit_code == 1 and "kueue.yaml" in result.output
    result = CliRunner().invoke(main, ["admin", "replay", str(file), "--config", str(file), "--out", str(tmp_path)])
    assert result.exit_code == 2 and "--config says nothing of a TRACE" in result.output


def test_the_cluster_s_own_policy_is_in_force_while_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    recorder, clock = recorded(folder)
    clusters.configuration(recorder)
    clock.now = BEGIN + 2 * MINUTE
    jobs = {
        "first": (2, 60),
        "long": (3, 120),
        "short": (4, 10),
        "after": (200, 120),
        "later": (201, 120),
        "last": (202, 10),
    }
    for name, (at, _) in jobs.items():
        if at == 200:
            clock.now = BEGIN + 199 * MINUTE
            recorder.observe(kube.QUEUE_POLICIES, Upsert(clusters.policy()))
        clock.now = BEGIN + at * MINUTE
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, clock.now, 16)))
    clock.now = BEGIN + 24 * HOUR
    recorder.observe(kube.QUEUE_POLICIES, Removed("shortest", "shortest"))
    for name, (at, length) in jobs.items():
        life: dict[str, Any] = {"admitted": BEGIN + at * MINUTE, "finished": BEGIN + (at + length) * MINUTE}
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, BEGIN + at * MINUTE, 16, **life)))
    recorder.close()
    played(folder, tmp_path / "out", "--policy", "own", "--jitter", "0", "--schedule", "--predictor", "true")
    order = [
        row["id"].removeprefix("uid-")
        for row in sorted(rows(tmp_path / "out", "own"), key=lambda row: float(row["start"]))
    ]
    assert order == ["first", "long", "short", "after", "last", "later"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--gpus", "8"), "--gpus and --tenants say nothing with --cluster-record"),
        (("--policy", "sjf-strict"), "it sets priorities"),
        (("--policy", "best"), "--policy best: use some of"),
        (("--from", "2030-01-01"), "--from must be before --to"),
        (
            ("--from", "2026-11-01T00:00", "--to", "2026-11-01T00:00:01"),
            "to 2026-11-01 00:00:01 UTC; the record runs from 20",
        ),
    ],
)
def test_what_does_not_fit_is_refused(busy: Path, tmp_path: Path, options: tuple[str, ...], complaint: str) -> None:
    result = replay(busy, tmp_path, *options)
    assert result.exit_code == 1 and complaint in result.output, result.output


def test_a_hostile_record_is_refused_with_its_line(tmp_path: Path) -> None:
    body: Json = {"at": BEGIN, "put": "ClusterQueue", "name": "a", "spec": {"cohortName": {}}}
    (tmp_path / "record-00000001.jsonl").write_text(json.dumps(body) + "\n")
    result = replay(tmp_path, tmp_path)
    assert result.exit_code == 1
    assert "record-00000001.jsonl, line 1: spec.cohortName" in result.output


def test_a_trace_and_a_record_are_one_too_many(busy: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["admin", "replay", "--out", str(tmp_path)])
    assert result.exit_code == 2 and "either a TRACE or --cluster-record" in result.output
