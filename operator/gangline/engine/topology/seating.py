"""The cards of placed pods: chosen when a placement is found, and part of it from then on."""

from __future__ import annotations

from gangline.engine.cards import card_amounts, card_seating
from gangline.engine.cards.card_amounts import CardRoom
from gangline.engine.model import CardSeat, Domain, PodSet, Share
from gangline.engine.occupancy.fitting import PodRequests, as_pod_requests
from gangline.engine.topology.policy_filter import PolicyAsk
from gangline.engine.topology.topology_ledger import TopologyLedger


class Seating:
    """Seats pods on the cards of leaves, each after the ones before; the ledger is left as it is."""

    def __init__(self, ledger: TopologyLedger, *, simulate_empty: bool) -> None:
        self._ledger = ledger
        self._simulate_empty = simulate_empty
        self._rooms: dict[int, list[CardRoom]] = {}

    def seat(self, position: int, shares: tuple[Share, ...], count: int) -> tuple[tuple[CardSeat, ...], ...]:
        """The cards of each of so many pods on a leaf; () where cards do not bound them."""
        if not shares:
            return ()
        leaf = self._ledger.leaf_at(position)
        bound = card_seating.bound(leaf.devices, shares) if leaf.devices else ()
        if not bound:
            return ()
        rooms = self._rooms.get(position)
        if rooms is None:
            free = leaf.idle if self._simulate_empty else leaf.free
            rooms = self._rooms[position] = card_amounts.rooms_of(leaf.devices, free)
        seats = card_seating.seat_pods(rooms, bound, count)
        if len(seats) < count:
            raise ValueError(f"{leaf.path[-1]}: {count} pods were counted, and cards suffice for {len(seats)}")
        return tuple(seats)


def counted(
    ledger: TopologyLedger, pod_set: PodSet, shares: tuple[Share, ...], policy: PolicyAsk | None = None
) -> PodRequests:
    """What bounds the number of such pods on a host. Amounts that only say how much of a card is meant, which no node reports
    (HAMi's memory and cores), do not: their cards do. A policy may let what is free of interfaces bound it, too.
    """
    requests = as_pod_requests(pod_set.requests)
    if policy is not None and ledger.hostnames and policy.interfaces:
        requests = as_pod_requests({**pod_set.requests, **policy.interfaces})
    domains = {share.resource.partition("/")[0] for share in shares if share.resource}
    if not domains:
        return requests
    return tuple(
        (name, amount)
        for name, amount in requests
        if "/" not in name or name.partition("/")[0] not in domains or ledger.reports(name)
    )


def joined(one: Domain, other: Domain) -> Domain:
    """The pods of both, in one domain."""
    cards = (*_each(one), *_each(other)) if one.cards or other.cards else ()
    return Domain(one.values, one.count + other.count, cards)


def _each(domain: Domain) -> tuple[tuple[CardSeat, ...], ...]:
    return domain.cards or ((),) * domain.count
