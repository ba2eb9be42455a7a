"""The objects of a load: queues, nodes, workloads and jobs, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterator

from bench.parameters import Load, Nodes, WorkloadClass
from gangline.api import names
from gangline.kube.resources import Json

FLAVOR = "default"
TOPOLOGY = "racks"
BLOCK = "cloud.provider.com/topology-block"
RACK = "cloud.provider.com/topology-rack"
HOSTNAME = "kubernetes.io/hostname"
GROUP_LABEL = "bench.gangline.io/nodes"
CLASS_LABEL = "bench.gangline.io/class"
LOCAL_QUEUE = "queue"
PRIORITY_CLASS = "bench-{}"


def setup(load: Load) -> Iterator[Json]:
    """The objects needed before the first workload, in the order of creation."""
    if load.topology:
        blocks = [BLOCK] if load.nodes is not None and load.nodes.blocks > 1 else []
        levels = [{"nodeLabel": label} for label in (*blocks, RACK, HOSTNAME)]
        yield _object("Topology", TOPOLOGY, {"levels": levels})
    placed = {"nodeLabels": {GROUP_LABEL: "bench"}, "topologyName": TOPOLOGY} if load.topology else {}
    yield _object("ResourceFlavor", FLAVOR, placed)
    for kind in load.classes:
        yield {
            "apiVersion": names.V1BETA2,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": PRIORITY_CLASS.format(kind.name)},
            "value": kind.priority,
        }
    for cohort, queue in load.queues:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": queue}}
        yield _cluster_queue(load, cohort, queue)
        yield _object("LocalQueue", LOCAL_QUEUE, {"clusterQueue": queue}, namespace=queue)


def _object(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": names.V1BETA2, "kind": kind, "metadata": metadata, "spec": spec}


def _cluster_queue(load: Load, cohort: str, name: str) -> Json:
    quota = {"name": "cpu", "nominalQuota": load.nominal_cpu, "borrowingLimit": load.borrowing_limit_cpu}
    flavors = [{"name": FLAVOR, "resources": [quota]}]
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    }
    return _object("ClusterQueue", name, spec)


def nodes(shape: Nodes) -> Iterator[Json]:
    """Ready nodes without heartbeats: for control planes without node controllers."""
    resources = {"cpu": str(shape.cpu), "memory": "1Ti", "pods": "110"}
    for rack in range(shape.racks):
        for number in range(shape.per_rack):
            name = f"node-{rack}-{number}"
            labels = {HOSTNAME: name, RACK: f"rack-{rack}", GROUP_LABEL: "bench"}
            if shape.blocks > 1:
                labels[BLOCK] = f"block-{rack * shape.blocks // shape.racks}"
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "status": {
                    "allocatable": resources,
                    "capacity": resources,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "Bench"}],
                },
            }


def workload(kind: WorkloadClass, queue: str, number: int) -> Json:
    """One Workload without a job."""
    pod_set: Json = {"name": "main", "count": kind.pods, "template": {"spec": _pod_spec(kind)}}
    if kind.topologies:
        pod_set["topologyRequest"] = _topology_request(kind, kind.topologies[number % len(kind.topologies)])
    return {
        "apiVersion": names.V1BETA2,
        "kind": "Workload",
        "metadata": {
            "name": f"{kind.name}-{number}",
            "namespace": queue,
            "labels": {CLASS_LABEL: kind.name},
        },
        "spec": {"active": True, "queueName": LOCAL_QUEUE, "priority": kind.priority, "podSets": [pod_set]},
    }


def _topology_request(kind: WorkloadClass, topology: str) -> Json:
    if topology == "balanced":
        return {
            "preferred": RACK,
            "podSetSliceRequiredTopology": HOSTNAME,
            "podSetSliceSize": max(1, kind.pods // 2),
        }
    return {topology: RACK}


def _pod_spec(kind: WorkloadClass) -> Json:
    resources = {"requests": {"cpu": str(kind.cpu)}}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "example.com/train", "resources": resources}],
    }


def job(kind: WorkloadClass, queue: str, number: int, *, queued: bool = True) -> Json:
    """One Job as a user writes it; not `queued`: for Kubernetes alone."""
    labels = {CLASS_LABEL: kind.name}
    if queued:
        labels |= {names.QUEUE_NAME: LOCAL_QUEUE, names.PRIORITY_CLASS: PRIORITY_CLASS.format(kind.name)}
    runtime = {names.SIMULATED_RUNTIME: f"{round(kind.runtime * 1000)}ms"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{kind.name}-{number}", "namespace": queue, "labels": labels},
        "spec": {
            "parallelism": kind.pods,
            "completions": kind.pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": runtime},
                "spec": {**_pod_spec(kind), "terminationGracePeriodSeconds": 1},
            },
        },
    }
