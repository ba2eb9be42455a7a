"""How long the operator gathers facts before it decides again."""

from __future__ import annotations

import pytest

from gangline.control.controller import GATHER, LONGEST_GATHER, gathering


@pytest.mark.parametrize(
    ("deciding", "seconds"),
    [(0.0, GATHER), (0.001, GATHER), (0.004, 0.008), (0.03, 0.06), (2.0, LONGEST_GATHER)],
)
def test_who_decides_long_gathers_long(deciding: float, seconds: float) -> None:
    assert gathering(deciding) == pytest.approx(seconds)
