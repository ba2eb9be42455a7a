"""The ground of a combination of flavors: the nodes that pods with these flavors may go to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from gangline.engine.model import Flavor, PodSet, Toleration
from gangline.engine.nodes.node_rooms import Ground, NodeRooms
from gangline.engine.nodes.packer import PackedPodSet, member

#: One pod set to be assigned: itself, how many pods, and the flavors of its resources.
Ask: TypeAlias = tuple[PodSet, int, Sequence[str]]


class Grounds:
    """Grounds by flavors, kept until the nodes that they select change, or until `clear`: flavors changed."""

    def __init__(self, rooms: NodeRooms, flavors: Mapping[str, Flavor]) -> None:
        self._rooms = rooms
        self._flavors = flavors
        self._grounds: dict[tuple[str, ...], Ground | None] = {}
        self._version = rooms.grounds_version

    def clear(self) -> None:
        self._grounds.clear()

    def ground(self, flavors: Iterable[str]) -> Ground | None:
        """The nodes that pods with these flavors may go to; None if nodes do not bound them."""
        if self._version != self._rooms.grounds_version:
            self._version = self._rooms.grounds_version
            self._grounds.clear()
        key = tuple(sorted(set(flavors)))
        if key not in self._grounds:
            self._grounds[key] = self._find(key)
        return self._grounds[key]

    def _find(self, names: tuple[str, ...]) -> Ground | None:
        labels: dict[str, str] = {}
        for flavor in (self._flavors.get(name) for name in names):
            if flavor is None or flavor.topology or flavor.autoscaled:
                return None
            labels.update(flavor.node_labels)
        return self._rooms.ground(labels)

    def tolerations(self, flavors: Iterable[str]) -> tuple[Toleration, ...]:
        """The tolerations that these flavors add to pods."""
        known = (self._flavors.get(name) for name in sorted(set(flavors)))
        return tuple(toleration for flavor in known if flavor is not None for toleration in flavor.tolerations)

    def members(self, asks: Iterable[Ask]) -> list[PackedPodSet]:
        """The pod sets with pods, as the packer needs them."""
        return [
            member(pod_set, count, self.ground(flavors), tuple(sorted(set(flavors))), self.tolerations(flavors))
            for pod_set, count, flavors in asks
            if count > 0
        ]
