"""What is known at an instant: no leakage, keys, fallback estimator, flavors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.forecast.generator import DAY, make_runs

from gangline.engine.model import Admission, PodSet, PodSetAssignment, Workload
from gangline.forecast.history.runs import Run, command_shape, fold, from_workload, hint_seconds, image_name
from gangline.forecast.learning import training
from gangline.forecast.learning.calibration import group_of
from gangline.forecast.quantiles import ForecastSource
from gangline.forecast.tracking import fallback_estimator, features, flavors
from gangline.forecast.tracking.baselines import last_two
from gangline.forecast.tracking.tracker import Tracker


def run(uid: str, submit: float, seconds: float | None = None, **more: object) -> Run:
    finish = None if seconds is None else submit + seconds
    base = Run(uid=uid, submit=submit, gpus=1, user="ann", namespace="team", name="job-1", start=submit, finish=finish)
    return replace(base, **more)  # type: ignore[arg-type]


def tracked(runs: list[Run]) -> Tracker:
    tracker = Tracker()
    for _ in training.play(runs, tracker):
        pass
    return tracker


def test_features_do_not_change_with_the_future() -> None:
    """The vector of each run is the same whether or not anything after its submission is known."""
    runs = [replace(r, flavor=("a100", "h100")[number % 2]) for number, r in enumerate(make_runs(300))]
    whole = training.build(runs, Tracker())
    for cut in (50, 150, 299):
        now = runs[cut].submit
        past = [training.known_at(r, now) for r in runs if r.submit < now] + [
            replace(runs[cut], start=None, finish=None, flavor="")  # which it gets is known when it starts
        ]
        np.testing.assert_array_equal(training.build(past, Tracker()).matrix[cut], whole.matrix[cut])


def test_a_run_that_ends_at_the_instant_of_submission_is_not_yet_known() -> None:
    tracker = Tracker()
    asked = run("b", 100.0)
    for at in training.play([run("a", 0.0, 100.0), asked], tracker):
        if at is asked:
            assert math.isnan(last_two(asked, tracker))
    assert last_two(asked, tracker) == pytest.approx(100.0)


def test_the_running_count_and_elapsed_time_are_known() -> None:
    tracker = Tracker()
    asked = run("c", 500.0)
    vectors = [
        dict(zip(features.NAMES, features.vector(r, tracker, r.submit), strict=True))
        for r in training.play([run("a", 0.0, 1000.0), run("b", 100.0, 50.0), asked], tracker)
    ]
    assert vectors[2]["user.running"] == 1
    assert vectors[2]["user.oldest"] == pytest.approx(math.log1p(500))
    assert vectors[2]["user.last"] == pytest.approx(math.log(50))
    assert vectors[2]["name.since"] == pytest.approx(math.log1p(400))
    assert math.isnan(vectors[0]["user.last"])


def test_statistics_are_those_of_the_last_thirty() -> None:
    runs = [run(f"r{i}", i * DAY, 10.0 + i * 7 % 91) for i in range(80)]
    stats = tracked(runs).stats(runs[0])["user"]
    window = [r.log_seconds for r in runs[-30:]]
    assert stats.count == 80
    assert stats.mean == pytest.approx(np.mean(window))
    assert stats.variance == pytest.approx(np.var(window, ddof=1))
    assert last_two(runs[0], tracked(runs)) == pytest.approx(np.mean([runs[-1].seconds, runs[-2].seconds]))


def test_an_evicted_run_teaches_nothing() -> None:
    tracker = Tracker()
    tracker.submitted(run("a", 0.0))
    tracker.started("a", 10.0)
    tracker.stopped("a")
    assert tracker.finished("a", 20.0) is None
    assert not tracker.stats(run("b", 30.0))
    assert "a" not in tracker


def test_memory_is_bounded() -> None:
    tracker = Tracker(max_classes=10)
    for i in range(100):
        tracker.submitted(run(f"r{i}", float(i), user=f"u{i}"))
        tracker.started(f"r{i}", float(i))
        tracker.finished(f"r{i}", i + 0.5)
    assert all(len(classes) <= 10 for classes in tracker._classes)
    assert "user" in tracker.stats(run("x", 200.0, user="u99"))


# --- likeness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("train-resnet-0042-x7k2p", "train-resnet-#-#"),
        ("eval", "eval"),
        ("Sweep_12.3", "sweep_#.#"),
        ("bert-large-2020-08-01", "bert-large-#-#-#"),
    ],
)
def test_names_are_folded(name: str, folded: str) -> None:
    assert fold(name) == folded


def test_images_and_commands_are_alike_in_shape() -> None:
    assert image_name("r:5000/t/train:v1.2@sha256:ab") == image_name("r:5000/t/train:v1.3")
    assert image_name("train") == "train"
    assert (
        command_shape(["python", "/a/train_1.py", "--lr", "0.1", "--epochs=90", "data"])
        == "python train_#.py --lr --epochs"
    )
    assert command_shape([]) == ""


def test_a_per_iteration_hint() -> None:
    assert hint_seconds(None, 1000, 1.5) == 1500
    assert hint_seconds(60.0, 1000, 1.5) == 60
    assert hint_seconds(None, 1000, None) is None
    for bad in (-1.0, 0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive number of seconds"):
            hint_seconds(bad, None, None)


def test_a_workload_of_the_engine() -> None:
    pods = PodSet("main", 4, {"cpu": 1000, "nvidia.com/gpu": 8})
    admission = Admission("cq", (PodSetAssignment("main", 4, {"cpu": "cpus", "nvidia.com/gpu": "h100"}, {}),))
    workload = Workload(
        "u1", "team", "job-x-1", "lq", (pods,), created=5_000, admission=admission, admitted=True, admitted_at=9_000,
        max_execution_seconds=60,
    )  # fmt: skip
    found = from_workload(workload, name="x-1", user="ann", command=["python", "t.py"], finished_at=39.0)
    assert (found.gpus, found.pods, found.flavor, found.seconds, found.limit) == (32, 4, "h100", 30.0, 60)
    assert from_workload(replace(workload, admitted=False, admission=None), name="x").seconds is None


def test_a_namespace_with_many_classes_forgets_its_own() -> None:
    tracker = Tracker(max_classes=50)
    quiet = [
        run(f"q{n}", n * 10.0, 1000.0, namespace="quiet", name=f"{'abc'[n % 3]}-job", hint=500.0) for n in range(12)
    ]
    loud = [
        run(f"l{n}", 200.0 + n, 1.0, namespace="loud", user=f"u{n}", name="x" * (n % 400), image=f"{n}", hint=1.0)
        for n in range(1000)
    ]
    for _ in training.play([*quiet, *loud], tracker):
        pass
    asked = run("now", 2000.0, namespace="quiet", name="a-job", hint=500.0)
    assert tracker.stats(asked)["name"].count == 4
    assert tracker.stats(asked)["user"].count == 12
    ratio = tracker.own_ratio("hint", asked)
    assert ratio is not None and ratio.remembered == 12
    assert tracker.believed(asked) > math.log(500.0), "its hints were half of the runtimes"
    everybody = tracker.ratio("hint", run("other", 2000.0, namespace="new", user="new", hint=5.0))
    assert everybody is not None and everybody.remembered == 30


def test_a_queue_is_one_of_its_namespace() -> None:
    tracker = tracked([run(f"r{n}", n * 10.0, 3600.0, namespace="loud", queue="default") for n in range(20)])
    asked = run("now", 20_000.0, namespace="quiet", user="bob", queue="default")
    assert not {"queue", "queue-size"} & tracker.stats(asked).keys()
    assert group_of(asked) != group_of(replace(asked, namespace="loud"))
    in_a_trace = tracked([run(f"r{n}", n * 10.0, 3600.0, namespace="", queue="default") for n in range(20)])
    assert in_a_trace.stats(replace(asked, namespace=""))["queue"].count == 20


def test_a_run_of_any_workload_is_small() -> None:
    workload = Workload("u1", "team", "w", "lq", (PodSet("main", 1, {"cpu": 1}),), created=5_000)
    long = "x/" * 500_000
    found = from_workload(workload, name=long, user=long, image=long, command=[long] * 3)
    assert found.image == "#"
    assert sum(len(text) for text in (found.name, found.user, found.image, found.command)) < 1000
    usual = "registry.example:5000/team/train:v1.2@sha256:" + 64 * "0"
    assert from_workload(workload, name="w", image=usual).image == usual


# --- cold start -------------------------------------------------------------------------------------------------------


def test_the_fallback_estimator_says_what_it_stands_on() -> None:
    tracker = Tracker()
    fresh = run("x", 0.0)
    assert fallback_estimator.forecast(fresh, tracker).source == ForecastSource.DEFAULT
    hinted = fallback_estimator.forecast(replace(fresh, hint=7200.0, limit=86400.0), tracker)
    assert (hinted.source, hinted.samples, round(hinted.q50)) == ("Hint", 0, 7200)
    limited = fallback_estimator.forecast(replace(fresh, limit=86400.0), tracker)
    assert limited.source == "Limit"
    assert limited.q95 == pytest.approx(86400)

    others = [run(f"o{i}", i * 1000.0, 500.0, user="bob", namespace="other", gpus=4) for i in range(5)]
    assert fallback_estimator.forecast(fresh, tracked(others)).source == ForecastSource.GLOBAL
    same_size = fallback_estimator.forecast(replace(fresh, gpus=4), tracked(others))
    assert (same_size.source, same_size.samples) == ("History", 5)


def test_history_of_the_same_job_beats_the_hint() -> None:
    past = [run(f"p{i}", i * 1000.0, 500.0, name=f"job-{i}") for i in range(6)]
    forecast = fallback_estimator.forecast(run("x", 9000.0, hint=40_000.0), tracked(past))
    assert forecast.source == "History"
    assert forecast.q50 == pytest.approx(500, rel=0.01)
    assert forecast.q90 > 1000  # six runs that agree do not make it certain


def test_authors_are_corrected() -> None:
    """Ann always says ten times as long as it takes; a new job of hers is forecast with a tenth."""
    past = [run(f"p{i}", i * 1000.0, 360.0, name=f"job-{'abcdefgh'[i]}", hint=3600.0, gpus=i + 1) for i in range(6)]
    forecast = fallback_estimator.forecast(run("x", 9000.0, hint=7200.0, name="new", gpus=64), tracked(past))
    assert (forecast.source, forecast.samples) == ("Hint", 6)
    assert forecast.q50 == pytest.approx(720, rel=0.01)


def authors(**ratios: list[float]) -> list[Run]:
    """Finished runs of an hour by these authors: each hint is an hour divided by one of the ratios."""
    return [
        run(f"{user}{i}", 1000.0 * i, 3600.0, user=user, hint=3600.0 / ratio, name=f"{user}-{'abcdefghijklmnop'[i]}")
        for user, of in ratios.items()
        for i, ratio in enumerate(of)
    ]


HONEST = [0.5, 0.7, 1.0, 1.4, 2.0] * 3


def test_a_hint_is_understood_as_its_author_is_wrong() -> None:
    tracker = tracked(authors(ann=HONEST, eve=[10.0, 12.0, 8.0] * 4))
    believed = {user: tracker.believed(run("x", 9e4, hint=360.0, user=user)) for user in ("ann", "eve")}
    assert believed["ann"] == pytest.approx(math.log(360), abs=0.5)
    assert believed["eve"] > math.log(360) + 1.5, "a tenth, always: nearly an hour is meant"
    assert math.isnan(tracker.believed(run("x", 9e4, user="ann")))


def test_an_author_without_a_past_is_taken_for_the_namespace_and_not_for_everyone() -> None:
    """A user label can be chosen anew for every job."""
    lies = [replace(each, namespace="liars", user=f"new-{i}") for i, each in enumerate(authors(eve=[10.0] * 12))]
    tracker = tracked([*authors(ann=HONEST), *lies])
    new = run("x", 9e4, hint=360.0, user="never-seen")
    assert tracker.believed(replace(new, namespace="liars")) > math.log(360) + 1.0
    assert tracker.believed(replace(new, namespace="elsewhere")) == math.log(360)


def test_who_cannot_be_relied_on_is_taken_to_be_long() -> None:
    """Eve says a minute whatever it is."""
    past = [replace(each, hint=60.0) for each in authors(ann=[1.0])] + [
        run(f"e{i}", 1000.0 * i, 10.0 ** (1 + i % 4), user="eve", hint=60.0, name=f"e-{'abcdefghijkl'[i]}")
        for i in range(12)
    ]
    believed = tracked(past).believed(run("x", 9e4, hint=60.0, user="eve"))
    assert believed > math.log(10_000), "longer than most that she ran"


def test_whoever_lies_about_the_long_ones_alone_is_not_believed_for_the_short_ones() -> None:
    short = [
        run(f"s{i}", 100.0 * i, 100.0, user="eve", hint=100.0, name=f"s-{'abcdefghijklmnopqrstuvwxyz'[i]}")
        for i in range(26)
    ]
    long = [run(f"l{i}", 3000.0 + i, 50_000.0, user="eve", hint=5_000.0, name=f"l-{'ab'[i]}") for i in range(2)]
    more = [
        replace(
            each, uid=f"more-{each.uid}", submit=60_000.0 + 100 * i, start=60_000.0 + 100 * i, finish=60_100.0 + 100 * i
        )
        for i, each in enumerate(short)
    ]
    believed = tracked(short + long + more).believed(run("x", 9e4, hint=5_000.0, user="eve"))
    assert believed > math.log(25_000), "though her last 26 runs were as she had said"


# --- flavors ----------------------------------------------------------------------------------------------------------


def test_flavors_are_compared_by_classes_that_ran_on_both() -> None:
    runs = [
        run(f"{name}{flavor}{i}", 1000.0 * i, base * factor, name=name, flavor=flavor)
        for name, base in (("a", 100.0), ("b", 5000.0))
        for flavor, factor in (("h100", 1.0), ("v100", 3.0))
        for i in range(40)
    ]
    runs += [run(f"only{i}", 1000.0 * i, 9.0, name="c", flavor="t4") for i in range(40)]
    scale = flavors.learn(runs)
    assert math.exp(scale.offset("v100") - scale.offset("h100")) == pytest.approx(3.0, rel=0.1)
    assert scale.offset("t4") == 0
    assert flavors.learn(runs[:1]).offset("h100") == 0


def test_whoever_keeps_what_is_declared_makes_an_exact_promise() -> None:
    """Five runs that declared 600 s and took 600 s: the sixth is expected to do the same, whatever similar runs have taken."""
    for declared in ("hint", "limit"):
        tracker = Tracker()
        for number in range(5):
            tracker.submitted(run(f"r{number}", number * 1000.0, **{declared: 600.0}))
            tracker.started(f"r{number}", number * 1000.0)
            tracker.finished(f"r{number}", number * 1000.0 + 600 + number)
        asked = run("next", 9000.0, **{declared: 600.0})
        said = fallback_estimator.forecast(asked, tracker)
        assert said.source.lower() == declared and said.samples == 5
        assert 590 < said.q10 < said.q50 < 605 < said.q90 < 615
        other = fallback_estimator.forecast(
            run("else", 9000.0, user="bob", namespace="other", **{declared: 600.0}), tracker
        )
        assert other.q90 > 2 * other.q50, "of others nothing is known"
        tracker.submitted(run("late", 9500.0, **{declared: 600.0}))
        tracker.started("late", 9500.0)
        tracker.finished("late", 9500.0 + 300)
        again = fallback_estimator.forecast(run("then", 11_000.0, **{declared: 600.0}), tracker)
        assert again.q90 > 1.5 * again.q10, "one that is not kept ends it"
