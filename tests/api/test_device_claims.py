"""Devices that pods claim: how many of which resource they count as, and which claims hold a workload back."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from gangline.api.read import configuration, parse
from gangline.api.read.counting import device_claims
from gangline.api.read.counting.device_claims import Claim, DeviceRequest, Devices
from gangline.api.read.counting.namespace_rules import NO_LIMITS, NO_RULES, NamespaceRules
from gangline.api.read.counting.resource_rules import ResourceRules, Transformation
from gangline.api.read.reading import ParseError
from gangline.engine import model

Json = dict[str, Any]
GPU, MIG = "gpu.example.com", "mig.example.com"
DEVICES = Devices({GPU: "gpus", MIG: "slices", "big.example.com": "gpus"})
AT = "spec.podSets[0].template.spec.resourceClaims[0]"


def exactly(device_class: str, **more: Any) -> Json:
    return {"name": "r", "exactly": {"deviceClassName": device_class, **more}}


def template(*requests: Json) -> Json:
    return {"metadata": {"name": "t", "namespace": "team"}, "spec": {"spec": {"devices": {"requests": list(requests)}}}}


def rules(devices: Devices = DEVICES, **claims: Claim) -> NamespaceRules:
    return NamespaceRules.of(NO_LIMITS, {}, ResourceRules(devices=devices), claims)


def asking(devices: dict[str, int]) -> Claim:
    return Claim(tuple(DeviceRequest(f"devices.requests[{i}]", *each) for i, each in enumerate(devices.items())))


def read(by: NamespaceRules, *claims: Json, requests: Json | None = None) -> model.Workload:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    spec = {"containers": [container], "resourceClaims": list(claims)}
    pod_set = {"name": "main", "count": 2, "template": {"spec": spec}}
    return parse.workload({"metadata": {"namespace": "team", "name": "w"}, "spec": {"podSets": [pod_set]}}, by)


def by_template(name: str = "t") -> Json:
    return {"name": name, "resourceClaimTemplateName": name}


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([exactly(GPU)], {GPU: 1}),
        ([exactly(GPU, allocationMode="ExactCount", count=2), exactly(GPU, count=3)], {GPU: 5}),
        ([exactly(GPU, count=2), exactly(MIG, count=4)], {GPU: 2, MIG: 4}),
        ([exactly(GPU, adminAccess=True), exactly(MIG)], {MIG: 1}),
        ([], {}),
        ([exactly(GPU, count=2**62), exactly(GPU, count=2**62)], {GPU: model.UNLIMITED}),
    ],
)
def test_what_a_template_asks_for(requests: list[Json], devices: dict[str, int]) -> None:
    found = device_claims.claim(template(*requests))
    assert (found.devices, found.refused) == (devices, "")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": GPU}]},
            '.devices.requests[0]: Invalid value: "null": ResourceClaimTemplate t: '
            "FirstAvailable device selection is not supported",
        ),
        (
            {"name": "r"},
            '.devices.requests[0]: Invalid value: "null": ResourceClaimTemplate t: '
            "Exactly must be set if FirstAvailable is nil",
        ),
        (
            exactly(GPU, allocationMode="All"),
            '.devices.requests[0].exactly.allocationMode: Invalid value: "All": ResourceClaimTemplate t: '
            "AllocationMode 'All' is not supported",
        ),
    ],
)
def test_what_cannot_be_counted_holds_it_back(request_: Json, words: str) -> None:
    held = read(rules(t=device_claims.claim(template(request_))), by_template())
    assert held.violation == AT + words
    assert held.overtaken


def test_a_template_that_cannot_be_read_says_where() -> None:
    with pytest.raises(ParseError, match="count"):
        device_claims.claim(template(exactly(GPU, count="two")))
    with pytest.raises(ParseError, match="count"):
        device_claims.claim(template(exactly(GPU, count=-1)))


def test_devices_count_as_their_class_is_mapped() -> None:
    by = rules(t=asking({GPU: 2, MIG: 1}), u=asking({"big.example.com": 1}))
    (pod_set,) = read(by, by_template("t"), by_template("u"), requests={"cpu": "1", "gpus": 1}).pod_sets
    assert pod_set.counted == {"cpu": 1000, "gpus": 4, "slices": 1}
    assert pod_set.requests == {"cpu": 1000, "gpus": 1}, "of nodes"


def test_transformations_are_of_what_containers_request_alone() -> None:
    credits = ResourceRules(transformations={"gpus": Transformation({"credits": Fraction(1)})}, devices=DEVICES)
    by = NamespaceRules.of(NO_LIMITS, {}, credits, {"t": asking({GPU: 2})})
    assert read(by, by_template()).pod_sets[0].counted == {"gpus": 2}


@pytest.mark.parametrize(
    ("by", "claim", "words"),
    [
        (
            rules(),
            by_template(),
            f"{AT}: Internal error: failed to get claim spec for ResourceClaimTemplate t in podset main: "
            'ResourceClaimTemplate.resource.k8s.io "t" not found',
        ),
        (
            rules(t=asking({"other.example.com": 1})),
            by_template(),
            f'{AT}.resourceClaimTemplateName: Not found: "DeviceClass other.example.com is not mapped in DRA '
            'configuration for podset main"',
        ),
        (
            rules(),
            {"name": "c", "resourceClaimName": "shared"},
            "KueueDRAIntegration feature does not support use of resource claims",
        ),
        (
            rules(Devices(counted=False)),
            by_template(),
            "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled",
        ),
        (rules(Devices(counted=False, ignored=True)), by_template(), ""),
        (rules(t=asking({GPU: 1})), by_template(), ""),
        (rules(), {"name": "neither"}, ""),
    ],
)
def test_claims_that_hold_a_workload_back(by: NamespaceRules, claim: Json, words: str) -> None:
    held = read(by, claim)
    assert (held.violation, held.overtaken) == (words, bool(words))


def test_pods_without_claims_are_as_ever() -> None:
    found = read(NO_RULES, requests={"cpu": "1"})
    assert (found.violation, found.overtaken, found.pod_sets[0].quota) == ("", False, None)


# --- the configuration ------------------------------------------------------------------------------------------------


def configured(*mappings: Json, **gates: bool) -> Devices:
    body = {"resources": {"deviceClassMappings": list(mappings)}, "featureGates": gates}
    loaded = configuration.load(body)
    assert loaded.ignored == ()
    return loaded.resources.devices


def test_mappings() -> None:
    mappings = [
        {"name": "gpus", "deviceClassNames": [GPU, "big.example.com"]},
        {"name": "slices", "deviceClassNames": [MIG]},
    ]
    assert configured(*mappings) == DEVICES
    assert configured() == Devices()
    without = {
        "KueueDRAIntegration": False,
        "KueueDRAIntegrationExtendedResource": False,  # needs the first one
        "KueueDRAIntegrationPartitionableDevices": False,
    }
    assert configured(**without) == Devices(counted=False, extends=False)
    off = configured(**without, KueueDRARejectWorkloadsWhenDRADisabled=False)
    assert off == Devices(counted=False, ignored=True, extends=False)


def mapping(name: Any = "gpus", classes: Any = (GPU,), **more: Any) -> Json:
    return {"name": name, "deviceClassNames": list(classes), **more}


@pytest.mark.parametrize(
    ("mappings", "field"),
    [
        ([mapping(""), mapping()], r"\[0\]\.name"),
        ([mapping("a b")], r"\[0\]\.name"),
        ([mapping("a/b/c")], r"\[0\]\.name"),
        ([mapping(), mapping(classes=[MIG])], r"\[1\]\.name: 'gpus' is there twice"),
        ([mapping(classes=[])], r"\[0\]\.deviceClassNames: at least one"),
        ([mapping(classes=[f"c{n}" for n in range(9)])], r"\[0\]\.deviceClassNames: a list of at most 8"),
        ([mapping(classes=[GPU, GPU])], r"\[0\]\.deviceClassNames\[1\]: '.*' is there twice"),
        (
            [mapping(), mapping("slices")],
            r"\[1\]\.deviceClassNames\[0\]: .* device class already mapped to resource gpus",
        ),
        ([mapping(classes=["x" * 254])], r"\[0\]\.deviceClassNames\[0\]"),
        ([mapping(driver="d")], r"\[0\]\.driver: there is no such field"),
        ([mapping(f"n{n}", [f"c{n}"]) for n in range(17)], "a list of at most 16"),
    ],
)
def test_mistakes_are_named(mappings: list[Json], field: str) -> None:
    with pytest.raises(configuration.ConfigurationError, match=field):
        configured(*mappings)


def device_class(resource: str, created: str = "2026-11-24T10:00:00Z") -> Json:
    return {"metadata": {"name": "c", "creationTimestamp": created}, "spec": {"extendedResourceName": resource}}


def standing(devices: Devices = DEVICES, **classes: Json) -> Devices:
    """The DeviceClasses by their names, with _ for a dot."""
    found = {name.replace("_", "."): device_claims.extended_class(body) for name, body in classes.items()}
    known = {name: each for name, each in found.items() if each is not None}
    return device_claims.extended(known, devices)


def test_what_a_device_class_stands_for_counts_as_its_devices() -> None:
    by = rules(standing(gpu_example_com=device_class("example.com/gpu")))
    [pod_set] = read(by, requests={"example.com/gpu": "2", "cpu": "1"}).pod_sets
    assert pod_set.counted == {"gpus": 2, "cpu": 1000}
    assert pod_set.requests["example.com/gpu"] == 2, "nodes are asked for what the pod requests"
    assert read(by, requests={"cpu": "1"}).pod_sets[0].counted == {"cpu": 1000}


def test_requests_and_claims_of_one_resource_add_up() -> None:
    by = rules(standing(gpu_example_com=device_class("example.com/gpu")), t=asking({GPU: 3}))
    assert read(by, by_template(), requests={"example.com/gpu": "2"}).pod_sets[0].counted == {"gpus": 5}


def test_without_a_mapping_it_counts_under_its_name_whatever_is_excluded() -> None:
    devices = standing(other=device_class("example.com/gpu"))
    by = NamespaceRules.of(NO_LIMITS, {}, ResourceRules(excluded=("example.com/",), devices=devices))
    assert read(by, requests={"example.com/gpu": "2", "example.com/x": "1"}).pod_sets[0].counted == {
        "example.com/gpu": 2
    }


def test_of_several_classes_the_newest_counts_and_then_the_first_by_name() -> None:
    old, new = "2026-11-24T10:00:00Z", "2026-11-24T10:00:01Z"
    gpu, mig = device_class("example.com/gpu", old), device_class("example.com/gpu", new)
    assert standing(gpu_example_com=gpu, mig_example_com=mig).extended == {"example.com/gpu": "slices"}
    assert standing(gpu_example_com=gpu, mig_example_com=gpu).extended == {"example.com/gpu": "gpus"}


@pytest.mark.parametrize("gate", ["KueueDRAIntegration", "KueueDRAIntegrationExtendedResource"])
def test_with_a_gate_off_it_counts_as_any_resource(gate: str) -> None:
    gates = (
        {gate: False} if gate != "KueueDRAIntegration" else {gate: False, "KueueDRAIntegrationExtendedResource": False}
    )
    gates |= {"KueueDRAIntegrationPartitionableDevices": False} if gate == "KueueDRAIntegration" else {}
    devices = configuration.load({"featureGates": gates}).resources.devices
    assert standing(devices, gpu_example_com=device_class("example.com/gpu")).extended == {}


def test_a_class_that_stands_for_nothing() -> None:
    assert device_claims.extended_class({"metadata": {"name": "c"}, "spec": {}}) is None
    assert device_claims.extended_class(device_class("cpu")) is None
    with pytest.raises(ParseError, match=r"spec\.extendedResourceName"):
        device_claims.extended_class({"spec": {"extendedResourceName": 3}})
