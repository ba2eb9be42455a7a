"""`gangline plan`: draws running and expected workloads as bars over time."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gangline.console.commands.forecast import Span
from gangline.console.views import access, world
from gangline.console.views.snapshot import WorkloadView
from gangline.console.views.table import age
from gangline.console.views.times import view_of
from gangline.console.views.world import ClusterFacts
from gangline.engine import Stretch, accelerators

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
    here = access.run(_load(kubeconfig, context))
    seen = here.outlook(horizon=round(horizon * 1000), seconds=0.0)
    stretches = [s for s in seen.stretches if cluster_queue is None or s.cluster_queue == cluster_queue]
    views = {f"{view.namespace}/{view.name}": view for view in view_of(here).workloads}
    if namespace is not None:
        stretches = [s for s in stretches if s.workload.startswith(f"{namespace}/")]
    if output == "json":
        click.echo(json.dumps([_as_json(stretch, views) for stretch in stretches], indent=2))
        return
    if not stretches:
        click.echo("No workload is running or expected to start within the horizon.", err=True)
        return
    width = shutil.get_terminal_size((120, 24)).columns
    for line in draw(here, stretches, views, horizon, width):
        click.echo(line)


async def _load(kubeconfig: Path | None, context: str | None) -> ClusterFacts:
    async with access.client(kubeconfig, context) as api:
        return await world.load(api)


def draw(
    here: ClusterFacts, stretches: Sequence[Stretch], views: Mapping[str, WorkloadView], horizon: float, width: int
) -> list[str]:
    """One line per run, sorted by queue and start. The time axis ends with the last run or at `horizon` (seconds)."""
    now = here.now / 1000
    span = min(horizon, max(60.0, max(s.ended / 1000 for s in stretches) - now))
    names = [_label(stretch, views) for stretch in stretches]
    room = max(map(len, names))
    columns = max(LEAST_WIDTH, width - room - 2)
    lines = [f"{'':{room}}  {_scale(span, columns)}"]
    order = sorted(zip(stretches, names, strict=True), key=lambda pair: (pair[0].cluster_queue, pair[0].began))
    for stretch, name in order[:MOST_ROWS]:
        lines.append(f"{name:{room}}  {_bar(stretch, now, span, columns)}")
    if len(order) > MOST_ROWS:
        lines.append(f"… and {len(order) - MOST_ROWS} more (-o json has all)")
    return lines


def _label(stretch: Stretch, views: Mapping[str, WorkloadView]) -> str:
    view = views.get(stretch.workload)
    name = view.job_name if view is not None else stretch.workload
    gpus = sum(accelerators(entry.usage) for entry in stretch.admission.pod_sets)
    return f"{stretch.cluster_queue}  {name}  {gpus or '–'}"


def _bar(stretch: Stretch, now: float, span: float, columns: int) -> str:
    first = max(0, round((stretch.began / 1000 - now) / span * columns))
    last = round((stretch.ended / 1000 - now) / span * columns)
    mark = RUNS if stretch.began / 1000 <= now else WILL_RUN
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


def _as_json(stretch: Stretch, views: Mapping[str, WorkloadView]) -> dict[str, Any]:
    view = views.get(stretch.workload)
    return {
        "workload": stretch.workload,
        "job": view.job_name if view is not None else None,
        "clusterQueue": stretch.cluster_queue,
        "from": _iso(stretch.began),
        "to": _iso(stretch.ended),
        "after": list(stretch.after),
    }


def _iso(millis: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(millis / 1000))
