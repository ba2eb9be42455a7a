"""LimitRanges and RuntimeClasses reach the Workloads that they concern, in whatever order they come and go."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.builders.objects import Workload, container

from gangline.api.read.counting.device_claims import Devices, DeviceSource
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.api.read.reading import ParseError
from gangline.api.selecting import LocalJudge
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.request_rules import RequestRules
from gangline.engine import model
from gangline.kube import resources as kube

Json = dict[str, Any]
VERSIONS = itertools.count(1)


def stored(kind: str, name: str, namespace: str = "team", **body: Any) -> Json:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(next(VERSIONS))},
        **body,
    }


def workload(name: str, namespace: str = "team", *, containers: Any = None, **spec: Any) -> Json:
    """A Workload of one pod, whose spec has these fields."""
    template = {"spec": {"containers": containers or [container(name="c")], **spec}}
    row = {"name": "main", "count": 1, "template": template}
    return Workload(name, namespace, resourceVersion=str(next(VERSIONS))).pod_sets(row).made


def limit_range(cpu: str, name: str = "r", namespace: str = "team") -> Json:
    row = {"type": "Container", "defaultRequest": {"cpu": cpu}}
    return stored("LimitRange", name, namespace, spec={"limits": [row]})


def runtime_class(name: str, cpu: str | None) -> Json:
    body = stored("RuntimeClass", name, overhead={"podFixed": {"cpu": cpu}} if cpu else None)
    del body["metadata"]["namespace"]
    return body


class Cluster:
    """A mirror, and what the engine received about Workloads since that was last asked."""

    def __init__(self, rules: RequestRules | None = None) -> None:
        self.complaints: list[str] = []
        self.counted: dict[str, int] = {}
        self.mirror = Mirror(self._observe, self._complain, rules=rules or RequestRules())

    def _observe(self, change: model.Change) -> None:
        if isinstance(change, model.Put) and isinstance(change.item, model.Workload):
            self.counted[change.item.name] = change.item.pod_sets[0].counted.get("cpu", 0)

    def _complain(self, obj: Json, error: Exception) -> None:
        self.complaints.append(f"{obj['metadata']['name']}: {error}")

    def take(self) -> dict[str, int]:
        for key in self.mirror.recounted():
            self.mirror.count_anew(key)
        counted, self.counted = self.counted, {}
        return counted


def test_a_limit_range_concerns_its_namespace_alone() -> None:
    cluster = Cluster()
    for body in (workload("a"), workload("b", "other")):
        cluster.mirror.upsert(kube.WORKLOADS, body)
    assert cluster.take() == {"a": 0, "b": 0}
    cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("2"))
    assert cluster.take() == {"a": 2000}
    cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("3", "second"))
    assert cluster.take() == {}, "the first default counts"
    cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("1"))
    assert cluster.take() == {"a": 1000}
    cluster.mirror.remove(kube.LIMIT_RANGES, "team/r")
    assert cluster.take() == {"a": 3000}
    cluster.mirror.remove(kube.LIMIT_RANGES, "team/second")
    assert cluster.take() == {"a": 0}


def test_a_workload_that_comes_later_counts_the_same() -> None:
    cluster = Cluster()
    cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("2"))
    cluster.mirror.upsert(kube.RUNTIME_CLASSES, runtime_class("kata", "250m"))
    cluster.mirror.upsert(kube.WORKLOADS, workload("a", runtimeClassName="kata"))
    assert cluster.take() == {"a": 2250}


def test_a_runtime_class_concerns_those_who_name_it() -> None:
    cluster = Cluster()
    cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("2"))
    for body in (
        workload("a"),
        workload("b", runtimeClassName="kata"),
        workload("c", "other", runtimeClassName="kata"),
    ):
        cluster.mirror.upsert(kube.WORKLOADS, body)
    assert cluster.take() == {"a": 2000, "b": 2000, "c": 0}
    for body in (runtime_class("kata", "250m"), runtime_class("runc", None)):
        cluster.mirror.upsert(kube.RUNTIME_CLASSES, body)
    assert cluster.take() == {"b": 2250, "c": 250}
    cluster.mirror.upsert(kube.RUNTIME_CLASSES, runtime_class("kata", None))
    assert cluster.take() == {"b": 2000, "c": 0}


def test_a_template_of_claims_concerns_its_namespace() -> None:
    devices = ResourceRules(devices=Devices({"gpu.example.com": "cpu"}))
    cluster = Cluster(RequestRules(devices))
    claims = [{"name": "gpus", "resourceClaimTemplateName": "t"}]
    for body in (workload("a", resourceClaims=claims), workload("b", "other", resourceClaims=claims), workload("c")):
        cluster.mirror.upsert(kube.WORKLOADS, body)
    assert cluster.take() == {"a": 0, "b": 0, "c": 0}
    ranges = stored("LimitRange", "r", spec={"limits": [{"type": "Pod", "max": {"memory": "1Gi"}}]})
    cluster.mirror.upsert(kube.LIMIT_RANGES, ranges)
    cluster.take()
    asked = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 3}}
    spec = {"spec": {"devices": {"requests": [asked]}}}
    cluster.mirror.upsert(kube.RESOURCE_CLAIM_TEMPLATES, stored("ResourceClaimTemplate", "t", spec=spec))
    assert cluster.take() == {"a": 3}
    asked["exactly"]["count"] = 4
    cluster.mirror.upsert(kube.RESOURCE_CLAIM_TEMPLATES, stored("ResourceClaimTemplate", "t", spec=spec))
    assert cluster.take() == {"a": 4}
    cluster.mirror.upsert(kube.RESOURCE_CLAIM_TEMPLATES, stored("ResourceClaimTemplate", "u", spec=spec))
    assert cluster.mirror.recounted() == []
    cluster.mirror.remove(kube.RESOURCE_CLAIM_TEMPLATES, "team/u")
    assert cluster.mirror.recounted() == []
    cluster.mirror.remove(kube.RESOURCE_CLAIM_TEMPLATES, "team/t")
    assert cluster.take() == {"a": 0}


def test_a_device_class_concerns_those_who_request_what_it_stands_for() -> None:
    cluster = Cluster(RequestRules(ResourceRules(devices=Devices({"gpu.example.com": "cpu"}))))
    container = {"name": "c", "resources": {"requests": {"example.com/gpu": "3"}}}
    for body in (workload("a", containers=[container]), workload("b"), workload("c", containers="none")):
        cluster.mirror.upsert(kube.WORKLOADS, body)
    cluster.take()
    body = stored("DeviceClass", "gpu.example.com", spec={"extendedResourceName": "example.com/gpu"})
    body["metadata"] = {**body["metadata"], "creationTimestamp": "2026-11-24T10:00:00Z"}
    del body["metadata"]["namespace"]
    cluster.mirror.upsert(kube.DEVICE_CLASSES, body)
    assert cluster.take() == {"a": 3}
    cluster.mirror.upsert(kube.DEVICE_CLASSES, {**body, "metadata": {**body["metadata"], "resourceVersion": "999"}})
    assert cluster.mirror.recounted() == []
    cluster.mirror.remove(kube.DEVICE_CLASSES, "gpu.example.com")
    assert cluster.take() == {"a": 0}


DRIVER = "gpu.example.com"


def resource_slice(name: str, *memory: str, **pool: Any) -> Json:
    """A device for each amount that it consumes of the counter `memory`."""
    devices = [
        {"name": f"d{i}", "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": each}}}]}
        for i, each in enumerate(memory)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1, **pool}
    return stored("ResourceSlice", name, spec={"driver": DRIVER, "pool": pool, "devices": devices})


def test_devices_concern_those_whose_claims_count_differently() -> None:
    source = DeviceSource("counter", "cpu", DRIVER, "memory", f"device.driver == '{DRIVER}'")
    devices = Devices({"a": "cpu", "b": "cpu"}, {"a": (source,)})
    rules = RequestRules(ResourceRules(devices=devices), LocalJudge())
    cluster = Cluster(rules)
    for name in ("a", "b"):
        asked = {"name": "r", "exactly": {"deviceClassName": name}}
        spec = {"spec": {"devices": {"requests": [asked]}}}
        cluster.mirror.upsert(kube.RESOURCE_CLAIM_TEMPLATES, stored("ResourceClaimTemplate", name, spec=spec))
        claims = [{"name": "gpus", "resourceClaimTemplateName": name}]
        cluster.mirror.upsert(kube.WORKLOADS, workload(f"of-{name}", resourceClaims=claims))
    assert cluster.take() == {"of-a": 0, "of-b": 1}
    rules.put(kube.RESOURCE_SLICES, "s", resource_slice("s", "2", "3"))
    assert cluster.take() == {}, "there is no such class"
    device_class = stored("DeviceClass", "a", spec={"selectors": [{"cel": {"expression": "true"}}]})
    device_class["metadata"]["creationTimestamp"] = "2026-11-24T10:00:00Z"
    del device_class["metadata"]["namespace"]
    cluster.mirror.upsert(kube.DEVICE_CLASSES, device_class)
    assert cluster.take() == {"of-a": 3000}
    rules.put(kube.RESOURCE_SLICES, "s", resource_slice("s", "2", "3", generation=2))
    assert cluster.mirror.recounted() == []
    rules.put(kube.RESOURCE_SLICES, "s", resource_slice("s", "2"))
    assert cluster.mirror.recounted() == ["team/of-a"]
    assert cluster.mirror.recounted() == []
    with pytest.raises(ParseError):
        rules.put(kube.RESOURCE_SLICES, "s", {"spec": {"driver": 3}})
    assert cluster.mirror.recounted() == []
    rules.put(kube.RESOURCE_SLICES, "s", None)
    assert cluster.take() == {"of-a": 0}


def test_claims_that_are_not_used_any_more_are_forgotten() -> None:
    rules = RequestRules(ResourceRules(devices=Devices({"a": "cpu"})), LocalJudge())
    cluster = Cluster(rules)
    for count in range(1200):
        asked = {"name": "r", "exactly": {"deviceClassName": "a", "count": count}}
        spec = {"spec": {"devices": {"requests": [asked]}}}
        cluster.mirror.upsert(kube.RESOURCE_CLAIM_TEMPLATES, stored("ResourceClaimTemplate", "t", spec=spec))
        claims = [{"name": "gpus", "resourceClaimTemplateName": "t"}]
        cluster.mirror.upsert(kube.WORKLOADS, workload("w", resourceClaims=claims))
        cluster.mirror.recounted()
    assert len(rules._supply.of("team")._charges) == 1


def test_what_cannot_be_read_changes_nothing() -> None:
    cluster = Cluster()
    cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("2"))
    cluster.mirror.upsert(kube.WORKLOADS, workload("a", runtimeClassName=["kata"]))
    cluster.mirror.upsert(kube.WORKLOADS, workload("b"))
    assert cluster.take() == {"a": 2000, "b": 2000}
    cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("much"))
    cluster.mirror.upsert(kube.RUNTIME_CLASSES, runtime_class("kata", "much"))
    assert cluster.take() == {}
    assert cluster.complaints == [
        "r: spec.limits[0].defaultRequest[cpu]: 'much' is not a Kubernetes quantity",
        "kata: overhead.podFixed[cpu]: 'much' is not a Kubernetes quantity",
    ]


@pytest.mark.parametrize("ranged", [False, True])
def test_the_rules_of_the_configuration_hold_everywhere(ranged: bool) -> None:
    cluster = Cluster(RequestRules(ResourceRules(excluded=("cpu",))))
    if ranged:
        cluster.mirror.upsert(kube.LIMIT_RANGES, limit_range("2"))
    cluster.mirror.upsert(kube.RUNTIME_CLASSES, runtime_class("kata", "250m"))
    cluster.mirror.upsert(kube.WORKLOADS, workload("a", runtimeClassName="kata"))
    assert cluster.take() == {"a": 0}
