"""The expected starts of waiting workloads, kept for API requests and written to the status of GPUJobs.

The outlook is computed in a separate process from all facts that the engine knows; this process pays for a copy of the facts. It
is computed only while a GPUJob waits or a client asked lately, and so rarely that it takes a small part of one core.

A status is written when an expected start is first known. After that it is written only when the start moved by more than five
minutes and a tenth of the wait, or the forecast by more than a tenth, at most once a minute. Workloads without a GPUJob cost no
write.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.api.read import conditions
from gangline.control.feed.mirror import Mirror
from gangline.control.forecasting.promises import Ledger, queues_in
from gangline.control.forecasting.simulation_process import in_process, request
from gangline.control.parts.messages import Messages, StartExpected
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.engine import Engine, ExpectedStart, Outlook, model
from gangline.forecast.quantiles import Forecast
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import JobObject

log = logging.getLogger(__name__)

#: an outlook is valid for this long, in seconds, …
FRESH: Final = 5.0
#: … or for this many times as long as it took to compute, …
SHARE: Final = 10.0
#: … and where no fact has changed, for this long: a run that takes longer than expected moves it all the same
STALE: Final = 60.0
#: an outlook that takes longer than this, in seconds, is not waited for as long as the last one is that new
QUICK: Final = 2.0
#: a request counts as interest in expected starts for this long, in seconds
INTEREST: Final = 120.0
#: seconds that may be spent on courses of an outlook beyond the first, and after which a single course is broken off
COURSES: Final = 1.0
PATIENCE: Final = 60.0
HORIZON: Final = 7 * 86_400_000  # milliseconds
#: a start that moved less than this, in milliseconds, and less than this share of the wait, is not written again
MOVED: Final = 300_000
MOVED_SHARE: Final = 0.1
#: a forecast that changed by less than this share is not written again either
CHANGED_SHARE: Final = 0.1
#: one status is written at most this often, in seconds
PERIOD: Final = 60.0
#: how many statuses are written at a time
BATCH: Final = 20
#: the schema's length limit
MAX_BECAUSE: Final = 1024


@dataclass(slots=True)
class Accuracy:
    """The accuracy of the first expected start of each workload; `errors` are the latest. Times in milliseconds."""

    starts: int = 0
    within_p50: int = 0
    within_p90: int = 0
    errors: deque[int] = field(default_factory=lambda: deque[int](maxlen=1000))

    def came_true(self, expected: ExpectedStart, started: model.Millis) -> None:
        self.starts += 1
        self.within_p50 += started <= expected.p50
        self.within_p90 += expected.p90 is not None and started <= expected.p90
        self.errors.append(abs(started - expected.p50))

    def clear(self) -> None:
        self.restore(0, 0, 0, ())

    def restore(self, starts: int, within_p50: int, within_p90: int, errors: Iterable[int]) -> None:
        """Go on from earlier counts."""
        self.starts, self.within_p50, self.within_p90 = int(starts), int(within_p50), int(within_p90)
        self.errors.clear()
        self.errors.extend(map(int, errors))

    def as_json(self) -> Json:
        count = max(1, self.starts)
        return {
            "starts": self.starts,
            "withinP50": self.within_p50 / count,
            "withinP90": self.within_p90 / count,
            "medianErrorSeconds": statistics.median(self.errors) / 1000 if self.errors else 0.0,
        }


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The expected start and forecast in the status of a GPUJob. Times in milliseconds; `at` in monotonic seconds."""

    p50: model.Millis | None
    p90: model.Millis | None
    estimate: Forecast | None
    at: float


