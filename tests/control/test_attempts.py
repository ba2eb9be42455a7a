"""Attempts in the operator: when each begins and how it ends, what a new leader takes over, and who may see which of it."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.builders import clusters
from tests.builders.clusters import GPU, NOW, SECRET, key_of
from tests.control.test_answers import Reader, everything_said
from tests.control.test_room import pod

from gangline.api import names
from gangline.control.answers.answers import Answers
from gangline.control.answers.desk import Wish
from gangline.control.answers.pages import ListPage
from gangline.control.answers.refusals import NoAttemptsError, NoSuchJobError, NoSuchQueueError, NotReadableError
from gangline.control.answers.sight import ALL, Everybody
from gangline.control.answers.usage import attempt_reading as reading
from gangline.control.answers.usage import attempt_watch
from gangline.control.answers.usage import attempts as attempt_rows
from gangline.control.answers.usage.attempt_watch import AttemptWatch, RecentAttempts
from gangline.control.audit.decision_index import PreemptedSpan
from gangline.control.audit.hindsight import Hindsight
from gangline.control.forecasting import history_store
from gangline.control.forecasting.history_store import History
from gangline.control.parts.messages import GpusMeasured, Messages
from gangline.control.writes.status import run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model
from gangline.forecast.errors import StoreError
from gangline.forecast.history.attempts import AttemptQuery, JobAttempt
from gangline.forecast.history.usage import FlavorHours, UsageSum, Window
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.objects import WorkloadObject

Json = dict[str, Any]
HOUR = 3600.0


class Leader:
    """A leader that keeps a record of attempts, in a cluster whose clock this test turns."""

    def __init__(self, store: Any = None, here: Any = None, labels: Sequence[str] = ("team",)) -> None:
        self.here = here or clusters.world_of(
            clusters.flavor("h100"),
            *clusters.queue("a", 64),
            *clusters.submitted("train", 2, "1h", ago=600),
            *clusters.submitted("urgent", 2, "1h", ago=100),
        )
        self.now = NOW
        self.messages = Messages()
        self.store = store
        self.watch = AttemptWatch(
            self.here.mirror, self.here.pods, self.messages, store=store, now=lambda: self.now * 1000, labels=labels
        )

    async def lead(self) -> Leader:
        self.watch.lead()
        self.task = asyncio.ensure_future(self.watch.run())
        while not self.watch._watching:
            await asyncio.sleep(0.001)
        self.act()
        return self

    def act(self) -> None:
        self.watch.act(self.now * 1000)
        while self.watch.due is not None:
            self.watch.act(self.now * 1000)

    def end(self) -> None:
        """This leader is killed."""
        self.task.cancel()

    # --- what happens to a job ---

    def key(self, job: str = "train") -> str:
        return key_of(self.here, job)

    def change(self, change: Change, job: str = "train", *, after: int = 0, **metadata: Any) -> None:
        """Change the status of a job's Workload, so many seconds later."""
        self.now += after
        raw = copy.deepcopy(dict(self.here.mirror.workloads[self.key(job)]))
        change(raw["status"], self.now * 1000)
        raw["metadata"] |= {"resourceVersion": str(int(raw["metadata"]["resourceVersion"]) + 1000), **metadata}
        self.here.mirror.upsert(kube.WORKLOADS, raw)
        self.watch.observe(kube.WORKLOADS, Upsert(raw))

    def admit(self, job: str = "train", *, after: int = 0, workers: int = 2) -> None:
        pods = model.PodSetAssignment("worker", workers, {GPU: "h100"}, {GPU: 8 * workers})
        decision = model.Admit(self.key(job), f"wl-{job}", model.Admission("a", (pods,)), True, self.now * 1000)
        self.change(status_changes.admit(decision, pods_follow=True), job, after=after)

    def ready(self, ready: bool = True, *, after: int = 0, job: str = "train") -> None:
        self.change(run_changes.pods_ready(ready), job, after=after)

    def run(self, job: str = "train") -> None:
        """The job reserves quota, and is ready 20 seconds later."""
        self.admit(job)
        self.ready(after=20, job=job)

    def preempt(self, *, after: int, job: str = "train", by: str = "urgent") -> None:
        message = f"Preempted to accommodate a workload (UID: wl-{by}, JobUID: job-{by}) due to prioritization"
        decision = model.Preempt(self.key(job), f"wl-{job}", "InClusterQueue", message, self.key(by), f"wl-{by}")
        self.change(status_changes.preempt(decision), job, after=after)

    def evict(self, reason: str, *, after: int, cause: str = "") -> None:
        decision = model.Evict(self.key(), "wl-train", reason, f"because of {reason}", underlying_cause=cause)
        self.change(status_changes.evict(decision), after=after)

    def release(self, *, after: int = 0, job: str = "train", **metadata: Any) -> None:
        self.change(status_changes.release, job, after=after, **metadata)

    def finish(self, success: bool = True, *, after: int, job: str = "train") -> None:
        self.change(run_changes.finish(success, "it ended"), job, after=after)

    def delete(self, *, after: int, job: str = "train", unseen: bool = False) -> None:
        self.now += after
        key = self.key(job)
        raw = self.here.mirror.workloads[key]
        self.here.mirror.remove(kube.WORKLOADS, key)
        if not unseen:
            self.watch.observe(kube.WORKLOADS, Removed(key, raw.uid))

    def move(self, move: str, after: int) -> None:
        """Let one of these things happen after so many seconds."""
        match move:
            case "ready" | "unready":
                self.ready(move == "ready", after=after)
            case "finish" | "fail":
                self.finish(move == "finish", after=after)
            case "evict":
                self.evict("NodeFailures", after=after)
            case _:
                getattr(self, move)(after=after)

    # --- what is known ---

    def answers(self) -> Answers:
        made = self.here.answers()
        made.record = self.watch
        self.here.now = self.now * 1000
        return made

    async def rows(self, asker: Any = None, namespace: str = "ml", since: float = 9e5, **more: Any) -> list[Json]:
        return (await self.answers().attempts(asker or Everybody(), namespace, since, **more)).items

    async def sums(self, asker: Any = None, namespace: str = "ml", by: str = "clusterQueue", **more: Any) -> list[Json]:
        self.watch._sums.clear()
        return (await self.answers().usage(asker or Everybody(), namespace, 9e5, by, **more)).items


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    found = await Leader().lead()
    yield found
    found.end()


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    kept = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: float(NOW))
    yield kept
    await kept.close(5)


