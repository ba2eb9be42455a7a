"""The children of a running GPUJob: one headless Service for the names of its pods, and one Indexed Job per role; and what the
pods of a role claim (`claims`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.jobs import podspec, workload
from gangline.jobs.base import Json, PodSetInfo
from gangline.jobs.gpujob import claims, frameworks, restarts
from gangline.jobs.gpujob.frameworks import RolePosition
from gangline.jobs.gpujob.gang import Gang
from gangline.objects import JobObject, Stored

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
        "backoffLimit": restarts.pod_retries(job),
        "template": _template(seat, info, labels),
    }
    if (limit := workload.runtime_limit(job)) is not None:
        spec["activeDeadlineSeconds"] = restarts.time_left(job, limit)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _template(seat: RolePosition, info: PodSetInfo, labels: Mapping[str, str]) -> Json:
    role = seat.role
    placed = podspec.keep_off(podspec.merge(role.template, info, role.path), info.avoid)
    wired = frameworks.wire(placed, seat)
    meta = wired.setdefault("metadata", {})
    kept = {key: value for key, value in (meta.get("labels") or {}).items() if key != names.QUEUE_NAME}
    meta["labels"] = {**kept, **labels}
    wired["spec"]["subdomain"] = seat.gang.name
    claims.claim(wired, seat.gang, role, info)
    return wired


def _metadata(job: JobObject, name: str, owner: Json, labels: Mapping[str, str]) -> Json:
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner],
    }
