"""`gangline admin install`, `upgrade` and `uninstall` on a real control plane, whose simulated nodes run the pods."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.controlplane import Kubectl, eventually, require_control_plane
from tests.install.choices import CHOICES

from gangline.api.schema.kinds import KINDS
from gangline.console.cli import main
from gangline.devcluster.building import build
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.nodes import EqualNodes, create_pools_in
from gangline.install.manifests import objects, values

pytestmark = pytest.mark.cluster
KINDS_OF_OTHERS = Path(__file__).parent / "kinds-of-others.yaml"
KIND = "customresourcedefinition.apiextensions.k8s.io"
OURS = ("namespace", "crd", "clusterrole", "clusterrolebinding", "validatingwebhookconfiguration", "apiservice")


@dataclass(frozen=True)
class Cluster:
    kubectl: Kubectl

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gangline.console.cli", *arguments]
        where = ["--kubeconfig", str(self.kubectl.kubeconfig)]
        return subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def gangline(self, *arguments: str, status: int = 0) -> str:
        """The output of a command, in this process: to import all of it anew takes longer than most commands."""
        outcome = CliRunner().invoke(main, [*arguments, "--kubeconfig", str(self.kubectl.kubeconfig)])
        assert outcome.exit_code == status, f"{outcome.output}{outcome.exception!r}"
        return outcome.output

    def killed_after(self, lines: int, *arguments: str) -> None:
        """Run a command and kill it (SIGKILL) once it has done so many steps."""
        process = self.start(*arguments)
        assert process.stdout is not None
        for line in process.stdout:
            lines -= line.startswith("✓")
            if not lines:
                break
        process.kill()
        process.wait(10)

    def left(self) -> list[str]:
        """Objects of the cluster, by whose names they are ours or Kueue's."""
        listed = self.kubectl("get", ",".join(OURS), "-o", "name").split()
        listed += self.kubectl("get", "role,rolebinding", "-n", "kube-system", "-o", "name").split()
        listed = [name for name in listed if "gangline" in name or "kueue" in name]
        # an API server has an APIService of its own for each group of CRDs
        return [name for name in listed if not name.startswith("apiservice") or "visibility" in name]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_control_plane()
    with LocalControlPlane(ControlPlaneOptions(gogc=400)) as plane:
        create_pools_in(plane.kubeconfig, [EqualNodes("node", 3, {"nvidia.com/gpu": 8})])
        yield Cluster(Kubectl(build.kubectl(), plane.kubeconfig))


@pytest.fixture
def installed(clean: Cluster) -> Cluster:
    clean.gangline("admin", "install")
    return clean


@pytest.fixture
def clean(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    # the kinds stay: the API server needs most of a test's time to remove them and to compile them anew
    cluster.gangline("admin", "uninstall", "-y")
    assert eventually(lambda: {name.partition("/")[0] for name in cluster.left()} <= {KIND}), cluster.left()


def test_what_is_installed_stays_as_it_is(installed: Cluster) -> None:
    before = installed.kubectl.json(
        "get", "deploy,cm,role,clusterrole,crd", "-A", "-l", "app.kubernetes.io/part-of=gangline"
    )
    assert "Nothing changes." in installed.gangline("admin", "install")
    after = installed.kubectl.json(
        "get", "deploy,cm,role,clusterrole,crd", "-A", "-l", "app.kubernetes.io/part-of=gangline"
    )
    assert versions(before) == versions(after)
    ready = {each["metadata"]["name"]: each["status"]["readyReplicas"] for each in deployments(installed)}
    assert ready == {"gangline-operator": 2, "gangline-webhooks": 2}


def versions(listed: Any) -> dict[str, str]:
    """What is written is written anew only if it changes."""
    return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in listed["items"]}


def deployments(cluster: Cluster) -> list[Any]:
    return cluster.kubectl.json("get", "deployments", "-n", "gangline-system")["items"]


