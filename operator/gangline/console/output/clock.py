"""Instants as people say them: the time on the wall clock, and how far it is."""

from __future__ import annotations

import time
from typing import Final

from gangline.control.answers.workloads.words import age

_DAY: Final = 86_400


def wall(at: float | None, now: float) -> str:
    """`14:05`, `Thu 14:05` within six days, `2026-12-04 14:05` beyond; "" for no time. In local time."""
    if at is None:
        return ""
    then, today = time.localtime(at), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if abs(at - now) < 6 * _DAY else "%Y-%m-%d %H:%M", then)


def rfc3339(at: float) -> str:
    """`2026-11-29T04:40:22Z`, as Kubernetes writes instants; with milliseconds where it has a part of a second. Raises
    OverflowError, ValueError or OSError for what is no time of a calendar.
    """
    seconds, milliseconds = divmod(round(at * 1000), 1000)
    fraction = f".{milliseconds:03}" if milliseconds else ""
    return time.strftime(f"%Y-%m-%dT%H:%M:%S{fraction}Z", time.gmtime(seconds))


def exact(at: float | None, now: float) -> str:
    """The time as `wall` shows it, with the seconds."""
    if at is None:
        return ""
    return f"{wall(at, now)}:{time.strftime('%S', time.localtime(at))}"


def distance(at: float | None, now: float) -> str:
    """`in 12m`, `3h ago`, `now`; "" for no time."""
    if at is None:
        return ""
    if abs(at - now) < 1:
        return "now"
    return f"in {age(at - now)}" if at > now else f"{age(now - at)} ago"


def when(at: float | None, now: float) -> str:
    """`14:05 (in 12m)`; "" for no time."""
    return f"{wall(at, now)} ({distance(at, now)})" if at is not None else ""


def between(first: float | None, last: float | None, now: float) -> str:
    """`14:05 – 15:10`, the day of the second only where it is another; `?` for a last one that is not known; "" for none."""
    if first is None:
        return ""
    start = wall(first, now)
    if last is None:
        return f"{start} – ?"
    end = wall(last, now)
    if time.localtime(first)[:3] == time.localtime(last)[:3]:
        end = time.strftime("%H:%M", time.localtime(last))
    return start if end == start or start.endswith(f" {end}") else f"{start} – {end}"
