"""Healing: what becomes of running gangs whose nodes are lost.

Gangs are healed by priority, each by the first of these that works:

1. swap: the lost pods are assigned to healthy nodes, spares included (`Heal`; for topology flavors `Swap` and `Heal`);
2. preempt to heal: the cheapest set of lower-priority gangs is preempted, and their room is kept for the gang until it is
   healed;
3. give up: the gang is evicted (`NodeFailures`) and requeued with its original time.

A gang with a pod that can't be bound to the node that it was sent to (`losses`) is swapped likewise, off that node alone.
Without other room it gives up at once: nobody is preempted for what may be the gang's own fault.

A gang is examined anew in every `decide` until it is healed, from the present state: nothing is planned ahead.
"""

from __future__ import annotations

from dataclasses import replace

from gangline.engine.model import Decision, Evict, Heal, Millis, Preempt, Recovery, Warn
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.recovery.breaker import Breaker
from gangline.engine.recovery.healing_plan import REPLACE, RESTART, HealingPlan, cheapest
from gangline.engine.recovery.losses import CARD_FAILED, UNSCHEDULABLE, LostCardsWatch, UnboundPods, pause
from gangline.engine.state.replacement import fails_fast, is_healed, policy_of, stays, tolerations_of
from gangline.engine.state.store import Store
from gangline.engine.text.decision_error import DecisionError
from gangline.engine.topology.placement_request import has_placements, hosts_of, seats_of

#: the reason of a preemption for a gang that lost nodes
TO_HEAL = "InRecovery"
#: the cause where pods are gone and no node is known to have failed
PODS_LOST = "PodsLost"
#: A gang that never had room for all of its pods is given up after this time, in milliseconds.
PATIENCE = 30_000
#: the cause where somebody wants a node empty
VACATED = "Vacated"
#: the cause where a node was replaced by another one of the same name
REPLACED = "Replaced"


