"""A budget of GPU-hours holds new starts, also under an operator that starts after a kill, until its window has passed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System

from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
#: the rolling window, in seconds
WINDOW = 60


def at(row: Json) -> float:
    return datetime.fromisoformat(row["lastTransitionTime"]).timestamp()


@pytest.fixture
async def queue(system: System, api: harness.Api) -> AsyncIterator[None]:
    """8 GPUs, of which 72 GPU-seconds may be used in any minute."""
    budget: Json = {
        "name": "minute",
        "per": "Namespace",
        "gpuHours": "0.02",
        "period": "Rolling",
        "window": f"{WINDOW}s",
    }
    policy = harness.queue_policy("budgets", "research", budgets=[budget | {"at100": "HoldStarts"}])
    await api.apply(
        harness.flavor(), harness.cluster_queue("research", 8), harness.local_queue("team", "research"), policy
    )
    yield
    system.kill_operators()
    await api.client.delete(kube.QUEUE_POLICIES, None, "budgets")
    await api.wipe()


async def test_a_budget_holds_starts_through_a_kill_and_until_its_window_has_passed(
    system: System, queue: None, api: harness.Api, tmp_path: Path
) -> None:
    history = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    first = system.operator("first", forecasts=history)
    first.wait_ready()

    async def waits() -> bool:
        found = await api.workload_of("second")
        return found is not None and harness.condition_row(found, "QuotaReserved").get("reason") == "BudgetUsed"

    async def admitted() -> bool:
        found = await api.workload_of("second")
        return found is not None and harness.condition(found, "Admitted")

    async def reported() -> bool:
        policy = await api.get(kube.QUEUE_POLICIES, "budgets", "")
        rows = policy.get("status", {}).get("budgets") or []
        return [(row["owner"], row["state"]) for row in rows] == [("default", "Used100")]

    await api.create(harness.job("first", "team", gpus=4, runtime="20s"))
    await api.finished("first")
    workload = await api.workload_of("first")
    assert workload is not None
    began = at(harness.condition_row(workload, "QuotaReserved"))
    await api.create(harness.job("second", "team", gpus=4, runtime="1s"))
    await api.until(waits, "the second job waits for the budget")
    waiting = await api.workload_of("second")
    assert waiting is not None
    message = harness.condition_row(waiting, "QuotaReserved")["message"]
    assert message.startswith("the budget 'minute' of namespace default is used: 0.02")
    assert "of 0.02 GPU-hours in the last 1m; " in message
    await api.until(reported, "the policy's status names who has used the budget")
    await asyncio.sleep(2)  # the attempt is written
    first.kill()
    system.operator("second", forecasts=history).wait_ready()
    await api.until(admitted, "the second job starts when the first one's hours have left the window", WINDOW + 60)
    started = await api.workload_of("second")
    assert started is not None
    assert at(harness.condition_row(started, "QuotaReserved")) - began >= WINDOW
    await api.finished("second")
