"""Writes the statuses of ClusterQueues, Cohorts, LocalQueues and QueuePolicies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from gangline.api import quantity
from gangline.api.read import merge
from gangline.control.kernel.context import Context
from gangline.control.nodes.placing.plugins import PLUGINS
from gangline.control.nodes.telemetry.telemetry_rules import TelemetryRules
from gangline.control.parts.messages import QuotaAutomationChanged
from gangline.control.parts.part import Part
from gangline.control.queues.budgets import Budgets
from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.status import policy_status, queue_status
from gangline.control.writes.status.queue_status import Automation
from gangline.engine import BACKFILL, PolicyFallback, model
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: One write per object in this time, in seconds …
PERIOD = 1.0
#: … or in this time while more urgent writes queue up: the API server is the bottleneck, and no start depends on a status.
BUSY_PERIOD = 5.0
#: The writer counts as busy when this many writes wait.
BUSY = 50
#: How far the head delays in a policy's status may lag behind, in seconds.
DELAYS_PERIOD = 60.0


class PolicyHeadDelays:
    """The delays of heads by backfill, by QueuePolicy: the delay in its status when this process started, plus
    what came since.
    """

    def __init__(self) -> None:
        self._seen: Mapping[str, Mapping[str, float]] = {}  # ClusterQueue -> cause -> seconds since the process started
        self._since: dict[str, float] = {}  # QueuePolicy -> seconds since the process started
        self._before: dict[str, float] = {}  # uid of a QueuePolicy -> seconds before the process started

    def see(
        self, seconds: Mapping[str, Mapping[str, float]], matched: Callable[[], Mapping[str, Iterable[str]]]
    ) -> bool:
        """Add the increase of the engine's totals to the policy in force now. Returns True if there was an increase.

        Matching queues with policies is expensive: `matched` does it, and is called only after an increase.
        """
        if seconds == self._seen:
            return False
        for policy, queues in matched().items():
            more = sum(_backfill(seconds, queue) - _backfill(self._seen, queue) for queue in queues)
            self._since[policy] = self._since.get(policy, 0.0) + more
        self._seen = seconds
        return True

    def of(self, policy: Stored) -> float:
        """The delay of a policy's queues, in seconds."""
        uid, since = policy.uid, self._since.get(policy.key, 0.0)
        if uid not in self._before:
            # an earlier increase belongs to a deleted policy of the same name
            self._before[uid] = _recorded(policy) - since
        return self._before[uid] + since


def _recorded(policy: Stored) -> float:
    """The delay in the policy's status."""
    try:
        return quantity.parse_number(policy.status.get("headDelaySeconds") or 0)
    except quantity.QuantityError:
        return 0.0


def _backfill(seconds: Mapping[str, Mapping[str, float]], queue: str) -> float:
    return seconds.get(queue, {}).get(BACKFILL, 0.0)


