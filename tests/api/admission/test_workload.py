"""Workloads: what can be queued, what holds quota stays, and what may be said in the status."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.builders.written import Json, template, workload

from gangline.api import names
from gangline.api.admission import AdmissionFacts, validate
from gangline.api.admission.of_jobs import jobs
from gangline.api.admission.workload import BOOST_PATH


def errors(obj: Json, old: Json | None = None) -> list[str]:
    return [str(error) for error in validate(obj, old, AdmissionFacts())]


def pod_set(name: str = "main", **fields: Any) -> Json:
    return {"name": name, "count": 8, "template": template(), **fields}


def reserved(obj: Json | None = None, **status: Any) -> Json:
    obj = copy.deepcopy(obj or workload())
    usage = {"cpu": "8", "nvidia.com/gpu": "32"}
    assignment = {"name": "main", "count": 8, "flavors": {"cpu": "h100"}, "resourceUsage": usage}
    obj["status"] = {
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "admission": {"clusterQueue": "team", "podSetAssignments": [assignment]},
        **status,
    }
    return obj


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, ""),
        ({"podSets": [pod_set(count=0)]}, ""),
        ({"podSets": [pod_set(), pod_set()]}, 'spec.podSets[1].name: Duplicate value: "main"'),
        ({"podSets": [pod_set("Main")]}, 'spec.podSets[0].name: Invalid value: "Main": a lowercase RFC 1123 label'),
        ({"podSets": [pod_set(count=-1)]}, "spec.podSets[0].count: Invalid value: -1: must be greater than"),
        (
            {"podSets": [pod_set(minCount=9)]},
            "spec.podSets[0].minCount: Invalid value: 9: minCount should be positive and less or equal to count (8)",
        ),
        (
            {"podSets": [pod_set(minCount=1), pod_set("b", minCount=1)]},
            "spec.podSets: Invalid value: 2: at most one podSet can use minCount",
        ),
        ({"podSets": [pod_set(str(i)) for i in range(19)]}, "spec.podSets: Too many: 19: must have at most 18 items"),
        ({"queueName": "A"}, 'spec.queueName: Invalid value: "A"'),
    ],
)
def test_pod_sets(spec: Json, said: str):
    found = errors(workload(**spec))
    assert found == [] if not said else found[0].startswith(said), found


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_requests(kind: str):
    body = template()
    body["spec"][kind] = [{"name": "a", "resources": {"requests": {"pods": "1", "cpu": "-1"}, "limits": {"gpu": "x"}}}]
    path = f"spec.podSets[0].template.spec.{kind}[0].resources"
    found = errors(workload(podSets=[pod_set(template=body)]))
    assert found[:2] == [
        f'{path}.requests[pods]: Invalid value: "pods": the key is reserved for internal kueue use',
        f'{path}.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ]
    assert found[2].startswith(f'{path}.limits[gpu]: Invalid value: "x": quantities must match')


@pytest.mark.parametrize(
    ("boost", "said"),
    [
        ("5", ""),
        ("-5", ""),
        ("high", "must be a valid signed integer"),
        ("3000000000", "must be a valid signed integer"),
        ("", 'must be a valid signed integer; use "0" explicitly, empty string is not allowed'),
    ],
)
def test_priority_boost_is_a_number(boost: str, said: str):
    obj = workload()
    obj["metadata"]["annotations"] = {names.PRIORITY_BOOST: boost}
    found = errors(obj)
    assert found == ([] if not said else [f'{BOOST_PATH}: Invalid value: "{boost}": {said}'])


def gated(gates: str | None) -> Json:
    obj = workload()
    obj["metadata"]["annotations"] = {names.ADMISSION_GATED_BY: gates} if gates is not None else {}
    return obj


def test_gates_are_named_well_and_only_removed():
    path = f"metadata.annotations[{names.ADMISSION_GATED_BY}]"
    assert errors(gated("a.io/x, b.io/y")) == []
    assert errors(gated("a.io/x,,a.io/x")) == [
        f'{path}: Invalid value: "a.io/x,,a.io/x": cannot contain empty gate names',
        f'{path}: Invalid value: "a.io/x,,a.io/x": duplicate gate name: a.io/x',
    ]
    assert errors(gated("x")) == [f'{path}: Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")']
    assert errors(gated("a.io/x"), gated("b.io/y,a.io/x")) == []
    assert errors(gated(None), gated("a.io/x")) == []
    assert errors(gated("a.io/x,b.io/y"), gated("a.io/x")) == [
        f"{path}: Forbidden: can only remove gates, not add new ones"
    ]
    assert errors(gated("a.io/x"), gated(None)) == [f"{path}: Forbidden: cannot add admission gate after creation"]


def test_labels_and_annotations_of_templates():
    body = template(labels={"a b": "c", "d": "e f"}, annotations={"Example.com/ok": "x y", "no!": "z"})
    path = "spec.podSets[0].template.metadata"
    assert [error.split(": ")[:3] for error in errors(workload(podSets=[pod_set(template=body)]))] == [
        [f"{path}.labels", "Invalid value", '"a b"'],
        [f"{path}.labels", "Invalid value", '"e f"'],
        [f"{path}.annotations", "Invalid value", '"no!"'],
    ]
    long = template(annotations={"a": "x" * 2**18})
    assert errors(workload(podSets=[pod_set(template=long)])) == [
        f"{path}.annotations: Too long: may not be more than 262144 bytes"
    ]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"required": "rack"}, ""),
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, ""),
        (
            {"podSetSliceRequiredTopology": "rack"},
            ".podSetSliceSize: Required value: must be set when podSetSliceRequiredTopology is specified",
        ),
        (
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0},
            ".podSetSliceSize: Invalid value: 0: must be greater than 0",
        ),
        (
            {"podSetSliceSize": 2},
            ".podSetSliceSize: Forbidden: may not be set when podSetSliceRequiredTopology is not specified",
        ),
        (
            {"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 0}]},
            ".podsetSliceRequiredTopologyConstraints[0].size: Invalid value: 0: must be greater than 0",
        ),
    ],
)
def test_a_level_for_slices_and_their_size_belong_together(request_: Json, said: str):
    found = errors(workload(podSets=[pod_set(topologyRequest=request_)]))
    assert found == ([f"spec.podSets[0].topologyRequest{said}"] if said else [])


def test_what_holds_quota_keeps_its_shape():
    bigger = reserved(workload(podSets=[pod_set(count=9)]))
    other = reserved(workload(podSets=[pod_set(template=template(labels={"a": "b"}))]))
    for changed in (bigger, other):
        [error] = errors(changed, reserved())
        assert error.startswith("spec.podSets.0: Invalid value: ")
        assert error.endswith("field is immutable")
    [error] = errors(reserved(workload(podSets=[pod_set(), pod_set("b")])), reserved())
    assert error.startswith("spec.podSets: Invalid value: ")
    assert errors(workload(podSets=[pod_set(count=9)], queueName="other"), workload()) == []


def test_an_elastic_job_may_shrink():
    smaller = workload(podSets=[pod_set(count=4)])
    smaller["status"] = reserved()["status"]
    assert errors(smaller, reserved()) == []


def elastic(count: int, **status: Any) -> Json:
    obj = reserved(workload(podSets=[pod_set(count=count)]), **status)
    obj["metadata"]["annotations"] = {jobs.ELASTIC: "true"}
    return obj


def test_pods_given_back_by_a_job_that_has_shrunk_since():
    given = [{"name": "main", "count": 6}]
    assert errors(elastic(4, reclaimablePods=given), elastic(8, reclaimablePods=given)) == []
    assert errors(elastic(4), elastic(4, reclaimablePods=given)) == []
    assert len(errors(elastic(4, reclaimablePods=[{"name": "main", "count": 5}]), elastic(4))) == 1
    assert len(errors(elastic(8), elastic(8, reclaimablePods=given))) == 1


def test_an_admission_is_set_or_cleared_but_not_edited():
    assert errors(reserved(), workload()) == []
    assert errors(workload(), reserved()) == []
    other = reserved()
    other["status"]["admission"]["clusterQueue"] = "other"
    assert [error.split(": ")[0] for error in errors(other, reserved())] == ["status.admission"]
    moved = reserved()
    moved["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {"levels": ["host"], "slices": []}
    assert errors(moved, reserved()) == []
    rewritten = reserved()
    rewritten["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = "8000m"
    assert errors(rewritten, reserved()) == []
    empty, bare = reserved(), reserved()
    empty["status"]["admission"]["podSetAssignments"] = [
        {"name": "main", "count": 1, "flavors": {}, "resourceUsage": {}}
    ]
    bare["status"]["admission"]["podSetAssignments"] = [{"name": "main", "count": 1}]
    assert errors(bare, empty) == [], "clients in Go leave empty maps out"


def test_an_admission_left_behind_without_quota_is_replaced():
    left = reserved()
    left["status"]["conditions"] = [{"type": "QuotaReserved", "status": "False"}]
    again = reserved()
    again["status"]["admission"]["clusterQueue"] = "other"
    assert errors(again, left) == []


def test_an_admission_fits_its_workload():
    status = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    assert errors({**workload(), "status": status}) == [
        "status.admission: Required value: must be set while the QuotaReserved condition is true"
    ]
    unmended = {**workload(), "status": {**status, "requeueState": {"count": 1}}}
    assert errors(unmended, {**workload(), "status": status}) == [], "it may be mended step by step"
    wrong = reserved()
    assignment = wrong["status"]["admission"]["podSetAssignments"][0]
    assignment |= {"name": "other", "resourceUsage": {"nvidia.com/gpu": "33"}}
    assert errors(wrong) == [
        'status.admission.podSetAssignments[0].name: Not found: "other"',
        'status.admission.podSetAssignments[0].resourceUsage[nvidia.com/gpu]: Invalid value: "33": '
        "is not a multiple of 8",
    ]


def test_pods_given_back_stay_given_back():
    def giving(*counts: tuple[str, int]) -> Json:
        return reserved(reclaimablePods=[{"name": name, "count": count} for name, count in counts])

    assert errors(giving(("main", 9))) == [
        "status.reclaimablePods[main].count: Invalid value: 9: should be less or equal to 8"
    ]
    assert errors(giving(("other", 1))) == [
        'status.reclaimablePods[other].name: Unsupported value: "other": supported values: "main"'
    ]
    assert errors(giving(("main", 2)), giving(("main", 3))) == [
        "status.reclaimablePods[main].count: Invalid value: 2: cannot be less than 3"
    ]
    assert errors(giving(), giving(("main", 3))) == ["status.reclaimablePods[main]: Required value: cannot be removed"]
    assert errors(giving(("main", 4)), giving(("main", 3))) == []


def test_what_a_ready_check_has_told_stays_told():
    def checked(state: str, selector: Json) -> Json:
        updates = [{"name": "main", "nodeSelector": selector}]
        return reserved(admissionChecks=[{"name": "prov", "state": state, "podSetUpdates": updates}])

    one, other = {"pool": "a"}, {"pool": "b"}
    assert len(errors(checked("Ready", other), checked("Ready", one))) == 1
    assert errors(checked("Ready", other), checked("Pending", one)) == []
    wrong = reserved(admissionChecks=[{"name": "p", "podSetUpdates": [{"name": "x", "labels": {"a": "b c"}}]}])
    assert [error.split(": ")[0] for error in errors(wrong)] == [
        "status.admissionChecks[0].podSetUpdates[0].name",
        "status.admissionChecks[0].podSetUpdates[0].labels",
    ]


def test_the_cluster_is_one_of_the_nominated():
    nominated = {**workload(), "status": {"nominatedClusterNames": ["a", "b"]}}
    chosen, stranger = ({**workload(), "status": {"clusterName": name}} for name in ("a", "c"))
    assert errors(chosen, nominated) == []
    assert errors(stranger, nominated) == [
        'status.clusterName: Invalid value: "c": when setting clusterName it must be one of the nominatedClusterNames'
    ]
    assert len(errors(chosen, workload())) == 1, "none was nominated"
