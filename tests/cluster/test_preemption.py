"""A QueuePolicy protects jobs: large ones, until they have run for a while, and, whoever operates, after too many stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    job,
    local_queue,
    priority_class,
    queue_policy,
)

from gangline.api.read.conditions import millis_of
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]

POLICY = queue_policy("protect", "cq", preemption={"nonPreemptibleGpus": 6, "minRuntime": "2s", "maxPerWorkload": 1})
PROTECTED = "Those that it could preempt are protected by the policy of their queue"


@pytest.fixture
async def queue(api: Api) -> AsyncIterator[None]:
    await api.apply(
        POLICY,
        flavor(),
        cluster_queue("cq", 8, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("lq", "cq"),
        priority_class("low", 10),
        priority_class("high", 1000),
    )
    yield
    with contextlib.suppress(NotFound):
        await api.client.delete(kube.QUEUE_POLICIES, None, "protect")


async def test_protected_jobs_are_left_alone_and_the_others_make_room(system: System, queue: None, api: Api) -> None:
    answering = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
    operator = system.operator("first", visibility=answering).wait_ready()

    async def row(name: str, kind: str) -> Json:
        workload = await api.workload_of(name)
        return condition_row(workload, kind) if workload else {}

    async def admitted(name: str) -> bool:
        return (await row(name, "Admitted")).get("status") == "True"

    async def says(name: str, text: str) -> str:
        message = (await row(name, "QuotaReserved")).get("message", "")
        return message if text in message else ""

    await api.create(job("large", "lq", gpus=6, runtime="60s", priority="low"))
    await api.create(job("small", "lq", gpus=2, runtime="60s", priority="low"))
    await api.until(lambda: admitted("large"), "the large one runs")
    await api.until(lambda: admitted("small"), "the small one runs")
    started = millis_of((await row("small", "Admitted"))["lastTransitionTime"])

    await api.create(
        job("wide", "lq", gpus=8, priority="high"), job("urgent", "lq", gpus=2, runtime="1s", priority="high")
    )
    await api.until(lambda: admitted("urgent"), "room was made when the protection was over", period=0.05)
    stopped = await row("small", "Preempted")
    assert stopped["reason"] == "InClusterQueue"
    assert millis_of(stopped["lastTransitionTime"]) >= started + 2000
    message = await api.until(lambda: says("wide", PROTECTED), "its message says that others are protected")
    assert message.startswith("couldn't assign flavors to pod set main: insufficient unused quota")
    assert not condition(await api.workload_of("large") or {}, "Evicted")

    await api.until(lambda: admitted("small"), "it is back when the urgent one is done")
    answer = await history(system, "small")
    states = [event["state"] for event in answer["history"]]
    assert [state for state in states if state in ("Admitted", "Evicting")] == ["Admitted", "Evicting", "Admitted"]
    assert states[0] == "Pending" and states[states.index("Evicting") + 1] in ("Pending", "Inadmissible")
    stop = next(event for event in answer["history"] if event["state"] == "Evicting")
    assert stop["decision"] == "Preempt" and stop["cause"] == "Preempted for urgent (InClusterQueue)"
    assert answer["source"] == "from the running operator"
    operator.kill()
    answer = await history(system, "small")
    assert "and not from the operator" in answer["source"]
    assert {"Pending", "Admitted"} <= {event["state"] for event in answer["history"]}
    system.operator("second").wait_ready()
    await api.create(job("again", "lq", gpus=2, runtime="1s", priority="high"))
    message = await api.until(lambda: says("again", PROTECTED), "who was stopped once is not stopped again")
    assert message.endswith(PROTECTED), "there is no end of it"


async def history(system: System, name: str) -> Json:
    """What `gangline why --history` says of a job."""
    command = ["why", name, "--history", "-o", "json", "--kubeconfig", str(system.kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gangline.console.cli", *command, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def test_room_is_given_to_others_when_the_pods_that_make_room_have_gone(system: System, api: Api) -> None:
    """A Job counts pods no longer as soon as they are being deleted; they keep their GPUs for as long as they take to save."""
    await api.apply(
        flavor(labels={"gangline.io/node-pool": "gpu"}),
        cluster_queue("cq", 8, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("lq", "cq"),
        priority_class("low", 10),
        priority_class("high", 1000),
    )
    system.operator().wait_ready()
    saving = job("saving", "lq", gpus=8, runtime="1h", priority="low")
    template = saving["spec"]["template"]
    template["metadata"]["annotations"]["gangline.io/simulated-shutdown"] = "4s"
    template["spec"]["terminationGracePeriodSeconds"] = 10
    await api.create(saving)

    async def still_runs(name: str) -> list[Json]:
        pods = await api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={name}")
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    await api.until(lambda: still_runs("saving"), "it runs")
    await api.create(job("urgent", "lq", gpus=8, runtime="1h", priority="high"))

    async def pod_is_deleted() -> bool:
        return any("deletionTimestamp" in pod["metadata"] for pod in await still_runs("saving"))

    await api.until(pod_is_deleted, "its pod is being deleted")

    async def admitted() -> bool:
        workload = await api.workload_of("urgent")
        return workload is not None and condition(workload, "Admitted")

    await api.until(admitted, "the urgent one is admitted")
    assert await still_runs("saving") == []
    await api.until(lambda: still_runs("urgent"), "the urgent one runs")
