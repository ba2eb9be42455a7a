"""The commands that speak of time, on a cluster that is made of JSON: eta, plan, whatif, queue -t."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from gangline.api.read.conditions import timestamp
from gangline.console.commands import eta, plan, whatif
from gangline.console.commands.whatif import Answer, Variant
from gangline.console.views import reach, table, times
from gangline.console.views.snapshot import State
from gangline.console.views.world import ClusterFacts
from gangline.forecast import Forecast
from gangline.jobs import workload as workloads
from gangline.jobs.gpujob import GPUJob
from gangline.kube import resources as kube
from gangline.kube.errors import AlreadyExists, Forbidden, Invalid

Json = dict[str, Any]
NOW = 1_700_000_000
GPU = "nvidia.com/gpu"


def queue(name: str, gpus: int, **others: int) -> list[tuple[kube.Resource, Json]]:
    """`gpus` are of flavor h100; `others` are more flavors."""
    quotas = [
        {"name": flavor, "resources": [{"name": GPU, "nominalQuota": n}]}
        for flavor, n in {"h100": gpus, **others}.items()
    ]
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": quotas}]}
    cluster_queue = {"kind": "ClusterQueue", "metadata": {"name": name, "uid": name}, "spec": spec}
    local = {"kind": "LocalQueue", "metadata": {"name": name, "namespace": "ml", "uid": f"lq-{name}"}}
    return [(kube.CLUSTER_QUEUES, cluster_queue), (kube.LOCAL_QUEUES, {**local, "spec": {"clusterQueue": name}})]


def gpujob(name: str, workers: int, expected: str, queue: str = "a") -> Json:
    template = {"spec": {"containers": [{"name": "main", "image": f"example.com/{name}"}]}}
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "GPUJob",
        "metadata": {"name": name, "namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"workers": workers, "gpusPerWorker": 8, "runtime": {"expected": expected}, "template": template},
    }


def submitted(
    name: str, workers: int, expected: str, *, ago: int, started: int | None = None, queue: str = "a", on: str = "h100"
) -> list[tuple[kube.Resource, Json]]:
    """A GPUJob and its Workload, `ago` seconds old; `started` that many seconds ago, or waiting."""
    job = gpujob(name, workers, expected, queue)
    job["metadata"] |= {"uid": f"job-{name}"}
    kind = GPUJob()
    workload = workloads.build(kind, job, kind.pod_sets(job), queue=queue, priority=0)
    workload["metadata"] |= {"uid": f"wl-{name}", "creationTimestamp": timestamp((NOW - ago) * 1000)}
    if started is not None:
        assigned = {"name": "worker", "count": workers, "flavors": {GPU: on}, "resourceUsage": {GPU: 8 * workers}}
        rows = [
            {"type": kind_, "status": "True", "reason": kind_, "lastTransitionTime": timestamp((NOW - started) * 1000)}
            for kind_ in ("QuotaReserved", "Admitted")
        ]
        workload["status"] = {
            "conditions": rows,
            "admission": {"clusterQueue": queue, "podSetAssignments": [assigned]},
        }
    return [(kube.GPU_JOBS, job), (kube.WORKLOADS, workload)]


def flavor(name: str) -> tuple[kube.Resource, Json]:
    return kube.RESOURCE_FLAVORS, {"kind": "ResourceFlavor", "metadata": {"name": name, "uid": name}, "spec": {}}


@pytest.fixture
def here() -> ClusterFacts:
    """32 GPUs: one job runs on all of them for 40 more minutes, and two wait; queue b has 16 GPUs that nobody uses."""
    return world_of(
        flavor("h100"),
        *queue("a", 32),
        *queue("b", 16),
        *submitted("runs", 4, "1h", ago=1300, started=1200),
        *submitted("next", 4, "2h", ago=600),
        *submitted("last", 2, "30m", ago=300),
    )


def world_of(*entries: tuple[kube.Resource, Json]) -> ClusterFacts:
    objects: dict[kube.Resource, list[Json]] = {}
    for number, (resource, obj) in enumerate(entries):
        obj["metadata"]["resourceVersion"] = str(number)
        objects.setdefault(resource, []).append(obj)
    world = ClusterFacts(now=NOW * 1000)
    world.fill(objects)
    world.forecast(None)
    return world


def several() -> ClusterFacts:
    """Queue a has 8 fast GPUs and 32 slow ones; a job is to run on the slow ones for 40 more minutes, and one waits for them."""
    here = world_of(
        flavor("h100"),
        flavor("v100"),
        *queue("a", 8, v100=32),
        *queue("b", 16),
        *submitted("runs", 4, "1h", ago=1300, started=1200, on="v100"),
        *submitted("waits", 4, "2h", ago=600),
    )
    told = {"quantiles": [600, 1200, 2400, 3600, 4800], "source": "Model", "samples": 7}
    there = {"h100": [300, 600, 1200, 1800, 2400], "v100": [1200, 2400, 4800, 7200, 9600], "odd": [1]}
    here.forecast({times.key_of(views(here)["waits"]): told | {"byFlavor": there}})
    return here


def views(here: ClusterFacts) -> dict[str, Any]:
    return {view.job_name: view for view in times.view_of(here).workloads}


def test_eta_says_when_after_whom_and_for_how_long(here: ClusterFacts) -> None:
    seen = views(here)
    known = times.times(here, here.outlook(), seen.values())
    first = known[seen["next"].uid]
    assert first.start is not None and first.latest is not None
    assert 1200 < first.start - NOW < 3600 < first.latest - NOW
    assert first.because == "after runs ends"
    assert first.forecast is not None and first.forecast.source == "Hint"
    assert known[seen["last"].uid].because == "after next ends"
    running = known[seen["runs"].uid]
    assert (running.elapsed, running.start) == (1200.0, None)
    assert running.forecast is not None and running.forecast.q50 > 1200


def test_a_running_job_is_told_no_more_than_its_limit(here: ClusterFacts) -> None:
    value = here.mirror.workload_value(times.key_of(views(here)["runs"]))
    assert value is not None
    forecast = Forecast(600, 1800, 3600, 7200, 9000, "Hint", 0)
    free = times._given(value, forecast, 1200.0)
    assert 1200 < free.q10 < free.q50 < free.q90 < free.q95
    limited = times._given(replace(value, max_execution_seconds=1800), forecast, 1200.0)
    assert limited.q50 <= limited.q95 == 1800


def test_the_operators_estimates_outrank_our_own(here: ClusterFacts) -> None:
    seen = views(here)
    key = times.key_of(seen["runs"])
    here.forecast({key: {"quantiles": [1500, 1800, 1900, 2000, 2100], "source": "Model", "samples": 7}})
    assert here.from_operator
    estimate = here.estimate(key)
    assert estimate is not None and (estimate.source, estimate.q50) == ("Model", 1800)
    start = here.outlook().starts[times.key_of(seen["next"])]
    assert 300 <= start.p50 / 1000 - NOW <= 900


def test_of_several_flavors_it_is_said_which_one_it_will_be_and_what_it_takes_there() -> None:
    here = several()
    seen = views(here)
    known = times.times(here, here.outlook(), seen.values())
    waits = known[seen["waits"].uid]
    assert waits.flavor == "v100" and waits.forecast is not None and waits.forecast.q50 == 2400
    assert times.runtime_text(waits.forecast, waits.flavor) == "40m – 120m on v100"
    told = times.as_json(seen["waits"], waits)["forecast"]
    assert (told["p50"], told["p90"], told["flavor"]) == (2400, 7200, "v100")
    runs = known[seen["runs"].uid]
    assert runs.flavor == "" and times.as_json(seen["runs"], runs)["forecast"]["flavor"] is None
    assert here.expected(times.key_of(seen["waits"]), None)[0] == here.estimate(times.key_of(seen["waits"]))


def test_the_table_is_in_the_order_of_starts(here: ClusterFacts) -> None:
    seen = views(here)
    known = times.times(here, here.outlook(), seen.values())
    rows = eta._rows([seen["last"], seen["next"]], known, NOW)
    assert [row[1] for row in rows.cells] == ["next", "last"]
    assert rows.cells[0][rows.header.index("BECAUSE")] == "after runs ends"


def test_words_for_starts() -> None:
    assert times.start_text(times.Times(), NOW) == "?"
    assert times.start_text(times.Times(start=NOW, latest=NOW), NOW) == "now"
    assert times.start_text(times.Times(start=NOW + 720, latest=NOW + 14_400), NOW) == "12m – 4h"
    assert times.start_text(times.Times(start=NOW + 720), NOW) == "12m – ?"


def test_queue_shows_times_before_its_last_column(here: ClusterFacts) -> None:
    from gangline.console.commands.queue import _times

    seen = [view for view in views(here).values() if view.state is not State.SUCCEEDED]
    known = times.times(here, here.outlook(), seen)
    rows = table.with_columns(
        table.workload_rows(seen, NOW), ("ELAPSED", "RUNS FOR", "STARTS IN"), [_times(v, known, NOW) for v in seen]
    )
    assert rows.header[-4:] == ("ELAPSED", "RUNS FOR", "STARTS IN", "REASON")
    by_name = {row[1]: row for row in rows.cells}
    assert by_name["runs"][-4] == "20m" and by_name["runs"][-2] == ""
    assert by_name["next"][-4] == "" and "–" in by_name["next"][-2]


def test_the_plan_draws_what_runs_and_what_will(here: ClusterFacts) -> None:
    seen = here.outlook(seconds=0.0)
    names = {f"{view.namespace}/{view.name}": view for view in views(here).values()}
    lines = plan.draw(here, seen.stretches, names, 86_400.0, 100)
    assert lines[0].lstrip().startswith("|now")
    runs, follows, last = lines[1:4]
    assert "runs  32" in runs and plan.RUNS in runs and plan.WILL_RUN not in runs
    assert follows.index(plan.WILL_RUN) > runs.rindex(plan.RUNS) - 2
    assert last.index(plan.WILL_RUN) >= follows.rindex(plan.WILL_RUN) - 1
    assert max(map(len, lines)) <= 100


def test_a_plan_cut_short_says_that_it_goes_on(here: ClusterFacts) -> None:
    seen = here.outlook(seconds=0.0)
    (line,) = plan.draw(here, [s for s in seen.stretches if "runs" in s.workload], {}, 60.0, 80)[1:]
    assert line.endswith(plan.PAST_EDGE)


# --- what if ------------------------------------------------------------------------------------------------------------


def asked(here: ClusterFacts, workers: int = 4, expected: str = "1h") -> Variant:
    return whatif.put(here, gpujob("mine", workers, expected), GPUJob())


def test_what_if_finds_the_idle_queue_and_the_smaller_gang(here: ClusterFacts) -> None:
    original = asked(here, workers=2)
    base, because, _ = whatif._start(here, original)
    assert base is not None and because.startswith("after ")
    answers = whatif.best(whatif._answers(here, original, base))
    assert "queue b" in answers[0].change and answers[0].p50 is not None and answers[0].p50 < 1
    assert answers[0].gained > 3600
    assert [a.gained for a in answers] == sorted((a.gained for a in answers), reverse=True)
    assert len(answers) <= 3


def test_what_if_tells_flavors_apart_as_the_operator_has_learned_to() -> None:
    here = several()
    here.forecast({}, {"h100": -math.log(2), "v100": math.log(2)})
    job = gpujob("mine", 2, "1h")
    del job["spec"]["runtime"]
    original = whatif.put(here, job, GPUJob())
    assert {flavor: round(each.q50 / original.forecast.q50, 3) for flavor, each in original.by_flavor.items()} == {
        "h100": 0.5,
        "v100": 2.0,
    }
    _, _, flavor = whatif._start(here, original)
    assert flavor == "v100", "16 GPUs are more than all fast ones"
    variants = {variant.kind: variant for variant in whatif.variants(here, original)}
    assert variants["smaller"].by_flavor["v100"].q50 == pytest.approx(2 * original.by_flavor["v100"].q50)
    elsewhere = variants["queue"]
    start, _, flavor = whatif._start(here, elsewhere)
    answer = whatif._answer(here, elsewhere, start, None, flavor)
    assert (answer.flavor, answer.runs) == ("h100", elsewhere.by_flavor["h100"])
    assert answer.runs.q50 == pytest.approx(original.forecast.q50 / 2)


def test_what_never_fits_may_fit_when_it_is_smaller(here: ClusterFacts) -> None:
    original = asked(here, workers=8)
    base, _, _ = whatif._start(here, original)
    assert base is None
    answers = whatif.best(whatif._answers(here, original, base))
    assert [answer.change for answer in answers] == ["ask for 32 GPUs instead of 64"]
    assert answers[0].runs.q50 == pytest.approx(7200)


def test_what_is_far_too_large_is_made_smaller_until_it_fits(here: ClusterFacts) -> None:
    original = asked(here, workers=200)
    answers = whatif.best(whatif._answers(here, original, None))
    assert [answer.change for answer in answers] == ["ask for 24 GPUs instead of 1600"]
    assert "maximum capacity" in whatif._obstacle(here, original.workload)


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


def test_variants_are_smaller_shorter_and_elsewhere(here: ClusterFacts) -> None:
    original = asked(here)
    found = list(whatif.variants(here, original))
    assert [variant.kind for variant in found] == ["smaller", "smaller", "shorter", "shorter", "queue"]
    assert [sum(p.count for p in v.workload.pod_sets) for v in found[:2]] == [2, 1]
    assert found[2].forecast.q50 == original.forecast.q50 / 2


def test_of_each_kind_the_best_is_suggested_and_nothing_that_does_not_help() -> None:
    runs = Forecast(1, 2, 3, 4, 5, "Hint", 0)

    def answer(change: str, gained: float) -> Answer:
        return Answer(change, 10.0, 20.0, gained, runs)

    offered = [("smaller", answer("s1", 600)), ("smaller", answer("s2", 900)), ("shorter", answer("t", 30))]
    assert [a.change for a in whatif.best([*offered, ("queue", answer("q", 7200))])] == ["q", "s2"]


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


def test_a_job_without_a_queue_is_refused(here: ClusterFacts) -> None:
    job = gpujob("mine", 1, "1h")
    del job["metadata"]["labels"]
    with pytest.raises(click.ClickException, match="names no queue"):
        whatif.put(here, job, GPUJob())


async def test_people_are_sent_nowhere_but_to_this_machine() -> None:
    api: Any = None
    assert await reach._directly(api, {"url": "http://example.com:80"}, "/forecasts") is None
    assert await reach._directly(api, {}, "/forecasts") is None
