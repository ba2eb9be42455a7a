"""The source of all answers: the mirror, the engine and the forecasts of one process, the operator's or a command's own."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from gangline.api import names
from gangline.control.audit.audit_reader import AuditReader
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex
from gangline.control.forecasting import simulation_process
from gangline.control.forecasting.promises import Ledger
from gangline.control.forecasting.rehearsals import Move, PreemptionOutlook, Rehearsal, Rehearsals
from gangline.control.forecasting.run_facts import slowest
from gangline.control.nodes.cards.card_inventory import CardInventory
from gangline.control.writes.events import Warned
from gangline.engine import Engine, Outlook, model
from gangline.forecast.quantiles import Forecast

if TYPE_CHECKING:
    from gangline.control.forecasting.forecasting import Forecasting
    from gangline.control.forecasting.runtime_facts import Forecasts
    from gangline.control.nodes.stall.stall_watch import PodTelemetry
    from gangline.control.queues.budgets import AccountUse
    from gangline.forecast.history.attempts import Labels
    from gangline.forecast.history.runs import Run


class BudgetsInForce(Protocol):
    """The budgets of GPU-hours."""

    def of(
        self, cluster_queue: str, namespace: str, local_queue: str, user: str, labels: Labels = ()
    ) -> Sequence[AccountUse]:
        """What is used of the budgets from which such a job would take."""
        ...

    def job_label_keys(self) -> Sequence[str]:
        """The keys of the labels of jobs that budgets name."""
        ...


#: seconds beyond those of its rehearsals that a process has for its start and the transfer of all facts
_OVERHEAD: Final = 10.0
#: seconds that one round of decisions may take
_ROUND: Final = 20.0


class NoForecastsError(Exception):
    """Expected starts are not known; the text says why."""


class GpuUse(Protocol):
    """What telemetry measures of the GPUs of pods."""

    async def refresh(self) -> None:
        """Look for new measurements."""
        ...

    def of_pod(self, key: str) -> PodTelemetry | None:
        """What is measured of a pod; None where nothing is."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """The state of one process from which answers are made. `now` returns milliseconds since the epoch; `forecasts` is None where
    none are made.
    """

    mirror: Mirror
    engine: Engine
    forecasts: Forecasts | None
    now: Callable[[], int]
    #: None where pods are not known
    pods: PodIndex | None = None
    #: None where cards are not known
    cards: CardInventory | None = None
    #: uid of a job, Workload or pod -> the warnings about it of the last minutes, the newest first
    warnings: Callable[[], Mapping[str, Sequence[Warned]]] = dict
    #: None where no decisions are recorded
    record: AuditReader | None = None
    #: None where nothing measures GPUs
    gpu_use: GpuUse | None = None
    #: None where nobody counts what is used of budgets
    budgets: BudgetsInForce | None = None

    def expected(self, key: str, admission: model.Admission | None) -> tuple[Forecast | None, str]:
        """The forecast of a workload's total runtime with this admission, and its flavor ("" if flavors are not compared)."""
        if self.forecasts is None:
            return None, ""
        by_flavor = self.forecasts.by_flavor(key)
        flavor = slowest(by_flavor, admission)
        return (by_flavor[flavor], flavor) if flavor else (self.forecasts.estimate(key), "")


class EngineOutlooks(Protocol):
    """Plays the engine forward, off the event loop. Both raise NoForecastsError."""

    @property
    def ledger(self) -> Ledger | None:
        """The record of promised starts; None where none is kept."""
        ...

    async def outlook(self, workload: str = "") -> Outlook:
        """The expected starts; with a waiting `workload`, not from before its submission."""
        ...

    async def rehearse(self, rehearsals: Sequence[Rehearsal], seconds: float, best: int = 0) -> Rehearsals:
        """Plays what follows if one more workload were submitted now: see `rehearsals.rehearse`."""
        ...

    async def preemption(self, workload: str) -> PreemptionOutlook:
        """The workloads that a waiting workload would preempt now: see `preemptions.preemption`."""
        ...

    async def evacuation(self, node: str) -> tuple[Move, ...]:
        """The gangs that would leave a node, were it vacated now: see `evacuations.evacuation`."""
        ...

    async def past(self, namespace: str, since: float, most: int) -> list[Run]:
        """Runs of a namespace ("" = of all) that ended at or after `since`, the last ones; none where no history is kept."""
        ...


class OperatorForesight:
    """The operator's foresight, in processes of low priority. `forecasting` is None where no forecasts are made."""

    def __init__(self, source: Source, forecasting: Forecasting | None) -> None:
        self._source = source
        self._forecasting = forecasting

    @property
    def ledger(self) -> Ledger | None:
        return self._forecasting.expected.ledger if self._forecasting is not None else None

    async def outlook(self, workload: str = "") -> Outlook:
        forecasting = self._wanted()
        await forecasting.settled()
        seen = await forecasting.expected.latest(workload)
        if seen is None:
            raise NoForecastsError("the simulation of expected starts failed; the operator's log says why")
        return seen

    async def rehearse(self, rehearsals: Sequence[Rehearsal], seconds: float, best: int = 0) -> Rehearsals:
        forecasting = self._wanted()
        await forecasting.settled()
        engine, now = self._source.engine, self._source.now()
        facts, settings = engine.facts(), engine.settings
        found: Rehearsals = await _simulated(
            lambda: simulation_process.rehearsal_request(facts, settings, now, rehearsals, seconds, best),
            seconds + _OVERHEAD,
        )
        moved = forecasting.expected.ledger.moved
        outcomes = [replace(each, outlook=moved(each.outlook)) if each is not None else None for each in found.outcomes]
        return found._replace(outcomes=outcomes)

    async def preemption(self, workload: str) -> PreemptionOutlook:
        """Works without forecasts, too: a round of decisions needs none."""
        engine, now = self._source.engine, self._source.now()
        facts, settings = engine.facts(), engine.settings
        return await _simulated(
            lambda: simulation_process.preemption_request(facts, settings, now, workload), _ROUND + _OVERHEAD
        )

    async def evacuation(self, node: str) -> tuple[Move, ...]:
        """Works without forecasts, too: a round of decisions needs none."""
        engine, now = self._source.engine, self._source.now()
        facts, settings = engine.facts(), engine.settings
        return await _simulated(
            lambda: simulation_process.evacuation_request(facts, settings, now, node, names.VACATE), _ROUND + _OVERHEAD
        )

    async def past(self, namespace: str, since: float, most: int) -> list[Run]:
        return await self._forecasting.history.ended(namespace, since, most) if self._forecasting is not None else []

    def _wanted(self) -> Forecasting:
        if self._forecasting is None:
            raise NoForecastsError("this operator makes no forecasts: it runs without a history (--history)")
        self._forecasting.ask()
        return self._forecasting


async def _simulated(request: Callable[[], bytes], patience: float) -> Any:
    """The answer of a process of low priority. Raises NoForecastsError."""
    try:
        return await asyncio.to_thread(lambda: simulation_process.in_process(request(), patience))
    except (OSError, subprocess.SubprocessError, pickle.PickleError, EOFError) as error:
        raise NoForecastsError(f"the simulation failed: {error}") from error
