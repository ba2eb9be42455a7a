"""Pod telemetry over time: since when each pod is idle, and since when it has written nothing to its log. Pure.

A gap in the readings is not evidence: spans start again after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.control.nodes.stall.stall_verdict import Evidence
from gangline.engine.model import Millis
from gangline.telemetry import Reading

#: GPUs that compute for less than this share of the time are idle …
IDLE: Final = 0.01
#: … and so are those that draw less than this multiple of their idle power
LOW_POWER: Final = 1.15
#: A reading older than this is stale, in milliseconds.
STALE: Final[Millis] = 300_000


@dataclass(slots=True)
class PodTelemetry:
    """The readings of one pod combined. Times are in milliseconds since the epoch; None = not the case, or unknown."""

    at: Millis = 0
    idle_since: Millis | None = None
    low_power_since: Millis | None = None
    measured: bool = False  # its GPUs' activity is measured …
    powered: bool = False  # … and so is their power
    kernel_age: Millis | None = None
    logged_at: Millis | None = None
    xids: set[int] = field(default_factory=set[int])
    _log_bytes: float | None = None
    _first_xid: int | None = None

    def take(self, reading: Reading) -> None:
        """Process a reading; readings older than the last are ignored."""
        at = round(reading.at * 1000)
        if at <= self.at:
            return
        if self.at and at - self.at > STALE:
            self.idle_since = self.low_power_since = None
            self.logged_at = at if self.logged_at is not None else None
        self.at = at
        self.measured, self.powered = reading.gpu is not None, reading.power is not None
        self.idle_since = _since(self.idle_since, reading.gpu is not None and reading.gpu < IDLE, at)
        self.low_power_since = _since(self.low_power_since, reading.power is not None and reading.power < LOW_POWER, at)
        self.kernel_age = None if reading.kernel_age is None else round(reading.kernel_age * 1000)
        self._logs(reading.log_bytes, at)
        self._errors(reading.xid)

    def _logs(self, written: float | None, at: Millis) -> None:
        if written is not None and written != self._log_bytes:
            self._log_bytes, self.logged_at = written, at

    def _errors(self, xid: int | None) -> None:
        """Collect new GPU errors. The gauge keeps its last error, so an error shown before this pod began is not this pod's."""
        if xid is None:
            return
        if self._first_xid is None:
            self._first_xid = xid
        elif xid and xid != self._first_xid:
            self.xids.add(xid)


def _since(before: Millis | None, holds: bool, at: Millis) -> Millis | None:
    if not holds:
        return None
    return at if before is None else before


def with_telemetry(evidence: Evidence, pods: Sequence[PodTelemetry], now: Millis) -> Evidence:
    """The evidence with the telemetry of the gang's pods; stale readings are left out."""
    fresh = [pod for pod in pods if now - pod.at < STALE]
    logged = [pod.logged_at for pod in fresh if pod.logged_at is not None]
    complete = len(logged) >= evidence.pods
    return replace(
        evidence,
        idle=_spans((pod.idle_since for pod in fresh if pod.measured), now),
        low_power=_spans((pod.low_power_since for pod in fresh if pod.powered), now),
        kernel_age=tuple(pod.kernel_age for pod in fresh if pod.kernel_age is not None),
        log_silence=now - max(logged) if complete and logged else None,
        xids=tuple(sorted({xid for pod in fresh for xid in pod.xids})),
    )


def _spans(since: Iterable[Millis | None], now: Millis) -> tuple[Millis, ...]:
    return tuple(0 if start is None else max(1, now - start) for start in since)
