"""Decides which running plain pods and pod groups can be adopted, and with which Workloads. Pure.

Each gets the Workload that the operator would have made for it when it was created.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import could_be_queued
from gangline.api.read.configuration import ManagedJobs
from gangline.api.read.reading import ParseError
from gangline.console.importing.adoptions import AdoptablePods, Adoption, NotAdoptableError, Skipped
from gangline.console.importing.assigning import adoption
from gangline.console.importing.cluster_facts import ImportFacts
from gangline.console.importing.mapping import MappingRule, rule_for
from gangline.console.importing.planning import check_queue
from gangline.jobs.base import JobError
from gangline.jobs.pods import composition, member
from gangline.jobs.pods import group as groups
from gangline.jobs.pods.group import PodGroup
from gangline.jobs.priorities import priority_of
from gangline.objects import JobObject, PodObject

#: owners whose pods are of the node, and never wait
_OF_NODES: Final = ("Node", "DaemonSet")


def plan(
    pods: Sequence[PodObject],
    rules: Sequence[MappingRule],
    facts: ImportFacts,
    labels: Mapping[str, str],
    managed: ManagedJobs,
) -> list[Adoption | Skipped]:
    """Decide what is done with the pods that no object of a queued kind has made. Pods that no rule matches are left out."""
    subjects: list[AdoptablePods] = []
    gangs: dict[tuple[str, str], list[PodObject]] = defaultdict(list)
    for pod in pods:
        if not _is_plain(pod, facts):
            continue
        if group := member.group_name(pod):
            gangs[pod.namespace, group].append(pod)
        else:
            subjects.append(AdoptablePods((pod,)))
    subjects += [AdoptablePods(tuple(found), group) for (_, group), found in gangs.items()]
    planned = (_planned(subject, rules, facts, labels, managed) for subject in subjects)
    return [found for found in planned if found is not None]


def _is_plain(pod: PodObject, facts: ImportFacts) -> bool:
    owner = pod.controller
    if owner is None:
        return names.SUSPENDED_BY_PARENT not in pod.annotations
    of_queued = could_be_queued(owner) or pod.uid in facts.of_others
    return not of_queued and owner["kind"] not in _OF_NODES


def _planned(
    subject: AdoptablePods,
    rules: Sequence[MappingRule],
    facts: ImportFacts,
    labels: Mapping[str, str],
    managed: ManagedJobs,
) -> Adoption | Skipped | None:
    found = [_rule(rules, pod) for pod in subject.pods]
    rule = found[0]
    if not any(found):
        return None
    try:
        if any(each != rule for each in found):
            raise NotAdoptableError("different rules match its pods")
        if rule is None or rule.skip:
            return Skipped(subject, "a rule leaves it alone", fault=False)
        if reason := _left_alone(subject):
            return Skipped(subject, reason, fault=False)
        if not managed.pods:
            raise NotAdoptableError(
                "pods are queued only where integrations.frameworks lists pod: give the operator's configuration with --config"
            )
        return adopt(subject, rule.queue, facts, labels)
    except (JobError, ParseError, NotAdoptableError) as error:
        return Skipped(subject, str(error))


def _rule(rules: Sequence[MappingRule], pod: PodObject) -> MappingRule | None:
    return rule_for(rules, pod.labels, str(pod.spec.get("priorityClassName") or ""))


def _left_alone(subject: AdoptablePods) -> str:
    """The reason why nothing has to be done with the pods, "" if something has."""
    if all(pod.deleting for pod in subject.pods):
        return "it is being deleted"
    if all(pod.has_ended for pod in subject.pods):
        return "it has finished"
    if all(member.is_managed(pod) for pod in subject.pods):
        return "it is in its queue already"
    return ""


def adopt(subject: AdoptablePods, queue: str, facts: ImportFacts, labels: Mapping[str, str]) -> Adoption:
    """The Workload of one pod or of one group. Raises JobError, ParseError and NotAdoptableError."""
    for pod in subject.pods:
        check_queue(pod, queue)
    group = _group(subject, queue)
    sets = composition.pod_sets(group)
    priority, reference = priority_of(
        group.leader.manifest(), sets, facts.priority_class, facts.default_priority_class()
    )
    body = composition.new_workload(group, sets, priority=priority, priority_class_ref=reference)
    body["metadata"]["annotations"].pop(names.IS_GROUP_WORKLOAD, None)  # the operator marks it when it has the pods
    kept = {pod.uid: groups.role_of(group, pod) for pod in group.pods}
    pods = [pod for pod in subject.pods if pod.uid in kept]

    def pods_of(name: str, count: int) -> list[PodObject]:
        return [pod for pod in pods if count == 1 or kept[pod.uid] == name]

    return adoption(AdoptablePods(tuple(pods), subject.group, subject.parent), queue, body, pods_of, facts, labels)


def _group(subject: AdoptablePods, queue: str) -> PodGroup:
    """The group of these pods as they are when they are queued. Raises JobError and NotAdoptableError."""
    alone = not subject.group
    if gone := sum(pod.deleting for pod in subject.pods):
        raise NotAdoptableError(f"{gone} of its pods are being deleted")
    members = [member.read(_queued(pod, queue, subject.parent)) for pod in subject.pods]
    name = members[0].name if alone else subject.group
    group = PodGroup.of(name, members, alone=alone)
    if alone:
        return group
    total, active = group.total, sum(pod.counts for pod in group.pods)
    if active != total:
        raise NotAdoptableError(f"{active} of its {total} pods are there: it can be adopted while all are")
    return PodGroup.of(name, groups.before_queueing(group).kept)


def _queued(pod: PodObject, queue: str, parent: JobObject | None) -> PodObject:
    """The pod without what it has only since it runs, and with what it gets from its owner."""
    above = parent.labels if parent is not None else {}
    copied = {key: above[key] for key in (names.PRIORITY_CLASS,) if key in above}
    left_out = ("nodeName", "schedulingGates")
    return PodObject(
        {
            **pod,
            "metadata": {**pod.metadata, "labels": {**pod.labels, **copied, names.QUEUE_NAME: queue}},
            "spec": {key: value for key, value in pod.spec.items() if key not in left_out},
        }
    )


def is_queued(pod: PodObject, queue: str) -> bool:
    """Whether the pod is managed, in this queue."""
    return member.is_managed(pod) and pod.queue_name == queue
