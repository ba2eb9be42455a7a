"""What a record keeps of each object: only what decides when its workload runs. No names of images, no commands, no environment,
no annotations but those with runtime hints, no addresses of notifications. Pure functions on JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gangline.api import names, quantity
from gangline.api.read import conditions, parse, render
from gangline.jobs import BY_RESOURCE, podspec
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, Stored, WorkloadObject

#: of the format; a reader refuses a newer one
VERSION: Final = 1
#: kinds whose specification is kept as it is …
CONFIGURATION: Final = (
    kube.RESOURCE_FLAVORS,
    kube.TOPOLOGIES,
    kube.COHORTS,
    kube.CLUSTER_QUEUES,
    kube.LOCAL_QUEUES,
    kube.QUEUE_POLICIES,
    kube.RESERVATIONS,
    kube.QUOTA_PLANS,
)
#: … and all kinds of which a record speaks
RECORDED: Final = (*CONFIGURATION, kube.NODES, kube.WORKLOADS)
#: parts of a specification that are left out: where notifications go concerns nobody else
_LEFT_OUT: Final[Mapping[Resource, frozenset[str]]] = {kube.QUEUE_POLICIES: frozenset({"notify"})}
#: what of a pod template decides on which nodes its pods may run
_PLACES: Final = ("nodeSelector", "tolerations")
#: the taint that the node controller gives to a cordoned node
_CORDONED: Final = "node.kubernetes.io/unschedulable"
#: seconds; as short a declared interval would be no help
_LEAST: Final = 1.0


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the owner of a Workload says of it; seconds, None = nothing."""

    user: str = ""
    hint: float | None = None
    limit: float | None = None
    checkpoint: float | None = None


NOTHING: Final = JobFacts()


def job_facts(resource: Resource, job: JobObject) -> JobFacts:
    """The facts of a job of any kind that is queued here."""
    kind = BY_RESOURCE.get(resource)
    hints = None if kind is None else kind.runtime_hints(job)
    return JobFacts(
        user=job.user,
        hint=None if hints is None else hints.expected,
        limit=None if hints is None else hints.limit,
        checkpoint=_interval(job.annotations.get(names.CHECKPOINT_INTERVAL)),
    )


def entry(resource: Resource, obj: Stored, job: JobFacts = NOTHING) -> Json:
    """The object as it stands in a record, without its time. Raises ParseError for a Workload that cannot be read."""
    body: Json = {"put": resource.kind, "name": obj.key}
    if resource == kube.WORKLOADS:
        return body | _workload(WorkloadObject(obj), job)
    if resource == kube.NODES:
        return body | _node(obj)
    left_out = _LEFT_OUT.get(resource, frozenset())
    body["spec"] = {name: value for name, value in obj.spec.items() if name not in left_out}
    if obj.labels:
        body["labels"] = obj.labels
    return body


def _node(obj: Stored) -> Json:
    node = parse.node(obj)
    # a replay with other windows does not cordon the same nodes at the same time
    by_window = names.CORDONED_FOR in obj.annotations
    taints = (each for each in obj.spec.get("taints") or () if not by_window or each.get("key") != _CORDONED)
    return _present(
        labels=dict(node.labels),
        allocatable=render.resources(node.allocatable),
        taints=[_named(taint, "key", "value", "effect") for taint in taints],
        ready=node.ready,
        unschedulable=(node.unschedulable and not by_window) or None,
    )


def _workload(obj: WorkloadObject, job: JobFacts) -> Json:
    workload = parse.workload(obj)
    owner = obj.controller
    limits = [limit for limit in (job.limit, workload.max_execution_seconds) if limit]
    bodies = obj.pod_sets
    return _present(
        uid=workload.uid,
        created=workload.created,
        queue=workload.queue,
        priority=workload.priority + workload.boost,
        active=None if workload.active else False,
        user=job.user or obj.user,
        job=None if owner is None else {"kind": owner.get("kind", ""), "name": owner.get("name", "")},
        hint=job.hint or podspec.annotated(obj),
        limit=min(limits, default=None),
        checkpoint=workload.checkpoint_seconds or job.checkpoint,
        podSets=[
            _pod_set(body, pods.requests, pods.count) for body, pods in zip(bodies, workload.pod_sets, strict=True)
        ],
        reserved=workload.reserved_at or None,
        admitted=workload.admitted_at or None,
        clusterQueue=None if workload.admission is None else workload.admission.cluster_queue,
        assignments=[]
        if workload.admission is None
        else [
            {
                "name": each.name,
                "count": each.count,
                "flavors": dict(each.flavors),
                "usage": render.resources(each.usage),
            }
            for each in workload.admission.pod_sets
        ],
        evicted=_transition(obj, names.EVICTED),
        finished=_transition(obj, names.FINISHED),
        preemptions=workload.preemptions or None,
        requeues=(obj.status.get("requeueState") or {}).get("count"),
    )


def _pod_set(body: Json, requests: Mapping[str, int], count: int) -> Json:
    template = (body.get("template") or {}).get("spec") or {}
    affinity = (template.get("affinity") or {}).get("nodeAffinity")
    return _present(
        name=body.get("name", ""),
        count=count,
        minCount=body.get("minCount"),
        requests=render.resources(requests),
        topologyRequest=body.get("topologyRequest"),
        nodeAffinity=affinity,
        **{name: template.get(name) for name in _PLACES},
    )


def _transition(obj: Stored, kind: str) -> Json | None:
    """When a condition became true, and why; None if it is not true."""
    row = obj.true_condition(kind)
    if row is None:
        return None
    return {"at": conditions.millis_of(row.get("lastTransitionTime")), "reason": row.get("reason", "")}


def _interval(text: Any) -> float | None:
    try:
        seconds = quantity.parse_duration(text) if isinstance(text, str) else 0.0
    except quantity.QuantityError:
        return None
    return seconds if seconds >= _LEAST else None


def _named(obj: Json, *fields: str) -> Json:
    return {name: obj[name] for name in fields if obj.get(name) is not None}


def _present(**fields: Any) -> Json:
    """The fields without those that say nothing; zero and False say something."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {}, ())}
