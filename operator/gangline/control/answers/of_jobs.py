"""Answers about jobs: who waits where, why and until when, what was promised, and what would let a job start earlier.

The wait of a workload that preempted others: pods of these that have not ended, until when they may run, and what would end
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gangline.control.answers import circumstances, setup
from gangline.control.answers.ahead import remedies
from gangline.control.answers.ahead.times import Times, admissions_of, times
from gangline.control.answers.desk import SLICE, Desk, Routes, Wish, as_item, gone
from gangline.control.answers.explanation import NAMED, explain
from gangline.control.answers.pages import Listed
from gangline.control.answers.refusals import NotWaitingError, PodsUnknownError
from gangline.control.answers.sight import Asker, Sight
from gangline.control.answers.source import NoForecastsError, Source
from gangline.control.answers.workloads.briefs import Brief, Order, job_kinds
from gangline.control.answers.workloads.planned_quota import plan_of
from gangline.control.answers.workloads.reasons import parse, preemption
from gangline.control.answers.workloads.snapshot import (
    OUTSIDE,
    AnswerSnapshot,
    JobState,
    WorkloadView,
    display_order,
    queue_view,
)
from gangline.control.answers.workloads.words import Line, age
from gangline.control.feed.pod import Pod
from gangline.control.nodes.recovery.fencing import EXTRA_GRACE, OUT_OF_SERVICE, gone_for_certain, out_of_reach_since
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import Stored, WorkloadObject

if TYPE_CHECKING:
    from gangline.control.nodes.stall.stall_watch import PodTelemetry

#: preempted workloads of which the pods are named, and pods of each
MOST_VICTIMS: Final = 3
MOST_PODS: Final = 2
#: characters of an annotation's value that are shown
LONGEST_VALUE: Final = 256


def waits_for_preempted(view: WorkloadView) -> bool:
    return view.reason == "WaitingForPreemptedWorkloads" or parse(view.message).preempting > 0


def victims_of(view: WorkloadView, views: list[WorkloadView]) -> list[WorkloadView]:
    """The workloads that still hold quota after they were preempted for this one."""
    stopping = [each for each in views if each.state is JobState.STOPPING]
    return [each for each in stopping if (found := preemption(each.evicted)) is not None and found.uid == view.uid]


def stopping_lines(source: Source, sight: Sight, victims: list[WorkloadView]) -> Iterator[str]:
    """One sentence for each pod that has not ended; those that end last come first."""
    if source.pods is None:
        return
    for victim in victims[:MOST_VICTIMS]:
        job, recovery = sight.workload(victim).job, source.mirror.recovery_for(victim.key)
        pods = [pod for pod in source.pods.of(victim.key) if not pod.ended and pod.node]
        pods.sort(key=lambda pod: (not _is_out_of_reach(source, pod), -pod.due, pod.key))
        for pod in pods[:MOST_PODS]:
            name = f"pod {pod.name}" if sight.sees(victim.namespace) else "a pod"
            yield f"{job}: {name} on node {pod.node}{_until(source, pod, recovery)}"
        if len(pods) > MOST_PODS:
            yield f"{job}: {len(pods) - MOST_PODS} more pods"


def _is_out_of_reach(source: Source, pod: Pod) -> bool:
    return out_of_reach_since(source.mirror.nodes.get(pod.node)) is not None


def _until(source: Source, pod: Pod, recovery: model.Recovery | None) -> str:
    now, node = source.now(), source.mirror.nodes.get(pod.node)
    since = out_of_reach_since(node)
    if since is None:
        left = age((pod.due - now) / 1000)
        return (
            f" has {left} left to end"
            if pod.due > now
            else " has not ended yet" + (" after its time" if pod.due else "")
        )
    away = f", out of reach for {age((now - since) / 1000)}" if since else ", which is lost"
    if not recovery or not recovery.enabled:
        return f"{away}: it stays until the node returns; {_remedy(pod)}"
    if gone_for_certain(node):
        return f"{away}: it is deleted by force now"
    if recovery.force_delete:
        return f"{away}: it is deleted by force in {age((pod.due + EXTRA_GRACE - now) / 1000)}"
    if pod.keeps_name:
        return f"{away}: it stays until the node returns, since its successor has its name; {_remedy(pod)}"
    return f"{away}: the gang goes on without it in a moment"


def _remedy(pod: Pod) -> str:
    taint = f"kubectl taint node {pod.node} {OUT_OF_SERVICE}=lost:NoExecute"
    return f"an administrator who is sure that the node is off ends it by `{taint}`, or by deleting the Node"


#: Workloads that are ranked before other tasks get their turn: about 2 ms
RANKED: Final = 1000


class JobAnswers(Desk):
    """Answers about jobs."""

    async def jobs(self, asker: Asker, wish: Wish) -> Listed:
        """A page of the jobs, in the order in which they are shown. Raises NoSuchQueueError, NoForecastsError."""
        routes = self._routes()
        self._check_queue(wish, routes)
        wanted = ((key, raw) for key, raw in self._workloads() if self._is_wanted(key, raw, wish, routes))
        ranked = await self._ranked(await self._brief(wanted), routes)
        without = await self._unqueued(wish, routes)
        entries: list[tuple[Order, str | WorkloadView]] = [*ranked, *((display_order(view), view) for view in without)]
        entries.sort(key=lambda entry: entry[0])
        shown = [entry for _, entry in entries[wish.page.offset : wish.page.end]]
        views = {view.key: view for view in await self._views([key for key in shown if isinstance(key, str)], routes)}
        page = [entry if isinstance(entry, WorkloadView) else views.get(entry) for entry in shown]
        queues = self._own_queues(wish.namespace, routes) | {wish.cluster_queue}
        there = [view for view in page if view is not None]
        items = await self._items(asker, queues, there, routes, with_times=wish.times, annotations=wish.annotations)
        return Listed(items, max(0, len(entries) - wish.page.offset - len(shown)))

    async def _ranked(self, briefs: Mapping[str, Brief], routes: Routes) -> list[tuple[Order, str]]:
        """Workloads with their sort keys, in no order."""
        places: dict[str, dict[str, int]] = {}
        found: list[tuple[Order, str]] = []
        for number, (key, brief) in enumerate(briefs.items()):
            if number % RANKED == RANKED - 1:
                await asyncio.sleep(0)
            place, queue = None, brief.cluster_queue(routes)
            if brief.state is JobState.PENDING and queue:
                if queue not in places:
                    places[queue] = {each: place for place, each in enumerate(self._order(queue))}
                place = places[queue].get(key)
            found.append((brief.order(routes, place), key))
        return found

    async def job(self, asker: Asker, namespace: str, kind: str, name: str, *, with_times: bool = False) -> Json:
        """One job of the namespace. Raises NoSuchJobError, WrongNameError, NoForecastsError."""
        routes = self._routes()
        found = await self._found(asker, namespace, kind, name, routes)
        views = [found] if found.state in OUTSIDE else await self._views([found.key], routes)
        if not views:
            raise gone(namespace, name)
        (item,) = await self._items(asker, self._own_queues(namespace, routes), views, routes, with_times=with_times)
        return item

    async def _unqueued(self, wish: Wish, routes: Routes) -> list[WorkloadView]:
        """Wanted jobs without a Workload, and why they have none."""
        warned, now = self.source.warnings(), self.source.now() / 1000
        if wish.cluster_queue:
            found = await self._unqueued_views(routes, warned, now)
            return [view for view in found if view.cluster_queue == wish.cluster_queue]
        found = await self._unqueued_views(routes, warned, now, wish.namespace or None)
        return [view for view in found if wish.namespace in ("", view.namespace)]

    def _is_wanted(self, key: str, raw: WorkloadObject, wish: Wish, routes: Routes) -> bool:
        namespace = key.partition("/")[0]
        if wish.cluster_queue:
            if self._queue_of(raw, routes) != wish.cluster_queue:
                return False
        elif wish.namespace and namespace != wish.namespace:
            return False
        value = self.source.mirror.workload_value(key)
        return wish.finished or value is None or not value.finished

    async def _items(
        self,
        asker: Asker,
        known_queues: Collection[str],
        views: Sequence[WorkloadView],
        routes: Routes,
        *,
        with_times: bool,
        annotations: Sequence[str] = (),
    ) -> list[Json]:
        sight, shown = await self._shown(asker, views, known_queues, routes)
        keys = [view.key for view in views]
        known = await self._times(keys, sight, routes) if with_times else {}
        away = {queue: self._fallen_back(queue) for queue in {view.cluster_queue for view in views}}
        found: list[Json] = []
        for number, (key, view, full_view) in enumerate(zip(keys, shown, views, strict=True)):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            item = as_item(view, known.get(key) if with_times else None)
            more = {"annotations": self._annotations(full_view, annotations)} if annotations and not view.hidden else {}
            found.append(item | {"fallenBack": away[full_view.cluster_queue], **more})
        return found

    def _annotations(self, view: WorkloadView, keys: Sequence[str]) -> dict[str, str]:
        """The values of a job's annotations, or of its labels where it has no annotation of a key; long ones are cut."""
        raw = self.source.mirror.workloads.get(view.key)
        obj = self._object_of(view, raw)
        if obj is None:
            return {}
        found = {key: obj.annotations.get(key, obj.labels.get(key)) for key in keys}
        return {key: str(value)[:LONGEST_VALUE] for key, value in found.items() if value is not None}

    def _object_of(self, view: WorkloadView, raw: WorkloadObject | None) -> Stored | None:
        """The job behind a view, or its Workload where the job is not known."""
        mirror = self.source.mirror
        if raw is not None:
            job = mirror.job_of(raw)
            return (mirror.job(job) if job is not None else None) or raw
        resource = job_kinds().get(view.job_kind.lower())
        return mirror.objects[resource].get(f"{view.namespace}/{view.job_name}") if resource is not None else None

    async def _times(self, keys: Sequence[str], sight: Sight, routes: Routes) -> dict[str, Times]:
        waiting = [key for key in keys if self._waits(key)]
        newest = waiting[0] if len(keys) == 1 and waiting else ""
        seen = await self._foresight.outlook(newest)
        admissions, jobs = admissions_of(seen, frozenset(keys)), self.job_names()
        known: dict[str, Times] = {}
        for first in range(0, len(keys), SLICE):
            known |= times(self.source, seen, admissions, keys[first : first + SLICE], sight, jobs)
            await asyncio.sleep(0)
        return {key: replace(each, record=self._record(key, routes)) for key, each in known.items()}

    def _record(self, key: str, routes: Routes) -> Json | None:
        """The record of how promised starts in a waiting workload's ClusterQueue have come true."""
        raw = self.source.mirror.workloads.get(key)
        return self._queue_record(self._queue_of(raw, routes)) if raw is not None and self._waits(key) else None

    async def promises(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, Json]:
        """A job of the namespace, what was said of its start, and when it started. Raises as `story`, and NoForecastsError."""
        routes = self._routes()
        view = await self._found(asker, namespace, kind, name, routes)
        ledger = self._foresight.ledger
        if ledger is None:
            raise NoForecastsError("this operator makes no forecasts, so it promises nothing")
        if self._waits(view.key) and ledger.of(view.key) is None:
            await self._foresight.outlook(view.key)  # the answer is its first promise
        sight = await asker.sight({namespace}, self._own_queues(namespace, routes))
        jobs, wait = self.job_names(), ledger.of(view.key)
        rows = [each.as_json() for each in wait.promises] if wait is not None else []
        rows = [row | {field: sight.text(row[field], jobs) for field in ("because", "cause")} for row in rows]
        _, (shown,) = await self._shown(asker, [view], self._own_queues(namespace, routes), routes)
        started = wait.started / 1000 if wait is not None and wait.started else None
        promised = self.source.engine.promised_start(view.key)
        found = {
            "promises": rows,
            "started": started,
            "promisedBy": promised / 1000 if promised is not None else None,
            "record": self._queue_record(view.cluster_queue),
        }
        return as_item(shown, None), found

    async def why(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, list[Line]]:
        """A job of the namespace and the explanation of its state. Raises NoSuchJobError, WrongNameError."""
        routes = self._routes()
        found = await self._found(asker, namespace, kind, name, routes)
        if found.state in OUTSIDE:
            _, (shown,) = await self._shown(asker, [found], self._own_queues(namespace, routes), routes)
            return as_item(shown, None), explain(shown, AnswerSnapshot((shown,), ()), self.source.now() / 1000)
        key = found.key
        raw = self.source.mirror.workloads.get(key)
        queue = self._queue_of(raw, routes) if raw is not None else ""
        order = self._order(queue)
        place = order.index(key) if key in order else 0
        cohort = self._cohort(queue)
        holders = [other for other, each in self._workloads() if other != key and self._holds(each, cohort)]
        related = dict.fromkeys([key, *order[: min(place, NAMED)], *holders])
        views = await self._views(list(related), routes)
        if not views or views[0].key != key:
            raise gone(namespace, name)
        views[1:] = circumstances.with_ends(self.source, views[1:])
        sight, shown = await self._shown(asker, views, self._own_queues(namespace, routes), routes)
        mirror = self.source.mirror
        plans = mirror.objects[kube.QUOTA_PLANS].values()
        queues = tuple(
            sight.queue(queue_view(each, plan_of(plans, name)))
            for name in cohort
            if (each := mirror.get(kube.CLUSTER_QUEUES, name))
        )
        limits = circumstances.limits(self.source, queue, shown[0], sight)
        names = self.job_names()
        shown[0], needs = circumstances.as_the_engine_says(self.source, sight, shown[0], names)
        waiting = {sight.queue_name(queue): len(order)}
        seen = AnswerSnapshot(tuple(shown), queues, waiting, limits=limits, needs=needs, routes=routes)
        room = await circumstances.room(self.source, asker, views[0], queue, names)
        explained = explain(shown[0], seen, self.source.now() / 1000, room)
        wrong = setup.setup_of(self.source, sight, views[0], queue, unscheduled=bool(room.unscheduled))
        explained = [line for line in explained if not (wrong.blocking and line.label == "needs")]
        explained += [Line(label, text) for label, text in wrong.lines()]
        if views[0].state is JobState.PENDING:
            explained += circumstances.awaited_ends(self.source, views[0], names)
            if order_text := self.source.engine.order_text(queue):
                explained.append(Line("order", order_text))
        if views[0].state is JobState.PENDING and waits_for_preempted(views[0]):
            victims = victims_of(views[0], views[1:])
            explained += [Line("stopping", text) for text in stopping_lines(self.source, sight, victims)]
        return as_item(shown[0], None), explained

    async def remedies(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, Json]:
        """A waiting job of the namespace, and what would let it start earlier: see `remedies`.

        Raises NoSuchJobError, WrongNameError, NotWaitingError, NoForecastsError.
        """
        routes = self._routes()
        view = await self._found(asker, namespace, kind, name, routes)
        if view.state is not JobState.PENDING:
            raise NotWaitingError(f"{view.job} does not wait in a queue: it is {view.state.lower()}")
        cohort = self._cohort(view.cluster_queue)
        holders = [key for key, raw in self._workloads() if self._holds(raw, cohort)]
        spaces = {key.partition("/")[0] for key in (view.key, *holders)}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        offers = await remedies.remedies(self.source, self._foresight, sight, self.job_names(), view.key)
        _, (shown,) = await self._shown(asker, [view], self._own_queues(namespace, routes), routes)
        return as_item(shown, None), offers

    async def story(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, list[Json]]:
        """A job of the namespace and what this process remembers of its history; times in seconds, null for just now."""
        routes = self._routes()
        view = await self._found(asker, namespace, kind, name, routes)
        sight = await asker.sight({namespace}, self._own_queues(namespace, routes))
        entries = self.source.engine.story(view.key)
        jobs = self.job_names()
        events: list[Json] = [
            {
                "at": entry.at / 1000 if entry.at is not None else None,
                "state": entry.after.value,
                "cause": sight.text(entry.cause, jobs),
                "decision": entry.decision,
            }
            for entry in entries
        ]
        _, (shown,) = await self._shown(asker, [view], self._own_queues(namespace, routes), routes)
        return as_item(shown, None), events

    async def pods(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, list[Json]]:
        """A job of the namespace and its pods, by rank. Raises NoSuchJobError, WrongNameError, PodsUnknownError."""
        if self.source.pods is None:
            raise PodsUnknownError("pods are not known here")
        routes = self._routes()
        view = await self._found(asker, namespace, kind, name, routes)
        use = self.source.gpu_use
        if use is not None:
            await use.refresh()
        found = self.source.pods.of(view.key)
        found.sort(
            key=lambda pod: (pod.pod_set, pod.group or (0, 0), pod.index if pod.index is not None else -1, pod.key)
        )
        _, (shown,) = await self._shown(asker, [view], self._own_queues(namespace, routes), routes)
        return as_item(shown, None), [
            _pod_as_json(pod, use.of_pod(pod.key) if use is not None else None) for pod in found
        ]


def _pod_as_json(pod: Pod, measured: PodTelemetry | None) -> Json:
    idle = measured.idle_since if measured is not None else None
    return {
        "name": pod.name,
        "podSet": pod.pod_set,
        "rank": pod.index,
        "node": pod.node,
        "state": _state_of(pod),
        "created": pod.created / 1000,
        "obstacle": pod.refused or pod.unscheduled,
        "gpuUse": measured.gpu if measured is not None else None,
        "gpuMemoryBytes": measured.gpu_memory if measured is not None else None,
        "idleSince": idle / 1000 if idle is not None else None,
        "measuredAt": measured.at / 1000 if measured is not None else None,
    }


def _state_of(pod: Pod) -> str:
    if pod.terminating and not pod.ended:
        return "Stopping"
    if pod.ended:
        return "Succeeded" if pod.succeeded else "Failed"
    if pod.gated:
        return "Gated"
    if not pod.node:
        return "Unscheduled"
    return "Ready" if pod.ready else "Starting"
