"""The webhooks on a real API server: what users see when they apply, and what happens when the webhooks are gone."""

from __future__ import annotations

import copy
import json
import re
import signal
import uuid
from collections.abc import Iterator

import pytest
from tests.builders.written import RECIPE, Json, cluster_queue, gpujob, job, recipe, template, workload
from tests.controlplane import Kubectl, eventually
from tests.webhooks.process import Webhooks, install_crds, running

from gangline.api import names
from gangline.api.admission import AdmissionFacts, validate
from gangline.api.schema import crd_install
from gangline.api.schema.kinds import CONVERTED
from gangline.devcluster.building import build
from gangline.devcluster.local import LocalControlPlane

pytestmark = pytest.mark.cluster

QUEUE = names.QUEUE_NAME


@pytest.fixture(scope="module")
def kubectl(plane: LocalControlPlane) -> Kubectl:
    kubectl = Kubectl(build.kubectl(), plane.kubeconfig)
    install_crds(kubectl)
    return kubectl


@pytest.fixture(scope="module")
def webhooks(
    plane: LocalControlPlane, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Webhooks]:
    with running(plane.kubeconfig, tmp_path_factory.mktemp("webhooks")) as webhooks:
        yield webhooks


@pytest.fixture
def namespace(kubectl: Kubectl, webhooks: Webhooks) -> str:
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    return name


def placed(obj: Json, namespace: str, name: str = "") -> Json:
    obj = copy.deepcopy(obj)
    obj["metadata"]["namespace"] = namespace
    if name:
        obj["metadata"]["name"] = name
    return obj


def create(kubectl: Kubectl, obj: Json) -> Json:
    return json.loads(kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(obj)))


def refusal(kubectl: Kubectl, obj: Json, verb: str = "create") -> str:
    outcome = kubectl.run(verb, "-f", "-", stdin=json.dumps(obj))
    assert outcome.returncode != 0, outcome.stdout
    return outcome.stderr


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_job_that_names_a_queue_is_suspended_at_creation(kubectl: Kubectl, namespace: str, kind: str):
    stored = create(kubectl, placed(job(**{kind: {QUEUE: "main"}}), namespace))
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["labels"][QUEUE] == "main"


def test_a_gpujob_that_names_a_queue_is_suspended_at_creation(kubectl: Kubectl, namespace: str):
    stored = create(kubectl, placed(gpujob(queue="main"), namespace))
    assert stored["spec"]["suspend"] is True
    assert create(kubectl, placed(gpujob(queue=""), namespace, "free"))["spec"]["suspend"] is False


