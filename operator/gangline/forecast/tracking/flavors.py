"""Relative runtimes of the same work on different flavors.

`FlavorScale` compares flavors for all work alike, learned from classes that ran on several of them. `FlavorRuns` compares them
for one class: work that is fast on one flavor may gain nothing on another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.forecast.history.runs import KEYS, Key, Run

#: keys that identify the same work; the first key that a run has is its class here
_WORK: Final = ("name", "command", "image")
_MIN_RUNS: Final = 2  # of a class on each of two flavors
_PRIOR: Final = 5.0  # weight in runs of a ratio of 1: with few runs the ratio is shrunk towards 1
_SWEEPS: Final = 30


@dataclass(frozen=True, slots=True)
class FlavorScale:
    """Offsets of log runtime by flavor, 0 on average. A flavor without a comparison has no offset: its factor is 1."""

    offsets: Mapping[str, float] = field(default_factory=dict[str, float])

    def offset(self, flavor: str) -> float:
        return self.offsets.get(flavor, 0.0)


def learn(runs: Iterable[Run]) -> FlavorScale:
    """Fit the offsets that best explain the classes' differences between flavors: weighted least squares on mean logs."""
    cells = _cells(runs)
    weights: dict[str, float] = defaultdict(float)
    for by_flavor in cells:
        for flavor, (count, _) in by_flavor.items():
            weights[flavor] += count
    offsets = dict.fromkeys(weights, 0.0)
    for _ in range(_SWEEPS):
        offsets = _sweep(cells, offsets)
    if not offsets:
        return FlavorScale()
    center = sum(weights[f] * offsets[f] for f in offsets) / sum(weights.values())
    return FlavorScale({flavor: offset - center for flavor, offset in sorted(offsets.items())})


def _cells(runs: Iterable[Run]) -> list[dict[str, tuple[int, float]]]:
    """The flavors of each class that ran on at least two: flavor -> (runs, mean log seconds)."""
    sums: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.flavor and run.seconds is not None and (key := work_of(run)) is not None:
            sums[key][run.flavor].append(run.log_seconds)
    kept = (
        {flavor: (len(logs), sum(logs) / len(logs)) for flavor, logs in by.items() if len(logs) >= _MIN_RUNS}
        for by in sums.values()
    )
    return [cell for cell in kept if len(cell) > 1]


def work_of(run: Run) -> Key:
    """What makes runs the same work: name, command or image, and the number of accelerators; None if nothing is known."""
    key = next((k for name in _WORK if (k := KEYS[name](run)) is not None), None)
    return None if key is None else (key, run.gpus)


def _sweep(cells: list[dict[str, tuple[int, float]]], offsets: dict[str, float]) -> dict[str, float]:
    """One iteration: fit class levels given the offsets, then the offsets given the levels, shrunk towards 0."""
    total: dict[str, float] = defaultdict(float)
    weight: dict[str, float] = defaultdict(float)
    for by_flavor in cells:
        runs = sum(count for count, _ in by_flavor.values())
        level = sum(count * (mean - offsets[flavor]) for flavor, (count, mean) in by_flavor.items()) / runs
        for flavor, (count, mean) in by_flavor.items():
            total[flavor] += count * (mean - level)
            weight[flavor] += count
    return {flavor: total[flavor] / (weight[flavor] + _PRIOR) for flavor in offsets}


# --- one class --------------------------------------------------------------------------------------------------------


#: flavors that are compared for a class, and runs of it on each that count: of more, the last ones count most
MOST_FLAVORS: Final = 32
_MOST_RUNS: Final = 30


@dataclass(slots=True)
class FlavorRuns:
    """The finished runs of a class: their number and their mean log runtime on each flavor."""

    seen: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])

    def add(self, flavor: str, log_seconds: float) -> None:
        count, mean = self.seen.get(flavor, (0, 0.0))
        if count or len(self.seen) < MOST_FLAVORS:
            count = min(count + 1, _MOST_RUNS)
            self.seen[flavor] = count, mean + (log_seconds - mean) / count

    def offsets(self, flavors: Iterable[str], expected: Mapping[str, float]) -> dict[str, float]:
        """The offsets of log runtime on these flavors. With few runs they are as `expected`, which is 0 for flavors without an
        offset.
        """
        known = {flavor: seen for flavor, seen in self.seen.items() if seen[0] >= _MIN_RUNS}
        if len(known) < 2:
            return {flavor: expected.get(flavor, 0.0) for flavor in flavors}
        runs = sum(count for count, _ in known.values())
        level = sum(count * (mean - expected.get(flavor, 0.0)) for flavor, (count, mean) in known.items()) / runs
        found: dict[str, float] = {}
        for flavor in flavors:
            count, mean = known.get(flavor, (0, level))
            found[flavor] = (count * (mean - level) + _PRIOR * expected.get(flavor, 0.0)) / (count + _PRIOR)
        return found

    def mean(self, offsets: Mapping[str, float]) -> float:
        """The mean offset of the runs; 0 without any."""
        runs = sum(count for count, _ in self.seen.values())
        return sum(count * offsets.get(flavor, 0.0) for flavor, (count, _) in self.seen.items()) / max(1, runs)
