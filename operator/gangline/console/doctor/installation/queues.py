"""Queues that admit nothing, and jobs and Workloads that nobody looks after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangline.api import names
from gangline.api.read import setup_faults
from gangline.api.read.conditions import millis_of
from gangline.console.doctor.cluster import SHOWN, ClusterReads, failure, ok, some, warning
from gangline.console.doctor.examination import Findings
from gangline.control.answers.workloads.words import counted
from gangline.jobs import KINDS
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json, key_of
from gangline.objects import Stored

#: seconds after which an operator that runs has looked at an object
SEEN: Final = 60.0
_RUN: Final = "start `gangline admin operator`, or see whether it leads"


async def cluster_queues(cluster: ClusterReads) -> Findings:
    queues = await cluster.list(kube.CLUSTER_QUEUES)
    flavors = {row["metadata"]["name"] for row in await cluster.list(kube.RESOURCE_FLAVORS)}
    checks = {row["metadata"]["name"] for row in await cluster.list(kube.ADMISSION_CHECKS)}
    now, _ = await cluster.server_clock()
    sound, unseen = 0, list[str]()
    for queue in queues:
        name, spec = queue["metadata"]["name"], queue.get("spec") or {}
        active = Stored(queue).condition(names.ACTIVE)
        absent = sorted(_flavors(spec) - flavors)
        unchecked = sorted(_checks(spec) - checks)
        if absent:
            yield failure(
                f"{name} names flavors that do not exist: {some(absent)}", "create them, or correct the name", absent
            )
        if unchecked:
            yield failure(
                f"{name} names AdmissionChecks that do not exist: {some(unchecked)}", "create them", unchecked
            )
        if active is None and _age(queue, now) > SEEN:
            unseen.append(name)
        elif active is not None and active.get("status") != "True" and not absent and not unchecked:
            said = f"{active.get('reason')}: {active.get('message')}"
            yield warning(f"{name} admits nothing ({said})", "see its condition Active", [name])
        elif not absent and not unchecked:
            sound += 1
    if unseen:
        yield failure(f"nobody has looked at {counted(len(unseen), 'ClusterQueue')} ({some(unseen)})", _RUN, unseen)
    if sound == len(queues):
        yield ok(f"{counted(sound, 'ClusterQueue')}, active")


def _flavors(spec: Json) -> set[str]:
    return {row["name"] for group in spec.get("resourceGroups") or () for row in group.get("flavors") or ()}


def _checks(spec: Json) -> set[str]:
    rows = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return {row["name"] for row in rows}


async def local_queues(cluster: ClusterReads) -> Findings:
    known = {row["metadata"]["name"] for row in await cluster.list(kube.CLUSTER_QUEUES)}
    queues = await cluster.list(kube.LOCAL_QUEUES)
    stray = [row for row in queues if (row.get("spec") or {}).get("clusterQueue") not in known]
    for row in stray[:SHOWN]:
        lost = setup_faults.lost_local_queue(key_of(row), (row.get("spec") or {}).get("clusterQueue") or "", known)
        yield failure(f"{lost.subject}: {lost.detail}", lost.advice, [key_of(row)])
    if len(stray) > SHOWN:
        others = [key_of(row) for row in stray[SHOWN:]]
        yield failure(
            f"{len(others)} more lead to no ClusterQueue ({some(others)})", "create it, or delete them", others
        )
    if not stray:
        yield ok(f"{counted(len(queues), 'LocalQueue')}, each with its ClusterQueue")


async def workloads(cluster: ClusterReads) -> Findings:
    now, _ = await cluster.server_clock()
    count, faulty, unseen, refused = 0, list[str](), list[str](), list[str]()
    async for page in cluster.api.pages(kube.WORKLOADS):
        count += len(page.items)
        for workload in page.items:
            waits = Stored(workload).condition(names.QUOTA_RESERVED)
            if Stored(workload).true_condition(names.PODS_REFUSED):
                refused.append(key_of(workload))
            if waits is not None and waits.get("reason") == "Misconfigured":
                faulty.append(key_of(workload))
            elif waits is None and Stored(workload).condition(names.FINISHED) is None and _age(workload, now) > SEEN:
                unseen.append(key_of(workload))
    if faulty:
        yield warning(
            f"{counted(len(faulty), 'Workload')} cannot be handled ({some(faulty)})",
            "gangline why names the field",
            faulty,
        )
    if unseen:
        yield failure(f"nobody has looked at {counted(len(unseen), 'Workload')} ({some(unseen)})", _RUN, unseen)
    if refused:
        detail = (
            f"{counted(len(refused), 'Workload')} hold quota, and the API server refuses their pods ({some(refused)})"
        )
        yield warning(detail, "gangline why prints its words", refused)
    if not faulty and not unseen and not refused:
        yield ok(f"{counted(count, 'Workload')}, none left alone")


async def jobs(cluster: ClusterReads) -> Findings:
    """Jobs that name a queue, and have had no Workload for a while."""
    now, _ = await cluster.server_clock()
    seen: set[str] = set()
    async for page in cluster.api.pages(kube.WORKLOADS):
        seen |= set(_owners(page.items))
    count, waiting = 0, list[str]()
    for kind in KINDS:
        try:
            async for page in cluster.api.pages(kind.resource, label_selector=names.QUEUE_NAME):
                count += len(page.items)
                waiting += [f"{kind.kind} {key_of(job)}" for job in page.items if _neglected(job, seen, now)]
        except NotFound:  # the kind is not installed
            continue
    if waiting:
        detail = (
            f"{counted(len(waiting), 'job')} in a queue without a Workload: no operator has seen them ({some(waiting)})"
        )
        yield failure(detail, _RUN, waiting)
    else:
        yield ok(f"{counted(count, 'job')} in queues, none left alone")


def _owners(objects: Iterable[Json]) -> Iterable[str]:
    return (ref["uid"] for obj in objects for ref in obj["metadata"].get("ownerReferences") or ())


def _neglected(job: Json, seen: set[str], now: int) -> bool:
    """Whether a job waits that nobody has queued, and that no other object owns that may wait in its stead."""
    meta, spec = job["metadata"], job.get("spec") or {}
    excluded = meta.get("namespace") in names.EXCLUDED_NAMESPACES
    return bool(
        spec.get("suspend")
        and not excluded
        and meta["uid"] not in seen
        and not meta.get("ownerReferences")
        and _age(job, now) > SEEN
    )


def _age(obj: Json, now: int) -> float:
    """Seconds since it was created."""
    return (now - millis_of(obj["metadata"].get("creationTimestamp"))) / 1000
