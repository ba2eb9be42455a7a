"""QueuePolicy: settings of ClusterQueues beyond Kueue's fields. Without one a queue behaves exactly as in Kueue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gangline import bounded
from gangline.api.queue_orders import MOST_WINDOWS
from gangline.api.schema.common import (
    DNS_LABEL,
    Conditions,
    Count,
    Duration,
    Fraction,
    Int32,
    Int64,
    KubeObject,
    LabelKey,
    LabelValue,
    ObjectName,
    PositiveInt32,
    Quantity,
    Time,
)
from gangline.api.schema.json_schema import LIST_SET, ApiModel, list_map
from gangline.api.schema.v1alpha1.placement import PlacementSpec
from gangline.api.schema.v1alpha1.time_window import TimeWindow
from gangline.engine.model import UNLIMITED

_NAMES = Annotated[list[ObjectName], Field(max_length=256), LIST_SET]
FixName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$")]


#: characters of the longest int-or-string
LONGEST = 16


@dataclass(frozen=True)
class _IntOrString:
    """Kubernetes' int-or-string, which as a text matches `pattern`."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._matching, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        kinds = [{"type": "integer"}, {"type": "string"}]
        return {"anyOf": kinds, "pattern": self.pattern, "x-kubernetes-int-or-string": True}

    def _matching(self, value: int | str) -> int | str:
        text = str(value) if isinstance(value, str) or abs(value) <= UNLIMITED else ""
        if len(text) > LONGEST or not re.search(self.pattern, text, re.ASCII):
            raise ValueError(f"must match {self.pattern}")
        return value


Spares = Annotated[int | str, _IntOrString(r"^([0-9]{1,5}|100%|[0-9]{1,2}(\.[0-9]{1,3})?%)$")]
"""Whole number, or share in percent."""
Depth = Annotated[int | str, _IntOrString(r"^([0-9]{1,4}|Conservative)$")]
"""A whole number, or Conservative for all."""
_Fixes = Annotated[list[FixName], Field(max_length=64), LIST_SET]


class ClusterQueues(ApiModel):
    """The selected queues: by name, and by labels."""

    names: _NAMES | None = None
    """ClusterQueues by name."""
    match_labels: Annotated[dict[str, LabelValue], Field(max_length=16)] | None = None
    """ClusterQueues with all these labels."""


class Fixes(ApiModel):
    """Named corrections of Kueue's behaviour where users would call it a bug. One is on without a policy:
    QuotaOfVictimsStillHeld.
    """

    enable: _Fixes | None = None
    """Fixes to turn on in addition to those of the profile."""
    disable: _Fixes | None = None
    """Fixes to turn off: of the profile, and the one that is on without a policy."""


_OrderKey = Literal[
    "Priority",
    "FairShare",
    "Demand",
    "DemandDrf",
    "ShortestFirst",
    "AgedShortestFirst",
    "SmallestFirst",
    "LargestFirst",
    "HighestResponseRatio",
]


class OrderWindowSpec(ApiModel):
    """Another order in a window of time."""

    name: Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
    """A name for it, which answers give."""
    window: TimeWindow
    """When it is the order."""
    key: _OrderKey
    """The order in the window. The other fields of `order` hold there, too."""


class WhenFullSpec(ApiModel):
    """Another order while much of the quota is held, and no window is open."""

    key: _OrderKey
    """The order while it is full. The other fields of `order` hold then, too."""
    of: Literal["Cohort", "ClusterQueue"] = "Cohort"
    """Cohort: what all ClusterQueues of the whole cohort tree hold, as a part of their nominal quotas. ClusterQueue: what the
    queue itself holds, as a part of the most that it could. Of several GPU resources the fullest counts; other resources only
    count where there is no quota of GPUs."""
    above: Fraction = "0.9"
    """The part of the quota that is held from which on it counts as full."""
    below: Fraction = "0.75"
    """The part of the quota that is held below which it no longer counts as full. The value must be less than `above`."""


