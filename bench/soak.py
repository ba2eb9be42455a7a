"""Hours in minutes: a steady load while the operator is killed, the API server restarts and watches are cut.

    python -m bench.soak --minutes 30 --seed 1

Workloads arrive at random (seeded) at a share of what quota and API server could take, run, finish, and are deleted a while
later. `bench.invariants` watches every event. Every so often the world is held still until all is at rest: then every queue's
status has to say exactly what its workloads add up to. In the last third the operator is not killed, so that its memory shows;
`--calm` leaves all faults out, for how its memory fares over long.
A table of faults goes to stderr, one JSON object to stdout. Exit status 1 where an invariant broke.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import evidence
from bench.command import carried_out
from bench.drivers import Workloads, finished_patch
from bench.insisting import RETRY, insist
from bench.invariants import Ledger, differences
from bench.load import quantile
from bench.memory import MemoryTrend
from bench.official import OfficialClient, ReadError
from bench.parameters import FILE, Load, ParameterError, WorkloadClass, read
from bench.proxy import CuttingProxy
from bench.report import rounded
from bench.revisions import Revisions
from bench.stack import BenchError, Process, Stack
from gangline.api import names
from gangline.control.audit import audit_check, decision_index
from gangline.control.audit.audit_check import AuditResult
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, Conflict, NotFound
from gangline.kube.reflector import Event, Reflector, Removed, Upsert
from gangline.kube.resources import Json, key_of

#: Seconds from the recovery after a fault to the next one, between two checks at rest, and two looks at the operator's memory.
#: A fault costs up to 20 seconds of admitting, most of them a killed operator's lease, and a minute or two until no workload
#: waits any more: with more of them the load could not be kept up.
FAULTS, CHECKS, LOOKS = (60.0, 120.0), 60.0, 2.0
#: For at most so long is an API server away that is restarted, in seconds. From 15 on the operator loses its lease over it.
AWAY = 1.5
#: Finished workloads are deleted after so many seconds.
RETENTION = 10.0
#: So long may everything take to come to rest for a check, and may pass at the end without anybody finishing, in seconds. A
#: killed operator's lease alone holds for 15.
REST, DRAIN = 60.0, 60.0
#: Workloads that find out what the API server can take.
PROBE = 300
CONCURRENCY = 24
#: How often an operator is started until one gets ready.
STARTS = 3
#: The share of the run in which the operator may be killed.
KILLS_UNTIL = 2 / 3


@dataclass(slots=True)
class Life:
    """One workload as the load sees it."""

    kind: WorkloadClass
    runtime: float
    created: float
    latest: Json = field(default_factory=dict[str, Any])
    admitted: float = 0.0
    running: bool = False
    finished: bool = False


class Population:
    """Creates workloads, ends each its runtime after it was admitted, releases what is evicted, deletes what finished. Insists
    where the API server is away. `going` holds all writes back while it is not set.
    """

    def __init__(self, client: ApiClient, load: Load, chance: random.Random) -> None:
        self.ledger = Ledger()
        self.lives: dict[str, Life] = {}
        self.created = self.finished = 0
        self.waits: list[float] = []
        self.last_admission = time.monotonic()
        self.going = asyncio.Event()
        self.going.set()
        self._client = client
        self._load = load
        self._chance = chance
        self._driver = Workloads()
        self._retention = RETENTION
        self._gate = asyncio.Semaphore(CONCURRENCY)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reflector = Reflector(client, kube.WORKLOADS)
        self._failure: BaseException | None = None

    async def open(self) -> None:
        self._spawn(self._reflector.run(self._take))
        await self._reflector.synced.wait()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    @property
    def alive(self) -> int:
        """Created and not finished."""
        return self.created - self.finished

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the load -----------------------------------------------------------------------------------------------------

    def arrive(self, kind: WorkloadClass, queue: str) -> None:
        """One more of this class; runtimes differ by a half up or down."""
        number = self.created
        self.created += 1
        body = self._driver.build(kind, queue, number)
        runtime = kind.runtime * self._chance.uniform(0.5, 1.5)
        self.lives[key_of(body)] = Life(kind, runtime, time.monotonic())
        self._spawn(self._create(queue, body))

    async def probe(self, kind: WorkloadClass) -> float:
        """Workloads per second that get through, from created to deleted, when nothing but the API server holds them up."""
        start = time.monotonic()
        quick, self._retention = replace(kind, runtime=0.0), 0.0
        for number in range(PROBE):
            self.arrive(quick, self._load.queues[number % len(self._load.queues)][1])
        while self.lives:
            self.raise_failure()
            await asyncio.sleep(0.05)
        self._retention = RETENTION
        return PROBE / (time.monotonic() - start)

    async def _create(self, queue: str, body: Json) -> None:
        async with self._gate:
            await insist(lambda: self._client.create(kube.WORKLOADS, queue, body), AlreadyExists)

    async def _end(self, key: str, life: Life, admitted: float) -> None:
        await asyncio.sleep(life.runtime)

        async def finish() -> None:
            while life.running and life.admitted == admitted:
                meta = life.latest["metadata"]
                body = finished_patch(life.latest, int(time.time() * 1000))
                with contextlib.suppress(Conflict):
                    await self._client.patch(
                        kube.WORKLOADS, meta["namespace"], meta["name"], body, subresource="status"
                    )
                    return
                await asyncio.sleep(RETRY)  # the watch will show what came between

        await self.going.wait()
        async with self._gate:
            await insist(finish)

    async def _release(self, metadata: Json, body: Json) -> None:
        await self.going.wait()
        async with self._gate:
            await insist(
                lambda: self._client.patch(
                    kube.WORKLOADS, metadata["namespace"], metadata["name"], body, subresource="status"
                ),
                Conflict,  # it has changed: the watch will show it once more
                NotFound,
            )

    async def _bury(self, workload: Json) -> None:
        await asyncio.sleep(self._retention)
        await self.going.wait()
        meta = workload["metadata"]
        async with self._gate:
            await insist(
                lambda: self._client.delete(kube.WORKLOADS, meta["namespace"], meta["name"], uid=meta["uid"]), NotFound
            )

    # --- what the watch shows -----------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if isinstance(event, Removed):
            self.ledger.remove(event.key)
            self.lives.pop(event.key, None)
        elif isinstance(event, Upsert):
            self.ledger.upsert(event.obj)
            self._follow(event.obj)

    def _follow(self, workload: Json) -> None:
        key, now = key_of(workload), time.monotonic()
        life = self.lives.get(key)
        if life is None or life.finished:
            return
        phase = self._driver.phase(workload)
        life.latest = workload
        if phase == "finished":
            life.finished, life.running, life.latest = True, False, {}
            self.finished += 1
            self._spawn(self._bury(workload))
        elif phase == "running" and not life.running:
            life.running, life.admitted = True, now
            self.last_admission = now
            self.waits.append(now - life.created)
            self._spawn(self._end(key, life, now))
        elif phase == "waiting":
            life.running = False
        if (release := self._driver.release(workload, int(time.time() * 1000))) is not None:
            self._spawn(self._release(workload["metadata"], release))

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error


@dataclass(frozen=True, slots=True)
class Course:
    """How a run goes."""

    seconds: float
    share: float  #: of the most that gets through
    seed: int  #: of arrivals and faults
    away: float  #: seconds for which a restarted API server is away at most
    calm: bool  #: no faults at all


class Soak:
    """One run. `run()` returns its results."""

    def __init__(self, stack: Stack, load: Load, course: Course) -> None:
        self._stack = stack
        self._load = load
        self._course = course
        self._chance = random.Random(course.seed)
        self._faults: Counter[str] = Counter()
        self._recoveries: list[float] = []
        self._memory = MemoryTrend()
        self._checks = 0
        self._violations: list[str] = []
        self._operator: Process | None = None
        #: held while a fault happens or a check at rest is made: one thing at a time
        self._quiet = asyncio.Lock()

    async def run(self) -> Json:
        address = urlsplit(config.load(self._stack.kubeconfig).server)
        async with (
            ApiClient(config.load(self._stack.kubeconfig), user_agent="gangline-bench-load") as client,
            CuttingProxy(address.port or 443) as proxy,
        ):
            self._official = OfficialClient(self._stack.kubeconfig)
            self._proxy = proxy
            self._stack.kubeconfig = self._through(proxy.port)
            self._population = Population(client, self._load, self._chance)
            await self._population.open()
            await client.create(kube.QUEUE_POLICIES, None, self._policy())
            await self._start_operator()
            kinds = (evidence.WORKLOADS, evidence.CLUSTER_QUEUES, evidence.COHORTS)
            async with Revisions.of(self._official, *kinds) as self._revisions:
                return await self._live()

    def _policy(self) -> Json:
        spec = {
            "clusterQueues": {"names": [queue for _, queue in self._load.queues]},
        }
        return {"apiVersion": names.V1ALPHA1, "kind": "QueuePolicy", "metadata": {"name": "soak"}, "spec": spec}

    def _through(self, port: int) -> Path:
        """The kubeconfig with the proxy's address."""
        text = self._stack.kubeconfig.read_text()
        path = self._stack.directory / "through-proxy.kubeconfig"
        server = config.load(self._stack.kubeconfig).server
        path.write_text(text.replace(server, f"https://127.0.0.1:{port}"))
        path.chmod(0o600)
        return path

    async def _live(self) -> Json:
        population = self._population
        most = await population.probe(self._load.classes[0])
        rate = self._course.share * min(most, self._rate_of_quota())
        print(f"{most:.0f} workloads/s at most; now {rate:.0f}/s for {self._course.seconds:.0f} s", file=sys.stderr)
        population.waits.clear()
        start, created = time.monotonic(), population.created
        jobs = [self._arrivals(rate), self._check_often(), self._look(start)]
        jobs += [] if self._course.calm else [self._disturb(start)]
        work = [asyncio.ensure_future(job) for job in jobs]
        try:
            while time.monotonic() - start < self._course.seconds and not any(task.done() for task in work):
                population.raise_failure()
                await asyncio.sleep(0.2)
            for task in work:
                if task.done():
                    task.result()
            work[0].cancel()  # no more arrivals
            async with self._quiet:
                await self._drain()
                await self._check_at_rest()
                await self._revisions.settle()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            population.close()
        return self._results(time.monotonic() - start, rate, most, population.created - created)

    def _rate_of_quota(self) -> float:
        """Workloads per second that would keep all of the quota busy."""
        work = sum(kind.cores * kind.runtime / kind.every for kind in self._load.classes)  # cores per queue
        per_queue = sum(1 / kind.every for kind in self._load.classes)
        return len(self._load.queues) * per_queue * self._load.nominal_cpu / work

    # --- what goes on at the same time --------------------------------------------------------------------------------

    async def _arrivals(self, rate: float) -> None:
        weights = [1 / kind.every for kind in self._load.classes]
        due = time.monotonic()
        while True:
            due += self._chance.expovariate(rate)
            await asyncio.sleep(due - time.monotonic())
            if not self._population.going.is_set():
                await self._population.going.wait()
                due = time.monotonic()
            kind = self._chance.choices(self._load.classes, weights)[0]
            self._population.arrive(kind, self._chance.choice(self._load.queues)[1])

    async def _disturb(self, start: float) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*FAULTS))
            kinds = ["watches cut", "watches cut", "API server restarted"]
            if time.monotonic() - start < KILLS_UNTIL * self._course.seconds:
                kinds.append("operator killed")
            fault = self._chance.choice(kinds)
            async with self._quiet:
                await self._inflict(fault)
                await self._recovered()

    async def _inflict(self, fault: str) -> None:
        self._faults[fault] += 1
        print(f"{fault} ({self._population.alive} unfinished)", file=sys.stderr)
        if fault == "watches cut":
            self._proxy.cut()
        elif fault == "API server restarted":
            graceful, down = self._chance.random() < 0.3, self._chance.uniform(0, self._course.away)
            await asyncio.to_thread(self._stack.restart_apiserver, graceful=graceful, down=down)
        elif self._operator is not None:  # else it has ended by itself, and is being started again
            self._operator.kill()
            self._operator = None
            await asyncio.sleep(self._chance.uniform(0, 1))
            await self._start_operator()

    async def _recovered(self) -> None:
        """Wait for the next admission; after `REST` seconds without one, record a violation."""
        since = time.monotonic()
        while self._population.last_admission < since:
            if time.monotonic() - since > REST:
                self._violations.append(f"no workload was admitted for {REST:.0f} s after a fault")
                return
            await asyncio.sleep(0.05)
        self._recoveries.append(self._population.last_admission - since)

    async def _start_operator(self) -> None:
        """As Kubernetes would: one that does not get ready is killed, and another is started."""
        last: BenchError | None = None
        for _ in range(STARTS):
            try:
                self._operator = await asyncio.to_thread(self._stack.operator)
                self._memory.new_life()
                return
            except BenchError as error:
                self._faults["operator not ready in time"] += 1
                last = error
                self._stack.processes["operator"].kill()
        assert last is not None
        raise last

    async def _look(self, start: float) -> None:
        """The operator's memory; and it is started again where it ended by itself, as Kubernetes would do."""
        while True:
            await asyncio.sleep(LOOKS)
            if self._operator is None:
                continue
            if not self._operator.alive():
                self._faults["operator ended by itself"] += 1
                self._operator = None
                await self._start_operator()
            else:
                self._memory.note(time.monotonic() - start, self._operator.pid)

    async def _check_often(self) -> None:
        while True:
            await asyncio.sleep(CHECKS)
            async with self._quiet:
                self._population.going.clear()
                await self._check_at_rest()
                self._population.going.set()

    # --- checks -------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait for the backlog, however long; ends when no workload has finished for a while."""
        left, since = self._population.alive, time.monotonic()
        while self._population.alive and time.monotonic() < since + DRAIN:
            self._population.raise_failure()
            await asyncio.sleep(0.2)
            if self._population.alive < left:
                left, since = self._population.alive, time.monotonic()
        if self._population.alive:
            left = ", ".join(self._population.ledger.unfinished[:10])
            self._violations.append(f"{self._population.alive} did not finish, such as {left}")

    async def _check_at_rest(self) -> None:
        """The statuses may lag behind by a second or two; they must come right without anything else happening."""
        self._checks += 1
        deadline = time.monotonic() + REST
        while found := await self._compare():
            if time.monotonic() > deadline:
                self._violations += [f"at rest after {REST:.0f} s: {text}" for text in found]
                return
            await asyncio.sleep(0.5)

    async def _compare(self) -> list[str]:
        try:
            cluster_queues = (await self._official.list(kube.CLUSTER_QUEUES)).items
            local_queues = (await self._official.list(kube.LOCAL_QUEUES)).items
            workloads = (await self._official.list(kube.WORKLOADS)).items
        except ReadError as error:
            return [f"the queues can't be read: {error}"]
        where = {key_of(queue): queue["spec"]["clusterQueue"] for queue in local_queues}
        return differences(workloads, [*cluster_queues, *local_queues], where)

    def _results(self, seconds: float, rate: float, most: float, created: int) -> Json:
        ledger, waits = self._population.ledger, sorted(self._population.waits)
        recoveries = sorted(self._recoveries)
        proof = self._revisions.proof
        violations = [*proof.violations, *ledger.violations, *self._violations]
        return rounded(
            {
                "load": self._load.name,
                "seed": self._course.seed,
                "seconds": seconds,
                "workloads_per_second": {"at_most": most, "offered": rate, "created": created / seconds},
                "created": self._population.created,
                "finished": self._population.finished,
                "admissions": ledger.admissions,
                "evictions": ledger.evictions,
                "wait_seconds": {"p50": quantile(waits, 0.5), "p95": quantile(waits, 0.95)} if waits else {},
                "faults": dict(self._faults),
                "recovery_seconds": {"p50": quantile(recoveries, 0.5), "max": recoveries[-1]} if recoveries else {},
                "checks_at_rest": self._checks,
                "revisions": {"seen": proof.revisions, "reservations": proof.checked, "gaps": self._revisions.gaps},
                "operator_memory": self._memory.summary(),
                "violations": violations[:50],
                "violation_count": len(violations),
            }
        )


