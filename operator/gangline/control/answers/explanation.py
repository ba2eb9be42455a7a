"""The explanation of a workload's state, as `gangline why` prints it: pure functions from a snapshot to lines.

The snapshot needs the workload's ClusterQueue and those of its cohort, the first workloads before it, and all holders of the
cohort's quota. If it is not complete, the lines say nothing about positions, holders, or what would have to end.

The one constraint that binds a waiting job: a borrowing limit, quota that is not lent or not taken back, or a full cluster.

Pure functions on values. The limits come from the engine's ledger; where they are not known, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gangline import bounded
from gangline.control.answers.nodes import room as nodes
from gangline.control.answers.nodes.room import NO_ROOM, JobRoom
from gangline.control.answers.workloads.reasons import ReportedObstacle, count, in_question, parse
from gangline.control.answers.workloads.snapshot import (
    HOLDING,
    OUTSIDE,
    AnswerSnapshot,
    FlavorView,
    JobState,
    QueueView,
    WorkloadView,
)
from gangline.control.answers.workloads.words import Line, age, amount, counted, offered, to_do, why
from gangline.engine import QuotaLimits


def constraints(queue: QueueView, snapshot: AnswerSnapshot, obstacles: Sequence[ReportedObstacle]) -> Iterator[str]:
    """One sentence for each flavor and resource that is short."""
    said: set[tuple[str, str]] = set()
    for o in obstacles:
        known = snapshot.limits.get((o.flavor, o.resource))
        if o.kind == "short" and known is not None and (o.flavor, o.resource) not in said:
            said.add((o.flavor, o.resource))
            yield f"{o.flavor}: {_constraint(queue, snapshot, o, known)}"


def _constraint(queue: QueueView, snapshot: AnswerSnapshot, o: ReportedObstacle, known: QuotaLimits) -> str:
    wanted = known.available + o.amount
    for limit in known.binding:
        if limit.without >= wanted:
            owner = f"{'cohort' if limit.cohort else 'ClusterQueue'} {limit.owner}"
            return (
                f"the borrowingLimit of {owner} ({amount(limit.limit, o.resource)}) binds; without it"
                f" {count(max(0, limit.without), o.resource)} could be used now"
            )
    own = queue.flavor(o.flavor, o.resource)
    entitled = own is not None and queue.reclaim == "Never" and own.used + o.amount <= own.nominal
    if own is not None and entitled and (taken := _taken(queue, snapshot, own)):
        borrowed = count(taken, o.resource)
        return f"others borrow {borrowed}, and reclaimWithinCohort: Never keeps the queue from taking its own back"
    if known.unlimited < wanted <= known.unlimited + known.kept:
        return f"others have {count(known.kept, o.resource)} free that they do not lend (lendingLimit)"
    if known.binding:
        return f"borrowing limits bind, and {count(max(0, known.unlimited), o.resource)} would be free without them"
    free = max(0, known.available)
    return f"all of the quota is in use ({count(free, o.resource)} free)" if free else "all of the quota is in use"


def _taken(queue: QueueView, snapshot: AnswerSnapshot, own: FlavorView) -> int:
    """The amount that the other ClusterQueues of the cohort borrow."""
    others = (q.flavor(own.flavor, own.resource) for q in snapshot.cohort_of(queue) if q.name != queue.name)
    return sum(each.borrowed for each in others if each is not None)


NAMED = 5  # workloads named in one line before "and n more"


def explain(view: WorkloadView, snapshot: AnswerSnapshot, now: float, room: JobRoom = NO_ROOM) -> list[Line]:
    """The explanation of one workload, most important lines first. `room`: on nodes, where that is what it waits for."""
    lines = [Line("state", _standing(view, snapshot, now)), Line("asks for", _asks(view))]
    if view.state is JobState.PENDING:
        lines += _pending(view, snapshot, now, room)
    else:
        if text := why(view):
            lines.append(Line("because", text))
        lines += _room(view, room, now)
    if text := to_do(view):
        lines.append(Line("needs", text))
    return lines + [Line("warning", text) for text in view.warnings]


def _standing(view: WorkloadView, snapshot: AnswerSnapshot, now: float) -> str:
    words = f"{view.state} for {age(now - (view.created if view.state is JobState.PENDING else view.since))}"
    if view.position is not None:
        line = snapshot.waiting.get(view.cluster_queue, 0)
        words += f", {ordinal(view.position + 1)} of {line} waiting in ClusterQueue {view.cluster_queue}"
    elif view.cluster_queue:
        words += f" in ClusterQueue {view.cluster_queue}"
    queue = snapshot.queue(view.cluster_queue)
    words += f" (cohort {queue.cohort})" if queue and queue.cohort else ""
    return f"{words}; it will never fit" if view.never_fits else words


def _asks(view: WorkloadView) -> str:
    if view.state in OUTSIDE and not view.pods:
        return "not known"
    asked = ", ".join(f"{amount(n, resource)} {resource}" for resource, n in sorted(view.amounts.items()))
    pods = counted(view.pods, "pod")
    outside = view.state in OUTSIDE
    return f"{asked or 'nothing'} in {pods}" + ("" if outside else f", all at once; priority {view.priority}")


def _room(view: WorkloadView, room: JobRoom, now: float) -> Iterator[Line]:
    yield from (Line(label, text) for label, text in nodes.lines(room, view.amounts, view.key, now))
    if text := nodes.needed(room, view.amounts):
        yield Line("needs", text)


def _pending(view: WorkloadView, snapshot: AnswerSnapshot, now: float, room: JobRoom) -> Iterator[Line]:
    obstacles = in_question(view.reason, parse(view.message).obstacles)
    queue = snapshot.queue(view.cluster_queue)
    yield Line("because", f"{why(view)}")
    if view.evicted:
        yield Line("before", f"it ran and was evicted: {view.evicted}")
    if not view.too_wide:  # else neither quota nor those before it matter
        yield from _for_quota(view, snapshot, obstacles, now)
        yield from (Line(label, text) for label, text in nodes.lines(room, view.amounts, view.key, now))
    if queue or snapshot.complete:
        yield Line("needs", needs(view, snapshot, room))


def _for_quota(
    view: WorkloadView, snapshot: AnswerSnapshot, obstacles: Sequence[ReportedObstacle], now: float
) -> Iterator[Line]:
    queue = snapshot.queue(view.cluster_queue)
    if queue:
        for flavor in _flavors_of_interest(queue, obstacles):
            yield Line("quota", _quota(flavor, queue, snapshot))
        yield from (Line("limit", text) for text in constraints(queue, snapshot, obstacles))
    if ahead := _ahead(view, snapshot):
        yield Line("ahead", bounded.some(map(_waiter, ahead), NAMED, of=view.position or 0))
    if queue and snapshot.complete:
        yield from _holders(view, queue, snapshot, obstacles, now)


# --- what would have to happen ----------------------------------------------------------------------------------------

_REMEDIES = {
    "AdmissionGated": "the controller named in the annotation kueue.x-k8s.io/admission-gated-by has to remove its name from it",
    "Deactivated": "spec.active of its Workload has to be set to true again",
    "OnHold": "the hold has to be removed",
    "WaitingForDependencies": "the jobs that its annotation gangline.io/after names have to become so",
    "DependencyNeverSatisfied": "such a job has to be run again under the same name, or the annotation gangline.io/after changed",
    "Suspended": "the queue is stopped: an administrator has to set its stopPolicy back to None",
    "WaitingForPodsReady": "the workloads admitted before it have to have all their pods ready",
    "WaitingForArrayTasks": "a task of its array has to end, or its array needs a higher limit",
    "WaitingForReplacementPods": "the pods of the group that are missing have to be created",
    "WaitingForPreemptedWorkloads": "the pods of the preempted workloads have to end; then it starts",
    "WaitingForCapacity": "nodes of its flavors have to become free or usable; where an autoscaler that is not found by itself "
    "adds such nodes, an administrator has to annotate the flavor: gangline.io/autoscaled=true",
    "TopologyPlacementFailed": "enough nodes within one topology domain have to become free",
    "PendingEvaluation": "nothing: it is evaluated when it is next in its queue",
}


def needs(view: WorkloadView, snapshot: AnswerSnapshot, room: JobRoom = NO_ROOM) -> str:
    """One sentence: what has to change before this pending workload starts."""
    queue = snapshot.queue(view.cluster_queue)
    if queue is None:
        return _missing_queue(view, snapshot)
    if not queue.active:
        return f"ClusterQueue {queue.name} has to become active: {queue.message}"
    if view.too_wide:
        return f"smaller pods: {view.too_wide}"
    if view.never_fits:
        return _smaller(view, queue)
    if view.may_shrink:
        least = round((1 - view.spared) * 100)
        return f"nothing: it starts with fewer pods (at least {least} % of them), as soon as that many fit"
    obstacles = in_question(view.reason, parse(view.message).obstacles)
    short = [o for o in obstacles if o.kind == "short"]
    if view.reason != "WaitingForPreemptedWorkloads" and short:
        return _releases(view, queue, snapshot, short)
    if view.reason == "NoMatchingFlavor":
        return _matching(queue, obstacles)
    if view.reason in nodes.FOR_NODES and (text := nodes.needed(room, view.amounts)):
        return text
    return snapshot.needs or _REMEDIES.get(
        view.reason, "it is evaluated again when resources that it could use become free"
    )


def _missing_queue(view: WorkloadView, snapshot: AnswerSnapshot) -> str:
    others = offered(view.namespace, (name for space, name in snapshot.routes if space == view.namespace))
    if not view.queue:
        return (
            f"to name a LocalQueue of namespace {view.namespace} in the job's label kueue.x-k8s.io/queue-name{others}"
        )
    if not view.cluster_queue:
        wanted = f"a LocalQueue {view.queue!r} in namespace {view.namespace}"
        return f"{wanted}, or another name in the job's label kueue.x-k8s.io/queue-name{others}"
    return f"ClusterQueue {view.cluster_queue}, which its LocalQueue {view.queue} names, has to be created"


def _smaller(view: WorkloadView, queue: QueueView) -> str:
    ways: list[str] = []
    for o in parse(view.message).obstacles:
        if o.kind != "too-big":
            continue
        flavor = queue.flavor(o.flavor, o.resource)
        limit = " and the borrowingLimit" if flavor and flavor.borrowing_limit is not None else ""
        ways.append(
            f"at most {count(o.amount, o.resource)} of {o.flavor} "
            f"(it asks {amount(o.requested, o.resource)}); an administrator can raise the nominalQuota{limit}"
        )
    text = " — or ".join(ways) or view.message
    return f"to ask for less: {text}"


def _matching(queue: QueueView, obstacles: Sequence[ReportedObstacle]) -> str:
    """The change that would let some flavor match: the resource, the flavor, or the pods' selectors and tolerations."""
    missing = sorted({o.resource for o in obstacles if o.kind == "undeclared"})
    if missing:
        what = ", ".join(missing)
        where = f"kubectl edit clusterqueue {queue.name}: coveredResources and each flavor of spec.resourceGroups"
        return f"not to ask for {what}; or an administrator to give ClusterQueue {queue.name} quota for it ({where})"
    ways = [
        *(f"ResourceFlavor {o.flavor} to be created" for o in obstacles if o.kind == "missing"),
        *(f"a node selector and affinity that match flavor {o.flavor}" for o in obstacles if o.kind == "affinity"),
        *(f"a toleration of the taint of flavor {o.flavor}" for o in obstacles if o.kind == "taint"),
    ]
    return " — or ".join(dict.fromkeys(ways)) or "a node selector, affinity and tolerations that match a flavor"


