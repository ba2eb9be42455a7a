"""Answers about jobs, from a cluster that is made of JSON: what is said, and what others' jobs are reduced to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

import orjson
import pytest
from tests.builders import clusters
from tests.builders.clusters import NOW, SECRET, key_of

from gangline.control.answers.ahead import times
from gangline.control.answers.desk import Wish
from gangline.control.answers.pages import ListPage
from gangline.control.answers.refusals import NoSuchJobError, NoSuchQueueError, NotReadableError
from gangline.control.answers.sight import ALL, Everybody, Sight
from gangline.control.answers.source import NoForecastsError
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.briefs import WrongNameError
from gangline.control.answers.workloads.snapshot import JobState, WorkloadView, workload_view
from gangline.control.forecasting.promises import Ledger, PromiseRecord
from gangline.engine.simulation.outlook import Outlook
from gangline.forecast.quantiles import Forecast
from gangline.kube import resources as kube

Json = dict[str, Any]


class Reader:
    """May list the Workloads of these namespaces."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = frozenset(namespaces)
        self.asked: set[str] = set()

    async def sight(self, namespaces: Collection[str], queues: Collection[str]) -> Sight:
        self.asked |= set(namespaces)
        return Sight(namespaces=self.namespaces, queues=frozenset(queues))


async def jobs(here: Any, asker: Any = None, **wish: Any) -> dict[str, Json]:
    found = await here.answers().jobs(asker or Everybody(), Wish(**wish))
    return {item["jobName"]: item for item in found.items}


# --- times ------------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_hears_when_after_whom_and_for_how_long() -> None:
    by_job = await jobs(clusters.busy(), namespace="ml", times=True)
    first = by_job["next"]
    assert 1200 < first["expectedStart"]["p50"] - NOW < 3600 < first["expectedStart"]["p90"] - NOW
    assert first["because"] == "after runs ends"
    assert first["forecast"]["source"] == "Hint"
    assert by_job["last"]["because"] == "after next ends"
    running = by_job["runs"]
    assert (running["elapsedSeconds"], running["expectedStart"]) == (1200.0, None)
    assert running["forecast"]["p50"] > 1200
    assert [item["position"] for item in by_job.values()] == [None, 0, 1]
    assert "expectedStart" not in (await jobs(clusters.busy(), namespace="ml"))["next"], "only where it is asked for"


async def test_one_job_is_found_by_all_its_names() -> None:
    answers = clusters.busy().answers()
    workload = key_of(clusters.busy(), "next").partition("/")[2]
    for kind, name in (("", "next"), ("gpujob", "next"), ("gpujobs", "next"), ("workload", workload), ("", workload)):
        job = await answers.job(Everybody(), "ml", kind, name, with_times=True)
        assert (job["jobName"], job["because"]) == ("next", "after runs ends")
    for kind, name in (("job", "next"), ("", "none")):
        with pytest.raises(NoSuchJobError, match=r"no job .* in namespace ml"):
            await answers.job(Everybody(), "ml", kind, name)
    with pytest.raises(NoSuchJobError, match="there is one in ml: use -n ml"):
        await answers.job(Everybody(), "other", "", "next")
    with pytest.raises(WrongNameError, match="unknown kind"):
        await answers.job(Everybody(), "ml", "daemonset", "next")


def test_a_running_job_is_told_no_more_than_its_limit() -> None:
    here = clusters.busy()
    value = here.mirror.workload_value(key_of(here, "runs"))
    assert value is not None
    forecast = Forecast(600, 1800, 3600, 7200, 9000, "Hint", 0)
    free = times.given(value, forecast, 1200.0)
    assert 1200 < free.q10 < free.q50 < free.q90 < free.q95
    limited = times.given(replace(value, max_execution_seconds=1800), forecast, 1200.0)
    assert limited.q50 <= limited.q95 == 1800


