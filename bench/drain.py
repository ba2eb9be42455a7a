"""How fast a deep queue is drained: 1,300 nodes with three levels of topology, fair sharing, 60 queues of which one is hot.

    python -m bench.drain --depth 100,10000 --shapes 1,200 --kueue PATH

`depth` workloads of so many different shapes wait when the operator starts. Whenever some are admitted, as many others arrive,
one half of them in the hot queue. They differ by pods, by CPU and by the level of the topology that has to hold them. Each is
finished its runtime after its admission. Runtimes are such that the cluster's cores suffice for `pace` admissions a second:
with a high pace the controller and the API server decide how many there are, with a low one the cores.

With `--kueue`, the path of Kueue's minimalkueue, that is measured after Gangline at each point, on a control plane of its own. It
has no fair sharing.

A row for each point goes to stderr as soon as it is measured, one JSON object to stdout. Exit status 1 where a workload was
admitted twice or lost.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from bench import report
from bench.command import carried_out
from bench.load import quantile
from bench.parameters import FILE, TOPOLOGIES, Load, ParameterError, WorkloadClass, read
from bench.soak import Population
from bench.stack import BenchError, Stack
from bench.usage import requests, total, usage
from gangline.kube import config
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

#: the share of the workloads that arrive in the hot queue
HOT = 0.5
#: pods of a workload, and how often
SIZES = {1: 50, 2: 20, 4: 15, 8: 10, 12: 5}
#: whole cores of a pod: a part of a node, or all of it
CORES = (6, 12, 24, 48, 96)
#: There are 450.
MOST_SHAPES = 300
#: Seconds from the first admission until the measurement.
WARM = 15.0
#: How often what was admitted is replaced, in seconds.
TOP_UP = 0.1
#: A measurement is given up whose workloads are not created, or of which none is admitted, within so many seconds.
PATIENCE = 600.0
FAIR_SHARING = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
}
COLUMNS = (
    "controller",
    "depth",
    "waiting",
    "shapes",
    "pace",
    "admitted/s",
    "of pace",
    "p50 wait",
    "operator ms",
    "API server ms",
    "decide ms",
)


@dataclass(frozen=True, slots=True)
class Point:
    """What is measured at a time. `pace`: the admissions a second for which the cores suffice."""

    depth: int
    shapes: int
    pace: float


def shaped(load: Load, point: Point) -> Load:
    """The load with so many classes, which differ in what one pod or all of them need; a single one is of usual size."""
    assert load.nodes is not None
    chance = random.Random(point.shapes)
    kinds = {(2, 24, "preferred"): WorkloadClass("shape-0", 1, 0.0, 24, 1.0, 50, 2, ("preferred",))}
    while len(kinds) < point.shapes:
        (pods,), cpu = chance.choices(list(SIZES), list(SIZES.values())), chance.choice(CORES) - chance.randrange(6)
        topology = chance.choice(TOPOLOGIES)
        if (pods, cpu, topology) not in kinds:
            kind = WorkloadClass(f"shape-{len(kinds)}", 1, 0.0, cpu, 1.0, 50, pods, (topology,))
            kinds[pods, cpu, topology] = kind
    runtime = load.nodes.cores / (point.pace * statistics.fmean(kind.cores for kind in kinds.values()))
    return replace(load, classes=tuple(replace(kind, runtime=runtime) for kind in kinds.values()))


class Drain:
    """The load of one point. `run` returns its figures."""

    def __init__(self, stack: Stack, load: Load, point: Point, seconds: float, kueue: Path | None = None) -> None:
        """`kueue`: the binary to measure in place of Gangline's operator."""
        self._stack = stack
        self._kueue = kueue
        self._load = load
        self._point = point
        self._seconds = seconds
        self._chance = random.Random(1)

    async def run(self) -> Json:
        async with ApiClient(config.load(self._stack.kubeconfig), user_agent="gangline-bench-load") as client:
            population = Population(client, self._load, self._chance)
            await population.open()
            filling = asyncio.ensure_future(self._keep_full(population))
            depth = self._point.depth
            try:
                await self._until(lambda: self._waiting(population) >= depth, f"not {depth} wait", population, filling)
                await asyncio.to_thread(self._start)
                await self._until(lambda: bool(population.waits), "none is admitted", population, filling)
                await self._pause(population, filling, WARM)
                return await self._measure(client, population, filling)
            finally:
                filling.cancel()
                population.close()

    def _start(self) -> None:
        if self._kueue is not None:
            self._stack.kueue(self._kueue, "--enableTAS")
        else:
            self._stack.operator()

    async def _until(
        self, reached: Callable[[], bool], missing: str, population: Population, filling: asyncio.Future[None]
    ) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if time.monotonic() > deadline:
                raise BenchError(f"{missing} after {PATIENCE:g} s")
            await self._pause(population, filling, TOP_UP)

    async def _measure(self, client: ApiClient, population: Population, filling: asyncio.Future[None]) -> Json:
        before, metrics, own = self._stack.usage(), self._metrics(), usage(os.getpid())
        asked = requests(metrics, "gangline_api_requests_total")
        served = requests((await client.raw("/metrics")).decode(), "apiserver_request_total")
        start, admitted, finished = time.monotonic(), len(population.waits), population.finished
        waiting: list[int] = []
        while time.monotonic() < start + self._seconds:
            waiting.append(self._waiting(population))
            await self._pause(population, filling, 1.0)
        seconds, after = time.monotonic() - start, self._stack.usage()
        waits = sorted(population.waits[admitted:])
        count = max(1, len(waits))
        cpu = {name: after[name].since(before[name]).cpu_seconds for name in after}
        cpu["load"] = usage(os.getpid()).since(own).cpu_seconds
        metrics_after = self._metrics()
        asked = requests(metrics_after, "gangline_api_requests_total") - asked
        served = requests((await client.raw("/metrics")).decode(), "apiserver_request_total") - served
        rounds = total(metrics_after, "gangline_decide_seconds_count") - total(metrics, "gangline_decide_seconds_count")
        deciding = total(metrics_after, "gangline_decide_cpu_seconds_total") - total(
            metrics, "gangline_decide_cpu_seconds_total"
        )
        rate = len(waits) / seconds
        return {
            "controller": "gangline" if self._kueue is None else "kueue",
            "depth": self._point.depth,
            "waiting": statistics.fmean(waiting),
            "shapes": self._point.shapes,
            "pace": self._point.pace,
            "seconds": seconds,
            "admitted_per_second": rate,
            "finished_per_second": (population.finished - finished) / seconds,
            "of_pace": rate / self._point.pace,
            "wait_seconds": {"p50": quantile(waits, 0.5), "p95": quantile(waits, 0.95)} if waits else {},
            "cpu_seconds": cpu,
            "operator_cpu_ms": 1000 * cpu["operator"] / count,
            "apiserver_cpu_ms": 1000 * cpu["kube-apiserver"] / count,
            "operator_requests": {key: made / count for key, made in asked.items() if made >= 0.01 * count},
            "requests": {key: made / count for key, made in served.items() if made >= 0.01 * count},
            "decide": {"rounds": rounds, "cpu_ms": 1000 * deciding / count},
            "peak_mb": after["operator"].peak_mb,
            "evictions": population.ledger.evictions,
            "violations": population.ledger.violations[:50],
        }

    def _metrics(self) -> str:
        """Gangline's own metrics; "" of another controller."""
        return self._stack.operator_metrics() if self._kueue is None else ""

    async def _pause(self, population: Population, filling: asyncio.Future[None], seconds: float) -> None:
        await asyncio.wait([filling], timeout=seconds)
        if filling.done():
            filling.result()
        population.raise_failure()

    @staticmethod
    def _waiting(population: Population) -> int:
        return sum(bool(life.latest) and not life.running for life in population.lives.values())

    async def _keep_full(self, population: Population) -> None:
        hot, others = self._load.queues[0][1], [queue for _, queue in self._load.queues[1:]]
        while True:
            alive = sum(not life.running and not life.finished for life in population.lives.values())
            for _ in range(self._point.depth - alive):
                queue = hot if self._chance.random() < HOT else self._chance.choice(others)
                population.arrive(self._chance.choice(self._load.classes), queue)
            await asyncio.sleep(TOP_UP)


