"""Workloads follow their WorkloadPriorityClass: when its value changes, each of its Workloads gets the new priority.

As in Kueue, `spec.priority` of one Workload may be changed by hand: that lasts until its class changes, or the operator starts
anew.
"""

from __future__ import annotations

import logging
from functools import partial

from gangline.api import names
from gangline.api.read import parse
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.plan import plan_steps
from gangline.control.writes.outgoing import Priority
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import ObjectKey, Resource
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)


class ClassPriorities(Part):
    """Writes the priority of a changed class to its Workloads, waiting or admitted. `wake` makes the loop take another round."""

    name = "class priorities"
    kinds = (kube.WORKLOAD_PRIORITY_CLASSES,)

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._quarantine = context.quarantine
        self._wake = context.wake
        self._values: dict[str, object] = {}  # class -> its value as last seen
        self._changed: set[str] = set()  # classes
        self._outdated: set[str] = set()  # Workloads that may have another priority than their class

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            name, value = event.obj.name, event.obj.get("value")
            if name not in self._values or self._values[name] != value:
                self._changed.add(name)
            self._values[name] = value

    def lead(self) -> None:
        self._changed.update(self._mirror.objects[kube.WORKLOAD_PRIORITY_CLASSES])

    def act(self, now: int) -> None:
        if self._changed:
            changed, self._changed = self._changed, set()
            workloads = self._mirror.workloads
            self._outdated.update(key for key, workload in workloads.items() if _class_of(workload) in changed)
        outdated, self._outdated = self._outdated, set()
        for key in self._quarantine.in_turn(sorted(outdated), self._outdated.update):
            self._quarantine.attempt(
                "giving it the priority of its class", kube.WORKLOADS, key, partial(self._follow, key)
            )

    def _follow(self, key: str) -> None:
        workload = self._mirror.workloads.get(key)
        if workload is None or workload.deleting or workload.true_condition(names.FINISHED):
            return
        found = self._mirror.get(kube.WORKLOAD_PRIORITY_CLASSES, _class_of(workload) or "")
        if found is None:
            return
        try:
            value = parse.priority_class(found)
        except parse.ParseError:  # the jobs that name it report it
            return
        if value == workload.spec.get("priority"):
            return
        if self._writes.pending(kube.WORKLOADS, key):
            self._outdated.add(key)
            return
        self._writes.send(
            ObjectKey.of(kube.WORKLOADS, workload),
            "patch",
            plan_steps.fenced(workload, {"spec": {"priority": value}}),
            priority=Priority.LIFECYCLE,
            slot="class",
            failed=partial(self._refused, key),
        )

    def _refused(self, key: str, error: ApiError) -> None:
        if self._writes.expected(error):
            self._outdated.add(key)
            self._wake()
        else:
            log.warning("Workload %s keeps its priority: %s", key, error)


def _class_of(workload: WorkloadObject) -> str | None:
    """The WorkloadPriorityClass that a Workload has its priority from."""
    reference = workload.spec.get("priorityClassRef") or {}
    return reference.get("name") if reference.get("kind") == kube.WORKLOAD_PRIORITY_CLASSES.kind else None
