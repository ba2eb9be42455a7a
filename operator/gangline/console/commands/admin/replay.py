"""`gangline admin replay`: replays a job trace through the production engine under several policies and writes a report."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gangline import traces
from gangline.api import schedules as windows
from gangline.console.options import Instant, Span, read_configuration
from gangline.console.output import presenting, terminal
from gangline.console.output.formats import OutputFormat, answer_option, document
from gangline.console.output.layout import Rows, wrapped
from gangline.console.replaying import cluster_record, manifests, plan_files, policy_file, trace_flavors, trace_windows
from gangline.engine.model import Settings
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.record import preparing
from gangline.record.history import RecordError
from gangline.replay import policies, report, world
from gangline.replay import side_by_side as schedules
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import PREDICTORS, SHAKE, ReplayPlan, instant, prepare
from gangline.replay.replayed import LONGEST, ReplayError
from gangline.replay.run import Replay, shaken_lines
from gangline.replay.side_by_side import Tick, replay
from gangline.replay.trace_facts import SETTINGS

# --- the report that `gangline admin replay` prints: a row per policy, and what the numbers mean ----------------------


#: columns of the report, the last ones of which a narrow terminal leaves out first
_DISPENSABLE: Final = (
    "OPEN", "LOST", "EVICTED", "SLOWDOWN", "P90", "HEAD DELAY", "PROMISED", "KEPT", "MAX", "P99", "BUDGET", "EARLY END", "<=8",
    ">8 GPUS",
)  # fmt: skip


def lines(done: Replay, width: int | None = None) -> list[str]:
    """The printed report, for a terminal of `width` columns (None: of any width): one row per policy."""
    measures = {story.policy: story.measures for story in done.stories}
    texts = [
        "Waits in seconds. HEAD DELAY: time that backfilled jobs which overran delayed reserved heads; BUDGET: where the loss "
        "budget spared them; EARLY END: that backfilled jobs within their time did. PROMISED: heads that were promised a start; "
        "KEPT: the share of these promises that held within a minute. OPEN: jobs that never ended, + jobs larger than the "
        "cluster.",
        *(f"{name}: {text}" for name, text in shaken_lines(done).items()),
        *world.lines(done.savings, done.base),
        *_windows(done),
        *_forecasts(done.forecast),
        *(f"· {note}" for note in done.notes),
        *done.conclusion(),
    ]
    return [*presenting.styled(table(measures), width), *(part for text in texts for part in wrapped(text, width))]


def table(found: Mapping[str, Json]) -> Rows:
    """One row per policy, of its measures."""
    waits = ("WAIT", "P90", "P99", "MAX", ">8 GPUS", "<=8")
    heads = ("HEAD DELAY", "BUDGET", "EARLY END", "PROMISED", "KEPT")
    header = ("POLICY", *waits, "SLOWDOWN", "USE", "EVICTED", "LOST", *heads, "OPEN", "SECONDS")
    rows: list[tuple[str, ...]] = []
    for policy, m in found.items():
        wait = m["wait"]
        rows.append(
            (
                policy,
                *(_seconds(wait[name]) for name in ("mean", "p90", "p99", "max")),
                _seconds(m["wait_gt8"]["mean"]),
                _seconds(m["wait_le8"]["mean"]),
                "–" if m["bounded_slowdown"] is None else f"{m['bounded_slowdown']:.2f}",
                f"{m['utilisation']:.1%}",
                str(m["evictions"]),
                f"{m['gpu_hours_lost_share']:.2%}",
                _seconds(m["head_delay_backfill_seconds"]),
                _seconds(m["head_delay_loss_budget_seconds"]),
                _seconds(m["head_delay_early_end_seconds"]),
                str(m["promises"]["made"]),
                _share(m["promises"]["coverage"]),
                f"{m['unfinished']}+{m['impossible']}" if m["unfinished"] or m["impossible"] else "0",
                f"{m['replay_seconds']:.1f}",
            )
        )
    ranks = {name: rank for rank, name in enumerate(_DISPENSABLE, 1)}
    return Rows(header, tuple(rows), right=frozenset(header[1:]), ranks=ranks)


def _windows(done: Replay) -> list[str]:
    """What windows of Reservations cost, a line for each policy."""
    return [
        f"Windows under {each.policy}: {_share(each.use_in_the_day_before)} of the use without them in the day before, "
        f"{_share(each.use_while_any_fits)} while any waiting job would have ended in time; {each.stopped} jobs stopped, "
        f"{each.gpu_hours_lost:,.1f} GPU hours lost, {_share(each.lost_share_of_drain)} of those of a drain; others had "
        f"{each.gpu_hours_of_others_inside:g} GPU hours in them"
        for each in done.window_costs()
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _forecasts(scores: Json) -> list[str]:
    if not scores:
        return []
    cover = ", ".join(f"{name} {share:.3f}" for name, share in scores["coverage"].items())
    gain = scores["gain_over_last_two"]
    better = "" if gain is None or gain >= 1 else f", last-two's is {1 / (1 - gain) - 1:.0%} higher"
    found = [f"Forecasts: coverage {cover}; log error {scores['mean_abs_log_error']:.3f}{better}"]
    if (gain := scores.get("gain_over_alike")) is not None:
        loss = scores["mean_pinball"]
        found.append(
            f"Mean pinball loss {loss:.3f}, {gain:+.0%} better than quantiles of the last 300 runs that are alike"
        )
    if least := scores.get("least_covered"):
        found.append(f"Least covered group: {least['group']}, q90 {least['q90']:.3f} of {least['jobs']:,} jobs")
    return found


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


#: the specifications of Reservations and of QuotaPlans, by name
_Ahead: TypeAlias = tuple[Mapping[str, Json], Mapping[str, Json]]


class _SpanOrNone(Span):
    """A duration, or `none` (infinity)."""

    name = "span|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return math.inf if value in ("none", math.inf) else super().convert(value, param, ctx)


@click.command("replay", epilog="\b\nPolicies:\n" + policies.table())
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option(
    "--cluster-record",
    "record",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Instead of a TRACE: the record that `gangline admin record` wrote in this directory, with the cluster's own queues, "
    "quotas, flavors and nodes.",
)
@click.option("--format", "format_", type=click.Choice(traces.FORMATS), default="auto", show_default=True)
@click.option("--gpus", type=int, default=None, help="GPUs (processors, for SWF) of the cluster; needed with a TRACE.")
@click.option("--gpus-per-node", type=int, default=8, show_default=True, help="0: a flat pool without nodes.")
@click.option(
    "--flavor",
    "flavors",
    multiple=True,
    metavar="NAME=GPUS",
    help="Instead of --gpus: a flavor with so many GPUs; repeatable, in the order of the ClusterQueue.",
)
@click.option(
    "--flavor-speeds",
    "measured",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Measured rates of trainings by model of GPU, which the flavors are named after: each job of which the trace says no "
    "speeds is one of them, drawn by --seed.",
)
@click.option(
    "--policy",
    "names",
    default=None,
    help="Comma-separated policies; see below. [default: besteffort,easy,gangline; with --cluster-record own,… first]",
)
@click.option(
    "--policy-file",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A file of QueuePolicies, each played under its name besides --policy, one with moves also without; repeatable.",
)
@click.option(
    "--reservation",
    "reservations",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A file of Reservations, played from the beginning on; repeatable. Each policy is also played without windows, and with "
    "windows that are not known before they begin.",
)
@click.option(
    "--quota-plan",
    "quota_plans",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A file of QuotaPlans, played from the beginning on; repeatable. Without --reservation each policy is also played "
    "without them, and with changes of quotas that are not known before.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="The cluster's Kueue configuration file, for its fair sharing; with --cluster-record.",
)
@click.option("--schedule", is_flag=True, help="Also write every run of every job: OUT/schedule/POLICY.csv.")
@click.option(
    "--schedule-format",
    type=click.Choice(schedules.FORMATS),
    default=None,
    help="Write the schedule in this format. Parquet needs gangline[parquet]. [default: csv]",
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
    default=None,
    help="Jobs save a checkpoint at this interval, or none; what a job declares precedes. [default: 30m; with --cluster-record "
    "none]",
)
@click.option(
    "--save-cost",
    type=Span(),
    default=None,
    help="The time that one checkpoint costs a job; the trace's own column precedes. [default: nothing]",
)
@click.option("--restart", type=Span(), default="1m", show_default=True, help="Restart overhead of an evicted job.")
@click.option("--tenants", is_flag=True, help="One queue per tenant, in one cohort, with quotas by past usage.")
@click.option(
    "--jitter",
    type=click.IntRange(0),
    default=None,
    help="Additional runs per policy with submissions and runtimes shifted by up to 1 %. [default: 0; with --cluster-record 5]",
)
@click.option(
    "--jitter-share",
    "shake",
    type=float,
    default=SHAKE,
    show_default=True,
    help="Shift of the additional runs, as a share.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=None, help="Parallel processes. [default: one per CPU]")
@answer_option
def command(
    trace: Path | None,
    record: Path | None,
    files: tuple[Path, ...],
    reservations: tuple[Path, ...],
    quota_plans: tuple[Path, ...],
    config: Path | None,
    schedule: bool,
    schedule_format: schedules.Format | None,
    out: Path,
    output: OutputFormat,
    **options: Any,
) -> None:
    """Replay a job TRACE, or a cluster's record, under several policies; write OUT/replay.json and OUT/report.html."""
    console = terminal.console(stderr=True)
    if (trace is None) == (record is None):
        raise click.UsageError("name either a TRACE or --cluster-record DIRECTORY")
    if config is not None and record is None:
        raise click.UsageError("--config says nothing of a TRACE: give it with --cluster-record")
    kind = schedule_format or "csv"
    try:
        schedules.require(kind)
        own, left_out = _from_files(files)
        ahead = (
            plan_files.read(reservations, kube.RESERVATIONS, "--reservation"),
            plan_files.read(quota_plans, kube.QUOTA_PLANS, "--quota-plan"),
        )
        if record is None:
            done = _of_trace(console, trace or Path(), own, left_out, out, ahead, **options)
        else:
            done = _of_record(console, record, own, left_out, out, ahead, settings=_settings(config), **options)
    except (ReplayError, RecordError, traces.TraceError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"--out {out}: {error.strerror or error}") from error
    body = done.as_json()
    (out / "replay.json").write_text(json.dumps(body, indent=1, allow_nan=False) + "\n")
    (out / "report.html").write_text(report.html(done, (trace or record or out).name), encoding="utf-8")
    if schedule or schedule_format:
        for story in done.stories:
            schedules.write(story.result, out / "schedule", story.policy, kind)
    terminal.say(*([document(output.kind, body)] if output.kind else lines(done, presenting.width())))
    console.print(f"[dim]{out / 'report.html'}  {out / 'replay.json'}[/dim]")