def test_the_operators_estimates_outrank_our_own() -> None:
    here = clusters.busy()
    key = key_of(here, "runs")
    here.forecast({key: {"quantiles": [1500, 1800, 1900, 2000, 2100], "source": "Model", "samples": 7}})
    assert here.from_operator
    estimate = here.forecasts.estimate(key)
    assert estimate is not None and (estimate.source, estimate.q50) == ("Model", 1800)
    start = here.outlook().starts[key_of(here, "next")]
    assert 300 <= start.p50 / 1000 - NOW <= 900


async def test_of_several_flavors_it_is_said_which_one_it_will_be_and_what_it_takes_there() -> None:
    by_job = await jobs(clusters.several_flavors(), namespace="ml", times=True)
    forecast = by_job["waits"]["forecast"]
    assert (forecast["p50"], forecast["p90"], forecast["flavor"]) == (2400, 7200, "v100")
    assert by_job["runs"]["forecast"]["flavor"] is None


# --- the plan ---------------------------------------------------------------------------------------------------------


async def test_the_plan_has_what_runs_and_what_will() -> None:
    runs = (await clusters.busy().answers().plan(Everybody(), "ml", "", 86_400)).items
    assert [(run["job"], run["gpus"], run["after"]) for run in runs] == [
        ("runs", 32, []),
        ("next", 32, ["runs"]),
        ("last", 16, ["next"]),
    ]
    assert runs[0]["from"] < NOW < runs[0]["to"] <= runs[1]["from"]
    assert [(run["user"], run["queue"], run["state"]) for run in runs] == [
        ("", "a", "Running"),
        ("", "a", "Pending"),
        ("", "a", "Pending"),
    ]
    soon = (await clusters.busy().answers().plan(Everybody(), "", "a", 60)).items
    assert [run["job"] for run in soon] == ["runs"]
    assert (await clusters.busy().answers().plan(Everybody(), "ml", "b", 60)).items == []
    with pytest.raises(NoSuchQueueError, match="no LocalQueue of namespace other leads to a ClusterQueue 'a'"):
        await clusters.busy().answers().plan(Everybody(), "other", "a", 60)
    with pytest.raises(NoSuchQueueError, match="there is no ClusterQueue 'c' "):
        await clusters.busy().answers().plan(Everybody(), "", "c", 60)


async def test_a_plan_that_is_some_minutes_old_shows_nothing_as_running_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = clusters.busy()
    answers = here.answers()
    before = here.outlook()
    runs = next(run.workload for run in before.stretches if "runs" in run.workload)

    async def old(_: str = "") -> Outlook:
        return before

    monkeypatch.setattr(type(answers._foresight), "outlook", lambda *_: old())
    here.mirror.remove(kube.WORKLOADS, runs)
    here.now += 7_200_000
    items = (await answers.plan(Everybody(), "ml", "", 86_400)).items
    assert {(run["job"], run["state"]) for run in items} == {("next", "Pending"), ("last", "Pending")}


async def test_what_was_read_beforehand_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = clusters.busy().answers()
    await answers.prepare()
    monkeypatch.setattr(briefs, "brief_of", lambda raw: pytest.fail("it was read before"))
    assert len((await answers.jobs(Everybody(), Wish(namespace="ml"))).items) == 3


async def test_lists_come_in_pages() -> None:
    answers = clusters.busy().answers()
    names: list[str] = []
    for offset, left in ((0, 1), (2, 0), (4, 0)):
        found = await answers.jobs(Everybody(), Wish("ml", page=ListPage(offset, 2)))
        names += [item["jobName"] for item in found.items]
        assert found.left == left
    assert names == ["runs", "next", "last"]
    plan = await answers.plan(Everybody(), "ml", "", 86_400, ListPage(1, 1))
    assert ([run["job"] for run in plan.items], plan.left) == (["next"], 1)


# --- what others' jobs are reduced to ---------------------------------------------------------------------------------


def everything_said(*answers: Any) -> str:
    return orjson.dumps(answers).decode()


