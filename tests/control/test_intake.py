"""How much of an object is kept: what is too large, or too much for its namespace, costs its owner alone."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import declared
from tests.control.test_minimal_objects import Tape, operator
from tests.control.test_plan import JOB_KIND, a_job, a_workload, admitted, evicted
from tests.fuzz import worst
from tests.jobs.every_kind import gang
from tests.jobs.foreign import OWN
from tests.jobs.gangs import KIND as GPU_KIND
from tests.jobs.gangs import gpu_job
from tests.objects import JobObject, NodeObject, Stored, WorkloadObject

from gangline import jobs
from gangline.api import names
from gangline.control.controller import Controller
from gangline.control.feed.cluster_feed import ClusterFeed
from gangline.control.isolation import intake
from gangline.control.isolation.intake import NamespaceIntake
from gangline.control.kinds import job_plan
from gangline.control.kinds.steps import ChangeStatus, DeleteWorkload, JobView, Note, Own, PatchJob, PatchWorkload
from gangline.control.process import memory
from gangline.control.process.watches import Watches
from gangline.engine import model
from gangline.jobs.base import Children
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import Resource

Json = dict[str, Any]


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels > 1 else []


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    jobs.declare([OWN])
    yield
    jobs.declare([])


def pod_specs(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for inner in value.values():
            yield from pod_specs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pod_specs(inner)


def test_an_object_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is received. Its weight counts for its namespace as if it were measured there."""
    job = a_job()
    heavy, light = intake.received(kube.JOBS, copy.deepcopy(job)), JobObject(copy.deepcopy(job))
    kept = NamespaceIntake()
    kept.take(kube.JOBS, light)
    before = kept.stored["ns"]
    monkeypatch.setattr(intake, "measure", lambda *given: pytest.fail("measured again"))
    assert kept.take(kube.JOBS, heavy) is heavy
    assert kept.stored["ns"] == before == heavy.weight > 0


# --- one object -------------------------------------------------------------------------------------------------------

DEEP = {"unknown": [nested(88) for _ in range(100)]}
LARGE = {"unknown": [[] for _ in range(40_000)]}


@pytest.mark.parametrize("name", [case.name for case in declared.ALL])
@pytest.mark.parametrize(("more", "said"), [(DEEP, "has more than 40 levels"), (LARGE, "has more than 30,000 fields")])
def test_of_a_job_with_too_much_in_its_template_only_the_head_is_kept(name: str, more: Json, said: str) -> None:
    found = gang(name, created=1).job
    assert found is not None
    resource, job = found
    assert NamespaceIntake().take(resource, copy.deepcopy(job)) == job, "an honest one is kept whole"
    if not (specs := list(pod_specs(job))):  # another object describes its pods
        specs = [job["spec"]]
    specs[0] |= more
    head = NamespaceIntake().take(resource, job)
    assert intake.is_head(head)
    assert said in intake.why_head(head) and intake.why_head(head).startswith("spec")
    assert intake.measure(resource, head).values < 200
    suspension = jobs.BY_RESOURCE[resource].declaration.suspension
    assert suspension.read(head) == suspension.read(job)
    assert head["metadata"]["labels"][names.QUEUE_NAME] == "a"


def test_a_text_of_a_megabyte_is_one_value() -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * (1 << 20)]
    assert not intake.is_head(NamespaceIntake().take(kube.JOBS, job))


@pytest.mark.parametrize("levels", [300, 900])
def test_what_is_too_deep_to_be_written_is_a_head_as_well(levels: int) -> None:
    job = a_job()
    job["metadata"]["annotations"] = {"a": "b"}
    job["spec"]["template"]["spec"]["unknown"] = nested(levels)
    head = NamespaceIntake().take(kube.JOBS, job)
    assert intake.why_head(head).startswith("spec.template.spec.unknown")


def test_finding_out_looks_at_no_more_than_is_allowed() -> None:
    def steps(values: int) -> int:
        job = a_job()
        job["spec"]["template"]["spec"]["unknown"] = [[] for _ in range(values)]
        return worst.steps(lambda: intake.measure(kube.JOBS, job))

    assert steps(400_000) <= steps(40_000) + 1000


def test_what_comes_from_the_api_server_is_a_head_before_it_waits_to_be_read() -> None:
    large = stored(a_job())
    large["spec"]["template"]["spec"] |= LARGE
    assert intake.is_head(intake.received(kube.JOBS, large))
    small = stored(a_job(managedFields=[{"manager": "kubectl"}]))
    assert intake.received(kube.JOBS, small) is small and "managedFields" not in small["metadata"]
    cluster_scoped = NodeObject({"metadata": {"name": "n"}, "spec": {}, "status": LARGE})
    assert intake.received(kube.NODES, cluster_scoped) is cluster_scoped
    watch = Watches(None, on_rewind=print)._by_resource[kube.JOBS]  # type: ignore[arg-type]
    assert watch._decode is not None
    large = stored(a_job())
    large["spec"]["template"]["spec"] |= LARGE
    assert intake.is_head(watch._decode(large))


