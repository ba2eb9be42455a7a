"""Whether a card was ever over-full, or a pod off its cards, by every revision of the API server's store. Pure.

- What gangs take of a card by their Workloads' status alone is never more than the card has, and who sits there alone is alone.
- Nor is it with their pods: a gang takes of a card what its seats or its pods there take, whichever is more. So pods that still
  run where their gang had its seats before count until they are gone.
- A pod is bound only to a host on which its gang has, or had while it was admitted, seats on the very cards that the pod names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bench.evidence import Grant, Member, Placed, Seat

#: thousandths of a card
WHOLE: Final = 1000

#: host and cards of a pod
Spot: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class Taken:
    milli: int = 0
    memory: int = 0
    pods: int = 0
    alone: int = 0

    def add(self, seat: Seat, count: int) -> None:
        self.milli += count * seat.milli
        self.memory += count * seat.memory
        self.pods += count
        self.alone += count * seat.alone


@dataclass
class CardProof:
    """`put_grant` and `put_pod` take what a Workload, and a pod, say now, and return what must never have been.

    `memory`: MiB of cards, where that is to be checked.
    """

    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    #: reservations and pods with cards that were checked
    checked: int = 0
    #: gang -> the places on cards that it was granted
    _grants: dict[str, tuple[Placed, ...]] = field(default_factory=dict[str, tuple[Placed, ...]])
    #: gang -> where its pods may sit, with what each takes there; also from before it was moved
    _known: dict[str, dict[Spot, tuple[Seat, ...]]] = field(default_factory=dict[str, dict[Spot, tuple[Seat, ...]]])
    _pods: dict[str, Member] = field(default_factory=dict[str, Member])

    def put_grant(self, gang: str, grant: Grant | None) -> list[str]:
        self._grants.pop(gang, None)
        on_cards = tuple(each for each in grant.places if each.seats) if grant is not None else ()
        if not on_cards:
            return []
        self._grants[gang] = on_cards
        known = self._known.setdefault(gang, {})
        for seated in on_cards:
            known[seated.host, tuple(seat.card for seat in seated.seats)] = seated.seats
        self.checked += 1
        return self._overfull({seat.card for seated in on_cards for seat in seated.seats})

    def put_pod(self, key: str, pod: Member | None) -> list[str]:
        before = self._pods.pop(key, None)
        if pod is None or not pod.cards:
            return []
        self._pods[key] = pod
        if before is not None and before.uid == pod.uid:
            return []
        self.checked += 1
        spot = pod.node, pod.cards
        if spot not in self._known.get(pod.gang, {}):
            return [
                f"a pod of {pod.gang} was bound to {pod.node} with cards {', '.join(pod.cards)}, which are not its own"
            ]
        return self._overfull(pod.cards)

    def _overfull(self, cards: Iterable[str]) -> list[str]:
        found: list[str] = []
        for card in sorted(set(cards)):
            seats = self._by_gang(card, self._grants.items())
            pods = self._by_gang(card, ((pod.gang, self._of_pod(pod)) for pod in self._pods.values()))
            for what, takers in (("", seats), (" with their pods", _larger(seats, pods))):
                if why := self._too_much(card, takers):
                    found.append(f"card {card} is over-full by {', '.join(sorted(takers))}{what}: {why}")
                    break
        return found

    def _of_pod(self, pod: Member) -> tuple[Placed, ...]:
        seats = self._known.get(pod.gang, {}).get((pod.node, pod.cards))
        return (Placed(pod.pod_set, pod.node, seats, 1),) if seats is not None else ()

    @staticmethod
    def _by_gang(card: str, sitting: Iterable[tuple[str, tuple[Placed, ...]]]) -> dict[str, Taken]:
        found: dict[str, Taken] = {}
        for gang, places in sitting:
            for seated in places:
                for seat in seated.seats:
                    if seat.card == card:
                        found.setdefault(gang, Taken()).add(seat, seated.count)
        return found

    def _too_much(self, card: str, takers: Mapping[str, Taken]) -> str:
        total: Counter[str] = Counter()
        for each in takers.values():
            total.update(milli=each.milli, memory=each.memory, pods=each.pods, alone=each.alone)
        if total["milli"] > WHOLE:
            return f"{total['milli']} of {WHOLE}"
        if total["memory"] > self.memory.get(card, total["memory"]):
            return f"{total['memory']} of {self.memory[card]} MiB"
        return f"{total['pods']} pods, one of them alone" if total["alone"] and total["pods"] > 1 else ""


def _larger(seats: Mapping[str, Taken], pods: Mapping[str, Taken]) -> dict[str, Taken]:
    nothing = Taken()
    found: dict[str, Taken] = {}
    for gang in {*seats, *pods}:
        one, other = seats.get(gang, nothing), pods.get(gang, nothing)
        found[gang] = Taken(
            max(one.milli, other.milli),
            max(one.memory, other.memory),
            max(one.pods, other.pods),
            max(one.alone, other.alone),
        )
    return found
