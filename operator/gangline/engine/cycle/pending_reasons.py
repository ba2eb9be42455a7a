"""Telling those that wait why they wait: when the reason is news, and not more of it at a time than is of use."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from gangline.engine.cycle.attempt import HELD_BACK, Attempt
from gangline.engine.cycle.explanations import attempted, message_of, reason_of, unplaced
from gangline.engine.flavors.assignment import verdict_of
from gangline.engine.model import Decision, Explanation, Millis, Park
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.workload_state import Gang
from gangline.engine.state.store import Store

#: Gangs told per `decide` that only share the shape of one that was tried; the others are told by later ones.
ECHOES = 64
#: How soon the next of them are told, in milliseconds.
ECHO_PAUSE = 1000


#: How soon one that is reserved a start is told that it has moved, in milliseconds.
MOVED_PAUSE = 60_000


class Reserving(Protocol):
    """Who knows of reservations (`engine.backfill.backfill`)."""

    def remark(self, gang: Gang) -> str: ...
    def reserved_gangs(self) -> list[Gang]: ...


class Parking:
    def __init__(self, store: Store, reserving: Reserving) -> None:
        self._store = store
        self._reserving = reserving
        #: when those that are reserved a start were last told of it
        self._told_start: dict[str, Millis] = {}
        self._tried: dict[str, Attempt] = {}
        #: gangs to be told what their shape's spokesman was told
        self._echoes: deque[Gang] = deque()

    def note(self, attempt: Attempt) -> None:
        """An attempt was made; what counts in the end is a gang's last one."""
        self._tried[attempt.gang.key] = attempt

    def next_due(self, now: Millis) -> Millis | None:
        return now + ECHO_PAUSE if self._echoes else None

    def tell_unplaced(self, gang: Gang) -> Decision | None:
        """Something was said of a gang that waits: is it in no queue, or in one that takes no heads?"""
        if gang.holds or gang.workload.finished or gang.workload.requeued is False:
            return None
        explanation = unplaced(gang, self._store)
        if explanation is not None:
            return self._park(gang, explanation)
        queue = queue_of(gang)
        if queue is not None and queue.pending.spokesman(gang) is not gang:
            self._echoes.append(gang)
        return None

    def tell_tried(self) -> list[Decision]:
        tried, self._tried = self._tried, {}
        decisions: list[Decision] = []
        for key, attempt in tried.items():
            gang = attempt.gang
            if attempt.reserved or gang.holds or self._store.gangs.get(key) is not gang:
                continue
            gang.answer = (reason_of(attempt) or "NoMatchingFlavor", message_of(attempt))
            if attempt.parked_others:
                self._echoes.extend(attempt.queue.pending.untold_mates(gang, gang.answer[0]))
            if attempt.queue.timed and self._reserving.remark(gang):
                continue
            if gang.told != gang.answer:
                reason, message = gang.answer
                explanation = attempted(attempt.queue, reason, message, attempt.assignment, with_holders=False)
                decisions.append(Park(gang.key, gang.uid, explanation))
                _note_told(gang, gang.answer)
        return decisions

    def tell_reserved(self, now: Millis) -> list[Decision]:
        """Those that are reserved a start: why they can't start now, and when they will. Moves are told once a minute."""
        decisions: list[Decision] = []
        told: dict[str, Millis] = {}
        for gang in self._reserving.reserved_gangs():
            queue, last = queue_of(gang), self._told_start.get(gang.key)
            if last is not None:
                told[gang.key] = last
            if queue is None or gang.holds or (last is not None and now < last + MOVED_PAUSE):
                continue
            speaker = queue.pending.spokesman(gang)
            verdict = verdict_of(speaker)
            if verdict is None or not speaker.answer[0] or (speaker is not gang and speaker.answer[0] == HELD_BACK):
                continue
            reason, message = speaker.answer[0], speaker.answer[1] + self._reserving.remark(gang)
            if gang.told != (reason, message):
                gang.told = (reason, message)
                decisions.append(
                    Park(gang.key, gang.uid, attempted(queue, reason, message, verdict, with_holders=False))
                )
            told[gang.key] = now
        self._told_start = told
        return decisions

    def tell_echoes(self) -> list[Decision]:
        decisions: list[Decision] = []
        while self._echoes and len(decisions) < ECHOES:
            gang = self._echoes.popleft()
            queue = queue_of(gang)
            if queue is None or gang.holds or self._store.gangs.get(gang.key) is not gang:
                continue
            spokesman = queue.pending.spokesman(gang)
            verdict = verdict_of(spokesman)
            if spokesman is gang or verdict is None or gang.told[0] == spokesman.answer[0]:
                continue
            _note_told(gang, spokesman.answer)
            explanation = attempted(queue, *spokesman.answer, verdict, with_holders=False)
            decisions.append(Park(gang.key, gang.uid, explanation, by_equivalence=True))
        return decisions

    def _park(self, gang: Gang, explanation: Explanation) -> Decision | None:
        said = (explanation.reason, explanation.message)
        if gang.told == said:
            return None
        _note_told(gang, said)
        return Park(gang.key, gang.uid, explanation)


def _note_told(gang: Gang, told: tuple[str, str]) -> None:
    gang.told = told
    queue = queue_of(gang)
    if queue is not None:
        queue.pending.was_told(gang)


def why(gang: Gang, store: Store) -> Explanation | None:
    """Why a gang waits, as of now; None if it holds quota."""
    if gang.holds:
        return None
    explanation = unplaced(gang, store)
    queue = queue_of(gang)
    if explanation is not None or queue is None:
        return explanation
    if not store.may_try(gang):
        return Explanation(
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
            needs="Its back-off must end before it is tried again.",
        )
    return _why_queued(gang, queue)


def _why_queued(gang: Gang, queue: ClusterQueueState) -> Explanation:
    spokesman = queue.pending.spokesman(gang)
    verdict = verdict_of(spokesman)
    if verdict is None:
        return Explanation(
            "PendingEvaluation",
            "Workload is pending evaluation in the scheduling queue",
            needs="Those ahead of it in its ClusterQueue go first.",
        )
    return attempted(queue, *spokesman.answer, verdict, with_holders=True)
