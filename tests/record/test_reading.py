"""Records from anywhere: refused with their line and field, bounded, and read as what happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.record.clusters import BEGIN, HOUR, MINUTE

from gangline.record import reading, workloads
from gangline.record.history import RecordedHistory, RecordError
from gangline.record.preparing import source

Json = dict[str, Any]
HEAD: Json = {"at": BEGIN, "record": 1, "by": "gangline 1", "why": "start"}
POD_SET: Json = {"name": "main", "count": 2, "requests": {"nvidia.com/gpu": "4"}}


def put(kind: str, name: str, at: int = BEGIN, **body: Any) -> Json:
    return {"at": at, "put": kind, "name": name, **body}


def work(at: int = BEGIN, name: str = "team/a", **body: Any) -> Json:
    usual = {"uid": name, "created": BEGIN, "queue": "lq", "priority": 0, "podSets": [POD_SET]}
    return put("Workload", name, at, **{**usual, **body})


def read(folder: Path, *lines: Json | bytes) -> RecordedHistory:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    (folder / "record-00000001.jsonl").write_bytes(b"\n".join(raw) + b"\n")
    return reading.read(folder)


SPEC: Json = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}]}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"at": -1, "up": True}, "at: -1 is no time"),
        ({"at": "today", "up": True}, "at: 'today' is no time"),
        ({"at": 10**30, "up": True}, "at: 1e+30 is no time"),
        ({"at": BEGIN}, "none of the fields put, gone"),
        ([1], "not an object"),
        (put("Secret", "a"), "put: 'Secret' is not recorded"),
        (put("ClusterQueue", ""), "name: is missing"),
        (put("ClusterQueue", "x" * 1000), "name: is no text"),
        (put("ClusterQueue", "a", spec={"queueingStrategy": "Lottery"}), "spec.queueingStrategy"),
        (put("Node", "a", ready="yes"), "ready: is neither true nor false"),
        (put("Node", "a", ready=True, allocatable={"cpu": "many"}), "status.allocatable"),
        (put("QueuePolicy", "a", spec={"clusterQueues": {}, "order": {"ageWeight": "x"}}), "spec.order.ageWeight"),
        (put("LocalQueue", "no-namespace", spec={"clusterQueue": "cq"}), "metadata.namespace"),
        (work(created=None), "created: None is no time"),
        (work(finished="yes"), "finished: is no object"),
        (work(finished={"at": True}), "finished.at: True is no time"),
        ({"at": BEGIN, "record": 2}, "record: version 2: this Gangline reads 1"),
    ],
)
def test_a_hostile_line_is_refused_by_name(tmp_path: Path, line: Any, complaint: str) -> None:
    with pytest.raises(RecordError) as error:
        read(tmp_path, HEAD, line)
    assert "record-00000001.jsonl, line 2: " in str(error.value)
    assert complaint in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"podSets": []}, "podSets: must be 1 to"),
        ({"podSets": [POD_SET] * 100}, "podSets: must be 1 to"),
        ({"podSets": [{**POD_SET, "count": 10**7}]}, "podSets[0].count"),
        ({"podSets": [{**POD_SET, "requests": {"cpu": "many"}}]}, "requests"),
        ({"podSets": [{**POD_SET, "tolerations": "all"}]}, "tolerations"),
        ({"hint": 1e30}, "hint: is no number of seconds"),
        ({"checkpoint": -1}, "checkpoint: is no number of seconds"),
        ({"priority": "high"}, "priority"),
        ({"queue": 7}, "queue: is no name"),
        ({"assignments": [{"name": "main", "usage": {"nvidia.com/gpu": []}}]}, "assignments"),
    ],
)
def test_a_hostile_workload_is_refused_by_name(tmp_path: Path, body: Json, complaint: str) -> None:
    history = read(tmp_path, HEAD, work(admitted=BEGIN, **body))
    with pytest.raises(RecordError, match="line 2: ") as error:
        source(history)
    assert complaint in str(error.value)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecordError, match=r"line 2 has more than \d+ bytes"):
        read(tmp_path, HEAD, b'{"at":1,"x":"' + b"x" * 2**20 + b'"}')
    with pytest.raises(RecordError, match="more than 1000 lines are no JSON"):
        read(tmp_path, HEAD, *[b"{"] * 1001)
    assert (
        read(tmp_path, HEAD, b"[" * 200_000, {"at": BEGIN, "up": True}).cut[0].line == 2
    )  # too deep to be one of ours
    for name, lines in (
        ("MOST_WORKLOADS", [work(name=f"team/{number}") for number in range(4)]),
        ("MOST_CHANGES", [put("Node", f"n{number}", ready=True) for number in range(4)]),
        ("MOST_BYTES", [{"at": BEGIN, "up": True}]),
    ):
        with monkeypatch.context() as patched, pytest.raises(RecordError, match="more than 3"):
            patched.setattr(reading, name, 3)
            read(tmp_path, HEAD, *lines)


def test_a_folder_without_a_record_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="has no record"):
        reading.read(tmp_path)
    (tmp_path / "record-00000001.jsonl").write_bytes(b"{\n")
    with pytest.raises(RecordError, match="no line that can be read"):
        reading.read(tmp_path)


def test_stays_follow_from_what_was_said(tmp_path: Path) -> None:
    history = read(
        tmp_path,
        HEAD,
        work(),
        work(BEGIN + MINUTE, admitted=BEGIN + MINUTE),
        work(BEGIN + 11 * MINUTE, evicted={"at": BEGIN + 10 * MINUTE, "reason": "Preempted"}),
        work(BEGIN + HOUR, admitted=BEGIN + HOUR, evicted={"at": BEGIN + 10 * MINUTE, "reason": "Preempted"}),
        work(BEGIN + 2 * HOUR, admitted=BEGIN + HOUR, finished={"at": BEGIN + 2 * HOUR, "reason": "Succeeded"}),
        work(BEGIN, "team/deleted", admitted=BEGIN),
        {"at": BEGIN + 3 * HOUR, "gone": "Workload", "name": "team/deleted"},
        work(BEGIN + 3 * HOUR, "team/deleted", uid="second", created=BEGIN + 3 * HOUR),
        work(BEGIN + 3 * HOUR, "team/open", admitted=BEGIN + 2 * HOUR),
        {"at": BEGIN + 4 * HOUR, "up": True},
    )
    a = history.workloads["team/a"]
    assert [(stay.start - BEGIN, stay.end and stay.end - BEGIN, stay.reason) for stay in a.stays] == [
        (MINUTE, 10 * MINUTE, "Preempted"),
        (HOUR, 2 * HOUR, "Finished"),
    ]
    assert history.workloads["team/deleted"].stays[-1].reason == "Deleted"
    found = workloads.played(history)
    jobs = {job.id: (job.duration, job.ended, job.wait, job.gpus) for job in found.trace.jobs}
    assert jobs == {
        "team/a": (3600, True, 60, 8),
        "team/deleted": (3 * 3600, True, 0, 8),
        "team/open": (2 * 3600, False, 7200, 8),
    }
    assert sum(found.trace.skipped.values()) == 1  # the second of its name never ran


def test_saved_work_counts_once(tmp_path: Path) -> None:
    stopped = {"at": BEGIN + 25 * MINUTE, "reason": "Preempted"}
    history = read(
        tmp_path,
        HEAD,
        work(checkpoint=600, admitted=BEGIN),
        work(BEGIN + 25 * MINUTE, checkpoint=600, evicted=stopped),
        work(BEGIN + HOUR, checkpoint=600, admitted=BEGIN + HOUR),
        work(BEGIN + 2 * HOUR, checkpoint=600, admitted=BEGIN + HOUR, finished={"at": BEGIN + 2 * HOUR, "reason": ""}),
    )
    (job,) = workloads.played(history).trace.jobs
    assert job.duration == 20 * 60 + 3600 and job.checkpoint == 600


def test_requests_are_those_by_which_it_was_admitted(tmp_path: Path) -> None:
    granted = {"name": "main", "count": 2, "flavors": {"nvidia.com/gpu": "gpu"}, "usage": {"nvidia.com/gpu": "6"}}
    history = read(tmp_path, HEAD, work(admitted=BEGIN, assignments=[granted]), work(BEGIN + MINUTE))
    (shape,) = workloads.played(history).shapes.values()
    assert shape.pod_sets[0].requests["nvidia.com/gpu"] == 3
