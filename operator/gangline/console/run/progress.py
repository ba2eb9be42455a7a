"""Progress of an example: which jobs have finished, which never fit, and how well the GPUs were used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gangline.bounded import printable
from gangline.console.run.example import Example
from gangline.console.views.table import gpu_use
from gangline.console.views.watch import in_use
from gangline.control.answers.workloads.snapshot import FINISHED, AnswerSnapshot, JobState, WorkloadView
from gangline.control.answers.workloads.words import why
from gangline.control.audit import audit_check, decision_index
from gangline.control.audit.audit_check import AuditResult
from gangline.control.audit.fact_codec import FactError
from gangline.engine import BACKFILL, BUDGET, EARLY_END, STOPPING
from gangline.engine.model import ReservedHead
from gangline.kube.resources import QUEUE_POLICIES

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

    def update(self, seen: AnswerSnapshot, at: float) -> None:
        if self._last is not None:
            self.gpu_seconds += self._held * (at - self._last)
            self.available += self._total * (at - self._last)
        self._last, self._held, self._total = at, in_use(seen), gpu_use(seen.queues)[1]
        self.preempted |= {v.uid for v in seen.workloads if v.state is JobState.STOPPING or v.evicted}

    def of(self, seen: AnswerSnapshot) -> dict[JobId, WorkloadView]:
        """The expected jobs that have a Workload."""
        found = {(v.job_kind, v.namespace, v.job_name): v for v in seen.workloads}
        return {job: found[job] for job in self.expected if job in found}

    def settled(self, seen: AnswerSnapshot) -> bool:
        """Whether every job has finished or, by its condition, can never fit."""
        jobs = self.of(seen)
        return len(jobs) == len(self.expected) and all(v.state in FINISHED or v.never_fits for v in jobs.values())

    def problems(self, seen: AnswerSnapshot) -> list[str]:
        """One line per job that has not succeeded; empty when every job that can run has."""
        jobs = self.of(seen)
        missing = [f"{kind} {ns}/{name}: it has no Workload" for kind, ns, name in self.expected - jobs.keys()]
        failed = [_problem(v) for v in jobs.values() if v.state is not JobState.SUCCEEDED and not v.never_fits]
        return sorted(missing) + sorted(failed)

    def summary(self, seen: AnswerSnapshot, seconds: float) -> list[str]:
        """The summary lines at the end of a run."""
        jobs = self.of(seen).values()
        done = sum(v.state is JobState.SUCCEEDED for v in jobs)
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


# --- promised and actual starts of reserved jobs in a run, from a replay of the operator's audit record ---------------


@dataclass(frozen=True, slots=True)
class PromiseReport:
    lines: tuple[str, ...]
    broken: tuple[str, ...]  # descriptions of broken promises


#: why a backfilled job delayed a reserved job
_CAUSES: Final = {
    BACKFILL: "while these overran",
    BUDGET: "while these overran and the loss budget spared them",
    EARLY_END: "while these were within their time",
    STOPPING: "while these were ending",
}


def matter(example: Example) -> bool:
    """Whether a queue of the example backfills, so that reserved jobs get promised starts."""
    specs = [m.obj.get("spec") or {} for m in example.manifests if m.resource == QUEUE_POLICIES]
    return any(spec.get("backfill") or spec.get("profile") == "Gangline" for spec in specs)


def kept(record: Path, views: Iterable[WorkloadView]) -> PromiseReport:
    """Replay the operator's record and check the promises."""
    outcome = AuditResult()
    try:
        audit_check.check(audit_check.read(decision_index.files(record), outcome), outcome)
    except (FactError, OSError) as error:
        return PromiseReport((), (f"the operator's record cannot be read: {error}",))
    jobs = {view.key: view.job for view in views}
    return PromiseReport(tuple(_lines(outcome, jobs)), tuple(_broken(outcome, jobs)))


def _lines(outcome: AuditResult, jobs: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for head in outcome.heads:
        if head.planned is None:
            continue
        name, at = _named(head.workload, jobs), (head.started - outcome.first) / 1000
        planned = (head.planned - outcome.first) / 1000
        early = planned - at
        word = f"{early:.1f} s earlier" if early >= 0 else f"{-early:.1f} s LATER"
        if early < 0 and not _passed(outcome, head):
            word = f"{-early:.1f} s later, because jobs that held its resources ran longer than forecast"
        lines.append(f"{name} was planned to start at {planned:.1f} s; it started at {at:.1f} s, {word}")
    lines.append(f"started before a reserved job: {_list((key for _, key in outcome.early), jobs) or 'none'}")
    lines.append(f"stopped because they overran: {_list(outcome.revocations, jobs) or 'none'}")
    delays = ", ".join(
        f"{sum(causes.get(cause, 0.0) for causes in outcome.head_delay.values()):.1f} s {words}"
        for cause, words in _CAUSES.items()
    )
    lines.append(f"backfilled jobs delayed reserved jobs for {delays}")
    lines.append(f"replayed from the record: {outcome.rounds} rounds, {outcome.differing} differ")
    return lines


def _broken(outcome: AuditResult, jobs: Mapping[str, str]) -> list[str]:
    broken = [
        f"{_named(head.workload, jobs)} started {(head.started - head.planned) / 1000:.1f} s later than planned"
        for head in outcome.heads
        if head.planned is not None and head.started > head.planned and _passed(outcome, head)
    ]
    if outcome.broken:
        broken.append(f"a reserved job was delayed for {outcome.broken:.1f} s against the policy of its queue")
    if outcome.differing:
        broken.append(f"{outcome.differing} rounds of decisions differ in the replay")
    if not any(head.planned is not None for head in outcome.heads):
        broken.append("no job had a planned start")
    return broken


def _passed(outcome: AuditResult, head: ReservedHead) -> bool:
    """Whether a job was backfilled while `head` was the reserved head: after the start of the previous head of its queue."""
    before = [h.started for h in outcome.heads if h.cluster_queue == head.cluster_queue and h.started < head.started]
    return any(max(before, default=0) <= at < head.started for at, _ in outcome.early)


def _list(keys: Iterable[str], jobs: Mapping[str, str]) -> str:
    return ", ".join(dict.fromkeys(_named(key, jobs) for key in keys))


def _named(key: str, jobs: Mapping[str, str]) -> str:
    return jobs.get(key, key)
