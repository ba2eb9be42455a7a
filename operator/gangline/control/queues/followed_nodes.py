"""Follows the capacity of nodes for the QuotaPlans that ask for it: the damped capacity, and the quotas that it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangline.api.followed_capacity import Damped, FlavorResource, damped, excess
from gangline.api.quota_plans import Course, Planned, QuotaPlanFacts, course
from gangline.control.kernel.context import Context
from gangline.control.queues.followed_rows import Usable, remembered, row
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json

#: Nodes are looked at this often, in milliseconds, since trust in a node begins and ends without an event.
PERIOD: Final = 5_000
#: A new leader looks at nodes after this time, in milliseconds: before that the engine has not judged them.
FIRST: Final = 1_000
#: A smaller capacity that should have counted while nobody led does so this time after workloads are stopped, in milliseconds.
LATE: Final = 10_000


class FollowedNodes:
    """What plans follow. Only the leader looks at nodes; it goes on from what the statuses of the plans say."""

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._engine = context.engine
        #: by plan: its quotas now and ahead, the rows of its status, and the sentence that shares are too large
        self.courses: dict[str, Course] = {}
        self.rows: dict[str, list[Json]] = {}
        self.excess: dict[str, str] = {}
        #: when nodes are looked at again; None = no plan follows nodes
        self.due: int | None = None
        self._began: int | None = None
        self._plans: dict[str, QuotaPlanFacts] = {}
        #: uid of the plan, flavor and resource -> the capacity that counts
        self._damped: dict[tuple[str, FlavorResource], Damped] = {}
        self._news = False

    def take_news(self) -> bool:
        """Whether rows or sentences have changed since this was asked last."""
        news, self._news = self._news, False
        return news

    def look(self, in_force: Iterable[Planned], now: int) -> bool:
        """Look at nodes if that is due, for the plans that are in force. Returns whether a course has changed."""
        plans = {each.name: each.facts for each in in_force if each.facts is not None and each.facts.follow}
        self._began = now if self._began is None else self._began
        if plans == self._plans and (self.due is None or now < self.due):
            return False
        before = self.courses, self.rows, self.excess
        known, self._damped, self._plans = self._damped, {}, plans
        self.courses, self.rows, times = {}, {}, [now + PERIOD]
        if now < self._began + FIRST:  # until then plans go on from their statuses
            self.rows = {name: self._recorded(name) for name in plans}
            times.append(self._began + FIRST)
        else:
            usable = self._usable({each.about for facts in plans.values() for each in facts.follow})
            for name, facts in plans.items():
                times += self._follow(name, facts, known, usable, now)
        by_queue = excess({facts.cluster_queue: facts.follow for facts in plans.values()})
        self.excess = {name: by_queue.get(facts.cluster_queue, "") for name, facts in plans.items()}
        self.due = min(time for time in times if time > now) if plans else None
        self._news = self._news or (self.rows, self.excess) != before[1:]
        return self.courses != before[0]

    def _follow(
        self,
        name: str,
        facts: QuotaPlanFacts,
        known: Mapping[tuple[str, FlavorResource], Damped],
        usable: Mapping[FlavorResource, Usable],
        now: int,
    ) -> list[int]:
        """Determine rows and course of a plan. Returns when either will be different if nodes stay as they are."""
        obj = self._mirror.get(kube.QUOTA_PLANS, name)
        uid, earlier = obj.uid if obj is not None else "", remembered(self._recorded(name))
        states: dict[FlavorResource, Damped] = {}
        times: list[int] = []
        for each in facts.follow:
            before = known.get((uid, each.about))
            if before is None and (before := earlier.get(each.about)) is not None and facts.recall is not None:
                before = before.postponed(each, facts.notice, now + facts.recall.stop_before + LATE)
            state = damped(before, usable[each.about].amount, each, facts.notice, now)
            states[each.about] = self._damped[uid, each.about] = state
            if (due := state.due(each, facts.notice)) is not None:
                times += [due - facts.notice, due]
        self.rows[name] = [row(each, usable[each.about], states[each.about], facts.notice) for each in facts.follow]
        self.courses[name] = course(facts, states, now)
        return times

    def _recorded(self, name: str) -> list[Json]:
        obj = self._mirror.get(kube.QUOTA_PLANS, name)
        return list(obj.status.get("follow") or ()) if obj is not None else []

    def _usable(self, about: Iterable[FlavorResource]) -> dict[FlavorResource, Usable]:
        nodes: dict[str, tuple[list[model.Node], int]] = {}
        found: dict[FlavorResource, Usable] = {}
        for flavor, resource in about:
            if flavor not in nodes:
                nodes[flavor] = self._engine.nodes_of_flavor(flavor)
            usable, all_of_them = nodes[flavor]
            amount = sum(node.allocatable.get(resource, 0) for node in usable)
            found[flavor, resource] = Usable(amount, len(usable), all_of_them)
        return found
