"""The engine's data model: the facts that flow in and the decisions that flow out.

Every value is plain and immutable. Quantities are integers in canonical units (cpu in milli-cpu, every other resource in whole
units, rounded up). Times are integers: milliseconds since the epoch. A namespaced object is identified by its key
`"namespace/name"`, a cluster-scoped one by its name.

Facts are level-triggered: `Put(item)` states the whole truth about one object (a workload with its spec *and* the parts of its
status that matter), `Gone` states that the object no longer exists. Facts about different objects may arrive in any order.
"""

from gangline.engine.model.changes import Change, Gone, Item, Put, WriteFailed
from gangline.engine.model.decisions import (
    Admit,
    AskChecks,
    CompleteAdmission,
    Decision,
    Evict,
    Explanation,
    Heal,
    Preempt,
    ReportPending,
    Requeue,
    Swap,
    Warn,
)
from gangline.engine.model.nodes import ForeignPod, Node, Topology
from gangline.engine.model.policies import (
    SWAP_WINDOW,
    Backfill,
    CheckpointPreemption,
    Ordering,
    Overrun,
    Recovery,
    VictimPolicy,
)
from gangline.engine.model.queues import (
    AdmissionCheck,
    CheckRef,
    ClusterQueue,
    Cohort,
    Flavor,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    Namespace,
    PreemptionPolicy,
    Quota,
    ResourceGroup,
)
from gangline.engine.model.runs import BoundPod, RuntimeForecast, WorkloadPods
from gangline.engine.model.selection import Affinity, Expression, LabelSelector, PreferredTerm, Taint, Toleration
from gangline.engine.model.settings import AdmissionFairSharing, FairSharing, HealthPolicy, PodsReadyPolicy, Settings
from gangline.engine.model.statuses import (
    ClusterQueueFigures,
    CohortFigures,
    LocalQueueFigures,
    QueueStatus,
    QuotaFigures,
    ResourceUsage,
)
from gangline.engine.model.units import UNLIMITED, Millis, Requests
from gangline.engine.model.workloads import (
    Admission,
    CheckState,
    Domain,
    PodSet,
    PodSetAssignment,
    Slice,
    TopologyAssignment,
    TopologyRequest,
    Workload,
)

__all__ = [
    "SWAP_WINDOW",
    "UNLIMITED",
    "Admission",
    "AdmissionCheck",
    "AdmissionFairSharing",
    "Admit",
    "Affinity",
    "AskChecks",
    "Backfill",
    "BoundPod",
    "Change",
    "CheckRef",
    "CheckState",
    "CheckpointPreemption",
    "ClusterQueue",
    "ClusterQueueFigures",
    "Cohort",
    "CohortFigures",
    "CompleteAdmission",
    "Decision",
    "Domain",
    "Evict",
    "Explanation",
    "Expression",
    "FairSharing",
    "Flavor",
    "FlavorQuotas",
    "ForeignPod",
    "Fungibility",
    "Gone",
    "Heal",
    "HealthPolicy",
    "Item",
    "LabelSelector",
    "LocalQueue",
    "LocalQueueFigures",
    "Millis",
    "Namespace",
    "Node",
    "Ordering",
    "Overrun",
    "PodSet",
    "PodSetAssignment",
    "PodsReadyPolicy",
    "Preempt",
    "PreemptionPolicy",
    "PreferredTerm",
    "Put",
    "QueueStatus",
    "Quota",
    "QuotaFigures",
    "Recovery",
    "ReportPending",
    "Requests",
    "Requeue",
    "ResourceGroup",
    "ResourceUsage",
    "RuntimeForecast",
    "Settings",
    "Slice",
    "Swap",
    "Taint",
    "Toleration",
    "Topology",
    "TopologyAssignment",
    "TopologyRequest",
    "VictimPolicy",
    "Warn",
    "Workload",
    "WorkloadPods",
    "WriteFailed",
]
