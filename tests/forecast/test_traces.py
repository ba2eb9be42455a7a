"""Trace readers, each on a few made-up lines of its format."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from gangline import traces
from gangline.traces import TraceError, TraceJob, helios

SWF = """; Version: 2.2
; UnixStartTime: 1000000
; MaxProcs: 100
1 0 10 3600 8 -1 -1 8 7200 -1 1 3 1 12 0 1 -1 -1
2 60 -1 -1 4 -1 -1 4 600 -1 5 4 1 -1 0 1 -1 -1
3 120 0 30 1 -1 -1 -1 -1 -1 0 3 1 -1 -1 -1 -1 -1
"""
LOG = [
    {
        "status": "Pass", "vc": "ee9", "jobid": "app_1", "user": "ann", "submitted_time": "2017-10-09 07:00:00",
        "attempts": [
            {"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:02:00",
             "detail": [{"ip": "m1", "gpus": ["g0", "g1"]}]},
            {"start_time": "2017-10-09 07:10:00", "end_time": "2017-10-09 07:20:00",
             "detail": [{"ip": "m1", "gpus": ["g0", "g1"]}, {"ip": "m2", "gpus": ["g0", "g1"]}]},
        ],
    },
    {"status": "Killed", "vc": "ee9", "jobid": "app_2", "user": "bob", "submitted_time": "2017-10-09 08:00:00", "attempts": []},
]  # fmt: skip


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def load_one(tmp_path: Path, content: str, name: str = "trace.csv") -> tuple[str, TraceJob]:
    trace = traces.load(write(tmp_path / name, content))
    assert len(trace.jobs) == 1
    return trace.format, trace.jobs[0]


def test_helios_compact(tmp_path: Path) -> None:
    format, job = load_one(tmp_path, "job_id,submit_s,duration_s,clamped,gpu_num\n7,100,172800,1,16\n")
    assert format == "helios"
    assert job == TraceJob("7", 100.0, 172800.0, 16, clamped=True)


def test_helios_as_published(tmp_path: Path) -> None:
    header = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    trace = traces.load(
        write(
            tmp_path / "cluster_log.csv",
            f"{header}\n"
            "1,u7,vcA,8,48,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:05:00,2020-04-01 01:05:00,3600,300\n"
            "2,u7,vcA,0,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:05:00,2020-04-01 01:05:00,3600,300\n"
            "3,u7,vcA,8,4,1,CANCELLED,2020-04-01 00:00:00,None,None,,300\n",
        )
    )
    (job,) = trace.jobs
    assert (job.user, job.vc, job.gpus, job.wait, job.duration, job.state) == (
        "u7",
        "vcA",
        8,
        300.0,
        3600.0,
        "COMPLETED",
    )
    assert job.submit == 1585699200
    assert trace.skipped == {"asks for no GPU": 1, "never started": 1}


def test_philly_compact_and_extract(tmp_path: Path) -> None:
    format, job = load_one(tmp_path, "job_id,vc,submit_s,duration_s,gpu_num\n5,11cb,100,60,2\n")
    assert (format, job) == ("philly", TraceJob("5", 100.0, 60.0, 2, vc="11cb"))
    format, job = load_one(tmp_path, "timestamp,duration,num_gpus,cluster\n2017-10-01 00:00:00,60,2,11cb\n")
    assert (format, job.submit, job.vc) == ("philly", 1506816000, "11cb")


def test_the_philly_log(tmp_path: Path) -> None:
    path = write(tmp_path / "cluster_job_log", json.dumps(LOG))
    trace = traces.load(path)
    (job,) = trace.jobs
    assert trace.format == "philly"
    assert (job.id, job.user, job.gpus, job.pods, job.duration, job.wait) == ("app_1", "ann", 4, 2, 660.0, 60.0)
    assert trace.skipped == {"never started": 1}


def test_pai(tmp_path: Path) -> None:
    format, job = load_one(tmp_path, "job,task,submit_s,duration_s,clamped,gpu_num\nj,worker,5,60,0,4\n")
    assert (format, job.id, job.name, job.gpus) == ("pai", "j/worker", "worker", 4)
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    format, job = load_one(tmp_path, f"{header}\nj,ps,3,Terminated,100,160,600,2,25,T4\n")
    assert (format, job.gpus, job.gpu_milli, job.cpu_milli, job.flavor, job.duration) == ("pai", 3, 250, 6000, "T4", 60)
    format, job = load_one(tmp_path, "job_id,num_gpu,submit_time,duration,user,num_inst\n9,0.5,10,20,ann,2\n")
    assert (format, job.gpus, job.gpu_milli, job.pods, job.user) == ("pai", 2, 500, 2, "ann")


def test_openb(tmp_path: Path) -> None:
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    trace = traces.load(
        write(
            tmp_path / "pods.csv",
            f"{header}\n"
            "b,6000,12288,1,460,,LS,Running,427061,12902960,427161.0\n"
            "a,6000,12288,0,0,,LS,Succeeded,5,6,5\n"
            "c,6000,1,8,1000,V100,BE,Failed,500,,\n",
        )
    )
    (job,) = trace.jobs
    assert (job.gpus, job.gpu_milli, job.wait, job.ended, job.memory) == (1, 460, 100.0, False, 12288 * 2**20)
    assert trace.skipped == {"asks for no GPU": 1, "never started": 1}


def test_swf(tmp_path: Path) -> None:
    trace = traces.load(write(tmp_path / "log.swf", SWF))
    assert trace.format == "swf"
    first, second = trace.jobs
    assert (first.submit, first.wait, first.duration, first.gpus, first.limit) == (1_000_000, 10, 3600, 8, 7200)
    assert (first.user, first.vc, first.state) == ("u3", "q0", "COMPLETED")
    assert first.name == "appbc"
    assert (second.gpus, second.limit, second.vc) == (1, None, "")
    assert trace.skipped == {"no run time": 1}


def test_our_own_format_keeps_everything(tmp_path: Path) -> None:
    jobs = [
        TraceJob(
            "a", 1.5, 60.25, 8, "ann", "vc", "n-1", "DONE", 2, 0, 1000, 2**30, 5.0, 7200.0, 90.0, "h100", True, False
        ),
        TraceJob("b", 2.0, 60.0, 1, flavor_speeds="h100=2,cpu=0.1"),
    ]
    for name in ("t.csv", "t.csv.gz"):
        traces.write(tmp_path / name, jobs)
        trace = traces.load(tmp_path / name)
        assert (trace.format, list(trace.jobs)) == ("gangline", jobs)
    assert [job.id for job in trace.between(1.0, 2.0).jobs] == ["a"]


def test_jobs_are_in_the_order_of_submission(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "id,submit,duration,gpus\nb,5,1,1\na,2,1,1\nc,5,1,1\n")
    assert [job.id for job in traces.load(path).jobs] == ["a", "b", "c"]


def test_quotas(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", "date,vcA,vcB,total\n2020-04-01,8,16,24\n")
    assert helios.quotas(path) == {"2020-04-01": {"A": 8, "B": 16}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id,submit,duration,gpus\na,1,x,1\n", "line 2, column duration: is no number: 'x'"),
        ("id,submit,duration,gpus\na,1,-5,1\n", "column duration: must not be negative"),
        ("id,submit,duration,gpus\na,1,nan,1\n", "column duration: is no finite number"),
        ("id,submit,duration,gpus\na,1,5,1.5\n", "column gpus: is no whole number"),
        ("id,submit,duration,gpus\na,1,5,\n", "column gpus: is missing"),
        ("id,submit,duration,gpus\n,1,5,1\n", "column id: is missing"),
        ("id,submit,duration,gpus\na,,5,1\n", "column submit: is missing"),
        ("id,submit,duration,gpus\na,nan,5,1\n", "column submit: is no finite number"),
        ("id,submit,duration,gpus\na,noon,5,1\n", "column submit: is neither seconds nor a date"),
        ("id,submit,duration,gpus\na,1,5\n", "line 2: 3 values for 4 columns"),
        ("some,thing,else\n1,2,3\n", "the format is not recognised"),
        ("", "the format is not recognised"),
        ("[1, 2]", "entry 0 lacks one of"),
        ("{", "neither a Philly CSV nor JSON"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(TraceError, match=r"t\.csv") as caught:
        traces.load(write(tmp_path / "t.csv", content))
    assert words in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        traces.load(tmp_path / "none.csv")
    whole = gzip.compress(b"id,submit,duration,gpus\n" + b"a,1,5,1\n" * 10_000)
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match="cannot be read"):
        traces.load(tmp_path / "cut.csv.gz")
    with pytest.raises(TraceError, match="unknown trace format"):
        traces.load(tmp_path / "none.csv", "pdf")
    with pytest.raises(TraceError, match="fields, not 18"):
        traces.load(write(tmp_path / "x.swf", "1 2 3\n"), "swf")
    with pytest.raises(TraceError, match="no column"):
        traces.load(write(tmp_path / "x.csv", "a,b\n1,2\n"), "openb")


HEAD = b"id,submit,duration,gpus\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEAD + b"a,1,5,1\n" + b"x" * 50_000_000, "line 3 has more than"),
        (HEAD + b"a,1,5,1\n" + b'"' + b"\n" * 1_000_000, "field larger than field limit"),
        (HEAD + b'a,1,5,"' + b'\n","' * 500_000, "the row has more than"),
        (b"x" * 50_000_000, "line 1 has more than"),
        (b"[" + b" " * 200_000_000, "it has more than"),
        (b"[" * 1_000_000, "neither a Philly CSV nor JSON"),
        (b'[{"jobid": 1, "vc": 1, "submitted_time": "x", "attempts": ["x"]}]', "entry 0"),
        (b"1 " * 17 + b"inf\n", "not finite"),
        (HEAD + b"\xff,1,5,1\n", "line 2: not UTF-8"),
    ],
)
def test_what_is_packed_small_and_is_large_costs_no_memory(tmp_path: Path, content: bytes, words: str) -> None:
    """A gzipped file of 3 MB with one line of 3 GB took all memory."""
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(content, 1))
    del content
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"t\.csv\.gz") as caught:
            traces.load(path)
        most = 450_000_000 if words.startswith("it has") else 40_000_000
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    assert words in str(caught.value)
    assert len(str(caught.value)) < 5_000


def test_too_many_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.traces.trace.MOST_ROWS", 3)
    with pytest.raises(TraceError, match="more than 3 lines"):
        traces.load(write(tmp_path / "t.csv", HEAD.decode() + "a,1,5,1\n" * 3))
