"""The orders of a ClusterQueue over time, as the windows of its QueuePolicy say. Pure functions on JSON."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from gangline.api.schedules import Span, Weekly, when, windows
from gangline.api.spec_fields import SpecError, a_list, a_text, an_object
from gangline.engine.model import Millis, OrderStep

#: windows of a policy
MOST_WINDOWS: Final = 16
#: orders are known from the beginning of a week for so many weeks
WEEKS: Final = 3
_WEEK: Final[Millis] = 7 * 86_400_000
#: windows of one schedule that are looked for at a time
_AT_ONCE: Final = 400
#: lists of windows whose steps are kept: those of one list are asked for by each of its queues
_KNOWN: Final = 256


class OrderWindow(NamedTuple):
    """Another order key in a window of time."""

    name: str
    when: Span | Weekly
    key: str


def known_from(now: Millis) -> Span:
    """The time over which the operator knows orders: the same all week, and at least 14 days ahead."""
    begin = now - now % _WEEK
    return Span(begin, begin + WEEKS * _WEEK)


def order_windows(found: Any, path: str) -> tuple[OrderWindow, ...]:
    """The windows at `path`. Raises SpecError, which names the field."""
    read = tuple(_window(each, f"{path}[{i}]") for i, each in enumerate(a_list(found, path, MOST_WINDOWS)))
    names = [each.name for each in read]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise SpecError(f"{path}[{i}].name", "is the name of another window, too")
    return read


def _window(found: Any, path: str) -> OrderWindow:
    section = an_object(found, path)
    window = when(an_object(section.get("window"), f"{path}.window"), f"{path}.window")
    return OrderWindow(a_text(section.get("name"), f"{path}.name"), window, a_text(section.get("key"), f"{path}.key"))


def order_steps(found: list[Any], path: str, key: str, known: Span) -> tuple[OrderStep, ...]:
    """The order keys from the beginning of a time to its end, where `key` is that outside of windows. Of windows that overlap the
    one that comes later in the list counts. Raises SpecError.
    """
    return _steps(orjson.dumps(found), path, key, known)


@lru_cache(maxsize=_KNOWN)
def _steps(raw: bytes, path: str, key: str, known: Span) -> tuple[OrderStep, ...]:
    spans = [(each, _all_windows(each.when, known)) for each in order_windows(orjson.loads(raw), path)]
    edges = {known.start} | {edge for _, found in spans for span in found for edge in span}
    steps: list[OrderStep] = []
    for at in sorted(edge for edge in edges if known.start <= edge < known.end):
        step = _step(spans, key, at)
        if not steps or (step.key, step.window) != (steps[-1].key, steps[-1].window):
            steps.append(step)
    return tuple(steps)


def _step(spans: Sequence[tuple[OrderWindow, Sequence[Span]]], key: str, at: Millis) -> OrderStep:
    for window, found in reversed(spans):
        if any(span.start <= at < span.end for span in found):
            return OrderStep(at, window.key, window.name)
    return OrderStep(at, key)


def _all_windows(when: Span | Weekly, known: Span) -> list[Span]:
    """The windows that are open at some time of these."""
    found: list[Span] = []
    after = known.start
    while more := [span for span in windows(when, after, _AT_ONCE) if span.start < known.end and span.end > after]:
        found += more
        after = more[-1].end
    return found
