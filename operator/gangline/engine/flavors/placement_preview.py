"""What a placement policy that is tried out would do with a gang that starts without it, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gangline.engine.model import PlacementPolicy, PodSet, TopologyAssignment
from gangline.engine.placing.placement_search import PlaceFinder
from gangline.engine.topology.placement import placing
from gangline.engine.topology.topologies import Topologies

#: hosts that are named
_NAMED: Final = 8
#: characters of an answer
_MOST: Final = 1024


def preview(
    topologies: Topologies,
    members: Sequence[tuple[PodSet, int, Sequence[str]]],
    gates: Mapping[str, bool],
    policy: PlacementPolicy,
    search: PlaceFinder,
) -> str:
    """Where the policy would put the pods now, or why it would let the gang wait."""
    wanted = placing(topologies, members, gates, implied=True, policy=policy)
    if wanted is None:
        return "the policy places none of its pods"
    found, searched = search.places(wanted, lambda: True)
    if not found.ok:
        return f"would wait: {found.failure}"[:_MOST]
    places = [f"{name}: {_hosts(assignment)}" for name, assignment in found.assignments.items()]
    return "; ".join([*places, *([searched] if searched else [])])[:_MOST]


def _hosts(assignment: TopologyAssignment) -> str:
    named = [f"{domain.values[-1]} ({domain.count})" for domain in assignment.domains[:_NAMED]]
    more = len(assignment.domains) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
