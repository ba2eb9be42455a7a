"""Jobs that are being stopped: they are stopped once their last pod has ended. And jobs that wait for such pods to start."""

from __future__ import annotations

from gangline.control.feed import slices
from gangline.control.feed.changes import JobRef
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kernel.context import Context
from gangline.control.kinds import job_workload
from gangline.control.parts.part import Part
from gangline.kube import resources as kube
from gangline.objects import JobObject, WorkloadObject


class LeavingJobs(Part):
    """Plans jobs that stop, or are about to start, again when their pods, or the nodes of their pods, change."""

    name = "leaving"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._pods = context.pods
        self._changed = context.pods.changed.subscribe(worth=context.mirror.has(kube.WORKLOADS))
        self._changed_nodes = context.mirror.changes.nodes.subscribe(worth=lambda node: bool(context.pods.on(node)))

    def act(self, now: int) -> None:
        on_nodes = {pod.workload for node in self._changed_nodes.take() for pod in self._pods.on(node)}
        for key in self._changed.take() | on_nodes:
            workload = self._mirror.workloads.get(key)
            ref = self._mirror.job_of(workload) if workload is not None else None
            job = self._mirror.job(ref) if ref is not None else None
            if workload is None or ref is None or job is None:
                continue
            if _is_to_start(ref, job, workload) or job_workload.leaving(job, workload) or slices.is_slice(workload):
                self._mirror.changes.jobs.add(ref)


def _is_to_start(ref: JobRef, job: JobObject, workload: WorkloadObject) -> bool:
    kind = JOB_KINDS.get(ref[0])
    return kind is not None and workload.holds_quota and kind.declaration.suspension.read(job)
