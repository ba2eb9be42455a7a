"""Reservations as plain values, and the windows of time that they mean. Pure functions on JSON, for operator and webhooks.

A window is once, from one instant to another, or comes every week by the clocks of a time zone. `windows` turns either into
instants. Where clocks are put forward and skip its time of day, a window begins as much later; where they are put back and the
time comes twice, at the first. It lasts as long as its duration says, whatever the clocks do meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from gangline import bounded
from gangline.api import quantity
from gangline.api.unchecked import mapping
from gangline.engine.model import Millis
from gangline.kube.resources import Json

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: a time of day
TIME_OF_DAY: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
#: what unset fields mean
USUAL_ZONE: Final = "UTC"
USUAL_NOTICE: Final = "30m"
USUAL_LEAD: Final = "1m"
USUAL_FIRMNESS: Final = "Hard"

#: the longest window, of those that come every week and of those that come once
LONGEST_WEEKLY: Final[Millis] = 7 * 86_400_000
LONGEST_ONCE: Final[Millis] = 92 * 86_400_000
#: how long before a window running workloads may be warned, and be stopped, at most
LONGEST_NOTICE: Final[Millis] = 7 * 86_400_000
LONGEST_LEAD: Final[Millis] = 86_400_000
#: nodes, labels, and queues of each kind that a Reservation may name
MOST_NAMES: Final = 1000
MOST_LABELS: Final = 16
MOST_QUEUES: Final = 64
MOST_USERS: Final = 64
#: resources of which a Reservation may ask for an amount
MOST_RESOURCES: Final = 8
LONGEST_RESOURCE: Final = 317
#: recalls that a status lists
MOST_RECALLS: Final = 64

#: characters of the longest instant
_LONGEST_INSTANT: Final = 40
_LONGEST_TIME_OF_DAY: Final = 5

_TIME_OF_DAY: Final = re.compile(TIME_OF_DAY, re.ASCII)


class ReservationError(ValueError):
    """A Reservation cannot be honoured as it is written; `path` is the field, `message` says why."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


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


class Owners(NamedTuple):
    """Whose workloads may use the nodes in the windows: names of ClusterQueues, LocalQueues as namespace/name, users."""

    cluster_queues: frozenset[str] = frozenset()
    local_queues: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SomeNodes:
    """Nodes of a flavor, whichever: `count` of them, or as many as offer these amounts together."""

    flavor: str
    count: int | None = None
    amounts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """A Reservation's spec."""

    when: Span | Weekly
    node_names: frozenset[str]
    node_labels: tuple[tuple[str, str], ...]
    any_of: SomeNodes | None
    owners: Owners
    soft: bool
    notice: Millis
    stop_before: Millis

    @property
    def maintenance(self) -> bool:
        """Whether nobody may use the nodes in the windows."""
        return not any(self.owners)


def reservation(obj: Json) -> ReservationFacts:
    """A Reservation. Raises ReservationError, which names the field."""
    spec = _object(obj.get("spec"), "spec")
    nodes = _object(spec.get("nodes"), "spec.nodes")
    names = _texts(nodes.get("names"), "spec.nodes.names", MOST_NAMES)
    labels = _labels(nodes.get("matchLabels"))
    any_of = _any_of(nodes.get("anyOf"))
    if not (names or labels or any_of):
        raise ReservationError("spec.nodes", "give names, matchLabels or anyOf")
    owners, firm = _owners(spec.get("for")), spec.get("firm") or USUAL_FIRMNESS
    if firm not in ("Hard", "Soft"):
        raise ReservationError("spec.firm", "must be Hard or Soft")
    if firm == "Soft" and not any(owners):
        raise ReservationError("spec.firm", "a maintenance is Hard: nobody could need the nodes of a soft one")
    return ReservationFacts(
        _when(_object(spec.get("window"), "spec.window")),
        names,
        labels,
        any_of,
        owners,
        firm == "Soft",
        _length(spec.get("notice") or USUAL_NOTICE, "spec.notice", LONGEST_NOTICE),
        _length(spec.get("stopBefore") or USUAL_LEAD, "spec.stopBefore", LONGEST_LEAD),
    )


def _object(value: Any, path: str) -> Json:
    if value is None:
        raise ReservationError(path, "is required")
    if not isinstance(value, dict):
        raise ReservationError(path, "must be an object")
    return cast(Json, value)


def _list(value: Any, path: str, most: int) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ReservationError(path, "must be a list")
    found = cast("list[Any]", value)
    if len(found) > most:
        raise ReservationError(path, f"must have at most {most} items")
    return found


def _texts(value: Any, path: str, most: int) -> frozenset[str]:
    return frozenset(_text(each, f"{path}[{i}]") for i, each in enumerate(_list(value, path, most)))


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise ReservationError(path, "is required" if value in (None, "") else "must be a string")
    return value


def _labels(value: Any) -> tuple[tuple[str, str], ...]:
    path = "spec.nodes.matchLabels"
    found = _object(value, path) if value is not None else {}
    if len(found) > MOST_LABELS:
        raise ReservationError(path, f"must have at most {MOST_LABELS} labels")
    if any(not isinstance(each, str) for each in found.values()):
        raise ReservationError(path, "must have strings as values")
    return tuple(sorted(found.items()))


