"""The capacity that a quota follows: damped, within bounds, and remembered."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.followed_capacity import Damped, Follow, damped, excess, followed
from gangline.api.read.conditions import timestamp
from gangline.api.spec_fields import SpecError
from gangline.control.queues.followed_rows import Usable, remembered, row
from gangline.engine.model import UNLIMITED

GPU = "nvidia.com/gpu"
T = 1_700_000_000_000
SECOND, MINUTE = 1000, 60_000

#: capacities at instants: seconds since the last one, and what is usable from then on
COURSES = st.lists(st.tuples(st.integers(1, 1800), st.integers(0, 64)), min_size=1, max_size=12)
DELAYS = st.integers(0, 600).map(lambda seconds: seconds * SECOND)
FOLLOWS = st.builds(
    lambda percent, least, more, down, up: Follow("h100", GPU, percent, least, least + more, down, up),
    st.integers(0, 300),
    st.integers(0, 16),
    st.integers(0, 64) | st.just(UNLIMITED),
    DELAYS,
    DELAYS,
)


def played(
    follow: Follow, notice: int, course: list[tuple[int, int]], *, every: int = 5
) -> list[tuple[int, int, Damped]]:
    """Instant, usable capacity and state at each look, every half minute."""
    looks: list[tuple[int, int, Damped]] = []
    state: Damped | None = None
    now = T
    for seconds, usable in course:
        until = now + seconds * SECOND
        while now < until:
            state = damped(state, usable, follow, notice, now)
            looks.append((now, usable, state))
            now += every * SECOND
    return looks


@given(follow=FOLLOWS, notice=DELAYS, course=COURSES)
def test_once_damping_has_passed_the_quota_is_the_share_of_what_is_usable(
    follow: Follow, notice: int, course: list[tuple[int, int]]
) -> None:
    looks = played(follow, notice, course)
    _, usable, state = looks[-1]
    now = looks[-1][0]
    longest = max(follow.down + notice, follow.up)
    for again in (1, 2):  # what had begun before the last change counts first
        state = damped(state, usable, follow, notice, now + again * longest)
    assert state == Damped(usable)
    assert follow.quota(state.capacity) == min(follow.most, max(follow.least, usable * follow.percent // 100))


@given(follow=FOLLOWS, notice=DELAYS, course=COURSES)
def test_the_quota_keeps_within_its_bounds_and_within_what_there_was(
    follow: Follow, notice: int, course: list[tuple[int, int]]
) -> None:
    seen = {usable for _, usable in course}
    for _, _, state in played(follow, notice, course):
        assert follow.least <= follow.quota(state.capacity) <= follow.most
        assert state.capacity in seen


@given(follow=FOLLOWS, notice=DELAYS, course=COURSES)
def test_a_capacity_counts_only_after_it_was_passed_for_the_whole_delay(
    follow: Follow, notice: int, course: list[tuple[int, int]]
) -> None:
    """A node that comes and goes in less than the delay changes nothing."""
    looks = played(follow, notice, course)
    for (_, _, old), (now, _, new) in pairwise(looks):
        if new.capacity == old.capacity:
            continue
        falls = new.capacity < old.capacity
        delay = follow.down + notice if falls else follow.up
        since = [(at, usable) for at, usable, _ in looks if now - delay <= at <= now]
        assert now - delay >= T or delay == 0
        assert all(usable <= new.capacity if falls else usable >= new.capacity for _, usable in since)


@given(follow=FOLLOWS, small=st.integers(0, 1000), more=st.integers(0, 1000))
def test_more_capacity_never_gives_a_smaller_quota(follow: Follow, small: int, more: int) -> None:
    assert follow.quota(small) <= follow.quota(small + more)


@given(follow=FOLLOWS, notice=DELAYS, course=COURSES, kill=st.integers(0, 200))
def test_an_operator_that_is_killed_goes_on_from_the_status(
    follow: Follow, notice: int, course: list[tuple[int, int]], kill: int
) -> None:
    looks = played(follow, notice, course)
    at = min(kill, len(looks) - 1)
    _, usable, state = looks[at]
    status_row = row(follow, Usable(usable, 1, 2), state, notice)
    (recalled,) = remembered([status_row]).values()
    for (now, usable, wanted), (_, _, state) in zip(looks[at + 1 :], looks[at:], strict=False):
        recalled = damped(recalled, usable, follow, notice, now)
        assert recalled == wanted, state


def test_a_fall_is_announced_once_it_has_lasted_and_comes_after_the_notice() -> None:
    follow, notice = Follow("h100", GPU, 100, down=5 * MINUTE), 30 * MINUTE
    state = damped(Damped(16), 8, follow, notice, T)
    assert (state, state.announced(follow, notice, T)) == (Damped(16, 8, T), None)
    now = T + 5 * MINUTE
    state = damped(state, 4, follow, notice, now)
    assert (state.pending, state.announced(follow, notice, now)) == (8, T + 35 * MINUTE), (
        "the smallest change counts first"
    )
    back = damped(state, 16, follow, notice, now + 1)
    assert (back, back.announced(follow, notice, now + 1)) == (Damped(16), None)
    now = T + 35 * MINUTE
    assert damped(state, 4, follow, notice, now) == Damped(8, 4, now)


def test_a_clock_that_was_set_back_begins_the_delay_anew() -> None:
    follow = Follow("h100", GPU, 100)
    state = damped(Damped(16, 8, T + 3_600_000), 8, follow, 0, T)
    assert state == Damped(16, 8, T)


@pytest.mark.parametrize(
    "rows",
    [
        None,
        "x",
        [None],
        [{}],
        [{"flavor": "f", "resource": GPU, "capacity": "9" * 10_000}],
        [{"flavor": 1, "capacity": {}}],
    ],
)
def test_rows_that_cannot_be_read_count_as_missing(rows: Any) -> None:
    assert remembered(rows) == {}


def test_what_is_read_and_what_is_refused() -> None:
    body = {"flavor": "h100", "resource": "cpu", "sharePercent": 50, "min": "1500m", "damping": {"down": "1m"}}
    assert followed([body], "f") == (Follow("h100", "cpu", 50, 1500, UNLIMITED, MINUTE, 2 * MINUTE),)
    for change, said in (
        ({"flavor": None}, "f[0].flavor: is required"),
        ({"sharePercent": None}, "f[0].sharePercent: is required"),
        ({"sharePercent": 1001}, "f[0].sharePercent: must be a whole number from 0 to 1000"),
        ({"sharePercent": True}, "f[0].sharePercent: must be a whole number"),
        ({"min": "-1"}, "f[0].min: must not be negative"),
        ({"max": "1"}, "f[0].max: must be at least min"),
        ({"damping": {"up": "25h"}}, "f[0].damping.up: must be from 0s to 24h"),
    ):
        with pytest.raises(SpecError) as error:
            followed([{**body, **change}], "f")
        assert str(error.value).startswith(said)
    with pytest.raises(SpecError, match="about the same resource"):
        followed([body, body], "f")


def test_shares_above_the_whole_are_said_of_each_queue() -> None:
    def share(percent: int, flavor: str = "h100") -> Follow:
        return Follow(flavor, GPU, percent)

    said = excess({"a": [share(60)], "b": [share(50), share(100, "a100")], "c": [share(100, "l4")]})
    sentence = f"ClusterQueue a, ClusterQueue b follow 110 % of {GPU} in flavor h100"
    assert said == {"a": sentence, "b": sentence}
    assert excess({"a": [share(60)], "b": [share(40)]}) == {}


def test_the_row_says_when_it_changes() -> None:
    follow = Follow("h100", GPU, 50, least=2)
    status_row = row(follow, Usable(8, 1, 2), Damped(16, 8, T), 0)
    assert status_row == {
        "flavor": "h100",
        "resource": GPU,
        "nodes": 2,
        "usableNodes": 1,
        "usableCapacity": "8",
        "capacity": "16",
        "nominalQuota": "8",
        "pendingCapacity": "8",
        "pendingSince": timestamp(T),
        "changesAt": timestamp(T + 5 * MINUTE),
    }
