"""What tells that JobSet itself is in a cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from gangline.devcluster.jobset.controller import CRD, is_stand_in, sign
from gangline.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    Resource,
)

Json = dict[str, Any]
OURS: Json = yaml.safe_load(CRD.read_text())


def named(name: str, namespace: str = "") -> Json:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}}


def theirs(*, label: bool) -> Json:
    """JobSet's own CRD; where it was applied over the stand-in's, the label may have survived."""
    crd = copy.deepcopy(OURS)
    if not label:
        crd["metadata"].pop("labels")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "properties": {"suspend": {"type": "boolean"}}}
    return crd


def test_the_stand_ins_own_crd_is_no_sign():
    assert is_stand_in(OURS)
    assert sign(CUSTOM_RESOURCE_DEFINITIONS, OURS) == ""


@pytest.mark.parametrize("label", [True, False])
def test_jobsets_crd_is_one(label: bool):
    assert not is_stand_in(theirs(label=label))
    assert sign(CUSTOM_RESOURCE_DEFINITIONS, theirs(label=label)) == "its CRD"


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (NAMESPACES, named("jobset-system")),
        (LEASES, named("6d4f6a47.x-k8s.io", "anywhere")),
        (LEASES, named("other", "jobset-system")),
        (MUTATING_WEBHOOKS, named("jobset-mutating-webhook-configuration")),
        (VALIDATING_WEBHOOKS, named("jobset-validating-webhook-configuration")),
    ],
)
def test_signs_of_jobset_itself(resource: Resource, obj: Json):
    assert obj["metadata"]["name"] in sign(resource, obj)


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (NAMESPACES, named("default")),
        (LEASES, named("c1f6bfd2.kueue.x-k8s.io", "kueue-system")),
        (MUTATING_WEBHOOKS, named("gangline")),
        (VALIDATING_WEBHOOKS, named("kueue-validating-webhook-configuration")),
        (CUSTOM_RESOURCE_DEFINITIONS, {**OURS, "metadata": {"name": "jobs.example.com"}}),
    ],
)
def test_what_is_none(resource: Resource, obj: Json):
    assert sign(resource, obj) == ""
