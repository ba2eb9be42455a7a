"""Scorers that users write: known by name, called with plain values, and never trusted.

What loads them, and guards against their errors and their slowness, is outside of the engine (`control.nodes.placing`). The
engine asks for points, and takes the same for all hosts from a scorer that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from gangline.engine.cards.card_amounts import is_of_card
from gangline.engine.placing.hosts import Host, PodRequest
from gangline.engine.topology.policy_filter import is_mark

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
