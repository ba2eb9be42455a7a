"""JobSet itself, where it is at hand: GANGLINE_JOBSET names its manager's program, GANGLINE_JOBSET_CRD the file of its CRD.

The manager runs as a process on this machine; its webhooks are reached on loopback.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import yaml
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.harness import Api

from gangline.devcluster.certs import Authority
from gangline.kube import resources as kube

Json = dict[str, Any]
PROGRAM, CRD_FILE = "GANGLINE_JOBSET", "GANGLINE_JOBSET_CRD"
CRD = "jobsets.jobset.x-k8s.io"
#: webhook -> what it is asked about: group, version, resource, operations
_WEBHOOKS = {
    (kube.MUTATING_WEBHOOKS, "jobset-mutating-webhook-configuration"): (
        (
            "mjobset.kb.io",
            "/mutate-jobset-x-k8s-io-v1alpha2-jobset",
            "jobset.x-k8s.io",
            "v1alpha2",
            "jobsets",
            "CREATE",
        ),
        ("mpod.kb.io", "/mutate--v1-pod", "", "v1", "pods", "CREATE"),
    ),
    (kube.VALIDATING_WEBHOOKS, "jobset-validating-webhook-configuration"): (
        (
            *("vjobset.kb.io", "/validate-jobset-x-k8s-io-v1alpha2-jobset"),
            *("jobset.x-k8s.io", "v1alpha2", "jobsets", "CREATE UPDATE"),
        ),
        ("vpod.kb.io", "/validate--v1-pod", "", "v1", "pods", "CREATE"),
    ),
}


def at_hand() -> bool:
    return bool(os.environ.get(PROGRAM) and os.environ.get(CRD_FILE))


class RealJobSet:
    """JobSet's manager as a process, its CRD and its webhooks."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.directory = system.directory / "real-jobset"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.directory / "manager.log"

    async def start(self, api: Api) -> RealJobSet:
        await _install(api)
        self.directory.mkdir(exist_ok=True)
        authority = Authority.create("jobset-ca")
        pair = authority.issue_server("jobset", ("127.0.0.1", "localhost"))
        (self.directory / "tls.crt").write_bytes(pair.certificate)
        (self.directory / "tls.key").write_bytes(pair.key)
        port = harness.free_port()
        settings = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(self.directory)},
            "leaderElection": {"leaderElect": False},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": "0"},
            "internalCertManagement": {"enable": False},
        }
        (self.directory / "config.yaml").write_text(yaml.safe_dump(settings))
        command = [os.environ[PROGRAM], f"--config={self.directory / 'config.yaml'}", "--zap-log-level=4"]
        with self.log.open("ab") as log:
            env = {**os.environ, "KUBECONFIG": str(self.system.kubeconfig)}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        harness.wait_until(lambda: _answers(port) or self.process.poll() is not None, 60, "JobSet's webhooks answer")
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        await self._register(api, port, authority.pair.certificate)
        return self

    async def _register(self, api: Api, port: int, ca: bytes) -> None:
        for (resource, name), rows in _WEBHOOKS.items():
            webhooks = [_webhook(port, ca, *row) for row in rows]
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
            await api.client.create(resource, None, {**body, "webhooks": webhooks})

    async def stop(self, api: Api) -> None:
        for resource, name in _WEBHOOKS:
            await api.client.delete(resource, None, name)
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None
        await api.client.delete(kube.CUSTOM_RESOURCE_DEFINITIONS, None, CRD)


async def _install(api: Api) -> None:
    await api.client.create(
        kube.CUSTOM_RESOURCE_DEFINITIONS, None, yaml.safe_load(Path(os.environ[CRD_FILE]).read_text())
    )

    async def served() -> bool:
        return await api.all(kube.JOB_SETS) == []

    await api.until(served, "JobSets are served")


def _webhook(
    port: int, ca: bytes, name: str, path: str, group: str, version: str, resource: str, operations: str
) -> Json:
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations.split(),
        "resources": [resource],
    }
    only_its_pods = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "rules": [rule],
        "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": base64.b64encode(ca).decode()},
        **({"objectSelector": only_its_pods} if resource == "pods" else {}),
    }


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
