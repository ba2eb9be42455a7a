"""What windows of Reservations cost: GPUs that were busy before and in them, who ran in them, and the work that was lost.

All figures follow from the runs of the jobs alone. Hours are counted back from the moment at which a window stops jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gangline.engine import RESERVED_FOR_OTHERS
from gangline.engine.model import Millis
from gangline.replay.replayed import PlayedWindow, ReplayedOutcome, ReplayResult

Floats = NDArray[np.float64]

#: how far before a window use is looked at
BEFORE: Final = 24
_HOUR: Final = 3_600_000


def of(result: ReplayResult) -> dict[str, Any]:
    """All figures of one policy about windows; empty without any. Windows that begin after the last submission say nothing."""
    last = max((outcome.job.submit for outcome in result.outcomes), default=0)
    first = min((outcome.job.submit for outcome in result.outcomes), default=0)
    windows = [window for window in result.windows if first <= window.stops <= last]
    if not windows:
        return {}
    runs = _Runs(result.outcomes)
    each = [_of_window(window, runs, result) for window in windows]
    inside = [_intruders(window, result.outcomes) for window in windows]
    stopped = [
        (outcome, stint)
        for outcome in result.outcomes
        for stint in outcome.stints
        if stint.evicted == RESERVED_FOR_OTHERS and stint.end <= windows[-1].end
    ]
    return {
        "count": len(windows),
        "gpu_hours_of_others_inside": sum(inside),
        "stopped": len(stopped),
        "gpu_hours_lost": sum(outcome.job.gpus * stint.lost for outcome, stint in stopped) / _HOUR,
        "busy_by_hour_before": [_mean(row["busy_by_hour_before"][hour] for row in each) for hour in range(BEFORE)],
        "each": each,
    }


def _of_window(window: PlayedWindow, runs: _Runs, result: ReplayResult) -> dict[str, Any]:
    stops = window.stops
    return {
        "reservation": window.reservation,
        "stops": stops / 1000,
        "end": window.end / 1000,
        "nodes": len(window.nodes),
        #: GPUs busy in the whole cluster, in the first hour before it, the second, and so on; and in the window
        "busy_by_hour_before": [runs.busy(stops - (hour + 1) * _HOUR, stops - hour * _HOUR) for hour in range(BEFORE)],
        "busy_inside": runs.busy(stops, window.end),
        "fits_until": fits_until(window, result.outcomes) / 1000,
    }


class _Runs:
    """GPUs that are busy over time."""

    def __init__(self, outcomes: Iterable[ReplayedOutcome]) -> None:
        steps = [
            step
            for outcome in outcomes
            for stint in outcome.stints
            for step in ((stint.start, outcome.job.gpus), (stint.end, -outcome.job.gpus))
        ]
        steps.sort()
        self._at: Floats = np.array([at for at, _ in steps], dtype=np.float64)
        held = np.cumsum([gpus for _, gpus in steps], dtype=np.float64)
        self._total = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(self._at))]) if len(steps) else np.zeros(0)

    def busy(self, since: Millis, until: Millis) -> float:
        """The mean of the GPUs that are busy in a time."""
        if until <= since or not len(self._at):
            return 0.0
        before, after = np.interp([since, until], self._at, self._total).tolist()
        return (after - before) / (until - since)


def _intruders(window: PlayedWindow, outcomes: Iterable[ReplayedOutcome]) -> float:
    """GPU hours that others had on the nodes of a window between its beginning and its end."""
    total = 0
    for outcome in outcomes:
        if outcome.job.number in window.guests:
            continue
        for stint in outcome.stints:
            inside = min(stint.end, window.end) - max(stint.start, window.stops)
            if inside > 0:
                total += inside * sum(gpus for node, gpus in stint.places if node in window.nodes)
    return total / _HOUR


def fits_until(window: PlayedWindow, outcomes: Iterable[ReplayedOutcome]) -> Millis:
    """The last moment before a window at which a job waited that would have ended by then, had it started; a day before at the
    earliest.
    """
    latest = window.stops - BEFORE * _HOUR
    for outcome in outcomes:
        waits, left = outcome.job.submit, outcome.job.duration
        for stint in outcome.stints:
            fits = min(stint.start, window.stops - left)
            if fits >= waits and stint.start > waits:
                latest = max(latest, fits)
            waits, left = stint.end, left - (stint.end - stint.start) + stint.lost
        if outcome.finish is None and not outcome.impossible and window.stops - left >= waits:
            latest = max(latest, window.stops - left)  # it waited to the end
    return latest


# --- side by side -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowCost:
    """What windows cost under one policy, against the same policy without windows and with windows that nobody knew of."""

    policy: str
    #: GPUs busy before windows, as a share of those without: in the whole day, and as long as any waiting job would have fitted
    use_in_the_day_before: float | None
    use_while_any_fits: float | None
    gpu_hours_lost: float
    #: of those that a drain at the beginning of the windows loses
    lost_share_of_drain: float | None
    stopped: int
    gpu_hours_of_others_inside: float


def costs(results: Mapping[str, ReplayResult], measures: Mapping[str, Mapping[str, Any]]) -> list[WindowCost]:
    """The costs of every policy with windows that was also played without them."""
    found: list[WindowCost] = []
    for name, result in results.items():
        mine, drain = measures[name].get("windows"), (measures.get(f"{name}-drain") or {}).get("windows")
        base = results.get(f"{name}-without")
        if not mine or base is None:
            continue
        found.append(
            WindowCost(
                policy=name,
                use_in_the_day_before=_use(result, base, mine["each"], whole=True),
                use_while_any_fits=_use(result, base, mine["each"], whole=False),
                gpu_hours_lost=mine["gpu_hours_lost"],
                lost_share_of_drain=mine["gpu_hours_lost"] / drain["gpu_hours_lost"]
                if drain and drain["gpu_hours_lost"]
                else None,
                stopped=mine["stopped"],
                gpu_hours_of_others_inside=mine["gpu_hours_of_others_inside"],
            )
        )
    return found


def _use(result: ReplayResult, base: ReplayResult, rows: Sequence[Mapping[str, Any]], *, whole: bool) -> float | None:
    """GPU hours before all windows, over those of another replay in the same times."""
    with_windows, without = _Runs(result.outcomes), _Runs(base.outcomes)
    mine = theirs = 0.0
    for row in rows:
        stops = round(row["stops"] * 1000)
        since, until = stops - BEFORE * _HOUR, stops if whole else round(row["fits_until"] * 1000)
        mine += with_windows.busy(since, until) * (until - since)
        theirs += without.busy(since, until) * (until - since)
    return mine / theirs if theirs else None


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)
