"""manageJobsWithoutQueueName and managedJobsNamespaceSelector, in the webhooks and in the operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import System
from tests.cluster.harness import Api, WebhookProcess, cluster_queue, condition_row, flavor, job, local_queue

from gangline.api import names
from gangline.api.read import configuration
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
CONFIGURATION: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": {"matchLabels": {"gpus": "managed"}},
    "integrations": {"frameworks": ["batch/job"]},
}
MANAGED, FREE = "managed", "free"


@pytest.fixture
async def configured(system: System, api: Api, tmp_path: Path) -> AsyncIterator[System]:
    """Both processes have the configuration, and there is a namespace of either kind."""
    for name, labels in ((MANAGED, {"gpus": "managed"}), (FREE, {})):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        await api.client.create(kube.NAMESPACES, None, body)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    system.webhooks.stop()
    webhooks = WebhookProcess(system.webhooks.kubeconfig, system.directory, arguments=("--config", str(file))).start()
    system.operator(jobs=configuration.load(CONFIGURATION).jobs).wait_ready()
    yield system
    system.kill_operators()
    webhooks.stop()
    system.webhooks.start()
    for name in (MANAGED, FREE):
        await api.wipe(name)


async def test_jobs_without_a_queue(configured: System, api: Api) -> None:
    await api.apply(flavor(labels={"gangline.io/node-pool": "gpu"}), cluster_queue("cq", 8))
    await api.apply(*(local_queue("lq", "cq", namespace) for namespace in (MANAGED, FREE)))

    async def held_at_birth() -> bool:
        stored = await api.client.create(kube.JOBS, MANAGED, job("dry", "", namespace=MANAGED), query={"dryRun": "All"})
        return stored["spec"]["suspend"] is True

    await api.until(held_at_birth, "the webhooks hold a job that names no queue")

    # in a selected namespace: held without quota, until it names a queue
    await api.create(job("nameless", "", namespace=MANAGED))
    workload = await api.until(lambda: api.workload_of("nameless", MANAGED), "it has a Workload")
    assert not workload["spec"].get("queueName")
    await api.client.patch(kube.JOBS, MANAGED, "nameless", {"metadata": {"labels": {names.QUEUE_NAME: "lq"}}})
    await api.finished("nameless", namespace=MANAGED)

    # in another one: left alone, whether it names a queue or not
    alone = [job("alone", "", runtime="600s", namespace=FREE), job("queued", "lq", namespace=FREE, as_annotation=True)]
    await api.create(*alone)
    await api.finished("queued", namespace=FREE)
    assert not await api.all(kube.WORKLOADS, FREE)

    # the namespace is selected: its running job is held as well
    await api.client.patch(kube.NAMESPACES, None, FREE, {"metadata": {"labels": {"gpus": "managed"}}})

    async def stopped() -> bool:
        return (await api.get(kube.JOBS, "alone", FREE))["spec"]["suspend"] is True

    await api.until(stopped, "the job that ran without quota is stopped")
    workload = await api.until(lambda: api.workload_of("alone", FREE), "it has a Workload")
    assert condition_row(workload, "QuotaReserved").get("status") != "True"
