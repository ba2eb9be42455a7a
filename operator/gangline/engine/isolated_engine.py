"""An engine that continues without an object that makes it fail.

A fact that cannot be taken in is left out, and so is a waiting workload that cannot be decided on, until they change. A
workload that holds quota keeps it, and nothing more is decided about it. The state that an exception leaves behind is not
trusted: the engine is built again from the facts and from those of its decisions that are neither confirmed nor refused yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from gangline.engine.engine import Engine, key_of
from gangline.engine.model import Change, Decision, Gone, Item, Millis, Put, Settings, Warn, Workload, WriteFailed
from gangline.engine.text.decision_error import DecisionError

Fact: TypeAlias = tuple[type[Any], str]

#: After a failure that no object caused, deciding pauses for this time, twice as long each time, in milliseconds.
FIRST_REST, LONGEST_REST = 1_000, 60_000
#: One call of `decide` leaves out at most this many objects in a row.
MOST_FAULTS: Final = 100


@dataclass(frozen=True, slots=True)
class EngineFault:
    """A failure: the fact that caused it ("" = none in particular), and the error."""

    kind: type[Any]
    key: str
    error: Exception


class IsolatedEngine(Engine):
    """The engine with isolation. `report` is called once for every fault."""

    def __init__(
        self, settings: Settings | None = None, report: Callable[[EngineFault], None] = lambda fault: None
    ) -> None:
        super().__init__(settings)
        self._report = report
        self._facts: dict[Fact, Item] = {}
        #: facts that are left out, as they are
        self._left_out: dict[Fact, Item] = {}
        #: workloads with decisions that are neither confirmed nor refused
        self._unconfirmed: set[str] = set()
        self._rest: Millis = 0
        self._resting_until: Millis = 0

    def report_faults_to(self, report: Callable[[EngineFault], None]) -> None:
        """Call `report` with every further fault, in place of the one before."""
        self._report = report

    def observe(self, change: Change) -> None:
        fact = self._note(change)
        if fact is not None and fact in self._left_out:
            if isinstance(change, Put) and self._left_out[fact] == change.item:
                return
            del self._left_out[fact]  # the object changed: try it again
            self._store.frozen.discard(fact[1])
        try:
            super().observe(change)
            if isinstance(change, WriteFailed) and (truth := self._facts.get((Workload, change.workload))) is not None:
                super().observe(Put(truth))  # an engine that was built again knows nothing but the assumption
        except Exception as error:
            if fact is None:
                self._rebuild()
                self._report(EngineFault(Workload, "", error))
            else:
                self._leave_out(fact, error)

    def decide(self, now: Millis, room: int | None = None) -> list[Decision]:
        if now < self._resting_until:
            return []
        for _ in range(MOST_FAULTS):
            try:
                decisions = super().decide(now, room)
            except Exception as error:
                subject = (Workload, error.workload) if isinstance(error, DecisionError) else None
                cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
                if subject is None or subject not in self._facts or subject in self._left_out:
                    self._pause(now, cause)
                    return []
                self._leave_out(subject, cause)
                continue
            self._rest = 0
            self._unconfirmed.update(each.workload for each in decisions if not isinstance(each, Warn))
            return decisions
        self._pause(now, RuntimeError(f"more than {MOST_FAULTS} workloads in a row could not be decided on"))
        return []

    def next_wakeup(self, now: Millis) -> Millis | None:
        due = super().next_wakeup(now)
        return max(due, self._resting_until) if due is not None else None

    def leaves_out(self, change: Change) -> bool:
        """Whether the change is about a fact that is left out."""
        match change:
            case Put(item):
                return (type(item), key_of(item)) in self._left_out
            case Gone(kind, key):
                return (kind, key) in self._left_out
            case WriteFailed(key):
                return (Workload, key) in self._left_out

    def _note(self, change: Change) -> Fact | None:
        match change:
            case Put(item):
                fact = type(item), key_of(item)
                self._facts[fact] = item
            case Gone(kind, key):
                fact = kind, key
                self._facts.pop(fact, None)
            case WriteFailed(key):
                self._unconfirmed.discard(key)
                return None
        if fact[0] is Workload:
            self._unconfirmed.discard(fact[1])
        return fact

    def _leave_out(self, fact: Fact, error: Exception) -> None:
        item = self._facts.get(fact)
        if item is not None:
            self._left_out[fact] = item
        self._rebuild()
        self._report(EngineFault(*fact, error))

    def _pause(self, now: Millis, error: Exception) -> None:
        self._rest = min(LONGEST_REST, 2 * self._rest or FIRST_REST)
        self._resting_until = now + self._rest
        self._rebuild()
        self._report(EngineFault(Workload, "", error))

    def _rebuild(self) -> None:
        """Drop everything but the facts, and the decisions that are not confirmed yet."""
        facts = {fact: self._as_decided(fact, item) for fact, item in self._facts.items()}
        self._build()
        self._journal.resting = True
        try:
            self._take_in_again(facts)
        finally:
            self._journal.resting = False

    def _take_in_again(self, facts: dict[Fact, Item]) -> None:
        for fact, item in facts.items():
            left_out = fact in self._left_out
            if left_out and not _holds_quota(item):
                continue
            if isinstance(item, Workload) and left_out:
                self._store.frozen.add(item.key)
                item = _holding_only(item)
            try:
                super().observe(Put(item))
            except Exception as error:
                self._left_out[fact] = self._facts[fact]
                self._report(EngineFault(*fact, error))

    def _as_decided(self, fact: Fact, item: Item) -> Item:
        kind, key = fact
        if kind is not Workload or key not in self._unconfirmed:
            return item
        try:
            return self._assumed(key) or item
        except Exception:  # what is left of it is not consistent
            return item


def _holds_quota(item: Item) -> bool:
    return isinstance(item, Workload) and item.admission is not None and not item.finished


def _holding_only(workload: Workload) -> Workload:
    """The parts of a workload that it needs to hold its quota, and no more."""
    admission = workload.admission
    if admission is not None:
        admission = replace(admission, pod_sets=tuple(replace(each, topology=None) for each in admission.pod_sets))
    return Workload(
        workload.uid,
        workload.namespace,
        workload.name,
        workload.queue,
        workload.pod_sets,
        priority=workload.priority,
        created=workload.created,
        admission=admission,
        reserved_at=workload.reserved_at,
        admitted=workload.admitted,
        admitted_at=workload.admitted_at,
        pods_ready=True,
    )
