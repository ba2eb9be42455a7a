"""Budgets of GPU-hours: the periods that they are for, and what is used of them. Pure.

The use of a budget is the sum of attempts: what each took of the present period, with the GPUs that it held, from its reservation
to its end, or up to now while it is in progress. So it follows from the record of attempts alone, and nothing counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, TypeAlias

from gangline.forecast.history.attempts import JobAttempt, Labels, value_of

# for whom a budget is: for each …
CLUSTER_QUEUE: Final = "ClusterQueue"
LOCAL_QUEUE: Final = "LocalQueue"
NAMESPACE: Final = "Namespace"
NAMESPACE_LABEL: Final = "NamespaceLabel"
JOB_LABEL: Final = "JobLabel"
USER: Final = "User"
#: those for whose owners a label is read
BY_LABEL: Final = (NAMESPACE_LABEL, JOB_LABEL)

# periods beside Day, Week, Month, Quarter and Year
ROLLING: Final = "Rolling"

#: the shortest and the longest rolling window, in seconds
SHORTEST_WINDOW: Final = 60
LONGEST_WINDOW: Final = 366 * 86_400
#: a rolling window moves in steps of this part of its length, at least of a second
STEPS: Final = 240
#: owners of one budget that jobs of one namespace may name first; what further ones use is one account of that namespace
MOST_OWNERS: Final = 500

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
#: months of a period that begins with the first day of a month
_MONTHS: Final = {"Month": 1, "Quarter": 3, "Year": 12}


@dataclass(frozen=True, slots=True)
class Period:
    """The time for which a budget is: a calendar period where `zone` is, or a rolling window of so many seconds.

    A day may have 23 or 25 hours. A rolling window begins at a multiple of its step: it is up to a step longer than its length.
    """

    kind: str = "Month"
    zone: tzinfo = UTC
    length: float = 0.0

    def begin(self, now: float) -> float:
        """When the present period began."""
        if self.kind == ROLLING:
            return math.floor((now - self.length) / self.step) * self.step
        return min(now, self._midnight(self._first_day(now)))

    def end(self, now: float) -> float | None:
        """When the present period ends; None for a rolling window."""
        if self.kind == ROLLING:
            return None
        return self._midnight(self._day_after(self._first_day(now)))

    @property
    def step(self) -> float:
        return float(max(1, math.ceil(self.length / STEPS)))

    def cells(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        """The time from `start` to `end` in cells, each with its beginning and how many seconds of it. A cell belongs to a period
        as a whole: a calendar period is one cell, a rolling window has one for each step.
        """
        while start < end:
            if self.kind == ROLLING:
                first = math.floor(start / self.step) * self.step
                last = first + self.step
            else:
                first, last = self.begin(start), self._midnight(self._day_after(self._first_day(start)))
            last = max(last, math.nextafter(start, math.inf))
            yield first, min(end, last) - start
            start = last

    def _first_day(self, now: float) -> date:
        day = datetime.fromtimestamp(now, self.zone).date()
        if self.kind == "Week":
            return day - timedelta(days=day.weekday())
        if (months := _MONTHS.get(self.kind)) is not None:
            return day.replace(month=(day.month - 1) // months * months + 1, day=1)
        return day

    def _day_after(self, first: date) -> date:
        """The first day of the next period."""
        if self.kind in _MONTHS:
            month = first.month - 1 + _MONTHS[self.kind]
            return first.replace(year=first.year + month // 12, month=month % 12 + 1)
        return first + timedelta(days=7 if self.kind == "Week" else 1)

    def _midnight(self, day: date) -> float:
        return datetime.combine(day, time.min, self.zone).timestamp()


@dataclass(frozen=True, slots=True)
class Budget:
    """So many GPU-hours in each period for each owner: for all ClusterQueues for which its QueuePolicy is in force, together."""

    policy: str
    name: str
    per: str = CLUSTER_QUEUE
    hours: float = 0.0
    period: Period = Period()
    only: frozenset[str] | None = None  #: the owners for whom it is; None = for each
    at80: str = "Notify"  # None | Notify
    at100: str = "Notify"  # Notify | LowerOrder | HoldStarts
    label: str = ""  #: the key of the label, for those of BY_LABEL

    def owner(
        self,
        cluster_queue: str,
        namespace: str,
        local_queue: str,
        user: str,
        job_labels: Labels,
        namespace_labels: Mapping[str, str],
    ) -> str | None:
        """The owner who uses it with a job of this queue and user; None: it is not for them. What has no user, or not the label,
        has one owner.
        """
        match self.per:
            case "LocalQueue":
                found = f"{namespace}/{local_queue}"
            case "Namespace":
                found = namespace
            case "NamespaceLabel":
                found = namespace_labels.get(self.label, "")
            case "JobLabel":
                found = value_of(job_labels, self.label)
            case "User":
                found = user
            case _:
                found = cluster_queue
        return found if self.only is None or found in self.only else None

    def whose(self, owner: str) -> str:
        """The owner in words."""
        if self.per in BY_LABEL:
            what = "jobs" if self.per == JOB_LABEL else "namespaces"
            return f"{what} with {self.label}={owner}" if owner else f"{what} without the label {self.label}"
        if not owner:
            return "jobs without a user"
        kind = {USER: "user", NAMESPACE: "namespace"}.get(self.per, self.per)
        return f"{kind} {owner}"


#: a budget by its place among all budgets, and the owner
Account: TypeAlias = tuple[int, str]
#: when a period begins and ends; None = it is a rolling window
Span: TypeAlias = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class UsedSpan:
    """What an attempt that has ended took: GPUs from `start` to `end`."""

    cluster_queue: str
    namespace: str
    local_queue: str
    user: str
    gpus: int
    start: float
    end: float
    labels: Labels = ()

    @classmethod
    def of(cls, attempt: JobAttempt) -> UsedSpan:
        """The span of an attempt that has ended."""
        queues = attempt.cluster_queue, attempt.namespace, attempt.local_queue, attempt.user
        return cls(*queues, attempt.gpus, attempt.reserved, attempt.ended or attempt.reserved, attempt.labels)


@dataclass(slots=True)
class _Account:
    """What one owner uses. `cells`: GPU-seconds of attempts that have ended, by the beginning of the cell. `running`: attempts in
    progress by key, each with its beginning and GPUs. `namespace`: whose job named the owner first.
    """

    namespace: str
    cells: dict[float, float] = field(default_factory=dict[float, float])
    running: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])


_NO_LABELS: Final[Mapping[str, Mapping[str, str]]] = {}


class BudgetUse:
    """The use of budgets by their owners."""

    def __init__(
        self,
        budgets: Sequence[Budget],
        policy_of: Mapping[str, str],
        labels: Mapping[str, Mapping[str, str]] = _NO_LABELS,
    ) -> None:
        """`policy_of`: the QueuePolicy in force for each ClusterQueue that has one. `labels`: of namespaces, those that budgets
        name.
        """
        self._labels = labels
        self.budgets = tuple(budgets)
        self._policy_of = dict(policy_of)
        self._of_policy: dict[str, list[int]] = {}
        for place, budget in enumerate(self.budgets):
            self._of_policy.setdefault(budget.policy, []).append(place)
        self._accounts: list[dict[str, _Account]] = [{} for _ in self.budgets]
        #: how many owners jobs of a namespace have named first
        self._named: list[dict[str, int]] = [{} for _ in self.budgets]
        #: attempts in progress, by key: their accounts
        self._running: dict[str, tuple[Account, ...]] = {}

    # --- in -----------------------------------------------------------------------------------------------------------

    def concerned(
        self, cluster_queue: str, namespace: str, local_queue: str, user: str, labels: Labels = ()
    ) -> tuple[Account, ...]:
        """The accounts from which a job of this queue and user, and with these labels, takes."""
        found: list[Account] = []
        of_namespace = self._labels.get(namespace, {})
        for place in self._of_policy.get(self._policy_of.get(cluster_queue, ""), ()):
            owner = self.budgets[place].owner(cluster_queue, namespace, local_queue, user, labels, of_namespace)
            if owner is not None:
                known = owner in self._accounts[place] or self._named[place].get(namespace, 0) < MOST_OWNERS
                found.append((place, owner if known else f"(others of {namespace})"))
        return tuple(found)

    def note(self, attempt: JobAttempt, now: float, counted: float = 0.0) -> tuple[Account, ...]:
        """Count an attempt that begins, changes or ends, in place of what was known of it. `counted`: up to when it counts among
        those that have ended, since it goes on after an end that was recorded. Returns its accounts.
        """
        before = self._running.pop(attempt.key, ())
        start = max(attempt.reserved, counted)
        for place, owner in before:
            start = self._accounts[place][owner].running.pop(attempt.key, (start, 0))[0]
        queues = attempt.cluster_queue, attempt.namespace, attempt.local_queue
        accounts = self.concerned(*queues, attempt.user, attempt.labels)
        if attempt.ended is not None:
            # one whose beginning was not noted counts among those that had ended already
            for each in before:
                self._add(each, start, attempt.ended, attempt.gpus, attempt.namespace, now)
            return before
        for each in accounts:
            self._of(each, attempt.namespace).running[attempt.key] = (start, attempt.gpus)
        self._running[attempt.key] = accounts
        return tuple(dict.fromkeys((*before, *accounts)))

    def add_past(self, span: UsedSpan, now: float) -> None:
        """Count an attempt that has ended."""
        for account in self.concerned(span.cluster_queue, span.namespace, span.local_queue, span.user, span.labels):
            self._add(account, span.start, span.end, span.gpus, span.namespace, now)

    def _add(self, account: Account, start: float, end: float, gpus: int, namespace: str, now: float) -> None:
        period, cells = self.budgets[account[0]].period, self._of(account, namespace).cells
        # what lies before the present period does not count any more; an end after now is from before the clock was put back
        for cell, seconds in period.cells(max(start, period.begin(now)), min(end, now + max(period.length, _DAY))):
            cells[cell] = cells.get(cell, 0.0) + gpus * seconds

    def _of(self, account: Account, namespace: str) -> _Account:
        place, owner = account
        found = self._accounts[place].get(owner)
        if found is None:
            found = self._accounts[place][owner] = _Account(namespace)
            self._named[place][namespace] = self._named[place].get(namespace, 0) + 1
        return found

    def forget(self, now: float) -> None:
        """Drop what lies before the present periods, and accounts that are empty."""
        for budget, accounts, named in zip(self.budgets, self._accounts, self._named, strict=True):
            begin = budget.period.begin(now)
            for owner, account in list(accounts.items()):
                account.cells = {cell: seconds for cell, seconds in account.cells.items() if cell >= begin}
                if not account.cells and not account.running:
                    del accounts[owner]
                    named[account.namespace] -= 1
                    if not named[account.namespace]:
                        del named[account.namespace]

    # --- out ----------------------------------------------------------------------------------------------------------

    def since(self, now: float) -> float:
        """The beginning of the longest present period: attempts that ended before do not count."""
        return min((budget.period.begin(now) for budget in self.budgets), default=now)

    def accounts(self) -> list[Account]:
        """All accounts that something was counted for."""
        return [(place, owner) for place, accounts in enumerate(self._accounts) for owner in accounts]

    def span(self, place: int, now: float) -> Span:
        """The present period of a budget."""
        period = self.budgets[place].period
        return period.begin(now), period.end(now)

    def spans(self, now: float) -> list[Span]:
        """The present period of each budget."""
        return [self.span(place, now) for place in range(len(self.budgets))]

    def used(self, account: Account, now: float, span: Span | None = None) -> float:
        """The GPU-hours that are used of a budget in the present period, which is `span`."""
        place, owner = account
        found = self._accounts[place].get(owner)
        if found is None:
            return 0.0
        begin, end = span or self.span(place, now)
        past = sum(seconds for cell, seconds in found.cells.items() if begin <= cell and (end is None or cell < end))
        running = sum(gpus * max(0.0, now - max(begin, start)) for start, gpus in found.running.values())
        return (past + running) / _HOUR

    def gpus(self, account: Account) -> int:
        """The GPUs that take from the budget at present."""
        found = self._accounts[account[0]].get(account[1])
        return sum(gpus for _, gpus in found.running.values()) if found is not None else 0

    def reaches(self, account: Account, share: float, now: float) -> float | None:
        """When such a share of the budget will be used, if what runs goes on and nothing else starts; None: not by that."""
        gpus, left = self.gpus(account), self.budgets[account[0]].hours * share - self.used(account, now)
        return now + max(0.0, left) * _HOUR / gpus if gpus else None
