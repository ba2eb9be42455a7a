"""`gangline plan`: draws running and expected workloads as bars over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from gangline.console.options import Span
from gangline.console.output import clock, presenting
from gangline.console.output.columns import Column, Listing
from gangline.console.output.layout import clipped, shortened
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, jobs, own_rights, quota_plans, windows
from gangline.control.answers.workloads.snapshot import JobState
from gangline.control.answers.workloads.words import age
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

_Column: TypeAlias = Column[Json]

#: characters of the bars: a running workload, an expected one, and one that goes beyond the right edge
RUNS, WILL_RUN, PAST_EDGE = "█", "▒", "▶"
LEGEND: Final = f"{RUNS} runs   {WILL_RUN} is expected to run   {PAST_EDGE} goes on, or begins, beyond the right edge"
LEAST_WIDTH: Final = 20
#: characters before a bar: a queue, a job and its GPUs
LEAST_NAME: Final = 30
#: maximum number of rows drawn; JSON has all
MOST_ROWS: Final = 60
#: runs of which is said how a search has found their places; JSON has all
MOST_SEARCHED: Final = 5


@click.command("plan")
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces: the default, unless -n is given.")
@click.option(
    "-q", "--cluster-queue", default=None, help="Only this ClusterQueue.", shell_complete=completing.cluster_queues
)
@click.option(
    "--horizon", type=Span(), default="24h", show_default=True, help="How far to look ahead, such as 90m, 24h or 7d."
)
@presenting.options("user", "state", "queue")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str | None,
    horizon: float,
    shape: Presentation,
) -> None:
    """Draw which workloads run and when pending ones will, assuming median forecast runtimes and no further submissions.

    QUEUE is the ClusterQueue, with -n the LocalQueue. With -o wide: the same as a table.
    """
    if all_namespaces and namespace:
        raise click.UsageError("-A and -n are two answers to one question: choose one")

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            reserved, plans = await windows.reservations(api), await quota_plans.quota_plans(api)
            await presenting.present(
                listing(horizon, reserved, plans, own=namespace is not None),
                shape,
                lambda: _runs(api, namespace, cluster_queue, horizon),
            )

    access.run(work())


def listing(
    horizon: float, reserved: Sequence[Json] = (), plans: Sequence[Json] = (), *, own: bool = False
) -> Listing[Json]:
    """One row per run, drawn as bars unless another form is wanted; then windows of Reservations and changes of quotas by
    QuotaPlans within the horizon.

    `own`: the runs are of one namespace, whose LocalQueues are named.
    """

    def remarks(runs: Sequence[Json]) -> list[str]:
        now = time.time()
        until = now + horizon
        return [*_remarks(runs), *windows.lines(reserved, now, until), *quota_plans.changes(plans, now, until)]

    return Listing(
        columns=(
            _Column("QUEUE", lambda run, _: _queue(run, own=own), least=12),
            _Column("JOB", lambda run, _: run["job"], least=20),
            _Column("USER", lambda run, _: run.get("user") or "", rank=3, least=8, sparse=True),
            _Column("GPUS", lambda run, _: str(run["gpus"] or "–"), right=True, key=lambda run, _: run["gpus"]),
            _Column("FROM", lambda run, now: clock.when(run["from"], now), key=lambda run, _: run["from"]),
            _Column("TO", lambda run, now: clock.when(run["to"], now), rank=1, key=lambda run, _: run["to"]),
            _Column("LASTS", lambda run, _: age(_length(run)), right=True, key=lambda run, _: _length(run)),
            _Column("STATE", lambda run, _: _state(run), rank=2),
            _Column("AFTER", lambda run, _: ", ".join(run["after"])),
        ),
        as_json=_as_json,
        instants=("from", "to", "fallenBack.since"),
        name=lambda run: run["job"],
        empty="No workload is running or expected to start within the horizon.",
        user=lambda run: tuple(name for name in (run.get("user"), run["metadata"].get("namespace")) if name),
        state=lambda run: (_state(run),),
        queue=lambda run: tuple(name for name in (run.get("queue"), run["clusterQueue"]) if name),
        states=(str(JobState.RUNNING), str(JobState.PENDING)),
        drawing=lambda runs, now, width: draw(runs, now, horizon, width, own=own),
        remarks=remarks,
    )


def _remarks(runs: Sequence[Json]) -> list[str]:
    searched = [f"{run['job']}: {run['searched']}" for run in runs if run.get("searched")]
    shown, more = searched[:MOST_SEARCHED], len(searched) - MOST_SEARCHED
    if more > 0:
        shown.append(f"A search has found the places of {more} more (-o json has all)")
    return [*jobs.floor_lines(runs, time.time()), *jobs.record_lines(runs), *shown]


def _queue(run: Json, *, own: bool) -> str:
    return (own and run.get("queue")) or run["clusterQueue"]


def _state(run: Json) -> str:
    return run.get("state") or ""


def _length(run: Json) -> float:
    return run["to"] - run["from"]


async def _runs(api: ApiClient, namespace: str | None, cluster_queue: str | None, horizon: float) -> list[Json]:
    query: dict[str, str | bool | int] = {"horizonSeconds": max(1, round(horizon))}
    query["clusterQueue"] = cluster_queue or ""
    own = f"/namespaces/{namespace or api.login.namespace}/plannedruns"
    try:
        try:
            found = await asking.listed(api, own if namespace else "/plannedruns", query)
        except asking.NotAllowedError:
            if namespace:
                raise
            found = await asking.listed(api, own, query)
    except own_rights.NoOperator as error:
        from gangline.console.views import own_answers

        found = await own_answers.plan(api, cluster_queue, horizon, error)
    runs = [run for run in found if namespace is None or run["metadata"].get("namespace") == namespace]
    return sorted(runs, key=lambda run: (run["clusterQueue"], run["from"]))


def draw(runs: Sequence[Json], now: float, horizon: float, width: int, *, own: bool = False) -> list[str]:
    """One line per run, in their order, and a legend. The time axis ends with the last run or at `horizon` (seconds)."""
    span = min(horizon, max(60.0, max(run["to"] for run in runs) - now))
    most = max(LEAST_NAME, width // 2)
    names = [_label(run, most, own=own) for run in runs]
    room = max(map(len, names))
    columns = max(LEAST_WIDTH, width - room - 2)
    lines = [f"{'':{room}}  {_scale(span, columns)}"]
    for run, name in list(zip(runs, names, strict=True))[:MOST_ROWS]:
        lines.append(f"{name:{room}}  {_bar(run, now, span, columns)}")
    if len(runs) > MOST_ROWS:
        lines.append(f"… and {len(runs) - MOST_ROWS} more (-o json has all)")
    return [*lines, clipped(LEGEND, width)]


def _label(run: Json, most: int, *, own: bool) -> str:
    """Queue, job and GPUs in so many characters; the job keeps more of its name."""
    queue, job, gpus = _queue(run, own=own), run["job"], str(run["gpus"] or "–")
    room = most - len(gpus) - 4
    queue = shortened(queue, max(room // 3, room - len(job)))
    return f"{queue}  {shortened(job, room - len(queue))}  {gpus}"


def _bar(run: Json, now: float, span: float, columns: int) -> str:
    first = max(0, round((run["from"] - now) / span * columns))
    last = round((run["to"] - now) / span * columns)
    mark = RUNS if _state(run) == JobState.RUNNING else WILL_RUN
    if first >= columns:
        return f"{'':{columns - 1}}{PAST_EDGE}"
    bar = mark * max(1, min(columns, last) - first)
    return " " * first + (bar[:-1] + PAST_EDGE if last > columns else bar)


def _scale(span: float, columns: int) -> str:
    """The time axis: offsets from now, about every 15 columns."""
    ticks = max(1, columns // 15)
    line = ""
    for tick in range(ticks):
        at = f"|{'now' if tick == 0 else '+' + age(span * tick / ticks)}"
        line = f"{line:{round(columns * tick / ticks)}}{at}"
    return line[:columns]


def _as_json(run: Json) -> dict[str, Any]:
    meta = run["metadata"]
    return {
        "workload": meta["name"] if run["hidden"] else f"{meta['namespace']}/{meta['name']}",
        "job": run["job"],
        "user": run.get("user") or "",
        "queue": run.get("queue") or "",
        "state": _state(run),
        "clusterQueue": run["clusterQueue"],
        "gpus": run["gpus"],
        "from": run["from"],
        "to": run["to"],
        "after": run["after"],
        "searched": run.get("searched") or "",
        "fallenBack": run.get("fallenBack"),
    }
