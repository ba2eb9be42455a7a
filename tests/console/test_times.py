"""The commands that speak of time, as they print the operator's answers: eta, plan, whatif, queue -t."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from tests.builders import clusters
from tests.builders.clusters import NOW, gpujob

from gangline.console.commands.admin import forecast as forecast_command
from gangline.console.commands.future import eta, plan, whatif
from gangline.console.output import clock
from gangline.console.views import jobs as times
from gangline.console.views import jobs as views
from gangline.console.views import own_answers, reach, what_if
from gangline.control.answers.desk import Wish
from gangline.control.answers.sight import Everybody
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.snapshot import JobState
from gangline.control.forecasting.forecasting import alias
from gangline.kube import resources as kube
from gangline.kube.errors import AlreadyExists, Forbidden, Invalid

Json = dict[str, Any]


async def jobs(here: Any = None) -> list[Json]:
    return (await (here or clusters.busy()).answers().jobs(Everybody(), Wish("ml", times=True))).items


async def test_the_table_is_in_the_order_of_starts() -> None:
    waiting = [item for item in await jobs() if item["state"] == "Pending"]
    found = views.by_start(views.of_items(waiting[::-1]))
    rows = views.STARTS.rows(found, NOW)
    assert [row[1] for row in rows.cells] == ["next", "last"]
    assert rows.cells[0][rows.header.index("BECAUSE")] == "after runs ends"
    assert "–" in rows.cells[0][rows.header.index("STARTS IN")] and ":" in rows.cells[0][rows.header.index("AT")]


async def test_json_for_scripts_has_the_jobs_name_and_its_times() -> None:
    document = times.as_json((await jobs())[1])
    assert (document["name"], document["kind"], document["because"]) == ("next", "GPUJob", "after runs ends")
    assert list(document)[-5:] == ["elapsedSeconds", "expectedStart", "because", "forecast", "record"]


def test_words_for_starts() -> None:
    def words(p50: float | None, p90: float | None) -> str:
        return times.start_text({"expectedStart": {"p50": p50, "p90": p90}}, NOW)

    assert times.start_text({"expectedStart": None}, NOW) == "?"
    assert words(NOW, NOW) == "now"
    assert words(NOW + 720, NOW + 14_400) == "12m – 4h"
    assert words(NOW + 720, None) == "12m – ?"


async def test_the_flavor_is_named_where_it_makes_a_difference() -> None:
    texts = {item["jobName"]: times.runtime_text(item) for item in await jobs(clusters.several_flavors())}
    assert texts["waits"] == "40m – 120m on v100" and "on" not in texts["runs"]


async def test_queue_shows_times_before_its_last_column() -> None:
    rows = views.listing(with_times=True).rows(views.of_items(await jobs()), NOW)
    assert rows.header[-5:] == ("ELAPSED", "RUNS FOR", "STARTS IN", "AT", "REASON")
    by_name = {row[1]: row for row in rows.cells}
    assert by_name["runs"][-5] == "20m" and by_name["runs"][-3] == ""
    assert by_name["next"][-5] == "" and "–" in by_name["next"][-3]


async def planned() -> list[Json]:
    return (await clusters.busy().answers().plan(Everybody(), "", "", 86_400)).items


async def test_the_plan_draws_what_runs_and_what_will() -> None:
    lines = plan.draw(await planned(), NOW, 86_400.0, 100)
    assert lines[0].lstrip().startswith("|now")
    runs, follows, last = lines[1:4]
    assert "runs  32" in runs and plan.RUNS in runs and plan.WILL_RUN not in runs
    assert follows.index(plan.WILL_RUN) > runs.rindex(plan.RUNS) - 2
    assert last.index(plan.WILL_RUN) >= follows.rindex(plan.WILL_RUN) - 1
    assert max(map(len, lines)) <= 100
    assert lines[-1] == plan.LEGEND and all(mark in lines[-1] for mark in (plan.RUNS, plan.WILL_RUN, plan.PAST_EDGE))


async def test_the_plan_of_a_namespace_names_its_local_queues() -> None:
    runs = [{**run, "queue": "mine", "clusterQueue": "all-of-the-lab"} for run in await planned()]
    for own, name, other in ((True, "mine", "all-of-the-lab"), (False, "all-of-the-lab", "mine")):
        drawn = plan.draw(runs, NOW, 86_400.0, 100, own=own)[1:-1]
        rows = plan.listing(86_400.0, own=own).rows(runs, NOW, wide=True).cells
        for line in (*drawn, *(" ".join(row) for row in rows)):
            assert name in line and other not in line


async def test_a_plan_cut_short_says_that_it_goes_on() -> None:
    (line,) = plan.draw([run for run in await planned() if run["job"] == "runs"], NOW, 60.0, 80)[1:-1]
    assert line.endswith(plan.PAST_EDGE)


async def test_a_plan_as_json_names_no_hidden_workload() -> None:
    (run, *_) = await planned()
    assert plan._as_json(run)["workload"].startswith("ml/gpujob-runs-")
    hidden = {**run, "metadata": {"name": "hidden-1"}, "hidden": True, "job": "hidden-1"}
    assert plan._as_json(hidden)["workload"] == "hidden-1"


# --- what if ------------------------------------------------------------------------------------------------------------


async def test_what_if_prints_the_start_and_what_gains(capsys: pytest.CaptureFixture[str]) -> None:
    whatif._show(await clusters.busy().answers().what_if(Everybody(), "ml", gpujob("mine", 2, "1h")))
    printed = capsys.readouterr().out
    assert printed.startswith("Submitted now to queue a, it would start in ")
    assert "(Hint, from 0 finished runs)." in printed
    assert "1  at once" in printed and "submit it to queue b (ClusterQueue b)" in printed


async def test_what_if_of_a_date_says_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    date = clock.rfc3339(clusters.NOW + 86_400)
    whatif._show(await clusters.busy().answers().what_if(Everybody(), "ml", gpujob("mine", 2, "1h"), date))
    printed = capsys.readouterr().out
    assert printed.startswith(f"Submitted at {date} to queue a, it would start at once")
    assert "\nAssumed: jobs that run or wait now take as long as forecast" in printed


async def test_what_if_says_why_nothing_helps(capsys: pytest.CaptureFixture[str]) -> None:
    answer = await clusters.busy().answers().what_if(Everybody(), "ml", gpujob("mine", 200, "1h"))
    whatif._show({**answer, "suggestions": [], "unexamined": 2})
    printed = capsys.readouterr()
    assert "no start within the horizon: " in printed.out and "maximum capacity" in printed.out
    assert "No smaller size" in printed.out and "2 changes were not tried" in printed.err


class Server:
    """An API server that answers a dry run."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def create(self, resource: Any, namespace: str, job: Any, *, query: Any) -> Any:
        assert query == {"dryRun": "All", "fieldValidation": "Strict"} and namespace == "ml"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_the_api_server_says_what_it_would_refuse() -> None:
    job = gpujob("mine", 1, "1h")

    async def ask(answer: Any) -> Any:
        server: Any = Server(answer)
        return await what_if.accepted(server, job, kube.GPU_JOBS)

    assert await ask({"spec": "defaulted"}) == {"spec": "defaulted"}
    for kept in (Forbidden(403, "Forbidden", "may not create"), AlreadyExists(409, "AlreadyExists", "is there")):
        assert await ask(kept) is job
    for refused in (
        Invalid(422, "Invalid", "spec.workers: wrong"),
        Forbidden(403, "", "webhook denied the request: no"),
    ):
        with pytest.raises(click.ClickException, match="the API server would reject the job: "):
            await ask(refused)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: Pod\napiVersion: v1\n", "no job in it"),
        ("{", "j.yaml: "),
        ("kind: Job\napiVersion: batch/v1\n---\nkind: Job\napiVersion: batch/v1\n", "2 jobs in it"),
        ("kind: Job\napiVersion: batch/v1\n", "metadata or spec is missing"),
    ],
)
def test_a_manifest_that_is_no_job_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "j.yaml").write_text(text)
    with pytest.raises(click.ClickException, match=complaint):
        whatif.read(tmp_path / "j.yaml")


