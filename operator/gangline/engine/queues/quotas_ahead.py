"""Quotas that ClusterQueues will have later, and what follows from them before: who may start, and who has to stop.

A quota tree whose quotas change is kept once more for each change that is known: with the quotas from then on, and with what will
be held of them. Where a plan recalls, a workload starts before a change only if it will have ended by then, or fits into the tree
of that time as well. Holders that will exceed its quotas are *recalled*: they are announced a deadline, and are stopped at it.

Which these are is chosen as Kueue reclaims: those of queues that borrow first, then the lowest priority, then the latest start.
It is chosen anew whenever a holder comes, leaves or is expected to run longer, so nobody is stopped who needn't be.

Without a plan there is no tree, and whoever asks looks at an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gangline.engine.model import Cohort, Millis, QuotaAhead, QuotaStep, ResourceGroup
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.cluster_queue import (
    ClusterQueueState,
    backfill_level,
    cluster_queues_of,
    quotas_of,
)
from gangline.engine.queues.ordering import Estimates
from gangline.engine.queues.workload_parts import NO_NAMES
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource, QuotaNode, reset, settle
from gangline.engine.text import quantity_text
from gangline.engine.text.wording import minute_text, starts_before_text


class Change:
    """The quotas of a tree from an instant on, and what will be held of them then."""

    __slots__ = ("_held", "at", "deadline", "name", "notice", "plans", "queues", "recalled", "shortest_run")

    def __init__(self, at: Millis, tree: str, queues: dict[str, QuotaNode], plans: Iterable[QuotaAhead]) -> None:
        """`plans`: those that change something at this instant."""
        recalls = {each.name: (each.plan, each.recall) for each in plans if each.recall is not None}
        self.at = at
        #: unique among all changes
        self.name = f"{tree}@{at}"
        #: the ClusterQueues of the tree, by name
        self.queues = queues
        #: ClusterQueue -> its QuotaPlan, of those that recall
        self.plans = {queue: plan for queue, (plan, _) in recalls.items()}
        #: when holders that exceed the quotas are stopped, and how long before that is announced
        self.deadline = at - max((recall.stop_before for _, recall in recalls.values()), default=0)
        self.notice = max((recall.notice for _, recall in recalls.values()), default=0)
        #: for how long workloads with checkpoints have to run at least to start though they may be stopped; None: if one of the
        #: plans lets none start
        self.shortest_run = _longest([recall.shortest_run for _, recall in recalls.values()])
        #: uid -> the cells that a workload will still use
        self._held: dict[str, list[tuple[Cell, int]]] = {}
        #: the workloads that have to stop before it, by uid
        self.recalled: dict[str, WorkloadState] = {}

    @property
    def recalls(self) -> bool:
        """Whether holders that exceed the quotas are stopped before."""
        return bool(self.plans)

    def plan_for(self, queue: str) -> str:
        """The QuotaPlan that recalls workloads of a ClusterQueue: its own, or that of another one of its cohort."""
        return self.plans.get(queue) or next(iter(self.plans.values()))

    def is_announced(self, now: Millis) -> bool:
        """Whether workloads that have to stop before it are to know by now."""
        return self.recalls and self.deadline - self.notice <= now

    def cell(self, queue: str, fr: FlavorResource) -> Cell:
        return self.queues[queue].cell(fr)

    # --- holders ------------------------------------------------------------------------------------------------------

    def hold(self, gang: WorkloadState) -> bool:
        """Count a workload. Returns whether it fits beside the others."""
        node = self.queues.get(gang.queue.name) if gang.queue is not None else None
        cells = [(node.cell(fr), amount) for fr, amount in gang.quota.usage.items()] if node is not None else []
        fits = all(amount <= cell.available() for cell, amount in cells)
        for cell, amount in cells:
            cell.add(amount)
        self._held[gang.uid] = cells
        return fits

    def drop(self, uid: str) -> None:
        for cell, amount in self._held.pop(uid, ()):
            cell.remove(amount)

    def drop_all(self) -> None:
        for uid in list(self._held):
            self.drop(uid)

    def holds(self, uid: str) -> bool:
        return uid in self._held

    def room(self, gang: WorkloadState, queue: ClusterQueueState, fr: FlavorResource) -> int:
        """How much of this a waiting workload may hold beyond the change.

        What those hold that would be stopped rather than it counts as free, as far as its queue may preempt them.
        """
        cell, policy = self.cell(queue.name, fr), queue.config.preemption
        lower = 0
        if policy.within_cluster_queue != "Never":
            for holder in queue.by_priority:
                if holder.priority >= gang.priority:
                    break
                lower += holder.quota.usage.get(fr, 0) if holder.uid in self._held else 0
        room = cell.available() + lower
        if policy.reclaim_within_cohort != "Never":
            room = max(room, cell.nominal - cell.usage + lower)
        return room

    # --- recall -------------------------------------------------------------------------------------------------------

    def recall(self, holders: Mapping[str, WorkloadState]) -> None:
        """Choose who has to stop, and count them no more."""
        chosen: list[WorkloadState] = []
        for fr in sorted({fr for _, fr in self._exceeded()}):
            chosen += self._recall_of(fr, holders)
        self.recalled = {}
        for gang in reversed(chosen):  # some may stay, now that others go
            if not self.hold(gang):
                self.drop(gang.uid)
                self.recalled[gang.uid] = gang

    def _exceeded(self) -> Iterator[tuple[str, FlavorResource]]:
        for name, node in self.queues.items():
            for fr, cell in node.cells.items():
                if cell.usage > 0 and cell.available() < 0:
                    yield name, fr

    def _recall_of(self, fr: FlavorResource, holders: Mapping[str, WorkloadState]) -> list[WorkloadState]:
        """Drop holders until no queue has more of this than it may. Returns them in order."""
        waiting: dict[str, list[WorkloadState]] = {}  # by queue, the first to stop is last
        for uid in self._held:
            gang = holders[uid]
            if gang.queue is not None and gang.quota.usage.get(fr, 0) > 0:
                waiting.setdefault(gang.queue.name, []).append(gang)
        for gangs in waiting.values():
            gangs.sort(key=lambda gang: gang.victim_key, reverse=True)
        dropped: list[WorkloadState] = []
        while True:
            over = [name for name, gangs in waiting.items() if gangs and self.cell(name, fr).available() < 0]
            if not over:
                return dropped
            name = min(over, key=lambda name: (not self._borrows(name, fr), waiting[name][-1].victim_key))
            gang = waiting[name].pop()
            self.drop(gang.uid)
            dropped.append(gang)

    def _borrows(self, queue: str, fr: FlavorResource) -> bool:
        cell = self.cell(queue, fr)
        return cell.usage > cell.nominal

    # --- in words -----------------------------------------------------------------------------------------------------

    def short_text(self, queue: str, fr: FlavorResource, wanted: int, room: int) -> str:
        """Why a workload that would have this much does not start before the change."""
        flavor, resource = fr
        room_text = quantity_text.text(resource, max(0, room))
        return (
            f"quota for {resource} in flavor {flavor} changes at {minute_text(self.at)} (QuotaPlan"
            f" '{self.plan_for(queue)}') and leaves"
            f" {room_text} for it then, {quantity_text.text(resource, wanted)} are needed;"
            f" {starts_before_text('before', self.shortest_run)}"
        )

    def recall_text(self, gang: WorkloadState) -> str:
        plan = self.plan_for(gang.queue.name if gang.queue is not None else "")
        return (
            f"The workload exceeds the quota of its ClusterQueue or cohort from {minute_text(self.at)} on (QuotaPlan"
            f" '{plan}')"
        )


class _Holder:
    """A workload that holds quota: its expected end, and when that has to be estimated again."""

    __slots__ = ("end", "gang", "until")

    def __init__(self, gang: WorkloadState, end: Millis, until: Millis) -> None:
        self.gang = gang
        self.end = end
        self.until = until


class _Tree:
    """A quota tree that changes."""

    __slots__ = ("changes", "holders", "review", "stale")

    def __init__(self, changes: list[Change]) -> None:
        #: in the order of time
        self.changes = changes
        self.holders: dict[str, _Holder] = {}
        #: whether what will be held has to be counted again
        self.stale = True
        #: when some expected end has to be estimated again
        self.review: Millis = NEVER


class QuotasAhead:
    """All trees whose quotas change. `changed` is called with each holder that is recalled from now on, or no longer."""

    def __init__(
        self, estimates: Estimates, cohorts: Mapping[str, Cohort], changed: Callable[[WorkloadState], None]
    ) -> None:
        self._estimates = estimates
        self._cohorts = cohorts
        self._changed = changed
        #: by ClusterQueue
        self.known: dict[str, QuotaAhead] = {}
        self._trees: dict[int, _Tree] = {}
        #: whether the trees have to be made again
        self._outdated = False
        #: holders that came, left or changed
        self._moved: dict[str, WorkloadState] = {}
        #: uid -> a workload that has to stop, and the first change before which it has to
        self._recalled: dict[str, tuple[WorkloadState, Change]] = {}
        #: those for whom that has changed since `advance` said so
        self._unreviewed: dict[str, None] = {}
        self.now: Millis = 0

    def __bool__(self) -> bool:
        """Whether any quota changes."""
        return bool(self._trees)

    def put(self, ahead: QuotaAhead | None, name: str) -> None:
        """What is known of a ClusterQueue; None if nothing is known any more."""
        if ahead is None:
            self.known.pop(name, None)
        else:
            self.known[name] = ahead
        self._outdated = True

    def rebuild(self) -> None:
        """Quota trees were built again."""
        self._outdated = self._outdated or bool(self.known or self._trees)

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, now: Millis, queues: Mapping[str, ClusterQueueState]) -> list[WorkloadState]:
        """Go on to a time. Returns the holders whose fate has to be reviewed."""
        before, self.now = self.now, now
        if not (self._trees or self._outdated or self._unreviewed):  # nothing is known ahead
            return []
        passed = any(before < change.at <= now for tree in self._trees.values() for change in tree.changes)
        if self._outdated or passed:
            self._build(queues)
        for tree in self._trees.values():
            crossed = any(before < change.deadline <= now for change in tree.changes if change.recalls)
            tree.stale = tree.stale or crossed  # those that are being stopped by now hold nothing then
        self._bring_up()
        unreviewed, self._unreviewed = self._unreviewed, {}
        return [
            gang
            for gang, change in self.recalled()
            if gang.uid in unreviewed or not change.is_announced(before) or before < change.deadline <= now
        ]

    def next_due(self) -> Millis | None:
        """When next a recall is announced or carried out, or an expected end matters for one."""
        if any(gang.uid in self._unreviewed for gang, _ in self.recalled()):
            return self.now
        times: list[Millis] = []
        for tree in self._trees.values():
            for change in tree.changes:
                times += [change.at, change.deadline - change.notice, change.deadline]
                if change.is_announced(self.now):
                    times.append(tree.review)
        return min((time for time in times if self.now < time < NEVER), default=None)

    def instants(self, root: QuotaNode | None = None, *, recalls: bool = False) -> list[Millis]:
        """When quotas change, of all trees or of one; `recalls`: where holders are stopped before."""
        trees = self._trees.values() if root is None else filter(None, (self._trees.get(id(root)),))
        return sorted({each.at for tree in trees for each in tree.changes if each.recalls or not recalls})

    # --- questions ----------------------------------------------------------------------------------------------------

    def renew(self, gang: WorkloadState) -> bool:
        """Bring up to date before which changes a waiting workload will have ended. Returns whether it changed."""
        tree = self._tree_of(gang)
        if tree is None:
            return gang.set_ends(NO_NAMES)
        end = min(NEVER, self.now + self._estimates.length(gang, backfill_level(gang)))
        return gang.set_ends(
            frozenset(
                each.name
                for each in tree.changes
                if end <= each.deadline or gang.workload.may_run_for(each.deadline - self.now, each.shortest_run)
            )
        )

    def short(
        self, gang: WorkloadState, queue: ClusterQueueState, cell: Cell, wanted: int
    ) -> tuple[Change, int] | None:
        """The first change before which a workload may not start that would hold this much, and the room then; None if it may."""
        tree = self._trees.get(id(queue.root))
        if tree is None:
            return None
        self._bring_up()
        for change in tree.changes:
            if change.recalls and change.name not in gang.ends_before:
                room = change.room(gang, queue, cell.fr)
                if wanted > room:
                    return change, room
        return None

    def grows_to(self, queue: ClusterQueueState, fr: FlavorResource, wanted: int) -> Millis | None:
        """When the queue may use this much, if nothing else is in use; None if never."""
        tree = self._trees.get(id(queue.root))
        for change in tree.changes if tree is not None else ():
            if change.cell(queue.name, fr).potential >= wanted:
                return change.at
        return None

    def recall_of(self, gang: WorkloadState) -> Change | None:
        """The change before which a holder is stopped, if that is announced."""
        found = self._recalled.get(gang.uid)
        return found[1] if found is not None and found[1].is_announced(self.now) else None

    def stop_of(self, gang: WorkloadState) -> Millis:
        """When a holder is stopped; NEVER if it is not."""
        found = self._recalled.get(gang.uid)
        return found[1].deadline if found is not None else NEVER

    def recalled(self) -> list[tuple[WorkloadState, Change]]:
        """The holders that know that they are stopped, and before which change."""
        return [(gang, change) for gang, change in self._recalled.values() if change.is_announced(self.now)]

    def estimate_again(self, gang: WorkloadState) -> bool:
        """What is known of a holder's length has changed. Returns whether others may start for it."""
        if self._tree_of(gang) is None:
            return False
        self._moved[gang.uid] = gang
        return True

    # --- trees --------------------------------------------------------------------------------------------------------

    def _tree_of(self, gang: WorkloadState) -> _Tree | None:
        return self._trees.get(id(gang.queue.root)) if self._trees and gang.queue is not None else None

    def _build(self, queues: Mapping[str, ClusterQueueState]) -> None:
        self._outdated = False
        self._trees, self._moved = {}, {}
        roots: dict[int, QuotaNode] = {}
        for name, ahead in sorted(self.known.items()):
            queue = queues.get(name)
            if queue is not None and any(self._counts(ahead, step) for step in ahead.steps):
                roots[id(queue.root)] = queue.root
        for root in roots.values():
            self._trees[id(root)] = _Tree(self._changes_of(root))
        for queue in queues.values():
            changes, changed = id(queue.root) in self._trees, queue.moved is not None
            queue.moved = self._moved if changes else None
            if changes:
                self._moved.update(queue.holders)
            if changes or changed:
                self._renew_waiting(queue)
        if not self._trees:
            self._note_recalled()

    def _renew_waiting(self, queue: ClusterQueueState) -> None:
        """Let the workloads that wait be of the shapes that other changes of quotas give them."""
        for gang in list(queue.pending.everyone()):
            alone = gang.inadmissible_alone
            queue.pending.take_out(gang)
            self.renew(gang)
            queue.pending.set_alone_inadmissible(gang) if alone else queue.pending.arrive(gang)

    def _changes_of(self, root: QuotaNode) -> list[Change]:
        members = {queue.name: queue for queue in cluster_queues_of(root)}
        plans = [self.known[name] for name in members if name in self.known]
        instants = sorted({step.at for each in plans for step in each.steps if self._counts(each, step)})
        found: list[Change] = []
        for at in instants:
            nodes: dict[str, QuotaNode] = {}
            settle(_copy(root, lambda queue, at=at: self._groups_at(queue, at), self._cohorts, nodes))
            changing = [each for each in plans if any(step.at == at for step in each.steps)]
            found.append(Change(at, root.name, nodes, changing))
        return found

    def _counts(self, ahead: QuotaAhead, step: QuotaStep) -> bool:
        """Whether a step is ahead, or those that exceed its quotas are still stopped."""
        return step.at > self.now or (ahead.recall is not None and step is ahead.steps[0])

    def _groups_at(self, queue: ClusterQueueState, at: Millis) -> tuple[ResourceGroup, ...]:
        ahead = self.known.get(queue.name)
        return ahead.groups_at(at, queue.config.groups) if ahead is not None else queue.config.groups

    def _bring_up(self) -> None:
        """Count holders that came, left or changed, and choose anew who has to stop where that may be others now."""
        if self._moved:
            moved = list(self._moved.values())
            self._moved.clear()
            for gang in moved:
                self._count(gang)
        stale = False
        for tree in self._trees.values():
            if tree.review <= self.now:
                self._review(tree)
            if tree.stale:
                self._count_all(tree)
                stale = True
        if stale:
            self._note_recalled()

    def _count(self, gang: WorkloadState) -> None:
        for tree in self._trees.values():
            if tree.holders.pop(gang.uid, None) is not None:
                for change in tree.changes:
                    tree.stale = tree.stale or bool(change.recalled)
                    change.drop(gang.uid)
        tree = self._tree_of(gang)
        if tree is None or not gang.holds or not gang.quota.usage:
            return
        holder = tree.holders[gang.uid] = _Holder(gang, *self._end_of(gang))
        tree.review = min(tree.review, holder.until)
        for change in tree.changes if not tree.stale else ():
            if holder.end > change.deadline and not change.hold(gang):
                tree.stale = True
                break

    def _end_of(self, gang: WorkloadState) -> tuple[Millis, Millis]:
        """The expected end of a holder, and when to estimate it again."""
        runtime = self._estimates.of(gang)
        if runtime is None:
            return NEVER, NEVER
        estimate = runtime.estimate(max(0, self.now - gang.started_at), backfill_level(gang))
        return min(NEVER, gang.started_at + estimate.end), min(NEVER, gang.started_at + estimate.until)

    def _review(self, tree: _Tree) -> None:
        """Estimate expected ends again that are due."""
        for holder in tree.holders.values():
            if holder.until <= self.now:
                before = holder.end
                holder.end, holder.until = self._end_of(holder.gang)
                holder.until = max(holder.until, self.now + 1)
                tree.stale = tree.stale or any(before <= each.deadline < holder.end for each in tree.changes)
        tree.review = min((holder.until for holder in tree.holders.values()), default=NEVER)

    def _count_all(self, tree: _Tree) -> None:
        """Count all holders of a tree again, change by change: who is stopped before one is gone at the next."""
        tree.stale = False
        gone: set[str] = set()
        gangs = {uid: holder.gang for uid, holder in tree.holders.items()}
        for change in tree.changes:
            change.drop_all()
            for uid, holder in tree.holders.items():
                if holder.end > change.deadline and uid not in gone and not holder.gang.evicting:
                    change.hold(holder.gang)
            if change.recalls:
                change.recall(gangs)
            gone |= change.recalled.keys()

    def _note_recalled(self) -> None:
        """Note who has to stop, and who that is since a moment ago, or no longer."""
        before = self._recalled
        self._recalled = {
            uid: (gang, change)
            for tree in self._trees.values()
            for change in tree.changes
            for uid, gang in change.recalled.items()
        }
        for uid, (gang, change) in (before | self._recalled).items():
            old, new = before.get(uid), self._recalled.get(uid)
            if old is None or new is None or old[1].name != change.name:
                self._unreviewed[uid] = None
                self._changed(gang)


