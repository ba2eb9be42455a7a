"""`gangline audit`: decide a record of the operator again, and see whether it kept its promises."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from gangline.console.views.table import Rows, age, plain
from gangline.control.audit import audit_check
from gangline.control.audit.audit_check import Outcome
from gangline.control.audit.fact_codec import FactError
from gangline.engine import BACKFILL, EARLY_END


@click.command("audit")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Choice(["json"]), default=None, help="Only the JSON object.")
def command(file: Path, output: str | None) -> None:
    """Play the record FILE (`gangline operator --audit FILE`) to the same engine.

    Exit status 0: every decision came out as recorded, and no workload that was started early kept a reserved one waiting
    against the policy of its queue. Else 1. What was put aside (FILE.1, FILE.2, …) is read as well. The last line is JSON.
    """
    outcome = Outcome()
    try:
        audit_check.check(audit_check.read(audit_check.files(file), outcome), outcome)
    except (FactError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not outcome.runs:
        raise click.ClickException(f"{file}: no run of an operator begins in it")
    if output is None:
        for line in lines(outcome):
            click.echo(line)
    click.echo(json.dumps(outcome.as_json()))
    if not outcome.holds:
        raise SystemExit(1)


def lines(outcome: Outcome) -> list[str]:
    """The outcome for people."""
    span = age((outcome.last - outcome.first) / 1000)
    rounds = f"{outcome.rounds} rounds of decisions over {span}, from {_time(outcome.first)} to {_time(outcome.last)}"
    told = [f"{rounds}; {outcome.facts} facts, {outcome.runs} run(s) of the operator"]
    if outcome.partial:
        told.append("the record begins within a run: what was known then stands at its head")
    told += ["", plain(_decisions(outcome)), "", plain(_heads(outcome)), ""]
    if outcome.differing:
        told.append(f"✗ {outcome.differing} of {outcome.rounds} rounds came out otherwise:")
        for difference in outcome.differences:
            told.append(f"    {_time(difference.now)}")
            told += [f"      recorded only: {name}" for name in difference.recorded]
            told += [f"      decided anew only: {name}" for name in difference.repeated]
    else:
        told.append("✓ every decision came out as recorded")
    if outcome.broken:
        told.append(f"✗ reserved heads were delayed for {outcome.broken:g} s against the policy of their queue")
    elif outcome.revoke:
        told.append("✓ no reserved head was delayed by what its policy promises it is not")
    return [*told, ""]


def _decisions(outcome: Outcome) -> Rows:
    rows = [(name, str(count)) for name, count in sorted(outcome.decisions.items())]
    rows += [("of these backfilled", str(len(outcome.early))), ("of these revoked", str(len(outcome.revocations)))]
    return Rows(("DECISION", "COUNT"), tuple(rows), (), frozenset({"COUNT"}))


def _heads(outcome: Outcome) -> Rows:
    """By queue: how its reserved heads fared."""
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
                f"{delays.get(EARLY_END, 0.0):.1f} s",
            )
        )
    header = ("QUEUE", "REVOKE", "RESERVED STARTS", "LATER THAN PROMISED", "DELAY: BACKFILL", "DELAY: EARLY ENDS")
    return Rows(header, tuple(cells), (), frozenset(header[2:]))


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
