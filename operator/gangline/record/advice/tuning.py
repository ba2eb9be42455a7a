"""`gangline admin tune`: settings searched on the first part of a record, and judged on the last, which the search has not seen.

Every candidate is compared with the cluster's own settings on the same shaken copies of the input. What was found best is then
played on the part that was held out. The interval of its gain is drawn from these runs and from the days of that part: a gain
that rests on one day is no gain.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from gangline.api.read import policy_reader
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.record import values
from gangline.record.preparing import ReadRecord, prepare
from gangline.record.worlds import OWN
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.replayed import ReplayedJob, ReplayError
from gangline.replay.run import play

# --- settings ---------------------------------------------------------------------------------------------------------
#
# The settings that `gangline admin tune` tries, as specifications of QueuePolicies. The seed alone chooses them.


_KEYS: Final = (
    "Priority",
    "ShortestFirst",
    "AgedShortestFirst",
    "AgedShortestFirst",
    "SmallestFirst",
    "HighestResponseRatio",
)
_AGE_WEIGHTS: Final = ("1", "2", "5", "10", "20")
_AGE_CAPS: Final = (None, "4h", "16h", "48h")
_MAX_WAITS: Final = (None, None, None, "12h", "48h")
_DEPTHS: Final[Sequence[Any]] = (0, 1, 1, 1, "Conservative")
_CANDIDATES: Final = ("0.5", "0.75", "0.9", "0.95")
_OVERDUE: Final = (None, "0.25", "1")
_IDLE: Final = (None, "0.05", "0.1")
_LONGER_THAN: Final = (None, "3", "10")
_SHARES: Final = (0.2, 0.5, 1.0)
#: draws in a row that bring nothing new: all have been tried
_VAIN: Final = 1000


def tried(count: int, seed: int, most_lost: float, *, saving: bool) -> list[Json]:
    """Parts `order` and `backfill` of `count` policies, all different; the first ones are what is known to do well.

    `most_lost`: the largest budget of losses; `saving`: some jobs save their work, so that they can give way.
    """
    found: dict[bytes, Json] = {}
    for spec in _candidates(random.Random(seed), most_lost, saving):
        found.setdefault(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS), spec)
        if len(found) == count:
            break
    return list(found.values())


def _candidates(chance: random.Random, most_lost: float, saving: bool) -> Iterator[Json]:
    yield {"order": {"key": "ShortestFirst"}}
    yield {"backfill": {"depth": 1, "quantiles": {"candidate": "0.9"}}}
    aged = {"key": "AgedShortestFirst", "ageWeight": "5", "ageCap": "16h"}
    yield {"order": aged, "backfill": {"depth": 1, "quantiles": {"candidate": "0.9"}}}
    if saving and most_lost > 0:
        way = {"longerThan": "10", "lossShare": "0.1", "longerThanBackfilled": "0.3", "maxPreemptions": 3}
        overdue = {"revoke": "Overdue", "overdueFactor": "0.25", "lossBudget": _share(most_lost), "giveWay": way}
        yield {
            "order": {**aged, "optimism": "0.75"},
            "backfill": {"depth": 1, "quantiles": {"candidate": "0.9"}, "idleShare": "0.1", **overdue},
        }
    for _ in range(_VAIN):
        yield from (_drawn(chance, most_lost, saving) for _ in range(4))


def _drawn(chance: random.Random, most_lost: float, saving: bool) -> Json:
    order: Json = {"key": chance.choice(_KEYS)}
    if order["key"] == "AgedShortestFirst":
        order["ageWeight"] = chance.choice(_AGE_WEIGHTS)
        order["ageCap"] = chance.choice(_AGE_CAPS)
    order["maxWait"] = chance.choice(_MAX_WAITS)
    backfill: Json = {"depth": chance.choice(_DEPTHS), "quantiles": {"candidate": chance.choice(_CANDIDATES)}}
    if (idle := chance.choice(_IDLE)) is not None:
        backfill["idleShare"] = idle
    if most_lost > 0:
        if (factor := chance.choice(_OVERDUE)) is not None:
            backfill |= {"revoke": "Overdue", "overdueFactor": factor}
        if saving and (longer := chance.choice(_LONGER_THAN)) is not None:
            backfill["giveWay"] = {"longerThan": longer, "lossShare": "0.1", "maxPreemptions": 3}
            order["optimism"] = chance.choice(("0", "0.75"))
        backfill["lossBudget"] = _share(chance.choice(_SHARES) * most_lost)
    order = {name: value for name, value in order.items() if value is not None}
    return {"order": order, "backfill": backfill} if backfill["depth"] else {"order": order}


def _share(value: float) -> str:
    """Millionths count."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


