"""What room made by moving is worth, and what it costs: `make bench-moves`, JSON on stdout.

A part of openb's nodes is filled with pods with GPUs that are drawn from openb's list until so much of its GPUs is given away.
From then on pods end (exponential lifetimes), and others come so that as much stays given away: a pod that fits nowhere is
withdrawn, and another one drawn at the next event. Gangs of one pod with eight GPUs arrive at equal intervals, and wait.
The engine itself decides, in the simulator of replays, with a placement policy that packs: once without moves, and once for each
share of pods that declare checkpoints. Waits count from arrival to start.

One run says little, since a few free nodes at the beginning decide: several seeds are played. Moves, losses and CPU seconds are
means of a run, `lost_gpu_hours` is what moved pods computed and did not save, and their restarts; a share of a GPU counts as
that share.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Any, Final

from tests.bench import fill
from tests.bench.fill import TraceNode

from gangline.engine import HOSTNAME, MOVED, OF_POLICY, EventKind, SimulatedRun
from gangline.engine.model import (
    Admission,
    Change,
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
    Topology,
    Workload,
)
from gangline.replay.foresight import Blind
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayedOutcome, name_of, number_of
from gangline.replay.simulator import SavingRules, Simulator
from gangline.replay.trace_facts import GPU, NAMESPACE
from gangline.replay.world import ReplayEvent
from gangline.traces.trace import TraceError, TraceJob

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
#: how long pods run on average, and gangs always; how often pods that declare checkpoints write one
MEAN_HOURS, GANG_MINUTES, CHECKPOINT_MINUTES = 8.0, 30, 30
FIRST_SEED: Final = 42
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


@dataclass(frozen=True, slots=True)
class Openb:
    """A part of openb's nodes, see `replay.world.ReplayedWorld`."""

    nodes: Sequence[TraceNode]
    queue: ClusterQueue

    def begins(self) -> Iterator[Change]:
        for item in (Flavor("gpus", {"pool": "gpus"}), Topology(OF_POLICY, (HOSTNAME,)), self.queue):
            yield Put(item)
        yield Put(LocalQueue(NAMESPACE, "q", "q"))
        for node in self.nodes:
            amounts = {GPU: SHARES * node.gpus, "cpu": node.cpu_milli, "memory": node.memory, "pods": 1_000}
            yield Put(Node(node.name, {"pool": "gpus", HOSTNAME: node.name}, amounts))
            cards = (Device(node.name, f"{node.name}-{each}", each, resource=GPU) for each in range(node.gpus))
            yield Put(NodeCards(node.name, tuple(cards)))

    def later(self) -> Sequence[ReplayEvent]:
        return ()

    def of(self, job: ReplayedJob) -> Workload:
        pod = job.trace
        assert pod is not None
        requests = {GPU: pod.gpus, "cpu": pod.cpu_milli, "memory": pod.memory}
        shares = tuple(replace(share, models=(), resource=GPU) for share in fill.ask_of(pod).shares)
        pod_set = PodSet("main", 1, {key: amount for key, amount in requests.items() if amount}, shares=shares)
        saves = None if job.saves is None else job.saves / 1000
        name = name_of(job.number)
        return Workload(name, NAMESPACE, name, "q", (pod_set,), created=job.submit, checkpoint_seconds=saves)

    def places(self, admission: Admission) -> tuple[tuple[int, int], ...]:
        return ()

    def number(self, node: str) -> int | None:
        return None


class Filled(Simulator):
    """A cluster at constant demand, and the gangs that arrive: the jobs of a replay, drawn on the way."""

    def __init__(self, plan: Plan, pods: Sequence[TraceJob], nodes: Sequence[TraceNode]) -> None:
        quota = {name: Quota(1 << 50) for name in (GPU, "cpu", "memory")}
        groups = (ResourceGroup(tuple(quota), (FlavorQuotas("gpus", quota),)),)
        queue = ClusterQueue("q", groups=groups, placement=PlacementPolicy("Fragmentation"))
        cluster = ReplayedCluster(sum(node.gpus for node in nodes), 0)
        rules = SavingRules(restart=round(1000 * POLICY.restart_seconds))
        super().__init__([], cluster, queue, Blind(), rules=rules, world=Openb(nodes, queue))
        self.plan = plan
        self._draw = random.Random(plan.seed)
        self._pods = [pod for pod in pods if pod.gpus]
        self._wholes = [pod for pod in pods if pod.gpus == 8]
        self._total = 1000 * cluster.gpus
        self._asked = 0
        self.gangs: set[int] = set()
        self.held: list[float] = []
        self._fill()
        self.observe(Put(replace(queue, moves=plan.moves)))
        for number in range(int(plan.hours * HOUR / plan.every)):
            self.schedule(HOUR + number * plan.every, EventKind.ARRIVAL, number)

    @property
    def outcomes(self) -> Sequence[ReplayedOutcome]:
        """Of all jobs, those that found no room at once and were withdrawn included."""
        return self._outcomes

    @property
    def given(self) -> float:
        """The share of all GPUs that is given away."""
        return sum(milli(self._jobs[number_of(key)]) for key in self.runs) / self._total

    def _arrives(self, pod: TraceJob, length: int, *, gang: bool = False) -> None:
        saves = self._draw.random() < self.plan.checkpoints
        job = ReplayedJob(
            number=len(self._jobs),
            id=pod.id,
            submit=self.now,
            duration=length,
            gpus=pod.gpus,
            tenant="",
            trace=pod,
            saves=CHECKPOINT_MINUTES * MINUTE if saves else None,
        )
        if gang:
            self.gangs.add(job.number)  # it counts as asked for while it runs
        else:
            self._asked += milli(job)
        self._jobs.append(job)
        self._outcomes.append(ReplayedOutcome(job))
        self._submit(job)

    def _more(self) -> None:
        """Pods come until they and the gangs that run have so much as they should."""
        while self._asked < self.plan.load * self._total:
            length = max(MINUTE, round(self._draw.expovariate(1 / (MEAN_HOURS * HOUR))))
            self._arrives(self._draw.choice(self._pods), length)

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
        for key in [key for key in self.workloads if key not in self.runs]:
            outcome = self._outcomes[number_of(key)]
            if outcome.job.number not in self.gangs and not outcome.stints:
                self._asked -= milli(outcome.job)
                self.observe(Gone(Workload, self.workloads.pop(key).key))

    def happens(self, kind: EventKind, number: int) -> None:
        self._arrives(self._wholes[number % len(self._wholes)], GANG_MINUTES * MINUTE, gang=True)
        self.held.append(self.given)

    def started(self, workload: Workload) -> None:
        super().started(workload)
        if (number := number_of(workload.key)) in self.gangs:
            self._asked += milli(self._jobs[number])

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        if reason != MOVED or run is None:
            raise AssertionError(f"{workload.key} is stopped: {reason}")
        super().stopped(workload, run, reason)
        if (number := number_of(workload.key)) in self.gangs:
            self._asked -= milli(self._jobs[number])

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        super().ended(workload, run)
        self._asked -= milli(self._jobs[number_of(workload.key)])

    def settled(self) -> None:
        self._withdraw()
        self._more()

    def until(self) -> int:
        return round((self.plan.hours + 1) * HOUR) + PROMPT