def test_what_nobody_reads_is_dropped() -> None:
    job = a_job(annotations={intake._LAST_APPLIED: "x" * 10_000, "mine": "y"}, managedFields=[{"manager": "kubectl"}])
    intake.slim(job)
    assert job["metadata"]["annotations"] == {"mine": "y"}
    assert "managedFields" not in job["metadata"]


# --- planning a head --------------------------------------------------------------------------------------------------


def head_of(job: JobObject, resource: Resource = kube.JOBS) -> JobObject:
    head = intake.head(resource, job, "spec: too much")
    assert isinstance(head, JobObject)
    return head


def plan(
    job: JobObject, *workloads: WorkloadObject, kind: Any = JOB_KIND, children: Children | None = None
) -> list[Any]:
    view = JobView(kind, head_of(job, kind.declaration.resource), workloads, children or Children())
    return job_plan.plan_head(view, "spec: too much")


def test_a_waiting_job_of_which_the_head_is_kept_is_not_queued() -> None:
    assert plan(a_job()) == []
    waiting = a_workload(a_job())
    deleted, note = plan(a_job(), waiting)
    assert deleted == DeleteWorkload(waiting) and isinstance(note, Note)


def test_one_that_runs_without_quota_is_suspended() -> None:
    patch, note = plan(a_job(suspend=False))
    assert isinstance(patch, PatchJob) and patch.patch.body == {"spec": {"suspend": True}}
    assert isinstance(note, Note) and note.message == "spec: too much"
    assert plan(a_job(suspend=False, queue="")) == [], "it was never Gangline's"


def test_one_that_runs_with_quota_goes_on_and_its_end_is_seen() -> None:
    job = a_job(suspend=False)
    workload = a_workload(job, admit=admitted)
    assert plan(job, workload) == []
    ended = [{"type": "Complete", "status": "True", "message": "done"}]
    [finish] = plan(a_job(suspend=False, status={"conditions": ended}), workload)
    assert isinstance(finish, ChangeStatus) and finish.slot == "finish"


