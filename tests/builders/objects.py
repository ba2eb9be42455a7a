"""Objects as an API server stores them: pods, nodes, and Workloads that are put together step by step."""

from __future__ import annotations

from typing import Any, Self

from tests.objects import NodeObject, PodObject, WorkloadObject

from gangline.api import names
from gangline.api.read import conditions

Json = dict[str, Any]
T = 1_700_000_000_000
#: the lowest level of a topology
HOST = "kubernetes.io/hostname"


def a_pod(
    name: str,
    node: str = "n1",
    *,
    workload: str = "w",
    ready: bool = True,
    phase: str = "Running",
    due: int = 0,
    created: int = T - 60_000,
    attempt: int = 0,
    **labels: str,
) -> PodObject:
    """`due`: when its grace period is over, in ms; 0: it is not being deleted."""
    meta: Json = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": conditions.timestamp(created),
        "labels": {"kueue.x-k8s.io/podset": "main", **labels},
        "annotations": {"kueue.x-k8s.io/workload": workload} if workload else {},
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    if attempt:
        meta["annotations"]["gangline.io/attempt"] = str(attempt)
    if due:
        meta["deletionTimestamp"] = conditions.timestamp(due)
    rows = [{"type": "Ready", "status": "True" if ready else "False"}]
    spec = {"nodeName": node} if node else {}
    return PodObject({"metadata": meta, "spec": spec, "status": {"phase": phase, "conditions": rows}})


def a_node(name: str, *, ready: str = "True", since: int = T - 600_000, taint: str = "", uid: str = "") -> NodeObject:
    row = {"type": "Ready", "status": ready, "lastTransitionTime": conditions.timestamp(since)}
    return NodeObject(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": f"{ready}{since}{taint}"},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]} if taint else {},
            "status": {"conditions": [row]},
        }
    )


def container(limits: Json | None = None, *, name: str = "main", **fields: Any) -> Json:
    """A container; `limits`: of its resources."""
    return {"name": name, **({"resources": {"limits": limits}} if limits is not None else {}), **fields}


def pod_set(
    *containers: Json, count: int = 1, name: str = "main", annotations: Json | None = None, **spec: Any
) -> Json:
    """A pod set of a Workload, whose pods have these containers; `spec`: what else the spec of its template has."""
    template: Json = {"spec": {"containers": list(containers), **spec}}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    return {"name": name, "count": count, "template": template}


def condition(kind: str, status: str = "True", reason: str = "", *, at: int = T, message: str = "") -> Json:
    """A row of `status.conditions`; without a reason it is that of the condition's own name."""
    row = {"type": kind, "status": status, "reason": reason or kind, "message": message}
    return {**row, "lastTransitionTime": conditions.timestamp(at)}


class Workload:
    """Makes a Workload: each method adds to it and returns it, and `made` is the object.

    `Workload("train").in_queue("main").pods(container({"cpu": "1"}), count=4).admitted("cq").made`
    """

    def __init__(self, name: str = "w", namespace: str = "team", **meta: Any) -> None:
        self._meta: Json = {"name": name, "namespace": namespace, "uid": name, **meta}
        self._spec: Json = {"podSets": []}
        self._status: Json = {}

    def in_queue(self, queue: str) -> Self:
        self._spec["queueName"] = queue
        return self

    def pods(self, *containers: Json, count: int = 1, name: str = "main", **more: Any) -> Self:
        """One more pod set: see `pod_set`."""
        return self.pod_sets(pod_set(*containers, count=count, name=name, **more))

    def pod_sets(self, *rows: Json) -> Self:
        self._spec["podSets"] = [*self._spec["podSets"], *rows]
        return self

    def owned_by(self, kind: str, name: str, api_version: str = "batch/v1", *, uid: str = "") -> Self:
        owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid or name, "controller": True}
        self._meta["ownerReferences"] = [owner]
        return self

    def annotations(self, given: Json) -> Self:
        self._meta["annotations"] = {**self._meta.get("annotations", {}), **given}
        return self

    def conditions(self, *rows: Json) -> Self:
        self._status["conditions"] = [*self._status.get("conditions", ()), *rows]
        return self

    def holds(self, queue: str, *assignments: Json) -> Self:
        """Its status names quota of this ClusterQueue; without `assignments` its pod sets are named and counted alone."""
        rows = assignments or [{"name": each["name"], "count": each["count"]} for each in self._spec["podSets"]]
        self._status["admission"] = {"clusterQueue": queue, "podSetAssignments": list(rows)}
        return self

    def reserves(self, queue: str, *assignments: Json, at: int = T) -> Self:
        """It holds quota, and a condition says so."""
        return self.holds(queue, *assignments).conditions(condition(names.QUOTA_RESERVED, at=at))

    def admitted(self, queue: str, *assignments: Json, at: int = T) -> Self:
        return self.reserves(queue, *assignments, at=at).conditions(condition(names.ADMITTED, at=at))

    def spec(self, **fields: Any) -> Self:
        self._spec |= fields
        return self

    def status(self, **fields: Any) -> Self:
        self._status |= fields
        return self

    @property
    def made(self) -> WorkloadObject:
        head = {"apiVersion": names.V1BETA2, "kind": "Workload", "metadata": self._meta, "spec": self._spec}
        return WorkloadObject({**head, "status": self._status})


def a_workload(
    *hosts: str, version: int = 1, unhealthy: tuple[str, ...] = (), owner: str = "", **spec: Any
) -> WorkloadObject:
    """The Workload of a gang that is admitted, with a pod on each of these hosts: ns/w in queue cq."""
    count = max(1, len(hosts))
    row: Json = {"name": "main", "count": count, "flavors": {"cpu": "tas"}, "resourceUsage": {"cpu": "1"}}
    if hosts:
        slices = [
            {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": 1}} for host in hosts
        ]
        row["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    made = Workload("w", "ns", uid="u", resourceVersion=str(version)).in_queue("lq")
    made.pods(container(resources={"requests": {"cpu": "1"}}), count=count, **spec).admitted("cq", row)
    if owner:
        made.owned_by("Job", owner)
    if unhealthy:
        made.status(unhealthyNodes=[{"name": host} for host in unhealthy])
    return made.made
