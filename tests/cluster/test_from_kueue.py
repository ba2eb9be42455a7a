"""`gangline admin doctor --from-kueue` on a cluster with objects shaped as Kueue's: what would block, change and stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.cluster.harness import Api, cluster_queue, connect, flavor, job, local_queue
from tests.controlplane import require_control_plane

from gangline.api import names
from gangline.api.schema import crd_install
from gangline.console.cli import main
from gangline.console.doctor import kueue_names
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.install.inventory import DEPLOYMENTS
from gangline.install.kinds import install_kinds
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
TUNINGS = Resource("example.com", "v1", "tunings", kind="Tuning")
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@pytest.fixture(scope="module")
def plane() -> Iterator[Path]:
    """With Kueue's kinds, and neither Gangline's own nor its processes."""
    require_control_plane()
    crds = [crd for crd in crd_install.crds() if crd["spec"]["group"] == names.GROUP]

    async def prepare(path: Path) -> None:
        async with connect(path) as api:
            await install_kinds(api.client, [*crds, _open_crd(TUNINGS)])
            await _namespace(api, kueue_names.NAMESPACE)

    with LocalControlPlane(ControlPlaneOptions(gogc=400)) as control_plane:
        asyncio.run(prepare(control_plane.kubeconfig))
        yield control_plane.kubeconfig


@pytest.fixture
async def api(plane: Path) -> AsyncIterator[Api]:
    async with connect(plane) as connected:
        yield connected


async def _namespace(api: Api, name: str) -> None:
    with suppress(Conflict):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.client.create(kube.NAMESPACES, None, body)


def _open_crd(resource: Resource) -> Json:
    """Of a kind whose objects may hold anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    kinds = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {**kinds, "listKind": f"{resource.kind}List"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _manager(image: str, *arguments: str) -> Json:
    labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    container = {
        "name": "manager",
        "image": image,
        "args": ["--config=/controller_manager_config.yaml", *arguments],
    }
    volume = {"name": "manager-config", "configMap": {"name": kueue_names.CONFIGURATION}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": [volume]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": kueue_names.DEPLOYMENT, "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def run_kueue(api: Api, image: str, *arguments: str) -> None:
    """Its Deployment, whether another test has made one or not."""
    await api.client.patch(
        DEPLOYMENTS,
        kueue_names.NAMESPACE,
        kueue_names.DEPLOYMENT,
        _manager(image, *arguments),
        kind="apply",
        field_manager="test",
        force=True,
    )
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))


async def configure(api: Api, **fields: Any) -> None:
    body = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **fields}
    data = {kueue_names.CONFIGURATION_KEY: yaml.safe_dump(body)}
    meta = {"name": kueue_names.CONFIGURATION, "namespace": kueue_names.NAMESPACE}
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    await api.client.patch(
        kube.CONFIG_MAPS, meta["namespace"], meta["name"], whole, kind="apply", field_manager="test", force=True
    )


async def examine(kubeconfig: Path) -> tuple[int, list[Json]]:
    command = ["admin", "doctor", "--from-kueue", "-o", "json", "--kubeconfig", str(kubeconfig)]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.stdout)["findings"]


def says(findings: list[Json], check: str, verdict: str, *words: str) -> None:
    mine = [row for row in findings if row["check"] == check]
    texts = [row["detail"] + row["advice"] for row in mine if row["verdict"] == verdict]
    assert any(all(word in text for word in words) for text in texts), json.dumps(mine, indent=1)


async def test_a_cluster_that_can_change_over(plane: Path, api: Api) -> None:
    """Kueue runs with a plain configuration; its objects are read, in both versions, and nothing is in the way."""
    await configure(api, waitForPodsReady={"timeout": "5m"}, featureGates={"TASProfileMixed": True})
    await run_kueue(api, "registry.example/kueue/kueue:v0.19.2")
    webhook = {"metadata": {"name": "kueue-mutating-webhook-configuration"}, "webhooks": []}
    await api.client.create(kube.MUTATING_WEBHOOKS, None, webhook)
    holder = {"holderIdentity": "kueue-controller-manager-5c-x_1", "leaseDurationSeconds": 15}
    lease = {"metadata": {"name": names.KUEUE_LEASE}, "spec": holder}
    await api.client.create(kube.LEASES, kueue_names.NAMESPACE, lease)
    old = {**local_queue("old", "cq"), "apiVersion": names.V1BETA1}
    await api.apply(old)
    await api.create(job("train", "lq"))

    status, findings = await examine(plane)
    assert status == 0, json.dumps(findings, indent=1)
    assert [row["verdict"] for row in findings] == sorted((row["verdict"] for row in findings), key=_ORDER.index)
    says(findings, "Kueue", "changes", "kueue:v0.19.2", "--replicas=0")
    says(findings, "lease", "unchanged", "kueue-controller-manager-5c-x_1")
    says(
        findings,
        "webhooks",
        "changes",
        "kubectl delete mutatingwebhookconfiguration/kueue-mutating-webhook-configuration",
    )
    says(findings, "configuration", "unchanged", "is read as it is")
    says(findings, "feature gates", "unchanged", "TASProfileMixed")
    says(findings, "queue objects", "unchanged", "all 4 can be read")
    says(findings, "job kinds", "unchanged", "GPUJob, JAXJob, Job, JobSet")

    text = await asyncio.to_thread(
        CliRunner().invoke, main, ["admin", "doctor", "--from-kueue", "--kubeconfig", str(plane)]
    )
    assert text.exit_code == 0
    assert text.output.index("changes:") < text.output.index("unchanged:")


