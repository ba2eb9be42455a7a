"""`gangline why JOB`: why a job waits, who holds what it needs, and what would have to happen."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gangline.api import names
from gangline.console.views import access
from gangline.console.views.json_rows import as_json
from gangline.console.views.lookup import KINDS, find, is_meant, singular
from gangline.console.views.snapshot import Snapshot, WorkloadView
from gangline.console.views.why_text import Line, explain
from gangline.kube.client import ApiClient, NotFound
from gangline.kube.resources import Json, Resource


@click.command("why")
@click.argument("job", metavar="JOB")
@access.cluster_options
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def command(job: str, kubeconfig: Path | None, context: str | None, namespace: str | None, output: str | None) -> None:
    """Say why JOB waits (or what it does). JOB is a name, kind/name (job/x, gpujob/x) or a Workload's name."""
    view, lines = access.run(_why(job, kubeconfig, context, namespace))
    if output == "json":
        click.echo(json.dumps({**as_json(view), "explanation": [[line.label, line.text] for line in lines]}, indent=2))
        return
    show(view, lines)


async def _why(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None
) -> tuple[WorkloadView, list[Line]]:
    async with access.client(kubeconfig, context) as api:
        wanted = namespace or api.login.namespace
        seen = await access.look(api, wanted)
        view = find(seen, wanted, job)
        if view is None:
            raise click.ClickException(await _no_workload(api, seen, wanted, job))
    return view, explain(view, seen, time.time())


async def _no_workload(api: ApiClient, seen: Snapshot, namespace: str, job: str) -> str:
    """Why there is nothing to explain: no such job, another namespace, or a job that names no queue."""
    kind, _, name = job.rpartition("/")
    for resource in [KINDS[k] for k in KINDS if singular(kind) in ("", k)]:
        try:
            return _unqueued(await api.get(resource, namespace, name), resource)
        except NotFound:
            continue
    elsewhere = sorted({v.namespace for v in seen.workloads if is_meant(v, singular(kind), name)})
    if elsewhere:
        return f"no job {job!r} in namespace {namespace}; there is one in {', '.join(elsewhere)}: use -n {elsewhere[0]}"
    return f"no job {job!r} in namespace {namespace}"


def _unqueued(obj: Json, resource: Resource) -> str:
    metadata = obj["metadata"]
    named = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}.get(names.QUEUE_NAME)
    what = f"{resource.kind} {metadata['namespace']}/{metadata['name']}"
    if not named:
        return f"{what} names no queue (label {names.QUEUE_NAME}), so Gangline leaves it alone"
    return f"{what} names queue {named!r} but has no Workload yet: is the operator running? (`gangline doctor`)"


def show(view: WorkloadView, lines: list[Line]) -> None:
    """Aligned lines; Kueue's own message last, for those who know it."""
    told = [*lines, Line("message", view.message)] if view.message else lines
    labels = ["" if i and told[i - 1].label == line.label else line.label for i, line in enumerate(told)]
    title = f"{view.job} in namespace {view.namespace}, workload {view.name}"
    console = Console(highlight=False)
    if not console.is_terminal:  # a pipe gets one line per fact, never wrapped
        width = max(map(len, labels))
        facts = (f"  {label.ljust(width)}  {line.text}" for label, line in zip(labels, told, strict=True))
        click.echo("\n".join([title, *facts]))
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for label, line in zip(labels, told, strict=True):
        grid.add_row(f"  {label}", Text(line.text))
    console.print(Text(title, style="bold"), grid)
