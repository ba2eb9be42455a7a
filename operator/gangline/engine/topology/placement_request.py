"""The values of topology-aware placement: requests and answers, what an admission places where, and the tree of domains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeAlias

from gangline.engine.model import (
    NO_TRAITS,
    Admission,
    PlacementPolicy,
    PodSet,
    PodSetAssignment,
    Requests,
    Share,
    TopologyAssignment,
    TopologyRequest,
)
from gangline.engine.topology.policy_filter import PolicyAsk, company_of, marks_of, with_marks

#: A domain of a tree of domains: its level and its position there.
DomainAt: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A pod set to place. `pod_set.count` pods are placed, each taking `takes` and one of `pods`.

    `implied`: the pod set has no topology request but its queue offers nothing but topology flavors. `previous` is the
    placement of the workload slice that this one replaces (elastic jobs); it is extended or cut. `policy` is what a placement
    policy looks at for the pod set.
    """

    pod_set: PodSet
    implied: bool = False
    previous: TopologyAssignment | None = None
    policy: PolicyAsk | None = None
    #: cards of hosts bound it, and are chosen for its pods
    cards: bool = False
    #: domains of the present tree in which none of its pods may be
    closed: frozenset[DomainAt] = frozenset()
    #: leaves are taken in the topology's own order, and not in the one of a policy
    unranked: bool = False

    @property
    def shares(self) -> tuple[Share, ...]:
        """What each pod asks of cards that bound it."""
        if not self.cards:
            return ()
        return self.pod_set.shares if self.policy is None else self.policy.on_cards(self.pod_set.shares)

    @property
    def takes(self) -> Requests:
        """What each of its pods takes of a host, once it is placed."""
        return with_marks(self.pod_set)


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Where pod sets are placed. `failure` is Kueue's text ("" = all placed) and `failed` the pod sets that it is about."""

    assignments: Mapping[str, TopologyAssignment] = field(default_factory=dict[str, TopologyAssignment])
    failure: str = ""
    failed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.failure


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """What affects a placement: feature gates, with Kueue's defaults, and whether gangs are placed whole."""

    #: least-free-capacity for requests without a required or preferred level (TASProfileMixed)
    mixed: bool = True
    #: spread preferred requests evenly (TASBalancedPlacement)
    balanced: bool = False
    #: preferred node affinity ranks domains (TASRespectNodeAffinityPreferred)
    respect_preferred_affinity: bool = False
    #: the pods beyond whole slices are placed, too, with the room of a slice. In Kueue they get no place, and the gang starts
    #: without them: only recorded scenarios of Kueue are decided so
    whole: bool = True

    @classmethod
    def of_gates(cls, gates: Mapping[str, bool]) -> PlacementRules:
        return cls(
            mixed=gates.get("TASProfileMixed", True),
            balanced=gates.get("TASBalancedPlacement", False),
            respect_preferred_affinity=gates.get("TASRespectNodeAffinityPreferred", False),
        )


KUEUE_DEFAULTS = PlacementRules()


class Unplaceable(Exception):  # noqa: N818 - an answer, not an error
    """The request cannot be met; the message is Kueue's text."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A pod set's request in terms of the tree. Levels are indices, 0 at the top."""

    count: int
    level: int
    required: bool
    #: preferred: where no single domain fits, a level higher is tried. (Required fails, the others take several domains.)
    climbs: bool
    best_fit: bool
    slice_level: int
    slice_size: int
    #: the requested slice layers, outermost first; () = none.
    layers: tuple[tuple[int, int], ...]
    #: level -> size for the levels that an inner layer governs.
    inner_sizes: Mapping[int, int]
    #: slices needed; the last one may have fewer pods
    slices: int


