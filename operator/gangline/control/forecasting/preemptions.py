"""Simulates whom a waiting workload would preempt, were it next in all queues: one round of decisions with nobody else waiting.
Blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangline.engine import Engine
from gangline.engine.model import Admit, Change, Millis, Preempt, Put, Settings, Workload


@dataclass(frozen=True, slots=True)
class LostWork:
    """A workload that would be preempted. `unsaved`: seconds of its work that would be lost, since its start or its last
    checkpoint.
    """

    workload: str
    reason: str
    unsaved: float


@dataclass(frozen=True, slots=True)
class PreemptionOutlook:
    """The outcome for a waiting workload. `starts`: it needs no victims. `obstacle`: why there is neither room nor victims."""

    starts: bool
    victims: tuple[LostWork, ...] = ()
    obstacle: str = ""


def preemption(facts: Sequence[Change], settings: Settings, now: Millis, workload: str) -> PreemptionOutlook:
    engine = Engine(settings)
    for fact in _without_others(facts, workload):
        engine.observe(fact)
    decisions = engine.decide(now)
    victims = tuple(
        LostWork(each.workload, each.reason, engine.unsaved_seconds(each.workload, now))
        for each in decisions
        if isinstance(each, Preempt) and each.by == workload
    )
    if victims:
        return PreemptionOutlook(False, victims)
    if any(isinstance(each, Admit) and each.workload == workload for each in decisions):
        return PreemptionOutlook(True)
    explanation = engine.explain(workload)
    return PreemptionOutlook(False, obstacle=explanation.message if explanation is not None else "")


def _without_others(facts: Iterable[Change], workload: str) -> Iterable[Change]:
    """The facts without other workloads that wait: they take nothing."""
    for fact in facts:
        match fact:
            case Put(Workload(admission=None, finished=False) as waiting) if waiting.key != workload:
                continue
            case _:
                yield fact
