"""Shares: what each ClusterQueue, LocalQueue and user has of the quota, and the numbers by which turns are taken.

Rows are of three levels, each below the one that it belongs to. What is not the asker's is reduced (`seen_by`): LocalQueues of
others have a label for a name, nothing names their users.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gangline.api import quantity
from gangline.control.answers.sight import Sight
from gangline.control.answers.source import Source
from gangline.control.answers.workloads import planned_quota
from gangline.engine import is_accelerator
from gangline.engine.model import ClusterQueueFigures, LocalQueueFigures
from gangline.forecast.history.attempts import Labels
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import Stored

CLUSTER_QUEUE: Final = "ClusterQueue"
LOCAL_QUEUE: Final = "LocalQueue"
USER: Final = "User"
#: labels of jobs of one LocalQueue whose budgets are shown
MOST_LABELLED: Final = 256


@dataclass(slots=True)
class UserUse:
    """Jobs and accelerators of one user in one LocalQueue, or of all of them."""

    running: int = 0
    waiting: int = 0
    used: int = 0
    pending: int = 0

    def add(self, other: UserUse) -> None:
        self.running += other.running
        self.waiting += other.waiting
        self.used += other.used
        self.pending += other.pending


@dataclass(slots=True)
class QueueUse:
    """What is in one LocalQueue: by user ("" where the job names none), and the labels of its jobs that budgets name."""

    users: dict[str, UserUse] = field(default_factory=lambda: defaultdict(UserUse))
    labels: dict[Labels, None] = field(default_factory=dict[Labels, None])


#: by LocalQueue, as namespace/name
Tallies = Mapping[str, QueueUse]
_EMPTY: Final = QueueUse()


@dataclass(slots=True)
class Tallying:
    """Counts workloads one by one."""

    found: dict[str, QueueUse] = field(default_factory=lambda: defaultdict(QueueUse))

    def note(self, local_queue: str, user: str, gpus: int, labels: Labels | None, *, holds: bool) -> None:
        """`labels`: those of the job that budgets name; None where budgets name none."""
        queue = self.found[local_queue]
        queue.users[user].add(UserUse(running=1, used=gpus) if holds else UserUse(waiting=1, pending=gpus))
        if labels is not None and len(queue.labels) < MOST_LABELLED:
            queue.labels[labels] = None


def related(source: Source, queues: Iterable[str]) -> list[str]:
    """The ClusterQueues, and all others under the same roots: a share is one of what these have together."""
    engine, known = source.engine, source.mirror.objects[kube.CLUSTER_QUEUES]
    roots = {_root(engine.cohorts_of(name)) for name in queues} - {""}
    wanted = set(queues)
    return sorted(name for name in known if name in wanted or _root(engine.cohorts_of(name)) in roots)


def _root(cohorts: list[str]) -> str:
    return cohorts[-1] if cohorts else ""


async def shares(source: Source, queues: Collection[str], tallies: Tallies) -> list[Json]:
    """Rows of these ClusterQueues, by cohort, and below each its LocalQueues and their users: all that is known. Other tasks run
    in between.
    """
    figures: dict[str, ClusterQueueFigures] = {}
    for name in queues:
        await asyncio.sleep(0)
        if (counted := source.engine.cluster_queue_figures(name)) is not None:
            figures[name] = counted
    ranks = _ranks(source, figures)
    rows: list[Json] = []
    for name in sorted(figures, key=lambda name: (*reversed(figures[name].cohorts), name)):
        await asyncio.sleep(0)
        found = figures[name]
        own = [_below(source, name, key, each, tallies) for key, each in found.local_queues.items()]
        order = sorted(
            (each for each in own if each[0]["fairUsage"] is not None), key=lambda each: each[0]["fairUsage"]
        )
        for place, each in enumerate(order):
            each[0]["rank"] = place + 1
        total = UserUse()
        for key in found.local_queues:
            for tally in tallies.get(key, _EMPTY).users.values():
                total.add(tally)
        rows.append(_cluster_queue(source, name, found, ranks.get(name), total))
        for each in own:
            rows += each
    return rows


def _ranks(source: Source, figures: Mapping[str, ClusterQueueFigures]) -> dict[str, int]:
    """The order in which ClusterQueues of one cohort take turns, where fair sharing is on."""
    if source.engine.settings.fair_sharing is None:
        return {}
    by_cohort: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, each in figures.items():
        if each.cohorts:
            by_cohort[each.cohorts].append(name)
    found: dict[str, int] = {}
    for members in by_cohort.values():
        shares = {name: _share(figures[name]) for name in members}
        for name in members:
            found[name] = 1 + sum(_order(other) < _order(shares[name]) for other in shares.values())
    return found


def _order(share: float | None) -> float:
    return math.inf if share is None else share


def _share(found: ClusterQueueFigures) -> float | None:
    """The weighted share of a ClusterQueue. None: it borrows with a weight of 0, so it is behind all others."""
    return None if math.isnan(found.weighted_share) else found.weighted_share


def _cluster_queue(source: Source, name: str, found: ClusterQueueFigures, rank: int | None, total: UserUse) -> Json:
    plan = planned_quota.plan_of(source.mirror.objects[kube.QUOTA_PLANS].values(), name)
    shown = planned_quota.as_json(plan)
    planned = planned_quota.amounts(source.mirror.get(kube.CLUSTER_QUEUES, name), plan)
    quotas = [
        {
            "flavor": flavor,
            "resource": resource,
            "nominal": quantity.format(each.nominal, resource),
            "used": quantity.format(each.reservation, resource),
            "borrowed": quantity.format(max(0, each.reservation - each.nominal) if found.cohorts else 0, resource),
            "borrowingLimit": _limit(each.borrowing_limit, resource),
            "lendingLimit": _limit(each.lending_limit, resource),
            **planned.get((flavor, resource), {}),
        }
        for (flavor, resource), each in found.quotas.items()
    ]
    devices = [each for (_, resource), each in found.quotas.items() if is_accelerator(resource)]
    return _row(
        CLUSTER_QUEUE,
        name,
        name,
        total,
        # of the whole queue, also what is held through LocalQueues that are gone
        used=sum(each.reservation for each in devices),
        cohorts=list(found.cohorts),
        nominal=sum(each.nominal for each in devices),
        borrowed=sum(max(0, each.reservation - each.nominal) for each in devices) if found.cohorts else 0,
        share=_share(found),
        weight=_weight(source.mirror.get(kube.CLUSTER_QUEUES, name)),
        rank=rank,
        quotas=quotas,
        note=found.reason,
        budgets=_budgets(source, ("ClusterQueue",), name),
        plan=shown,
    )


def _below(source: Source, queue: str, key: str, found: LocalQueueFigures, tallies: Tallies) -> list[Json]:
    """The row of a LocalQueue, and those of its users."""
    namespace, _, name = key.partition("/")
    use, total = tallies.get(key, _EMPTY), UserUse()
    for tally in use.users.values():
        total.add(tally)
    status = source.engine.local_queue_status(key)
    half_life = source.engine.settings.admission_fair_sharing
    rows = [
        _row(
            LOCAL_QUEUE,
            name,
            queue,
            total,
            namespace=namespace,
            weight=_weight(source.mirror.local_queues.get(key)),
            fair_usage=_finite(found.fair_usage),
            consumed={resource: round(amount, 3) for resource, amount in status.consumed.items()},
            consumed_at=status.consumed_at / 1000 if status.consumed_at else None,
            half_life=half_life.half_life / 1000 if half_life is not None else None,
            budgets=[
                *_budgets(source, ("LocalQueue", "Namespace", "NamespaceLabel"), queue, namespace, name),
                *_label_budgets(source, queue, namespace, name, use.labels),
            ],
        )
    ]
    users = {user: tally for user, tally in use.users.items() if user}
    return rows + [
        _row(
            USER,
            user,
            queue,
            tally,
            namespace=namespace,
            local_queue=name,
            budgets=_budgets(source, ("User",), queue, namespace, name, user),
        )
        for user, tally in sorted(users.items())
    ]


def _label_budgets(
    source: Source, queue: str, namespace: str, local_queue: str, labels: Iterable[Labels]
) -> list[Json]:
    """What is used of the budgets by the labels of jobs: those of the jobs in this LocalQueue."""
    found = [
        each for one in labels for each in _budgets(source, ("JobLabel",), queue, namespace, local_queue, labels=one)
    ]
    return list({(each["name"], each["owner"]): each for each in found}.values())


def _budgets(
    source: Source,
    scopes: Collection[str],
    queue: str,
    namespace: str = "",
    local_queue: str = "",
    user: str = "",
    labels: Labels = (),
) -> list[Json]:
    """What is used of the budgets with these scopes."""
    if source.budgets is None:
        return []
    return [
        {
            "name": each.budget.name,
            "per": each.budget.per,
            "owner": each.owner,
            "whose": each.budget.whose(each.owner),
            "period": each.budget.period.kind,
            "usedGpuHours": round(each.used, 3),
            "gpuHours": each.budget.hours,
            "at100": each.budget.at100,
            "until": each.until,
        }
        for each in source.budgets.of(queue, namespace, local_queue, user, labels)
        if each.budget.per in scopes
    ]


def seen_by(sight: Sight, row: Json) -> Json | None:
    """A row as the asker may see it; None for a user of another's LocalQueue."""
    if sight.everything:
        return row
    named = row | {"clusterQueue": sight.queue_name(row["clusterQueue"])}
    if row["level"] == CLUSTER_QUEUE:
        own = named["clusterQueue"] == row["clusterQueue"]
        if own:
            return named
        name = named["clusterQueue"]
        quotas = [planned_quota.without_plan(quota) for quota in row["quotas"]]
        return named | {"metadata": {"name": name}, "name": name, "budgets": [], "plan": None, "quotas": quotas}
    if sight.sees(row["namespace"]):
        return named
    if row["level"] == USER:
        return None
    label = sight.label(f"{row['namespace']}/{row['name']}")
    return named | {
        "metadata": {"name": label},
        "namespace": "",
        "name": label,
        "localQueue": label,
        "hidden": True,
        "budgets": [],
    }


