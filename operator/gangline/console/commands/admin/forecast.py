"""`gangline admin forecast`: fills the run history, trains and evaluates the model, and shows the forecast of one job."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gangline import traces
from gangline.console.commands.admin import forecast_pairs
from gangline.console.options import FORECAST_DIRECTORY, Instant, Span
from gangline.console.output import presenting, terminal
from gangline.console.output.formats import OutputFormat, answer_option, dated, document
from gangline.console.output.layout import Rows, wrapped
from gangline.console.views import access, asking, completing, jobs, own_rights
from gangline.control.answers.workloads.words import age
from gangline.forecast import metrics
from gangline.forecast.errors import ModelError, StoreError, TooFewRunsError, TrainingError
from gangline.forecast.evaluate import ALIKE, Report, Scores, Window, evaluate
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.playback import known_at
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run, from_trace
from gangline.forecast.learning.quantile_model import QuantileModel, load
from gangline.forecast.learning.worker import TIMEOUT, train_in_process
from gangline.forecast.quantiles import Forecast
from gangline.kube.errors import Unavailable
from gangline.kube.resources import Json

# --- forecast report --------------------------------------------------------------------------------------------------
#
# The report of `gangline admin forecast eval`: how near forecasts came, by estimate, quantile and group of jobs.


def lines(report: Report, width: int | None = None) -> list[str]:
    """The report, for a terminal of `width` columns; None: of any width."""
    window = report.window
    sources = ", ".join(f"{name} {count}" for name, count in report.sources.items())
    often = f", retrained {report.models - 1} times" if report.models > 1 else ""
    head = [
        f"trained on {report.trained_on} runs known at {to_minute(window.train_until)}{often}; "
        f"tested on {report.overall.forecast.runs} runs submitted from {to_minute(window.first)} to {to_minute(window.last)}",
        f"sources: {sources}",
        f"at the end: {report.verdict.reason}",
    ]
    tables = {
        "Point estimates (errors of natural logarithms; the forecast's is q50)": _points(report.overall),
        "Quantiles": _quantiles(report.overall),
        "By size and queue": _groups({**report.by_size, **report.by_queue}),
    }
    found = [part for text in head for part in wrapped(text, width)]
    for title, rows in tables.items():
        found += ["", *wrapped(title, width), *presenting.styled(rows, width)]
    return found


def _points(scores: Scores) -> Rows:
    header = ("ESTIMATE", "RUNS", "LOG ERROR", "SPEARMAN", "WITHIN 2x", "TOO SHORT", "FORECAST BETTER BY")
    cells: list[tuple[str, ...]] = []
    for name, score in scores.points.items():
        if score is None:
            cells.append((name, "0", *("–",) * 5))
            continue
        gain = scores.gains.get(name)
        better = "" if gain is None else f"{gain:+.1%}"
        numbers = (f"{score.error:.3f}", f"{score.spearman:.3f}", f"{score.within_two:.1%}", f"{score.under:.1%}")
        cells.append((name, str(score.runs), *numbers, better))
    ranks = {"SPEARMAN": 3, "TOO SHORT": 2, "RUNS": 1}
    return Rows(header, tuple(cells), right=frozenset(header[1:]), ranks=ranks)


def _quantiles(scores: Scores) -> Rows:
    header = ("QUANTILE", "COVERAGE", "PINBALL", "ALIKE COVERAGE", "ALIKE PINBALL", "FORECAST BETTER BY")
    score, alike = scores.forecast, scores.alike
    cells = [
        (
            name,
            f"{score.coverage[name]:.3f}",
            f"{score.pinball[name]:.4f}",
            f"{alike.coverage[name]:.3f}" if alike else "–",
            *_beside(score.pinball[name], alike.pinball[name] if alike else None),
        )
        for name in score.coverage
    ]
    mean = score.mean_pinball, alike.mean_pinball if alike else None
    cells.append(("mean", "", f"{mean[0]:.4f}", "", *_beside(*mean)))
    return Rows(header, tuple(cells), right=frozenset(header[1:]), ranks={"ALIKE COVERAGE": 1})


def _beside(loss: float, alike: float | None) -> tuple[str, str]:
    """The loss of the runs that are alike, and by how much the forecast's is lower."""
    return (f"{alike:.4f}", f"{1 - loss / alike:+.1%}") if alike else ("–", "–")


