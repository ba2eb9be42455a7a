"""How long gangs run, by the newest forecast and their limit: on any flavor, or on those that they hold or would be given.

What is known of a run is a forecast whose quantiles hold wherever it runs, unless it says otherwise `by_flavor`. Of a gang that
waits it is not known where it will run: orders go by the quantiles. As soon as flavors are assigned, be it for a try, those of
its flavors count; of several the slowest, since a gang works at the pace of its slowest pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from gangline.engine.model import Admission, Millis, RuntimeForecast
from gangline.engine.model.runtime import NEVER, Runtime
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.accelerators import is_accelerator

#: Flavors that tell how fast a gang runs, sorted.
Flavors: TypeAlias = tuple[str, ...]

#: It is not known, or does not matter, where it runs.
ANYWHERE: Final[Flavors] = ()


class Estimates:
    """`forecasts` by workload; what is computed of one is kept until another comes."""

    def __init__(self, forecasts: Mapping[str, RuntimeForecast]) -> None:
        self._forecasts = forecasts
        self._known: dict[str, tuple[RuntimeForecast | None, Millis | None, dict[Flavors, Runtime | None]]] = {}

    def of(self, gang: WorkloadState, on: Flavors | None = None) -> Runtime | None:
        """On these flavors; by default on those that it holds. None = nothing is known of it: it may run for ever."""
        forecast, limit = self._forecasts.get(gang.key), _limit(gang)
        if forecast is None or not forecast.by_flavor:
            on = ANYWHERE
        elif on is None:
            on = flavors_of(gang.admission)
        known = self._known.get(gang.key)
        if known is None or known[0] is not forecast or known[1] != limit:
            known = self._known[gang.key] = forecast, limit, {}
        runtimes = known[2]
        if on not in runtimes:
            runtimes[on] = Runtime.of(forecast, limit, on)
        return runtimes[on]

    def length(self, gang: WorkloadState, level: float, on: Flavors | None = None) -> Millis:
        """From its start to its end, with this chance; NEVER if nothing is known."""
        runtime = self.of(gang, on)
        return NEVER if runtime is None else runtime.quantile(level)

    def index(self, gang: WorkloadState, on: Flavors | None = None) -> float:
        """Its Gittins index (`Runtime.index`); NEVER if nothing is known."""
        runtime = self.of(gang, on)
        return NEVER if runtime is None else runtime.index()

    def varies(self, gang: WorkloadState) -> bool:
        """It is known to take longer on some flavors than on others."""
        forecast = self._forecasts.get(gang.key)
        return forecast is not None and bool(forecast.by_flavor)

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


def _limit(gang: WorkloadState) -> Millis | None:
    """What is left of its maximum execution time."""
    left = gang.workload.execution_left
    return None if left is None else max(0, left)


def flavors_of(admission: Admission | None) -> Flavors:
    """Those that tell how fast a gang runs that was admitted like this; none if it was not."""
    return ANYWHERE if admission is None else working_flavors(pod_set.flavors for pod_set in admission.pod_sets)


def working_flavors(pod_sets: Iterable[Mapping[str, str]]) -> Flavors:
    """Of what each pod set is given (resource -> flavor), the flavors of accelerators; all of them where it has none."""
    chosen = [pair for flavors in pod_sets for pair in flavors.items()]
    fast = {flavor for resource, flavor in chosen if is_accelerator(resource)}
    return tuple(sorted(fast or {flavor for _, flavor in chosen}))
