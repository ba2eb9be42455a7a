"""`gangline admin doctor --cluster` on a real API server, with operator and webhooks as processes: each damage is found."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster.conftest import System, standing
from tests.cluster.harness import Api, cluster_queue, flavor, job, local_queue

import gangline
from gangline.api import names
from gangline.api.read.configuration.manager import KUEUES
from gangline.api.schema.kinds import CONVERTED
from gangline.console.cli import main
from gangline.console.doctor.installation import queues
from gangline.control.answers.api import api_service
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.process.operator_process import ForecastOptions
from gangline.install import rights
from gangline.install.inventory import DEPLOYMENTS
from gangline.install.kinds import install_kinds
from gangline.install.manifests.workloads import CONFIGURATION
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.objects import Stored
from gangline.tls import certificates
from gangline_webhooks.certificate_store import SECRET

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
HOME = names.SYSTEM_NAMESPACE
#: a configuration that Gangline cannot follow everywhere
SETTINGS = """
gangline: {kueueCompatibility: "0.19"}
clientConnection: {qps: 50}
featureGates: {ShortWorkloadNames: true, MultiKueueClusterProfile: true}
integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication, batch/job]}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A control plane of its own: what is broken here would trouble other tests."""
    with standing(tmp_path_factory.mktemp("doctor")) as system:
        yield system


@dataclass
class Report:
    status: int
    findings: list[Json]

    def says(self, check: str, verdict: str, *words: str) -> None:
        """One finding of the check has this verdict and all these words."""
        mine = [row for row in self.findings if row["check"] == check]
        rows = [row["detail"] + row["advice"] for row in mine if row["verdict"] == verdict]
        said = any(all(word in text for word in words) for text in rows)
        assert said, f"no {verdict} of {check!r} with {words}: {json.dumps(mine, indent=1)}"
        assert self.status == (1 if any(row["verdict"] == "failure" for row in self.findings) else 0)


async def examine(kubeconfig: Path) -> Report:
    command = ["admin", "doctor", "--cluster", "-o", "json", "--kubeconfig", str(kubeconfig)]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    answer = json.loads(result.stdout)
    assert answer["ok"] is (result.exit_code == 0)
    return Report(result.exit_code, answer["findings"])


@asynccontextmanager
async def existing(api: Api, resource: kube.Resource, namespace: str | None, body: Json) -> AsyncIterator[Json]:
    """An object within the block."""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    made = await api.client.create(resource, namespace, whole)
    try:
        yield made
    finally:
        await api.client.delete(resource, namespace, body["metadata"]["name"], propagation="Background")


async def namespace(api: Api, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    with suppress(Conflict):
        await api.client.create(kube.NAMESPACES, None, body)


async def test_an_installation_in_order(system: System, api: Api, tmp_path: Path) -> None:
    """Also: what the leader itself says, and that the examination stores nothing."""
    visibility = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator("ordered", leader_election=True, visibility=visibility, forecasts=forecasts).wait_ready()
    amounts = [("nvidia.com/gpu", 4), ("cpu", 8), ("memory", "8Gi")]
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in amounts]
    group = {"coveredResources": [name for name, _ in amounts], "flavors": [{"name": "gpu", "resources": quotas}]}
    await api.apply(flavor(), cluster_queue("cq", 4, resourceGroups=[group]), local_queue("lq", "cq"))
    await api.create(job("train", "lq", runtime="1h"))

    async def available() -> bool:
        found = await api.client.get(api_service.API_SERVICES, None, "v1beta2.visibility.kueue.x-k8s.io")
        return Stored(found).true_condition("Available") is not None

    await api.until(available, "the visibility API is available")

    async def started() -> bool:
        return (await api.get(kube.JOBS, "train"))["spec"]["suspend"] is False

    await api.until(started, "the job runs")
    before = await api.all(kube.RESOURCE_FLAVORS), await api.all(kube.JOBS, "default")
    report = await examine(system.kubeconfig)
    assert {row["verdict"] for row in report.findings} == {"ok"}, json.dumps(report.findings, indent=1)
    report.says("lease", "ok", "held by ordered")
    report.says("leader", "ok", "healthy, ready", "writes wait")
    report.says("operator's rights", "ok", "has all")
    report.says("jobs", "ok", "1 job in queues")
    after = await api.all(kube.RESOURCE_FLAVORS), await api.all(kube.JOBS, "default")
    assert [[row["metadata"]["uid"] for row in rows] for rows in before] == [
        [row["metadata"]["uid"] for row in rows] for rows in after
    ]


async def test_webhooks_that_are_gone_or_not_trusted(system: System, api: Api) -> None:
    """Nobody listens; the serving certificate is another CA's, and old; a CRD is converted by nobody; rules are missing."""
    system.webhooks.stop()
    report = await examine(system.kubeconfig)
    report.says("webhooks answer", "failure", "a ResourceFlavor cannot be created", "connect: connection refused")
    report.says("webhooks answer", "failure", "a Job that names a queue cannot be created", "queued-jobs")

    long_ago = datetime.now(UTC) - timedelta(days=600)
    stranger = certificates.create(certificates.service_names("gangline-webhooks", HOME), long_ago)
    content = {"tls.crt": base64.b64encode(stranger.serving.certificate).decode()}
    held = await api.client.get(kube.SECRETS, HOME, SECRET)
    await api.client.patch(kube.SECRETS, HOME, SECRET, {"data": content})
    queue_crd = "localqueues.kueue.x-k8s.io"
    await api.client.patch(kube.CUSTOM_RESOURCE_DEFINITIONS, None, queue_crd, {"spec": {"conversion": None}})
    live = await api.client.get(kube.MUTATING_WEBHOOKS, None, "gangline")
    first, *rest = live["webhooks"]
    lax = [{**rest[0], "failurePolicy": "Ignore"}, *rest[1:]]
    await api.client.patch(kube.MUTATING_WEBHOOKS, None, "gangline", {"webhooks": lax})
    report = await examine(system.kubeconfig)
    report.says("webhooks' certificates", "failure", "the serving certificate expired on")
    validating = await api.client.get(kube.VALIDATING_WEBHOOKS, None, "gangline")
    trusting = (
        len(rest) + len(validating["webhooks"]) + len(CONVERTED) - 1
    )  # three are named, and one CRD trusts nobody
    said = f"and {trusting - 3} more"
    report.says("webhooks' certificates", "failure", "do not trust the serving certificate", said)
    report.says("conversion", "failure", queue_crd, "is converted by nobody")
    report.says("webhooks registered", "failure", f"lacks {first['name']}")
    report.says("webhooks registered", "warning", rest[0]["name"], "failurePolicy is not Fail")

    await api.client.patch(kube.SECRETS, HOME, SECRET, {"data": {"tls.crt": held["data"]["tls.crt"]}})
    await api.client.delete(kube.VALIDATING_WEBHOOKS, None, "gangline")
    service = {"namespace": HOME, "name": "gangline-webhooks", "path": "/convert"}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    await api.client.patch(kube.CUSTOM_RESOURCE_DEFINITIONS, None, queue_crd, {"spec": {"conversion": conversion}})
    report = await examine(system.kubeconfig)
    report.says("webhooks registered", "failure", "there is no ValidatingWebhookConfiguration")
    report.says("conversion", "failure", f"{HOME}/gangline-webhooks", "there is no such Service")
    ports = [{"port": 443, "protocol": "TCP"}]
    async with existing(
        api, kube.SERVICES, HOME, {"metadata": {"name": "gangline-webhooks"}, "spec": {"ports": ports}}
    ):
        report = await examine(system.kubeconfig)
        report.says("conversion", "failure", f"{HOME}/gangline-webhooks", "no pod behind it is ready")
    system.webhooks.start()  # registers everything again
    report = await examine(system.kubeconfig)
    for check in ("webhooks registered", "webhooks' certificates", "webhooks answer", "conversion"):
        assert {row["verdict"] for row in report.findings if row["check"] == check} == {"ok"}


