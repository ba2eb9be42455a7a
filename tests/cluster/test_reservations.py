"""Reservations on a real API server: nodes are emptied, cordoned and given back, and jobs go on, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cluster import clocks, harness
from tests.cluster.conftest import System
from tests.cluster.harness import Api
from tests.cluster.test_answers import HERE
from tests.controlplane import Kubectl

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.devcluster.building import build
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
Asked = Callable[[], Awaitable[bool]]

#: seconds until the window, and of the window; of one that no test waits for
AHEAD, OPEN, LONG = 15, 20, 600
POOL = EqualNodes("upkeep", 2, {"nvidia.com/gpu": 8}, {"upkeep": "yes"})
ONE, TWO = POOL.node_names


def reservation(
    name: str, *nodes: str, ahead: int = AHEAD, lasts: int = OPEN, notice: str = "10s", **spec: Any
) -> Json:
    start = (int(time.time()) + ahead) * 1000
    window = {"start": timestamp(start), "end": timestamp(start + lasts * 1000)}
    given = {"window": window, "nodes": {"names": list(nodes)}, "notice": notice, "stopBefore": "3s", **spec}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": given}


@dataclass
class Place:
    """A cluster with two nodes of 8 GPUs, two queues that may use both, and questions about it."""

    api: Api
    system: System

    async def pods(self, job: str) -> list[Json]:
        found = await self.api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={job}")
        return [
            pod
            for pod in found
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def runs(self, job: str, *nodes: str) -> Asked:
        async def runs() -> bool:
            return any(not nodes or pod["spec"]["nodeName"] in nodes for pod in await self.pods(job))

        return runs

    def rests(self, job: str) -> Asked:
        async def rests() -> bool:
            return not await self.pods(job)

        return rests

    def evicted(self, job: str) -> Asked:
        async def evicted() -> bool:
            workload = await self.api.workload_of(job)
            return (
                workload is not None and harness.condition_row(workload, names.EVICTED).get("reason") == "Reservation"
            )

        return evicted

    async def cordoned(self, node: str) -> str:
        """For which Reservation a node is cordoned, "" = for none."""
        found = await self.api.get(kube.NODES, node)
        mark = (found["metadata"].get("annotations") or {}).get(names.CORDONED_FOR, "")
        assert bool(mark) == bool(found["spec"].get("unschedulable"))
        return mark

    def is_cordoned(self, node: str, by: str) -> Asked:
        async def is_cordoned() -> bool:
            return await self.cordoned(node) == by

        return is_cordoned

    def says(self, name: str, kind: str, status: str) -> Asked:
        async def says() -> bool:
            found = await self.api.get(kube.RESERVATIONS, name)
            return harness.condition_row(found, kind).get("status") == status

        return says

    def told(self, job: str, *, told: bool) -> Asked:
        """Whether all pods of a job have been told by when to save, or none has."""

        async def heard() -> bool:
            pods = await self.pods(job)
            return bool(pods) and all(
                (names.SAVE_BY in (pod["metadata"].get("annotations") or {})) == told for pod in pods
            )

        return heard


@pytest.fixture
async def place(system: System) -> AsyncIterator[Place]:
    async with harness.connect(system.kubeconfig) as api:
        await create_pools(api.client, [POOL])
        try:
            await api.apply(
                harness.flavor("upkeep", {"upkeep": "yes"}),
                harness.cluster_queue("upkeep", 16, flavors=("upkeep",)),
                harness.local_queue("upkeep", "upkeep"),
                harness.cluster_queue("guests", 16, flavors=("upkeep",)),
                harness.local_queue("guests", "guests"),
            )
            yield Place(api, system)
        finally:
            for each in await api.all(kube.RESERVATIONS):
                await api.client.delete(kube.RESERVATIONS, None, each["metadata"]["name"])
            await delete_pool(api.client, POOL.name)


def train(name: str = "train", queue: str = "upkeep", **spec: Any) -> Json:
    """A job of 8 GPUs that runs until it is stopped."""
    made = harness.job(name, queue, gpus=8, runtime="")
    made["spec"]["template"]["spec"] |= spec
    return made


def on(node: str) -> Json:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


async def test_a_node_is_emptied_cordoned_and_given_back_and_the_job_goes_on(place: Place) -> None:
    api = place.api
    place.system.operator("upkeep").wait_ready()
    await api.create(train(**on(ONE)))
    await api.until(place.runs("train"), "the job runs")
    await api.create(reservation("upkeep", ONE))
    await api.until(place.evicted("train"), "the job is evicted for the window", AHEAD + 30)
    await api.until(place.is_cordoned(ONE, "upkeep"), "the node is cordoned", 30)
    await api.until(place.rests("train"), "nothing runs in the window", 30)
    await api.until(place.is_cordoned(ONE, ""), "the node is given back", AHEAD + OPEN + 30)
    await api.until(place.runs("train"), "the job goes on", 60)


async def test_a_maintenance_goes_on_when_the_operator_is_killed_in_it_and_the_next_ones_clock_is_off(
    place: Place,
) -> None:
    """The one is killed while pods are still ending; the other one's clock is a minute ahead."""
    api = place.api
    first = place.system.operator("first").wait_ready()
    await api.create(train(**on(ONE)))
    await api.until(place.runs("train"), "the job runs")
    await api.create(reservation("upkeep", ONE, lasts=40))
    await api.until(place.told("train", told=True), "its pod is told by when to save", AHEAD + 10)
    await api.until(place.evicted("train"), "the job is evicted for the window", AHEAD + 30)
    first.kill()
    assert not await place.says("upkeep", "Scheduled", "False")()
    place.system.operator("second", replaced=clocks.ahead(60)).wait_ready()
    await api.until(place.is_cordoned(ONE, "upkeep"), "the node is cordoned", 30)
    await api.until(place.rests("train"), "nothing runs in the window", 30)
    end = (await api.get(kube.RESERVATIONS, "upkeep"))["spec"]["window"]["end"]
    await api.until(place.is_cordoned(ONE, ""), "the node is given back", 90)
    # which says its time in whole seconds
    assert timestamp(int(time.time() * 1000) + 1_000) >= end, "not before the window is over, by the API server's clock"
    await api.until(place.runs("train"), "the job goes on", 60)
    assert await place.told("train", told=False)()


