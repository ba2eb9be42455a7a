"""Plots in SVG for the report, as text, without a library or a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

#: distinguishable for colour-blind readers too (Okabe and Ito), in this order
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#b8a400")

Points = Sequence[tuple[float, float]]
Words = Callable[[float], str]


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from values to positions. `log` treats values below `low` as `low`."""

    low: float
    high: float
    log: bool = False
    words: Words = lambda value: f"{value:g}"
    ticks: tuple[float, ...] = ()

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0

    def marks(self) -> Sequence[float]:
        return self.ticks or _round_ticks(self.low, self.high)


def _round_ticks(low: float, high: float) -> list[float]:
    """Round numbers for the ticks of an axis, about five."""
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step)
    return [round(number * step, 10) for number in range(first, math.floor(high / step) + 1)]


class Plot:
    """One plot. Add marks, then take it as text."""

    LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 36

    def __init__(self, x: Axis, y: Axis, *, width: int = 760, height: int = 260, label: str = "") -> None:
        self._x, self._y = x, y
        self._width, self._height = width, height
        self._marks: list[str] = []
        self._label = label

    def at_x(self, value: float) -> float:
        return self.LEFT + self._x.share(value) * (self._width - self.LEFT - self.RIGHT)

    def at_y(self, value: float) -> float:
        return self._height - self.BOTTOM - self._y.share(value) * (self._height - self.TOP - self.BOTTOM)

    def line(self, points: Points, stroke: str, *, steps: bool = False, dashed: bool = False, title: str = "") -> None:
        if not points:
            return
        places = [(self.at_x(x), self.at_y(y)) for x, y in points]
        path = [f"M{places[0][0]:.1f},{places[0][1]:.1f}"]
        for x, y in places[1:]:
            path.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f},{y:.1f}")
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._marks.append(
            f'<path d="{"".join(path)}" fill="none" stroke="{stroke}" stroke-width="1.6"{dash}>{_title(title)}</path>'
        )

    def box(self, x0: float, x1: float, y0: float, y1: float, fill: str, *, title: str = "", stroke: str = "") -> None:
        left, right = self.at_x(x0), self.at_x(x1)
        top, bottom = self.at_y(max(y0, y1)), self.at_y(min(y0, y1))
        edge = f' stroke="{stroke}" stroke-width="1.4"' if stroke else ""
        self._marks.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(0.6, right - left):.1f}" height="{max(0.6, bottom - top):.1f}" '
            f'fill="{fill}"{edge}>{_title(title)}</rect>'
        )

    def dot(self, x: float, y: float, fill: str, title: str = "") -> None:
        self._marks.append(
            f'<circle cx="{self.at_x(x):.1f}" cy="{self.at_y(y):.1f}" r="4" fill="{fill}">{_title(title)}</circle>'
        )

    def tick(self, x: float, y0: float, y1: float, stroke: str, title: str = "") -> None:
        """An upright stroke."""
        place, top, bottom = self.at_x(x), self.at_y(max(y0, y1)), self.at_y(min(y0, y1))
        self._marks.append(
            f'<path d="M{place:.1f},{top:.1f}V{bottom:.1f}" stroke="{stroke}" stroke-width="1.6">{_title(title)}</path>'
        )

    def text(self) -> str:
        frame = [*self._across(), *self._up()]
        label = f' role="img" aria-label="{escape(self._label)}"' if self._label else ""
        return (
            f'<svg viewBox="0 0 {self._width} {self._height}"{label} xmlns="http://www.w3.org/2000/svg">'
            f"{''.join(frame)}{''.join(self._marks)}</svg>"
        )

    def _across(self) -> Iterable[str]:
        top, bottom = self.TOP, self._height - self.BOTTOM
        for value in self._x.marks():
            place = self.at_x(value)
            yield f'<path class="grid" d="M{place:.1f},{top}V{bottom}"/>'
            yield f'<text x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(self._x.words(value))}</text>'

    def _up(self) -> Iterable[str]:
        for value in self._y.marks():
            place = self.at_y(value)
            yield f'<path class="grid" d="M{self.LEFT},{place:.1f}H{self._width - self.RIGHT}"/>'
            yield (
                f'<text x="{self.LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{escape(self._y.words(value))}</text>'
            )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def legend(names: Sequence[tuple[str, str]]) -> str:
    """(name, colour) side by side."""
    items = (f'<span><i style="background:{fill}"></i>{escape(name)}</span>' for name, fill in names)
    return f'<p class="legend">{"".join(items)}</p>'


#: familiar spans, for logarithmic axes: (seconds, label)
SPANS: Final = (
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (6 * 3600.0, "6 h"),
    (86400.0, "1 d"),
    (3 * 86400.0, "3 d"),
    (7 * 86400.0, "7 d"),
    (30 * 86400.0, "30 d"),
)


def span_axis(longest: float) -> Axis:
    """A logarithmic axis of spans from a second to at least `longest` seconds."""
    ticks = [seconds for seconds, _ in SPANS if seconds <= max(longest, 60.0)]
    words = dict(SPANS)
    return Axis(1.0, max(longest, 60.0), log=True, words=lambda value: words[value], ticks=tuple(ticks))


def thinned(points: Points, most: int) -> Points:
    """The points of a step function, thinned to about `most`: the last one of each stretch."""
    if len(points) <= most:
        return points
    step = len(points) / most
    return [points[min(len(points) - 1, int((number + 1) * step) - 1)] for number in range(most)]
