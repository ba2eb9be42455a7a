"""The JobSet controller of the end-to-end tests: the stand-in, as a process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.harness import Api

from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

CRD = "jobsets.jobset.x-k8s.io"


@dataclass
class StandIn:
    """The JobSet controller of these tests."""

    system: System
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> StandIn:
        ready = self.system.directory / "jobset.ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "gangline.devcluster.jobset"]
        files = ["--kubeconfig", str(self.system.kubeconfig), "--ready-file", str(ready)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *files], stdout=log, stderr=log)
        harness.wait_until(lambda: ready.exists() or self.process.poll() is not None, 30, "the stand-in is ready")
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return self

    @property
    def log(self) -> Path:
        return self.system.directory / "jobset.log"

    def stop(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            process.terminate()
            try:
                assert process.wait(20) == 0, self.log.read_text()[-3000:]
            finally:
                process.kill()


async def uninstall(api: Api, stand_in: StandIn) -> None:
    """JobSets, their controller and their CRD, one after the other."""
    with contextlib.suppress(NotFound):  # the CRD may have gone within the test
        for found in await api.all(kube.JOB_SETS):
            await api.client.delete(kube.JOB_SETS, "default", found["metadata"]["name"], propagation="Background")
    stand_in.stop()
    with contextlib.suppress(NotFound):
        await api.client.delete(kube.CUSTOM_RESOURCE_DEFINITIONS, None, CRD)
    await api.until(lambda: uninstalled(api), "the CRD is gone")


async def uninstalled(api: Api) -> bool:
    return CRD not in [crd["metadata"]["name"] for crd in await api.all(kube.CUSTOM_RESOURCE_DEFINITIONS)]
