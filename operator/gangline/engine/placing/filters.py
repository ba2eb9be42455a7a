"""Filters: whether a host may get a pod. Each returns why not, in words that are counted over all hosts; "" = it may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from gangline.engine.cards.card_seating import why_none, why_not
from gangline.engine.occupancy.fitting import how_many, limit
from gangline.engine.placing.hosts import Host, PodRequest

Filter: TypeAlias = Callable[[PodRequest, Host], str]


def fits(ask: PodRequest, host: Host) -> str:
    """Amounts of the node, and each card for itself: what is free of two cards does not add up."""
    if not how_many(host.free, ask.requests):
        return limit(host.free, ask.requests)
    shares = host.bound(ask) if host.cards and ask.shares else ()
    return why_none(host.cards, shares) if any(why_not(host.cards, share) for share in shares) else ""


def selected(ask: PodRequest, host: Host) -> str:
    """Taints, the pod's node selector, its required affinity, and what a policy asks of nodes."""
    selection = ask.selection
    reason = selection.judge(host.name, host.labels, host.taints)[0]
    return reason if reason or selection.policy is None else selection.policy.excludes(host)


#: By name.
FILTERS: Final[Mapping[str, Filter]] = {"Fits": fits, "NodeSelector": selected}
