"""The words of the engine: the facts that flow in and the decisions that flow out.

Every value is plain and immutable. Quantities are integers in canonical units (cpu in milli-cpu, every other resource in
whole units, rounded up). Times are integers: milliseconds since the epoch. Identity of a namespaced item is its key
`"namespace/name"`; of a cluster-scoped one its name.

Facts are level-triggered: `Put(item)` states the whole truth about one object (a workload with its spec *and* the parts of
its status that decide), `Gone` says it is no more. The order in which facts about different objects arrive does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

#: A quota of this size or more is unlimited; sums saturate here (Kueue uses int64).
UNLIMITED = 2**63 - 1

#: A swap budget counts the nodes that were replaced under a gang within this time, in milliseconds.
SWAP_WINDOW = 3_600_000

Millis: TypeAlias = int
Requests: TypeAlias = Mapping[str, int]


# --- selection: taints, tolerations, affinity -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a label: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


#: Required node affinity: terms are ORed, the expressions of a term are ANDed. Empty = no affinity.
Affinity: TypeAlias = tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    weight: int
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """`match_labels` are folded into `expressions` (operator In). No expressions = selects everything."""

    expressions: tuple[Expression, ...] = ()


# --- configuration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flavor:
    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""
    #: somebody adds nodes when pods need them: what its present nodes can hold does not bound it
    autoscaled: bool = False


@dataclass(frozen=True, slots=True)
class Quota:
    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    name: str
    resources: Mapping[str, Quota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    covered: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True)
class Cohort:
    name: str
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Fungibility:
    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = ""


@dataclass(frozen=True, slots=True)
class PreemptionPolicy:
    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: str = "Never"
    max_priority_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Ordering:
    """Who goes first among workloads of equal priority (QueuePolicy.spec.order).

    `AgedShortestFirst` orders by `submit + age_weight · expected`: short ones pass long ones, but never by more than that.
    """

    #: Priority | FairShare | ShortestFirst | AgedShortestFirst | SmallestFirst | HighestResponseRatio
    key: str = "Priority"
    age_weight: float = 10.0
    #: AgedShortestFirst: longer ones count as if they were expected to run this long; None = as forecast
    age_cap_seconds: float | None = None
    half_life_seconds: float = 604_800.0
    #: who waited this long goes before all others of its priority, whatever the key
    max_wait_seconds: float | None = None
    #: what of a forecast counts as the expected runtime: 0 the median, 1 the Gittins index (`runtime`), between their weighted
    #: geometric mean
    optimism: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Running gangs that declare checkpoints stand back for a reserved head (QueuePolicy.spec.backfill.giveWay)."""

    longer_than: float = 3.0  # they are expected to go on for so many times the head's own expected runtime
    loss_share: float = 0.2  # all of them lose at most this share of what the head has waited, in resource seconds
    min_runtime_seconds: float = 900.0  # they have run for at least this long
    #: in place of `longer_than` for those that were let in before their turn; None = no other rule for them
    longer_than_backfilled: float | None = None
    max_preemptions: int | None = None  # who was preempted so often, whatever for, is not asked any more
    #: share of the queue's quota that may be lost in a day; as that is used up, heads may cost less (`losses`); None = never less
    loss_budget: float | None = None