def _settings(config: Path | None) -> Settings:
    """The settings of a replay: from a Kueue configuration file, a replay needs the settings of fair sharing alone."""
    if config is None:
        return SETTINGS
    found = read_configuration(config, tell=False).settings
    return replace(SETTINGS, fair_sharing=found.fair_sharing, admission_fair_sharing=found.admission_fair_sharing)


def _of_trace(
    console: Console,
    trace: Path,
    own: list[Policy],
    left_out: list[str],
    out: Path,
    ahead: _Ahead,
    *,
    gpus: int | None,
    gpus_per_node: int,
    flavors: tuple[str, ...],
    measured: Path | None,
    format_: str,
    names: str | None,
    **options: Any,
) -> Replay:
    """Replay a job trace. Raises ReplayError, TraceError, OSError."""
    cluster = trace_flavors.cluster(gpus, gpus_per_node, flavors)
    if measured is not None and not flavors:
        raise ReplayError("--flavor-speeds says nothing without --flavor")
    jobs = traces.load(trace, format_)
    if not jobs.jobs:
        raise ReplayError(f"{trace} holds no jobs")
    if not cluster.nodes:
        left_out = [*left_out, *(f"{each.name}: spec.moves is not played in a flat pool" for each in own if each.moves)]
        own = [replace(each, moves=None) for each in own]
    plan = _plan(
        cluster=cluster,
        policies=_compared(
            (*policies.chosen("besteffort,easy,gangline" if names is None else names), *own), any(ahead)
        ),
        covers=(jobs.jobs[0].submit, jobs.jobs[-1].submit),
        usual=(1800.0, 0),
        **options,
    )
    trace_flavors.check(plan, any(ahead))
    with console.status("Training the model …" if plan.needs("model") else "Reading …"):
        prepared, notes = prepare(jobs, plan)
    if flavors:
        played, of_speeds = trace_flavors.with_speeds(prepared.jobs, plan, measured)
        prepared, notes = replace(prepared, jobs=played), [*notes, *of_speeds]
    if any(ahead):
        planned, troubles = trace_windows.of_trace(*ahead, plan, prepared)
        prepared, notes = replace(prepared, planned=planned), [*notes, *troubles]
    out.mkdir(parents=True, exist_ok=True)
    with _bars(console) as bars:
        return replay(jobs, plan, prepared, [*notes, *left_out], _Meter(bars, plan, len(prepared.jobs)), out)


