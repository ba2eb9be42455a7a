"""The scheduler: runs scheduling cycles, of one tree until nothing changes in it any more, or one of all trees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from sys import maxsize
from typing import Final, TypeAlias

from gangline.engine.backfill.backfill import BackfillPlanner
from gangline.engine.cycle.attempt import Attempt, CycleRecord, CycleTally, Requeued
from gangline.engine.cycle.explanations import moved_text, preemption_text, reason_of
from gangline.engine.cycle.tree_cycle import Nominations, TreeCycle
from gangline.engine.cycle.variants import first_of_family
from gangline.engine.flavors.assignment import CAPACITY, verdict_of
from gangline.engine.model import Admission, Admit, Decision, Evict, Explanation, Millis, Preempt
from gangline.engine.placing.placement_search import SearchBudget
from gangline.engine.preemption.fair_victims import fair_victims, preemptible_for
from gangline.engine.preemption.moves import RoomByMoving
from gangline.engine.preemption.preemptor import Known, Preemptor, Victim, classic_victims
from gangline.engine.preemption.simulated_removal import simulate
from gangline.engine.preemption.victim_search import Need
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of, queue_of
from gangline.engine.queues.preemption_log import MOVED
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import QuotaNode
from gangline.engine.state.lifecycle import required_checks
from gangline.engine.state.store import Store
from gangline.engine.text.decision_error import DecisionError

#: Attempts per `run`: some 50 ms where all are different. Whoever waits for other decisions, for a write or an answer, must not
#: notice a huge backlog.
PATIENCE: Final = 256
#: So many rooms looked at count as an attempt: where every workload asks for something else, each has tables of its own.
#: What else grows with the cluster or the backlog (holders that might be preempted, LocalQueues) is counted in the same unit.
LOOKS: Final = 400

#: … of which, and of the given `room`, a tree may use this part at a time, as a divisor.
TURNS: Final = 4

#: The state that decides about the next cycle of a tree, as far as a cycle without decisions can change it.
State: TypeAlias = tuple[object, ...]


class _Doubts:
    """Workloads of a tree whose flavor scan was continued in vain, so that it is to begin anew."""

    __slots__ = ("scanned", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[str, WorkloadState] = {}
        #: those of them whose scan has begun anew since the last decision
        self.scanned: set[str] = set()

    def scan_anew(self) -> bool:
        """Let one workload try again from its first flavor. False if there is none to which that has not happened yet.

        One at a time: several could take the same room from each other in one cycle, and none would get it.
        """
        while self.waiting:
            uid = next(iter(self.waiting))
            gang = self.waiting.pop(uid)
            if uid in self.scanned or gang.holds or (queue := queue_of(gang)) is None:
                continue
            self.scanned.add(uid)
            gang.attempts.scan_anew()
            queue.pending.try_shape_again(gang)
            return True
        return False


class Scheduler:
    def __init__(self, store: Store, tally: CycleTally | None = None) -> None:
        self._store = store
        self._tally = tally or CycleTally()
        #: interrupted trees, and the states seen in them
        self._unfinished: dict[int, tuple[QuotaNode, set[State]]] = {}
        self._doubts: dict[int, _Doubts] = {}  # by tree
        self._settings = store.settings
        fair = store.settings.fair_sharing is not None
        known: Known = {}
        find = partial(fair_victims, settings=store.settings) if fair else partial(classic_victims, known=known)
        self._preemptor = Preemptor(
            store.settings, store.topology, find, store.capacity, known, store.preemptions, store.quotas_ahead
        )
        self._moves = RoomByMoving(self._preemptor, store.queues, store.gangs, store.flavors, store.frozen)
        self._searches = SearchBudget()
        self.backfill = BackfillPlanner(store)

    def run(self, now: Millis, note: Callable[[Attempt], None], room: int | None = None) -> list[Decision]:
        """Schedule every tree that was touched. `note` is called for each attempt.

        After `PATIENCE` attempts it stops between two cycles; the next call continues there. It also stops after about `room`
        decisions, if that is given, and the order of the trees differs each time. Trees take turns; once each had one, what has
        been decided is not kept back by those that are not done.
        """
        self._preemptor.now = now
        self._searches.start_over()
        for name in self._preemptor.waits.take_over(now):
            if name in self._store.queues:
                self._store.flush(self._store.queues[name].root)
        decisions: list[Decision] = self.backfill.begin(now)
        touched = self._store.touched
        for known in touched:
            self._unfinished.pop(known, None)
            if known in self._doubts:
                self._doubts[known].scanned.clear()
        waiting = {**{known: root for known, (root, _) in self._unfinished.items()}, **touched}
        touched.clear()
        turns: deque[QuotaNode] = deque()
        for root in sorted(waiting.values(), key=QuotaNode.sort_key if room is None else _drawn(now)):
            if root.parent is None:
                turns.append(root)
            else:  # part of another tree by now, which was touched
                self._unfinished.pop(id(root), None)
                self._doubts.pop(id(root), None)
        patience, left = PATIENCE, maxsize if room is None else room
        share = max(1, left // TURNS)
        first, tedious = len(turns), False
        while turns:
            root, first = turns.popleft(), first - 1
            if patience <= 0 or left <= 0 or (decisions and tedious and first < 0):
                self._unfinished.setdefault(id(root), (root, set()))
                continue
            _, seen = self._unfinished.pop(id(root), (root, set[State]()))
            before = len(decisions)
            effort = min(patience, PATIENCE // TURNS)
            spent = self._run_tree(root, now, note, seen, decisions, effort, share)
            patience, tedious = patience - spent, tedious or spent >= effort
            left -= len(decisions) - before
            if id(root) in self._unfinished:
                turns.append(root)
        decisions += self.backfill.end(now)
        return decisions

    def next_due(self) -> Millis | None:
        """When next the protection of a workload ends that others wait to preempt."""
        return self._preemptor.waits.next_due()

    def with_present_room(self, gang: WorkloadState, explanation: Explanation) -> Explanation:
        """The explanation of a workload that nodes limit, with what there is of them now, and what preemption could free.

        Others may have taken some since it was tried, which wakes nobody.
        """
        queue = queue_of(gang)
        verdict = verdict_of(queue.pending.representative(gang)) if queue is not None else None
        known = (verdict.capacity_request or verdict.lacking) if verdict is not None else None
        request = known.renewed() if known is not None else None
        short = request.shortage() if request is not None else None
        if queue is None or verdict is None or request is None or short is None:
            return explanation
        frs = tuple(cell.fr for cell in verdict.usage)
        need = Need(gang, queue, frs, verdict.requests(with_pods=False), None, request, self._preemptor.now, [])
        with simulate(removed=preemptible_for(need, fair=self._settings.fair_sharing is not None)):
            without = request.shortage()
        message = explanation.message
        for pod_set in verdict.pod_sets:
            for obstacle in pod_set.obstacles if pod_set.name == short.member.name else ():
                if obstacle.kind == CAPACITY and (obstacle.flavor,) == short.member.flavors:
                    message = message.replace(obstacle.text, request.text(short))
        return replace(
            explanation,
            message=message + request.remark(short, without),
            requested=short.wanted,
            available=short.found,
            short=short.wanted - short.found,
        )

    @property
    def unfinished(self) -> bool:
        """Whether `run` stopped before everything was scheduled."""
        return bool(self._unfinished)

    def _run_tree(
        self,
        root: QuotaNode,
        now: Millis,
        note: Callable[[Attempt], None],
        seen: set[State],
        decisions: list[Decision],
        effort: int,
        share: int,
    ) -> int:
        """Cycle until a state repeats that was seen since the last change. Returns how many attempts it took.

        It also stops after `effort` attempts, or `share` decisions, or a few more.

        A flavor scan that is continued in a later cycle does not look again at the flavors that it refused before, as in Kueue,
        though they may have room since. So at the end such workloads are scanned from their first flavor once.
        """
        known: Nominations = {}
        node_ledger = self._store.node_ledger
        spent, looks = 0, node_ledger.looks
        doubts = self._doubts.setdefault(id(root), _Doubts())
        while True:
            attempts = self._cycle(root, now, known, share)
            for attempt in attempts:
                note(attempt)
                if attempt.outdated:
                    doubts.waiting[attempt.gang.uid] = attempt.gang
            news = _decisions(attempts, now)
            decisions.extend(news)
            if news:
                seen.clear()
                known.clear()
                doubts.scanned.clear()
            state = _state(attempts)
            spent += len(attempts)
            if not attempts or state in seen:
                if not doubts.scan_anew():
                    break
                seen.clear()
            seen.add(state)
            share -= len(news)
            if spent + (node_ledger.looks - looks) // LOOKS >= effort or share <= 0:
                self._unfinished[id(root)] = root, seen
                break
        if id(root) not in self._unfinished:
            del self._doubts[id(root)]
        return spent + (node_ledger.looks - looks) // LOOKS

    def cycle(self, now: Millis) -> CycleRecord:
        """Exactly one cycle of every tree with a workload in a heap."""
        self._preemptor.now = now
        self._searches.start_over()
        roots = {id(queue.root): queue.root for queue in self._store.queues.values() if queue.pending.active}
        order: dict[str, tuple[str, ...]] = {}
        attempts: list[Attempt] = []
        for root in sorted(roots.values(), key=QuotaNode.sort_key):
            done = self._cycle(root, now)
            if done:
                order[root.name] = tuple(attempt.gang.key for attempt in done)
                attempts.extend(done)
        return CycleRecord(
            heads=tuple(attempt.gang.key for attempt in attempts),
            order=order,
            reserved=tuple(_admit(attempt, now) for attempt in attempts if attempt.reserved),
            preempted=tuple(_preempt(attempt, victim) for attempt in attempts for victim in attempt.new_victims),
            requeued=tuple(_requeued(attempt) for attempt in attempts if not attempt.reserved),
        )

    def _cycle(
        self, root: QuotaNode, now: Millis, known: Nominations | None = None, most: int = maxsize
    ) -> list[Attempt]:
        heads: list[WorkloadState] = []
        for queue in cluster_queues_of(root):
            if queue.in_service and (gang := self._pop(queue)) is not None:
                self._store.node_ledger.looks += queue.pending.lanes
                head = queue.pending.exchange(gang, first_of_family(gang, queue)) if gang.variant else gang
                if head is not gang and self._store.looks_ahead:
                    self._store.renew(head)
                heads.append(head)
        if not heads:
            return []
        for head in heads:
            if head.workload.moved_for:
                self._moves.keep_room_again(head)
        guard = self.backfill if self.backfill.guards(root) else None
        cycle = TreeCycle(
            root,
            heads,
            self._settings,
            self._preemptor,
            now,
            self._may_reserve,
            guard,
            known,
            self._store.supersede,
            self._moves,
            self._searches,
            self.backfill.flavors,
        )
        try:
            attempts = cycle.run(most if guard is None else maxsize)
        except Exception as error:
            raise (DecisionError(cycle.subject.key) if cycle.subject is not None else error) from error
        self._tally.note(attempts)
        for attempt in attempts:
            self._store.note_change(attempt.gang)
            if attempt.reserved:
                checks = required_checks(attempt.queue.config, _admission(attempt))
                self._store.assume_reserved(attempt.gang, now, admitted=not checks)
        return attempts

    def _pop(self, queue: ClusterQueueState) -> WorkloadState | None:
        """The queue's head. One that ends in time for other windows, or changes of quotas, by now returns to its place first:
        others of its new shape may have been tried.
        """
        gang = queue.pending.pop()
        while gang is not None and self._store.looks_ahead and self._store.renew(gang):
            queue.pending.unpop(gang)
            gang = queue.pending.pop()
        return gang

    def _may_reserve(self, attempts: Iterable[Attempt]) -> bool:
        """Whether another workload may reserve quota. With PodsReady blocking admission, no workload starts while another one is
        still starting, one of the same cycle included.
        """
        policy = self._settings.pods_ready
        if policy is None or not policy.block_admission:
            return True
        starting = (attempt for attempt in attempts if attempt.reserved)
        return not self._store.unready and all(required_checks(a.queue.config, _admission(a)) for a in starting)


def _drawn(now: Millis) -> Callable[[QuotaNode], bytes]:
    """A pseudo-random order of trees that depends on the time alone: a repeated decision is the same."""
    return lambda root: blake2b(repr((now, root.sort_key())).encode(), digest_size=8).digest()


def _state(attempts: Iterable[Attempt]) -> State:
    return tuple(
        (
            attempt.gang.uid,
            attempt.queue.pending.active,
            tuple(tuple(tried.items()) for tried in attempt.gang.attempts.progress.tried)
            if attempt.gang.attempts.progress
            else (),
        )
        for attempt in attempts
    )


def _decisions(attempts: Iterable[Attempt], now: Millis) -> list[Decision]:
    decisions: list[Decision] = []
    for attempt in attempts:
        decisions.extend(_preempt(attempt, victim) for victim in attempt.new_victims)
        if attempt.migrates is not None:
            decisions.append(_migrate(attempt, attempt.migrates))
        if attempt.reserved:
            decisions.append(_admit(attempt, now))
    return decisions


def _admission(attempt: Attempt) -> Admission:
    admission = attempt.gang.quota.admission
    assert admission is not None, attempt.gang
    return admission


def _admit(attempt: Attempt, now: Millis) -> Admit:
    gang, admission = attempt.gang, _admission(attempt)
    checks = required_checks(attempt.queue.config, admission)
    return Admit(
        gang.key,
        gang.uid,
        admission,
        admitted=not checks,
        at=now,
        checks=checks,
        backfilled=attempt.backfilled,
        preview=attempt.assignment.preview,
        searched=attempt.assignment.searched,
    )


def _preempt(attempt: Attempt, victim: Victim) -> Preempt:
    gang, queue = attempt.gang, queue_of(victim.gang)
    if victim.reason == MOVED:
        message = moved_text(gang.key, gang.uid)
        return Preempt(victim.gang.key, victim.gang.uid, MOVED, message, by=gang.key, by_uid=gang.uid)
    message = preemption_text(
        victim.reason,
        uid=gang.uid,
        job_uid=gang.workload.job_uid,
        preemptor_path=_path(attempt.queue),
        victim_path=_path(queue) if queue else "",
    )
    return Preempt(victim.gang.key, victim.gang.uid, victim.reason, message, by=gang.key, by_uid=gang.uid)


def _migrate(attempt: Attempt, running: WorkloadState) -> Evict:
    message = f"Evicted to accommodate a workload (UID: {attempt.gang.uid}) due to migration to more favorable resource flavor"
    return Evict(running.key, running.uid, "FlavorMigration", message)


def _path(queue: QuotaNode) -> str:
    return "/" + "/".join(node.name for node in reversed(list(queue.path())))


def _requeued(attempt: Attempt) -> Requeued:
    assignment = attempt.assignment
    chosen = [pod_set for pod_set in assignment.pod_sets if pod_set.choices]
    return Requeued(
        workload=attempt.gang.key,
        mode=attempt.mode,
        borrowing=assignment.borrowing,
        status="skipped" if attempt.skipped else "",
        requeue_reason=attempt.requeue_reason,
        reason=reason_of(attempt),
        flavors={p.name: p.flavors for p in chosen},
        counts={pod_set.name: pod_set.count for pod_set in chosen},
    )
