"""What the packages of the engine keep about a workload: one part for each package, which alone writes it.

`OWNERS` says which package that is. The others read the attributes, and change them through the methods here
(`tests/engine/test_states.py` finds assignments in other modules).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from gangline.engine.model import Admission, Millis
from gangline.engine.occupancy.node_ledger import NodeLedger
from gangline.engine.quota.quota_ledger import Cell, FlavorResource
from gangline.engine.text.wording import minute_text

#: part of a `WorkloadState` -> the package of the engine that writes its attributes
OWNERS: Final = {
    "quota": "queues",
    "nodes": "nodes",
    "backfill": "backfill",
    "attempts": "cycle",
    "lifecycle": "state",
}

#: resource -> index of the flavor at which the last scan stopped, -1 = the last flavor; one mapping per pod set
ScanProgress = tuple[Mapping[str, int], ...]
#: no uids, no names of nodes
NO_NAMES: Final[frozenset[str]] = frozenset()
#: the usage of a workload without quota, and where it is counted: most wait, and none of them has a mapping of its own
NO_USAGE: Final[Mapping[FlavorResource, int]] = {}
NO_CELLS: Final[Sequence[tuple[Cell, int]]] = ()


class QuotaHeld:
    """The quota that a workload holds, and since when."""

    __slots__ = ("admission", "admitted_at", "cells", "removed", "reserved_at", "usage")

    def __init__(self) -> None:
        #: None while it holds no quota
        self.admission: Admission | None = None
        #: in whole seconds, as Kubernetes writes times
        self.reserved_at: Millis = 0
        self.admitted_at: Millis = 0
        #: a flavor that it uses with quantity 0 is included
        self.usage: Mapping[FlavorResource, int] = NO_USAGE
        #: where the usage is counted, empty while its ClusterQueue is missing
        self.cells: Sequence[tuple[Cell, int]] = NO_CELLS
        #: a trial has removed it from the quota ledger, or it was reserved in this cycle: it is no candidate for preemption
        self.removed = False

    def hold_without_queue(self, admission: Admission) -> None:
        """Hold the quota of a ClusterQueue that is missing, and therefore counted nowhere."""
        self.admission = admission

    def replace_admission(self, admission: Admission) -> None:
        """Hold the same quota by another admission: on other nodes, say."""
        self.admission = admission

    def release_without_queue(self) -> None:
        self.admission, self.usage = None, NO_USAGE

    def set_reserved_at(self, at: Millis) -> None:
        self.reserved_at = at

    def set_admitted_at(self, at: Millis) -> None:
        self.admitted_at = at

    def lose_queue(self) -> None:
        """The ClusterQueue has gone, with all that was counted there."""
        self.cells = NO_CELLS

    def leave_ledger(self) -> None:
        """A trial removes the usage from the quota ledger."""
        self.removed = True
        for cell, amount in self.cells:
            cell.remove(amount)

    def return_to_ledger(self) -> None:
        """The end of `leave_ledger`."""
        self.removed = False
        for cell, amount in self.cells:
            cell.add(amount)

    def protect(self, protected: bool) -> None:
        """Take it out of the candidates for preemption until the end of the cycle in which it was reserved."""
        self.removed = protected


class NodesHeld:
    """What a workload takes of nodes, and the nodes that it is moved off."""

    __slots__ = ("healed", "ledger", "refusing")

    def __init__(self) -> None:
        #: where its pods are counted, None if it holds nothing
        self.ledger: NodeLedger | None = None
        #: lost nodes under it that a decision already moves it away from, though no fact says so yet
        self.healed = NO_NAMES
        #: nodes that refuse pods of it, and that it was moved off for that reason
        self.refusing = NO_NAMES

    def move_off(self, nodes: Iterable[str]) -> None:
        """Note lost nodes that a decision moves it away from."""
        self.healed = self.healed.union(nodes)

    def still_on(self, nodes: Iterable[str]) -> None:
        """Forget the lost nodes that have no pods of it any more."""
        self.healed = self.healed.intersection(nodes)

    def set_refusing(self, nodes: Iterable[str]) -> None:
        self.refusing = frozenset(nodes)


class FlavorWait(NamedTuple):
    """A workload could start on one flavor, and waits for another one, on which it is expected to end earlier."""

    flavor: str
    #: its expected start there, and its end
    start: Millis
    end: Millis
    #: the flavors on which it could start, and its end there
    instead: str
    end_instead: Millis
    #: it waits no longer than until then
    until: Millis

    @property
    def text(self) -> str:
        """The wait, in words that follow the reason for which it can't start."""
        starts, ends, instead = minute_text(self.start), minute_text(self.end), minute_text(self.end_instead)
        return f". Waits for flavor {self.flavor} until about {starts}: expected end {ends} there, {instead} on {self.instead}"


