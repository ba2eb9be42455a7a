"""Plays the engine forward as if one more workload were submitted, with facts that are not the cluster's. Blocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gangline.engine import Engine, Outlook, outlook
from gangline.engine.model import Change, Millis, Settings

#: seconds that may be spent on courses of one rehearsal beyond the first
COURSES: Final = 1.0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The submission of one workload: facts in addition to those of the cluster. `workload`: its key."""

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
        only = frozenset({each.workload})
        seen = outlook(
            changed, settings, now, only=only, seconds=COURSES, patience=max(1.0, left), clock=time.perf_counter
        )
        done.append(Rehearsed(seen, "" if each.workload in seen.starts else _obstacle(changed, settings, now, each)))
    return done


def _obstacle(facts: Sequence[Change], settings: Settings, now: Millis, rehearsal: Rehearsal) -> str:
    """The engine's message after one decision round."""
    engine = Engine(settings)
    for fact in facts:
        engine.observe(fact)
    engine.decide(now)
    explanation = engine.explain(rehearsal.workload)
    return explanation.message if explanation is not None else ""
