"""Reservation: it is valid if it can be read as the operator reads it; the error names the field."""

from __future__ import annotations

from typing import Final

from gangline.api import schedules
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    NOTHING,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    errors_of,
    mapping,
    metadata,
    spec,
    text,
)
from gangline.api.reservations import reservation

#: characters of the longest name: it is a part of the names of windows, and of a label's value
LONGEST_NAME: Final = 63
#: ClusterQueues and LocalQueues of which it is asked whether there are such
MOST_QUEUES: Final = 4


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    del context
    errors: list[FieldError] = []
    name = text(metadata(obj).get("name"))
    if old is None and len(name) > LONGEST_NAME:
        errors.append(FieldError("metadata.name", NOTHING, f"must be no more than {LONGEST_NAME} characters"))
    errors += syntax.label_map("spec.nodes.matchLabels", mapping(spec(obj).get("nodes")).get("matchLabels"))
    return errors + errors_of(lambda: reservation(obj))


def warn(obj: Json) -> list[str]:
    """Nodes given by name and by labels are reserved together, which an author may not expect."""
    nodes = mapping(spec(obj).get("nodes"))
    given = [name for name in ("names", "matchLabels", "anyOf") if nodes.get(name)]
    if len(given) < 2:
        return []
    return [f"spec.nodes: {' and '.join(given)} add up: a node that any of them selects is reserved"]


def doubt(obj: Json, context: AdmissionFacts) -> list[str]:
    """A window that is over, queues that there are not, and what keeps it from being honoured, as the operator says."""
    facts = reservation(obj)
    found = [schedules.over("spec.window")] if schedules.is_over(facts.when, context.now) else []
    for name in sorted(facts.owners.cluster_queues)[:MOST_QUEUES]:
        if context.cluster_queue_is_missing(name):
            found.append(f"spec.for.clusterQueues: there is no ClusterQueue {name} yet")
    for key in sorted(facts.owners.local_queues)[:MOST_QUEUES]:
        namespace, _, name = key.partition("/")
        if context.local_queue_is_missing(namespace, name):
            found.append(f"spec.for.localQueues: there is no LocalQueue {key} yet")
    return [*found, *context.warnings_of_plan(obj)]


RULES: Final = KindRules(validate=validate, warn=warn, doubt=doubt)
