"""Workloads and jobs that ended long ago are deleted where the configuration says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.context import a_context
from tests.control.test_plan import JOB_KIND, NOW, a_job
from tests.objects import WorkloadObject, as_stored

from gangline.api.read.configuration.sections import Retention
from gangline.control.feed.mirror import Mirror
from gangline.control.kinds.retention import MOST_AT_ONCE, RETRY, Retainer
from gangline.control.writes.status import run_changes, status_changes
from gangline.engine import model
from gangline.jobs import workload as workloads
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict
from gangline.kube.resources import ObjectKey

Json = dict[str, Any]
HOUR = 3_600_000


class RetainedObjects:
    """Deletions are kept until the test answers them."""

    def __init__(self, policy: Retention) -> None:
        self.mirror = Mirror(lambda change: None)
        self.asked: dict[str, tuple[Json, Callable[[Any], None], Callable[[ApiError], None]]] = {}
        self.events: list[tuple[str, str, str]] = []
        self.part = Retainer(a_context(mirror=self.mirror, writes=self, recorder=self), policy)  # type: ignore[arg-type]

    def send(self, key: ObjectKey, verb: str, body: Json, *, done: Any, failed: Any, **_: Any) -> None:
        assert verb == "delete"
        self.asked[f"{key.resource.kind} {key.name}"] = (body, done, failed)

    def expected(self, error: ApiError) -> bool:
        return isinstance(error, Conflict)

    def record(self, obj: Json, kind: str, reason: str, note: str) -> None:
        self.events.append((obj["kind"], reason, note))

    def put(self, resource: kube.Resource, obj: Json) -> None:
        self.mirror.upsert(resource, obj)

    def answer(self, name: str, error: ApiError | None = None) -> Any:
        body, done, failed = self.asked.pop(name)
        failed(error) if error is not None else done(None)
        return as_stored(body)


def finished(status: Json, now: int) -> None:
    run_changes.finish(True, "done")(status, now)


def timed_out(status: Json, now: int) -> None:
    cause = "MaximumExecutionTimeExceeded"
    status_changes.evict(model.Evict("ns/j", "w", "Deactivated", "over", deactivate=True, underlying_cause=cause))(
        status, now
    )


def deactivated_by_hand(status: Json, now: int) -> None:
    status_changes.evict(model.Evict("ns/j", "w", "Deactivated", "The workload is deactivated"))(status, now)


def a_workload(*changes: Any, name: str = "w", active: bool = True) -> WorkloadObject:
    job = a_job()
    body = workloads.build(JOB_KIND, job, JOB_KIND.pod_sets(job), queue="lq", priority=7)
    body["metadata"] |= {"name": name, "uid": name, "resourceVersion": "2"}
    body["spec"]["active"] = active
    body["status"] = {}
    for change in changes:
        change(body["status"], NOW)
    return WorkloadObject(body)


def test_a_finished_workload_is_deleted_when_its_time_has_come() -> None:
    world = RetainedObjects(Retention(after_finished=3600))
    world.put(kube.WORKLOADS, a_workload(finished))
    world.put(kube.WORKLOADS, a_workload(name="runs"))
    world.part.act(NOW)
    assert world.part.due == NOW + HOUR
    world.part.act(NOW + HOUR - 1)
    assert world.asked == {}
    world.part.act(NOW + HOUR)
    assert list(world.asked) == ["Workload w"]
    assert world.answer("Workload w") == {"uid": "w", "propagation": "Background"}
    assert world.events == [("Workload", "Deleted", "Deleted finished workload due to elapsed retention")]
    world.part.act(NOW + 2 * HOUR)
    assert world.asked == {}
    assert world.part.due is None


def test_zero_is_at_once_and_nothing_is_never() -> None:
    for policy, gone in ((Retention(after_finished=0), True), (Retention(after_deactivated=0), False)):
        world = RetainedObjects(policy)
        world.put(kube.WORKLOADS, a_workload(finished))
        world.part.act(NOW + 999)
        assert bool(world.asked) == gone


def test_a_job_that_was_deactivated_is_deleted_but_not_one_that_its_user_deactivated() -> None:
    world = RetainedObjects(Retention(after_deactivated=3600))
    world.put(kube.JOBS, a_job())
    for changed, active in ((timed_out, True), (deactivated_by_hand, False)):
        world.put(kube.WORKLOADS, a_workload(changed, active=active))
        world.part.act(NOW + HOUR)
        assert world.asked == {}
        world.mirror.remove(kube.WORKLOADS, "ns/w")
    world.put(kube.WORKLOADS, a_workload(timed_out, active=False))
    world.part.act(NOW + HOUR)
    assert world.answer("Job j") == {"uid": "job-uid", "propagation": "Background"}
    assert world.events == [("Job", "Deleted", "Deleted job: deactivation retention period expired")]


def test_a_workload_that_was_activated_again_meanwhile_keeps_its_job() -> None:
    world = RetainedObjects(Retention(after_deactivated=3600))
    world.put(kube.JOBS, a_job())
    world.put(kube.WORKLOADS, a_workload(timed_out, active=False))
    again = a_workload(timed_out)
    again["metadata"]["resourceVersion"] = "3"
    world.put(kube.WORKLOADS, again)
    world.part.act(NOW + 2 * HOUR)
    assert world.asked == {}


@pytest.mark.parametrize("error", [Conflict(409, "Conflict", "changed"), ApiError(403, "Forbidden", "no")])
def test_a_refused_deletion_is_tried_again(error: ApiError) -> None:
    world = RetainedObjects(Retention(after_finished=0))
    world.put(kube.WORKLOADS, a_workload(finished))
    world.part.act(NOW)
    world.answer("Workload w", error)
    world.part.act(NOW + RETRY - 1)
    assert world.asked == {}
    world.part.act(NOW + RETRY)
    assert list(world.asked) == ["Workload w"]


def test_many_are_deleted_a_few_at_a_time_and_an_operator_with_many_that_are_not_due_looks_at_one() -> None:
    world = RetainedObjects(Retention(after_finished=3600))
    looked: list[str] = []
    look = world.part._look
    world.part._look = lambda key, now: (looked.append(key), look(key, now))[1]  # type: ignore[method-assign]
    count = 4 * MOST_AT_ONCE
    for number in range(count):
        world.put(kube.WORKLOADS, a_workload(finished, name=f"w{number}"))
    world.part.act(NOW)
    assert looked == []
    deleted: set[str] = set()
    for rounds in range(1, 5):
        world.part.act(NOW + HOUR)
        assert len(world.asked) == MOST_AT_ONCE
        assert world.part.due is None or world.part.due > NOW + HOUR, "the loop does not spin meanwhile"
        for name in list(world.asked):
            world.answer(name)
            deleted.add(name)
        assert len(looked) == rounds * MOST_AT_ONCE
    assert len(deleted) == count


def test_deletions_without_an_answer_do_not_block_the_rest_for_ever() -> None:
    world = RetainedObjects(Retention(after_finished=0))
    for number in range(MOST_AT_ONCE + 1):
        world.put(kube.WORKLOADS, a_workload(finished, name=f"w{number}"))
    world.part.act(NOW)
    world.asked.clear()  # dropped behind a refused write
    world.part.act(NOW + RETRY)
    assert len(world.asked) == 1
