"""Writes on a server that misbehaves: what the engine hears when an assumption comes true, fails, or comes to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.kube.fake_server import Answer, FakeServer

from gangline.control import workload_status
from gangline.control.mirror import Mirror
from gangline.control.outgoing import Priority
from gangline.control.writer import Writer
from gangline.control.writes import Writes
from gangline.engine import model
from gangline.kube.client import ApiClient
from gangline.kube.resources import WORKLOADS

Json = dict[str, Any]
PATH = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads"
KEY = "ns/w"
NOW = 1_700_000_000_000


@dataclass
class World:
    server: FakeServer
    writes: Writes
    mirror: Mirror
    told: list[model.Change] = field(default_factory=list)

    def watch(self) -> None:
        """The watch shows the Workload as the server has it now."""
        self.writes.seen(WORKLOADS, copy.deepcopy(self.server.objects[f"{PATH}/w"].obj))

    def decide(self, slot: str, change: workload_status.Change) -> None:
        self.writes.change(KEY, slot, change, priority=Priority.ADMISSION, doubt=True, failed=self._failed)

    def _failed(self, _: object) -> None:
        self.told.append(model.WriteFailed(KEY))

    async def quiet(self) -> None:
        async with asyncio.timeout(10):
            while self.writes.in_doubt(WORKLOADS, KEY):
                await asyncio.sleep(0.005)

    def last(self) -> model.Workload:
        put = self.told[-1]
        assert isinstance(put, model.Put)
        assert isinstance(put.item, model.Workload)
        return put.item


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with FakeServer() as server, ApiClient(server.login()) as client, Writer(client) as writer:
        told: list[model.Change] = []
        mirror = Mirror(observe=told.append)
        writes = Writes(client, writer, mirror, now=lambda: NOW, resolved=lambda *_: None)
        server.put(
            PATH,
            "w",
            apiVersion="kueue.x-k8s.io/v1beta2",
            kind="Workload",
            spec={"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {"spec": {}}}]},
            status={},
        )
        subject = World(server, writes, mirror, told)
        subject.watch()
        yield subject


def admit() -> workload_status.Change:
    assignment = model.PodSetAssignment("main", 1, {"cpu": "f"}, {"cpu": 1000})
    return workload_status.admit(model.Admit(KEY, "u", model.Admission("cq", (assignment,)), True, NOW))


def preempt() -> workload_status.Change:
    return workload_status.preempt(model.Preempt(KEY, "u", "InClusterQueue", "make room", "ns/o", "o"))


async def test_an_admission_is_confirmed_to_the_engine_by_the_answer() -> None:
    async with world() as here:
        here.decide("admission", admit())
        assert here.writes.in_doubt(WORKLOADS, KEY)
        await here.quiet()
        assert here.last().admission is not None
        assert here.last().admitted


async def test_a_conflict_tells_the_engine_to_think_again_about_the_truth() -> None:
    async with world() as here:
        here.server.put(PATH, "w", spec={"queueName": "other"})
        here.decide("admission", admit())
        await here.quiet()
        assert model.WriteFailed(KEY) in here.told
        assert here.last().queue == "other"
        assert here.last().admission is None


async def test_the_watch_is_held_back_while_in_doubt() -> None:
    async with world() as here:
        before = len(here.told)
        here.decide("admission", admit())
        here.watch()
        assert len(here.told) == before
        await here.quiet()
        assert here.last().admission is not None


async def test_what_comes_to_nothing_is_told_though_nothing_changed() -> None:
    """Admitted and evicted again before anything was written: the object is as before, but the engine assumed otherwise."""
    async with world() as here:
        for _ in range(2):
            here.decide("admission", admit())
            here.decide("evict", preempt())
            here.writes.change(KEY, "release", workload_status.release, priority=Priority.LIFECYCLE)
            before = len(here.told)
            await here.quiet()
            assert len(here.told) > before, "the engine must hear that its assumption is void"
            assert here.last().admission is None
            assert here.last().evicted == "Preempted"


async def test_changes_that_are_due_together_leave_as_one_patch() -> None:
    async with world() as here:
        here.writes.change(KEY, "pods-ready", workload_status.pods_ready(True), priority=Priority.LIFECYCLE)
        here.decide("admission", admit())
        await here.quiet()
        assert here.server.requests["patch workloads"] == 1
        assert here.last().pods_ready
        assert here.last().admitted


async def test_a_change_that_joins_a_repeated_try_leaves_nobody_waiting() -> None:
    async with world() as here:
        here.server.script.append(Answer(500, verb="patch"))
        heard: list[str] = []

        def change(name: str) -> None:
            explanation = model.Explanation("WaitingForQuota", name)
            here.writes.change(
                KEY,
                "pending",
                workload_status.park(explanation),
                priority=Priority.LIFECYCLE,
                done=lambda _: heard.append(name),
            )

        change("first")
        async with asyncio.timeout(10):
            while not here.server.requests["patch workloads"]:
                await asyncio.sleep(0.005)
            change("second")
            while len(heard) < 2:
                await asyncio.sleep(0.005)
        assert sorted(heard) == ["first", "second"]
        row = here.mirror.objects[WORKLOADS][KEY]["status"]["conditions"][0]
        assert row["message"] == "second"
