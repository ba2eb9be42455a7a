"""What room made by moving is worth, and what it costs: `make bench-moves`, JSON on stdout.

A part of openb's nodes is filled with pods with GPUs that are drawn from openb's list until so much of its GPUs is given away.
From then on pods end (exponential lifetimes), and others come so that as much stays given away: a pod that fits nowhere is
withdrawn, and another one drawn at the next event. Gangs of one pod with eight GPUs arrive at equal intervals, and wait.
The engine itself decides, in its simulation, with a placement policy that packs: once without moves, and once for each share of
pods that declare checkpoints. Waits count from arrival to start.

`lost_gpu_hours` is what moved pods computed and did not save, and their restarts; a share of a GPU counts as that share.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Any, Final

from tests.bench import fill
from tests.bench.fill import TraceNode

from gangline.engine import HOSTNAME, MOVED, OF_POLICY, Engine, EventKind, SimulatedRun, Simulation
from gangline.engine.model import (
    ClusterQueue,
    Device,
    Flavor,
    FlavorQuotas,
    Gone,
    LocalQueue,
    Moves,
    Node,
    NodeCards,
    PlacementPolicy,
    PodSet,
    Put,
    Quota,
    ResourceGroup,
    Settings,
    Topology,
    Workload,
)
from gangline.traces.trace import TraceError, TraceJob

GPU: Final = "nvidia.com/gpu"
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
#: how long pods run on average, and gangs always; how often pods that declare checkpoints write one
MEAN_HOURS, GANG_MINUTES, CHECKPOINT_MINUTES = 8.0, 30, 30
#: a gang that starts within this time counts as prompt
PROMPT: Final = 10 * MINUTE
#: how much less than wanted is given away at the beginning, as a part of all GPUs
TOLERANCE: Final = 0.005
#: shares that a card takes, as pods that ask for one see it
SHARES: Final = 10
#: whoever declares checkpoints may move at any time, and all pods of a node of eight GPUs may
POLICY: Final = Moves(lost_gpu_hours_per_day=1_000.0, longest_loss_seconds=60.0 * CHECKPOINT_MINUTES, most=16)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: who declares checkpoints, and whether others may move."""

    moves: Moves | None
    checkpoints: float
    hours: float
    every: int  #: milliseconds between gangs
    load: float
    seed: int


class Filled(Simulation):
    """A cluster at constant demand, and the gangs that arrive."""

    CONFIRMS = False

    def __init__(self, plan: Plan, pods: Sequence[TraceJob], nodes: Sequence[TraceNode]) -> None:
        super().__init__(Engine(Settings(pods_ready=None)), 0)
        self.plan = plan
        self._draw = random.Random(plan.seed)
        self._pods = [pod for pod in pods if pod.gpus]
        self._gangs = [pod for pod in pods if pod.gpus == 8]
        self._total = 1000 * sum(node.gpus for node in nodes)
        self._lengths: dict[str, int] = {}
        self._milli: dict[str, int] = {}
        self._asked = 0
        self._number = 0
        self.waits: dict[str, int | None] = {}
        self.moved = 0
        self.lost = 0.0  #: GPU-milliseconds
        self.held: list[float] = []
        quota = {name: Quota(1 << 50) for name in (GPU, "cpu", "memory")}
        groups = (ResourceGroup(tuple(quota), (FlavorQuotas("gpus", quota),)),)
        policy = PlacementPolicy("Fragmentation")
        queue = ClusterQueue("q", groups=groups, placement=policy)
        for item in (Flavor("gpus", {"pool": "gpus"}), Topology(OF_POLICY, (HOSTNAME,)), queue):
            self.observe(Put(item))
        self.observe(Put(LocalQueue("team", "q", "q")))
        for node in nodes:
            amounts = {GPU: SHARES * node.gpus, "cpu": node.cpu_milli, "memory": node.memory, "pods": 1_000}
            self.observe(Put(Node(node.name, {"pool": "gpus", HOSTNAME: node.name}, amounts)))
            cards = (Device(node.name, f"{node.name}-{each}", each, resource=GPU) for each in range(node.gpus))
            self.observe(Put(NodeCards(node.name, tuple(cards))))
        self._fill()
        self.observe(Put(replace(queue, moves=plan.moves)))
        first = HOUR
        for number in range(int(plan.hours * HOUR / plan.every)):
            self.schedule(first + number * plan.every, EventKind.ARRIVAL, number)

    @property
    def given(self) -> float:
        """The share of all GPUs that is given away."""
        return sum(self._milli[key] for key in self.runs) / self._total

    def _submit(self, pod: TraceJob, name: str, length: int) -> None:
        requests = {GPU: pod.gpus, "cpu": pod.cpu_milli, "memory": pod.memory}
        shares = tuple(replace(share, models=(), resource=GPU) for share in fill.ask_of(pod).shares)
        pod_set = PodSet("main", 1, {key: amount for key, amount in requests.items() if amount}, shares=shares)
        saves = self._draw.random() < self.plan.checkpoints
        workload = Workload(
            f"uid-{name}",
            "team",
            name,
            "q",
            (pod_set,),
            created=self.now,
            checkpoint_seconds=60.0 * CHECKPOINT_MINUTES if saves else None,
        )
        self._lengths[workload.key] = length
        self._milli[workload.key] = pod.gpu_milli or 1000 * pod.gpus
        if workload.key not in self.waits:
            self._asked += self._milli[workload.key]
        self.put(workload)

    def _more(self) -> None:
        """Pods come until they and the gangs that run have so much as they should."""
        while self._asked < self.plan.load * self._total:
            self._number += 1
            length = max(MINUTE, round(self._draw.expovariate(1 / (MEAN_HOURS * HOUR))))
            self._submit(self._draw.choice(self._pods), f"p{self._number}", length)

    def _fill(self) -> None:
        """The cluster at the beginning: pods that fit nowhere are left out, and others drawn."""
        while True:
            self._more()
            self.decide()
            self._withdraw()
            if self._asked >= (self.plan.load - TOLERANCE) * self._total:
                break

    def _withdraw(self) -> None:
        """Pods that have not found room give up. Gangs wait, and pods that have moved."""
        for key in [key for key in self.workloads if key not in self.runs and key not in self.waits]:
            if not self.workloads[key].past:
                self._forget(self.workloads.pop(key))

    def _forget(self, workload: Workload) -> None:
        self._asked -= self._milli[workload.key]
        self.observe(Gone(Workload, workload.key))

    def length(self, workload: Workload, run: SimulatedRun) -> int:
        del run
        again = round(1000 * POLICY.restart_seconds) if workload.past else 0
        return max(MINUTE, self._lengths[workload.key] - workload.saved) + again

    def happens(self, kind: EventKind, number: int) -> None:
        del kind
        gang = self._gangs[number % len(self._gangs)]
        self.waits[f"team/g{number}"] = None
        self._submit(gang, f"g{number}", GANG_MINUTES * MINUTE)
        self.held.append(self.given)

    def started(self, workload: Workload) -> None:
        if self.waits.get(workload.key, 0) is None:
            self.waits[workload.key] = self.now - workload.created
        if workload.key in self.waits:
            self._asked += self._milli[workload.key]

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        if reason != MOVED or run is None:
            raise AssertionError(f"{workload.key} is stopped: {reason}")
        if workload.key in self.waits:
            self._asked -= self._milli[workload.key]
        ran = self.now - run.began
        self.moved += 1
        self.lost += (ran - workload.kept(ran) + 1000 * POLICY.restart_seconds) * self._milli[workload.key] / 1000

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        del run
        self._asked -= self._milli[workload.key]

    def settled(self) -> None:
        self._withdraw()
        self._more()

    def until(self) -> int:
        return round((self.plan.hours + 1) * HOUR) + PROMPT


