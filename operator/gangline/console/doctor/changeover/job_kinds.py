"""The jobs: of which kinds they are, and what in them Gangline does not do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queued_owners
from gangline.api.read.configuration.managed_jobs import BY_PODS
from gangline.console.doctor import kueue_names
from gangline.console.doctor.changeover.objects import served_version
from gangline.console.doctor.changeover.settings import external_kinds
from gangline.console.doctor.cluster import PATIENCE, ClusterReads, Finding, failure, ok, some, warning
from gangline.console.doctor.examination import Findings
from gangline.control.answers.workloads.words import counted
from gangline.jobs import KINDS
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json, Resource, controller_of, key_of
from gangline.kube.transport import Call
from gangline.objects import Stored

#: kinds that Gangline queues, as (group, kind)
MANAGED: Final = frozenset({("", "Pod"), *((kind.resource.group, kind.kind) for kind in KINDS), *BY_PODS.values()})
#: kinds with an integration in Kueue that Gangline does not queue
UNMANAGED: Final = sorted(queued_owners() - MANAGED)
_REMOVE: Final = "let them finish and take the queue from new ones, or keep Kueue"


async def workloads(cluster: ClusterReads) -> Findings:
    """Check of each Workload: who owns it, and whether its job goes on."""
    served = await served_version(cluster, kube.WORKLOADS)
    if served is None:
        yield ok("there is no such kind")
        return
    known = MANAGED | await external_kinds(cluster)
    counts: dict[str, int] = defaultdict(int)
    foreign: dict[str, list[str]] = defaultdict(list)
    remote: list[str] = []
    async for page in cluster.api.pages(served):
        for workload in page.items:
            state = _state(workload)
            counts[state] += 1
            owner = controller_of(workload)
            if owner is not None and state != "finished" and (_group(owner), owner["kind"]) not in known:
                foreign[owner["kind"]].append(key_of(workload))
            if (workload.get("status") or {}).get("clusterName"):
                remote.append(key_of(workload))
    yield ok(
        f"{counts['admitted']} admitted go on, {counts['waiting']} waiting keep their place, {counts['finished']} have finished"
    )
    for kind, keys in sorted(foreign.items()):
        detail = f"{counted(len(keys), 'Workload')} of {kind} ({some(keys)}): their jobs would be neither started nor stopped"
        yield failure(detail, _REMOVE, keys)
    if remote:
        yield ok(f"{counted(len(remote), 'Workload')} ({some(remote)}) run on another cluster, and are followed there")


def _state(workload: Json) -> str:
    if Stored(workload).true_condition(names.FINISHED):
        return "finished"
    return "admitted" if Stored(workload).true_condition(names.ADMITTED) else "waiting"


def _group(owner: Json) -> str:
    group, _, version = str(owner.get("apiVersion")).rpartition("/")
    return group if version else ""


async def labelled(cluster: ClusterReads) -> Findings:
    """Objects of other kinds that name a queue, with or without a Workload."""
    found: list[Finding] = []
    for group, kind in UNMANAGED:
        resource = await _resource(cluster, group, kind)
        if resource is None:
            continue
        keys = [key async for key in _keys(cluster, resource, names.QUEUE_NAME)]
        if keys:
            found.append(
                failure(
                    f"{counted(len(keys), kind)} in queues ({some(keys)}): Gangline does not queue this kind",
                    _REMOVE,
                    keys,
                )
            )
    pods = [key async for key in _keys(cluster, kube.PODS, f"{kueue_names.MANAGED}=true")]
    if pods:
        detail = (
            f"{counted(len(pods), 'Pod')} in queues ({some(pods)}): they go on where integrations.frameworks lists pod"
        )
        found.append(warning(detail, "keep pod in the configuration file", pods))
    for finding in found:
        yield finding
    ours = ", ".join(sorted(kind for _, kind in MANAGED))
    if not found:
        yield ok(f"only kinds that Gangline queues ({ours}) name a queue")


async def _resource(cluster: ClusterReads, group: str, kind: str) -> Resource | None:
    """The kind in the version that the API server prefers; None where it is not installed."""
    try:
        path = f"/apis/{group}"
        where = Resource("", "", path.lstrip("/"), namespaced=False)
        answer = await cluster.api.json(Call("get", where, "GET", path, within=PATIENCE))
    except NotFound:
        return None
    version = (answer.get("preferredVersion") or {}).get("version") or ""
    resource = Resource(group, version, f"{kind.lower()}s", kind=kind)
    return resource if await cluster.serves(resource) else None


async def _keys(cluster: ClusterReads, resource: Resource, selector: str) -> AsyncIterator[str]:
    async for page in cluster.api.pages(resource, label_selector=selector):
        for obj in page.items:
            yield key_of(obj)
