"""`gangline replay`: replays a job trace through the production engine under several policies and writes a report."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gangline import traces
from gangline.console.options import Instant, Span
from gangline.console.views.table import Rows, plain
from gangline.replay import policies, report
from gangline.replay.replay_plan import PREDICTORS, Plan, prepare
from gangline.replay.replayed import Cluster, ReplayError
from gangline.replay.run import Replay
from gangline.replay.side_by_side import Tick, replay


class _SpanOrNone(Span):
    """A duration, or `none` (infinity)."""

    name = "span|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return math.inf if value in ("none", math.inf) else super().convert(value, param, ctx)


@click.command("replay", epilog="\b\nPolicies:\n" + policies.table())
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", "format_", type=click.Choice(traces.FORMATS), default="auto", show_default=True)
@click.option("--gpus", type=int, required=True, help="GPUs (processors, for SWF) of the cluster.")
@click.option("--gpus-per-node", type=int, default=8, show_default=True, help="0: a flat pool without nodes.")
@click.option(
    "--policy",
    "names",
    default="besteffort,easy,gangline",
    show_default=True,
    help="Comma-separated policies; see below.",
)
@click.option(
    "--train-until", type=Instant(), default=None, help="Forecasts learn from jobs before this time. [default: --from]"
)
@click.option(
    "--from", "first", type=Instant(), default=None, help="First submission. [default: --train-until, or the first]"
)
@click.option("--to", "last", type=Instant(), default=None, help="End of submissions. [default: the last one]")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Directory for the report."
)
@click.option(
    "--predictor",
    type=click.Choice(PREDICTORS),
    default="model",
    show_default=True,
    help="Source of runtime estimates for forecasting policies.",
)
@click.option(
    "--limit",
    type=Span(),
    default=None,
    help="Time limit of jobs that request none. [default: the longest earlier job]",
)
@click.option(
    "--retrain-every",
    type=_SpanOrNone(),
    default="7d",
    show_default=True,
    help="Retrain the model at this interval, or none.",
)
@click.option(
    "--checkpoint",
    type=_SpanOrNone(),
    default="30m",
    show_default=True,
    help="Jobs save a checkpoint at this interval, or none.",
)
@click.option("--restart", type=Span(), default="1m", show_default=True, help="Restart overhead of an evicted job.")
@click.option("--tenants", is_flag=True, help="One queue per tenant, in one cohort, with quotas by past usage.")
@click.option(
    "--jitter",
    type=click.IntRange(0),
    default=0,
    help="Additional runs per policy with submissions and runtimes shifted by up to 1 %.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=None, help="Parallel processes. [default: one per CPU]")
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def command(
    trace: Path,
    format_: str,
    gpus: int,
    gpus_per_node: int,
    names: str,
    train_until: float | None,
    first: float | None,
    last: float | None,
    out: Path,
    checkpoint: float,
    retrain_every: float,
    jitter: int,
    workers: int | None,
    output: str | None,
    **options: Any,
) -> None:
    """Replay a job TRACE under several policies; write OUT/replay.json and OUT/report.html."""
    console = Console(stderr=True)
    try:
        jobs = traces.load(trace, format_)
        if not jobs.jobs:
            raise ReplayError(f"{trace} holds no jobs")
        begin = first if first is not None else train_until if train_until is not None else jobs.jobs[0].submit
        plan = Plan(
            cluster=Cluster(gpus, gpus_per_node),
            policies=tuple(policies.chosen(names)),
            first=begin,
            last=math.nextafter(jobs.jobs[-1].submit, math.inf) if last is None else last,
            train_until=train_until,
            checkpoint=None if math.isinf(checkpoint) else checkpoint,
            retrain_every=None if math.isinf(retrain_every) else retrain_every,
            jitter=jitter,
            workers=workers or os.cpu_count() or 1,
            **options,
        )
        with console.status("Training the model …" if plan.needs("model") else "Reading …"):
            prepared, notes = prepare(jobs, plan)
        out.mkdir(parents=True, exist_ok=True)
        with _bars(console) as bars:
            done = replay(jobs, plan, prepared, notes, _Meter(bars, plan, len(prepared.jobs)))
    except (ReplayError, traces.TraceError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"--out {out}: {error.strerror or error}") from error
    body = done.as_json()
    (out / "replay.json").write_text(json.dumps(body, indent=1, allow_nan=False) + "\n")
    (out / "report.html").write_text(report.html(done, trace.name), encoding="utf-8")
    click.echo(json.dumps(body, indent=1) if output == "json" else render(done))
    console.print(f"[dim]{out / 'report.html'}  {out / 'replay.json'}[/dim]")


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} jobs"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


class _Meter:
    """One progress bar per policy; perturbed copies of the input count towards their policy's bar."""

    def __init__(self, bars: Progress, plan: Plan, jobs: int) -> None:
        self._bars = bars
        width = max(len(policy.name) for policy in plan.policies)
        self._tasks: dict[str, TaskID] = {
            policy.name: bars.add_task(f"{policy.name:<{width}}", total=jobs * (plan.jitter + 1))
            for policy in plan.policies
        }

    def __call__(self, tick: Tick) -> None:
        name, _, jobs = tick
        self._bars.advance(self._tasks[name], jobs)


def render(done: Replay) -> str:
    """The printed report: one row per policy."""
    waits = ("WAIT", "P90", "P99", "MAX", ">8 GPUS", "<=8")
    header = ("POLICY", *waits, "SLOWDOWN", "USE", "EVICTED", "LOST", "HEAD DELAY", "SECONDS")
    rows: list[tuple[str, ...]] = []
    for story in done.stories:
        m = story.measures
        wait = m["wait"]
        rows.append(
            (
                story.policy,
                *(_seconds(wait[name]) for name in ("mean", "p90", "p99", "max")),
                _seconds(m["wait_gt8"]["mean"]),
                _seconds(m["wait_le8"]["mean"]),
                "–" if m["bounded_slowdown"] is None else f"{m['bounded_slowdown']:.2f}",
                f"{m['utilisation']:.1%}",
                str(m["evictions"]),
                f"{m['gpu_hours_lost_share']:.2%}",
                _seconds(m["head_delay_backfill_seconds"]),
                f"{m['replay_seconds']:.1f}",
            )
        )
    lines = [plain(Rows(header, tuple(rows), right=frozenset(header[1:])))]
    lines.append("Waits in seconds. HEAD DELAY: time that backfilled jobs delayed reserved heads.")
    if done.forecast:
        scores = done.forecast
        cover = ", ".join(f"{name} {share:.3f}" for name, share in scores["coverage"].items())
        gain = scores["gain_over_last_two"]
        better = "" if gain is None else f", last-two's is {1 / (1 - gain) - 1:.0%} higher"
        lines.append(f"Forecasts: coverage {cover}; log error {scores['mean_abs_log_error']:.3f}{better}")
    return "\n".join([*lines, *(f"· {note}" for note in done.notes)])


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
