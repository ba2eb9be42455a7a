"""The schedule of a policy: a row per run of a job, and a row per time for which a job was first of its queue's reserved ones.

With both, and nothing else, every figure of a replay can be computed again. Times are seconds of the trace's clock. CSV is always
there; Parquet needs the extra `gangline[parquet]`.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from gangline.engine.model import Millis
from gangline.replay.replayed import Headship, ReplayedOutcome, ReplayError, ReplayResult, Stint

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
        promised = result.promises.get(job.number)
        about = (job.number, job.id, job.tenant, job.gpus, job.submit, job.duration, promised[0] if promised else None)
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
