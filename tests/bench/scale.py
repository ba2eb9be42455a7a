"""What the leader's memory and its start cost by object, and whether these constants hold: `make bench-scale`, JSON on stdout.

The leader of `tests.bench.answers` lists clusters of different sizes, each in a process of its own. Two of them differ in nothing
but the jobs that wait, two in nothing but the nodes with their running jobs and pods: the differences are the constants.
`predicted` is what they say of a larger cluster, `measured` what it took. The lists come from a file, page by page, as an API
server sends them, and go the way of the operator: JSON, watch, mirror, engine. What the API server takes is not in the figures.

CPU seconds. `start_cpu_s`: until everything that was listed is taken in, and the first decision is made. `forecasts_cpu_s`: until
the forecasts, where they are wanted, know and estimate all jobs, which holds up no decision. `takeover_cpu_s`: a standby that has
all that lists once more after it got the lease, and decides. `release_ms`: CPU for a job that ends and the decision that follows.
`bytes`: of one object of this benchmark as JSON; real Nodes and Jobs have more fields.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import orjson
from bench.usage import usage
from tests.bench.answers import Leader, say, wall

from gangline.control.decisions.deciding import Deciding
from gangline.control.isolation.intake import received
from gangline.control.process import memory
from gangline.kube import resources as kube
from gangline.kube.client import PAGE_SIZE, ApiClient, WatchEvent
from gangline.kube.reflector import Reflector, ReflectorGroup, Removed
from gangline.kube.resources import Json, Resource
from gangline.kube.transport import Call
from gangline.objects import PodObject

#: releases of which the mean is measured
RELEASES = 50
OF_JOBS = (kube.WORKLOADS, kube.JOBS)
#: the figures that grow with the objects
CONSTANTS = ("mb", "start_cpu_s", "forecasts_cpu_s", "takeover_cpu_s")


@dataclass(frozen=True, slots=True)
class Size:
    queues: int
    nodes: int
    pending: int


SMALL = Size(100, 500, 2_000)
MORE_PENDING = Size(100, 500, 12_000)
MORE_NODES = Size(100, 4_500, 2_000)
#: a tenth of the largest cluster that docs/scale.md speaks of
TENTH = Size(100, 10_000, 50_000)


class Lists(ApiClient):
    """The lists of an API server, from a file. Its watches bring nothing."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        #: where the pages of each kind begin and end in the file
        self._pages: dict[str, list[tuple[int, int]]] = {}
        self._unwritten: dict[Resource, list[Json]] = {}
        self._kinds: dict[Resource, None] = {}
        self._version = "1"

    def put(self, resource: Resource, obj: Json) -> None:
        self._version = obj["metadata"]["resourceVersion"]
        self._kinds[resource] = None
        objects = self._unwritten.setdefault(resource, [])
        objects.append({"apiVersion": resource.api_version, "kind": resource.kind, **obj})
        if len(objects) == PAGE_SIZE:
            self._write(resource)

    def _write(self, resource: Resource) -> None:
        pages = self._pages.setdefault(resource.path(None), [])
        page = orjson.dumps(self._unwritten.pop(resource))
        begin = self._file.seek(0, os.SEEK_END)
        self._file.write(page)
        pages.append((begin, len(page)))

    def kinds(self) -> list[Resource]:
        """The kinds with objects, all of which are written."""
        for resource in list(self._unwritten):
            self._write(resource)
        return list(self._kinds)

    async def exchange(self, call: Call) -> bytes:
        pages, number = self._pages[call.path], int(call.query.get("continue", 0))
        begin, length = pages[number]
        more = str(number + 1) if number + 1 < len(pages) else ""
        head = {"apiVersion": call.resource.api_version, "kind": f"{call.resource.kind}List"}
        page = orjson.dumps({**head, "metadata": {"resourceVersion": self._version, "continue": more}})
        self._file.seek(begin)
        return page[:-1] + b',"items":' + self._file.read(length) + b"}"

    async def watch(self, *args: Any, **named: Any) -> AsyncGenerator[WatchEvent]:
        named["on_open"]()
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", {})


