"""`gangline audit`: repeats the decisions of an operator's audit record and checks the promised start times; without a record,
how reserved jobs have fared under the leading operator."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from gangline.console.output import presenting
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import document
from gangline.console.output.layout import Rows, plain
from gangline.console.output.presenting import Shape
from gangline.console.views import access, asking
from gangline.control.answers.workloads.words import age
from gangline.control.audit import audit_check
from gangline.control.audit.audit_check import Outcome
from gangline.control.audit.fact_codec import FactError
from gangline.engine import BACKFILL, BUDGET, EARLY_END
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json


@click.command("audit")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@access.cluster_options
@presenting.options("queue")
def command(
    file: Path | None, kubeconfig: Path | None, context: str | None, namespace: str | None, shape: Shape
) -> None:
    """Replay the audit record FILE (`gangline operator --audit FILE`) through the engine and compare the decisions.

    Exit status 0: every round of decisions equals the recorded one, and no workload that was started early delayed a
    reserved head against the policy of its queue. Otherwise 1. Rotated files (FILE.1, FILE.2, …) are read too. The last line
    of the output is JSON; with -o json it is all of it.

    Without FILE the leading operator tells how the reserved jobs of its queues have fared since it began to lead.
    """
    if file is None:
        access.run(_ask(kubeconfig, context, namespace, shape))
        return
    presenting.only_a_document(shape, "a record")
    if kubeconfig or context or namespace:
        raise click.UsageError("FILE is read here: --kubeconfig, --context and -n belong to the question without it")
    outcome = Outcome()
    try:
        audit_check.check(audit_check.read(audit_check.files(file), outcome), outcome)
    except (FactError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not outcome.runs:
        raise click.ClickException(f"{file}: the record contains no start of an operator run")
    if not shape.format.kind:
        for line in lines(outcome):
            click.echo(line)
    found = outcome.as_json()
    click.echo(document("yaml", found) if shape.format.kind == "yaml" else json.dumps(found))
    if not outcome.holds:
        raise SystemExit(1)


async def _ask(kubeconfig: Path | None, context: str | None, namespace: str | None, shape: Shape) -> None:
    async with access.client(kubeconfig, context) as api:
        await presenting.present(LISTING, shape, lambda: _queues(api, namespace, shape))


async def _queues(api: ApiClient, namespace: str | None, shape: Shape) -> list[Json]:
    """Of all ClusterQueues, or of those to which the namespace's LocalQueues lead; tables have those with reservations."""
    own = f"/namespaces/{namespace or api.login.namespace}/queueaudits"
    try:
        try:
            found = await asking.listed(api, own if namespace else "/queueaudits")
        except asking.NotAllowedError:
            found = await asking.listed(api, own)
    except (asking.NotServedError, asking.NotAllowedError) as error:
        raise click.ClickException(str(error)) from error
    return told(found) if shape.format.kind in ("", "wide") else found


def told(found: Iterable[Json]) -> list[Json]:
    """Of the ClusterQueues, those in which a job had a reservation."""
    return [each for each in found if each["promised"] or each["delaySeconds"]]


def _seconds(causes: Json) -> str:
    return ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in sorted(causes.items()) if seconds) or "–"


#: one row per ClusterQueue
LISTING: Final[Listing[Json]] = Listing(
    columns=(
        Column("QUEUE", lambda each, _: each["clusterQueue"], least=20),
        Column(
            "RESERVED STARTS", lambda each, _: str(each["promised"]), right=True, key=lambda each, _: each["promised"]
        ),
        Column("LATE", lambda each, _: str(each["late"]), right=True, key=lambda each, _: each["late"]),
        Column(
            "LATE BY",
            lambda each, _: f"{each['lateSeconds']:.1f} s",
            right=True,
            key=lambda each, _: each["lateSeconds"],
        ),
        Column("DELAYED BY", lambda each, _: _seconds(each["delaySeconds"])),
    ),
    as_json=lambda each: each,
    name=lambda each: f"clusterqueue/{each['clusterQueue']}",
    empty="No reserved job has started or was delayed since the operator began to lead.",
    queue=lambda each: (each["clusterQueue"],),
)


def lines(outcome: Outcome) -> list[str]:
    """The outcome as text lines."""
    span = age((outcome.last - outcome.first) / 1000)
    rounds = f"{outcome.rounds} rounds of decisions over {span}, from {_time(outcome.first)} to {_time(outcome.last)}"
    report = [f"{rounds}; {outcome.facts} facts, {outcome.runs} run(s) of the operator"]
    if outcome.partial:
        report.append("the record begins within a run; its first entries hold the state at that time")
    report += ["", plain(_decisions(outcome)), "", plain(_heads(outcome)), ""]
    if outcome.differing:
        report.append(f"✗ {outcome.differing} of {outcome.rounds} rounds differ:")
        for difference in outcome.differences:
            report.append(f"    {_time(difference.now)}")
            report += [f"      only recorded: {name}" for name in difference.recorded]
            report += [f"      only in the replay: {name}" for name in difference.repeated]
    else:
        report.append("✓ every decision equals the recorded one")
    if outcome.broken:
        report.append(f"✗ reserved heads were delayed for {outcome.broken:g} s against the policy of their queue")
    elif outcome.revoke:
        report.append("✓ no reserved head was delayed against the policy of its queue")
    return [*report, ""]


def _decisions(outcome: Outcome) -> Rows:
    rows = [(name, str(count)) for name, count in sorted(outcome.decisions.items())]
    rows += [("of these backfilled", str(len(outcome.early))), ("of these revoked", str(len(outcome.revocations)))]
    return Rows(("DECISION", "COUNT"), tuple(rows), (), frozenset({"COUNT"}))


def _heads(outcome: Outcome) -> Rows:
    """One row per queue: the starts and delays of its reserved heads."""
    cells: list[tuple[str, ...]] = []
    for queue in sorted({*outcome.revoke, *outcome.head_delay}):
        started = [head for head in outcome.heads if head.cluster_queue == queue]
        late = [head for head in outcome.late if head.cluster_queue == queue]
        delays = outcome.head_delay.get(queue, {})
        cells.append(
            (
                queue,
                outcome.revoke.get(queue, "–"),
                str(len(started)),
                str(len(late)),
                f"{delays.get(BACKFILL, 0.0):.1f} s",
                f"{delays.get(BUDGET, 0.0):.1f} s",
                f"{delays.get(EARLY_END, 0.0):.1f} s",
            )
        )
    delays_of = ("DELAY: BACKFILL", "DELAY: BUDGET", "DELAY: EARLY ENDS")
    header = ("QUEUE", "REVOKE", "RESERVED STARTS", "LATER THAN PROMISED", *delays_of)
    return Rows(header, tuple(cells), (), frozenset(header[2:]))


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
