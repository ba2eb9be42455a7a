"""`gangline admin audit`: repeats the decisions of an operator's audit record and checks promised start times; without a record,
how reserved jobs have fared under the leading operator.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from gangline.console.options import Span
from gangline.console.output import clock, presenting, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import document
from gangline.console.output.layout import Rows
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking
from gangline.control.answers.sight import ALL
from gangline.control.answers.usage import decided
from gangline.control.answers.workloads.words import age
from gangline.control.audit import audit_check, decision_index
from gangline.control.audit.audit_check import AuditResult
from gangline.control.audit.fact_codec import FactError
from gangline.engine import BACKFILL, BUDGET, EARLY_END, lateness_of
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

#: seconds of decisions that the operator is asked for
DAY: Final = 86_400.0


@click.command("audit")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@access.cluster_options
@click.option(
    "--starts",
    is_flag=True,
    help="Each reserved start instead of sums: the last 20 of a queue. -u and --since imply it.",
)
@click.option(
    "--decisions",
    is_flag=True,
    help="Each recorded decision instead of sums, the oldest first: those of FILE, or of the operator's own record.",
)
@click.option(
    "--since",
    type=Span(),
    default=None,
    help="Only starts or decisions within this time, such as 12h, before now, or before the end of FILE.",
)
@presenting.options("user", "queue")
def command(
    file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    starts: bool,
    decisions: bool,
    since: float | None,
    shape: Presentation,
) -> None:
    """Replay the audit record FILE (`gangline admin operator --audit FILE`) through the engine and compare the decisions.

    Exit status 0: every round of decisions equals the recorded one, and no workload that was started early delayed a
    reserved head against the policy of its queue. Otherwise 1. Rotated files (FILE.1, FILE.2, …) are read too. The last line
    of the output is JSON; with -o json it is all of it.

    Without FILE the leading operator says how the reserved jobs of its queues have fared since it began to lead.

    --queue and --since choose which reserved starts of a FILE are shown. The verdict and JSON are of the whole record.

    --decisions lists what was decided, one decision per line: for whom, and why. With it --user, --queue, --sort and all forms of
    -o hold. The operator lists the last day, unless --since says otherwise, of its own record (`--audit`).
    """
    if decisions and starts:
        raise click.UsageError("choose one of --decisions and --starts")
    if decisions and file is None:
        access.run(_ask_decisions(kubeconfig, context, namespace, shape, since or DAY))
        return
    if file is None:
        one_by_one = starts or since is not None or bool(shape.selection.users)
        access.run(_ask(kubeconfig, context, namespace, shape, since, one_by_one=one_by_one))
        return
    if kubeconfig or context or namespace or starts:
        raise click.UsageError(
            "FILE is read here: --kubeconfig, --context, -n and --starts belong to the question without it"
        )
    if decisions:
        if shape.watch:
            raise click.UsageError("--watch is for the operator's answers: FILE is printed once")
        presenting.show(DECISIONS, shape, _decisions_of(file, since))
        return
    queues = shape.selection.queues
    if shape.format.kind and (queues or since is not None):
        raise click.UsageError("--queue and --since choose rows of the table: JSON is of the whole record")
    presenting.only_a_document(replace(shape, selection=replace(shape.selection, queues=())), "a record")
    outcome = AuditResult()
    try:
        audit_check.check(audit_check.read(decision_index.files(file), outcome), outcome)
    except (FactError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not outcome.runs:
        raise click.ClickException(f"{file}: the record contains no start of an operator run")
    if not shape.format.kind:
        for line in lines(outcome, queues, since, presenting.width()):
            terminal.say(line)
    found = outcome.as_json()
    terminal.say(document("yaml", found) if shape.format.kind == "yaml" else json.dumps(found))
    if not outcome.holds:
        raise SystemExit(1)


async def _ask(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    shape: Presentation,
    since: float | None,
    *,
    one_by_one: bool,
) -> None:
    async with access.client(kubeconfig, context) as api:
        if not one_by_one:
            await presenting.present(LISTING, shape, lambda: _queues(api, namespace, shape))
            return

        async def look() -> list[Json]:
            earliest = 0.0 if since is None else time.time() - since
            return [start for start in starts_of(await _asked(api, namespace)) if start["started"] >= earliest]

        await presenting.present(STARTS, shape, look)


async def _ask_decisions(
    kubeconfig: Path | None, context: str | None, namespace: str | None, shape: Presentation, since: float
) -> None:
    async with access.client(kubeconfig, context) as api:
        await presenting.present(DECISIONS, shape, lambda: _recorded(api, namespace, since))


async def _recorded(api: ApiClient, namespace: str | None, since: float) -> list[Json]:
    """The decisions of the operator's record: all, or those about jobs of a namespace."""
    own = f"/namespaces/{namespace or api.login.namespace}/decisions"
    query: dict[str, str | bool | int] = {"sinceSeconds": max(1, round(since)), "limit": 1000}
    try:
        try:
            return await _pages(api, own if namespace else "/decisions", query)
        except asking.NotAllowedError:
            return await _pages(api, own, query)
    except (asking.NotServedError, asking.NotAllowedError) as error:
        raise click.ClickException(str(error)) from error


