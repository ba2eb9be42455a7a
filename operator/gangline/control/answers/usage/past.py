"""Runs that have ended: how long they waited and ran, on which flavor, with how many GPU-hours; like Slurm's sacct.

From Workloads that still exist, from the history of those that were deleted, which remembers neither kind nor outcome, and from
the record of attempts, which remembers these, and jobs that were cancelled while they held quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gangline.control.answers.sight import Sight
from gangline.control.answers.workloads.snapshot import FINISHED, WorkloadView
from gangline.forecast.history.attempts import CANCELLED, FINAL, JobAttempt
from gangline.forecast.history.runs import Run
from gangline.kube.resources import Json

#: state of a run of which only its end is remembered
ENDED: Final = "Ended"
#: runs of one answer that are read from the history: those that ended last
MOST: Final = 5_000


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that has ended. Times are seconds since the epoch. `started`: its last start, or as much earlier as it had saved of
    the runs before; so the rest of these counts as waiting.
    """

    key: str
    uid: str
    job: str
    kind: str
    user: str
    namespace: str
    local_queue: str
    cluster_queue: str
    flavor: str
    gpus: int
    pods: int
    submitted: float
    started: float | None
    ended: float
    state: str
    message: str = ""
    #: how often it was preempted; None where that is not remembered
    preemptions: int | None = None

    @property
    def seconds(self) -> float | None:
        return max(0.0, self.ended - self.started) if self.started is not None else None


def of_view(view: WorkloadView, run: Run | None, preemptions: int | None = None) -> PastRun | None:
    """The run of a Workload that has ended; `run`: what the engine knows of it."""
    if view.state not in FINISHED:
        return None
    return PastRun(
        key=view.key,
        uid=view.uid,
        job=view.job_name,
        kind=view.job_kind,
        user=view.user or (run.user if run is not None else ""),
        namespace=view.namespace,
        local_queue=view.queue,
        cluster_queue=view.cluster_queue,
        flavor=run.flavor if run is not None else ",".join(view.flavors),
        gpus=view.gpus,
        pods=view.pods,
        submitted=view.created,
        started=run.start if run is not None else None,
        ended=view.since,
        state=str(view.state),
        message=view.message,
        preemptions=preemptions,
    )


def of_run(run: Run, cluster_queue: str) -> PastRun | None:
    """A run that the history remembers."""
    if run.finish is None:
        return None
    return PastRun(
        key=f"{run.namespace}/{run.name}",
        uid=run.uid,
        job=run.name,
        kind="",
        user=run.user,
        namespace=run.namespace,
        local_queue=run.queue,
        cluster_queue=cluster_queue,
        flavor=run.flavor,
        gpus=run.gpus,
        pods=run.pods,
        submitted=run.submit,
        started=run.start,
        ended=run.finish,
        state=ENDED,
    )


def merged(existing: Iterable[PastRun], remembered: Iterable[PastRun], since: float) -> list[PastRun]:
    """The runs that ended since `since`, each once, those that ended last first."""
    found = {run.uid: run for run in remembered if run.ended >= since}
    for run in existing:
        if run.ended >= since:
            earlier = found.get(run.uid)
            found[run.uid] = run if run.started is not None or earlier is None else _with_start(run, earlier)
    return sorted(found.values(), key=lambda run: (-run.ended, run.uid))


def with_attempts(runs: Iterable[PastRun], attempts: Iterable[JobAttempt], since: float) -> list[PastRun]:
    """The runs with what the record of attempts knows besides: of deleted jobs the kind and the outcome, and cancelled jobs."""
    found = {run.uid: run for run in runs}
    for each in attempts:
        if each.end not in FINAL or each.ended is None or each.ended < since:
            continue
        run = found.get(each.uid)
        if run is None:
            found[each.uid] = _of_attempt(each, each.ended)
        elif run.state == ENDED:
            found[each.uid] = replace(run, kind=each.job_kind, state=each.end, message=each.text)
        elif each.end == CANCELLED:
            found[each.uid] = replace(run, state=each.end)
    return sorted(found.values(), key=lambda run: (-run.ended, run.uid))


def _of_attempt(attempt: JobAttempt, ended: float) -> PastRun:
    return PastRun(
        key=f"{attempt.namespace}/{attempt.workload}",
        uid=attempt.uid,
        job=attempt.job_name,
        kind=attempt.job_kind,
        user=attempt.user,
        namespace=attempt.namespace,
        local_queue=attempt.local_queue,
        cluster_queue=attempt.cluster_queue,
        flavor=attempt.flavor,
        gpus=attempt.gpus,
        pods=attempt.pods,
        submitted=attempt.submitted,
        started=attempt.started,
        ended=ended,
        state=attempt.end,
        message=attempt.text,
    )


def _with_start(run: PastRun, remembered: PastRun) -> PastRun:
    return replace(run, started=remembered.started, flavor=run.flavor or remembered.flavor)


def rows(runs: Iterable[PastRun], sight: Sight) -> Iterator[Json]:
    """The runs as JSON, as the asker may see them."""
    for run in runs:
        visible = sight.sees(run.namespace)
        label = sight.label(run.key)
        seconds = run.seconds
        yield {
            "metadata": {"namespace": run.namespace, "name": run.job} if visible else {"name": label},
            "hidden": not visible,
            "namespace": run.namespace if visible else "",
            "jobName": run.job if visible else label,
            "jobKind": run.kind if visible else "",
            "user": run.user if visible else "",
            "localQueue": run.local_queue if visible else "",
            "clusterQueue": sight.queue_name(run.cluster_queue),
            "flavor": run.flavor,
            "gpus": run.gpus,
            "pods": run.pods,
            "submitted": run.submitted,
            "started": run.started,
            "ended": run.ended,
            "waitedSeconds": max(0.0, run.started - run.submitted) if run.started is not None else None,
            "ranSeconds": seconds,
            "gpuHours": round(run.gpus * seconds / 3600, 3) if seconds is not None else None,
            "state": run.state if visible else ENDED,
            "message": run.message if visible else "",
            "preemptions": run.preemptions,
        }