async def test_no_answer_tells_a_name_of_another_team() -> None:
    here, reader = clusters.shared(), Reader("ml")
    answers = here.answers()
    answered = [
        (await answers.jobs(reader, Wish("ml", times=True))).items,
        (await answers.jobs(reader, Wish("ml", "a", times=True))).items,
        await answers.job(reader, "ml", "", "next", with_times=True),
        [line.text for line in (await answers.why(reader, "ml", "", "next"))[1]],
        (await answers.plan(reader, "ml", "", 86_400)).items,
        (await answers.story(reader, "ml", "", "next"))[1],
        await answers.what_if(reader, "ml", clusters.gpujob("mine", 2, "1h")),
    ]
    assert SECRET not in everything_said(answered)
    assert SECRET in reader.asked, "it was asked whether they may be seen"
    full = await answers.jobs(Everybody(), Wish("ml", "a", times=True))
    assert SECRET in everything_said(full.items), "an administrator sees them"


async def test_a_hidden_job_has_its_size_its_times_and_its_place() -> None:
    here = clusters.shared()
    items = (await here.answers().jobs(Reader("ml"), Wish("ml", "a", times=True))).items
    (hidden,) = [item for item in items if item["hidden"]]
    assert (hidden["gpus"], hidden["pods"], hidden["position"], hidden["state"]) == (8, 1, 0, "Pending")
    assert hidden["created"] == NOW - 700 and hidden["expectedStart"]["p50"] > NOW
    assert hidden["forecast"]["p50"] == pytest.approx(1800)
    assert hidden["jobName"].startswith("hidden-") and hidden["metadata"] == {"name": hidden["jobName"]}
    (mine,) = [item for item in items if item["jobName"] == "next"]
    assert mine["position"] == 1 and "Workload would delay hidden-" in mine["message"]


async def test_why_is_true_without_the_names_of_others() -> None:
    item, lines = await clusters.shared().answers().why(Reader("ml"), "ml", "", "next")
    texts = {line.label: line.text for line in lines}
    assert item["position"] == 1 and "2nd of 2 waiting in ClusterQueue a (cohort lab)" in texts["state"]
    assert texts["ahead"].startswith("hidden-") and texts["ahead"].endswith("(8 GPUs)")
    assert "hidden-" in texts["held by"] and "of queue-" in texts["held by"] and "gpujob/runs (16" in texts["held by"]
    assert "the end of" in texts["needs"]


async def test_a_label_is_the_same_in_all_answers_and_tells_nothing() -> None:
    here = clusters.shared()
    answers, reader = here.answers(), Reader("ml")
    _, lines = await answers.why(reader, "ml", "", "next")
    runs = (await answers.plan(reader, "ml", "", 86_400)).items
    ahead = next(line.text for line in lines if line.label == "ahead").split()[0]
    assert ahead in {run["job"] for run in runs}
    key = key_of(here, f"{SECRET}-waits")
    assert Sight(secret=b"1").label(key) != Sight(secret=b"2").label(key)


async def test_of_a_namespace_that_may_not_be_read_no_job_is_named() -> None:
    answers = clusters.shared().answers()
    for name in ("next", "none"):
        with pytest.raises(NotReadableError):
            await answers.why(Reader(SECRET), "ml", "", name)
    (first, *_) = (await answers.jobs(Reader(), Wish("ml"))).items
    assert first["hidden"]
    with pytest.raises(NoSuchJobError) as raised:
        await answers.job(Reader("ml"), "ml", "", f"{SECRET}-runs")
    assert "there is one" not in str(raised.value)


