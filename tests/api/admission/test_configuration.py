"""The smaller configuration kinds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.written import Json, cluster_queue

from gangline.api import names
from gangline.api.admission import KINDS, AdmissionFacts, UnknownKindError, default, validate, warnings


def kueue(kind: str, version: str = "v1beta2", **spec: Any) -> Json:
    return {"apiVersion": f"{names.GROUP}/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def policy(**spec: Any) -> Json:
    body = {"clusterQueues": {"names": ["research"]}, **spec}
    return {"apiVersion": names.V1ALPHA1, "kind": "QueuePolicy", "metadata": {"name": "x"}, "spec": body}


def errors(obj: Json, old: Json | None = None) -> list[str]:
    return [str(error) for error in validate(obj, old, AdmissionFacts())]


def test_every_kind_is_known_in_every_version():
    kueue_kinds = ["AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology", "Workload"]
    own_kinds = [(names.OWN_GROUP, "GPUJob"), (names.OWN_GROUP, "QueuePolicy")]
    assert set(KINDS) >= {*((names.GROUP, kind) for kind in kueue_kinds), *own_kinds, ("batch", "Job")}
    with pytest.raises(UnknownKindError, match="no admission rules for Secret of 'v1'"):
        default({"apiVersion": "v1", "kind": "Secret"}, None, AdmissionFacts())
    with pytest.raises(UnknownKindError, match="an object without kind"):
        validate({}, None, AdmissionFacts())


def test_a_cohort_lends_and_borrows_by_its_parent():
    groups = cluster_queue()["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0] |= {"borrowingLimit": "1", "lendingLimit": "100"}
    path = "spec.resourceGroups[0].flavors[0].resources[0]"
    assert errors(kueue("Cohort", resourceGroups=groups)) == [
        f'{path}.borrowingLimit: Invalid value: "1": must be nil when parent is empty',
        f'{path}.lendingLimit: Invalid value: "100": must be nil when parent is empty',
    ]
    assert errors(kueue("Cohort", resourceGroups=groups, parentName="root")) == []  # lending may exceed nominal
    assert errors(kueue("Cohort", fairSharing={"weight": "-1"})) != []
    [error] = errors(kueue("Cohort", parentName="Root!"))
    assert error.startswith('spec.parentName: Invalid value: "Root!"')


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"nodeLabels": {"a b": "c"}}, 'spec.nodeLabels: Invalid value: "a b": name part must consist'),
        ({"nodeLabels": {"a": "-"}}, 'spec.nodeLabels: Invalid value: "-": a valid label must be'),
        (
            {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}] * 2},
            'spec.nodeTaints[1]: Duplicate value: {"key":"a","effect":"NoSchedule"}: '
            "taints must be unique by key and effect pair",
        ),
        ({"nodeTaints": [{"key": "", "effect": "NoSchedule"}]}, "spec.nodeTaints[0].key: Invalid value"),
        (
            {"nodeTaints": [{"key": "a", "effect": "Never"}]},
            'spec.nodeTaints[0].effect: Unsupported value: "Never": '
            'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        ),
        ({"tolerations": [{"value": "b"}]}, "spec.tolerations[0].operator: Invalid value: \"\": operator must be Exists"),
        ({"tolerations": [{"operator": "Exists"}]}, ""),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "value must be empty when"),
        ({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}, "effect must be 'NoExecute'"),
        ({"topologyName": "racks"}, "spec.nodeLabels: Required value: at least one nodeLabel is required"),
        ({"nodeLabels": {"gpu": "h100"}, "nodeTaints": [{"key": "gpu", "effect": "NoExecute"}]}, ""),
    ],
)  # fmt: skip
def test_flavors(spec: Json, said: str):
    found = errors(kueue("ResourceFlavor", **spec))
    assert found == [] if not said else said in found[0], found


def test_the_topology_of_a_flavor_stays():
    old = kueue("ResourceFlavor", nodeLabels={"a": "b"}, topologyName="racks")
    new = kueue("ResourceFlavor", nodeLabels={"a": "b"}, topologyName="rows")
    assert errors(new, old) == ['spec.topologyName: Invalid value: "rows": field is immutable']
    assert errors(old, kueue("ResourceFlavor")) == []


def test_local_queues_point_at_one_cluster_queue_or_at_none_yet():
    assert errors(kueue("LocalQueue")) == []
    assert errors(kueue("LocalQueue", clusterQueue="a"), kueue("LocalQueue")) == []
    removed = errors(kueue("LocalQueue"), kueue("LocalQueue", clusterQueue="a"))
    assert removed == [], "as in Kueue; that another is not written over it, the CRD says"
    assert errors(kueue("LocalQueue", clusterQueue="B?")) != []


def levels(*labels: str, version: str = "v1beta2") -> Json:
    return kueue("Topology", version, levels=[{"nodeLabel": label} for label in labels])


HOST = "kubernetes.io/hostname"


def test_topologies():
    assert errors(levels("block", "rack", HOST)) == []
    assert errors(levels()) == ["spec.levels: Required value"]
    assert errors(levels("rack", "rack")) == ['spec.levels[1].nodeLabel: Duplicate value: "rack"']
    assert errors(levels(HOST, "rack")) == [
        f'spec.levels[0].nodeLabel: Invalid value: "{HOST}": the {HOST} label can only be used at the lowest level'
    ]
    assert errors(levels(*(f"l{i}" for i in range(17)))) == ["spec.levels: Too many: 17: must have at most 16 items"]


def test_levels_change_only_above_hosts_and_only_in_v1beta2():
    assert errors(levels("block", HOST), levels("rack", HOST)) == []
    assert errors(levels("block"), levels("rack")) != []
    assert errors(levels("block", HOST), levels("block")) != []
    assert errors(levels("block", HOST, version="v1beta1"), levels("rack", HOST, version="v1beta1")) != []


def test_admission_checks_keep_their_controller():
    assert errors(kueue("AdmissionCheck")) == ["spec.controllerName: Required value"]
    one, other = (kueue("AdmissionCheck", controllerName=f"example.com/{name}") for name in "ab")
    assert errors(other, one) == ['spec.controllerName: Invalid value: "example.com/b": field is immutable']
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "No!"}
    [error] = errors(kueue("AdmissionCheck", controllerName="a/b", parameters=parameters))
    assert error.startswith('spec.parameters.name: Invalid value: "No!"')


def test_what_multikueue_leaves_undone_is_a_warning():
    sending = kueue("AdmissionCheck", controllerName="kueue.x-k8s.io/multikueue")
    secret = {"clusterSource": {"kubeConfig": {"location": "a"}}}
    for obj in (sending, kueue("MultiKueueConfig", clusters=["a"]), kueue("MultiKueueCluster", **secret)):
        assert (errors(obj), warnings(obj)) == ([], [])
    profile = kueue("MultiKueueCluster", clusterSource={"clusterProfileRef": {"name": "a"}})
    automated = kueue("MultiKueueConfig", clusters=["a"], quotaManagement="Automated")
    for obj, word in ((profile, "MultiKueueClusterProfile is on"), (automated, "quotaManagement")):
        assert errors(obj) == []
        [warning] = warnings(obj)
        assert word in warning
        assert len(warning) <= 256, "API servers cut longer ones"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, ""),
        ({"backfill": {"depth": 1, "quantiles": {"running": "0.5", "candidate": "0.9"}}}, ""),
        ({"clusterQueues": {}}, "spec.clusterQueues: Required value: give names or matchLabels"),
        ({"clusterQueues": {"names": ["a", "a"]}}, 'spec.clusterQueues.names[1]: Duplicate value: "a"'),
        (
            {"backfill": {"quantiles": {"running": "1"}}},
            'spec.backfill.quantiles.running: Invalid value: "1": must be greater than 0 and less than 1',
        ),
        ({"overrun": {"warnAt": "often"}}, "spec.overrun.warnAt: Invalid value"),
        ({"stall": {"after": "soon"}}, 'spec.stall.after: Invalid value: "soon": must be a duration such as "90s"'),
        ({"order": {"halfLife": "-1h"}}, "spec.order.halfLife: Invalid value: \"-1h\": must be greater than or equal to 0"),
        (
            {"fixes": {"enable": ["HoldQuota"], "disable": ["CountPods", "HoldQuota"]}},
            'spec.fixes.disable[1]: Invalid value: "HoldQuota": can\'t be in both enable and disable',
        ),
        ({"notify": [{"events": ["Admitted"]}]}, "spec.notify[0].secretRef.name: Required value"),
        ({"notify": [{"events": ["Idle"], "secretRef": {"name": "s"}, "digest": "now"}]}, "spec.notify[0].digest: Invalid"),
        ({"overrun": {"overdueFactor": "500m"}}, "spec.overrun.overdueFactor: Invalid value: \"500m\": must be at least 1"),
        ({"overrun": {"overdueFactor": "2.5"}}, ""),
        ({"backfill": {"overdueFactor": "0.25", "restartCost": "2m", "lossBudget": "0.005"}}, ""),
        ({"backfill": {"idleShare": "0.1"}}, ""),
        ({"backfill": {"overdueFactor": "0"}}, 'spec.backfill.overdueFactor: Invalid value: "0": must be greater than 0'),
        ({"backfill": {"overdueFactor": "twice"}}, "spec.backfill.overdueFactor: Invalid value"),
        ({"backfill": {"restartCost": "some"}}, "spec.backfill.restartCost: Invalid value"),
        ({"backfill": {"giveWay": {"minRuntime": "some"}}}, "spec.backfill.giveWay.minRuntime: Invalid value"),
        ({"order": {"ageCap": "some"}}, "spec.order.ageCap: Invalid value"),
        ({"overrun": {"overdueFactor": "twice"}}, "spec.overrun.overdueFactor: Invalid value"),
        ({"stall": {"grace": "1"}}, "spec.stall.grace: Invalid value"),
        ({"unscheduledPods": {}}, ""),
        ({"unscheduledPods": {"after": "3m", "longest": "1h"}}, ""),
        ({"unscheduledPods": {"after": "soon"}}, "spec.unscheduledPods.after: Invalid value"),
        ({"unscheduledPods": {"after": "0s"}}, 'spec.unscheduledPods.after: Invalid value: "0s": must be greater than 0'),
        (
            {"unscheduledPods": {"longest": "4m"}},
            'spec.unscheduledPods.longest: Invalid value: "4m": must be at least spec.unscheduledPods.after',
        ),
        ({"preemption": {"minRuntime": "a while"}}, "spec.preemption.minRuntime: Invalid value"),
        ({"preemption": {"minRuntime": "-1m"}}, "spec.preemption.minRuntime: Invalid value"),
        ({"preemption": {"holdQuota": True}, "fixes": {"disable": ["HoldFreedQuota"]}}, ""),
        (
            {"preemption": {"holdQuota": False}, "fixes": {"enable": ["HoldFreedQuota"]}},
            "spec.preemption.holdQuota: Invalid value: false: can't be false with HoldFreedQuota in spec.fixes.enable",
        ),
    ],
)  # fmt: skip
def test_policies(spec: Json, said: str):
    found = errors(policy(**spec))
    assert found == [] if not said else found[0].startswith(said), found


def test_a_placement_policy_keeps_no_spares_and_looks_at_real_labels():
    scores = [{"name": "NodeLabel", "label": "gangline.io/rdma"}, {"name": "NetworkCost", "label": "rtt"}]
    assert errors(policy(placement={"scores": scores}, recovery={"soak": "1m"})) == []
    assert errors(policy(placement={"profile": "Pack"}, recovery={"spares": 0})) == []
    for spares in (1, "5%"):
        found = errors(policy(placement={"profile": "Pack"}, recovery={"spares": spares}))
        assert len(found) == 1 and found[0].startswith("spec.recovery.spares: ") and "spec.placement" in found[0]
        assert errors(policy(placement={}, recovery={"spares": spares, "enabled": False})) == []
        assert errors(policy(recovery={"spares": spares})) == []
    found = errors(policy(placement={"scores": [{"name": "NodeLabel", "label": "no label/x/y"}]}))
    assert len(found) == 1 and found[0].startswith("spec.placement.scores[0].label: ")
    assert errors(policy(placement=[])) == errors(policy(placement={"scores": [7, {"label": 7}]})) == []


@pytest.mark.parametrize(
    ("backfill", "warned"),
    [
        ({"lossBudget": "0.01"}, True),
        ({"lossBudget": "0.01", "revoke": "Never"}, True),
        ({"lossBudget": "0.01", "revoke": "Any"}, False),
        ({"lossBudget": "0.01", "giveWay": {"longerThan": "3"}}, False),
        ({"depth": 1}, False),
    ],
)
def test_a_budget_that_limits_nothing_is_warned_of(backfill: Json, warned: bool) -> None:
    made = policy(backfill=backfill)
    assert errors(made) == []
    assert [text.split(":")[0] for text in warnings(made)] == ["spec.backfill.lossBudget"] * warned
