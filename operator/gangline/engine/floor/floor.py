"""The floor under a time policy: the mode of each cohort tree, by what the alternatives would have cost.

Best effort and EASY are played beside the real queues (`world`) from the moment at which a queue has a policy with a floor; the
policy itself, too, once a tree has fallen back. Every ten minutes the waits of the same workloads are compared. A tree leaves a
mode that costs more than it should, and returns to its policy once that would have cost clearly less.

While nobody waits, in reality or anywhere else, all modes do the same. So after some hours of that the floor sleeps: no world is
played, what happens in reality counts for all, and the worlds begin again when somebody has to wait.

Everything here can be lost at any time: the worlds begin again with the real state, and a tree stays in its mode until there is
evidence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from math import log
from typing import Final, TypeAlias

from gangline.engine.engine import key_of
from gangline.engine.floor.lengths import Lengths
from gangline.engine.floor.modes import MODES, PLAIN, POLICY, FallenBack, Mode, has_floor, under
from gangline.engine.floor.waits import LANE, REAL, TOLERATED, Comparison, Job, figures, without_each_spell
from gangline.engine.floor.world import World, kept
from gangline.engine.model import (
    Change,
    ClusterQueue,
    Cohort,
    Gone,
    Item,
    LocalQueue,
    Millis,
    Put,
    RuntimeForecast,
    Settings,
    Workload,
    WriteFailed,
)

#: how often modes are compared
EVERY: Final[Millis] = 600_000
#: a comparison needs so many workloads that started, …
FLOOR_LEAST: Final = 100
#: … and takes at most so many, the newest ones, submitted within this time
MOST: Final = 3_000
WINDOW: Final[Millis] = 7 * 86_400_000
#: forecasts are trusted if half of them were off by this factor at most, as a logarithm
TRUSTED: Final = log(2)
#: a mode other than the policy is only replaced by one that costs at most this share of it
CLEARLY: Final = 0.9
#: a tree stays in a mode for at least this long; without its policy for this long, twice as long each time it left it again
DWELL: Final[Millis] = 3_600_000
AWAY: Final[Millis] = 24 * 3_600_000
MOST_AWAY: Final[Millis] = 14 * 86_400_000
#: the floor falls asleep once nobody has waited for this long; how often modes are compared while it sleeps
QUIET: Final[Millis] = 6 * 3_600_000
SELDOM: Final[Millis] = 3 * 3_600_000

_Fact: TypeAlias = tuple[type[Item], str]


class Floor:
    """`observe` every fact that the engine gets, `advance` the time, and put each ClusterQueue `under` its tree's mode."""

    def __init__(self, settings: Settings, fallen_back: Mapping[str, FallenBack] | None = None) -> None:
        """`fallen_back`: the ClusterQueues that are in another mode than their policy already."""
        self._settings = settings
        #: by the name of a tree; absent = its policy
        self.modes: dict[str, Mode] = {}
        self._before = dict(fallen_back or {})
        self.comparisons: dict[str, Comparison] = {}
        self.changed_at: dict[str, Millis] = {}
        self._why: dict[str, str] = {}
        self._facts: dict[_Fact, Item] = {}
        self._queues: dict[str, ClusterQueue] = {}
        self._cohorts: dict[str, Cohort] = {}
        self._local_queues: dict[str, LocalQueue] = {}
        self._worlds: dict[Mode, World] = {}
        #: the modes with a lane of their own: those of the worlds, also while it sleeps
        self._lanes: set[Mode] = set()
        #: who waits in reality, and since when nobody does
        self._waiting: dict[str, None] = {}
        self._quiet_since: Millis = 0
        #: what the worlds have not been told yet, oldest first; and by world, how much of it was
        self._feed: list[tuple[Millis, Change | Workload]] = []
        self._fed: dict[Mode, int] = {}
        #: starts and stops that are later than what is compared, by lane
        self._told: dict[int, deque[tuple[Millis, str, bool, Millis]]] = {
            lane: deque() for lane in (REAL, *LANE.values())
        }
        self._jobs: dict[str, Job] = {}
        self._lengths = Lengths(self._jobs)
        #: how often a tree left its policy, and when last
        self._left: dict[str, tuple[int, Millis]] = {}
        self._seen: Millis = 0  # the time until which all worlds have been played
        self._now: Millis = 0
        self._due: Millis = 0

    # --- looking ------------------------------------------------------------------------------------------------------

    def tree_of(self, cluster_queue: str) -> str:
        """The name of its tree: Cohort/ROOT, or ClusterQueue/NAME where it is in none."""
        queue = self._queues.get(cluster_queue)
        if queue is None or not queue.cohort:
            return f"ClusterQueue/{cluster_queue}"
        name, seen = queue.cohort, set[str]()
        while name not in seen:
            seen.add(name)
            cohort = self._cohorts.get(name)
            if cohort is None or not cohort.parent:
                break
            name = cohort.parent
        return f"Cohort/{name}"

    def mode_of(self, cluster_queue: str) -> Mode:
        return self.modes.get(self.tree_of(cluster_queue), POLICY)

    def under_floor(self) -> list[ClusterQueue]:
        """The queues that a floor is under, each in its mode."""
        return [under(queue, self.mode_of(name)) for name, queue in sorted(self._queues.items()) if has_floor(queue)]

    def fallen_back(self) -> dict[str, FallenBack]:
        """The queues that do not follow their policy."""
        found: dict[str, FallenBack] = {}
        for queue in self._queues.values():
            tree = self.tree_of(queue.name)
            if has_floor(queue) and tree in self.modes:
                found[queue.name] = FallenBack(self.modes[tree], self.changed_at.get(tree, 0), self._why.get(tree, ""))
        return found

    # --- facts --------------------------------------------------------------------------------------------------------

    def observe(self, change: Change, now: Millis) -> None:
        """A fact, as the engine gets it; a ClusterQueue as its policy configures it."""
        self._play(now)
        match change:
            case WriteFailed():
                return
            case Put(Workload() as workload):
                self._put(workload)
                return
            case Gone(kind, key) if kind is Workload:
                self._gone(key)
                return
            case Put(item):
                self._facts[type(item), key_of(item)] = item
                self._keep(item)
            case Gone(kind, key):
                self._facts.pop((kind, key), None)
                if kind is RuntimeForecast:
                    return  # it may be needed in a world
                self._forget(kind, key)
        self._feed.append((self._now, change))

    def _keep(self, item: Item) -> None:
        match item:
            case ClusterQueue():
                self._queues[item.name] = item
                self._due = min(self._due, self._now + EVERY)
            case Cohort():
                self._cohorts[item.name] = item
                self._due = min(self._due, self._now + EVERY)
            case LocalQueue():
                self._local_queues[item.key] = item
            case RuntimeForecast():
                self._lengths.put_forecast(item)
            case _:
                pass

    def _forget(self, kind: type[Item], key: str) -> None:
        if kind is ClusterQueue:
            self._queues.pop(key, None)
            self._due = min(self._due, self._now + EVERY)
        elif kind is Cohort:
            self._cohorts.pop(key, None)
        elif kind is LocalQueue:
            self._local_queues.pop(key, None)

    # --- workloads ----------------------------------------------------------------------------------------------------

    def _put(self, workload: Workload) -> None:
        key = workload.key
        job = self._jobs.get(key)
        if job is not None and job.workload.uid != workload.uid:
            self._gone(key)
            job = None
        if job is not None and job.length is not None:
            return
        if workload.finished:
            self._gone(key)
            return
        if not workload.active or workload.on_hold or workload.gates:
            if job is not None and job.runs_since is None and workload.admission is None:
                self._withdraw(key)
            return
        if job is None:
            local_queue = self._local_queues.get(f"{workload.namespace}/{workload.queue}")
            root = self.tree_of(local_queue.cluster_queue) if local_queue is not None else ""
            job = self._jobs[key] = Job(workload, root, max(workload.created, 0) or self._now)
            for lane in range(len(job.since)):
                job.since[lane] = job.submitted
        job.workload = workload
        if workload.admission is None or not workload.admitted:
            self._waiting[key] = None
        else:
            self._waiting.pop(key, None)
        if workload.admission is not None and workload.admitted:
            if job.runs_since is None:
                job.runs_since = workload.admitted_at or self._now
                self._lengths.started(key)
                self._told[REAL].append((job.runs_since, key, True, 0))
        elif job.runs_since is not None and workload.admission is None:
            ran = self._now - job.runs_since
            saved = kept(workload, ran)
            job.saved += saved
            job.runs_since = None
            self._told[REAL].append((self._now, key, False, ran - saved))
        self._feed.append((self._now, workload))

    def _gone(self, key: str) -> None:
        """It is over, or was deleted."""
        job = self._jobs.get(key)
        if job is None or job.length is not None:
            return
        if job.runs_since is None:
            self._withdraw(key)
            return
        self._waiting.pop(key, None)
        job.length = max(1, job.saved + self._now - job.runs_since)
        job.runs_since = None
        self._lengths.ended(key)
        for world in self._worlds.values():
            world.came_out(key)

    def _withdraw(self, key: str) -> None:
        """It is over before it ended: without it, nothing is compared."""
        del self._jobs[key]
        self._waiting.pop(key, None)
        self._forget_forecast(key)
        for world in self._worlds.values():
            world.remove(key)

    def _forget_forecast(self, key: str) -> None:
        self._lengths.forget(key)
        for world in self._worlds.values():
            world.take_in(Gone(RuntimeForecast, key))

    def _length(self, key: str, least: Millis) -> Millis | None:
        """See `World`."""
        return self._lengths.length(key, least, self._now)

    def _ran(self, key: str) -> Millis | None:
        """See `World`."""
        return self._lengths.ran(key, self._now)

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, now: Millis) -> list[str]:
        """Play the worlds until now, and compare what is due. Returns the trees whose mode changed."""
        self._play(now)
        wakes = bool(self._waiting and self._lanes and not self._worlds)
        if self._waiting:
            self._quiet_since = self._now
        if now < self._due and not wakes:
            return []
        trees = {self.tree_of(queue.name) for queue in self._queues.values() if has_floor(queue)}
        for name in [name for name in self._before if name in self._queues]:
            before, tree = self._before.pop(name), self.tree_of(name)
            if tree in trees and tree not in self.modes:
                self.modes[tree], self.changed_at[tree], self._why[tree] = before
                self._left[tree] = 1, before.since
        for tree in [tree for tree in self.modes if tree not in trees]:
            del self.modes[tree]
        if not trees:
            self._sleep()
            self._lanes.clear()
            self._due = now + EVERY
            return []
        for mode in MODES if self.modes else PLAIN:
            self._branch(mode)
        self._clean_up()
        if self._waiting and not self._worlds:
            self._wake_up()
        elif self._may_sleep():
            self._sleep()
        self._due = now + (EVERY if self._worlds else SELDOM)
        return [tree for tree in sorted(trees) if self._compare(tree)]

    def _may_sleep(self) -> bool:
        """Nobody has waited for long, and in all worlds the same workloads run as in reality, until the same time."""
        if self._now < self._quiet_since + QUIET:
            return False
        runs = {key: job.runs_since - job.saved for key, job in self._jobs.items() if job.runs_since is not None}
        for mode, world in self._worlds.items():
            world.look_anew()
            self._play_world(mode, world)
            if self._fed[mode] < len(self._feed) or not world.is_at_rest(self._now, runs):
                return False
        return True

    def _sleep(self) -> None:
        self._tell(self._now)
        self._worlds.clear()
        self._fed.clear()
        self._feed.clear()

    def _wake_up(self) -> None:
        """The worlds begin with what was before this instant: whoever really started in it has not started in them."""
        before = [news for news in self._told[REAL] if news[0] < self._now or not news[2]]
        for mode in MODES:
            if mode in self._lanes:
                self._told[LANE[mode]] = deque(before)
                self._begin(mode)

    def _play(self, now: Millis) -> None:
        if now <= self._now:
            return
        self._now = now
        for mode, world in self._worlds.items():
            self._play_world(mode, world)
        fed = min(self._fed.values(), default=len(self._feed))
        del self._feed[:fed]
        for mode in self._fed:
            self._fed[mode] -= fed
        self._seen = min((world.now for world in self._worlds.values()), default=now)
        self._tell(self._seen)

    def _tell(self, until: Millis) -> None:
        """Count what has happened until then; while it sleeps, what happens in reality counts in all lanes."""
        for lane, news in self._told.items():
            while news and news[0][0] <= until:
                at, key, started, lost = news.popleft()
                job = self._jobs.get(key)
                if job is None:
                    continue
                for each in (lane,) if self._worlds else (REAL, *(LANE[mode] for mode in self._lanes)):
                    job.starts(each, at) if started else job.stops(each, at, lost)

    def _play_world(self, mode: Mode, world: World) -> None:
        while self._fed[mode] < len(self._feed):
            at, fact = self._feed[self._fed[mode]]
            if at > world.now and not world.advance(at, self._now):
                break
            self._fed[mode] += 1
            if not isinstance(fact, Workload):
                world.take_in(fact)
            elif (job := self._jobs.get(fact.key)) is not None and job.workload.uid == fact.uid:
                world.put(fact)
        else:
            world.advance(self._now, self._now)
        self._told[LANE[mode]].extend(world.news)
        world.news.clear()

    def _branch(self, mode: Mode) -> None:
        """A mode gets a lane of its own, with the past of reality; and a world, unless all sleep."""
        if mode in self._lanes:
            return
        self._lanes.add(mode)
        lane = LANE[mode]
        for job in self._jobs.values():
            job.waited[lane], job.since[lane] = job.waited[REAL], job.since[REAL]
        if self._worlds:
            self._told[lane] = deque(self._told[REAL])
            self._begin(mode)

    def _begin(self, mode: Mode) -> None:
        """A world that begins with the real state."""
        world = self._worlds[mode] = World(self._settings, mode, self._now, self._length, self._ran)
        for item in self._facts.values():
            world.take_in(Put(item))
        self._fed[mode] = len(self._feed)
        for job in self._jobs.values():
            if job.length is not None:
                continue
            if job.runs_since == self._now:
                world.put(job.workload)
            else:
                world.adopt(job.workload, job.saved)

    def _clean_up(self) -> None:
        """Forget workloads that are over everywhere, and too old to be compared."""
        over = [
            key
            for key, job in self._jobs.items()
            if job.length is not None and not any(world.knows(key) for world in self._worlds.values())
        ]
        for key in islice(over, max(0, len(over) - MOST)):
            self._forget_forecast(key)
            del self._jobs[key]
        for key in over:
            job = self._jobs.get(key)
            if job is not None and job.submitted < self._now - WINDOW:
                self._forget_forecast(key)
                del self._jobs[key]

    def _compare(self, tree: str) -> bool:
        """Whether the tree's mode changed."""
        jobs = [job for job in self._jobs.values() if job.root == tree and job.started]
        jobs = [job for job in jobs[-MOST:] if job.submitted >= self._seen - WINDOW]
        if len(jobs) < FLOOR_LEAST:
            return False
        found = self.comparisons[tree] = self._compared(jobs)
        mode = self.modes.get(tree, POLICY)
        if self._now < self.changed_at.get(tree, 0) + DWELL:
            return False
        best = self._better(tree, mode, found)
        if best is None or (mode == POLICY and self._is_trusted(tree, jobs) and not self._is_sure(tree, jobs, best)):
            return False
        self.changed_at[tree], self._why[tree] = self._now, found.why(mode, best)
        if mode == POLICY:
            self._left[tree] = min(16, self._left.get(tree, (0, 0))[0] + 1), self._now
        self._branch(POLICY)
        if best == POLICY:
            self.modes.pop(tree, None)
        else:
            self.modes[tree] = best
        return True

    def _is_trusted(self, tree: str, jobs: Sequence[Job]) -> bool:
        """The policy has what it lives on: work that is saved, so that it can give way, or forecasts that came true."""
        gives_way = any(
            queue.backfill is not None and queue.backfill.checkpoint_preemption is not None
            for queue in self._queues.values()
            if self.tree_of(queue.name) == tree
        )
        saving = sum(job.workload.checkpoint is not None for job in jobs)
        if gives_way and 2 * saving > len(jobs):
            return True
        error = self._lengths.error(job.workload.key for job in jobs)
        return error is not None and error <= TRUSTED

    def _is_sure(self, tree: str, jobs: Sequence[Job], best: Mode) -> bool:
        """Whether that mode is better than the policy whichever spell is left out: in a single rush, chance decides."""
        return all(
            len(others) >= FLOOR_LEAST and self._better(tree, POLICY, self._compared(others)) == best
            for others in without_each_spell(jobs, self._lane(POLICY), self._lane(best), self._seen)
        )

    def _compared(self, jobs: Sequence[Job]) -> Comparison:
        return Comparison(self._seen, {mode: figures(jobs, self._lane(mode), self._seen) for mode in MODES})

    def _lane(self, mode: Mode) -> int:
        """A mode that is not played is what really happens."""
        return LANE[mode] if mode in self._lanes else REAL

    def _better(self, tree: str, mode: Mode, found: Comparison) -> Mode | None:
        """The mode for which this one is to be left; None = it is not."""
        times, last = self._left.get(tree, (0, 0))
        away = min(MOST_AWAY, AWAY << max(0, times - 1))
        may_return = mode == POLICY or self._now >= last + away
        options: list[Mode] = [each for each in MODES if each != POLICY or may_return]
        best = min(options, key=found.cost)
        enough = found.cost(mode) / TOLERATED if mode == POLICY else CLEARLY * found.cost(mode)
        return best if best != mode and found.cost(best) <= enough else None
