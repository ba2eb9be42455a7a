"""Whether a job really created another one: any user can write an owner reference, and a child of a queued job needs no queue.

Pure functions on JSON. The owner was found before, with the uid of the reference.
"""

from __future__ import annotations

from gangline.api import jobkinds
from gangline.jobs.base import JobError, Json
from gangline.jobs.gpujob import gang
from gangline.objects import Stored

_POD = ("", "Pod")
_JOB = ("batch", "Job")
_JOB_SET = ("jobset.x-k8s.io", "JobSet")
_GPU_JOB = ("gangline.io", "GPUJob")


def creates(owner: Stored, child: Stored) -> bool:
    """Whether the owner's controller creates such a child: of this kind and name, and with at most the owner's number of pods.

    Of other kinds their declaration says it; owners of kinds that are not declared are believed.
    """
    kind = _kind(owner)
    if kind == _JOB:  # it makes pods, and counts only those that its selector selects
        return _kind(child) == _POD and _selects(owner, child)
    declaration = jobkinds.declaration_of(*kind)
    if declaration is None:
        return True
    try:
        if kind not in (_JOB_SET, _GPU_JOB):
            return declaration.creates(owner, child)
        if _kind(child) != _JOB:
            return False
        most = _pods_in_job_set(owner, child) if kind == _JOB_SET else _pods_in_gpu_job(owner, child)
        return most is not None and _parallelism(child.spec) <= most
    except (JobError, LookupError, TypeError, AttributeError, ValueError):  # not of the shape that it has to have
        return False


def _pods_in_job_set(owner: Stored, child: Stored) -> int | None:
    """The pods of the JobSet's Job of this name; None if it has none."""
    prefix, name = owner.name, child.name
    for row in owner.spec.get("replicatedJobs") or ():
        replicas = 1 if row.get("replicas") is None else row["replicas"]
        base, _, number = name.rpartition("-")
        if base == f"{prefix}-{row['name']}" and number.isdecimal() and len(number) <= 9 and int(number) < replicas:
            return _parallelism(row["template"]["spec"])
    return None


def _pods_in_gpu_job(owner: Stored, child: Stored) -> int | None:
    """The pods of the GPUJob's role with a Job of this name; None without one."""
    made = gang.read(owner)
    return next((role.replicas for role in made.roles if made.child_name(role) == child.name), None)


def _selects(owner: Stored, pod: Stored) -> bool:
    selector = (owner.spec.get("selector") or {}).get("matchLabels") or {}
    return bool(selector) and selector.items() <= pod.labels.items()


def _parallelism(spec: Json) -> int:
    value = spec.get("parallelism")
    return 1 if value is None else value


def _kind(obj: Stored) -> tuple[str, str]:
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))
