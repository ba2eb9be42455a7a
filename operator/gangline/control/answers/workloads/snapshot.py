"""Snapshots of workloads and queues as plain values, read from the cluster's JSON: what all answers are made of.

Pure functions only. Inputs are Workloads, ClusterQueues and LocalQueues as the API server serves them in v1beta2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from gangline.api import names, quantity
from gangline.api.phases import CONVERGED, WATCHING
from gangline.api.read import conditions
from gangline.control.answers.workloads import planned_quota
from gangline.control.answers.workloads.reasons import parse, preemption
from gangline.engine.model import accelerators
from gangline.kube.resources import Json
from gangline.objects import LocalQueueObject, Stored, WorkloadObject

if TYPE_CHECKING:
    from gangline.engine import QuotaLimits

Amounts: TypeAlias = Mapping[str, int]

EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"


class JobState(StrEnum):
    PENDING = "Pending"
    RESERVED = "Reserved"  # holds quota, waits for its admission checks
    STARTING = "Starting"  # admitted, its pods are not all ready yet
    RUNNING = "Running"
    STOPPING = "Stopping"  # evicted, its pods still exist
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INACTIVE = "Inactive"  # spec.active=false: it will not be admitted
    NOT_QUEUED = "Not queued"  # Gangline holds the job, and cannot queue it as it is
    NOT_MANAGED = "Not managed"  # Gangline leaves it alone: it takes no quota


#: reason of a job that its author holds
HELD = "Held"
HOLDING = frozenset({JobState.RESERVED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
FINISHED = frozenset({JobState.SUCCEEDED, JobState.FAILED})
#: of jobs without a Workload
OUTSIDE = frozenset({JobState.NOT_QUEUED, JobState.NOT_MANAGED})


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One Workload and its job. Times are seconds since the epoch."""

    namespace: str
    name: str
    uid: str
    job_kind: str
    job_name: str
    job_uid: str
    queue: str
    cluster_queue: str  # "" when its LocalQueue does not exist
    priority: int
    pods: int
    amounts: Amounts  # total request, or total usage once admitted
    flavors: tuple[str, ...]
    held: Mapping[tuple[str, str], int]  # (flavor, resource) -> amount
    created: float
    since: float  # when its state began
    state: JobState
    reason: str
    message: str
    evicted: str = ""  # cause of its eviction while it is stopping or pending again
    position: int | None = None  # 0-based among the pending of its ClusterQueue
    warnings: tuple[str, ...] = ()  # messages of overruns and stalls
    obstacle: str = ""  # what keeps it from running though it is admitted: one of the warnings
    end: float | None = None  # p50 and p90 of its expected end, if it runs and has a forecast
    latest_end: float | None = None
    too_wide: str = ""  # why one of its pods fits on no node of its queue's flavors
    spared: float = 0.0  # the fraction of its pods without which it may start (partial admission)
    user: str = ""  # label gangline.io/user of its job
    unscheduled: int = 0  # pods that the scheduler has placed nowhere, while it holds quota
    phase: str = ""  # of its training, in words, where it is not progressing
    hidden: bool = False  # reduced to size and times for this asker; its names are a label (`sight`)

    @property
    def gpus(self) -> int:
        return accelerators(self.amounts)

    @property
    def never_fits(self) -> bool:
        """Whether the request exceeds what its queue could ever provide, even with everything idle."""
        if self.state is not JobState.PENDING:
            return False
        return bool(self.too_wide) or (self.reason == EXCEEDS_MAX_QUOTA and not self.may_shrink)

    @property
    def may_shrink(self) -> bool:
        """Whether the workload fits with fewer pods, though not with all of them."""
        sizes = [o for o in parse(self.message).obstacles if o.kind == "too-big"] if self.spared else []
        return any(o.requested * (1 - self.spared) <= o.amount for o in sizes)

    @property
    def job(self) -> str:
        return self.job_name if self.hidden else f"{self.job_kind.lower()}/{self.job_name}"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class FlavorView:
    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int
    borrowing_limit: int | None
    lending_limit: int | None