def _groups(groups: dict[str, Scores]) -> Rows:
    header = (
        "GROUP", "RUNS", "COVERAGE q50", "q80", "q90", "q95", "PINBALL q90", "LOG ERROR", "LAST-TWO", "CLASS MEDIAN", "ALIKE",
        "SPEARMAN",
    )  # fmt: skip
    cells: list[tuple[str, ...]] = []
    for name, scores in groups.items():
        of, points = scores.forecast, scores.points
        errors = (
            f"{p.error:.3f}" if (p := points[which]) else "–"
            for which in ("forecast", "last-two", "class-median", ALIKE)
        )
        rank = f"{p.spearman:.3f}" if (p := points["forecast"]) else "–"
        coverage = (f"{of.coverage[q]:.3f}" for q in ("q50", "q80", "q90", "q95"))
        cells.append((name, str(of.runs), *coverage, f"{of.pinball['q90']:.4f}", *errors, rank))
    ranks = {"CLASS MEDIAN": 5, "LAST-TWO": 4, "q80": 3, "PINBALL q90": 2, "q95": 1}
    return Rows(header, tuple(cells), right=frozenset(header[1:]), ranks=ranks, least={"GROUP": 20})


def to_minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


_db = click.option(
    "--db",
    default=str(FORECAST_DIRECTORY / "history.db"),
    envvar="GANGLINE_HISTORY",
    show_envvar=True,
    help="History: path of an SQLite file or any SQLAlchemy URL.",
)
_model = click.option(
    "--model",
    "model_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=FORECAST_DIRECTORY / "model.gz",
    envvar="GANGLINE_MODEL",
    show_envvar=True,
    help="The model file.",
)
_format = click.option("--format", "format_", type=click.Choice(traces.FORMATS), default="auto", show_default=True)


@click.group("forecast")
def command() -> None:
    """Import a history of runtimes, train the model of forecasts, evaluate it, and show one job's forecast."""


command.add_command(forecast_pairs.command)


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_format
@_db
@click.option("--keep-all", is_flag=True, help="Do not drop runs older than 180 days before the newest one.")
def import_(files: tuple[Path, ...], format_: str, db: str, keep_all: bool) -> None:
    """Add the jobs of trace FILES to the history. Importing a file again changes nothing."""
    with _open(db) as store:
        for file in files:
            trace = _trace(file, format_)
            written = _readable(store.put)(map(from_trace, trace.jobs))
            terminal.say(f"{file}: {written} runs ({trace.format}){_skipped(trace)}")
        newest = _readable(store.runs)(limit=1)
        if newest and not keep_all and (dropped := _readable(store.prune)(newest[0].submit)):
            terminal.say(f"dropped {dropped} runs older than the retention period; --keep-all keeps them")
        terminal.say(f"the history holds {store.count()} runs")


@command.command("train")
@_db
@_model
@click.option("--until", type=Instant(), default=None, help="Use only what was known at this time (default: now).")
@answer_option
def train_(db: str, model_path: Path, until: float | None, output: OutputFormat) -> None:
    """Train the model on the history, in a separate process."""
    _open(db).close()  # report a wrong URL before starting the process
    begun = time.monotonic()
    try:
        model = train_in_process(db, model_path, time.time() if until is None else until, timeout=TIMEOUT)
    except (TooFewRunsError, TrainingError, ModelError) as error:
        raise click.ClickException(str(error)) from error
    seconds = time.monotonic() - begun
    if output.kind:
        terminal.say(document(output.kind, {"model": str(model_path), "seconds": seconds, **_model_json(model)}))
        return
    terminal.say(f"{model_path}: learned from {model.samples} runs in {seconds:.1f} s")
    if (v := model.validation) is not None:
        better = f"{1 - v.error / v.last_two:+.1%}" if v.last_two else "–"
        terminal.say(
            f"on the {v.runs} latest runs (held out): log error {v.error:.3f}, last-two {v.last_two:.3f} (better by {better})"
        )
        if v.worse:
            terminal.say("the model is worse than the last-two baseline: forecasts will not use it")


def _model_json(model: QuantileModel) -> dict[str, Any]:
    v = model.validation
    return {
        "samples": model.samples,
        "trained_at": model.trained_at,
        "validation": v and {"runs": v.runs, "error": v.error, "last_two": v.last_two, "worse": v.worse},
    }