class BackfillRecord:
    """What reservations and backfill have done for a workload, or with it."""

    __slots__ = ("backfilled", "holds_back", "made_room", "passed_by", "preempted_for_it", "waited_for", "waits_for")

    def __init__(self) -> None:
        #: it was backfilled: admitted before a workload that precedes it and has a reservation
        self.backfilled = False
        #: uids of workloads preempted so that it can start: they do not start before it, and none is preempted for it twice
        self.preempted_for_it = NO_NAMES
        #: others are held back for it since its wait paid for that; a reservation may come and go meanwhile. And the keys of the
        #: workloads that were backfilled before it since
        self.holds_back = False
        #: others were preempted for it since it waits
        self.made_room = False
        self.passed_by: AbstractSet[str] = NO_NAMES
        #: the flavor that it waits for though another one is free, and the one that it waited for last
        self.waits_for: FlavorWait | None = None
        self.waited_for = ""

    def wait_for(self, wait: FlavorWait | None) -> None:
        """Wait for this flavor, None = for none."""
        self.waits_for = wait
        if wait is not None:
            self.waited_for = wait.flavor

    def learn(self, backfilled: bool) -> None:
        """Set what the workload's last fact says."""
        self.backfilled = self.backfilled or backfilled

    def pass_by(self, key: str) -> None:
        """Note a workload that was backfilled before this one."""
        if not isinstance(self.passed_by, set):
            self.passed_by = set()
        self.passed_by.add(key)

    def release(self) -> None:
        """The workload holds nothing any more."""
        self.backfilled, self.made_room, self.preempted_for_it = False, False, NO_NAMES
        self.waited_for = ""


class WorkloadShape:
    """What makes workloads interchangeable for the scheduler (an equivalence class); compared by value, hashed once."""

    __slots__ = ("__weakref__", "_hash", "value")

    def __init__(self, value: Hashable) -> None:
        self.value = value
        self._hash = hash(value)

    @staticmethod
    def of(value: Hashable) -> WorkloadShape:
        """The one object for all workloads of this shape: dictionaries find the same object without comparing its value."""
        found = _SHAPES.get(value)
        if found is None:
            found = _SHAPES[value] = WorkloadShape(value)
        return found

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, WorkloadShape) and self._hash == other._hash and self.value == other.value
        )


_SHAPES: WeakValueDictionary[Hashable, WorkloadShape] = WeakValueDictionary()


@dataclass(slots=True)
class LastScan:
    """How far the flavor scan got, and whether that is still valid."""

    tried: ScanProgress
    shape: WorkloadShape
    cycle: int
    generation: int
    #: the flushes of its tree before the scan looked at its first flavor
    began: int
    #: another workload of the same cycle took what one of its flavors had
    overtaken: bool


class AttemptHistory:
    """The last attempt to admit a workload, and what was said about it."""

    __slots__ = ("last_reason", "progress", "reported", "verdict", "yielding")

    def __init__(self) -> None:
        self.progress: LastScan | None = None
        #: the last failed attempt, and the (reason, message) with which it was requeued
        self.verdict: object | None = None  # see `assignment.verdict_of`
        self.last_reason: tuple[str, str] = ("", "")
        #: (reason, message) of the last ReportPending
        self.reported: tuple[str, str] = ("", "")
        #: it was preempted for a workload that has not started yet
        self.yielding = False

    def scan_anew(self) -> None:
        """The next attempt looks at all flavors."""
        self.progress = None

    def report_anew(self) -> None:
        """The next reason is reported, even if it is the last one again."""
        self.reported = ("", "")

    def stop_yielding(self) -> None:
        """The workload that it was preempted for has started, or it leaves its queue."""
        self.yielding = False


class LifecycleRecord:
    """What is to be done with a workload besides scheduling it."""

    __slots__ = (
        "asked_checks",
        "mends_at",
        "overrun",
        "requeue_assumed",
        "review_at",
        "second_passes",
        "warned_of",
    )

    def __init__(self) -> None:
        #: when the workload has to be reviewed
        self.review_at: Millis | None = None
        #: its back-off is assumed to be over, though no fact says so yet
        self.requeue_assumed = False
        #: checks that were listed for it, though no fact says so yet; None = none were
        self.asked_checks: tuple[str, ...] | None = None
        #: how far it is known to be past its forecast, see engine.state.overrun
        self.overrun = ""
        #: failed attempts to place its pods after its checks, or those of a failed node
        self.second_passes = 0
        #: when pods of its failed node are placed on another one, as in Kueue; None = it has none
        self.mends_at: Millis | None = None
        #: the windows of Reservations by which it has been asked to stop
        self.warned_of: frozenset[str] = NO_NAMES

    def learn(self) -> None:
        """A new fact replaces what was assumed until it came."""
        self.requeue_assumed, self.asked_checks = False, None