def hours(row: Json) -> tuple[float, ...]:
    """Seconds of the gang of 16 GPUs: starting, useful, lost."""
    names = ("startingGpuHours", "usefulGpuHours", "lostGpuHours")
    return tuple(round(row[name] * HOUR / 16, 1) for name in names)


# --- how an attempt begins and ends -------------------------------------------------------------------------------------


async def test_an_attempt_in_progress_and_its_end(leader: Leader) -> None:
    workload = leader.key().partition("/")[2]
    for node in ("n1", "n2"):
        leader.here.pods.upsert(pod(f"pod-{node}", node, 8, workload=workload))
    leader.admit(after=5)
    leader.ready(after=20)
    leader.now += 100
    (row,) = await leader.rows()
    assert (row["jobName"], row["jobKind"], row["localQueue"], row["clusterQueue"]) == ("train", "GPUJob", "a", "a")
    assert (row["gpus"], row["pods"], row["flavor"], row["attempt"], row["nodes"]) == (16, 2, "h100", 1, ["n1", "n2"])
    times = [row[name] - NOW for name in ("submitted", "reserved", "started", "ready")]
    assert (times, row["ended"], row["end"], row["lostTo"]) == ([-600, 5, 5, 25], None, "", "")
    assert (hours(row), row["nodeCount"], row["idleGpuHours"]) == ((20, 100, 0), 2, None)
    leader.finish(after=0)
    (row,) = await leader.rows()
    assert (row["end"], row["ended"] - NOW, hours(row), row["lostTo"]) == ("Succeeded", 125, (20, 100, 0), "")


async def test_a_preempted_job_loses_its_work_to_whom_and_begins_a_second_attempt(leader: Leader) -> None:
    leader.run()
    leader.preempt(after=100)
    (row,) = await leader.rows()
    assert row["end"] == "", "it still holds its quota"
    leader.release(after=10)
    leader.now += 50
    leader.run()
    second, first = await leader.rows()
    assert (first["end"], first["reason"], first["by"]) == ("Preempted", "InClusterQueue", "gpujob/urgent")
    assert (first["text"], first["lostTo"]) == ("preempted for gpujob/urgent (prioritization)", "preemption")
    assert (hours(first), first["lostSeconds"]) == ((20, 0, 110), 110)
    assert (second["attempt"], second["reserved"] - first["ended"], second["end"]) == (2, 50, "")


@pytest.mark.parametrize(
    ("reason", "cause", "shown", "loss"),
    [
        ("NodeFailures", "", "NodeFailures", "failure"),
        ("Stalled", "", "Stalled", "overrun"),
        ("Overrun", "", "Overrun", "overrun"),
        ("Deactivated", "MaximumExecutionTimeExceeded", "MaximumExecutionTimeExceeded", "overrun"),
        ("Deactivated", "", "Deactivated", "eviction"),
    ],
)
async def test_an_evicted_job_loses_its_work_to_the_reason(
    leader: Leader, reason: str, cause: str, shown: str, loss: str
) -> None:
    leader.run()
    leader.evict(reason, after=60, cause=cause)
    leader.release(after=1)
    (row,) = await leader.rows()
    assert (row["end"], row["reason"], row["lostTo"], hours(row)) == ("Evicted", shown, loss, (20, 0, 61))


async def test_a_failed_job_loses_what_its_checkpoints_did_not_save(leader: Leader) -> None:
    key = leader.key()
    raw = leader.here.mirror.workloads[key]
    raw["metadata"].setdefault("annotations", {})["gangline.io/checkpoint-interval"] = "100s"
    leader.run()
    value = leader.here.mirror.workload_value(key)
    assert value is not None and value.checkpoint == 100_000
    leader.finish(False, after=230)
    (row,) = await leader.rows()
    assert (row["end"], row["reason"], row["lostTo"]) == ("Failed", "Failed", "failure")
    assert (hours(row), row["savedSeconds"], row["lostSeconds"]) == ((20, 180, 50), 180, 50)


async def test_a_job_that_is_deleted_while_it_holds_quota_was_cancelled(leader: Leader) -> None:
    leader.run()
    leader.delete(after=40)
    (row,) = await leader.rows()
    assert (row["end"], row["lostTo"], hours(row), row["jobName"]) == ("Cancelled", "cancel", (20, 0, 40), "train")


async def test_a_job_that_is_released_while_it_is_deleted_was_cancelled(leader: Leader) -> None:
    leader.run()
    leader.change(run_changes.finish_because("OwnerNotFound", "The workload's owner no longer exists"), after=40)
    assert (await leader.rows())[0]["end"] == "Cancelled"


async def test_a_preempted_job_that_is_deleted_before_it_stopped_was_preempted(leader: Leader) -> None:
    leader.run()
    leader.preempt(after=40)
    leader.delete(after=5)
    (row,) = await leader.rows()
    assert (row["end"], row["by"]) == ("Preempted", "gpujob/urgent")