@command.command("eval")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_format
@_db
@click.option("--train-until", type=Instant(), required=True, help="Train on what was known before this time.")
@click.option("--from", "first", type=Instant(), default=None, help="First submission tested. [default: --train-until]")
@click.option("--to", "last", type=Instant(), default=None, help="End of the test window. [default: the last run]")
@click.option(
    "--retrain-every", type=Span(), default=None, help="Retrain during the test at this interval, as the operator does."
)
@answer_option
def eval_(
    file: Path | None,
    format_: str,
    db: str,
    train_until: float,
    first: float | None,
    last: float | None,
    retrain_every: float | None,
    output: OutputFormat,
) -> None:
    """Evaluate forecasts on a trace FILE (default: the history): train up to a date, forecast later submissions."""
    runs = _runs(file, format_, db)
    if not runs:
        raise click.ClickException("there are no runs to test on")
    window = _window(runs, train_until, first, last, retrain_every)
    try:
        report = evaluate(runs, window, progress=lambda words: terminal.say(f"· {words}", err=True))
    except ValueError as error:  # TooFewRunsError is one
        raise click.ClickException(str(error)) from error
    terminal.say(*([document(output.kind, report.as_json())] if output.kind else lines(report, presenting.width())))


def _window(
    runs: list[Run], train_until: float, first: float | None, last: float | None, retrain_every: float | None
) -> Window:
    """The test window. Raises click.ClickException that names the option which leaves no run to test."""
    begin = train_until if first is None else first
    end = math.nextafter(max(run.submit for run in runs), math.inf) if last is None else last
    if begin < train_until:
        raise click.ClickException(f"--from {to_minute(begin)} lies before --train-until {to_minute(train_until)}")
    if not any(begin <= run.submit < end for run in runs):
        submitted = [run.submit for run in runs]
        known = f"runs were submitted from {to_minute(min(submitted))} to {to_minute(max(submitted))}"
        option = "--train-until" if first is None else "--from"
        raise click.ClickException(
            f"no run to test: {known}, and {option} is {to_minute(begin)}, --to {to_minute(end)}"
        )
    return Window(train_until, begin, end, retrain_every)


@command.command("show")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@access.cluster_options
@_db
@_model
@answer_option
@click.pass_context
def show(
    ctx: click.Context,
    job: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    db: str,
    model_path: Path,
    output: OutputFormat,
) -> None:
    """Show the forecast for JOB: the operator's, or with --db that of a history at its submission, with its actual runtime.

    JOB is a name or kind/name for the operator; a UID, a name, or namespace/name for a history.
    """
    if ctx.get_parameter_source("db") is ParameterSource.DEFAULT and (
        answer := access.run(_operators(job, kubeconfig, context, namespace))
    ):
        body = dated(answer, jobs.INSTANTS)
        terminal.say(document(output.kind, body) if output.kind else _show_operators(answer, time.time()))
        return
    with _open(db) as store:
        found = _readable(store.find)(job)
        if not found:
            raise click.ClickException(f"no job {job!r} in the history")
        run = found[0]
        history = [r for r in _readable(store.runs)() if r.submit <= run.submit and r.uid != run.uid]
    now = time.time() if run.finish is None else run.submit
    forecaster, note = _forecaster(model_path, history, run)
    total = forecaster.forecast(run.uid, now)
    assert total is not None  # `_forecaster` has just submitted the run
    known = forecaster.tracker.class_of(run)
    verdict = forecaster.status(run.submit)
    body = {
        "uid": run.uid,
        "job": "/".join(filter(None, (run.namespace, run.name))) or run.uid,
        "forecast": dict(zip(metrics.names(), total.values, strict=True)),
        "source": total.source,
        "samples": total.samples,
        "flavor": run.flavor or None,
        "byFlavor": _by_flavor(forecaster, run, now),
        "class": known and {"key": known[0], "finished": known[1].count, "median": math.exp(known[1].median())},
        "took": run.seconds,
        "model": note or verdict.reason,
    }
    terminal.say(document(output.kind, body) if output.kind else _show(body, total))


