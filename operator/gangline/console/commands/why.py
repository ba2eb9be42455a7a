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
from gangline.console.commands.queue import as_json
from gangline.console.views import access
from gangline.console.views.snapshot import Snapshot, WorkloadView
from gangline.console.views.why_text import Line, explain
from gangline.kube.client import ApiClient, NotFound
from gangline.kube.resources import GPU_JOBS, JOB_SETS, JOBS, Json, Resource

#: kinds a user may ask about by kind/name, in singular and plural
_KINDS: dict[str, Resource] = {"job": JOBS, "gpujob": GPU_JOBS, "jobset": JOB_SETS}


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


def find(seen: Snapshot, namespace: str, job: str) -> WorkloadView | None:
    """The workload a user means. Raises click.ClickException where that is not one."""
    kind, _, name = job.rpartition("/")
    kind = _singular(kind)
    if kind and kind not in (*_KINDS, "workload") and not any(v.job_kind.lower() == kind for v in seen.workloads):
        raise click.ClickException(f"unknown kind {kind!r} in {job!r}: use {', '.join(_KINDS)} or workload")
    found = [v for v in seen.workloads if v.namespace == namespace and _is_meant(v, kind, name)]
    kinds = sorted({v.job_kind for v in found})
    if len(kinds) > 1:
        raise click.ClickException(
            f"{name!r} is {' and '.join(f'a {k}' for k in kinds)}: say {kinds[0].lower()}/{name}"
        )
    return max(found, key=lambda v: v.created, default=None)


def _is_meant(view: WorkloadView, kind: str, name: str) -> bool:
    by_job = view.job_name == name and kind in ("", view.job_kind.lower())
    return by_job or (view.name == name and kind in ("", "workload"))


def _singular(kind: str) -> str:
    kind = kind.lower().partition(".")[0]
    return {"jobs": "job", "gpujobs": "gpujob", "workloads": "workload", "wl": "workload"}.get(kind, kind)


async def _no_workload(api: ApiClient, seen: Snapshot, namespace: str, job: str) -> str:
    """Why there is nothing to explain: no such job, another namespace, or a job that names no queue."""
    kind, _, name = job.rpartition("/")
    for resource in [_KINDS[k] for k in _KINDS if _singular(kind) in ("", k)]:
        try:
            return _unqueued(await api.get(resource, namespace, name), resource)
        except NotFound:
            continue
    elsewhere = sorted({v.namespace for v in seen.workloads if _is_meant(v, _singular(kind), name)})
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
