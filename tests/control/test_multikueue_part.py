"""The part that sends workloads to other clusters: when it looks, where it writes, and what it does with answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from tests.context import a_context
from tests.control.test_multikueue import ADMITTED, job, row, workload
from tests.jobs.plain_pods import a_pod, gang

from gangline import jobs
from gangline.api import names
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.read import configuration
from gangline.api.read.configuration.multikueue import MultiKueueSettings as Settings
from gangline.control.checks.multikueue.clusters import clusters as clusters_module
from gangline.control.checks.multikueue.clusters.kubeconfigs import KubeconfigError
from gangline.control.checks.multikueue.clusters.remote_cluster import CONNECTED, ConnectionState
from gangline.control.checks.multikueue.clusters.remote_store import RemoteStore
from gangline.control.checks.multikueue.multikueue import MultiKueue
from gangline.control.feed import watched_kinds
from gangline.control.feed.mirror import Mirror
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.kinds.group_index import GroupIndex
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts import attempts
from gangline.control.parts.messages import Messages
from gangline.control.writes.outgoing import Write
from gangline.jobs import on_other_cluster
from gangline.jobs.serving import BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Forbidden, Invalid, NotFound
from gangline.kube.reflector import Upsert
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import JobObject, PodObject, Stored, WorkloadObject, view

KEY = "team/wl"
METRICS = ("multikueue_workloads_dispatched_total", "multikueue_workloads_admitted_total")
START = 1_800_000_000_000


class Worker:
    """In place of a connection: keeps the writes until the test answers them."""

    made: dict[str, Worker] = {}  # noqa: RUF012

    def __init__(
        self, name: str, origin: str, read: Any, *, changed: Callable[[str], None], kinds: Any, is_known: Any, **_: Any
    ) -> None:
        self.store = RemoteStore(changed, kinds, is_known=is_known)
        self.connected, self.lost_at = True, 0
        self.state: ConnectionState | None = CONNECTED
        self.sent: list[tuple[Any, Callable[[ApiError | None], None]]] = []
        self.calls: list[str] = []
        self.closed = False
        #: a field of the spec that its API server does not know, by kind
        self.dropped: dict[Resource, str] = {}
        Worker.made[name] = self

    def write(self, namespace: str, work: Any, done: Callable[[ApiError | None], None]) -> None:
        self.sent.append((work, done))

    def look_again(self) -> None:
        pass

    def refuses(self, resource: Resource) -> str:
        return ""

    async def close(self) -> None:
        self.closed = True

    async def carry_out(self) -> list[str]:
        """All writes succeed."""
        sent, self.sent = self.sent, []
        for work, done in sent:
            try:
                await work(self, self.store)
            except ApiError as error:
                done(error)
            else:
                done(None)
        calls, self.calls = self.calls, []
        return calls

    # as ApiClient

    async def create(self, resource: Resource, namespace: str, body: Json, query: Json = {}, **_: Any) -> Json:  # noqa: B006
        self.calls.append(f"create {resource.kind}")
        if lost := self.dropped.get(resource, ""):
            if query.get("fieldValidation") == "Strict":
                raise Invalid(400, "BadRequest", f'strict decoding error: unknown field "spec.{lost}"')
            body = {**body, "spec": {name: value for name, value in body["spec"].items() if name != lost}}
        meta = {**body["metadata"], "uid": f"there-{resource.kind}", "resourceVersion": "5"}
        return {**body, "metadata": meta, "status": {}}

    async def delete(self, resource: Resource, namespace: str, name: str, **_: Any) -> Json:
        self.calls.append(f"delete {resource.kind}")
        return {"kind": "Status"}


class Room:
    """A Workload with quota behind the check; writes here succeed at once."""

    def __init__(self, settings: Settings | None = None, *frameworks: str) -> None:
        self.version = 0
        self.submitted: list[Write] = []
        self.events: list[str] = []
        self.slots: list[str] = []
        self.metrics = Metrics()
        self.messages = Messages()
        managed = configuration.load({"integrations": {"frameworks": ["batch/job", *frameworks]}}).jobs
        self.mirror = Mirror(lambda change: None, messages=self.messages, managed=managed)
        self.groups = GroupIndex(self.mirror)
        self.part = MultiKueue(
            a_context(
                client=cast(Any, None),
                mirror=self.mirror,
                writes=cast(Any, self),
                writer=cast(Any, self),
                recorder=cast(Any, self),
                metrics=self.metrics,
                wake=lambda: None,
                now=lambda: START,
                quarantine=Quarantine(lambda subject, obj, what: pytest.fail(what)),
            ),
            settings or Settings(gc_interval=60),
            self.groups,
        )
        parameters = {"apiGroup": names.GROUP, "kind": "MultiKueueConfig", "name": "all"}
        self.put(kube.MULTI_KUEUE_CONFIGS, {"metadata": {"name": "all"}, "spec": {"clusters": ["a", "b"]}})
        self.put(
            kube.ADMISSION_CHECKS,
            {"metadata": {"name": "elsewhere"}, "spec": {"controllerName": CONTROLLER, "parameters": parameters}},
        )
        for name in ("a", "b"):
            source = {"clusterSource": {"kubeConfig": {"location": name}}}
            self.put(kube.MULTI_KUEUE_CLUSTERS, {"metadata": {"name": name}, "spec": source})
        self.put(kube.JOBS, job())
        self.put(kube.WORKLOADS, owned(workload()))

    def put(self, resource: Resource, obj: Json) -> Stored:
        self.version += 1
        meta = {"uid": f"u{self.version}", **obj["metadata"], "resourceVersion": str(self.version)}
        made = {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
        stored = view(resource, made)
        self.mirror.upsert(resource, stored)
        return stored

    def act(self, now: int = START) -> None:
        self.part.act(now)

    def status(self) -> Json:
        return (self.mirror.get(kube.WORKLOADS, KEY) or {})["status"]

    # as Writes, Writer and EventRecorder

    def may_write(self) -> bool:
        return True

    def submit(self, write: Write) -> None:
        self.submitted.append(write)

    def in_doubt(self, *_: object) -> bool:
        return False

    def expected(self, error: ApiError) -> bool:
        return False

    def send(self, key: ObjectKey, verb: str, body: Json, *, done: Any = None, **_: Any) -> None:
        raw = self.mirror.get(key.resource, key.text) or {}
        answer = self.put(key.resource, {**raw, "status": {**raw["status"], **body["status"]}})
        if done is not None:
            done(answer)

    def change(self, workload: str, slot: str, change: Any, *, done: Any, **_: Any) -> None:
        raw = self.mirror.get(kube.WORKLOADS, workload) or {}
        status = {**raw["status"], "admissionChecks": [dict(each) for each in raw["status"]["admissionChecks"]]}
        change(status, START)
        self.slots.append(slot)
        done(self.put(kube.WORKLOADS, {**raw, "status": status}))

    def record(self, obj: Json, kind: str, reason: str, note: str, action: str = "") -> None:
        self.events.append(note)


def owned(workload: Json) -> WorkloadObject:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
    return WorkloadObject({**workload, "metadata": {**workload["metadata"], "ownerReferences": [ref]}})


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    monkeypatch.setattr(clusters_module, "RemoteCluster", Worker)
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.0)
    Worker.made = {}
    found = Room()
    found.part.lead()
    yield found
    await found.part.close()
    assert all(worker.closed for worker in Worker.made.values())


async def test_from_the_nomination_to_the_cluster_that_runs_it(room: Room) -> None:
    room.act()
    assert [condition_of_cluster(room, name) for name in ("a", "b")] == ["Connected", "Connected"]
    room.act()
    assert room.status()["nominatedClusterNames"] == ["a", "b"]
    a, b = Worker.made["a"], Worker.made["b"]
    assert (await a.carry_out(), await b.carry_out()) == (["create Workload"], ["create Workload"])
    room.act()
    assert not a.sent, "the copies are there"
    copy = {
        **owned(workload(ADMITTED)),
        "metadata": {**workload()["metadata"], "uid": "there-Workload", "resourceVersion": "6"},
    }
    b.store.sink(kube.WORKLOADS)(Upsert(b.store.decode(kube.WORKLOADS)(copy)))
    room.act()
    assert (await a.carry_out(), await b.carry_out()) == (["delete Workload"], ["create Job"])
    for _ in range(3):
        room.act()
    status = room.status()
    assert (status["clusterName"], status["admissionChecks"][0]["state"]) == ("b", "Ready")
    assert room.events == ['The workload was admitted on "b"']
    series = {name: len(room.metrics.kueue._families[name].texts("cq")) for name in METRICS}
    assert series == dict(zip(METRICS, (2, 1), strict=True))
    room.mirror.remove(kube.WORKLOADS, KEY)
    room.act()
    assert await b.carry_out() == ["delete Job", "delete Workload"]
    assert not a.sent


async def test_the_end_is_written_beside_what_the_plan_of_the_job_writes(room: Room) -> None:
    """A change in the slot of another part would be replaced, and its answer never come."""
    room.act()
    ended = owned(workload(ADMITTED, {**ADMITTED, "type": names.FINISHED, "reason": "Succeeded"}))
    copy = {**ended, "metadata": {**ended["metadata"], "resourceVersion": "6"}}
    a = Worker.made["a"]
    a.store.sink(kube.WORKLOADS)(Upsert(a.store.decode(kube.WORKLOADS)(copy)))
    room.act()
    assert any(row["type"] == names.FINISHED for row in room.status()["conditions"])
    assert set(room.slots) == {"multikueue"}


async def test_a_cluster_that_refuses_or_hangs_stops_no_other(room: Room) -> None:
    room.act()
    room.act()
    a, b = Worker.made["a"], Worker.made["b"]
    a.sent.pop()[1](Forbidden(403, "Forbidden", "exceeded quota"))
    assert room.events == ['Cluster "a": exceeded quota']
    room.act()
    assert len(b.sent) == 1, "its write hangs, and is not sent twice"


async def test_a_cluster_that_would_drop_a_field_of_the_job_does_not_run_it(room: Room) -> None:
    room.act()
    room.act()
    a = Worker.made["a"]
    a.dropped = {kube.JOBS: "template"}
    await a.carry_out()
    copy = {**owned(workload(ADMITTED)), "metadata": {**workload()["metadata"], "uid": "there", "resourceVersion": "6"}}
    a.store.sink(kube.WORKLOADS)(Upsert(a.store.decode(kube.WORKLOADS)(copy)))
    room.act()
    assert await a.carry_out() == ["create Job"]
    assert room.events == ['Cluster "a": strict decoding error: unknown field "spec.template"']
    assert not a.store.jobs_of(KEY)
    assert room.status()["admissionChecks"][0]["state"] == "Pending"


async def test_a_cluster_that_keeps_another_workload_is_asked_less_and_less(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 60.0)
    loop = asyncio.get_running_loop()

    def call_later(seconds: float, work: Callable[..., None], *args: Any) -> None:
        pauses.append(seconds)
        loop.call_soon(work, *args)

    monkeypatch.setattr(loop, "call_later", call_later)
    room.act()
    a = Worker.made["a"]
    a.dropped = {kube.WORKLOADS: "podSets"}
    for _ in range(20):
        room.act()
        await a.carry_out()
        await asyncio.sleep(0)
    assert pauses[:5] == [1, 2, 4, 8, 16]
    assert 'Cluster "a" holds another specification' in room.events[0]


async def test_copies_of_nobody_are_looked_for_at_intervals(room: Room) -> None:
    room.mirror.remove(kube.WORKLOADS, KEY)
    room.act()
    stray = {"metadata": {"name": "gone", "namespace": "team", "uid": "x", "resourceVersion": "3"}, "spec": {}}
    a = Worker.made["a"]
    a.store.sink(kube.WORKLOADS)(Upsert(a.store.decode(kube.WORKLOADS)(stray)))
    room.act(START + 59_000)
    assert not a.sent
    assert room.part.due == START + 60_000
    room.act(START + 60_000)
    assert len(a.sent) == 1
    assert await a.carry_out() == ["delete Workload"]


async def test_a_workload_waits_for_its_alarm_and_no_longer(room: Room) -> None:
    ready = owned(workload(check=row("Ready"), clusterName="a"))
    room.act()
    Worker.made["a"].connected, Worker.made["a"].lost_at = False, START
    room.put(kube.WORKLOADS, ready)
    room.act()
    assert room.part.due == START + 60_000, "the next search for copies comes first"
    room.act(START + 899_000)
    assert room.status()["admissionChecks"][0]["state"] == "Ready"
    room.act(START + 900_000)
    assert room.status()["admissionChecks"][0]["message"].startswith("Admitting remote lost")


async def test_a_cluster_that_is_removed_is_left(room: Room) -> None:
    room.act()
    room.mirror.remove(kube.MULTI_KUEUE_CLUSTERS, "a")
    room.part.observe(kube.MULTI_KUEUE_CLUSTERS, Upsert({}))
    room.act()
    await room.part.close()
    assert Worker.made["a"].closed


@pytest.mark.usefixtures("room")
async def test_a_custom_resource_of_another_controller_is_sent_and_mirrored() -> None:
    """Its controller has made its Workload; the change of its job is seen though no job of it is planned here."""
    resource = Resource("example.com", "v1", "runs", kind="Run")
    jobs.declare([], sent=[resource])
    try:
        other = Room(Settings(external=(resource,)))
        other.part.lead()
        assert resource in other.part.kinds and resource in watched_kinds.resources()
        assert resource in watched_kinds.optional()
        ref = {"apiVersion": "example.com/v1", "kind": "Run", "name": "train", "uid": "run", "controller": True}
        ready = workload(ADMITTED, check=row("Ready"), clusterName="b")
        other.put(kube.WORKLOADS, {**ready, "metadata": {**ready["metadata"], "ownerReferences": [ref]}})
        other.act()
        b = Worker.made["b"]
        copy = {**ready, "metadata": {**ready["metadata"], "uid": "there", "resourceVersion": "6"}}
        b.store.sink(kube.WORKLOADS)(Upsert(b.store.decode(kube.WORKLOADS)(copy)))
        other.act()
        assert not b.sent, "there is no job to send yet"
        meta = {"name": "train", "namespace": "team", "uid": "run"}
        stored = other.put(resource, {"metadata": meta, "spec": {"managedBy": CONTROLLER, "pods": 3}})
        other.part.observe(resource, Upsert(stored))
        other.act()
        assert await b.carry_out() == ["create Run"]
        there = b.store.job(resource, "team/train")
        assert there is not None
        newer = {**there, "metadata": {**there.metadata, "resourceVersion": "9"}, "status": {"phase": "Up"}}
        b.store.sink(resource)(Upsert(JobObject(newer)))
        other.act()
        assert (other.mirror.get(resource, "team/train") or {})["status"] == {"phase": "Up"}
        await other.part.close()
    finally:
        jobs.declare([])


# --- pods, and what has pods that wait --------------------------------------------------------------------------------


def group_workload(*conditions: Json, **status: Any) -> WorkloadObject:
    refs = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"} for name in ("g-0", "g-1")]
    made = workload(*conditions, **status)
    marks = {names.IS_GROUP_WORKLOAD: "true"}
    return WorkloadObject({**made, "metadata": {**made.metadata, "ownerReferences": refs, "annotations": marks}})


@pytest.mark.usefixtures("room")
async def test_a_pod_group_is_sent_and_its_pods_show_how_far_they_are() -> None:
    room = Room(None, "pod")
    pods = {each["metadata"]["name"]: each for each in gang("g", "1", "1")}
    stranger = a_pod("stranger", group="g", total=2)
    for each in (*pods.values(), stranger):
        each["metadata"]["namespace"] = "team"
        each["metadata"]["labels"][names.POD_GROUP] = "wl"
        room.groups.upsert(PodObject(each))
    assert kube.PODS in room.part.kinds
    room.part.lead()
    room.act()
    room.put(kube.WORKLOADS, group_workload(check=row("Ready"), clusterName="b"))
    b = Worker.made["b"]
    b.sent.clear()
    copy = {
        **group_workload(ADMITTED),
        "metadata": {**group_workload()["metadata"], "uid": "c", "resourceVersion": "6"},
    }
    b.store.sink(kube.WORKLOADS)(Upsert(b.store.decode(kube.WORKLOADS)(copy)))
    room.act()
    assert await b.carry_out() == ["create Pod", "create Pod"], "and no pod that does not own the Workload"
    there = b.store.job(kube.PODS, "team/g-0")
    assert there is not None and there["metadata"]["labels"][names.PREBUILT_WORKLOAD] == "wl"
    newer = {**there, "metadata": {**there["metadata"], "resourceVersion": "9"}, "status": {"phase": "Running"}}
    b.store.sink(kube.PODS)(Upsert(JobObject(newer)))
    room.act()
    room.act()
    [write] = room.submitted
    assert (write.key.text, write.verb, write.patch) == ("team/g-0", "status", "merge")
    assert write.body == {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}}
    # refused for good: it is tried again after a pause, and the others go on
    assert write.on_error is not None
    write.on_error(Forbidden(403, "Forbidden", "no"))
    assert not room.part.sends(WorkloadObject({"status": {}})) and room.part.sends(room.mirror.workloads[KEY])
    assert room.part.may_run(room.mirror.workloads[KEY])
    await room.part.close()


@pytest.mark.usefixtures("room")
async def test_a_leader_worker_set_is_sent_once_and_goes_with_its_last_workload() -> None:
    room = Room(None, "leaderworkerset.x-k8s.io/leaderworkerset")
    kind = on_other_cluster(kube.LEADER_WORKER_SETS)
    assert kind is not None
    stored = room.put(
        kube.LEADER_WORKER_SETS, {"metadata": {"name": "llm", "namespace": "team", "uid": "l"}, "spec": {"replicas": 2}}
    )
    keys = [f"team/{BY_RESOURCE[kube.LEADER_WORKER_SETS].workload_name(stored, index)}" for index in (0, 1)]

    def made(key: str, *conditions: Json, **status: Any) -> Json:
        ref = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "llm", "uid": "l"}
        body = workload(*conditions, **status)
        return {**body, "metadata": {"name": key.partition("/")[2], "namespace": "team", "ownerReferences": [ref]}}

    room.part.lead()
    room.mirror.remove(kube.WORKLOADS, KEY)
    for key in keys:
        room.put(kube.WORKLOADS, made(key))
    for _ in range(3):
        room.act()
    first, second = ((room.mirror.get(kube.WORKLOADS, key) or {})["status"] for key in keys)
    assert first["nominatedClusterNames"] == ["a", "b"] and "nominatedClusterNames" not in second
    a, b = Worker.made["a"], Worker.made["b"]
    assert await a.carry_out() == await b.carry_out() == ["create Workload"], "only the first one is offered"
    for key in keys:  # both were admitted in b
        room.put(kube.WORKLOADS, made(key, check=row("Ready"), clusterName="b"))
        meta = {"name": key.partition("/")[2], "namespace": "team", "uid": key, "resourceVersion": "6"}
        copy = {**made(key, ADMITTED), "metadata": meta}
        b.store.sink(kube.WORKLOADS)(Upsert(b.store.decode(kube.WORKLOADS)(copy)))
    room.act()
    assert await b.carry_out() == ["create LeaderWorkerSet"], "by one of them"
    room.act()
    assert not b.sent
    room.mirror.remove(kube.WORKLOADS, keys[1])
    room.act()
    assert await b.carry_out() == ["delete Workload"], "the other one still uses it"
    room.mirror.remove(kube.WORKLOADS, keys[0])
    room.mirror.remove(kube.LEADER_WORKER_SETS, "team/llm")
    for _ in range(3):
        room.act()
    assert sorted(await b.carry_out()) == ["delete LeaderWorkerSet", "delete Workload"]
    assert b.store.workloads() == set()
    await room.part.close()


def condition_of_cluster(room: Room, name: str) -> str:
    cluster = room.mirror.get(kube.MULTI_KUEUE_CLUSTERS, name) or {}
    return cluster["status"]["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("source", "reason", "words"),
    [
        (
            {"clusterProfileRef": {"name": "p"}},
            "MultiKueueClusterProfileFeatureDisabled",
            "^MultiKueueClusterProfile feature gate is disabled$",
        ),
        ({"kubeConfig": {"location": "none"}}, "BadKubeConfig", '^Secret "none" not found$'),
    ],
)
async def test_a_cluster_says_why_it_cannot_be_reached(room: Room, source: Json, reason: str, words: str) -> None:
    async def get(*_: Any, **more: Any) -> Json:
        raise NotFound(404, "NotFound", 'secrets "none" not found')

    room.put(kube.MULTI_KUEUE_CLUSTERS, {"metadata": {"name": "a"}, "spec": {"clusterSource": source}})
    room.act()
    clusters = room.part._clusters
    clusters._client = cast(Any, type("Client", (), {"get": staticmethod(get)}))
    with pytest.raises(KubeconfigError, match=words) as caught:
        await clusters._read("a")
    assert caught.value.reason == reason
