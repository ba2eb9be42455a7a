"""The outcome of flavor assignment: how each amount of a gang could be had, or what prevents it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from gangline.engine.flavors.flavor_needs import PODS
from gangline.engine.model import Admission, Millis, PodSet, PodSetAssignment, TopologyAssignment
from gangline.engine.nodes.capacity_request import CapacityRequest
from gangline.engine.queues.workload_state import ScanProgress, WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource
from gangline.engine.topology.placement import Placing, node_needs
from gangline.engine.topology.topologies import NodeNeeds


class Mode(IntEnum):
    """How an amount could be had, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2  # victims in the own queue are among those needed
    RECLAIM = 3  # all victims are in other queues
    FIT = 4


class Grade(NamedTuple):
    mode: Mode
    borrow: int


class FlavorObstacle(NamedTuple):
    """One reason against a flavor. `kind` orders by severity; the numbers are there for quota reasons."""

    kind: int
    flavor: str
    resource: str = ""
    before: int = 0  # requested by earlier pod sets
    amount: int = 0  # requested by this one
    limit: int = 0  # what can be had: ever (EXCEEDS_MAX) or now (WAITING)
    text: str = ""  # for the other kinds


#: kinds of obstacles, mildest first
TOPOLOGY, WAITING, CAPACITY, EXCEEDS_MAX, NO_MATCH = range(5)
NO_CAPACITY = "WaitingForCapacity"
REASONS = ("TopologyPlacementFailed", "WaitingForQuota", NO_CAPACITY, "ExceedsMaxQuota", "NoMatchingFlavor")


@dataclass(slots=True)
class FlavorChoice:
    """The flavor of one resource of a pod set."""

    cell: Cell
    amount: int
    grade: Grade
    tried: int = -1

    @property
    def flavor(self) -> str:
        return self.cell.fr[0]


@dataclass(slots=True)
class PodSetChoice:
    pod_set: PodSet
    count: int
    choices: dict[str, FlavorChoice]
    fits: bool
    obstacles: list[FlavorObstacle]
    failed: bool = False  # no flavor, or a resource that the queue does not have
    topology: TopologyAssignment | None = None
    delayed_topology: str = ""
    #: what the slice that it replaces holds already, by resource, and for how many pods
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    held_pods: int = 0

    @property
    def name(self) -> str:
        return self.pod_set.name

    @property
    def flavor(self) -> str:
        return next((choice.flavor for choice in self.choices.values()), "")

    @property
    def flavors(self) -> dict[str, str]:
        """The chosen flavors by resource."""
        return {resource: choice.flavor for resource, choice in self.choices.items()}


