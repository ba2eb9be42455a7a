"""Promises: by when a reserved head will have started, said once, so that nine of ten hold.

A plan says when a head can start if runs end as expected. How much longer earlier heads waited than first planned says how far
beyond the plan a promise has to lie: by the factor with which nine of ten of them would have been in time (split-conformal
prediction of starts). Heads of the same ClusterQueue and size count most; all others together count as much as a few. Heads that
wait on count as well, once the time that the factor gives them is over: of others it is not known yet. The factor aims higher
after a promise that was missed, and lower after one that was kept, so that nine of ten hold where the past is no guide.

Nothing is promised where too few heads have started, or where no factor of a useful length would have been enough.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Final

from gangline.engine.model import Millis, ReservedHead
from gangline.engine.model.units import seconds
from gangline.engine.queues.workload_state import WorkloadState

#: what moved the start of a head beyond its promise …
#: a run that takes longer than its forecast
FORECAST: Final = "forecast"
#: a workload that goes before it in the order, and came or was tried later
NEW_HEAD: Final = "new_head"
#: such a workload, for which others were preempted
PREEMPTION: Final = "preemption"
#: a workload that goes after it, and was not held back for it
IDLE_BUDGET: Final = "idle_budget"
#: the floor: its queue follows its policy no more, or follows it again
FLOOR: Final = "floor"
#: a node that came, went or changed
NODES: Final = "nodes"
#: another change of queues or quotas
QUEUES: Final = "queues"

#: a start is late when it is later than promised by more than this
LATE: Final[Millis] = 60_000
#: the share of promises that may be missed, and by how much of the difference it is corrected after each
MISSED: Final = 0.1
_STEP: Final = 0.02
_LEAST_MISSED: Final = 0.02
_MOST_MISSED: Final = 0.5
#: added to each wait before waits are compared: a plan of a minute may be wrong by half an hour
_UNSURE: Final[Millis] = 1_800_000
#: heads that must be known before anything is promised, and the weight of all heads of other sizes and queues
_FEW: Final = 20
_OTHERS: Final = 20.0
#: no promise lies beyond the plan by more than this factor
_MOST: Final = math.log(8.0)
#: shares of what its queue can use from which on a head is of the next size
_SIZES: Final = (1 / 16, 1 / 4)
#: started heads that are kept of a ClusterQueue, and in all; and waiting ones
_OF_QUEUE: Final = 200
_KEPT: Final = 1_000
_OPEN: Final = 1_000


def size_class(share: float) -> int:
    """The size of a head that needs this share of what its queue can use."""
    return bisect_right(_SIZES, share)


@dataclass(slots=True)
class Lateness:
    """How many heads of a ClusterQueue started after a start was planned for them, how many of these were promised one, how many
    of the promises were missed, by which causes, and by how much in all; and the sum of the promised waits.
    """

    planned: int = 0
    promised: int = 0
    late: int = 0
    total: Millis = 0
    length: Millis = 0
    causes: Counter[str] = field(default_factory=Counter[str])

    @property
    def seconds(self) -> float:
        return seconds(self.total)

    @property
    def seconds_ahead(self) -> float:
        return seconds(self.length)

    @property
    def coverage(self) -> float | None:
        """The share of promises that were kept; None without any."""
        return 1 - self.late / self.promised if self.promised else None

    def as_json(self) -> dict[str, object]:
        """The sums as JSON, times in seconds."""
        return {
            "planned": self.planned,
            "promised": self.promised,
            "late": self.late,
            "coverage": self.coverage,
            "lateSeconds": self.seconds,
            "promisedSeconds": self.seconds_ahead,
            "missedBy": dict(sorted(self.causes.items())),
        }

    def count(self, head: ReservedHead) -> None:
        self.planned += head.planned is not None
        if head.promised is None:
            return
        self.promised += 1
        self.length += max(0, head.promised - head.at)
        self.total += max(0, head.started - head.promised)
        if is_late(head):
            self.late += 1
            self.causes[head.cause or FORECAST] += 1


def is_late(head: ReservedHead) -> bool:
    """Whether a head that has started missed its promise."""
    return head.promised is not None and head.started > head.promised + LATE


def lateness_of(heads: Iterable[ReservedHead]) -> Lateness:
    """The sums over heads that have started."""
    sums = Lateness()
    for head in heads:
        sums.count(head)
    return sums


class Promises:
    """The heads for which a start was planned: those that wait, and the latest that have started. There is one per engine, which
    keeps it when it is built anew.
    """

    def __init__(self) -> None:
        #: by workload key: the heads that wait
        self.open: dict[str, ReservedHead] = {}
        #: the sums by ClusterQueue, since the process began
        self.lateness: dict[str, Lateness] = {}
        #: the heads that started since then, the latest last
        self.starts: deque[ReservedHead] = deque(maxlen=_KEPT)
        #: the heads that started after a plan, also before this process began: the latest by key, and by ClusterQueue
        self._latest: dict[str, ReservedHead] = {}
        self._of_queue: dict[str, deque[ReservedHead]] = {}
        self._missable: dict[str, float] = {}

    # --- facts --------------------------------------------------------------------------------------------------------

    def put(self, head: ReservedHead) -> None:
        """Take in what an earlier process knew of a head. What this process knows better stays."""
        if head.key in self._latest:
            return
        if head.started:
            self._learn(head)
        else:
            self.open.setdefault(head.workload, head)

    def facts(self) -> Iterator[ReservedHead]:
        """What another process has to know."""
        yield from self._latest.values()
        yield from self.open.values()

    # --- a head -------------------------------------------------------------------------------------------------------

    def plan(self, gang: WorkloadState, queue: str, size: int, now: Millis, planned: Millis, mode: str = "") -> None:
        """A start is planned for a head, for which others are held back from now on: promise one, if that can be done. The first
        plan of a wait counts. `mode`: what its queue follows.
        """
        known = self.open.get(gang.key)
        if known is not None and known.uid == gang.uid:
            return
        self.open.pop(gang.key, None)
        factor = self._factor(queue, size, now)
        promised = None if factor is None else now + _stretched(planned - now, factor)
        self.open[gang.key] = ReservedHead(gang.key, queue, gang.uid, size, now, planned, 0, promised, mode=mode)
        if len(self.open) > _OPEN:
            self.open.pop(
                next((key for key, each in self.open.items() if each.promised is None), next(iter(self.open)))
            )

    def of(self, gang: WorkloadState) -> ReservedHead | None:
        """What was planned for a workload that waits, and promised to it."""
        head = self.open.get(gang.key)
        return head if head is not None and head.uid == gang.uid else None

    def promised(self, gang: WorkloadState) -> Millis | None:
        head = self.of(gang)
        return head.promised if head is not None else None

    def breaks(self, gang: WorkloadState, start: Millis) -> bool:
        """Whether this is the first plan of its start that lies beyond its promise."""
        head = self.of(gang)
        return head is not None and head.promised is not None and not head.cause and start > head.promised + LATE

    def blame(self, gang: WorkloadState, cause: str) -> None:
        """Note why the start of a head has moved beyond its promise."""
        self.open[gang.key] = replace(self.open[gang.key], cause=cause)

    def forget(self, key: str) -> None:
        """The workload is gone, or does not wait any more."""
        self.open.pop(key, None)

    def start(self, gang: WorkloadState, queue: str, now: Millis, cause: str) -> None:
        """A head holds its quota: what was promised to it is settled. `cause`: why it is late, if nothing else is known.

        What was said only as it started was no promise.
        """
        head = self.of(gang)
        if head is None or head.at >= now:
            head = ReservedHead(gang.key, queue, gang.uid, started=now)
        self.forget(gang.key)
        head = replace(head, started=now)
        head = replace(head, cause=(head.cause or cause) if is_late(head) else "")
        self.starts.append(head)
        self.lateness.setdefault(queue, Lateness()).count(head)
        if head.planned is not None:
            self._learn(head)

    def _learn(self, head: ReservedHead) -> None:
        queue = head.cluster_queue
        self._latest[head.key] = head
        if len(self._latest) > _KEPT:
            del self._latest[next(iter(self._latest))]
        if queue not in self._of_queue and len(self._of_queue) >= _KEPT:
            gone = next(iter(self._of_queue))
            del self._of_queue[gone]
            self._missable.pop(gone, None)
        self._of_queue.setdefault(queue, deque(maxlen=_OF_QUEUE)).append(head)
        if head.promised is not None:
            self._missable[queue] = _corrected(self._missable.get(queue, MISSED), is_late(head))

    # --- how far ------------------------------------------------------------------------------------------------------

    def _factor(self, queue: str, size: int, now: Millis) -> float | None:
        """The logarithm of the factor between the planned and the promised wait; None: nothing can be promised."""
        alike, others = list[ReservedHead](), list[ReservedHead]()
        for head in self._of_queue.get(queue, ()):
            (alike if head.size == size else others).append(head)
        in_other_queues = (head for head in reversed(self._latest.values()) if head.cluster_queue != queue)
        others += islice(in_other_queues, _OF_QUEUE)
        missable = self._missable.get(queue, MISSED)
        for head in self.open.values():
            if head.cluster_queue == queue:
                (alike if head.size == size else others).append(head)
                if head.promised is not None and now > head.promised + LATE:
                    missable = _corrected(missable, True)
        weight = min(1.0, _OTHERS / len(others)) if others else 1.0
        found = _least_factor(
            [
                *((_excess(head, now), _excess_by(head, now), 1.0) for head in alike),
                *((_excess(head, now), _excess_by(head, now), weight) for head in others),
            ],
            1 - missable,
        )
        return None if found is None or found > _MOST else max(0.0, found)


def _least_factor(heads: list[tuple[float, float, float]], level: float) -> float | None:
    """The least factor (as a logarithm, as all here) with which the `level` of these heads would have been in time, and one more
    that was late. A head: the factor that it needed, or needs so far; the one whose time is over just now, of which less is known
    with a larger one; its weight. None if there is no such factor, or too few heads to tell.
    """
    needed = sorted((need, weight) for need, _, weight in heads)
    known = sorted((until, weight) for _, until, weight in heads)
    late = list(accumulate((weight for _, weight in reversed(needed)), initial=0.0))[::-1]
    total = list(accumulate((weight for _, weight in reversed(known)), initial=0.0))[::-1]
    for number, (factor, _) in enumerate(needed):
        if number + 1 < len(needed) and needed[number + 1][0] == factor:
            continue
        over = bisect_right(known, (factor, math.inf))
        if len(known) - over < _FEW:
            return None
        counted = total[over]
        if counted - late[number + 1] >= level * (counted + 1):
            return factor
    return None


def _excess(head: ReservedHead, now: Millis) -> float:
    """The logarithm of the wait since the first plan, so far or until the start, as a part of the planned one."""
    return _excess_by(head, head.started or now)


def _excess_by(head: ReservedHead, at: Millis) -> float:
    planned = (head.planned or head.at) - head.at
    return math.log((max(0, at - head.at) + _UNSURE) / (max(0, planned) + _UNSURE))


def _stretched(planned: Millis, factor: float) -> Millis:
    return round((max(0, planned) + _UNSURE) * math.exp(factor)) - _UNSURE


def _corrected(missable: float, missed: bool) -> float:
    """The share that may be missed, after one more promise."""
    return min(_MOST_MISSED, max(_LEAST_MISSED, missable + _STEP * (MISSED - missed)))
