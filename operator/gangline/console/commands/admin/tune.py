"""`gangline admin tune`: searches settings on a cluster's own record, and proposes a QueuePolicy if it is better for certain."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import yaml

from gangline.console.options import Span, file_option
from gangline.console.output import terminal
from gangline.console.replaying import cluster_record
from gangline.record.advice import tuning
from gangline.record.advice.tuning import NoProposalError, Proposal, TuningGoal
from gangline.record.history import RecordError
from gangline.record.preparing import ReadRecord
from gangline.record.worlds import OWN
from gangline.replay.replay_plan import PREDICTORS, ReplayPlan
from gangline.replay.replayed import ReplayError

_UNITS = {"mean": "mean wait", "p99": "99th percentile of waits", "slowdown": "mean bounded slowdown"}


@click.command("tune")
@click.argument("record", type=click.Path(exists=True, file_okay=False, path_type=Path))
@file_option("Write the QueuePolicy to this file.")
@click.option(
    "-q",
    "--cluster-queue",
    "queues",
    multiple=True,
    help="Only this ClusterQueue; repeatable. [default: all of them]",
)
@click.option(
    "--for",
    "objective",
    type=click.Choice(sorted(_UNITS)),
    default="mean",
    show_default=True,
    help="The figure to lower: the mean wait, its 99th percentile, or the mean bounded slowdown.",
)
@click.option(
    "--most-lost",
    type=click.FloatRange(0, 0.5),
    default=0.01,
    show_default=True,
    help="The share of GPU hours that evictions may cost.",
)
@click.option(
    "--longer-tail",
    type=click.FloatRange(0, 100),
    default=0.1,
    show_default=True,
    help="The share by which the 99th percentile of waits may be longer.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.05, 1440),
    default=10,
    show_default=True,
    help="The minutes that the search may take.",
)
@click.option("--tries", type=click.IntRange(1, 1000), default=24, show_default=True, help="Settings that are tried.")
@click.option(
    "--runs",
    type=click.IntRange(tuning.LEAST_RUNS, 100),
    default=8,
    show_default=True,
    help="Runs on the part that is held out.",
)
@click.option("--predictor", type=click.Choice(PREDICTORS), default="model", show_default=True)
@click.option(
    "--checkpoint",
    type=Span(),
    default=None,
    help="Jobs that declare nothing save their work at this interval. [default: never]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed tries the same settings.")
@click.option("--workers", type=click.IntRange(1), default=None, help="Parallel processes. [default: one per CPU]")
def command(
    record: Path,
    file: Path | None,
    workers: int | None,
    predictor: str,
    checkpoint: float | None,
    seed: int,
    **wish: Any,
) -> None:
    """Search settings of a QueuePolicy on the RECORD of a cluster; print the best one, with its expected gain and risk.

    The last third of the record is held out: the gain and the risk of the proposal were measured there. Where the
    gain may be chance nothing is proposed, and the exit status is 1.
    """
    console = terminal.console(stderr=True)
    try:
        with console.status("Reading …"):
            source = cluster_record.opened(record)
        plan = ReplayPlan(
            cluster=source.cluster,
            policies=(OWN,),
            first=source.first,
            last=math.nextafter(source.last, math.inf),
            predictor=predictor,
            checkpoint=checkpoint,
            retrain_every=86_400.0,
            seed=seed,
            workers=workers or os.cpu_count() or 1,
        )
        found = tuning.tune(
            source, plan, TuningGoal(**wish), lambda text: console.print(f"[dim]{text}[/dim]", highlight=False)
        )
    except NoProposalError as error:
        raise click.ClickException(f"nothing is proposed: {error}") from error
    except (ReplayError, RecordError) as error:
        raise click.ClickException(str(error)) from error
    text = _manifest(found, source)
    if file is None:
        terminal.say(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--file {file}: {error.strerror or error}") from error
    console.print(f"[dim]{file}[/dim]")


def _manifest(found: Proposal, source: ReadRecord) -> str:
    """The policy as YAML, with what is expected of it in comments."""
    gain, tail = found.gain, found.tail
    unit = "" if found.objective == "slowdown" else " s"
    lines = [
        "Proposed by `gangline admin tune`, from a record that ends at "
        f"{datetime.fromtimestamp(source.last, UTC):%Y-%m-%d %H:%M} UTC: the best of {found.tried} settings.",
        f"Expected gain: {_UNITS[found.objective]} {gain.gain:+.1%} less ({found.before:,.1f}{unit} before), "
        f"95 % interval {gain.low:+.1%} to {gain.high:+.1%};",
        f"measured on {found.jobs} jobs that the search has not seen, {found.runs} shaken runs.",
        f"Risk: p99 of waits {tail.gain:+.1%} less, {tail.low:+.1%} to {tail.high:+.1%}; evictions lose at most "
        f"{found.lost:.2%} of all GPU hours.",
        "A record has no spec.notify: add yours, if the policy of this name has one.",
        *found.notes,
    ]
    comments = "".join(f"# {line}\n" for line in lines)
    return comments + yaml.safe_dump(found.policy, sort_keys=False, width=120)
