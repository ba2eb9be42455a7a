"""What if: variants of a job that is not submitted, when they would start, and jobs that cannot be one."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.clusters import gpujob

from gangline.api.read.conditions import timestamp
from gangline.api.schedules import DAYS
from gangline.console.views.own_answers import ClusterInstant
from gangline.control.answers.ahead import capacity, whatif
from gangline.control.answers.ahead.whatif import Answer, Variant, WrongJobError
from gangline.control.answers.sight import Everybody
from gangline.forecast.quantiles import Forecast
from gangline.kube import resources as kube

Json = dict[str, Any]


def variants(here: ClusterInstant, workers: int = 4, expected: str = "1h") -> list[Variant]:
    return list(whatif._variants(here.answers().source, "ml", gpujob("mine", workers, expected)))


async def answer(here: ClusterInstant, workers: int) -> Json:
    return await here.answers().what_if(Everybody(), "ml", gpujob("mine", workers, "1h"))


async def test_what_if_finds_the_idle_queue_and_the_smaller_gang() -> None:
    outcome = await answer(clusters.busy(), workers=2)
    assert outcome["startsInSeconds"]["p50"] > 0 and outcome["because"].startswith("after ")
    assert (outcome["queue"], outcome["obstacle"], outcome["unexamined"]) == ("a", "", 0)
    offers = outcome["suggestions"]
    assert "queue b" in offers[0]["change"] and offers[0]["startsInSeconds"]["p50"] < 1
    assert offers[0]["gainedHours"] > 1
    assert [o["gainedHours"] for o in offers] == sorted((o["gainedHours"] for o in offers), reverse=True)
    assert len(offers) <= 3


async def test_nothing_of_it_stays() -> None:
    here = clusters.busy()
    facts, objects = here.engine.facts(), copy.deepcopy(here.mirror.objects)
    await answer(here, workers=2)
    assert here.engine.facts() == facts and here.mirror.objects == objects
    assert here.forecasts.forecaster.forecast("whatif-workload", clusters.NOW) is None


def test_what_if_tells_flavors_apart_as_the_operator_has_learned_to() -> None:
    here = clusters.several_flavors()
    here.forecast({}, {"h100": -math.log(2), "v100": math.log(2)})
    job = gpujob("mine", 2, "1h")
    del job["spec"]["runtime"]
    original, *others = whatif._variants(here.answers().source, "ml", job)
    assert {flavor: round(each.q50 / original.forecast.q50, 3) for flavor, each in original.by_flavor.items()} == {
        "h100": 0.5,
        "v100": 2.0,
    }
    found = {variant.kind: variant for variant in others}
    assert found["smaller"].by_flavor["v100"].q50 == pytest.approx(2 * original.by_flavor["v100"].q50)
    assert found["queue"].by_flavor["h100"].q50 == pytest.approx(original.forecast.q50 / 2)


async def test_it_is_said_on_which_flavor_a_suggestion_runs() -> None:
    here = clusters.several_flavors()
    here.forecast({}, {"h100": -math.log(2), "v100": math.log(2)})
    job = gpujob("mine", 2, "1h")
    del job["spec"]["runtime"]
    outcome = await here.answers().what_if(Everybody(), "ml", job)
    assert outcome["flavor"] == "v100", "16 GPUs are more than all fast ones"
    (other_queue,) = [offer for offer in outcome["suggestions"] if "queue b" in offer["change"]]
    assert other_queue["flavor"] == "h100"
    assert other_queue["runsForSeconds"]["p50"] == pytest.approx(outcome["runsForSeconds"]["p50"] / 4)


async def test_what_never_fits_may_fit_when_it_is_smaller() -> None:
    outcome = await answer(clusters.busy(), workers=8)
    assert outcome["startsInSeconds"] is None
    assert [offer["change"] for offer in outcome["suggestions"]] == ["ask for 32 GPUs instead of 64"]
    assert outcome["suggestions"][0]["runsForSeconds"]["p50"] == pytest.approx(7200)
    assert outcome["suggestions"][0]["gainedHours"] is None, "all of it"


async def test_what_is_far_too_large_is_made_smaller_until_it_fits() -> None:
    outcome = await answer(clusters.busy(), workers=200)
    assert [offer["change"] for offer in outcome["suggestions"]] == ["ask for 24 GPUs instead of 1600"]
    assert "maximum capacity" in outcome["obstacle"]


def test_variants_are_smaller_shorter_and_elsewhere() -> None:
    original, *found = variants(clusters.busy())
    assert [variant.kind for variant in found] == ["smaller", "smaller", "shorter", "shorter", "queue"]
    assert [sum(p.count for p in v.workload.pod_sets) for v in found[:2]] == [2, 1]
    assert found[2].forecast.q50 == original.forecast.q50 / 2


def test_only_so_many_queues_are_tried() -> None:
    queues = [entry for name in ("a", *(f"q{n}" for n in range(40))) for entry in clusters.queue(name, 8)]
    here = clusters.world_of(clusters.flavor("h100"), *queues)
    assert sum(variant.kind == "queue" for variant in variants(here)) == whatif.MOST_QUEUES


def test_of_each_kind_the_best_is_suggested_and_nothing_that_does_not_help() -> None:
    runs = Forecast(1, 2, 3, 4, 5, "Hint", 0)

    def offer(change: str, gained: float) -> Answer:
        return Answer(change, 10.0, 20.0, gained, runs)

    offered = [("smaller", offer("s1", 600)), ("smaller", offer("s2", 900)), ("shorter", offer("t", 30))]
    assert [a.change for a in whatif.best([*offered, ("queue", offer("q", 7200))])] == ["q", "s2"]


def changed(**spec: Any) -> Json:
    job = gpujob("mine", 1, "1h")
    job["spec"] |= spec
    return job


def with_meta(**meta: Any) -> Json:
    job = gpujob("mine", 1, "1h")
    job["metadata"] |= meta
    return job


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        (None, r"spec\.job: must be a Job, a JobSet or a GPUJob$"),
        ([], r"spec\.job: must be"),
        ({"apiVersion": "v1", "kind": "Pod"}, r"spec\.job: must be .*, not 'Pod' of 'v1'"),
        ({"apiVersion": {}, "kind": 7}, r"spec\.job: must be"),
        ({"apiVersion": "batch/v1", "kind": "Job"}, r"spec\.job\.metadata: must be an object"),
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": 1}, r"spec\.job\.spec: must be an object"),
        (with_meta(namespace="theirs"), r"spec\.job\.metadata\.namespace: must be 'ml', not 'theirs'"),
        (with_meta(labels=[]), r"spec\.job\.metadata\.labels"),
        (with_meta(labels=None), r"metadata\.labels"),
        (with_meta(name="x" * 300), r"spec\.job\.metadata\.name"),
        (with_meta(labels={}), r"names no queue"),
        (with_meta(labels={"kueue.x-k8s.io/queue-name": "A B"}), r"spec\.job\.metadata\.labels\[kueue"),
        (changed(workers=-1), r"spec\.job"),
        (changed(workers=[]), r"spec\.job"),
        (changed(template=7), r"spec\.job"),
        (changed(template={"spec": {"containers": [3]}}), r"spec\.job"),
    ],
)
async def test_a_job_that_is_none_is_refused_by_its_field(job: Any, complaint: str) -> None:
    with pytest.raises(WrongJobError, match=complaint):
        await clusters.busy().answers().what_if(Everybody(), "ml", job)


async def test_the_default_queue_is_taken() -> None:
    here = clusters.busy()
    resource, default = clusters.local_queue("default", "b")
    here.mirror.upsert(resource, default | {"metadata": default["metadata"] | {"resourceVersion": "1"}})
    outcome = await here.answers().what_if(Everybody(), "ml", with_meta(labels={}))
    assert outcome["queue"] == "default" and outcome["startsInSeconds"]["p50"] == 0
    assert here.mirror.get(kube.LOCAL_QUEUES, "ml/default") is not None


# --- a date -----------------------------------------------------------------------------------------------------------

HOUR = 3_600_000


def at(hours: float) -> str:
    return timestamp(1000 * clusters.NOW + round(hours * HOUR))


async def asked(here: ClusterInstant, workers: int, hours: float) -> Json:
    return await here.answers().what_if(Everybody(), "ml", gpujob("mine", workers, "1h"), at(hours))


def plan(gpus: int, window: Json | None = None) -> clusters.Entry:
    """Queue a has so many GPUs in a window, usually from in an hour until in 20 hours."""
    change = {"flavor": "h100", "resource": "nvidia.com/gpu", "nominalQuota": gpus}
    when = window or {"start": at(1), "end": at(20)}
    spec = {"clusterQueue": "a", "overrides": [{"name": "night", "window": when, "quotas": [change]}]}
    return kube.QUOTA_PLANS, {"kind": "QuotaPlan", "metadata": {"name": "p", "uid": "p"}, "spec": spec}


async def test_a_job_submitted_later_finds_the_cluster_as_it_will_be() -> None:
    now, later = await answer(clusters.busy(), workers=2), await asked(clusters.busy(), 2, hours=24)
    assert now["startsInSeconds"]["p50"] > 0 and now["submittedAt"] is None and not now["assumed"]
    assert later["startsInSeconds"] == {"p50": 0, "p90": 0}, "seconds count from its submission"
    assert later["submittedAt"] == clusters.NOW + 24 * 3600
    assert later["suggestions"] == [] and "as long as forecast" in later["assumed"]


async def test_it_waits_behind_those_that_wait_before_it_and_not_before_its_date() -> None:
    outcome = await asked(clusters.busy(), 4, hours=0.5)
    assert outcome["startsInSeconds"]["p50"] > 1800, "all that waits now goes first"


@pytest.mark.parametrize(("hours", "starts"), [(10.0, 36_000.0), (30.0, 0.0)])
async def test_the_quotas_of_that_time_count(hours: float, starts: float) -> None:
    """Ten hours on, the queue has no quota, which it gets back in ten more."""
    here = clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 32), plan(gpus=0))
    outcome = await asked(here, 2, hours)
    assert outcome["startsInSeconds"]["p50"] == starts


async def test_what_never_fits_says_why_at_any_date() -> None:
    outcome = await asked(clusters.busy(), 8, hours=24)
    assert outcome["startsInSeconds"] is None and "maximum capacity" in outcome["obstacle"]


def test_all_windows_of_reservations_before_the_date_are_known() -> None:
    schedule = {"days": list(DAYS), "time": "08:00", "duration": "1h"}
    meta = {"name": "daily", "uid": "daily", "creationTimestamp": at(-1)}
    spec = {"window": {"schedule": schedule}, "nodes": {"names": ["n1"]}}
    here = clusters.world_of((kube.RESERVATIONS, {"kind": "Reservation", "metadata": meta, "spec": spec}))
    found = capacity.expanded_until(here.answers().source, 1000 * clusters.NOW + 10 * 24 * HOUR)
    windows = [window for each in found for window in each.windows()]
    assert sum(each.begin <= 1000 * clusters.NOW + 10 * 24 * HOUR for each in windows) == 10


async def test_it_is_said_how_far_quotas_are_known() -> None:
    daily = {"schedule": {"days": list(DAYS), "time": "08:00", "duration": "1h"}}
    here = clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 32), plan(gpus=8, window=daily))
    assert "T09:00:00Z" in (await asked(here, 2, hours=10 * 24))["assumed"].partition("which are known until ")[2]
    assert "known until" not in (await asked(here, 2, hours=5 * 24))["assumed"]


@pytest.mark.parametrize("date", [at(-1), at(0), at(15 * 24), "tomorrow", 5, "", {}, "9" * 10_000])
async def test_a_date_that_is_none_or_too_far_is_refused(date: Any) -> None:
    with pytest.raises(WrongJobError, match=r"^spec\.at: must be "):
        await clusters.busy().answers().what_if(Everybody(), "ml", gpujob("mine", 1, "1h"), date)
