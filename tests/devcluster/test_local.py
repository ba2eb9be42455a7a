"""The local control plane itself: it starts, serves, survives faults, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.controlplane import Kubectl, eventually, require_control_plane

from gangline.devcluster.building import build
from gangline.devcluster.building.build import CONTROL_PLANE, KUBERNETES
from gangline.devcluster.components import COMPONENTS, Component, ControlPlaneOptions
from gangline.devcluster.errors import DevClusterError, StartError
from gangline.devcluster.local import LocalControlPlane, sweep_temporary
from gangline.devcluster.locks import PortReservation
from gangline.devcluster.processes.process import ProcessId

pytestmark = pytest.mark.cluster

OWNER = """
import sys, time
from pathlib import Path
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
plane = LocalControlPlane(ControlPlaneOptions(directory=Path(sys.argv[1]) if len(sys.argv) > 1 else None)).start()
print(plane.directory, flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[LocalControlPlane]:
    """One that the tests of this file may break."""
    require_control_plane()
    with LocalControlPlane() as started:
        yield started


@pytest.fixture
def own_kubectl(plane: LocalControlPlane) -> Kubectl:
    return Kubectl(build.kubectl(), plane.kubeconfig)


def processes(directory: Path) -> list[ProcessId]:
    found = [ProcessId.read(directory / f"{component}.pid") for component in COMPONENTS]
    return [process for process in found if process is not None]


def test_it_is_a_real_cluster(own_kubectl: Kubectl) -> None:
    version = CONTROL_PLANE.pinned_versions()[KUBERNETES]
    assert own_kubectl.json("version")["serverVersion"]["gitVersion"] == version
    namespaces = {item["metadata"]["name"] for item in own_kubectl.json("get", "namespaces")["items"]}
    assert {"default", "kube-system", "kube-node-lease"} <= namespaces
    assert own_kubectl("auth", "can-i", "*", "*").strip() == "yes"
    assert own_kubectl.json("get", "serviceaccount", "default")["metadata"]["name"] == "default"


def test_rbac_holds_for_others(plane: LocalControlPlane, own_kubectl: Kubectl) -> None:
    alice = Kubectl(build.kubectl(), plane.issue_kubeconfig("alice", ["dev"]))
    assert "alice" in alice("auth", "whoami")
    assert alice.run("get", "pods").returncode != 0
    own_kubectl("create", "rolebinding", "dev-view", "--clusterrole=view", "--group=dev")
    assert eventually(lambda: alice.run("get", "pods").returncode == 0)


def test_the_api_server_can_be_restarted(plane: LocalControlPlane, own_kubectl: Kubectl) -> None:
    own_kubectl("create", "configmap", "kept", "--from-literal=a=b")
    plane.restart_apiserver()
    assert own_kubectl.json("get", "configmap", "kept")["data"] == {"a": "b"}


def test_data_survives_a_killed_etcd(plane: LocalControlPlane, own_kubectl: Kubectl) -> None:
    own_kubectl("create", "configmap", "written-before-kill", "--from-literal=a=b")
    plane.kill("etcd")
    assert not plane.running("etcd")
    assert not plane.ready()
    plane.start_component("etcd")
    assert eventually(plane.ready, 30)
    assert own_kubectl.json("get", "configmap", "written-before-kill")["data"] == {"a": "b"}


def test_a_paused_api_server_does_not_answer(plane: LocalControlPlane, own_kubectl: Kubectl) -> None:
    plane.pause("kube-apiserver")
    assert own_kubectl.run("get", "ns", "--request-timeout=1s").returncode != 0
    plane.resume("kube-apiserver")
    assert eventually(lambda: own_kubectl.run("get", "ns", "--request-timeout=5s").returncode == 0)


def test_two_start_at_once_and_are_apart() -> None:
    require_control_plane()
    planes = [LocalControlPlane(), LocalControlPlane()]
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(LocalControlPlane.start, planes))
        assert planes[0].server != planes[1].server
        first, second = (Kubectl(build.kubectl(), plane.kubeconfig) for plane in planes)
        first("create", "namespace", "only-here")
        assert second.run("get", "namespace", "only-here").returncode != 0
        crossed = first.run("--server", planes[1].server, "get", "ns")
        assert "certificate" in crossed.stderr, "each has a CA of its own"
    finally:
        directories = [plane.directory for plane in planes if plane.running("etcd")]
        for plane in planes:
            plane.stop()
    assert len(directories) == 2
    assert not any(directory.exists() for directory in directories)


