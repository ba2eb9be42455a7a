"""The status of a GPUJob: conditions, phase and counts, from its children.

There is no clock here. Every time stamp is one that the API server has set on the job or its children: a hold begins with the
deletion of the children, a run with their creation, an end with the end of the Job that decided it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.read import conditions, merge, reading
from gangline.api.read.workloads import swap_record
from gangline.jobs.base import Json, Patch, PodSetInfo
from gangline.jobs.gpujob.gang import Gang, Role
from gangline.objects import JobObject, Stored

# --- how a gang ends: the roles that decide, and the decision ---------------------------------------------------------
#
# A verdict is written to the status twice: first as SuccessCriteriaMet or FailureTarget, while the rest of the gang is
# deleted, and as Complete or Failed when no pod can run any more (as the Job controller does). Quota is held in between.


SUCCEEDING: Final = "SuccessCriteriaMet"
FAILING: Final = "FailureTarget"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

_MPI_DECIDES: Final = ("launcher",)
_TENSORFLOW_DECIDES: Final = ("chief", "master")
_TENSORFLOW_SERVES: Final = ("ps", "evaluator")


@dataclass(frozen=True, slots=True)
class GangVerdict:
    success: bool
    reason: str
    message: str
    at: str  # RFC 3339

    @property
    def interim(self) -> str:
        return SUCCEEDING if self.success else FAILING

    @property
    def final(self) -> str:
        return COMPLETE if self.success else FAILED


def recorded(job: JobObject) -> GangVerdict | None:
    """The verdict in the status."""
    for success, kind in ((True, SUCCEEDING), (False, FAILING)):
        if (found := job.true_condition(kind)) is not None:
            return GangVerdict(success, found["reason"], found.get("message") or "", found["lastTransitionTime"])
    return None


def succeeded(gang: Gang, jobs: Sequence[JobObject]) -> GangVerdict | None:
    """The gang has succeeded when the roles that decide are complete."""
    ended: list[str] = []
    roles = deciding_roles(gang)
    for role in roles:
        child = find(gang, role, jobs)
        condition = child.true_condition(COMPLETE) if child else None
        if child is None or condition is None:
            return None
        ended.append(child.status.get("completionTime") or condition["lastTransitionTime"])
    if len(roles) == len(gang.roles):
        message = "All pods of the gang succeeded"
    else:
        message = f"All pods of {', '.join(role.name for role in roles)} succeeded"
    return GangVerdict(True, "Succeeded", message, max(ended))


def failed(gang: Gang, jobs: Sequence[JobObject]) -> GangVerdict | None:
    """The first role, in order, whose Job has failed."""
    for role in gang.roles:
        child = find(gang, role, jobs)
        condition = child.true_condition(FAILED) if child else None
        if condition is not None:
            message = f"{role.name}: {condition.get('message') or 'its Job failed'}"
            return GangVerdict(False, condition.get("reason") or FAILED, message, condition["lastTransitionTime"])
    return None


def deciding_roles(gang: Gang) -> Sequence[Role]:
    """All roles, except in frameworks with roles that serve the others and never end by themselves."""
    if gang.framework == "MPI":
        return _named(gang, _MPI_DECIDES) or gang.roles
    if gang.framework == "TensorFlow":
        workers = [role for role in gang.roles if role.name not in _TENSORFLOW_SERVES]
        return _named(gang, _TENSORFLOW_DECIDES) or workers or gang.roles
    return gang.roles


def find(gang: Gang, role: Role, jobs: Sequence[JobObject]) -> JobObject | None:
    return next((child for child in jobs if child.name == gang.child_name(role)), None)


def _named(gang: Gang, wanted: Sequence[str]) -> list[Role]:
    return [role for role in gang.roles if role.name in wanted]


# --- the restart policy of a GPUJob for failed pods -------------------------------------------------------------------
#
# `RestartGang` (the default): one failed pod fails its child Job, and the whole gang starts again, at most `maxRestarts`
# times. `RestartPod`: the child Job replaces failed pods, at most `maxRestarts` of them per role. `Fail`: the first failure is
# final.
#
# The gang's restarts are counted in `status.restarts`, and every child is stamped with the count at its creation. Raising the
# count is the one write that decides a restart: it makes the old children stale, and they are replaced.


RESTART_GANG: Final = "RestartGang"
RESTART_POD: Final = "RestartPod"
_DEFAULT_LIMIT: Final = 3
#: Reasons of a failed Job that another attempt would not cure.
_FINAL_REASONS: Final = frozenset({"DeadlineExceeded"})


def made(job: JobObject) -> int:
    """How often the gang has been restarted so far."""
    return job.status.get("restarts") or 0


def pod_retries(job: JobObject) -> int:
    """`backoffLimit` of the child Jobs."""
    return _limit(job) if _policy(job) == RESTART_POD else 0


def allowed(job: JobObject, reason: str) -> bool:
    """Whether the gang may start again after a child Job has failed for `reason`."""
    return _policy(job) == RESTART_GANG and reason not in _FINAL_REASONS and made(job) < _limit(job)


def left(job: JobObject) -> bool:
    """Whether the gang may be restarted once more."""
    return made(job) < _limit(job)


def time_left(job: JobObject, limit: int) -> int:
    """The time that the next attempt may take of `limit` seconds, at least one.

    A job without a queue has no Workload that counts its time, so the time of earlier attempts is counted here: from the start
    of the first to the end of the last. With a queue the Workload enforces the limit, over evictions too; this is only its
    backstop.
    """
    status = job.status
    started, ended = status.get("startTime"), [each["time"] for each in status.get("interruptions") or ()]
    if not made(job) or not started or not ended or queue_name(job):
        return limit
    taken = reading.parse_time(max(ended)) - reading.parse_time(started)
    return max(1, limit - max(0, round(taken / 1000)))


def on_lost_node(job: JobObject) -> str:
    """The reaction to a lost node, in the words of the Workload's annotation; "" = only the lost pods are replaced."""
    choice = (job.spec.get("restart") or {}).get("onNodeFailure") or "Swap"
    if choice == "Swap":
        return "" if _policy(job) == RESTART_POD else swap_record.RESTART
    return swap_record.REQUEUE if choice == "Restart" else swap_record.FAIL