async def _pages(api: ApiClient, path: str, query: dict[str, str | bool | int]) -> list[Json]:
    asked, found = dict(query), list[Json]()
    while True:
        page = await asking.get(api, path, asked)
        if page["metadata"].get("record") is False:
            raise click.ClickException("this operator keeps no record of its decisions: it runs without --audit")
        found += page["items"]
        asked["continue"] = page["metadata"].get("continue") or ""
        if not asked["continue"]:
            return found


def _decisions_of(file: Path, since: float | None) -> list[Json]:
    """The decisions of a record, of the last so many seconds of it. Raises ClickException."""
    try:
        found = [decided.row(each, {}, ALL, {}) for each in decision_index.decisions_of(file)]
    except OSError as error:
        raise click.ClickException(str(error)) from error
    last = max((row["at"] for row in found), default=0.0)
    return found if since is None else [row for row in found if row["at"] >= last - since]


async def _queues(api: ApiClient, namespace: str | None, shape: Presentation) -> list[Json]:
    """The audits of queues to print; a table has only those with reservations."""
    found = await _asked(api, namespace)
    return with_reservations(found) if shape.format.kind in ("", "wide") else found


async def _asked(api: ApiClient, namespace: str | None) -> list[Json]:
    """The operator's audits of all ClusterQueues, or of those to which the namespace's LocalQueues lead."""
    own = f"/namespaces/{namespace or api.login.namespace}/queueaudits"
    try:
        try:
            return await asking.listed(api, own if namespace else "/queueaudits")
        except asking.NotAllowedError:
            return await asking.listed(api, own)
    except (asking.NotServedError, asking.NotAllowedError) as error:
        raise click.ClickException(str(error)) from error


def with_reservations(found: Iterable[Json]) -> list[Json]:
    """The audits of those ClusterQueues in which a job had a reservation."""
    return [each for each in found if each["planned"] or each["delaySeconds"]]


def starts_of(found: Iterable[Json]) -> list[Json]:
    """The reserved starts of all ClusterQueues, the last one first."""
    starts = [{**start, "clusterQueue": each["clusterQueue"]} for each in found for start in each["starts"]]
    return sorted(starts, key=lambda start: -start["started"])


def _seconds(causes: Json) -> str:
    return ", ".join(f"{cause} {seconds:.1f} s" for cause, seconds in sorted(causes.items()) if seconds) or "–"


def _counts(causes: Json) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in sorted(causes.items())) or "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


#: one row per ClusterQueue
LISTING: Final[Listing[Json]] = Listing(
    columns=(
        Column("QUEUE", lambda each, _: each["clusterQueue"], least=20),
        Column("RESERVED", lambda each, _: str(each["planned"]), right=True, key=lambda each, _: each["planned"]),
        Column("PROMISED", lambda each, _: str(each["promised"]), right=True, key=lambda each, _: each["promised"]),
        Column(
            "KEPT",
            lambda each, _: _share(each["coverage"]),
            right=True,
            key=lambda each, _: each["coverage"] if each["coverage"] is not None else 1.0,
        ),
        Column(
            "AHEAD",
            lambda each, _: age(each["promisedSeconds"] / each["promised"]) if each["promised"] else "–",
            right=True,
            wide=True,
        ),
        Column("LATE", lambda each, _: str(each["late"]), right=True, key=lambda each, _: each["late"]),
        Column(
            "LATE BY",
            lambda each, _: f"{each['lateSeconds']:.1f} s",
            right=True,
            key=lambda each, _: each["lateSeconds"],
        ),
        Column("MISSED BY", lambda each, _: _counts(each["missedBy"])),
        Column("DELAYED BY", lambda each, _: _seconds(each["delaySeconds"])),
    ),
    as_json=lambda each: each,
    instants=("starts.planned", "starts.promised", "starts.started"),
    name=lambda each: f"clusterqueue/{each['clusterQueue']}",
    empty="No reserved job has started or was delayed since the operator began to lead.",
    queue=lambda each: (each["clusterQueue"],),
)


def _late(start: Json) -> float | None:
    """Seconds after the promise; None where there was none."""
    return None if start["promised"] is None else max(0.0, start["started"] - start["promised"])


def _late_text(start: Json) -> str:
    late = _late(start)
    by = f" ({start['missedBy']})" if start.get("missedBy") else ""
    return "nothing was promised" if late is None else f"{late:.1f} s{by}" if late else "as promised"


