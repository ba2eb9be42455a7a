"""A workload in the engine: its last fact, what follows from it, and its present state."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from gangline.engine.model import Admission, Millis, PodSet, Settings, Workload
from gangline.engine.model.units import whole_second
from gangline.engine.occupancy.node_ledger import NodeLedger
from gangline.engine.queues.states import ALLOWED, HOLDER, Journal, LifecycleState, TransitionError
from gangline.engine.quota.quota_ledger import Cell, FlavorResource, QuotaNode
from gangline.engine.topology.placement import asks, node_needs
from gangline.engine.topology.topologies import NodeNeeds

#: resource -> index of the flavor at which the last scan stopped, -1 = the last flavor; one mapping per pod set
ScanProgress = tuple[Mapping[str, int], ...]
#: no uids
NO_UIDS: frozenset[str] = frozenset()
#: the family of a workload that is no variant
NO_FAMILY: Mapping[str, WorkloadState] = {}


@dataclass(slots=True)
class CountedPodSet:
    """A pod set as it counts now: without its finished pods."""

    pod_set: PodSet
    count: int

    @property
    def name(self) -> str:
        return self.pod_set.name


@dataclass(slots=True)
class LastScan:
    """How far the flavor scan got, and whether that is still valid."""

    tried: ScanProgress
    shape: WorkloadShape
    cycle: int
    generation: int
    #: the flushes of its tree before the scan looked at its first flavor
    began: int
    #: another workload of the same cycle took what one of its flavors had
    overtaken: bool


class WorkloadShape:
    """What makes workloads interchangeable for the scheduler (an equivalence class); compared by value, hashed once."""

    __slots__ = ("__weakref__", "_hash", "value")

    def __init__(self, value: Hashable) -> None:
        self.value = value
        self._hash = hash(value)

    @staticmethod
    def of(value: Hashable) -> WorkloadShape:
        """The one object for all workloads of this shape: dictionaries find the same object without comparing its value."""
        found = _SHAPES.get(value)
        if found is None:
            found = _SHAPES[value] = WorkloadShape(value)
        return found

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, WorkloadShape) and self._hash == other._hash and self.value == other.value
        )


_SHAPES: WeakValueDictionary[Hashable, WorkloadShape] = WeakValueDictionary()


class Bucket:
    """Waiting workloads of one shape. `inadmissible`: the shape does not fit for the time being."""

    __slots__ = ("inadmissible",)

    @property
    def blocked(self) -> bool:
        """Whether no workload of the bucket is offered, or only some are."""
        return self.inadmissible

    def __init__(self, *, inadmissible: bool = False) -> None:
        self.inadmissible = inadmissible


class WorkloadState:
    """One workload. Compared by identity; everything that orders it is computed once per fact."""

    __slots__ = (
        "_state",
        "admission",
        "admitted",
        "admitted_at",
        "allowed_flavors",
        "asked_checks",
        "backfilled",
        "bucket",
        "cells",
        "closed_gates",
        "demands",
        "entry",
        "evicting",
        "family",
        "family_of",
        "groups",
        "healed",
        "inadmissible_alone",
        "journal",
        "key",
        "last_reason",
        "local_queue",
        "mends_at",
        "noted",
        "noted_cause",
        "noted_row",
        "overrun",
        "passed_by",
        "preempted_for_it",
        "priority",
        "progress",
        "promised",
        "queue",
        "ranked",
        "refusing",
        "removed",
        "replaces",
        "reported",
        "requeue_assumed",
        "reserved_at",
        "review_at",
        "room",
        "second_passes",
        "shape",
        "shrinks",
        "since",
        "succeeds",
        "uid",
        "usage",
        "variant",
        "verdict",
        "victim_key",
        "wants_topology",
        "workload",
        "yielding",
    )

    def __init__(self, workload: Workload, settings: Settings, journal: Journal) -> None:
        self.key = workload.key
        self.uid = workload.uid

        # state: changed by `enter` alone
        self._state = LifecycleState.MOVING
        #: it waits alone, not with its shape
        self.inadmissible_alone = False
        #: it runs: nothing stands between its quota and its start any more
        self.admitted = False
        #: it will lose its quota
        self.evicting = False
        self.journal = journal
        #: the state that the journal recorded last, the cause, and the row
        self.noted: LifecycleState | None = None
        self.noted_cause = ""
        self.noted_row = -1

        #: the ClusterQueue that it waits in or holds quota of
        self.queue: QuotaNode | None = None  # see `cluster_queue.queue_of`

        #: all variants of its parent by uid, itself included; and what they have in common: namespace, uid of the parent
        self.family: Mapping[str, WorkloadState] = NO_FAMILY
        self.family_of: tuple[str, str] | None = None
        #: the slice whose successor it is known to be (`Store.successors`)
        self.succeeds = ""

        # while it waits
        self.bucket: Bucket | None = None
        self.entry: Any = None  # its valid entry in the bucket's heap
        #: it was preempted for a workload that has not started yet
        self.yielding = False
        self.progress: LastScan | None = None
        #: the last failed attempt, and the (reason, message) with which it was requeued
        self.verdict: object | None = None  # see `assignment.verdict_of`
        self.last_reason: tuple[str, str] = ("", "")
        #: (reason, message) of the last ReportPending
        self.reported: tuple[str, str] = ("", "")
        #: its back-off is assumed to be over, though no fact says so yet
        self.requeue_assumed = False
        #: when its life cycle has to be reviewed
        self.review_at: Millis | None = None

        #: uids of workloads preempted so that it can start: they do not start before it, and none is preempted for it twice
        self.preempted_for_it = NO_UIDS
        #: when the first start was promised to it since it waits, and that start; None = none yet. And the keys of the workloads
        #: that were backfilled before it since. A reservation may come and go meanwhile
        self.promised: tuple[Millis, Millis] | None = None
        self.passed_by: set[str] = set()
        #: its rank in a timed queue, its estimate there, and its rank as a candidate; None = not computed
        self.ranked: tuple[object, float, Millis, float] | None = None

        # while it holds quota
        self.admission: Admission | None = None
        #: in whole seconds, as Kubernetes writes times
        self.reserved_at: Millis = 0
        self.admitted_at: Millis = 0
        #: its usage; a flavor that it uses with quantity 0 is included
        self.usage: dict[FlavorResource, int] = {}
        self.cells: list[tuple[Cell, int]] = []
        #: where its pods are counted on nodes, None if it holds nothing
        self.room: NodeLedger | None = None
        #: lost nodes under it that a decision already moves it away from, though no fact says so yet
        self.healed: set[str] = set()
        #: nodes that refuse pods of it, and that it was moved off for that reason
        self.refusing: set[str] = set()
        self.victim_key: tuple[int, int, str] = (0, 0, "")
        #: how far it is known to be past its forecast, see engine.state.overrun
        self.overrun = ""
        #: checks that were listed for it, though no fact says so yet; None = none were
        self.asked_checks: tuple[str, ...] | None = None
        #: failed attempts to place its pods after its checks, or those of a failed node
        self.second_passes = 0
        #: when pods of its failed node are placed elsewhere, as in Kueue; None = it has none
        self.mends_at: Millis | None = None
        #: removed from the ledger by a trial
        self.removed = False
        #: it was backfilled: admitted before a workload that precedes it and has a reservation
        self.backfilled = False

        self.workload = workload
        #: the key of the slice that it replaces, "" = of none
        self.replaces = _replaced(workload, settings)
        self.priority = _priority(workload, settings)
        self._take_in_pod_sets(workload, settings)
        self.learn(workload, settings)

    @property
    def backs_off(self) -> bool:
        """Whether the workload may not be tried yet: it waits for a time, or for the end of what evicted it."""
        workload = self.workload
        return (workload.requeued is False or workload.requeue_at is not None) and not self.requeue_assumed

    def learn(self, workload: Workload, settings: Settings) -> None:
        """Set a new fact; the workload's state does not change here."""
        last = self.workload
        old = (last.pod_sets, last.reclaimable, last.allowed_flavors, last.replaces, last.job_uid, self.priority)
        priority = _priority(workload, settings)
        self.workload, self.priority = workload, priority
        self.replaces = _replaced(workload, settings)
        #: its closed preemption gates, where they are heeded
        self.closed_gates = workload.preemption_gates if settings.preemption_gates else ()
        #: it is one of several variants of a workload, where there may be any
        self.variant = bool(workload.variant_of) and settings.concurrent_admission
        self.backfilled = self.backfilled or workload.backfilled
        self.ranked = None
        self.local_queue = f"{workload.namespace}/{workload.queue}"
        self.requeue_assumed = False
        self.asked_checks = None
        self.since = queue_time(workload, settings)
        new = (workload.pod_sets, workload.reclaimable, workload.allowed_flavors, workload.replaces, workload.job_uid)
        if (*new, priority) != old:
            self._take_in_pod_sets(workload, settings)
        self.order_as_victim()

    def _take_in_pod_sets(self, workload: Workload, settings: Settings) -> None:
        ended = workload.reclaimable if settings.gates.get("ReclaimablePods", True) else dict[str, int]()
        self.demands = tuple(_demand(pod_set, ended) for pod_set in workload.pod_sets)
        self.wants_topology = any(asks(pod_set) for pod_set in workload.pod_sets)
        #: it may start with fewer pods
        self.shrinks = any(pod_set.min_count is not None for pod_set in workload.pod_sets)
        #: indices of pod sets that share flavors
        self.groups = _groups(workload.pod_sets)
        demands = tuple(_shape(demand) for demand in self.demands)
        #: the only flavors that it may use; None = any
        self.allowed_flavors = allowed = workload.allowed_flavors if settings.concurrent_admission else None
        value = (self.priority, demands) if allowed is None else (self.priority, demands, allowed)
        # what a slice asks for depends on the one that it replaces, if that is of its job: no other workload is like it
        self.shape = WorkloadShape.of((*value, self.replaces, workload.job_uid) if self.replaces else value)

    def order_as_victim(self) -> None:
        self.victim_key = (self.priority, -self.reserved_at, self.uid)

    @property
    def state(self) -> LifecycleState:
        """The state. A workload may be inadmissible, or held back, with its shape, without having been tried itself."""
        if self._state is LifecycleState.PENDING and self.bucket is not None and self.bucket.blocked:
            return LifecycleState.INADMISSIBLE if self.bucket.inadmissible else LifecycleState.HELD_BACK
        return self._state

    def enter(self, state: LifecycleState, cause: str = "", decision: str = "") -> None:
        """The one way to another state. `cause` is a sentence for the story, if it differs from the last one. Raises
        TransitionError.
        """
        old = self._state
        if state is old:
            return
        if state not in ALLOWED[old]:
            raise TransitionError(f"{self.key}: {state.value} can't follow {old.value}")
        self._state = state
        if old is not LifecycleState.PENDING:
            self.inadmissible_alone = self.admitted = self.evicting = False
        if state is LifecycleState.MOVING or state is LifecycleState.NOMINATED:
            return
        if state is LifecycleState.PENDING:
            state = self.state
            if self.noted is state:
                return  # tried, and requeued where it was
        elif state is LifecycleState.INADMISSIBLE:
            self.inadmissible_alone = True
        else:
            self.admitted = state is LifecycleState.ADMITTED or state is LifecycleState.EVICTING
            self.evicting = state is LifecycleState.EVICTING or state is LifecycleState.WITHDRAWN
        self.journal.note(self, cause, decision, state)

    def evict(self, cause: str, decision: str = "Evict") -> None:
        """Note that the workload is going to lose its quota."""
        self.enter(HOLDER[self.admitted, True], cause, decision)

    @property
    def started_at(self) -> Millis:
        """The time since which the workload runs, or holds quota if it does not run yet."""
        return self.admitted_at if self.admitted else self.reserved_at

    def unsaved(self, now: Millis) -> Millis:
        """The part of the workload's runtime that is lost if it stops now: since its last checkpoint, or its start."""
        ran = max(0, now - self.admitted_at) if self.admitted else 0
        return ran - self.workload.kept(ran)

    def requests(self) -> dict[str, int]:
        """What all pods of the workload count for in quota, by resource."""
        total: dict[str, int] = {}
        for demand in self.demands:
            for resource, amount in demand.pod_set.counted.items():
                total[resource] = total.get(resource, 0) + amount * demand.count
        return total

    def node_needs(self, admission: Admission) -> NodeNeeds:
        """What the placed pods take of nodes, where quota counts them otherwise."""
        return node_needs((demand.pod_set for demand in self.demands), admission)

    @property
    def holds(self) -> bool:
        return self.admission is not None

    def __lt__(self, other: WorkloadState) -> bool:
        return False  # heap entries that are equal so far belong to one workload: any order will do

    def __repr__(self) -> str:
        return f"Gang({self.key})"


