"""The history store beside the event loop: database access and training run in threads and processes.

Ended runs and attempts are kept in memory until they are written; a database that does not answer costs only that memory. Writing
one again changes nothing, so a process that restarts may hand in all that it sees.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from gangline.forecast.errors import ModelError, StoreError, TooFewRunsError, TrainingError
from gangline.forecast.history.attempts import AttemptQuery, JobAttempt, LastAttempt, newest_first
from gangline.forecast.history.budgets import UsedSpan
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run
from gangline.forecast.history.usage import Group, UsageSum, Window, add
from gangline.forecast.learning.worker import train_file
from gangline.tenants import SharedRoom

if TYPE_CHECKING:
    from gangline.forecast.learning.quantile_model import QuantileModel

log = logging.getLogger(__name__)

T = TypeVar("T")

#: runs that end within this time are written together, in seconds
GATHER: Final = 1.0
#: a database that refuses writes is tried again after this, in seconds
RETRY: Final = 15.0
#: old runs are deleted this often, in seconds
PRUNE_EVERY: Final = 6 * 3600.0
#: how many runs wait for a database that does not answer; beyond, the oldest are dropped and counted
MAX_WAITING: Final = 100_000
#: … and how many attempts; beyond, the oldest ones of the namespace with most are
MAX_ATTEMPTS: Final = 20_000
#: how many of the latest runs are loaded at the start
REMEMBERED: Final = 50_000


class History:
    """Ended runs on their way to the store, and the model trained on them. Used from one event loop."""

    def __init__(self, url: str, model_file: Path, *, wall: Callable[[], float] = time.time) -> None:
        """Open the history. `url` as HistoryStore takes it; `model_file` is the path of the trained model."""
        self.written = self.dropped = 0
        self.error = ""  #: the database's last error, "" while it accepts writes
        self._url = url
        self._model_file = model_file
        self._wall = wall
        self._waiting: dict[str, Run] = {}
        self._attempts: SharedRoom[str, tuple[str, JobAttempt]] = SharedRoom(MAX_ATTEMPTS)  # with their cluster
        self._arrived = asyncio.Event()
        self._store: HistoryStore | None = None
        self._pruned = -PRUNE_EVERY
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")

    @property
    def waiting(self) -> int:
        """How many ended runs are not written yet."""
        return len(self._waiting)

    def put(self, run: Run) -> None:
        """Queue a run to be written soon."""
        self._waiting[run.uid] = run
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1
        self._arrived.set()

    async def recall(self) -> list[Run]:
        """The latest finished runs, in the order of submission; none where the database does not answer."""
        for pause in (RETRY, 0.0):
            try:
                runs = await self._in_thread(lambda: self._opened().runs(limit=REMEMBERED))
                return [run for run in runs if run.seconds is not None]
            except StoreError as error:
                self._refused(error)
                await asyncio.sleep(pause)
        return []

    async def ended(self, namespace: str, since: float, most: int) -> list[Run]:
        """Runs of a namespace ("" = of all) that ended at or after `since`, the last ones, with those not written yet."""
        waiting = [
            run
            for run in self._waiting.values()
            if run.finish is not None and run.finish >= since and namespace in ("", run.namespace)
        ]
        try:
            written = await self._in_thread(lambda: self._opened().ended(since, most, namespace))
        except StoreError as error:
            self._refused(error)
            written = []
        return list({run.uid: run for run in (*written, *waiting)}.values())

    # --- attempts -----------------------------------------------------------------------------------------------------

    def put_attempt(self, cluster: str, attempt: JobAttempt) -> None:
        """Queue an attempt to be written soon."""
        self._attempts.put(attempt.namespace, attempt.key, (cluster, attempt))
        self._arrived.set()

    async def attempts(self, query: AttemptQuery) -> list[JobAttempt]:
        """The attempts that are asked for, with those not written yet; those alone where the database does not answer."""
        waiting = [each for cluster, each in self._attempts.values() if cluster == query.cluster]
        try:
            written = await self._in_thread(lambda: self._opened().attempts(query))
        except StoreError as error:
            self._refused(error)
            written = []
        found = {each.key: each for each in (*written, *waiting)}  # one in progress in the database may have ended
        return newest_first([each for each in found.values() if query.fits(each)], query.most)

    async def usage(self, window: Window, newer: Mapping[str, JobAttempt]) -> dict[Group, UsageSum]:
        """The sums of a cluster's attempts, but for those that the caller has `newer`, by key."""
        waiting = {each.key: each for cluster, each in self._attempts.values() if cluster == window.cluster}

        def add_up() -> dict[Group, UsageSum]:
            sums = self._opened().usage(window, newer.keys() | waiting.keys())
            add(sums, (each for key, each in waiting.items() if key not in newer), window)
            return sums

        try:
            return await self._in_thread(add_up)
        except StoreError as error:
            self._refused(error)
            sums: dict[Group, UsageSum] = {}
            add(sums, (each for key, each in waiting.items() if key not in newer), window)
            return sums

    async def open_attempts(self, cluster: str) -> list[JobAttempt]:
        """The attempts that an earlier leader of this cluster has left in progress. Raises StoreError."""
        return await self._in_thread(lambda: self._opened().open_attempts(cluster))

    async def last_attempts(self, uids: Collection[str], without: Collection[str] = ()) -> dict[str, LastAttempt]:
        """The last attempt of each of these Workloads that has one, by uid, but for those with the keys `without`.
        Raises StoreError.
        """
        return await self._in_thread(lambda: self._opened().last_attempts(uids, without))

    async def fold_ended(
        self, cluster: str, since: float, without: Collection[str], take: Callable[[UsedSpan], None]
    ) -> None:
        """Hand over what attempts took that ended at or after `since`, with those not written yet, in the thread. Raises
        StoreError.
        """
        waiting = {each.key: each for of, each in self._attempts.values() if of == cluster}

        def fold() -> None:
            self._opened().fold_ended(cluster, since, without | waiting.keys(), take)
            for key, each in waiting.items():
                if each.ended is not None and each.ended >= since and key not in without:
                    take(UsedSpan.of(each))

        without = frozenset(without)
        await self._in_thread(fold)

    async def keep(self, name: str, text: str) -> None:
        """Store a text beside the runs. Raises StoreError, also after close()."""
        if self._closed:
            raise StoreError("the history is closed")
        await self._in_thread(lambda: self._opened().keep(name, text))

    async def kept(self, name: str) -> str | None:
        """The text stored under a name. Raises StoreError."""
        return await self._in_thread(lambda: self._opened().kept(name))

    async def run(self) -> None:
        """Write ended runs, and attempts, until cancelled."""
        while True:
            await self._arrived.wait()
            await asyncio.sleep(GATHER)
            self._arrived.clear()
            if not await self.flush():
                await asyncio.sleep(RETRY)
                self._arrived.set()

    async def flush(self) -> bool:
        """Write the waiting runs and attempts. Returns False when the database refuses them; they are kept then."""
        batch, attempts = dict(self._waiting), list(self._attempts.values())
        if not batch and not attempts:
            return True
        try:
            await self._in_thread(lambda: self._write(list(batch.values()), attempts))
        except StoreError as error:
            self._refused(error)
            return False
        for uid, run in batch.items():
            if self._waiting.get(uid) is run:
                del self._waiting[uid]
        for entry in attempts:
            space, key = entry[1].namespace, entry[1].key
            if self._attempts.get(space, key) is entry:
                self._attempts.drop(space, key)
        self.written += len(batch)
        self.error = ""
        return True

    async def close(self, patience: float) -> None:
        """Write the remaining runs and attempts, within `patience` seconds, and close the database."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(patience):
                await self.flush()
        except TimeoutError:
            log.warning("%d finished runs could not be written within %g s", self.waiting, patience)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()

    # --- learning -----------------------------------------------------------------------------------------------------

    @property
    def trained_at(self) -> float | None:
        """The time at which the model on the disk was trained, in Unix seconds; None where there is none."""
        try:
            return self._model_file.stat().st_mtime
        except OSError:
            return None

    async def model(self) -> QuantileModel | None:
        """The model that was trained last; None where there is none that this version and machine can use."""
        if self.trained_at is None:
            return None
        try:
            return await asyncio.to_thread(self._load)
        except (ModelError, ImportError) as error:
            log.warning("the model is not used: %s", error)
            return None

    def _load(self) -> QuantileModel:
        from gangline.forecast.learning.quantile_model import load

        return load(self._model_file)

    async def train(self) -> bool:
        """Train in a separate process. Returns False where there is not enough history, or the training failed."""
        try:
            await asyncio.to_thread(train_file, self._url, self._model_file, self._wall())
            return True
        except TooFewRunsError as error:
            log.info("no training yet: %s", error)
        except (TrainingError, OSError) as error:
            log.warning("training failed: %s", error)
        return False

    # --- in the thread ------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _opened(self) -> HistoryStore:
        if self._store is None:
            self._store = HistoryStore(self._url)
        return self._store

    def _write(self, runs: list[Run], attempts: list[tuple[str, JobAttempt]]) -> None:
        store = self._opened()
        store.put(runs)
        for cluster in {cluster for cluster, _ in attempts}:
            store.put_attempts(cluster, [each for of, each in attempts if of == cluster])
        if time.monotonic() - self._pruned >= PRUNE_EVERY:
            self._pruned = time.monotonic()
            store.prune(self._wall())

    def _refused(self, error: StoreError) -> None:
        if str(error) != self.error:
            log.warning("the history is not available, runs and attempts wait in memory: %s", error)
        self.error = str(error)
