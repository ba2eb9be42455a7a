"""Progress of an example: which jobs have finished, which never fit, and how well the GPUs were used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gangline.bounded import printable
from gangline.console.views.table import gpu_use
from gangline.console.views.watch import in_use
from gangline.control.answers.workloads.snapshot import FINISHED, Snapshot, State, WorkloadView
from gangline.control.answers.workloads.words import why

JobId = tuple[str, str, str]  # kind, namespace, name


@dataclass(slots=True)
class RunProgress:
    """Progress of the jobs of one run, updated by snapshot. Times are seconds since the run began."""

    expected: frozenset[JobId]
    preempted: set[str] = field(default_factory=set[str])
    gpu_seconds: float = 0.0
    available: float = 0.0
    _last: float | None = None
    _held: int = 0
    _total: int = 0

    def update(self, seen: Snapshot, at: float) -> None:
        if self._last is not None:
            self.gpu_seconds += self._held * (at - self._last)
            self.available += self._total * (at - self._last)
        self._last, self._held, self._total = at, in_use(seen), gpu_use(seen.queues)[1]
        self.preempted |= {v.uid for v in seen.workloads if v.state is State.STOPPING or v.evicted}

    def of(self, seen: Snapshot) -> dict[JobId, WorkloadView]:
        """The expected jobs that have a Workload."""
        found = {(v.job_kind, v.namespace, v.job_name): v for v in seen.workloads}
        return {job: found[job] for job in self.expected if job in found}

    def settled(self, seen: Snapshot) -> bool:
        """Whether every job has finished or, by its condition, can never fit."""
        jobs = self.of(seen)
        return len(jobs) == len(self.expected) and all(v.state in FINISHED or v.never_fits for v in jobs.values())

    def problems(self, seen: Snapshot) -> list[str]:
        """One line per job that has not succeeded; empty when every job that can run has."""
        jobs = self.of(seen)
        missing = [f"{kind} {ns}/{name}: it has no Workload" for kind, ns, name in self.expected - jobs.keys()]
        failed = [_problem(v) for v in jobs.values() if v.state is not State.SUCCEEDED and not v.never_fits]
        return sorted(missing) + sorted(failed)

    def summary(self, seen: Snapshot, seconds: float) -> list[str]:
        """The summary lines at the end of a run."""
        jobs = self.of(seen).values()
        done = sum(v.state is State.SUCCEEDED for v in jobs)
        lines = [f"{done} of {len(self.expected)} jobs finished in {seconds:.0f} s"]
        if self.preempted:
            lines[0] += f"; {len(self.preempted)} were preempted and ran again"
        if self.available:
            lines[0] += f"; GPUs were in use {self.gpu_seconds / self.available:.0%} of the time"
        return lines + [f"{v.job} never fits: {why(v)}" for v in _sorted(v for v in jobs if v.never_fits)]


def _problem(view: WorkloadView) -> str:
    return printable(f"{view.job} in {view.namespace}: {view.state}: {why(view) or view.message}")


def _sorted(views: Iterable[WorkloadView]) -> list[WorkloadView]:
    return sorted(views, key=lambda v: (v.namespace, v.job_name))
