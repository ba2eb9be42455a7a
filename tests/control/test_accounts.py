"""Accounts: shares of queues and users, runs that have ended, and whom a job would preempt."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.clusters import NOW, SECRET, key_of
from tests.control.test_answers import Reader

from gangline.api.read.conditions import timestamp
from gangline.control.answers.pages import ListPage
from gangline.control.answers.refusals import NoSuchQueueError, NotWaitingError
from gangline.control.answers.sight import ALL, Everybody, Sight
from gangline.control.answers.usage import past
from gangline.engine.model import ReservedHead
from gangline.forecast.history.runs import Run
from gangline.kube import resources as kube

Json = dict[str, Any]


def shared() -> Any:
    """The other team's queue and ours share a cohort; two of our jobs name their user."""
    here = clusters.shared()
    for name, user in (("runs", "mira"), ("next", "tom")):
        job = here.mirror.objects[kube.GPU_JOBS][f"ml/{name}"]
        job["metadata"]["labels"]["gangline.io/user"] = user
    return here


async def shares(here: Any, asker: Any, *arguments: Any) -> list[Json]:
    return (await here.answers().shares(asker, *arguments)).items


def by_level(rows: list[Json]) -> list[tuple[str, str]]:
    return [(row["level"], row["name"]) for row in rows]


# --- shares -------------------------------------------------------------------------------------------------------------


async def test_shares_are_of_queues_and_of_users_below_them() -> None:
    rows = await shares(shared(), Everybody(), "")
    assert by_level(rows) == [
        ("ClusterQueue", "a"),
        ("LocalQueue", "a"),
        ("User", "mira"),
        ("User", "tom"),
        ("LocalQueue", "a"),
        ("ClusterQueue", f"{SECRET}-queue"),
        ("LocalQueue", f"{SECRET}-queue"),
    ]
    queue, ours, mira, tom, theirs, *_ = rows
    assert (queue["nominalGpus"], queue["usedGpus"], queue["pendingGpus"]) == (16, 16, 16)
    assert (queue["cohorts"], queue["running"], queue["waiting"]) == (["lab"], 1, 2)
    assert queue["quotas"] == [
        {
            "flavor": "h100",
            "resource": "nvidia.com/gpu",
            "nominal": "16",
            "used": "16",
            "borrowed": "0",
            "borrowingLimit": None,
            "lendingLimit": None,
        }
    ]
    assert (ours["namespace"], ours["usedGpus"], ours["pendingGpus"]) == ("ml", 16, 8)
    assert (theirs["namespace"], theirs["pendingGpus"]) == (SECRET, 8)
    assert (mira["running"], mira["usedGpus"], mira["localQueue"]) == (1, 16, "a")
    assert (tom["waiting"], tom["pendingGpus"]) == (1, 8)


async def test_the_sums_of_local_queues_are_those_of_their_cluster_queue() -> None:
    rows = await shares(shared(), Everybody(), "")
    for queue in (row for row in rows if row["level"] == "ClusterQueue"):
        below = [row for row in rows if row["level"] == "LocalQueue" and row["clusterQueue"] == queue["name"]]
        for name in ("usedGpus", "pendingGpus", "running", "waiting"):
            assert queue[name] == sum(row[name] for row in below), (queue["name"], name)


async def test_another_teams_names_are_not_told_with_its_numbers() -> None:
    here = shared()
    here.mirror.objects[kube.GPU_JOBS][f"{SECRET}/{SECRET}-runs"]["metadata"]["labels"]["gangline.io/user"] = (
        f"{SECRET}-boss"
    )
    rows = await shares(here, Reader("ml"), "ml")
    assert SECRET not in str(rows)
    other = next(row for row in rows if row["level"] == "ClusterQueue" and row["name"] != "a")
    assert other["name"].startswith("queue-") and other["usedGpus"] == 16
    hidden = [row for row in rows if row["hidden"]]
    assert len(hidden) == 2 and all(row["name"].startswith("hidden-") for row in hidden)
    assert {row["name"] for row in rows if row["level"] == "User"} == {"mira", "tom"}


