"""The operator process: login, reflectors, controller, leader election, metrics, and kopf around them.

Start: every kind is listed and the engine is rebuilt from the lists; only then does this process stand for election. A new leader
lists everything once more before its first decision, so that it sees all writes of the previous leader. Shutdown: stop deciding,
let the writes in flight finish, release the lease. Losing the lease ends the process at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI

import gangline
from gangline import files
from gangline.api import quantity
from gangline.api.admission.of_jobs import identifiers
from gangline.api.read import policy_reader
from gangline.control.answers.answers import Answers
from gangline.control.answers.api import aggregated_api
from gangline.control.answers.api.pending_view import Visibility
from gangline.control.answers.source import OperatorForesight
from gangline.control.answers.source import Source as AnswersSource
from gangline.control.answers.usage.attempt_watch import AttemptWatch
from gangline.control.answers.usage.happenings import Happenings
from gangline.control.audit.audit_log import AuditLog, RecordedEngine
from gangline.control.audit.audit_reader import AuditReader
from gangline.control.controller import Controller
from gangline.control.feed.mirror import Mirror
from gangline.control.forecasting.forecast_metrics import ForecastMetrics
from gangline.control.metrics.operator_metrics import Metrics, count_and_mean
from gangline.control.metrics.recording import FOLLOWER, LEADER, STANDALONE
from gangline.control.nodes.placing.plugins import PLUGINS
from gangline.control.parts.messages import Messages
from gangline.control.process import kopf_shell, memory
from gangline.control.process.front_door import Probes, Pulse
from gangline.control.process.http_server import HttpServer
from gangline.control.process.leader_endpoint import publish
from gangline.control.process.lease import Elector
from gangline.control.process.lifeline import Lifeline
from gangline.control.process.metrics_endpoint import MetricsPage, SecuredMetrics
from gangline.control.process.options import ForecastOptions, OperatorOptions, ensure_namespace, in_order
from gangline.control.process.watches import Watches
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import policy_status
from gangline.control.writes.writer import Writer
from gangline.control.writes.writes import Writes
from gangline.engine import IsolatedEngine
from gangline.jobs import declare
from gangline.kube import config, field_tracking, ownership, versions
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json, Resource
from gangline.kube.transport import tell_refusals

if TYPE_CHECKING:
    from gangline.control.forecasting.forecasting import Forecasting

log = logging.getLogger(__name__)

#: How long writes in flight may take to finish at shutdown, in seconds.
DRAIN = 10.0
#: How long any step of the shutdown may take, in seconds, whatever hangs.
STEP = 15.0
#: outcomes of writes that no API server has refused
NOT_REFUSED = ("done", "skipped", "retried", "replaced", "aborted")
#: objects that could not be handled, and are shown by name
_MOST_SHOWN = 50


class Operator:
    """One process. `run()` returns the exit status."""

    def __init__(self, options: OperatorOptions, client: ApiClient) -> None:
        self.options = options
        self.metrics = Metrics(
            options.metrics,
            fair_sharing=options.settings.fair_sharing is not None,
            usage_based=options.settings.admission_fair_sharing is not None,
        )
        self.metrics.kueue.role = FOLLOWER if options.leader_election else STANDALONE
        self.audit = AuditLog(options.audit) if options.audit is not None else None
        self.engine = (
            RecordedEngine(options.settings, self.audit, at=client.clock.millis())
            if self.audit
            else IsolatedEngine(options.settings)
        )
        self.record = AuditReader(self.audit.index, client.clock.millis) if self.audit is not None else None
        self.stop = asyncio.Event()
        self.failed: BaseException | None = None
        self.leading = asyncio.Event()
        self._client = client
        self._lost = False
        self._led_since = 0  # milliseconds since the epoch
        self._settled = False  # everything was listed once
        self._port = 0
        self._unready = ""  # what keeps this process from standing for election
        self._elector: Elector | None = None
        self.writer = Writer(client, max_concurrency=options.max_writes, gate=self._may_write)
        self.metrics.count_requests(lambda: client.requests, lambda: self.writer.counts)
        self.metrics.count_head_delay(self._head_delay)
        self.metrics.count_head_lateness(self.engine.head_lateness)
        PLUGINS.load()
        self.metrics.count_scorer_failures(PLUGINS.failures)
        self.metrics.show_clock(lambda: client.clock.offset)
        self.metrics.count_lag(lambda: self.writer.backlog, self.engine.paused_flavors)
        identifiers.choose(annotations_first=options.jobs.annotated_identifiers)
        declare(options.jobs.declared, options.jobs.external, options.multikueue.external)
        quantity.print_as_bytes(options.resources.devices.consumed)
        self.recorder = EventRecorder(self.writer, instance=options.identity, wall=client.clock.seconds)
        self.watches = Watches(client, on_rewind=self._end_with_its_world)
        self.controller = Controller(
            client,
            self.writer,
            self.engine,
            self.recorder,
            self.metrics,
            fair_sharing=options.settings.fair_sharing is not None,
            labels_to_copy=options.labels_to_copy,
            annotations_to_copy=options.annotations_to_copy,
            resources=options.resources,
            retention=options.retention,
            progress_url=options.progress_url.rstrip("/"),
            managed=options.jobs,
            older_words=options.older_words,
            multikueue=options.multikueue,
            telemetry=options.telemetry,
            forecasting=partial(self._make_forecasting, options.forecasts) if options.forecasts is not None else None,
            served=self.watches.served,
            record=options.record,
            now=client.clock.millis,
        )
        self.controller.mirror.intake.most = memory.for_namespace()
        floor = self.controller.floor
        self.metrics.show_floor(lambda: floor.fallen_back, lambda: floor.comparisons, lambda: floor.cpu)
        self.metrics.show_phases(self.controller.stalls.phases)
        quarantine = self.controller.quarantine
        self.metrics.count_troubles(lambda: quarantine.failures, quarantine.count)
        use = quarantine.turns.use
        self.metrics.show_turns(lambda: use.most(10), lambda: use.total, lambda: len(self.controller.waiting()))
        self.forecasting = self.controller.forecasting
        self.attempts = AttemptWatch(
            self.controller.mirror,
            self.controller.pods,
            self.controller.messages,
            store=self.forecasting.history if self.forecasting is not None else None,
            now=client.clock.millis,
            wake=self.controller.wake,
            labels=options.forecasts.labels if options.forecasts is not None else (),
        )
        self.controller.attach(self.attempts)
        self.controller.budgets.read_from(self.attempts)
        self.metrics.show_budgets(self.controller.budgets.shares)
        self.visibility = Visibility(self.controller, self.forecasting)
        self.watches.deliver(self.controller.sink)
        page = MetricsPage(self.metrics)
        self._secured = (
            SecuredMetrics(client, page, options.secured_metrics, options.namespace, options.tls)
            if options.secured_metrics is not None
            else None
        )
        self._lifeline = Lifeline()
        self._pulse = Pulse(self.controller.behind)
        health = Probes(self._unlisted, self._pulse.still, self._standing)
        shown = None if self._secured else page
        self._http = HttpServer(self.controller, health, shown, self.visibility, self.leading.is_set, self._lifeline)
        self.aggregated = self._aggregated(client, options.visibility) if options.visibility is not None else None

    def _make_forecasting(
        self,
        chosen: ForecastOptions,
        mirror: Mirror,
        writes: Writes,
        messages: Messages,
        *,
        wake: Callable[[], None],
        knows_better: Callable[[str], bool],
        wanted: Callable[[], bool],
    ) -> Forecasting | None:
        """Make the forecasting part; None where this machine lacks the libraries: admission goes on without forecasts."""
        try:
            from gangline.control.forecasting.forecasting import Forecasting
        except ImportError as error:
            log.warning("no forecasts: %s", error)
            return None
        forecasting = Forecasting(
            self.engine,
            mirror,
            writes,
            self.recorder,
            history=chosen.history,
            model_file=chosen.model_file,
            use_model=chosen.use_model,
            now=self._client.clock.millis,
            leading=lambda: self.leading.is_set() and not self._lost,
            wake=wake,
            synced=self._taken_in,
            messages=messages,
            knows_better=knows_better,
            wanted=wanted,
        )
        self.metrics.registry.register(ForecastMetrics(forecasting))
        return forecasting

    async def _taken_in(self) -> None:
        """Returns once everything but pods is listed and processed."""
        await self.watches.wait_listed()
        await self.controller.caught_up()

    def _aggregated(
        self, client: ApiClient, chosen: aggregated_api.AggregatedApiOptions
    ) -> aggregated_api.AggregatedApi:
        forecasting, controller = self.forecasting, self.controller
        forecasts = forecasting.forecasts if forecasting is not None else None
        source = AnswersSource(
            controller.mirror,
            self.engine,
            forecasts,
            self._client.clock.millis,
            controller.pods,
            controller.cards,
            self.recorder.warnings,
            self.record,
            controller.stalls,
            controller.budgets,
        )
        happenings = Happenings(controller.mirror, controller.messages, self._client.clock.millis)
        controller.attach(happenings)
        answers = Answers(
            source, OperatorForesight(source, forecasting), self.visibility.order, happenings.log, self.attempts
        )
        return aggregated_api.AggregatedApi(
            client,
            self.visibility,
            chosen,
            self.options.namespace,
            tls=self.options.tls,
            answers=answers,
            accuracy=forecasting.accuracy if forecasting is not None else None,
            state=self._state,
        )

    def _state(self) -> Json:
        """How this process is, for people."""
        quarantine, mirror = self.controller.quarantine, self.controller.mirror
        return {
            "metadata": {"name": self.options.identity},
            "leader": self.options.identity,
            "version": gangline.__version__,
            "since": self._led_since / 1000 if self._led_since else None,
            "rounds": count_and_mean(self.metrics.round),
            "decisions": count_and_mean(self.metrics.decide),
            "writes": {"waiting": self.writer.queued, **self._written()},
            "known": {
                "workloads": len(mirror.workloads),
                "clusterQueues": len(mirror.objects[kube.CLUSTER_QUEUES]),
                "nodes": len(mirror.nodes),
            },
            "record": {"kept": self.audit is not None, "lost": self.audit.lost if self.audit is not None else 0},
            "history": self._history_state(),
            "notListed": self._unlisted(),
            "quarantined": [
                {"kind": resource.kind, "key": key, "error": error}
                for resource, key, error in quarantine.latest(_MOST_SHOWN)
            ],
        }

    def _written(self) -> Json:
        """How many writes of this process were done, and how many were refused."""
        ended: Counter[str] = Counter()
        for (_, _, outcome), count in self.writer.counts.items():
            ended[outcome] += count
        return {"done": ended["done"], "refused": ended.total() - sum(ended[each] for each in NOT_REFUSED)}

    def _history_state(self) -> Json | None:
        """Whether ended runs can be written to the history; None where there is none."""
        history = self.forecasting.history if self.forecasting is not None else None
        return {"waiting": history.waiting, "error": history.error} if history is not None else None

    def _head_delay(self) -> Mapping[tuple[str, ...], float]:
        queues = self.controller.mirror.objects[kube.CLUSTER_QUEUES].values()
        backfilling = [
            queue.name
            for queue in queues
            if policy_reader.backfill(self.controller.mirror.policy_of(queue)) is not None
        ]
        return policy_status.head_delays(self.engine.head_delay_seconds(), backfilling)

    def _unlisted(self) -> list[str]:
        return self.watches.unlisted() if not self._settled else []

    def _standing(self) -> str:
        """The state of this process as text: it leads, or what it waits for."""
        if self.leading.is_set() and not self._lost:
            return "leading"
        waiting = self._unready or (self._elector.waiting if self._elector is not None else "")
        return f"waiting: {waiting}" if waiting else "about to lead"

    async def run(self) -> int:
        self._port = await self._http.start(self.options.listen)
        tasks = [
            self._guard(self._pulse.run(), "pulse"),
            self._guard(self.watches.run(), "reflectors"),
            self._guard(self.controller.run(), "controller"),
            self._guard(self.watches.run_pods(), "pods"),
            self._guard(self._govern(), "leadership"),
            self._guard(self._publish(), "address"),
            self._guard(memory.give_back(), "memory"),
            self._guard(self.attempts.run(), "attempts"),
            self._guard(self.controller.budgets.run(), "budgets"),
            self._guard(self.controller.save_times.run(self.attempts), "save times"),
            self._guard(self.controller.stalls.run(lambda: self.leading.is_set() and not self._lost), "stalls"),
            self._guard(self.controller.silence.run(lambda: self.leading.is_set() and not self._lost), "silence"),
            self._guard(self.controller.refused.run(lambda: self.leading.is_set() and not self._lost), "refused pods"),
            self._guard(
                self.controller.autoscalers.run(lambda: self.leading.is_set() and not self._lost), "autoscalers"
            ),
        ]
        if self.forecasting is not None:
            tasks.append(self._guard(self.forecasting.run(), "forecasts"))
        if self.aggregated is not None:
            tasks.append(self._guard(self._aggregate(self.aggregated), "visibility"))
        if self._secured is not None:
            tasks.append(self._guard(self._secured.run(), "metrics"))
        if not self.options.track_fields:
            tasks.append(self._guard(self._end_field_tracking(), "field tracking"))
        handlers = kopf_shell.registry(
            self._client.login,
            self._witness,
            startup=self._startup,
            cleanup=lambda: self._cleanup(tasks),
        )
        try:
            await kopf_shell.run(handlers, self.stop, self.options.identity)
        finally:
            await self._cleanup(tasks)
            await self._lifeline.close()
        if self.failed is not None:
            log.error("the operator ended: %s", self.failed)
            return 1
        return 0

    def _guard(self, work: object, name: str) -> asyncio.Task[None]:
        """Run a task that the process cannot do without: when it fails, the process ends."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work, name=name)  # type: ignore[arg-type]

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("%s failed", name, exc_info=error)
                self.failed = self.failed or error
                self.stop.set()

        task.add_done_callback(ended)
        return task

    # --- life cycle ---

    async def _startup(self) -> None:
        """Wait until everything is listed: from then on this process is ready."""
        await self.watches.first_lists()
        await versions.tell(self._client)
        self.watches.warn_of_absent_kinds()
        memory.settle()
        self._settled = True
        if self.options.ready_file is not None:
            files.write(self.options.ready_file, json.dumps({"pid": os.getpid(), "port": self._port}))
        log.info("ready as %s, http://%s:%d", self.options.identity, self.options.listen[0], self._port)

    async def _publish(self) -> None:
        """Tell clients where the leader is."""
        await self.leading.wait()
        await ensure_namespace(self._client, self.options.namespace)
        await publish(self._client, self.options.namespace, self.options.listen[0], self._port)

    async def _aggregate(self, api: aggregated_api.AggregatedApi) -> None:
        """Serve the visibility API while leading: only the leader knows the queue."""
        await self.leading.wait()
        await ensure_namespace(self._client, self.options.namespace)
        await api.run()

    async def _end_field_tracking(self) -> None:
        await self.leading.wait()
        await field_tracking.end(self._client, ownership.OPERATOR)

    async def _govern(self) -> None:
        """Wait until everything is listed, then lead while this process holds the lease."""
        await self.watches.wait_listed()
        if not self.options.leader_election:
            await self._take_the_lead()
            await asyncio.Event().wait()
        await ensure_namespace(self._client, self.options.lease.namespace, report=self._note_unready)
        main, started = asyncio.get_running_loop(), asyncio.Event()
        client = self._client.for_another_thread()
        elector = Elector(
            client,
            self.options.lease,
            identity=self.options.identity,
            on_started=lambda: main.call_soon_threadsafe(started.set),
            on_rewind=lambda what: main.call_soon_threadsafe(self._end_with_its_world, what),
            alive=self._pulse.alive,
        )

        async def stand() -> None:
            async with client:
                await elector.run()

        self._elector = elector
        candidacy = self._lifeline.run(stand())
        try:
            await started.wait()
            await self._take_the_lead()
            await asyncio.shield(candidacy)  # returns when the lease is lost
            self._lose_the_lead(elector.lost_because)
        finally:
            self._lifeline.call(elector.stop)
            await candidacy

    def _note_unready(self, why: str) -> None:
        self._unready = why

    async def _take_the_lead(self) -> None:
        log.info("leading: listing once more before the first decision")
        await self.watches.list_once_more()
        if self._lost:
            return
        await self.watches.know_pods()
        await self.controller.absorb_all()
        if self._lost:
            return
        self.controller.lead()
        self._led_since = self._client.clock.millis()
        self.leading.set()
        self.metrics.leader.set(1)
        if self.options.leader_election:
            self.metrics.kueue.role = LEADER
        log.info("leading")

    def _may_write(self) -> bool:
        """Whether this process certainly holds the lease: a leader that loses contact stops before another may begin."""
        return not self._lost and (self._elector is None or self._elector.leading())

    def _lose_the_lead(self, why: str) -> None:
        self._end_at_once(why or "the lease was lost")

    def _end_with_its_world(self, what: str) -> None:
        """End this process after the store was restored from a backup. Nothing that it knows or has planned is certain any more,
        and its successor builds everything from what the store holds now.
        """
        self._end_at_once(f"the cluster's store was restored from a backup: {what}")

    def _end_at_once(self, why: str) -> None:
        """Write nothing any more, neither what is planned nor what is queued."""
        self._lost = True
        self.controller.retire()
        self.writer.abort()
        self.metrics.leader.set(0)
        self.failed = self.failed or RuntimeError(why)
        self.stop.set()

    async def _cleanup(self, tasks: list[asyncio.Task[None]]) -> None:
        """Stop deciding, flush writes, release the lease. May be called twice. The process ends whatever fails: without a lease
        it is of no use."""
        self.stop.set()  # kopf waits up to 5 s for tasks that still wait for it
        self.controller.retire()
        if not self._lost:
            async with in_order("writes", STEP):
                if not await self.writer.drain(DRAIN, least=Priority.LIFECYCLE):
                    log.warning("some writes were still in flight after %g s", DRAIN)
        if self.aggregated is not None:
            async with in_order("visibility", STEP):
                await self.aggregated.close()
        if self._secured is not None:
            async with in_order("metrics", STEP):
                await self._secured.close()
        for part in self.controller.parts:
            async with in_order(part.name, STEP):
                await part.close()
        if self.record is not None:
            async with in_order("check of the record", STEP):
                await self.record.close()
        if self.audit is not None:
            async with in_order("audit", STEP):
                await asyncio.to_thread(self.audit.close)
        self._http.close()
        for task in reversed(tasks):  # the elector releases its lease when it is cancelled
            task.cancel()
            await asyncio.wait((task,), timeout=STEP)

    def _witness(self, resource: Resource, key: str, version: str) -> None:
        self.watches.expect(resource, key, version)

    def app(self) -> FastAPI:
        """The routes of the operator's HTTP server."""
        return self._http.app()


async def serve(options: OperatorOptions, *, connections: Callable[[int], int] = lambda writes: writes + 40) -> int:
    """Log in and run until shutdown. Returns the exit status; raises config.LoginError."""
    memory.begin()
    login = config.load(options.kubeconfig, options.context)
    room = connections(options.max_writes)
    # the API server's audit log distinguishes replicas by it
    agent = f"gangline/{gangline.__version__} ({options.identity})"
    async with ApiClient(login, connections=room, observe=tell_refusals(log.warning), user_agent=agent) as client:
        return await Operator(options, client).run()
