"""Second runs of tests on a control plane, and a history that says how often each test needed one lately.

A test on a control plane that fails is run once more: its waits have limits, and a loaded machine passes some of them.
A test that needs its second run now and then has a race, or has found one, so the run fails in which a test needs it too often.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from gangline.devcluster.locks import locked

#: runs that the history keeps
KEPT: Final = 50
#: second runs of one test that KEPT runs may contain
ALLOWED: Final = 1
#: tests that one line of the history names. Where so many failed, the machine or the change was at fault, and no test is blamed
NAMED: Final = 6
#: tests on a control plane in a run that the history records. A person who looks for a race runs one test many times.
FEWEST: Final = 100


@dataclass(frozen=True, slots=True)
class Run:
    """One line of the history. `again`: tests that passed in their second run. `failed`: tests that failed in both."""

    date: str
    commit: str
    tests: int
    again: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def blames(self) -> bool:
        """Few enough tests failed that each of them is at fault."""
        return len(self.again) + len(self.failed) < NAMED


def read(path: Path) -> list[Run]:
    """The recorded runs, the oldest first. A line that is not understood is left out."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [run for run in map(_parsed, lines[-KEPT:]) if run is not None]


def record(path: Path, run: Run) -> list[Run]:
    """The earlier runs, after `run` was added to them on disk and the oldest ones were dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock")):
        earlier = read(path)
        kept = [*earlier, run][-KEPT:]
        new = path.with_suffix(".new")
        new.write_text("".join(json.dumps(asdict(each)) + "\n" for each in kept))
        new.replace(path)
    return earlier[-KEPT + 1 :]


def _parsed(line: str) -> Run | None:
    try:
        row = json.loads(line)
        return Run(str(row["date"]), str(row["commit"]), int(row["tests"]), _names(row["again"]), _names(row["failed"]))
    except (ValueError, TypeError, KeyError):
        return None


def _names(tests: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, tests))[:NAMED]


def how_often(earlier: Sequence[Run], run: Run) -> dict[str, int]:
    """The number of runs, this one included, that ran a test again: of each test that this run ran again."""
    return {test: 1 + sum(each.blames and test in each.again for each in earlier) for test in run.again}


def summary(earlier: Sequence[Run], run: Run) -> list[str]:
    """One line for each test that this run ran again, and one that says which of them were too many."""
    counts = how_often(earlier, run)
    lines = [f"· {count} of the last {len(earlier) + 1} runs ran {test} again" for test, count in counts.items()]
    if many := too_often(earlier, run):
        lines.append(
            f"· failed: a test may need {ALLOWED} second run in {KEPT} runs, and these needed more: {', '.join(many)}. "
            "Each has a race, or has found one"
        )
    return lines


def too_often(earlier: Sequence[Run], run: Run) -> list[str]:
    """The tests that this run ran again and that were run again more often than is allowed.

    A test that was mended is not held against later runs: only what this run ran again counts.
    """
    return [test for test, count in how_often(earlier, run).items() if count > ALLOWED and run.blames]


class Reruns:
    """A pytest plugin that runs failed tests on a control plane again and keeps the history. `lines`: what it says at the end."""

    def __init__(self, history: Path, fewest: int = FEWEST) -> None:
        self._history = history
        self._fewest = fewest
        self._ran: set[str] = set()
        self._again: dict[str, None] = {}
        self._failed: dict[str, None] = {}
        self.lines: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.get_closest_marker("cluster") is not None:
                item.add_marker(pytest.mark.flaky(reruns=1))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "cluster" not in report.keywords or report.skipped or (report.passed and report.when != "call"):
            return
        self._ran.add(report.nodeid)
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # of pytest-rerunfailures
            self._again[report.nodeid] = None
        elif report.failed:
            self._failed[report.nodeid] = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Records the run where it is not a pytest-xdist worker's: the reports of all workers reach their controller."""
        if hasattr(session.config, "workerinput"):
            return
        again = _names(test for test in self._again if test not in self._failed)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        run = Run(now, _commit(session.config.rootpath), len(self._ran), again, _names(self._failed))
        earlier = record(self._history, run) if run.tests >= self._fewest else read(self._history)[-KEPT + 1 :]
        self.lines = summary(earlier, run)
        if too_often(earlier, run) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _commit(root: Path) -> str:
    """The short name of the commit that is checked out; "" outside a repository."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()