class OrderSpec(ApiModel):
    """The order of workloads."""

    key: _OrderKey = "Priority"
    """Priority: priority, then age, as in Kueue. The others order workloads of equal priority: FairShare by recent usage of
    their LocalQueue, Demand by what their LocalQueue asks for, DemandDrf by that and by what it holds, ShortestFirst by expected
    runtime, AgedShortestFirst by expected runtime and age, SmallestFirst and LargestFirst by GPUs, HighestResponseRatio by
    waiting time relative to expected runtime."""
    age_weight: Quantity = "10"
    """AgedShortestFirst: a workload that is expected to run an hour longer is passed by others that are submitted up to this
    many hours later."""
    age_cap: Duration | None = None
    """AgedShortestFirst: workloads with a longer expected runtime count as if they ran for this long."""
    half_life: Duration = "168h"
    """FairShare: past usage counts half after this time."""
    demand_weight: Fraction = "0.5"
    """DemandDrf: what the demand of a LocalQueue counts. What it holds counts 1 less this number."""
    max_wait: Duration | None = None
    """A workload that has waited this long precedes all others of its priority, whatever the key."""
    optimism: Fraction = "0"
    """The figure of a forecast that is used as the expected runtime. 0: its median. 1: its Gittins index, the time spent per
    completed run if similar runs are given up at the best moment, so that workloads that may be short are early. Between: their
    weighted geometric mean. For queues with checkpoint preemption."""
    windows: Annotated[list[OrderWindowSpec], Field(max_length=MOST_WINDOWS), list_map("name")] | None = None
    """Other orders at times, such as LargestFirst in busy hours. Where windows overlap, the one that comes later in this list
    counts. Nothing that runs is touched by a change, and a workload that is reserved a start keeps its turn."""
    when_full: WhenFullSpec | None = None
    """Another order while much of the quota is held. Unset: none."""


class Quantiles(ApiModel):
    """The quantiles of forecasts that are used, between 0 and 1."""

    running: Fraction = "0.5"
    """Quantile of running workloads' remaining time: the higher, the later a reservation starts."""
    candidate: Fraction = "0.9"
    """Quantile of a candidate's runtime: the higher, the less likely it delays a reservation."""


class GiveWay(ApiModel):
    """Checkpoint preemption: running workloads that declare checkpoints are preempted for a reserved workload that is expected
    to end long before them.
    """

    longer_than: Quantity = "3"
    """A victim is expected to run for at least this many times the reserved workload's expected runtime; half as many once that
    has waited for as long as its expected runtime, a third once it has waited twice as long, and so on."""
    loss_share: Fraction = "0.2"
    """All victims together lose at most this share of the reserved workload's wait, in resource seconds."""
    min_runtime: Duration = "15m"
    """A victim has run for at least this long since its last start."""
    longer_than_backfilled: Quantity | None = None
    """The value for backfilled workloads, in place of longerThan if it is less: they hold what the reserved workload could use.
    Unset: longerThan applies to all."""
    max_preemptions: Annotated[int, Field(ge=1)] | None = None
    """Workloads that were preempted this often, for any reason, are not preempted this way. Unset: no limit."""
    loss_budget: Fraction | None = None
    """The former place of backfill.lossBudget, which it means. With both set, the smaller one counts."""