@pytest.fixture(scope="module")
def jobsets(kubectl: Kubectl, webhooks: Webhooks) -> None:
    """The kind JobSet, as far as webhooks see it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "jobsets.jobset.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": "jobset.x-k8s.io",
            "scope": "Namespaced",
            "names": {"plural": "jobsets", "singular": "jobset", "kind": "JobSet"},
            "versions": [version],
        },
    }
    kubectl.apply(crd)
    kubectl.wait_established("crd", "jobsets.jobset.x-k8s.io")


@pytest.mark.usefixtures("jobsets")
def test_a_jobset_that_names_a_queue_is_suspended_and_checked(kubectl: Kubectl, namespace: str):
    jobset: Json = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "low-jax", "namespace": namespace, "annotations": {QUEUE: "default-queue"}},
        "spec": {
            "replicatedJobs": [
                {"name": "slice", "replicas": 2, "template": {"spec": {"parallelism": 4, "template": template()}}}
            ]
        },
    }
    assert eventually(lambda: kubectl.run("get", "jobsets", "-n", namespace).returncode == 0)
    stored = create(kubectl, jobset)
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["labels"][QUEUE] == "default-queue"
    stored["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["overhead"] = {"cpu": "-1"}
    path = "spec.replicatedJobs[0].template.spec.template.spec.overhead[cpu]"
    assert f"{path}: Invalid value" in refusal(kubectl, stored, "replace")
    kubectl("patch", "jobset", "low-jax", "-n", namespace, "--type=merge", "-p", '{"spec":{"suspend":false}}')


def test_a_job_without_a_queue_is_left_alone(kubectl: Kubectl, namespace: str):
    stored = create(kubectl, placed(job(), namespace))
    assert not stored["spec"]["suspend"]
    assert QUEUE not in stored["metadata"].get("labels", {})


def test_a_child_of_a_job_that_waits_never_runs(kubectl: Kubectl, namespace: str):
    """Anybody can write an owner reference: such a Job names no queue, and ran until the operator had noticed it."""
    waiting, at_once = (
        create(kubectl, placed(gpujob(queue=queue), namespace, name)) for queue, name in (("main", "w"), ("", "free"))
    )

    def child_of(owner: Json) -> Json:
        child = placed(job(), namespace, f"{owner['metadata']['name']}-worker")
        meta = {part: owner["metadata"][part] for part in ("name", "uid")}
        reference = {"apiVersion": owner["apiVersion"], "kind": "GPUJob", "controller": True, **meta}
        child["metadata"]["ownerReferences"] = [reference]
        child["spec"] |= {"parallelism": 1, "completions": 1}
        return child

    patch = ("--type=merge", "-o", "json", "-p", '{"spec":{"suspend":false}}')
    assert create(kubectl, child_of(waiting))["spec"]["suspend"] is True
    assert json.loads(kubectl("patch", "job", "w-worker", "-n", namespace, *patch))["spec"]["suspend"] is True
    kubectl("patch", "gpujob", "w", "-n", namespace, *patch)
    again = json.loads(kubectl("patch", "job", "w-worker", "-n", namespace, *patch))
    assert again["spec"]["suspend"] is True, "its author has unsuspended the GPUJob, and nobody has admitted it"
    assert create(kubectl, child_of(at_once))["spec"]["suspend"] is False, "its owner waits for nothing"


def test_the_default_queue_and_priority_of_a_namespace(kubectl: Kubectl, namespace: str):
    queue = {
        "apiVersion": names.V1BETA2,
        "kind": "LocalQueue",
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {"clusterQueue": "team"},
    }
    priority = {
        "apiVersion": names.V1BETA2,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "default"},
        "value": 100,
    }
    kubectl.apply(queue, priority)
    assert eventually(lambda: _is_defaulted(kubectl, namespace))


def _is_defaulted(kubectl: Kubectl, namespace: str) -> bool:
    """A no is remembered for a second: jobs of other tests may have asked before."""
    stored = create(kubectl, placed(job(), namespace, f"job-{uuid.uuid4().hex[:8]}"))
    wanted = {QUEUE: "default", names.PRIORITY_CLASS: "default"}
    return stored["spec"]["suspend"] and wanted.items() <= stored["metadata"]["labels"].items()


def test_the_recipe_applies_with_a_warning_and_reads_in_both_versions(kubectl: Kubectl, webhooks: Webhooks):
    manifest = json.dumps(recipe())
    outcome = kubectl.run("apply", "-f", "-", stdin=manifest)
    assert outcome.returncode == 0, outcome.stderr
    assert "Warning: legacy ClusterQueue form completed: coveredResources taken from the flavors" in outcome.stderr
    old = kubectl.json("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "tpu-training-cq")
    new = kubectl.json("get", "clusterqueues.v1beta2.kueue.x-k8s.io", "tpu-training-cq")
    assert old["spec"]["preemption"]["reclaimOutOfCohort"] == {"enable": True, "reclaimMoreThanNominalQuota": False}
    assert "reclaimOutOfCohort" not in new["spec"]["preemption"]
    for queue in (old, new):
        assert queue["spec"]["resourceGroups"][0]["coveredResources"] == ["google.com/tpu"]
        assert queue["spec"]["namespaceSelector"] == {}
        assert queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"
        assert names.IN_USE_FINALIZER in queue["metadata"]["finalizers"]
    kubectl("apply", "-f", "-", stdin=manifest)
    again = kubectl.json("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "tpu-training-cq")
    assert again["metadata"]["generation"] == old["metadata"]["generation"]


RECIPE_FLAVOR = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata:
  name: tpu-v6e-slice
spec:
  nodeLabels:
    cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice
"""
RECIPE_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata:
  name: default-queue
  namespace: default
spec:
  clusterQueue: tpu-training-cq
