"""Job kinds on a real API server: held at birth, admitted whole, evicted and put back as their users wrote them.

The test writes the statuses that each kind's controller documents when its job is suspended and resumed, for Jobs by way of
`managedBy`. Only GPUJobs have real pods: Gangline runs them itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster import declared
from tests.cluster.conftest import System
from tests.cluster.declared import (
    ALL,
    CONFIGURATION,
    DESCRIPTIONS,
    GPU_JOB,
    JOB,
    counts,
    declaration,
    everything,
    job_of,
    with_gpus,
)
from tests.cluster.harness import Api, condition, condition_row, flavor, local_queue, priority_class
from tests.jobs.foreign import Case, Json
from tests.objects import JobObject, altered

from gangline.api import names
from gangline.api.jobkinds.declaration import DESCRIPTION, at
from gangline.console.cli import main
from gangline.jobs import kind_of
from gangline.jobs import workload as workloads
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.resources import Resource, controller_uid

pytestmark = pytest.mark.cluster
#: for all jobs of the team's namespaces, whether they name a queue or not, and for no others
EVERY_JOB: Json = {
    **CONFIGURATION,
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": {"matchLabels": {"team": "ml"}},
}
NAMESPACES = ("ml", "others")
#: of the flavor
RESERVED: Json = {"key": "reserved", "operator": "Exists", "effect": "NoSchedule"}
HOSTS: Json = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Topology",
    "metadata": {"name": "hosts"},
    "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
}


@pytest.fixture
async def configured(system: System, api: Api, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[System]:
    configuration: Json = getattr(request, "param", CONFIGURATION)
    async with declared.configured(system, api, tmp_path, configuration) as running:
        yield running


async def test_every_kind_is_held_admitted_evicted_restored_and_finished(configured: System, api: Api) -> None:
    await api.apply(HOSTS, gpus(topologyName="hosts"), everything("cq"), local_queue("main", "cq"))
    written = {case.name: (await _created(api, case))["spec"] for case in ALL}
    await _described(api)
    for case in ALL:
        for pods in (await _injected(api, case, await _runs(api, case))).values():
            assert pods["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}]
        await _status(api, case, case.ready)
    for case in ALL:

        async def ready(case: Case = case) -> bool:
            workload = await api.workload_of(job_of(case)["metadata"]["name"])
            return workload is not None and condition(workload, "PodsReady")

        await api.until(ready, f"the pods of the {case.name} are ready")

    # the queue is drained: every job is suspended as it was written
    await api.client.patch(kube.CLUSTER_QUEUES, None, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
    for case in ALL:

        async def suspended(case: Case = case) -> bool:
            return declaration(case).suspension.read(await _get(api, case))

        await api.until(suspended, f"the {case.name} is suspended")
        await _status(api, case, case.rest)

        async def restored(case: Case = case) -> bool:
            return (await _get(api, case))["spec"] == written[case.name]

        await api.until(restored, f"the {case.name} is as its user wrote it")
    for case in ALL:

        async def released(case: Case = case) -> bool:
            workload = await api.workload_of(job_of(case)["metadata"]["name"])
            return workload is not None and not condition(workload, "QuotaReserved")

        await api.until(released, f"the {case.name} gives its quota back")

    # and again, to its end
    await api.client.patch(kube.CLUSTER_QUEUES, None, "cq", {"spec": {"stopPolicy": "None"}})
    for case in ALL:
        await _runs(api, case)
        if case.succeeded is not None:
            await _status(api, case, case.succeeded)
    for case in ALL:

        async def finished(case: Case = case) -> bool:
            workload = await api.workload_of(job_of(case)["metadata"]["name"])
            return workload is not None and condition(workload, "Finished")

        if case.succeeded is not None:
            await api.until(finished, f"the Workload of the {case.name} is finished")

    # what could never run is refused, with the field's name
    for case in ALL:
        path, value, named = case.wrong[0]
        bad = job_of(case)
        at(bad, path[:-1])[path[-1]] = value
        with pytest.raises(ApiError, match=named.replace("[", r"\[").replace("]", r"\]")):
            await api.client.create(declaration(case).resource, "default", bad, query={"dryRun": "All"})


async def test_every_kind_waits_at_its_gates_and_runs_by_a_prebuilt_workload(configured: System, api: Api) -> None:
    await api.apply(gpus(), everything("cq"), local_queue("main", "cq"))
    for case in ALL:
        await _created(api, case, annotations={names.ADMISSION_GATED_BY: "example.com/budget"})
    await _described(api)
    for case in ALL:
        workload = await _workload(api, case)
        assert workload["metadata"]["annotations"][names.ADMISSION_GATED_BY] == "example.com/budget"
        assert not condition(workload, "QuotaReserved")
    for case in ALL:
        gate = {"metadata": {"annotations": {names.ADMISSION_GATED_BY: None}}}
        await api.client.patch(declaration(case).resource, "default", job_of(case)["metadata"]["name"], gate)
    for case in ALL:
        await _runs(api, case)
        await api.client.delete(declaration(case).resource, "default", job_of(case)["metadata"]["name"])

    for case in ALL:  # the same again, by the Workload of its author
        kind, resource = kind_of(case.job["apiVersion"], case.name), declaration(case).resource
        assert kind is not None
        meta: Json = {"name": f"b-{case.name.lower()}"}
        job = job_of(case)
        job["metadata"]["name"] = meta["name"]
        stored = JobObject(await api.client.create(resource, "default", job, query={"dryRun": "All"}))
        stored["metadata"]["uid"] = "none"
        description = {} if case.description is None else {DESCRIPTION: with_gpus(copy.deepcopy(case.description))}
        body = workloads.build(kind, stored, kind.pod_sets(altered(stored, **description)), queue="main", priority=0)
        body["metadata"] = {"name": f"own-{case.name.lower()}", "namespace": "default"}
        job["metadata"]["labels"] |= {names.PREBUILT_WORKLOAD: body["metadata"]["name"]}
        if not declaration(case).prebuilt:
            with pytest.raises(ApiError, match=f'Is not supported for "{resource.api_version}, Kind={case.name}"'):
                await api.client.create(resource, "default", job)
            continue
        await api.create(body)
        await api.client.create(resource, "default", job)

        async def runs(resource: Resource = resource, name: str = meta["name"], case: Case = case) -> bool:
            return not declaration(case).suspension.read(await api.client.get(resource, "default", name))

        await api.until(runs, f"the {case.name} runs by the Workload that its user wrote", seconds=60)
        adopted = await api.get(kube.WORKLOADS, body["metadata"]["name"])
        assert adopted["metadata"]["ownerReferences"][0]["name"] == meta["name"]
        await api.client.delete(resource, "default", meta["name"])


@pytest.mark.parametrize("configured", [EVERY_JOB], indirect=True)
async def test_jobs_without_a_queue_are_held_in_the_namespaces_that_are_managed(configured: System, api: Api) -> None:
    for name in NAMESPACES:
        labels = {"team": "ml"} if name == "ml" else {}
        body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        await api.client.patch(kube.NAMESPACES, None, name, body, kind="apply", field_manager="test", force=True)
    queue = {"namespace": "ml"}
    await api.apply(gpus(), everything("cq"), local_queue("main", "cq", "ml"))
    for case in ALL:
        held = await _created(api, case, namespace="ml", queued=False)
        assert declaration(case).suspension.read(held), case.name
        for queued in (False, True):
            free = await _created(api, case, namespace="others", queued=queued, held=False)
            assert not declaration(case).suspension.read(free), case.name
    await _described(api)
    for case in ALL:
        workload = await _workload(api, case, **queue)
        assert "queueName" not in workload["spec"], case.name
        label = {"metadata": {"labels": {names.QUEUE_NAME: "main"}}}
        await api.client.patch(declaration(case).resource, "ml", job_of(case)["metadata"]["name"], label)
    for case in ALL:
        await _runs(api, case, **queue)
    assert not [found for found in await api.all(kube.WORKLOADS) if found["metadata"]["namespace"] == "others"]
    for case in ALL:
        for found in await api.all(declaration(case).resource):
            meta = found["metadata"]
            with contextlib.suppress(NotFound):  # a Job of a GPUJob goes with it
                await api.client.delete(
                    declaration(case).resource, meta["namespace"], meta["name"], propagation="Background"
                )
    await api.wipe("ml")


async def test_every_kind_makes_room_for_a_higher_priority_and_frees_its_quota_when_it_is_deleted(
    configured: System, api: Api
) -> None:
    """A queue for each kind, with room for the pods of one job. Its jobs: `a`, then `b` and `c` of higher priority."""
    await api.apply(gpus(), priority_class("low", 10), priority_class("high", 1000))
    for case in ALL:
        queue = f"q-{case.name.lower()}"
        await api.apply(
            everything(queue, sum(case.counts.values()), preemption={"withinClusterQueue": "LowerPriority"}),
            local_queue(queue, queue),
        )
    written = {case.name: (await _created(api, case, labels=_labels(case, "low")))["spec"] for case in ALL}
    await _described(api)
    for case in ALL:
        await _runs(api, case)
        await _status(api, case, case.busy)
        await _created(api, case, "b", labels=_labels(case, "high"))

    # `a` is stopped as its user wrote it; `b` has to wait for the last of its pods
    for case in ALL:

        async def stopped(case: Case = case) -> bool:
            return declaration(case).suspension.read(await _get(api, case))

        async def restored(case: Case = case) -> bool:
            return (await _get(api, case))["spec"] == written[case.name]

        await api.until(stopped, f"the {case.name} makes room")
        assert condition_row(await _workload(api, case), "Preempted")["reason"] == "InClusterQueue"
        if case is not GPU_JOB:  # whose pods end when they are asked to
            assert declaration(case).suspension.read(await _get(api, case, "b")), (
                f"the pods of the first {case.name} end"
            )
        await _status(api, case, case.rest)
        await api.until(restored, f"the {case.name} is as its user wrote it")
    for case in ALL:
        await _runs(api, case, "b")
        await _created(api, case, "c", labels=_labels(case, "high"))
    for case in ALL:
        await _workload(api, case, "c")

    # one that waits goes without a trace, then one that runs: `a` comes back
    for letter in ("c", "b"):
        for case in ALL:
            await api.client.delete(declaration(case).resource, "default", job_of(case, letter)["metadata"]["name"])
        for case in ALL:

            async def gone(case: Case = case, letter: str = letter) -> bool:
                return await api.workload_of(job_of(case, letter)["metadata"]["name"]) is None

            await api.until(gone, f"the Workload of {letter}, a {case.name}, went with its job")
    for case in ALL:
        await _runs(api, case)


async def test_jobs_of_every_kind_that_run_outside_of_queues_are_imported_as_they_run(
    configured: System, api: Api, tmp_path: Path
) -> None:
    await api.apply(gpus(), everything("cq"), local_queue("main", "cq"))
    for case in ALL:
        if case.description is not None:
            resource = next(each for each in DESCRIPTIONS if each.kind == case.description["kind"])
            await api.client.create(resource, None, with_gpus(copy.deepcopy(case.description)))
    running = {case.name: await _created(api, case, held=False, labels={"team": "ml"}) for case in ALL}
    for case in ALL:
        await _status(api, case, case.busy)
    before = {case.name: (await _get(api, case))["spec"] for case in ALL}
    assert not [name for name, job in running.items() if names.QUEUE_NAME in job["metadata"]["labels"]]

    command = ["admin", "import", "-n", "default", "--queuelabel", "team", "--queuemapping", "ml=main", "-o", "json"]
    command += ["--config", str(tmp_path / "config.yaml"), "--kubeconfig", str(configured.kubeconfig)]
    result = await asyncio.to_thread(CliRunner().invoke, main, [*command, "--dry-run=false"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert {row["job"].split("/")[0]: row["error"] for row in said["adoptions"]} == dict.fromkeys(
        (case.name.lower() for case in ALL), ""
    )
    for case in ALL:

        async def adopted(case: Case = case) -> Json | None:
            workload = await api.workload_of((await _get(api, case))["metadata"]["name"])
            if workload is None or not condition(workload, "Admitted") or not condition_row(workload, "PodsReady"):
                return None
            return workload

        workload = await api.until(adopted, f"the {case.name} is managed")
        assert condition_row(workload, "Admitted")["reason"] == "Imported"
        assert {row["name"]: row["count"] for row in workload["status"]["admission"]["podSetAssignments"]} == counts(
            case
        )
        stored = await _get(api, case)
        assert stored["metadata"]["labels"][names.QUEUE_NAME] == "main"
        assert stored["spec"] == before[case.name], f"the {case.name} runs on as it was"
        await api.client.patch(kube.WORKLOADS, "default", workload["metadata"]["name"], {"spec": {"active": False}})

    # from then on they are jobs like others: deactivated, they stop and give their quota back
    for case in ALL:

        async def stopped(case: Case = case) -> bool:
            return declaration(case).suspension.read(await _get(api, case))

        async def released(case: Case = case) -> bool:
            workload = await api.workload_of(job_of(case)["metadata"]["name"])
            return workload is not None and not condition(workload, "QuotaReserved")

        await api.until(stopped, f"the {case.name} is suspended")
        await _status(api, case, case.rest)
        await api.until(released, f"the {case.name} gives its quota back")


def gpus(**spec: Any) -> Json:
    found = flavor(labels={"gangline.io/node-pool": "gpu"})
    return {**found, "spec": {**found["spec"], "tolerations": [RESERVED], **spec}}


def _labels(case: Case, priority: str) -> Json:
    return {names.QUEUE_NAME: f"q-{case.name.lower()}", names.PRIORITY_CLASS: priority}


async def _described(api: Api) -> None:
    """What describes the pods of some jobs comes after them: so long they wait, and say for what."""
    for case in ALL:
        if case.description is None:
            continue

        async def says_so(case: Case = case) -> bool:
            events = [event for event in await api.all(kube.EVENTS) if event["regarding"].get("kind") == case.name]
            return any(
                "spec.runtimeRef: the ClusterTrainingRuntime 'torch' does not exist" in e["note"] for e in events
            )

        await api.until(says_so, f"an event on the {case.name} says what is missing")
        resource = next(each for each in DESCRIPTIONS if each.kind == case.description["kind"])
        await api.client.create(resource, None, with_gpus(copy.deepcopy(case.description)))


async def _workload(api: Api, case: Case, letter: str = "a", namespace: str = "default") -> Json:
    async def found() -> Json | None:
        return await api.workload_of(job_of(case, letter)["metadata"]["name"], namespace)

    return await api.until(found, f"the {case.name} has a Workload")


async def _created(
    api: Api,
    case: Case,
    letter: str = "a",
    *,
    namespace: str = "default",
    queued: bool = True,
    held: bool = True,
    **meta: Any,
) -> Json:
    """As it was stored, held by the webhooks: they learn of a new kind when they have registered for it."""
    resource, job = declaration(case).resource, job_of(case, letter)
    job["metadata"] |= {"namespace": namespace, **meta}
    if not queued:
        del job["metadata"]["labels"]
    elif not held and names.QUEUE_NAME in job["metadata"]["labels"]:
        job["metadata"]["name"] += "-queued"

    async def create() -> Any:
        try:
            return await api.client.create(resource, namespace, job)
        except NotFound:  # the kind is not served yet
            return None

    stored = await api.until(create, f"a {case.name} is created")
    assert not held or declaration(case).suspension.read(stored), case.name
    return stored


async def _get(api: Api, case: Case, letter: str = "a", namespace: str = "default") -> Json:
    return await api.client.get(declaration(case).resource, namespace, job_of(case, letter)["metadata"]["name"])


async def _runs(api: Api, case: Case, letter: str = "a", namespace: str = "default") -> Json:
    """It is admitted whole and unsuspended, with the flavor's nodes and tolerations in every template. The job then."""

    async def started() -> Any:
        found = await _get(api, case, letter, namespace)
        return found if not declaration(case).suspension.read(found) else None

    found = await api.until(started, f"{letter}, a {case.name}, starts", seconds=60)
    injected, wanted = await _injected(api, case, found), counts(case, letter)
    assert injected.keys() == wanted.keys()
    for written in injected.values():
        assert written["nodeSelector"]["gangline.io/node-pool"] == "gpu"
        assert RESERVED in written["tolerations"]
    workload = await api.workload_of(found["metadata"]["name"], namespace)
    assert workload is not None
    assigned = workload["status"]["admission"]["podSetAssignments"]
    assert {row["name"]: row["count"] for row in assigned} == wanted
    return found


