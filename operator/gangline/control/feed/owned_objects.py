"""Finds the owners of watched objects: jobs, the Workloads and jobs that they control, and prebuilt Workloads that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from gangline.api import jobkinds, names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.read.configuration.managed_jobs import ManagedJobs
from gangline.control.feed import slices
from gangline.control.feed.changes import JobRef
from gangline.control.feed.stored_objects import StoredObjects
from gangline.control.feed.watched_kinds import JOB_KINDS, OWNED
from gangline.forecast.history.attempts import Labels
from gangline.jobs import kind_of, owners
from gangline.jobs.base import Children
from gangline.kube import resources as kube
from gangline.kube.resources import Resource
from gangline.objects import JobObject, Stored, WorkloadObject

_Workload: TypeAlias = "WorkloadObject | None"
_Job: TypeAlias = "JobObject | None"

#: How many levels of owners are followed.
MOST_OWNERS = 10
#: characters of the longest value of a label
_LONGEST_LABEL: Final = 63


def _has_managed_controller(job: Stored, managed: ManagedJobs) -> bool:
    """Whether the controller of `job` is of a watched kind that is managed, here or by a controller of its own."""
    ref = job.controller
    if ref is None:
        return False
    if jobkinds.external_kind(ref["apiVersion"].rpartition("/")[0], ref["kind"]) is not None:
        return True
    return kind_of(ref["apiVersion"], ref["kind"]) is not None and managed.kind(ref["apiVersion"], ref["kind"])


def is_external(resource: Resource) -> bool:
    return jobkinds.external_kind(resource.group, resource.kind) == resource


def _named_by(job: JobObject) -> str:
    """The key of the prebuilt Workload that a job names, "" = none."""
    return f"{job.namespace}/{job.prebuilt_workload}" if job.prebuilt_workload else ""


def _by_key(ref: tuple[Resource, str]) -> str:
    return ref[1]


def _lets_children_run(workload: WorkloadObject) -> bool:
    """Whether the job of the Workload holds quota, or held it while it ran; a slice that was replaced or given
    up says nothing.
    """
    written = workload.annotations
    if written.get(names.ELASTIC) == "true" and workload.finished:
        return False
    if names.REPLACEMENT_FOR in written and workload.true_condition(names.QUOTA_RESERVED):
        return True  # it runs on with what it had
    return workload.admitted


@dataclass(slots=True)
class OwnedObjects(StoredObjects):
    """The watched objects, and the questions that their owner references answer."""

    #: owner uid -> what it owns
    _owned: dict[str, set[tuple[Resource, str]]] = field(default_factory=dict, kw_only=True)
    #: uid of a job -> the job
    _by_uid: dict[str, JobRef] = field(default_factory=dict, kw_only=True)
    #: uid of an object of an external kind -> the object
    _external: dict[str, JobRef] = field(default_factory=dict, kw_only=True)
    #: a prebuilt Workload -> the jobs that name it
    _naming: dict[str, set[JobRef]] = field(default_factory=dict, kw_only=True)
    _heirs: slices.Heirs = field(default_factory=slices.Heirs, kw_only=True)

    def index(self, resource: Resource, key: str, old: Stored | None, new: Stored | None) -> None:
        """Index an object that was stored instead of `old`, or removed (`new` is None): whom it belongs to, and whom it names."""
        before = old.controller_uid if old else None
        after = new.controller_uid if new else None
        if before != after and before is not None:
            owned = self._owned.get(before, set())
            owned.discard((resource, key))
            if not owned:
                self._owned.pop(before, None)
        if after is not None and (resource in OWNED or resource in JOB_KINDS):
            self._owned.setdefault(after, set()).add((resource, key))
        if is_external(resource):
            if new is not None:
                self._external[new.uid] = (resource, key)
            elif old is not None:
                self._external.pop(old.uid, None)
        if resource == kube.WORKLOADS:
            self._heirs.put(key, cast("_Workload", old), cast("_Workload", new))
        if resource in JOB_KINDS:
            self._index_name(resource, key, cast("_Job", old), cast("_Job", new))
            if new is not None:
                self._by_uid[new.uid] = (resource, key)
            elif old is not None:
                self._by_uid.pop(old.uid, None)

    def _index_name(self, resource: Resource, key: str, old: JobObject | None, new: JobObject | None) -> None:
        """Index the prebuilt Workload that a job names."""
        before, after = (_named_by(job) if job is not None else "" for job in (old, new))
        if before and before != after:
            jobs = self._naming.get(before, set())
            jobs.discard((resource, key))
            if not jobs:
                self._naming.pop(before, None)
        if after:
            self._naming.setdefault(after, set()).add((resource, key))

    def slices_of(self, owner: str, first: str) -> list[str]:
        """The slices of an elastic job, finished or not, by its uid and the key of the first one."""
        return [each.key for each in self._slices_of(owner, first)]

    def _slices_of(self, owner: str, first: str) -> list[WorkloadObject]:
        owned = self.workloads_of_uid(owner)
        return [each for each in owned if f"{each.namespace}/{slices.slice_name(each)}" == first]

    def current_slice(self, owner: str, first: str) -> str | None:
        """The slice with which an elastic job runs; None where it has none."""
        found = slices.current(self._slices_of(owner, first))
        return found.key if found is not None else None

    def jobs(self) -> Iterator[JobRef]:
        for resource in JOB_KINDS:
            for key in self.objects[resource]:
                yield resource, key

    def job_of(self, workload: WorkloadObject) -> JobRef | None:
        return self._by_uid.get(workload.controller_uid or "")

    def job_with(self, uid: str) -> JobObject | None:
        ref = self._by_uid.get(uid)
        return self.job(ref) if ref is not None else None

    def user_of(self, workload: WorkloadObject) -> str:
        """The user whom its job names, else the one whom the Workload names."""
        job = self.job_with(workload.controller_uid or "")
        return (job.user if job is not None else "") or workload.user

    def labels_of(self, workload: WorkloadObject, keys: Iterable[str]) -> Labels:
        """The labels with these keys: those of its job, else those of the Workload."""
        job = self.job_with(workload.controller_uid or "")
        found: dict[str, str] = {}
        for each in (workload, job) if job is not None else (workload,):
            labels: Mapping[str, object] = each.labels
            found |= {key: value[:_LONGEST_LABEL] for key in keys if isinstance(value := labels.get(key), str)}
        return tuple(sorted(found.items()))

    def workloads_of(self, job: Stored) -> list[WorkloadObject]:
        """The Workloads that the job, or another object, controls."""
        return self.workloads_of_uid(job.uid)

    def workloads_of_uid(self, uid: str) -> list[WorkloadObject]:
        """The Workloads that the object with this UID controls."""
        return [
            self.workloads[key] for kind, key in sorted(self._owned.get(uid, ()), key=_by_key) if kind == kube.WORKLOADS
        ]

    def heirs_of(self, workloads: Iterable[WorkloadObject]) -> list[WorkloadObject]:
        """The Workloads of nobody that name one of these, in its namespace, as the slice that they replace."""
        return [heir for each in workloads for heir in self.heirs(each.key) if heir.controller_uid is None]

    def heirs(self, key: str) -> list[WorkloadObject]:
        """The Workloads that name this one, in its namespace, as the slice that they replace, or have replaced."""
        found = (self.workloads[heir] for heir in self._heirs.of(key))
        return [each for each in found if key.startswith(f"{each.namespace}/")]

    def has_workload(self, job: Stored) -> bool:
        """Whether there is a Workload that the job, or another object, controls."""
        return any(kind == kube.WORKLOADS for kind, _ in self._owned.get(job.uid, ()))

    def named_workload(self, job: JobObject) -> WorkloadObject | None:
        """The prebuilt Workload that a job names, whoever controls it; None if there is none of that name."""
        return self.workloads.get(_named_by(job))

    def children_of(self, job: JobObject) -> Children:
        jobs = [cast("JobObject", child) for resource in JOB_KINDS for child in self._owned_by(job, resource)]
        services, templates = (
            list(self._owned_by(job, resource)) for resource in (kube.SERVICES, kube.RESOURCE_CLAIM_TEMPLATES)
        )
        return Children(jobs, services, templates)

    def controlled_by(self, owner: Stored, resource: Resource) -> list[Stored]:
        """The objects of this kind that `owner` controls, in its namespace."""
        namespace = owner.namespace
        return [obj for obj in self._owned_by(owner, resource) if obj.namespace == namespace]

    def workload_behind(self, obj: Stored) -> list[str]:
        """The key of the Workload for which a ProvisioningRequest, or a PodTemplate of one, was made."""
        ref, namespace = obj.controller or {}, obj.namespace
        if ref.get("kind") == kube.PROVISIONING_REQUESTS.kind:
            request = self.get(kube.PROVISIONING_REQUESTS, f"{namespace}/{ref['name']}")
            ref = (request.controller if request is not None else None) or {}
        return [f"{namespace}/{ref['name']}"] if ref.get("kind") == kube.WORKLOADS.kind else []

    def _owned_by(self, owner: Stored, resource: Resource) -> Iterator[Stored]:
        for kind, key in sorted(self._owned.get(owner.uid, ()), key=_by_key):
            if kind == resource:
                yield self.objects[kind][key]

    def owner_of(self, obj: Stored) -> JobRef | None:
        """The job that controls an object, if it is known and in the same namespace."""
        ref = self._by_uid.get(obj.controller_uid or "")
        if ref is None or self.objects[ref[0]][ref[1]].namespace != obj.namespace:
            return None
        return ref

    def controllers_of(self, obj: Stored) -> list[str]:
        """The uids of the jobs that control an object, the nearest first, at most 10 levels up."""
        found: list[str] = []
        while len(found) < MOST_OWNERS and (ref := self.owner_of(obj)) is not None:
            obj = self.objects[ref[0]][ref[1]]
            found.append(obj.uid)
        return found

    def managed_ancestor(self, job: JobObject) -> bool:
        """Whether an object that is queued (or itself runs others, like GPUJob) owns this job, at most 10 levels up.

        An owner that has not been seen yet counts as well: the job waits for it. If that owner no longer exists, Kubernetes is
        about to delete the job.
        """
        found, unseen = self._ancestor(job)
        return unseen or found is not None

    def waits_with_ancestor(self, job: JobObject) -> bool:
        """Whether the object that owns this job holds no quota yet, and does not itself hold what it creates: as JobSets do."""
        found, _ = self._ancestor(job)
        owner = self.job(found) if found is not None else None
        if found is None or owner is None:
            return False
        kind = JOB_KINDS.get(found[0])
        if kind is not None and kind.declaration.holds_children:
            return False
        if kind is not None and kind.declaration.remakes_children and kind.is_suspended(owner):
            return True  # its controller does not stop them
        return not any(map(_lets_children_run, self.workloads_of(owner)))

    def made_while_held(self, job: JobObject) -> bool:
        """Whether the job was created, suspended, by an owner that runs now and that will never start it (`remakes_children`)."""
        ref = self.owner_of(job)
        kind = None if ref is None else JOB_KINDS.get(ref[0])
        owner = None if ref is None else self.job(ref)
        if owner is None or kind is None or not kind.declaration.remakes_children:
            return False
        if owner.deleting or kind.is_suspended(owner) or self.waits_with_ancestor(job):
            return False
        return owners.creates(owner, job)

    def _ancestor(self, job: Stored) -> tuple[JobRef | None, bool]:
        """The topmost queued owner, as in Kueue; and whether there is one of a managed kind that has not been seen yet."""
        found: JobRef | None = None
        for _ in range(MOST_OWNERS):
            ref = self.owner_of(job) or self._external_owner_of(job)
            if ref is None:
                unseen = _has_managed_controller(job, self.managed) and job.controller_uid not in self._by_uid
                return found, unseen and found is None
            owner = self.objects[ref[0]][ref[1]]
            if not owners.creates(owner, job):
                return found, False  # the owner reference is not genuine
            if self._is_queued(ref[0], owner):
                found = ref
            job = owner
        return found, False

    def is_nested_too_deep(self, job: Stored) -> bool:
        """Whether the job has more owners, one above the other, than are looked at."""
        for _ in range(MOST_OWNERS + 1):
            ref = self.owner_of(job) or self._external_owner_of(job)
            if ref is None or not owners.creates(owner := self.objects[ref[0]][ref[1]], job):
                return False
            job = owner
        return True

    def _is_queued(self, resource: Resource, owner: Stored) -> bool:
        """Whether the owner holds, or waits for, quota by itself: what it creates needs none."""
        kind = JOB_KINDS.get(resource)
        if kind is not None and kind.owns_children:
            return True
        queued = bool(queue_name(owner)) or self.managed.without_queue
        return queued and (kind is None or self.in_scope(kind, owner))

    def _external_owner_of(self, obj: Stored) -> JobRef | None:
        """The object of an external kind that controls this one, if it is known and in the same namespace."""
        ref = self._external.get(obj.controller_uid or "")
        if ref is None or self.objects[ref[0]][ref[1]].namespace != obj.namespace:
            return None
        return ref