def measure(plan: Plan, pods: Sequence[TraceJob], nodes: Sequence[TraceNode]) -> dict[str, Any]:
    start = thread_time()
    world = Filled(plan, pods, nodes)
    end = world.play()
    waits = [end if wait is None else wait for wait in world.waits.values()]
    prompt = sum(wait <= PROMPT for wait in waits)
    return {
        "moves": plan.moves is not None,
        "checkpoints_percent": round(100 * plan.checkpoints),
        "gangs": len(waits),
        "started_within_10_minutes_percent": round(100 * prompt / len(waits), 1),
        "started_at_once_percent": round(100 * sum(wait == 0 for wait in waits) / len(waits), 1),
        "never_started": sum(wait is None for wait in world.waits.values()),
        "median_wait_seconds": statistics.median(waits) / 1000,
        "moved": world.moved,
        "lost_gpu_hours": round(world.lost / HOUR, 2),
        "lost_gpu_hours_per_day": round(24 * world.lost / HOUR / plan.hours, 1),
        "gpus_given_percent": round(100 * statistics.fmean(world.held), 1),
        "cpu_seconds": round(thread_time() - start, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.moves", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pods", type=Path, help="openb's list of pods, CSV, plain or gzipped")
    parser.add_argument("nodes", type=Path, help="openb's list of nodes")
    parser.add_argument("--part", type=int, default=8, help="every so-manieth node of the list (default: %(default)s)")
    parser.add_argument("--hours", type=float, default=12, help="how long gangs arrive (default: %(default)s)")
    parser.add_argument("--every", type=int, default=6, help="minutes between gangs (default: %(default)s)")
    parser.add_argument("--load", type=float, default=0.95, help="demand as a part of all GPUs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=42, help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    if not 1 <= given.part <= 64 or not 0 < given.hours <= 240 or not 1 <= given.every <= 600 or not 0 < given.load < 1:
        parser.error("--part is from 1 to 64, --hours at most 240, --every from 1 to 600, --load below 1")
    try:
        pods, nodes = fill.pods_of(given.pods), fill.nodes_of(given.nodes)[:: given.part]
    except TraceError as error:
        parser.error(str(error))
    runs: list[dict[str, Any]] = []
    for moves, checkpoints in ((None, 0.0), (POLICY, 0.0), (POLICY, 0.5), (POLICY, 1.0)):
        plan = Plan(moves, checkpoints, given.hours, given.every * MINUTE, given.load, given.seed)
        runs.append(measure(plan, pods, nodes))
        print(json.dumps(runs[-1]), file=sys.stderr)
    cluster = {"nodes": len(nodes), "gpus": sum(node.gpus for node in nodes), "load": given.load, "seed": given.seed}
    print(json.dumps({"cluster": cluster, "runs": runs}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
