"""Flavor assignment: which flavor each resource of each pod set would use, and whether it fits there.

Pod sets go in order, each seeing what the earlier ones took. Within a pod set all resources of one resource group get the same
flavor. Flavors are tried in the queue's order until one is good enough (by `Fungibility`); otherwise the best one is taken. The
scan remembers where it stopped, so that the next attempt can continue there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

from gangline.engine.flavors.assignment import (
    CAPACITY,
    EXCEEDS_MAX,
    NO_MATCH,
    TOPOLOGY,
    WAITING,
    Assignment,
    FlavorChoice,
    FlavorObstacle,
    Grade,
    Mode,
    PodSetChoice,
    asked_of,
    contradiction,
)
from gangline.engine.flavors.placement_preview import preview
from gangline.engine.model import UNLIMITED, Flavor, Fungibility, PodSet, Settings, TopologyAssignment
from gangline.engine.model.settings import FALSE_FIT
from gangline.engine.nodes.capacity import Capacity
from gangline.engine.nodes.capacity_request import CapacityRequest
from gangline.engine.nodes.packer import Shortage
from gangline.engine.placing.placement_search import NO_SEARCH, PlaceFinder
from gangline.engine.queues.cluster_queue import (
    ClusterQueueState,
    FlavorOption,
    GroupNeeds,
    PodSetRequests,
    Way,
    amounts_of,
    pods_of,
    replaced_slice,
)
from gangline.engine.queues.quotas_ahead import QuotasAhead, grows_text
from gangline.engine.queues.workload_parts import ScanProgress
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell
from gangline.engine.topology.placement import PENDING, placed_on, placing
from gangline.engine.topology.topologies import PlacementResult, Topologies

#: per pod set: resource -> the only flavor to try
Restriction = Sequence[Mapping[str, str]]


class Chosen(Protocol):
    """A workload that would be preempted."""

    @property
    def gang(self) -> WorkloadState: ...


class Oracle(Protocol):
    """What preemption could free (`engine.preemption.preemptor`)."""

    @property
    def settings(self) -> Settings: ...
    @property
    def topologies(self) -> Topologies: ...
    @property
    def capacity(self) -> Capacity: ...
    @property
    def quotas_ahead(self) -> QuotasAhead | None: ...
    def possibility(self, gang: WorkloadState, queue: ClusterQueueState, cell: Cell, amount: int) -> Grade: ...
    def for_room(
        self,
        gang: WorkloadState,
        queue: ClusterQueueState,
        requests: Mapping[Cell, int],
        capacity_request: CapacityRequest,
    ) -> Sequence[Chosen]: ...


class Assigner:
    """Assigns flavors to one gang in its queue, against the ledger as it is."""

    __slots__ = ("_counts", "_gang", "_legacy", "_old", "_preemptor", "_queue", "_restriction", "_search", "_tried")

    def __init__(
        self,
        gang: WorkloadState,
        queue: ClusterQueueState,
        preemptor: Oracle,
        *,
        tried: ScanProgress = (),
        restriction: Restriction | None = None,
        search: PlaceFinder = NO_SEARCH,
    ) -> None:
        self._gang = gang
        self._queue = queue
        self._preemptor = preemptor
        self._legacy = not preemptor.settings.gates.get("FlavorFungibility", True)
        self._tried: ScanProgress = () if self._legacy else tried
        self._restriction = restriction
        self._search = search
        #: the slice that the gang replaces, None = none
        self._old = replaced_slice(gang, queue)
        self._counts: Sequence[int] | None = None

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Assign flavors to all pod sets. `counts` replaces their counts (partial admission)."""
        self._counts = counts
        assignment = Assignment()
        gang, queue = self._gang, self._queue
        ignore = self._preemptor.settings.ignore_undeclared_resources
        everything = asked_of(gang, queue, self._preemptor.topologies, counts, ignore_missing=ignore, old=self._old)
        for members, asked in zip(gang.groups, everything, strict=True):
            choices = self._assign_group(members, asked, assignment)
            for choice in choices:
                assignment.append(choice)
            if choices[0].failed:
                break
        if self._old is not None:
            self._keep(assignment, self._old)
        if assignment.mode is not Mode.NO_FIT and (queue.only_topologies or gang.wants_topology):
            self._place(assignment)
        capacity = self._preemptor.capacity
        if assignment.mode is not Mode.NO_FIT and capacity.health.nodes:
            self._find_room(assignment, capacity)
        if queue.preview is not None and assignment.mode is Mode.FIT:
            topologies, gates = self._preemptor.topologies, self._preemptor.settings.gates
            assignment.preview = preview(topologies, _members(assignment), gates, queue.preview, self._search)
        return assignment

    def _keep(self, assignment: Assignment, old: WorkloadState) -> None:
        """What the replaced slice holds is part of what is granted, and is not asked for."""
        assignment.replaces = old
        amounts, pods = amounts_of(old), pods_of(old)
        for pod_set in assignment.pod_sets:
            pod_set.held, pod_set.held_pods = amounts.get(pod_set.name, {}), pods.get(pod_set.name, 0)

    # --- capacity -----------------------------------------------------------------------------------------------------

    def _find_room(self, assignment: Assignment, capacity: Capacity) -> None:
        """Quota is there, or can be had: find room on healthy nodes for all pod sets at once."""
        if self._queue.delays_topology:
            return
        asks = [
            (
                pod_set.pod_set,
                max(0, pod_set.count - pod_set.held_pods),
                [choice.flavor for choice in pod_set.choices.values()],
            )
            for pod_set in assignment.pod_sets
            if pod_set.topology is None
            and (assignment.placing is None or pod_set.name not in assignment.placing.names())
        ]
        capacity_request = assignment.capacity_request = capacity.request(self._gang, asks, self._queue.config.recovery)
        if capacity_request is None:
            return
        placed = assignment.placing if assignment.mode is Mode.FIT else None  # else the places are not free yet
        with placed.beside(assignment.placements()) if placed is not None else nullcontext():
            short = capacity_request.shortage()
        if short is None:
            return
        self._note_lack(short)
        lacking = next(pod_set for pod_set in assignment.pod_sets if pod_set.name == short.member.name)
        can_never_fit = capacity_request.can_never_fit() is not None
        lacks_capacity = any(obstacle.kind == CAPACITY for obstacle in lacking.obstacles)
        if not lacks_capacity and (
            assignment.mode is Mode.FIT or can_never_fit
        ):  # else the gang waits for quota, with Kueue's message
            lacking.obstacles = [*lacking.obstacles, _no_room(lacking.flavor, capacity_request, short)]
        if assignment.mode is Mode.FIT:
            assignment.mode, lacking.fits = Mode.PREEMPT, False
            for choice in lacking.choices.values():
                choice.grade = Grade(Mode.PREEMPT, choice.grade.borrow)
        if can_never_fit:
            assignment.mode, assignment.severity = Mode.NO_FIT, CAPACITY

    def _grade_room(
        self,
        index: int,
        option: FlavorOption,
        chosen: dict[str, FlavorChoice],
        assignment: Assignment,
        obstacles: list[FlavorObstacle],
    ) -> Mode:
        """How one pod set could get room on the nodes of a flavor of which there is quota."""
        capacity = self._preemptor.capacity
        demand = self._gang.demands[index]
        topologies, policy = self._preemptor.topologies, self._queue.placement
        if self._queue.delays_topology or placed_on(demand.pod_set, (option.name,), topologies, policy) is not None:
            return Mode.FIT
        count = demand.count if self._counts is None else self._counts[index]
        if self._old is not None:
            count -= pods_of(self._old).get(demand.name, 0)
        if count <= 0:
            return Mode.FIT
        asks = [(demand.pod_set, count, (option.name,))]
        capacity_request = capacity.request(self._gang, asks, self._queue.config.recovery)
        short = capacity_request.lacks() if capacity_request is not None else None
        if capacity_request is None or short is None:
            return Mode.FIT
        self._note_lack(short)
        obstacles.append(_no_room(option.name, capacity_request, short))
        if capacity_request.can_never_fit() is not None:
            assignment.lacking = capacity_request
            return Mode.NO_FIT
        requests = {choice.cell: choice.amount for choice in chosen.values()}
        victims = self._preemptor.for_room(self._gang, self._queue, requests, capacity_request)
        if not victims:
            return Mode.NO_CANDIDATES
        return Mode.PREEMPT if any(victim.gang.queue is self._queue for victim in victims) else Mode.RECLAIM

    def _note_lack(self, short: Shortage) -> None:
        """The verdict depends on the nodes of these flavors: the gang is to be woken when they may have more room."""
        self._queue.lacks_room_of.update(short.member.flavors)
        if short.spares:
            self._queue.lacks_spares = True

    # --- topology -----------------------------------------------------------------------------------------------------

    def _place(self, assignment: Assignment) -> None:
        """Place the pods; if there is no room now, victims have to make room, if there can be any at all."""
        wanted = placing(
            self._preemptor.topologies,
            _members(assignment),
            self._preemptor.settings.gates,
            self._gang.shape if self._old is None else None,
            implied=self._queue.only_topologies,
            previous=self._places_of_old(),
            old=self._gang.replaces,
            policy=self._queue.placement,
        )
        if wanted is None:
            return
        if self._queue.delays_topology:
            for pod_set in assignment.pod_sets:
                if pod_set.name in wanted.names():
                    pod_set.delayed_topology = PENDING
            return
        assignment.placing = wanted
        if assignment.mode is Mode.FIT:
            found, searched = self._search.places(wanted, assignment.places_everything)
            if found.ok:
                assignment.take_places(found.assignments, searched)
                return
            self._need_places(assignment, found, wanted.names())
        self._queue.lacks_room_of.update(
            choice.flavor for pod_set in assignment.pod_sets for choice in pod_set.choices.values()
        )
        found = wanted.empty()
        if found.ok:
            assignment.take_places(found.assignments)
        else:
            self._need_places(assignment, found, set(found.failed))
            assignment.mode, assignment.severity = Mode.NO_FIT, TOPOLOGY

    def _places_of_old(self) -> dict[str, TopologyAssignment]:
        """The places of the pods of the slice that the workload replaces, by pod set, if the pods are to stay there."""
        old, gates = self._old, self._preemptor.settings.gates
        if old is None or old.quota.admission is None:
            return {}
        if self._queue.placement is None and not gates.get("ElasticJobsViaWorkloadSlicesWithTAS", False):
            return {}
        return {each.name: each.topology for each in old.quota.admission.pod_sets if each.topology is not None}

    def _need_places(self, assignment: Assignment, failure: PlacementResult, names: set[str]) -> None:
        """Quota is not what is missing: these pod sets fit only by preemption."""
        assignment.mode = Mode.PREEMPT
        for pod_set in assignment.pod_sets:
            if pod_set.name in names:
                pod_set.fits = False
                for choice in pod_set.choices.values():
                    choice.grade = Grade(Mode.PREEMPT, choice.grade.borrow)
            if pod_set.name in failure.failed:
                pod_set.obstacles = [*pod_set.obstacles, FlavorObstacle(TOPOLOGY, "", text=failure.failure)]

    # --- flavor by flavor ---------------------------------------------------------------------------------------------

    def _assign_group(
        self, members: Sequence[int], asked: PodSetRequests, assignment: Assignment
    ) -> list[PodSetChoice]:
        """Pod sets that share flavors: usually one, or a leader with its workers."""
        assignment.severity = -1
        found: dict[str, FlavorChoice] = {}
        obstacles: list[FlavorObstacle] = []
        fits, failed = True, False
        for needs in asked.needs:
            beside = _flavors_of(found, asked.needs) if found and not self._queue.merges_labels else ()
            chosen, grade, reasons = self._find_flavor(members[0], needs, assignment, beside)
            if grade.mode is not Mode.FIT:
                fits = False
                obstacles.extend(reasons)
            if not chosen:
                failed = True
                break
            found.update(chosen)
        if asked.missing and not failed:
            text = f"resource {asked.missing} unavailable in ClusterQueue"
            obstacles.append(FlavorObstacle(NO_MATCH, "", asked.missing, text=text))
            failed = True
            if not asked.needs:
                assignment.severity = NO_MATCH
        demands, counts = self._gang.demands, self._counts
        return [
            PodSetChoice(
                demands[index].pod_set,
                demands[index].count if counts is None else counts[index],
                {} if failed else _share(found, request, alone=len(members) == 1),
                fits and not failed,
                obstacles,
                failed,
            )
            for index, request in zip(members, asked.requests, strict=True)
        ]

    def _find_flavor(
        self, index: int, needs: GroupNeeds, assignment: Assignment, beside: Sequence[Flavor]
    ) -> tuple[dict[str, FlavorChoice], Grade, list[FlavorObstacle]]:
        """The best flavor for these resources, beside those that the pod set has got for others."""
        ways, first_resource = needs.ways, needs.amounts[0][0]
        if len(ways) == 1 and self._restriction is None:
            return self._only_flavor(index, needs, assignment, beside)
        policy = self._queue.config.fungibility
        best: dict[str, FlavorChoice] = {}
        best_grade = _NO_FIT
        obstacles: list[FlavorObstacle] = []
        ruled_out: list[int] = []
        last = -1
        for position in range(self._first_option(index, first_resource), len(ways)):
            way, last = ways[position], position
            if self._restriction is not None and self._restriction[index].get(first_resource) != way.option.name:
                continue
            known = len(obstacles)
            chosen, grade = self._try(index, needs.amounts, way, assignment, beside, obstacles)
            if grade.mode is Mode.NO_FIT:
                ruled_out.append(max(obstacle.kind for obstacle in obstacles[known:]))
            if self._legacy:
                if grade.mode > best_grade.mode:
                    best, best_grade = chosen, grade
                if grade.mode is Mode.FIT:
                    break
            elif not _goes_on(grade, policy):
                best, best_grade = chosen, grade
                break
            elif _rank(grade, policy) > _rank(best_grade, policy):
                best, best_grade = chosen, grade
        tried = -1 if self._legacy or last == len(ways) - 1 else last
        for choice in best.values():
            choice.tried = tried
        # the reason reported: per pod set the mildest among the flavors, of these the most severe among the groups
        assignment.severity = max(assignment.severity, min(ruled_out, default=-1))
        return best, best_grade, obstacles

    def _only_flavor(
        self, index: int, needs: GroupNeeds, assignment: Assignment, beside: Sequence[Flavor]
    ) -> tuple[dict[str, FlavorChoice], Grade, list[FlavorObstacle]]:
        """`_find_flavor` where there is only one flavor, the most common case."""
        obstacles: list[FlavorObstacle] = []
        chosen, grade = self._try(index, needs.amounts, needs.ways[0], assignment, beside, obstacles)
        if grade.mode is Mode.NO_FIT:
            assignment.severity = max(assignment.severity, *(obstacle.kind for obstacle in obstacles))
        return chosen, grade, obstacles

    def _first_option(self, index: int, resource: str) -> int:
        if index >= len(self._tried):
            return 0
        return self._tried[index].get(resource, -1) + 1

    def _try(
        self,
        index: int,
        amounts: Sequence[tuple[str, int]],
        way: Way,
        assignment: Assignment,
        beside: Sequence[Flavor],
        obstacles: list[FlavorObstacle],
    ) -> tuple[dict[str, FlavorChoice], Grade]:
        """One flavor: its worst resource decides."""
        option = way.option
        if refused := way.refused or (contradiction(option.flavor, beside) if beside and option.flavor else ""):
            obstacles.append(FlavorObstacle(NO_MATCH, option.name, text=refused))
            return {}, _NO_FIT
        if way.unnamed and (lacking := self._on_no_node(way)):
            obstacles.append(FlavorObstacle(CAPACITY, option.name, text=lacking))
            return {}, _NO_FIT
        chosen: dict[str, FlavorChoice] = {}
        worst: Grade | None = None
        for (resource, amount), cell in zip(amounts, way.cells, strict=True):
            can_never_fit = worst is not None and worst.mode is Mode.NO_FIT
            grade = self._grade(cell, assignment.usage.get(cell, 0), amount, obstacles, can_never_fit)
            chosen[resource] = FlavorChoice(cell, amount, grade)
            if worst is None or self._is_worse(grade, worst):
                worst = grade
        if worst is None or worst.mode is Mode.NO_FIT:
            return {}, _NO_FIT
        if worst.mode is Mode.FIT and option.grounded:
            room = self._grade_room(index, option, chosen, assignment, obstacles)
            if room is Mode.NO_FIT:
                return {}, _NO_FIT
            if room is not Mode.FIT:
                worst = Grade(room, worst.borrow)
                for choice in chosen.values():
                    choice.grade = worst
        return chosen, worst

    def _on_no_node(self, way: Way) -> str:
        """Why no node of the flavor is one of those that the pods select, though another flavor may have some; "" = one is."""
        nodes, flavor = self._preemptor.capacity.health.nodes, way.option.flavor
        if flavor is None or not nodes:  # nodes are not known here: quota alone decides
            return ""
        wanted = flavor.node_labels.items() | {(key, value) for key, value, _ in way.unnamed}
        if any(wanted <= node.labels.items() for node in nodes.values()):
            return ""
        self._queue.lacks_room_of.add(flavor.name)
        key, value, other = way.unnamed[0]
        return f'no node of flavor {flavor.name} has the selected label {key}="{value}", which flavor {other} names'

    def _is_worse(self, grade: Grade, other: Grade) -> bool:
        policy = Fungibility() if FALSE_FIT in self._queue.fixes else self._queue.config.fungibility
        return _rank(grade, policy) < _rank(other, policy)

    def _grade(
        self, cell: Cell, before: int, amount: int, obstacles: list[FlavorObstacle], can_never_fit: bool
    ) -> Grade:
        """How `amount` of one resource could be had on top of `before`, which earlier pod sets take.

        `can_never_fit`: another resource ruled the flavor out, and only the obstacle matters.
        """
        value, ahead = before + amount, self._preemptor.quotas_ahead
        if value > cell.potential or value >= UNLIMITED:  # what cannot be counted fits nowhere, whatever the quota
            if ahead and value < UNLIMITED and (grows := ahead.grows_to(self._queue, cell.fr, value)) is not None:
                text = grows_text(cell.fr, value, cell.potential, grows)
                obstacles.append(FlavorObstacle(WAITING, *cell.fr, before, amount, cell.potential, text))
                return _NO_FIT
            obstacles.append(FlavorObstacle(EXCEEDS_MAX, *cell.fr, before, amount, cell.potential))
            return _NO_FIT
        if ahead and (short := ahead.short(self._gang, self._queue, cell, value)) is not None:
            change, room = short
            text = change.short_text(self._queue.name, cell.fr, value, room)
            obstacles.append(FlavorObstacle(WAITING, *cell.fr, before, amount, max(0, room), text))
            return _NO_FIT
        borrow, below_root = cell.height(value)
        available = max(0, cell.available())
        if value <= available:
            return Grade(Mode.FIT, borrow)
        obstacles.append(FlavorObstacle(WAITING, *cell.fr, before, amount, available))
        if can_never_fit:
            return _NO_FIT
        if value <= cell.nominal or below_root or self._queue.preempts_while_borrowing:
            return self._preemptor.possibility(self._gang, self._queue, cell, value)
        return _NO_FIT


