"""Other clusters: their kubeconfigs, what is kept of what they hold, and that one that misbehaves costs nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from gangline.api import jobkinds, names
from gangline.api.admission.of_jobs.identifiers import prebuilt_workload
from gangline.control.checks.multikueue.clusters import kubeconfigs, remote_cluster, remote_queues, remote_store
from gangline.control.checks.multikueue.clusters.kubeconfigs import KubeconfigError
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.control.checks.multikueue.clusters.remote_queues import RemoteQueues
from gangline.control.checks.multikueue.clusters.remote_store import RemoteStore
from gangline.jobs import on_other_cluster
from gangline.kube import resources as kube
from gangline.kube.config import Login
from gangline.kube.errors import ApiError, Unavailable
from gangline.kube.reflector import Removed, Upsert

Json = dict[str, Any]


# --- kubeconfigs ------------------------------------------------------------------------------------------------------


def kubeconfig(cluster: Json | None = None, user: Json | None = None, **more: Any) -> Json:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "t", **(user or {})}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        **more,
    }


def refused(document: Any) -> tuple[str, str]:
    with pytest.raises(KubeconfigError) as caught:
        kubeconfigs.login(document if isinstance(document, str) else yaml.safe_dump(document), "worker")
    return caught.value.reason, str(caught.value)


async def test_a_token_and_an_address_are_enough() -> None:
    login = kubeconfigs.login(yaml.safe_dump(kubeconfig()), "worker")
    assert login.server == "https://10.0.0.1:6443"
    assert (await login.headers())["Authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (kubeconfig(user={"tokenFile": "/etc/passwd"}), "tokenFile is not allowed"),
        (kubeconfig({"insecure-skip-tls-verify": True}), "insecure TLS verification is not allowed for cluster c"),
        (kubeconfig({"certificate-authority": "/ca"}), "certificate-authority file paths are not allowed"),
        (kubeconfig({"server": ""}), "server URL is required for cluster c"),
        (kubeconfig({"server": "https://under_score"}), "untrusted server endpoint"),
        (kubeconfig({"server": "http://10.0.0.1"}), "untrusted server endpoint"),
        (kubeconfig(user={"username": "a", "password": "b"}), "basic auth is not allowed"),
        (kubeconfig(user={"exec": {"command": "sh"}}), "exec plugins are not allowed"),
        (kubeconfig(user={"auth-provider": {"name": "oidc"}}), "auth providers are not allowed"),
        (kubeconfig(user={"client-key": "/key"}), "client-key file paths are not allowed"),
    ],
)
def test_what_a_kubeconfig_may_not_do(document: Json, words: str) -> None:
    reason, message = refused(document)
    assert reason == "InsecureKubeConfig" and words in message


def test_the_entry_that_is_judged_is_the_one_that_is_used() -> None:
    """The first of a name counts; a harmless one behind it hides nothing."""
    twice = kubeconfig(user={"exec": {"command": "sh"}})
    twice["users"].append({"name": "u", "user": {"token": "t"}})
    assert refused(twice)[1] == "exec plugins are not allowed"
    long = kubeconfig()
    long["clusters"][0]["name"] = long["contexts"][0]["context"]["cluster"] = "c" * 200
    assert kubeconfigs.login(yaml.safe_dump(long), "worker").server == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    "document",
    ["[", "text", "a: " * 50_000, "[" * 5_000, {"clusters": 5}, kubeconfig(users=[None]), kubeconfig(contexts=[])],
)
def test_what_is_no_kubeconfig_is_refused_with_words(document: Any) -> None:
    reason, message = refused(document)
    assert reason in ("BadKubeConfig", "InsecureKubeConfig") and 0 < len(message) < 1000


def test_a_gate_allows_the_rest() -> None:
    text = yaml.safe_dump(kubeconfig({"insecure-skip-tls-verify": True}))
    assert kubeconfigs.login(text, "worker", insecure_allowed=True).tls is not None


def test_a_secret_has_a_key() -> None:
    assert kubeconfigs.of_secret({"kubeconfig": base64.b64encode(b"text").decode()}, "s") == "text"
    for data, words in (({}, 'key "kubeconfig" not found'), ({"kubeconfig": "%"}, "is not text")):
        with pytest.raises(KubeconfigError, match=words):
            kubeconfigs.of_secret(data, "s")


def test_files_are_read_below_one_directory(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.write_text("secret")
    (allowed / "a").write_text("fine")
    (allowed / "link").symlink_to(other)
    assert kubeconfigs.of_path(str(allowed / "a"), checked=True, directory=allowed) == "fine"
    for path in (other, allowed / "link", allowed / ".." / "other", "a", "", allowed / "missing"):
        with pytest.raises(KubeconfigError):
            kubeconfigs.of_path(str(path), checked=True, directory=allowed)
    with pytest.raises(KubeconfigError, match=f"^open {allowed}/missing: no such file or directory$"):
        kubeconfigs.of_path(str(allowed / "missing"), checked=True, directory=allowed)
    with pytest.raises(KubeconfigError, match="is not under"):
        kubeconfigs.of_path(str(other), checked=True, directory=tmp_path / "none")
    assert kubeconfigs.of_path(str(other), checked=False) == "secret"


# --- what is kept -----------------------------------------------------------------------------------------------------


def meta(name: str, uid: str, version: int, **labels: str) -> Json:
    return {"name": name, "namespace": "team", "uid": uid, "resourceVersion": str(version), "labels": labels}


def a_copy(uid: str = "c", version: int = 1, name: str = "wl") -> Json:
    return {"kind": "Workload", "metadata": meta(name, uid, version), "spec": {}, "status": {}}


def a_job(uid: str = "j", version: int = 1, workload: str = "wl") -> Json:
    labels = {names.PREBUILT_WORKLOAD: workload}
    return {"kind": "Job", "metadata": {**meta("train", uid, version), "labels": labels}, "spec": {"suspend": True}}


def shown(store: RemoteStore, resource: kube.Resource, obj: Json) -> None:
    store.sink(resource)(Upsert(store.decode(resource)(obj)))


def test_answers_and_watches_are_put_in_order() -> None:
    changed: list[str] = []
    store = RemoteStore(changed.append)
    store.answered(kube.WORKLOADS, a_copy(version=3))
    shown(store, kube.WORKLOADS, a_copy(version=2))
    copy = store.copy("team/wl")
    assert copy is not None and copy.version == "3" and changed == ["team/wl"]
    store.sink(kube.WORKLOADS)(Removed("team/wl", "another"))
    assert store.copy("team/wl") is not None
    store.gone(kube.WORKLOADS, "team/wl", "c", {"kind": "Workload", **a_copy(version=4)})
    assert store.copy("team/wl") is not None, "it only began to go"
    store.gone(kube.WORKLOADS, "team/wl", "c", {"kind": "Status"})
    assert store.copy("team/wl") is None and len(store) == 0


def test_a_job_belongs_to_the_workload_that_it_names() -> None:
    store = RemoteStore(lambda key: None)
    shown(store, kube.JOBS, a_job())
    assert store.jobs_of("team/wl") and store.workloads() == {"team/wl"}
    assert store.kind_of_jobs("team/wl") == kube.JOBS
    shown(store, kube.JOBS, a_job(version=2, workload="other"))
    assert not store.jobs_of("team/wl") and store.jobs_of("team/other") == {"train": store.job(kube.JOBS, "team/train")}
    store.sink(kube.JOBS)(Removed("team/train", "j"))
    assert store.workloads() == set()


def test_the_end_of_a_job_outlives_it() -> None:
    made = on_other_cluster(kube.JOBS)
    assert made is not None
    store = RemoteStore(lambda key: None, [made])
    done = {"conditions": [{"type": "Complete", "status": "True"}]}

    shown(store, kube.JOBS, a_job())
    store.sink(kube.JOBS)(Removed("team/train", "j", {**a_job(version=2), "status": {"active": 1}}))
    assert not store.ended_jobs_of("team/wl"), "it was deleted before its end"

    shown(store, kube.JOBS, a_job())
    store.sink(kube.JOBS)(Removed("team/train", "j", {**a_job(version=2), "status": done}))
    assert store.ended_jobs_of("team/wl")["train"]["status"] == done
    shown(store, kube.JOBS, {**a_job(uid="k", version=3), "status": done})
    assert not store.ended_jobs_of("team/wl"), "another one was sent"
    store.sink(kube.JOBS)(Removed("team/train", "k"))
    assert store.ended_jobs_of("team/wl"), "only a list shows that it has gone"

    shown(store, kube.JOBS, {**a_job(version=4), "status": done})
    store.gone(kube.JOBS, "team/train", "j", {"kind": "Status"})
    assert not store.ended_jobs_of("team/wl"), "it was deleted from here"


def test_no_more_ends_are_kept_than_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store, "MOST_ENDED", 2)
    made = on_other_cluster(kube.JOBS)
    assert made is not None
    store = RemoteStore(lambda key: None, [made])
    for name in ("a", "b", "c"):
        done = {"conditions": [{"type": "Failed", "status": "True"}]}
        shown(store, kube.JOBS, {**a_job(uid=name, workload=name), "status": done})
        store.sink(kube.JOBS)(Removed("team/train", name))
    assert [bool(store.ended_jobs_of(f"team/{name}")) for name in ("a", "b", "c")] == [False, True, True]


def test_each_namespace_has_room_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store, "MOST_OBJECTS", 40)
    known = {"team/wl", *(f"loud/wl{number}" for number in range(100))}
    store = RemoteStore(lambda key: None, is_known=known.__contains__)
    shown(store, kube.WORKLOADS, a_copy())
    shown(store, kube.JOBS, a_job())
    for number in range(200):
        copy = a_copy(uid=f"forged{number}", name=f"forged{number}")
        copy["metadata"]["namespace"] = "loud"
        shown(store, kube.WORKLOADS, copy)
    assert len(store) == 2 + 10, "of Workloads that are not here, a quarter"
    for number in range(100):
        copy = a_copy(uid=f"wl{number}", name=f"wl{number}")
        copy["metadata"]["namespace"] = "loud"
        shown(store, kube.WORKLOADS, copy)
    assert len(store) == 2 + 40
    assert store.copy("loud/wl99") is not None and store.copy("loud/wl0") is None
    assert store.copy("team/wl") is not None and store.jobs_of("team/wl")
    for number in range(100):
        store.sink(kube.WORKLOADS)(Removed(f"loud/wl{number}", f"wl{number}"))
    assert len(store) == 2
    copy = a_copy(uid="again", version=9, name="wl99")
    copy["metadata"]["namespace"] = "loud"
    shown(store, kube.WORKLOADS, copy)
    assert store.copy("loud/wl99") is not None


def test_of_a_job_only_what_is_looked_at_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store, "MOST_BYTES", 64_000)
    store = RemoteStore(lambda key: None)
    large = {f"example.com/{number}": "x" * 1000 for number in range(250)}
    for number in range(1000):
        job = a_job(uid=f"j{number}", workload=f"wl{number}")
        job["metadata"] |= {"name": f"j{number}", "annotations": large | {names.ELASTIC: "x" * 100_000}}
        shown(store, kube.JOBS, job)
    kept = [store.job(kube.JOBS, f"team/j{number}") for number in range(1000)]
    assert sum(len(orjson.dumps(job)) for job in kept if job is not None) < 64_000
    assert kept[999] is not None and prebuilt_workload(kept[999]) == "wl999"


def test_nobody_makes_another_forget_how_a_job_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store, "MOST_ENDED", 10)
    made = on_other_cluster(kube.JOBS)
    assert made is not None
    store = RemoteStore(lambda key: None, [made])
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    for namespace, number in (("team", 0), *(("loud", number) for number in range(100))):
        job = {**a_job(uid=f"j{number}", workload=f"wl{number}"), "status": done}
        job["metadata"] |= {"namespace": namespace}
        shown(store, kube.JOBS, job)
        store.sink(kube.JOBS)(Removed(f"{namespace}/train", f"j{number}"))
    assert store.ended_jobs_of("team/wl0") and store.ended_jobs_of("loud/wl99")
    assert not store.ended_jobs_of("loud/wl0")


def test_queues_of_one_namespace_displace_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_queues, "MOST_QUEUES", 10)
    queues = RemoteQueues(lambda: None)
    row = {"name": "cpu", "nominalQuota": "4"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [row]}]}
    queue = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}}
    queues.sink(kube.CLUSTER_QUEUES)(Upsert(RemoteQueues.decode(queue)))
    for namespace, name in (("team", "lq"), *(("loud", f"lq{number}") for number in range(100))):
        local = {"metadata": {"namespace": namespace, "name": name}, "spec": {"clusterQueue": "cq"}}
        queues.sink(kube.LOCAL_QUEUES)(Upsert(RemoteQueues.decode(local)))
    assert queues.quotas_behind(["team/lq"]) == queues.quotas_behind(["loud/lq99", "loud/none"]) == {"cpu": 4000}
    assert queues.quotas_behind(["loud/lq0"]) == {}


async def test_writes_of_each_namespace_have_their_turn(server: Server, cluster: RemoteCluster) -> None:
    await until(cluster, lambda: cluster.connected)
    written: list[str] = []
    over = asyncio.Event()

    def write(namespace: str) -> None:
        async def work(client: Any, store: RemoteStore) -> None:
            await asyncio.sleep(0)
            written.append(namespace)

        cluster.write(namespace, work, lambda error: over.set() if len(written) == 201 else None)

    for _ in range(200):
        write("loud")
    write("quiet")
    async with asyncio.timeout(20):
        await over.wait()
    assert written.index("quiet") <= 2 * remote_cluster.CONCURRENT


def test_it_is_kept_whether_a_job_is_suspended_wherever_its_field_is() -> None:
    kind = next(each for each in jobkinds.BUILT_IN if each.kind == "PyTorchJob")
    made = on_other_cluster(kind.resource)
    assert made is not None
    store = RemoteStore(lambda key: None, [made])
    for held in (True, False):
        spec = {"runPolicy": {"suspend": held}, "pytorchReplicaSpecs": {"Worker": {"template": {}}}}
        shown(store, kind.resource, {**a_job(version=2 - held), "spec": spec})
        kept = store.job(kind.resource, "team/train")
        assert kept is not None and kept["spec"] == {"runPolicy": {"suspend": held}}


# --- a connection -----------------------------------------------------------------------------------------------------


class Server:
    """A worker's API server: lists are as `behave` answers them."""

    def __init__(self) -> None:
        self.behave: Callable[[web.Request], Any] = self.empty
        self.hang = False
        self.server: TestServer | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        self.server = TestServer(app)
        await self.server.start_server()

    def login(self) -> Login:
        assert self.server is not None
        return Login(str(self.server.make_url("")).rstrip("/"))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.hang:
            await asyncio.sleep(60)
        if request.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.sleep(60)
            return response
        found = self.behave(request)
        return found if isinstance(found, web.StreamResponse) else web.json_response(found)

    @staticmethod
    def empty(request: web.Request) -> Json:
        return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    await found.start()
    yield found
    assert found.server is not None
    await found.server.close()


