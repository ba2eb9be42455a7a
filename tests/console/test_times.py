"""The commands that speak of time, as they print the operator's answers: eta, plan, whatif, queue -t."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from tests import worlds
from tests.worlds import NOW, gpujob

from gangline.console.commands import eta, plan, queue, whatif
from gangline.console.views import reach, table, times
from gangline.control.answers import items
from gangline.control.answers.answers import Wish
from gangline.control.answers.sight import Everybody
from gangline.jobs.gpujob import GPUJob
from gangline.kube.errors import AlreadyExists, Forbidden, Invalid

Json = dict[str, Any]


async def jobs(here: Any = None) -> list[Json]:
    return (await (here or worlds.busy()).answers().jobs(Everybody(), Wish("ml", times=True))).items


async def test_the_table_is_in_the_order_of_starts() -> None:
    waiting = [item for item in await jobs() if item["state"] == "Pending"]
    rows = eta.rows(waiting[::-1], NOW)
    assert [row[1] for row in rows.cells] == ["next", "last"]
    assert rows.cells[0][rows.header.index("BECAUSE")] == "after runs ends"


async def test_json_for_scripts_has_the_jobs_name_and_its_times() -> None:
    told = times.as_json((await jobs())[1])
    assert (told["name"], told["kind"], told["because"]) == ("next", "GPUJob", "after runs ends")
    assert list(told)[-4:] == ["elapsedSeconds", "expectedStart", "because", "forecast"]


def test_words_for_starts() -> None:
    def words(p50: float | None, p90: float | None) -> str:
        return times.start_text({"expectedStart": {"p50": p50, "p90": p90}}, NOW)

    assert times.start_text({"expectedStart": None}, NOW) == "?"
    assert words(NOW, NOW) == "now"
    assert words(NOW + 720, NOW + 14_400) == "12m – 4h"
    assert words(NOW + 720, None) == "12m – ?"


async def test_the_flavor_is_named_where_it_makes_a_difference() -> None:
    told = {item["jobName"]: times.runtime_text(item) for item in await jobs(worlds.several_flavors())}
    assert told["waits"] == "40m – 120m on v100" and "on" not in told["runs"]


async def test_queue_shows_times_before_its_last_column() -> None:
    shown = await jobs()
    rows = table.with_columns(
        table.workload_rows(map(items.of_json, shown), NOW),
        ("ELAPSED", "RUNS FOR", "STARTS IN"),
        [queue._times(item, NOW) for item in shown],
    )
    assert rows.header[-4:] == ("ELAPSED", "RUNS FOR", "STARTS IN", "REASON")
    by_name = {row[1]: row for row in rows.cells}
    assert by_name["runs"][-4] == "20m" and by_name["runs"][-2] == ""
    assert by_name["next"][-4] == "" and "–" in by_name["next"][-2]


async def planned() -> list[Json]:
    return (await worlds.busy().answers().plan(Everybody(), "", "", 86_400)).items


async def test_the_plan_draws_what_runs_and_what_will() -> None:
    lines = plan.draw(await planned(), NOW, 86_400.0, 100)
    assert lines[0].lstrip().startswith("|now")
    runs, follows, last = lines[1:4]
    assert "runs  32" in runs and plan.RUNS in runs and plan.WILL_RUN not in runs
    assert follows.index(plan.WILL_RUN) > runs.rindex(plan.RUNS) - 2
    assert last.index(plan.WILL_RUN) >= follows.rindex(plan.WILL_RUN) - 1
    assert max(map(len, lines)) <= 100


async def test_a_plan_cut_short_says_that_it_goes_on() -> None:
    (line,) = plan.draw([run for run in await planned() if run["job"] == "runs"], NOW, 60.0, 80)[1:]
    assert line.endswith(plan.PAST_EDGE)


async def test_a_plan_as_json_names_no_hidden_workload() -> None:
    (run, *_) = await planned()
    assert plan._as_json(run)["workload"].startswith("ml/gpujob-runs-")
    hidden = {**run, "metadata": {"name": "hidden-1"}, "hidden": True, "job": "hidden-1"}
    assert plan._as_json(hidden)["workload"] == "hidden-1"


# --- what if ------------------------------------------------------------------------------------------------------------


async def test_what_if_prints_the_start_and_what_gains(capsys: pytest.CaptureFixture[str]) -> None:
    whatif._show(await worlds.busy().answers().what_if(Everybody(), "ml", gpujob("mine", 2, "1h")))
    told = capsys.readouterr().out
    assert told.startswith("Submitted now to queue a, it would start in ")
    assert "(Hint, from 0 finished runs)." in told
    assert "submit it to queue b (ClusterQueue b)  at once" in told


async def test_what_if_says_why_nothing_helps(capsys: pytest.CaptureFixture[str]) -> None:
    answer = await worlds.busy().answers().what_if(Everybody(), "ml", gpujob("mine", 200, "1h"))
    whatif._show({**answer, "suggestions": [], "unexamined": 2})
    told = capsys.readouterr()
    assert "no start within the horizon: " in told.out and "maximum capacity" in told.out
    assert "No smaller size" in told.out and "2 changes were not tried" in told.err


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
        return await whatif.accepted(server, job, GPUJob())

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
