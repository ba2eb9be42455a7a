"""Real nodes: pods run, find each other and are reached; nodes fail and come back; nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane import Kubectl, eventually
from tests.realnodes import PYTHON_IMAGE, python_image, require_real_nodes

from gangline.api import admission
from gangline.api.names import CARDS, GPU_SHARE, GPU_VISIBLE, TOPOLOGY_GATE
from gangline.devcluster.building import build
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.local import LocalControlPlane, sweep_temporary
from gangline.devcluster.real import cgroups
from gangline.devcluster.real.nodes import RealNodes
from gangline.devcluster.real.settings import GPU, RealPool

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("real-nodes")]

SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
FETCH = """
import time, urllib.request
for _ in range(100):
    try:
        print("fetched", urllib.request.urlopen("http://server.default.svc", timeout=2).status)
        break
    except OSError:
        time.sleep(0.2)
"""
OWNER = """
import sys, time
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.real.settings import RealPool

class Telling(LocalControlPlane):
    def _start_all(self):
        print(self.directory, flush=True)
        super()._start_all()

Telling(ControlPlaneOptions(real=RealPool(2))).start()
time.sleep(300)
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[LocalControlPlane]:
    require_real_nodes()
    pool = RealPool(2, lease=8)  # a heartbeat every 2 s: failures are noticed soon
    options = ControlPlaneOptions(real=pool, node_monitor_grace=6, node_monitor_period=1.0)
    with LocalControlPlane(options) as started:
        assert started.real is not None
        started.real.load_image(python_image())
        yield started


@pytest.fixture
def kubectl(plane: LocalControlPlane) -> Kubectl:
    return Kubectl(build.kubectl(), plane.kubeconfig)


@pytest.fixture
def real(plane: LocalControlPlane) -> RealNodes:
    assert plane.real is not None
    return plane.real


def pod(name: str, node: str, code: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": PYTHON_IMAGE, "args": ["-u", "-c", code]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }


def phase(kubectl: Kubectl, name: str) -> str:
    return kubectl.json("get", "pod", name)["status"].get("phase", "")


def node_ready(kubectl: Kubectl, name: str) -> str:
    conditions = kubectl.json("get", "node", name)["status"]["conditions"]
    return next(row["status"] for row in conditions if row["type"] == "Ready")


def test_nodes_show_their_gpus(kubectl: Kubectl) -> None:
    for name in ("real-1", "real-2"):
        status = kubectl.json("get", "node", name)["status"]
        assert status["capacity"][GPU] == status["allocatable"][GPU] == "8"


def test_pods_find_a_service_and_are_reached(kubectl: Kubectl) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    kubectl.apply(service, pod("server", "real-1", SERVE), pod("client", "real-2", FETCH))
    assert eventually(lambda: phase(kubectl, "client") == "Succeeded", 60), kubectl("describe", "pod", "client")
    assert "fetched 200" in kubectl("logs", "client")
    assert kubectl("exec", "server", "--", "/usr/bin/python3", "-c", "print(6 * 7)").strip() == "42"
    kubectl("delete", "pod", "server", "client", "--wait=false")


def test_a_container_is_told_the_cards_that_were_chosen_while_its_pod_waited(kubectl: Kubectl) -> None:
    asks = pod("told", "", "import os; print('cards', os.environ['NVIDIA_VISIBLE_DEVICES'])")
    asks["metadata"] |= {
        "namespace": "default",
        "annotations": {GPU_SHARE: "500m", GPU_VISIBLE: "NVIDIA_VISIBLE_DEVICES"},
    }
    asks["spec"]["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
    del asks["spec"]["nodeName"]
    kubectl.apply(admission.default(asks, None, admission.AdmissionFacts()).obj)
    found = kubectl.json("get", "pod", "told")
    found["metadata"]["annotations"][CARDS] = "GPU-a,GPU-b"
    found["spec"]["schedulingGates"] = []
    kubectl("replace", "-f", "-", stdin=json.dumps(found))
    assert eventually(lambda: phase(kubectl, "told") == "Succeeded", 60), kubectl("describe", "pod", "told")
    assert "cards GPU-a,GPU-b" in kubectl("logs", "told")
    kubectl("delete", "pod", "told", "--wait=false")


def test_a_cut_node_is_missed_and_comes_back(kubectl: Kubectl, plane: LocalControlPlane, real: RealNodes) -> None:
    real.cut_node("real-2")
    assert real.state("real-2") == "cut off"
    assert eventually(lambda: node_ready(kubectl, "real-2") == "Unknown", 30)
    plane.start_real_node("real-2")
    assert real.state("real-2") == "running"
    assert node_ready(kubectl, "real-2") == "True"


def test_a_stopped_node_loses_its_containers(kubectl: Kubectl, plane: LocalControlPlane, real: RealNodes) -> None:
    kubectl.apply(pod("doomed", "real-2", "import time; time.sleep(1000)", restartPolicy="Always"))
    assert eventually(lambda: phase(kubectl, "doomed") == "Running", 30)
    real.stop_node("real-2")
    assert real.state("real-2") == "off"
    with pytest.raises(DevClusterError, match="real-2 does not run"):
        real.cut_node("real-2")
    plane.start_real_node("real-2")
    status = lambda: kubectl.json("get", "pod", "doomed")["status"]["containerStatuses"][0]  # noqa: E731
    assert eventually(lambda: status()["restartCount"] == 1 and status()["ready"], 60), status()
    kubectl("delete", "pod", "doomed")


def test_another_node_is_refused_by_name(real: RealNodes) -> None:
    with pytest.raises(DevClusterError, match="there is no real node 'real-9'; there are: real-1, real-2"):
        real.stop_node("real-9")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_nothing_is_left_when_the_owner_is_killed(number: int) -> None:
    """SIGKILL at a random moment, while starting or later; the watchdog cleans up, or the next start."""
    require_real_nodes()
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert owner.stdout is not None
    directory = Path(owner.stdout.readline().strip())
    time.sleep(random.Random(time.time_ns()).uniform(0.0, 6.0))
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert directory.name.startswith("cp-")
    gone = eventually(lambda: not leftovers(directory), 20)
    sweep_temporary()
    assert not leftovers(directory), f"after {number}: {leftovers(directory)}"
    assert gone, "the watchdog left something to the sweep"
    assert not directory.exists()


def leftovers(directory: Path) -> list[str]:
    """Processes that name the directory, and cgroups of the cluster."""
    found = [str(path) for path in cgroups.directories(cgroups.name_of(directory))]
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(directory) in command:
                found.append(command.replace("\0", " ")[:200])
    return found