async def _operators(job: str, kubeconfig: Path | None, context: str | None, namespace: str | None) -> Json:
    """The operator's forecast of a job in a cluster; {} where no operator gives one, which is said on stderr."""
    try:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            path, query = asking.job_path(where, job)
            item = await asking.get(api, path, {**query, "times": True})
    except (*own_rights.NoOperator, asking.NoAnswerError, Unavailable) as error:
        terminal.say(f"({error}: this is from the history on this machine)", err=True)
        return {}
    except click.ClickException:  # no cluster is configured
        if kubeconfig or context or namespace:
            raise
        return {}
    return jobs.as_json(item)


def _show_operators(answer: Json, now: float) -> str:
    forecast = answer["forecast"]
    runs = jobs.runtime_text(answer) or "not known"
    lines = [f"{answer['kind'].lower()}/{answer['name']} in namespace {answer['namespace']}: {answer['state'].lower()}"]
    if answer["elapsedSeconds"] is not None:
        lines.append(f"has run for {age(answer['elapsedSeconds'])}")
    source = f", from {forecast['source']} ({forecast['samples']} runs)" if forecast else ""
    lines.append(f"runs for {runs}{source}")
    if answer["expectedStart"] is not None:
        lines.append(f"starts in {jobs.start_text(answer, now)}, {answer['because']}")
    return "\n".join(lines)


def _by_flavor(forecaster: Forecaster, run: Run, now: float) -> dict[str, dict[str, float]]:
    """The forecast on each flavor of known speed, for a job that is not running; empty if all flavors have the same forecast."""
    if run.start is not None and run.finish is None:
        return {}
    forecasts = {flavor: forecaster.forecast(run.uid, now, flavor) for flavor in sorted(forecaster.flavor_offsets)}
    values = {flavor: each.values for flavor, each in forecasts.items() if each is not None}
    if len(set(values.values())) < 2:
        return {}
    return {flavor: dict(zip(metrics.names(), each, strict=True)) for flavor, each in values.items()}


def _forecaster(model_path: Path, history: list[Run], run: Run) -> tuple[Forecaster, str]:
    """A forecaster with the history known when the run was submitted, and why it doesn't use the model ("" if it does)."""
    forecaster, note = Forecaster(), ""
    forecaster.restore(known_at(r, run.submit) for r in history)
    try:
        model = load(model_path) if model_path.exists() else None
    except ModelError as error:
        raise click.ClickException(str(error)) from error
    if model is not None and model.trained_at > run.submit and run.finish is not None:
        model, note = None, "not used: trained after this job's submission, so it may include this job's runtime"
    forecaster.use(model)
    forecaster.submitted(run)
    if run.start is not None and run.finish is None:
        forecaster.started(run.uid, run.start, run.flavor)
    return forecaster, note


def _show(body: dict[str, Any], total: Forecast) -> str:
    lines = [
        f"{body['job']}  (uid {body['uid']})",
        f"  forecast  {', '.join(f'{name} {age(value)}' for name, value in body['forecast'].items())}",
        f"  source    {total.source}, {total.samples} runs",
    ]
    if body["flavor"] or body["byFlavor"]:
        lines.append(f"  flavor    {body['flavor'] or 'not known yet: forecast for a flavor of average speed'}")
    for flavor, quantiles in body["byFlavor"].items():
        lines.append(f"  on {flavor:<6} {', '.join(f'{name} {age(value)}' for name, value in quantiles.items())}")
    if body["class"]:
        of = body["class"]
        lines.append(f"  class     same {of['key']}: {of['finished']} finished, median {age(of['median'])}")
    took = body["took"]
    lines.append(f"  took      {'not finished' if took is None else age(took)}")
    return "\n".join([*lines, f"  model     {body['model']}"])


# --- input ------------------------------------------------------------------------------------------------------------


def _open(db: str) -> HistoryStore:
    return _readable(HistoryStore)(db)


def _readable(call: Any) -> Any:
    """`call`, with StoreError reported as click.ClickException."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except StoreError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


def _trace(file: Path, format_: str) -> traces.Trace:
    try:
        return traces.load(file, format_)
    except traces.TraceError as error:
        raise click.ClickException(str(error)) from error


def _skipped(trace: traces.Trace) -> str:
    return "".join(f"; {count} skipped: {reason}" for reason, count in trace.skipped.items())


def _runs(file: Path | None, format_: str, db: str) -> list[Run]:
    if file is not None:
        return [from_trace(job) for job in _trace(file, format_).jobs]
    with _open(db) as store:
        return _readable(store.runs)()
