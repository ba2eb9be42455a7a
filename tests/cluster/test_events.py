"""What `kubectl describe` tells of a job's life: Kueue's events, in Kueue's words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, flavor, job, local_queue

from gangline.control.writes.status.event_table import EVENTS
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
#: kind of the object, type, reason, note
LIFE = [
    ("Job", "Normal", "CreatedWorkload", r"Created Workload: default/job-told-[0-9a-z]{5}"),
    ("Workload", "Normal", "QuotaReserved", r"Quota reserved in ClusterQueue told, wait time since queued was \d+s"),
    ("Workload", "Normal", "Admitted", r"Admitted by ClusterQueue told, wait time since reservation was 0s"),
    ("Job", "Normal", "Started", r"Admitted by clusterQueue told"),
    ("Job", "Normal", "FinishedWorkload", r"Workload 'default/job-told-[0-9a-z]{5}' is declared finished"),
]


async def test_the_events_of_a_job_from_its_creation_to_its_end(system: System, api: Api) -> None:
    await api.apply(flavor(), cluster_queue("told", 8), local_queue("told", "told"))
    system.operator("telling").wait_ready()
    (made,) = await api.create(job("told", "told", pods=1, gpus=1, runtime="1s"))
    await api.finished("told")
    workload = await api.workload_of("told")
    assert workload is not None
    about = {made["metadata"]["uid"], workload["metadata"]["uid"]}  # an earlier run of this test had the same names

    async def all_events() -> list[Json]:
        events = [
            e for e in await api.all(kube.EVENTS, "default") if e.get("reportingController") == "gangline.io/operator"
        ]
        events = [e for e in events if e["regarding"].get("uid") in about]
        return events if {reason for _, _, reason, _ in LIFE} <= {event["reason"] for event in events} else []

    events = await api.until(all_events, "the last event", 30)
    said = [(e["regarding"]["kind"], e["type"], e["reason"], e["note"]) for e in events]
    for kind, type_, reason, note in LIFE:
        rows = [each for each in said if each[2] == reason]
        assert len(rows) == 1, rows
        (row,) = rows
        assert row[:2] == (kind, type_), row
        assert re.fullmatch(note, row[3]), row
    assert {reason for _, _, reason, _ in said} <= EVENTS.keys()
    in_order = sorted(events, key=lambda event: event["eventTime"])
    assert [e["reason"] for e in in_order if e["reason"] in {row[2] for row in LIFE}] == [row[2] for row in LIFE]
