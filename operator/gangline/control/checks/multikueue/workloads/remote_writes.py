"""The writes of each step in another cluster. All of them may be repeated, and none touches an object that is not ours."""

from __future__ import annotations

from contextlib import suppress

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.copies import Copy
from gangline.control.checks.multikueue.clusters.remote_cluster import WRITE, Work
from gangline.control.checks.multikueue.clusters.remote_store import RemoteStore
from gangline.control.checks.multikueue.plan.steps import (
    Cut,
    Follow,
    OpenGate,
    Reprioritise,
    Resize,
    Send,
    SendJob,
    Stop,
    WithdrawFromCluster,
)
from gangline.control.writes.status import gate_changes
from gangline.jobs.base import RunsOnOtherCluster
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, WorkloadObject

#: A job with a field that the other cluster would drop is refused, by the name of the field, and does not run without it.
_STRICT = {"fieldValidation": "Strict"}
#: why a copy is deactivated
EVICTED_ON_MANAGER = "EvictedOnManagerCluster"


def send(step: Send, workload: WorkloadObject, origin: str) -> Work:
    async def work(client: ApiClient, store: RemoteStore) -> None:
        body = copies.workload_body(workload, origin, kube.WORKLOADS, step.gates)
        store.answered(kube.WORKLOADS, await client.create(kube.WORKLOADS, workload.namespace, body, within=WRITE))

    return work


def send_job(step: SendJob, kind: RunsOnOtherCluster, workload: WorkloadObject, origin: str) -> Work:
    async def work(client: ApiClient, store: RemoteStore) -> None:
        body = copies.job_body(kind, step.job, step.spec, workload.name, origin)
        answer = await client.create(kind.resource, workload.namespace, body, query=_STRICT, within=WRITE)
        store.answered(kind.resource, answer)

    return work


def withdraw(step: WithdrawFromCluster, key: str, resource: Resource | None) -> Work:
    """Delete the jobs, then the copy: a job would take the copy's deletion for a reason to be queued itself."""
    namespace, _, name = key.partition("/")

    async def work(client: ApiClient, store: RemoteStore) -> None:
        for job in step.jobs:
            if resource is None:
                break
            uid = job.metadata["uid"]
            with suppress(NotFound):
                answer = await client.delete(
                    resource, namespace, job.name, uid=uid, propagation="Background", within=WRITE
                )
                store.gone(resource, job.key, uid, answer)
        if step.copy is None:
            return
        with suppress(NotFound):
            if names.IN_USE_FINALIZER in step.copy.finalizers:
                rest = [each for each in step.copy.finalizers if each != names.IN_USE_FINALIZER]
                body = {"metadata": {"resourceVersion": step.copy.version, "finalizers": rest or None}}
                answer = await client.patch(kube.WORKLOADS, namespace, name, body, within=WRITE)
                store.answered(kube.WORKLOADS, answer)
            answer = await client.delete(kube.WORKLOADS, namespace, name, uid=step.copy.uid, within=WRITE)
            store.gone(kube.WORKLOADS, key, step.copy.uid, answer)

    return work


def reprioritise(step: Reprioritise, workload: WorkloadObject) -> Work:
    async def work(client: ApiClient, store: RemoteStore) -> None:
        spec = {name: workload.spec.get(name) for name in ("priority", "priorityClassRef")}
        await _change(client, store, step.copy, workload, {"spec": spec})

    return work


def open_gate(step: OpenGate, workload: WorkloadObject, now: int) -> Work:
    async def work(client: ApiClient, store: RemoteStore) -> None:
        status: Json = {"preemptionGates": [dict(gate) for gate in step.copy.gates]}
        gate_changes.gate_opened(names.MULTIKUEUE_GATE)(status, now)
        await _change(client, store, step.copy, workload, {"status": status})

    return work


def follow(step: Follow, resource: Resource) -> Work:
    async def work(client: ApiClient, store: RemoteStore) -> None:
        job = step.job
        body = {"metadata": {"resourceVersion": job.resource_version}, "spec": step.spec}
        answer = await client.patch(resource, job.namespace, job.name, body, query=_STRICT, within=WRITE)
        store.answered(resource, answer)

    return work


def cut(step: Cut, workload: WorkloadObject) -> Work:
    async def work(client: ApiClient, store: RemoteStore) -> None:
        await _change(client, store, step.copy, workload, {"spec": {"podSets": workload.pod_sets}})

    return work


def resize(step: Resize, kind: RunsOnOtherCluster, workload: WorkloadObject) -> Work:
    """Give the job another size. It is read first: its size may stand beside what is not kept here."""

    async def work(client: ApiClient, store: RemoteStore) -> None:
        seen = step.remote
        remote = JobObject(await client.get(kind.resource, seen.namespace, seen.name, within=WRITE))
        if remote.uid != seen.uid:
            return  # another one, which the watch will show
        change = copies.renaming(workload.name)
        body: Json = {"metadata": {"resourceVersion": remote.resource_version, **change}}
        if spec := kind.resized(remote, step.job):
            body["spec"] = spec
        answer = await client.patch(kind.resource, seen.namespace, seen.name, body, query=_STRICT, within=WRITE)
        store.answered(kind.resource, answer)

    return work


def stop(step: Stop, workload: WorkloadObject, now: int) -> Work:
    async def work(client: ApiClient, store: RemoteStore) -> None:
        rows = [dict(row) for row in step.copy.conditions]
        conditions.put(rows, names.DEACTIVATION_TARGET, True, EVICTED_ON_MANAGER, step.message, now=now)
        name = step.of.partition("/")[2]
        await _change(client, store, step.copy, workload, {"status": {"conditions": rows}}, name=name)

    return work


async def _change(
    client: ApiClient, store: RemoteStore, copy: Copy, workload: WorkloadObject, body: Json, *, name: str = ""
) -> None:
    """Change the spec or the status of a copy as it was last seen. `name`: its own, "" = that of the Workload."""
    subresource = "status" if "status" in body else ""
    body = {"metadata": {"resourceVersion": copy.version}, **body}
    name = name or workload.name
    answer = await client.patch(kube.WORKLOADS, workload.namespace, name, body, subresource=subresource, within=WRITE)
    store.answered(kube.WORKLOADS, answer)