async def test_who_preempted_it_is_known_also_when_that_job_is_gone(leader: Leader) -> None:
    leader.run()
    leader.preempt(after=40)
    leader.here.mirror.remove(kube.GPU_JOBS, "ml/urgent")
    leader.delete(after=1, job="urgent")
    leader.ready(False, after=1)
    leader.release(after=1)
    (row,) = await leader.rows()
    assert (row["by"], row["lostTo"]) == ("gpujob/urgent", "preemption")


async def test_a_job_that_waits_or_is_deleted_waiting_has_no_attempt(leader: Leader) -> None:
    leader.change(lambda status, now: None)
    leader.delete(after=9)
    assert await leader.rows() == []


async def test_quota_that_is_given_back_otherwise_loses_nothing(leader: Leader) -> None:
    leader.run()
    leader.change(status_changes.put_on_hold("no pods"), after=30)
    (row,) = await leader.rows()
    assert (row["end"], row["reason"], row["lostTo"], hours(row)) == ("Released", "OnHold", "", (20, 30, 0))


async def test_time_in_which_lost_pods_are_replaced_is_not_useful(leader: Leader) -> None:
    leader.run()
    leader.ready(False, after=100)
    leader.ready(after=30)
    leader.finish(after=70)
    (row,) = await leader.rows()
    assert hours(row) == (50, 170, 0)


async def test_an_attempt_that_was_not_seen_ending_is_closed_by_what_is_still_written(leader: Leader) -> None:
    """Two changes may reach the mirror before this part looks."""
    leader.run()
    observe, leader.watch.observe = leader.watch.observe, lambda *_: None  # type: ignore[method-assign]
    leader.preempt(after=40)
    leader.release()
    leader.admit(after=7)
    leader.watch.observe = observe  # type: ignore[method-assign]
    leader.act()
    second, first = await leader.rows()
    assert (first["end"], first["by"], first["ended"]) == ("Preempted", "gpujob/urgent", second["reserved"])
    assert second["attempt"] == 2


async def test_quota_of_a_variant_is_counted_with_its_parent(leader: Leader) -> None:
    owner = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "name": "train",
        "uid": "wl",
        "controller": True,
    }
    leader.run("urgent")
    key = leader.key("urgent")
    allowed = {names.ALLOWED_FLAVORS: "h100"}
    raw = leader.here.mirror.workloads[key]
    assert reading.reserved_at(raw) == NOW
    variant = {**raw, "metadata": {**raw.metadata, "ownerReferences": [owner], "annotations": allowed}}
    assert reading.reserved_at(WorkloadObject(variant)) is None


#: what may happen to a job in each state of it, and the state that follows
MOVES: dict[str, dict[str, str]] = {
    "waits": {"admit": "starts"},
    "starts": {"ready": "runs", "preempt": "stops", "evict": "stops", "finish": "gone", "delete": "gone"},
    "runs": {
        "unready": "heals",
        "preempt": "stops",
        "evict": "stops",
        "fail": "gone",
        "finish": "gone",
        "delete": "gone",
    },
    "heals": {"ready": "runs", "preempt": "breaks", "evict": "breaks", "fail": "gone", "delete": "gone"},
    "stops": {"release": "waits", "finish": "gone", "delete": "gone"},
    "breaks": {"release": "waits", "finish": "gone", "delete": "gone"},  # it stops and its gang was not whole
}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5000), st.booleans()), max_size=25))
@example([(0, 1, False), (4, 1, False), (5, 1, False), (1, 1, False), (0, 1, True)])  # evicted while it recovers
def test_whatever_happens_each_second_with_quota_is_in_one_attempt(story: list[tuple[int, int, bool]]) -> None:
    asyncio.run(_whatever(story))


async def _whatever(story: list[tuple[int, int, bool]]) -> None:
    """Some of it happens while nobody leads. What is expected is counted here second by second."""
    with TemporaryDirectory() as folder:
        history = History(f"{folder}/h.db", Path(folder) / "model.gz", wall=lambda: float(NOW))
        leader = await Leader(history).lead()
        state, seconds, expected = "waits", Counter[str](), list[tuple[float, float]]()

        def ended(succeeded: bool) -> None:
            """Note the seconds of the attempt, and those in which its pods were not ready."""
            never = not seconds["runs"]
            unready = (
                (0 if succeeded else seconds.total())
                if never
                else seconds["starts"] + seconds["heals"] + seconds["breaks"]
            )
            expected.insert(0, (seconds.total(), unready))
            seconds.clear()

        for choice, after, another_leads in story:
            if (moves := MOVES.get(state)) is None:
                break
            move = sorted(moves)[choice % len(moves)]
            if another_leads:
                await history.flush()
                leader.end()
                before = leader
                unseen = Leader(None, before.here)
                unseen.now = before.now
                leader = Leader(history, before.here)
            happens = unseen if another_leads and move != "delete" else leader
            if another_leads and move == "delete":
                leader.now = before.now
                await leader.lead()
            if state != "waits":
                seconds[state] += after
            happens.move(move, after)
            if happens is not leader:
                leader.now = happens.now
                await leader.lead()
            if (state := moves[move]) in ("waits", "gone"):
                ended(move == "finish")
        leader.now += 10
        if state not in ("waits", "gone"):
            seconds[state] += 10
            ended(False)
        rows = await leader.rows()
        assert [row["attempt"] for row in rows] == list(range(len(expected), 0, -1))
        for row, (held, unready) in zip(rows, expected, strict=True):
            assert sum(hours(row)) == pytest.approx(row["gpuHours"] * HOUR / 16, abs=0.4)
            assert row["gpuHours"] * HOUR / 16 == pytest.approx(held, abs=0.01)
            assert hours(row)[0] == pytest.approx(unready, abs=0.1)
            assert bool(row["end"]) == (row["ended"] is not None)
        (whole,) = await leader.sums() or [{"gpuHours": 0.0}]
        assert whole["gpuHours"] * HOUR / 16 == pytest.approx(sum(held for held, _ in expected), abs=0.01)
        leader.end()
        await history.close(5)


