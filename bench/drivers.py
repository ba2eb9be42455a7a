"""Drivers of the load process, one per kind: what to create, how to read progress, and whether the load ends objects itself."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from bench import objects
from bench.parameters import WorkloadClass
from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.conditions import is_true
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource

Phase: TypeAlias = Literal["waiting", "running", "finished"]


class Driver(Protocol):
    resource: Resource
    #: the load process marks each object Finished when its runtime is over
    finishes: bool

    def build(self, kind: WorkloadClass, queue: str, number: int) -> Json: ...

    def phase(self, obj: Json) -> Phase: ...

    def release(self, obj: Json, now: int) -> Json | None:
        """The status patch that ends an eviction, if the load process has to do that (`now` in ms)."""
        ...


class Workloads:
    """Workload objects without jobs, as in Kueue's benchmark: nobody but the load process ends their evictions."""

    resource = kube.WORKLOADS
    finishes = True

    def build(self, kind: WorkloadClass, queue: str, number: int) -> Json:
        return objects.workload(kind, queue, number)

    def phase(self, obj: Json) -> Phase:
        rows = obj.get("status", {}).get("conditions", ())
        if is_true(rows, names.FINISHED):
            return "finished"
        return "running" if is_true(rows, names.ADMITTED) and not is_true(rows, names.EVICTED) else "waiting"

    def release(self, obj: Json, now: int) -> Json | None:
        rows = obj.get("status", {}).get("conditions", ())
        if not is_true(rows, names.EVICTED) or not is_true(rows, names.QUOTA_RESERVED):
            return None
        changed = [dict(row) for row in rows]
        conditions.put(changed, names.QUOTA_RESERVED, False, "Pending", "Evicted by the benchmark's load", now=now)
        return _patch(obj, {"conditions": changed, "admission": None})


class Jobs:
    """Real Jobs, which Kubernetes finishes; not `queued`: without any queue, Kubernetes' own floor."""

    resource = kube.JOBS
    finishes = False

    def __init__(self, *, queued: bool) -> None:
        self._queued = queued

    def build(self, kind: WorkloadClass, queue: str, number: int) -> Json:
        return objects.job(kind, queue, number, queued=self._queued)

    def phase(self, obj: Json) -> Phase:
        if is_true(obj.get("status", {}).get("conditions", ()), "Complete"):
            return "finished"
        return "waiting" if obj["spec"].get("suspend") else "running"

    def release(self, obj: Json, now: int) -> Json | None:
        return None


DRIVERS: dict[str, Driver] = {
    "workloads": Workloads(),
    "jobs": Jobs(queued=True),
    "bare-jobs": Jobs(queued=False),
}


def finished_patch(obj: Json, now: int) -> Json:
    """The status patch that marks this Workload Finished; refused where it has changed since (`now` in ms)."""
    rows = [dict(row) for row in obj["status"]["conditions"]]
    conditions.put(rows, names.FINISHED, True, "ByTest", "By the benchmark's load", now=now)
    return _patch(obj, {"conditions": rows})


def _patch(obj: Json, status: Json) -> Json:
    return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": status}
