"""The answers: who waits where, why, until when, and what runs next, for one asker. Nothing is written.

Objects are read in slices, between which the event loop goes on. What an answer says of a job is made from what its asker may see
(`sight`), so nothing has to be taken out of it afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gangline.control.answers import items, lookup, whatif
from gangline.control.answers.explanation import NAMED, Line, explain
from gangline.control.answers.reasons import preemption
from gangline.control.answers.sight import Asker, Sight
from gangline.control.answers.snapshot import (
    Snapshot,
    State,
    WorkloadView,
    display_order,
    named,
    queue_view,
    routes_of,
    workload_view,
)
from gangline.control.answers.source import Foresight, Source
from gangline.control.answers.times import Times, as_json, times
from gangline.engine import accelerators
from gangline.kube import resources as kube
from gangline.kube.resources import Json

log = logging.getLogger(__name__)

#: objects read before other tasks get their turn: about 2 ms
SLICE: Final = 50

Routes = Mapping[tuple[str, str], str]


class NoSuchJobError(LookupError):
    """There is no such job with a Workload; the text says where there is one."""


class NotReadableError(Exception):
    """The asker may not read the jobs of the namespace, so no job of it can be named."""


class NoSuchQueueError(LookupError):
    """There is no such ClusterQueue, or none that the asker's namespace leads to."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: `limit` entries after the first `offset`; no limit: all of them."""

    offset: int = 0
    limit: int | None = None

    @property
    def end(self) -> int | None:
        return None if self.limit is None else self.offset + self.limit


