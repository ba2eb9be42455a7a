"""The distribution between and beyond the quantiles, and what is left once time has passed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.forecast import LEVELS, Forecast, Source
from gangline.forecast.quantiles import of_logs

TYPICAL = Forecast(60, 600, 3600, 9000, 20_000, source="Model", samples=100)

logs = st.lists(st.floats(0, 14), min_size=5, max_size=5)
elapsed = st.floats(0.001, 1e8)


def test_the_quantiles_themselves_come_back() -> None:
    for level, value in zip(LEVELS, TYPICAL.values, strict=True):
        assert TYPICAL.at(level) == pytest.approx(value, rel=1e-6)
        assert TYPICAL.chance_within(value) == pytest.approx(level, abs=1e-6)


def test_a_level_outside_is_refused() -> None:
    for level in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            TYPICAL.at(level)


@given(logs, elapsed)
def test_an_estimate_never_lies_in_the_past(values: list[float], passed: float) -> None:
    after = of_logs(values, Source.MODEL, 1).after(passed)
    assert all(value >= passed for value in after.values)
    assert list(after.values) == sorted(after.values)


@given(logs, elapsed, st.floats(1.0, 100.0))
def test_time_only_lengthens_an_estimate(values: list[float], passed: float, more: float) -> None:
    forecast = of_logs(values, Source.MODEL, 1)
    sooner, later = forecast.after(passed).values, forecast.after(passed * more).values
    assert all(b >= a * (1 - 1e-6) for a, b in zip(sooner, later, strict=True))


def test_conditioning_is_bayes() -> None:
    passed = 1000.0
    beyond = 1 - TYPICAL.chance_within(passed)
    median = TYPICAL.after(passed).q50
    assert (1 - TYPICAL.chance_within(median)) / beyond == pytest.approx(0.5, abs=1e-6)


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
    assert of_logs([3, 2, 1, 5, 4], Source.MODEL, 0).values == tuple(map(math.exp, (1, 2, 3, 4, 5)))
