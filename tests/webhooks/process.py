"""The webhooks as a process of their own, on a control plane that belongs to the test."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane import Kubectl, eventually

from gangline.api.schema import crd_install


@dataclass
class Webhooks:
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    #: set by a test that has ended it
    stopping: bool = False

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


@contextlib.contextmanager
def running(kubeconfig: Path, directory: Path, *more: str, listen: str = "127.0.0.1:0") -> Iterator[Webhooks]:
    ready, log = directory / "ready.json", directory / "webhooks.log"
    ready.unlink(missing_ok=True)
    with log.open("wb") as output:
        command = [sys.executable, "-m", "gangline.console.cli", "admin", "webhooks", "--kubeconfig", str(kubeconfig)]
        command += ["--mode", "url", "--listen", listen, "--ready-file", str(ready), *more]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        assert eventually(lambda: ready.exists() or process.poll() is not None, 30.0), log.read_text()
        assert process.poll() is None, log.read_text()
        port = json.loads(ready.read_text())["port"]
        yield Webhooks(process, port, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def install_crds(kubectl: Kubectl) -> None:
    manifest = {"apiVersion": "v1", "kind": "List", "items": crd_install.crds()}
    kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    kubectl.wait_established("crd", "--all")
