"""Deletes Workloads that finished long ago, and jobs that were deactivated long ago, where the configuration says so."""

from __future__ import annotations

import heapq
import logging
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.configuration.sections import Retention
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import Stored, WorkloadObject

log = logging.getLogger(__name__)

#: At most this many deletions are under way at a time: nothing more urgent waits for them.
MOST_AT_ONCE: Final = 50
#: Milliseconds between two looks while more is due than may be under way.
PAUSE: Final = 500
#: A refused deletion is tried again after this time, in milliseconds; one without an answer is forgotten after it.
RETRY: Final = 60_000


class Retainer(Part):
    """Keeps the times at which Workloads are due. A time is only a reason to look: what counts is the state then."""

    name = "retention"

    def __init__(self, context: Context, policy: Retention) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._recorder = context.recorder
        self._policy = policy
        self._changed = context.mirror.changes.workloads.subscribe(worth=context.mirror.has(kube.WORKLOADS))
        self._times: dict[str, int] = {}  # Workload -> when it is due
        self._order: list[tuple[int, str]] = []  # a heap; an entry without an equal one in _times is void
        self._under_way: dict[ObjectKey, int] = {}  # object -> when its deletion began

    def act(self, now: int) -> None:
        for key in sorted(self._changed.take()):
            workload = self._mirror.workloads.get(key)
            self._expect(key, self._due_time(workload) if workload is not None else None)
        self._under_way = {key: since for key, since in self._under_way.items() if now - since < RETRY}
        while self._order and len(self._under_way) < MOST_AT_ONCE:
            when, key = self._order[0]
            if self._times.get(key) != when:
                heapq.heappop(self._order)
            elif when > now:
                break
            else:
                heapq.heappop(self._order)
                del self._times[key]
                self._look(key, now)
        self.due = max(self._order[0][0], now + PAUSE) if self._order else None

    def _expect(self, key: str, when: int | None) -> None:
        if when is None:
            self._times.pop(key, None)
        elif self._times.get(key) != when:
            self._times[key] = when
            heapq.heappush(self._order, (when, key))

    def _due_time(self, workload: WorkloadObject) -> int | None:
        if workload.deleting:
            return None
        finished, evicted = workload.true_condition(names.FINISHED), workload.true_condition(names.EVICTED)
        if finished is not None:
            row, after = finished, self._policy.after_finished
        elif evicted is not None and _deactivated(workload, evicted):
            row, after = evicted, self._policy.after_deactivated
        else:
            return None
        if after is None:
            return None
        return conditions.millis_of(row.get("lastTransitionTime")) + round(after * 1000)

    def _look(self, key: str, now: int) -> None:
        """Delete what is due by the state that is known now."""
        workload = self._mirror.workloads.get(key)
        when = self._due_time(workload) if workload is not None else None
        if workload is None or when is None or workload.namespace in names.EXCLUDED_NAMESPACES:
            return
        if when > now:
            self._expect(key, when)
        elif workload.finished:
            self._delete(key, now, kube.WORKLOADS, workload, "Deleted finished workload due to elapsed retention")
        elif (ref := self._mirror.job_of(workload)) is not None:
            job = self._mirror.objects[ref[0]][ref[1]]
            if not job.deleting:
                self._delete(key, now, ref[0], job, "Deleted job: deactivation retention period expired")

    def _delete(self, key: str, now: int, resource: Resource, obj: Stored, message: str) -> None:
        target = ObjectKey.of(resource, obj)
        if target in self._under_way:
            return

        def done(_: Stored | None) -> None:
            self._under_way.pop(target, None)
            self._recorder.record(obj, "Normal", "Deleted", message)

        def failed(error: ApiError) -> None:
            self._under_way.pop(target, None)
            if not self._writes.expected(error):
                log.warning("%s could not be deleted: %s", target, error)
            self._expect(key, now + RETRY)

        self._under_way[target] = now
        self._writes.send(
            target,
            "delete",
            {"uid": obj.uid, "propagation": "Background"},
            priority=Priority.STATUS,
            slot="retention",
            done=done,
            failed=failed,
        )


def _deactivated(workload: WorkloadObject, evicted: Json) -> bool:
    return not workload.active and evicted.get("reason", "").startswith(names.DEACTIVATED_DUE_TO)