async def test_people_are_sent_nowhere_but_to_this_machine() -> None:
    api: Any = None
    assert await reach._directly(api, {"url": "http://example.com:80"}, "/forecasts") is None
    assert await reach._directly(api, {}, "/forecasts") is None


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("Succeeded", "it has succeeded, 5m ago"),
        ("Running", "it has started, 5m ago: running"),
        ("Inactive", "inactive: a user deactivated it"),
        ("Not managed", "not managed: no queue"),
    ],
)
async def test_a_job_that_does_not_wait_has_not_waited_until_now(state: str, words: str) -> None:
    (view,) = [view for view in map(briefs.of_json, await jobs()) if view.job_name == "runs"]
    item = briefs.as_json(replace(view, created=NOW - 9000, since=NOW - 300, state=JobState(state)))
    item["why"] = "a user deactivated it" if state == "Inactive" else "no queue"
    ((*_, waited, starts, _at, _runs, because),) = views.STARTS.rows(views.of_items([item]), NOW).cells
    assert (waited, starts, because) == ("", "", words)


def test_promises_are_rows_and_the_outcome_is_told_against_the_first() -> None:
    first = {"at": NOW, "p50": NOW + 600, "p90": NOW + 1200, "because": "after a ends", "cause": ""}
    moved = first | {"at": NOW + 60, "p50": NOW + 900, "cause": "a: expected to last longer than before"}
    rows = eta.promise_rows([first, moved], NOW)
    assert [row[3] for row in rows.cells] == ["first promise: after a ends", "a: expected to last longer than before"]
    record = {"starts": 412, "withinP50": 0.5, "withinP90": 0.91, "medianError": 0.1}
    answer = {"promises": [first, moved], "started": NOW + 1000.0, "record": record, "job": {"clusterQueue": "q"}}
    outcome, summed = eta.outcome_lines(answer, NOW)
    assert outcome.endswith("6m40s after the first p50, before its p90: kept")
    assert summed == (
        "ClusterQueue q: p90 held 91% of 412 starts, p50 50%; the median error of p50 was 10% of the wait"
    )
    assert eta.outcome_lines(answer | {"started": NOW + 5000.0}, NOW)[0].endswith("after its p90: not kept")
    assert eta.outcome_lines(answer | {"started": None, "record": None}, NOW) == []
    assert times.record_lines([{"clusterQueue": "q", "record": record}, {"clusterQueue": "b", "record": None}]) == [
        summed
    ]


