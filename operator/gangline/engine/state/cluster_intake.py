"""Facts about everything but workloads: each is stored in its table, and wakes the queues that it may concern."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gangline.engine.model import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    CompanyPrior,
    Dependencies,
    Flavor,
    ForeignPod,
    JobProfile,
    LocalQueue,
    Millis,
    Namespace,
    Node,
    NodeCards,
    NodeEviction,
    OrderInForce,
    PastPreemption,
    PreemptionsUnknown,
    QuotaAhead,
    Recall,
    ReservedHead,
    ReservedWindow,
    RuntimeForecast,
    SaveTime,
    SlowedRun,
    SpentBudget,
    Submitter,
    Topology,
    WorkloadPods,
)
from gangline.engine.queues.cluster_queue import queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.topology.leaf_ranking import OF_POLICY


class ClusterIntake:
    """Takes in queues, flavors, nodes, forecasts and pods. `intake` takes in workloads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._windows: dict[str, ReservedWindow] = {}
        self._quotas_ahead: dict[str, QuotaAhead] = {}
        self._tables: dict[type, tuple[dict[str, Any], Any]] = {
            Flavor: (store.flavors, self._put_flavor),
            Cohort: (store.cohorts, store.hierarchy.put_cohort),
            ClusterQueue: (store.cluster_queues, store.hierarchy.put_queue),
            LocalQueue: (store.local_queues, self._put_local_queue),
            Namespace: (store.namespaces, self._put_namespace),
            AdmissionCheck: (store.checks, self._put_check),
            Topology: (store.topologies, self._put_topology),
            Node: (store.nodes, self._put_node),
            ForeignPod: (store.foreign_pods, self._put_foreign_pod),
            NodeCards: (store.node_cards, self._put_node_cards),
            ReservedWindow: (self._windows, self._put_window),
            QuotaAhead: (self._quotas_ahead, self._put_quota_ahead),
            OrderInForce: ({}, self._put_order),
            Recall: (store.recalls, self._put_recall),
            NodeEviction: (store.node_evictions, self._put_node_eviction),
            SaveTime: (store.windows.save_times, self._put_save_time),
            Submitter: (store.windows.submitters, self._put_submitter),
            JobProfile: (store.profiles, self._put_profile),
            CompanyPrior: (store.priors, self._put_prior),
            RuntimeForecast: (store.forecasts, self._put_forecast),
            WorkloadPods: (store.workload_pods, self._put_workload_pods),
            Dependencies: (store.dependencies, self._put_dependencies),
            SpentBudget: (store.budgets.known, self._put_spent_budget),
            PastPreemption: (store.preemptions.past, self._put_past_preemption),
            PreemptionsUnknown: (store.preemptions.unknown, self._put_preemptions_unknown),
            ReservedHead: ({}, self._put_reserved_head),
            SlowedRun: ({}, self._put_slowed_run),
        }

    def put(self, kind: type, key: str, item: object) -> None:
        """Store such an item, None if it was deleted. Unknown kinds are ignored."""
        if kind not in self._tables:
            return
        table, put = self._tables[kind]
        if table.get(key) != item:
            put(item, key)

    def follow_health(self, now: Millis) -> None:
        """Bring node health up to date: which nodes are trusted, what that means for gangs on them, and which gangs may try
        again.
        """
        store = self._store
        self._follow_windows(now)
        for gang in store.quotas_ahead.advance(now, store.queues):
            store.reviews[gang.key] = gang
        store.follow_orders(now)
        store.capacity.advance(now)
        store.capacity.settle()
        store.settle()

    # --- configuration ------------------------------------------------------------------------------------------------

    def _put_flavor(self, flavor: Flavor | None, name: str) -> None:
        store = self._store
        _set(store.flavors, name, flavor)
        if flavor is None:
            store.topology.remove_flavor(name)
        else:
            store.topology.put_flavor(flavor)
        store.capacity.regard_flavors()
        store.openings.regard_flavors()
        store.hierarchy.move(
            lambda config: any(name == offered.name for group in config.groups for offered in group.flavors)
        )

    def _put_check(self, check: AdmissionCheck | None, name: str) -> None:
        _set(self._store.checks, name, check)
        self._store.hierarchy.move(lambda config: any(name == reference.name for reference in config.checks))

    def _put_topology(self, topology: Topology | None, name: str) -> None:
        store = self._store
        _set(store.topologies, name, topology)
        if topology is None:
            store.topology.remove_topology(name)
        else:
            store.topology.put_topology(topology)
        if name == OF_POLICY:
            store.hierarchy.move(lambda config: config.placement is not None)
        for flavor in list(store.flavors.values()):
            if flavor.topology == name:
                self._put_flavor(flavor, flavor.name)

    def _put_quota_ahead(self, ahead: QuotaAhead | None, name: str) -> None:
        store = self._store
        _set(self._quotas_ahead, name, ahead)
        store.quotas_ahead.put(ahead, name)
        store.trees_rebuilt = True
        if (queue := store.queues.get(name)) is not None:
            store.flush(queue.root)

    def _put_order(self, order: OrderInForce | None, name: str) -> None:
        self._store.order_changes.begin_with(name, order)

    def _put_namespace(self, namespace: Namespace | None, name: str) -> None:
        store = self._store
        _set(store.namespaces, name, namespace)
        for queue in store.queues.values():
            if queue.config.namespace_selector and queue.config.namespace_selector.expressions:
                store.flush(queue.root)

    def _put_local_queue(self, local_queue: LocalQueue | None, key: str) -> None:
        store = self._store
        old = store.local_queues.get(key)
        _set(store.local_queues, key, local_queue)
        if old is not None:
            store.local_queues_of.get(old.cluster_queue, set()).discard(key)
        if local_queue is not None:
            store.local_queues_of.setdefault(local_queue.cluster_queue, set()).add(key)
        store.changed_local_queues.add(key)
        store.count_usage(key, local_queue)
        if old is None or local_queue is None or _where(old) != _where(local_queue):
            for gang in list(store.gangs_of.get(key, {}).values()):
                store.place(gang)
                store.reviews[gang.key] = gang

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _put_node(self, node: Node | None, name: str) -> None:
        store = self._store
        _set(store.nodes, name, node)
        store.capacity.put_node(node, name)

    def _put_foreign_pod(self, pod: ForeignPod | None, key: str) -> None:
        store = self._store
        _set(store.foreign_pods, key, pod)
        if pod is None:
            store.node_ledger.remove_foreign(key)
        else:
            store.node_ledger.put_foreign(pod)

    def _put_node_cards(self, cards: NodeCards | None, name: str) -> None:
        store = self._store
        _set(store.node_cards, name, cards)
        store.node_ledger.put_cards(cards if cards is not None else NodeCards(name))

    def _put_profile(self, profile: JobProfile | None, name: str) -> None:
        _set(self._store.profiles, name, profile)
        self._store.regard_pairs()

    def _put_prior(self, prior: CompanyPrior | None, name: str) -> None:
        _set(self._store.priors, name, prior)
        self._store.regard_pairs()

    def _put_window(self, window: ReservedWindow | None, name: str) -> None:
        _set(self._windows, name, window)
        self._store.windows.put(window, name)  # `settle` looks at all nodes and holders, once for all windows

    def _put_recall(self, recall: Recall | None, key: str) -> None:
        _set(self._store.recalls, key, recall)
        if (gang := self._store.gangs.get(key)) is not None and gang.holds:
            self._store.reviews[key] = gang

    def _put_node_eviction(self, eviction: NodeEviction | None, key: str) -> None:
        _set(self._store.node_evictions, key, eviction)
        if (gang := self._store.gangs.get(key)) is not None and gang.holds:
            self._store.reviews[key] = gang

    def _put_save_time(self, save_time: SaveTime | None, key: str) -> None:
        _set(self._store.windows.save_times, key, save_time)
        self._ends_otherwise(key)

    def _put_submitter(self, submitter: Submitter | None, key: str) -> None:
        store = self._store
        _set(store.windows.submitters, key, submitter)
        gang = store.gangs.get(key)
        if gang is not None and gang.holds:
            store.windows.let_stay(gang)
        self._ends_otherwise(key)

    def _ends_otherwise(self, key: str) -> None:
        """Which windows a workload passes may have changed."""
        gang = self._store.gangs.get(key)
        if gang is not None and gang.holds:
            self._store.reviews[key] = gang
        elif gang is not None and self._store.windows:
            self._pass_anew(gang)

    def _pass_anew(self, gang: WorkloadState) -> None:
        queue = queue_of(gang)
        if queue is not None and gang.bucket is not None:
            queue.pending.take_out(gang)
            queue.pending.rank_again(gang)  # its forecast may be another one
            self._store.renew(gang)
            queue.pending.arrive(gang)
            self._store.touch(queue)

    def _follow_windows(self, now: Millis) -> None:
        """Windows begin and end as time passes."""
        store = self._store
        is_new = not store.windows.now
        begun, ended = store.windows.advance(now)
        if begun and is_new:  # facts came before the time was known: pods that are on no node yet go to none of theirs
            store.let_holders_stay()
            store.capacity.regard_flavors()
        if ended:
            store.regard_windows()
        if begun:
            store.review_holders_in_windows()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _put_forecast(self, forecast: RuntimeForecast | None, key: str) -> None:
        store = self._store
        _set(store.forecasts, key, forecast)
        self._forecast_changed(key)
        gang = store.gangs.get(key)
        queue = queue_of(gang) if gang is not None else None
        if gang is not None and gang.admitted and queue is not None and queue.config.overrun is not None:
            store.reviews[key] = gang

    def _put_dependencies(self, dependencies: Dependencies | None, key: str) -> None:
        """Nothing but the reason why the workload waits has changed: its own fact says whether it does."""
        _set(self._store.dependencies, key, dependencies)
        gang = self._store.gangs.get(key)
        if gang is not None and gang.workload.waits_for:
            self._store.reviews[key] = gang

    def _forecast_changed(self, key: str) -> None:
        """The expected end of a workload changed, and if it waits, perhaps its position."""
        store = self._store
        gang = store.gangs.get(key)
        queue = queue_of(gang) if gang is not None else None
        if gang is None or queue is None:
            return
        if gang.holds:
            store.note_moved(key)
            if store.quotas_ahead.estimate_again(gang):
                store.flush(queue.root)
        elif store.looks_ahead and gang.bucket is not None:  # it may end before a window or a change of quotas now
            self._pass_anew(gang)
        elif queue.timed:
            queue.pending.rank_again(gang)
            store.touch(queue)

    def begin_budgets_anew(self, now: Millis) -> None:
        """Let workloads go on whose budgets have begun anew."""
        for key in self._store.budgets.over(now):
            self._put_spent_budget(None, key)

    def _put_spent_budget(self, spent: SpentBudget | None, key: str) -> None:
        store = self._store
        store.budgets.put(key, spent)
        gang = store.gangs.get(key)
        if gang is None or gang.holds:
            return
        if gang.queue is not None and gang.goes_after != store.budgets.lowers(key):
            store.unplace(gang)  # its place in the queue is another one
        store.place(gang)
        store.reviews[key] = gang

    def _put_preemptions_unknown(self, unknown: PreemptionsUnknown | None, name: str) -> None:
        store = self._store
        _set(store.preemptions.unknown, name, unknown)
        if unknown is None:  # who waits for it tries again
            for root in {id(queue.root): queue.root for queue in store.queues.values()}.values():
                store.flush(root)

    def _put_past_preemption(self, past: PastPreemption | None, key: str) -> None:
        self._store.preemptions.put(key, past)

    def _put_reserved_head(self, head: ReservedHead | None, key: str) -> None:
        """An earlier process planned a start for it; what became of it meanwhile is seen."""
        gang = self._store.gangs.get(head.workload) if head is not None else None
        if head is None or (not head.started and (gang is None or gang.uid != head.uid)):
            return
        if gang is not None and gang.workload.admission is not None and not head.started:
            head = replace(head, started=gang.workload.reserved_at)
        self._store.promises.put(head)

    def _put_slowed_run(self, slowed: SlowedRun | None, key: str) -> None:
        if slowed is not None:
            self._store.slowed.put(slowed)

    def _put_workload_pods(self, workload_pods: WorkloadPods | None, key: str) -> None:
        _set(self._store.workload_pods, key, workload_pods)
        self._store.capacity.put_workload_pods(workload_pods, key)
        gang = self._store.gangs.get(key)
        if gang is not None and gang.quota.admission is not None and gang.workload.reclaimable:
            self._store.hold_places(gang, gang.quota.admission)


def _set(table: dict[str, Any], name: str, item: Any) -> None:
    if item is None:
        table.pop(name, None)
    else:
        table[name] = item


def _where(local_queue: LocalQueue) -> tuple[str, str, bool]:
    return local_queue.cluster_queue, local_queue.stop_policy, local_queue.terminating
