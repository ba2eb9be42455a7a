"""How long the operator gathers facts before it decides again, and how much it decides at a time."""

from __future__ import annotations

import pytest

from gangline.control.decisions.deciding import AHEAD, GATHER, LONGEST_GATHER, LONGEST_ROUND, gathering, room
from gangline.control.writes.pacing import STRAINED, Pace


@pytest.mark.parametrize(
    ("deciding", "seconds"),
    [(0.0, GATHER), (0.0002, GATHER), (0.004, 0.036), (0.03, 0.27), (2.0, LONGEST_GATHER)],
)
def test_who_decides_long_gathers_long(deciding: float, seconds: float) -> None:
    assert gathering(deciding, Pace()) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("times_slower", "seconds"),
    [(1.0, GATHER), (STRAINED, GATHER), (5.0, 0.05), (1000.0, LONGEST_ROUND)],
)
def test_where_the_server_is_strained_a_round_of_writes_is_decided_at_a_time(
    times_slower: float, seconds: float
) -> None:
    pace = Pace(latency=0.01 * times_slower, best=0.01)
    assert gathering(0.0, pace) == pytest.approx(seconds)


def test_the_longer_of_both_counts() -> None:
    assert gathering(0.02, Pace(latency=0.02, best=0.005)) == pytest.approx(0.18)
    assert gathering(0.001, Pace(latency=0.2, best=0.005)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("latency", "urgent", "left"),
    [
        (0.2, 0, 120),  # 24 at once, each 0.2 s: 120 a second
        (0.2, 60, 60),
        (0.2, 61, 0),  # not before half of it has been written
        (0.2, 500, 0),
        (0.01, 500, 1900),
        (2.0, 0, 48),  # twice what may be under way, however slow the server is: it must not run dry
        (0.0, 0, 480),  # nothing was written yet
    ],
)
def test_nothing_is_decided_long_before_it_can_be_written(latency: float, urgent: int, left: int) -> None:
    assert AHEAD == 1.0
    assert room(Pace(most=24, limit=24, latency=latency), urgent) == left
