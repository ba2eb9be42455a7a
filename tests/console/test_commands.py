"""The reading commands on a real API server for an administrator; workloads' statuses are written by hand, no operator runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.controlplane import Kubectl

from gangline.console.cli import main
from gangline.install import kinds
from gangline.kube import config
from gangline.kube.client import ApiClient
from gangline.kube.resources import CLUSTER_QUEUES, EVENTS, GPU_JOBS, JOBS, LOCAL_QUEUES, WORKLOADS

pytestmark = pytest.mark.cluster
GPU = "nvidia.com/gpu"
SHORT = f"couldn't assign flavors to pod set main: insufficient unused quota for {GPU} in flavor a100, 8 more needed"

Run = Callable[..., Awaitable[Result]]


@pytest.fixture(scope="module")
def installed(kubeconfig: Path) -> Path:
    """The kubeconfig of the control plane, with Gangline's kinds on it."""

    async def do() -> None:
        async with ApiClient(config.load(kubeconfig)) as client:
            await kinds.install_kinds(client)

    asyncio.run(do())
    return kubeconfig


@pytest.fixture
async def api(installed: Path):
    async with ApiClient(config.load(installed)) as client:
        yield client


@pytest.fixture
def gangline(installed: Path, namespace: str) -> Run:
    async def run(*arguments: str, ns: str | None = namespace) -> Result:
        where = ["-n", ns] if ns else []
        command = [*arguments, "--kubeconfig", str(installed), *where]
        return await asyncio.to_thread(CliRunner().invoke, main, command)  # a command runs an event loop of its own

    return run


@pytest.fixture
async def queue(api: ApiClient, namespace: str) -> Any:
    """A ClusterQueue of 16 GPUs named as the namespace, behind LocalQueue `gpus`."""
    flavor = {"name": "a100", "resources": [{"name": GPU, "nominalQuota": 16}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}]}
    meta = {"name": namespace}
    await api.create(
        CLUSTER_QUEUES,
        None,
        {"apiVersion": CLUSTER_QUEUES.api_version, "kind": "ClusterQueue", "metadata": meta, "spec": spec},
    )
    status = {
        "conditions": [condition("Active", "True", "Ready", "Can admit new workloads")],
        "flavorsReservation": [{"name": "a100", "resources": [{"name": GPU, "total": 16, "borrowed": 0}]}],
        "pendingWorkloads": 1,
        "admittedWorkloads": 1,
    }
    await api.patch(CLUSTER_QUEUES, None, namespace, {"status": status}, subresource="status")
    local = {
        "apiVersion": LOCAL_QUEUES.api_version,
        "kind": "LocalQueue",
        "metadata": {"name": "gpus"},
        "spec": {"clusterQueue": namespace},
    }
    await api.create(LOCAL_QUEUES, namespace, local)
    yield namespace
    await api.delete(CLUSTER_QUEUES, None, namespace)


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    when = "2026-01-02T03:04:05Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": when}


async def add_workload(api: ApiClient, namespace: str, job: str, status: dict[str, Any], gpus: int = 8) -> None:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: gpus}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job_body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job}}
    # it has to be there: the garbage collector deletes what belongs to nothing
    owner = await api.create(JOBS, namespace, {**job_body, "spec": {"suspend": True, "template": template}})
    body = {
        "apiVersion": WORKLOADS.api_version,
        "kind": "Workload",
        "metadata": {
            "name": f"job-{job}-0f3a1",
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job,
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "queueName": "gpus",
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": template,
                }
            ],
        },
    }
    await api.create(WORKLOADS, namespace, body)
    await api.patch(WORKLOADS, namespace, f"job-{job}-0f3a1", {"status": status}, subresource="status")


@pytest.fixture
async def workloads(api: ApiClient, queue: str) -> None:
    """`waits` is pending, `runs` holds all 16 GPUs, `done` has finished."""
    waiting = [condition("QuotaReserved", "False", "WaitingForQuota", SHORT)]
    await add_workload(api, queue, "waits", {"conditions": waiting})
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [{"name": "main", "count": 1, "flavors": {GPU: "a100"}, "resourceUsage": {GPU: "16"}}],
    }
    holding = [condition(kind, "True", kind, "") for kind in ("QuotaReserved", "Admitted", "PodsReady")]
    await add_workload(api, queue, "runs", {"conditions": holding, "admission": admission}, gpus=16)
    await add_workload(api, queue, "done", {"conditions": [condition("Finished", "True", "Succeeded", "Job finished")]})


async def test_queue_lists_what_runs_and_what_waits(gangline: Run, queue: str, workloads: None):
    result = await gangline("queue")
    assert result.exit_code == 0, result.output
    header, runs, waits = result.stdout.splitlines()
    assert header.split()[:5] == ["NAMESPACE", "NAME", "KIND", "QUEUE", "GPUS"]
    assert runs.split()[1:7] == ["runs", "Job", "gpus", "16", "0", "Running"]
    assert waits.split()[1:8] == ["waits", "Job", "gpus", "8", "0", "Pending", "1"]
    assert waits.endswith("WaitingForQuota: a100: 8 more GPUs needed")
    assert result.stderr.startswith("(no operator serves its answers on this cluster")
    assert "done" not in result.output


