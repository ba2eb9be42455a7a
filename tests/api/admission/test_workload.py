"""Workloads: what can be queued, what holds quota stays, and what may be said in the status."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.api.admission.builders import Json, template, workload

from gangline.api import names
from gangline.api.admission import Context, validate


def errors(obj: Json, old: Json | None = None) -> list[str]:
    return [str(error) for error in validate(obj, old, Context())]


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
    ("boost", "said"), [("5", ""), ("-5", ""), ("high", "strconv.Atoi"), ("3000000000", "32 bits")]
)
def test_priority_boost_is_a_number(boost: str, said: str):
    obj = workload()
    obj["metadata"]["annotations"] = {names.PRIORITY_BOOST: boost}
    found = errors(obj)
    assert found == [] if not said else said in found[0]


def test_what_holds_quota_keeps_its_shape_and_its_queue():
    bigger = reserved(workload(podSets=[pod_set(count=9)]))
    [error] = errors(bigger, reserved())
    assert error.startswith("spec.podSets: Invalid value: ")
    assert error.endswith("field is immutable")
    assert errors(reserved(workload(queueName="other")), reserved()) == [
        'spec.queueName: Invalid value: "other": field is immutable'
    ]
    assert errors(workload(podSets=[pod_set(count=9)], queueName="other"), workload()) == []


def test_an_elastic_job_may_shrink():
    smaller = workload(podSets=[pod_set(count=4)])
    smaller["status"] = reserved()["status"]
    assert errors(smaller, reserved()) == []


def test_an_admission_is_set_or_cleared_but_not_edited():
    assert errors(reserved(), workload()) == []
    assert errors(workload(), reserved()) == []
    other = reserved()
    other["status"]["admission"]["clusterQueue"] = "other"
    assert [error.split(": ")[0] for error in errors(other, reserved())] == ["status.admission"]
    moved = reserved()
    moved["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {"levels": ["host"], "slices": []}
    assert errors(moved, reserved()) == []


def test_an_admission_fits_its_workload():
    status = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    assert errors({**workload(), "status": status}) == [
        "status.admission: Required value: must be set while quota is reserved"
    ]
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
        "status.reclaimablePods[main].count: Invalid value: 2: cannot be less then 3"
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
        'status.clusterName: Invalid value: "c": must be one of status.nominatedClusterNames'
    ]
    assert errors(stranger, chosen) == ['status.clusterName: Invalid value: "c": field is immutable']
