"""Remedies are followed on a cluster: of each it is said that the job starts now, and it does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, ROOT

from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
#: of 8 GPUs, which the flavor `one` selects
NODE: Final = "gpu-3"


@dataclass(frozen=True)
class Situation:
    """A job `waits`, and a remedy of this kind is to be followed."""

    kind: str
    objects: tuple[Json, ...]
    waits: Json
    runs: tuple[Json, ...] = ()
    cordoned: bool = False


def queue(name: str, gpus: int, **spec: Any) -> Json:
    return harness.cluster_queue(name, gpus, flavors=("one",), **spec)


def limited(name: str, gpus: int, **spec: Any) -> Json:
    """It may not borrow."""
    made = queue(name, gpus, **spec)
    made["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = "0"
    return made


def job(name: str, gpus: int, *, local: str = "mine", **options: Any) -> Json:
    made = harness.job(name, local, gpus=gpus, runtime="600s", **options)
    made["metadata"]["annotations"] = {"gangline.io/expected-runtime": "20m"}
    return made


MINE = harness.local_queue("mine", "q")
THEIRS = harness.local_queue("theirs", "r")
LOWER = {"withinClusterQueue": "LowerPriority"}

SITUATIONS: Final = (
    Situation(
        "priority",
        (queue("q", 8, preemption=LOWER), MINE),
        job("waits", 8, priority="low"),
        (job("runs", 8, priority="low"),),
    ),
    Situation("end", (queue("q", 8), MINE), job("waits", 8), (job("runs", 8),)),
    Situation("nominalQuota one", (queue("q", 4), MINE), job("waits", 4), (job("runs", 4),)),
    Situation(
        "borrowingLimit one",
        (limited("q", 4, cohort="lab"), queue("r", 4, cohort="lab"), MINE),
        job("waits", 4),
        (job("runs", 4),),
    ),
    Situation(
        "reclaim",
        (queue("q", 8, cohort="lab"), queue("r", 0, cohort="lab"), MINE, THEIRS),
        job("waits", 8),
        (job("runs", 8, local="theirs"),),
    ),
    Situation("preemption", (queue("q", 8), MINE), job("waits", 8, priority="high"), (job("runs", 8, priority="low"),)),
    Situation("uncordon", (queue("q", 8), MINE), job("waits", 8), cordoned=True),
    Situation("stopPolicy", (queue("q", 8, stopPolicy="Hold"), MINE), job("waits", 8)),
    Situation("smaller", (queue("q", 8), MINE), job("waits", 8), (job("runs", 4),)),
    Situation("queue", (queue("q", 4), queue("r", 4), MINE, THEIRS), job("waits", 4), (job("runs", 4),)),
    Situation("fewer", (queue("q", 8), MINE), job("waits", 4, pods=2), (job("runs", 4),)),
)


async def follow(api: harness.Api, situation: Situation, change: str) -> None:
    """What the sentence says, as a person would do it."""
    waits = situation.waits
    match situation.kind:
        case "priority":
            assert change.startswith("priority class ") and change.endswith(" instead of 10)")
            chosen = change.split()[2]  # other tests may have left classes between ours
            await api.client.patch(kube.JOBS, "default", "waits", {"metadata": {"labels": {PRIORITY: chosen}}})
        case "end":
            assert change == "the end of runs"
            await api.client.delete(kube.JOBS, "default", "runs", propagation="Background")
        case "nominalQuota one":
            assert change == "nominalQuota of one in ClusterQueue q +4 nvidia.com/gpu"
            await api.apply(queue("q", 8))
        case "borrowingLimit one":
            assert change == "borrowingLimit of one in ClusterQueue q +4 nvidia.com/gpu"
            await api.apply(queue("q", 4, cohort="lab"))
        case "reclaim":
            assert change == "reclaimWithinCohort of ClusterQueue q: Any instead of Never"
            await api.apply(queue("q", 8, cohort="lab", preemption={"reclaimWithinCohort": "Any"}))
        case "preemption":
            assert change == "withinClusterQueue of ClusterQueue q: LowerPriority instead of Never"
            await api.apply(queue("q", 8, preemption=LOWER))
        case "uncordon":
            assert change == f"kubectl uncordon {NODE}"
            await cordon(api, on=False)
        case "stopPolicy":
            assert change == "stopPolicy of ClusterQueue q: None instead of Hold"
            await api.apply(queue("q", 8, stopPolicy="None"))
        case "smaller":
            assert change == "ask for 4 GPUs instead of 8"
            await replace(api, job("waits", 4))
        case "queue":
            assert change == "submit it to queue theirs (ClusterQueue r)"
            await replace(api, job("waits", 4, local="theirs"))
        case "fewer":
            assert "kueue.x-k8s.io/job-min-parallelism" in change
            fewer = job("waits", 4, pods=2)
            fewer["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = "1"
            await replace(api, fewer)
        case other:
            raise AssertionError(other, waits)


PRIORITY: Final = "kueue.x-k8s.io/priority-class"


async def replace(api: harness.Api, changed: Json) -> None:
    """Delete the job that waits and submit it anew."""
    await api.client.delete(kube.JOBS, "default", "waits", propagation="Background")

    async def gone() -> bool:
        return await api.workload_of("waits") is None and not await api.all(kube.JOBS, "default", "job-name=waits")

    await api.until(gone, "the job is deleted")
    await api.create(changed)


async def cordon(api: harness.Api, *, on: bool) -> None:
    await api.client.patch(kube.NODES, None, NODE, {"spec": {"unschedulable": on or None}})


async def holds_quota(api: harness.Api, name: str) -> bool:
    workload = await api.workload_of(name)
    return workload is not None and harness.condition(workload, "Admitted")


async def test_what_is_said_to_let_a_job_start_lets_it_start(system: System, api: harness.Api, tmp_path: Path) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator("remedies", visibility=HERE, forecasts=forecasts).wait_ready()
    for situation in SITUATIONS:
        await api.apply(
            *(harness.flavor("one", {"kubernetes.io/hostname": NODE}), *situation.objects),
            *(harness.priority_class("low", 10), harness.priority_class("high", 1000)),
        )
        await cordon(api, on=situation.cordoned)
        try:
            await played(api, situation)
        finally:
            await cordon(api, on=False)
        await api.wipe()


async def played(api: harness.Api, situation: Situation) -> None:
    for running in situation.runs:
        await api.create(running)
        await api.until(lambda: holds_quota(api, "runs"), f"{situation.kind}: the other job runs")
    await api.create(situation.waits)

    async def offered() -> str | None:
        answer = json.loads(await api.client.raw(f"{ROOT}/namespaces/default/queuedjobs/waits/remedies"))
        for remedy in answer["remedies"]:
            if remedy["kind"] == situation.kind and remedy["startsInSeconds"]["p50"] < 1:
                return str(remedy["change"])
        return None

    change = await api.until(offered, f"{situation.kind}: it is offered")
    assert not await holds_quota(api, "waits"), situation.kind
    await follow(api, situation, change)
    await api.until(lambda: holds_quota(api, "waits"), f"{situation.kind}: {change}")

    async def runs() -> bool:
        pods = await api.all(kube.PODS, "default", "job-name=waits")
        return bool(pods) and all(pod["status"].get("phase") == "Running" for pod in pods)

    await api.until(runs, f"{situation.kind}: its pods run")
