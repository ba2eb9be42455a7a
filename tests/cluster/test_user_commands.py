"""The commands about accounts and those that change jobs, run by a user with rights in one namespace, on a real API server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import accounts, harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, SECRET, Person, people

from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

__all__ = ["people"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"
#: what Kueue's role for users grants on jobs
EDITOR = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "patch", "delete"]}]


async def may_edit_jobs(api: harness.Api, account: str) -> None:
    role: Json = {"kind": "Role", "metadata": {"name": "editor", "namespace": "default"}, "rules": EDITOR}
    binding: Json = {
        "kind": "RoleBinding",
        "metadata": {"name": "editor", "namespace": "default"},
        "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": "editor"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }
    for body in (role, binding):
        resource = accounts.RESOURCES[body["kind"]]
        made = {"apiVersion": f"{_GROUP}/v1", **body}
        await api.client.patch(
            resource, "default", body["metadata"]["name"], made, kind="apply", field_manager="test", force=True
        )


def labelled(job: Json, user: str) -> Json:
    job["metadata"]["labels"]["gangline.io/user"] = user
    return job


async def test_a_user_sees_accounts_and_changes_her_jobs(
    system: System, api: harness.Api, people: dict[str, Person], tmp_path: Path
) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator("commands", visibility=HERE, forecasts=forecasts).wait_ready()
    alice, boss = people["alice"], Person(system.kubeconfig)
    await may_edit_jobs(api, "alice")
    shared = harness.cluster_queue("shared", 8, cohort="lab", preemption={"withinClusterQueue": "LowerPriority"})
    await api.apply(
        *(harness.flavor(), shared, harness.cluster_queue("theirs", 8, cohort="lab")),
        *(harness.local_queue("mine", "shared"), harness.local_queue("other", "shared")),
        harness.local_queue(f"{SECRET}-queue", "theirs", SECRET),
        harness.priority_class("low", 1),
        harness.priority_class("high", 100),
    )
    outputs: list[str] = []

    async def said(*arguments: str, who: Person = alice, code: int = 0) -> str:
        result = await who.run(*arguments)
        assert result.exit_code == code, result.output
        if who is alice:
            outputs.append(result.output)
        return result.output if code else result.stdout

    async def until(words: str, *arguments: str) -> None:
        async def there() -> bool:
            return words in (await alice.run(*arguments)).stdout

        await api.until(there, f"{' '.join(arguments)} says {words!r}")

    # what ends is history
    await api.create(labelled(harness.job("brief", "mine", gpus=2, runtime="1s"), "mira"))
    await until("brief", "history", "-s", "succeeded")
    (run,) = json.loads(await said("history", "-o", "json"))
    assert (run["jobName"], run["user"], run["flavor"], run["gpus"]) == ("brief", "mira", "gpu", 2)
    assert run["gpuHours"] == pytest.approx(2 * run["ranSeconds"] / 3600, abs=0.001)
    assert "1 run, " in await said("history")
    await api.client.delete(kube.JOBS, "default", "brief", propagation="Background")

    async def forgotten() -> bool:
        return await api.workload_of("brief") is None

    await api.until(forgotten, "the Workload of brief is deleted")
    (run,) = json.loads(await said("history", "-o", "json"))
    assert (run["jobName"], run["state"], run["gpus"]) == ("brief", "Succeeded", 2), (
        "the operator remembers what is deleted"
    )

    # shares, by queue and by user
    away = harness.job(f"{SECRET}-runs", f"{SECRET}-queue", gpus=8, runtime="600s", namespace=SECRET)
    await api.create(away, labelled(harness.job("runs", "mine", gpus=8, runtime="600s", priority="low"), "mira"))
    await until("Running", "queue", "-u", "mira")
    rows = json.loads(await said("share", "-o", "json"))
    queues = {row["name"]: row for row in rows if row["level"] == "ClusterQueue"}
    assert queues["shared"]["usedGpus"] == 8 and sum(row["usedGpus"] for row in queues.values()) == 16
    (mira,) = (row for row in rows if row["level"] == "User")
    assert (mira["name"], mira["usedGpus"], mira["running"]) == ("mira", 8, 1)
    assert await said("share", "-u", "mira", "-o", "name") == "user/mira\n"
    assert "MAY BORROW" in await said("limits")

    # a waiting job: moved, put first, and whom it would preempt
    await api.create(harness.job("first", "mine", gpus=8, runtime="600s", priority="low"))
    await asyncio.sleep(1.1)
    await api.create(harness.job("waits", "other", gpus=8, runtime="600s", priority="low"))
    await until("waits", "queue", "-s", "pending")
    assert await said("move", "waits", "mine") == "job/waits moves from other to LocalQueue mine\n"
    await until("waits", "queue", "--queue", "mine")
    assert "no job" in await said("cancel", "--queue", "other", "-y", code=1)
    names = await said("queue", "-s", "pending", "--sort", "-pos", "-o", "name")
    assert names.split() == ["job/waits", "job/first"]
    assert "would preempt nobody" in await said("preempt", "--dry-run", "waits")
    assert "say --dry-run" in await said("preempt", "waits", code=2)
    assert "name the class: --class NAME" in await said("top", "waits", code=1), "users may not list classes"
    await api.client.patch(
        kube.CLUSTER_QUEUES, None, "shared", {"spec": {"stopPolicy": "Hold"}}
    )  # nothing is decided yet
    assert "gets WorkloadPriorityClass high" in await said("top", "waits", "--class", "high")

    async def is_first() -> bool:
        return (await alice.run("queue", "-s", "pending", "--sort", "pos", "-o", "name")).stdout.split()[
            0
        ] == "job/waits"

    await api.until(is_first, "waits is first")

    # held and released: by her own job's annotation, since users may not change Workloads, and by an administrator
    assert await said("hold", "waits") == "job/waits is held\n"
    await until("Inactive", "queue", "-s", "inactive")
    assert await said("release", "waits") == "job/waits is queued again\n"
    await until("waits", "queue", "-s", "pending")
    assert "to hold it would stop it" in await said("hold", "runs", who=boss, code=1)
    assert await said("hold", "waits", who=boss) == "job/waits is held\n"
    await until("Inactive", "queue", "-s", "inactive")
    assert await said("release", "waits", "cq/shared", who=boss) == (
        "job/waits is queued again\nClusterQueue shared starts jobs\n"
    )
    await until("waits", "queue", "-s", "running,starting")  # it has preempted
    held = await said("hold", "-s", "pending", "--queue", "mine", "--yes", who=boss)
    assert "job/first is held\n" in held and "job/waits" not in held, "it runs"
    assert "job/first is queued again\n" in await said("release", "--queue", "mine", "-y", who=boss)
    assert await said("plan", "-A", "-s", "running", "--queue", "mine", "-o", "name") == "waits\n"
    (run,) = json.loads(await said("history", "-q", "shared", "-o", "json"))
    assert run["jobName"] == "brief"
    assert "nominalQuota 8 → 16" in await said(
        "limits", "set", "shared", "--flavor", "gpu", "--nominal", "16", who=boss
    )

    # cancelled, by name and by what they are
    assert "job/waits is cancelled (it " in await said("cancel", "waits")
    assert "would be cancelled" in await said("cancel", "-s", "running,starting,pending,stopping", "--dry-run")
    await said("cancel", "--queue", "mine", "-y")

    async def gone() -> bool:
        return not (await api.client.list(kube.JOBS, "default")).items

    await api.until(gone, "all jobs are deleted")
    with pytest.raises(NotFound):
        await api.client.get(kube.JOBS, "default", "waits")
    assert SECRET not in "".join(outputs), "another team's name"
