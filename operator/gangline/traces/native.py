"""Gangline's own trace format: gzipped or plain CSV with one column per field of TraceJob, the superset of the others.

Required columns: id, submit, duration, gpus. The rest may be left out.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from gangline.traces.trace import Columns, Row, TraceJob, rows

REQUIRED = ("id", "submit", "duration", "gpus")
COLUMNS = tuple(f.name for f in fields(TraceJob))


def knows(columns: Columns) -> bool:
    return columns >= set(REQUIRED)


def read(path: Path, columns: Columns, skipped: Counter[str]) -> Iterator[TraceJob]:
    yield from map(_job, rows(path, REQUIRED))


def _job(row: Row) -> TraceJob:
    return TraceJob(
        id=row.required("id"),
        submit=row.instant("submit"),
        duration=row.positive("duration"),
        gpus=row.count("gpus"),
        user=row.text("user"),
        vc=row.text("vc"),
        name=row.text("name"),
        state=row.text("state"),
        pods=max(1, row.count("pods", 1)),
        gpu_milli=row.count("gpu_milli", 0),
        cpu_milli=row.count("cpu_milli", 0),
        memory=row.count("memory", 0),
        wait=row.optional("wait"),
        limit=row.optional("limit"),
        hint=row.optional("hint"),
        checkpoint=row.optional("checkpoint"),
        save=row.optional("save"),
        flavor=row.text("flavor"),
        flavor_speeds=row.text("flavor_speeds"),
        clamped=row.flag("clamped"),
        ended=row.flag("ended") if row.text("ended") else True,
    )


def write(path: Path, jobs: Iterable[TraceJob]) -> None:
    """Write jobs so that `read` returns them; gzipped if the name ends in .gz."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for job in jobs:
        writer.writerow([_cell(getattr(job, name)) for name in COLUMNS])
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return "" if value is None else value