"""


@pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts")])
def test_the_whole_recipe_applies_verbatim(kubectl: Kubectl, webhooks: Webhooks, how: tuple[str, ...]):
    manifest = "---".join((RECIPE_FLAVOR, RECIPE, RECIPE_QUEUE))
    for _ in range(2):
        kubectl("apply", *how, "-f", "-", stdin=manifest)
    flavor = kubectl.json("get", "resourceflavor", "tpu-v6e-slice")
    assert names.IN_USE_FINALIZER in flavor["metadata"]["finalizers"]
    queue = kubectl.json("get", "clusterqueue", "tpu-training-cq")
    assert queue["spec"]["resourceGroups"][0]["coveredResources"] == ["google.com/tpu"]
    assert queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"
    assert kubectl.json("get", "localqueue", "default-queue")["spec"]["clusterQueue"] == "tpu-training-cq"


def test_installing_the_kinds_again_leaves_their_conversion(kubectl: Kubectl, webhooks: Webhooks):
    manifest = {"apiVersion": "v1", "kind": "List", "items": crd_install.crds()}
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    crds = kubectl.json("get", "crd")["items"]
    converted = {crd["metadata"]["name"] for crd in crds if crd["spec"]["conversion"]["strategy"] == "Webhook"}
    assert converted == {kind.name for kind in CONVERTED}


def test_nobody_keeps_account_of_the_fields_of_a_workload_unless_it_is_applied(kubectl: Kubectl, namespace: str):
    if "mutatingadmissionpolicies" not in kubectl("get", "--raw", "/apis/admissionregistration.k8s.io/v1"):
        pytest.skip("Kubernetes has MutatingAdmissionPolicy from 1.36 on")
    made = 0

    def untracked() -> bool:
        nonlocal made
        made += 1
        create(kubectl, placed(workload(), namespace, f"w{made}"))
        return "managedFields" not in seen(f"w{made}")["metadata"]

    def seen(name: str) -> Json:
        return kubectl.json("get", "workload", name, "-n", namespace, "--show-managed-fields")

    assert eventually(untracked, 60)
    patch = json.dumps({"spec": {"priority": 7}})
    kubectl("patch", "workload", f"w{made}", "-n", namespace, "--type=merge", "-p", patch)
    found = seen(f"w{made}")
    assert found["spec"]["priority"] == 7
    assert "managedFields" not in found["metadata"]

    applied = json.dumps(placed(workload(), namespace, "applied"))
    kubectl("apply", "--server-side", "-f", "-", stdin=applied)
    assert [entry["operation"] for entry in seen("applied")["metadata"]["managedFields"]] == ["Apply"]


def test_conversion_keeps_what_is_called_otherwise(kubectl: Kubectl, webhooks: Webhooks):
    old = cluster_queue("v1beta1", cohort="all", admissionChecks=["provision"])
    old["metadata"]["name"] = "converted"
    create(kubectl, old)
    new = kubectl.json("get", "clusterqueues.v1beta2.kueue.x-k8s.io", "converted")
    assert new["spec"]["cohortName"] == "all"
    assert "cohort" not in new["spec"]
    again = kubectl.json("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "converted")
    assert again["spec"]["cohort"] == "all"
    assert again["spec"]["admissionChecks"] == ["provision"]


def test_what_one_tenant_writes_spoils_no_list_of_another_version(kubectl: Kubectl, namespace: str):
    """A note that no answer can say, and annotations that leave no room for one."""
    queue = placed(
        {"apiVersion": names.V1BETA2, "kind": "LocalQueue", "metadata": {}, "spec": {"clusterQueue": "a"}},
        namespace,
        "scribbled",
    )
    queue["metadata"]["annotations"] = {names.V1BETA1_FIELDS: '{"flavors": [{"name": "\\ud800"}]}'}
    full = placed(workload(preemptionGates=[{"name": "example.com/gate"}]), namespace, "full")
    full["metadata"]["annotations"] = {"team": "x" * (256 * 1024 - 40)}
    for kind, obj in (("workloads", full), ("localqueues", queue)):
        create(kubectl, obj)
        listed = json.loads(kubectl("get", f"{kind}.v1beta1.kueue.x-k8s.io", "-A", "-o", "json"))
        assert obj["metadata"]["name"] in [item["metadata"]["name"] for item in listed["items"]]


def test_wrong_input_is_rejected_by_field(kubectl: Kubectl, namespace: str):
    queue = cluster_queue(cohortName="all")
    queue["metadata"]["name"] = "wrong"
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "-5"
    said = refusal(kubectl, queue)
    assert 'spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: "-5"' in said
    assert "must be greater than or equal to 0" in said

    said = refusal(kubectl, placed(job(queue="main", annotations={names.MIN_PARALLELISM: "0"}), namespace))
    assert "min-parallelism]: Invalid value: 0: should be between 0 and" in said

    said = refusal(kubectl, placed(job(queue="main", labels={names.MAX_EXEC_TIME: "soon"}), namespace))
    assert f"metadata.labels[{names.MAX_EXEC_TIME}]" in said

    two = [{"name": "a", "template": template(), "minReplicas": 1}, {"name": "b", "template": {"spec": {}}}]
    said = refusal(kubectl, placed(gpujob(roles=two), namespace))
    assert "spec.roles[1].template.spec.containers: Required value" in said


def test_changes_are_checked_against_what_was(kubectl: Kubectl, namespace: str):
    stored = create(kubectl, placed(job(queue="main"), namespace))
    kubectl("patch", "job", "train", "-n", namespace, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    for change in (f"{QUEUE}=other", f"{QUEUE}-"):  # another queue, none
        said = kubectl.run("label", "job", "train", "-n", namespace, "--overwrite", change).stderr
        assert f"metadata.labels[{QUEUE}]: Invalid value: " in said
        assert "field is immutable" in said
    assert stored["spec"]["suspend"] is True


def test_a_queue_given_later_by_annotation_is_not_missed(kubectl: Kubectl, namespace: str):
    create(kubectl, placed(job(suspend=True), namespace))
    kubectl("annotate", "job", "train", "-n", namespace, f"{QUEUE}=main")
    assert kubectl.json("get", "job", "train", "-n", namespace)["metadata"]["labels"][QUEUE] == "main"


def test_a_running_job_that_grows_is_held_before_any_pod_of_it_exists(kubectl: Kubectl, namespace: str):
    made = job(queue="main")
    made["spec"] |= {"parallelism": 1, "completions": 100}
    create(kubectl, placed(made, namespace))
    kubectl("patch", "job", "train", "-n", namespace, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    grown = kubectl.run("patch", "job", "train", "-n", namespace, "--type=merge", "-p", '{"spec":{"parallelism":40}}')
    assert "more pods than it was admitted with" in grown.stderr
    assert kubectl.json("get", "job", "train", "-n", namespace)["spec"]["suspend"] is True


def _calls(kubectl: Kubectl) -> dict[str, int]:
    """How often the API server has called each of our webhooks; it counts them itself."""
    counts: dict[str, int] = {}
    for line in kubectl("get", "--raw", "/metrics").splitlines():
        found = re.match(r'apiserver_admission_webhook_request_total\{.*name="([^"]*gangline\.io)".* (\d+)$', line)
        if found:
            counts[found[1]] = counts.get(found[1], 0) + int(found[2])
    return counts


def test_the_frequent_writes_do_not_pass_through_us(kubectl: Kubectl, namespace: str):
    create(kubectl, placed(job(queue="main", labels={names.PRIORITY_CLASS: "x"}), namespace))
    create(kubectl, placed(gpujob(queue="main"), namespace))
    before = _calls(kubectl)
    assert before["queued-jobs.mutating.gangline.io"] > 0

    # start with an admission in the template, stop in steps, restore
    start = {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": {"gpu": "h100"}}}}}
    stop = {"metadata": {"annotations": {names.STOPPING: "true"}}, "spec": {"suspend": True}}
    status = {"status": {"startTime": None}}
    restore = {
        "metadata": {"annotations": {names.STOPPING: None}},
        "spec": {"template": {"spec": {"nodeSelector": None}}},
    }
    controller = ("wait", "job/train", "-n", namespace, "--timeout=30s")  # it writes the start time, too: not after us
    for body, more, seen in (
        (start, (), "Suspended=False"),
        (stop, (), "Suspended=True"),
        (status, ("--subresource=status",), "Suspended=True"),
        (restore, (), "Suspended=True"),
    ):
        kubectl("patch", "job", "train", "-n", namespace, "--type=merge", "-p", json.dumps(body), *more)
        kubectl(*controller, f"--for=condition={seen}")
    kubectl("patch", "gpujob", "llama", "-n", namespace, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    owner = kubectl.json("get", "job", "train", "-n", namespace)["metadata"]
    owned = placed(workload(), namespace)
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner["uid"], "controller": True}
    ]
    create(kubectl, owned)
    create(kubectl, placed(workload(), namespace, "by-hand"))
    for name in ("job-train-12345", "by-hand"):
        kubectl("patch", "workload", name, "-n", namespace, "--type=merge", "-p", '{"spec":{"priority":7}}')
        condition = {
            "type": "QuotaReserved",
            "status": "False",
            "reason": "WaitingForQuota",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        body = json.dumps({"status": {"conditions": [condition]}})
        kubectl("patch", "workload", name, "-n", namespace, "--type=merge", "--subresource=status", "-p", body)
    for status in LIFE:
        body = json.dumps({"status": status})
        kubectl("patch", "workload", "by-hand", "-n", namespace, "--type=merge", "--subresource=status", "-p", body)
    before["workloads.validating.gangline.io"] += 2  # a changed priority: which classes are allowed is looked at
    assert _calls(kubectl) == before

    child = placed(job(), namespace, "set-w-0")
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}
    child["metadata"]["ownerReferences"] = [owner]
    controller = ("--as=system:serviceaccount:jobset-system:controller", "--as-group=system:masters")
    kubectl("create", "-f", "-", *controller, stdin=json.dumps(child))
    assert _calls(kubectl) == before, "controllers create children without a call"
    own = ("--as=system:serviceaccount:" + namespace + ":default", "--as-group=system:masters")
    child["metadata"]["name"] = "set-w-1"
    kubectl("create", "-f", "-", *own, stdin=json.dumps(child))
    seen = _calls(kubectl)["children.spec-suspend.mutating.gangline.io"]
    assert seen == before.get("children.spec-suspend.mutating.gangline.io", 0) + 1, "and nobody else"


def said_so(kind: str, holds: bool) -> Json:
    return {
        "type": kind,
        "status": str(holds),
        "reason": kind,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def assigned(name: str = "main", count: int = 8, **more: object) -> Json:
    usage = {"cpu": "2", "memory": "48Gi", "nvidia.com/gpu": "32", "ephemeral-storage": "8k"}
    return {"name": name, "count": count, "flavors": {"cpu": "f"}, "resourceUsage": usage, **more}


def admission(*assignments: Json, queue: str = "cq") -> Json:
    return {"clusterQueue": queue, "podSetAssignments": list(assignments or [assigned()])}


def place(host: str) -> Json:
    slices = [{"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": 8}}]
    return {"topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": slices}}


def check(state: str, **more: object) -> Json:
    return {"name": "prov", "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", **more}


RESERVED = [said_so("QuotaReserved", True)]
#: the operator's writes in the life of a workload
LIFE: list[Json] = [
    {"conditions": RESERVED, "admission": admission(), "admissionChecks": [check("Pending")]},
    {"conditions": [*RESERVED, said_so("Admitted", True), said_so("PodsReady", True)]},
    {"admission": admission(assigned(**place("a")))},
    {"admission": admission(assigned(**place("b"))), "unhealthyNodes": [{"name": "a"}]},
    {"reclaimablePods": [{"name": "main", "count": 2}]},
    {"reclaimablePods": [{"name": "main", "count": 3}]},
    {"conditions": [*RESERVED, said_so("Evicted", True)]},
    {"conditions": [said_so("QuotaReserved", False)], "admission": None, "reclaimablePods": None},
    {
        "conditions": RESERVED,
        "admission": admission(assigned()) | {"podSetAssignments": [assigned(resourceUsage={"cpu": "800m"})]},
    },
    {"conditions": [said_so("QuotaReserved", False), said_so("Finished", True)], "admission": None},
]

HELD = {"conditions": RESERVED, "admission": admission()}
TOLD = {"admissionChecks": [check("Ready", podSetUpdates=[{"name": "main", "labels": {"a": "b"}}])]}
#: (status, change of it): what other clients may write, or not
WRITES: dict[str, tuple[Json, Json]] = {
    "quota without admission": ({}, {"conditions": RESERVED}),
    "quota for an admission of before": ({"admission": admission(assigned(count=7))}, {"conditions": RESERVED}),
    "another queue": (HELD, {"admission": admission(queue="other")}),
    "another flavor": (HELD, {"admission": admission(assigned(flavors={"cpu": "g"}))}),
    "the same amounts in other words": (
        HELD,
        {"admission": admission(assigned(resourceUsage={**assigned()["resourceUsage"], "cpu": "2000m"}))},
    ),
    "the admission goes and the quota stays": (HELD, {"admission": None}),
    "an unknown pod set": ({}, {"conditions": RESERVED, "admission": admission(assigned("other"))}),
    "too little cpu for each": (
        {},
        {"conditions": RESERVED, "admission": admission(assigned(resourceUsage={"cpu": "801m"}))},
    ),
    "a fraction of a GPU for each": (
        {},
        {"conditions": RESERVED, "admission": admission(assigned(resourceUsage={"nvidia.com/gpu": 33}))},
    ),
    "an amount in other words": (
        {},
        {"conditions": RESERVED, "admission": admission(assigned(resourceUsage={"memory": "1.5Gi", "cpu": "1.6"}))},
    ),
    "pods of no pod set given back": ({}, {"reclaimablePods": [{"name": "other", "count": 1}]}),
    "too many pods given back": ({}, {"reclaimablePods": [{"name": "main", "count": 9}]}),
    "pods taken back": (
        {**HELD, "reclaimablePods": [{"name": "main", "count": 3}]},
        {"reclaimablePods": [{"name": "main", "count": 2}]},
    ),
    "pods taken back, without quota": (
        {"reclaimablePods": [{"name": "main", "count": 3}]},
        {"reclaimablePods": [{"name": "main", "count": 0}]},
    ),
    "a ready check says something else": (
        TOLD,
        {"admissionChecks": [check("Ready", podSetUpdates=[{"name": "main", "labels": {"a": "c"}}])]},
    ),
    "a ready check takes all back": (TOLD, {"admissionChecks": [check("Ready")]}),
    "a check starts again": (TOLD, {"admissionChecks": [check("Pending")]}),
    "a check about no pod set": ({}, {"admissionChecks": [check("Ready", podSetUpdates=[{"name": "other"}])]}),
    "a check with a wrong label": (
        {},
        {"admissionChecks": [check("Ready", podSetUpdates=[{"name": "main", "labels": {"@a": "b"}}])]},
    ),
    "a cluster that nobody nominated": ({"nominatedClusterNames": ["a"]}, {"clusterName": "b", "nominatedClusterNames": None}),
    "a cluster that was nominated": ({"nominatedClusterNames": ["a"]}, {"clusterName": "a", "nominatedClusterNames": None}),
}  # fmt: skip


def test_status_writes_of_others_follow_the_rules(kubectl: Kubectl, namespace: str):
    """The API server's conditions and the rules agree on every write."""
    made = [placed(workload(), namespace, f"w{number}") for number in range(len(WRITES))]
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    for stored, (case, (before, change)) in zip(made, WRITES.items(), strict=True):
        name = stored["metadata"]["name"]
        patch = ("patch", "workload", name, "-n", namespace, "--type=merge", "--subresource=status", "-p")
        if before:
            kubectl(*patch, json.dumps({"status": before}))
        old = {**stored, "status": before}
        after = {key: value for key, value in {**before, **change}.items() if value is not None}
        expected = validate({**stored, "status": after}, old, AdmissionFacts())
        outcome = kubectl.run(*patch, json.dumps({"status": change}))
        assert (outcome.returncode != 0) == bool(expected), (case, outcome.stderr)
        for error in expected:
            assert f"{error.path}: " in outcome.stderr, case
            assert error.message in outcome.stderr, case
        assert ("Forbidden" in outcome.stderr or "denied the request" in outcome.stderr) == bool(expected), case