class BackfillSpec(ApiModel):
    """Workloads that fit start before their turn if they delay no reserved workload."""

    depth: Depth = 1
    """The number of workloads at the head with a reservation: 1 is EASY backfill, 0 turns it off, Conservative reserves for
    all."""
    candidates: Literal["QueueOrder", "ShortestFirst", "AgedShortestFirst", "LargestFirst", "BestFit"] = "QueueOrder"
    """The order in which candidates are tried."""
    max_candidates: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """The most candidates that are tried."""
    quantiles: Quantiles = Quantiles()
    """The quantiles of forecasts that are used."""
    revoke: Literal["Never", "Overdue", "Any"] = "Never"
    """Overdue: a backfilled workload that runs longer than forecast is preempted when it delays a reservation. Any: every
    backfilled workload is, as soon as a reserved workload could start in its place."""
    overdue_factor: Quantity = "1"
    """A backfilled workload is overdue after this many times its forecast (at the candidate's quantile)."""
    idle_share: Fraction | None = None
    """The share of what the queue can use, over the time that a reserved workload has waited, that may be kept idle for it.
    Others are held back, and its start is promised, once that covers what is planned to be idle until its start, in resource
    seconds; before that, every workload that fits starts. Millionths count. Unset: others are held back as soon as it is
    reserved."""
    give_way: GiveWay | None = None
    """Checkpoint preemption of running workloads for a reserved one. Unset: off."""
    loss_budget: Fraction | None = None
    """The share of the queue's nominal quota that may be lost in any day by revoke and giveWay, in resource seconds: work since
    the last checkpoint, and restarts. It is a limit: what it does not cover is not preempted. Millionths count. Unset: no
    limit."""
    restart_cost: Duration = "1m"
    """The cost of one preemption to a workload beside its work since the last checkpoint, as lossBudget counts it."""


class PreemptionSpec(ApiModel):
    """The choice and the protection of victims, within the ClusterQueue's own preemption rules. `victims`, `convergedFirst` and
    `holdQuota` are about victims for workloads of this queue; the other fields protect this queue's own workloads from every
    preemptor.
    """

    victims: Literal["Kueue", "LeastLostWork", "FewestGangs"] = "Kueue"
    """Kueue: lowest priority, then newest. LeastLostWork: lowest priority, then least work lost since the last checkpoint.
    FewestGangs: as few workloads as possible."""
    non_preemptible_from: Int32 | None = None
    """Workloads of this priority or higher are never preempted."""
    non_preemptible_gpus: PositiveInt32 | None = None
    """Workloads with this many accelerators or more, all pods together, are never preempted. Accelerators are all resources
    other than cpu, memory, storage and pods."""
    min_runtime: Duration | None = None
    """A workload is not preempted for this long after its start."""
    max_per_workload: Count | None = None
    """A workload that was preempted this often is not preempted again."""
    converged_first: bool = False
    """Workloads whose training has converged (`phases` of their queues) are preempted before others of equal priority, where
    workloads have to be preempted anyway. `victims` orders the others."""
    hold_quota: bool = True
    """Quota that victims free is held for their preemptor until it starts: turns on the fix HoldFreedQuota, unless
    `fixes.disable` names it. false turns it off, in the profile Gangline, too."""


class OverrunSpec(ApiModel):
    """What happens to workloads that run longer than forecast. Hard limits (max-exec-time-seconds, runtime.limit) apply without
    it.
    """

    warn_at: Fraction = "0.9"
    """A run is in state Warned after this quantile of its forecast."""
    overdue_factor: Quantity = "3"
    """A run is Overdue after this many times the time of warnAt."""
    action: Literal["None", "Notify", "Requeue", "Deactivate"] = "Notify"
    """Notify: report it, once per state. Requeue: also evict an overdue workload while others of at least its priority wait for
    what it holds. Deactivate: stop an overdue workload for good. No workload is stopped for a forecast that is based neither on
    finished runs nor on its author's hint."""
    grace: Duration = "0s"
    """The time from Overdue to Requeue or Deactivate."""


class Stall(ApiModel):
    """The reaction to workloads that hang."""

    after: Duration = "15m"
    """A workload without a sign of progress for this long is suspect, unless the job declares its own heartbeat."""
    startup: Duration = "10m"
    """A workload is not suspect for this long after its start, while it loads data."""
    grace: Duration = "5m"
    """A suspect workload without a sign of life for this long is stalled."""
    action: Literal["None", "Notify", "Restart", "Requeue"] = "Notify"
    """Notify: report it. Restart: restart the gang in place, or requeue it if its kind cannot. Requeue: evict and requeue it."""
    max_actions: Annotated[int, Field(ge=0, le=1000)] = 3
    """A workload that was evicted this often for a stall is then only reported."""


