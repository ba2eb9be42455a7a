"""The resources that pods outside Gangline take on nodes, as the engine counts them for topologies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gangline.api.read import parse
from gangline.engine import model
from gangline.kube.resources import Json, key_of


@dataclass(slots=True)
class ForeignPods:
    """The resources of each foreign pod, as last reported to `observe`."""

    observe: Callable[[model.Change], None]
    _reported: dict[str, model.ForeignPod] = field(default_factory=dict[str, model.ForeignPod])

    def upsert(self, pod: Json) -> None:
        self._take(key_of(pod), _room(pod))

    def remove(self, key: str) -> None:
        self._take(key, None)

    def _take(self, key: str, pod: model.ForeignPod | None) -> None:
        if self._reported.get(key) == pod:
            return
        if pod is None:
            del self._reported[key]
            self.observe(model.Gone(model.ForeignPod, key))
        else:
            self._reported[key] = pod
            self.observe(model.Put(pod))


def _room(pod: Json) -> model.ForeignPod | None:
    try:
        return parse.foreign_pod(pod)
    except parse.ParseError:  # the API server has validated it; a pod that we cannot read takes no room
        return None
