"""How fast the leader answers, and how long an answer keeps its loop from deciding: `make bench-answers`, JSON on stdout.

20 ClusterQueues in cohorts of five, each with a LocalQueue in a namespace of its own; 500 nodes of 8 GPUs, each with a running
job and its pod; 5,000 jobs wait. The asker may read one namespace of the 20. Each kind of answer is asked for ROUNDS times over
HTTP, by another process, one after the other, and four at a time in the end. Meanwhile jobs end and others are submitted, so that
the engine goes on deciding and nothing that was computed once stays true for long.

All times are CPU milliseconds of the leader's only thread, so others' work on the machine does not count: on a core of its own
they are the time that passes. `p50_ms`, `p99_ms`: from a request's arrival to its answer. `held_ms`: CPU that passed while a task
of the loop slept for 2 ms, p99 and at most: at rest, and while answers are made; it is late by no more. `wall_p50_ms`,
`wall_p99_ms`: what the asking process saw. `copied_ms`: CPU of the copy of all facts, from which another process computes the
outlook.

Access reviews are answered at once. Answers that start a simulation of their own (remedies, victims, whatifs) are not asked for:
they run in processes of their own, for as long as their limits allow.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from aiohttp import web
from tests.bench.scrape import Tape

from gangline.api.read import conditions
from gangline.control.answers.answers import Answers
from gangline.control.answers.api.access_review import ResourceAttributes, Reviews
from gangline.control.answers.api.answers_api import AnswersApi
from gangline.control.answers.api.discovery import ANSWERS
from gangline.control.answers.api.front_proxy import User
from gangline.control.answers.api.pending_view import Visibility
from gangline.control.answers.source import Source
from gangline.control.controller import Controller
from gangline.control.forecasting import simulation_process
from gangline.control.forecasting.expected_starts import Expected
from gangline.control.forecasting.runtime_facts import Forecasts
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts.messages import FactObserved
from gangline.control.writes.writer import Writer
from gangline.engine import Engine, Outlook
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Synced, Upsert
from gangline.kube.resources import Json, Resource

QUEUES, NODES, PENDING = 20, 500, 5_000
ROUNDS = 200
#: seconds between two changes of the cluster, and between two looks at the loop
CHANGE_EVERY, LOOK_EVERY = 0.1, 0.002
_USER: Final = web.RequestKey("user", User)
ROOT: Final = ANSWERS.root(ANSWERS.versions[-1])
MINE: Final = "team-0"
#: the job that is asked about: it waits in the middle of its queue
JOB: Final = f"job-{QUEUES * (PENDING // QUEUES // 2)}"

KINDS: Final = {
    "queue, a page of one namespace": f"/namespaces/{MINE}/queuedjobs",
    "queue, a page of all namespaces": "/queuedjobs",
    "queue, the last page": f"/queuedjobs?continue={PENDING}&limit=100",
    "queue with times": f"/namespaces/{MINE}/queuedjobs?times=true",
    "queue with times, of all": "/queuedjobs?times=true",
    "eta of a job": f"/namespaces/{MINE}/queuedjobs/{JOB}?times=true",
    "why": f"/namespaces/{MINE}/queuedjobs/{JOB}/why",
    "promises": f"/namespaces/{MINE}/queuedjobs/{JOB}/promises",
    "story": f"/namespaces/{MINE}/queuedjobs/{JOB}/story",
    "plan": f"/namespaces/{MINE}/plannedruns",
    "plan, of all": "/plannedruns",
    "share": f"/namespaces/{MINE}/queueshares",
    "nodes": f"/namespaces/{MINE}/flavornodes",
    "history": f"/namespaces/{MINE}/pastruns",
}


def main() -> None:
    if len(sys.argv) > 2:
        _ask(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
        return
    print(json.dumps(asyncio.run(measured(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)), indent=1))


# --- the one who asks -------------------------------------------------------------------------------------------------


def _ask(root: str, path: str, rounds: int) -> None:
    """In a process of its own: the milliseconds of each answer, and the size of the last."""
    took: list[float] = []
    size = 0
    for _ in range(rounds):
        begun = time.perf_counter()
        with urlopen(HttpRequest(root + path)) as answer:
            size = len(answer.read())
        took.append((time.perf_counter() - begun) * 1000)
    print(json.dumps({"took": took, "bytes": size}))


async def _asked(root: str, path: str, rounds: int) -> tuple[list[float], int]:
    command = [sys.executable, "-m", "tests.bench.answers", root, json.dumps(path), str(rounds)]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    out, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"{path} has no answer")
    answer = json.loads(out)
    return answer["took"], answer["bytes"]


# --- the one who answers ----------------------------------------------------------------------------------------------


class Leader:
    """A leader without an API server: its loop runs, its writes go nowhere."""

    def __init__(self, queues: int = QUEUES, nodes: int = NODES, pending: int = PENDING) -> None:
        self._queues, self._nodes, self._pending = queues, nodes, pending
        self.metrics = Metrics()
        self.engine = Engine()
        writer = Writer(None, gate=lambda: False)  # type: ignore[arg-type]
        self.controller = Controller(None, writer, self.engine, Tape(), self.metrics, now=wall)  # type: ignore[arg-type]
        mirror = self.controller.mirror
        self.forecasts = Forecasts(mirror, self.engine.observe, now=wall)
        self.expected = Expected(
            self.engine, mirror, self.controller.writes, now=wall, estimate=self.forecasts.estimate
        )
        self.controller.messages.subscribe(FactObserved, self._note)
        self.visibility = Visibility(self.controller, None)
        source = Source(mirror, self.engine, self.forecasts, wall, self.controller.pods, self.controller.cards)
        self.foresight = Foresight(self.expected)
        self.answers = Answers(source, self.foresight, self.visibility.order)  # type: ignore[arg-type]
        self.api = AnswersApi(self.answers, Yes(), dict)  # type: ignore[arg-type]
        self._next = nodes + pending

    def _note(self, message: FactObserved) -> None:
        self.forecasts.note(message.change)
        self.expected.note(message.change)

    def fill(self) -> None:
        self.describe()
        self.controller.sink(kube.PODS)(Synced())
        while not self.controller.absorb():
            pass
        self.forecasts.tell_all()

    def describe(self) -> None:
        """Deliver every object that there is at the start."""
        show = self.show
        groups = [
            {
                "coveredResources": ["cpu", "nvidia.com/gpu"],
                "flavors": [
                    {
                        "name": "h100",
                        "resources": [
                            {"name": "cpu", "nominalQuota": "10000"},
                            {"name": "nvidia.com/gpu", "nominalQuota": str(8 * self._nodes // self._queues)},
                        ],
                    }
                ],
            }
        ]
        show(kube.RESOURCE_FLAVORS, "h100", nodeLabels={"pool": "h100"})
        for number in range(self._queues):
            show(kube.NAMESPACES, f"team-{number}")
            show(
                kube.CLUSTER_QUEUES,
                f"queue-{number}",
                cohortName=f"cohort-{number // 5}",
                namespaceSelector={},
                resourceGroups=groups,
                status={"conditions": [row("Active", "True", "Ready")]},
            )
            show(kube.LOCAL_QUEUES, "main", f"team-{number}", clusterQueue=f"queue-{number}")
        for number in range(self._nodes):
            room = {"cpu": "192", "nvidia.com/gpu": "8", "pods": "110", "memory": "1Ti"}
            show(
                kube.NODES,
                f"node-{number}",
                status={"allocatable": room, "capacity": room, "conditions": [row("Ready", "True", "KubeletReady")]},
                labels={"pool": "h100", "kubernetes.io/hostname": f"node-{number}"},
            )
        for number in range(self._pending):
            self.wait(number)
        for number in range(self._nodes):
            self.run(number, self._pending + number)

    def show(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        status: Json | None = None,
        labels: Json | None = None,
        meta: Json | None = None,
        **spec: Any,
    ) -> None:
        head: Json = {
            "name": name,
            "uid": f"{resource.plural}-{namespace}-{name}",
            "resourceVersion": str(next_version()),
        }
        head |= {"creationTimestamp": conditions.timestamp(wall() - 600_000), **(meta or {})}
        if namespace:
            head["namespace"] = namespace
        if labels:
            head["labels"] = labels
        obj: Json = {"metadata": head, "spec": spec, "status": status or {}}
        if not resource.group:
            obj["kind"] = resource.kind
        self.deliver(resource, obj)

    def deliver(self, resource: Resource, obj: Json) -> None:
        self.controller.sink(resource)(Upsert(obj))

    def wait(self, number: int) -> None:
        message = (
            "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, "
            "8 more needed"
        )
        waits = {"conditions": [row("QuotaReserved", "False", "WaitingForQuota", message)]}
        self._workload(number, waits)

    def run(self, node: int, number: int) -> None:
        usage = {"cpu": "8", "nvidia.com/gpu": "8"}
        flavors = {"cpu": "h100", "nvidia.com/gpu": "h100"}
        assigned = {"name": "main", "count": 1, "flavors": flavors, "resourceUsage": usage}
        status = {
            "conditions": [row(kind, "True", kind) for kind in ("QuotaReserved", "Admitted", "PodsReady")],
            "admission": {"clusterQueue": f"queue-{number % self._queues}", "podSetAssignments": [assigned]},
        }
        self._workload(number, status)
        space = f"team-{number % self._queues}"
        self.show(
            kube.PODS,
            f"job-{number}-0",
            space,
            meta={"annotations": {"kueue.x-k8s.io/workload": f"job-{number}"}, **owned(f"job-{number}", space)},
            labels={"kueue.x-k8s.io/podset": "main"},
            status={"phase": "Running", "conditions": [row("Ready", "True", "")]},
            nodeName=f"node-{node}",
            containers=[{"name": "main", "resources": {"requests": usage}}],
        )

    def _workload(self, number: int, status: Json) -> None:
        """A Job and its Workload."""
        name, space = f"job-{number}", f"team-{number % self._queues}"
        notes = {"annotations": {"gangline.io/expected-runtime": f"{1 + number % 7}h"}}
        queued = {"kueue.x-k8s.io/queue-name": "main"}
        self.show(
            kube.JOBS,
            name,
            space,
            meta=notes,
            labels=queued,
            suspend="admission" not in status,
            parallelism=1,
            template=template(),
        )
        self.show(
            kube.WORKLOADS,
            name,
            space,
            status=status,
            meta={**notes, **owned(name, space)},
            queueName="main",
            podSets=[{"name": "main", "count": 1, "template": template()}],
        )

    async def live(self) -> None:
        """Now and then a job is submitted, or the last one is deleted."""
        while True:
            await asyncio.sleep(CHANGE_EVERY)
            number, self._next = self._next, self._next + 1
            if number % 2:
                gone, space = number - 1, f"team-{(number - 1) % self._queues}"
                for resource in (kube.WORKLOADS, kube.JOBS):
                    uid = f"{resource.plural}-{space}-job-{gone}"
                    self.controller.sink(resource)(Removed(f"{space}/job-{gone}", uid))
            else:
                self.wait(number)
            # the loop itself: what arrived is read, and the engine decides
            while not self.controller.absorb():
                pass
            self.engine.decide(wall(), 0)


class Yes(Reviews):
    """An API server's answers, at once: the asker may ask everything, and list the Workloads of one namespace."""

    def __init__(self) -> None:
        pass

    async def allowed(self, user: User, access: object) -> bool:
        assert isinstance(access, ResourceAttributes)
        return access.resource != "workloads" or access.namespace == MINE


