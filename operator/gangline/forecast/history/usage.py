"""Sums of attempts over a window of time: GPU-hours by what came of them, waits, preemptions. Pure.

An attempt counts with the part of it that lies in the window. Waits count as GPU-hours of what waited.
"""

from __future__ import annotations

import math
import statistics
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final, TypeAlias

from gangline.forecast.history.attempts import LOSSES, PREEMPTED, JobAttempt, Stages

CLUSTER_QUEUE: Final = "clusterQueue"
LOCAL_QUEUE: Final = "localQueue"
NAMESPACE: Final = "namespace"
USER: Final = "user"
FLAVOR: Final = "flavor"
JOB_KIND: Final = "jobKind"
DAY: Final = "day"
#: by what sums may be grouped, beside labels
BY: Final = (CLUSTER_QUEUE, LOCAL_QUEUE, NAMESPACE, USER, FLAVOR, JOB_KIND, DAY)
#: what stands before the key of a label by which sums are grouped
LABEL: Final = "label:"

_HOUR: Final = 3600.0

#: of what sums are made: the namespace to which a name belongs ("" = to none), and the name
Group: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Window:
    """The time over which sums are made, by what they are grouped, and after how many seconds a GPU-hour weighs half. `queues`:
    the ClusterQueues that count (None = all). `zone`: where days begin at midnight.
    """

    since: float
    until: float
    by: str = CLUSTER_QUEUE
    half_life: float | None = None
    queues: frozenset[str] | None = None
    cluster: str = ""
    zone: tzinfo = UTC

    @property
    def label(self) -> str:
        """The key of the label by whose values sums are made; "" for other sums."""
        return self.by.removeprefix(LABEL) if self.by.startswith(LABEL) else ""

    def group(self, attempt: JobAttempt) -> Group:
        """The group of an attempt, unless sums are made by day."""
        if key := self.label:
            return attempt.namespace, attempt.label(key)
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
class FlavorHours:
    """The GPU-hours of one flavor, and those of them that were lost."""

    used: float = 0.0
    lost: float = 0.0

    def add(self, used: float, lost: float) -> None:
        self.used += used
        self.lost += lost


class Days:
    """The days of a window, from midnight to midnight where its zone is. A day may have 23 or 25 hours there."""

    def __init__(self, window: Window) -> None:
        day = datetime.fromtimestamp(window.since, window.zone).date()
        self._begin: list[float] = []
        self._names: list[str] = []
        while (midnight := datetime.combine(day, time.min, window.zone).timestamp()) <= window.until:
            self._begin.append(midnight)
            self._names.append(day.isoformat())
            day += timedelta(days=1)

    def group(self, at: float) -> Group:
        """The group of what happened at this instant."""
        return "", self._names[self._number(at)]

    def parts(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        """The days from `start` to `end`, the first and the last one cut."""
        while start < end:
            following = self._number(start) + 1
            midnight = min(end, self._begin[following]) if following < len(self._begin) else end
            yield start, midnight
            start = midnight

    def _number(self, at: float) -> int:
        return max(0, bisect_right(self._begin, at) - 1)


@dataclass(slots=True)
class UsageSum:
    """The sum of some attempts. Hours are GPU-hours."""

    jobs: set[int] = field(default_factory=set[int])  #: hashes of the uids of Workloads
    attempts: int = 0
    starting: float = 0.0
    useful: float = 0.0
    lost: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0.0))
    idle: float | None = None
    waited: float = 0.0
    waits: array[float] = field(default_factory=lambda: array("d"))  #: seconds, of attempts that began in the window
    preemptions: int = 0
    weighted: float = 0.0  #: GPU-seconds, the older ones of less weight
    flavors: dict[str, FlavorHours] = field(default_factory=dict[str, "FlavorHours"])

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
        for flavor, hours in other.flavors.items():
            self._of_flavor(flavor).add(hours.used, hours.lost)

    def add_hours(self, attempt: JobAttempt, stages: Stages, window: Window, start: float, end: float) -> None:
        """Add what an attempt did from `start` to `end`."""
        per_second = attempt.gpus / _HOUR
        starting = _overlap(stages.reserved, stages.working, start, end)
        useful = _overlap(stages.working, stages.losing, start, end)
        lost = _overlap(stages.losing, stages.ended, start, end) if attempt.loss else 0.0
        self.starting += per_second * starting
        self.useful += per_second * useful
        if attempt.loss:
            self.lost[attempt.loss] += per_second * lost
        self._of_flavor(attempt.flavor).add(per_second * (starting + useful + lost), per_second * lost)
        if attempt.idle is not None:
            whole = stages.losing - stages.working
            self._add_idle(min(attempt.idle / _HOUR, per_second * whole) * (useful / whole) if whole else 0.0)
        self.waited += per_second * _overlap(attempt.queued, attempt.reserved, start, end)
        self.weighted += attempt.gpus * window.weighted(max(start, stages.reserved), min(end, stages.ended))

    def count(self, attempt: JobAttempt, window: Window) -> None:
        """Count an attempt."""
        self.jobs.add(hash(attempt.uid))
        self.attempts += 1
        self.preemptions += attempt.end == PREEMPTED and (attempt.ended is None or attempt.ended <= window.until)
        if attempt.reserved >= window.since:
            self.waits.append(max(0.0, attempt.reserved - attempt.queued))

    def _of_flavor(self, flavor: str) -> FlavorHours:
        return self.flavors.setdefault(flavor, FlavorHours())

    def _add_idle(self, hours: float | None) -> None:
        if hours is not None:
            self.idle = (self.idle or 0.0) + hours


def add(sums: dict[Group, UsageSum], attempts: Iterable[JobAttempt], window: Window) -> None:
    """Add attempts to the sums of their groups. By day, an attempt is counted on the day of its end, or on the last day while it
    is in progress; its hours are those of each day.
    """
    days = Days(window) if window.by == DAY else None
    for attempt in attempts:
        stages = attempt.stages(window.until)
        if stages.ended < window.since or attempt.reserved > window.until:
            continue
        if window.queues is not None and attempt.cluster_queue not in window.queues:
            continue
        if days is None:
            group = sums.setdefault(window.group(attempt), UsageSum())
            group.count(attempt, window)
            group.add_hours(attempt, stages, window, window.since, window.until)
            continue
        sums.setdefault(days.group(min(stages.ended, window.until)), UsageSum()).count(attempt, window)
        first = max(window.since, min(attempt.queued, attempt.reserved))
        for start, end in days.parts(first, min(window.until, stages.ended)):
            sums.setdefault(days.group(start), UsageSum()).add_hours(attempt, stages, window, start, end)


def _overlap(first: float, last: float, start: float, end: float) -> float:
    return max(0.0, min(last, end) - max(first, start))
