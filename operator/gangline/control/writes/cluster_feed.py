"""Feeds the cluster's events, except those of pods, into the mirror."""

from __future__ import annotations

from gangline.control.isolation.quarantine import Quarantine
from gangline.control.mirror import watched_kinds
from gangline.control.parts.part import Part
from gangline.control.writes.writes import Writes
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Resource


class ClusterFeed(Part):
    """Passes watch events to `Writes`, which knows which of them are news. Deleted objects leave quarantine."""

    name = "cluster"

    def __init__(self, writes: Writes, quarantine: Quarantine) -> None:
        self.kinds = tuple(watched_kinds.resources())
        self._writes = writes
        self._quarantine = quarantine

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self._writes.seen(resource, event.obj)
        elif isinstance(event, Removed):
            self._quarantine.forget(resource, event.key)
            self._writes.gone(resource, event.key, event.uid)

    def settle(self) -> None:
        self._writes.count_anew()
        self._writes.read_whole()
