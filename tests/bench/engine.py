"""How fast the engine decides: `make bench-engine`, JSON on stdout.

`scenarios` are the recorded large ones (tests/data/vectors/timing.jsonl.gz): `seconds` is the time in scheduling cycles, which
is what Kueue's figures measure, and `seconds_with_facts` adds taking in all facts between them. `growth` shows what a decision
costs as the backlog and the number of queues grow.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from gangline.console.scheduling_vectors import World
from gangline.console.vectors import read
from gangline.engine.engine import Engine
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
from gangline.engine.record import CycleRecord

TIMING = Path(__file__).parent.parent / "data" / "vectors" / "timing.jsonl.gz"
#: seconds that Kueue's Go scheduler took (best of five, in process, same kind of machine)
KUEUE = {"big-a": 0.89, "big-b": 1.49, "big-c": 4.31, "big-d": 3.27, "big-e": 2.52}


class TimedEngine(Engine):
    """Adds up the time spent in it."""

    facts = 0.0
    cycles: list[float]

    def observe(self, change: Change) -> None:
        start = perf_counter()
        super().observe(change)
        self.facts += perf_counter() - start

    def cycle(self, now: int) -> CycleRecord:
        start = perf_counter()
        self._store.settle()
        settled = perf_counter()
        record = super().cycle(now)
        self.facts += settled - start
        self.cycles.append(perf_counter() - settled)
        return record


def run_recorded(scenario: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Replay one recorded scenario; every reservation and every victim must be Kueue's."""

    def make(settings: Any) -> Engine:
        engine = TimedEngine(settings)
        engine.cycles = []
        return engine

    world = World(scenario, make_engine=make)
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
        "seconds_with_facts": round(seconds + engine.facts, 3),
        "kueue_seconds": KUEUE.get(scenario["name"]),
        "cycles": len(busy),
        "ms_per_cycle_p50": round(1000 * busy[len(busy) // 2], 3),
        "ms_per_cycle_p99": round(1000 * busy[len(busy) * 99 // 100], 3),
        "decisions": decisions,
        "decisions_per_second": round(decisions / seconds),
    }


# --- growth -----------------------------------------------------------------------------------------------------------


def run_growth(backlog: int, queues: int) -> dict[str, Any]:
    """`backlog` gangs of eight sizes and three priorities wait in `queues` queues of ten to a cohort, which are full.

    Measured is what happens again and again: a running gang finishes, and whoever can takes its place.
    """
    engine = Engine()
    running = _fill(engine, queues)
    now = 1_000_000
    for number in range(backlog):
        engine.observe(Put(_gang(f"w{number}", queue=number % queues, size=1 + number % 8, priority=number // 8 % 3)))
    start = perf_counter()
    decisions = engine.decide(now)
    first = perf_counter() - start
    _confirm(engine, decisions, running, now)
    releases = min(300, len(running))
    made = 0
    start = perf_counter()
    for _ in range(releases):
        now += 1000
        gone = next(iter(running))
        engine.observe(Put(replace(running.pop(gone), finished=True)))
        decisions = engine.decide(now)
        made += sum(isinstance(decision, Admit) for decision in decisions) + 1
        _confirm(engine, decisions, running, now)
    seconds = perf_counter() - start
    return {
        "pending": backlog,
        "queues": queues,
        "first_decide_ms": round(1000 * first, 2),
        "ms_per_release": round(1000 * seconds / releases, 3),
        "us_per_decision": round(1e6 * seconds / made, 1),
    }


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
    decisions = engine.decide(1_000_000)
    _confirm(engine, decisions, running, 1_000_000)
    return running


def _gang(name: str, *, queue: int, size: int, priority: int) -> Workload:
    pod_sets = (PodSet("main", size, {"nvidia.com/gpu": 1}),)
    return Workload(name, "default", name, f"q{queue}", pod_sets, priority=priority, created=1_000_000)


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
    growth = [] if names else [run_growth(backlog, 50) for backlog in (100, 1_000, 10_000, 50_000)]
    growth += [] if names else [run_growth(50_000, queues) for queues in (10, 200, 1_000)]
    json.dump({"scenarios": scenarios, "growth": growth}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