_ORDER = ["blocks", "changes", "not known", "unchanged"]


async def test_what_is_in_the_way(plane: Path, api: Api) -> None:
    """Kinds, checks and settings that only Kueue acts on: each blocks, with the objects concerned and a step."""
    plugin = {"command": "/plugins/login", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    provider = {"name": "p", "execConfig": plugin}
    await configure(
        api,
        manageJobsWithoutQueueName=True,
        integrations={"externalFrameworks": ["Box.v1.agents.example.com"]},
        resources={"transformations": [{"input": "nvidia.com/mig-1g", "strategy": "Replace"}]},
        visibilityServer={"bindPort": 9443},
        multiKueue={"gcInterval": "1m", "clusterProfile": {"credentialsProviders": [provider]}},
        featureGates={
            "MultiKueueClusterProfile": True,
            "ShortWorkloadNames": True,
            "VisibilityOnDemand": True,
        },
    )
    await run_kueue(api, "kueue:v0.15.1", "--feature-gates=DRA=true", "--kube-api-burst=9")
    check = {"metadata": {"name": "capacity"}, "spec": {"controllerName": MULTIKUEUE}}
    whole = {"apiVersion": names.V1BETA2, "kind": "AdmissionCheck"}
    await api.client.create(kube.ADMISSION_CHECKS, None, {**whole, **check})
    sources = {"a": {"kubeConfig": {"location": "worker-1"}}, "by-profile": {"clusterProfileRef": {"name": "p"}}}
    for name, source in sources.items():
        cluster = {"metadata": {"name": name}, "spec": {"clusterSource": source}}
        head = {"apiVersion": names.V1BETA2, "kind": "MultiKueueCluster"}
        await api.client.create(kube.MULTI_KUEUE_CLUSTERS, None, {**head, **cluster})
    strategy = {"admissionChecks": [{"name": "capacity"}]}
    await api.apply(cluster_queue("checked", 8, admissionChecksStrategy=strategy))
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    head = {"apiVersion": "example.com/v1", "kind": "Tuning"}
    train = {**head, "metadata": {"name": "tune", "labels": labels}, "spec": {}}
    made = await api.client.create(TUNINGS, "default", train)
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Tuning",
        "name": "tune",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    container = {"name": "main", "image": "example.com/tune"}
    pod_set = {"name": "head", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    workload = {"metadata": {"name": "tuning-tune", "ownerReferences": [owner]}, "spec": {"podSets": [pod_set]}}
    head = {"apiVersion": names.V1BETA2, "kind": "Workload"}
    await api.client.create(kube.WORKLOADS, "default", {**head, **workload})
    # of a controller that goes on making Workloads of its own
    meta = {"name": "box", "ownerReferences": [{**owner, "apiVersion": "agents.example.com/v1", "kind": "Box"}]}
    await api.client.create(kube.WORKLOADS, "default", {**head, **workload, "metadata": meta})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone", "labels": {kueue_names.MANAGED: "true"}},
        "spec": {"containers": [container], "schedulingGates": [{"name": kueue_names.ADMISSION_GATE}]},
    }
    await api.client.create(kube.PODS, "default", pod)

    status, findings = await examine(plane)
    assert status == 1
    assert not [finding for finding in findings if "transformations" in str(finding)]
    says(findings, "configuration", "changes", "visibilityServer has no effect")
    says(findings, "configuration", "changes", "this Kueue is 0.15", 'kueueCompatibility: "0.15"')
    says(findings, "feature gates", "changes", "ShortWorkloadNames=true: without effect")
    says(findings, "feature gates", "unchanged", "VisibilityOnDemand: as Gangline does")
    says(findings, "feature gates", "changes", "DRA=true", "under featureGates")
    says(findings, "Kueue", "changes", "--kube-api-burst=9")
    says(findings, "AdmissionChecks", "unchanged", "capacity", MULTIKUEUE)
    says(findings, "MultiKueue", "changes", "worker-1", "gangline admin rbac --cluster-secret worker-1")
    says(findings, "MultiKueue", "changes", "by-profile", "ClusterProfiles", "gangline admin rbac --config FILE")
    says(findings, "MultiKueue", "changes", "/plugins/login", "mount them")
    says(findings, "Workloads", "blocks", "1 Workload of Tuning (default/tuning-tune)")
    assert not [finding for finding in findings if "Box" in str(finding)]
    says(findings, "job kinds", "changes", "1 Pod in queues (default/alone)", "frameworks lists pod")


async def test_a_configuration_that_gangline_refuses(plane: Path, api: Api) -> None:
    await configure(api, fairSharing={"preemptionStrategies": ["Sometimes"]})
    status, findings = await examine(plane)
    assert status == 1
    says(findings, "configuration", "blocks", "fairSharing.preemptionStrategies", "correct the field")
