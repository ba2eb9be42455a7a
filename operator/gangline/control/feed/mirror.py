"""The cluster as last seen: the raw objects, their owners, and the engine's view of each object.

One consumer feeds the mirror, in order. Each object goes in whole; out come engine changes (`model.Change`) and the set of jobs
that have to be planned again. An object that cannot be read is kept out of the engine with an error that names the field. The
last good value of a configuration object stays in force, so that one typo does not stop a queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from gangline.api import names
from gangline.api.queue_orders import known_from
from gangline.api.read import parse, policy_reader
from gangline.control.feed import slices
from gangline.control.feed.changes import Changes, JobRef
from gangline.control.feed.owned_objects import OwnedObjects, is_external
from gangline.control.feed.request_rules import RequestRules
from gangline.control.feed.watched_kinds import (
    CHECK_CONFIGURATION,
    CONFIGURATION,
    COUNTING,
    DESCRIPTIONS,
    JOB_KINDS,
    KEPT_WHILE_IN_USE,
    READERS,
)
from gangline.control.isolation.intake import NamespaceIntake, is_head, slim, why_head
from gangline.control.isolation.time_limit import limited
from gangline.control.parts.messages import Messages, WorkloadDeparted
from gangline.engine import HOSTNAME, OF_POLICY, POLICY, Mode, model, under
from gangline.kube import resources as kube
from gangline.kube.resources import Resource
from gangline.objects import Stored, WorkloadObject, view

log = logging.getLogger(__name__)

#: How many bytes of JSON of different pod sets and pods' specs are kept for sharing, and how many one of them may have.
MOST_SHAPES = 8 << 20
LARGEST_SHAPE = 16 << 10


class HeadError(ValueError):
    """Says that only the head of an object is kept, and why."""


def without_nulls(value: Any) -> Any:
    """A copy of the JSON without null fields in any object."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@dataclass(slots=True)