def _limit(job: JobObject) -> int:
    limit = (job.spec.get("restart") or {}).get("maxRestarts")
    return _DEFAULT_LIMIT if limit is None else limit


def _policy(job: JobObject) -> str:
    return (job.spec.get("restart") or {}).get("onPodFailure") or RESTART_GANG


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
        status["conditions"] = _with(job, SUSPENDED, True, "Held", "The job waits for its admission", at)
    return _patch(job, status)


def running(job: JobObject, gang: Gang, infos: Sequence[PodSetInfo], jobs: Sequence[JobObject]) -> Patch | None:
    """The status of a job that is admitted; `jobs` are the children of this run. None if it says so already."""
    status = _counts(gang, infos, jobs)
    status["phase"] = _phase(job, gang, status["roles"], jobs)
    status["expectedStart"] = None  # it has come true
    if jobs:
        created = max(child.created or latest(job) for child in jobs)
        status["conditions"] = _with(job, SUSPENDED, False, "Admitted", "The job was admitted", created)
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
    return _patch(job, {"conditions": _with(job, names.PODS_REFUSED, refused, reason, message, at)})


def ending(job: JobObject, verdict: GangVerdict) -> Patch | None:
    """Record that the end is decided, while pods may still run."""
    return _patch(job, {"conditions": _with(job, verdict.interim, True, verdict.reason, verdict.message, verdict.at)})


def ended(job: JobObject, gang: Gang, jobs: Sequence[JobObject], verdict: GangVerdict) -> Patch | None:
    """Record that the end is decided, and that no pod runs any more."""
    status: Json = {
        "phase": "Succeeded" if verdict.success else "Failed",
        "conditions": _with(job, verdict.final, True, verdict.reason, verdict.message, verdict.at),
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


def _with(job: JobObject, kind: str, status: bool, reason: str, message: str, at: str) -> list[Json]:
    """The job's conditions with one of them set; it keeps its time while its status stays the same."""
    rows: list[Json] = [dict(row) for row in job.conditions]
    conditions.put(rows, kind, status, reason, message, now=at)
    return rows


def _patch(job: JobObject, wanted: Json) -> Patch | None:
    """The smallest patch, None if nothing would change."""
    current = job.status
    if job.generation:
        wanted["observedGeneration"] = job.generation
    changed = merge.difference({key: current[key] for key in wanted if key in current}, wanted)
    return Patch({"status": changed}, "status") if changed else None