def test_the_pods_of_a_workload_with_quota_stay_as_they_are(kubectl: Kubectl, namespace: str):
    owner = create(kubectl, placed(job(queue="main"), namespace))["metadata"]
    body = placed(workload(), namespace)
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner["uid"], "controller": True}
    ]
    create(kubectl, body)
    what = ("patch", "workload", body["metadata"]["name"], "-n", namespace)
    image = [{"op": "replace", "path": "/spec/podSets/0/template/spec/containers/0/image", "value": "other"}]
    kubectl(*what, "--type=json", "-p", json.dumps(image))
    kubectl(*what, "--type=merge", "--subresource=status", "-p", json.dumps({"status": HELD}))
    image[0]["value"] = "third"
    said = kubectl.run(*what, "--type=json", "-p", json.dumps(image)).stderr
    assert "spec.podSets.0: Invalid value" in said
    assert "field is immutable" in said
    gates = {"metadata": {"annotations": {names.ADMISSION_GATED_BY: "example.com/gate"}}}
    said = kubectl.run(*what, "--type=merge", "-p", json.dumps(gates)).stderr
    assert "cannot add admission gate after creation" in said


def test_v1beta1_freezes_the_source_of_the_priority_too(kubectl: Kubectl, namespace: str):
    body = placed(workload(priority=1, priorityClassName="a"), namespace, "old")
    body |= {"apiVersion": names.V1BETA1}
    body["spec"]["priorityClassSource"] = "scheduling.k8s.io/priorityclass"
    create(kubectl, body)
    status = ("patch", "workload", "old", "-n", namespace, "--type=merge", "--subresource=status", "-p")
    kubectl(*status, json.dumps({"status": HELD}))
    patch = ("patch", "workloads.v1beta1.kueue.x-k8s.io", "old", "-n", namespace, "--type=merge", "-p")
    said = kubectl.run(*patch, '{"spec":{"priorityClassSource":"kueue.x-k8s.io/workloadpriorityclass"}}').stderr
    assert "priorityClassSource is immutable while workload quota reserved" in said
    said = kubectl.run(*patch, '{"spec":{"priorityClassName":"b"}}').stderr
    assert (
        "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to" in said
    )


