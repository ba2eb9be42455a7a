"""The pace: grows slowly, shrinks at once, waits when the server asks for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.control.writes.pacing import LONGEST_HOLD, LONGEST_PAUSE, MEMORY, SPARE, Pace


def test_grows_to_the_most_while_answers_come_in_time() -> None:
    pace = Pace(most=8)
    assert pace.allowance(0.0) == 4
    for n in range(100):
        pace.answered(n * 0.01, 0.01)
    assert pace.allowance(1.0) == 8


def test_shrinks_while_answers_are_late_and_recovers() -> None:
    pace = Pace(most=16, target=0.5)
    for n in range(100):
        pace.answered(float(n), 2.0)
    assert pace.allowance(100.0) == 1
    for n in range(1000):
        pace.answered(100.0 + n, 0.01)
    assert pace.allowance(1100.0) == 16


def test_one_burst_of_refusals_counts_once() -> None:
    pace = Pace(most=24)
    for _ in range(12):
        pace.refused(0.0)
    assert pace.limit == 6
    assert pace.allowance(0.0) == 0
    assert pace.allowance(0.11) == 6


def test_holds_grow_up_to_a_bound_and_start_anew_after_an_answer() -> None:
    pace = Pace()
    now, holds = 0.0, []
    for _ in range(12):
        pace.refused(now)
        holds.append(pace.held_until - now)
        now = pace.held_until
    assert holds[0] <= 0.1 and holds[4] > holds[0]
    assert LONGEST_HOLD / 2 <= holds[-1] <= LONGEST_HOLD
    pace.answered(now, 0.01)
    pace.refused(now)
    assert pace.held_until - now <= 0.1


def test_the_servers_own_word_counts_even_within_a_burst() -> None:
    pace = Pace()
    pace.refused(0.0)
    pace.refused(0.0, retry_after=7.0)
    assert pace.allowance(6.9) == 0
    assert pace.allowance(7.8) > 0


def test_the_more_the_server_is_strained_the_longer_others_wait() -> None:
    pace = Pace(most=24)
    for n in range(100):
        pace.answered(n * 0.01, 0.005)
    assert pace.strain == pytest.approx(1.0) and pace.spare(1.0) == pace.allowance(1.0) // SPARE
    assert pace.spared(1.0) <= 1.0, "no pause while it answers as fast as ever"
    pauses: list[float] = []
    now = 1.0
    for seconds in (0.015, 0.03, 0.5):
        for _ in range(60):
            pace.answered(now, seconds)
        assert pace.spare(now) == 1
        now = pace.spared(before := now)
        pauses.append(now - before)
        assert pace.spare((before + now) / 2) == 0 and pace.spare(now) == 1
    assert 0 < pauses[0] < pauses[1] < pauses[2] == pytest.approx(LONGEST_PAUSE)
    for _ in range(100):
        pace.answered(now, 0.005)
    assert pace.spare(now) == pace.allowance(now) // SPARE, "it recovers"


def test_a_server_that_became_slower_for_good_is_not_strained_for_ever() -> None:
    pace = Pace()
    pace.answered(0.0, 0.005)
    for n in range(int(2 * MEMORY) + 2):
        pace.answered(float(n), 0.1)
    assert pace.strain == pytest.approx(1.0, abs=0.01)


STEPS = st.lists(
    st.tuples(st.sampled_from(["answered", "timed_out", "refused"]), st.floats(0, 60), st.floats(0, 5)), max_size=60
)


@given(steps=STEPS, most=st.integers(1, 64))
def test_always_between_least_and_most(steps: list[tuple[str, float, float]], most: int) -> None:
    pace, now = Pace(most=most), 0.0
    for what, seconds, gap in steps:
        now += gap
        if what == "answered":
            pace.answered(now, seconds)
        elif what == "timed_out":
            pace.timed_out(now)
        else:
            pace.refused(now, seconds)
        assert 1 <= pace.limit <= most
        assert pace.allowance(now) in (0, int(pace.limit))
    assert pace.allowance(pace.held_until) >= 1


def test_senseless_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="least"):
        Pace(most=0)


def test_the_rate_is_what_is_under_way_by_how_long_it_takes() -> None:
    assert Pace(most=24, limit=24, latency=0.1).rate == pytest.approx(240)
    assert Pace(most=24, limit=6, latency=0.3).rate == pytest.approx(20)
    assert Pace(most=24).rate > 0  # nothing was answered yet