@pytest.mark.parametrize("step", [-3600, 3600])
async def test_a_clock_that_is_set_in_a_maintenance_changes_nothing(place: Place, tmp_path: Any, step: int) -> None:
    api, clock = place.api, clocks.ChangedClock(tmp_path / "clock")
    operator = place.system.operator("stepped", replaced=clock.replaced()).wait_ready()
    await api.create(train(**on(ONE)), train("other", **on(TWO)))
    await api.until(place.runs("train"), "the job runs")
    await api.until(place.runs("other"), "the other job runs")
    (other,) = await place.pods("other")
    await api.create(reservation("upkeep", ONE, lasts=40))
    await api.until(place.is_cordoned(ONE, "upkeep"), "the node is cordoned", AHEAD + 30)
    await api.until(place.rests("train"), "nothing runs in the window", 30)
    clock.put(step)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        assert await place.cordoned(ONE) == "upkeep" and not await place.pods("train")
        await asyncio.sleep(0.2)
    assert "this machine's clock was set" in operator.log.read_text()
    await api.until(place.is_cordoned(ONE, ""), "the node is given back", 90)
    await api.until(place.runs("train"), "the job goes on", 60)
    assert [pod["metadata"]["uid"] for pod in await place.pods("other")] == [other["metadata"]["uid"]]


async def test_of_nodes_that_two_reservations_want_only_whom_both_are_for_may_use_them(place: Place) -> None:
    """One is a maintenance of a node, the other keeps both nodes for guests, at the same time."""
    api = place.api
    place.system.operator("overlaps").wait_ready()
    await api.create(train(**on(TWO)))
    await api.until(place.runs("train", TWO), "the job runs")
    await api.create(
        reservation("upkeep", ONE, lasts=LONG),
        reservation("for-guests", ONE, TWO, lasts=LONG, **{"for": {"clusterQueues": ["guests"]}}),
    )
    for name in ("upkeep", "for-guests"):
        await api.until(place.says(name, "Conflict", "True"), f"{name} says that it overlaps")
        row = harness.condition_row(await api.get(kube.RESERVATIONS, name), "Conflict")
        assert ONE in row["message"] and TWO not in row["message"], row
    await api.create(train("guest", "guests", **on(TWO)), train("kept-out", "guests", **on(ONE)))
    await api.until(place.evicted("train"), "others leave the node that is for guests", AHEAD + 30)
    await api.until(place.runs("guest", TWO), "a guest runs on the node that is for guests alone", 60)
    await api.until(place.is_cordoned(ONE, "upkeep"), "the other node is cordoned", 30)
    assert await place.cordoned(TWO) == ""
    assert not await place.pods("train") and not await place.pods("kept-out")
    await api.client.delete(kube.RESERVATIONS, None, "upkeep")
    await api.until(place.runs("kept-out", ONE), "the guests get the node that nobody else wants any more", 60)
    await api.until(place.says("for-guests", "Conflict", "False"), "there is no conflict any more", 30)
    assert await place.cordoned(ONE) == ""


