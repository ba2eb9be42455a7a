"""What a Workload's conditions say about one attempt: when it began, started and was ready, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from gangline.api import names
from gangline.api.read.workloads.parse_workload import variant_of
from gangline.control.answers.workloads.reasons import preemption
from gangline.control.answers.workloads.snapshot import WorkloadView, seconds
from gangline.control.feed import slices
from gangline.engine import model
from gangline.forecast.history.attempts import (
    CANCELLED,
    EVICTED,
    FAILED,
    LONGEST_TEXT,
    MOST_NODES,
    PREEMPTED,
    RELEASED,
    SUCCEEDED,
    JobAttempt,
    Labels,
)
from gangline.forecast.history.runs import flavor_of
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

#: how the message of an eviction begins once the workload has quota again
_PREVIOUSLY: Final = "Previously: "
#: reason of Finished=True for a Workload whose job was deleted
_NO_JOB: Final = "OwnerNotFound"
#: reason of PodsReady=False while lost pods are replaced
_RECOVERING: Final = "WaitForRecovery"


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A Workload for which another one was stopped: its key, its job as kind/name, and its ClusterQueue."""

    key: str
    job: str
    queue: str


#: finds a preemptor by the uids of its Workload and of its job
FindPreemptor = Callable[[str, str], Preemptor | None]


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ends, or is about to end: see `JobAttempt`. `stop_requested`: when a stop was requested, 0 = none was."""

    end: str
    reason: str = ""
    text: str = ""
    by: str = ""
    by_job: str = ""
    by_queue: str = ""
    stop_requested: float = 0.0


#: for one that was not watched at its end
UNSEEN: Final = AttemptEnd(RELEASED, text="No operator watched when it ended: this is when a new one noticed.")


def reserved_at(raw: WorkloadObject) -> float | None:
    """When the Workload reserved the quota that it holds, or held when it finished; None for one without.

    The quota of a variant is counted once: with the Workload whose variant it is, which is admitted as it is.
    """
    row = raw.true_condition(names.QUOTA_RESERVED)
    return _since(row) if row is not None and not variant_of(raw.metadata) else None


def begun(
    raw: WorkloadObject,
    view: WorkloadView,
    reserved: float,
    number: int,
    queued: float,
    labels: Labels = (),
) -> JobAttempt:
    """The attempt of a Workload that has just reserved quota."""
    return JobAttempt(
        uid=raw.uid,
        reserved=reserved,
        submitted=view.created,
        queued=min(queued, reserved),
        number=number,
        namespace=view.namespace,
        workload=view.name,
        job_kind=view.job_kind,
        job_name=view.job_name,
        user=view.user,
        local_queue=view.queue,
        cluster_queue=view.cluster_queue,
        labels=labels,
    )


def advanced(
    attempt: JobAttempt, raw: WorkloadObject, view: WorkloadView, value: model.Workload | None, nodes: Iterable[str]
) -> JobAttempt:
    """The attempt as its Workload shows it now. `value`: what the engine knows of it; `nodes`: on which its pods are."""
    admitted, pods = raw.true_condition(names.ADMITTED), raw.condition(names.PODS_READY)
    started = attempt.started
    if started is None and admitted is not None:
        started = max(attempt.reserved, _since(admitted))
    here = dict.fromkeys(nodes)
    every = dict.fromkeys((*attempt.nodes, *here))
    checkpoint = value.checkpoint if value is not None else None
    found = replace(
        attempt,
        flavor=(flavor_of(value) if value is not None else "") or ",".join(view.flavors) or attempt.flavor,
        gpus=view.gpus,
        pods=view.pods,
        started=started,
        checkpoint=checkpoint / 1000 if checkpoint is not None else None,
        backfilled=raw.is_true(names.BACKFILLED),
        nodes=tuple(every)[:MOST_NODES],
        node_count=max(attempt.node_count, len(here), len(every)),
    )
    return _with_readiness(found, pods) if started is not None else found


def _with_readiness(attempt: JobAttempt, row: Json | None) -> JobAttempt:
    """The attempt with what its condition PodsReady says."""
    if row is None:
        return replace(attempt, reports_ready=attempt.ready is not None)
    at, started = _since(row), attempt.started or 0.0
    if row.get("status") == "True":
        if at < started:
            return attempt  # the condition is from an earlier start
        if attempt.ready is None:
            return replace(attempt, ready=at, reports_ready=True)
        return _ready_until(attempt, at)
    if row.get("reason") == _RECOVERING and at >= started and attempt.unready_since is None:
        ready = attempt.ready if attempt.ready is not None else started
        return replace(attempt, ready=ready, unready_since=max(at, ready), reports_ready=True)
    return replace(attempt, reports_ready=True)


def _ready_until(attempt: JobAttempt, at: float) -> JobAttempt:
    """End the span in which its pods are not ready."""
    if attempt.unready_since is None:
        return attempt
    return replace(attempt, unready=attempt.unready + max(0.0, at - attempt.unready_since), unready_since=None)


def about_to_end(raw: WorkloadObject, find: FindPreemptor) -> AttemptEnd | None:
    """How an attempt is going to end whose Workload is evicted; None for one that is not."""
    evicted, preempted = raw.true_condition(names.EVICTED), raw.true_condition(names.PREEMPTED)
    if evicted is None:
        return None
    stop_requested = _since(evicted)
    if preempted is not None:
        return replace(
            _preempted(preempted.get("reason", ""), preempted.get("message", ""), find), stop_requested=stop_requested
        )
    reason = evicted.get("reason", "")
    cause = reason.removeprefix(names.DEACTIVATED_DUE_TO) or reason
    return AttemptEnd(EVICTED, cause, evicted.get("message", ""), stop_requested=stop_requested)


def ended(
    attempt: JobAttempt, raw: WorkloadObject, coming: AttemptEnd | None, find: FindPreemptor
) -> tuple[AttemptEnd, float]:
    """How and when an attempt ended whose Workload does not hold its quota any more. `coming`: what was known to come."""
    finished, released = raw.true_condition(names.FINISHED), raw.condition(names.QUOTA_RESERVED) or {}
    if finished is not None and reserved_at(raw) == attempt.reserved:
        reason, message, at = finished.get("reason", ""), finished.get("message", ""), _since(finished)
        if slices.has_ended(raw):
            return AttemptEnd(RELEASED, reason, message), at
        if reason == "Succeeded":
            return AttemptEnd(SUCCEEDED, "", message), at
        if reason == _NO_JOB:
            return AttemptEnd(CANCELLED, "", message), at
        return coming or about_to_end(raw, find) or AttemptEnd(FAILED, reason, message), at
    at = _since(released)
    if (reserved_at(raw) or attempt.reserved) > attempt.reserved:  # it has quota again: what happened between is over
        return coming or _previously(raw, find) or UNSEEN, at
    if (found := coming or about_to_end(raw, find)) is not None:
        return found, at
    return AttemptEnd(CANCELLED if raw.deleting else RELEASED, released.get("reason", "")), at


def closed(attempt: JobAttempt, end: AttemptEnd, at: float) -> JobAttempt:
    """The attempt with its end, and texts as long as they are kept."""
    last = max(at, attempt.reserved, attempt.started or 0.0, attempt.ready or 0.0)
    return replace(
        _ready_until(attempt, last),
        stopped=end.stop_requested if attempt.reserved <= end.stop_requested <= last else None,
        ended=last,
        end=end.end,
        reason=end.reason,
        text=end.text[:LONGEST_TEXT],
        by=end.by,
        by_job=end.by_job,
        by_queue=end.by_queue,
    )


def _previously(raw: WorkloadObject, find: FindPreemptor) -> AttemptEnd | None:
    """The eviction before the quota that a Workload has now, from the messages that were kept of it."""
    for kind in (names.PREEMPTED, names.EVICTED):
        row = raw.condition(kind) or {}
        message = row.get("message", "")
        if message.startswith(_PREVIOUSLY):
            text = message.removeprefix(_PREVIOUSLY)
            return _preempted("", text, find) if kind == names.PREEMPTED else AttemptEnd(EVICTED, "", text)
    return None


def _preempted(reason: str, message: str, find: FindPreemptor) -> AttemptEnd:
    """The end of a preempted attempt. Its text names the other Workload by its key, so that `Sight.text` can hide it."""
    found = preemption(message)
    if found is None:
        return AttemptEnd(PREEMPTED, reason, message)
    by = find(found.uid, found.job_uid)
    if by is None:
        return AttemptEnd(PREEMPTED, reason, f"preempted for another job ({found.cause})")
    return AttemptEnd(PREEMPTED, reason, f"preempted for {by.key} ({found.cause})", by.key, by.job, by.queue)


def _since(row: Json | None) -> float:
    return seconds((row or {}).get("lastTransitionTime"))
