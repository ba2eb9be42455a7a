"""Reservations as plain values. Pure functions on JSON, for operator and webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gangline.api.schedules import Span, Weekly, deadline, when
from gangline.api.spec_fields import SpecError, a_list, a_text, an_object, some_texts
from gangline.api.unchecked import mapping
from gangline.engine.model import Deadline
from gangline.kube.resources import Json

#: nodes, labels, and queues of each kind that a Reservation may name
MOST_NAMES: Final = 1000
MOST_LABELS: Final = 16
MOST_QUEUES: Final = 64


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """A Reservation's spec."""

    when: Span | Weekly
    node_names: frozenset[str]
    node_labels: tuple[tuple[str, str], ...]
    #: so many nodes of a flavor
    any_of: tuple[str, int] | None
    cluster_queues: frozenset[str]
    local_queues: frozenset[str]
    deadline: Deadline

    @property
    def maintenance(self) -> bool:
        """Whether nobody may use the nodes in the windows."""
        return not (self.cluster_queues or self.local_queues)


def reservation(obj: Json) -> ReservationFacts:
    """A Reservation. Raises SpecError, which names the field."""
    spec = an_object(obj.get("spec"), "spec")
    nodes = an_object(spec.get("nodes"), "spec.nodes")
    names = some_texts(nodes.get("names"), "spec.nodes.names", MOST_NAMES)
    labels = _labels(nodes.get("matchLabels"))
    any_of = _any_of(nodes.get("anyOf"))
    if not (names or labels or any_of):
        raise SpecError("spec.nodes", "give names, matchLabels or anyOf")
    cluster_queues, local_queues = _owners(spec.get("for"))
    return ReservationFacts(
        when(an_object(spec.get("window"), "spec.window"), "spec.window"),
        names,
        labels,
        any_of,
        cluster_queues,
        local_queues,
        deadline(spec, "spec"),
    )


def _labels(value: Any) -> tuple[tuple[str, str], ...]:
    path = "spec.nodes.matchLabels"
    found = an_object(value, path) if value is not None else {}
    if len(found) > MOST_LABELS:
        raise SpecError(path, f"must have at most {MOST_LABELS} labels")
    if any(not isinstance(each, str) for each in found.values()):
        raise SpecError(path, "must have strings as values")
    return tuple(sorted(found.items()))


def _any_of(value: Any) -> tuple[str, int] | None:
    if value is None:
        return None
    found = an_object(value, "spec.nodes.anyOf")
    count = found.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 1 << 31:
        raise SpecError("spec.nodes.anyOf.count", "must be a whole number greater than 0")
    return a_text(found.get("flavor"), "spec.nodes.anyOf.flavor"), count


def _owners(value: Any) -> tuple[frozenset[str], frozenset[str]]:
    """The ClusterQueues by name, and the LocalQueues as namespace/name."""
    if value is None:
        return frozenset(), frozenset()
    owners, path = an_object(value, "spec.for"), "spec.for.localQueues"
    cluster_queues = some_texts(owners.get("clusterQueues"), "spec.for.clusterQueues", MOST_QUEUES)
    local_queues: set[str] = set()
    for i, each in enumerate(a_list(owners.get("localQueues"), path, MOST_QUEUES)):
        queue = mapping(each)
        namespace, name = (a_text(queue.get(key), f"{path}[{i}].{key}") for key in ("namespace", "name"))
        local_queues.add(f"{namespace}/{name}")
    if not (cluster_queues or local_queues):
        raise SpecError("spec.for", "give clusterQueues or localQueues; a maintenance has no spec.for at all")
    return cluster_queues, frozenset(local_queues)
