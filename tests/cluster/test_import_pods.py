"""`gangline admin import`: plain pods, pod groups, Deployments and StatefulSets that run without a queue are adopted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition, condition_row, job
from tests.cluster.queued_pods import pod
from tests.cluster.serving import deployment, leader_worker_set, queueing_of, stateful_set, used

from gangline.api import names
from gangline.api.jobkinds import own
from gangline.api.read import configuration
from gangline.console.cli import main
from gangline.console.importing import adopting
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod", *(each.framework for each in own.SERVING_KINDS)]},
}
JOBS = configuration.load(CONFIGURATION).jobs
NAMESPACE = "default"


@pytest.fixture
async def queueing(system: System, api: Api, tmp_path: Path) -> AsyncIterator[System]:
    """Operator and webhooks queue pods and what serves; a queue of 8 GPUs."""
    async with queueing_of(system, api, tmp_path, CONFIGURATION, 8):
        system.operator(jobs=JOBS).wait_ready()
        (tmp_path / "import.yaml").write_text(yaml.safe_dump(CONFIGURATION))
        yield system


def command(system: System, directory: Path, *options: str) -> list[str]:
    chosen = ["admin", "import", "-n", NAMESPACE, "--queuelabel", "team", "--queuemapping", "vision=lq", "-o", "json"]
    chosen += ["--config", str(directory / "import.yaml"), "--kubeconfig", str(system.kubeconfig)]
    return [*chosen, *options]


async def imported(system: System, directory: Path, *options: str) -> tuple[int, Json]:
    """Exit status and answer of the command."""
    result = await asyncio.to_thread(CliRunner().invoke, main, command(system, directory, *options))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.output)


def of_team(obj: Json) -> Json:
    labels = obj["metadata"].setdefault("labels", {})
    labels.pop(names.QUEUE_NAME, None)
    labels["team"] = "vision"
    return obj


def gang(name: str, total: int, **given: Any) -> list[Json]:
    return [of_team(pod(f"{name}-{i}", "", group=name, total=total, **given)) for i in range(total)]


async def running(api: Api, count: int) -> dict[str, str]:
    """Name -> UID of all pods, once so many run."""

    async def found() -> dict[str, str]:
        pods = [each for each in await api.all(kube.PODS, NAMESPACE) if each["status"].get("phase") == "Running"]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods} if len(pods) == count else {}

    return await api.until(found, f"{count} pods run")


async def workloads(api: Api) -> dict[str, Json]:
    """Those that have not finished, by the part of their names before the digest."""
    found = await api.all(kube.WORKLOADS, NAMESPACE)
    return {each["metadata"]["name"]: each for each in found if not condition(each, "Finished")}


async def test_pods_and_groups_are_adopted_as_they_run_and_free_their_quota_when_they_end(
    queueing: System, api: Api, tmp_path: Path
) -> None:
    await api.create(of_team(pod("alone", "", gpus=2)), of_team(pod("short", "", runtime="15s")), *gang("g", 3))
    before = await running(api, 5)
    status, said = await imported(queueing, tmp_path)
    assert status == 0, said
    assert sorted((row["job"], row["workload"][:4]) for row in said["adoptions"]) == [
        ("pod/default/alone", "pod-"),
        ("pod/default/short", "pod-"),
        ("podgroup/default/g", "g"),
    ]
    assert not await api.all(kube.WORKLOADS, NAMESPACE), "a dry run writes nothing"

    status, said = await imported(queueing, tmp_path, "--dry-run=false")
    assert (status, [row["error"] for row in said["adoptions"]]) == (0, ["", "", ""])

    async def managed() -> bool:
        found = await workloads(api)
        short = [each for each in await api.all(kube.WORKLOADS, NAMESPACE) if "short" in each["metadata"]["name"]]
        ours = [each for name, each in found.items() if "short" not in name]
        return len(ours) == 2 and all(condition(each, "PodsReady") for each in ours) and len(short) == 1

    await api.until(managed, "the operator manages them")
    assert {name: uid for name, uid in before.items() if name != "short"}.items() <= {
        each["metadata"]["name"]: each["metadata"]["uid"] for each in await api.all(kube.PODS, NAMESPACE)
    }.items(), "nothing was started anew"
    group = (await workloads(api))["g"]
    assert condition_row(group, "Admitted")["reason"] == "Imported"
    assert group["metadata"]["annotations"][names.IS_GROUP_WORKLOAD] == "true"
    assert len(group["metadata"]["ownerReferences"]) == 3

    # a pod that ends frees its quota, and so does one that is deleted
    async def short_finished() -> bool:
        found = [each for each in await api.all(kube.WORKLOADS, NAMESPACE) if "short" in each["metadata"]["name"]]
        return len(found) == 1 and condition(found[0], "Finished")

    await api.until(short_finished, "the Workload of the pod that has ended is finished", 60)
    queueing.kill_operators()
    await api.client.delete(kube.PODS, NAMESPACE, "alone")
    queueing.operator("second", jobs=JOBS).wait_ready()

    async def uses_three() -> bool:
        return await used(api) == 3 and len(await workloads(api)) == 1

    await api.until(uses_three, "the pod's quota is free, also after its operator died")

    # another run changes nothing
    _, said = await imported(queueing, tmp_path, "--dry-run=false")
    assert said["adoptions"] == []

    # a group like others: a job of a higher priority preempts it as a whole
    await api.create(job("urgent", "lq", pods=8, runtime="1s", priority="high"))
    await api.finished("urgent")
    left = await api.all(kube.PODS, NAMESPACE, f"{names.POD_GROUP}=g")
    assert len(left) == 3 and all("deletionTimestamp" in each["metadata"] for each in left), "they keep their places"
    await api.client.delete(kube.WORKLOADS, NAMESPACE, "g")


async def test_what_serves_is_adopted_without_a_roll_out_and_queues_from_then_on(
    queueing: System, api: Api, tmp_path: Path
) -> None:
    await api.create(of_team(deployment("web", "", 3)), of_team(stateful_set("db", "", 2, policy="Parallel")))
    before = await running(api, 5)

    async def at_rest() -> bool:
        _, said = await imported(queueing, tmp_path)
        return len(said["adoptions"]) == 4 and not any(row["fault"] for row in said["skipped"])

    await api.until(at_rest, "both can be adopted")
    status, said = await imported(queueing, tmp_path, "--dry-run=false", "--add-labels", "adopted=yes")
    assert (status, [row["error"] for row in said["adoptions"]]) == (0, [""] * 4), said

    async def managed() -> bool:
        found = await workloads(api)
        return len(found) == 4 and all(condition(each, "PodsReady") for each in found.values())

    await api.until(managed, "the operator manages them")
    assert await used(api) == 5
    await asyncio.sleep(3)  # time for a roll-out that must not come
    assert await running(api, 5) == before, "nothing was started anew"
    web, db = await api.get(kube.DEPLOYMENTS, "web"), await api.get(kube.STATEFUL_SETS, "db")
    assert not web["spec"].get("paused")
    assert db["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    for obj in (web, db):
        assert names.IMPORTING not in obj["metadata"].get("annotations", {})
        assert obj["metadata"]["labels"] | {"adopted": "yes", names.QUEUE_NAME: "lq"} == obj["metadata"]["labels"]
    assert len(await api.all(kube.REPLICA_SETS, NAMESPACE)) == 1

    # what is made from now on waits: the ninth GPU is one too many
    await api.client.patch(kube.DEPLOYMENTS, NAMESPACE, "web", {"spec": {"replicas": 7}})

    async def one_waits() -> bool:
        pods = await api.all(kube.PODS, NAMESPACE, "app=web")
        return len(pods) == 7 and sum(bool(each["spec"].get("schedulingGates")) for each in pods) == 1

    await api.until(one_waits, "six pods have quota, and one waits")
    await api.client.delete(kube.PODS, NAMESPACE, "db-0")

    async def replaced() -> bool:
        found = [each for each in await api.all(kube.PODS, NAMESPACE, "app=db") if each["metadata"]["name"] == "db-0"]
        return bool(found) and found[0]["metadata"]["uid"] != before["db-0"] and condition(found[0], "Ready")

    await api.until(replaced, "its StatefulSet has made the pod again, within its quota")
    assert (await api.get(kube.PODS, "db-1"))["metadata"]["uid"] == before["db-1"]
    assert await used(api) == 8
    _, said = await imported(queueing, tmp_path, "--dry-run=false")
    assert said["adoptions"] == []


async def test_a_leader_worker_set_rolls_out_into_its_queue_group_by_group(
    queueing: System, api: Api, tmp_path: Path
) -> None:
    await api.create(of_team(leader_worker_set("llm", "", 3, 2)))
    before = await running(api, 6)
    status, said = await imported(queueing, tmp_path, "--dry-run=false")
    assert (status, said["rollOuts"]) == (1, [])
    assert "--roll-out" in said["skipped"][0]["reason"]
    status, said = await imported(queueing, tmp_path, "--dry-run=false", "--roll-out")
    [row] = said["rollOuts"]
    assert (status, row["job"], row["error"]) == (0, "leaderworkerset/default/llm", ""), said

    async def rolled_out() -> bool:
        pods = [each for each in await api.all(kube.PODS, NAMESPACE) if condition(each, "Ready")]
        return len(pods) == 6 and not {each["metadata"]["uid"] for each in pods} & set(before.values())

    await api.until(rolled_out, "all groups run anew", 120)

    async def managed() -> bool:
        found = await workloads(api)
        return len(found) == 3 and all(condition(each, "PodsReady") for each in found.values())

    await api.until(managed, "the operator manages them")
    assert await used(api) == 6
    assert names.IMPORTING not in (await api.get(kube.LEADER_WORKER_SETS, "llm"))["metadata"].get("annotations", {})
    _, said = await imported(queueing, tmp_path, "--dry-run=false", "--roll-out")
    assert (said["rollOuts"], said["skipped"][0]["reason"]) == ([], "it is in its queue already")


async def test_an_import_of_pods_that_was_interrupted_anywhere_is_completed_by_the_next(
    queueing: System, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create(
        *(of_team(obj) for obj in (pod("alone", ""), deployment("web", "", 2), stateful_set("db", "", 2))),
        *gang("g", 2),
    )
    before = await running(api, 7)

    async def at_rest() -> bool:
        _, said = await imported(queueing, tmp_path)
        return len(said["adoptions"]) == 5

    await api.until(at_rest, "all can be adopted")

    async def end(*arguments: object, **named: object) -> None:
        raise RuntimeError("the process was ended")

    target = adopting._Target  # pyright: ignore[reportPrivateUsage]
    handing = adopting.HandingOver
    places = ((handing, "hand_over"), (target, "until_observed"), (adopting, "_mark_pod"), (target, "restore"))
    for place, step in (*places, (handing, "_pod")):
        with monkeypatch.context() as broken:
            broken.setattr(place, step, end)
            broken.setattr(
                handing, "_pod", end
            )  # what is handed over beside it may be quicker: something is always left
            result = await asyncio.to_thread(CliRunner().invoke, main, command(queueing, tmp_path, "--dry-run=false"))
            assert isinstance(result.exception, RuntimeError)
        await asyncio.sleep(0.5)  # what the operator and the controllers make of it
        assert await running(api, 7) == before, f"before {step}"
    queueing.kill_operators()
    status, said = await imported(queueing, tmp_path, "--dry-run=false")
    assert (status, {row["error"] for row in said["adoptions"]}) == (0, {""}), said
    queueing.operator("second", jobs=JOBS).wait_ready()

    async def managed() -> bool:
        found = await workloads(api)
        return len(found) == 5 and all(condition(each, "PodsReady") for each in found.values())

    await api.until(managed, "the operator manages them")
    assert await running(api, 7) == before
    assert await used(api) == 7
    for name in await workloads(api):
        if name == "g" or name.startswith("pod-alone"):
            await api.client.delete(kube.WORKLOADS, NAMESPACE, name)
