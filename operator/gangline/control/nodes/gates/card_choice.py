"""The cards of the pods of placed gangs, as annotations of the pods: `gangline.io/cards`, and HAMi's for pods that ask HAMi.

Which of the cards of its host a pod gets is decided when its gate is taken off, and stands on the pod from then on: whoever looks
later, after a crash too, gives the others the cards that are left. Of a pod with a claim it is decided when that is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangline.api import names
from gangline.engine import model
from gangline.kube.resources import Json
from gangline.objects import PodObject

_HAMI: Final = frozenset({names.HAMI_CORES, names.HAMI_MEMORY, names.HAMI_PERCENT})


class CardChoice:
    """The cards of the domains of one pod set that no pod has yet. `started`: its living pods without their gate; `claimed`: the
    cards for which pods that wait have a claim, by pod, and the place that each of these gets now."""

    def __init__(
        self,
        topology: model.TopologyAssignment,
        started: Iterable[PodObject],
        claimed: Iterable[tuple[PodObject, Mapping[str, str], str]] = (),
    ) -> None:
        self._level = topology.levels[-1]
        self._kept: dict[str, str] = {}
        self._left = {domain.values[-1]: [_text(pod) for pod in domain.cards] for domain in topology.domains}
        if not any(self._left.values()):
            return
        for pod in started:
            left = self._left.get((pod.spec.get("nodeSelector") or {}).get(self._level, ""))
            told = pod.annotations.get(names.CARDS)
            if left and told in left:
                left.remove(told)
            elif left:  # it started before its cards were chosen: some are its own
                left.pop()
        for pod, place, cards in claimed:
            left = self._left.get(place.get(self._level, ""), [])
            if cards in left:
                left.remove(cards)
                self._kept[pod.key] = cards

    def annotations(self, pod: PodObject, place: Mapping[str, str]) -> dict[str, str]:
        """The annotations of a pod that starts in this place, which name its cards; none where cards do not bound it."""
        left = self._left.get(place.get(self._level, ""))
        chosen = self._kept.get(pod.key) or (left.pop(0) if left else "")
        if not chosen:
            return {}
        by_hami = _asks_hami(pod.spec) and not chosen.startswith("~")
        return {names.CARDS: chosen, **({names.HAMI_USE_UUID: chosen} if by_hami else {})}


def _text(pod: Iterable[model.CardSeat]) -> str:
    return ",".join(dict.fromkeys(seat.card for seat in pod))


def _asks_hami(spec: Json) -> bool:
    containers = (each for part in ("containers", "initContainers") for each in spec.get(part) or ())
    amounts = ((each.get("resources") or {}).get(part) or {} for each in containers for part in ("limits", "requests"))
    return any(not _HAMI.isdisjoint(each) for each in amounts)
