"""How fast the engine decides: `make bench-engine`, JSON on stdout.

`scenarios` are the recorded large ones (tests/data/vectors/timing.jsonl.gz): `seconds` is the time in scheduling cycles, which
is what Kueue's figures measure, and `seconds_with_facts` adds taking in all facts between them. `growth` shows what a decision
costs as the backlog and the number of queues grow, `planning` what reservations and backfill cost. Seconds are CPU seconds of
this thread: others' work on the machine does not count.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import thread_time
from typing import Any

from tests.bench.planning import run_planning
from tests.conformance.scheduling_vectors import ScenarioWorld
from tests.conformance.vectors import read

from gangline.engine import CycleRecord, Engine
from gangline.engine.model import (
    Admit,
    Change,
    ClusterQueue,
    Flavor,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    PreemptionPolicy,
    Put,
    Quota,
    ResourceGroup,
    Workload,
)

TIMING = Path(__file__).parent.parent / "data" / "vectors" / "timing.jsonl.gz"
#: gangs that finish in one measurement of growth
RELEASES = 300
#: seconds that Kueue's Go scheduler took (best of five, in process, same kind of machine)
KUEUE = {"big-a": 0.89, "big-b": 1.49, "big-c": 4.31, "big-d": 3.27, "big-e": 2.52}


class TimedEngine(Engine):
    """Adds up the time spent in it."""

    taking_in = 0.0
    cycles: list[float]

    def observe(self, change: Change) -> None:
        start = thread_time()
        super().observe(change)
        self.taking_in += thread_time() - start

    def cycle(self, now: int) -> CycleRecord:
        start = thread_time()
        self._store.settle()
        settled = thread_time()
        record = super().cycle(now)
        self.taking_in += settled - start
        self.cycles.append(thread_time() - settled)
        return record


def run_recorded(scenario: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Replay one recorded scenario; every reservation and every victim must be Kueue's."""

    def make(settings: Any) -> Engine:
        engine = TimedEngine(settings)
        engine.cycles = []
        return engine

    world = ScenarioWorld(scenario, make_engine=make)
    engine = world.engine
    assert isinstance(engine, TimedEngine)
    decisions = 0
    for recorded in result["cycles"]:
        _, record, _ = world.advance(recorded["cycle"])
        decisions += len(record.reserved) + len(record.preempted)
        ours = sorted(admit.workload.rpartition("/")[2] for admit in record.reserved)
        theirs = sorted(entry["workload"] for entry in recorded["reserved"])
        victims = sorted(preempt.workload.rpartition("/")[2] for preempt in record.preempted)
        if ours != theirs or victims != sorted(entry["workload"] for entry in recorded["preempted"]):
            raise SystemExit(f"{scenario['name']}, cycle {recorded['cycle']}: decides otherwise than recorded")
    busy = sorted(seconds for seconds in engine.cycles)
    seconds = sum(busy)
    return {
        "seconds": round(seconds, 3),
        "seconds_with_facts": round(seconds + engine.taking_in, 3),
        "kueue_seconds": KUEUE.get(scenario["name"]),
        "cycles": len(busy),
        "ms_per_cycle_p50": round(1000 * busy[len(busy) // 2], 3),
        "ms_per_cycle_p99": round(1000 * busy[len(busy) * 99 // 100], 3),
        "decisions": decisions,
        "decisions_per_second": round(decisions / seconds),
    }


# --- growth -----------------------------------------------------------------------------------------------------------


def run_growth(backlog: int, queues: int, shapes: int) -> dict[str, Any]:
    """`backlog` gangs of `shapes` shapes wait in `queues` queues, ten to a cohort, that are full.

    Measured is what happens again and again: a running gang finishes, whoever can takes its place, another one arrives.
    """
    engine = Engine()
    running = _fill(engine, queues)
    now = 1_000_000
    for number in range(backlog):
        engine.observe(Put(_waiting(number, queues, shapes)))
    start = thread_time()
    decisions = _decide(engine, now)
    first = thread_time() - start
    _confirm(engine, decisions, running, now)
    seconds = 0.0
    made = releases = 0
    while releases < RELEASES:
        now += 1000
        gone = running.pop(next(iter(running)))
        arrived = Put(_waiting(backlog + releases, queues, shapes))
        start = thread_time()
        engine.observe(Put(replace(gone, finished=True)))
        engine.observe(arrived)
        decisions = _decide(engine, now)
        seconds += thread_time() - start
        releases += 1
        made += len(decisions)
        _confirm(engine, decisions, running, now)
    return {
        "pending": backlog,
        "queues": queues,
        "shapes": shapes,
        "first_decide_ms": round(1000 * first, 2),
        "ms_per_release": round(1000 * seconds / releases, 3),
        "us_per_decision": round(1e6 * seconds / max(1, made), 1),
    }


def _waiting(number: int, queues: int, shapes: int) -> Workload:
    """Gangs of 1 to 8 GPUs; further shapes differ by priority."""
    shape = number // queues % shapes
    return _gang(f"w{number}", queue=number % queues, size=1 + shape * 3 % 8, priority=shape // 8)


def _fill(engine: Engine, queues: int) -> dict[str, Workload]:
    engine.observe(Put(Flavor("gpu")))
    running: dict[str, Workload] = {}
    for number in range(queues):
        quotas = FlavorQuotas("gpu", {"nvidia.com/gpu": Quota(32)})
        group = ResourceGroup(("nvidia.com/gpu",), (quotas,))
        policy = PreemptionPolicy("Never", "Any")
        engine.observe(Put(ClusterQueue(f"q{number}", f"team{number // 10}", groups=(group,), preemption=policy)))
        engine.observe(Put(LocalQueue("default", f"q{number}", f"q{number}")))
        for place in range(8):
            workload = _gang(f"r{number}-{place}", queue=number, size=4, priority=5)
            engine.observe(Put(workload))
            running[workload.key] = workload
    decisions = _decide(engine, 1_000_000)
    _confirm(engine, decisions, running, 1_000_000)
    return running


def _gang(name: str, *, queue: int, size: int, priority: int) -> Workload:
    pod_sets = (PodSet("main", size, {"nvidia.com/gpu": 1}),)
    return Workload(name, "default", name, f"q{queue}", pod_sets, priority=priority, created=1_000_000)


def _decide(engine: Engine, now: int) -> list[Any]:
    decisions = engine.decide(now)
    while engine.next_wakeup(now) == now:
        decisions += engine.decide(now)
    return decisions


def _confirm(engine: Engine, decisions: list[Any], running: dict[str, Workload], now: int) -> None:
    for decision in decisions:
        if isinstance(decision, Admit):
            known = engine._store.gangs[decision.workload].workload
            workload = replace(
                known, admission=decision.admission, admitted=True, reserved_at=now, admitted_at=now, pods_ready=True
            )
            running[workload.key] = workload
            engine.observe(Put(workload))


def main() -> None:
    names = sys.argv[1:]
    gc.collect()
    scenarios = {
        scenario["name"]: run_recorded(scenario, result)
        for scenario, result in read(TIMING)
        if not names or scenario["name"] in names
    }
    sizes = [(backlog, 50, 2) for backlog in (100, 1_000, 10_000, 50_000)]  # more of the same
    sizes += [(50_000, queues, 2) for queues in (10, 200, 1_000)]  # more queues
    sizes += [(50_000, 50, 24)]  # more that differ from each other
    growth: list[dict[str, Any]] = []
    for size in [] if names else sizes:
        print("growth: {} pending in {} queues, {} shapes each".format(*size), file=sys.stderr)
        growth.append(run_growth(*size))
    planning: list[dict[str, Any]] = []
    for policy in [] if names else ("besteffort", "easy-sjbf", "gangline"):
        print(f"planning: {policy}", file=sys.stderr)
        planning.append(run_planning(policy))
    json.dump({"scenarios": scenarios, "growth": growth, "planning": planning}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