#: one row per reserved start
STARTS: Final[Listing[Json]] = Listing(
    columns=(
        Column("NAMESPACE", lambda start, _: start.get("namespace") or "", rank=1, least=10),
        Column("JOB", lambda start, _: start["job"], least=20),
        Column("USER", lambda start, _: start.get("user") or "", rank=2, least=8, sparse=True),
        Column("QUEUE", lambda start, _: start["clusterQueue"], rank=1, least=12),
        Column(
            "PROMISED",
            lambda start, now: clock.wall(start["promised"], now),
            key=lambda start, _: start["promised"],
        ),
        Column(
            "PLANNED",
            lambda start, now: clock.wall(start["planned"], now),
            key=lambda start, _: start["planned"],
            wide=True,
        ),
        Column("STARTED", lambda start, now: clock.when(start["started"], now), key=lambda start, _: start["started"]),
        Column("LATE BY", lambda start, _: _late_text(start), key=lambda start, _: _late(start)),
    ),
    as_json=lambda start: start,
    instants=("planned", "promised", "started"),
    name=lambda start: start["job"],
    empty="No reserved job has started in this time.",
    user=lambda start: tuple(name for name in (start.get("user"), start.get("namespace")) if name),
    queue=lambda start: (start["clusterQueue"],),
)


def _decided_for(row: Json) -> str:
    """The job of a decision; the Workload's name where the job is not known, and what a warning is about else."""
    return f"{row['jobKind'].lower()}/{row['jobName']}" if row["jobKind"] else row["jobName"]


#: one row per decision
DECISIONS: Final[Listing[Json]] = Listing(
    columns=(
        Column("AT", lambda row, now: clock.wall(row["at"], now), key=lambda row, _: row["at"]),
        Column("NAMESPACE", lambda row, _: row["namespace"], rank=2, least=10),
        Column("JOB", lambda row, _: _decided_for(row), least=20),
        Column("QUEUE", lambda row, _: row["clusterQueue"] or row["queue"], rank=3, least=12),
        Column("GPUS", lambda row, _: str(row["gpus"] or "–"), right=True, rank=1, key=lambda row, _: row["gpus"] or 0),
        Column("DECISION", lambda row, _: row["decision"]),
        Column("FLAVORS", lambda row, _: ",".join(row["flavors"]), wide=True),
        Column("NUMBER", lambda row, _: str(row["number"]), wide=True, key=lambda row, _: row["number"]),
        Column("WHY", lambda row, _: row["text"]),
    ),
    as_json=lambda row: row,
    instants=("at",),
    name=lambda row: f"{row['decision']} {_decided_for(row)}",
    empty="Nothing was decided in this time, as far as the record goes.",
    user=lambda row: tuple(name for name in (row["user"], row["namespace"]) if name),
    queue=lambda row: tuple(name for name in (row["queue"], row["clusterQueue"]) if name),
)


def lines(
    outcome: AuditResult, queues: Collection[str] = (), since: float | None = None, width: int | None = None
) -> list[str]:
    """The outcome as text lines, of reserved starts those of these queues (none: of all) in the last `since` seconds."""
    span = age((outcome.last - outcome.first) / 1000)
    rounds = f"{outcome.rounds} rounds of decisions over {span}, from {_time(outcome.first)} to {_time(outcome.last)}"
    report = [f"{rounds}; {outcome.facts} facts, {outcome.runs} run(s) of the operator"]
    if outcome.partial:
        report.append("the record begins within a run; its first entries hold the state at that time")
    heads = _heads(outcome, queues, 0 if since is None else outcome.last - round(since * 1000))
    report += ["", *presenting.styled(_decisions(outcome), width), "", *presenting.styled(heads, width), ""]
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
    if outcome.missed:
        report.append("✗ jobs waited that would have started if the operator had been started again:")
        report += [f"    {_time(at)} {name}" for at, name in outcome.missed]
    return [*report, ""]


def _decisions(outcome: AuditResult) -> Rows:
    rows = [(name, str(count)) for name, count in sorted(outcome.decisions.items())]
    rows += [("of these backfilled", str(len(outcome.early))), ("of these revoked", str(len(outcome.revocations)))]
    return Rows(("DECISION", "COUNT"), tuple(rows), (), frozenset({"COUNT"}))


def _heads(outcome: AuditResult, queues: Collection[str], earliest: int) -> Rows:
    """One row per queue: the starts of its reserved heads from `earliest` on (milliseconds), and their delays in the record."""
    cells: list[tuple[str, ...]] = []
    for queue in sorted({*outcome.revoke, *outcome.head_delay}):
        if queues and queue not in queues:
            continue
        started = [head for head in outcome.heads if head.cluster_queue == queue and head.started >= earliest]
        promised = lateness_of(started)
        delays = outcome.head_delay.get(queue, {})
        cells.append(
            (
                queue,
                outcome.revoke.get(queue, "–"),
                str(len(started)),
                str(promised.promised),
                _share(promised.coverage),
                _counts(promised.causes),
                f"{delays.get(BACKFILL, 0.0):.1f} s",
                f"{delays.get(BUDGET, 0.0):.1f} s",
                f"{delays.get(EARLY_END, 0.0):.1f} s",
            )
        )
    delays_of = ("DELAY: BACKFILL", "DELAY: BUDGET", "DELAY: EARLY ENDS")
    header = ("QUEUE", "REVOKE", "RESERVED STARTS", "PROMISED", "KEPT", "MISSED BY", *delays_of)
    ranks = {"REVOKE": 3, "DELAY: BUDGET": 2, "RESERVED STARTS": 1, "MISSED BY": 4}
    return Rows(header, tuple(cells), (), frozenset(header[2:]), ranks, {"QUEUE": 20})


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
