"""The order of workloads of equal priority, and the order in which backfill candidates are tried.

An order is a number, the *rank*: the lowest is first, then age, then uid. Ranks that depend on time (response ratios, ageing)
are computed for full minutes, so that they change seldom and do not depend on the time of evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from gangline.engine.model import Admission, Backfill, Millis, Ordering, RuntimeForecast, accelerators, is_accelerator
from gangline.engine.model.runtime import NEVER, Runtime
from gangline.engine.queues.workload_state import WorkloadState

# --- estimates --------------------------------------------------------------------------------------------------------
# Estimated runtimes of gangs, by the newest forecast and the time limit: on any flavor, or on the flavors held or assigned.
#
# A forecast's quantiles hold on every flavor unless `by_flavor` says otherwise. Where a waiting gang will run is not known:
# orders use the plain quantiles. Once flavors are assigned, even in a trial, the quantiles of these flavors count; of
# several the slowest, since a gang runs at the pace of its slowest pods.


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


# --- ordering ---------------------------------------------------------------------------------------------------------


#: The order in which the LocalQueue is first that has used least.
BY_SHARE: Final = "FairShare"
#: Ranks that change with time are renewed this often.
RENEWAL: Millis = 60_000
#: The rank of a workload that has waited longer than the policy allows, or keeps the turn that it had in another order.
AT_ONCE = float("-inf")
#: The rank of a workload that goes after all others of its priority.
LAST = float("inf")


def size(gang: WorkloadState) -> int:
    """The accelerators that a gang asks for; without any, its cpu."""
    requests = gang.requests()
    return accelerators(requests) or requests.get("cpu", 0)


def _largest(gang: WorkloadState) -> float:
    return -float(size(gang))


class Ranking:
    """The orders of one ClusterQueue: that of its queue, and that of backfill candidates."""

    def __init__(
        self,
        ordering: Ordering | None,
        backfill: Backfill | None,
        estimates: Estimates,
        first: frozenset[str] = frozenset(),
    ) -> None:
        self.ordering = ordering or Ordering()
        #: the keys of workloads that precede all others of their priority: an earlier order reserved them a start
        self.first = first
        self.backfill = backfill
        self._estimates = estimates
        self._level = backfill.candidate if backfill is not None else 0.9
        order = backfill.candidates if backfill is not None else "QueueOrder"
        #: None = candidates are tried in queue order
        orders: dict[str, Callable[[WorkloadState], float]] = {
            "ShortestFirst": self._expected,
            "LargestFirst": _largest,
            "BestFit": self._area,
            "AgedShortestFirst": self._aged,
        }
        self.candidate_rank = orders.get(order)
        self._minute: Millis = 0

    @property
    def by_usage(self) -> bool:
        """Whether the LocalQueue that has used least is first."""
        return self.ordering.key == BY_SHARE

    @property
    def demand_weight(self) -> float | None:
        """What the demand of LocalQueues counts in their order; None = nothing."""
        match self.ordering.key:
            case "Demand":
                return 1.0
            case "DemandDrf":
                return self.ordering.demand_weight
            case _:
                return None

    @property
    def by_local_queue(self) -> bool:
        """Whether LocalQueues have an order, which may change with anything that waits or runs."""
        return self.by_usage or self.demand_weight is not None

    @property
    def by_time(self) -> bool:
        return self.ordering.key == "HighestResponseRatio" or self.ordering.max_wait is not None

    def renew(self, now: Millis) -> bool:
        """Advance to `now`. True if ranks have to be computed again."""
        minute = now // RENEWAL
        if minute == self._minute or not self.by_time:
            return False
        self._minute = minute
        return True

    def estimate(self, gang: WorkloadState, on: Flavors = ANYWHERE) -> Millis:
        """The estimated runtime of a candidate on these flavors."""
        return self._estimates.length(gang, self._level, on)

    def varies(self, gang: WorkloadState) -> bool:
        """Whether the candidate's estimate depends on the flavors."""
        return self._estimates.varies(gang)

    def rank(self, gang: WorkloadState) -> float:
        ordering = self.ordering
        if gang.goes_after:
            return LAST
        if self.precedes_all(gang) or self._waited_longest(gang):
            return AT_ONCE
        match ordering.key:
            case "ShortestFirst":
                return self._expected(gang)
            case "AgedShortestFirst":
                return self._aged(gang)
            case "SmallestFirst":
                return float(size(gang))
            case "LargestFirst":
                return _largest(gang)
            case "HighestResponseRatio":
                expected = max(1.0, self._expected(gang))
                return -(max(0, self._waited(gang)) + expected) / expected
            case _:
                return 0.0

    def precedes_all(self, gang: WorkloadState) -> bool:
        """Whether the workload precedes all others of its priority, whatever the order of LocalQueues."""
        return bool(self.first) and gang.key in self.first

    def second_rank(self, gang: WorkloadState) -> float:
        """The rank among candidates for backfill."""
        if gang.goes_after:
            return LAST
        return self.candidate_rank(gang) if self.candidate_rank is not None else 0.0

    def _waited(self, gang: WorkloadState) -> Millis:
        return self._minute * RENEWAL - gang.since

    def _waited_longest(self, gang: WorkloadState) -> bool:
        most = self.ordering.max_wait
        return most is not None and self._waited(gang) >= most

    def _expected(self, gang: WorkloadState) -> float:
        """The expected runtime on any flavor."""
        median = float(self._estimates.length(gang, 0.5, ANYWHERE))
        optimism = self.ordering.optimism
        if not optimism or median >= NEVER:
            return median
        return float(round(median ** (1 - optimism) * self._estimates.index(gang, ANYWHERE) ** optimism))

    def _aged(self, gang: WorkloadState) -> float:
        return self._aged_by(gang, self._expected(gang))

    def _aged_by(self, gang: WorkloadState, length: float) -> float:
        cap = self.ordering.age_cap
        counted = length if cap is None else min(length, cap)
        return gang.since + self.ordering.age_weight * counted

    def rank_with(self, gang: WorkloadState, length: Millis) -> float:
        """The rank for an expected runtime of `length`, which only matters where the order uses runtimes.

        `length` is used as it is: `optimism` only applies to runs that have not begun.
        """
        if gang.goes_after:
            return LAST
        if self.precedes_all(gang) or self._waited_longest(gang):
            return AT_ONCE
        match self.ordering.key:
            case "ShortestFirst":
                return float(length)
            case "AgedShortestFirst":
                return self._aged_by(gang, length)
            case _:
                return self.rank(gang)

    def _area(self, gang: WorkloadState) -> float:
        """Resources times estimated runtime, largest first; unknown = last."""
        length = self._estimates.length(gang, self._level, ANYWHERE)
        return 0.0 if length >= NEVER else -float(size(gang) * length)
