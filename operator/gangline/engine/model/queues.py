"""What an administrator configures: flavors, quotas, cohorts, queues, admission checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from gangline.engine.model.company import CompanyPolicy
from gangline.engine.model.selection import LabelSelector, Taint, Toleration
from gangline.engine.model.units import Millis, millis, millis_or_none

# --- policies ---------------------------------------------------------------------------------------------------------
# What a QueuePolicy sets for a ClusterQueue, beyond Kueue's API.


#: A swap budget counts the nodes that were replaced under a gang within this time.
SWAP_WINDOW: Millis = 3_600_000


#: Orders that are as good as the forecasts are.
BY_FORECAST: Final = frozenset({"ShortestFirst", "AgedShortestFirst", "HighestResponseRatio"})


@dataclass(frozen=True, slots=True)
class OrderStep:
    """The order key of a ClusterQueue from an instant on."""

    at: Millis
    key: str
    #: the window of the policy that says so; "" = none is open, and the key is the policy's own
    window: str = ""


@dataclass(frozen=True, slots=True)
class OrderWhenFull:
    """Another order key while a ClusterQueue or its whole cohort is full (QueuePolicy.spec.order.whenFull).

    It counts as full once `above` of its quota is held, until less than `below` is.
    """

    key: str
    above: float = 0.9
    below: float = 0.75
    of: str = "Cohort"  # Cohort | ClusterQueue


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order of workloads of equal priority (QueuePolicy.spec.order).

    `AgedShortestFirst` orders by `submit + age_weight · expected`: short workloads pass long ones, but never by more than that.
    """

    #: Priority | FairShare | Demand | DemandDrf | ShortestFirst | AgedShortestFirst | SmallestFirst | LargestFirst |
    #: HighestResponseRatio
    key: str = "Priority"
    age_weight: float = 10.0
    #: AgedShortestFirst: longer workloads count as if they were expected to run this long; None = as forecast
    age_cap_seconds: float | None = None
    half_life_seconds: float = 604_800.0
    #: DemandDrf: what a LocalQueue's demand counts, against 1 - this for what it holds
    demand_weight: float = 0.5
    #: a workload that has waited this long precedes all others of its priority, whatever its key
    max_wait_seconds: float | None = None
    #: which figure of a forecast is the expected runtime: 0 the median, 1 the Gittins index (`runtime`), between them their
    #: weighted geometric mean
    optimism: float = 0.0
    #: keys that replace `key` from rising instants on, as far as that is known
    steps: tuple[OrderStep, ...] = ()
    #: while no window is open; None = never
    when_full: OrderWhenFull | None = None

    @property
    def changes(self) -> bool:
        """Whether the key is another one at times."""
        return bool(self.steps) or self.when_full is not None

    @property
    def keys(self) -> frozenset[str]:
        """The keys that it may have."""
        at_times = {step.key for step in self.steps}
        return frozenset({self.key} | at_times | ({self.when_full.key} if self.when_full is not None else set()))

    @property
    def age_cap(self) -> Millis | None:
        return millis_or_none(self.age_cap_seconds)

    @property
    def half_life(self) -> Millis:
        return millis(self.half_life_seconds)

    @property
    def max_wait(self) -> Millis | None:
        return millis_or_none(self.max_wait_seconds)


@dataclass(frozen=True, slots=True)
class CheckpointPreemption:
    """Running gangs that declare checkpoints are preempted for a reserved head (QueuePolicy.spec.backfill.giveWay)."""

    longer_than: float = 3.0  # a victim is expected to run for at least this many times the head's expected runtime
    loss_share: float = 0.2  # all victims lose at most this share of what the head has waited, in resource seconds
    min_runtime_seconds: float = 900.0  # a victim has run for at least this long
    #: in place of `longer_than` for backfilled workloads; None = no other rule for them
    longer_than_backfilled: float | None = None
    max_preemptions: int | None = None  # a workload preempted this often, for whatever reason, is not chosen any more

    @property
    def min_runtime(self) -> Millis:
        return millis(self.min_runtime_seconds)


