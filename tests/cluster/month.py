"""A month of jobs played into a live cluster at speed, on a control plane without Kubernetes' own controllers.

The operator goes by a clock that stands still until it is set. It is set from one instant at which something happens to the
next: jobs are submitted, or end. Then everything that follows is waited for: the operator starts each job that fits, and sees the
end of each that has ended. So a month takes minutes, every instant that the operator writes is one of the month's, and a job
holds its quota for exactly as long as the trace says. The jobs are real Jobs; the player writes their status, as their
controller would.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from bench.stack import SIMULATION
from tests.cluster import harness
from tests.cluster.clocks import SetClock
from tests.cluster.conftest import System, standing
from tests.cluster.harness import OperatorProcess

from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.reflector import Event, Reflector, Upsert
from gangline.traces import TraceJob

Json: TypeAlias = dict[str, Any]

DAY = 86_400
MONTH = 30 * DAY
#: the ClusterQueue of all jobs, and the namespaces in which they are in turn, each with a LocalQueue of its name
QUEUE = "research"
TEAMS = ("default", "speech", "vision", "language", "robots")
USERS = 23
GPUS_OF_A_NODE = 8
CONCURRENCY = 24
#: real seconds in which something has to happen, or the clock goes on by a second: what waits for a time would wait for ever
PATIENCE = 5.0
#: so often in a row; then the test has failed
MOST_STEPS = 60

#: quantiles of the durations of the GPU jobs of Venus in June 2020, in seconds (Helios, SC'21, CC-BY-4.0)
DURATIONS = (
    *((0.0, 1), (0.05, 4), (0.1, 9), (0.25, 47), (0.5, 231), (0.75, 2_267), (0.9, 18_385), (0.95, 51_055)),
    *((0.99, 172_800), (1.0, 172_800)),
)
#: … and the shares of the numbers of their GPUs; those of more are left out
SIZES = {1: 0.53, 8: 0.245, 4: 0.065, 16: 0.06, 2: 0.045, 32: 0.018, 24: 0.01, 48: 0.009, 40: 0.005, 6: 0.003, 7: 0.002}


def made_up(jobs: int, seed: int) -> list[TraceJob]:
    """A month with the shape of Venus: durations and sizes are drawn from its quantiles, and jobs often come together."""
    draw = random.Random(seed)
    found: list[TraceJob] = []
    while len(found) < jobs:
        at, together = draw.randrange(MONTH), min(jobs - len(found), math.ceil(draw.expovariate(0.3)))
        for number in range(together):
            gpus = draw.choices(list(SIZES), list(SIZES.values()))[0]
            found.append(TraceJob("", float(at + 2 * number), float(_quantile(draw.random())), gpus))
    return sorted(found, key=lambda job: job.submit)


def _quantile(share: float) -> int:
    """The duration that so many jobs do not exceed, with the logarithm between two known ones in proportion."""
    for (low, shorter), (high, longer) in itertools.pairwise(DURATIONS):
        if share <= high:
            return round(shorter * (longer / shorter) ** ((share - low) / (high - low)))
    return DURATIONS[-1][1]


def gpus_for(jobs: Sequence[TraceJob], load: float) -> int:
    """The GPUs of whole nodes to which the jobs of a month are such a load; as many as the largest job has at least."""
    work = sum(job.gpus * job.duration for job in jobs)
    return GPUS_OF_A_NODE * math.ceil(max(work / MONTH / load, *(job.gpus for job in jobs)) / GPUS_OF_A_NODE)


@dataclass(slots=True, eq=False)
class Run:
    """A job of the month. Times are Unix seconds by the month's clock, None until they are known."""

    name: str
    namespace: str
    user: str
    submit: float
    seconds: int
    gpus: int
    reserved: float | None = None  #: when its Workload reserved its quota, as the Workload says
    unsuspended: bool = False
    started: bool = False  #: its status says that its pods run
    finished: bool = False  #: its Workload says that it has finished

    @property
    def end(self) -> float:
        assert self.reserved is not None
        return self.reserved + self.seconds

    def body(self) -> Json:
        pods = self.gpus // GPUS_OF_A_NODE if self.gpus % GPUS_OF_A_NODE == 0 else 1
        made = harness.job(self.name, QUEUE, pods=pods, gpus=self.gpus // pods, runtime="", namespace=self.namespace)
        made["metadata"]["labels"]["gangline.io/user"] = self.user
        return made

    def seconds_in(self, first: float, last: float) -> float:
        """The GPU-seconds of it between two instants."""
        assert self.reserved is not None
        return self.gpus * max(0.0, min(self.end, last) - max(self.reserved, first))


def runs(jobs: Iterable[TraceJob], begin: float) -> list[Run]:
    """The jobs, shared out among teams and users, with the first one submitted at `begin`."""
    jobs = list(jobs)
    shift = begin - math.floor(jobs[0].submit)
    return [
        Run(
            f"job-{number:05}",
            TEAMS[number % len(TEAMS)],
            f"user-{number % USERS:02}",
            math.floor(job.submit) + shift,
            round(job.duration),
            job.gpus,
        )
        for number, job in enumerate(jobs)
    ]


def gpu_hours(found: Iterable[Run], by: Callable[[Run], str]) -> dict[str, float]:
    """The GPU-hours that the trace says, without anything that was seen of the cluster."""
    sums: Counter[str] = Counter()
    for run in found:
        sums[by(run)] += run.gpus * run.seconds
    return {name: seconds / 3600 for name, seconds in sums.items() if seconds}


def gpu_hours_by_day(found: Sequence[Run], begin: float, end: float) -> dict[str, float]:
    """The GPU-hours of each day (UTC), of jobs that began when their quota was reserved and ran as long as the trace says."""
    days = range(math.floor(begin), math.ceil(end), DAY)
    sums = {day: sum(run.seconds_in(day, day + DAY) for run in found) / 3600 for day in days}
    return {datetime.fromtimestamp(day, UTC).date().isoformat(): hours for day, hours in sums.items() if hours}


def operator_arguments(directory: Path) -> Json:
    """What the operators of a month have: answers, and a record of attempts that they hand on."""
    history = ForecastOptions(str(directory / "history.db"), directory / "model.gz", use_model=False)
    return {"visibility": AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1"), "forecasts": history}


@contextmanager
def control_plane(directory: Path) -> Iterator[System]:
    """A control plane on which nothing runs Jobs, with no nodes."""
    with standing(directory, pools=()) as system:
        for component in SIMULATION:
            system.plane.kill(component)
        yield system


async def prepare(api: harness.Api, gpus: int) -> None:
    """The queues."""
    for team in TEAMS:
        if team != "default":
            body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}}
            await api.client.patch(kube.NAMESPACES, None, team, body, kind="apply", field_manager="test", force=True)
    queues = [harness.local_queue(QUEUE, QUEUE, team) for team in TEAMS]
    await api.apply(harness.flavor(), harness.cluster_queue(QUEUE, gpus), *queues)


