"""Enforces budgets of GPU-hours: the engine learns which waiting workloads would take from one that is used up.

What is used follows from the record of attempts: those that ended are read from the history when this process begins to lead or a
policy changes, and those in progress count as they run. Nothing is stopped for a budget.

Until the history was read, workloads under a budget that holds starts wait, for `PATIENCE` at most. A cluster must not stand
still because a database does not answer: after that only the use counts that this process knows.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import Final, Protocol

from gangline.api.read import conditions, policy_reader
from gangline.api.read.parse import ParseError
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kernel.context import Context
from gangline.control.parts.messages import AttemptNoted, FactObserved
from gangline.control.parts.part import Part
from gangline.control.writes.status.policy_status import BudgetReport
from gangline.engine import MOVED, hours_text, model, span_text
from gangline.engine.model import PastPreemption, PreemptionsUnknown, SpentBudget, accelerators_of
from gangline.forecast.errors import StoreError
from gangline.forecast.history.attempts import MOST_LABELS, JobAttempt, Labels
from gangline.forecast.history.budgets import (
    JOB_LABEL,
    NAMESPACE_LABEL,
    ROLLING,
    USER,
    Account,
    Budget,
    BudgetUse,
    Span,
    UsedSpan,
)
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored, WorkloadObject

log = logging.getLogger(__name__)

#: for so long workloads wait for the history, in milliseconds
PATIENCE: Final = 60_000
#: a history that does not answer is asked again after this, in seconds
RETRY: Final = 5.0
#: waiting workloads that learn in one round that a budget is used, or begins anew
AT_ONCE: Final = 1_000
#: the status says what is used as of so many milliseconds ago at most, while it changes
STATUS_EVERY: Final = 60_000
#: rows of a policy's status, and accounts of a policy in metrics
MOST_ROWS: Final = 256
#: a clock that goes back by less, in milliseconds, was not put back
_JITTER: Final = 1_000
#: what lies before the present periods is forgotten this often, in milliseconds
TIDY_EVERY: Final = 3_600_000
#: GPU-hours that are less than any GPU-second
_LITTLE: Final = 1e-6
_DAY: Final = 86_400.0

#: what the engine knows of a workload, after the clock was put back
_NOT_SURE: Final = ("", "", False, None)

#: shares of a budget at which something happens, and the words of the status for them
LEVELS: Final = ((0.8, "Used80"), (1.0, "Used100"))


class AttemptRecord(Protocol):
    """The record of attempts."""

    @property
    def is_known(self) -> bool:
        """Whether attempts in progress are known, those that an earlier leader has left included."""
        ...

    @property
    def lasts(self) -> bool:
        """Whether attempts that ended are remembered by the next process."""
        ...

    def in_progress(self) -> Mapping[str, JobAttempt]:
        """The attempts in progress, by key."""
        ...

    async def fold_ended(self, since: float, take: Callable[[UsedSpan], None]) -> None:
        """Hand over all attempts that ended at or after `since`, in a thread. Those in progress when this is called are left out.
        Raises StoreError.
        """
        ...

    async def preempted(self, since: float) -> list[JobAttempt]:
        """The attempts that were preempted at or after `since`, and those that are being stopped for others."""
        ...

    def keep_labels(self, keys: Sequence[str]) -> Collection[str]:
        """Keep labels with these keys, too, of attempts in progress and to come. Returns the keys of all that are kept."""
        ...


@dataclass(frozen=True, slots=True)
class AccountUse:
    """What an owner has used of a budget. `level`: how many of `LEVELS` are reached; `until`: when it begins anew, None for a
    rolling window.
    """

    budget: Budget
    owner: str
    used: float
    level: int
    until: float | None


class Budgets(Part):
    """Keeps the use of budgets, and tells the engine whose are used up."""

    name = "budgets"

    def __init__(self, context: Context, observe: Callable[[model.Change], None]) -> None:
        self.kinds = (kube.NAMESPACES, *JOB_KINDS)
        self._mirror = context.mirror
        self._recorder = context.recorder
        self._notices = context.notices
        self._now = context.now
        self._wake = context.wake
        self._observe = observe
        self._record: AttemptRecord | None = None
        self._use = BudgetUse((), {})
        self._policy_of: dict[str, str] = {}
        self._policy_names: set[str] = set()
        #: of namespaces, those that budgets name; some namespace may have other ones now
        self._labels: dict[str, dict[str, str]] = {}
        self._regrouped = False
        self._by_job = False  # some budget has owners that labels of jobs name
        self._not_kept: dict[str, list[Budget]] = {}  # by policy: budgets for which no labels are kept
        self._routes: dict[str, str] = {}  # LocalQueue -> ClusterQueue
        self._limited = False  # some queue has limits of preemption, or its workloads may be moved
        #: the history was read for the present budgets; since when it was not, in milliseconds
        self._is_read = True
        self._asked_at = 0
        self._is_waited_for = False
        #: for each budget, since when all use is known
        self._kept_from: list[float] = []
        self._tidy_at = 0
        self._to_read = asyncio.Event()
        self._past_preemptions_known = False
        self._asked_preemptions_at = 0
        #: attempts that were noted while the history was read
        self._meanwhile: list[tuple[JobAttempt, float]] | None = None
        self._levels: dict[Account, int] = {}
        self._dirty: dict[Account, None] = {}
        self._checks: list[tuple[float, Account]] = []
        self._check_at: dict[Account, float] = {}
        #: waiting workloads by account, and the other way round
        self._waiters: dict[Account, dict[str, None]] = {}
        self._accounts_of: dict[str, tuple[Account, ...]] = {}
        self._engine_has: dict[str, tuple[str, str, bool, int | None]] = {}
        self._pending: dict[str, None] = {}
        #: (policy, budget, owner, level) -> when it was announced last
        self._announced: dict[tuple[str, str, str, int], float] = {}
        self._last = 0
        #: called when statuses of policies may have changed
        self.moved: Callable[[], None] = lambda: None
        self._status_at = 0
        self._changed = context.mirror.changes.workloads.subscribe(worth=context.mirror.has(kube.WORKLOADS))
        self._changed_policies = context.mirror.changes.policies.subscribe(worth=self._is_queue_or_policy)
        context.messages.subscribe(AttemptNoted, self._noted)
        context.messages.subscribe(FactObserved, self._fact)

    def _is_queue_or_policy(self, key: str) -> bool:
        return any(key in self._mirror.objects[kind] for kind in (kube.CLUSTER_QUEUES, kube.QUEUE_POLICIES))

    def read_from(self, record: AttemptRecord) -> None:
        """Set the record of attempts."""
        self._record = record

    # --- what happens -------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        self._changed_policies.take()
        self._changed.take()
        for policy in self._mirror.objects[kube.QUEUE_POLICIES].values():
            self._recall(policy.key, policy.status)
        self._configure()

    def _recall(self, policy: str, status: Json) -> None:
        """What an earlier leader has announced is not announced again."""
        words = {word: level for level, (_, word) in enumerate(LEVELS, 1)}
        for row in status.get("budgets") or ():
            level = words.get(row.get("state", ""), 0)
            try:
                since = conditions.millis_of(row.get("since", "")) / 1000
            except (AttributeError, TypeError, ValueError):
                continue
            rolling = row.get("until") is None
            for reached in range(1, level + 1):
                key = policy, row.get("name", ""), row.get("owner", ""), reached
                self._announced[key] = self._now() / 1000 if rolling else since

    def observe(self, resource: Resource, event: Event) -> None:
        """A namespace, or a job that waits, may belong to another owner once it has another label."""
        if resource == kube.NAMESPACES:
            self._regrouped = self._regrouped or bool(self._keys_of(NAMESPACE_LABEL))
        elif self._by_job and isinstance(event, Upsert):
            waiting = (each.key for each in self._mirror.workloads_of_uid(event.obj["metadata"]["uid"]))
            self._pending.update(dict.fromkeys(key for key in waiting if key in self._accounts_of))

    def _noted(self, message: AttemptNoted) -> None:
        if self._meanwhile is not None:
            self._meanwhile.append((message.attempt, message.counted))
        for account in self._use.note(message.attempt, self._now() / 1000, message.counted):
            self._dirty[account] = None

    def _fact(self, message: FactObserved) -> None:
        """A LocalQueue that leads to another ClusterQueue concerns all its workloads."""
        match message.change:
            case model.Put(model.LocalQueue() as queue):
                if self._routes.get(queue.key) == queue.cluster_queue:
                    return
                self._routes[queue.key] = queue.cluster_queue
                mine = (key for key in self._mirror.workloads if key.startswith(f"{queue.namespace}/"))
                self._pending.update(dict.fromkeys(mine) if self._use.budgets else {})
            case model.Gone(kind, key) if kind is model.LocalQueue:
                self._routes.pop(key, None)
            case _:
                pass

    # --- rounds -------------------------------------------------------------------------------------------------------

    def act(self, now: int) -> None:
        if (changed := self._changed_policies.take()) or self._regrouped:
            self._configure(changed)
        if not self._use.budgets and not self._engine_has:
            self._changed.take()
            self.due = None
            return
        at = now / 1000
        if now < self._last - _JITTER:
            self._put_back(at)
        self._last = now
        if now >= self._tidy_at:
            self._tidy(now)
        if self._is_waited_for and (self._is_read or now >= self._asked_at + PATIENCE):
            self._is_waited_for = False
            self._pending.update(dict.fromkeys(self._accounts_of))
        self._judge_due(at)
        fresh = sorted(self._changed.take())
        for key in fresh:
            self._pending.pop(key, None)
            self._look(key, now)
        for key in list(self._pending)[:AT_ONCE]:
            del self._pending[key]
            self._look(key, now)
        self._plan_next(now)

    def _put_back(self, at: float) -> None:
        """The clock was put back: an earlier period may be the present one again."""
        if any(begin < kept for (begin, _), kept in zip(self._use.spans(at), self._kept_from, strict=True)):
            self._read_again()
        self._engine_has = dict.fromkeys(self._engine_has, _NOT_SURE)
        self._dirty.update(dict.fromkeys(self._use.accounts()))
        self._pending.update(dict.fromkeys(self._mirror.workloads))

    def _tidy(self, now: int) -> None:
        """Forget what lies before the present periods."""
        self._tidy_at, at = now + TIDY_EVERY, now / 1000
        self._use.forget(at)
        self._kept_from = [begin for begin, _ in self._use.spans(at)]
        oldest = min(self._kept_from, default=at)
        self._announced = {key: when for key, when in self._announced.items() if when >= oldest}
        self._waiters = {account: keys for account, keys in self._waiters.items() if keys}

    def _plan_next(self, now: int) -> None:
        times = [math.ceil(self._checks[0][0] * 1000)] if self._checks else []
        if self._pending:
            times.append(now)
        if self._is_waited_for:
            times.append(self._asked_at + PATIENCE)
        if any(level for level in self._levels.values()):
            if not self._status_at <= now < self._status_at + STATUS_EVERY:
                self._status_at = now
                self.moved()
            times.append(self._status_at + STATUS_EVERY)
        self.due = min(times, default=None)

    # --- configuration ------------------------------------------------------------------------------------------------

    def _configure(self, changed: Collection[str] | None = None) -> None:
        """Read the budgets of the policies, and for which ClusterQueues each is in force. `changed`: the ClusterQueues and
        policies that have changed; None: look at all.
        """
        queues, policies = self._mirror.objects[kube.CLUSTER_QUEUES], self._mirror.objects[kube.QUEUE_POLICIES]
        policy_of = dict(self._policy_of)
        if changed is None or not self._policy_names.isdisjoint(changed) or not policies.keys().isdisjoint(changed):
            changed, policy_of, self._policy_names = queues.keys(), {}, set(policies)
        for name in changed:
            policy_of.pop(name, None)
            if name in queues and (policy := self._policy_in_force(queues[name])) is not None:
                policy_of[name] = policy
        budgets: list[Budget] = []
        for _, obj in sorted(policies.items()):
            try:
                budgets += policy_reader.budgets(obj)
            except (ParseError, ValueError):  # the policy is in force nowhere, and its status says why
                continue
        self._regrouped = False
        budgets = self._with_labels(budgets)
        keys = set(_label_keys(budgets, NAMESPACE_LABEL))
        spaces = self._mirror.objects[kube.NAMESPACES].values() if keys else ()
        labels = {space.name: {key: space.labels[key] for key in keys & space.labels.keys()} for space in spaces}
        self._limited = any(self._has_limits(name) for name in set(policy_of.values()))
        if self._limited and not self._past_preemptions_known and not self._asked_preemptions_at:
            self._asked_preemptions_at = self._now()
            self._observe(model.Put(PreemptionsUnknown(self._now() + PATIENCE)))
        if not budgets and not self._use.budgets:
            self._policy_of = policy_of
            if self._limited and not self._past_preemptions_known:
                self._to_read.set()
        elif (tuple(budgets), policy_of, labels) != (self._use.budgets, self._policy_of, self._labels):
            self._policy_of, self._labels = policy_of, labels
            self._use = BudgetUse(budgets, policy_of, labels)
            self._by_job = any(budget.per in (JOB_LABEL, USER) for budget in budgets)
            self._read_again()
        elif self._limited and not self._past_preemptions_known:
            self._to_read.set()

    def _keys_of(self, per: str) -> list[str]:
        """The keys of the labels that budgets of a kind name."""
        return _label_keys(self._use.budgets, per)

    def job_label_keys(self) -> Sequence[str]:
        """The keys of the labels of jobs that budgets name."""
        return self._keys_of(JOB_LABEL)

    def _with_labels(self, budgets: list[Budget]) -> list[Budget]:
        """Those of the budgets for which the record keeps the labels of jobs that they name."""
        wanted = _label_keys(budgets, JOB_LABEL)
        kept = self._record.keep_labels(wanted) if self._record is not None else ()
        self._not_kept = {}
        for budget in budgets:
            if budget.per == JOB_LABEL and budget.label not in kept:
                self._not_kept.setdefault(budget.policy, []).append(budget)
        return [each for each in budgets if each not in self._not_kept.get(each.policy, ())]

    def _policy_in_force(self, queue: Stored) -> str | None:
        try:
            policy = self._mirror.policy_of(queue)
        except ParseError:
            return None
        return policy.key if policy is not None else None

    def _has_limits(self, policy: str) -> bool:
        try:
            found = self._mirror.get(kube.QUEUE_POLICIES, policy)
            return policy_reader.preemption_limits(found) is not None or policy_reader.moves(found) is not None
        except (ParseError, ValueError):
            return False

    def _read_again(self) -> None:
        """Count anew: what runs at once, and what has ended as soon as the history answers."""
        now = self._now() / 1000
        self._use = BudgetUse(self._use.budgets, self._policy_of, self._labels)
        if self._record is not None:
            for attempt in self._record.in_progress().values():
                self._use.note(attempt, now)
        self._is_read, self._asked_at = not self._use.budgets, self._now()
        self._is_waited_for = not self._is_read
        self._kept_from = [begin for begin, _ in self._use.spans(now)]
        self._begin_with_use()
        self._to_read.set()

    def _begin_with_use(self) -> None:
        """Judge all accounts, and all waiting workloads, by the use that is known now."""
        self._levels.clear()
        self._checks.clear()
        self._check_at.clear()
        self._waiters.clear()
        self._accounts_of.clear()
        self._dirty = dict.fromkeys(self._use.accounts())
        # their number is not bounded: nobody starts by a budget that was not looked at
        self._changed.update(self._mirror.workloads)
        self._wake()
        self.moved()

    # --- the history --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read the history whenever that is needed, until cancelled."""
        warned = False
        while True:
            await self._to_read.wait()
            self._to_read.clear()
            try:
                done = await self._read()
            except StoreError as error:
                if not warned:
                    log.warning("what was used of budgets is not known yet: %s", error)
                warned, done = True, False
            except Exception:
                log.exception("what was used of budgets could not be read")
                done = False
            else:
                warned = warned and not done
            if not done:
                await asyncio.sleep(RETRY if self._record is not None and self._record.is_known else RETRY / 10)
                self._to_read.set()

    async def _read(self) -> bool:
        """Read what has ended. Returns False if it has to be tried again."""
        record = self._record
        if record is None or not record.is_known:
            return False
        if self._limited and not self._past_preemptions_known:
            await self._read_preemptions(record)
        if self._is_read or not self._use.budgets:
            return True
        old, now = self._use, self._now() / 1000
        use, running = BudgetUse(old.budgets, self._policy_of, self._labels), dict(record.in_progress())
        self._meanwhile = []
        try:
            await record.fold_ended(use.since(now), lambda span: use.add_past(span, now))
            if self._use is not old:  # the policies have changed: it is to be read again
                return True
            for attempt in running.values():
                use.note(attempt, now)
            for attempt, counted in self._meanwhile:
                use.note(attempt, now, counted)
        finally:
            self._meanwhile = None
        self._use, self._is_read = use, True
        self._kept_from = [begin for begin, _ in use.spans(now)]
        self._begin_with_use()
        return True

    async def _read_preemptions(self, record: AttemptRecord) -> None:
        """Tell the engine what was preempted before. What it has preempted itself, once that took too long, it has counted."""
        late = self._now() >= self._asked_preemptions_at + PATIENCE
        asked = self._asked_preemptions_at / 1000
        for each in await record.preempted(asked - _DAY):
            at = each.ended if each.ended is not None else self._now() / 1000
            if late and at > asked:
                continue
            stages = each.stages(at)
            lost = stages.ended - stages.losing
            key = f"{each.namespace}/{each.workload}"
            moved = each.reason == MOVED
            lost += self._restart_of(each.cluster_queue) if moved else 0.0
            past = PastPreemption(
                key, round(at * 1000), each.cluster_queue, each.by_queue, round(each.gpus * lost * 1000), moved
            )
            self._observe(model.Put(past))
        self._past_preemptions_known = True
        self._observe(model.Gone(PreemptionsUnknown, PreemptionsUnknown.name))
        self._wake()

    def _restart_of(self, queue: str) -> float:
        """The seconds that a move costs a workload of a ClusterQueue besides its work."""
        try:
            moves = policy_reader.moves(self._mirror.get(kube.QUEUE_POLICIES, self._policy_of.get(queue, "")))
        except (ParseError, ValueError):
            return 0.0
        return moves.restart_seconds if moves is not None else 0.0

    # --- accounts -----------------------------------------------------------------------------------------------------

    def _judge_due(self, at: float) -> None:
        dirty, self._dirty = self._dirty, {}
        for account in dirty:
            self._judge(account, at)
        while self._checks and self._checks[0][0] <= at:
            when, account = heappop(self._checks)
            if self._check_at.get(account) == when:
                self._judge(account, at)

    def _judge(self, account: Account, at: float) -> int:
        """The level that an account has reached, with all that follows from a change of it."""
        budget = self._use.budgets[account[0]]
        used, before = self._use.used(account, at), self._levels.get(account, 0)
        level = _level(budget, used)
        if not level and not before and not self._use.gpus(account):
            self._levels.pop(account, None)
        else:
            self._levels[account] = level
        self._check_again(account, budget, level, at)
        if level != before:
            self._pending.update(self._waiters.get(account, {}))
            self.moved()
        if level > before:
            self._announce(budget, account[1], level, used, at)
        return level

    def _check_again(self, account: Account, budget: Budget, level: int, at: float) -> None:
        """Note when the account has to be judged next."""
        times = [] if level == len(LEVELS) else [self._use.reaches(account, LEVELS[level][0], at)]
        if level:
            step = budget.period.step
            times.append(budget.period.end(at) if budget.period.kind != ROLLING else (math.floor(at / step) + 1) * step)
        when = min((time for time in times if time is not None), default=None)
        if when is None:
            self._check_at.pop(account, None)
            return
        when = max(when, at + 0.001)
        self._check_at[account] = when
        heappush(self._checks, (when, account))
        if len(self._checks) > 2 * len(self._check_at) + 64:
            self._checks = sorted((time, each) for each, time in self._check_at.items())

    def _announce(self, budget: Budget, owner: str, level: int, used: float, at: float) -> None:
        """Say that a level is reached, once in a period; of a rolling window at most ten times in its length."""
        period, policy = budget.period, self._mirror.get(kube.QUEUE_POLICIES, budget.policy)
        since = at - period.length / 10 if period.kind == ROLLING else period.begin(at)
        for reached in range(level, 0, -1):
            key = budget.policy, budget.name, owner, reached
            if self._announced.get(key, -math.inf) >= since:
                return
            self._announced[key] = at
            wanted = budget.at100 if reached == len(LEVELS) else budget.at80
            if reached == level and policy is not None and wanted != "None":
                text = self._sentence(budget, owner, used, at, reached)
                self._recorder.record(policy, "Warning", "BudgetUsed", text)
                self._notices.about_policy("BudgetUsed", policy, f"Budget {budget.name} of {budget.whose(owner)}", text)

    def _sentence(self, budget: Budget, owner: str, used: float, at: float, level: int) -> str:
        how = "is used" if level == len(LEVELS) else "is used to 80 %"
        amount = f"{hours_text(used)} of {hours_text(budget.hours)} GPU-hours {_in_period(budget)}"
        return f"the budget '{budget.name}' of {budget.whose(owner)} {how}: {amount}; {_anew(budget, at)}"

    # --- workloads ----------------------------------------------------------------------------------------------------

    def _look(self, key: str, now: int) -> None:
        """Tell the engine what the budgets say about a workload, if that is new."""
        raw, value = self._mirror.workloads.get(key), self._mirror.workload_value(key)
        waits = raw is not None and value is not None and value.admission is None and not value.finished
        takes = value is not None and bool(accelerators_of(value.pod_sets))  # others take nothing from a budget
        accounts = self._concerned(raw) if raw is not None and waits and takes else ()
        if (before := self._accounts_of.get(key, ())) != accounts:
            for account in before:
                self._waiters.get(account, {}).pop(key, None)
            for account in accounts:
                self._waiters.setdefault(account, {})[key] = None
            if accounts:
                self._accounts_of[key] = accounts
            else:
                self._accounts_of.pop(key, None)
        found = self._verdict(key, accounts, now)
        if found is None:
            if self._engine_has.pop(key, None) is not None:
                self._observe(model.Gone(SpentBudget, key))
            return
        about, spent = found
        # what is used grows meanwhile: that alone is no news
        news = (*about, spent.holds, spent.until)
        if self._engine_has.get(key) != news:
            self._engine_has[key] = news
            self._observe(model.Put(spent))

    def _concerned(self, raw: WorkloadObject) -> tuple[Account, ...]:
        local = self._mirror.local_queues.get(f"{raw.namespace}/{raw.queue_name}")
        cluster_queue = local.cluster_queue if local is not None else ""
        labels = self._mirror.labels_of(raw, keys) if (keys := self.job_label_keys()) else ()
        return self._use.concerned(cluster_queue, raw.namespace, raw.queue_name, self._mirror.user_of(raw), labels)

    def _verdict(self, key: str, accounts: Iterable[Account], now: int) -> tuple[tuple[str, str], SpentBudget] | None:
        """The budget that decides about a waiting workload, and what the engine learns; None: it starts as usual."""
        lowered: tuple[tuple[str, str], SpentBudget] | None = None
        for account in accounts:
            budget, owner = self._use.budgets[account[0]], account[1]
            if budget.at100 == "Notify":
                continue
            holds = budget.at100 == "HoldStarts"
            if holds and self._is_waited_for:
                text = f"it is not known yet what is used of the budget '{budget.name}' of {budget.whose(owner)}"
                return ("", budget.name), SpentBudget(key, f"{text}: the history is being read")
            level = self._levels[account] if account in self._levels else self._judge(account, now / 1000)
            if level < len(LEVELS):
                continue
            used, end = self._use.used(account, now / 1000), budget.period.end(now / 1000)
            text = self._sentence(budget, owner, used, now / 1000, level)
            spent = SpentBudget(key, text, holds, None if end is None else math.ceil(end * 1000))
            if holds:
                return (budget.name, owner), spent
            lowered = lowered or ((budget.name, owner), spent)
        return lowered

    # --- out ----------------------------------------------------------------------------------------------------------

    def uses(self, policy: str = "") -> Iterator[AccountUse]:
        """What is used of the budgets of a policy ("" = of all), by everybody who has used some."""
        at = self._now() / 1000
        spans = self._use.spans(at)
        for account in self._use.accounts():
            if policy in ("", self._use.budgets[account[0]].policy):
                yield self._seen(account, at, spans[account[0]])

    def of(
        self, cluster_queue: str, namespace: str, local_queue: str, user: str, labels: Labels = ()
    ) -> list[AccountUse]:
        """What is used of the budgets from which such a job would take."""
        at = self._now() / 1000
        accounts = self._use.concerned(cluster_queue, namespace, local_queue, user, labels)
        return [self._seen(account, at) for account in accounts]

    def _seen(self, account: Account, at: float, span: Span | None = None) -> AccountUse:
        budget = self._use.budgets[account[0]]
        span = span or self._use.span(account[0], at)
        used = self._use.used(account, at, span)
        return AccountUse(budget, account[1], used, _level(budget, used), span[1])

    def shares(self) -> dict[tuple[str, ...], float]:
        """Policy, budget and owner -> the share that is used; of each policy those that have used most."""
        by_policy: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
        for each in self.uses():
            budget = each.budget
            share = each.used / budget.hours if budget.hours else 1.0
            by_policy.setdefault(budget.policy, []).append((share, (budget.policy, budget.name, each.owner)))
        return {
            labels: share
            for found in by_policy.values()
            for share, labels in sorted(found, key=lambda entry: (-entry[0], entry[1]))[:MOST_ROWS]
        }

    def report(self, policy: str) -> BudgetReport | None:
        """What the status of a policy says about its budgets; None for one without budgets."""
        not_kept = self._not_kept.get(policy, ())
        if not not_kept and not any(budget.policy == policy for budget in self._use.budgets):
            return None
        at = self._now() / 1000
        found = sorted((each for each in self.uses(policy) if each.level), key=_most_first)
        rows = [_row(each, at) for each in found[:MOST_ROWS]]
        if not_kept:
            named = ", ".join(f"{budget.name} ({budget.label})" for budget in not_kept)
            text = f"Labels with at most {MOST_LABELS} keys are kept of jobs; not in force are budgets by other labels: {named}"
            return BudgetReport(rows, False, "LabelsNotKept", text)
        if self._record is not None and self._is_read and not self._record.lasts:
            return BudgetReport(
                rows, False, "NoHistory", "No history is kept: only what this operator has seen since its start counts"
            )
        if not self._is_read:
            return BudgetReport(
                rows, False, "HistoryUnknown", "The history has not been read yet: what runs now counts"
            )
        return BudgetReport(rows, True, "HistoryRead", "All use of the present periods counts")


