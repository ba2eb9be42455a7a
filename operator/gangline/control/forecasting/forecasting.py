"""Forecasts in the running operator: remembers runs, follows workloads, trains the model at intervals, and measures its accuracy.

At the start the runs in the history are replayed to a new forecaster in a thread, the model that was trained last is loaded, and
then the facts that have gathered are processed. Until then the engine decides without estimates, which only makes it cautious.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gangline.control.feed.mirror import Mirror
from gangline.control.forecasting.expected_starts import Expected
from gangline.control.forecasting.history_store import History
from gangline.control.forecasting.runtime_facts import EstimateRecord, Forecasts
from gangline.control.forecasting.tallies import Tallies
from gangline.control.parts.messages import FactObserved, Messages, OwnPaceEnded
from gangline.control.parts.part import Part
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.writes import Writes
from gangline.engine import Engine, model
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.runs import Run
from gangline.forecast.learning.guard import ModelVerdict
from gangline.forecast.quantiles import Forecast
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import Json, Resource

log = logging.getLogger(__name__)

#: facts that arrive within this time are processed together, in seconds
GATHER: Final = 0.05
#: the event loop is occupied for this long at a time, in seconds …
SLICE: Final = 0.004
#: … and then left to other tasks for this long
PAUSE: Final = 0.01
#: estimates are checked this often when no fact arrives, in seconds
LOOK_EVERY: Final = 1.0
#: seconds from the start to the first training, and between trainings
TRAIN_FIRST: Final = 60.0
TRAIN_EVERY: Final = 6 * 3600.0
#: the model is compared with the baseline this often, in seconds
JUDGE_EVERY: Final = 60.0
#: a request waits at most this long for estimates that are being made, in seconds
SETTLE: Final = 3.0
#: the accuracy counts are saved this often, in seconds
KEEP_EVERY: Final = 30.0
#: how many ended runs a standby keeps in case it becomes the leader
MAX_UNWRITTEN: Final = 20_000
#: how long the last writes may take at shutdown, in seconds
PATIENCE: Final = 5.0


class Forecasting(Part):
    """The forecasting service, one per operator. `leading` says whether this process may write history; `wake` is called when
    estimates moved.
    """

    name = "forecasts"
    kinds = (kube.GPU_JOBS,)

    def __init__(
        self,
        engine: Engine,
        mirror: Mirror,
        writes: Writes,
        recorder: EventRecorder,
        *,
        history: str,
        model_file: Path,
        use_model: bool = True,
        now: Callable[[], int],
        leading: Callable[[], bool],
        wake: Callable[[], None],
        synced: Callable[[], Awaitable[None]],
        messages: Messages | None = None,
        knows_better: Callable[[str], bool] = lambda workload: False,
        wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        messages = messages or Messages()
        self.history = History(history, model_file)
        self._use_model = use_model
        self._engine = engine
        self._mirror = mirror
        self._recorder = recorder
        self._now = now
        self._leading = leading
        self._wake = wake
        self._synced = synced
        self._arrived = asyncio.Event()
        self._trusted: bool | None = None
        self._unwritten: dict[str, Run] = {}  # runs that ended while another process led
        #: the model on the disk was not loaded yet: it takes 50 MB, so loading waits until forecasts are wanted
        self._unread = False
        self.ready = asyncio.Event()  #: set when the history has been replayed
        self.training_seconds = 0.0
        self.forecasts = Forecasts(
            mirror,
            engine.observe,
            now=now,
            forecaster=Forecaster(enabled=use_model),
            store=self._keep,
            noted=self._arrived.set,
            knows_better=knows_better,
            lost=lambda uid: engine.lost_to_company_by_end(uid, now()),
        )
        self.expected = Expected(
            engine, mirror, writes, now=now, estimate=self.forecasts.estimate, wanted=wanted, messages=messages
        )
        self.tallies = Tallies(
            self.history,
            self.forecasts.records,
            self.expected.accuracy,
            cluster=mirror.cluster_id,
            now=now,
            queues=self.expected.ledger.records,
            groups=self.forecasts.groups,
            judged=self.forecasts.forecaster.judged,
            promised=engine.promises,
            observe=engine.observe,
            slowed=engine.slowed_runs,
        )
        self._led = asyncio.Event()
        messages.subscribe(FactObserved, lambda message: self.note(message.change))
        messages.subscribe(OwnPaceEnded, lambda message: self.forecasts.tell_again(message.workload))

    # --- in -----------------------------------------------------------------------------------------------------------

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self.forecasts.note_job(event.obj)

    def settle(self) -> None:
        """Where queues choose flavors by runtimes, estimate those who have come before they are decided about, as far as a slice
        of time allows: on an empty cluster they would start at once, on the first flavor.
        """
        wanted = self._engine.chooses_flavors and self.ready.is_set() and self.forecasts.behind
        if wanted and not self.forecasts.work(SLICE):
            self.forecasts.tell()

    def note(self, change: model.Change) -> None:
        """Record a fact that the engine observed."""
        self.forecasts.note(change)
        self.expected.note(change)

    def ask(self) -> None:
        """Make estimates for a while, whether or not a policy needs them: a client wants them."""
        self.forecasts.ask()
        self.expected.ask()
        self._arrived.set()

    async def settled(self) -> None:
        """Returns once every known workload has an estimate, or after a few seconds."""
        await self.ready.wait()
        for _ in range(round(SETTLE / PAUSE)):
            if not self.forecasts.behind:
                return
            await asyncio.sleep(PAUSE)

    def lead(self) -> None:
        """Begin to lead: from now on this process writes the history, including runs that ended before, since the former leader
        may have died.
        """
        for run in self._unwritten.values():
            self.history.put(run)
        self._unwritten.clear()
        self._led.set()

    def _keep(self, run: Run) -> None:
        if self._leading():
            self.history.put(run)
            return
        self._unwritten[run.uid] = run
        if len(self._unwritten) > MAX_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled. No error of the history or the model ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.history.run(), name="history")
                await self._recall()
                await self._synced()
                await self.tallies.load()
                self._judge_on_the_past()
                if self._use_model:
                    group.create_task(self._learn(), name="training")
                    group.create_task(self._watch_model(), name="verdict")
                group.create_task(self._follow(), name="forecasts")
                group.create_task(self._expect(), name="expected starts")
                group.create_task(self._count(), name="accuracy")
        except Exception:
            log.exception("forecasts stopped; decisions go on without them")

    async def close(self) -> None:
        """Process the remaining ended runs and write them."""
        if self.ready.is_set():
            self.forecasts.work(SLICE * 100)
        if self._leading():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self.tallies.save()
        await self.history.close(PATIENCE)

    async def _recall(self) -> None:
        runs = await self.history.recall()
        forecaster = self.forecasts.forecaster
        if runs:
            await asyncio.to_thread(forecaster.restore, runs)
        self.forecasts.stored.update(run.uid for run in runs)
        self._unread = self._use_model
        await self._read_model()
        self.ready.set()
        log.info("forecasts: %d finished runs remembered; %s", len(runs), self.verdict().reason)

    async def _read_model(self) -> None:
        """Load the model that was trained last, where forecasts are wanted."""
        if not (self._unread and self.forecasts.wanted):
            return
        self._unread = False
        if (learned := await self.history.model()) is not None:
            self.forecasts.use(learned)
            self._judge_on_the_past()
            log.info("forecasts: a model of %d runs is in use", learned.samples)

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._arrived.wait()
                await asyncio.sleep(GATHER)
            except TimeoutError:
                pass
            self._arrived.clear()
            try:
                await self._turn()
            except Exception:
                log.exception("a forecast failed; decisions go on without it")
                await asyncio.sleep(LOOK_EVERY)

    async def _turn(self) -> None:
        """Process the facts that have arrived and report the estimates that follow, a slice at a time."""
        await self._read_model()
        moved = 0
        while True:
            left = self.forecasts.work(SLICE)
            if not left:
                moved += self.forecasts.tell()
            if not self.forecasts.behind:
                break
            await asyncio.sleep(PAUSE)
        if moved:
            self._wake()

    async def _expect(self) -> None:
        """Keep expected starts up to date and write them to the GPUJobs."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if not self._leading() or self.forecasts.behind:
                continue
            try:
                if self.expected.due:
                    await self.expected.look()
                self.expected.flush()
            except Exception:
                log.exception("expected starts could not be updated")
                await asyncio.sleep(JUDGE_EVERY)

    async def _count(self) -> None:
        """Save the accuracy counts regularly from the moment on which this process leads."""
        await self._led.wait()
        loaded = False
        while True:
            loaded = loaded or await self.tallies.load()
            if loaded:
                await self.tallies.save()
            await asyncio.sleep(KEEP_EVERY)

    def _judge_on_the_past(self) -> None:
        """Judge the loaded model by the errors recorded before a restart: a model that was bad then is bad now."""
        if self.forecasts.forecaster.model is None or not self.tallies.judgement:
            return
        rows, self.tallies.judgement = self.tallies.judgement, []
        try:
            self.forecasts.forecaster.judge_on(rows)
        except (TypeError, ValueError) as error:
            log.warning("the saved errors of the model can't be read: %r", error)

    def accuracy(self) -> Json:
        """The accuracy of forecasts and expected starts, as shown to users."""
        verdict = self.verdict()
        return {
            "since": self.tallies.since or None,
            "model": {"used": verdict.trusted, "reason": verdict.reason},
            "runtimes": accuracy_as_json(self.forecasts.records),
            "starts": self.expected.accuracy.as_json(),
            "queues": {name: record.as_json() for name, record in sorted(self.expected.ledger.records.items())},
        }

    # --- learning -----------------------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        trained_at = self.history.trained_at
        age = self._now() / 1000 - trained_at if trained_at is not None else TRAIN_EVERY
        await asyncio.sleep(max(TRAIN_FIRST, TRAIN_EVERY - age))
        while True:
            await self.train()
            await asyncio.sleep(TRAIN_EVERY)

    async def _watch_model(self) -> None:
        while True:
            self.report_verdict()
            await asyncio.sleep(JUDGE_EVERY)

    async def train(self) -> None:
        """Train a model on the history as it is now, in a separate process."""
        if not self._leading():
            return
        begun = time.monotonic()
        if await self.history.train():
            self.training_seconds = time.monotonic() - begun
            log.info("forecasts: a model was trained in %.1f s", self.training_seconds)
            self._unread = True
            await self._read_model()

    def verdict(self) -> ModelVerdict:
        """Whether the model is in use, and why."""
        if self._unread and self.history.trained_at is not None:
            reason = "the model is loaded once forecasts are wanted: by a QueuePolicy, a GPUJob, or an API request"
            return ModelVerdict(False, math.nan, math.nan, 0, reason)
        return self.forecasts.forecaster.status(self._now() / 1000)

    def report_verdict(self) -> None:
        """Report when the model switches itself off or on again: in the log, and by an event on every QueuePolicy."""
        verdict = self.verdict()
        if self.forecasts.forecaster.model is None or verdict.trusted == self._trusted:
            return
        first, self._trusted = self._trusted is None, verdict.trusted
        if first and verdict.trusted:
            return
        log.log(logging.INFO if verdict.trusted else logging.WARNING, "forecasts: %s", verdict.reason)
        kind, reason = ("Normal", "ForecastModelInUse") if verdict.trusted else ("Warning", "ForecastModelOff")
        for policy in self._mirror.objects[kube.QUEUE_POLICIES].values():
            self._recorder.record(policy, kind, reason, verdict.reason)


