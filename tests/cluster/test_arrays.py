"""Arrays with a limit, and sessions, on a real API server: a limit through a killed operator, and a session without a kubelet."""

from __future__ import annotations

import asyncio
import os
import pty
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, Person
from tests.cluster.test_submit import end
from tests.objects import condition_of

from gangline.console.cli import main
from gangline.console.submitting import session as submitted
from gangline.console.views import session
from gangline.console.views.remote_terminal import OwnStreams
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


async def submit(system: System, *words: str) -> Any:
    at = (
        "submit",
        "--kubeconfig",
        str(system.kubeconfig),
        "-n",
        "default",
        "-q",
        "mine",
        "--image",
        "python:3.12-slim",
    )
    return await asyncio.to_thread(CliRunner().invoke, main, [*at, *words])


async def by_reason(api: harness.Api) -> dict[str, list[str]]:
    """The tasks of the array, by what is said of their quota."""
    found: dict[str, list[str]] = {}
    for workload in await api.all(kube.WORKLOADS, "default"):
        row = condition_of(workload, "QuotaReserved") or {"status": "False", "reason": ""}
        finished = condition_of(workload, "Finished") is not None
        reason = "finished" if finished else "holds" if row["status"] == "True" else row["reason"]
        found.setdefault(reason, []).append(workload["metadata"]["ownerReferences"][0]["name"])
    return {reason: sorted(names) for reason, names in found.items()}


async def test_the_limit_of_an_array_and_the_end_of_a_session(system: System, api: harness.Api) -> None:
    system.operator("arrays", visibility=HERE).wait_ready()
    await api.apply(harness.flavor(), harness.cluster_queue("shared", 8), harness.local_queue("mine", "shared"))
    done = await submit(system, "--gpus", "1", "--name", "sweep", "--array", "0-4%2", "--", "true")
    assert done.exit_code == 0, done.output

    async def waits(running: list[str], others: list[str]) -> None:
        async def so() -> bool:
            found = await by_reason(api)
            assert len(found.get("holds", [])) <= 2, found
            return found.get("holds") == running and found.get("WaitingForArrayTasks", []) == others

        await api.until(so, f"{running} hold quota")

    await waits(["sweep-0", "sweep-1"], ["sweep-2", "sweep-3", "sweep-4"])
    me = Person(system.kubeconfig)
    why = await me.run("why", "sweep-4", "-n", "default")
    assert "At most 2 tasks of array sweep run at a time" in why.stdout, why.output
    assert "2 of 2 tasks of array sweep run: one must end" in why.stdout, why.output

    system.kill_operators()
    system.operator("arrays-again", visibility=HERE).wait_ready()
    await end(api, "sweep-0", 1, 0)
    await waits(["sweep-1", "sweep-2"], ["sweep-3", "sweep-4"])

    # simulated pods have no kubelet: the terminal can't be opened, and the session ends with its job
    limited = await submit(system, "--gpus", "1", "--name", "shell", "--time", "1h", "--", *submitted.keeper().words)
    assert limited.exit_code == 0, limited.output
    master, slave = pty.openpty()
    try:
        job = await api.get(kube.GPU_JOBS, "shell")
        held = session.hold(api.client, "default", job, submitted.in_terminal([]), submitted.guard(), OwnStreams(slave))
        code = await asyncio.wait_for(held, 120)
    except click.ClickException as error:  # what the API server says of a node without a kubelet depends on its version
        code = error.exit_code
    finally:
        os.close(master)
        os.close(slave)
    assert code == 1

    async def deleted() -> bool:
        return "shell" not in {each["metadata"]["name"] for each in await api.all(kube.GPU_JOBS, "default")}

    await api.until(deleted, "the job of the session is deleted")
