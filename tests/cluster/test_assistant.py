"""An assistant of a user of one namespace, through `gangline mcp` over stdio, on a real API server: the commands' answers, her
rights, and a change with its preview.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, SECRET, Person, busy, people
from tests.cluster.test_user_commands import may_edit_jobs
from tests.console.test_assistant import checked, plain, readable

from gangline.control.process.operator_process import ForecastOptions

__all__ = ["people"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


async def test_an_assistant_has_its_users_answers_and_rights(
    system: System, api: harness.Api, people: dict[str, Person], tmp_path: Path
) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator("assistant", visibility=HERE, forecasts=forecasts).wait_ready()
    alice = people["alice"]
    await may_edit_jobs(api, "alice")
    await busy(api)

    async def served() -> bool:
        return (await alice.run("why", "waits")).exit_code == 0

    await api.until(served, "the answers are served")
    words = ["-m", "gangline.console.cli", "mcp", "--allow-changes", "--kubeconfig", str(alice.kubeconfig)]
    async with Client(StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))) as client:

        async def ask(tool: str, **given: Any) -> Json:
            return checked(await client.call_tool(tool, given))

        for tool, given, line in (
            ("queue", {"states": ["pending"]}, "queue -s pending"),
            ("limits", {}, "limits"),
            ("share", {"cluster_queue": "shared"}, "share -q shared"),
            ("preemptions", {"since": "1d"}, "preemptions --since 1d"),
        ):

            async def same(tool: str = tool, given: Json = given, line: str = line) -> bool:
                printed = await alice.run(*line.split(), "-o", "json")  # what it is about may change in between
                answer = await ask(tool, **given)
                assert SECRET not in json.dumps(answer)
                return plain(answer["answer"]) == readable(json.loads(printed.stdout))

            await api.until(same, f"the tool {tool} answers as the command does")
        why = await ask("why", job="waits")
        assert plain(why["answer"])["state"] == "Pending" and plain(why["answer"])["explanation"]
        assert "no job" in plain((await ask("why", job="nothing"))["error"])

        tokens: list[str] = []

        async def confirmed() -> bool:  # unless the operator writes to its Workload in between
            shown = await ask("hold", job="waits")
            assert plain(shown["would"]) == "job/waits is held"
            assert plain((await ask("queue", states=["pending"]))["answer"])[0]["jobName"] == "waits"
            tokens.append(shown["confirm"])
            done = await ask("hold", job="waits", confirm=shown["confirm"])
            return plain(done.get("done")) == "job/waits is held"

        await api.until(confirmed, "the job is held as it was shown")
        assert "is not good" in plain((await ask("hold", job="waits", confirm=tokens[-1]))["error"])

        async def held() -> bool:
            return "job/waits" in (await alice.run("queue", "-s", "inactive", "-o", "name")).stdout

        await api.until(held, "the job is held")
        refused = await ask("cancel", job=f"{SECRET}-runs", namespace=SECRET)
        assert "may not list" in plain(refused["error"]) and "gangline-viewer-role" in plain(refused["error"])
