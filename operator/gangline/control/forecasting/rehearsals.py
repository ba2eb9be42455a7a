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
from typing import Final, NamedTuple

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
from gangline.engine.model.runtime import NEVER


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


#: courses of a rehearsal, the fewest that give a p90; of a first look, that of the median and a late one
COURSES: Final = 8
GLANCE: Final = 1
#: seconds that may be spent on courses of one rehearsal beyond the first
MOST_TIME: Final = 1.0
#: milliseconds by which a change lets a workload start earlier, if it is worth a word
LEAST_GAIN: Final[Millis] = 60_000


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The submission of one workload: facts in addition to those of the cluster. `workload`: its key; "": the starts of all are
    wanted.

    `kind`: of several changes of one kind only the best is wanted, and of all kinds only those that let the workload start
    earliest. "": it is wanted in any case.
    """

    workload: str
    changes: tuple[Change, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The outcome of a rehearsal. `obstacle`: the engine's message where the workload starts in too few courses; "" otherwise."""

    outlook: Outlook
    obstacle: str = ""


class Rehearsals(NamedTuple):
    """The outcome of each rehearsal, in their order; None: it is not wanted, or there was no time for it. `unexamined`: those for
    which there was no time.
    """

    outcomes: list[Rehearsed | None]
    unexamined: int = 0

    @property
    def first(self) -> Rehearsed:
        """The outcome of the first one, which there is in any case."""
        (first, *_) = self.outcomes
        assert first is not None
        return first


def rehearse(
    facts: Sequence[Change],
    settings: Settings,
    now: Millis,
    rehearsals: Sequence[Rehearsal],
    seconds: float,
    best: int = 0,
) -> Rehearsals:
    """Play rehearsals, the first in any case.

    Those that have a kind are looked at first, in two courses each. Played in full are the `best` of them: of each kind the
    one that starts earliest, if it starts earlier than the first rehearsal; where that one never starts, the first of its kind
    that does. The search ends when so many kinds start at once, as nothing starts earlier. So the number of rehearsals bounds
    the work, and `seconds` are the last limit.
    """
    deadline = time.perf_counter() + seconds

    def played(each: Rehearsal, courses: int) -> Outlook:
        only = frozenset({each.workload}) if each.workload else None
        return outlook(
            [*facts, *each.changes],
            settings,
            now,
            only=only,
            courses=courses,
            seconds=MOST_TIME,
            patience=max(1.0, deadline - time.perf_counter()),
            clock=time.perf_counter,
        )

    def in_full(each: Rehearsal) -> Rehearsed:
        seen = played(each, COURSES)
        starts = not each.workload or each.workload in seen.starts
        return Rehearsed(seen, "" if starts else _obstacle([*facts, *each.changes], settings, now, each))

    def glance(each: Rehearsal) -> tuple[Millis, Millis]:
        found = played(each, GLANCE).starts.get(each.workload)
        return (found.p50, found.p90 or NEVER) if found is not None else (NEVER, NEVER)

    def out_of_time() -> bool:
        return time.perf_counter() >= deadline

    first, *others = rehearsals
    done: list[Rehearsed | None] = [in_full(first)]
    unexamined = 0
    #: kind -> the best start so far, and the number of the rehearsal that has it
    looked: dict[str, tuple[tuple[Millis, Millis], int]] = {}
    base = glance(first) if any(each.kind for each in others) else (NEVER, NEVER)
    for number, each in enumerate(others, 1):
        done.append(None)
        if out_of_time():
            unexamined += 1
            continue
        if not each.kind:
            done[number] = in_full(each)
            continue
        enough = sum(start <= now for (start, _), _ in looked.values()) >= best or max(base) - now < LEAST_GAIN
        if enough or (base[0] == NEVER and each.kind in looked):
            continue
        before = looked[each.kind][0] if each.kind in looked else base
        if (found := glance(each)) < before:
            looked[each.kind] = found, number
    for _, number in sorted(looked.values())[:best]:
        if out_of_time():
            unexamined += 1
        else:
            done[number] = in_full(rehearsals[number])
    return Rehearsals(done, unexamined)


def _obstacle(facts: Sequence[Change], settings: Settings, now: Millis, rehearsal: Rehearsal) -> str:
    """The engine's message after one decision round. A workload that is submitted later counts as submitted now."""
    engine = Engine(settings)
    for fact in facts:
        match fact:
            case Put(Workload(requeue_at=int()) as later) if later.key == rehearsal.workload:
                engine.observe(Put(replace(later, requeue_at=None)))
            case _:
                engine.observe(fact)
    engine.decide(now)
    explanation = engine.explain(rehearsal.workload)
    return explanation.message if explanation is not None else ""