@dataclass(frozen=True, slots=True)
class Backfill:
    """Reservations for heads, and which workloads may start before them (QueuePolicy.spec.backfill)."""

    depth: int = 1  # reservations kept: 0 = off, 1 = EASY, UNLIMITED = conservative
    candidates: str = "QueueOrder"  # QueueOrder | ShortestFirst | LargestFirst | BestFit | AgedShortestFirst
    max_candidates: int = 1000
    running: float = 0.5  # quantile at which running workloads are expected to end
    candidate: float = 0.9  # quantile at which candidates are expected to end
    revoke: str = "Never"  # Never | Overdue | Any
    #: a backfilled workload is overdue when it has run this many times its candidate quantile
    overdue_factor: float = 1.0
    #: the share of what the queue could use, over a reserved head's wait, that may be kept idle for it: others are held back only
    #: once that covers the plan (`backfill.idle_budget`); None = as soon as it is reserved
    idle_share: float | None = None
    checkpoint_preemption: CheckpointPreemption | None = None
    #: the share of the queue's quota that may be lost in any day by these evictions (`backfill.loss_budget`); None = no limit
    loss_budget: float | None = None
    #: what an eviction costs beside the work since the last checkpoint, as counted in the budget
    restart_seconds: float = 60.0

    @property
    def restart(self) -> Millis:
        return millis(self.restart_seconds)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What happens when nodes fail (QueuePolicy.spec.recovery)."""

    enabled: bool = True
    spares: int = 0  # nodes, or exclusive domains, of each flavor that are held back as spares
    spares_percent: float = 0.0  # … or this share of them, rounded up; the larger counts
    lend: bool = True
    preempt_to_heal: bool = True
    soak_seconds: float = 60.0
    swap_budget: int = 5  # nodes that may be replaced under one gang within SWAP_WINDOW
    toleration_seconds: int | None = None  # injected into pods on start; None = not
    #: circuit breaker: with more than this share of a flavor's nodes lost within a minute nothing is swapped, and a warning
    #: says so
    breaker_share: float = 0.5
    force_delete: bool = False  # permission to force deletion of pods on unreachable nodes
    #: move to a spare before a node leaves, never at the cost of other workloads
    proactive: bool = False
    #: a node is lost when its Lease is overdue and it does not answer either
    probe_nodes: bool = False
    #: the most time that remaining pods of a gang that starts again have to end; None = their own
    restart_grace_seconds: int | None = None

    @property
    def spent(self) -> str:
        """Why nodes are not replaced any more under a gang that has used up its budget."""
        return f"it has used up its budget of {self.swap_budget} swapped nodes an hour"

    @property
    def soak(self) -> Millis:
        return millis(self.soak_seconds)


@dataclass(frozen=True, slots=True)
class Overrun:
    """What happens to workloads that run longer than forecast (QueuePolicy.spec.overrun); see engine.state.overrun."""

    warn_at: float = 0.9  # the quantile of its own forecast after which a workload is in state Warned
    overdue_factor: float = 3.0  # a workload is Overdue after this many times that
    action: str = "Notify"  # None | Notify | Requeue | Deactivate
    grace_seconds: float = 0.0  # time from Overdue to the action

    @property
    def grace(self) -> Millis:
        return millis(self.grace_seconds)


@dataclass(frozen=True, slots=True)
class PlacementScore:
    """A scorer of a placement policy; an earlier tier decides first."""

    #: one of those in engine.placing.scorers
    name: str
    tier: int = 0
    weight: int = 1
    #: of scorers that look at a node label: its key, and the value that is better than others ("" = any)
    label: str = ""
    value: str = ""
    #: of scorers that weigh resources: cpu, memory, gpu; () = as the scorer does by itself
    weights: tuple[tuple[str, int], ...] = ()
    #: of scorers that look at a node's annotation: its key, and that of the deviation from it
    annotation: str = ""
    deviation: str = ""
    #: the numbers of the annotation that have 100 points and none
    least: int = 0
    most: int = 100
    #: TargetLoad: the load that has most points; RiskBalance: how much a small deviation counts
    target: int = 40
    sensitivity: int = 1
    #: Bandwidth: the resource of nodes
    resource: str = ""
    #: Plugin: the name of the entry point
    plugin: str = ""


#: Filters by what is free: of cards with a margin, of network interfaces.
MEM_SAFE: Final = "MemSafe"
BANDWIDTH_FIT: Final = "BandwidthFit"


@dataclass(frozen=True, slots=True)
class PlacementFilter:
    """What excludes nodes, whatever is free on them."""

    #: NodeLabel | ImagePresent | RDMA | NodeMetric | Telemetry | MemSafe | BandwidthFit
    name: str
    label: str = ""
    #: NodeLabel: one of these; () = any value
    values: tuple[str, ...] = ()
    #: RDMA: the resource of nodes, "" = any that stands for RDMA
    resource: str = ""
    #: NodeMetric: the key of the annotation, and the most and the least that it may say; Telemetry: the key of what the rule says
    annotation: str = ""
    most: int | None = None
    least: int | None = None
    #: MemSafe: thousandths of a card's memory that stay free, and MiB that a pod takes beyond what it asks for
    headroom: int = 50
    beyond: int = 600


#: what an accelerator counts on a node that does not say what it draws, in watts
USUAL_GPU_WATTS: Final = 700


@dataclass(frozen=True, slots=True)
class PowerCap:
    """What the nodes with one value of a label may draw together (QueuePolicy.spec.placement.power). It holds for all queues."""

    #: the label whose values are domains
    label: str
    #: of each domain, and of those that have another cap
    watts: int
    own: tuple[tuple[str, int], ...] = ()
    #: percent of the cap that may be used
    percent: int = 95
    #: of an accelerator on nodes that do not say
    gpu_watts: int = USUAL_GPU_WATTS
    #: the watts of JobProfiles are trusted
    measured: bool = False

    def watts_of(self, value: str) -> int:
        return next((watts for name, watts in self.own if name == value), self.watts)


@dataclass(frozen=True, slots=True)
class PlacementSearch:
    """A search for places, where those that are found first do not suffice (QueuePolicy.spec.placement.search)."""

    #: so many placements may be tried in a decision for the gangs of a namespace in a ClusterQueue
    budget: int = 200
    #: closer places are searched for where a gang has this many percent more hops than the least possible; None = never
    improve: int | None = None
    #: of the random numbers
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """The order of nodes for the pods of a queue (QueuePolicy.spec.placement).

    Flavors of the queue that have no topology of their own get one whose only level is the host.
    """

    #: one of those in engine.placing.profiles; `scores` replace its own, if there are any
    profile: str = "Fragmentation"
    scores: tuple[PlacementScore, ...] = ()
    filters: tuple[PlacementFilter, ...] = ()
    #: whom pods may have as company on cards and nodes; None = anybody
    interference: CompanyPolicy | None = None
    #: what power domains may draw, whichever queue their pods are of
    power: tuple[PowerCap, ...] = ()
    #: None = places are taken as they are found first
    search: PlacementSearch | None = None
    #: its choice is worked out and shown, and nothing follows from it
    dry_run: bool = False

    @property
    def by_bandwidth(self) -> bool:
        """Whether what is free of nodes' interfaces bounds pods."""
        return any(each.name == BANDWIDTH_FIT for each in self.filters)


