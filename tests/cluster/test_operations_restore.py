"""docs/operations.md: the store is restored from a backup while operators and webhooks run, so that resourceVersions go back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.cluster import backup
from tests.cluster.conftest import System, standing
from tests.cluster.harness import Api, OperatorProcess, cluster_queue, flavor, job, local_queue

from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A control plane of its own: what its store held after the backup is lost."""
    with standing(tmp_path_factory.mktemp("gangline")) as system:
        yield system


async def test_operators_start_anew_from_the_restored_store(system: System, api: Api) -> None:
    """Since the backup one gang was deleted, and another one got its quota. After the restore it is the other way round."""
    one, two = (system.operator(name, leader_election=True).wait_ready() for name in ("one", "two"))
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    await api.create(job("old", "lq", gpus=8, runtime=""))
    await api.until(lambda: _runs(api, "old"), "the first gang runs")
    copy = system.directory / "backup"
    await asyncio.to_thread(backup.take, system.plane, copy)
    await api.until(lambda: _deleted(api, "old"), "it is deleted")
    await api.until(lambda: _created(api, job("lost", "lq", gpus=8, runtime="")), "the API server takes jobs again")
    await api.until(lambda: _runs(api, "lost"), "the second gang runs")

    system.restarted = True
    await asyncio.to_thread(backup.restore, system.plane, copy)
    await api.until(
        lambda: _ended(one, two), "both end: the leader as it lost its lease meanwhile, if not for the store"
    )
    assert any("the cluster's store was restored from a backup" in each.tail(1) for each in (one, two)), one.tail()
    for operator in (one, two):
        operator.start()

    unsuspended = job("new", "lq", gpus=8, runtime="300ms")
    unsuspended["spec"]["suspend"] = False
    await api.until(lambda: _created(api, unsuspended), "the webhooks that ran all the while take jobs")
    assert not await _runs(api, "new")
    for operator in (one, two):
        operator.wait_ready()
    await api.until(lambda: _waits(api, "new"), "the quota is in use by the gang of the backup")
    await api.until(lambda: _deleted(api, "old"), "it is deleted")
    await api.finished("new")
    assert await api.workload_of("lost") is None


async def _ended(*operators: OperatorProcess) -> bool:
    return all(not each.process.is_alive() and each.process.exitcode == 1 for each in operators)


async def _runs(api: Api, name: str) -> bool:
    return (await api.get(kube.JOBS, name))["spec"]["suspend"] is False


async def _waits(api: Api, name: str) -> bool:
    workload = await api.workload_of(name)
    rows = ((workload or {}).get("status") or {}).get("conditions") or ()
    return any(row["type"] == "QuotaReserved" and row["status"] == "False" for row in rows)


async def _created(api: Api, *objects: object) -> bool:
    await api.create(*objects)  # type: ignore[arg-type]
    return True


async def _deleted(api: Api, name: str) -> bool:
    await api.client.delete(kube.JOBS, "default", name, propagation="Background")
    return True
