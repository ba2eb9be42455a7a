"""Policies side by side, each in a process of its own."""

from __future__ import annotations

import csv
import gc
import importlib
import multiprocessing
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any, Final, Literal, TypeAlias

from gangline.engine.model import Millis
from gangline.replay.finished_runs import FinishedRuns
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.replayed import Headship, ReplayedOutcome, ReplayError, ReplayResult, Stint
from gangline.replay.run import PolicyResult, Replay, play
from gangline.traces import Trace

# --- schedule ---------------------------------------------------------------------------------------------------------
#
# The schedule of a policy: a row per run of a job, and a row per time for which a job was first of its queue's reserved ones.
#
# With both, and nothing else, every figure of a replay can be computed again. Times are seconds of the trace's clock. CSV is
# always there; Parquet needs the extra `gangline[parquet]`.


Format: TypeAlias = Literal["csv", "parquet"]
FORMATS: Final[tuple[Format, ...]] = ("csv", "parquet")
_Kind: TypeAlias = Literal["number", "text", "time", "flag", "places"]
#: values are integers, text, milliseconds, booleans and pairs of (node, GPUs); None = nothing
_Row: TypeAlias = Sequence[Any]

#: a job that was never started has one row, without the columns from `run` to `nodes`
RUNS: Final[Mapping[str, _Kind]] = {
    "job": "number",
    "id": "text",
    "tenant": "text",
    "gpus": "number",
    "submit": "time",
    "duration": "time",
    "promised": "time",
    "outcome": "text",
    "run": "number",
    "start": "time",
    "end": "time",
    "reason": "text",
    "backfilled": "flag",
    "lost": "time",
    "nodes": "places",
}
HEADS: Final[Mapping[str, _Kind]] = {"queue": "text", "job": "number", "from": "time", "until": "time"}


def require(format_: Format) -> None:
    """Check that files of this format can be written here. Raises ReplayError if they can't."""
    if format_ == "parquet":
        _arrow()


def write(result: ReplayResult, folder: Path, name: str, format_: Format = "csv") -> None:
    """NAME.csv and NAME-heads.csv, or .parquet. Raises ReplayError if the format can't be written here."""
    put = _put_csv if format_ == "csv" else _put_parquet
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / f"{name}.{format_}", RUNS, _runs(result))
    put(folder / f"{name}-heads.{format_}", HEADS, map(_headship, result.headships))


# --- rows ---------------------------------------------------------------------------------------------------------------


def _runs(result: ReplayResult) -> Iterator[_Row]:
    for outcome in result.outcomes:
        job = outcome.job
        head = result.heads.get(job.number)
        about = (job.number, job.id, job.tenant, job.gpus, job.submit, job.duration, head.promised if head else None)
        if not outcome.stints:
            yield *about, "impossible" if outcome.impossible else "waiting", *[None] * 7
        for number, stint in enumerate(outcome.stints, start=1):
            yield *about, *_run(outcome, stint, number)


def _run(outcome: ReplayedOutcome, stint: Stint, number: int) -> _Row:
    """`outcome` is how the run ended: finished, evicted, or running when the replay ended."""
    ended = "evicted" if stint.evicted else "finished" if outcome.finish is not None else "running"
    end = None if ended == "running" else stint.end
    return ended, number, stint.start, end, stint.evicted, stint.backfilled, stint.lost, stint.places


def _headship(headship: Headship) -> _Row:
    return headship.queue, headship.job, headship.since, headship.until


# --- files --------------------------------------------------------------------------------------------------------------


def _put_csv(file: Path, columns: Mapping[str, _Kind], rows: Iterable[_Row]) -> None:
    kinds = list(columns.values())
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(kind, value) for kind, value in zip(kinds, row, strict=True)] for row in rows)


def _text(kind: _Kind, value: Any) -> str | int:
    if value is None:
        return ""
    if kind == "time":
        return _seconds(value)
    if kind == "places":
        return " ".join(f"{node}:{gpus}" for node, gpus in value)
    return int(value) if kind == "flag" else value


def _seconds(millis: Millis) -> str:
    return f"{millis // 1000}" if millis % 1000 == 0 else f"{millis / 1000:.3f}"


def _put_parquet(file: Path, columns: Mapping[str, _Kind], rows: Iterable[_Row]) -> None:
    arrow, parquet = _arrow()
    kinds = {
        "number": arrow.int64(),
        "text": arrow.string(),
        "time": arrow.float64(),
        "flag": arrow.bool_(),
        "places": arrow.list_(arrow.struct([("node", arrow.int64()), ("gpus", arrow.int64())])),
    }
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    table = arrow.table(typed(columns, rows), schema=schema)
    parquet.write_table(table, file, compression="zstd")


def typed(columns: Mapping[str, _Kind], rows: Iterable[_Row]) -> dict[str, list[Any]]:
    """The columns of a Parquet file: times in seconds, places as lists of node and GPUs."""
    found: dict[str, list[Any]] = {name: [] for name in columns}
    for row in rows:
        for (name, kind), value in zip(columns.items(), row, strict=True):
            if value is not None and kind == "time":
                value = value / 1000
            elif value is not None and kind == "places":
                value = [{"node": node, "gpus": gpus} for node, gpus in value]
            found[name].append(value)
    return found


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ReplayError("Parquet files need pyarrow: pip install 'gangline[parquet]'") from error