async def test_an_object_that_cannot_be_read_costs_its_record_alone(leader: Leader) -> None:
    leader.here.mirror.objects[kube.WORKLOADS]["ml/bad"] = {"metadata": {}}
    leader.here.mirror.changes.workloads.add("ml/bad")
    leader.run()
    leader.act()
    assert [row["jobName"] for row in await leader.rows()] == ["train"]


async def test_a_standby_records_nothing() -> None:
    leader = Leader()
    leader.run()
    assert await leader.rows() == []
    await leader.lead()
    assert [row["jobName"] for row in await leader.rows()] == ["train"]
    leader.end()


# --- telemetry ----------------------------------------------------------------------------------------------------------


async def test_idle_gpus_are_counted_where_they_are_measured(leader: Leader) -> None:
    workload = leader.key().partition("/")[2]
    for name in ("p0", "p1"):
        leader.here.pods.upsert(pod(name, "n1", 8, workload=workload))
    leader.run()
    leader.now += 100
    for name, idle in (("p0", True), ("p1", False), ("p0", True), ("stranger", True)):
        leader.messages.publish(GpusMeasured(f"ml/{name}", 30.0, idle))
    (row,) = await leader.rows()
    assert row["idleGpuHours"] == pytest.approx(8 * 60 / HOUR, abs=1e-6)
    assert row["usefulGpuHours"] == pytest.approx(16 * 100 / HOUR, abs=1e-6)


# --- the history --------------------------------------------------------------------------------------------------------


async def test_a_new_leader_goes_on_with_what_is_in_progress(history: History) -> None:
    first = await Leader(history).lead()
    first.run()
    first.preempt(after=50)
    first.release()
    first.run()
    first.here.pods.upsert(pod("p0", "n1", 8, workload=first.key().partition("/")[2]))
    first.messages.publish(GpusMeasured("ml/p0", 5, True))
    first.watch.keep_measured()
    await history.flush()
    first.end()
    second = await Leader(history, first.here).lead()
    second.messages.publish(GpusMeasured("ml/p0", 5, True))
    second.now = first.now + 100
    second.finish(after=0)
    await history.flush()
    last, before = await second.rows()
    assert last["idleGpuHours"] == pytest.approx(8 * 10 / HOUR, abs=1e-6)
    assert [(each["attempt"], each["end"]) for each in (last, before)] == [(2, "Succeeded"), (1, "Preempted")]
    assert hours(last) == (20, 100, 0)
    second.end()


async def test_a_new_leader_closes_what_ended_while_nobody_led(history: History) -> None:
    first = await Leader(history).lead()
    first.run()
    first.run("urgent")
    await history.flush()
    first.end()
    first.watch = Leader(None, first.here).watch  # nobody notes what happens now
    first.finish(after=60)
    first.delete(after=60, job="urgent")
    second = Leader(history, first.here)
    second.now = first.now + 500
    await second.lead()
    found = {row["jobName"]: row for row in await second.rows()}
    assert (found["train"]["end"], found["train"]["ended"]) == ("Succeeded", first.now - 60)
    assert (found["urgent"]["end"], found["urgent"]["ended"], found["urgent"]["lostTo"]) == ("Released", second.now, "")
    assert "No operator watched" in found["urgent"]["text"]
    await history.flush()
    assert await history.open_attempts("") == []
    second.end()


async def retried(history: History) -> Leader:
    """A leader after one under which a job was preempted."""
    first = await Leader(history).lead()
    first.run()
    first.preempt(after=50)
    first.release()
    await history.flush()
    first.end()
    second = Leader(history, first.here)
    second.now = first.now + 30
    return second


async def test_a_new_leader_knows_the_number_of_a_waiting_jobs_next_attempt(history: History) -> None:
    second = await retried(history)
    await second.lead()
    second.run()
    last, before = await second.rows()
    assert (last["attempt"], last["reserved"] - before["ended"]) == (2, 30)
    (sum_,) = await second.sums()
    assert sum_["waitedGpuHours"] == pytest.approx(16 * (600 + 30) / HOUR, abs=1e-5)
    second.end()


async def test_finished_jobs_of_earlier_leaders_are_recorded_once(history: History) -> None:
    first = await Leader(history).lead()
    first.run()
    first.finish(after=30)
    await history.flush()
    first.end()
    (before,) = await history.attempts(AttemptQuery())
    second = await Leader(history, first.here).lead()
    assert history._attempts._sizes.total == 0, "nothing is written again"
    second.end()
    third = await Leader(None, first.here).lead()
    (row,) = await third.rows()
    assert (row["end"], row["reserved"]) == ("Succeeded", before.reserved), "by its conditions"
    third.end()


