"""Decides which running Deployments and StatefulSets can be adopted, and with which Workloads. Pure.

What serves is adopted while its controller is at rest: then its pods are all of one template, which `adopting` marks
without a roll-out. The controller of LeaderWorkerSets starts every group anew when a template changes, whatever the change: they
get their queues only where a roll-out is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gangline.api import names
from gangline.api.jobkinds import own
from gangline.api.jobkinds.declaration import at, mapping_at
from gangline.api.read.configuration import ManagedJobs
from gangline.api.read.reading import ParseError
from gangline.console.importing import pod_planning
from gangline.console.importing.adoptions import AdoptablePods, Adoption, NotAdoptableError, Parent, RollOut, Skipped
from gangline.console.importing.assigning import adoption
from gangline.console.importing.cluster_facts import ImportFacts
from gangline.console.importing.mapping import MappingRule, rule_for
from gangline.console.importing.planning import check_queue
from gangline.jobs import podspec
from gangline.jobs import serving as parents
from gangline.jobs.base import JobError
from gangline.jobs.pods.member import REVISION
from gangline.jobs.priorities import priority_of
from gangline.jobs.serving import BY_RESOURCE, ServingGroup
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import JobObject, PodObject

_DECLARATIONS: Final = {each.kind: each for each in own.SERVING_KINDS}


def plan(
    parent: Parent,
    rules: Sequence[MappingRule],
    facts: ImportFacts,
    labels: Mapping[str, str],
    managed: ManagedJobs,
    *,
    roll_out: bool = False,
) -> list[Adoption | RollOut | Skipped]:
    """Decide what is done with one object that serves and its pods. An object that no rule matches is left out. `roll_out`: its
    pods may start anew where they have to.
    """
    obj = parent.obj
    pod_class = str(mapping_at(obj, ("spec", "template", "spec")).get("priorityClassName") or "")
    rule = rule_for(rules, obj.labels, pod_class)
    if rule is None or obj.controller is not None or obj.deleting:
        return []
    if rule.skip:
        return [Skipped(parent, "a rule leaves it alone", fault=False)]
    try:
        if obj["kind"] == kube.LEADER_WORKER_SETS.kind:
            _check_kind(obj["kind"], managed)
            return [_of_leader_worker_set(parent, rule.queue, allowed=roll_out)]
        return list(_adoptions(parent, rule.queue, facts, labels, managed))
    except (JobError, ParseError, NotAdoptableError) as error:
        return [Skipped(parent, str(error))]


def _adoptions(
    parent: Parent, queue: str, facts: ImportFacts, labels: Mapping[str, str], managed: ManagedJobs
) -> Sequence[Adoption | Skipped]:
    """The adoptions of an object that serves: one for each pod of a Deployment, or one for a StatefulSet. Raises JobError,
    ParseError and NotAdoptableError.
    """
    obj = parent.obj
    kind, pods = obj["kind"], facts.pods.get(obj.uid, ())
    _check_kind(kind, managed)
    check_queue(obj, queue)
    interrupted = names.IMPORTING in obj.annotations
    if obj.queue_name and not interrupted and all(pod_planning.is_queued(pod, queue) for pod in pods):
        return [Skipped(parent, "it is in its queue already", fault=False)]
    if not pods and not interrupted:
        return [Skipped(parent, "it has no pods: it queues once it names a queue", fault=False)]
    if not interrupted and not is_marked(obj) and (why := _is_busy(obj, pods)):
        raise NotAdoptableError(f"{why}: it can be adopted once its controller is at rest")
    if kind == kube.DEPLOYMENTS.kind:
        waiting = [pod for pod in pods if not pod_planning.is_queued(pod, queue)]
        return [pod_planning.adopt(AdoptablePods((pod,), parent=obj), queue, facts, labels) for pod in waiting]
    return [_of_stateful_set(parent, queue, pods, facts, labels)]


def _check_kind(kind: str, managed: ManagedJobs) -> None:
    """Check that the configuration has objects of this kind queued. Raises NotAdoptableError."""
    if (framework := _DECLARATIONS[kind].framework) not in managed.pods_of:
        raise NotAdoptableError(
            f"a {kind} is queued only where integrations.frameworks lists {framework}: give the operator's configuration with "
            "--config"
        )


def _of_leader_worker_set(parent: Parent, queue: str, *, allowed: bool) -> RollOut | Skipped:
    """Decide what is done with a LeaderWorkerSet. Raises NotAdoptableError."""
    obj = parent.obj
    check_queue(obj, queue)
    if obj.queue_name and names.IMPORTING not in obj.annotations:
        return Skipped(parent, "it is in its queue already", fault=False)
    if at(obj, own.REPLICAS) == 0:
        return Skipped(parent, "it has no pods: it queues once it names a queue", fault=False)
    if not allowed:
        raise NotAdoptableError(
            "its controller starts every group anew when a pod template changes: with --roll-out it gets its queue, and its "
            "groups start anew as its rolloutStrategy says, each once it has quota"
        )
    return RollOut(parent, queue)


def is_marked(obj: Json) -> bool:
    """Whether the webhook has marked the object's pod template: pods that are made from now on wait."""
    templates = (mapping_at(obj, path) for path in (own.TEMPLATE, own.WORKER_TEMPLATE))
    return any(names.SUSPENDED_BY_PARENT in podspec.annotations_of(template) for template in templates)


def _is_busy(obj: JobObject, pods: Sequence[PodObject]) -> str:
    """The reason why the object is not at rest, "" if it is: all its pods are there, and of its present template."""
    status = mapping_at(obj, ("status",))
    if (status.get("observedGeneration") or 0) < obj.generation:
        return "it was changed just now"
    replicas = at(obj, own.REPLICAS)
    wanted = 1 if replicas is None else replicas
    if len(pods) != wanted or any(pod.deleting for pod in pods):
        return f"it has {len(pods)} pods, and {wanted} replicas"
    if obj["kind"] == kube.DEPLOYMENTS.kind:
        makers = {pod.controller_uid for pod in pods}
        rolling = len(makers) > 1 or (status.get("updatedReplicas") or 0) != wanted
    else:
        revisions = {pod.labels.get(REVISION) for pod in pods}
        rolling = revisions != {status.get("updateRevision")}
    return "it is rolling out" if rolling else ""


def _of_stateful_set(
    parent: Parent, queue: str, pods: Sequence[PodObject], facts: ImportFacts, labels: Mapping[str, str]
) -> Adoption:
    """One Workload for all replicas, as the operator makes it."""
    labelled = {**parent.obj.metadata, "labels": {**parent.obj.labels, names.QUEUE_NAME: queue}}
    obj = JobObject({**parent.obj, "metadata": labelled})
    kind = BY_RESOURCE[kube.STATEFUL_SETS]
    group = ServingGroup(kind.workload_name(obj, 0), kind.pod_sets(obj))
    priority, reference = priority_of(obj, group.pod_sets, facts.priority_class, facts.default_priority_class())
    body = parents.new_workload(kind, obj, group, priority=priority, priority_class_ref=reference)
    return adoption(parent, queue, body, lambda name, count: list(pods), facts, labels)
