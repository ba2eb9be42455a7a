"""The manifests in examples/preemption are ones that the API server and the webhooks take, and the operator understands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.admission import AdmissionFacts, validate
from gangline.api.read import parse, policy_reader
from gangline.api.schema.v1alpha1.queuepolicy import QueuePolicy

Json = dict[str, Any]
DIRECTORY = Path(__file__).parents[2] / "examples" / "preemption"
OBJECTS: list[Json] = [
    obj for path in sorted(DIRECTORY.glob("*.yaml")) for obj in yaml.safe_load_all(path.read_text()) if obj
]
POLICIES = [obj for obj in OBJECTS if obj["kind"] == "QueuePolicy"]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']} {obj['metadata']['name']}")
def test_they_are_valid(obj: Json) -> None:
    assert validate(obj, None, AdmissionFacts()) == []
    if obj["kind"] == "QueuePolicy":
        QueuePolicy.model_validate(obj)


def test_every_policy_holds_for_a_queue_that_is_there() -> None:
    queues = {obj["metadata"]["name"] for obj in OBJECTS if obj["kind"] == "ClusterQueue"}
    assert POLICIES and all(set(policy["spec"]["clusterQueues"]["names"]) <= queues for policy in POLICIES)
    assert {parse.cluster_queue(obj).name for obj in OBJECTS if obj["kind"] == "ClusterQueue"} == queues


def test_every_policy_protects_somebody_and_chooses() -> None:
    found = [policy_reader.victims(policy) for policy in POLICIES]
    assert [victims.choice for victims in found if victims is not None] == ["LeastLostWork", "FewestGangs"]
    assert all(victims is not None and victims.min_runtime_seconds >= 600 for victims in found)