# --- runs of policies on one input, and how much one policy gains against another, with an interval -------------------


Floats: TypeAlias = NDArray[np.float64]

#: at least as many blocks of time are drawn from
_BLOCKS: Final = 10
_DAY: Final = 86_400_000
_DRAWS: Final = 2000

#: what can be improved: of waits and durations, in seconds
OBJECTIVES: Final[Mapping[str, Callable[[Floats, Floats], float]]] = {
    "mean": lambda wait, duration: float(wait.mean()),
    "p99": lambda wait, duration: float(np.percentile(wait, 99)),
    "slowdown": lambda wait, duration: float(np.maximum(1, (wait + duration) / np.maximum(duration, 10)).mean()),
}


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One run of one policy: its measured jobs, those that did not end included as far as they waited."""

    submit: Floats
    wait: Floats
    duration: Floats
    lost_share: float

    def value(self, objective: str) -> float:
        return OBJECTIVES[objective](self.wait, self.duration)


@dataclass(frozen=True, slots=True)
class Gain:
    """A share of what it was: 0.2 is a fifth less. Low and high: the 95 % interval."""

    gain: float
    low: float
    high: float


def gain_of(run: PolicyRun, own: PolicyRun, objective: str) -> float:
    before = own.value(objective)
    return (before - run.value(objective)) / before if before else 0.0


def interval(pairs: Sequence[tuple[PolicyRun, PolicyRun]], objective: str, seed: int) -> Gain:
    """The gain of the second of each pair against the first, with a 95 % interval.

    Blocks of time are drawn with replacement, each from a run drawn at random: a gain that rests on one day is no gain.
    """
    first = min(float(own.submit.min()) for own, _ in pairs)
    last = max(float(own.submit.max()) for own, _ in pairs)
    blocks = max(_BLOCKS, math.ceil((last - first) / _DAY))
    width = (last - first) / blocks or 1.0
    split = [tuple(_blocks(run, first, width, blocks) for run in pair) for pair in pairs]
    chance = random.Random(seed)
    drawn = sorted(_draw(split, blocks, objective, chance) for _ in range(_DRAWS))
    whole = sum(gain_of(ours, own, objective) for own, ours in pairs) / len(pairs)
    return Gain(whole, drawn[round(0.025 * _DRAWS)], drawn[round(0.975 * _DRAWS) - 1])


def _blocks(run: PolicyRun, first: float, width: float, count: int) -> list[tuple[Floats, Floats]]:
    """(waits, durations) by the time of submission."""
    numbers = np.clip(((run.submit - first) / width).astype(np.int64), 0, count - 1)
    return [(run.wait[numbers == number], run.duration[numbers == number]) for number in range(count)]


def _draw(
    split: Sequence[tuple[list[tuple[Floats, Floats]], ...]], blocks: int, objective: str, chance: random.Random
) -> float:
    picks = [(chance.randrange(len(split)), chance.randrange(blocks)) for _ in range(blocks)]
    values: list[float] = []
    for side in (0, 1):
        chosen = [split[run][side][block] for run, block in picks]
        wait, duration = (np.concatenate([each[part] for each in chosen]) for part in (0, 1))
        values.append(OBJECTIVES[objective](wait, duration) if len(wait) else 0.0)
    return (values[0] - values[1]) / values[0] if values[0] else 0.0


# --- in processes ------------------------------------------------------------------------------------------


class _TimeUpError(Exception):
    pass


_Task: TypeAlias = tuple[ReplayPlan, Policy, int, str, float]


class Runs:
    """Runs of policies on shaken copies of one input, in several processes if the plan says so, in the order in which they were
    asked for. A run that does not end in time is None, and so are all after it.
    """

    def __init__(self, plan: ReplayPlan, prepared: Prepared, deadline: float) -> None:
        self._plan = plan
        self._prepared = prepared
        self._deadline = time.time() + max(0.0, deadline - time.monotonic())

    def __enter__(self) -> Runs:
        self._folder = tempfile.TemporaryDirectory(prefix="gangline-tune-")
        self._path = Path(self._folder.name) / "prepared"
        with self._path.open("wb") as file:
            pickle.dump(self._prepared, file, protocol=pickle.HIGHEST_PROTOCOL)
        workers = self._plan.workers
        self._pool = None
        if workers > 1:
            self._pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def of(self, tasks: Sequence[tuple[Policy, int]]) -> Iterator[PolicyRun | None]:
        given = [(self._plan, policy, copy, str(self._path), self._deadline) for policy, copy in tasks]
        over = False
        for run in map(_run, given) if self._pool is None else self._pool.map(_run, given):
            over = over or run is None
            yield None if over else run


def _run(task: _Task) -> PolicyRun | None:
    plan, policy, copy, path, deadline = task

    def progress(jobs: int) -> None:
        del jobs
        if time.time() > deadline:
            raise _TimeUpError

    try:
        progress(0)
        with Path(path).open("rb") as file:
            prepared: Prepared = pickle.load(file)  # each run has a copy: a forecaster learns on the way
        story, _ = play(plan, policy, prepared, copy, progress)
    except _TimeUpError:
        return None
    result: Any = story.result
    end = max((sample.at for sample in result.samples), default=0)
    rows = [
        (
            outcome.job.submit,
            (end if outcome.finish is None else outcome.finish) - outcome.job.submit - outcome.job.duration,
            outcome.job.duration,
        )
        for outcome in result.outcomes
        if not outcome.impossible
    ]
    table = np.array(sorted(rows), dtype=np.float64).reshape(-1, 3)
    wait = np.maximum(0.0, table[:, 1])
    return PolicyRun(table[:, 0], wait / 1000, table[:, 2] / 1000, story.measures["gpu_hours_lost_share"])


#: the part of the record that is held out, and the part before the search from which forecasts learn
HELD_OUT: Final = 1 / 3
LEARNT: Final = 0.15
#: the part of the time that the search may take
_SEARCH: Final = 0.6
#: candidates that are tried on more copies, and on how many
_FINALISTS: Final = 4
_COPIES: Final = 3
#: runs on the part that is held out: below, there is no interval
LEAST_RUNS: Final = 3
#: jobs below which a part says nothing
LEAST_JOBS: Final = 50


class NoProposalError(ValueError):
    """There is nothing to propose; the message says why."""


@dataclass(frozen=True, slots=True)
class TuningGoal:
    """What is wanted, and how long it may take."""

    objective: str = "mean"
    most_lost: float = 0.01  #: share of GPU hours
    longer_tail: float = 0.1  #: the share by which p99 of waits may be longer
    tries: int = 24
    runs: int = 8
    minutes: float = 10.0
    queues: tuple[str, ...] = ()  #: only these ClusterQueues; () = all


@dataclass(slots=True)
class Proposal:
    """A QueuePolicy, and what is to be expected of it."""

    policy: Json
    objective: str
    before: float
    gain: Gain
    tail: Gain  #: of p99
    lost: float  #: share of GPU hours, the most of all runs
    tried: int
    runs: int
    jobs: int
    notes: list[str] = field(default_factory=list[str])


def tune(
    source: ReadRecord, plan: ReplayPlan, wish: TuningGoal, tell: Callable[[str], None] = lambda text: None
) -> Proposal:
    """Search for a better policy, and judge it on a part of the record that was held out. `plan` says all but the policies and
    the windows. Raises NoProposalError, ReplayError.
    """
    begun = time.monotonic()
    base = _base(source, wish.queues)
    span = source.last - source.first
    begin = source.first + LEARNT * span if plan.needs("model") or plan.predictor == "model" else source.first
    cut = source.last - HELD_OUT * span
    search = replace(plan, first=begin, last=cut, train_until=None, policies=(OWN,))
    held = replace(plan, first=cut, last=math.nextafter(source.last, math.inf), train_until=None, policies=(OWN,))
    found, notes = _searched(source, search, wish, base, begun + 60 * wish.minutes * _SEARCH, tell)
    tell(f"best of {found.tried}: {_words(found.policy)}; judging it on the part that was held out")
    return _judged(source, held, wish, found, notes, begun + 60 * wish.minutes, tell)


# --- the policy that is changed -----------------------------------------------------------------------------------------


def _base(source: ReadRecord, only: Sequence[str]) -> Json:
    """The QueuePolicy in force for all queues in question, as the record ends, without its order and backfill; or a new one."""
    state: dict[tuple[str, str], Json] = {}
    for change in source.history.changes:
        if change.body is None:
            state.pop((change.kind, change.name), None)
        else:
            state[change.kind, change.name] = change.body
    queues = {name: body for (kind, name), body in state.items() if kind == kube.CLUSTER_QUEUES.kind}
    if unknown := sorted(set(only) - set(queues)):
        raise ReplayError(f"--cluster-queue {unknown[0]}: the record has {', '.join(sorted(queues)) or 'none'}")
    policies = [values.policy(name, body) for (kind, name), body in state.items() if kind == kube.QUEUE_POLICIES.kind]
    chosen = {name: body for name, body in queues.items() if not only or name in only}
    if not chosen:
        raise ReplayError("the record ends without a ClusterQueue")
    in_force: dict[str, Json | None] = {}
    for name, body in chosen.items():
        raw = {"metadata": {"name": name, "labels": body.get("labels")}, "spec": body.get("spec")}
        policy = policy_reader.in_force(policies, raw)
        in_force["" if policy is None else policy["metadata"]["name"]] = policy
    if len(in_force) > 1:
        names = ", ".join(sorted(name or "none" for name in in_force))
        raise ReplayError(f"the queues have several QueuePolicies ({names}): choose queues of one with --cluster-queue")
    ((name, policy),) = in_force.items()
    spec = {} if policy is None else dict(policy["spec"])
    spec |= {"clusterQueues": {"names": sorted(chosen)}}
    for part in ("order", "backfill"):
        spec.pop(part, None)
    return {
        "apiVersion": kube.QUEUE_POLICIES.api_version,
        "kind": kube.QUEUE_POLICIES.kind,
        "metadata": {"name": name or "tuned"},
        "spec": spec,
    }


def _policy(base: Json, parts: Json, number: int) -> Policy:
    document = {**base, "spec": {**base["spec"], **parts}}
    return Policy(
        f"try-{number}",
        "a candidate",
        ordering=policy_reader.ordering(document),
        backfill=policy_reader.backfill(document),
        document=document,
    )


def _words(policy: Policy) -> str:
    assert policy.document is not None
    spec = policy.document["spec"]
    order = spec.get("order", {}).get("key", "Priority")
    depth = spec.get("backfill", {}).get("depth", 0)
    return f"order {order}, {f'backfill with depth {depth}' if depth else 'no backfill'}"


# --- the search ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    policy: Policy
    tried: int


def _searched(
    source: ReadRecord, plan: ReplayPlan, wish: TuningGoal, base: Json, deadline: float, tell: Callable[[str], None]
) -> tuple[_Found, list[str]]:
    prepared, notes = prepare(source, plan)
    _enough(prepared.jobs, plan, "to search on")
    saves = plan.checkpoint is not None or any(shape.checkpoint for shape in source.played.shapes.values())
    tries = [
        _policy(base, parts, number)
        for number, parts in enumerate(tried(wish.tries, plan.seed, wish.most_lost, saving=saves))
    ]
    with Runs(plan, prepared, deadline) as runs:
        own: list[PolicyRun] = []
        for copy, run in enumerate(runs.of([(OWN, copy) for copy in range(1, _COPIES + 1)])):
            if run is None:
                break
            own.append(run)
            tell(f"own settings, copy {copy + 1}: {wish.objective} {run.value(wish.objective):,.1f}")
        if not own:
            raise NoProposalError(
                "the time is up before the cluster's own settings were played once: give it more --minutes"
            )
        results: list[tuple[float, Policy]] = []
        played = 0
        for policy, run in zip(tries, runs.of([(policy, 1) for policy in tries]), strict=False):
            if run is None:
                notes.append(
                    f"the time was up after {played} of {len(tries)} tries: another machine may find something else"
                )
                break
            played += 1
            gain = _admissible(run, own[0], wish)
            tell(f"{policy.name}: {_words(policy)}: {'no' if gain is None else f'{gain:+.1%}'}")
            if gain is not None:
                results.append((gain, policy))
        finalists = [policy for _, policy in sorted(results, key=lambda each: -each[0])[:_FINALISTS]]
        best: tuple[float, Policy] | None = None
        for policy in finalists:
            gains = [next(gain for gain, each in results if each is policy)]
            copies = range(2, len(own) + 1)
            for copy, run in zip(copies, runs.of([(policy, copy) for copy in copies]), strict=False):
                if run is None:
                    break
                gains.append(gain_of(run, own[copy - 1], wish.objective))
            mean = sum(gains) / len(gains)
            if best is None or mean > best[0]:
                best = mean, policy
    if best is None and played < len(tries):
        raise NoProposalError(f"the time is up after {played} of {len(tries)} settings: give it more --minutes")
    if best is None or best[0] <= 0:
        raise NoProposalError(
            f"none of {played} settings is better than the cluster's own on the part of the record that was searched"
        )
    return _Found(best[1], played), notes


def _admissible(run: PolicyRun, own: PolicyRun, wish: TuningGoal) -> float | None:
    """The gain; None for what loses too much, or has a longer tail."""
    if run.lost_share > max(wish.most_lost, own.lost_share):
        return None
    if run.value("p99") > (1 + wish.longer_tail) * own.value("p99"):
        return None
    return gain_of(run, own, wish.objective)


# --- the judgement ------------------------------------------------------------------------------------------------------


def _judged(
    source: ReadRecord,
    plan: ReplayPlan,
    wish: TuningGoal,
    found: _Found,
    notes: list[str],
    deadline: float,
    tell: Callable[[str], None],
) -> Proposal:
    prepared, _ = prepare(source, plan)
    _enough(prepared.jobs, plan, "in the part that is held out")
    tasks = [(policy, copy) for copy in range(1, wish.runs + 1) for policy in (OWN, found.policy)]
    with Runs(plan, prepared, deadline) as runs:
        done = list(runs.of(tasks))
    pairs = [
        (own, ours) for own, ours in zip(done[::2], done[1::2], strict=False) if own is not None and ours is not None
    ]
    if len(pairs) < LEAST_RUNS:
        raise NoProposalError(
            f"the time is up after {len(pairs)} runs on the part that was held out: give it more --minutes"
        )
    if len(pairs) < wish.runs:
        notes.append(f"the time was up after {len(pairs)} of {wish.runs} runs on the part that was held out")
    tell(f"{len(pairs)} runs on the part that was held out")
    gain = interval(pairs, wish.objective, plan.seed)
    tail = interval(pairs, "p99", plan.seed)
    lost = max(ours.lost_share for _, ours in pairs)
    before = sum(own.value(wish.objective) for own, _ in pairs) / len(pairs)
    shown = f"{_words(found.policy)}: {gain.gain:+.1%}, {gain.low:+.1%} to {gain.high:+.1%}"
    if gain.low <= 0:
        raise NoProposalError(
            f"the best that was found gains nothing for certain on the part that was held out ({shown})"
        )
    if tail.high < -wish.longer_tail:
        raise NoProposalError(
            f"the best that was found has a longer tail on the part that was held out ({shown}; p99 {tail.gain:+.1%})"
        )
    if lost > max(wish.most_lost, *(own.lost_share for own, _ in pairs)):
        raise NoProposalError(
            f"the best that was found loses {lost:.2%} of the work on the part that was held out ({shown})"
        )
    assert found.policy.document is not None
    return Proposal(
        policy=dict(found.policy.document),
        objective=wish.objective,
        before=before,
        gain=gain,
        tail=tail,
        lost=lost,
        tried=found.tried,
        runs=len(pairs),
        jobs=len(pairs[0][0].wait),
        notes=notes,
    )


def _enough(jobs: Sequence[ReplayedJob], plan: ReplayPlan, where: str) -> None:
    count = sum(job.submit >= plan.first * 1000 for job in jobs)
    if count < LEAST_JOBS:
        raise NoProposalError(f"the record has {count} jobs {where}: at least {LEAST_JOBS} are needed")
