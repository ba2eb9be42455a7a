"""The state: the configuration as the cluster states it, and every workload at the place that follows from it.

Facts may arrive in any order and name unknown objects. `settle` applies changes of the configuration before anything is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gangline.engine.interference.pair_speeds import PairSpeeds
from gangline.engine.model import (
    Admission,
    AdmissionCheck,
    ClusterQueue,
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
    PlacementPolicy,
    PodSetAssignment,
    Recall,
    RuntimeForecast,
    Settings,
    Topology,
    WorkloadPods,
    expression_matches,
)
from gangline.engine.model.settings import FREE_PLACES
from gangline.engine.model.units import whole_second
from gangline.engine.nodes.capacity import Capacity
from gangline.engine.nodes.health import NodeHealth
from gangline.engine.nodes.openings import Openings
from gangline.engine.nodes.windows import Windows
from gangline.engine.occupancy.fitting import HOSTNAME
from gangline.engine.occupancy.node_ledger import NodeLedger, host_of
from gangline.engine.occupancy.power_ledger import PowerRules
from gangline.engine.placing.policy_ranking import PolicyRanking, TypicalMix, excludes_by, looks_at
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of, held_parts, queue_of, succeeds
from gangline.engine.queues.cohort_hierarchy import CohortHierarchy, RebuiltTrees
from gangline.engine.queues.order_changes import OrderChanges
from gangline.engine.queues.ordering import BY_SHARE, Estimates
from gangline.engine.queues.preemption_log import PreemptionLog
from gangline.engine.queues.promises import Promises
from gangline.engine.queues.quick_question import question_of
from gangline.engine.queues.quota_holds import end_quota_hold, quota_holds_of
from gangline.engine.queues.quotas_ahead import QuotasAhead
from gangline.engine.queues.states import HOLDER, Journal, LifecycleState
from gangline.engine.queues.timed_queue import TimedQueue
from gangline.engine.queues.workload_state import NO_FAMILY, WorkloadState
from gangline.engine.quota.quota_ledger import FlavorResource, QuotaNode
from gangline.engine.state.admission_fairness import BY_POLICY, AdmissionFairness
from gangline.engine.state.array_turns import ArrayTurns
from gangline.engine.state.inactive import why_inactive
from gangline.engine.state.slowed_runs import SlowedRuns
from gangline.engine.state.spent_budgets import SpentBudgets
from gangline.engine.topology.leaf_ranking import LeafRanking
from gangline.engine.topology.placement import DELAYING, MULTIKUEUE
from gangline.engine.topology.placement_request import has_placements
from gangline.engine.topology.policy_filter import InformedPolicy, kind_mark
from gangline.engine.topology.topologies import Topologies
from gangline.engine.topology.topology_ledger import TopologyLedger


class Store:
    def __init__(self, settings: Settings, journal: Journal, preemptions: PreemptionLog, promises: Promises) -> None:
        self.settings = settings
        self.journal = journal
        self.flavors: dict[str, Flavor] = {}
        self.local_queues: dict[str, LocalQueue] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.checks: dict[str, AdmissionCheck] = {}
        self.topologies: dict[str, Topology] = {}
        self.nodes: dict[str, Node] = {}
        self.foreign_pods: dict[str, ForeignPod] = {}
        self.node_cards: dict[str, NodeCards] = {}
        #: by workload key: who has to leave the nodes of a soft window
        self.recalls: dict[str, Recall] = {}
        #: workloads that have to leave a node for a telemetry rule
        self.node_evictions: dict[str, NodeEviction] = {}
        #: by workload key: runtime forecasts, and where pods are
        self.forecasts: dict[str, RuntimeForecast] = {}
        self.workload_pods: dict[str, WorkloadPods] = {}
        #: by workload key: what is known of the jobs that it waits for
        self.dependencies: dict[str, Dependencies] = {}
        #: … and budgets that are used up
        self.budgets = SpentBudgets()
        #: by class: what was measured of jobs; by name: what to expect of other pairs
        self.profiles: dict[str, JobProfile] = {}
        self.priors: dict[str, CompanyPrior] = {}
        self._pair_speeds: PairSpeeds | None = None
        #: what was preempted lately
        self.preemptions = preemptions
        #: what was promised to reserved heads
        self.promises = promises
        #: estimated runtimes
        self.estimates = Estimates(self.forecasts)
        #: for engine.backfill.timeline: holders that came, left or changed, and whether any quota tree was built again
        self.moved_holders: dict[str, None] = {}
        self.trees_rebuilt = True
        #: nodes, and who uses how much of them
        self.node_ledger = NodeLedger()
        #: places in topology flavors
        self.topology = Topologies(self.node_ledger, self.ranking)
        #: trusted nodes, and assignments to those of other flavors
        self.health = NodeHealth(settings.health, self._soak)
        self.windows = Windows(self.estimates)
        self.capacity = Capacity(self.health, self.flavors, self.node_ledger, self.windows)
        self.openings = Openings(self.node_ledger, self.flavors)

        self.hierarchy = CohortHierarchy()
        self.cohorts = self.hierarchy.cohorts
        self.gangs: dict[str, WorkloadState] = {}
        #: running workloads that slow one another down
        self.slowed = SlowedRuns(self.node_ledger, self.gangs, self.forecasts, lambda: self.pair_speeds)
        #: quotas that change later
        self.quotas_ahead = QuotasAhead(self.estimates, self.cohorts, self._recall_changed)
        self.cluster_queues = self.hierarchy.configs
        self.queues = self.hierarchy.queues
        #: queues whose policy reserves starts
        self.reserving: list[ClusterQueueState] = []
        #: queues whose policy chooses among flavors
        self.choosing: list[ClusterQueueState] = []
        #: queues with an order of their own, which may depend on the time
        self.timed: list[ClusterQueueState] = []
        #: which of their orders is in force in queues whose policies have several
        self.order_changes = OrderChanges(self.gangs)
        #: some queue's policy has workloads moved to make room
        self.moving = False
        #: the mix of their pods, for placement policies
        self.typical = TypicalMix(lambda: (gang.workload for gang in self.gangs.values()))
        #: key of a slice -> the slices that are to replace it, by uid
        self.successors: dict[str, dict[str, WorkloadState]] = {}
        #: which tasks of arrays with a limit may queue
        self.arrays = ArrayTurns()
        #: LocalQueue key -> unfinished workloads that name it
        self.gangs_of: dict[str, dict[str, WorkloadState]] = {}
        #: variants by uid; by namespace and uid of their parent
        self.families: dict[tuple[str, str], dict[str, WorkloadState]] = {}
        #: ClusterQueue -> LocalQueues that point to it
        self.local_queues_of: dict[str, set[str]] = {}

        #: workloads that keep what they hold, without further decisions (engine.isolated_engine)
        self.frozen: set[str] = set()
        #: workloads whose life cycle has to be reviewed
        self.reviews: dict[str, WorkloadState] = {}
        #: admitted holders whose pods are not all ready, while that blocks admission
        self.unready: set[str] = set()
        fair = settings.admission_fair_sharing
        self.fairness = AdmissionFairness(fair) if fair is not None else None
        #: roots of trees where something happened since they were last scheduled
        self.touched: dict[int, QuotaNode] = {}
        self.changed_queues: set[str] = set()
        self.changed_local_queues: set[str] = set()
        #: deleted ClusterQueue -> workloads that still hold quota of it
        self._homeless: dict[str, dict[str, WorkloadState]] = {}

    @property
    def pair_speeds(self) -> PairSpeeds:
        """What is known of pairs of classes: the same object until that changes."""
        if self._pair_speeds is None:
            self._pair_speeds = PairSpeeds(self.profiles, self.priors.values(), kind_mark)
        return self._pair_speeds

    def regard_pairs(self) -> None:
        """What is known of pairs changed."""
        self._pair_speeds = None
        if self.node_ledger.power is not None:
            self.cap_power()
        self.hierarchy.move(lambda config: config.placement is not None and config.placement.interference is not None)

    def cap_power(self) -> None:
        """The caps of power domains, which hold for all queues, and what was measured of classes, as they are now."""
        rules = PowerRules.of(
            config.placement for config in self.cluster_queues.values() if config.placement is not None
        )
        ledger, power = self.node_ledger, self.node_ledger.power
        if not rules and power is None:
            return
        if power is None or power.rules != rules or (rules.measured and ledger.power_profiles != self.profiles):
            ledger.cap_power(rules, self.profiles)
            self.capacity.regard_flavors()  # what holders draw by their classes is noted only where it matters

    def ranking(self, ledger: TopologyLedger, policy: PlacementPolicy) -> LeafRanking:
        """A placement policy on a topology."""
        return PolicyRanking(ledger, policy, self.typical)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _soak(self, node: Node) -> Millis:
        """The longest soak time that policies of the queues that may use the node ask for."""
        labels = node.labels.items()
        flavors = {name for name, flavor in self.flavors.items() if flavor.node_labels.items() <= labels}
        policies = (
            config.recovery
            for config in self.cluster_queues.values()
            if config.recovery is not None
            and any(offered.name in flavors for group in config.groups for offered in group.flavors)
        )
        return max((policy.soak for policy in policies), default=0)

    def somebody_on(self, node: str) -> bool:
        """Whether gangs have pods or kept room on a node."""
        return bool(self.capacity.holders_on(node) or any(self.node_ledger.placed_on(node)))

    # --- the forest ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Bring the quota trees in line with the configuration, and wake all who may find more free. Cheap if nothing changed."""
        done = self.hierarchy.settle(self._set_up)
        if done is not None:
            self._settle_trees(done)
        if self.windows.changed:
            self.windows.changed = False
            self.let_holders_stay()
            self.regard_windows()
            self.review_holders_in_windows()
        if self.something_is_free:
            self._wake()
        if self.arrays.unsettled:
            for gang in self.arrays.settle():
                self.place(gang)
                self.reviews[gang.key] = gang

    # --- windows ------------------------------------------------------------------------------------------------------

    def regard_windows(self) -> None:
        """Mark all nodes anew."""
        self.capacity.regard_windows()

    def let_holders_stay(self) -> None:
        """Holders may go on where they are until they are stopped."""
        for gang in self.gangs.values():
            if gang.holds:
                self.windows.let_stay(gang)

    def review_holders_in_windows(self) -> None:
        """What runs on nodes of windows may have to stop, or to learn when."""
        for node in sorted(self.windows.nodes()):
            for gang in self.holders_on(node):
                self.reviews[gang.key] = gang

    def holders_on(self, node: str) -> Iterator[WorkloadState]:
        """The workloads with pods on a node, or with room there."""
        tracked = self.node_ledger.nodes.get(node)
        placed = self.node_ledger.placed_on(host_of(tracked.node)) if tracked is not None else ()
        for key in (*self.capacity.holders_on(node), *placed):
            if (gang := self.gangs.get(key)) is not None:
                yield gang

    # --- trees --------------------------------------------------------------------------------------------------------

    def _settle_trees(self, done: RebuiltTrees) -> None:
        self.trees_rebuilt = True
        self.quotas_ahead.rebuild()
        self.health.regard_policies()
        placed = [config for config in self.cluster_queues.values() if config.placement is not None]
        self.topology.rank_for(
            frozenset(offered.name for config in placed for group in config.groups for offered in group.flavors)
        )
        policies = {config.placement for config in placed if config.placement is not None}
        self.slowed.turn(on=any(policy.interference is not None for policy in policies))
        self.topology.look_at(
            frozenset(key for policy in policies for key in looks_at(policy)),
            frozenset(key for policy in policies for key in excludes_by(policy)),
        )
        self.cap_power()
        self.reserving = [queue for queue in self.queues.values() if queue.reserves]
        self.choosing = [queue for queue in self.queues.values() if queue.config.flavors is not None]
        self.timed = [queue for queue in self.queues.values() if queue.timed]
        self.order_changes.queues = [
            queue
            for queue in self.queues.values()
            if queue.config.ordering is not None and queue.config.ordering.changes
        ]
        self.moving = any(config.moves is not None for config in self.cluster_queues.values())
        for queue in done.gone:
            self._retire(queue)
        for queue in done.queues:
            self._put_in_service(queue)
        self.touched = {id(node.root): node.root for node in self.touched.values()}
        for root in {id(queue.root): queue.root for queue in done.queues}.values():
            self.flush(root)
        for name in done.moved:
            self._look_again(name)

    def _set_up(self, queue: ClusterQueueState, config: ClusterQueue) -> None:
        for key in sorted(self.local_queues_of.get(queue.name, ())):
            self.count_usage(key, self.local_queues[key])
        if self.fairness is None and config.ordering is not None and BY_SHARE in config.ordering.keys:
            self.fairness = AdmissionFairness(BY_POLICY)
        usage = self.fairness.usage if self.fairness is not None else None
        queue.configure(self.informed(config), self.settings, usage, self.estimates)
        checks = [self.checks.get(reference.name) for reference in config.checks]
        queue.delays_topology = any(check is not None and check.controller in DELAYING for check in checks)
        queue.multikueue = any(check is not None and check.controller == MULTIKUEUE for check in checks)

    def informed(self, config: ClusterQueue) -> ClusterQueue:
        """A ClusterQueue whose placement policy, if it looks at company, knows the speeds of pairs."""
        if config.placement is None or config.placement.interference is None:
            return config
        return replace(config, placement=InformedPolicy.of(config.placement, self.pair_speeds))

    def _retire(self, queue: ClusterQueueState) -> None:
        """A queue's object was deleted. Its workloads are homeless until it is back, and their pods block no other
        admission.
        """
        self.touched.pop(id(queue), None)
        self.changed_queues.add(queue.name)
        self.changed_local_queues.update(self.local_queues_of.get(queue.name, ()))
        for hold in queue.quota_holds.values():
            hold.let_room_go()
        queue.quota_holds.clear()
        for gang in queue.pending.everyone():
            queue.pending.take_out(gang)
            self.arrays.leave(gang)
            gang.leave_queue()
            gang.enter(LifecycleState.UNQUEUED, f"ClusterQueue {queue.name} was deleted")
        for gang in queue.holders.values():
            gang.leave_queue()
            gang.quota.lose_queue()
            self._homeless.setdefault(queue.name, {})[gang.uid] = gang
            self._note_ready(gang, ready=True)

    def _put_in_service(self, queue: ClusterQueueState) -> None:
        """A queue is in a tree that was built again: count its holders again."""
        queue.bind(self.flavors)
        self._let_ask(queue)
        queue.rehold()
        for gang in self._homeless.pop(queue.name, {}).values():
            self.hold(gang)
        queue.generation += 1
        queue.in_service = not self.inactive(queue.name)[0]
        if not queue.in_service:  # its preemptors are not tried any more
            for hold in list(queue.quota_holds.values()):
                end_quota_hold(hold.gang, queue)
        self.changed_queues.add(queue.name)
        self.changed_local_queues.update(self.local_queues_of.get(queue.name, ()))

    def _let_ask(self, queue: ClusterQueueState) -> None:
        if isinstance(queue.pending, TimedQueue):
            queue.pending.ask(lambda gang: question_of(gang, queue, self.topology))

    def follow_orders(self, now: Millis) -> None:
        """Put those in order that wait in queues whose order is another one at this time."""
        for queue in self.order_changes.follow(now):
            self._set_up(queue, self.cluster_queues[queue.name])
            self._let_ask(queue)
            self.changed_queues.add(queue.name)
            self.flush(queue.root)

    def _look_again(self, name: str) -> None:
        """A queue came, left or changed: the place of its workloads, and the fate of its holders, may have changed too."""
        for key in sorted(self.local_queues_of.get(name, ())):
            for gang in list(self.gangs_of.get(key, {}).values()):
                self.place(gang)
                self.reviews[gang.key] = gang
        for gang in self.queues[name].holders.values() if name in self.queues else ():
            self.reviews[gang.key] = gang

    def count_usage(self, key: str, local_queue: LocalQueue | None) -> None:
        """Count usage over time if the cluster or a QueuePolicy orders by it."""
        config = self.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
        own = config.ordering if config is not None and config.ordering is not None else None
        shares = own is not None and BY_SHARE in own.keys
        if self.fairness is None and shares:
            self.fairness = AdmissionFairness(BY_POLICY)
        if self.fairness is None:
            return
        if local_queue is None or not (shares or self.settings.admission_fair_sharing is not None):
            self.fairness.forget(key)
            return
        self.fairness.put(local_queue)
        self.fairness.set_half_life(key, own.half_life if own is not None and shares else None)

    # --- gangs --------------------------------------------------------------------------------------------------------

    def enrol(self, gang: WorkloadState, *, leaves: bool = False) -> None:
        """Put the workload into the family that its last fact names; `leaves`: into none any more."""
        self._note_successor(gang, "" if leaves else gang.replaces)
        workload, old = gang.workload, gang.family_of
        new = (workload.namespace, workload.variant_of) if gang.variant and not leaves else None
        if new == old:
            return
        if old is not None:
            self.families[old].pop(gang.uid, None)
            if not self.families[old]:
                del self.families[old]
        if new is None:
            gang.join_family(NO_FAMILY, None)
        else:
            family = self.families.setdefault(new, {})
            family[gang.uid] = gang
            gang.join_family(family, new)

    def _note_successor(self, gang: WorkloadState, replaces: str) -> None:
        if replaces == gang.succeeds:
            return
        if gang.succeeds:
            known = self.successors.get(gang.succeeds, {})
            known.pop(gang.uid, None)
            if not known:
                self.successors.pop(gang.succeeds, None)
        if replaces:
            self.successors.setdefault(replaces, {})[gang.uid] = gang
        gang.succeed(replaces)

    def divides(self, queue: ClusterQueueState) -> bool:
        """Whether the queue's workloads are tried as variants, which queue and hold quota in their place."""
        return queue.config.concurrent_admission is not None and self.settings.concurrent_admission

    def usage_of(self, gang: WorkloadState, admission: Admission) -> dict[FlavorResource, int]:
        """The usage of an admission now; finished pods use nothing, and neither does a superseded slice."""
        usage: dict[FlavorResource, int] = {}
        if self.superseded(gang):
            return usage
        for _, resource, flavor, amount in held_parts(gang, admission):
            usage[flavor, resource] = usage.get((flavor, resource), 0) + amount
        return usage

    # --- slices ---

    def superseded(self, gang: WorkloadState) -> bool:
        """Whether a slice that replaces the workload holds quota: what it held is part of that."""
        successors = self.successors.get(gang.key)
        return successors is not None and any(new.holds and succeeds(new, gang) for new in successors.values())

    def supersede(self, old: WorkloadState, new: WorkloadState) -> None:
        """`old` uses nothing from now on, and its pods are those of `new`."""
        queue = queue_of(old)
        self.capacity.release(old)
        pods = self.workload_pods.get(old.key)
        if pods is not None and new.key not in self.workload_pods:
            self.capacity.put_workload_pods(None, old.key)
            self.capacity.put_workload_pods(replace(pods, workload=new.key), new.key)
        if queue is not None:
            queue.change_usage(old, {})
        self._note_ready(old, ready=True)
        self.note_moved(old.key)
        self.note_change(old)

    def _end_superseding(self, new: WorkloadState) -> None:
        """`new` holds nothing any more: the slice that it was to replace holds what it held."""
        old = self.gangs.get(new.replaces) if new.replaces else None
        if old is None or not old.holds or old.quota.admission is None or self.superseded(old):
            return
        queue = queue_of(old)
        if new.key not in self.workload_pods:
            self.capacity.put_workload_pods(None, new.key)
            self.capacity.put_workload_pods(self.workload_pods.get(old.key), old.key)
        self.capacity.hold(old, old.quota.admission)
        self.hold_places(old, old.quota.admission)
        if queue is not None:
            queue.change_usage(old, self.usage_of(old, old.quota.admission))
        self.note_state(old, evicting=old.evicting)
        self.note_change(old)

    def hold(self, gang: WorkloadState) -> None:
        """The workload holds quota, as its last fact says."""
        admission = gang.workload.admission or gang.quota.admission
        assert admission is not None, gang
        queue = self.queues.get(admission.cluster_queue)
        if gang.workload.has_variants and queue is not None and self.divides(queue):
            self._leave_to_variants(gang)
            return
        if not self.superseded(gang):
            self.capacity.hold(gang, admission)
            self.hold_places(gang, admission)
        if self.arrays.concern(gang):
            self.arrays.hold(gang)
        evicting = bool(gang.workload.evicted)
        if queue is None:
            gang.leave_queue()
            gang.quota.hold_without_queue(admission)
            gang.quota.set_admitted_at(gang.workload.admitted_at)
            gang.enter(HOLDER[gang.workload.admitted, evicting])
            self._homeless.setdefault(admission.cluster_queue, {})[gang.uid] = gang
            return
        queue.hold(gang, admission, self.usage_of(gang, admission), whole_second(gang.workload.reserved_at))
        self.note_state(gang, evicting=evicting)
        self.touch(queue)
        self._wake_for_spares()
        old = self.gangs.get(gang.replaces) if gang.replaces else None
        if old is not None and old.holds and self.superseded(old):
            self.supersede(old, gang)

    def _leave_to_variants(self, gang: WorkloadState) -> None:
        """The parent of variants holds nothing itself: what its status shows is held by one of them."""
        if gang.holds:  # it came before its queue did
            self.release(gang)
        self.place(gang)

    def confirm(self, gang: WorkloadState) -> None:
        """A fact about a holder that keeps its admission: its usage is brought in line with it."""
        queue, admission = queue_of(gang), gang.workload.admission
        assert queue is not None and admission is not None, gang
        if self.arrays.concern(gang):
            self.arrays.hold(gang)
        else:
            self.arrays.leave(gang)
        superseded = self.superseded(gang)
        if admission.pod_sets != (gang.quota.admission.pod_sets if gang.quota.admission else ()) and not superseded:
            self.hold_places(gang, admission)
            self.capacity.hold(gang, admission)
        gang.quota.replace_admission(admission)
        queue.generation += 1
        usage = self.usage_of(gang, admission)
        if usage != gang.quota.usage:
            if not superseded:
                self.hold_places(gang, admission)
                self.capacity.hold(gang, admission)
            queue.change_usage(gang, usage)
        self.note_state(gang, evicting=gang.evicting or bool(gang.workload.evicted))
        self.note_change(gang)

    def hold_places(self, gang: WorkloadState, admission: Admission) -> None:
        """Let the workload hold the places of this admission in topologies, and no others."""
        if has_placements(admission):
            self.topology.put_holder(gang.key, self._without_finished(gang, admission), gang.node_needs(admission))

    def _without_finished(self, gang: WorkloadState, admission: Admission) -> Admission:
        """The admission without the places on hosts that finished pods have left, where that fix is on: once all others are seen
        on theirs.
        """
        queue, pods = self.queues.get(admission.cluster_queue), self.workload_pods.get(gang.key)
        if queue is None or FREE_PLACES not in queue.fixes or pods is None or not gang.workload.reclaimable:
            return admission
        on_hosts = Counter((pod.pod_set, self.node_ledger.host_at(pod.node) or pod.node) for pod in pods.pods)
        parts: list[PodSetAssignment] = []
        for part in admission.pod_sets:
            finished, alive = gang.workload.reclaimable.get(part.name, 0), 0
            for (name, _), count in on_hosts.items():
                alive += count if name == part.name else 0
            topology = part.topology
            if finished and topology is not None and topology.levels[-1] == HOSTNAME and alive + finished >= part.count:
                domains = (
                    replace(domain, count=min(domain.count, on_hosts[part.name, domain.values[-1]]))
                    for domain in topology.domains
                    if on_hosts[part.name, domain.values[-1]]
                )
                whole = any(domain.cards for domain in topology.domains)  # whose seat is free is not known
                part = part if whole else replace(part, topology=replace(topology, domains=tuple(domains)))
            parts.append(part)
        return replace(admission, pod_sets=tuple(parts))

    def swap(self, gang: WorkloadState, admission: Admission) -> None:
        """Place the workload's pods by this admission from now on; the fact that says so has not arrived yet."""
        self.note_moved(gang.key)
        gang.quota.replace_admission(admission)
        self.hold_places(gang, admission)

    def note_state(self, gang: WorkloadState, *, evicting: bool) -> None:
        """Whether it runs, and whether it blocks other admissions, follows from its last fact."""
        self.note_moved(gang.key)
        workload, policy = gang.workload, self.settings.pods_ready
        gang.quota.set_admitted_at(workload.admitted_at)
        gang.enter(HOLDER[workload.admitted, evicting], workload.evicted)
        self.quotas_ahead.estimate_again(gang)
        if self.fairness is not None and gang.admitted:
            self.fairness.admit(gang)
        if policy is not None and policy.block_admission:
            self._note_ready(gang, workload.pods_ready or not gang.admitted)

    def _note_ready(self, gang: WorkloadState, ready: bool) -> None:
        if not ready:
            self.unready.add(gang.uid)
        elif gang.uid in self.unready:
            self.unready.discard(gang.uid)
            if not self.unready:
                for queue in self.queues.values():
                    self.touched[id(queue.root)] = queue.root

    def note_moved(self, key: str) -> None:
        """A holder came, left or changed, or its expected end did."""
        self.moved_holders[key] = None
        self.slowed.note(key)

    def note_change(self, gang: WorkloadState) -> None:
        """The statuses of its queues may show it."""
        if gang.queue is not None:
            self.changed_queues.add(gang.queue.name)
        self.changed_local_queues.add(gang.local_queue)

    def assume_reserved(self, gang: WorkloadState, now: Millis, *, admitted: bool) -> None:
        """The scheduler reserved quota for it; the fact that says so has not arrived yet."""
        gang.go_after_others(False, self.settings)
        if self.arrays.concern(gang):
            self.arrays.hold(gang)
        if self.fairness is not None:
            self.fairness.reserve(gang)
        if admitted:
            self.assume_admitted(gang, now, gang.noted_cause, "Admit")
        self.reviews[gang.key] = gang
        self.note_change(gang)
        self._wake_for_spares()

    def assume_admitted(
        self, gang: WorkloadState, now: Millis, cause: str = "", decision: str = "CompleteAdmission"
    ) -> None:
        """Assume that the workload is admitted: nothing stands between its quota and its start any more, and the fact that says
        so has not arrived yet.
        """
        gang.quota.set_admitted_at(now)
        gang.enter(LifecycleState.ADMITTED, cause, decision)
        self.quotas_ahead.estimate_again(gang)
        self.note_moved(gang.key)
        policy = self.settings.pods_ready
        if policy is not None and policy.block_admission and gang.queue is not None:
            self._note_ready(gang, ready=False)
        self.note_change(gang)

    def assume_requeued(self, gang: WorkloadState) -> None:
        """Assume that the workload's back-off is over, and put it at its place."""
        gang.lifecycle.requeue_assumed = True
        self.unplace(gang)
        self.place(gang)

    def release(self, gang: WorkloadState) -> None:
        """Release all that the workload holds: workloads that wait in its tree may try again."""
        queue = queue_of(gang)
        self.arrays.leave(gang)
        self.capacity.release(gang)
        self.note_change(gang)
        self._note_ready(gang, ready=True)
        gang.enter(LifecycleState.MOVING)
        gang.backfill.release()
        gang.lifecycle.overrun = ""
        self.note_moved(gang.key)
        gang.attempts.report_anew()
        if self.fairness is not None:
            self.fairness.cancel(gang)
        if queue is not None:
            queue.release(gang)
        elif gang.quota.admission is not None:
            self._homeless.get(gang.quota.admission.cluster_queue, {}).pop(gang.uid, None)
            gang.quota.release_without_queue()
        self._end_superseding(gang)

    def place(self, gang: WorkloadState) -> None:
        """Put a workload without quota where it belongs: the queue of its LocalQueue, inadmissible there, or unqueued."""
        if gang.holds:
            return
        queue = self.queue_for(gang)
        if queue is not None and self.needs_turn(gang):
            self.arrays.wait(gang)
            queue = queue if self.arrays.has_turn(gang) else None
        else:
            self.arrays.leave(gang)
        if gang.queue is not None and gang.queue is not queue:
            self._leave_queue(gang)
        if queue is None:
            gang.enter(LifecycleState.UNQUEUED)
            return
        if gang.queue is queue:
            return
        gang.join(queue)
        gang.go_after_others(self.budgets.lowers(gang.key), self.settings)
        self.renew(gang)
        if gang.uid in queue.quota_holds:  # it was moved, and room is kept for it
            queue.pending.returning[gang.uid] = gang
        if self.may_try(gang):
            queue.pending.arrive(gang)
            self.touch(queue)
        else:
            queue.pending.set_alone_inadmissible(gang)
        self.note_change(gang)

    @property
    def looks_ahead(self) -> bool:
        """Whether it matters when workloads end: nodes are kept for others in windows, or quotas change."""
        return bool(self.windows) or bool(self.quotas_ahead)

    def renew(self, gang: WorkloadState) -> bool:
        """Bring up to date what a waiting workload may use that ends when it is expected to. Returns whether it changed."""
        changed = self.windows.renew(gang)
        return self.quotas_ahead.renew(gang) or changed

    def _recall_changed(self, gang: WorkloadState) -> None:
        """A holder is expected to be stopped by a recall, or no longer."""
        self.note_moved(gang.key)

    def unplace(self, gang: WorkloadState) -> None:
        """Take a workload without quota out of its queue, and let others of its array have its turn."""
        if not gang.holds:
            self.arrays.leave(gang)
        self._leave_queue(gang)

    def _leave_queue(self, gang: WorkloadState) -> None:
        queue = queue_of(gang)
        if queue is None or gang.holds:
            return
        queue.pending.take_out(gang)
        queue.pending.forget_precedence(gang)
        end_quota_hold(gang, queue)
        gang.attempts.stop_yielding()
        self.note_change(gang)
        gang.leave_queue()
        gang.go_after_others(False, self.settings)
        self.touch(queue)

    def needs_turn(self, gang: WorkloadState) -> bool:
        """Whether the workload may only be queued when it is its turn among the tasks of its array. One that could not start now
        takes no turn from others.
        """
        return self.arrays.concern(gang) and not gang.backs_off and not gang.workload.violation

    def queue_for(self, gang: WorkloadState) -> ClusterQueueState | None:
        """The queue in which the workload would wait, None if there is none."""
        workload = gang.workload
        waits = workload.on_hold or workload.gates or workload.waits_for or workload.lacks_pods
        held = waits or self.budgets.holds(workload.key)
        if workload.finished or not workload.active or held:
            return None
        local_queue = self.local_queues.get(gang.local_queue)
        if local_queue is None or local_queue.stop_policy != "None" or local_queue.terminating:
            return None
        queue = self.queues.get(local_queue.cluster_queue)
        return queue if queue is not None and self.divides(queue) == bool(workload.variant_of) else None

    def may_try(self, gang: WorkloadState) -> bool:
        """Whether the workload may be tried: it does not back off, its queue selects its namespace, and its requests keep their
        limits.

        In a StrictFIFO queue it is tried in vain, as in Kueue: others do not overtake it.
        """
        if gang.backs_off:
            return False
        return self.selects(gang) and (not gang.workload.violation or self._is_strict(gang))

    @staticmethod
    def _is_strict(gang: WorkloadState) -> bool:
        queue = queue_of(gang)
        return queue is not None and queue.pending.strict and not gang.workload.overtaken

    def selects(self, gang: WorkloadState) -> bool:
        queue = queue_of(gang)
        selector = queue.config.namespace_selector if queue is not None else None
        if selector is None:
            return False
        if not selector.expressions:
            return True
        namespace = self.namespaces.get(gang.workload.namespace)
        if namespace is None:
            return False
        return all(expression_matches(expression, namespace.labels) for expression in selector.expressions)

    # --- waking up ----------------------------------------------------------------------------------------------------

    def touch(self, queue: ClusterQueueState) -> None:
        """Something happened that may let a workload of its tree be admitted, or changes its status."""
        self.touched[id(queue.root)] = queue.root
        self.changed_queues.add(queue.name)

    def touch_new_heads(self) -> None:
        """A LocalQueue with another weight, or another usage, may have made another workload the head of a queue that tries only
        its head: that one is tried, too.
        """
        if self.fairness is None or not self.fairness.moved:
            return
        self.fairness.moved = False
        for queue in self.queues.values():
            if queue.fair_usage is not None and queue.pending.strict:
                head = queue.pending.head()
                if head is not None and head.uid != queue.pending.tried:
                    self.touched[id(queue.root)] = queue.root

    @property
    def something_is_free(self) -> bool:
        """Whether quota or room on nodes became free, and those who wait for it are not awake yet."""
        return bool(self.hierarchy.freed) or self.openings.unread or self.topology.has_opened

    def _wake(self) -> None:
        """Let all workloads try again that may find more free than before: where quota was given back, its tree; where nodes may
        have more room, every tree in which somebody found too little on nodes of these flavors.
        """
        freed = [self.queues[name] for name in self.hierarchy.freed if name in self.queues]
        self.hierarchy.freed.clear()
        roots = {id(queue.root): queue.root for queue in freed}
        if roots and self.moving:  # workloads move for those of other trees, too
            roots = {id(queue.root): queue.root for queue in self.queues.values()}
        for root in roots.values():
            for hold in quota_holds_of(root):  # what victims have given back belongs to their preemptor
                hold.hold_room()
        flavors = self.openings.flavors() | self.topology.opened()
        if flavors:
            freed += [queue for queue in self.queues.values() if not flavors.isdisjoint(queue.lacks_room_of)]
        for root in {id(queue.root): queue.root for queue in freed}.values():
            self.flush(root)

    def flush(self, root: QuotaNode) -> None:
        """Something of this tree was released or changed: inadmissible workloads try again."""
        self.touched[id(root)] = root
        root.flushes += 1
        for queue in cluster_queues_of(root):
            if queue.pending.flush(self.may_try):
                self.changed_queues.add(queue.name)
            if not queue.pending.keeps_back:
                queue.lacks_room_of.clear()
                queue.lacks_spares = False

    def _wake_for_spares(self) -> None:
        """Spares are lent to those below the highest priority that runs, which may be higher now."""
        for root in {id(queue.root): queue.root for queue in self.queues.values() if queue.lacks_spares}.values():
            self.flush(root)

    # --- queue states -------------------------------------------------------------------------------------------------

    def inactive(self, name: str) -> tuple[str, str]:
        """Why a ClusterQueue admits no new workloads: reason and message; ("", "") = it does."""
        config = self.cluster_queues[name]
        in_cycle = config.cohort in self.hierarchy.cyclic
        return why_inactive(config, self.flavors, self.topologies, self.checks, in_cycle=in_cycle)
