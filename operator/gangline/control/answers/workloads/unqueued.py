"""Jobs that name a queue and have no Workload, and why: not managed by kind or namespace, or wrong as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.jobkinds.declaration import mapping_at, number_at
from gangline.api.read.configuration.managed_jobs import FRAMEWORKS, PODS
from gangline.control.answers.workloads.snapshot import JobState, WorkloadView, pod_requests, seconds
from gangline.control.answers.workloads.words import offered
from gangline.control.feed import watched_kinds
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.owned_objects import MOST_OWNERS
from gangline.control.feed.pod_index import Belonging
from gangline.control.isolation.intake import why_head
from gangline.control.isolation.time_limit import TookTooLongError, limited
from gangline.engine import model
from gangline.jobs.base import JobError, JobKind
from gangline.kube import resources as kube
from gangline.kube.resources import Resource
from gangline.objects import JobObject, PodObject, Stored

#: reasons; the message says the rest
NO_KIND: Final = "KindNotSupported"
NOT_ENABLED: Final = "KindNotEnabled"
NAMESPACE: Final = "NamespaceNotManaged"
NO_QUEUE: Final = "NoQueue"
LEFT_ALONE: Final = "LeftAlone"
WRONG: Final = "CannotBeQueued"
WAITS: Final = "NoWorkloadYet"
_FRAMEWORKS: Final = {identity: name for name, identity in FRAMEWORKS.items()}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job has no Workload. `managed`: Gangline holds it, and cannot queue it as it is; else Gangline leaves it alone."""

    reason: str
    message: str
    managed: bool = False


def cause_of(mirror: Mirror, resource: Resource, job: Stored) -> Cause | None:
    """Why an object that makes pods has no Workload; None if that is as it should be: it has ended, or an owner is queued."""
    kind = watched_kinds.JOB_KINDS.get(resource)
    if kind is None or not isinstance(job, JobObject):
        return _of_other_kind(mirror, resource, job)
    if mirror.workloads_of(job) or mirror.named_workload(job) is not None or job.deleting:
        return None
    if kind.finished(job) is not None or mirror.managed_ancestor(job):
        return None
    return _scope(mirror, kind, job) or _obstacle(mirror, kind, job)


def _of_other_kind(mirror: Mirror, resource: Resource, obj: Stored) -> Cause | None:
    """The cause for an object of a kind that is watched for its queue label only. Of a Deployment and its ReplicaSet, only the
    Deployment is reported.
    """
    identity = (resource.group, resource.kind)
    name = _FRAMEWORKS.get(identity)
    if obj.deleting or obj.controller_uid or (name and mirror.managed.kind(resource.api_version, resource.kind)):
        return None
    if name:
        return Cause(NOT_ENABLED, _not_listed(resource.kind, name))
    return Cause(NO_KIND, f"Gangline does not queue a {resource.kind}: its pods start without quota")


def _not_listed(kind: str, framework: str) -> str:
    return (
        f'{kind} is not managed: "{framework}" is not listed in integrations.frameworks; its pods start without quota'
    )


def _scope(mirror: Mirror, kind: JobKind, job: JobObject) -> Cause | None:
    declared, namespace = kind.declaration, job.namespace
    if not mirror.managed.kind(kind.api_version, kind.kind):
        return Cause(NOT_ENABLED, _not_listed(kind.kind, declared.framework))
    if namespace in names.EXCLUDED_NAMESPACES:
        return Cause(NAMESPACE, f"Gangline manages no job in namespace {namespace}")
    if why := declared.left_alone(job):
        return Cause(LEFT_ALONE, why)
    if not mirror.in_scope(kind, job):
        selector = "managedJobsNamespaceSelector of the configuration"
        return Cause(NAMESPACE, f"namespace {namespace} is not selected by {selector}: the job starts without quota")
    if not job.queue_name and not mirror.managed.without_queue:
        runs = "Gangline runs it at once, outside any queue" if kind.owns_children else "Gangline leaves it alone"
        keys = (key.partition("/") for key in mirror.objects[kube.LOCAL_QUEUES])
        others = offered(namespace, (name for space, _, name in keys if space == namespace))
        return Cause(NO_QUEUE, f"it names no queue (label {names.QUEUE_NAME}): {runs}, and it takes no quota{others}")
    return None


