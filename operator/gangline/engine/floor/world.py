"""A counterfactual: an engine of its own, with the real facts but another mode, whose decisions are carried out at once.

Workloads arrive when they really do, and run for as long as they really did. Where that is not known yet, because in reality they
started later or not at all, the world waits for up to `LAG`; then a draw has to do (`lengths`), given how long they have really
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

from gangline.engine.course import confirmed, healthy, passed, stopped
from gangline.engine.floor.modes import Mode, under
from gangline.engine.isolated_engine import IsolatedEngine
from gangline.engine.model import (
    Admit,
    AskChecks,
    Change,
    ClusterQueue,
    CompleteAdmission,
    Decision,
    Evict,
    Gone,
    Heal,
    Millis,
    Preempt,
    Put,
    ReportPending,
    Requeue,
    RuntimeForecast,
    Settings,
    Swap,
    Warn,
    Withdraw,
    Workload,
    WorkloadPods,
    WriteFailed,
)
from gangline.engine.model.runtime import of_the_rest

#: a world is at most this far behind; and so many times as far while all policies are followed. A run that was drawn too long is
#: corrected once it has really ended, one drawn too short is over: a single huge gang makes a plain mode look twice as good
LAG: Final[Millis] = 12 * 3_600_000
CAREFUL: Final = 4
#: how often the real state of its runs is looked at
_OFTEN: Final[Millis] = 30_000
#: rounds of decisions at one instant; more would be a loop
_PATIENCE: Final = 100


@dataclass(slots=True)
class _Run:
    number: int
    began: Millis


class World:
    """One counterfactual. `length` returns the total runtime of a workload from its first start, as far as it is known or
    drawn, given that it is longer than a number of milliseconds; None = no end is known. `ran` returns for how long it has really
    run so far; None = its length is known.
    """

    def __init__(
        self,
        settings: Settings,
        mode: Mode,
        now: Millis,
        length: Callable[[str, Millis], Millis | None],
        ran: Callable[[str], Millis | None],
    ) -> None:
        self.mode: Mode = mode
        self.now = now
        self._engine = IsolatedEngine(replace(settings, counts_delays=False))
        #: facts came since it decided last; and when it wants to decide without any
        self._stale = True
        self._due: Millis | None = None
        self._length = length
        self._ran = ran
        #: when that was looked at, and until when it is known of every run whether it has ended
        self._certain: tuple[Millis, Millis] = (0, 0)
        self._workloads: dict[str, Workload] = {}
        self._runs: dict[str, _Run] = {}
        self._ends: list[tuple[Millis, int, str]] = []
        #: work that is not repeated after an eviction
        self._saved: dict[str, Millis] = {}
        #: of the whole work
        self._forecasts: dict[str, RuntimeForecast] = {}
        #: what has ended here, though perhaps not in reality yet
        self._over: set[str] = set()
        self._numbers = 0
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
                self._observe(Put(under(queue, self.mode)))
            case Put(RuntimeForecast() as forecast):
                self._forecasts[forecast.workload] = forecast
                self._forecast_rest(forecast.workload, self._saved.get(forecast.workload, 0))
            case _:
                self._observe(change)

    def put(self, workload: Workload) -> None:
        """A workload arrived, or its specification changed."""
        if workload.key in self._over:
            return
        known = self._workloads.get(workload.key)
        fresh = at_rest(workload)
        if known is None:
            self._put(fresh)
        elif at_rest(known) != fresh:
            self._put(_with_status(fresh, known))

    def adopt(self, workload: Workload, saved: Millis) -> None:
        """A workload as it is in reality, where this world begins."""
        if saved:
            self._saved[workload.key] = saved
            self._forecast_rest(workload.key, saved)
        if workload.admission is None:
            self.put(workload)
            return
        self._put(healthy(workload, self.now))
        if workload.admitted:
            self._begin(workload.key, workload.admitted_at)

    def remove(self, key: str) -> None:
        """Remove a workload from this world: it was withdrawn before its end, or is forgotten."""
        self._over.discard(key)
        self._forecasts.pop(key, None)
        self._learn(Gone(RuntimeForecast, key))
        if self._workloads.pop(key, None) is not None:
            self._runs.pop(key, None)
            self._saved.pop(key, None)
            self._observe(Gone(Workload, key))

    def came_out(self, key: str) -> None:
        """Plan the end of a workload anew, whose length has become known."""
        run = self._runs.get(key)
        if run is not None:
            self._plan_end(key, run)

    def knows(self, key: str) -> bool:
        return key in self._workloads

    def known(self) -> Iterable[str]:
        """The keys of all workloads of this world."""
        return self._workloads

    def look_anew(self) -> None:
        """Look again at what runs do in reality, when the world is played next."""
        self._certain = 0, 0

    def is_at_rest(self, now: Millis, runs: Mapping[str, Millis]) -> bool:
        """Whether the world was played until `now`, nothing waits, and exactly these workloads run. The values of `runs` are the
        times at which they began, if all of their work had been done since.
        """
        if self.now < now or len(self._workloads) != len(self._runs):
            return False
        began = {key: run.began - self._saved.get(key, 0) for key, run in self._runs.items()}
        return began == runs

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, now: Millis, today: Millis | None = None) -> bool:
        """Play until `now`: all that follows from facts and ends before it. False: it waits for the length of a run, on the
        way. `today`: the real time.
        """
        today, rounds = max(now, today or 0), 0
        self._end_due()
        while True:
            self._decide()
            until = min(now, self._certain_until(today))
            moment = self._next()
            if moment is None or moment >= until:
                break
            rounds = rounds + 1 if moment <= self.now else 0
            if rounds > _PATIENCE:
                break
            self.now = max(self.now, moment)
            self._end_due()
        self.now = max(self.now, until)
        self._end_due()
        return until >= now

    def _decide(self) -> None:
        """Decide, and carry it out, if anything can follow."""
        if not self._stale and (self._due is None or self._due > self.now):
            return
        self._stale = False
        for decision in self._engine.decide(self.now):
            if not isinstance(decision, ReportPending | Warn | Heal):
                self._carry_out(decision)
        self._due = self._engine.next_wakeup(self.now)

    def _observe(self, change: Change) -> None:
        self._stale = True
        self._engine.observe(change)

    def _learn(self, change: Change) -> None:
        """A fact from which nothing follows while nothing waits: an end, or a forecast."""
        self._engine.observe(change)
        self._stale = self._stale or len(self._workloads) > len(self._runs)

    def _forecast_rest(self, key: str, ran: Millis) -> None:
        """Tell the engine what is forecast of a workload that has run for so long here, without what it saved."""
        forecast = self._forecasts.get(key)
        if forecast is not None:
            self._learn(Put(of_the_rest(forecast, ran, self._saved.get(key, 0)) if ran else forecast))

    def _certain_until(self, today: Millis) -> Millis:
        """The time until which it is known of every run whether it has ended, but not too long ago."""
        if today >= self._certain[0] + _OFTEN:
            known = (self._ran(key) for key in self._runs)
            ends = (
                run.began + ran - self._saved.get(key, 0)
                for (key, run), ran in zip(self._runs.items(), known, strict=True)
                if ran is not None
            )
            self._certain = today, min(ends, default=today)
        return max(today - LAG * (CAREFUL if self.careful else 1), self._certain[1])

    def _next(self) -> Millis | None:
        while self._ends and not self._is_current(self._ends[0]):
            heappop(self._ends)
        moments = [self._ends[0][0]] if self._ends else []
        if self._stale:
            moments.append(self.now)
        elif self._due is not None:
            moments.append(max(self.now, self._due))
        return min(moments, default=None)

    def _is_current(self, end: tuple[Millis, int, str]) -> bool:
        run = self._runs.get(end[2])
        return run is not None and run.number == end[1]

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            end = heappop(self._ends)
            if not self._is_current(end):
                continue
            key = end[2]
            run = self._runs[key]
            total = self._length(key, 0)
            if total is None or run.began + max(1, total - self._saved.get(key, 0)) > self.now:
                self._plan_end(key, run)  # it has really run longer by now than was drawn
                continue
            self._end(key)

    def _end(self, key: str) -> None:
        """Note that a workload has ended here, or has been deactivated."""
        del self._workloads[key]
        self._runs.pop(key, None)
        self._saved.pop(key, None)
        self._over.add(key)
        self._learn(Gone(Workload, key))

    def _begin(self, key: str, at: Millis) -> None:
        self._runs[key] = run = _Run(0, at)
        ran = self._ran(key)
        if ran is not None:
            self._certain = self._certain[0], min(self._certain[1], at + ran - self._saved.get(key, 0))
        self._plan_end(key, run)

    def _plan_end(self, key: str, run: _Run) -> None:
        self._numbers += 1
        run.number = self._numbers
        done = self._saved.get(key, 0)
        total = self._length(key, done + max(0, self.now - run.began))
        if total is not None:
            heappush(self._ends, (max(self.now + 1, run.began + total - done), run.number, key))

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _put(self, workload: Workload) -> None:
        self._workloads[workload.key] = workload
        self._observe(Put(workload))

    def _carry_out(self, decision: Decision) -> None:
        assert not isinstance(decision, Warn)
        workload = self._workloads.get(decision.workload)
        if workload is None:
            return
        match decision:
            case Admit(admission=admission, admitted=admitted, checks=checks, backfilled=backfilled):
                reserved = replace(
                    at_rest(workload),
                    preemptions=workload.preemptions,
                    past_execution_seconds=workload.past_execution_seconds,
                    admission=admission,
                    reserved_at=self.now,
                    admitted=admitted,
                    admitted_at=self.now if admitted else 0,
                    checks=passed(checks, self.now),
                    backfilled=backfilled,
                )
                self._put(healthy(reserved, self.now))
                if admitted:
                    self._start(workload.key)
            case CompleteAdmission():
                self._put(healthy(confirmed(workload, decision, self.now), self.now))
                self._start(workload.key)
            case AskChecks() | Withdraw() | Requeue() | Swap():
                self._put(confirmed(workload, decision, self.now))
            case Preempt():
                self._stop(replace(workload, evicted="Preempted", preemptions=workload.preemptions + 1))
            case Evict(deactivate=True):
                self._end(workload.key)
            case Evict():
                self._stop(replace(workload, evicted=decision.reason, requeue_at=decision.requeue_at))
            case _:
                pass

    def _start(self, key: str) -> None:
        self.news.append((self.now, key, True, 0))
        self._begin(key, self.now)

    def _stop(self, workload: Workload) -> None:
        """Stop the workload, and let it wait again at once: how long pods take to end is not simulated."""
        run = self._runs.pop(workload.key, None)
        ran = max(0, self.now - run.began) if run is not None else 0
        if run is not None:
            kept, before = workload.kept(ran), self._saved.get(workload.key, 0)
            self._saved[workload.key] = before + kept
            self.news.append((self.now, workload.key, False, ran - kept))
            self._forecast_rest(workload.key, before + ran)
        waiting = stopped(workload, self.now, requeued=workload.requeue_at is None).with_past(ran)
        self._put(replace(waiting, backfilled=False))


def at_rest(workload: Workload) -> Workload:
    """The workload as if it had just been submitted."""
    return replace(
        workload,
        admission=None,
        reserved_at=0,
        admitted=False,
        admitted_at=0,
        evicted="",
        evicted_at=0,
        preempted="",
        pods_ready=False,
        pods_ready_at=0,
        pods_were_ready=False,
        requeued=None,
        requeue_count=0,
        requeue_at=None,
        past_execution_seconds=0,
        preemptions=0,
        reclaimable={},
        checks=(),
        unhealthy_nodes=(),
        backfilled=False,
        replaced=(),
        avoid=(),
        healed_at=0,
        overrun="",
        overran=False,
        stalled="",
        refused_at=0,
    )


def _with_status(workload: Workload, status: Workload) -> Workload:
    return replace(
        workload,
        admission=status.admission,
        reserved_at=status.reserved_at,
        admitted=status.admitted,
        admitted_at=status.admitted_at,
        evicted=status.evicted,
        evicted_at=status.evicted_at,
        requeued=status.requeued,
        requeue_at=status.requeue_at,
        past_execution_seconds=status.past_execution_seconds,
        preemptions=status.preemptions,
        pods_ready=status.pods_ready,
        pods_ready_at=status.pods_ready_at,
        checks=status.checks,
        backfilled=status.backfilled,
    )
