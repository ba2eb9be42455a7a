"""Runs that outlast what was expected of them, and gangs that hang: said, and acted on, on a real control plane."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition_row, flavor, gpu_job, local_queue, queue_policy
from tests.inbox import Inbox, opened

from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster

Json = dict[str, Any]


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with opened() as inbox:
        yield inbox


@pytest.fixture
async def policy(api: Api, inbox: Inbox) -> AsyncIterator[Json]:
    """A policy for `cq`, and the Secret that it names; both are removed."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "inbox", "namespace": "default"},
        "stringData": {"url": inbox.url()},
    }
    await api.apply(secret)
    kinds = ["Admitted", "Overrun", "Stalled", "Evicted", "Finished"]
    notify = [{"secretRef": {"name": "inbox", "namespace": "default"}, "events": kinds}]
    yield queue_policy("runaway", "cq", notify=notify)
    for resource, namespace, name in ((kube.QUEUE_POLICIES, None, "runaway"), (kube.SECRETS, "default", "inbox")):
        with contextlib.suppress(NotFound):
            await api.client.delete(resource, namespace, name)


async def events(api: Api, reason: str) -> list[str]:
    return [event["note"] for event in await api.all(kube.EVENTS, "default") if event["reason"] == reason]


async def stalled(api: Api, name: str) -> Json:
    workload = await api.workload_of(name)
    return condition_row(workload, "Stalled") if workload else {}


async def test_a_run_that_outlasts_its_hint_is_told_and_left_to_run(
    system: System, api: Api, policy: Json, inbox: Inbox, tmp_path: Path
) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator(forecasts=forecasts).wait_ready()
    policy["spec"]["overrun"] = {"warnAt": "0.5", "overdueFactor": "2", "action": "Notify"}
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"), policy)
    job = gpu_job("long", "lq", workers=2, simulated="1h", runtime={"expected": "2s"})
    await api.create(job)

    async def overdue() -> bool:
        workload = await api.workload_of("long")
        row = condition_row(workload, "Overrun") if workload else {}
        return row.get("status") == "True" and row["reason"] == "Overdue"

    await api.until(overdue, "the run is overdue", 60)
    assert await api.until(lambda: events(api, "Overdue"), "an event says so")
    await api.until(lambda: _notified(inbox, "GPUJob default/long runs longer than forecast"), "people are notified")
    workload = await api.workload_of("long")
    assert workload is not None
    assert harness.condition(workload, "Admitted"), "a prediction alone stops nothing"
    assert not harness.condition(workload, "Evicted")

    system.kill_operators()
    inbox.bodies.clear()
    system.operator(forecasts=forecasts).wait_ready()
    await api.create(gpu_job("other", "lq", workers=2, simulated="1h", runtime={"expected": "1s"}))
    await api.until(
        lambda: _notified(inbox, "GPUJob default/other runs longer than forecast"), "the new operator tells", 60
    )
    assert not await _notified(inbox, "default/long"), "nobody is notified twice"


async def test_a_gang_whose_heartbeat_stops_is_queued_again_and_finishes(
    system: System, api: Api, policy: Json, inbox: Inbox, tmp_path: Path
) -> None:
    operator = system.operator(progress_url="http://operator.example").wait_ready()
    port = json.loads(operator.ready_file.read_text())["port"]
    policy["spec"]["stall"] = {"after": "2s", "startup": "0s", "grace": "1s", "action": "Requeue"}
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"), policy)
    job = gpu_job("train", "lq", workers=2, simulated="20s", progress={"heartbeat": "3s"})
    await api.create(job)

    async def reports_to() -> str:
        pods = await api.all(kube.PODS, "default", "gangline.io/gpujob=train")
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return running[0]["metadata"]["annotations"]["gangline.io/progress-url"] if len(running) == 2 else ""

    url = await api.until(reports_to, "its pods run and know where to report to")
    local = url.replace("http://operator.example", f"http://127.0.0.1:{port}")
    async with aiohttp.ClientSession() as session:

        async def post(where: str, body: Any) -> int:
            async with session.post(where, json=body) as answer:
                return answer.status

        for step in range(6):
            assert await post(local, {"step": step, "total": 1000}) == 204
            await asyncio.sleep(0.5)
        assert await post(local, {"step": "six"}) == 400
        assert await post(local.rpartition("/")[0] + "/another-uid", {"step": 6}) == 404
        assert await post(local, {"phase": "x" * 5000}) == 413
        assert (await stalled(api, "train")).get("status") != "True", "it reports, so it is alive"

    async def requeued() -> bool:
        return any("the workload is stopped and queued again" in note for note in await events(api, "Stalled"))

    await api.until(requeued, "it is found to hang", 60)
    await api.until(lambda: events(api, "EvictedDueToStalled"), "it is evicted")

    async def done() -> bool:
        found = await api.get(kube.GPU_JOBS, "train")
        return harness.condition(found, "Complete")

    # from now on it only has to run for its simulated time, which a promise of silence allows
    await api.client.patch(
        kube.GPU_JOBS, "default", "train", {"metadata": {"annotations": {"gangline.io/stall": "off"}}}
    )
    await api.until(done, "it runs again and finishes", 90)
    workload = await api.workload_of("train")
    assert workload is not None
    evictions = workload["status"]["schedulingStats"]["evictions"]
    assert sum(row["count"] for row in evictions if row["reason"] == "Stalled") >= 1
    await api.until(
        lambda: _notified(inbox, "GPUJob default/train has finished"), "people are notified that it has finished"
    )
    assert await _notified(inbox, "GPUJob default/train seems to hang")


async def test_a_gpujob_that_reached_its_limit_has_failed(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    await api.create(
        gpu_job("greedy", "lq", workers=2, simulated="1h", runtime={"limit": "3s"}, restart={"maxRestarts": 5})
    )

    async def failed() -> Json:
        return condition_row(await api.get(kube.GPU_JOBS, "greedy"), "Failed")

    assert (await api.until(failed, "the GPUJob has failed"))["reason"] == "DeadlineExceeded"

    async def accounted() -> bool:
        workload = await api.workload_of("greedy")
        return workload is not None and harness.condition(workload, "Finished")

    await api.until(accounted, "its Workload is finished")
    workload = await api.workload_of("greedy")
    assert workload is not None
    assert workload["spec"]["maximumExecutionTimeSeconds"] == 3


async def _notified(inbox: Inbox, said: str) -> bool:
    return any(said in text for text in inbox.texts)
