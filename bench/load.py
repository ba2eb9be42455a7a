"""The load process: creates objects on the load's schedule, sees each admitted, ends it its runtime later.

    python -m bench.load --kubeconfig FILE --load baseline --size smoke --driver workloads --out results.json

Created, admitted and finished are the moments at which its own watch shows it, as in Kueue's benchmark; an evicted
workload waits again and its runtime counts from its last admission.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import logging
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.drivers import DRIVERS, Driver, finished_patch
from bench.insisting import RETRY, insist
from bench.parameters import FILE, Load, WorkloadClass, read
from bench.usage import usage
from gangline.kube import config
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError, Conflict
from gangline.kube.reflector import Event, Reflector, Upsert
from gangline.kube.resources import Json, key_of

log = logging.getLogger(__name__)

#: Concurrent requests: creations, and as many again for finishing.
CONCURRENCY = 24
#: If no object finishes for this long, in seconds, the run is given up.
PATIENCE = 45.0


@dataclass(slots=True)
class Record:
    """The life of one object, in time.monotonic() seconds."""

    kind: WorkloadClass
    seen: float
    first_admitted: float = 0.0
    admitted: float = 0.0  # the last time
    finished: float = 0.0
    evictions: int = 0
    held: float = 0.0  # seconds, all admissions
    running: bool = False
    latest: Json = field(default_factory=dict[str, Any])


class LoadProcess:
    def __init__(self, client: ApiClient, load: Load, driver: Driver, patience: float = PATIENCE) -> None:
        self._client = client
        self._load = load
        self._driver = driver
        self._patience = patience
        self._classes = {kind.name: kind for kind in load.classes}
        self._records: dict[str, Record] = {}
        self._finished = 0
        self._created = 0.0  # when the last series was complete
        self._progress = asyncio.Event()
        self._creating = asyncio.Semaphore(CONCURRENCY)
        self._ending = asyncio.Semaphore(CONCURRENCY)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def run(self) -> Json:
        """The results, even if not all finished (then "finished" is below "workloads")."""
        reflector = Reflector(self._client, self._driver.resource)
        watching = self._spawn(reflector.run(self._take))
        await reflector.synced.wait()
        before, cpu = time.monotonic(), usage(os.getpid())
        for _, queue in self._load.queues:
            for kind in self._load.classes:
                self._spawn(self._create(kind, queue, before))
        try:
            await self._all_finished()
        finally:
            watching.cancel()
        end = max((record.finished for record in self._records.values()), default=time.monotonic())
        spent = usage(os.getpid()).since(cpu)
        return {
            **summary(self._load, list(self._records.values()), end - before),
            "unfinished": self._unfinished(),
            "creating_seconds": max(0.0, self._created - before),
            "cpu_seconds": spent.cpu_seconds,
            "peak_mb": spent.peak_mb,
        }

    async def _all_finished(self) -> None:
        """Returns when all have finished, or when none has finished for too long."""
        while self._finished < self._load.workloads:
            self._progress.clear()
            try:
                async with asyncio.timeout(self._patience):
                    await self._progress.wait()
            except TimeoutError:
                log.error("%d of %d finished, then nothing", self._finished, self._load.workloads)
                return
            if self._failure is not None:
                raise self._failure

    def _unfinished(self, most: int = 10) -> list[Json]:
        """Some unfinished objects, with their last status: the start of a diagnosis when a run stalls."""
        waiting = ((key, record) for key, record in self._records.items() if not record.finished)
        return [
            {"key": key, "running": record.running, "status": record.latest.get("status")}
            for key, record in itertools.islice(waiting, most)
        ]

    async def _create(self, kind: WorkloadClass, queue: str, start: float) -> None:
        """One class in one queue, in order, each when it is due or as soon after as the server accepts it."""
        for number in range(kind.count):
            await asyncio.sleep(start + number * kind.every - time.monotonic())
            body = self._driver.build(kind, queue, number)
            async with self._creating:
                await insist(lambda body=body: self._client.create(self._driver.resource, queue, body), AlreadyExists)
        self._created = time.monotonic()

    # --- what the watch shows ---

    def _take(self, event: Event) -> None:
        if not isinstance(event, Upsert):
            return
        obj = event.obj
        key, now = key_of(obj), time.monotonic()
        record = self._records.get(key)
        if record is None:
            kind = self._classes[obj["metadata"]["labels"]["bench.gangline.io/class"]]
            record = self._records[key] = Record(kind, now)
        phase = self._driver.phase(obj)
        if record.finished:
            return
        record.latest = obj
        if record.running and phase != "running":
            record.held += now - record.admitted
            record.running = False
            record.evictions += phase == "waiting"
        elif not record.running and phase == "running":
            record.first_admitted = record.first_admitted or now
            record.admitted = now
            record.running = True
            if self._driver.finishes:
                self._spawn(self._finish(record, now))
        if (release := self._driver.release(obj, int(time.time() * 1000))) is not None:
            self._spawn(self._release(obj["metadata"], release))
        if phase == "finished":
            record.finished = now
            record.latest = {}
            self._finished += 1
            self._progress.set()

    async def _finish(self, record: Record, admitted: float) -> None:
        """Mark it Finished when its runtime is over, unless it was evicted before."""
        await asyncio.sleep(admitted + record.kind.runtime - time.monotonic())
        while True:
            async with self._ending:
                if not record.running or record.admitted != admitted:  # or while it waited for a slot
                    return
                metadata = record.latest["metadata"]
                try:
                    body = finished_patch(record.latest, int(time.time() * 1000))
                    await self._client.patch(
                        self._driver.resource, metadata["namespace"], metadata["name"], body, subresource="status"
                    )
                    return
                except ApiError as error:
                    if not isinstance(error, Conflict) and not error.retryable:
                        raise
            await asyncio.sleep(RETRY)

    async def _release(self, metadata: Json, body: Json) -> None:
        async with self._ending:
            await insist(
                lambda: self._client.patch(
                    self._driver.resource, metadata["namespace"], metadata["name"], body, subresource="status"
                ),
                Conflict,  # it has changed: there will be another event
            )

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._progress.set()


def summary(load: Load, records: Sequence[Record], wall: float) -> Json:
    """Figures from the records: waits by class, and the used share of the quota."""
    core_seconds = sum(record.held * record.kind.cores for record in records)
    return {
        "workloads": load.workloads,
        "finished": sum(record.finished > 0 for record in records),
        "wall_seconds": wall,
        "quota_use": core_seconds / (load.quota * wall) if wall > 0 else 0.0,
        "evictions": sum(record.evictions for record in records),
        "time_to_admission_seconds": {kind.name: _waits(kind, records) for kind in load.classes},
    }


def _waits(kind: WorkloadClass, records: Sequence[Record]) -> Json:
    """From created to the last admission, as Kueue's benchmark counts it; `first_mean`: to the first one."""
    mine = [record for record in records if record.kind is kind and record.admitted]
    if not mine:
        return {"count": 0}
    waits = sorted(record.admitted - record.seen for record in mine)
    return {
        "count": len(waits),
        "mean": statistics.fmean(waits),
        "p50": quantile(waits, 0.50),
        "p95": quantile(waits, 0.95),
        "max": waits[-1],
        "first_mean": statistics.fmean(record.first_admitted - record.seen for record in mine),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


async def _main(arguments: argparse.Namespace) -> None:
    load = read(arguments.load, arguments.size, arguments.parameters)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    async with ApiClient(config.load(arguments.kubeconfig), user_agent="gangline-bench-load") as client:
        results = await LoadProcess(client, load, DRIVERS[arguments.driver], arguments.patience).run()
    arguments.out.write_text(json.dumps(results))


def main() -> None:
    parser = argparse.ArgumentParser(description="The load process of the benchmark.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--parameters", type=Path, default=FILE)
    parser.add_argument("--load", required=True)
    parser.add_argument("--size", required=True)
    parser.add_argument("--driver", choices=sorted(DRIVERS), required=True)
    parser.add_argument("--patience", type=float, default=PATIENCE)
    parser.add_argument("--out", type=Path, required=True)
    logging.basicConfig(level=logging.INFO, format="load: %(message)s")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
