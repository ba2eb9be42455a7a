"""Alibaba PAI cluster-trace-gpu-v2020 (NSDI'22): the compact copy, the published task table, and its simulator's job list.

Compact columns: job, task, submit_s, duration_s, clamped, gpu_num.
Task table (`pai_task_table`, no header as published): job_name, task_name, inst_num, status, start_time, end_time,
plan_cpu, plan_mem, plan_gpu, gpu_type. The table has no submit time: a task's start stands for it.
Simulator: job_id, num_gpu, submit_time, duration, with user, group, num_inst, gpu_type where it has them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gangline.traces.trace import Columns, Row, TraceJob, rows

COMPACT = frozenset({"job", "task", "submit_s", "duration_s", "gpu_num"})
TASKS = frozenset({"job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_gpu"})
SIMULATOR = frozenset({"job_id", "num_gpu", "submit_time", "duration"})
_PERCENT = 100  # the task table counts GPUs and CPUs in hundredths
_GIB = 2**30


def knows(columns: Columns) -> bool:
    return columns >= COMPACT or columns >= TASKS or columns >= SIMULATOR


def read(path: Path, columns: Columns, skipped: Counter[str]) -> Iterator[TraceJob]:
    if columns >= TASKS:
        yield from _tasks(path, skipped)
    elif columns >= SIMULATOR:
        yield from _simulated(path, skipped)
    else:
        yield from map(_compact, rows(path, COMPACT))


def _compact(row: Row) -> TraceJob:
    return TraceJob(
        id=f"{row.text('job')}/{row.text('task')}",
        submit=row.number("submit_s"),
        duration=row.positive("duration_s"),
        gpus=row.count("gpu_num"),
        name=row.text("task"),
        clamped=row.flag("clamped"),
    )


def _tasks(path: Path, skipped: Counter[str]) -> Iterator[TraceJob]:
    for row in rows(path, TASKS):
        pods = row.count("inst_num", 0)
        milli = round(row.positive("plan_gpu", 0) * 1000 / _PERCENT)
        if not pods or not milli:
            skipped["asks for no GPU"] += 1
        elif not row.text("start_time") or not row.text("end_time"):
            skipped["never started or never ended"] += 1
        else:
            yield _task(row, pods, milli)


def _task(row: Row, pods: int, milli: int) -> TraceJob:
    start = row.number("start_time")
    return TraceJob(
        id=f"{row.text('job_name')}/{row.text('task_name')}",
        submit=start,
        duration=max(0.0, row.number("end_time") - start),
        gpus=pods * max(1, math.ceil(milli / 1000)),
        user=row.text("user"),
        name=row.text("group") or row.text("task_name"),
        state=row.text("status"),
        pods=pods,
        gpu_milli=milli if milli < 1000 else 0,
        cpu_milli=round(row.positive("plan_cpu", 0) * 1000 / _PERCENT),
        memory=round(row.positive("plan_mem", 0) * _GIB),
        flavor=row.text("gpu_type"),
    )


def _simulated(path: Path, skipped: Counter[str]) -> Iterator[TraceJob]:
    for row in rows(path, SIMULATOR):
        per_pod = row.positive("num_gpu")
        pods = max(1, row.count("num_inst", 1))
        if not per_pod:
            skipped["asks for no GPU"] += 1
            continue
        yield TraceJob(
            id=row.text("job_id"),
            submit=row.instant("submit_time"),
            duration=row.positive("duration"),
            gpus=pods * max(1, math.ceil(per_pod)),
            user=row.text("user"),
            name=row.text("group"),
            pods=pods,
            gpu_milli=round(per_pod * 1000) if per_pod < 1 else 0,
            wait=row.optional("wait_time"),
            flavor=row.text("gpu_type"),
        )
