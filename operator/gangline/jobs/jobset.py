"""jobset.x-k8s.io/v1alpha2 JobSet: several groups of equal Jobs that run as one.

Suspended by `spec.suspend`. Admission goes into the pod template of each replicated job. Both starting and stopping are one
patch each: JobSet's own webhook lets the injected parts of the templates change while the JobSet is suspended and in the very
write that suspends it (since JobSet 0.6), and running Jobs keep their pods' templates until the next start. So a suspended
JobSet always has the user's own templates, without an intermediate step that could be lost.

The JobSet controller runs the child Jobs; nothing here writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from gangline.api import names
from gangline.api.jobkinds import own
from gangline.api.jobkinds.declaration import (
    MOST_PODS,
    Behaviour,
    Path,
    PodSetPlace,
    ended_by_conditions,
    shown,
)
from gangline.jobs import base, podspec
from gangline.jobs.base import Children, Delete, JobError, Json, Patch, PodSetInfo, checkpoints
from gangline.jobs.declared import DeclaredKind
from gangline.jobs.job import INDEX_LABEL
from gangline.kube.resources import JOBS
from gangline.objects import JobObject

#: the index, within its replicated job, of the Job that a pod belongs to
JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
#: on a child Job: its replicated job
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
#: prefix of keys that JobSet itself writes on pods
_JOBSET: Final = "jobset.sigs.k8s.io"
_LIST: Final = "spec.replicatedJobs"


class JobSet(DeclaredKind):
    """Implements `gangline.jobs.base.JobKind`."""

    def __init__(self) -> None:
        finished = ended_by_conditions("Completed", "Failed")
        behaviour = Behaviour(_places, finished, _ready, _active, _reclaimable, idle=_idle)
        super().__init__(own.JOB_SET, behaviour)

    def outdated_children(self, job: JobObject, infos: Sequence[PodSetInfo], children: Children) -> list[Delete]:
        """Jobs of an earlier run whose pods would still have the node selector, or the gate, of another flavor.

        When JobSet resumes a Job, it adds the template's content and removes nothing: with the selectors of two flavors its
        pods fit nowhere. Deleted Jobs are created again, from the templates of the JobSet, which are then the user's own.
        """
        wanted = {row["name"]: row["template"]["spec"]["template"] for row, _ in _rows(job)}
        known = {info.name: info for info in infos}
        return [
            Delete(JOBS, child.namespace, child.name, child.uid, "Background")
            for child in children.jobs
            if (name := child.labels.get(REPLICATED_JOB_LABEL, "")) in wanted
            and name.lower() in known
            and not child.deletion_time
            and not (child.is_true("Complete") or child.is_true("Failed"))
            and _outdated(child, wanted[name], known[name.lower()])
        ]

    def workload_annotations(self, job: JobObject) -> dict[str, str]:
        """The annotations of the job's Workload, among them those of a job that takes whole domains."""
        found = self.node_loss(job) | checkpoints(job)
        whole = {
            _name(row): {"by": label, "count": _replicas(row)}
            for row, _ in _rows(job)
            if (label := _exclusive(job, row))
        }
        if whole:
            found[names.WHOLE_DOMAINS] = json.dumps(whole, separators=(",", ":"), sort_keys=True)
        return found

    def stop(self, job: JobObject, pod_sets: Sequence[Json]) -> Patch | None:
        starts = base.confirmed_start(job) if self.finished(job) is None else None
        return starts or super().stop(job, pod_sets)

    def has_seen_suspension(self, job: JobObject) -> bool:
        return self.finished(job) is not None or base.has_seen_suspension(job)

    def is_active(self, job: JobObject, children: Children) -> bool:
        if any(_may_run_pods(child) for child in children.jobs):
            return True
        if job.deletion_time:  # its status is not updated any more
            return False
        return super().is_active(job, children) or (self.finished(job) is None and base.is_stopping(job))


# --- what follows from the spec and the status alone ---


def _places(job: Json) -> list[PodSetPlace]:
    found = [_place(row, path) for row, path in _rows(job)]
    if not found:
        raise JobError("needs at least one replicated job", _LIST)
    return found


def _active(job: Json) -> bool:
    return any(row.get("active") for row in _progress(job).values())


def _ready(job: Json) -> bool:
    done = sum(row.get("ready", 0) + row.get("succeeded", 0) for row in _progress(job).values())
    return done >= sum(_replicas(row) for row, _ in _rows(job))


