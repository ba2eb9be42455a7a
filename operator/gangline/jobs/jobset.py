"""jobset.x-k8s.io/v1alpha2 JobSet: several groups of equal Jobs that run as one.

Suspended by `spec.suspend`. Admission goes into the pod template of each replicated job. Both starting and stopping are one
patch each: JobSet's own webhook lets the injected parts of the templates change while the JobSet is suspended and in the very
write that suspends it (since JobSet 0.6), and running Jobs keep their pods' templates until the next start. So a suspended
JobSet always has the user's own templates, without an intermediate step that could be lost.

The JobSet controller runs the child Jobs; nothing here writes them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Final

from gangline.api import names
from gangline.api.read import merge, swap_record
from gangline.jobs import podspec, runtime_hints
from gangline.jobs.base import (
    Children,
    Delete,
    JobError,
    JobWrite,
    Json,
    Outcome,
    Patch,
    PodSetInfo,
    RuntimeHints,
    checkpoints,
)
from gangline.jobs.job import INDEX_LABEL
from gangline.kube.resources import JOB_SETS, JOBS, Resource, true_condition

#: the index, within its replicated job, of the Job that a pod belongs to
JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
#: on a child Job: its replicated job
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
#: prefix of keys that JobSet itself writes on pods
#: the most pods that a pod set of a Workload can have
MOST_PODS: Final = 2**31 - 1
_JOBSET: Final = "jobset.sigs.k8s.io"
_LIST: Final = "spec.replicatedJobs"


class JobSet:
    """Implements `gangline.jobs.base.JobKind`."""

    resource: Resource = JOB_SETS
    api_version: str = JOB_SETS.api_version
    kind: str = JOB_SETS.kind
    framework: str = "jobset.x-k8s.io/jobset"
    owns_children: bool = False
    optional: bool = True

    def is_suspended(self, job: Json) -> bool:
        return bool(job["spec"].get("suspend"))

    def pod_sets(self, job: Json) -> list[Json]:
        rows = [_pod_set(row, path) for row, path in _rows(job)]
        if not rows:
            raise JobError("needs at least one replicated job", _LIST)
        return rows

    def start(self, job: Json, infos: Sequence[PodSetInfo]) -> Patch | None:
        if not self.is_suspended(job):
            return None
        known = {info.name: info for info in infos}
        wanted = copy.deepcopy(job["spec"])
        for row, (_, path) in zip(wanted["replicatedJobs"], _rows(job), strict=True):
            if (info := known.get(_name(row))) is not None:
                body = row["template"]["spec"]
                body["template"] = podspec.merge(body["template"], info, f"{path}.template.spec.template")
        return Patch({"spec": merge.difference(job["spec"], {**wanted, "suspend": False})})

    def outdated_children(self, job: Json, infos: Sequence[PodSetInfo], children: Children) -> list[Delete]:
        """Jobs of an earlier run whose pods would still have the node selector, or the gate, of another flavor.

        When JobSet resumes a Job, it adds the template's content and removes nothing: with the selectors of two flavors its
        pods fit nowhere. Deleted Jobs are created again, from the templates of the JobSet, which are then the user's own.
        """
        wanted = {row["name"]: row["template"]["spec"]["template"] for row, _ in _rows(job)}
        known = {info.name: info for info in infos}
        return [
            Delete(
                JOBS, child["metadata"]["namespace"], child["metadata"]["name"], child["metadata"]["uid"], "Background"
            )
            for child in children.jobs
            if (name := podspec.labels_of(child).get(REPLICATED_JOB_LABEL, "")) in wanted
            and name.lower() in known
            and not child["metadata"].get("deletionTimestamp")
            and not (true_condition(child, "Complete") or true_condition(child, "Failed"))
            and _outdated(child, wanted[name], known[name.lower()])
        ]

    def stop(self, job: Json, pod_sets: Sequence[Json]) -> Patch | None:
        if self.finished(job):
            return None
        wanted = {**_restored(job, pod_sets), "suspend": True}
        change = merge.difference(job["spec"], wanted)
        return Patch({"spec": change}) if change else None

    def runtime_hints(self, job: Json) -> RuntimeHints:
        return RuntimeHints(runtime_hints.annotated(job))

    def workload_annotations(self, job: Json) -> dict[str, str]:
        """JobSet restarts all of its Jobs when one has failed, so Gangline does too; and it may take whole domains."""
        found = {names.NODE_LOSS: swap_record.RESTART, **checkpoints(job)}
        whole = {
            _name(row): {"by": label, "count": _replicas(row)}
            for row, _ in _rows(job)
            if (label := _exclusive(job, row))
        }
        if whole:
            found[names.WHOLE_DOMAINS] = json.dumps(whole, separators=(",", ":"), sort_keys=True)
        return found

    def attempt(self, job: Json) -> int | None:
        return min((podspec.attempt_of(row["template"]["spec"]["template"]) for row, _ in _rows(job)), default=0)

    def is_active(self, job: Json, children: Children) -> bool:
        if any(_may_run_pods(child) for child in children.jobs):
            return True
        if job["metadata"].get("deletionTimestamp"):  # its status is not updated any more
            return False
        return any(row.get("active") for row in _progress(job).values())

    def finished(self, job: Json) -> Outcome | None:
        for success, kind in ((True, "Completed"), (False, "Failed")):
            if (condition := true_condition(job, kind)) is not None:
                return Outcome(success, condition.get("message") or "")
        return None

    def pods_ready(self, job: Json) -> bool:
        done = sum(row.get("ready", 0) + row.get("succeeded", 0) for row in _progress(job).values())
        return done >= sum(_replicas(row) for row, _ in _rows(job))

    def reclaimable(self, job: Json) -> dict[str, int]:
        """The pods of Jobs that succeeded for good. When JobSet restarts all Jobs these run again: then their quota must not be
        granted to others, since one of the two would have no room.
        """
        if _may_start_over(job):
            return {}
        progress = _progress(job)
        ended = {
            _name(row): max(
                0, min(progress.get(row["name"], {}).get("succeeded", 0) * _pods_each(row), _pods(row, path))
            )
            for row, path in _rows(job)
        }
        return {name: count for name, count in ended.items() if count}

    def sync(self, job: Json, infos: Sequence[PodSetInfo] | None, children: Children) -> list[JobWrite]:
        return []


def _may_start_over(job: Json) -> bool:
    """A failed Job makes JobSet run all of its Jobs again, succeeded ones included.

    The number of restarts left does not matter: when the last one begins, the status still counts the Jobs before it.
    """
    policy = job["spec"].get("failurePolicy") or {}
    rules = policy.get("rules") or ()
    unlimited = any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in rules)
    return unlimited or policy.get("maxRestarts", 0) > 0


def _rows(job: Json) -> Iterator[tuple[Json, str]]:
    """The replicated jobs in order, each with its JSON path."""
    for position, row in enumerate(job["spec"].get("replicatedJobs") or ()):
        yield row, f"{_LIST}[{position}]"


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


def _pods(row: Json, path: str) -> int:
    """Pods of all Jobs of this replicated job. Raises JobError for a number that a Workload cannot hold."""
    replicas, each = _replicas(row), _pods_each(row)
    if not 0 <= replicas * each <= MOST_PODS:
        raise JobError(f"{replicas} Jobs of {each} pods: must be 0 to {MOST_PODS} pods", f"{path}.replicas")
    return replicas * each


def _exclusive(job: Json, row: Json) -> str:
    """The node label of which each Job of this replicated job takes one domain for itself; "" for any place."""
    own = (row["template"].get("metadata") or {}).get("annotations") or {}
    shared = job["metadata"].get("annotations") or {}
    return own.get(names.EXCLUSIVE_TOPOLOGY) or shared.get(names.EXCLUSIVE_TOPOLOGY) or ""


def _pod_set(row: Json, path: str) -> Json:
    template = row["template"]["spec"]["template"]
    pod_set: Json = {
        "name": _name(row),
        "count": _pods(row, path),
        "template": copy.deepcopy(template),
    }
    request = podspec.topology_request(template, INDEX_LABEL, f"{path}.template.spec.template")
    if request:
        pod_set["topologyRequest"] = {
            **request,
            "subGroupIndexLabel": JOB_INDEX_LABEL,
            "subGroupCount": _replicas(row),
        }
    return pod_set


def _outdated(child: Json, template: Json, info: PodSetInfo) -> bool:
    """It was started before, and has a node selector or a topology gate that it would not be started with now."""
    have = child["spec"]["template"]
    if names.PODSET not in podspec.labels_of(have):
        return False
    exclusive = (have["metadata"].get("annotations") or {}).get(names.EXCLUSIVE_TOPOLOGY)
    selector = {key for key in have["spec"].get("nodeSelector") or () if key != exclusive and _JOBSET not in key}
    mine = {*(template["spec"].get("nodeSelector") or ()), *info.node_selector}
    gated = any(gate["name"] == names.TOPOLOGY_GATE for gate in have["spec"].get("schedulingGates") or ())
    gates = any(gate["name"] == names.TOPOLOGY_GATE for gate in info.scheduling_gates)
    return not selector <= mine or (gated and not gates)


def _restored(job: Json, pod_sets: Sequence[Json]) -> Json:
    """`spec` as it was before any admission; unchanged if nothing is known of that."""
    originals = {pod_set["name"]: pod_set["template"] for pod_set in pod_sets}
    spec = copy.deepcopy(job["spec"])
    for row in spec.get("replicatedJobs") or ():
        if (original := originals.get(_name(row))) is not None:
            body = row["template"]["spec"]
            body["template"] = podspec.restore(body["template"], original)
            if not body["template"].get("metadata") and "metadata" not in original:
                body["template"].pop("metadata", None)
    return spec


def _progress(job: Json) -> dict[str, Json]:
    """Replicated job -> its row of the status, which counts Jobs, not pods."""
    return {row["name"]: row for row in (job.get("status") or {}).get("replicatedJobsStatus") or ()}


def _may_run_pods(child: Json) -> bool:
    """A child Job has pods, or may create some."""
    status, spec = child.get("status") or {}, child["spec"]
    if status.get("active") or (spec.get("podReplacementPolicy") == "Failed" and status.get("terminating")):
        return True
    ended = true_condition(child, "Complete") or true_condition(child, "Failed")
    leaving = bool(child["metadata"].get("deletionTimestamp"))
    return not (ended or leaving or spec.get("suspend"))
