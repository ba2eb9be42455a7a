"""A whole replay: read the trace, learn from its past, run the policies side by side in processes, put the results together."""

from __future__ import annotations

import math
import multiprocessing
import pickle
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any, Final

from gangline.engine.model import Millis
from gangline.forecast import Run, from_trace
from gangline.forecast.dataset import known_at
from gangline.replay import calibration, metrics
from gangline.replay.foresight import Blind, Foresight, Guess, LastTwo, Limits, Noisy, Truth
from gangline.replay.learned import Learned, Schooling, school
from gangline.replay.model import LONGEST, Cluster, Job, ReplayError, Result, replayed
from gangline.replay.policies import CHOSEN, Policy
from gangline.replay.simulator import Rules, Simulator
from gangline.replay.world import quotas_by_use
from gangline.traces import Trace, TraceJob

PREDICTORS: Final = ("model", "true", "limit", "last-two", "random", "noisy")
#: each job's submission and duration are moved by up to this share when the input is shaken
SHAKE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for. Instants are Unix seconds, spans seconds."""

    cluster: Cluster
    policies: tuple[Policy, ...]
    first: float
    last: float
    train_until: float | None = None
    predictor: str = "model"
    limit: float | None = None  #: of jobs that request none; None = the longest job before the training ends
    retrain_every: float | None = None
    checkpoint: float | None = 1800.0
    restart: float = 60.0
    tenants: bool = False
    jitter: int = 0
    seed: int = 1
    workers: int = 1

    def __post_init__(self) -> None:
        if not self.first < self.last:
            raise ReplayError("--from must be before --to")
        if self.train_until is not None and self.train_until > self.first:
            raise ReplayError("--train-until must not be after --from: the forecasts would know the future")
        if self.predictor not in PREDICTORS:
            raise ReplayError(f"--predictor {self.predictor}: use one of {', '.join(PREDICTORS)}")
        if self.jitter < 0:
            raise ReplayError(f"--jitter must not be negative, not {self.jitter}")

    @property
    def rules(self) -> Rules:
        return Rules(None if self.checkpoint is None else round(self.checkpoint * 1000), round(self.restart * 1000))

    def predictor_of(self, policy: Policy) -> str:
        return self.predictor if policy.predictor == CHOSEN else policy.predictor

    def needs(self, predictor: str) -> bool:
        return any(self.predictor_of(policy) == predictor for policy in self.policies)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What all runs share: the window's jobs, and what was known before them."""

    jobs: tuple[Job, ...]
    history: tuple[Run, ...]  # known at the beginning of the window
    past_seconds: tuple[float, ...]  # durations of jobs that were known when the training ended
    limit: Millis
    quotas: Mapping[str, int] | None
    schooling: Schooling | None


@dataclass(slots=True)
class Story:
    """What a policy did, for the report: results are kept whole, traces of jobs are not."""

    policy: str
    result: Result
    measures: dict[str, Any]


@dataclass(slots=True)
class Replay:
    """Everything that came out."""

    plan: Plan
    trace_format: str
    stories: list[Story]
    shaken: dict[str, list[dict[str, Any]]]
    forecast: dict[str, Any]
    limit: float
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        policies: dict[str, Any] = {}
        for story in self.stories:
            policies[story.policy] = dict(story.measures)
            runs = self.shaken.get(story.policy)
            if runs:
                policies[story.policy]["shaken"] = _shaken(runs)
        return {
            "cluster": {"gpus": self.plan.cluster.gpus, "gpus_per_node": self.plan.cluster.per_node},
            "window": {"train_until": self.plan.train_until, "from": self.plan.first, "to": self.plan.last},
            "rules": {
                "predictor": self.plan.predictor,
                "checkpoint_seconds": self.plan.checkpoint,
                "restart_seconds": self.plan.restart,
                "limit_seconds": self.limit,
                "tenants": self.plan.tenants,
                "seed": self.plan.seed,
            },
            "format": self.trace_format,
            "notes": self.notes,
            "policies": policies,
            "forecast": self.forecast,
        }


# --- preparing ----------------------------------------------------------------------------------------------------------


def prepare(trace: Trace, plan: Plan) -> tuple[Prepared, list[str]]:
    """Raises ReplayError where the window holds no job."""
    window = trace.between(plan.first, plan.last)
    jobs = replayed(window.jobs)
    if not jobs:
        raise ReplayError(f"no job that asks for GPUs was submitted between --from and --to; {_span(trace)}")
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
    return f"the trace runs from {trace.jobs[0].submit:.0f} to {trace.jobs[-1].submit:.0f} (Unix seconds)"


def shake(jobs: Sequence[Job], seed: int) -> list[Job]:
    """Submissions and durations moved by a little, at random: a difference that this undoes is none."""
    chance = random.Random(seed)
    typical = (jobs[-1].submit - jobs[0].submit) / max(1, len(jobs) - 1)

    def moved(job: Job) -> Job:
        submit = job.submit + round(chance.uniform(0, typical))
        return replace(job, submit=submit, duration=max(1, round(job.duration * chance.uniform(1 - SHAKE, 1 + SHAKE))))

    ordered = sorted((moved(job) for job in jobs), key=lambda job: (job.submit, job.number))
    return [replace(job, number=number) for number, job in enumerate(ordered)]


# --- one policy ---------------------------------------------------------------------------------------------------------


