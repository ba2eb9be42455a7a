"""Reports objects that cannot be handled: an event on the object, and for a Workload also its condition."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gangline.control.decisions.carrying_out import Decisions
from gangline.control.feed.watched_kinds import READERS
from gangline.control.isolation.quarantine import describe
from gangline.control.kernel.context import Context
from gangline.control.parts.messages import ObjectQuarantined
from gangline.engine import EngineFault, model
from gangline.kube import resources as kube

log = logging.getLogger(__name__)

#: which resource of the API each kind of engine fact belongs to
_RESOURCES = {kind: resource for resource, (kind, _) in READERS.items()} | {model.WorkloadPods: kube.WORKLOADS}


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
