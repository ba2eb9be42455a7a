"""On a cluster that has Kueue's CRDs and not yet Gangline's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import System, standing
from tests.cluster.harness import Api, cluster_queue, condition, flavor, gpu_job, job, local_queue

from gangline.api import names
from gangline.api.schema import crd_install
from gangline.install.kinds import install_kinds
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[System]:
    """A control plane of its own: kinds that come and go would trouble the garbage collection of other tests' objects."""
    with standing(tmp_path, [crd for crd in crd_install.crds() if crd["spec"]["group"] != names.OWN_GROUP]) as system:
        yield system


async def test_jobs_are_admitted_and_gpujobs_once_there_are_such(system: System, api: Api) -> None:
    operator = system.operator().wait_ready()
    warned = next(line for line in operator.tail().splitlines() if "there are no " in line)
    assert all(f"{kind}.gangline.io" in warned for kind in ("queuepolicies", "reservations", "gpujobs")), warned
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    await api.create(job("train", "lq", pods=4, gpus=2, runtime="1s"))
    await api.finished("train")

    await install_kinds(api.client)
    await api.create(gpu_job("gang", "lq", workers=2))

    async def complete() -> bool:
        return condition(await api.get(kube.GPU_JOBS, "gang"), "Complete")

    await api.until(complete, "the GPUJob is complete")
