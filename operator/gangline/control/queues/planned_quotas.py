"""Expands QuotaPlans: which are in force, and the quotas of their ClusterQueues over time. Pure; no order of events matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from gangline.api.quota_plans import Planned, PlansInForce, course, quota_plan
from gangline.api.read.conditions import timestamp
from gangline.api.spec_fields import SpecError
from gangline.control.queues.followed_rows import remembered
from gangline.engine.model import Millis, ResourceGroup
from gangline.objects import Stored

_NOTHING_FINISHED: Final[Mapping[str, Millis]] = {}


def expand(
    plans: Iterable[Stored],
    written: Mapping[str, tuple[ResourceGroup, ...]],
    now: int,
    finished: Mapping[str, Millis] = _NOTHING_FINISHED,
) -> list[Planned]:
    """All QuotaPlans. `written`: the quotas of each ClusterQueue that there is, as its spec says. `finished`: plan -> the change
    whose quotas nobody exceeds any more. The quotas that follow nodes are those that the statuses say.
    """
    found: list[Planned] = []
    in_force = PlansInForce(written)
    for obj in sorted(plans, key=lambda each: (each.created, each.name)):
        try:
            facts = quota_plan(obj)
        except SpecError as error:
            found.append(Planned(obj.name, None, troubles=(str(error),)))
            continue
        planned = in_force.planned(obj.name, facts, now)
        if planned.facts is not None:
            begun = planned.stages[0].at
            unfinished = facts.recall is not None and finished.get(obj.name) != begun and _foretold(obj, begun)
            with_nodes = course(facts, remembered(obj.status.get("follow")), now) if facts.follow else ()
            planned = replace(planned, unfinished=unfinished, course=with_nodes)
        found.append(planned)
    return found


def _foretold(plan: Stored, begun: Millis) -> bool:
    """Whether an operator had announced this change before it came, under the same spec."""
    if plan.status.get("observedGeneration") != plan.generation:
        return False
    next_change = plan.status.get("nextChange") or {}
    return timestamp(begun) in (next_change.get("time"), plan.status.get("recalledFor"))
