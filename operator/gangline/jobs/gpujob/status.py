"""The status of a GPUJob: conditions, phase and counts, from its children.

There is no clock here. Every time stamp is one that the API server has set on the job or its children: a hold begins with the
deletion of the children, a run with their creation, an end with the end of the Job that decided it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gangline.api import names
from gangline.api.read import merge
from gangline.jobs.base import Json, Patch, PodSetInfo
from gangline.jobs.gpujob.gang import Gang
from gangline.jobs.gpujob.verdict import GangVerdict, find
from gangline.objects import JobObject, Stored

SUSPENDED: Final = "Suspended"
#: number kept in the status
MOST_INTERRUPTIONS: Final = 8
PENDING, SUSPENDING = "Pending", "Suspending"
STARTING, RUNNING, RECOVERING = "Starting", "Running", "Recovering"


def held(job: JobObject, gang: Gang, jobs: Sequence[JobObject]) -> Patch | None:
    """The status of a job that waits in its queue, or is on its way back to it. None if it says so already."""
    status: Json = {
        "phase": SUSPENDING if jobs else PENDING,
        "gpus": sum(role.gpus * role.replicas for role in gang.roles),
        "ready": None,
        "roles": None,
        "startTime": None,
    }
    ended = [child.deletion_time for child in jobs if child.deletion_time]
    if ended or not jobs:
        at = max(ended, default=latest(job))
        status["conditions"] = _with(job, SUSPENDED, "True", "Held", "The job waits for its admission", at)
    return _patch(job, status)


def running(job: JobObject, gang: Gang, infos: Sequence[PodSetInfo], jobs: Sequence[JobObject]) -> Patch | None:
    """The status of a job that is admitted; `jobs` are the children of this run. None if it says so already."""
    status = _counts(gang, infos, jobs)
    status["phase"] = _phase(job, gang, status["roles"], jobs)
    status["expectedStart"] = None  # it has come true
    if jobs:
        created = max(child.created or latest(job) for child in jobs)
        status["conditions"] = _with(job, SUSPENDED, "False", "Admitted", "The job was admitted", created)
        status["startTime"] = job.status.get("startTime") or created
    return _patch(job, status)


def restarting(job: JobObject, count: int, failure: GangVerdict) -> Patch:
    """The one write that decides a restart of the gang: from now on the children created before it are stale."""
    why = _interruptions(job, failure.reason, failure.message, failure.at)
    return Patch({"status": {"restarts": count, "phase": RECOVERING, "interruptions": why}}, "status")


def lost(job: JobObject, message: str, at: str) -> Patch | None:
    """Let the job fail because its nodes failed."""
    return ending(job, GangVerdict(False, "NodeFailure", message, at))


def interrupted(job: JobObject, swaps: int, how: str, message: str, at: str) -> Patch:
    """Record that nodes failed under the gang; `swaps` of them so far."""
    return Patch(
        {"status": {"swaps": swaps, "interruptions": _interruptions(job, f"Node{how}", message, at)}}, "status"
    )


def _interruptions(job: JobObject, reason: str, message: str, at: str) -> list[Json]:
    """The latest interruptions, including one more."""
    before = job.status.get("interruptions") or []
    return [*before, {"time": at, "reason": reason, "message": message[:1024]}][-MOST_INTERRUPTIONS:]


def pods_refused(job: JobObject, refused: bool, reason: str, message: str, at: str) -> Patch | None:
    """Record that the API server refuses the job's pods, or no longer does."""
    word = "True" if refused else "False"
    return _patch(job, {"conditions": _with(job, names.PODS_REFUSED, word, reason, message, at)})


def ending(job: JobObject, verdict: GangVerdict) -> Patch | None:
    """Record that the end is decided, while pods may still run."""
    return _patch(job, {"conditions": _with(job, verdict.interim, "True", verdict.reason, verdict.message, verdict.at)})


def ended(job: JobObject, gang: Gang, jobs: Sequence[JobObject], verdict: GangVerdict) -> Patch | None:
    """Record that the end is decided, and that no pod runs any more."""
    status: Json = {
        "phase": "Succeeded" if verdict.success else "Failed",
        "conditions": _with(job, verdict.final, "True", verdict.reason, verdict.message, verdict.at),
        "completionTime": verdict.at,
    }
    before = job.status.get("roles")
    if before and jobs:
        status["roles"] = [
            {**row, **_pods(child)} if (child := _child(gang, row["name"], jobs)) else {**row, "ready": 0}
            for row in before
        ]
        status["ready"] = _ready(status["roles"])
    return _patch(job, status)


def latest(obj: Stored) -> str:
    """The latest time in the object itself."""
    times = [condition.get("lastTransitionTime") or "" for condition in obj.conditions]
    return max([obj.created or "1970-01-01T00:00:00Z", *times])


def _counts(gang: Gang, infos: Sequence[PodSetInfo], jobs: Sequence[JobObject]) -> Json:
    rows: list[Json] = []
    for role, info in zip(gang.roles, infos, strict=True):
        child = find(gang, role, jobs)
        rows.append({"name": role.name, "replicas": info.count, **_pods(child)})
    gpus = sum(role.gpus * info.count for role, info in zip(gang.roles, infos, strict=True))
    return {"gpus": gpus, "ready": _ready(rows), "roles": rows}


def _pods(child: JobObject | None) -> Json:
    """The counts of a child Job, all 0 without one. Pods that it has yet to count as succeeded are not ready any more either."""
    status = child.status if child is not None else {}
    uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or []
    counts = {name: status.get(name) or 0 for name in ("ready", "succeeded", "failed")}
    return {**counts, "succeeded": counts["succeeded"] + len(uncounted)}


def _ready(rows: Iterable[Json]) -> str:
    rows = list(rows)
    return f"{sum(row['ready'] for row in rows)}/{sum(row['replicas'] for row in rows)}"


def _phase(job: JobObject, gang: Gang, rows: Sequence[Json], jobs: Sequence[JobObject]) -> str:
    if len(jobs) == len(gang.roles) and all(row["ready"] + row["succeeded"] >= row["replicas"] for row in rows):
        return RUNNING
    return RECOVERING if job.status.get("phase") in (RUNNING, RECOVERING) else STARTING


def _child(gang: Gang, role_name: str, jobs: Sequence[JobObject]) -> JobObject | None:
    role = next((role for role in gang.roles if role.name == role_name), None)
    return find(gang, role, jobs) if role else None


def _with(job: JobObject, kind: str, status: str, reason: str, message: str, at: str) -> list[Json]:
    """The job's conditions with one of them set; it keeps its time while its status stays the same."""
    wanted: Json = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}
    rows: list[Json] = [dict(row) for row in job.conditions]
    for i, row in enumerate(rows):
        if row["type"] == kind:
            same = row["status"] == status
            rows[i] = {**row, **wanted, "lastTransitionTime": row["lastTransitionTime"] if same else at}
            return rows
    return [*rows, wanted]


def _patch(job: JobObject, wanted: Json) -> Patch | None:
    """The smallest patch, None if nothing would change."""
    current = job.status
    if job.generation:
        wanted["observedGeneration"] = job.generation
    changed = merge.difference({key: current[key] for key in wanted if key in current}, wanted)
    return Patch({"status": changed}, "status") if changed else None
