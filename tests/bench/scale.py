"""What the leader's memory and its start cost by object, and whether these constants hold: `make bench-scale`, JSON on stdout.

The leader of `tests.bench.answers` takes in clusters of different sizes, each in a process of its own. Two of them differ in
nothing but the jobs that wait, two in nothing but the nodes with their running jobs and pods: the differences are the constants.
`predicted` is what they say of a larger cluster, `measured` what it took. `start_cpu_s`: CPU until all objects are taken in and
all is decided once, without what the API server takes to send them. `release_ms`: CPU for a job that ends and the decision that
follows. `bytes`: of one object of this benchmark as JSON; real Nodes and Jobs have more fields.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.usage import usage
from tests.bench.answers import Leader, say, wall

from gangline.control.process import memory
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed
from gangline.kube.resources import Json

#: releases of which the mean is measured
RELEASES = 50
OF_JOBS = (kube.WORKLOADS, kube.JOBS)


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


def filled(size: Size) -> Json:
    """The figures of one cluster, for a process that does nothing else."""

    memory.begin()
    before, begun = usage(os.getpid()), time.thread_time()
    leader = Leader(size.queues, size.nodes, size.pending)
    leader.fill()
    leader.controller.leading = False
    leader.engine.decide(wall(), 0)
    start = time.thread_time() - begun
    after = usage(os.getpid())
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
    return {"mb": after.peak_mb - before.peak_mb, "start_cpu_s": start, "release_ms": 1000 * release, "bytes": sizes}


def in_its_own_process(size: Size) -> Json:
    arguments = [str(each) for each in (size.queues, size.nodes, size.pending)]
    command = [sys.executable, "-m", "tests.bench.scale", "--one", *arguments]
    found: Json = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    say(f"{size}: {found['mb']:.0f} MB, {found['start_cpu_s']:.1f} s, {found['release_ms']:.1f} ms")
    return found


def constants(small: Json, pending: Json, nodes: Json) -> dict[str, dict[str, float]]:
    """Of memory and of start: what one job that waits costs, what one node with its job and pod does, and the rest."""
    found: dict[str, dict[str, float]] = {}
    for name in ("mb", "start_cpu_s"):
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
        print(json.dumps(filled(Size(*options.one))))
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