# --- for the API ------------------------------------------------------------------------------------------------------


def alias(uid: str) -> str:
    """The name of a Workload or a ClusterQueue in an answer that anybody may read: a hash of its uid. Who can list these objects
    knows which one it is.

    The uid itself must not be shown: a running job proves by it that a progress report is its own.
    """
    return hashlib.sha256(uid.encode()).hexdigest()[:32]


def rows_as_json(forecasts: Forecasts) -> Iterator[tuple[str, Json]]:
    """Estimates of whole runtimes by workload (`namespace/name`), the quantiles of `Forecast.points` in seconds; `byFlavor` where
    flavors differ and none is assigned yet.
    """
    for key, estimate in list(forecasts.estimates().items()):
        row: Json = {"quantiles": _seconds(estimate), "source": estimate.source, "samples": estimate.samples}
        if by_flavor := forecasts.by_flavor(key):
            row["byFlavor"] = {flavor: _seconds(each) for flavor, each in by_flavor.items()}
        yield key, row


def _seconds(estimate: Forecast) -> list[float]:
    return [seconds for _, seconds in estimate.points]


def accuracy_as_json(records: Mapping[str, EstimateRecord]) -> list[Json]:
    """The accuracy of forecasts by source: runs, the share within each quantile, the typical factor between forecast and
    truth."""
    return [
        {
            "source": source,
            "runs": record.ended,
            "within": {f"{level:g}": count / max(1, record.ended) for level, count in record.below.items()},
            "factor": math.exp(record.log_error / max(1, record.ended)),
        }
        for source, record in sorted(records.items())
    ]
