"""Writes on a server that misbehaves: what the engine hears when an assumption comes true, fails, or comes to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.kube.fake_server import Answer, FakeServer

from gangline.control.feed.changes import JobRef
from gangline.control.feed.cluster_feed import ClusterFeed
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.tracking import Tracking
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.parts.messages import Messages, WriteResolved
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.control.writes.writer import Writer
from gangline.control.writes.writes import Writes
from gangline.engine import model
from gangline.kube.client import ApiClient
from gangline.kube.resources import LEADER_WORKER_SETS, PODS, WORKLOADS, ObjectKey

Json = dict[str, Any]
PATH = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads"
KEY = "ns/w"
NOW = 1_700_000_000_000


@dataclass
class DoubtedWrites:
    server: FakeServer
    writes: Writes
    mirror: Mirror
    feed: ClusterFeed
    facts: list[model.Change] = field(default_factory=list)

    def watch(self) -> None:
        """The watch shows the Workload as the server has it now."""
        self.feed.seen(WORKLOADS, copy.deepcopy(self.server.objects[f"{PATH}/w"].obj))

    def decide(self, slot: str, change: Change) -> None:
        self.writes.change(KEY, slot, change, priority=Priority.ADMISSION, doubt=True, failed=self._failed)

    def _failed(self, _: object) -> None:
        self.facts.append(model.WriteFailed(KEY))

    async def quiet(self) -> None:
        async with asyncio.timeout(10):
            while self.writes.in_doubt(WORKLOADS, KEY):
                await asyncio.sleep(0.005)

    def last(self) -> model.Workload:
        put = self.facts[-1]
        assert isinstance(put, model.Put)
        assert isinstance(put.item, model.Workload)
        return put.item


@contextlib.asynccontextmanager
async def world(*, older_words: bool = False) -> AsyncIterator[DoubtedWrites]:
    async with FakeServer() as server, ApiClient(server.login()) as client, Writer(client) as writer:
        facts: list[model.Change] = []
        mirror = Mirror(observe=facts.append)
        tracking, messages = Tracking(), Messages()
        writes = Writes(client, writer, mirror, tracking, now=lambda: NOW, messages=messages, older_words=older_words)
        feed = ClusterFeed(client, mirror, tracking, messages, Quarantine(lambda subject, obj, what: None))
        server.put(
            PATH,
            "w",
            apiVersion="kueue.x-k8s.io/v1beta2",
            kind="Workload",
            spec={"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {"spec": {}}}]},
            status={},
        )
        subject = DoubtedWrites(server, writes, mirror, feed, facts)
        subject.watch()
        yield subject


def admit() -> Change:
    assignment = model.PodSetAssignment("main", 1, {"cpu": "f"}, {"cpu": 1000})
    return status_changes.admit(model.Admit(KEY, "u", model.Admission("cq", (assignment,)), True, NOW))


def preempt() -> Change:
    return status_changes.preempt(model.Preempt(KEY, "u", "InClusterQueue", "make room", "ns/o", "o"))


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
        assert model.WriteFailed(KEY) in here.facts
        assert here.last().queue == "other"
        assert here.last().admission is None


async def test_the_watch_is_held_back_while_in_doubt() -> None:
    async with world() as here:
        before = len(here.facts)
        here.decide("admission", admit())
        here.watch()
        assert len(here.facts) == before
        await here.quiet()
        assert here.last().admission is not None


async def test_what_comes_to_nothing_is_told_though_nothing_changed() -> None:
    """Admitted and evicted again before anything was written: the object is as before, but the engine assumed otherwise."""
    async with world() as here:
        for _ in range(2):
            here.decide("admission", admit())
            here.decide("evict", preempt())
            here.writes.change(KEY, "release", status_changes.release, priority=Priority.LIFECYCLE)
            before = len(here.facts)
            await here.quiet()
            assert len(here.facts) > before, "the engine must hear that its assumption is void"
            assert here.last().admission is None
            assert here.last().evicted == "Preempted"


async def test_changes_that_are_due_together_leave_as_one_patch() -> None:
    async with world() as here:
        here.writes.change(KEY, "pods-ready", run_changes.pods_ready(True), priority=Priority.LIFECYCLE)
        here.decide("admission", admit())
        await here.quiet()
        assert here.server.requests["patch workloads"] == 1
        assert here.last().pods_ready
        assert here.last().admitted


async def test_a_condition_says_which_generation_it_is_about() -> None:
    """The ones that a change does not touch keep theirs."""
    async with world() as here:
        old = {"type": "Evicted", "status": "True", "reason": "Preempted", "observedGeneration": 1}
        gated = {"type": "Custom", "status": "True", "reason": "Else", "observedGeneration": 1}
        stored = here.server.objects[f"{PATH}/w"].obj
        here.server.put(PATH, "w", spec=stored["spec"], status={"conditions": [old, gated]})
        here.server.objects[f"{PATH}/w"].obj["metadata"]["generation"] = 3
        here.watch()
        here.decide("admission", admit())
        await here.quiet()
        rows = here.server.objects[f"{PATH}/w"].obj["status"]["conditions"]
        assert {row["type"]: row["observedGeneration"] for row in rows} == {
            "Evicted": 3,
            "Custom": 1,
            "QuotaReserved": 3,
            "Admitted": 3,
        }


async def test_a_change_that_joins_a_repeated_try_leaves_nobody_waiting() -> None:
    async with world() as here:
        here.server.script.append(Answer(500, verb="patch"))
        heard: list[str] = []

        def change(name: str) -> None:
            explanation = model.Explanation("WaitingForQuota", name)
            here.writes.change(
                KEY,
                "pending",
                status_changes.pending(explanation),
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


async def test_a_slow_watch_does_not_take_back_what_later_answers_said() -> None:
    """Released, and admitted again, before the watch shows the first of the two."""
    async with world() as here:
        here.decide("admission", admit())
        await here.quiet()
        here.decide("evict", preempt())
        here.writes.change(KEY, "release", status_changes.release, priority=Priority.LIFECYCLE)
        await here.quiet()
        released = copy.deepcopy(here.server.objects[f"{PATH}/w"].obj)
        here.decide("admission", admit())
        await here.quiet()
        before = len(here.facts)
        here.feed.seen(WORKLOADS, released)
        assert len(here.facts) == before, "an old version was passed on as news"
        here.watch()
        assert here.last().admission is not None
        here.server.put(PATH, "w", spec={"queueName": "other"})
        here.watch()
        assert here.last().queue == "other"


async def test_a_late_removal_of_its_predecessor_leaves_an_object_alone() -> None:
    async with world() as here:
        here.feed.gone(WORKLOADS, KEY, "uid of the one before")
        assert here.mirror.get(WORKLOADS, KEY) is not None
        here.feed.gone(WORKLOADS, KEY, here.mirror.objects[WORKLOADS][KEY]["metadata"]["uid"])
        assert here.mirror.get(WORKLOADS, KEY) is None


async def test_the_echo_of_what_a_write_was_based_on_does_not_explain_its_conflict() -> None:
    """The admission got through unheard. The watch is behind: it shows only what was known before."""
    async with world() as here:
        here.decide("admission", admit())
        here.server.script.append(Answer(0, verb="patch", after=True))
        here.watch()
        await here.quiet()
        assert model.WriteFailed(KEY) in here.facts
        assert here.last().admission is not None
        assert here.server.requests["get workloads"] == 1


async def test_nobody_thinks_again_before_the_truth_is_known() -> None:
    """The admission got through unheard, and then nothing can be read for a while."""
    async with world() as here:
        here.decide("admission", admit())
        here.server.script += [Answer(0, verb="patch", after=True), Answer(503, verb="get"), Answer(429, verb="get")]
        before = len(here.facts)
        await here.quiet()
        failed, *rest = here.facts[before:]
        assert failed == model.WriteFailed(KEY)
        assert rest
        assert here.last().admission is not None
        assert here.server.requests["get workloads"] == 3


async def test_what_was_decided_on_a_refused_assumption_is_dropped_with_it() -> None:
    """An eviction waits behind an admission that collides: nobody was admitted, so nobody is evicted."""
    async with world() as here:
        here.server.put(PATH, "w", spec={"queueName": "other"})
        here.decide("admission", admit())
        here.server.script.append(Answer(200, verb="patch", delay=0.1))
        async with asyncio.timeout(10):
            while not here.server.requests["patch workloads"]:
                await asyncio.sleep(0.005)
        here.decide("evict", preempt())
        here.writes.change(KEY, "release", status_changes.release, priority=Priority.LIFECYCLE)
        await here.quiet()
        assert here.last().queue == "other"
        assert here.last().evicted == ""
        assert "schedulingStats" not in here.server.objects[f"{PATH}/w"].obj["status"]


async def test_older_versions_of_kueue_have_fewer_words_for_waiting() -> None:
    """The same explanation again writes nothing, though its own reason is another one."""
    waits = {
        "WaitingForQuota": "Pending",
        "NoMatchingFlavor": "Pending",
        "Misconfigured": "Inadmissible",
        "WaitingForPodsReady": "Waiting",
    }
    async with world(older_words=True) as here:
        before = here.server.version
        for reason, older in waits.items():
            for _ in range(2):
                here.decide("pending", status_changes.pending(model.Explanation(reason, f"because of {reason}")))
                await here.quiet()
            stored = here.mirror.get(WORKLOADS, KEY)
            assert stored is not None
            [row] = stored["status"]["conditions"]
            assert (row["type"], row["status"], row["reason"]) == ("QuotaReserved", "False", older)
        assert here.server.version == before + len(waits)


LEADER: JobRef = (LEADER_WORKER_SETS, "ns/l")
GROUP: JobRef = (PODS, "ns/g")


@contextlib.asynccontextmanager
async def behind_another(*script: Answer) -> AsyncIterator[tuple[DoubtedWrites, list[tuple[JobRef | None, str]]]]:
    """A status change in flight, behind which other writes of the Workload wait; and the results of these, by their owners."""
    async with world() as here:
        resolved: list[tuple[JobRef | None, str]] = []
        here.writes._messages.subscribe(
            WriteResolved, lambda each: resolved.append((each.owner, type(each.error).__name__ if each.error else ""))
        )
        here.writes.change(KEY, "pods-ready", run_changes.pods_ready(True), priority=Priority.ADMISSION)
        here.server.script += [Answer(200, verb="patch", delay=0.1), *script]
        async with asyncio.timeout(10):
            while not here.server.requests["patch workloads"]:
                await asyncio.sleep(0.005)
        yield here, resolved


def patched(here: DoubtedWrites, owner: JobRef, name: str, *, doubt: bool = False) -> None:
    body = {"metadata": {"annotations": {name: "set"}}}
    here.writes.send(
        ObjectKey.parse(WORKLOADS, KEY), "patch", body, priority=Priority.LIFECYCLE, owner=owner, doubt=doubt
    )


async def wait_for(resolved: list[tuple[JobRef | None, str]], count: int) -> None:
    async with asyncio.timeout(10):
        while len(resolved) < count:
            await asyncio.sleep(0.005)


async def test_writes_of_two_owners_that_wait_together_are_both_sent() -> None:
    """A LeaderWorkerSet and the pod group of one of its Workloads patch it in the same round: one that was never answered was
    planned no more.
    """
    async with behind_another() as (here, resolved):
        patched(here, LEADER, "a")
        patched(here, GROUP, "b")
        await wait_for(resolved, 3)
        assert sorted(resolved[1:], key=str) == sorted([(LEADER, ""), (GROUP, "")], key=str)
        assert here.server.objects[f"{PATH}/w"].obj["metadata"]["annotations"] == {"a": "set", "b": "set"}


async def test_a_write_that_replaces_one_of_the_same_owner_answers_for_both() -> None:
    async with behind_another() as (here, resolved):
        patched(here, GROUP, "a", doubt=True)
        patched(here, GROUP, "b", doubt=True)
        await wait_for(resolved, 3)
        assert resolved[1:] == [(GROUP, "")] * 2
        assert here.server.objects[f"{PATH}/w"].obj["metadata"]["annotations"] == {"b": "set"}
        assert not here.writes.in_doubt(WORKLOADS, KEY)
        assert not here.writes._tracking._tracks


async def test_a_write_is_not_repeated_once_a_newer_one_waits_which_answers_for_both() -> None:
    async with world() as here:
        owners: list[JobRef | None] = []
        here.writes._messages.subscribe(WriteResolved, lambda each: owners.append(each.owner))
        here.server.script.append(Answer(503, verb="patch", delay=0.1))
        patched(here, GROUP, "a", doubt=True)
        async with asyncio.timeout(10):
            while not here.server.requests["patch workloads"]:
                await asyncio.sleep(0.005)
            patched(here, GROUP, "b", doubt=True)
            while len(owners) < 2:
                await asyncio.sleep(0.005)
        assert here.server.objects[f"{PATH}/w"].obj["metadata"]["annotations"] == {"b": "set"}
        assert not here.writes._tracking._tracks


async def test_what_was_held_back_while_in_doubt_is_looked_at_afterwards() -> None:
    """As a job's end that is written at the moment of its admission."""
    async with world() as here:
        changed = here.mirror.changes.workloads.subscribe(worth=lambda key: True)
        here.server.put(PATH, "w", spec={"queueName": "other"})
        here.decide("admission", admit())
        here.watch()
        assert not changed.take()
        await here.quiet()
        assert changed.take() == {KEY}


async def test_a_doubt_that_comes_to_nothing_ends_for_those_who_waited_for_it() -> None:
    async with world() as here:
        changed = here.mirror.changes.unowned.subscribe(worth=lambda key: True)
        here.decide("nothing", lambda status, now: None)
        await here.quiet()
        assert changed.take() == {KEY}
