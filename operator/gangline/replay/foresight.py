"""What is thought of runtimes during a replay: the forecaster of the product, or a stand-in for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gangline.engine.model import Millis, RuntimeForecast
from gangline.replay.model import Job


class Foresight(Protocol):
    """Hears of everything that happens, in the order of time; never of what is still to come."""

    def submitted(self, job: Job, now: Millis) -> None: ...

    def started(self, job: Job, now: Millis) -> None: ...

    def stopped(self, job: Job, saved: Millis, now: Millis) -> None:
        """Evicted: of its work, `saved` need not be done again."""
        ...

    def finished(self, job: Job, now: Millis) -> None: ...

    def news(self, now: Millis, waiting: bool) -> Iterable[RuntimeForecast]:
        """Estimates that are new or have changed. `waiting` says that somebody waits: nobody needs one otherwise."""
        ...


class Blind:
    """Nothing is forecast."""

    def submitted(self, job: Job, now: Millis) -> None: ...

    def started(self, job: Job, now: Millis) -> None: ...

    def stopped(self, job: Job, saved: Millis, now: Millis) -> None: ...

    def finished(self, job: Job, now: Millis) -> None: ...

    def news(self, now: Millis, waiting: bool) -> Iterable[RuntimeForecast]:
        return ()
