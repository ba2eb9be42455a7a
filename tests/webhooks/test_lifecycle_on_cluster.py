"""The webhook process comes and goes: late CRDs, an API server that is away, replicas, the end."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner
from tests.builders.written import recipe
from tests.controlplane import Kubectl, eventually
from tests.webhooks.process import Webhooks, install_crds, running

from gangline.console.cli import main
from gangline.devcluster.building import build
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


def test_the_webhooks_of_an_uninstalled_gangline_go(plane: LocalControlPlane, kubectl: Kubectl, tmp_path: Path):
    """By garbage collection, when the role that they were installed with goes; and at once by command."""
    if "clusterqueues.kueue.x-k8s.io" not in kubectl("get", "crd", "-o", "name"):
        install_crds(kubectl)
    kubectl("create", "clusterrole", "gangline-webhooks", "--verb=get", "--resource=pods")
    with running(plane.kubeconfig, tmp_path) as webhooks:
        _apply_recipe(kubectl)
        assert webhooks.stop() == 0
    assert len(registered(kubectl)) == 2
    kubectl("delete", "secret", "-n", "gangline-system", "gangline-webhook-cert", "--ignore-not-found")
    kubectl("delete", "clusterrole", "gangline-webhooks")
    assert eventually(lambda: registered(kubectl) == [], 60.0)

    with running(plane.kubeconfig, tmp_path) as webhooks:
        assert len(registered(kubectl)) == 2
        words = [
            "admin",
            "webhooks",
            "--kubeconfig",
            str(plane.kubeconfig),
            "--mode",
            "url",
            "--listen",
            "127.0.0.1:9443",
            "--unregister",
        ]
        outcome = CliRunner().invoke(main, words)
        assert outcome.exit_code == 0, outcome.output
        assert registered(kubectl) == []
        crd = kubectl.json("get", "crd", "workloads.kueue.x-k8s.io")
        assert crd["spec"]["conversion"] == {"strategy": "None"}
        assert webhooks.stop() == 0
    with running(plane.kubeconfig, tmp_path):
        assert len(registered(kubectl)) == 2, "a process that is started later registers again"


def test_no_review_is_lost_when_a_replica_ends(plane: LocalControlPlane, kubectl: Kubectl, tmp_path: Path):
    """Clients with open connections, as API servers have them, leave when they are asked to; none finds its connection closed."""
    if "clusterqueues.kueue.x-k8s.io" not in kubectl("get", "crd", "-o", "name"):
        install_crds(kubectl)
    with running(plane.kubeconfig, tmp_path, "--linger", "2") as webhooks:
        answered = asyncio.run(_reviews_until_the_end(webhooks, ssl.create_default_context(cadata=_authority(kubectl))))
        assert webhooks.process.wait(15) == 0
        assert answered["before"] > 20 and answered["after"] > 20
        assert "Traceback" not in webhooks.log.read_text()


async def _reviews_until_the_end(webhooks: Webhooks, trust: ssl.SSLContext) -> Counter[str]:
    """Four clients that send one review after the other, before SIGTERM and, for a second, after it. Raises if one fails."""
    url, ended, answered = f"https://127.0.0.1:{webhooks.port}", asyncio.Event(), Counter[str]()
    review = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": []},
    }

    async def client() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust, limit=1)) as session:
            while not ended.is_set():
                stopping = webhooks.stopping
                async with session.post(f"{url}/convert", json=review) as answer:
                    assert answer.status == 200
                    await answer.read()
                    if stopping:
                        assert answer.headers["connection"] == "close"
                    answered["after" if stopping else "before"] += 1
                await asyncio.sleep(0.01)

    clients = [asyncio.ensure_future(client()) for _ in range(4)]
    await asyncio.sleep(1.0)
    webhooks.process.send_signal(signal.SIGTERM)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        while True:
            async with session.get(f"{url}/readyz") as answer:
                if answer.status == 503:
                    break
            await asyncio.sleep(0.02)
    webhooks.stopping = True
    await asyncio.sleep(1.0)
    ended.set()
    await asyncio.gather(*clients)
    return answered


def _apply_recipe(kubectl: Kubectl) -> None:
    outcome = kubectl.run("apply", "-f", "-", stdin=json.dumps(recipe()))
    assert outcome.returncode == 0, outcome.stderr
    assert "Warning: legacy ClusterQueue form completed" in outcome.stderr


def _authority(kubectl: Kubectl) -> str:
    secret = kubectl.json("get", "secret", "-n", "gangline-system", "gangline-webhook-cert")
    return base64.b64decode(secret["data"]["ca.crt"]).decode()
