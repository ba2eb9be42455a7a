"""Sends workloads behind checks of its controller to other clusters: plans each, and sends the steps of the plan."""

from __future__ import annotations

from collections.abc import Iterable

from gangline.api import names
from gangline.api.read.configuration.multikueue import MultiKueueSettings as Settings
from gangline.api.read.configuration.multikueue import sent as kinds_sent
from gangline.control.checks.active_checks import Activity
from gangline.control.checks.multikueue import activity
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.clusters import Clusters
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.control.checks.multikueue.plan import planning, steps, stopping
from gangline.control.checks.multikueue.workloads import views
from gangline.control.checks.multikueue.workloads.carrying_out import CarryingOut
from gangline.control.checks.multikueue.workloads.local_jobs import LocalJobs
from gangline.control.checks.multikueue.workloads.parted_jobs import PartedJobs
from gangline.control.checks.multikueue.workloads.views import Views
from gangline.control.isolation.time_limit import limited
from gangline.control.kernel.context import Context
from gangline.control.kinds.group_index import GroupIndex
from gangline.control.parts.messages import RemoteQuotasMoved, WriteResolved
from gangline.jobs import EXTERNAL, on_other_cluster
from gangline.jobs.serving import BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Resource
from gangline.objects import Stored, WorkloadObject


