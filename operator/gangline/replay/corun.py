"""Jobs that share cards, played on hosts whose company slows them: who runs where, how fast, and when each is done.

The hosts, their cards and the choice of places are the engine's own (`engine.Pipeline`), with a profile and, where one looks at
company, with what it knows of pairs. How fast jobs really are together is the law of the world, which may be something else:
what a policy believes and what happens are kept apart. Time is in seconds, work in seconds of a job that runs alone.

    outcome = play(jobs, hosts_of(cluster), CorunPolicy("ours", "Interference", CompanyPolicy(2.0), speeds), law)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gangline.engine import (
    PRIOR_COUNTS,
    PROFILES,
    CardRoom,
    Company,
    Field,
    Fragments,
    Host,
    HostPlace,
    PairSpeeds,
    Pipeline,
    PodRequest,
    Resident,
    in_company,
    kind_mark,
)
from gangline.engine.model import CompanyPolicy, CompanySpeed, Device, Share

#: of a policy that learns: what it knows is drawn up anew after so many new measurements
_NEWS: Final = 5
#: the least speed that a law may give: below it a job would never end
_LEAST: Final = 1e-6


@dataclass(frozen=True, slots=True)
class CorunJob:
    """A job of one pod, or of several equal ones, that start and end together."""

    name: str
    #: class of work: what speeds are measured of
    kind: str
    submit: float
    #: how long it runs alone
    seconds: float
    share: Share
    pods: int = 1
    cpu_milli: int = 0
    memory: int = 0  #: bytes of the node
    #: percent of one card that each pod is said to use; 0 = not said
    utilisation: int = 0


@dataclass(slots=True)
class CorunRun:
    """A running job: where, and what is left to do."""

    job: CorunJob
    #: host by position -> the positions of its cards there, for each pod
    seats: list[tuple[int, tuple[int, ...]]]
    started: float
    left: float
    speed: float = 1.0
    updated: float = 0.0
    version: int = 0
    #: the most that it was slowed, as the law says
    slowest: float = 1.0


class Law(Protocol):
    """How fast jobs are in company."""

    def __call__(self, host: int, runs: Sequence[CorunRun]) -> Sequence[float]:
        """The speed of each of the jobs that are on a host, as a part of its speed alone."""
        ...


@dataclass(frozen=True, slots=True)
class CorunPolicy:
    """Who goes where, and who goes first."""

    name: str
    #: one of the engine's profiles
    profile: str
    #: whom pods may have as company; None: whoever has room beside them
    company: CompanyPolicy | None = None
    speeds: PairSpeeds = field(default_factory=PairSpeeds)
    #: the order of those that wait; unset: as they came
    order: Callable[[CorunJob], tuple[float, ...]] | None = None
    #: jobs that wait and find no place let others go first
    passes: bool = True
    #: what pairs do is measured, and changes what the policy knows; what it knew before counts as `PRIOR_COUNTS` samples
    learns: bool = False


@dataclass(frozen=True, slots=True)
class CorunEnd:
    job: CorunJob
    started: float
    ended: float
    #: how much it was slowed at the worst moment
    slowdown: float

    @property
    def completion(self) -> float:
        return self.ended - self.job.submit


@dataclass(frozen=True, slots=True)
class CorunOutcome:
    policy: str
    ends: tuple[CorunEnd, ...]
    #: placements at which the policy knew a pair that would be slowed beyond its cap, or run out of memory
    broken_caps: int = 0
    #: starts beside others on a card
    joined: int = 0

    @property
    def makespan(self) -> float:
        return max(end.ended for end in self.ends) - min(end.job.submit for end in self.ends)

    @property
    def mean_completion(self) -> float:
        return sum(end.completion for end in self.ends) / len(self.ends)

    def by_kind(self) -> dict[str, float]:
        """The mean time to completion of each class."""
        found: dict[str, list[float]] = {}
        for end in self.ends:
            found.setdefault(end.job.kind, []).append(end.completion)
        return {kind: sum(each) / len(each) for kind, each in sorted(found.items())}


class DoesNotFitError(ValueError):
    """A job fits on no host, however empty."""


def hosts_of(
    count: int, cards: int, *, gpu: str = "", memory: int = 0, cpu_milli: int = 1 << 40, node_memory: int = 1 << 60,
    slots: int = 0,
) -> list[Host]:  # fmt: skip
    """Equal hosts. `memory` in MiB of each card; 0 = not counted. `slots`: pods on a card, 0 = any number."""
    found: list[Host] = []
    for number in range(count):
        name = f"n{number:05}"
        total = {"cpu": cpu_milli, "memory": node_memory, "pods": 1 << 20}
        rooms = [
            CardRoom(Device(name, f"{name}/{card}", card, gpu, memory=memory, slots=slots)) for card in range(cards)
        ]
        found.append(Host(name, total, dict(total), {}, rooms))
    return found


def play(jobs: Iterable[CorunJob], hosts: Sequence[Host], policy: CorunPolicy, law: Law) -> CorunOutcome:
    """Play all jobs to their end. Raises DoesNotFitError."""
    return _Play(jobs, hosts, policy, law).run()


class _Play:
    def __init__(self, jobs: Iterable[CorunJob], hosts: Sequence[Host], policy: CorunPolicy, law: Law) -> None:
        self._arrivals = sorted(jobs, key=lambda job: job.submit)
        self._policy, self._law, self._hosts = policy, law, hosts
        self._pipeline = Pipeline(PROFILES[policy.profile], hosts, Field(fragments=Fragments({})))
        self._on: list[list[CorunRun]] = [[] for _ in hosts]
        self._asks: dict[tuple[object, ...], PodRequest] = {}
        #: who waits, by what a job asks for, each in the order of the policy
        self._waiting: dict[tuple[PodRequest, int], list[tuple[tuple[float, ...], int, CorunJob]]] = {}
        self._ends: list[CorunEnd] = []
        self._due: list[tuple[float, int, int, CorunRun]] = []
        self._count = self._joined = self._broken = 0
        self._speeds = policy.speeds
        #: of a policy that learns: pair -> its measurements, each of other jobs; and how many are new
        self._seen: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        self._news = 0

    def run(self) -> CorunOutcome:
        arrived, now = 0, 0.0
        while arrived < len(self._arrivals) or self._waiting or self._due:
            times = [self._due[0][0]] if self._due else []
            if arrived < len(self._arrivals):
                times.append(self._arrivals[arrived].submit)
            if not times:
                raise DoesNotFitError(f"{next(iter(self._waiting.values()))[0][2].name} fits nowhere")
            now = max(now, min(times))
            while arrived < len(self._arrivals) and self._arrivals[arrived].submit <= now:
                self._wait(self._arrivals[arrived], arrived)
                arrived += 1
            touched = self._finish(now)
            touched |= self._start(now)
            for position in touched:
                self._pace(position, now)
        return CorunOutcome(self._policy.name, tuple(self._ends), self._broken, self._joined)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _finish(self, now: float) -> set[int]:
        touched: set[int] = set()
        while self._due and self._due[0][0] <= now + 1e-9:
            _, version, _, run = heapq.heappop(self._due)
            if version != run.version:
                continue
            self._ends.append(CorunEnd(run.job, run.started, now, 1 / run.slowest))
            run.version = -1
            for position, _cards in run.seats:
                if run in self._on[position]:
                    self._on[position].remove(run)
                touched.add(position)
            for position, cards in run.seats:
                self._unseat(run.job, position, cards)
        while self._due and self._due[0][1] != self._due[0][3].version:
            heapq.heappop(self._due)
        return touched

    def _unseat(self, job: CorunJob, position: int, cards: tuple[int, ...]) -> None:
        host, ask = self._hosts[position], self._ask(job)
        for card in cards:
            room = host.cards[card]
            room.unseat(next(each for each in room.residents if each.holder == job.name))
        self._shift(host, ask, 1)
        self._pipeline.changed(position)

    # --- starts -------------------------------------------------------------------------------------------------------

    def _wait(self, job: CorunJob, number: int) -> None:
        order = self._policy.order
        rank = order(job) if order is not None else ()
        heapq.heappush(self._waiting.setdefault((self._ask(job), job.pods), []), (rank, number, job))

    def _start(self, now: float) -> set[int]:
        """Start who finds a place, the first in order first. Of those that ask for the same, one stands for all."""
        touched: set[int] = set()
        if self._news >= _NEWS:
            self._learn()
        heads = [(*queue[0][:2], key) for key, queue in self._waiting.items()]
        heapq.heapify(heads)
        while heads:
            _, _, key = heapq.heappop(heads)
            queue = self._waiting[key]
            job = queue[0][2]
            seats = self._place(job)
            if seats is None:
                if not self._policy.passes:
                    break
                continue
            heapq.heappop(queue)
            if queue:
                heapq.heappush(heads, (*queue[0][:2], key))
            else:
                del self._waiting[key]
            run = CorunRun(job, seats, now, job.seconds, updated=now)
            for position in {position for position, _ in seats}:
                self._on[position].append(run)
                touched.add(position)
        return touched

    def _place(self, job: CorunJob) -> list[tuple[int, tuple[int, ...]]] | None:
        ask, seats = self._ask(job), list[tuple[int, tuple[int, ...]]]()
        joined = False
        for _ in range(job.pods):
            best = self._pipeline.best(ask)
            if best is None:
                for position, cards in seats:
                    self._unseat(job, position, cards)
                return None
            joined = joined or any(best.place.host.cards[card].residents for card in best.place.cards)
            self._seat(job, best.position, best.place, ask)
            seats.append((best.position, best.place.cards))
        self._joined += joined
        return seats

    def _seat(self, job: CorunJob, position: int, place: HostPlace, ask: PodRequest) -> None:
        for room, resident in place.residents(ask, job.name):
            if self._policy.company is not None and room.residents:
                self._broken += self._breaks(room, resident)
            room.seat(resident)
        self._shift(place.host, ask, -1)
        self._pipeline.changed(position)

    def _breaks(self, room: CardRoom, resident: Resident) -> bool:
        """Whether a known pair is beyond the cap: judged pair by pair, apart from the rule that the policy follows."""
        assert self._policy.company is not None
        for other in room.residents:
            for one, two in ((resident.kind, other.kind), (other.kind, resident.kind)):
                pair = self._speeds.on_card(one, two, room.device)
                if pair is not None and (
                    pair.out_of_memory or pair.slowdown > self._policy.company.max_slowdown + 1e-9
                ):
                    return True
        return False

    def _ask(self, job: CorunJob) -> PodRequest:
        kind = job.kind if self._policy.company is not None or self._policy.profile == "Standalone" else ""
        key = kind, job.share, job.cpu_milli, job.memory, job.utilisation
        found = self._asks.get(key)
        if found is None:
            share = job.share
            if self._policy.company is not None:
                share = in_company(share, Company(job.kind, self._policy.company, self._speeds))
            requests = (("cpu", job.cpu_milli), ("memory", job.memory), ("pods", 1))
            found = PodRequest(
                tuple((name, amount) for name, amount in requests if amount > 0),
                (share,),
                kind=kind,
                utilisation=job.utilisation,
            )
            self._asks[key] = found
        return found

    @staticmethod
    def _shift(host: Host, ask: PodRequest, sign: int) -> None:
        free = dict(host.free)
        for name, amount in (*ask.requests, (kind_mark(ask.kind), 1)) if ask.kind else ask.requests:
            free[name] = free.get(name, 0) + sign * amount
        host.free = free

    # --- speeds -------------------------------------------------------------------------------------------------------

    def _pace(self, position: int, now: float) -> None:
        """The jobs of a host go on at new speeds. A job on several hosts is as fast as on the slowest."""
        runs = self._on[position]
        for run, speed in zip(runs, self._law(position, runs), strict=True):
            if len(run.seats) > 1:
                speed = min(self._speed_on(each, run) for each in {where for where, _ in run.seats})
            run.left -= (now - run.updated) * run.speed
            run.updated, run.speed = now, max(_LEAST, speed)
            run.slowest = min(run.slowest, run.speed)
            run.version += 1
            self._count += 1
            heapq.heappush(self._due, (now + max(0.0, run.left) / run.speed, run.version, self._count, run))
        if self._policy.learns:
            self._note(runs)

    # --- learning -----------------------------------------------------------------------------------------------------

    def _note(self, runs: Sequence[CorunRun]) -> None:
        """Two jobs that are alone with each other on a card are a measurement of their pair."""
        on_card: dict[int, list[CorunRun]] = {}
        for run in runs:
            if len(run.seats) == 1 and len(run.seats[0][1]) == 1:
                on_card.setdefault(run.seats[0][1][0], []).append(run)
        for pair in on_card.values():
            for mine, other in (pair, pair[::-1]) if len(pair) == 2 else ():
                seen = self._seen.setdefault((mine.job.kind, other.job.kind), {})
                if (mine.job.name, other.job.name) not in seen:
                    seen[mine.job.name, other.job.name] = mine.speed
                    self._news += 1

    def _learn(self) -> None:
        """What the policy knows now. Whoever waits asks by it."""
        self._news = 0
        known = self._policy.speeds
        device = self._hosts[0].cards[0].device
        pairs: dict[str, list[CompanySpeed]] = {}
        for (mine, beside), seen in sorted(self._seen.items()):
            before = known.on_card(mine, beside, device)
            total, count = sum(seen.values()), len(seen)
            if before is not None:
                total, count = total + PRIOR_COUNTS * before.speed, count + PRIOR_COUNTS
            pairs.setdefault(mine, []).append(CompanySpeed(beside, speed=total / count, samples=count))
        self._speeds = known.amended(pairs)
        queues = [entry for queue in self._waiting.values() for entry in queue]
        self._asks, self._waiting = {}, {}
        for rank, number, job in queues:
            heapq.heappush(self._waiting.setdefault((self._ask(job), job.pods), []), (rank, number, job))

    def _speed_on(self, position: int, run: CorunRun) -> float:
        runs = self._on[position]
        return self._law(position, runs)[runs.index(run)]


# --- laws -------------------------------------------------------------------------------------------------------------


class PairLaw:
    """Speeds that were measured of pairs: of the jobs of each card, the excesses of their slowdowns add up."""

    def __init__(self, speeds: Mapping[tuple[str, str], float]) -> None:
        """`speeds`: how fast the first class is beside the second. A pair that is missing is as fast as alone."""
        self._excess = {pair: 1 / speed - 1 for pair, speed in speeds.items()}

    def __call__(self, host: int, runs: Sequence[CorunRun]) -> Sequence[float]:
        on_card: dict[int, list[str]] = {}
        for run in runs:
            for position, cards in run.seats:
                if position == host:
                    for card in cards:
                        on_card.setdefault(card, []).append(run.job.kind)
        found: list[float] = []
        for run in runs:
            worst = 1.0
            for position, cards in run.seats:
                for card in cards if position == host else ():
                    others = list(on_card[card])
                    others.remove(run.job.kind)
                    excess = sum(self._excess.get((run.job.kind, other), 0.0) for other in others)
                    worst = max(worst, 1 + excess)
            found.append(1 / worst)
        return found
