"""A workload: what it asks for, what it was given, and the parts of its status that decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.engine.model.devices import CardSeat, Share, accelerators
from gangline.engine.model.queues import SWAP_WINDOW
from gangline.engine.model.selection import Affinity, PreferredTerm, Toleration
from gangline.engine.model.units import SECOND, Millis, Requests, millis, millis_or_none


@dataclass(frozen=True, slots=True)
class Slice:
    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """The topology that a pod set asks for: at most one of `required`, `preferred`, `unconstrained`; `slices` outermost first."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slices: tuple[Slice, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of pods beside what they need: placement policies look at it, and nothing else does."""

    #: the kind of work: equal kinds run the same program
    kind: str = ""
    #: percent of one accelerator that a pod uses; None = not said
    utilisation: int | None = None
    #: of its containers; () where no policy looks at images
    images: tuple[str, ...] = ()
    #: dataset -> bytes
    data: tuple[tuple[str, int], ...] = ()
    #: expected to run for so long where nothing has to be downloaded
    seconds: int = 0
    #: network interface -> Mbit/s of it
    interfaces: tuple[tuple[str, int], ...] = ()
    #: thousandths: 1250 = pods may be slowed by others to 1 / 1.25 of their speed; 0 = not said
    max_slowdown: int = 0


NO_TRAITS: Final = Traits()


@dataclass(frozen=True, slots=True)
class PodSet:
    name: str
    count: int
    requests: Requests  # per pod, of nodes
    min_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity = ()
    preferred_affinity: tuple[PreferredTerm, ...] = ()
    topology: TopologyRequest | None = None
    #: digest of everything else that shapes the pods (ports, runtime class, claims, …): equal shapes are interchangeable.
    shape: str = ""
    #: node label key; the pod set takes `domains` of its values, each for itself alone (JobSet exclusive-topology)
    exclusive: str = ""
    domains: int = 0
    #: what each pod counts for in quota; None = what it requests
    quota: Requests | None = None
    #: what each pod counts for besides, in queues that have quota of it
    charges: Requests = field(default_factory=dict[str, int])
    #: what each pod asks of cards, with what it asks of them by its requests
    shares: tuple[Share, ...] = ()
    traits: Traits = NO_TRAITS
    #: how many of its pods a node takes at most, by their own rules; 0 = as many as there is room for
    most_per_node: int = 0
    #: the windows on whose nodes its pods may be, by name; the engine sets it, see `nodes.windows`
    windows: frozenset[str] = frozenset()

    @property
    def counted(self) -> Requests:
        """What each pod counts for in quota."""
        return self.requests if self.quota is None else self.quota


@dataclass(frozen=True, slots=True)
class Domain:
    """Pods of one pod set in one topology domain; `values` from the top level down (only the hostname where that is the
    lowest).
    """

    values: tuple[str, ...]
    count: int
    #: of each of its pods, the cards that were chosen for it; () = of none
    cards: tuple[tuple[CardSeat, ...], ...] = ()


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
    #: pod set -> labels of the nodes on which its pods have to run once the check is ready
    selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])

    @property
    def requeue_after(self) -> Millis | None:
        return millis_or_none(self.requeue_after_seconds)


@dataclass(frozen=True, slots=True)
class ArrayLimit:
    """The array that a workload is a task of, by its name in the namespace, and how many of its tasks may run at a time.

    `task`: its number in the array, by which tasks of the same second go in turn.
    """

    name: str
    limit: int
    task: int = 0


