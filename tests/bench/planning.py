"""What planning costs: 5,000 gangs wait for 500 nodes, one finishes or comes at a time.

Sizes, runtimes and forecasts are random, as in a busy research cluster; policies are those of `gangline admin replay`.
"""

from __future__ import annotations

import gc
import random
import statistics
from dataclasses import replace
from heapq import heappop, heappush
from time import process_time
from typing import Any

from gangline.engine import Engine
from gangline.engine.model import Admit, Evict, Gone, Preempt, Put, RuntimeForecast, Workload
from gangline.replay.policies import POLICIES
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, number_of
from gangline.replay.trace_facts import SETTINGS, Workloads, facts

#: (GPUs, how often)
SIZES = ((1, 60), (2, 10), (4, 8), (8, 15), (16, 4), (32, 2), (64, 1))
CHECKPOINT = 1_800_000  # milliseconds


class Busy:
    """The engine, and who runs until when; milliseconds."""

    def __init__(self, nodes: int, policy: str, seed: int) -> None:
        self._random = random.Random(seed)
        cluster = ReplayedCluster(8 * nodes, 8)
        queue = POLICIES[policy].queue
        self._workloads = Workloads(cluster, queue.name, by_tenant=False, ranked=False)
        self._engine = Engine(SETTINGS)
        for fact in facts(cluster, queue, None):
            self._engine.observe(fact)
        self._jobs: list[ReplayedJob] = []
        self._ends: list[tuple[int, int, int]] = []
        self._runs: dict[int, int] = {}
        self.now = 10_000_000_000
        self.decisions = 0

    def arrive(self) -> None:
        sizes, chances = zip(*SIZES, strict=True)
        chance = self._random
        seconds = min(10 * 86400.0, max(30.0, chance.lognormvariate(7.5, 1.8)))
        number, gpus = len(self._jobs), chance.choices(sizes, chances)[0]
        job = ReplayedJob(number, str(number), self.now, round(1000 * seconds), gpus, "", checkpoint=CHECKPOINT)
        self._jobs.append(job)
        guess = seconds * chance.lognormvariate(0.0, 0.7)
        spread = ((0.1, 0.3), (0.5, 1.0), (0.8, 2.0), (0.9, 3.0), (0.95, 4.5))
        quantiles = tuple((level, round(1000 * guess * factor)) for level, factor in spread)
        self._engine.observe(Put(RuntimeForecast(job.key, quantiles, "model", 1000)))
        self._engine.observe(Put(self._workloads.of(job)))

    def finish_next(self) -> None:
        while True:
            end, number, run = heappop(self._ends)
            if self._runs.get(number) == run:
                break
        self.now = max(self.now, end)
        del self._runs[number]
        self._engine.observe(Gone(Workload, self._jobs[number].key))
        self._engine.observe(Gone(RuntimeForecast, self._jobs[number].key))

    def decide(self) -> list[float]:
        """Until nothing more follows; CPU milliseconds of each call of the engine."""
        took: list[float] = []
        while True:
            begun = process_time()
            decisions = self._engine.decide(self.now)
            again = self._engine.next_wakeup(self.now) == self.now
            took.append(1000 * (process_time() - begun))
            self._follow(decisions)
            if not again:
                return took

    def _follow(self, decisions: list[Any]) -> None:
        self.decisions += len(decisions)
        for decision in decisions:
            if isinstance(decision, Admit):
                job = self._jobs[number_of(decision.workload)]
                run = self._runs[job.number] = self.decisions
                heappush(self._ends, (self.now + job.duration, job.number, run))
            elif isinstance(decision, Preempt | Evict):
                job = self._jobs[number_of(decision.workload)]
                self._runs.pop(job.number, None)
                waiting = replace(self._workloads.of(job), evicted=decision.reason, evicted_at=self.now)
                self._engine.observe(Put(waiting))


def run_planning(
    policy: str = "gangline", pending: int = 5_000, nodes: int = 500, events: int = 3_000, seed: int = 1
) -> dict[str, Any]:
    """One gang finishes or one comes, in turns; CPU milliseconds per event, and of the worst single decision.

    An event may bring several decisions, between which the operator writes and listens.
    """
    world = Busy(nodes, policy, seed)
    for _ in range(nodes):
        world.arrive()
    world.decide()
    for _ in range(pending):
        world.arrive()
    gc.collect()
    first, took, single = sum(world.decide()), list[float](), list[float]()
    for number in range(events):
        if number % 2:
            world.now += 1_000
            world.arrive()
        else:
            world.finish_next()
        calls = world.decide()
        took.append(sum(calls))
        single += calls
    took.sort()
    return {
        "policy": policy,
        "pending": pending,
        "nodes": nodes,
        "events": events,
        "first_ms": round(first, 1),
        "mean_ms": round(statistics.fmean(took), 2),
        "p95_ms": round(took[len(took) * 95 // 100], 2),
        "p99_ms": round(took[len(took) * 99 // 100], 2),
        "worst_ms": round(took[-1], 2),
        "worst_decision_ms": round(max(single), 2),
        "decisions": world.decisions,
    }
