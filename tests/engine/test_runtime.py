"""What is left of a run, by hand and on random forecasts."""

from __future__ import annotations

from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import START, gang

from gangline.engine.model import Backfill, Ordering, RuntimeForecast, Settings
from gangline.engine.model.runtime import NEVER, TICK, Runtime
from gangline.engine.queues.ordering import Estimates, Ranking, size
from gangline.engine.queues.ranked_index import RankedIndex, RankedPlace
from gangline.engine.queues.states import Journal
from gangline.engine.queues.workload_state import WorkloadState

HOUR = 3_600_000
LEVELS = (0.1, 0.5, 0.8, 0.9, 0.95)


@st.composite
def runtimes(draw: st.DrawFn) -> Runtime:
    times = sorted(draw(st.lists(st.integers(1000, 10**9), min_size=5, max_size=5)))
    limit = draw(st.none() | st.integers(1000, 10**9))
    return Runtime(tuple(zip(LEVELS, times, strict=True)), limit)


def test_quantiles_are_met_and_between_them_the_logarithm_is_linear() -> None:
    runtime = Runtime(((0.1, HOUR), (0.5, 4 * HOUR), (0.9, 16 * HOUR)))
    assert [runtime.quantile(level) for level in (0.1, 0.5, 0.9)] == [HOUR, 4 * HOUR, 16 * HOUR]
    assert runtime.quantile(0.3) == 2 * HOUR
    # beyond: survival 0.5 -> 0.1 while time quadruples, so a tenth of that again takes as long as ln 0.01 / ln 0.2
    assert runtime.quantile(0.98) == pytest.approx(16 * HOUR * 4, rel=1e-6)


def test_the_gittins_index_is_what_is_spent_for_each_run_that_ends() -> None:
    # given up after an hour: one in two has ended, after (1 - 0.1) / ln 10 hours on average
    assert Runtime(((0.5, HOUR),)).index() == pytest.approx((0.5 * 0.9 / log(10) + 0.5) / 0.5 * HOUR, rel=1e-6)
    wide = Runtime(tuple(zip(LEVELS, (60_000, HOUR, 5 * HOUR, 9 * HOUR, 30 * HOUR), strict=True)))
    many = [wide.quantile((n + 0.5) / 20_000) for n in range(20_000)]
    spent = [sum(min(run, wide.quantile(level)) for run in many) / 20_000 / level for level in LEVELS]
    assert wide.index() == pytest.approx(min(spent), rel=1e-3)
    assert min(spent) == spent[0] and wide.index() < wide.quantile(0.5)
    assert Runtime(((0.5, HOUR),), limit=60_000).index() == 60_000


@given(runtimes(), st.integers(2, 100))
def test_the_index_grows_as_the_times_do(runtime: Runtime, times: int) -> None:
    """Twice as slow, twice the index; and never more than giving nobody up before the last point would cost."""
    slower = Runtime([(level, times * runtime.quantile(level)) for level in LEVELS])
    alike = Runtime([(level, runtime.quantile(level)) for level in LEVELS])
    assert slower.index() == pytest.approx(times * alike.index(), rel=1e-3)
    assert alike.index() <= alike.quantile(LEVELS[-1]) / LEVELS[-1] + 1


def test_an_outlived_estimate_rises() -> None:
    runtime = Runtime(((0.5, HOUR), (0.75, 2 * HOUR)))
    assert runtime.estimate(0, 0.5) == (HOUR, HOUR)
    # past the median: half of the other half is over at the 75th percentile
    assert runtime.estimate(HOUR, 0.5).end == 2 * HOUR
    # past that, survival halves whenever time doubles
    assert runtime.estimate(2 * HOUR, 0.5).end == pytest.approx(4 * HOUR, rel=1e-6)


