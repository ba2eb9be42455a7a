"""The quotas by QuotaPlans over the time of a replay: what ClusterQueues have when, and what the operator would
have announced to its engine of the quotas ahead. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from gangline.api.quota_plans import Planned, PlansInForce, QuotaPlanFacts, quota_plan
from gangline.engine.model import ClusterQueue, Millis, QuotaAhead, ResourceGroup, changes_between
from gangline.kube import resources as kube
from gangline.record import values
from gangline.record.history import RecordedChange
from gangline.replay.world import ReplayEvent

QUOTA_PLANS: Final = kube.QUOTA_PLANS.kind
_KINDS: Final = frozenset({QUOTA_PLANS, kube.CLUSTER_QUEUES.kind})
#: plans are expanded this often at least, as in the operator
_RENEWED: Final[Millis] = 86_400_000


def quotas(recorded: Iterable[RecordedChange], until: Millis) -> tuple[list[ReplayEvent], list[str]]:
    """The quotas of these changes, which are in the order of time, up to a time; and what is not honoured at the end, as
    sentences.
    """
    state = _State()
    for at, together in groupby((each for each in recorded if each.kind in _KINDS), key=lambda each: each.at):
        state.go_on(at)
        for change in together:
            state.put(change)
        state.expand(at)
    state.go_on(until)
    return state.events, state.troubles(until)


@dataclass(slots=True)
class _State:
    """The plans and the written quotas, and what followed from them."""

    plans: dict[str, QuotaPlanFacts] = field(default_factory=dict[str, QuotaPlanFacts])  # the oldest first
    written: dict[str, tuple[ResourceGroup, ...]] = field(default_factory=dict[str, tuple[ResourceGroup, ...]])
    #: by ClusterQueue: the quotas that a plan gives it, and what is known ahead
    present: dict[str, tuple[ResourceGroup, ...]] = field(default_factory=dict[str, tuple[ResourceGroup, ...]])
    ahead: dict[str, QuotaAhead] = field(default_factory=dict[str, QuotaAhead])
    expires: Millis | None = None
    events: list[ReplayEvent] = field(default_factory=list[ReplayEvent])

    def put(self, change: RecordedChange) -> None:
        name, body = change.name, change.body
        if change.kind == QUOTA_PLANS:
            if body is None:
                self.plans.pop(name, None)
            else:
                self.plans[name] = quota_plan(body)
        elif body is None:
            self.written.pop(name, None)
        else:
            queue: ClusterQueue = values.value(change.kind, name, body)
            self.written[name] = queue.groups

    def go_on(self, until: Millis) -> None:
        while self.expires is not None and self.expires <= until:
            self.expand(self.expires)

    def expand(self, now: Millis) -> None:
        present: dict[str, tuple[ResourceGroup, ...]] = {}
        ahead: dict[str, QuotaAhead] = {}
        edges: list[Millis] = []
        for planned in self._planned(now):
            if planned.facts is None:
                continue
            queue = planned.facts.cluster_queue
            present[queue] = planned.steps(self.written[queue])[0].groups
            if (known := planned.ahead(self.written[queue])) is not None:
                ahead[queue] = known
            edges += [now + _RENEWED, *(stage.at for stage in planned.stages[1:])]
        self.expires = min(edges, default=None)
        announced = tuple(changes_between(QuotaAhead, self.ahead, ahead))
        queues = self.present.keys() | present.keys()
        changed = {queue: present.get(queue) for queue in queues if self.present.get(queue) != present.get(queue)}
        self.present, self.ahead = present, ahead
        if announced or changed:
            self.events.append(ReplayEvent(now, announced, quotas=changed))

    def _planned(self, now: Millis) -> list[Planned]:
        in_force = PlansInForce(self.written)
        return [in_force.planned(name, plan, now) for name, plan in self.plans.items()]

    def troubles(self, now: Millis) -> list[str]:
        return [f"QuotaPlan {each.name}: {trouble}" for each in self._planned(now) for trouble in each.troubles]