class Healing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.breaker = Breaker(store)
        #: nodes whose loss was reported
        self._reported_lost: set[str] = set()
        #: gangs for which room is kept that others still use
        self._awaiting: set[str] = set()
        #: moved gangs whose places on hosts with lost cards are still taken, with these hosts
        self._leaving: dict[str, tuple[str, ...]] = {}
        self._cards = LostCardsWatch(store)
        self._unbound = UnboundPods(store.capacity.pod_locations)
        #: running gangs without room for all of their pods, and since when that is known
        self._short: dict[str, Millis] = {}

    def next_due(self, now: Millis) -> Millis | None:
        """When time alone may change what has to be done."""
        if self._store.health.unsettled:
            return now
        times = (
            self._store.health.next_due(),
            self._cards.next_due(),
            self._unbound.next_due(),
            *(since + PATIENCE for since in self._short.values()),
        )
        return min((time for time in times if time is not None and time > now), default=None)

    def run(self, now: Millis) -> list[Decision]:
        """Heal the gangs that need it and can be healed."""
        store = self._store
        self._free_left_places()
        self._cards.watch(now)
        self._unbound.watch(now)
        if not store.health.nodes and not store.health.lost():
            return []
        self._short = {key: since for key, since in self._short.items() if key in store.capacity.without_nodes}
        decisions: list[Decision] = [*self.breaker.watch(now), *self._warn()]
        for gang in sorted(self._damaged(), key=lambda gang: (-gang.priority, gang.since, gang.uid)):
            if not gang.evicting:  # it may just have been preempted for a gang before it
                try:
                    decisions += self._heal(gang, now)
                except Exception as error:
                    raise DecisionError(gang.key) from error
        self._forget_deleted(now)
        return decisions

    def without_victims(self, decisions: list[Decision]) -> list[Decision]:
        """Gangs that were preempted after they were healed need not move any more."""
        gone = {each.workload for each in decisions if isinstance(each, Preempt)}
        for key in gone & self._store.gangs.keys():
            self._store.capacity.stays(self._store.gangs[key])
        return [each for each in decisions if not (isinstance(each, Heal) and each.workload in gone)]

    def _damaged(self) -> list[WorkloadState]:
        """Running gangs with pods on lost nodes (or leaving ones, by policy), with too little room, or with pods that can't be
        bound.
        """
        store, health = self._store, self._store.health
        keys = {
            *self._unbound.overdue,
            *store.capacity.without_nodes,
            *store.capacity.pod_locations.of_replaced(),
            *self._awaiting,
        }
        for node in (*health.lost(), *health.unfit()):
            keys.update(store.capacity.holders_on(node))
            keys.update(store.node_ledger.placed_on(node))
        for host in self._cards.hosts():
            keys.update(store.node_ledger.placed_on(host))
        keys.update(store.node_ledger.cards.seen_on_other_hosts())
        self._awaiting &= store.gangs.keys()
        gangs = (store.gangs.get(key) for key in sorted(keys))
        return [
            gang
            for gang in gangs
            if gang is not None
            and gang.holds
            and gang.admitted
            and not gang.evicting
            and gang.queue is not None
            and not gang.variant  # its pods are its parent's
            and gang.key not in store.frozen
        ]

    def _free_left_places(self) -> None:
        """What a gang left is free when the cluster says that it has other places, and that none of its pods is there."""
        store = self._store
        for key, hosts in list(self._leaving.items()):
            gang = store.gangs.get(key)
            if gang is not None and gang.holds and gang.quota.admission is not None:
                if gang.workload.admission != gang.quota.admission or not _pods_on(store, gang).isdisjoint(hosts):
                    continue
                store.hold_places(gang, gang.quota.admission)
            del self._leaving[key]

    # --- one gang -----------------------------------------------------------------------------------------------------

    def _heal(self, gang: WorkloadState, now: Millis) -> list[Decision]:
        policy = policy_of(gang)
        if not is_healed(self._store, gang):
            return self._move_unbound(gang, policy, now)
        lost = self._lost_under(gang, now)
        awaited = gang.key in self._awaiting
        self._awaiting.discard(gang.key)
        if awaited and not lost:  # the nodes are back, or the lost pods are gone
            HealingPlan(self._store, gang, ()).let_go()
        if not lost:
            moved = self._move_unbound(gang, policy, now) or self._leave_early(gang, policy, now)
            return moved or self._fill_up(gang, policy, now, had_room=awaited)
        if self.breaker.open_for(gang):
            return []
        nodes = tuple(sorted(lost))
        if gang.workload.replaced_lately(now) >= policy.swap_budget:
            return [_give_up(gang, nodes, policy.spent)]
        plan = HealingPlan(self._store, gang, nodes)
        if plan.fits():
            if plan.left:
                self._leaving[gang.key] = plan.left
            return plan.carry_out(self._order(gang, lost, nodes, now))
        return self._make_room(gang, plan, policy, nodes, now)

    def _move_unbound(self, gang: WorkloadState, policy: Recovery, now: Millis) -> list[Decision]:
        """Pods that can't be bound get other nodes; without such nodes the gang gives its quota back, and waits for a while."""
        refused = self._unbound.under(gang, now)
        if not refused or gang.workload.unowned or stays(self._store, gang):
            return []
        nodes = tuple(sorted(refused))
        pod, since = min(refused.values(), key=lambda found: (found[1], found[0].name))
        spent = gang.workload.replaced_lately(now) >= policy.swap_budget
        if is_healed(self._store, gang) and not spent:
            before = gang.nodes.refusing
            gang.nodes.set_refusing(before.union(nodes))  # these pods do not count there any more
            plan = HealingPlan(self._store, gang, (), refusing=nodes)
            if plan.fits():
                order = self._order(gang, dict.fromkeys(nodes, (UNSCHEDULABLE, since)), nodes, now)
                return plan.carry_out(replace(order, bound_stay=True))
            gang.nodes.set_refusing(before)
        count = gang.workload.requeue_count + 1
        message = f"Evicted because pod {pod.name} can't be bound to node {pod.node}, where room is kept for it: {pod.refused}"
        gang.evict(f"NodeFailures: {message}")
        back = now + pause(count)
        return [Evict(gang.key, gang.uid, "NodeFailures", message, requeue_at=back, requeue_count=count, avoid=nodes)]

    def _make_room(
        self, gang: WorkloadState, plan: HealingPlan, policy: Recovery, nodes: tuple[str, ...], now: Millis
    ) -> list[Decision]:
        """Preempt others for it: those that are leaving anyway, or the cheapest of lower priority."""
        preempts = policy.preempt_to_heal or (policy.lend and bool(policy.spares or policy.spares_percent))
        victims = cheapest(self._store, gang, plan, now, others=preempts and not gang.closed_gates)
        if victims is None:
            if (
                not fails_fast(self._store)
                and gang.quota.admission is not None
                and has_placements(gang.quota.admission)
            ):
                return []  # its placement waits for a node that takes its pods
            return [_give_up(gang, nodes, "no healthy nodes have room for it")]
        decisions: list[Decision] = []
        for victim in victims:
            if not victim.evicting:
                victim.evict(f"Preempted to heal {gang.key}", "Preempt")
                decisions.append(_preempt(victim, gang, nodes))
        plan.keep_room()
        self._awaiting.add(gang.key)
        return decisions

    def _order(
        self, gang: WorkloadState, lost: dict[str, tuple[str, Millis]], nodes: tuple[str, ...], now: Millis
    ) -> Heal:
        cause, detected = min(lost.values(), key=lambda found: (found[1], found[0]))
        how = RESTART if gang.workload.restarts_whole else REPLACE
        if cause != UNSCHEDULABLE:
            gang.nodes.move_off(nodes)
        what = f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(nodes)} ({cause})" if nodes else "pods"
        if cause == UNSCHEDULABLE:
            what = f"the room for pods that can't be bound to {what}"
        then = "starting again on healthy nodes" if how == RESTART else "replacing the pods that ran there"
        message = f"Leaves {what}: {then}" if cause == VACATED else f"Lost {what}: {then}"
        gang.journal.note(gang, message, "Heal")
        return Heal(gang.key, gang.uid, how, nodes, cause, message, detected, now)

    def _lost_under(self, gang: WorkloadState, now: Millis) -> dict[str, tuple[str, Millis]]:
        """The lost nodes with pods of the gang that no decision moved it away from yet: cause, and since when it shows."""
        store = self._store
        nodes = _nodes_with_pods(store, gang)
        gang.nodes.still_on(nodes)
        found: dict[str, tuple[str, Millis]] = {}
        uses_devices = any(
            amount > 0 and "/" in resource
            for demand in gang.demands
            for resource, amount in demand.pod_set.requests.items()
        )
        replaced = store.capacity.pod_locations.replaced(gang.key)
        for node in sorted(nodes - gang.nodes.healed):
            loss = store.health.loss(node)
            if loss is not None and (uses_devices or not loss.devices_only):
                if not _already_moved(gang, node, loss.detected_at):
                    found[node] = loss.kind, loss.detected_at
                continue
            if node in replaced and node not in gang.workload.avoid:
                found[node] = REPLACED, now
                continue
            taint = store.health.untolerated(node, tolerations_of(store, gang))
            if taint is not None and node not in gang.workload.avoid:
                found[node] = f"Taint {taint.key}", now
        for node, loss in self._with_lost_cards(gang, now).items():
            if node not in gang.nodes.healed:
                found.setdefault(node, loss)
        if found:  # a placement is mended as a whole, off all unusable nodes
            for node in sorted(hosts_of(gang.quota.admission) - gang.nodes.healed - found.keys()):
                if why := store.health.why_unusable(node):
                    found[node] = why, now
        return found

    def _with_lost_cards(self, gang: WorkloadState, now: Millis) -> dict[str, tuple[str, Millis]]:
        """The hosts of its pods on cards that are lost, and those that it was moved off for that reason before a crash."""
        seats = seats_of(gang.quota.admission)
        if not seats:
            return {}
        left = _pods_on(self._store, gang) - hosts_of(gang.quota.admission) - set(gang.workload.avoid)
        return {**dict.fromkeys(sorted(left), (CARD_FAILED, now)), **self._cards.under(seats, now)}

    def _leave_early(self, gang: WorkloadState, policy: Recovery, now: Millis) -> list[Decision]:
        """Move off nodes that it is to leave, or that will be taken away if the policy wants that; if other nodes have room."""
        health = self._store.health
        if self.breaker.open_for(gang):
            return []
        left = {*gang.nodes.healed, *gang.workload.avoid}
        leaving = {
            node: (cause, now)
            for node in sorted(_nodes_with_pods(self._store, gang) - left)
            if (cause := health.leaving(node))
            and (policy.proactive or health.is_vacated(node, tolerations_of(self._store, gang)))
        }
        nodes = tuple(leaving)
        if not nodes or gang.workload.replaced_lately(now) >= policy.swap_budget:
            return []
        plan = HealingPlan(self._store, gang, nodes)
        return plan.carry_out(self._order(gang, leaving, nodes, now)) if plan.fits() else []

    def _fill_up(self, gang: WorkloadState, policy: Recovery, now: Millis, *, had_room: bool) -> list[Decision]:
        """Nodes have no room for all of it: they left before it came, or while the operator was down."""
        if gang.key not in self._store.capacity.without_nodes:
            return []
        since = self._short.setdefault(gang.key, now)
        had_room = had_room or gang.workload.pods_were_ready or bool(gang.workload.avoid)
        if (not had_room and now < since + PATIENCE) or self.breaker.open_for(gang):
            return []
        plan = HealingPlan(self._store, gang, ())
        if plan.fits():
            if plan.moves():
                return plan.carry_out(self._order(gang, {"": (PODS_LOST, since)}, (), now))
            plan.keep_room()
            return []
        return self._make_room(gang, plan, policy, (), now)

    # --- the nodes ----------------------------------------------------------------------------------------------------

    def _warn(self) -> list[Decision]:
        """Report once each lost node with gangs on it."""
        lost = self._store.health.lost()
        self._reported_lost &= lost.keys()
        news = [node for node in lost if node not in self._reported_lost and self._store.somebody_on(node)]
        self._reported_lost.update(news)
        return [Warn("Node", node, "NodeLost", f"Node {node} counts as lost: {lost[node].kind}") for node in news]

    def _forget_deleted(self, now: Millis) -> None:
        """Deleted nodes without gangs are forgotten once the breaker has counted them."""
        for node, loss in self._store.health.lost().items():
            gone = node not in self._store.health.nodes and not self._store.somebody_on(node)
            if gone and loss.at + self.breaker.WINDOW <= now:
                self._store.health.forget(node)


