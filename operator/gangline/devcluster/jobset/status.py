"""The status of a JobSet: counts of its child Jobs, and conditions. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gangline.devcluster.jobset.children import REPLICATED_JOB, RESTART, restarts
from gangline.kube.resources import Json


@dataclass(slots=True)
class ChildJobs:
    """The child Jobs of a JobSet by state. Those of an earlier attempt are `previous`."""

    active: list[Json] = field(default_factory=list[Json])
    succeeded: list[Json] = field(default_factory=list[Json])
    failed: list[Json] = field(default_factory=list[Json])
    previous: list[Json] = field(default_factory=list[Json])

    @property
    def names(self) -> set[str]:
        everything = (*self.active, *self.succeeded, *self.failed, *self.previous)
        return {job["metadata"]["name"] for job in everything}


def sort(job_set: Json, jobs: Iterable[Json]) -> ChildJobs:
    run, attempt = ChildJobs(), restarts(job_set)
    for job in jobs:
        if int(job["metadata"]["labels"].get(RESTART, "0")) < attempt:
            run.previous.append(job)
        elif is_true(job, "Complete"):
            run.succeeded.append(job)
        elif is_true(job, "Failed"):
            run.failed.append(job)
        else:
            run.active.append(job)
    return run


def counted(job_set: Json, run: ChildJobs) -> list[Json]:
    """`status.replicatedJobsStatus`: Jobs per replicated job."""
    return [
        {
            "name": group["name"],
            "ready": sum(_is_ready(job) for job in _of(group, run.active)),
            "succeeded": len(_of(group, run.succeeded)),
            "failed": len(_of(group, run.failed)),
            "active": sum(bool(_status(job).get("active")) for job in _of(group, run.active)),
            "suspended": sum(bool(job["spec"].get("suspend")) for job in _of(group, run.active)),
        }
        for group in job_set["spec"].get("replicatedJobs") or ()
    ]


def is_true(obj: Json, kind: str) -> bool:
    return any(row["type"] == kind and row["status"] == "True" for row in _status(obj).get("conditions") or ())


def with_condition(status: Json, kind: str, value: bool, reason: str, message: str) -> Json:
    """The status with this condition; one that was never true is not created as false."""
    rows: list[Json] = copy.deepcopy(status.get("conditions") or [])
    row = next((row for row in rows if row["type"] == kind), None)
    wanted = "True" if value else "False"
    if (row is None and not value) or (row is not None and row["status"] == wanted):
        return status
    if row is None:
        row = {"type": kind}
        rows.append(row)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    row |= {"status": wanted, "reason": reason, "message": message, "lastTransitionTime": now}
    return {**status, "conditions": rows}


def first_failed(jobs: Iterable[Json]) -> str:
    """The name of the Job that failed first."""

    def when(job: Json) -> tuple[str, str]:
        times = [row.get("lastTransitionTime", "") for row in _status(job)["conditions"] if row["type"] == "Failed"]
        return times[0], job["metadata"]["name"]

    return min(jobs, key=when)["metadata"]["name"]


def _status(obj: Json) -> Json:
    return obj.get("status") or {}


def _of(group: Json, jobs: Iterable[Json]) -> list[Json]:
    return [job for job in jobs if job["metadata"]["labels"].get(REPLICATED_JOB) == group["name"]]


def _is_ready(job: Json) -> bool:
    spec, status = job["spec"], _status(job)
    pods = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
    return status.get("succeeded", 0) + status.get("ready", 0) >= pods
