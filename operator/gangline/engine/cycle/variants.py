"""Variants of one workload: it is tried on several flavors at a time, one variant per flavor, and runs as one of them.

Variants that name the same parent in one namespace are a family (`WorkloadState.family`); those in the same ClusterQueue are
siblings. The earlier its flavor comes in the queue, the more preferred a variant is.
"""

from __future__ import annotations

from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.states import LifecycleState
from gangline.engine.queues.workload_state import WorkloadState

#: the mode in which a workload stays where it was admitted first
RETAIN = "RetainFirstAdmission"

PREFERRED_RUNS = "A more favorable variant is already admitted"
OTHER_RUNS = "Another variant is already admitted"
BELOW_LAST = "Target flavor is below LastAcceptableFlavorName"


def forbidden(gang: WorkloadState, queue: ClusterQueueState) -> str:
    """Why a variant neither starts beside its admitted sibling nor replaces it; "" = nothing forbids it."""
    running, rule = admitted_sibling(gang, queue), queue.config.concurrent_admission
    if running is None or rule is None:
        return ""
    order = _order(queue)
    mine = _rank(gang, order)
    if mine >= _rank(running, order):
        return PREFERRED_RUNS
    if rule.mode == RETAIN:
        return OTHER_RUNS
    return BELOW_LAST if rule.last_acceptable in order and mine > order.index(rule.last_acceptable) else ""


def admitted_sibling(gang: WorkloadState, queue: ClusterQueueState) -> WorkloadState | None:
    """The sibling as which the workload runs, or has not stopped yet."""
    running = (mate for mate in gang.family.values() if mate.admitted and mate is not gang and mate.queue is queue)
    return min(running, key=lambda mate: mate.uid, default=None)


def first_of_family(gang: WorkloadState, queue: ClusterQueueState) -> WorkloadState:
    """The most preferred of the siblings that are in the heap with the same priority and time: the one whose turn it is."""
    rank = (gang.priority, gang.since)
    mates = (mate for mate in gang.family.values() if mate.queue is queue and mate.state is LifecycleState.PENDING)
    order = _order(queue)
    turns = [gang, *(mate for mate in mates if (mate.priority, mate.since) == rank)]
    return min(turns, key=lambda mate: (_rank(mate, order), mate.uid))


def _order(queue: ClusterQueueState) -> list[str]:
    groups = queue.config.groups
    return [flavor.name for flavor in groups[0].flavors] if groups else []


def _rank(gang: WorkloadState, order: list[str]) -> int:
    """The place of its flavor in the queue's order; behind all for a flavor that the queue does not have."""
    flavors = gang.allowed_flavors
    return order.index(flavors[0]) if flavors and flavors[0] in order else len(order)
