"""What happened in one scheduling cycle, in full: for tests, recorded scenarios and inspection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.engine.model import Admit, Preempt


@dataclass(frozen=True, slots=True)
class Requeued:
    """A head that was not reserved."""

    workload: str
    mode: str  # NoFit | Preempt | DeferredFit | Fit
    borrowing: int  # height
    status: str  # "skipped" or ""
    requeue_reason: str
    reason: str
    flavors: Mapping[str, Mapping[str, str]]  # pod set -> resource -> flavor, as far as one was found
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CycleRecord:
    heads: tuple[str, ...]
    #: root cohort (or ClusterQueue without one) -> workloads in the order of processing
    order: Mapping[str, tuple[str, ...]]
    reserved: tuple[Admit, ...]
    preempted: tuple[Preempt, ...]
    requeued: tuple[Requeued, ...]
