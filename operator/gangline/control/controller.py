"""The main loop: facts in, decisions out, plans carried out.

    reflectors ──▶ inbox ──▶ mirror ──Change──▶ engine.decide(now, room) ──Decision──▶ writer
                               │                                                        ▲
                               └──────── changed jobs ──▶ plan ──Step───────────────────┘

The loop drives the operator's parts (`control.parts`), which are listed here. Everything runs on one event loop and takes no
lock. A standby feeds its mirror and its engine like the leader, but decides and writes nothing.

A round reads events, decides and plans for a bounded time (`control.isolation.turns`). If anything is left, the next round
follows after a breath, in which answers of the API server, scrapes and timers are served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gangline.api.admission.multikueue import CONTROLLER as BY_MULTIKUEUE
from gangline.api.read.configuration import multikueue as multikueue_settings
from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.api.read.configuration.sections import FOR_EVER, Retention
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules
from gangline.control.checks.active_checks import ActiveChecks
from gangline.control.checks.multikueue.manager_quotas import ManagerQuotas
from gangline.control.checks.multikueue.multikueue import MultiKueue
from gangline.control.checks.provisioning.activity import CONTROLLER as BY_PROVISIONING
from gangline.control.checks.provisioning.autoscalers import Autoscalers
from gangline.control.checks.provisioning.provisioning import Provisioning
from gangline.control.decisions.carrying_out import Decisions
from gangline.control.decisions.deciding import LONGEST_ROUND, Deciding
from gangline.control.decisions.reports import Announcements, FreshWorkloads, Troubles
from gangline.control.feed.cluster_feed import ClusterFeed
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodFeed, PodIndex
from gangline.control.feed.pod_owners import PodOwners
from gangline.control.feed.request_rules import RequestRules
from gangline.control.feed.selector_queue import SelectorQueue
from gangline.control.feed.tracking import Tracking
from gangline.control.floor.floor_watch import FloorWatch
from gangline.control.isolation.inbox import Inbox
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.kernel.context import Context
from gangline.control.kinds.dependencies import Dependencies
from gangline.control.kinds.group_index import GroupIndex
from gangline.control.kinds.group_planning import GroupPlanning
from gangline.control.kinds.job_planning import JobPlanning
from gangline.control.kinds.retention import Retainer
from gangline.control.kinds.serving_parents import HeldIndex, ServedParents
from gangline.control.kinds.serving_planning import ServingPlanning
from gangline.control.kinds.unowned_workloads import UnownedWorkloads
from gangline.control.kinds.upkeep import ClassPriorities, ClearedGates, LeavingJobs, ReplacedSlices
from gangline.control.kinds.variants import Variants
from gangline.control.metrics.gauges import Scrape, Sheets
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.metrics.workload_tally import WorkloadTally
from gangline.control.nodes.cards.inventory_feed import InventoryFeed, of_node
from gangline.control.nodes.company.profiling import Profiling
from gangline.control.nodes.gates.elastic_gates import ElasticGates
from gangline.control.nodes.gates.held_unbound import HeldUnbound
from gangline.control.nodes.gates.node_gates import NodeGates
from gangline.control.nodes.gates.pod_gates import PodGates
from gangline.control.nodes.recovery import stuck_pods, unhealthy_nodes
from gangline.control.nodes.recovery.departed_workloads import DepartedWorkloads
from gangline.control.nodes.recovery.fencing import Fencing, out_of_reach_since
from gangline.control.nodes.recovery.silent_nodes import SilentNodes
from gangline.control.nodes.recovery.stray_pods import StrayPods
from gangline.control.nodes.recovery.stuck_pods import StuckPods
from gangline.control.nodes.recovery.swaps import Recoveries
from gangline.control.nodes.recovery.unhealthy_nodes import UnhealthyNodes
from gangline.control.nodes.stall.refused_pods import RefusedPodsOfRuns
from gangline.control.nodes.stall.stall_watch import StallWatch
from gangline.control.nodes.stall.unscheduled_pods import UnscheduledPodsOfRuns
from gangline.control.nodes.telemetry.telemetry_rules import TelemetryRules
from gangline.control.nodes.windows.deadlines import Deadlines
from gangline.control.nodes.windows.reserving import Reserving
from gangline.control.nodes.windows.save_times import SaveTimes
from gangline.control.parts.messages import (
    DeliveryFailed,
    FactObserved,
    Messages,
    NoticeLimited,
    ObjectQuarantined,
    ObjectRead,
    WriteResolved,
)
from gangline.control.parts.part import Part
from gangline.control.queues.budgets import Budgets
from gangline.control.queues.objects_in_use import ObjectsInUse
from gangline.control.queues.order_watch import OrderWatch
from gangline.control.queues.queue_statuses import QueueStatuses
from gangline.control.queues.quota_plans import QuotaPlans
from gangline.control.recording.cluster_record import ClusterRecord, RecordOptions
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.notify.notices import Notices
from gangline.control.writes.notify.outbox import Outbox, SecretReader
from gangline.control.writes.writer import LastWrites, Writer
from gangline.control.writes.writes import Writes
from gangline.engine import Engine, IsolatedEngine, model
from gangline.kube.client import ApiClient
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Resource
from gangline.objects import view
from gangline.telemetry import PrometheusSource, ReadingSource

if TYPE_CHECKING:
    from gangline.control.forecasting.forecasting import Forecasting

log = logging.getLogger(__name__)

#: Seconds between two rounds if something is left: enough for all requests in progress to go several steps further.
BREATH: Final = 0.01


def wall_millis() -> int:
    return int(time.time() * 1000)


class MakeForecasting(Protocol):
    """Creates the forecasting service; None where this machine lacks the libraries."""

    def __call__(
        self,
        mirror: Mirror,
        writes: Writes,
        messages: Messages,
        *,
        wake: Callable[[], None],
        knows_better: Callable[[str], bool],
        wanted: Callable[[], bool],
    ) -> Forecasting | None: ...


class Controller:
    """The operator's parts and the loop that drives them. `lead()` lets it act."""

    def __init__(
        self,
        client: ApiClient,
        writer: Writer,
        engine: Engine,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        fair_sharing: bool = False,
        labels_to_copy: Sequence[str] = (),
        annotations_to_copy: Sequence[str] = (),
        resources: ResourceRules = EVERYTHING,
        retention: Retention = FOR_EVER,
        progress_url: str = "",
        managed: ManagedJobs = EVERY_QUEUED,
        older_words: bool = False,
        telemetry: ReadingSource | None = None,
        forecasting: MakeForecasting | None = None,
        multikueue: multikueue_settings.MultiKueueSettings = multikueue_settings.USUAL,
        served: Callable[[Resource], bool] = lambda resource: True,
        record: RecordOptions | None = None,
        now: Callable[[], int] = wall_millis,
    ) -> None:
        self.engine = engine
        gates = engine.settings.gates
        self.leading = False
        self._now = now
        self._wake = asyncio.Event()
        self._woken_at = 0.0  # time.monotonic() of the first wake-up since the last round began
        self._round = metrics.round
        leading = lambda: self.leading  # noqa: E731

        # shared by all parts: messages, quarantine, the mirror, writes in flight
        self.messages = messages = Messages()
        self.quarantine = quarantine = Quarantine(
            lambda subject, obj, what: messages.publish(ObjectQuarantined(*subject, obj, what))
        )
        selectors = SelectorQueue(wake=self.wake)
        self._inbox = Inbox(quarantine.turns)
        self.mirror = mirror = Mirror(
            self._observe,
            quarantine.note_unreadable,
            quarantine.note_readable,
            messages=messages,
            labels_to_copy=labels_to_copy,
            annotations_to_copy=annotations_to_copy,
            progress_url=progress_url,
            rules=RequestRules(resources, selectors),
            managed=managed,
            now=now,
        )
        tracking = Tracking()
        self.writes = writes = Writes(
            client, writer, mirror, tracking, now=now, messages=messages, older_words=older_words
        )
        cluster = ClusterFeed(client, mirror, tracking, messages, quarantine)
        # what metrics show
        tally = WorkloadTally(metrics.kueue, now, metrics.forget_queue, engine.cohorts)
        metrics.kueue.attach(mirror.get, engine.cohorts_of)
        sheets: Sheets = {}
        listed = mirror.objects.__getitem__
        metrics.show_queues(lambda: Scrape(engine, metrics.kueue, tally, mirror.get, listed, sheets))

        owners = PodOwners(mirror, out_of_reach=lambda node: out_of_reach_since(node) is not None)
        self.pods = pods = PodIndex(engine.observe, mirror.pod_counts, owners=owners, messages=messages)

        # notifications
        outbox = Outbox(
            SecretReader(client).read,
            outcome=metrics.notified,
            complain=lambda to, why: messages.publish(DeliveryFailed(to.namespace, to.name, why)),
            limited=lambda workload, why: messages.publish(NoticeLimited(workload, why)),
        )
        self.notices = notices = Notices(mirror, outbox.put, now=now, messages=messages)
        context = Context(
            client=client,
            engine=engine,
            mirror=mirror,
            pods=pods,
            owners=owners,
            writes=writes,
            writer=writer,
            recorder=recorder,
            notices=notices,
            metrics=metrics,
            messages=messages,
            quarantine=quarantine,
            gates=gates,
            served=served,
            now=now,
            wake=self.wake,
        )

        inventory = InventoryFeed(
            context,
            count_anew=cluster.count_anew,
            tell=lambda cards: self._observe(of_node(cards)),
            selectors=selectors,
        )
        #: the cards of nodes, and who sits on them
        self.cards = inventory.cards

        # recovery of gangs that lose nodes
        departed = DepartedWorkloads(context, writes.pending, engine.observe)
        recoveries = Recoveries(context, lambda workload: engine.observe(model.WriteFailed(workload)))

        #: windows in which nodes are kept for somebody, or for nobody
        deadlines = Deadlines(context)
        self.save_times = SaveTimes(mirror, messages, self._now)
        reserving = Reserving(context, self._observe, self.save_times, deadlines)

        #: quotas that change by the calendar, or with nodes
        quota_plans = QuotaPlans(context, self._observe, deadlines)

        #: orders of queues that change by windows of time, or as the queues become full
        orders = OrderWatch(context, self._observe)

        #: nodes that do not answer, where a policy has them probed
        self.silence = SilentNodes(context, mirror.recovery_for)

        Announcements(context, leading=leading)

        # decisions
        decisions = Decisions(context, recoveries, older_words=older_words)
        self._deciding = Deciding(context, decisions, observe=self._observe)
        troubles = Troubles(context, decisions, leading=leading)
        if isinstance(engine, IsolatedEngine):
            engine.report_faults_to(troubles.engine_fault)

        # stall watch and forecasts
        self.stalls = stalls = StallWatch(context, self._observe, source=telemetry)
        prometheus = telemetry if isinstance(telemetry, PrometheusSource) else None
        telemetry_rules = TelemetryRules(context, self._observe, prometheus)
        self.held = held = HeldUnbound(context)
        metrics.count_held_unbound(lambda: held.seconds(now()))
        self.refused = refused = RefusedPodsOfRuns(context)
        unscheduled = UnscheduledPodsOfRuns(context)
        #: runtime forecasts, if enabled
        self.forecasting: Forecasting | None = None
        if forecasting is not None:
            wanted = lambda: self.leading and notices.wants("StartMoved")  # noqa: E731
            self.forecasting = forecasting(
                mirror, writes, messages, wake=self.wake, knows_better=stalls.knows_better, wanted=wanted
            )

        #: flavors whose nodes an autoscaler makes
        self.autoscalers = autoscalers = Autoscalers(context)

        #: what is used of budgets of GPU-hours
        self.budgets = budgets = Budgets(context, self._observe)

        #: what order and backfill by forecasts cost, and which queues follow something else for now
        self.floor = floor = FloorWatch(engine, mirror, messages, now=now, wake=self.wake)

        # pods that are queued: by their groups, and by the objects that make them
        groups = GroupIndex(mirror)
        families = ServedParents(mirror, HeldIndex(mirror.managed.pods_of, lambda ref: mirror.job(ref) is not None))

        # admission checks that are answered here
        provisioning = Provisioning(context)
        other_clusters = MultiKueue(context, multikueue, groups)
        quotas = ManagerQuotas(context, other_clusters.clusters, patience=multikueue.worker_lost_timeout)
        judges = {BY_PROVISIONING: provisioning.judge, BY_MULTIKUEUE: other_clusters.judge}

        # plans of pods
        group_planning = GroupPlanning(context, groups, families, other_clusters)
        serving = ServingPlanning(context, families, group_planning)

        queue_writes = QueueStatuses(
            context,
            fair=fair_sharing,
            fallen_back=lambda: floor.fallen_back,
            automation_of=quotas.automation_of,
            budgets=budgets,
            telemetry=telemetry_rules,
            orders=lambda: orders.in_force,
        )
        for answered in (WriteResolved, ObjectRead):
            messages.subscribe(answered, lambda message: self.wake())

        #: The operator's table of contents. Parts observe, settle, act and close in this order: facts come before the conclusions
        #: from them, decisions before the plans that carry them out, and a part that marks objects for another comes before it.
        self.parts: tuple[Part, ...] = (
            # facts
            cluster,  # feeds the mirror with everything but pods
            tally,  # counts Workloads for metrics
            PodFeed(pods, owners, quarantine, all_listed=mirror.know_pods),  # feeds the pod index
            inventory,  # cards of nodes, and who sits on them
            departed,  # quota of deleted Workloads whose pods still run
            Profiling(context, self._observe),  # JobProfiles, and what to expect of pairs that nobody measured
            reserving,  # windows of Reservations, and the nodes that are cordoned in them
            orders,  # orders of ClusterQueues at this time, and later
            quota_plans,  # quotas of ClusterQueues at this time, and later
            telemetry_rules,  # what Prometheus says of nodes, and workloads that have to leave them for it
            # checks; requests of evicted workloads are deleted before these are admitted again
            provisioning,
            other_clusters,  # workloads that run in other clusters
            *([quotas] if multikueue.enabled and multikueue.sums_quotas else []),  # and how much of them
            ActiveChecks(context, judges),  # whether each check is active
            Dependencies(context, self._observe),  # jobs that wait for others
            # decisions
            budgets,  # which workloads do not start, since their budget is used
            decisions,  # state of decisions being carried out
            self._deciding,  # lets the engine decide, and carries out its decisions
            # gangs that lose nodes, and jobs that stop: they mark jobs to be planned
            self.silence,
            *(
                [
                    UnhealthyNodes(context),  # `status.unhealthyNodes`
                    # pods that wait for such a node in vain
                    StrayPods(context),
                ]
                if gates.get(unhealthy_nodes.GATE, True)
                else []
            ),
            LeavingJobs(context),  # jobs whose last pods end
            recoveries,  # lost pods replaced, gangs restarted or queued again
            Fencing(context, mirror.recovery_for),  # pods that can't terminate
            *([StuckPods(context)] if gates.get(stuck_pods.GATE) else []),
            # plans
            JobPlanning(context, recoveries),
            serving,  # kinds whose pods wait in their place: their Workloads, and the groups of their pods
            # slices of elastic jobs that grew
            ReplacedSlices(context),
            group_planning,  # plain pods and pod groups
            # Workloads that no job plans for
            UnownedWorkloads(context, departed, planned=group_planning.plans),
            ClassPriorities(context),  # Workloads whose class has another value now
            ClearedGates(context),  # Workloads that are gated no more
            *([FreshWorkloads(context)] if gates.get("UnadmittedWorkloadsExplicitStatus", False) else []),
            *([Retainer(context, retention)] if retention != FOR_EVER else []),  # what ended long ago
            # jobs that are tried on several flavors at a time
            Variants(context),
            # gated pods, whose domains follow from admissions
            # placed by topology
            PodGates(context),
            # of jobs that grow
            ElasticGates(context),
            # on flavors without a topology
            NodeGates(context),
            held,  # accelerators that wait for pods that can't be bound
            # what users see
            floor,  # modes of ClusterQueues whose policy costs more than it gains
            # statuses of queues and policies
            queue_writes,
            ObjectsInUse(context),  # configuration objects that others use stay
            notices,  # which notices go to whom
            outbox,  # and their delivery
            stalls,  # gangs that hang
            refused,  # gangs whose pods the API server refuses
            unscheduled,  # and those with pods that the scheduler places nowhere
            autoscalers,  # flavors that can get more nodes
            # the history of the cluster
            *([ClusterRecord(mirror, record, now)] if record is not None else []),
            LastWrites(writer),  # closed here: nothing is written any more
            *([self.forecasting] if self.forecasting is not None else []),  # observes all facts, and learns from them
        )
        kinds = {kind for part in self.parts for kind in part.kinds}
        self._observers = {kind: [part for part in self.parts if kind in part.kinds] for kind in kinds}
        self._sort_parts()

    def attach(self, part: Part) -> None:
        """Add a part that only looks, after all others. To be called before this process leads."""
        self.parts = (*self.parts, part)
        for kind in part.kinds:
            self._observers.setdefault(kind, []).append(part)
        self._sort_parts()

    def _sort_parts(self) -> None:
        """Note which parts have something to do in every round: most have not, and rounds are many."""
        self._settling = [part for part in self.parts if type(part).settle is not Part.settle]
        self._acting = [part for part in self.parts if type(part).act is not Part.act]

    # --- in ---

    def sink(self, resource: Resource) -> Callable[[Event], None]:
        """Returns the function that receives the events of the reflector of `resource`."""

        def take(event: Event) -> None:
            event = Upsert(view(resource, event.obj)) if isinstance(event, Upsert) else event
            self._inbox.put(resource, event)
            self.wake()

        return take

    def behind(self) -> float:
        """Seconds for which a round has been due. May be called from any thread."""
        return time.monotonic() - self._woken_at if self._wake.is_set() else 0.0

    def waiting(self) -> set[str]:
        """The namespaces with events or objects that the last round left for the next one."""
        return {*self._inbox.lagging(), *self.quarantine.turns.waiting}

    def wake(self) -> None:
        """Take another round."""
        if not self._wake.is_set():
            self._woken_at = time.monotonic()
            self._wake.set()

    def _observe(self, change: model.Change) -> None:
        self.engine.observe(change)
        self.messages.publish(FactObserved(change))

    def lead(self) -> None:
        """Start leading: from now on this process decides. Everything is planned once, whatever happened before."""
        self.leading = True
        for part in self.parts:
            part.lead()
        self.wake()

    def retire(self) -> None:
        """Decide nothing more; earlier decisions are still carried out."""
        self.leading = False

    # --- the loop ---

    async def run(self) -> None:
        """Run until cancelled. No error about one object stops the others, not even an unexpected one."""
        while True:
            await self._attempt_to_wait(self._woken)
            self._wake.clear()
            begun = time.perf_counter()
            self._attempt("events", self.absorb)
            if self.leading:
                self.act()
            if self._is_left():
                self.wake()
            self._round.observe(time.perf_counter() - begun)

    def _is_left(self) -> bool:
        return bool(self._inbox or self.quarantine.turns.waiting)

    async def _attempt_to_wait(self, wait: Callable[[], Awaitable[None]]) -> None:
        try:
            await wait()
        except Exception:
            self.quarantine.failures["waiting", ""] += 1
            log.exception("the next wake-up is unknown: waiting a second")
            await asyncio.sleep(1.0)

    async def _woken(self) -> None:
        """Returns when something has happened or is due, and the facts that belong to it have been gathered; after a breath if
        the last round left something.
        """
        rest = self._deciding.rest
        if self._is_left():
            await asyncio.sleep(max(BREATH, rest))
            return
        times = (self.engine.next_wakeup(self._now()), *(part.due for part in self.parts)) if self.leading else ()
        due = min((time for time in times if time is not None), default=None)
        soonest = 0.0 if self._deciding.room else LONGEST_ROUND
        timeout = None if due is None else max(soonest, (due - self._now()) / 1000)
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            await asyncio.sleep(rest)
            return
        await asyncio.sleep(self._deciding.gathering)

    async def absorb_all(self) -> None:
        """Process all events that have arrived, with breaths in between."""
        mark = self._inbox.mark()
        while True:
            self.absorb()
            if self._inbox.has_read(mark):
                return
            await asyncio.sleep(BREATH)

    async def caught_up(self) -> None:
        """Returns once the loop has processed all events that have arrived."""
        mark = self._inbox.mark()
        while True:
            if self._inbox.has_read(mark):
                return
            await asyncio.sleep(BREATH)

    def absorb(self) -> bool:
        """Begin a round: process the events that have arrived, in turn, until all are or the round is over. Returns whether all
        are.
        """
        self.quarantine.turns.begin()
        for resource, event in self._inbox.events():
            if isinstance(event, Upsert):
                key = event.obj.key
            else:
                key = event.key if isinstance(event, Removed) else ""
            self.quarantine.attempt("observing it", resource, key, partial(self._show, resource, event))
        for part in self._settling:
            part.settle()
        return not self._inbox

    def _show(self, resource: Resource, event: Event) -> None:
        for part in self._observers.get(resource, ()):
            part.observe(resource, event)

    def act(self) -> None:
        """Decide, and carry everything whose circumstances changed one step further."""
        for part in self._acting:
            self._attempt(part.name, partial(part.act, self._now()))

    def _attempt(self, name: str, work: Callable[[], object]) -> None:
        """Run one part's share of a round. An error is logged, and the other parts go on."""
        try:
            work()
        except Exception:
            self.quarantine.failures[name, ""] += 1
            log.exception("%s failed in this round", name)
