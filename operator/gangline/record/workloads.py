"""Recorded Workloads as jobs of a trace, and what really became of them. Pure.

How much work a Workload is follows from its stays: what it did since its last start, and what it had saved before. A Workload
that never ran says nothing about its runtime, and is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from gangline.api.read.reading import ParseError
from gangline.engine import model
from gangline.engine.model import Millis, accelerators_of, is_accelerator
from gangline.record import values
from gangline.record.history import Recorded, RecordedHistory, RecordError
from gangline.replay.replayed import LONGEST, ReplayedCluster, ReplayedJob, ReplayedOutcome, ReplayResult, Sample, Stint
from gangline.traces import Trace, TraceJob

CPU: Final = "cpu"
FORMAT: Final = "cluster record"
_PER_CORE: Final = 1000


@dataclass(frozen=True, slots=True)
class DecidingFields:
    """What of a Workload the engine decides by."""

    queue: str  #: namespace/name of its LocalQueue
    pod_sets: tuple[model.PodSet, ...]
    priority: int
    checkpoint: float | None


@dataclass(frozen=True, slots=True)
class PlayableWorkloads:
    """The Workloads of a record that can be played."""

    trace: Trace
    shapes: dict[str, DecidingFields]  # by uid
    recorded: dict[str, Recorded]
    accelerators: bool  #: sizes are accelerators; otherwise cores


def played(history: RecordedHistory) -> PlayableWorkloads:
    """The jobs of a record as they are played. Raises RecordError for a Workload that can't be read, naming its line and
    field.
    """
    shapes: dict[str, DecidingFields] = {}
    for uid, each in history.workloads.items():
        try:
            shapes[uid] = _shape(each)
        except ParseError as error:
            raise RecordError(f"{each.place}: {error}") from None
    by_cards = any(accelerators_of(shape.pod_sets) for shape in shapes.values())
    jobs: list[TraceJob] = []
    recorded: dict[str, Recorded] = {}
    skipped: Counter[str] = Counter()
    for uid, each in history.workloads.items():
        if not each.stays:
            skipped["never ran: how long they would have taken is not known"] += 1
            continue
        try:
            jobs.append(_job(each, shapes[uid], history.last, by_cards))
        except ParseError as error:
            raise RecordError(f"{each.place}: {error}") from None
        recorded[uid] = each
    jobs.sort(key=lambda job: job.submit)
    return PlayableWorkloads(Trace(FORMAT, tuple(jobs), dict(skipped)), shapes, recorded, by_cards)


def _shape(recorded: Recorded) -> DecidingFields:
    body = recorded.body
    namespace = recorded.name.partition("/")[0]
    queue = body.get("queue", "")
    if not isinstance(queue, str) or len(queue) > 253:
        raise ParseError("queue", "is no name")
    return DecidingFields(
        queue=f"{namespace}/{queue}",
        pod_sets=values.pod_sets(body),
        priority=values.priority(body),
        checkpoint=values.seconds(body, "checkpoint"),
    )


def _job(recorded: Recorded, shape: DecidingFields, now: Millis, by_cards: bool) -> TraceJob:
    body, stays = recorded.body, recorded.stays
    work, ended = _work(recorded, shape, now)
    flavors = values.flavors(body)
    return TraceJob(
        id=recorded.uid,
        submit=recorded.created / 1000,
        duration=work / 1000,
        gpus=size_of(shape.pod_sets, by_cards),
        user=values.text(body, "user", ""),
        vc=shape.queue,
        name=values.owner(body) or recorded.name.rpartition("/")[2],
        state=stays[-1].reason,
        pods=sum(pods.count for pods in shape.pod_sets),
        wait=max(0, stays[0].start - recorded.created) / 1000,
        limit=values.seconds(body, "limit"),
        hint=values.seconds(body, "hint"),
        flavor=next(
            (flavor for name, flavor in flavors.items() if is_accelerator(name)), next(iter(flavors.values()), "")
        ),
        ended=ended,
        checkpoint=shape.checkpoint,
    )


def _work(recorded: Recorded, shape: DecidingFields, now: Millis) -> tuple[Millis, bool]:
    """How long a workload runs if nobody stops it, and whether that is known, or a lower bound."""
    *earlier, last = recorded.stays
    every = None if shape.checkpoint is None else max(1, round(shape.checkpoint * 1000))
    saved = sum(((stay.end or stay.start) - stay.start) // every * every for stay in earlier) if every else 0
    ran = (now if last.end is None else last.end) - last.start
    ended = last.finished or (last.end is not None and last.reason == "Deleted")
    longest = max((stay.end or stay.start) - stay.start for stay in recorded.stays)
    return max(1, saved + ran if ended or last.end is None else max(saved + ran, longest)), ended


def size_of(pod_sets: Sequence[model.PodSet], by_cards: bool) -> int:
    """Accelerators, or cores, rounded up."""
    if by_cards:
        return accelerators_of(pod_sets)
    return -(-sum(pods.count * pods.requests.get(CPU, 0) for pods in pod_sets) // _PER_CORE)


def capacity(history: RecordedHistory, by_cards: bool) -> int:
    """The largest sum of nominal quotas that the record shows, in the same unit; at least 1."""
    queues: dict[tuple[str, str], int] = {}
    largest = total = 0
    for change in history.changes:
        if change.kind not in ("ClusterQueue", "Cohort"):
            continue
        before = queues.pop((change.kind, change.name), 0)
        after = 0
        if change.body is not None:
            value: model.ClusterQueue | model.Cohort = values.value(change.kind, change.name, change.body)
            after = sum(
                quota.nominal
                for group in value.groups
                for flavor in group.flavors
                for name, quota in flavor.resources.items()
                if (is_accelerator(name) if by_cards else name == CPU)
            )
            queues[change.kind, change.name] = after
        total += after - before
        largest = max(largest, total)
    return max(1, largest if by_cards else largest // _PER_CORE)


# --- what really happened -----------------------------------------------------------------------------------------------


def as_it_was(
    jobs: Sequence[ReplayedJob], recorded: dict[str, Recorded], cluster: ReplayedCluster, now: Millis
) -> ReplayResult:
    """The record itself as the result of a replay. `now` is its end."""
    outcomes = [_outcome(job, recorded[job.id], now) for job in jobs]
    return ReplayResult(cluster=cluster, outcomes=outcomes, samples=_samples(outcomes))


def _outcome(job: ReplayedJob, recorded: Recorded, now: Millis) -> ReplayedOutcome:
    outcome = ReplayedOutcome(job)
    for stay, follower in pairwise([*recorded.stays, None]):
        assert stay is not None
        end = now if stay.end is None else stay.end
        evicted = follower is not None or not (stay.finished or stay.end is None or stay.reason == "Deleted")
        saves = job.saves if job.saves is not None and job.saves > 0 else None
        ran = end - stay.start
        lost = 0 if not evicted else ran if saves is None else ran % saves
        outcome.stints.append(Stint(stay.start, end, lost=lost, evicted=(stay.reason or "Evicted") if evicted else ""))
        outcome.evictions += evicted
    last = recorded.stays[-1]
    if last.finished or (last.end is not None and last.reason == "Deleted"):
        # durations are cut in all policies alike
        outcome.finish = (last.end or now) - max(0, (last.end or now) - last.start - LONGEST)
    return outcome


def _samples(outcomes: Sequence[ReplayedOutcome]) -> list[Sample]:
    """GPUs in use and jobs that wait, at each instant at which these change."""
    steps: list[tuple[Millis, int, int]] = []  # time, GPUs in use, jobs waiting
    sizes: list[tuple[Millis, int]] = []
    for outcome in outcomes:
        gpus, waits = outcome.job.gpus, outcome.job.submit
        for stint in outcome.stints:
            steps += [(waits, 0, 1), (max(waits, stint.start), gpus, -1), (stint.end, -gpus, 0)]
            sizes += [(waits, gpus), (max(waits, stint.start), -gpus)]
            waits = stint.end
    samples: list[Sample] = []
    allocated = waiting = waiting_gpus = 0
    for (at, held, more), asked in _together(steps, sizes):
        allocated, waiting, waiting_gpus = allocated + held, waiting + more, waiting_gpus + asked
        sample = Sample(at, allocated, waiting, waiting_gpus)
        if samples and samples[-1].at == at:
            samples[-1] = sample
        else:
            samples.append(sample)
    return samples


def _together(
    steps: Sequence[tuple[Millis, int, int]], sizes: Sequence[tuple[Millis, int]]
) -> list[tuple[tuple[Millis, int, int], int]]:
    changes = [(step, 0) for step in steps] + [((at, 0, 0), gpus) for at, gpus in sizes]
    return sorted(changes, key=lambda change: change[0][0])
