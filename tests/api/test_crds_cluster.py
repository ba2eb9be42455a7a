"""The CRDs on a real kube-apiserver: accepted, strict, and with rules that hold."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.controlplane import Kubectl, require_control_plane

from gangline.api.schema import crd_install
from gangline.devcluster.building import build
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
HERE = Path(__file__).parent
CRDS = crd_install.crds()


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    """A control plane of our own: other tests install the CRDs with their conversion webhook."""
    require_control_plane()
    with LocalControlPlane(ControlPlaneOptions(gogc=400)) as plane:
        kubectl = Kubectl(build.kubectl(), plane.kubeconfig)
        everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": CRDS})
        apply = ("apply", "--server-side", "--validate=strict", "-f", "-")
        kubectl(*apply, "--dry-run=server", stdin=everything)
        kubectl(*apply, stdin=everything)
        names = [f"crd/{crd['metadata']['name']}" for crd in CRDS]
        kubectl.wait_established(*names)
        yield kubectl


def create(kubectl: Kubectl, obj: Json) -> str:
    """ "" if the API server would accept the object, otherwise why not."""
    outcome = kubectl.run("create", "--validate=strict", "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
    return outcome.stderr if outcome.returncode else ""


def test_conditions_of_the_crds_are_clean(kubectl: Kubectl) -> None:
    for crd in kubectl.json("get", "crds")["items"]:
        states = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
        assert states.get("NonStructuralSchema") is None, crd["metadata"]["name"]
        assert states["NamesAccepted"] == "True"


def test_the_published_recipe_applies_verbatim(kubectl: Kubectl) -> None:
    recipe = (HERE / "golden" / "gke-recipe.yaml").read_text(encoding="utf-8")
    applied = kubectl("apply", "-f", "-", stdin=recipe)
    assert applied.count("created") == 3


def test_misspelt_fields_are_refused_by_name(kubectl: Kubectl) -> None:
    queue = cluster_queue()
    queue["spec"]["resourceGroups"][0]["coverdResources"] = ["cpu"]
    assert 'unknown field "spec.resourceGroups[0].coverdResources"' in create(kubectl, queue)


def test_explain_reads_well(kubectl: Kubectl) -> None:
    text = kubectl("explain", "clusterqueue.spec")
    assert "The queue's quota and the rules for it." in text
    assert "<no description>" not in kubectl("explain", "workload.status", "--recursive=false")


# --- objects ----------------------------------------------------------------------------------------------------------


def head(kind: str, version: str = "kueue.x-k8s.io/v1beta2", name: str = "x") -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def cluster_queue(**spec: Any) -> Json:
    quota = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 5}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    return {**head("ClusterQueue"), "spec": {"resourceGroups": groups, **spec}}


def limited(limit: Any, **spec: Any) -> Json:
    queue = cluster_queue(**spec)
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = limit
    return queue


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "unknown": {}}]}}


def workload(**spec: Any) -> Json:
    return {**head("Workload"), "spec": {"podSets": [{"name": "main", "count": 4, "template": TEMPLATE}], **spec}}


def flavor(**spec: Any) -> Json:
    return {**head("ResourceFlavor"), "spec": spec}


def topology(*levels: str) -> Json:
    return {**head("Topology"), "spec": {"levels": [{"nodeLabel": level} for level in levels]}}


def multi_kueue_cluster(**source: Any) -> Json:
    return {**head("MultiKueueCluster"), "spec": {"clusterSource": source}}


def gpu_job(**spec: Any) -> Json:
    return {**head("GPUJob", "gangline.io/v1alpha1"), "spec": spec}


ROLE = {"name": "worker", "replicas": 8, "minReplicas": 4, "gpus": 8, "template": TEMPLATE}
POLICY = {
    **head("QueuePolicy", "gangline.io/v1alpha1"),
    "spec": {
        "clusterQueues": {"names": ["research"], "matchLabels": {"team": "a"}},
        "profile": "Gangline",
        "fixes": {"disable": ["some-fix"]},
        "order": {"key": "FairShare", "halfLife": "168h", "maxWait": "24h"},
        "backfill": {
            "depth": 1,
            "candidates": "ShortestFirst",
            "quantiles": {"running": "0.5", "candidate": "0.9"},
            "revoke": "Overdue",
        },
        "preemption": {
            "victims": "LeastLostWork", "nonPreemptibleFrom": 8, "nonPreemptibleGpus": 8, "minRuntime": "10m",
            "maxPerWorkload": 3, "holdQuota": True,
        },
        "overrun": {"warnAt": "0.9", "action": "Notify"},
        "stall": {"after": "15m", "action": "Notify"},
        "recovery": {
            "spares": 1, "lend": True, "preemptToHeal": True, "soak": "5m", "swapBudget": 5, "tolerationSeconds": 10,
        },
        "notify": [{"secretRef": {"name": "slack"}, "events": ["Admitted", "StartMoved", "Finished"]}],
    },
}  # fmt: skip


def placing(**placement: Any) -> Json:
    return {**POLICY, "spec": {"clusterQueues": {"names": ["q"]}, "placement": placement}}


def provisioning(**spec: Any) -> Json:
    return {**head("ProvisioningRequestConfig"), "spec": {"provisioningClassName": "atomic.example.com", **spec}}


GOOD = {
    "queue": cluster_queue(),
    "quantities as text and numbers": limited("1500m", cohortName="all"),
    "queue with nothing": {**head("ClusterQueue"), "spec": {}},
    "borrow with reclaim": cluster_queue(
        preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    ),
    "workload": workload(queueName="q", priority=3),
    "flavor": flavor(nodeLabels={"a": "b"}, topologyName="t", tolerations=[{"operator": "Exists"}]),
    "topology": topology("block", "rack", "kubernetes.io/hostname"),
    "gpu job, short": gpu_job(workers=2, gpusPerWorker=8, template=TEMPLATE, runtime={"expected": "1h30m"}),
    "gpu job, shares": gpu_job(roles=[{**ROLE, "gpus": 1, "share": {"by": "KAI", "percent": 50}}]),
    "gpu job, short with a share": gpu_job(gpusPerWorker=1, share={"by": "HAMi", "percent": 1}, template=TEMPLATE),
    "gpu job, roles": gpu_job(roles=[ROLE], framework="PyTorch", restart={"onNodeFailure": "Swap"}),
    "policy": POLICY,
    "policy with a profile of placement": placing(profile="Spread"),
    "policy with scores of placement": placing(
        scores=[
            {"name": "NodeLabel", "label": "a/b", "value": "c", "weight": 100},
            {"name": "NetworkCost", "label": "rtt", "tier": 1},
            {"name": "Pack", "tier": 9, "weights": {"gpu": 1}},
            {"name": "Fragmentation"},
        ]
    ),
    "policy with a placement of nothing": placing(),
    "priority class": {**head("WorkloadPriorityClass"), "value": 1000, "description": "for the brave"},
    "cohort": {**head("Cohort"), "spec": {"parentName": "root", "fairSharing": {"weight": "1500m"}}},
    "check": {**head("AdmissionCheck"), "spec": {"controllerName": "example.com/check"}},
    "local queue": {**head("LocalQueue"), "spec": {"clusterQueue": "x"}},
    "local queue of nothing yet": {**head("LocalQueue"), "spec": {}},
    "clusters": {**head("MultiKueueConfig"), "spec": {"clusters": ["a", "b"], "quotaManagement": "Manual"}},
    "cluster": multi_kueue_cluster(kubeConfig={"location": "a"}),
    "cluster of v1beta1": {
        **head("MultiKueueCluster", "kueue.x-k8s.io/v1beta1"),
        "spec": {"kubeConfig": {"location": "a" * 300}},
    },
    "topology request of v1beta1": {
        **head("Workload", "kueue.x-k8s.io/v1beta1"),
        "spec": {"podSets": [{"template": TEMPLATE, "topologyRequest": {"required": "a" * 64}}]},
    },
    "provisioning": provisioning(
        parameters={"ValidUntilSeconds": "0"},
        managedResources=["nvidia.com/gpu"],
        retryStrategy={"backoffLimitCount": 0},
        podSetMergePolicy="IdenticalPodTemplates",
    ),
}


@pytest.mark.parametrize(
    ("case", "columns"),
    [
        ("queue", "NAME COHORT STRATEGY PENDING WORKLOADS ADMITTED WORKLOADS POLICY"),
        ("local queue", "NAME CLUSTERQUEUE PENDING WORKLOADS ADMITTED WORKLOADS"),
        ("workload", "NAME QUEUE RESERVED IN ADMITTED FINISHED AGE"),
        ("priority class", "NAME VALUE"),
        ("gpu job, short", "NAME PHASE QUEUE GPUS READY RESTARTS EXPECTED START AGE"),
        ("cluster", "NAME CONNECTED AGE"),
        ("policy", "NAME PROFILE ORDER BACKFILL ACTIVE QUEUES AGE"),
    ],
)
def test_columns(kubectl: Kubectl, case: str, columns: str) -> None:
    obj = {**GOOD[case], "metadata": {"name": "shown"}}
    kubectl("create", "-f", "-", stdin=json.dumps(obj))
    shown = kubectl("get", obj["kind"].lower(), "shown", "-o", "wide").splitlines()[0]
    assert " ".join(shown.split()) == columns


@pytest.mark.parametrize("case", GOOD)
def test_accepts(kubectl: Kubectl, case: str) -> None:
    assert create(kubectl, GOOD[case]) == ""


BAD = {
    "limit without cohort": (limited(1), "borrowingLimit must be nil when cohort is empty"),
    "malformed quantity": (limited("1 Gi", cohortName="all"), "borrowingLimit"),
    "flavor without a covered resource": (
        cluster_queue(
            resourceGroups=[
                {
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}],
                }
            ]
        ),
        "flavors must have the same number of resources as the coveredResources",
    ),
    "borrow without reclaim": (
        cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
    ),
    "unknown strategy": (cluster_queue(queueingStrategy="Random"), 'Unsupported value: "Random"'),
    "reclaimOutOfCohort in v1beta2": (
        cluster_queue(preemption={"reclaimOutOfCohort": {"enable": True}}),
        'unknown field "spec.preemption.reclaimOutOfCohort"',
    ),
    "min count above count": (
        workload(podSets=[{"name": "main", "count": 2, "minCount": 3, "template": {"spec": {}}}]),
        "minCount should be positive and less or equal to count",
    ),
    "class without priority": (
        workload(priorityClassRef={"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a"}),
        "priority should not be nil when priorityClassRef is set",
    ),
    "class of another group": (
        workload(priority=1, priorityClassRef={"group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "a"}),
        "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
    ),
    "19 pod sets": (
        workload(podSets=[{"name": f"s{i}", "template": {"spec": {}}} for i in range(19)]),
        "must have at most 18 items",
    ),
    "topology without labels": (flavor(topologyName="t"), "at least one nodeLabel is required"),
    "toleration without key": (flavor(tolerations=[{"value": "a"}]), "operator must be Exists when 'key' is empty"),
    "toleration with value": (
        flavor(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "a value must be empty when 'operator' is 'Exists'",
    ),
    "seconds without NoExecute": (
        flavor(tolerations=[{"key": "a", "tolerationSeconds": 3}]),
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
    ),
    "level twice": (topology("a", "a"), "must be unique"),
    "hostname in the middle": (topology("kubernetes.io/hostname", "a"), "only be used at the lowest level"),
    "preference without TryNextFlavor": (
        cluster_queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
        "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
    ),
    "migration without mode": (
        cluster_queue(concurrentAdmissionPolicy={"migration": {}}),
        "spec.concurrentAdmissionPolicy.migration.mode: Required value",
    ),
    "long gate": (workload(preemptionGates=[{"name": "g" * 64}]), "spec.preemptionGates[0].name: Too long"),
    "parameters by no name": (
        {
            **head("AdmissionCheck"),
            "spec": {
                "controllerName": "a/b",
                "parameters": {"apiGroup": "a_b", "kind": "1", "name": "a.b"},
            },
        },
        "spec.parameters.name: Invalid value",
    ),
    "two ways to a cluster": (
        multi_kueue_cluster(kubeConfig={"location": "a"}, clusterProfileRef={"name": "b"}),
        "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
    ),
    "no way to a cluster": (
        multi_kueue_cluster(),
        "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
    ),
    "clusters twice": ({**head("MultiKueueConfig"), "spec": {"clusters": ["a", "b", "a"]}}, "must be unique"),
    "no clusters": ({**head("MultiKueueConfig"), "spec": {"clusters": []}}, "should have at least 1 items"),
    "both forms": (gpu_job(template=TEMPLATE, roles=[ROLE]), "exactly one of roles and template"),
    "neither form": (gpu_job(framework="JAX"), "exactly one of roles and template"),
    "share with roles": (gpu_job(share={"by": "KAI", "percent": 5}, roles=[ROLE]), "belong to the short form"),
    "a share of all": (gpu_job(share={"by": "KAI", "percent": 100}, template=TEMPLATE), "spec.share.percent"),
    "a share of nobody": (gpu_job(share={"by": "Run", "percent": 5}, template=TEMPLATE), "spec.share.by"),
    "workers with roles": (gpu_job(workers=2, roles=[ROLE]), "belong to the short form"),
    "minReplicas above replicas": (
        gpu_job(roles=[{**ROLE, "minReplicas": 9}]),
        "minReplicas must not exceed replicas",
    ),
    "minWorkers above workers": (gpu_job(minWorkers=2, template=TEMPLATE), "minWorkers must not exceed workers"),
    "two placements": (
        gpu_job(template=TEMPLATE, topology={"required": "a", "preferred": "b"}),
        "only one of required, preferred and unconstrained",
    ),
    "node label twice": (
        provisioning(
            podSetUpdates={"nodeSelector": [{"key": "a", "valueFromProvisioningClassDetail": d} for d in "bc"]}
        ),
        "Duplicate value",
    ),
    "no class": (provisioning(provisioningClassName="a_b"), "spec.provisioningClassName"),
    "no duration": (gpu_job(template=TEMPLATE, runtime={"limit": "3 hours"}), "spec.runtime.limit"),
    "a chance above one": (
        {**POLICY, "spec": {**POLICY["spec"], "overrun": {"warnAt": "1.5"}}},
        "spec.overrun.warnAt",
    ),
    "gangs of no GPUs": (
        {**POLICY, "spec": {**POLICY["spec"], "preemption": {"nonPreemptibleGpus": 0}}},
        "spec.preemption.nonPreemptibleGpus",
    ),
    "a profile that needs cards": (placing(profile="CardPack"), 'Unsupported value: "CardPack"'),
    "a heat of nothing": (placing(scores=[{"name": "Thermal", "most": 80}]), "to Thermal with an annotation"),
    "a heat of another scorer": (placing(scores=[{"name": "Pack", "annotation": "a"}]), "annotation belongs to"),
    "two caps of a domain": (
        placing(power=[{"domainLabel": "rack", "capWatts": 9, "domains": [{"domain": "a", "capWatts": 1}] * 2}]),
        "Duplicate value",
    ),
    "a margin of nothing": (placing(filters=[{"name": "RDMA", "percent": 5}]), "percent and perPod belong to MemSafe"),
    "a pod's memory of nothing": (placing(filters=[{"name": "BandwidthFit", "perPod": "1Gi"}]), "belong to MemSafe"),
    "half a card of margin": (
        placing(filters=[{"name": "MemSafe", "percent": 51}]),
        "spec.placement.filters[0].percent",
    ),
    "a share's name": (
        gpu_job(share={"by": "KAI", "percent": 5, "exclusion": "a/b"}, template=TEMPLATE),
        "spec.share.exclusion",
    ),
    "an unknown scorer": (placing(scores=[{"name": "Best"}]), "spec.placement.scores[0].name"),
    "a placement by two ways": (placing(profile="Pack", scores=[{"name": "Pack"}]), "set profile or scores, not both"),
    "no label": (placing(scores=[{"name": "NodeLabel"}]), "NodeLabel and NetworkCost need a label"),
    "a label too many": (placing(scores=[{"name": "Pack", "label": "a"}]), "NodeLabel and NetworkCost need a label"),
    "a value too many": (placing(scores=[{"name": "NetworkCost", "label": "a", "value": "1"}]), "value belongs to"),
    "weights of a label": (
        placing(scores=[{"name": "NodeLabel", "label": "a", "weights": {"gpu": 1}}]),
        "weights belong to Pack",
    ),
    "weights of nothing": (placing(scores=[{"name": "Pack", "weights": {"cpu": 0}}]), "one weight at least"),
    "a placement that is not there yet": (placing(extender="x"), 'unknown field "spec.placement.extender"'),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(kubectl: Kubectl, case: str) -> None:
    obj, message = BAD[case]
    assert message in create(kubectl, obj)


def test_what_a_minimal_queue_becomes(kubectl: Kubectl) -> None:
    minimal = json.dumps({**head("ClusterQueue", name="minimal"), "spec": {}})
    spec = json.loads(kubectl("create", "-o", "json", "-f", "-", stdin=minimal))["spec"]
    assert spec == {
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "borrowWithinCohort": {"policy": "Never"},
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
        },
    }


# --- rules on changes -------------------------------------------------------------------------------------------------


def condition(kind: str) -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }


SLICE: Json = {
    "domainCount": 2,
    "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}],
    "podCounts": {"individual": [1, 3]},
}
WRONG_SLICES: dict[str, Json] = {
    "podCounts.individual must have length equal to domainCount": {"podCounts": {"individual": [1]}},
    "must have roots of length equal to domainCount": {"valuesPerLevel": [{"individual": {"roots": ["a"]}}]},
    "valuesPerLevel must have the same length as the number of levels": {"valuesPerLevel": [{"universal": "a"}] * 2},
    "exactly one of the fields in [universal individual] must be set": {"podCounts": {}},
    "podCounts.individual: Invalid value": {"podCounts": {"individual": []}},
}


def patch(kubectl: Kubectl, what: tuple[str, str], body: Json, *more: str) -> str:
    """ "" if the change is accepted, otherwise why not."""
    outcome = kubectl.run("patch", *what, "--type=merge", "-p", json.dumps(body), *more)
    return outcome.stderr if outcome.returncode else ""


def test_a_workload_is_frozen_while_it_holds_quota(kubectl: Kubectl) -> None:
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a"}
    obj = workload(queueName="q", priority=1, priorityClassRef=ref, maximumExecutionTimeSeconds=60)
    obj["metadata"]["name"] = "held"
    kubectl("create", "-f", "-", stdin=json.dumps(obj))
    what = ("workload", "held")
    assert patch(kubectl, what, {"spec": {"queueName": "other"}}) == ""
    assignment = {"name": "main", "count": 4, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}}
    admission = {"clusterQueue": "x", "podSetAssignments": [assignment]}
    status = {"admission": admission, "conditions": [condition("QuotaReserved"), condition("Admitted")]}
    doubled = {**admission, "podSetAssignments": [assignment, {**assignment, "name": "other"}]}
    wrong = {"status": {**status, "admission": doubled}}
    assert "same number of podSets" in patch(kubectl, what, wrong, "--subresource=status")
    assert patch(kubectl, what, {"status": status}, "--subresource=status") == ""

    for message, change in WRONG_SLICES.items():
        topology = {"levels": ["rack"], "slices": [{**SLICE, **change}]}
        placed = {**admission, "podSetAssignments": [{**assignment, "topologyAssignment": topology}]}
        assert message in patch(kubectl, what, {"status": {"admission": placed}}, "--subresource=status")

    pod_sets = copy.deepcopy(obj["spec"]["podSets"])
    class_of_pods = {"group": "scheduling.k8s.io", "kind": "PriorityClass"}
    frozen = {
        "queueName": {"queueName": "q"},
        "priorityClassRef": {"priorityClassRef": None},
        "priorityClassRef.group": {"priorityClassRef": class_of_pods},
        "maximumExecutionTimeSeconds": {"maximumExecutionTimeSeconds": 90},
    }
    for field, spec in frozen.items():
        said = patch(kubectl, what, {"spec": spec})
        assert f"{field} is immutable while workload quota reserved" in said
    pod_sets[0]["count"] = 3
    allowed = {"active": False, "priority": 7, "podSets": pod_sets, "priorityClassRef": {**ref, "name": "b"}}
    assert patch(kubectl, what, {"spec": allowed}) == ""

    selected = kubectl("get", "workloads", "--field-selector", "status.admission.clusterQueue=x", "-o", "name")
    assert selected.split() == ["workload.kueue.x-k8s.io/held"]
    assert patch(kubectl, what, {"status": {"clusterName": "a"}}, "--subresource=status") == ""
    assert "immutable once set" in patch(kubectl, what, {"status": {"clusterName": "b"}}, "--subresource=status")


def test_fields_that_never_change(kubectl: Kubectl) -> None:
    objects = [
        {**GOOD["local queue"], "metadata": {"name": "fixed"}},
        {**GOOD["check"], "metadata": {"name": "fixed"}},
        {**GOOD["flavor"], "metadata": {"name": "fixed"}},
        {**topology("a", "b"), "metadata": {"name": "fixed"}},
        {**topology("a", "kubernetes.io/hostname"), "metadata": {"name": "open"}},
        {**GOOD["gpu job, short"], "metadata": {"name": "fixed"}},
    ]
    kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(objects))
    levels = {"spec": {"levels": [{"nodeLabel": "z"}, {"nodeLabel": "kubernetes.io/hostname"}]}}
    changes = {
        ("localqueue", "fixed"): {"spec": {"clusterQueue": "y"}},
        ("admissioncheck", "fixed"): {"spec": {"controllerName": "y"}},
        ("resourceflavor", "fixed"): {"spec": {"topologyName": "y"}},
        ("topology", "fixed"): levels,
        ("gpujob", "fixed"): {"spec": {"framework": "MPI"}},
    }
    for what, change in changes.items():
        refused = patch(kubectl, what, change)
        assert "immutable" in refused or "levels are mutable only when" in refused, what
    assert patch(kubectl, ("topology", "open"), levels) == ""
    assert patch(kubectl, ("localqueue", "fixed"), {"spec": {"stopPolicy": "Hold"}}) == ""