def _releases(view: WorkloadView, queue: QueueView, snapshot: AnswerSnapshot, short: Sequence[ReportedObstacle]) -> str:
    """The amounts that have to become free; each pod set needs one of its flavors."""
    ways: dict[str, list[str]] = {}
    for o in short:
        ways.setdefault(o.pod_set, []).append(_release(view, queue, snapshot, o))
    texts = {pod_set: " — or ".join(each) for pod_set, each in ways.items()}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "; and ".join(f"for {pod_set}: {text}" for pod_set, text in texts.items())


def _release(view: WorkloadView, queue: QueueView, snapshot: AnswerSnapshot, o: ReportedObstacle) -> str:
    missing = f"{count(o.amount, o.resource, more=True)} of {o.flavor} free"
    if not snapshot.complete:
        return missing
    holders = holding(view, queue, snapshot, o.flavor, o.resource)
    enough = [w for w in holders if w.held[o.flavor, o.resource] >= o.amount]
    if enough:
        least = min(enough, key=lambda w: (w.held[o.flavor, o.resource], w.since))
        return (
            f"{missing}: the end of {least.job} ({amount(least.held[o.flavor, o.resource], o.resource)}) frees as much"
        )
    together, freed = 0, 0
    for holder in holders:
        together, freed = together + 1, freed + holder.held[o.flavor, o.resource]
        if freed >= o.amount:
            return f"{missing}: the end of its {together} largest holders frees as much"
    return missing


