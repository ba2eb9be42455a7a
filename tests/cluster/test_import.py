"""`gangline admin import`: jobs that run outside of any queue are adopted as they run, and are jobs like others from then on."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue

from gangline.console.cli import main
from gangline.console.importing import adopting
from gangline.console.importing.adopting import HandingOver
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
NAMESPACE = "imported"


def running(name: str, *, pods: int, team: str, runtime: str = "") -> Json:
    """A Job that names no queue."""
    body = job(name, "", pods=pods, runtime=runtime, namespace=NAMESPACE)
    body["metadata"]["labels"] = {"team": team}
    return body


async def imported(system: System, *options: str) -> tuple[int, Json]:
    """Exit status and answer of the command."""
    command = ["admin", "import", "-n", NAMESPACE, "--queuelabel", "team", "--queuemapping", "vision=lq", "-o", "json"]
    command += ["--kubeconfig", str(system.kubeconfig), *options]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.output)


async def test_running_jobs_are_adopted_without_a_restart(system: System, api: Api) -> None:
    with suppress(Conflict):
        await api.client.create(
            kube.NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
    await api.apply(flavor(), cluster_queue("vision", 4), local_queue("lq", "vision", NAMESPACE))
    await api.create(running("train", pods=3, team="vision"), running("other", pods=1, team="speech"))

    async def pods() -> list[Json]:
        found = await api.all(kube.PODS, NAMESPACE)
        return found if len(found) == 4 and all(pod["spec"].get("nodeName") for pod in found) else []

    before = {pod["metadata"]["uid"] for pod in await api.until(pods, "all pods run")}
    system.operator("importing").wait_ready()

    status, said = await imported(system)
    assert status == 1, "one job belongs to no queue"
    assert [(row["job"], row["localQueue"], row["flavors"]) for row in said["adoptions"]] == [
        ("job/imported/train", "lq", {"main": {"nvidia.com/gpu": "gpu"}})
    ]
    assert [(row["job"], row["reason"]) for row in said["skipped"]] == [("job/imported/other", "no rule matches it")]
    assert not await api.all(kube.WORKLOADS, NAMESPACE), "a dry run writes nothing"

    status, said = await imported(system, "--dry-run=false", "--add-labels", "adopted=yes")
    assert [row["error"] for row in said["adoptions"]] == [""]

    async def adopted() -> Json | None:
        workload = await api.workload_of("train", NAMESPACE)
        return workload if workload and condition(workload, "PodsReady") else None

    workload = await api.until(adopted, "the operator manages it")
    assert condition_row(workload, "Admitted")["reason"] == "Imported"
    assert workload["metadata"]["labels"]["adopted"] == "yes"
    assert "kueue.x-k8s.io/admission-gated-by" not in workload["metadata"].get("annotations", {})
    stored = await api.get(kube.JOBS, "train", NAMESPACE)
    assert stored["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lq"
    assert {pod["metadata"]["uid"] for pod in await api.all(kube.PODS, NAMESPACE)} == before, "no pod was restarted"

    # its quota counts: one of four GPUs is left
    await api.create(job("wide", "lq", pods=2, namespace=NAMESPACE), job("narrow", "lq", namespace=NAMESPACE))
    await api.finished("narrow", namespace=NAMESPACE)
    wide = await api.workload_of("wide", NAMESPACE)
    assert wide is not None and not condition(wide, "Admitted")

    # another run changes nothing
    _, said = await imported(system, "--dry-run=false")
    assert said["adoptions"] == []
    assert {row["reason"] for row in said["skipped"] if not row["fault"]} >= {"it is in its queue already"}

    # it is a job like others: deactivated, it stops and frees its quota
    name = workload["metadata"]["name"]
    await api.client.patch(kube.WORKLOADS, NAMESPACE, name, {"spec": {"active": False}})
    await api.finished("wide", namespace=NAMESPACE)
    assert (await api.get(kube.JOBS, "train", NAMESPACE))["spec"]["suspend"]
    await api.wipe(NAMESPACE)


async def test_an_import_that_was_interrupted_is_completed_by_the_next(
    system: System, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with suppress(Conflict):
        await api.client.create(
            kube.NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
    await api.apply(flavor(), cluster_queue("vision", 4), local_queue("lq", "vision", NAMESPACE))
    await api.create(running("train", pods=2, team="vision"))
    system.operator("importing").wait_ready()

    async def pods() -> set[str]:
        found = [pod for pod in await api.all(kube.PODS, NAMESPACE) if pod["spec"].get("nodeName")]
        return {pod["metadata"]["uid"] for pod in found} if len(found) == 2 else set()

    before = await api.until(pods, "both pods run")

    async def end(*arguments: object) -> None:
        raise RuntimeError("the process was ended")

    for place, step in ((adopting, "_admitted"), (adopting, "_ungated"), (HandingOver, "hand_over")):
        with monkeypatch.context() as broken:
            broken.setattr(place, step, end)
            command = ["admin", "import", "-n", NAMESPACE, "--queuelabel", "team", "--queuemapping", "vision=lq"]
            result = await asyncio.to_thread(
                CliRunner().invoke, main, [*command, "--dry-run=false", "--kubeconfig", str(system.kubeconfig)]
            )
            assert isinstance(result.exception, RuntimeError)
        await asyncio.sleep(0.5)  # what the operator makes of it
        assert await pods() == before, f"before {step}"
    status, said = await imported(system, "--dry-run=false")
    assert (status, [row["error"] for row in said["adoptions"]]) == (0, [""])

    async def managed() -> bool:
        workload = await api.workload_of("train", NAMESPACE)
        return workload is not None and condition(workload, "PodsReady")

    await api.until(managed, "the operator manages it")
    assert await pods() == before
    await api.wipe(NAMESPACE)