def test_however_long_a_forecast_is_outlived_the_estimate_rises_in_proportion() -> None:
    sure = Runtime(((0.5, HOUR), (0.9, HOUR)))  # as of a hint: the tail is as light as it gets
    for hours in (1, 10, 100, 10_000):
        assert sure.total(hours * HOUR, 0.5) == pytest.approx(hours * HOUR * 2 ** (1 / 8), rel=1e-6)
        assert sure.total(hours * HOUR, 0.9) == pytest.approx(hours * HOUR * 10 ** (1 / 8), rel=1e-6)
    wide = Runtime(((0.5, HOUR), (0.75, 2 * HOUR)))
    assert wide.total(2 * HOUR - 1, 0.5) == pytest.approx(wide.total(2 * HOUR, 0.5), rel=1e-6), (
        "no jump at the last point"
    )


def test_a_limit_is_the_end() -> None:
    runtime = Runtime(((0.5, HOUR), (0.9, 9 * HOUR)), limit=2 * HOUR)
    assert runtime.quantile(0.9) == 2 * HOUR
    assert runtime.estimate(HOUR + 1, 0.9).end == 2 * HOUR
    only = Runtime.of(None, 2 * HOUR)
    assert only is not None and only.quantile(0.5) == 2 * HOUR == only.estimate(HOUR, 0.5).end
    assert Runtime.of(None, None) is None


def test_forecasts_from_outside_are_taken_as_they_come() -> None:
    forecast = RuntimeForecast("team/j", ((0.9, HOUR), (0.5, 2 * HOUR), (0.0, 5), (1.0, 7)))
    runtime = Runtime.of(forecast, None)
    assert runtime is not None and runtime.quantile(0.5) == runtime.quantile(0.9) == 2 * HOUR


@pytest.mark.parametrize(
    ("quantiles", "said"),
    [((), "at least one"), (((0.5, 1), (0.5, 2)), "rise strictly"), (((0.5, HOUR), (0.9, 5000)), "must not fall")],
)
def test_bad_quantiles_are_named(quantiles: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"quantiles: .*{said}"):
        Runtime(quantiles)


@given(runtimes(), st.integers(0, 10**10), st.floats(0.01, 0.99))
def test_an_estimate_is_never_in_the_past_and_holds_until_it_says(runtime: Runtime, elapsed: int, p: float) -> None:
    estimate = runtime.estimate(elapsed, p)
    assert estimate.end > elapsed or estimate.end >= elapsed + TICK
    assert elapsed < estimate.until <= max(estimate.end, elapsed + TICK)
    assert runtime.estimate((elapsed + estimate.until) // 2, p) == estimate or runtime.limit is not None


@given(runtimes(), st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.integers(0, 10**9))
def test_a_higher_level_is_no_earlier(runtime: Runtime, a: float, b: float, elapsed: int) -> None:
    low, high = sorted((a, b))
    assert runtime.quantile(low) <= runtime.quantile(high)
    assert runtime.total(elapsed, low) <= runtime.total(elapsed, high)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), max_size=300), st.integers(0, 9), st.data())
def test_a_line_finds_the_first_that_is_short_enough(waiting: list[tuple[int, int]], longest: int, data: Any) -> None:
    line, plain = RankedIndex(), list[RankedPlace]()
    for number, (rank, estimate) in enumerate(waiting):
        place = RankedPlace(
            (0, float(rank), 0, f"{number:03}"), estimate, WorkloadState(gang(f"g{number}"), Settings(), Journal())
        )
        line.add(place)
        plain.append(place)
    for _ in range(data.draw(st.integers(0, len(plain)))):
        line.remove(plain.pop(data.draw(st.integers(0, len(plain) - 1))))
    plain.sort(key=lambda place: place.order)
    assert list(line) == plain and line.size == len(plain)
    assert line.first() == (plain[0] if plain else None)
    assert line.first(longest) == next((place for place in plain if place.estimate <= longest), None)


# --- who goes first ---------------------------------------------------------------------------------------------------