async def test_of_jobs_without_an_end_one_that_saves_checkpoints_starts_before_a_window_that_permits_it(
    place: Place,
) -> None:
    api = place.api
    place.system.operator("saving").wait_ready()
    await api.create(reservation("saving", ONE, TWO, ahead=LONG, startWithCheckpoints="1m"))
    await api.until(place.says("saving", "Scheduled", "True"), "the window is known")
    await api.create(train("plain"))

    async def barred() -> bool:
        workload = await api.workload_of("plain")
        message = harness.condition_row(workload, "QuotaReserved").get("message", "") if workload is not None else ""
        return "or with checkpoints, if it can run for 1m until it is stopped" in message

    await api.until(barred, "its message says what would let it start")
    saves = train("saves")
    saves["metadata"].setdefault("annotations", {})[names.CHECKPOINT_INTERVAL] = "1m"
    await api.create(saves)
    await api.until(place.runs("saves"), "it saves its work, so it starts")
    assert not await place.pods("plain")


async def test_reservations_that_are_deleted_while_they_empty_nodes_give_them_back_at_once(place: Place) -> None:
    """One has stopped its job, the other one has only told it to save."""
    api = place.api
    place.system.operator("deleted").wait_ready()
    await api.create(train(**on(ONE)), train("warned", **on(TWO)))
    for job in ("train", "warned"):
        await api.until(place.runs(job), f"{job} runs")
    (warned,) = await place.pods("warned")
    await api.create(reservation("now", ONE, lasts=LONG), reservation("soon", TWO, ahead=LONG, lasts=LONG, notice="1h"))
    await api.until(place.told("warned", told=True), "it is told by when to save", 30)
    await api.until(place.is_cordoned(ONE, "now"), "the node is cordoned", AHEAD + 30)
    await api.until(place.rests("train"), "nothing runs in the window", 30)
    for name in ("now", "soon"):
        await api.client.delete(kube.RESERVATIONS, None, name)
    await api.until(place.is_cordoned(ONE, ""), "the node is given back at once", 30)
    await api.until(place.runs("train", ONE), "the job goes on, long before the window would have ended", 60)
    await api.until(place.told("warned", told=False), "the deadline is taken back", 30)
    assert [pod["metadata"]["uid"] for pod in await place.pods("warned")] == [warned["metadata"]["uid"]], (
        "it has run on"
    )


def soft_window(node: str) -> Json:
    start = (int(time.time()) - 1) * 1000
    window = {"start": timestamp(start), "end": timestamp(start + 600_000)}
    spec = {"window": window, "nodes": {"names": [node]}, "for": {"users": ["mira"]}, "firm": "Soft", "notice": "8s"}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": {"name": "deadline"}, "spec": spec}


async def test_others_use_a_soft_window_until_its_user_needs_the_node_also_when_the_operator_is_killed(
    system: System,
) -> None:
    pool = EqualNodes("soft", 1, {"nvidia.com/gpu": 8}, {"soft": "yes"})
    async with harness.connect(system.kubeconfig) as api:
        await create_pools(api.client, [pool])
        try:
            (node,) = pool.node_names
            await api.apply(
                harness.flavor("soft", {"soft": "yes"}),
                harness.cluster_queue("soft", 16, flavors=("soft",)),
                harness.local_queue("soft", "soft"),
            )
            operator = system.operator("soft")
            operator.wait_ready()
            await api.create(soft_window(node))
            await api.create(harness.job("other", "soft", gpus=8, runtime=""))

            async def runs(job: str) -> bool:
                pods = await api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={job}")
                return any(
                    pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
                    for pod in pods
                )

            async def recalls() -> list[Json]:
                return (await api.get(kube.RESERVATIONS, "deadline")).get("status", {}).get("recalls") or []

            async def eviction() -> str:
                workload = await api.workload_of("other")
                assert workload is not None
                return harness.condition_row(workload, names.EVICTED).get("reason", "")

            async def told() -> bool:
                pods = await api.all(kube.PODS, "default", "batch.kubernetes.io/job-name=other")
                return any(names.SAVE_BY in (pod["metadata"].get("annotations") or {}) for pod in pods)

            await api.until(lambda: runs("other"), "the job of another user runs in the window", 60)
            assert await recalls() == [] and await eviction() == ""
            mine = harness.job("mine", "soft", gpus=8, runtime="")
            mine["metadata"].setdefault("labels", {})[names.USER] = "mira"
            await api.create(mine)

            async def recalled() -> bool:
                return bool(await recalls())

            await api.until(recalled, "the other one is recalled", 30)
            await api.until(told, "its pod learns by when to save", 30)
            (row,) = await recalls()
            operator.kill()
            system.operator("soft").wait_ready()
            assert (await recalls() or [row]) == [row], "the deadline stays"
            await api.until(lambda: runs("mine"), "the job of the user runs", 90)
            assert await eviction() == "Reservation"
            assert not await runs("other")

            async def over() -> bool:
                return not await recalls()

            await api.until(over, "nobody is recalled any more", 30)
        finally:
            await api.client.delete(kube.RESERVATIONS, None, "deadline")
            await delete_pool(api.client, pool.name)


