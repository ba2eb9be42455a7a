"""A Workload and its job as the run that the forecaster learns from. Pure."""

from __future__ import annotations

import math
from typing import Any

from gangline.api import names
from gangline.api.read import conditions
from gangline.engine import accelerators, model
from gangline.forecast.history.runs import MIN_SECONDS, Run, from_workload
from gangline.jobs.base import RuntimeHints as Hints
from gangline.kube.resources import Json
from gangline.objects import JobObject, WorkloadObject


def run_of(workload: model.Workload, raw: WorkloadObject, job: JobObject | None, hints: Hints) -> Run:
    """The run as it is known now; `raw` is the Workload as stored in the API server, `job` its owner, if known."""
    container = _main_container(raw, workload)
    limits = [limit for limit in (hints.limit, workload.max_execution_seconds) if limit]
    return from_workload(
        workload,
        name=_job_name(raw),
        user=(job or raw).labels.get(names.USER, ""),
        image=container.get("image") or "",
        command=[*_words(container.get("command")), *_words(container.get("args"))],
        limit=min(limits, default=None),
        hint=hints.expected,
        finished_at=finished_at(raw) if workload.finished else None,
    )


def finished_at(raw: WorkloadObject) -> float | None:
    """The time at which the workload's job ended, in Unix seconds; None while it has not."""
    row = raw.true_condition(names.FINISHED)
    return conditions.millis_of(row.get("lastTransitionTime")) / 1000 if row is not None else None


def least(workload: model.Workload) -> float:
    """The seconds that the workload takes at least, as its earlier runs show, work that it saved included.

    Of several runs from the start only the sum is known. One that was stopped before it did anything shows nothing.
    """
    past = workload.past / 1000
    if workload.checkpoint is None and workload.preemptions:
        return past / workload.preemptions
    return past if workload.saved else 0.0


def log_of(seconds: float) -> float:
    """The natural logarithm of a runtime, which counts as at least a second."""
    return math.log(max(seconds, MIN_SECONDS))


def _job_name(raw: WorkloadObject) -> str:
    """The name of the job, or of the object that serves: names of its Workloads differ from one time to the next."""
    owner = raw.controller
    return owner["name"] if owner is not None else raw.annotations.get(names.JOB_OWNER_NAME) or raw.name


def _main_container(raw: WorkloadObject, workload: model.Workload) -> Json:
    """The first container of the pod set that requests most: a gang's workers show its purpose."""
    pod_sets = raw.pod_sets
    if not pod_sets:
        return {}
    sizes = [accelerators(pods.requests) * pods.count for pods in workload.pod_sets]
    largest = max(range(len(pod_sets)), key=lambda i: sizes[i]) if len(sizes) == len(pod_sets) else 0
    spec = (pod_sets[largest].get("template") or {}).get("spec") or {}
    return next(iter(spec.get("containers") or ()), {})


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []
