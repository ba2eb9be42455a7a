"""The status of QuotaPlans: the quotas that they give now, and the next ones. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from gangline.api import names, quantity
from gangline.api.quota_plans import MOST_QUOTAS, FlavorResource, QuotaPlanFacts, Stage
from gangline.api.read import conditions
from gangline.engine.model import Quota, QuotaStep
from gangline.kube.resources import Json
from gangline.objects import Stored

#: workloads that the status lists
MOST_RECALLED: Final = 32


def status(
    plan: Stored,
    facts: QuotaPlanFacts | None,
    stages: Sequence[Stage],
    steps: Sequence[QuotaStep],
    troubles: Sequence[str],
    recalled: Collection[str],
    *,
    unfinished: bool,
    now: int,
) -> Json:
    """The QuotaPlan's status. `facts`: None if it is not in force, which the first of `troubles` explains. `stages` and `steps`:
    what it changes, and what its ClusterQueue has, now and later. `recalled`: the workloads that are to be stopped before the
    next change, or, while the present one is `unfinished`, for that.
    """
    rows = [dict(row) for row in plan.conditions]
    generation = plan.generation

    def put(kind: str, state: bool, reason: str, message: str) -> None:
        conditions.put(rows, kind, state, reason, message, now=now, generation=generation)

    if facts is None:
        put(names.ACTIVE, False, "NotInForce", troubles[0])
    else:
        put(names.ACTIVE, True, "InForce", f"The quotas of ClusterQueue {facts.cluster_queue} follow the plan")
    if troubles:
        put(names.CONFLICT, True, "NotHonoured", ". ".join(troubles))
    else:
        put(names.CONFLICT, False, "Honoured", "Nothing keeps it from being honoured")
    new: Json = {**plan.status, "conditions": rows, "observedGeneration": generation}
    for gone in ("activeOverrides", "effectiveQuotas", "nextChange", "recalledFor", "recalled"):
        new.pop(gone, None)
    if facts is None:
        return new
    about = {fr for each in facts.overrides for fr in each.changes}
    new["activeOverrides"] = list(stages[0].active)
    new["effectiveQuotas"] = _quotas(steps[0], about)
    if unfinished:
        new["recalledFor"] = conditions.timestamp(stages[0].at)
    if recalled:
        new["recalled"] = sorted(recalled)[:MOST_RECALLED]
    if len(steps) > 1:
        active = next((stage.active for stage in stages if stage.at == steps[1].at), ())
        stamp = conditions.timestamp(steps[1].at)
        new["nextChange"] = {"time": stamp, "overrides": list(active), "quotas": _quotas(steps[1], about)}
    return new


def _quotas(step: QuotaStep, about: Collection[FlavorResource]) -> list[Json]:
    found = [
        _quota(flavor.name, resource, quota)
        for group in step.groups
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
        if (flavor.name, resource) in about
    ]
    return found[:MOST_QUOTAS]


def _quota(flavor: str, resource: str, quota: Quota) -> Json:
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    return {
        "flavor": flavor,
        "resource": resource,
        "nominalQuota": quantity.format(quota.nominal, resource),
        **{name: quantity.format(limit, resource) for name, limit in limits.items() if limit is not None},
    }
