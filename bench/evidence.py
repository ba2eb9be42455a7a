"""What objects say of quota, read from their JSON for `bench.proof`.

Shares no code with the operator, whose readers are judged by it: quantities are read by the official client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from kubernetes.utils.quantity import parse_quantity

from bench.official import Kind, key

Json: TypeAlias = dict[str, Any]
#: (flavor, resource); amounts are milli-units of cpu, whole units of everything else, rounded up
Place: TypeAlias = tuple[str, str]
Usage: TypeAlias = Counter[Place]

WORKLOADS = Kind("kueue.x-k8s.io", "v1beta2", "workloads")
CLUSTER_QUEUES = Kind("kueue.x-k8s.io", "v1beta2", "clusterqueues")
COHORTS = Kind("kueue.x-k8s.io", "v1beta2", "cohorts")
NODES, PODS = Kind("", "v1", "nodes"), Kind("", "v1", "pods")
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
#: of elastic jobs: the name of the first slice, on pods and Workloads; and the slice that one replaces
SLICE_NAME, REPLACES = "kueue.x-k8s.io/workload-slice-name", "kueue.x-k8s.io/workload-slice-replacement-for"
PODSET = "kueue.x-k8s.io/podset"
#: levels of topology assignments: the host, and below it the cards of each pod; and on pods, the cards that were chosen for them
HOST_LEVEL, CARD_LEVEL, CARDS = "kubernetes.io/hostname", "gangline.io/card-", "gangline.io/cards"
#: of nodes: what the node draws without work, and each accelerator at most
IDLE_WATTS, GPU_WATTS = "gangline.io/idle-watts", "gangline.io/gpu-watts"


@dataclass(frozen=True, slots=True)
class Seat:
    """What one pod takes of one card."""

    card: str
    milli: int
    memory: int
    alone: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods of a pod set on a host, each with seats on these cards; none where they do not share cards."""

    pod_set: str
    host: str
    seats: tuple[Seat, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Grant:
    """What a Workload holds. `flavors` and `counts` are by pod set, `lacks` says which of them it does not cover."""

    queue: str
    usage: Usage
    flavors: Mapping[str, Mapping[str, str]]
    counts: Mapping[str, int]
    admitted: bool
    lacks: str = ""
    #: what a pod of each pod set uses
    needs: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    #: of an elastic job: its gang, which all slices have in common, and the slice that it takes over from
    gang: str = ""
    replaces: str = ""
    places: tuple[Placed, ...] = ()

    def on_hosts(self, resource: str) -> Counter[str]:
        """What it may use of a resource on each host, where its pods have places."""
        found = Counter[str]()
        for each in self.places:
            found[each.host] += each.count * self.needs.get(each.pod_set, {}).get(resource, 0)
        return +found


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a gang. `live`: it is not being deleted. `cards`: its own by its annotations."""

    uid: str
    gang: str
    pod_set: str
    node: str
    needs: Mapping[str, int]
    live: bool
    cards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ground:
    """A node. `answers`: what runs there can be asked to end. `watts`: what it draws idle, and each accelerator at most."""

    answers: bool
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    capacity: Mapping[str, int] = field(default_factory=dict[str, int])
    watts: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Budget:
    """Quota of a ClusterQueue or a Cohort. `parent` is its cohort; a place without a borrowing limit may borrow everything."""

    parent: str = ""
    nominal: Mapping[Place, int] = field(default_factory=dict[Place, int])
    borrowing: Mapping[Place, int] = field(default_factory=dict[Place, int])

    def most(self, place: Place) -> int | None:
        """What a queue may hold; None: as much as there is in its cohort."""
        nominal = self.nominal.get(place, 0)
        if not self.parent:
            return nominal
        return nominal + self.borrowing[place] if place in self.borrowing else None


State: TypeAlias = Grant | Member | Ground | Budget


@dataclass(frozen=True, slots=True)
class Revision:
    """One object at one revision. `state` None: it holds nothing, or is gone. `at` is the time of its arrival, in seconds."""

    number: int
    kind: Kind
    key: str
    state: State | None
    at: float = 0.0
    gone: bool = False

    @classmethod
    def of(cls, kind: Kind, obj: Json, *, gone: bool = False, at: float = 0.0) -> Revision:
        state = None if gone else READERS[kind](obj)
        return cls(int(obj["metadata"]["resourceVersion"]), kind, key(obj), state, at, gone)


# --- workloads --------------------------------------------------------------------------------------------------------


def _grant(workload: Json) -> Grant | None:
    status = workload.get("status") or {}
    if not is_true(status, "QuotaReserved") or is_true(status, "Finished") or not status.get("admission"):
        return None
    admission, pod_sets = status["admission"], workload["spec"].get("podSets") or ()
    rows = {row.get("name", "main"): row for row in admission.get("podSetAssignments") or ()}
    counts = {name: row.get("count", 0) for name, row in rows.items()}
    # a gang that is admitted again after some of its pods have ended is granted the others
    ended = {row["name"]: row["count"] for row in status.get("reclaimablePods") or ()}
    still = {name: count - ended.get(name, 0) for name, count in map(_size, pod_sets)}
    usage: Usage = Counter()
    needs: dict[str, Mapping[str, int]] = {}
    for name, row in rows.items():
        left = max(0, min(counts[name], still.get(name, counts[name])))
        used = amounts(row.get("resourceUsage"))
        needs[name] = {resource: number // max(1, counts[name]) for resource, number in used.items()}
        for resource, flavor in (row.get("flavors") or {}).items():
            usage[flavor, resource] += used.get(resource, 0) * left // max(1, counts[name])
    flavors = {name: row.get("flavors") or {} for name, row in rows.items()}
    lacks = _uncovered(pod_sets, still, counts)
    written, namespace = workload["metadata"].get("annotations") or {}, workload["metadata"]["namespace"]
    first = written.get(SLICE_NAME)
    if first:  # it may have given up pods since
        counts, lacks = {name: min(count, still.get(name, count)) for name, count in counts.items()}, ""
    gang, replaces = f"{namespace}/{first}" if first else "", written.get(REPLACES, "")
    places = tuple(place for name, row in rows.items() for place in _places(name, row.get("topologyAssignment")))
    admitted = is_true(status, "Admitted")
    return Grant(admission["clusterQueue"], usage, flavors, counts, admitted, lacks, needs, gang, replaces, places)


def _size(pod_set: Json) -> tuple[str, int]:
    return pod_set.get("name", "main"), pod_set.get("count", 1)


def _uncovered(pod_sets: Sequence[Json], still: Mapping[str, int], counts: Mapping[str, int]) -> str:
    for pod_set in pod_sets:
        name, count = _size(pod_set)
        least = min(pod_set.get("minCount") or count, still[name])
        if not least <= counts.get(name, -1) <= count:
            return f"{counts.get(name, 0)} of {count} pods of pod set {name}"
    return ""


def _places(pod_set: str, placed: Json | None) -> Iterator[Placed]:
    """Pods on hosts, by their topology assignment, with their cards where it has levels for these. Nothing where it names no
    hosts.
    """
    levels = (placed or {}).get("levels") or ()
    first = sum(not level.startswith(CARD_LEVEL) for level in levels)
    for part in (placed or {}).get("slices") or () if HOST_LEVEL in levels else ():
        number = part["domainCount"]
        columns = [_spread(each, number) for each in part["valuesPerLevel"]]
        for position, count in enumerate(_spread(part["podCounts"], number)):
            values = [column[position] for column in columns]
            seats = tuple(_seat(value) for value in values[first:] if value != "-")
            yield Placed(pod_set, values[first - 1], seats, count)


def _spread(values: Json, number: int) -> list[Any]:
    """One value for each domain: all alike, or each its own, perhaps with what they have in common taken out."""
    if "universal" in values:
        return [values["universal"]] * number
    each = values["individual"]
    if isinstance(each, list):
        return each
    return [f"{each.get('prefix') or ''}{root}{each.get('suffix') or ''}" for root in each["roots"]]


def _seat(value: str) -> Seat:
    card, milli, memory, how = value.rsplit(":", 3)
    return Seat(card, int(milli), int(memory), how == "alone")


# --- pods and nodes ---------------------------------------------------------------------------------------------------


def _member(pod: Json) -> Member | None:
    """None for a pod without a gang, a controller or a node, and for one that has ended."""
    meta, spec = pod["metadata"], pod["spec"]
    written = meta.get("annotations") or {}
    workload = written.get(SLICE_NAME) or written.get(WORKLOAD_ANNOTATION)
    owned = any(ref.get("controller") for ref in meta.get("ownerReferences") or ())
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if not workload or not owned or ended or not spec.get("nodeName"):
        return None
    pod_set = (meta.get("labels") or {}).get(PODSET, "main")
    live = "deletionTimestamp" not in meta
    cards = tuple(card for card in written.get(CARDS, "").split(",") if card)
    return Member(
        meta["uid"], f"{meta['namespace']}/{workload}", pod_set, spec["nodeName"], requests(spec), live, cards
    )


def requests(spec: Json) -> Mapping[str, int]:
    """What a pod requests: its containers and sidecars together, or more while an init container runs; with overhead."""
    together, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()
    for container in spec.get("containers") or ():
        together.update(_requested(container))
    for container in spec.get("initContainers") or ():
        wanted = Counter(_requested(container))
        if container.get("restartPolicy") == "Always":
            together.update(wanted)
            sidecars.update(wanted)
        else:
            peak |= Counter({name: amount + sidecars[name] for name, amount in wanted.items()})
    together |= peak
    # a limit of the pod as a whole counts only where no container has a request, be it for nothing
    named = {
        name for kind in ("containers", "initContainers") for each in spec.get(kind) or () for name in _requested(each)
    }
    whole = {"limits": {}, "requests": {}, **(spec.get("resources") or {})}
    for name in filter(_of_pods, {**whole["limits"], **whole["requests"]}):
        if name in whole["requests"]:
            together[name] = amount(whole["requests"][name], name)
        elif name not in named:
            together[name] = amount(whole["limits"][name], name)
    together.update(amounts(spec.get("overhead")))
    return together


def _requested(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def _of_pods(resource: str) -> bool:
    """A pod may ask for it as a whole."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _ground(node: Json) -> Ground:
    meta, status = node["metadata"], node.get("status") or {}
    answers = all(row["status"] == "True" for row in status.get("conditions") or () if row["type"] == "Ready")
    written = meta.get("annotations") or {}
    watts = int(written.get(IDLE_WATTS, 0)), int(written.get(GPU_WATTS, 0))
    return Ground(answers, meta.get("labels") or {}, amounts(status.get("allocatable")), watts)


# --- quotas -----------------------------------------------------------------------------------------------------------


def _budget(obj: Json) -> Budget:
    spec = obj.get("spec") or {}
    nominal, borrowing = dict[Place, int](), dict[Place, int]()
    for flavor, row in _quotas(spec.get("resourceGroups") or ()):
        place = (flavor, row["name"])
        nominal[place] = amount(row.get("nominalQuota", 0), row["name"])
        if row.get("borrowingLimit") is not None:
            borrowing[place] = amount(row["borrowingLimit"], row["name"])
    return Budget(spec.get("cohortName") or spec.get("parentName") or "", nominal, borrowing)


def _quotas(groups: Iterable[Json]) -> Iterable[tuple[str, Json]]:
    for group in groups:
        for flavor in group["flavors"]:
            for row in flavor["resources"]:
                yield flavor["name"], row


def is_true(status: Json, kind: str) -> bool:
    return any(row["type"] == kind and row["status"] == "True" for row in status.get("conditions") or ())


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {resource: amount(quantity, resource) for resource, quantity in (quantities or {}).items()}


def amount(quantity: str | int | float, resource: str) -> int:
    return _amount(str(quantity), 1000 if resource == "cpu" else 1)


@lru_cache(maxsize=4096)
def _amount(quantity: str, scale: int) -> int:
    return math.ceil(parse_quantity(quantity) * scale)


READERS: dict[Kind, Any] = {
    WORKLOADS: _grant,
    PODS: _member,
    NODES: _ground,
    CLUSTER_QUEUES: _budget,
    COHORTS: _budget,
}
