"""The states of a workload, which may follow which, and the journal of past transitions.

    Unqueued ──▶ Pending ◀──▶ Nominated ──▶ QuotaReserved ──▶ Admitted ──▶ Finished
                 │    ▲                          │                │
                 ▼    │                          ▼                ▼
          Inadmissible / HeldBack ◀───────── Evicting ◀──────── Evicting

`WorkloadState.enter` is the one function that changes a state; a transition that is not in `ALLOWED`, or whose facts are
not those of `NEEDS`, raises TransitionError.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, cast

from gangline.engine.model import Millis

#: number of transitions that are kept, of all workloads together
MOST_REMEMBERED: Final = 20_000


class LifecycleState(Enum):
    """The state of a workload. Values are what users read."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is that of the name, and slow

    #: between two states, within one call
    MOVING = "Moving"
    #: no ClusterQueue takes it: its LocalQueue or ClusterQueue is missing, stopped or does not select its namespace
    UNQUEUED = "Unqueued"
    #: waits in the order of its ClusterQueue
    PENDING = "Pending"
    #: the head that the present scheduling cycle tries
    NOMINATED = "Nominated"
    #: cannot be admitted for the time being: it is tried again when something is released
    INADMISSIBLE = "Inadmissible"
    #: would fit, but a workload with a reservation would start later
    HELD_BACK = "HeldBack"
    #: has quota; admission checks, or the topology assignment, are still open
    RESERVED = "QuotaReserved"
    #: runs, or may start
    ADMITTED = "Admitted"
    #: loses its quota before it was admitted
    WITHDRAWN = "Withdrawn"
    #: was admitted and is being stopped; it holds its quota until its pods are gone
    EVICTING = "Evicting"
    #: finished, or deleted
    FINISHED = "Finished"


HOLDING: Final = frozenset(
    {LifecycleState.RESERVED, LifecycleState.ADMITTED, LifecycleState.WITHDRAWN, LifecycleState.EVICTING}
)
_WAITING: Final = frozenset({LifecycleState.PENDING, LifecycleState.INADMISSIBLE})

#: the allowed transitions; staying in a state is always allowed. A HELD_BACK workload is PENDING, in a bucket that is held
#: back.
ALLOWED: Final[dict[LifecycleState, frozenset[LifecycleState]]] = {
    LifecycleState.MOVING: frozenset({LifecycleState.UNQUEUED, LifecycleState.FINISHED, *_WAITING, *HOLDING}),
    LifecycleState.UNQUEUED: frozenset({LifecycleState.FINISHED, *_WAITING, *HOLDING}),
    LifecycleState.PENDING: frozenset({LifecycleState.MOVING, LifecycleState.NOMINATED}),
    LifecycleState.NOMINATED: frozenset(
        {LifecycleState.MOVING, LifecycleState.UNQUEUED, LifecycleState.FINISHED, *_WAITING, *HOLDING}
    ),
    LifecycleState.INADMISSIBLE: frozenset({LifecycleState.MOVING}),
    LifecycleState.RESERVED: frozenset(
        {LifecycleState.ADMITTED, LifecycleState.WITHDRAWN, LifecycleState.EVICTING, LifecycleState.MOVING}
    ),
    LifecycleState.ADMITTED: frozenset(
        {LifecycleState.RESERVED, LifecycleState.WITHDRAWN, LifecycleState.EVICTING, LifecycleState.MOVING}
    ),
    LifecycleState.WITHDRAWN: frozenset(
        {LifecycleState.RESERVED, LifecycleState.ADMITTED, LifecycleState.EVICTING, LifecycleState.MOVING}
    ),
    LifecycleState.EVICTING: frozenset(
        {LifecycleState.RESERVED, LifecycleState.ADMITTED, LifecycleState.WITHDRAWN, LifecycleState.MOVING}
    ),
    LifecycleState.FINISHED: frozenset(),
}


class Needs(NamedTuple):
    """The facts about a workload that hold when it enters a state."""

    #: it holds quota
    quota: bool
    #: it has a place in a bucket of its queue
    bucket: bool


