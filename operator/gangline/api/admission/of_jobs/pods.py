"""Pod templates, as far as queueing depends on them: there must be a pod, its requests countable, its placement readable."""

from __future__ import annotations

from typing import Final, cast

from gangline.api.admission import amounts, syntax
from gangline.api.admission.findings import (
    TOO_MANY,
    FieldError,
    Json,
    annotations_of,
    invalid,
    listing,
    mapping,
    objects,
    required,
    too_many,
    wrong_type,
)
from gangline.api.admission.of_jobs import gpu_shares
from gangline.api.sharing import traits

#: a resource that the queueing system counts itself
PODS: Final = "pods"
_TEXTS: Final = ("priorityClassName", "runtimeClassName", "schedulerName")
_LISTS_OF_OBJECTS: Final = ("tolerations", "resourceClaims", "schedulingGates", "topologySpreadConstraints")
CONTAINER_LISTS: Final = ("initContainers", "containers")
#: containers of one pod, and quantities in all of its requests, limits and overhead: more than any node could run
MOST_CONTAINERS: Final = 1000
MOST_AMOUNTS: Final = 1000


def check_pods(path: str, template: Json) -> list[FieldError]:
    """The pods of a template could exist, and what they ask for can be read. Workloads and jobs of all kinds are checked so."""
    meta = mapping(template.get("metadata"))
    return [
        *syntax.label_map(f"{path}.metadata.labels", meta.get("labels")),
        *syntax.annotation_map(f"{path}.metadata.annotations", meta.get("annotations")),
        *check_requests(path, template),
        *check_placement(path, template),
    ]


def check_requests(path: str, template: Json) -> list[FieldError]:
    """Requests, limits and overhead of a template's pod: valid, not negative, no reserved name; and its shares of cards.

    Schemas leave templates open, so the types of the values read here are checked here too.
    """
    body = mapping(template.get("spec"))
    if errors := _too_many(path, body):  # the rest costs time in proportion
        return errors
    for kind in CONTAINER_LISTS:
        errors += _containers(f"{path}.spec.{kind}", body.get(kind))
    errors += _resources(f"{path}.spec.resources", body.get("resources"))
    errors += _amounts(f"{path}.spec.overhead", body.get("overhead")) + gpu_shares.check(path, template)
    wrong = traits.trait_faults(annotations_of(template))
    return errors + [invalid(f"{path}.{fault.field}", fault.value, fault.message) for fault in wrong]


def _too_many(path: str, body: Json) -> list[FieldError]:
    containers = [each for kind in CONTAINER_LISTS for each in listing(body.get(kind))]
    if len(containers) > MOST_CONTAINERS:
        return [too_many(f"{path}.spec.containers", len(containers), MOST_CONTAINERS)]
    resources = [mapping(mapping(each).get("resources")) for each in (*containers, body)]
    named = [mapping(each.get(part)) for each in resources for part in ("requests", "limits")]
    count = sum(map(len, (*named, mapping(body.get("overhead")))))
    if count <= MOST_AMOUNTS:
        return []
    return [
        FieldError(f"{path}.spec", count, f"must name at most {MOST_AMOUNTS} amounts of resources in all", TOO_MANY)
    ]


def _containers(path: str, value: object) -> list[FieldError]:
    if value is None:
        return []
    if not isinstance(value, list):
        return [wrong_type(path, value, "must be a list of containers")]
    errors: list[FieldError] = []
    for i, container in enumerate(listing(cast("list[object]", value))):
        if isinstance(container, dict):
            errors += _resources(f"{path}[{i}].resources", mapping(cast(Json, container)).get("resources"))
        else:
            errors.append(wrong_type(f"{path}[{i}]", container, "must be a container"))
    return errors


def _resources(path: str, value: object) -> list[FieldError]:
    if not isinstance(value, dict | None):
        return [wrong_type(path, value, "must be an object with requests and limits")]
    resources = mapping(cast(object, value))
    errors = _amounts(f"{path}.requests", resources.get("requests"))
    return errors + _amounts(f"{path}.limits", resources.get("limits"))


def _amounts(path: str, value: object) -> list[FieldError]:
    """A map of resource name to quantity, without the resource that we count ourselves."""
    if not isinstance(value, dict | None):
        return [wrong_type(path, value, "must be an object of quantities by resource")]
    errors: list[FieldError] = []
    for name, written in mapping(cast(object, value)).items():
        if name == PODS:
            errors.append(invalid(f"{path}[{name}]", name, "the key is reserved for internal kueue use"))
        errors += amounts.check(f"{path}[{name}]", written, name)
    return errors


def check_placement(path: str, template: Json) -> list[FieldError]:
    """What decides on which nodes the pod may run, and what it asks of them: of the types that pods have."""
    body = mapping(template.get("spec"))
    errors: list[FieldError] = []
    for name in _TEXTS:
        if not isinstance(body.get(name), str | None):
            errors.append(wrong_type(f"{path}.spec.{name}", body[name], "must be a text"))
    for name in _LISTS_OF_OBJECTS:
        errors += _objects(f"{path}.spec.{name}", body.get(name))
    at, selector = f"{path}.spec.nodeSelector", body.get("nodeSelector")
    if not isinstance(selector, dict | None):
        errors.append(wrong_type(at, selector, "must be an object of texts by label"))
    for key, value in mapping(cast(object, selector)).items():
        if not isinstance(value, str):
            errors.append(wrong_type(f"{at}[{key}]", value, "must be a text"))
    at, affinity = f"{path}.spec.affinity", body.get("affinity")
    for name, value in ((at, affinity), (f"{at}.nodeAffinity", mapping(affinity).get("nodeAffinity"))):
        if not isinstance(value, dict | None):
            errors.append(wrong_type(name, value, "must be an object"))
    return errors


def _objects(path: str, value: object) -> list[FieldError]:
    if not isinstance(value, list | None):
        return [wrong_type(path, value, "must be a list of objects")]
    rows = listing(cast(object, value))
    return [
        wrong_type(f"{path}[{i}]", row, "must be an object") for i, row in enumerate(rows) if not isinstance(row, dict)
    ]


def check_template(path: str, template: Json) -> list[FieldError]:
    """The template of a GPUJob: it also needs a container. In other kinds the API server looks for it."""
    errors = check_pods(path, template)
    if not objects(mapping(template.get("spec")).get("containers")):
        errors.append(required(f"{path}.spec.containers", "a pod needs at least one container"))
    return errors
