"""Commands without a kubeconfig find the one local cluster that runs on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline.console.views import access
from gangline.devcluster.clusters import clusters_root
from gangline.devcluster.components import COMPONENTS
from gangline.devcluster.processes.process import ProcessId


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def plane(name: str, *, alive: bool) -> Path:
    directory = clusters_root() / name
    directory.mkdir(parents=True)
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text("{}")
    this = ProcessId.of(os.getpid())
    assert this is not None
    for component in COMPONENTS if alive else ():
        this.write(directory / f"{component}.pid")
    return kubeconfig


def test_the_one_that_runs_is_found_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    plane("old", alive=False)
    assert access.own_cluster(None) is None
    mine = plane("mine", alive=True)
    found = access.own_cluster(None)
    assert found is not None and found.parent == mine.parent
    assert "local cluster mine" in capsys.readouterr().err


def test_of_two_none_is_guessed_and_what_is_configured_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plane("mine", alive=True)
    assert access.own_cluster("a-context") is None
    other = tmp_path / "config"
    other.write_text("{}")
    monkeypatch.setenv("KUBECONFIG", str(other))
    assert access.own_cluster(None) is None
    monkeypatch.delenv("KUBECONFIG")
    plane("another", alive=True)
    assert access.own_cluster(None) is None
