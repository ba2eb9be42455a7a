"""Declares the old slice of an elastic job finished once the one that replaces it holds quota."""

from __future__ import annotations

from functools import partial
from typing import Final

from gangline.api import names
from gangline.control.feed.slices import REPLACED, replacement_for
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import run_changes
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

_MESSAGE: Final = "Replaced to accommodate a workload (UID: {uid}, JobUID: {job}) due to workload slice aggregation"


class ReplacedSlices(Reconciler[str]):
    """Looks at slices that hold quota, however they got it: an operator that died in between changes nothing."""

    name = "slices"
    doing = "replacing a slice"

    def __init__(self, context: Context) -> None:
        # as the mirror changes: what comes while a write is in doubt is known only later than its event
        super().__init__(context, context.mirror.changes.elastic.subscribe(worth=context.mirror.has(kube.WORKLOADS)))
        self._metrics = context.metrics
        #: slices that are finished, which the mirror may show only after other writes of them
        self._over: set[str] = set()

    def lead(self) -> None:
        self._changed.update(key for key, workload in self._mirror.workloads.items() if replacement_for(workload))

    def _reconcile(self, key: str, now: int) -> None:
        new = self._mirror.workloads.get(key)
        if new is None or new.finished:
            self._over.discard(key)
        replaced = replacement_for(new) if new is not None else ""
        old = self._mirror.workloads.get(replaced) if replaced else None
        if new is None or old is None or not new.holds_quota or old.finished or not _is_successor(new, old):
            return
        if replaced in self._over:
            return
        if old.cluster and not new.cluster:
            # the new slice replaces the old one in the cluster in which the job runs, too
            self._change(key, key, partial(_inherit, old.cluster), slot="inherit", priority=Priority.ADMISSION)
            return
        uid, job = new.uid, new.labels.get(names.JOB_UID, "")
        message = _MESSAGE.format(uid=uid, job=job)
        change = run_changes.finish_because(REPLACED, message)
        done = partial(self._tell, message)
        self._change(key, old.key, change, slot="replaced", priority=Priority.ADMISSION, done=done)

    def _tell(self, message: str, old: WorkloadObject | None) -> None:
        if old is None:
            return
        self._over.add(old.key)
        self._recorder.record(old, "Normal", REPLACED, message)
        if old.admitted_by:
            self._metrics.kueue.slice_replaced(old, old.admitted_by)


def _inherit(cluster: str, status: Json, now: int) -> None:
    status.setdefault("clusterName", cluster)
    status.pop("nominatedClusterNames", None)


def _is_successor(new: WorkloadObject, old: WorkloadObject) -> bool:
    """Whether both Workloads are in one namespace and of one job: nobody ends the Workload of another."""
    same_job = new.labels.get(names.JOB_UID, "") == old.labels.get(names.JOB_UID, "")
    return new.namespace == old.namespace and same_job and new.uid != old.uid