@dataclass(frozen=True, slots=True)
class Backfill:
    """Reservations for those at the head, and who may start before them (QueuePolicy.spec.backfill)."""

    depth: int = 1  # reservations kept: 0 = off, 1 = EASY, UNLIMITED = conservative
    candidates: str = "QueueOrder"  # QueueOrder | ShortestFirst | LargestFirst | BestFit | AgedShortestFirst
    max_candidates: int = 1000
    running: float = 0.5  # quantile at which running workloads are taken to end
    candidate: float = 0.9  # quantile at which candidates are taken to end
    revoke: str = "Never"  # Never | Overdue | Any
    #: a backfilled workload is overdue when it ran this many times its candidate quantile
    overdue_factor: float = 1.0
    give_way: GiveWay | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What happens when nodes fail (QueuePolicy.spec.recovery)."""

    enabled: bool = True
    spares: int = 0  # nodes, or exclusive domains, of each flavor that are held back
    spares_percent: float = 0.0  # … or this share of them, rounded up; the larger counts
    lend: bool = True
    preempt_to_heal: bool = True
    soak_seconds: float = 60.0
    swap_budget: int = 5  # nodes that may be replaced under one gang within SWAP_WINDOW
    toleration_seconds: int | None = None  # injected into pods on start; None = not
    #: more than this share of a flavor's nodes lost within a minute: swap nothing, say so, wait
    breaker_share: float = 0.5
    force_delete: bool = False  # consent to force deletion of pods on nodes that cannot be reached
    #: move to a spare already when a node is about to leave; never at the cost of others
    proactive: bool = False


@dataclass(frozen=True, slots=True)
class Overrun:
    """What happens to workloads that run longer than forecast (QueuePolicy.spec.overrun); see engine.overrun."""

    warn_at: float = 0.9  # the quantile of its own forecast after which a workload counts as warned
    overdue_factor: float = 3.0  # overdue after this many times that
    action: str = "Notify"  # None | Notify | Requeue | Deactivate
    grace_seconds: float = 0.0  # from overdue to the action


@dataclass(frozen=True, slots=True)
class VictimPolicy:
    """Who is stopped to make room, within what `PreemptionPolicy` allows (QueuePolicy.spec.preemption).

    `choice` is about those that gangs of the queue preempt; the rest protects the queue's own gangs from anybody, see
    engine.protection.
    """

    choice: str = "Kueue"  # Kueue | LeastLostWork | FewestGangs
    non_preemptible_from: int | None = None  # never those of this priority or higher …
    non_preemptible_gpus: int | None = None  # … nor those that ask for so many accelerators or more, all pods together
    min_runtime_seconds: float = 0.0  # not for so long after their start
    max_preemptions: int | None = None  # not those that were preempted this often


@dataclass(frozen=True, slots=True)
class CheckRef:
    """An admission check that a ClusterQueue asks for; `on_flavors` empty = for every flavor."""

    name: str
    on_flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    name: str
    cohort: str = ""
    strategy: str = "BestEffortFIFO"
    groups: tuple[ResourceGroup, ...] = ()
    fungibility: Fungibility = Fungibility()
    preemption: PreemptionPolicy = PreemptionPolicy()
    weight: float = 1.0
    #: None selects no namespace, `LabelSelector()` selects all (as in Kueue).
    namespace_selector: LabelSelector | None = LabelSelector()
    stop_policy: str = "None"
    checks: tuple[CheckRef, ...] = ()
    #: "UsageBasedAdmissionFairSharing" orders pending workloads by the decayed usage of their LocalQueue.
    admission_mode: str = ""
    terminating: bool = False
    #: labels of the object, by which a QueuePolicy may select it.
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    #: named fixes of Kueue quirks that a QueuePolicy turns on for it, in addition to `Settings.fixes`; see engine.fixes
    fixes: frozenset[str] = frozenset()
    #: what a QueuePolicy says beyond Kueue; None = as Kueue
    ordering: Ordering | None = None
    backfill: Backfill | None = None
    recovery: Recovery | None = None
    overrun: Overrun | None = None
    victims: VictimPolicy | None = None


@dataclass(frozen=True, slots=True)
class LocalQueue:
    namespace: str
    name: str
    cluster_queue: str
    stop_policy: str = "None"
    weight: float = 1.0
    terminating: bool = False
    #: admission fair sharing: consumed resources so far and when they were last decayed (status of the object).
    consumed: Mapping[str, float] = field(default_factory=dict[str, float])
    consumed_at: Millis = 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    name: str
    controller: str = ""
    active: bool = True


@dataclass(frozen=True, slots=True)
class Topology:
    """Node label keys, top level first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    allocatable: Requests = field(default_factory=dict[str, int])
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    uid: str = ""
    #: type -> (status, when it last changed); Ready=Unknown is told from Ready=False here
    conditions: Mapping[str, tuple[str, Millis]] = field(default_factory=dict[str, tuple[str, Millis]])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    #: what the hardware has (status.capacity): more than allocatable means degraded devices
    capacity: Requests = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A bound, unfinished pod that Gangline does not account for itself: it takes node capacity from topology flavors."""

    key: str
    node: str
    requests: Requests


# --- what is known of runs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuntimeForecast:
    """How long a workload will run, from its start to its end, as quantiles; a fact like any other, replaced by newer ones.

    `quantiles` are (level, milliseconds) with rising levels. What it means for a run that has lasted a while is the
    engine's arithmetic (`engine.runtime`): conditional on the time that it has taken, never in the past.
    """

    workload: str  # key
    quantiles: tuple[tuple[float, Millis], ...]
    source: str = ""  # Model, Hint, Limit, Class, Queue, Global, …
    samples: int = 0
    #: flavor -> the same for a run there, where it takes longer or shorter on some than on others and may get any of them
    by_flavor: Mapping[str, tuple[tuple[float, Millis], ...]] = field(
        default_factory=dict[str, tuple[tuple[float, int], ...]]
    )


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of a workload that sits on a node and has not ended."""

    name: str
    pod_set: str
    node: str
    index: int | None = None  # rank in its pod set
    ready: bool = False
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Footprint:
    """Where the pods of a workload are. Complete: what is not in here is not bound."""

    workload: str  # key
    pods: tuple[BoundPod, ...]
    #: pods that failed by the fault of their node, with that: (name, node)
    failed: tuple[tuple[str, str], ...] = ()


