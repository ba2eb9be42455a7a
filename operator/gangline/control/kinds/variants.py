"""Runs concurrent admission: plans each family whose members or queue changed, and sends the steps of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from gangline.control.feed.changes import JobRef
from gangline.control.isolation.time_limit import limited
from gangline.control.kernel.context import Context
from gangline.control.kinds import variant_bodies as bodies
from gangline.control.kinds import variant_plan as family
from gangline.control.kinds.planner import Planner
from gangline.control.parts.changed_keys import KeySet
from gangline.control.parts.messages import WriteResolved
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import gate_changes
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored, WorkloadObject

#: flavors on which a workload is tried at a time; the webhook lets a ClusterQueue have no more
MOST: Final = 16


class Variants(Planner):
    """Keeps families as they should be, and lists preemption gates in the statuses of Workloads. What it plans are Workloads."""

    name = "variants"
    doing = "planning its variants"
    STATUS = Priority.ADMISSION
    kinds = (kube.WORKLOADS, kube.LOCAL_QUEUES, kube.CLUSTER_QUEUES)

    def __init__(self, context: Context) -> None:
        # parents, those that may become parents, and variants without a parent
        exists = context.mirror.has(kube.WORKLOADS)
        super().__init__(context, KeySet[JobRef](lambda ref: exists(ref[1])), (kube.WORKLOADS,))
        self._concurrent = context.gates.get("ConcurrentAdmission", False)
        self._lists_gates = context.gates.get("MultiKueueOrchestratedPreemption", False)
        #: Workloads that variants name as their parent
        self._parents: set[str] = set()
        #: what decided about the families of each queue when it was last seen: of a LocalQueue, and of a ClusterQueue
        self._known: dict[tuple[Resource, str], object] = {}
        #: ClusterQueues whose policy is not in force, and which have no event about it yet
        self._idle: set[str] = set()
        #: families to look at later, in any case
        self._later: dict[str, int] = {}
        context.messages.subscribe(WriteResolved, self._note_resolved)

    # --- what changed ---

    def observe(self, resource: Resource, event: Event) -> None:
        if not isinstance(event, Upsert | Removed):
            return
        key = event.obj.key if isinstance(event, Upsert) else event.key
        if resource == kube.WORKLOADS:
            if isinstance(event, Upsert):
                self._note(event.obj)
            else:
                self._later.pop(key, None)
                if key in self._parents:
                    self._parents.discard(key)
                    self._note_orphans(key)
        else:
            self._note_queue(resource, key)

    def _note(self, workload: WorkloadObject) -> None:
        if bodies.is_variant(workload):
            self._parents.add(bodies.parent_key(workload))
            self._look_at(bodies.parent_key(workload))
            self._look_at(workload.key)
        elif self._concerns(workload):
            self._look_at(workload.key)

    def _look_at(self, key: str) -> None:
        self._changed.add((kube.WORKLOADS, key))

    def _concerns(self, workload: WorkloadObject) -> bool:
        if bodies.is_parent(workload) or (self._concurrent and self._rule_of(workload) is not None):
            return True
        return self._lists_gates and ("preemptionGates" in workload.spec or "preemptionGates" in workload.status)

    def _note_orphans(self, parent: str) -> None:
        """Note the variants of a Workload that was deleted: they have lost their parent."""
        namespace = parent.rpartition("/")[0]
        for key, workload in self._mirror.workloads.items():
            of_this_namespace = key.startswith(f"{namespace}/")
            if of_this_namespace and bodies.is_variant(workload) and bodies.parent_key(workload) == parent:
                self._look_at(key)

    def _note_queue(self, resource: Resource, key: str) -> None:
        """Look at the families of a queue where it has other flavors, another policy, or another ClusterQueue than before."""
        found = self._mirror.get(resource, key)
        if found is None:
            new: object = None
        elif resource == kube.CLUSTER_QUEUES:
            new = _rule(found)
        else:
            new = found.spec.get("clusterQueue", "")
        if self._known.get((resource, key)) == new:
            return
        self._known[resource, key] = new
        if new is None:
            del self._known[resource, key]
        if self._concurrent:
            self._note_all()
        elif resource == kube.CLUSTER_QUEUES and new is not None:
            self._idle.add(key)

    def _note_all(self) -> None:
        for workload in self._mirror.workloads.values():
            self._note(workload)

    def lead(self) -> None:
        self._note_all()

    def _note_resolved(self, message: WriteResolved) -> None:
        """Look again at a Workload that is not in doubt any more, perhaps without a change that a watch shows."""
        if message.key.resource == kube.WORKLOADS:
            workload = self._mirror.workloads.get(message.key.text)
            if workload is not None:
                self._note(workload)

    # --- plans ---

    def _gather(self, now: int) -> None:
        for key in [key for key, when in self._later.items() if when <= now]:
            self._look_at(key)
        for name in sorted(self._idle):
            if (queue := self._mirror.get(kube.CLUSTER_QUEUES, name)) is not None:
                note = "concurrentAdmissionPolicy has no effect: the feature gate ConcurrentAdmission is off"
                self._recorder.record(queue, "Warning", "ConcurrentAdmissionOff", note)
        self._idle.clear()

    def _times(self) -> Iterable[int]:
        return self._later.values()

    def _reconcile(self, ref: JobRef, now: int) -> None:
        key = ref[1]
        self._later.pop(key, None)
        workload = self._mirror.workloads.get(key)
        if workload is None:
            self._attempts.forgive(ref)
            return
        if self._lists_gates and not self._writes.in_doubt(kube.WORKLOADS, key):
            self._list_gates(key, workload)
        if bodies.is_variant(workload):
            self._plan_orphan(ref, workload)
            return
        variants = self._variants_of(workload)
        if any(self._writes.in_doubt(kube.WORKLOADS, each.key) for each in (workload, *variants)):
            return  # the answer brings it here again
        rule = self._rule_of(workload) if self._concurrent else None
        if rule is None and self._concurrent and self._queue_of(workload) is None:
            return  # which queue it is in is not known at present
        if rule is None and not variants and not bodies.is_parent(workload):
            return
        made = limited(
            lambda: family.plan(family.VariantFamily(workload, variants, rule), now), of=[workload, *variants]
        )
        if made.due is not None:
            self._later[key] = made.due
        for step, event in made.steps:
            if not self._carry_out(ref, workload, step, partial(self._tell, event) if event is not None else None):
                return

    def _tell(self, event: family.VariantEvent, answer: Json | None) -> None:
        if answer is not None:
            self._recorder.record(event.about, "Normal", event.happened, event.said)

    def _variants_of(self, parent: WorkloadObject) -> list[WorkloadObject]:
        owned = self._mirror.workloads_of(parent)
        return [each for each in owned if each.namespace == parent.namespace and bodies.is_variant(each)]

    def _plan_orphan(self, ref: JobRef, variant: WorkloadObject) -> None:
        """Plan a variant whose parent does not exist any more: its job has stopped, or the parent could not have been deleted."""
        parent = self._mirror.workloads.get(bodies.parent_key(variant))
        if parent is not None and parent.uid == bodies.variant_of(variant.metadata):
            return
        if not self._writes.in_doubt(*ref):
            for step in family.leave(variant):
                self._carry_out(ref, variant, step)

    def _list_gates(self, key: str, workload: WorkloadObject) -> None:
        wanted = [gate["name"] for gate in workload.spec.get("preemptionGates", ())]
        if wanted != [row["name"] for row in workload.status.get("preemptionGates", ())]:
            self._writes.change(key, "preemption-gates", gate_changes.gates_listed(wanted), priority=Priority.STATUS)

    def _queue_of(self, workload: WorkloadObject) -> Stored | None:
        """The ClusterQueue of the Workload's LocalQueue."""
        local_queue = self._mirror.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
        return self._mirror.get(kube.CLUSTER_QUEUES, local_queue.cluster_queue) if local_queue is not None else None

    def _rule_of(self, workload: WorkloadObject) -> family.VariantRule | None:
        queue = self._queue_of(workload)
        return _rule(queue) if queue is not None else None

    # --- answers ---

    def _object(self, ref: JobRef) -> Stored | None:
        return self._mirror.workloads.get(ref[1])

    def _count_created(self, ref: JobRef, workload: WorkloadObject) -> None:
        """Count nothing: the job has waited for its parent Workload alone."""

    def _finished(self, workload: WorkloadObject | None) -> None:
        """Tell nobody: the end of a variant is not that of the job."""


def _rule(queue: Stored) -> family.VariantRule | None:
    """The policy of a ClusterQueue; None if it has none, or none that could be in force."""
    spec = queue.spec
    policy, groups = spec.get("concurrentAdmissionPolicy"), spec.get("resourceGroups") or ()
    if policy is None or not groups:
        return None
    migration = policy.get("migration") or {}
    last = (migration.get("constraints") or {}).get("lastAcceptableFlavorName") or ""
    return family.VariantRule(_flavors(groups), migration.get("mode") or "TryPreferredFlavors", last)


def _flavors(groups: Sequence[Json]) -> tuple[str, ...]:
    return tuple(flavor["name"] for flavor in groups[0].get("flavors") or ())[:MOST]
