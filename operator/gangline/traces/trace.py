"""Traces as plain values: jobs, nodes and quotas. Times and durations are seconds."""

from __future__ import annotations

import codecs
import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from gangline import bounded, files


class TraceError(ValueError):
    """A trace file that cannot be read; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One gang of a trace. Empty strings and None mean that the trace does not say."""

    id: str
    submit: float  #: when it was submitted, in seconds of the trace's own clock
    duration: float  #: how long it ran (see `ended` and `clamped`)
    gpus: int  #: whole GPUs of the whole gang
    user: str = ""
    vc: str = ""  #: virtual cluster, tenant or queue
    name: str = ""
    state: str = ""  #: as the trace spells it
    pods: int = 1
    #: thousandths of one GPU per pod if it asks for a fraction, else 0
    gpu_milli: int = 0
    cpu_milli: int = 0  #: per pod
    memory: int = 0  #: bytes per pod
    wait: float | None = None  #: recorded queueing delay
    limit: float | None = None  #: requested runtime limit: the job was stopped then
    hint: float | None = None  #: its author's expected runtime
    flavor: str = ""  #: kind of GPU it asked for or ran on
    clamped: bool = False  #: the true duration is at least `duration`: it was cut for publication
    ended: bool = True  #: False: it still ran when the trace ended, `duration` after its start
    checkpoint: float | None = None  #: how often it saves its work, in seconds of work; 0 = never
    save: float | None = None  #: how long one save takes; not part of `duration`
    flavor_speeds: str = ""  #: how fast it is on which kind of GPU, as a ratio to `duration`: v100=2,k80=0.5


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their submission; ties in the order of the file."""

    format: str
    jobs: tuple[TraceJob, ...]
    #: rows without a runnable job (no GPUs, no duration, never started), by reason
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])

    def between(self, first: float, last: float) -> Trace:
        """The trace with the jobs only that were submitted in [first, last)."""
        return Trace(self.format, tuple(job for job in self.jobs if first <= job.submit < last), self.skipped)


# --- table ------------------------------------------------------------------------------------------------------------
#
# Reading CSV, plain or gzipped, with errors that name file, line and column. What a file may hold is bounded: a trace may come
# from anywhere.


#: bytes of a line, and of the lines of one row: a row may have line breaks in quotes
LONGEST_ROW: Final = 256 * 2**10
#: bytes of a file, unpacked
MOST_BYTES: Final = 2 * 2**30
#: bytes of a file that is one JSON document, which takes several times as much memory
MOST_JSON: Final = 128 * 2**20
#: rows of a file; the largest public traces have a million
MOST_ROWS: Final = 4_000_000
#: bytes of the first line that tell a format
_TELLING: Final = 64 * 2**10
#: columns that a message lists
_SHOWN_COLUMNS: Final = 30


def lines(path: Path) -> Iterator[str]:
    """The file's lines, unpacked if it is gzipped. Raises TraceError where that fails, also while it is read."""
    number = 0
    try:
        for number, line in enumerate(files.read_lines(path, longest=LONGEST_ROW, most=MOST_BYTES), start=1):
            if number > MOST_ROWS:
                raise TraceError(f"{path}: has more than {MOST_ROWS} lines")
            yield (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode()
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}, line {number}: not UTF-8: {error.reason}") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def json_text(path: Path) -> bytes:
    """A file that is one JSON document. Raises TraceError."""
    try:
        return files.read_bytes(path, most=MOST_JSON, unpack=True).removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> TraceError:
    return TraceError(f"{path}: cannot be read: {error.strerror or error}")