async def test_shares_of_one_queue_have_its_cohort_and_no_more() -> None:
    here = clusters.busy()
    assert by_level(await shares(here, Everybody(), "ml", "b")) == [("ClusterQueue", "b"), ("LocalQueue", "b")]
    with pytest.raises(NoSuchQueueError, match="leads to a ClusterQueue 'c'"):
        await shares(here, Everybody(), "ml", "c")
    page = await shared().answers().shares(Everybody(), "", "", ListPage(1, 2))
    assert by_level(page.items) == [("LocalQueue", "a"), ("User", "mira")] and page.left == 4


# --- plans and reserved starts ------------------------------------------------------------------------------------------


async def test_plans_and_reserved_starts_name_users_to_those_who_may_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    here = shared()
    answers = here.answers()
    starts = [ReservedHead(key_of(here, name), "a", started=NOW * 1000) for name in ("runs", f"{SECRET}-runs")]
    monkeypatch.setattr(type(answers.source.engine), "head_starts", lambda _: starts)
    for asker, users in ((Everybody(), {"mira", "tom", ""}), (Reader("other"), {""})):
        runs = (await answers.plan(asker, "", "", 86_400)).items
        assert {run["user"] for run in runs} == users
        reserved = [start for row in (await answers.audits(asker, "")).items for start in row["starts"]]
        assert {start["user"] for start in reserved} == users - {"tom"}
        assert all(bool(start["namespace"]) == (start["namespace"] in ("ml", SECRET)) for start in reserved)
    assert SECRET not in str((await answers.audits(Reader("ml"), "")).items)


# --- the past -----------------------------------------------------------------------------------------------------------


def finished() -> Any:
    here = shared()
    workload = here.mirror.objects[kube.WORKLOADS][key_of(here, "runs")]
    done = {
        "type": "Finished",
        "status": "True",
        "reason": "Failed",
        "message": "worker 3 ran out of memory",
        "lastTransitionTime": timestamp((NOW - 300) * 1000),
    }
    over = {**workload, "metadata": {**workload["metadata"], "resourceVersion": "1000"}}
    over["status"] = {**workload["status"], "conditions": [*workload["status"]["conditions"], done]}
    here.mirror.upsert(kube.WORKLOADS, over)
    return here


async def runs(here: Any, asker: Any, namespace: str = "", since: float = 86_400, queue: str = "") -> list[Json]:
    return (await here.answers().past(asker, namespace, since, cluster_queue=queue)).items


async def test_a_run_that_ended_says_how_long_it_waited_and_ran_and_what_it_cost() -> None:
    (run,) = await runs(finished(), Everybody())
    assert (run["jobName"], run["jobKind"], run["user"], run["state"]) == ("runs", "GPUJob", "mira", "Failed")
    assert (run["clusterQueue"], run["localQueue"], run["flavor"], run["gpus"]) == ("a", "a", "h100", 16)
    assert (run["waitedSeconds"], run["ranSeconds"], run["ended"]) == (100, 900, NOW - 300)
    assert run["gpuHours"] == 16 * 900 / 3600
    assert (run["message"], run["preemptions"]) == ("worker 3 ran out of memory", 0)
    assert await runs(finished(), Everybody(), since=200) == []
    assert await runs(finished(), Everybody(), "other") == []
    assert (
        await runs(finished(), Everybody(), queue="a") == [run]
        and await runs(finished(), Everybody(), queue=f"{SECRET}-queue") == []
    )
    with pytest.raises(NoSuchQueueError, match="there is no ClusterQueue 'none'"):
        await runs(finished(), Everybody(), queue="none")


async def test_another_teams_runs_are_reduced_to_size_and_times() -> None:
    (run,) = await runs(finished(), Reader("other"))
    assert run["jobName"].startswith("hidden-") and (run["gpus"], run["ranSeconds"]) == (16, 900)
    assert (run["user"], run["namespace"], run["message"], run["state"]) == ("", "", "", "Ended")
    assert "runs" not in str(run) and "memory" not in str(run)


def remembered(uid: str, name: str, ended: float, **more: Any) -> past.PastRun:
    run = Run(uid, ended - 120, gpus=8, namespace="ml", name=name, queue="a", start=ended - 60, finish=ended, **more)
    found = past.of_run(run, "a")
    assert found is not None
    return found