@dataclass(frozen=True, slots=True)
class Unscheduled:
    """Pods of an admitted workload for which the Kubernetes scheduler finds no node, or found none for a while."""

    #: when that began or, if it is over, when it ended
    since: Millis
    #: the scheduler's words; "" = it is over
    message: str = ""
    #: the job asks for nodes that its flavors do not have, or for a claim that does not exist
    by_job: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as its spec and status say."""

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
    #: states of other jobs that have to come true before it is queued, such as `job prepare to succeed`
    waits_for: tuple[str, ...] = ()
    #: its closed preemption gates: while there is one, nothing is preempted for it
    preemption_gates: tuple[str, ...] = ()
    #: the only flavors that it may use; None = any
    allowed_flavors: tuple[str, ...] | None = None
    #: the uid of the Workload that it is a variant of, "" = of none
    variant_of: str = ""
    #: the key of the workload slice that it replaces, as an elastic job grows; "" = of none
    replaces: str = ""
    #: it is the parent of variants (by its label): these queue and hold quota in its place
    has_variants: bool = False
    #: the array whose limit counts for it; None = it is no task of one, or one without a limit
    array: ArrayLimit | None = None
    max_execution_seconds: int | None = None
    #: room is made for it by this time, when running workloads that have to move lose least; None = as soon as possible
    start_by: Millis | None = None
    #: the job's name, for messages; and the uid of the job that owns the workload.
    job_uid: str = ""
    #: why it is not admitted, whatever is free: its requests do not keep their limits
    violation: str = ""
    #: it is not even queued until then: others go first in a StrictFIFO queue, too
    overtaken: bool = False

    # status
    admission: Admission | None = None  # not None = the workload holds quota (QuotaReserved=True)
    reserved_at: Millis = 0
    admitted: bool = False
    admitted_at: Millis = 0
    evicted: str = ""  # reason while Evicted=True, else ""
    evicted_at: Millis = 0
    preempted: str = ""  # reason while Preempted=True, else ""
    moved_for: str = ""  # the key of the workload for which it was moved, while Preempted=True
    pods_ready: bool = False
    pods_ready_at: Millis = 0  # last transition of PodsReady
    pods_were_ready: bool = False  # PodsReady=False with reason WaitForRecovery
    finished: bool = False
    on_hold: bool = False  # QuotaReserved=False with reason OnHold
    lacks_pods: bool = False  # pods of its group have to be replaced first
    #: status of the Requeued condition; None = no condition.
    requeued: bool | None = None
    requeue_count: int = 0
    requeue_at: Millis | None = None
    past_execution_seconds: int = 0
    preemptions: int = 0  # how often it was preempted, over all its runs
    reclaimable: Mapping[str, int] = field(default_factory=dict[str, int])  # pod set -> finished pods
    checks: tuple[CheckState, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()
    #: reason and message of DeactivationTarget=True; None = nobody wants it deactivated
    deactivation: tuple[str, str] | None = None

    # recorded by Gangline beyond Kueue's schema
    #: it was backfilled: started before a reserved head that precedes it in queue order
    backfilled: bool = False
    #: when it is stopped, work is lost in steps of this many seconds; None = all of it, from its start
    checkpoint_seconds: float | None = None
    #: when nodes were replaced under it, and how many; at least those of the last SWAP_WINDOW
    replaced: tuple[tuple[Millis, int], ...] = ()
    #: nodes that failed it, from `Heal.lost` or `Evict.avoid` on until all its pods run again; other nodes are preferred
    avoid: tuple[str, ...] = ()
    #: the time of the last `Heal`, or of an `Evict` that names nodes: a node that fails later is another loss
    healed_at: Millis = 0
    #: it has no owner: nobody makes its pods anew for Gangline, and its failed nodes are replaced as in Kueue
    unowned: bool = False
    #: its owner is one pod, which cannot move to another node
    lone_pod: bool = False
    #: it cannot replace single pods: when some are lost, all of it starts again (JobSet)
    restarts_whole: bool = False
    #: how far it has outrun its forecast in this run: "" | Warned | Overdue
    overrun: str = ""
    #: it was overdue in this run or an earlier one: its forecast is not trusted any more
    overran: bool = False
    #: the action that is taken because it hangs: "" | Notify | Restart | Requeue
    stalled: str = ""
    #: the metric that it reports hardly changes any more
    converged: bool = False
    #: since when the API server refuses its pods, 0 = it does not
    refused_at: Millis = 0
    #: what is known of pods for which the Kubernetes scheduler finds no node; None = it found one for each so far
    unscheduled: Unscheduled | None = None
    #: its pods may be unscheduled for this long, as its author wishes; None = as its queue says
    unscheduled_seconds: float | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def replaced_lately(self, now: Millis) -> int:
        """Nodes that were replaced under it within SWAP_WINDOW: compared with its swap budget."""
        return sum(nodes for at, nodes in self.replaced if at > now - SWAP_WINDOW)

    def as_checked(self, pod_set: PodSet) -> PodSet:
        """The pod set with the node labels that its ready checks demand."""
        ready = [check.selectors.get(pod_set.name, {}) for check in self.checks if check.state == "Ready"]
        wanted = {label: value for selector in ready for label, value in selector.items()}
        return replace(pod_set, node_selector={**pod_set.node_selector, **wanted}) if wanted else pod_set

    @property
    def execution_left(self) -> Millis | None:
        """What is left of the workload's maximum execution time, negative once it is exceeded; None = no limit."""
        most = self.max_execution_seconds
        return None if most is None else millis(most) - self.past

    @property
    def unscheduled_after(self) -> Millis | None:
        """How long its pods may be unscheduled, as its author wishes; None = as its queue says."""
        return millis_or_none(self.unscheduled_seconds)

    @property
    def checkpoint(self) -> Millis | None:
        """The time between the workload's checkpoints; None = it writes none."""
        return max(1, millis(self.checkpoint_seconds)) if self.checkpoint_seconds else None

    @property
    def past(self) -> Millis:
        """The time for which the workload's earlier runs lasted, together."""
        return millis(self.past_execution_seconds)

    @property
    def saved(self) -> Millis:
        """The work of the workload's earlier runs that is not done again: until a checkpoint, or all if it goes on as another
        slice.
        """
        went_on = self.checkpoint is None and self.replaces and not self.preemptions
        return self.past if went_on else self.kept(self.past)

    def kept(self, ran: Millis) -> Millis:
        """The part of a run that its checkpoints keep."""
        every = self.checkpoint
        return 0 if every is None else max(0, ran) // every * every

    def may_run_for(self, time: Millis, shortest: Millis | None) -> bool:
        """Whether the workload may start though it is stopped after this time: it declares checkpoints, writes one until then,
        and runs for no less than the shortest time; None: no workload may.
        """
        every = self.checkpoint
        return every is not None and shortest is not None and time >= max(every, shortest)

    def with_past(self, ran: Millis) -> Workload:
        """The same workload, with a run of this length among its earlier ones."""
        return replace(self, past_execution_seconds=self.past_execution_seconds + ran // SECOND)


@dataclass(frozen=True, slots=True)
class Awaited:
    """A workload that another one waits for, by its key, until it runs (`runs`), or else until it ends."""

    workload: str
    runs: bool


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What is known of the jobs that a workload waits for: a fact beside the workload's own, which says that it waits."""

    workload: str  # key
    message: str
    needs: str
    #: they cannot reach those states any more
    never: bool = False
    #: whom it waits for. Empty where one of them has no workload, or has to fail: no simulation says when that will be
    awaited: tuple[Awaited, ...] = ()


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """A budget of GPU-hours from which a waiting workload would take is used up."""

    workload: str
    #: the sentence for its author
    text: str
    #: the workload does not start; otherwise it goes after others of its priority
    holds: bool = True
    #: when the budget begins anew; None = nobody knows
    until: Millis | None = None


def accelerators_of(pod_sets: Iterable[PodSet]) -> int:
    """The number of accelerators that all pods of these pod sets ask for."""
    return sum(pod_set.count * accelerators(pod_set.requests) for pod_set in pod_sets)
