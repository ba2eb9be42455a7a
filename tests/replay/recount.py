"""A second count of what a replay reports, from its exported schedule alone. It shares nothing with the engine: it knows that a
job of up to 8 GPUs runs on one node, a larger one on whole nodes and the rest on another, and nothing else.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    job: int
    gpus: int
    submit: float
    start: float
    end: float
    reason: str
    backfilled: bool
    lost: float
    nodes: dict[int, int]


@dataclass(frozen=True)
class Head:
    job: int
    since: float
    until: float


class Schedule:
    """A flat pool has no nodes: its jobs hold GPUs of one large node."""

    def __init__(self, folder: Path, name: str, nodes: int, per_node: int) -> None:
        self.nodes, self.per_node = nodes, per_node
        self.runs: list[Run] = []
        self.rows: list[dict[str, str]] = []
        with (folder / f"{name}.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                self.rows.append(row)
                if row["run"]:
                    self.runs.append(_run(row))
        with (folder / f"{name}-heads.csv").open(encoding="utf-8") as file:
            self.heads = [Head(int(r["job"]), float(r["from"]), float(r["until"])) for r in csv.DictReader(file)]
        self.gpus = {int(row["job"]): int(row["gpus"]) for row in self.rows}
        self.submit = {int(row["job"]): float(row["submit"]) for row in self.rows}
        times = {run.start for run in self.runs} | {run.end for run in self.runs} | set(self.submit.values())
        times |= {head.since for head in self.heads} | {head.until for head in self.heads}
        self.times = sorted(times)

    def moments(self) -> Iterator[tuple[float, float, list[Run]]]:
        """(from, to, what runs) of each time in which nothing changes."""
        for since, until in zip(self.times, self.times[1:], strict=False):
            yield since, until, [run for run in self.runs if run.start <= since < run.end]

    def free(self, running: list[Run]) -> list[int]:
        free = [self.per_node] * self.nodes
        for run in running:
            for node, gpus in run.nodes.items():
                free[node] -= gpus
        return free

    def fits(self, gpus: int, running: list[Run]) -> bool:
        free = sorted(self.free(running))
        whole, rest = divmod(gpus, self.per_node)
        for _ in range(whole):
            if not free or free.pop() < self.per_node:
                return False
        return not rest or bool(free and free[-1] >= rest)

    def over_committed(self) -> list[float]:
        """When a node held more than it has."""
        return [since for since, _, running in self.moments() if min(self.free(running)) < 0]

    def idle_work(self) -> list[float]:
        """When a job waited though it fitted: best effort never lets that be."""
        found: list[float] = []
        for since, _, running in self.moments():
            ran = {run.job for run in running}
            done = {run.job for run in self.runs if run.end <= since and not run.reason}
            waiting = [job for job, at in self.submit.items() if at <= since and job not in ran | done]
            if any(self.fits(self.gpus[job], running) for job in waiting):
                found.append(since)
        return found

    def head_delay(self, *, by_age: bool) -> float:
        """For how long heads would have fitted but for jobs that were backfilled while they waited, and did not fit beside them.

        `by_age`: the queue's order is that of submission, so that only later jobs can pass a head; else any job may.
        """
        total = 0.0
        for since, until, running in self.moments():
            for head in self.heads:
                if head.since <= since < head.until:
                    left = [run for run in running if not self._passed(run, head.job, by_age)]
                    gpus = self.gpus[head.job]
                    total += (until - since) * (self.fits(gpus, left) and not self.fits(gpus, running))
        return total

    def _passed(self, run: Run, head: int, by_age: bool) -> bool:
        later = (run.submit, run.job) > (self.submit[head], head)
        return run.backfilled and run.start >= self.submit[head] and (later or not by_age)

    def waits(self) -> list[float]:
        """Completion time minus duration, of jobs that ended."""
        ends = {run.job: run.end for run in self.runs if not run.reason}
        durations = {int(row["job"]): float(row["duration"]) for row in self.rows}
        return [end - self.submit[job] - durations[job] for job, end in ends.items()]


def _run(row: dict[str, str]) -> Run:
    nodes = {int(node): int(gpus) for node, gpus in (place.split(":") for place in row["nodes"].split())}
    return Run(
        int(row["job"]),
        int(row["gpus"]),
        float(row["submit"]),
        float(row["start"]),
        float(row["end"] or "inf"),
        row["reason"],
        row["backfilled"] == "1",
        float(row["lost"]),
        nodes,
    )
