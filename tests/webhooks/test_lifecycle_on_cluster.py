"""The webhook process comes and goes: late CRDs, an API server that is away, replicas, the end."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from tests.api.admission.builders import recipe
from tests.controlplane import Kubectl
from tests.webhooks.process import install_crds, running

from gangline.devcluster import build
from gangline.devcluster.local import LocalControlPlane

pytestmark = pytest.mark.cluster

UNREACHED = "WARNING gangline_webhooks.server: certificates: "


@pytest.fixture(scope="module")
def kubectl(plane: LocalControlPlane) -> Kubectl:
    return Kubectl(build.kubectl(), plane.kubeconfig)


def registered(kubectl: Kubectl) -> list[str]:
    listed = kubectl("get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name")
    return [line for line in listed.splitlines() if line.endswith("/gangline")]


def install_once_said(kubectl: Kubectl, log: Path, said: str) -> None:
    """The CRDs come only when the webhooks have been seen waiting for them, however long they take to start."""
    wait_until_said(log, said)
    install_crds(kubectl)


def wait_until_said(log: Path, said: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (log.exists() and said in log.read_text()):
        time.sleep(0.1)


def start_once_missed(plane: LocalControlPlane, log: Path) -> None:
    """The API server comes back only when the webhooks have been seen without it."""
    wait_until_said(log, UNREACHED)
    plane.start_component("kube-apiserver")


def test_the_whole_life(plane: LocalControlPlane, kubectl: Kubectl, tmp_path: Path):
    """One story on one control plane: each step starts from what the one before left."""
    waits = "registration waits for CRDs: clusterqueues.kueue.x-k8s.io"
    late = threading.Thread(target=install_once_said, args=(kubectl, tmp_path / "webhooks.log", waits))
    late.start()
    with running(plane.kubeconfig, tmp_path) as webhooks:
        late.join()
        assert waits in webhooks.log.read_text()
        _apply_recipe(kubectl)

        (tmp_path / "second").mkdir()
        with running(plane.kubeconfig, tmp_path / "second", "--unregister-on-exit") as second:
            trust = ssl.create_default_context(cadata=_authority(kubectl))
            for port in (webhooks.port, second.port):
                with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=trust) as answer:
                    assert answer.status == 200
            assert len(registered(kubectl)) == 2
            assert second.stop() == 0
            assert not (tmp_path / "second" / "ready.json").exists()
            log = second.log.read_text()
            assert log.count("ready on port") == 1
            assert "Traceback" not in log
        assert registered(kubectl) == []
        assert webhooks.stop() == 0

    plane.kill("kube-apiserver")
    back = threading.Thread(target=start_once_missed, args=(plane, tmp_path / "webhooks.log"))
    back.start()
    with running(plane.kubeconfig, tmp_path) as webhooks:
        back.join()
        assert UNREACHED in webhooks.log.read_text()
        kubectl("delete", "clusterqueue", "tpu-training-cq", "--wait=false")
        kubectl("patch", "clusterqueue", "tpu-training-cq", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        _apply_recipe(kubectl)


def _apply_recipe(kubectl: Kubectl) -> None:
    outcome = kubectl.run("apply", "-f", "-", stdin=json.dumps(recipe()))
    assert outcome.returncode == 0, outcome.stderr
    assert "Warning: legacy ClusterQueue form completed" in outcome.stderr


def _authority(kubectl: Kubectl) -> str:
    secret = kubectl.json("get", "secret", "-n", "gangline-system", "gangline-webhook-cert")
    return base64.b64decode(secret["data"]["ca.crt"]).decode()
