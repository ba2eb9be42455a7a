"""A real training of four ranks on real nodes: it goes on from its checkpoint when a node is cut off and when it is preempted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster import accounts, harness
from tests.cluster.harness import Api, condition
from tests.controlplane import Kubectl
from tests.realnodes import require_real_nodes

from gangline.api import names
from gangline.console.run import example, local_needs
from gangline.console.stack.processes import Services
from gangline.console.stack.stack import JOBSET_STAND_IN, services_of
from gangline.devcluster.building import build
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.connection import local_connection
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.real.network import HUB
from gangline.devcluster.real.settings import RealPool
from gangline.install import rights
from gangline.install.kinds import install_kinds
from gangline.kube import resources as kube

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("real-nodes")]

Json = dict[str, Any]
EXAMPLE = example.bundled(local_needs.EXAMPLE)
EVERY = 10  # steps between two checkpoints
SAME = 1e-4
#: says in a pod with what status a report of progress is answered
REPORT = """
import os, urllib.request
request = urllib.request.Request(os.environ["GANGLINE_PROGRESS_URL"], b'{"step": 1}', {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=5).status)
"""


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


def gang(name: str, *, steps: int, priority: str) -> Json:
    """A gang of the example, with fewer and faster steps."""
    [made] = manifests({"ddp": "20-gpujob.yaml", "ddp-urgent": "30-jobset.yaml"}[name])
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
    spec = made["spec"]
    template = (
        spec["replicatedJobs"][0]["template"]["spec"]["template"] if "replicatedJobs" in spec else spec["template"]
    )
    arguments = [f"--dir=/checkpoints/{name}", f"--steps={steps}", f"--checkpoint-every={EVERY}", "--pace=0.1"]
    template["spec"]["containers"][0]["args"] = arguments
    return made


async def test_trainings_go_on_after_lost_nodes_and_a_preemption(field: Field, api: Api) -> None:
    steps = 120
    await api.apply(gang("ddp", steps=steps, priority="ddp-normal"))
    await reaches(field, api, "ddp", run=1, step=EVERY + 2)
    kubectl = Kubectl(build.kubectl(), field.plane.kubeconfig)
    pod = (await rank_0(api))["metadata"]["name"]
    told = await asyncio.to_thread(kubectl, "-n", "training", "exec", pod, "--", "python3", "-c", REPORT)
    assert told.strip() == "204", "reports of progress are taken"
    await loses_its_node(field, api, "ddp")

    await api.apply(gang("ddp-urgent", steps=steps // 2, priority="ddp-urgent"))
    await reaches(field, api, "ddp-urgent", run=1, step=EVERY + 2)
    assert not [pod for pod in await up(api) if names.GPUJOB_LABEL in pod["metadata"]["labels"]], "it was preempted"
    await loses_its_node(field, api, "ddp-urgent")
    await reaches(field, api, "ddp-urgent", run=2, step=steps // 2)

    await reaches(field, api, "ddp", run=3, step=steps)
    assert field.started_at("ddp", 3) == field.last("ddp", 2), "told to stop, it saved its last step"
    for name, last in (("ddp", steps), ("ddp-urgent", steps // 2)):
        curve = losses_of(field, name)
        assert sorted(curve) == list(range(1, last + 1)), "no step is missing"
        assert sum(curve[step] for step in range(last - 9, last + 1)) < 0.5 * sum(curve[step] for step in range(1, 11))
        await api.until(lambda name=name: finished(api, name), f"{name} has finished", 20)


async def loses_its_node(field: Field, api: Api, gang: str) -> None:
    """The node of rank 0 is cut off: the gang goes on elsewhere from its last checkpoint."""
    assert field.plane.real is not None
    node = (await rank_0(api))["spec"]["nodeName"]
    field.plane.real.cut_node(node)
    await reaches(field, api, gang, run=2, step=EVERY + 5)
    before = field.last(gang, 1)
    assert before - EVERY <= field.started_at(gang, 2) <= before, "only steps since the last checkpoint are done again"
    assert node not in {pod["spec"]["nodeName"] for pod in await up(api)}


def losses_of(field: Field, gang: str) -> dict[int, float]:
    """Step -> loss. A step that was done again had the same loss."""
    curve: dict[int, float] = {}
    for row in field.losses(gang):
        if "step" in row:
            known = curve.setdefault(row["step"], row["loss"])
            assert abs(known - row["loss"]) <= SAME * known, row
    return curve


async def reaches(field: Field, api: Api, gang: str, *, run: int, step: int) -> None:
    async def done() -> bool:
        return field.last(gang, run) >= step

    try:
        await api.until(done, f"{gang} does step {step} in run {run}", 60)
    except AssertionError:
        print(field.losses(gang)[-3:], field.services.log("operator").read_text()[-4000:])
        print(await api.scene("training"))
        raise


async def up(api: Api) -> list[Json]:
    pods = await api.all(kube.PODS, "training")
    return [
        pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


async def rank_0(api: Api) -> Json:
    index = "batch.kubernetes.io/job-completion-index"
    return next(pod for pod in await up(api) if pod["metadata"]["labels"][index] == "0")


async def finished(api: Api, job: str) -> bool:
    workload = await api.workload_of(job, "training")
    if workload is None or not condition(workload, "Finished"):
        return False
    assert condition(workload, "PodsReady"), "ranks that completed before others have not failed"
    return True
