"""Elastic jobs in other clusters: one slice takes the place of another there, and the job runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.context import a_context
from tests.control import test_multikueue as usual
from tests.control.test_multikueue import ADMITTED, EMPTY, NOW, condition, lost, row
from tests.control.test_multikueue_part import Room, Worker, owned, room
from tests.merging import merge_patch

from gangline.api import names
from gangline.api.jobkinds import ray
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.copies import Copy
from gangline.control.checks.multikueue.plan import planning
from gangline.control.checks.multikueue.plan.steps import (
    Chain,
    Choose,
    ClusterView,
    Finish,
    MirrorStatus,
    SetCheck,
    Step,
    Stop,
    Wait,
    WithdrawFromCluster,
)
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.kinds.upkeep import ReplacedSlices
from gangline.jobs import on_other_cluster
from gangline.kube import resources as kube
from gangline.objects import JobObject, WorkloadObject

Json = dict[str, Any]
__all__ = ["room"]
OLD = "team/old"
RUNS: Json = {"clusterName": "a"}
REPLACED = condition(names.FINISHED, reason="WorkloadSliceReplaced")


def spec(pods: int) -> Json:
    [pod_set] = usual.SPEC["podSets"]
    return {**usual.SPEC, "podSets": [{**pod_set, "count": pods}]}


def a_slice(pods: int, *conditions: Json, check: Json | None = None, **status: Any) -> WorkloadObject:
    body = usual.workload(*conditions, check=check, **status)
    body["metadata"]["annotations"] = {names.ELASTIC: "true", names.SLICE_NAME: "old", names.REPLACEMENT_FOR: OLD}
    body["spec"] = {**spec(pods), "active": True}
    return body


def job(pods: int, *, suspend: bool = False, **status: Any) -> JobObject:
    body = usual.job(suspend=suspend, **status)
    body["metadata"]["annotations"] = {names.ELASTIC: "true"}
    body["spec"] |= {"parallelism": pods, "completions": 100}
    return body


def remote(pods: int, named: str = "wl", **status: Any) -> JobObject:
    body = job(pods, active=2, **status)
    body["metadata"] |= {"uid": "r", "labels": {names.PREBUILT_WORKLOAD: named}}
    kind = on_other_cluster(kube.JOBS)
    assert kind is not None
    return copies.read_job(body, kind.suspension, kind.followed, kind.size_of)


def copy(pods: int, *conditions: Json, **more: Any) -> Copy:
    return replace(
        usual.copy(*conditions),
        spec=copies.digest(spec(pods)),
        shape=copies.shape(spec(pods)),
        sizes={"main": pods},
        **more,
    )


def there(copy: Copy | None, job: JobObject | None = None, **more: Any) -> ClusterView:
    return ClusterView(True, copy=copy, jobs={"train": job} if job is not None else {}, **more)


def planned(workload: WorkloadObject, here: Json, chain: Chain | None = None, **clusters: ClusterView) -> list[Step]:
    return planning.plan(replace(usual.view(workload, here, **clusters), chain=chain or Chain(replaces=OLD)))


def shown(steps: Sequence[Step]) -> list[tuple[str, str]]:
    return [(type(step).__name__, getattr(step, "cluster", "")) for step in steps]


# --- it grows ---------------------------------------------------------------------------------------------------------


def test_while_the_old_slice_runs_here_nothing_is_done_for_the_new_one() -> None:
    chain = Chain(replaces=OLD, waits=True)
    assert planned(a_slice(6), job(6), chain) == []
    assert planned(a_slice(6, reserved=False), job(6), chain, a=there(None, remote(2, "old"))) == []


def test_the_new_slice_goes_where_the_job_runs_and_nowhere_else() -> None:
    assert shown(planned(a_slice(6, **RUNS), job(6, active=2), a=there(None, remote(2, "old")))) == [("Send", "a")]
    other = [row(), row("Pending", "other")]
    waits = a_slice(6, admissionChecks=other, **RUNS)
    assert planned(waits, job(6, active=2), a=there(None, remote(2, "old"))) == [], "another check is not ready yet"


def test_while_it_waits_there_the_job_here_shows_how_far_it_is() -> None:
    waits = a_slice(6, **RUNS)
    [step] = planned(waits, job(6, active=1), a=there(copy(6), remote(2, "old")))
    assert isinstance(step, MirrorStatus) and step.status["active"] == 2
    assert planned(waits, job(6, active=2), a=there(copy(6), remote(2, "old"))) == []


def test_admitted_there_the_job_gets_its_size_and_names_the_new_slice() -> None:
    admitted = there(copy(6, ADMITTED), remote(2, "old"))
    steps = planned(a_slice(6, **RUNS), job(6, active=2), a=admitted)
    assert shown(steps) == [("Resize", "a"), ("Choose", "a")]
    running = a_slice(6, check=row("Ready"), **RUNS)
    assert planned(running, job(6, active=2), a=there(copy(6, ADMITTED), remote(6))) == []
    assert shown(planned(running, job(6, active=2), a=there(copy(6, ADMITTED), remote(6, "old")))) == [("Resize", "a")]


def test_a_job_is_never_made_larger_than_its_slice() -> None:
    running = a_slice(2, check=row("Ready"), **RUNS)
    assert planned(running, job(6, active=2), a=there(copy(2, ADMITTED), remote(2))) == []


def test_a_slice_that_was_replaced_leaves_the_job_alone() -> None:
    over = a_slice(2, REPLACED, check=row("Ready"), **RUNS)
    chain = Chain(over=True)
    assert planned(over, job(6), chain, a=there(copy(2, ADMITTED), goes_on=True)) == []
    [step] = planned(over, job(6), chain, a=there(copy(2, REPLACED)))
    assert isinstance(step, WithdrawFromCluster) and (step.cluster, step.jobs) == ("a", [])


def test_a_job_that_ends_while_a_slice_waits_there_has_ended() -> None:
    ended = condition(names.FINISHED, "done", reason="Succeeded")
    [step] = planned(a_slice(6, **RUNS), job(6, active=2), a=there(copy(6, ended), remote(2, "old")))
    assert step == Finish("Succeeded", "done")


# --- it shrinks -------------------------------------------------------------------------------------------------------


def test_a_smaller_size_is_passed_on_and_the_copy_is_cut() -> None:
    running = a_slice(3, check=row("Ready"), **RUNS)
    reserved = condition(names.QUOTA_RESERVED)
    steps = planned(running, job(3, active=2), a=there(copy(6, ADMITTED, reserved), remote(6)))
    assert shown(steps) == [("Cut", "a"), ("Resize", "a")]
    there_ = there(copy(6, ADMITTED, reserved, cut_there=True), remote(6))
    assert shown(planned(running, job(3, active=2), a=there_)) == [("Resize", "a")], (
        "it is cut there, when its pods end"
    )


def test_the_copy_of_a_slice_that_waits_is_cut_here() -> None:
    waits = there(copy(6, cut_there=True), remote(2, "old"))
    assert shown(planned(a_slice(4, **RUNS), job(4, active=2), a=waits)) == [("Cut", "a")]


def test_a_copy_that_was_cut_before_the_slice_here_is_kept() -> None:
    running = a_slice(6, check=row("Ready"), **RUNS)
    assert planned(running, job(3, active=2), a=there(copy(3, ADMITTED), remote(3))) == []


@pytest.mark.parametrize("changed", [{"sizes": {"main": 1}}, {"shape": "another"}])
def test_a_copy_that_others_have_changed_is_replaced(changed: Json) -> None:
    running = a_slice(6, check=row("Ready"), **RUNS)
    steps = planned(running, job(6, active=2), a=there(replace(copy(6, ADMITTED), **changed), remote(6)))
    assert shown(steps)[0] == ("WithdrawFromCluster", "a")


# --- it is stopped ----------------------------------------------------------------------------------------------------


def test_evicted_while_it_waits_there_the_slice_that_runs_is_stopped() -> None:
    evicted = a_slice(6, condition(names.EVICTED, "preempted"), **RUNS)
    before = copy(2, ADMITTED)
    [step] = planned(evicted, job(6, active=2), a=there(copy(6), remote(2, "old"), before=before))
    assert isinstance(step, Stop) and (step.copy, step.of) == (before, OLD)
    stopped_there = copy(2, ADMITTED, condition(names.DEACTIVATION_TARGET))
    assert planned(evicted, job(6, active=2), a=there(copy(6), remote(2, "old"), before=stopped_there)) == []
    over = condition(names.FINISHED, reason="OutOfSync")
    assert planned(evicted, job(6, active=2), a=there(copy(6, over), remote(2, "old"), before=stopped_there)) == []


def test_a_job_that_was_stopped_there_before_it_could_grow_queues_again() -> None:
    before = copy(2, ADMITTED, condition(names.EVICTED))
    [step] = planned(a_slice(6, **RUNS), job(6, active=2), a=there(copy(6), remote(2, "old"), before=before))
    assert isinstance(step, SetCheck) and step.state == "Retry"
    grown = there(copy(6, ADMITTED), remote(2, "old"), before=before)
    assert any(isinstance(step, Choose) for step in planned(a_slice(6, **RUNS), job(6, active=2), a=grown))


def test_a_lost_cluster_has_time_to_come_back_also_while_the_job_grows() -> None:
    assert planned(a_slice(6, **RUNS), job(6, active=2), a=lost(10)) == [Wait(NOW + 890_000)]
    [step] = planned(a_slice(6, **RUNS), job(6, active=2), a=lost(901))
    assert isinstance(step, SetCheck) and step.state == "Retry"


def test_a_slice_that_has_its_cluster_and_not_yet_its_quota_leaves_the_job_alone() -> None:
    waits = a_slice(6, reserved=False, **RUNS)
    assert planned(waits, job(6), a=there(None, remote(2, "old"))) == []
    evicted = a_slice(6, condition(names.EVICTED), reserved=False, **RUNS)
    assert shown(planned(evicted, job(6), a=there(None, remote(2, "old")))) == [("WithdrawFromCluster", "a")]


def test_without_quota_the_job_is_withdrawn() -> None:
    steps = planned(a_slice(6, reserved=False), job(6, suspend=True), a=there(copy(6), remote(2, "old")), b=EMPTY)
    [step] = steps
    assert isinstance(step, WithdrawFromCluster) and len(step.jobs) == 1 and step.copy is not None


# --- what a size is ---------------------------------------------------------------------------------------------------


def test_the_size_of_a_ray_cluster_is_that_of_its_groups() -> None:
    kind = on_other_cluster(ray.RAY_CLUSTER.resource)
    assert kind is not None

    def cluster(*groups: Json) -> Json:
        return {"spec": {"workerGroupSpecs": list(groups)}}

    template = {"spec": {"containers": [{"name": "c", "image": "there"}]}}
    here = cluster(
        {"groupName": "a", "replicas": 4, "maxReplicas": 8}, {"groupName": "b", "replicas": 1, "numOfHosts": 2}
    )
    found = cluster(
        {"groupName": "b", "replicas": 1, "numOfHosts": 2, "template": template},
        {"groupName": "a", "replicas": 2, "numOfHosts": 3, "template": template},
        {"groupName": "c", "replicas": 9},
    )
    assert kind.size_of(here) == {"a": [4, None, 8, None, None], "b": [1, None, None, 2, None]}
    assert kind.resized(found, here) == {
        "workerGroupSpecs": [
            found["spec"]["workerGroupSpecs"][0],
            {"groupName": "a", "replicas": 4, "maxReplicas": 8, "template": template},
            {"groupName": "c", "replicas": 9},
        ]
    }
    assert kind.resized(here, here) == {}


def test_the_size_of_a_job_is_its_parallelism_and_its_completions() -> None:
    kind = on_other_cluster(kube.JOBS)
    assert kind is not None
    assert kind.resized(job(2), job(6)) == {"parallelism": 6}
    assert kind.resized(job(6), job(6)) == {}
    indexed = JobObject({**job(6), "spec": {**job(6).spec, "completions": 6}})
    assert kind.resized(job(2), indexed) == {"parallelism": 6, "completions": 6}


# --- the part ---------------------------------------------------------------------------------------------------------


def answers(worker: Worker, found: Json) -> list[Json]:
    """Lets the worker answer reads with this job, and patches as an API server does; the patches that come."""
    patches: list[Json] = []

    async def get(*args: Any, **more: Any) -> Json:
        return found

    async def patch(resource: Any, namespace: str, name: str, body: Json, **more: Any) -> Json:
        patches.append(body)
        return merge_patch(found, {**body, "metadata": {**body["metadata"], "resourceVersion": "9"}})

    worker.get, worker.patch = get, patch  # type: ignore[attr-defined]
    return patches


async def test_the_job_goes_from_one_slice_to_the_next(room: Room) -> None:
    kind = on_other_cluster(kube.JOBS)
    assert kind is not None
    room.put(kube.JOBS, job(6, active=2))
    old = owned({**a_slice(2, check=row("Ready"), **RUNS)})
    old["metadata"] = {
        **old["metadata"],
        "name": "old",
        "annotations": {names.ELASTIC: "true", names.SLICE_NAME: "old"},
    }
    room.put(kube.WORKLOADS, old)
    room.put(kube.WORKLOADS, owned(a_slice(6, **RUNS)))
    room.act()
    first = Worker.made["a"]
    body = job(2, active=2)
    body["metadata"] |= {"uid": "r", "resourceVersion": "5", "labels": {names.PREBUILT_WORKLOAD: "old"}}
    first.store.answered(kube.JOBS, body)
    room.act()
    assert await first.carry_out() == [], "the old slice runs here"

    old["status"]["conditions"].append(REPLACED)
    room.put(kube.WORKLOADS, old)
    room.act()
    assert await first.carry_out() == ["create Workload"]
    assert await Worker.made["b"].carry_out() == []

    sent = room.mirror.workloads["team/wl"]
    copied = copies.workload_body(sent, "multikueue", kube.WORKLOADS)
    copied["metadata"] |= {"uid": "there-Workload", "resourceVersion": "6"}
    first.store.answered(kube.WORKLOADS, {**copied, "status": {"conditions": [ADMITTED]}})
    patches = answers(first, body)
    room.act()
    await first.carry_out()
    [patch] = patches
    assert patch["spec"] == {"parallelism": 6} and patch["metadata"]["labels"] == {names.PREBUILT_WORKLOAD: "wl"}
    assert room.status()["admissionChecks"][0]["state"] == "Ready"
    room.act()
    assert await first.carry_out() == []


async def test_a_job_that_is_still_needed_is_not_taken_for_a_leftover(room: Room) -> None:
    """The Workload of the slice that its label names was deleted here, before it got the next one's name."""
    room.put(kube.JOBS, job(6, active=2))
    room.put(kube.WORKLOADS, owned(a_slice(6, **RUNS)))
    room.act()
    first = Worker.made["a"]
    await first.carry_out()
    body = job(2, active=2)
    body["metadata"] |= {"uid": "r", "resourceVersion": "5", "labels": {names.PREBUILT_WORKLOAD: "old"}}
    first.store.answered(kube.JOBS, body)
    room.act(usual.NOW + 120_000)
    assert "delete Job" not in await first.carry_out()


