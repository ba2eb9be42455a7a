"""Hosts as filters and scorers see them, what a pod asks of one, and the places on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from gangline.engine.cards.card_amounts import CardRoom, Resident, on_each
from gangline.engine.cards.card_seating import bound, cheapest, why_none, why_not
from gangline.engine.interference.joining import CompanyShare
from gangline.engine.model import Share, Taint, accelerators, is_accelerator
from gangline.engine.model.devices import WHOLE
from gangline.engine.model.queues import USUAL_GPU_WATTS
from gangline.engine.occupancy.fitting import PODS, PodRequests, how_many, limit
from gangline.engine.occupancy.power_ledger import PowerAsk, PowerLedger
from gangline.engine.topology.node_filter import ANY_NODE, NodeSelection
from gangline.engine.topology.policy_filter import KIND_MARK, SPARED, how_many_join, kind_mark

CPU: Final = "cpu"
MEMORY: Final = "memory"


@dataclass(slots=True)
class Host:
    """A host and what is free on it. `free` changes as pods come and go; the other facts of nodes change rarely."""

    name: str
    total: Mapping[str, int]
    free: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    cards: Sequence[CardRoom] = ()
    #: which pod sits on which card is known; otherwise only how full each card is
    knows_cards_of_pods: bool = True
    #: image -> bytes of it that the host has
    images: Mapping[str, int] = field(default_factory=dict[str, int])
    #: dataset -> bytes of it that the host has near
    data: Mapping[str, int] = field(default_factory=dict[str, int])
    #: Mbit/s at which it gets data that it has not
    download: int = 0
    taints: Sequence[Taint] = ()
    #: those that policies look at
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    #: what it draws without work and what one of its accelerators draws at most, in watts; 0 = not said
    idle_watts: int = 0
    gpu_watts: int = 0
    #: the name of its node, and the caps of power that bound it; None = there are none
    power: tuple[str, PowerLedger] | None = None
    #: thousandths of CPU of the gang's pods that were given to it just now
    dealt_cpu: int = 0

    def others_kinds(self, kind: str) -> tuple[int, int]:
        """How many placed pods of this kind are there, and how many of others."""
        own = kind_mark(kind) if kind else ""
        marks = {name: -amount for name, amount in self.free.items() if name.startswith(KIND_MARK)}
        return max(0, marks.get(own, 0)), sum(max(0, count) for name, count in marks.items() if name != own)

    def busy(self) -> int:
        """Percent of one accelerator that the pods there use, all together: all of what they request, unless they say less."""
        total, free = accelerators(self.total), accelerators(self.free)
        return max(0, 100 * (total - free) + self.free.get(SPARED, 0))

    def watts_of(self, ask: PodRequest) -> int:
        """What one accelerator draws at most with the pod."""
        if self.power is not None:
            node, power = self.power
            return power.watts(node, PowerAsk(1, ask.power.kind))
        return self.gpu_watts or USUAL_GPU_WATTS

    @property
    def sleeps(self) -> bool:
        """Whether nobody works there: on its accelerators, or, on a host without any, at all."""
        if self.cards:
            return all(room.untouched for room in self.cards)
        if number := accelerators(self.total):
            return accelerators(self.free) >= number
        return self.free.get(PODS, 0) >= self.total.get(PODS, 0)

    def card_milli(self) -> tuple[int, ...]:
        """What is free of each card, in thousandths, least first. Without an inventory each free accelerator is a whole card."""
        if self.cards:
            return tuple(sorted(max(0, room.milli) for room in self.cards if room.device.healthy))
        return (WHOLE,) * max(0, accelerators(self.free))

    def bound(self, ask: PodRequest) -> tuple[Share, ...]:
        """The shares of a pod that its cards bound; none where nothing is known of its cards."""
        return () if not self.cards else bound([room.device for room in self.cards], ask.shares)

    def card_total(self) -> int:
        """Thousandths of all cards of the host."""
        if self.cards:
            return sum(room.device.milli for room in self.cards)
        return WHOLE * accelerators(self.total)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one pod asks of a host. Equal asks share a table of places."""

    requests: PodRequests
    shares: tuple[Share, ...] = ()
    selection: NodeSelection = ANY_NODE
    #: kind of work: equal kinds run the same program
    kind: str = ""
    #: percent of a card that it is known to use
    utilisation: int = 0
    #: image -> bytes
    images: tuple[tuple[str, int], ...] = ()
    #: dataset -> bytes
    data: tuple[tuple[str, int], ...] = ()
    #: seconds that it is expected to run where nothing has to be downloaded
    seconds: int = 0

    def amount(self, resource: str) -> int:
        return next((amount for name, amount in self.requests if name == resource), 0)

    @property
    def card_milli(self) -> int:
        """Thousandths of cards, all together."""
        if self.shares:
            return sum(share.count * (WHOLE if share.exclusive or share.unit else share.milli) for share in self.shares)
        return WHOLE * self.whole_cards

    @property
    def power(self) -> PowerAsk:
        return PowerAsk.of(dict(self.requests), self.shares, self.kind)

    @property
    def whole_cards(self) -> int:
        """Accelerators that the pod asks for by number."""
        return sum(amount for name, amount in self.requests if is_accelerator(name))


