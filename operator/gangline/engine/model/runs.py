"""What is known of runs besides the Workload itself: forecasts, and where pods are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.engine.model.units import Millis


@dataclass(frozen=True, slots=True)
class RuntimeForecast:
    """The runtime of a workload, from its start to its end, as quantiles; a fact like any other, replaced by newer ones.

    `quantiles` are (level, milliseconds) with rising levels. `engine.model.runtime` computes what they mean for a run that has
    already lasted a while: conditional on the elapsed time, never in the past.
    """

    workload: str  # key
    quantiles: tuple[tuple[float, Millis], ...]
    source: str = ""  # Model, Hint, Limit, Class, Queue, Global, …
    samples: int = 0
    #: flavor -> quantiles of a run there, where the flavor changes the runtime and the workload may get any of several
    #: flavors
    by_flavor: Mapping[str, tuple[tuple[float, Millis], ...]] = field(
        default_factory=dict[str, tuple[tuple[float, int], ...]]
    )


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of a workload that is bound to a node and has not ended, or may be bound to no other one (`sent`)."""

    name: str
    pod_set: str
    node: str
    index: int | None = None  # rank in its pod set
    ready: bool = False
    terminating: bool = False
    #: end of its grace period once it is deleted; 0 = not known
    due: Millis = 0
    #: it is not bound yet
    sent: bool = False
    #: why the scheduler can't bind it there, "" = it can, or has not tried yet
    refused: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadPods:
    """Where the pods of a workload are. Complete: a pod that is not listed is not bound."""

    workload: str  # key
    pods: tuple[BoundPod, ...]
    #: pods that failed through a fault of their node: (pod, node)
    failed: tuple[tuple[str, str], ...] = ()