def _reclaimable(job: Json) -> dict[str, int]:
    """The pods of Jobs that succeeded for good. When JobSet restarts all Jobs these run again: then their quota must not be
    granted to others, since one of the two would have no room.
    """
    if _may_start_over(job):
        return {}
    progress = _progress(job)
    ended = {
        _name(row): max(0, min(progress.get(row["name"], {}).get("succeeded", 0) * _pods_each(row), _pods(row, path)))
        for row, path in _rows(job)
    }
    return {name: count for name, count in ended.items() if count}


def _may_start_over(job: Json) -> bool:
    """Whether a failed Job makes JobSet run all of its Jobs again, succeeded ones included.

    The number of restarts left does not matter: when the last one begins, the status still counts the Jobs before it.
    """
    policy = job["spec"].get("failurePolicy") or {}
    rules = policy.get("rules") or ()
    unlimited = any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in rules)
    return unlimited or policy.get("maxRestarts", 0) > 0


def _rows(job: Json) -> Iterator[tuple[Json, Path]]:
    """The replicated jobs in order, each with its path."""
    for position, row in enumerate(job["spec"].get("replicatedJobs") or ()):
        yield row, ("spec", "replicatedJobs", position)


def _name(row: Json) -> str:
    """The name of the pod set of a replicated job."""
    return row["name"].lower()


def _replicas(row: Json) -> int:
    value = row.get("replicas")
    return 1 if value is None else value


def _pods_each(row: Json) -> int:
    """The most pods that one Job of this replicated job runs at the same time."""
    spec = row["template"]["spec"]
    parallelism = spec.get("parallelism")
    parallelism = 1 if parallelism is None else parallelism
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, completions)


def _pods(row: Json, path: Path) -> int:
    """Pods of all Jobs of this replicated job. Raises JobError for a number that a Workload cannot hold."""
    replicas, each = _replicas(row), _pods_each(row)
    if not 0 <= replicas * each <= MOST_PODS:
        message = f"{replicas} Jobs of {each} pods: must be 0 to {MOST_PODS} pods"
        raise JobError(message, f"{shown(path)}.replicas")
    return replicas * each


def _exclusive(job: JobObject, row: Json) -> str:
    """The node label of which each Job of this replicated job takes one domain for itself; "" for any place."""
    own = (row["template"].get("metadata") or {}).get("annotations") or {}
    return own.get(names.EXCLUSIVE_TOPOLOGY) or job.annotations.get(names.EXCLUSIVE_TOPOLOGY) or ""


def _place(row: Json, path: Path) -> PodSetPlace:
    return PodSetPlace(
        name=_name(row),
        count=_pods(row, path),
        path=(*path, "template", "spec", "template"),
        counted=row["template"]["spec"]["template"],
        index_label=INDEX_LABEL,
        sub_groups=(JOB_INDEX_LABEL, _replicas(row)),
    )


def _outdated(child: JobObject, template: Json, info: PodSetInfo) -> bool:
    """Whether the child was started before, and has a node selector or a topology gate that it would not be started with now."""
    have = child.spec["template"]
    if names.PODSET not in podspec.labels_of(have):
        return False
    exclusive = podspec.annotations_of(have).get(names.EXCLUSIVE_TOPOLOGY)
    selector = {key for key in have["spec"].get("nodeSelector") or () if key != exclusive and _JOBSET not in key}
    mine = {*(template["spec"].get("nodeSelector") or ()), *info.node_selector}
    gated = any(gate["name"] == names.TOPOLOGY_GATE for gate in have["spec"].get("schedulingGates") or ())
    gates = any(gate["name"] == names.TOPOLOGY_GATE for gate in info.scheduling_gates)
    return not selector <= mine or (gated and not gates)


def _progress(job: Json) -> dict[str, Json]:
    """Replicated job -> its row of the status, which counts Jobs, not pods."""
    return {row["name"]: row for row in (job.get("status") or {}).get("replicatedJobsStatus") or ()}


def _idle(job: Json) -> Json:
    """The status without Jobs that run."""
    status: Json = job.get("status") or {}
    rows = [{**row, "active": 0, "ready": 0} for row in status.get("replicatedJobsStatus") or ()]
    return {**status, "replicatedJobsStatus": rows} if rows else status


def _may_run_pods(child: JobObject) -> bool:
    """Whether a child Job has pods, or may create some."""
    status, spec = child.status, child.spec
    if status.get("active") or base.is_stopping(child):
        return True
    if spec.get("podReplacementPolicy") == "Failed" and status.get("terminating"):
        return True
    ended = child.is_true("Complete") or child.is_true("Failed")
    return not (ended or child.deletion_time or spec.get("suspend"))