class Broken(RecentAttempts):
    """A database that does not answer for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.away = True
        self.left: list[JobAttempt] = []

    async def open_attempts(self, cluster: str) -> list[JobAttempt]:
        if self.away:
            raise StoreError("no answer")
        return self.left


async def test_a_database_that_is_away_costs_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_watch, "RETRY", 0.001)
    broken = Broken()
    leader = await Leader(broken).lead()
    leader.run()
    broken.left = [
        JobAttempt("wl-train", NOW - 500.0, NOW - 600.0, NOW - 600.0, namespace="ml", workload=leader.key()[3:]),
        JobAttempt("gone", NOW - 500.0, NOW - 600.0, NOW - 600.0, namespace="ml", workload="gone"),
    ]
    broken.away = False
    while len(await leader.rows()) < 3:
        await asyncio.sleep(0.001)
        leader.act()
    running, *closed = await leader.rows()
    assert running["end"] == "" and {each["end"] for each in closed} == {"Released"}
    leader.finish(after=1)
    assert (await leader.rows())[0]["end"] == "Succeeded"
    leader.end()


async def test_attempts_wait_for_a_database_that_refuses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_store, "RETRY", 0.0)
    blocked = tmp_path / "taken"
    blocked.write_text("a file where a directory should be")
    history = History(str(blocked / "h.db"), tmp_path / "model.gz", wall=lambda: float(NOW))
    leader = await Leader(history).lead()
    leader.run()
    leader.finish(after=30)
    assert not await history.flush()
    (row,) = await leader.rows()
    (sum_,) = await leader.sums()
    assert (row["end"], sum_["attempts"]) == ("Succeeded", 1), "answers come from memory"
    blocked.unlink()
    assert await history.flush()
    assert [each.end for each in await history.attempts(AttemptQuery())] == ["Succeeded"]
    leader.end()
    await history.close(5)


async def test_a_retry_that_is_written_before_the_take_over_has_its_number(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database comes back between the write of an attempt and the question what there was before."""
    monkeypatch.setattr(attempt_watch, "RETRY", 0.001)
    second = await retried(history)
    away, open_attempts = [True], history.open_attempts

    async def answered(cluster: str) -> list[JobAttempt]:
        if away:
            raise StoreError("no answer")
        return await open_attempts(cluster)

    monkeypatch.setattr(history, "open_attempts", answered)
    await second.lead()
    second.run()
    second.preempt(after=40)
    second.release()
    second.now += 9
    second.run()
    assert await history.flush(), "the writes arrive first"
    away.clear()
    while second.watch._begun is not None:
        await asyncio.sleep(0.001)
    third, again, before = await second.rows()
    assert [each["attempt"] for each in (third, again, before)] == [3, 2, 1]
    assert (again["reserved"] - before["ended"], third["reserved"] - again["ended"]) == (30, 9)
    (sum_,) = await second.sums()
    assert sum_["waitedGpuHours"] == pytest.approx(16 * (600 + 30 + 9) / HOUR, abs=1e-5)
    assert await history.flush()
    found = await history.attempts(AttemptQuery())
    assert [(each.number, each.reserved - each.queued) for each in found] == [(3, 9), (2, 30), (1, 600)]
    second.preempt(after=10)
    second.release()
    second.run()
    assert (await second.rows())[0]["attempt"] == 4
    second.end()


async def test_an_attempt_that_goes_on_keeps_its_number_when_it_was_written_over(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_watch, "RETRY", 0.001)
    second = await retried(history)
    await second.lead()
    second.run()
    await history.flush()
    second.end()
    away, open_attempts = [True], history.open_attempts

    async def answered(cluster: str) -> list[JobAttempt]:
        if away:
            raise StoreError("no answer")
        return await open_attempts(cluster)

    monkeypatch.setattr(history, "open_attempts", answered)
    third = Leader(history, second.here)
    third.now = second.now + 5
    await third.lead()
    assert (await third.rows())[0]["attempt"] == 1, "nothing is known yet"
    assert await history.flush()
    away.clear()
    while third.watch._begun is not None:
        await asyncio.sleep(0.001)
    running, before = await third.rows()
    assert (running["attempt"], running["end"], before["attempt"], before["end"]) == (2, "", 1, "Preempted")
    assert (await history.attempts(AttemptQuery()))[0].queued == before["ended"]
    third.end()


async def test_what_began_while_the_database_is_away_is_remembered_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt_watch, "MOST_BEGUN", 3)
    leader = await Leader(Broken()).lead()
    for _ in range(9):
        leader.run()
        leader.preempt(after=5)
        leader.release(after=1)
    assert leader.watch._begun is not None and len(leader.watch._begun) == 3
    leader.end()


async def test_the_preemptor_is_found_by_its_workload(leader: Leader) -> None:
    """Messages about pod groups name no job."""
    for message in ("(UID: wl-urgent, JobUID: )", "(UID: wl-urgent, JobUID: UNKNOWN)"):
        leader.run()
        text = f"Preempted to accommodate a workload {message} due to prioritization"
        decision = model.Preempt(leader.key(), "wl-train", "InClusterQueue", text, leader.key("urgent"), "wl-urgent")
        leader.change(status_changes.preempt(decision), after=10)
        leader.release(after=1)
        row = (await leader.rows())[0]
        assert (row["by"], row["byNamespace"], row["byClusterQueue"]) == ("gpujob/urgent", "ml", "a")
    leader.delete(after=1, job="urgent")
    assert "wl-urgent" not in leader.watch._key_of and len(leader.watch._key_of) == len(leader.watch._uid_of) == 1


async def test_without_a_history_a_bounded_number_is_remembered() -> None:
    kept = RecentAttempts(most=3)
    for number in range(9):
        kept.put_attempt("", JobAttempt(f"loud{number}", NOW + number, NOW, NOW, namespace="loud", ended=NOW + number))
    kept.put_attempt("", JobAttempt("quiet", NOW, NOW, NOW, namespace="quiet", ended=NOW))
    found = [each.uid for each in await kept.attempts(AttemptQuery())]
    assert found == ["loud8", "loud7", "quiet"]
    assert (await kept.usage(Window(NOW - 9.0, NOW + 99.0), {}))["", ""].attempts == 3


# --- answers ------------------------------------------------------------------------------------------------------------


