"""`gangline plan`: draws running and expected workloads as bars over time."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from gangline.console.commands.forecast import Span
from gangline.console.views import access, asking, own_rights
from gangline.control.answers.words import age
from gangline.kube.resources import Json

#: characters of the bars: a running workload, an expected one, and one that goes beyond the right edge
RUNS, WILL_RUN, PAST_EDGE = "█", "▒", "▶"
LEAST_WIDTH: Final = 20
#: maximum number of rows drawn; JSON has all
MOST_ROWS: Final = 60


@click.command("plan")
@access.cluster_options
@click.option("-q", "--cluster-queue", default=None, help="Only this ClusterQueue.")
@click.option(
    "--horizon", type=Span(), default="24h", show_default=True, help="How far to look ahead, such as 90m, 24h or 7d."
)
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    cluster_queue: str | None,
    horizon: float,
    output: str | None,
) -> None:
    """Draw which workloads run and when pending ones will, assuming median forecast runtimes and no further submissions."""
    runs = access.run(_runs(kubeconfig, context, namespace, cluster_queue, horizon))
    if output == "json":
        click.echo(json.dumps([_as_json(run) for run in runs], indent=2))
        return
    if not runs:
        click.echo("No workload is running or expected to start within the horizon.", err=True)
        return
    width = shutil.get_terminal_size((120, 24)).columns
    for line in draw(runs, time.time(), horizon, width):
        click.echo(line)


async def _runs(
    kubeconfig: Path | None, context: str | None, namespace: str | None, cluster_queue: str | None, horizon: float
) -> list[Json]:
    query: dict[str, str | bool | int] = {"horizonSeconds": max(1, round(horizon))}
    query["clusterQueue"] = cluster_queue or ""
    async with access.client(kubeconfig, context) as api:
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
    return [run for run in found if namespace is None or run["metadata"].get("namespace") == namespace]


def draw(runs: Sequence[Json], now: float, horizon: float, width: int) -> list[str]:
    """One line per run, sorted by queue and start. The time axis ends with the last run or at `horizon` (seconds)."""
    span = min(horizon, max(60.0, max(run["to"] for run in runs) - now))
    names = [f"{run['clusterQueue']}  {run['job']}  {run['gpus'] or '–'}" for run in runs]
    room = max(map(len, names))
    columns = max(LEAST_WIDTH, width - room - 2)
    lines = [f"{'':{room}}  {_scale(span, columns)}"]
    order = sorted(zip(runs, names, strict=True), key=lambda pair: (pair[0]["clusterQueue"], pair[0]["from"]))
    for run, name in order[:MOST_ROWS]:
        lines.append(f"{name:{room}}  {_bar(run, now, span, columns)}")
    if len(order) > MOST_ROWS:
        lines.append(f"… and {len(order) - MOST_ROWS} more (-o json has all)")
    return lines


def _bar(run: Json, now: float, span: float, columns: int) -> str:
    first = max(0, round((run["from"] - now) / span * columns))
    last = round((run["to"] - now) / span * columns)
    mark = RUNS if run["from"] <= now else WILL_RUN
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
        "clusterQueue": run["clusterQueue"],
        "from": _iso(run["from"]),
        "to": _iso(run["to"]),
        "after": run["after"],
    }


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