async def test_the_operators_forecast_of_a_job_is_words() -> None:
    documents = {item["jobName"]: times.as_json(item) for item in await jobs()}
    waiting = forecast_command._show_operators(documents["next"], NOW)  # pyright: ignore[reportPrivateUsage]
    first, runs, starts = waiting.splitlines()
    assert first == "gpujob/next in namespace ml: pending"
    assert runs.startswith("runs for 119m – ") and "from Hint (0 runs)" in runs
    assert starts.startswith("starts in ") and starts.endswith("after runs ends")
    running = forecast_command._show_operators(documents["runs"], NOW)  # pyright: ignore[reportPrivateUsage]
    assert "has run for 20m" in running and "starts" not in running


async def test_what_a_queue_follows_instead_of_its_policy_is_said() -> None:
    row = {
        "clusterQueue": "a",
        "mode": "Easy",
        "since": "2023-11-14T20:00:00Z",
        "message": "512 workloads would have waited",
    }
    policy = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"clusterQueues": {"names": ["a"]}, "order": {"key": "ShortestFirst"}},
        "status": {"fallenBack": [row]},
    }
    here = clusters.busy()
    here.mirror.upsert(kube.QUEUE_POLICIES, policy)
    queue = here.engine._store.cluster_queues["a"]  # pyright: ignore[reportPrivateUsage]
    assert queue.fallen_back == "Easy", "without an operator, too, times are those of the mode"
    runs = (await here.answers().plan(Everybody(), "ml", "a", 86_400)).items
    found = await jobs(here)
    (waits,) = [item for item in found if item["jobName"] == "next"]
    assert waits["fallenBack"]["mode"] == "Easy"
    lines = times.floor_lines(runs, NOW)
    assert lines == times.floor_lines(found, NOW) != []
    assert len(lines) == 1 and lines[0].startswith(
        "ClusterQueue a follows EASY (in order of age, one reservation) instead"
    )
    assert lines[0].endswith("ago): 512 workloads would have waited")
    shown = views.of_items(found)
    remarks = views.LISTING.remarks
    assert remarks is not None and len(remarks(shown)) == 1
    assert views.LISTING.as_json(shown[0])["fallenBack"]["message"] == "512 workloads would have waited"
    assert plan.listing(86_400).as_json(runs[0])["fallenBack"]["mode"] == "Easy"
    assert times.floor_lines(await jobs(), NOW) == []


@pytest.mark.parametrize("status", [{"fallenBack": 7}, {"fallenBack": [{"mode": "Easy", "since": "noon"}]}])
async def test_a_strange_status_of_a_policy_is_no_mode(status: Json) -> None:
    here = clusters.busy()
    spec = {"clusterQueues": {"names": ["a"]}, "order": {"key": "ShortestFirst"}}
    here.mirror.upsert(kube.QUEUE_POLICIES, {"metadata": {"name": "p", "uid": "p"}, "spec": spec, "status": status})
    assert {item["fallenBack"] for item in await jobs(here)} == {None}


def test_forecasts_are_those_of_workloads_that_the_user_can_list() -> None:
    """The operator names none in an answer that anybody may read."""
    listed = [{"metadata": {"namespace": "ml", "name": name, "uid": f"uid-{name}"}} for name in ("a", "b")]
    records = {alias("uid-a"): {"samples": 1}, alias("uid-of-another"): {"samples": 2}}
    assert own_answers._named(records, listed) == {"ml/a": {"samples": 1}}
    assert own_answers._named(None, listed) is None
