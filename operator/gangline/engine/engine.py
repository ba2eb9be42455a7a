"""The engine: facts in, decisions out. A thin facade; each idea has a module of its own.

`observe` stores a fact and puts the workload concerned at its place. `decide` returns what follows from all facts at a time.
Decisions are assumed at once: the fact that confirms one changes nothing, a fact that contradicts it undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gangline.engine.cycle.attempt import CycleRecord, CycleTally
from gangline.engine.cycle.pending_reasons import PendingReasons, why
from gangline.engine.flavors.assignment import verdict_of
from gangline.engine.interference.work_paths import ENDLESS
from gangline.engine.model import (
    Admit,
    Change,
    ClusterQueue,
    ClusterQueueFigures,
    CohortFigures,
    Decision,
    Dependencies,
    Explanation,
    ForeignPod,
    Gone,
    Item,
    LocalQueue,
    Millis,
    Node,
    NodeCards,
    NodeEviction,
    OrderInForce,
    PastPreemption,
    PlacementPolicy,
    PodSet,
    Put,
    QueueStatus,
    Recall,
    ReservedHead,
    ReservedWindow,
    RuntimeForecast,
    SaveTime,
    Settings,
    SlowedRun,
    SpentBudget,
    Submitter,
    Workload,
    WorkloadPods,
    WriteFailed,
)
from gangline.engine.model.runtime import NEVER
from gangline.engine.occupancy.node_ledger import HOSTS, host_of
from gangline.engine.placing.hosts import CPU
from gangline.engine.placing.policy_ranking import rank_nodes
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.preemption_log import PreemptionLog
from gangline.engine.queues.promises import Lateness, Promises
from gangline.engine.queues.states import Journal, Transition
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import QuotaLimits, limits
from gangline.engine.recovery.healing import Healing
from gangline.engine.recovery.recalls import Recalls
from gangline.engine.scheduler import Scheduler
from gangline.engine.state.cluster_intake import ClusterIntake
from gangline.engine.state.figures import (
    EngineSnapshot,
    as_assumed,
    cluster_queue_figures,
    cluster_queue_status,
    cohort_figures,
    cohort_share,
    cohorts_above,
    facts,
    local_queue_state,
    local_queue_status,
    roots_with_a_history,
    snapshot,
    workloads_of,
)
from gangline.engine.state.lifecycle import Lifecycle
from gangline.engine.state.store import Store
from gangline.engine.state.unscheduled import matches_no_node, scheduled_by
from gangline.engine.state.workload_intake import WorkloadIntake

#: rounds in which a new engine may find out what it would start
_MOST_ROUNDS = 100


class Engine:
    """The engine. Not thread-safe. Times are milliseconds since the epoch and must not run backwards between calls."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._journal = Journal()
        self._tally = CycleTally()
        self._preemptions = PreemptionLog()
        self._promises = Promises()
        self._build()

    def _build(self) -> None:
        """The state of an engine without facts."""
        self._store = store = Store(self.settings, self._journal, self._preemptions, self._promises)
        self._intake = WorkloadIntake(store)
        self._cluster = ClusterIntake(store)
        self._lifecycle = Lifecycle(store)
        self._scheduler = Scheduler(store, self._tally)
        self._healing = Healing(store)
        self._recalls = Recalls(store)
        self._pending_reasons = PendingReasons(store, self._scheduler.backfill)

    # --- facts --------------------------------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        """Take in one fact. Facts are idempotent, arrive in any order and may name unknown objects."""
        match change:
            case Put(Workload() as workload):
                self._intake.put(workload)
            case Put(item):
                self._cluster.put(type(item), key_of(item), item)
            case Gone(kind, key) if kind is Workload:
                self._intake.forget(key)
            case Gone(kind, key):
                if kind is ClusterQueue:
                    self._tally.forget(key)
                self._cluster.put(kind, key, None)
            case WriteFailed(key):
                self._intake.write_failed(key)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def decide(self, now: Millis, room: int | None = None) -> list[Decision]:
        """The decisions that follow now; they are assumed to happen. Call it again after new facts, and when `next_wakeup` says
        so.

        `room` is about how many workloads the scheduler may admit or preempt, for a process that cannot write more: the others
        wait in their queues' order. A huge backlog, or one for which there is no room, is processed in several calls:
        `next_wakeup` says "now" until it is done.
        """
        try:
            return self._decide(now, room)
        finally:
            self._journal.end(now)

    def _decide(self, now: Millis, room: int | None) -> list[Decision]:
        self._store.settle()
        self._store.slowed.follow(now)
        self._cluster.follow_health(now)
        self._cluster.begin_budgets_anew(now)
        decisions: list[Decision] = [*self._recalls.run(now)]
        reviewed = [self._store.reviews[key] for key in sorted(self._store.reviews)]
        decisions += self._lifecycle.review(now)
        decisions += self._healing.run(now)
        self._sample(now)
        self._store.touch_new_heads()
        self._store.settle()
        decisions += self._scheduler.run(now, self._pending_reasons.note, room)
        decisions = self._healing.without_victims(decisions)
        decisions += self._pending_reasons.tell_tried()
        decisions += self._pending_reasons.report_reserved(now)
        for gang in reviewed:
            if self._store.gangs.get(gang.key) is gang:
                if (asked := self._lifecycle.ask_waiting(gang)) is not None:
                    decisions.append(asked)
                report = self._pending_reasons.report_unplaced(gang)
                if report is not None:
                    decisions.append(report)
        decisions += self._pending_reasons.tell_echoes()
        decisions += self._lifecycle.review(now)
        self._store.slowed.follow(now)
        return decisions

    def cycle(self, now: Millis) -> CycleRecord:
        """Exactly one scheduling cycle of Kueue over all queues, and nothing else."""
        self._store.settle()
        self._cluster.follow_health(now)
        return self._scheduler.cycle(now)

    def next_wakeup(self, now: Millis) -> Millis | None:
        """The earliest time at which `decide` could return something new if no fact arrives before."""
        store = self._store
        if store.touched or store.reviews or store.something_is_free or store.arrays.unsettled:
            return now
        if self._scheduler.unfinished or store.windows.changed or self._recalls.undecided:
            return now
        fairness = store.fairness
        times = (
            self._lifecycle.next_due(),
            self._healing.next_due(now),
            self._pending_reasons.next_due(now),
            fairness.next_due() if fairness is not None else None,
            self._scheduler.backfill.next_due(now),
            self._scheduler.next_due(),
            store.windows.next_due(),
            store.quotas_ahead.next_due(),
            store.order_changes.next_due(now),
            store.budgets.next_due(),
        )
        return min((time for time in times if time is not None), default=None)

    def _sample(self, now: Millis) -> None:
        """Admission fair sharing: the usage since the last sample is added to what each LocalQueue consumed."""
        fairness, store = self._store.fairness, self._store
        if fairness is None:
            return
        for key in fairness.local_queues():
            admitted = [gang for gang in store.gangs_of.get(key, {}).values() if gang.admitted]
            if fairness.sample(key, admitted, now):
                store.changed_local_queues.add(key)
                fairness.moved = True

    # --- looking ------------------------------------------------------------------------------------------------------

    def explain(self, workload: str) -> Explanation | None:
        """Why a workload waits, with numbers, and its position; None if it is unknown or holds quota."""
        self._store.settle()
        gang = self._store.gangs.get(workload)
        if gang is None:
            return None
        explanation = why(gang, self._store)
        queue = queue_of(gang)
        if explanation is None or queue is None:
            return explanation
        if explanation.reason == "WaitingForCapacity":
            explanation = self._scheduler.with_present_room(gang, explanation)
        message = explanation.message + self._scheduler.backfill.remark(gang) + _by_floor(queue.config)
        message += self._recalls.remark(gang)
        message += _after_others(self._store.budgets.known.get(workload)) + _price_of_moves(gang, queue)
        return replace(explanation, message=message, position=queue.pending.position(gang))

    def orders(self) -> list[OrderInForce]:
        """Which order is in force in each ClusterQueue whose policy has several, by name."""
        return self._store.order_changes.in_force()

    def order_text(self, cluster_queue: str) -> str:
        """Which order of several a ClusterQueue has, why, and until when, as a sentence; "" where it has only one."""
        queue = self._store.queues.get(cluster_queue)
        return self._store.order_changes.text(queue) if queue is not None else ""

    def quota_limits(self, cluster_queue: str, flavor: str, resource: str) -> QuotaLimits | None:
        """What keeps a ClusterQueue from more of it; None if it has no quota of it."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        cell = queue.cells.get((flavor, resource)) if queue is not None else None
        return limits(cell) if cell is not None else None

    def unsaved_seconds(self, workload: str, now: Millis) -> float:
        """The seconds of its work that a running workload would lose if it stopped now; 0 for one that does not run."""
        gang = self._store.gangs.get(workload)
        return gang.unsaved(now) / 1000 if gang is not None else 0.0

    def story(self, workload: str) -> tuple[Transition, ...]:
        """The recorded transitions of a workload, oldest first."""
        return self._journal.story(workload)

    def head_delay_seconds(self) -> dict[str, dict[str, float]]:
        """ClusterQueue -> cause (`backfill.head_delay`) -> seconds for which that alone delayed its reserved heads."""
        return self._scheduler.backfill.delays.seconds()

    def paused_flavors(self) -> list[tuple[str, str]]:
        """ClusterQueue and flavor of each circuit breaker that is open."""
        return sorted(self._healing.breaker.open)

    def nodes(self) -> Mapping[str, Node]:
        """The nodes that are known, by name."""
        return self._store.health.nodes

    def nodes_of_flavor(self, flavor: str) -> tuple[list[Node], int]:
        """The nodes of a flavor to which new work may go, and how many nodes it has."""
        names, health = self._store.capacity.nodes_of_flavor(flavor), self._store.health
        return [health.nodes[name] for name in names if health.usable(name)], len(names)

    def rank_nodes(
        self, policy: PlacementPolicy, pod_set: PodSet, names: Iterable[str]
    ) -> dict[str, str | tuple[int, ...]]:
        """How a policy ranks nodes for a pod outside of all gangs, by node: why it excludes the node, or the node's worth by
        tier. Unknown nodes are left out.
        """
        node_ledger = self._store.node_ledger
        known = [node_ledger.nodes[name] for name in dict.fromkeys(names) if name in node_ledger.nodes]
        taken = [(room.node, (room.placed, node_ledger.foreign_on(room.node.name))) for room in known]
        return rank_nodes(policy, pod_set, taken, self._store.typical.fragments())

    def cpu_taken(self, until: Millis) -> dict[str, int]:
        """What is taken of the CPU of each node, without the pods that were placed after an instant."""
        store, late = self._store, dict[str, int]()
        for gang in store.gangs.values():
            if not gang.holds or gang.quota.reserved_at <= until:
                continue
            for (flavor, leaf), amounts in store.node_ledger.placed(gang.key):
                if flavor == HOSTS:
                    late[leaf[0]] = late.get(leaf[0], 0) + amounts.get(CPU, 0)
        return {
            name: room.placed.get(CPU, 0)
            + store.node_ledger.foreign_on(name).get(CPU, 0)
            - late.get(host_of(room.node), 0)
            for name, room in store.node_ledger.nodes.items()
        }

    def unusable(self, node: str) -> tuple[str, Millis]:
        """Why no new work goes to a node, in a word, "" = it is usable; and until when it soaks, 0 = it does not."""
        return self._store.health.why_unusable(node), self._store.health.soaks_until(node)

    def begin_with_full_loss_budgets(self) -> None:
        """Let all loss budgets begin full, as simulations need, which do not know what was lost lately. To be called before the
        first `decide`.
        """
        self._scheduler.backfill.losses.begin_full = True

    def recalls(self) -> Mapping[str, Recall]:
        """The workloads that have to leave the nodes of a soft window, since another one needs them."""
        return self._store.recalls

    def window_on(self, node: str) -> ReservedWindow | None:
        """The window of a Reservation that a node is in, or will be in next."""
        return next(iter(self._store.windows.on(node)), None)

    def leaves_at(self, window: ReservedWindow, workload: str) -> Millis:
        """When a workload that is on its nodes is stopped for a hard window."""
        gang = self._store.gangs.get(workload)
        return self._store.windows.leaves_at(window, gang) if gang is not None else window.begin

    def heads(self) -> dict[str, str]:
        """ClusterQueue -> the workload that is reserved a start before all others of the queue."""
        return self._scheduler.backfill.heads()

    def reservations(self) -> dict[str, Millis | None]:
        """The workloads that are reserved a start, those that go first before the others, and when; None: nobody knows yet."""
        return self._scheduler.backfill.starts()

    def backfill_ends(self) -> dict[str, Millis]:
        """The backfilled workloads that a reservation counts on to be gone by its start, and that instant."""
        return self._scheduler.backfill.ends()

    def recalled(self) -> dict[str, tuple[Millis, str]]:
        """The workloads that have been asked to save their work, since quota falls: when they are stopped, and the QuotaPlan that
        says so.
        """
        return {
            gang.key: (change.deadline, change.plan_for(gang.queue.name if gang.queue is not None else ""))
            for gang, change in self._store.quotas_ahead.recalled()
        }

    def dependencies_of(self, workload: str) -> Dependencies | None:
        """What is known of the jobs that a workload waits for; None for one that waits for none."""
        gang = self._store.gangs.get(workload)
        return self._store.dependencies.get(workload) if gang is not None and gang.workload.waits_for else None

    def state_of(self, workload: str) -> str:
        """The state of a workload, in a word (docs/engine.md); "" for an unknown one."""
        gang = self._store.gangs.get(workload)
        return gang.state.value if gang is not None else ""

    def cluster_queue_of(self, workload: str) -> str:
        """The ClusterQueue in which a workload waits or holds quota; "" if it is in none."""
        self._store.settle()
        gang = self._store.gangs.get(workload)
        queue = queue_of(gang) if gang is not None else None
        return queue.name if queue is not None else ""

    def scheduled_by(self, workload: str) -> Millis | None:
        """When a workload is evicted if the Kubernetes scheduler finds no nodes for its pods until then; None = never, or it has
        found them.
        """
        gang = self._store.gangs.get(workload)
        return scheduled_by(self._store, gang, queue_of(gang)) if gang is not None else None

    def matches_no_node(self, workload: str) -> bool:
        """Whether the flavors that an admitted workload was given have nodes, and the node selector or affinity of one of its pod
        sets excludes all of these.
        """
        gang = self._store.gangs.get(workload)
        return gang is not None and matches_no_node(self._store, gang)

    def free_on_nodes(self) -> dict[str, dict[str, int]]:
        """What is left of each node to which new work may go, by resource."""
        self._store.settle()
        return {room.node.name: room.left() for room in self._store.node_ledger.nodes.values() if room.usable}

    def head_lateness(self) -> dict[str, Lateness]:
        """ClusterQueue -> how many of its heads were promised a start, and how late they started."""
        return self._promises.lateness

    def head_starts(self) -> list[ReservedHead]:
        """The last workloads that started from a reservation: what was planned and promised, and the start."""
        return list(self._promises.starts)

    def promises(self) -> Iterator[ReservedHead]:
        """What another process has to know to promise starts as this one does: the heads that wait, and the last that started."""
        return self._promises.facts()

    @property
    def chooses_flavors(self) -> bool:
        """Whether some queue chooses flavors by when workloads are expected to end there."""
        return bool(self._store.choosing)

    def slowed_runs(self) -> list[SlowedRun]:
        """What another process has to know of running workloads and their former company."""
        return self._store.slowed.facts()

    def lost_to_company(self, workload: str, now: Millis) -> Millis:
        """How much less a running workload has done until now than it would have done alone."""
        self._store.settle()
        return self._store.slowed.lost(workload, now)

    def lost_to_company_by_end(self, uid: str, now: Millis) -> Millis:
        """The same of a workload whose run has ended lately; 0 where nothing is known of it."""
        return self._store.slowed.lost_by_end(uid, now)

    def slowed_since(self, seen: int, now: Millis) -> tuple[int, list[str]]:
        """The running workloads whose expected ends may be other ones, by their company, since the log's end was `seen`; and its
        end now.
        """
        self._store.settle()
        return self._store.slowed.changed_since(seen, now)

    def end_in_company(self, workload: str, alone: Mapping[str, Millis | None], now: Millis) -> Millis | None:
        """When a running workload ends beside others, if it and they take so long alone; None: it has no company and had none."""
        self._store.settle()
        gang, slowed = self._store.gangs.get(workload), self._store.slowed
        if gang is None or not slowed.on:
            return None
        slowed.follow(now)

        def work_of(each: WorkloadState, done: Millis) -> tuple[float, float]:
            length = alone.get(each.key)
            work = ENDLESS if length is None else float(length)
            return work, work

        found = slowed.expected(gang, now, work_of, lambda each: NEVER)
        return found[workload].end if found else None

    def promised_start(self, workload: str) -> Millis | None:
        """The time by which a waiting workload was promised to have started; None: nothing was promised."""
        gang = self._store.gangs.get(workload)
        return self._promises.promised(gang) if gang is not None else None

    def queue_status(self, name: str) -> QueueStatus:
        self._store.settle()
        return cluster_queue_status(self._store, name)

    def cohorts_above(self, cluster_queue: str) -> list[str]:
        """The cohorts that a ClusterQueue is in, the nearest first."""
        self._store.settle()
        return cohorts_above(self._store, cluster_queue)

    def cohort_share(self, cohort: str) -> int:
        """The weighted share of a cohort in fair sharing; 0 for an unknown one."""
        self._store.settle()
        return cohort_share(self._store, cohort)

    def local_queue_status(self, key: str) -> QueueStatus:
        self._store.settle()
        return local_queue_status(self._store, key)

    # --- figures, for metrics ---

    def cluster_queue_figures(self, name: str) -> ClusterQueueFigures | None:
        """The figures of a ClusterQueue; None if there is no such queue."""
        self._store.settle()
        return cluster_queue_figures(self._store, name)

    def cohorts(self) -> list[str]:
        """The names of all cohorts, also of those that are only named."""
        self._store.settle()
        return sorted(self._store.hierarchy.cohort_nodes)

    def cohort_figures(self, name: str) -> CohortFigures | None:
        """The figures of a cohort; None if there is no such cohort, or it is part of a cycle."""
        self._store.settle()
        return cohort_figures(self._store, name)

    def local_queue_is_active(self, key: str) -> bool:
        self._store.settle()
        return local_queue_state(self._store, key)[0]

    def workloads_of(self, cluster_queue: str) -> tuple[list[str], list[str], list[str]]:
        """Keys of the queue's active, inadmissible and admitted workloads."""
        self._store.settle()
        return workloads_of(self._store, cluster_queue)

    def cohorts_of(self, cluster_queue: str) -> list[str]:
        """The cohort of the ClusterQueue, the cohort's parent, … up to the root."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        return [node.name for node in queue.path() if node is not queue] if queue is not None else []

    @property
    def attempts(self) -> int:
        """How many heads were tried."""
        return self._tally.attempts

    @property
    def unfinished(self) -> bool:
        """Whether the last `decide` stopped before everything was decided."""
        return self._scheduler.unfinished

    @property
    def looks(self) -> int:
        """What deciding took so far, in looks at a node (see `NodeLedger.looks`)."""
        return self._store.node_ledger.looks

    @property
    def preemption_skips(self) -> Mapping[str, int]:
        """ClusterQueue -> heads that were passed over for want of victims of their own, in its last cycle that had any."""
        return self._tally.preemption_skips

    @property
    def recomputations(self) -> Mapping[tuple[str, str], int]:
        """(ClusterQueue, outcome) -> searches for victims that were made again within a cycle."""
        return self._tally.recomputations

    # --- what changed ---

    def drain_changed_queues(self) -> set[str]:
        """ClusterQueues whose status may have changed since the last call."""
        self._store.settle()
        changed, self._store.changed_queues = self._store.changed_queues, set()
        return changed

    def drain_changed_local_queues(self) -> set[str]:
        """LocalQueues (namespace/name) whose status may have changed since the last call."""
        self._store.settle()
        changed, self._store.changed_local_queues = self._store.changed_local_queues, set()
        return changed

    def domains_of(self, workload: str, label: str) -> frozenset[str] | None:
        """The domains of a node label that a gang of whole domains is assigned to, empty while it has too few of them.

        None: it holds nothing, or nodes do not bound it.
        """
        self._store.settle()
        gang = self._store.gangs.get(workload)
        return self._store.capacity.domains_of(gang, label) if gang is not None else None

    def places_of(self, workload: str) -> dict[str, dict[str, int]] | None:
        """How many pods of a gang have room on which node, by pod set, those that are bound there or sent there included.

        Pod sets that nodes do not bound, and those that a topology places, are left out. None: it holds nothing, or its nodes are
        made for it.
        """
        self._store.settle()
        gang = self._store.gangs.get(workload)
        if gang is not None and gang.workload.has_variants:  # one of its variants holds what its pods use
            family = self._store.families.get((gang.workload.namespace, gang.uid), {})
            gang = next((each for each in family.values() if each.holds), gang)
        queue = queue_of(gang) if gang is not None else None
        if gang is None or (queue is not None and queue.delays_topology):
            return None
        return self._store.capacity.places_of(gang)

    def snapshot(self) -> EngineSnapshot:
        """The state in brief, for comparisons."""
        self._store.settle()
        return snapshot(self._store)

    def rebuilt(self) -> Engine:
        """A new engine with all facts of this one: its snapshot must be equal."""
        engine = Engine(self.settings)
        for fact in self.facts():
            engine.observe(fact)
        return engine

    def missed_starts(self, now: Millis) -> list[Admit]:
        """What a new engine would admit that takes in all present facts, and the nodes that are kept for pods: nothing, if every
        change woke all whom it could serve.

        To be asked when `decide` has nothing left to do. Left out are trees in which the new engine rightly decides otherwise,
        since reservations, shares over time and the order after preemptions do not follow from facts alone.
        """
        self._store.settle()
        health, history = self._store.health, {id(root) for root in roots_with_a_history(self._store)}
        anew = Engine(self.settings)
        for fact in self.facts():
            match fact:
                case Put(Node() as node) if not health.usable(
                    node.name
                ):  # it may soak, which the new engine cannot know
                    anew.observe(Put(replace(node, unschedulable=True)))
                case _:
                    anew.observe(fact)
        anew._cluster.follow_health(now)
        anew._store.capacity.adopt(self._store.capacity)
        for queue in self._store.queues.values():  # what waits for its victims keeps its room against other trees, too
            for hold in queue.quota_holds.values():
                anew._store.node_ledger.assign(hold.holder, self._store.node_ledger.assigned(hold.holder))
        starts: list[Admit] = []
        for _ in range(_MOST_ROUNDS):
            starts += [each for each in anew.decide(now) if isinstance(each, Admit)]
            if (due := anew.next_wakeup(now)) is None or due > now:
                break
        return [
            each
            for each in starts
            if id(self._store.queues[each.admission.cluster_queue].root) not in history
            and each.workload not in self._store.frozen
        ]

    def facts(self) -> list[Change]:
        """All facts, assumptions as if they had been confirmed."""
        self._store.settle()
        return list(facts(self._store))

    def _assumed(self, workload: str) -> Workload | None:
        """A workload as if the decisions about it had been confirmed; None for an unknown one."""
        gang = self._store.gangs.get(workload)
        return as_assumed(gang) if gang is not None else None

    def pending(self, cluster_queue: str) -> list[str]:
        """All waiting workloads in queue order, inadmissible ones included; positions in the queue are counted so."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        return [gang.key for gang in queue.pending.in_queue_order()] if queue else []

    def active(self, cluster_queue: str) -> list[str]:
        """The workloads of the heap, in queue order."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        return [gang.key for gang in queue.pending.in_heap()] if queue else []

    def inadmissible(self, cluster_queue: str) -> list[str]:
        """The inadmissible workloads, in queue order."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        return [gang.key for gang in queue.pending.inadmissible()] if queue else []

    def usage(self, cluster_queue: str) -> dict[str, dict[str, int]]:
        """Usage by flavor and resource; zero usage is left out."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        found: dict[str, dict[str, int]] = {}
        for (flavor, resource), cell in queue.cells.items() if queue else ():
            if cell.usage:
                found.setdefault(flavor, {})[resource] = cell.usage
        return found


def _by_floor(queue: ClusterQueue) -> str:
    """What is added to the reason of a workload whose queue does not follow its policy."""
    order = {"BestEffort": "BestEffortFIFO", "Easy": "EASY (in order of age, one reservation)"}.get(queue.fallen_back)
    return (
        f". The queue follows {order} for now, since its QueuePolicy would make workloads wait longer" if order else ""
    )


def _price_of_moves(gang: WorkloadState, queue: ClusterQueueState) -> str:
    """What it would cost to move others for a workload, as of when it was tried last."""
    verdict = verdict_of(queue.pending.representative(gang))
    return verdict.detail if verdict is not None else ""


def _after_others(spent: SpentBudget | None) -> str:
    """What is added to the reason of a workload that goes after others, since its budget is used."""
    if spent is None or spent.holds:
        return ""
    return f". The workload goes after others of its priority: {spent.text}"


def key_of(item: Item) -> str:
    """The name or key under which a fact is kept."""
    match item:
        case RuntimeForecast() | WorkloadPods() | Dependencies() | SpentBudget() | SlowedRun():
            return item.workload
        case Recall() | NodeEviction() | SaveTime() | Submitter():
            return item.workload
        case LocalQueue() | ForeignPod() | PastPreemption() | ReservedHead() | Workload():
            return item.key
        case NodeCards():
            return item.node
        case _:
            return item.name
