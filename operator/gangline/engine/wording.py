"""Moments as users read them: coarse enough that they stay the same while nothing of note changes."""

from __future__ import annotations

from datetime import UTC, datetime

from gangline.engine.model import Millis

_FAR: Millis = 1 << 61
_MINUTE: Millis = 60_000
_QUARTER: Millis = 15 * _MINUTE


def moment_text(moment: Millis) -> str:
    """A moment in UTC, up to the next quarter of an hour; "at an unknown time" if nobody knows."""
    if moment >= _FAR:
        return "at an unknown time"
    return f"by {_written(moment, _QUARTER)}"


def minute_text(moment: Millis) -> str:
    """A moment that is certain, in UTC, up to the next minute."""
    return _written(moment, _MINUTE)


def _written(moment: Millis, step: Millis) -> str:
    rounded = -(-moment // step) * step
    return f"{datetime.fromtimestamp(rounded / 1000, UTC):%Y-%m-%d %H:%M} UTC"
