"""Room made by moving: running workloads go to other nodes so that one starts that waits only because free room is scattered.

A plan is simulated before anything is decided. It names the workloads that move, as few and as cheap as possible, and for each of
them other nodes that are free now. Quota is not at stake: the waiting workload has its own, and whoever moves keeps his.

Who may move is bounded by the policy of the mover's own queue: the work that it loses (since its last checkpoint, or its start),
the GPU-hours that its queue loses by moves in any day, and the time since it was moved last.

The plan is carried out as a preemption. The room of both sides is kept (`queues.quota_holds`) until they have started, and the
mover is the first of its queue. After a restart of the process the conditions of the movers say for whom they moved: the room of
that one is kept again before any of them is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from gangline.engine.cards import card_amounts, card_seating
from gangline.engine.flavors.assignment import Assignment, Mode
from gangline.engine.flavors.flavor_assigner import Assigner, Restriction
from gangline.engine.model import Device, Flavor, Millis, Node, PodSet, Share, accelerators_of, is_accelerator
from gangline.engine.model.runtime import NEVER
from gangline.engine.occupancy.fitting import PodRequests, add, as_pod_requests, how_many
from gangline.engine.occupancy.node_ledger import HOSTS, NOWHERE, Assigned, Opening, Placed, TrackedNode
from gangline.engine.preemption.preemptor import Preemptor, without_victims
from gangline.engine.preemption.simulated_removal import OrderedRemoval, simulate
from gangline.engine.preemption.victim_search import Victim, lost_work
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.preemption_log import HOUR, MOVED
from gangline.engine.queues.protection import protected_until
from gangline.engine.queues.quota_holds import hold_quota_for
from gangline.engine.queues.workload_parts import WorkloadShape
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.wording import hours_text, minute_text
from gangline.engine.topology.domain_counts import fitting_on_cards
from gangline.engine.topology.node_filter import NodeSelection

#: Sets of workloads that are tried in the simulation for one waiting workload.
TRIALS: Final = 16
#: A workload for which nothing can be moved is examined again after this time, in milliseconds, or when something changes.
PAUSE: Final[Millis] = 60_000
#: So many searches for a shape may be in vain, each within two pauses of the one before it, before the next ones wait: each
#: twice as long as the one before it, and at most `PAUSE`, however much changes meanwhile.
PATIENCE: Final = 4
#: How long a search is not repeated, and a workload counts as one without other room, while no room becomes free. Costs change
#: with time, and with these the sets that are tried.
REPEATED: Final[Millis] = 10 * PAUSE
#: Moments that are compared for a workload with a date.
MOMENTS: Final = 16
#: How long before its date a workload with a date has its room made, besides the restart: pods take time to end.
LEAD: Final[Millis] = 60_000
#: Movers that a message names.
_NAMED: Final = 3

#: A key that no workload has: what a simulation takes.
_SIMULATED: Final = "(moves)"

#: What a workload takes of nodes, by node.
OnNodes: TypeAlias = Mapping[str, Mapping[str, int]]


class Room(NamedTuple):
    """What a workload takes of nodes: assigned to them, and placed on spots."""

    assigned: Assigned
    placed: Placed


@dataclass(frozen=True, slots=True)
class _Mover:
    """A workload that may move, and what it would lose: GPU-milliseconds."""

    gang: WorkloadState
    queue: ClusterQueueState
    cost: int
    work: float
    on: OnNodes

    @property
    def rank(self) -> tuple[int, float, str]:
        return self.cost, self.work, self.gang.uid


class Plan(NamedTuple):
    """Who moves, and what that costs in GPU-milliseconds."""

    movers: tuple[WorkloadState, ...]
    cost: int


#: A ClusterQueue, and the flavors of each pod set by resource.
_Where: TypeAlias = tuple[str, tuple[tuple[tuple[str, str], ...], ...]]


class _InVain(NamedTuple):
    """The last search for a shape, which found nothing: when it was, how many in a row found nothing, up to where it had seen
    room become free (`NodeLedger.openings`), and who ran and had to stay. `cut`: there were more sets than it might try.
    """

    at: Millis
    times: int
    seen: int
    stayed: frozenset[str]
    cut: bool

    @property
    def rests_until(self) -> Millis:
        """No search comes before this time."""
        doubled = self.times - PATIENCE
        return self.at + (min(PAUSE, 1000 << min(doubled, 16)) if doubled >= 0 else 0)

    @property
    def repeated_at(self) -> Millis:
        """The search is repeated at this time, whether anything has changed or not."""
        return self.at + (PAUSE if self.cut else REPEATED)

    def holds(self, now: Millis, seen: int, movers: Iterable[str]) -> bool:
        """Whether a search would be in vain again: no room has become free, and nobody may move who had to stay. Whoever has
        started since only takes room.
        """
        return now < self.repeated_at and seen == self.seen and self.stayed.isdisjoint(movers)


class _Homeless(NamedTuple):
    """When workloads of a shape in a queue were found to have no room but their own, and up to where room that has become free
    (`NodeLedger.openings`) is known to have none.
    """

    at: Millis
    seen: int


@dataclass(slots=True)
class _Search:
    """One search: the waiting workload on the flavors that it was nominated for, and how many sets it may still try."""

    gang: WorkloadState
    queue: ClusterQueueState
    restriction: Restriction
    pod_sets: Sequence[tuple[PodSet, int, Sequence[Flavor]]]
    most: int
    left: int = TRIALS
    #: movers that have no room on other nodes
    stay: set[WorkloadState] = field(default_factory=set[WorkloadState])


class RoomByMoving:
    """Finds and simulates moves. The preemptor says what time it is, and wakes queues."""

    def __init__(
        self,
        preemptor: Preemptor,
        queues: Mapping[str, ClusterQueueState],
        gangs: Mapping[str, WorkloadState],
        flavors: Mapping[str, Flavor],
        frozen: set[str],
    ) -> None:
        self._preemptor = preemptor
        self._plain = without_victims(
            preemptor.settings, preemptor.topologies, preemptor.capacity, preemptor.quotas_ahead
        )
        self._ledger = preemptor.node_ledger
        self._queues = queues
        self._gangs = gangs
        self._flavors = flavors
        self._frozen = frozen
        #: what searches were in vain, by the shape of the waiting workload
        self._in_vain: WeakKeyDictionary[WorkloadShape, dict[_Where, _InVain]] = WeakKeyDictionary()
        #: which workloads have no room but their own, by shape and ClusterQueue
        self._homeless: WeakKeyDictionary[WorkloadShape, dict[str, _Homeless]] = WeakKeyDictionary()

    # --- deciding -----------------------------------------------------------------------------------------------------

    def victims(self, gang: WorkloadState, queue: ClusterQueueState, assignment: Assignment) -> list[Victim]:
        """The workloads that move for a workload whose quota is free, and that no preemption helps; [] if none do now. Then the
        assignment says what could move, or what prevents it.
        """
        policy, now = queue.config.moves, self._preemptor.now
        if policy is None or not assignment.asks_for_places or not _has_quota(assignment):
            return []
        search = self._search(gang, queue, assignment, policy.most)
        if leaving := self._moving_for(gang):
            with simulate(removed=leaving):
                if self._fitting(search) is not None:
                    return [Victim(each, MOVED) for each in leaving]
        if gang.closed_gates:
            return []
        if until := self._preemptor.log.unknown_until(now):
            self._wake(queue, until)
            return []
        found, again = self._plan_now(search, now)
        if found is None:
            self._wake(queue, again)
            return []
        names = _names(found.movers)
        at = max(self._best_moment(search, found, now), gang.own_turn + policy.after)
        if at > now:
            self._wake(queue, min(at, now + PAUSE))
            assignment.remark = f". It starts once {names} moved to other nodes, which is due by {minute_text(at)}"
        elif (obstacle := self._beyond(found, now)) is not None:
            until, said = obstacle
            self._wake(queue, until)
            assignment.remark = f". It would start if {names} moved to other nodes, but {said}"
        if assignment.remark:
            assignment.detail = (
                f". These lose {hours_text(found.cost / HOUR)} GPU-hours with the move, {self._left(found, now)}"
            )
            return []
        return [Victim(each, MOVED) for each in found.movers]

    def _plan_now(self, search: _Search, now: Millis) -> tuple[Plan | None, Millis]:
        """A plan for this moment, and if there is none when to ask again. Searches in vain are costly, and a gang that waits for
        hours would repeat them at each event: so they are repeated only where the result may be another one.
        """
        where = search.queue.name, tuple(tuple(sorted(each.items())) for each in search.restriction)
        of_shape = self._in_vain.setdefault(search.gang.shape, {})
        last = of_shape.get(where)
        if last is not None and last.at <= now < last.rests_until:
            return None, last.rests_until
        movers = self._movers(search, now)
        seen, names = self._ledger.openings.end, {each.gang.uid for each in movers}
        if last is not None and last.at <= now and last.holds(now, seen, names):
            return None, min(now + PAUSE, last.repeated_at)
        found = self.plan(search, movers)
        if found is not None:
            of_shape.pop(where, None)
            return found, now
        stayed = frozenset(each.uid for queue in self._queues.values() for each in queue.holders.values()) - names
        times = last.times + 1 if last is not None and last.at <= now < last.at + 2 * PAUSE else 1
        of_shape[where] = last = _InVain(now, times, seen, stayed, search.left <= 0)
        return None, max(now + PAUSE, last.rests_until)

    def _wake(self, queue: ClusterQueueState, until: Millis) -> None:
        self._preemptor.waits.note(queue.name, until)

    def _moving_for(self, gang: WorkloadState) -> list[WorkloadState]:
        """The workloads that are being stopped to make room for it, as the cluster says."""
        return [
            holder
            for queue in self._queues.values()
            if queue.config.moves is not None
            for holder in queue.holders.values()
            if holder.evicting and holder.workload.preempted == MOVED and holder.workload.moved_for == gang.key
        ]

    def _best_moment(self, search: _Search, found: Plan, now: Millis) -> Millis:
        """When moves cost least for a workload with a date: now, or just after a checkpoint that comes before the date. Nobody
        waits where that saves less than the restarts cost.
        """
        date = search.gang.workload.start_by
        policy = search.queue.config.moves
        last = date - LEAD - policy.restart if date is not None and policy is not None else 0
        if policy is None or last <= now:
            return now
        saves = {
            now + (checkpoint - (now - holder.quota.admitted_at) % checkpoint)
            for queue in self._queues.values()
            if queue.config.moves is not None
            for holder in queue.holders.values()
            if holder.admitted and (checkpoint := holder.workload.checkpoint) is not None
        }
        moments = sorted(moment for moment in saves if moment < last)[: MOMENTS - 1]
        best = found.cost, now
        for moment in (*moments, last):
            search.left, search.stay = TRIALS, set()
            other = self.plan(search, self._movers(search, moment))
            if other is not None and (other.cost, moment) < best:
                best = other.cost, moment
        restarts = sum(accelerators_of(mover.workload.pod_sets) for mover in found.movers) * policy.restart
        return best[1] if best[0] + restarts < found.cost else now

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _costs(self, plan: Plan, now: Millis) -> dict[str, int]:
        """What each queue would lose by a plan, in GPU-milliseconds."""
        costs: dict[str, int] = {}
        for mover in plan.movers:
            queue = queue_of(mover)
            if queue is not None and queue.config.moves is not None:
                costs[queue.name] = costs.get(queue.name, 0) + self._preemptor.log.cost_of_move(mover, queue, now)
        return costs

    def _beyond(self, plan: Plan, now: Millis) -> tuple[Millis, str] | None:
        """The budget that a plan would exceed: until when, and the words about it. None: it is within all of them."""
        log = self._preemptor.log
        found: list[tuple[Millis, str]] = []
        for name, cost in self._costs(plan, now).items():
            policy = self._queues[name].config.moves
            assert policy is not None, name
            until = log.moves_again(name, cost, round(policy.lost_gpu_hours_per_day * HOUR), now)
            if until is not None:
                most = hours_text(policy.lost_gpu_hours_per_day)
                later = f" before {minute_text(until)}" if until < NEVER else ""
                found.append(
                    (until, f"ClusterQueue {name} may not lose more than {most} GPU-hours a day by moves{later}")
                )
        return max(found, default=None)

    def _left(self, plan: Plan, now: Millis) -> str:
        parts: list[str] = []
        for name in sorted(self._costs(plan, now)):
            policy = self._queues[name].config.moves
            assert policy is not None, name
            left = policy.lost_gpu_hours_per_day - self._preemptor.log.lost_by_moves(name, now) / HOUR
            parts.append(
                f"and ClusterQueue {name} may lose {hours_text(max(0.0, left))} of"
                f" {hours_text(policy.lost_gpu_hours_per_day)} GPU-hours today"
            )
        return ", ".join(parts)

    def _movers(self, search: _Search, at: Millis) -> list[_Mover]:
        """The workloads that may move for it at this time, the cheapest first."""
        found: list[_Mover] = []
        for queue in self._queues.values():
            if queue.config.moves is None or queue.delays_topology or queue.multikueue or queue.config.checks:
                continue
            self._ledger.looks += len(queue.holders)
            for holder in queue.holders.values():
                if not self._may_move(holder, queue, search.gang, at):
                    continue
                on = self._on_nodes(holder)
                if on:
                    cost = self._preemptor.log.cost_of_move(holder, queue, at)
                    found.append(_Mover(holder, queue, cost, lost_work(holder, at), on))
        return sorted(found, key=lambda mover: mover.rank)

    def _may_move(self, holder: WorkloadState, queue: ClusterQueueState, gang: WorkloadState, at: Millis) -> bool:
        policy, workload = queue.config.moves, holder.workload
        if policy is None or not holder.admitted or holder.evicting or holder.quota.removed:
            return False
        if holder.priority > gang.priority or holder.unsaved(at) > policy.longest_loss:
            return False
        if holder.shrinks or holder.variant or holder.windows or holder.backfill.backfilled or not holder.quota.usage:
            return False
        if workload.unowned or workload.lone_pod or workload.replaces or workload.has_variants or workload.reclaimable:
            return False
        if holder.key in self._frozen or any(each.pod_set.exclusive for each in holder.demands):
            return False
        moved = self._preemptor.log.last_move(holder.key)
        return (moved is None or at >= moved + policy.settle) and not protected_until(holder, self._preemptor.now)

    def _on_nodes(self, holder: WorkloadState) -> OnNodes:
        ledger = self._ledger
        found: dict[str, dict[str, int]] = {}
        placed = (
            (node, taken)
            for (flavor, key), taken in ledger.placed(holder.key)
            if flavor == HOSTS
            for node in ledger.nodes_at(key[0])
        )
        for node, taken in (*ledger.assigned(holder.key).on_nodes, *placed):
            there = found.setdefault(node, {})
            for resource, amount in taken.items():
                there[resource] = there.get(resource, 0) + amount
        return found

    # --- simulating ---------------------------------------------------------------------------------------------------

    def _search(self, gang: WorkloadState, queue: ClusterQueueState, assignment: Assignment, most: int) -> _Search:
        pod_sets = [
            (
                each.pod_set,
                each.count,
                [self._flavors[name] for name in set(each.flavors.values()) if name in self._flavors],
            )
            for each in assignment.pod_sets
        ]
        return _Search(gang, queue, [each.flavors for each in assignment.pod_sets], pod_sets, most)

    def plan(self, search: _Search, movers: Sequence[_Mover]) -> Plan | None:
        """The cheapest set of these that was found whose move lets the workload start; None if there is none."""
        known = {mover.gang: mover for mover in movers}
        search.stay.update(each.gang for each in movers if self._is_homeless(each.gang, each.queue))
        again = True
        while again and search.left > 0:
            stayed = len(search.stay)
            for order, least in self._sets(search, [mover for mover in movers if mover.gang not in search.stay]):
                if not search.stay.isdisjoint(order[:least]):
                    continue
                chosen = self._enough(search, [each for each in order if each not in search.stay], least)
                if chosen and self._all_have_homes(search, chosen):
                    return Plan(tuple(chosen), sum(known[each].cost for each in chosen))
            again = len(search.stay) > stayed  # without those that have to stay other sets are the cheapest
        return None

    def _fitting(self, search: _Search) -> Assignment | None:
        """The assignment of the waiting workload in the ledgers as they are, on the flavors that it was nominated for."""
        found = Assigner(search.gang, search.queue, self._plain, restriction=search.restriction).assign()
        return found if found.mode is Mode.FIT else None

    def _enough(self, search: _Search, order: Sequence[WorkloadState], least: int) -> list[WorkloadState]:
        """The first workloads of an order without which the waiting one fits, less those that need not move; [] if too many.

        As many as counting says are tried, then all: neighbours, who are not counted, may need more.
        """
        with OrderedRemoval(order, 0) as removal:
            for count in sorted({least, min(len(order), search.most)}):
                if search.left <= 0:
                    break
                search.left -= 1
                removal.first(count)
                if self._fitting(search) is not None:
                    return removal.spare(lambda: self._fitting(search) is not None)
        return []

    def _all_have_homes(self, search: _Search, movers: Sequence[WorkloadState]) -> bool:
        with simulate(removed=movers):
            found = self._fitting(search)
        if found is None:
            return False
        homes = self.homes(found, search.queue, movers)
        for mover in movers:
            if mover not in homes:
                search.stay.add(mover)
                self._note_homeless(mover)
        return len(homes) == len(movers)

    def _note_homeless(self, mover: WorkloadState) -> None:
        """A workload found no room beside one that waits. If it has none but its own, spare other searches the trial.

        Several pods may stay in a part of their own room: of these nothing is noted.
        """
        queue = queue_of(mover)
        if queue is None or sum(each.count for each in mover.demands) != 1:
            return
        with simulate(removed=(mover,), places=False):
            if Assigner(mover, queue, self._plain).assign().mode is Mode.FIT:
                return
        of_shape = self._homeless.setdefault(mover.shape, {})
        of_shape[queue.name] = _Homeless(self._preemptor.now, self._ledger.openings.end)

    def _is_homeless(self, mover: WorkloadState, queue: ClusterQueueState) -> bool:
        """Whether a workload is known to have no room but its own: there was none, and none has become free for its pod since."""
        of_shape = self._homeless.get(mover.shape)
        known = of_shape.get(queue.name) if of_shape is not None else None
        if of_shape is None or known is None:
            return False
        log = self._ledger.openings
        opened = log.since(known.seen) if known.at <= self._preemptor.now < known.at + REPEATED else None
        if opened is None or any(self._may_take(mover, each) for each in opened):
            del of_shape[queue.name]
            return False
        of_shape[queue.name] = known._replace(seen=log.end)
        return True

    def _may_take(self, mover: WorkloadState, opening: Opening) -> bool:
        """Whether what has become free somewhere could be room for the one pod of a workload."""
        tracked = self._ledger.nodes.get(opening.name) if isinstance(opening, Node) else None
        if tracked is None:
            return True
        left = tracked.left()
        return all(
            left.get(resource, amount) >= amount
            for each in mover.demands
            for resource, amount in each.pod_set.requests.items()
        )

    def homes(
        self, assignment: Assignment, queue: ClusterQueueState, movers: Iterable[WorkloadState]
    ) -> dict[WorkloadState, Room]:
        """Where each mover goes, beside the waiting workload as it is assigned: room that is free even while the other movers
        are still where they are. Movers without such room are left out.
        """
        homes: dict[WorkloadState, Room] = {}
        usage = dict(assignment.usage)
        self._preemptor.take_room(_SIMULATED, assignment, queue.name)
        for cell, amount in usage.items():
            cell.add(amount)
        keys = [_SIMULATED]
        try:
            for mover in movers:
                own = queue_of(mover)
                if own is None:
                    continue
                with simulate(removed=(mover,)):
                    found = Assigner(mover, own, self._plain).assign()
                    if found.mode is not Mode.FIT:
                        continue
                    homes[mover] = self.room_of(found, own)
                key = f"{_SIMULATED} {len(keys)}"
                self._preemptor.take_room(key, found, own.name)
                keys.append(key)
        finally:
            for key in keys:
                self._ledger.end_assumption(key)
            for cell, amount in usage.items():
                cell.remove(amount)
        return homes

    # --- after a restart ----------------------------------------------------------------------------------------------

    def keep_room_again(self, mover: WorkloadState) -> None:
        """A workload that moved is about to be tried. If nobody keeps the room any more of the one for which it moved, since the
        process is a new one, keep it: the mover would take it.
        """
        gang, own = self._gangs.get(mover.workload.moved_for), queue_of(mover)
        queue = queue_of(gang) if gang is not None else None
        if gang is None or queue is None or gang.holds or queue.config.moves is None or not queue.in_service:
            return
        if gang.uid in queue.quota_holds or (own is not None and mover.uid in own.quota_holds):
            return
        leaving = self._moving_for(gang)
        with simulate(removed=leaving):
            found = Assigner(gang, queue, self._plain).assign()
        if found.mode is Mode.FIT:
            usage = {cell.fr: amount for cell, amount in found.usage.items()}
            hold_quota_for(gang, queue, usage, leaving, self._ledger, *self.room_of(found, queue), moving=True)
            queue.quota_holds[gang.uid].hold_room()

    def room_of(self, assignment: Assignment, queue: ClusterQueueState) -> Room:
        """The room that an assignment takes, as last found."""
        admission, request = assignment.admission(queue.name), assignment.capacity_request
        topologies = self._preemptor.topologies
        placed = topologies.taken(admission, assignment.node_needs(admission)) if assignment.placements() else ()
        return Room(request.takes() if request is not None else NOWHERE, placed)

    # --- sets ---------------------------------------------------------------------------------------------------------

    def _sets(self, search: _Search, movers: Sequence[_Mover]) -> list[tuple[list[WorkloadState], int]]:
        """Sets of movers that may make enough room, by what they cost: an order, of which at least so many have to go.

        This only counts, so as to simulate few sets: of the pod set that is largest, how many pods more would fit on each node
        and its cards.
        """
        pod_set, count, flavors = max(
            search.pod_sets, key=lambda each: accelerators_of((each[0],)), default=(None, 0, ())
        )
        if pod_set is None or not movers:
            return []
        offers = [
            tracked
            for tracked in self._ledger.nodes.values()
            if tracked.usable and all(each.node_labels.items() <= tracked.node.labels.items() for each in flavors)
        ]
        reported = {resource for tracked in offers for resource in tracked.node.allocatable}
        need = tuple(each for each in as_pod_requests(pod_set.requests) if each[0] in reported)
        scarce = next((name for name, _ in need if is_accelerator(name)), "cpu")
        tolerations = tuple(each for flavor in flavors for each in flavor.tolerations)
        selection = NodeSelection.of(pod_set, tolerations, scored=False)
        label = pod_set.topology.required if pod_set.topology is not None else ""
        on: dict[str, list[_Mover]] = {}
        for mover in movers:
            for node in mover.on:
                on.setdefault(node, []).append(mover)
        domains: dict[str, list[_Step]] = {}
        fitting: dict[str, int] = {}
        for tracked in offers:
            node, there = tracked.node, on.get(tracked.node.name, [])
            name, domain = node.name, node.labels.get(label, "")
            room = self._free(tracked, need, pod_set.shares)
            fitting[domain] = fitting.get(domain, 0) + room.fits(room.left)
            if there and not selection.judge(name, node.labels, node.taints)[0]:
                domains.setdefault(domain, []).extend(_steps(there, name, room, scarce))
        self._ledger.looks += len(offers)
        found: list[tuple[int, int, list[WorkloadState], int]] = []
        for domain, steps in sorted(domains.items()):
            missing = max(1, count - fitting[domain])
            steps.sort(key=lambda step: (step.cost, step.place))
            for chosen in [[step] for step in steps] if missing == 1 else [steps]:
                order: dict[WorkloadState, None] = {}
                least = 0
                for number, step in enumerate(chosen):
                    order.update(dict.fromkeys(step.movers))
                    least = len(order) if number < missing else least
                if missing == 1:
                    order.update(dict.fromkeys(mover.gang for mover in chosen[0].others))
                cost = sum(step.cost for step in chosen[:missing])
                if least <= search.most:
                    found.append((cost, len(found), list(order), least))
        return [(order, least) for _, _, order, least in sorted(found, key=lambda each: each[:2])]

    def _free(self, tracked: TrackedNode, need: PodRequests, shares: Sequence[Share]) -> _Free:
        """What is free of a node, and of its cards where these bound the pods."""
        left, node = tracked.left(), tracked.node.name
        devices = self._ledger.cards.devices(node) if shares else ()
        bound = card_seating.bound(devices, shares)
        if bound:
            add(left, card_amounts.capacity(devices))
            taken = self._ledger.taken_at(self._ledger.host_at(node) or node)
            add(left, {name: amount for name, amount in taken.items() if card_amounts.is_of_card(name)}, -1)
        return _Free(left, need, devices, bound)


class _Free(NamedTuple):
    """What is free of a node, and how many pods of one pod set would fit where so much is free."""

    left: dict[str, int]
    need: PodRequests
    devices: Sequence[Device]
    #: what a pod takes of the cards; () = these bound nothing
    shares: Sequence[Share]

    def fits(self, left: Mapping[str, int]) -> int:
        fitting = how_many(left, self.need)
        if fitting and self.shares:
            return fitting_on_cards(self.devices, self.shares, left, fitting, explained=False)[0]
        return fitting


class _Step(NamedTuple):
    """One pod more fits on a node once these have gone. `others` are the further movers there, in order."""

    cost: int
    place: tuple[str, int]
    movers: list[WorkloadState]
    others: list[_Mover]


def _steps(movers: Sequence[_Mover], node: str, room: _Free, scarce: str) -> Iterator[_Step]:
    """How the movers on a node make room for one pod after the other. Where a pod would fit already by what is counted, its
    neighbours prevent it: then all may have to go.
    """
    order = sorted(movers, key=lambda mover: (mover.cost / max(1, mover.on[node].get(scarce, 0)), mover.rank))
    free, gone, cost = dict(room.left), list[WorkloadState](), 0
    fits = room.fits(free)
    for number, mover in enumerate(order):
        for resource, amount in mover.on[node].items():
            free[resource] = free.get(resource, 0) + amount
        gone.append(mover.gang)
        cost += mover.cost
        now = room.fits(free)
        if now > fits or (number == 0 and fits > 0):
            price = cost if now > fits else sum(each.cost for each in order)
            yield _Step(price, (node, number), gone, list(order[number + 1 :]))
            gone, cost, fits = [], 0, now


def _has_quota(assignment: Assignment) -> bool:
    """Whether the quota for all of it is free, so that room on nodes is all that is missing."""
    return assignment.mode is Mode.PREEMPT and all(
        amount <= max(0, cell.available()) for cell, amount in assignment.usage.items()
    )


def _names(movers: Sequence[WorkloadState]) -> str:
    named = [mover.key for mover in movers[:_NAMED]]
    more = len(movers) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
