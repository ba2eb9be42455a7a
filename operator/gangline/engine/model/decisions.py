"""What flows out, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gangline.engine.model.units import Millis
from gangline.engine.model.workloads import Admission


@dataclass(frozen=True, slots=True)
class Explanation:
    """One binding cause, in words and in data."""

    reason: str  # a QuotaReserved=False reason: WaitingForQuota, NoMatchingFlavor, ExceedsMaxQuota, …
    message: str  # exactly what Kueue writes into the condition
    pod_set: str = ""
    flavor: str = ""
    resource: str = ""
    requested: int = 0
    available: int = 0
    short: int = 0  # how much is missing now
    holders: tuple[str, ...] = ()  # workloads that hold what is missing, largest first
    needs: str = ""  # what would have to happen, one sentence
    position: int | None = None  # 0-based, in the ClusterQueue


@dataclass(frozen=True, slots=True)
class Admit:
    """Reserve quota. `admitted` says that no admission check stands between reservation and start."""

    workload: str
    uid: str
    admission: Admission
    admitted: bool
    at: Millis
    #: admission checks that now apply, to be listed as Pending in the status.
    checks: tuple[str, ...] = ()
    #: it starts before a reserved head that goes before it; to be remembered with the workload
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class AskChecks:
    """The admission checks of its queue changed while it waits for them: exactly these apply."""

    workload: str
    uid: str
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompleteAdmission:
    """All admission checks are ready: Admitted becomes True."""

    workload: str
    uid: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Evict `workload` to make room for `by`. Its quota stays held until its job has stopped."""

    workload: str
    uid: str
    reason: str  # InClusterQueue | InCohortReclamation | InCohortFairSharing | InCohortReclaimWhileBorrowing
    message: str
    by: str
    by_uid: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict for a reason other than preemption (see kueue-api: Evicted reasons).

    `deactivate` also sets spec.active=false. `requeue_at` is the end of the back-off, None = not requeued by time.
    """

    workload: str
    uid: str
    reason: str
    message: str
    deactivate: bool = False
    requeue_at: Millis | None = None
    requeue_count: int | None = None
    #: holders without a running admission (quota reserved only) lose it at once with this eviction.
    underlying_cause: str = ""
    #: nodes that failed it, to be remembered with the workload
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requeue:
    """The back-off is over (or the queue runs again): the Requeued condition becomes True."""

    workload: str
    uid: str
    reason: str  # BackoffFinished | Reactivated | ClusterQueueRestarted | LocalQueueRestarted


@dataclass(frozen=True, slots=True)
class ReportPending:
    """The workload waits: its QuotaReserved=False condition should say why. Emitted only when the reason changed."""

    workload: str
    uid: str
    explanation: Explanation
    #: it was not tried itself: a gang of the same shape was. Of low priority, there may be many.
    by_equivalence: bool = False


@dataclass(frozen=True, slots=True)
class Swap:
    """Replace the placement of a running workload (node replacement, or a delayed topology that is now known)."""

    workload: str
    uid: str
    admission: Admission


@dataclass(frozen=True, slots=True)
class Heal:
    """Nodes were lost under a running workload; it keeps its quota and its pods move.

    `how` is "Replace" (only the lost pods are replaced, the others go on) or "Restart" (the whole gang stops and starts
    again; its untouched domains stay its own).
    """

    workload: str
    uid: str
    how: str
    lost: tuple[str, ...]  # nodes
    cause: str  # the health signal, in a word: NotReady, Deleted, …
    message: str
    detected_at: Millis
    at: Millis


@dataclass(frozen=True, slots=True)
class Warn:
    """Something that a user should hear of, without consequence: an event on `about` (a workload key, or a node's name)."""

    kind: str  # Workload | Node | ClusterQueue
    about: str
    reason: str
    message: str


Decision: TypeAlias = (
    Admit | AskChecks | CompleteAdmission | Preempt | Evict | Requeue | ReportPending | Swap | Heal | Warn
)
