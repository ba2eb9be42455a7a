"""What is written, and what is left of it after restarts, kills, full disks and rotation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.record import clusters
from tests.record.clusters import BEGIN, HOUR, MINUTE, Clock, Json, job, workload

from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.record import reading
from gangline.record.folder import Folder, FolderError, files_of
from gangline.record.recorder import Recorder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.record.recorder.FLUSH_EVERY", 0.02)


def lines(folder: Path) -> list[Json]:
    return [json.loads(line) for path in files_of(folder) for line in path.read_text().splitlines() if line]


def one_life(recorder: Recorder, clock: Clock, name: str = "a") -> None:
    states: tuple[dict[str, int], ...] = (
        {},
        {"admitted": BEGIN + MINUTE},
        {"admitted": BEGIN + MINUTE, "finished": BEGIN + HOUR},
    )
    for state in states:
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, BEGIN, 4, **state)))  # type: ignore[arg-type]
        clock.now += MINUTE


def test_a_line_is_written_when_what_is_kept_has_changed(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock)
    clusters.configuration(recorder)
    clusters.configuration(recorder)  # watches tell more than once
    one_life(recorder, clock)
    recorder.observe(kube.WORKLOADS, Removed("team/job-a", "uid-a"))
    recorder.observe(kube.NODES, Upsert(clusters.node("node-1", ready=False)))
    recorder.observe(kube.NODES, Removed("node-2", "node-2"))
    recorder.close()
    recorded = [(line.get("put") or f"-{line.get('gone')}", line.get("name")) for line in lines(tmp_path)[1:]]
    assert recorded == [
        ("ResourceFlavor", "gpu"),
        ("ClusterQueue", "cq"),
        ("LocalQueue", "team/lq"),
        ("Node", "node-1"),
        ("Node", "node-2"),
        *[("Workload", "team/job-a")] * 3,
        ("Node", "node-1"),
        ("-Node", "node-2"),
    ]
    first, last = lines(tmp_path)[6], lines(tmp_path)[8]
    assert first["podSets"] == [{"name": "main", "count": 1, "requests": {clusters.GPU: "4"}}]
    assert "admitted" not in first and last["admitted"] == BEGIN + MINUTE
    assert last["finished"] == {"at": BEGIN + HOUR, "reason": "Succeeded"}
    assert last["assignments"][0]["flavors"] == {clusters.GPU: "gpu"}


def test_hints_and_users_come_from_the_job_whichever_is_seen_first(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock)
    recorder.observe(kube.JOBS, Upsert(job("early", hint="2h", user="ada")))
    recorder.observe(kube.WORKLOADS, Upsert(workload("early", BEGIN)))
    recorder.observe(kube.WORKLOADS, Upsert(workload("late", BEGIN, checkpoint="10m")))
    recorder.observe(kube.JOBS, Upsert(job("late", hint="30m")))
    recorder.close()
    early, before, late = lines(tmp_path)[1:]
    assert (early["hint"], early["user"], early["job"]) == (7200.0, "ada", {"kind": "Job", "name": "early"})
    assert "hint" not in before and late["hint"] == 1800.0 and late["checkpoint"] == 600.0


def test_no_template_secret_or_address_is_written(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock)
    one_life(recorder, clock)
    notify = [{"url": "https://hooks.example/secret-token", "secretRef": {"name": "secret"}}]
    recorder.observe(kube.QUEUE_POLICIES, Upsert(clusters.policy(notify=notify)))
    recorder.close()
    written = "".join(path.read_text() for path in files_of(tmp_path))
    assert '"QueuePolicy"' in written and "ShortestFirst" in written
    assert "secret" not in written and "hooks.example" not in written
    assert all(path.stat().st_mode & 0o077 == 0 for path in files_of(tmp_path))


def test_a_restart_adds_only_what_happened_meanwhile(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock)
    clusters.configuration(recorder)
    one_life(recorder, clock, "done")
    recorder.observe(kube.WORKLOADS, Upsert(workload("open", BEGIN)))
    recorder.observe(kube.WORKLOADS, Upsert(workload("deleted", BEGIN)))
    recorder.close()
    before = len(lines(tmp_path))
    clock.now += HOUR
    again = Recorder(tmp_path, clock)
    clusters.configuration(again)
    again.observe(kube.WORKLOADS, Upsert(workload("done", BEGIN, 4, admitted=BEGIN + MINUTE, finished=BEGIN + HOUR)))
    again.observe(kube.WORKLOADS, Upsert(workload("open", BEGIN, admitted=BEGIN + HOUR)))
    again.listed(kube.WORKLOADS)
    again.close()
    added = lines(tmp_path)[before:]
    assert [line.get("begin", line.get("name"))[:8] for line in added] == ["gangline", "team/job", "team/job"]
    assert [line.get("put", line.get("gone")) for line in added[1:]] == ["Workload", "Workload"]
    assert added[1]["admitted"] == BEGIN + HOUR and added[2]["gone"] == "Workload"
    history = reading.read(tmp_path)
    assert [round((until - since) / HOUR) for since, until in history.gaps] == [1]
    assert history.workloads["uid-deleted"].gone == clock.now


def test_a_line_that_was_cut_off_costs_itself_alone(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock)
    one_life(recorder, clock, "a")
    recorder.observe(kube.WORKLOADS, Upsert(workload("b", BEGIN)))
    recorder.close()
    (path,) = files_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    again = Recorder(tmp_path, clock)
    again.observe(kube.WORKLOADS, Upsert(workload("b", BEGIN)))
    again.observe(kube.WORKLOADS, Upsert(workload("c", BEGIN)))
    again.close()
    history = reading.read(tmp_path)
    assert [place.line for place in history.cut] == [5]
    assert set(history.workloads) == {"uid-a", "uid-b", "uid-c"}


def test_rotation_bounds_the_record_and_each_file_stands_alone(tmp_path: Path) -> None:
    clock = Clock()
    most = 2**20
    recorder = Recorder(tmp_path, clock, most)
    clusters.configuration(recorder)
    recorder.observe(kube.WORKLOADS, Upsert(workload("open", BEGIN, 2)))
    for number in range(3000):
        one_life(recorder, clock, f"{number:05d}")
        recorder.observe(kube.WORKLOADS, Removed(f"team/job-{number - 50:05d}", ""))
        if number % 100 == 0:
            settle(recorder)
    recorder.close()
    paths = files_of(tmp_path)
    assert len(paths) > 2 and "00000001" not in paths[0].name
    assert sum(path.stat().st_size for path in paths) <= most
    for path in paths:
        alone = tmp_path / path.stem
        alone.mkdir()
        (alone / "record-00000001.jsonl").write_bytes(path.read_bytes())
        history = reading.read(alone)
        assert {change.name for change in history.changes} == {"gpu", "cq", "team/lq", "node-1", "node-2"}
        assert "uid-open" in history.workloads
    whole = reading.read(tmp_path)
    assert not whole.gaps and not whole.cut
    assert len(whole.changes) == 5  # what every file repeats is no change


def test_a_file_that_outgrows_its_share_costs_the_oldest(tmp_path: Path) -> None:
    """The next file is begun a moment after the newest is full: what is written until then counts."""
    folder, line = Folder(tmp_path, 8000), b"x" * 99 + b"\n"
    for _ in range(8):
        folder.begin([line])
        folder.append(line * 9)
    assert [path.stat().st_size for path in files_of(tmp_path)] == [1000] * 8
    for _ in range(40):
        folder.append(line)
        assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 8000
    assert [path.stat().st_size for path in files_of(tmp_path)] == [1000] * 3 + [5000]
    folder.close()


def settle(recorder: Recorder) -> None:
    """Until the thread has written all."""
    for _ in range(600):
        if not recorder.backlog:
            return
        time.sleep(0.05)
    raise AssertionError("the thread does not write")


def test_two_processes_do_not_write_one_record(tmp_path: Path) -> None:
    first = Recorder(tmp_path, Clock())
    with pytest.raises(FolderError, match="another process"):
        Recorder(tmp_path, Clock())
    first.close()
    Recorder(tmp_path, Clock()).close()


def test_after_an_error_of_the_disk_the_record_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock)
    clusters.configuration(recorder)
    settle(recorder)

    def full(self: object, lines: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("gangline.record.folder.Folder.append", full)
        recorder.observe(kube.WORKLOADS, Upsert(workload("lost", BEGIN)))
        settle(recorder)
        for _ in range(600):
            if recorder.trouble:
                break
            time.sleep(0.05)
    assert "No space left" in recorder.trouble and recorder.lost == 0
    clock.now += MINUTE
    recorder.tick()
    recorder.close()
    assert len(files_of(tmp_path)) == 2 and not recorder.trouble
    assert "uid-lost" in reading.read(tmp_path).workloads


def test_objects_that_do_not_fit_are_said_not_written_without_end(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock, 2**20)
    for number in range(3000):
        one = workload(f"{number:05d}", BEGIN)
        one["metadata"]["namespace"] = f"team{number % 8}"
        recorder.observe(kube.WORKLOADS, Upsert(one))
        if number % 100 == 0:
            settle(recorder)
    recorder.close()
    assert "more than four times that" in recorder.trouble
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 2**20


def test_what_one_namespace_creates_keeps_no_other_out_of_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock, most_bytes=16 * 20_000)
    clusters.configuration(recorder)
    for number in range(500):
        loud = workload(f"w{number}", BEGIN, 4)
        loud["metadata"]["namespace"] = "loud"
        recorder.observe(kube.WORKLOADS, Upsert(loud))
    long = workload("long", BEGIN, 4)
    long["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = [{"key": "x" * 100}] * 1000
    recorder.observe(kube.WORKLOADS, Upsert(long))
    one_life(recorder, clock)
    for _ in range(20):
        settle(recorder)
        recorder.tick()
        clock.now += MINUTE
    recorder.close()
    assert recorder.trouble == "" and recorder.lost == 0
    names = [line.get("name", "") for line in lines(tmp_path)]
    assert names.count("team/job-a") == 3 and "team/job-long" not in names
    assert 10 < sum(name.startswith("loud/") for name in names) < 200
    assert recorder.unreadable > 300
    assert caplog.text.count("too large for the record") == 2


def test_a_record_without_news_shows_that_somebody_watched(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, clock)
    for _ in range(60):
        clock.now += MINUTE
        recorder.tick()
    recorder.close()
    assert 10 <= len([line for line in lines(tmp_path) if line.get("up")]) <= 12
    assert not reading.read(tmp_path).gaps


#: writes less between two flushes than a record of its size keeps
WRITER = """
import sys
import time
from pathlib import Path
from tests.record import clusters
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert
from gangline.record.recorder import Recorder
clock = clusters.Clock()
recorder = Recorder(Path(sys.argv[1]), clock, 2**20)
first = int(sys.argv[2])
print("begun", flush=True)
for number in range(first, first + 100_000):
    clock.now += 1000
    recorder.observe(kube.WORKLOADS, Upsert(clusters.workload(f"{number}", clock.now)))
    recorder.observe(kube.WORKLOADS, Upsert(clusters.workload(f"{number}", clock.now, admitted=clock.now, finished=clock.now)))
    time.sleep(0.001)
"""


def written(folder: Path) -> tuple[int, int]:
    """How far a record is: the number of its last file, and the size of that; (1, 0) without one, or while old ones go."""
    try:
        return max(((int(each.stem[-8:]), each.stat().st_size) for each in files_of(folder)), default=(1, 0))
    except FileNotFoundError:
        return 1, 0


def test_a_killed_writer_leaves_a_record_that_goes_on(tmp_path: Path) -> None:
    for life in range(4):
        number, size = written(tmp_path)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(1_000_000 * life)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        until = time.monotonic() + 60
        while time.monotonic() < until and written(tmp_path) <= (number, size + 1000):
            time.sleep(0.05)
        time.sleep(0.1 + 0.23 * life)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
        history = reading.read(tmp_path)
        assert history.workloads and len(history.cut) <= life + 1