EVERYTHING: Final = Page()


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list, and the number of entries after it."""

    items: list[Json]
    left: int


@dataclass(frozen=True, slots=True)
class Wish:
    """Which jobs are wanted: of a namespace ("" = all), of a ClusterQueue ("" = all), finished ones too, with their times."""

    namespace: str = ""
    cluster_queue: str = ""
    finished: bool = False
    times: bool = False
    page: Page = EVERYTHING


class Answers:
    """`order` returns the waiting workloads of a ClusterQueue in the engine's order."""

    def __init__(self, source: Source, foresight: Foresight, order: Callable[[str], list[str]]) -> None:
        self.source = source
        self._foresight = foresight
        self._order = order

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def jobs(self, asker: Asker, wish: Wish) -> Listed:
        """A page of the jobs, in the order in which they are shown. Raises NoSuchQueueError, NoForecastsError."""
        routes = self._routes()
        self._check_queue(wish, routes)
        wanted = [key for key, raw in self._workloads() if self._is_wanted(key, raw, wish, routes)]
        queues = self._own_queues(wish.namespace, routes) | {wish.cluster_queue}
        views = sorted(await self._views(wanted, routes), key=display_order)
        shown = views[wish.page.offset : wish.page.end]
        items = await self._items(asker, queues, shown, routes, with_times=wish.times)
        return Listed(items, max(0, len(views) - wish.page.offset - len(shown)))

    async def job(self, asker: Asker, namespace: str, kind: str, name: str, *, with_times: bool = False) -> Json:
        """One job of the namespace. Raises NoSuchJobError, WrongNameError, NoForecastsError."""
        routes = self._routes()
        key = (await self._found(asker, namespace, kind, name, routes)).key
        views = await self._views([key], routes)
        if not views:
            raise _gone(namespace, name)
        (item,) = await self._items(asker, self._own_queues(namespace, routes), views, routes, with_times=with_times)
        return item

    def _check_queue(self, wish: Wish, routes: Routes) -> None:
        queue = wish.cluster_queue
        if not queue:
            return
        if wish.namespace:
            own = sorted(self._own_queues(wish.namespace, routes))
            if queue not in own:
                known = ", ".join(own) or "none"
                raise NoSuchQueueError(
                    f"no LocalQueue of namespace {wish.namespace} leads to a ClusterQueue {queue!r} (there is: {known})"
                )
        elif self.source.mirror.get(kube.CLUSTER_QUEUES, queue) is None:
            known = ", ".join(sorted(self.source.mirror.objects[kube.CLUSTER_QUEUES])) or "none"
            raise NoSuchQueueError(f"there is no ClusterQueue {queue!r} (there is: {known})")

    def _is_wanted(self, key: str, raw: Json, wish: Wish, routes: Routes) -> bool:
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
    ) -> list[Json]:
        sight, shown = await self._shown(asker, views, known_queues, routes)
        keys = [view.key for view in views]
        known = await self._times(keys, sight) if with_times else {}
        return [_item(view, known.get(key) if with_times else None) for key, view in zip(keys, shown, strict=True)]

    async def _times(self, keys: Sequence[str], sight: Sight) -> dict[str, Times]:
        waiting = [key for key in keys if self._waits(key)]
        newest = waiting[0] if len(keys) == 1 and waiting else ""
        seen = await self._foresight.outlook(newest)
        return times(self.source, seen, keys, sight, self._job_names())

    def _waits(self, key: str) -> bool:
        value = self.source.mirror.workload_value(key)
        return value is not None and value.admission is None and not value.finished

    # --- why ----------------------------------------------------------------------------------------------------------

    async def why(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, list[Line]]:
        """A job of the namespace and the explanation of its state. Raises NoSuchJobError, WrongNameError."""
        routes = self._routes()
        key = (await self._found(asker, namespace, kind, name, routes)).key
        raw = self.source.mirror.get(kube.WORKLOADS, key) or {}
        queue = self._queue_of(raw, routes)
        order = self._order(queue)
        place = order.index(key) if key in order else 0
        cohort = self._cohort(queue)
        holders = [other for other, each in self._workloads() if other != key and self._holds(each, cohort)]
        related = dict.fromkeys([key, *order[: min(place, NAMED)], *holders])
        views = await self._views(list(related), routes)
        if not views or views[0].key != key:
            raise _gone(namespace, name)
        sight, shown = await self._shown(asker, views, self._own_queues(namespace, routes), routes)
        mirror = self.source.mirror
        queues = tuple(
            sight.queue(queue_view(each)) for name in cohort if (each := mirror.get(kube.CLUSTER_QUEUES, name))
        )
        seen = Snapshot(tuple(shown), queues, {sight.queue_name(queue): len(order)})
        return _item(shown[0], None), explain(shown[0], seen, self.source.now() / 1000)

    def _cohort(self, queue: str) -> list[str]:
        """The ClusterQueue and those that share quota with it."""
        queues = self.source.mirror.objects[kube.CLUSTER_QUEUES]
        cohort = (queues[queue]["spec"].get("cohortName") or "") if queue in queues else ""
        return [
            name
            for name, each in queues.items()
            if name == queue or (cohort and each["spec"].get("cohortName") == cohort)
        ]

    def _holds(self, raw: Json, queues: Collection[str]) -> bool:
        admission = (raw.get("status") or {}).get("admission") or {}
        return admission.get("clusterQueue") in queues

    async def story(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, list[Json]]:
        """A job of the namespace and what this process remembers of its history; times in seconds, null for just now."""
        routes = self._routes()
        view = await self._found(asker, namespace, kind, name, routes)
        sight = await asker.sight({namespace}, self._own_queues(namespace, routes))
        entries = self.source.engine.story(view.key)
        jobs = self._job_names()
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
        return _item(shown, None), events

    async def _shown(
        self, asker: Asker, views: Sequence[WorkloadView], known_queues: Collection[str], routes: Routes
    ) -> tuple[Sight, list[WorkloadView]]:
        """The views as the asker may see them, with the jobs for which they were preempted."""
        uids = {found.uid for view in views if (found := preemption(view.evicted)) is not None}
        others = [key for key, raw in self._workloads() if raw["metadata"].get("uid") in uids] if uids else []
        preemptors = await self._views(others, routes)
        sight = await asker.sight({view.namespace for view in (*views, *preemptors)}, known_queues)
        jobs = {view.uid: sight.workload(view).job for view in preemptors}
        return sight, named([sight.workload(view) for view in views], jobs)

    # --- the plan -----------------------------------------------------------------------------------------------------

    async def plan(
        self, asker: Asker, namespace: str, cluster_queue: str, horizon: float, page: Page = EVERYTHING
    ) -> Listed:
        """A page of the runs in progress and those expected within `horizon` seconds, by queue and start.

        With a namespace, those of the ClusterQueues to which its LocalQueues lead. Raises NoSuchQueueError, NoForecastsError.
        """
        routes = self._routes()
        self._check_queue(Wish(namespace, cluster_queue), routes)
        queues = {cluster_queue} if cluster_queue else self._own_queues(namespace, routes) if namespace else None
        seen = await self._foresight.outlook()
        until = self.source.now() + horizon * 1000
        wanted = [
            run for run in seen.stretches if run.began < until and (queues is None or run.cluster_queue in queues)
        ]
        ordered = sorted(wanted, key=lambda run: (run.cluster_queue, run.began, run.workload))
        runs = ordered[page.offset : page.end]
        spaces = {run.workload.partition("/")[0] for run in runs}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        jobs = self._job_names()
        found: list[Json] = []
        for run in runs:
            space, _, name = run.workload.partition("/")
            visible = sight.sees(space)
            label = sight.label(run.workload)
            found.append(
                {
                    "metadata": {"namespace": space, "name": name} if visible else {"name": label},
                    "hidden": not visible,
                    "job": sight.name(run.workload, jobs),
                    "clusterQueue": sight.queue_name(run.cluster_queue),
                    "gpus": sum(accelerators(entry.usage) for entry in run.admission.pod_sets),
                    "from": run.began / 1000,
                    "to": run.ended / 1000,
                    "after": [sight.name(other, jobs) for other in run.after],
                }
            )
        return Listed(found, max(0, len(ordered) - page.offset - len(runs)))

    async def what_if(self, asker: Asker, namespace: str, job: object) -> Json:
        """When a job of the namespace would start: see `whatif`. Raises WrongJobError, NoForecastsError."""
        sight = await asker.sight({namespace}, self._own_queues(namespace, self._routes()))
        return await whatif.what_if(self.source, self._foresight, sight, self._job_names(), namespace, job)

    # --- the mirror ---------------------------------------------------------------------------------------------------

    def _workloads(self) -> Iterable[tuple[str, Json]]:
        return list(self.source.mirror.objects[kube.WORKLOADS].items())

    def _routes(self) -> Routes:
        return routes_of(self.source.mirror.objects[kube.LOCAL_QUEUES].values())

    def _queue_of(self, raw: Json, routes: Routes) -> str:
        admission = (raw.get("status") or {}).get("admission") or {}
        meta, spec = raw.get("metadata") or {}, raw.get("spec") or {}
        return admission.get("clusterQueue") or routes.get((meta.get("namespace", ""), spec.get("queueName") or ""), "")

    def _own_queues(self, namespace: str, routes: Routes) -> set[str]:
        return {queue for (space, _), queue in routes.items() if space == namespace}

    def _job_names(self) -> dict[str, str]:
        """Names of jobs by the keys of their Workloads."""
        return {key: _job_name(raw) for key, raw in self._workloads()}

    async def _found(self, asker: Asker, namespace: str, kind: str, name: str, routes: Routes) -> WorkloadView:
        """The newest workload of that name in the namespace. Raises NotReadableError before it tells whether there is one."""
        if not (await asker.sight({namespace}, ())).sees(namespace):
            raise NotReadableError(f"you may not list the Workloads of namespace {namespace}")
        called = [(key, raw) for key, raw in self._workloads() if name in (_job_name(raw), raw["metadata"]["name"])]
        own = ((key, raw) for key, raw in called if key.startswith(f"{namespace}/"))
        here = [view for key, raw in own if (view := _view(key, raw, routes)) is not None]
        found = lookup.find(here, namespace, kind, name)
        if found is not None:
            return found
        spaces = {key.partition("/")[0] for key, _ in called} - {namespace}
        sight = await asker.sight(spaces, ())
        elsewhere = sorted(space for space in spaces if sight.sees(space))
        hint = f"; there is one in {', '.join(elsewhere)}: use -n {elsewhere[0]}" if elsewhere else ""
        raise NoSuchJobError(f"no job {f'{kind}/' if kind else ''}{name} in namespace {namespace}{hint}")

    async def _views(self, keys: Sequence[str], routes: Routes) -> list[WorkloadView]:
        """As they are, with the engine's positions. A workload that is deleted meanwhile, or can't be read, is left out."""
        found: list[WorkloadView] = []
        places: dict[str, dict[str, int]] = {}
        for number, key in enumerate(keys):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            raw = self.source.mirror.get(kube.WORKLOADS, key)
            view = _view(key, raw, routes) if raw is not None else None
            if view is None:
                continue
            queue = view.cluster_queue
            if view.state is State.PENDING and queue:
                if queue not in places:
                    places[queue] = {each: place for place, each in enumerate(self._order(queue))}
                view = replace(view, position=places[queue].get(key))
            found.append(view)
        return found


def _view(key: str, raw: Json, routes: Routes) -> WorkloadView | None:
    try:
        return workload_view(raw, routes)
    except Exception as error:  # one object's trouble must not cost the answers about all others
        log.warning("%s is left out of an answer: %r", key, error)
        return None


def _item(view: WorkloadView, known: Times | None) -> Json:
    meta = {"name": view.name} if view.hidden else {"namespace": view.namespace, "name": view.name, "uid": view.uid}
    item: dict[str, Any] = {"metadata": meta, **items.as_json(view)}
    return item | as_json(known) if known is not None else item


def _gone(namespace: str, name: str) -> NoSuchJobError:
    return NoSuchJobError(f"job {name} in namespace {namespace} was just deleted")


def _job_name(raw: Json) -> str:
    owner = kube.controller_of(raw)
    return owner["name"] if owner is not None else raw["metadata"]["name"]