@dataclass(frozen=True, slots=True)
class HostPlace:
    """A host, and the cards of it that the pod would get: their positions, one after the other for each share."""

    host: Host
    cards: tuple[int, ...] = ()

    def milli_after(self, ask: PodRequest) -> tuple[int, ...]:
        """What would be free of each card, least first."""
        host = self.host
        if not host.cards:
            return host.card_milli()[: max(0, len(host.card_milli()) - ask.whole_cards)]
        if not self.cards:
            return host.card_milli()
        left = [max(0, room.milli) for room in host.cards]
        for position, share in self.seats(ask):
            part = share.of(host.cards[position].device)
            left[position] = max(0, left[position] - (part.milli if part is not None else 0))
        return tuple(sorted(left[number] for number, room in enumerate(host.cards) if room.device.healthy))

    def seats(self, ask: PodRequest) -> Iterator[tuple[int, Share]]:
        """The cards of the place, each with the share that sits on it."""
        given = iter(self.cards)
        for share in self.host.bound(ask):
            for _ in range(share.count):
                yield next(given), share

    def residents(self, ask: PodRequest, holder: str) -> list[tuple[CardRoom, Resident]]:
        """The pod on the cards of the place."""
        cards, busy = self.host.cards, on_each(ask.utilisation, len(self.cards))
        return [
            (
                cards[position],
                Resident.of(holder, share, cards[position].device, kind=ask.kind, utilisation=busy),
            )
            for position, share in self.seats(ask)
        ]


def places(host: Host, ask: PodRequest) -> list[HostPlace]:
    """The places on a host that differ, for a pod that fits there; none if its shares do not fit.

    A share of one card is offered each card whose state differs. For more than one card, the set that is closest together is the
    only offer; several shares are seated one after the other, each where least is left.
    """
    shares = host.bound(ask) if ask.shares and host.cards else ()
    if not shares:
        return [HostPlace(host)]
    if len(shares) == 1 and shares[0].apart:
        share = shares[0]
        fitting = fitting_cards(host, share)
        if len(fitting) < share.count:
            return []
        if share.count == 1 and not share.exclusive:
            return [HostPlace(host, (position,)) for position in _different(host, fitting)]
        return [HostPlace(host, _closest(host, fitting, share.count))]
    return _one_by_one(host, shares)


def fitting_cards(host: Host, share: Share) -> list[int]:
    """The cards on which one pod with this share may sit; with an affinity, those with such neighbours if they are enough."""
    found = [position for position, room in enumerate(host.cards) if not room.refuses(share)]
    if share.affinity:
        wanted = [position for position in found if host.cards[position].wants(share)]
        return wanted if len(wanted) >= share.count else found
    return found


def _different(host: Host, positions: Sequence[int]) -> list[int]:
    """The first of all cards that are alike: in model, in what is free, in who sits there."""
    seen: dict[object, int] = {}
    for position in positions:
        room = host.cards[position]
        device = room.device
        alike = (
            device.model, device.numa, device.milli, device.memory, room.milli, room.memory,
            tuple((each.kind, each.utilisation) for each in room.residents),
        )  # fmt: skip
        seen.setdefault(alike if not device.links else (alike, position), position)
    return list(seen.values())


def _closest(host: Host, positions: Sequence[int], count: int) -> tuple[int, ...]:
    chosen = cheapest([host.cards[position].device for position in positions], count)
    return tuple(positions[number] for number in chosen)


def _asked_apart(share: Share) -> Iterable[Share]:
    return (share,) if share.apart else (replace(share, count=1),) * share.count


def _one_by_one(host: Host, shares: Sequence[Share]) -> list[HostPlace]:
    trial = Host(host.name, host.total, host.free, host.labels, [room.copy() for room in host.cards])
    given: list[int] = []
    for share in [each for asked in shares for each in _asked_apart(asked)]:
        fitting = fitting_cards(trial, share)
        if len(fitting) < share.count:
            return []
        if share.exclusive or share.count > 1:
            chosen = _closest(trial, fitting, share.count)
        else:
            chosen = (min(fitting, key=lambda position: (trial.cards[position].milli, trial.cards[position].memory)),)
        for position in chosen:
            room = trial.cards[position]
            room.seat(Resident.of("", share, room.device))
        given += chosen
    return [HostPlace(host, tuple(given))]


# --- filters ----------------------------------------------------------------------------------------------------------
# Filters: whether a host may get a pod. Each returns why not, in words that are counted over all hosts; "" = it may.


Filter: TypeAlias = Callable[[PodRequest, Host], str]


def fits(ask: PodRequest, host: Host) -> str:
    """Amounts of the node, and each card for itself: what is free of two cards does not add up."""
    if not how_many(host.free, ask.requests):
        return limit(host.free, ask.requests)
    if host.power is not None:
        node, power = host.power
        if reason := power.refuses(node, ask.power):
            return reason
    shares = host.bound(ask) if host.cards and ask.shares else ()
    if shares and isinstance(shares[0], CompanyShare):
        number, reason = how_many_join(shares[0].company, host.free, 1)
        if not number:
            return reason
    return why_none(host.cards, shares) if any(why_not(host.cards, share) for share in shares) else ""


def selected(ask: PodRequest, host: Host) -> str:
    """Taints, the pod's node selector, its required affinity, and what a policy asks of nodes."""
    selection = ask.selection
    reason = selection.judge(host.name, host.labels, host.taints)[0]
    return reason if reason or selection.policy is None else selection.policy.excludes(host)


#: By name.
FILTERS: Final[Mapping[str, Filter]] = {"Fits": fits, "NodeSelector": selected}
