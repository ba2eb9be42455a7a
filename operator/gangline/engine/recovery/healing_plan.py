"""How one gang could continue without its lost nodes: a new node assignment, and places where a topology flavor needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from gangline.engine.model import Admission, Decision, Heal, Millis, PodSetAssignment, Swap
from gangline.engine.nodes.packer import NodeAssignment, Shortage
from gangline.engine.occupancy.fitting import ANY_NUMBER, PODS
from gangline.engine.occupancy.node_ledger import HOSTS
from gangline.engine.preemption.simulated_removal import OrderedRemoval, simulate
from gangline.engine.preemption.victim_search import lost_work
from gangline.engine.queues.cluster_queue import queue_of
from gangline.engine.queues.protection import protected_until
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.topology.placement import mend
from gangline.engine.topology.placement_request import has_placements, on_host
from gangline.engine.topology.seating import joined

#: `Heal.how`: only lost pods are replaced, or all of it starts again
REPLACE, RESTART = "Replace", "Restart"


class HealingPlan:
    """A plan for the cluster as it is, or in a trial without others; `keep_room` takes the last answer."""

    def __init__(
        self, store: Store, gang: WorkloadState, lost: tuple[str, ...], refusing: tuple[str, ...] = ()
    ) -> None:
        """`refusing`: nodes that are not lost, but to which its pods can't be bound."""
        self._store = store
        self._gang = gang
        self._lost = lost
        self._refusing = refusing
        #: lost hosts of which only cards have failed, or are gone: they still take pods
        self.left = tuple(host for host in lost if host in store.node_ledger.cards.lost()) if lost else ()
        self._seats: NodeAssignment | None = None
        self._admission: Admission | None = None

    def fits(self) -> bool:
        self._seats = self._admission = None
        if self._store.capacity.holding(self._gang) is not None:
            found = self._store.capacity.reassign(self._gang, self._lost, self._refusing)
            if isinstance(found, Shortage):
                return False
            self._seats = found
        admission = self._gang.quota.admission
        if admission is not None and has_placements(admission):
            self._admission = self._mended(admission)
            return self._admission is not None
        return True

    def _mended(self, admission: Admission) -> Admission | None:
        """The pods of all lost hosts are placed on other hosts, as if they had been on one host."""
        store, gang = self._store, self._gang
        queue = queue_of(gang)
        assert queue is not None, gang
        hosts = [host for host in self._lost if on_host(admission, host)]
        if not hosts:
            return admission
        pod_sets = {demand.name: gang.workload.as_checked(demand.pod_set) for demand in gang.demands}
        gathered = _gathered(admission, hosts)
        needs = gang.node_needs(admission)
        # a host of which only a card has failed stays in the topology: nothing of the gang is to come back there
        left = tuple(((HOSTS, (host,)), {PODS: ANY_NUMBER}) for host in self.left)
        with store.topology.holding(gang.key, gathered, needs), store.node_ledger.beside(left):
            return mend(store.topology, pod_sets, gathered, hosts[0], store.settings.gates, queue.placement)

    def keep_room(self) -> None:
        """Keep the room for it, even while others still use it.

        Where only a card has failed, the host takes pods of others: the gang's places there stay taken until its pods are gone
        (see `Healing`).
        """
        if self._seats is not None:
            self._store.capacity.keep(self._gang, self._seats)
        if self._admission is not None and self._gang.quota.admission is not None:
            self._hold_both(self._gang.quota.admission, self._admission)

    def _hold_both(self, old: Admission, new: Admission) -> None:
        """Let the gang hold its new places, and the old ones on hosts that still take pods."""
        topology, needs = self._store.topology, self._gang.node_needs(new)
        left = topology.taken(_of_hosts(old, self.left), needs)
        topology.put_holder(self._gang.key, new, needs, beside=left)

    def let_go(self) -> None:
        """Keep no room for the gang beyond what it has."""
        if self._gang.quota.admission is None:
            return
        if has_placements(self._gang.quota.admission):
            needs = self._gang.node_needs(self._gang.quota.admission)
            self._store.topology.put_holder(self._gang.key, self._gang.quota.admission, needs)
        self._store.capacity.hold(self._gang, self._gang.quota.admission)
        self._store.capacity.settle()

    def moves(self) -> bool:
        """Whether pods on healthy nodes would have to move, too."""
        holding = self._store.capacity.holding(self._gang)
        if holding is None or self._seats is None:
            return False
        stay = self._seats.bound
        return any(count > stay.get(place, 0) for place, count in self._store.capacity.bound(holding).items())

    def carry_out(self, heal: Heal) -> list[Decision]:
        self.keep_room()
        if heal.how == RESTART:
            self._store.capacity.pod_locations.dismiss(self._gang.key)
        if self._admission is None or self._admission == self._gang.quota.admission:
            return [heal]
        old = self._gang.quota.admission
        self._store.swap(self._gang, self._admission)
        if old is not None:
            self._hold_both(old, self._admission)
        return [Swap(self._gang.key, self._gang.uid, self._admission), heal]


