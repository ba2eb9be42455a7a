"""The walks of docs/architecture.md, walked: each is played in this process, and the files through which its calls go are noted.

    .venv/bin/python -m scripts.walks

prints these files. There is no API server: a stand-in keeps objects, merges patches, and sends each version as a watch event.

A walk has *stops*: the functions in which its steps happen, each in a file that the page names. What is counted are the files
that one reads to follow the walk: those of the stops, and those of every caller between the walk's entry and a stop, which are on
the call stack whenever a stop is called. A file counts once. Files that the page names but where nothing runs without an API
server, or in this cluster (`Walk.not_played`), count too. Code that the walk merely uses (readers, labels, metrics, other parts
of the operator that look at the same event) is on no such stack and doesn't count. Where data is handed over without a call, by a
queue or a task, the page names the next stop. Only files of the packages in `COUNTED` are in the figure. Beside it stands in how
many files of all packages something runs, whoever calls it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, Final
from unittest import mock

import orjson
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from click.testing import CliRunner
from tests.builders import clusters
from tests.merging import merge_patch

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.console.commands.see import why
from gangline.console.views import access
from gangline.console.views.own_answers import ClusterInstant
from gangline.control.answers.api.answers_api import AnswersApi
from gangline.control.answers.api.front_proxy import User
from gangline.control.controller import Controller
from gangline.control.feed.pod import only_node
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.writes.writer import Writer
from gangline.engine import IsolatedEngine
from gangline.kube import resources as kube
from gangline.kube.client import ObjectList
from gangline.kube.errors import NotFound
from gangline.kube.reflector import Removed, Synced, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.kube.transport import Call

PACKAGE: Final = Path(__file__).parents[1] / "operator" / "gangline"
#: packages whose files are counted; the console's are of the walks that begin there
COUNTED: Final = ("control", "engine", "console")
NAMESPACE: Final = "ml"
NOW: Final = 1_700_000_000_000
#: rounds in a row that leave nothing: then nothing more follows from what has happened
QUIET_ROUNDS: Final = 8
MOST_ROUNDS: Final = 5_000
#: turns of the event loop between two rounds, and seconds where nothing but time is waited for: so few rounds are made for
#: nothing, and counts of calls do not depend on the speed of the machine
TICKS: Final = 30
PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk: the heading of its section of the page, how it is played, and the functions that are its stops.

    `not_played`: files that the page names, but where nothing runs in what is played, each with the reason.
    """

    heading: str
    play: Callable[[Trace], None]
    stops: Mapping[str, tuple[str, ...]]
    not_played: Mapping[str, str] = field(default_factory=dict[str, str])
    on_the_page: bool = True


@dataclass
class Trace:
    """What ran: the files of all functions that were called, and those on the stack when a stop was called."""

    stops: Mapping[str, tuple[str, ...]]
    entered: set[str] = field(default_factory=set[str])
    on_the_way: set[str] = field(default_factory=set[str])
    reached: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _files: dict[CodeType, str] = field(default_factory=dict[CodeType, str])

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not (file := self._file(frame.f_code)):
            return
        self.entered.add(file)
        stop = (file, frame.f_code.co_qualname)
        if stop[1] in self.stops.get(file, ()):
            self.reached.add(stop)
            above: FrameType | None = frame
            while above is not None:
                self.on_the_way.add(self._file(above.f_code))
                above = above.f_back

    def _file(self, code: CodeType) -> str:
        """The file of the package, below it; "" = another one's."""
        if code not in self._files:
            path = Path(code.co_filename)
            self._files[code] = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""
        return self._files[code]

    @property
    def counted(self) -> list[str]:
        return sorted(file for file in self.on_the_way if file.partition("/")[0] in COUNTED)


# --- an operator that leads -------------------------------------------------------------------------------------------


class _Tape:
    """In place of the event recorder."""

    def record(self, *args: Any, **named: Any) -> None:
        pass


