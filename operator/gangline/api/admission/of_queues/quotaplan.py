"""QuotaPlan: it is valid if it can be read as the operator reads it; the error names the field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gangline.api import schedules
from gangline.api.admission.findings import (
    NOTHING,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    objects,
    spec,
    text,
)
from gangline.api.followed_capacity import FlavorResource
from gangline.api.quota_plans import quota_plan, unknown_quotas
from gangline.api.spec_fields import SpecError
from gangline.kube.resources import CLUSTER_QUEUES


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    del old, context
    try:
        facts = quota_plan(obj)
    except SpecError as error:
        return [FieldError(error.path, NOTHING, error.message)]
    if not facts.overrides and not facts.follow:
        return [FieldError("spec", NOTHING, "give at least one of overrides and follow")]
    return []


def doubt(obj: Json, context: AdmissionFacts) -> list[str]:
    """Windows that are over, a ClusterQueue that there is not, quotas that it does not have, and another plan of it, as the
    operator says.
    """
    facts = quota_plan(obj)
    found = [
        schedules.over(f"spec.overrides[{number}].window")
        for number, each in enumerate(facts.overrides)
        if schedules.is_over(each.when, context.now)
    ]
    name = facts.cluster_queue
    if context.cluster_queue_is_missing(name):
        return [*found, f"spec.clusterQueue: there is no ClusterQueue {name} yet, so the plan has no effect"]
    queue = context.look((CLUSTER_QUEUES, name))
    if queue is not None:
        found += [f"spec: {trouble}" for trouble in unknown_quotas(facts, _quotas(queue))]
    return [*found, *context.warnings_of_plan(obj)]


def _quotas(queue: Json) -> Iterator[FlavorResource]:
    for group in objects(spec(queue).get("resourceGroups")):
        for flavor in objects(group.get("flavors")):
            for resource in objects(flavor.get("resources")):
                yield text(flavor.get("name")), text(resource.get("name"))


RULES: Final = KindRules(validate=validate, doubt=doubt)
