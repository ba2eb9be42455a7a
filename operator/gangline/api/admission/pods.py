"""Pod templates, as far as queueing depends on them: somebody must run, and what they ask for must be countable."""

from __future__ import annotations

from typing import Final

from gangline.api.admission import amounts
from gangline.api.admission.model import FieldError, Json, mapping, objects, required

CONTAINER_LISTS: Final = ("initContainers", "containers")


def check_requests(path: str, template: Json) -> list[FieldError]:
    """Requests, limits and overhead of a template's pod: valid, not negative, no reserved name."""
    body = mapping(template.get("spec"))
    errors: list[FieldError] = []
    for kind in CONTAINER_LISTS:
        for i, container in enumerate(objects(body.get(kind))):
            errors += amounts.check_container(f"{path}.spec.{kind}[{i}]", container)
    pod_level = mapping(body.get("resources"))
    errors += amounts.check_requests(f"{path}.spec.resources.requests", pod_level.get("requests"))
    return errors + amounts.check_requests(f"{path}.spec.overhead", body.get("overhead"))


def check_template(path: str, template: Json) -> list[FieldError]:
    """A template that a job brings: it also needs a container."""
    errors = check_requests(path, template)
    if not objects(mapping(template.get("spec")).get("containers")):
        errors.append(required(f"{path}.spec.containers", "a pod needs at least one container"))
    return errors
