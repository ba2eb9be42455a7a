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
from gangline.kube.resources import Json, condition_of, key_of, true_condition

REPLACED: Final = "WorkloadSliceReplaced"
OUT_OF_SYNC: Final = "OutOfSync"
#: Kueue's messages
_REPLACED: Final = "Replaced to accommodate a new workload slice"
_OUT_OF_SYNC: Final = "The workload slice is out of sync with its parent job"


@dataclass(frozen=True, slots=True)
class Over:
    """A slice that is to be declared finished, and why."""

    workload: Json
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a job that count: `running` is the slice with quota, `waiting` the one that waits: to replace it, or to start
    the job.
    """

    running: Json | None
    waiting: Json | None
    over: Sequence[Over] = ()
    #: superseded: they had quota, and the one that replaces them has it now
    superseded: Sequence[Json] = ()

    @property
    def newest(self) -> Json | None:
        """The slice that describes the job."""
        return self.waiting or self.running


def replacement_for(workload: Json) -> str:
    """The key of the slice that the Workload replaces, "" = of none."""
    return _annotations(workload).get(names.REPLACEMENT_FOR, "")


def is_slice(workload: Json) -> bool:
    """Whether the Workload is of an elastic job."""
    return _annotations(workload).get(names.ELASTIC) == "true"


def slice_name(workload: Json) -> str:
    """The name of the first slice of its job: all pods of the job bear it."""
    return _annotations(workload).get(names.SLICE_NAME) or workload["metadata"]["name"]


def has_ended(workload: Json) -> bool:
    """Whether the Workload was declared finished as a slice, not as the job's Workload: the job goes on without it."""
    row = true_condition(workload, names.FINISHED)
    if row is None or not is_slice(workload):
        return False
    return row.get("reason") in (REPLACED, OUT_OF_SYNC)


def slices_of(workloads: Sequence[Json]) -> Slices:
    """The slices of a job. `workloads` are the job's own, without those that are finished."""
    ordered = sorted(
        workloads, key=lambda each: (each["metadata"].get("creationTimestamp", ""), each["metadata"]["uid"])
    )
    heirs: dict[str, Json] = {}
    for each in ordered:
        old = replacement_for(each)
        if old and (old not in heirs or not _reserved(heirs[old]) or _reserved(each)):
            heirs[old] = each
    superseded = [each for each in ordered if _reserved(each) and _reserved(heirs.get(key_of(each), {}))]
    holding = [each for each in ordered if _reserved(each) and each not in superseded]
    running = holding[-1] if holding else None
    candidates = [each for each in ordered if not _reserved(each)]
    waiting = candidates[-1] if candidates else None
    if running is not None and waiting is not None and not _may_replace(waiting, running):
        waiting = None
    over = [_over(each, heirs) for each in (*holding, *candidates) if each is not running and each is not waiting]
    return Slices(running, waiting, over, superseded)


def _may_replace(waiting: Json, running: Json) -> bool:
    """Whether the waiting slice names the running one, which nobody has deactivated: that would be in vain otherwise."""
    return replacement_for(waiting) == key_of(running) and running["spec"].get("active") is not False


def _over(workload: Json, heirs: Mapping[str, Json]) -> Over:
    if key_of(workload) in heirs:
        return Over(workload, REPLACED, _REPLACED)
    return Over(workload, OUT_OF_SYNC, _OUT_OF_SYNC)


def as_replaced(workload: Json) -> Over:
    return Over(workload, REPLACED, _REPLACED)


def current(workloads: Sequence[Json]) -> Json | None:
    """The slice of the job whose pods run: the one with quota, else the newest. `workloads` may be finished."""
    unfinished = [each for each in workloads if true_condition(each, names.FINISHED) is None]
    found = slices_of(unfinished or workloads)
    superseded = found.superseded[-1] if found.superseded else None
    return found.running or found.waiting or superseded


def ran_for(workload: Json, now: int) -> int:
    """The seconds for which the job has run up to `now`, in milliseconds, over all its slices so far."""
    before = (workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0
    row = true_condition(workload, names.ADMITTED)
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


def successor(body: Json, old: Json) -> Json:
    """The slice that replaces `old`."""
    return _annotated(body, {names.SLICE_NAME: slice_name(old), names.REPLACEMENT_FOR: key_of(old)})


def _annotated(body: Json, more: Mapping[str, str]) -> Json:
    annotations = {**_annotations(body), names.ELASTIC: "true", **more}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def _annotations(workload: Json) -> Mapping[str, str]:
    return workload["metadata"].get("annotations") or {}


def _reserved(workload: Json) -> bool:
    return "admission" in (workload.get("status") or {}) and true_condition(workload, names.QUOTA_RESERVED) is not None


def ended_by(workload: Json) -> str:
    """The reason of the Workload's Finished condition."""
    return (condition_of(workload, names.FINISHED) or {}).get("reason", "")


class Heirs:
    """The Workloads that name another one as the slice that they replace."""

    def __init__(self) -> None:
        self._by_slice: dict[str, set[str]] = {}

    def put(self, key: str, old: Json | None, new: Json | None) -> None:
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
