"""Reservations as plain values, and the windows of time that they mean. Pure.

A window is once, from one instant to another, or comes every week by the clocks of a time zone. `windows` turns either into
instants. Where clocks are put forward and skip its time of day, a window begins as much later; where they are put back and the
time comes twice, at the first. It lasts as long as its duration says, whatever the clocks do meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import orjson

from gangline import bounded
from gangline.api import quantity
from gangline.api.read import models
from gangline.api.read.reading import ParseError, child, moment, root
from gangline.api.schema.v1alpha1.reservation import ReservationSpec, WeeklySchedule
from gangline.engine.model import Millis
from gangline.kube.resources import Json

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

#: the longest window, of those that come every week and of those that come once; a week holds the first at most once
LONGEST_WEEKLY: Final[Millis] = 7 * 86_400_000
LONGEST_ONCE: Final[Millis] = 92 * 86_400_000
#: how long before a window running workloads may be told, and be stopped, at most
LONGEST_NOTICE: Final[Millis] = 7 * 86_400_000
LONGEST_LEAD: Final[Millis] = 86_400_000

#: characters of the longest name of a time zone
_LONGEST_ZONE: Final = 64
_KNOWN: Final = 256


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


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """A Reservation's spec."""

    when: Span | Weekly
    node_names: frozenset[str] = frozenset()
    node_labels: tuple[tuple[str, str], ...] = ()
    #: so many nodes of a flavor
    any_of: tuple[str, int] | None = None
    cluster_queues: frozenset[str] = frozenset()
    local_queues: frozenset[str] = frozenset()
    #: nobody may use the nodes in the windows
    maintenance: bool = field(default=True)
    notice: Millis = 0
    stop_before: Millis = 0


def reservation(obj: Json) -> ReservationFacts:
    """A Reservation. Raises ParseError, which names the field."""
    try:
        raw = orjson.dumps(child(obj, "spec", ""))
    except orjson.JSONEncodeError as error:
        raise ParseError("spec", f"is not JSON: {error}") from None
    return _known(raw)


@lru_cache(maxsize=_KNOWN)
def _known(raw: bytes) -> ReservationFacts:
    spec = models.read(ReservationSpec, root(orjson.loads(raw)), "spec")
    nodes, owners = spec.nodes, spec.for_
    labels = tuple(sorted((nodes.match_labels or {}).items()))
    if not (nodes.names or labels or nodes.any_of):
        raise ParseError("spec.nodes", "give names, matchLabels or anyOf")
    cluster_queues = frozenset((owners.cluster_queues if owners is not None else None) or ())
    references = (owners.local_queues if owners is not None else None) or ()
    local_queues = frozenset(f"{each.namespace}/{each.name}" for each in references)
    if owners is not None and not (cluster_queues or local_queues):
        raise ParseError("spec.for", "give clusterQueues or localQueues; a maintenance has no spec.for at all")
    return ReservationFacts(
        _when(spec),
        frozenset(nodes.names or ()),
        labels,
        (nodes.any_of.flavor, nodes.any_of.count) if nodes.any_of is not None else None,
        cluster_queues,
        local_queues,
        owners is None,
        _span(spec.notice, "spec.notice", LONGEST_NOTICE),
        _span(spec.stop_before, "spec.stopBefore", LONGEST_LEAD),
    )


def _when(spec: ReservationSpec) -> Span | Weekly:
    window = spec.window
    once = window.start is not None or window.end is not None
    if once == (window.schedule is not None):
        raise ParseError("spec.window", "give either start and end, or schedule")
    if window.schedule is not None:
        return _weekly(window.schedule)
    for name, value in (("start", window.start), ("end", window.end)):
        if value is None:
            raise ParseError(f"spec.window.{name}", "is required")
    span = Span(moment(window.start, "spec.window.start"), moment(window.end, "spec.window.end"))
    if span.end <= span.start:
        raise ParseError("spec.window.end", "must be after start")
    if span.end - span.start > LONGEST_ONCE:
        raise ParseError("spec.window.end", "must be at most 92 days after start")
    return span


def _weekly(schedule: WeeklySchedule) -> Weekly:
    path = "spec.window.schedule"
    length = _span(schedule.duration, f"{path}.duration", LONGEST_WEEKLY)
    if length < 1000:
        raise ParseError(f"{path}.duration", "must be at least 1s")
    try:
        zone_of(schedule.time_zone)
    except ValueError as error:
        raise ParseError(f"{path}.timeZone", str(error)) from None
    hours, _, minutes = schedule.time.partition(":")
    days = frozenset(_DAYS.index(day) for day in schedule.days)
    return Weekly(days, int(hours) * 60 + int(minutes), length, schedule.time_zone)


def _span(text: str, path: str, longest: Millis) -> Millis:
    try:
        millis = round(quantity.parse_duration(text) * 1000)
    except quantity.QuantityError:
        raise ParseError(path, 'must be a duration such as "90s", "30m" or "1h30m"') from None
    if not 0 <= millis <= longest:
        raise ParseError(path, f"must be from 0s to {quantity.format_duration(longest / 1000)}")
    return millis


def _no_zone(text: object) -> ValueError:
    return ValueError(f"there is no time zone {bounded.shown(str(text))}")


@bounded.parser(_LONGEST_ZONE, refuse=_no_zone, worst=("Europe/", "../", "A", "/", "\x00"))
def zone_of(name: str) -> tzinfo:
    """The time zone of this name, such as Europe/Berlin. Raises ValueError."""
    if name == "UTC":  # which needs no data about zones
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # the names of its folders are no zones
        raise _no_zone(name) from None


# --- windows ----------------------------------------------------------------------------------------------------------


def windows(when: Span | Weekly, after: Millis, most: int) -> list[Span]:
    """The first windows that end after an instant, at most so many. Overlapping windows of one schedule are one window."""
    if isinstance(when, Span):
        return [when] if when.end > after else []
    return list(islice(_joined(_weekly_from(when, after)), most))


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
    zone = zone_of(weekly.zone)
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
