"""Small made-up traces, and the rule that the reference replays are made by, written down a second time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

from tests.forecast.generator import make_runs

from gangline.replay.replayed import ReplayedJob, replayed
from gangline.traces import TraceJob

SIZES = (1, 1, 1, 2, 4, 5, 8, 12, 16, 20)


def trace_jobs(count: int, seed: int = 7, *, days: float = 1.0) -> list[TraceJob]:
    """Jobs of users with habits, of sizes that do not divide a node evenly."""
    rng = random.Random(seed)
    return [
        TraceJob(
            id=run.uid,
            submit=float(int(run.submit)),
            duration=float(int(run.seconds or 1)),
            gpus=rng.choice(SIZES),
            user=run.user,
            vc=run.queue,
            name=run.name,
        )
        for run in make_runs(count, seed, days=days)
    ]


def made(*rows: tuple[float, float, int] | tuple[float, float, int, float]) -> list[ReplayedJob]:
    """Jobs from (submit, duration, GPUs[, limit]), in seconds."""
    return replayed(
        TraceJob(
            id=f"j{number}",
            submit=job[0],
            duration=job[1],
            gpus=job[2],
            user="somebody",
            limit=job[3] if len(job) == 4 else None,
        )
        for number, job in enumerate(rows, start=1)
    )


def reference(
    jobs: Sequence[ReplayedJob], nodes: int, *, strict: bool, order: Callable[[ReplayedJob], float], per_node: int = 8
) -> list[int]:
    """Starts (milliseconds) on empty nodes: on one node by tightest fit, larger gangs on whole nodes and the rest likewise."""
    free = [per_node] * nodes
    ends: list[tuple[int, int, list[tuple[int, int]]]] = []
    waiting: list[ReplayedJob] = []
    starts = [-1] * len(jobs)
    moments = sorted({job.submit for job in jobs})
    while moments or ends:
        now = min(moments[0] if moments else 1 << 62, ends[0][0] if ends else 1 << 62)
        while ends and ends[0][0] <= now:
            for node, taken in heapq.heappop(ends)[2]:
                free[node] += taken
        if moments and moments[0] == now:
            moments.pop(0)
            waiting += [job for job in jobs if job.submit == now]
        for job in sorted(waiting, key=lambda job: (order(job), job.submit, job.number)):
            places = _place(free, job.gpus, per_node)
            if places is None:
                if strict:
                    break
                continue
            for node, taken in places:
                free[node] -= taken
            waiting.remove(job)
            starts[job.number] = now
            heapq.heappush(ends, (now + job.duration, job.number, places))
    return starts


def _place(free: list[int], gpus: int, per_node: int) -> list[tuple[int, int]] | None:
    whole, rest = divmod(gpus, per_node)
    empty = [node for node, left in enumerate(free) if left == per_node]
    if len(empty) < whole:
        return None
    places = [(node, per_node) for node in empty[:whole]]
    if rest:
        taken = set(empty[:whole])
        fitting = [(left, node) for node, left in enumerate(free) if left >= rest and node not in taken]
        if not fitting:
            return None
        places.append((min(fitting)[1], rest))
    return places
