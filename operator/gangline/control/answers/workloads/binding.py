"""The one constraint that binds a waiting job: a borrowing limit, quota that is not lent or not taken back, or a full cluster.

Pure functions on values. The limits come from the engine's ledger; where they are not known, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangline.control.answers.workloads.reasons import ReportedObstacle, count
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, FlavorView, QueueView
from gangline.control.answers.workloads.words import amount
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
