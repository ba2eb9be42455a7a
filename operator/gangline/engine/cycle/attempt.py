"""The attempt of a head in a scheduling cycle, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.engine.flavors.assignment import Assignment, Mode
from gangline.engine.model import Millis
from gangline.engine.preemption.preemptor import Victim
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState

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

    @property
    def mode(self) -> str:
        if self.deferred:
            return "DeferredFit"
        return {Mode.NO_FIT: "NoFit", Mode.FIT: "Fit"}.get(self.assignment.mode, "Preempt")
