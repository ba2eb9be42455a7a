"""Mistakes of administrators on a real API server: `gangline admin doctor --cluster` finds them before the first job, and
`gangline why` says them of a job that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster.conftest import System, standing
from tests.cluster.harness import Api, cluster_queue, flavor, job, local_queue, queue_policy
from tests.cluster.test_doctor import examine

from gangline.console.cli import main
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
TAINT = {"key": "reserved-for", "value": "gangs", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A control plane of its own: flavors and nodes that are wrong would trouble other tests."""
    with standing(tmp_path_factory.mktemp("mistakes")) as system:
        yield system


async def why_says(system: System, name: str, *words: str) -> None:
    """`gangline why` says all these words of the job, sooner or later."""
    command = ["why", name, "-n", "default", "--kubeconfig", str(system.kubeconfig)]
    output = ""
    for _ in range(120):
        output = (await asyncio.to_thread(CliRunner().invoke, main, command)).output
        if all(word in output for word in words):
            return
        await asyncio.sleep(0.5)
    pytest.fail(f"no {words} in: {output}")


async def test_what_administrators_do_wrong_first(system: System, api: Api) -> None:
    system.operator("mistakes", visibility=AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")).wait_ready()
    nodes = await api.all(kube.NODES)
    assert nodes, "the control plane has nodes"
    for node in nodes[:2]:
        change = {"metadata": {"labels": {"pool": "tainted"}}, "spec": {"taints": [TAINT]}}
        await api.client.patch(kube.NODES, None, node["metadata"]["name"], change)
    try:
        await api.apply(
            flavor("nowhere", {"pool": "tained"}),
            flavor("tainted", {"pool": "tainted"}),
            flavor(),
            cluster_queue("nowhere", 8, flavors=("nowhere",)),
            cluster_queue("kept-away", 8, flavors=("tainted",)),
            cluster_queue("large", 100_000),
            cluster_queue("nobody", 8, namespaceSelector={"matchLabels": {"team": "vision"}}),
            local_queue("nowhere", "nowhere"),
            local_queue("kept-away", "kept-away"),
            local_queue("nobody", "nobody"),
            local_queue("lost", "largo"),
            queue_policy("idle", "lagre"),
        )
        report = await examine(system.kubeconfig)
        report.says("flavors", "failure", "nowhere: no node has its labels pool=tained", '{"pool":"tainted"}')
        report.says("flavors", "failure", "tainted: all 2 of its nodes have the taint", '"key":"reserved-for"')
        report.says("flavors", "warning", "gpu: the quota of it is", "lower nominalQuota")
        report.says("quota", "warning", "has no quota for cpu and memory")
        report.says("namespaces", "failure", "nobody: it admits no job of namespace default", "team=vision")
        report.says("LocalQueues", "failure", "default/lost", "close is large")
        report.says("QueuePolicies", "warning", "idle: it selects no ClusterQueue", "close is large")

        for name in ("nowhere", "kept-away", "nobody", "lost"):
            await api.create(job(name, name, runtime="1h"))
        await why_says(system, "nowhere", "no node has its labels pool=tained", "kubectl patch resourceflavor nowhere")
        await why_says(
            system, "kept-away", "the taint reserved-for=gangs:NoSchedule", "kubectl patch resourceflavor tainted"
        )
        await why_says(
            system, "nobody", "it admits no job of namespace default", "kubectl label namespace default team=vision"
        )
        await why_says(system, "lost", "leads to ClusterQueue largo, which does not exist")
    finally:
        for node in nodes[:2]:
            change = {"metadata": {"labels": {"pool": None}}, "spec": {"taints": None}}
            await api.client.patch(kube.NODES, None, node["metadata"]["name"], change)
