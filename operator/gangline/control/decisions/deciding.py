"""When the engine decides and how many decisions at a time, and what becomes of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from gangline.control.decisions.carrying_out import Decisions
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.operator_metrics import Metrics
from gangline.control.parts.part import Part
from gangline.control.writes.pacing import Pace
from gangline.control.writes.writer import Writer
from gangline.engine import Engine, model
from gangline.kube import resources as kube

#: Facts that arrive within this time are decided on together, in seconds …
GATHER: Final = 0.003
#: … or within nine times the CPU time of the last decision, up to this: with a thousand queues, deciding is expensive.
LONGEST_GATHER: Final = 0.5
#: … or, when the API server is strained, within the time that a write takes, up to `LONGEST_ROUND`.
LONGEST_ROUND: Final = 0.25
#: No workload is admitted or preempted much earlier than this before the write, in seconds.
AHEAD: Final = 1.0
#: name of the stage that fails where a decision cannot be carried out
CARRYING_OUT: Final = "carrying out a decision"


def gathering(deciding: float, pace: Pace) -> float:
    """How long to gather facts after a decision that took this much CPU, in seconds: nine tenths of the time are for other
    work.

    A decision made sooner than it can be written waits anyway, and takes CPU time from the writes. And when few decisions are
    made at a time, released quota goes to whichever workload waits at that moment, and is preempted again for the next one with
    a higher priority: two more writes for a server that is already strained.
    """
    seconds = min(LONGEST_GATHER, max(GATHER, 9.0 * deciding))
    return max(seconds, min(LONGEST_ROUND, pace.latency)) if pace.strained else seconds


def room(pace: Pace, urgent: int) -> int:
    """The number of decisions for which there is room: what can be written within `AHEAD`, minus the present `urgent` writes.

    A decision made long before its write holds quota that no pod uses, so that others wait, and a later workload with a higher
    priority preempts it again: more writes for a server that cannot keep up. There is room again when half of the writes are
    done: the fewer rounds, the less each decision costs.
    """
    most = max(2 * pace.most, round(AHEAD * pace.rate))
    left = most - urgent
    return left if 2 * left >= most else 0


class Deciding(Part):
    """Has the engine decide, and every decision carried out or taken back."""

    name = "decisions"

    def __init__(
        self,
        engine: Engine,
        decisions: Decisions,
        writer: Writer,
        metrics: Metrics,
        *,
        observe: Callable[[model.Change], None],
        quarantine: Quarantine,
    ) -> None:
        """`observe` passes facts to the engine and to the parts that follow its facts."""
        self._engine = engine
        self._decisions = decisions
        self._writer = writer
        self._metrics = metrics
        self._observe = observe
        self._quarantine = quarantine
        self._took = 0.0  # CPU seconds of the last decision

    @property
    def gathering(self) -> float:
        """Seconds to gather facts before the next decision."""
        return gathering(self._took, self._writer.pace)

    @property
    def room(self) -> int:
        return room(self._writer.pace, self._writer.urgent)

    def act(self, now: int) -> None:
        before = time.thread_time()
        with self._metrics.decide.time():
            decisions = self._engine.decide(now, self.room)
        self._took = time.thread_time() - before
        self._metrics.decide_cpu.inc(self._took)
        for decision in decisions:
            self._carry_out(decision)

    def _carry_out(self, decision: model.Decision) -> None:
        """A decision that cannot be carried out is taken back at once: an unwritten decision holds no quota."""
        if isinstance(decision, model.Warn):
            resource, key = kube.BY_KIND[decision.kind], decision.about
        else:
            resource, key = kube.WORKLOADS, decision.workload
        work = partial(self._decisions.carry_out, decision)
        if not self._quarantine.attempt(CARRYING_OUT, resource, key, work):
            self._observe(model.WriteFailed(key))
