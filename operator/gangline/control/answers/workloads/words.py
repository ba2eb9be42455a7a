"""Short texts about workloads, as all answers word them: amounts, durations, and why a workload is in its state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api import names, quantity
from gangline.control.answers.workloads import reasons
from gangline.control.answers.workloads.snapshot import HELD, JobState, WorkloadView

#: what happens to a job, beside its states
SUBMITTED: Final = "Submitted"
DELETED: Final = "Deleted"
RECOVERED: Final = "Recovered"
START_MOVED: Final = "StartMoved"
HAPPENINGS: Final = (SUBMITTED, *map(str, JobState), DELETED, RECOVERED, START_MOVED)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an explanation: a label such as `state`, and what is said of it."""

    label: str
    text: str


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `2 classes`."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


#: LocalQueues that are named to the author of a job without one
_MOST_QUEUES: Final = 8


def offered(namespace: str, local_queues: Iterable[str]) -> str:
    """The end of a sentence: which LocalQueues a job of the namespace can name; "" if there are none."""
    there = sorted(local_queues)
    return f"; LocalQueues of namespace {namespace}: {bounded.some(there, _MOST_QUEUES)}" if there else ""


def why(view: WorkloadView) -> str:
    """A short explanation of the workload's state; empty if the state needs none."""
    if view.hidden:
        return ""
    if view.state is JobState.RUNNING:
        where = [f"on {', '.join(view.flavors)}"] if view.flavors else []
        return "; ".join([*where, *([view.phase] if view.phase else [])])
    if view.state is JobState.STARTING:
        where = f"on {', '.join(view.flavors)}" if view.flavors else "admitted"
        one = "pod is" if view.unscheduled == 1 else "pods are"
        unscheduled = [f"{view.unscheduled} {one} not scheduled"] if view.unscheduled else []
        return "; ".join([where, *unscheduled, *([view.obstacle] if view.obstacle else [])])
    if view.state is JobState.SUCCEEDED:
        return ""
    if view.state is JobState.INACTIVE:
        return deactivated(view)
    if view.evicted and (view.state is JobState.STOPPING or view.reason in ("", "PendingEvaluation")):
        return view.evicted
    if view.state is JobState.PENDING and (view.too_wide or view.may_shrink):
        return view.too_wide or "waits for room for its least number of pods"
    if view.state is JobState.PENDING:
        words = reasons.brief(view.reason, view.message) or "not evaluated yet"
        return f"{view.reason}: {words}" if view.reason and words != view.reason else words
    return f"{view.reason}: {view.message}" if view.message else view.reason


#: in the reason of an eviction: other jobs can't become so any more for which the workload waited
_IN_VAIN: Final = "DependencyNeverSatisfied"
#: reason of an eviction -> who deactivated the workload, and why
_DEACTIVATED = {
    "RequeuingLimitExceeded": "Gangline deactivated it: its pods were not ready in time too often",
    "MaximumExecutionTimeExceeded": "Gangline deactivated it: its maximum execution time is over",
    "AdmissionCheck": "Gangline deactivated it: an admission check rejected it",
    _IN_VAIN: "Gangline deactivated it: it waited in vain for other jobs",
}


def deactivated(view: WorkloadView) -> str:
    """The sentence that says who made a workload inactive, and why."""
    if view.reason == HELD:
        return "it is held, and does not start before it is released"
    cause = next((words for key, words in _DEACTIVATED.items() if key in view.reason), "")
    if cause:
        return f"{cause} ({view.message})" if view.message else cause
    return "a user deactivated it: spec.active of its Workload is false, so it is not queued"


#: reason of a job without a Workload -> what helps
_OUTSIDE = {
    "KindNotSupported": "a job of a kind that Gangline queues, such as a Job, a JobSet or a GPUJob",
    "KindNotEnabled": "an administrator to list the kind in integrations.frameworks of the configuration, and a restart",
    "NamespaceNotManaged": "another namespace, or an administrator to have this one selected in the configuration",
    "LeftAlone": "nothing: the job takes no room of its own",
    "CannotBeQueued": "to create what is missing, or to correct the job",
    "NoWorkloadYet": "nothing: it happens by itself while an operator runs",
}


def to_do(view: WorkloadView) -> str:
    """One sentence about what has to be done for a workload; "" for a job that waits, runs or has ended."""
    kind = view.job_kind.lower()
    if view.hidden:
        return ""
    if view.reason == "NoQueue":
        return f"kubectl label {kind} {view.job_name} -n {view.namespace} {names.QUEUE_NAME}=QUEUE, to have it queued"
    if view.reason == HELD:
        return f"gangline release {view.job} -n {view.namespace}"
    if view.state is JobState.INACTIVE:
        activate = """-p '{"spec":{"active":true}}'"""
        first = (
            f"to correct or remove the annotation {names.AFTER} of the job, then " if _IN_VAIN in view.reason else ""
        )
        return (
            f"{first}kubectl patch workload {view.name} -n {view.namespace} --type merge {activate}, to queue it again"
        )
    return _OUTSIDE.get(view.reason, "") if view.state in (JobState.NOT_QUEUED, JobState.NOT_MANAGED) else ""


def amount(value: int, resource: str) -> str:
    return quantity.format(value, resource)


def age(seconds: float) -> str:
    """A duration as kubectl prints it: 42s, 3m12s, 47m, 5h10m, 3d4h, 12d."""
    s = max(0, int(seconds))
    minutes, hours, days = s // 60, s // 3600, s // 86400
    if s < 120:
        return f"{s}s"
    if minutes < 10:
        return f"{minutes}m{s % 60}s" if s % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"


def runtime_text(p50: float, p90: float, flavor: str = "") -> str:
    """`p50 – p90` of a runtime in seconds, with the flavor if it makes a difference."""
    return f"{age(p50)} – {age(p90)}{f' on {flavor}' if flavor else ''}"
