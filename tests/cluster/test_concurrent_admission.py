"""Jobs that are tried on several flavors at a time, and workloads that wait for their preemption gates."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue, priority_class

from gangline.api import names
from gangline.engine import model
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
FLAVORS = ("reservation", "spot")
POLICY = {"migration": {"mode": "TryPreferredFlavors"}}


def settings(gate: str) -> model.Settings:
    return model.Settings(gates={gate: True})


async def family(api: Api, name: str) -> dict[str, Json]:
    """The variants of a job by their flavor."""
    parent = await api.workload_of(name)
    assert parent is not None
    found = [
        each
        for each in await api.all(kube.WORKLOADS, "default")
        if any(ref["uid"] == parent["metadata"]["uid"] for ref in each["metadata"].get("ownerReferences", ()))
    ]
    return {each["metadata"]["annotations"][names.ALLOWED_FLAVORS]: each for each in found}


async def runs_on(api: Api, name: str) -> str:
    """The flavor on which a job runs; "" while it does not."""
    parent, owner = await api.workload_of(name), await api.get(kube.JOBS, name)
    if parent is None or owner["spec"]["suspend"] or not condition(parent, "Admitted"):
        return ""
    return parent["status"]["admission"]["podSetAssignments"][0]["flavors"]["nvidia.com/gpu"]


async def test_a_job_starts_on_the_flavor_that_is_free_and_moves_to_the_better_one(system: System, api: Api) -> None:
    """The operator is killed while the job moves: nothing is lost or granted twice."""
    gates = settings("ConcurrentAdmission")
    system.operator("first", settings=gates).wait_ready()
    queue = cluster_queue("cq", 2, flavors=FLAVORS, concurrentAdmissionPolicy=POLICY)
    await api.apply(*(flavor(name) for name in FLAVORS), queue, local_queue("lq", "cq"))

    await api.create(job("blocks", "lq", gpus=2, runtime="600s"))

    async def on_reservation(name: str) -> bool:
        return await runs_on(api, name) == "reservation"

    await api.until(lambda: on_reservation("blocks"), "the first job runs on the preferred flavor")
    await api.create(job("moves", "lq", gpus=2, runtime="600s"))

    async def on_spot() -> bool:
        return await runs_on(api, "moves") == "spot"

    await api.until(on_spot, "the second job runs on the other flavor")
    variants = await family(api, "moves")
    assert sorted(variants) == ["reservation", "spot"]

    async def counted_once() -> bool:
        status = (await api.get(kube.CLUSTER_QUEUES, "cq"))["status"]
        usage = {row["name"]: row["resources"][0]["total"] for row in status["flavorsUsage"]}
        return usage == {"reservation": "2", "spot": "2"} and status["admittedWorkloads"] == 2

    await api.until(counted_once, "variants count, and parents do not")

    await api.client.delete(kube.JOBS, "default", "blocks", propagation="Background")

    async def moves() -> bool:
        spot = (await family(api, "moves"))["spot"]
        return condition_row(spot, "Evicted").get("reason") == "FlavorMigration"

    await api.until(moves, "the less preferred variant is evicted")
    system.kill_operators()
    system.operator("second", settings=gates).wait_ready()
    await api.until(lambda: on_reservation("moves"), "the job runs on the preferred flavor")

    async def settled() -> bool:
        found = await family(api, "moves")
        parent = await api.workload_of("moves")
        spot, best = found["spot"], found["reservation"]
        return (
            parent is not None
            and parent["metadata"]["labels"][names.CONCURRENT_PARENT] == "true"
            and spot["spec"]["active"] is False
            and "admission" not in spot["status"]
            and best["status"]["admission"] == parent["status"]["admission"]
        )

    await api.until(settled, "one variant holds what the job uses")

    await api.client.delete(kube.JOBS, "default", "moves", propagation="Background")

    async def gone() -> bool:
        return not await api.all(kube.WORKLOADS, "default")

    await api.until(gone, "parents and variants go with their jobs")


async def test_nobody_is_preempted_for_a_workload_until_its_gate_opens(system: System, api: Api) -> None:
    system.operator(settings=settings("MultiKueueOrchestratedPreemption")).wait_ready()
    preempts = {"withinClusterQueue": "LowerPriority"}
    await api.apply(flavor(), priority_class("urgent", 100), cluster_queue("cq", 2, preemption=preempts))
    await api.apply(local_queue("lq", "cq"))
    await api.create(job("runs", "lq", gpus=2, runtime="600s"))

    async def runs() -> bool:
        found = await api.workload_of("runs")
        return found is not None and condition(found, "Admitted")

    await api.until(runs, "the first job runs")
    template = (await api.get(kube.JOBS, "runs"))["spec"]["template"]
    gated = {
        "apiVersion": names.V1BETA2,
        "kind": "Workload",
        "metadata": {"name": "gated", "namespace": "default"},
        "spec": {
            "queueName": "lq",
            "priority": 100,
            "preemptionGates": [{"name": "example.com/asks-first"}],
            "podSets": [{"name": "main", "count": 1, "template": {"spec": template["spec"]}}],
        },
    }
    await api.create(gated)

    async def waits() -> bool:
        found = await api.get(kube.WORKLOADS, "gated")
        rows = found.get("status", {}).get("preemptionGates", ())
        closed = [(row["name"], row["position"]) for row in rows] == [("example.com/asks-first", "Closed")]
        return closed and condition_row(found, "BlockedOnPreemptionGates").get("reason") == "PreemptionGated"

    await api.until(waits, "it says that a gate keeps it from preempting")
    waiting = condition_row(await api.get(kube.WORKLOADS, "gated"), "QuotaReserved")
    assert waiting["message"] == "Workload requires preemption, but it's gated"
    assert await runs()

    row = {"name": "example.com/asks-first", "position": "Open", "lastTransitionTime": "2026-01-31T12:00:00Z"}
    body = {"status": {"preemptionGates": [row]}}
    await api.client.patch(kube.WORKLOADS, "default", "gated", body, subresource="status")

    async def preempts_now() -> bool:
        found, victim = await api.get(kube.WORKLOADS, "gated"), await api.workload_of("runs")
        blocked = condition_row(found, "BlockedOnPreemptionGates")
        return (
            condition(found, "QuotaReserved")
            and (blocked["status"], blocked["reason"]) == ("False", "QuotaReserved")
            and victim is not None
            and not condition(victim, "Admitted")
        )

    await api.until(preempts_now, "its gate is open: it has preempted the other one and has its quota")