def _any_of(value: Any) -> SomeNodes | None:
    if value is None:
        return None
    path = "spec.nodes.anyOf"
    found = _object(value, path)
    flavor, count = _text(found.get("flavor"), f"{path}.flavor"), found.get("count")
    amounts = _amounts(found.get("resources"), f"{path}.resources")
    if (count is not None) == bool(amounts):
        raise ReservationError(path, "give either count or resources")
    if amounts:
        return SomeNodes(flavor, amounts=amounts)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 1 << 31:
        raise ReservationError(f"{path}.count", "must be a whole number greater than 0")
    return SomeNodes(flavor, count)


def _amounts(value: Any, path: str) -> tuple[tuple[str, int], ...]:
    found = _object(value, path) if value is not None else {}
    if len(found) > MOST_RESOURCES:
        raise ReservationError(path, f"must have at most {MOST_RESOURCES} resources")
    amounts: list[tuple[str, int]] = []
    for resource, given in sorted(found.items()):
        try:
            amount = quantity.parse(given, resource)
        except quantity.QuantityError:
            amount = 0
        if amount <= 0 or len(resource) > LONGEST_RESOURCE:
            raise ReservationError(
                path, f"{bounded.shown(resource)} must be a resource, and its quantity greater than 0"
            )
        amounts.append((resource, amount))
    return tuple(amounts)


def _owners(value: Any) -> Owners:
    if value is None:
        return Owners()
    owners, path = _object(value, "spec.for"), "spec.for.localQueues"
    cluster_queues = _texts(owners.get("clusterQueues"), "spec.for.clusterQueues", MOST_QUEUES)
    local_queues: set[str] = set()
    for i, each in enumerate(_list(owners.get("localQueues"), path, MOST_QUEUES)):
        queue = mapping(each)
        namespace, name = (_text(queue.get(key), f"{path}[{i}].{key}") for key in ("namespace", "name"))
        local_queues.add(f"{namespace}/{name}")
    users = _texts(owners.get("users"), "spec.for.users", MOST_USERS)
    if not (cluster_queues or local_queues or users):
        raise ReservationError(
            "spec.for", "give clusterQueues, localQueues or users; a maintenance has no spec.for at all"
        )
    return Owners(cluster_queues, frozenset(local_queues), users)


def _when(window: Json) -> Span | Weekly:
    start, end, schedule = (window.get(key) for key in ("start", "end", "schedule"))
    if (start is not None or end is not None) == (schedule is not None):
        raise ReservationError("spec.window", "give either start and end, or schedule")
    if schedule is not None:
        return _weekly(_object(schedule, "spec.window.schedule"))
    span = Span(_instant_of(start, "spec.window.start"), _instant_of(end, "spec.window.end"))
    if span.end <= span.start:
        raise ReservationError("spec.window.end", "must be after start")
    if span.end - span.start > LONGEST_ONCE:
        raise ReservationError("spec.window.end", "must be at most 92 days after start")
    return span


def _instant_of(value: Any, path: str) -> Millis:
    try:
        return instant(_text(value, path))
    except (OverflowError, ReservationError, ValueError) as error:
        if isinstance(error, ReservationError):
            raise
        raise ReservationError(path, "must be a time such as 2026-01-31T12:00:00Z") from None


@bounded.parser(_LONGEST_INSTANT, worst=("2026-01-31T12:00:00Z", "T", "9", ".9", "+", "٣"))
def instant(text: str) -> Millis:
    """RFC 3339 to milliseconds since the epoch. Raises ValueError."""
    found = datetime.fromisoformat(text)
    if "T" not in text or found.tzinfo is None:
        raise ValueError(bounded.shown(text))
    return round(found.timestamp() * 1000)


def _weekly(schedule: Json) -> Weekly:
    path = "spec.window.schedule"
    days = _list(schedule.get("days"), f"{path}.days", len(DAYS))
    if not days:
        raise ReservationError(f"{path}.days", "give at least one day")
    for i, day in enumerate(days):
        if day not in DAYS:
            raise ReservationError(f"{path}.days[{i}]", f"must be one of {', '.join(DAYS)}")
    try:
        minute = minute_of_day(_text(schedule.get("time"), f"{path}.time"))
    except ReservationError:
        raise
    except ValueError:
        raise ReservationError(f"{path}.time", "must be a time of day such as 17:40") from None
    length = _length(_text(schedule.get("duration"), f"{path}.duration"), f"{path}.duration", LONGEST_WEEKLY)
    if length < 1000:
        raise ReservationError(f"{path}.duration", "must be at least 1s")
    zone = _text(schedule.get("timeZone") or USUAL_ZONE, f"{path}.timeZone")
    try:
        bounded.time_zone(zone)
    except ValueError as error:
        raise ReservationError(f"{path}.timeZone", str(error)) from None
    return Weekly(frozenset(DAYS.index(day) for day in days), minute, length, zone)


@bounded.parser(_LONGEST_TIME_OF_DAY, worst=("17:40", "9", ":", "٣"))
def minute_of_day(text: str) -> int:
    """The minutes from midnight to a time of day such as 17:40. Raises ValueError."""
    if _TIME_OF_DAY.match(text) is None:
        raise ValueError(bounded.shown(text))
    return int(text[:2]) * 60 + int(text[3:])


def _length(value: Any, path: str, longest: Millis) -> Millis:
    try:
        millis = round(quantity.parse_duration(_text(value, path)) * 1000)
    except quantity.QuantityError:
        raise ReservationError(path, 'must be a duration such as "90s", "30m" or "1h30m"') from None
    if not 0 <= millis <= longest:
        raise ReservationError(path, f"must be from 0s to {quantity.format_duration(longest / 1000)}")
    return millis


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
