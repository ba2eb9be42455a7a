"""The status of QueuePolicies: whether each is in force, for which queues, and how much backfill delays their heads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangline.api import names, quantity
from gangline.api.read import conditions
from gangline.api.read.policy_reader import backfill
from gangline.engine import BACKFILL, EARLY_END, FIXES, STOPPING
from gangline.kube.resources import Json

#: The status names at most this many queues.
MOST_NAMES = 256


def status(policy: Json, matched: Iterable[str], *, now: int, head_delay: float = 0.0) -> Json:
    """The policy's status: whether it is in force, and for which queues."""
    old = policy.get("status") or {}
    rows = [dict(row) for row in old.get("conditions") or ()]
    found = sorted(matched)
    chosen = policy["spec"].get("fixes") or {}
    unknown = sorted((set(chosen.get("enable") or ()) | set(chosen.get("disable") or ())) - FIXES)
    if unknown:
        known = ", ".join(sorted(FIXES))
        active, reason, message = (
            False,
            "UnknownFix",
            f"spec.fixes: no such fix: {', '.join(unknown)}. Known fixes: {known}",
        )
    elif not found:
        active, reason, message = False, "NothingSelected", "spec.clusterQueues selects no ClusterQueue"
    else:
        active, reason, message = True, "Ready", f"In force for {len(found)} ClusterQueue(s)"
    generation = policy["metadata"].get("generation", 0)
    conditions.put(rows, names.ACTIVE, active, reason, message, now=now, generation=generation)
    new = {**old, "conditions": rows, "matched": found[:MOST_NAMES], "observedGeneration": generation}
    if backfill(policy) is not None:
        new["headDelaySeconds"] = quantity.format(round(head_delay))
    return new


def head_delays(seconds: Mapping[str, Mapping[str, float]], backfilling: Iterable[str]) -> dict[tuple[str, str], float]:
    """(ClusterQueue, cause) -> seconds, including zeros for the queues that backfill."""
    found = {(queue, cause): 0.0 for queue in backfilling for cause in (BACKFILL, EARLY_END, STOPPING)}
    return found | {(queue, cause): s for queue, causes in seconds.items() for cause, s in causes.items()}
