"""Estimated runtimes of gangs, by the newest forecast and the time limit: on any flavor, or on the flavors held or assigned.

A forecast's quantiles hold on every flavor unless `by_flavor` says otherwise. Where a waiting gang will run is not known:
orders use the plain quantiles. Once flavors are assigned, even in a trial, the quantiles of these flavors count; of
several the slowest, since a gang runs at the pace of its slowest pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from gangline.engine.model import Admission, Millis, RuntimeForecast
from gangline.engine.model.runtime import NEVER, Runtime
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.accelerators import is_accelerator

#: Flavors that determine a gang's pace, sorted.
Flavors: TypeAlias = tuple[str, ...]

#: The flavors are not known, or do not matter.
ANYWHERE: Final[Flavors] = ()


class Estimates:
    """Runtimes of gangs. `forecasts` by workload; what is computed from one is kept until it is replaced."""

    def __init__(self, forecasts: Mapping[str, RuntimeForecast]) -> None:
        self._forecasts = forecasts
        self._known: dict[str, tuple[RuntimeForecast | None, Millis | None, dict[Flavors, Runtime | None]]] = {}

    def of(self, gang: WorkloadState, on: Flavors | None = None) -> Runtime | None:
        """The runtime on these flavors; by default on those that the gang holds. None = nothing is known: it may run for
        ever.
        """
        forecast, limit = self._forecasts.get(gang.key), _limit(gang)
        if forecast is None or not forecast.by_flavor:
            on = ANYWHERE
        elif on is None:
            on = flavors_of(gang.quota.admission)
        known = self._known.get(gang.key)
        if known is None or known[0] is not forecast or known[1] != limit:
            known = self._known[gang.key] = forecast, limit, {}
        runtimes = known[2]
        if on not in runtimes:
            runtimes[on] = Runtime.of(forecast, limit, on)
        return runtimes[on]

    def length(self, gang: WorkloadState, level: float, on: Flavors | None = None) -> Millis:
        """The runtime from start to end at this quantile; NEVER if nothing is known."""
        runtime = self.of(gang, on)
        return NEVER if runtime is None else runtime.quantile(level)

    def index(self, gang: WorkloadState, on: Flavors | None = None) -> float:
        """The Gittins index (`Runtime.index`); NEVER if nothing is known."""
        runtime = self.of(gang, on)
        return NEVER if runtime is None else runtime.index()

    def varies(self, gang: WorkloadState) -> bool:
        """Whether the runtime depends on the flavors."""
        forecast = self._forecasts.get(gang.key)
        return forecast is not None and bool(forecast.by_flavor)

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


def _limit(gang: WorkloadState) -> Millis | None:
    """What is left of the maximum execution time."""
    left = gang.workload.execution_left
    return None if left is None else max(0, left)


def flavors_of(admission: Admission | None) -> Flavors:
    """The flavors that determine the pace of a gang admitted like this; none without an admission."""
    return ANYWHERE if admission is None else working_flavors(pod_set.flavors for pod_set in admission.pod_sets)


def working_flavors(pod_sets: Iterable[Mapping[str, str]]) -> Flavors:
    """The flavors of the accelerators that the pod sets are given (resource -> flavor for each); all of their flavors where they
    are given none.
    """
    chosen = [pair for flavors in pod_sets for pair in flavors.items()]
    fast = {flavor for resource, flavor in chosen if is_accelerator(resource)}
    return tuple(sorted(fast or {flavor for _, flavor in chosen}))