class Assignment:
    """The outcome of an attempt, complete or up to the first pod set that failed."""

    __slots__ = (
        "borrowing",
        "capacity_request",
        "lacking",
        "mode",
        "placing",
        "pod_sets",
        "preview",
        "protected_until",
        "replaces",
        "severity",
        "usage",
    )

    def __init__(self) -> None:
        self.pod_sets: list[PodSetChoice] = []
        #: FIT, PREEMPT (with or without candidates) or NO_FIT
        self.mode = Mode.FIT
        self.borrowing = 0
        #: what it needs besides what the slice that it replaces holds
        self.usage: dict[Cell, int] = {}
        #: the slice that it replaces, None = none
        self.replaces: WorkloadState | None = None
        #: the topology placement that it needs, None if none
        self.placing: Placing | None = None
        #: the room on healthy nodes that it needs, None if nodes do not bound it
        self.capacity_request: CapacityRequest | None = None
        #: the room that it lacks on the nodes of a flavor that was ruled out for that
        self.lacking: CapacityRequest | None = None
        #: the worst kind of obstacle of the last pod set, -1 = none
        self.severity = -1
        #: what a placement policy that is tried out would do
        self.preview = ""
        #: victims exist but are protected: when the first protection ends
        self.protected_until: Millis | None = None

    @staticmethod
    def nothing() -> Assignment:
        """The assignment of a workload that gets nothing, whatever is free."""
        found = Assignment()
        found.mode, found.severity = Mode.NO_FIT, NO_MATCH
        return found

    def append(self, choice: PodSetChoice) -> None:
        self.pod_sets.append(choice)
        for taken in choice.choices.values():
            self.usage[taken.cell] = self.usage.get(taken.cell, 0) + taken.amount
            self.borrowing = max(self.borrowing, taken.grade.borrow)
        if choice.failed:
            self.mode = Mode.NO_FIT
        elif not choice.fits:
            worst = min(taken.grade.mode for taken in choice.choices.values())
            self.mode = min(self.mode, Mode.FIT if worst is Mode.FIT else Mode.PREEMPT)

    def take_places(self, placements: Mapping[str, TopologyAssignment]) -> None:
        for pod_set in self.pod_sets:
            pod_set.topology = placements.get(pod_set.name, pod_set.topology)

    def placements(self) -> dict[str, TopologyAssignment]:
        return {pod_set.name: pod_set.topology for pod_set in self.pod_sets if pod_set.topology is not None}

    def admission(self, queue: str) -> Admission:
        """What is granted with it in the ClusterQueue of that name."""
        return Admission(
            queue,
            tuple(
                PodSetAssignment(
                    name=pod_set.name,
                    count=pod_set.count,
                    flavors=pod_set.flavors,
                    usage={
                        resource: choice.amount + pod_set.held.get(resource, 0)
                        for resource, choice in pod_set.choices.items()
                    },
                    topology=pod_set.topology,
                    delayed_topology=pod_set.delayed_topology,
                )
                for pod_set in self.pod_sets
            ),
        )

    def total(self) -> dict[FlavorResource, int]:
        """What the workload uses in all, with what the slice that it replaces holds."""
        total = {cell.fr: amount for cell, amount in self.usage.items()}
        if self.replaces is not None:
            for pod_set in self.pod_sets:
                for resource, choice in pod_set.choices.items():
                    total[choice.cell.fr] += pod_set.held.get(resource, 0)
        return total

    @property
    def lacks_room(self) -> bool:
        """Whether room on healthy nodes is missing, and quota is not."""
        kinds = {obstacle.kind for pod_set in self.pod_sets if not pod_set.fits for obstacle in pod_set.obstacles}
        return CAPACITY in kinds and WAITING not in kinds

    @property
    def reason(self) -> str:
        return REASONS[self.severity] if self.severity >= 0 else ""

    def progress(self) -> ScanProgress:
        return tuple(
            {resource: choice.tried for resource, choice in pod_set.choices.items()} for pod_set in self.pod_sets
        )

    def flavors_left(self) -> bool:
        """Whether the scan stopped before the last flavor of some resource."""
        for pod_set in self.pod_sets:
            for choice in pod_set.choices.values():
                if choice.tried != -1:
                    return True
        return False

    @property
    def asks_for_places(self) -> bool:
        """Whether the workload needs room on nodes besides quota."""
        return self.placing is not None or self.capacity_request is not None

    def node_needs(self, admission: Admission) -> NodeNeeds:
        """What its placed pods take of nodes, where quota counts them otherwise."""
        return node_needs((pod_set.pod_set for pod_set in self.pod_sets), admission)

    def has_room(self) -> bool:
        """Whether healthy nodes have room for its pods that are not placed, beside those that are."""
        if self.capacity_request is None or self.placing is None:
            return self.capacity_request is None or self.capacity_request.fits()
        with self.placing.beside(self.placements()):
            return self.capacity_request.fits()

    def needed(self) -> list[Cell]:
        """What can only be had by preemption."""
        cells = {
            choice.cell: None
            for pod_set in self.pod_sets
            for choice in pod_set.choices.values()
            if choice.grade.mode is not Mode.FIT
        }
        return list(cells)

    def requests(self, *, with_pods: bool) -> dict[Cell, int]:
        """What victims must make room for. In Kueue `pods` is left out."""
        return {cell: amount for cell, amount in self.usage.items() if amount and (with_pods or cell.fr[1] != PODS)}


def verdict_of(gang: WorkloadState) -> Assignment | None:
    """The outcome of the last attempt of a waiting workload; None if it was not tried since its facts changed."""
    verdict = gang.verdict
    return verdict if isinstance(verdict, Assignment) else None
