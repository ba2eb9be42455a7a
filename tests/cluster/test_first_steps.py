"""The first minutes of a new user: `gangline up --detach`, what it suggests, an operator that dies, `gangline down`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.controlplane import require_control_plane

from gangline.devcluster.building import build

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


class Shell:
    """A terminal in the checkout, of somebody who has no kubeconfig and no cluster yet."""

    def __init__(self, home: Path) -> None:
        bin_directory = home / "bin"
        bin_directory.mkdir()
        for name, target in (("gangline", Path(sys.executable).parent / "gangline"), ("kubectl", build.kubectl())):
            (bin_directory / name).symlink_to(target)
        path = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
        dropped = {"KUBECONFIG", "KUBERNETES_SERVICE_HOST"}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        # programs that are built already are found by the cache's name, whoever's home it is
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.environment = kept | {
            "PATH": path,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CACHE_HOME": cache,
        }

    def run(self, command: str, *, status: int | None = 0) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert status is None or done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, what
            time.sleep(1)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    require_control_plane()
    opened = Shell(tmp_path)
    try:
        yield opened
    finally:
        opened.run("gangline down", status=None)


def test_the_first_minutes(shell: Shell) -> None:
    said = shell.run("gangline up --local --detach")
    assert "✓ 16 nodes: 8 × a100, 8 × h100" in said
    export, hint = re.findall(r"^  (export KUBECONFIG=.*|kubectl apply .*)$", said, re.MULTILINE)
    assert hint == "kubectl apply -f examples/quickstart/ && gangline queue -A"

    # the suggestion works as it stands, and its jobs start on the nodes
    assert "Pending" in shell.run(f"{export}; {hint}")
    shell.until(lambda: "Running" in shell.run("gangline queue -A"), "no job of the suggested example runs")
    assert "not scheduled" not in shell.run("gangline queue -A -s running")
    cohorts = {row["cohorts"][-1] for row in json.loads(shell.run("gangline limits -A -o json"))}
    assert cohorts == {"lab"}, "a manifest has lost its cohort"

    # without a kubeconfig, commands take the cluster that runs here
    assert "gangline operator" in shell.run("gangline dev cluster status")

    # an operator that dies is started again, and answers
    pid = int(re.search(r"gangline operator\s+(\d+)", shell.run("gangline dev cluster status")).group(1))  # type: ignore[union-attr]
    os.kill(pid, signal.SIGKILL)
    status = re.compile(r"gangline operator\s+(\d+)")

    def again() -> bool:
        found = status.search(shell.run("gangline dev cluster status", status=None))
        return found is not None and int(found.group(1)) != pid

    shell.until(again, "the operator is not started again")
    shell.until(lambda: "POS" in shell.run("gangline queue -A", status=None), "the new operator does not answer")

    # who deletes the example keeps Gangline
    shell.run(f"{export}; kubectl delete -f examples/quickstart/ --wait=false")
    assert "gangline-system" in shell.run(f"{export}; kubectl get namespace gangline-system -o name")
    assert "is down" in shell.run("gangline down")
    assert json.loads(shell.run("gangline dev cluster status -o json", status=1)) == []
