"""The forward simulator: an engine under a virtual clock, whose decisions are carried out at once.

The data flows in a circle. Events wait in a heap: changes of the cluster, planned ends of runs, arrivals. The clock moves to the
next one, or to the time at which the engine wants to be asked again. What happens there becomes facts for the engine, the engine
decides, and each decision is carried out (`_carry_out`): the workload gets the status that the API server would show, and its
run begins or stops. The planned end of a run that begins is the next event.

A subclass says what is different in its simulation: how long runs take (`length`, `has_ended`), until when it is played
(`until`), what is observed besides (`happens`, `tell`, `leave`), and what is recorded (`started`, `stopped`, `ended`, `settled`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from heapq import heappop, heappush
from typing import ClassVar, TypeAlias, assert_never

from gangline.engine.engine import Engine
from gangline.engine.model import (
    Admit,
    AskChecks,
    Change,
    CheckState,
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
    Swap,
    Warn,
    Withdraw,
    Workload,
)
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.preemption_log import MOVED


class EventKind(IntEnum):
    """The kinds of events, in the order in which they happen at one instant."""

    CHANGE = 0  #: the cluster changes
    END = 1  #: the planned end of a run
    ARRIVAL = 2  #: a workload is submitted


@dataclass(slots=True)
class SimulatedRun:
    """A run of a workload: since when, and until when as far as is known (`NEVER` = no end is known)."""

    began: Millis
    end: Millis = NEVER
    #: the number of the planned end in the heap; an end with another number is void
    number: int = 0


#: time, kind, order among the events of this time and kind, number of the planned end (0 = another event), key of the workload
_Event: TypeAlias = tuple[Millis, EventKind, int, int, str]


class Simulation:
    """An engine, the workloads that wait and run in its cluster, and the clock."""

    #: Whether the engine gets the fact that confirms a decision. A decision is assumed at once, so a simulation without admission
    #: checks and readiness of pods can leave it out, and saves a round of decisions for each.
    CONFIRMS: ClassVar[bool] = True
    #: rounds of decisions at one instant; more are taken for an endless loop
    MOST_ROUNDS: ClassVar[int] = 100

    def __init__(self, engine: Engine, now: Millis) -> None:
        self.engine = engine
        self.now = now
        #: the workloads that wait or run, with the status that the API server would show
        self.workloads: dict[str, Workload] = {}
        self.runs: dict[str, SimulatedRun] = {}
        #: the number of decisions so far
        self.decided = 0
        #: the events to come, as a heap
        self._events: list[_Event] = []
        self._numbers = 0
        #: whether facts came since the last decision, and when the engine wants to be asked without any
        self._stale = True
        self._due: Millis | None = None

    # --- what a subclass says -----------------------------------------------------------------------------------------

    def length(self, workload: Workload, run: SimulatedRun) -> Millis | None:
        """The time from the beginning of a run, which has lasted until now, to its end; None = no end is known."""
        raise NotImplementedError

    def has_ended(self, key: str, run: SimulatedRun) -> bool:
        """Whether a run really ends at its planned end; otherwise its end is planned anew."""
        del key, run
        return True

    def until(self) -> Millis:
        """The time before which events still count. It is asked again after each round of decisions."""
        return NEVER

    def order(self, key: str, number: int) -> int:
        """The place of a run's end among those of the same instant; by default they end in the order of planning."""
        del key
        return number

    def happens(self, kind: EventKind, number: int) -> None:
        """Process an event that the subclass scheduled."""

    def tell(self, change: Change) -> None:
        """Give a fact to the engine."""
        self.engine.observe(change)

    def leave(self, workload: Workload) -> None:
        """Tell the engine that a workload is over: it has ended, or it was deactivated, and holds no admission any more then."""
        self.learn(Gone(Workload, workload.key))

    def started(self, workload: Workload) -> None:
        """Record that a workload starts now."""

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        """Record that a workload is evicted now, and what it has to do again. It still holds its admission; without a run it had
        only reserved its quota. `active` says whether it waits again.
        """

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        """Record that a workload ends now."""

    def settled(self) -> None:
        """Record the state at the end of an instant, when nothing more follows at it."""

    def out_of_rounds(self) -> None:
        """Report that the engine does not come to rest at this instant. The simulation breaks off."""

    # --- facts --------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of workloads that do not run."""
        return len(self.workloads) - len(self.runs)

    def observe(self, change: Change) -> None:
        """Give a fact to the engine; a decision follows."""
        self._stale = True
        self.tell(change)

    def learn(self, change: Change) -> None:
        """Give a fact to the engine from which nothing follows while nothing waits: an end, or a forecast."""
        self.tell(change)
        if self.waiting:
            self._stale = True

    def ask_again(self) -> None:
        """Let a decision follow at this instant, though no fact came."""
        self._stale = True

    def put(self, workload: Workload) -> None:
        """A workload arrives, or has another status."""
        self.workloads[workload.key] = workload
        self.observe(Put(workload))

    # --- time ---------------------------------------------------------------------------------------------------------

    def schedule(self, at: Millis, kind: EventKind, number: int) -> None:
        """Plan an event other than the end of a run (`happens`)."""
        heappush(self._events, (at, kind, number, 0, ""))

    def play(self) -> Millis:
        """Play all events before `until`; returns that time. The clock stands at the last event."""
        rounds = 0
        self.process_due()
        while True:
            self.decide()
            until, moment = self.until(), self._next_moment()
            if moment is None or moment > self.now:
                self.settled()
            if moment is None or moment >= until:
                return until
            rounds = rounds + 1 if moment <= self.now else 0
            if rounds > self.MOST_ROUNDS:
                self.out_of_rounds()
                return until
            self.now = max(self.now, moment)
            self.process_due()

    def next_event(self) -> Millis | None:
        """The time of the next event. The planned end of a stopped run is none: a decision then would use a length that nobody
        knows.
        """
        events = self._events
        while events and not self._counts(events[0]):
            heappop(events)
        return events[0][0] if events else None

    def _next_moment(self) -> Millis | None:
        """The time of the next event or decision; None = nothing follows. Without workloads there is nothing to decide."""
        event = self.next_event()
        if self._stale:
            decision = self.now
        elif self._due is not None and self.workloads:
            decision = max(self.now, self._due)
        else:
            return event
        return decision if event is None else min(event, decision)

    def _counts(self, event: _Event) -> bool:
        """Whether the event is not the planned end of a run that was stopped, or whose end was planned anew."""
        number = event[3]
        return number == 0 or ((run := self.runs.get(event[4])) is not None and run.number == number)

    def process_due(self) -> None:
        """Process the events that are due."""
        events = self._events
        while events and events[0][0] <= self.now:
            event = heappop(events)
            _, kind, order, _, key = event
            if not self._counts(event):
                continue
            if kind != EventKind.END:
                self.happens(kind, order)
            elif self.has_ended(key, run := self.runs[key]):
                del self.runs[key]
                workload = self.workloads.pop(key)
                self.ended(workload, run)
                self.leave(workload)
            else:
                self.plan_end(key)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def begin(self, key: str, at: Millis) -> None:
        """Let a run begin; one that was in progress before the simulation has begun earlier."""
        self.runs[key] = SimulatedRun(at)
        self.plan_end(key)

    def plan_end(self, key: str) -> None:
        """Plan the end of a run (anew), as far as its length is known."""
        run = self.runs[key]
        self._numbers += 1
        run.number = self._numbers
        length = self.length(self.workloads[key], run)
        run.end = NEVER if length is None else max(self.now + 1, run.began + length)
        if length is not None:
            heappush(self._events, (run.end, EventKind.END, self.order(key, run.number), run.number, key))

    def stop(self, workload: Workload, reason: str) -> None:
        """Stop a workload whose status says that it is evicted. It waits again at once, unless it is deactivated: how long pods
        take to end is not simulated.
        """
        run = self.runs.pop(workload.key, None)
        ran = max(0, self.now - run.began) if run is not None else 0
        self.stopped(workload, run, reason)
        at_rest = _without_quota(workload, self.now).with_past(ran)
        if at_rest.active:
            self.put(at_rest)
        else:
            del self.workloads[workload.key]
            self.leave(at_rest)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Ask the engine for its decisions, if there can be any, and carry them out."""
        if not self._stale and (self._due is None or self._due > self.now):
            return
        decisions = self.engine.decide(self.now)
        self.decided += len(decisions)
        for decision in decisions:
            self._carry_out(decision)
        self._stale = False
        self._due = self.engine.next_wakeup(self.now)  # it is now where a decision follows from what was carried out

    def _carry_out(self, decision: Decision) -> None:
        """Carry out one decision. Every kind is heeded here; the type checker refuses a new one that is not."""
        if isinstance(decision, Warn | ReportPending):
            return  # these are messages for users
        workload = self.workloads.get(decision.workload)
        if workload is None:
            return
        match decision:
            case Admit(admission=admission, admitted=admitted, checks=checks, backfilled=backfilled):
                reserved = replace(
                    workload,
                    admission=admission,
                    reserved_at=self.now,
                    admitted=admitted,
                    admitted_at=self.now if admitted else 0,
                    pods_ready=admitted,
                    pods_ready_at=self.now if admitted else workload.pods_ready_at,
                    checks=passed(checks, self.now),
                    unhealthy_nodes=(),
                    backfilled=backfilled,
                    evicted="",
                    preempted="",
                    moved_for="",
                    requeued=None,
                )
                self._write(reserved)
                if admitted:
                    self._start(reserved)
            case CompleteAdmission():
                admitted_now = replace(
                    workload, admitted=True, admitted_at=self.now, pods_ready=True, pods_ready_at=self.now
                )
                self._write(admitted_now)
                self._start(admitted_now)
            case AskChecks(checks=checks):
                self._write(replace(workload, checks=passed(checks, self.now)))
            case Withdraw():
                self._write(replace(workload, admission=None, reserved_at=0))
            case Requeue():
                self._write(replace(workload, requeued=True, requeue_at=None))
            case Swap(admission=admission):
                self._write(replace(workload, admission=admission))
            case Preempt(reason=reason):
                count = workload.preemptions + 1
                victim = replace(
                    workload,
                    evicted="Preempted",
                    preempted=reason,
                    moved_for=decision.by if reason == MOVED else "",
                    preemptions=count,
                    requeue_at=None,
                )
                self.stop(victim, reason)
            case Evict(reason=reason):
                victim = replace(
                    workload,
                    evicted=reason,
                    active=workload.active and not decision.deactivate,
                    requeue_at=decision.requeue_at,
                    requeue_count=decision.requeue_count or workload.requeue_count,
                )
                self.stop(victim, reason)
            case Heal():
                pass  # its pods move to other nodes and no work is lost: the loss of a node is not simulated
            case _:
                assert_never(decision)

    def _write(self, workload: Workload) -> None:
        self.workloads[workload.key] = workload
        if self.CONFIRMS:
            self.engine.observe(Put(workload))

    def _start(self, workload: Workload) -> None:
        self.started(workload)
        self.begin(workload.key, self.now)


def passed(checks: Iterable[str], now: Millis) -> tuple[CheckState, ...]:
    """Admission checks that have passed: in a simulation they do at once, since it is about room."""
    return tuple(CheckState(name, "Ready", at=now) for name in checks)


def healthy(workload: Workload, now: Millis) -> Workload:
    """The workload as it is once its admission checks have passed and its pods are ready, if it holds quota."""
    if workload.admission is None:
        return workload
    checks = passed((check.name for check in workload.checks), now)
    at = max(workload.admitted_at, workload.pods_ready_at)
    return replace(workload, checks=checks, pods_ready=workload.admitted, pods_ready_at=at, unhealthy_nodes=())


def _without_quota(workload: Workload, now: Millis) -> Workload:
    """An evicted workload once its pods have ended: what was said of its run is gone."""
    return replace(
        workload,
        admission=None,
        reserved_at=0,
        admitted=False,
        admitted_at=0,
        pods_ready=False,
        pods_were_ready=False,
        checks=(),
        evicted_at=now,
        requeued=workload.active and workload.requeue_at is None,
        reclaimable={},
        backfilled=False,
        overrun="",
        stalled="",
        converged=False,
        refused_at=0,
        unscheduled=None,
    )
