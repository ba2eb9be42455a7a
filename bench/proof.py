"""Whether quota was ever granted twice, by every revision of the API server's store, one after the other. Pure.

- A reservation never leaves its ClusterQueue over nominal quota and borrowing limit, or its cohort's tree over all that it has.
  What pods hold beyond their gang's reservation counts, since they may still run when their Workload is gone. Pods on nodes
  that are not ready or no more don't count, nor, once such a node is back, those of its pods that are being deleted: they were
  given up with the node, and are replaced before it ends them.
- A reservation covers the gang: every pod set, and as many pods as it has, or as it says it can do with.
- A pod is bound to a node only while its gang is admitted, and never one more than admitted. When an admitted one is deleted, its
  job may start pods until it is stopped: what these hold must not have been granted to others.
- No card is over-full, and no pod off its cards: see `bench.card_proof`.
- Where `power` is given, no start takes a power domain over its cap: see `bench.power_proof`.

Limits on lending are not looked at: a tree of cohorts is checked as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from bench.card_proof import CardProof
from bench.evidence import CLUSTER_QUEUES, NODES, PODS, WORKLOADS, Budget, Grant, Ground, Member, Place, Revision, Usage
from bench.power_proof import PoweredNode, PowerProof

#: owners of owners of cohorts are followed so far up
MOST_PARENTS = 20


@dataclass(slots=True)
class Level:
    """Amounts by ClusterQueue that go up and down. `seconds` adds up, by resource, amount × the time for which it stood."""

    by_queue: dict[str, Usage] = field(default_factory=dict[str, Usage])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    _total: Counter[str] = field(default_factory=Counter[str])

    def add(self, queue: str, usage: Mapping[Place, int], sign: int = 1) -> None:
        here = self.by_queue.setdefault(queue, Counter())
        for place, amount in usage.items():
            here[place] += sign * amount
            self._total[place[1]] += sign * amount

    def of(self, queues: Iterable[str], place: Place) -> int:
        return sum(self.by_queue[queue][place] for queue in queues if queue in self.by_queue)

    def pass_time(self, seconds: float) -> None:
        for resource, amount in self._total.items():
            self.seconds[resource] = self.seconds.get(resource, 0.0) + amount * seconds


@dataclass
class Proof:
    """Takes revisions in their order. `violations` tells what must never have been."""

    violations: list[str] = field(default_factory=list)
    #: revisions taken, and reservations and pods checked among them
    revisions: int = 0
    checked: int = 0
    #: what is reserved, what pods of gangs hold, and what of that is beyond their gang's reservation
    reserved: Level = field(default_factory=Level)
    used: Level = field(default_factory=Level)
    beyond: Level = field(default_factory=Level)
    cards: CardProof = field(default_factory=CardProof)
    #: None: power is not looked at
    power: PowerProof | None = None
    _queues: dict[str, Budget] = field(default_factory=dict)
    _cohorts: dict[str, Budget] = field(default_factory=dict)
    _trees: dict[str, tuple[list[str], Usage]] = field(
        default_factory=dict
    )  # root -> its queues, and all that they have
    _grants: dict[str, Grant] = field(default_factory=dict)
    _slices: dict[str, dict[str, Grant]] = field(default_factory=dict)  # gang of an elastic job -> Workload -> grant
    _gang: dict[str, str] = field(default_factory=dict)  # Workload of an elastic job -> its gang
    _last: dict[str, Grant] = field(default_factory=dict)  # the last grant of every gang
    _deleted: dict[str, Grant] = field(default_factory=dict)  # what Workloads held when they were deleted
    _pods: dict[str, Member] = field(default_factory=dict)
    _of: dict[str, set[str]] = field(default_factory=dict)  # gang -> its pods
    _on: dict[str, set[str]] = field(default_factory=dict)  # node -> gangs with pods there
    _answering: set[str] = field(default_factory=set)  # nodes
    _given_up: set[str] = field(default_factory=set)  # uids of pods that were on a node while that did not answer
    _counted: dict[str, tuple[str, Usage, Usage]] = field(default_factory=dict)  # gang -> queue, used, beyond
    _now: float = 0.0

    def take(self, revision: Revision, *, check: bool = True) -> None:
        """`check=False`: what led to it was not seen, so it only counts from here on."""
        self.revisions += 1
        self._pass_time(revision.at)
        state, key = revision.state, revision.key
        if revision.kind == WORKLOADS:
            self._take_grant(revision, cast("Grant | None", state), check)
        elif revision.kind == PODS:
            self._take_pod(revision, cast("Member | None", state), check)
        elif revision.kind == NODES:
            answers = isinstance(state, Ground) and state.answers
            if self.power is not None and isinstance(state, Ground):
                idle, limit = state.watts
                accelerators = state.capacity.get(self.power.resource, 0)
                self.power.put_node(key, PoweredNode(state.labels, accelerators, idle, limit))
            (self._answering.add if answers else self._answering.discard)(key)
            for gang in self._on.get(key, ()):
                if not answers:
                    pods = (self._pods[name] for name in self._of[gang])
                    self._given_up.update(pod.uid for pod in pods if pod.node == key)
                self._count(gang)
        else:
            table = self._queues if revision.kind == CLUSTER_QUEUES else self._cohorts
            table.pop(key, None)
            if isinstance(state, Budget):
                table[key] = state
            self._trees.clear()

    def check_all(self, number: int) -> None:
        """As things stand at this revision, after some that were not checked."""
        for name in self._queues:
            places = self.reserved.by_queue.get(name, Counter())
            self._check_limits(Revision(number, CLUSTER_QUEUES, name, None), name, places)

    def _pass_time(self, at: float) -> None:
        if self._now and at > self._now:
            for level in (self.reserved, self.used, self.beyond):
                level.pass_time(at - self._now)
        self._now = max(self._now, at)

    # --- reservations -------------------------------------------------------------------------------------------------

    def _take_grant(self, revision: Revision, new: Grant | None, check: bool) -> None:
        gang, new = self._as_one(revision.key, new)
        old = self._grants.pop(gang, None)
        if old is not None:
            self.reserved.add(old.queue, old.usage, -1)
            if revision.gone and new is None:
                self._deleted[gang] = old
        if new is not None:
            self._grants[gang] = self._last[gang] = new
            self.reserved.add(new.queue, new.usage)
        self._count(gang)
        wrong = self.cards.put_grant(gang, new)
        if self.power is not None:
            wrong += self.power.put_grant(gang, {} if new is None else new.on_hosts(self.power.resource))
        if new is None or not check:
            return
        for what in wrong:
            self._blame(revision, what)
        before = old.usage if old is not None and old.queue == new.queue else Counter[Place]()
        raised = [place for place, amount in new.usage.items() if amount > before[place]]
        if raised:
            self.checked += 1
            if new.lacks:
                self._blame(revision, f"{gang} has quota for {new.lacks}")
            self._check_limits(revision, new.queue, raised)

    def _as_one(self, workload: str, grant: Grant | None) -> tuple[str, Grant | None]:
        """The gang of a Workload, and what it holds: of slices that replace each other, what the last one does."""
        gang = grant.gang if grant is not None else self._gang.get(workload, "")
        if not gang:
            return workload, grant
        self._gang[workload] = gang
        slices = self._slices.setdefault(gang, {})
        slices.pop(workload, None)
        if grant is not None:
            slices[workload] = grant
        replaced = {each.replaces for each in slices.values()}
        left = [each for name, each in slices.items() if name not in replaced]
        if len(left) > 1:
            self.violations.append(f"{gang} is granted {len(left)} times")
        return gang, left[-1] if left else None

    def _check_limits(self, revision: Revision, name: str, places: Iterable[Place]) -> None:
        queue = self._queues.get(name)
        if queue is None:
            return
        for place in places:
            limit = queue.most(place)
            if limit is not None:
                self._check(revision, f"ClusterQueue {name}", [name], place, limit)
            if queue.parent:
                root = self._root(queue.parent)
                names, total = self._tree(root)
                self._check(revision, f"the tree of cohort {root}", names, place, total[place])

    def _check(self, revision: Revision, what: str, queues: Iterable[str], place: Place, limit: int) -> None:
        held, beyond = self.reserved.of(queues, place), self.beyond.of(queues, place)
        if held + beyond > limit:
            flavor, resource = place
            pods = f" and pods beyond their reservations {beyond} ({self._holders(queues, place)})" if beyond else ""
            self._blame(revision, f"{what} has {limit} of {resource} in {flavor}; reserved are {held}{pods}")

    def _holders(self, queues: Iterable[str], place: Place) -> str:
        """The pods of the gangs that hold more than their reservation, where they are, and which of them are being deleted."""
        gangs = [gang for gang, (queue, _, beyond) in self._counted.items() if queue in queues and beyond[place]]
        pods = [(key, self._pods[key]) for gang in gangs for key in sorted(self._of[gang])]
        return ", ".join(f"{key} on {pod.node}{'' if pod.live else ', ending'}" for key, pod in pods)

    def _root(self, cohort: str) -> str:
        for _ in range(MOST_PARENTS):
            parent = self._cohorts[cohort].parent if cohort in self._cohorts else ""
            if not parent:
                break
            cohort = parent
        return cohort

    def _tree(self, root: str) -> tuple[list[str], Usage]:
        if root not in self._trees:
            queues = [name for name, queue in self._queues.items() if queue.parent and self._root(queue.parent) == root]
            budgets = [self._queues[name] for name in queues]
            budgets += [cohort for name, cohort in self._cohorts.items() if self._root(name) == root]
            total: Usage = Counter()
            for budget in budgets:
                total.update(budget.nominal)
            self._trees[root] = (queues, total)
        return self._trees[root]

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _take_pod(self, revision: Revision, new: Member | None, check: bool) -> None:
        key, old = revision.key, self._pods.pop(revision.key, None)
        wrong = self.cards.put_pod(key, new)
        if old is not None:
            self._of[old.gang].discard(key)
            self._count(old.gang)
        if new is not None:
            self._pods[key] = new
            self._of.setdefault(new.gang, set()).add(key)
        wrong += self._draw(new or old)
        for what in wrong if check else ():
            self._blame(revision, what)
        if new is None:
            self._given_up.discard(old.uid if old is not None else "")
            return
        if new.node not in self._answering:
            self._given_up.add(new.uid)
        self._on.setdefault(new.node, set()).add(new.gang)
        self._count(new.gang)
        if check and new.live and (old is None or old.uid != new.uid):
            self.checked += 1
            self._check_pod(revision, new)
            queue, _, beyond = self._counted.get(new.gang, ("", Counter(), Counter()))
            self._check_limits(revision, queue, beyond)

    def _draw(self, pod: Member | None) -> list[str]:
        """What the pods of its gang draw now, and the power domains over their caps because of it."""
        if self.power is None or pod is None:
            return []
        on_nodes = Counter[str]()
        for mate in (self._pods[name] for name in self._of[pod.gang]):
            on_nodes[mate.node] += mate.needs.get(self.power.resource, 0)
        return self.power.put_pods(pod.gang, +on_nodes)

    def _check_pod(self, revision: Revision, pod: Member) -> None:
        grant = self._grants.get(pod.gang) or self._deleted.get(pod.gang)
        if grant is None or not grant.admitted:
            self._blame(revision, f"a pod of {pod.gang} was bound to {pod.node}, and its gang is not admitted")
            return
        mates = (self._pods[key] for key in self._of[pod.gang])
        alive = sum(mate.live and mate.pod_set == pod.pod_set and mate.node in self._answering for mate in mates)
        most = grant.counts.get(pod.pod_set, 0)
        if alive > most:
            self._blame(revision, f"{pod.gang} has {alive} pods of pod set {pod.pod_set}, and is admitted with {most}")

    def _count(self, gang: str) -> None:
        """What its pods hold, and what of that is beyond its reservation."""
        queue, used, beyond = self._counted.pop(gang, ("", Counter(), Counter()))
        self.used.add(queue, used, -1)
        self.beyond.add(queue, beyond, -1)
        last, grant = self._last.get(gang), self._grants.get(gang)
        pods = [self._pods[key] for key in self._of.get(gang, ())]
        if last is None or not pods:
            return
        used = Counter()
        for pod in (pod for pod in pods if pod.node in self._answering and (pod.live or pod.uid not in self._given_up)):
            for resource, flavor in last.flavors.get(pod.pod_set, {}).items():
                used[flavor, resource] += 1 if resource == "pods" else pod.needs.get(resource, 0)
        beyond = used - grant.usage if grant is not None else used
        self._counted[gang] = (last.queue, used, beyond)
        self.used.add(last.queue, used)
        self.beyond.add(last.queue, beyond)

    def _blame(self, revision: Revision, what: str) -> None:
        self.violations.append(f"revision {revision.number} ({revision.key}): {what}")
