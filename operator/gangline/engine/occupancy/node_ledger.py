"""The ledger of nodes: what they have, the pods of others on them, and what workloads take.

A workload takes room in two ways. Where a topology places its pods, it takes of *spots*: the hosts, or the domains above hosts
that are the topology's lowest level. On flavors without a topology its pods are *assigned* to nodes. A node has room for
assigned pods where neither leaves too little, nor do the pods of others; topologies do not count assigned pods before they exist
(they are then among `ForeignPod`s), as in Kueue.

Who looks for room (`topology.topologies`, `nodes.node_rooms`) watches, and keeps tables of what fits where. What is taken is
given back exactly: a trial lifts workloads out of the ledger itself and restores them.

Whatever may give somebody more room is logged in `openings`, here, where every change passes: nodes that come, go or change,
and room that a workload gives back. Trials log nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from gangline.engine.cards import card_amounts
from gangline.engine.model import ForeignPod, JobProfile, Node, NodeCards, Requests
from gangline.engine.occupancy.card_ledger import CardLedger
from gangline.engine.occupancy.fitting import HOSTNAME, shift, usage_of
from gangline.engine.occupancy.power_ledger import PowerLedger, PowerRules
from gangline.engine.text.change_log import ChangeLog

#: A lowest domain as topology assignments name it: the hostname alone where that is the lowest level, otherwise the whole path.
LeafKey: TypeAlias = tuple[str, ...]

#: The flavor of a domain ("" where it is a host, which flavors share), and its name.
Spot: TypeAlias = tuple[str, LeafKey]

#: A node label and its value: a domain that exclusive work takes for itself alone.
DomainKey: TypeAlias = tuple[str, str]

#: the flavor of spots that are hosts
HOSTS: Final = ""

K = TypeVar("K")

#: The log of changed nodes starts over at this length.
_LOG_LENGTH = 8192


@dataclass(slots=True)
class TrackedNode:
    """A node, and what pods take of it: those assigned to it, those that a topology placed on its host, and those of others."""

    node: Node
    usable: bool
    assigned: dict[str, int]
    placed: Mapping[str, int]
    others: Mapping[str, int]

    @property
    def idle(self) -> bool:
        return not self.assigned and not self.placed

    def left(self) -> dict[str, int]:
        """What pods may still take of it, by resource."""
        taken = (self.assigned, self.placed, self.others)
        return {
            resource: max(0, amount - sum(each.get(resource, 0) for each in taken))
            for resource, amount in self.node.allocatable.items()
        }

    @property
    def overfull(self) -> bool:
        """Whether more is taken than there is, of something that the room's assigned pods take."""
        capacity, placed, others = self.node.allocatable, self.placed, self.others
        return any(
            resource in capacity and amount + placed.get(resource, 0) + others.get(resource, 0) > capacity[resource]
            for resource, amount in self.assigned.items()
        )


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a workload's assignment takes: amounts on nodes, and domains for itself alone with how many times."""

    on_nodes: tuple[tuple[str, Mapping[str, int]], ...] = ()
    domains: tuple[tuple[DomainKey, int], ...] = ()


#: Where there may be more room than before: a node as it is or was, or the flavor of a domain above hosts.
Opening: TypeAlias = "Node | str"

#: What a workload's placements take.
Placed: TypeAlias = tuple[tuple[Spot, Mapping[str, int]], ...]

NOWHERE: Final = Assigned()


@dataclass(slots=True)
class _Holder:
    placed: Placed = ()
    assigned: Assigned = NOWHERE
    lifted: bool = False


class Watcher(Protocol):
    """Gets changes of nodes, of the pods of others, and of workloads that take nothing any more, once they are in the ledger."""

    def node_put(self, tracked: TrackedNode, old: Node | None) -> None: ...
    def node_gone(self, name: str) -> None: ...
    def cards_put(self, node: str) -> None: ...
    def foreign_shifted(self, node: str, amounts: Requests, sign: int) -> None: ...
    def power_capped(self) -> None: ...
    def power_shifted(self, nodes: Iterable[str]) -> None: ...
    def released(self, key: str) -> None: ...


