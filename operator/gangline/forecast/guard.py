"""Is the model worth its while? It is compared, run by run, with the mean of the last two runtimes, over the last week."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gangline.forecast.model import Validation

WINDOW: Final = 7 * 86400.0  # seconds
MIN_RUNS: Final = 50  # finished runs below which there is no verdict
_MAX_RUNS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Errors are mean absolute errors of log seconds, over the same `runs` finished runs; NaN where there are none."""

    trusted: bool
    error: float
    last_two: float
    runs: int
    reason: str  #: one sentence for people


class Guard:
    """Errors of model and baseline of the runs that finished in the last week, whichever model was in use."""

    def __init__(self) -> None:
        self._errors: deque[tuple[float, float, float]] = deque(maxlen=_MAX_RUNS)
        self._model = self._last_two = 0.0
        self._validation: Validation | None = None
        self._since = math.inf

    def use(self, validation: Validation | None, since: float) -> None:
        """A model that was trained at `since` came into use. One that was bad on unseen runs is not excused by its forerunner."""
        if self._validation is None or validation is None or validation.worse:
            self.__init__()
            self._since = since
        self._validation = validation

    def finished(self, at: float, target: float, model: float, last_two: float) -> None:
        """A run ended; all three are log seconds. Where one forecast was missing (NaN), it is not compared."""
        if math.isnan(model) or math.isnan(last_two):
            return
        if len(self._errors) == _MAX_RUNS:
            self._drop()
        entry = (at, abs(model - target), abs(last_two - target))
        self._errors.append(entry)
        self._model += entry[1]
        self._last_two += entry[2]

    def _drop(self) -> None:
        _, model, last_two = self._errors.popleft()
        self._model -= model
        self._last_two -= last_two

    def verdict(self, now: float) -> Verdict:
        """Whether to trust the model: by the last week's runs, and during its first week by its validation as well."""
        while self._errors and self._errors[0][0] < now - WINDOW:
            self._drop()
        runs, model, last_two, which = len(self._errors), self._model, self._last_two, "of the last week"
        validation = self._validation
        if validation is not None and (now < self._since + WINDOW or runs < MIN_RUNS):
            runs += validation.runs
            model += validation.error * validation.runs
            last_two += validation.last_two * validation.runs
            which = "of the last week and those that its training had not seen"
        if runs < MIN_RUNS:
            return Verdict(True, math.nan, math.nan, runs, "the model is in use; too few runs yet to compare it with")
        return _judge(model / runs, last_two / runs, runs, which)


def _judge(error: float, last_two: float, runs: int, which: str) -> Verdict:
    trusted = error <= last_two
    told = (
        f"log error {error:.2f} against {last_two:.2f} of the mean of the last two runtimes, over {runs} runs {which}"
    )
    state = "the model is in use" if trusted else "the model has switched itself off: it is worse than the baseline"
    return Verdict(trusted, error, last_two, runs, f"{state} ({told})")
