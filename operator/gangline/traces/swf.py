"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per line, comments after `;`.

Processors stand for GPUs. -1 means unknown. The requested number of processors counts; if it is unknown, the allocated number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gangline.traces.trace import TraceError, TraceJob, lines

_FIELDS = 18
_STATES = {0: "FAILED", 1: "COMPLETED", 2: "PARTIAL", 3: "PARTIAL_COMPLETED", 4: "PARTIAL_FAILED", 5: "CANCELLED"}


def looks_like(path: Path) -> bool:
    """Whether the first line that is no comment has 18 numbers."""
    for line in lines(path):
        if line.strip() and not line.lstrip().startswith(";"):
            return len(line.split()) == _FIELDS and "," not in line
    return False


def start_time(path: Path) -> float:
    """Unix seconds of the log's zero, from its header (UnixStartTime), or 0."""
    for line in lines(path):
        if not line.lstrip().startswith(";"):
            return 0.0
        key, _, value = line.lstrip("; \t").partition(":")
        if key.strip() == "UnixStartTime":
            try:
                return max(0.0, float(value))
            except ValueError:
                return 0.0
    return 0.0


def read(path: Path, skipped: Counter[str]) -> Iterator[TraceJob]:
    zero = start_time(path)
    for number, line in enumerate(lines(path), start=1):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        job = _job(_numbers(path, number, line), zero)
        if job.gpus <= 0 or job.duration <= 0:
            skipped["no processors" if job.gpus <= 0 else "no run time"] += 1
            continue
        yield job


def _numbers(path: Path, number: int, line: str) -> list[float]:
    parts = line.split()
    if len(parts) != _FIELDS:
        raise TraceError(f"{path}, line {number}: {len(parts)} fields, not {_FIELDS}; is the file cut?")
    try:
        values = [float(part) for part in parts]
    except ValueError as error:
        raise TraceError(f"{path}, line {number}: {error}") from error
    if not all(map(math.isfinite, values)):
        raise TraceError(f"{path}, line {number}: a number is not finite")
    return values


def _job(f: list[float], zero: float) -> TraceJob:
    asked, given = int(f[7]), int(f[4])
    queue, user, executable = int(f[14]), int(f[11]), int(f[13])
    return TraceJob(
        id=f"{f[0]:.0f}",
        submit=zero + f[1],
        duration=f[3],
        gpus=asked if asked > 0 else given,
        user=f"u{user}" if user >= 0 else "",
        vc=f"q{queue}" if queue >= 0 else "",
        name=f"app{_letters(executable)}" if executable >= 0 else "",
        state=_STATES.get(int(f[10]), ""),
        cpu_milli=1000,
        memory=round(f[9] * 1024) if f[9] > 0 else 0,
        wait=f[2] if f[2] >= 0 else None,
        limit=f[8] if f[8] > 0 else None,
    )


def _letters(number: int) -> str:
    """The executable's number in letters: digits would be dropped where names are compared."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))
