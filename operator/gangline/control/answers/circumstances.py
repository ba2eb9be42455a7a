"""Completes the view of a job's state: limits of its quota, expected ends of others, room on nodes, and what its job says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gangline.api.admission.of_jobs.job_warnings import runtime_hint_fault
from gangline.control.answers.ahead.times import expected_end
from gangline.control.answers.nodes import machines
from gangline.control.answers.nodes.room import FOR_NODES, NO_ROOM, JobRoom, UnscheduledLimit
from gangline.control.answers.nodes.room import unscheduled as unscheduled_pods
from gangline.control.answers.sight import Asker, Sight
from gangline.control.answers.source import Source
from gangline.control.answers.workloads.reasons import parse
from gangline.control.answers.workloads.snapshot import JobState, WorkloadView
from gangline.control.answers.workloads.unqueued import WAITS
from gangline.control.answers.workloads.words import Line, age
from gangline.control.feed.mirror import Mirror
from gangline.control.writes.events import Warned
from gangline.engine import ARRAY_LIMIT, FOR_OTHER_JOBS, NEVER_SATISFIED, NOT_TRIED, QuotaLimits
from gangline.engine.model import Workload
from gangline.kube import resources as kube
from gangline.objects import JobObject

#: holders of which the expected end is computed, of one answer
MOST_ENDS: Final = 50
#: reasons that the engine explains better than the condition does, which changes only with the reason; "" = there is no condition
_EXPLAINED_BY_ENGINE: Final = frozenset(
    {"", "PendingEvaluation", "WaitingForCapacity", ARRAY_LIMIT, FOR_OTHER_JOBS, NEVER_SATISFIED}
)


def limits(source: Source, queue: str, view: WorkloadView, sight: Sight) -> dict[tuple[str, str], QuotaLimits]:
    """The limits that keep the workload's ClusterQueue from more of what the workload lacks, by flavor and resource."""
    found: dict[tuple[str, str], QuotaLimits] = {}
    for o in parse(view.message).obstacles:
        known = source.engine.quota_limits(queue, o.flavor, o.resource) if o.kind == "short" else None
        if known is not None:
            named = (
                replace(each, owner=each.owner if each.cohort else sight.queue_name(each.owner))
                for each in known.binding
            )
            found[o.flavor, o.resource] = replace(known, binding=tuple(named))
    return found


def with_ends(source: Source, views: Sequence[WorkloadView]) -> list[WorkloadView]:
    """The views, of which the largest that hold quota get their expected ends (`MOST_ENDS` at most)."""
    largest = sorted((view for view in views if view.held), key=lambda view: -view.gpus)[:MOST_ENDS]
    ends = {view.key: end for view in largest if (end := expected_end(source, view.key)) is not None}
    return [
        replace(view, end=ends[view.key][0], latest_end=ends[view.key][1]) if view.key in ends else view
        for view in views
    ]


def as_the_engine_says(
    source: Source, sight: Sight, view: WorkloadView, jobs: Mapping[str, str]
) -> tuple[WorkloadView, str]:
    """The view with the engine's reason, and what has to happen before the workload starts, where the workload's condition does
    not say so: it is behind the head of a StrictFIFO queue, or waits for nodes, for other jobs or for others of its array.
    "" = its condition says it.
    """
    if view.hidden or view.state is not JobState.PENDING or view.reason not in _EXPLAINED_BY_ENGINE:
        return view, ""
    explanation = source.engine.explain(view.key)
    if explanation is None or explanation.message == NOT_TRIED:
        return view, ""
    if explanation.reason not in (view.reason or "PendingEvaluation", FOR_OTHER_JOBS, NEVER_SATISFIED):
        return view, ""
    return replace(view, reason=explanation.reason, message=sight.text(explanation.message, jobs)), sight.text(
        explanation.needs, jobs
    )


