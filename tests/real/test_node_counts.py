"""How many nodes of which kind, as users write it; and why a machine is refused."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from gangline.console.node_counts import NodeCounts, NodeCountsType
from gangline.devcluster.real import preflight
from gangline.devcluster.real.settings import RealPool, machine_gpus


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("5", NodeCounts(simulated=5)),
        ("real:3", NodeCounts(real=3)),
        ("real:3,simulated:100", NodeCounts(3, 100)),
        ("simulated:1, real:2", NodeCounts(2, 1)),
        ("0", NodeCounts()),
    ],
)
def test_counts(text: str, counts: NodeCounts) -> None:
    assert NodeCountsType().convert(text, None, None) == counts


@pytest.mark.parametrize(
    "text", ["", "x", "real:", "real:1,real:2", "real:-1", "real:101", "9999999999", "real:٣", "a:1", "5001"]
)
def test_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NodeCountsType().convert(text, None, None)


def test_the_machines_gpus_are_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert machine_gpus(tmp_path) == 2
    monkeypatch.setattr("gangline.console.node_counts.machine_gpus", lambda: 4)
    assert NodeCounts(real=2).real_pool() == RealPool(2, 2)
    assert NodeCounts(real=2).real_pool(1) == RealPool(2, 1)
    assert NodeCounts(simulated=2).real_pool() is None


def test_a_pool_survives_in_its_file(tmp_path: Path) -> None:
    assert RealPool.load(tmp_path) is None
    RealPool(3, 2).save(tmp_path)
    assert RealPool.load(tmp_path) == RealPool(3, 2)
    (tmp_path / "real.json").write_text('{"count": "x"}')
    assert RealPool.load(tmp_path) is None


def test_a_refusal_names_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "101 are too many" in preflight.refused(tmp_path, 101)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "they need root" in preflight.refused(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "ip" else f"/bin/{name}")
    assert "ip is missing (package iproute2)" in preflight.refused(tmp_path)


def test_a_directory_that_nodes_cannot_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "lies in /var/lib" in preflight.refused(Path("/var/lib/jenkins/clusters/x"))
