"""What a QuotaPlan says of its ClusterQueue, by its status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangline.api import names
from gangline.api.schedules import instant
from gangline.kube.resources import Json
from gangline.objects import Stored

_NOTHING: Final[Json] = {}


def plan_of(plans: Iterable[Stored], queue: str) -> Stored | None:
    """The QuotaPlan that is in force for a ClusterQueue; None if there is none."""
    of_queue = (plan for plan in plans if plan.spec.get("clusterQueue") == queue)
    return next((plan for plan in of_queue if plan.true_condition(names.ACTIVE) is not None), None)


def effective(plan: Stored | None) -> Mapping[tuple[str, str], Json]:
    """(flavor, resource) -> the quota that applies now in place of that of the spec, as a spec would say it."""
    rows = plan.status.get("effectiveQuotas") or () if plan is not None else ()
    return {(row["flavor"], row["resource"]): row for row in rows}


def as_json(plan: Stored | None) -> Json | None:
    """The plan as answers show it: its name, the active overrides, and the next change; times in seconds."""
    if plan is None:
        return None
    change: Json = plan.status.get("nextChange") or _NOTHING
    return {
        "name": plan.name,
        "activeOverrides": plan.status.get("activeOverrides") or [],
        "changesAt": instant(change["time"]) / 1000 if change else None,
        "nextOverrides": change.get("overrides") or [],
        "nextQuotas": change.get("quotas") or [],
    }


def text(plan: Stored | None) -> str:
    """Which plan and which of its overrides give the present quota, and until when; "" without a plan."""
    if plan is None:
        return ""
    active = plan.status.get("activeOverrides") or ()
    words = f"QuotaPlan {plan.name}" + (f", override {', '.join(active)}" if active else "")
    change = plan.status.get("nextChange")
    return f"{words}, until {change['time']}" if change else words
