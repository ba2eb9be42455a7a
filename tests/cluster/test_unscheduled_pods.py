"""Admitted gangs with pods that the Kubernetes scheduler places nowhere: they do not hold their quota for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    job,
    local_queue,
    queue_policy,
)
from tests.cluster.test_answers import HERE

from gangline.api import names
from gangline.console.cli import main
from gangline.engine import model
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def growing(name: str) -> Json:
    """A flavor whose nodes Gangline does not count, since an autoscaler may make more."""
    made = flavor(name)
    made["metadata"]["annotations"] = {names.AUTOSCALED: "true"}
    return made


def patient(body: Json, seconds: int) -> Json:
    body["metadata"]["annotations"][names.UNSCHEDULED_TIMEOUT] = f"{seconds}s"
    return body


async def test_the_quota_goes_to_whoever_waits_and_the_place_is_kept_unless_the_job_is_the_cause(
    system: System, api: Api
) -> None:
    """A pod that is too large for the nodes that there are, and one that selects a node that there is not. An operator that is
    killed goes on counting.
    """
    ready = model.PodsReadyPolicy(backoff_base_seconds=4, backoff_max_seconds=4)
    settings = model.Settings(pods_ready=ready)
    first = system.operator("unscheduled", settings=settings, visibility=HERE)
    first.wait_ready()
    await api.apply(
        growing("gpu"),
        cluster_queue("wide", 9),
        cluster_queue("nowhere", 1),
        queue_policy("soon", "wide", "nowhere", unscheduledPods={"after": "1h"}),
        local_queue("wide", "wide"),
        local_queue("nowhere", "nowhere"),
    )
    lost = patient(job("lost", "nowhere"), 45)
    lost["spec"]["template"]["spec"]["nodeSelector"] = {"planet": "mars"}
    await api.create(patient(job("large", "wide", gpus=9), 45), lost)

    async def said(of: str) -> Json | None:
        row = condition_row(await api.workload_of(of) or {}, names.PODS_UNSCHEDULED)
        return row if row.get("status") == "True" else None

    large = await api.until(lambda: said("large"), "the Workload says that its pod is unscheduled")
    assert large["reason"] == "Unschedulable"
    assert large["message"].startswith("1 of 1 pods unscheduled: 0/")
    assert "Insufficient nvidia.com/gpu" in large["message"]
    assert (await api.until(lambda: said("lost"), "and of the other"))["reason"] == "CausedByJob"
    command = ["why", "large", "--kubeconfig", str(system.kubeconfig)]

    async def why() -> bool:  # the API server forwards questions some seconds after the operator is there
        output = (await asyncio.to_thread(CliRunner().invoke, main, command)).output
        return "if pods are still unscheduled" in output and "at its old place" in output

    await api.until(why, "why says when it is requeued, and where", 30)

    first.kill()
    system.operator("unscheduled-too", settings=settings, visibility=HERE).wait_ready()
    await api.create(job("waits", "wide", gpus=2, runtime="1s"))
    assert (await said("large") or {}).get("lastTransitionTime") == large["lastTransitionTime"]

    async def evictions(of: str) -> list[Json]:
        workload = await api.workload_of(of) or {}
        return workload.get("status", {}).get("schedulingStats", {}).get("evictions", [])

    for each in ("large", "lost"):
        (row,) = await api.until(lambda of=each: evictions(of), f"{each} is evicted")
        assert (row["reason"], row["underlyingCause"]) == ("PodsReadyTimeout", "WaitForScheduling")
    await api.finished("waits")
    workload = await api.workload_of("lost") or {}
    assert workload["status"]["requeueState"]["count"] == 1
    assert "count" not in (await api.workload_of("large") or {})["status"].get("requeueState", {})

    async def again() -> bool:
        return condition(await api.workload_of("large") or {}, "Admitted")

    await api.until(again, "it is admitted again, since the place was kept")
    pods = await api.all(kube.PODS, "default", "batch.kubernetes.io/job-name=large")
    assert all(not pod["spec"].get("nodeName") for pod in pods)
    await api.wipe()