_NO_FIT = Grade(Mode.NO_FIT, 0)


def _flavors_of(found: Mapping[str, FlavorChoice], needs: Sequence[GroupNeeds]) -> list[Flavor]:
    names = {choice.flavor for choice in found.values()}
    flavors = {way.option.name: way.option.flavor for each in needs for way in each.ways if way.option.name in names}
    return [flavor for flavor in flavors.values() if flavor is not None]


def _members(assignment: Assignment) -> list[tuple[PodSet, int, list[str]]]:
    """The pod sets, each with its count and its flavors."""
    return [
        (pod_set.pod_set, pod_set.count, [choice.flavor for choice in pod_set.choices.values()])
        for pod_set in assignment.pod_sets
    ]


def _goes_on(grade: Grade, policy: Fungibility) -> bool:
    """Whether a later flavor should be tried, too."""
    mode, borrow = grade
    if mode <= Mode.NO_CANDIDATES:
        return True
    if mode is not Mode.FIT and policy.when_can_preempt == "TryNextFlavor":
        return True
    return borrow > 0 and policy.when_can_borrow == "TryNextFlavor"


def _rank(grade: Grade, policy: Fungibility) -> tuple[int, int, int]:
    """Higher is better."""
    mode, borrow = grade
    if mode is Mode.NO_FIT:
        return (0, 0, 0)
    kind = 1 if mode is Mode.NO_CANDIDATES else 2
    if policy.preference == "PreemptionOverBorrowing":
        return (kind, -borrow, mode)
    return (kind, mode, -borrow)


def _no_room(flavor: str, capacity_request: CapacityRequest, short: Shortage) -> FlavorObstacle:
    return FlavorObstacle(CAPACITY, flavor, amount=short.wanted, limit=short.found, text=capacity_request.text(short))


def _share(found: dict[str, FlavorChoice], request: Mapping[str, int], *, alone: bool) -> dict[str, FlavorChoice]:
    """A member's part of the usage of its group."""
    if alone:
        return found
    return {
        resource: FlavorChoice(choice.cell, request[resource], choice.grade, choice.tried)
        for resource, choice in found.items()
        if resource in request
    }
