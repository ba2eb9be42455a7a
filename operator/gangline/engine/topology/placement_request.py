"""A placement request: a pod set's request resolved against the levels of a topology, and the answer to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gangline.engine.model import PodSet, Requests, Share, TopologyAssignment, TopologyRequest
from gangline.engine.topology.policy_filter import PolicyAsk, with_marks
from gangline.engine.topology.topology_tree import level_index


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
