"""Reading CSV, plain or gzipped, with errors that name file, line and column."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypeAlias

from gangline.traces.trace import TraceError

_GZIP_MAGIC = b"\x1f\x8b"


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """The file as text, unpacked if it is gzipped. Raises TraceError where that fails, also while it is read."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            data = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as text:  # type: ignore[arg-type]
                yield text
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {reason}") from error


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
            raise self.error(column, f"is no number: {raw!r}") from None
        if not math.isfinite(value):
            raise self.error(column, f"is no finite number: {raw!r}")
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
            raise self.error(column, f"is no finite number: {raw!r}")
        return value

    def _date(self, column: str, raw: str) -> float:
        try:
            parsed = datetime.fromisoformat(raw)
        except ValueError:
            raise self.error(column, f"is neither seconds nor a date and time: {raw!r}") from None
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()

    def error(self, column: str, problem: str) -> TraceError:
        return TraceError(f"{self._path}, line {self.line}, column {column}: {problem}")


Columns: TypeAlias = frozenset[str]


def header(path: Path) -> Columns:
    """The columns of a CSV file; for any other file, the content of its first line."""
    with open_text(path) as text:
        return frozenset(name.strip() for name in next(csv.reader(text), []))


def rows(path: Path, required: Iterable[str]) -> Iterator[Row]:
    """The lines of a CSV file with a header. Raises TraceError if a required column is missing or a line is cut."""
    with open_text(path) as text:
        reader = csv.reader(text)
        names = [name.strip() for name in next(reader, [])]
        missing = [name for name in required if name not in names]
        if missing:
            raise TraceError(f"{path}: no column {', '.join(missing)}; it has {', '.join(names) or 'none'}")
        try:
            for values in reader:
                if not values:
                    continue
                if len(values) != len(names):
                    raise TraceError(
                        f"{path}, line {reader.line_num}: {len(values)} values for {len(names)} columns; is the file cut?"
                    )
                yield Row(path, reader.line_num, dict(zip(names, values, strict=True)))
        except csv.Error as error:
            raise TraceError(f"{path}, line {reader.line_num}: {error}") from error
