"""Reports on decisions and objects: events, notices and conditions.

- `Announcements` records events and sends notices in response to the messages that parts publish.
- `Troubles` reports objects that cannot be handled: an event on the object, and for a Workload also its condition.
- `FreshWorkloads` are those that nobody has looked at: where Kueue's gate asks for it, their conditions say so from the start.
  Without the gate (`UnadmittedWorkloadsExplicitStatus`, off by default) a Workload has no condition until it was tried, which
  saves a write each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gangline.api import dependencies, names
from gangline.control.decisions.carrying_out import Decisions
from gangline.control.feed.watched_kinds import READERS
from gangline.control.isolation.quarantine import describe
from gangline.control.kernel.context import Context
from gangline.control.parts.messages import (
    DeliveryFailed,
    NoticeLimited,
    ObjectQuarantined,
    Recovered,
    StartExpected,
    StartMoved,
)
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import status_changes
from gangline.engine import EngineFault, model
from gangline.kube import resources as kube
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)


WAITS: Final = model.Explanation("PendingEvaluation", "Workload is pending evaluation in the scheduling queue")


class FreshWorkloads(Part):
    """Writes the first conditions of Workloads."""

    name = "fresh"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._arrived = context.mirror.changes.arrived.subscribe(worth=context.mirror.has(kube.WORKLOADS))

    def act(self, now: int) -> None:
        for key in sorted(self._arrived.take()):
            workload = self._mirror.workloads.get(key)
            if workload is not None and self._waits(workload):
                # a slot of its own: a reason that is to be written already is not replaced
                self._writes.change(key, "fresh", status_changes.first_said(WAITS), priority=Priority.PENDING_REASON)

    def _waits(self, workload: WorkloadObject) -> bool:
        """Whether the Workload has no condition yet and waits to be tried. If something keeps it from being tried, another part
        says so.
        """
        if workload.condition(names.QUOTA_RESERVED) is not None or workload.finished:
            return False
        if workload.deleting or not workload.active or workload.gated or dependencies.waits_for(workload.annotations):
            return False
        queue = self._mirror.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        if queue is None or queue.spec.get("stopPolicy", "None") != "None":
            return False
        return self._mirror.get(kube.CLUSTER_QUEUES, queue.cluster_queue) is not None


#: which resource of the API each kind of engine fact belongs to
_RESOURCES = {kind: resource for resource, (kind, _) in READERS.items()}
_RESOURCES |= dict.fromkeys((model.WorkloadPods, model.SpentBudget, model.NodeEviction), kube.WORKLOADS)


class Troubles:
    """A listener that reports what is wrong with each quarantined object. `leading` says whether this process may report."""

    def __init__(self, context: Context, decisions: Decisions, *, leading: Callable[[], bool]) -> None:
        self._mirror = context.mirror
        self._decisions = decisions
        self._recorder = context.recorder
        self._quarantine = context.quarantine
        self._leading = leading
        context.messages.subscribe(ObjectQuarantined, self._quarantined)

    def engine_fault(self, fault: EngineFault) -> None:
        """Record that the engine leaves out an item that it cannot handle."""
        if resource := _RESOURCES.get(fault.kind):
            self._quarantine.note("deciding about it", resource, fault.key, fault.error)
        else:
            self._quarantine.failures["deciding", fault.kind.__name__] += 1
            log.error("the engine goes on without %s %s: %s", fault.kind.__name__, fault.key, describe(fault.error))

    def _quarantined(self, message: ObjectQuarantined) -> None:
        resource, key = message.resource, message.key
        found = message.obj or (self._mirror.get(resource, key) if resource in self._mirror.objects else None)
        if found is not None and self._leading():
            self._recorder.record(found, "Warning", "Misconfigured", message.what)
            if resource == kube.WORKLOADS:
                self._decisions.misconfigured(key, message.what)


class Announcements:
    """A listener without state of its own. `leading` says whether this process may notify users."""

    def __init__(self, context: Context, *, leading: Callable[[], bool]) -> None:
        self._mirror = context.mirror
        self._notices = context.notices
        self._recorder = context.recorder
        self._leading = leading
        context.messages.subscribe(Recovered, self._recovered)
        context.messages.subscribe(StartExpected, self._start_expected)
        context.messages.subscribe(StartMoved, self._start_moved)
        context.messages.subscribe(NoticeLimited, self._notice_limited)
        context.messages.subscribe(DeliveryFailed, self._delivery_failed)

    def _recovered(self, message: Recovered) -> None:
        self._notices.notify("Swapped", message.workload, message.text)

    def _start_expected(self, message: StartExpected) -> None:
        """Notify users who were given another expected start."""
        raw = self._mirror.workloads.get(message.workload)
        if raw is not None and self._leading():
            self._notices.start_expected(raw, message.start.p50, message.start.because)

    def _start_moved(self, message: StartMoved) -> None:
        self._recorder.record(message.workload, "Normal", "StartMoved", message.text)

    def _notice_limited(self, message: NoticeLimited) -> None:
        raw = self._mirror.workloads.get(message.workload)
        if raw is not None:
            self._recorder.record(raw, "Warning", "NotificationLimited", message.why)

    def _delivery_failed(self, message: DeliveryFailed) -> None:
        """Record an event on every policy that names the receiver."""
        receiver = (message.namespace, message.name)
        for policy in self._mirror.objects[kube.QUEUE_POLICIES].values():
            secrets = [rule["secretRef"] for rule in policy.spec.get("notify") or ()]
            if any((ref.get("namespace", names.SYSTEM_NAMESPACE), ref["name"]) == receiver for ref in secrets):
                self._recorder.record(policy, "Warning", "NotificationFailed", message.why)
