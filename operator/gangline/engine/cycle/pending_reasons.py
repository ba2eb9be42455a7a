"""Reports to waiting workloads why they wait: when the reason is new, and only so many of them at a time."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from gangline.engine.cycle.attempt import ADMISSION_GATED, HELD_BACK, WAITS_ITS_TURN, Attempt
from gangline.engine.cycle.explanations import NOT_TRIED, attempted, gated, message_of, reason_of, unplaced
from gangline.engine.flavors.assignment import Mode, verdict_of
from gangline.engine.model import Decision, Explanation, Millis, ReportPending
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store

#: Workloads per `decide` that only share the shape of one that was tried; later calls report to the others.
ECHOES = 64
#: Pause before the next of them, in milliseconds.
ECHO_PAUSE = 1000


#: A moved reservation is reported at most this often, in milliseconds.
MOVED_PAUSE = 60_000


class Reserving(Protocol):
    """The part that knows reservations (`engine.backfill.backfill`)."""

    def remark(self, gang: WorkloadState) -> str: ...
    def reserved_gangs(self) -> list[WorkloadState]: ...


class PendingReasons:
    def __init__(self, store: Store, reserving: Reserving) -> None:
        self._store = store
        self._reserving = reserving
        #: when reserved starts were last reported
        self._start_reported: dict[str, Millis] = {}
        self._tried: dict[str, Attempt] = {}
        #: workloads that still need the report that the representative of their shape got
        self._echoes: deque[WorkloadState] = deque()

    def note(self, attempt: Attempt) -> None:
        """An attempt was made; the last one of a workload counts in the end."""
        self._tried[attempt.gang.key] = attempt

    def next_due(self, now: Millis) -> Millis | None:
        return now + ECHO_PAUSE if self._echoes else None

    def report_unplaced(self, gang: WorkloadState) -> Decision | None:
        """A fact about a waiting workload arrived: report if it is in no queue, or in an inactive one."""
        if gang.holds or gang.workload.finished or (gang.backs_off and gang.workload.active):
            return None
        if gang.workload.admission is not None:  # the parent of variants: one of these holds its quota
            return None
        explanation = unplaced(gang, self._store)
        if explanation is not None and explanation.reason == WAITS_ITS_TURN:  # its variants get the reasons
            return None
        if explanation is not None:
            return self._report_pending(gang, explanation)
        queue = queue_of(gang)
        if queue is None:
            return None
        if queue.pending.representative(gang) is not gang:
            self._echoes.append(gang)
            return None
        return self._report_again(gang, queue)

    def _report_again(self, gang: WorkloadState, queue: ClusterQueueState) -> Decision | None:
        """Report the reason of the last attempt again, where another one was reported meanwhile: nothing has changed, so the
        workload is not tried again and that reason holds.
        """
        verdict, reported = verdict_of(gang), gang.attempts.reported[0]
        if (
            verdict is None
            or not reported
            or reported == gang.attempts.last_reason[0]
            or not gang.attempts.last_reason[0]
        ):
            return None
        _note_reported(gang, gang.attempts.last_reason)
        return ReportPending(gang.key, gang.uid, attempted(queue, *gang.attempts.last_reason, verdict))

    def tell_tried(self) -> list[Decision]:
        tried, self._tried = self._tried, {}
        decisions: list[Decision] = []
        for key, attempt in tried.items():
            gang = attempt.gang
            if attempt.reserved or gang.holds or self._store.gangs.get(key) is not gang:
                continue
            message = message_of(attempt) + self._on_windows(gang, attempt)
            gang.attempts.last_reason = (reason_of(attempt) or "NoMatchingFlavor", message)
            if attempt.others_inadmissible:
                self._echoes.extend(attempt.queue.pending.unreported_mates(gang, gang.attempts.last_reason[0]))
            if attempt.queue.timed and self._reserving.remark(gang):
                continue
            if gang.attempts.reported != gang.attempts.last_reason:
                reason, message = gang.attempts.last_reason
                explanation = attempted(attempt.queue, reason, message, attempt.assignment)
                if reason == ADMISSION_GATED:
                    explanation = gated(explanation, gang)
                decisions.append(ReportPending(gang.key, gang.uid, explanation))
                _note_reported(gang, gang.attempts.last_reason)
        return decisions

    def _on_windows(self, gang: WorkloadState, attempt: Attempt) -> str:
        """What is added to the reason of a workload that finds too little room, where a Reservation keeps some nodes."""
        windows, capacity = self._store.windows, self._store.capacity
        if not windows or attempt.assignment.mode is Mode.FIT:
            return ""
        flavors = {offered.name for group in attempt.queue.config.groups for offered in group.flavors}
        return windows.remark(gang, sorted(flavors), capacity.nodes_of_flavor)

    def report_reserved(self, now: Millis) -> list[Decision]:
        """Report to workloads with a reservation why they cannot start now, and when they will. Moves are reported once a
        minute.
        """
        decisions: list[Decision] = []
        reported: dict[str, Millis] = {}
        for gang in self._reserving.reserved_gangs():
            queue, last = queue_of(gang), self._start_reported.get(gang.key)
            if last is not None:
                reported[gang.key] = last
            if queue is None or gang.holds or (last is not None and now < last + MOVED_PAUSE):
                continue
            speaker = queue.pending.representative(gang)
            verdict = verdict_of(speaker)
            if (
                verdict is None
                or not speaker.attempts.last_reason[0]
                or (speaker is not gang and speaker.attempts.last_reason[0] == HELD_BACK)
            ):
                continue
            reason, message = (
                speaker.attempts.last_reason[0],
                speaker.attempts.last_reason[1] + self._reserving.remark(gang),
            )
            if gang.attempts.reported != (reason, message):
                gang.attempts.reported = (reason, message)
                gang.journal.note(gang, f"{reason}: {message}", "ReportPending")
                decisions.append(ReportPending(gang.key, gang.uid, attempted(queue, reason, message, verdict)))
            reported[gang.key] = now
        self._start_reported = reported
        return decisions

    def tell_echoes(self) -> list[Decision]:
        decisions: list[Decision] = []
        while self._echoes and len(decisions) < ECHOES:
            gang = self._echoes.popleft()
            queue = queue_of(gang)
            if queue is None or gang.holds or self._store.gangs.get(gang.key) is not gang:
                continue
            representative = queue.pending.representative(gang)
            verdict = verdict_of(representative)
            if (
                representative is gang
                or verdict is None
                or gang.attempts.reported[0] == representative.attempts.last_reason[0]
            ):
                continue
            _note_reported(gang, representative.attempts.last_reason)
            explanation = attempted(queue, *representative.attempts.last_reason, verdict)
            decisions.append(ReportPending(gang.key, gang.uid, explanation, by_equivalence=True))
        return decisions

    def _report_pending(self, gang: WorkloadState, explanation: Explanation) -> Decision | None:
        said = (explanation.reason, explanation.message)
        if gang.attempts.reported == said:
            return None
        _note_reported(gang, said)
        return ReportPending(gang.key, gang.uid, explanation)


def _note_reported(gang: WorkloadState, reason: tuple[str, str]) -> None:
    gang.attempts.reported = reason
    gang.journal.note(gang, f"{reason[0]}: {reason[1]}", "ReportPending")
    queue = queue_of(gang)
    if queue is not None:
        queue.pending.note_reported(gang)


def why(gang: WorkloadState, store: Store) -> Explanation | None:
    """Why a workload waits, as of now; None if it holds quota."""
    if gang.holds or gang.workload.admission is not None:
        return None
    explanation = unplaced(gang, store)
    queue = queue_of(gang)
    if explanation is not None or queue is None:
        return explanation
    if not store.may_try(gang):
        return Explanation(
            "PendingEvaluation",
            NOT_TRIED,
            needs="The back-off of the workload must end before it is tried again.",
        )
    return _why_queued(gang, queue, store)


def _why_queued(gang: WorkloadState, queue: ClusterQueueState, store: Store) -> Explanation:
    representative = queue.pending.representative(gang)
    verdict = verdict_of(representative)
    if verdict is None and (blocked := _behind_head(gang, queue)) is not None:
        return blocked
    if verdict is None:
        return Explanation(
            "PendingEvaluation",
            NOT_TRIED,
            needs="Those ahead of it in its ClusterQueue go first.",
        )
    explanation = attempted(queue, *representative.attempts.last_reason, verdict, store.capacity)
    return gated(explanation, gang) if explanation.reason == ADMISSION_GATED else explanation


def _behind_head(gang: WorkloadState, queue: ClusterQueueState) -> Explanation | None:
    """Why the workload was not tried: the head of its StrictFIFO queue was, and waits. Until the head starts, or leaves, nobody
    else does. None where that is not so.
    """
    head = queue.pending.head() if queue.pending.strict else None
    verdict = verdict_of(head) if head is not None and head is not gang else None
    if head is None or verdict is None or not head.attempts.last_reason[0]:
        return None
    its = attempted(queue, *head.attempts.last_reason, verdict)
    never = its.reason in ("ExceedsMaxQuota", "NoMatchingFlavor")
    return Explanation(
        "PendingEvaluation",
        f"Workload waits behind {head.key}, which is first in the StrictFIFO ClusterQueue {queue.name}"
        f" and {'can never start as things are' if never else 'cannot start yet'}",
        needs=f"{head.key} must start, be deleted or be deactivated. {its.needs}".rstrip(),
    )
