"""Objects of every kind that Gangline serves, in every version: drawn from the schemas of the CRDs, mostly valid, and changed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from tests.api import accepted
from tests.builders.written import gpujob, job
from tests.fuzz.draw import Draw
from tests.fuzz.objects import edit

from gangline.api import names

Json = dict[str, Any]

NAMES = ("a", "b", "c-1", "main")
QUANTITIES = ("0", "1", "200m", "2Ti", "1500m", "8", 3, 0)
KEYS = ("cpu", "memory", "nvidia.com/gpu")
#: what fields of these names say in valid objects, where their schema allows more than that
USUAL: Mapping[str, st.SearchStrategy[Any]] = {
    "apiGroup": st.just("kueue.x-k8s.io"),
    "operator": st.sampled_from(["Exists", "In"]),
    "controllerName": st.sampled_from(["kueue.x-k8s.io/provisioning-request", "example.com/check"]),
    "nodeLabel": st.sampled_from(["rack", "block", "kubernetes.io/hostname"]),
    "queueName": st.sampled_from(NAMES),
    "clusterQueue": st.sampled_from(NAMES),
    "parentName": st.sampled_from(NAMES),
    "cohortName": st.sampled_from(NAMES),
    "cohort": st.sampled_from(NAMES),
}
TEMPLATES = st.builds(
    lambda name, requests, labels: {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": name, "image": "i", "resources": {"requests": requests}}]},
    },
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(QUANTITIES), max_size=2),
    st.dictionaries(st.sampled_from(["team", "kueue.x-k8s.io/podset"]), st.sampled_from(NAMES), max_size=1),
)


@functools.cache
def schemas() -> dict[tuple[str, str], Json]:
    """(apiVersion, kind) -> schema."""
    return {(f"{group}/{version}", kind): schema for kind, group, version, schema in accepted.schemas()}


def values(schema: Json, name: str = "") -> st.SearchStrategy[Any]:
    """What fits the schema. Rules in CEL and of the webhooks are kept by most, not by all."""
    if name == "template":
        return TEMPLATES
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from(QUANTITIES)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "array":
            return _lists(schema, name)
        case "object":
            return _structures(schema)
        case "integer":
            low = schema.get("minimum", 0)
            return st.integers(low, min(schema.get("maximum", low + 9), low + 9))
        case "number":
            return st.sampled_from([0.0, 1.0])
        case "boolean":
            return st.booleans()
    if name in USUAL:
        return USUAL[name]
    return st.sampled_from([accepted._text(schema), *(text for text in NAMES if _fits(text, schema))])


def _fits(text: str, schema: Json) -> bool:
    return accepted._text({**schema, "minLength": max(schema.get("minLength", 0), 1)}) == text or (
        schema.get("pattern") is None and schema.get("format") is None and len(text) >= schema.get("minLength", 0)
    )


def _lists(schema: Json, name: str) -> st.SearchStrategy[list[Any]]:
    keys = schema.get("x-kubernetes-list-map-keys")
    unique = schema.get("x-kubernetes-list-type") == "set"
    least = schema.get("minItems", 0)
    return st.lists(
        values(schema["items"], name),
        min_size=least,
        max_size=max(least, min(2, schema.get("maxItems", 2))),
        unique_by=(lambda item: tuple(str(item.get(key)) for key in keys)) if keys else (repr if unique else None),
    )


def _structures(schema: Json) -> st.SearchStrategy[Json]:
    if "additionalProperties" in schema:
        return st.dictionaries(st.sampled_from(KEYS), values(schema["additionalProperties"]), max_size=2)
    properties = schema.get("properties", {})
    head = accepted.HEAD if properties.keys() >= accepted.HEAD else frozenset[str]()
    fields = {name: values(inner, name) for name, inner in properties.items() if name not in head | {"status"}}
    needed = {*schema.get("required", ()), *({"spec"} & fields.keys() if head else ())}
    required = {name: fields[name] for name in fields if name in needed}
    optional = {name: made for name, made in fields.items() if name not in needed}
    return st.fixed_dictionaries(required, optional=optional)


def objects(api_version: str, kind: str) -> st.SearchStrategy[Json]:
    """Of one kind and version, without a status; the name is its creator's to give."""
    body = values(schemas()[api_version, kind])
    made = st.builds(lambda fields: {"apiVersion": api_version, "kind": kind, "metadata": {}, **fields}, body)
    return st.builds(_repaired, made)


def statuses(api_version: str, kind: str) -> st.SearchStrategy[Json] | None:
    """None for kinds without a status."""
    schema: Json | None = schemas()[api_version, kind]["properties"].get("status")
    return None if schema is None else values(schema)


def _repaired(obj: Json) -> Json:
    """Rules over several fields that chance would seldom keep."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    groups = spec.get("resourceGroups")
    for number, group in enumerate(groups if isinstance(groups, list) else ()):
        covered = [f"r{number}.example.com/{each}" for each in range(max(1, len(group.get("coveredResources", ()))))]
        flavors = group.get("flavors") or []
        group["coveredResources"] = covered
        for each, flavor in enumerate(flavors):
            resources = flavor.get("resources") or [{"nominalQuota": 1}]
            flavor["name"] = f"f{number}-{each}"
            flavor["resources"] = [{**resources[i % len(resources)], "name": name} for i, name in enumerate(covered)]
            if not spec.get("cohort") and not spec.get("cohortName") and obj["kind"] == "ClusterQueue":
                for resource in flavor["resources"]:
                    resource.pop("borrowingLimit", None)
                    resource.pop("lendingLimit", None)
    pod_sets = spec.get("podSets")
    for number, pod_set in enumerate(pod_sets if isinstance(pod_sets, list) else ()):
        pod_set["name"] = f"set-{number}"
        if "minCount" in pod_set:
            pod_set["minCount"] = min(pod_set["minCount"], pod_set.get("count", 1)) or 1
    return obj


def changed(made: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """The same with up to three of the changes that a hostile author could make."""

    def change(obj: Json, choices: list[bytes]) -> Json:
        obj = copy.deepcopy(obj)
        for data in choices:
            edit(obj, Draw(data))
        return obj

    return st.builds(change, made, st.lists(st.binary(min_size=4, max_size=24), max_size=3))


def jobs() -> st.SearchStrategy[Json]:
    """Kubernetes' Jobs and GPUJobs that name a queue."""
    return st.builds(copy.deepcopy, st.sampled_from([job(queue="main"), gpujob(), job()]))


def of_both() -> list[tuple[str, str]]:
    """apiVersion and kind of everything served."""
    return sorted(schemas())


def kueues() -> list[str]:
    """Kinds with two versions."""
    return sorted({kind for api_version, kind in schemas() if api_version == names.V1BETA2})