def test_a_hidden_view_keeps_nothing_but_size_times_and_state() -> None:
    """Every field of a view is either listed here, or comes out empty: a new field is hidden until somebody lists it."""
    kept = {
        "pods",
        "amounts",
        "flavors",
        "held",
        "created",
        "since",
        "state",
        "position",
        "hidden",
        "end",
        "latest_end",
    }
    labels = {"name", "uid", "job_name", "cluster_queue"}
    here = clusters.shared()
    raw = here.mirror.objects[kube.WORKLOADS][key_of(here, f"{SECRET}-waits")]
    view = replace(workload_view(raw, {}), position=3, priority=7, cluster_queue="theirs", evicted="x", warnings=("y",))
    hidden = Sight().workload(view)
    for field in fields(WorkloadView):
        value = getattr(hidden, field.name)
        if field.name in kept:
            assert field.name == "hidden" or value == getattr(view, field.name)
        elif field.name in labels:
            assert value.startswith(("hidden-", "queue-"))
        else:
            assert not value, field.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("after ml/job-a ends", "after alpha ends"),
        ("after ml/job-b, other/job-c and 2 more end", "after ml/job-b, HIDDEN and 2 more end"),
        ("Preempted for other/job-x.", "Preempted for HIDDEN."),
        ("8 nvidia.com/gpu more, 3/5 nodes", "8 nvidia.com/gpu more, 3/5 nodes"),
        ("preemptor path: /lab/theirs; preemptee path: /lab/mine", "preemptor path: /QUEUE; preemptee path: /lab/mine"),
        ("", ""),
    ],
)
def test_texts_lose_what_may_not_be_seen(text: str, expected: str) -> None:
    sight = Sight(namespaces=frozenset({"ml"}), queues=frozenset({"mine"}))
    shown = sight.text(text, {"ml/job-a": "alpha"})
    for key in ("other/job-c", "other/job-x"):
        shown = shown.replace(sight.label(key), "HIDDEN")
    assert shown.replace(sight.queue_name("theirs"), "QUEUE") == expected


def test_an_administrator_sees_all_texts_as_they_are() -> None:
    text = "preemptor path: /lab/theirs; would delay other/job-c"
    assert ALL.text(text) == text


async def test_an_item_can_be_read_back() -> None:
    for here in (clusters.busy(), clusters.shared()):
        for item in (await here.answers().jobs(Reader("ml"), Wish(times=True))).items:
            view = briefs.of_json(orjson.loads(orjson.dumps(item)))
            assert briefs.as_json(view).items() <= item.items()
            assert view.state in JobState


# --- promises ---------------------------------------------------------------------------------------------------------


async def test_promises_are_told_with_the_queues_record_and_without_others_names() -> None:
    here = clusters.shared()
    answers, ledger = here.answers(), Ledger()
    seen = here.outlook()
    ledger.promise_starts(seen.starts.values(), NOW * 1000)
    ledger.records["a"] = PromiseRecord(412, 200, 375)
    here.ledger = ledger
    job, promises = await answers.promises(Reader("ml"), "ml", "", "next")
    assert job["jobName"] == "next" and promises["started"] is None
    assert promises["promises"][0]["p50"] > NOW and promises["record"]["withinP90"] == pytest.approx(0.91, abs=0.001)
    assert SECRET not in everything_said(promises)
    (mine,) = [
        item for item in (await answers.jobs(Everybody(), Wish("ml", times=True))).items if item["jobName"] == "next"
    ]
    assert mine["record"]["starts"] == 412
    planned = {run["job"]: run["record"] for run in (await answers.plan(Everybody(), "ml", "", 86_400)).items}
    assert planned["next"]["starts"] == 412
    with pytest.raises(NoForecastsError):
        await clusters.shared().answers().promises(Reader("ml"), "ml", "", "next")


async def test_asking_for_promises_makes_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = clusters.shared()
    here.ledger = ledger = Ledger()
    foresee = here.outlook

    def promise(only: frozenset[str] | None) -> Outlook:
        seen = foresee(only)
        ledger.promise_starts(seen.starts.values(), NOW * 1000)
        return seen

    monkeypatch.setattr(here, "outlook", promise)
    for _ in range(2):
        _, said = await here.answers().promises(Reader("ml"), "ml", "", "next")
        assert len(said["promises"]) == 1
