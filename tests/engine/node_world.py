"""A world with nodes: pods sit on them, die with them, and move when the engine says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.builders.engine import START, EngineWorld, group
from tests.engine.states import check_states

from gangline.engine.model import (
    Admit,
    BoundPod,
    ClusterQueue,
    Decision,
    Evict,
    Flavor,
    Gone,
    Heal,
    Node,
    PodSet,
    PreemptionPolicy,
    Put,
    Recovery,
    Settings,
    Swap,
    Warn,
    Workload,
    WorkloadPods,
)

TPU = "google.com/tpu"
POOL = "pool"
FLAVOR = Flavor("tpu", node_labels={"accelerator": "v6e"})


def node(name: str, pool: str = "p0", chips: int = 4, **fields: Any) -> Node:
    labels = {"accelerator": "v6e", POOL: pool, "kubernetes.io/hostname": name, **fields.pop("labels", {})}
    return Node(name, labels, {TPU: chips, "pods": 110}, uid=fields.pop("uid", f"uid-{name}"), **fields)


def pools(count: int, size: int = 4) -> list[Node]:
    """`count` pools of `size` nodes with 4 chips each: p0-n0, p0-n1, …"""
    return [node(f"p{pool}-n{number}", f"p{pool}") for pool in range(count) for number in range(size)]


def queue(quota: int, name: str = "q", *, recovery: Recovery | None = None, **fields: Any) -> ClusterQueue:
    preemption = fields.pop("preemption", PreemptionPolicy("LowerPriority"))
    flavor = fields.pop("flavor", FLAVOR.name)
    groups = (group({flavor: {TPU: quota}}),)
    return ClusterQueue(name, groups=groups, preemption=preemption, recovery=recovery, **fields)


def plain(name: str, pods: int, chips: int = 4, queue: str = "q", **fields: Any) -> Workload:
    """An Indexed Job: lost pods are replaced, the others go on."""
    number = int("".join(filter(str.isdigit, name)) or 0)
    pod_set = PodSet("main", pods, {TPU: chips})
    return Workload(f"uid-{name}", "team", name, queue, (pod_set,), created=START + number * 1000, **fields)


def slices(name: str, children: int = 2, pods: int = 4, queue: str = "q", **fields: Any) -> Workload:
    """A JobSet with exclusive topology: each child Job alone in one pool, and all of it starts again."""
    number = int("".join(filter(str.isdigit, name)) or 0)
    pod_set = PodSet("slice", children * pods, {TPU: 4}, exclusive=POOL, domains=children)
    return Workload(
        f"uid-{name}", "team", name, queue, (pod_set,), created=START + number * 1000, restarts_whole=True, **fields
    )


class NodeWorld(EngineWorld):
    """Binds pods where there is room, as a scheduler would; heals as the engine decides."""

    def __init__(
        self, *items: Any, settings: Settings | None = None, follow_seats: bool = False, linger: bool = False
    ) -> None:
        super().__init__(FLAVOR, *items, settings=settings)
        self.warnings: list[Warn] = []
        #: workload -> pods: (pod set, child, name, node or "" while it waits)
        self.pods: dict[str, list[BoundPod]] = {}
        self.serial = 0
        self.follow_seats = follow_seats
        #: pods that a heal takes away stay on their nodes, terminating, until they are collected
        self.linger = linger

    @property
    def nodes(self) -> dict[str, Node]:
        return self.engine._store.nodes

    # --- nodes --------------------------------------------------------------------------------------------------------

    def fail(self, *names: str) -> None:
        for name in names:
            self.put(replace(self.nodes[name], ready=False, conditions={"Ready": ("Unknown", self.now)}))

    def repair(self, *names: str) -> None:
        for name in names:
            self.put(replace(self.nodes[name], ready=True, conditions={"Ready": ("True", self.now)}))

    def remove_node(self, name: str) -> None:
        """The node is deleted. Its pods stay in the API for a while."""
        self.engine.observe(Gone(Node, name))

    def collect_pods(self) -> None:
        """The API lets go of the pods of nodes that are gone, and of those that have terminated."""
        for key, pods in self.pods.items():
            left = [pod for pod in pods if pod.node in self.nodes and not pod.terminating]
            if left != pods:
                self.pods[key] = left
                self.tell(key)

    def tick(self, seconds: float) -> None:
        self.now += round(seconds * 1000)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Every running gang's missing pods are bound where there is room for them."""
        for workload in sorted(self.workloads.values(), key=lambda w: (-w.priority, w.reserved_at, w.uid)):
            if workload.admission is None or workload.evicted:
                continue
            if self.follow_seats:
                self._bind_as_kept(workload)
                self.tell(workload.key)
                continue
            for pod_set in workload.pod_sets:
                if pod_set.exclusive:
                    self._bind_domains(workload, pod_set)
                else:
                    self._bind_pods(workload, pod_set)
            self.tell(workload.key)

    def _bind_as_kept(self, workload: Workload) -> None:
        """A scheduler that puts pods exactly where the engine keeps room for them, within what exclusive placement lets it."""
        holding = self.engine._store.capacity._holdings[workload.key]
        wanted = workload.pod_sets[0]
        for (pod_set, name), count in sorted(holding.assigned.kept.items()):
            pools = self.where(workload.name)
            in_other_pool = name in self.nodes and self.nodes[name].labels[POOL] not in pools
            if wanted.exclusive and in_other_pool and len(pools) == wanted.domains:
                continue  # room for all of it, which it takes when it starts again
            lacking = wanted.count - len(self.staying(workload.key))
            for _ in range(min(count, lacking)):
                if name in self.nodes and self.free(name) >= workload.pod_sets[0].requests[TPU]:
                    self._add(workload.key, pod_set, name)

    def _bind_pods(self, workload: Workload, pod_set: PodSet) -> None:
        for _ in range(pod_set.count - len(self.staying(workload.key))):
            free = [name for name in sorted(self.nodes) if self.free(name) >= pod_set.requests[TPU]]
            if not free:
                return
            self._add(workload.key, pod_set.name, free[0])

    def _bind_domains(self, workload: Workload, pod_set: PodSet) -> None:
        pods = self.staying(workload.key)
        each = pod_set.count // pod_set.domains
        mine = Counter(self.nodes[pod.node].labels[POOL] for pod in pods if pod.node in self.nodes)
        taken = {
            self.nodes[pod.node].labels[POOL]
            for key, others in self.pods.items()
            if key != workload.key and self.workloads[key].pod_sets[0].exclusive
            for pod in others
            if pod.node in self.nodes
        }
        for pool in sorted(
            {node.labels[POOL] for node in self.nodes.values()}, key=lambda pool: (pool not in mine, pool)
        ):
            if len(mine) == pod_set.domains and pool not in mine:
                return
            free = [n for n in sorted(self.nodes) if self.nodes[n].labels[POOL] == pool and self.free(n) >= 4]
            lacking = each - mine.get(pool, 0)
            if pool in taken or len(free) < lacking:
                continue
            mine[pool] = each
            for name in free[:lacking]:
                self._add(workload.key, pod_set.name, name)

    def staying(self, key: str) -> list[BoundPod]:
        """Its pods but those that are on their way out."""
        return [pod for pod in self.pods.get(key, []) if not pod.terminating]

    def _add(self, key: str, pod_set: str, node: str) -> None:
        self.serial += 1
        self.pods.setdefault(key, []).append(BoundPod(f"pod-{self.serial}", pod_set, node, ready=True))

    def free(self, name: str) -> int:
        node = self.nodes[name]
        if not node.ready or node.unschedulable or node.taints:
            return 0
        return node.allocatable[TPU] - self.used(name)

    def used(self, name: str) -> int:
        return sum(
            self.workloads[key].pod_sets[0].requests[TPU]
            for key, pods in self.pods.items()
            if key in self.workloads
            for pod in pods
            if pod.node == name
        )

    def tell(self, key: str) -> None:
        pods = self.pods.get(key)
        if pods is None:
            self.engine.observe(Gone(WorkloadPods, key))
        else:
            self.engine.observe(Put(WorkloadPods(key, tuple(pods))))

    def whole(self, name: str) -> bool:
        """All its pods sit on nodes that are fine."""
        workload = self.workloads[f"team/{name}"]
        pods = [p for p in self.staying(workload.key) if p.node in self.nodes and self.nodes[p.node].ready]
        return len(pods) == sum(pod_set.count for pod_set in workload.pod_sets)

    def where(self, name: str) -> set[str]:
        """The pools that its pods are in."""
        pods = self.staying(f"team/{name}")
        return {self.nodes[pod.node].labels[POOL] for pod in pods if pod.node in self.nodes}

    def restart(self) -> None:
        super().restart()
        for key in self.pods:
            self.tell(key)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def decide(self, *, lost: Iterable[str] = ()) -> list[Decision]:
        self.now += 1000
        decisions = self.engine.decide(self.now)
        for decision in decisions:
            if isinstance(decision, Warn):
                self.warnings.append(decision)
            elif decision.workload not in lost:
                self.write(decision)
        check_states(self.engine)
        return decisions

    def write(self, decision: Decision) -> None:
        super().write(decision)
        match decision:
            case Heal(workload=key, how=how, lost=lost, bound_stay=bound_stay):
                workload = self.workloads[key]
                self.put(
                    replace(
                        workload,
                        replaced=(*workload.replaced, (self.now, len(lost))),
                        avoid=(*workload.avoid, *lost),
                        healed_at=self.now,
                        pods_were_ready=True,
                    )
                )
                pods = self.pods.get(key, [])
                stay = [pod for pod in pods if pod.node not in lost or (bound_stay and not pod.sent)]
                kept = [] if how == "Restart" else stay
                going = [replace(pod, terminating=True) for pod in pods if self.linger and pod not in kept]
                self.pods[key] = [*kept, *going]
                self.tell(key)
            case Evict(workload=key, avoid=avoid):
                self.put(replace(self.workloads[key], avoid=avoid, healed_at=self.now))
            case _:
                pass

    def complete_evictions(self) -> None:
        for name in self.evicted():
            self.pods.pop(f"team/{name}", None)
            self.tell(f"team/{name}")
        super().complete_evictions()

    def finish(self, name: str) -> None:
        super().finish(name)
        self.pods.pop(f"team/{name}", None)
        self.tell(f"team/{name}")

    def settle(self, rounds: int = 6) -> list[Decision]:
        """Decide and let everything happen until nothing more does."""
        decisions: list[Decision] = []
        for _ in range(rounds):
            news = self.decide()
            decisions += news
            self.bind()
            self.complete_evictions()
            self._recovered()
        return decisions

    def _recovered(self) -> None:
        for workload in list(self.workloads.values()):
            if workload.avoid and workload.admission is not None and self.whole(workload.name):
                self.put(replace(workload, avoid=(), pods_were_ready=False))


def heals(decisions: Sequence[Decision]) -> list[Heal]:
    return [decision for decision in decisions if isinstance(decision, Heal)]


def kinds(decisions: Sequence[Decision]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]


__all__ = ["Admit", "NodeWorld", "Swap", "heals", "kinds", "node", "plain", "pools", "queue", "slices"]
