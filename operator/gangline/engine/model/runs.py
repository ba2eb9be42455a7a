"""What is known of runs, beside what the Workload itself says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.engine.model.units import Millis


@dataclass(frozen=True, slots=True)
class RuntimeForecast:
    """How long a workload will run, from its start to its end, as quantiles; a fact like any other, replaced by newer ones.

    `quantiles` are (level, milliseconds) with rising levels. What it means for a run that has lasted a while is the
    engine's arithmetic (`engine.model.runtime`): conditional on the time that it has taken, never in the past.
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
    #: when its grace period is over, once it has been told to go; 0 = not known
    due: Millis = 0


@dataclass(frozen=True, slots=True)
class WorkloadPods:
    """Where the pods of a workload are. Complete: what is not in here is not bound."""

    workload: str  # key
    pods: tuple[BoundPod, ...]
    #: pods that failed by the fault of their node, with that: (name, node)
    failed: tuple[tuple[str, str], ...] = ()
