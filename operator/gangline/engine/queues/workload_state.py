"""A workload in the engine: its last fact, what follows from it, and its present state."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gangline.engine.model import Admission, Millis, PodSet, Settings, Workload
from gangline.engine.model.units import whole_second
from gangline.engine.queues.states import ALLOWED, HOLDER, NEEDS, Journal, LifecycleState, TransitionError
from gangline.engine.queues.workload_parts import (
    NO_NAMES,
    AttemptHistory,
    BackfillRecord,
    LifecycleRecord,
    NodesHeld,
    QuotaHeld,
    WorkloadShape,
)
from gangline.engine.quota.quota_ledger import QuotaNode
from gangline.engine.topology.placement_request import NodeNeeds, asks, node_needs

#: a workload that goes after all others is ordered as if it had come so much later
BEHIND: Millis = 100 * 365 * 24 * 3_600_000

#: Shapes by the identity of their pod sets, which whoever reads workloads shares among those that ask for the same. The pod sets
#: are kept here, so that no other one has that identity.
_KNOWN_SHAPES: dict[Hashable, tuple[WorkloadShape, tuple[PodSet, ...]]] = {}
_MOST_KNOWN = 4096

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
        "admitted",
        "allowed_flavors",
        "attempts",
        "backfill",
        "bucket",
        "closed_gates",
        "demands",
        "ends_before",
        "entry",
        "evicting",
        "family",
        "family_of",
        "goes_after",
        "groups",
        "inadmissible_alone",
        "journal",
        "key",
        "left_out",
        "lifecycle",
        "local_queue",
        "nodes",
        "noted",
        "noted_cause",
        "noted_row",
        "priority",
        "queue",
        "quota",
        "ranked",
        "replaces",
        "shape",
        "shrinks",
        "since",
        "succeeds",
        "uid",
        "variant",
        "victim_key",
        "wants_topology",
        "windows",
        "workload",
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

        # what the packages of the engine keep about it, see `workload_parts.OWNERS`
        self.quota = QuotaHeld()
        self.nodes = NodesHeld()
        self.backfill = BackfillRecord()
        self.attempts = AttemptHistory()
        self.lifecycle = LifecycleRecord()

        #: the ClusterQueue that it waits in or holds quota of
        self.queue: QuotaNode | None = None  # see `cluster_queue.queue_of`
        #: all variants of its parent by uid, itself included; and what they have in common: namespace, uid of the parent
        self.family: Mapping[str, WorkloadState] = NO_FAMILY
        self.family_of: tuple[str, str] | None = None
        #: the slice whose successor it is known to be (`Store.successors`)
        self.succeeds = ""
        #: its bucket while it waits, and its valid entry there
        self.bucket: Bucket | None = None
        self.entry: Any = None
        #: its rank in a timed queue, its estimate there, and its rank as a candidate; None = not computed
        self.ranked: tuple[object, float, Millis, float] | None = None
        #: its rank as a victim, see `order_as_victim`
        self.victim_key: tuple[int, int, str] = (0, 0, "")

        self.workload = workload
        #: while it waits it goes after all others of its priority
        self.goes_after = False
        #: the key of the slice that it replaces, "" = of none
        self.replaces = _replaced(workload, settings)
        self.priority = _priority(workload, settings)
        #: the flavors that it may not get now, since another one was chosen for it (`backfill.flavor_choice`)
        self.left_out = NO_NAMES
        #: the windows of Reservations on whose nodes it may run, by name (`nodes.windows`)
        self.windows = NO_NAMES
        #: the changes of quotas before which it will have ended, by name (`quotas_ahead`)
        self.ends_before = NO_NAMES
        self._take_in_pod_sets(workload, settings)
        self.learn(workload, settings)

    @property
    def backs_off(self) -> bool:
        """Whether the workload may not be tried yet: it waits for a time, or for the end of what evicted it."""
        workload = self.workload
        return (workload.requeued is False or workload.requeue_at is not None) and not self.lifecycle.requeue_assumed

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
        self.backfill.learn(workload.backfilled)
        self.lifecycle.learn()
        self.ranked = None
        self.local_queue = f"{workload.namespace}/{workload.queue}"
        self.since = self.turn_of(workload, settings)
        new = (workload.pod_sets, workload.reclaimable, workload.allowed_flavors, workload.replaces, workload.job_uid)
        if (*new, priority) != old:
            self._take_in_pod_sets(workload, settings)
        self.order_as_victim()

    def go_after_others(self, after: bool, settings: Settings) -> None:
        """Whether the workload goes after all others of its priority; to be called while it is in no queue's order."""
        if after is not self.goes_after:
            self.goes_after, self.ranked = after, None
            self.since = self.turn_of(self.workload, settings)

    def turn_of(self, workload: Workload, settings: Settings) -> Millis:
        """The time that orders the workload among those of its priority, if this is its last fact."""
        return queue_time(workload, settings) + (BEHIND if self.goes_after else 0)

    @property
    def own_turn(self) -> Millis:
        """`since` without what a budget that is used up adds."""
        return self.since - (BEHIND if self.goes_after else 0)

    def learn_alike(self, workload: Workload) -> None:
        """Set a new fact that changes nothing about the workload's chances and its position."""
        self.workload = workload

    def join(self, queue: QuotaNode) -> None:
        """Wait in this ClusterQueue from now on."""
        self.queue = queue

    def leave_queue(self) -> None:
        """Be in no ClusterQueue from now on: neither wait in one nor hold its quota."""
        self.queue = None

    def join_family(self, family: Mapping[str, WorkloadState], of: tuple[str, str] | None) -> None:
        """Be one of these variants from now on; `of` is what they have in common, None = be no variant."""
        self.family, self.family_of = family, of

    def succeed(self, key: str) -> None:
        """Be known as the successor of this slice, "" = of none."""
        self.succeeds = key

    def _take_in_pod_sets(self, workload: Workload, settings: Settings) -> None:
        ended = workload.reclaimable if settings.gates.get("ReclaimablePods", True) else dict[str, int]()
        self.demands = tuple(_demand(pod_set, ended) for pod_set in workload.pod_sets)
        if self.windows:
            self.demands = tuple(_in_windows(demand, self.windows) for demand in self.demands)
        self.wants_topology = any(asks(pod_set) for pod_set in workload.pod_sets)
        #: it may start with fewer pods
        self.shrinks = any(pod_set.min_count is not None for pod_set in workload.pod_sets)
        #: indices of pod sets that share flavors
        self.groups = _groups(workload.pod_sets)
        #: the only flavors that it may use; None = any
        self.allowed_flavors = workload.allowed_flavors if settings.concurrent_admission else None
        self._take_shape()

    def use_windows(self, windows: frozenset[str]) -> bool:
        """Let the workload run on the nodes of these windows, and of no others. Returns whether that is a change. It must be in
        no bucket then, or get back what it had before anybody looks: its shape changes.
        """
        if windows == self.windows:
            return False
        self.windows = windows
        self.demands = tuple(_in_windows(demand, windows) for demand in self.demands)
        self._take_shape()
        return True

    def set_ends(self, before: frozenset[str]) -> bool:
        """Let the workload be one that will have ended before these changes of quotas. Returns whether that is a change, as for
        `use_windows`.
        """
        if before == self.ends_before:
            return False
        self.ends_before = before
        self._take_shape()
        return True

    def leave_out(self, flavors: frozenset[str]) -> None:
        """Let the workload get none of these flavors until this is called again. As for `use_windows`, its shape changes."""
        if flavors != self.left_out:
            self.left_out = flavors
            self._take_shape()

    @contextmanager
    def without(self, flavors: frozenset[str]) -> Generator[None]:
        """Ask about the workload as if it could get none of these flavors."""
        before = self.left_out
        self.leave_out(flavors)
        try:
            yield
        finally:
            self.leave_out(before)

    def _take_shape(self) -> None:
        replaces = (self.replaces, self.workload.job_uid) if self.replaces else None
        sizes = tuple([(id(demand.pod_set), demand.count) for demand in self.demands])
        key = (self.priority, sizes, self.allowed_flavors, self.ends_before, self.left_out, replaces)
        known = _KNOWN_SHAPES.get(key)
        if known is None:
            if len(_KNOWN_SHAPES) >= _MOST_KNOWN:
                _KNOWN_SHAPES.clear()
            pod_sets = tuple(demand.pod_set for demand in self.demands)
            known = _KNOWN_SHAPES[key] = self._compute_shape(), pod_sets
        self.shape = known[0]

    def _compute_shape(self) -> WorkloadShape:
        workload, allowed = self.workload, self.allowed_flavors
        demands = tuple(_shape(demand) for demand in self.demands)
        value = (self.priority, demands) if allowed is None else (self.priority, demands, allowed)
        if self.ends_before:
            value = (*value, self.ends_before)
        if self.left_out:
            value = (*value, "without", self.left_out)
        # what a slice asks for depends on the one that it replaces, if that is of its job: no other workload is like it
        return WorkloadShape.of((*value, self.replaces, workload.job_uid) if self.replaces else value)

    def order_as_victim(self) -> None:
        self.victim_key = (self.priority, -self.quota.reserved_at, self.uid)

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
        if state is not LifecycleState.MOVING:
            quota, bucket = NEEDS[state]
            if (self.quota.admission is not None) is not quota or (self.bucket is not None) is not bucket:
                raise TransitionError(
                    f"{self.key}: {state.value} needs other facts about quota and queue than there are"
                )
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
        return self.quota.admitted_at if self.admitted else self.quota.reserved_at

    def unsaved(self, now: Millis) -> Millis:
        """The part of the workload's runtime that is lost if it stops now: since its last checkpoint, or its start."""
        ran = max(0, now - self.quota.admitted_at) if self.admitted else 0
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
        return self.quota.admission is not None

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
    if _keeps_place(workload):
        return whole_second(workload.created)
    if workload.evicted in ("PodsReadyTimeout", "PodsRefused") and (ready is None or ready.timestamp != "Creation"):
        return evicted
    if workload.evicted in ("AdmissionCheck", "Overrun"):
        return evicted
    if workload.preempted == "InCohortReclaimWhileBorrowing" and not gates.get("PrioritySortingWithinCohort", True):
        return evicted + 1
    return whole_second(workload.created)


def _keeps_place(workload: Workload) -> bool:
    """Whether it was evicted since the scheduler found no node for its pods, and the job is not the cause."""
    unscheduled = workload.unscheduled
    return workload.evicted == "PodsReadyTimeout" and unscheduled is not None and not unscheduled.by_job


def _demand(pod_set: PodSet, reclaimable: Mapping[str, int]) -> CountedPodSet:
    return CountedPodSet(pod_set, max(0, pod_set.count - reclaimable.get(pod_set.name, 0)))


def _in_windows(demand: CountedPodSet, windows: frozenset[str]) -> CountedPodSet:
    return CountedPodSet(replace(demand.pod_set, windows=windows), demand.count)


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
        pod_set.windows,
    )
