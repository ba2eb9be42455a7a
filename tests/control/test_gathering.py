"""How long the operator gathers facts before it decides again."""

from __future__ import annotations

import pytest

from gangline.control.controller import GATHER, LONGEST_GATHER, LONGEST_ROUND, gathering
from gangline.control.pacing import STRAINED, Pace


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
