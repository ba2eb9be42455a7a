"""Turns of the tasks of an array, of which no more than its limit may run at a time.

A task needs a turn to be queued. The first waiting tasks have one, in queue order: as many as the limit leaves beside the tasks
that hold quota. The others are in no queue, so that they block nobody in a StrictFIFO queue and are not tried in vain.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.engine.model import Millis
from gangline.engine.queues.workload_state import WorkloadState

#: the place of a waiting task: highest priority first, then age, then its number
_Rank: TypeAlias = tuple[int, Millis, int, str]


@dataclass(slots=True)
class _Array:
    """The tasks of one array: those that hold quota, by uid, and those that wait, in queue order, with and without a turn."""

    holders: set[str] = field(default_factory=set[str])
    tasks: dict[str, WorkloadState] = field(default_factory=dict[str, WorkloadState])
    with_turn: list[_Rank] = field(default_factory=list[_Rank])
    without: list[_Rank] = field(default_factory=list[_Rank])
    #: the limits that its waiting tasks name, the smallest first: that one counts
    limits: list[int] = field(default_factory=list[int])

    @property
    def room(self) -> int:
        """How many waiting tasks may have a turn."""
        return max(0, self.limits[0] - len(self.holders)) if self.limits else 0


@dataclass(frozen=True, slots=True)
class _Membership:
    """What was noted of a task: its array, by namespace and name, its rank while it waits, and the limit that it names."""

    array: tuple[str, str]
    rank: _Rank | None
    limit: int


class ArrayTurns:
    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], _Array] = {}
        self._members: dict[str, _Membership] = {}
        #: arrays in which turns may have become free, or too many
        self._changed: dict[tuple[str, str], None] = {}

    @property
    def unsettled(self) -> bool:
        """Whether tasks may have a turn, or have to give one back, that do not know it yet."""
        return bool(self._changed)

    @staticmethod
    def concern(gang: WorkloadState) -> bool:
        """Whether a workload is a task of an array with a limit. Neither is a slice that replaces another one of its task, nor a
        variant: there are several of these for one task.
        """
        return gang.workload.array is not None and not gang.replaces and not gang.workload.variant_of

    def has_turn(self, gang: WorkloadState) -> bool:
        """Whether a task that waits may be queued. One that is not known to wait gets its turn when the array is settled."""
        known = self._members.get(gang.uid)
        if known is None or known.rank is None:
            return False
        turns = self._arrays[known.array].with_turn
        place = bisect_left(turns, known.rank)
        return place < len(turns) and turns[place] == known.rank

    def figures(self, gang: WorkloadState) -> tuple[int, int, int] | None:
        """The limit of an array, its tasks that hold quota, and those that are next; None for a task that waits for no turn."""
        known = self._members.get(gang.uid)
        if known is None or known.rank is None or self.has_turn(gang):
            return None
        array = self._arrays[known.array]
        return array.limits[0], len(array.holders), len(array.with_turn)

    def wait(self, gang: WorkloadState) -> None:
        """Let a task wait for its turn. One that has a turn, at the same rank, keeps it."""
        asked = gang.workload.array
        assert asked is not None, gang
        rank = (-gang.priority, gang.own_turn, asked.task, gang.uid)
        membership = _Membership((gang.workload.namespace, asked.name), rank, asked.limit)
        if self._members.get(gang.uid) == membership:
            return
        self.leave(gang)
        array = self._join(gang, membership)
        array.tasks[gang.uid] = gang
        insort(array.without, rank)
        insort(array.limits, asked.limit)

    def hold(self, gang: WorkloadState) -> None:
        """A task holds quota: it counts until it leaves."""
        asked = gang.workload.array
        assert asked is not None, gang
        membership = _Membership((gang.workload.namespace, asked.name), None, asked.limit)
        known = self._members.get(gang.uid)
        if known is not None and known.rank is None and known.array == membership.array:
            return
        self.leave(gang)
        self._join(gang, membership).holders.add(gang.uid)

    def _join(self, gang: WorkloadState, membership: _Membership) -> _Array:
        self._members[gang.uid] = membership
        self._changed[membership.array] = None
        return self._arrays.setdefault(membership.array, _Array())

    def leave(self, gang: WorkloadState) -> None:
        """The workload is no task of its array any more, or neither waits nor holds quota. Does nothing if that is known."""
        known = self._members.pop(gang.uid, None)
        if known is None:
            return
        array = self._arrays[known.array]
        if known.rank is None:
            array.holders.discard(gang.uid)
        else:
            del array.tasks[gang.uid]
            del array.limits[bisect_left(array.limits, known.limit)]
            ranks = array.with_turn
            place = bisect_left(ranks, known.rank)
            if place == len(ranks) or ranks[place] != known.rank:
                ranks = array.without
                place = bisect_left(ranks, known.rank)
            del ranks[place]
        if array.holders or array.tasks:
            self._changed[known.array] = None
        else:
            del self._arrays[known.array]
            self._changed.pop(known.array, None)

    def settle(self) -> list[WorkloadState]:
        """Give turns to the first tasks of each array, and take them from the others. Returns those whose turn came or went."""
        changed, self._changed = self._changed, {}
        moved: list[WorkloadState] = []
        for array in (self._arrays[key] for key in changed):
            moved += _settled(array)
        return moved


def _settled(array: _Array) -> list[WorkloadState]:
    """The tasks of one array whose turn came or went."""
    before: dict[str, None] = {}
    given, others, room = array.with_turn, array.without, array.room
    if len(given) > room:
        late, given[room:] = given[room:], []
        before |= dict.fromkeys(uid for *_, uid in late)
        others[:0] = late  # those with a turn are before all others, but for newer ones of a better rank
        others.sort()
    elif len(given) < room and others:
        early = others[: room - len(given)]
        del others[: len(early)]
        before |= dict.fromkeys(uid for *_, uid in early)
        given += early
        given.sort()
    while given and others and others[0] < given[-1]:
        late, early = given.pop(), others.pop(0)
        before |= dict.fromkeys((late[-1], early[-1]))
        insort(given, early)
        insort(others, late)
    return [array.tasks[uid] for uid in before]