class PhasesSpec(ApiModel):
    """The phases of trainings that report a metric, such as the loss: Progressing, Watching, Converged. They are shown, and stop
    nothing.
    """

    window: Duration = "1m"
    """Metrics are averaged over windows of this length, from 30s to 1h. The growth of a window is the change since the one
    before, per second."""
    watching: Fraction = "0.1"
    """A run is in phase Watching once a window grows by no more than this part of the first growth."""
    converged: Fraction = "0.01"
    """A run has converged once three windows in a row grow by less than this part of the first growth. Two windows in a row that
    grow more end the phase."""


class RefusedPodsSpec(ApiModel):
    """What happens to workloads whose pods the API server refuses, such as for a ResourceQuota or Pod Security."""

    after: Duration = "5m"
    """A workload whose pods are refused for this long is evicted, and queued again after a pause that doubles each time."""


class UnscheduledPodsSpec(ApiModel):
    """What happens to admitted workloads with pods for which the Kubernetes scheduler finds no node."""

    after: Duration = "5m"
    """A workload with a pod that is unscheduled for this long is evicted. Unless the job is the cause, it keeps its place in
    the queue."""
    longest: Duration | None = None
    """The longest time that a job may ask for by its annotation gangline.io/unscheduled-timeout. Without this field a job may
    only shorten the time."""


class RecoverySpec(ApiModel):
    """What happens when nodes fail. Without this part gangs are healed with its defaults."""

    enabled: bool = True
    """false: failed nodes are left to Kubernetes, and the other fields of this part have no effect."""
    spares: Spares = 0
    """Nodes per flavor (or node pools, where jobs take whole pools for themselves) that are kept as replacements: a number, or
    a share such as 5%."""
    lend: bool = True
    """Workloads that can be stopped at once may run on spares meanwhile."""
    preempt_to_heal: bool = True
    """Preempt workloads of lower priority to replace a failed node for which there is no spare."""
    soak: Duration = "1m"
    """A recovered node is not used for this long."""
    swap_budget: Count = 5
    """The most nodes that are replaced under one workload within an hour; beyond that it is evicted and requeued."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    """Newly started pods leave an unreachable node after this many seconds, by a toleration that is added unless they have
    their own. Unset: Kubernetes' 300 seconds."""
    breaker: Fraction = "0.5"
    """Circuit breaker: when more than this share of a flavor's nodes fails within a minute, no node is swapped, since the nodes
    are unlikely to be the cause. 1: never."""
    proactive: bool = False
    """Move workloads to a spare before their node leaves (maintenance, spot notice), never at the cost of others."""
    force_delete: bool = False
    """Permits deletion by force of pods that cannot end because their node is unreachable. The node may still be running them:
    set it only if two copies of a pod do no harm, or if failed nodes are certainly powered off. Pods on nodes that are deleted
    or marked out of service are deleted by force in any case."""
    probe_nodes: bool = False
    """Takes a node under these queues' workloads for lost as soon as its Lease is overdue and it does not answer at its kubelet's
    port either, instead of waiting until Kubernetes calls it unreachable (40 s and more). It gets the taint gangline.io/silent
    (NoSchedule) until its Lease is renewed."""
    restart_grace_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """When nodes failed and a whole gang starts again, its remaining pods have at most this many seconds to end. Unset: their own
    grace period. Those of a training usually wait in vain for the lost ones, and for all of that time the gang stands still."""


Event = Literal[
    "Admitted",
    "StartMoved",
    "Overrun",
    "Idle",
    "Stalled",
    "Preempted",
    "Evicted",
    "Swapped",
    "Finished",
    "Failed",
    "BudgetUsed",
]


class SecretRef(ApiModel):
    """A Secret."""

    name: ObjectName
    """The name of the Secret."""
    namespace: Annotated[str, Field(max_length=63, pattern=DNS_LABEL)] = "gangline-system"
    """The namespace of the Secret."""


Address = Annotated[str, Field(min_length=1, max_length=254, pattern=r"^\*?[A-Za-z0-9._+#-]*@?[A-Za-z0-9._+#-]*$")]