def test_multikueue_is_stored(kubectl: Kubectl, webhooks: Webhooks):
    check: Json = {"kind": "AdmissionCheck", "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}
    cluster: Json = {"kind": "MultiKueueCluster", "spec": {"kubeConfig": {"location": "secret"}}}
    for obj, version in ((check, "v1beta2"), (cluster, "v1beta1")):
        whole = {"apiVersion": f"kueue.x-k8s.io/{version}", "metadata": {"name": "elsewhere"}, **obj}
        outcome = kubectl.run("create", "-f", "-", stdin=json.dumps(whole))
        assert outcome.returncode == 0
        warnings = [line for line in outcome.stderr.splitlines() if line.startswith("Warning")]
        assert [line for line in warnings if "This version is deprecated" not in line] == []
    new = kubectl.json("get", "multikueueclusters.v1beta2.kueue.x-k8s.io", "elsewhere")
    assert new["spec"] == {"clusterSource": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}}


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("-1", "must be greater than or equal to 0"),
        ("lots", "quantities must match the regular expression"),
        ("1e30", "must be less than 2^63"),
    ],
)
def test_an_unusual_workload_is_looked_at(kubectl: Kubectl, namespace: str, amount: str, said: str):
    body = workload()
    body["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = amount
    refused = refusal(kubectl, placed(body, namespace))
    assert "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]" in refused
    assert said in refused


def test_workloads_of_every_shape_pass_the_conditions(kubectl: Kubectl, namespace: str):
    """CEL that fails on some shape would reject it; the schema leaves templates open, so they may look like anything."""
    create(kubectl, {**placed(workload(), namespace, "nothing"), "spec": {}})
    kubectl("label", "workload", "nothing", "-n", namespace, "a=b")
    shapes: list[Json] = [
        {"spec": {"containers": [{"name": "a"}]}},
        {"spec": {"containers": [{"name": "a", "resources": {}}], "initContainers": []}},
        {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}]}},
        {
            "spec": {
                "containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
                "overhead": {"cpu": "1"},
            }
        },
        {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
        {
            "spec": {
                "nodeSelector": {"rack": "a"},
                "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
                "schedulerName": "default-scheduler",
            }
        },
        {"spec": {"nodeSelector": None, "tolerations": None, "affinity": None, "priorityClassName": None}},
        {"spec": {}},
        {},
    ]
    for number, shape in enumerate(shapes):
        create(kubectl, placed(workload(podSets=[{"template": shape}]), namespace, f"shape-{number}"))
    kubectl("annotate", "workload", "shape-0", "-n", namespace, f"{names.PRIORITY_BOOST}=5")
    refused = kubectl.run(
        "annotate", "workload", "shape-0", "-n", namespace, "--overwrite", f"{names.PRIORITY_BOOST}=high"
    )
    assert "must be a valid signed integer" in refused.stderr