async def test_a_lease_that_nobody_renews(system: System, api: Api) -> None:
    where, name = KUEUES.namespace, KUEUES.name
    await namespace(api, where)
    now = datetime.now(UTC)

    def spec(holder: str | None, renewed: datetime) -> Json:
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": renewed.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }

    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": spec("gangline-operator-7f-x_1", now - timedelta(minutes=2)),
    }
    with suppress(NotFound):
        await api.client.delete(kube.LEASES, where, name)
    report = await examine(system.kubeconfig)
    report.says("lease", "warning", "no operator with leader election has run here")
    await api.client.create(kube.LEASES, where, body)
    report = await examine(system.kubeconfig)
    report.says(
        "lease", "failure", "was renewed 12", "s ago by gangline-operator-7f-x_1", "pod gangline-operator-7f-x is gone"
    )
    report.says("clocks", "warning", "the clock of the holder", "behind the API server's")
    await api.client.patch(
        kube.LEASES, where, name, {"spec": spec("ahead_1", datetime.now(UTC) + timedelta(minutes=1))}
    )
    report = await examine(system.kubeconfig)
    report.says("clocks", "warning", "ahead of the API server's")
    report.says("lease", "ok", "held by ahead_1")
    await api.client.patch(kube.LEASES, where, name, {"spec": spec(None, now)})
    report = await examine(system.kubeconfig)
    report.says("lease", "failure", "is held by nobody")
    await api.client.delete(kube.LEASES, where, name)


