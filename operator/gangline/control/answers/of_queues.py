"""Answers about queues and nodes: what runs next, who has which share, what has run, and what is left on nodes."""

from __future__ import annotations

import asyncio

from gangline.control.answers import circumstances
from gangline.control.answers.ahead import capacity, changes, whatif
from gangline.control.answers.desk import SLICE, Desk, Wish, as_item
from gangline.control.answers.nodes import machines, moves
from gangline.control.answers.pages import EVERYTHING, Listed, ListPage
from gangline.control.answers.refusals import NoSuchNodeError, NotReadableError, NotWaitingError, PodsUnknownError
from gangline.control.answers.sight import Asker
from gangline.control.answers.usage import accounts, past, shares
from gangline.control.answers.workloads.snapshot import JobState, how_searched
from gangline.engine import accelerators
from gangline.forecast.history.attempts import AttemptQuery
from gangline.kube import resources as kube
from gangline.kube.resources import Json


class QueueAnswers(Desk):
    """Answers about queues and nodes."""

    async def plan(
        self, asker: Asker, namespace: str, cluster_queue: str, horizon: float, page: ListPage = EVERYTHING
    ) -> Listed:
        """A page of the runs in progress and those expected within `horizon` seconds, by queue and start.

        With a namespace, those of the ClusterQueues to which its LocalQueues lead. The simulation may be some minutes old: a run
        whose workload has ended since is left out, and one runs whose workload holds quota. Raises NoSuchQueueError,
        NoForecastsError.
        """
        routes = self._routes()
        queues = self._queues_of(Wish(namespace, cluster_queue), routes)
        seen = await self._foresight.outlook()
        now = self.source.now()
        until = now + horizon * 1000
        there = self.source.mirror.workloads
        wanted = [
            run
            for run in seen.stretches
            if run.began < until
            and (queues is None or run.cluster_queue in queues)
            and (raw := there.get(run.workload)) is not None
            and not raw.finished
        ]
        ordered = sorted(wanted, key=lambda run: (run.cluster_queue, run.began, run.workload))
        runs, left = page.cut(ordered)
        spaces = {run.workload.partition("/")[0] for run in runs}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        jobs = self.job_names()
        found: list[Json] = []
        for number, run in enumerate(runs):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            space, _, name = run.workload.partition("/")
            visible = sight.sees(space)
            label = sight.label(run.workload)
            found.append(
                {
                    "metadata": {"namespace": space, "name": name} if visible else {"name": label},
                    "hidden": not visible,
                    "job": sight.name(run.workload, jobs),
                    "user": accounts.user_of_workload(self.source, run.workload) if visible else "",
                    "queue": self._local_queue(run.workload) if visible else "",
                    "clusterQueue": sight.queue_name(run.cluster_queue),
                    "state": str(
                        JobState.RUNNING if run.began <= now and there[run.workload].holds_quota else JobState.PENDING
                    ),
                    "gpus": sum(accelerators(entry.usage) for entry in run.admission.pod_sets),
                    "from": run.began / 1000,
                    "to": run.ended / 1000,
                    "after": [sight.name(other, jobs) for other in run.after],
                    "searched": how_searched(there[run.workload]) if visible and run.began <= now else "",
                    "record": self._queue_record(run.cluster_queue),
                    "fallenBack": self._fallen_back(run.cluster_queue),
                }
            )
        return Listed(found, left)

    def _local_queue(self, key: str) -> str:
        value = self.source.mirror.workload_value(key)
        return value.queue if value is not None else ""

    async def nodes(self, asker: Asker, namespace: str, page: ListPage = EVERYTHING, cluster_queue: str = "") -> Listed:
        """A page of the nodes, by name, with who sits on them: of the flavors that the namespace's queues offer, "" = all.

        With a ClusterQueue, of its flavors. Raises PodsUnknownError, NoSuchQueueError.
        """
        pods = self.source.pods
        if pods is None:
            raise PodsUnknownError("pods are not known here")
        routes = self._routes()
        queues = self._queues_of(Wish(namespace, cluster_queue), routes)
        source = self.source
        flavors = circumstances.flavors_of(source.mirror, queues) if queues is not None else None
        found = machines.machines(source.mirror, source.engine, pods, self.job_names(), flavors, source.cards)
        shown, left = page.cut(found)
        sight = await asker.sight(set(machines.namespaces_of(shown)), ())
        rows = [machines.as_json(each) for each in machines.seen_by(sight, shown)]
        return Listed(rows, left)

    async def moves(self, asker: Asker, namespace: str, node: str) -> list[Json]:
        """The jobs that would leave a node, were it vacated: see `moves`. The node is of a flavor that the namespace's queues
        offer, unless the asker sees everything. Raises NoSuchNodeError, PodsUnknownError, NoForecastsError.
        """
        if self.source.pods is None:
            raise PodsUnknownError("pods are not known here")
        routes = self._routes()
        found = moves.sitting(self.source, node)
        sight = await asker.sight({key.partition("/")[0] for key in found}, self._own_queues(namespace, routes))
        offered = circumstances.flavors_of(self.source.mirror, self._own_queues(namespace, routes))
        raw = self.source.mirror.nodes.get(node)
        of_them = raw is not None and machines.flavors_of(raw, machines.labels_of(self.source.mirror, offered))
        if raw is None or not (sight.everything or of_them):
            raise NoSuchNodeError(f"there is no node {node} of a flavor that the queues of namespace {namespace} offer")
        evacuation = await self._foresight.evacuation(node) if found else ()
        return moves.rows(
            self.source, sight, found, evacuation, lambda key, raw: accounts.read(self.source, key, raw, routes)
        )

    async def shares(
        self, asker: Asker, namespace: str, cluster_queue: str = "", page: ListPage = EVERYTHING
    ) -> Listed:
        """A page of the shares: see `shares`. With a namespace, of the ClusterQueues to which its LocalQueues lead and those that
        share quota with them. Raises NoSuchQueueError.
        """
        routes = self._routes()
        asked = self._queues_of(Wish(namespace, cluster_queue), routes)
        queues = shares.related(
            self.source, set(self.source.mirror.objects[kube.CLUSTER_QUEUES]) if asked is None else asked
        )
        counted = await accounts.tallies(self.source, await self._brief(self._workloads()), set(queues), routes)
        spaces = {space for (space, _), queue in routes.items() if queue in queues}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        full_rows = await shares.shares(self.source, queues, counted)
        rows = [row for each in full_rows if (row := shares.seen_by(sight, each)) is not None]
        return Listed(*page.cut(rows))

    async def capacity(
        self, asker: Asker, namespace: str, at: float | None, page: ListPage = EVERYTHING, cluster_queue: str = ""
    ) -> Listed:
        """A page of what the cluster is planned to have at a time, in seconds; None: now. See `capacity`. With a namespace, its
        queues and their flavors. Raises NoSuchQueueError, WrongTimeError.
        """
        now = self.source.now()
        then = now if at is None else capacity.checked(round(at * 1000), now)
        routes = self._routes()
        asked = self._queues_of(Wish(namespace, cluster_queue), routes)
        queues = set(self.source.mirror.objects[kube.CLUSTER_QUEUES]) if asked is None else asked
        flavors = None if asked is None else circumstances.flavors_of(self.source.mirror, asked)
        sight = await asker.sight({namespace}, self._own_queues(namespace, routes))
        rows = await capacity.rows(self.source, sight, queues, flavors, then)
        return Listed(*page.cut(rows))

    async def past(
        self, asker: Asker, namespace: str, since: float, page: ListPage = EVERYTHING, cluster_queue: str = ""
    ) -> Listed:
        """A page of the runs that ended in the last `since` seconds: see `past`. With a ClusterQueue, its runs of all namespaces,
        or of the one. Raises NoSuchQueueError.
        """
        routes = self._routes()
        self._check_queue(Wish(namespace, cluster_queue), routes)
        after = self.source.now() / 1000 - since
        found = await accounts.ended(self.source, self._foresight, namespace, after, routes)
        if self.record is not None:
            query = AttemptQuery(since=after, namespace=namespace)
            found = past.with_attempts(found, await self.record.attempts(query), after)
        runs = [run for run in found if cluster_queue in ("", run.cluster_queue)]
        shown, left = page.cut(runs)
        sight = await asker.sight({run.namespace for run in shown}, self._own_queues(namespace, routes))
        return Listed(list(past.rows(shown, sight)), left)

    async def would_preempt(self, asker: Asker, namespace: str, kind: str, name: str) -> tuple[Json, Json]:
        """A waiting job of the namespace, and whom it would preempt were it next.

        Raises NoSuchJobError, WrongNameError, NotWaitingError, NoForecastsError.
        """
        routes = self._routes()
        view = await self._found(asker, namespace, kind, name, routes)
        if view.state is not JobState.PENDING:
            raise NotWaitingError(f"{view.job} does not wait in a queue: it is {view.state.lower()}")
        spaces = {key.partition("/")[0] for key, _ in self._workloads()}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        preemption = await accounts.would_preempt(self.source, self._foresight, view, sight, self.job_names(), routes)
        _, (shown,) = await self._shown(asker, [view], self._own_queues(namespace, routes), routes)
        return as_item(shown, None), preemption

    async def what_if_changed(self, asker: Asker, namespace: str, given: object) -> Json:
        """What a change would do, asked in a namespace: see `changes`. Only who sees everything may ask about quotas and nodes.

        Raises WrongChangeError, NoSuchJobError, WrongNameError, NotWaitingError, NotReadableError, NoForecastsError.
        """
        wanted = changes.read(given)
        routes = self._routes()
        view = None
        if wanted.of_job:
            view = await self._found(asker, namespace, wanted.kind, wanted.name, routes)
            if view.state is not JobState.PENDING:
                raise NotWaitingError(f"{view.job} does not wait in a queue: it is {view.state.lower()}")
        spaces = {key.partition("/")[0] for key, _ in self._workloads()}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        if view is None and not sight.everything:
            raise NotReadableError("only who may list the Workloads of all namespaces may ask about quotas and nodes")
        return await changes.compare(self.source, self._foresight, sight, self.job_names(), wanted, view)

    async def what_if(self, asker: Asker, namespace: str, job: object, date: object = None) -> Json:
        """The expected start of a job that is not submitted, in the namespace, if it were at a date; None: now. See `whatif`.
        Raises WrongJobError, NoForecastsError.
        """
        sight = await asker.sight({namespace}, self._own_queues(namespace, self._routes()))
        return await whatif.what_if(self.source, self._foresight, sight, self.job_names(), namespace, job, date)