class Row:
    """One line of a table; each getter names file, line and column of an invalid value."""

    __slots__ = ("_path", "_values", "line")

    def __init__(self, path: Path, line: int, values: dict[str, str]) -> None:
        self._path, self.line, self._values = path, line, values

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._values)

    def text(self, column: str, default: str = "") -> str:
        return (self._values.get(column) or default).strip()

    def required(self, column: str) -> str:
        raw = self.text(column)
        if not raw:
            raise self.error(column, "is missing")
        return raw

    def number(self, column: str, default: float | None = None) -> float:
        """A finite number; `default` replaces an empty or missing value."""
        if default is not None and not self.text(column):
            return default
        raw = self.required(column)
        try:
            value = float(raw)
        except ValueError:
            raise self.error(column, f"is no number: {bounded.shown(raw)}") from None
        if not math.isfinite(value):
            raise self.error(column, f"is no finite number: {bounded.shown(raw)}")
        return value

    def positive(self, column: str, default: float | None = None) -> float:
        """A number of zero or more."""
        value = self.number(column, default)
        if value < 0:
            raise self.error(column, f"must not be negative: {value:g}")
        return value

    def optional(self, column: str) -> float | None:
        """A number of zero or more, or None if the column is empty, missing or -1 (the archives' mark for unknown)."""
        if not self.text(column):
            return None
        value = self.number(column)
        return value if value >= 0 else None

    def count(self, column: str, default: int | None = None) -> int:
        """A whole number of zero or more; 8.0 is 8."""
        value = self.positive(column, default)
        if value != int(value):
            raise self.error(column, f"is no whole number: {value:g}")
        return int(value)

    def flag(self, column: str) -> bool:
        return self.text(column).lower() in ("1", "true", "yes")

    def instant(self, column: str) -> float:
        """Unix seconds, given as such or as a date and time (read as UTC)."""
        raw = self.required(column)
        try:
            value = float(raw)
        except ValueError:
            return self._date(column, raw)
        if not math.isfinite(value):
            raise self.error(column, f"is no finite number: {bounded.shown(raw)}")
        return value

    def _date(self, column: str, raw: str) -> float:
        try:
            parsed = datetime.fromisoformat(raw)
        except ValueError:
            raise self.error(column, f"is neither seconds nor a date and time: {bounded.shown(raw)}") from None
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()

    def error(self, column: str, problem: str) -> TraceError:
        return TraceError(f"{self._path}, line {self.line}, column {column}: {problem}")


Columns: TypeAlias = frozenset[str]


def header(path: Path) -> Columns:
    """The columns of a CSV file; for any other file, the beginning of its first line."""
    try:
        first = files.read_beginning(path, _TELLING).removeprefix(codecs.BOM_UTF8).decode(errors="replace")
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        return frozenset(name.strip() for name in next(csv.reader([first]), []))
    except csv.Error:
        return frozenset((first.strip(),))


class _Rows:
    """The lines of a file for a CSV reader, which asks for further ones while a quote is open: for so many bytes a row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = lines(path)
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines, start=1):
            self._size += len(line)
            if self._size > LONGEST_ROW:
                raise TraceError(
                    f"{self._path}, line {number}: the row has more than {LONGEST_ROW} bytes; is a quote open?"
                )
            yield line

    def begin_row(self) -> None:
        self._size = 0


def rows(path: Path, required: Iterable[str]) -> Iterator[Row]:
    """The lines of a CSV file with a header. Raises TraceError if a required column is missing or a line is cut."""
    given = _Rows(path)
    reader = csv.reader(given)
    try:
        names = [name.strip() for name in next(reader, [])]
        missing = [name for name in required if name not in names]
        if missing:
            raise TraceError(f"{path}: no column {', '.join(missing)}; it has {listed(names) or 'none'}")
        given.begin_row()
        for values in reader:
            given.begin_row()
            if not values:
                continue
            if len(values) != len(names):
                raise TraceError(
                    f"{path}, line {reader.line_num}: {len(values)} values for {len(names)} columns; is the file cut?"
                )
            yield Row(path, reader.line_num, dict(zip(names, values, strict=True)))
    except csv.Error as error:
        raise TraceError(f"{path}, line {reader.line_num}: {error}") from error


def listed(names: Iterable[str]) -> str:
    """Names of columns in a message: each in quotes and cut, and not too many."""
    shown = [bounded.shown(name) for name in names]
    return ", ".join(shown[:_SHOWN_COLUMNS]) + (", …" if len(shown) > _SHOWN_COLUMNS else "")
