"""The change that each step makes here: to the Workload's status, or to the status of the job."""

from __future__ import annotations

from functools import partial

from gangline.api.read import conditions, merge
from gangline.control.checks.multikueue.plan.steps import Choose, Finish, Here, Nominate, SetCheck
from gangline.control.writes.status import run_changes
from gangline.control.writes.status.change import Change
from gangline.kube.resources import Json
from gangline.objects import JobObject


def admitted_on(cluster: str) -> str:
    return f'The workload was admitted on "{cluster}"'


def of(step: Here) -> Change:
    match step:
        case SetCheck(row, state, message, _):
            return partial(_set, row, state, message)
        case Choose(row, cluster, placed):
            return partial(_choose, row, cluster, frozenset(placed))
        case Nominate(clusters, _):
            return partial(_nominate, list(clusters))
        case Finish(reason, message):
            return run_changes.finish_because(reason, message)
        case _:
            raise TypeError(f"{step} does not change a Workload")


def mirrored(job: JobObject, status: Json) -> Json:
    """The patch that gives the job this status, if it has not changed since it was planned."""
    change = merge.difference(job.status, status)
    return {"metadata": {"resourceVersion": job.resource_version}, "status": change}


def _set(row: Json, state: str, message: str, status: Json, now: int) -> None:
    """Change the row if it is still as it was when that was planned."""
    for i, known in enumerate(status.get("admissionChecks") or ()):
        if known == row:
            moved = {"lastTransitionTime": conditions.timestamp(now)} if state != row["state"] else {}
            status["admissionChecks"][i] = {**row, "state": state, "message": message, **moved}


def _choose(row: Json, cluster: str, placed: frozenset[str], status: Json, now: int) -> None:
    if status.get("clusterName", cluster) != cluster or row not in (status.get("admissionChecks") or ()):
        return
    _set(row, "Ready", admitted_on(cluster), status, now)
    status["clusterName"] = cluster
    status.pop("nominatedClusterNames", None)
    for each in (status.get("admission") or {}).get("podSetAssignments") or ():
        if each["name"] in placed and each.get("delayedTopologyRequest") == "Pending":
            each["delayedTopologyRequest"] = "Ready"


def _nominate(clusters: list[str], status: Json, now: int) -> None:
    if status.get("clusterName"):
        return
    status.pop("nominatedClusterNames", None)
    if clusters:
        status["nominatedClusterNames"] = clusters