class SpotWatcher(Protocol):
    """Gets changes of what is taken of spots of one flavor (or of hosts), once they are in the ledger."""

    def spot_shifted(self, key: LeafKey, amounts: Requests, sign: int) -> None: ...


class NodeLedger:
    def __init__(self) -> None:
        #: by name of the node
        self.nodes: dict[str, TrackedNode] = {}
        #: how many rooms were looked at, or other work that takes as much: what deciding costs
        self.looks = 0
        #: grows when nodes come, go, or offer something else, and with the pods of others
        self.version = 0
        #: host -> its nodes; more than one only where labels are wrong
        self._hosts: dict[str, list[str]] = {}
        #: usage by assigned pods on nodes that are not known (any more)
        self._on_unknown_nodes: dict[str, dict[str, int]] = {}
        self._placed: dict[Spot, dict[str, int]] = {}
        self._foreign_pods: dict[str, ForeignPod] = {}
        self._foreign: dict[str, dict[str, int]] = {}
        #: what foreign pods take of a node that are of no gang
        self._others: dict[str, dict[str, int]] = {}
        #: foreign pods that are of gangs, whose assignments account for them; and by workload
        self._accounted: set[str] = set()
        self._accounts: dict[str, frozenset[str]] = {}
        #: nodes on which others have come to take more (`drain_intruded`)
        self._intruded: set[str] = set()
        self.cards = CardLedger(self)
        #: None = no policy caps power
        self.power: PowerLedger | None = None
        self.power_profiles: Mapping[str, JobProfile] = {}
        self._owners: dict[DomainKey, dict[str, int]] = {}
        self._holders: dict[str, _Holder] = {}
        #: node -> the holders with assigned pods there
        self._on: dict[str, set[str]] = {}
        self._watchers: list[Watcher] = []
        self._spot_watchers: dict[str, list[SpotWatcher]] = {}
        #: nodes on which the usage by assigned pods changed
        self.changes: ChangeLog[str] = ChangeLog(_LOG_LENGTH)
        #: where room may have become free
        self.openings: ChangeLog[Opening] = ChangeLog(_LOG_LENGTH)
        #: other ledgers that get the same nodes and foreign pods (see engine.backfill.timeline_world)
        self._mirrors: WeakSet[NodeLedger] = WeakSet()

    def mirror_to(self, other: NodeLedger) -> None:
        """`other` gets all nodes and foreign pods, present and future."""
        for tracked in self.nodes.values():
            other.put_node(tracked.node, usable=tracked.usable)
        other._accounted, other._accounts = set(self._accounted), dict(self._accounts)
        for pod in self._foreign_pods.values():
            other.put_foreign(pod)
        for node in self.cards.nodes():
            other.cards.copy_from(self.cards, node)
        if self.power is not None:
            other.cap_power(self.power.rules, self.power_profiles)
        self._mirrors.add(other)

    # --- watching -----------------------------------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def watch_spots(self, flavor: str, watcher: SpotWatcher) -> None:
        self._spot_watchers.setdefault(flavor, []).append(watcher)

    def unwatch_spots(self, flavor: str, watcher: SpotWatcher) -> None:
        self._spot_watchers[flavor].remove(watcher)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def put_node(self, node: Node, *, usable: bool) -> None:
        """A node as it is now; `usable`: it is trusted with new pods."""
        tracked, name, host = self.nodes.get(node.name), node.name, host_of(node)
        old = tracked.node if tracked is not None else None
        offers_otherwise = old is None or _offer(old) != _offer(node)
        if tracked is None or old is None or tracked.usable != usable or offers_otherwise:
            self.version += 1
            self.openings.extend((node,) if old is None else (old, node))
        if tracked is None:
            taken, others = self._on_unknown_nodes.pop(name, {}), self._others.setdefault(name, {})
            tracked = self.nodes[name] = TrackedNode(node, usable, taken, self._settle(host, name), others)
        else:
            if old is not None and host_of(old) != host:
                self._unsettle(host_of(old), name)
                tracked.placed = self._settle(host, name)
            tracked.node, tracked.usable = node, usable
        if self.power is not None and offers_otherwise:
            self.power.put_node(name)
        for watcher in self._watchers:
            watcher.node_put(tracked, old)
        for mirror in self._mirrors:
            mirror.put_node(node, usable=usable)

    def remove_node(self, name: str) -> None:
        """A node was deleted (unknown names are ignored)."""
        tracked = self.nodes.pop(name, None)
        if tracked is None:
            return
        self.version += 1
        self.openings.append(tracked.node)  # the flavors of which it was the last node are bounded by quota alone now
        self._unsettle(host_of(tracked.node), name)
        if tracked.assigned:
            self._on_unknown_nodes[name] = tracked.assigned
        if not tracked.others:
            del self._others[name]
        if self.power is not None:
            self.power.remove_node(name)
        for watcher in self._watchers:
            watcher.node_gone(name)
        for mirror in self._mirrors:
            mirror.remove_node(name)

    def _settle(self, host: str, name: str) -> dict[str, int]:
        self._hosts.setdefault(host, []).append(name)
        return self._placed.setdefault((HOSTS, (host,)), {})

    def _unsettle(self, host: str, name: str) -> None:
        self._hosts[host].remove(name)
        if not self._hosts[host]:
            del self._hosts[host]
            self._tidy((HOSTS, (host,)))

    def nodes_at(self, host: str) -> Iterable[str]:
        return self._hosts.get(host, ())

    # --- pods of others -----------------------------------------------------------------------------------------------

    def put_foreign(self, pod: ForeignPod) -> None:
        """A pod that uses a node without a topology placement."""
        if self._foreign_pods.get(pod.key) == pod:
            return
        self.remove_foreign(pod.key)
        self._foreign_pods[pod.key] = pod
        self._shift_foreign(pod, 1)
        for mirror in self._mirrors:
            mirror.put_foreign(pod)

    def remove_foreign(self, key: str) -> None:
        pod = self._foreign_pods.pop(key, None)
        if pod is not None:
            self._shift_foreign(pod, -1)
            for mirror in self._mirrors:
                mirror.remove_foreign(key)

    def _shift_foreign(self, pod: ForeignPod, sign: int) -> None:
        self.version += 1
        amounts = usage_of(pod.requests, 1)
        if pod.key not in self._accounted:
            self._shift_others(pod.node, amounts, sign)
        self.shift_foreign(pod.node, amounts, sign)

    def shift_foreign(self, node: str, amounts: Requests, sign: int) -> None:
        """Pods of others take these amounts more of a node (sign -1: less); `pods` is up to the caller."""
        taken = self._foreign.setdefault(node, {})
        shift(taken, amounts, sign)
        if not taken:
            del self._foreign[node]
        for watcher in self._watchers:
            watcher.foreign_shifted(node, amounts, sign)

    def _shift_others(self, node: str, amounts: Requests, sign: int) -> None:
        taken = self._others.setdefault(node, {})
        shift(taken, amounts, sign)
        if not taken and node not in self.nodes:
            del self._others[node]
        if self.power is not None:
            self.power.renew(node)
        if sign > 0:
            self._intruded.add(node)
        else:
            self._open((node,))
        if node in self.nodes:
            self.changes.append(node)

    def account_for(self, key: str, pods: frozenset[str]) -> None:
        """Note that these foreign pods are those of a workload: what it takes by its assignment accounts for them."""
        before = self._accounts.pop(key, _NO_PODS)
        if pods:
            self._accounts[key] = pods
        if pods == before:
            return
        self._accounted -= before
        self._accounted |= pods
        for name in sorted(pods ^ before):
            if (pod := self._foreign_pods.get(name)) is not None:
                self._shift_others(pod.node, usage_of(pod.requests, 1), -1 if name in pods else 1)
        for mirror in self._mirrors:
            mirror.account_for(key, pods)

    def drain_intruded(self) -> set[str]:
        """The nodes on which pods of others took more at some time since the last call."""
        intruded, self._intruded = self._intruded, set()
        return intruded

    def foreign_on(self, node: str) -> Mapping[str, int]:
        """What pods of others take of a node, whether it is known or not."""
        return self._foreign.get(node, _NOTHING)

    # --- cards --------------------------------------------------------------------------------------------------------

    def put_cards(self, cards: NodeCards) -> None:
        """The cards of a node and who sits there, as they are now; without devices: nothing is known of its cards."""
        if self.cards.put(cards):
            for mirror in self._mirrors:
                mirror.cards.copy_from(self.cards, cards.node)
        else:
            self._tell_mirrors_taken(cards.node)

    def _tell_mirrors_taken(self, node: str) -> None:
        for mirror in self._mirrors:
            mirror.cards.take(node, self.cards.taken(node))

    def cards_changed(self, node: str | None) -> None:
        self.version += 1
        if node is not None:
            if self.power is not None and node in self.nodes:
                self.power.put_node(node)
            for watcher in self._watchers:
                watcher.cards_put(node)

    def host_at(self, node: str) -> str | None:
        tracked = self.nodes.get(node)
        return host_of(tracked.node) if tracked is not None else None

    def taken_at(self, host: str) -> Mapping[str, int]:
        return self.on_spot((HOSTS, (host,)))

    def placed_at(self, key: str, host: str) -> Mapping[str, int]:
        spot = HOSTS, (host,)
        return next((amounts for where, amounts in self.placed(key) if where == spot), _NOTHING)

    def has_seats(self, key: str) -> bool:
        return any(card_amounts.cards_in(amounts) for _, amounts in self.placed(key))

    # --- power --------------------------------------------------------------------------------------------------------

    def cap_power(self, rules: PowerRules, profiles: Mapping[str, JobProfile]) -> None:
        """The caps of power domains, and what was measured of classes, as they are now."""
        before, self.power_profiles = self.power, dict(profiles)
        self.power = None
        if rules:
            shifted = self._power_shifted
            self.power = PowerLedger(rules, profiles.values(), self.nodes, self.cards.number_and_model, shifted)
        elif before is None:
            return
        self.version += 1
        for watcher in self._watchers:
            watcher.power_capped()
        self.openings.extend(tracked.node for tracked in self.nodes.values())
        for mirror in self._mirrors:
            mirror.cap_power(rules, profiles)

    def _power_shifted(self, nodes: Iterable[str]) -> None:
        for watcher in self._watchers:
            watcher.power_shifted(nodes)

    def within_power(self, placed: Placed) -> bool:
        """Whether the caps allow pods there beside all others."""
        power = self.power
        if power is None:
            return True
        before = power.used(name for (_, key), _ in placed for name in self.nodes_at(key[-1]))
        with self.beside(placed):
            return power.exceeds(before) is None

    # --- holders ------------------------------------------------------------------------------------------------------

    def place(self, key: str, placed: Placed) -> None:
        """A workload takes this of spots, instead of what it took before."""
        before = self.placed(key)
        self.replace(key, placed)
        for flavor, leaf in _given_back(before, placed):
            if flavor == HOSTS:
                self._open(self.nodes_at(leaf[0]))
            else:
                self.openings.append(flavor)
        if self.cards.known:
            hosts = [leaf[0] for (flavor, leaf), _ in placed if flavor == HOSTS]
            for node in self.cards.placed(key, [name for host in hosts for name in self.nodes_at(host)]):
                self._tell_mirrors_taken(node)

    def replace(self, key: str, placed: Placed) -> None:
        """The same in a trial: where its pods were seen counts as before."""
        holder = self._holders.get(key)
        if holder is None:
            if not placed:
                return
            holder = self._holders[key] = _Holder()
        if not holder.lifted:
            self._shift_placed(holder.placed, -1)
            self._shift_placed(placed, 1)
        holder.placed = placed
        self._forget_empty(key, holder)

    def assign(self, key: str, assigned: Assigned) -> None:
        """A workload's assigned pods take this, instead of what they took before."""
        before = self.assigned(key)
        self._assign(key, assigned)
        if before is not NOWHERE:
            self._open(_given_back(before.on_nodes, assigned.on_nodes))
            for label, value in _left(before.domains, assigned.domains):
                self._open(name for name, tracked in self.nodes.items() if tracked.node.labels.get(label) == value)

    def _open(self, nodes: Iterable[str]) -> None:
        if self.power is not None:
            nodes = {peer for name in nodes for peer in (name, *self.power.peers(name))}
        known = (self.nodes.get(name) for name in nodes)
        self.openings.extend(tracked.node for tracked in known if tracked is not None)

    @contextmanager
    def unassigned(self, key: str) -> Generator[None]:
        """The nodes as they would be if the pods of a workload were assigned nowhere."""
        holder = self._holders.get(key)
        assigned = holder.assigned if holder is not None and not holder.lifted else NOWHERE
        self._shift_assigned(key, assigned, -1)
        try:
            yield
        finally:
            self._shift_assigned(key, assigned, 1)

    def assume(self, key: str, placed: Placed, assigned: Assigned) -> None:
        """Take room under a key that no workload has, for the rest of a trial."""
        self.replace(key, placed)
        self._assign(key, assigned)

    def end_assumption(self, key: str) -> None:
        self.assume(key, (), NOWHERE)

    def _assign(self, key: str, assigned: Assigned) -> None:
        holder = self._holders.get(key)
        if holder is None:
            if assigned is NOWHERE:
                return
            holder = self._holders[key] = _Holder()
        for node, _ in holder.assigned.on_nodes:
            there = self._on.get(node)
            if there is not None:
                there.discard(key)
                if not there:
                    del self._on[node]
        if not holder.lifted:
            self._shift_assigned(key, holder.assigned, -1)
            self._shift_assigned(key, assigned, 1)
        holder.assigned = assigned
        for node, _ in assigned.on_nodes:
            self._on.setdefault(node, set()).add(key)
        self._forget_empty(key, holder)

    def _forget_empty(self, key: str, holder: _Holder) -> None:
        if not holder.placed and holder.assigned is NOWHERE and not holder.lifted:
            del self._holders[key]

    def release(self, key: str) -> None:
        """A workload takes nothing any more; unknown keys are ignored."""
        if key in self._holders:
            self.place(key, ())
            self.assign(key, NOWHERE)
            self._holders.pop(key, None)
            for watcher in self._watchers:
                watcher.released(key)

    def lift(self, key: str) -> None:
        """Simulate that a workload takes nothing; `restore` is the exact reverse."""
        holder = self._holders.get(key)
        if holder is not None and not holder.lifted:
            self._shift_placed(holder.placed, -1)
            self._shift_assigned(key, holder.assigned, -1)
            holder.lifted = True

    def restore(self, key: str) -> None:
        holder = self._holders.get(key)
        if holder is not None and holder.lifted:
            holder.lifted = False
            self._shift_assigned(key, holder.assigned, 1)
            self._shift_placed(holder.placed, 1)
            self._forget_empty(key, holder)

    @contextmanager
    def beside(self, placed: Placed) -> Generator[None]:
        """The nodes as they would be if pods were placed there, too."""
        self._shift_placed(placed, 1)
        try:
            yield
        finally:
            self._shift_placed(placed, -1)

    def placed(self, key: str) -> Placed:
        holder = self._holders.get(key)
        return holder.placed if holder is not None else ()

    def assigned(self, key: str) -> Assigned:
        holder = self._holders.get(key)
        return holder.assigned if holder is not None else NOWHERE

    def placed_on(self, host: str) -> Iterator[str]:
        """Workloads of which a topology placed pods on a host."""
        spot = (HOSTS, (host,))
        return (key for key, holder in self._holders.items() if any(where == spot for where, _ in holder.placed))

    def assigned_to(self, node: str) -> Iterable[str]:
        """Workloads with pods that are assigned to a node."""
        return self._on.get(node, ())

    # --- what is taken ------------------------------------------------------------------------------------------------

    def on_spot(self, spot: Spot) -> Mapping[str, int]:
        """What placed pods take of a spot."""
        return self._placed.get(spot, _NOTHING)

    def spots(self, flavor: str) -> dict[LeafKey, Mapping[str, int]]:
        """What placed pods take of the spots of a flavor (or of hosts); spots of which nothing is taken are left out."""
        return {key: held for (owner, key), held in self._placed.items() if owner == flavor and held}

    def shift_spot(self, spot: Spot, amounts: Requests, sign: int) -> None:
        """Placed pods take these amounts more of a spot (sign -1: less)."""
        held = self._placed.setdefault(spot, {})
        shift(held, amounts, sign)
        if not held:
            self._tidy(spot)
        flavor, key = spot
        if self.power is not None and flavor == HOSTS:
            for name in self.nodes_at(key[0]):
                self.power.renew(name)
        for watcher in self._spot_watchers.get(flavor, ()):
            watcher.spot_shifted(key, amounts, sign)

    def _tidy(self, spot: Spot) -> None:
        """Forget a spot of which nothing is taken, unless a room refers to it."""
        flavor, key = spot
        if not self._placed[spot] and (flavor != HOSTS or key[0] not in self._hosts):
            del self._placed[spot]

    def _shift_placed(self, placed: Placed, sign: int) -> None:
        for spot, amounts in placed:
            self.shift_spot(spot, amounts, sign)

    def shift_node(self, name: str, amounts: Mapping[str, int], count: int) -> None:
        """Assigned pods take `count` times these amounts more of a node (negative: less)."""
        tracked = self.nodes.get(name)
        held = tracked.assigned if tracked is not None else self._on_unknown_nodes.setdefault(name, {})
        shift(held, amounts, count)
        if tracked is not None:
            self.changes.append(name)
            if self.power is not None:
                self.power.renew(name)
        elif not held:
            del self._on_unknown_nodes[name]

    def has_room(self, assigned: Assigned) -> bool:
        """Whether all of this fits beside what is taken."""
        power = self.power
        used = power.used(name for name, _ in assigned.on_nodes) if power is not None else {}
        self._shift_assigned(_SIMULATED, assigned, 1)
        within = power is None or power.exceeds(used) is None
        taken = [tracked for name, _ in assigned.on_nodes if (tracked := self.nodes.get(name)) is not None]
        domains = (self.owners(domain) for domain, _ in assigned.domains)
        free = within and not any(tracked.overfull for tracked in taken) and all(len(owners) == 1 for owners in domains)
        self._shift_assigned(_SIMULATED, assigned, -1)
        return free

    def own(self, domain: DomainKey, key: str, count: int) -> None:
        """`key` takes a domain for itself alone, `count` times more (negative: fewer)."""
        owners = self._owners.setdefault(domain, {})
        shift(owners, {key: 1}, count)
        if not owners:
            del self._owners[domain]

    def owners(self, domain: DomainKey) -> Mapping[str, int]:
        return self._owners.get(domain, _NOTHING)

    def _shift_assigned(self, key: str, assigned: Assigned, sign: int) -> None:
        for node, amounts in assigned.on_nodes:
            self.shift_node(node, amounts, sign)
        for domain, count in assigned.domains:
            self.own(domain, key, sign * count)


def _given_back(before: Iterable[tuple[K, Mapping[str, int]]], now: Iterable[tuple[K, Mapping[str, int]]]) -> list[K]:
    """The spots or nodes where less of something is taken now."""
    held = dict(now)
    return [
        where
        for where, amounts in before
        if any(amount > held.get(where, _NOTHING).get(resource, 0) for resource, amount in amounts.items())
    ]


def _left(before: Iterable[tuple[DomainKey, int]], now: Iterable[tuple[DomainKey, int]]) -> set[DomainKey]:
    return {domain for domain, _ in before}.difference(domain for domain, _ in now)


def host_of(node: Node) -> str:
    """The host that topologies know a node by."""
    return node.labels.get(HOSTNAME, node.name)


def _offer(node: Node) -> object:
    """What a node offers, and to which pods."""
    return (
        node.labels,
        node.allocatable,
        node.taints,
        node.ready,
        node.unschedulable,
        node.interfaces,
        node.gpu_watts,
        node.idle_watts,
    )


#: key of the holder in a trial
_SIMULATED = ""

_NOTHING: Mapping[str, int] = {}
_NO_PODS: frozenset[str] = frozenset()
