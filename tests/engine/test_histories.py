"""The engine decides as it did: recorded histories, decision by decision and answer by answer.

They say what it does, not what it should do; that is up to the other tests. A change that is meant to change decisions records
them anew (`python -m tests.engine.histories`) and has its difference read.
"""

from __future__ import annotations

import pytest
from tests.engine.histories.history import History
from tests.engine.histories.recorded import difference, names, recorded


@pytest.mark.parametrize(("theme", "number"), names())
def test_a_history_is_decided_as_recorded(theme: str, number: int) -> None:
    parted = difference(recorded(theme, number), History(theme, number).live())
    assert not parted, f"\n{parted}"
