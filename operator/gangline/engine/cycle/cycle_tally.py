"""What scheduling cycles came to since the process started, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.cycle.attempt import NO_LONGER_FITS, OVERLAP, Attempt

#: what came of another search for victims, after earlier attempts of the cycle had chosen some of them
NEW_TARGETS, DEFERRED_FIT, SKIPPED = "new_targets", "deferred_fit", "skipped"
_PASSED_OVER: Final = (OVERLAP, NO_LONGER_FITS)


@dataclass(slots=True)
class CycleTally:
    #: attempts of heads
    attempts: int = 0
    #: ClusterQueue -> heads that had victims and were passed over, since others of the cycle needed the same; of the last cycle
    #: in which it had any
    preemption_skips: dict[str, int] = field(default_factory=dict[str, int])
    #: (ClusterQueue, outcome) -> searches for victims that were made again
    recomputations: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def note(self, attempts: Iterable[Attempt]) -> None:
        """Count one cycle."""
        skips: dict[str, int] = {}
        for attempt in attempts:
            self.attempts += 1
            queue = attempt.queue.name
            passed_over = attempt.skipped in _PASSED_OVER
            if passed_over and attempt.victims:
                skips[queue] = skips.get(queue, 0) + 1
            if attempt.recomputed:
                found = NEW_TARGETS if attempt.victims and not passed_over else SKIPPED
                self.recomputations[queue, DEFERRED_FIT if attempt.deferred else found] += 1
        self.preemption_skips.update(skips)

    def forget(self, queue: str) -> None:
        """A ClusterQueue was deleted."""
        self.preemption_skips.pop(queue, None)
        for outcome in (NEW_TARGETS, DEFERRED_FIT, SKIPPED):
            self.recomputations.pop((queue, outcome), None)
