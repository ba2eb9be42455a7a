"""What a waiting gang needs of nodes: room for all of it at once, besides the spares that are held back."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from gangline.engine.model import Recovery
from gangline.engine.nodes.node_rooms import Ground, NodeRooms
from gangline.engine.nodes.packer import NO_SPARES, NodeAssignment, PackedPodSet, Packer, Shortage, Spares
from gangline.engine.occupancy.node_ledger import NOWHERE, Assigned
from gangline.engine.queues.protection import may_be_protected
from gangline.engine.queues.workload_state import WorkloadState


class AllAssignments(Protocol):
    """The node assignments of all holders (`nodes.capacity`)."""

    @property
    def rooms(self) -> NodeRooms: ...
    def highest_running(self, ground: Ground) -> int | None: ...


class CapacityRequest:
    """Whether there is room for a waiting gang. `assigned` is the assignment that was last found."""

    def __init__(
        self, capacity: AllAssignments, gang: WorkloadState, members: list[PackedPodSet], recovery: Recovery | None
    ) -> None:
        self._capacity = capacity
        self._gang = gang
        self._members = members
        self._recovery = recovery
        self.assigned: NodeAssignment | None = None

    @property
    def members(self) -> list[PackedPodSet]:
        return self._members

    def renewed(self) -> CapacityRequest | None:
        """The same request to the nodes as they are now, whatever came and went since; None if none of them is left."""
        rooms = self._capacity.rooms
        renewed = [
            replace(each, ground=rooms.ground(each.ground.labels)) for each in self._members if each.ground is not None
        ]
        members = [each for each in renewed if each.ground is not None]
        return CapacityRequest(self._capacity, self._gang, members, self._recovery) if members else None

    def shortage(self) -> Shortage | None:
        """What is missing, as things are."""
        short = self._shortage()
        return short if short is None or short.member.shape.power is None else self._with_power_caps(short)

    def _shortage(self) -> Shortage | None:
        capacity = self._capacity
        packer = Packer(capacity.rooms, self._gang.key, None, self._gang.workload.avoid)
        self.assigned = None
        try:
            for each in self._members:
                short = (
                    packer.assign_domains(each, {}, move=True) if each.exclusive else packer.assign(each, each.count)
                )
                if short is not None:
                    return short
            if self._recovery is not None:
                for each in self._members:
                    short = self._too_few_spares(each)
                    if short is not None:
                        return short
            self.assigned = packer.assigned
            return None
        finally:
            packer.undo()

    def _with_power_caps(self, short: Shortage) -> Shortage:
        """The shortage, with the caps of power that alone are in the way."""
        each, rooms = short.member, self._capacity.rooms
        power = rooms.ledger.power
        if power is None or each.ground is None or each.shape.power is None or each.exclusive or short.spares:
            return short
        if sum(each.bounded(rooms.without_caps(each.ground, each.shape)).values()) < short.wanted:
            return short
        return replace(short, power=power.why(each.ground.names, each.shape.power))

    def lacks(self) -> Shortage | None:
        """`shortage` without computing an assignment where counting is enough."""
        (first, *others) = self._members
        simple = not (others or first.exclusive or first.most_per_node)
        by_power = first.shape.power is not None  # the caps bound nodes together
        if not simple or first.ground is None or by_power or self._spares(first) is not NO_SPARES:
            return self.shortage()
        room = self._capacity.rooms.table(first.ground, first.shape).total
        return Shortage(first, first.count, room) if room < first.count else None

    def fits(self) -> bool:
        return self.shortage() is None

    def takes(self) -> Assigned:
        """What the assignment that was last found takes of the rooms."""
        return self.assigned.takes(self._members) if self.assigned is not None else NOWHERE

    def _spares(self, each: PackedPodSet) -> Spares:
        recovery = self._recovery
        if recovery is None or not recovery.enabled or not (recovery.spares or recovery.spares_percent):
            return NO_SPARES
        return Spares(recovery.spares, recovery.spares_percent)

    def _too_few_spares(self, each: PackedPodSet) -> Shortage | None:
        """What is missing if, with the gang assigned, fewer rooms were idle than are held back as spares; None if enough are."""
        spares = self._spares(each)
        if spares is NO_SPARES or each.ground is None:
            return None
        highest = self._capacity.highest_running(each.ground)
        if self._lent() and highest is not None and highest > self._gang.priority:
            return None
        total, idle = self._idle(each)
        kept = spares.of(total)
        if idle >= kept:
            return None
        wanted = each.domains if each.exclusive else each.count
        return Shortage(each, wanted, max(0, wanted - (kept - idle)), kept)

    def _idle(self, each: PackedPodSet) -> tuple[int, int]:
        """The number of usable nodes or domains, and the number of those with no pods."""
        assert each.ground is not None
        rooms = self._capacity.rooms
        usable = dict(rooms.usable(each.ground))
        if not each.exclusive:
            return len(usable), sum(room.idle for room in usable.values())
        domains = rooms.domains(usable, each.exclusive)
        idle = sum(
            not rooms.ledger.owners((each.exclusive, value)) and all(usable[name].idle for name in names)
            for value, names in domains.items()
        )
        return len(domains), idle

    def can_never_fit(self) -> Shortage | None:
        """What would be missing even if no other gang held anything."""
        rooms = self._capacity.rooms
        for each in self._members:
            assert each.ground is not None
            table = rooms.empty_table(each.ground, each.shape)
            spares = self._spares(each)
            if each.exclusive:
                domains = rooms.domains(table.counts, each.exclusive)
                able = sum(sum(table.counts[name] for name in names) >= each.per_domain for names in domains.values())
                found, wanted = able - (0 if self._lent() else spares.of(len(domains))), each.domains
            else:
                found, wanted = sum(each.bounded(table.counts).values()), each.count
            if found < wanted:
                return Shortage(each, wanted, max(0, found), spares.count)
        return None

    def is_for_whole_nodes(self, each: PackedPodSet) -> bool:
        """Whether no node has room for two pods of this part."""
        assert each.ground is not None
        return max(self._capacity.rooms.empty_table(each.ground, each.shape).counts.values(), default=0) == 1

    def remark(self, short: Shortage, without: Shortage | None) -> str:
        """What is needed of nodes, what there is, and what there would be `without` all that may be preempted for it."""
        each = short.member
        same = without is not None and without.member.name == each.name
        more = max(0, (without.found if same and without is not None else short.wanted) - short.found)
        if each.exclusive or not self.is_for_whole_nodes(each):
            return f". Preemption can free room for {more} more" if more else ""
        nodes = f"{short.wanted} whole node{'' if short.wanted == 1 else 's'} of {' and '.join(each.flavors)}"
        return f". {nodes} needed: {short.found} free now, {more or 'none'} can be freed by preemption"

    def _lent(self) -> bool:
        """Whether the gang may run on spares, since it can be stopped at once."""
        return self._recovery is not None and self._recovery.lend and not may_be_protected(self._gang)

    def text(self, short: Shortage) -> str:
        """The shortage in words, which stay the same for as long as it does."""
        each = short.member
        assert each.ground is not None
        flavor = " and ".join(each.flavors)
        sick = self._capacity.rooms.unusable(each.ground)
        because = f" ({sick} of its {len(each.ground.names)} nodes can't be used)" if sick else ""
        kept = f", {short.spares} held back as spare" if short.spares else ""
        if each.exclusive:
            return (
                f"insufficient healthy capacity in flavor {flavor}: {short.wanted} free domains of {each.exclusive} needed"
                f" for pod set {each.name}, {short.found} available{kept}{because}"
            )
        if short.power:
            return (
                f"insufficient power in flavor {flavor}: for {short.found} out of {short.wanted} pods of pod set"
                f" {each.name}{kept} ({short.power})"
            )
        return (
            f"insufficient healthy capacity in flavor {flavor}: room for {short.found} out of {short.wanted} pods of"
            f" pod set {each.name}{kept}{because}"
        )
