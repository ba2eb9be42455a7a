"""What kwok plays: nodes get and stay Ready, fail and recover; pods run, finish, fail and go, on cue."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane import PATIENCE, Kubectl, eventually, require_control_plane

from gangline.api.names import SIMULATED_EXIT_CODE, SIMULATED_RUNTIME, SIMULATED_SHUTDOWN
from gangline.api.read.conditions import millis_of
from gangline.devcluster import nodes
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.nodes import EqualNodes, NodeTaint
from gangline.kube import config
from gangline.kube.client import ApiClient
from gangline.kube.resources import NODES

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    async with ApiClient(config.load(kubeconfig)) as opened:
        yield opened


@pytest.fixture
async def pool(client: ApiClient) -> AsyncIterator[EqualNodes]:
    """Two nodes of 8 GPUs that only this test's pods go to."""
    name = f"sim-{uuid.uuid4().hex[:6]}"
    made = EqualNodes(name, 2, {GPU: 8}, labels={"zone": "a"}, taints=[NodeTaint("reserved", name)])
    await nodes.create_pools(client, [made])
    yield made
    await nodes.delete_pool(client, name)


Submit = Callable[..., str]


@pytest.fixture
def submit(kubectl: Kubectl, namespace: str, pool: EqualNodes) -> Submit:
    """Creates a Job whose pods carry the given annotations; returns its name."""

    def create(annotations: dict[str, str], parallelism: int = 1, node: str = "", **spec: Any) -> str:
        name = f"job-{uuid.uuid4().hex[:6]}"
        container = {"name": "main", "image": "train", "resources": {"limits": {GPU: "2"}}}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "nodeSelector": {nodes.POOL_LABEL: pool.name} | ({HOSTNAME: node} if node else {}),
                "tolerations": [{"key": "reserved", "operator": "Exists"}],
            },
        }
        own = {"parallelism": parallelism, "completions": parallelism, "backoffLimit": 0, "template": template}
        manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**own, **spec}}
        kubectl.apply(manifest, namespace=namespace)
        return name

    return create


@pytest.fixture
def pods(kubectl: Kubectl, namespace: str) -> Callable[[str], list[dict[str, Any]]]:
    return lambda job: kubectl.json("get", "pods", "-n", namespace, "-l", f"job-name={job}")["items"]


@pytest.fixture
def condition(kubectl: Kubectl, namespace: str) -> Callable[[str, str], bool]:
    def holds(job: str, kind: str) -> bool:
        status = kubectl.json("get", "job", job, "-n", namespace)["status"]
        return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions", []))

    return holds


# -- nodes -------------------------------------------------------------------------------------------------------------


