"""gangline.io/v1alpha1 GPUJob: a gang of roles.

Suspended by `spec.suspend`. While it runs it owns a headless Service, one Indexed Job per role, and the ResourceClaimTemplates of
roles with shares by DRA; while it is suspended it owns neither Job nor template (the Service stays, it costs nothing). Admission
goes into the children, so the GPUJob's own templates never change and a stop has nothing to restore.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from gangline import bounded
from gangline.api import names
from gangline.api.jobkinds import own
from gangline.api.sharing import share_annotations
from gangline.jobs import podspec, workload
from gangline.jobs.base import (
    Children,
    Create,
    Declared,
    Delete,
    JobOutcome,
    JobWrite,
    Json,
    Patch,
    PodSetInfo,
    RuntimeHints,
    checkpoints,
)
from gangline.jobs.gpujob import frameworks, status
from gangline.jobs.gpujob import gang as gangs
from gangline.jobs.gpujob import status as verdicts
from gangline.jobs.gpujob.frameworks import RolePosition
from gangline.jobs.gpujob.gang import Gang, Role
from gangline.jobs.gpujob.status import GangVerdict
from gangline.jobs.job import INDEX_LABEL
from gangline.kube.resources import JOBS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, SERVICES, Resource
from gangline.objects import JobObject, Stored

# --- the claims of roles whose pods get their shares of GPUs by DRA ---------------------------------------------------
#
# Pods that wait for their place get a claim each from the operator (`control.nodes.gates.pod_gates`); the others get theirs from
# a ResourceClaimTemplate of the gang. Its name follows from what it asks for, so it never has to change.


_CLAIM_DIGEST_LENGTH: Final = 10


def templates(gang: Gang, infos: Sequence[PodSetInfo], owner: Json) -> list[Json]:
    """The ResourceClaimTemplates of those roles whose pods do not wait for a place, by the order of the roles."""
    made: list[Json] = []
    for role, info in zip(gang.roles, infos, strict=True):
        spec = _asked(role)
        if spec is not None and not _waits(info):
            labels = {names.GPUJOB_LABEL: gang.name, names.ROLE_LABEL: role.name}
            meta = {"name": _name(gang, role, spec), "namespace": gang.namespace, "labels": labels}
            made.append(
                {
                    "apiVersion": RESOURCE_CLAIM_TEMPLATES.api_version,
                    "kind": RESOURCE_CLAIM_TEMPLATES.kind,
                    "metadata": {**meta, "ownerReferences": [owner]},
                    "spec": {"metadata": {"labels": labels}, "spec": spec},
                }
            )
    return made


def claim(template: Json, gang: Gang, role: Role, info: PodSetInfo) -> None:
    """Let the pods of this template, which is that of the role as admitted, claim their share."""
    spec = _asked(role)
    if spec is None:
        return
    by = share_annotations.BY_OPERATOR if _waits(info) else _name(gang, role, spec)
    pod = template["spec"]
    row = {"name": share_annotations.CLAIM, "resourceClaimTemplateName": by}
    pod["resourceClaims"] = [*(pod.get("resourceClaims") or ()), row]
    resources = pod["containers"][0].get("resources") or {}
    claims = [*(resources.get("claims") or ()), {"name": share_annotations.CLAIM}]
    pod["containers"][0]["resources"] = {**resources, "claims": claims}


def claims(gang: Gang) -> list[Role]:
    """The roles whose pods claim their share."""
    return [role for role in gang.roles if _asked(role) is not None]


def _asked(role: Role) -> Json | None:
    return share_annotations.spec((role.template.get("metadata") or {}).get("annotations") or {})


def _waits(info: PodSetInfo) -> bool:
    return any(gate.get("name") == names.TOPOLOGY_GATE for gate in info.scheduling_gates)


def _name(gang: Gang, role: Role, spec: Json) -> str:
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return f"{gang.child_name(role)}-{hashlib.sha256(text.encode()).hexdigest()[:_CLAIM_DIGEST_LENGTH]}"


# --- children ---------------------------------------------------------------------------------------------------------
#
# The children of a running GPUJob: one headless Service for the names of its pods, and one Indexed Job per role; and what the
# pods of a role claim (`claims`).


_DIGEST_LENGTH: Final = 16


def infos_for(gang: Gang, infos: Sequence[PodSetInfo]) -> list[PodSetInfo]:
    """One admission per role, in order; a role without an admission runs as it is written."""
    known = {info.name: info for info in infos}
    return [known.get(role.name) or PodSetInfo(role.name, role.replicas) for role in gang.roles]


def attempt(infos: Sequence[PodSetInfo]) -> int:
    """How often the gang was started again because nodes failed, within this admission or an earlier one."""
    return max((bounded.whole(info.annotations.get(names.ATTEMPT)) or 0 for info in infos), default=0)


def stamp(infos: Sequence[PodSetInfo], made: int, attempt: int = 0) -> str:
    """Identifies a run of the gang: by its admission, and by how often it was restarted for its pods and its nodes.

    It covers what shapes the gang (sizes and nodes) and nothing that a newer version of Gangline may add, so that an upgrade
    restarts no gang.
    """
    facts = [[info.name, info.count, dict(info.node_selector), list(info.tolerations)] for info in infos]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    count = f"{made}.{attempt}" if attempt else f"{made}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]}-{count}"


def stamp_of(child: Stored) -> str:
    return child.annotations.get(names.ADMISSION_DIGEST, "")


def service(job: JobObject, gang: Gang, owner: Json) -> Json:
    """Gives the pods names before they are ready: they find each other while they start."""
    spec: Json = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.GPUJOB_LABEL: gang.name},
    }
    if port := frameworks.PORTS.get(gang.framework):
        spec["ports"] = [{"name": "rendezvous", "port": port, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, gang.name, owner, {names.GPUJOB_LABEL: gang.name}),
        "spec": spec,
    }


def role_jobs(job: JobObject, gang: Gang, infos: Sequence[PodSetInfo], owner: Json, run: str) -> list[Json]:
    """The Jobs of the gang as admitted, stamped with `run`. Raises JobError when admission and template conflict."""
    counts = [info.count for info in infos]
    return [
        _role_job(job, RolePosition(gang, counts, position), info, owner, run) for position, info in enumerate(infos)
    ]


def _role_job(job: JobObject, seat: RolePosition, info: PodSetInfo, owner: Json, run: str) -> Json:
    gang, role = seat.gang, seat.role
    labels = {names.GPUJOB_LABEL: gang.name, names.ROLE_LABEL: role.name}
    metadata = _metadata(job, gang.child_name(role), owner, labels)
    metadata["annotations"] = {names.ADMISSION_DIGEST: run}
    spec: Json = {
        "completionMode": "Indexed",
        "completions": info.count,
        "parallelism": info.count,
        "backoffLimit": status.pod_retries(job),
        "template": _template(seat, info, labels),
    }
    if (limit := workload.runtime_limit(job)) is not None:
        spec["activeDeadlineSeconds"] = status.time_left(job, limit)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _template(seat: RolePosition, info: PodSetInfo, labels: Mapping[str, str]) -> Json:
    role = seat.role
    placed = podspec.keep_off(podspec.merge(role.template, info, role.path), info.avoid)
    wired = frameworks.wire(placed, seat)
    meta = wired.setdefault("metadata", {})
    kept = {key: value for key, value in (meta.get("labels") or {}).items() if key != names.QUEUE_NAME}
    meta["labels"] = {**kept, **labels}
    wired["spec"]["subdomain"] = seat.gang.name
    claim(wired, seat.gang, role, info)
    return wired


def _metadata(job: JobObject, name: str, owner: Json, labels: Mapping[str, str]) -> Json:
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner],
    }


_Child = TypeVar("_Child", bound=Stored)
_INVALID: Final = re.compile(r'^(?P<kind>\S+) "(?P<name>[^"]+)" is invalid: (?P<fault>.*)$', re.DOTALL)


@bounded.parser(65_536, instead=None, worst=('a "', '" is invalid: ', "a"))
def _refusal(message: str) -> re.Match[str] | None:
    """An API server's answer to an invalid object; a longer one than this is not parsed."""
    return _INVALID.match(message)


