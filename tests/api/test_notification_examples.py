"""The manifests in examples/notifications are ones that the API server and the webhooks take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.admission import AdmissionFacts, validate
from gangline.api.schema.v1alpha1.gpujob import GPUJob
from gangline.api.schema.v1alpha1.queuepolicy import QueuePolicy

Json = dict[str, Any]
DIRECTORY = Path(__file__).parents[2] / "examples" / "notifications"
OBJECTS: list[Json] = [
    obj for path in sorted(DIRECTORY.glob("*.yaml")) for obj in yaml.safe_load_all(path.read_text()) if obj
]
MODELS = {"QueuePolicy": QueuePolicy, "GPUJob": GPUJob}


@pytest.mark.parametrize("obj", [obj for obj in OBJECTS if obj["kind"] in MODELS], ids=lambda obj: obj["kind"])
def test_they_are_valid(obj: Json) -> None:
    MODELS[obj["kind"]].model_validate(obj)
    assert validate(obj, None, AdmissionFacts()) == []


def test_the_policy_names_secrets_that_are_there() -> None:
    secrets = {obj["metadata"]["name"]: obj["stringData"] for obj in OBJECTS if obj["kind"] == "Secret"}
    (policy,) = (obj for obj in OBJECTS if obj["kind"] == "QueuePolicy")
    assert all("url" in secrets[rule["secretRef"]["name"]] for rule in policy["spec"]["notify"])
