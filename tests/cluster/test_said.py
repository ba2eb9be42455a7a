"""What a user with rights in one namespace sees of mistakes, of quota that policy keeps away, and of jobs that don't wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, SECRET, Person, people

from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError

__all__ = ["people"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
NODE = "gpu-3"


class Asking:
    """Runs commands as a user of namespace `default`."""

    def __init__(self, api: harness.Api, person: Person) -> None:
        self._api = api
        self._person = person

    async def said(self, *arguments: str) -> str:
        result = await self._person.run(*arguments)
        assert result.exit_code == 0, result.output
        assert SECRET not in result.output, "another team's name"
        return result.stdout

    async def until(self, words: str, *arguments: str) -> str:
        async def there() -> bool:
            return words in (await self._person.run(*arguments)).stdout

        await self._api.until(there, f"{' '.join(arguments)} says {words!r}")
        return await self.said(*arguments)


@pytest.fixture
async def asking(system: System, api: harness.Api, people: dict[str, Person], tmp_path: Path) -> Asking:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator("said", visibility=HERE, forecasts=forecasts).wait_ready()
    flavor = harness.flavor("one", {"kubernetes.io/hostname": NODE})
    await api.apply(flavor, harness.cluster_queue("small", 8, flavors=("one",)), harness.local_queue("mine", "small"))
    return Asking(api, people["alice"])


async def test_mistakes_are_named(api: harness.Api, asking: Asking) -> None:
    broken = harness.cluster_queue("broken", 8, flavors=("not-there",))
    await api.apply(broken, harness.local_queue("broken", "broken"), harness.local_queue("lost", "nowhere"))

    # a resource of which the queue has no quota, while its GPUs are in use, too
    await api.create(harness.job("runs", "mine", gpus=8, runtime="600s"))
    await asking.until("Running", "queue")
    strange = harness.job("strange", "mine")
    (container,) = strange["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"]["example.com/fpga"] = "1"
    await api.create(strange)
    why = await asking.until("not to ask for example.com/fpga", "why", "strange")
    assert "the queue has no quota for example.com/fpga" in why
    assert "frees as much" not in why and "held by" not in why, "no end of any job helps"

    # a flavor, a ClusterQueue and a LocalQueue that do not exist
    await api.create(
        harness.job("unflavored", "broken"), harness.job("led-nowhere", "lost"), harness.job("lost", "none")
    )
    why = await asking.until("submit it to queue mine", "why", "unflavored")
    assert "ClusterQueue broken has to become active" in why and "missing ResourceFlavor(s): not-there" in why
    assert "not-there" not in await asking.said("nodes"), "a flavor that does not exist has no nodes"
    assert "ClusterQueue nowhere, which its LocalQueue lost names, has to be created" in await asking.until(
        "nowhere", "why", "led-nowhere"
    )
    assert "a LocalQueue 'none' in namespace default" in await asking.until("'none'", "why", "lost")
    for words in ("broken is inactive", "ClusterQueue nowhere doesn't exist", "LocalQueue none doesn't exist"):
        await asking.until(words, "queue")

    # GPUs that are given twice and differ; a policy that names no queue, and one that another outranks
    twice = harness.gpu_job("twice", "mine", gpus=8)
    twice["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "4"}}
    with pytest.raises(ApiError, match="gpusPerWorker"):
        await api.create(twice)
    nothing, first, second = (
        harness.queue_policy(name, queue, backfill={"depth": 1})
        for name, queue in (("nothing", "not-there"), ("first", "small"), ("second", "small"))
    )
    await api.apply(nothing, first, second)

    async def in_statuses() -> bool:
        found = {
            name: str((await api.get(kube.QUEUE_POLICIES, name, "")).get("status")) for name in ("nothing", "second")
        }
        return "not-there" in found["nothing"] and "first" in found["second"]

    await api.until(
        in_statuses, "policies tell of names that match nothing, and of the policy that is in force instead"
    )

    async def shows_its_policy() -> bool:
        return (
            harness.condition_row(await api.get(kube.CLUSTER_QUEUES, "small", ""), "QueuePolicy").get("reason")
            is not None
        )

    await api.until(shows_its_policy, "the ClusterQueue shows its policy")
    for name in ("nothing", "first", "second"):
        await api.client.delete(kube.QUEUE_POLICIES, None, name)


async def test_what_keeps_room_from_a_job_is_told_with_what_helps(api: harness.Api, asking: Asking) -> None:
    # quota of its own that others borrow, and that policy does not let it take back
    owner = harness.cluster_queue("owner", 8, cohort="lab", preemption={"reclaimWithinCohort": "Never"})
    await api.apply(
        *(
            harness.flavor(),
            owner,
            harness.cluster_queue("borrower", 0, cohort="lab"),
            harness.local_queue("owned", "owner"),
        ),
        harness.local_queue("theirs", "borrower", SECRET),
    )
    await api.create(harness.job(f"{SECRET}-runs", "theirs", gpus=8, runtime="600s", namespace=SECRET))

    async def borrowed() -> bool:
        found = await api.workload_of(f"{SECRET}-runs", SECRET)
        return found is not None and harness.condition(found, "Admitted")

    await api.until(borrowed, "the other team borrows")
    await api.create(harness.job("deprived", "owned", gpus=8, runtime="60s"))
    why = await asking.until("reclaimWithinCohort: Never keeps the queue from taking its own back", "why", "deprived")
    assert "hidden-" in why and "(an administrator): starts now" in why

    # a node that takes no new work: healthy capacity is what is short, not quota
    await api.client.patch(kube.NODES, None, NODE, {"spec": {"unschedulable": True}})
    try:

        async def is_seen() -> bool:
            nodes = json.loads(await asking.said("nodes", "-o", "json"))
            return any(each["metadata"]["name"] == NODE and each["trouble"] for each in nodes)

        await api.until(is_seen, "the operator sees that the node takes no new work")
        await api.create(harness.job("homeless", "mine", gpus=8, runtime="600s"))
        why = await asking.until(f"kubectl uncordon {NODE}", "why", "homeless")
        assert "frees as much" not in why and "the end of" not in why, "no end of any job helps"
    finally:
        await api.client.patch(kube.NODES, None, NODE, {"spec": {"unschedulable": None}})
    await asking.until("Running", "queue", "--queue", "mine")

    # one that could shrink does not hear that it never fits
    shrinks = harness.job("shrinks", "mine", pods=16, runtime="600s")
    shrinks["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "4"}
    await api.create(shrinks)
    why = await asking.until("it starts with fewer pods (at least 25 % of them)", "why", "shrinks")
    assert "never fit" not in why and "Never fits" not in await asking.said("queue")


async def test_who_does_not_wait_is_told_so(api: harness.Api, asking: Asking) -> None:
    # a job that has ended waits for nothing
    await api.create(harness.job("quick", "mine"))
    await api.finished("quick")
    why = await asking.until("Succeeded", "why", "quick")
    assert "waiting in" not in why and "remedies" not in why
    assert "Succeeded" in await asking.said("queue", "--finished")
    assert "it has succeeded" in await asking.said("eta", "quick")
    (run,) = json.loads(await asking.said("history", "-o", "json"))
    assert run["jobName"] == "quick"

    # inactive: by whom, and what queues it again
    await api.create(harness.job("runs", "mine", gpus=8, runtime="600s"), harness.job("idle", "mine", gpus=8))
    await asking.until("Pending", "queue")
    workload = await api.workload_of("idle")
    assert workload is not None
    await api.client.patch(kube.WORKLOADS, "default", workload["metadata"]["name"], {"spec": {"active": False}})
    why = await asking.until("a user deactivated it", "why", "idle")
    assert "to queue it again" in why and "Inactive" in await asking.said("queue")

    # a GPUJob outside of any queue runs, and is not said to be left to wait
    free = harness.gpu_job("free", "", simulated="600s")
    del free["metadata"]["labels"]
    await api.create(free)
    why = await asking.until("kubectl label gpujob free", "why", "free")
    assert "Not managed" in await asking.until("free", "queue")

    # commands that need no list of other namespaces
    assert (await asking.said("admin", "swap", "list", "-o", "json")).strip() == "[]"
    assert "ClusterQueue" in await asking.said("share", "-o", "wide")
    await asking.said("limits")
    await asking.said("admin", "audit", "-o", "json")
