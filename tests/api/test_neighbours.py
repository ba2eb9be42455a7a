"""What pod templates say of the pods beside theirs: how many of a kind a node takes, and what only the scheduler can judge."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.read.podspec import Neighbours, neighbours
from gangline.api.read.workloads.parse_workload import workload
from gangline.kube.resources import Json

HOST = "kubernetes.io/hostname"
DURING = "requiredDuringSchedulingIgnoredDuringExecution"
APART = Neighbours(1)
SCHEDULERS = Neighbours(others=True)


def term(key: str = HOST, **labels: str) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {"app": "x"}}}


def template(**spec: Any) -> Json:
    return {"metadata": {"labels": {"app": "x", "rank": "1"}}, "spec": {"containers": [{"name": "c"}], **spec}}


def anti(*terms: Json, kind: str = "podAntiAffinity") -> Json:
    return {"affinity": {kind: {DURING: list(terms)}}}


def container(**port: int) -> Json:
    return {"name": "c", "ports": [port]}


def spread(**more: str) -> Json:
    return {"maxSkew": 1, "topologyKey": HOST, **more}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, Neighbours()),
        (anti(term()), APART),
        (anti(term(), term(app="x", rank="1")), APART),
        (anti(term("topology.kubernetes.io/zone")), SCHEDULERS),
        (anti(term(app="other")), SCHEDULERS),
        (anti(term(), term(app="other")), Neighbours(1, others=True)),
        (anti({**term(), "namespaces": ["b"]}), SCHEDULERS),
        (anti({"topologyKey": HOST, "labelSelector": {"matchExpressions": []}}), SCHEDULERS),
        (anti(term(), kind="podAffinity"), SCHEDULERS),
        ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, Neighbours()),
        ({"topologySpreadConstraints": [spread(whenUnsatisfiable="DoNotSchedule")]}, SCHEDULERS),
        ({"topologySpreadConstraints": [spread()]}, SCHEDULERS),
        ({"topologySpreadConstraints": [spread(whenUnsatisfiable="ScheduleAnyway")]}, Neighbours()),
        ({"containers": [container(hostPort=80)]}, APART),
        ({"containers": [container(containerPort=80)]}, Neighbours()),
        ({"containers": [container(containerPort=80)], "hostNetwork": True}, APART),
        ({"hostNetwork": True}, Neighbours()),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}, SCHEDULERS),
        ({"affinity": 3}, SCHEDULERS),
    ],
)
def test_rules_between_pods(spec: Json, found: Neighbours) -> None:
    assert neighbours(template(**spec)) == found


def test_a_workload_says_how_many_of_its_pods_a_node_takes() -> None:
    body = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
        "spec": {
            "queueName": "q",
            "podSets": [
                {"name": "apart", "count": 2, "template": template(**anti(term()))},
                {"name": "any", "count": 2, "template": template()},
            ],
        },
    }
    assert [pod_set.most_per_node for pod_set in workload(body).pod_sets] == [1, 0]