def _replaced(workload: Workload, settings: Settings) -> str:
    """The key of the slice that a workload replaces; "" for none, or one that it cannot replace."""
    key = workload.replaces if settings.elastic_jobs else ""
    return key if key.startswith(f"{workload.namespace}/") and key != workload.key else ""


def _priority(workload: Workload, settings: Settings) -> int:
    return workload.priority + (workload.boost if settings.gates.get("PriorityBoost", False) else 0)


def queue_time(workload: Workload, settings: Settings) -> Millis:
    """When the workload's wait began, in whole seconds: creation, except after some evictions."""
    gates, ready = settings.gates, settings.pods_ready
    evicted = whole_second(workload.evicted_at)
    if workload.evicted in ("PodsReadyTimeout", "PodsRefused") and (ready is None or ready.timestamp != "Creation"):
        return evicted
    if workload.evicted in ("AdmissionCheck", "Overrun"):
        return evicted
    if workload.preempted == "InCohortReclaimWhileBorrowing" and not gates.get("PrioritySortingWithinCohort", True):
        return evicted + 1
    return whole_second(workload.created)


def _demand(pod_set: PodSet, reclaimable: Mapping[str, int]) -> CountedPodSet:
    return CountedPodSet(pod_set, max(0, pod_set.count - reclaimable.get(pod_set.name, 0)))


def _groups(pod_sets: tuple[PodSet, ...]) -> tuple[tuple[int, ...], ...]:
    """Single pod sets, and those of one group together at the position of its first member."""
    groups: dict[str, list[int]] = {}
    for index, pod_set in enumerate(pod_sets):
        group = pod_set.topology.group if pod_set.topology else ""
        groups.setdefault(f"group {group}" if group else f"{index}", []).append(index)
    return tuple(tuple(members) for members in groups.values())


def _shape(demand: CountedPodSet) -> Hashable:
    """What makes two pod sets interchangeable for the scheduler."""
    pod_set = demand.pod_set
    return (
        pod_set.name,
        demand.count,
        pod_set.min_count,
        tuple(sorted(pod_set.requests.items())),
        None if pod_set.quota is None else tuple(sorted(pod_set.quota.items())),
        tuple(sorted(pod_set.charges.items())) if pod_set.charges else (),
        pod_set.shares,
        tuple(sorted(pod_set.node_selector.items())),
        pod_set.tolerations,
        pod_set.affinity,
        pod_set.preferred_affinity,
        pod_set.topology,
        pod_set.shape,
        pod_set.exclusive,
        pod_set.domains,
        pod_set.traits,
        pod_set.most_per_node,
    )
