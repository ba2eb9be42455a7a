"""Pods that run in another cluster, while those here wait at their gates and show how far the others are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangline.api.jobkinds.declaration import Path, Suspension
from gangline.api.read import merge
from gangline.jobs.base import SentAlone
from gangline.jobs.pods.member import TERMINATION_TARGET
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, Stored

#: condition of Kubernetes' scheduler
SCHEDULED: Final = "PodScheduled"
_GATED: Final = "SchedulingGated"
_ENDED: Final = ("Succeeded", "Failed")

#: kept although the other one may differ: the API server lets nobody change it
_FIXED: Final = "qosClass"


class PodsOnOtherCluster(SentAlone):
    """Implements `gangline.jobs.base.RunsOnOtherCluster`: for single pods, and for each pod of a group."""

    resource: Resource = kube.PODS
    managed_by: Path = ()
    #: a pod has no such field, and whatever it shows may be written at any time
    suspension: Suspension = Suspension(("spec", "(no field)"))
    followed: Sequence[Path] = ()

    @property
    def pods_wait(self) -> bool:
        return True

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        """The spec of a pod for another cluster, as it waits here: the gate is opened there. The number of a named priority is
        that cluster's to say.
        """
        spec = {name: value for name, value in job.spec.items() if name != "nodeName"}
        if spec.get("priorityClassName"):
            for name in ("priority", "preemptionPolicy"):
                spec.pop(name, None)
        return spec

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        """The status of the pod in the other cluster, but for what would mislead here.

        A cluster autoscaler adds nodes for pods that cannot be scheduled, so until the other one has a node, this one says that
        it waits at its gate. A pod that its own cluster stops is about to be deleted there, and starts anew on another node: its
        end is not that of this one.
        """
        if remote is None:
            return idle(job)
        if job.deleting or remote.is_true(TERMINATION_TARGET):
            return None
        now = job.status
        wanted = {name: value for name, value in remote.status.items() if name != _FIXED}
        if not wanted:
            return None
        if _FIXED in now:
            wanted[_FIXED] = now[_FIXED]
        here = job.condition(SCHEDULED)
        if here is not None and not remote.is_true(SCHEDULED):
            rows = [row for row in wanted.get("conditions") or () if row.get("type") != SCHEDULED]
            wanted["conditions"] = [*rows, {**here, "status": "False", "reason": _GATED} if _is_true(here) else here]
        return wanted if merge.difference(now, wanted) else None


def runs(pod: Stored) -> bool:
    """Whether the pod's status says that it runs, or has a node to run on."""
    phase = pod.status.get("phase")
    return phase not in _ENDED and (phase == "Running" or pod.is_true(SCHEDULED))


def idle(pod: Stored) -> Json | None:
    """The status of a pod that runs nowhere any more; None if it does not say that it runs, or if it has ended."""
    if not runs(pod):
        return None
    status = pod.status
    since = (pod.condition(SCHEDULED) or {}).get("lastTransitionTime")
    row = {"type": SCHEDULED, "status": "False", "reason": _GATED, "lastTransitionTime": since}
    row["message"] = "Scheduling is blocked due to non-empty scheduling gates"
    kept = {_FIXED: status[_FIXED]} if _FIXED in status else {}
    return {**kept, "phase": "Pending", "conditions": [row]}


def _is_true(row: Json) -> bool:
    return row.get("status") == "True"