class Cluster:
    """A leader and the API server that it writes to: every version of an object comes back as a watch event."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Json] = {}
        self._versions = itertools.count(1)
        self.now = NOW
        #: nodes whose kubelets don't answer: their pods don't end
        self.silent: set[str] = set()
        self.writer = Writer(self)  # type: ignore[arg-type]
        self.controller = Controller(
            self,  # type: ignore[arg-type]
            self.writer,
            IsolatedEngine(),
            _Tape(),  # type: ignore[arg-type]
            Metrics(),
            now=lambda: self.now,
        )

    def put(self, resource: Resource, obj: Json) -> Json:
        """Store this version, and send it to the operator."""
        meta = {"uid": f"uid-{obj['metadata']['name']}", "generation": 1, "creationTimestamp": timestamp(self.now)}
        meta |= {**obj["metadata"], "resourceVersion": str(next(self._versions))}
        stored = {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": meta}
        self.objects[ObjectKey.of(resource, stored)] = stored
        self.controller.sink(resource)(Upsert(orjson.loads(orjson.dumps(stored))))
        return orjson.loads(orjson.dumps(stored))

    async def lead(self) -> None:
        self.controller.sink(kube.PODS)(Synced())
        self.controller.absorb()
        self.controller.lead()
        await self.rounds()

    async def rounds(self) -> None:
        """Rounds of the operator's loop, with the answers to its writes in between, until several in a row have left nothing."""
        quiet = 0
        for _ in range(MOST_ROUNDS):
            self.controller.absorb()
            self.controller.act()
            for _ in range(TICKS):
                await asyncio.sleep(0)
            waiting = self.controller.waiting() or self.writer.in_flight
            if self.writer.queued and not waiting:  # for a time, which no round brings nearer
                await asyncio.sleep(PAUSE)
            left = waiting or self.writer.queued
            quiet = 0 if left else quiet + 1
            if quiet == QUIET_ROUNDS:
                return
        raise AssertionError(f"the operator does not come to rest within {MOST_ROUNDS} rounds")

    def one(self, resource: Resource) -> Json:
        [obj] = [obj for key, obj in self.objects.items() if key.resource == resource]
        return obj

    @property
    def pods(self) -> dict[str, Json]:
        return {key.name: obj for key, obj in self.objects.items() if key.resource == kube.PODS}

    # what the writer calls

    async def create(self, resource: Resource, namespace: str, body: Json, **_: Any) -> Json:
        return self.put(resource, orjson.loads(orjson.dumps(body)))

    async def patch(self, resource: Resource, namespace: str, name: str, body: Any, **_: Any) -> Json:
        return self.put(resource, merge_patch(self._stored(resource, namespace, name), body))

    async def replace(self, resource: Resource, namespace: str, name: str, body: Json, **_: Any) -> Json:
        return self.put(resource, orjson.loads(orjson.dumps(body)))

    async def delete(self, resource: Resource, namespace: str, name: str, **_: Any) -> Json:
        obj = self._stored(resource, namespace, name)
        if obj["spec"].get("nodeName") in self.silent:
            due = {"deletionTimestamp": timestamp(self.now + 30_000), "deletionGracePeriodSeconds": 30}
            return self.put(resource, {**obj, "metadata": {**obj["metadata"], **due}})
        del self.objects[ObjectKey(resource, namespace or "", name)]
        self.controller.sink(resource)(Removed(ObjectKey(resource, namespace or "", name).text, obj["metadata"]["uid"]))
        return obj

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        return orjson.loads(orjson.dumps(self._stored(resource, namespace, name)))

    def _stored(self, resource: Resource, namespace: str | None, name: str) -> Json:
        try:
            return self.objects[ObjectKey(resource, namespace or "", name)]
        except KeyError:
            raise NotFound(404, "NotFound", f"{resource} {name}") from None


def named(name: str, spec: Json, namespace: str = "", **meta: Any) -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **where, **meta}, "spec": spec}


