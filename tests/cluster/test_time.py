"""Time on a real control plane: history that outlives the operator, statuses that say when, a record that agrees."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System

from gangline.console.views import own_answers, reach
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.audit import audit_check, decision_index
from gangline.control.audit.audit_check import AuditResult
from gangline.control.process.operator_process import ForecastOptions
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def gpujob(name: str, workers: int, expected: str, runtime: str) -> Json:
    made = harness.gpu_job(name, "time", workers=workers, gpus=8, simulated=runtime, runtime={"expected": expected})
    made["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/gang"  # nothing that has run before
    return made


def stored(path: Path) -> dict[str, Run]:
    with HistoryStore(str(path)) as store:
        return {run.name: run for run in store.runs()}


async def test_what_ends_is_remembered_and_those_who_wait_are_told_when(system: System, tmp_path: Path) -> None:
    history, record = tmp_path / "history.db", tmp_path / "audit.jsonl"
    visibility = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
    learned = ForecastOptions(str(history), tmp_path / "model.gz")
    chosen = {"forecasts": learned, "audit": record, "visibility": visibility}
    operator = system.operator("first", **chosen).wait_ready()
    async with harness.connect(system.kubeconfig) as api:
        await api.apply(harness.flavor(), harness.cluster_queue("time", 16), harness.local_queue("time", "time"))
        await api.create(*(harness.job(f"short-{i}", "time", gpus=4) for i in range(4)))
        await api.finished(*(f"short-{i}" for i in range(4)))

        async def remembered() -> bool:
            return len(await asyncio.to_thread(stored, history)) == 4

        await api.until(remembered, "four runs are in the history")
        operator.kill()

        await api.create(harness.job("while-away", "time", gpus=4))
        operator = system.operator("second", **chosen).wait_ready()
        await api.finished("while-away")
        await api.create(gpujob("runs", 2, "10m", "600s"))
        await api.until(lambda: _phase(api, "runs", "Running"), "the first gang runs")
        await api.create(gpujob("waits", 2, "5m", "300s"))

        async def expected_start() -> Json | None:
            status = (await api.get(kube.GPU_JOBS, "waits")).get("status") or {}
            return status if "forecast" in status and "expectedStart" in status else None

        status = await api.until(expected_start, "the waiting gang's status says when")
        assert status["forecast"] == {"p50": 300, "p90": 600, "source": "Hint", "samples": 0}
        start = status["expectedStart"]
        assert start["from"] < start["to"] and "runs" in start["because"]

        here = await own_answers.load(api.client)
        (waiting,) = here.outlook().starts.values()
        assert here.from_operator and waiting.workload.startswith("default/gpujob-waits")
        path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/time/pendingworkloads"
        listed = json.loads(await api.client.raw(path))["items"]
        assert [item["metadata"]["ownerReferences"][0]["name"] for item in listed] == ["waits"]
        assert (listed[0]["positionInClusterQueue"], listed[0]["forecast"]["p50Seconds"]) == (0, 300)
        told_accuracy = await reach.ask(api.client, "/accuracy")
        assert told_accuracy is not None and "no model yet" in told_accuracy["model"]["reason"]

        await api.until(lambda: _count(history, 5), "what ended meanwhile is in the history, and nothing twice")
    assert operator.stop() == 0
    runs = await asyncio.to_thread(stored, history)
    assert set(runs) == {"short-0", "short-1", "short-2", "short-3", "while-away"}
    assert all(run.seconds is not None and run.gpus == 4 and run.flavor == "gpu" for run in runs.values())

    outcome = AuditResult()
    audit_check.check(audit_check.read(decision_index.files(record), outcome), outcome)
    assert outcome.holds, outcome.differences
    assert outcome.runs == 2 and outcome.decisions["Admit"] == 6


async def _phase(api: harness.Api, name: str, phase: str) -> bool:
    return ((await api.get(kube.GPU_JOBS, name)).get("status") or {}).get("phase") == phase


async def _count(history: Path, wanted: int) -> bool:
    return len(await asyncio.to_thread(stored, history)) == wanted
