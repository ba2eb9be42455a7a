"""QueuePolicy: what a ClusterQueue has no field for. Without one a queue behaves exactly as Kueue's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gangline.api.schema.common import (
    DNS_LABEL,
    Conditions,
    Count,
    Duration,
    Fraction,
    Int32,
    Int64,
    KubeObject,
    LabelValue,
    ObjectName,
    PositiveInt32,
    Quantity,
)
from gangline.api.schema.json_schema import LIST_SET, Model
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
"""Whole number, or all."""
_Fixes = Annotated[list[FixName], Field(max_length=64), LIST_SET]


class ClusterQueues(Model):
    """Which queues are meant: those named and those whose labels match."""

    names: _NAMES | None = None
    """ClusterQueues by name."""
    match_labels: Annotated[dict[str, LabelValue], Field(max_length=16)] | None = None
    """ClusterQueues that carry all these labels."""


class Fixes(Model):
    """Named corrections of behaviour that Kueue has and that users would call a bug. One is on without a policy:
    QuotaOfVictimsStillHeld."""

    enable: _Fixes | None = None
    """Fixes to turn on beyond those of the profile."""
    disable: _Fixes | None = None
    """Fixes to leave off: those of the profile, and the one that is always on."""


class Order(Model):
    """Who goes first."""

    key: Literal[
        "Priority", "FairShare", "ShortestFirst", "AgedShortestFirst", "SmallestFirst", "HighestResponseRatio"
    ] = "Priority"
    """Priority: priority, then age, as Kueue does. The others order workloads of equal priority: FairShare by what
    their LocalQueue used lately, ShortestFirst by expected runtime, AgedShortestFirst by expected runtime and age,
    SmallestFirst by GPUs, HighestResponseRatio by waiting time against expected runtime."""
    age_weight: Quantity = "10"
    """AgedShortestFirst: a workload that is expected to run an hour longer lets others pass that come up to this many
    hours later."""
    age_cap: Duration | None = None
    """AgedShortestFirst: workloads that are expected to run for longer count as if they ran for this long."""
    half_life: Duration = "168h"
    """FairShare: after this time past use counts half."""
    max_wait: Duration | None = None
    """A workload that waited this long goes before all others of its priority, whatever the key."""
    optimism: Fraction = "0"
    """What of a forecast counts as the expected runtime. 0: its median. 1: its Gittins index, the time spent for each run that
    ends if runs like it are given up at the best moment, so that whoever may well be short goes early. Between: their
    geometric mean, weighted. For queues in which long runs give way."""


class Quantiles(Model):
    """How cautious forecasts are used, as chances between 0 and 1."""

    running: Fraction = "0.5"
    """How long running workloads will still take: the higher, the later a reservation starts."""
    candidate: Fraction = "0.9"
    """How long a candidate will take: the higher, the less it can delay a reservation."""


class GiveWay(Model):
    """Running workloads that declare checkpoints stand back for a reserved one that will be done long before them."""

    longer_than: Quantity = "3"
    """They are expected to go on for at least this many times the expected runtime of the reserved one; for half as many
    once that has waited for as long as it is expected to run, for a third once it has waited twice as long, and so on."""
    loss_share: Fraction = "0.2"
    """All of them together lose at most this share of what the reserved one has waited, in resource seconds."""
    min_runtime: Duration = "15m"
    """They have run for at least this long since they last started."""
    longer_than_backfilled: Quantity | None = None
    """In place of longerThan for workloads that were let in before their turn, if that is less: they are where the reserved
    one could be. Left out: longerThan is for all."""
    max_preemptions: Annotated[int, Field(ge=1)] | None = None
    """Workloads that have been preempted this many times, whatever for, are not asked any more. Left out: no limit."""
    loss_budget: Fraction | None = None
    """The share of the queue's nominal quota that may be lost in a day, in resource seconds, revoked backfill counted. As it is
    used up, lossShare falls, to three tenths of what it says at the least. Left out: lossShare holds always."""


class Backfill(Model):
    """Let workloads that fit start early when they delay no reserved one."""

    depth: Depth = 1
    """How many workloads at the head get a reservation: 1 is EASY backfill, 0 turns it off, Conservative reserves for
    all."""
    candidates: Literal["QueueOrder", "ShortestFirst", "AgedShortestFirst", "LargestFirst", "BestFit"] = "QueueOrder"
    """In which order workloads are tried."""
    max_candidates: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """How many workloads are tried at most."""
    quantiles: Quantiles = Quantiles()
    """How cautious forecasts are used."""
    revoke: Literal["Never", "Overdue", "Any"] = "Never"
    """Overdue: a backfilled workload that runs longer than forecast is preempted once it delays a reservation. Any:
    every backfilled workload is, as soon as a reserved one could start in its place."""
    overdue_factor: Quantity = "1"
    """Overdue: it may run this many times its forecast (at the candidate's quantile) before it counts as overdue."""
    give_way: GiveWay | None = None
    """Whether running workloads give way to a reserved one at their checkpoints. Left out: they don't."""


class Preemption(Model):
    """Who is stopped to make room; within what the ClusterQueue's own preemption rules allow. `victims` and `holdQuota` are
    about those that make room for workloads of this queue; the rest protects this queue's own workloads, whoever wants
    their room."""

    victims: Literal["Kueue", "LeastLostWork", "FewestGangs"] = "Kueue"
    """Kueue: lowest priority, then newest. LeastLostWork: lowest priority, then those that lose the least work since their
    last checkpoint. FewestGangs: as few workloads as possible."""
    non_preemptible_from: Int32 | None = None
    """Workloads of this priority or higher are never stopped."""
    non_preemptible_gpus: PositiveInt32 | None = None
    """Workloads that ask for this many accelerators or more, all pods together, are never stopped. Accelerators are all
    resources other than cpu, memory, storage and pods."""
    min_runtime: Duration | None = None
    """A workload is left alone for this long after its start."""
    max_per_workload: Count | None = None
    """A workload that was stopped this often to make room is left alone."""
    hold_quota: bool = True
    """Quota that was freed for a workload is kept for it until it starts: turns on the fix HoldFreedQuota, unless
    `fixes.disable` names it. false turns it off, in the profile Gangline, too."""


class Overrun(Model):
    """What happens to workloads that run longer than forecast. Hard limits (max-exec-time-seconds, runtime.limit) hold
    without it."""

    warn_at: Fraction = "0.9"
    """The quantile of its own forecast after which a run counts as warned."""
    overdue_factor: Quantity = "3"
    """It is overdue once it has run this many times as long."""
    action: Literal["None", "Notify", "Requeue", "Deactivate"] = "Notify"
    """Notify: say so, once per state. Requeue: also make an overdue workload give way while others of at least its priority
    wait for what it holds. Deactivate: stop an overdue workload for good. Nothing is stopped for a forecast that no finished
    run and no word of its author stands behind."""
    grace: Duration = "0s"
    """How long Requeue and Deactivate wait once the workload is overdue."""


class Stall(Model):
    """What happens to workloads that hang."""

    after: Duration = "15m"
    """Without a sign of progress for this long it counts as suspect, unless the job states its own heartbeat."""
    startup: Duration = "10m"
    """So long after its start nothing is concluded: data is loaded and nothing else happens."""
    grace: Duration = "5m"
    """How long a suspect has to show a sign of life before it counts as stalled."""
    action: Literal["None", "Notify", "Restart", "Requeue"] = "Notify"
    """Notify: say so. Restart: restart the gang where it is, or queue it again if its kind can't. Requeue: evict it and
    queue it again."""
    max_actions: Annotated[int, Field(ge=0, le=1000)] = 3
    """A workload that was evicted this often since it stalled is only reported after that."""


class Recovery(Model):
    """What happens when nodes fail. Gangs are healed without this part, too, in the way that its defaults say."""

    enabled: bool = True
    """Off, failed nodes are left to Kubernetes; everything else that the policy says of recovery rests."""
    spares: Spares = 0
    """Nodes per flavor, or node pools where jobs take whole pools for themselves, that are kept as replacements: a number,
    or a share such as 5%."""
    lend: bool = True
    """Workloads that can be stopped at once may run on spare nodes meanwhile."""
    preempt_to_heal: bool = True
    """Where no spare is left, stop workloads of lower priority to replace a failed node."""
    soak: Duration = "1m"
    """A node that came back is watched for this long before it is used again."""
    swap_budget: Count = 5
    """How many nodes may be replaced under one workload within an hour before it is evicted and queued again instead."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    """Pods that are started from now on leave a node this many seconds after it went silent, by a toleration that is added
    to them unless they have one of their own. Left out: Kubernetes' 300 seconds."""
    breaker: Fraction = "0.5"
    """When more than this share of a flavor's nodes fails within a minute, nothing is swapped: that is no failure of
    nodes. 1: never."""
    proactive: bool = False
    """Move workloads to a spare already when their node is about to leave (maintenance, spot notice), never at the cost of
    others."""
    force_delete: bool = False
    """Consent to delete pods by force that cannot end because their node can't be reached. The node may still be running
    them: say yes only where two copies of a pod do no harm, or where failed nodes are powered off for certain. Pods on
    nodes that are gone or marked out of service are deleted by force in any case."""


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
]


