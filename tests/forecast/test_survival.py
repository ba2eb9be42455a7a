"""How long runs last that have already lasted for long, and the tails that forecasts get from it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.engine.model.runtime import Runtime
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.runs import Run
from gangline.forecast.quantiles import TAIL_LEVELS, Forecast
from gangline.forecast.tracking.tracker import LEAST, PERIOD, Curve, Spell, Survival, product_limit

HOUR = 3600.0


def spells(*ends: float, entry: float = 0.0) -> list[Spell]:
    return [Spell(entry, end, True) for end in ends]


def test_without_running_runs_it_is_the_share_that_lasted_longer() -> None:
    ends = [float(second) for second in range(1, 101)]
    curve = product_limit(spells(*ends))
    assert curve.share(0.5) == 1.0
    for seconds in (1, 20, 50, 80):
        assert curve.share(seconds) == pytest.approx(1 - seconds / 100)
    assert curve.known == 100 - LEAST + 1, "fewer runs than that say nothing"


def test_a_run_that_goes_on_counts_until_now() -> None:
    """40 end after an hour, 40 are an hour and a half old, and 40 end after two: of the last two groups half are known to."""
    ran = [*spells(*[HOUR] * 40), *[Spell(0.0, 1.5 * HOUR, False)] * 40, *spells(*[2 * HOUR] * 40)]
    curve = product_limit(ran)
    assert curve.share(HOUR) == pytest.approx(2 / 3)
    assert curve.share(2 * HOUR) == 0.0


def test_a_run_counts_from_the_age_at_which_it_was_first_seen() -> None:
    """Those that ended before are not known, so those that were left must not make the first hour look safe."""
    ran = [*spells(*[0.5 * HOUR] * 20), *[Spell(0.0, HOUR, False)] * 20, *[Spell(HOUR, 3 * HOUR, False)] * 500]
    assert product_limit(ran).share(0.5 * HOUR) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.booleans()), max_size=300))
def test_the_share_never_rises(rows: list[tuple[float, float, bool]]) -> None:
    curve = product_limit([Spell(*row) for row in rows])
    assert list(curve.times) == sorted(set(curve.times))
    assert all(0 <= later <= sooner <= 1 for sooner, later in zip([1.0, *curve.shares], curve.shares, strict=False))


def test_the_tail_is_what_runs_take_that_outlive_the_quantile() -> None:
    """All runs are of an exponential length: whatever they have outlived, the rest is of the same length."""
    chance = random.Random(1)
    curve = product_limit(spells(*[chance.expovariate(1 / HOUR) for _ in range(10_000)]))
    for q95 in (0.5 * HOUR, 2 * HOUR):
        tail = curve.tail(q95)
        wanted = [q95 + HOUR * math.log(0.05 / (1 - level)) for level in TAIL_LEVELS]
        assert len(tail) >= 3
        assert list(tail) == pytest.approx(wanted[: len(tail)], rel=0.15)


def test_where_a_limit_ends_runs_the_tail_ends_there() -> None:
    chance = random.Random(2)
    lengths = [min(48 * HOUR, chance.expovariate(1 / (20 * HOUR))) for _ in range(2000)]
    tail = product_limit(spells(*lengths)).tail(30 * HOUR)
    assert len(tail) == len(TAIL_LEVELS) and tail[-3:] == (48 * HOUR,) * 3


def test_of_what_was_never_seen_nothing_is_said() -> None:
    assert Curve().tail(60.0) == ()
    curve = product_limit(spells(*[HOUR] * 100))
    assert curve.tail(2 * HOUR) == () and curve.tail(HOUR) == ()
    few = product_limit(spells(*[HOUR * number for number in range(1, LEAST)]))
    assert few.tail(60.0) == ()


def test_what_is_older_than_the_period_is_forgotten() -> None:
    known = Survival()
    for number in range(200):
        known.finished(number * 60.0, 30.0)
    known.renew(200 * 60.0, [])
    assert known.curve.share(30.0) == 0.0
    known.renew(200 * 60.0 + PERIOD, [("", HOUR)] * 100)
    assert known.curve.share(30.0) == 1.0


def test_the_curve_is_made_again_when_enough_has_ended_or_a_day_later() -> None:
    known = Survival()
    assert known.outdated(0.0)
    for number in range(100):
        known.finished(float(number), 30.0)
    known.renew(100.0, [])
    assert not known.outdated(3600.0)
    for number in range(12):
        known.finished(3600.0 + number, 30.0)
    assert known.outdated(3612.0)
    known.renew(3612.0, [])
    assert not known.outdated(3613.0) and known.outdated(3612.0 + 86_400) and known.outdated(3600.0)


def played(*lengths: float, running: int = 0) -> Forecaster:
    """A forecaster that has seen runs of these lengths, one after the other."""
    known, now = Forecaster(), 1e9
    for number, seconds in enumerate(lengths):
        known.submitted(Run(uid=f"run-{number}", submit=now, gpus=8, namespace="ml", queue="q"))
        known.started(f"run-{number}", now)
        now += 1.0
        known.finished(f"run-{number}", now - 1.0 + seconds)
    return known


def test_forecasts_from_history_have_the_tail_of_all_runs() -> None:
    chance = random.Random(3)
    known = played(*[chance.lognormvariate(6, 2) for _ in range(2000)])
    known.submitted(Run(uid="new", submit=1e9 + 3000, gpus=8, namespace="ml", queue="q"))
    forecast = known.forecast("new", 1e9 + 3000)
    assert forecast is not None and forecast.tail
    assert list(forecast.tail) == sorted(forecast.tail) and forecast.tail[0] >= forecast.q95
    hinted = Run(uid="hinted", submit=1e9 + 3000, gpus=1, namespace="else", queue="w", hint=600.0)
    known.submitted(hinted)
    promised = known.forecast("hinted", 1e9 + 3000)
    assert promised is not None and promised.source == "Hint" and not promised.tail, "its author knows better"


def test_a_limit_bounds_the_tail_and_the_flavor_stretches_it() -> None:
    whole = Forecast(60, 600, 3600, 9000, 20_000, "Model", 100, (30_000.0, 50_000.0))
    assert whole.capped(25_000).tail == (25_000, 25_000)
    assert whole.scaled(2.0).tail == (60_000.0, 100_000.0)
    assert whole.less(3000).values == (1.0, 1.0, 600, 6000, 17_000) and whole.less(3000).tail == (27_000, 47_000)


def test_the_engine_reads_the_same_tail() -> None:
    """Its arithmetic is another one (a staircase between the same points): the medians of what is left agree to a fifth."""
    whole = Forecast(60, 600, 3600, 9000, 20_000, "Model", 100, (26_000.0, 40_000.0, 70_000.0, 90_000.0, 100_000.0))
    points = tuple((level, round(seconds * 1000)) for level, seconds in whole.points)
    for elapsed in (1000.0, 21_000.0, 45_000.0, 80_000.0):
        engine = Runtime(points).total(round(elapsed * 1000), 0.5) / 1000
        assert engine == pytest.approx(whole.after(elapsed).q50, rel=0.2)


def test_short_runs_of_one_namespace_do_not_displace_the_long_ones_of_others() -> None:
    chance = random.Random(2)

    def curve(loud: int, most: int) -> Curve:
        survival = Survival(most)
        for number in range(500):
            survival.finished(number * 60.0, chance.expovariate(1 / HOUR), "quiet")
        for number in range(loud):
            survival.finished(30_000.0 + number * 0.1, 60.0, "loud")
        survival.renew(32_000.0, [("loud", 10.0)] * 5)
        return survival.curve

    few, many = curve(loud=500, most=1000), curve(loud=20_000, most=1000)
    assert few.known > HOUR / 2 and many.known > HOUR / 2
    assert many.share(120.0) == pytest.approx(few.share(120.0), abs=0.1)
