"""Decides whether the model is used: compares its errors with those of the last-two baseline over the last week's runs.

Of each namespace only so many runs an hour count, so that the runs of one do not decide for all whether the model is used.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

WINDOW: Final = 7 * 86400.0  # seconds
MIN_RUNS: Final = 50  # finished runs below which there is no verdict
_MINUTE: Final = 60.0  # seconds; errors are summed per minute of the finish
_HOUR: Final = 3600.0  # seconds
#: runs of one namespace that count in an hour
MOST_OF_NAMESPACE: Final = 20


@dataclass(frozen=True, slots=True)
class Validation:
    """Errors of the model on the held-out runs, the last ones before its training, in log seconds."""

    runs: int
    first: float  #: submission of the first run, Unix seconds
    last: float
    error: float  #: mean absolute log error of the median
    last_two: float  #: mean absolute log error of the last-two estimate on the same runs

    @property
    def worse(self) -> bool:
        return self.error > self.last_two


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """Whether the model is used. Errors are mean absolute errors of log seconds over the same `runs` runs; NaN without any."""

    trusted: bool
    error: float
    last_two: float
    runs: int
    reason: str  #: one sentence for people


class _Errors(NamedTuple):
    """Sums of absolute errors of log seconds over runs that finished in the same minute (or hour, from an earlier process)."""

    at: float
    runs: int
    model: float
    last_two: float

    def plus(self, more: _Errors) -> _Errors:
        return _Errors(self.at, self.runs + more.runs, self.model + more.model, self.last_two + more.last_two)


class ModelGuard:
    """Errors of model and baseline for the runs that finished in the last week, under any model."""

    def __init__(self) -> None:
        self._errors: deque[_Errors] = deque()
        self._runs = 0
        self._model = self._last_two = 0.0
        self._validation: Validation | None = None
        self._since = math.inf
        self._hour = -math.inf  # the present one, and the runs of each namespace that counted in it
        self._counted: dict[str, int] = {}

    def use(self, validation: Validation | None, since: float) -> None:
        """Switch to a model trained at `since`. A model that failed its validation does not inherit its predecessor's errors."""
        if self._validation is None or validation is None or validation.worse:
            self.__init__()
            self._since = since
        self._validation = validation

    def finished(self, at: float, target: float, model: float, last_two: float, namespace: str = "") -> None:
        """A run ended; `target`, `model` and `last_two` are log seconds. A run without one of the forecasts (NaN) is ignored.

        Runs without a namespace are those of traces; all of them count.
        """
        if math.isnan(model) or math.isnan(last_two) or not self._counts(at // _HOUR, namespace):
            return
        self._add(_Errors(at // _MINUTE * _MINUTE, 1, abs(model - target), abs(last_two - target)))

    def _counts(self, hour: float, namespace: str) -> bool:
        if not namespace:
            return True
        if hour > self._hour:
            self._hour, self._counted = hour, {}
        counted = self._counted[namespace] = self._counted.get(namespace, 0) + 1
        return counted <= MOST_OF_NAMESPACE

    def _add(self, errors: _Errors) -> None:
        last = self._errors[-1] if self._errors else None
        if last is not None and last.at == errors.at:
            self._errors[-1] = last.plus(errors)
        else:
            self._errors.append(errors)
        self._runs += errors.runs
        self._model += errors.model
        self._last_two += errors.last_two

    def _drop(self) -> None:
        gone = self._errors.popleft()
        self._runs -= gone.runs
        self._model -= gone.model
        self._last_two -= gone.last_two

    def rows(self) -> list[list[float]]:
        """The errors per hour, for a later process: [Unix seconds, runs, model, last two]."""
        hours: dict[float, _Errors] = {}
        for errors in self._errors:
            hour = errors.at // _HOUR * _HOUR
            hours[hour] = hours.get(hour, _Errors(hour, 0, 0.0, 0.0)).plus(errors)
        return [list(row) for row in hours.values()]

    def recall(self, rows: Iterable[Iterable[float]]) -> None:
        """Replace the errors by the rows of an earlier process. Raises TypeError or ValueError."""
        found = [_Errors(at, int(runs), model, last_two) for at, runs, model, last_two in rows]
        self._errors.clear()
        self._runs, self._model, self._last_two = 0, 0.0, 0.0
        for errors in found:
            self._add(errors)

    def verdict(self, now: float) -> ModelVerdict:
        """Whether to use the model: by the last week's runs, during its first week also by its validation."""
        while self._errors and self._errors[0].at < now - WINDOW:
            self._drop()
        runs, model, last_two, which = self._runs, self._model, self._last_two, "of the last week"
        validation = self._validation
        if validation is not None and (now < self._since + WINDOW or runs < MIN_RUNS):
            runs += validation.runs
            model += validation.error * validation.runs
            last_two += validation.last_two * validation.runs
            which = "of the last week and its validation"
        if runs < MIN_RUNS:
            return ModelVerdict(
                True, math.nan, math.nan, runs, "the model is in use; too few runs yet for a comparison"
            )
        return _judge(model / runs, last_two / runs, runs, which)


def _judge(error: float, last_two: float, runs: int, which: str) -> ModelVerdict:
    trusted = error <= last_two
    comparison = (
        f"log error {error:.2f} against {last_two:.2f} of the mean of the last two runtimes, over {runs} runs {which}"
    )
    state = "the model is in use" if trusted else "the model is not used: it is worse than the baseline"
    return ModelVerdict(trusted, error, last_two, runs, f"{state} ({comparison})")
