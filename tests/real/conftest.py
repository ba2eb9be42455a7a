"""Real nodes with Gangline beside them, with no more rights than it asks for, and the queue of the example `pytorch-ddp`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.cluster import accounts, harness
from tests.cluster.harness import Api
from tests.realnodes import require_real_nodes

from gangline.console.run import example, local_needs
from gangline.console.stack.processes import Services
from gangline.console.stack.stack import JOBSET_STAND_IN, services_of
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.connection import local_connection
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.real.network import HUB
from gangline.devcluster.real.settings import RealPool
from gangline.install import rights
from gangline.install.kinds import install_kinds

Json = dict[str, Any]
EXAMPLE: Final = example.bundled(local_needs.EXAMPLE)


@dataclass
class Field:
    """Four real nodes and Gangline beside them, with no more rights than it asks for."""

    plane: LocalControlPlane
    services: Services
    volume: Path

    def losses(self, gang: str) -> list[Json]:
        """What rank 0 has noted."""
        path = self.volume / gang / "losses.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def last(self, gang: str, run: int) -> int:
        """The last step of a run; -1 before it has started."""
        return max((row.get("step", 0) for row in self.losses(gang) if row["run"] == run), default=-1)

    def started_at(self, gang: str, run: int) -> int:
        """The step from which a run went on."""
        return next(row["start"] for row in self.losses(gang) if row["run"] == run and "start" in row)


@pytest.fixture
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """Anew for a second run of the test: its gangs have run, and nodes of the first are cut off."""
    require_real_nodes()
    volume = tmp_path_factory.mktemp("volume")
    volume.chmod(0o1777)
    for parent in volume.parents[:2]:
        parent.chmod(0o755)
    with LocalControlPlane(ControlPlaneOptions(real=RealPool(4, lease=12))) as plane:
        assert plane.real is not None
        plane.real.load_image(local_needs.archive(print))
        connection = local_connection(plane)
        services = services_of(connection)
        try:
            directory = tmp_path_factory.mktemp("logins")
            operator, webhooks = asyncio.run(_logins(plane, directory))
            login = ["--kubeconfig", str(plane.kubeconfig)]
            services.launch("jobset", [*JOBSET_STAND_IN, *login])
            at_home = ["--mode", "url", "--url-host", "127.0.0.1", "--listen", "127.0.0.1:0"]
            services.start("webhooks", ["--kubeconfig", str(webhooks), *at_home])
            port = connection.service_port
            reached = ["--listen", f"127.0.0.1:{port}", "--progress-url", f"http://{HUB}:{port}"]
            services.start("operator", ["--kubeconfig", str(operator), "--no-leader-election", *reached])
            services.wait("jobset")
            yield Field(plane, services, volume)
        finally:
            services.stop()


async def _logins(plane: LocalControlPlane, directory: Path) -> tuple[Path, Path]:
    """Of the operator and the webhooks, with what `gangline admin rbac` grants."""
    async with harness.connect(plane.kubeconfig) as api:
        await install_kinds(api.client)
    granted = await accounts.grant(plane.kubeconfig, directory, probe_nodes=True)
    return granted[rights.OPERATOR.name], granted[rights.WEBHOOKS.name]


@pytest.fixture
async def api(field: Field) -> AsyncIterator[Api]:
    async with harness.connect(field.plane.kubeconfig) as connected:
        for name in ("00-storage.yaml", "10-queues.yaml"):
            for manifest in manifests(name):
                if manifest["kind"] == "PersistentVolume":
                    manifest["spec"]["hostPath"]["path"] = str(field.volume)
                await connected.apply(manifest)
        yield connected


def manifests(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))
