"""The ledger of promises: the starts that waiting workloads were promised, each time that one moved and why, and what came true.

The leader keeps it: of workloads that wait in full, of those that started lately until others have. Sums by ClusterQueue
outlive the process (`tallies`).

What came true moves what is promised next: p90 is the one of the courses, farther or nearer by the factor with which nine of
ten earlier promises of the ClusterQueue would have held. p50 stays where the courses, and so the plan, have it.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gangline.engine import ExpectedStart, Outlook
from gangline.engine.model import Millis
from gangline.kube.resources import namespace_of
from gangline.tenants import SharedRoom

#: workloads whose promises are kept: those that wait, and those that have started. Beyond, the namespace with most of them loses
#: its oldest one.
MOST_OPEN: Final = 20_000
MOST_KEPT: Final = 5_000
#: moves kept of one workload: the first promise, and the latest
MOST_MOVES: Final = 20
#: a start has moved if its p50 has by more than this, in milliseconds, and by more than this share of the wait that is left
MOVED: Final = 60_000
MOVED_SHARE: Final = 0.1
#: errors that a queue's median is made of, and queues that are counted
ERRORS: Final = 1000
MOST_QUEUES: Final = 5_000
#: outcomes of which the margin of a queue's p90 is made, the latest, and how many there have to be: fewer have no nine of ten
OUTCOMES: Final = 200
LEAST_OUTCOMES: Final = 10
#: a p90 is never moved by more than this factor
MOST_MARGIN: Final = 8.0
#: waits are compared from this length on, in milliseconds
LEAST_WAIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Promise:
    """The start that a workload was promised at one time. `cause`: why it differs from the promise before, "" for the first.
    `drawn`: p90 as the simulated courses had it.
    """

    at: Millis
    p50: Millis
    p90: Millis | None
    because: str = ""
    cause: str = ""
    drawn: Millis | None = None

    def as_json(self) -> dict[str, Any]:
        """The promise as JSON, instants in Unix seconds."""
        p90 = None if self.p90 is None else self.p90 / 1000
        said = {"because": self.because, "cause": self.cause}
        return {"at": self.at / 1000, "p50": self.p50 / 1000, "p90": p90, **said}


@dataclass(slots=True)
class PromisesOfWait:
    """The promises that were made during one wait, oldest first; `started`: 0 while the workload waits."""

    promises: list[Promise]
    started: Millis = 0
    queue: str = ""

    @property
    def first(self) -> Promise:
        return self.promises[0]


@dataclass(slots=True)
class PromiseRecord:
    """The record of how first promises of one ClusterQueue came true, the latest ones in detail.

    `errors`: |start - p50| as parts of the wait. `outcomes`: when the courses' p90 was due, and the logarithm of the wait as a
    part of theirs.
    """

    starts: int = 0
    within_p50: int = 0
    within_p90: int = 0
    errors: deque[float] = field(default_factory=lambda: deque[float](maxlen=ERRORS))
    outcomes: deque[tuple[Millis, float]] = field(default_factory=lambda: deque[tuple[Millis, float]](maxlen=OUTCOMES))

    def came_true(self, first: Promise, started: Millis) -> None:
        self.starts += 1
        self.within_p50 += started <= first.p50
        self.within_p90 += first.p90 is not None and started <= first.p90
        self.errors.append(abs(started - first.p50) / max(1000, started - first.at))
        if first.drawn is not None:
            self.outcomes.append((first.drawn, _excess(first, started)))

    def as_json(self) -> dict[str, Any]:
        count, errors = max(1, self.starts), sorted(self.errors)
        return {
            "starts": self.starts,
            "withinP50": self.within_p50 / count,
            "withinP90": self.within_p90 / count,
            "medianError": errors[len(errors) // 2] if errors else 0.0,
        }

    def saved(self) -> dict[str, Any]:
        counts = {"starts": self.starts, "within_p50": self.within_p50, "within_p90": self.within_p90}
        outcomes = [[due, round(excess, 4)] for due, excess in self.outcomes]
        return counts | {"errors": [round(error, 4) for error in self.errors], "outcomes": outcomes}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> PromiseRecord:
        """Read a record that `saved` made. Raises KeyError, TypeError or ValueError for anything else."""
        errors = deque(map(float, row["errors"]), maxlen=ERRORS)
        outcomes = deque(((int(due), float(excess)) for due, excess in row.get("outcomes", ())), maxlen=OUTCOMES)
        return cls(int(row["starts"]), int(row["within_p50"]), int(row["within_p90"]), errors, outcomes)


class Ledger:
    """The promises to workloads that wait or have started, and the record of each ClusterQueue. There is one
    ledger per operator.
    """

    def __init__(self) -> None:
        #: ClusterQueue -> its record
        self.records: dict[str, PromiseRecord] = {}
        self._open: SharedRoom[str, PromisesOfWait] = SharedRoom(MOST_OPEN)
        self._kept: SharedRoom[str, PromisesOfWait] = SharedRoom(MOST_KEPT)

    def promise_starts(
        self, starts: Iterable[ExpectedStart], now: Millis, queues: Mapping[str, str] | None = None
    ) -> dict[str, ExpectedStart]:
        """Promise starts to all workloads that wait, and return what is promised. `starts` are those of the simulated courses,
        `queues` the workloads' ClusterQueues.
        """
        queues = queues or {}
        margins = self.margins(now, frozenset(queues.values()))
        found: dict[str, ExpectedStart] = {}
        for drawn in starts:
            queue = queues.get(drawn.workload, "")
            start = found[drawn.workload] = _moved_by(margins.get(queue, 0.0), drawn, now)
            known = _get(self._open, start.workload)
            if known is None:
                _put(self._open, start.workload, PromisesOfWait([_promise(start, now, drawn=drawn.p90)], queue=queue))
            elif cause := _moved(known.promises[-1], start, now):
                known.promises.append(_promise(start, now, cause))
                if len(known.promises) > MOST_MOVES:
                    del known.promises[1]
        return found

    def moved(self, seen: Outlook) -> Outlook:
        """The outlook with each p90 moved as a promise would move it; nothing is kept of it."""
        queues = queues_in(seen)
        margins = self.margins(seen.now, frozenset(queues.values()))
        starts = {
            key: _moved_by(margins.get(queues.get(key, ""), 0.0), start, seen.now) for key, start in seen.starts.items()
        }
        return replace(seen, starts=starts)

    def margins(self, now: Millis, queues: Collection[str]) -> dict[str, float]:
        """The logarithm of the factor that moves p90, for each of these ClusterQueues that has one.

        Of promises whose p90 is over, those of jobs that wait on too: of others it is not known yet, and of those that have
        started early it is known too soon.
        """
        found: defaultdict[str, list[float]] = defaultdict(list)
        for wait in self._open.values():
            first = wait.first
            if wait.queue in queues and first.drawn is not None and first.drawn < now:
                found[wait.queue].append(_excess(first, now))
        for queue in queues:
            if (record := self.records.get(queue)) is not None:
                found[queue] += (excess for due, excess in record.outcomes if due < now)
        return {queue: _margin(each) for queue, each in found.items() if len(each) >= LEAST_OUTCOMES}

    def started(self, workload: str, cluster_queue: str, at: Millis) -> None:
        """Count the promise to a workload that holds quota now. A workload that was promised nothing is not counted."""
        known = _get(self._open, workload)
        if known is None:
            return
        known.started = at
        self.forget(workload)
        _put(self._kept, workload, known)
        if cluster_queue in self.records or len(self.records) < MOST_QUEUES:
            self.records.setdefault(cluster_queue, PromiseRecord()).came_true(known.first, at)

    def forget(self, workload: str) -> None:
        for room in (self._open, self._kept):
            room.drop(namespace_of(workload), workload)

    def of(self, workload: str) -> PromisesOfWait | None:
        """The promises of the workload's present wait, else of the last one."""
        return _get(self._open, workload) or _get(self._kept, workload)