@dataclass(frozen=True, slots=True)
class QueueView:
    """One ClusterQueue."""

    name: str
    cohort: str
    strategy: str
    flavors: tuple[FlavorView, ...]
    pending: int
    admitted: int
    active: bool
    reason: str  # of its Active condition
    message: str
    reclaim: str = "Never"  # reclaimWithinCohort
    plan: str = ""  # which QuotaPlan gives it its present quotas, in words

    def flavor(self, flavor: str, resource: str) -> FlavorView | None:
        return next((f for f in self.flavors if f.flavor == flavor and f.resource == resource), None)


@dataclass(frozen=True, slots=True)
class AnswerSnapshot:
    """The known workloads and queues: all of them, or those that one answer needs."""

    workloads: tuple[WorkloadView, ...]
    queues: tuple[QueueView, ...]
    #: ClusterQueue -> number of workloads that wait in it
    waiting: Mapping[str, int] = field(default_factory=dict[str, int])
    #: False: made with the rights of a user who may not read every workload and queue, so nothing follows from what it lacks
    complete: bool = True
    #: (flavor, resource) -> what keeps the workload's ClusterQueue from more of it
    limits: Mapping[tuple[str, str], QuotaLimits] = field(default_factory=dict[tuple[str, str], "QuotaLimits"])
    #: what has to happen before the workload in question starts, where only the engine knows it
    needs: str = ""
    #: (namespace, LocalQueue) -> its ClusterQueue
    routes: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def queue(self, name: str) -> QueueView | None:
        return next((queue for queue in self.queues if queue.name == name), None)

    def cohort_of(self, queue: QueueView) -> list[QueueView]:
        """The ClusterQueues that share quota with this one, itself included."""
        return [q for q in self.queues if q.name == queue.name or (q.cohort and q.cohort == queue.cohort)]


def snapshot(
    workloads: Iterable[WorkloadObject],
    cluster_queues: Iterable[Stored],
    local_queues: Iterable[LocalQueueObject],
    *,
    complete: bool = True,
) -> AnswerSnapshot:
    """A snapshot made from lists of objects. Positions are those of Kueue's order (priority, then age), unless the lists are not
    `complete`.
    """
    routes = routes_of(local_queues)
    views = [workload_view(w, routes) for w in workloads]
    lines = _lines(views) if complete else {}
    positions = {view.uid: index for line in lines.values() for index, view in enumerate(line)}
    placed = named([replace(view, position=positions.get(view.uid)) for view in views])
    queues = sorted((queue_view(q) for q in cluster_queues), key=lambda q: (q.cohort, q.name))
    waiting = {queue: len(line) for queue, line in lines.items()}
    return AnswerSnapshot(tuple(sorted(placed, key=display_order)), tuple(queues), waiting, complete, routes=routes)


def routes_of(local_queues: Iterable[LocalQueueObject]) -> dict[tuple[str, str], str]:
    """The ClusterQueue of each LocalQueue: (namespace, LocalQueue) -> ClusterQueue."""
    return {(queue.namespace, queue.name): queue.cluster_queue for queue in local_queues}


def _lines(views: Iterable[WorkloadView]) -> dict[str, list[WorkloadView]]:
    lines: dict[str, list[WorkloadView]] = defaultdict(list)
    for view in sorted(views, key=lambda v: (-v.priority, v.created, v.uid)):
        if view.state is JobState.PENDING and view.cluster_queue:
            lines[view.cluster_queue].append(view)
    return lines


def named(views: Sequence[WorkloadView], jobs: Mapping[str, str] | None = None) -> list[WorkloadView]:
    """The views with the preemptor's job in place of the UID in Kueue's message. `jobs` by UID; default: those of the views."""
    jobs = jobs if jobs is not None else {view.uid: view.job for view in views}
    return [replace(view, evicted=_named(view.evicted, jobs)) if view.evicted else view for view in views]