def test_one_that_loses_its_quota_is_stopped_first() -> None:
    running = a_job(suspend=False, status={"active": 2})
    workload = a_workload(running, admit=admitted, evict=evicted)
    patch, _ = plan(running, workload)
    assert patch.patch.body == {"spec": {"suspend": True}}
    stopping = a_job(suspend=True, status={"active": 2})
    assert plan(stopping, workload) == [], "its pods still run"
    [deleted, _] = plan(a_job(suspend=True), workload)
    assert isinstance(deleted, DeleteWorkload)
    workload["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    [dropped] = plan(a_job(suspend=True), workload)
    assert isinstance(dropped, PatchWorkload) and dropped.body == {"metadata": {"finalizers": None}}


def test_the_children_of_a_gang_are_deleted_before_its_quota_goes() -> None:
    job = gpu_job()
    job["spec"]["suspend"] = True
    metadata = {"name": "c", "namespace": "ns", "uid": "u"}
    child = JobObject({"metadata": metadata, "spec": {}, "status": {"active": 1}})
    workload = a_workload(a_job(), admit=admitted, evict=evicted)
    [own] = plan(job, workload, kind=GPU_KIND, children=Children(jobs=[child]))
    assert isinstance(own, Own) and own.write.uid == "u"  # type: ignore[union-attr]
    child["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    assert plan(job, workload, kind=GPU_KIND, children=Children(jobs=[child])) == []


# --- the operator -----------------------------------------------------------------------------------------------------


class EventTape(Tape):
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def record(self, obj: Stored, kind: str, reason: str, message: str) -> None:
        self.events.append((obj["metadata"]["name"], reason, message))


def stored(job: JobObject, name: str = "j", version: int = 1) -> JobObject:
    found = copy.deepcopy(job)
    found["metadata"] |= {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return found


def show(controller: Controller, resource: Resource, *objects: Json) -> None:
    for obj in objects:
        controller.sink(resource)(Upsert(intake.received(resource, obj)))
    controller.absorb()
    controller.act()


def queued(controller: Controller) -> set[str]:
    """The jobs for which a Workload is to be created."""
    return {
        item.write.body["metadata"]["ownerReferences"][0]["name"]
        for key, lane in controller.writes._writer._lanes.items()
        for item in lane.waiting.values()
        if key.resource == kube.WORKLOADS and item.write.verb == "create"
    }


def event_tape(controller: Controller) -> EventTape:
    recorder = EventTape()
    for listener in controller.messages._listeners[_quarantined()]:
        listener.__self__._recorder = recorder  # type: ignore[attr-defined]
    return recorder


def _quarantined() -> type[Any]:
    from gangline.control.parts.messages import ObjectQuarantined

    return ObjectQuarantined


async def test_a_job_with_too_much_is_told_so_and_queued_once_it_is_mended() -> None:
    controller = operator()
    events = event_tape(controller)
    job = a_job()
    large = copy.deepcopy(job)
    large["spec"]["template"]["spec"] |= LARGE
    show(controller, kube.JOBS, stored(large), stored(job, "good"))
    assert queued(controller) == {"good"}
    [(name, what, message)] = events.events
    assert (name, what) == ("j", "Misconfigured")
    assert message == "spec.template.spec.unknown: the object has more than 30,000 fields and list entries"
    assert controller.quarantine.count() == {("Job",): 1}
    show(controller, kube.JOBS, stored(job, version=2))
    assert queued(controller) == {"good", "j"}
    assert not controller.quarantine.count()


async def test_a_namespace_stores_so_much_and_what_is_beyond_waits_for_room() -> None:
    controller = operator()
    events = event_tape(controller)
    one = intake.measure(kube.JOBS, stored(a_job())).weight
    controller.mirror.intake.most = 10 * one
    written = {f"j{n}": stored(a_job(), f"j{n}") for n in range(12)}
    show(controller, kube.JOBS, *copy.deepcopy(list(written.values())))
    assert len(queued(controller)) == 9 or len(queued(controller)) == 10
    beyond = {name for name, _, _ in events.events}
    assert beyond == written.keys() - queued(controller)
    assert all("the namespace ns stores more than" in message for _, _, message in events.events)
    other = stored(a_job(), "other")
    other["metadata"]["namespace"] = "elsewhere"
    show(controller, kube.JOBS, other)
    assert "other" in queued(controller), "another namespace has room"

    class Server:
        async def get(self, resource: Resource, namespace: str, name: str) -> Json:
            return copy.deepcopy(written[name])

    [feed] = [part for part in controller.parts if isinstance(part, ClusterFeed)]
    feed._client = Server()  # type: ignore[assignment]
    for name in ("j0", "j1", "j2"):
        controller.sink(kube.JOBS)(Removed(f"ns/{name}", f"uid-{name}", written[name]))
    for _ in range(5):
        controller.absorb()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    controller.act()
    assert beyond <= queued(controller)
    assert not controller.quarantine.count()


async def test_the_quota_of_a_workload_that_is_too_large_counts() -> None:
    controller = operator()
    job = a_job(suspend=False)
    workload = a_workload(job, admit=admitted)
    workload["metadata"]["namespace"] = "ns"
    workload["spec"]["podSets"][0]["template"]["spec"] |= LARGE
    seen: list[model.Change] = []
    controller.mirror.observe = seen.append
    controller.mirror.upsert(kube.WORKLOADS, workload)
    [held] = [change.item for change in seen if isinstance(change, model.Put)]
    assert isinstance(held, model.Workload) and held.admission is not None
    assert held.admission.pod_sets[0].usage == {"cpu": 2000}


def test_what_holds_quota_is_kept_in_a_full_namespace() -> None:
    waiting, running = a_workload(a_job()), a_workload(a_job(), admit=admitted)
    weight = intake.measure(kube.WORKLOADS, running).weight
    some = NamespaceIntake(most=weight * 3 // 4)
    some.take(kube.WORKLOADS, stored(waiting, "other"))
    assert intake.is_head(some.take(kube.WORKLOADS, copy.deepcopy(waiting)))
    some = NamespaceIntake(most=weight * 3 // 4)
    assert not intake.is_head(some.take(kube.WORKLOADS, copy.deepcopy(running)))
    assert intake.is_head(some.take(kube.WORKLOADS, stored(running, "other"))), "half as much again, and no more"
    some.forget(kube.WORKLOADS, "ns/other")
    some.forget(kube.WORKLOADS, kube.key_of(running))
    assert not some.stored and some.next_whole() is None


async def test_a_job_that_runs_is_kept_before_those_that_wait() -> None:
    """After a restart the objects of a full namespace come in any order."""
    mirror = operator().mirror
    running = stored(a_job(suspend=False, labels={"note": "x" * 20_000}), "running")
    weight = intake.measure(kube.JOBS, running).weight
    mirror.intake.most = weight * 2
    for name in ("a", "b"):
        mirror.upsert(kube.JOBS, stored(a_job(labels={"note": "x" * 20_000}), name))
    mirror.upsert(kube.JOBS, copy.deepcopy(running))
    assert [name for name, job in mirror.objects[kube.JOBS].items() if intake.is_head(job)] == ["ns/b", "ns/running"]
    assert mirror.intake.next_whole() is None
    workload = a_workload(running, admit=admitted)
    mirror.upsert(kube.WORKLOADS, workload)
    assert mirror.intake.next_whole() == (kube.JOBS, "ns/running")
    mirror.upsert(kube.JOBS, copy.deepcopy(running))
    assert not intake.is_head(mirror.objects[kube.JOBS]["ns/running"])
    assert mirror.intake.next_whole() is None and not mirror.intake._wanted


def test_what_is_kept_may_grow_a_little_in_a_full_namespace() -> None:
    first = stored(a_job(labels={"note": "x" * 20_000}))
    some = NamespaceIntake(most=intake.measure(kube.JOBS, first).weight)
    assert not intake.is_head(some.take(kube.JOBS, first))
    assert intake.is_head(some.take(kube.JOBS, stored(a_job(), "second")))
    assert not intake.is_head(some.take(kube.JOBS, stored(a_job(labels={"note": "x" * 20_500}), version=2)))
    assert some.next_whole() is None
    some.forget(kube.JOBS, "ns/j")
    assert some.next_whole() == (kube.JOBS, "ns/second")


async def test_the_claims_of_a_template_that_is_too_large_are_unknown() -> None:
    controller = operator()
    asked = {"name": "r", "exactly": {"deviceClassName": "a"}}
    spec: Json = {"spec": {"devices": {"requests": [asked]}}}
    template = stored(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {}, "spec": spec}, "t"
    )
    show(controller, kube.RESOURCE_CLAIM_TEMPLATES, copy.deepcopy(template))
    assert "t" in controller.mirror.rules.of("ns").claims
    template["metadata"]["resourceVersion"] = "2"
    show(controller, kube.RESOURCE_CLAIM_TEMPLATES, {**template, "spec": {**spec, **LARGE}})
    assert "t" not in controller.mirror.rules.of("ns").claims


async def test_shapes_of_workloads_that_are_gone_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.control.feed.mirror.MOST_SHAPES", 4000)
    seen = operator().mirror
    for n in range(100):
        job = a_job()
        job["spec"]["template"]["spec"]["containers"][0]["image"] = "x" * (20_000 if n == 50 else n)
        for version in ("1", "2"):  # two of one shape share it
            workload = a_workload(job)
            workload["metadata"] |= {"name": f"w{n}-{version}", "namespace": "ns", "resourceVersion": version}
            seen.upsert(kube.WORKLOADS, workload)
        one, two = (seen.objects[kube.WORKLOADS][f"ns/w{n}-{version}"] for version in ("1", "2"))
        assert (one["spec"]["podSets"] is two["spec"]["podSets"]) is (n != 50), (
            "one that is large is not kept for others"
        )
        assert sum(map(len, seen._shapes)) == seen._shapes_size <= 4000


@pytest.mark.parametrize(("written", "bytes_"), [("2147483648\n", 512 << 20), ("max\n", 1 << 30), (None, 1 << 30)])
def test_a_namespace_may_take_a_quarter_of_the_memory_limit(tmp_path: Path, written: str | None, bytes_: int) -> None:
    limit = tmp_path / "memory.max"
    if written is not None:
        limit.write_text(written)
    assert memory.for_namespace(limit) == bytes_


async def test_jobs_of_one_shape_share_the_spec_of_their_pods() -> None:
    """Their templates differ: the API server labels each with the uid of its job."""
    controller = operator()
    for number, image in enumerate(("a", "a", "b")):
        job = a_job(uid=f"uid-{number}", name=f"j{number}")
        template: Json = {
            "metadata": {"labels": {"batch.kubernetes.io/controller-uid": f"uid-{number}"}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        }
        job["spec"]["template"] = template
        controller.sink(kube.JOBS)(Upsert(copy.deepcopy(job)))
    controller.absorb()
    kept = [controller.mirror.objects[kube.JOBS][f"ns/j{number}"].spec["template"] for number in range(3)]
    assert kept[0]["spec"] is kept[1]["spec"] and kept[2]["spec"]["containers"][0]["image"] == "b"
    assert [each["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] for each in kept] == [
        f"uid-{number}" for number in range(3)
    ]