class GPUJobKind(Declared):
    """Implements `gangline.jobs.base.JobKind`."""

    declaration = own.GPU_JOB
    owns_children = True

    def is_suspended(self, job: JobObject) -> bool:
        return bool(job.spec.get("suspend"))

    def pod_sets(self, job: JobObject) -> list[Json]:
        gang = gangs.read(job)
        frameworks.check(gang)
        workload.runtime_limit(job)
        return [_pod_set(job, role) for role in gang.roles]

    def start(self, job: JobObject, infos: Sequence[PodSetInfo]) -> Patch | None:
        if not self.is_suspended(job):
            return None
        gang = gangs.read(job)
        role_jobs(job, gang, infos_for(gang, infos), {}, "")  # finds conflicts before any write
        return Patch({"spec": {"suspend": False}})

    def not_kept(self, job: JobObject, infos: Sequence[PodSetInfo]) -> list[str]:
        return []  # an admission goes into its children

    def stop(self, job: JobObject, pod_sets: Sequence[Json]) -> Patch | None:
        return None if self.is_suspended(job) or self.finished(job) else Patch({"spec": {"suspend": True}})

    def runtime_hints(self, job: JobObject) -> RuntimeHints:
        """`spec.runtime`: the expected runtime, given directly or as steps times seconds; else the annotation."""
        runtime = job.spec.get("runtime") or {}
        expected = podspec.seconds(runtime.get("expected")) or podspec.by_steps(
            runtime.get("steps"), runtime.get("secondsPerStep")
        )
        return RuntimeHints(expected or podspec.annotated(job), podspec.seconds(runtime.get("limit")))

    def workload_annotations(self, job: JobObject) -> dict[str, str]:
        node_loss = status.on_lost_node(job)
        interval = (job.spec.get("runtime") or {}).get("checkpointInterval")
        return ({names.NODE_LOSS: node_loss} if node_loss else {}) | checkpoints(job, interval)

    def attempt(self, job: JobObject) -> int | None:
        return None

    def is_active(self, job: JobObject, children: Children) -> bool:
        return any(_may_run_pods(child) for child in children.jobs)

    def finished(self, job: JobObject) -> JobOutcome | None:
        for success, kind in ((True, verdicts.COMPLETE), (False, verdicts.FAILED)):
            if (condition := job.true_condition(kind)) is not None:
                return JobOutcome(success, condition.get("message") or "")
        return None

    def pods_ready(self, job: JobObject) -> bool:
        rows = job.status.get("roles") or []
        return bool(rows) and all(row["ready"] + row["succeeded"] >= row["replicas"] for row in rows)

    def reclaimable(self, job: JobObject) -> dict[str, int]:
        """The pods whose quota can be given back while the job runs: none, since a gang that starts again needs all of its pods,
        also those that had ended.
        """
        return {}

    def sync(self, job: JobObject, infos: Sequence[PodSetInfo] | None, children: Children) -> list[JobWrite]:
        if self.finished(job):
            return []
        gang = gangs.read(job)
        verdict = verdicts.recorded(job) or verdicts.succeeded(gang, _staying(children.jobs))
        if verdict is not None:
            return _end(job, gang, children, verdict)
        if infos is None or self.is_suspended(job):
            unused = () if children.jobs else children.claim_templates
            return [*_deletes(children.jobs), *_drops(unused), *_written(status.held(job, gang, children.jobs))]
        return self._run(job, gang, infos_for(gang, infos), children)

    def restart(self, job: JobObject, reason: str, message: str, at: str) -> Patch | None:
        """Start the whole gang again in place. None if it does not run, or was restarted as often as it may be."""
        if self.is_suspended(job) or self.finished(job) or verdicts.recorded(job) or not status.left(job):
            return None
        return status.restarting(job, status.made(job) + 1, GangVerdict(False, reason, message, at))

    def expire(self, job: JobObject, at: str) -> Patch | None:
        """Let a job fail that has run for as long as `spec.runtime.limit` allows, over all its attempts. None if its status says
        so, or if another limit stopped it.
        """
        limit = workload.runtime_limit(job)
        if limit is None or limit != workload.max_execution_seconds(job):
            return None
        if self.finished(job) or verdicts.recorded(job):
            return None
        message = f"The job has run for {limit} s in total, which is spec.runtime.limit"
        return status.ending(job, GangVerdict(False, "DeadlineExceeded", message, at))

    def rejected(self, job: JobObject, message: str) -> Patch | None:
        """The status that names the field of a child that the API server does not accept; the job fails with it.

        `message` is the API server's answer to a create. None if it is not about the content, and may be temporary.
        """
        found = _refusal(message)
        if found is None or self.finished(job):
            return None
        fault = found["fault"]
        if (role := _role_named(job, found["name"])) is not None:
            fault = fault.replace("spec.template", role.path)
        return status.ending(job, GangVerdict(False, "InvalidTemplate", fault, status.latest(job)))

    def needed_kinds(self, job: JobObject) -> Mapping[Resource, str]:
        claiming = claims(gangs.read(job))
        where = f"{claiming[0].path.removesuffix('.template')}.share.by" if claiming else ""
        return dict.fromkeys((RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS), where) if claiming else {}

    def pods_refused(self, job: JobObject, refused: bool, reason: str, message: str, at: str) -> Patch | None:
        return status.pods_refused(job, refused, reason, message, at)

    def _run(self, job: JobObject, gang: Gang, infos: Sequence[PodSetInfo], children: Children) -> list[JobWrite]:
        run = stamp(infos, status.made(job), attempt(infos))
        current = [child for child in _staying(children.jobs) if stamp_of(child) == run]
        failure = verdicts.failed(gang, current)
        if failure is not None and status.allowed(job, failure.reason):
            return [status.restarting(job, status.made(job) + 1, failure)]
        if failure is not None:
            return _end(job, gang, children, failure)
        progress = _written(status.running(job, gang, infos, current))
        if len(current) < len(children.jobs):  # first the whole old gang is deleted
            return [*_deletes([child for child in children.jobs if child not in current]), *progress]
        owner = workload.owner_reference(self, job)
        writes: list[JobWrite] = []
        if not children.services:
            writes.append(Create(SERVICES, service(job, gang, owner)))
        there = {template.name for template in children.claim_templates}
        made = templates(gang, infos, owner)
        writes += [Create(RESOURCE_CLAIM_TEMPLATES, body) for body in made if body["metadata"]["name"] not in there]
        if len(current) < len(gang.roles):
            known = {child.name for child in current}
            wanted = role_jobs(job, gang, infos, owner, run)
            writes += [Create(JOBS, body) for body in wanted if body["metadata"]["name"] not in known]
        return [*writes, *progress]


