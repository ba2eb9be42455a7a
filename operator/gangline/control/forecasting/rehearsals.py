"""Plays the engine forward as if one more workload were submitted, with facts that are not the cluster's. Blocks.

Simulates that a node is vacated now: which gangs would leave it, found in one round of decisions with nobody
waiting. Blocks.

Simulates whom a waiting workload would preempt, were it next in all queues: one round of decisions with nobody else waiting.
Blocks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gangline.engine import Engine, Outlook, outlook
from gangline.engine.model import (
    Admission,
    Admit,
    Change,
    Heal,
    Millis,
    Node,
    Preempt,
    Put,
    Settings,
    Swap,
    Taint,
    Workload,
)


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


@dataclass(frozen=True, slots=True)
class Move:
    """A gang that would move. `to`: its new hosts, known beforehand only where Gangline places pods itself."""

    workload: str
    how: str
    to: tuple[str, ...] = ()


def evacuation(facts: Sequence[Change], settings: Settings, now: Millis, node: str, taint: str) -> tuple[Move, ...]:
    """The gangs that would leave a node with this taint. What is decided at this moment anyway is decided first."""
    engine = Engine(settings)
    vacated: Node | None = None
    held: dict[str, Admission] = {}
    for fact in facts:
        match fact:
            case Put(Workload(admission=None, finished=False)):
                continue  # it takes nothing, and would get what the gangs leave
            case Put(Workload(admission=Admission() as admission) as gang):
                held[gang.key] = admission
            case Put(Node() as found) if found.name == node:
                vacated = replace(found, taints=(*found.taints, Taint(taint)))
            case _:
                pass
        engine.observe(fact)
    if vacated is None:
        return ()
    engine.decide(now)
    engine.observe(Put(vacated))
    decisions = engine.decide(now)
    places = {
        each.workload: _hosts(each.admission) - _hosts(held.get(each.workload))
        for each in decisions
        if isinstance(each, Swap)
    }
    return tuple(
        Move(each.workload, each.how, tuple(sorted(places.get(each.workload, ()))))
        for each in decisions
        if isinstance(each, Heal) and node in each.lost
    )


def _hosts(admission: Admission | None) -> set[str]:
    placed = (each.topology for each in admission.pod_sets) if admission is not None else ()
    return {domain.values[-1] for each in placed if each is not None for domain in each.domains}


#: seconds that may be spent on courses of one rehearsal beyond the first
COURSES: Final = 1.0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The submission of one workload: facts in addition to those of the cluster. `workload`: its key; "": the starts of all are
    wanted.
    """

    workload: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The outcome of a rehearsal. `obstacle`: the engine's message where the workload starts in too few courses; "" otherwise."""

    outlook: Outlook
    obstacle: str = ""


def rehearse(
    facts: Sequence[Change], settings: Settings, now: Millis, rehearsals: Sequence[Rehearsal], seconds: float
) -> list[Rehearsed]:
    """The outcome of each rehearsal, in order; of those for which the time is enough, but at least of the first."""
    deadline = time.perf_counter() + seconds
    done: list[Rehearsed] = []
    for each in rehearsals:
        left = deadline - time.perf_counter()
        if done and left <= 0:
            break
        changed = [*facts, *each.changes]
        only = frozenset({each.workload}) if each.workload else None
        seen = outlook(
            changed, settings, now, only=only, seconds=COURSES, patience=max(1.0, left), clock=time.perf_counter
        )
        starts = not each.workload or each.workload in seen.starts
        done.append(Rehearsed(seen, "" if starts else _obstacle(changed, settings, now, each)))
    return done


def _obstacle(facts: Sequence[Change], settings: Settings, now: Millis, rehearsal: Rehearsal) -> str:
    """The engine's message after one decision round."""
    engine = Engine(settings)
    for fact in facts:
        engine.observe(fact)
    engine.decide(now)
    explanation = engine.explain(rehearsal.workload)
    return explanation.message if explanation is not None else ""
