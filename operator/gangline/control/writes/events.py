"""Events for users (`kubectl describe`), in events.k8s.io/v1: few, deduplicated, never delaying other writes.

Equal statements about one object within `window` seconds become one Event with a count, updated at most every `refresh` seconds.
Only `in_flight` events are handed to the writer at a time, those of each namespace in turn. Beyond `backlog` more, the oldest of
the namespace with most of them are dropped and counted: under pressure the newest matter. The API server keeps each event for an
hour. So of a namespace `burst` are written at once, and `rate` a second; an event says that one exceeds this.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from gangline import tenants
from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.writer import Writer
from gangline.kube.client import AlreadyExists, ApiError, Json, ObjectKey
from gangline.kube.resources import EVENTS

log = logging.getLogger(__name__)

EventType: TypeAlias = Literal["Normal", "Warning"]

#: limits of the API, in bytes
NOTE_LIMIT = 1024
NAME_LIMIT = 253
WORD_LIMIT = 128

#: events of one namespace that are written: at once after a quiet time, and per second. 5,000 jobs an hour have six each.
BURST = 10_000.0
RATE = 10.0
#: namespaces of which it is remembered how much they have left; others have the whole burst
_MOST_ALLOWANCES = 10_000


class _Statement(NamedTuple):
    """An event's content and object; repeating it within the window only counts."""

    uid: str
    kind: str
    namespace: str
    name: str
    type: EventType
    reason: str
    note: str


@dataclass(slots=True)
class _Series:
    """One statement: how often it was made, and how much of that the server knows. The event is created when it is sent."""

    key: ObjectKey
    statement: _Statement
    action: str
    #: of the object that the event is about
    api_version: str
    resource_version: str
    started: float
    #: seconds since the epoch
    first_seen: float
    last_seen: float
    count: int = 1
    sent: int = 0
    written: int = 0
    queued: bool = False
    failed: bool = False


@dataclass(slots=True)
class _Allowance:
    """How many events of a namespace may still be written, as of a time."""

    left: float
    at: float
    #: it was said that none is left
    reported: bool = False


class Warned(NamedTuple):
    """A Warning event about an object, and when it was last recorded, in seconds since the epoch."""

    reason: str
    note: str
    at: float


