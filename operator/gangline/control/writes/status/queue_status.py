"""ClusterQueue and LocalQueue statuses: rendered from the engine's ledger, written at most once a second per object.

A status is computed when it is written, not when it became stale, so a burst of admissions costs one write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from gangline.api import names, quantity
from gangline.api.read import conditions
from gangline.engine import model
from gangline.kube.resources import Json


@dataclass(frozen=True, slots=True)
class Automation:
    """The automation of a ClusterQueue's quota: whether it is kept at the sum of those of other clusters, and why or why not."""

    on: bool
    reason: str
    message: str


def cluster_queue_status(
    status: model.QueueStatus,
    old: Json,
    *,
    now: int,
    generation: int,
    fair: bool,
    policy: str = "",
    automation: Automation | None = None,
) -> Json:
    """`status` of a ClusterQueue (v1beta2), keeping condition times of `old`. `policy`: the QueuePolicy in force, "" = none."""
    rows = _active(status, old, now, generation)
    if policy:
        conditions.put(rows, names.POLICY, True, "InForce", policy, now=now, generation=generation)
    else:
        rows = [row for row in rows if row["type"] != names.POLICY]
    if automation is not None:
        conditions.put(rows, names.QUOTA_AUTOMATION, *astuple(automation), now=now, generation=generation)
    else:
        rows = [row for row in rows if row["type"] != names.QUOTA_AUTOMATION]
    new = _common(status, rows, borrowed=True)
    if fair:
        new["fairSharing"] = {"weightedShare": status.weighted_share}
    return {**{key: value for key, value in old.items() if key not in _OURS}, **new}


def cohort_status(weighted_share: int, old: Json) -> Json:
    """`status` of a Cohort (v1beta2) where fair sharing is on."""
    return {**old, "fairSharing": {"weightedShare": weighted_share}}


def local_queue_status(status: model.QueueStatus, old: Json, *, now: int, generation: int) -> Json:
    new = _common(status, _active(status, old, now, generation), borrowed=False)
    if status.consumed_at:  # admission fair sharing: the history must survive a restart
        amounts = {row.resource: 0.0 for row in status.reservation} | dict(status.consumed)
        consumed = {name: quantity.format(round(amount), name) for name, amount in sorted(amounts.items())}
        history = {"consumedResources": consumed, "lastUpdate": conditions.timestamp(status.consumed_at)}
        new["fairSharing"] = {**old.get("fairSharing", {}), "admissionFairSharingStatus": history}
    return {**{key: value for key, value in old.items() if key not in _OURS}, **new}


def _common(status: model.QueueStatus, rows: conditions.Conditions, *, borrowed: bool) -> Json:
    new: Json = {
        "conditions": rows,
        "pendingWorkloads": status.pending,
        "reservingWorkloads": status.reserving,
        "admittedWorkloads": status.admitted,
    }
    for key, usage in (("flavorsReservation", status.reservation), ("flavorsUsage", status.usage)):
        if usage:  # there is none without a ClusterQueue
            new[key] = _flavors(usage, borrowed=borrowed)
    return new


_OURS = frozenset(
    {
        "conditions",
        "pendingWorkloads",
        "reservingWorkloads",
        "admittedWorkloads",
        "flavorsReservation",
        "flavorsUsage",
    }
)


def _active(status: model.QueueStatus, old: Json, now: int, generation: int) -> conditions.Conditions:
    rows = [dict(row) for row in old.get("conditions", ())]
    conditions.put(rows, names.ACTIVE, status.active, status.reason, status.message, now=now, generation=generation)
    return rows


def _flavors(rows: Sequence[model.ResourceUsage], *, borrowed: bool) -> list[Json]:
    """The amounts grouped by flavor in the queue's order: `[{name, resources: [{name, total, borrowed}]}]`."""
    flavors: dict[str, list[Json]] = {}
    for row in rows:
        entry: Json = {"name": row.resource, "total": quantity.format(row.total, row.resource)}
        if borrowed:
            entry["borrowed"] = quantity.format(row.borrowed, row.resource)
        flavors.setdefault(row.flavor, []).append(entry)
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]
