"""From the API server's JSON to the engine's facts, and admissions back to JSON."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, get_args

import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.api import accepted
from tests.api.generated import Json, objects, with_defaults
from tests.builders.objects import Workload
from tests.examples import examples
from tests.fuzz import worst

from gangline.api import names
from gangline.api.read import parse, policy_reader, render
from gangline.api.read.parse import ParseError
from gangline.api.schema import kinds
from gangline.api.schema.json_schema import structural
from gangline.api.schema.v1alpha1.placement import PlacementScoreSpec, PlacementSpec
from gangline.engine import PROFILES, PlacingProfile, Score, model

T0 = 1_769_860_800_000  # 2026-01-31T12:00:00Z


def pod(*containers: Json, **spec: Any) -> Json:
    return {"containers": list(containers), **spec}


def asks(requests: Json | None = None, limits: Json | None = None, **more: Any) -> Json:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"name": "c", "image": "i", "resources": resources, **more}


def workload(spec: Json | None = None, status: Json | None = None, **meta: Any) -> Json:
    """A Workload of two pods with a CPU each, with other fields in its spec, status and metadata."""
    usual = Workload("job-a", **{"uid": "u1", **meta}).pods(asks({"cpu": 1}), count=2)
    return usual.spec(**(spec or {})).status(**(status or {})).made


def condition(kind: str, status: str, reason: str = "R", at: str = "2026-01-31T12:00:00Z") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def requests_of(spec: Json) -> dict[str, int]:
    parsed = parse.workload(workload({"podSets": [{"template": {"spec": spec}}]}))
    return dict(parsed.pod_sets[0].requests)


# --- pod requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(pod(), {}, id="no containers"),
        pytest.param(pod({"name": "c"}), {}, id="no resources"),
        pytest.param(
            pod(asks({"cpu": "500m", "memory": "1Gi"}), asks({"cpu": 1, "nvidia.com/gpu": "8"})),
            {"cpu": 1500, "memory": 2**30, "nvidia.com/gpu": 8},
            id="containers add up",
        ),
        pytest.param(
            pod(asks({"cpu": 1}, {"cpu": 2, "nvidia.com/gpu": 4})),
            {"cpu": 1000, "nvidia.com/gpu": 4},
            id="requests default to limits",
        ),
        pytest.param(
            pod(asks({"cpu": 1}), initContainers=[asks({"cpu": 3}), asks({"cpu": 2, "memory": "1k"})]),
            {"cpu": 3000, "memory": 1000},
            id="init containers run one by one",
        ),
        pytest.param(
            pod(asks({"cpu": 5}), initContainers=[asks({"cpu": 3})]), {"cpu": 5000}, id="containers need more than init"
        ),
        pytest.param(
            pod(asks({"cpu": 1}), initContainers=[asks({"cpu": 2}, restartPolicy="Always")]),
            {"cpu": 3000},
            id="sidecars run on",
        ),
        pytest.param(
            pod(asks({"cpu": 1}), initContainers=[asks({"cpu": 2}, restartPolicy="Always"), asks({"cpu": 5})]),
            {"cpu": 7000},
            id="sidecars run beside later init containers",
        ),
        pytest.param(
            pod(asks({"cpu": 1}), initContainers=[asks({"cpu": 5}), asks({"cpu": 2}, restartPolicy="Always")]),
            {"cpu": 5000},
            id="sidecars do not run beside earlier init containers",
        ),
        pytest.param(
            pod(asks({"cpu": 1, "memory": "1Gi"}), overhead={"cpu": "250m"}),
            {"cpu": 1250, "memory": 2**30},
            id="overhead is on top",
        ),
        pytest.param(
            pod(asks({"cpu": 1, "nvidia.com/gpu": 1}), resources={"requests": {"cpu": 4, "nvidia.com/gpu": 9}}),
            {"cpu": 4000, "nvidia.com/gpu": 1},
            id="pod-level cpu replaces the sum, but there are no pod-level gpus",
        ),
        pytest.param(
            pod(asks({"cpu": 1}), resources={"limits": {"cpu": 4, "memory": "1Gi"}}),
            {"cpu": 1000, "memory": 2**30},
            id="a pod-level limit counts only of what no container requests",
        ),
        pytest.param(
            pod(asks({"cpu": 1}), resources={"requests": {"cpu": 4}}, overhead={"cpu": 1}),
            {"cpu": 5000},
            id="overhead on top of pod-level requests",
        ),
        pytest.param(
            pod(asks({"memory": 2**62}), asks({"memory": 2**62}), asks({"memory": 2**62})),
            {"memory": model.UNLIMITED},
            id="absurd sums saturate",
        ),
    ],
)
def test_pod_requests(spec: Json, expected: dict[str, int]) -> None:
    assert requests_of(spec) == expected


# --- workloads --------------------------------------------------------------------------------------------------------


def test_a_waiting_workload() -> None:
    parsed = parse.workload(
        workload(
            {"queueName": "q", "priority": 5, "active": False, "maximumExecutionTimeSeconds": 60},
            creationTimestamp="2026-01-31T12:00:00Z",
            labels={names.JOB_UID: "j1"},
            annotations={names.PRIORITY_BOOST: "-3", names.ADMISSION_GATED_BY: "a.example/x, b ,"},
        )
    )
    assert parsed == model.Workload(
        uid="u1",
        namespace="team",
        name="job-a",
        queue="q",
        pod_sets=(model.PodSet("main", 2, {"cpu": 1000}),),
        priority=5,
        boost=-3,
        created=T0,
        active=False,
        gates=("a.example/x", "b"),
        max_execution_seconds=60,
        job_uid="j1",
        unowned=True,
    )


def test_a_running_workload() -> None:
    status = {
        "conditions": [
            condition("QuotaReserved", "True"),
            condition("Admitted", "True", at="2026-01-31T12:00:01Z"),
            condition("PodsReady", "False", "WaitForRecovery", at="2026-01-31T12:00:02.500+00:00"),
            condition("Evicted", "True", "PodsReadyTimeout", at="2026-01-31T13:00:03+01:00"),
            condition("Preempted", "False", "QuotaReserved"),
            condition("Requeued", "False", "PodsReadyTimeout"),
            condition("Finished", "False"),
        ],
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}],
        },
        "requeueState": {"count": 2, "requeueAt": "2026-01-31T12:01:00Z"},
        "accumulatedPastExecutionTimeSeconds": 7,
        "reclaimablePods": [{"name": "main", "count": 1}],
        "admissionChecks": [
            {
                "name": "check",
                "state": "Retry",
                "message": "later",
                "lastTransitionTime": "2026-01-31T12:00:00Z",
                "requeueAfterSeconds": 30,
                "retryCount": 1,
                "podSetUpdates": [
                    {"name": "main", "nodeSelector": {"pool": "p7"}},
                    {"name": "driver", "labels": {"a": "b"}},
                ],
            }
        ],
        "unhealthyNodes": [{"name": "n1"}],
    }
    parsed = parse.workload(workload(status=status))
    assert parsed.admission == model.Admission("cq", (model.PodSetAssignment("main", 2, {"cpu": "f"}, {"cpu": 2000}),))
    assert (parsed.reserved_at, parsed.admitted, parsed.admitted_at) == (T0, True, T0 + 1000)
    assert (parsed.pods_ready, parsed.pods_ready_at, parsed.pods_were_ready) == (False, T0 + 2500, True)
    assert (parsed.evicted, parsed.evicted_at, parsed.preempted) == ("PodsReadyTimeout", T0 + 3000, "")
    assert (parsed.requeued, parsed.requeue_count, parsed.requeue_at) == (False, 2, T0 + 60_000)
    assert (parsed.finished, parsed.on_hold, parsed.past_execution_seconds) == (False, False, 7)
    assert parsed.reclaimable == {"main": 1}
    assert parsed.checks == (model.CheckState("check", "Retry", "later", T0, 30, 1, {"main": {"pool": "p7"}}),)
    assert parsed.unhealthy_nodes == ("n1",)


def test_whose_it_is_decides_who_replaces_its_nodes() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    grouped = {names.IS_GROUP_WORKLOAD: "true"}
    for owners, written, unowned, alone in (
        ([], {}, True, False),
        ([job], {}, False, False),
        ([pod], {}, False, True),
        ([pod], grouped, False, False),
        ([pod, {**pod, "uid": "q"}], {}, False, False),
    ):
        parsed = parse.workload(workload(ownerReferences=owners, annotations=written))
        assert (parsed.unowned, parsed.lone_pod) == (unowned, alone)


@pytest.mark.parametrize(("written", "seconds"), [("30m", 1800.0), ("0s", None), ("soon", None)])
def test_checkpoints_are_declared_by_annotation(written: str, seconds: float | None) -> None:
    assert parse.workload(workload(annotations={names.CHECKPOINT_INTERVAL: written})).checkpoint_seconds == seconds


def test_an_admission_counts_only_while_quota_is_reserved() -> None:
    admission = {"clusterQueue": "cq", "podSetAssignments": []}
    lost = parse.workload(
        workload(status={"admission": admission, "conditions": [condition("QuotaReserved", "False")]})
    )
    assert lost.admission is None
    assert lost.reserved_at == 0
    reserved = workload(status={"conditions": [condition("QuotaReserved", "True")]})
    assert parse.workload(reserved).admission is None


@pytest.mark.parametrize(("written", "gates"), [("true", (names.HOLD,)), ("false", ()), ("", ())])
def test_the_hold_of_the_author_is_a_gate_while_it_waits(written: str, gates: tuple[str, ...]) -> None:
    assert parse.workload(workload(annotations={names.HOLD: written})).gates == gates
    both = {names.HOLD: written, names.ADMISSION_GATED_BY: "example.com/gate"}
    assert parse.workload(workload(annotations=both)).gates == ("example.com/gate", *gates)
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": []},
        "conditions": [condition("QuotaReserved", "True")],
    }
    assert parse.workload(workload(annotations={names.HOLD: written}, status=status)).gates == (), "it keeps its quota"


@pytest.mark.parametrize(
    ("limit", "expected"), [("10", 10), ("1", 1), ("0", 1), ("", 1), ("ten", 1), ("-3", 1), ("9" * 5000, 1)]
)
def test_the_limit_of_an_array(limit: str, expected: int) -> None:
    found = parse.workload(workload(annotations={names.ARRAY: "sweep", names.ARRAY_LIMIT: limit}))
    assert found.array == model.ArrayLimit("sweep", expected)
    meta = {"ownerReferences": [{"name": "sweep-12", "uid": "u", "controller": True}]}
    numbered = parse.workload(workload(annotations={names.ARRAY: "sweep", names.ARRAY_LIMIT: limit}, **meta))
    assert numbered.array == model.ArrayLimit("sweep", expected, 12)
    assert parse.workload(workload(annotations={names.ARRAY_LIMIT: limit})).array is None
    assert parse.workload(workload(annotations={names.ARRAY: "sweep"})).array is None


def test_on_hold_and_requeued() -> None:
    held = parse.workload(
        workload(status={"conditions": [condition("QuotaReserved", "False", "OnHold"), condition("Requeued", "True")]})
    )
    assert (held.on_hold, held.requeued) == (True, True)
    assert parse.workload(workload()).requeued is None
    backs_off = parse.workload(workload(status={"conditions": [condition("Requeued", "False", "PodsReadyTimeout")]}))
    assert backs_off.requeued is False
    uncounted = parse.workload(workload(status={"conditions": [condition("Requeued", "False", "Inadmissible")]}))
    assert uncounted.requeued is None, "it is decided about as soon as its devices can be counted"


@pytest.mark.parametrize("boost", ["", "high", "1" * 5000, "1.5"])
def test_a_wrong_boost_counts_nothing(boost: str) -> None:
    assert parse.workload(workload(annotations={names.PRIORITY_BOOST: boost})).boost == 0


def test_what_a_pod_selects() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    preferred = [{"weight": 5, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}]
    spec = pod(
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "gpu", "operator": "Exists"}, {"key": "spot", "value": "yes", "effect": "NoSchedule"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            }
        },
    )
    pod_set = parse.workload(workload({"podSets": [{"template": {"spec": spec}}]})).pod_sets[0]
    assert pod_set.node_selector == {"disk": "ssd"}
    assert pod_set.tolerations == (
        model.Toleration("gpu", "Exists"),
        model.Toleration("spot", "Equal", "yes", "NoSchedule"),
    )
    assert pod_set.affinity == (
        (model.Expression("zone", "In", ("a", "b")),),
        (model.Expression("metadata.name", "In", ("n1",), field=True),),
        (),
    )
    assert pod_set.preferred_affinity == (model.PreferredTerm(5, (model.Expression("gpu", "Exists"),)),)


def test_pods_that_name_their_node() -> None:
    itself = model.Expression("metadata.name", "In", ("n1",), field=True)
    term = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}}}

    def affinity(**fields: Any) -> Any:
        spec = pod(nodeName="n1", **fields)
        return parse.workload(workload({"podSets": [{"template": {"spec": spec}}]})).pod_sets[0].affinity

    assert affinity() == ((itself,),)
    assert affinity(affinity=required) == ((model.Expression("zone", "Exists"), itself), ())


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, None),
        ({"podIndexLabel": "batch.kubernetes.io/job-completion-index"}, None),
        ({"required": "rack"}, model.TopologyRequest(required="rack")),
        ({"preferred": "rack", "podSetGroupName": "g"}, model.TopologyRequest(preferred="rack", group="g")),
        ({"unconstrained": True}, model.TopologyRequest(unconstrained=True)),
        (
            {"required": "block", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
            model.TopologyRequest(required="block", slices=(model.Slice("rack", 4),)),
        ),
        (
            {
                "podsetSliceRequiredTopologyConstraints": [
                    {"topology": "rack", "size": 8},
                    {"topology": "host", "size": 4},
                ]
            },
            model.TopologyRequest(slices=(model.Slice("rack", 8), model.Slice("host", 4))),
        ),
    ],
)
def test_topology_requests(request_: Json, expected: model.TopologyRequest | None) -> None:
    template = {"spec": pod()}
    parsed = parse.workload(workload({"podSets": [{"template": template, "topologyRequest": request_}]}))
    assert parsed.pod_sets[0].topology == expected


def shape_of(**spec: Any) -> str:
    parsed = parse.workload(workload({"podSets": [{"template": {"spec": {**pod(asks({"cpu": 1})), **spec}}}]}))
    return parsed.pod_sets[0].shape


def test_shape_tells_apart_what_the_other_fields_do_not() -> None:
    ports = [asks({"cpu": 1}, ports=[{"containerPort": 80, "hostPort": 80}])]
    different = [
        shape_of(),
        shape_of(runtimeClassName="nvidia"),
        shape_of(hostNetwork=True),
        shape_of(containers=ports),
        shape_of(initContainers=ports),
        shape_of(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}),
        shape_of(resourceClaims=[{"name": "gpu"}]),
        shape_of(topologySpreadConstraints=[{"maxSkew": 1}]),
    ]
    assert len(set(different)) == len(different)
    assert (
        shape_of() == "" == shape_of(containers=[asks({"cpu": 1}, ports=[{"containerPort": 80}], env=[{"name": "A"}])])
    )
    assert shape_of(runtimeClassName="a", hostNetwork=True) == shape_of(hostNetwork=True, runtimeClassName="a")


# --- errors -----------------------------------------------------------------------------------------------------------


def pod_sets(*sets: Any) -> Json:
    return workload({"podSets": list(sets)})


def in_template(**spec: Any) -> Json:
    return pod_sets({"template": {"spec": spec}})


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ([], ""),
        ({}, "metadata.namespace"),
        ({"metadata": {"namespace": "a"}}, "metadata.name"),
        ({"metadata": "x"}, "metadata"),
        (workload({"podSets": {}}), "spec.podSets"),
        (pod_sets("x"), "spec.podSets[0]"),
        (pod_sets({"count": "3"}), "spec.podSets[0].count"),
        (pod_sets({"count": True}), "spec.podSets[0].count"),
        (pod_sets({"count": -1}), "spec.podSets[0].count"),
        (pod_sets({"template": []}), "spec.podSets[0].template"),
        (in_template(containers="x"), "spec.podSets[0].template.spec.containers"),
        (
            in_template(containers=[asks(), asks({"cpu": "4 cores"})]),
            "spec.podSets[0].template.spec.containers[1].resources.requests[cpu]",
        ),
        (
            in_template(initContainers=[asks(limits={"memory": "-1Gi"})]),
            "spec.podSets[0].template.spec.initContainers[0].resources.limits[memory]",
        ),
        (in_template(overhead={"cpu": []}), "spec.podSets[0].template.spec.overhead[cpu]"),
        (in_template(nodeSelector={"a": 1}), "spec.podSets[0].template.spec.nodeSelector[a]"),
        (in_template(tolerations=[{"key": 7}]), "spec.podSets[0].template.spec.tolerations[0].key"),
        (
            in_template(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]
                        }
                    }
                }
            ),
            "spec.podSets[0].template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        (
            pod_sets({"topologyRequest": {"podSetSliceRequiredTopology": "a", "podSetSliceSize": 0}}),
            "spec.podSets[0].topologyRequest",
        ),
        (workload({"priority": "high"}), "spec.priority"),
        (workload({"active": "no"}), "spec.active"),
        (workload(annotations={"a": 1}), "metadata.annotations[a]"),
        (workload(creationTimestamp="yesterday"), "metadata.creationTimestamp"),
        (workload(creationTimestamp="2026-01-31T12:00:00"), "metadata.creationTimestamp"),
        (workload(creationTimestamp=7), "metadata.creationTimestamp"),
        (workload(status={"conditions": [{}]}), "status.conditions[0].type"),
        (
            workload(status={"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "x"}]}),
            "status.conditions[Admitted].lastTransitionTime",
        ),
        (
            workload(
                status={
                    "conditions": [condition("QuotaReserved", "True")],
                    "admission": {"podSetAssignments": [{"resourceUsage": {"cpu": "x"}}]},
                }
            ),
            "status.admission.podSetAssignments[0].resourceUsage[cpu]",
        ),
        (
            workload(
                status={
                    "conditions": [condition("QuotaReserved", "True")],
                    "admission": {
                        "podSetAssignments": [{"topologyAssignment": {"levels": ["a"], "slices": [{"domainCount": 0}]}}]
                    },
                }
            ),
            "status.admission.podSetAssignments[0].topologyAssignment.slices[0].domainCount",
        ),
    ],
)
def test_errors_name_the_field(obj: Any, path: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse.workload(obj)
    assert caught.value.path == path
    assert str(caught.value).startswith(path)


READERS: dict[str, Callable[[Any], Any]] = {
    "Workload": parse.workload,
    "ClusterQueue": parse.cluster_queue,
    "LocalQueue": parse.local_queue,
    "Cohort": parse.cohort,
    "ResourceFlavor": parse.flavor,
    "Topology": parse.topology,
    "AdmissionCheck": parse.admission_check,
}
SCHEMAS = {kind.kind: structural(kind.versions[-1].model) for kind in kinds.KINDS if kind.kind in READERS}
METADATA = {"name": "x", "namespace": "y", "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"}
MODELLED = [case for case in accepted.schemas() if case[0] in {*READERS, "QueuePolicy"} - {"Workload"}]
JUNK = st.sampled_from([None, "", "x", 0, -1, 2**70, 1.5, True, [], {}, [None], ["x"], {"a": None}, [{}], [[]]])
some = examples(40, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", READERS)
@some
@given(data=st.data())
def test_malformed_objects_raise_nothing_else(kind: str, data: st.DataObject) -> None:
    schema = SCHEMAS[kind]
    obj = copy.deepcopy({"metadata": METADATA, **with_defaults(data.draw(objects(schema, {})), schema)})
    place: Any = obj
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JUNK)
    try:
        READERS[kind](obj)
    except ParseError as error:
        assert error.message


@pytest.mark.parametrize(
    ("kind", "schema"), [pytest.param(k, schema, id=k) for k, _, version, schema in MODELLED if version != "v1beta1"]
)
def test_what_the_schema_accepts_is_read_whatever_is_left_out(kind: str, schema: Json) -> None:
    def read(body: Json) -> None:
        for defaulted in (body, with_defaults(body, schema)):
            obj = {"metadata": METADATA, **defaulted}
            if kind != "QueuePolicy":
                READERS[kind](obj)
                continue
            policy_reader.with_policy(model.ClusterQueue("a"), obj)
            policy_reader.stall(obj)
            policy_reader.selects(obj, {"metadata": {"name": "a"}})

    fullest = accepted.fullest(schema)
    if kind == "ClusterQueue":
        fullest["spec"]["namespaceSelector"]["matchExpressions"][0]["operator"] = "Exists"  # the schema says: any text
    if kind == "QueuePolicy":
        # rules say more than the schema: other tests read what these fields need
        del fullest["spec"]["order"]["windows"]
        fullest["spec"]["order"]["whenFull"] |= {"above": "1", "below": "0.5"}
        del fullest["spec"]["placement"]["telemetry"], fullest["spec"]["placement"]["scores"][0]["telemetry"]
    read(accepted.smallest(schema))
    read({})
    for _, body in [("", fullest), *accepted.variants(fullest, schema)]:
        read(body)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"spares": "9" * 10_000}, "spec.recovery.spares: must match "),
        ({"spares": []}, "spec.recovery.spares: must be a whole number or a string"),
        ({"soak": "1" * 300 + "h"}, "spec.recovery.soak: "),
        ({"breaker": "2"}, "spec.recovery.breaker: must match "),
        ({"swapBudget": 2**63}, "spec.recovery.swapBudget: must be a whole number within 64 bits"),
        ({"swapBudget": True}, "spec.recovery.swapBudget: must be a whole number"),
        ({"lend": "no"}, "spec.recovery.lend: must be true or false"),
        ("all", "spec.recovery: must be an object"),
    ],
)
def test_what_a_policy_may_not_say_is_named(spec: Any, complaint: str) -> None:
    with pytest.raises(ParseError) as caught:
        policy_reader.recovery({"metadata": {"name": "p"}, "spec": {"recovery": spec}})
    assert str(caught.value).startswith(complaint) and len(str(caught.value)) < 200


def test_what_a_policy_says_wrong_is_nothing_to_queues_that_others_are_for() -> None:
    wrong = {"metadata": {"name": "a"}, "spec": {"clusterQueues": {"names": ["x"]}, "recovery": {"soak": "soon"}}}
    right = {"metadata": {"name": "b"}, "spec": {"clusterQueues": {"names": ["q", "x"]}}}
    assert policy_reader.in_force([wrong, right], {"metadata": {"name": "q"}}) is right
    assert policy_reader.in_force([wrong, right], {"metadata": {"name": "x"}}) is wrong


@pytest.mark.parametrize("where", ["nodeLabels", "elsewhere"])
def test_what_is_nested_without_end_is_refused(where: str) -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    with pytest.raises(ParseError, match="spec: is nested in more than 100 levels"):
        parse.flavor({"metadata": METADATA, "spec": {where: deep}})


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"nodeLabels": {"zone": 7}}, "spec.nodeLabels[zone]", "must be a string"),
        ({"nodeTaints": [{"key": "k"}]}, "spec.nodeTaints[0].effect", "is required"),
        ({"nodeTaints": {}}, "spec.nodeTaints", "must be a list"),
        ({"tolerations": ["x"]}, "spec.tolerations[0]", "must be an object"),
        ({"topology_name": "t", "topologyName": "T"}, "spec.topologyName", "must match pattern"),
        ({"node_labels": 7}, "", ""),  # no name of a field of theirs
    ],
)
def test_errors_in_models_name_the_field_as_it_is_written(spec: Json, path: str, message: str) -> None:
    try:
        assert parse.flavor({"metadata": METADATA, "spec": spec}) == model.Flavor("x") and not path
    except ParseError as error:
        assert (error.path, error.message[: len(message)]) == (path, message)


@pytest.mark.parametrize("reader", [*READERS.values(), parse.namespace, parse.node, parse.foreign_pod])
@pytest.mark.parametrize("junk", [None, "x", 7, [], {}, {"metadata": None}, {"metadata": {"name": 7}}, {"spec": [1]}])
def test_junk_is_refused(reader: Callable[[Any], Any], junk: Any) -> None:
    if reader is parse.foreign_pod and isinstance(junk, dict) and "spec" not in junk:
        assert reader(junk) is None
        return
    with pytest.raises(ParseError):
        reader(junk)


# --- configuration ----------------------------------------------------------------------------------------------------


def test_a_full_cluster_queue() -> None:
    quota = {"name": "cpu", "nominalQuota": "5", "borrowingLimit": "1500m", "lendingLimit": 0}
    obj = {
        "metadata": {"name": "cq", "labels": {"team": "a"}, "deletionTimestamp": "2026-01-31T12:00:00Z"},
        "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}],
            "cohortName": "all",
            "queueingStrategy": "StrictFIFO",
            "namespaceSelector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}],
            },
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "BorrowingOverPreemption"},
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 0},
            },
            "fairSharing": {"weight": "1500m"},
            "stopPolicy": "Hold",
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["f"]}]},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        },
    }
    group = model.ResourceGroup(("cpu",), (model.FlavorQuotas("f", {"cpu": model.Quota(5000, 1500, 0)}),))
    assert parse.cluster_queue(obj) == model.ClusterQueue(
        name="cq",
        cohort="all",
        strategy="StrictFIFO",
        groups=(group,),
        fungibility=model.Fungibility("TryNextFlavor", "TryNextFlavor", "BorrowingOverPreemption"),
        preemption=model.PreemptionPolicy("LowerPriority", "Any", "LowerPriority", 0),
        weight=1.5,
        namespace_selector=model.LabelSelector(
            (model.Expression("a", "In", ("b",)), model.Expression("c", "NotIn", ("d",)))
        ),
        stop_policy="Hold",
        checks=(model.CheckRef("c", ("f",)),),
        admission_mode="UsageBasedAdmissionFairSharing",
        terminating=True,
        labels={"team": "a"},
    )


def test_no_selector_is_not_an_empty_selector() -> None:
    assert parse.cluster_queue({"metadata": {"name": "a"}}).namespace_selector is None
    everything = parse.cluster_queue({"metadata": {"name": "a"}, "spec": {"namespaceSelector": {}}})
    assert everything.namespace_selector == model.LabelSelector()


@pytest.mark.parametrize(
    ("resources", "path"),
    [
        ([{"name": "cpu"}], "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
        ([{"name": "cpu", "nominalQuota": "-1"}], "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
        (
            [{"name": "cpu", "nominalQuota": 1, "borrowingLimit": "lots"}],
            "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit",
        ),
        ([{"name": "memory", "nominalQuota": 1}], "spec.resourceGroups[0].flavors[0].resources"),
        ([{"nominalQuota": 1}], "spec.resourceGroups[0].flavors[0].resources[0].name"),
    ],
)
def test_errors_in_quotas(resources: list[Json], path: str) -> None:
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}
    with pytest.raises(ParseError) as caught:
        parse.cluster_queue({"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}})
    assert caught.value.path == path


def test_the_other_kinds() -> None:
    metadata = {"name": "x", "namespace": "team", "labels": {"a": "b"}}
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    assert parse.flavor(
        {
            "metadata": metadata,
            "spec": {
                "nodeLabels": {"gpu": "h100"},
                "nodeTaints": [taint],
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                "topologyName": "t",
            },
        }
    ) == model.Flavor("x", {"gpu": "h100"}, (model.Taint("spot", "true"),), (model.Toleration("spot", "Exists"),), "t")
    assert parse.cohort(
        {"metadata": metadata, "spec": {"parentName": "p", "fairSharing": {"weight": "0"}}}
    ) == model.Cohort("x", "p", weight=0.0)
    usage = {"consumedResources": {"cpu": "1500m"}, "lastUpdate": "2026-01-31T12:00:00Z"}
    assert parse.local_queue(
        {
            "metadata": metadata,
            "spec": {"clusterQueue": "cq", "stopPolicy": "HoldAndDrain", "fairSharing": {"weight": 2}},
            "status": {"fairSharing": {"admissionFairSharingStatus": usage}},
        }
    ) == model.LocalQueue("team", "x", "cq", "HoldAndDrain", 2.0, consumed={"cpu": 1500.0}, consumed_at=T0)
    assert parse.admission_check(
        {
            "metadata": metadata,
            "spec": {"controllerName": "c"},
            "status": {"conditions": [condition("Active", "False")]},
        }
    ) == model.AdmissionCheck("x", "c", active=False)
    assert parse.topology(
        {"metadata": metadata, "spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]}}
    ) == model.Topology("x", ("block", "rack"))
    assert parse.namespace({"metadata": metadata}) == model.Namespace("x", {"a": "b"})


def test_nodes() -> None:
    obj = {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {"cpu": "63500m", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [condition("Ready", "True")],
        },
    }
    assert parse.node(obj) == model.Node(
        "n",
        {"a": "b"},
        {"cpu": 63500, "memory": 2**40, "nvidia.com/gpu": 8, "pods": 110},
        (model.Taint("k", "", "NoExecute"),),
        ready=True,
        unschedulable=True,
        conditions={"Ready": ("True", T0)},
    )
    assert not parse.node({"metadata": {"name": "n"}}).ready


def test_what_decides_about_a_node_and_what_does_not() -> None:
    heartbeat = condition("Ready", "Unknown") | {"lastHeartbeatTime": "2026-01-31T13:00:00Z"}
    obj: Json = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "annotations": {
                "example.com/health": "bad",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "status": {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [heartbeat]},
    }
    found = parse.node(obj)
    assert (found.uid, found.capacity, found.annotations) == ("u", {"nvidia.com/gpu": 8}, {"example.com/health": "bad"})
    assert found.conditions == {"Ready": ("Unknown", T0)}
    heartbeat["lastHeartbeatTime"] = "2026-01-31T14:00:00Z"
    assert parse.node(obj) == found


def test_foreign_pods_count_while_they_are_on_a_node() -> None:
    obj: Json = {
        "metadata": METADATA,
        "spec": {**pod(asks({"cpu": 1})), "nodeName": "n"},
        "status": {"phase": "Running"},
    }
    assert parse.foreign_pod(obj) == model.ForeignPod("y/x", "n", {"cpu": 1000})
    assert parse.foreign_pod({**obj, "status": {"phase": "Succeeded"}}) is None
    assert parse.foreign_pod({**obj, "spec": pod()}) is None


@pytest.mark.parametrize("key", ["required", "preferred", "unconstrained", "slice-required"])
def test_the_workload_counts_for_pods_that_ask_for_a_place_by_topology(key: str) -> None:
    meta = {"name": "x", "namespace": "y", "annotations": {f"kueue.x-k8s.io/podset-{key}-topology": "true"}}
    assert parse.foreign_pod({"metadata": meta, "spec": {**pod(), "nodeName": "n"}}) is None


# --- admissions -------------------------------------------------------------------------------------------------------

TEXT = st.sampled_from(["a", "b", "node-1", "node-2"])
ASSIGNMENTS = st.builds(
    model.PodSetAssignment,
    name=TEXT,
    count=st.integers(0, 5000),
    flavors=st.dictionaries(TEXT, TEXT, max_size=3),
    usage=st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, model.UNLIMITED)),
    topology=st.none()
    | st.integers(1, 3).flatmap(
        lambda levels: st.builds(
            model.TopologyAssignment,
            levels=st.tuples(*[TEXT] * levels),
            domains=st.lists(
                st.builds(model.Domain, values=st.tuples(*[TEXT] * levels), count=st.integers(1, 99)), max_size=6
            ).map(tuple),
        )
    ),
    delayed_topology=st.sampled_from(["", "Pending", "Ready"]),
)


@given(st.builds(model.Admission, cluster_queue=TEXT, pod_sets=st.lists(ASSIGNMENTS, max_size=3).map(tuple)))
def test_admissions_come_back_as_they_were_written(admission: model.Admission) -> None:
    assert parse.admission(orjson.loads(orjson.dumps(render.admission(admission)))) == admission


def test_a_written_admission() -> None:
    domains = (model.Domain(("n1",), 1), model.Domain(("n2",), 1))
    assignment = model.PodSetAssignment(
        "main",
        2,
        {"cpu": "f", "memory": "f"},
        {"cpu": 1500, "memory": 3 * 2**30, "nvidia.com/gpu": 16},
        model.TopologyAssignment(("kubernetes.io/hostname",), domains),
    )
    assert render.admission(model.Admission("cq", (assignment,))) == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": "main",
                "count": 2,
                "flavors": {"cpu": "f", "memory": "f"},
                "resourceUsage": {"cpu": "1500m", "memory": "3Gi", "nvidia.com/gpu": "16"},
                "topologyAssignment": {
                    "levels": ["kubernetes.io/hostname"],
                    "slices": [
                        {
                            "domainCount": 2,
                            "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}],
                            "podCounts": {"universal": 1},
                        }
                    ],
                },
            }
        ],
    }


def test_an_admission_of_pods_that_request_nothing_has_no_empty_maps() -> None:
    (row,) = render.admission(model.Admission("cq", (model.PodSetAssignment("main", 2, {}, {}),)))["podSetAssignments"]
    assert row == {"name": "main", "count": 2}


# --- speed ------------------------------------------------------------------------------------------------------------


#: instructions of Python that it takes to read a workload whose template was read before, about 0.1 ms
STEPS = 3500


def test_known_templates_are_cheap() -> None:
    """A relist brings 15,000 workloads at once."""
    status = {
        "conditions": [condition("QuotaReserved", "True"), condition("Admitted", "True")],
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}],
        },
    }
    raw = orjson.dumps(workload({"queueName": "q"}, status, creationTimestamp="2026-01-31T12:00:00Z"))
    parse.workload(orjson.loads(raw))
    many = [orjson.loads(raw) for _ in range(100)]
    assert worst.steps(lambda: [parse.workload(obj) for obj in many]) < 1.2 * len(many) * STEPS


def test_the_quota_of_a_workload_that_cannot_be_read_is_counted_all_the_same() -> None:
    rows = [{"name": "main", "count": 4, "flavors": {"nvidia.com/gpu": "a"}, "resourceUsage": {"nvidia.com/gpu": "8"}}]
    body: Any = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
        "spec": {"queueName": "q", "podSets": "spoilt"},
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{**rows[0], "topologyAssignment": "spoilt"}]},
            "conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}],
        },
    }
    with pytest.raises(parse.ParseError):
        parse.workload(body)
    held = parse.holding(body)
    assert held is not None and held.admission is not None and held.admitted
    assert held.admission.pod_sets[0].usage == {"nvidia.com/gpu": 8}
    assert held.pod_sets[0].requests == {"nvidia.com/gpu": 2}
    body["status"]["conditions"][0]["status"] = "False"
    assert parse.holding(body) is None


def test_a_placement_policy_is_read_as_it_is_written() -> None:
    def read(**placement: Any) -> model.PlacementPolicy | None:
        return policy_reader.placement({"metadata": {"name": "p"}, "spec": {"placement": placement}})

    assert policy_reader.placement({"metadata": {"name": "p"}, "spec": {}}) is None
    assert read() == model.PlacementPolicy("Fragmentation")
    assert read(profile="Pack") == model.PlacementPolicy("Pack")
    scores = [
        {"name": "NodeLabel", "label": "disk", "value": "ssd", "tier": 1, "weight": 3},
        {"name": "Pack", "weights": {"gpu": 2}},
    ]
    label = model.PlacementScore("NodeLabel", 1, 3, "disk", "ssd")
    pack = model.PlacementScore("Pack", weights=(("cpu", 0), ("memory", 0), ("gpu", 2)))
    assert read(scores=scores) == model.PlacementPolicy(scores=(label, pack))


def test_filters_by_what_is_free_have_margins_or_the_usual_ones() -> None:
    def read(*filters: dict[str, Any]) -> tuple[model.PlacementFilter, ...]:
        found = policy_reader.placement({"metadata": {"name": "p"}, "spec": {"placement": {"filters": list(filters)}}})
        assert found is not None
        return found.filters

    assert read({"name": "MemSafe"}) == (model.PlacementFilter("MemSafe", headroom=50, beyond=600),)
    said = {"name": "MemSafe", "percent": 0, "perPod": "1Gi"}
    assert read(said) == (model.PlacementFilter("MemSafe", headroom=0, beyond=1024),)
    assert read({**said, "perPod": 0})[0].beyond == 0
    assert read({"name": "BandwidthFit"}) == (model.PlacementFilter("BandwidthFit"),)


def test_caps_of_power_are_read_with_the_usual_margin() -> None:
    def read(said: dict[str, Any]) -> tuple[model.PowerCap, ...]:
        found = policy_reader.placement({"metadata": {"name": "p"}, "spec": {"placement": {"power": [said]}}})
        assert found is not None
        return found.power

    said = {"domainLabel": "rack", "capWatts": 40_000}
    assert read(said) == (model.PowerCap("rack", 40_000, percent=95, gpu_watts=700),)
    own = {"domains": [{"domain": "r7", "capWatts": 20_000}], "percent": 80, "gpuWatts": 400, "draw": "Measured"}
    (cap,) = read(said | own)
    assert cap == model.PowerCap("rack", 40_000, (("r7", 20_000),), 80, 400, measured=True)
    assert (cap.watts_of("r7"), cap.watts_of("r1")) == (20_000, 40_000)


def test_a_search_for_places_is_read() -> None:
    def read(**said: Any) -> model.PlacementSearch | None:
        found = policy_reader.placement({"metadata": {"name": "p"}, "spec": {"placement": said}})
        assert found is not None
        return found.search

    assert read() is None
    assert read(search={}) == model.PlacementSearch(budget=200, improve=None, seed=0)
    assert read(search={"budget": 50, "improve": 10, "seed": 7}) == model.PlacementSearch(50, 10, 7)


@pytest.mark.parametrize(
    ("written", "expected"), [("700", 700), ("0", 0), ("1e3", 0), ("-1", 0), ("1234567", 0), ("", 0), ("9" * 5000, 0)]
)
def test_what_a_node_draws_is_read_or_not_said(written: str, expected: int) -> None:
    annotations = {"gangline.io/gpu-watts": written, "gangline.io/idle-watts": written}
    node = parse.node({"metadata": {"name": "n", "annotations": annotations}, "spec": {}, "status": {}})
    assert (node.gpu_watts, node.idle_watts) == (expected, expected)


@pytest.mark.parametrize(
    ("placement", "complaint"),
    [
        ({"power": []}, "spec.placement.power: "),
        ({"search": {"budget": 0}}, "spec.placement.search.budget: "),
        ({"search": {"budget": 1001}}, "spec.placement.search.budget: "),
        ({"search": {"improve": -1}}, "spec.placement.search.improve: "),
        ({"search": {"seed": 10**9}}, "spec.placement.search.seed: "),
        ({"power": [{"domainLabel": "rack"}]}, "spec.placement.power[0].capWatts: "),
        ({"power": [{"domainLabel": "rack", "capWatts": 0}]}, "spec.placement.power[0].capWatts: "),
        ({"power": [{"domainLabel": "rack", "capWatts": 1, "percent": 101}]}, "spec.placement.power[0].percent: "),
        ({"power": [{"domainLabel": "rack", "capWatts": 1, "draw": "None"}]}, "spec.placement.power[0].draw: "),
        ({"filters": [{"name": "MemSafe", "percent": 51}]}, "spec.placement.filters[0].percent: "),
        ({"filters": [{"name": "MemSafe", "perPod": "2Ti"}]}, "spec.placement.filters[0].perPod: "),
        ({"filters": [{"name": "MemSafe", "perPod": "-1"}]}, "spec.placement.filters[0].perPod: "),
        ({"filters": [{"name": "Fits"}]}, "spec.placement.filters[0].name: "),
        ({"profile": "CardPack"}, "spec.placement.profile: "),
        ({"profile": "Best"}, "spec.placement.profile: "),
        ({"scores": [{"name": "Best"}]}, "spec.placement.scores[0].name: "),
        ({"scores": []}, "spec.placement.scores: "),
        ({"scores": [{"name": "Pack", "tier": 10}]}, "spec.placement.scores[0].tier: "),
        ({"scores": [{"name": "Pack", "weights": {"gpu": -1}}]}, "spec.placement.scores[0].weights.gpu: "),
        ({"scores": [{"name": "NodeLabel", "label": "x" * 400}]}, "spec.placement.scores[0].label: "),
    ],
)
def test_what_a_placement_policy_may_not_say_is_named(placement: Any, complaint: str) -> None:
    with pytest.raises(ParseError) as caught:
        policy_reader.placement({"metadata": {"name": "p"}, "spec": {"placement": placement}})
    assert str(caught.value).startswith(complaint)


def _score(name: str) -> dict[str, Any]:
    return {"name": name, "label": "a", "annotation": "a", "deviation": "a", "resource": "a", "plugin": "a"}


def test_the_scores_and_profiles_that_a_policy_may_name_are_known_to_the_engine() -> None:
    section = get_args(PlacementScoreSpec.model_fields["name"].annotation)
    profiles = [name for part in get_args(PlacementSpec.model_fields["profile"].annotation) for name in get_args(part)]
    assert section and profiles
    for name in section:
        policy = policy_reader.placement({"metadata": {"name": "p"}, "spec": {"placement": {"scores": [_score(name)]}}})
        assert policy is not None
        PlacingProfile((), tuple(Score(each.name) for each in policy.scores))
    assert set(profiles) <= set(PROFILES)
