"""Accounts: who has which share, what has run, and who would be preempted. Answers for one asker, beside those about jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from gangline.control.answers.sight import Sight
from gangline.control.answers.source import EngineOutlooks, Source
from gangline.control.answers.usage import past, shares
from gangline.control.answers.usage.past import PastRun
from gangline.control.answers.workloads.briefs import Brief
from gangline.control.answers.workloads.snapshot import HOLDING, JobState, WorkloadView, workload_view
from gangline.control.forecasting.run_facts import run_of
from gangline.jobs.base import RuntimeHints
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

#: objects read before other tasks get their turn: about 2 ms
SLICE: Final = 50
#: briefs counted before other tasks get their turn
COUNTED: Final = 500
_NO_HINTS: Final = RuntimeHints()

Routes = Mapping[tuple[str, str], str]


async def tallies(
    source: Source, briefs: Mapping[str, Brief], queues: Collection[str], routes: Routes
) -> shares.Tallies:
    """Jobs and accelerators by LocalQueue and user, in these ClusterQueues, and the labels of jobs that budgets name."""
    counting = shares.Tallying()
    keys = source.budgets.job_label_keys() if source.budgets is not None else ()
    for number, brief in enumerate(briefs.values()):
        if number % COUNTED == COUNTED - 1:
            await asyncio.sleep(0)
        if brief.cluster_queue(routes) not in queues or brief.state not in (*HOLDING, JobState.PENDING):
            continue
        user = source.mirror.user_of(brief.raw)
        labels = source.mirror.labels_of(brief.raw, keys) if keys else None
        counting.note(f"{brief.namespace}/{brief.queue}", user, brief.gpus, labels, holds=brief.state in HOLDING)
    return counting.found


async def ended(
    source: Source, foresight: EngineOutlooks, namespace: str, since: float, routes: Routes
) -> list[PastRun]:
    """Runs of a namespace ("" = of all) that ended at or after `since`, those that ended last first."""
    existing: list[PastRun] = []
    for number, (key, raw) in enumerate(list(source.mirror.workloads.items())):
        if number % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        value = source.mirror.workload_value(key)
        if value is None or not value.finished or namespace not in ("", value.namespace):
            continue
        view = read(source, key, raw, routes)
        job = source.mirror.job_of(raw)
        owner = source.mirror.job(job) if job is not None else None
        run = run_of(value, raw, owner, _NO_HINTS)
        if view is not None and (found := past.of_view(view, run, value.preemptions)) is not None:
            existing.append(found)
    remembered: list[PastRun] = []
    for number, run in enumerate(await foresight.past(namespace, since, past.MOST)):
        if number % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        if (found := past.of_run(run, routes.get((run.namespace, run.queue), ""))) is not None:
            remembered.append(found)
    return past.merged(existing, remembered, since)


def read(source: Source, key: str, raw: WorkloadObject, routes: Routes) -> WorkloadView | None:
    """A Workload with its user; None for one that can't be read, which costs no other."""
    try:
        view = workload_view(raw, routes)
    except Exception:
        return None
    return replace(view, user=source.mirror.user_of(raw))


def user_of_workload(source: Source, key: str) -> str:
    """The user of a Workload, by its key; "" for a Workload that is gone."""
    raw = source.mirror.workloads.get(key)
    return source.mirror.user_of(raw) if raw is not None else ""


async def would_preempt(
    source: Source, foresight: EngineOutlooks, view: WorkloadView, sight: Sight, jobs: Mapping[str, str], routes: Routes
) -> Json:
    """The jobs that a waiting job would preempt now, were it next, each with what it would lose."""
    preemption = await foresight.preemption(view.key)
    rows: list[Json] = []
    for each in preemption.victims:
        raw = source.mirror.workloads.get(each.workload)
        seen = read(source, each.workload, raw, routes) if raw is not None else None
        if seen is None:
            continue
        shown = sight.workload(seen)
        rows.append(
            {
                "metadata": {"name": shown.name}
                if shown.hidden
                else {"namespace": shown.namespace, "name": shown.name},
                "hidden": shown.hidden,
                "namespace": shown.namespace,
                "job": shown.job,
                "user": shown.user,
                "clusterQueue": shown.cluster_queue,
                "priority": None if shown.hidden else shown.priority,
                "gpus": seen.gpus,
                "reason": each.reason,
                "ranSeconds": max(0.0, source.now() / 1000 - seen.since),
                "unsavedSeconds": each.unsaved,
                "lostGpuHours": round(seen.gpus * each.unsaved / 3600, 3),
            }
        )
    return {"starts": preemption.starts, "victims": rows, "obstacle": sight.text(preemption.obstacle, jobs)}
