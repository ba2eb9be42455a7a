"""Decides for each job whether it can be adopted, and with which Workload. Pure.

A job is adopted as it runs: its Workload has the admission that the engine would have given it, with the flavors and the topology
domains of the nodes that its pods are on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gangline.api.admission.of_jobs.jobs import could_be_queued
from gangline.api.jobkinds.declaration import DESCRIPTION
from gangline.api.read.reading import ParseError
from gangline.console.importing.adoptions import AdoptableJob, Adoption, NotAdoptableError, Skipped
from gangline.console.importing.assigning import adoption
from gangline.console.importing.cluster_facts import ImportFacts
from gangline.console.importing.mapping import MappingRule, rule_for
from gangline.jobs import workload as workloads
from gangline.jobs.base import JobError
from gangline.jobs.priorities import priority_of
from gangline.kube.resources import Json
from gangline.objects import JobObject, PodObject


def plan(
    job: AdoptableJob, rules: Sequence[MappingRule], facts: ImportFacts, labels: Mapping[str, str]
) -> Adoption | Skipped:
    """Decide what is done with one job. `labels` are added to its Workload."""
    try:
        job = _described(job, facts)
        if reason := _left_alone(job):
            return Skipped(job, reason, fault=False)
        pod_sets = job.kind.pod_sets(job.obj)
        rule = rule_for(rules, job.obj.labels, _priority_class(pod_sets))
        if rule is None:
            raise NotAdoptableError("no rule matches it")
        if rule.skip:
            return Skipped(job, "a rule leaves it alone", fault=False)
        if job.obj.queue_name == rule.queue:
            return Skipped(job, "it is in its queue already", fault=False)
        return _adoption(job, rule.queue, pod_sets, facts, labels)
    except (JobError, ParseError, NotAdoptableError) as error:
        return Skipped(job, str(error))


def _described(job: AdoptableJob, facts: ImportFacts) -> AdoptableJob:
    """The job with the object that describes its pods, where that is another one."""
    reference = job.kind.declaration.described_by(job.obj)
    found = facts.find(*reference) if reference is not None else None
    return job if found is None else replace(job, obj=JobObject({**job.obj, DESCRIPTION: found}))


def _left_alone(job: AdoptableJob) -> str:
    """The reason why nothing has to be done with the job, "" if something has."""
    owner = job.obj.controller
    if owner is not None and could_be_queued(owner):
        return f"it belongs to {owner['kind']} {owner['name']}"
    if job.obj.deleting:
        return "it is being deleted"
    if job.kind.finished(job.obj) is not None:
        return "it has finished"
    if why := job.kind.declaration.left_alone(job.obj):
        return f"it is not queued: {why}"
    if job.kind.is_suspended(job.obj):
        return "it is suspended: it queues like any job once it names a queue"
    return ""


def _priority_class(pod_sets: Sequence[Json]) -> str:
    found = ((pod_set["template"].get("spec") or {}).get("priorityClassName") for pod_set in pod_sets)
    return next((name for name in found if name), "")


def _adoption(
    job: AdoptableJob, queue: str, pod_sets: Sequence[Json], facts: ImportFacts, labels: Mapping[str, str]
) -> Adoption:
    check_queue(job.obj, queue)
    priority, reference = priority_of(job.obj, pod_sets, facts.priority_class, facts.default_priority_class())
    body = workloads.build(job.kind, job.obj, pod_sets, queue=queue, priority=priority, priority_class_ref=reference)
    pods = facts.pods.get(job.obj.uid, ())
    return adoption(job, queue, body, lambda name, count: _pods_of(name, pods, job, count), facts, labels)


def check_queue(obj: JobObject, queue: str) -> None:
    """Check that the object names no other queue. Raises NotAdoptableError if it does."""
    if obj.queue_name and obj.queue_name != queue:
        raise NotAdoptableError(f'it names queue "{obj.queue_name}", and the rules say "{queue}"')


def _pods_of(pod_set: str, pods: Sequence[PodObject], job: AdoptableJob, pod_sets: int) -> list[PodObject]:
    """The pods of one pod set of a job. Those of which nothing says their pod set may be of any."""
    if pod_sets == 1:
        return list(pods)
    pod_set_of = job.kind.declaration.pod_set_of
    return [pod for pod in pods if pod_set_of(pod.labels) in (pod_set, "")]
