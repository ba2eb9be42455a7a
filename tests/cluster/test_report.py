"""The report of a cluster: its GPU-hours are those that the conditions of the Workloads tell, whatever happened to the jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System

from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError

pytestmark = pytest.mark.cluster
#: GPU-hours of 6 GPUs in the 3 s by which instants of conditions, which are whole seconds, and of watches differ
SECONDS_OFF = 6 * 3 / 3600
Json = dict[str, Any]
HERE = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
OTHER = "team-two"
#: job -> namespace and GPUs
JOBS = {"train": ("default", 6), "probe": (OTHER, 2), "urgent": (OTHER, 6)}


@dataclass
class Conditions:
    """What a stranger sees who looks at Workloads again and again: since when each held quota, and until when."""

    api: harness.Api
    held: dict[tuple[str, float], float | None] = field(default_factory=dict)

    async def watch(self) -> None:
        while True:
            with contextlib.suppress(ApiError):
                for job, (namespace, _) in JOBS.items():
                    self._note(job, await self.api.workload_of(job, namespace))
            await asyncio.sleep(0.2)

    def _note(self, job: str, workload: Json | None) -> None:
        running = [key for key, until in self.held.items() if key[0] == job and until is None]
        if workload is None:
            self.held |= dict.fromkeys(running, time.time())
            return
        reserved, finished = (harness.condition_row(workload, kind) for kind in ("QuotaReserved", "Finished"))
        if reserved.get("status") == "True":
            self.held.setdefault((job, at(reserved)), None)
        elif reserved:
            self.held |= dict.fromkeys(running, at(reserved))
        if finished.get("status") == "True":
            self.held |= {key: at(finished) for key, until in self.held.items() if key[0] == job and until is None}

    def gpu_hours(self, namespace: str, now: float) -> float:
        """GPU-hours of a namespace up to now."""
        return sum(
            (min(now, until if until is not None else now) - since) * JOBS[job][1] / 3600
            for (job, since), until in self.held.items()
            if JOBS[job][0] == namespace
        )


def at(row: Json) -> float:
    return datetime.fromisoformat(row["lastTransitionTime"]).timestamp()


@pytest.fixture
async def teams(system: System, api: harness.Api) -> AsyncIterator[None]:
    """Two namespaces whose LocalQueues lead to one ClusterQueue with 8 GPUs."""
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}}
    await api.client.patch(kube.NAMESPACES, None, OTHER, namespace, kind="apply", field_manager="test", force=True)
    await api.apply(
        harness.flavor(),
        harness.cluster_queue("shared", 8, preemption={"withinClusterQueue": "LowerPriority"}),
        harness.local_queue("one", "shared"),
        harness.local_queue("two", "shared", OTHER),
        harness.priority_class("low", 10),
        harness.priority_class("high", 1000),
    )
    yield
    system.kill_operators()
    await api.wipe(OTHER)


async def test_the_report_has_the_gpu_hours_of_the_conditions(
    system: System, teams: None, api: harness.Api, tmp_path: Path
) -> None:
    """One team's job is preempted by the other's and runs again, and a job of the other team is cancelled."""
    history = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator("first", visibility=HERE, forecasts=history).wait_ready()
    seen = Conditions(api)
    watching = asyncio.create_task(seen.watch())

    async def admitted(name: str, namespace: str) -> bool:
        found = await api.workload_of(name, namespace)
        return found is not None and harness.condition(found, "Admitted")

    await api.create(harness.job("train", "one", gpus=6, runtime="600s", priority="low"))
    await api.create(harness.job("probe", "two", gpus=2, runtime="600s", priority="low", namespace=OTHER))
    await api.until(lambda: admitted("train", "default"), "the first team's job runs")
    await api.until(lambda: admitted("probe", OTHER), "the other team's job runs")
    await asyncio.sleep(20)
    await api.create(harness.job("urgent", "two", gpus=6, runtime="15s", priority="high", namespace=OTHER))
    await api.until(lambda: admitted("urgent", OTHER), "the urgent job runs")
    await api.finished("urgent", namespace=OTHER)
    await api.until(lambda: admitted("train", "default"), "the preempted job runs again")
    await asyncio.sleep(10)
    await api.client.delete(kube.JOBS, OTHER, "probe", propagation="Background")

    async def cancelled() -> bool:
        return await api.workload_of("probe", OTHER) is None

    await api.until(cancelled, "the other team's job is cancelled")
    await asyncio.sleep(2)
    report = await system.printed("report", "-A", "--by", "namespace", "--since", "1h")
    watching.cancel()
    rows = {row["name"]: row for row in report["items"]}
    assert set(rows) == {"default", OTHER}
    for name, row in rows.items():
        assert row["gpuHours"] == pytest.approx(seen.gpu_hours(name, report["end"]), rel=0.02, abs=SECONDS_OFF), (
            name,
            seen.held,
        )
        parts = row["usefulGpuHours"] + row["startingGpuHours"] + sum(row["lost"].values())
        assert parts == pytest.approx(row["gpuHours"], abs=1e-4)
    assert report["total"]["gpuHours"] == pytest.approx(sum(row["gpuHours"] for row in rows.values()), abs=1e-5)
    assert (rows["default"]["attempts"], rows["default"]["jobs"], rows["default"]["preemptions"]) == (2, 1, 1)
    assert rows[OTHER]["jobs"] == 2 and rows[OTHER]["preemptions"] == 0
    assert rows["default"]["lost"]["preemption"] > 0 and rows[OTHER]["lost"]["cancel"] > 0, rows[OTHER]

    found = await system.printed("preemptions", "train")
    (row,) = found["items"]
    assert (row["by"], row["byNamespace"], row["byClusterQueue"]) == ("job/urgent", OTHER, "shared")
    assert row["lostGpuHours"] == pytest.approx(rows["default"]["lost"]["preemption"], abs=1e-5)
    caused = await system.printed("preemptions", "urgent", "--caused", "-n", OTHER)
    assert [each["jobName"] for each in caused["items"]] == ["train"]
