"""The resources that pods outside Gangline take on nodes, as the engine counts them for topologies; and whose pods they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gangline.api import names
from gangline.api.read import parse
from gangline.engine import model
from gangline.objects import PodObject


@dataclass(frozen=True, slots=True)
class Belonging:
    """The controller of a foreign pod as its JSON says ("" = none), and the queue that the pod's own label names."""

    kind: str = ""
    name: str = ""
    queue: str = ""


_NOTHING = Belonging()


@dataclass(slots=True)
class ForeignPods:
    """The resources of each foreign pod, as last reported to `observe`."""

    observe: Callable[[model.Change], None]
    _known: dict[str, tuple[model.ForeignPod, Belonging]] = field(
        default_factory=dict[str, tuple[model.ForeignPod, Belonging]]
    )

    def upsert(self, pod: PodObject) -> None:
        key, room = pod.key, _room(pod)
        if room is None:
            self.remove(key)
            return
        before = self._known.get(key)
        self._known[key] = room, _belonging(pod)
        if before is None or before[0] != room:
            self.observe(model.Put(room))

    def remove(self, key: str) -> None:
        if self._known.pop(key, None) is not None:
            self.observe(model.Gone(model.ForeignPod, key))

    def bound(self) -> Iterator[tuple[model.ForeignPod, Belonging]]:
        """The foreign pods that take room on a node, each with what it belongs to."""
        return iter(self._known.values())


def _room(pod: PodObject) -> model.ForeignPod | None:
    try:
        return parse.foreign_pod(pod)
    except parse.ParseError:  # the API server has validated it; a pod that we cannot read takes no room
        return None


def _belonging(pod: PodObject) -> Belonging:
    owner = pod.controller or {}
    queue = pod.labels.get(names.QUEUE_NAME)
    found = Belonging(*(str(each or "") for each in (owner.get("kind"), owner.get("name"), queue)))
    return _NOTHING if found == _NOTHING else found