async def test_a_pool_is_what_was_asked_for(client: ApiClient, pool: EqualNodes) -> None:
    listing = await client.list(NODES, label_selector=f"{nodes.POOL_LABEL}={pool.name}")
    assert sorted(node["metadata"]["name"] for node in listing.items) == pool.node_names
    for node in listing.items:
        assert nodes.is_ready(node)
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == node["metadata"]["name"]
        assert node["metadata"]["labels"]["zone"] == "a"
        assert node["status"]["allocatable"][GPU] == "8"
        assert node["spec"]["taints"][0]["value"] == pool.name
    again = await nodes.create_pools(client, [pool])
    assert again == pool.node_names, "creating a pool twice changes nothing"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [(("Bad_Name", 1), "EqualNodes.name"), (("", 1), "EqualNodes.name"), (("a", -1), "EqualNodes.count")],
)
def test_a_bad_pool_is_refused(arguments: tuple[str, int], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        EqualNodes(*arguments)


async def test_a_failed_node_is_not_ready_until_it_recovers(client: ApiClient, pool: EqualNodes) -> None:
    victim, other = pool.node_names
    await nodes.fail_node(client, victim)
    assert not nodes.is_ready(await client.get(NODES, None, victim))
    with pytest.raises(DevClusterError, match=f"1 nodes are not Ready.*{victim}"):
        await nodes.wait_ready(client, pool.node_names, timeout=0.5)
    assert nodes.is_ready(await client.get(NODES, None, other))
    await nodes.recover_node(client, victim)
    await nodes.wait_ready(client, pool.node_names, timeout=15)


async def test_pods_of_a_failed_node_play_no_further(
    client: ApiClient, pool: EqualNodes, submit: Submit, pods, condition, kubectl: Kubectl, namespace: str
) -> None:
    dead, alive = pool.node_names
    job, other = (
        submit({SIMULATED_RUNTIME: "1h"}, parallelism=2, node=dead),
        submit({SIMULATED_RUNTIME: "1h"}, node=alive),
    )
    assert eventually(lambda: [pod["status"]["phase"] for pod in [*pods(job), *pods(other)]] == ["Running"] * 3)
    await nodes.fail_node(client, dead)
    for each in (job, other):
        over = f"{SIMULATED_RUNTIME}=1s"
        kubectl("annotate", "pods", "-n", namespace, "-l", f"job-name={each}", "--overwrite", over)
    assert eventually(lambda: condition(other, "Complete"))
    assert {pod["status"]["phase"] for pod in pods(job)} == {"Running"}, "their second is over, but they are dead"
    await nodes.recover_node(client, dead)
    assert eventually(lambda: condition(job, "Complete"))


async def test_a_silent_node_is_noticed_by_the_controller_manager() -> None:
    require_control_plane()
    with LocalControlPlane(ControlPlaneOptions(node_lease=4, node_monitor_grace=5, node_monitor_period=1)) as plane:
        async with ApiClient(config.load(plane.kubeconfig)) as client:
            names = await nodes.create_pools(client, [EqualNodes("short", 2, {GPU: 8})])
            await nodes.fail_node(client, names[0], silent=True)
            assert nodes.is_ready(await client.get(NODES, None, names[0]))

            async def ready() -> dict[str, Any]:
                node = await client.get(NODES, None, names[0])
                return next(each for each in node["status"]["conditions"] if each["type"] == "Ready")

            async with asyncio.timeout(30 * PATIENCE):
                while (found := await ready())["status"] == "True":
                    await asyncio.sleep(0.2)
            assert (found["status"], found["reason"]) == ("Unknown", "NodeStatusUnknown")
            assert nodes.is_ready(await client.get(NODES, None, names[1])), "heartbeats keep the other one Ready"
            await nodes.recover_node(client, names[0])
            await nodes.wait_ready(client, names, timeout=15)


async def test_a_new_kwok_takes_over_at_once(
    control_plane: LocalControlPlane, client: ApiClient, pool: EqualNodes, submit: Submit, condition
) -> None:
    control_plane.kill("kwok")
    control_plane.start_component("kwok")
    started = time.monotonic()
    job = submit({SIMULATED_RUNTIME: "100ms"})
    assert eventually(lambda: condition(job, "Complete"), 15)
    # the other one had renewed its leases at most a quarter of that before it was killed
    assert time.monotonic() - started < control_plane.options.node_lease * 3 / 4


# -- pods --------------------------------------------------------------------------------------------------------------


def test_pods_run_for_their_runtime_and_complete(submit: Submit, pods, condition) -> None:
    job = submit({SIMULATED_RUNTIME: "3s"}, parallelism=3)
    assert eventually(lambda: [pod["status"]["phase"] for pod in pods(job)] == ["Running"] * 3)
    assert all(pod["status"]["podIP"] for pod in pods(job))
    assert eventually(lambda: condition(job, "Complete"), 15)
    assert {pod["status"]["phase"] for pod in pods(job)} == {"Succeeded"}
    finished = pods(job)[0]["status"]["containerStatuses"][0]["state"]
    assert finished["terminated"]["exitCode"] == 0
    ran = millis_of(finished["terminated"]["finishedAt"]) - millis_of(finished["terminated"]["startedAt"])
    assert ran >= 2000, "whole seconds are written"
    assert "running" not in finished


def test_pods_without_a_runtime_run_on_until_told_to_fail(
    submit: Submit, pods, condition, kubectl: Kubectl, namespace: str
) -> None:
    job = submit({})
    assert eventually(lambda: [pod["status"]["phase"] for pod in pods(job)] == ["Running"])
    time.sleep(2)
    pod = pods(job)[0]
    assert pod["status"]["phase"] == "Running"
    kubectl("annotate", "pod", pod["metadata"]["name"], "-n", namespace, f"{SIMULATED_EXIT_CODE}=137")
    assert eventually(lambda: condition(job, "Failed"))
    assert pods(job)[0]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_pods_fail_with_the_exit_code_asked_for(submit: Submit, pods, condition) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    job = submit({SIMULATED_RUNTIME: "500ms", SIMULATED_EXIT_CODE: "42"}, podFailurePolicy={"rules": [rule]})
    assert eventually(lambda: condition(job, "Failed"))
    status = pods(job)[0]["status"]
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 42


@pytest.mark.parametrize(("key", "value"), [(SIMULATED_RUNTIME, "soon"), (SIMULATED_EXIT_CODE, "many")])
def test_a_bad_annotation_fails_the_pod_and_says_so(submit: Submit, pods, condition, key: str, value: str) -> None:
    job = submit({key: value})
    assert eventually(lambda: condition(job, "Failed"))
    message = pods(job)[0]["status"]["message"]
    assert key in message
    assert value in message


def test_a_change_of_the_pod_does_not_restart_its_clock(
    submit: Submit, pods, condition, kubectl: Kubectl, namespace: str
) -> None:
    job = submit({SIMULATED_RUNTIME: "4s"})
    assert eventually(lambda: [pod["status"]["phase"] for pod in pods(job)] == ["Running"])
    for touch in range(20):
        time.sleep(1)
        kubectl("annotate", "pods", "-n", namespace, "-l", f"job-name={job}", "--overwrite", f"touched={touch}")
        if condition(job, "Complete"):
            break
    assert condition(job, "Complete"), "its clock began anew each second"


def test_suspending_a_job_removes_its_pods_when_they_have_stopped(
    submit: Submit, pods, kubectl: Kubectl, namespace: str
) -> None:
    job = submit({SIMULATED_SHUTDOWN: "3s"}, podReplacementPolicy="Failed")
    assert eventually(lambda: [pod["status"]["phase"] for pod in pods(job)] == ["Running"])
    kubectl("patch", "job", job, "-n", namespace, "-p", '{"spec":{"suspend":true}}')

    def stopping() -> bool:
        found = pods(job)
        ends = all("deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] == "Running" for pod in found)
        return bool(found) and ends

    assert eventually(stopping), "it takes its time to stop"
    assert eventually(lambda: pods(job) == [], 15)


def test_a_slow_pod_is_gone_after_its_grace_period(submit: Submit, pods, kubectl: Kubectl, namespace: str) -> None:
    job = submit({SIMULATED_SHUTDOWN: "1h"})
    assert eventually(lambda: [pod["status"]["phase"] for pod in pods(job)] == ["Running"])
    kubectl("delete", "job", job, "-n", namespace, "--wait=false", "--cascade=orphan")
    kubectl("delete", "pods", "-n", namespace, "-l", f"job-name={job}", "--grace-period=2", "--wait=false")
    assert eventually(lambda: pods(job) == [], 15)


def test_a_pod_with_a_finalizer_stays_until_it_is_gone(submit: Submit, pods, kubectl: Kubectl, namespace: str) -> None:
    job = submit({})
    assert eventually(lambda: [pod["status"]["phase"] for pod in pods(job)] == ["Running"])
    name = pods(job)[0]["metadata"]["name"]
    held = '{"metadata":{"finalizers":["example.com/hold","batch.kubernetes.io/job-tracking"]}}'
    kubectl("patch", "pod", name, "-n", namespace, "--type=merge", "-p", held)
    kubectl("delete", "job", job, "-n", namespace, "--wait=false")
    assert eventually(lambda: pods(job)[0]["status"]["phase"] == "Failed")
    assert pods(job)[0]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    kubectl("patch", "pod", name, "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')
    assert eventually(lambda: pods(job) == [])


def test_pods_beyond_the_nodes_gpus_wait(submit: Submit, pods) -> None:
    job = submit({}, parallelism=9)  # of 2 GPUs each, on 2 nodes of 8

    def phases() -> list[str]:
        return sorted(pod["status"]["phase"] for pod in pods(job))

    assert eventually(lambda: phases() == ["Pending"] + ["Running"] * 8)
