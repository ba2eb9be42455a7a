"""Training, calibration, the model's file, the worker process, the forecaster that uses them, and their evaluation."""

from __future__ import annotations

import gzip
import json
import math
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightgbm.basic import LightGBMError
from numpy.typing import NDArray
from tests.examples import examples
from tests.forecast.generator import DAY, at_random, make_runs
from tests.fuzz import worst

from gangline.forecast import metrics
from gangline.forecast.errors import ModelError, TooFewRunsError, TrainingError
from gangline.forecast.evaluate import Window, evaluate
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run, StartedRun
from gangline.forecast.learning import training
from gangline.forecast.learning.calibration import REFRESH, Calibrator
from gangline.forecast.learning.guard import ModelGuard, Validation
from gangline.forecast.learning.quantile_model import Ensemble, QuantileModel, lightgbm, load
from gangline.forecast.learning.settings import LearningSettings
from gangline.forecast.learning.shifts import Corrections, LatestRuns, StartedRuns, shifts, weighted_quantile
from gangline.forecast.learning.training import Table, train
from gangline.forecast.learning.worker import train_in_process
from gangline.forecast.quantiles import LEVELS, Forecast
from gangline.forecast.tracking.baselines import AlikeRuns
from gangline.forecast.tracking.tracker import Tracker

SMALL = LearningSettings(rounds=25, leaves=15, min_leaf=20)
RUNS = make_runs(3000)
NOW = 25 * DAY


@pytest.fixture(scope="module")
def model() -> QuantileModel:
    return train(RUNS, NOW, SMALL)


def test_training_is_deterministic_and_blind_to_the_future(model: QuantileModel) -> None:
    altered = [replace(r, finish=r.finish + 5e5) if (r.finish or 0) >= NOW else r for r in RUNS]  # type: ignore[operator]
    again = train(altered, NOW, SMALL)
    assert _texts(again) == _texts(model)
    assert str(again.seeds) == str(model.seeds)


def test_the_model_learns_habits(model: QuantileModel) -> None:
    assert model.validation is not None
    assert model.validation.error < 0.6  # the made-up noise alone is 0.4
    assert not model.validation.worse
    assert model.samples > 2000
    assert model.limits == model.samples


def _texts(model: QuantileModel) -> list[str]:
    return [booster.model_to_string() for booster in model.ensemble.boosters]


def test_a_single_row_is_told_what_it_is_told_among_many(model: QuantileModel) -> None:
    matrix = training.build(RUNS[:300], Tracker(model.scale)).matrix
    together = model.predict(matrix)
    for which in (model, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(np.vstack([which.predict(row[None]) for row in matrix]), together)
    np.testing.assert_array_equal(model.predict(matrix[:3].tolist()), together[:3])


def test_boosters_with_different_numbers_of_trees_are_evaluated_together() -> None:
    rng = np.random.default_rng(4)
    matrix = rng.normal(size=(400, 5)).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.2] = np.nan
    target = np.nan_to_num(matrix[:, 0]) + rng.normal(size=400)
    parameters = {"objective": "quantile", "num_threads": 1, "verbose": -1}
    boosters = tuple(
        lightgbm.train({**parameters, "alpha": level}, lightgbm.Dataset(matrix, target), rounds)
        for level, rounds in ((0.1, 7), (0.5, 1), (0.9, 12))
    )
    apart = np.column_stack([np.asarray(booster.predict(matrix, num_threads=1)) for booster in boosters])
    together = Ensemble(boosters)
    np.testing.assert_array_equal(together.predict(matrix), apart)
    np.testing.assert_array_equal(together.predict(matrix[:3]), apart[:3])


