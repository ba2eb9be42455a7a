"""Sends workloads behind checks of its controller to other clusters: plans each, and sends the steps of the plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.configuration.multikueue import MultiKueue as Settings
from gangline.api.read.configuration.multikueue import sent as kinds_sent
from gangline.control.checks.activity import Activity, UnusableError
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.isolation.time_limit import limited
from gangline.control.metrics.recording import KueueMetrics
from gangline.control.mirror.changes import JobRef
from gangline.control.mirror.mirror import Mirror
from gangline.control.multikueue import activity, copies, families, local_changes, planning, remote_writes, steps
from gangline.control.multikueue.chains import Chains
from gangline.control.multikueue.clusters import Clusters
from gangline.control.multikueue.local_jobs import LocalJobs, WrittenPod, owner_of
from gangline.control.multikueue.parted_jobs import PartedJobs
from gangline.control.multikueue.remote_cluster import RemoteCluster, Work
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.messages import WriteResolved
from gangline.control.parts.part import Part
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.pod_writes import PodWrites
from gangline.control.writes.writer import Writer
from gangline.control.writes.writes import Writes
from gangline.jobs import EXTERNAL, elsewhere
from gangline.jobs.base import RunsElsewhere
from gangline.jobs.serving import BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError, Conflict
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource, deleting, key_of, true_condition

log = logging.getLogger(__name__)

#: a cluster and the key of a Workload
Pair: TypeAlias = tuple[str, str]


class MultiKueue(Part):
    """Follows the copies of each workload in all clusters. `wake` makes the loop take another round."""

    name = "multikueue"

    def __init__(
        self,
        client: ApiClient,
        mirror: Mirror,
        writes: Writes,
        writer: Writer,
        recorder: EventRecorder,
        metrics: KueueMetrics,
        settings: Settings,
        *,
        wake: Callable[[], None],
        now: Callable[[], int],
        quarantine: Quarantine,
    ) -> None:
        self._mirror = mirror
        self._writes = writes
        self._recorder = recorder
        self._metrics = metrics
        self._settings = settings
        self._wake = wake
        self._now = now
        self._quarantine = quarantine
        sent = [kind for each in kinds_sent(mirror.managed, settings) if (kind := elsewhere(each)) is not None]
        self._sent = {(kind.api_version, kind.kind): kind for kind in sent}
        waiting = [kind.resource for kind in sent if kind.pods_wait] if settings.enabled else []
        self.kinds = (kube.MULTI_KUEUE_CLUSTERS, *EXTERNAL, *waiting)
        self.jobs = LocalJobs(mirror, EXTERNAL.keys())
        self._families = families.Families(mirror)
        self._chains = Chains(mirror)
        patience = int(settings.worker_lost_timeout * 1000)
        self._parted = PartedJobs(mirror, writes, quarantine, sent, patience, wake=wake)
        #: Workloads of pod groups that have changed
        self.changed_groups: Callable[[], Collection[str]] = lambda: ()
        #: called with a Workload whose pods wait here: how far it is elsewhere may have changed
        self.moved_elsewhere: Callable[[Json], None] = lambda workload: None
        #: called when quotas of queues in other clusters may have changed
        self.moved_quotas: Callable[[], None] = lambda: None
        self._pod_writes = PodWrites(writer, self._pod_refused)
        self._clusters = Clusters(
            client,
            mirror,
            writes,
            recorder,
            settings,
            sent,
            changed=self._note,
            moved=self._note_move,
            may_write=writer.may_write,
            now=now,
            quarantine=quarantine,
            quotas=self._note_quotas if settings.sums_quotas else None,
        )
        exists = mirror.has(kube.WORKLOADS)
        self._leading = False
        # deleted Workloads stay in it while this process leads, for their copies have to go
        self._changed = mirror.changes.checked.subscribe(worth=lambda key: self._leading or exists(key))
        self._changed_jobs = mirror.changes.jobs.subscribe(worth=lambda ref: ref[1] in mirror.objects[ref[0]])
        self._changed_checks = mirror.changes.checks.subscribe(worth=lambda key: True)
        self._moved = False
        self._look_at_all = False
        self._rounds: dict[str, int] = {}  # when the last round of a workload's dispatcher began, in ms
        self._alarms: dict[str, int] = {}  # when a workload has to be looked at again
        self._tidied = 0  # when copies without a workload were last looked for
        self._attempts = Attempts[str](self._again)  # writes here, by Workload
        self._there = Attempts[Pair](lambda pair: self._again(pair[1]))
        mirror.messages.subscribe(WriteResolved, self._resolved)

    def observe(self, resource: Resource, event: Event) -> None:
        if resource == kube.MULTI_KUEUE_CLUSTERS:
            self._moved = True
        elif resource == kube.PODS:  # their groups say what has changed
            if isinstance(event, Removed):
                self._pod_writes.forget(event.uid)
        elif resource in BY_RESOURCE and isinstance(event, Upsert):
            name, kind = BY_RESOURCE[resource].workload_name(event.obj, 0), elsewhere(resource)
            self._changed.add(f"{event.obj['metadata']['namespace']}/{name}")
            self._changed.update(self._families.members(kind, {event.obj["metadata"]["name"]: event.obj}))
        elif isinstance(event, Upsert | Removed):
            uid = event.obj["metadata"]["uid"] if isinstance(event, Upsert) else event.uid
            self._changed.update(map(key_of, self._mirror.workloads_of({"metadata": {"uid": uid}})))

    def lead(self) -> None:
        self._look_at_all = self._leading = self._settings.enabled

    def clusters(self) -> dict[str, RemoteCluster]:
        return self._clusters.all()

    async def close(self) -> None:
        await self._clusters.close()

    def sends(self, workload: Json) -> bool:
        """Whether its pods run in another cluster, if they run at all."""
        chosen = (workload.get("status") or {}).get("clusterName")
        return self._settings.enabled and (bool(chosen) or self._row(workload) is not None)

    def may_run(self, workload: Json) -> bool:
        """Whether pods of it may still run in another cluster."""
        view = self._view(key_of(workload), workload, self._now())
        return view is not None and planning.may_run(view)

    def pods_ready(self, workload: Json) -> bool:
        """Whether its cluster says that all of its pods are ready."""
        chosen = self._clusters.all().get((workload.get("status") or {}).get("clusterName") or "")
        copy = chosen.store.copy(key_of(workload)) if chosen is not None and chosen.connected else None
        return copy is not None and copy.row(names.PODS_READY) is not None

    def judge(self, check: Json) -> Activity:
        """Whether a check of this controller is active."""
        if not self._settings.enabled:
            return activity.OFF
        return activity.activity_of(check, self._config_named, self._cluster_named)

    # --- rounds ---

    def act(self, now: int) -> None:
        if not self._settings.enabled:
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
        for resource, key in jobs:
            job = self._mirror.get(resource, key)
            self._changed.update(self._chains.concerned(job) if job is not None else ())
        self._changed.update(self.changed_groups())
        self._changed.update(key for key, at in self._alarms.items() if at <= now)
        self._tidy(now)
        for key in sorted(self._changed.take(self._attempts.ready)):
            self._alarms.pop(key, None)
            if not self._quarantine.attempt("sending it", kube.WORKLOADS, key, partial(self._go_on, key, now)):
                self._attempts.pause(key)
        tidy = [self._tidied + int(self._settings.gc_interval * 1000)] if self._tidies() else []
        parted = [self._parted.due] if self._parted.due is not None else []
        self.due = min([*self._alarms.values(), *tidy, *parted], default=None)

    def _checked(self) -> list[str]:
        return [
            key for key, each in self._mirror.objects[kube.WORKLOADS].items() if "admissionChecks" in each["status"]
        ]

    def _tidies(self) -> bool:
        return self._settings.gc_interval > 0

    def _tidy(self, now: int) -> None:
        """Look for copies whose workload is not here: it was deleted while nobody was connected, or while no operator ran."""
        if not self._tidies() or now < self._tidied + self._settings.gc_interval * 1000:
            return
        self._tidied = now
        for cluster in self._clusters.all().values():
            if cluster.connected:
                known = self._mirror.objects[kube.WORKLOADS]
                self._changed.update(key for key in cluster.store.workloads() if key not in known)

    # --- one workload ---

    def _go_on(self, key: str, now: int) -> None:
        workload = self._mirror.get(kube.WORKLOADS, key)
        if workload is None:
            self._attempts.forgive(key)
            self._rounds.pop(key, None)
            self._families.forget(key)
            self._changed.update(map(key_of, self._mirror.heirs(key)))
            for name, cluster in self._clusters.all().items():
                self._withdraw_orphan(name, cluster, key)
            if not copies.is_family(key):
                self._changed.update(families.of_all(self._clusters.all()))
            return
        if self._writes.in_doubt(kube.WORKLOADS, key):
            return  # it is looked at when the doubt is over
        view = self._view(key, workload, now)
        if view is None:
            return
        members = self._families.members(view.kind, view.jobs)
        if members and self._families.has_news(key, workload):
            self._changed.update(members)
            self._wake()
        for step in limited(lambda: planning.plan(view)):
            self._carry_out(key, view, step)
        if view.chain is not None and view.chain.over:
            self._look_at_next(workload)
        stops = deleting(workload) or true_condition(workload, names.EVICTED) is not None
        if view.kind is not None and view.kind.pods_wait and (stops or view.kind.resource != kube.PODS):
            self.moved_elsewhere(workload)

    def _withdraw_orphan(self, name: str, cluster: RemoteCluster, key: str) -> None:
        copy = cluster.store.copy(key)
        found = [*cluster.store.jobs_of(key).values()]
        if copies.is_family(key):
            found = self._families.left_in(name, cluster.store, key)
        left = [job for job in found if not deleting(job)]
        if left and self._chains.is_kept_for(key):
            return
        if (
            not cluster.connected
            or not self._there.ready((name, key))
            or (not left and (copy is None or not copy.removable))
        ):
            return
        step = steps.Withdraw(name, copy, left)
        self._write(key, name, remote_writes.withdraw(step, key, cluster.store.kind_of_jobs(key)))

    def _view(self, key: str, workload: Json, now: int) -> steps.View | None:
        """None for a workload that has nothing to do with other clusters."""
        row = self._row(workload)
        clusters = self._clusters.all()
        if row is None and not any(cluster.store.copy(key) for cluster in clusters.values()):
            self._rounds.pop(key, None)
            return None
        if row is None or "admission" not in workload["status"]:
            self._rounds.pop(key, None)
        ref = owner_of(workload)
        owner = (ref["apiVersion"], ref["kind"]) if ref is not None else None
        kind = self._sent.get(owner) if owner is not None else None
        jobs = self.jobs.of(workload, kind, ref)
        members, chain = self._families.members(kind, jobs), self._chains.of(workload)

        def in_cluster(name: str, cluster: RemoteCluster) -> steps.ClusterView:
            seen = self._cluster_view(name, cluster, key, kind, jobs)
            if chain is not None and kind is not None and cluster.connected:
                return self._chains.as_seen(seen, cluster.store, workload, chain, kind.resource, jobs)
            if kind is None or ref is None or not kind.shared or not cluster.connected:
                return seen
            family = copies.family_key(workload["metadata"]["namespace"], ref["uid"])
            return families.as_seen(
                seen, cluster.store, key, family, members, busy=not self._there.ready((name, family))
            )

        return steps.View(
            workload=workload,
            row=row,
            listed=self._listed(row),
            clusters={name: in_cluster(name, each) for name, each in clusters.items()},
            jobs=jobs,
            owner=owner,
            kind=kind,
            settings=self._settings,
            now=now,
            round_at=self._rounds.get(key),
            family=self._families.family(key, members),
            chain=chain,
        )

    def _cluster_view(
        self, name: str, cluster: RemoteCluster, key: str, kind: RunsElsewhere | None, here: Collection[str]
    ) -> steps.ClusterView:
        if not cluster.connected:
            return steps.ClusterView(False, cluster.lost_at)
        namespace = key.partition("/")[0]
        jobs = cluster.store.jobs_of(key)
        named = {
            each: job
            for each in here
            if each not in jobs
            and kind is not None
            and (job := cluster.store.job(kind.resource, f"{namespace}/{each}")) is not None
        }
        return steps.ClusterView(
            True,
            busy=not self._there.ready((name, key)),
            copy=cluster.store.copy(key),
            jobs=jobs,
            blockers=named,
            refuses=cluster.refuses(kind.resource) if kind is not None else "",
        )

    def _row(self, workload: Json) -> Json | None:
        """The first of its checks that is of this controller."""
        for row in workload["status"].get("admissionChecks") or ():
            check = self._mirror.get(kube.ADMISSION_CHECKS, row["name"])
            if check is not None and activity.is_ours(check):
                return row
        return None

    def _listed(self, row: Json | None) -> Sequence[str] | None:
        check = self._mirror.get(kube.ADMISSION_CHECKS, row["name"]) if row is not None else None
        if check is None:
            return None
        try:
            return activity.clusters_of(check, self._config_named)
        except UnusableError:
            return None

    def _config_named(self, name: str) -> Json | None:
        return self._mirror.get(kube.MULTI_KUEUE_CONFIGS, name)

    def _cluster_named(self, name: str) -> Json | None:
        return self._mirror.get(kube.MULTI_KUEUE_CLUSTERS, name)

    # --- steps ---

    def _carry_out(self, key: str, view: steps.View, step: steps.Step) -> None:
        workload, origin = view.workload, self._settings.origin
        match step:
            case steps.Wait(until):
                self._alarms[key] = min(until, self._alarms.get(key, until))
            case steps.Mirror(job, status):
                if view.kind is not None:
                    self._mirror_status(key, view.kind.resource, job, status)
            case steps.SetCheck() | steps.Choose() | steps.Nominate() | steps.Finish():
                self._change(key, view, step)
            case steps.Send(cluster):
                done = partial(self._metrics.dispatched, _queue_of(workload), cluster)
                self._write(key, cluster, remote_writes.send(step, workload, origin), done)
            case steps.SendJob(cluster):
                if view.kind is not None:
                    work = remote_writes.send_job(step, view.kind, workload, origin)
                    self._write(self._family_or(key, view), cluster, work)
            case steps.Withdraw(cluster, _, _, rest):
                connection = self._clusters.all().get(cluster)
                known = connection.store.kind_of_jobs(key) if connection is not None else None
                work = remote_writes.withdraw(step, key, view.kind.resource if view.kind is not None else known)
                self._write(key, cluster, work, partial(self._look_at_slices, workload), rest=rest)
            case steps.Reprioritise(cluster):
                self._write(key, cluster, remote_writes.reprioritise(step, workload))
            case steps.Follow(cluster):
                if view.kind is not None:
                    self._write(self._family_or(key, view), cluster, remote_writes.follow(step, view.kind.resource))
            case steps.Cut(cluster):
                self._write(key, cluster, remote_writes.cut(step, workload))
            case steps.Resize(cluster):
                if view.kind is not None:
                    self._write(key, cluster, remote_writes.resize(step, view.kind, workload))
            case steps.Stop(cluster):
                self._write(key, cluster, remote_writes.stop(step, workload, view.now))

    def _family_or(self, key: str, view: steps.View) -> str:
        """What a write of its job is counted for: its family, where others of that might write the same."""
        ref = owner_of(view.workload)
        shared = view.family is not None and ref is not None
        return copies.family_key(view.workload["metadata"]["namespace"], ref["uid"]) if shared and ref else key

    def _change(self, key: str, view: steps.View, step: steps.Here) -> None:
        if isinstance(step, steps.Nominate):
            if step.begins:
                self._rounds[key] = view.now
                self._changed.add(key)
            if list(step.clusters) == (view.workload["status"].get("nominatedClusterNames") or []):
                return
        self._attempts.sent(key)
        self._writes.change(
            key,
            "multikueue",  # a slot that no other part uses: a replaced change would never be answered
            local_changes.of(step),
            priority=Priority.LIFECYCLE,
            done=partial(self._changed_here, key, view.workload, step),
            failed=partial(self._failed, key),
        )

    def _changed_here(self, key: str, before: Json, step: steps.Here, answer: Json | None) -> None:
        self._ended(key)
        match step:
            case steps.SetCheck(_, _, message, kind):
                self._recorder.record(answer or before, kind, "MultiKueue", message)
            case steps.Choose(row, cluster, _) if row["state"] != planning.READY and answer is not None:
                self._metrics.admitted_elsewhere(_queue_of(before), cluster)
                self._recorder.record(answer, "Normal", "MultiKueue", local_changes.admitted_on(cluster))
            case _:
                pass

    def _mirror_status(self, key: str, resource: Resource, job: Json, status: Json) -> None:
        if resource == kube.PODS:
            pod, body = WrittenPod.of(job), local_changes.mirrored(job, status)
            self._pod_writes.send((kube.WORKLOADS, key), pod, "status", body, patch="merge")
            return
        self._attempts.sent(key)
        self._writes.send(
            ObjectKey.of(resource, job),
            "status",
            local_changes.mirrored(job, status),
            priority=Priority.LIFECYCLE,
            slot="multikueue",
            done=lambda _: self._ended(key),
            failed=partial(self._failed, key),
        )

    def _write(
        self, key: str, cluster: str, work: Work, done: Callable[[], None] = lambda: None, *, rest: bool = False
    ) -> None:
        connection = self._clusters.all().get(cluster)
        if connection is None:
            return
        self._there.sent((cluster, key))
        connection.write(work, partial(self._written, cluster, key, done, rest=rest))

    # --- results of writes ---

    def _written(self, cluster: str, key: str, done: Callable[[], None], error: ApiError | None, *, rest: bool) -> None:
        pair = (cluster, key)
        self._there.resolved(pair)
        if error is None:
            done()
            if rest:
                self._there.pause(pair)
            else:
                self._there.forgive(pair)
        else:
            if not isinstance(error, Conflict) or isinstance(error, AlreadyExists):
                self._tell_refusal(cluster, key, error)
            self._there.pause(pair)
        self._again(key)

    def _tell_refusal(self, cluster: str, key: str, error: ApiError) -> None:
        workload = self._mirror.get(kube.WORKLOADS, key)
        text = f'Cluster "{cluster}": {error.message or error}'
        log.info("%s: %s", key, text)
        if workload is not None and not error.retryable:
            self._recorder.record(workload, "Warning", "MultiKueue", conditions.cut(text))

    def _resolved(self, message: WriteResolved) -> None:
        """A Workload is not in doubt any more, perhaps without a change that the mirror shows."""
        if message.key.resource == kube.WORKLOADS:
            raw = self._mirror.get(kube.WORKLOADS, message.key.text)
            if raw is not None and "admissionChecks" in raw["status"]:
                self._changed.add(message.key.text)

    def _pod_refused(self, ref: JobRef, pod: ObjectKey, error: ApiError) -> None:
        log.warning("%s: status of %s: %s", ref[1], pod, error)
        self._attempts.pause(ref[1])

    def _failed(self, key: str, error: ApiError) -> None:
        self._attempts.resolved(key)
        if self._writes.expected(error):
            self._changed.add(key)
            return
        log.warning("%s: sent to other clusters: %s", key, error)
        self._attempts.pause(key)

    def _ended(self, key: str) -> None:
        self._attempts.resolved(key)
        self._attempts.forgive(key)
        self._changed.add(key)

    # --- news ---

    def _note(self, key: str) -> None:
        """A cluster shows a copy, or its job, differently. What nobody knows here is left to `_tidy`."""
        workload = self._mirror.get(kube.WORKLOADS, key)
        if copies.is_family(key) or workload is not None:
            self._again(key)
        if workload is not None:
            self._changed.update(self._chains.current(workload))
        elif self._parted:  # what one of them waits for may have gone
            self._wake()

    def _look_at_next(self, workload: Json) -> None:
        """A slice is over: the one after it is sent now."""
        if next_ := self._chains.current(workload):
            self._changed.update(next_)
            self._wake()

    def _look_at_slices(self, workload: Json) -> None:
        """A job was withdrawn: copies of its other slices may go, too."""
        self._changed.update(self._chains.siblings(workload))

    def _note_move(self) -> None:
        self._moved = True
        self.moved_quotas()
        self._wake()

    def _note_quotas(self) -> None:
        self.moved_quotas()

    def _again(self, key: str) -> None:
        self._changed.add(key)
        self._wake()


def _queue_of(workload: Json) -> str:
    return (workload["status"].get("admission") or {}).get("clusterQueue", "")