@pytest.fixture
async def cluster(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RemoteCluster]:
    monkeypatch.setattr(remote_cluster, "PROBE", 0.3)
    monkeypatch.setattr(remote_cluster, "FIRST_PAUSE", 0.05)
    moved = asyncio.Event()

    async def read() -> tuple[str, Callable[[], Login]]:
        return "text", server.login

    found = RemoteCluster(
        "worker",
        "here",
        read,
        kinds=[kind for each in (kube.JOBS, kube.JOB_SETS) if (kind := on_other_cluster(each)) is not None],
        changed=lambda key: None,
        moved=moved.set,
        may_write=lambda: True,
        now=lambda: 1000,
    )
    found.moves = moved  # type: ignore[attr-defined]
    yield found
    await found.close()


async def until(cluster: RemoteCluster, wanted: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not wanted():
            await cluster.moves.wait()  # type: ignore[attr-defined]
            cluster.moves.clear()  # type: ignore[attr-defined]


def inactive(cluster: RemoteCluster) -> str:
    state = cluster.state
    return state.message if state is not None and not state.active else ""


async def test_a_server_that_hangs_is_lost_and_found_again(server: Server, cluster: RemoteCluster) -> None:
    await until(cluster, lambda: cluster.connected)
    server.hang = True
    await until(cluster, lambda: "no answer within" in inactive(cluster))
    assert not cluster.connected and cluster.lost_at == 1000
    results: list[ApiError | None] = []
    done = asyncio.Event()

    async def work(client: Any, store: Any) -> None:
        raise AssertionError("there is nobody to write to")

    cluster.write("team", work, lambda error: (results.append(error), done.set())[0])
    async with asyncio.timeout(5):
        await done.wait()
    assert isinstance(results[0], Unavailable)
    server.hang = False
    await until(cluster, lambda: cluster.connected)


@pytest.mark.parametrize(("reread", "patience"), [(0.05, 900.0), (300.0, 0.2)])
async def test_a_changed_kubeconfig_ends_the_pause_and_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch, reread: float, patience: float
) -> None:
    """Pauses may be long by then; and who gives clusters little time looks more often."""
    monkeypatch.setattr(remote_cluster, "FIRST_PAUSE", 300.0)
    monkeypatch.setattr(remote_cluster, "REREAD", reread)
    monkeypatch.setattr(remote_cluster, "SOONEST_REREAD", 0.05)
    nowhere, moved = Login("http://127.0.0.1:1"), asyncio.Event()
    source = {"kubeconfig": ("wrong", nowhere)}

    async def read() -> tuple[str, Callable[[], Login]]:
        text, login = source["kubeconfig"]
        return text, lambda: login

    found = RemoteCluster(
        "worker",
        "here",
        read,
        kinds=[],
        changed=lambda key: None,
        moved=moved.set,
        may_write=lambda: True,
        now=lambda: 1000,
        patience=patience,
    )
    found.moves = moved  # type: ignore[attr-defined]
    try:
        await until(found, lambda: inactive(found))
        source["kubeconfig"] = ("right", server.login())
        await until(found, lambda: found.connected)
        source["kubeconfig"] = ("wrong again", nowhere)
        await until(found, lambda: inactive(found))
    finally:
        await found.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda request: web.Response(body=b"x" * 5000), "longer than 4096 bytes"),
        (lambda request: web.Response(text="<html>"), "not JSON"),
        (lambda request: {"items": [1]}, ""),
        (lambda request: {**Server.empty(request), "items": [{"metadata": {}}]}, ""),
        (lambda request: web.json_response({"kind": "Status", "code": 401, "message": "who?"}, status=401), "who?"),
    ],
)
async def test_nonsense_makes_the_cluster_inactive(
    server: Server, cluster: RemoteCluster, monkeypatch: pytest.MonkeyPatch, answer: Any, words: str
) -> None:
    monkeypatch.setattr(remote_cluster, "MOST_BYTES", 4096)
    server.behave = answer
    await until(cluster, lambda: inactive(cluster) and words in inactive(cluster))
    assert cluster.state is not None and cluster.state.reason == "ClientConnectionFailed"
    assert len(inactive(cluster)) < 600