# --- workloads --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slice:
    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """At most one of `required`, `preferred`, `unconstrained`; `slices` outermost first."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slices: tuple[Slice, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class PodSet:
    name: str
    count: int
    requests: Requests  # per pod
    min_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity = ()
    preferred_affinity: tuple[PreferredTerm, ...] = ()
    topology: TopologyRequest | None = None
    #: digest of what else shapes the pods (ports, runtime class, claims, …): equal shapes are interchangeable.
    shape: str = ""
    #: node label key of which `domains` values are each taken for itself alone (JobSet exclusive-topology)
    exclusive: str = ""
    domains: int = 0


@dataclass(frozen=True, slots=True)
class Domain:
    """Pods of one pod set in one topology domain; `values` from the top level down (hostname alone where that is lowest)."""

    values: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    levels: tuple[str, ...]
    domains: tuple[Domain, ...]


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    name: str
    count: int
    flavors: Mapping[str, str]  # resource -> flavor
    usage: Requests  # total over `count` pods
    topology: TopologyAssignment | None = None
    #: "" | "Pending" | "Ready": placement waits for a second pass.
    delayed_topology: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]


@dataclass(frozen=True, slots=True)
class CheckState:
    name: str
    state: str = "Pending"  # Pending | Ready | Retry | Rejected
    message: str = ""
    at: Millis = 0
    requeue_after_seconds: int | None = None
    retry_count: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A gang: what it asks for and what the cluster says of it so far."""

    uid: str
    namespace: str
    name: str
    queue: str  # LocalQueue name
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    boost: int = 0
    created: Millis = 0
    active: bool = True
    gates: tuple[str, ...] = ()  # entries of the admission-gated-by annotation
    max_execution_seconds: int | None = None
    #: what the user names it by and, for messages, the uid of the job that owns it.
    job_uid: str = ""

    # status
    admission: Admission | None = None  # not None = it holds quota (QuotaReserved=True)
    reserved_at: Millis = 0
    admitted: bool = False
    admitted_at: Millis = 0
    evicted: str = ""  # reason while Evicted=True, else ""
    evicted_at: Millis = 0
    preempted: str = ""  # reason while Preempted=True, else ""
    pods_ready: bool = False
    pods_ready_at: Millis = 0  # last transition of PodsReady
    pods_were_ready: bool = False  # PodsReady=False with reason WaitForRecovery
    finished: bool = False
    on_hold: bool = False  # QuotaReserved=False with reason OnHold
    #: status of the Requeued condition; None = no condition.
    requeued: bool | None = None
    requeue_count: int = 0
    requeue_at: Millis | None = None
    past_execution_seconds: int = 0
    preemptions: int = 0  # how often it was told to make room for others, over all its runs
    reclaimable: Mapping[str, int] = field(default_factory=dict[str, int])  # pod set -> finished pods
    checks: tuple[CheckState, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()

    # what Gangline remembers beyond Kueue's schema
    #: it was started before a reserved head that goes before it
    backfilled: bool = False
    #: work is lost in steps of this many seconds when it is stopped; None = all of it, from its start
    checkpoint_seconds: float | None = None
    #: when nodes were replaced under it, and how many; of the last SWAP_WINDOW at least
    replaced: tuple[tuple[Millis, int], ...] = ()
    #: nodes that failed it, from `Heal.lost` or `Evict.avoid` on until it runs complete again; others are preferred to them
    avoid: tuple[str, ...] = ()
    #: when it was last told to leave nodes (`Heal.at`, or of an `Evict` that names some): what failed later is another loss
    healed_at: Millis = 0
    #: it can't replace single pods: when some are lost, all of it starts again (JobSet)
    restarts_whole: bool = False
    #: how far it ran past its forecast in this run: "" | Warned | Overdue
    overrun: str = ""
    #: it was overdue in this run or an earlier one: its forecast is not to be relied on
    overran: bool = False
    #: what is done about it since it hangs: "" | Notify | Restart | Requeue
    stalled: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


# --- what flows in ----------------------------------------------------------------------------------------------------

Item: TypeAlias = (
    Flavor
    | Cohort
    | ClusterQueue
    | LocalQueue
    | Namespace
    | AdmissionCheck
    | Topology
    | Node
    | ForeignPod
    | RuntimeForecast
    | Footprint
    | Workload
)


@dataclass(frozen=True, slots=True)
class Put:
    item: Item


@dataclass(frozen=True, slots=True)
class Gone:
    kind: type[Item]
    key: str


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A decision about this workload could not be written; what the engine assumed of it is void.

    The next `Put` of the workload states the truth. Until then it is treated as its last `Put` said.
    """

    workload: str


Change: TypeAlias = Put | Gone | WriteFailed


# --- why --------------------------------------------------------------------------------------------------------------


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


# --- what flows out ---------------------------------------------------------------------------------------------------


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
    reset_checks: bool = False
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
class Park:
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


Decision: TypeAlias = Admit | CompleteAdmission | Preempt | Evict | Requeue | Park | Swap | Heal | Warn


# --- what the console and the statuses show ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    flavor: str
    resource: str
    total: int
    borrowed: int


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The live state of a ClusterQueue or LocalQueue, as their status shows it."""

    active: bool
    reason: str  # Active condition: Ready, Stopped, FlavorNotFound, …
    message: str
    pending: int
    reserving: int
    admitted: int
    reservation: tuple[ResourceUsage, ...]  # held by QuotaReserved workloads, every flavor and resource of the queue
    usage: tuple[ResourceUsage, ...]  # held by Admitted workloads
    weighted_share: int = 0
    #: admission fair sharing (LocalQueues): consumed so far in engine units, and when that was last decayed
    consumed: Mapping[str, float] = field(default_factory=dict[str, float])
    consumed_at: Millis = 0


# --- how the engine is set --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FairSharing:
    strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    half_life_seconds: float = 0.0
    sampling_interval_seconds: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class PodsReadyPolicy:
    """waitForPodsReady of Kueue's configuration."""

    timeout_seconds: float = 1800.0
    recovery_timeout_seconds: float | None = None  # None = as timeout
    block_admission: bool = False
    timestamp: str = "Eviction"  # Eviction | Creation
    backoff_limit: int | None = None
    backoff_base_seconds: float = 60.0
    backoff_max_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """What differs from the engine's table of health signals (`engine.health`)."""

    #: node condition type -> Lost | Suspect | LeavingSoon | DegradedDevice while it is True; Ignore = it says nothing
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    #: signal, as the table names it -> seconds that it must last before it counts
    grace_seconds: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Settings:
    """Cluster-wide settings; `gates` override Kueue's default feature gates by name."""

    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    pods_ready: PodsReadyPolicy | None = PodsReadyPolicy()
    gates: Mapping[str, bool] = field(default_factory=dict[str, bool])
    ignore_undeclared_resources: bool = False
    #: named fixes of Kueue quirks, per ClusterQueue name ("*" = all); see engine.fixes
    fixes: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    health: HealthPolicy = HealthPolicy()