@dataclass(frozen=True, slots=True)
class VictimPolicy:
    """Which workloads are stopped to make room, within what `PreemptionPolicy` allows (QueuePolicy.spec.preemption).

    `choice` and `converged_first` are about the victims of the queue's own preemptors; the other fields protect the queue's
    workloads from every preemptor, see engine.queues.protection.
    """

    choice: str = "Kueue"  # Kueue | LeastLostWork | FewestGangs
    non_preemptible_from: int | None = None  # workloads of this priority or higher are never victims
    non_preemptible_gpus: int | None = None  # nor those of this many accelerators or more, all pods together
    min_runtime_seconds: float = 0.0  # a workload is protected for this long after its start
    max_preemptions: int | None = None  # a workload preempted this often is protected
    #: of equal priority, victims whose training has converged come first
    converged_first: bool = False

    @property
    def min_runtime(self) -> Millis:
        return millis(self.min_runtime_seconds)


@dataclass(frozen=True, slots=True)
class PreemptionBounds:
    """The most preemptions; None = no limit."""

    per_hour: int | None = None
    lost_gpu_hours_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class PreemptionLimits:
    """How much a queue may preempt and be preempted (QueuePolicy.spec.preemptionLimits)."""

    causes: PreemptionBounds = PreemptionBounds()
    suffers: PreemptionBounds = PreemptionBounds()


