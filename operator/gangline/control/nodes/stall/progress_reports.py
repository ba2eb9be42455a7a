"""Progress reports of running jobs: heartbeats, steps, and the remaining time. Pure.

A run that counts steps is alive while they rise: a process that repeats "step 120" forever is stuck. A run that reports without
steps is alive while it reports. Each pod of a gang reports for itself; the gang's step is that of its fastest pod.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from gangline import bounded
from gangline.control.feed.pod import LONGEST_PROGRESS
from gangline.engine.model import Millis, RuntimeForecast

#: the longest report, in bytes, and the deepest, in levels
LONGEST: Final = LONGEST_PROGRESS
DEEPEST: Final = 4
#: phases in which no steps are made, and none expected
QUIET_PHASES: Final = frozenset({"startup", "evaluation", "checkpoint"})
#: how many paces (time per step between two reports) are remembered
PACES: Final = 64
#: pods of one gang whose steps are distinguished
MOST_PODS: Final = 4096
#: the largest metric of either sign, and the characters of the longest one in an annotation
LARGEST_METRIC: Final = 1e15
LONGEST_NUMBER: Final = 32
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,16}(\.[0-9]{0,16})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
#: the fewest paces that make an estimate
FEWEST_PACES: Final = 5
#: levels of the estimate that follows from the pace
LEVELS: Final = (0.1, 0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Beat:
    """One report. `at` is when it was received."""

    at: Millis
    step: int | None = None
    total: int | None = None
    phase: str = ""
    pod: str = ""
    #: any number that shows how far it has come, such as the loss
    metric: float | None = None


class BadReportError(ValueError):
    """A report that cannot be read; the message names the wrong field."""


def read(body: Any, at: Millis) -> Beat:
    """Read a report as `gangline.progress` posts it. Raises BadReportError."""
    if not isinstance(body, dict):
        raise BadReportError("the report must be a JSON object")
    step, total = _count(body, "step"), _count(body, "total")
    return Beat(at, step, total, _word(body, "phase"), _word(body, "pod"), _number(body, "metric"))


def load(body: bytes | str) -> Any:
    """Parse the JSON of a report. Raises BadReportError."""
    try:
        return bounded.load_json(body, most_bytes=LONGEST, most_depth=DEEPEST)
    except bounded.BadJsonError as error:
        raise BadReportError(str(error)) from None


@bounded.parser(
    LONGEST,
    refuse=lambda text: BadReportError(f"longer than {LONGEST} characters"),
    worst=("step=1 ", '{"a":', "=", "step=9"),
)
def read_annotation(text: str, at: Millis) -> Beat:
    """Read `step=120 total=5000 phase=evaluation`, JSON, or any other text, which is only a heartbeat. Raises BadReportError."""
    if text.lstrip().startswith("{"):
        return read(load(text), at)
    pairs = dict(part.split("=", 1) for part in text.replace(",", " ").split() if "=" in part)
    return read({name: _decimal(value) if name == "metric" else _written(value) for name, value in pairs.items()}, at)


def _written(value: str) -> int | str:
    """The number, or the text if it is not a number or has too many digits."""
    number = bounded.whole(value)
    return value if number is None else number


def _decimal(value: str) -> float | str:
    """The number, or the text if it is none."""
    return float(value) if len(value) <= LONGEST_NUMBER and _DECIMAL.fullmatch(value) else value


def _number(body: dict[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_METRIC:
        raise BadReportError(f"{name}: must be a number from -1e15 to 1e15, is {bounded.shown(value, 40)}")
    return float(value)


def _count(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise BadReportError(f"{name}: must be a whole number from 0, is {bounded.shown(value, 40)}")
    return value


def _word(body: dict[str, Any], name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str) or len(value) > 253:
        raise BadReportError(f"{name}: must be a short text")
    return value


@dataclass(slots=True)
class Progress:
    """The state of one run from its reports."""

    reported: Millis
    #: when its step last rose; for a run without steps, when it last reported
    moved: Millis
    step: int | None = None
    total: int | None = None
    phase: str = ""
    #: (milliseconds, steps) between two reports
    _paces: deque[tuple[Millis, int]] = field(default_factory=lambda: deque(maxlen=PACES))
    _of_pod: dict[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def begin(cls, beat: Beat) -> Progress:
        progress = cls(beat.at, beat.at)
        progress.take(beat)
        return progress

    def take(self, beat: Beat) -> None:
        """Process a report."""
        self.reported = max(self.reported, beat.at)
        self.phase = beat.phase
        if beat.total is not None:
            self.total = beat.total
        if beat.step is None:
            if self.step is None or beat.phase in QUIET_PHASES:
                self.moved = self.reported
            return
        before = self._of_pod.get(beat.pod)
        if len(self._of_pod) < MOST_PODS or before is not None:
            self._of_pod[beat.pod] = beat.step
        if before is not None and beat.step < before:  # it restarted, from a checkpoint or from the beginning
            self._of_pod = {beat.pod: beat.step}
            self.step = None
        if self.step is not None and beat.step <= self.step:
            return
        if self.step is not None and beat.at > self.moved:
            self._paces.append((beat.at - self.moved, beat.step - self.step))
        self.step, self.moved = beat.step, max(self.moved, beat.at)

    @property
    def median_step(self) -> float | None:
        """The median time of a step, in milliseconds; None before there is a pace."""
        return median(time / steps for time, steps in self._paces) if self._paces else None

    @property
    def quiet(self) -> bool:
        """Whether the run is in a phase without steps."""
        return self.phase in QUIET_PHASES

    def silence(self, now: Millis) -> Millis:
        """The time for which the run's step has not risen; in a quiet phase, for which it has not reported."""
        return max(0, now - (self.reported if self.quiet else self.moved))

    def forecast(self, workload: str, started: Millis) -> RuntimeForecast | None:
        """The whole runtime from the run's own pace; None while there are too few reports.

        The remaining steps are expected to take as long as those before, on average; the uncertainty is half the spread of the
        paces, but at least a tenth.
        """
        if self.step is None or self.total is None or self.total < self.step or len(self._paces) < FEWEST_PACES:
            return None
        left, lasted = self.total - self.step, self.moved - started
        paces = sorted(time / steps for time, steps in self._paces)
        mean = sum(time for time, _ in self._paces) / sum(steps for _, steps in self._paces)
        points: list[tuple[float, Millis]] = []
        for level in LEVELS:
            seen = mean + (_quantile(paces, level) - _quantile(paces, 0.5)) / 2
            least = mean * (1 + (level - 0.5) / 4)
            pace = min(seen, least) if level < 0.5 else max(seen, least)
            points.append((level, max(1, lasted + math.ceil(left * max(0.0, pace)))))
        return RuntimeForecast(workload, tuple(points), "Progress", len(self._paces))


def _quantile(ordered: list[float], level: float) -> float:
    return ordered[min(len(ordered) - 1, int(level * len(ordered)))]
