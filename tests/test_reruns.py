from __future__ import annotations

from pathlib import Path

import pytest
from tests import reruns
from tests.reruns import KEPT, Run, read, record, summary, too_often

pytest_plugins = ["pytester"]


def run(*again: str, failed: tuple[str, ...] = ()) -> Run:
    return Run("2026-11-28T12:00:00+00:00", "0123456789ab", 500, again, failed)


def test_the_first_second_run_is_reported_and_the_next_is_too_many() -> None:
    assert summary([], run("a")) == ["· 1 of the last 1 runs ran a again"]
    assert too_often([], run("a")) == []
    earlier = [run("a"), run(), run("b")]
    assert too_often(earlier, run("a", "c")) == ["a"]
    lines = summary(earlier, run("a", "c"))
    assert lines[:2] == ["· 2 of the last 4 runs ran a again", "· 1 of the last 4 runs ran c again"]
    assert lines[2].startswith("· failed: ") and lines[2].endswith("needed more: a. Each has a race, or has found one")


def test_what_other_runs_ran_again_is_not_held_against_one_that_did_not() -> None:
    assert summary([run("a"), run("a"), run("a")], run()) == []


def test_a_test_that_failed_twice_in_a_run_did_not_pass_by_its_second_run() -> None:
    assert too_often([run(failed=("a",))], run("a")) == []


def test_a_run_in_which_very_many_failed_blames_no_test() -> None:
    many = run("a", *(f"test-{number}" for number in range(reruns.NAMED - 1)))
    assert too_often([many], run("a")) == [], "the machine was at fault"
    assert too_often([run("a")], many) == []
    assert too_often([run("a"), many], run("a")) == ["a"]


def test_the_history_keeps_a_bounded_number_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    assert record(path, run("first")) == []
    for number in range(KEPT - 1):
        assert len(record(path, run(f"test-{number}"))) == number + 1
    assert read(path)[0].again == ("first",)
    assert len(record(path, run("first"))) == KEPT - 1, "with this run, so many as are kept"
    assert len(read(path)) == len(path.read_text().splitlines()) == KEPT
    assert read(path)[0].again == ("test-0",) and read(path)[-1].again == ("first",)


def test_a_broken_machine_fills_no_line_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    record(path, run(*(f"test-{number}" for number in range(10_000))))
    assert len(read(path)[0].again) == reruns.NAMED


@pytest.mark.parametrize("line", ["", "{", "[]", "7", '{"date": "x"}', '{"again": 7, "failed": [], "tests": "many"}'])
def test_a_line_that_is_not_understood_is_left_out(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runs.jsonl"
    record(path, run("a"))
    with path.open("a") as file:
        file.write(line + "\n")
    assert record(path, run("b")) == [run("a")]
    assert read(path) == [run("a"), run("b")]


CONFTEST = """
from pathlib import Path
from tests.reruns import Reruns

def pytest_configure(config):
    config.addinivalue_line("markers", "cluster: needs a control plane")
    config.pluginmanager.register(Reruns(Path(config.rootpath) / "runs.jsonl", fewest={fewest}), "reruns")

def pytest_unconfigure(config):
    print(*config.pluginmanager.get_plugin("reruns").lines, sep="\\n")
"""

TESTS = """
from pathlib import Path
import pytest

FAILED = Path(__file__).with_name("failed")

@pytest.mark.cluster
def test_that_races():
    if not FAILED.exists():
        FAILED.touch()
        raise AssertionError("not within a second")
    FAILED.unlink()

@pytest.mark.cluster
def test_that_is_skipped():
    pytest.skip("no nodes")

def test_of_no_cluster():
    pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests whose conftest finds our plugin."""
    monkeypatch.setenv("PYTHONPATH", str(Path(reruns.__file__).parents[1]))
    return pytester


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_a_run_fails_in_which_a_test_needs_its_second_second_run(
    project: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    project.makeconftest(CONFTEST.format(fewest=1))
    project.makepyfile(TESTS)
    first = project.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    assert first.ret == pytest.ExitCode.OK
    first.stdout.fnmatch_lines(["· 1 of the last 1 runs ran *::test_that_races again"])
    second = project.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    assert second.ret == pytest.ExitCode.TESTS_FAILED
    second.stdout.fnmatch_lines(["· 2 of the last 2 runs ran *::test_that_races again", "· failed: a test may need*"])
    (project.path / "failed").touch()  # the race is mended
    third = project.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    assert third.ret == pytest.ExitCode.OK
    third.stdout.no_fnmatch_line("*runs ran*")
    recorded = read(project.path / "runs.jsonl")
    assert [(len(each.again), each.failed, each.tests) for each in recorded] == [(1, (), 1), (1, (), 1), (0, (), 1)]


def test_a_run_of_a_few_tests_is_not_recorded(project: pytest.Pytester) -> None:
    project.makeconftest(CONFTEST.format(fewest=2))
    project.makepyfile(TESTS)
    for _ in range(2):
        result = project.runpytest_subprocess("-p", "no:cacheprovider")
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines(["· 1 of the last 1 runs ran *::test_that_races again"])
    assert not (project.path / "runs.jsonl").exists()


def test_a_test_that_fails_twice_is_recorded_as_failed(project: pytest.Pytester) -> None:
    project.makeconftest(CONFTEST.format(fewest=1))
    project.makepyfile("import pytest\n\n@pytest.mark.cluster\ndef test_that_fails():\n    raise AssertionError\n")
    assert project.runpytest_subprocess("-p", "no:cacheprovider").ret == pytest.ExitCode.TESTS_FAILED
    (only,) = read(project.path / "runs.jsonl")
    assert only.again == () and len(only.failed) == 1
