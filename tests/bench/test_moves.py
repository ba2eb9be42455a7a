"""The benchmark of moves, on a few made-up nodes: demand stays as high as wanted, and moves let more gangs start."""

from __future__ import annotations

from tests.bench.fill import TraceNode
from tests.bench.moves import MINUTE, POLICY, Filled, Plan, measure

from gangline.traces.trace import TraceJob

NODES = [TraceNode(f"n{number}", 8, cpu_milli=64_000, memory=1 << 40) for number in range(6)]
PODS = [
    *(TraceJob(id=f"half{number}", submit=0, duration=0, gpus=1, gpu_milli=500) for number in range(4)),
    *(TraceJob(id=f"two{number}", submit=0, duration=0, gpus=2) for number in range(4)),
    TraceJob(id="whole", submit=0, duration=0, gpus=8),
]
PLAN = Plan(moves=None, checkpoints=1.0, hours=2.0, every=10 * MINUTE, load=0.7, seed=42)


def test_demand_stays_as_wanted_and_whoever_finds_no_room_is_withdrawn() -> None:
    world = Filled(PLAN, PODS, NODES)
    assert 0.69 <= world.given <= 0.9
    world.play()
    assert len(world.gangs) == len(world.held) == 12 and all(0.6 < given <= 1 for given in world.held)
    unlucky = [each for each in world.outcomes if not each.stints and each.job.number not in world.gangs]
    assert not {each.job.key for each in unlucky} & set(world.workloads)


def test_moves_let_more_gangs_start_and_what_they_cost_is_counted() -> None:
    plans = [Plan(moves, 1.0, 2.0, 10 * MINUTE, 0.7, seed) for moves in (None, POLICY) for seed in (42, 43)]
    still, moving = measure(plans[:2], PODS, NODES), measure(plans[2:], PODS, NODES)
    assert still["gangs"] == moving["gangs"] == 24
    assert still["moved"] == still["lost_gpu_hours"] == 0 < moving["moved"]
    assert still["started_within_10_minutes_percent"] < moving["started_within_10_minutes_percent"]
    assert 0 < moving["lost_gpu_hours"] <= moving["moved"] * 8 * 0.52, "half an hour and a restart on each GPU at most"
