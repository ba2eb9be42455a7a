"""SenseTime Helios (SC'21): `cluster_log.csv` as published, and the compact copy without users.

Published columns: job_id, user, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration, queue, vc.
Compact columns: job_id, submit_s, duration_s, clamped, gpu_num.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gangline.traces.trace import Columns, Row, TraceJob, rows

COMPACT = frozenset({"job_id", "submit_s", "duration_s", "gpu_num", "clamped"})
PUBLISHED = frozenset({"job_id", "submit_time", "duration", "gpu_num"})


def knows(columns: Columns) -> bool:
    return (columns >= COMPACT and "task" not in columns) or columns >= PUBLISHED


def read(path: Path, columns: Columns, skipped: Counter[str]) -> Iterator[TraceJob]:
    compact = columns >= COMPACT
    for row in rows(path, COMPACT if compact else PUBLISHED):
        if not row.count("gpu_num"):
            skipped["asks for no GPU"] += 1
        elif compact:
            yield _compact(row)
        elif not row.text("duration"):
            skipped["never started"] += 1
        else:
            yield _published(row)


def _compact(row: Row) -> TraceJob:
    return TraceJob(
        id=row.text("job_id"),
        submit=row.number("submit_s"),
        duration=row.positive("duration_s"),
        gpus=row.count("gpu_num"),
        clamped=row.flag("clamped"),
    )


def _published(row: Row) -> TraceJob:
    submit = row.instant("submit_time")
    started = row.text("start_time") not in ("", "None", "NaT")
    return TraceJob(
        id=row.text("job_id"),
        submit=submit,
        duration=row.positive("duration"),
        gpus=row.count("gpu_num"),
        user=row.text("user"),
        vc=row.text("vc"),
        name=row.text("job_name") or row.text("jobname"),
        state=row.text("state"),
        pods=max(1, row.count("node_num", 1)),
        wait=max(0.0, row.instant("start_time") - submit) if started else None,
    )


def quotas(path: Path) -> dict[str, dict[str, int]]:
    """GPUs of each virtual cluster by day (`YYYY-MM-DD`), from the compact quota file: date, one column per VC, total."""
    found: dict[str, dict[str, int]] = {}
    names: list[str] = []
    for row in rows(path, ("date", "total")):
        names = names or [name for name in row.columns if name not in ("date", "total")]
        found[row.text("date")] = {name.removeprefix("vc"): row.count(name) for name in names}
    return found
