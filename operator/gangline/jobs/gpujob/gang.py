"""The roles of a GPUJob in order, each with a complete pod template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gangline import bounded
from gangline.api.sharing import share_annotations
from gangline.jobs import podspec
from gangline.jobs.base import JobError, Json
from gangline.jobs.gpujob.shares import add_requests, ask_for_shares
from gangline.objects import Stored

SHORT_FORM_ROLE: Final = "worker"
DEFAULT_GPU_RESOURCE: Final = "nvidia.com/gpu"
_MAX_LABEL: Final = 63
_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Role:
    """Equal pods of the gang. `template` asks for the role's GPUs, or parts of them; `path` is where the user wrote it."""

    name: str
    replicas: int
    min_replicas: int | None
    gpus: int  # per pod
    template: Json
    path: str


@dataclass(frozen=True, slots=True)
class Gang:
    name: str
    namespace: str
    framework: str
    roles: tuple[Role, ...]

    def child_name(self, role: Role) -> str:
        """The name of the role's Job; its pods are `<child_name>-<index>`."""
        return f"{self.name}-{role.name}"

    def host(self, role: Role, index: int) -> str:
        """The DNS name of one pod, as the other pods of the gang resolve it."""
        return f"{self.child_name(role)}-{index}.{self.name}"


def read(job: Stored) -> Gang:
    """Read the gang that a GPUJob describes. Raises JobError, naming the field, if it does not describe one."""
    spec = job.spec
    resource = spec.get("gpuResource") or DEFAULT_GPU_RESOURCE
    written = spec.get("roles")
    if written is None:
        roles = [_short_role(spec, resource)]
    else:
        roles = [_role(role, f"spec.roles[{i}]", resource) for i, role in enumerate(written)]
    if not roles:
        raise JobError("a gang needs at least one role", "spec.roles")
    gang = Gang(job.name, job.namespace, spec.get("framework") or "None", tuple(roles))
    _check_names(gang)
    return gang


def _short_role(spec: Json, resource: str) -> Role:
    return _make(
        SHORT_FORM_ROLE,
        (spec.get("workers"), "spec.workers"),
        (spec.get("minWorkers"), "spec.minWorkers"),
        spec.get("gpusPerWorker"),
        (spec.get("template"), "spec.template"),
        resource,
        (spec.get("share"), "spec.share"),
    )


def _role(role: Json, path: str, resource: str) -> Role:
    if not role.get("name"):
        raise JobError("is required", f"{path}.name")
    return _make(
        role["name"],
        (role.get("replicas"), f"{path}.replicas"),
        (role.get("minReplicas"), f"{path}.minReplicas"),
        role.get("gpus"),
        (role.get("template"), f"{path}.template"),
        resource,
        (role.get("share"), f"{path}.share"),
    )


def _make(
    name: str,
    replicas: tuple[int | None, str],
    least: tuple[int | None, str],
    gpus: int | None,
    template: tuple[Json | None, str],
    resource: str,
    share: tuple[Json | None, str],
) -> Role:
    count = 1 if replicas[0] is None else replicas[0]
    if count < 1:
        raise JobError(f"must be at least 1, is {count}", replicas[1])
    if least[0] is not None and not 1 <= least[0] <= count:
        raise JobError(f"must be between 1 and {count}, is {least[0]}", least[1])
    body, path = podspec.draft(template[0] or {}), template[1]
    containers = (body.get("spec") or {}).get("containers")
    if not containers:
        raise JobError("at least one container is required", f"{path}.spec.containers")
    if body["spec"].setdefault("restartPolicy", "Never") not in ("Never", "OnFailure"):
        raise JobError("must be Never or OnFailure: a gang ends", f"{path}.spec.restartPolicy")
    asked = _asked_for(containers, resource, path)
    if share[0] is not None:
        ask_for_shares(body, gpus or 0, share[0], share[1], resource, asks=asked is not None)
    elif gpus and asked is None:
        add_requests(body, {resource: gpus})
    asked = asked if asked is not None else gpus or 0
    return Role(name, count, least[0], asked, share_annotations.with_variable(body), path)


def _asked_for(containers: list[Json], resource: str, path: str) -> int | None:
    """GPUs that the template itself requests for one pod; None if it requests none."""
    total: int | None = None
    for i, container in enumerate(containers):
        resources: Mapping[str, Any] = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        value = limits.get(resource, requests.get(resource))
        if value is None:
            continue
        number = bounded.whole(value if isinstance(value, str) else repr(value))
        if number is None:
            where = f"{path}.spec.containers[{i}].resources.limits[{resource}]"
            raise JobError(f"{bounded.shown(value)} is not a whole number", where)
        total = (total or 0) + number
    return total


def _check_names(gang: Gang) -> None:
    if len(gang.name) > _MAX_LABEL or not _SERVICE_NAME.fullmatch(gang.name):
        raise JobError(
            f'"{gang.name}" must be at most 63 lower-case letters, digits and dashes, the first a letter: '
            "it names the Service of the gang",
            "metadata.name",
        )
    seen: set[str] = set()
    for i, role in enumerate(gang.roles):
        if role.name in seen:
            raise JobError(f'"{role.name}" is there twice', f"spec.roles[{i}].name")
        seen.add(role.name)
        longest = f"{gang.child_name(role)}-{role.replicas - 1}"
        if len(longest) > _MAX_LABEL:
            raise JobError(f'is too long: the host name "{longest}" would exceed 63 characters', "metadata.name")