def test_an_upgrade_shows_and_makes_the_difference_and_removes_what_is_gone(installed: Cluster) -> None:
    settings = ("--set", "operator.replicas=3", "--set", "operator.notifySecrets=[chat]")
    shown = installed.gangline("admin", "upgrade", *settings, "--dry-run")
    assert "+ Role: gangline-operator-secrets" in shown and "spec.replicas: 2 → 3" in shown
    assert deployments(installed)[0]["spec"]["replicas"] == 2, "nothing was done"
    installed.gangline("admin", "upgrade", *settings)
    roles = ("get", "role,rolebinding", "-n", "gangline-system", "-o", "name")
    assert "role.rbac.authorization.k8s.io/gangline-operator-secrets" in installed.kubectl(*roles)
    shown = installed.gangline("admin", "upgrade", "--set", "history.volume.enabled=true", "--dry-run")
    assert "spec.strategy.type: RollingUpdate → Recreate" in shown and "spec.replicas: 3 → 1" in shown
    output = installed.gangline("admin", "upgrade", "--image", "example.org/mirror/gangline:0.0.9")
    assert "- Role gangline-system/gangline-operator-secrets" in output
    assert "gangline-operator-secrets" not in installed.kubectl(*roles)
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in deployments(installed)}
    assert images == {"example.org/mirror/gangline:0.0.9"}


def test_whatever_is_killed_is_finished_by_the_next_run(clean: Cluster) -> None:
    for steps in (2, 30):
        clean.killed_after(steps, "admin", "install")
    clean.gangline("admin", "install")
    assert "Nothing changes." in clean.gangline("admin", "install", "--dry-run")
    clean.killed_after(2, "admin", "uninstall", "-y")
    clean.gangline("admin", "uninstall", "-y")
    assert "not installed" in clean.gangline("admin", "uninstall", "-y")
    assert {name.partition("/")[0] for name in clean.left()} == {KIND}
    clean.gangline("admin", "install")
    clean.killed_after(3, "admin", "uninstall", "--all", "-y")
    clean.gangline("admin", "uninstall", "--all", "-y")
    assert clean.left() == []


FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "gpu"}}
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "team", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
}