def _longest(times: Sequence[Millis | None]) -> Millis | None:
    """The longest of some times; None if there is none, or one is None."""
    known = [each for each in times if each is not None]
    return max(known) if known and len(known) == len(times) else None


def grows_text(fr: FlavorResource, wanted: int, most: int, at: Millis) -> str:
    """Why a workload that asks for more than its queue may ever use now does not start before a change."""
    flavor, resource = fr
    return (
        f"quota for {resource} in flavor {flavor} is too small until it changes at {minute_text(at)}:"
        f" {quantity_text.text(resource, wanted)} are needed, {quantity_text.text(resource, most)} is the most before"
    )


def _copy(
    node: QuotaNode,
    groups_of: Callable[[ClusterQueueState], tuple[ResourceGroup, ...]],
    cohorts: Mapping[str, Cohort],
    queues: dict[str, QuotaNode],
) -> QuotaNode:
    """A tree with other quotas, in which nothing is in use; `queues` gets its ClusterQueues."""
    copy = QuotaNode(node.name)
    if isinstance(node, ClusterQueueState):
        reset(copy, quotas_of(groups_of(node)))
        queues[node.name] = copy
        return copy
    reset(copy, quotas_of(cohorts[node.name].groups) if node.name in cohorts else {})
    for children, copies in ((node.cohorts, copy.cohorts), (node.queues, copy.queues)):
        for child in children:
            inner = _copy(child, groups_of, cohorts, queues)
            inner.parent = copy
            copies.append(inner)
    return copy
