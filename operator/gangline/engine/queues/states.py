"""The states of a workload, which may follow which, and the journal of what has happened to each.

    Unqueued ──▶ Pending ◀──▶ Nominated ──▶ QuotaReserved ──▶ Admitted ──▶ Finished
                 │    ▲                          │                │
                 ▼    │                          ▼                ▼
          Inadmissible / HeldBack ◀───────── Evicting ◀──────── Evicting

`WorkloadState.enter` is the one function that changes a state; what is not in `ALLOWED` raises TransitionError.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from gangline.engine.model import Millis

#: transitions that are remembered, of all workloads together
MOST_REMEMBERED: Final = 20_000


class State(Enum):
    """Where a workload is. Values are what users read."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is that of the name, and slow

    #: on its way from one place to another, within one call
    MOVING = "Moving"
    #: no ClusterQueue takes it: its LocalQueue or ClusterQueue is missing, stopped or does not select its namespace
    UNQUEUED = "Unqueued"
    #: in the order of its ClusterQueue
    PENDING = "Pending"
    #: the head that the present scheduling cycle tries
    NOMINATED = "Nominated"
    #: it can't be admitted for the time being: it is tried again when something is released
    INADMISSIBLE = "Inadmissible"
    #: it would fit, but a workload with a reservation would start later
    HELD_BACK = "HeldBack"
    #: it has quota; admission checks, or the places of its pods, are still open
    RESERVED = "QuotaReserved"
    #: it runs, or may
    ADMITTED = "Admitted"
    #: it loses its quota before it was admitted
    WITHDRAWN = "Withdrawn"
    #: it was admitted and is being stopped; it holds its quota until its pods are gone
    EVICTING = "Evicting"
    #: it is over, or deleted
    FINISHED = "Finished"


HOLDING: Final = frozenset({State.RESERVED, State.ADMITTED, State.WITHDRAWN, State.EVICTING})
_WAITING: Final = frozenset({State.PENDING, State.INADMISSIBLE})

#: what may follow; staying in a state is always allowed. A HELD_BACK workload is PENDING, in a bucket that is held back.
ALLOWED: Final[dict[State, frozenset[State]]] = {
    State.MOVING: frozenset({State.UNQUEUED, State.NOMINATED, State.FINISHED, *_WAITING, *HOLDING}),
    State.UNQUEUED: frozenset({State.FINISHED, *_WAITING, *HOLDING}),
    State.PENDING: frozenset({State.MOVING}),
    State.NOMINATED: frozenset({State.MOVING}),
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
#: between two places: not worth a line in the journal
_FLEETING: Final = frozenset({State.MOVING, State.NOMINATED})


class TransitionError(RuntimeError):
    """A state was to follow another that it must not follow: a bug of ours, which costs this workload alone."""


@dataclass(slots=True)
class Transition:
    """One line of a workload's story. `at` is None until the next decision says what time it is."""

    at: Millis | None
    workload: str
    uid: str
    before: State | None  # None: it was not known before
    after: State
    cause: str  # one sentence, "" where the states say it all
    decision: str  # the kind of decision that it came from, "" = a fact


class Subject(Protocol):
    """A workload, as far as its story goes; `noted` is the last line of it."""

    key: str
    uid: str
    noted: Transition | None

    @property
    def state(self) -> State: ...


class Journal:
    """What has happened to workloads: the last transitions of all together, oldest first."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._ring: deque[Transition] = deque(maxlen=most)
        self._undated: deque[Transition] = deque(maxlen=most)
        self._now: Millis | None = None
        #: facts are taken in that were known before: nothing of it is news
        self.resting = False

    def begin(self, now: Millis) -> None:
        """A call of `decide`: what facts have changed since the last one is dated with it."""
        self._now = now
        while self._undated:
            self._undated.popleft().at = now

    def end(self) -> None:
        self._now = None

    def note(self, workload: Subject, cause: str = "", decision: str = "") -> None:
        """The workload is in another state than was noted last, or for another reason."""
        state, last = workload.state, workload.noted
        if state in _FLEETING or (last is not None and last.after is state and (not cause or last.cause == cause)):
            return
        same_moment = last is not None and last.at in (None, self._now)
        if (
            last is not None
            and same_moment
            and (last.after is State.UNQUEUED or (last.after is state and not last.cause))
        ):
            last.after, last.cause, last.decision = state, cause, decision  # it had only just come there
            return
        before = last.after if last is not None else None
        entry = workload.noted = Transition(self._now, workload.key, workload.uid, before, state, cause, decision)
        if not self.resting:
            self._ring.append(entry)
            if self._now is None:
                self._undated.append(entry)

    def story(self, workload: str) -> tuple[Transition, ...]:
        """What is remembered of the workload with this key, and of those that had its name before, oldest first."""
        return tuple(entry for entry in self._ring if entry.workload == workload)
