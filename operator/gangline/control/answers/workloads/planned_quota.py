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


#: fields of a quota that only a plan gives it
_PLANNED: Final = ("written", "next")


def amounts(queue: Stored | None, plan: Stored | None) -> dict[tuple[str, str], Json]:
    """(flavor, resource) -> what a plan is about: the nominal quota that the spec has (`written`), and the one after the next
    change (`next`, None = no change is known). Nothing without a plan.
    """
    if queue is None or plan is None:
        return {}
    change: Json = plan.status.get("nextChange") or _NOTHING
    after = {(row["flavor"], row["resource"]): row.get("nominalQuota") for row in change.get("quotas") or ()}
    planned = effective(plan)
    return {
        (flavor["name"], row["name"]): {
            "written": str(row.get("nominalQuota", 0)),
            "next": after.get((flavor["name"], row["name"])),
        }
        for group in queue.spec.get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for row in flavor.get("resources") or ()
        if (flavor["name"], row["name"]) in planned
    }


def without_plan(quota: Json) -> Json:
    """A quota as it is shown to who may not see the plan."""
    return {name: value for name, value in quota.items() if name not in _PLANNED}


def text(plan: Stored | None) -> str:
    """Which plan and which of its overrides give the present quota, and until when; "" without a plan."""
    if plan is None:
        return ""
    active = plan.status.get("activeOverrides") or ()
    words = f"QuotaPlan {plan.name}" + (f", override {', '.join(active)}" if active else "")
    change = plan.status.get("nextChange")
    return f"{words}, until {change['time']}" if change else words
