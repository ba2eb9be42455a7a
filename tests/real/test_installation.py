"""Gangline installed in a cluster of real nodes: two replicas of each, killed, upgraded and taken back under load, uninstalled.

The tests are one story, in order: the cluster is one, and each test leaves it installed and sound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession, CookieJar
from tests.cluster import harness
from tests.cluster.harness import Api, condition
from tests.controlplane import PATIENCE, Kubectl, eventually
from tests.previous import Previous, previous
from tests.realnodes import PYTHON_IMAGE, python_image, require_real_nodes

from gangline.api import names
from gangline.console.stack import installed, own_image
from gangline.devcluster.building import build
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.nodes import POOL_LABEL
from gangline.devcluster.real.settings import POOL, RealPool
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, NotFound

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("real-nodes"), pytest.mark.timeout(900)]

Json = dict[str, Any]
SYSTEM = names.SYSTEM_NAMESPACE
QUEUE = "lab"
#: what a cluster makes and removes by itself
FLEETING = (
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "componentstatuses",
    "endpointslices.discovery.k8s.io",
)
#: GPUs of the queue; and which of the Jobs that are applied all the time runs: one of so many
QUOTA, RUNS = 16, 20
LONG = "import time; time.sleep(600)"
#: a service account that looks at the dashboard
VIEWER = "looks-at-all"


@dataclass
class Cluster:
    plane: LocalControlPlane
    kubectl: Kubectl
    values: Path
    before: frozenset[str]

    def gangline(self, *arguments: str, of: Previous | None = None) -> str:
        """The output of a command as a user runs it, of this version or a previous one."""
        environment = os.environ | ({"PYTHONPATH": of.python_path} if of else {})
        where = ["--kubeconfig", str(self.plane.kubeconfig)]
        command = [sys.executable, "-m", "gangline.console.cli", *arguments, *where]
        answer = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=200 * PATIENCE,
            check=False,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def objects(self) -> frozenset[str]:
        """The names of all objects of the cluster but fleeting ones."""
        kinds = self.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        listed = self.kubectl.run("get", ",".join(sorted(set(kinds) - set(FLEETING))), "-A", "-o", "json", timeout=60)
        rows = json.loads(listed.stdout)["items"]
        places = ((row["kind"], row["metadata"].get("namespace", ""), row["metadata"]["name"]) for row in rows)
        return frozenset("/".join(place) for place in places)

    def pods(self, component: str) -> list[Json]:
        """The pods of a Deployment that are not on their way out."""
        selector = f"app.kubernetes.io/part-of=gangline,app.kubernetes.io/component={component}"
        found = self.kubectl.json("get", "pods", "-n", SYSTEM, "-l", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def all_ready(self) -> bool:
        pods = [*self.pods("operator"), *self.pods("webhooks")]
        return len(pods) == 4 and all(condition(pod, "Ready") for pod in pods)

    def leader(self) -> str:
        """The pod that holds the Lease; "" while nobody does."""
        lease = self.kubectl.json("get", "lease", "-n", names.KUEUE_NAMESPACE, names.KUEUE_LEASE)
        return (lease["spec"].get("holderIdentity") or "").rpartition("_")[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_real_nodes()
    with LocalControlPlane(ControlPlaneOptions(real=RealPool(2))) as plane:
        assert plane.real is not None
        plane.real.load_image(own_image.archive(print))
        plane.real.load_image(python_image())
        values = tmp_path_factory.mktemp("install") / "values.yaml"
        values.write_text(yaml.safe_dump(installed.chosen()))
        made = Cluster(plane, Kubectl(build.kubectl(), plane.kubeconfig), values, frozenset())
        made.before = made.objects()
        made.gangline("admin", "install", "--yes", "--values", str(values))
        yield made


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    async with harness.connect(cluster.plane.kubeconfig) as connected:
        for manifest in queues():
            await connected.apply(manifest)
        yield connected


def queues() -> list[Json]:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    local = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}  # converted by the webhooks
    return [
        {**head, **harness.flavor("real", {POOL_LABEL: POOL})},
        {**head, **harness.cluster_queue(QUEUE, QUOTA, flavors=["real"])},
        {**local, "metadata": {"name": QUEUE, "namespace": "default"}, "spec": {"clusterQueue": QUEUE}},
    ]


def job(name: str, *, pods: int = 1, code: str = "print('done')", gpus: int = 1) -> Json:
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "args": ["-u", "-c", code],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {names.QUEUE_NAME: QUEUE}},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


@contextlib.asynccontextmanager
async def applying(api: Api, prefix: str) -> AsyncIterator[list[str]]:
    """Jobs are applied one after the other inside the block. Yields a list to which each refusal is added.

    Most of them are for more than the queue has: hundreds of real pods would need more time than all the rest.
    """
    refused: list[str] = []
    applied = 0
    enough = asyncio.Event()

    async def apply() -> None:
        nonlocal applied
        while not enough.is_set():
            try:
                await api.apply(job(f"{prefix}-{applied}", gpus=1 if applied % RUNS == 0 else QUOTA + 1))
            except ApiError as error:
                refused.append(f"{applied}: {error}")
            applied += 1
            await asyncio.sleep(0.1)

    applier = asyncio.ensure_future(apply())
    try:
        yield refused
        assert applied > 20
    finally:
        enough.set()
        await applier  # not cancelled: an apply that was cut off could arrive after the deletions
        for number in range(applied):
            with contextlib.suppress(ApiError):
                await api.client.delete(kube.JOBS, "default", f"{prefix}-{number}", propagation="Background")


async def made(api: Api, manifest: Json) -> None:
    """Creates a Job; one that an earlier run of the test has left goes first."""
    await gone(api, manifest["metadata"]["name"])
    await api.create(manifest)


async def gone(api: Api, name: str) -> None:
    """Deletes a Job, and waits until it is away."""
    with contextlib.suppress(NotFound):
        await api.client.delete(kube.JOBS, "default", name, propagation="Background")

    async def away() -> bool:
        with contextlib.suppress(NotFound):
            await api.get(kube.JOBS, name)
            return False
        return True

    await api.until(away, f"{name} is away", 60)


async def running(api: Api, name: str) -> dict[str, str]:
    """Waits until all pods of the job run. Returns their uids and nodes."""

    async def found() -> dict[str, str] | None:
        pods = await api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={name}")
        wanted = (await api.get(kube.JOBS, name))["spec"]["parallelism"]
        if len(pods) != wanted or any(pod["status"].get("phase") != "Running" for pod in pods):
            return None
        return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}

    return await api.until(found, f"all pods of {name} run", 60)


# --- the story --------------------------------------------------------------------------------------------------------


async def test_two_replicas_of_each_run_on_different_nodes_and_a_job_runs(cluster: Cluster, api: Api) -> None:
    for component in ("operator", "webhooks"):
        pods = cluster.pods(component)
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
        assert all(condition(pod, "Ready") for pod in pods)
    assert cluster.leader() in {pod["metadata"]["name"] for pod in cluster.pods("operator")}
    labels = cluster.kubectl.json("get", "namespace", SYSTEM)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"

    await made(api, job("first", pods=2, gpus=8))  # nobody suspends it but the webhook
    await api.finished("first")
    assert "done" in cluster.kubectl("logs", "job/first")
    assert "Nothing changes." in cluster.gangline("admin", "install", "--yes", "--values", str(cluster.values))


async def test_the_dashboard_is_switched_on_by_one_value_and_its_replicas_share_no_state(
    cluster: Cluster, api: Api
) -> None:
    placed = {"nodeSelector": {POOL_LABEL: POOL}}
    values = cluster.values.with_name("with-dashboard.yaml")
    ui = {"enabled": True, "replicas": 2, "insecureCookies": True, **placed}
    values.write_text(yaml.safe_dump({**yaml.safe_load(cluster.values.read_text()), "ui": ui}))
    await asyncio.to_thread(cluster.gangline, "admin", "install", "--yes", "--values", str(values))
    pods = await asyncio.to_thread(cluster.pods, "ui")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    for pod in pods:
        assert condition(pod, "Ready")
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not any("projected" in volume for volume in pod["spec"]["volumes"]), "no token of its own"

    token = await asyncio.to_thread(token_of_an_administrator, cluster)
    await made(api, job("shown", code=LONG))
    await running(api, "shown")
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        async with forwarded(cluster, "service/gangline-ui", 80) as root:
            async with http.get(root) as answer:
                assert answer.status == 200 and "default-src 'none'" in answer.headers["Content-Security-Policy"]
            async with http.post(
                f"{root}/api/session", json={"token": token}, headers={"X-Gangline-Csrf": "login"}
            ) as answer:
                assert answer.status == 200, await answer.text()
        for pod in pods:  # each replica knows the person by the browser's cookies alone
            async with forwarded(cluster, f"pod/{pod['metadata']['name']}", 8484) as root:
                async with http.get(f"{root}/api/session") as answer:
                    body = await answer.json()
                    assert (answer.status, body["user"]) == (200, f"system:serviceaccount:default:{VIEWER}"), body
                async with http.get(f"{root}/api/live") as answer, asyncio.timeout(60):
                    while not (line := await answer.content.readline()).startswith(b"data: "):
                        assert line, "the stream ended"
                rows = json.loads(line[6:])["rows"]["jobs"].values()
                assert "shown" in {row["jobName"] for row in rows}
    await gone(api, "shown")
    await asyncio.to_thread(cluster.gangline, "admin", "install", "--yes", "--values", str(cluster.values))
    assert await asyncio.to_thread(eventually, lambda: not cluster.pods("ui"), 60)
    assert "gangline-ui" not in cluster.kubectl("get", "deployments,services", "-n", SYSTEM, "-o", "name")


#: seconds of the clock that a loop of STEPS takes where containers become ready before their probes restart them; on a machine of
#: usual speed, beside other tests, it takes half of that
FAST_ENOUGH, STEPS = 0.9, 3_000_000


@pytest.fixture
def fast_enough() -> None:
    """Skips the test on a machine where containers that start are restarted by their probes: nothing would ever be ready."""
    took: list[float] = []
    for _ in range(3):
        began, total = time.perf_counter(), 0
        for number in range(STEPS):
            total += number
        took.append(time.perf_counter() - began)
    if statistics.median(took) > FAST_ENOUGH:
        pytest.skip(f"the machine is too slow now: {STEPS:,} steps take {statistics.median(took):.1f} s")


@pytest.mark.usefixtures("fast_enough")
async def test_another_replica_leads_when_the_leader_is_killed(cluster: Cluster, api: Api) -> None:
    leader = cluster.leader()
    os.kill(process_of(leader), signal.SIGKILL)
    assert await asyncio.to_thread(eventually, lambda: cluster.leader() not in ("", leader), 40)
    await made(api, job("after-the-kill"))
    await api.finished("after-the-kill")
    assert await asyncio.to_thread(eventually, cluster.all_ready, 60)


@pytest.mark.usefixtures("fast_enough")
async def test_no_apply_is_refused_when_a_webhook_replica_goes(cluster: Cluster, api: Api) -> None:
    async with applying(api, "steady") as refused:
        await asyncio.sleep(1)
        cluster.kubectl("delete", "pod", "-n", SYSTEM, cluster.pods("webhooks")[0]["metadata"]["name"], "--wait=false")
        assert await asyncio.to_thread(eventually, cluster.all_ready, 60)
        await asyncio.sleep(1)
    assert refused == []


@pytest.mark.usefixtures("fast_enough")
async def test_a_gang_runs_on_through_an_upgrade_and_back(cluster: Cluster, api: Api) -> None:
    before = await asyncio.to_thread(previous)
    assert cluster.plane.real is not None
    cluster.plane.real.load_image(before.archive)
    await made(api, job("gang", pods=2, code=LONG, gpus=6))
    pods = await running(api, "gang")
    workload = await api.workload_of("gang")
    assert workload is not None

    values = ("--yes", "--values", str(cluster.values))
    async with applying(api, "meanwhile") as refused:
        # the spelling that commits before `gangline admin` know too
        await asyncio.to_thread(cluster.gangline, "upgrade", *values, "--image", before.reference, of=before)
        assert {image_of(pod) for pod in cluster.pods("operator")} == {before.reference}
        await asyncio.to_thread(cluster.gangline, "admin", "upgrade", *values)
        assert {image_of(pod) for pod in cluster.pods("operator")} == {own_image.REFERENCE}
    assert refused == []
    assert await running(api, "gang") == pods
    after = await api.workload_of("gang")
    assert after is not None and after["metadata"]["uid"] == workload["metadata"]["uid"]
    assert condition(after, "Admitted") and not condition(after, "Evicted")
    await made(api, job("after-the-upgrade"))
    await api.finished("after-the-upgrade")
    await gone(api, "gang")


async def test_an_uninstallation_keeps_the_objects_unless_all_is_to_go(cluster: Cluster, api: Api) -> None:
    await made(api, job("outlives", code=LONG))
    pods = await running(api, "outlives")
    await asyncio.to_thread(cluster.gangline, "admin", "uninstall", "--yes")
    assert await running(api, "outlives") == pods
    path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/default/localqueues/{QUEUE}"
    old = json.loads(cluster.kubectl("get", "--raw", path))
    assert old["spec"]["clusterQueue"] == QUEUE
    await made(
        api, {**job("unqueued"), "metadata": {"name": "unqueued", "namespace": "default"}}
    )  # no webhook is asked
    for name in ("outlives", "unqueued", "first", "after-the-kill", "after-the-upgrade"):
        await gone(api, name)

    await asyncio.to_thread(cluster.gangline, "admin", "uninstall", "--all", "--yes")
    cluster.kubectl("delete", f"clusterrolebinding/{VIEWER}", "--ignore-not-found")
    cluster.kubectl("delete", "serviceaccount", VIEWER, "-n", "default", "--ignore-not-found")
    left = lambda: cluster.objects() - cluster.before  # noqa: E731
    assert await asyncio.to_thread(eventually, lambda: not left(), 60), sorted(left())
    assert cluster.before - cluster.objects() == frozenset()


# --- parts ------------------------------------------------------------------------------------------------------------


def token_of_an_administrator(cluster: Cluster) -> str:
    """A token with which somebody signs in to the dashboard who sees all queues."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": VIEWER},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "kueue-batch-admin-role",
        },
        "subjects": [{"kind": "ServiceAccount", "name": VIEWER, "namespace": "default"}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": VIEWER, "namespace": "default"}}
    cluster.kubectl.apply(account, binding)
    return cluster.kubectl("create", "token", VIEWER, "-n", "default").strip()


@contextlib.asynccontextmanager
async def forwarded(cluster: Cluster, what: str, port: int) -> AsyncIterator[str]:
    """`kubectl port-forward` inside the block, which gets the URL."""
    command = [
        build.kubectl(),
        "port-forward",
        "-n",
        SYSTEM,
        what,
        f":{port}",
        "--kubeconfig",
        cluster.plane.kubeconfig,
    ]
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        assert "Forwarding from 127.0.0.1:" in line, line
        yield f"http://localhost:{line.split('127.0.0.1:')[1].split(' ')[0]}"
    finally:
        process.terminate()
        await process.wait()


def image_of(pod: Json) -> str:
    return pod["spec"]["containers"][0]["image"]


def process_of(pod: str) -> int:
    """The process of an operator pod, as this machine sees it: real nodes have namespaces, not machines, of their own."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and f"POD_NAME={pod}".encode() in (process / "environ").read_bytes().split(b"\0"):
                return int(process.name)
    raise AssertionError(f"pod {pod} has no process on this machine; {time.ctime()}")