@pytest.mark.parametrize(
    ("containers", "said"),
    [
        ("a", ': Invalid value: "a": must be a list of containers'),
        ({"a": 1}, ': Invalid value: {"a":1}: must be a list of containers'),
        ([1], "[0]: Invalid value: 1: must be a container"),
        ([{"resources": 1}], "[0].resources: Invalid value: 1: must be an object with requests and limits"),
        ([{"resources": {"requests": "x"}}], '[0].resources.requests: Invalid value: "x": must be an object of quant'),
        ([{"resources": {"limits": {"cpu": [1]}}}], "[0].resources.limits[cpu]: Invalid value: [1]: quantities must"),
    ],
)
def test_a_template_that_is_none_is_refused_in_words(kubectl: Kubectl, namespace: str, containers: object, said: str):
    body = placed(workload(podSets=[{"template": {"spec": {"containers": containers}}}]), namespace)
    refused = refusal(kubectl, body)
    assert f"spec.podSets[0].template.spec.containers{said}" in refused


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("nodeSelector", {"rack": 1}, "nodeSelector[rack]: Invalid value: 1: must be a text"),
        ("nodeSelector", "rack", 'nodeSelector: Invalid value: "rack": must be an object of texts by label'),
        ("tolerations", {"a": 1}, 'tolerations: Invalid value: {"a":1}: must be a list of objects'),
        ("tolerations", ["x"], 'tolerations[0]: Invalid value: "x": must be an object'),
        ("affinity", "x", 'affinity: Invalid value: "x": must be an object'),
        ("affinity", {"nodeAffinity": []}, "affinity.nodeAffinity: Invalid value: []: must be an object"),
        ("runtimeClassName", 7, "runtimeClassName: Invalid value: 7: must be a text"),
        ("resourceClaims", "x", 'resourceClaims: Invalid value: "x": must be a list of objects'),
    ],
)
def test_a_placement_that_is_none_is_refused_in_words(
    kubectl: Kubectl, namespace: str, field: str, value: object, said: str
):
    body = placed(workload(), namespace)
    body["spec"]["podSets"][0]["template"]["spec"][field] = value
    assert f"spec.podSets[0].template.spec.{said}" in refusal(kubectl, body)


