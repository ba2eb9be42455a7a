from __future__ import annotations

import time

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.minutes import Minutes

def pytest_configure(config):
    config.addinivalue_line("markers", "cluster: needs a control plane")
    config.pluginmanager.register(Minutes.of_environment(), "minutes")

def pytest_unconfigure(config):
    print(*config.pluginmanager.get_plugin("minutes").lines, sep="\\n")
"""
TESTS = """
import pytest

@pytest.mark.cluster
def test_on_a_control_plane(): pass

def test_alone(): pass
"""


@pytest.mark.parametrize(
    ("minutes", "ago", "passed"),
    [("0", None, 0), ("10", None, 2), ("", None, 2), ("10", 500, 2), ("10", 650, 1), ("10", 750, 0)],
)
def test_tests_on_a_control_plane_are_left_out_once_the_time_is_over_and_all_a_fifth_later(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, minutes: str, ago: int | None, passed: int
) -> None:
    monkeypatch.setenv("TEST_MINUTES", minutes)
    monkeypatch.setenv("TEST_BEGAN", "" if ago is None else str(int(time.time()) - ago))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=passed, skipped=2 - passed)
    said = f"{2 - passed} tests were left out: the run has taken TEST_MINUTES={minutes} minutes"
    assert (said in result.stdout.str()) == (passed < 2)
