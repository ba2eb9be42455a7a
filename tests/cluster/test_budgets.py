"""A budget of GPU-hours holds new starts, also under an operator that starts after a kill, until its window has passed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import clocks, harness
from tests.cluster.conftest import System
from tests.cluster.spending import Spending

from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
#: the rolling window, in seconds
WINDOW = 60


def at(row: Json) -> float:
    return datetime.fromisoformat(row["lastTransitionTime"]).timestamp()


#: who has a budget in the second test -> its GPU-hours: namespaces, and the value of a label of jobs
HOURS = {"default": 0.025, "team-two": 0.025, "course": 0.025}
PROJECT = "example.com/project"
FREE = "team-three"


def owners_of(workload: Json) -> tuple[str, ...]:
    """The namespace, and the project of the job by its name."""
    meta = workload["metadata"]
    return meta["namespace"], *(("course",) if "course" in meta["name"] else ())


@pytest.fixture
async def teams(system: System, api: harness.Api) -> AsyncIterator[None]:
    """16 GPUs for three namespaces; two of them, and a project, may use 90 GPU-seconds in an hour."""
    common = {"gpuHours": "0.025", "period": "Rolling", "window": "1h", "at100": "HoldStarts"}
    budgets = [
        {"name": "team", "per": "Namespace", "only": ["default", "team-two"], **common},
        {"name": "project", "per": "JobLabel", "label": PROJECT, "only": ["course"], **common},
    ]
    for name in ("team-two", FREE):
        namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.client.patch(kube.NAMESPACES, None, name, namespace, kind="apply", field_manager="test", force=True)
    queues = [harness.local_queue("team", "research", name) for name in ("default", "team-two", FREE)]
    policy = harness.queue_policy("budgets", "research", budgets=budgets)
    await api.apply(harness.flavor(), harness.cluster_queue("research", 16), *queues, policy)
    yield
    system.kill_operators()
    await api.client.delete(kube.QUEUE_POLICIES, None, "budgets")
    for name in ("team-two", FREE):
        await api.wipe(name)
    await api.wipe()


async def submit_for_ever(api: harness.Api) -> None:
    """One job each second and team, and of the project; a new one only while not many wait."""
    streams = {"default": ("small", 1, "1s"), "team-two": ("short", 2, "2s"), FREE: ("free", 1, "1s")}
    for number in itertools.count():
        waiting = Counter(
            (each["metadata"]["namespace"], "course" in each["metadata"]["name"])
            for each in await api.all(kube.WORKLOADS)
            if not harness.condition(each, "Finished")
        )
        for namespace, (name, gpus, runtime) in streams.items():
            if waiting[namespace, False] < 6:
                await api.create(
                    harness.job(f"{name}-{number}", "team", gpus=gpus, runtime=runtime, namespace=namespace)
                )
        if waiting[FREE, True] < 6:
            course = harness.job(f"course-{number}", "team", gpus=2, runtime="2s", namespace=FREE)
            course["metadata"]["labels"][PROJECT] = "course"
            await api.create(course)
        await asyncio.sleep(1)


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


@pytest.mark.timeout(420)
async def test_no_start_is_granted_to_who_has_used_a_budget_and_nobody_is_charged_twice(
    system: System, teams: None, api: harness.Api, tmp_path: Path
) -> None:
    """Every revision of Workloads is looked at, while operators are killed and the clock of one of them is set."""
    clock = clocks.ChangedClock(tmp_path / "clock", ahead=-600)
    history = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    here = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")

    async def operator(identity: str, **more: Any) -> harness.OperatorProcess:
        """In a thread: a loop that stood still would see revisions late."""
        return await asyncio.to_thread(
            lambda: system.operator(identity, forecasts=history, visibility=here, **more).wait_ready()
        )

    async def used() -> set[str]:
        rows = (await api.get(kube.QUEUE_POLICIES, "budgets", "")).get("status", {}).get("budgets") or ()
        return {row["owner"] for row in rows if row["state"] == "Used100"}

    async def free_jobs_start(what: str) -> None:
        """Others are admitted, and nobody who has used a budget."""
        before = spending.granted.copy()
        await api.until(lambda: started(before[FREE] + 5), f"jobs of others start {what}")
        assert {owner: spending.granted[owner] for owner in HOURS} == {owner: before[owner] for owner in HOURS}, what

    async def started(number: int) -> bool:
        return spending.granted[FREE] >= number

    async def all_used() -> bool:
        return await used() == HOURS.keys()

    spending = Spending(HOURS, owners_of)
    async with spending.watching(api.official):
        first = await operator("first")
        # it uses the budget of its namespace alone, and then goes on
        await api.create(harness.job("long", "team", gpus=4, runtime="600s"))
        submitting = asyncio.create_task(submit_for_ever(api))
        await api.until(lambda: started(6), "jobs start")
        first.kill()
        second = await operator("second", replaced=clock.replaced())
        await api.until(all_used, "all budgets are used", 120)
        await free_jobs_start("when all budgets are used")
        for ahead in (600.0, -600.0, 0.0):
            clock.put(ahead)
            await free_jobs_start(f"when the operator's clock was put to {ahead:+.0f} s")
        second.kill()
        third = await operator("third")
        await free_jobs_start("when another operator leads")
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        await api.client.delete(kube.JOBS, "default", "long", propagation="Background")

        async def at_rest() -> bool:
            return not any(each.until is None for each in spending.stretches)

        await api.until(at_rest, "nothing runs any more")
        await asyncio.sleep(2)
        assert spending.violations == []
        assert min(spending.granted[owner] for owner in HOURS) >= 1

        now = time.time()
        counted = {owner: spending.used(owner, now) for owner in ("default", "team-two", FREE, "course")}
        #: the end of the job that was deleted is known to a second or two: 4 GPUs
        seconds_off = {"default": 4 * 3 / 3600}
        by_team = await system.printed("report", "-A", "--by", "namespace", "--since", "1h")
        by_project = await system.printed("report", "-A", "--by", f"label:{PROJECT}", "--since", "1h")
        reported = {row["name"]: row["gpuHours"] for row in (*by_team["items"], *by_project["items"])}
        for owner, hours in counted.items():
            assert reported[owner] == pytest.approx(hours, abs=seconds_off.get(owner, 1e-4)), owner
        charged = {
            sample.labels["owner"]: sample.value * HOURS[sample.labels["owner"]]
            for sample in await third.samples("gangline_budget_used_ratio")
        }
        assert charged == {owner: pytest.approx(reported[owner], abs=1e-4) for owner in HOURS}

        raised = [{"op": "replace", "path": f"/spec/budgets/{each}/gpuHours", "value": "10"} for each in (0, 1)]
        await api.client.patch(kube.QUEUE_POLICIES, None, "budgets", raised, kind="json")
        before = spending.granted.copy()
        spending.hours = {}

        async def go_on() -> bool:
            return all(spending.granted[owner] > before[owner] for owner in HOURS)

        await api.until(go_on, "what waited starts once the budgets are raised")