class EventRecorder:
    """Records events. `recorded`, `written`, `failed` and `dropped` count them since the start.

    `clock` is in monotonic seconds and the same as the writer's `not_before`; `wall` is the time that events say.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        controller: str = "gangline.io/operator",
        instance: str = "",
        window: float = 360.0,
        refresh: float = 60.0,
        backlog: int = 1000,
        in_flight: int = 32,
        series_limit: int = 4096,
        burst: float = BURST,
        rate: float = RATE,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.recorded = self.written = self.failed = self.dropped = 0
        self._writer = writer
        self._controller = controller
        self._instance = (instance or os.environ.get("HOSTNAME") or socket.gethostname())[:WORD_LIMIT]
        self._window = window
        self._refresh = refresh
        self._in_flight_limit = in_flight
        self._burst = burst
        self._rate = rate
        self._clock = clock
        self._wall = wall
        self._series: tenants.SharedRoom[_Statement, _Series] = tenants.SharedRoom(series_limit)
        self._waiting: tenants.InTurn[_Series] = tenants.InTurn(backlog)
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self._in_flight = 0
        self._serial = 0

    def record(
        self,
        regarding: Mapping[str, Any],
        type: EventType,
        reason: str,
        note: str,
        action: str = "",
        *,
        one_series: bool = False,
    ) -> None:
        """Record an event about an object (anything with apiVersion, kind and metadata). Never blocks, never raises.

        `reason` and `action` are machine-readable words in UpperCamelCase (`action` defaults to the reason); `note` is for people
        and is cut at 1,024 bytes. With `one_series` other notes of the reason count as repetitions of the first.
        """
        self.recorded += 1
        now = self._clock()
        metadata: Mapping[str, Any] = regarding.get("metadata") or {}
        statement = _Statement(
            metadata.get("uid", ""),
            regarding.get("kind", ""),
            metadata.get("namespace", ""),
            metadata.get("name", ""),
            type,
            reason,
            note,
        )
        namespace = statement.namespace
        self._forget_old(namespace, now)
        known_by = statement._replace(note="") if one_series else statement
        series = self._series.get(namespace, known_by)
        if series is not None:
            series.count += 1
            series.last_seen = self._wall()
            self._repeat(series)
            return
        if not self._may_write(namespace, now):
            self.dropped += 1
            if self._allowances[namespace].reported:
                return
            self._allowances[namespace].reported = True
            log.warning(
                "events about objects of namespace %s: %d at once and %g per second are written; others are dropped",
                namespace,
                self._burst,
                self._rate,
            )
            message = (
                f"More events about objects of namespace {namespace} than {self._rate:g} per second are not written"
            )
            statement = known_by = statement._replace(type="Warning", reason="EventsDropped", note=message)
            action = ""
        wall = self._wall()
        series = _Series(
            self._new_key(statement),
            statement,
            action or statement.reason,
            regarding.get("apiVersion", ""),
            metadata.get("resourceVersion", ""),
            now,
            first_seen=wall,
            last_seen=wall,
        )
        self._series.put(namespace, known_by, series)
        self._enqueue(series)

    def _new_key(self, statement: _Statement) -> ObjectKey:
        self._serial += 1
        suffix = f".{time.time_ns():x}{self._serial:x}"
        name = f"{statement.name[: NAME_LIMIT - len(suffix)]}{suffix}"
        # the API expects events of cluster-scoped objects in the namespace default
        return ObjectKey(EVENTS, statement.namespace or "default", name)

    def _forget_old(self, namespace: str, now: float) -> None:
        while (series := self._series.oldest(namespace)) is not None and now - series.started >= self._window:
            self._series.drop_oldest(namespace)

    def _may_write(self, namespace: str, now: float) -> bool:
        """Whether one more event of this namespace may be written, which counts as written then."""
        allowance = self._allowances.setdefault(namespace, _Allowance(self._burst, now))
        self._allowances.move_to_end(namespace)
        if len(self._allowances) > _MOST_ALLOWANCES:
            self._allowances.popitem(last=False)
        allowance.left = min(self._burst, allowance.left + (now - allowance.at) * self._rate)
        allowance.at = now
        allowance.reported = allowance.reported and allowance.left < self._burst / 2
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True

    def warnings(self) -> dict[str, list[Warned]]:
        """The warnings of the last minutes by the uid of their object, the newest first."""
        found: dict[str, list[Warned]] = {}
        now = self._clock()
        for series in self._series.values():
            if series.statement.type == "Warning" and now - series.started < self._window:
                warned = Warned(series.statement.reason, series.statement.note, series.last_seen)
                found.setdefault(series.statement.uid, []).append(warned)
        for each in found.values():
            each.sort(key=lambda warned: -warned.at)
        return found

    # --- writing ------------------------------------------------------------------------------------------------------

    def _enqueue(self, series: _Series) -> None:
        series.queued = True
        dropped = self._waiting.put(series.statement.namespace, series)
        if dropped is not None:
            dropped.queued = False
            self.dropped += 1
        self._feed()

    def _feed(self) -> None:
        while self._waiting and self._in_flight < self._in_flight_limit:
            series = self._waiting.take()
            self._in_flight += 1
            self._writer.submit(
                Write(
                    series.key,
                    "create",
                    lambda series=series: self._render(series),
                    Priority.EVENT,
                    on_done=lambda _, series=series: self._created(series, None),
                    on_error=lambda error, series=series: self._created(series, error),
                )
            )

    def _repeat(self, series: _Series) -> None:
        if series.queued or series.failed:
            return  # its creation is still queued and will carry the count, or cannot succeed
        if series.written == 0:
            self._enqueue(series)  # it was dropped under pressure
        else:
            self._update(series)

    def _update(self, series: _Series) -> None:
        """Update the count later: the writer's slot collects all repetitions until then."""
        self._writer.submit(
            Write(
                series.key,
                "patch",
                lambda: self._render_update(series),
                Priority.EVENT,
                on_done=lambda _: self._stored(series),
                on_error=lambda error: self._fail(series),
                not_before=self._clock() + self._refresh,
            )
        )

    def _render(self, series: _Series) -> Json:
        statement = series.statement
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.key.name, "namespace": series.key.namespace},
            "eventTime": _timestamp(series.first_seen),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "type": statement.type,
            "reason": statement.reason[:WORD_LIMIT],
            "action": series.action[:WORD_LIMIT],
            "note": _cut(statement.note, NOTE_LIMIT),
            "regarding": _reference(series),
            **self._counted(series),
        }

    def _render_update(self, series: _Series) -> Json | None:
        return None if series.written == series.count else self._counted(series)

    def _counted(self, series: _Series) -> Json:
        series.sent = series.count
        if series.count == 1:
            return {}
        return {"series": {"count": series.count, "lastObservedTime": _timestamp(series.last_seen)}}

    def _created(self, series: _Series, error: ApiError | None) -> None:
        series.queued = False
        self._in_flight -= 1
        if error is None or isinstance(error, AlreadyExists):  # an earlier attempt succeeded, but its answer was lost
            self._stored(series)
            if series.written != series.count:  # repeated while it was in flight
                self._update(series)
        else:
            self._fail(series)
        self._feed()

    def _stored(self, series: _Series) -> None:
        self.written += 1
        series.written = series.sent

    def _fail(self, series: _Series) -> None:
        """Count a failure: the namespace was deleted or the permission is missing. An event is not worth more effort."""
        self.failed += 1
        series.failed = True


def _reference(series: _Series) -> Json:
    statement = series.statement
    reference = {
        "apiVersion": series.api_version,
        "kind": statement.kind,
        "namespace": statement.namespace,
        "name": statement.name,
        "uid": statement.uid,
        "resourceVersion": series.resource_version,
    }
    return {name: value for name, value in reference.items() if value or name in ("kind", "name")}


def _cut(text: str, limit: int) -> str:
    """The text cut to at most `limit` bytes of UTF-8, never within a character."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "…"


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