def test_a_run_is_told_once_with_what_each_source_knows() -> None:
    known = remembered("1", "old", 100.0, flavor="h100")
    existing = past.PastRun("ml/w", "1", "old", "Job", "", "ml", "a", "a", "", 8, 1, 0.0, None, 100.0, "Succeeded")
    (run,) = past.merged([existing], [known], 0.0)
    assert (run.kind, run.state, run.started, run.flavor) == ("Job", "Succeeded", 40.0, "h100")
    both = past.merged([], [known, remembered("2", "new", 200.0)], 0.0)
    assert [run.job for run in both] == ["new", "old"]
    assert [run.job for run in past.merged([existing], both, 150.0)] == ["new"]
    (row,) = past.rows([known], ALL)
    assert (row["state"], row["waitedSeconds"], row["ranSeconds"]) == ("Ended", 60, 60)
    assert past.of_run(Run("3", 0.0), "a") is None
    assert next(past.rows([known], Sight()))["jobName"].startswith("hidden-")


# --- victims ------------------------------------------------------------------------------------------------------------


def ready(entries: list[Any]) -> list[Any]:
    """The pods of a running job are ready."""
    rows = entries[1][1]["status"]["conditions"]
    rows.append({**rows[-1], "type": "PodsReady", "reason": "Started"})
    return entries


def contested(policy: str, *, priority: int = 100, waits: int = 8) -> Any:
    """A full queue with two running jobs of priority 0; one of `priority` waits."""
    entries = clusters.queue("a", 16)
    entries[0][1]["spec"]["preemption"] = {"withinClusterQueue": policy}
    waiting = clusters.submitted("urgent", waits // 8, "1h", ago=50)
    waiting[1][1]["spec"]["priority"] = priority
    first = ready(clusters.submitted("older", 1, "4h", ago=8000, started=7200))
    second = ready(clusters.submitted("newer", 1, "4h", ago=4000, started=3600))
    return clusters.world_of(clusters.flavor("h100"), *entries, *first, *second, *waiting)


async def victims(here: Any, name: str = "urgent", asker: Any = None) -> Json:
    return (await here.answers().would_preempt(asker or Everybody(), "ml", "", name))[1]


async def test_victims_are_those_that_the_engine_would_choose_with_what_they_would_lose() -> None:
    answer = await victims(contested("LowerPriority"))
    (victim,) = answer["victims"]
    assert (victim["job"], victim["gpus"], victim["priority"]) == ("gpujob/newer", 8, 0)
    assert (victim["reason"], victim["ranSeconds"], victim["lostGpuHours"]) == ("InClusterQueue", 3600, 8.0)
    assert not answer["starts"]
    both = await victims(contested("LowerPriority", waits=16))
    assert {each["job"] for each in both["victims"]} == {"gpujob/newer", "gpujob/older"}


async def test_where_nobody_is_preempted_it_is_said_why() -> None:
    answer = await victims(contested("Never"))
    assert answer["victims"] == [] and "insufficient unused quota" in answer["obstacle"] and not answer["starts"]


async def test_who_waits_before_it_is_no_obstacle_and_room_needs_no_victims() -> None:
    here = clusters.world_of(
        clusters.flavor("h100"),
        *clusters.queue("a", 16),
        *clusters.submitted("first", 2, "1h", ago=90),
        *clusters.submitted("second", 1, "1h", ago=50),
    )
    assert await victims(here, "second") == {"starts": True, "victims": [], "obstacle": ""}


async def test_a_hidden_victim_is_reduced_to_its_size_and_times() -> None:
    entries = clusters.queue("a", 16)
    entries[0][1]["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    waiting = clusters.submitted("urgent", 1, "1h", ago=50)
    waiting[1][1]["spec"]["priority"] = 100
    away: Json = {"namespace": SECRET, "ago": 4000, "started": 3600}
    here = clusters.world_of(
        clusters.flavor("h100"),
        *entries,
        clusters.local_queue("a", "a", SECRET),
        *waiting,
        *ready(clusters.submitted(SECRET, 2, "4h", **away)),
    )
    answer = await victims(here, asker=Reader("ml"))
    (victim,) = answer["victims"]
    assert SECRET not in str(answer) and victim["job"].startswith("hidden-") and victim["gpus"] == 16


async def test_only_a_waiting_job_has_victims() -> None:
    with pytest.raises(NotWaitingError, match="it is running"):
        await victims(contested("LowerPriority"), "older")
