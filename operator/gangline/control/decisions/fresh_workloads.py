"""Workloads that nobody has looked at: where Kueue's gate asks for it, their conditions say so from the start.

Without the gate (`UnadmittedWorkloadsExplicitStatus`, off by default) a Workload has no condition until it was tried, which saves
a write each.
"""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import status_changes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.objects import WorkloadObject

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
        if workload.deleting or not workload.active or workload.annotations.get(names.ADMISSION_GATED_BY):
            return False
        queue = self._mirror.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        if queue is None or queue.spec.get("stopPolicy", "None") != "None":
            return False
        return self._mirror.get(kube.CLUSTER_QUEUES, queue.cluster_queue) is not None
