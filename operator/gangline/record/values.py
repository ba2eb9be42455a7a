"""Bodies of a record as the engine's values. The readers of the API do the work, so that every limit of theirs holds here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from gangline.api.quota_plans import quota_plan
from gangline.api.read import parse, policy_reader
from gangline.api.read.reading import ParseError, child, items, labels, number, text
from gangline.api.reservations import reservation
from gangline.api.spec_fields import SpecError
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json

#: pods of one pod set: a cluster of a million pods is beyond Kubernetes
MOST_PODS: Final = 1_000_000
#: pod sets of one Workload; Kueue has at most 8
MOST_POD_SETS: Final = 64


def _object(name: str, body: Json) -> Json:
    namespace, _, last = name.rpartition("/")
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": last, **where, "labels": body.get("labels")}, "spec": body.get("spec")}


def node(name: str, body: Json) -> model.Node:
    """A node. One that is not ready, or cordoned, takes nobody."""
    ready = body.get("ready", False)
    if not isinstance(ready, bool):
        raise ParseError("ready", "is neither true nor false")
    return parse.node(
        {
            "metadata": {"name": name, "labels": body.get("labels")},
            "spec": {"taints": body.get("taints"), "unschedulable": body.get("unschedulable", False)},
            "status": {
                "allocatable": body.get("allocatable"),
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        }
    )


def policy(name: str, body: Json) -> Json:
    """A QueuePolicy as JSON; every part of it that a replay plays can be read."""
    found = _object(name, body)
    policy_reader.with_policy(model.ClusterQueue(""), found)
    return found


def _checked(reader: Callable[[Json], Any]) -> Callable[[str, Json], Json]:
    """An object as JSON, all of which can be read."""

    def checked(name: str, body: Json) -> Json:
        found = _object(name, body)
        try:
            reader(found)
        except SpecError as error:
            raise ParseError(error.path, error.message) from None
        return found

    return checked


_READERS: Final[Mapping[str, Callable[[str, Json], Any]]] = {
    kube.RESOURCE_FLAVORS.kind: lambda name, body: parse.flavor(_object(name, body)),
    kube.TOPOLOGIES.kind: lambda name, body: parse.topology(_object(name, body)),
    kube.COHORTS.kind: lambda name, body: parse.cohort(_object(name, body)),
    kube.CLUSTER_QUEUES.kind: lambda name, body: parse.cluster_queue(_object(name, body)),
    kube.LOCAL_QUEUES.kind: lambda name, body: parse.local_queue(_object(name, body)),
    kube.QUEUE_POLICIES.kind: policy,
    kube.NODES.kind: node,
    kube.RESERVATIONS.kind: _checked(reservation),
    kube.QUOTA_PLANS.kind: _checked(quota_plan),
}
#: all kinds of a record but Workloads
KINDS: Final = tuple(_READERS)


def value(kind: str, name: str, body: Json) -> Any:
    """The engine's value of an object; QueuePolicies, Reservations and QuotaPlans stay JSON. Raises ParseError."""
    return _READERS[kind](name, body)


def check(kind: str, name: str, body: Json) -> None:
    """Check that an object can be read. Raises ParseError naming the field."""
    value(kind, name, body)


def pod_sets(body: Json) -> tuple[model.PodSet, ...]:
    """The pod sets of a Workload. Requests are those by which it was admitted, if it ever was. Raises ParseError."""
    rows = items(body, "podSets", "")
    if not 0 < len(rows) <= MOST_POD_SETS:
        raise ParseError("podSets", f"must be 1 to {MOST_POD_SETS} pod sets")
    found = parse.workload(
        {"metadata": {"namespace": "record", "name": "record"}, "spec": {"podSets": [*map(_template, rows)]}}
    )
    granted = {
        text(row, "name", f"assignments[{i}]"): _granted(row, f"assignments[{i}]")
        for i, row in enumerate(items(body, "assignments", ""))
    }
    for i, pods in enumerate(found.pod_sets):
        if pods.count > MOST_PODS:
            raise ParseError(f"podSets[{i}].count", f"is above {MOST_PODS}")
    return tuple(replace(pods, requests={**pods.requests, **granted.get(pods.name, {})}) for pods in found.pod_sets)


def _template(row: Json) -> Json:
    affinity = row.get("nodeAffinity")
    spec = {
        "containers": [{"name": "main", "resources": {"requests": row.get("requests")}}],
        "nodeSelector": row.get("nodeSelector"),
        "tolerations": row.get("tolerations"),
        "affinity": None if affinity is None else {"nodeAffinity": affinity},
    }
    pod_set = {name: row[name] for name in ("name", "count", "minCount", "topologyRequest") if name in row}
    return pod_set | {"template": {"spec": {name: each for name, each in spec.items() if each is not None}}}


def _granted(row: Json, path: str) -> dict[str, int]:
    """What each pod counted for; what was divided among them unevenly is rounded up."""
    held = parse.admission({"clusterQueue": "record", "podSetAssignments": [_assignment(row)]}, path=path)
    (each,) = held.pod_sets
    return {name: -(-size // each.count) for name, size in each.usage.items() if name != "pods"} if each.count else {}


def _assignment(row: Json) -> Json:
    names = {"count": "count", "name": "name", "flavors": "flavors", "usage": "resourceUsage"}
    return {theirs: row[ours] for ours, theirs in names.items() if ours in row}


def flavors(body: Json) -> dict[str, str]:
    """Resource -> flavor of a Workload's last admission."""
    found: dict[str, str] = {}
    for i, row in enumerate(items(body, "assignments", "")):
        found |= labels(row, "flavors", f"assignments[{i}]")
    return found


def priority(body: Json) -> int:
    return number(body, "priority", "")


def seconds(body: Json, field: str) -> float | None:
    """A span of more than nothing and at most ten years. Raises ParseError."""
    found = body.get(field)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 315_360_000:
        raise ParseError(field, "is no number of seconds above 0 and at most ten years")
    return float(found)


def owner(body: Json) -> str:
    """The name of the Workload's job."""
    return text(child(body, "job", ""), "name", "job")
