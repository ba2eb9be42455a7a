"""Windows of time, as specs give them. Pure functions on JSON, for operator and webhooks.

A window is once, from one instant to another, or comes every week by the clocks of a time zone. `windows` turns either into
instants. Where clocks are put forward and skip its time of day, a window begins as much later; where they are put back and the
time comes twice, at the first. It lasts as long as its duration says, whatever the clocks do meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from gangline import bounded
from gangline.api.spec_fields import SpecError, a_length, a_list, a_text, an_object
from gangline.engine.model import Deadline, Millis
from gangline.kube.resources import Json

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: a time of day
TIME_OF_DAY: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
#: what unset fields mean
USUAL_ZONE: Final = "UTC"
USUAL_NOTICE: Final = "30m"
USUAL_LEAD: Final = "1m"

#: the longest window, of those that come every week and of those that come once
LONGEST_WEEKLY: Final[Millis] = 7 * 86_400_000
LONGEST_ONCE: Final[Millis] = 92 * 86_400_000
#: how long before something running workloads may be warned, and be stopped, at most
LONGEST_NOTICE: Final[Millis] = 7 * 86_400_000
LONGEST_LEAD: Final[Millis] = 86_400_000

#: characters of the longest instant
_LONGEST_INSTANT: Final = 40
_LONGEST_TIME_OF_DAY: Final = 5

_TIME_OF_DAY: Final = re.compile(TIME_OF_DAY, re.ASCII)


class Span(NamedTuple):
    """The time from one instant to another."""

    start: Millis
    end: Millis


@dataclass(frozen=True, slots=True)
class Weekly:
    """Windows that begin on these days of a week (Monday is 0), so many minutes after midnight by the clocks of a zone."""

    days: frozenset[int]
    minute: int
    length: Millis
    zone: str


def when(window: Json, path: str) -> Span | Weekly:
    """The window at `path`. Raises SpecError."""
    start, end, schedule = (window.get(key) for key in ("start", "end", "schedule"))
    if (start is not None or end is not None) == (schedule is not None):
        raise SpecError(path, "give either start and end, or schedule")
    if schedule is not None:
        return _weekly(an_object(schedule, f"{path}.schedule"), f"{path}.schedule")
    span = Span(_instant_of(start, f"{path}.start"), _instant_of(end, f"{path}.end"))
    if span.end <= span.start:
        raise SpecError(f"{path}.end", "must be after start")
    if span.end - span.start > LONGEST_ONCE:
        raise SpecError(f"{path}.end", "must be at most 92 days after start")
    return span


def deadline(section: Json, path: str) -> Deadline:
    """`notice`, `stopBefore` and `startWithCheckpoints` of the object at `path`. Raises SpecError."""
    run = section.get("startWithCheckpoints")
    return Deadline(
        a_length(section.get("notice") or USUAL_NOTICE, f"{path}.notice", LONGEST_NOTICE),
        a_length(section.get("stopBefore") or USUAL_LEAD, f"{path}.stopBefore", LONGEST_LEAD),
        None if run is None else a_length(run, f"{path}.startWithCheckpoints", LONGEST_WEEKLY),
    )


def _instant_of(value: Any, path: str) -> Millis:
    try:
        return instant(a_text(value, path))
    except (OverflowError, SpecError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(path, "must be a time such as 2026-01-31T12:00:00Z") from None


@bounded.parser(_LONGEST_INSTANT, worst=("2026-01-31T12:00:00Z", "T", "9", ".9", "+", "٣"))
def instant(text: str) -> Millis:
    """RFC 3339 to milliseconds since the epoch. Raises ValueError."""
    found = datetime.fromisoformat(text)
    if "T" not in text or found.tzinfo is None:
        raise ValueError(bounded.shown(text))
    return round(found.timestamp() * 1000)


def _weekly(schedule: Json, path: str) -> Weekly:
    days = a_list(schedule.get("days"), f"{path}.days", len(DAYS))
    if not days:
        raise SpecError(f"{path}.days", "give at least one day")
    for i, day in enumerate(days):
        if day not in DAYS:
            raise SpecError(f"{path}.days[{i}]", f"must be one of {', '.join(DAYS)}")
    try:
        minute = minute_of_day(a_text(schedule.get("time"), f"{path}.time"))
    except SpecError:
        raise
    except ValueError:
        raise SpecError(f"{path}.time", "must be a time of day such as 17:40") from None
    length = a_length(a_text(schedule.get("duration"), f"{path}.duration"), f"{path}.duration", LONGEST_WEEKLY)
    if length < 1000:
        raise SpecError(f"{path}.duration", "must be at least 1s")
    zone = a_text(schedule.get("timeZone") or USUAL_ZONE, f"{path}.timeZone")
    try:
        bounded.time_zone(zone)
    except ValueError as error:
        raise SpecError(f"{path}.timeZone", str(error)) from None
    return Weekly(frozenset(DAYS.index(day) for day in days), minute, length, zone)


@bounded.parser(_LONGEST_TIME_OF_DAY, worst=("17:40", "9", ":", "٣"))
def minute_of_day(text: str) -> int:
    """The minutes from midnight to a time of day such as 17:40. Raises ValueError."""
    if _TIME_OF_DAY.match(text) is None:
        raise ValueError(bounded.shown(text))
    return int(text[:2]) * 60 + int(text[3:])


# --- windows ----------------------------------------------------------------------------------------------------------


def windows(when: Span | Weekly, after: Millis, most: int) -> list[Span]:
    """The first windows that end after an instant, at most so many. Overlapping windows of one schedule are one window."""
    if isinstance(when, Span):
        return [when] if when.end > after else []
    return list(islice(_joined(_weekly_from(when, after)), most))


#: windows of each of two schedules that are compared: those that do not meet in the first weeks hardly meet later
_COMPARED: Final = 16


def first_common(one: Span | Weekly, other: Span | Weekly, after: Millis) -> tuple[Span, Span] | None:
    """The first window of each that overlaps with one of the other, of those that end after an instant. Of two schedules the
    next windows are compared, of windows that come once all.
    """
    if isinstance(one, Span):
        found = windows(other, max(after, one.start), 1) if one.end > after else []
        return next(((one, its) for its in found if meet(one, its)), None)
    if isinstance(other, Span):
        swapped = first_common(other, one, after)
        return swapped and (swapped[1], swapped[0])
    ours, theirs = iter(_next_few(one, after)), iter(_next_few(other, after))
    own, its = next(ours, None), next(theirs, None)
    while own is not None and its is not None and not meet(own, its):
        if own.end <= its.start:
            own = next(ours, None)
        else:
            its = next(theirs, None)
    return None if own is None or its is None else (own, its)


@lru_cache(maxsize=256)
def _next_few(schedule: Weekly, after: Millis) -> tuple[Span, ...]:
    """The windows that are compared; kept, since each is compared with many at the same time."""
    return tuple(windows(schedule, after, _COMPARED))


def meet(one: Span, two: Span) -> bool:
    """Whether both have some time in common."""
    return one.start < two.end and two.start < one.end


def common(one: Span, two: Span) -> Span:
    """The time that two have in common."""
    return Span(max(one.start, two.start), min(one.end, two.end))


def is_over(when: Span | Weekly, now: Millis) -> bool:
    """Whether no window comes any more."""
    return isinstance(when, Span) and when.end <= now


def over(path: str) -> str:
    """What is said of such windows."""
    return f"{path}: the window is over, so it has no effect"


def _joined(spans: Iterator[Span]) -> Iterator[Span]:
    """Spans in order, those that overlap or touch as one; a schedule without a gap is cut after the longest window."""
    current: Span | None = None
    for span in spans:
        if current is None:
            current = span
        elif span.start <= current.end and span.end - current.start <= LONGEST_ONCE:
            current = Span(current.start, max(current.end, span.end))
        else:
            yield current
            current = span
    if current is not None:
        yield current


#: days in which the windows of a schedule are looked for: some that are cut after the longest window, and one more
_AHEAD: Final = 400


def _weekly_from(weekly: Weekly, after: Millis) -> Iterator[Span]:
    """The windows that end after an instant, in order, over the next year or so."""
    zone = bounded.time_zone(weekly.zone)
    first = datetime.fromtimestamp((after - weekly.length) / 1000, zone).date() - timedelta(days=1)
    for day in (first + timedelta(days=number) for number in range(_AHEAD)):
        if day.weekday() in weekly.days:
            start = _instant(day, weekly.minute, zone)
            if start + weekly.length > after:
                yield Span(start, start + weekly.length)


def _instant(day: date, minute: int, zone: tzinfo) -> Millis:
    """When the clocks show this time of the day: the first time, or as much later as the clocks skip."""
    local = datetime(day.year, day.month, day.day, minute // 60, minute % 60, tzinfo=zone)
    return round(local.timestamp() * 1000)