class Notify(ApiModel):
    """A receiver of notifications, and their kinds. A job adjusts them by its annotations gangline.io/notify and
    gangline.io/notify-to.
    """

    secret_ref: SecretRef
    """The Secret with the receiver: key `url` has one or more Apprise URLs, one per line. {to} in a URL is replaced by the
    address in the job's annotation gangline.io/notify-to, else by key `to`."""
    events: Annotated[list[Event], Field(min_length=1, max_length=16), LIST_SET]
    """The kinds of notifications."""
    digest: Duration = "0s"
    """Notifications within this time are sent as one message. 0s: each at once."""
    max_per_hour: Annotated[int, Field(ge=1, le=100_000)] = 60
    """The most messages per hour; further notifications are bundled into the next one. A quarter of them is kept for messages
    that are not about jobs of one namespace alone."""
    addresses: Annotated[list[Address], Field(max_length=64), LIST_SET] | None = None
    """The addresses that jobs may give by the annotation gangline.io/notify-to: an address, or * and how addresses end, such as
    *@example.org. Other addresses count as none. Without this list no job gives one."""
    max_per_namespace: Annotated[int, Field(ge=1, le=100_000)] = 120
    """The most messages per hour to addresses that jobs of one namespace give, over all addresses; further notifications wait."""
    start_moved_by: Duration = "30m"
    """StartMoved: the least change of the expected start since the last notification."""


class BudgetSpec(ApiModel):
    """So many GPU-hours in each period, for each ClusterQueue, LocalQueue, namespace, user, or value of a label of namespaces or
    jobs. No running workload is stopped for it.
    """

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """The name of the budget."""
    per: Literal["ClusterQueue", "LocalQueue", "Namespace", "NamespaceLabel", "JobLabel", "User"] = "ClusterQueue"
    """Whose use is added up. NamespaceLabel: that of all namespaces with the same value of `label`. JobLabel: that of all jobs
    with the same value of `label`. User: the label gangline.io/user of the job. Those without the label have one budget together.
    Use in all ClusterQueues of the policy counts together."""
    label: LabelKey | None = None
    """The key of the label: of namespaces for NamespaceLabel, of jobs for JobLabel."""
    only: (
        Annotated[list[Annotated[str, Field(max_length=317)]], Field(min_length=1, max_length=256), LIST_SET] | None
    ) = None
    """The names of those for whom the budget is; a LocalQueue as namespace/name. Unset: for each."""
    gpu_hours: Quantity
    """The GPU-hours of a period. A GPU counts from the reservation of quota to its release."""
    period: Literal["Day", "Week", "Month", "Quarter", "Year", "Rolling"] = "Month"
    """The period after which the budget begins anew. Rolling: the last `window` counts at any time."""
    window: Duration | None = None
    """The length of the window, for Rolling."""
    time_zone: Annotated[str, Field(min_length=1, max_length=bounded.LONGEST_ZONE, pattern=r"^[A-Za-z0-9._+/-]+$")] = (
        "UTC"
    )
    """The time zone in which periods begin at midnight, such as Europe/Berlin."""
    at80: Literal["None", "Notify"] = "Notify"
    """What happens when 80 % of the budget is used. Notify: an event of the policy, and a notification of the kind BudgetUsed."""
    at100: Literal["Notify", "LowerOrder", "HoldStarts"] = "Notify"
    """What happens when the whole budget is used, beside an event and a notification. LowerOrder: waiting workloads go after
    those of others of the same priority. HoldStarts: no workload starts until the budget begins anew."""


class PreemptionBounds(ApiModel):
    """The most preemptions."""

    per_hour: Count | None = None
    """The most workloads that are preempted within any hour."""
    lost_gpu_hours_per_day: Quantity | None = None
    """The most GPU-hours of work that are lost by preemption within any 24 hours: since the last checkpoint, or the start."""


class PreemptionLimits(ApiModel):
    """How much each ClusterQueue of the policy may preempt and be preempted. A workload that would exceed a limit waits."""

    causes: PreemptionBounds | None = None
    """The most that are preempted for workloads of the ClusterQueue."""
    suffers: PreemptionBounds | None = None
    """The most workloads of the ClusterQueue that are preempted for others, or for each other."""


