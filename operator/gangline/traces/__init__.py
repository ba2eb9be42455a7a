"""Readers for public job traces: Helios, Philly, PAI, openb, SWF and Gangline's own superset of them.

>>> trace = load(Path("cluster_log.csv"))        # the format is recognised by its columns
>>> trace.jobs[0].gpus
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gangline.traces import helios, native, openb, pai, philly, swf
from gangline.traces.helios import quotas
from gangline.traces.native import write
from gangline.traces.trace import Trace, TraceError, TraceJob, header, listed

__all__ = ["FORMATS", "Trace", "TraceError", "TraceJob", "detect", "load", "quotas", "write"]

#: CSV formats in the order of detection: the first that knows the file's columns reads it
_TABLES = {"gangline": native, "openb": openb, "philly": philly, "helios": helios, "pai": pai}
FORMATS = ("auto", *_TABLES, "swf")


def detect(path: Path) -> str:
    """The file's format, by its first line. Raises TraceError if none fits."""
    columns = header(path)
    for name, reader in _TABLES.items():
        if reader.knows(columns):
            return name
    if any(column.startswith(("[", "{")) for column in columns):
        return "philly"
    if swf.looks_like(path):
        return "swf"
    known = ", ".join(FORMATS[1:])
    raise TraceError(f"{path}: the format is not recognised ({known}); its first line has {listed(sorted(columns))}")


def load(path: Path, format: str = "auto") -> Trace:
    """All jobs of a trace file, gzipped or not, in the order of submission.

    Raises TraceError naming the wrong file, line and column, and for an unknown format.
    """
    if format not in FORMATS:
        raise TraceError(f"unknown trace format {format!r}: use {', '.join(FORMATS)}")
    chosen = detect(path) if format == "auto" else format
    skipped: Counter[str] = Counter()
    jobs = sorted(_read(path, chosen, skipped), key=lambda job: job.submit)
    return Trace(chosen, tuple(jobs), dict(skipped))


def _read(path: Path, format: str, skipped: Counter[str]) -> Iterator[TraceJob]:
    if format == "swf":
        return swf.read(path, skipped)
    return _TABLES[format].read(path, header(path), skipped)
