"""Plans every StatefulSet and LeaderWorkerSet whose pods or Workloads changed, and sends the steps of its plan."""

from __future__ import annotations

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.control.feed.changes import JobRef
from gangline.control.isolation.intake import is_head
from gangline.control.kernel.context import Context
from gangline.control.kinds import serving_plan
from gangline.control.kinds.group_planning import GroupPlanning
from gangline.control.kinds.planner import Planner
from gangline.control.kinds.serving_parents import ServedParents, parent_named
from gangline.jobs.pods import composition
from gangline.jobs.pods.member import SET_NAME
from gangline.jobs.serving import BY_FRAMEWORK, BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Resource
from gangline.objects import JobObject, WorkloadObject


class ServingPlanning(Planner):
    """Plans the parents of pod groups, where the configuration lists their kinds."""

    name = "serving"

    def __init__(self, context: Context, families: ServedParents, groups: GroupPlanning) -> None:
        frameworks = families.held.frameworks
        self.kinds = (kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS, kube.PODS) if frameworks else ()
        self._enabled = {BY_FRAMEWORK[each].declaration.resource for each in frameworks}
        super().__init__(context, families.held.changed, self._enabled)
        self._groups = groups
        self._families = families
        self._held = families.held
        self._owned: dict[JobRef, set[str]] = {}  # parent -> its Workloads
        self._parents: dict[str, JobRef] = {}  # Workload -> its parent
        self._workloads = context.mirror.changes.unowned.subscribe(worth=lambda key: bool(frameworks))

    # --- in ---

    def observe(self, resource: Resource, event: Event) -> None:
        if resource == kube.PODS:
            self._observe_pod(event)
        elif isinstance(event, Upsert):
            key = event.obj.key
            if resource in self._enabled:
                self._changed.add((resource, key))
            set_name = event.obj.labels.get(SET_NAME)
            if resource == kube.STATEFUL_SETS and set_name:
                self._changed.add((kube.LEADER_WORKER_SETS, f"{event.obj.namespace}/{set_name}"))

    def _observe_pod(self, event: Event) -> None:
        if isinstance(event, Upsert):
            self._held.upsert(event.obj)
        elif isinstance(event, Removed):
            gone = self._held.remove(event.key)
            if gone is not None:
                self._pod_writes.forget(gone.uid)

    def lead(self) -> None:
        self._workloads.update(self._mirror.workloads if self._enabled else ())
        self._changed.update((resource, key) for resource in self._enabled for key in self._mirror.objects[resource])

    # --- plans ---

    def _gather(self, now: int) -> None:
        for key in sorted(self._workloads.take()):
            self._note(key)

    def _note(self, key: str) -> None:
        """Note which parent has a Workload that has changed, appeared or gone."""
        workload = self._mirror.workloads.get(key)
        named = parent_named(workload) if workload is not None else None
        ref = named[0] if named is not None else None
        before = self._parents.pop(key, None)
        if before is not None:
            self._owned[before].discard(key)
            if not self._owned[before]:
                del self._owned[before]
            self._changed.add(before)
        if ref is not None and ref[0] in self._enabled:
            self._parents[key] = ref
            self._owned.setdefault(ref, set()).add(key)
            self._changed.add(ref)

    def _reconcile(self, ref: JobRef, now: int) -> None:
        resource = ref[0]
        parent, kind = self._mirror.job(ref), BY_RESOURCE[resource]
        if resource not in self._enabled or parent is None or is_head(parent):
            return
        if parent.namespace in names.EXCLUDED_NAMESPACES:
            return
        found = self._workloads_of(ref, parent)
        for workload in found.values():  # the parent may want other pods than before
            self._groups.touch(workload.key)
        if any(self._writes.in_doubt(kube.WORKLOADS, workload.key) for workload in found.values()):
            return  # the answer plans it again
        pods = self._families.pods_of(ref, parent)
        namespace = parent.namespace
        view = serving_plan.ParentView(
            kind=kind,
            parent=parent,
            workloads=found,
            pods=pods,
            outdated=frozenset(pod.uid for pod in pods if pod.gated and self._families.is_outdated(pod)),
            managed=bool(queue_name(parent)) or self._mirror.managed.without_queue,
            active=lambda name: self._groups.active(f"{namespace}/{name}"),
        )
        self._follow(ref, parent, lambda: serving_plan.plan(view, self._mirror), of=[parent, *found.values()])

    def _workloads_of(self, ref: JobRef, parent: JobObject) -> dict[str, WorkloadObject]:
        """The Workloads of a parent by their names: those that it owns, and those of its names that wait to be owned."""
        namespace, uid = parent.namespace, parent.uid
        found: dict[str, WorkloadObject] = {}
        for key in self._owned.get(ref, ()):
            workload = self._mirror.workloads.get(key)
            named = parent_named(workload) if workload is not None else None
            if workload is not None and named is not None and named[1] == uid:
                found[workload.name] = workload
        for name in BY_RESOURCE[ref[0]].adopted_names(parent):
            workload = self._mirror.workloads.get(f"{namespace}/{name}")
            if workload is not None and parent_named(workload) is None and composition.is_of_group(workload):
                found[name] = workload
        return found