def _of_record(
    console: Console,
    folder: Path,
    own: list[Policy],
    left_out: list[str],
    out: Path,
    ahead: _Ahead,
    *,
    gpus: int | None,
    gpus_per_node: int,
    flavors: tuple[str, ...],
    measured: Path | None,
    format_: str,
    names: str | None,
    **options: Any,
) -> Replay:
    """Replay a cluster's record. Raises ReplayError, RecordError, OSError."""
    if gpus is not None or options["tenants"]:
        raise ReplayError("--gpus and --tenants say nothing with --cluster-record: the record has quotas and queues")
    if flavors or measured is not None:
        raise ReplayError("--flavor and --flavor-speeds say nothing with --cluster-record: the record has flavors")
    del gpus_per_node, format_
    with console.status("Reading …"):
        source = cluster_record.opened(folder)
    plan = _plan(
        cluster=source.cluster,
        policies=_compared(
            (*cluster_record.chosen(cluster_record.USUAL if names is None else names), *own),
            any(ahead) or source.plans,
            (cluster_record.OWN.name,) if source.moves else (),
        ),
        covers=(source.first, source.last),
        usual=(math.inf, cluster_record.SHAKEN),
        **options,
    )
    with console.status("Training the model …" if plan.needs("model") else "Preparing …"):
        prepared, notes = preparing.prepare(source, plan, trace_windows.changes_of(*ahead, source.history.first))
    out.mkdir(parents=True, exist_ok=True)
    with _bars(console) as bars:
        meter = _Meter(bars, plan, len(prepared.jobs))
        return cluster_record.finished(
            source, plan, prepared, lambda: replay(source.played.trace, plan, prepared, [*notes, *left_out], meter, out)
        )