def holding(
    view: WorkloadView, queue: QueueView, snapshot: AnswerSnapshot, flavor: str, resource: str
) -> list[WorkloadView]:
    """The workloads whose end could free quota of a flavor for this one, largest first.

    Workloads of its own queue always count; those of the cohort unless the queue's borrowing limit is the obstacle.
    """
    known = snapshot.limits.get((flavor, resource))
    own_only = (
        any(not each.cohort for each in known.binding) if known else _limit_binds(queue, snapshot, flavor, resource)
    )
    queues = {queue.name} if own_only else {q.name for q in snapshot.cohort_of(queue)}
    found = [
        w
        for w in snapshot.workloads
        if w.state in HOLDING and w.cluster_queue in queues and w.held.get((flavor, resource), 0) and w.uid != view.uid
    ]
    return sorted(found, key=lambda w: (-w.held[flavor, resource], w.since, w.uid))


def _limit_binds(queue: QueueView, snapshot: AnswerSnapshot, flavor: str, resource: str) -> bool:
    """Whether the borrowing limit leaves the queue no more quota than the cohort has free."""
    own = queue.flavor(flavor, resource)
    if own is None or own.borrowing_limit is None:
        return False
    shares = [f for q in snapshot.cohort_of(queue) if (f := q.flavor(flavor, resource))]
    free = sum(f.nominal for f in shares) - sum(f.used for f in shares)
    return own.nominal + own.borrowing_limit - own.used <= free


