"""What answers are made of: the mirror, the engine and the forecasts of one process, the operator's or a command's own."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gangline.control.forecasting import simulation_process
from gangline.control.forecasting.by_flavor import slowest
from gangline.control.forecasting.rehearsals import Rehearsal, Rehearsed
from gangline.control.mirror.mirror import Mirror
from gangline.engine import Engine, Outlook, model
from gangline.forecast import Forecast

if TYPE_CHECKING:
    from gangline.control.forecasting.forecasting import Forecasting
    from gangline.control.forecasting.runtime_facts import Forecasts

#: seconds beyond those of its rehearsals that a process has for its start and the transfer of all facts
_OVERHEAD: Final = 10.0


class NoForecastsError(Exception):
    """Expected starts are not known; the text says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """`now` returns milliseconds since the epoch; `forecasts` is None where none are made."""

    mirror: Mirror
    engine: Engine
    forecasts: Forecasts | None
    now: Callable[[], int]

    def expected(self, key: str, admission: model.Admission | None) -> tuple[Forecast | None, str]:
        """The forecast of a workload's total runtime with this admission, and its flavor ("" if flavors are not compared)."""
        if self.forecasts is None:
            return None, ""
        by_flavor = self.forecasts.by_flavor(key)
        flavor = slowest(by_flavor, admission)
        return (by_flavor[flavor], flavor) if flavor else (self.forecasts.estimate(key), "")


class Foresight(Protocol):
    """Plays the engine forward, off the event loop. Both raise NoForecastsError."""

    async def outlook(self, workload: str = "") -> Outlook:
        """The expected starts; with a waiting `workload`, not from before its submission."""
        ...

    async def rehearse(self, rehearsals: Sequence[Rehearsal], seconds: float) -> list[Rehearsed]:
        """What follows if one more workload were submitted now: see `rehearsals.rehearse`."""
        ...


class OperatorForesight:
    """The operator's, in processes of low priority. `forecasting` is None where no forecasts are made."""

    def __init__(self, source: Source, forecasting: Forecasting | None) -> None:
        self._source = source
        self._forecasting = forecasting

    async def outlook(self, workload: str = "") -> Outlook:
        forecasting = self._wanted()
        await forecasting.settled()
        seen = await forecasting.expected.latest(workload)
        if seen is None:
            raise NoForecastsError("the simulation of expected starts failed; the operator's log says why")
        return seen

    async def rehearse(self, rehearsals: Sequence[Rehearsal], seconds: float) -> list[Rehearsed]:
        await self._wanted().settled()
        engine, now = self._source.engine, self._source.now()
        facts, settings = engine.facts(), engine.settings

        def work() -> list[Rehearsed]:
            asked = simulation_process.rehearsal_request(facts, settings, now, rehearsals, seconds)
            return simulation_process.in_process(asked, seconds + _OVERHEAD)

        try:
            return await asyncio.to_thread(work)
        except (OSError, subprocess.SubprocessError, pickle.PickleError, EOFError) as error:
            raise NoForecastsError(f"the simulation failed: {error}") from error

    def _wanted(self) -> Forecasting:
        if self._forecasting is None:
            raise NoForecastsError("this operator makes no forecasts: it runs without a history (--history)")
        self._forecasting.ask()
        return self._forecasting
