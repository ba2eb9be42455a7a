"""The longest that tests may go on: `TEST_MINUTES` after `TEST_BEGAN` (seconds since 1970; without it, after the run of the tests
has begun), tests on a control plane are skipped, and after a fifth more time all tests.

CI ends what takes longer than it allows, and then says nothing of the tests that passed. Machines are shared, and one that is
three times as slow as usual is not the change's fault. So CI counts from its own beginning: setting up may take long, too.
"""

from __future__ import annotations

import os
import time
from typing import Final

import pytest

#: how much longer than tests on a control plane the other ones may go on
LONGER: Final = 1.2


class Minutes:
    """A pytest plugin that skips tests on a control plane once the run has taken `allowed` minutes (None: never), and all tests
    once it has taken LONGER.

    `already`: seconds that it had taken when the tests began. `left_out`: how many tests were skipped, in the process that
    gathers the reports.
    """

    def __init__(self, allowed: float | None, already: float = 0.0) -> None:
        self._allowed = allowed
        self._began = time.monotonic() - already
        self.left_out = 0

    @classmethod
    def of_environment(cls) -> Minutes:
        minutes, began = os.environ.get("TEST_MINUTES"), os.environ.get("TEST_BEGAN")
        return cls(float(minutes) if minutes else None, max(0.0, time.time() - float(began)) if began else 0.0)

    @property
    def reason(self) -> str:
        return f"the run has taken TEST_MINUTES={self._allowed:g} minutes"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._allowed is None:
            return
        minutes = (time.monotonic() - self._began) / 60
        on_cluster = item.get_closest_marker("cluster") is not None
        if minutes > self._allowed * (1 if on_cluster else LONGER):
            pytest.skip(self.reason)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and self._allowed is not None and self.reason in str(report.longrepr):
            self.left_out += 1

    @property
    def lines(self) -> list[str]:
        return [f"· {self.left_out} tests were left out: {self.reason}"] if self.left_out else []
