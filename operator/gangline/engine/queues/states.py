"""The states of a workload, which may follow which, and the journal of past transitions.

    Unqueued ──▶ Pending ◀──▶ Nominated ──▶ QuotaReserved ──▶ Admitted ──▶ Finished
                 │    ▲                          │                │
                 ▼    │                          ▼                ▼
          Inadmissible / HeldBack ◀───────── Evicting ◀──────── Evicting

`WorkloadState.enter` is the one function that changes a state; a transition that is not in `ALLOWED` raises TransitionError.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, cast

from gangline.engine.model import Millis

#: number of transitions that are kept, of all workloads together
MOST_REMEMBERED: Final = 20_000


class State(Enum):
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


HOLDING: Final = frozenset({State.RESERVED, State.ADMITTED, State.WITHDRAWN, State.EVICTING})
_WAITING: Final = frozenset({State.PENDING, State.INADMISSIBLE})

#: the allowed transitions; staying in a state is always allowed. A HELD_BACK workload is PENDING, in a bucket that is held
#: back.
ALLOWED: Final[dict[State, frozenset[State]]] = {
    State.MOVING: frozenset({State.UNQUEUED, State.FINISHED, *_WAITING, *HOLDING}),
    State.UNQUEUED: frozenset({State.FINISHED, *_WAITING, *HOLDING}),
    State.PENDING: frozenset({State.MOVING, State.NOMINATED}),
    State.NOMINATED: frozenset({State.MOVING, State.UNQUEUED, State.FINISHED, *_WAITING, *HOLDING}),
    State.INADMISSIBLE: frozenset({State.MOVING}),
    State.RESERVED: frozenset({State.ADMITTED, State.WITHDRAWN, State.EVICTING, State.MOVING}),
    State.ADMITTED: frozenset({State.RESERVED, State.WITHDRAWN, State.EVICTING, State.MOVING}),
    State.WITHDRAWN: frozenset({State.RESERVED, State.ADMITTED, State.EVICTING, State.MOVING}),
    State.EVICTING: frozenset({State.RESERVED, State.ADMITTED, State.WITHDRAWN, State.MOVING}),
    State.FINISHED: frozenset(),
}
#: (admitted, evicting) -> the state of a holder
HOLDER: Final = {
    (False, False): State.RESERVED,
    (True, False): State.ADMITTED,
    (False, True): State.WITHDRAWN,
    (True, True): State.EVICTING,
}
#: transient states: not recorded in the journal
_FLEETING: Final = frozenset({State.MOVING, State.NOMINATED})


class TransitionError(RuntimeError):
    """A transition that is not in `ALLOWED`: a bug of the engine, which costs this workload alone."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of a workload's story. `at` is None until the next decision states the time."""

    at: Millis | None
    workload: str
    uid: str
    before: State | None  # None: the workload was not known before
    after: State
    cause: str  # one sentence, "" where the states say it all
    decision: str  # the kind of decision that caused it, "" = a fact


#: Cells of one transition as it is stored: workload, uid, before, after, cause, decision.
_WIDTH: Final = 6


class Subject(Protocol):
    """The part of a workload that the journal needs: its last recorded state and cause, and their row while the moment
    lasts.
    """

    key: str
    uid: str
    noted: State | None
    noted_cause: str
    noted_row: int

    @property
    def state(self) -> State: ...


class Journal:
    """The journal: the last transitions of all workloads, oldest first.

    A *moment* is a call of `decide` with the facts since the one before. States that are entered and left within one moment are
    not recorded. Rows are flat tuples, not objects: thousands of objects would make every garbage collection longer.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        #: the time, and then the cells of each transition
        self._past: deque[Millis | State | str | None] = deque(maxlen=most * (_WIDTH + 1))
        self._moment: list[State | str | None] = []
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

    def note(self, workload: Subject, cause: str = "", decision: str = "", state: State | None = None) -> None:
        """The workload's state, or the reason for it, differs from the one recorded last. `state` is that of the workload, if
        the caller has it at hand.
        """
        state, before = state or workload.state, workload.noted
        if state in _FLEETING or (before is state and (not cause or workload.noted_cause == cause)):
            return
        moment, place = self._moment, workload.noted_row - self._first
        passed_through = before is State.UNQUEUED or (before is state and not workload.noted_cause)
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
