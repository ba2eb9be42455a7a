"""Changes: the facts that flow into the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gangline.engine.model.company import CompanyPrior, JobProfile, SlowedRun
from gangline.engine.model.devices import NodeCards
from gangline.engine.model.nodes import (
    ForeignPod,
    Node,
    NodeEviction,
    Recall,
    ReservedWindow,
    RuntimeForecast,
    SaveTime,
    Submitter,
    Topology,
    WorkloadPods,
)
from gangline.engine.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    Flavor,
    LocalQueue,
    Namespace,
    OrderInForce,
    PastPreemption,
    PreemptionsUnknown,
    QuotaAhead,
    ReservedHead,
)
from gangline.engine.model.workloads import Dependencies, SpentBudget, Workload

Item: TypeAlias = (
    Flavor
    | Cohort
    | ClusterQueue
    | QuotaAhead
    | OrderInForce
    | LocalQueue
    | Namespace
    | AdmissionCheck
    | Topology
    | Node
    | ForeignPod
    | NodeCards
    | ReservedWindow
    | Recall
    | NodeEviction
    | SaveTime
    | Submitter
    | JobProfile
    | CompanyPrior
    | SlowedRun
    | RuntimeForecast
    | WorkloadPods
    | Dependencies
    | SpentBudget
    | PastPreemption
    | PreemptionsUnknown
    | ReservedHead
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
    """A decision about this workload could not be written; the engine drops what it assumed of the decision.

    The next `Put` of the workload states the truth. Until then the workload is treated as its last `Put` said.
    """

    workload: str


Change: TypeAlias = Put | Gone | WriteFailed


def changes_between(kind: type[Item], known: Mapping[str, Item], wanted: Mapping[str, Item]) -> Iterator[Change]:
    """The changes after which an engine that knows these items of a kind, by their keys, knows those that are wanted."""
    for key in sorted(known.keys() - wanted.keys()):
        yield Gone(kind, key)
    for key, item in wanted.items():
        if known.get(key) != item:
            yield Put(item)
