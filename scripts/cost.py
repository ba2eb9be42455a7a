"""What a Job costs the operator, counted and not timed: calls of Gangline's functions, and writes.

    python -m scripts.cost            # prints the counts
    python -m scripts.cost --record   # and keeps them for tests/control/test_cost.py, which fails where a change makes them grow

The operator is played in this process, as in `scripts.walks`: Jobs of two pods are created, admitted, started, run and end. The
calls of functions of the package `gangline` are counted per Job, without those that every round of the loop makes whatever
happens; these are counted per round. The counts are those of one version of Python: others inline other calls.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, Final

from scripts import walks
from scripts.walks import Cluster

from gangline.api.read.conditions import timestamp
from gangline.control.feed.pod import only_node
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey, Resource

RECORD: Final = Path(__file__).parents[1] / "tests" / "data" / "cost.json"
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
JOBS: Final = 5
_IDLE_ROUNDS: Final = 50
_PODS: Final = (0, 1)
#: asked by this script after each round, to see whether the operator is at rest
_ASKED: Final = frozenset({"Controller.waiting", "Inbox.lagging", "Writer.queued", "Writer.in_flight"})


class _Counting(Cluster):
    """Counts calls, rounds, and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.rounds_taken = 0
        self.writes = Counter[str]()
        act = self.controller.act

        def counted() -> None:
            self.rounds_taken += 1
            act()

        self.controller.act = counted  # type: ignore[method-assign]

    @contextmanager
    def counting(self) -> Iterator[None]:
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(walks.PACKAGE)):
            self.calls += code.co_qualname.partition(".<locals>")[0] not in _ASKED

    async def create(self, resource: Resource, namespace: str, body: Json, **more: Any) -> Json:
        self.writes[f"create {resource.plural}"] += 1
        return await super().create(resource, namespace, body, **more)

    async def patch(self, resource: Resource, namespace: str, name: str, body: Any, **more: Any) -> Json:
        status = "/status" if more.get("subresource") == "status" else ""
        self.writes[f"patch {resource.plural}{status}"] += 1
        return await super().patch(resource, namespace, name, body, **more)


async def counted() -> Json:
    """The counts: calls of a Job and of a round in which nothing happens, and the writes of a Job by what is written."""
    cluster = _Counting()
    await walks.operator(cluster)
    await _live(cluster, "first")  # what is imported and made once
    cluster.calls = 0
    with cluster.counting():
        for _ in range(_IDLE_ROUNDS):
            cluster.controller.absorb()
            cluster.controller.act()
    idle, found = cluster.calls / _IDLE_ROUNDS, list[float]()
    cluster.writes.clear()
    for number in range(JOBS):
        cluster.calls = cluster.rounds_taken = 0
        await _live(cluster, f"job-{number}")
        found.append(cluster.calls - idle * cluster.rounds_taken)
    writes = {what: round(count / JOBS, 2) for what, count in sorted(cluster.writes.items())}
    return {"callsOfAJob": round(median(found)), "callsOfARound": round(idle), "writesOfAJob": writes}


async def _live(cluster: _Counting, name: str) -> None:
    """A Job is created, admitted and started; its pods are sent to nodes, run and succeed."""
    key = ObjectKey(kube.JOBS, walks.NAMESPACE, name)
    with cluster.counting():
        cluster.put(kube.JOBS, walks.new_job(name))
        await cluster.rounds()
    job = cluster.objects[key]
    assert not job["spec"]["suspend"]
    await _changed(cluster, [(kube.PODS, walks.pod_of(job, index, f"{name}-{index}")) for index in _PODS])
    pods = [cluster.pods[f"{name}-{index}"] for index in _PODS]
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    bound = [{**pod, "spec": {**pod["spec"], "nodeName": only_node(pod["spec"])}, "status": ready} for pod in pods]
    active = {"active": len(pods), "ready": len(pods), "startTime": timestamp(cluster.now)}
    await _changed(cluster, [*((kube.PODS, pod) for pod in bound), (kube.JOBS, {**job, "status": active})])
    over = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(cluster.now)}
    ended = {"succeeded": len(pods), "completionTime": timestamp(cluster.now), "conditions": [over]}
    gone = [(kube.PODS, {**cluster.pods[pod["metadata"]["name"]], "status": {"phase": "Succeeded"}}) for pod in pods]
    await _changed(cluster, [*gone, (kube.JOBS, {**cluster.objects[key], "status": ended})])


async def _changed(cluster: _Counting, objects: list[tuple[Resource, Json]]) -> None:
    with cluster.counting():
        for resource, obj in objects:
            cluster.put(resource, obj)
        await cluster.rounds()


def recorded() -> Json | None:
    """The counts that are kept for this version of Python; None if there are none."""
    return json.loads(RECORD.read_text()).get(PYTHON)


def main() -> None:
    counts = asyncio.run(counted())
    print(json.dumps(counts, indent=2))
    if "--record" in sys.argv[1:]:
        kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        RECORD.write_text(json.dumps({**kept, PYTHON: counts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
