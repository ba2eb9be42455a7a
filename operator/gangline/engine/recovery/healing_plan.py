"""How one gang could continue without its lost nodes: a new node assignment, and places where a topology flavor needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from gangline.engine.model import Admission, Decision, Heal, PodSetAssignment, Swap
from gangline.engine.nodes.packer import NodeAssignment, Shortage
from gangline.engine.occupancy.fitting import ANY_NUMBER, PODS
from gangline.engine.occupancy.node_ledger import HOSTS
from gangline.engine.queues.cluster_queue import queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.topology.placement import has_placements, mend, on_host
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
        admission = self._gang.admission
        if admission is not None and has_placements(admission):
            self._admission = self._mended(admission)
            return self._admission is not None
        return True

    def _mended(self, admission: Admission) -> Admission | None:
        """The pods of all lost hosts are placed elsewhere, as if they had been on one host."""
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
        if self._admission is not None and self._gang.admission is not None:
            self._hold_both(self._gang.admission, self._admission)

    def _hold_both(self, old: Admission, new: Admission) -> None:
        """Let the gang hold its new places, and the old ones on hosts that still take pods."""
        topology, needs = self._store.topology, self._gang.node_needs(new)
        left = topology.taken(_of_hosts(old, self.left), needs)
        topology.put_holder(self._gang.key, new, needs, beside=left)

    def let_go(self) -> None:
        """Keep no room for the gang beyond what it has."""
        if self._gang.admission is None:
            return
        if has_placements(self._gang.admission):
            needs = self._gang.node_needs(self._gang.admission)
            self._store.topology.put_holder(self._gang.key, self._gang.admission, needs)
        self._store.capacity.hold(self._gang, self._gang.admission)
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
        if self._admission is None or self._admission == self._gang.admission:
            return [heal]
        old = self._gang.admission
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
