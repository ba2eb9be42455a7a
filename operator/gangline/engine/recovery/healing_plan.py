"""How one gang could continue without its lost nodes: a new node assignment, and places where a topology flavor needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gangline.engine.model import Admission, Decision, Domain, Heal, PodSetAssignment, Swap
from gangline.engine.nodes.packer import NodeAssignment, Shortage
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.topology.placement import has_placements, mend, on_host

#: `Heal.how`: only lost pods are replaced, or all of it starts again
REPLACE, RESTART = "Replace", "Restart"


class Plan:
    """A plan for the cluster as it is, or in a simulation without others; `keep_room` takes the last answer."""

    def __init__(self, store: Store, gang: WorkloadState, lost: tuple[str, ...]) -> None:
        self._store = store
        self._gang = gang
        self._lost = lost
        self._seats: NodeAssignment | None = None
        self._admission: Admission | None = None

    def fits(self) -> bool:
        self._seats = self._admission = None
        if self._store.capacity.holding(self._gang) is not None:
            found = self._store.capacity.reassign(self._gang, self._lost)
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
        assert gang.queue is not None, gang
        hosts = [host for host in self._lost if on_host(admission, host)]
        if not hosts:
            return admission
        pod_sets = {demand.name: gang.workload.as_checked(demand.pod_set) for demand in gang.demands}
        gathered = _gathered(admission, hosts)
        store.topology.put_holder(gang.key, gathered)
        try:
            return mend(store.topology, pod_sets, gathered, hosts[0], store.settings.gates)
        finally:
            store.topology.put_holder(gang.key, admission)

    def keep_room(self) -> None:
        """Keep the room for it, even while others still use it."""
        if self._seats is not None:
            self._store.capacity.keep(self._gang, self._seats)
        if self._admission is not None:
            self._store.topology.put_holder(self._gang.key, self._admission)

    def let_go(self) -> None:
        """Keep no room for it beyond what it has."""
        if self._gang.admission is None:
            return
        if has_placements(self._gang.admission):
            self._store.topology.put_holder(self._gang.key, self._gang.admission)
        self._store.capacity.hold(self._gang, self._gang.admission)
        self._store.capacity.settle()

    def moves(self) -> bool:
        """Pods on healthy nodes would have to move, too."""
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
        self._store.swap(self._gang, self._admission)
        return [Swap(self._gang.key, self._gang.uid, self._admission), heal]


def _gathered(admission: Admission, hosts: Sequence[str]) -> Admission:
    """The admission with all pods of these hosts on the first of them."""

    def gathered(pod_set: PodSetAssignment) -> PodSetAssignment:
        placed = pod_set.topology
        if placed is None:
            return pod_set
        lost = sum(domain.count for domain in placed.domains if domain.values[-1] in hosts)
        rest = tuple(domain for domain in placed.domains if domain.values[-1] not in hosts)
        domains = (Domain((hosts[0],), lost), *rest) if lost else rest
        return replace(pod_set, topology=replace(placed, domains=domains))

    return replace(admission, pod_sets=tuple(gathered(pod_set) for pod_set in admission.pod_sets))