async def test_a_kind_that_the_account_may_not_list_is_named_and_keeps_nobody_away(
    server: Server, cluster: RemoteCluster
) -> None:
    """Whether it may is asked before the kind is looked for, so the account of a cluster without the CRD may get this, too."""

    def without_job_sets(request: web.Request) -> Any:
        if "jobsets" in request.path:
            return web.json_response(
                {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403
            )
        return server.empty(request)

    server.behave = without_job_sets
    await until(cluster, lambda: cluster.connected)
    assert cluster.state is not None and cluster.state.active
    assert "its account may not list jobsets.jobset.x-k8s.io" in cluster.state.message
    assert cluster.refuses(kube.JOB_SETS) == "its account may not list jobsets.jobset.x-k8s.io"
    assert cluster.refuses(kube.JOBS) == ""


async def test_a_kind_that_a_cluster_lacks_is_no_fault_of_it(server: Server, cluster: RemoteCluster) -> None:
    def without_job_sets(request: web.Request) -> Any:
        if "jobsets" in request.path:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}, status=404)
        return server.empty(request)

    server.behave = without_job_sets
    await until(cluster, lambda: cluster.connected)
    assert cluster.state == remote_cluster.CONNECTED
    assert cluster.refuses(kube.JOB_SETS) == "jobsets.jobset.x-k8s.io are not served there"