class SecretRef(Model):
    """A Secret."""

    name: ObjectName
    """Its name."""
    namespace: Annotated[str, Field(max_length=63, pattern=DNS_LABEL)] = "gangline-system"
    """Its namespace."""


class Notify(Model):
    """Who is told what. A job says more or less of it by its annotations gangline.io/notify and gangline.io/notify-to."""

    secret_ref: SecretRef
    """The Secret with the receiver: key `url` has one or more Apprise URLs, one a line. Where a URL contains {to}, the
    address of the job's annotation gangline.io/notify-to is put there, else what key `to` says."""
    events: Annotated[list[Event], Field(min_length=1, max_length=16), LIST_SET]
    """What to tell."""
    digest: Duration = "0s"
    """Messages within this time are told in one. 0s: each at once."""
    max_per_hour: Annotated[int, Field(ge=1, le=100_000)] = 60
    """So many messages an hour; what is beyond that is bundled into the next one."""
    start_moved_by: Duration = "30m"
    """StartMoved: by how much the expected start has to move since it was last told."""


class QueuePolicySpec(Model):
    """The queues and what is different for them. A part that is left out stays as in Kueue."""

    cluster_queues: ClusterQueues
    """Which ClusterQueues are meant."""
    precedence: Int32 = 0
    """Where several policies match a queue the one with the highest precedence holds, then the first by name."""
    profile: Literal["Kueue", "Gangline"] = "Kueue"
    """Where parts left out come from. Kueue: as Kueue, but no quota is granted twice. Gangline: all fixes on, backfill 1 deep,
    quota held."""
    fixes: Fixes | None = None
    """Corrections of Kueue's behaviour, one by one."""
    order: Order | None = None
    """Who goes first."""
    backfill: Backfill | None = None
    """Let workloads that fit start early when they delay no reserved one."""
    preemption: Preemption | None = None
    """Who is stopped to make room."""
    overrun: Overrun | None = None
    """What happens to workloads that run longer than forecast."""
    stall: Stall | None = None
    """What happens to workloads that hang."""
    recovery: Recovery | None = None
    """What happens when nodes fail."""
    notify: Annotated[list[Notify], Field(max_length=16)] | None = None
    """Who is told what."""


class QueuePolicyStatus(Model):
    """How the policy is in force."""

    conditions: Conditions | None = None
    """Active: whether the policy is in force, and if not, why."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status is about."""
    matched: _NAMES | None = None
    """The ClusterQueues it is in force for; the first 256."""
    head_delay_seconds: Quantity | None = None
    """By how much backfill delayed workloads at the head beyond what the policy allows, in total. Should stay 0."""


class QueuePolicy(KubeObject):
    """How chosen ClusterQueues order, backfill, preempt, heal and notify, beyond what Kueue has fields for."""

    spec: QueuePolicySpec
    """The queues and what is different for them."""
    status: QueuePolicyStatus | None = None
    """How the policy is in force."""
