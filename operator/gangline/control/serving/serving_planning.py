"""Plans every StatefulSet and LeaderWorkerSet whose pods or Workloads changed, and sends the steps of its plan."""

from __future__ import annotations

import logging
from functools import partial

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.control.isolation.intake import is_head
from gangline.control.isolation.time_limit import limited
from gangline.control.kernel.context import Context
from gangline.control.mirror.changes import JobRef
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.messages import WriteResolved
from gangline.control.parts.part import Part
from gangline.control.plan import plan_steps
from gangline.control.plan.recreations import Recreations
from gangline.control.plan.workload_writes import WorkloadWrites
from gangline.control.pod_groups.demand import Demand
from gangline.control.pod_groups.group_planning import GroupPlanning
from gangline.control.serving import serving_plan
from gangline.control.serving.families import Families, parent_named
from gangline.control.serving.held_index import HeldIndex
from gangline.control.writes.pod_writes import PodWrites
from gangline.jobs.base import JobError, UnknownClassError
from gangline.jobs.pods import composition
from gangline.jobs.pods.member import SET_NAME
from gangline.jobs.serving import BY_FRAMEWORK, BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import ObjectKey, Resource
from gangline.objects import JobObject, WorkloadObject

log = logging.getLogger(__name__)


class ServingPlanning(Part):
    """Plans the parents of pod groups, where the configuration lists their kinds. `wake` makes the loop take another round.

    A write of a pod is planned once per version of the pod, as in `GroupPlanning`.
    """

    name = "serving"

    def __init__(self, context: Context, groups: GroupPlanning) -> None:
        frameworks = context.mirror.managed.pods_of & BY_FRAMEWORK.keys()
        self.kinds = (kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS, kube.PODS) if frameworks else ()
        self._mirror = context.mirror
        self._groups = groups
        self._writes = context.writes
        self._recorder = context.recorder
        self._workload_writes = WorkloadWrites(context.writes, context.metrics, context.notices)
        self._recreations = Recreations(context.recorder)
        self._wake = context.wake
        self._quarantine = context.quarantine
        self._enabled = {BY_FRAMEWORK[each].declaration.resource for each in frameworks}
        self._held = HeldIndex(frameworks)
        self._families = Families(context.mirror, self._held)
        self._changed: set[JobRef] = set()
        self._owned: dict[JobRef, set[str]] = {}  # parent -> its Workloads
        self._parents: dict[str, JobRef] = {}  # Workload -> its parent
        self._pod_writes = PodWrites(context.writer, self._report)
        self._workloads = context.mirror.changes.unowned.subscribe(worth=lambda key: bool(frameworks))
        self._attempts = Attempts[JobRef](self._again)
        context.mirror.messages.subscribe(WriteResolved, self._resolved)

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

    def demand(self, workload: WorkloadObject) -> Demand | None:
        """The demand of the parent of a Workload for its pod group; None where no parent has made it."""
        return self._families.demand(workload) if self._enabled else None

    # --- plans ---

    def act(self, now: int) -> None:
        for key in sorted(self._workloads.take()):
            self._note(key)
        changed, self._changed = self._changed | self._held.changed, set()
        self._held.changed.clear()
        ordered = sorted(changed, key=lambda ref: (ref[1], ref[0].plural))
        for ref in self._quarantine.in_turn(ordered, self._changed.update):
            if not self._attempts.ready(ref):
                self._changed.add(ref)
            elif not self._quarantine.attempt("planning it", *ref, partial(self._plan, ref)):
                self._attempts.pause(ref)

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

    def _plan(self, ref: JobRef) -> None:
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
        try:
            planned = limited(lambda: serving_plan.plan(view, self._mirror), of=[parent, *found.values()])
        except UnknownClassError as error:
            self._recorder.record(parent, "Warning", "WorkloadPriorityClassNotFound", error.message)
            self._attempts.pause(ref)
            return
        except JobError as error:
            self._recorder.record(parent, "Warning", "ErrWorkloadCompose", str(error))
            self._attempts.pause(ref)
            return
        for step in planned:
            if isinstance(step, plan_steps.CreateWorkload) and not self._recreations.may_create(step.body, parent):
                self._attempts.pause(ref)
                return
            self._carry_out(ref, parent, step)

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

    # --- steps ---

    def _carry_out(self, ref: JobRef, parent: JobObject, step: serving_plan.Step) -> None:
        match step:
            case plan_steps.Note(kind, reason, message):
                self._recorder.record(parent, kind, reason, message)
            case serving_plan.MarkPod(pod, body):
                self._pod_writes.send(ref, pod, "patch", body)
            case serving_plan.DeletePod(pod):
                self._pod_writes.send(ref, pod, "delete", {"uid": pod.uid})
            case _:
                self._attempts.sent(ref)
                self._workload_writes.send(ref, ref[0].kind, lambda: parent, step)

    # --- results of writes ---

    def _resolved(self, message: WriteResolved) -> None:
        """Plan a parent again from the current state after a write of its Workload succeeded or was finally refused."""
        ref = message.owner
        if ref is None or ref[0] not in self._enabled:
            return
        self._workload_writes.settle(message, ref, self._attempts, again=self._again, report=self._report)

    def _report(self, ref: JobRef, key: ObjectKey, error: ApiError) -> None:
        log.warning("%s: %s: %s", ref[1], key, error)
        parent = self._mirror.job(ref)
        if parent is not None:
            note = f"{key.resource.kind} {key.name}: {error.message}"
            self._recorder.record(parent, "Warning", "WriteRefused", note)
        self._attempts.pause(ref)

    def _again(self, ref: JobRef) -> None:
        self._changed.add(ref)
        self._wake()
