"""The operator's loop in this process, with one stored object of a tenant: what it does with it, from the watch event on."""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import orjson
from tests.jobs import every_kind

from gangline import jobs
from gangline.api import names
from gangline.control.controller import Controller
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.writes.writer import Writer
from gangline.engine import IsolatedEngine
from gangline.kube import resources as kube
from gangline.kube.reflector import Synced, Upsert
from gangline.kube.resources import Resource

Json: TypeAlias = dict[str, Any]

NAMESPACE, QUEUE = every_kind.NAMESPACE, "a"
#: nodes of the flavor, each with labels of its own and a taint: a job's terms and tolerations are held against all of them
NODES = 100
#: what a pod says of nodes: any term matches, and one of the tolerations
ON_NODES: Json = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["f"]}]}]
            }
        }
    },
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
}
#: rounds of the loop after the event: a Workload is planned, then its write is refused or answered
ROUNDS = 3


class Tape:
    """In place of the event recorder."""

    def record(self, *args: Any, **named: Any) -> None:
        pass


async def _leader() -> Controller:
    """A leader with one ClusterQueue, whose writes never leave."""
    engine = IsolatedEngine()
    controller = Controller(None, Writer(None, gate=lambda: False), engine, Tape(), Metrics())  # type: ignore[arg-type]
    rows = [{"name": name, "nominalQuota": "64"} for name in ("cpu", "memory", "nvidia.com/gpu")]
    groups = [{"coveredResources": [row["name"] for row in rows], "flavors": [{"name": "f", "resources": rows}]}]
    labels = {"nodeLabels": {"pool": "f"}}
    for resource, name, spec in (
        (kube.NAMESPACES, NAMESPACE, {}),
        (kube.RESOURCE_FLAVORS, "f", labels),
        (kube.CLUSTER_QUEUES, "cq", {"namespaceSelector": {}, "resourceGroups": groups}),
        (kube.LOCAL_QUEUES, QUEUE, {"clusterQueue": "cq"}),
    ):
        controller.sink(resource)(Upsert(_whole(resource, name, spec)))
    for number in range(NODES):
        controller.sink(kube.NODES)(Upsert(_node(number)))
    controller.sink(kube.PODS)(Synced())
    controller.absorb()
    controller.lead()
    controller.act()
    return controller


def _node(number: int) -> Json:
    node = _whole(kube.NODES, f"n{number}", {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]})
    node["metadata"]["labels"] = {"pool": "f", "kubernetes.io/hostname": f"n{number}", "rack": f"{number // 10}"}
    amounts = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
    node["status"] = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return node


def _whole(resource: Resource, name: str, spec: Json) -> Json:
    meta: Json = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    if resource.namespaced:
        meta["namespace"] = NAMESPACE
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


def stored() -> Iterator[tuple[str, Json]]:
    """What a tenant may store: a job of each kind, a Workload, a pod, a LocalQueue. By a name that tells kinds apart."""
    workload: Json = {}
    for name in every_kind.NAMES:
        made = every_kind.gang(name, QUEUE, created=1_700_000_000)
        workload = workload or made.workload
        if made.job is not None:
            yield name, _stored(made.job[0], made.job[1])
    workload = {**copy.deepcopy(workload), "metadata": {**workload["metadata"], "ownerReferences": []}}
    for pod_set in workload["spec"]["podSets"]:
        pod_set["template"]["spec"] |= ON_NODES
    yield "Workload", _stored(kube.WORKLOADS, workload)
    for resource, name, spec in (
        (kube.PODS, "pod", {"containers": [{"name": "c", "image": "i"}]}),
        (kube.LOCAL_QUEUES, "mine", {"clusterQueue": "cq"}),
    ):
        obj = _whole(resource, name, spec)
        obj["metadata"] |= {"labels": {names.QUEUE_NAME: QUEUE}, "annotations": {names.EXPECTED_RUNTIME: "1h"}}
        yield resource.kind, obj


def _stored(resource: Resource, obj: Json) -> Json:
    obj = copy.deepcopy(obj)
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    meta = {"uid": "uid-tenants", "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-01-31T12:00:00Z"}
    obj["metadata"] = {**meta, **obj["metadata"]}
    return obj


def shown(obj: Json) -> Callable[[], Controller]:
    """Work of a new leader to which this object comes. Returns it, which then keeps the object."""
    data, resource = orjson.dumps(obj), _resource_of(obj)
    controller = _loop().run_until_complete(_leader())

    async def rounds() -> None:
        controller.sink(resource)(Upsert(orjson.loads(data)))
        for _ in range(ROUNDS):
            controller.absorb()
            controller.act()

    def work() -> Controller:
        _loop().run_until_complete(rounds())
        return controller

    return work


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _resource_of(obj: Json) -> Resource:
    kind = jobs.kind_of(obj["apiVersion"], obj["kind"])
    return kind.declaration.resource if kind is not None else kube.BY_KIND[obj["kind"]]