async def operator(cluster: Cluster | None = None) -> Cluster:
    """A leader with a queue of one flavor, and three nodes of it with eight GPUs each."""
    cluster = cluster or Cluster()
    rows = [{"name": name, "nominalQuota": "64"} for name in ("cpu", "nvidia.com/gpu")]
    groups = [{"coveredResources": [row["name"] for row in rows], "flavors": [{"name": "f", "resources": rows}]}]
    cluster.put(kube.NAMESPACES, named(NAMESPACE, {}))
    cluster.put(kube.RESOURCE_FLAVORS, named("f", {"nodeLabels": {"pool": "f"}}))
    cluster.put(kube.CLUSTER_QUEUES, named("cq", {"namespaceSelector": {}, "resourceGroups": groups}))
    cluster.put(kube.LOCAL_QUEUES, named("main", {"clusterQueue": "cq"}, NAMESPACE))
    for name in ("n1", "n2", "n3"):
        cluster.put(kube.NODES, _node(name, ready=True, since=NOW - 3_600_000))
    await cluster.lead()
    return cluster


def _node(name: str, *, ready: bool, since: int) -> Json:
    condition = {"type": "Ready", "status": str(ready) if ready else "Unknown", "lastTransitionTime": timestamp(since)}
    amounts = {"cpu": "64", "nvidia.com/gpu": "8", "pods": "110"}
    node = named(name, {}, labels={"pool": "f", "kubernetes.io/hostname": name})
    return {**node, "status": {"allocatable": amounts, "capacity": amounts, "conditions": [condition]}}


def new_job(name: str = "train") -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "8"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"suspend": True, "parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}
    return {**named(name, spec, NAMESPACE, labels={names.QUEUE_NAME: "main"}), "status": {}}


def pod_of(job: Json, index: int, name: str) -> Json:
    """A pod of a Job as its controller makes it from the template."""
    template = job["spec"]["template"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(index)}
    meta = {"ownerReferences": [owner], "labels": labels, "annotations": template["metadata"]["annotations"]}
    return {**named(name, template["spec"], NAMESPACE, **meta), "status": {"phase": "Pending"}}


async def _start(cluster: Cluster) -> None:
    """A Job is created, and once it was started so are its pods."""
    cluster.put(kube.JOBS, new_job())
    await cluster.rounds()
    for index in (0, 1):
        cluster.put(kube.PODS, pod_of(cluster.one(kube.JOBS), index, f"train-{index}"))
    await cluster.rounds()


def _run_pods(cluster: Cluster) -> None:
    """Pods that were sent to a node are bound to it and become ready."""
    pods = [pod for pod in cluster.pods.values() if "deletionTimestamp" not in pod["metadata"]]
    for pod in pods:
        spec = {**pod["spec"], "nodeName": only_node(pod["spec"])}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        cluster.put(kube.PODS, {**pod, "spec": spec, "status": status})
    counts = {"active": len(pods), "ready": len(pods), "startTime": timestamp(cluster.now)}
    cluster.put(kube.JOBS, {**cluster.one(kube.JOBS), "status": counts})


async def _job(trace: Trace) -> None:
    """A Job is created, admitted and started, and its pods are sent to nodes."""
    cluster = await operator()
    with trace.watching():
        await _start(cluster)
    assert not cluster.one(kube.JOBS)["spec"]["suspend"]
    assert not any("schedulingGates" in pod["spec"] for pod in cluster.pods.values())


async def _admission(trace: Trace) -> None:
    """A Workload that no job owns is created and admitted."""
    cluster = await operator()
    pod_set = {"name": "main", "count": 2, "template": new_job()["spec"]["template"]}
    with trace.watching():
        cluster.put(kube.WORKLOADS, named("train", {"queueName": "main", "podSets": [pod_set]}, NAMESPACE))
        await cluster.rounds()
    assert cluster.one(kube.WORKLOADS)["status"]["admission"]["clusterQueue"] == "cq"


async def _healing(trace: Trace) -> None:
    """The node of a running pod turns NotReady for good; the pod is replaced on a spare node."""
    cluster = await operator()
    await _start(cluster)
    _run_pods(cluster)
    await cluster.rounds()
    lost = cluster.pods["train-0"]["spec"]["nodeName"]
    with trace.watching():
        cluster.silent.add(lost)
        cluster.put(kube.NODES, _node(lost, ready=False, since=cluster.now))
        await cluster.rounds()
        cluster.now += 120_000
        await cluster.rounds()
        cluster.now += 120_000
        await cluster.rounds()
        cluster.put(kube.PODS, pod_of(cluster.one(kube.JOBS), 0, "train-0-again"))
        await cluster.rounds()
        _run_pods(cluster)
        await cluster.rounds()
    [recovered] = [row for row in cluster.one(kube.WORKLOADS)["status"]["conditions"] if row["type"] == "Recovered"]
    assert recovered["status"] == "True", recovered


