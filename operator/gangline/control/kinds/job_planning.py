"""Plans every job whose circumstances changed, and sends the steps of its plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from gangline.api import names
from gangline.api.admission.of_jobs import elastic
from gangline.api.jobkinds import ray
from gangline.api.jobkinds.declaration import at
from gangline.control.feed.changes import JobRef
from gangline.control.feed.pod import Pod
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.isolation import intake
from gangline.control.kernel.context import Context
from gangline.control.kinds import elastic_plan, job_plan, job_workload, steps
from gangline.control.kinds.planner import Planner
from gangline.control.kinds.start_and_stop import Starts, UnseenStops
from gangline.control.nodes.recovery.fencing import lingering, started_pods
from gangline.control.nodes.recovery.swap_rules import are_in_the_way, holds_back
from gangline.control.nodes.recovery.swaps import Recoveries
from gangline.control.writes.outgoing import Priority
from gangline.jobs.base import AnswersRefusals, Children, JobKind, PodSetInfo
from gangline.jobs.workload import admitted_counts
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import ObjectKey
from gangline.objects import JobObject, Stored, WorkloadObject

#: what jobs may own whose kind makes its own children
_CHILDREN: Final = (kube.JOBS, kube.SERVICES, kube.RESOURCE_CLAIM_TEMPLATES)


def _holds_nothing(workload: WorkloadObject) -> bool:
    return not workload.holds_quota


class JobPlanning(Planner):
    """Plans jobs, the oldest of a namespace first."""

    name = "plans"

    def __init__(self, context: Context, recoveries: Recoveries) -> None:
        mirror = context.mirror
        changed = mirror.changes.jobs.subscribe(worth=lambda ref: ref[1] in mirror.objects[ref[0]])
        super().__init__(context, changed, JOB_KINDS)
        self._served = context.served
        self._pods = context.pods
        self._recoveries = recoveries
        self._unseen = UnseenStops(self._again)
        self._starts = Starts()

    def lead(self) -> None:
        self._changed.update(self._mirror.jobs())

    def _in_order(self, keys: set[JobRef]) -> list[JobRef]:
        return sorted(keys, key=self._age)

    def _age(self, ref: JobRef) -> tuple[str, str]:
        """The order of jobs of one namespace: the oldest first, so that no later one gets its Workload before it."""
        job = self._mirror.job(ref)
        return (job.created, ref[1]) if job is not None else ("", ref[1])

    # --- plans ---

    def _reconcile(self, ref: JobRef, now: int) -> None:
        resource = ref[0]
        job = self._mirror.job(ref)
        if job is None or job.namespace in names.EXCLUDED_NAMESPACES:
            self._unseen.forget(ref)
            self._starts.forget(ref)
            return
        workloads, named = self._mirror.workloads_of(job), self._mirror.named_workload(job)
        if any(
            self._writes.in_doubt(kube.WORKLOADS, workload.key)
            for workload in [*workloads, *([named] if named else [])]
        ):
            return  # the answer adds the job to the changed ones again
        children = self._mirror.children_of(job)
        kind = JOB_KINDS[resource]
        mine = [*workloads, *([named] if named is not None and not workloads else [])]
        job = self._starts.informed(
            kind, self._mirror.described(kind, job, min(mine, key=_holds_nothing, default=None))
        )
        grows = self._mirror.managed.elastic and elastic.resizes(job)
        heirs = self._mirror.heirs_of(mine) if grows and named is not None else []
        cluster = self._running_cluster(kind, job) if grows else None
        pods = list(self._pods_of(workloads)) if grows else []
        view = steps.JobView(
            kind=kind,
            job=job,
            workloads=workloads,
            children=children,
            managed_ancestor=self._mirror.managed_ancestor(job),
            waits_with_ancestor=self._mirror.waits_with_ancestor(job),
            made_while_held=self._mirror.made_while_held(job),
            nested_too_deep=self._mirror.is_nested_too_deep(job),
            in_scope=self._mirror.in_scope(kind, job),
            needs_queue=not self._mirror.managed.without_queue,
            held_back=any(holds_back(w, self._pods.of(w.key)) for w in workloads)
            or any(are_in_the_way(self._pods.of(w.key)) for w in workloads),
            unreachable=any(self._recoveries.unreachable(w.key) for w in workloads),
            lingering=self._lingers(job, children, workloads),
            stranded=[pod for pod in self._pods_of(_leaving(job, workloads)) if pod.alive and not pod.job],
            may_start_pods=self._unseen.may_start_pods(ref, kind, job, self._pods_of(workloads)),
            completing=any(completing(w, self._pods.of(w.key)) for w in workloads),
            named=named,
            elastic=grows,
            heirs=heirs,
            revision=_revision(job, cluster) if grows else "",
            sizes=ray.sizes(job, cluster) if cluster is not None else {},
            ready_pods=sum(pod.ready or pod.ended for pod in pods),
            served=self._served,
            written=self._starts.written(ref),
            start_refused=self._starts.why_refused(ref),
            started=started_pods(pods, self._mirror.nodes.get, self._is_written),
        )
        why = intake.why_head(job)
        plan = partial(job_plan.plan_head, view, why) if why else partial(elastic_plan.plan, view, self._mirror)
        self._follow(ref, job, plan, of=[job, *mine])

    def _pods_of(self, workloads: Iterable[WorkloadObject]) -> Iterator[Pod]:
        return (pod for workload in workloads for pod in self._pods.of(workload.key))

    def _is_written(self, pod: Pod) -> bool:
        return self._writes.pending(kube.PODS, pod.key)

    def _running_cluster(self, kind: JobKind, job: JobObject) -> Stored | None:
        """The RayCluster that runs an elastic job: its autoscaler sizes it."""
        for path in kind.declaration.sized_by:
            name = at(job, path)
            cluster = self._mirror.get(ray.RAY_CLUSTER.resource, f"{job.namespace}/{name}")
            if cluster is not None and cluster.controller_uid == job.uid:
                return cluster
        return None

    def _lingers(self, job: JobObject, children: Children, workloads: Iterable[WorkloadObject]) -> bool:
        """Whether pods of a job that is being stopped still run."""
        jobs = {job.name, *(child.name for child in children.jobs)}
        nodes = self._mirror.nodes.get
        return any(lingering(self._pods.of(w.key), jobs, nodes) for w in _leaving(job, workloads))

    # --- answers ---

    def _admission_written(self, ref: JobRef, infos: Sequence[PodSetInfo], answer: JobObject | None) -> None:
        self._starts.answered(ref, infos, answer)

    def _report(self, ref: JobRef, key: ObjectKey, error: ApiError) -> None:
        job = self._mirror.job(ref)
        if job is None or (key.resource == ref[0] and self._starts.has_alternative(ref, error)):
            self._again(ref)  # the job is gone, or it is planned again with the other field
            return
        super()._report(ref, key, error)
        self._report_child(ref, job, key, error)

    def _report_child(self, ref: JobRef, job: JobObject, key: ObjectKey, error: ApiError) -> None:
        """Report in a job's status that the API server refused one of its children, for a kind that owns children."""
        kind = JOB_KINDS[ref[0]]
        if not isinstance(kind, AnswersRefusals) or key.resource not in _CHILDREN:
            return
        patch = kind.rejected(job, error.message)
        if patch is not None:
            target = ObjectKey.of(ref[0], job)
            self._writes.send(target, "status", patch.body, priority=Priority.STATUS, slot="rejected")


def _leaving(job: JobObject, workloads: Iterable[WorkloadObject]) -> list[WorkloadObject]:
    return [workload for workload in workloads if job_workload.leaving(job, workload)]


def completing(workload: WorkloadObject, pods: Iterable[Pod]) -> bool:
    """Whether pods of the gang have completed, and all others are ready.

    Each status above them says so in its own time: their Jobs', then that of a job that has Jobs.
    """
    pods = list(pods)
    completed = sum(pod.completed for pod in pods)
    ready = sum(pod.ready and pod.alive and not pod.completed for pod in pods)
    return completed > 0 and completed + ready >= sum(admitted_counts(workload).values())


def _revision(job: JobObject, cluster: Stored | None) -> str:
    """The part by which the names of an elastic job's Workloads differ, as in Kueue: the generations of the job and of its
    RayCluster.
    """
    parts = [each.generation for each in (job, cluster) if each is not None]
    return "_".join(map(str, parts))