class MovesSpec(ApiModel):
    """Running workloads move to other nodes to make room for one that waits only because free room is scattered. Workloads of the
    policy's ClusterQueues may be moved, and others of such policies are moved for them.
    """

    lost_gpu_hours_per_day: Quantity
    """The most GPU-hours that workloads of each ClusterQueue lose by moves within any 24 hours: the work since the last
    checkpoint, or the start, and `restartCost`."""
    longest_loss: Duration = "10m"
    """Workloads are moved only while they lose no more of their work than this: within this time after their start, or after a
    checkpoint."""
    restart_cost: Duration = "1m"
    """What a move costs a workload besides."""
    settle: Duration = "1h"
    """A workload that was moved is not moved again within this time. At most 24h."""
    most: Annotated[int, Field(ge=1, le=64)] = 8
    """The most workloads that are moved for one workload."""
    after: Duration = "1m"
    """Nothing is moved for a workload that has waited for less than this."""


class FlavorsSpec(ApiModel):
    """The choice among the flavors that a workload may get, where it is expected to run faster on one than on another."""

    choose: Literal["QueueOrder", "EarliestCompletion"] = "EarliestCompletion"
    """QueueOrder: the first one that fits, in the order of the ClusterQueue. EarliestCompletion: the one on which the workload is
    expected to end first, counted from its expected start there. Nobody is preempted for that, and it borrows as
    `flavorFungibility` of the ClusterQueue says. Workloads without a difference follow the order."""
    wait_at_most: Duration = "1h"
    """EarliestCompletion: a workload waits for a flavor though another one is free until it has been queued for this long. In a
    StrictFIFO ClusterQueue without `order` and `backfill` it does not wait, since others would wait with it. 0s: it never waits.
    """


class QueuePolicySpec(ApiModel):
    """The queues and their settings. An unset part is as in Kueue."""

    cluster_queues: ClusterQueues
    """The selected ClusterQueues."""
    precedence: Int32 = 0
    """If several policies match a queue, the one with the highest precedence is in force, then the first by name."""
    profile: Literal["Kueue", "Gangline"] = "Kueue"
    """The defaults of unset parts. Kueue: as Kueue, but no quota is granted twice. Gangline: all fixes on, backfill with one
    reservation, quota held."""
    fixes: Fixes | None = None
    """Single corrections of Kueue's behaviour."""
    order: OrderSpec | None = None
    """The order of workloads."""
    backfill: BackfillSpec | None = None
    """Workloads that fit start before their turn if they delay no reserved workload."""
    preemption: PreemptionSpec | None = None
    """The choice and the protection of victims."""
    preemption_limits: PreemptionLimits | None = None
    """The most preemptions that each ClusterQueue may cause and suffer. Unset: no limits."""
    flavors: FlavorsSpec | None = None
    """The choice among flavors. Unset: by the order of the ClusterQueue."""
    moves: MovesSpec | None = None
    """Moves of running workloads that make room for others. Unset: none."""
    budgets: Annotated[list[BudgetSpec], Field(max_length=16), list_map("name")] | None = None
    """Budgets of GPU-hours."""
    overrun: OverrunSpec | None = None
    """The reaction to workloads that run longer than forecast."""
    stall: Stall | None = None
    """The reaction to workloads that hang."""
    phases: PhasesSpec | None = None
    """The phases of trainings by the metrics that they report. Unset: none."""
    refused_pods: RefusedPodsSpec | None = None
    """The reaction to refused pods of workloads. Without this part the time limit of waitForPodsReady applies, or 30
    minutes where that is off."""
    unscheduled_pods: UnscheduledPodsSpec | None = None
    """The reaction to pods that the scheduler places nowhere. Without this part the unscheduledTimeout of waitForPodsReady
    applies, or its timeout where that is not set."""
    recovery: RecoverySpec | None = None
    """The reaction to failed nodes."""
    placement: PlacementSpec | None = None
    """The choice of nodes for pods."""
    notify: Annotated[list[Notify], Field(max_length=16)] | None = None
    """Receivers of notifications."""
    floor: Literal["Auto", "Off"] = "Auto"
    """Auto: all queues of the cohort follow best effort or EASY instead of order and backfill by forecasts while these make
    workloads wait longer, or have not shown that they do not, with neither saved work nor true forecasts to live on. Off: they
    always follow the policy."""