@dataclass(frozen=True, slots=True)
class UnscheduledPods:
    """How long pods of admitted workloads may wait for the Kubernetes scheduler (QueuePolicy.spec.unscheduledPods)."""

    after_seconds: float = 300.0
    #: what a job may ask for at most; None = no more than that
    longest_seconds: float | None = None

    @property
    def after(self) -> Millis:
        return millis(self.after_seconds)

    @property
    def longest(self) -> Millis:
        return self.after if self.longest_seconds is None else millis(self.longest_seconds)


@dataclass(frozen=True, slots=True)
class Moves:
    """Running workloads of the queue are moved to other nodes where that makes room for a workload of such a queue that waits
    only because free room is scattered (QueuePolicy.spec.moves); see engine.preemption.moves.
    """

    lost_gpu_hours_per_day: float  # what workloads of the queue lose by moves within any 24 hours
    longest_loss_seconds: float = 600.0  # the work that a moved workload loses: since its last checkpoint, or its start
    restart_seconds: float = 60.0  # what a move costs besides
    settle_seconds: float = 3600.0  # a workload is not moved again within this time
    most: int = 8  # workloads that are moved for one workload
    after_seconds: float = 60.0  # nothing is moved for a workload that has waited for less

    @property
    def longest_loss(self) -> Millis:
        return millis(self.longest_loss_seconds)

    @property
    def restart(self) -> Millis:
        return millis(self.restart_seconds)

    @property
    def settle(self) -> Millis:
        return millis(self.settle_seconds)

    @property
    def after(self) -> Millis:
        return millis(self.after_seconds)


@dataclass(frozen=True, slots=True)
class EarliestCompletion:
    """A workload gets the flavor on which it is expected to end first, of those that it may get
    (QueuePolicy.spec.flavors); see engine.backfill.flavor_choice.
    """

    #: it waits for a flavor that is not free while others are until it was queued for this long
    wait_at_most_seconds: float = 3600.0

    @property
    def wait_at_most(self) -> Millis:
        return millis(self.wait_at_most_seconds)


@dataclass(frozen=True, slots=True)
class PastPreemption:
    """A workload that was preempted: for a workload of which ClusterQueue, and what it lost, in GPU-milliseconds."""

    workload: str
    at: Millis
    queue: str
    by_queue: str
    lost: int = 0
    #: it was moved to make room; what its restart costs counts as lost
    moved: bool = False

    @property
    def key(self) -> str:
        return f"{self.workload}@{self.at}"


@dataclass(frozen=True, slots=True)
class ReservedHead:
    """A workload that was reserved a start, for which others were held back: what was planned and promised, and what came."""

    workload: str
    cluster_queue: str
    uid: str = ""
    #: the class of its size (engine.queues.promises)
    size: int = 0
    #: when a start was planned for it first since it waits, and that start; None: none could be
    at: Millis = 0
    planned: Millis | None = None
    #: 0 while it waits
    started: Millis = 0
    #: by when it was promised to have started; None: nothing was promised
    promised: Millis | None = None
    #: what moved its start beyond the promise, "" while nothing has
    cause: str = ""
    #: what its queue followed when its start was planned, "" = its policy
    mode: str = ""

    @property
    def key(self) -> str:
        return f"{self.workload}@{self.at or self.started}"


@dataclass(frozen=True, slots=True)
class PreemptionsUnknown:
    """What was preempted before is not known yet: nobody is preempted by or in queues with limits, until that time at most."""

    until: Millis
    name: ClassVar[str] = "preemptions"


