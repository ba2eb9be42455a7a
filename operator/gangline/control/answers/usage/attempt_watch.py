"""Watches Workloads for attempts: stretches in which a job holds quota. Each is written when it begins, changes and ends.

Only the leader writes. What an earlier leader has left in progress it takes over: attempts that go on are continued, the others
are closed as the conditions of their Workloads say. While the database does not answer, attempts are kept in memory; what it has
is taken over once it does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from gangline.control.answers.usage import attempt_reading as reading
from gangline.control.answers.usage.attempt_reading import AttemptEnd, Preemptor
from gangline.control.answers.usage.happenings import view_of_workload
from gangline.control.answers.workloads.snapshot import owner_of
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex
from gangline.control.parts.messages import AttemptNoted, GpusMeasured, Messages
from gangline.control.parts.part import Part
from gangline.engine import accelerators
from gangline.forecast.errors import StoreError
from gangline.forecast.history import usage
from gangline.forecast.history.attempts import (
    CANCELLED,
    MOST_LABELS,
    PREEMPTED,
    AttemptQuery,
    JobAttempt,
    Labels,
    LastAttempt,
    newest_first,
)
from gangline.forecast.history.budgets import UsedSpan
from gangline.forecast.history.usage import Group, UsageSum, Window
from gangline.kube import resources as kube
from gangline.kube.reflector import Event
from gangline.kube.resources import Resource
from gangline.objects import WorkloadObject
from gangline.tenants import SharedRoom

log = logging.getLogger(__name__)

#: Workloads that are looked at in one round
AT_ONCE: Final = 200
#: attempts that began before those of earlier leaders were known, which get their numbers once they are; of more the oldest
#: keep the numbers that they have
MOST_BEGUN: Final = 20_000
#: attempts that a leader without a history remembers
REMEMBERED: Final = 5_000
#: a database that does not answer is asked again after this, in seconds
RETRY: Final = 15.0
#: idle seconds are written this often, in seconds
KEEP_EVERY: Final = 300.0
#: sums are kept for those who ask the same: so many of them, for so many seconds, or so many times as long as they took
MOST_SUMS: Final = 32
#: jobs that all of the kept sums have counted together, at most; the sums that were made last stay whatever they have counted
MOST_COUNTED: Final = 1_000_000
SUMS_FOR: Final = 15.0
TIMES_AS_LONG: Final = 10.0


class AttemptStore(Protocol):
    """Where attempts are kept, and what is asked of it."""

    def put_attempt(self, cluster: str, attempt: JobAttempt) -> None:
        """Keep an attempt, in place of what was known of it."""
        ...

    async def attempts(self, query: AttemptQuery) -> list[JobAttempt]:
        """The attempts that are asked for."""
        ...

    async def usage(self, window: Window, newer: Mapping[str, JobAttempt]) -> dict[Group, UsageSum]:
        """The sums of attempts, but for those that the caller has `newer`, by key."""
        ...

    async def open_attempts(self, cluster: str) -> list[JobAttempt]:
        """The attempts that an earlier leader has left in progress. Raises StoreError."""
        ...

    async def last_attempts(self, uids: Collection[str], without: Collection[str] = ()) -> dict[str, LastAttempt]:
        """The last attempt of each of these Workloads that has one, by uid, but for those with the keys `without`.
        Raises StoreError.
        """
        ...

    async def fold_ended(
        self, cluster: str, since: float, without: Collection[str], take: Callable[[UsedSpan], None]
    ) -> None:
        """Hand over what attempts took that ended at or after `since`, but for those with these keys. Raises StoreError."""
        ...


class RecentAttempts:
    """The attempts of this leader alone, as many as there is room for: a namespace with many displaces its own ones."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._kept: SharedRoom[str, JobAttempt] = SharedRoom(most)

    def put_attempt(self, cluster: str, attempt: JobAttempt) -> None:
        self._kept.put(attempt.namespace, attempt.key, attempt)

    async def attempts(self, query: AttemptQuery) -> list[JobAttempt]:
        return newest_first([each for each in self._kept.values() if query.fits(each)], query.most)

    async def usage(self, window: Window, newer: Mapping[str, JobAttempt]) -> dict[Group, UsageSum]:
        sums: dict[Group, UsageSum] = {}
        usage.add(sums, (each for each in self._kept.values() if each.key not in newer), window)
        return sums

    async def open_attempts(self, cluster: str) -> list[JobAttempt]:
        return []

    async def fold_ended(
        self, cluster: str, since: float, without: Collection[str], take: Callable[[UsedSpan], None]
    ) -> None:
        for each in self._kept.values():
            if each.ended is not None and each.ended >= since and each.key not in without:
                take(UsedSpan.of(each))

    async def last_attempts(self, uids: Collection[str], without: Collection[str] = ()) -> dict[str, LastAttempt]:
        return {}


