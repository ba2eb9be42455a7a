"""A counterfactual: an engine of its own, with the real facts but another mode, whose decisions are carried out at once.

Workloads arrive when they really do, and run for as long as they really did. Where that is not known yet, because in reality they
started later or not at all, the world waits for up to `LAG`; then a draw has to do (`waits`), given how long they have really
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from gangline.engine.floor.modes import Mode, under
from gangline.engine.isolated_engine import IsolatedEngine
from gangline.engine.model import (
    Change,
    ClusterQueue,
    Gone,
    Millis,
    Put,
    RuntimeForecast,
    Settings,
    Workload,
    WorkloadPods,
    WriteFailed,
)
from gangline.engine.model.runtime import of_the_rest
from gangline.engine.simulation.simulation import SimulatedRun, Simulation, healthy

#: a world is at most this far behind; and so many times as far while all policies are followed. A run that was drawn too long is
#: corrected once it has really ended, one drawn too short is over: a single huge gang makes a plain mode look twice as good
LAG: Final[Millis] = 12 * 3_600_000
CAREFUL: Final = 4
#: how often the real state of its runs is looked at
_OFTEN: Final[Millis] = 30_000


class Counterfactual(Simulation):
    """One counterfactual. `total` returns the total runtime of a workload from its first start, as far as it is known or drawn,
    given that it is longer than a number of milliseconds; None = no end is known. `ran` returns for how long it has really run so
    far; None = its length is known.
    """

    def __init__(
        self,
        settings: Settings,
        mode: Mode,
        now: Millis,
        total: Callable[[str, Millis], Millis | None],
        ran: Callable[[str], Millis | None],
    ) -> None:
        super().__init__(IsolatedEngine(replace(settings, counts_delays=False)), now)
        self.mode: Mode = mode
        self._total = total
        self._ran = ran
        #: the time until which it is played, and the real time
        self._wanted = self._today = now
        #: when the real state was looked at, and until when it is known of every run whether it has ended
        self._certain: tuple[Millis, Millis] = (0, 0)
        #: work that is not repeated after an eviction
        self._saved: dict[str, Millis] = {}
        #: forecasts of the whole work
        self._forecasts: dict[str, RuntimeForecast] = {}
        #: what has ended here, though perhaps not in reality yet
        self._over: set[str] = set()
        #: all policies are followed: what comes of this world can wait until more is known
        self.careful = False
        #: starts (key, True, 0) and stops (key, False, lost work) since they were last taken, with their times
        self.news: list[tuple[Millis, str, bool, Millis]] = []

    # --- facts --------------------------------------------------------------------------------------------------------

    def take_in(self, change: Change) -> None:
        """A fact about anything but workloads. A forecast is that of the whole work, also of what was evicted in reality."""
        match change:
            case Put(Workload()) | Put(WorkloadPods()) | WriteFailed():
                pass
            case Put(ClusterQueue() as queue):
                self.observe(Put(under(queue, self.mode)))
            case Put(RuntimeForecast() as forecast):
                self._forecasts[forecast.workload] = forecast
                self._forecast_rest(forecast.workload, self._saved.get(forecast.workload, 0))
            case _:
                self.observe(change)

    def submit(self, workload: Workload) -> None:
        """A workload arrived, or its specification changed."""
        if workload.key in self._over:
            return
        known = self.workloads.get(workload.key)
        fresh = at_rest(workload)
        if known is None:
            self.put(fresh)
        elif at_rest(known) != fresh:
            self.put(_with_status_of(known, fresh))

    def adopt(self, workload: Workload, saved: Millis) -> None:
        """A workload as it is in reality, where this world begins."""
        if saved:
            self._saved[workload.key] = saved
            self._forecast_rest(workload.key, saved)
        if workload.admission is None:
            self.submit(workload)
            return
        self.put(healthy(workload, self.now))
        if workload.admitted:
            self.begin(workload.key, workload.admitted_at)

    def remove(self, key: str) -> None:
        """Remove a workload from this world: it was withdrawn before its end, or is forgotten."""
        self._over.discard(key)
        self._forecasts.pop(key, None)
        self.learn(Gone(RuntimeForecast, key))
        if self.workloads.pop(key, None) is not None:
            self.runs.pop(key, None)
            self._saved.pop(key, None)
            self.observe(Gone(Workload, key))

    def came_out(self, key: str) -> None:
        """Plan the end of a workload anew, whose length has become known."""
        if key in self.runs:
            self.plan_end(key)

    def knows(self, key: str) -> bool:
        return key in self.workloads

    def known(self) -> Iterable[str]:
        """The keys of all workloads of this world."""
        return self.workloads

    def look_anew(self) -> None:
        """Look again at what runs do in reality, when the world is played next."""
        self._certain = 0, 0

    def is_at_rest(self, now: Millis, runs: Mapping[str, Millis]) -> bool:
        """Whether the world was played until `now`, nothing waits, and exactly these workloads run. The values of `runs` are the
        times at which they began, if all of their work had been done since.
        """
        if self.now < now or self.waiting:
            return False
        began = {key: run.began - self._saved.get(key, 0) for key, run in self.runs.items()}
        return began == runs

    def leave(self, workload: Workload) -> None:
        self._over.add(workload.key)
        self._saved.pop(workload.key, None)
        super().leave(workload)

    def _forecast_rest(self, key: str, ran: Millis) -> None:
        """Tell the engine what is forecast of a workload that has run for so long here, without what it saved."""
        forecast = self._forecasts.get(key)
        if forecast is not None:
            self.learn(Put(of_the_rest(forecast, ran, self._saved.get(key, 0)) if ran else forecast))

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, now: Millis, today: Millis | None = None) -> bool:
        """Play until `now`: all that follows from facts and ends before it. False: it waits for the length of a run, on the
        way. `today`: the real time.
        """
        self._wanted, self._today = now, max(now, today or 0)
        until = self.play()
        self.now = max(self.now, until)
        self.process_due()
        return until >= now

    def until(self) -> Millis:
        return min(self._wanted, self._certain_until())

    def _certain_until(self) -> Millis:
        """The time until which it is known of every run whether it has ended, but not too long ago."""
        today = self._today
        if today >= self._certain[0] + _OFTEN:
            known = (self._ran(key) for key in self.runs)
            ends = (
                run.began + ran - self._saved.get(key, 0)
                for (key, run), ran in zip(self.runs.items(), known, strict=True)
                if ran is not None
            )
            self._certain = today, min(ends, default=today)
        return max(today - LAG * (CAREFUL if self.careful else 1), self._certain[1])

    def begin(self, key: str, at: Millis) -> None:
        super().begin(key, at)
        ran = self._ran(key)
        if ran is not None:
            self._certain = self._certain[0], min(self._certain[1], at + ran - self._saved.get(key, 0))

    def length(self, workload: Workload, run: SimulatedRun) -> Millis | None:
        saved = self._saved.get(workload.key, 0)
        total = self._total(workload.key, saved + max(0, self.now - run.began))
        return None if total is None else total - saved

    def has_ended(self, key: str, run: SimulatedRun) -> bool:
        """Whether it has not really run longer by now than was drawn."""
        total = self._total(key, 0)
        return total is not None and run.began + max(1, total - self._saved.get(key, 0)) <= self.now

    # --- what is recorded ---------------------------------------------------------------------------------------------

    def started(self, workload: Workload) -> None:
        self.news.append((self.now, workload.key, True, 0))

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        if run is None or not workload.active:
            return
        key, ran = workload.key, self.now - run.began
        kept, before = workload.kept(ran), self._saved.get(key, 0)
        self._saved[key] = before + kept
        self.news.append((self.now, key, False, ran - kept))
        self._forecast_rest(key, before + ran)


#: the status of a workload that has just been submitted
_STATUS: Final[Mapping[str, Any]] = {
    "admission": None,
    "reserved_at": 0,
    "admitted": False,
    "admitted_at": 0,
    "evicted": "",
    "evicted_at": 0,
    "preempted": "",
    "pods_ready": False,
    "pods_ready_at": 0,
    "pods_were_ready": False,
    "requeued": None,
    "requeue_count": 0,
    "requeue_at": None,
    "past_execution_seconds": 0,
    "preemptions": 0,
    "reclaimable": {},
    "checks": (),
    "unhealthy_nodes": (),
    "backfilled": False,
    "replaced": (),
    "avoid": (),
    "healed_at": 0,
    "overrun": "",
    "overran": False,
    "stalled": "",
    "converged": False,
    "refused_at": 0,
    "unscheduled": None,
}


def at_rest(workload: Workload) -> Workload:
    """The workload as if it had just been submitted."""
    return replace(workload, **_STATUS)


def _with_status_of(known: Workload, fresh: Workload) -> Workload:
    """The newer specification with the status that the workload has in this world."""
    return replace(fresh, **{name: getattr(known, name) for name in _STATUS})