class Foresight:
    """The operator's, without a history."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self.ledger = expected.ledger

    async def outlook(self, workload: str = "") -> Outlook:
        found = await self._expected.latest(workload)
        assert found is not None
        return found

    async def past(self, namespace: str, since: float, most: int) -> list[Any]:
        return []


class Held:
    """CPU that others take while a task of the loop sleeps, and that each answer takes until it is ready, in milliseconds."""

    def __init__(self) -> None:
        self.held: list[float] = []
        self.answered: list[float] = []

    async def run(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(LOOK_EVERY)
            self.held.append((time.thread_time() - before) * 1000)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        request[_USER] = User(request.headers.get("X-User", "alice"))
        before = time.thread_time()
        answer = await handler(request)
        self.answered.append((time.thread_time() - before) * 1000)
        return answer

    def figures(self) -> Json:
        """Since the last time."""
        held, self.held = self.held, []
        answered, self.answered = self.answered, []
        spread = {"p50_ms": at(answered, 0.5), "p99_ms": at(answered, 0.99)} if answered else {}
        return {**spread, "held_ms": {"p99": at(held, 0.99), "most": at(held, 1.0)}}


async def measured(rounds: int) -> dict[str, Any]:
    leader = Leader()
    begun = time.perf_counter()
    leader.fill()
    leader.controller.leading = False
    leader.engine.decide(wall(), 0)
    say(f"{len(leader.controller.mirror.objects[kube.WORKLOADS])} Workloads after {time.perf_counter() - begun:.1f} s")
    gc.collect()
    gc.freeze()
    begun = time.perf_counter()
    seen = await leader.foresight.outlook()
    outlook = time.perf_counter() - begun
    say(f"{len(seen.starts)} expected starts after {outlook:.1f} s")
    before = time.thread_time()
    simulation_process.request(leader.engine.facts(), leader.engine.settings, wall())
    copied = (time.thread_time() - before) * 1000
    held = Held()
    answers: dict[str, Json] = {}
    await leader.answers.prepare()  # as the operator does when it begins to serve, and each minute
    async with serving(leader, held) as root, running(leader.live()), running(held.run()):
        await asyncio.sleep(5.0)
        rest = held.figures()
        say(f"at rest: {rest}")
        for about, path in KINDS.items():
            took, size = await _asked(root, path, rounds)
            answers[about] = {**held.figures(), **_wall(took), "kilobytes": round(size / 1000)}
            say(f"{about}: {answers[about]}")
        paths = list(KINDS.values())[::4]
        found = await asyncio.gather(*(_asked(root, path, rounds) for path in paths))
        together = {**held.figures(), **_wall([each for took, _ in found for each in took])}
    return {
        "queues": QUEUES,
        "nodes": NODES,
        "pending": PENDING,
        "rounds": rounds,
        "outlook_seconds": round(outlook, 1),
        "copied_ms": round(copied, 1),
        "at_rest": rest,
        "answers": answers,
        f"{len(paths)}_at_a_time": together,
    }


def _wall(took: list[float]) -> Json:
    return {"wall_p50_ms": at(took, 0.5), "wall_p99_ms": at(took, 0.99)}


def at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


@asynccontextmanager
async def serving(leader: Leader, held: Held) -> AsyncIterator[str]:
    app = web.Application(middlewares=[held.middleware])
    leader.api.add_to(app, _USER)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}{ROOT}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()


_versions = iter(range(1, 1 << 60))


def next_version() -> int:
    return next(_versions)


def owned(job: str, namespace: str) -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}
    return {"ownerReferences": [owner | {"uid": f"jobs-{namespace}-{job}"}]}


def template() -> Json:
    requests = {"cpu": "8", "nvidia.com/gpu": "8"}
    return {"spec": {"containers": [{"name": "main", "image": "train", "resources": {"requests": requests}}]}}


def row(kind: str, status: str, reason: str, message: str = "") -> Json:
    at = conditions.timestamp(wall() - 300_000)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def wall() -> int:
    return int(time.time() * 1000)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
