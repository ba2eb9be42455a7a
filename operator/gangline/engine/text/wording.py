"""Moments and spans for users: coarse enough to stay the same while nothing relevant changes."""

from __future__ import annotations

from datetime import UTC, datetime

from gangline.engine.model import Millis

_FAR: Millis = 1 << 61
_MINUTE: Millis = 60_000
_QUARTER: Millis = 15 * _MINUTE


def moment_text(moment: Millis) -> str:
    """A moment in UTC, rounded up to a quarter of an hour; "at an unknown time" for None."""
    if moment >= _FAR:
        return "at an unknown time"
    return f"by {_written(moment, _QUARTER)}"


def span_text(time: Millis) -> str:
    """A span as Kubernetes prints durations, in at most two units: 45s, 12m30s, 3h5m, 2d4h."""
    seconds = max(0, time) // 1000
    for unit, size, smaller, small in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // small
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds}s"


def hours_text(hours: float) -> str:
    """GPU-hours with three digits, all before the point in full: 1,234, 15.5, 0.0222."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def minute_text(moment: Millis) -> str:
    """A certain moment in UTC, rounded up to a minute."""
    return _written(moment, _MINUTE)


def starts_before_text(when: str, shortest_run: Millis | None) -> str:
    """What lets a workload start though its nodes or quota go later. `shortest_run`: how long one with checkpoints has to run."""
    text = f"the workload may start {when} only with a maximum execution time, or a forecast, that ends by then"
    if shortest_run is None:
        return text
    return f"{text}, or with checkpoints, if it can run for {span_text(shortest_run)} until it is stopped"


def _written(moment: Millis, step: Millis) -> str:
    rounded = -(-moment // step) * step
    return f"{datetime.fromtimestamp(rounded / 1000, UTC):%Y-%m-%d %H:%M} UTC"
