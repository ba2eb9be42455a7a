"""Gangs that leave a node because an administrator wants that, on a real API server: `gangline admin swap now` and `uncordon`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition
from tests.cluster.test_answers import HERE, Person, people
from tests.cluster.test_recovery import dead, gang, nodes, recovered, runs, started, uids

from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.kube import resources as kube

__all__ = ["nodes", "people"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


async def test_gangs_leave_a_node_and_nobody_is_preempted_for_them(
    system: System, api: Api, nodes: list[str], people: dict[str, Person]
) -> None:
    boss, alice = Person(system.kubeconfig), people["alice"]
    await api.create(gang("train", 3), gang("full", 2))
    system.operator("vacating", visibility=HERE).wait_ready()
    before, full = await runs(api, "train", 3), await runs(api, "full", 2)
    left, stays = before[0]["spec"]["nodeName"], full[0]["spec"]["nodeName"]

    async def said(*arguments: str, who: Person = boss, code: int = 0) -> str:
        result = await who.run(*arguments)
        assert result.exit_code == code, result.output
        return result.output

    async def answers() -> bool:
        return (await boss.run("admin", "swap", "dry-run", left)).exit_code == 0

    await api.until(answers, "the operator answers")
    output = await said("admin", "swap", "dry-run", left)
    assert "job/train" in output and "Moves" in output and "its pods there are made anew on other nodes" in output
    assert "nodes" in await said("admin", "swap", "now", left, "-y", who=alice, code=1), "a user may not change nodes"
    assert uids(await runs(api, "train", 3)) == uids(before), "nothing was moved by asking"

    # there is one free node: one pod moves there, and the others go on
    assert f"Gangs are to leave node {left}" in await said("admin", "swap", "now", left, "-y")
    workload = await recovered(api, "train")
    after = await runs(api, "train", 3, {left})
    assert len(uids(before).items() & uids(after).items()) == 2
    swap = swap_record.of(workload).log[0]
    assert (swap.how, swap.cause, swap.lost) == ("Replace", "Vacated", (left,))
    assert not (await api.get(kube.JOBS, "train"))["status"].get("failed"), "backoffLimit is 0"
    assert "Vacated" in await said("nodes", "-q", "swap", "-s", "vacated")
    assert "Vacated" in await said("admin", "swap", "list")

    # no node is left for this one, until the first is used again
    assert "no healthy nodes have room for it" in await said("admin", "swap", "dry-run", stays)
    await said("admin", "swap", "now", stays, "-y")
    await asyncio.sleep(2)
    assert uids(await runs(api, "full", 2)) == uids(full)
    assert f"Node {left} takes new pods again" in await said("admin", "uncordon", left)
    await recovered(api, "full")
    moved = await runs(api, "full", 2, {stays})
    assert left in {pod["spec"]["nodeName"] for pod in moved}
    assert uids(await runs(api, "train", 3)) == uids(after), "who left once is left alone"

    # cordon is not vacate
    quiet = after[0]["spec"]["nodeName"]
    assert "takes no new pods; those on it go on" in await said("admin", "cordon", quiet, stays)
    await said("admin", "cordon", "cq/swap")
    assert (await api.client.get(kube.CLUSTER_QUEUES, None, "swap"))["spec"]["stopPolicy"] == "Hold"
    await said("admin", "uncordon", "cq/swap", quiet, stays)
    spec = (await api.client.get(kube.NODES, None, stays))["spec"]
    assert not spec.get("unschedulable") and names.VACATE not in str(spec.get("taints"))
    assert uids(await runs(api, "train", 3)) == uids(after)


@pytest.mark.parametrize("write", [1, 2, 3])
async def test_an_operator_that_dies_while_a_node_is_vacated_loses_nothing(
    system: System, api: Api, nodes: list[str], write: int
) -> None:
    [before] = await started(system, api, gang("train", 2), operator="first")
    left = before[0]["spec"]["nodeName"]
    system.kill_operators()
    taint = {"spec": {"taints": [{"key": names.VACATE, "effect": "NoSchedule"}]}}
    await api.client.patch(kube.NODES, None, left, taint)
    dying = system.operator("dying", fault=f"before:{write}")
    await api.until(lambda: dead(dying), "the operator dies", 40)
    system.operator("last").wait_ready()
    record = swap_record.of(await recovered(api, "train"))
    after = await runs(api, "train", 2, {left})
    assert len(uids(before).items() & uids(after).items()) == 1
    assert [(swap.how, swap.lost) for swap in record.log] == [("Replace", (left,))], "one request, one swap"
    assert not condition(await api.get(kube.JOBS, "train"), "Failed")
