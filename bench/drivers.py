"""How the load process deals with one kind: what it creates, how it reads progress, whether it has to end things itself."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from bench import objects
from bench.parameters import WorkloadClass
from gangline.api import names
from gangline.control import conditions
from gangline.kube import resources as kube
from gangline.kube.resources import Resource

Json: TypeAlias = dict[str, Any]
Phase: TypeAlias = Literal["waiting", "running", "finished"]


class Driver(Protocol):
    resource: Resource
    #: the load process marks each object Finished when its runtime is over
    finishes: bool

    def build(self, kind: WorkloadClass, queue: str, number: int) -> Json: ...

    def phase(self, obj: Json) -> Phase: ...


class Workloads:
    """Workload objects without jobs, as Kueue's benchmark has them."""

    resource = kube.WORKLOADS
    finishes = True

    def build(self, kind: WorkloadClass, queue: str, number: int) -> Json:
        return objects.workload(kind, queue, number)

    def phase(self, obj: Json) -> Phase:
        rows = obj.get("status", {}).get("conditions", ())
        if _true(rows, names.FINISHED):
            return "finished"
        return "running" if _true(rows, names.ADMITTED) and not _true(rows, names.EVICTED) else "waiting"


class Jobs:
    """Real Jobs, which Kubernetes finishes; not `queued`: without any queue, the floor that Kubernetes itself sets."""

    resource = kube.JOBS
    finishes = False

    def __init__(self, *, queued: bool) -> None:
        self._queued = queued

    def build(self, kind: WorkloadClass, queue: str, number: int) -> Json:
        return objects.job(kind, queue, number, queued=self._queued)

    def phase(self, obj: Json) -> Phase:
        if _true(obj.get("status", {}).get("conditions", ()), "Complete"):
            return "finished"
        return "waiting" if obj["spec"].get("suspend") else "running"


DRIVERS: dict[str, Driver] = {
    "workloads": Workloads(),
    "jobs": Jobs(queued=True),
    "bare-jobs": Jobs(queued=False),
}


def finished_patch(obj: Json, now: int) -> Json:
    """The status patch that marks this Workload Finished; refused where it has changed since (`now` in ms)."""
    rows = [dict(row) for row in obj["status"]["conditions"]]
    conditions.put(rows, names.FINISHED, True, "ByTest", "By the benchmark's load", now=now)
    return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": {"conditions": rows}}


def _true(rows: Any, kind: str) -> bool:
    return any(row["type"] == kind and row["status"] == "True" for row in rows)
