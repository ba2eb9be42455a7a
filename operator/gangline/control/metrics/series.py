"""Counters and histograms that are quickly shown: a series keeps its text until it changes.

`prometheus_client` takes 5 µs for a line. A thousand queues have hundreds of thousands of lines, and most of them are the same in
two scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import inf, isnan
from typing import Final, TypeAlias

from gangline.control.metrics.kueue_table import HISTOGRAM, Metric

#: values of a series' labels, in the order of the family's labels
Values: TypeAlias = tuple[str, ...]

#: An object has at most so many series of a family: what a status says of reasons is written by others.
MOST_OF_OWNER: Final = 1_000


class MetricFamily:
    """The series of one counter or histogram, by the object that they belong to ("" = to none)."""

    def __init__(self, metric: Metric, custom: tuple[str, ...]) -> None:
        self.metric = metric
        self.labels = (*metric.labels, *custom)
        self._series: dict[str, dict[Values, Series]] = {}

    def add(self, owner: str, values: Values, amount: float = 1.0) -> None:
        """Count `amount`, or observe it. Once there are too many series of the owner, its series begin anew."""
        series = self._series.setdefault(owner, {})
        found = series.get(values)
        if found is None:
            if len(series) >= MOST_OF_OWNER:
                series.clear()
            labels = labelled(self.labels, values)
            found = Histogram(self.metric, labels) if self.metric.kind == HISTOGRAM else Counter(self.metric, labels)
            series[values] = found
        found.add(amount)

    def forget(self, owner: str) -> None:
        self._series.pop(owner, None)

    def owners(self) -> list[str]:
        return list(self._series)

    def texts(self, owner: str) -> list[bytes]:
        """The lines of each of the owner's series."""
        return [series.text() for series in self._series.get(owner, {}).values()]

    @property
    def head(self) -> bytes:
        return head(self.metric)


class Counter:
    __slots__ = ("_start", "_text", "_value")

    def __init__(self, metric: Metric, labels: str) -> None:
        self._start = f"{metric.name}{{{labels}}}"
        self._value = 0.0
        self._text = b""

    def add(self, amount: float) -> None:
        self._value += amount
        self._text = b""

    def text(self) -> bytes:
        if not self._text:
            self._text = f"{self._start} {number(self._value)}\n".encode()
        return self._text


class Histogram:
    __slots__ = ("_buckets", "_counts", "_labels", "_name", "_sum", "_text")

    def __init__(self, metric: Metric, labels: str) -> None:
        self._name, self._labels, self._buckets = metric.name, labels, metric.buckets
        self._counts = [0] * (len(metric.buckets) + 1)
        self._sum = 0.0
        self._text = b""

    def add(self, amount: float) -> None:
        """Observe a time in seconds. Clocks of two machines may make it negative: then it is 0."""
        amount = max(0.0, amount)
        self._counts[bisect_left(self._buckets, amount)] += 1
        self._sum += amount
        self._text = b""

    def text(self) -> bytes:
        if not self._text:
            start, below = f"{self._name}_bucket{{{self._labels},le=", 0
            lines: list[str] = []
            for bound, count in zip(_bounds(self._buckets), self._counts, strict=True):
                below += count
                lines.append(f"{start}{bound}{below}\n")
            lines.append(f"{self._name}_sum{{{self._labels}}} {number(self._sum)}\n")
            lines.append(f"{self._name}_count{{{self._labels}}} {below}\n")
            self._text = "".join(lines).encode()
        return self._text


@cache
def _bounds(buckets: tuple[float, ...]) -> tuple[str, ...]:
    """The end of the labels of each bucket."""
    return tuple(f'"{number(bound)}"}} ' for bound in (*buckets, inf))


Series: TypeAlias = Counter | Histogram


def head(metric: Metric) -> bytes:
    return f"# HELP {metric.name} {metric.text}\n# TYPE {metric.name} {metric.kind}\n".encode()


def labelled(names: tuple[str, ...], values: Values) -> str:
    """`a="x",b="y"`."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))


def escaped(value: str) -> str:
    """A label's value between its quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def number(value: float) -> str:
    """A number as Prometheus reads it, whole ones without a fraction."""
    if isinstance(value, int):
        return str(value)
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