def _named(eviction: str, jobs: Mapping[str, str]) -> str:
    found = preemption(eviction)
    return f"preempted for {jobs.get(found.uid, 'another job')} ({found.cause})" if found else eviction


def display_order(view: WorkloadView) -> tuple[int, str, int, float, str]:
    """Sort key: running workloads first, then pending ones by queue and position, then finished ones."""
    if view.state in HOLDING:
        return (0, view.cluster_queue, -view.priority, view.since, view.uid)
    if view.state in OUTSIDE:
        return (3, view.cluster_queue, 0, view.since, view.uid)
    if view.state in FINISHED or view.state is JobState.INACTIVE:
        return (2, view.cluster_queue, 0, view.since, view.uid)
    return (1, view.cluster_queue, view.position or 0, view.created, view.uid)


# --- workloads --------------------------------------------------------------------------------------------------------


def workload_view(workload: WorkloadObject, routes: Mapping[tuple[str, str], str]) -> WorkloadView:
    state, reason, message, since = judge(workload)
    owner = owner_of(workload)
    holds = held(workload)
    return WorkloadView(
        namespace=workload.namespace,
        name=workload.name,
        uid=workload.uid,
        job_kind=owner.get("kind", "Workload"),
        job_name=owner.get("name", workload.name),
        job_uid=owner.get("uid", ""),
        queue=workload.queue_name,
        cluster_queue=workload.admitted_by or routes.get((workload.namespace, workload.queue_name), ""),
        priority=workload.priority,
        pods=sum(pod_set.get("count", 1) for pod_set in workload.pod_sets),
        amounts=_sum_by_resource(holds) if holds else requested(workload),
        flavors=tuple(sorted({flavor for flavor, _ in holds})),
        held=holds,
        created=seconds(workload.created),
        since=since,
        state=state,
        reason=reason,
        message=message,
        evicted=_eviction(workload) if state in (JobState.PENDING, JobState.STOPPING) else "",
        warnings=_warnings(workload),
        obstacle=_missing_pods(workload) if state is JobState.STARTING else "",
        spared=_spared(workload),
        user=workload.user,
        phase=_phase(workload) if state is JobState.RUNNING else "",
    )


def _phase(workload: WorkloadObject) -> str:
    row = workload.condition(names.CONVERGED)
    if row is None or row.get("reason") not in (WATCHING, CONVERGED):
        return ""
    return f"{str(row['reason']).lower()}: {row.get('message', '')}"


def _spared(workload: WorkloadObject) -> float:
    """The largest fraction of any pod set's pods without which the workload may start."""
    rows = [(row.get("minCount"), row.get("count", 1)) for row in workload.pod_sets]
    return max((1 - least / count for least, count in rows if least is not None and count), default=0.0)


def _warnings(workload: WorkloadObject) -> tuple[str, ...]:
    """Messages about a run that lasts longer than forecast, hangs, or leaves its GPUs idle, about pods that are refused or
    missing, and about where a placement policy would have put its pods, and how a search has found their places."""
    overrun, stalled = workload.true_condition(names.OVERRUN), workload.condition(names.STALLED)
    rows = [overrun] if overrun is not None else []
    if stalled is not None and (stalled.get("status") == "True" or _is_idle(stalled)):
        rows.append(stalled)
    found = [row.get("message", "") for row in rows]
    if (refused := workload.true_condition(names.PODS_REFUSED)) is not None:
        from gangline.control.writes.status import run_changes  # only who reads Workloads needs it

        what = "it is not started" if run_changes.why_not_started(workload) else "its pods are refused"
        found.append(f"{what} ({refused.get('reason')}): {refused.get('message')}")
    if missing := _missing_pods(workload):
        found.append(missing)
    if (preview := workload.true_condition(names.PLACEMENT_PREVIEW)) is not None:
        found.append(f"a placement policy with dryRun says: {preview.get('message')}")
    if searched := how_searched(workload):
        found.append(f"places of its pods: {searched}")
    return tuple(found)


