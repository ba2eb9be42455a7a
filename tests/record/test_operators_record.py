"""The operator's part: the leader records what the mirror has, a standby nothing, and a folder in use is tried again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.record import clusters
from tests.record.clusters import BEGIN, MINUTE, Clock, Json, job, workload

from gangline.control.feed.mirror import Mirror
from gangline.control.recording.cluster_record import RETRY, ClusterRecord, RecordOptions
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import Resource, key_of
from gangline.record import reading
from gangline.record.folder import files_of


def part(folder: Path, clock: Clock, *known: tuple[Resource, Json]) -> ClusterRecord:
    objects: dict[Resource, dict[str, Json]] = {}
    for resource, obj in known:
        objects.setdefault(resource, {})[key_of(obj)] = obj
    mirror: Any = SimpleNamespace(objects=objects)
    return ClusterRecord(cast(Mirror, mirror), RecordOptions(folder), clock)


async def test_a_standby_writes_nothing_and_a_leader_what_is_known(tmp_path: Path) -> None:
    clock, folder = Clock(), tmp_path / "record"
    known = (
        (kube.CLUSTER_QUEUES, clusters.queue()),
        (kube.WORKLOADS, workload("a", BEGIN)),
        (kube.JOBS, job("a", hint="1h")),
    )
    standby = part(folder, clock, *known)
    standby.observe(kube.WORKLOADS, Upsert(workload("a", BEGIN)))
    assert not folder.exists()
    standby.lead()
    clock.now += MINUTE
    standby.observe(kube.WORKLOADS, Upsert(workload("b", clock.now)))
    standby.observe(kube.CLUSTER_QUEUES, Removed("cq", "uid-cq"))
    standby.act(clock.now)
    await standby.close()
    history = reading.read(folder)
    assert {uid: each.body.get("hint") for uid, each in history.workloads.items()} == {"uid-a": 3600.0, "uid-b": None}
    assert [(change.name, change.body is None) for change in history.changes] == [("cq", False), ("cq", True)]


async def test_a_folder_in_use_is_tried_again(tmp_path: Path) -> None:
    clock = Clock()
    first = part(tmp_path, clock)
    first.lead()
    second = part(tmp_path, clock, (kube.WORKLOADS, workload("a", BEGIN)))
    second.lead()
    second.act(clock.now)
    await first.close()
    assert second.due == clock.now + RETRY
    clock.now += RETRY
    second.act(clock.now)
    await second.close()
    assert "uid-a" in reading.read(tmp_path).workloads and len(files_of(tmp_path)) == 1
