"""The start outlook: the engine itself, played forward under a virtual clock, if no more workloads are submitted.

A *course* is one possible future: every run gets a length from its forecast, ends after it, and the engine decides what
follows, with all its rules. The starts in several courses give the quantiles: as likely as not before `p50`, nine times in ten
before `p90`. Courses differ only by the lengths that are drawn, which depend on the workloads and the course's number: the same
facts at the same time give the same outlook.

Pure, but not cheap: a course costs a decision for every start and end. It is meant for processes that do not decide for the
cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gangline.engine.model import Change, Millis, Settings
from gangline.engine.model.runtime import NEVER
from gangline.engine.simulation.course import Course, CourseResult, Level, Stretch

#: courses played for one outlook, if time allows; with fewer than the least number the spread comes from two of them
COURSES: Final = 20
LEAST: Final = 8
#: the quantile of every run's length in the course used for p90 where there are too few others: not all runs are that long
LATE: Final = 0.8
#: how far courses are played
HORIZON: Final[Millis] = 30 * 86_400_000
#: number of workloads listed that have to end first
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """When a waiting workload will start. `p90` is None where it starts that late, or never, in more than one course of ten."""

    workload: str
    p50: Millis
    p90: Millis | None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    now: Millis
    starts: Mapping[str, ExpectedStart]
    stretches: tuple[
        Stretch, ...
    ]  # the first run of each workload: its median start and end; later ones of the median course
    courses: int


def outlook(
    facts: Sequence[Change],
    settings: Settings,
    now: Millis,
    *,
    only: frozenset[str] | None = None,
    horizon: Millis = HORIZON,
    courses: int = COURSES,
    seconds: float = 10.0,
    patience: float = 60.0,
    clock: Callable[[], float],
) -> Outlook:
    """Play `facts` forward from `now`. `only`: a course ends when these workloads have started.

    `seconds` is the time for further courses once there is one; with less time the quantiles are coarser. A single course is
    broken off after `patience` seconds; later starts are then unknown. `clock` returns seconds.
    """

    def course(level: Level) -> CourseResult:
        end = clock() + patience
        return Course(facts, settings, now, level).play_for(horizon, only, lambda: clock() > end)

    deadline = clock() + seconds
    median = course(_fixed(0.5))
    results = [median]
    while len(results) < courses and clock() < deadline:
        results.append(course(_drawn(len(results))))
    if len(results) < LEAST:
        results = [median, course(_fixed(LATE))]
    waiting = sorted({key for result in results for key in result.starts} & (only or _all(results)))
    agreed = _agreed(results)
    reasons = {stretch.workload: _because(stretch) for stretch in reversed(agreed)}
    starts = {key: start for key in waiting if (start := _expected(key, results, reasons.get(key, ""))) is not None}
    return Outlook(now, starts, tuple(agreed), len(results))


def _agreed(results: Sequence[CourseResult]) -> list[Stretch]:
    """The runs as all courses together have them: the first of each workload at its median start, with the cause of the course
    at that median, until its median end. Later runs are those of the median course.
    """
    firsts: dict[str, list[Stretch]] = {}
    later: list[Stretch] = []
    for number, result in enumerate(results):
        known: set[str] = set()
        for stretch in result.stretches:
            if stretch.workload not in known:
                known.add(stretch.workload)
                firsts.setdefault(stretch.workload, []).append(stretch)
            elif number == 0:
                later.append(stretch)
    middle = (len(results) - 1) // 2
    found = [_median(runs, middle) for runs in firsts.values() if middle < len(runs)]
    kept = {stretch.workload for stretch in found}
    later = [stretch for stretch in later if stretch.workload in kept]
    return sorted([*found, *later], key=lambda stretch: (stretch.began, stretch.workload))


def _median(runs: list[Stretch], middle: int) -> Stretch:
    """A run that courses place differently; `middle`: its place among all courses, those without it come last."""
    at = sorted(runs, key=lambda run: (run.began, run.ended))[middle]
    return replace(at, ended=max(at.began, sorted(run.ended for run in runs)[(len(runs) - 1) // 2]))


def _all(results: Iterable[CourseResult]) -> frozenset[str]:
    return frozenset(key for result in results for key in result.starts)


def _expected(key: str, results: Sequence[CourseResult], because: str) -> ExpectedStart | None:
    """When a workload is expected to start; None where it starts in fewer than half of the courses."""
    times = sorted(result.starts.get(key, NEVER) for result in results)
    if len(times) < LEAST:
        p50, p90 = times[0], times[-1]
    else:
        p50, p90 = times[(len(times) - 1) // 2], times[(9 * len(times)) // 10]
    if p50 >= NEVER:
        return None
    return ExpectedStart(key, p50, p90 if p90 < NEVER else None, because)


def _because(stretch: Stretch) -> str:
    if not stretch.after:
        return "it can start now"
    named = ", ".join(stretch.after[:_NAMED])
    more = len(stretch.after) - _NAMED
    return (
        f"after {named}" + (f" and {more} more" if more > 0 else "") + (" end" if len(stretch.after) > 1 else " ends")
    )


def _fixed(level: float) -> Level:
    return lambda uid: level


def _drawn(number: int) -> Level:
    return lambda uid: random.Random(f"{uid} {number}").uniform(0.02, 0.98)
