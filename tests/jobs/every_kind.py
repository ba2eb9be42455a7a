"""One gang of everything that can be queued, with its author's hints, and the Workload that is made for it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tests.cluster import declared, serving
from tests.control.test_plan import Lookups as JobLookups
from tests.control.test_pod_groups import Lookups
from tests.jobs import plain_pods
from tests.objects import JobObject, PodObject, Stored, WorkloadObject, as_stored

from gangline.api import admission, names
from gangline.api.admission import AdmissionFacts
from gangline.api.jobkinds.declaration import DESCRIPTION
from gangline.api.read.conditions import timestamp
from gangline.control.kinds import job_plan, serving_plan
from gangline.control.kinds.steps import CreateWorkload, JobView
from gangline.jobs import kind_of
from gangline.jobs.base import Children
from gangline.jobs.pods import composition
from gangline.jobs.serving import BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.resources import Resource

Json = dict[str, Any]
NAMESPACE = "ml"
HINTS = {
    names.EXPECTED_RUNTIME: "2h",
    names.CHECKPOINT_INTERVAL: "30m",
    names.HEARTBEAT: "1h",
    names.NOTIFY: "Stalled",
    names.NOTIFY_TO: "ada",
}
USER = "ada"
_KINDS = (*declared.ALL,)
NAMES = (*(case.name for case in _KINDS), "Pod", "PodGroup", "StatefulSet", "LeaderWorkerSet")


@dataclass
class Gang:
    #: what its author wrote; None: pods, which are queued themselves
    job: tuple[Resource, Stored] | None
    workload: WorkloadObject

    @property
    def key(self) -> str:
        return self.workload.key

    @property
    def pods(self) -> int:
        return sum(row["count"] for row in self.workload.pod_sets)

    @property
    def gpus(self) -> int:
        """As its templates say it."""
        return sum(row["count"] * _gpus(row["template"]["spec"]) for row in self.workload.pod_sets)

    def admitted(self, at: int) -> WorkloadObject:
        """Its Workload, with quota and ready since `at` seconds since the epoch."""
        rows = [
            {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": timestamp(at * 1000)}
            for kind in ("QuotaReserved", "Admitted", "PodsReady")
        ]
        assigned = [
            {"name": row["name"], "count": row["count"], "flavors": {"nvidia.com/gpu": "h100"}}
            | {"resourceUsage": {"nvidia.com/gpu": str(row["count"] * _gpus(row["template"]["spec"]))}}
            for row in self.workload.pod_sets
        ]
        admission = {"clusterQueue": "a", "podSetAssignments": assigned}
        return WorkloadObject({**copy.deepcopy(self.workload), "status": {"conditions": rows, "admission": admission}})


def _gpus(spec: Json) -> int:
    resources = [container.get("resources") or {} for container in spec["containers"]]
    return sum(
        int({**(each.get("limits") or {}), **(each.get("requests") or {})}.get("nvidia.com/gpu", 0))
        for each in resources
    )


def gang(name: str, queue: str = "a", *, created: int, **hints: str) -> Gang:
    """A gang of this kind in a LocalQueue of namespace ml, `hints` beside the usual ones (names without our prefix)."""
    notes = HINTS | {f"{names.OWN_GROUP}/{key}": value for key, value in hints.items()}
    head = {"labels": {names.QUEUE_NAME: queue, names.USER: USER}, "annotations": notes}
    found = _made(name, head)
    meta = found.workload["metadata"]
    meta |= {"uid": "workload", "creationTimestamp": timestamp(created * 1000), "resourceVersion": "1"}
    found.workload.setdefault("status", {})
    return found


def _made(name: str, head: Json) -> Gang:
    if name in ("Pod", "PodGroup"):
        return _of_pods(head, 1 if name == "Pod" else 3)
    if name in ("StatefulSet", "LeaderWorkerSet"):
        written = (
            serving.stateful_set("mine", "", 3)
            if name == "StatefulSet"
            else serving.leader_worker_set("mine", "", 1, 3)
        )
        obj = _stored(written, head)
        resource = kube.STATEFUL_SETS if name == "StatefulSet" else kube.LEADER_WORKER_SETS
        view = serving_plan.ParentView(kind=BY_RESOURCE[resource], parent=obj, workloads={}, pods=())
        [body] = [step.body for step in serving_plan.plan(view, Lookups()) if isinstance(step, CreateWorkload)]
        return Gang((resource, obj), WorkloadObject(body))
    [case] = [case for case in _KINDS if case.name == name]
    written = declared.job_of(case)
    obj = _stored(written, head)
    kind = kind_of(obj["apiVersion"], obj["kind"])
    assert kind is not None
    described = {} if case.description is None else {DESCRIPTION: declared.with_gpus(copy.deepcopy(case.description))}
    view = JobView(kind=kind, job=JobObject({**obj, **described}), workloads=[], children=Children())
    [body] = [step.body for step in job_plan.plan(view, JobLookups()) if isinstance(step, CreateWorkload)]
    return Gang((kind.declaration.resource, obj), WorkloadObject(body))


def _stored(written: Json, head: Json) -> Stored:
    meta = written["metadata"] | {"name": "mine", "namespace": NAMESPACE, "uid": "job", "resourceVersion": "1"} | head
    made = admission.default({**written, "metadata": meta}, None, AdmissionFacts()).obj
    made.setdefault("status", {})
    return as_stored(made)


def _of_pods(head: Json, count: int) -> Gang:
    pods: list[PodObject] = []
    for index in range(count):
        pod = plain_pods.a_pod(f"mine-{index}", group="mine" if count > 1 else "", total=count)
        pod["metadata"]["namespace"] = NAMESPACE
        for part in ("labels", "annotations"):
            pod["metadata"][part] |= head[part]
        pod["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": "1"}}
        pods.append(pod)
    group = plain_pods.group_of(*pods, alone=count == 1)
    body = composition.new_workload(group, composition.pod_sets(group), priority=0, priority_class_ref=None)
    return Gang(None, WorkloadObject(body))