#: the facts that each state needs; MOVING lies between two states and needs none
NEEDS: Final[dict[LifecycleState, Needs]] = {
    LifecycleState.UNQUEUED: Needs(quota=False, bucket=False),
    LifecycleState.PENDING: Needs(quota=False, bucket=True),
    LifecycleState.NOMINATED: Needs(quota=False, bucket=False),
    LifecycleState.INADMISSIBLE: Needs(quota=False, bucket=False),
    LifecycleState.RESERVED: Needs(quota=True, bucket=False),
    LifecycleState.ADMITTED: Needs(quota=True, bucket=False),
    LifecycleState.WITHDRAWN: Needs(quota=True, bucket=False),
    LifecycleState.EVICTING: Needs(quota=True, bucket=False),
    LifecycleState.FINISHED: Needs(quota=False, bucket=False),
}

#: (admitted, evicting) -> the state of a holder
HOLDER: Final = {
    (False, False): LifecycleState.RESERVED,
    (True, False): LifecycleState.ADMITTED,
    (False, True): LifecycleState.WITHDRAWN,
    (True, True): LifecycleState.EVICTING,
}
#: transient states: not recorded in the journal
_FLEETING: Final = frozenset({LifecycleState.MOVING, LifecycleState.NOMINATED})


class TransitionError(RuntimeError):
    """A transition that is not in `ALLOWED`, or without the facts of `NEEDS`: a bug of the engine, which costs this workload
    alone.
    """


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of a workload's story. `at` is None until the next decision states the time."""

    at: Millis | None
    workload: str
    uid: str
    before: LifecycleState | None  # None: the workload was not known before
    after: LifecycleState
    cause: str  # one sentence, "" where the states say it all
    decision: str  # the kind of decision that caused it, "" = a fact


#: Cells of one transition as it is stored: workload, uid, before, after, cause, decision.
_WIDTH: Final = 6


class JournaledWorkload(Protocol):
    """The part of a workload that the journal needs: its last recorded state and cause, and their row while the moment
    lasts.
    """

    key: str
    uid: str
    noted: LifecycleState | None
    noted_cause: str
    noted_row: int

    @property
    def state(self) -> LifecycleState: ...


class Journal:
    """The journal: the last transitions of all workloads, oldest first.

    A *moment* is a call of `decide` with the facts since the one before. States that are entered and left within one moment are
    not recorded. Rows are flat tuples, not objects: thousands of objects would make every garbage collection longer.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        #: the time, and then the cells of each transition
        self._past: deque[Millis | LifecycleState | str | None] = deque(maxlen=most * (_WIDTH + 1))
        self._moment: list[LifecycleState | str | None] = []
        #: number of cells before those of this moment, counted from the beginning
        self._first = 0
        #: facts that were known before are being replayed: none of them is news
        self.resting = False

    def end(self, now: Millis | None) -> None:
        """The moment is over; it was at this time."""
        moment = self._moment
        for at in range(0, len(moment), _WIDTH):
            self._past.append(now)
            self._past.extend(moment[at : at + _WIDTH])
        self._first += len(moment)
        moment.clear()

    def note(
        self, workload: JournaledWorkload, cause: str = "", decision: str = "", state: LifecycleState | None = None
    ) -> None:
        """The workload's state, or the reason for it, differs from the one recorded last. `state` is that of the workload, if
        the caller has it at hand.
        """
        state, before = state or workload.state, workload.noted
        if state in _FLEETING or (before is state and (not cause or workload.noted_cause == cause)):
            return
        moment, place = self._moment, workload.noted_row - self._first
        passed_through = before is LifecycleState.UNQUEUED or (before is state and not workload.noted_cause)
        workload.noted, workload.noted_cause = state, cause
        if self.resting:
            return
        if passed_through and 0 <= place < len(moment):
            moment[place + 3 : place + _WIDTH] = state, cause, decision
            return
        if len(moment) >= self._most * _WIDTH:
            self.end(None)  # a standby decides nothing
        workload.noted_row = self._first + len(moment)
        moment += workload.key, workload.uid, before, state, cause, decision

    def story(self, workload: str) -> tuple[Transition, ...]:
        """The recorded transitions of the workload with this key, and of earlier workloads of that name, oldest first."""
        cells = list(self._past)
        for at in range(0, len(self._moment), _WIDTH):
            cells += [None, *self._moment[at : at + _WIDTH]]
        rows = (cells[at : at + _WIDTH + 1] for at in range(0, len(cells), _WIDTH + 1))
        return tuple(Transition(*cast("Any", row)) for row in rows if row[1] == workload)