def milli(job: ReplayedJob) -> int:
    """The thousandths of GPUs that a job has."""
    return job.trace.gpu_milli if job.trace is not None and job.trace.gpu_milli else 1000 * job.gpus


def measure(plans: Sequence[Plan], pods: Sequence[TraceJob], nodes: Sequence[TraceNode]) -> dict[str, Any]:
    """The figures of plans that differ by their seeds, all together."""
    begun = thread_time()
    waits: list[int] = []
    lost = never = moved = 0
    held: list[float] = []
    for plan in plans:
        world = Filled(plan, pods, nodes)
        end = world.play()
        gangs = [each for each in world.outcomes if each.job.number in world.gangs]
        waits += [(end if gang.start is None else gang.start) - gang.job.submit for gang in gangs]
        never += sum(gang.start is None for gang in gangs)
        stints = [(each.job, stint) for each in world.outcomes for stint in each.stints if stint.evicted == MOVED]
        moved += len(stints)
        lost += sum(stint.lost * milli(job) for job, stint in stints)
        held += world.held
    gpu_hours = lost / 1000 / HOUR / len(plans)
    return {
        "moves": plans[0].moves is not None,
        "checkpoints_percent": round(100 * plans[0].checkpoints),
        "gangs": len(waits),
        "started_within_10_minutes_percent": round(100 * sum(wait <= PROMPT for wait in waits) / len(waits), 1),
        "started_at_once_percent": round(100 * sum(wait == 0 for wait in waits) / len(waits), 1),
        "never_started": never,
        "median_wait_seconds": statistics.median(waits) / 1000,
        "moved": round(moved / len(plans), 1),
        "lost_gpu_hours": round(gpu_hours, 2),
        "lost_gpu_hours_per_day": round(24 * gpu_hours / plans[0].hours, 1),
        "gpus_given_percent": round(100 * statistics.fmean(held), 1),
        "cpu_seconds": round((thread_time() - begun) / len(plans), 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.moves", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pods", type=Path, help="openb's list of pods, CSV, plain or gzipped")
    parser.add_argument("nodes", type=Path, help="openb's list of nodes")
    parser.add_argument("--part", type=int, default=8, help="every so-manieth node of the list (default: %(default)s)")
    parser.add_argument("--hours", type=float, default=12, help="how long gangs arrive (default: %(default)s)")
    parser.add_argument("--every", type=int, default=6, help="minutes between gangs (default: %(default)s)")
    parser.add_argument("--load", type=float, default=0.95, help="demand as a part of all GPUs (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="how many runs, from seed 42 on (default: %(default)s)")
    given = parser.parse_args(arguments)
    if not 1 <= given.part <= 64 or not 0 < given.hours <= 240 or not 1 <= given.every <= 600 or not 0 < given.load < 1:
        parser.error("--part is from 1 to 64, --hours at most 240, --every from 1 to 600, --load below 1")
    if not 1 <= given.seeds <= 100:
        parser.error("--seeds is from 1 to 100")
    try:
        pods, nodes = fill.pods_of(given.pods), fill.nodes_of(given.nodes)[:: given.part]
    except TraceError as error:
        parser.error(str(error))
    runs: list[dict[str, Any]] = []
    for moves, checkpoints in ((None, 0.0), (POLICY, 0.0), (POLICY, 0.5), (POLICY, 1.0)):
        plan = Plan(moves, checkpoints, given.hours, given.every * MINUTE, given.load, FIRST_SEED)
        seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
        runs.append(measure([replace(plan, seed=seed) for seed in seeds], pods, nodes))
        print(json.dumps(runs[-1]), file=sys.stderr)
    cluster = {"nodes": len(nodes), "gpus": sum(node.gpus for node in nodes), "load": given.load, "seeds": given.seeds}
    print(json.dumps({"cluster": cluster, "runs": runs}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