def _already_moved(gang: WorkloadState, node: str, detected: Millis) -> bool:
    """Whether an earlier decision, perhaps of another operator process, already moved the gang off the node for this loss."""
    return node in gang.workload.avoid and detected <= gang.workload.healed_at


def _nodes_with_pods(store: Store, gang: WorkloadState) -> set[str]:
    """The nodes of the gang's pods, by the pods that are bound and by its topology assignment."""
    return _pods_on(store, gang) | hosts_of(gang.quota.admission)


def _pods_on(store: Store, gang: WorkloadState) -> set[str]:
    """The nodes of the gang's pods that are bound."""
    workload_pods = store.workload_pods.get(gang.key)
    return {pod.node for pod in workload_pods.pods} if workload_pods is not None else set()


def _give_up(gang: WorkloadState, nodes: tuple[str, ...], because: str) -> Evict:
    names = f"failed nodes: {', '.join(nodes)}" if nodes else "lost pods"
    message = f"Evicted due to {names}: {because}"
    gang.evict(f"NodeFailures: {message}")
    return Evict(gang.key, gang.uid, "NodeFailures", message, avoid=nodes)


def _preempt(victim: WorkloadState, gang: WorkloadState, nodes: tuple[str, ...]) -> Preempt:
    what = f"lost {', '.join(nodes)}" if nodes else "lost pods"
    message = (
        f"Preempted to heal workload {gang.key} (UID: {gang.uid or 'UNKNOWN'}, JobUID: {gang.workload.job_uid or 'UNKNOWN'}),"
        f" which {what} and has the higher priority"
    )
    return Preempt(victim.key, victim.uid, TO_HEAL, message, by=gang.key, by_uid=gang.uid)