def _obstacle(mirror: Mirror, kind: JobKind, job: JobObject) -> Cause:
    """The cause that keeps a managed job from having a Workload."""
    if why := why_head(job):
        return Cause(WRONG, why, managed=True)
    if mirror.is_nested_too_deep(job):
        return Cause(WRONG, f"it has more than {MOST_OWNERS} owners, one above the other", managed=True)
    if name := job.prebuilt_workload:
        return Cause(
            WRONG, f"it waits for Workload {name}, which its label names and which does not exist", managed=True
        )
    try:
        limited(lambda: mirror.priority(job, kind.pod_sets(mirror.described(kind, job, None))))
    except JobError as error:  # a priority class that does not exist, among others
        return Cause(WRONG, str(error), managed=True)
    except (TookTooLongError, TypeError, ValueError, LookupError, AttributeError) as error:
        return Cause(WRONG, f"it cannot be read: {type(error).__name__}", managed=True)
    return Cause(WAITS, "its Workload is about to be created, once pods of an earlier run have ended", managed=True)


# --- views ------------------------------------------------------------------------------------------------------------


Routes: TypeAlias = Mapping[tuple[str, str], str]


def unqueued(
    mirror: Mirror,
    routes: Routes,
    strangers: Iterable[tuple[model.ForeignPod, Belonging]],
    namespace: str | None = None,
) -> Iterator[WorkloadView | None]:
    """Views of all jobs that name a queue and have no Workload, of GPUJobs without a queue, and of pods that name one; None for
    each other job, so that the caller can pause. With a namespace, perhaps without those of others.
    """
    for resource in watched_kinds.makers():
        kind = watched_kinds.JOB_KINDS.get(resource)
        for key, job in list(mirror.objects[resource].items()):
            if (namespace is not None and not key.startswith(f"{namespace}/")) or mirror.has_workload(job):
                yield None
                continue
            queued = queue_name(job) or (kind is not None and kind.owns_children)
            cause = cause_of(mirror, resource, job) if queued and mirror.get(resource, key) is job else None
            yield view_of(resource, job, cause, routes) if cause is not None else None
    if not mirror.managed.kind("v1", "Pod"):
        for pod, belonging in strangers:
            if belonging.queue and not belonging.name:
                yield _pod_view(pod, belonging, routes)


def find(mirror: Mirror, namespace: str, name: str) -> Iterator[tuple[Resource, Stored]]:
    """The objects of this name that make pods, of all kinds that are known."""
    for resource in watched_kinds.makers():
        job = mirror.get(resource, f"{namespace}/{name}")
        if job is not None:
            yield resource, job


def named(
    mirror: Mirror, namespace: str, name: str, routes: Routes, strangers: Iterable[tuple[model.ForeignPod, Belonging]]
) -> Iterator[WorkloadView]:
    """Jobs of this name without a Workload, of all kinds that are known."""
    for resource, job in find(mirror, namespace, name):
        cause = cause_of(mirror, resource, job)
        if cause is not None:
            yield view_of(resource, job, cause, routes)
    for pod, belonging in strangers:
        if pod.key == f"{namespace}/{name}" and belonging.queue and not mirror.managed.kind("v1", "Pod"):
            yield _pod_view(pod, belonging, routes)


def view_of(resource: Resource, job: Stored, cause: Cause, routes: Routes) -> WorkloadView:
    pods, amounts = _size(resource, job)
    queue, created = queue_name(job), seconds(job.created)
    return WorkloadView(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        job_kind=resource.kind,
        job_name=job.name,
        job_uid=job.uid,
        queue=queue,
        cluster_queue=routes.get((job.namespace, queue), ""),
        priority=0,
        pods=pods,
        amounts=amounts,
        flavors=(),
        held={},
        created=created,
        since=created,
        state=JobState.NOT_QUEUED if cause.managed else JobState.NOT_MANAGED,
        reason=cause.reason,
        message=cause.message,
    )


def _pod_view(pod: model.ForeignPod, belonging: Belonging, routes: Routes) -> WorkloadView:
    namespace, _, name = pod.key.partition("/")
    labels = {names.QUEUE_NAME: belonging.queue}
    made = PodObject({"metadata": {"namespace": namespace, "name": name, "labels": labels}})
    return view_of(kube.PODS, made, Cause(NOT_ENABLED, _not_listed("Pod", PODS)), routes)


def _size(resource: Resource, job: Stored) -> tuple[int, dict[str, int]]:
    """The number of pods and their requests, as far as they are known."""
    kind = watched_kinds.JOB_KINDS.get(resource)
    try:
        if kind is not None and isinstance(job, JobObject):
            sets = [(row.get("count", 1), mapping_at(row, ("template", "spec"))) for row in kind.pod_sets(job)]
        else:
            sets = [(number_at(job, ("spec", "replicas"), 1), mapping_at(job, ("spec", "template", "spec")))]
        total: Counter[str] = Counter()
        for count, spec in sets:
            total.update({name: amount * count for name, amount in pod_requests(spec).items()})
    except (JobError, TypeError, ValueError, LookupError, AttributeError):
        return 0, {}
    return sum(count for count, _ in sets), dict(total)
