"""The cohort hierarchy: quota trees of ClusterQueues and cohorts, as the configuration states them.

Changes are only recorded when they arrive; `settle` then builds the affected trees again, once, and leaves the others alone. A
cohort that is only named exists, without quota. Cohorts whose parents form a cycle, and ClusterQueues in them, each stand
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gangline.engine.model import ClusterQueue, Cohort
from gangline.engine.queues.cluster_queue import ClusterQueueState, quotas_of
from gangline.engine.quota.quota_ledger import QuotaNode, reset, settle


@dataclass(frozen=True, slots=True)
class RebuiltTrees:
    """What a `settle` changed."""

    #: ClusterQueues in trees that were built again; their usage has to be counted again
    queues: list[ClusterQueueState]
    #: ClusterQueues that were deleted
    gone: list[ClusterQueueState]
    #: names of the ClusterQueues whose own configuration changed, in order
    moved: list[str]


class CohortHierarchy:
    def __init__(self) -> None:
        self.configs: dict[str, ClusterQueue] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.queues: dict[str, ClusterQueueState] = {}
        self.cohort_nodes: dict[str, QuotaNode] = {}
        #: cohorts in a cycle of parents
        self.cyclic: set[str] = set()
        #: names of ClusterQueues of which quota became free since their trees were last woken
        self.freed: dict[str, None] = {}
        #: names of ClusterQueues and cohorts whose place in the hierarchy, or whose quota, may have changed
        self._moved_queues: set[str] = set()
        self._moved_cohorts: set[str] = set()

    def put_queue(self, config: ClusterQueue | None, name: str) -> None:
        if config is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = config
        self._moved_queues.add(name)

    def put_cohort(self, cohort: Cohort | None, name: str) -> None:
        if cohort is None:
            self.cohorts.pop(name, None)
        else:
            self.cohorts[name] = cohort
        self._moved_cohorts.add(name)

    def move(self, affected: Callable[[ClusterQueue], bool]) -> None:
        """An object that these ClusterQueues refer to changed."""
        self._moved_queues.update(config.name for config in self.configs.values() if affected(config))

    def settle(self, configure: Callable[[ClusterQueueState, ClusterQueue], None]) -> RebuiltTrees | None:
        """Bring the trees in line with the configuration; None if they are. `configure` sets a queue up."""
        if not (self._moved_queues or self._moved_cohorts):
            return None
        moved_queues, moved_cohorts = sorted(self._moved_queues), sorted(self._moved_cohorts)
        self._moved_queues, self._moved_cohorts = set(), set()
        queues: list[ClusterQueueState] = []
        gone: list[ClusterQueueState] = []
        cohorts: list[QuotaNode] = []
        for node in self._affected(moved_queues, moved_cohorts):
            if not isinstance(node, ClusterQueueState):
                cohorts.append(node)
            elif node.name in self.configs:
                queues.append(node)
            else:
                gone.append(node)
        for queue in gone:
            del self.queues[queue.name]
            reset(queue, {})
        for queue in queues:
            configure(queue, self.configs[queue.name])
        self._build_trees(queues, cohorts)
        return RebuiltTrees(queues, gone, moved_queues)

    def _affected(self, queues: Iterable[str], cohorts: Iterable[str]) -> list[QuotaNode]:
        """All nodes of the trees that the changed nodes are in, were in, or move to."""
        found: dict[int, QuotaNode] = {}

        def add_tree_of(node: QuotaNode) -> None:
            if id(node) not in found:
                found.update((id(member), member) for member in _members(node.root))

        for name in queues:
            config = self.configs.get(name)
            queue = self.queues.get(name)
            if queue is None and config is not None:
                queue = self.queues[name] = ClusterQueueState(config, self.freed)
            if queue is not None:
                add_tree_of(queue)
            if config is not None and config.cohort:
                add_tree_of(self._cohort_node(config.cohort))
        for queue in self.queues.values() if self.cyclic else ():
            if queue.config.cohort in self.cyclic:
                add_tree_of(queue)
        for name in (*cohorts, *sorted(self.cyclic)):
            add_tree_of(self._cohort_node(name))
            if parent := self._parent_of(name):
                add_tree_of(self._cohort_node(parent))
        return list(found.values())

    def _build_trees(self, queues: list[ClusterQueueState], cohorts: list[QuotaNode]) -> None:
        """Build the trees of these nodes from the configuration; nothing is in use in them yet."""
        for queue in queues:
            reset(queue, quotas_of(queue.config.groups))
        for node in cohorts:
            cohort = self.cohorts.get(node.name, Cohort(node.name))
            node.weight = cohort.weight
            reset(node, quotas_of(cohort.groups))
        self._find_cycles(cohorts)
        for node in sorted(cohorts, key=QuotaNode.sort_key):
            parent = self._parent_of(node.name)
            if parent and node.name not in self.cyclic:
                node.parent = self._cohort_node(parent)
                node.parent.cohorts.append(node)
        for queue in sorted(queues, key=QuotaNode.sort_key):
            if queue.config.cohort and queue.config.cohort not in self.cyclic:
                queue.parent = self._cohort_node(queue.config.cohort)
                queue.parent.queues.append(queue)
        for node in (*cohorts, *queues):
            if node.parent is None:
                settle(node)
        for node in cohorts:
            if not (node.queues or node.cohorts or node.name in self.cohorts):
                del self.cohort_nodes[node.name]

    def _find_cycles(self, cohorts: Iterable[QuotaNode]) -> None:
        self.cyclic.difference_update(node.name for node in cohorts)
        for node in cohorts:
            seen: list[str] = []
            name = node.name
            while name and name not in seen:
                seen.append(name)
                name = self._parent_of(name)
            if name:
                self.cyclic.update(seen)

    def _parent_of(self, cohort: str) -> str:
        return self.cohorts[cohort].parent if cohort in self.cohorts else ""

    def _cohort_node(self, name: str) -> QuotaNode:
        node = self.cohort_nodes.get(name)
        if node is None:
            node = self.cohort_nodes[name] = QuotaNode(name)
        return node


def _members(root: QuotaNode) -> Iterator[QuotaNode]:
    yield root
    for cohort in root.cohorts:
        yield from _members(cohort)
    yield from root.queues
