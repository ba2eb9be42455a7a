"""The distribution between and beyond the quantiles, and what is left once time has passed."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline.forecast.quantiles import LEVELS, TAIL_LEVELS, Forecast, ForecastSource, of_logs

TYPICAL = Forecast(60, 600, 3600, 9000, 20_000, source="Model", samples=100)

logs = st.lists(st.floats(0, 14), min_size=5, max_size=5)
elapsed = st.floats(0.001, 1e8)


@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    """With a tail or without."""
    known = of_logs(draw(logs), ForecastSource.MODEL, 1)
    longer = sorted(draw(st.lists(st.floats(1.0, 1e4), max_size=len(TAIL_LEVELS))))
    return known.with_tail([known.q95 * factor for factor in longer])


TAILED = TYPICAL.with_tail([30_000, 60_000, 90_000])


def test_the_quantiles_themselves_come_back() -> None:
    for level, value in zip(LEVELS, TYPICAL.values, strict=True):
        assert TYPICAL.at(level) == pytest.approx(value, rel=1e-6)
        assert TYPICAL.chance_within(value) == pytest.approx(level, abs=1e-6)


def test_a_level_outside_is_refused() -> None:
    for level in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            TYPICAL.at(level)


def test_those_of_the_tail_come_back_too() -> None:
    for level, value in TAILED.points:
        assert TAILED.at(level) == pytest.approx(value, rel=1e-6)
        assert TAILED.chance_within(value) == pytest.approx(level, abs=1e-6)
    assert Forecast.of_values([value for _, value in TAILED.points], "Model", 100) == TAILED


def test_too_few_or_too_many_quantiles_are_refused() -> None:
    for count in (0, 4, 11):
        with pytest.raises(ValueError, match="5 to 10 quantiles"):
            Forecast.of_values([1.0] * count, "Model", 0)


@given(forecasts(), elapsed)
def test_an_estimate_never_lies_in_the_past(forecast: Forecast, passed: float) -> None:
    after = [value for _, value in forecast.after(passed).points]
    assert len(after) == len(forecast.points)
    assert all(value >= passed for value in after)
    assert after == sorted(after)


@example(of_logs([0.0, 0.0, 0.0, 0.0, 14.0], ForecastSource.MODEL, 1).with_tail([1.84e8, 3.157e9]), 2.9e7, 2.0)
@given(forecasts(), elapsed, st.floats(1.0, 100.0))
def test_time_only_lengthens_an_estimate(forecast: Forecast, passed: float, more: float) -> None:
    sooner, later = forecast.after(passed).points, forecast.after(passed * more).points
    assert all(b >= a * (1 - 1e-6) for (_, a), (_, b) in zip(sooner, later, strict=True))


@pytest.mark.parametrize("passed", [1000.0, 40_000.0, 200_000.0])
@pytest.mark.parametrize("forecast", [TYPICAL, TAILED])
def test_conditioning_is_bayes(forecast: Forecast, passed: float) -> None:
    beyond = 1 - forecast.chance_within(passed)
    median = forecast.after(passed).q50
    assert (1 - forecast.chance_within(median)) / beyond == pytest.approx(0.5, abs=1e-6)


def test_what_outlives_its_forecast_is_expected_to_go_on_in_proportion() -> None:
    left = [TYPICAL.after(t).q50 - t for t in (1e5, 1e6, 1e7)]
    assert left[1] == pytest.approx(10 * left[0], rel=1e-3)
    assert left[2] == pytest.approx(10 * left[1], rel=1e-3)
    certain = Forecast(100, 100, 100, 100, 100, source="Hint", samples=0)
    assert certain.after(5000).q50 > 5300


def test_a_limit_caps_until_it_is_outlived() -> None:
    assert TYPICAL.capped(5000).values == (60, 600, 3600, 5000, 5000)
    assert TYPICAL.capped(None) == TYPICAL
    assert TYPICAL.after(6000).capped(5000, 6000).q95 == 6000


def test_crossing_quantiles_are_put_in_order() -> None:
    assert of_logs([3, 2, 1, 5, 4], ForecastSource.MODEL, 0).values == tuple(map(math.exp, (1, 2, 3, 4, 5)))