class MultiKueue(CarryingOut):
    """Follows the copies of each workload in all clusters."""

    name = "multikueue"
    doing = "sending it"

    def __init__(self, context: Context, settings: Settings, groups: GroupIndex) -> None:
        """`groups`: the pod groups, whose pods may run in other clusters."""
        exists = context.mirror.has(kube.WORKLOADS)
        self._leading = False
        # deleted Workloads stay in it while this process leads, for their copies have to go
        worth = lambda key: self._leading or exists(key)  # noqa: E731
        super().__init__(context, context.mirror.changes.checked.subscribe(worth=worth), settings.origin)
        self._settings = settings
        self._groups = groups
        self._messages = context.messages
        self._now = context.now
        sent = [
            kind
            for each in kinds_sent(context.mirror.managed, settings)
            if (kind := on_other_cluster(each)) is not None
        ]
        waiting = [kind.resource for kind in sent if kind.pods_wait] if settings.enabled else []
        self.kinds = (kube.MULTI_KUEUE_CLUSTERS, *EXTERNAL, *waiting)
        jobs = LocalJobs(context.mirror, EXTERNAL.keys(), groups.members)
        patience = int(settings.worker_lost_timeout * 1000)
        self._parted = PartedJobs(context.mirror, context.writes, context.quarantine, sent, patience, wake=context.wake)
        self._clusters = Clusters(
            context.client,
            context.mirror,
            context.writes,
            context.recorder,
            settings,
            sent,
            changed=self._note,
            moved=self._note_move,
            may_write=context.writer.may_write,
            now=context.now,
            quarantine=context.quarantine,
            quotas=self._note_quotas if settings.sums_quotas else None,
            is_known=self._is_known,
        )
        self._changed_jobs = context.mirror.changes.jobs.subscribe(
            worth=lambda ref: ref[1] in context.mirror.objects[ref[0]]
        )
        self._changed_checks = context.mirror.changes.checks.subscribe(worth=lambda key: True)
        self._moved = False
        self._look_at_all = False
        self._tidied = 0  # when copies without a workload were last looked for
        self._views = Views(
            context.mirror,
            settings,
            {(kind.resource.api_version, kind.resource.kind): kind for kind in sent},
            self._clusters.all,
            jobs=jobs,
            there=self._there,
        )
        self._chains, self._families = self._views.chains, self._views.families
        context.mirror.messages.subscribe(WriteResolved, self._note_resolved)

    def observe(self, resource: Resource, event: Event) -> None:
        if resource == kube.MULTI_KUEUE_CLUSTERS:
            self._moved = True
        elif resource == kube.PODS:  # their groups say what has changed
            if isinstance(event, Removed):
                self._pod_writes.forget(event.uid)
        elif resource in BY_RESOURCE and isinstance(event, Upsert):
            name, kind = BY_RESOURCE[resource].workload_name(event.obj, 0), on_other_cluster(resource)
            self._changed.add(f"{event.obj.namespace}/{name}")
            self._changed.update(self._families.members(kind, {event.obj.name: event.obj}))
        elif isinstance(event, Upsert | Removed):
            uid = event.obj.uid if isinstance(event, Upsert) else event.uid
            self._changed.update(each.key for each in self._mirror.workloads_of_uid(uid))

    def lead(self) -> None:
        self._look_at_all = self._leading = self._settings.enabled

    def clusters(self) -> dict[str, RemoteCluster]:
        return self._clusters.all()

    async def close(self) -> None:
        await self._clusters.close()

    def sends(self, workload: WorkloadObject) -> bool:
        """Whether the pods of the Workload run in another cluster, if they run at all."""
        return self._settings.enabled and (bool(workload.cluster) or self._views.row(workload) is not None)

    def may_run(self, workload: WorkloadObject) -> bool:
        """Whether pods of the Workload may still run in another cluster."""
        view = self._views.of(workload, self._now())
        return view is not None and stopping.may_run(view)

    def pods_ready(self, workload: WorkloadObject) -> bool:
        """Whether the Workload's cluster says that all of its pods are ready."""
        chosen = self._clusters.all().get(workload.cluster)
        copy = chosen.store.copy(workload.key) if chosen is not None and chosen.connected else None
        return copy is not None and copy.row(names.PODS_READY) is not None

    def judge(self, check: Stored) -> Activity:
        """The activity of a check of this controller: whether it is active, and why."""
        if not self._settings.enabled:
            return activity.OFF
        return activity.activity_of(
            check,
            lambda name: self._mirror.get(kube.MULTI_KUEUE_CONFIGS, name),
            lambda name: self._mirror.get(kube.MULTI_KUEUE_CLUSTERS, name),
        )

    # --- rounds ---

    def _gather(self, now: int) -> None:
        if not self._settings.enabled:
            self._changed.take()
            return
        if self._moved or self._look_at_all:
            self._clusters.follow()
        jobs = self._changed_jobs.take()
        self._parted.look_at(jobs)
        self._parted.act(self._clusters.all(), now)
        if not self._clusters.all():  # the first one has everything looked at
            self._changed.take()
            self._changed_checks.take()
            self._moved = self._look_at_all = False
            return
        if self._changed_checks.take() or self._moved or self._look_at_all:
            self._changed.update(self._checked())
        self._moved = self._look_at_all = False
        for ref in jobs:
            job = self._mirror.job(ref)
            self._changed.update(self._chains.concerned(job) if job is not None else ())
        self._changed.update(self._groups.changed_workloads())
        self._changed.update(key for key, at in self._alarms.items() if at <= now)
        self._tidy(now)

    def _times(self) -> Iterable[int]:
        yield from self._alarms.values()
        if self._tidies() and self._clusters.all():
            yield self._tidied + int(self._settings.gc_interval * 1000)
        if self._parted.due is not None:
            yield self._parted.due

    def _checked(self) -> list[str]:
        return [key for key, each in self._mirror.workloads.items() if "admissionChecks" in each.status]

    def _tidies(self) -> bool:
        return self._settings.gc_interval > 0

    def _tidy(self, now: int) -> None:
        """Look for copies whose workload is not here: it was deleted while nobody was connected, or while no operator ran."""
        if not self._tidies() or now < self._tidied + self._settings.gc_interval * 1000:
            return
        self._tidied = now
        for cluster in self._clusters.all().values():
            if cluster.connected:
                known = self._mirror.workloads
                self._changed.update(key for key in cluster.store.workloads() if key not in known)

    # --- one workload ---

    def _reconcile(self, key: str, now: int) -> None:
        self._alarms.pop(key, None)
        workload = self._mirror.workloads.get(key)
        if workload is None:
            self._attempts.forgive(key)
            self._views.forget(key)
            self._changed.update(each.key for each in self._mirror.heirs(key))
            for name, cluster in self._clusters.all().items():
                self._withdraw_orphan(name, cluster, key)
            self._settled(key)
            if not copies.is_family(key):
                self._changed.update(views.of_all(self._clusters.all()))
            return
        if self._writes.in_doubt(kube.WORKLOADS, key):
            return  # it is looked at when the doubt is over
        view = self._views.of(workload, now)
        if view is None:
            return
        members = self._families.members(view.kind, view.jobs)
        if members and self._families.has_news(key, workload):
            self._changed.update(members)
            self._wake()
        planned = limited(lambda: planning.plan(view))
        for step in planned:
            self._carry_out(key, view, step)
        if not planned:
            self._settled(key)
        if view.chain is not None and view.chain.over:
            self._look_at_next(workload)
        stops = workload.deleting or workload.evicted
        if view.kind is not None and view.kind.pods_wait and (stops or view.kind.resource != kube.PODS):
            self._groups.plan_again(workload)

    def _withdraw_orphan(self, name: str, cluster: RemoteCluster, key: str) -> None:
        copy = cluster.store.copy(key)
        found = [*cluster.store.jobs_of(key).values()]
        if copies.is_family(key):
            found = self._families.left_in(name, cluster.store, key)
        left = [job for job in found if not job.deleting]
        if left and self._chains.is_kept_for(key):
            return
        if (
            not cluster.connected
            or not self._there.ready((name, key))
            or (not left and (copy is None or not copy.removable))
        ):
            return
        self._withdraw(key, steps.WithdrawFromCluster(name, copy, left))

    # --- news ---

    def _note_resolved(self, message: WriteResolved) -> None:
        """Look again at a Workload that is not in doubt any more, perhaps without a change that the mirror shows."""
        if message.key.resource == kube.WORKLOADS:
            workload = self._mirror.workloads.get(message.key.text)
            if workload is not None and "admissionChecks" in workload.status:
                self._changed.add(message.key.text)

    def _is_known(self, key: str) -> bool:
        """Whether this Workload, or the object whose Workloads are this family, is here."""
        if copies.is_family(key):
            return self._mirror.job_with(copies.owner_of_family(key)) is not None
        return key in self._mirror.workloads

    def _note(self, key: str) -> None:
        """Look again at a Workload whose copy, or its job, a cluster shows differently. A Workload that is not known here is left
        to `_tidy`.
        """
        workload = self._mirror.workloads.get(key)
        if copies.is_family(key) or workload is not None:
            self._again(key)
        if workload is not None:
            self._changed.update(self._chains.current(workload))
        elif self._parted:  # what one of them waits for may have gone
            self._wake()

    def _look_at_next(self, workload: WorkloadObject) -> None:
        """Look at the slice after one that is over: it is sent now."""
        if next_ := self._chains.current(workload):
            self._changed.update(next_)
            self._wake()

    def _begin_round(self, key: str, now: int) -> None:
        self._views.begin_round(key, now)

    def _withdrawn(self, workload: WorkloadObject) -> None:
        """Look at the other slices of a job that was withdrawn: their copies may go, too."""
        self._changed.update(self._chains.siblings(workload))

    def _note_move(self) -> None:
        self._moved = True
        self._messages.publish(RemoteQuotasMoved())
        self._wake()

    def _note_quotas(self) -> None:
        self._messages.publish(RemoteQuotasMoved())

    def _after_pause(self, key: str) -> None:
        """Look again at a Workload after a refused write; of a family at all members, which waited for it."""
        if copies.is_family(key) and (job := self._mirror.job_with(copies.owner_of_family(key))) is not None:
            self._changed.update(each.key for each in self._mirror.workloads_of(job))
        self._again(key)