def goal_of(request: PlacementRequest, levels: Sequence[str], profile: PlacementRules) -> Goal:
    """Resolve a request. Raises Unplaceable with Kueue's text if its levels or slices do not match the topology."""
    asked = request.pod_set.topology or TopologyRequest()
    lowest = len(levels) - 1
    slice_size = asked.slices[0].size if asked.slices else 1
    if slice_size <= 0:
        raise Unplaceable("slice topology requested, but slice size not provided")
    free_choice = not asked.required and not asked.preferred
    level_key = asked.required or asked.preferred
    if not level_key:
        if not (asked.slices or asked.unconstrained or request.implied):
            raise Unplaceable("topology level not specified")
        level_key = levels[0] if asked.slices else levels[lowest]
    level = level_index(levels, level_key)
    if level is None:
        raise Unplaceable(f"no requested topology level: {level_key}")
    slice_key = asked.slices[0].level if asked.slices else levels[lowest]
    slice_level = level_index(levels, slice_key)
    if slice_level is None:
        raise Unplaceable(f"no requested topology level for slices: {slice_key}")
    if level > slice_level:
        raise Unplaceable(f"podset slice topology {slice_key} is above the podset topology {level_key}")
    layers = _layers(asked, levels)
    return Goal(
        count=request.pod_set.count,
        level=level,
        required=bool(asked.required),
        climbs=bool(asked.preferred) and not asked.required,
        best_fit=not (free_choice and profile.mixed),
        slice_level=slice_level,
        slice_size=slice_size,
        layers=layers,
        inner_sizes=_inner_sizes(layers),
        slices=-(-request.pod_set.count // slice_size) if profile.whole else request.pod_set.count // slice_size,
    )


def _layers(asked: TopologyRequest, levels: Sequence[str]) -> tuple[tuple[int, int], ...]:
    layers: list[tuple[int, int]] = []
    for layer in asked.slices:
        level = level_index(levels, layer.level)
        if level is None:
            raise Unplaceable(f"no requested topology level for additional slice layer: {layer.level}")
        if layers:
            above, size = layers[-1]
            if level <= above:
                raise Unplaceable(
                    f"additional slice layer topology {layer.level} must be at a lower level than {levels[above]}"
                )
            if layer.size <= 0 or size % layer.size:
                raise Unplaceable(
                    f"additional slice layer size {layer.size} must evenly divide parent layer size {size}"
                )
        layers.append((level, layer.size))
    return tuple(layers)


def _inner_sizes(layers: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The levels below one layer, down to the next one, are governed by that next one."""
    sizes: dict[int, int] = {}
    for (above, _), (level, size) in pairwise(layers):
        sizes.update((between, size) for between in range(above + 1, level + 1))
    return sizes


#: pod set -> what one of its pods takes of a node; of others that is what they count for in quota
NodeNeeds: TypeAlias = Mapping[str, Requests]


AS_COUNTED: Final[NodeNeeds] = {}


def asks(pod_set: PodSet) -> bool:
    """Whether the pod set itself requests a placement."""
    asked = pod_set.topology
    return asked is not None and bool(asked.required or asked.preferred or asked.unconstrained or asked.slices)


def policy_ask(policy: PlacementPolicy | None, pod_set: PodSet) -> PolicyAsk | None:
    """What a policy looks at for a pod set; None if it looks at nothing but its needs."""
    if policy is None or not (policy.filters or policy.interference or pod_set.traits != NO_TRAITS):
        return None
    return PolicyAsk(policy.filters, pod_set.traits, company_of(policy, pod_set.traits))


def node_needs(pod_sets: Iterable[PodSet], admission: Admission) -> NodeNeeds:
    """What placed pods take of nodes, where that is not what they count for in quota: with transformations, with charges, and
    with marks for placement policies.
    """
    known = {
        pod_set.name: pod_set
        for pod_set in pod_sets
        if pod_set.quota is not None or pod_set.charges or pod_set.shares or pod_set.traits is not NO_TRAITS
    }
    if not known:
        return AS_COUNTED
    return {
        each.name: with_marks(known[each.name])
        for each in admission.pod_sets
        if each.topology is not None and each.name in known and _counts_otherwise(known[each.name], each.usage)
    }


def _counts_otherwise(pod_set: PodSet, usage: Requests) -> bool:
    if pod_set.quota is not None or not pod_set.charges.keys().isdisjoint(usage):
        return True
    return bool(marks_of(pod_set.traits, pod_set.requests, pod_set.shares))


def has_placements(admission: Admission) -> bool:
    return any(pod_set.topology is not None for pod_set in admission.pod_sets)


def with_placements(
    admission: Admission, placements: Mapping[str, TopologyAssignment], *, delayed: str | None = None
) -> Admission:
    """The admission with these pod sets placed; `delayed` is the new state of their delayed request."""

    def placed(pod_set: PodSetAssignment) -> PodSetAssignment:
        topology = placements.get(pod_set.name)
        if topology is None:
            return pod_set
        return replace(
            pod_set, topology=topology, delayed_topology=pod_set.delayed_topology if delayed is None else delayed
        )

    return replace(admission, pod_sets=tuple(placed(pod_set) for pod_set in admission.pod_sets))


def hosts_of(admission: Admission | None) -> set[str]:
    """The lowest domains that an admission names: hosts, in topologies that end there."""
    placements = (each.topology for each in admission.pod_sets) if admission is not None else ()
    return {domain.values[-1] for placed in placements if placed is not None for domain in placed.domains}


def seats_of(admission: Admission | None) -> dict[str, set[str]]:
    """The hosts on which cards were chosen for pods, each with these cards."""
    found: dict[str, set[str]] = {}
    for each in admission.pod_sets if admission is not None else ():
        for domain in each.topology.domains if each.topology is not None else ():
            for pod in domain.cards:
                found.setdefault(domain.values[-1], set()).update(seat.card for seat in pod)
    return found


def on_host(admission: Admission, host: str) -> bool:
    return any(each.topology is not None and names_host(each.topology, host) for each in admission.pod_sets)


def names_host(assignment: TopologyAssignment, host: str) -> bool:
    return any(domain.values[-1] == host for domain in assignment.domains)


# --- topology tree ----------------------------------------------------------------------------------------------------
# The shape of a topology: which domains there are, level by level, and which domain contains which.
#
# A domain is a pair (level, position). Positions of a level are numbered in path order: the order of the level values from the
# top down, compared value by value as strings. So the children of a domain are neighbours, a leaf's position decides ties, and
# counting over a subtree is a sum over a slice of a list. A tree never changes; when a leaf comes or goes, a new one is built.

Path: TypeAlias = tuple[str, ...]


class TopologyTree:
    """Domains of every level, built from the paths of the leaves (which must be distinct and `depth` long)."""

    __slots__ = ("_starts", "depth", "lowest", "parents", "paths")

    def __init__(self, depth: int, leaf_paths: Iterable[Path]) -> None:
        self.depth = depth
        self.lowest = depth - 1
        #: per level: the path of each domain, and the position of its parent in the level above.
        self.paths: list[list[Path]] = [[] for _ in range(depth)]
        self.parents: list[list[int]] = [[] for _ in range(depth)]
        #: per level: position of the first child of each domain, and one more entry: the number of children in all.
        self._starts: list[list[int]] = [[] for _ in range(depth)]
        self.paths[self.lowest] = sorted(leaf_paths)
        for level in range(self.lowest, 0, -1):
            self._gather_parents(level)

    def _gather_parents(self, level: int) -> None:
        above, parents, starts = self.paths[level - 1], self.parents[level], self._starts[level - 1]
        for position, path in enumerate(self.paths[level]):
            prefix = path[:-1]
            if not above or above[-1] != prefix:
                above.append(prefix)
                starts.append(position)
            parents.append(len(above) - 1)
        starts.append(len(self.paths[level]))

    def size(self, level: int) -> int:
        return len(self.paths[level])

    def children(self, level: int, position: int) -> range:
        """Positions, one level down, of the domains inside this one."""
        starts = self._starts[level]
        return range(starts[position], starts[position + 1])

    def children_of_all(self, level: int, positions: Iterable[int]) -> list[int]:
        """Positions, one level down and in path order, of the domains inside any of these."""
        starts = self._starts[level]
        found: list[int] = []
        for position in sorted(positions):
            found.extend(range(starts[position], starts[position + 1]))
        return found

    def leaves(self, level: int, position: int) -> range:
        """Positions of all leaves below a domain."""
        first, end = position, position + 1
        for step in range(level, self.lowest):
            starts = self._starts[step]
            first, end = starts[first], starts[end]
        return range(first, end)

    def ancestor(self, leaf: int, level: int) -> int:
        """Position, at `level`, of the domain that a leaf lies in."""
        position = leaf
        for step in range(self.lowest, level, -1):
            position = self.parents[step][position]
        return position


def level_index(levels: Sequence[str], key: str) -> int | None:
    """The index of a node label key among the levels, None if the topology has no such level."""
    return levels.index(key) if key in levels else None
