"""The common base of all answers: who may know what, and workloads as they stand, read in slices, for one asker.

Between two slices the event loop goes on. What is said of a job is made from what its asker may see (`sight`), so nothing has
to be taken out of it afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gangline.control.answers import circumstances
from gangline.control.answers.ahead.times import Times, as_json
from gangline.control.answers.nodes.machines import Widths
from gangline.control.answers.nodes.room import unscheduled as unscheduled_pods
from gangline.control.answers.pages import EVERYTHING, ListPage
from gangline.control.answers.refusals import NoSuchJobError, NoSuchQueueError, NotReadableError
from gangline.control.answers.sight import Asker, Sight
from gangline.control.answers.source import EngineOutlooks, Source
from gangline.control.answers.usage.attempt_watch import AttemptWatch
from gangline.control.answers.usage.happenings import Log
from gangline.control.answers.workloads import briefs, unqueued
from gangline.control.answers.workloads.briefs import Brief, Briefs
from gangline.control.answers.workloads.reasons import preemption
from gangline.control.answers.workloads.snapshot import (
    JobState,
    WorkloadView,
    named,
    owner_of,
    routes_of,
    workload_view,
)
from gangline.control.feed.pod_index import Belonging
from gangline.control.writes.events import Warned
from gangline.control.writes.status import fallen_back
from gangline.engine.model import ForeignPod
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)

#: objects read before other tasks get their turn: about 2 ms
SLICE: Final = 25
#: views that are kept for the next answer
_KEPT: Final = 2_000

_NOBODY: Final[Mapping[str, str]] = {}

Routes = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Wish:
    """The jobs that a question is about: of a namespace ("" = all), of a ClusterQueue ("" = all), with finished ones and with
    forecast times if wanted.
    """

    namespace: str = ""
    cluster_queue: str = ""
    finished: bool = False
    times: bool = False
    page: ListPage = EVERYTHING
    #: keys of annotations or labels of which the values are added
    annotations: tuple[str, ...] = ()


class JobNames(Mapping[str, str]):
    """Names of jobs by the keys of their Workloads, looked up one by one. `gone`: those of Workloads that are no more."""

    def __init__(self, workloads: Mapping[str, WorkloadObject], gone: Mapping[str, str]) -> None:
        self._workloads = workloads
        self._gone = gone

    def __getitem__(self, key: str) -> str:
        raw = self._workloads.get(key)
        return job_name(raw) if raw is not None else self._gone[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._workloads)

    def __len__(self) -> int:
        return len(self._workloads)


class Desk:
    """Reads the mirror and the engine for answers. `order` returns the waiting workloads of a ClusterQueue in the engine's order;
    `log` has what happened lately, `record` the attempts of jobs; None where nobody keeps that.
    """

    def __init__(
        self,
        source: Source,
        foresight: EngineOutlooks,
        order: Callable[[str], list[str]],
        log: Log | None = None,
        record: AttemptWatch | None = None,
    ) -> None:
        self.source = source
        self.log = log
        self.record = record
        self._briefs = Briefs()
        self._read: dict[str, tuple[WorkloadObject, str, WorkloadView]] = {}
        self._foresight = foresight
        self._order = order

    async def prepare(self) -> None:
        """Read all Workloads, in slices, for the facts that each answer needs: the next answer has to read only what changed
        since.
        """
        await self._brief(self._workloads())

    def _strangers(self) -> list[tuple[ForeignPod, Belonging]]:
        return list(self.source.pods.strangers()) if self.source.pods is not None else []

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

    def _queues_of(self, wish: Wish, routes: Routes) -> set[str] | None:
        """The ClusterQueues that are asked about: the one that is named, else those of the namespace; None: all. Raises
        NoSuchQueueError.
        """
        self._check_queue(wish, routes)
        if wish.cluster_queue:
            return {wish.cluster_queue}
        return self._own_queues(wish.namespace, routes) if wish.namespace else None

    def _queue_record(self, cluster_queue: str) -> Json | None:
        ledger = self._foresight.ledger
        record = ledger.records.get(cluster_queue) if ledger is not None else None
        return record.as_json() if record is not None else None

    def _fallen_back(self, cluster_queue: str) -> Json | None:
        """The mode that a ClusterQueue follows instead of its QueuePolicy, because of its floor, with since when and why; None if
        it follows the policy.
        """
        queue = self.source.mirror.get(kube.CLUSTER_QUEUES, cluster_queue)
        found = fallen_back.of_queue(self.source.mirror.policy_of(queue), cluster_queue) if queue is not None else None
        return {"mode": found.mode, "since": found.since / 1000, "message": found.why} if found is not None else None

    def _cohort(self, queue: str) -> list[str]:
        """The ClusterQueue and those that share quota with it."""
        queues = self.source.mirror.objects[kube.CLUSTER_QUEUES]
        cohort = (queues[queue].spec.get("cohortName") or "") if queue in queues else ""
        return [
            name for name, each in queues.items() if name == queue or (cohort and each.spec.get("cohortName") == cohort)
        ]

    def _holds(self, raw: WorkloadObject, queues: Collection[str]) -> bool:
        return raw.admitted_by in queues

    async def _shown(
        self, asker: Asker, views: Sequence[WorkloadView], known_queues: Collection[str], routes: Routes
    ) -> tuple[Sight, list[WorkloadView]]:
        """The views as the asker may see them, with the jobs for which they were preempted."""
        uids = {found.uid for view in views if (found := preemption(view.evicted)) is not None}
        others = [key for key, raw in self._workloads() if raw.uid in uids] if uids else []
        preemptors = await self._views(others, routes)
        sight = await asker.sight({view.namespace for view in (*views, *preemptors)}, known_queues)
        jobs = {view.uid: sight.workload(view).job for view in preemptors}
        return sight, named([sight.workload(view) for view in views], jobs)

    def _workloads(self) -> Iterable[tuple[str, WorkloadObject]]:
        return list(self.source.mirror.workloads.items())

    async def _brief(self, workloads: Iterable[tuple[str, WorkloadObject]]) -> dict[str, Brief]:
        self._briefs.forget(self.source.mirror.workloads)
        return await self._briefs.of(workloads)

    def _routes(self) -> Routes:
        return routes_of(self.source.mirror.local_queues.values())

    def _queue_of(self, raw: WorkloadObject, routes: Routes) -> str:
        return raw.admitted_by or routes.get((raw.namespace, raw.queue_name), "")

    def known_queues(self, namespace: str) -> set[str]:
        """The ClusterQueues to which LocalQueues of the namespace lead."""
        return self._own_queues(namespace, self._routes())

    def _own_queues(self, namespace: str, routes: Routes) -> set[str]:
        return {queue for (space, _), queue in routes.items() if space == namespace}

    def job_names(self, gone: Mapping[str, str] = _NOBODY) -> Mapping[str, str]:
        """Names of jobs by the keys of their Workloads; `gone`: of those that are no more."""
        return JobNames(self.source.mirror.workloads, gone)

    async def _found(self, asker: Asker, namespace: str, kind: str, name: str, routes: Routes) -> WorkloadView:
        """The newest workload of that name in the namespace. Raises NotReadableError before it tells whether there is one."""
        if not (await asker.sight({namespace}, ())).sees(namespace):
            raise NotReadableError(f"you may not list the Workloads of namespace {namespace}")
        called = list(self._called(name, lambda space: space == namespace))
        here = [view for key, raw in called if (view := view_of(key, raw, routes)) is not None]
        warned, now = self.source.warnings(), self.source.now() / 1000
        without = [
            circumstances.with_warnings(view, warned, now)
            for view in unqueued.named(self.source.mirror, namespace, name, routes, self._strangers())
        ]
        found = briefs.find([*here, *without], namespace, kind, name)
        if found is not None:
            return found
        spaces = {key.partition("/")[0] for key, _ in self._called(name, lambda space: space != namespace)}
        sight = await asker.sight(spaces, ())
        other_spaces = sorted(space for space in spaces if sight.sees(space))
        hint = f"; there is one in {', '.join(other_spaces)}: use -n {other_spaces[0]}" if other_spaces else ""
        raise NoSuchJobError(f"no job {f'{kind}/' if kind else ''}{name} in namespace {namespace}{hint}")

    def _called(self, name: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, WorkloadObject]]:
        """Workloads of this name, or whose job has it, in these namespaces."""
        for key, raw in self._workloads():
            space, _, own = key.partition("/")
            if wanted(space) and name in (own, job_name(raw)):
                yield key, raw

    def _view(self, key: str, raw: WorkloadObject, routes: Routes) -> WorkloadView | None:
        """The view of a Workload, read once per version of those that were shown lately; None as `view_of`."""
        queue = self._queue_of(raw, routes)
        kept = self._read.get(key)
        if kept is not None and kept[0] is raw and kept[1] == queue:
            return kept[2]
        view = view_of(key, raw, routes)
        if view is not None:
            if len(self._read) >= _KEPT:
                self._read.clear()
            self._read[key] = (raw, queue, view)
        return view

    async def _views(self, keys: Sequence[str], routes: Routes) -> list[WorkloadView]:
        """The workloads with these keys, as views with the engine's positions. A workload that is deleted meanwhile, or can't be
        read, is left out.
        """
        found: list[WorkloadView] = []
        places: dict[str, dict[str, int]] = {}
        widths = Widths(self.source.mirror, self.source.engine)
        warned, now = self.source.warnings(), self.source.now() / 1000
        for number, key in enumerate(keys):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            raw = self.source.mirror.workloads.get(key)
            view = self._view(key, raw, routes) if raw is not None else None
            if view is None or raw is None:
                continue
            ref = self.source.mirror.job_of(raw)
            if ref is not None and (job := self.source.mirror.job(ref)) is not None:
                view = circumstances.with_job(view, job)
            view = circumstances.with_warnings(view, warned, now)
            found.append(self._placed(view, key, places, widths))
        return found

    def _placed(self, view: WorkloadView, key: str, places: dict[str, dict[str, int]], widths: Widths) -> WorkloadView:
        """The view with its place in the queue, and with what keeps its pods from nodes. `places`: of the queues so far."""
        queue, place, too_wide, unscheduled = view.cluster_queue, None, "", 0
        if view.state is JobState.PENDING and queue:
            if queue not in places:
                places[queue] = {each: number for number, each in enumerate(self._order(queue))}
            place, too_wide = places[queue].get(key), widths.too_wide(key, queue)
        if view.state is JobState.STARTING and self.source.pods is not None:
            unscheduled = sum(len(each.pods) for each in unscheduled_pods(self.source.pods.of(key)))
        if (place, too_wide, unscheduled) == (view.position, view.too_wide, view.unscheduled):
            return view
        return replace(view, position=place, too_wide=too_wide, unscheduled=unscheduled)

    async def _unqueued_views(
        self, routes: Routes, warned: Mapping[str, Sequence[Warned]], now: float, namespace: str | None = None
    ) -> list[WorkloadView]:
        """Jobs without a Workload, of one namespace or of all, and why they have none."""
        found: list[WorkloadView] = []
        for number, view in enumerate(unqueued.unqueued(self.source.mirror, routes, self._strangers(), namespace)):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if view is not None:
                found.append(circumstances.with_warnings(view, warned, now))
        return found

    def _waits(self, key: str) -> bool:
        value = self.source.mirror.workload_value(key)
        return value is not None and value.admission is None and not value.finished


def view_of(key: str, raw: WorkloadObject, routes: Routes) -> WorkloadView | None:
    try:
        return workload_view(raw, routes)
    except Exception as error:  # one object's trouble must not cost the answers about all others
        log.warning("%s is left out of an answer: %r", key, error)
        return None


def as_item(view: WorkloadView, known: Times | None) -> Json:
    meta = {"name": view.name} if view.hidden else {"namespace": view.namespace, "name": view.name, "uid": view.uid}
    item: dict[str, Any] = {"metadata": meta, **briefs.as_json(view)}
    return item | as_json(known) if known is not None else item


def gone(namespace: str, name: str) -> NoSuchJobError:
    return NoSuchJobError(f"job {name} in namespace {namespace} was just deleted")


def job_name(raw: WorkloadObject) -> str:
    return owner_of(raw).get("name") or raw.name
