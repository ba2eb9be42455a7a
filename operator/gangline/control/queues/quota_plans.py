"""Gives ClusterQueues the quotas that QuotaPlans plan for this time, and tells the engine those ahead.

The ClusterQueue itself stays as it was written: what the mirror reads of it passes through `QuotaPlans.effective` on its way to
the engine. Whatever is effective follows from the present objects and the time, so nothing is remembered that a killed operator
could forget. The damped capacity of nodes is remembered in the status of the plan that follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from gangline.api.quota_plans import Planned
from gangline.api.read.conditions import timestamp
from gangline.control.kernel.context import Context
from gangline.control.nodes.windows.deadlines import Deadlines
from gangline.control.parts.part import Part
from gangline.control.queues.followed_nodes import FollowedNodes
from gangline.control.queues.planned_quotas import expand
from gangline.control.writes.outgoing import status_write
from gangline.control.writes.status import quota_plan_status
from gangline.engine import model
from gangline.engine.model import ResourceGroup
from gangline.kube import resources as kube
from gangline.kube.reflector import Event
from gangline.kube.resources import ObjectKey, Resource

#: Plans are expanded this often at least, in milliseconds: what is known ahead reaches so much farther.
RENEWED: Final = 86_400_000
#: While workloads are asked to stop, or are stopped, statuses and pods are looked at this often, in milliseconds.
PERIOD: Final = 2_000
#: After a change has come, those that still exceed its quotas are stopped for so long, in milliseconds: an operator that was not
#: there before does it at once.
LATE: Final = 10_000


class QuotaPlans(Part):
    """The part. `observe_fact` gives a change to the engine."""

    name = "quota plans"
    kinds = (kube.QUOTA_PLANS,)

    def __init__(self, context: Context, observe_fact: Callable[[model.Change], None], deadlines: Deadlines) -> None:
        self._engine = context.engine
        self._pods = context.pods
        self._deadlines = deadlines
        self._mirror = context.mirror
        self._writer = context.writer
        self._now = context.now
        self._observe_fact = observe_fact
        #: ClusterQueue -> its quotas as its spec says
        self._written: dict[str, tuple[ResourceGroup, ...]] = {}
        #: whether plans have to be expanded again
        self._stale = True
        self._expires: int | None = None
        self._planned: list[Planned] = []
        #: ClusterQueue -> the plan that is in force for it
        self._in_force: dict[str, Planned] = {}
        #: what the engine knows ahead, by ClusterQueue
        self._known: dict[str, model.QuotaAhead] = {}
        #: plan -> the change whose quotas nobody exceeds any more; and those for which that is not known, until when
        self._finished: dict[str, int] = {}
        self._unfinished: dict[str, tuple[int, int]] = {}
        #: whether statuses have to be looked at
        self._fresh = False
        #: the workloads that were asked to stop, and when
        self._recalled: dict[str, tuple[int, str]] = {}
        self._following = FollowedNodes(context)
        context.mirror.effective = self.effective

    def effective(self, queue: model.ClusterQueue) -> model.ClusterQueue:
        """The ClusterQueue with the quotas that it has now."""
        if self._written.get(queue.name) != queue.groups:
            self._written[queue.name] = queue.groups
            self._stale = True
        planned = self._in_force.get(queue.name)
        return queue if planned is None else planned.applied_to(queue)

    # --- facts --------------------------------------------------------------------------------------------------------

    def observe(self, resource: Resource, event: Event) -> None:
        self._stale = True

    def settle(self) -> None:
        self._expand(self._now())

    def _expand(self, now: int) -> None:
        plans = self._mirror.objects[kube.QUOTA_PLANS]
        if not plans and not self._planned:
            return
        queues = self._mirror.objects[kube.CLUSTER_QUEUES]
        if self._written.keys() - queues.keys():
            self._written = {name: groups for name, groups in self._written.items() if name in queues}
            self._stale = True
        for plan, (begun, until) in list(self._unfinished.items()):
            if until <= now:
                self._finished[plan], self._stale = begun, True
                del self._unfinished[plan]
        if not self._stale and (self._expires is None or now < self._expires):
            return
        self._stale, self._fresh = False, True
        before = self._in_force
        expanded = expand(plans.values(), self._written, now, self._finished)
        self._planned = [replace(each, course=self._following.courses.get(each.name, each.course)) for each in expanded]
        self._in_force = {each.facts.cluster_queue: each for each in self._planned if each.facts is not None}
        for each in self._planned:
            begun = each.stages[0].at if each.unfinished else None
            if begun is not None and self._unfinished.get(each.name, (None, 0))[0] != begun:
                self._unfinished[each.name] = begun, now + LATE
        self._finished = {each.name: self._finished[each.name] for each in self._planned if each.name in self._finished}
        edges = [stage.at for each in self._in_force.values() for stage in each.stages if stage.at > now]
        self._expires = min(*edges, now + RENEWED) if edges else now + RENEWED if self._in_force else None
        for queue in sorted(before.keys() | self._in_force.keys()):
            if _present(before.get(queue)) != _present(self._in_force.get(queue)):
                self._mirror.read_again(kube.CLUSTER_QUEUES, queue)
        self._tell_what_is_ahead()

    def _tell_what_is_ahead(self) -> None:
        wanted = {
            queue: ahead
            for queue, planned in self._in_force.items()
            if (ahead := planned.ahead(self._written[queue])) is not None
        }
        for change in model.changes_between(model.QuotaAhead, self._known, wanted):
            self._observe_fact(change)
        self._known = wanted

    # --- acting -------------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        self._fresh = True

    def act(self, now: int) -> None:
        if (self._in_force or self._following.due is not None) and self._following.look(self._in_force.values(), now):
            self._stale = True
            self._expand(now)
        self._fresh = self._fresh or self._following.take_news()
        if not self._planned and not self._fresh:
            return
        recalled = self._engine.recalled() if self._known or self._recalled else {}
        if recalled or self._recalled:
            self._tell_pods(recalled)
        if self._fresh or recalled != self._recalled:
            self._fresh, self._recalled = False, recalled
            for each in self._planned:
                self._write_status(each, now)
        self.due = self._next_due(now)

    def _next_due(self, now: int) -> int | None:
        """When quotas change next, or it is known that nobody exceeds them any more; soon while workloads are asked to stop."""
        times = [until for _, until in self._unfinished.values()]
        for ahead in self._known.values():
            for step in ahead.steps if ahead.recall is not None else ():
                announced = step.at - ahead.recall.stop_before - ahead.recall.notice if ahead.recall is not None else 0
                times.append(max(announced, now + PERIOD))
        times += [time for time in (self._expires, self._following.due) if time is not None]
        return min(times, default=None)

    def _tell_pods(self, recalled: Mapping[str, tuple[int, str]]) -> None:
        """Write on pods by when their workload should save its work."""
        wanted: dict[str, str] = {}
        for workload, (deadline, _) in recalled.items():
            wanted.update((pod.key, timestamp(deadline)) for pod in self._pods.of(workload) if not pod.ended)
        self._deadlines.put(self.name, wanted)

    def _write_status(self, each: Planned, now: int) -> None:
        key = ObjectKey(kube.QUOTA_PLANS, "", each.name)
        obj = self._mirror.get(kube.QUOTA_PLANS, each.name)
        if obj is None:
            return
        written = self._written.get(each.facts.cluster_queue, ()) if each.facts is not None else ()
        recalled = [workload for workload, (_, plan) in self._recalled.items() if plan == each.name]
        new = quota_plan_status.status(
            obj,
            each.facts,
            each.stages,
            each.steps(written),
            (*each.troubles, *each.advice),
            recalled,
            unfinished=each.unfinished,
            now=now,
            follow=self._following.rows.get(each.name, ()),
            excess=self._following.excess.get(each.name, ""),
        )
        if (write := status_write(key, obj.status, new)) is not None:
            self._writer.submit(write)


def _present(planned: Planned | None) -> object:
    """What a plan changes now."""
    return planned.present if planned is not None else ({}, ())