def test_a_named_one_keeps_data_and_address(tmp_path: Path) -> None:
    require_control_plane()
    options = ControlPlaneOptions(directory=tmp_path / "kept")
    with LocalControlPlane(options) as plane:
        server, kubeconfig = plane.server, plane.kubeconfig
        Kubectl(build.kubectl(), kubeconfig)("create", "configmap", "kept")
        ended = processes(plane.directory)
        with pytest.raises(StartError, match="another process uses"):
            LocalControlPlane(options).start()
    assert not any(process.alive() for process in ended)
    with LocalControlPlane(options) as plane:
        assert plane.server == server
        Kubectl(build.kubectl(), kubeconfig)("get", "configmap", "kept")


def test_a_port_that_somebody_took_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    require_control_plane()
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        take = PortReservation.take
        wrong = iter([taken])  # the first port chosen is no longer free when etcd binds it
        monkeypatch.setattr(PortReservation, "take", lambda self: next(wrong, None) or take(self))
        with LocalControlPlane() as plane:
            assert next(wrong, "used up") == "used up"
            assert plane.ready()


@pytest.mark.parametrize("component", ["kube-scheduler", "kwok"])
def test_no_component_fails_unnoticed(component: Component) -> None:
    require_control_plane()
    with pytest.raises(StartError, match=rf"(?s){component} ended with status 1.*no-such-flag"):
        LocalControlPlane(ControlPlaneOptions(flags={component: ["--no-such-flag"]})).start()


def test_a_bad_flag_is_shown_with_the_log() -> None:
    require_control_plane()
    plane = LocalControlPlane(ControlPlaneOptions(flags={"kube-apiserver": ["--no-such-flag"]}))
    with pytest.raises(StartError, match=r"(?s)kube-apiserver ended with status 1.*unknown flag: --no-such-flag"):
        plane.start()
    with pytest.raises(DevClusterError, match="has not been started"):
        _ = plane.directory, "nothing is left of it"


def test_it_dies_with_its_owner() -> None:
    require_control_plane()
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    directory = Path(owner.stdout.readline().strip())
    running = processes(directory)
    assert len(running) == len(COMPONENTS)
    assert directory not in sweep_temporary(), "nobody cleans up what is in use"
    owner.kill()
    owner.wait()
    assert eventually(lambda: not any(process.alive() for process in running))
    sweep_temporary()  # or another test's start has done it by now
    assert not directory.exists()


def test_leftovers_without_a_watchdog_are_cleaned_by_the_next_start(tmp_path: Path) -> None:
    """The owner and its watchdog both got kill -9: pid files are what is left."""
    require_control_plane()
    directory = tmp_path / "crashed"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    owner.stdout.readline()
    crashed = processes(directory)
    for child in _children(owner.pid):
        if child not in [process.pid for process in crashed]:
            os.kill(child, 9)
    owner.kill()
    owner.wait()
    time.sleep(0.5)
    assert all(process.alive() for process in crashed), "the test would prove nothing otherwise"
    with LocalControlPlane(ControlPlaneOptions(directory=directory)) as plane:
        assert not any(process.alive() for process in crashed)
        assert plane.ready()


def test_a_detached_one_needs_a_directory() -> None:
    with pytest.raises(ValueError, match=r"ControlPlaneOptions\.directory"):
        LocalControlPlane(ControlPlaneOptions(detached=True))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