async def test_queue_shows_what_ended_when_asked(gangline: Run, workloads: None):
    assert "Succeeded" in (await gangline("queue", "--finished")).output


async def test_queue_as_json_is_for_scripts(gangline: Run, queue: str, workloads: None):
    shown = json.loads((await gangline("queue", "-o", "json")).stdout)
    by_job = {item["jobName"]: item for item in shown}
    assert by_job["waits"]["position"] == 0
    assert by_job["waits"]["state"] == "Pending"
    assert by_job["waits"]["message"] == SHORT
    assert by_job["runs"]["held"] == [{"flavor": "a100", "resource": GPU, "amount": "16"}]


async def test_queue_wide_has_kueues_message(gangline: Run, workloads: None):
    assert SHORT in (await gangline("queue", "-o", "wide")).output


async def test_queue_of_one_cluster_queue_looks_into_all_namespaces(gangline: Run, queue: str, workloads: None):
    assert "runs" in (await gangline("queue", "-q", queue, ns=None)).output
    wrong = await gangline("queue", "-q", "no-such-queue")
    assert wrong.exit_code == 1
    assert "there is no ClusterQueue 'no-such-queue'" in wrong.output


async def test_an_empty_namespace_says_so(gangline: Run, api: ApiClient):
    result = await gangline("queue")
    assert result.exit_code == 0
    assert "No running or pending workloads in namespace" in result.output


@pytest.mark.parametrize(
    "named", ["waits", "job/waits", "jobs/waits", "Job.batch/waits", "job-waits-0f3a1", "workload/job-waits-0f3a1"]
)
async def test_why_takes_a_job_by_all_its_names(gangline: Run, workloads: None, named: str):
    result = await gangline("why", named)
    assert result.exit_code == 0, result.output
    assert "1st of 1 waiting" in result.output
    assert "8 more GPUs of a100 free: the end of job/runs (16) frees as much" in result.output
    assert SHORT in result.output


async def test_why_as_json(gangline: Run, workloads: None):
    document = json.loads((await gangline("why", "waits", "-o", "json")).stdout)
    assert document["jobName"] == "waits"
    assert ["needs", "8 more GPUs of a100 free: the end of job/runs (16) frees as much"] in document["explanation"]


async def test_why_refuses_what_is_not_there(gangline: Run, workloads: None):
    for named, words in [
        ("nope", "no job 'nope' in namespace"),
        ("gpujob/waits", "no job 'gpujob/waits' in namespace"),
        ("daemonset/waits", "unknown kind 'daemonset'"),
    ]:
        result = await gangline("why", named)
        assert result.exit_code == 1
        assert words in result.output


async def test_why_points_to_the_right_namespace(gangline: Run, queue: str, workloads: None):
    result = await gangline("why", "waits", ns="default")
    assert result.exit_code == 1
    assert "no job 'waits' in namespace default; there is one in" in result.output
    assert queue in result.output


async def test_why_tells_a_job_without_queue_from_one_without_workload(gangline: Run, api: ApiClient, namespace: str):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}
    plain = {"metadata": {"name": "plain"}, "spec": {"suspend": True, "template": template}}
    await api.create(JOBS, namespace, plain)
    assert "names no queue" in (await gangline("why", "plain")).output
    gang = {
        "apiVersion": GPU_JOBS.api_version,
        "kind": "GPUJob",
        "metadata": {"name": "gang", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
        "spec": {"template": template},
    }
    await api.create(GPU_JOBS, namespace, gang)
    result = await gangline("why", "gang")
    assert result.exit_code == 1
    assert "names queue 'gpus' but has no Workload yet" in result.output
    stored = await api.get(GPU_JOBS, namespace, "gang")
    regarding = {"kind": "GPUJob", "namespace": namespace, "name": "gang", "uid": stored["metadata"]["uid"]}
    event = {
        "metadata": {"name": "gang.1"},
        "eventTime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "reportingController": "gangline.io/operator",
        "reportingInstance": "x",
        "type": "Warning",
        "reason": "ErrWorkloadCompose",
        "action": "ErrWorkloadCompose",
        "note": "its PriorityClass is not there",
        "regarding": regarding,
    }
    await api.create(EVENTS, namespace, event)
    assert "the operator says: ErrWorkloadCompose" in (await gangline("why", "gang")).output
    listed = (await gangline("queue")).output
    assert "gang" in listed and "ErrWorkloadCompose: its PriorityClass is not there" in listed


async def test_installing_again_changes_nothing_and_keeps_the_webhooks_conversion(api: ApiClient, kubectl: Kubectl):
    name = "localqueues.kueue.x-k8s.io"
    before = json.loads(kubectl("get", "crd", name, "-o", "json"))
    await kinds.install_kinds(api)
    after = json.loads(kubectl("get", "crd", name, "-o", "json"))
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"]["conversion"] == before["spec"]["conversion"]


@pytest.fixture
def bad_kubeconfig(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\n")
    yield path


def test_a_kubeconfig_that_leads_nowhere_is_an_error_with_advice(bad_kubeconfig: Path):
    result = CliRunner().invoke(main, ["queue", "--kubeconfig", str(bad_kubeconfig)])
    assert result.exit_code == 1
    assert "current-context is not set" in result.output
