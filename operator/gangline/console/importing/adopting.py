"""Writes an adoption, in steps that look at what is there: one that was interrupted is completed by running it again.

1. the Workload, gated, so that it does not wait in its queue;
2. its admission;
3. the gate is removed;
4. `handing_over`: what runs names its queue and its Workload, and is managed from then on.
"""

from __future__ import annotations

import copy
from typing import Final

from gangline.api import names
from gangline.api.read.conditions import mark_observed
from gangline.console.importing.adoptions import Adoption
from gangline.console.importing.assigning import GATE
from gangline.console.importing.conflicts import again
from gangline.control.writes.status.status_changes import imported
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists
from gangline.kube.resources import Json, controller_uid, true_condition

#: seconds between the last Workload and the first job that is handed over: the operator has seen the Workloads by then
SETTLING: Final = 2.0


class InTheWayError(Exception):
    """Says that something of another owner has the Workload's name."""


async def prepare(api: ApiClient, adoption: Adoption, now: int) -> None:
    """Take steps 1 to 3 of an adoption, at `now` in milliseconds. Raises ApiError and InTheWayError."""
    workload = await _created(api, adoption)
    workload = await again(lambda: _admitted(api, adoption, workload, now))
    await again(lambda: _ungated(api, workload))


async def _created(api: ApiClient, adoption: Adoption) -> Json:
    metadata = adoption.workload["metadata"]
    try:
        return await api.create(kube.WORKLOADS, metadata["namespace"], adoption.workload)
    except AlreadyExists:
        found = await api.get(kube.WORKLOADS, metadata["namespace"], metadata["name"])
    owners = {row["uid"] for row in found["metadata"].get("ownerReferences") or ()}
    if not owners & adoption.job.uids or controller_uid(found) not in (None, *adoption.job.uids):
        raise InTheWayError(f"Workload {metadata['name']} exists already, and belongs to another owner")
    return found


async def _admitted(api: ApiClient, adoption: Adoption, workload: Json, now: int) -> Json:
    metadata = workload["metadata"]
    found = await api.get(kube.WORKLOADS, metadata["namespace"], metadata["name"])
    if true_condition(found, names.QUOTA_RESERVED) is not None or GATE not in _gates(found):
        return found
    body = copy.deepcopy(found)
    status = body.setdefault("status", {})
    imported(adoption.admission, adoption.checks)(status, now)
    mark_observed({}, status, metadata.get("generation") or 0)
    return await api.replace(kube.WORKLOADS, metadata["namespace"], metadata["name"], body, subresource="status")


async def _ungated(api: ApiClient, workload: Json) -> None:
    metadata = workload["metadata"]
    found = await api.get(kube.WORKLOADS, metadata["namespace"], metadata["name"])
    gates = _gates(found)
    if GATE not in gates:
        return
    left = ",".join(gate for gate in gates if gate != GATE)
    body: Json = {
        "metadata": {
            "resourceVersion": found["metadata"]["resourceVersion"],
            "annotations": {names.ADMISSION_GATED_BY: left or None},
        }
    }
    await api.patch(kube.WORKLOADS, metadata["namespace"], metadata["name"], body)


def _gates(workload: Json) -> list[str]:
    annotations = workload["metadata"].get("annotations") or {}
    return [gate.strip() for gate in annotations.get(names.ADMISSION_GATED_BY, "").split(",")]
