"""What Kueue's alpha gates add to MultiKueue: one worker preempts at a time, and ClusterProfiles say where a worker is."""

from __future__ import annotations

import base64
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.accounts import RESOURCES
from tests.cluster.conftest import FIRST, MANAGER, SECOND, System, Trio
from tests.cluster.foreign_kinds import crd
from tests.cluster.harness import cluster_queue, condition, condition_row, job, priority_class
from tests.cluster.test_multikueue import JOBS, Clusters, clusters, config, with_operators

from gangline.api import names
from gangline.api.read.configuration.access_providers import AccessProvider
from gangline.engine import model
from gangline.install import rights
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
__all__ = ["clusters"]
Json = dict[str, Any]
ORCHESTRATED = model.Settings(gates={"MultiKueueOrchestratedPreemption": True})


@pytest.fixture(scope="module")
def systems(trio: Trio) -> Iterator[dict[str, System]]:
    """As usual, but the workers heed preemption gates."""
    with with_operators(trio.systems(), jobs=JOBS, settings=ORCHESTRATED) as found:
        yield found


async def test_one_worker_preempts_although_both_could(clusters: Clusters) -> None:
    """A job of low priority runs in each; one of high priority takes the place of one of them, and the other runs on."""
    for name in (FIRST, SECOND):
        await clusters.apis[name].apply(cluster_queue("cq", 1, preemption={"withinClusterQueue": "LowerPriority"}))
    await clusters.manager.apply(priority_class("low", 1), priority_class("high", 9))
    clusters.operator(orchestrates=True)
    low = ["one", "two"]
    runs: dict[str, str] = {}
    for name in low:
        await clusters.manager.create(job(name, "lq", runtime="", priority="low"))
        runs[name] = await clusters.runs_in(name)
    assert set(runs.values()) == {FIRST, SECOND}
    await clusters.manager.create(job("top", "lq", runtime="", priority="high"))
    taken = await clusters.runs_in("top")
    [copy] = [each for each in await clusters.copies(taken) if each["spec"]["priority"] == 9]
    assert copy["spec"]["preemptionGates"] == [{"name": names.MULTIKUEUE_GATE}]
    [gate] = copy["status"]["preemptionGates"]
    assert (gate["name"], gate["position"]) == (names.MULTIKUEUE_GATE, "Open")
    [loser] = [name for name in low if runs[name] == taken]
    [winner] = [name for name in low if name != loser]

    async def waits_everywhere() -> bool:
        copies = [each for name in (FIRST, SECOND) for each in await clusters.copies(name)]
        waiting = [each for each in copies if not condition(each, names.QUOTA_RESERVED)]
        workload = await clusters.manager.workload_of(loser) or {}
        return [each["metadata"]["name"] for each in waiting] == [workload["metadata"]["name"]] * 2

    await clusters.manager.until(waits_everywhere, "the job that was preempted waits in both clusters", 60)
    status = await clusters.status(winner)
    assert status["clusterName"] == runs[winner] != taken
    assert condition({"status": status}, names.ADMITTED) and "schedulingStats" not in status


PLUGIN = """#!{python}
import json, os, sys
if open({mood!r}).read() == "ill":
    sys.exit(1)
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
open({received!r}, "w").write(json.dumps([sys.argv[1:], info]))
print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {status!r}}}))
"""


async def test_a_profile_leads_to_a_worker(clusters: Clusters, tmp_path: Path) -> None:
    """The kind is installed while the operator runs; a program of the configuration fetches the credentials, or fails."""
    manager, system = clusters.manager, clusters.systems[FIRST]
    issued = yaml.safe_load(system.plane.issue_kubeconfig(MANAGER).read_text())
    [user], [cluster] = issued["users"], issued["clusters"]
    pair = {
        f"{name}Data": _decoded(user["user"][key])
        for name, key in (("clientCertificate", "client-certificate-data"), ("clientKey", "client-key-data"))
    }
    mood, received, program = tmp_path / "mood", tmp_path / "received", tmp_path / "login"
    mood.write_text("ill")
    program.write_text(PLUGIN.format(python=sys.executable, mood=str(mood), received=str(received), status=pair))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    for body in rights.profiles(names.KUEUE_NAMESPACE):
        meta = body["metadata"]
        await manager.client.patch(
            RESOURCES[body["kind"]], meta["namespace"], meta["name"], body, kind="apply", field_manager="test"
        )
    provider = AccessProvider(
        "cloud", str(program), "client.authentication.k8s.io/v1", ("get",), provide_cluster_info=True
    )
    source = {"clusterSource": {"kubeConfig": None, "clusterProfileRef": {"name": "inventory"}}}
    await manager.client.patch(kube.MULTI_KUEUE_CLUSTERS, None, FIRST, {"spec": source})
    await manager.apply(config(FIRST))
    clusters.operator(profiles=True, access_providers=(provider,))

    async def says(reason: str, words: str) -> bool:
        row = condition_row(await manager.get(kube.MULTI_KUEUE_CLUSTERS, FIRST), "Active")
        return (row.get("reason"), words in row.get("message", "")) == (reason, True)

    missing = 'ClusterProfile.multicluster.x-k8s.io "inventory" not found'
    await manager.until(lambda: says("BadClusterProfile", f"{missing} (the kind is not installed)"), "no kind", 60)
    await manager.client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd(kube.CLUSTER_PROFILES))
    try:
        await manager.until(lambda: says("BadClusterProfile", missing), "no profile", 30)
        profile = {"metadata": {"name": "inventory"}, "spec": {}}
        kind = {"apiVersion": kube.CLUSTER_PROFILES.api_version, "kind": kube.CLUSTER_PROFILES.kind}

        async def create() -> bool:
            try:
                await manager.client.create(kube.CLUSTER_PROFILES, names.KUEUE_NAMESPACE, {**kind, **profile})
            except NotFound:  # the kind is not served yet
                return False
            return True

        await manager.until(create, "the profile is created", 30)
        await manager.until(lambda: says("BadClusterProfile", "no matching cluster accessor"), "no provider", 30)
        status = {"accessProviders": [{"name": "cloud", "cluster": cluster["cluster"]}]}
        await manager.client.patch(
            kube.CLUSTER_PROFILES, names.KUEUE_NAMESPACE, "inventory", {"status": status}, subresource="status"
        )
        await manager.until(lambda: says("ClientConnectionFailed", "exit status 1"), "the program fails", 30)
        mood.write_text("well")
        await manager.until(lambda: says("Active", "Connected"), "it is connected", 60)
        arguments, info = json.loads(received.read_text())
        assert arguments == ["get"] and info["spec"]["cluster"]["server"] == cluster["cluster"]["server"]
        await manager.create(job("train", "lq", runtime="4s"))
        assert await clusters.runs_in("train") == FIRST
        await manager.finished("train")
        await clusters.nothing_left(FIRST)
        await manager.client.delete(kube.CLUSTER_PROFILES, names.KUEUE_NAMESPACE, "inventory")
        await manager.until(lambda: says("BadClusterProfile", missing), "the profile is gone", 30)
    finally:
        name = f"{kube.CLUSTER_PROFILES.plural}.{kube.CLUSTER_PROFILES.group}"
        await manager.client.delete(kube.CUSTOM_RESOURCE_DEFINITIONS, None, name)
        await manager.client.delete(kube.MULTI_KUEUE_CLUSTERS, None, FIRST)  # other tests name its kubeconfig


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