async def test_the_next_slice_gets_the_cluster_before_the_old_one_is_over(room: Room) -> None:
    room.part.act(usual.NOW)
    part = ReplacedSlices(
        a_context(
            mirror=room.mirror,
            writes=cast(Any, room),
            recorder=cast(Any, room),
            metrics=cast(Any, SimpleNamespace(kueue=SimpleNamespace(slice_replaced=lambda *_: None))),
            quarantine=Quarantine(lambda subject, obj, what: pytest.fail(what)),
            wake=lambda: None,
        )
    )
    old = owned(a_slice(2, check=row("Ready"), **RUNS))
    old["metadata"] = {
        **old["metadata"],
        "name": "old",
        "uid": "o",
        "annotations": {names.ELASTIC: "true", names.SLICE_NAME: "old"},
    }
    room.put(kube.WORKLOADS, old)
    room.put(kube.WORKLOADS, owned(a_slice(6, nominatedClusterNames=["b"])))
    found: list[tuple[Any, bool]] = []
    for _ in range(3):
        part.act(usual.NOW)
        over = room.mirror.get(kube.WORKLOADS, OLD) or {}
        found.append(
            (
                room.status().get("clusterName"),
                any(each["type"] == names.FINISHED for each in over["status"]["conditions"]),
            )
        )
    assert found == [("a", False), ("a", True), ("a", True)]
    assert "nominatedClusterNames" not in room.status()
