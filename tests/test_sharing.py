from __future__ import annotations

from pathlib import Path

import pytest
from tests import sharing
from tests.sharing import GROUPS, order

pytest_plugins = ["pytester"]


def test_files_on_a_control_plane_come_first_the_largest_before_and_others_are_mixed_among_them() -> None:
    files = ["a.py", *["c.py"] * 2, "d.py", *["b.py"] * 3, "e.py", "f.py", "g.py", "h.py"]
    assert order(files, {"b.py", "c.py"}) == ["b.py", "h.py", "g.py", "c.py", "f.py", "e.py", "d.py", "a.py"]


def test_files_that_share_a_control_plane_are_one_group() -> None:
    shared = [f"{GROUPS[0]}.py", f"{GROUPS[0]}_pods.py"]
    assert order([*shared, "tests/cluster/test_pods.py"], {*shared, "tests/cluster/test_pods.py"}) == [
        GROUPS[0],
        "tests/cluster/test_pods.py",
    ]


def test_without_a_control_plane_every_file_is_there() -> None:
    assert order(["a.py", "b.py", "b.py"], set()) == ["b.py", "a.py"]


def test_every_group_has_files() -> None:
    root = Path(__file__).parents[1]
    assert all(len(list(root.glob(f"{group}*.py"))) > 1 for group in GROUPS)


CONFTEST = """
import pytest
from tests import sharing
sharing.GROUPS = ("test_one",)

def pytest_configure(config):
    config.addinivalue_line("markers", "cluster: needs a control plane")

def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        sharing.reorder(items)

def pytest_xdist_make_scheduler(config, log):
    return sharing.scheduler(config, log)
"""
ONE = "import pytest\n\n@pytest.mark.cluster\n@pytest.mark.parametrize('number', range(4))\ndef test_it(number):\n    pass\n"


def test_a_group_stays_with_one_worker_and_every_test_runs_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(sharing.__file__).parents[1]))
    pytester.makeconftest(CONFTEST)
    names = ("test_one", "test_one_more", "test_two", "test_three")
    pytester.makepyfile(**dict.fromkeys(names, ONE))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", "-v")
    result.assert_outcomes(passed=4 * len(names))
    passed = [line.split() for line in result.stdout.lines if line.startswith("[gw")]
    workers = {name: {row[0] for row in passed if row[-1].startswith(f"{name}.py")} for name in names}
    assert workers["test_one"] == workers["test_one_more"] and all(len(each) == 1 for each in workers.values())
