"""What a gang of each job kind costs: requests to the API server and CPU of operator and webhooks, from its creation to its end.

    python -m bench.jobs --kinds all --size smoke

Each kind in turn, on one control plane without nodes. A stand-in takes the place of the kind's controller: it writes the status
of a gang whose pods are all ready, and after its runtime that of one that has ended; a kind that never ends is deleted. One JSON
object on stdout; exit status 1 where not every gang was admitted and ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from bench import kind_objects
from bench.command import carried_out
from bench.kind_objects import Gang
from bench.measure import rest
from bench.parameters import FILE, Load, ParameterError, WorkloadClass, read
from bench.report import rounded
from bench.stack import BenchError, Stack
from bench.usage import requests
from gangline.api import jobkinds, names
from gangline.api.read.conditions import is_true
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.reflector import Event, Reflector, Upsert
from gangline.kube.resources import Json, key_of

CONCURRENCY: Final = 24
#: seconds without progress after which a kind is given up
PATIENCE: Final = 60.0
#: seconds for the operator to come to rest between two kinds
SETTLE: Final = 20.0
#: seconds without an event of the operator, after which none is on its way any more
SILENCE: Final = 3.0
_WRITES: Final = ("create", "patch", "apply", "replace", "delete")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    load = read("kinds", options.size, options.parameters)
    [kind] = load.classes
    chosen = _chosen(options.kinds, kind_objects.gangs(kind.pods))
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as directory:
        file = Path(directory) / "config.yaml"
        file.write_text(yaml.safe_dump(_configuration()))
        crds = kind_objects.crds()
        with Stack(load, parameters=options.parameters, configuration=file, crds=crds) as stack:
            stack.webhooks()
            stack.operator()
            asyncio.run(_describe(stack))
            results = {gang.resource.kind: _measured(stack, load, kind, gang) for gang in chosen}
    print(json.dumps(rounded({"load": load.name, "size": load.size, "pods": kind.pods, "kinds": results})))
    return 0 if all(row["complete"] for row in results.values()) else 1


def _chosen(text: str, every: Sequence[Gang]) -> list[Gang]:
    by_kind = {gang.resource.kind: gang for gang in every}
    wanted = list(by_kind) if text == "all" else text.split(",")
    for name in wanted:
        if name not in by_kind:
            raise ParameterError(f"--kinds: {name!r} is none of {', '.join(by_kind)}")
    return [by_kind[name] for name in wanted]


def _configuration() -> Json:
    listed = [each.framework for each in jobkinds.BUILT_IN if each.framework]
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    return {**head, "integrations": {"frameworks": listed}}


async def _describe(stack: Stack) -> None:
    async with ApiClient(config.load(stack.kubeconfig)) as client:
        for body in kind_objects.descriptions():
            resource = kube.BY_KIND[body["kind"]]
            await client.create(resource, body["metadata"].get("namespace"), body)


def _measured(stack: Stack, load: Load, kind: WorkloadClass, gang: Gang) -> Json:
    """One kind: all its gangs, from the first creation until operator and webhooks are at rest again."""
    _settle(stack)
    before, asked, every = stack.usage(), _asked(stack), _all_asked(stack)
    start = time.monotonic()
    done = asyncio.run(_play(stack, load, kind, gang))
    wall = time.monotonic() - start
    _settle(stack)
    spent = {name: used.since(before[name]).cpu_seconds for name, used in stack.usage().items()}
    own, all_requests = _asked(stack) - asked, _all_asked(stack) - every
    writes = {key: count for key, count in own.items() if key.split(" ", 1)[0] in _WRITES}
    print(f"{gang.resource.kind}: {done} of {kind.count} gangs in {wall:.1f} s", file=sys.stderr)
    return {
        "gangs": kind.count,
        "complete": done == kind.count,
        "wall_seconds": wall,
        "operator_requests_per_gang": sum(own.values()) / kind.count,
        "writes_per_gang": {key: count / kind.count for key, count in sorted(writes.items())},
        "api_requests_per_gang": sum(all_requests.values()) / kind.count,
        "operator_cpu_ms_per_gang": 1000 * spent["operator"] / kind.count,
        "webhooks_cpu_ms_per_gang": 1000 * spent["webhooks"] / kind.count,
    }


def _settle(stack: Stack) -> None:
    """Until the operator rests, and its last event is sent: events may come seconds after what they tell of."""
    deadline = time.monotonic() + 3 * SETTLE
    before = -1
    while time.monotonic() < deadline:
        rest(stack, SETTLE)
        sent = sum(count for key, count in _asked(stack).items() if key.split(" ", 1)[-1] == "events")
        if sent == before:
            return
        before = sent
        time.sleep(SILENCE)


def _asked(stack: Stack) -> Counter[str]:
    return requests(stack.operator_metrics(), "gangline_api_requests_total")


def _all_asked(stack: Stack) -> Counter[str]:
    return requests(stack.api_metrics(), "apiserver_request_total")


async def _play(stack: Stack, load: Load, kind: WorkloadClass, gang: Gang) -> int:
    """How many gangs have ended."""
    [(_, namespace)] = load.queues
    async with ApiClient(config.load(stack.kubeconfig), user_agent="gangline-bench-load") as client:
        await _served(client, gang, namespace)
        return await _StandIn(client, kind, gang, namespace).run()


async def _served(client: ApiClient, gang: Gang, namespace: str) -> None:
    """The kind is served, and its webhook holds a new gang."""
    deadline = time.monotonic() + PATIENCE
    probe = gang.build(WorkloadClass("probe", 1, 0.0, 1, 0.0, 0), namespace, 0)
    while time.monotonic() < deadline:
        try:
            made = await client.create(gang.resource, namespace, probe, query={"dryRun": "All"})
            if gang.declaration.suspension.read(made):
                return
        except NotFound:
            pass
        await asyncio.sleep(0.1)
    raise BenchError(f"no webhook holds a new {gang.resource.kind}")


@dataclass
class _StandIn:
    """The load, and in one the controller of its kind."""

    client: ApiClient
    kind: WorkloadClass
    gang: Gang
    namespace: str
    _played: set[str] = field(default_factory=set[str])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _ended: set[str] = field(default_factory=set[str])
    _failure: BaseException | None = None
    _progress: asyncio.Event = field(default_factory=asyncio.Event)
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENCY))

    async def run(self) -> int:
        jobs, workloads = (Reflector(self.client, resource) for resource in (self.gang.resource, kube.WORKLOADS))
        watches = [asyncio.ensure_future(jobs.run(self._take)), asyncio.ensure_future(workloads.run(self._see))]
        try:
            await asyncio.gather(jobs.synced.wait(), workloads.synced.wait())
            start = time.monotonic()
            for number in range(self.kind.count):
                await asyncio.sleep(start + number * self.kind.every - time.monotonic())
                body = self.gang.build(self.kind, self.namespace, number)
                self._spawn(self._create(body))
            await self._all_ended()
        finally:
            for watch in watches:
                watch.cancel()
        return len(self._ended)

    async def _all_ended(self) -> None:
        while len(self._ended) < self.kind.count:
            self._progress.clear()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._progress.wait()
            except TimeoutError:
                return
            if self._failure is not None:
                raise BenchError(f"the stand-in of {self.gang.resource.kind}: {self._failure}")

    async def _create(self, body: Json) -> None:
        async with self._gate:
            await self.client.create(self.gang.resource, self.namespace, body)

    def _take(self, event: Event) -> None:
        """A gang that starts runs, and ends when its runtime is over."""
        if isinstance(event, Upsert) and not self.gang.declaration.suspension.read(event.obj):
            name = event.obj["metadata"]["name"]
            if name not in self._played:
                self._played.add(name)
                self._spawn(self._live(name))

    async def _live(self, name: str) -> None:
        await self._status(name, self.gang.running)
        await asyncio.sleep(self.kind.runtime)
        if self.gang.ended is not None:
            await self._status(name, self.gang.ended)
            return
        async with self._gate:
            await self.client.delete(self.gang.resource, self.namespace, name)
        self._end(name)

    async def _status(self, name: str, status: Json) -> None:
        async with self._gate:
            await self.client.patch(self.gang.resource, self.namespace, name, {"status": status}, subresource="status")

    def _see(self, event: Event) -> None:
        """A Workload that is finished: so is its gang."""
        if isinstance(event, Upsert) and is_true((event.obj.get("status") or {}).get("conditions"), names.FINISHED):
            owners = event.obj["metadata"].get("ownerReferences") or ()
            if any(owner["kind"] == self.gang.resource.kind for owner in owners):
                self._end(key_of(event.obj))

    def _end(self, key: str) -> None:
        self._ended.add(key)
        self._progress.set()

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), ApiError):
            self._failure = error
            self._progress.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="What a gang of each job kind costs.")
    parser.add_argument("--kinds", default="all", help="kinds with commas between them (default: %(default)s)")
    parser.add_argument("--size", default="full", help="a size of the parameter file (default: %(default)s)")
    parser.add_argument("--parameters", type=Path, default=FILE, help="YAML file with loads and sizes")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