class Expected:
    """The expected starts of all waiting workloads.

    `estimate` returns the runtime forecast of a workload; `wanted` says whether expected starts are needed for more than GPUJobs;
    `messages` publishes every expected start; `foresee` computes an outlook from its request, blocking.
    """

    def __init__(
        self,
        engine: Engine,
        mirror: Mirror,
        writes: Writes,
        *,
        now: Callable[[], int],
        estimate: Callable[[str], Forecast | None],
        clock: Callable[[], float] = time.monotonic,
        foresee: Callable[[bytes], Outlook] | None = None,
        wanted: Callable[[], bool] = lambda: False,
        messages: Messages | None = None,
    ) -> None:
        self.starts: Mapping[str, ExpectedStart] = {}
        self.outlook: Outlook | None = None  #: the last one
        self.accuracy = Accuracy()
        self._engine = engine
        self._mirror = mirror
        self._writes = writes
        self._now = now
        self._estimate = estimate
        self._clock = clock
        self._foresee = foresee or in_process
        self._wanted = wanted
        self._messages = messages or Messages()
        self._first: dict[str, ExpectedStart] = {}
        self.ledger = Ledger()  #: what was promised, and what came true
        self._changed = True
        self._made = self._cost = self._good_until = self._asked_until = float("-inf")
        self._known: frozenset[str] = frozenset()  # the workloads of the last outlook
        self._looking = asyncio.Lock()
        self._ahead: asyncio.Future[None] | None = None  # the next outlook, for those who did not wait for it
        self._recorded: dict[str, _Recorded] = {}  # key of a GPUJob -> what its status holds

    # --- in -----------------------------------------------------------------------------------------------------------

    def note(self, change: model.Change) -> None:
        """Record a fact that the engine observed."""
        match change:
            case model.Put(model.Node() | model.Namespace()):
                return  # repeated often, and seldom of consequence
            case model.Put(model.Workload(admission=admission) as value) if admission is not None:
                first, at = self._first.pop(value.key, None), value.admitted_at or self._now()
                if first is not None:
                    self.accuracy.came_true(first, at)
                self.ledger.started(value.key, admission.cluster_queue, at)
            case model.Gone(kind, key) if kind is model.Workload:
                self._first.pop(key, None)
                self.ledger.forget(key)
            case _:
                pass
        self._changed = True

    def ask(self) -> None:
        """Record that a client wants expected starts."""
        self._asked_until = self._clock() + INTEREST

    # --- the outlook --------------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether it is time to compute another outlook."""
        now = self._clock()
        if now < self._good_until or not (self._changed or now > self._made + STALE):
            return False
        return now < self._asked_until or self._gpujob_waits() or self._wanted()

    def _gpujob_waits(self) -> bool:
        for job in self._mirror.jobs_of_kind(kube.GPU_JOBS).values():
            workload = self._workload_of(job)
            if workload is not None and workload.admission is None and not workload.finished:
                return True
        return False

    async def latest(self, workload: str = "") -> Outlook | None:
        """The outlook for a client: computed first, unless the last is still valid. None: it could not be computed.

        A waiting `workload` that the last outlook does not know makes it invalid, though not more often than half of the time is
        spent on outlooks. One that takes long to compute is not waited for: the client gets the last one, and later the new one.
        """
        self.ask()
        if self.outlook is not None and self._cost > QUICK and self._clock() < self._good_until + self._cost + STALE:
            if self._out_of_date(workload) and not self._looking.locked():
                self._ahead = asyncio.ensure_future(self.look())
            return self.outlook
        async with self._looking:
            if self._out_of_date(workload):
                await self._look()
        return self.outlook

    def _out_of_date(self, workload: str) -> bool:
        now = self._clock()
        if self.outlook is None:
            return now > self._made + FRESH
        if workload and workload not in self._known:
            return now > self._made + self._cost
        return now > self._good_until and (self._changed or now > self._made + STALE)

    async def look(self) -> None:
        """Compute an outlook, off the event loop."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        begun, self._changed = self._clock(), False
        facts, settings, now = self._engine.facts(), self._engine.settings, self._now()
        self._known = frozenset(
            fact.item.key for fact in facts if isinstance(fact, model.Put) and isinstance(fact.item, model.Workload)
        )
        try:
            seen = await asyncio.to_thread(
                lambda: self._foresee(
                    request(facts, settings, now, horizon=HORIZON, seconds=COURSES, patience=PATIENCE)
                )
            )
        except (OSError, subprocess.SubprocessError, pickle.PickleError, EOFError) as error:
            log.warning("no expected starts: %s", error)
            self.outlook = None
        else:
            self._take(seen)
        self._made = self._clock()
        self._cost = self._made - begun
        self._good_until = self._made + max(FRESH, SHARE * self._cost)

    def _take(self, seen: Outlook) -> None:
        waiting = [start for key, start in seen.starts.items() if self._waits(key)]
        self.starts = self.ledger.promise_starts(waiting, self._now(), queues_in(seen))
        self.outlook = replace(seen, starts={**seen.starts, **self.starts})
        for key, start in self.starts.items():
            self._first.setdefault(key, start)
            self._messages.publish(StartExpected(key, start))

    def _waits(self, key: str) -> bool:
        value = self._mirror.workload_value(key)
        return value is not None and value.admission is None and not value.finished

    # --- statuses -----------------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Write the statuses that have changed enough. Returns how many."""
        jobs = self._mirror.jobs_of_kind(kube.GPU_JOBS)
        for gone in [key for key in self._recorded if key not in jobs]:
            del self._recorded[gone]
        sent = 0
        for key, job in jobs.items():
            if sent >= BATCH:
                break
            try:
                sent += self._write_status(key, job)
            except Exception:  # an invalid foreign status must not affect the others
                log.exception("%s: its expected start can't be written to its status", key)
                self._recorded[key] = _Recorded(None, None, None, self._clock())
        return sent

    def _write_status(self, key: str, job: JobObject) -> bool:
        recorded = self._recorded.get(key)
        if recorded is not None and self._clock() - recorded.at < PERIOD:
            return False
        workload = self._workload_of(job)
        if workload is None or workload.finished:
            return False
        recorded = recorded or _recorded(job)
        estimate = self._estimate(workload.key)
        start = None if workload.admission is not None else self.starts.get(workload.key)
        status: Json = {}
        if estimate is not None and _changed(recorded.estimate, estimate):
            status["forecast"] = forecast_status(estimate)
        if start is not None and self._moved(recorded, start):
            status["expectedStart"] = start_status(start)
        if not status:
            return False
        p50, p90 = (start.p50, start.p90) if start is not None else (recorded.p50, recorded.p90)
        self._recorded[key] = _Recorded(p50, p90, estimate, self._clock())
        target = ObjectKey.of(kube.GPU_JOBS, job)
        self._writes.send(target, "status", {"status": status}, priority=Priority.STATUS, slot="forecast")
        return True

    def _workload_of(self, job: JobObject) -> model.Workload | None:
        for raw in self._mirror.workloads_of(job):
            return self._mirror.workload_value(raw.key)
        return None

    def _moved(self, recorded: _Recorded, start: ExpectedStart) -> bool:
        if recorded.p50 is None:
            return True
        least = max(MOVED, MOVED_SHARE * (start.p50 - self._now()))
        if abs(start.p50 - recorded.p50) > least or (start.p90 is None) != (recorded.p90 is None):
            return True
        return start.p90 is not None and recorded.p90 is not None and abs(start.p90 - recorded.p90) > 2 * least


