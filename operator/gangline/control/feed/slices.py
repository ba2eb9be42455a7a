"""The slices of one elastic job: which of its Workloads describes it, which one it runs with, and which are over. Pure.

A job that grows gets a new slice, which names the one that it replaces. There are at most two at a time: the one with quota and
the one that waits to replace it. All others are declared finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

REPLACED: Final = "WorkloadSliceReplaced"
OUT_OF_SYNC: Final = "OutOfSync"
#: Kueue's messages
_REPLACED: Final = "Replaced to accommodate a new workload slice"
_OUT_OF_SYNC: Final = "The workload slice is out of sync with its parent job"


@dataclass(frozen=True, slots=True)
class Over:
    """A slice that is to be declared finished, and why."""

    workload: WorkloadObject
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a job that count: `running` is the slice with quota, `waiting` the one that waits: to replace it, or to start
    the job.
    """

    running: WorkloadObject | None
    waiting: WorkloadObject | None
    over: Sequence[Over] = ()
    #: superseded: they had quota, and the one that replaces them has it now
    superseded: Sequence[WorkloadObject] = ()

    @property
    def newest(self) -> WorkloadObject | None:
        """The slice that describes the job."""
        return self.waiting or self.running


def replacement_for(workload: WorkloadObject) -> str:
    """The key of the slice that the Workload replaces, "" = of none."""
    return workload.annotations.get(names.REPLACEMENT_FOR, "")


def is_slice(workload: WorkloadObject) -> bool:
    """Whether the Workload is of an elastic job."""
    return workload.annotations.get(names.ELASTIC) == "true"


def slice_name(workload: WorkloadObject) -> str:
    """The name of the first slice of its job: all pods of the job bear it."""
    return workload.annotations.get(names.SLICE_NAME) or workload.name


def has_ended(workload: WorkloadObject) -> bool:
    """Whether the Workload was declared finished as a slice, not as the job's Workload: the job goes on without it."""
    row = workload.true_condition(names.FINISHED)
    if row is None or not is_slice(workload):
        return False
    return row.get("reason") in (REPLACED, OUT_OF_SYNC)


def slices_of(workloads: Sequence[WorkloadObject]) -> Slices:
    """The slices of a job. `workloads` are the job's own, without those that are finished."""
    ordered = sorted(workloads, key=lambda each: (each.created, each.uid))
    heirs: dict[str, WorkloadObject] = {}
    for each in ordered:
        old = replacement_for(each)
        if old and (old not in heirs or not heirs[old].holds_quota or each.holds_quota):
            heirs[old] = each
    superseded = [each for each in ordered if each.holds_quota and _is_held(heirs.get(each.key))]
    holding = [each for each in ordered if each.holds_quota and each not in superseded]
    running = holding[-1] if holding else None
    candidates = [each for each in ordered if not each.holds_quota]
    waiting = candidates[-1] if candidates else None
    if running is not None and waiting is not None and not _may_replace(waiting, running):
        waiting = None
    over = [_over(each, heirs) for each in (*holding, *candidates) if each is not running and each is not waiting]
    return Slices(running, waiting, over, superseded)


def _may_replace(waiting: WorkloadObject, running: WorkloadObject) -> bool:
    """Whether the waiting slice names the running one, which nobody has deactivated: that would be in vain otherwise."""
    return replacement_for(waiting) == running.key and running.active


def _over(workload: WorkloadObject, heirs: Mapping[str, WorkloadObject]) -> Over:
    if workload.key in heirs:
        return Over(workload, REPLACED, _REPLACED)
    return Over(workload, OUT_OF_SYNC, _OUT_OF_SYNC)


def as_replaced(workload: WorkloadObject) -> Over:
    return Over(workload, REPLACED, _REPLACED)


def current(workloads: Sequence[WorkloadObject]) -> WorkloadObject | None:
    """The slice of the job whose pods run: the one with quota, else the newest. `workloads` may be finished."""
    unfinished = [each for each in workloads if not each.finished]
    found = slices_of(unfinished or workloads)
    superseded = found.superseded[-1] if found.superseded else None
    return found.running or found.waiting or superseded


def ran_for(workload: WorkloadObject, now: int) -> int:
    """The seconds for which the job has run up to `now`, in milliseconds, over all its slices so far."""
    before = workload.status.get("accumulatedPastExecutionTimeSeconds") or 0
    row = workload.true_condition(names.ADMITTED)
    return before + (
        max(0, now - conditions.millis_of(row.get("lastTransitionTime"))) // 1000 if row is not None else 0
    )


# --- sizes ------------------------------------------------------------------------------------------------------------


def counts(pod_sets: Sequence[Json]) -> dict[str, int]:
    return {row["name"]: row.get("count", 1) for row in pod_sets}


def resized(pod_sets: Sequence[Json], sizes: Mapping[str, int]) -> list[Json]:
    """A copy of the pod sets with other counts."""
    return [{**row, "count": sizes.get(row["name"], row.get("count", 1))} for row in pod_sets]


def is_cut(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether some pod set has fewer pods than before, and none has more."""
    return before != now and all(now.get(name, 0) <= count for name, count in before.items())


# --- bodies -----------------------------------------------------------------------------------------------------------


def first(body: Json) -> Json:
    """The first Workload of an elastic job that has none."""
    return _annotated(body, {names.SLICE_NAME: body["metadata"]["name"]})


def successor(body: Json, old: WorkloadObject) -> Json:
    """The slice that replaces `old`."""
    return _annotated(body, {names.SLICE_NAME: slice_name(old), names.REPLACEMENT_FOR: old.key})


def _annotated(body: Json, more: Mapping[str, str]) -> Json:
    annotations = {**(body["metadata"].get("annotations") or {}), names.ELASTIC: "true", **more}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def _is_held(workload: WorkloadObject | None) -> bool:
    return workload is not None and workload.holds_quota


class Heirs:
    """The Workloads that name another one as the slice that they replace."""

    def __init__(self) -> None:
        self._by_slice: dict[str, set[str]] = {}

    def put(self, key: str, old: WorkloadObject | None, new: WorkloadObject | None) -> None:
        """Note a Workload that has changed."""
        before, after = (replacement_for(each) if each is not None else "" for each in (old, new))
        if before and before != after:
            found = self._by_slice.get(before, set())
            found.discard(key)
            if not found:
                self._by_slice.pop(before, None)
        if after:
            self._by_slice.setdefault(after, set()).add(key)

    def of(self, key: str) -> list[str]:
        """The keys of those that would replace this one, or have done so."""
        return sorted(self._by_slice.get(key, ()))
