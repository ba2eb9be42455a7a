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
from gangline.console.views import access, asking, history, own_rights
from gangline.control.answers import items
from gangline.control.answers.explanation import Line, explain
from gangline.control.answers.lookup import KINDS, matches, singular
from gangline.control.answers.snapshot import Snapshot, WorkloadView
from gangline.kube.client import ApiClient, Forbidden, NotFound
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
    item, lines = access.run(_why(job, kubeconfig, context, namespace))
    view = items.of_json(item)
    if output == "json":
        told = {**items.as_json(view), "explanation": [[line.label, line.text] for line in lines]}
        click.echo(json.dumps(told, indent=2))
        return
    show(view, lines)


async def _why(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None
) -> tuple[Json, list[Line]]:
    async with access.client(kubeconfig, context) as api:
        where = namespace or api.login.namespace
        try:
            answer = await _asked(api, where, job, "why")
        except own_rights.NoOperator as error:
            view, seen = await _looked_up(api, where, job, error)
            return items.as_json(view), explain(view, seen, time.time())
        return answer["job"], [Line(line["label"], line["text"]) for line in answer["lines"]]


async def _asked(api: ApiClient, namespace: str, job: str, what: str) -> Json:
    """The operator's answer. Raises click.ClickException where there is no such job, with what there is instead."""
    path, query = asking.job_path(namespace, job, what)
    try:
        return await asking.get(api, path, query)
    except asking.NoAnswerError as error:
        if error.missing:
            raise click.ClickException(await _no_workload(api, namespace, job) or error.message) from error
        raise


async def _looked_up(api: ApiClient, namespace: str, job: str, error: Exception) -> tuple[WorkloadView, Snapshot]:
    """The workload, among what the user may read."""
    seen = await own_rights.look(api, namespace, error)
    view = own_rights.find(seen, namespace, job)
    if view is None:
        raise click.ClickException(await _no_workload(api, namespace, job) or _elsewhere(seen, namespace, job))
    return view, seen


async def _history(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None
) -> tuple[WorkloadView, list[history.Event], str]:
    """The workload, its history, and a description of the history's source."""
    async with access.client(kubeconfig, context) as api:
        where = namespace or api.login.namespace
        try:
            answer = await _asked(api, where, job, "story")
            view, events = items.of_json(answer["job"]), history.of_answer(answer)
            why = "it has no history of this workload"
        except own_rights.NoOperator as error:
            view, _ = await _looked_up(api, where, job, error)
            events, why = [], str(error)
        if events:
            return view, events, "from the running operator"
        raw = await api.get(WORKLOADS, view.namespace, view.name)
    return view, history.of_conditions(raw), f"from the Workload's conditions and not from the operator: {why}"


def _show_history(view: WorkloadView, events: list[history.Event], source: str, output: str | None) -> None:
    if output == "json":
        body = {**items.as_json(view), "history": [event.as_json() for event in events], "source": source}
        click.echo(json.dumps(body, indent=2))
        return
    click.echo(f"{view.job} in namespace {view.namespace}, workload {view.name}")
    click.echo(history.rendered(events))
    click.echo(f"({source})", err=True)


async def _no_workload(api: ApiClient, namespace: str, job: str) -> str:
    """What to say of a job that exists without a Workload; "" if there is no such job that the user may read."""
    kind, _, name = job.rpartition("/")
    for resource in [KINDS[k] for k in KINDS if singular(kind) in ("", k)]:
        try:
            return _unqueued(await api.get(resource, namespace, name), resource)
        except (NotFound, Forbidden):
            continue
    return ""


def _elsewhere(seen: Snapshot, namespace: str, job: str) -> str:
    kind, _, name = job.rpartition("/")
    found = sorted({v.namespace for v in seen.workloads if matches(v, singular(kind), name)})
    if found:
        return f"no job {job!r} in namespace {namespace}; there is one in {', '.join(found)}: use -n {found[0]}"
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