async def _injected(api: Api, case: Case, found: Json) -> dict[str, Json]:
    """Pod set -> what the admission added to its pods: of a GPUJob it stands in the Jobs that it has made."""
    if case is not GPU_JOB:
        return case.injected(found)
    meta = found["metadata"]

    async def made() -> list[Json]:
        jobs = await api.all(kube.JOBS, meta["namespace"])
        return [job for job in jobs if (controller_uid(job) == meta["uid"])]

    templates = [job["spec"]["template"] for job in await api.until(made, f"the Jobs of {meta['name']}")]
    return {body["metadata"]["labels"][names.ROLE_LABEL]: {**body["spec"], **body["metadata"]} for body in templates}


async def _status(api: Api, case: Case, status: Json) -> None:
    """What the kind's own controller would write now."""
    if case is GPU_JOB:
        if status is case.succeeded:
            await _end_pods(api, (await _get(api, case))["metadata"]["name"])
        return
    found = await _get(api, case)
    if case is JOB:  # the API server checks the way from one status to the next
        await api.client.patch(
            kube.JOBS, "default", found["metadata"]["name"], {"status": status}, subresource="status"
        )
        return
    body = {**found, "status": status}
    await api.client.patch(
        declaration(case).resource, "default", found["metadata"]["name"], {"status": None}, subresource="status"
    )
    await api.client.patch(
        declaration(case).resource,
        "default",
        found["metadata"]["name"],
        {"status": body["status"]},
        subresource="status",
    )


async def _end_pods(api: Api, job: str) -> None:
    """All pods of a GPUJob succeed."""

    async def running() -> list[Json]:
        pods = await api.all(kube.PODS, selector=f"{names.GPUJOB_LABEL}={job}")
        return pods if len(pods) == 2 and all(pod["status"].get("phase") == "Running" for pod in pods) else []

    for pod in await api.until(running, f"the pods of {job} run"):
        done = {"status": {"phase": "Succeeded"}}
        await api.client.patch(kube.PODS, "default", pod["metadata"]["name"], done, subresource="status")
