"""Scorers that users write: known by name, called with plain values, and never trusted.

What loads them, and guards against their errors and their slowness, is outside of the engine (`control.nodes.placing`). The
engine asks for points, and takes the same for all hosts from a scorer that is not there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Final, TypeAlias

from gangline.engine.cards.card_amounts import is_of_card
from gangline.engine.model.devices import WHOLE
from gangline.engine.placing.hosts import CPU, Host, PodRequest
from gangline.engine.topology.policy_filter import is_mark

# --- fragmentation ----------------------------------------------------------------------------------------------------
# Fragmentation: how much free GPU a node has that the pods of a typical workload could not use (FGD, ATC'23).
#
# A typical pod for which a node has not enough CPU, or too few cards with enough left, can use nothing of it: all that is free
# there is a fragment for it. Otherwise the fragments are the cards with less left than it asks for. The fragments of a node are
# the mean over the typical pods. A pod is best placed where it increases them least.


#: the share of pods whose kinds are looked at, the most frequent first
_TYPICAL: Final = 0.95
#: states of nodes whose fragments are remembered
_MOST_STATES: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class TypicalPod:
    cpu: int
    cards: int
    #: thousandths of each card
    milli: int

    @classmethod
    def of(cls, ask: PodRequest) -> TypicalPod:
        cards, milli = ask.whole_cards, WHOLE
        if ask.shares:
            cards = sum(share.count for share in ask.shares)
            milli = max(WHOLE if share.exclusive else share.milli for share in ask.shares)
        return cls(ask.amount(CPU), cards, milli)


class Fragments:
    """The fragments of nodes, by their free CPU and cards, for one mix of typical pods."""

    def __init__(self, pods: Mapping[TypicalPod, int]) -> None:
        """`pods`: how many there are of each kind."""
        self._pods = _most_frequent(pods)
        #: free CPU matters only between these
        self._steps = sorted({pod.cpu for pod, _ in self._pods})
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}

    @classmethod
    def of(cls, asks: Iterable[PodRequest]) -> Fragments:
        counts: dict[TypicalPod, int] = {}
        for ask in asks:
            pod = TypicalPod.of(ask)
            counts[pod] = counts.get(pod, 0) + 1
        return cls(counts)

    @property
    def mix(self) -> Sequence[tuple[TypicalPod, float]]:
        return self._pods

    def on(self, cpu: int, cards: tuple[int, ...]) -> float:
        """Thousandths of cards that are fragments, with so much CPU free and so much of each card."""
        step = bisect_right(self._steps, cpu)
        state = step, cards
        found = self._known.get(state)
        if found is None:
            if len(self._known) >= _MOST_STATES:
                self._known.clear()
            found = self._known[state] = self._count(self._steps[step - 1] if step else -1, cards)
        return found

    def _count(self, cpu: int, cards: Sequence[int]) -> float:
        everything = sum(cards)
        fragments = 0.0
        for pod, share in self._pods:
            wasted = everything
            if pod.cards and pod.cpu <= cpu:
                usable = [left for left in cards if left >= pod.milli]
                if len(usable) >= pod.cards:
                    wasted -= sum(usable)
            fragments += share * wasted
        return fragments


def points(increase: float) -> int:
    """The score of a place that increases the fragments by so many thousandths of cards: 50 where it changes nothing."""
    return int(100 / (1 + exp(max(-50.0, min(50.0, increase / WHOLE)))))


def _most_frequent(pods: Mapping[TypicalPod, int]) -> tuple[tuple[TypicalPod, float], ...]:
    """The most frequent kinds with their shares, until they make up most of all pods."""
    everything = sum(pods.values())
    kept: list[tuple[TypicalPod, int]] = []
    covered = 0
    for pod, count in sorted(pods.items(), key=lambda item: (-item[1], item[0].cpu, item[0].cards, item[0].milli)):
        kept.append((pod, count))
        covered += count
        if covered >= everything * _TYPICAL:
            break
    return tuple((pod, count / covered) for pod, count in kept)


# --- own scorers ------------------------------------------------------------------------------------------------------


#: Ten thousandths of a point for a pod on a host, or None from a scorer that is not well.
OwnScorer: TypeAlias = Callable[[Mapping[str, object], Mapping[str, object]], int | None]

#: what a scorer that says nothing gives to all hosts
NEITHER: Final = 50 * 10_000
_BEST: Final = 100 * 10_000


class OwnScorers:
    """The scorers of this process, by name."""

    def __init__(self) -> None:
        self._known: dict[str, OwnScorer] = {}

    def put(self, name: str, scorer: OwnScorer) -> None:
        self._known[name] = scorer

    def remove(self, name: str) -> None:
        self._known.pop(name, None)

    def names(self) -> frozenset[str]:
        return frozenset(self._known)

    def points(self, name: str, ask: PodRequest, host: Host) -> int:
        """The points that a scorer gives to a host, from 0 to 100, in ten thousandths."""
        scorer = self._known.get(name)
        found = scorer(_pod(ask), _node(host)) if scorer is not None else None
        return NEITHER if found is None else max(0, min(_BEST, found))


def _pod(ask: PodRequest) -> Mapping[str, object]:
    return {
        "requests": {name: amount for name, amount in ask.requests if not is_mark(name)},
        "class": ask.kind,
        "utilisation": ask.utilisation,
        "images": [image for image, _ in ask.images],
        "data": dict(ask.data),
        "seconds": ask.seconds,
    }


def _node(host: Host) -> Mapping[str, object]:
    return {
        "name": host.name,
        "labels": dict(host.labels),
        "annotations": dict(host.annotations),
        "allocatable": dict(host.total),
        "free": {name: amount for name, amount in host.free.items() if not (is_mark(name) or is_of_card(name))},
        "images": dict(host.images),
    }


#: Of the process; filled at its start.
OWN_SCORERS: Final = OwnScorers()
