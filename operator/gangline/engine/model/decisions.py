"""Decisions: what the engine wants written, and the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gangline.engine.model.units import Millis
from gangline.engine.model.workloads import Admission


@dataclass(frozen=True, slots=True)
class Explanation:
    """The one cause that binds, in words and as data."""

    reason: str  # a QuotaReserved=False reason: WaitingForQuota, NoMatchingFlavor, ExceedsMaxQuota, …
    message: str  # the message that Kueue writes into the condition, byte for byte
    pod_set: str = ""
    flavor: str = ""
    resource: str = ""
    requested: int = 0
    available: int = 0
    short: int = 0  # how much is missing now
    holders: tuple[str, ...] = ()  # workloads that hold what is missing, largest first
    needs: str = ""  # what would have to happen, as one sentence
    position: int | None = None  # 0-based, in the ClusterQueue
    preemption_gates: tuple[str, ...] = ()  # closed gates without which others would be preempted for it
    not_queued: bool = False  # what it asks for cannot be counted: it is not even queued until it can


@dataclass(frozen=True, slots=True)
class Admit:
    """Reserve quota. `admitted` is True where no admission check stands between reservation and start."""

    workload: str
    uid: str
    admission: Admission
    admitted: bool
    at: Millis
    #: admission checks that apply from now on, to be listed as Pending in the status.
    checks: tuple[str, ...] = ()
    #: the workload starts before a reserved head that precedes it in queue order; recorded with the workload
    backfilled: bool = False
    #: where a placement policy that is tried out would put its pods, "" = there is none
    preview: str = ""
    #: how a search has found its places, "" = none was needed
    searched: str = ""


@dataclass(frozen=True, slots=True)
class AskChecks:
    """Exactly these admission checks apply now: the queue's changed while the workload waits for them, or it waits for quota."""

    workload: str
    uid: str
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompleteAdmission:
    """Complete an admission whose checks are all Ready: Admitted becomes True."""

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
    """Evict for a reason other than preemption (reasons as in Kueue's Evicted condition).

    `deactivate` also sets spec.active=false. `requeue_at` is the end of the back-off; None means no back-off by time.
    """

    workload: str
    uid: str
    reason: str
    message: str
    deactivate: bool = False
    requeue_at: Millis | None = None
    requeue_count: int | None = None
    #: a workload that is not running yet (quota reserved only) loses its quota at once with this eviction.
    underlying_cause: str = ""
    #: of a PodsReadyTimeout: what the workload waited for, "" = as its condition PodsReady says
    waited_for: str = ""
    #: nodes that failed the workload, recorded with it
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Release the quota of a workload that is not admitted yet, since its queue is being deleted. That is one write, and nothing
    is evicted.
    """

    workload: str
    uid: str
    #: "ClusterQueue main", "LocalQueue main"
    ended: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """The back-off is over (or the queue is active again): the Requeued condition becomes True."""

    workload: str
    uid: str
    reason: str  # BackoffFinished | Reactivated | ClusterQueueRestarted | LocalQueueRestarted


@dataclass(frozen=True, slots=True)
class ReportPending:
    """The workload waits: its QuotaReserved=False condition should say why. Emitted only when the reason changed."""

    workload: str
    uid: str
    explanation: Explanation
    #: the workload was not tried itself, another one of the same shape was. Written with low priority, since there may be
    #: many.
    by_equivalence: bool = False


@dataclass(frozen=True, slots=True)
class Swap:
    """Replace the placement of a running workload (a node is replaced, or a delayed topology is now known)."""

    workload: str
    uid: str
    admission: Admission


@dataclass(frozen=True, slots=True)
class Heal:
    """Nodes were lost under a running workload, which keeps its quota while its pods move.

    `how` is "Replace" (only the lost pods are replaced, the others keep running) or "Restart" (the whole gang stops and starts
    again; it keeps the domains that lost no node).
    """

    workload: str
    uid: str
    how: str
    lost: tuple[str, ...]  # nodes
    cause: str  # the health signal: NotReady, Deleted, …
    message: str
    detected_at: Millis
    at: Millis
    #: only pods leave these nodes that were sent there and can't be bound; those that are bound stay
    bound_stay: bool = False


@dataclass(frozen=True, slots=True)
class Warn:
    """An event for users, without other consequences, on `about` (a workload key, or a node's name)."""

    kind: str  # Workload | Node | ClusterQueue
    about: str
    reason: str
    message: str


Decision: TypeAlias = (
    Admit | AskChecks | CompleteAdmission | Preempt | Evict | Withdraw | Requeue | ReportPending | Swap | Heal | Warn
)
