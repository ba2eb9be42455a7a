"""A real training of four ranks on real nodes: it goes on from its checkpoint after lost nodes, preemptions and maintenances."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

import pytest
from tests.cluster.harness import Api, condition
from tests.controlplane import Kubectl
from tests.real.conftest import Field, manifests

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.devcluster.building import build
from gangline.kube import resources as kube

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("real-nodes"), pytest.mark.timeout(600)]

Json = dict[str, Any]
EVERY = 10  # steps between two checkpoints
SAME = 1e-4
#: says in a pod with what status a report of progress is answered
REPORT = """
import os, urllib.request
request = urllib.request.Request(os.environ["GANGLINE_PROGRESS_URL"], b'{"step": 1}', {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=5).status)
"""


def gang(name: str, *, steps: int, priority: str, saves_within: float = 0.0) -> Json:
    """A gang of the example, with fewer and faster steps."""
    [made] = manifests({"ddp": "20-gpujob.yaml", "ddp-urgent": "30-jobset.yaml"}[name])
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
    spec = made["spec"]
    template = (
        spec["replicatedJobs"][0]["template"]["spec"]["template"] if "replicatedJobs" in spec else spec["template"]
    )
    arguments = [f"--dir=/checkpoints/{name}", f"--steps={steps}", f"--checkpoint-every={EVERY}", "--pace=0.1"]
    arguments += [f"--save-within={saves_within}"] if saves_within else []
    template["spec"]["containers"][0]["args"] = arguments
    return made


async def test_trainings_go_on_after_lost_nodes_and_a_preemption(field: Field, api: Api) -> None:
    steps = 120
    await api.apply(gang("ddp", steps=steps, priority="ddp-normal"))
    await reaches(field, api, "ddp", run=1, step=EVERY + 2)
    kubectl = Kubectl(build.kubectl(), field.plane.kubeconfig)
    pod = (await rank_0(api))["metadata"]["name"]
    output = await asyncio.to_thread(kubectl, "-n", "training", "exec", pod, "--", "python3", "-c", REPORT)
    assert output.strip() == "204", "reports of progress are taken"
    await loses_its_node(field, api, "ddp")

    await api.apply(gang("ddp-urgent", steps=steps // 2, priority="ddp-urgent"))
    await reaches(field, api, "ddp-urgent", run=1, step=EVERY + 2)
    assert not [pod for pod in await up(api) if names.GPUJOB_LABEL in pod["metadata"]["labels"]], "it was preempted"
    await loses_its_node(field, api, "ddp-urgent")
    await reaches(field, api, "ddp-urgent", run=2, step=steps // 2)

    await reaches(field, api, "ddp", run=3, step=steps)
    assert field.started_at("ddp", 3) == field.last("ddp", 2), "when its stop was requested, it saved its last step"
    for name, last in (("ddp", steps), ("ddp-urgent", steps // 2)):
        curve = losses_of(field, name)
        assert sorted(curve) == list(range(1, last + 1)), "no step is missing"
        assert sum(curve[step] for step in range(last - 9, last + 1)) < 0.5 * sum(curve[step] for step in range(1, 11))
        await api.until(lambda name=name: finished(api, name), f"{name} has finished", 20)


async def test_a_training_saves_just_before_a_maintenance_and_goes_on_elsewhere_and_after_it(
    field: Field, api: Api
) -> None:
    """First on nodes that are left, and then, when a maintenance takes all of them, after its window."""
    await api.apply(gang("ddp", steps=100_000, priority="ddp-normal", saves_within=4.0))
    await reaches(field, api, "ddp", run=1, step=EVERY + 2)
    before = sorted({pod["spec"]["nodeName"] for pod in await up(api)})
    assert len(before) == 2, "two ranks on a node"

    await api.create(maintenance("one", before[0], ahead=40, lasts=25))
    saved, by = await saves_in_time(field, api, run=1)
    await reaches(field, api, "ddp", run=2, step=saved)
    assert saved <= field.started_at("ddp", 2) <= field.last("ddp", 1), "it goes on from what it has saved"
    assert before[0] not in {pod["spec"]["nodeName"] for pod in await up(api)}
    assert time.time() < by + 25, "it has not waited for the window's end"
    node = await api.get(kube.NODES, before[0])
    assert node["spec"].get("unschedulable") and node["metadata"]["annotations"][names.CORDONED_FOR] == "one"
    await api.until(lambda: schedulable(api, before[0]), "the node is given back", 60)

    every = [node["metadata"]["name"] for node in await api.all(kube.NODES)]
    await api.create(maintenance("all", *every, ahead=40, lasts=20))
    saved, by = await saves_in_time(field, api, run=2)
    await api.until(lambda: none_is_up(api), "the nodes are empty in the window", 30)
    assert time.time() < by + 20
    for node in every:
        await api.until(lambda node=node: schedulable(api, node), f"{node} is given back", 60)
    await reaches(field, api, "ddp", run=3, step=saved)
    assert saved <= field.started_at("ddp", 3) <= field.last("ddp", 2)
    events = [row for row in await api.all(kube.EVENTS, "training") if row.get("reason") == "SaveBy"]
    assert len(events) >= 2, "each deadline is an event, too"


def maintenance(name: str, *nodes: str, ahead: int, lasts: int) -> Json:
    """Jobs are stopped five seconds before the window, and warned 30 seconds before that."""
    start = (int(time.time()) + ahead) * 1000
    window = {"start": timestamp(start), "end": timestamp(start + lasts * 1000)}
    spec = {"window": window, "nodes": {"names": list(nodes)}, "notice": "30s", "stopBefore": "5s"}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}


async def saves_in_time(field: Field, api: Api, run: int) -> tuple[int, float]:
    """The step that rank 0 saves because of the warning, and by when it had to, in seconds since the epoch."""

    def saved_row() -> Json | None:
        return next((row for row in field.losses("ddp") if row["run"] == run and "saves" in row), None)

    async def saves() -> bool:
        return saved_row() is not None

    await api.until(saves, f"it saves for the maintenance in run {run}", 60, namespace="training")
    row = saved_row()
    assert row is not None
    by = datetime.fromisoformat(row["by"]).timestamp()
    assert by - 5 <= row["time"] <= by, "as late as it was to, and in time"
    return row["saves"], by


async def schedulable(api: Api, node: str) -> bool:
    found = await api.get(kube.NODES, node)
    return not found["spec"].get("unschedulable")


async def none_is_up(api: Api) -> bool:
    return not await up(api)


async def loses_its_node(field: Field, api: Api, gang: str) -> None:
    """The node of rank 0 is cut off: the gang goes on with another node from its last checkpoint."""
    assert field.plane.real is not None
    node = (await rank_0(api))["spec"]["nodeName"]
    field.plane.real.cut_node(node)
    await reaches(field, api, gang, run=2, step=EVERY + 5)
    before = field.last(gang, 1)
    assert before - EVERY <= field.started_at(gang, 2) <= before, "only steps since the last checkpoint are done again"
    assert node not in {pod["spec"]["nodeName"] for pod in await up(api)}


def losses_of(field: Field, gang: str) -> dict[int, float]:
    """Step -> loss. A step that was done again had the same loss."""
    curve: dict[int, float] = {}
    for row in field.losses(gang):
        if "step" in row:
            known = curve.setdefault(row["step"], row["loss"])
            assert abs(known - row["loss"]) <= SAME * known, row
    return curve


async def reaches(field: Field, api: Api, gang: str, *, run: int, step: int) -> None:
    async def done() -> bool:
        return field.last(gang, run) >= step

    try:
        await api.until(done, f"{gang} does step {step} in run {run}", 60)
    except AssertionError:
        print(field.losses(gang)[-3:], field.services.log("operator").read_text()[-4000:])
        print(await api.scene("training"))
        raise


async def up(api: Api) -> list[Json]:
    pods = await api.all(kube.PODS, "training")
    return [
        pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


async def rank_0(api: Api) -> Json:
    index = "batch.kubernetes.io/job-completion-index"
    return next(pod for pod in await up(api) if pod["metadata"]["labels"][index] == "0")


async def finished(api: Api, job: str) -> bool:
    workload = await api.workload_of(job, "training")
    if workload is None or not condition(workload, "Finished"):
        return False
    assert condition(workload, "PodsReady"), "ranks that completed before others have not failed"
    return True
