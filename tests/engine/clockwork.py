"""A cluster under a virtual clock: jobs come, run for as long as they run, and go; what the engine decides happens at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from tests.builders.engine import GPU, START

from gangline.engine.engine import Engine
from gangline.engine.model import (
    Admission,
    Admit,
    Evict,
    Flavor,
    Gone,
    LocalQueue,
    Node,
    PodSet,
    Preempt,
    Put,
    RuntimeForecast,
    Settings,
    Topology,
    TopologyRequest,
    Workload,
)
from gangline.engine.queues.ordering import flavors_of

HOST = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Job:
    """`at`, `lasts` and the quantiles of what is forecast in seconds; `limit` is enforced and must be longer than it lasts."""

    at: int
    lasts: int
    gpus: int = 1
    pods: int = 1
    queue: str = "q"
    forecast: tuple[tuple[float, int], ...] = ()
    limit: int | None = None
    priority: int = 0
    #: declared: work is saved this often
    checkpoint: int | None = None
    #: flavor -> how many times as long it takes there, which is forecast so
    times: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass
class Run:
    starts: list[int] = field(default_factory=list[int])  # seconds
    end: int | None = None
    evictions: list[str] = field(default_factory=list[str])  # reasons


class Clockwork:
    """Runs jobs through an engine. `nodes` of 8 GPUs each, with a topology of hosts; without them quota alone decides."""

    def __init__(self, *queues: object, nodes: int = 0, settings: Settings | None = None) -> None:
        self.engine = Engine(settings or Settings(pods_ready=None))
        self.now = START
        self.runs: dict[str, Run] = {}
        self.workloads: dict[str, Workload] = {}
        self.times: dict[str, Mapping[str, float]] = {}
        self.nodes = nodes
        self.log: list[tuple[int, str, str]] = []
        #: asked after every moment
        self.checks: list[Callable[[Clockwork], None]] = []
        self._ends: list[tuple[int, str, int]] = []
        if nodes:
            self.engine.observe(Put(Topology("hosts", (HOST,))))
        self.engine.observe(Put(Flavor("a100", topology="hosts" if nodes else "")))
        for number in range(nodes):
            name = f"n{number}"
            self.engine.observe(Put(Node(name, {HOST: name}, {GPU: 8, "pods": 100})))
        for item in queues:
            self.engine.observe(Put(item))  # type: ignore[arg-type]
            if type(item).__name__ == "ClusterQueue":
                self.engine.observe(Put(LocalQueue("team", item.name, item.name)))  # type: ignore[attr-defined]

    def run(self, jobs: Iterable[Job], *, until: int = 10**7) -> None:
        """Until all have ended, or for `until` seconds."""
        coming = sorted(((START + job.at * 1000, f"j{n}", job) for n, job in enumerate(jobs)), reverse=True)
        lasts = {name: job.lasts for _, name, job in coming}
        wake: int | None = None
        while coming or self._ends or wake is not None:
            moments = [coming[-1][0]] if coming else []
            moments += [self._ends[0][0]] if self._ends else []
            moments += [wake] if wake is not None else []
            self.now = max(self.now, min(moments))
            if self.now > START + until * 1000:
                return
            while self._ends and self._ends[0][0] <= self.now:
                _, name, start = heappop(self._ends)
                self._end(name, start)
            while coming and coming[-1][0] <= self.now:
                _, name, job = coming.pop()
                self._submit(name, job)
            self._settle(lasts)
            for check in self.checks:
                check(self)
            wake = self.engine.next_wakeup(self.now)
            if wake is not None and wake <= self.now:
                wake = self.now + 1

    def _submit(self, name: str, job: Job) -> None:
        request = TopologyRequest(unconstrained=True) if self.nodes else None
        pod_set = PodSet("main", job.pods, {GPU: job.gpus}, topology=request)
        workload = Workload(
            f"uid-{name}",
            "team",
            name,
            job.queue,
            (pod_set,),
            priority=job.priority,
            created=self.now,
            max_execution_seconds=job.limit,
            checkpoint_seconds=job.checkpoint,
        )
        self.runs[name] = Run()
        self.workloads[name] = workload
        self.times[name] = job.times
        if job.forecast:
            self.engine.observe(Put(_forecast(workload.key, job)))
        self.engine.observe(Put(workload))

    def _end(self, name: str, start: int) -> None:
        workload = self.workloads.get(name)
        if workload is None or workload.admission is None or workload.admitted_at != start:
            return
        self.runs[name].end = (self.now - START) // 1000
        self.log.append((self.now, "End", name))
        self.engine.observe(Put(replace(workload, finished=True)))
        del self.workloads[name]

    def _settle(self, lasts: dict[str, int]) -> None:
        again = True
        while again:
            again = False
            for decision in self.engine.decide(self.now):
                match decision:
                    case Admit(workload=key, admission=admission, backfilled=backfilled):
                        name = key.removeprefix("team/")
                        self._start(name, admission, backfilled, lasts[name])
                    case Preempt(workload=key, reason=reason) | Evict(workload=key, reason=reason):
                        self._stop(key.removeprefix("team/"), reason)
                        again = True
                    case _:
                        pass

    def _start(self, name: str, admission: Admission, backfilled: bool, lasts: int) -> None:
        self.log.append((self.now, "Backfill" if backfilled else "Start", name))
        self.runs[name].starts.append((self.now - START) // 1000)
        times = [self.times[name].get(flavor, 1.0) for flavor in flavors_of(admission)]
        heappush(self._ends, (self.now + round(lasts * 1000 * max(times, default=1.0)), name, self.now))
        self._put(
            name,
            admission=admission,
            reserved_at=self.now,
            admitted=True,
            admitted_at=self.now,
            backfilled=backfilled,
            evicted="",
            requeued=None,
        )

    def _stop(self, name: str, reason: str) -> None:
        self.log.append((self.now, reason, name))
        self.runs[name].evictions.append(reason)
        self._put(
            name,
            admission=None,
            admitted=False,
            admitted_at=0,
            reserved_at=0,
            backfilled=False,
            evicted="Preempted",
            preemptions=len(self.runs[name].evictions),
            requeued=True,
        )

    def _put(self, name: str, **fields: object) -> None:
        self.workloads[name] = replace(self.workloads[name], **fields)  # type: ignore[arg-type]
        self.engine.observe(Put(self.workloads[name]))

    def cancel(self, name: str) -> None:
        self.engine.observe(Gone(Workload, self.workloads.pop(name).key))


def _forecast(key: str, job: Job) -> RuntimeForecast:
    def quantiles(times: float) -> tuple[tuple[float, int], ...]:
        return tuple((level, round(seconds * 1000 * times)) for level, seconds in job.forecast)

    there = {flavor: quantiles(times) for flavor, times in job.times.items()}
    return RuntimeForecast(key, quantiles(1.0), "Model", 9, by_flavor=there)


def not_overcommitted(clock: Clockwork) -> None:
    """No queue tree and no node holds more than it has."""
    for node in clock.engine._store.hierarchy.cohort_nodes.values():
        for cell in node.cells.values():
            assert cell.parent is not None or cell.usage <= cell.subtree
    for queue in clock.engine._store.queues.values():
        for cell in queue.cells.values():
            assert cell.parent is not None or cell.usage <= cell.subtree
    ledger = clock.engine._store.topology.ledger("a100")
    for leaf in ledger.leaves() if ledger is not None else ():
        assert all(amount >= 0 for amount in leaf.free.values())