@pytest.mark.parametrize("uneven", [1.0, 1.09, 1.3])
def test_weights_count_in_a_training_unless_they_are_nearly_even(
    monkeypatch: pytest.MonkeyPatch, uneven: float
) -> None:
    texts: list[list[str]] = []
    for most in (1.0, uneven):

        def weights(table: Table, done: NDArray[np.bool_], now: float, most: float = most) -> NDArray[np.float64]:
            return np.where(np.arange(int(done.sum())) % 2, most, 1.0)

        monkeypatch.setattr(training, "_weights", weights)
        texts.append(_texts(train(RUNS, NOW, replace(SMALL, rounds=5))))
    assert (texts[0] == texts[1]) is (uneven < 1.1)


def test_gradients_in_whole_numbers_make_as_good_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ where two splits gain the same, which rounding errors decided."""
    monkeypatch.setattr(training, "_weights", lambda table, done, now: np.ones(int(done.sum())))
    known = training.build(RUNS, Tracker())
    whole = train(RUNS, NOW, SMALL)
    assert all("[use_quantized_grad: 1]" in text for text in _texts(whole))
    monkeypatch.setattr(training, "_LARGEST", 0)
    fractions = train(RUNS, NOW, SMALL)
    assert all("[use_quantized_grad: 0]" in text for text in _texts(fractions))
    answers = [model.predict(known.matrix) for model in (whole, fractions)]
    np.testing.assert_allclose(answers[0][:, 1], answers[1][:, 1], rtol=1e-6)
    losses = [metrics.quantiles(logs, known.target).pinball for logs in answers]
    for level, loss in losses[0].items():
        assert loss < 1.01 * losses[1][level]


def test_too_few_columns_are_refused_for_few_rows_and_for_many(model: QuantileModel) -> None:
    for rows in (1, 100):
        with pytest.raises(LightGBMError):
            model.ensemble.predict(np.zeros((rows, len(model.columns) - 1), dtype=np.float32))


def test_quantiles_never_cross(model: QuantileModel) -> None:
    logs = model.predict(training.build(RUNS, Tracker(model.scale)).matrix)
    assert (np.diff(logs, axis=1) >= 0).all()


def test_one_file_keeps_it(model: QuantileModel, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "model.gz"
    model.save(path)
    again = load(path)
    matrix = training.build(RUNS[:200], Tracker(model.scale)).matrix
    np.testing.assert_array_equal(again.predict(matrix), model.predict(matrix))
    assert (again.samples, again.validation, again.trained_at) == (model.samples, model.validation, NOW)
    assert len(again.seeds) == len(model.seeds)
    assert [p.name for p in path.parent.iterdir()] == ["model.gz"]


def test_what_is_no_model_is_refused(model: QuantileModel, tmp_path: Path) -> None:
    path = tmp_path / "model.gz"
    for content in (b"", b"nonsense", gzip.compress(b"[]"), gzip.compress(b"{}")):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"model\.gz"):
            load(path)
    model.save(path)
    document = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps({**document, "features": -1}).encode()))
    with pytest.raises(ModelError, match="another version"):
        load(path)
    path.write_bytes(gzip.compress(json.dumps({**document, "boosters": ["broken"]}).encode()))
    with pytest.raises(ModelError, match="damaged"):
        load(path)


def test_too_few_runs_make_no_model() -> None:
    with pytest.raises(TooFewRunsError, match="a model needs"):
        train(RUNS[:100], NOW)


def test_a_worker_process_trains(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    with HistoryStore(url) as store:
        store.put(RUNS)
    found = train_in_process(url, tmp_path / "model.gz", NOW, SMALL)
    assert found.samples > 2000
    with pytest.raises(TooFewRunsError):
        train_in_process(url, tmp_path / "none.gz", DAY / 10, SMALL)
    with pytest.raises(TrainingError, match="longer than"):
        train_in_process(url, tmp_path / "none.gz", NOW, SMALL, timeout=0.05)
    assert not (tmp_path / "none.gz").exists()


# --- calibration ------------------------------------------------------------------------------------------------------


def test_a_weighted_quantile() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0])
    assert weighted_quantile(values, weights, 0.05) == 1
    assert weighted_quantile(values, weights, 0.5) == 2
    assert weighted_quantile(values, weights, 0.95) == 3


@given(
    count=st.sampled_from([1, 7, 999, 1000, 5000]),
    level=st.sampled_from([0.0, 0.1, 0.5, 0.95, 1.0]),
    kinds=st.sampled_from([3, 1000, 10**9]),
    seed=st.integers(0, 50),
)
@examples(150)
def test_of_many_values_the_same_quantile(count: int, level: float, kinds: int, seed: int) -> None:
    """Whole numbers and weights, so that sums are exact. Sorted input makes the sample as bad as can be for drifting weights."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, kinds, count).astype(float)
    if seed % 3 == 0:
        values.sort()
    weights = rng.integers(1, 20, count).astype(float)
    if seed % 5 == 0:
        weights[: count // 2] = 0.0
        weights[-1] = 1.0
    found = weighted_quantile(values, weights, level)
    goal = level * weights.sum()
    distinct = np.unique(values)
    enough = [v for v in distinct if weights[values <= v].sum() >= goal]
    assert found == enough[0]


def test_calibration_is_not_fooled_by_runs_that_still_run() -> None:
    """Of recent runs only the short ones have finished; ignoring the others would shift everything down."""
    rng = np.random.default_rng(1)
    target = rng.normal(10.0, 2.0, 6000)  # log seconds: a median of six hours, with a tail of weeks
    age = rng.uniform(0, 4 * DAY, 6000)
    done = np.exp(target) < age
    honest = np.tile(10.0 + 2.0 * np.array([-1.2816, 0.0, 0.8416, 1.2816, 1.6449]), (6000, 1))
    moved, _ = shifts(StartedRuns(age, done, np.where(done, target, np.nan), honest), np.zeros(len(LEVELS)), 20.0)
    naive = np.quantile(target[done] - honest[done, 1], 0.5)
    assert abs(moved[1]) < 0.35
    assert naive < -0.45  # what would happen without weights


def test_calibration_follows_a_drift() -> None:
    calibrator, rng = Calibrator(), np.random.default_rng(2)
    for number in range(2000):
        start = number * 600.0
        target = float(rng.normal(5.0 if start < 7 * DAY else 7.0, 0.3))
        calibrator.add(StartedRun(f"r{number}", start, (5.0,) * len(LEVELS), start + math.exp(target), target))
    assert calibrator.shifts(6 * DAY)[1] == pytest.approx(0.0, abs=0.1)
    assert calibrator.shifts(13 * DAY)[1] == pytest.approx(2.0, abs=0.15)


def test_calibration_looks_again_when_enough_has_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []
    look = LatestRuns.corrections

    def noted(ledger: LatestRuns, now: float) -> Corrections:
        looked.append(now)
        return look(ledger, now)

    monkeypatch.setattr(LatestRuns, "corrections", noted)
    calibrator, count, now = Calibrator(), 0, 1000.0

    def finish(runs: int) -> None:
        nonlocal count
        for _ in range(runs):
            calibrator.add(StartedRun(f"r{count}", now - 60, (4.0,) * len(LEVELS)))
            calibrator.finished(f"r{count}", now, math.log(60))
            count += 1

    finish(1000)
    steps = ((0, 100, 1), (REFRESH - 1, 0, 1), (2, 0, 2), (REFRESH, 10, 2), (0, 40, 2), (0, 0, 3), (5 * 3600, 0, 3))
    for later, runs, looks in steps:
        now += later
        calibrator.shifts(now)
        assert len(looked) == looks, (now, looked)
        finish(runs)
    calibrator.shifts(now + 3600)
    assert len(looked) == 4, "six hours are over"


def test_groups_are_calibrated_apart() -> None:
    calibrator, rng = Calibrator(), np.random.default_rng(3)
    for number in range(2000):
        start, group = number * 300.0, "ab"[number % 2]
        target = float(rng.normal({"a": 4.0, "b": 6.0}[group], 0.3))
        calibrator.add(StartedRun(f"r{number}", start, (5.0,) * len(LEVELS), start + math.exp(target), target, group))
    now = 7 * DAY
    apart = calibrator.shifts(now, "b")[1] - calibrator.shifts(now, "a")[1]
    assert 0.3 < apart < 2.0  # on the way from one correction for all to one for each
    assert calibrator.shifts(now, "unheard of").tolist() == calibrator.shifts(now).tolist()


def test_a_tenant_that_outlives_its_forecasts_gets_wider_ones_and_the_median_of_others_stays() -> None:
    """One tenant of ten runs for longer than all others, and half of its runs are still running."""
    calibrator, rng = Calibrator(), np.random.default_rng(5)
    honest = tuple(8.0 + 0.5 * score for score in (-1.2816, 0.0, 0.8416, 1.2816, 1.6449))
    now = 6 * DAY
    longer = []
    for number in range(2000):
        start, odd = number * 250.0, number % 10 == 0
        target = float(rng.normal(10.5 if odd else 8.0, 0.5))
        if odd:
            longer.append(target)
        end = start + math.exp(target)
        calibrator.add(StartedRun(f"r{number}", start, honest, group=f"{'odd' if odd else 'usual'}/1"))
        if end < now:
            calibrator.finished(f"r{number}", end, target)
    shift, usual = calibrator.shifts(now, "odd/1"), calibrator.shifts(now, "usual/1")
    covered = np.mean(np.array(longer) <= honest[3] + shift[3])
    assert covered >= 0.8
    assert np.mean(np.array(longer) <= honest[3] + usual[3]) < 0.2, "the correction of all is no help"
    assert calibrator.shifts(now, "odd/8")[3] == pytest.approx(shift[3], abs=0.3), (
        "it is the tenant's, whatever the size"
    )
    assert shift[1] < 1.0, "only who promises needs it"
    assert usual[3] < 0.8
    assert calibrator.shifts(now, "new/1").tolist() == calibrator.shifts(now).tolist()


def test_little_evidence_moves_little() -> None:
    calibrator = Calibrator()
    assert not calibrator.shifts(0.0).any()
    calibrator.add(StartedRun("a", 0.0, (5.0,) * len(LEVELS)))
    calibrator.finished("a", 100.0, 9.0)
    assert 0 < calibrator.shifts(REFRESH)[1] < 0.5


# --- the forecaster ---------------------------------------------------------------------------------------------------


def ready(model: QuantileModel | None, **more: bool) -> Forecaster:
    forecaster = Forecaster(model, **more)
    forecaster.restore([training.known_at(r, NOW) for r in RUNS if r.submit < NOW])
    return forecaster


def fresh(uid: str, **more: object) -> Run:
    base = next(r for r in RUNS if r.submit > NOW)
    return replace(base, uid=uid, submit=NOW + 1, start=None, finish=None, **more)  # type: ignore[arg-type]


def test_a_life(model: QuantileModel) -> None:
    forecaster = ready(model)
    forecaster.submitted(fresh("x"))
    waiting = forecaster.forecast("x", NOW + 1)
    assert waiting is not None
    assert (waiting.source, waiting.samples) == ("Model", model.samples)
    forecaster.started("x", NOW + 100, "a100")
    late = NOW + 100 + 10 * waiting.q95
    outlived = forecaster.forecast("x", late)
    assert outlived is not None
    assert outlived.q10 >= min(10 * waiting.q95, 2 * DAY)
    done = forecaster.finished("x", late)
    assert done is not None
    assert done.seconds == pytest.approx(10 * waiting.q95)
    assert forecaster.forecast("x", late) is None
    assert forecaster.forecast("unknown", late) is None


def test_what_waits_for_a_batch_is_learned_as_if_it_had_not(
    model: QuantileModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts, evictions and ends reach the calibration in batches: forecasts and verdicts are those of one by one."""
    answers: list[tuple[dict[str, Forecast], list[float], Forecast | None]] = []
    for most in (1, 512):
        monkeypatch.setattr("gangline.forecast.forecaster._BATCH", most)
        forecaster, forecasts = Forecaster(model), dict[str, Forecast]()
        later = [replace(run, submit=run.submit + 90 * DAY, start=None, finish=None) for run in RUNS[-400:]]
        for number, run in enumerate(later):
            at = NOW + number * 600.0
            forecaster.submitted(run)
            forecaster.started(run.uid, at)
            if number % 7 == 0:
                forecaster.stopped(run.uid)
                forecaster.started(run.uid, at + 60)
            if number >= 20:
                uid = later[number - 20].uid
                forecaster.finished(uid, at + 120, partial(forecasts.__setitem__, uid))
        verdict = forecaster.status(NOW + 400 * 600.0)
        last = forecaster.forecast(later[-1].uid, NOW + 400 * 600.0)
        answers.append((forecasts, [verdict.error, verdict.last_two, verdict.runs], last))
    assert len(answers[0][0]) == 380
    assert answers[0] == answers[1]
    assert len({forecast.q50 for forecast in answers[0][0].values()}) > 20


def test_limits_cap(model: QuantileModel) -> None:
    forecaster = ready(model)
    forecaster.submitted(fresh("x", limit=30.0))
    found = forecaster.forecast("x", NOW + 1)
    assert found is not None
    assert found.q95 == 30


def test_a_new_class_is_told_by_its_hint(model: QuantileModel) -> None:
    forecaster = ready(model)
    new = {"user": "new", "namespace": "new", "queue": "new", "name": "new", "image": "new", "gpus": 77}
    forecaster.submitted(fresh("x", hint=5000.0, **new))
    forecaster.submitted(fresh("y", limit=5000.0, **new))
    found = forecaster.forecasts(["x", "y"], NOW + 1)
    assert (found["x"].source, round(found["x"].q50)) == ("Hint", 5000)
    assert found["y"].source == "Model"  # it was trained with limits


def test_a_model_that_has_always_seen_hints_does_not_take_a_missing_one_for_a_second() -> None:
    """Otherwise it would pay to say nothing."""
    hinted = [replace(each, hint=each.seconds, user="", name="", image="", limit=None) for each in RUNS]
    forecaster = ready(train(hinted, NOW, SMALL))
    silent = {"user": "", "name": "", "image": "", "limit": None}
    forecaster.submitted(fresh("long", hint=20_000.0, **silent))
    forecaster.submitted(fresh("short", hint=60.0, **silent))
    forecaster.submitted(fresh("silent", **silent))
    found = {uid: each.q50 for uid, each in forecaster.forecasts(["long", "short", "silent"], NOW + 1).items()}
    assert found["short"] < 200 < 3000 < found["long"]
    assert found["silent"] > 2 * found["short"]


def test_without_a_model_and_switched_off(model: QuantileModel) -> None:
    for forecaster in (ready(None), ready(model, enabled=False)):
        forecaster.submitted(fresh("x"))
        found = forecaster.forecast("x", NOW + 1)
        assert found is not None
        assert found.source == "History"
        assert not forecaster.status(NOW).trusted
    assert "configuration" in ready(model, enabled=False).status(NOW).reason


def test_a_flavor_scales(model: QuantileModel) -> None:
    scaled = replace(model, scale=type(model.scale)({"a100": 0.0, "v100": math.log(2)}))
    forecaster = ready(scaled)
    forecaster.submitted(fresh("x", flavor=""))
    fast, slow = (forecaster.forecast("x", NOW + 1, flavor) for flavor in ("a100", "v100"))
    assert fast is not None
    assert slow is not None
    assert slow.q50 == pytest.approx(2 * fast.q50)


def test_a_model_that_is_worse_switches_itself_off_and_on_again(model: QuantileModel) -> None:
    lost = replace(model, validation=None, seeds=())
    forecaster = ready(lost)
    now = NOW
    for number in range(400):  # one class that now takes 15 hours, every time: last-two knows at once
        now += 600
        run = fresh(f"odd-{number}", limit=None)
        run = replace(run, submit=now)
        forecaster.submitted(run)
        forecaster._asked[run.uid].logs = (1.0,) * 5 if number % 2 else (16.0,) * 5  # beyond what shifts can mend
        forecaster.started(run.uid, now)
        forecaster.finished(run.uid, now + 550)
    verdict = forecaster.status(now)
    assert not verdict.trusted
    assert "worse than the baseline" in verdict.reason
    forecaster.submitted(replace(fresh("x"), submit=now))
    found = forecaster.forecast("x", now)
    assert found is not None
    assert found.source == "History"
    assert forecaster.status(now + 8 * DAY).trusted  # a week later there is nothing left against it


def test_the_training_itself_can_say_no() -> None:
    guard = ModelGuard()
    guard.use(Validation(500, 0.0, 1.0, error=2.0, last_two=1.0), 0.0)
    assert not guard.verdict(10.0).trusted
    guard.use(Validation(500, 0.0, 1.0, error=0.5, last_two=1.0), 20.0)
    for number in range(100):
        guard.finished(30.0 + number, 5.0, 5.1, 6.0)
    assert guard.verdict(200.0).runs == 600
    assert guard.verdict(200.0).trusted


def test_a_model_that_was_found_wanting_is_no_better_after_a_restart() -> None:
    guard, week = ModelGuard(), 7 * 86400.0
    for number in range(60):
        guard.finished(number * 3600.0, 5.0, 7.0, 6.0)
    now = 60 * 3600.0
    assert "worse than the baseline" in guard.verdict(now).reason
    again = ModelGuard()
    again.use(Validation(500, 0.0, 1.0, error=0.5, last_two=1.0), -week)
    assert again.verdict(now).trusted
    again.recall(guard.rows())
    assert again.verdict(now) == guard.verdict(now)
    assert again.verdict(week + 30 * 3600.0).runs == 30 + 500  # each hour leaves the week in its turn


def test_one_namespace_does_not_decide_for_all_whether_the_model_is_used() -> None:
    guard = ModelGuard()
    for hour in range(24):
        for number in range(500):
            guard.finished(hour * 3600.0 + number, 5.0, 9.0, 5.0, "loud")
        for number in range(20):
            for namespace in ("a", "b", "c", "d", "e"):
                guard.finished(hour * 3600.0 + 600 + number, 5.0, 5.0, 6.0, namespace)
    assert guard.verdict(24 * 3600.0).runs == 24 * 20 * 6
    assert guard.verdict(24 * 3600.0).trusted


def test_the_runs_of_a_minute_are_kept_as_one() -> None:
    guard = ModelGuard()
    for number in range(600):
        guard.finished(1000.0 + number / 10, 5.0, 5.5, 6.0)
    assert guard.verdict(1060.0).runs == 600
    assert guard.verdict(1060.0).error == pytest.approx(0.5)
    assert len(guard._errors) == 2
    assert guard.verdict(1060.0 + 8 * DAY).runs == 0


#: instructions of Python that one more forecast takes, about a third of a millisecond
STEPS = 7500


def test_a_forecast_costs_the_same_however_many_there_are(model: QuantileModel) -> None:
    def steps(number: int) -> int:
        forecaster, runs = ready(model), [fresh(f"n{i}") for i in range(number)]

        def forecasts() -> None:
            for run in runs:
                forecaster.submitted(run)
            assert len(forecaster.forecasts([run.uid for run in runs], NOW + 1)) == number

        return worst.steps(forecasts)

    few, more, most = steps(100), steps(200), steps(400)
    assert more - few < 1.2 * 100 * STEPS
    assert most - more < 1.2 * 200 * STEPS


# --- evaluation -------------------------------------------------------------------------------------------------------


def test_quantiles_are_honest_and_the_baseline_is_beaten() -> None:
    window = Window(20 * DAY, 20 * DAY, 28 * DAY)
    report = evaluate(make_runs(4000, seed=11, drift=1.0), window, SMALL)
    coverage = report.overall.forecast.coverage
    assert 0.86 <= coverage["q90"] <= 0.94
    assert 0.42 <= coverage["q50"] <= 0.58
    assert report.overall.gains["last-two"] > 0.15
    assert sum(s.forecast.runs for s in report.by_size.values()) == report.overall.forecast.runs
    assert set(report.by_queue) == {"queue-0", "queue-1"}
    assert json.loads(json.dumps(report.as_json()))["models"] == 1


def test_nothing_can_be_forecast_of_noise() -> None:
    runs = at_random(make_runs(2500, seed=5))
    report = evaluate(runs, Window(20 * DAY, 20 * DAY, 28 * DAY), SMALL)
    forecast = report.overall.points["forecast"]
    assert forecast is not None
    assert abs(forecast.spearman) < 0.1  # anything else would be leakage
    assert 0.85 <= report.overall.forecast.coverage["q90"] <= 0.95


def test_retraining_on_the_way() -> None:
    runs = make_runs(1500, seed=9)
    report = evaluate(runs, Window(15 * DAY, 20 * DAY, 28 * DAY, retrain_every=5 * DAY), SMALL)
    assert report.models == 3
    assert report.trained_on > 900


def test_a_window_must_come_after_the_training() -> None:
    with pytest.raises(ValueError, match="training must end before"):
        Window(10.0, 5.0, 20.0)
    with pytest.raises(ValueError, match="no finished run"):
        evaluate(RUNS[:300], Window(40 * DAY, 40 * DAY, 41 * DAY), SMALL)


def test_a_cap_is_where_limits_end_runs(model: QuantileModel) -> None:
    """Two runs in five are stopped at their limit, after a grace; a limit that is always kept stays the cap."""
    forecaster = ready(model)
    for number in range(60):
        late = number % 5 < 2
        for queue, seconds in (
            ("graced", 3625.0 if late else 900.0 + number),
            ("strict", 3600.0 if late else 900.0 + number),
        ):
            run = fresh(f"{queue}-{number}", limit=3600.0, user=queue, namespace=queue, queue=queue, name=queue)
            forecaster.submitted(run)
            forecaster.started(run.uid, NOW + number)
            forecaster.finished(run.uid, NOW + number + seconds)
    for queue, cap in (("graced", 3625.0), ("strict", 3600.0)):
        forecaster.submitted(fresh(queue, limit=3600.0, user=queue, namespace=queue, queue=queue, name=queue))
        found = forecaster.forecast(queue, NOW + 4000)
        assert found is not None and found.q95 <= cap + 0.5
        assert forecaster.tracker.outlasts(fresh("other", limit=10.0, user=queue, namespace=queue)) == pytest.approx(
            cap / 3600
        )
    assert forecaster.tracker.outlasts(fresh("free")) == pytest.approx(1.0, abs=0.01)


def test_runs_that_are_alike_give_their_quantiles() -> None:
    alike, chance = AlikeRuns(), np.random.default_rng(3)
    assert np.isnan(alike.quantiles(fresh("x"))).all()
    ends: list[Run] = []
    for number in range(900):
        seconds = float(np.round(chance.lognormal(6, 1), 3)) + 2.0
        user = ("ann", "bob")[number % 2]
        ends.append(
            Run(f"r{number}", 0.0, gpus=1 + number % 3, user=user, name=f"train-{number}", start=0.0, finish=seconds)
        )
        alike.finished(ends[-1])
        asked = replace(ends[-1], name="train-0" if number % 7 else "new")
        kind = [each for each in ends if each.gpus == asked.gpus and each.user == asked.user]
        if len(kind) < 5:
            continue
        logs = sorted(each.log_seconds for each in kind[-300:])
        expected = [logs[min(len(logs), math.ceil(level * (len(logs) + 1))) - 1] for level in LEVELS]
        assert alike.quantiles(asked) == pytest.approx(expected)