async def test_whoever_applies_a_reservation_is_warned_of_what_is_not_honoured_and_its_status_says_the_same(
    place: Place,
) -> None:
    api, kubectl = place.api, Kubectl(build.kubectl(), place.system.kubeconfig)
    guests = {"for": {"clusterQueues": ["guests"]}}

    async def warned(obj: Json, *verb: str) -> list[str]:
        """The warnings of `kubectl apply`, which stores it all the same; or of another verb."""
        outcome = await asyncio.to_thread(kubectl.run, *(verb or ("apply",)), "-f", "-", stdin=json.dumps(obj))
        assert outcome.returncode == 0, outcome.stderr
        return [line.removeprefix("Warning: ") for line in outcome.stderr.splitlines() if line.startswith("Warning: ")]

    def would_warn(obj: Json) -> Asked:
        """Whether there are warnings about a new object; nothing is stored."""

        async def would_warn() -> bool:
            return bool(await warned(obj, "create", "--dry-run=server"))

        return would_warn

    first = reservation("upkeep", ONE, ahead=LONG, lasts=LONG)
    second = reservation("for-guests", ONE, TWO, ahead=LONG + 60, lasts=LONG, **guests)
    assert await warned(first) == [], "no operator answers: it is stored without a word"
    assert not await would_warn(second)()
    operator = place.system.operator("warns", visibility=HERE).wait_ready()
    await api.until(
        would_warn(second), "the second one is warned of the first one", 60
    )  # once its answers are registered
    start, end = second["spec"]["window"]["start"], first["spec"]["window"]["end"]
    both = f"Reservation upkeep has {ONE}, too, from {start} until {end}: only whom both are for may use them"
    found = await warned(second)
    assert found[0] == f"Not honoured: {both}"
    assert found[1].startswith(f"Instead: The same nodes are in no other reservation from {end} until ")
    many = reservation("many", ahead=9 * LONG, nodes={"anyOf": {"flavor": "upkeep", "count": 6}})
    short = await warned(many)
    assert short == [
        "Not honoured: spec.nodes.anyOf asks for 6 nodes of flavor upkeep, which has 2 nodes",
        "Instead: 2 nodes of flavor upkeep can be reserved",
    ]
    for name, words in (("for-guests", found), ("many", short)):
        await api.until(place.says(name, "Conflict", "True"), f"the status of {name} says so, too")
        row = harness.condition_row(await api.get(kube.RESERVATIONS, name), "Conflict")
        assert row["message"] == ". ".join(line.partition(": ")[2] for line in words)
    quotas = [{"flavor": "upkeep", "resource": "nvidia.com/gpu", "nominalQuota": 8}]
    day = [{"name": "day", "window": first["spec"]["window"], "quotas": quotas}]
    plans = [
        {
            "apiVersion": "gangline.io/v1alpha1",
            "kind": "QuotaPlan",
            "metadata": {"name": name},
            "spec": {"clusterQueue": "guests", "overrides": day},
        }
        for name in ("old", "new")
    ]
    try:
        assert await warned(plans[0]) == []
        await api.until(would_warn(plans[1]), "the second plan is warned of the first one", 30)
        told, instead = await warned(plans[1])
        assert told.startswith("Not honoured: QuotaPlan old of ClusterQueue guests is older")
        assert instead == "Instead: QuotaPlan old could have these overrides, too"
    finally:
        for each in await api.all(kube.QUOTA_PLANS):
            await api.client.delete(kube.QUOTA_PLANS, None, each["metadata"]["name"])
    operator.kill()
    second["spec"]["notice"] = "20s"
    assert await warned(second) == [], "nobody answers: that is not in the way"