def test_queues_stay_and_can_be_read_when_gangline_goes_and_go_with_their_kinds(installed: Cluster) -> None:
    """With a conversion by webhooks that nobody serves any more, and finalizers that nobody takes off."""
    kubectl = installed.kubectl
    kubectl.apply(FLAVOR, QUEUE)
    webhook = {"service": {"name": "gangline-webhooks", "namespace": "gangline-system", "path": "/convert"}}
    conversion = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": webhook}}
    crd = ("crd", "clusterqueues.kueue.x-k8s.io")
    kubectl("patch", *crd, "--type=merge", "-p", json.dumps({"spec": {"conversion": conversion}}))
    old = ("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "team")
    assert eventually(lambda: kubectl.run(*old).returncode != 0), "nobody converts"
    output = installed.gangline("admin", "uninstall", "-y")
    assert "1 clusterqueues.kueue.x-k8s.io" in output and "stay" in output
    assert eventually(lambda: kubectl.run(*old).returncode == 0), "read again"
    installed.gangline("admin", "install")
    output = installed.gangline("admin", "uninstall", "--all", "-y")
    assert "1 clusterqueues.kueue.x-k8s.io" in output
    assert not [kind.name for kind in KINDS if kind.name in kubectl("get", "crd")]


def test_what_others_made_is_not_removed(cluster: Cluster) -> None:
    kubectl = cluster.kubectl
    kubectl("create", "namespace", "kueue-system")
    kubectl("create", "clusterrole", "kueue-batch-user-role", "--verb=get", "--resource=pods")
    kubectl("create", "deployment", "kueue-controller-manager", "--image=kueue", "-n", "kueue-system")
    refused = cluster.gangline("admin", "install", "--set", "kueue.alias=true", status=1)
    assert "Deployment kueue-system/kueue-controller-manager is there already and not Gangline's" in refused
    output = cluster.gangline("admin", "install")
    assert "≈ ClusterRole kueue-batch-user-role (not of this installation's making)" in output
    assert "Namespace kueue-system" not in output
    assert "Kueue is in kueue-system" in cluster.gangline("admin", "uninstall", "--all", "-y", status=1)
    cluster.gangline("admin", "uninstall", "-y")
    (role,) = (name for name in cluster.left() if name.startswith("clusterrole."))
    assert "part-of" not in json.dumps(kubectl.json("get", role)["metadata"]["labels"])
    kubectl("delete", "namespace/kueue-system", role)


def test_what_the_cluster_lacks_is_said_before_anything_is_done(cluster: Cluster) -> None:
    before = cluster.left()
    output = cluster.gangline("admin", "install", "--set", "monitoring.rules.enabled=true", status=1)
    assert "the cluster has no Prometheus operator" in output
    assert cluster.left() == before
    assert "not installed" in cluster.gangline("admin", "upgrade", status=1)


def test_why_a_pod_is_not_ready_is_said(installed: Cluster) -> None:
    selector = ("--set", "operator.nodeSelector={pool: none}")
    output = installed.gangline("admin", "upgrade", *selector, "--timeout", "5s", status=1)
    why = output.partition("not ready after 5 s:\n")[2]
    assert "gangline-operator:" in why and "didn't match Pod's node affinity/selector" in why
    installed.kubectl("create", "quota", "none", "--hard=pods=0", "-n", "gangline-system")
    output = installed.gangline("admin", "upgrade", "--set", "operator.replicas=4", "--timeout", "5s", status=1)
    assert "exceeded quota" in output


def test_helm_installs_and_upgrades_and_leaves_the_kinds(clean: Cluster, helm: Path) -> None:
    """Its hook before the removal is a Job, which simulated nodes don't run: tests/real has it."""
    kubectl = clean.kubectl
    clean.gangline("admin", "uninstall", "--all", "-y")  # Helm takes no kinds that another installation left

    def run(*arguments: str) -> str:
        where = ("--kubeconfig", str(kubectl.kubeconfig), "--namespace", "gangline-system")
        outcome = subprocess.run([helm, *arguments, *where], capture_output=True, text=True, check=False, timeout=120)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return outcome.stdout

    chart = str(Path(__file__).parents[2] / "charts" / "gangline")
    output = run("install", "gangline", chart, "--create-namespace", "--wait", "--timeout", "60s")
    assert "rollout status deployment/gangline-operator" in output
    assert "has an installation by Helm" in clean.gangline("admin", "install", status=1)
    assert "has an installation by Helm" in clean.gangline("admin", "uninstall", "-y", status=1)
    run("upgrade", "gangline", chart, "--set", "operator.replicas=3", "--wait", "--timeout", "60s")
    assert kubectl.json("get", "deployment/gangline-operator", "-n", "gangline-system")["status"]["readyReplicas"] == 3
    run("uninstall", "gangline", "--no-hooks", "--wait", "--timeout", "60s")
    kubectl("delete", "namespace", "gangline-system", "kueue-system")  # Helm made them, and leaves them
    assert {kind.name for kind in KINDS} <= {name.rpartition("/")[2] for name in clean.left()}


def test_kustomize_installs_what_gangline_then_upgrades(clean: Cluster) -> None:
    config = str(Path(__file__).parents[2] / "config" / "default")
    clean.kubectl("apply", "--server-side", "-k", config)
    assert "Nothing changes" not in clean.gangline("admin", "install"), "who manages the objects"
    assert "Nothing changes" in clean.gangline("admin", "install")


# --- the API server's own schemas, and Pod Security -------------------------------------------------------------------


@pytest.fixture(scope="module")
def restricted(cluster: Cluster) -> Iterator[Kubectl]:
    """With the namespaces of an installation, and nothing in them, and the kinds of others."""
    kubectl = cluster.kubectl
    made = objects.plain(values.defaults())
    kubectl.apply(*(body for body in made if body["kind"] == "Namespace"))
    kubectl("apply", "--server-side", "-f", str(KINDS_OF_OTHERS))
    names = [body["metadata"]["name"] for body in yaml.safe_load_all(KINDS_OF_OTHERS.read_text())]
    kubectl.wait_established(*(f"crd/{name}" for name in names))
    yield kubectl
    kubectl("delete", "-f", str(KINDS_OF_OTHERS))
    cluster.gangline("admin", "uninstall", "--all", "-y")


@pytest.mark.parametrize("chosen", CHOICES)
def test_the_api_server_takes_every_object_without_a_warning(restricted: Kubectl, chosen: str) -> None:
    """With strict field validation, and in a namespace that enforces and warns of the restricted Pod Security Standard."""
    made = objects.plain(values.chosen([CHOICES[chosen]]))
    stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    dry = ("apply", "--server-side", "--force-conflicts", "--field-manager=test", "--dry-run=server", "-f", "-")
    output = restricted(*dry, "--validate=strict", "--warnings-as-errors", stdin=stdin)
    assert output.count("serverside-applied") == len(made)


def test_pods_without_these_settings_would_be_warned_of(restricted: Kubectl) -> None:
    one, *_ = [body for body in objects.plain(values.defaults()) if body["kind"] == "Deployment"]
    del one["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    dry = ("apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", "-")
    assert "would violate PodSecurity" in restricted.run(*dry, stdin=json.dumps(one)).stderr