async def shared(history: Any = None, here: Any = None) -> Leader:
    """The other team's job preempts ours, and is cancelled."""
    leader = await Leader(history, here or clusters.shared()).lead()
    theirs = f"{SECRET}-runs"
    leader.now += 10
    leader.preempt(after=0, job="runs", by=theirs)
    leader.release(after=5, job="runs")
    leader.delete(after=40, job=theirs)
    return leader


async def test_what_of_others_attempts_is_seen() -> None:
    leader = await shared()
    theirs, mine = await leader.rows(Reader("ml"), namespace="")
    assert (mine["end"], mine["hidden"], mine["user"]) == ("Preempted", False, "")
    assert mine["by"].startswith("hidden-") and mine["text"] == f"preempted for {mine['by']} (prioritization)"
    assert (theirs["hidden"], theirs["gpus"], theirs["end"], theirs["nodes"], theirs["text"]) == (
        True, 16, "Cancelled", [], "",
    )  # fmt: skip
    assert SECRET not in everything_said([theirs, mine])
    theirs, mine = await leader.rows(namespace="")
    assert (mine["by"], theirs["namespace"]) == (f"gpujob/{SECRET}-runs", SECRET)
    assert [row["namespace"] for row in await leader.rows()] == ["ml"], "of the namespace alone"
    leader.end()


async def test_who_was_preempted_and_whom_a_job_had_preempted(leader: Leader) -> None:
    leader.run()
    leader.preempt(after=40)
    leader.release()
    leader.run("urgent")
    leader.finish(after=5, job="urgent")
    (row,) = await leader.rows(ended_as="Preempted")
    assert (row["jobName"], row["by"]) == ("train", "gpujob/urgent")
    assert (row["rule"], row["reason"]) == ("which goes first in this ClusterQueue", "InClusterQueue")
    assert [each["jobName"] for each in await leader.rows(ended_as="Succeeded")] == ["urgent"]
    for found, more in (
        (1, {"job": "train"}),
        (1, {"job": "train", "kind": "gpujobs"}),
        (0, {"job": "train", "kind": "job"}),
        (0, {"job": "urgent"}),
        (1, {"job": "urgent", "caused": True}),
        (1, {"job": "urgent", "kind": "gpujob", "caused": True}),
        (0, {"job": "urgent", "kind": "job", "caused": True}),
        (0, {"job": "gent", "caused": True}),
        (0, {"job": "train", "caused": True}),
        (1, {"caused": True, "cluster_queue": "a"}),
    ):
        assert len(await leader.rows(ended_as="Preempted", **more)) == found, more
    assert await leader.rows(namespace="m", caused=True) == [] == await leader.rows(namespace="m_", caused=True)


class Regrets:
    """A record of decisions that knows of the preemption of one workload alone."""

    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.asked: list[PreemptedSpan] = []

    async def hindsight(self, spans: Sequence[PreemptedSpan]) -> list[Hindsight]:
        self.asked += spans
        losses = {"chosen": {"workloads": 1, "lostGpuHours": 3.0}, "instead": {"workloads": 1, "lostGpuHours": 1.0}}
        cheaper = Hindsight({**losses, "spared": True})
        return [cheaper if each.workload == self.workload else Hindsight(unknown="gone") for each in spans]


async def test_whether_a_preemption_could_have_lost_less_is_asked_of_the_record(leader: Leader) -> None:
    leader.run()
    leader.preempt(after=40)
    leader.release()
    assert [row["hindsight"] for row in await leader.rows(cheaper=False)] == [None], "only if it is asked for"
    (row,) = await leader.rows(cheaper=True)
    assert "keeps no record" in row["hindsight"]["unknown"] and row["hindsight"]["cheaper"] is None
    regrets = Regrets(leader.key())
    leader.run()
    answers = leader.answers()
    answers.source = replace(answers.source, record=regrets)  # type: ignore[arg-type]
    going, ended = (await answers.attempts(Everybody(), "ml", 9e5, cheaper=True)).items
    assert going["hindsight"] is None and ended["hindsight"]["cheaper"]["instead"]["lostGpuHours"] == 1.0
    (span,) = regrets.asked
    assert span.since <= 1000 * ended["reserved"] and 1000 * ended["ended"] < span.until
    answer = await answers.attempts_of(Everybody(), "ml", "gpujob", "train", cheaper=True)
    assert [row["hindsight"] for row in answer] == [None, ended["hindsight"]]
    hidden = (await answers.attempts(Reader("other"), "", 9e5, cheaper=True)).items
    assert [row["hindsight"] for row in hidden] == [None, None], (
        "who may not see why it was preempted does not see this either"
    )


async def test_whose_job_preempted_others_sees_labels_of_them_and_nobody_else_sees_more() -> None:
    """Our job is the victim of a hidden one, and then has a hidden one preempted."""
    leader = await Leader(None, clusters.shared()).lead()
    theirs = f"{SECRET}-runs"
    leader.now += 10
    leader.preempt(after=0, job="runs", by=theirs)
    leader.release(after=5, job="runs")
    leader.preempt(after=5, job=theirs, by="runs")
    leader.release(after=5, job=theirs)
    (victim,) = await leader.rows(Reader("ml"), caused=True)
    assert (victim["hidden"], victim["by"], victim["byNamespace"]) == (True, "gpujob/runs", "ml")
    assert victim["jobName"].startswith("hidden-") and victim["rule"] and victim["text"] == ""
    (mine,) = await leader.rows(Reader("ml"), ended_as="Preempted")
    assert mine["by"].startswith("hidden-") and mine["byNamespace"] == "" and mine["rule"]
    everywhere = await leader.rows(Reader("ml"), namespace="", ended_as="Preempted")
    assert SECRET not in everything_said([victim, mine, *everywhere])
    nothing = await leader.rows(Reader("other"), namespace="", ended_as="Preempted")
    assert {(row["by"], row["reason"], row["rule"], row["byNamespace"], row["byClusterQueue"]) for row in nothing} == {
        ("", "", "", "", "")
    }
    leader.end()