class Standby(Leader):
    """A leader that lists what there is, and can list it once more."""

    def __init__(self, size: Size) -> None:
        super().__init__(size.queues, size.nodes, size.pending)
        self._lists = Lists()
        self._group = ReflectorGroup()

    def deliver(self, resource: Resource, obj: Json) -> None:
        self._lists.put(resource, obj)

    def write(self) -> None:
        """Write the lists: the API server's part."""
        self.describe()
        for resource in self._lists.kinds():
            decode = PodObject if resource == kube.PODS else partial(received, resource)
            self._group.add(Reflector(self._lists, resource, decode=decode), self.controller.sink(resource))

    async def start(self) -> asyncio.Task[None]:
        """Returns once all is listed and taken in; the watches go on as this task."""
        watches = asyncio.ensure_future(self._group.run())
        await self._take_in()
        return watches

    async def list_once_more(self) -> None:
        for reflector in self._group:
            reflector.synced.clear()
            reflector.restart("leading", relist=True)
        await self._take_in()

    async def _take_in(self) -> None:
        while not self._group.synced:
            self.controller.absorb()
            await asyncio.sleep(0)
        while not self.controller.absorb():
            pass

    def lead(self) -> None:
        """Lead until the first decision is made; nothing is written."""
        self.controller.lead()
        for part in self.controller.parts:
            if isinstance(part, Deciding):
                break
            part.act(wall())
        self.engine.decide(wall(), 0)


async def filled(size: Size) -> Json:
    """The figures of one cluster, for a process that does nothing else."""
    memory.begin()
    leader = Standby(size)
    leader.write()
    before, begun = usage(os.getpid()), time.thread_time()
    watches = await leader.start()
    leader.engine.decide(wall(), 0)
    start = time.thread_time() - begun
    memory.settle()
    begun = time.thread_time()
    leader.forecasts.tell_all()
    forecasts = time.thread_time() - begun
    after = usage(os.getpid())
    begun = time.thread_time()
    await leader.list_once_more()
    leader.lead()
    takeover = time.thread_time() - begun
    leader.controller.retire()
    objects = leader.controller.mirror.objects
    sizes = {
        resource.kind: len(json.dumps(next(iter(objects[resource].values()))))
        for resource in (*OF_JOBS, kube.NODES, kube.PODS)
        if objects.get(resource)
    }
    begun = time.thread_time()
    for number in range(RELEASES):
        name, space = f"job-{size.pending + number}", f"team-{(size.pending + number) % size.queues}"
        for resource in OF_JOBS:
            leader.controller.sink(resource)(Removed(f"{space}/{name}", f"{resource.plural}-{space}-{name}"))
        while not leader.controller.absorb():
            pass
        leader.engine.decide(wall(), 0)
    release = (time.thread_time() - begun) / RELEASES
    watches.cancel()
    await asyncio.wait((watches,))
    return {
        "mb": after.peak_mb - before.peak_mb,
        "start_cpu_s": start,
        "forecasts_cpu_s": forecasts,
        "takeover_cpu_s": takeover,
        "release_ms": 1000 * release,
        "bytes": sizes,
    }


def in_its_own_process(size: Size) -> Json:
    arguments = [str(each) for each in (size.queues, size.nodes, size.pending)]
    command = [sys.executable, "-m", "tests.bench.scale", "--one", *arguments]
    found: Json = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    seconds = ", ".join(f"{name} {found[name]:.1f}" for name in CONSTANTS if name != "mb")
    say(f"{size}: {found['mb']:.0f} MB, {seconds}, {found['release_ms']:.1f} ms")
    return found


def constants(small: Json, pending: Json, nodes: Json) -> dict[str, dict[str, float]]:
    """Of memory, start and takeover: what one job that waits costs, what one node with its job and pod does, and the rest."""
    found: dict[str, dict[str, float]] = {}
    for name in CONSTANTS:
        of_pending = (pending[name] - small[name]) / (MORE_PENDING.pending - SMALL.pending)
        of_node = (nodes[name] - small[name]) / (MORE_NODES.nodes - SMALL.nodes)
        rest = small[name] - of_pending * SMALL.pending - of_node * SMALL.nodes
        found[name] = {"pending": of_pending, "node": of_node, "rest": rest}
    return found


def predicted(of: dict[str, dict[str, float]], size: Size) -> dict[str, float]:
    return {
        name: each["rest"] + each["pending"] * size.pending + each["node"] * size.nodes for name, each in of.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What the leader costs by object.")
    parser.add_argument("--one", type=int, nargs=3, metavar=("QUEUES", "NODES", "PENDING"))
    parser.add_argument("--check", type=int, nargs=3, metavar=("QUEUES", "NODES", "PENDING"))
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asyncio.run(filled(Size(*options.one)))))
        return
    large = Size(*options.check) if options.check else TENTH
    small, pending, nodes, checked = map(in_its_own_process, (SMALL, MORE_PENDING, MORE_NODES, large))
    of = constants(small, pending, nodes)
    figures: dict[str, Any] = {
        "constants": of,
        "bytes": small["bytes"],
        "release_ms": {str(asdict(size)): each["release_ms"] for size, each in ((SMALL, small), (large, checked))},
        "cluster": asdict(large),
        "predicted": predicted(of, large),
        "measured": {name: checked[name] for name in of},
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
