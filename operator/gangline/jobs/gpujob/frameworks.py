"""Rendezvous: environment variables by which the pods of a gang find each other and know their rank.

They go into the first container of every pod, before the user's own variables, and a variable that the user sets wins.
`GANGLINE_INDEX` (the pod's index in its role) comes first, because Kubernetes expands `$(NAME)` only from variables listed
earlier.

Ranks count through the roles in the order they are written. Kubernetes cannot add, so in every role but the first the command
is wrapped in a shell that adds the role's offset to the index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.jobs import podspec
from gangline.jobs.base import JobError, Json
from gangline.jobs.gpujob.gang import Gang, Role
from gangline.jobs.job import INDEX_LABEL

PORTS: Final[Mapping[str, int]] = {"PyTorch": 29500, "JAX": 1234, "TensorFlow": 2222}
#: The kernel accepts no longer single string in a process's environment.
_MAX_VALUE: Final = 128 * 1024 - 256
#: the most hosts of which such a string can have the names: "a-b-0.a," is the shortest
_MOST_HOSTS: Final = _MAX_VALUE // 8
_LAUNCHER: Final = "launcher"
_EVALUATOR: Final = "evaluator"

#: The shell's assignments for each framework with ranks.
_RANK_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "PyTorch": ("RANK", "PET_NODE_RANK"),
    "JAX": ("JAX_PROCESS_ID",),
}


@dataclass(frozen=True, slots=True)
class RolePosition:
    """A role's place in the gang as admitted: `counts` has the pods of each role, in the order of the roles."""

    gang: Gang
    counts: Sequence[int]
    position: int

    @property
    def role(self) -> Role:
        return self.gang.roles[self.position]

    @property
    def offset(self) -> int:
        """The rank of the role's first pod."""
        return sum(self.counts[: self.position])

    @property
    def world(self) -> int:
        return sum(self.counts)

    @property
    def leader(self) -> str:
        """The host of rank 0."""
        return self.gang.host(self.gang.roles[0], 0)

    def hosts(self, position: int) -> list[str]:
        """The names of the hosts of a role. Raises JobError for more hosts than a variable can name: there is no list of them."""
        role = self.gang.roles[position]
        if self.counts[position] > _MOST_HOSTS:
            raise JobError(
                f"the gang has too many pods for a variable of {self.gang.framework} to name them", "spec.roles"
            )
        return [self.gang.host(role, index) for index in range(self.counts[position])]


def wire(template: Json, seat: RolePosition) -> Json:
    """The role's template with its environment.

    Raises JobError when a later role of a framework with ranks has no explicit command to wrap.
    """
    wired = podspec.draft(template)
    container: Json = wired["spec"]["containers"][0]
    own: list[Json] = list(container.get("env") or [])
    taken = {variable["name"]: variable.get("value") for variable in own}
    container["env"] = [variable for variable in _environment(seat, taken) if variable["name"] not in taken] + own
    ranks = [name for name in _RANK_NAMES.get(seat.gang.framework, ()) if name not in taken]
    if seat.offset and ranks:
        container["command"] = _with_ranks(container, seat, ranks)
    return wired


def check(gang: Gang) -> None:
    """Check that the environment of the gang can be set. Raises JobError for a gang for which that would fail once it is
    admitted.
    """
    counts = [role.replicas for role in gang.roles]
    for position, role in enumerate(gang.roles):
        wire(role.template, RolePosition(gang, counts, position))


def _environment(seat: RolePosition, taken: Mapping[str, str | None]) -> list[Json]:
    index: Json = {
        "name": "GANGLINE_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_LABEL}']"}},
    }
    pod: Json = {"name": "GANGLINE_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    progress: Json = {
        "name": "GANGLINE_PROGRESS_URL",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{names.PROGRESS_URL}']"}},
    }
    variables = {
        "GANGLINE_JOB": seat.gang.name,
        "GANGLINE_ROLE": seat.role.name,
        "GANGLINE_REPLICAS": str(seat.counts[seat.position]),
    }
    match seat.gang.framework:
        case "PyTorch":
            variables |= _pytorch(seat, taken)
        case "JAX":
            variables |= _jax(seat)
        case "TensorFlow":
            variables |= _tensorflow(seat)
        case "MPI":
            variables |= _mpi(seat)
        case _:
            pass
    for name, value in variables.items():
        if len(value) > _MAX_VALUE:
            raise JobError(f"the gang has too many pods for the {name} of {seat.gang.framework}", "spec.roles")
    return [index, pod, progress, *({"name": name, "value": value} for name, value in variables.items())]


def _pytorch(seat: RolePosition, taken: Mapping[str, str | None]) -> dict[str, str]:
    """The variables for plain scripts (one process per pod) and, by the PET_ names, for torchrun (one process per GPU)."""
    address = taken.get("MASTER_ADDR") or seat.leader
    port = taken.get("MASTER_PORT") or str(PORTS["PyTorch"])
    variables = {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": str(seat.world)}
    variables |= _rank(seat, "RANK", "PET_NODE_RANK")
    return variables | {
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NNODES": str(seat.world),
        "PET_NPROC_PER_NODE": str(seat.role.gpus or 1),
    }


def _jax(seat: RolePosition) -> dict[str, str]:
    variables = {
        "JAX_COORDINATOR_ADDRESS": f"{seat.leader}:{PORTS['JAX']}",
        "JAX_NUM_PROCESSES": str(seat.world),
    }
    return variables | _rank(seat, "JAX_PROCESS_ID")


def _rank(seat: RolePosition, *rank_names: str) -> dict[str, str]:
    if seat.offset:
        return {"GANGLINE_RANK_OFFSET": str(seat.offset)}
    return dict.fromkeys(rank_names, "$(GANGLINE_INDEX)")


def _tensorflow(seat: RolePosition) -> dict[str, str]:
    """The variable TF_CONFIG. Every role is a task type; evaluators are not part of the cluster, as TensorFlow requires."""
    port = PORTS["TensorFlow"]
    cluster = {
        role.name: [f"{host}:{port}" for host in seat.hosts(position)]
        for position, role in enumerate(seat.gang.roles)
        if role.name != _EVALUATOR
    }
    start = json.dumps({"cluster": cluster, "task": {"type": seat.role.name}}, separators=(",", ":"))
    return {"TF_CONFIG": start.removesuffix("}}") + ',"index":$(GANGLINE_INDEX)}}'}


def _mpi(seat: RolePosition) -> dict[str, str]:
    """`mpirun --host "$MPI_HOSTS"`: the hosts with a slot per GPU. A role called launcher runs no ranks."""
    hosts = [
        (host, role.gpus or 1)
        for position, role in enumerate(seat.gang.roles)
        if role.name != _LAUNCHER or len(seat.gang.roles) == 1
        for host in seat.hosts(position)
    ]
    total = sum(slots for _, slots in hosts)
    return {"MPI_HOSTS": ",".join(f"{host}:{slots}" for host, slots in hosts), "MPI_SLOTS": str(total)}


def _with_ranks(container: Json, seat: RolePosition, ranks: Sequence[str]) -> list[str]:
    command = container.get("command")
    if not command:
        raise JobError(
            f"is required in every role but the first: the rank of a {seat.gang.framework} process is set around it",
            f"{seat.role.path}.spec.containers[0].command",
        )
    exports = " ".join(f"{name}=$GANGLINE_RANK" for name in ranks)
    script = f'GANGLINE_RANK=$((GANGLINE_RANK_OFFSET + GANGLINE_INDEX)); export {exports}; exec "$@"'
    return ["/bin/sh", "-c", script, "--", *command]