def _get(room: SharedRoom[str, PromisesOfWait], workload: str) -> PromisesOfWait | None:
    return room.get(namespace_of(workload), workload)


def _put(room: SharedRoom[str, PromisesOfWait], workload: str, wait: PromisesOfWait) -> None:
    room.put(namespace_of(workload), workload, wait)


def queues_in(seen: Outlook) -> dict[str, str]:
    """The ClusterQueue of each workload that an outlook has, where it starts first."""
    return {stretch.workload: stretch.cluster_queue for stretch in reversed(seen.stretches)}


def _promise(start: ExpectedStart, now: Millis, cause: str = "", drawn: Millis | None = None) -> Promise:
    return Promise(now, start.p50, start.p90, start.because, cause, drawn)


def _excess(first: Promise, started: Millis) -> float:
    """The logarithm of the wait as a part of the one that the courses' p90 allowed."""
    allowed = (first.drawn or first.at) - first.at
    return math.log(max(LEAST_WAIT, started - first.at) / max(LEAST_WAIT, allowed))


def _margin(excesses: list[float]) -> float:
    """The factor's logarithm with which nine of ten would have held."""
    ordered, most = sorted(excesses), math.log(MOST_MARGIN)
    nine_of_ten = ordered[min(len(ordered) - 1, math.ceil(0.9 * (len(ordered) + 1)) - 1)]
    return max(-most, min(most, nine_of_ten))


def _moved_by(margin: float, start: ExpectedStart, now: Millis) -> ExpectedStart:
    if start.p90 is None or not margin:
        return start
    return replace(start, p90=max(start.p50, now + round(max(0, start.p90 - now) * math.exp(margin))))


def _moved(before: Promise, start: ExpectedStart, now: Millis) -> str:
    """Why the start has moved, "" if it has not, or hardly."""
    least = max(MOVED, MOVED_SHARE * (start.p50 - now))
    moved = start.p50 - before.p50
    if abs(moved) <= least and (start.p90 is None) == (before.p90 is None):
        return ""
    if start.because != before.because:
        return f"before: {before.because or 'no cause known'}; now: {start.because or 'no cause known'}"
    if abs(moved) <= least:
        return "how late it may be has changed"
    what = before.because.removeprefix("after ").removesuffix(" ends").removesuffix(" end")
    return f"{what or 'what it waits for'}: expected to last {'longer' if moved > 0 else 'less long'} than before"
