"""The attempt of a head in a scheduling cycle, and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.flavors.assignment import Assignment, Mode
from gangline.engine.model import Admit, Millis, Preempt
from gangline.engine.preemption.moves import Room
from gangline.engine.preemption.preemptor import Victim
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState

# --- cycle record -----------------------------------------------------------------------------------------------------
# What happened in one scheduling cycle, in full: for tests, recorded scenarios and inspection.


@dataclass(frozen=True, slots=True)
class Requeued:
    """A head that was not reserved."""

    workload: str
    mode: str  # NoFit | Preempt | DeferredFit | Fit
    borrowing: int  # height
    status: str  # "skipped" or ""
    requeue_reason: str
    reason: str
    flavors: Mapping[str, Mapping[str, str]]  # pod set -> resource -> flavor, as far as one was found
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CycleRecord:
    heads: tuple[str, ...]
    #: root cohort (or ClusterQueue without one) -> workloads in the order of processing
    order: Mapping[str, tuple[str, ...]]
    reserved: tuple[Admit, ...]
    preempted: tuple[Preempt, ...]
    requeued: tuple[Requeued, ...]


# --- attempt ----------------------------------------------------------------------------------------------------------


# outcomes, as Kueue names them
NO_FIT, NO_CANDIDATES = "NoFit", "PreemptionNoCandidates"
PENDING, FAILED = "PendingPreemption", "FailedAfterNomination"
GATED, MIGRATING = "PreemptionGated", "PendingMigration"
GENERIC = ""

#: the reason while PodsReady blocks admission
NOT_READY = "WaitingForPodsReady"
#: the reason of workloads that are not admitted whatever is free
MISCONFIGURED = "Misconfigured"
#: the reason of workloads that would delay a reservation
HELD_BACK = "WaitingForReservation"
#: the reason of workloads that would preempt others if a preemption gate were open, and of variants that wait for no quota
ADMISSION_GATED, WAITS_ITS_TURN = "AdmissionGated", "PendingEvaluation"
#: the reason of tasks of an array of which as many run as may
ARRAY_LIMIT = "WaitingForArrayTasks"
#: the reason of workloads that would preempt others beyond a limit
PREEMPTION_LIMITED = "PreemptionLimited"
NEEDS_GATE = "Workload requires preemption, but it's gated"
WAIT_READY = "waiting for all admitted workloads to be in PodsReady condition"
NO_LONGER_FITS = "Workload no longer fits after processing another workload"
STILL_THERE = "Workload fits only once preempted workloads have stopped"
OVERLAP = "Workload has overlapping preemption targets with another workload"


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a gang that fits may not start: it would delay a reservation that starts at `horizon`."""

    horizon: Millis
    message: str
    #: others of its shape would delay none
    alone: bool = False


@dataclass(slots=True, eq=False)
class Attempt:
    """What a head got in this cycle."""

    gang: WorkloadState
    queue: ClusterQueueState
    assignment: Assignment
    victims: list[Victim]
    #: the queue's generation when flavors were assigned
    generation: int
    requeue_reason: str = GENERIC
    reserved: bool = False
    #: it found nothing, and flavors that its scan refused in an earlier cycle may have room since
    outdated: bool = False
    skipped: str = ""  # why, in words
    blocked: str = ""  # the reason, if it fits but may not be reserved now
    others_inadmissible: bool = False  # others of its shape became inadmissible with it
    deferred: bool = False
    recomputed: bool = False  # earlier attempts chose some of its victims, so they were looked for again
    backfilled: bool = False
    objection: Objection | None = None
    #: the admitted sibling that is evicted so that this variant can start
    migrates: WorkloadState | None = None
    new_victims: list[Victim] = field(default_factory=list[Victim])
    #: where those go that move to make room for it
    homes: dict[WorkloadState, Room] = field(default_factory=dict["WorkloadState", "Room"])

    @property
    def mode(self) -> str:
        if self.deferred:
            return "DeferredFit"
        return {Mode.NO_FIT: "NoFit", Mode.FIT: "Fit"}.get(self.assignment.mode, "Preempt")


# --- cycle tally ------------------------------------------------------------------------------------------------------
# What scheduling cycles came to since the process started, for metrics.


#: what came of another search for victims, after earlier attempts of the cycle had chosen some of them
NEW_TARGETS, DEFERRED_FIT, SKIPPED = "new_targets", "deferred_fit", "skipped"
_PASSED_OVER: Final = (OVERLAP, NO_LONGER_FITS)


@dataclass(slots=True)
class CycleTally:
    #: attempts of heads
    attempts: int = 0
    #: ClusterQueue -> heads that had victims and were passed over, since others of the cycle needed the same; of the last cycle
    #: in which it had any
    preemption_skips: dict[str, int] = field(default_factory=dict[str, int])
    #: (ClusterQueue, outcome) -> searches for victims that were made again
    recomputations: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def note(self, attempts: Iterable[Attempt]) -> None:
        """Count one cycle."""
        skips: dict[str, int] = {}
        for attempt in attempts:
            self.attempts += 1
            queue = attempt.queue.name
            passed_over = attempt.skipped in _PASSED_OVER
            if passed_over and attempt.victims:
                skips[queue] = skips.get(queue, 0) + 1
            if attempt.recomputed:
                found = NEW_TARGETS if attempt.victims and not passed_over else SKIPPED
                self.recomputations[queue, DEFERRED_FIT if attempt.deferred else found] += 1
        self.preemption_skips.update(skips)

    def forget(self, queue: str) -> None:
        """A ClusterQueue was deleted."""
        self.preemption_skips.pop(queue, None)
        for outcome in (NEW_TARGETS, DEFERRED_FIT, SKIPPED):
            self.recomputations.pop((queue, outcome), None)