@pytest.mark.parametrize(
    "by", ["clusterQueue", "localQueue", "namespace", "user", "flavor", "jobKind", "day", "label:team"]
)
async def test_sums_count_everybody_and_name_nobody_else(by: str) -> None:
    here = clusters.shared()
    for key, user in (("ml/runs", "mira"), (f"{SECRET}/{SECRET}-runs", f"{SECRET}-tom")):
        here.mirror.objects[kube.GPU_JOBS][key]["metadata"]["labels"] |= {"gangline.io/user": user, "team": f"{user}s"}
    leader = await shared(here=here)
    everybody = await leader.sums(namespace="", by=by)
    seen = await leader.sums(Reader("ml"), namespace="", by=by)
    assert SECRET not in everything_said(seen)
    assert sum(row["gpuHours"] for row in seen) == pytest.approx(sum(row["gpuHours"] for row in everybody))
    assert sum(row["attempts"] for row in seen) == 2
    if by in ("clusterQueue", "localQueue", "namespace", "user", "label:team"):
        assert any(row["hidden"] for row in seen) and not any(row["hidden"] for row in everybody)
    leader.end()


async def test_an_attempt_keeps_the_chosen_labels_that_its_job_had_when_it_began() -> None:
    leader = await Leader(labels=("team", "example.com/project")).lead()
    labels = leader.here.mirror.objects[kube.GPU_JOBS]["ml/train"]["metadata"]["labels"]
    labels |= {"team": "vision", "other": "x", "example.com/project": "p" * 999}
    leader.run()
    labels["team"] = "another"
    leader.preempt(after=100)
    leader.release()
    leader.run()
    leader.run("urgent")
    leader.now += 60
    found = [row for row in await leader.rows() if row["jobName"] == "train"]
    assert [each["labels"]["team"] for each in found] == ["another", "vision"]
    assert found[0]["labels"] == {"team": "another", "example.com/project": "p" * 63}
    by_team = {row["name"]: row["gpuHours"] for row in await leader.sums(by="label:team")}
    assert set(by_team) == {"another", "vision", ""}, "a job without the label is in a row without a name"
    assert sum(by_team.values()) == pytest.approx(sum(row["gpuHours"] for row in await leader.sums()))
    leader.end()


async def test_a_sum_has_what_was_lost_and_waited_for(leader: Leader) -> None:
    leader.run()
    leader.preempt(after=100)
    leader.release()
    leader.now += 40
    leader.run()
    leader.now += 60
    (row,) = await leader.sums(half_life=1e9)
    seconds = {name: round(row[f"{name}GpuHours"] * HOUR / 16) for name in ("", "useful", "starting", "waited") if name}
    assert seconds == {"useful": 60, "starting": 40, "waited": 640}
    assert round(row["lost"]["preemption"] * HOUR / 16) == 100 and set(row["lost"]) == {
        "preemption", "failure", "overrun", "cancel", "eviction",
    }  # fmt: skip
    assert (row["name"], row["jobs"], row["attempts"], row["preemptions"]) == ("a", 1, 2, 1)
    assert (row["medianWaitSeconds"], row["idleGpuHours"]) == (320, None)
    assert row["weightedGpuHours"] == pytest.approx(row["gpuHours"], rel=1e-3)
    assert (await leader.sums())[0]["weightedGpuHours"] is None
    (day,) = await leader.sums(by="day")
    assert (day["name"], day["gpuHours"]) == ("2023-11-14", row["gpuHours"])


async def test_a_sum_of_all_counts_each_job_once_and_names_the_time(leader: Leader) -> None:
    leader.run()
    leader.preempt(after=100)
    leader.release()
    leader.now += 86_400
    leader.run()
    leader.now += 86_400
    asked = leader.answers()
    usage = await asked.usage(Everybody(), "ml", 60, "day", start=NOW + 20.0, end=NOW + 80.0)
    assert (usage.start, usage.end, usage.total["jobs"], hours_of(usage.total)) == (NOW + 20.0, NOW + 80.0, 1, 60)
    usage = await asked.usage(Everybody(), "ml", 60, "day", start=NOW - 1000.0, end=NOW + 9e9)
    assert usage.end == leader.now, "no sum is of what has not been"
    assert (usage.total["jobs"], usage.total["attempts"], sum(row["jobs"] for row in usage.items)) == (1, 2, 2)
    assert hours_of(usage.total) == sum(map(hours_of, usage.items)) == 120 + 20 + 86_400
    (flavor,) = usage.total["flavors"]
    assert (flavor["flavor"], flavor["gpuHours"]) == ("h100", usage.total["gpuHours"])
    assert flavor["lostGpuHours"] == usage.total["lost"]["preemption"]


def hours_of(row: Json) -> int:
    """Seconds of the gang of 16 GPUs."""
    return round(row["gpuHours"] * HOUR / 16)


async def test_pages_of_one_question_are_of_one_window(leader: Leader) -> None:
    leader.run()
    asked = leader.answers()
    first = await asked.usage(Everybody(), "ml", 9e5, "user", page=ListPage(0, 1))
    leader.now += 5
    second = await leader.answers().usage(Everybody(), "ml", 9e5, "user", page=ListPage(1, 1))
    assert (first.end, first.total) == (second.end, second.total)


async def test_kept_sums_have_counted_a_bounded_number_of_jobs(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_watch, "MOST_COUNTED", 5)
    leader.run()
    answers = leader.answers()
    for number in range(20):
        await answers.usage(Everybody(), "ml", 1000.0 + number, "user")
    assert len(leader.watch._sums) <= 6
    leader.now += 60
    await leader.answers().usage(Everybody(), "ml", 9e5, "user")
    assert len(leader.watch._sums) == 1, "what is too old is not kept"


