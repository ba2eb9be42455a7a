"""Forecasts fed from the mirror: what becomes history, what the engine is told, and when."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.builders.objects import Workload, condition, container

from gangline.control.feed.mirror import Mirror
from gangline.control.forecasting import run_facts
from gangline.control.forecasting.forecasting import rows_as_json
from gangline.control.forecasting.runtime_facts import Forecasts
from gangline.engine import model
from gangline.forecast.history.runs import Run
from gangline.forecast.tracking.flavors import FlavorScale
from gangline.kube import resources as kube

Json = dict[str, Any]
START = 1_700_000_000


def stamp(seconds: int) -> str:
    from gangline.api.read.conditions import timestamp

    return timestamp(seconds * 1000)


class ForecastWorld:
    """A mirror with a forecaster behind it, and a clock."""

    def __init__(self, **options: Any) -> None:
        self.seconds = START
        self.told: list[model.Change] = []
        self.stored: list[Run] = []
        self.version = 0
        self.mirror = Mirror(observe=self._observe)
        self.forecasts = Forecasts(
            self.mirror, self.told.append, now=lambda: self.seconds * 1000, store=self.stored.append, **options
        )

    def _observe(self, change: model.Change) -> None:
        self.forecasts.note(change)

    def policy(self) -> None:
        self.put(kube.QUEUE_POLICIES, {"kind": "QueuePolicy", "metadata": {"name": "p"}, "spec": {"clusterQueues": {}}})

    def put(self, resource: kube.Resource, obj: Json) -> None:
        self.version += 1
        meta = {"uid": f"uid-{obj['metadata']['name']}", "resourceVersion": str(self.version), **obj["metadata"]}
        self.mirror.upsert(resource, {**obj, "metadata": meta})

    def gpujob(self, name: str, annotations: Json | None = None, **runtime: Any) -> None:
        template = {"spec": {"containers": [{"name": "main", "image": "train:v1"}]}}
        spec = {"workers": 1, "gpusPerWorker": 8, "template": template, "runtime": runtime}
        metadata = {"name": name, "namespace": "ml", "annotations": annotations or {}}
        self.put(kube.GPU_JOBS, {"kind": "GPUJob", "metadata": metadata, "spec": spec})

    def workload(
        self,
        name: str,
        *,
        started: int | None = None,
        ended: int | None = None,
        created: int = START,
        owner: str = "",
        checkpoint: str = "",
        past: int = 0,
        preempted: int = 0,
        annotations: Json | None = None,
        flavor: str = "h100",
        asks: str = "nvidia.com/gpu",
        kind: str = "",
    ) -> None:
        """`past`: seconds of its earlier runs, of which each ended by a preemption."""
        made = Workload(name, "ml", uid=f"uid-{name}", creationTimestamp=stamp(created)).in_queue("lq").conditions()
        main = container(name="main", image="train:v1", command=["python", "train.py", "--lr", "1"])
        made.pods({**main, "resources": {"requests": {asks: "8"}}})
        if kind:
            made.made["spec"]["podSets"][0]["template"]["metadata"] = {"annotations": {"gangline.io/class": kind}}
        if annotations:
            made.annotations(annotations)
        if checkpoint:
            made.annotations({"gangline.io/checkpoint-interval": checkpoint})
        if owner:
            made.owned_by("GPUJob", owner, "gangline.io/v1alpha1", uid=f"uid-{owner}")
        if past:
            row = {"reason": "Preempted", "underlyingCause": "InClusterQueue", "count": preempted}
            made.status(accumulatedPastExecutionTimeSeconds=past, schedulingStats={"evictions": [row]})
        if started is not None:
            assigned = {"name": "main", "count": 1, "flavors": {asks: flavor}}
            made.admitted("cq", {**assigned, "resourceUsage": {asks: "8"}}, at=started * 1000)
        if ended is not None:
            made.conditions(condition("Finished", reason="Succeeded", at=ended * 1000))
        self.put(kube.WORKLOADS, made.made)

    def ran(self, name: str, seconds: int, *, created: int) -> None:
        """A workload from its submission to its end."""
        self.seconds = created
        self.workload(name, created=created)
        self.turn()
        self.workload(name, created=created, started=created + 10)
        self.turn()
        self.seconds = created + 10 + seconds
        self.workload(name, created=created, started=created + 10, ended=self.seconds)
        self.turn()

    def turn(self) -> None:
        while self.forecasts.work(1.0):
            pass
        while self.forecasts.tell():
            pass

    def facts(self, name: str) -> list[model.RuntimeForecast]:
        return [
            change.item
            for change in self.told
            if isinstance(change, model.Put)
            and isinstance(change.item, model.RuntimeForecast)
            and change.item.workload == f"ml/{name}"
        ]


def median(fact: model.RuntimeForecast) -> float:
    return dict(fact.quantiles)[0.5] / 1000


def test_a_finished_workload_becomes_one_run_with_all_that_is_known_of_it() -> None:
    world = ForecastWorld()
    world.ran("train-1", 600, created=START)
    (run,) = world.stored
    assert (run.uid, run.namespace, run.queue, run.gpus) == ("uid-train-1", "ml", "lq", 8)
    assert (run.image, run.command, run.flavor) == ("train:v1", "python train.py --lr", "h100")
    assert (run.submit, run.start, run.seconds) == (START, START + 10, 600.0)


def test_what_company_has_cost_a_run_is_not_learned() -> None:
    world = ForecastWorld(lost=lambda uid: {"uid-slowed": 20_000}.get(uid, 0))
    for name in ("slowed", "alone"):
        world.ran(name, 60, created=START)
    learned = {run.uid: run.finish - run.start for run in world.stored if run.finish and run.start}
    assert learned == {"uid-slowed": 40, "uid-alone": 60}


def preempted(world: ForecastWorld, checkpoint: str = "") -> None:
    """`long` runs for 95 minutes, while its likes take 10, and is preempted."""
    world.policy()
    for number in range(5):
        world.ran(f"train-{number}", 600, created=START + 1000 * number)
    begun = world.seconds = START + 10_000
    world.workload("long", created=begun, checkpoint=checkpoint)
    world.turn()
    world.workload("long", created=begun, started=begun, checkpoint=checkpoint)
    world.turn()
    world.seconds = begun + 5700
    world.workload("long", created=begun, checkpoint=checkpoint, past=5700, preempted=1)
    world.turn()


def test_what_was_preempted_is_known_to_take_longer_than_it_ran() -> None:
    world = ForecastWorld()
    preempted(world)
    assert median(world.facts("long")[0]) < 1200
    assert median(world.facts("long")[-1]) > 5700, "all of it is done again"


def test_what_was_saved_is_not_done_again() -> None:
    world = ForecastWorld()
    preempted(world, "30m")
    left = median(world.facts("long")[-1])
    assert 300 < left < 5700, "more than the five minutes that were lost; 90 minutes of it are done"


def test_a_run_is_learned_as_one_with_what_it_saved_before() -> None:
    """The accuracy of the last forecast is that of what was left."""
    world = ForecastWorld()
    preempted(world, "30m")
    again = world.seconds + 600
    known = {"created": START + 10_000, "checkpoint": "30m", "past": 5700, "preempted": 1}
    world.seconds = again
    world.workload("long", started=again, **known)
    world.turn()
    before = world.forecasts.records["History"].log_error
    expected = median(world.facts("long")[-1])
    world.seconds = again + 900
    world.workload("long", started=again, ended=world.seconds, **known)
    world.turn()
    assert world.stored[-1].seconds == 3 * 1800 + 900
    error = world.forecasts.records["History"].log_error - before
    assert error == pytest.approx(abs(math.log(expected / 900)), rel=0.01)


def test_of_several_runs_from_the_start_the_mean_is_the_least() -> None:
    world = ForecastWorld()
    world.workload("long", past=6000, preempted=3)
    value = world.mirror.workload_value("ml/long")
    assert value is not None and (value.saved, run_facts.least(value)) == (0, 2000.0)


def offer(world: ForecastWorld, *flavors: str) -> None:
    """The queue has these flavors of GPUs, and one of cpu."""
    quotas = [{"name": name, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]} for name in flavors]
    cpus = {"coveredResources": ["cpu"], "flavors": [{"name": "cpus", "resources": []}]}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": quotas}, cpus]
    world.put(kube.CLUSTER_QUEUES, {"metadata": {"name": "cq"}, "spec": {"resourceGroups": groups}})
    local = {"metadata": {"name": "lq", "namespace": "ml"}, "spec": {"clusterQueue": "cq"}}
    world.put(kube.LOCAL_QUEUES, local)


def compare(world: ForecastWorld, **offsets: float) -> None:
    """It was learned how flavors compare: offsets of log runtime."""
    world.forecasts.forecaster.tracker.rescale(FlavorScale(offsets))


def told_apart(**offsets: float) -> ForecastWorld:
    """Workload `w` waits, and was told, where a queue offers flavors that compare like this."""
    world = ForecastWorld()
    world.policy()
    offer(world, *offsets)
    compare(world, **offsets)
    world.workload("w")
    world.turn()
    return world


def test_where_a_queue_has_one_flavor_a_waiting_job_is_forecast_for_that() -> None:
    def forecast(*flavors: str) -> model.RuntimeForecast:
        world = ForecastWorld()
        world.policy()
        offer(world, *flavors)
        compare(world, h100=-0.5, v100=0.5)
        world.workload("w")
        world.turn()
        return world.facts("w")[-1]

    between = forecast("h100", "v100")
    for flavor, offset in (("h100", -0.5), ("v100", 0.5)):
        alone = forecast(flavor)
        assert median(alone) == pytest.approx(median(between) * math.exp(offset), rel=1e-3)
        assert alone.by_flavor == {}
        assert between.by_flavor[flavor] == alone.quantiles, "with several, it is said for each of them"


def test_flavors_that_make_no_difference_are_not_told_apart() -> None:
    world = ForecastWorld()
    world.policy()
    offer(world, "h100", "v100")
    world.workload("unknown")
    world.turn()
    assert world.facts("unknown")[-1].by_flavor == {}, "nothing ran on both"
    compare(world, h100=-0.01, v100=0.02)
    world.workload("alike")
    world.turn()
    assert world.facts("alike")[-1].by_flavor == {}
    compare(world, h100=-0.5, v100=0.5)
    world.gpujob("llm", expected="2h")
    world.workload("gpujob-llm-1", owner="llm")
    world.turn()
    assert world.facts("gpujob-llm-1")[-1].by_flavor == {}, "its author says how long it takes, wherever that is"


def test_once_it_runs_it_is_told_for_its_own_flavor_alone_and_again_only_when_that_moved() -> None:
    world = told_apart(h100=-0.5, v100=0.5)
    (waiting,) = world.facts("w")
    world.workload("w", started=START + 10)
    world.turn()
    world.turn()
    running = world.facts("w")[1:]
    assert [(fact.quantiles, fact.by_flavor) for fact in running] == [(waiting.by_flavor["h100"], {})]


def test_what_was_said_of_other_flavors_is_taken_back_though_nothing_else_has_changed() -> None:
    world = told_apart(h100=0.0, v100=0.7)
    world.workload("w", started=START + 10)
    world.turn()
    waiting, running = world.facts("w")
    assert running.quantiles == waiting.quantiles and waiting.by_flavor and not running.by_flavor


def test_what_its_flavor_was_told_to_take_is_what_its_end_is_compared_with() -> None:
    world = told_apart(h100=-2.0, v100=2.0)
    expected = dict(world.facts("w")[-1].by_flavor["h100"])[0.5] / 1000
    assert 2 < expected < 600
    world.workload("w", started=START + 10)
    world.forecasts.work(1.0)
    ended = START + 10 + round(expected) - 1
    world.workload("w", started=START + 10, ended=ended)
    world.forecasts.work(1.0)
    (record,) = world.forecasts.records.values()
    assert record.below[0.5] == 1 and record.log_error < 0.1


def test_the_operators_answer_tells_flavors_apart_too() -> None:
    world = ForecastWorld()
    world.policy()
    offer(world, "h100", "v100")
    world.workload("before")
    world.turn()
    compare(world, h100=-0.5, v100=0.5)
    world.workload("w")
    world.turn()
    told = dict(rows_as_json(world.forecasts))
    assert "byFlavor" not in told["ml/before"]
    assert told["ml/w"]["byFlavor"]["v100"][1] == pytest.approx(told["ml/w"]["quantiles"][1] * math.exp(0.5))


DECLARED = {"gangline.io/expected-runtime": "1h", "gangline.io/flavor-speeds": "h100=4,v100=0.5"}


def choosing(world: ForecastWorld, **policy: Any) -> None:
    """A policy chooses among the flavors of the queue."""
    spec = {"clusterQueues": {"names": ["cq"]}, "flavors": policy}
    world.put(kube.QUEUE_POLICIES, {"kind": "QueuePolicy", "metadata": {"name": "p"}, "spec": spec})


def medians(fact: model.RuntimeForecast) -> dict[str, float]:
    return {flavor: dict(quantiles)[0.5] / 1000 for flavor, quantiles in fact.by_flavor.items()}


def test_a_job_says_how_fast_it_is_on_which_flavor() -> None:
    world = ForecastWorld()
    world.policy()
    offer(world, "h100", "v100", "old")
    world.workload("w", annotations=DECLARED)
    world.turn()
    told = world.facts("w")[-1]
    assert median(told) == pytest.approx(3600, rel=0.01)
    assert medians(told) == pytest.approx({"h100": 900, "v100": 7200, "old": 3600}, rel=0.01)
    world.workload("w", started=START + 10, annotations=DECLARED)
    world.turn()
    told = world.facts("w")[-1]
    assert told.by_flavor == {} and median(told) == pytest.approx(900, rel=0.01), "it runs on the fast one"


def test_on_the_only_flavor_of_its_queue_its_speed_there_counts() -> None:
    world = ForecastWorld()
    world.policy()
    offer(world, "v100")
    world.workload("w", annotations=DECLARED)
    world.turn()
    assert median(world.facts("w")[-1]) == pytest.approx(7200, rel=0.01) and world.facts("w")[-1].by_flavor == {}


def test_speeds_that_change_are_told_anew() -> None:
    world = ForecastWorld()
    world.policy()
    offer(world, "h100", "v100")
    for speeds in ("h100=4,v100=0.5", "h100=2"):
        world.gpujob("llm", annotations={"gangline.io/flavor-speeds": speeds}, expected="1h")
        world.workload("gpujob-llm-1", owner="llm")
        world.forecasts.note_job(world.mirror.jobs_of_kind(kube.GPU_JOBS)["ml/llm"])
        world.turn()
    assert medians(world.facts("gpujob-llm-1")[-1]) == pytest.approx({"h100": 1800, "v100": 3600}, rel=0.01)


def test_speeds_of_a_job_without_accelerators_are_those_of_what_it_requests() -> None:
    world = ForecastWorld()
    world.policy()
    quotas = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": 8}]} for name in ("h100", "v100")]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    world.put(kube.CLUSTER_QUEUES, {"metadata": {"name": "cq"}, "spec": {"resourceGroups": groups}})
    local = {"metadata": {"name": "lq", "namespace": "ml"}, "spec": {"clusterQueue": "cq"}}
    world.put(kube.LOCAL_QUEUES, local)
    world.workload("w", asks="cpu", annotations=DECLARED)
    world.turn()
    assert medians(world.facts("w")[-1]) == pytest.approx({"h100": 900, "v100": 7200}, rel=0.01)


def flavors_of_cards(world: ForecastWorld, **products: str) -> None:
    for name, product in products.items():
        spec = {"nodeLabels": {"nvidia.com/gpu.product": product}}
        world.put(kube.RESOURCE_FLAVORS, {"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("alone", "ratio"),
    [
        ([{"gpu": "h100", "rate": "90"}, {"gpu": "V100", "rate": "10"}], 9.0),
        ([{"gpu": "h100", "rate": "90"}, {"rate": "10"}], None),
        ([{"gpu": "h100", "rate": "90"}, {"gpu": "V100", "memory": "9Gi"}], None),
        ([{"gpu": "h100", "rate": "fast"}, {"gpu": "V100", "rate": "10"}], None),
    ],
)
def test_a_job_profile_says_how_fast_a_class_is_on_which_card(alone: list[Json], ratio: float | None) -> None:
    world = ForecastWorld()
    choosing(world)
    offer(world, "new", "old")
    flavors_of_cards(world, new="NVIDIA-H100-80GB-HBM3", old="Tesla-V100-SXM2-16GB")
    world.put(kube.JOB_PROFILES, {"metadata": {"name": "bert"}, "spec": {"alone": alone}})
    world.workload("w", kind="bert", annotations={"gangline.io/expected-runtime": "1h"})
    world.workload("other", kind="gpt", annotations={"gangline.io/expected-runtime": "1h"})
    world.turn()
    found = medians(world.facts("w")[-1])
    assert medians(world.facts("other")[-1]) == {}
    if ratio is None:
        assert found == {}
    else:
        assert found["old"] / found["new"] == pytest.approx(ratio, rel=0.01)
        assert math.sqrt(found["old"] * found["new"]) == pytest.approx(3600, rel=0.01)
        said = {"gangline.io/expected-runtime": "1h"}
        world.workload("w", kind="bert", annotations=said, started=START + 10, flavor="new")
        world.turn()
        assert median(world.facts("w")[-1]) == pytest.approx(found["new"], rel=0.01), "so it is once it runs"


def test_hints_are_judged_by_what_they_say_of_the_flavor_of_the_run() -> None:
    """Who is right about the runtime at speed 1, and about the speed, has hints that are right."""
    world = ForecastWorld()
    world.policy()
    offer(world, "h100", "v100")
    for number in range(6):
        name, began = f"run-{number}", START + 4000 * number
        world.seconds = began
        world.workload(name, created=began, annotations=DECLARED)
        world.turn()
        world.workload(name, created=began, started=began + 10, annotations=DECLARED)
        world.turn()
        world.seconds = began + 910
        world.workload(name, created=began, started=began + 10, ended=began + 910, annotations=DECLARED)
        world.turn()
    assert [run.hint for run in world.stored] == [900.0] * 6
    world.workload("other", created=world.seconds, annotations={**DECLARED, "gangline.io/expected-runtime": "2h"})
    world.turn()
    found = medians(world.facts("other")[-1])
    assert found["v100"] == pytest.approx(8 * found["h100"], rel=0.01)
    estimate = world.forecasts.forecaster.tracker.own_ratio("hint", world.stored[-1])
    assert estimate is not None and abs(estimate.mean) < 0.01


@pytest.mark.parametrize("policy", [None, {"choose": "QueueOrder"}, {}])
def test_speeds_of_a_class_are_learned_where_a_policy_chooses_by_them(policy: Json | None) -> None:
    world = ForecastWorld()
    offer(world, "h100", "v100")
    if policy is not None:
        choosing(world, **policy)
    forecaster = world.forecasts.forecaster
    for number in range(40):
        flavor, seconds = (("h100", 600), ("v100", 6000))[number % 2]
        done = Run(f"run-{number}", START, gpus=8, namespace="ml", queue="lq", image="train:v1", name="w")
        forecaster.submitted(done, ask=False)
        forecaster.started(done.uid, START, flavor)
        forecaster.finished(done.uid, START + seconds)
    world.seconds += 10_000
    world.forecasts.ask()
    world.workload("w", created=world.seconds)
    world.turn()
    found = medians(world.facts("w")[-1])
    if policy == {}:
        assert found["v100"] > 5 * found["h100"]
    else:
        assert found == {}


def test_what_had_ended_before_a_restart_is_stored_once_whoever_saw_it() -> None:
    world = ForecastWorld()
    world.forecasts.stored.add("uid-known")
    world.workload("known", started=START + 1, ended=START + 60)
    world.workload("new", started=START + 1, ended=START + 90)
    world.turn()
    world.workload("new", started=START + 1, ended=START + 90)
    world.turn()
    assert [(run.uid, run.seconds) for run in world.stored] == [("uid-new", 89.0)]


def test_one_that_ends_and_is_gone_before_anybody_looked_is_not_lost() -> None:
    world = ForecastWorld()
    world.workload("brief")
    world.workload("brief", started=START + 1)
    world.workload("brief", started=START + 1, ended=START + 3)
    world.mirror.remove(kube.WORKLOADS, "ml/brief")
    world.turn()
    assert [run.seconds for run in world.stored] == [2.0]


def test_without_a_policy_a_gpujob_or_a_question_nothing_is_estimated() -> None:
    world = ForecastWorld()
    world.workload("quiet")
    world.turn()
    assert world.told == []
    world.forecasts.ask()
    world.turn()
    assert [fact.source for fact in world.facts("quiet")] == ["Default"]


def test_estimates_follow_what_finishes_and_are_repeated_only_when_they_moved() -> None:
    world = ForecastWorld()
    world.policy()
    world.workload("next")
    world.turn()
    for i in range(4):
        world.ran(f"past-{i}", 1000, created=START + 2000 * i)
    before = len(world.facts("next"))
    assert world.facts("next")[-1].source in ("Global", "History")
    world.turn()
    world.turn()
    assert len(world.facts("next")) == before
    world.workload("later", created=world.seconds)
    world.turn()
    fact = world.facts("later")[-1]
    assert fact.source == "History" and fact.samples >= 3
    assert median(fact) == pytest.approx(1000, rel=0.3)


def test_the_engine_is_told_of_whole_runtimes_however_long_a_run_has_run() -> None:
    world = ForecastWorld()
    world.policy()
    world.workload("long")
    world.turn()
    first = median(world.facts("long")[-1])
    world.workload("long", started=START + 10)
    world.seconds += 50_000
    world.turn()
    assert median(world.facts("long")[-1]) == first


def test_a_gpujob_says_steps_times_seconds_and_may_change_its_mind() -> None:
    world = ForecastWorld()
    world.gpujob("llm", steps=2000, secondsPerStep="1500m")
    world.workload("gpujob-llm-1", owner="llm")
    world.turn()
    fact = world.facts("gpujob-llm-1")[-1]
    assert (fact.source, median(fact)) == ("Hint", 3000.0)
    world.gpujob("llm", expected="2h")
    world.forecasts.note_job(world.mirror.objects[kube.GPU_JOBS]["ml/llm"])
    world.turn()
    assert median(world.facts("gpujob-llm-1")[-1]) == 7200.0


def test_a_preempted_run_begins_anew_and_only_its_last_stretch_counts() -> None:
    world = ForecastWorld()
    world.workload("w")
    world.workload("w", started=START + 10)
    world.turn()
    world.workload("w")
    world.turn()
    world.workload("w", started=START + 500)
    world.turn()
    world.workload("w", started=START + 500, ended=START + 800)
    world.turn()
    assert [run.seconds for run in world.stored] == [300.0]


def test_what_is_over_or_gone_is_taken_back_from_the_engine() -> None:
    world = ForecastWorld()
    world.policy()
    world.workload("ends", started=START)
    world.workload("goes")
    world.turn()
    world.workload("ends", started=START, ended=START + 5)
    world.mirror.remove(kube.WORKLOADS, "ml/goes")
    world.turn()
    gone = {change.key for change in world.told if isinstance(change, model.Gone)}
    assert gone == {"ml/ends", "ml/goes"}
    assert world.forecasts.estimates() == {}


def test_how_estimates_turned_out_is_counted_by_their_source() -> None:
    world = ForecastWorld()
    world.policy()
    for i in range(6):
        world.ran(f"past-{i}", 1000, created=START + 2000 * i)
    records = world.forecasts.records
    assert sum(record.ended for record in records.values()) == 6
    history = records["History"]
    assert history.below[0.95] == history.ended
    assert history.log_error / history.ended < 1.0


def test_a_workload_that_cannot_be_read_keeps_no_other_from_its_forecast(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = run_facts.run_of

    def picky(value: model.Workload, *rest: Any) -> Run:
        if value.name == "odd":
            raise ValueError("never seen such a thing")
        return real(value, *rest)

    monkeypatch.setattr(run_facts, "run_of", picky)
    world = ForecastWorld()
    world.policy()
    world.ran("before", 600, created=START)
    world.workload("odd")
    world.workload("even")
    world.turn()
    assert world.facts("even") and not world.facts("odd")
    assert "ml/odd" in caplog.text


def test_a_finished_run_is_remembered_for_as_long_as_it_can_be_seen() -> None:
    world = ForecastWorld()
    for name in ("watched", "unseen"):
        if name == "watched":
            world.workload(name, started=START + 5)
            world.turn()
        world.workload(name, started=START + 5, ended=START + 60)
        world.turn()
        world.workload(name, started=START + 5, ended=START + 60, created=START - 1)
        world.turn()
        assert f"uid-{name}" in world.forecasts.stored
        world.mirror.remove(kube.WORKLOADS, f"ml/{name}")
        world.turn()
    assert world.forecasts.stored == set()
    assert [run.uid for run in world.stored] == ["uid-watched", "uid-unseen"]
