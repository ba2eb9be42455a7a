"""Why a workload waits: the one cause that binds, in Kueue's words and in numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gangline.engine.cycle.attempt import (
    ARRAY_LIMIT,
    MIGRATING,
    MISCONFIGURED,
    NO_CANDIDATES,
    NO_FIT,
    PENDING,
    WAITS_ITS_TURN,
    Attempt,
)
from gangline.engine.flavors.assignment import (
    CAPACITY,
    EXCEEDS_MAX,
    NO_CAPACITY,
    NO_MATCH,
    WAITING,
    Assignment,
    FlavorObstacle,
)
from gangline.engine.model import Explanation
from gangline.engine.nodes.capacity import Capacity
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of
from gangline.engine.queues.preemption_log import MOVED
from gangline.engine.queues.protection import remark
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.text import quantity_text

# --- pending messages -------------------------------------------------------------------------------------------------
# The messages for pending workloads: Kueue's words, from the numbers of the last attempt.


def obstacle_text(obstacle: FlavorObstacle) -> str:
    kind, flavor, resource, before, amount, limit, text = obstacle
    if kind == EXCEEDS_MAX:
        first, second, most = (quantity_text.text(resource, number) for number in (before, amount, limit))
        return (
            f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({first})"
            f" + current podset request ({second}) > maximum capacity ({most})"
        )
    if kind == WAITING and not text:
        more = quantity_text.text(resource, before + amount - limit)
        return f"insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"
    return text


def assignment_text(assignment: Assignment) -> str:
    """Pod set by pod set, the reasons sorted; "" if there are none."""
    parts: list[str] = []
    said: set[int] = set()
    for pod_set in assignment.pod_sets:
        if pod_set.obstacles and not pod_set.fits and id(pod_set.obstacles) not in said:
            said.add(id(pod_set.obstacles))
            reasons = ", ".join(sorted({obstacle_text(obstacle) for obstacle in pod_set.obstacles}))
            parts.append(f"couldn't assign flavors to pod set {pod_set.name}: {reasons}")
    return "; ".join(parts)


def preemption_text(reason: str, *, uid: str, job_uid: str, preemptor_path: str, victim_path: str) -> str:
    because = {
        "InClusterQueue": "prioritization in the ClusterQueue",
        "InCohortReclamation": "reclamation within the cohort",
        "InCohortFairSharing": "Fair Sharing within the cohort",
        "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
    }.get(reason, "UNKNOWN")
    return (
        f"Preempted to accommodate a workload (UID: {uid or 'UNKNOWN'}, JobUID: {job_uid or 'UNKNOWN'}) due to {because};"
        f" preemptor path: {preemptor_path or 'UNKNOWN'}; preemptee path: {victim_path or 'UNKNOWN'}"
    )


def moved_text(key: str, uid: str) -> str:
    """The message of a workload that is moved: it says for whom, which a new process reads (`api.read.workloads`)."""
    return (
        f"Moved to other nodes to make room for workload {key} (UID: {uid or 'UNKNOWN'}), which waits only because free room is"
        " scattered; the workload starts again at once"
    )


# --- explanations -----------------------------------------------------------------------------------------------------


#: The reasons of a workload that waits for other jobs; and of one that does so in vain, in Slurm's word.
FOR_OTHER_JOBS: Final = "WaitingForDependencies"
NEVER_SATISFIED: Final = "DependencyNeverSatisfied"
#: The message of a workload that was not tried, in Kueue's words.
NOT_TRIED: Final = "Workload is pending evaluation in the scheduling queue"
#: Holders named in an explanation, at most.
HOLDERS = 10


def reason_of(attempt: Attempt) -> str:
    """The reason that the QuotaReserved condition gets."""
    if attempt.requeue_reason == NO_FIT:
        return attempt.assignment.reason
    if attempt.requeue_reason == NO_CANDIDATES and attempt.assignment.lacks_room:
        return NO_CAPACITY
    if attempt.requeue_reason in (PENDING, MIGRATING):
        return "WaitingForPreemptedWorkloads"
    return attempt.blocked or "WaitingForQuota"


def message_of(attempt: Attempt) -> str:
    """The message that the QuotaReserved condition gets."""
    if attempt.skipped:
        return attempt.skipped
    text = assignment_text(attempt.assignment)
    if attempt.requeue_reason == PENDING and any(each.reason == MOVED for each in attempt.victims):
        return f"Pending the move of {len(attempt.victims)} workload(s) to other nodes: {text}"
    if attempt.requeue_reason == PENDING:
        waiting = f"Pending the preemption of {max(1, len(attempt.victims))} workload(s)"
        return f"{text}. {waiting}" if text else waiting
    if attempt.requeue_reason == MIGRATING:
        waiting = "Pending the migration of 1 workload(s)"
        return f"{text}. {waiting}" if text else waiting
    if attempt.requeue_reason == NO_CANDIDATES and attempt.assignment.protected_until is not None:
        return text + remark(attempt.assignment.protected_until) + attempt.assignment.remark
    if attempt.requeue_reason in (NO_FIT, NO_CANDIDATES):
        return text + attempt.assignment.remark
    return text or NOT_TRIED


def attempted(
    queue: ClusterQueueState, reason: str, message: str, assignment: Assignment, holding_nodes: Capacity | None = None
) -> Explanation:
    """The explanation of a failed attempt: what is missing, how much of it, and, with `holding_nodes`, which workloads hold it.

    Finding the holders means searching the whole tree; a ReportPending is made thousands of times and does not show them.
    """
    found = _binding(assignment)
    if found is None:
        return Explanation(reason or "NoMatchingFlavor", message)
    pod_set, obstacle = found
    if holding_nodes is not None and (present := _present(obstacle, queue)) is not obstacle:
        message = message.replace(obstacle_text(obstacle), obstacle_text(present))
        obstacle = present
    kind, flavor, resource, before, amount, limit, _ = obstacle
    requested = before + amount
    holders: tuple[str, ...] = ()
    if holding_nodes is not None:
        if kind == WAITING:
            holders = _holders(queue, flavor, resource)
        elif kind == CAPACITY:
            holders = holding_nodes.holders_of(flavor, HOLDERS)
    return Explanation(
        reason or "NoMatchingFlavor",
        message,
        pod_set=pod_set,
        flavor=flavor,
        resource=resource,
        requested=requested,
        available=limit,
        short=max(0, requested - limit),
        holders=holders,
        needs=_needs(obstacle, queue, _is_held(queue, flavor, resource)),
    )


def gated(explanation: Explanation, gang: WorkloadState) -> Explanation:
    """The explanation of an attempt that a closed preemption gate kept from preempting others."""
    gates = ", ".join(gang.closed_gates)
    needs = f"The preemption gates of the workload must open ({gates}), or {explanation.needs[:1].lower()}{explanation.needs[1:]}"
    return replace(explanation, preemption_gates=gang.closed_gates, needs=needs)


def _binding(assignment: Assignment) -> tuple[str, FlavorObstacle] | None:
    """The obstacle that is nearest to being overcome, of the first pod set that has one that counts."""
    for pod_set in assignment.pod_sets:
        if pod_set.obstacles and not pod_set.fits and (pod_set.failed or assignment.mode != 0):
            return pod_set.name, min(pod_set.obstacles, key=_distance)
    # no flavor failed: there will never be enough room on nodes
    for pod_set in assignment.pod_sets:
        for obstacle in pod_set.obstacles:
            if obstacle.kind == assignment.severity:
                return pod_set.name, obstacle
    return None


def _distance(obstacle: FlavorObstacle) -> tuple[int, float]:
    wanted = obstacle.before + obstacle.amount
    return obstacle.kind, (wanted - obstacle.limit) / wanted if wanted else 0.0


def _present(obstacle: FlavorObstacle, queue: ClusterQueueState) -> FlavorObstacle:
    """The obstacle with what can be had of the quota now: others may have taken some since, which wakes nobody."""
    cell = (
        queue.cells.get((obstacle.flavor, obstacle.resource))
        if obstacle.kind == WAITING and not obstacle.text
        else None
    )
    free = max(0, cell.available()) if cell is not None else obstacle.limit
    return obstacle._replace(limit=free) if free < obstacle.limit else obstacle


def _is_held(queue: ClusterQueueState, flavor: str, resource: str) -> bool:
    fr = (flavor, resource)
    return any(
        (cell := member.cells.get(fr)) is not None and cell.usage > 0 for member in cluster_queues_of(queue.root)
    )


def _holders(queue: ClusterQueueState, flavor: str, resource: str) -> tuple[str, ...]:
    """The workloads that hold most of a flavor's resource in the queue's tree, largest first."""
    fr = (flavor, resource)
    holders = [
        (-amount, gang.key)
        for member in cluster_queues_of(queue.root)
        if (cell := member.cells.get(fr)) is not None and cell.usage
        for gang in member.holders.values()
        if (amount := gang.quota.usage.get(fr, 0))
    ]
    return tuple(key for _, key in sorted(holders)[:HOLDERS])


def _needs(obstacle: FlavorObstacle, queue: ClusterQueueState, held: bool) -> str:
    kind, flavor, resource, before, amount, limit, text = obstacle
    if kind == WAITING and text:
        return f"{text[:1].upper()}{text[1:]}."
    if kind == WAITING:
        more = quantity_text.text(resource, before + amount - limit)
        who = "the workloads that hold it must finish or be preempted" if held else "quota must be added or lent"
        return f"{more} more of {resource} in flavor {flavor} must become free: {who}."
    if kind == EXCEEDS_MAX:
        total = quantity_text.text(resource, before + amount)
        return (
            f"ClusterQueue {queue.name} must be able to use {total} of {resource} in flavor {flavor},"
            f" but {quantity_text.text(resource, limit)} is the most it ever can: raise its quota or what it may borrow,"
            " or ask for less."
        )
    if kind == CAPACITY:
        return f"Nodes of flavor {flavor} must become healthy, or workloads on them finish or be preempted."
    if kind == NO_MATCH and resource:
        return f"ClusterQueue {queue.name} must offer {resource}."
    if kind == NO_MATCH:
        return f"The pods must select and tolerate a flavor of ClusterQueue {queue.name}: {obstacle_text(obstacle)}."
    return obstacle_text(obstacle)


def unplaced(gang: WorkloadState, store: Store) -> Explanation | None:
    """Why a workload is in no queue, or in an inactive one; None if it simply waits its turn."""
    workload = gang.workload
    if not workload.active:
        return Explanation("Deactivated", "The workload is deactivated", needs="Set spec.active to true.")
    if workload.gates:
        gates = ",".join(workload.gates)
        return Explanation("AdmissionGated", f"Admission is gated by: {gates}", needs=f"Remove the gates {gates}.")
    if workload.waits_for:
        return _dependent(gang, store)
    if workload.on_hold:
        return Explanation("OnHold", "The workload is on hold")
    if (spent := store.budgets.known.get(workload.key)) is not None and spent.holds:
        return Explanation("BudgetUsed", spent.text, needs="Wait for it, or ask an administrator for more GPU-hours.")
    if workload.lacks_pods:
        message = "Pods of the group are missing: it waits for their replacements"
        return Explanation("WaitingForReplacementPods", message, needs="Create the pods that are missing.")
    name = workload.queue
    if gang.workload.has_variants and (family := store.families.get((workload.namespace, workload.uid))):
        return _divided(family.values())
    local_queue = store.local_queues.get(gang.local_queue)
    if local_queue is None and not name:
        message = "The job names no queue: it needs the label kueue.x-k8s.io/queue-name with the name of a LocalQueue"
        return Explanation(MISCONFIGURED, message, needs=f"Name a LocalQueue of namespace {workload.namespace}.")
    if local_queue is None:
        return Explanation(
            MISCONFIGURED,
            f"LocalQueue {name} doesn't exist",
            needs=f"Create LocalQueue {name} in namespace {workload.namespace}, or name another queue.",
        )
    if local_queue.terminating:
        return Explanation(MISCONFIGURED, f"LocalQueue {name} is terminating or missing")
    if local_queue.stop_policy != "None":
        return Explanation("Suspended", f"LocalQueue {name} is inactive", needs=f"Resume LocalQueue {name}.")
    return _queue_unfit(gang, local_queue.cluster_queue, store)


def _dependent(gang: WorkloadState, store: Store) -> Explanation:
    """Why a workload waits for other jobs."""
    known = store.dependencies.get(gang.key)
    if known is None:
        jobs = ", and for ".join(gang.workload.waits_for)
        return Explanation(FOR_OTHER_JOBS, f"Waits for {jobs}", needs="Other jobs have to do so.")
    return Explanation(NEVER_SATISFIED if known.never else FOR_OTHER_JOBS, known.message, needs=known.needs)


def _divided(family: Iterable[WorkloadState]) -> Explanation:
    """Why the parent of variants waits: what each of these waits for."""
    reasons = sorted((",".join(gang.allowed_flavors or ()), gang.key, gang.attempts.reported[1]) for gang in family)
    each = "; ".join(f"{flavor} ({key}): {why or 'not tried yet'}" for flavor, key, why in reasons)
    return Explanation(WAITS_ITS_TURN, f"The workload is tried on several flavors at a time. {each}")


def _queue_unfit(gang: WorkloadState, name: str, store: Store) -> Explanation | None:
    queue = store.queues.get(name)
    if queue is None:
        return Explanation(MISCONFIGURED, f"ClusterQueue {name} doesn't exist", needs=f"Create ClusterQueue {name}.")
    if store.divides(queue) and not gang.workload.variant_of:
        return Explanation(WAITS_ITS_TURN, "The variants of the workload are not created yet")
    if gang.workload.variant_of and not store.divides(queue):
        return Explanation(
            MISCONFIGURED,
            f"The workload is a variant of another one, and ClusterQueue {name} has no concurrentAdmissionPolicy in force",
        )
    if not queue.in_service:
        _, why = store.inactive(name)
        return Explanation("Suspended", f"ClusterQueue {name} is inactive", needs=why)
    if gang.queue is not None and not store.selects(gang):
        return Explanation(
            MISCONFIGURED,
            "workload namespace doesn't match ClusterQueue selector",
            needs=f"ClusterQueue {name} must select namespace {gang.workload.namespace}.",
        )
    if gang.workload.violation and gang.workload.overtaken:
        needs = "Change its claims, or wait for the devices and templates that they name."
        return Explanation(MISCONFIGURED, gang.workload.violation, needs=needs, not_queued=True)
    if gang.workload.violation:
        return Explanation(
            MISCONFIGURED,
            gang.workload.violation,
            needs=f"Change its pod templates, or what namespace {gang.workload.namespace} allows.",
        )
    return _awaits_turn(gang, store)


def _awaits_turn(gang: WorkloadState, store: Store) -> Explanation | None:
    """Why a task of an array is in no queue. The message does not change while others of its array start and end."""
    figures = store.arrays.figures(gang)
    if figures is None or gang.workload.array is None:
        return None
    limit, running, following = figures
    name = gang.workload.array.name
    needs = (
        f"{running} of {limit} tasks of array {name} run{f', {following} are next' * bool(following)}: one must end."
    )
    return Explanation(ARRAY_LIMIT, f"At most {limit} tasks of array {name} run at a time", needs=needs)
