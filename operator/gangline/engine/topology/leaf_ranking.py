"""What a placement policy says about the leaves of a topology: where pods go, and in which order leaves are tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from gangline.engine.model import Domain, PlacementPolicy, Share
from gangline.engine.occupancy.fitting import PodRequests
from gangline.engine.topology.node_filter import NodeSelection
from gangline.engine.topology.topology_ledger import TopologyLedger

#: The topology of flavors that have none of their own, in queues with a placement policy: one level, the host. No object of
#: Kubernetes has a name with spaces.
OF_POLICY: Final = "placement policy"


class LeafRanking(Protocol):
    """A policy on one topology whose leaves are hosts, as they are now."""

    def deal(
        self, pod_requests: PodRequests, selection: NodeSelection, count: int, shares: tuple[Share, ...] = ()
    ) -> tuple[Domain, ...] | None:
        """Deal out so many pods, one after the other each at its best place and on its best cards; None if they do not fit."""
        ...

    def scores(
        self, pod_requests: PodRequests, selection: NodeSelection, shares: tuple[Share, ...] = ()
    ) -> Sequence[int]:
        """The worth of every leaf for one pod, by position: more is better, equal is equal."""
        ...


#: Makes the ranking of a policy on a topology.
RankingOf: TypeAlias = Callable[[TopologyLedger, PlacementPolicy], LeafRanking]