def _pod_set(job: JobObject, role: gangs.Role) -> Json:
    pod_set: Json = {"name": role.name, "count": role.replicas, "template": role.template}
    if role.min_replicas is not None:
        pod_set["minCount"] = role.min_replicas
    asked = {key: value for key, value in (job.spec.get("topology") or {}).items() if value}
    request = podspec.topology_request(role.template, INDEX_LABEL, role.path)
    if asked:
        request = {**asked, "podIndexLabel": INDEX_LABEL}
    if request:
        pod_set["topologyRequest"] = request
    return pod_set


def _end(job: JobObject, gang: Gang, children: Children, verdict: GangVerdict) -> list[JobWrite]:
    """Delete what still runs, keep what has ended (for its logs), and report when nothing runs any more."""
    alive = [child for child in children.jobs if _may_run_pods(child)]
    if not alive:
        return _written(status.ended(job, gang, children.jobs, verdict))
    return [*_written(status.ending(job, verdict)), *_deletes([child for child in alive if not _has_ended(child)])]


def _staying(children: Sequence[_Child]) -> list[_Child]:
    return [child for child in children if not child.deletion_time]


def _has_ended(child: JobObject) -> bool:
    return child.is_true(verdicts.COMPLETE) or child.is_true(verdicts.FAILED)


def _may_run_pods(child: JobObject) -> bool:
    return not _has_ended(child) or bool(child.status.get("active") or child.status.get("terminating"))


def _deletes(jobs: Sequence[JobObject]) -> list[JobWrite]:
    """Delete child Jobs in the foreground: a child is gone only when its pods are."""
    return [Delete(JOBS, child.namespace, child.name, child.uid) for child in _staying(jobs)]


def _drops(templates: Sequence[Stored]) -> list[JobWrite]:
    """Delete templates of claims. Claims that were made of them stay with their pods."""
    return [
        Delete(RESOURCE_CLAIM_TEMPLATES, template.namespace, template.name, template.uid, "Background")
        for template in _staying(templates)
    ]


def _written(patch: Patch | None) -> list[JobWrite]:
    return [patch] if patch is not None else []


def _role_named(job: JobObject, child_name: str) -> gangs.Role | None:
    gang = gangs.read(job)
    return next((role for role in gang.roles if gang.child_name(role) == child_name), None)
