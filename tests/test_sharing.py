from __future__ import annotations

from pathlib import Path

import pytest
from tests import sharing
from tests.sharing import GROUPS, LONGEST, file_of, group_of, order

pytest_plugins = ["pytester"]


def test_files_on_a_control_plane_come_first_the_largest_before_and_others_are_mixed_among_them() -> None:
    files = ["a.py", *["c.py"] * 2, "d.py", *["b.py"] * 3, "e.py", "f.py", "g.py", "h.py"]
    assert order(files, {"b.py", "c.py", "d.py"}) == ["b.py", "h.py", "g.py", "c.py", "f.py", "e.py", "d.py", "a.py"]


def test_another_file_on_a_control_plane_comes_first_at_another_commit() -> None:
    files = ["a.py", *["c.py"] * 2, "d.py", *["b.py"] * 3]
    assert order(files, {"b.py", "c.py", "d.py"}, turn=4) == ["c.py", "d.py", "b.py", "a.py"]


@pytest.mark.parametrize("turn", [0, 1, 3])
def test_the_longest_come_first_at_every_commit(turn: int) -> None:
    longest = ["tests/cluster/test_multikueue_pods.py", LONGEST[0], LONGEST[3]]
    others = ["tests/cluster/test_pods.py"] * 9
    expected = [LONGEST[0], "trio", LONGEST[3], others[0]]
    assert order([*others, *longest], {*longest, *others}, turn) == expected
    assert order(longest, set(longest), turn) == expected[:-1]


def test_the_longest_are_files_or_groups() -> None:
    root = Path(__file__).parents[1]
    assert [name for name in LONGEST if name not in GROUPS and not (root / name).is_file()] == []


def test_files_that_share_a_control_plane_are_one_group() -> None:
    shared = ["tests/cluster/test_multikueue.py", "tests/cluster/test_multikueue_pods.py"]
    alone = "tests/cluster/test_pods.py"
    assert order([*shared, alone], {*shared, alone}) == ["trio", alone]


def test_without_a_control_plane_every_file_is_there() -> None:
    assert order(["a.py", "b.py", "b.py"], set()) == ["b.py", "a.py"]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_the_files_whose_tests_ask_for_its_fixture(group: str, request: pytest.FixtureRequest) -> None:
    root = Path(__file__).parents[1]
    for start in GROUPS[group]:
        assert list(root.glob(f"{start}*")), f"{start} is no file"
    asking = {file_of(item.nodeid) for item in request.session.items if group in getattr(item, "fixturenames", ())}
    assert {group_of(file) for file in asking} <= {group}, "files of another group share the fixture"


CONFTEST = """
import pytest
from tests import sharing
sharing.GROUPS = {"ones": ("test_one",)}

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
