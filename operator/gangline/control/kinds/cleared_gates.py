"""Workloads whose last admission gate was removed: their condition says so, until they are decided about."""

from __future__ import annotations

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import gate_changes
from gangline.kube import resources as kube
from gangline.objects import WorkloadObject


class ClearedGates(Part):
    """Corrects the condition of Workloads that are still said to be gated."""

    name = "gates"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._recorder = context.recorder
        self._changed = context.mirror.changes.workloads.subscribe(worth=context.mirror.has(kube.WORKLOADS))

    def act(self, now: int) -> None:
        for key in sorted(self._changed.take()):
            workload = self._mirror.workloads.get(key)
            if workload is not None and _is_cleared(workload):
                change = gate_changes.gates_cleared
                self._writes.change(key, "gates", change, priority=Priority.LIFECYCLE, done=self._tell)

    def _tell(self, workload: WorkloadObject | None) -> None:
        if workload is not None:
            note = "Admission gate cleared, workload is now admissible"
            self._recorder.record(workload, "Normal", "AdmissionGateCleared", note)


def _is_cleared(workload: WorkloadObject) -> bool:
    if workload.annotations.get(names.ADMISSION_GATED_BY):
        return False
    return gate_changes.is_gated(workload.conditions)