def _level(budget: Budget, used: float) -> int:
    """How many of `LEVELS` are reached."""
    return sum(used + _LITTLE >= budget.hours * share for share, _ in LEVELS)


def _label_keys(budgets: Iterable[Budget], per: str) -> list[str]:
    """The keys of the labels that budgets of a kind name, each once."""
    return list(dict.fromkeys(budget.label for budget in budgets if budget.per == per))


def _in_period(budget: Budget) -> str:
    if budget.period.kind == ROLLING:
        return f"in the last {span_text(round(budget.period.length * 1000))}"
    return {"Day": "today"}.get(budget.period.kind, f"this {budget.period.kind.lower()}")


def _anew(budget: Budget, at: float) -> str:
    end = budget.period.end(at)
    if end is None:
        return "it becomes free as what was used leaves this time"
    return f"it begins anew on {datetime.fromtimestamp(end, budget.period.zone).date().isoformat()}"


def _most_first(use: AccountUse) -> tuple[float, str, str]:
    share = use.used / use.budget.hours if use.budget.hours else math.inf
    return -share, use.budget.name, use.owner


def _row(use: AccountUse, at: float) -> Json:
    period = use.budget.period
    row: Json = {
        "name": use.budget.name,
        "owner": use.owner,
        "usedGpuHours": f"{use.used:.3f}".rstrip("0").rstrip("."),
        "state": LEVELS[use.level - 1][1],
        "since": conditions.timestamp(round(period.begin(at) * 1000)),
    }
    return row if use.until is None else row | {"until": conditions.timestamp(round(use.until * 1000))}
