"""Microsoft Philly (ATC'19): the published `cluster_job_log` (JSON), and CSV extracts of it.

CSV columns: job_id, vc, submit_s, duration_s, gpu_num; or those of the Pollux artifact: timestamp or time, cluster or vc,
duration, num_gpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangline import bounded
from gangline.traces.trace import MOST_JSON, Columns, Row, TraceError, TraceJob, json_text, rows

COMPACT = frozenset({"job_id", "vc", "submit_s", "duration_s", "gpu_num"})
_LOG_KEYS = frozenset({"jobid", "vc", "submitted_time", "attempts"})


def knows(columns: Columns) -> bool:
    extract = bool(columns & {"timestamp", "time"}) and columns >= {"duration", "num_gpus"}
    return columns >= COMPACT or (extract and bool(columns & {"cluster", "vc"}))


def read(path: Path, columns: Columns, skipped: Counter[str]) -> Iterator[TraceJob]:
    if columns >= COMPACT:
        yield from map(_compact, rows(path, COMPACT))
    elif knows(columns):
        when = "timestamp" if "timestamp" in columns else "time"
        tenant = "cluster" if "cluster" in columns else "vc"
        for row in rows(path, (when, tenant, "duration", "num_gpus")):
            yield _extract(row, when, tenant)
    else:
        yield from read_log(path, skipped)


def _compact(row: Row) -> TraceJob:
    return TraceJob(
        id=row.text("job_id"),
        submit=row.number("submit_s"),
        duration=row.positive("duration_s"),
        gpus=row.count("gpu_num"),
        vc=row.text("vc"),
    )


def _extract(row: Row, when: str, tenant: str) -> TraceJob:
    return TraceJob(
        id=row.text("job_id") or row.text("name") or str(row.line - 2),
        submit=row.instant(when),
        duration=row.positive("duration"),
        gpus=row.count("num_gpus"),
        vc=row.text(tenant),
    )


def read_log(path: Path, skipped: Counter[str]) -> Iterator[TraceJob]:
    """The JSON job log: a list of jobs with their attempts, each with start, end and the GPUs of each node."""
    try:
        entries: Any = bounded.load_json(json_text(path), most_bytes=MOST_JSON)
    except bounded.BadJsonError as error:
        raise TraceError(f"{path}: neither a Philly CSV nor JSON: {error}") from error
    if not isinstance(entries, list):
        raise TraceError(f"{path}: a Philly job log is a JSON list of jobs")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not entry.keys() >= _LOG_KEYS:
            raise TraceError(f"{path}: entry {index} lacks one of {', '.join(sorted(_LOG_KEYS))}")
        try:
            job = _logged(entry, skipped)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise TraceError(f"{path}: entry {index} ({bounded.shown(entry.get('jobid'))}): {error}") from error
        if job is not None:
            yield job


def _logged(entry: Mapping[str, Any], skipped: Counter[str]) -> TraceJob | None:
    spans = [(_instant(a["start_time"]), _instant(a["end_time"])) for a in entry["attempts"] if a.get("start_time")]
    spans = [(start, end) for start, end in spans if start is not None]
    gpus = _gpus(entry["attempts"])
    if not spans or not gpus:
        skipped["never started" if not spans else "asks for no GPU"] += 1
        return None
    submit = _instant(entry["submitted_time"])
    if submit is None:
        skipped["no submit time"] += 1
        return None
    ran = sum(end - start for start, end in spans if end is not None and start is not None)
    return TraceJob(
        id=str(entry["jobid"]),
        submit=submit,
        duration=max(0.0, ran),
        gpus=gpus,
        user=str(entry.get("user") or ""),
        vc=str(entry["vc"]),
        state=str(entry.get("status") or ""),
        pods=len(entry["attempts"][-1].get("detail") or [None]),
        wait=max(0.0, (spans[0][0] or submit) - submit),
        ended=spans[-1][1] is not None,
    )


def _gpus(attempts: Sequence[Mapping[str, Any]]) -> int:
    return max((sum(len(node.get("gpus") or ()) for node in a.get("detail") or ()) for a in attempts), default=0)


def _instant(raw: str | None) -> float | None:
    if not raw or raw == "None":
        return None
    return datetime.fromisoformat(raw).replace(tzinfo=UTC).timestamp()
