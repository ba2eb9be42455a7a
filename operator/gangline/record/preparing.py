"""A record as the input of a replay: the jobs of the window with those that still ran or waited at its beginning, the history
before it, and the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gangline.engine.model import Millis
from gangline.forecast.history.playback import known_at
from gangline.forecast.history.runs import from_trace
from gangline.kube import resources as kube
from gangline.record import calendar, reserved
from gangline.record.history import RecordedChange, RecordedHistory
from gangline.record.workloads import PlayableWorkloads, as_it_was, capacity, played
from gangline.record.worlds import BEGINNING, queue_name, worlds
from gangline.replay import metrics
from gangline.replay.learned import school
from gangline.replay.planned import Planned
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan, instant
from gangline.replay.replayed import LONGEST, ReplayedCluster, ReplayedJob, ReplayError, replayed
from gangline.replay.run import PolicyResult
from gangline.replay.trace_facts import NAMESPACE
from gangline.traces import TraceJob

#: what really happened, beside the policies that are played
RECORDED: Final = "recorded"


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record that was read."""

    history: RecordedHistory
    played: PlayableWorkloads
    cluster: ReplayedCluster

    @property
    def first(self) -> float:
        return self.history.first / 1000

    @property
    def plans(self) -> bool:
        """Whether there ever was a Reservation or a QuotaPlan."""
        return any(change.kind in (reserved.RESERVATIONS, calendar.QUOTA_PLANS) for change in self.history.changes)

    @property
    def moves(self) -> bool:
        """Whether there ever was a QueuePolicy with a part `moves`."""
        kind = kube.QUEUE_POLICIES.kind
        policies = (each.body for each in self.history.changes if each.kind == kind and each.body is not None)
        return any("moves" in (body.get("spec") or {}) for body in policies)

    @property
    def last(self) -> float:
        return self.history.last / 1000


def source(history: RecordedHistory) -> ReadRecord:
    """Prepare a record for replays. Raises RecordError for a Workload that can't be read, ReplayError where nothing ran."""
    found = played(history)
    if not found.trace.jobs:
        raise ReplayError("no Workload of the record ever ran")
    return ReadRecord(history, found, ReplayedCluster(capacity(history, found.accelerators), 0))


def prepare(source: ReadRecord, plan: ReplayPlan, more: Sequence[RecordedChange] = ()) -> tuple[Prepared, list[str]]:
    """Prepare the part of a record that a plan is about, with more Reservations and QuotaPlans from its beginning on, each
    instead of the recorded one of its name; also returns notes on it. Raises ReplayError if the window has no job.
    """
    if unfit := [policy.name for policy in plan.policies if policy.ranked]:
        raise ReplayError(f"--policy {unfit[0]}: it sets priorities, and a record has its own")
    jobs = [job for job in source.played.trace.jobs if job.submit < plan.last and _matters(source, job, plan.first)]
    if not any(job.submit >= plan.first for job in jobs):
        raise ReplayError(
            f"no job that ran was submitted from {instant(plan.first)} to {instant(plan.last)}; the record runs from "
            f"{instant(source.first)} to {instant(source.last)}"
        )
    until = plan.first if plan.train_until is None else plan.train_until
    chosen = {job.id for job in jobs}
    earlier = [job for job in source.played.trace.jobs if job.submit < plan.first and job.id not in chosen]
    past = [job.duration for job in earlier if job.submit + job.duration < until]
    notes = _notes(source, plan)
    schooling = None
    history = [known_at(from_trace(_cut(job)), plan.first) for job in earlier]
    if plan.needs("model"):
        schooling = school(history, until, plan.first)
        if schooling.note:
            notes.append(f"no model: {schooling.note}")
    longest = min(max(past, default=LONGEST / 1000), LONGEST / 1000)
    limit = longest if plan.limit is None else plan.limit
    sized = _sized(jobs)
    planned, troubles = _planned(source, plan, more)
    return Prepared(
        jobs=tuple(sized),
        history=tuple(history),
        past_seconds=tuple(past) or tuple(job.duration / 1000 for job in sized),
        limit=round(max(limit, 1.0) * 1000),
        quotas=None,
        schooling=schooling,
        worlds=worlds(source.history, source.played.shapes),
        planned=planned,
    ), [*notes, *troubles]


def _planned(source: ReadRecord, plan: ReplayPlan, more: Sequence[RecordedChange]) -> tuple[Planned, list[str]]:
    """What the Reservations and QuotaPlans of the record and these come to, and what can't be honoured of these."""
    names = {(each.kind, each.name) for each in more}
    changes = [each for each in source.history.changes if (each.kind, each.name) not in names]
    earlier = [each for each in changes if each.at <= source.history.first + BEGINNING]
    begin = earlier[-1].at if earlier else source.history.first
    events = [*earlier, *(replace(each, at=begin) for each in more), *changes[len(earlier) :]]
    until = round(plan.last * 1000) + 2 * LONGEST
    planned, troubles = reserved.planned(events, until, lambda key: f"{NAMESPACE}/{queue_name(key)}")
    quotas, lacking = calendar.quotas(events, until)
    return replace(planned, quotas=tuple(quotas)), [*troubles, *lacking] if more else []


def _sized(jobs: Sequence[TraceJob]) -> list[ReplayedJob]:
    """Jobs without accelerators are played, too."""
    sizes = {job.id: job.gpus for job in jobs}
    return [
        replace(job, gpus=sizes[job.id]) for job in replayed(replace(each, gpus=max(1, each.gpus)) for each in jobs)
    ]


def _matters(source: ReadRecord, job: TraceJob, first: float) -> bool:
    """Whether the job was submitted in the window, or was still there when it began."""
    if job.submit >= first:
        return True
    recorded = source.played.recorded[job.id]
    ends: list[Millis | None] = [recorded.finished, recorded.gone]
    end = min((each for each in ends if each is not None), default=None)
    return end is None or end >= first * 1000


def _cut(job: TraceJob) -> TraceJob:
    return replace(job, duration=min(job.duration, LONGEST / 1000))


def _notes(source: ReadRecord, plan: ReplayPlan) -> list[str]:
    history = source.history
    notes = [f"{count} Workloads left out: {reason}" for reason, count in source.played.trace.skipped.items()]
    open_ends = sum(not job.ended for job in source.played.trace.jobs)
    if open_ends:
        notes.append(f"{open_ends} Workloads had not ended: they are played as if they ended with the record")
    if history.gaps:
        hours = sum(until - since for since, until in history.gaps) / 3.6e6
        notes.append(f"nobody recorded for {hours:.1f} h, {len(history.gaps)} times: Workloads may be missing")
    if history.cut:
        notes.append(f"{len(history.cut)} lines were cut off, the first at {history.cut[0]}")
    if not source.played.accelerators:
        notes.append("no Workload asks for accelerators: GPUs are cores here")
    return notes


def as_recorded(source: ReadRecord, plan: ReplayPlan, prepared: Prepared) -> PolicyResult:
    """What really happened to the jobs of the window, by the same measures."""
    rules = plan.rules
    jobs = [rules.applied(job) for job in prepared.jobs if job.submit >= plan.first * 1000]
    result = as_it_was(jobs, source.played.recorded, source.cluster, source.history.last)
    return PolicyResult(RECORDED, result, metrics.of(result))


def with_own(policies: Sequence[Policy], own: Policy) -> tuple[Policy, ...]:
    """The cluster's own policy first: all others are compared with it."""
    return (own, *(policy for policy in policies if policy.name != own.name))
