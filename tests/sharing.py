"""How the tests are shared out among the workers of pytest-xdist, and which files took most of their time.

A file stays with one worker, since most fixtures that start a control plane belong to a file; files of GROUPS, which share one,
stay together. The longest of them come first, so that no worker is left with one at the end. Tests on a control plane wait most
of their time and the other ones compute, so both are mixed. Where the time is limited, the other ones go on for longer
(`tests.minutes`), and are mixed among the first half, so that all of them run. A fifth of them comes at the end: they are short.
The other ones go backwards, from tests/webhooks to tests/api, which is the quickest.

Where the time is limited, another file on a control plane follows the longest ones at each commit: otherwise the same ones would
be left out in every run.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

#: what the names of files begin with whose tests share what a fixture of the whole session starts
GROUPS: Final = {
    "trio": ("tests/cluster/test_multikueue",),
    "control_plane": (
        "tests/api/test_counted_on_cluster.py",
        "tests/console/test_commands.py",
        "tests/devcluster/test_jobset_on_cluster.py",
        "tests/devcluster/test_simulation.py",
        "tests/jobs/test_on_cluster.py",
    ),
}
#: the files and groups on a control plane that take more than about four minutes, the longest first, as logs of CI name them
LONGEST: Final = (
    "tests/real/test_installation.py",
    "trio",
    "tests/real/test_training.py",
    "tests/cluster/test_dashboard.py",
    "tests/install/test_install.py",
    "tests/cluster/test_quickstart.py",
    "tests/cluster/test_reservations.py",
    "tests/cluster/test_remedies_followed.py",
    "tests/cluster/test_card_crash.py",
    "tests/cluster/test_crash.py",
    "tests/cluster/test_serving.py",
    "tests/cluster/test_first_steps.py",
    "tests/cluster/test_power_crash.py",
    "tests/real/test_sessions.py",
    "tests/cluster/test_recovery.py",
    "tests/cluster/test_chaos.py",
)
#: the part of the files without a control plane that is mixed among the other ones
MIXED: Final = 0.8
#: the part of the files on a control plane among which they are mixed
FIRST: Final = 0.5
#: files that the end of a log names
SHOWN: Final = 15


def group_of(file: str) -> str:
    return next((group for group, starts in GROUPS.items() if file.startswith(starts)), file)


def order(files: Sequence[str], on_cluster: set[str], turn: int = 0) -> list[str]:
    """The groups of `files`, which names a file once for each test: those on a control plane, first the LONGEST and then those of
    most tests, and others among them. `turn`: by how many those on a control plane that are not among the LONGEST are turned.
    """
    counts: dict[str, int] = defaultdict(int)
    for file in files:
        counts[group_of(file)] += 1
    groups = {group_of(file) for file in on_cluster}
    slow = sorted(groups - set(LONGEST), key=lambda group: (-counts[group], group))
    quick = sorted(counts.keys() - groups, reverse=True)
    if not groups:
        return quick
    turned = turn % len(slow) if slow else 0
    slow = [*(group for group in LONGEST if group in groups), *slow[turned:], *slow[:turned]]
    mixed, first = int(MIXED * len(quick)), math.ceil(FIRST * len(slow))
    made: list[str] = []
    for number, group in enumerate(slow):
        made.append(group)
        made += quick[number * mixed // first : (number + 1) * mixed // first] if number < first else []
    return made + quick[mixed:]


def turn_of_commit() -> int:
    """A number by which the order is turned: of the commit, where the time is limited."""
    if not os.environ.get("TEST_MINUTES"):
        return 0
    asked = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return int(found.stdout.strip() or "0", 16)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def reorder(items: list[pytest.Item]) -> None:
    """Puts the tests in the order in which workers take their groups; tests of one group keep theirs."""
    files = [file_of(item.nodeid) for item in items]
    on_cluster = {
        file for file, item in zip(files, items, strict=True) if item.get_closest_marker("cluster") is not None
    }
    rank = {group: number for number, group in enumerate(order(files, on_cluster, turn_of_commit()))}
    items.sort(key=lambda item: rank[group_of(file_of(item.nodeid))])


def scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """pytest-xdist's scheduler of scopes, whose scopes are our groups, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(file_of(nodeid))

    config.option.loadscopereorder = False
    return Groups(config, log)  # type: ignore[arg-type]


def longest(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A line for each of the files whose tests took longest, fixtures included."""
    took: dict[str, float] = defaultdict(float)
    fixtures: dict[str, float] = defaultdict(float)
    for report in reports:
        took[file_of(report.nodeid)] += report.duration
        fixtures[file_of(report.nodeid)] += report.duration if report.when != "call" else 0.0
    for file in sorted(took, key=lambda each: -took[each])[:SHOWN]:
        yield f"· {took[file]:.0f} s, {fixtures[file]:.0f} s of them in fixtures: {file}"
