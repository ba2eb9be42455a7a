"""`gangline admin replay --cluster-record`: a record under the cluster's own settings gives what happened, and others compare."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.record import clusters
from tests.record.clusters import BEGIN, HOUR, MINUTE, Clock, Json, workload

from gangline.api.schedules import DAYS
from gangline.console.cli import main
from gangline.engine.model import Put, QuotaAhead
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.record import calendar, reserved
from gangline.record.history import FileLine, RecordedChange
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


@pytest.mark.parametrize("moves", [True, False])
def test_the_cluster_s_own_moves_are_played_beside_the_same_without(tmp_path: Path, moves: bool) -> None:
    """Two nodes are half full from minute 10 on. Who then asks for a whole one waits for ten hours unless another one moves."""
    folder = tmp_path / "record"
    recorder, clock = recorded(folder)
    recorder.observe(kube.TOPOLOGIES, Upsert(clusters.topology()))
    recorder.observe(kube.RESOURCE_FLAVORS, Upsert(clusters.flavor(topology="hosts")))
    recorder.observe(kube.CLUSTER_QUEUES, Upsert(clusters.queue()))
    recorder.observe(kube.LOCAL_QUEUES, Upsert(clusters.local_queue()))
    part = {"moves": {"lostGpuHoursPerDay": "9", "after": "0s", "restartCost": "9m"}} if moves else {}
    recorder.observe(kube.QUEUE_POLICIES, Upsert(clusters.policy("ours", **part)))
    for name in ("node-1", "node-2"):
        recorder.observe(kube.NODES, Upsert(clusters.node(name)))
    jobs = {"a": (0, 600, 4), "b": (0, 10, 4), "c": (1, 600, 4), "d": (1, 10, 4), "whole": (41, 60, 8)}
    for name, (at, _, gpus) in jobs.items():
        clock.now = BEGIN + (at + 1) * MINUTE
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, clock.now, gpus, topology=True, checkpoint="30m")))
    clock.now = BEGIN + 24 * HOUR
    for name, (at, length, gpus) in jobs.items():
        begin = BEGIN + (at + 1) * MINUTE
        life: dict[str, Any] = {"admitted": begin, "finished": begin + length * MINUTE}
        gang = workload(name, begin, gpus, topology=True, checkpoint="30m", **life)
        recorder.observe(kube.WORKLOADS, Upsert(gang))
    recorder.close()
    told = played(folder, tmp_path / "out", "--policy", "own,besteffort", "--jitter", "0", "--predictor", "true")
    twin = ["own-without-moves"] if moves else []
    assert list(told["policies"]) == ["recorded", "own", *twin, "besteffort"]
    assert [(each["policy"], each["against"]) for each in told["conclusion"]] == [("own", name) for name in twin]
    if moves:
        assert told["policies"]["own"]["moves"]["started"] == 1
        lost = 4 * (10 + 1) / 60  # since the last save, and the restart as the replay counts it
        assert told["policies"]["own"]["moves"]["gpu_hours_lost"] == pytest.approx(lost, rel=0.01)
        assert told["policies"]["own"]["wait"]["max"] < 3600 < told["policies"]["own-without-moves"]["wait"]["max"]


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
        (("--from", "2030-01-01"), "--from 2030-01-01 00:00:00 UTC is after the last job"),
        (("--from", "2026-11-02", "--to", "2026-11-01"), "--from must be before --to"),
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


# --- windows of Reservations --------------------------------------------------------------------------------------------


def reservation(name: str = "repair", *, start: int = 2 * HOUR, end: int = 3 * HOUR, **spec: Any) -> Json:
    window = {"start": clusters.stamp(BEGIN + start), "end": clusters.stamp(BEGIN + end)}
    body = {"window": window, "nodes": {"anyOf": {"flavor": "gpu", "count": 1}}, "stopBefore": "1m", **spec}
    return {"metadata": {"name": name, "uid": name}, "spec": body}


@pytest.fixture
def reserving(tmp_path: Path) -> Path:
    """Two jobs of four hours on two nodes, the first of which is reserved after two hours, and cordoned meanwhile. What happened
    is of no account: the record says that both ran at once.
    """
    folder = tmp_path / "record"
    recorder, clock = recorded(folder)
    for resource, obj in (
        (kube.TOPOLOGIES, clusters.topology()),
        (kube.RESOURCE_FLAVORS, clusters.flavor(topology="hosts")),
        (kube.CLUSTER_QUEUES, clusters.queue()),
        (kube.LOCAL_QUEUES, clusters.local_queue()),
        (kube.NODES, clusters.node("node-1")),
        (kube.NODES, clusters.node("node-2")),
        (kube.RESERVATIONS, reservation()),
    ):
        recorder.observe(resource, Upsert(obj))
    for name, at in (("a", MINUTE), ("b", 2 * MINUTE)):
        clock.now = BEGIN + at
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, clock.now, 8, topology=True)))
    clock.now = BEGIN + 2 * HOUR
    cordoned = clusters.node("node-1")
    cordoned["metadata"]["annotations"] = {"gangline.io/cordoned-for": "repair"}
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned["spec"] = {"unschedulable": True, "taints": [taint]}
    recorder.observe(kube.NODES, Upsert(cordoned))
    clock.now = BEGIN + 9 * HOUR
    for name, at in (("a", MINUTE), ("b", 2 * MINUTE), ("c", 4 * HOUR)):
        life: dict[str, Any] = {"admitted": BEGIN + at, "finished": BEGIN + at + 4 * HOUR}
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, BEGIN + at, 8, topology=True, **life)))
    recorder.close()
    return folder


def test_recorded_reservations_are_played(reserving: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = played(reserving, out, "--policy", "own", "--jitter", "0", "--schedule")
    assert list(told["policies"]) == ["recorded", "own", "own-without", "own-drain"]

    def runs(policy: str) -> list[tuple[str, float, str, str]]:
        return [
            (row["id"], float(row["start"]) - BEGIN / 1000, row["reason"], row["outcome"])
            for row in rows(out, policy)
            if row["id"] != "uid-c"
        ]

    assert runs("own") == [("uid-a", 60, "", "finished"), ("uid-b", 10_800, "", "finished")], "after the window"
    assert runs("own-without") == [("uid-a", 60, "", "finished"), ("uid-b", 120, "", "finished")], "it is not cordoned"
    (first, again, other) = sorted(runs("own-drain"))
    assert first[2] == "Reservation" and again[1] == 10_800 and other[2] == ""
    (window,) = told["policies"]["own"]["windows"]["each"]
    assert window["reservation"] == "repair" and window["stops"] == BEGIN / 1000 + 2 * 3600 - 60
    assert told["policies"]["own"]["windows"]["gpu_hours_of_others_inside"] == 0
    assert told["windows"][0]["policy"] == "own" and told["windows"][0]["lost_share_of_drain"] == 0


def test_a_reservation_of_a_file_replaces_the_recorded_one_of_its_name(reserving: Path, tmp_path: Path) -> None:
    file = tmp_path / "reserved.yaml"
    file.write_text(yaml.safe_dump({"kind": "Reservation", **reservation(start=HOUR, end=5 * HOUR)}))
    told = played(reserving, tmp_path / "out", "--policy", "own", "--jitter", "0", "--reservation", str(file))
    (window,) = told["policies"]["own"]["windows"]["each"]
    assert window["stops"] == BEGIN / 1000 + 3600 - 60 and window["end"] == BEGIN / 1000 + 5 * 3600


def test_a_deleted_reservation_keeps_nobody_out_any_more(tmp_path: Path) -> None:
    """The windows of a schedule are told a few ahead, and nodes of a flavor stay the same while they exist."""
    changes = [
        RecordedChange(BEGIN, kind, name, body, FileLine(tmp_path, 1))
        for kind, name, body in (
            ("ResourceFlavor", "gpu", {"spec": {"nodeLabels": {"pool": "gpu"}}}),
            ("Node", "node-2", {"labels": {"pool": "gpu"}}),
            (
                "Reservation",
                "nightly",
                {
                    "spec": {
                        "window": {"schedule": {"days": list(DAYS), "time": "02:00", "duration": "2h"}},
                        "nodes": {"anyOf": {"flavor": "gpu", "count": 1}},
                        "for": {"localQueues": [{"namespace": "team", "name": "lq"}]},
                    }
                },
            ),
        )
    ]
    node = RecordedChange(BEGIN + HOUR, "Node", "node-1", {"labels": {"pool": "gpu"}}, FileLine(tmp_path, 2))
    deleted = RecordedChange(BEGIN + 51 * HOUR, "Reservation", "nightly", None, FileLine(tmp_path, 3))
    found, _ = reserved.planned([*changes, node, deleted], BEGIN + 90 * HOUR, lambda key: key.replace("/", "."))
    assert [(each.window.begin - BEGIN, each.window.end - BEGIN) for each in found.windows] == [
        (2 * HOUR - MINUTE, 4 * HOUR),
        (26 * HOUR - MINUTE, 28 * HOUR),
        (50 * HOUR - MINUTE, 51 * HOUR),  # it was open when the Reservation was deleted
    ]
    assert all(each.nodes == {"node-2"} for each in found.windows)
    assert found.windows[0].window.local_queues == {"team.lq"}
    assert [event.at - BEGIN for event in found.events] == [0, 4 * HOUR, 28 * HOUR, 51 * HOUR]
    assert [len(event.changes) for event in found.events] == [4, 2, 2, 4], "one is over, and another one is known"


def test_quotas_by_plans_follow_what_is_written(tmp_path: Path) -> None:
    """By night a queue has half of its quota, whatever that is; the older one of two plans counts until it is deleted."""

    def change(hours: int, kind: str, name: str, body: Json | None) -> RecordedChange:
        return RecordedChange(BEGIN + hours * HOUR, kind, name, body, FileLine(tmp_path, 1))

    def plan(gpus: int) -> Json:
        window = {"start": clusters.stamp(BEGIN + 10 * HOUR), "end": clusters.stamp(BEGIN + 20 * HOUR)}
        quota = {"flavor": "gpu", "resource": clusters.GPU, "nominalQuota": gpus}
        recall = {"notice": "10m", "stopBefore": "1m"}
        override = {"name": "night", "window": window, "quotas": [quota]}
        return {"spec": {"clusterQueue": "cq", "overrides": [override], "recall": recall}}

    def written(gpus: int) -> Json:
        return {"spec": clusters.queue(gpus=gpus)["spec"]}

    found, troubles = calendar.quotas(
        [
            change(0, "ClusterQueue", "cq", written(16)),
            change(0, "QuotaPlan", "nightly", plan(8)),
            change(1, "QuotaPlan", "later", plan(4)),
            change(5, "ClusterQueue", "cq", written(32)),
            change(12, "QuotaPlan", "nightly", None),
        ],
        BEGIN + 40 * HOUR,
    )
    quotas = [
        ((event.at - BEGIN) // HOUR, groups and groups[0].flavors[0].resources[clusters.GPU].nominal)
        for event in found
        for groups in event.quotas.values()
    ]
    assert quotas == [(0, 16), (5, 32), (10, 8), (12, 4), (20, 32)]
    ahead = [
        ((event.at - BEGIN) // HOUR, [each.at - BEGIN for each in told.item.steps])
        for event in found
        for told in event.changes
        if isinstance(told, Put) and isinstance(told.item, QuotaAhead)
    ]
    assert ahead == [
        (0, [10 * HOUR, 20 * HOUR]),
        (5, [10 * HOUR, 20 * HOUR]),  # the same instants, with other quotas
        (10, [20 * HOUR]),
        (12, [20 * HOUR]),
    ]
    assert troubles == []
    _, troubles = calendar.quotas([change(0, "QuotaPlan", "nightly", plan(8))], BEGIN)
    assert troubles == ["QuotaPlan nightly: There is no ClusterQueue cq"]
