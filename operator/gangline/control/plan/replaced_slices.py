"""Declares the old slice of an elastic job finished once the one that replaces it holds quota."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.mirror.slices import REPLACED, replacement_for
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.part import Part
from gangline.control.status import run_changes
from gangline.control.writes.outgoing import Priority
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)

_MESSAGE: Final = "Replaced to accommodate a workload (UID: {uid}, JobUID: {job}) due to workload slice aggregation"


class ReplacedSlices(Part):
    """Looks at slices that hold quota, however they got it: an operator that died in between changes nothing."""

    name = "slices"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._recorder = context.recorder
        self._metrics = context.metrics
        self._quarantine = context.quarantine
        self._wake = context.wake
        # as the mirror changes: what comes while a write is in doubt is known only later than its event
        self._changed = context.mirror.changes.elastic.subscribe(worth=context.mirror.has(kube.WORKLOADS))
        self._attempts = Attempts[str](self._again)
        self._over: set[str] = (
            set()
        )  # slices that are finished, which the mirror may show only after other writes of them

    def lead(self) -> None:
        self._changed.update(key for key, workload in self._mirror.workloads.items() if replacement_for(workload))

    def act(self, now: int) -> None:
        for key in self._quarantine.in_turn(sorted(self._changed.take(self._attempts.ready)), self._changed.update):
            if not self._quarantine.attempt("replacing a slice", kube.WORKLOADS, key, partial(self._look, key)):
                self._attempts.pause(key)

    def _look(self, key: str) -> None:
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
            self._send_after(key, old.cluster)
            return
        uid, job = new.uid, new.labels.get(names.JOB_UID, "")
        message = _MESSAGE.format(uid=uid, job=job)
        self._attempts.sent(key)
        self._writes.change(
            old.key,
            "replaced",
            run_changes.finish_because(REPLACED, message),
            priority=Priority.ADMISSION,
            done=partial(self._done, key, message),
            failed=partial(self._failed, key),
        )

    def _send_after(self, key: str, cluster: str) -> None:
        """Let the new slice replace the old one in the cluster in which the job runs, too."""
        self._attempts.sent(key)
        self._writes.change(
            key,
            "inherit",
            partial(_inherit, cluster),
            priority=Priority.ADMISSION,
            done=lambda _: self._inherited(key),
            failed=partial(self._failed, key),
        )

    def _inherited(self, key: str) -> None:
        self._attempts.resolved(key)
        self._attempts.forgive(key)
        self._again(key)

    def _done(self, key: str, message: str, old: WorkloadObject | None) -> None:
        self._attempts.resolved(key)
        self._attempts.forgive(key)
        if old is None:
            return
        self._over.add(old.key)
        self._recorder.record(old, "Normal", REPLACED, message)
        if old.admitted_by:
            self._metrics.kueue.slice_replaced(old, old.admitted_by)

    def _failed(self, key: str, error: ApiError) -> None:
        self._attempts.resolved(key)
        self._again(key)
        if not self._writes.expected(error):
            log.warning("%s: the slice that it replaces: %s", key, error)
            self._attempts.pause(key)

    def _again(self, key: str) -> None:
        self._changed.add(key)
        self._wake()


def _inherit(cluster: str, status: Json, now: int) -> None:
    status.setdefault("clusterName", cluster)
    status.pop("nominatedClusterNames", None)


def _is_successor(new: WorkloadObject, old: WorkloadObject) -> bool:
    """Whether both Workloads are in one namespace and of one job: nobody ends the Workload of another."""
    same_job = new.labels.get(names.JOB_UID, "") == old.labels.get(names.JOB_UID, "")
    return new.namespace == old.namespace and same_job and new.uid != old.uid
