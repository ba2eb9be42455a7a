"""Alibaba cluster-trace-gpu-v2023 (FGD, ATC'23): pods with fractions of a GPU.

Pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time, scheduled_time.
Pods in phase Running were cut by the end of the trace: their `ended` is False.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gangline.traces.trace import Columns, Row, TraceJob, rows

PODS = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "pod_phase", "creation_time"})
_MIB = 2**20


def knows(columns: Columns) -> bool:
    return columns >= PODS


def read(path: Path, columns: Columns, skipped: Counter[str]) -> Iterator[TraceJob]:
    for row in rows(path, PODS):
        if not row.count("num_gpu"):
            skipped["asks for no GPU"] += 1
        elif not row.text("scheduled_time") or not row.text("deletion_time"):
            skipped["never started"] += 1
        else:
            yield _pod(row)


def _pod(row: Row) -> TraceJob:
    submit, start = row.number("creation_time"), row.number("scheduled_time")
    milli = row.count("gpu_milli")
    return TraceJob(
        id=row.text("name"),
        submit=submit,
        duration=max(0.0, row.number("deletion_time") - start),
        gpus=row.count("num_gpu"),
        vc=row.text("qos"),
        state=row.text("pod_phase"),
        gpu_milli=milli if milli < 1000 else 0,
        cpu_milli=row.count("cpu_milli"),
        memory=row.count("memory_mib") * _MIB,
        wait=max(0.0, start - submit),
        flavor=row.text("gpu_spec"),
        ended=row.text("pod_phase") != "Running",
    )
