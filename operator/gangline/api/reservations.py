"""Reservations as plain values. Pure functions on JSON, for operator and webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gangline import bounded
from gangline.api import quantity
from gangline.api.schedules import Span, Weekly, deadline, when
from gangline.api.spec_fields import SpecError, a_list, a_text, an_object, some_texts
from gangline.api.unchecked import mapping
from gangline.engine.model import Deadline
from gangline.kube.resources import Json

#: what unset fields mean
USUAL_FIRMNESS: Final = "Hard"
#: nodes, labels, queues of each kind, and users that a Reservation may name
MOST_NAMES: Final = 1000
MOST_LABELS: Final = 16
MOST_QUEUES: Final = 64
MOST_USERS: Final = 64
#: resources of which a Reservation may ask for an amount
MOST_RESOURCES: Final = 8
LONGEST_RESOURCE: Final = 317
#: recalls that a status lists
MOST_RECALLS: Final = 64


class Owners(NamedTuple):
    """Whose workloads may use the nodes in the windows: names of ClusterQueues, LocalQueues as namespace/name, users."""

    cluster_queues: frozenset[str] = frozenset()
    local_queues: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SomeNodes:
    """Nodes of a flavor, whichever: `count` of them, or as many as offer these amounts together."""

    flavor: str
    count: int | None = None
    amounts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """A Reservation's spec."""

    when: Span | Weekly
    node_names: frozenset[str]
    node_labels: tuple[tuple[str, str], ...]
    any_of: SomeNodes | None
    owners: Owners
    soft: bool
    deadline: Deadline

    @property
    def maintenance(self) -> bool:
        """Whether nobody may use the nodes in the windows."""
        return not any(self.owners)


def reservation(obj: Json) -> ReservationFacts:
    """A Reservation. Raises SpecError, which names the field."""
    spec = an_object(obj.get("spec"), "spec")
    nodes = an_object(spec.get("nodes"), "spec.nodes")
    names = some_texts(nodes.get("names"), "spec.nodes.names", MOST_NAMES)
    labels = _labels(nodes.get("matchLabels"))
    any_of = _any_of(nodes.get("anyOf"))
    if not (names or labels or any_of):
        raise SpecError("spec.nodes", "give names, matchLabels or anyOf")
    owners, firm = _owners(spec.get("for")), spec.get("firm") or USUAL_FIRMNESS
    if firm not in ("Hard", "Soft"):
        raise SpecError("spec.firm", "must be Hard or Soft")
    if firm == "Soft" and not any(owners):
        raise SpecError("spec.firm", "a maintenance is Hard: nobody could need the nodes of a soft one")
    times = deadline(spec, "spec")
    if firm == "Soft" and times.shortest_run is not None:
        raise SpecError(
            "spec.startWithCheckpoints", "is for hard windows: others may start on the nodes of a soft one anyway"
        )
    return ReservationFacts(
        when(an_object(spec.get("window"), "spec.window"), "spec.window"),
        names,
        labels,
        any_of,
        owners,
        firm == "Soft",
        times,
    )


def _labels(value: Any) -> tuple[tuple[str, str], ...]:
    path = "spec.nodes.matchLabels"
    found = an_object(value, path) if value is not None else {}
    if len(found) > MOST_LABELS:
        raise SpecError(path, f"must have at most {MOST_LABELS} labels")
    if any(not isinstance(each, str) for each in found.values()):
        raise SpecError(path, "must have strings as values")
    return tuple(sorted(found.items()))


def _any_of(value: Any) -> SomeNodes | None:
    if value is None:
        return None
    path = "spec.nodes.anyOf"
    found = an_object(value, path)
    flavor, count = a_text(found.get("flavor"), f"{path}.flavor"), found.get("count")
    amounts = _amounts(found.get("resources"), f"{path}.resources")
    if (count is not None) == bool(amounts):
        raise SpecError(path, "give either count or resources")
    if amounts:
        return SomeNodes(flavor, amounts=amounts)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 1 << 31:
        raise SpecError(f"{path}.count", "must be a whole number greater than 0")
    return SomeNodes(flavor, count)


def _amounts(value: Any, path: str) -> tuple[tuple[str, int], ...]:
    found = an_object(value, path) if value is not None else {}
    if len(found) > MOST_RESOURCES:
        raise SpecError(path, f"must have at most {MOST_RESOURCES} resources")
    amounts: list[tuple[str, int]] = []
    for resource, given in sorted(found.items()):
        try:
            amount = quantity.parse(given, resource)
        except quantity.QuantityError:
            amount = 0
        if amount <= 0 or len(resource) > LONGEST_RESOURCE:
            raise SpecError(path, f"{bounded.shown(resource)} must be a resource, and its quantity greater than 0")
        amounts.append((resource, amount))
    return tuple(amounts)


def _owners(value: Any) -> Owners:
    if value is None:
        return Owners()
    owners, path = an_object(value, "spec.for"), "spec.for.localQueues"
    cluster_queues = some_texts(owners.get("clusterQueues"), "spec.for.clusterQueues", MOST_QUEUES)
    local_queues: set[str] = set()
    for i, each in enumerate(a_list(owners.get("localQueues"), path, MOST_QUEUES)):
        queue = mapping(each)
        namespace, name = (a_text(queue.get(key), f"{path}[{i}].{key}") for key in ("namespace", "name"))
        local_queues.add(f"{namespace}/{name}")
    users = some_texts(owners.get("users"), "spec.for.users", MOST_USERS)
    if not (cluster_queues or local_queues or users):
        raise SpecError("spec.for", "give clusterQueues, localQueues or users; a maintenance has no spec.for at all")
    return Owners(cluster_queues, frozenset(local_queues), users)
