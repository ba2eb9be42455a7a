"""The engine decides as it did: recorded histories, decision by decision and answer by answer.

They say what it does, not what it should do; that is up to the other tests. A change that is meant to change decisions records
them anew (`python -m tests.engine.histories`) and has its difference read.
"""

from __future__ import annotations

import pytest
from tests.engine.histories.history import History
from tests.engine.histories.recorded import difference, names, recorded


class WithoutForesight(History):
    """A history in which nobody asks for the outlook, which brings the engine's state up to date."""

    def look_ahead(self) -> None:
        pass


@pytest.mark.parametrize(
    ("theme", "number", "kind"),
    [
        # a flavor scan was continued, and what it had refused before had room: the workload waited for ever
        ("queues", 2, History),
        ("queues", 38, History),
        ("other", 19, WithoutForesight),
        ("quota", 12, WithoutForesight),
        ("fair", 21, WithoutForesight),
        # a preempted workload waited for its preemptor after that had started
        ("queues", 13, History),
        # a workload was explained by nodes that had gone
        ("nodes", 2, WithoutForesight),
        ("nodes", 36, History),
        ("slices", 11, WithoutForesight),
        ("slices", 13, History),
    ],
)
def test_histories_in_which_workloads_were_forgotten_or_could_not_be_explained(
    theme: str, number: int, kind: type[History]
) -> None:
    """Whatever happens, a new engine with the same facts starts nothing more (`History.nothing_is_missed`)."""
    kind(theme, number).live()


@pytest.mark.parametrize(("theme", "number"), names())
def test_a_history_is_decided_as_recorded(theme: str, number: int) -> None:
    parted = difference(recorded(theme, number), History(theme, number).live())
    assert not parted, f"\n{parted}"