class QueueStatuses(Part):
    """Writes the statuses of queues and policies that may have changed. Equal statuses are not written."""

    name = "queues"
    kinds = (kube.COHORTS,)

    def __init__(
        self,
        context: Context,
        *,
        fair: bool,
        fallen_back: Callable[[], Mapping[str, PolicyFallback]] = dict,
        automation_of: Callable[[str], Automation | None] = lambda queue: None,
        budgets: Budgets | None = None,
        telemetry: TelemetryRules | None = None,
        orders: Callable[[], Mapping[str, model.OrderInForce]] = dict,
    ) -> None:
        self._mirror = context.mirror
        self._fallen_back = fallen_back
        self._automation_of = automation_of
        self._budgets = budgets
        self._telemetry = telemetry
        self._orders = orders
        for part in (budgets, telemetry):
            if part is not None:
                part.moved = self._policies_moved
        self._writes = context.writes
        self._writer = context.writer
        self._engine = context.engine
        self._now = context.now
        self._fair = fair
        context.messages.subscribe(
            QuotaAutomationChanged, lambda message: self._send(kube.CLUSTER_QUEUES, message.cluster_queue)
        )
        #: cohorts that borrowed when their status was last written
        self._borrowing: set[str] = set()
        #: cohorts without a status: no queue may be below them
        self._new_cohorts: set[str] = set()
        self._written: dict[tuple[Resource, str], float] = {}
        self._head_delays = PolicyHeadDelays()
        self._delays_due = 0.0
        #: objects whose next status write is queued already: it is rendered when it is sent
        self._queued: set[tuple[Resource, str]] = set()
        self._changed_policies = context.mirror.changes.policies.subscribe(worth=self._is_queue_or_policy)
        self._policies_due = False
        #: of scorers, as the policies' statuses say
        self._troubles: dict[str, str] = {}
        #: ClusterQueue -> the QueuePolicy in force for it
        self._in_force: dict[str, str] = {}

    def _is_queue_or_policy(self, key: str) -> bool:
        return any(key in self._mirror.objects[kind] for kind in (kube.CLUSTER_QUEUES, kube.QUEUE_POLICIES))

    def _policies_moved(self) -> None:
        self._policies_due = True

    def observe(self, resource: Resource, event: Event) -> None:
        if self._fair and isinstance(event, Upsert) and "fairSharing" not in event.obj.status:
            self._new_cohorts.add(event.obj.key)
        elif isinstance(event, Removed):
            self._new_cohorts.discard(event.key)

    def lead(self) -> None:
        for resource in (kube.CLUSTER_QUEUES, kube.LOCAL_QUEUES, *((kube.COHORTS,) if self._fair else ())):
            for key in self._mirror.objects[resource]:
                self._send(resource, key)
        self._policies_due = True

    def act(self, now: int) -> None:
        changed = sorted(self._engine.drain_changed_queues())
        for name in changed:
            self._send(kube.CLUSTER_QUEUES, name)
        cohorts, self._new_cohorts = self._new_cohorts, set()
        if self._fair and changed:
            cohorts |= self._borrowing | {cohort for name in changed for cohort in self._engine.cohorts_above(name)}
        for cohort in sorted(cohorts):
            self._send(kube.COHORTS, cohort)
        for key in sorted(self._engine.drain_changed_local_queues()):
            self._send(kube.LOCAL_QUEUES, key)
        self._update_head_delays()
        if self._troubles != (troubles := PLUGINS.troubles()):
            self._troubles, self._policies_due = troubles, True
        if self._changed_policies.take() or self._policies_due:
            self._policies_due = False
            self._send_policies()

    def _send(self, resource: Resource, key: str) -> None:
        if (resource, key) in self._queued:
            return
        raw = self._mirror.get(resource, key)
        if raw is None:
            self._written.pop((resource, key), None)
            self._borrowing.discard(key) if resource == kube.COHORTS else None
            return
        period = BUSY_PERIOD if self._writer.backlog > BUSY else PERIOD
        not_before = self._written.get((resource, key), 0.0) + period

        def body() -> Json | None:
            self._queued.discard((resource, key))
            raw = self._mirror.get(resource, key)
            if raw is None:
                return None
            old = raw.status
            meta = raw["metadata"]
            patch = merge.difference(old, self._render(resource, key, old, meta.get("generation", 0)))
            if not patch:
                return None
            self._written[resource, key] = time.monotonic()
            return {"status": patch}

        self._queued.add((resource, key))
        self._writer.submit(
            Write(
                ObjectKey.parse(resource, key),
                "status",
                body,
                priority=Priority.STATUS,
                not_before=not_before,
                on_error=lambda error: log.info("status of %s %s: %s", resource.kind, key, error),
            )
        )

    def _update_head_delays(self) -> None:
        """Update the head delays in the policies' statuses, at most once a minute while they grow."""
        if time.monotonic() < self._delays_due:
            return
        if self._head_delays.see(self._engine.head_delay_seconds(), self._matched):
            self._policies_due = True
            self._delays_due = time.monotonic() + DELAYS_PERIOD

    def _send_policies(self) -> None:
        """Write the status of every QueuePolicy: the queues for which it is in force; and that of these queues."""
        queues = self._mirror.objects[kube.CLUSTER_QUEUES]
        in_force = {queue: policy for policy, names in self._matched().items() for queue in names}
        for queue in sorted(in_force.keys() | self._in_force.keys()):
            if in_force.get(queue) != self._in_force.get(queue):
                self._send(kube.CLUSTER_QUEUES, queue)
        self._in_force = in_force
        for name, policy in self._mirror.objects[kube.QUEUE_POLICIES].items():
            old = policy.status
            delay = self._head_delays.of(policy)
            patch = merge.difference(
                old,
                policy_status.status(
                    policy,
                    policy_status.selection(policy, queues, in_force),
                    now=self._now(),
                    head_delay=delay,
                    trouble_of=PLUGINS.trouble,
                    fallen_back=self._fallen_back(),
                    budgets=self._budgets.report(name) if self._budgets is not None else None,
                    telemetry=self._telemetry.report(name) if self._telemetry is not None else None,
                    orders=self._orders(),
                ),
            )
            if patch:
                key = ObjectKey(kube.QUEUE_POLICIES, "", name)
                self._writer.submit(Write(key, "status", {"status": patch}, priority=Priority.STATUS))

    def _matched(self) -> dict[str, list[str]]:
        """QueuePolicy -> the ClusterQueues for which it is in force."""
        matched: dict[str, list[str]] = {}
        for name, queue in self._mirror.objects[kube.CLUSTER_QUEUES].items():
            policy = self._mirror.policy_of(queue)
            if policy is not None:
                matched.setdefault(policy.key, []).append(name)
        return matched

    def _render(self, resource: Resource, key: str, old: Json, generation: int) -> Json:
        now = self._now()
        if resource == kube.COHORTS:
            share = self._engine.cohort_share(key)
            (self._borrowing.add if share else self._borrowing.discard)(key)
            return queue_status.cohort_status(share, old)
        if resource == kube.CLUSTER_QUEUES:
            return queue_status.cluster_queue_status(
                self._engine.queue_status(key),
                old,
                now=now,
                generation=generation,
                fair=self._fair,
                policy=self._in_force.get(key, ""),
                automation=self._automation_of(key),
            )
        return queue_status.local_queue_status(
            self._engine.local_queue_status(key), old, now=now, generation=generation
        )
