"""Fields of moves: spec.moves of a QueuePolicy, the date of a job, and for whom a Workload was moved."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api import names
from gangline.api.admission import AdmissionFacts, validate
from gangline.api.read import parse, policy_reader
from gangline.engine.model import Moves

Json = dict[str, Any]
MESSAGE = (
    "Moved to other nodes to make room for workload team/job-big-1234 (UID: abc), which waits only because free room is"
    " scattered; the workload starts again at once"
)


def policy(**moves: Any) -> Json:
    spec = {"clusterQueues": {"names": ["q"]}, **({"moves": moves} if moves else {})}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": "p"}, "spec": spec}


def workload(**fields: Any) -> Json:
    pods = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    metadata = {"name": "w", "namespace": "team", "uid": "u", "annotations": fields.pop("annotations", {})}
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": pods}]}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec, **fields}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"lostGpuHoursPerDay": "10"}, ""),
        ({"lostGpuHoursPerDay": "-1"}, "spec.moves.lostGpuHoursPerDay"),
        ({"lostGpuHoursPerDay": "1", "settle": "25h"}, "spec.moves.settle"),
        ({"lostGpuHoursPerDay": "1", "settle": "soon"}, "spec.moves.settle"),
        ({"lostGpuHoursPerDay": "1", "longestLoss": "-5m"}, "spec.moves.longestLoss"),
    ],
)
def test_what_is_refused(fields: Json, named: str) -> None:
    errors = [str(error) for error in validate(policy(**fields), None, AdmissionFacts())]
    assert errors == [] if not named else named in errors[0]


def test_a_policy_without_the_part_moves_nothing() -> None:
    assert policy_reader.moves(policy()) is None and policy_reader.moves(None) is None


def test_the_fields_and_their_defaults() -> None:
    assert policy_reader.moves(policy(lostGpuHoursPerDay="2.5")) == Moves(2.5)
    given = policy(lostGpuHoursPerDay="1", longestLoss="5m", restartCost="30s", settle="2h", most=3, after="0s")
    assert policy_reader.moves(given) == Moves(1.0, 300.0, 30.0, 7200.0, 3, 0.0)


@pytest.mark.parametrize(
    ("reason", "status", "key"),
    [("Moved", "True", "team/job-big-1234"), ("Moved", "False", ""), ("InClusterQueue", "True", "")],
)
def test_a_moved_workload_says_for_whom_while_it_is(reason: str, status: str, key: str) -> None:
    row = {"type": "Preempted", "status": status, "reason": reason, "message": MESSAGE}
    found = parse.workload(workload(status={"conditions": [{**row, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
    assert found.moved_for == key


@pytest.mark.parametrize(
    ("written", "millis"), [("2026-01-01T00:00:00Z", 1_767_225_600_000), ("soon", None), ("", None), ("9" * 99, None)]
)
def test_a_date_that_is_none_is_ignored(written: str, millis: int | None) -> None:
    assert parse.workload(workload(annotations={names.START_BY: written})).start_by == millis
