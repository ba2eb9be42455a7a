"""What we count of a pod template is what the pod requests that a real API server makes of it, whatever the template says."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.controlplane import Kubectl, eventually

from gangline.api import quantity
from gangline.api.read import parse
from gangline.api.read.counting import namespace_rules
from gangline.api.read.counting.namespace_rules import NO_LIMITS, NamespaceRules
from gangline.api.read.counting.resource_rules import EVERYTHING

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

Json = dict[str, Any]
SEED = 20
PODS = 240
#: kubectl creates so many in one call
AT_ONCE = 40
SIZES: dict[str, tuple[str, ...]] = {
    "cpu": ("100m", "250m", "1", "1500m", "2"),
    "memory": ("64Mi", "100M", "1Gi", "1500Mi"),
    "example.com/gpu": ("1", "2"),
    "ephemeral-storage": ("1Gi", "2Gi"),
}
OVERHEAD = {"cpu": "1500m", "memory": "120Mi"}
RANGES: dict[str, list[Json]] = {
    "none": [],
    "requests": [{"type": "Container", "defaultRequest": {"cpu": "750m", "memory": "80Mi"}}],
    "limits": [{"type": "Container", "default": {"cpu": "3", "memory": "2Gi"}}],
    "both": [
        {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "300m", "ephemeral-storage": "1Gi"}}
    ],
    "bounds": [
        {"type": "Container", "max": {"cpu": "4"}, "min": {"memory": "32Mi"}},
        {"type": "Pod", "max": {"cpu": "12"}},
    ],
}


def random_amounts(chance: random.Random, among: list[str]) -> Json:
    return {name: chance.choice(SIZES[name]) for name in among if chance.random() < 0.4}


def random_resources(chance: random.Random, among: list[str]) -> Json:
    """Limits that the requests keep, so that the API server mostly accepts them."""
    limits, requests = random_amounts(chance, among), random_amounts(chance, among)
    for name in limits.keys() & requests.keys():
        high, low = limits[name], requests[name]
        if quantity.parse(high, name) < quantity.parse(low, name):
            limits[name] = low
        if "/" in name:
            requests[name] = limits[name]
    for name in [name for name in requests if "/" in name]:  # extended resources are not overcommitted
        limits[name] = requests[name]
    return {part: each for part, each in (("limits", limits), ("requests", requests)) if each}


def random_pod(chance: random.Random) -> Json:
    every = list(SIZES)

    def container(name: str, **more: Any) -> Json:
        return {"name": name, "image": "i", "resources": random_resources(chance, every), **more}

    spec: Json = {"containers": [container(f"c{n}") for n in range(chance.randint(1, 3))], "restartPolicy": "Never"}
    if chance.random() < 0.5:
        spec["initContainers"] = [
            container(f"i{n}", **({"restartPolicy": "Always"} if chance.random() < 0.4 else {}))
            for n in range(chance.randint(1, 3))
        ]
    if chance.random() < 0.4:
        spec["resources"] = random_resources(chance, ["cpu", "memory"])
        for amounts in spec["resources"].values():  # what they bound together is more than what each of them asks for
            amounts.update({name: {"cpu": "30", "memory": "30Gi"}[name] for name in amounts})
    if chance.random() < 0.3:
        spec["runtimeClassName"] = "sandboxed"
    return spec


def requested(spec: Json) -> dict[str, int]:
    """What a stored pod requests, as the Kubernetes documentation says: every request is written there."""

    def of(resources: Json | None) -> dict[str, int]:
        return {name: quantity.parse(size, name) for name, size in ((resources or {}).get("requests") or {}).items()}

    total: dict[str, int] = {}
    for container in spec["containers"]:
        for name, size in of(container.get("resources")).items():
            total[name] = total.get(name, 0) + size
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        asked = of(container.get("resources"))
        if container.get("restartPolicy") == "Always":
            for name, size in asked.items():
                sidecars[name] = sidecars.get(name, 0) + size
                total[name] = total.get(name, 0) + size
        else:
            for name, size in asked.items():
                peak[name] = max(peak.get(name, 0), size + sidecars.get(name, 0))
    total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in {*total, *peak}}
    total |= of(spec.get("resources"))
    for name, size in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + quantity.parse(size, name)
    return {name: size for name, size in total.items() if size}


@pytest.fixture(scope="module")
def kubectl(kubectl: Kubectl) -> Kubectl:
    """Of the shared control plane, with a RuntimeClass and a namespace for each list of limits."""
    kubectl.apply(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "sandboxed"},
            "handler": "sandboxed",
            "overhead": {"podFixed": OVERHEAD},
        }
    )
    for name, rows in RANGES.items():
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if rows:
            body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": rows}}
            kubectl.apply(body, namespace=name)
        there = ("get", "serviceaccount", "default", "-n", name)
        assert eventually(lambda there=there: kubectl.run(*there).returncode == 0, 30)
    return kubectl


def stored(kubectl: Kubectl, namespace: str, specs: list[Json]) -> dict[str, Json]:
    """The pods that the API server accepts, as it would store them, by name."""
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{n}", "namespace": namespace}, "spec": spec}
        for n, spec in enumerate(specs)
    ]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    outcome = kubectl.run("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=body, timeout=120)
    decoder, text, found = json.JSONDecoder(), outcome.stdout.strip(), dict[str, Json]()
    while text:  # one document for each pod
        row, end = decoder.raw_decode(text)
        found |= {each["metadata"]["name"]: each["spec"] for each in row.get("items", [row])}
        text = text[end:].strip()
    return found


@pytest.mark.parametrize("namespace", list(RANGES))
def test_what_is_counted_is_what_the_stored_pod_requests(kubectl: Kubectl, namespace: str) -> None:
    chance = random.Random(f"{SEED} {namespace}")
    specs = [random_pod(chance) for _ in range(PODS)]
    slices = [specs[start : start + AT_ONCE] for start in range(0, PODS, AT_ONCE)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda each: stored(kubectl, namespace, each), slices))
    found = kubectl.json("get", "limitranges", "-n", namespace)[
        "items"
    ]  # with the defaults that the API server fills in
    limits = namespace_rules.together(map(namespace_rules.limits, found)) if found else NO_LIMITS
    overhead = {name: quantity.parse(size, name) for name, size in OVERHEAD.items()}
    rules = NamespaceRules.of(limits, {"sandboxed": overhead}, EVERYTHING)
    accepted = 0
    for batch, answer in zip(slices, answers, strict=True):
        for number, spec in enumerate(batch):
            if (pod := answer.get(f"p{number}")) is None:
                continue
            accepted += 1
            template = {"name": "main", "count": 1, "template": {"spec": spec}}
            workload = {"metadata": {"namespace": namespace, "name": "w", "uid": "u"}, "spec": {"podSets": [template]}}
            read = parse.workload(workload, rules)
            counted = {name: size for name, size in read.pod_sets[0].counted.items() if size}
            assert counted == requested(pod), json.dumps({"template": spec, "stored": pod})
            assert not read.violation, json.dumps({"template": spec, "stored": pod})
    assert accepted > PODS // 4, "of most kinds of templates some are accepted"
