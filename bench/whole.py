"""Whether gangs are whole on nodes: for how long GPUs are held by gangs of which a pod can't be bound.

    python -m bench.whole --minutes 60 --seed 1

Jobs of many shapes (single GPUs, parts of nodes, gangs of whole nodes) arrive on simulated nodes, a little more of them than fit,
with the real kube-scheduler and its own scores. Pods of nobody come and go on random nodes, and the operator is killed now and
then. Every look adds up, from pods and Workloads as the API server has them: the GPUs that admitted gangs hold while the
scheduler says that one of their pods fits nowhere (`gpu_seconds_held_unbound`), and while one is not bound yet
(`gpu_seconds_binding`).
One JSON object goes to stdout. Exit status 1 if a gang was held for longer than `--most` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.command import carried_out
from bench.parameters import FILE, ParameterError, read
from bench.report import rounded
from bench.stack import Process, Stack
from gangline.api import names
from gangline.api.read.conditions import is_true
from gangline.devcluster.nodes import EqualNodes, create_pools
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.reflector import Event, Reflector, Removed, Upsert
from gangline.kube.resources import Json, Resource, condition_of, controller_of, key_of

GPU: Final = "nvidia.com/gpu"
#: GPUs of a node
SIZE: Final = 8
LABELS: Final = {"bench.gangline.io/whole": "yes"}
#: pods, GPUs of each, weight
SHAPES: Final = ((1, 1, 30), (8, 1, 15), (1, 4, 15), (3, 2, 10), (1, 8, 10), (2, 8, 10), (5, 8, 5), (4, 6, 5))
#: seconds that a Job runs, between two looks, between two pods of nobody, and between two kills of the operator
RUNTIMES, LOOK, INTRUSIONS, KILLS = (15.0, 60.0), 0.25, (5.0, 15.0), (45.0, 90.0)
#: the GPUs that arrive, as a share of those that there are
OFFERED: Final = 1.2
#: unfinished Jobs at most
BACKLOG: Final = 60
#: seconds for which a gang may be held unbound before that is a violation
MOST: Final = 60.0


@dataclass
class Held:
    """Sums over all looks. `since`: since when a gang has a pod that fits nowhere."""

    held: float = 0.0
    unbound: float = 0.0
    binding: float = 0.0
    longest: float = 0.0
    episodes: int = 0
    since: dict[str, float] = field(default_factory=dict[str, float])
    worst: str = ""

    def look(self, now: float, lasted: float, gangs: Sequence[tuple[str, int, str]]) -> None:
        """`gangs`: key, GPUs, and whether a pod is "unbound" or "binding" ("" = neither)."""
        for key, gpus, state in gangs:
            self.held += gpus * lasted
            self.unbound += gpus * lasted * (state == "unbound")
            self.binding += gpus * lasted * (state == "binding")
            if state == "unbound" and key not in self.since:
                self.since[key] = now
                self.episodes += 1
        stuck = {key for key, _, state in gangs if state == "unbound"}
        self.since = {key: since for key, since in self.since.items() if key in stuck}
        for key, since in self.since.items():
            if now - since > self.longest:
                self.longest, self.worst = now - since, key


class Store:
    """The objects of one kind, as its watch shows them."""

    def __init__(self, client: ApiClient, resource: Resource) -> None:
        self.objects: dict[str, Json] = {}
        self._reflector = Reflector(client, resource)

    async def open(self) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._reflector.run(self._take))
        await self._reflector.synced.wait()
        return task

    def _take(self, event: Event) -> None:
        if isinstance(event, Removed):
            self.objects.pop(event.key, None)
        elif isinstance(event, Upsert):
            self.objects[key_of(event.obj)] = event.obj


def gangs(workloads: Iterator[Json], pods: Iterator[Json]) -> list[tuple[str, int, str]]:
    """Each gang that is admitted and stays so: its key, its GPUs, and what its pods wait for."""
    waiting: dict[tuple[str, str], str] = {}
    for pod in pods:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if spec.get("nodeName") or meta.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
            continue
        row, owner = condition_of(pod, "PodScheduled") or {}, controller_of(pod)
        fits_nowhere = row.get("status") == "False" and row.get("reason") == "Unschedulable"
        if owner is not None:
            key = meta["namespace"], owner["uid"]
            waiting[key] = "unbound" if fits_nowhere or waiting.get(key) == "unbound" else "binding"
    found: list[tuple[str, int, str]] = []
    for workload in workloads:
        status = workload.get("status") or {}
        rows, owner = status.get("conditions"), controller_of(workload)
        if owner is None or not is_true(rows, names.ADMITTED):
            continue
        if is_true(rows, names.EVICTED) or is_true(rows, names.FINISHED):
            continue
        sets = (status.get("admission") or {}).get("podSetAssignments") or ()
        gpus = sum(int((each.get("resourceUsage") or {}).get(GPU, "0")) for each in sets)
        found.append((key_of(workload), gpus, waiting.get((workload["metadata"]["namespace"], owner["uid"]), "")))
    return found


class Run:
    def __init__(self, stack: Stack, client: ApiClient, seed: int, nodes: int, *, calm: bool) -> None:
        self._stack, self._client, self._chance = stack, client, random.Random(seed)
        self._pool, self._calm = EqualNodes("whole", nodes, {GPU: SIZE}, LABELS), calm
        self._jobs, self._pods = Store(client, kube.JOBS), Store(client, kube.PODS)
        self._workloads = Store(client, kube.WORKLOADS)
        self._held, self._faults = Held(), Counter[str]()
        self._created = 0
        self._operator: Process | None = None

    async def run(self, seconds: float) -> Json:
        await create_pools(self._client, [self._pool])
        await self._queues()
        self._operator = await asyncio.to_thread(self._stack.operator)
        watches = [await store.open() for store in (self._jobs, self._pods, self._workloads)]
        start = time.monotonic()
        work = [asyncio.ensure_future(each) for each in (self._arrivals(), self._look(), *self._troubles())]
        try:
            while time.monotonic() - start < seconds:
                for task in (*work, *watches):
                    if task.done():
                        task.result()
                await asyncio.sleep(0.2)
        finally:
            for task in (*work, *watches):
                task.cancel()
            await asyncio.gather(*work, *watches, return_exceptions=True)
        return self._results(time.monotonic() - start)

    def _troubles(self) -> list[Coroutine[None, None, None]]:
        return [] if self._calm else [self._intrude(), self._kill()]

    async def _queues(self) -> None:
        gpus = self._pool.count * SIZE
        quota = {"name": "whole", "resources": [{"name": GPU, "nominalQuota": gpus}]}
        groups = [{"coveredResources": [GPU], "flavors": [quota]}]
        queue = {"namespaceSelector": {}, "resourceGroups": groups}
        for resource, namespace, kind, spec in (
            (kube.RESOURCE_FLAVORS, None, "ResourceFlavor", {"nodeLabels": LABELS}),
            (kube.CLUSTER_QUEUES, None, "ClusterQueue", queue),
            (kube.LOCAL_QUEUES, "default", "LocalQueue", {"clusterQueue": "whole"}),
        ):
            meta = {"name": "whole", **({"namespace": namespace} if namespace else {})}
            body = {"apiVersion": names.V1BETA2, "kind": kind, "metadata": meta, "spec": spec}
            await self._client.create(resource, namespace, body)

    async def _arrivals(self) -> None:
        weights = [weight for _, _, weight in SHAPES]
        work = sum(pods * gpus * weight for pods, gpus, weight in SHAPES) / sum(weights) * sum(RUNTIMES) / 2
        rate = OFFERED * self._pool.count * SIZE / work
        while True:
            await asyncio.sleep(self._chance.expovariate(rate))
            unfinished = [job for job in self._jobs.objects.values() if not (job.get("status") or {}).get("succeeded")]
            if len(unfinished) < BACKLOG:
                pods, gpus, _ = self._chance.choices(SHAPES, weights)[0]
                await self._client.create(kube.JOBS, "default", self._job(pods, gpus))

    def _job(self, pods: int, gpus: int) -> Json:
        self._created += 1
        runtime = f"{self._chance.uniform(*RUNTIMES):.0f}s"
        template = {
            "metadata": {"annotations": {names.SIMULATED_RUNTIME: runtime}},
            "spec": {"restartPolicy": "Never", "containers": [_container(gpus)]},
        }
        spec = {"suspend": True, "parallelism": pods, "completions": pods, "ttlSecondsAfterFinished": 5}
        labels = {names.QUEUE_NAME: "whole"}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"job-{self._created}-{pods}x{gpus}", "namespace": "default", "labels": labels},
            "spec": {**spec, "template": template},
        }

    async def _look(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            found = gangs(iter(self._workloads.objects.values()), iter(self._pods.objects.values()))
            self._held.look(now, now - before, found)
            before = now

    async def _intrude(self) -> None:
        """A pod of nobody takes GPUs of a random node for a while, where there are any."""
        number = 0
        while True:
            await asyncio.sleep(self._chance.uniform(*INTRUSIONS))
            number += 1
            node, name = self._chance.choice(self._pool.node_names), f"intruder-{number}"
            spec = {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "restartPolicy": "Never",
                "containers": [_container(self._chance.choice((1, 1, 2, 4)))],
            }
            meta = {"name": name, "namespace": "default"}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            await self._client.create(kube.PODS, "default", body)
            self._faults["pods of nobody"] += 1
            await asyncio.sleep(self._chance.uniform(5, 20))
            try:
                await self._client.delete(kube.PODS, "default", name)
            except NotFound:
                continue

    async def _kill(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*KILLS))
            assert self._operator is not None
            self._operator.kill()
            self._faults["operator killed"] += 1
            self._operator = await asyncio.to_thread(self._stack.operator)

    def _results(self, seconds: float) -> Json:
        held = self._held
        return rounded(
            {
                "seconds": seconds,
                "gpus": self._pool.count * SIZE,
                "jobs": self._created,
                "faults": dict(self._faults),
                "gpu_seconds_held": held.held,
                "gpu_seconds_held_unbound": held.unbound,
                "gpu_seconds_binding": held.binding,
                "gangs_unbound": held.episodes,
                "longest_unbound_seconds": held.longest,
                "longest_unbound": held.worst,
            }
        )


def _container(gpus: int) -> Json:
    return {"name": "c", "image": "bench", "resources": {"limits": {GPU: str(gpus)}}}


async def whole(seconds: float, seed: int, nodes: int, *, calm: bool, parameters: Path = FILE) -> Json:
    stack = Stack(read("baseline", "smoke", parameters), simulate=True, parameters=parameters)
    await asyncio.to_thread(stack.__enter__)
    try:
        async with ApiClient(config.load(stack.kubeconfig), user_agent="gangline-bench-load") as client:
            return await Run(stack, client, seed, nodes, calm=calm).run(seconds)
    finally:
        await asyncio.to_thread(stack.__exit__, None, None, None)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="GPU seconds that gangs hold while a pod of theirs can't be bound.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and faults (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=16, help=f"nodes of {SIZE} GPUs (default: %(default)s)")
    parser.add_argument("--most", type=float, default=MOST, help="seconds for which a gang may be held (%(default)s)")
    parser.add_argument("--calm", action="store_true", help="no pods of nobody, and no kills")
    options = parser.parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.minutes <= 0 or options.nodes < 5 or options.most <= 0:
        raise ParameterError("--minutes and --most above 0, and --nodes from 5 on are wanted")
    result = asyncio.run(whole(60 * options.minutes, options.seed, options.nodes, calm=options.calm))
    print(json.dumps(result))
    if result["longest_unbound_seconds"] <= options.most:
        return 0
    print(f"VIOLATION: {result['longest_unbound']} was held for more than {options.most:g} s", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
