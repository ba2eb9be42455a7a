"""Expands QuotaPlans: which are in force, and the quotas of their ClusterQueues over time. Pure; no order of events matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gangline.api.quota_plans import (
    Course,
    QuotaPlanFacts,
    Stage,
    course,
    quota_plan,
    quotas_of,
    stages,
    steps,
    unknown_quotas,
)
from gangline.api.read.conditions import timestamp
from gangline.api.spec_fields import SpecError
from gangline.control.queues.followed_rows import remembered
from gangline.engine import model
from gangline.engine.model import Millis, QuotaStep, ResourceGroup
from gangline.objects import Stored

#: QuotaPlans that are in force at the same time; the oldest are, so that a new one takes no place of another
MOST: Final = 256

_NOTHING_FINISHED: Final[Mapping[str, Millis]] = {}


@dataclass(frozen=True, slots=True)
class Planned:
    """A QuotaPlan with what it changes, now and ahead."""

    name: str
    #: None = it is not in force
    facts: QuotaPlanFacts | None
    stages: tuple[Stage, ...] = ()
    #: why it is not in force, or what of it is not honoured, as sentences
    troubles: tuple[str, ...] = ()
    #: the present quotas were foretold, and it is not known that those that exceed them have been stopped
    unfinished: bool = False
    #: the quotas that follow nodes, now and ahead
    course: Course = ()

    @property
    def present(self) -> object:
        """What the plan changes now."""
        return self.stages[0].changes, self.course[:1]

    def steps(self, written: tuple[ResourceGroup, ...]) -> list[QuotaStep]:
        """The quotas of the ClusterQueue now and ahead, given those that its spec has."""
        return steps(written, self.stages, self.course)

    def applied_to(self, queue: model.ClusterQueue) -> model.ClusterQueue:
        """The ClusterQueue with the quotas that it has now, given it as its spec says."""
        return replace(queue, groups=self.steps(queue.groups)[0].groups)

    def ahead(self, written: tuple[ResourceGroup, ...]) -> model.QuotaAhead | None:
        """What the engine gets besides the present quotas; None where nothing changes."""
        facts, known = self.facts, self.steps(written)
        later = tuple(known if self.unfinished else known[1:])
        return model.QuotaAhead(facts.cluster_queue, self.name, later, facts.recall) if facts and later else None


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
    of_queue: dict[str, str] = {}
    for obj in sorted(plans, key=lambda each: (each.created, each.name)):
        try:
            facts = quota_plan(obj)
        except SpecError as error:
            found.append(Planned(obj.name, None, troubles=(str(error),)))
            continue
        queue = facts.cluster_queue
        if (other := of_queue.get(queue)) is not None:
            found.append(Planned(obj.name, None, troubles=(f"QuotaPlan {other} of ClusterQueue {queue} is older",)))
        elif len(of_queue) >= MOST:
            found.append(Planned(obj.name, None, troubles=(f"Only the {MOST} oldest QuotaPlans are in force",)))
        elif queue not in written:
            found.append(Planned(obj.name, None, troubles=(f"There is no ClusterQueue {queue}",)))
        else:
            of_queue[queue] = obj.name
            troubles = unknown_quotas(facts, quotas_of(written[queue]))
            ahead = tuple(stages(facts, now))
            begun = ahead[0].at
            unfinished = facts.recall is not None and finished.get(obj.name) != begun and _foretold(obj, begun)
            with_nodes = course(facts, remembered(obj.status.get("follow")), now) if facts.follow else ()
            found.append(Planned(obj.name, facts, ahead, troubles, unfinished, with_nodes))
    return found


def _foretold(plan: Stored, begun: Millis) -> bool:
    """Whether an operator had announced this change before it came, under the same spec."""
    if plan.status.get("observedGeneration") != plan.generation:
        return False
    next_change = plan.status.get("nextChange") or {}
    return timestamp(begun) in (next_change.get("time"), plan.status.get("recalledFor"))