def measured(load: Load, point: Point, seconds: float, parameters: Path = FILE, kueue: Path | None = None) -> Json:
    """The figures of one point, on a control plane of its own; `kueue`: of this binary in place of Gangline."""
    load = shaped(load, point)
    stack = Stack(load, parameters=parameters)
    with stack:
        stack.configuration = stack.directory / "configuration.yaml"
        stack.configuration.write_text(yaml.safe_dump(FAIR_SHARING))
        return report.rounded(asyncio.run(Drain(stack, load, point, seconds, kueue).run()))


def row(found: Json) -> str:
    cells = (
        found["controller"],
        f"{found['depth']:,}",
        f"{found['waiting']:,.0f}",
        f"{found['shapes']:,}",
        f"{found['pace']:g}",
        f"{found['admitted_per_second']:.1f}",
        f"{found['of_pace']:.0%}",
        f"{found['wait_seconds'].get('p50', 0.0):.1f} s",
        f"{found['operator_cpu_ms']:.1f}",
        f"{found['apiserver_cpu_ms']:.1f}",
        f"{found['decide']['cpu_ms']:.1f}",
    )
    return report.line(cells)


def _points(options: argparse.Namespace) -> Iterator[Point]:
    for pace, shapes, depth in itertools.product(options.pace, options.shapes, options.depth):
        yield Point(depth, shapes, pace)


def _whole_numbers(text: str) -> list[int]:
    found = [int(each) for each in text.split(",")]
    if min(found) < 1:
        raise ValueError("whole numbers from 1 on are wanted")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How fast a deep queue is drained.")
    parser.add_argument("--depth", type=_whole_numbers, default=[100, 1000, 10000], help="workloads that wait")
    parser.add_argument("--shapes", type=_whole_numbers, default=[1, 200], help="how many of them differ")
    parser.add_argument("--pace", type=_whole_numbers, default=[200], help="admissions a second that the cores allow")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement (default: %(default)s)")
    parser.add_argument(
        "--kueue", type=Path, metavar="PATH", help="a minimalkueue to measure after Gangline at each point"
    )
    parser.add_argument("--parameters", type=Path, default=FILE, help="YAML file with loads and sizes")
    options = parser.parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if max(options.shapes) > MOST_SHAPES:
        raise ParameterError(f"--shapes: at most {MOST_SHAPES} are wanted")
    load = read("drain", "full", options.parameters)
    print(report.line(COLUMNS), file=sys.stderr)
    found: list[Json] = []
    for point in _points(options):
        for kueue in (None, options.kueue) if options.kueue else (None,):
            found.append(measured(load, point, options.seconds, options.parameters, kueue))
            print(row(found[-1]), file=sys.stderr)
    print(json.dumps({"points": found}))
    return 1 if any(each["violations"] for each in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
