"""The children of `up` and `run`, played by a small script."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gangline.console.stack.keeper import Keeper
from gangline.console.stack.processes import Services, end, running, tail
from gangline.devcluster.errors import StartError
from gangline.devcluster.processes.process import ProcessId
from gangline.devcluster.processes.supervisor import Supervisor

#: name BEHAVIOUR … --ready-file F
SERVICE = """
import pathlib, sys, time
name, behaviour, ready = sys.argv[1], sys.argv[2], sys.argv[-1]
print(f"{name} is here", flush=True)
if behaviour == "refuses":
    sys.exit("kubeconfig: no such file")
pathlib.Path(ready).write_text("{}")
time.sleep(0.3 if behaviour == "dies" else 60)
sys.exit("out of luck")
"""


@pytest.fixture
def program(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "service.py"
    script.write_text(SERVICE)
    return sys.executable, str(script)


@pytest.fixture
def services(tmp_path: Path, program: tuple[str, ...]) -> Iterator[Services]:
    made = Services(tmp_path / "state", program=program)
    yield made
    made.stop()


def process_of(services: Services, name: str) -> ProcessId:
    process = ProcessId.read(services.directory / f"{name}.pid")
    assert process is not None
    return process


def wait_gone(process: ProcessId) -> None:
    assert process.wait_gone(10.0)


def test_a_service_is_started_when_it_says_so_and_ended_in_the_end(services):
    services.start("webhooks", ["stays"])
    process = process_of(services, "webhooks")
    assert process.alive()
    assert "webhooks is here" in services.log("webhooks").read_text()
    services.check()
    services.stop()
    assert not process.alive()


def test_a_service_that_does_not_start_is_reported_with_its_last_words(services):
    with pytest.raises(StartError, match=r"operator ended with status 1.*(?s:.)*kubeconfig: no such file"):
        services.start("operator", ["refuses"])


def test_a_service_that_dies_later_is_noticed(services):
    services.start("webhooks", ["stays"])
    services.start("operator", ["dies"])
    wait_gone(process_of(services, "operator"))
    with pytest.raises(StartError, match=r"operator has ended(?s:.)*out of luck"):
        services.check()


def test_holding_ends_when_a_service_dies(services):
    services.start("operator", ["dies"])
    with pytest.raises(StartError, match="operator has ended"):
        services.hold()


def test_an_old_ready_file_does_not_count(services):
    services.directory.joinpath("operator.ready").write_text("{}")
    with pytest.raises(StartError):
        services.start("operator", ["refuses"])


def test_what_an_earlier_life_left_running_is_ended(tmp_path, program):
    state = tmp_path / "state"
    first = Services(state, detached=True, program=program)
    first.start("operator", ["stays"])
    process = process_of(first, "operator")
    first.leave()
    assert process.alive()
    second = Services(state, program=program)
    assert not process.alive()
    second.stop()


def test_a_detached_service_can_be_ended_by_a_later_command(tmp_path, program):
    state = tmp_path / "state"
    services = Services(state, detached=True, program=program)
    services.start("operator", ["stays"])
    process = process_of(services, "operator")
    services.leave()
    assert end(state) == ["keeper", "operator"]
    assert not process.alive()
    assert end(state) == []
    assert end(tmp_path / "nowhere") == []


def test_a_tail_is_short_and_a_missing_log_no_error(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("\n".join(["x" * 1000] * 100))
    assert len(tail(log, 3)) == 3 * 500 + 2
    assert tail(tmp_path / "none") == "(no log)"


def test_a_detached_service_that_ends_is_started_again_until_all_are_ended(tmp_path: Path, program: tuple[str, ...]):
    directory = tmp_path / "state"
    services = Services(directory, detached=True, program=program)
    services.start("operator", ["stays"])
    services.leave()
    kept, first = ProcessId.read(directory / "keeper.pid"), ProcessId.read(directory / "operator.pid")
    assert kept is not None and kept.alive() and first is not None
    try:
        assert set(running(directory)) == {"keeper", "operator"}
        first.end(patience=0)
        second = wait_for(lambda: (found := ProcessId.read(directory / "operator.pid")) != first and found)
        assert second.alive() and running(directory)["operator"] == second.pid
        assert wait_for(lambda: "operator had ended: it was started again" in (directory / "keeper.log").read_text())
    finally:
        assert "keeper" in end(directory)
    assert not kept.alive() and running(directory) == {}
    assert not list(directory.glob("*.command"))


def wait_for(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (result := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result


def test_a_service_that_ends_at_once_is_started_more_and_more_rarely(tmp_path: Path):
    (tmp_path / "operator.command").write_text(json.dumps({"command": ["/bin/false"]}))
    (tmp_path / "jobset.command").write_text(json.dumps({"command": ["/bin/false"]}))
    (tmp_path / "webhooks.command").write_text("broken")
    now = 0.0
    keeper = Keeper(tmp_path, clock=lambda: now)
    starts: list[float] = []
    services = Supervisor(tmp_path, detached=True)
    for _ in range(2000):
        while services.process("operator") is not None:  # the clock stands still while it ends
            time.sleep(0.002)
        starts += [now for name in keeper.look() if name == "operator"]
        now += 0.5
    gaps = [b - a for a, b in pairwise(starts)]
    assert starts[0] == 1.0 and gaps[:3] == [2.5, 4.5, 8.5] and max(gaps) <= 61 and len(starts) < 30


def test_a_service_that_has_ended_is_told_as_ended(tmp_path: Path, program: tuple[str, ...]):
    services = Services(tmp_path / "state", program=program)
    services.start("operator", ["stays"])
    process_of(services, "operator").end(patience=0)
    assert running(services.directory) == {"operator": None}
    services.stop()
    assert running(services.directory) == {} and running(tmp_path / "none") == {}
