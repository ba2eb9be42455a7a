"""Workloads follow their WorkloadPriorityClass: when its value changes, each of its Workloads gets the new priority.

As in Kueue, `spec.priority` of one Workload may be changed by hand: that lasts until its class changes, or the operator starts
anew.
"""

from __future__ import annotations

from gangline.api import names
from gangline.api.read import parse
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.kinds import steps
from gangline.control.parts.changed_keys import KeySet
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import ObjectKey, Resource
from gangline.objects import WorkloadObject


class ClassPriorities(Reconciler[str]):
    """Writes the priority of a changed class to its Workloads, waiting or admitted."""

    name = "class priorities"
    doing = "giving it the priority of its class"
    kinds = (kube.WORKLOAD_PRIORITY_CLASSES,)

    def __init__(self, context: Context) -> None:
        super().__init__(context, KeySet[str](context.mirror.has(kube.WORKLOADS)))
        self._values: dict[str, object] = {}  # class -> its value as last seen
        self._changed_classes: set[str] = set()

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            name, value = event.obj.name, event.obj.get("value")
            if name not in self._values or self._values[name] != value:
                self._changed_classes.add(name)
            self._values[name] = value

    def lead(self) -> None:
        self._changed_classes.update(self._mirror.objects[kube.WORKLOAD_PRIORITY_CLASSES])

    def _gather(self, now: int) -> None:
        if self._changed_classes:
            changed, self._changed_classes = self._changed_classes, set()
            workloads = self._mirror.workloads
            self._changed.update(key for key, workload in workloads.items() if _class_of(workload) in changed)

    def _reconcile(self, key: str, now: int) -> None:
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
            self._changed.add(key)
            return
        body = steps.fenced(workload, {"spec": {"priority": value}})
        self._send(key, ObjectKey.of(kube.WORKLOADS, workload), "patch", body)


def _class_of(workload: WorkloadObject) -> str | None:
    """The WorkloadPriorityClass that a Workload has its priority from."""
    reference = workload.spec.get("priorityClassRef") or {}
    return reference.get("name") if reference.get("kind") == kube.WORKLOAD_PRIORITY_CLASSES.kind else None