def _compared(chosen: tuple[Policy, ...], ahead: bool, moving: Collection[str] = ()) -> tuple[Policy, ...]:
    """The policies of a replay: where windows or quotas are planned, each one beside the same without them, and one that moves
    jobs beside the same without moves. `moving`: names of policies that move jobs as the record says.
    """
    return policies.with_unmoved(policies.with_comparisons(chosen) if ahead else chosen, moving)


def _plan(
    *,
    covers: tuple[float, float],
    usual: tuple[float, int],
    policies: tuple[Policy, ...],
    train_until: float | None,
    first: float | None,
    last: float | None,
    checkpoint: float | None,
    retrain_every: float,
    save_cost: float | None,
    jitter: int | None,
    workers: int | None,
    **options: Any,
) -> ReplayPlan:
    """The plan of a replay, from the options. `covers`: the times of the first and the last job that there are. `usual`: the
    interval of checkpoints, and the number of shaken runs, if none are given.
    """
    begin = covers[0] if train_until is None else train_until
    begin = begin if first is None else first
    if last is None and begin > covers[1]:
        raise ReplayError(f"--from {instant(begin)} is after the last job, which was submitted at {instant(covers[1])}")
    every = usual[0] if checkpoint is None else checkpoint
    until = math.nextafter(covers[1], math.inf) if last is None else last
    known = windows.Span(round(covers[0] * 1000), round(until * 1000) + 2 * LONGEST)
    return ReplayPlan(
        policies=tuple(policy_file.at_times(policy, known) for policy in policies),
        train_until=train_until,
        first=begin,
        last=until,
        checkpoint=None if math.isinf(every) else every,
        retrain_every=None if math.isinf(retrain_every) else retrain_every,
        save_cost=save_cost or 0.0,
        jitter=usual[1] if jitter is None else jitter,
        workers=workers or os.cpu_count() or 1,
        **options,
    )


def _from_files(files: tuple[Path, ...]) -> tuple[list[Policy], list[str]]:
    """The policies of all files, and what of them is not played. Raises ReplayError."""
    found: list[Policy] = []
    notes: list[str] = []
    for file in files:
        more, left_out = policy_file.read(manifests.text_of(file, "--policy-file"), file.name)
        if same := sorted({policy.name for policy in found} & {policy.name for policy in more}):
            raise ReplayError(f"--policy-file {file}: the name {same[0]} is taken; give the QueuePolicy another one")
        found += more
        notes += left_out
    return found, notes


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} jobs"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


class _Meter:
    """One progress bar per policy; perturbed copies of the input count towards their policy's bar. Where nobody looks at a
    terminal, a line for each quarter.
    """

    def __init__(self, bars: Progress, plan: ReplayPlan, jobs: int) -> None:
        self._bars = bars
        self._jobs = jobs * (plan.jitter + 1)
        width = max(len(policy.name) for policy in plan.policies)
        self._tasks: dict[str, TaskID] = {
            policy.name: bars.add_task(f"{policy.name:<{width}}", total=self._jobs) for policy in plan.policies
        }

    def __call__(self, tick: Tick) -> None:
        name, _, jobs = tick
        self._bars.advance(self._tasks[name], jobs)
        if self._bars.console.is_terminal:
            return
        task = self._bars.tasks[self._tasks[name]]
        done = round(task.completed)
        if 4 * done // self._jobs > 4 * (done - jobs) // self._jobs:
            spent = task.elapsed or 0.0
            self._bars.console.print(f"{name}: {done:,} of {self._jobs:,} jobs, {spent:.0f} s", highlight=False)