def foresight(plan: Plan, policy: Policy, prepared: Prepared, seed: int) -> Foresight:
    """Whoever this policy believes."""
    match plan.predictor_of(policy):
        case "blind":
            return Blind()
        case "true":
            return Truth(plan.rules.restart)
        case "limit":
            return Limits(prepared.limit)
        case "last-two":
            return LastTwo(prepared.history, prepared.limit)
        case "random":
            return Guess(seed, prepared.past_seconds)
        case "noisy":
            return Noisy(seed)
        case _:
            assert prepared.schooling is not None
            retrain = None if plan.retrain_every is None else round(plan.retrain_every * 1000)
            return Learned(prepared.schooling, retrain)


def play(
    plan: Plan, policy: Policy, prepared: Prepared, shaken: int = 0, progress: Callable[[int], None] | None = None
) -> tuple[Story, dict[str, Any]]:
    """One policy, and how good its forecasts were. `shaken` > 0 numbers a shaken copy of the input."""
    seed = plan.seed + shaken
    jobs = shake(prepared.jobs, seed) if shaken else prepared.jobs
    believed = foresight(plan, policy, prepared, seed)
    simulator = Simulator(
        jobs,
        plan.cluster,
        policy.queue,
        believed,
        rules=plan.rules,
        quotas=prepared.quotas,
        ranked=policy.ranked,
        progress=progress,
    )
    result = simulator.run()
    return Story(policy.name, result, metrics.of(result)), calibration.of(jobs, believed)


# --- side by side -------------------------------------------------------------------------------------------------------

#: (policy, shaken copy, jobs submitted since the last word)
Tick = tuple[str, int, int]


@dataclass(slots=True)
class _Worker:
    """What a worker process was given when it began."""

    ticks: Queue[Tick] | None = None
    prepared: Prepared | None = None


_WORKER: Final = _Worker()


def _set_up(ticks: Queue[Tick], path: str) -> None:
    """In a worker: the same input for all its runs."""
    _WORKER.ticks = ticks
    _WORKER.prepared = _load(path)


def _load(path: str) -> Prepared:
    with Path(path).open("rb") as file:
        return pickle.load(file)


def _work(plan: Plan, policy: Policy, shaken: int, path: str) -> tuple[Story, dict[str, Any]]:
    ticks, prepared = _WORKER.ticks, _WORKER.prepared
    assert ticks is not None and prepared is not None
    count = 0

    def progress(jobs: int) -> None:
        nonlocal count
        count += jobs
        if count >= 250:
            ticks.put((policy.name, shaken, count))
            count = 0

    if plan.predictor_of(policy) == "model":
        prepared = _load(path)  # a forecaster learns: each run begins with a fresh one
    story, forecast = play(plan, policy, prepared, shaken, progress)
    ticks.put((policy.name, shaken, count))
    for outcome in story.result.outcomes:
        outcome.job = replace(outcome.job, trace=None)
    return story, forecast


def replay(
    trace: Trace,
    plan: Plan,
    prepared: Prepared,
    notes: Sequence[str] = (),
    tell: Callable[[Tick], None] = lambda tick: None,
) -> Replay:
    """Every policy, and every shaken copy of its input, in processes of their own."""
    tasks = [(policy, shaken) for shaken in range(plan.jitter + 1) for policy in plan.policies]
    stories: dict[str, Story] = {}
    shaken_runs: dict[str, list[dict[str, Any]]] = {}
    forecasts: dict[str, dict[str, Any]] = {}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="gangline-replay-") as folder:
        path = Path(folder) / "prepared"
        with path.open("wb") as file:
            pickle.dump(prepared, file, protocol=pickle.HIGHEST_PROTOCOL)
        ticks: Queue[Tick] = context.Queue()
        with ProcessPoolExecutor(
            min(plan.workers, len(tasks)), mp_context=context, initializer=_set_up, initargs=(ticks, str(path))
        ) as pool:
            futures = {
                pool.submit(_work, plan, policy, shaken, str(path)): (policy, shaken) for policy, shaken in tasks
            }
            while futures:
                _drain(ticks, tell)
                for future in [future for future in futures if future.done()]:
                    policy, shaken = futures.pop(future)
                    story, forecast = future.result()
                    if shaken:
                        shaken_runs.setdefault(policy.name, []).append(story.measures)
                        continue
                    stories[policy.name] = story
                    if forecast:
                        forecasts[policy.name] = forecast
            _drain(ticks, tell)
    ordered = [stories[policy.name] for policy in plan.policies]
    first = next((forecasts[policy.name] for policy in plan.policies if policy.name in forecasts), {})
    told = {**first, "by_policy": forecasts} if first else {}
    return Replay(plan, trace.format, ordered, shaken_runs, told, prepared.limit / 1000, list(notes))


def _drain(ticks: Queue[Tick], tell: Callable[[Tick], None]) -> None:
    """Pass on what the workers said; waits a moment if they say nothing."""
    try:
        tell(ticks.get(timeout=0.2))
        while True:
            tell(ticks.get_nowait())
    except Empty:
        pass


def _shaken(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean, standard deviation and range of what differs from run to run."""
    found: dict[str, Any] = {"runs": len(runs)}
    for name, pick in _SHAKEN.items():
        values = [value for run in runs if (value := pick(run)) is not None]
        if values:
            mean = sum(values) / len(values)
            deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))
            found[name] = {"mean": mean, "sd": deviation, "min": min(values), "max": max(values)}
    return found


_SHAKEN: Final[dict[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "wait_mean": lambda run: run["wait"]["mean"],
    "wait_p99": lambda run: run["wait"]["p99"],
    "wait_max": lambda run: run["wait"]["max"],
    "wait_gt8_mean": lambda run: run["wait_gt8"]["mean"],
    "bounded_slowdown": lambda run: run["bounded_slowdown"],
    "gpu_hours_lost_share": lambda run: run["gpu_hours_lost_share"],
}