async def test_a_right_that_was_taken_away(system: System, api: Api) -> None:
    cluster_roles = kube.Resource(
        "rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False, kind="ClusterRole"
    )
    role = await api.client.get(cluster_roles, None, rights.OPERATOR.name)
    kept = [rule for rule in role["rules"] if "workloads" not in rule["resources"]]
    await api.client.patch(cluster_roles, None, rights.OPERATOR.name, {"rules": kept})
    report = await examine(system.kubeconfig)
    report.says(
        "operator's rights", "failure", "gangline-operator may not", "workloads.kueue.x-k8s.io", "gangline admin rbac"
    )
    report.says("webhooks' rights", "ok", "has all")
    # somebody who may read roles, and may not ask for the rights of others
    reader = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "roles"], "verbs": ["get"]}
    accounts = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]}
    bindings = kube.Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False, kind="ClusterRoleBinding"
    )
    subject = {"kind": "ServiceAccount", "name": rights.WEBHOOKS.name, "namespace": HOME}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    webhooks_login = system.operators_login.with_name(f"{rights.WEBHOOKS.name}.kubeconfig")
    async with (
        existing(api, cluster_roles, None, {"metadata": {"name": "reader"}, "rules": [reader, accounts]}),
        existing(api, bindings, None, {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": ref}),
    ):

        async def allowed() -> bool:
            report = await examine(webhooks_login)
            return any("ClusterRole gangline-operator does not grant" in row["detail"] for row in report.findings)

        await api.until(allowed, "the roles are compared")
    await api.client.patch(cluster_roles, None, rights.OPERATOR.name, {"rules": role["rules"]})


async def test_somebody_with_few_rights(system: System, api: Api) -> None:
    """What cannot be known is said to be unknown; nothing is guessed, and nothing fails."""
    report = await examine(system.operators_login.with_name(f"{rights.WEBHOOKS.name}.kubeconfig"))
    assert report.status == 0, json.dumps(report.findings, indent=1)
    report.says("your rights", "not known", "you may not")
    for check in ("lease", "processes", "Kueue's controller", "operator's rights", "Workloads", "webhooks answer"):
        assert [row["verdict"] for row in report.findings if row["check"] == check][-1] == "not known", check
    report.says("Kubernetes", "ok", "are supported")


async def test_kinds_of_another_version(system: System, api: Api) -> None:
    crds = kube.CUSTOM_RESOURCE_DEFINITIONS
    gpu_jobs = await api.client.get(crds, None, "gpujobs.gangline.io")
    version = gpu_jobs["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    before = spec["properties"].pop("progress")
    spec["properties"]["template"]["x-kubernetes-preserve-unknown-fields"] = True
    await api.client.patch(crds, None, "gpujobs.gangline.io", {"spec": {"versions": [version]}})
    policies = await api.client.get(crds, None, "queuepolicies.gangline.io")
    await api.client.delete(crds, None, "queuepolicies.gangline.io")
    assert before
    report = await examine(system.kubeconfig)
    report.says(
        "kinds",
        "warning",
        "gpujobs.gangline.io v1alpha1 differs",
        "spec.progress",
        "gangline admin crds | kubectl apply",
    )
    report.says("kinds", "warning", "queuepolicies.gangline.io is not installed")

    async def gone() -> bool:
        try:
            return (await api.client.get(crds, None, "queuepolicies.gangline.io"))["metadata"]["uid"] != policies[
                "metadata"
            ]["uid"]
        except NotFound:
            return True

    await api.until(gone, "the CRD is gone")
    await install_kinds(api.client)
    report = await examine(system.kubeconfig)
    assert {row["verdict"] for row in report.findings if row["check"] == "kinds"} == {"ok"}


async def test_what_kueue_left_behind(system: System, api: Api) -> None:
    await namespace(api, "kueue-system")
    client_config = {"service": {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/validate-job"}}
    webhook = {
        "name": "vjob.kb.io",
        "clientConfig": client_config,
        "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    name = "kueue-validating-webhook-configuration"
    service = {"namespace": "kueue-system", "name": "kueue-visibility-server"}
    registration = {
        "group": "visibility.kueue.x-k8s.io",
        "version": "v1beta1",
        "service": service,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
    }
    labels = {"control-plane": "controller-manager", "app.kubernetes.io/name": "kueue"}
    with suppress(NotFound):  # of an operator of another test, which was killed
        await api.client.delete(api_service.API_SERVICES, None, "v1beta1.visibility.kueue.x-k8s.io")
    async with (
        existing(api, kube.VALIDATING_WEBHOOKS, None, {"metadata": {"name": name}, "webhooks": [webhook]}),
        existing(
            api,
            api_service.API_SERVICES,
            None,
            {"metadata": {"name": "v1beta1.visibility.kueue.x-k8s.io"}, "spec": registration},
        ),
        existing(api, DEPLOYMENTS, "kueue-system", deployment("kueue-controller-manager", "kueue:v0.19.2", 1, labels)),
    ):

        async def running() -> bool:
            found = await api.client.get(DEPLOYMENTS, "kueue-system", "kueue-controller-manager")
            return bool((found.get("status") or {}).get("replicas"))

        async def refused() -> bool:
            try:
                await api.client.create(kube.JOBS, "default", job("dry", "lq"), query={"dryRun": "All"})
            except ApiError as error:
                return "vjob.kb.io" in error.message
            return False

        await api.until(running, "the Deployment has a pod")
        await api.until(refused, "the API server asks the webhook")
        report = await examine(system.kubeconfig)
        report.says(
            "Kueue's webhooks", "failure", name, "there is no such Service", "no jobs can be created", "kubectl delete"
        )
        report.says("webhooks answer", "failure", "a Job that names a queue cannot be created", "vjob.kb.io")
        report.says("visibility API", "failure", "kueue-system/kueue-visibility-server", "no namespace can be deleted")
        report.says("Kueue's controller", "failure", "Kueue decides about the same Workloads", "--replicas=0")

    container = {"name": "main", "image": "example.com/serve"}
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "held",
            "labels": {"kueue.x-k8s.io/managed": "true"},
            "finalizers": ["kueue.x-k8s.io/managed"],
        },
        "spec": {"containers": [container], "schedulingGates": gates},
    }
    await api.client.create(kube.PODS, "default", pod)
    await api.client.delete(kube.PODS, "default", "held")
    report = await examine(system.kubeconfig)
    report.says("Kueue's finalizers", "failure", "1 pod cannot go", "default/held")
    report.says("Kueue's finalizers", "warning", "wait for a gate that only Kueue removes")
    await api.client.patch(kube.PODS, "default", "held", {"metadata": {"finalizers": None}})


async def test_deployments_that_are_not_as_they_should_be(system: System, api: Api) -> None:
    labels = {"app.kubernetes.io/part-of": "gangline"}
    async with (
        existing(
            api, DEPLOYMENTS, HOME, deployment("gangline-operator", "x:5000/gangline:9.9.9", 2, labels, pinned=True)
        ),
        existing(
            api, DEPLOYMENTS, HOME, deployment("gangline-webhooks", f"gangline:{gangline.__version__}", 1, labels)
        ),
        existing(api, DEPLOYMENTS, HOME, deployment("gangline-idle", "gangline@sha256:00", 0, labels)),
        existing(api, kube.CONFIG_MAPS, HOME, {"metadata": {"name": CONFIGURATION}, "data": {"config.yaml": SETTINGS}}),
    ):

        async def ready() -> bool:
            found = await api.client.list(DEPLOYMENTS, HOME)
            return sum((row.get("status") or {}).get("readyReplicas") or 0 for row in found.items) == 3

        await api.until(ready, "all pods are ready")
        report = await examine(system.kubeconfig)
        report.says("processes", "ok", "gangline-operator: 2 of 2 replicas are ready")
        report.says("processes", "warning", "all pods of gangline-operator run on node")
        report.says("processes", "warning", "gangline-webhooks has one replica")
        report.says("processes", "warning", "gangline-idle is scaled to 0")
        report.says("images", "warning", "this command is", "9.9.9")
        report.says("images", "warning", "different versions run")
        report.says("images", "not known", "has no tag")
        report.says("Pod Security", "warning", f"{HOME} enforces nothing", "enforce=restricted")
        report.says("configuration", "ok", "is read as Kueue 0.19 reads it")
        report.says("configuration", "warning", "without effect: clientConnection")
        report.says("configuration", "warning", "featureGates.ShortWorkloadNames=true has no effect")
        report.says("operator's rights", "failure", "list clusterprofiles", "gangline admin rbac --config FILE")


async def test_queues_and_jobs_that_nobody_looks_after(
    system: System, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "SEEN", 0.0)
    await api.apply(
        flavor(), cluster_queue("cq", 4, flavors=("gpu", "gone")), local_queue("lq", "cq"), local_queue("stray", "no")
    )
    await api.create(job("waits", "lq"))
    await asyncio.sleep(1.1)  # times of creation have whole seconds
    report = await examine(system.kubeconfig)
    report.says("ClusterQueues", "failure", "cq names flavors that do not exist: gone")
    report.says("ClusterQueues", "failure", "nobody has looked at 1 ClusterQueue")
    report.says("LocalQueues", "failure", "default/stray: it leads to ClusterQueue no, which does not exist")
    report.says(
        "jobs", "failure", "1 job in a queue without a Workload", "Job default/waits", "gangline admin operator"
    )
    system.operator("late").wait_ready()

    async def seen() -> bool:
        return await api.workload_of("waits") is not None and "conditions" in (
            await api.get(kube.CLUSTER_QUEUES, "cq")
        ).get("status", {})

    await api.until(seen, "the operator has looked")
    report = await examine(system.kubeconfig)
    report.says("jobs", "ok", "none left alone")
    report.says("leader", "ok", "healthy")


async def test_no_api_server(tmp_path: Path) -> None:
    path = tmp_path / "nobody"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "x",
            }
        )
    )
    result = await asyncio.to_thread(
        CliRunner().invoke, main, ["admin", "doctor", "--cluster", "--kubeconfig", str(path)]
    )
    assert result.exit_code == 1
    assert "the API server does not answer" in result.output


def deployment(name: str, image: str, replicas: int, labels: dict[str, str], *, pinned: bool = False) -> Json:
    """Of pods that run on simulated nodes; `pinned`: all on one."""
    mine = {**labels, "app": name}
    chosen = {"kubernetes.io/hostname": "gpu-0"} if pinned else {}
    template = {
        "metadata": {"labels": mine},
        "spec": {"containers": [{"name": "main", "image": image}], "nodeSelector": chosen},
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": mine}, "template": template},
    }
