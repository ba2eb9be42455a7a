"""Runs that outlast their forecast: on time, Warned, Overdue; and the policy's action.

A run is Warned once it has lasted longer than the policy's quantile of its own forecast, and Overdue after a multiple of that.
Most overdue runs are legitimate: in the published GPU traces 3 to 5 % of all jobs run beyond three times their q90. So no run
is stopped for it unless a policy says so, and no run is late by a forecast that is not its own. The state of a run never goes
back, whatever is forecast later, so that everything is reported once.

Hard limits (`Workload.max_execution_seconds`) are enforced by `engine.state.lifecycle`.
"""

from __future__ import annotations

from typing import Final

from gangline.engine.model import Decision, Evict, Millis, Overrun, RuntimeForecast, Warn
from gangline.engine.model.runtime import Runtime
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of, queue_of
from gangline.engine.queues.ordering import flavors_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.text.wording import span_text

ON_TIME: Final = ""
WARNED: Final = "Warned"
OVERDUE: Final = "Overdue"
_ORDER: Final = (ON_TIME, WARNED, OVERDUE)

#: reason of the Warn for a run that entered a state
REASONS: Final = {WARNED: "RanPastForecast", OVERDUE: "Overdue"}
#: state for a reason of these
OVERRUN_STATES: Final = {reason: state for state, reason in REASONS.items()}
#: reason of the eviction of an overdue run
EVICTED: Final = "Overrun"
#: An overdue run that no workload waits for is looked at again after this time, in milliseconds.
RECHECK: Final[Millis] = 30_000


class Overruns:
    """Watches the runs of queues whose policy asks for it; other runs cost one look at their queue."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def judge(self, gang: WorkloadState, now: Millis) -> tuple[Decision | None, Millis | None]:
        """What has to be reported or done about a run now, and when to look again if nothing happens."""
        queue = queue_of(gang)
        policy = queue.config.overrun if queue is not None else None
        if policy is None or policy.action == "None" or not gang.admitted or gang.evicting:
            return None, None
        forecast = self._store.forecasts.get(gang.key)
        runtime = Runtime.of(forecast, None, flavors_of(gang.quota.admission))
        if forecast is None or runtime is None or not is_own_forecast(forecast):
            return None, None
        expected = runtime.quantile(policy.warn_at)
        warned_at = gang.quota.admitted_at + expected
        overdue_at = gang.quota.admitted_at + round(expected * policy.overdue_factor)
        state = OVERDUE if now >= overdue_at else WARNED if now >= warned_at else ON_TIME
        known = max(gang.lifecycle.overrun, gang.workload.overrun, key=_ORDER.index)
        if _ORDER.index(state) > _ORDER.index(known):
            return self._enter(gang, state, _said(gang, state, policy, expected, forecast, now)), now
        gang.lifecycle.overrun = known
        if state == ON_TIME:
            return None, warned_at
        if state == WARNED:
            return None, overdue_at
        if policy.action == "Notify":
            return None, None
        due = overdue_at + policy.grace
        if now < due:
            return None, due
        eviction, again = self._act(gang, policy, _said(gang, state, policy, expected, forecast, now), now)
        if eviction is not None:
            gang.evict(f"{eviction.reason}: {eviction.message}")
        return eviction, again

    def _enter(self, gang: WorkloadState, state: str, said: str) -> Warn:
        gang.lifecycle.overrun = state
        if (queue := queue_of(gang)) is not None:
            self._store.touch(queue)  # reservations that rely on its forecast are planned again
        return Warn("Workload", gang.key, REASONS[state], said)

    def _act(self, gang: WorkloadState, policy: Overrun, said: str, now: Millis) -> tuple[Evict | None, Millis | None]:
        if policy.action == "Deactivate":
            message = f"The workload is deactivated due to an overrun: it {said}"
            return Evict(gang.key, gang.uid, "Deactivated", message, deactivate=True, underlying_cause=EVICTED), None
        queue = queue_of(gang)
        if queue is None or not in_the_way(gang, queue):
            return None, now + RECHECK
        return Evict(gang.key, gang.uid, EVICTED, f"The workload gives way to those that wait: it {said}"), None


def is_own_forecast(forecast: RuntimeForecast) -> bool:
    """Whether the forecast is the run's own: based on similar runs, the author's hint, or reported steps. A forecast for any job
    (Global, Default) makes no run late.
    """
    if forecast.source in ("Hint", "Limit", "Progress"):
        return True
    return forecast.samples > 0 and forecast.source not in ("Global", "Default")


def trusted(gang: WorkloadState) -> bool:
    """Whether the workload's forecast can be relied on: it was never overdue. A workload that was is not backfilled any more."""
    return not gang.workload.overran and OVERDUE not in (gang.lifecycle.overrun, gang.workload.overrun)


def in_the_way(gang: WorkloadState, queue: ClusterQueueState) -> bool:
    """Whether a workload of at least the same priority waits, in its tree, for a resource of a flavor that this one holds."""
    held = [fr for fr, amount in gang.quota.usage.items() if amount > 0]
    for other in cluster_queues_of(queue.root):
        shared = [resource for flavor, resource in held if _offers(other, flavor, resource)]
        for waiting in other.pending.one_of_each() if shared else ():
            if waiting.priority >= gang.priority and _tries(waiting) and _asks_for(waiting, shared):
                return True
    return False


def _offers(queue: ClusterQueueState, flavor: str, resource: str) -> bool:
    group = queue.group_of.get(resource)
    return group is not None and any(option.name == flavor for option in group.options)


def _tries(gang: WorkloadState) -> bool:
    """Whether neither its own back-off nor its own requests keep the workload from being tried."""
    return not gang.backs_off and not gang.workload.violation


def _asks_for(gang: WorkloadState, resources: list[str]) -> bool:
    return any(demand.pod_set.counted.get(name, 0) > 0 for demand in gang.demands for name in resources)


def _said(
    gang: WorkloadState, state: str, policy: Overrun, expected: Millis, forecast: RuntimeForecast, now: Millis
) -> str:
    basis = f"{forecast.source or 'forecast'}, {forecast.samples} samples" if forecast.samples else forecast.source
    text = f"has run for {span_text(now - gang.quota.admitted_at)}; "
    text += f"{100 * policy.warn_at:g} % of such runs end within {span_text(expected)}"
    if state == OVERDUE:
        text += f", {policy.overdue_factor:g} times that is overdue"
    return f"{text} ({basis})" if basis else text