class Player:
    """Plays runs. `grain`: they are submitted and end at multiples of so many seconds; 1 = as the trace says."""

    def __init__(self, client: ApiClient, clock: SetClock, found: Sequence[Run], gpus: int, grain: int = 1) -> None:
        self.late = 0.0  #: GPU-seconds for which jobs were held beyond their end
        self.steps = 0  #: how often the clock went on for something to happen
        self.waited = 0  #: jobs that did not start in the second in which they were submitted
        self.done = 0
        self._client = client
        self._clock = clock
        self._runs = {(run.namespace, run.name): run for run in found}
        self._submits = sorted(found, key=lambda run: run.submit)
        self._free = gpus
        self._grain = grain
        self._waiting: set[Run] = set()
        self._starting: set[Run] = set()
        self._ending: set[Run] = set()
        self._running: list[tuple[float, str, Run]] = []
        self._moved = asyncio.Event()
        self._gate = asyncio.Semaphore(CONCURRENCY)
        self._writes: set[asyncio.Task[Any]] = set()

    async def play(self, halts: Sequence[tuple[int, Callable[[], Awaitable[None]]]] = ()) -> None:
        """Play all. `halts`: what is done, while the clock stands still, once so many jobs have ended."""
        watched = [Reflector(self._client, kube.JOBS), Reflector(self._client, kube.WORKLOADS)]
        takes = self._see_job, self._see_workload
        tasks = [asyncio.ensure_future(each.run(take)) for each, take in zip(watched, takes, strict=True)]
        try:
            for each in watched:
                await each.synced.wait()
            coming = sorted(halts, key=lambda halt: halt[0])
            submitted = 0
            while submitted < len(self._submits) or self._running:
                now = max(self._clock.now, self._next(submitted))
                self._clock.set(now)
                while submitted < len(self._submits) and self._on_grain(self._submits[submitted].submit) <= now:
                    self._submit(self._submits[submitted])
                    submitted += 1
                while self._running and self._running[0][0] <= now:
                    self._end(heapq.heappop(self._running)[2], now)
                await self._settle()
                while coming and self.done >= coming[0][0]:
                    await coming.pop(0)[1]()
        finally:
            for task in (*tasks, *self._writes):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _on_grain(self, at: float) -> float:
        return math.ceil(at / self._grain) * self._grain

    def _next(self, submitted: int) -> float:
        """When something happens next."""
        ends = [self._running[0][0]] if self._running else []
        submits = [self._on_grain(run.submit) for run in self._submits[submitted : submitted + 1]]
        return min((*ends, *submits))

    # --- what it does -------------------------------------------------------------------------------------------------

    def _submit(self, run: Run) -> None:
        self._waiting.add(run)
        self._write(self._client.create(kube.JOBS, run.namespace, run.body()))

    def _start(self, run: Run) -> None:
        """Its pods run."""
        assert run.reserved is not None
        pods = run.body()["spec"]["parallelism"]
        status = {"startTime": _rfc3339(run.reserved), "active": pods, "ready": pods}

        async def started() -> None:
            await self._patch(run, status)
            run.started = True
            self._starting.discard(run)
            end = run.end if self._grain == 1 else max(1, round(run.end / self._grain)) * self._grain
            heapq.heappush(self._running, (end, run.name, run))

        self._write(started())

    def _end(self, run: Run, now: float) -> None:
        self._ending.add(run)
        self.late += run.gpus * max(0.0, now - run.end)
        condition_fields = {
            "status": "True",
            "reason": "CompletionsReached",
            "message": "",
            "lastTransitionTime": _rfc3339(now),
        }
        status = {
            "completionTime": _rfc3339(now),
            "active": 0,
            "ready": 0,
            "succeeded": run.body()["spec"]["completions"],
            "conditions": [{"type": kind, **condition_fields} for kind in ("SuccessCriteriaMet", "Complete")],
        }
        self._write(self._patch(run, status))

    async def _patch(self, run: Run, status: Json) -> None:
        await self._client.patch(kube.JOBS, run.namespace, run.name, {"status": status}, subresource="status")

    def _write(self, work: Awaitable[Any]) -> None:
        async def in_turn() -> None:
            async with self._gate:
                await work

        task = asyncio.ensure_future(in_turn())
        self._writes.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[Any]) -> None:
        self._moved.set()
        if task.cancelled() or task.exception() is None:
            self._writes.discard(task)  # one that failed is left, for `_settle` to raise what it met

    # --- what follows -------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until every job that fits has started, and every end has been seen."""
        steps = 0
        while not self._is_settled():
            self._moved.clear()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._moved.wait()
            except TimeoutError:
                steps += 1
                if steps > MOST_STEPS:
                    raise AssertionError(f"nothing follows: {self._standing()}") from None
                self._clock.set(self._clock.now + 1)
        self.steps += steps

    def _is_settled(self) -> bool:
        for task in [*self._writes]:
            if task.done():
                task.result()
        if self._writes or self._starting or self._ending:
            return False
        return not any(run.gpus <= self._free for run in self._waiting)

    def _standing(self) -> str:
        names = {
            "waiting": [run.name for run in self._waiting if run.gpus <= self._free],
            "starting": [run.name for run in self._starting],
            "ending": [run.name for run in self._ending],
        }
        return f"{self._free} GPUs are free, {len(self._writes)} writes are on their way, {names}"

    def _see_job(self, event: Event) -> None:
        if not isinstance(event, Upsert):
            return
        meta = event.obj["metadata"]
        run = self._runs.get((meta["namespace"], meta["name"]))
        if run is not None and not run.unsuspended and not event.obj["spec"].get("suspend"):
            run.unsuspended = True
            self._see_start(run)

    def _see_workload(self, event: Event) -> None:
        run = self._run_of(event)
        if run is None or not isinstance(event, Upsert):
            return
        if run.reserved is None and harness.condition(event.obj, "QuotaReserved"):
            row = harness.condition_row(event.obj, "QuotaReserved")
            run.reserved = datetime.fromisoformat(row["lastTransitionTime"]).timestamp()
            self._free -= run.gpus
            self.waited += run.reserved > self._on_grain(run.submit)
            self._waiting.discard(run)
            self._starting.add(run)
            self._see_start(run)
        if not run.finished and harness.condition(event.obj, "Finished"):
            run.finished = True
            self._free += run.gpus
            self._ending.discard(run)
            self.done += 1
        self._moved.set()

    def _run_of(self, event: Event) -> Run | None:
        if not isinstance(event, Upsert):
            return None
        meta = event.obj["metadata"]
        owners = (self._runs.get((meta["namespace"], ref["name"])) for ref in meta.get("ownerReferences") or ())
        return next((run for run in owners if run is not None), None)

    def _see_start(self, run: Run) -> None:
        if run.unsuspended and run.reserved is not None and not run.started:
            self._start(run)


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(math.floor(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Compared:
    """The report beside the trace."""

    hours: float
    reported: float
    attempts: int
    #: of the worst namespace, user and day, as parts of 1
    worst: dict[str, float]

    @property
    def difference(self) -> float:
        return abs(self.reported / self.hours - 1)


@dataclass(frozen=True, slots=True)
class Played:
    """A month that was played: what was measured of it, and the report beside the trace."""

    player: Player
    report: Compared
    seconds: float


async def play(system: System, found: Sequence[Run], gpus: int, kills: int, grain: int = 1) -> Played:
    """Play a month, and ask for its report. The operator is killed so many times on the way."""
    begin, clock = found[0].submit, SetClock(system.directory / "clock", found[0].submit)
    arguments = operator_arguments(system.directory)
    began = time.monotonic()

    def start(number: int) -> OperatorProcess:
        return system.operator(f"operator-{number}", replaced=clock.replaced(), **arguments)

    async def kill() -> None:
        running = system.running[-1]
        running.kill()
        await asyncio.to_thread(start(len(system.running)).wait_ready)

    async with harness.connect(system.kubeconfig) as api:
        await prepare(api, gpus)
        await asyncio.to_thread(start(0).wait_ready)
        player = Player(api.client, clock, found, gpus, grain)
        await player.play([(len(found) * each // (kills + 1), kill) for each in range(1, kills + 1)])
    end = math.ceil(clock.now / DAY) * DAY
    clock.set(end)
    return Played(player, await compared(system, found, begin, end), time.monotonic() - began)


async def compared(system: System, found: Sequence[Run], begin: float, end: float) -> Compared:
    """The report of a played month beside the trace."""
    window = ("--from", _minute(begin), "--to", _minute(end))
    expected = {
        "namespace": gpu_hours(found, lambda run: run.namespace),
        "user": gpu_hours(found, lambda run: run.user),
        "day": gpu_hours_by_day(found, begin, end),
    }
    worst: dict[str, float] = {}
    printed: Json = {}
    for by, hours in expected.items():
        printed = await system.printed("report", "-A", "--by", by, *window)
        rows = {row["name"]: row["gpuHours"] for row in printed["items"]}
        assert rows.keys() == hours.keys(), (by, rows, hours)
        worst[by] = max(abs(rows[name] / hours[name] - 1) for name in hours)
    total = printed["total"]
    return Compared(sum(expected["namespace"].values()), total["gpuHours"], total["attempts"], worst)


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M")


def begin_of(now: float) -> float:
    """A midnight from which a month and its longest job are over by now."""
    return math.floor(now / DAY) * DAY - MONTH - 10 * DAY
