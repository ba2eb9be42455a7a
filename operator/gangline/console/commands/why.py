"""`gangline why JOB`: why a job is pending, which workloads hold the resources it needs, and what has to change."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gangline.api import names
from gangline.console.views import access, history, reach
from gangline.console.views.json_rows import as_json
from gangline.console.views.lookup import KINDS, find, matches, singular
from gangline.console.views.snapshot import Snapshot, WorkloadView
from gangline.console.views.why_text import Line, explain
from gangline.kube.client import ApiClient, NotFound
from gangline.kube.resources import WORKLOADS, Json, Resource


@click.command("why")
@click.argument("job", metavar="JOB")
@access.cluster_options
@click.option("--history", "with_history", is_flag=True, help="Show the job's past state changes and their causes.")
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def command(
    job: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    with_history: bool,
    output: str | None,
) -> None:
    """Explain why JOB is pending (or its state). JOB is a name, kind/name (job/x, gpujob/x) or a Workload's name."""
    if with_history:
        _show_history(*access.run(_history(job, kubeconfig, context, namespace)), output)
        return
    view, lines = access.run(_why(job, kubeconfig, context, namespace))
    if output == "json":
        click.echo(json.dumps({**as_json(view), "explanation": [[line.label, line.text] for line in lines]}, indent=2))
        return
    show(view, lines)


async def _why(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None
) -> tuple[WorkloadView, list[Line]]:
    async with access.client(kubeconfig, context) as api:
        view, seen = await _looked_up(api, job, namespace)
    return view, explain(view, seen, time.time())


async def _looked_up(api: ApiClient, job: str, namespace: str | None) -> tuple[WorkloadView, Snapshot]:
    wanted = namespace or api.login.namespace
    seen = await access.look(api, wanted)
    view = find(seen, wanted, job)
    if view is None:
        raise click.ClickException(await _no_workload(api, seen, wanted, job))
    return view, seen


async def _history(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None
) -> tuple[WorkloadView, list[history.Event], str]:
    """The workload, its history, and a description of the history's source."""
    async with access.client(kubeconfig, context) as api:
        view, _ = await _looked_up(api, job, namespace)
        answer = await reach.ask(api, f"/story/{view.namespace}/{view.name}")
        if answer is not None and answer.get("story"):
            return view, history.of_answer(answer), "from the running operator"
        why = "it has no history of this workload" if answer is not None else "it could not be reached"
        raw = await api.get(WORKLOADS, view.namespace, view.name)
    return view, history.of_conditions(raw), f"from the Workload's conditions and not from the operator: {why}"


def _show_history(view: WorkloadView, events: list[history.Event], source: str, output: str | None) -> None:
    if output == "json":
        body = {**as_json(view), "history": [event.as_json() for event in events], "source": source}
        click.echo(json.dumps(body, indent=2))
        return
    click.echo(f"{view.job} in namespace {view.namespace}, workload {view.name}")
    click.echo(history.rendered(events))
    click.echo(f"({source})", err=True)


async def _no_workload(api: ApiClient, seen: Snapshot, namespace: str, job: str) -> str:
    """Error message for a job without a Workload: no such job, another namespace, or no queue label."""
    kind, _, name = job.rpartition("/")
    for resource in [KINDS[k] for k in KINDS if singular(kind) in ("", k)]:
        try:
            return _unqueued(await api.get(resource, namespace, name), resource)
        except NotFound:
            continue
    elsewhere = sorted({v.namespace for v in seen.workloads if matches(v, singular(kind), name)})
    if elsewhere:
        return f"no job {job!r} in namespace {namespace}; there is one in {', '.join(elsewhere)}: use -n {elsewhere[0]}"
    return f"no job {job!r} in namespace {namespace}"


def _unqueued(obj: Json, resource: Resource) -> str:
    metadata = obj["metadata"]
    named = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}.get(names.QUEUE_NAME)
    what = f"{resource.kind} {metadata['namespace']}/{metadata['name']}"
    if not named:
        return f"{what} names no queue (label {names.QUEUE_NAME}), so Gangline does not manage it"
    return f"{what} names queue {named!r} but has no Workload yet: is the operator running? (`gangline doctor`)"


def show(view: WorkloadView, lines: list[Line]) -> None:
    """Print aligned lines, with Kueue's own message last."""
    rows = [*lines, Line("message", view.message)] if view.message else lines
    labels = ["" if i and rows[i - 1].label == line.label else line.label for i, line in enumerate(rows)]
    title = f"{view.job} in namespace {view.namespace}, workload {view.name}"
    console = Console(highlight=False)
    if not console.is_terminal:  # in a pipe: one unwrapped line per fact
        width = max(map(len, labels))
        facts = (f"  {label.ljust(width)}  {line.text}" for label, line in zip(labels, rows, strict=True))
        click.echo("\n".join([title, *facts]))
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for label, line in zip(labels, rows, strict=True):
        grid.add_row(f"  {label}", Text(line.text))
    console.print(Text(title, style="bold"), grid)