#: (policy, shaken copy, jobs submitted since the last message)
Tick: TypeAlias = tuple[str, int, int]
Tell: TypeAlias = Callable[[Tick], None]
Task: TypeAlias = tuple[Policy, int]
Done: TypeAlias = tuple[PolicyResult, dict[str, Any]]

#: jobs between two progress messages
_STEP: Final = 250


def replay(
    trace: Trace,
    plan: ReplayPlan,
    prepared: Prepared,
    notes: Sequence[str] = (),
    tell: Tell = lambda tick: None,
    keep_in: Path | None = None,
) -> Replay:
    """Run every policy, and every shaken copy of its input; in this process if there is only one worker. `keep_in`: where the
    ended runs are kept until all have ended.
    """
    tasks = [(policy, shaken) for shaken in range(plan.jitter + 1) for policy in plan.policies]
    ended = FinishedRuns(keep_in, plan, prepared)
    stories: dict[str, PolicyResult] = {}
    shaken_runs: dict[str, dict[int, dict[str, Any]]] = {}
    forecasts: dict[str, dict[str, Any]] = {}

    def take(task: Task, done: Done) -> None:
        (policy, shaken), (story, forecast) = task, done
        if shaken:
            shaken_runs.setdefault(policy.name, {})[shaken] = story.measures
            return
        stories[policy.name] = story
        if forecast:
            forecasts[policy.name] = forecast

    left: list[Task] = []
    for task in tasks:
        if (done := ended.read(*task)) is None:
            left.append(task)
        else:
            take(task, done)
            tell((task[0].name, task[1], len(prepared.jobs)))
    with tempfile.TemporaryDirectory(prefix="gangline-replay-") as folder:
        path = Path(folder) / "prepared"
        with path.open("wb") as file:
            pickle.dump(prepared, file, protocol=pickle.HIGHEST_PROTOCOL)
        play_all = _one_by_one if min(plan.workers, len(left)) <= 1 else _in_processes
        for task, done in play_all(plan, left, path, tell):
            ended.keep(*task, done)
            take(task, done)
    ended.forget()
    ordered = [stories[policy.name] for policy in plan.policies]
    first = next((forecasts[policy.name] for policy in plan.policies if policy.name in forecasts), {})
    forecast = {**first, "by_policy": forecasts} if first else {}
    in_order = {name: [runs[copy] for copy in sorted(runs)] for name, runs in shaken_runs.items()}
    return Replay(plan, trace.format, ordered, in_order, forecast, prepared.limit / 1000, list(notes))


def _one_by_one(plan: ReplayPlan, tasks: Sequence[Task], path: Path, tell: Tell) -> Iterator[tuple[Task, Done]]:
    for task in tasks:
        yield task, _play(plan, task, _load(path), tell)


def _in_processes(plan: ReplayPlan, tasks: Sequence[Task], path: Path, tell: Tell) -> Iterator[tuple[Task, Done]]:
    context = multiprocessing.get_context("spawn")
    ticks: Queue[Tick] = context.Queue()
    workers = min(plan.workers, len(tasks))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=(ticks, path)) as pool:
        futures = {pool.submit(_work, plan, task): task for task in tasks}
        while futures:
            _drain(ticks, tell)
            for future in [future for future in futures if future.done()]:
                yield futures.pop(future), future.result()
        _drain(ticks, tell)


def _drain(ticks: Queue[Tick], tell: Tell) -> None:
    """Pass on the workers' messages; waits a moment without any."""
    try:
        tell(ticks.get(timeout=0.2))
        while True:
            tell(ticks.get_nowait())
    except Empty:
        pass


# --- in a worker --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Worker:
    """The inputs of a worker process."""

    ticks: Queue[Tick] | None = None
    path: Path = Path()


_WORKER: Final = _Worker()


def _set_up(ticks: Queue[Tick], path: Path) -> None:
    _WORKER.ticks, _WORKER.path = ticks, path


def _work(plan: ReplayPlan, task: Task) -> Done:
    assert _WORKER.ticks is not None
    return _play(plan, task, _load(_WORKER.path), _WORKER.ticks.put)


def _load(path: Path) -> Prepared:
    """Load what a run needs. Each run begins with a fresh copy, since a forecaster learns on the way."""
    with path.open("rb") as file:
        prepared: Prepared = pickle.load(file)
    gc.freeze()  # it stays: garbage is looked for in the rest
    return prepared


def _play(plan: ReplayPlan, task: Task, prepared: Prepared, tell: Tell) -> Done:
    policy, shaken = task
    count = 0

    def progress(jobs: int) -> None:
        nonlocal count
        count += jobs
        if count >= _STEP:
            tell((policy.name, shaken, count))
            count = 0

    story, forecast = play(plan, policy, prepared, shaken, progress)
    tell((policy.name, shaken, count))
    result = story.result
    result.outcomes = [] if shaken else [_without_trace(outcome) for outcome in result.outcomes]
    return story, forecast


def _without_trace(outcome: ReplayedOutcome) -> ReplayedOutcome:
    outcome.job = replace(outcome.job, trace=None)
    return outcome
