"""Sends all writes to the cluster: one at a time per object, only the newest state, the most urgent first.

- *Per object*: at most one write is in flight. Writes wait in slots (by default one per verb and owner); a newer submit replaces
  the write that waits in its slot and keeps the older one's turn. The replaced write is dropped: of its callbacks only
  `on_replaced` is called. A waiting create goes before all other writes of its object; otherwise priority decides, then age.
- *Across objects*: by priority, then in turn by namespace, then age, as many at once as the pace allows (`pacing.Pace`). So 5,000
  writes for the jobs of one namespace delay a write of another by one. The low priorities get at most a sixth of the pace, and
  next to nothing while the server is strained.
- *Failures*: a write with a transient failure (no answer, 5xx, 429, 401) is repeated forever with backoff, rendered again each
  time. So a write must be safe to repeat: a create whose answer was lost comes back as AlreadyExists, a fenced patch as Conflict.
  Any other failure goes to `on_error` at once and is not repeated.
- *Leadership*: nothing is sent while `gate()` is false, and nothing ever after `abort()`.

A body that is a callable is rendered when its turn has come, and returns None where there is nothing to write.

Crashes on cue: the process dies at a chosen write exactly as `kill -9` would kill it. For tests of crash safety.

The end of writing at shutdown.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import NamespaceTurns, ObjectLane, Priority, WaitingWrite, Write
from gangline.control.writes.pacing import Pace, refuses
from gangline.kube.client import ApiClient, ApiError, Body, Invalid, Json, ObjectKey
from gangline.objects import view

VARIABLE = "GANGLINE_FAULT"
KILLED = 137


@dataclass(slots=True)
class FaultHook:
    """Kills the process at a chosen write. `moment` is "before" or "after" (the answer to) the `at`-th write that this process
    sends; "" = never.
    """

    moment: str = ""
    at: int = 0
    die: Callable[[int], object] = os._exit
    sent: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> FaultHook:
        """Parse e.g. GANGLINE_FAULT=before:7. Raises ValueError on anything else."""
        text = environment.get(VARIABLE, "")
        if not text:
            return cls()
        moment, _, number = text.partition(":")
        if moment not in ("before", "after") or not number.isdigit() or int(number) < 1:
            raise ValueError(f"{VARIABLE}: must be before:N or after:N with N >= 1, not {text!r}")
        return cls(moment, int(number))

    def before(self) -> int:
        """Note that a write is about to be sent. Returns its number."""
        self.sent += 1
        if self.moment == "before" and self.sent == self.at:
            self.die(KILLED)
        return self.sent

    def after(self, number: int) -> None:
        """Note that the answer to write `number` has arrived, and no code has seen it yet."""
        if self.moment == "after" and number == self.at:
            self.die(KILLED)


logger = logging.getLogger(__name__)

FIRST_RETRY = 0.2
LONGEST_RETRY = 30.0
GATE_PERIOD = 0.2

#: From this priority on, no start depends on a write: these writes get the API server's spare capacity.
_LOW = int(Priority.STATUS)
#: Of the low priorities, every so many-th turn goes to the oldest write of the next namespace, whatever its priority: on a server
#: that is strained for hours, queue statuses alone would block pending reasons and events forever.
_TURNS = 4


class Writer:
    """Sends writes. They are submitted from the event loop's thread; callbacks run there too, after the object is free for the
    next write.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        pace: Pace | None = None,
        max_concurrency: int = 24,
        timeout: float = 15.0,
        gate: Callable[[], bool] | None = None,
        fault: FaultHook | None = None,
    ) -> None:
        self.pace = pace or Pace(most=max_concurrency)
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self._client = client
        self._timeout = timeout
        self._gate = gate
        self._fault = fault or FaultHook.from_environment()
        self._lanes: dict[ObjectKey, ObjectLane] = {}
        self._ready: list[tuple[int, int, int, int, WaitingWrite]] = []  # rank, turn, age, ticket
        self._timed: list[tuple[float, int, WaitingWrite]] = []  # due, ticket
        #: turn, age, ticket: the writes in `_ready` with a low priority
        self._low_by_age: list[tuple[int, int, int, WaitingWrite]] = []
        self._turns = [NamespaceTurns() for _ in Priority]
        self._turns_of_low = NamespaceTurns()
        self._low_turns = 0
        self._tickets = itertools.count()  # so that comparing never reaches the item
        self._tasks: set[asyncio.Task[None]] = set()
        self._low_in_flight = 0
        self._urgent = 0
        self._age = 0
        self._closed = False
        self._pump_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._alarm = 0.0  # the time to which the timer is set
        self._progress = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- interface ----------------------------------------------------------------------------------------------------

    def submit(self, write: Write) -> None:
        """Queue a write, to be sent when its turn comes. After `abort()` it is dropped."""
        if self._closed:
            self._count(write, "aborted")
            return
        lane = self._lanes.setdefault(write.key, ObjectLane())
        slot = write.place
        item = lane.waiting.get(slot)
        if item is None:
            self._age += 1
            item = WaitingWrite(write, slot, self._age, int(write.priority), write.not_before)
            lane.waiting[slot] = item
            self._enqueue(item)
            return
        self._replaced(item.write, write)
        before = (item.rank, item.due)
        item.write = write
        item.rank = min(item.rank, int(write.priority))
        item.not_before = min(item.not_before, write.not_before)
        if (item.rank, item.due) != before:
            self._enqueue(item)

    def may_write(self) -> bool:
        """Whether a write would be sent now, as far as leadership goes."""
        return not self._closed and (self._gate is None or self._gate())

    def pending(self, key: ObjectKey) -> bool:
        """Whether a write of this object is waiting or in flight."""
        return key in self._lanes

    def abort(self) -> None:
        """Send nothing more, because leadership is lost. Requests in flight are cut; no callback is called any more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._lanes.clear()
        self._urgent = 0
        self._ready.clear()
        self._timed.clear()
        self._low_by_age.clear()
        if self._timer:
            self._timer.cancel()
        self._progress.set()

    async def drain(self, seconds: float, *, least: Priority = Priority.EVENT) -> bool:
        """Wait until all writes of this priority and above have left, except those that callers throttled.

        Returns False if time ran out.
        """
        try:
            async with asyncio.timeout(seconds):
                while not self._drained(least):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    @property
    def urgent(self) -> int:
        """The number of writes of high priority, in flight or ready to be sent.

        Failed writes don't count until their next attempt is due, nor do writes that wait for another write of their object: a
        problem with one object must not hold up others.
        """
        return self._urgent + len(self._tasks) - self._low_in_flight

    @property
    def queued(self) -> int:
        """The number of waiting writes, including throttled ones."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    @property
    def backlog(self) -> int:
        """The number of writes that could be sent now if the pace allowed it, about."""
        return len(self._ready)

    def _drained(self, least: Priority) -> bool:
        in_flight = len(self._tasks) - (self._low_in_flight if least < _LOW else 0)
        if in_flight or self._pump_due:
            return False
        now = time.monotonic()
        return not any(
            item.rank <= least and (item.failures or item.not_before <= now)
            for lane in self._lanes.values()
            for item in lane.waiting.values()
        )

    def _count_urgent(self, item: WaitingWrite, *, ready: bool) -> None:
        counts = ready and item.rank < _LOW
        self._urgent += counts - item.counted
        item.counted = counts

    # --- scheduling ---------------------------------------------------------------------------------------------------

    def _enqueue(self, item: WaitingWrite) -> None:
        """Put the item into the heap it belongs to. Entries that have become stale there are skipped when they come up."""
        item.parked = False
        if item.due > time.monotonic():
            heapq.heappush(self._timed, (item.due, next(self._tickets), item))
            self._count_urgent(item, ready=False)
        else:
            self._make_ready(item)
        self._pump_soon()

    def _make_ready(self, item: WaitingWrite) -> None:
        namespace = item.write.key.namespace or ""
        if item.turn is None or item.turn_of != item.rank:
            item.turn, item.turn_of = self._turns[item.rank].next(namespace), item.rank
        heapq.heappush(self._ready, (item.rank, item.turn, item.age, next(self._tickets), item))
        self._count_urgent(item, ready=True)
        if item.rank >= _LOW:
            if item.low_turn is None:
                item.low_turn = self._turns_of_low.next(namespace)
            heapq.heappush(self._low_by_age, (item.low_turn, item.age, next(self._tickets), item))

    def _pump_soon(self) -> None:
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Start all writes that may start now, then set the timer for those that may start later."""
        self._pump_due = False
        if self._closed:
            return
        now = time.monotonic()
        while self._timed and self._timed[0][0] <= now:
            due, _, item = heapq.heappop(self._timed)
            if due == item.due and self._lane_of(item):
                self._make_ready(item)
        allowance = self.pace.allowance(now)
        spare = self.pace.spare(now)
        gate_open = self._gate is None or self._gate()
        while gate_open and self._ready and len(self._tasks) < allowance:
            rank, turn, _, _, item = self._ready[0]
            if rank >= _LOW and self._low_in_flight >= spare:
                break
            if rank >= _LOW and self._starts_oldest(now):
                continue
            heapq.heappop(self._ready)
            self._turns[rank].reached(turn)
            lane = self._lane_of(item)
            if lane and item.rank == rank and item.due <= now:
                self._start(lane, item)
        self._set_alarm(now, gate_open)
        self._progress.set()

    def _lane_of(self, item: WaitingWrite) -> ObjectLane | None:
        """The lane where the item waits; None if it was sent, and only a heap still has an entry."""
        lane = self._lanes.get(item.write.key)
        return lane if lane is not None and lane.waiting.get(item.slot) is item else None

    def _starts_oldest(self, now: float) -> bool:
        """Start the oldest write of low priority, if it has its turn. Its entry in `_ready` becomes stale."""
        self._low_turns += 1
        if self._low_turns % _TURNS:
            return False
        while self._low_by_age:
            turn, _, _, item = heapq.heappop(self._low_by_age)
            self._turns_of_low.reached(turn)
            lane = self._lane_of(item)
            if lane and item.rank >= _LOW and item.due <= now:
                self._start(lane, item)
                return True
        return False

    def _set_alarm(self, now: float, gate_open: bool) -> None:
        moments: list[float] = []
        if self._timed:
            moments.append(self._timed[0][0])
        if self._ready and not gate_open:
            moments.append(now + GATE_PERIOD)
        elif self._ready and self.pace.held_until > now:
            moments.append(self.pace.held_until)
        alarm = min(moments, default=0.0)
        if self._timer is not None:
            if alarm == self._alarm:
                return
            self._timer.cancel()
            self._timer = None
        if moments:
            self._alarm = alarm
            self._timer = asyncio.get_running_loop().call_later(max(0.0, alarm - now), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._pump()

    def _start(self, lane: ObjectLane, item: WaitingWrite) -> None:
        self._count_urgent(item, ready=False)
        if lane.blocked(item):
            item.parked = True  # put back when the other write ends
            return
        del lane.waiting[item.slot]
        lane.busy = item
        try:
            body = item.write.render()
        except Exception as error:
            logger.exception("%s %s cannot be rendered", item.write.verb, item.write.key)
            self._finish(lane, item, Invalid(0, "RenderFailed", f"{type(error).__name__}: {error}"))
            return
        if body is None and callable(item.write.body):
            self._finish(lane, item, None)
            return
        self._low_in_flight += item.rank >= _LOW
        task = asyncio.get_running_loop().create_task(self._perform(lane, item, body))
        self._tasks.add(task)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _perform(self, lane: ObjectLane, item: WaitingWrite, body: Body | None) -> None:
        outcome: Json | ApiError
        number = self._fault.before()
        started = time.monotonic()
        try:
            outcome = await item.write.send(self._client, body, within=self._timeout)
        except ApiError as error:
            outcome = error
        except Exception as error:  # a write that cannot be sent must not block its lane
            logger.exception("%s %s cannot be sent", item.write.verb, item.write.key)
            outcome = Invalid(0, "BadWrite", f"{type(error).__name__}: {error}")
        finally:
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            self._make_room(item)
        self._fault.after(number)
        if self._closed:
            return
        now = time.monotonic()
        self.pace.adapt(now, now - started, outcome)
        self._finish(lane, item, outcome)

    def _make_room(self, item: WaitingWrite) -> None:
        """Count a write as no longer in flight; after one of low priority there may be a pause."""
        if item.rank < _LOW:
            return
        self._low_in_flight -= 1
        now = time.monotonic()
        pause = self.pace.spared(now) - now
        if pause > 0 and not self._closed:
            asyncio.get_running_loop().call_later(pause, self._pump_soon)

    def _finish(self, lane: ObjectLane, item: WaitingWrite, outcome: Json | ApiError | None) -> None:
        """Free the object, queue the write again where it should be repeated, and call its owner's callback."""
        lane.busy = None
        write = item.write
        if isinstance(outcome, ApiError) and outcome.retryable:
            self._count(write, "retried")
            self._repeat(lane, item, outcome)
            self._free(write.key, lane)
            return
        self._free(write.key, lane)
        if isinstance(outcome, ApiError):
            self._count(write, type(outcome).__name__)
            self._call(write, write.on_error, outcome)
        elif outcome is not None:
            self._count(write, "done")
            self._call(write, write.on_done, view(write.key.resource, outcome))
        else:
            self._count(write, "skipped")

    def _repeat(self, lane: ObjectLane, item: WaitingWrite, error: ApiError) -> None:
        """Put the item back into its slot, or give its backoff to the newer write that waits there already."""
        now = time.monotonic()
        successor = lane.waiting.setdefault(item.slot, item)
        if successor is not item:
            self._replaced(item.write, successor.write)
        successor.failures = item.failures + 1
        successor.age = min(successor.age, item.age)
        if not refuses(error):  # a refusal holds all writes: keep the order, without a backoff of its own
            backoff = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(item.failures, 20)) * random.uniform(0.5, 1.0)
            successor.retry_at = now + max(backoff, error.retry_after or 0.0)
        self._enqueue(successor)
        if successor.failures in (3, 10) or successor.failures % 50 == 0:
            logger.warning("%s %s: failed %d times: %s", item.write.verb, item.write.key, successor.failures, error)

    def _free(self, key: ObjectKey, lane: ObjectLane) -> None:
        if lane.busy is None and not lane.waiting:
            if self._lanes.get(key) is lane:
                del self._lanes[key]
        elif lane.busy is None:
            for item in lane.waiting.values():
                if item.parked:
                    self._enqueue(item)
        self._pump_soon()

    def _call(self, write: Write, callback: Callable[[Any], object] | None, outcome: Json | ApiError) -> None:
        if callback is None:
            if isinstance(outcome, ApiError):
                logger.warning("%s %s: %s", write.verb, write.key, outcome)
            return
        try:
            callback(outcome)
        except Exception:
            logger.exception("%s %s: the callback failed", write.verb, write.key)

    def _replaced(self, write: Write, by: Write) -> None:
        self._count(write, "replaced")
        if write.on_replaced is not None:
            write.on_replaced(by)

    def _count(self, write: Write, outcome: str) -> None:
        self.counts[write.verb, write.label, outcome] += 1


# --- last writes ------------------------------------------------------------------------------------------------------


class LastWrites(Part):
    """A part that only closes: from then on nothing is written."""

    name = "writes"

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def close(self) -> None:
        self._writer.abort()
