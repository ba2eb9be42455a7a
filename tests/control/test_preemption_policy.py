"""What a QueuePolicy says of preemption reaches the engine, and how often a workload was preempted is read from its status."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.read import parse, policy_reader
from gangline.api.read.parse import ParseError
from gangline.control.feed.mirror import Mirror
from gangline.control.writes.status import status_changes
from gangline.engine import model
from gangline.engine.model import FIXES, HOLD_QUOTA
from gangline.kube import resources as kube

Json = dict[str, Any]
NOW = 1_767_225_600_000


def a_policy(**spec: Any) -> Json:
    return {
        "metadata": {"name": "p", "uid": "p", "generation": 1},
        "spec": {"clusterQueues": {"names": ["cq"]}, **spec},
    }


def a_queue() -> Json:
    metadata = {"name": "cq", "uid": "cq", "resourceVersion": "1"}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": metadata, "spec": {}}


def a_workload(status: Json) -> model.Workload:
    metadata = {"namespace": "team", "name": "w", "uid": "u"}
    return parse.workload({"metadata": metadata, "spec": {}, "status": status})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, None),
        ({"profile": "Gangline"}, None),
        ({"preemption": {}}, None),
        ({"preemption": {"victims": "Kueue", "holdQuota": False}}, None),
        ({"preemption": {"victims": "FewestGangs"}}, model.VictimPolicy(choice="FewestGangs")),
        ({"preemption": {"nonPreemptibleFrom": 0}}, model.VictimPolicy(non_preemptible_from=0)),
        ({"preemption": {"maxPerWorkload": 0}}, model.VictimPolicy(max_preemptions=0)),
        (
            {
                "preemption": {
                    "victims": "LeastLostWork",
                    "nonPreemptibleFrom": -8,
                    "nonPreemptibleGpus": 8,
                    "minRuntime": "1h30m",
                    "maxPerWorkload": 3,
                    "holdQuota": True,
                }
            },
            model.VictimPolicy("LeastLostWork", -8, 8, 5400.0, 3),
        ),
    ],
)
def test_what_is_said_of_victims(spec: Json, expected: model.VictimPolicy | None) -> None:
    assert policy_reader.victims(a_policy(**spec)) == expected


def test_without_a_policy_victims_are_kueues() -> None:
    assert policy_reader.victims(None) is None


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({}, False),
        ({"profile": "Gangline"}, True),
        ({"preemption": {}}, True),
        ({"preemption": {"holdQuota": True}}, True),
        ({"preemption": {"holdQuota": False}}, False),
        ({"profile": "Gangline", "preemption": {"holdQuota": False}}, False),
        ({"preemption": {"holdQuota": True}, "fixes": {"disable": [HOLD_QUOTA]}}, False),
        ({"preemption": {"victims": "Kueue"}, "fixes": {"enable": [HOLD_QUOTA]}}, True),
    ],
)
def test_freed_quota_is_held_where_the_policy_says_so(spec: Json, held: bool) -> None:
    found = policy_reader.fixes(a_policy(**spec))
    assert (HOLD_QUOTA in found) is held
    others = FIXES - {HOLD_QUOTA} if spec.get("profile") == "Gangline" else policy_reader.ALWAYS
    assert found - {HOLD_QUOTA} == others, "the other fixes are not touched"


def test_it_comes_and_goes_with_the_policy() -> None:
    changes: list[model.Change] = []
    mirror = Mirror(observe=changes.append)

    def victims() -> model.VictimPolicy | None:
        last = [c.item for c in changes if isinstance(c, model.Put) and isinstance(c.item, model.ClusterQueue)][-1]
        return last.victims

    mirror.upsert(kube.CLUSTER_QUEUES, a_queue())
    assert victims() is None
    mirror.upsert(kube.QUEUE_POLICIES, a_policy(preemption={"minRuntime": "10m"}))
    assert victims() == model.VictimPolicy(min_runtime_seconds=600.0)
    mirror.remove(kube.QUEUE_POLICIES, "p")
    assert victims() is None


def test_every_preemption_is_counted_whatever_it_was_for_and_no_other_eviction() -> None:
    status: Json = {}
    for reason in ("InClusterQueue", "GaveWay", "InRecovery"):
        decision = model.Preempt("team/w", "u", reason, "to make room", by="team/high", by_uid="h")
        status_changes.preempt(decision)(status, NOW)
        status_changes.evict(model.Evict("team/w", "u", "PodsReadyTimeout", "slow"))(status, NOW)
    assert a_workload(status).preemptions == 3
    assert a_workload({}).preemptions == 0


def test_kueues_own_statistics_are_understood() -> None:
    rows = [
        {"reason": "Preempted", "underlyingCause": "", "count": 2},
        {"reason": "Deactivated", "underlyingCause": "Preempted", "count": 9},
        {"reason": "Preempted", "underlyingCause": "InCohortReclamation", "count": 1},
    ]
    assert a_workload({"schedulingStats": {"evictions": rows}}).preemptions == 3


@pytest.mark.parametrize(
    ("stats", "path"),
    [
        ({"evictions": [{"reason": "Preempted", "count": "often"}]}, "status.schedulingStats.evictions[0].count"),
        ({"evictions": ["Preempted"]}, "status.schedulingStats.evictions"),
        ("none", "status.schedulingStats"),
    ],
)
def test_statistics_that_make_no_sense_are_named(stats: Any, path: str) -> None:
    with pytest.raises(ParseError) as caught:
        a_workload({"schedulingStats": stats})
    assert str(caught.value).startswith(path)
