"""On a cluster that has Kueue's CRDs and not yet Gangline's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, flavor, gpu_job, job, local_queue

from gangline.api import install
from gangline.console.install import install_kinds
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster

CRDS = kube.CUSTOM_RESOURCE_DEFINITIONS


@pytest.fixture
async def without_own_kinds(api: Api) -> AsyncIterator[None]:
    names = [crd["metadata"]["name"] for crd in install.crds() if crd["spec"]["group"] == "gangline.io"]
    assert len(names) == 2
    for name in names:
        await api.client.delete(CRDS, None, name)

    async def unserved() -> bool:
        for resource in (kube.QUEUE_POLICIES, kube.GPU_JOBS):
            try:
                await api.all(resource)
            except NotFound:
                continue
            return False
        return True

    await api.until(unserved, "the kinds are gone")
    yield
    await install_kinds(api.client)


@pytest.mark.usefixtures("without_own_kinds")
async def test_jobs_are_admitted_and_gpujobs_once_there_are_such(system: System, api: Api) -> None:
    operator = system.operator().wait_ready()
    assert "there are no queuepolicies.gangline.io or gpujobs.gangline.io until" in operator.tail()
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    await api.create(job("train", "lq", pods=4, gpus=2, runtime="1s"))
    await api.finished("train")

    await install_kinds(api.client)
    await api.create(gpu_job("gang", "lq", workers=2))

    async def complete() -> bool:
        return condition(await api.get(kube.GPU_JOBS, "gang"), "Complete")

    await api.until(complete, "the GPUJob is complete")
