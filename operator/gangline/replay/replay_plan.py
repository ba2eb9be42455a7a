"""The parameters of a replay and its inputs: the jobs of the window, the history before it, a trained forecaster."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from gangline.engine.model import Millis, Settings
from gangline.forecast.history.playback import known_at
from gangline.forecast.history.runs import Run, from_trace
from gangline.replay.learned import Schooling, school
from gangline.replay.planned import NOTHING_PLANNED, Planned
from gangline.replay.policies import CHOSEN, Policy
from gangline.replay.replayed import DAY, LONGEST, ReplayedCluster, ReplayedJob, ReplayError, replayed
from gangline.replay.simulator import SavingRules
from gangline.replay.trace_facts import SETTINGS, quotas_by_use
from gangline.replay.world import Worlds
from gangline.traces import Trace, TraceJob

PREDICTORS: Final = ("model", "true", "limit", "last-two", "random", "noisy")
#: in a shaken copy, each job's submission and duration are moved by up to this share
SHAKE: Final = 0.01


#: seconds of the clock from which, and until which, they are dates: of 1980 and 2200
_FIRST_DATE: Final = 315_532_800
_LAST_DATE: Final = 7_258_118_400


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The parameters. Instants are Unix seconds, spans seconds."""

    cluster: ReplayedCluster
    policies: tuple[Policy, ...]
    first: float
    last: float
    train_until: float | None = None
    predictor: str = "model"
    limit: float | None = None  #: of jobs without one; None = the longest job before the training ends
    retrain_every: float | None = None
    checkpoint: float | None = 1800.0
    restart: float = 60.0
    save_cost: float = 0.0  #: of jobs of which the trace does not say it
    tenants: bool = False
    jitter: int = 0
    shake: float = SHAKE  #: the share by which submissions and durations are moved in a shaken copy
    seed: int = 1
    workers: int = 1
    settings: Settings = SETTINGS  #: of the cluster

    def __post_init__(self) -> None:
        if not self.first < self.last:
            raise ReplayError("--from must be before --to")
        if self.train_until is not None and self.train_until > self.first:
            raise ReplayError("--train-until must not be after --from: the forecasts would know the future")
        if self.predictor not in PREDICTORS:
            raise ReplayError(f"--predictor {self.predictor}: use one of {', '.join(PREDICTORS)}")
        for number, policy in enumerate(self.policies):
            if policy.name in (other.name for other in self.policies[:number]):
                raise ReplayError(f"two policies are played as {policy.name}: give a QueuePolicy another name")
        if self.jitter < 0:
            raise ReplayError(f"--jitter must not be negative, not {self.jitter}")
        if not 0 <= self.shake < 1:
            raise ReplayError(f"--jitter-share must be a share below 1, not {self.shake:g}")
        if not 0 <= self.save_cost < 86_400:
            raise ReplayError(f"--save-cost must be less than a day, not {self.save_cost:g} s")

    @property
    def rules(self) -> SavingRules:
        checkpoint = None if self.checkpoint is None else round(self.checkpoint * 1000)
        return SavingRules(checkpoint, round(self.restart * 1000), round(self.save_cost * 1000))

    def predictor_of(self, policy: Policy) -> str:
        return self.predictor if policy.predictor == CHOSEN else policy.predictor

    def needs(self, predictor: str) -> bool:
        return any(self.predictor_of(policy) == predictor for policy in self.policies)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs of all runs: the window's jobs, and the history before them."""

    jobs: tuple[ReplayedJob, ...]
    history: tuple[Run, ...]  # known at the beginning of the window
    past_seconds: tuple[float, ...]  # durations of jobs known when the training ended
    limit: Millis
    quotas: Mapping[str, int] | None
    schooling: Schooling | None
    worlds: Worlds | None = None  #: a cluster of its own, instead of the plan's
    planned: Planned = NOTHING_PLANNED  #: windows of Reservations


def prepare(trace: Trace, plan: ReplayPlan) -> tuple[Prepared, list[str]]:
    """Prepare the part of a trace that a plan is about; also returns notes on it. Raises ReplayError if the window has no job."""
    window = trace.between(plan.first, plan.last)
    jobs = replayed(window.jobs)
    if not jobs:
        raise ReplayError(
            f"no job that asks for GPUs was submitted from {instant(plan.first)} to {instant(plan.last)}; {_span(trace)}"
        )
    until = plan.first if plan.train_until is None else plan.train_until
    earlier = [job for job in trace.jobs if job.submit < plan.first and job.gpus > 0]
    past = [job.duration for job in earlier if job.submit < until and job.submit + job.duration < until]
    notes: list[str] = []
    history = [known_at(run, plan.first) for run in map(_cut, earlier)]
    schooling = None
    if plan.needs("model"):
        schooling = school(history, until, plan.first)
        if schooling.note:
            notes.append(f"no model: {schooling.note}")
    longest = min(max(past, default=LONGEST / 1000), LONGEST / 1000)
    limit = longest if plan.limit is None else plan.limit
    if cut := sum(job.duration > LONGEST / 1000 for job in window.jobs):
        notes.append(f"jobs that run longer than {LONGEST // DAY} days are played as if they ended then: {cut}")
    skipped = [f"{count} rows skipped: {reason}" for reason, count in trace.skipped.items()]
    prepared = Prepared(
        jobs=tuple(jobs),
        history=tuple(history),
        past_seconds=tuple(past) or tuple(job.duration / 1000 for job in jobs),
        limit=round(max(limit, 1.0) * 1000),
        quotas=quotas_by_use(replayed(earlier) or jobs, plan.cluster, {job.tenant for job in jobs})
        if plan.tenants
        else None,
        schooling=schooling,
    )
    return prepared, notes + skipped


def _cut(job: TraceJob) -> Run:
    return from_trace(replace(job, duration=min(job.duration, LONGEST / 1000)))


def _span(trace: Trace) -> str:
    if not trace.jobs:
        return "the trace is empty"
    return f"the trace runs from {instant(trace.jobs[0].submit)} to {instant(trace.jobs[-1].submit)}"


def instant(seconds: float) -> str:
    """A date and time of the world, or a time of a trace that counts from its own beginning."""
    if not _FIRST_DATE <= seconds < _LAST_DATE:
        return f"{seconds:.0f} s"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def shake(jobs: Sequence[ReplayedJob], seed: int, share: float = SHAKE) -> list[ReplayedJob]:
    """Submissions and durations moved by a little, at random: a difference that this removes is noise."""
    chance = random.Random(seed)
    typical = (jobs[-1].submit - jobs[0].submit) / max(1, len(jobs) - 1)

    def moved(job: ReplayedJob) -> ReplayedJob:
        submit = job.submit + round(chance.uniform(0, typical) * share / SHAKE)
        return replace(job, submit=submit, duration=max(1, round(job.duration * chance.uniform(1 - share, 1 + share))))

    ordered = sorted((moved(job) for job in jobs), key=lambda job: (job.submit, job.number))
    return [replace(job, number=number) for number, job in enumerate(ordered)]
