"""Filters: whether a host may get a pod. Each returns why not, in words that are counted over all hosts; "" = it may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from gangline.engine.cards.card_seating import why_none, why_not
from gangline.engine.placing.hosts import Ask, Host, fitting_cards
from gangline.engine.rooms.fitting import how_many, limiting_resource

MEM_SAFE: Final = "MemSafe"

Filter: TypeAlias = Callable[[Ask, Host], str]


def fits(ask: Ask, host: Host) -> str:
    """Amounts of the node, and each card for itself: what is free of two cards does not add up."""
    if not how_many(host.free, ask.requests):
        return f'resource "{limiting_resource(host.free, ask.requests)}"'
    shares = host.bound(ask) if host.cards and ask.shares else ()
    return why_none(host.cards, shares) if any(why_not(host.cards, share) for share in shares) else ""


def selected(ask: Ask, host: Host) -> str:
    """Taints, the pod's node selector, its required affinity, and what a policy asks of nodes."""
    selection = ask.selection
    reason = selection.judge(host.labels, host.taints)[0]
    return reason if reason or selection.policy is None else selection.policy.excludes(host)


def mem_safe(ask: Ask, host: Host) -> str:
    """A share of a card leaves a margin of memory: for the card, and for each process whose need was only declared."""
    if host.cards and any(len(fitting_cards(host, ask, each, safe=True)) < each.count for each in ask.shares):
        return "memory of no card suffices with its margin"
    return ""


def bandwidth_fit(ask: Ask, host: Host) -> str:
    """The interfaces that the pod asks for, largest first, each on the first link with enough bandwidth and a free function."""
    if not ask.network:
        return ""
    left = [[link.bandwidth, link.functions] for link in host.links]
    for wanted in sorted(ask.network, reverse=True):
        found = next((link for link in left if link[0] >= wanted and link[1] > 0), None)
        if found is None:
            return "network bandwidth"
        found[0] -= wanted
        found[1] -= 1
    return ""


#: By the names of QueuePolicy.spec.placement.filters.
FILTERS: Final[Mapping[str, Filter]] = {
    "Fits": fits,
    "NodeSelector": selected,
    MEM_SAFE: mem_safe,
    "BandwidthFit": bandwidth_fit,
}