async def test_a_kind_that_is_installed_later_is_seen_and_not_looked_for_before(
    server: Server, cluster: RemoteCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, versions = 0, ["batch/v1"]

    def answer(request: web.Request) -> Any:
        nonlocal lists
        if request.path == "/apis":
            groups = [{"name": "g", "versions": [{"groupVersion": version} for version in versions]}]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        if "jobsets" in request.path and "jobset.x-k8s.io/v1alpha2" not in versions:
            lists += 1
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}, status=404)
        return server.empty(request)

    monkeypatch.setattr(remote_cluster, "ABSENT_RETRY", 0.1)
    server.behave = answer
    await until(cluster, lambda: cluster.connected)
    asked = lists
    await asyncio.sleep(0.5)
    assert lists == asked and cluster.refuses(kube.JOB_SETS)
    versions.append("jobset.x-k8s.io/v1alpha2")
    await until(cluster, lambda: not cluster.refuses(kube.JOB_SETS))


async def test_a_right_that_is_given_later_is_seen(
    server: Server, cluster: RemoteCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = True

    def answer(request: web.Request) -> Any:
        if "jobsets" in request.path and refused:
            return web.json_response(
                {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403
            )
        return server.empty(request)

    monkeypatch.setattr(remote_cluster, "ABSENT_RETRY", 0.1)
    server.behave = answer
    await until(cluster, lambda: cluster.connected)
    assert cluster.refuses(kube.JOB_SETS)
    refused = False
    await until(cluster, lambda: cluster.state == remote_cluster.CONNECTED)
    assert not cluster.refuses(kube.JOB_SETS)


async def test_a_kubeconfig_that_cannot_be_read_is_named() -> None:
    moved = asyncio.Event()

    async def read() -> tuple[str, Callable[[], Login]]:
        raise KubeconfigError("BadKubeConfig", "no such secret")

    found = RemoteCluster(
        "worker",
        "here",
        read,
        kinds=(),
        changed=lambda key: None,
        moved=moved.set,
        may_write=lambda: True,
        now=lambda: 0,
    )
    async with asyncio.timeout(5):
        await moved.wait()
    assert found.state is not None
    assert (found.state.reason, found.state.message) == ("BadKubeConfig", "load client config failed: no such secret")
    await found.close()
