"""The next steps for one JobSet, in JobSet's own order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gangline.devcluster.jobset import children, status
from gangline.devcluster.jobset.children import REPLICATED_JOB, Child
from gangline.devcluster.jobset.status import ChildJobs
from gangline.kube.resources import JOBS, SERVICES, Json, Resource


@dataclass(frozen=True, slots=True)
class CreateChildJob:
    resource: Resource
    body: Json


@dataclass(frozen=True, slots=True)
class DeleteChildJob:
    """Deletes a Job in the foreground: it is gone when its pods are."""

    job: Json


@dataclass(frozen=True, slots=True)
class PatchChildJob:
    """A merge patch on a child Job, of its main part or of its status."""

    job: Json
    body: Json
    subresource: str = ""


Step: TypeAlias = CreateChildJob | DeleteChildJob | PatchChildJob


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Steps to take, and the status before them. `waits`: a Job has no free domain."""

    status: Json
    steps: list[Step] = field(default_factory=list[Step])
    waits: bool = False


#: the domain for an exclusive child Job, other than these; "" without one
Choose: TypeAlias = Callable[[Child, Set[str]], str]


def reconcile(job_set: Json, jobs: Sequence[Json], services: Iterable[str], choose: Choose) -> Reconciled:
    """`jobs` are all Jobs that the JobSet controls, `services` the names of the Services in its namespace."""
    run = status.sort(job_set, jobs)
    now: Json = {**(job_set.get("status") or {}), "replicatedJobsStatus": status.counted(job_set, run)}
    now.setdefault("restarts", 0)
    if status.is_true(job_set, "Completed") or status.is_true(job_set, "Failed"):
        return Reconciled(now, _deletes(run.active))
    deletes = _deletes(run.previous)
    if run.failed:
        return Reconciled(_after_failure(job_set, now, run), deletes)
    if _has_succeeded(job_set, run):
        done = status.with_condition(now, "Completed", True, "AllJobsCompleted", "jobset completed successfully")
        return Reconciled({**done, "terminalState": "Completed"}, deletes)
    outcome = _suspended(job_set, now, run) if _is_suspended(job_set) else _running(job_set, now, run, choose)
    return Reconciled(outcome.status, [*deletes, *_service(job_set, services), *outcome.steps], outcome.waits)


def _is_suspended(job_set: Json) -> bool:
    return bool(job_set["spec"].get("suspend"))


def _suspended(job_set: Json, now: Json, run: ChildJobs) -> Reconciled:
    steps: list[Step] = [CreateChildJob(JOBS, child.job(suspend=True)) for child in _missing(job_set, run)]
    steps += [PatchChildJob(job, {"spec": {"suspend": True}}) for job in run.active if not job["spec"].get("suspend")]
    return Reconciled(status.with_condition(now, "Suspended", True, "SuspendedJobs", "jobset is suspended"), steps)


def _running(job_set: Json, now: Json, run: ChildJobs, choose: Choose) -> Reconciled:
    """Start missing and suspended Jobs. A Job without a free domain stays suspended until there is one."""
    held = {job["metadata"]["name"]: job for job in run.active if job["spec"].get("suspend")}
    due = [child for child in children.wanted(job_set) if child.name in held]
    steps: list[Step] = []
    chosen: set[str] = set()
    waits = False
    for child in (*_missing(job_set, run), *due):
        job = held.get(child.name)
        if _is_busy(job):
            continue
        domain = choose(child, chosen) if child.exclusive_by else ""
        stuck = bool(child.exclusive_by) and not domain
        waits = waits or stuck
        chosen.add(domain)
        if job is None:
            steps.append(CreateChildJob(JOBS, child.job(suspend=stuck, domain=domain)))
        else:
            steps += _reset(job) or ([] if stuck else [_resume(child, job, domain)])
    return Reconciled(status.with_condition(now, "Suspended", False, "ResumeJobs", "jobset is resumed"), steps, waits)


def _is_busy(job: Json | None) -> bool:
    """Whether pods of the Job's last run are not gone yet: its template cannot be changed then."""
    return job is not None and bool((job.get("status") or {}).get("active"))


def _reset(job: Json) -> list[Step]:
    """A Job that has run before accepts another template once it has no start time."""
    if not (job.get("status") or {}).get("startTime"):
        return []
    return [PatchChildJob(job, {"status": {"startTime": None}}, "status")]


def _resume(child: Child, job: Json, domain: str) -> PatchChildJob:
    wanted = child.resumed(job, domain)
    template = {part: _replaced(wanted, job, part) for part in _MUTABLE}
    return PatchChildJob(job, {"spec": {"suspend": False, "template": template}})


#: the fields that Kubernetes lets change in the template of a suspended Job
_MUTABLE: Final = {"metadata": ("labels", "annotations"), "spec": ("nodeSelector", "tolerations", "schedulingGates")}


def _replaced(wanted: Json, job: Json, part: str) -> Json:
    """A merge patch that removes all entries of the old maps."""
    patch: Json = {}
    for name in _MUTABLE[part]:
        new, old = wanted["template"][part].get(name), job["spec"]["template"][part].get(name)
        if isinstance(old, dict):
            patch[name] = {**dict.fromkeys(old), **(new or {})}
        elif new != old:
            patch[name] = new
    return patch


def _missing(job_set: Json, run: ChildJobs) -> list[Child]:
    """Jobs to create. With BlockingRecreate none of them before all Jobs of the last attempt are gone."""
    policy = job_set["spec"].get("failurePolicy") or {}
    if run.previous and policy.get("restartStrategy") == "BlockingRecreate":
        return []
    return [child for child in children.wanted(job_set) if child.name not in run.names]


def _service(job_set: Json, services: Iterable[str]) -> list[Step]:
    name = children.subdomain_of(job_set)
    return [CreateChildJob(SERVICES, children.service(job_set))] if name and name not in services else []


def _deletes(jobs: Sequence[Json]) -> list[Step]:
    return [DeleteChildJob(job) for job in jobs if not job["metadata"].get("deletionTimestamp")]


def _after_failure(job_set: Json, now: Json, run: ChildJobs) -> Json:
    """Another attempt as long as the policy allows one, else the JobSet fails."""
    which = f"(first failed job: {status.first_failed(run.failed)})"
    policy = job_set["spec"].get("failurePolicy")
    if policy is None:
        reason, message = "FailedJobs", f"jobset failed due to one or more job failures {which}"
    elif now.get("restartsCountTowardsMax", 0) >= policy.get("maxRestarts", 0):
        reason, message = "ReachedMaxRestarts", f"jobset failed due to reaching max number of restarts {which}"
    else:
        counted = now.get("restartsCountTowardsMax", 0) + 1
        return {**now, "restarts": now["restarts"] + 1, "restartsCountTowardsMax": counted}
    return {**status.with_condition(now, "Failed", True, reason, message), "terminalState": "Failed"}


def _has_succeeded(job_set: Json, run: ChildJobs) -> bool:
    policy = job_set["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs")
    names = [job["metadata"]["labels"].get(REPLICATED_JOB) for job in run.succeeded]
    done = sum(not targets or name in targets for name in names)
    if policy.get("operator") == "Any":
        return done > 0
    wanted = sum(not targets or child.group["name"] in targets for child in children.wanted(job_set))
    return done > 0 and done >= wanted
