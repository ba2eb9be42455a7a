"""How the tests are shared out among the workers of pytest-xdist, and which files took most of their time.

A file stays with one worker, since most fixtures that start a control plane belong to a file; files of GROUPS, which share one,
stay together. Tests on a control plane wait most of their time and the other ones compute, so both are mixed. A fifth of the
other ones comes at the end: they are short, so that no worker is left with a long one. The other ones go backwards, from
tests/webhooks to tests/api, which is the quickest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
#: the part of the files without a control plane that is mixed among the other ones
MIXED: Final = 0.8
#: files that the end of a log names
SHOWN: Final = 15


def group_of(file: str) -> str:
    return next((group for group, starts in GROUPS.items() if file.startswith(starts)), file)


def order(files: Sequence[str], on_cluster: set[str]) -> list[str]:
    """The groups of `files`, which names a file once for each test: those on a control plane, the largest first, and others among
    them.
    """
    counts: dict[str, int] = defaultdict(int)
    for file in files:
        counts[group_of(file)] += 1
    slow = sorted({group_of(file) for file in on_cluster}, key=lambda group: (-counts[group], group))
    quick = sorted(counts.keys() - slow, reverse=True)
    mixed = int(MIXED * len(quick))
    made: list[str] = []
    for number, group in enumerate(slow):
        made.append(group)
        made += quick[number * mixed // len(slow) : (number + 1) * mixed // len(slow)]
    return made + (quick[mixed:] if slow else quick)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def reorder(items: list[pytest.Item]) -> None:
    """Puts the tests in the order in which workers take their groups; tests of one group keep theirs."""
    files = [file_of(item.nodeid) for item in items]
    on_cluster = {
        file for file, item in zip(files, items, strict=True) if item.get_closest_marker("cluster") is not None
    }
    rank = {group: number for number, group in enumerate(order(files, on_cluster))}
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
