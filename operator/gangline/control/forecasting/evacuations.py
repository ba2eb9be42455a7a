"""Simulates that a node is vacated now: which gangs would leave it, found in one round of decisions with nobody
waiting. Blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangline.engine import Engine
from gangline.engine.model import Admission, Change, Heal, Millis, Node, Put, Settings, Swap, Taint, Workload


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