def awaited_ends(source: Source, view: WorkloadView, jobs: Mapping[str, str]) -> Iterator[Line]:
    """When the jobs are expected to end that the workload waits for, as far as they run."""
    known = source.engine.dependencies_of(view.key)
    now = source.now() / 1000
    for each in known.awaited if known is not None else ():
        end = None if each.runs else expected_end(source, each.workload)
        if end is not None:
            first, last = (age(at - now) for at in end)
            span = first if first == last else f"{first} – {last}"
            yield Line("after", f"{jobs.get(each.workload, each.workload)}, which is expected to end in {span}")


async def room(source: Source, asker: Asker, view: WorkloadView, queue: str, names: Mapping[str, str]) -> JobRoom:
    """Room on nodes, if that is what the job waits for."""
    pods = source.pods
    if pods is None:
        return NO_ROOM
    own = pods.of(view.key)
    waits = unscheduled_pods(own) if view.state in (JobState.STARTING, JobState.RUNNING) else ()
    if not waits and not (view.state is JobState.PENDING and view.reason in FOR_NODES):
        return NO_ROOM
    flavors = view.flavors or flavors_of(source.mirror, {queue})
    found = machines.machines(source.mirror, source.engine, pods, names, flavors, source.cards)
    sight = await asker.sight({view.namespace, *machines.namespaces_of(found)}, ())
    alive = sum(1 for pod in own if pod.alive)
    value = source.mirror.workload_value(view.key)
    shares = dict.fromkeys(share for each in (value.pod_sets if value is not None else ()) for share in each.shares)
    seen = tuple(machines.seen_by(sight, found))
    return JobRoom(tuple(flavors), seen, waits, alive, tuple(shares), _unscheduled_limit(source, view.key, value))


def _unscheduled_limit(source: Source, key: str, value: Workload | None) -> UnscheduledLimit | None:
    """When the job is requeued because of its unscheduled pods; None = it is not."""
    until = source.engine.scheduled_by(key)
    if until is None or value is None or value.unscheduled is None:
        return None
    return UnscheduledLimit(value.unscheduled.since / 1000, until / 1000, value.unscheduled.by_job)


def flavors_of(mirror: Mirror, queues: Collection[str]) -> tuple[str, ...]:
    """The flavors of these ClusterQueues, in their order."""
    known = (mirror.get(kube.CLUSTER_QUEUES, name) for name in sorted(queues))
    groups = (group for each in known if each is not None for group in each.spec.get("resourceGroups") or ())
    return tuple(dict.fromkeys(flavor["name"] for group in groups for flavor in group.get("flavors") or ()))


#: warnings of events that an answer repeats about one job
MOST_WARNINGS: Final = 3


def with_warnings(view: WorkloadView, warned: Mapping[str, Sequence[Warned]], now: float) -> WorkloadView:
    """The view with the latest Warning events about the job and its Workload since the workload's state began."""
    about = [each for uid in {view.job_uid, view.uid} - {""} for each in warned.get(uid, ())]
    since = [each for each in about if each.at >= view.since and each.note not in view.message]
    if not since:
        return view
    newest = sorted(since, key=lambda each: -each.at)[:MOST_WARNINGS]
    texts = [f"{each.reason}, {age(now - each.at)} ago: {each.note}" for each in newest]
    if view.reason == WAITS:  # what else keeps its Workload from being created is not known
        view = replace(view, reason=newest[0].reason, message=newest[0].note)
        texts = texts[1:]
    obstacle = view.obstacle or (texts[0] if texts and view.state is JobState.STARTING else "")
    return replace(view, warnings=(*view.warnings, *texts), obstacle=obstacle)


def with_job(view: WorkloadView, job: JobObject) -> WorkloadView:
    """The view with facts that only the job has: its user, and a warning about wrong runtime hints."""
    fault, user = runtime_hint_fault(job), job.user or view.user
    if not fault and user == view.user:
        return view
    return replace(view, warnings=(*view.warnings, fault) if fault else view.warnings, user=user)