# --- a question -------------------------------------------------------------------------------------------------------


class _Reviews:
    """In place of access reviews: everything is allowed."""

    async def allowed(self, user: User, access: object) -> bool:
        return True


class _AskedApi:
    """The API server, as `gangline why` sees it: it hands questions on to the leader, or has no leader to ask."""

    def __init__(self, here: ClusterInstant, *, leads: bool) -> None:
        self._here = here
        self._leads = leads
        self.login = SimpleNamespace(namespace=NAMESPACE)

    async def json(self, call: Call) -> Json:
        if not self._leads or call.path.endswith("/remedies"):
            raise NotFound(404, "NotFound", "nothing is served there")
        user_of = web.RequestKey("user", User)
        app = web.Application()
        AnswersApi(self._here.answers(), _Reviews(), None).add_to(app, user_of)  # type: ignore[arg-type]
        app.freeze()
        request = make_mocked_request(call.method, call.path, app=app)
        route = await app.router.resolve(request)
        route.add_app(app)
        request._match_info = route
        request[user_of] = User("ada")
        answer = await route.handler(request)
        assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
        return orjson.loads(answer.body)

    async def list(self, resource: Resource, namespace: str | None = None, **_: Any) -> ObjectList:
        return ObjectList([*self._here.mirror.objects[resource].values()], "1")

    async def pages(self, resource: Resource, namespace: str | None = None, **_: Any) -> AsyncIterator[ObjectList]:
        yield ObjectList([], "1")


def _question(trace: Trace) -> None:
    """Why does a job wait? Asked of a leader: for quota that others hold, and behind another; and asked where none leads."""
    for here, job, leads in (
        (clusters.shared(), "next", True),
        (clusters.busy(), "last", True),
        (clusters.shared(), "next", False),
    ):
        here.engine.decide(here.now)
        api = _AskedApi(here, leads=leads)
        with mock.patch.object(access, "client", lambda *_, api=api: nullcontext(api)), trace.watching():
            result = CliRunner().invoke(why.command, [job])
        assert f"gpujob/{job} in namespace {NAMESPACE}" in result.output, (result.output, result.exception)


# --- the walks --------------------------------------------------------------------------------------------------------

