"""What happened: which changes are events, who sees what of them, and which numbers can be followed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.clusters import NOW, SECRET, key_of
from tests.control.test_answers import Reader, everything_said

from gangline.api.read.conditions import timestamp
from gangline.control.answers.answers import Answers
from gangline.control.answers.refusals import NoEventsError, NoSuchQueueError
from gangline.control.answers.sight import Everybody
from gangline.control.answers.usage.happenings import LONGEST, EventSubject, ForgottenError, Happenings, Log
from gangline.control.parts.messages import Messages, Recovered, StartMoved
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert

Json = dict[str, Any]


class LeaderLog:
    """A cluster, and the log of a leader that begins now."""

    def __init__(self) -> None:
        self.here = clusters.shared()
        self.messages = Messages()
        self.part = Happenings(self.here.mirror, self.messages, lambda: NOW * 1000)
        self.part.lead()

    def answers(self) -> Answers:
        made = self.here.answers()
        made.log = self.part.log
        return made

    def write(self, job: str, *rows: tuple[str, str, str, str], **status: Any) -> None:
        """The Workload gets these conditions now: type, status, reason, message."""
        raw = self.here.mirror.objects[kube.WORKLOADS][key_of(self.here, job)]
        version = str(int(raw["metadata"]["resourceVersion"]) + 1000)
        conditions = [
            {"type": t, "status": s, "reason": r, "message": m, "lastTransitionTime": timestamp(NOW * 1000)}
            for t, s, r, m in rows
        ]
        self.show(
            {
                **raw,
                "metadata": {**raw["metadata"], "resourceVersion": version},
                "status": {**status, "conditions": conditions},
            }
        )

    def show(self, raw: Json) -> None:
        self.here.mirror.upsert(kube.WORKLOADS, raw)
        self.part.observe(kube.WORKLOADS, Upsert(raw))

    async def events(
        self, asker: Any = None, namespace: str = "ml", queue: str = "", after: int | None = None
    ) -> list[Json]:
        log = self.part.log
        found, _ = await self.answers().events(
            asker or Everybody(), namespace, queue, log.before_first if after is None else after, 100
        )
        return found


RUNS = (
    ("QuotaReserved", "True", "QuotaReserved", "Quota reserved"),
    ("Admitted", "True", "Admitted", "The workload is admitted"),
)


async def test_each_change_of_state_is_an_event_with_its_cause() -> None:
    world = LeaderLog()
    assert await world.events() == [], "what is there already has not just happened"
    world.write("next", *RUNS)
    world.write("next", *RUNS, ("PodsReady", "True", "Started", "All pods are ready"))
    world.write("next", *RUNS, ("PodsReady", "True", "Started", "again"))
    world.write("next", *RUNS, ("Finished", "True", "Succeeded", "done"))
    events = await world.events()
    assert [(each["event"], each["text"]) for each in events] == [
        ("Starting", "The workload is admitted"),
        ("Running", "All pods are ready"),
        ("Succeeded", "done"),
    ]
    assert {(each["jobName"], each["gpus"], each["clusterQueue"]) for each in events} == {("next", 8, "a")}
    numbers = [int(each["metadata"]["resourceVersion"]) for each in events]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert [each["event"] for each in await world.events(after=numbers[1])] == ["Succeeded"]


async def test_what_is_submitted_waits_and_is_deleted_is_told() -> None:
    world = LeaderLog()
    for _, raw in clusters.submitted("new", 1, "1h", ago=0)[1:]:
        world.here.mirror.upsert(kube.WORKLOADS, raw | {"metadata": {**raw["metadata"], "resourceVersion": "5000"}})
        world.part.observe(kube.WORKLOADS, Upsert(raw))
    world.write("new", ("QuotaReserved", "False", "WaitingForQuota", "8 more needed"))
    world.write("new", ("QuotaReserved", "False", "WaitingForQuota", "16 more needed"))
    key = key_of(world.here, "new")
    world.here.mirror.remove(kube.WORKLOADS, key)
    world.part.observe(kube.WORKLOADS, Removed(key, "wl-new"))
    events = [(each["event"], each["reason"]) for each in await world.events()]
    assert events == [("Submitted", ""), ("Pending", "WaitingForQuota"), ("Deleted", "")]


async def test_an_inactive_job_is_told_once_and_not_with_what_it_waited_for_before() -> None:
    world = LeaderLog()
    waits = ("QuotaReserved", "False", "WaitingForQuota", "8 more needed")
    world.write("next", waits)
    key = key_of(world.here, "next")
    world.here.mirror.objects[kube.WORKLOADS][key]["spec"]["active"] = False
    world.write("next", waits)
    world.write("next", ("QuotaReserved", "False", "Deactivated", "The workload is deactivated"))
    events = [(each["event"], each["text"]) for each in await world.events()]
    assert events == [("Pending", "8 more needed"), ("Inactive", "The workload is deactivated")]


async def test_others_jobs_are_reduced_to_size_and_time() -> None:
    world = LeaderLog()
    world.write(f"{SECRET}-waits", *RUNS)
    world.messages.publish(
        StartMoved(world.here.mirror.objects[kube.WORKLOADS][key_of(world.here, "next")], "now later")
    )
    events = await world.events(Reader("ml"), queue="a")
    hidden, mine = events
    assert (hidden["hidden"], hidden["gpus"], hidden["event"], hidden["at"]) == (True, 8, "Starting", NOW)
    assert hidden["jobName"].startswith("hidden-") and SECRET not in everything_said(events)
    assert (mine["event"], mine["text"]) == ("StartMoved", "now later")
    assert [each["jobName"] for each in await world.events(Reader("ml"))] == ["next"], "of the namespace alone"
    assert SECRET in everything_said(await world.events(queue="a"))


async def test_an_eviction_names_the_preemptor_to_those_who_may_see_it() -> None:
    world = LeaderLog()
    job, raw = (obj for _, obj in clusters.submitted(f"{SECRET}-waits", 1, "30m", ago=700, namespace=SECRET))
    uid = job["metadata"]["uid"]
    cause = f"Preempted to accommodate a workload (UID: {raw['metadata']['uid']}, JobUID: {uid}) due to prioritization"
    world.write("next", *RUNS, ("Evicted", "True", "Preempted", cause), ("Preempted", "True", "InCohort", cause))
    (admin,), (mine,) = await world.events(), await world.events(Reader("ml"))
    assert admin["text"] == f"preempted for {SECRET}-waits (prioritization)"
    assert mine["text"].startswith("preempted for hidden-") and SECRET not in everything_said(mine)


async def test_recoveries_are_events_and_a_standby_notes_none() -> None:
    world = LeaderLog()
    raw = world.here.mirror.objects[kube.WORKLOADS][key_of(world.here, "runs")]
    world.messages.publish(Recovered(raw, "node-1 replaced by node-2"))
    (event,) = await world.events()
    assert (event["event"], event["text"]) == ("Recovered", "node-1 replaced by node-2")
    standby = Happenings(world.here.mirror, world.messages, lambda: NOW * 1000)
    standby.observe(kube.WORKLOADS, Upsert(raw))
    world.messages.publish(Recovered(raw, "again"))
    assert standby.log.last == standby.log.before_first


async def test_an_object_that_cannot_be_read_costs_its_event_alone() -> None:
    world = LeaderLog()
    world.here.mirror.objects[kube.WORKLOADS]["ml/bad"] = {"metadata": {}}
    world.here.mirror.changes.workloads.add("ml/bad")
    world.write("next", *RUNS)
    assert [each["event"] for each in await world.events()] == ["Starting"]


async def test_where_nobody_remembers_that_is_said_and_wrong_queues_are_refused() -> None:
    answers = clusters.shared().answers()
    with pytest.raises(NoEventsError):
        answers.check_events("ml", "")
    with pytest.raises(NoSuchQueueError):
        LeaderLog().answers().check_events("ml", "none")


# --- the log ----------------------------------------------------------------------------------------------------------

SUBJECT = EventSubject("ml", "w", "Job", "w", "", "q", "cq", 1, 1, ())


def test_what_is_forgotten_or_anothers_can_not_be_followed() -> None:
    log = Log(lambda: 5, most=3)
    assert log.after(log.last, 10) == []
    first = log.last
    for number in range(5):
        log.add(str(number), SUBJECT)
    assert [each.what for each in log.after(log.before_first, 10)] == ["2", "3", "4"]
    assert [each.what for each in log.after(log.last - 1, 10)] == ["4"]
    assert [each.what for each in log.after(log.before_first, 1)] == ["2"]
    for number in (first, log.last + 1, 0):
        with pytest.raises(ForgottenError):
            log.after(number, 10)
    before = log.last
    log.begin()
    assert log.last >= before, "numbers only grow, even where the clock does not"
    with pytest.raises(ForgottenError):
        log.after(first, 10)


async def test_who_waits_is_woken_by_an_event() -> None:
    log = Log(lambda: 0)
    assert not await log.more(log.last, 0.0)
    waiting = asyncio.ensure_future(log.more(log.last, 60))
    await asyncio.sleep(0)
    log.add("x", SUBJECT)
    assert await waiting and await log.more(log.last - 1, 0.0)


def test_a_long_text_ends_with_a_whole_word_so_that_no_part_of_a_name_stays_unhidden() -> None:
    log = Log(lambda: 0)
    of = EventSubject("ml", "w", "Job", "j", "", "q", "cq", 1, 1, ())
    log.add("Pending", of, "x" * (LONGEST - 9) + " other/secret-job-of-theirs waits")
    (kept,) = log.after(log.last - 1, 1)
    assert kept.text == "x" * (LONGEST - 9)
    log.add("Pending", of, "x" * (2 * LONGEST))
    assert log.after(log.last - 1, 1)[0].text == ""
