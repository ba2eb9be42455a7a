"""Client, reflector, writer, lease and events on a real API server, which is killed, stopped and restarted meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.conftest import require_control_plane

from gangline.api.read.configuration.manager import LeaseSettings
from gangline.control.process.lease import Elector
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Write
from gangline.control.writes.writer import Writer
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.kube import client as kube
from gangline.kube import config
from gangline.kube.client import ApiClient, ObjectKey, key_of
from gangline.kube.reflector import Event, Reflector, ReflectorGroup, Removed, Upsert
from gangline.kube.resources import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, NODES, PODS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane() -> Iterator[LocalControlPlane]:
    """Of our own, since we kill it."""
    require_control_plane()
    with LocalControlPlane(ControlPlaneOptions()) as plane:
        yield plane


@pytest.fixture
async def client(plane: LocalControlPlane) -> AsyncIterator[ApiClient]:
    async with ApiClient(config.load(plane.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(client: ApiClient) -> str:
    made = await client.create(NAMESPACES, None, {"metadata": {"generateName": "io-"}})
    return made["metadata"]["name"]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_every_verb(client: ApiClient, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, namespace, config_map("a", x="1"))
    assert made["kind"] == "ConfigMap"
    merged = await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"y": "2"}})
    assert merged["data"] == {"x": "1", "y": "2"}
    steps = [{"op": "remove", "path": "/data/x"}]
    assert (await client.patch(CONFIG_MAPS, namespace, "a", steps, kind="json"))["data"] == {"y": "2"}
    applied = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("a", z="3")}
    answer = await client.patch(CONFIG_MAPS, namespace, "a", applied, kind="apply", field_manager="t", force=True)
    assert answer["data"] == {"y": "2", "z": "3"}
    replaced = await client.replace(CONFIG_MAPS, namespace, "a", {**answer, "data": {"only": "this"}})
    assert (await client.get(CONFIG_MAPS, namespace, "a")) == replaced
    dry = await client.create(CONFIG_MAPS, namespace, config_map("dry"), query={"dryRun": "All"})
    assert dry["metadata"]["name"] == "dry"
    with pytest.raises(kube.Conflict):
        await client.delete(CONFIG_MAPS, namespace, "a", uid="another")
    await client.delete(CONFIG_MAPS, namespace, "a", uid=made["metadata"]["uid"], propagation="Background")
    with pytest.raises(kube.NotFound):
        await client.get(CONFIG_MAPS, namespace, "a")


async def test_errors(client: ApiClient, namespace: str) -> None:
    old = await client.create(CONFIG_MAPS, namespace, config_map("a"))
    with pytest.raises(kube.AlreadyExists):
        await client.create(CONFIG_MAPS, namespace, config_map("a"))
    await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "1"}})
    with pytest.raises(kube.Conflict):
        fence = {"resourceVersion": old["metadata"]["resourceVersion"]}
        await client.patch(CONFIG_MAPS, namespace, "a", {"metadata": fence, "data": {"x": "2"}})
    with pytest.raises(kube.Invalid) as caught:
        await client.create(PODS, namespace, {"metadata": {"name": "p"}, "spec": {"containers": []}})
    assert caught.value.causes[0]["field"] == "spec.containers"
    with pytest.raises(kube.NotFound):
        await client.create(CONFIG_MAPS, "nowhere", config_map("a"))


async def test_rights(plane: LocalControlPlane, namespace: str) -> None:
    async with ApiClient(config.load(plane.issue_kubeconfig("nobody"))) as stranger:
        with pytest.raises(kube.Forbidden):
            await stranger.list(CONFIG_MAPS, namespace)


async def test_pages_selectors_and_raw(client: ApiClient, namespace: str) -> None:
    for n in range(12):
        labels = {"parity": "odd" if n % 2 else "even"}
        await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": f"c{n}", "labels": labels}})
    everything = await client.list(CONFIG_MAPS, namespace, limit=5, field_selector="metadata.name!=kube-root-ca.crt")
    assert len(everything.items) == 12
    assert everything.items[0]["kind"] == "ConfigMap" and everything.items[0]["apiVersion"] == "v1"
    assert len((await client.list(CONFIG_MAPS, namespace, label_selector="parity=odd")).items) == 6
    assert (await client.raw("/readyz")) == b"ok"


class View:
    def __init__(self) -> None:
        self.objects: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Upsert(obj):
                self.objects[key_of(obj)] = obj["metadata"]["resourceVersion"]
            case Removed(key):
                del self.objects[key]


async def truth(client: ApiClient, namespace: str) -> dict[str, str]:
    listing = await client.list(CONFIG_MAPS, namespace)
    return {key_of(item): item["metadata"]["resourceVersion"] for item in listing.items}


@contextlib.asynccontextmanager
async def following(reflector: Reflector, view: View) -> AsyncIterator[None]:
    group = ReflectorGroup()
    group.add(reflector, view)
    task = asyncio.create_task(group.run())
    try:
        await asyncio.wait_for(group.wait_synced(), 30)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def churn(writer: Writer, namespace: str, rounds: int, rng: random.Random) -> None:
    """Random creates, patches and deletes of 30 objects through the writer."""
    for n in range(rounds):
        key = ObjectKey(CONFIG_MAPS, namespace, f"c{rng.randrange(30)}")
        quiet = {"on_error": lambda error: None}
        writer.submit(Write(key, "create", config_map(key.name, n=str(n)), **quiet))
        writer.submit(Write(key, "patch", {"data": {"n": str(n)}}, **quiet))
        if rng.random() < 0.3:
            writer.submit(Write(key, "delete", **quiet))
        await asyncio.sleep(0.01)


async def test_reflector_and_writer_survive_restarts_of_the_api_server(
    plane: LocalControlPlane, client: ApiClient, namespace: str
) -> None:
    view, reflector = View(), Reflector(client, CONFIG_MAPS, namespace=namespace)
    async with Writer(client) as writer, following(reflector, view):
        load = asyncio.create_task(churn(writer, namespace, 400, random.Random(1)))
        for down in (0.0, 1.0):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(plane.restart_apiserver, down=down)
        await load
        assert await writer.drain(60)
        last = [f"last{n}" for n in range(10)]
        for name in last:
            writer.submit(Write(ObjectKey(CONFIG_MAPS, namespace, name), "create", config_map(name)))
        await until(lambda: {f"{namespace}/{name}" for name in last} <= set(view.objects))
        expected = await truth(client, namespace)
        await until(lambda: view.objects == expected)
        assert len(expected) > 10
        assert writer.counts["create", "configmaps", "retried"] + writer.counts["patch", "configmaps", "retried"] > 0
        assert reflector.counters.restarts.get("error", 0) > 0
    with pytest.raises(kube.Expired):  # a restarted server remembers nothing so old
        async for _ in client.watch(CONFIG_MAPS, resource_version="1", timeout_seconds=5):
            pass


async def test_reflector_notices_an_api_server_that_hangs(
    plane: LocalControlPlane, client: ApiClient, namespace: str
) -> None:
    view = View()
    reflector = Reflector(client, CONFIG_MAPS, namespace=namespace, silence=2.0)
    async with following(reflector, view):
        await client.create(CONFIG_MAPS, namespace, config_map("a"))
        plane.pause("kube-apiserver")
        try:
            await asyncio.sleep(3.0)
        finally:
            plane.resume("kube-apiserver")
        await client.create(CONFIG_MAPS, namespace, config_map("b"))
        await until(lambda: f"{namespace}/b" in view.objects)
        expected = await truth(client, namespace)
        await until(lambda: view.objects == expected)
        assert reflector.counters.restarts["silent"] >= 1


async def test_a_write_expected_by_the_watchdog_comes(client: ApiClient, namespace: str) -> None:
    view, reflector = View(), Reflector(client, CONFIG_MAPS, namespace=namespace)
    running = asyncio.create_task(reflector.run(view))  # without a group, which would check each second
    try:
        await reflector.synced.wait()
        version = ""
        for n in range(20):
            made = await client.patch(
                CONFIG_MAPS,
                namespace,
                "a",
                {"apiVersion": "v1", "kind": "ConfigMap", **config_map("a", n=str(n))},
                kind="apply",
                field_manager="test",
            )
            version = made["metadata"]["resourceVersion"]
            reflector.expect(f"{namespace}/a", version, within=0.0)
        await until(lambda: view.objects.get(f"{namespace}/a") == version)
        assert not reflector.check() and reflector.counters.restarts == {}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_bookmarks_come(client: ApiClient, namespace: str) -> None:
    """A stream whose own objects rest gets bookmarks of where the world has moved: at the latest 2 s before it ends."""
    version = (await client.list(CONFIG_MAPS, namespace)).resource_version
    opened = asyncio.Event()

    async def watch() -> list[str]:
        stream = client.watch(
            CONFIG_MAPS,
            namespace,
            resource_version=version,
            field_selector="metadata.name=nobody",  # the cluster itself puts its root certificate into every namespace
            timeout_seconds=6,
            on_open=opened.set,
        )
        return [event.type async for event in stream]

    watching = asyncio.create_task(watch())
    await opened.wait()
    await client.create(CONFIG_MAPS, "default", {"metadata": {"generateName": "elsewhere-"}})
    assert set(await watching) == {"BOOKMARK"}


async def test_lease_is_taken_renewed_and_handed_over(client: ApiClient, namespace: str) -> None:
    settings = LeaseSettings(namespace, "gangline", lease_duration=20, renew_deadline=15, retry_period=0.3)
    electors = [Elector(client, settings, identity=f"e{n}") for n in range(2)]
    first = asyncio.create_task(electors[0].run())
    await until(electors[0].leading)
    second = asyncio.create_task(electors[1].run())
    renewed = set[str]()
    async with asyncio.timeout(60):
        while len(renewed) < 5:
            lease = await client.get(LEASES, namespace, "gangline")
            renewed.add(lease["spec"]["renewTime"])
            await asyncio.sleep(0.1)
    assert electors[0].leading() and not electors[1].leading()
    assert lease["spec"]["holderIdentity"] == "e0"
    electors[0].stop()
    await first
    await until(electors[1].leading, 15.0)  # before the Lease would have run out
    lease = await client.get(LEASES, namespace, "gangline")
    assert lease["spec"]["holderIdentity"] == "e1" and lease["spec"]["leaseTransitions"] == 1
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_events_are_accepted(client: ApiClient, namespace: str) -> None:
    about = await client.create(CONFIG_MAPS, namespace, config_map("a"))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u"}}
    async with Writer(client) as writer:
        recorder = EventRecorder(writer, refresh=0.0)
        for _ in range(3):
            recorder.record(about, "Normal", "Started", "it began")
            assert await writer.drain(10)
        recorder.record(node, "Warning", "Lost", "ü" * 3000)
        assert await writer.drain(10)
        assert (recorder.failed, recorder.written) == (0, 4)
    [event] = (await client.list(EVENTS, namespace, field_selector="reason=Started")).items
    assert event["series"]["count"] == 3
    assert event["regarding"]["uid"] == about["metadata"]["uid"]
    assert len((await client.list(EVENTS, "default", field_selector="reason=Lost")).items) == 1


async def test_cluster_scoped_kinds(client: ApiClient) -> None:
    listing = await client.list(NODES)
    assert listing.resource_version