def ranks(key: str, *, candidates: str = "QueueOrder", minutes: int = 0, **more: Any) -> list[str]:
    """Three that came one second after the other: 8, 2 and 4 GPUs, for 60, 10 and 1 minutes, lowest rank first."""
    forecasts = {
        f"team/j{n}": RuntimeForecast(f"team/j{n}", ((0.5, m * 60_000), (0.9, m * 90_000)))
        for n, m in ((1, 60), (2, 10), (3, 1))
    }
    gangs = [WorkloadState(gang(f"j{n}", gpus), Settings(), Journal()) for n, gpus in ((1, 8), (2, 2), (3, 4))]
    ranking = Ranking(Ordering(key, **more), Backfill(candidates=candidates), Estimates(forecasts))
    ranking.renew(START + minutes * 60_000)
    rank = ranking.candidate_rank if candidates != "QueueOrder" else ranking.rank
    assert rank is not None
    return [each.workload.name for each in sorted(gangs, key=lambda each: (rank(each), each.since))]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("Priority", ["j1", "j2", "j3"]),
        ("ShortestFirst", ["j3", "j2", "j1"]),
        ("SmallestFirst", ["j2", "j3", "j1"]),
        ("AgedShortestFirst", ["j3", "j2", "j1"]),
    ],
)
def test_orders(key: str, expected: list[str]) -> None:
    assert ranks(key) == expected


@pytest.mark.parametrize("key", ["ShortestFirst", "AgedShortestFirst", "HighestResponseRatio"])
@pytest.mark.parametrize(("optimism", "first"), [(0.0, "sure"), (0.1, "sure"), (0.75, "perhaps"), (1.0, "perhaps")])
def test_who_may_well_be_short_goes_early_by_the_gittins_index(key: str, optimism: float, first: str) -> None:
    """One that takes five hours or five minutes, and one that takes two hours; a third of which nothing is known goes last."""
    times = {"sure": (110, 120, 130, 135, 140), "perhaps": (5, 300, 500, 600, 700)}
    forecasts = {
        f"team/{name}": RuntimeForecast(
            f"team/{name}", tuple((level, minute * 60_000) for level, minute in zip(LEVELS, minutes, strict=True))
        )
        for name, minutes in times.items()
    }
    gangs = [WorkloadState(gang(name, 8), Settings(), Journal()) for name in ("sure", "perhaps", "unknown")]
    ranking = Ranking(Ordering(key, optimism=optimism), None, Estimates(forecasts))
    ranking.renew(START + HOUR)
    order = [each.workload.name for each in sorted(gangs, key=ranking.rank)]
    assert (order[0], order[-1]) == (first, "unknown")


def test_age_weighs_against_length() -> None:
    # with almost no weight, the first to come goes first
    assert ranks("AgedShortestFirst", age_weight=0.00001) == ["j1", "j2", "j3"]


def test_the_response_ratio_of_short_ones_rises_fast() -> None:
    assert ranks("HighestResponseRatio", minutes=10) == ["j3", "j2", "j1"]


def test_who_waited_too_long_goes_first() -> None:
    assert ranks("ShortestFirst", minutes=1, max_wait_seconds=30.0) == ["j1", "j2", "j3"]


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ("ShortestFirst", ["j3", "j2", "j1"]),
        ("LargestFirst", ["j1", "j3", "j2"]),
        ("BestFit", ["j1", "j2", "j3"]),
    ],
)
def test_orders_of_candidates(candidates: str, expected: list[str]) -> None:
    assert ranks("Priority", candidates=candidates) == expected


def test_without_a_forecast_a_run_never_ends() -> None:
    estimates = Estimates({})
    assert estimates.length(WorkloadState(gang("j"), Settings(), Journal()), 0.5) == NEVER
    assert (
        estimates.length(
            WorkloadState(gang("j", max_execution_seconds=60, past_execution_seconds=20), Settings(), Journal()), 0.9
        )
        == 40_000
    )


def test_size_counts_accelerators_else_cpu() -> None:
    assert size(WorkloadState(gang("j", 4, pods=2), Settings(), Journal())) == 8


def test_the_level_beyond_the_last_point_falls_as_a_power_of_time() -> None:
    """The tail through (0.5, 100 s) and (0.9, 1,000 s) loses four fifths of its survivors with each factor of ten."""
    runtime = Runtime(((0.5, 100_000), (0.9, 1_000_000)))
    assert runtime.level(1_000_000) == pytest.approx(0.9)
    assert runtime.level(10_000_000) == pytest.approx(0.98)
    assert runtime.level(100_000_000) == pytest.approx(0.996)
    assert runtime.quantile(runtime.level(10_000_000)) == pytest.approx(10_000_000, rel=1e-6)