class FallenBackStatus(ApiModel):
    """A ClusterQueue that does not follow the policy's order and backfill, because of its floor."""

    cluster_queue: ObjectName
    """The ClusterQueue."""
    mode: Literal["BestEffort", "Easy"]
    """The mode that the ClusterQueue follows: BestEffortFIFO, or one reservation in order of age."""
    since: Time
    """The time at which the ClusterQueue fell back."""
    message: Annotated[str, Field(max_length=500)] | None = None
    """What the policy would have cost this ClusterQueue."""


class OrderStatus(ApiModel):
    """Which order a ClusterQueue has, where the policy has several."""

    cluster_queue: ObjectName
    """The ClusterQueue."""
    key: Annotated[str, Field(max_length=63)]
    """The order in force."""
    window: Annotated[str, Field(max_length=63)] | None = None
    """The open window that says so."""
    full: bool | None = None
    """Whether what whenFull looks at counts as full."""
    since: Time | None = None
    """When this order replaced another one."""
    first: Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=64)] | None = None
    """The waiting Workloads that were reserved a start in an earlier order and so precede others of their priority."""


class BudgetStatus(ApiModel):
    """What one ClusterQueue, LocalQueue, namespace, user or value of a label has used of a budget."""

    name: Annotated[str, Field(max_length=63)]
    """The name of the budget."""
    owner: Annotated[str, Field(max_length=600)]
    """Who has used it; empty for those without a user or without the label."""
    used_gpu_hours: Quantity
    """The GPU-hours that were used in this period, as of the last change of this status."""
    state: Literal["Used80", "Used100"]
    """Used80: at least 80 % is used. Used100: all of it."""
    since: Time
    """The time at which the period began."""
    until: Time | None = None
    """The time at which the budget begins anew; unset for a rolling window."""


class TelemetryStatus(ApiModel):
    """What a telemetry rule measures, and which nodes it excludes."""

    name: Annotated[str, Field(max_length=63)]
    """The name of the rule."""
    measured: Count = 0
    """The nodes of which a number is known."""
    excluded: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=256)] | None = None
    """The nodes on which no pods are placed for the rule; the first 256."""
    message: Annotated[str, Field(max_length=500)] | None = None
    """What is wrong with the query or its result. Unset: nothing."""


class QueuePolicyStatus(ApiModel):
    """The policy's status."""

    conditions: Conditions | None = None
    """Active: whether the policy is in force, and if not, why."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status is about."""
    matched: _NAMES | None = None
    """The ClusterQueues for which it is in force; the first 256."""
    head_delay_seconds: Quantity | None = None
    """The total time for which backfill delayed heads against the policy. This should stay 0."""
    fallen_back: Annotated[list[FallenBackStatus], Field(max_length=256)] | None = None
    """The ClusterQueues that follow best effort or EASY for now; the first 256."""
    orders: Annotated[list[OrderStatus], Field(max_length=256)] | None = None
    """The ClusterQueues and their orders, where the policy has several; the first 256."""
    budgets: Annotated[list[BudgetStatus], Field(max_length=256)] | None = None
    """The budgets of which at least 80 % is used; the first 256."""
    telemetry: Annotated[list[TelemetryStatus], Field(max_length=8), list_map("name")] | None = None
    """The telemetry rules. An operator that starts knows from here which nodes they exclude."""


class QueuePolicy(KubeObject):
    """Settings of selected ClusterQueues beyond Kueue's fields: order, backfill, preemption, recovery, notifications."""

    spec: QueuePolicySpec
    """The queues and their settings."""
    status: QueuePolicyStatus | None = None
    """The policy's status."""