def how_searched(workload: WorkloadObject) -> str:
    """How a search has found the places of its pods, "" = without one."""
    row = workload.true_condition(names.PLACEMENT_SEARCHED)
    return row.get("message", "") if row is not None and workload.holds_quota else ""


def _is_idle(stalled: Json) -> bool:
    return stalled.get("status") == "False" and stalled.get("reason") == "Idle"


def _missing_pods(workload: WorkloadObject) -> str:
    row = workload.true_condition(names.WAITING_FOR_REPLACEMENT)
    return f"{names.WAITING_FOR_REPLACEMENT}: {row.get('message')}" if row is not None else ""


def judge(workload: WorkloadObject) -> tuple[JobState, str, str, float]:
    """State, reason, message and since when, from the conditions of a Workload."""
    created = seconds(workload.created)
    if (finished := workload.true_condition(names.FINISHED)) is not None:
        failed = finished.get("reason") not in ("Succeeded", "WorkloadSliceReplaced")
        return JobState.FAILED if failed else JobState.SUCCEEDED, *_words(finished, created)
    reserved, evicted = workload.condition(names.QUOTA_RESERVED), workload.condition(names.EVICTED)
    if workload.quota_reserved and workload.evicted:
        return JobState.STOPPING, *_words(evicted, created)
    if (admitted := workload.true_condition(names.ADMITTED)) is not None:
        ready = workload.true_condition(names.PODS_READY)
        if ready is not None and _since(ready) >= _since(admitted):  # else the condition is from an earlier start
            return JobState.RUNNING, *_words(ready, created)
        return JobState.STARTING, *_words(admitted, created)
    if workload.quota_reserved:
        return JobState.RESERVED, *_words(workload.condition(names.ADMITTED) or reserved, created)
    if not workload.active:
        return JobState.INACTIVE, *_words(evicted or reserved, created)
    if workload.held:
        since = _since(reserved) if reserved is not None else 0
        return JobState.INACTIVE, HELD, f"the annotation {names.HOLD} of the job holds it", since or created
    return JobState.PENDING, *_words(reserved, created)


def _eviction(workload: WorkloadObject) -> str:
    cause = workload.true_condition(names.PREEMPTED) or workload.true_condition(names.EVICTED)
    return f"{cause.get('reason', '')}: {cause.get('message', '')}" if cause is not None else ""


def requested(workload: WorkloadObject) -> dict[str, int]:
    """Total request of a Workload's pods by resource, in the engine's units."""
    total: dict[str, int] = defaultdict(int)
    for pod_set in workload.pod_sets:
        spec = (pod_set.get("template") or {}).get("spec") or {}
        for resource, amount in pod_requests(spec).items():
            total[resource] += amount * pod_set.get("count", 1)
    return dict(total)


def pod_requests(spec: Json) -> dict[str, int]:
    """Request of one pod: the sum of its containers, or its largest init container if that is more."""
    together: dict[str, int] = defaultdict(int)
    for container in spec.get("containers") or []:
        for resource, amount in _container_requests(container).items():
            together[resource] += amount
    for container in spec.get("initContainers") or []:
        for resource, amount in _container_requests(container).items():
            together[resource] = max(together[resource], amount)
    return dict(together)