# --- who and how much -------------------------------------------------------------------------------------------------


def _flavors_of_interest(queue: QueueView, obstacles: Sequence[ReportedObstacle]) -> list[FlavorView]:
    wanted = {(o.flavor, o.resource) for o in obstacles if o.flavor and o.resource}
    return [f for f in queue.flavors if (f.flavor, f.resource) in wanted]


def _quota(flavor: FlavorView, queue: QueueView, snapshot: AnswerSnapshot) -> str:
    def say(value: int) -> str:
        return amount(value, flavor.resource)

    words = f"{flavor.flavor}: {queue.name} uses {say(flavor.used)} of its {count(flavor.nominal, flavor.resource)}"
    if flavor.borrowed:
        words += f" ({say(flavor.borrowed)} borrowed)"
    if flavor.borrowing_limit is not None:
        words += f", may borrow {say(flavor.borrowing_limit)}"
    if queue.cohort:
        shares = [f for q in snapshot.cohort_of(queue) if (f := q.flavor(flavor.flavor, flavor.resource))]
        words += (
            f"; cohort {queue.cohort} uses {say(sum(f.used for f in shares))} of {say(sum(f.nominal for f in shares))}"
        )
    return f"{words} ({queue.plan})" if queue.plan else words


def _ahead(view: WorkloadView, snapshot: AnswerSnapshot) -> list[WorkloadView]:
    """The workloads before it that the snapshot has, in their order."""
    if not view.position:
        return []
    before = [
        (w.position, w) for w in snapshot.workloads if w.cluster_queue == view.cluster_queue and w.uid != view.uid
    ]
    return [w for place, w in sorted(_placed(before), key=lambda pair: pair[0]) if place < view.position]


def _placed(workloads: Iterable[tuple[int | None, WorkloadView]]) -> Iterator[tuple[int, WorkloadView]]:
    return ((place, w) for place, w in workloads if place is not None)


def _waiter(w: WorkloadView) -> str:
    return f"{w.job} ({_size(w)})" if w.hidden else f"{w.job} ({_size(w)}, priority {w.priority})"


def _holders(
    view: WorkloadView, queue: QueueView, snapshot: AnswerSnapshot, obstacles: Sequence[ReportedObstacle], now: float
) -> Iterator[Line]:
    seen: set[tuple[str, str]] = set()
    for o in obstacles:
        if o.kind != "short" or (o.flavor, o.resource) in seen:
            continue
        seen.add((o.flavor, o.resource))
        holders = holding(view, queue, snapshot, o.flavor, o.resource)
        if holders:
            named = bounded.some((_holder(w, o, queue, now) for w in holders), NAMED)
            yield Line("held by", f"{o.flavor}: {named}")


def _holder(w: WorkloadView, o: ReportedObstacle, queue: QueueView, now: float) -> str:
    foreign = "" if w.cluster_queue == queue.name else f" of {w.cluster_queue or 'another queue'}"
    held = amount(w.held[o.flavor, o.resource], o.resource)
    return f"{w.job}{foreign} ({held}, {w.state.lower()} {age(now - w.since)}{_end(w, now)})"


def _end(w: WorkloadView, now: float) -> str:
    """The expected end of a workload, as text: as likely as not before the first time, nine times in ten before the second."""
    if w.end is None or w.latest_end is None:
        return ""
    first, last = age(w.end - now), age(w.latest_end - now)
    return f", ends in {first}" if first == last else f", ends in {first} – {last}"


def _size(w: WorkloadView) -> str:
    return counted(w.gpus, "GPU") if w.gpus else counted(w.pods, "pod")


def ordinal(n: int) -> str:
    suffix = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"
