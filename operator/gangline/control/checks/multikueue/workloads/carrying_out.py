"""Sends the steps of plans, here and to other clusters, and hears what becomes of them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

from gangline.api.read import conditions
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster, Work
from gangline.control.checks.multikueue.plan import planning, steps
from gangline.control.checks.multikueue.workloads import local_changes, remote_writes
from gangline.control.checks.multikueue.workloads.local_jobs import owner_of
from gangline.control.checks.multikueue.workloads.views import Pair
from gangline.control.feed.changes import JobRef
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.changed_keys import KeySet
from gangline.control.writes.pod_writes import PodWrites
from gangline.jobs.pods.member import KnownPod
from gangline.kube import resources as kube
from gangline.kube.errors import AlreadyExists, ApiError, Conflict
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import JobObject, WorkloadObject

log = logging.getLogger(__name__)


class After(Enum):
    """What follows a write in another cluster that succeeded.

    That cluster may undo it: its API server drops a field, or somebody else changes it back. A write that would then be sent
    again and again rests, longer each time, until there is nothing to do for the Workload.
    """

    FORGIVE = "the next refusal counts as the first one"
    KEEP = "refusals in a row count on"
    REST = "the next write waits, longer each time in a row"


class CarryingOut(Reconciler[str]):
    """Reconciles Workloads by steps that are carried out here and in other clusters. Subclasses know clusters and plan."""

    def __init__(self, context: Context, changed: KeySet[str], origin: str) -> None:
        """`origin`: the label of this manager on what it makes in other clusters."""
        super().__init__(context, changed)
        self._metrics = context.metrics.kueue
        self._origin = origin
        #: writes in other clusters
        self._there = Attempts[Pair](lambda pair: self._after_pause(pair[1]))
        self._pod_writes = PodWrites(context.writer, self._pod_refused)
        #: when a workload has to be looked at again
        self._alarms: dict[str, int] = {}

    # --- what a subclass knows ---

    @abstractmethod
    def clusters(self) -> Mapping[str, RemoteCluster]:
        """The connections now."""

    @abstractmethod
    def _withdrawn(self, workload: WorkloadObject) -> None:
        """A job of this Workload has left a cluster."""

    @abstractmethod
    def _begin_round(self, key: str, now: int) -> None:
        """A round of the workload's incremental dispatcher begins."""

    @abstractmethod
    def _after_pause(self, key: str) -> None:
        """The pause after a refused write in another cluster is over for this Workload, or family."""

    # --- steps ---

    def _carry_out(self, key: str, view: steps.MultiKueueView, step: steps.Step) -> None:
        workload = view.workload
        match step:
            case steps.Wait(until):
                self._alarms[key] = min(until, self._alarms.get(key, until))
            case steps.MirrorStatus(job, status):
                if view.kind is not None:
                    self._mirror_status(key, view.kind.resource, job, status)
            case steps.SetCheck() | steps.Choose() | steps.Nominate() | steps.Finish():
                self._change_here(key, view, step)
            case steps.Send(cluster):
                done = partial(self._metrics.dispatched, workload.admitted_by, cluster)
                self._write_there(
                    key, cluster, remote_writes.send(step, workload, self._origin), done, after=After.KEEP
                )
            case steps.SendJob(cluster):
                if view.kind is not None:
                    work = remote_writes.send_job(step, view.kind, workload, self._origin)
                    self._write_there(_family_or(key, view), cluster, work)
            case steps.WithdrawFromCluster():
                if step.rest:
                    self._recorder.record(workload, "Warning", "MultiKueue", _differs(step.cluster))
                self._withdraw(key, step, view)
            case steps.Reprioritise(cluster):
                self._write_there(key, cluster, remote_writes.reprioritise(step, workload))
            case steps.OpenGate(cluster):
                self._write_there(key, cluster, remote_writes.open_gate(step, workload, view.now))
            case steps.Follow(cluster):
                if view.kind is not None:
                    work = remote_writes.follow(step, view.kind.resource)
                    self._write_there(_family_or(key, view), cluster, work)
            case steps.Cut(cluster):
                self._write_there(key, cluster, remote_writes.cut(step, workload))
            case steps.Resize(cluster):
                if view.kind is not None:
                    self._write_there(key, cluster, remote_writes.resize(step, view.kind, workload))
            case steps.Stop(cluster):
                self._write_there(key, cluster, remote_writes.stop(step, workload, view.now))

    def _withdraw(self, key: str, step: steps.WithdrawFromCluster, view: steps.MultiKueueView | None = None) -> None:
        """Delete jobs and the copy in a cluster. `view`: None where the Workload is not here any more."""
        connection = self.clusters().get(step.cluster)
        known = connection.store.kind_of_jobs(key) if connection is not None else None
        kind = view.kind.resource if view is not None and view.kind is not None else known
        done = partial(self._withdrawn, view.workload) if view is not None else lambda: None
        after = After.REST if step.rest else After.FORGIVE
        self._write_there(key, step.cluster, remote_writes.withdraw(step, key, kind), done, after=after)

    def _settled(self, key: str) -> None:
        """There is nothing to do for this Workload: where nothing is on its way, what was refused or undone before is over."""
        for cluster in self.clusters():
            if self._there.ready((cluster, key)):
                self._there.forgive((cluster, key))

    # --- here ---

    def _change_here(self, key: str, view: steps.MultiKueueView, step: steps.Here) -> None:
        if isinstance(step, steps.Nominate):
            if step.begins:
                self._begin_round(key, view.now)
                self._changed.add(key)
            if list(step.clusters) == view.workload.nominated_clusters:
                return
        self._change(key, key, local_changes.of(step), done=partial(self._changed_here, view.workload, step))

    def _changed_here(self, before: WorkloadObject, step: steps.Here, answer: Json | None) -> None:
        match step:
            case steps.SetCheck(_, _, message, kind):
                self._recorder.record(answer or before, kind, "MultiKueue", message)
            case steps.Choose(row, cluster, _) if row["state"] != planning.READY and answer is not None:
                self._metrics.admitted_on_other_cluster(before.admitted_by, cluster)
                self._recorder.record(answer, "Normal", "MultiKueue", local_changes.admitted_on(cluster))
            case _:
                pass

    def _mirror_status(self, key: str, resource: Resource, job: JobObject, status: Json) -> None:
        body = local_changes.mirrored(job, status)
        if resource == kube.PODS:
            pod = KnownPod(job.key, job.uid, job.resource_version)
            self._pod_writes.send((kube.WORKLOADS, key), pod, "status", body, patch="merge")
        else:
            self._send(key, ObjectKey.of(resource, job), "status", body)

    def _pod_refused(self, ref: JobRef, pod: ObjectKey, error: ApiError) -> None:
        log.warning("%s: status of %s: %s", ref[1], pod, error)
        self._attempts.pause(ref[1])

    # --- in other clusters ---

    def _write_there(
        self,
        key: str,
        cluster: str,
        work: Work,
        done: Callable[[], None] = lambda: None,
        *,
        after: After = After.FORGIVE,
    ) -> None:
        connection = self.clusters().get(cluster)
        if connection is None:
            return
        self._there.sent((cluster, key))
        connection.write(key.partition("/")[0], work, partial(self._written_there, cluster, key, done, after))

    def _written_there(
        self, cluster: str, key: str, done: Callable[[], None], after: After, error: ApiError | None
    ) -> None:
        pair = (cluster, key)
        self._there.resolved(pair)
        if error is None:
            done()
            if after is After.REST:
                self._there.pause(pair)
            elif after is After.FORGIVE:
                self._there.forgive(pair)
        else:
            if not isinstance(error, Conflict) or isinstance(error, AlreadyExists):
                self._tell_refusal(cluster, key, error)
            self._there.pause(pair)
        self._again(key)

    def _tell_refusal(self, cluster: str, key: str, error: ApiError) -> None:
        workload = self._mirror.workloads.get(key)
        text = f'Cluster "{cluster}": {error.message or error}'
        log.info("%s: %s", key, text)
        if workload is not None and not error.retryable:
            self._recorder.record(workload, "Warning", "MultiKueue", conditions.cut(text))


def _differs(cluster: str) -> str:
    return f'Cluster "{cluster}" holds another specification of the workload than was sent: it is sent again, after a pause'


def _family_or(key: str, view: steps.MultiKueueView) -> str:
    """The key under which a write of a workload's job is counted: its family, where other Workloads of that might write the same,
    else its own.
    """
    ref = owner_of(view.workload)
    shared = view.family is not None and ref is not None
    return copies.family_key(view.workload.namespace, ref["uid"]) if shared and ref else key
