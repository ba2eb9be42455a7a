"""Moments as users read them: coarse enough that they stay the same while nothing of note changes."""

from __future__ import annotations

from datetime import UTC, datetime

from gangline.engine.model import Millis

_FAR: Millis = 1 << 61
_QUARTER: Millis = 15 * 60_000


def moment_text(moment: Millis) -> str:
    """A moment in UTC, up to the next quarter of an hour; "at an unknown time" if nobody knows."""
    if moment >= _FAR:
        return "at an unknown time"
    rounded = -(-moment // _QUARTER) * _QUARTER
    return f"by {datetime.fromtimestamp(rounded / 1000, UTC):%Y-%m-%d %H:%M} UTC"
