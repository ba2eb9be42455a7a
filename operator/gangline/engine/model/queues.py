"""What an administrator configures: flavors, quotas, cohorts, queues, admission checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.engine.model.policies import Backfill, Ordering, Overrun, PlacementPolicy, Recovery, VictimPolicy
from gangline.engine.model.selection import LabelSelector, Taint, Toleration
from gangline.engine.model.units import Millis, millis_or_none


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
    #: named fixes of Kueue quirks that a QueuePolicy turns on for it, in addition to `Settings.fixes`; see engine.text.fixes
    fixes: frozenset[str] = frozenset()
    #: set by a QueuePolicy beyond Kueue; None = as Kueue
    ordering: Ordering | None = None
    backfill: Backfill | None = None
    recovery: Recovery | None = None
    overrun: Overrun | None = None
    victims: VictimPolicy | None = None
    placement: PlacementPolicy | None = None
    #: a floor is under its policy (engine.floor)
    floor: bool = True
    #: the mode that it fell back to, "" = none: order and backfill are not those of its policy
    fallen_back: str = ""
    #: a workload is requeued when its pods were refused for this long; None = as waitForPodsReady, which is on by default
    refused_seconds: float | None = None

    @property
    def refused_after(self) -> Millis | None:
        return millis_or_none(self.refused_seconds)


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