WALKS: Final = (
    Walk(
        "One job, from `kubectl apply` to a running gang",
        lambda trace: asyncio.run(_job(trace)),
        {
            "control/isolation/inbox.py": ("Inbox.events",),
            "control/feed/mirror.py": ("Mirror.upsert",),
            "control/kinds/job_plan.py": ("plan",),
            "control/writes/writes.py": ("Writes.change",),
            "control/writes/writer.py": ("Writer._perform",),
            "api/read/workloads/parse_workload.py": ("workload",),
            "engine/state/workload_intake.py": ("WorkloadIntake.put",),
            "engine/queues/pending_queue.py": ("PendingQueue.arrive",),
            "engine/scheduler.py": ("Scheduler._run_tree",),
            "engine/cycle/tree_cycle.py": ("TreeCycle._process",),
            "engine/flavors/flavor_assigner.py": ("Assigner.assign",),
            "engine/nodes/capacity.py": ("Capacity.take",),
            "engine/queues/cluster_queue.py": ("ClusterQueueState.hold",),
            "control/decisions/carrying_out.py": ("Decisions.carry_out",),
            "control/writes/status/status_changes.py": ("admit",),
            "control/kinds/injection.py": ("pod_set_infos",),
            "control/nodes/gates/node_gates.py": ("destinations",),
        },
        {
            "engine/preemption/preemptor.py": "nothing has to be preempted",
            "engine/topology/placement.py": "the flavor has no topology",
            "control/nodes/gates/pod_gates.py": "the flavor has no topology",
        },
    ),
    Walk(
        "A Workload, from its watch event to its admission write",
        lambda trace: asyncio.run(_admission(trace)),
        {
            "control/isolation/inbox.py": ("Inbox.events",),
            "control/feed/mirror.py": ("Mirror.upsert",),
            "engine/state/workload_intake.py": ("WorkloadIntake.put",),
            "engine/queues/pending_queue.py": ("PendingQueue.arrive",),
            "engine/cycle/tree_cycle.py": ("TreeCycle._process",),
            "engine/flavors/flavor_assigner.py": ("Assigner.assign",),
            "engine/nodes/capacity.py": ("Capacity.take",),
            "engine/queues/cluster_queue.py": ("ClusterQueueState.hold",),
            "control/decisions/carrying_out.py": ("Decisions.carry_out",),
            "control/writes/status/status_changes.py": ("admit",),
            "control/writes/writes.py": ("Writes.change",),
            "control/writes/writer.py": ("Writer._perform",),
        },
        on_the_page=False,
    ),
    Walk(
        "A healing, from the failed node to the running gang",
        lambda trace: asyncio.run(_healing(trace)),
        {
            "control/feed/mirror.py": ("Mirror.upsert",),
            "engine/nodes/health.py": ("NodeHealth.put_node", "NodeHealth.advance"),
            "control/feed/pod_index.py": ("PodIndex.upsert",),
            "engine/nodes/pod_locations.py": ("PodLocations.pods",),
            "engine/recovery/breaker.py": ("Breaker.watch",),
            "engine/recovery/healing.py": ("Healing._heal",),
            "engine/recovery/healing_plan.py": ("HealingPlan.fits",),
            "engine/nodes/packer.py": ("Packer.assign",),
            "control/nodes/recovery/swaps.py": ("Recoveries.heal", "Recoveries._follow", "Recoveries._close"),
            "control/nodes/recovery/fencing.py": ("Fencing._judge",),
            "control/nodes/gates/node_gates.py": ("destinations",),
        },
        {"control/nodes/recovery/stuck_pods.py": "its feature gate is off, as in Kueue"},
    ),
    Walk(
        "One question, from `gangline why` to its answer",
        _question,
        {
            "console/commands/see/why.py": ("_why", "rendered"),
            "console/views/asking.py": ("get",),
            "console/views/own_rights.py": ("look",),
            "control/answers/api/answers_api.py": ("AnswersApi._why",),
            "control/answers/of_jobs.py": ("JobAnswers.why",),
            "control/answers/desk.py": ("Desk._found", "Desk._views"),
            "control/answers/sight.py": ("Sight.workload",),
            "control/answers/workloads/snapshot.py": ("workload_view",),
            "control/answers/circumstances.py": ("limits", "as_the_engine_says"),
            "engine/engine.py": ("Engine.explain", "Engine.quota_limits"),
            "engine/cycle/pending_reasons.py": ("why",),
            "control/answers/explanation.py": ("explain", "needs", "holding"),
        },
        {
            "control/answers/api/aggregated_api.py": "it serves TLS to an API server",
            "control/answers/api/access_review.py": "it asks an API server",
            "control/answers/api/front_proxy.py": "it reads what an API server says of the user",
        },
    ),
)


ON_THE_PAGE: Final = tuple(walk for walk in WALKS if walk.on_the_page)


def walked(walk: Walk) -> Trace:
    """Play a walk and return what ran. Raises AssertionError where it does not come to its end, or passes a stop by."""
    trace = Trace(walk.stops)
    walk.play(trace)
    stops = {(file, function) for file, functions in walk.stops.items() for function in functions}
    assert trace.reached == stops, f"{walk.heading}: not reached: {sorted(stops - trace.reached)}"
    return trace


def to_read(walk: Walk, trace: Trace) -> list[str]:
    return sorted({*trace.counted, *walk.not_played})


def figure(walk: Walk, trace: Trace) -> str:
    return f"{len(to_read(walk, trace))} (something runs in {len(trace.entered)})"


def figures() -> list[tuple[str, str]]:
    """One row for each walk."""
    return [(f"files to read: {walk.heading}", figure(walk, walked(walk))) for walk in WALKS]


def main() -> None:
    for walk in WALKS:
        trace = walked(walk)
        print(f"{walk.heading}: {figure(walk, trace)}")
        for file in to_read(walk, trace):
            print(f"  {file}")


if __name__ == "__main__":
    main()
