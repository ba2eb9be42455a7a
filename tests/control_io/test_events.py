"""Events: deduplicated, throttled, and never worth a problem."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import Any

from tests.kube.fake_server import Answer, FakeServer

from gangline.control.writes.events import NOTE_LIMIT, EventRecorder
from gangline.control.writes.writer import Writer
from gangline.kube.client import ApiClient

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "here", "uid": "u1", "resourceVersion": "7"},
}


@asynccontextmanager
async def recording(**options: Any):
    async with FakeServer() as server, ApiClient(server.login()) as client, Writer(client) as writer:
        yield server, writer, EventRecorder(writer, **options)


def events(server: FakeServer) -> list[dict[str, Any]]:
    return [stored.obj for path, stored in server.objects.items() if "/events/" in path]


async def test_an_event_is_written_in_full() -> None:
    async with recording(instance="pod-1") as (server, writer, recorder):
        recorder.record(JOB, "Normal", "Started", "Admitted by clusterQueue research", "Admit")
        assert await writer.drain(5)
        [event] = events(server)
        assert event["regarding"] == {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "here",
            "name": "train",
            "uid": "u1",
            "resourceVersion": "7",
        }
        assert event["metadata"]["namespace"] == "here"
        assert event["metadata"]["name"].startswith("train.")
        assert (event["type"], event["reason"], event["action"]) == ("Normal", "Started", "Admit")
        assert event["reportingInstance"] == "pod-1"
        assert event["eventTime"].endswith("Z")
        assert "series" not in event
        assert recorder.written == 1


async def test_statements_of_one_series_are_one_event_whatever_they_say() -> None:
    async with recording(refresh=0.0) as (server, writer, recorder):
        for number in range(8):
            recorder.record(JOB, "Normal", "PreemptedWorkload", f"Preempted workload {number}", one_series=True)
        recorder.record(JOB, "Normal", "Other", "one", one_series=True)
        recorder.record(JOB, "Normal", "Other", "two")
        assert await writer.drain(5)
        found = {(event["reason"], event["note"]): (event.get("series") or {}).get("count") for event in events(server)}
        assert found == {
            ("PreemptedWorkload", "Preempted workload 0"): 8,
            ("Other", "one"): None,
            ("Other", "two"): None,
        }


async def test_cluster_scoped_objects_report_to_default() -> None:
    async with recording() as (server, writer, recorder):
        recorder.record({"kind": "ClusterQueue", "metadata": {"name": "research"}}, "Warning", "Stopped", "no")
        assert await writer.drain(5)
        assert events(server)[0]["metadata"]["namespace"] == "default"
        assert "namespace" not in events(server)[0]["regarding"]


async def test_repetitions_become_one_series() -> None:
    async with recording(refresh=0.1) as (server, writer, recorder):
        for _ in range(5):
            recorder.record(JOB, "Warning", "Pending", "not enough quota")
        assert await writer.drain(5)
        for _ in range(5):
            recorder.record(JOB, "Warning", "Pending", "not enough quota")
        recorder.record(JOB, "Warning", "Pending", "another reason")
        await asyncio.sleep(0.3)
        assert await writer.drain(5)
        assert sorted(event.get("series", {}).get("count", 1) for event in events(server)) == [1, 10]
        assert server.requests["create events"] == 2
        assert server.requests["patch events"] == 1


async def test_the_count_is_brought_up_to_date_at_most_once_per_refresh() -> None:
    async with recording(refresh=60.0) as (server, writer, recorder):
        for _ in range(3):
            recorder.record(JOB, "Normal", "Started", "x")
            assert await writer.drain(5)
        assert server.requests["patch events"] == 0
        assert writer.queued == 1


async def test_what_is_said_while_the_first_is_under_way_is_counted() -> None:
    async with recording(refresh=0.05) as (server, writer, recorder):
        server.script.append(Answer(200, verb="create", delay=0.05))
        recorder.record(JOB, "Normal", "Started", "x")
        await asyncio.sleep(0.02)
        recorder.record(JOB, "Normal", "Started", "x")
        await asyncio.sleep(0.2)
        assert await writer.drain(5)
        assert events(server)[0]["series"]["count"] == 2


async def test_a_failed_update_of_the_count_is_repeated() -> None:
    async with recording(refresh=0.0) as (server, writer, recorder):
        recorder.record(JOB, "Normal", "Started", "x")
        assert await writer.drain(5)
        server.script.append(Answer(500, verb="patch"))
        recorder.record(JOB, "Normal", "Started", "x")
        assert await writer.drain(5)
        assert events(server)[0]["series"]["count"] == 2


async def test_after_the_window_it_is_a_new_event() -> None:
    now = time.monotonic()
    async with recording(clock=lambda: now, window=60) as (server, writer, recorder):
        recorder.record(JOB, "Normal", "Started", "x")
        now += 61
        recorder.record(JOB, "Normal", "Started", "x")
        assert await writer.drain(5)
        assert len(events(server)) == 2


async def test_the_oldest_give_way_under_pressure() -> None:
    async with recording(in_flight=1, backlog=3) as (server, writer, recorder):
        for n in range(10):
            recorder.record(JOB, "Normal", "Started", f"n{n}")
        assert await writer.drain(5)
        assert [event["note"] for event in events(server)] == ["n0", "n7", "n8", "n9"]
        assert recorder.dropped == 6
        recorder.record(JOB, "Normal", "Started", "n5")
        assert await writer.drain(5)
        assert events(server)[-1]["note"] == "n5"
        assert events(server)[-1]["series"]["count"] == 2


async def test_a_namespace_that_is_gone_is_only_counted() -> None:
    async with recording(in_flight=1) as (server, writer, recorder):
        server.script.append(Answer(404, "NotFound", verb="create"))
        recorder.record(JOB, "Normal", "Started", "x")
        recorder.record(JOB, "Normal", "Started", "x")
        recorder.record(JOB, "Normal", "Started", "y")
        assert await writer.drain(5)
        recorder.record(JOB, "Normal", "Started", "x")
        assert await writer.drain(5)
        assert recorder.failed == 1
        assert [event["note"] for event in events(server)] == ["y"]


async def test_a_create_that_got_through_unheard_is_no_failure() -> None:
    async with recording() as (server, writer, recorder):
        server.script.append(Answer(500, verb="create", after=True))
        recorder.record(JOB, "Normal", "Started", "x")
        assert await writer.drain(5)
        assert len(events(server)) == 1
        assert (recorder.written, recorder.failed) == (1, 0)


async def test_long_texts_fit_the_api() -> None:
    async with recording() as (server, writer, recorder):
        job = {**JOB, "metadata": {**JOB["metadata"], "name": "n" * 253}}  # type: ignore[dict-item]
        recorder.record(job, "Normal", "R" * 200, "ü" * 2000)
        assert await writer.drain(5)
        [event] = events(server)
        assert len(event["metadata"]["name"]) <= 253
        assert len(event["note"].encode()) <= NOTE_LIMIT
        assert event["note"].endswith("ü…")
        assert len(event["reason"]) == len(event["action"]) == 128


async def test_the_latest_warnings_about_an_object_are_kept_for_answers() -> None:
    async with recording(wall=lambda: 100.0) as (_, _, recorder):
        recorder.record(JOB, "Normal", "Started", "it runs")
        recorder.record(JOB, "Warning", "WriteRefused", "denied")
        assert {uid: [tuple(each) for each in warned] for uid, warned in recorder.warnings().items()} == {
            "u1": [("WriteRefused", "denied", 100.0)]
        }


def _of(namespace: str, number: int) -> dict[str, Any]:
    meta = {"name": f"job{number}", "namespace": namespace, "uid": f"{namespace}-{number}"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}


async def test_a_namespace_with_many_events_drops_its_own_and_delays_nobody() -> None:
    async with recording(in_flight=1, backlog=50) as (server, writer, recorder):
        for number in range(10):
            recorder.record(_of("quiet", number), "Normal", "Started", "x")
        for number in range(500):
            recorder.record(_of("loud", number), "Normal", "Started", "x")
        assert await writer.drain(10)
        found = [event["metadata"]["namespace"] for event in events(server)]
        assert found.count("quiet") == 10
        assert max(place for place, namespace in enumerate(found) if namespace == "quiet") <= 20


async def test_a_namespace_with_many_events_makes_nobody_forget_what_was_said() -> None:
    async with recording(series_limit=100, in_flight=500) as (server, writer, recorder):
        recorder.record(_of("quiet", 1), "Warning", "Refused", "x")
        for number in range(500):
            recorder.record(_of("loud", number), "Normal", "Started", "x")
        recorder.record(_of("quiet", 1), "Warning", "Refused", "x")
        assert list(recorder.warnings()) == ["quiet-1"]
        assert await writer.drain(10)
        assert [event["series"]["count"] for event in events(server) if event["metadata"]["namespace"] == "quiet"] == [
            2
        ]


async def test_of_a_namespace_only_so_many_events_are_written_and_it_is_told() -> None:
    now = 0.0
    async with recording(clock=lambda: now, burst=20, rate=1.0, window=5) as (server, writer, recorder):
        for number in range(1000):
            recorder.record(_of("loud", number), "Normal", "Started", "x")
        recorder.record(_of("quiet", 1), "Normal", "Started", "x")
        assert await writer.drain(10)
        reasons = [event["reason"] for event in events(server) if event["metadata"]["namespace"] == "loud"]
        assert sorted(reasons) == ["EventsDropped"] + 20 * ["Started"]
        assert len(events(server)) == 22
        now = 7.0
        for number in range(1000, 2000):
            recorder.record(_of("loud", number), "Normal", "Started", "x")
        assert await writer.drain(10)
        assert len(events(server)) == 29
        assert recorder.dropped == 1973
