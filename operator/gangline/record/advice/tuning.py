"""`gangline admin tune`: settings searched on the first part of a record, and judged on the last, which the search has not seen.

Every candidate is compared with the cluster's own settings on the same shaken copies of the input. What was found best is then
played on the part that was held out. The interval of its gain is drawn from these runs and from the days of that part: a gain
that rests on one day is no gain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.api.read import policy_reader
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.record import values
from gangline.record.advice import settings
from gangline.record.advice.runs import Gain, PolicyRun, Runs, gain_of, interval
from gangline.record.preparing import ReadRecord, prepare
from gangline.record.worlds import OWN
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import ReplayPlan
from gangline.replay.replayed import ReplayedJob, ReplayError

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
        for number, parts in enumerate(settings.tried(wish.tries, plan.seed, wish.most_lost, saving=saves))
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
