"""When the engine decides and how much at a time, and what becomes of each decision."""

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
#: … or within nine times the CPU time that the last decision took, up to this: where a thousand queues wait, deciding is dear.
LONGEST_GATHER: Final = 0.5
#: … or, where the API server is strained, within as long as a write takes there, up to `LONGEST_ROUND`.
LONGEST_ROUND: Final = 0.25
#: Nobody is admitted or preempted sooner than about this before it can be written, in seconds.
AHEAD: Final = 1.0
#: how the attempt to carry out a decision is called where it fails
CARRYING_OUT: Final = "carrying out a decision"


def gathering(deciding: float, pace: Pace) -> float:
    """For how long to gather facts after a decision that took so much CPU, in seconds: nine tenths of the time are for others.

    What is decided sooner than it can be written waits anyway, and takes time from whoever writes it. And where little is
    decided at a time, whatever comes free goes to whoever waits just then, and has to be taken away again from most of them by
    the next with a higher priority: two more writes for a server that is strained already.
    """
    seconds = min(LONGEST_GATHER, max(GATHER, 9.0 * deciding))
    return max(seconds, min(LONGEST_ROUND, pace.latency)) if pace.strained else seconds


def room(pace: Pace, urgent: int) -> int:
    """How many decisions there is room for: what can be written within `AHEAD`, less the `urgent` writes that there are.

    What is decided long before it can be written holds quota that nobody uses, so that others wait, and whoever comes with a
    higher priority takes it away again: more writes for a server that can't keep up as it is. There is room again when half of it
    has been written: the fewer rounds, the less each decision costs.
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
        """`observe` tells the engine, and whoever follows its facts."""
        self._engine = engine
        self._decisions = decisions
        self._writer = writer
        self._metrics = metrics
        self._observe = observe
        self._quarantine = quarantine
        self._took = 0.0  # CPU seconds of the last decision

    @property
    def gathering(self) -> float:
        """For how long to gather facts before the next decision, in seconds."""
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
        """A decision that can't be carried out is taken back at once: nothing is held by what is not written."""
        if isinstance(decision, model.Warn):
            resource, key = kube.BY_KIND[decision.kind], decision.about
        else:
            resource, key = kube.WORKLOADS, decision.workload
        work = partial(self._decisions.carry_out, decision)
        if not self._quarantine.attempt(CARRYING_OUT, resource, key, work):
            self._observe(model.WriteFailed(key))