def test_a_sum_names_a_bounded_number_of_flavors() -> None:
    found = UsageSum()
    for number in range(100):
        found.flavors[f"f{number:03}"] = FlavorHours(100.0 - number, 1.0)
    usage = attempt_rows.sums({("", "a"): found}, Window(0.0, 1.0), ALL)
    flavors = usage.rows[0]["flavors"]
    assert len(flavors) == attempt_rows.MOST_FLAVORS + 1 and flavors[0]["flavor"] == "f000"
    assert flavors[-1]["flavor"] == "" and flavors[-1]["lostGpuHours"] == 36.0
    assert sum(each["gpuHours"] for each in flavors) == sum(100.0 - number for number in range(100))


async def test_sums_of_a_namespace_are_those_of_its_queues() -> None:
    leader = await shared()
    assert [row["name"] for row in await leader.sums(Reader("ml"))] == ["a"]
    assert len(await leader.sums(namespace="")) == 2
    assert len(await leader.sums(namespace="", page=ListPage(1, 1))) == 1
    with pytest.raises(NoSuchQueueError):
        await leader.sums(cluster_queue=f"{SECRET}-queue")
    leader.end()


async def test_who_asks_the_same_gets_the_same_sums_for_a_moment(leader: Leader) -> None:
    asked: list[Window] = []
    usage = leader.watch._store.usage

    async def counted(window: Window, newer: Any) -> Any:
        asked.append(window)
        return await usage(window, newer)

    leader.watch._store.usage = counted  # type: ignore[method-assign]
    leader.run()
    answers = leader.answers()
    summed = await asyncio.gather(*(answers.usage(Everybody(), "ml", 9e5, "user") for _ in range(5)))
    assert len(asked) == 1 and len({str(each) for each in summed}) == 1
    for number in range(99):
        await answers.usage(Everybody(), "ml", 1000.0 + number, "user")
    assert len(leader.watch._sums) == attempt_watch.MOST_SUMS
    leader.now += 60
    await leader.answers().usage(Everybody(), "ml", 9e5, "user")
    assert len(asked) == 101


async def test_attempts_of_one_job_also_after_it_is_gone(leader: Leader) -> None:
    leader.run()
    answers, workload = leader.answers(), leader.key().partition("/")[2]
    for kind, name in (("", "train"), ("gpujob", "train"), ("gpujobs", "train"), ("workload", workload)):
        assert len(await answers.attempts_of(Everybody(), "ml", kind, name)) == 1, (kind, name)
    assert await answers.attempts_of(Everybody(), "ml", "", "urgent") == []
    leader.delete(after=10)
    (row,) = await leader.answers().attempts_of(Everybody(), "ml", "gpujob", "train")
    assert row["end"] == "Cancelled"
    for kind, name in (("job", "train"), ("", "none")):
        with pytest.raises(NoSuchJobError):
            await leader.answers().attempts_of(Everybody(), "ml", kind, name)
    with pytest.raises(NotReadableError):
        await leader.answers().attempts_of(Reader("other"), "ml", "", "train")


async def test_a_cancelled_job_is_a_past_run_and_deleted_ones_keep_their_outcome(history: History) -> None:
    leader = await shared(history)
    leader.run("next")
    leader.finish(False, after=30, job="next")
    leader.delete(after=1, job="next")
    await history.flush()
    runs = (await leader.answers().past(Everybody(), "", 9e5)).items
    assert [(run["jobName"], run["state"], run["jobKind"]) for run in runs] == [
        ("next", "Failed", "GPUJob"),
        (f"{SECRET}-runs", "Cancelled", "GPUJob"),
    ]
    assert runs[1]["gpuHours"] == pytest.approx(16 * 1155 / HOUR, abs=1e-3)
    hidden = (await leader.answers().past(Reader("ml"), "", 9e5)).items
    assert SECRET not in everything_said(hidden) and hidden[1]["state"] == "Ended"
    leader.end()


async def test_where_nobody_keeps_a_record_that_is_said() -> None:
    answers = clusters.shared().answers()
    for question in (
        answers.attempts(Everybody(), "ml", 60),
        answers.attempts_of(Everybody(), "ml", "", "runs"),
        answers.usage(Everybody(), "ml", 60, "user"),
    ):
        with pytest.raises(NoAttemptsError):
            await question


async def test_annotations_are_added_to_jobs_that_one_may_see() -> None:
    here = clusters.shared()
    for name, space in (("runs", "ml"), (f"{SECRET}-runs", SECRET)):
        job = here.mirror.objects[kube.GPU_JOBS][f"{space}/{name}"]
        job["metadata"]["annotations"] = {"lab.example/paper": f"paper of {space}" + "x" * 999}
        job["metadata"]["labels"]["team"] = space
    keys = ("lab.example/paper", "team", "none")
    wish = Wish("", annotations=keys)
    rows = {row["jobName"]: row for row in (await here.answers().jobs(Reader("ml"), wish)).items}
    assert rows["runs"]["annotations"]["team"] == "ml" and len(rows["runs"]["annotations"]) == 2
    assert len(rows["runs"]["annotations"]["lab.example/paper"]) == 256
    assert rows["next"]["annotations"] == {}
    hidden = [row for row in rows.values() if row["hidden"]]
    assert hidden and not any("annotations" in row for row in hidden)
    assert SECRET not in everything_said(rows)
    plain = (await here.answers().jobs(Everybody(), Wish("ml"))).items
    assert not any("annotations" in row for row in plain)