class Mirror(OwnedObjects):
    """The store. `observe` receives engine changes; `complain` receives (object, error) for each object that cannot be read."""

    observe: Callable[[model.Change], None]
    complain: Callable[[Stored, Exception], None] = field(default=lambda obj, error: None)
    #: called with an object that could not be kept whole, and is now
    content: Callable[[Resource, str], None] = field(default=lambda resource, key: None)
    #: how much of each object is kept
    intake: NamespaceIntake = field(default_factory=NamespaceIntake)
    #: publishes each Workload that was deleted or has finished
    messages: Messages = field(default_factory=Messages)
    labels_to_copy: Sequence[str] = ()
    annotations_to_copy: Sequence[str] = ()
    #: the URL to which the pods of admitted jobs report their progress; "" = the pods get none
    progress_url: str = ""
    #: milliseconds since the epoch
    now: Callable[[], int] = field(default=lambda: int(time.time() * 1000))
    #: what pods of Workloads count for
    rules: RequestRules = field(default_factory=RequestRules)
    changes: Changes = field(default_factory=Changes)
    #: which mode a ClusterQueue is in, by its floor
    mode_of: Callable[[str], Mode] = field(default=lambda cluster_queue: POLICY)
    #: a ClusterQueue with the quotas that it has now, by its QuotaPlan
    effective: Callable[[model.ClusterQueue], model.ClusterQueue] = field(default=lambda cluster_queue: cluster_queue)
    #: False holds Topologies back from the engine, which would take occupied room for free before the pods are known
    pods_known: bool = False
    #: flavors whose nodes a cluster autoscaler can make, and by what
    growing: Mapping[str, str] = field(default_factory=dict[str, str])
    #: node -> what telemetry rules say of it, beside its annotations
    readings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    #: objects of `KEPT_WHILE_IN_USE` that are being deleted
    _deleting: set[tuple[Resource, str]] = field(default_factory=set)
    _values: dict[str, model.Workload] = field(default_factory=dict)
    _shapes: dict[bytes, Any] = field(default_factory=dict)  # pod sets, and specs of pods, by their JSON
    _shapes_size: int = 0

    # --- in ---

    def upsert(self, resource: Resource, obj: Stored, *, decides: bool = True, assumed: bool = False) -> None:
        """Store the newest version of an object.

        `decides=False` keeps it from the engine, whose assumption is newer for now. `assumed=True` passes it to the engine in any
        case, because the engine has assumed something about the object since its last fact.
        """
        new = view(resource, obj)
        key = new.key
        old = self.objects[resource].get(key)
        if old is not None and not assumed and not is_head(old) and old.resource_version == new.resource_version:
            return  # the answer to our write and the watch event of it bring the same version
        slim(new)
        if old is not None and old.uid != new.uid:
            self.remove(resource, key)
            old = None
        obj = self.intake.take(resource, new, lambda: resource in JOB_KINDS and self._is_held(new))
        for part in ("spec", "status"):  # may be absent or null where every field in it is optional
            if obj.get(part) is None:
                obj[part] = {}
            elif resource in CONFIGURATION:
                obj[part] = without_nulls(obj[part])
            elif None in obj[part].values():
                obj[part] = {name: value for name, value in obj[part].items() if value is not None}
        if not is_head(obj):
            self._share(resource, obj)
        self.objects[resource][key] = obj
        self.index(resource, key, old, obj)
        self._look_at_head(resource, key, old, obj)
        if old is None and (resource in JOB_KINDS or is_external(resource)):  # its children may have arrived before it
            self.changes.jobs.update(ref for ref in self._owned.get(obj.uid, ()) if ref[0] in JOB_KINDS)
        if old is None and resource == kube.WORKLOADS:
            self.changes.arrived.add(key)
        elif old is None and resource in JOB_KINDS:
            for uid in (obj.uid, *self.controllers_of(obj)):
                self.changes.arrived.update(name for kind, name in self._owned.get(uid, ()) if kind == kube.WORKLOADS)
        if resource in COUNTING:
            self._count_by(resource, key, obj)
        elif decides:
            self._read(resource, key, obj, assumed=assumed)
        if (
            isinstance(old, WorkloadObject)
            and isinstance(obj, WorkloadObject)
            and obj.finished
            and not (old.finished or slices.has_ended(obj))
        ):
            self.messages.publish(WorkloadDeparted(old))
        self._mark(resource, key, obj)

    def remove(self, resource: Resource, key: str) -> None:
        old = self.objects[resource].pop(key, None)
        if old is None:
            return
        self.index(resource, key, old, None)
        self.intake.forget(resource, key)
        self._mark(resource, key, old)
        if resource in COUNTING:
            self.rules.put(resource, key, None)
        if resource in READERS:
            self._values.pop(key, None) if resource == kube.WORKLOADS else None
            self.observe(model.Gone(READERS[resource][0], key))
        if isinstance(old, WorkloadObject):
            self.messages.publish(WorkloadDeparted(old))

    def _look_at_head(self, resource: Resource, key: str, old: Stored | None, obj: Stored) -> None:
        """Say that only the head of an object is kept, or that all of it is again. Of Workloads that is said as they are read."""
        if is_head(obj) and resource != kube.WORKLOADS:
            self.complain(obj, HeadError(why_head(obj)))
        elif old is not None and is_head(old) and not is_head(obj):
            self.content(resource, key)
        if isinstance(obj, WorkloadObject) and obj.quota_reserved:
            owner = self._by_uid.get(obj.controller_uid or "")
            if owner is not None:
                self.intake.want(*owner)

    def _is_held(self, job: Stored) -> bool:
        """Whether a Workload of the job holds quota."""
        return any(each.quota_reserved for each in self.workloads_of(job))

    def know_pods(self) -> None:
        """Note that all pods are known: flavors with a topology may be used from now on."""
        if not self.pods_known:
            self.pods_known = True
            self.observe(model.Put(model.Topology(OF_POLICY, (HOSTNAME,))))
            for key, topology in self.objects[kube.TOPOLOGIES].items():
                self._read(kube.TOPOLOGIES, key, topology)

    def _share(self, resource: Resource, obj: Stored) -> None:
        """Share one copy of the pod sets among Workloads of one shape, of which there may be thousands, and one of the pods' spec
        among Jobs: each Job's template has labels of its own.
        """
        if resource == kube.WORKLOADS:
            holder, part = obj.spec, "podSets"
        elif resource == kube.JOBS:
            holder, part = obj.spec.get("template"), "spec"
        else:
            return
        if not isinstance(holder, dict) or not (shared := holder.get(part)):
            return
        if len(shape := orjson.dumps(shared)) > LARGEST_SHAPE:
            return
        if (known := self._shapes.get(shape)) is None:
            self._shapes_size += len(shape)
            if self._shapes_size > MOST_SHAPES:
                self._shapes.clear()
                self._shapes_size = len(shape)
            known = self._shapes[shape] = shared
        holder[part] = known

    def settle(self, resource: Resource, key: str) -> None:
        """Report an object's actual state to the engine again: what the engine assumed did not come true. Who waited for the end
        of that doubt looks at it again, too.
        """
        obj = self.objects[resource].get(key)
        if obj is not None:
            self._read(resource, key, obj, assumed=True)
            self._mark(resource, key, obj)

    def read_again(self, resource: Resource, key: str) -> None:
        """Report an object to the engine again, which may mean something else now."""
        obj = self.objects[resource].get(key)
        if obj is not None:
            self._read(resource, key, obj)

    def put_reading(self, node: str, said: Mapping[str, str]) -> None:
        """Take in what telemetry rules say of a node now, and report the node to the engine if that is new."""
        if said == self.readings.get(node, {}):
            return
        if said:
            self.readings[node] = said
        else:
            del self.readings[node]
        self.read_again(kube.NODES, node)

    def recounted(self) -> list[str]:
        """Workloads that may count differently since LimitRanges and RuntimeClasses were last asked after."""
        concerns = self.rules.take_changed()
        if concerns is None:
            return []
        return [key for key, workload in self.workloads.items() if concerns(workload)]

    def count_anew(self, key: str) -> None:
        """Report a Workload to the engine again if it counts differently now. What it holds stays as it was reserved."""
        self._read(kube.WORKLOADS, key, self.workloads[key])

    def _count_by(self, resource: Resource, key: str, obj: Stored) -> None:
        if is_head(obj):
            if resource == kube.RESOURCE_CLAIM_TEMPLATES:  # what it claims is not known: as if it were missing
                self.rules.put(resource, key, None)
            return
        try:
            limited(lambda: self.rules.put(resource, key, obj))
        except Exception as error:  # what it said before stays in force
            self.complain(obj, error)

    def _value_of(self, resource: Resource, obj: Stored) -> model.Item | None:
        """The engine's value of an object; None for an object that does not concern the engine."""
        if is_head(obj) and resource in READERS:
            raise HeadError(why_head(obj))
        if resource == kube.WORKLOADS:
            return parse.workload(obj, self.rules.of(obj.namespace))
        if resource == kube.NODES:
            node = parse.node(obj, images=self.rules.images)
            said = self.readings.get(node.name)
            return node if said is None else replace(node, annotations={**node.annotations, **said})
        reader = READERS.get(resource)
        return None if reader is None else reader[1](obj)

    def _read(self, resource: Resource, key: str, obj: Stored, *, assumed: bool = False) -> None:
        if resource == kube.TOPOLOGIES and not self.pods_known:
            return
        try:
            item = limited(lambda: self._value_of(resource, obj), of=[obj])
        except Exception as error:  # the last good value stays in force, whatever the error
            self.complain(obj, error)
            if resource == kube.WORKLOADS and key not in self._values:
                self._count_quota(key, obj)
            return
        if item is None:
            return
        if isinstance(item, model.ClusterQueue):
            try:
                item = policy_reader.with_policy(item, self.policy_of(obj), known_from(self.now()))
            except Exception as error:
                self.complain(self.policy_of(obj) or obj, error)
            item = self.effective(under(item, self.mode_of(item.name)))
        if isinstance(item, model.Flavor) and item.name in self.growing:
            item = replace(item, autoscaled=True)
        if isinstance(item, model.LocalQueue) and self.is_leaving(item.namespace):
            item = replace(item, terminating=True)  # nothing can be created there: its jobs get no quota any more
        if isinstance(item, model.Workload):
            if not assumed and self._values.get(key) == item:  # nothing changed that affects decisions
                return
            self._values[key] = item
        self.observe(model.Put(item))

    def _count_quota(self, key: str, obj: Stored) -> None:
        """Count the quota of a Workload that could never be read: it may hold quota, which must not be given away."""
        try:
            held = parse.holding(obj)
        except parse.ParseError as error:
            log.warning("%s: its quota is not counted: %s", key, error)
            return
        if held is not None:
            self._values[key] = held
            self.observe(model.Put(held))

    def _look_at_images(self) -> None:
        """Read images of pods and nodes while some policy looks at them."""
        wanted = any(policy_reader.looks_at_images(policy) for policy in self.objects[kube.QUEUE_POLICIES].values())
        if self.rules.look_at_images(wanted):
            for name, node in self.nodes.items():
                self._read(kube.NODES, name, node)

    def take_deleting(self) -> list[tuple[Resource, str]]:
        """Configuration objects under deletion that wait until they are not used any more; asked for after every round."""
        self._deleting = {(resource, key) for resource, key in self._deleting if key in self.objects[resource]}
        return sorted(self._deleting, key=lambda pair: pair[1])

    def _mark(self, resource: Resource, key: str, obj: Stored) -> None:
        """Record which jobs and other objects have to be looked at because `obj` changed."""
        if resource in JOB_KINDS:
            self.changes.jobs.add((resource, key))
            if JOB_KINDS[resource].declaration.remakes_children:  # they are held and made anew as it stops and starts
                children = self._owned.get(obj.uid, ())
                self.changes.jobs.update(ref for ref in children if ref[0] in JOB_KINDS)
            if key not in self.objects[resource]:  # deleted: its workloads have lost their job
                self.changes.unowned.update(
                    name for kind, name in self._owned.get(obj.uid, ()) if kind == kube.WORKLOADS
                )
        if resource == kube.QUEUE_POLICIES:
            self._look_at_images()
            for name, queue in self.objects[kube.CLUSTER_QUEUES].items():
                self._read(kube.CLUSTER_QUEUES, name, queue)
        if resource == kube.NAMESPACES and (  # it may be selected now, or not any more, or allow other priority classes
            self.managed.selector is not None or names.ALLOWED_CLASSES in obj.annotations
        ):
            self.changes.jobs.update(ref for ref in self.jobs() if ref[1].startswith(f"{key}/"))
        if resource == kube.NAMESPACES and self.is_leaving(key):
            for name, queue in self.local_queues.items():
                if queue.namespace == key:
                    self._read(kube.LOCAL_QUEUES, name, queue)
        if resource in (kube.QUEUE_POLICIES, kube.CLUSTER_QUEUES):
            self.changes.policies.add(key)
        if resource == kube.NODES:
            self.changes.nodes.add(key)
        if isinstance(obj, WorkloadObject):
            self.changes.workloads.add(key)
            if names.ELASTIC in obj.annotations:
                self.changes.elastic.add(key)
                self._mark_slice(key, obj)
            if names.RECOVERY in obj.annotations:
                self.changes.recovering.add(key)
            if obj.is_placed:
                self.changes.placed.add(key)
            if "admissionChecks" in obj.status:
                self.changes.checked.add(key)
        if resource in (kube.PROVISIONING_REQUESTS, kube.POD_TEMPLATES):
            self.changes.checked.update(self.workload_behind(obj))
        if resource in CHECK_CONFIGURATION:
            self.changes.checks.add(key)
        if resource in KEPT_WHILE_IN_USE and obj.deleting:
            self._deleting.add((resource, key))
        if resource in JOB_KINDS or resource in (kube.WORKLOADS, kube.SERVICES, kube.RESOURCE_CLAIM_TEMPLATES):
            owner = self._by_uid.get(obj.controller_uid or "")
            if owner is not None:
                self.changes.jobs.add(owner)
            elif resource == kube.WORKLOADS:
                self.changes.unowned.add(key)
            if resource == kube.WORKLOADS and (owner is None or key not in self.objects[resource]):
                self.changes.jobs.update(self._naming.get(key, ()))
        elif resource in (kube.WORKLOAD_PRIORITY_CLASSES, kube.PRIORITY_CLASSES):
            self.changes.jobs.update(self.jobs())
        elif resource in DESCRIPTIONS:
            self.changes.jobs.update(self._described_by(resource, key))
        elif is_external(resource):
            self.changes.jobs.update(ref for ref in self._owned.get(obj.uid, ()) if ref[0] in JOB_KINDS)

    def _mark_slice(self, key: str, workload: WorkloadObject) -> None:
        if owner := workload.controller_uid:
            first = f"{workload.namespace}/{slices.slice_name(workload)}"
            self.changes.slices.add((owner, first, key))
        elif (old := self.workloads.get(slices.replacement_for(workload))) is not None:
            heir_of = self._by_uid.get(old.controller_uid or "")
            self.changes.jobs.update([heir_of] if heir_of is not None else [])

    # --- out ---

    def workload_value(self, key: str) -> model.Workload | None:
        return self._values.get(key)

    def _described_by(self, resource: Resource, key: str) -> Iterator[JobRef]:
        """The jobs whose pods this object describes."""
        for kind in JOB_KINDS.values():
            if resource in kind.declaration.descriptions:
                for name, job in self.objects[kind.resource].items():
                    if kind.declaration.described_by(job) == (resource, key):
                        yield kind.resource, name

    # --- steps.Lookups ---

    def recovery_for(self, workload: str) -> model.Recovery | None:
        """The recovery of a gang whose nodes fail; None for a deleted gang."""
        value = self.workload_value(workload)
        if value is None:
            return None
        local_queue = self.local_queues.get(f"{value.namespace}/{value.queue}")
        waiting_in = local_queue.cluster_queue if local_queue is not None else ""
        return self.recovery_of(value.admission.cluster_queue if value.admission else waiting_in)

    def pod_counts(self, workload: str) -> dict[str, int]:
        """How many pods each pod set of a Workload has."""
        value = self.workload_value(workload)
        return {pod_set.name: pod_set.count for pod_set in value.pod_sets} if value is not None else {}
