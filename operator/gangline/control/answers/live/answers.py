"""Makes the live rows from the mirror, the engine and the last outlook, reading anew only what changed since the last time."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.control.answers import circumstances
from gangline.control.answers.ahead.times import Times, admissions_of, times_of
from gangline.control.answers.desk import SLICE, Desk, Routes, view_of
from gangline.control.answers.live.rows import JobRow, LiveRow, NodeRow, QueueRow, RunRow, Scope
from gangline.control.answers.nodes import machines
from gangline.control.answers.nodes.machines import Widths
from gangline.control.answers.sight import Asker, Sight
from gangline.control.answers.source import NoForecastsError
from gangline.control.answers.usage import accounts, shares
from gangline.control.answers.workloads.reasons import preemption
from gangline.control.answers.workloads.snapshot import WorkloadView
from gangline.control.writes.events import Warned
from gangline.engine import Outlook, Stretch, accelerators
from gangline.engine.model import Admission, Workload
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject
from gangline.objects.stored import Stored

#: objects that are only looked up before other tasks get their turn
_LOOKED_UP: Final = 10 * SLICE
#: planned runs at most, the next ones: more than any screen can show
MOST_RUNS: Final = 10_000
#: seconds for which a look waits for the outlook: one that is valid is there at once
_PATIENCE: Final = 0.2


@dataclass(slots=True)
class Kept:
    """What the last look made of a Workload, and from what."""

    raw: WorkloadObject
    job: Stored | None
    queue: str
    view: WorkloadView
    outlook: Outlook | None = None
    times: Times = field(default_factory=Times)
    #: its expected runs, each with what it was made from
    runs: dict[int, tuple[Outlook, Workload, RunRow]] = field(
        default_factory=dict[int, "tuple[Outlook, Workload, RunRow]"]
    )


@dataclass(frozen=True, slots=True)
class Promises:
    """The starts that are reserved, and the backfilled runs on whose end these count: see `Engine`. Times are milliseconds."""

    starts: Mapping[str, int | None]
    ends: Mapping[str, int]

    def reserves(self, key: str, number: int) -> bool:
        """Whether the next run of a workload has a reserved start, at an instant that is known."""
        return number == 0 and self.starts.get(key) is not None

    def must_end_by(self, key: str) -> float | None:
        """The instant by which a backfilled run must be gone, in seconds; None where no reserved start counts on that."""
        return self.ends[key] / 1000 if key in self.ends else None


class LiveAnswers(Desk):
    """The rows of the live view."""

    async def scope(self, asker: Asker, namespace: str) -> tuple[Scope, Sight]:
        """What the live view of a namespace is about ("" = the cluster), and what the asker sees of it: the ClusterQueues to
        which the namespace's LocalQueues lead and those that share quota with them, and the nodes of their flavors.
        """
        routes = self._routes()
        spaces = {key.partition("/")[0] for key in self.source.mirror.workloads} | {space for space, _ in routes}
        if self.source.pods is not None:
            spaces |= {pod.key.partition("/")[0] for pod, _ in self._strangers()}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        if not namespace:
            return Scope(), sight
        queues = shares.related(self.source, self._own_queues(namespace, routes))
        return Scope(frozenset(queues), frozenset(circumstances.flavors_of(self.source.mirror, queues))), sight

    async def latest_outlook(self) -> Outlook:
        """The expected starts. Raises NoForecastsError."""
        return await self._foresight.outlook()

    async def live_rows(self, kept: dict[str, Kept], outlook: Outlook | None) -> dict[tuple[str, str], LiveRow]:
        """All rows by table and key, as they stand. `kept`: of the last look, brought up to date."""
        routes = self._routes()
        found: dict[tuple[str, str], LiveRow] = {}
        for row in (
            *await self._job_rows(kept, routes, outlook),
            *await self._queue_rows(routes),
            *self._node_rows(),
            *await self._run_rows(kept, outlook),
        ):
            found[row.table, _key(row)] = row
        return found

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _job_rows(self, kept: dict[str, Kept], routes: Routes, outlook: Outlook | None) -> list[JobRow]:
        mirror, warned = self.source.mirror, self.source.warnings()
        now = 60 * math.ceil(self.source.now() / 60_000)  # texts with ages change once a minute
        workloads = mirror.workloads
        for gone in [key for key in kept if key not in workloads]:
            del kept[gone]
        read, widths = 0, Widths(mirror, self.source.engine)
        places: dict[str, dict[str, int]] = {}
        views: list[WorkloadView] = []
        admissions = admissions_of(outlook, frozenset(workloads)) if outlook is not None else {}
        for number, (key, raw) in enumerate(list(workloads.items())):
            if number % _LOOKED_UP == _LOOKED_UP - 1:
                await asyncio.sleep(0)
            value = mirror.workload_value(key)
            if value is not None and value.finished:
                kept.pop(key, None)
                continue
            before = kept.get(key)
            known = self._known(key, raw, routes, before, warned, now)
            if known is None:
                continue
            if known is not before:
                kept[key] = known
                if (read := read + 1) % SLICE == 0:
                    await asyncio.sleep(0)
            if outlook is not None and known.outlook is not outlook:
                known.outlook, known.times = outlook, self._times_of(key, outlook, admissions.get(key))
                known.view = self._with_end(known.view, value)
            known.view = view = self._placed(known.view, key, places, widths)
            views.append(view)
        views += await self._unqueued_views(routes, warned, now)
        by_uid = {view.uid: view for view in views}
        away: dict[str, Json | None] = {}
        rows: list[JobRow] = []
        for view in views:
            if view.cluster_queue not in away:
                away[view.cluster_queue] = self._fallen_back(view.cluster_queue)
            why = preemption(view.evicted) if view.evicted else None
            by = by_uid.get(why.uid) if why is not None else None
            times = found.times if (found := kept.get(view.key)) is not None and found.view is view else Times()
            rows.append(JobRow(view, times, by, away[view.cluster_queue]))
        return rows

    def _known(
        self,
        key: str,
        raw: WorkloadObject,
        routes: Routes,
        before: Kept | None,
        warned: Mapping[str, Sequence[Warned]],
        now: float,
    ) -> Kept | None:
        """The Workload's view, made again only if it, its job or its queue changed, or something was warned of; None if it can't
        be read.
        """
        queue, ref = self._queue_of(raw, routes), self.source.mirror.job_of(raw)
        job = self.source.mirror.job(ref) if ref is not None else None
        if before is not None and before.raw is raw and before.job is job and before.queue == queue:
            view = before.view
            if not view.warnings and view.uid not in warned and view.job_uid not in warned:
                return before
        view = view_of(key, raw, routes)
        if view is None:
            return None
        if job is not None:
            view = circumstances.with_job(view, job)
        view = circumstances.with_warnings(view, warned, now)
        if before is not None and before.view == replace(
            view, position=before.view.position, too_wide=before.view.too_wide, unscheduled=before.view.unscheduled
        ):
            view = before.view
        return Kept(raw, job, queue, view)

    def _with_end(self, view: WorkloadView, value: Workload | None) -> WorkloadView:
        """The view with the expected end of a job that runs."""
        if value is None or not value.admitted:
            return view
        end, latest_end = self._expected_end(value, value.admitted_at / 1000)
        return view if end is None else replace(view, end=end, latest_end=latest_end)

    def _expected_end(self, value: Workload, began: float) -> tuple[float | None, float | None]:
        """When a run that began at this time is expected to end, and when at the latest; None where nothing is forecast."""
        forecast, _ = self.source.expected(value.key, value.admission)
        return (began + forecast.q50, began + forecast.q90) if forecast is not None else (None, None)

    def _times_of(self, key: str, outlook: Outlook, admission: Admission | None) -> Times:
        """The times of a job, without the time that it has run, which changes always."""
        return replace(times_of(self.source, outlook.starts.get(key), admission, key), elapsed=None)

    # --- queues, nodes and runs ---------------------------------------------------------------------------------------

    async def _queue_rows(self, routes: Routes) -> list[QueueRow]:
        queues = sorted(self.source.mirror.objects[kube.CLUSTER_QUEUES])
        counted = await accounts.tallies(self.source, await self._brief(self._workloads()), set(queues), routes)
        rows = await shares.shares(self.source, queues, counted)
        return [QueueRow(each, each["clusterQueue"]) for each in rows]

    def _node_rows(self) -> list[NodeRow]:
        source = self.source
        if source.pods is None:
            return []
        found = machines.machines(source.mirror, source.engine, source.pods, self.job_names(), inventory=source.cards)
        return [NodeRow(each) for each in found]

    async def _run_rows(self, kept: Mapping[str, Kept], outlook: Outlook | None) -> list[RunRow]:
        """The runs of the outlook, without those of workloads that have ended since."""
        found: list[RunRow] = []
        seen: Counter[str] = Counter()
        made = 0
        engine = self.source.engine
        promises = Promises(engine.reservations(), engine.backfill_ends())
        for looked, run in enumerate(outlook.stretches[:MOST_RUNS] if outlook is not None else ()):
            if looked % _LOOKED_UP == _LOOKED_UP - 1:
                await asyncio.sleep(0)
            known, value = kept.get(run.workload), self.source.mirror.workload_value(run.workload)
            if outlook is None or known is None or value is None or value.finished:
                continue
            number = seen[run.workload]
            seen[run.workload] += 1
            before = known.runs.get(number)
            reserved = promises.reserves(run.workload, number)
            unchanged = before is not None and before[0] is outlook and before[1] is value
            if before is not None and unchanged and not before[2].running and before[2].reserved == reserved:
                found.append(before[2])
                continue
            row = self._run_row(run, outlook, value, known.view, number, promises)
            known.runs[number] = outlook, value, row
            found.append(row)
            if (made := made + 1) % SLICE == 0:
                await asyncio.sleep(0)
        for looked, (key, known) in enumerate(list(kept.items())):
            if looked % _LOOKED_UP == _LOOKED_UP - 1:
                await asyncio.sleep(0)
            value = self.source.mirror.workload_value(key)
            if not seen[key] and value is not None and value.admission is not None and not value.finished:
                found.append(self._begun(value, known.view, promises))
        return found

    def _begun(self, value: Workload, view: WorkloadView, promises: Promises) -> RunRow:
        """A run in progress that is in no outlook yet."""
        began = (value.admitted_at or self.source.now()) / 1000
        ends, latest_end = self._expected_end(value, began)
        return self._row(
            value,
            view,
            queue=view.cluster_queue,
            gpus=view.gpus,
            running=True,
            backfilled=value.backfilled,
            must_end_by=promises.must_end_by(value.key),
            began=began,
            ends=ends,
            latest_end=latest_end,
        )

    def _run_row(
        self, run: Stretch, outlook: Outlook, value: Workload, view: WorkloadView, number: int, promises: Promises
    ) -> RunRow:
        """`number`: how many runs of the workload come before this one, each but the last ended by an eviction."""
        running, began = value.admission is not None and number == 0, run.began
        if running:  # perhaps since after the outlook
            began = value.admitted_at or run.began
        ends = (run.ended + began - run.began) / 1000
        start = outlook.starts.get(run.workload) if not running and number == 0 else None
        forecast, _ = self.source.expected(run.workload, run.admission)
        must_end_by = promises.must_end_by(run.workload) if number == 0 else None
        if must_end_by is None and not running and run.must_end_by is not None:
            must_end_by = run.must_end_by / 1000
        return self._row(
            value,
            view,
            number=number,
            queue=run.cluster_queue,
            running=running,
            reserved=not running and promises.reserves(run.workload, number),
            backfilled=value.backfilled if running else run.backfilled,
            must_end_by=must_end_by,
            gpus=sum(accelerators(entry.usage) for entry in run.admission.pod_sets),
            began=began / 1000,
            ends=ends,
            latest_start=start.p90 / 1000 if start is not None and start.p90 is not None else None,
            latest_end=max(ends, began / 1000 + forecast.q90) if forecast is not None else None,
            after=run.after,
        )

    def _row(
        self,
        value: Workload,
        view: WorkloadView,
        *,
        queue: str,
        running: bool,
        backfilled: bool,
        must_end_by: float | None,
        gpus: int,
        began: float,
        ends: float | None,
        latest_end: float | None,
        reserved: bool = False,
        number: int = 0,
        latest_start: float | None = None,
        after: tuple[str, ...] = (),
    ) -> RunRow:
        pods = self.source.pods.of(value.key) if running and self.source.pods is not None else ()
        return RunRow(
            workload=value.key,
            number=number,
            job=view.job_name,
            job_kind=view.job_kind,
            user=view.user,
            local_queue=value.queue,
            queue=queue,
            running=running,
            gpus=gpus,
            began=began,
            ends=ends,
            latest_start=latest_start,
            latest_end=latest_end,
            backfilled=backfilled,
            reserved=reserved,
            must_end_by=must_end_by,
            after=after,
            nodes=tuple(sorted({pod.node for pod in pods if pod.node and pod.alive})),
        )


class Looks:
    """Looks at everything for the live table. Expected starts and planned runs are those of the last outlook; nobody waits for
    the next one.
    """

    def __init__(self, answers: LiveAnswers) -> None:
        self._answers = answers
        self._kept: dict[str, Kept] = {}
        self._outlook: Outlook | None = None
        self._asking: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Keep nothing: nobody watches."""
        self._kept.clear()
        self._outlook = None

    async def look(self) -> Mapping[tuple[str, str], LiveRow]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask(), name="the outlook for live rows")
        await asyncio.wait((self._asking,), timeout=_PATIENCE)
        return await self._answers.live_rows(self._kept, self._outlook)

    async def _ask(self) -> None:
        try:
            self._outlook = await self._answers.latest_outlook()
        except NoForecastsError:
            self._outlook = None


def _key(row: LiveRow) -> str:
    """What tells a row from the others of its table."""
    match row:
        case JobRow():
            return row.view.uid or row.view.key
        case QueueRow():
            fields = row.full_row
            return "/".join(
                (fields["level"], fields["clusterQueue"], fields["namespace"], fields["localQueue"], fields["name"])
            )
        case NodeRow():
            return row.machine.name
        case RunRow():
            return f"{row.workload}#{row.number}"
        case _:
            raise TypeError(type(row).__name__)
