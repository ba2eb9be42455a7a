"""The finalizer of configuration objects: one that something else uses is deleted only when nothing uses it any more."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.control.mirror.mirror import Mirror
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.engine import Engine
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource, deleting, key_of

#: Kinds that get the finalizer here. ClusterQueues and ResourceFlavors get it from the webhooks, when they are created.
MARKED: Final = (kube.ADMISSION_CHECKS, kube.TOPOLOGIES)


class ObjectsInUse(Part):
    """Sets the finalizer where it is missing, and removes it from unused objects under deletion."""

    name = "objects in use"
    kinds = MARKED

    def __init__(self, mirror: Mirror, writes: Writes, engine: Engine) -> None:
        self._mirror = mirror
        self._writes = writes
        self._engine = engine
        self._unmarked: set[tuple[Resource, str]] = set()

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self._look(resource, event.obj)

    def lead(self) -> None:
        for resource in MARKED:
            for obj in self._mirror.objects[resource].values():
                self._look(resource, obj)

    def _look(self, resource: Resource, obj: Json) -> None:
        if not deleting(obj) and names.IN_USE_FINALIZER not in _finalizers(obj):
            self._unmarked.add((resource, key_of(obj)))

    def act(self, now: int) -> None:
        unmarked, self._unmarked = self._unmarked, set()
        for resource, key in sorted(unmarked, key=lambda pair: pair[1]):
            raw = self._mirror.get(resource, key)
            if raw is not None and not deleting(raw) and names.IN_USE_FINALIZER not in _finalizers(raw):
                self._set(resource, raw, [*_finalizers(raw), names.IN_USE_FINALIZER])
        for resource, key in self._mirror.take_deleting():
            raw = self._mirror.get(resource, key)
            if raw is not None and names.IN_USE_FINALIZER in _finalizers(raw) and not self._in_use(resource, key):
                self._set(resource, raw, [name for name in _finalizers(raw) if name != names.IN_USE_FINALIZER])

    def _set(self, resource: Resource, raw: Json, finalizers: list[str]) -> None:
        """A refused write is planned again when the object changes: the refusal means that it has."""
        if self._writes.pending(resource, key_of(raw)):
            return
        meta = {"resourceVersion": raw["metadata"]["resourceVersion"], "finalizers": finalizers or None}
        self._writes.send(ObjectKey.of(resource, raw), "patch", {"metadata": meta}, priority=Priority.LIFECYCLE)

    def _in_use(self, resource: Resource, key: str) -> bool:
        objects = self._mirror.objects
        if resource == kube.CLUSTER_QUEUES:
            return self._engine.queue_status(key).reserving > 0
        if resource == kube.TOPOLOGIES:
            return any(flavor["spec"].get("topologyName") == key for flavor in objects[kube.RESOURCE_FLAVORS].values())
        if resource == kube.ADMISSION_CHECKS:
            return any(key in _checks_of(queue["spec"]) for queue in objects[kube.CLUSTER_QUEUES].values())
        return any(key in _flavors_of(queue["spec"]) for queue in objects[kube.CLUSTER_QUEUES].values())


def _finalizers(obj: Json) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def _flavors_of(spec: Json) -> set[str]:
    groups = spec.get("resourceGroups") or ()
    return {flavor.get("name", "") for group in groups for flavor in group.get("flavors") or ()}


def _checks_of(spec: Json) -> set[str]:
    """The AdmissionChecks of a ClusterQueue, in either of the fields that name them."""
    strategy = spec.get("admissionChecksStrategy") or {}
    return {*(spec.get("admissionChecks") or ()), *(row["name"] for row in strategy.get("admissionChecks") or ())}