@dataclass(slots=True)
class _Open:
    """An attempt in progress. `seen`: this process has seen its Workload hold the quota. `coming`: the end that is known to
    come. `measured`: its idle time has changed since it was written.
    """

    attempt: JobAttempt
    seen: bool = True
    coming: AttemptEnd | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True)
class MadeSums:
    """The sums of attempts over a window."""

    window: Window
    by_group: dict[Group, UsageSum]


@dataclass(slots=True)
class _KeptSums:
    """Sums that were asked for, or are being made. `until`: how long they are kept, in seconds since the epoch. `jobs`: how many
    they have counted.
    """

    task: asyncio.Task[MadeSums]
    until: float = math.inf
    jobs: int = 0


class AttemptWatch(Part):
    """Keeps the record of attempts. Its own troubles cost a record, never an object."""

    name = "attempts"
    kinds = (kube.WORKLOADS,)

    def __init__(
        self,
        mirror: Mirror,
        pods: PodIndex,
        messages: Messages,
        *,
        store: AttemptStore | None,
        now: Callable[[], int],
        wake: Callable[[], None] = lambda: None,
        labels: Sequence[str] = (),
    ) -> None:
        """Watch the Workloads of a mirror. `store`: None where no history is kept; `now` in milliseconds since the epoch; `wake`
        is called when there is something to look at; `labels`: keys of labels that attempts keep.
        """
        #: keys of labels that attempts keep: those that were chosen, then those that budgets name
        self.labels = self._chosen_labels = tuple(labels)
        self._mirror = mirror
        self._pods = pods
        self._store: AttemptStore = store if store is not None else RecentAttempts()
        self._now = now
        self._wake = wake
        self._open: dict[str, _Open] = {}  # by key of the Workload
        self._last: dict[str, tuple[str, LastAttempt]] = {}  # Workloads that exist -> uid, and their last attempt
        self._changed = mirror.changes.workloads.subscribe(worth=mirror.has(kube.WORKLOADS))
        self._pending: dict[str, None] = {}
        #: attempts that began so far, by key; None once those of earlier leaders are known
        self._begun: dict[str, JobAttempt] | None = {}
        self._key_of: dict[str, str] = {}  # uid of a Workload -> its key
        self._uid_of: dict[str, str] = {}
        self._led = asyncio.Event()
        self._watching = False
        self._sums: dict[object, _KeptSums] = {}
        self._messages = messages
        #: whether attempts outlive this process
        self.lasts = store is not None
        messages.subscribe(GpusMeasured, self._measured)

    # --- in -----------------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        self._led.set()

    async def run(self) -> None:
        """Take over what an earlier leader has left, and write what telemetry measures, until cancelled."""
        await self._led.wait()
        while not await self._take_over():
            if not self._watching:
                self._begin()
            await asyncio.sleep(RETRY)
        self._begin()
        while True:
            await asyncio.sleep(KEEP_EVERY)
            self.keep_measured()

    async def _take_over(self) -> bool:
        """Take over the attempts that the store has in progress. Returns False if it does not answer."""
        uids = {raw.uid: key for key, raw in self._mirror.workloads.items()}
        try:
            left = await self._store.open_attempts(self._mirror.cluster_id())
            last = await self._store.last_attempts(uids, frozenset(self._begun or ()))  # some may be written already
            self._resume(left, {uids[uid]: (uid, each) for uid, each in last.items() if uid in uids})
        except StoreError as error:
            log.warning("attempts of earlier leaders are not known yet: %s", error)
            return False
        except Exception:
            log.exception("attempts of earlier leaders could not be taken over")
        self._begun = None
        return True

    def _resume(self, left: Iterable[JobAttempt], last: Mapping[str, tuple[str, LastAttempt]]) -> None:
        for each in sorted(left, key=lambda each: each.reserved):
            self._resume_one(f"{each.namespace}/{each.workload}", each)
        begun: dict[str, list[JobAttempt]] = {}
        for each in sorted((self._begun or {}).values(), key=lambda each: each.reserved):
            begun.setdefault(each.uid, []).append(each)
        for key, (uid, before) in last.items():
            if (mine := self._last.get(key)) is None or mine[0] != uid:
                self._last[key] = uid, before
                continue
            later = [each for each in begun.get(uid, ()) if each.reserved > before.reserved]
            for number, each in enumerate(later, before.number + 1):
                first = number == before.number + 1 and before.ended is not None
                self._renumber(key, each, number, before.ended if first else None)

    def _renumber(self, key: str, attempt: JobAttempt, number: int, queued: float | None) -> None:
        """Give an attempt that began while the database was away its number, and since when it waited (None = as it is)."""
        running, (uid, last) = self._open.get(key), self._last.get(key, ("", None))
        goes_on = running is not None and running.attempt.key == attempt.key
        found = running.attempt if running is not None and goes_on else attempt
        found = replace(found, number=number, queued=found.queued if queued is None else min(queued, found.reserved))
        if running is not None and goes_on:
            running.attempt = found
        if last is not None and uid == attempt.uid and last.reserved == attempt.reserved:
            self._last[key] = uid, replace(last, number=number)
        self._put(found)

    def _resume_one(self, key: str, left: JobAttempt) -> None:
        """Take over an attempt that the store has in progress."""
        running, (uid, last) = self._open.get(key), self._last.get(key, ("", None))
        if running is not None and running.attempt.key == left.key:
            running.attempt = replace(running.attempt, number=left.number, queued=left.queued)
        elif running is not None and running.seen:
            self._end(left, reading.UNSEEN, self._now() / 1000)
        elif last is not None and uid == left.uid and last.reserved >= left.reserved:
            if last.reserved > left.reserved:  # else it has ended since, which the database does not know yet
                self._end(left, reading.UNSEEN, self._now() / 1000)
        else:
            if running is not None:
                self._close(key, running)
            self._open[key] = _Open(left, seen=False)
            self._messages.publish(AttemptNoted(left))

    def _begin(self) -> None:
        """Look at every Workload, and at every change from now on."""
        self._watching = True
        self._changed.take()
        self._pending.update(dict.fromkeys((*self._open, *self._mirror.workloads)))
        self._wake()

    def observe(self, resource: Resource, event: Event) -> None:
        """Note what the mirror has learned from the event, if it shows that already."""
        if self._watching:
            self._look_at(self._changed.take())

    def act(self, now: int) -> None:
        if not self._watching:
            return
        self._pending.update(dict.fromkeys(sorted(self._changed.take())))
        keys = list(self._pending)[:AT_ONCE]
        for key in keys:
            del self._pending[key]
        self._look_at(keys)
        self.due = now if self._pending else None

    def _look_at(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                self._look(key)
            except Exception as error:  # it costs a record; its object takes part in decisions as before
                log.warning("%s: an attempt is not recorded: %r", key, error)

    def _look(self, key: str) -> None:
        raw, running = self._mirror.workloads.get(key), self._open.get(key)
        self._note_uid(key, raw.uid if raw is not None else "")
        reserved = reading.reserved_at(raw) if raw is not None else None
        if running is not None:
            goes_on = raw is not None and raw.uid == running.attempt.uid and reserved == running.attempt.reserved
            if goes_on and raw is not None:
                self._advance(running, raw)
            if not goes_on or raw is None or raw.finished:
                self._close(key, running)
        if raw is None:
            self._last.pop(key, None)
        elif reserved is not None and key not in self._open and self._is_new(raw, reserved):
            self._open_new(raw, reserved)

    def _note_uid(self, key: str, uid: str) -> None:
        """Note the uid of the Workload with this key; "": there is none any more."""
        if (before := self._uid_of.get(key, "")) == uid:
            return
        if self._key_of.get(before) == key:
            del self._key_of[before]
        self._uid_of.pop(key, None)
        if uid:
            self._key_of[uid], self._uid_of[key] = key, uid

    def _is_new(self, raw: WorkloadObject, reserved: float) -> bool:
        """Whether no attempt of this reservation is known, or one that has ended although the Workload holds it again."""
        uid, last = self._last.get(raw.key, ("", None))
        if last is None or uid != raw.uid or reserved > last.reserved:
            return True
        return reserved == last.reserved and not raw.finished

    def _open_new(self, raw: WorkloadObject, reserved: float) -> None:
        uid, last = self._last.get(raw.key, ("", None))
        view = view_of_workload(self._mirror, raw)
        number, queued, counted = 1, view.created, 0.0
        if last is not None and uid == raw.uid:
            again = last.reserved == reserved  # within one second: the same attempt goes on
            number = last.number if again else last.number + 1
            counted = last.ended or 0.0 if again else 0.0
            if number > 1:
                queued = last.ended if last.ended is not None and not again else reserved
        running = _Open(reading.begun(raw, view, reserved, number, queued, self._labels_of(raw, self.labels)))
        self._messages.publish(AttemptNoted(running.attempt, counted))
        self._open[raw.key] = running
        self._last[raw.key] = raw.uid, LastAttempt(reserved, number, None)
        if self._begun is not None:
            self._begun[running.attempt.key] = running.attempt
            if len(self._begun) > MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
        self._advance(running, raw, first=True)
        if raw.finished:
            self._close(raw.key, running)

    def _advance(self, running: _Open, raw: WorkloadObject, *, first: bool = False) -> None:
        """Note what a Workload shows of its attempt in progress."""
        before, running.seen = running.attempt, True
        if raw.finished and not first:
            return  # what it ran on is not there any more
        view, value = view_of_workload(self._mirror, raw), self._mirror.workload_value(raw.key)
        nodes = [pod.node for pod in self._pods.of(raw.key) if pod.node]
        running.attempt = reading.advanced(before, raw, view, value, nodes)
        coming = reading.about_to_end(raw, self._find)
        if coming is None or coming.by or running.coming is None:
            running.coming = coming  # otherwise what is known stays: the other job may be gone meanwhile
        if first or running.attempt != before:
            self._put(running.attempt)

    def _close(self, key: str, running: _Open) -> None:
        """Record the end of an attempt, as its Workload says or, where it is gone, as it was last seen."""
        del self._open[key]
        raw, attempt, at = self._mirror.workloads.get(key), running.attempt, self._now() / 1000
        if raw is not None and raw.uid == attempt.uid:
            end, at = reading.ended(attempt, raw, running.coming, self._find)
        elif running.seen:
            end = running.coming or AttemptEnd(CANCELLED)
        else:
            end = reading.UNSEEN
        self._end(attempt, end, at)

    def _end(self, attempt: JobAttempt, end: AttemptEnd, at: float) -> None:
        finished = reading.closed(attempt, end, at)
        key = f"{attempt.namespace}/{attempt.workload}"
        uid, last = self._last.get(key, ("", None))
        if last is not None and uid == attempt.uid and last.reserved == attempt.reserved:
            self._last[key] = uid, replace(last, ended=finished.ended)
        self._put(finished)

    def _put(self, attempt: JobAttempt) -> None:
        if self._begun is not None and attempt.key in self._begun:
            self._begun[attempt.key] = attempt
        self._messages.publish(AttemptNoted(attempt))
        self._store.put_attempt(self._mirror.cluster_id(), attempt)

    def _find(self, uid: str, job_uid: str) -> Preemptor | None:
        """The Workload of a preemptor: the one with this uid, or another one of its job, such as a later slice."""
        raw = self._mirror.workloads.get(self._key_of.get(uid, ""))
        if raw is None or raw.uid != uid:
            job = self._mirror.job_with(job_uid)
            found = self._mirror.workloads_of(job) if job is not None else []
            raw = next((each for each in found if each.uid == uid), found[0] if found else None)
        if raw is None:
            return None
        owner, queue = owner_of(raw), view_of_workload(self._mirror, raw).cluster_queue
        return Preemptor(raw.key, f"{owner.get('kind', 'Workload').lower()}/{owner.get('name', raw.name)}", queue)

    # --- telemetry ----------------------------------------------------------------------------------------------------

    def _measured(self, message: GpusMeasured) -> None:
        pod = self._pods.pod(message.pod)
        running = self._open.get(pod.workload) if pod is not None else None
        value = self._mirror.workload_value(pod.workload) if pod is not None else None
        if pod is None or running is None or value is None:
            return
        gpus = next((accelerators(each.requests) for each in value.pod_sets if each.name == pod.pod_set), 0)
        idle = gpus * message.seconds if message.idle else 0.0
        running.attempt = replace(running.attempt, idle=(running.attempt.idle or 0.0) + idle)
        running.measured = True

    def keep_measured(self) -> None:
        """Write the attempts of which more was measured."""
        for running in self._open.values():
            if running.measured:
                running.measured = False
                self._put(running.attempt)

    # --- out ----------------------------------------------------------------------------------------------------------

    async def attempts(self, query: AttemptQuery) -> list[JobAttempt]:
        """The attempts that are asked for, those in progress first, then those that ended last."""
        query = replace(query, cluster=self._mirror.cluster_id())
        found = {each.key: each for each in await self._store.attempts(query)} | self._running()
        return newest_first([each for each in found.values() if query.fits(each)], query.most)

    async def usage(self, window: Window, asked: object) -> MadeSums:
        """The sums over a window. Who asks the same within a few seconds gets the same, with the window of these sums. `asked`:
        what tells one question from another.
        """
        kept, now = self._sums.get(asked), self._now() / 1000
        if kept is None or now > kept.until:
            window = replace(window, cluster=self._mirror.cluster_id())
            self._sums = {each: sums for each, sums in self._sums.items() if sums.until >= now}
            self._sums.pop(asked, None)
            kept = self._sums[asked] = _KeptSums(asyncio.ensure_future(self._add_up(window, asked)))
            while len(self._sums) > 1 and self._too_many():
                del self._sums[next(iter(self._sums))]
        return await asyncio.shield(kept.task)

    def _too_many(self) -> bool:
        """Whether more sums are kept than there is memory for: each remembers which jobs it has counted."""
        return len(self._sums) > MOST_SUMS or sum(each.jobs for each in self._sums.values()) > MOST_COUNTED

    async def _add_up(self, window: Window, asked: object) -> MadeSums:
        """Make sums, and say how long they are kept; not at all where that fails."""
        lasts, jobs, begun = 0.0, 0, time.monotonic()
        try:
            running = self._running()
            sums = await self._store.usage(window, running)
            usage.add(sums, running.values(), window)
            lasts = max(SUMS_FOR, TIMES_AS_LONG * (time.monotonic() - begun))
            jobs = sum(len(each.jobs) for each in sums.values())
            return MadeSums(window, sums)
        finally:
            if (kept := self._sums.get(asked)) is not None:
                kept.until, kept.jobs = self._now() / 1000 + lasts, jobs

    # --- for budgets --------------------------------------------------------------------------------------------------

    def keep_labels(self, keys: Sequence[str]) -> Collection[str]:
        """Keep labels with these keys, too, of attempts in progress and to come. Returns all that are kept: they are
        `MOST_LABELS` at most.
        """
        kept = tuple(dict.fromkeys((*self._chosen_labels, *keys)))[:MOST_LABELS]
        added = [key for key in kept if key not in self.labels]
        self.labels = kept
        for key, running in self._open.items() if added else ():
            raw = self._mirror.workloads.get(key)
            if raw is not None and raw.uid == running.attempt.uid and (found := self._labels_of(raw, added)):
                labels = tuple(sorted({**dict(found), **dict(running.attempt.labels)}.items()))
                running.attempt = replace(running.attempt, labels=labels)
                self._put(running.attempt)
        return kept

    def _labels_of(self, raw: WorkloadObject, keys: Sequence[str]) -> Labels:
        return self._mirror.labels_of(raw, keys) if keys else ()

    @property
    def is_known(self) -> bool:
        """Whether attempts in progress are known, those that an earlier leader has left included."""
        return self._watching and self._begun is None

    def in_progress(self) -> Mapping[str, JobAttempt]:
        """The attempts in progress, by key."""
        return self._running()

    async def fold_ended(self, since: float, take: Callable[[UsedSpan], None]) -> None:
        """Hand over all attempts that ended at or after `since`, in a thread; those that are in progress when this is called are
        left out. Raises StoreError.
        """
        await self._store.fold_ended(self._mirror.cluster_id(), since, frozenset(self._running()), take)

    async def ended_by(self, ends: Collection[str], since: float) -> list[JobAttempt]:
        """The last attempts that ended in one of these ways at or after `since`. Raises StoreError."""
        found: list[JobAttempt] = []
        for end in ends:
            query = AttemptQuery(since=since, end=end, cluster=self._mirror.cluster_id())
            found += [each for each in await self._store.attempts(query) if each.ended is not None]
        return found

    async def preempted(self, since: float) -> list[JobAttempt]:
        """The attempts that were preempted at or after `since`, and those that are being stopped for others."""
        ended = await self.ended_by((PREEMPTED,), since)
        stopping = [
            replace(each.attempt, end=PREEMPTED, by_queue=each.coming.by_queue)
            for each in self._open.values()
            if each.coming is not None and each.coming.end == PREEMPTED
        ]
        return [*ended, *stopping]

    def _running(self) -> dict[str, JobAttempt]:
        return {each.attempt.key: each.attempt for each in self._open.values()}