def _container_requests(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {resource: _amount(text, resource) for resource, text in merged.items()}


def held(workload: WorkloadObject) -> dict[tuple[str, str], int]:
    """The amounts that a Workload's admission takes: (flavor, resource) -> amount."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for assignment in workload.assignments:
        flavors, usage = assignment.get("flavors") or {}, assignment.get("resourceUsage") or {}
        for resource, flavor in flavors.items():
            found[flavor, resource] += _amount(usage.get(resource, 0), resource)
    return dict(found)


def _sum_by_resource(held: Mapping[tuple[str, str], int]) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    for (_, resource), amount in held.items():
        total[resource] += amount
    return dict(total)


# --- ClusterQueues ----------------------------------------------------------------------------------------------------


def queue_view(queue: Stored, plan: Stored | None = None) -> QueueView:
    """`plan`: the QuotaPlan that is in force for it."""
    active, spec, status = queue.condition(names.ACTIVE) or {}, queue.spec, queue.status
    return QueueView(
        name=queue.name,
        cohort=spec.get("cohortName") or "",
        strategy=spec.get("queueingStrategy") or "BestEffortFIFO",
        flavors=tuple(_flavor_views(queue, planned_quota.effective(plan))),
        pending=status.get("pendingWorkloads") or 0,
        admitted=status.get("admittedWorkloads") or 0,
        active=active.get("status") == "True",
        reason=active.get("reason", "Unknown"),
        message=active.get("message", "no condition yet: is the operator running?"),
        reclaim=(spec.get("preemption") or {}).get("reclaimWithinCohort") or "Never",
        plan=planned_quota.text(plan),
    )


def _flavor_views(queue: Stored, effective: Mapping[tuple[str, str], Json]) -> Iterable[FlavorView]:
    usage = {
        (flavor["name"], used["name"]): used
        for flavor in queue.status.get("flavorsReservation") or ()
        for used in flavor.get("resources", [])
    }
    for group in queue.spec.get("resourceGroups") or ():
        for flavor in group.get("flavors", []):
            for quota in flavor.get("resources", []):
                resource = quota["name"]
                quota = {**quota, **effective.get((flavor["name"], resource), {})}
                used = usage.get((flavor["name"], resource), {})
                yield FlavorView(
                    flavor=flavor["name"],
                    resource=resource,
                    nominal=_amount(quota.get("nominalQuota", 0), resource),
                    used=_amount(used.get("total", 0), resource),
                    borrowed=_amount(used.get("borrowed", 0), resource),
                    borrowing_limit=_limit(quota, "borrowingLimit", resource),
                    lending_limit=_limit(quota, "lendingLimit", resource),
                )


def _amount(value: object, resource: str) -> int:
    """The quantity in the engine's units; 0 if it can't be parsed, so that one invalid object does not hide the others."""
    try:
        return quantity.parse(str(value), resource)
    except quantity.QuantityError:
        return 0


def _limit(quota: Json, field: str, resource: str) -> int | None:
    return None if quota.get(field) is None else _amount(quota[field], resource)


# --- small readers ----------------------------------------------------------------------------------------------------


def seconds(timestamp: str | None) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp; 0.0 when there is none."""
    return conditions.millis_of(timestamp) / 1000


def _words(row: Json | None, default: float) -> tuple[str, str, float]:
    """The reason and message of a condition, and since when it holds."""
    return ("", "", default) if row is None else (row.get("reason", ""), row.get("message", ""), _since(row) or default)


def _since(row: Json) -> float:
    return seconds(row.get("lastTransitionTime"))


def owner_of(workload: WorkloadObject) -> Json:
    """The owner of a Workload: a job, a pod, an object that serves (such as a Deployment), or a group of pods."""
    if workload.controller is not None:
        return workload.controller
    owners, annotations = workload.owners, workload.annotations
    if annotations.get(names.IS_GROUP_WORKLOAD) != "true":
        return owners[0] if owners else {}
    return _parent(annotations, owners) or {"kind": "PodGroup", "name": workload.name, "uid": workload.uid}


def _parent(annotations: Mapping[str, str], owners: Sequence[Json]) -> Json | None:
    """The StatefulSet of a group, or the group of a LeaderWorkerSet by its number; None for a group of plain pods."""
    name, kind = annotations.get(names.JOB_OWNER_NAME), str(annotations.get(names.JOB_OWNER_GVK)).rpartition("Kind=")[2]
    found = next((row for row in owners if (row.get("kind"), row.get("name")) == (kind, name)), None)
    index = annotations.get(names.COMPONENT_INDEX)
    return found if found is None or index is None else {**found, "name": f"{name}-{index}"}