# --- queues -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flavor:
    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""
    #: an autoscaler adds nodes when pods need them: present nodes do not bound the flavor
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
class CheckRef:
    """An admission check that a ClusterQueue asks for; `on_flavors` empty = for every flavor."""

    name: str
    on_flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConcurrentAdmission:
    """How workloads of the queue are tried on every flavor at a time, as one variant per flavor."""

    #: "TryPreferredFlavors" moves it to a flavor that comes earlier once it fits there, "RetainFirstAdmission" never
    mode: str = "TryPreferredFlavors"
    #: it does not move to flavors after this one, "" = no bound
    last_acceptable: str = ""


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
    namespace_selector: LabelSelector | None = LabelSelector()  # noqa: RUF009 (it is immutable)
    stop_policy: str = "None"
    checks: tuple[CheckRef, ...] = ()
    #: "UsageBasedAdmissionFairSharing" orders pending workloads by the decayed usage of their LocalQueue.
    admission_mode: str = ""
    concurrent_admission: ConcurrentAdmission | None = None
    terminating: bool = False
    #: labels of the object, by which a QueuePolicy may select the queue.
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    #: named fixes of Kueue quirks that a QueuePolicy turns on for it, in addition to `Settings.fixes`; see engine.text.wording
    fixes: frozenset[str] = frozenset()
    #: set by a QueuePolicy beyond Kueue; None = as Kueue
    ordering: Ordering | None = None
    backfill: Backfill | None = None
    recovery: Recovery | None = None
    overrun: Overrun | None = None
    victims: VictimPolicy | None = None
    #: None = no limits
    preemption_limits: PreemptionLimits | None = None
    #: None = nothing is moved, neither for its workloads nor of them
    moves: Moves | None = None
    placement: PlacementPolicy | None = None
    #: how one of several flavors is chosen; None = by their order
    flavors: EarliestCompletion | None = None
    #: a floor is under its policy (engine.floor)
    floor: bool = True
    #: the mode that it fell back to, "" = none: order and backfill are not those of its policy
    fallen_back: str = ""
    #: a workload is requeued when its pods were refused for this long; None = as waitForPodsReady, which is on by default
    refused_seconds: float | None = None
    #: None = as waitForPodsReady
    unscheduled: UnscheduledPods | None = None

    @property
    def refused_after(self) -> Millis | None:
        return millis_or_none(self.refused_seconds)


@dataclass(frozen=True, slots=True)
class Deadline:
    """How long before something running workloads are warned, and stopped."""

    notice: Millis
    stop_before: Millis
    #: workloads that declare checkpoints may start though they will be stopped, if they can run for so long until then; None:
    #: they may not
    shortest_run: Millis | None = None


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """The quotas of a ClusterQueue from an instant on."""

    at: Millis
    groups: tuple[ResourceGroup, ...]


@dataclass(frozen=True, slots=True)
class QuotaAhead:
    """The quotas that a ClusterQueue will have later, as far as that is known. The present ones are those of the ClusterQueue.

    Whoever makes it knows calendars and nodes; the engine gets instants. The ClusterQueue itself changes at each of them by a
    fact of its own.
    """

    #: the ClusterQueue
    name: str
    #: the QuotaPlan that says so
    plan: str
    #: rising instants. With a recall the first may be the present one: whoever exceeds its quotas is stopped at once, since
    #: nobody was there to do it before
    steps: tuple[QuotaStep, ...] = ()
    #: workloads that exceed the quotas of a step are stopped before it; None: only new starts follow them
    recall: Deadline | None = None

    def groups_at(self, at: Millis, present: tuple[ResourceGroup, ...]) -> tuple[ResourceGroup, ...]:
        """The quotas at a time, given those of the present."""
        for step in self.steps:
            if step.at > at:
                break
            present = step.groups
        return present


@dataclass(frozen=True, slots=True)
class OrderInForce:
    """Which order a ClusterQueue has whose policy has several, and what that came from. An engine that begins goes on with it."""

    #: the ClusterQueue
    name: str
    key: str
    #: the open window that says so, "" = none
    window: str = ""
    #: what its policy looks at counts as full
    full: bool = False
    #: when the key was last replaced by another one; 0 = it was not since the queue came
    since: Millis = 0
    #: the waiting workloads that were reserved a start under an earlier key: they precede all others of their priority
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalQueue:
    namespace: str
    name: str
    cluster_queue: str
    stop_policy: str = "None"
    weight: float = 1.0
    terminating: bool = False
    #: admission fair sharing: resources consumed so far, and when they were last decayed (status of the object).
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
