"""Decides when the engine makes decisions and how many at a time, and hands each on to be carried out."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from gangline.control.decisions.carrying_out import Decisions
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.pacing import Pace
from gangline.engine import model
from gangline.kube import resources as kube

#: Facts that arrive within this time are decided on together, in seconds …
GATHER: Final = 0.003
#: … or within nine times the CPU time of the last decision, up to this limit: with a thousand queues, deciding is expensive.
LONGEST_GATHER: Final = 0.5
#: … or, where the API server is strained, within the latency of a write, up to `LONGEST_ROUND`.
LONGEST_ROUND: Final = 0.25
#: The loop rests for as long as the last decision took before it decides on what that left, up to this limit: writes are made
#: meanwhile, and requests are answered.
LONGEST_REST: Final = 0.5
#: No workload is admitted or preempted earlier than about this time before the write can be sent, in seconds.
AHEAD: Final = 1.0
#: the stage under which a failed attempt to carry out a decision is counted
CARRYING_OUT: Final = "carrying out a decision"


def gathering(deciding: float, pace: Pace) -> float:
    """How long to gather facts after a decision that took `deciding` CPU seconds, in seconds. Deciding gets a tenth of the time.

    A decision made before it can be written only waits, and takes CPU time from the writer. And with few decisions at a time,
    freed quota goes to the workload that happens to be waiting; the next one with a higher priority often preempts it. That costs
    two more writes on a server that is already strained.
    """
    seconds = min(LONGEST_GATHER, max(GATHER, 9.0 * deciding))
    return max(seconds, min(LONGEST_ROUND, pace.latency)) if pace.strained else seconds


def room(pace: Pace, urgent: int) -> int:
    """How many decisions there is room for: the writes possible within `AHEAD`, less the `urgent` writes that wait already.

    A decision made long before it can be written holds quota that is not used. Other workloads wait for that quota, and one with
    a higher priority preempts the holder: more writes for a server that cannot keep up. There is room again when half of the
    writes are done: the fewer rounds, the less each decision costs.
    """
    most = max(2 * pace.most, round(AHEAD * pace.rate))
    left = most - urgent
    return left if 2 * left >= most else 0


class Deciding(Part):
    """Lets the engine decide, and carries out or takes back every decision."""

    name = "decisions"

    def __init__(self, context: Context, decisions: Decisions, *, observe: Callable[[model.Change], None]) -> None:
        """Let this engine decide. `observe` passes a fact to the engine and to the other readers of its facts."""
        self._engine = context.engine
        self._decisions = decisions
        self._writer = context.writer
        self._metrics = context.metrics
        self._observe = observe
        self._quarantine = context.quarantine
        self._took = 0.0  # CPU seconds of the last decision

    @property
    def gathering(self) -> float:
        """How long to gather facts before the next decision, in seconds. What the last one left is gone on with soon."""
        return max(GATHER, self.rest) if self._engine.unfinished else gathering(self._took, self._writer.pace)

    @property
    def rest(self) -> float:
        """How long the loop leaves the processor to others before it decides again without new facts, in seconds."""
        return min(LONGEST_REST, self._took)

    @property
    def room(self) -> int:
        return room(self._writer.pace, self._writer.urgent)

    def act(self, now: int) -> None:
        before, begun, attempts = time.thread_time(), time.perf_counter(), self._engine.attempts
        decisions = self._engine.decide(now, self.room)
        self._took, lasted = time.thread_time() - before, time.perf_counter() - begun
        self._metrics.decide.observe(lasted)
        self._metrics.decide_cpu.inc(self._took)
        if self._engine.attempts > attempts:
            success = any(isinstance(decision, model.Admit) for decision in decisions)
            self._metrics.kueue.attempted(success=success, seconds=lasted)
        for decision in decisions:
            self._carry_out(decision)

    def _carry_out(self, decision: model.Decision) -> None:
        """Carry out a decision. If that fails, take it back at once, so that an unwritten decision holds no quota."""
        if isinstance(decision, model.Warn):
            resource, key = kube.BY_KIND[decision.kind], decision.about
        else:
            resource, key = kube.WORKLOADS, decision.workload
        work = partial(self._decisions.carry_out, decision)
        if not self._quarantine.attempt(CARRYING_OUT, resource, key, work):
            self._observe(model.WriteFailed(key))