async def soak(load: Load, course: Course, parameters: Path = FILE) -> Json:
    stack = Stack(load, parameters=parameters)
    await asyncio.to_thread(stack.__enter__)
    stack.audit = record = stack.directory / "record.jsonl"
    try:
        results = await Soak(stack, load, course).run()
        missed = (await asyncio.to_thread(_replayed, record)).missed
        blamed = [f"{name} waited at {at} and would have started after a restart" for at, name in missed]
        violations = [*results["violations"], *blamed][:50]
        count = results["violation_count"] + len(blamed)
        return {**results, "starts_missed": len(missed), "violations": violations, "violation_count": count}
    finally:
        await asyncio.to_thread(stack.__exit__, None, None, None)


def _replayed(record: Path) -> AuditResult:
    """What a replay of the operator's record finds, every ten minutes of it."""
    outcome = AuditResult()
    return audit_check.check(audit_check.read(decision_index.files(record), outcome), outcome)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A steady load with faults; nothing may get lost.")
    parser.add_argument("--load", default="soak", help="a load of the parameter file (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--share", type=float, default=0.6, help="of the most that gets through (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and faults (default: %(default)s)")
    parser.add_argument(
        "--away",
        type=float,
        default=AWAY,
        help="seconds for which a restarted API server is away at most (%(default)s)",
    )
    parser.add_argument("--calm", action="store_true", help="no faults at all")
    parser.add_argument("--parameters", type=Path, default=FILE, help="YAML file with loads and sizes")
    options = parser.parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.minutes <= 0 or not 0 < options.share <= 1 or options.away < 0:
        raise ParameterError("--minutes above 0, --share above 0 and at most 1, and --away from 0 on are wanted")
    course = Course(60 * options.minutes, options.share, options.seed, options.away, options.calm)
    load = read(options.load, "full", options.parameters)
    result = asyncio.run(soak(load, course, options.parameters))
    for text in result["violations"]:
        print(f"VIOLATION: {text}", file=sys.stderr)
    print(json.dumps(result))
    return 1 if result["violation_count"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
