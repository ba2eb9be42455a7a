"""QuotaPlans, as commands show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangline import bounded
from gangline.api.schedules import instant
from gangline.console.output import clock
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import QUOTA_PLANS, Json

#: quotas that are named in a line
_NAMED = 3


async def quota_plans(api: ApiClient) -> list[Json]:
    """All QuotaPlans, by name; none for a user who may not see them, or in a cluster without the kind."""
    try:
        found = (await api.list(QUOTA_PLANS)).items
    except (Forbidden, NotFound):
        return []
    return sorted(found, key=lambda each: each["metadata"]["name"])


def changes(found: Iterable[Json], now: float, until: float) -> list[str]:
    """A line for the next change of each plan that comes by `until` (seconds)."""
    found_changes: list[tuple[float, str]] = []
    for each in found:
        change = (each.get("status") or {}).get("nextChange")
        if change and (at := instant(change["time"]) / 1000) <= until:
            queue, name = each["spec"]["clusterQueue"], each["metadata"]["name"]
            quotas = _quotas(change.get("quotas") or ())
            found_changes.append((at, f"Quota of {queue} {clock.when(at, now)}: {quotas} (QuotaPlan {name})"))
    return [line for _, line in sorted(found_changes)]


def lines(rows: Sequence[tuple[str, Json | None]], now: float) -> list[str]:
    """A line for each ClusterQueue whose quota a plan gives, as an answer says it: the present override, and the next change."""
    found: list[str] = []
    for queue, plan in dict(rows).items():
        if plan is None:
            continue
        active = f"override {', '.join(plan['activeOverrides'])}" if plan["activeOverrides"] else "no override"
        ahead = ""
        if plan["changesAt"] is not None:
            ahead = f"; {clock.when(plan['changesAt'], now)}: {_quotas(plan['nextQuotas'])}"
        found.append(f"quota of {queue} by QuotaPlan {plan['name']}: {active} is active{ahead}")
    return found


def _quotas(quotas: Iterable[Json]) -> str:
    return bounded.some([_quota(each) for each in quotas], _NAMED)


def _quota(quota: Json) -> str:
    words = f"{quota.get('nominalQuota', '?')} {quota['resource']} of {quota['flavor']}"
    limits = [
        f"{word} {quota[field]}"
        for word, field in (("borrows", "borrowingLimit"), ("lends", "lendingLimit"))
        if field in quota
    ]
    return f"{words} ({', '.join(limits)})" if limits else words
