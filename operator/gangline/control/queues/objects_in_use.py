"""The finalizer of configuration objects: one that something else uses is deleted only when nothing uses it any more."""

from __future__ import annotations

import logging
from typing import Final

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: Kinds that get the finalizer here. ClusterQueues and ResourceFlavors get it from the webhooks, when they are created.
MARKED: Final = (kube.ADMISSION_CHECKS, kube.TOPOLOGIES)


class ObjectsInUse(Part):
    """Sets the finalizer where it is missing, and removes it from unused objects under deletion."""

    name = "objects in use"
    kinds = MARKED

    def __init__(self, context: Context) -> None:
        """Look after the finalizers. `wake` asks for another round."""
        self._mirror = context.mirror
        self._writes = context.writes
        self._engine = context.engine
        self._wake = context.wake
        self._unmarked: set[tuple[Resource, str]] = set()
        #: objects whose finalizers are being written
        self._sent: set[tuple[Resource, str]] = set()

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self._look(resource, event.obj)

    def lead(self) -> None:
        for resource in MARKED:
            for obj in self._mirror.objects[resource].values():
                self._look(resource, obj)

    def _look(self, resource: Resource, obj: Stored) -> None:
        if not obj.deleting and names.IN_USE_FINALIZER not in _finalizers(obj):
            self._unmarked.add((resource, obj.key))

    def act(self, now: int) -> None:
        unmarked, self._unmarked = self._unmarked, set()
        for resource, key in sorted({*unmarked, *self._mirror.take_deleting()}, key=lambda pair: pair[1]):
            self._set(resource, key)

    def _set(self, resource: Resource, key: str) -> None:
        """Write the finalizers if they are to change. They are computed when the write is sent: other writes may come before."""
        if (resource, key) in self._sent or self._wanted(resource, key) is None:
            return
        self._sent.add((resource, key))

        def body() -> Json | None:
            raw, wanted = self._mirror.get(resource, key), self._wanted(resource, key)
            if raw is None or wanted is None:
                return None
            return {"metadata": {"resourceVersion": raw.resource_version, "finalizers": wanted or None}}

        self._writes.send(
            ObjectKey.parse(resource, key),
            "patch",
            body,
            priority=Priority.LIFECYCLE,
            done=lambda _: self._sent.discard((resource, key)),
            failed=lambda error: self._refused(resource, key, error),
        )

    def _refused(self, resource: Resource, key: str, error: ApiError) -> None:
        """Plan again if the object has changed: nothing else may happen that would cause another round."""
        self._sent.discard((resource, key))
        if Writes.expected(error):
            self._unmarked.add((resource, key))
            self._wake()
        else:
            log.warning("%s %s: its finalizers: %s", resource.kind, key, error)

    def _wanted(self, resource: Resource, key: str) -> list[str] | None:
        """The finalizers that the object should have; None if it has them, or is gone."""
        raw = self._mirror.get(resource, key)
        if raw is None:
            return None
        finalizers = _finalizers(raw)
        marked = names.IN_USE_FINALIZER in finalizers
        if not raw.deleting:
            return None if marked or resource not in MARKED else [*finalizers, names.IN_USE_FINALIZER]
        if not marked or self._in_use(resource, key):
            return None
        return [name for name in finalizers if name != names.IN_USE_FINALIZER]

    def _in_use(self, resource: Resource, key: str) -> bool:
        objects = self._mirror.objects
        if resource == kube.CLUSTER_QUEUES:
            return self._engine.queue_status(key).reserving > 0
        if resource == kube.TOPOLOGIES:
            return any(flavor.spec.get("topologyName") == key for flavor in objects[kube.RESOURCE_FLAVORS].values())
        if resource == kube.ADMISSION_CHECKS:
            return any(key in _checks_of(queue.spec) for queue in objects[kube.CLUSTER_QUEUES].values())
        return any(key in _flavors_of(queue.spec) for queue in objects[kube.CLUSTER_QUEUES].values())


def _finalizers(obj: Stored) -> list[str]:
    return obj.finalizers


def _flavors_of(spec: Json) -> set[str]:
    groups = spec.get("resourceGroups") or ()
    return {flavor.get("name", "") for group in groups for flavor in group.get("flavors") or ()}


def _checks_of(spec: Json) -> set[str]:
    """The AdmissionChecks of a ClusterQueue, in either of the fields that name them."""
    strategy = spec.get("admissionChecksStrategy") or {}
    return {*(spec.get("admissionChecks") or ()), *(row["name"] for row in strategy.get("admissionChecks") or ())}
