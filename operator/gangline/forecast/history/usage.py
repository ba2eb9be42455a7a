"""Sums of attempts over a window of time: GPU-hours by what came of them, waits, preemptions. Pure.

An attempt counts with the part of it that lies in the window. Waits count as GPU-hours of what waited.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

from gangline.forecast.history.attempts import LOSSES, PREEMPTED, JobAttempt, Stages

CLUSTER_QUEUE: Final = "clusterQueue"
LOCAL_QUEUE: Final = "localQueue"
NAMESPACE: Final = "namespace"
USER: Final = "user"
FLAVOR: Final = "flavor"
JOB_KIND: Final = "jobKind"
DAY: Final = "day"
#: by what sums may be grouped
BY: Final = (CLUSTER_QUEUE, LOCAL_QUEUE, NAMESPACE, USER, FLAVOR, JOB_KIND, DAY)

_HOUR: Final = 3600.0
_DAY: Final = 86_400.0

#: of what sums are made: the namespace to which a name belongs ("" = to none), and the name
Group: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Window:
    """The time over which sums are made, by what they are grouped, and after how many seconds a GPU-hour weighs half. `queues`:
    the ClusterQueues that count (None = all).
    """

    since: float
    until: float
    by: str = CLUSTER_QUEUE
    half_life: float | None = None
    queues: frozenset[str] | None = None
    cluster: str = ""

    def group(self, attempt: JobAttempt) -> Group:
        """The group of an attempt, unless sums are made by day."""
        match self.by:
            case "clusterQueue":
                return "", attempt.cluster_queue
            case "localQueue":
                return attempt.namespace, attempt.local_queue
            case "namespace":
                return attempt.namespace, attempt.namespace
            case "user":
                return attempt.namespace, attempt.user
            case "flavor":
                return "", attempt.flavor
            case _:
                return "", attempt.job_kind

    def weighted(self, start: float, end: float) -> float:
        """The weight of the seconds from `start` to `end`: each second half as much as one that is a half-life younger."""
        if self.half_life is None or end <= start:
            return 0.0
        rate = math.log(2) / self.half_life
        return (math.exp(-rate * (self.until - end)) - math.exp(-rate * (self.until - start))) / rate


@dataclass(slots=True)
class UsageSum:
    """The sum of some attempts. Hours are GPU-hours."""

    jobs: set[str] = field(default_factory=set[str])  #: uids of Workloads
    attempts: int = 0
    starting: float = 0.0
    useful: float = 0.0
    lost: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0.0))
    idle: float | None = None
    waited: float = 0.0
    waits: list[float] = field(default_factory=list[float])  #: seconds, of attempts that began in the window
    preemptions: int = 0
    weighted: float = 0.0  #: GPU-seconds, the older ones of less weight

    @property
    def hours(self) -> float:
        return self.starting + self.useful + sum(self.lost.values())

    @property
    def median_wait(self) -> float | None:
        return statistics.median(self.waits) if self.waits else None

    def merge(self, other: UsageSum) -> None:
        self.jobs |= other.jobs
        self.attempts += other.attempts
        self.starting += other.starting
        self.useful += other.useful
        for name, hours in other.lost.items():
            self.lost[name] += hours
        self._add_idle(other.idle)
        self.waited += other.waited
        self.waits += other.waits
        self.preemptions += other.preemptions
        self.weighted += other.weighted

    def add_hours(self, attempt: JobAttempt, stages: Stages, window: Window, start: float, end: float) -> None:
        """Add what an attempt did from `start` to `end`."""
        per_second = attempt.gpus / _HOUR
        useful = _overlap(stages.working, stages.losing, start, end)
        self.starting += per_second * _overlap(stages.reserved, stages.working, start, end)
        self.useful += per_second * useful
        if attempt.loss:
            self.lost[attempt.loss] += per_second * _overlap(stages.losing, stages.ended, start, end)
        if attempt.idle is not None:
            whole = stages.losing - stages.working
            self._add_idle(min(attempt.idle / _HOUR, per_second * whole) * (useful / whole) if whole else 0.0)
        self.waited += per_second * _overlap(attempt.queued, attempt.reserved, start, end)
        self.weighted += attempt.gpus * window.weighted(max(start, stages.reserved), min(end, stages.ended))

    def count(self, attempt: JobAttempt, window: Window) -> None:
        """Count an attempt."""
        self.jobs.add(attempt.uid)
        self.attempts += 1
        self.preemptions += attempt.end == PREEMPTED
        if attempt.reserved >= window.since:
            self.waits.append(max(0.0, attempt.reserved - attempt.queued))

    def _add_idle(self, hours: float | None) -> None:
        if hours is not None:
            self.idle = (self.idle or 0.0) + hours


def add(sums: dict[Group, UsageSum], attempts: Iterable[JobAttempt], window: Window) -> None:
    """Add attempts to the sums of their groups. By day, an attempt is counted on the day of its end, or on the last day while it
    is in progress; its hours are those of each day.
    """
    for attempt in attempts:
        stages = attempt.stages(window.until)
        if stages.ended < window.since or attempt.reserved > window.until:
            continue
        if window.queues is not None and attempt.cluster_queue not in window.queues:
            continue
        if window.by != DAY:
            group = sums.setdefault(window.group(attempt), UsageSum())
            group.count(attempt, window)
            group.add_hours(attempt, stages, window, window.since, window.until)
            continue
        sums.setdefault(_day(min(stages.ended, window.until)), UsageSum()).count(attempt, window)
        for start, end in _days(
            max(window.since, min(attempt.queued, attempt.reserved)), min(window.until, stages.ended)
        ):
            sums.setdefault(_day(start), UsageSum()).add_hours(attempt, stages, window, start, end)


def _overlap(first: float, last: float, start: float, end: float) -> float:
    return max(0.0, min(last, end) - max(first, start))


def _day(at: float) -> Group:
    return "", datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _days(start: float, end: float) -> Iterator[tuple[float, float]]:
    """The days from `start` to `end`, the first and the last one cut."""
    while start < end:
        midnight = min(end, (start // _DAY + 1) * _DAY)
        yield start, midnight
        start = midnight
