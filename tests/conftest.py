"""Fixtures of all rooms: the real control plane, shared by the tests of one pytest worker, and a kubectl for it."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.devcluster import build
from gangline.devcluster.components import Options
from gangline.devcluster.local import LocalControlPlane


class Kubectl:
    """Runs kubectl as a user of one kubeconfig."""

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self._binary = binary
        self.kubeconfig = kubeconfig

    def run(self, *args: str, stdin: str | None = None, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """The outcome of a command, whatever its exit status."""
        return subprocess.run(
            [self._binary, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
        )

    def __call__(self, *args: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """The output of a command that must succeed."""
        outcome = self.run(*args, stdin=stdin, timeout=timeout)
        assert outcome.returncode == 0, f"kubectl {' '.join(args)}: {outcome.stdout}{outcome.stderr}"
        return outcome.stdout

    def json(self, *args: str) -> Any:
        """What `kubectl get … -o json` prints."""
        return json.loads(self(*args, "-o", "json"))

    def apply(self, *objects: dict[str, Any], namespace: str | None = None) -> str:
        where = ["-n", namespace] if namespace else []
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self("apply", *where, "-f", "-", stdin=manifest)


def require_control_plane() -> None:
    """Fails the test unless the control plane is compiled: that takes minutes, longer than a test's time limit."""
    if not build.is_built():
        pytest.fail("the local control plane is not compiled yet; run `gangline cluster build` (minutes, once)")


@pytest.fixture(scope="session")
def control_plane() -> Iterator[LocalControlPlane]:
    """A running control plane. Whoever breaks it (kills components, changes its nodes) should start one of their own."""
    require_control_plane()
    with LocalControlPlane(Options(gogc=400)) as plane:
        yield plane


@pytest.fixture(scope="session")
def kubeconfig(control_plane: LocalControlPlane) -> Path:
    return control_plane.kubeconfig


@pytest.fixture(scope="session")
def kubectl(control_plane: LocalControlPlane) -> Kubectl:
    return Kubectl(build.kubectl(), control_plane.kubeconfig)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace of the test's own, deleted in the background afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