def test_an_outage_stops_no_job_without_a_queue(kubectl: Kubectl, webhooks: Webhooks, namespace: str):
    webhooks.process.send_signal(signal.SIGSTOP)  # the worst outage: a process that accepts and does not answer
    try:
        stored = create(kubectl, placed(job(), namespace, "free"))
        assert not stored["spec"]["suspend"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}}
        create(kubectl, {**pod, "spec": {"containers": [{"name": "a", "image": "a"}]}})
        said = refusal(kubectl, placed(job(queue="main"), namespace, "queued"))
        assert "queued-jobs.mutating.gangline.io" in said
        create(kubectl, placed(job(queue="main"), "kube-system", f"excluded-{namespace}"))
    finally:
        webhooks.process.send_signal(signal.SIGCONT)
    assert create(kubectl, placed(job(queue="main"), namespace, "queued"))["spec"]["suspend"] is True


def test_a_queue_label_on_a_kind_that_is_not_queued_is_warned_of(kubectl: Kubectl, namespace: str):
    """By the API server itself, for kinds that nobody has declared, too; what controllers create is not warned of."""
    pods = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    kinds = {"DaemonSet": "apps/v1", "ReplicationController": "v1"}
    labels = {QUEUE: "q"}

    def said(kind: str, api_version: str, **more: Json) -> str:
        selector = {"app": "x"} if kind == "ReplicationController" else {"matchLabels": {"app": "x"}}
        meta = {"name": f"w{uuid.uuid4().hex[:8]}", "namespace": namespace, "labels": labels, **more}
        body = {"apiVersion": api_version, "kind": kind, "metadata": meta}
        spec = {"spec": {"selector": selector, "template": pods}} if kind != "Pod" else {"spec": pods["spec"]}
        outcome = kubectl.run("apply", "-f", "-", stdin=json.dumps({**body, **spec}))
        assert outcome.returncode == 0, outcome.stderr
        return outcome.stderr

    assert eventually(lambda: "names a queue and is not queued" in said("DaemonSet", "apps/v1"), 60)
    for kind, version in kinds.items():
        assert f"this {kind} names a queue and is not queued" in said(kind, version)
        assert "Gangline does not queue this kind" in said(kind, version)
    assert '"deployment" is not listed in integrations.frameworks' in said("Deployment", "apps/v1")
    assert '"pod" is not listed in integrations.frameworks' in said("Pod", "v1")
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": str(uuid.uuid4()), "controller": True}
    assert said("DaemonSet", "apps/v1", ownerReferences=[owner]) == ""
    labels.clear()
    assert said("DaemonSet", "apps/v1", name="later") == ""
    label = ("label", "daemonset", "later", "-n", namespace, f"{QUEUE}=q")
    assert "names a queue" in kubectl.run(*label).stderr
    assert kubectl.run("annotate", "daemonset", "later", "-n", namespace, "a=b").stderr == "", "nothing of pods changed"