def _recorded(job: JobObject) -> _Recorded:
    """The expected start and forecast that the status of a GPUJob has from before this process started."""
    status = job.status
    start, forecast = status.get("expectedStart") or {}, status.get("forecast")
    estimate = None
    if forecast is not None:
        p50, p90 = float(forecast["p50"]), float(forecast["p90"])
        estimate = Forecast(p50, p50, p90, p90, p90, forecast["source"], forecast.get("samples", 0))
    return _Recorded(
        conditions.millis_of(start.get("from")) or None,
        conditions.millis_of(start.get("to")) or None,
        estimate,
        float("-inf"),
    )


def forecast_status(estimate: Forecast) -> Json:
    """`status.forecast` of a GPUJob, in seconds."""
    return {
        "p50": round(estimate.q50),
        "p90": round(estimate.q90),
        "source": estimate.source,
        "samples": estimate.samples,
    }


def start_status(start: ExpectedStart) -> Json:
    """`status.expectedStart` of a GPUJob."""
    return {
        "from": conditions.timestamp(start.p50),
        "to": conditions.timestamp(start.p90) if start.p90 is not None else None,
        "because": start.because[:MAX_BECAUSE] or None,
    }


def _changed(before: Forecast | None, after: Forecast) -> bool:
    if before is None or before.source != after.source:
        return True
    return any(abs(b - a) > CHANGED_SHARE * a for a, b in ((before.q50, after.q50), (before.q90, after.q90)))
