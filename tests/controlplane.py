"""What tests on the real control plane share: kubectl, waiting, and the demand that it is compiled."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.devcluster.building import build

#: how much longer than usual a test waits before it fails: `TEST_PATIENCE=3` on a machine that may be slow
PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))


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

    def wait_established(self, *which: str) -> None:
        """Until these CRDs are served. `kubectl wait` gives up on one that has no conditions yet: it is asked again."""
        wait = ("wait", "--for=condition=Established", *which, "--timeout=30s")
        if not eventually(lambda: self.run(*wait).returncode == 0, 30):
            self(*wait)

    def apply(self, *objects: dict[str, Any], namespace: str | None = None) -> str:
        where = ["-n", namespace] if namespace else []
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self("apply", *where, "-f", "-", stdin=manifest)


def require_control_plane(version: str | None = None) -> None:
    """Fails the test unless the control plane is compiled: that takes minutes, longer than a test's time limit."""
    if not build.servers_are_built(version):
        option = f" --version {version}" if version else ""
        pytest.fail(
            f"the local control plane is not compiled yet; run `gangline dev cluster build{option}` (minutes, once)"
        )


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """Whether the condition holds within so many seconds, `PATIENCE` times over."""
    deadline = time.monotonic() + PATIENCE * seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