def _of_hosts(admission: Admission, hosts: Sequence[str]) -> Admission:
    """The admission with nothing but the places on these hosts."""

    def there(pod_set: PodSetAssignment) -> PodSetAssignment:
        placed = pod_set.topology
        if placed is None:
            return pod_set
        domains = tuple(domain for domain in placed.domains if domain.values[-1] in hosts)
        return replace(pod_set, topology=replace(placed, domains=domains))

    return replace(admission, pod_sets=tuple(there(pod_set) for pod_set in admission.pod_sets))


def _gathered(admission: Admission, hosts: Sequence[str]) -> Admission:
    """The admission with all pods of these hosts on the first of them."""

    def gathered(pod_set: PodSetAssignment) -> PodSetAssignment:
        placed = pod_set.topology
        if placed is None:
            return pod_set
        lost = [replace(domain, values=(hosts[0],)) for domain in placed.domains if domain.values[-1] in hosts]
        rest = tuple(domain for domain in placed.domains if domain.values[-1] not in hosts)
        domains = (reduce(joined, lost), *rest) if lost else rest
        return replace(pod_set, topology=replace(placed, domains=domains))

    return replace(admission, pod_sets=tuple(gathered(pod_set) for pod_set in admission.pod_sets))


# --- healing victims --------------------------------------------------------------------------------------------------
# Victims for a gang that lost nodes: whole gangs of lower priority, with the least loss of work.


#: Number of gangs that are tried alone before several together are taken.
SINGLES = 200


def cheapest(
    store: Store, gang: WorkloadState, plan: HealingPlan, now: Millis, *, others: bool
) -> list[WorkloadState] | None:
    """The workloads that have to leave so that the plan fits; None if it never does. On return the plan has last been asked
    without them.

    Those on their way out come first: if they suffice, no other one is preempted. `others` allows other victims: the lowest
    priorities first, and among them the least lost GPU-seconds; never a protected workload.
    """
    leaving = [holder for holder in _holders(store) if holder.evicting and holder is not gang]
    with simulate(removed=leaving):
        if plan.fits():
            return leaving
        chosen = _choose(store, gang, plan, now) if others else None
        if chosen is None:
            return None
        with simulate(removed=chosen):
            plan.fits()
        return [*leaving, *chosen]


def _choose(store: Store, gang: WorkloadState, plan: HealingPlan, now: Millis) -> list[WorkloadState] | None:
    candidates = sorted(
        (
            holder
            for holder in _holders(store)
            if holder.priority < gang.priority
            and not holder.evicting
            and not protected_until(holder, now)
            and _in_the_way(store, holder, gang)
        ),
        key=lambda holder: (holder.priority, lost_work(holder, now), holder.uid),
    )
    together = _together(candidates, plan)
    if together is None:
        return None
    alone = next((holder for holder in candidates[:SINGLES] if _enough([holder], plan)), None)
    choices = [together] if alone is None else [[alone], together]
    return min(choices, key=lambda gangs: (max(g.priority for g in gangs), sum(lost_work(g, now) for g in gangs)))


def _together(candidates: Sequence[WorkloadState], plan: HealingPlan) -> list[WorkloadState] | None:
    """Remove one after the other until it fits; then spare those that are not needed, the most costly first."""
    with OrderedRemoval(candidates, 0) as removal:
        for count in range(1, len(candidates) + 1):
            removal.first(count)
            if plan.fits():
                return removal.spare(plan.fits, last=True)
    return None


def _enough(gangs: list[WorkloadState], plan: HealingPlan) -> bool:
    with simulate(removed=gangs):
        return plan.fits()


def _holders(store: Store) -> list[WorkloadState]:
    return [holder for _, queue in sorted(store.queues.items()) for holder in queue.holders.values()]


def _in_the_way(store: Store, holder: WorkloadState, gang: WorkloadState) -> bool:
    """Whether the holder uses nodes that the gang could use, such as those of a shared flavor."""
    mine = {flavor for flavor, _ in gang.quota.usage}
    if any(flavor in mine for flavor, _ in holder.quota.usage):
        return True
    return bool(store.capacity.nodes_of(holder) & store.capacity.reach(gang))
