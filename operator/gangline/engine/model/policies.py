"""What a QueuePolicy says of a ClusterQueue, beyond Kueue."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.engine.model.units import Millis, millis, millis_or_none

#: A swap budget counts the nodes that were replaced under a gang within this time.
SWAP_WINDOW: Millis = 3_600_000


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
    """Running gangs that declare checkpoints stand back for a reserved head (QueuePolicy.spec.backfill.giveWay)."""

    longer_than: float = 3.0  # they are expected to go on for so many times the head's own expected runtime
    loss_share: float = 0.2  # all of them lose at most this share of what the head has waited, in resource seconds
    min_runtime_seconds: float = 900.0  # they have run for at least this long
    #: in place of `longer_than` for those that were backfilled; None = no other rule for them
    longer_than_backfilled: float | None = None
    max_preemptions: int | None = None  # who was preempted so often, whatever for, is not asked any more
    #: share of the queue's quota that may be lost in a day; as that is used up, heads may cost less (`losses`); None = never less
    loss_budget: float | None = None

    @property
    def min_runtime(self) -> Millis:
        return millis(self.min_runtime_seconds)


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
    checkpoint_preemption: CheckpointPreemption | None = None


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

    @property
    def soak(self) -> Millis:
        return millis(self.soak_seconds)


@dataclass(frozen=True, slots=True)
class Overrun:
    """What happens to workloads that run longer than forecast (QueuePolicy.spec.overrun); see engine.state.overrun."""

    warn_at: float = 0.9  # the quantile of its own forecast after which a workload counts as warned
    overdue_factor: float = 3.0  # overdue after this many times that
    action: str = "Notify"  # None | Notify | Requeue | Deactivate
    grace_seconds: float = 0.0  # from overdue to the action

    @property
    def grace(self) -> Millis:
        return millis(self.grace_seconds)


@dataclass(frozen=True, slots=True)
class VictimPolicy:
    """Who is stopped to make room, within what `PreemptionPolicy` allows (QueuePolicy.spec.preemption).

    `choice` is about those that gangs of the queue preempt; the rest protects the queue's own gangs from anybody, see
    engine.queues.protection.
    """

    choice: str = "Kueue"  # Kueue | LeastLostWork | FewestGangs
    non_preemptible_from: int | None = None  # never those of this priority or higher …
    non_preemptible_gpus: int | None = None  # … nor those that ask for so many accelerators or more, all pods together
    min_runtime_seconds: float = 0.0  # not for so long after their start
    max_preemptions: int | None = None  # not those that were preempted this often

    @property
    def min_runtime(self) -> Millis:
        return millis(self.min_runtime_seconds)
