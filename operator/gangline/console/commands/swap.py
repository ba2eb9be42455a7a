"""`gangline swap`: lists node failures of gangs, the recovery and its duration, from the Workloads' records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gangline.api import names
from gangline.api.read import swap_record
from gangline.api.read.swap_record import Record, RecordedSwap
from gangline.console.views import access, table
from gangline.kube.client import Forbidden
from gangline.kube.resources import WORKLOADS, Json, controller_of

_HEADER = ("NAMESPACE", "JOB", "QUEUE", "AGE", "HOW", "CAUSE", "DECIDED", "CREATED", "RUNNING", "TOTAL", "FROM", "TO")
_TIMES = frozenset({"AGE", "DECIDED", "CREATED", "RUNNING", "TOTAL"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One swap of one gang."""

    namespace: str
    job: str  # kind/name
    workload: str
    queue: str
    swap: RecordedSwap

    def as_json(self) -> dict[str, Any]:
        swap = self.swap
        times = {"detected": swap.detected, "decided": swap.decided, "created": swap.created, "running": swap.running}
        return {
            "namespace": self.namespace,
            "job": self.job,
            "workload": self.workload,
            "queue": self.queue,
            "how": swap.how,
            "cause": swap.cause,
            "from": list(swap.lost),
            "to": list(swap.to),
            "state": "Recovering" if swap.open else "Recovered",
            "times": {stage: _stamp(at) if at is not None else None for stage, at in times.items()},
            "seconds": swap.stages(),
        }


@click.group("swap")
def command() -> None:
    """Node failures of running gangs, and how the gangs recovered."""


@command.command("list")
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Gangs of all namespaces.")
@click.option("--open", "only_open", is_flag=True, help="Only gangs that have not recovered yet.")
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def list_command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    only_open: bool,
    output: str | None,
) -> None:
    """List recoveries from node failures, latest first: the time of each stage and the new nodes."""
    workloads, where = access.run(_workloads(kubeconfig, context, namespace, all_namespaces))
    found = [entry for entry in entries(workloads) if entry.swap.open or not only_open]
    if output == "json":
        click.echo(json.dumps([entry.as_json() for entry in found], indent=2))
    elif not found:
        click.echo(f"No gang {'is recovering' if only_open else 'has lost nodes'} in {where}.", err=True)
    else:
        table.echo(rows(found, time.time()))


@command.command("show")
@click.argument("job", metavar="JOB")
@access.cluster_options
def show_command(job: str, kubeconfig: Path | None, context: str | None, namespace: str | None) -> None:
    """Show every recorded recovery of JOB: a name, kind/name or a Workload's name."""
    workloads, where = access.run(_workloads(kubeconfig, context, namespace, False))
    matching = [
        workload for workload in workloads if job in (_job(workload), _job(workload).partition("/")[2], _name(workload))
    ]
    if not matching:
        raise click.ClickException(f"no job {job!r} with a Workload in {where}")
    for workload in matching:
        click.echo("\n".join(story(workload)))


async def _workloads(
    kubeconfig: Path | None, context: str | None, namespace: str | None, everywhere: bool
) -> tuple[list[Json], str]:
    async with access.client(kubeconfig, context) as api:
        wanted = namespace or api.login.namespace
        scope = None if everywhere else wanted
        try:
            found = (await api.list(WORKLOADS, scope)).items
        except Forbidden:
            found, everywhere = (await api.list(WORKLOADS, wanted)).items, False
    return found, "all namespaces" if everywhere else f"namespace {wanted} (-A: all)"


def entries(workloads: Iterable[Json]) -> list[Entry]:
    """All recorded swaps, latest first."""
    found = [
        Entry(_meta(workload)["namespace"], _job(workload), _name(workload), _queue(workload), swap)
        for workload in workloads
        for swap in swap_record.of(workload).log
    ]
    return sorted(found, key=lambda entry: (-entry.swap.detected, entry.namespace, entry.workload))


def rows(found: Sequence[Entry], now: float) -> table.Rows:
    cells = tuple(
        (
            *(entry.namespace, entry.job, entry.queue, table.age(now - entry.swap.detected / 1000)),
            *(entry.swap.how, entry.swap.cause or "–"),
            *(_seconds(entry.swap.stages().get(stage)) for stage in ("decided", "created", "running", "total")),
            *(few(entry.swap.lost), few(entry.swap.to) if not entry.swap.open else "…"),
        )
        for entry in found
    )
    styles = tuple("yellow" if entry.swap.open else "" for entry in found)
    return table.Rows(_HEADER, cells, styles, _TIMES)


def story(workload: Json) -> list[str]:
    """The recorded swaps of one gang as text lines, oldest first."""
    record: Record = swap_record.of(workload)
    lines = [f"{_job(workload)} in namespace {_meta(workload)['namespace']}, workload {_name(workload)}"]
    lines.append(f"  {record.swaps} node(s) replaced while it ran, restarted {record.attempt} time(s)")
    for swap in record.log:
        lines.append(f"  {_stamp(swap.detected)}  {swap.cause}: lost {', '.join(swap.lost) or 'pods'}")
        lines += [f"    {_WORDS[stage]} after {seconds:.3f} s" for stage, seconds in swap.stages().items()]
        if swap.open:
            lines.append("    not recovered yet")
        elif swap.to:
            lines.append(f"    now on {', '.join(swap.to)}")
    return lines


_WORDS = {
    "decided": "decided",
    "created": "all pods existed",
    "running": "all pods were ready",
    "total": "recovered",
}


def few(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:3]) + (f" +{len(nodes) - 3}" if len(nodes) > 3 else "") if nodes else "–"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}s"


def _stamp(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _meta(workload: Json) -> Json:
    return workload["metadata"]


def _name(workload: Json) -> str:
    return _meta(workload)["name"]


def _job(workload: Json) -> str:
    owner = controller_of(workload)
    return f"{owner['kind'].lower()}/{owner['name']}" if owner else f"workload/{_name(workload)}"


def _queue(workload: Json) -> str:
    admission = (workload.get("status") or {}).get("admission") or {}
    labels = _meta(workload).get("labels") or {}
    return (
        admission.get("clusterQueue") or labels.get(names.CLUSTER_QUEUE_LABEL) or workload["spec"].get("queueName", "")
    )