def _row(
    level: str,
    name: str,
    cluster_queue: str,
    tally: UserUse,
    *,
    namespace: str = "",
    local_queue: str = "",
    used: int | None = None,
    cohorts: list[str] | None = None,
    nominal: int | None = None,
    borrowed: int | None = None,
    share: float | None = None,
    weight: str = "",
    rank: int | None = None,
    fair_usage: float | None = None,
    consumed: Mapping[str, float] | None = None,
    consumed_at: float | None = None,
    half_life: float | None = None,
    quotas: list[Json] | None = None,
    note: str = "",
    budgets: list[Json] | None = None,
    plan: Json | None = None,
) -> Json:
    meta: dict[str, Any] = {"namespace": namespace, "name": name} if namespace else {"name": name}
    return {
        "metadata": meta,
        "level": level,
        "namespace": namespace,
        "name": name,
        "hidden": False,
        "clusterQueue": cluster_queue,
        "localQueue": local_queue or (name if level == LOCAL_QUEUE else ""),
        "cohorts": cohorts or [],
        "nominalGpus": nominal,
        "usedGpus": tally.used if used is None else used,
        "borrowedGpus": borrowed,
        "pendingGpus": tally.pending,
        "running": tally.running,
        "waiting": tally.waiting,
        "share": share,
        "weight": weight,
        "rank": rank,
        "fairUsage": fair_usage,
        "consumed": dict(consumed or {}),
        "consumedAt": consumed_at,
        "halfLifeSeconds": half_life,
        "quotas": quotas or [],
        "note": note,
        "budgets": budgets or [],
        "plan": plan,
    }


def _weight(queue: Stored | None) -> str:
    found = (queue.spec.get("fairSharing") or {}).get("weight") if queue is not None else None
    return "1" if found is None else str(found)


def _limit(value: int | None, resource: str) -> str | None:
    return None if value is None else quantity.format(value, resource)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
