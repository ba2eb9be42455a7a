"""The floor under a time policy: the mode of each cohort tree, by what the alternatives would have cost.

Best effort and EASY are played beside the real queues (`world`) from the moment at which a queue has a policy with a floor; the
policy itself, too, once a tree has fallen back. Every ten minutes the waits of the same workloads are compared. A tree leaves a
policy that costs more than it should, or that has neither anything to live on nor proved itself, and returns once it would have
cost clearly less.

While nobody waits, in reality or anywhere else, all modes do the same. So after some hours of that the floor sleeps: no world is
played, what happens in reality counts for all, and the worlds begin again when somebody has to wait.

Everything here can be lost at any time: the worlds begin again with the real state, and a tree stays in its mode until there is
evidence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, TypeAlias

from gangline.engine.engine import key_of
from gangline.engine.floor.modes import MODES, PLAIN, POLICY, Mode, PolicyFallback, Trees, has_floor, under
from gangline.engine.floor.verdicts import LONG, RETURN_MOST, FloorVerdicts
from gangline.engine.floor.waits import LANE, REAL, Comparison, Lengths, WorkloadWaits
from gangline.engine.floor.world import Counterfactual, at_rest
from gangline.engine.model import (
    Change,
    ClusterQueue,
    Gone,
    Item,
    Millis,
    Put,
    RuntimeForecast,
    Settings,
    Workload,
    WriteFailed,
)
from gangline.engine.model.runtime import of_the_rest

#: how often modes are compared
EVERY: Final[Millis] = 600_000
#: the floor falls asleep once nobody has waited for this long; how often it looks while it sleeps, and cleans up
QUIET: Final[Millis] = 6 * 3_600_000
SELDOM: Final[Millis] = 3 * 3_600_000

_Fact: TypeAlias = tuple[type[Item], str]


class Floor:
    """`observe` every fact that the engine gets, `advance` the time, and put each ClusterQueue `under` its tree's mode."""

    def __init__(self, settings: Settings, fallen_back: Mapping[str, PolicyFallback] | None = None) -> None:
        """`fallen_back`: the ClusterQueues that are in another mode than their policy already."""
        self._settings = settings
        self._before = dict(fallen_back or {})
        self._facts: dict[_Fact, Item] = {}
        self._trees = Trees()
        self._worlds: dict[Mode, Counterfactual] = {}
        #: the modes with a lane of their own: those of the worlds, also while it sleeps
        self._lanes: set[Mode] = set()
        #: who waits in reality, and since when nobody does
        self._waiting: dict[str, None] = {}
        self._quiet_since: Millis = 0
        #: what the worlds have not received yet, oldest first; and by world, how much of it was
        self._feed: list[tuple[Millis, Change | Workload]] = []
        self._fed: dict[Mode, int] = {}
        #: starts and stops that are later than what is compared, by lane
        self._uncounted: dict[int, deque[tuple[Millis, str, bool, Millis]]] = {
            lane: deque() for lane in (REAL, *LANE.values())
        }
        self._jobs: dict[str, WorkloadWaits] = {}
        self._lengths = Lengths(self._jobs)
        self._verdicts = FloorVerdicts(self._trees, self._lengths, self._lane)
        self._seen: Millis = 0  # the time until which all worlds have been played
        self._now: Millis = 0
        self._due: Millis = 0
        self._cleaned: Millis = 0

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def modes(self) -> Mapping[str, Mode]:
        """The modes by the name of a tree; a tree that is absent follows its policy."""
        return self._verdicts.modes

    @property
    def comparisons(self) -> Mapping[str, Comparison]:
        """The last one of each tree."""
        return self._verdicts.comparisons

    def tree_of(self, cluster_queue: str) -> str:
        """The name of a queue's tree: Cohort/ROOT, or ClusterQueue/NAME where it is in none."""
        return self._trees.of(cluster_queue)

    def mode_of(self, cluster_queue: str) -> Mode:
        return self.modes.get(self.tree_of(cluster_queue), POLICY)

    def under_floor(self) -> list[ClusterQueue]:
        """The queues that a floor is under, each in its mode."""
        queues = sorted(self._trees.queues.items())
        return [under(queue, self.mode_of(name)) for name, queue in queues if has_floor(queue)]

    def fallen_back(self) -> dict[str, PolicyFallback]:
        """The queues that do not follow their policy."""
        found: dict[str, PolicyFallback] = {}
        for queue in self._trees.queues.values():
            fallen = self._verdicts.fallen_back(self.tree_of(queue.name))
            if fallen is not None and has_floor(queue):
                found[queue.name] = fallen
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
            case Put(RuntimeForecast() as forecast):
                whole = self._of_the_whole(forecast)
                self._facts[RuntimeForecast, whole.workload] = whole
                self._lengths.put_forecast(whole)
                change = Put(whole)
            case Put(item):
                self._facts[type(item), key_of(item)] = item
                if self._trees.put(item):
                    self._due = min(self._due, self._now + EVERY)
            case Gone(kind, key):
                self._facts.pop((kind, key), None)
                if kind is RuntimeForecast:
                    return  # it may be needed in a world
                if self._trees.drop(kind, key):
                    self._due = min(self._due, self._now + EVERY)
        self._feed.append((self._now, change))

    def _of_the_whole(self, forecast: RuntimeForecast) -> RuntimeForecast:
        """What has been evicted is forecast without what it saved. In the worlds it may have saved something else, or nothing."""
        job = self._jobs.get(forecast.workload)
        return of_the_rest(forecast, 0, -job.saved) if job is not None and job.saved else forecast

    # --- workloads ----------------------------------------------------------------------------------------------------

    def _put(self, workload: Workload) -> None:
        key = workload.key
        job = self._jobs.get(key)
        if job is not None and job.workload.uid != workload.uid:
            self._forget(key)
            job = None
        left = not workload.active or workload.on_hold or bool(workload.gates or workload.waits_for)
        again = job is not None and job.length is not None
        if again and (workload.finished or left):
            return
        if workload.finished:
            self._gone(key)
            return
        if left:  # as if it were deleted, once it holds nothing any more
            if job is not None and workload.admission is None:
                self._gone(key)
            return
        if again:  # it was deactivated while it ran, and is submitted again now
            self._forget(key)
            job = None
        if job is None:
            root = self._trees.of_local_queue(f"{workload.namespace}/{workload.queue}")
            submitted = self._now if again else max(workload.created, 0) or self._now
            job = self._jobs[key] = WorkloadWaits(workload, root, submitted)
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
                self._uncounted[REAL].append((job.runs_since, key, True, 0))
        elif job.runs_since is not None and workload.admission is None:
            ran = self._now - job.runs_since
            saved = workload.kept(ran)
            job.saved += saved
            job.runs_since = None
            self._uncounted[REAL].append((self._now, key, False, ran - saved))
        self._feed.append((self._now, workload))

    def _gone(self, key: str) -> None:
        """Note that a workload is over, or was deleted."""
        job = self._jobs.get(key)
        if job is None or job.length is not None:
            return
        if job.runs_since is None:
            self._forget(key)
            return
        self._waiting.pop(key, None)
        job.length = max(1, job.saved + self._now - job.runs_since)
        job.runs_since = None
        self._lengths.ended(key)
        for world in self._worlds.values():
            world.came_out(key)

    def _forget(self, key: str) -> None:
        """Forget a workload that counts no more: it was withdrawn before its end, another one has its name, or it is over and too
        old.
        """
        del self._jobs[key]
        self._waiting.pop(key, None)
        self._lengths.forget(key)
        for world in self._worlds.values():
            world.remove(key)

    def _length(self, key: str, least: Millis) -> Millis | None:
        """The total runtime of a workload, as a `Counterfactual` asks for it."""
        return self._lengths.length(key, least, self._now)

    def _ran(self, key: str) -> Millis | None:
        """How long a workload has really run so far, as a `Counterfactual` asks for it."""
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
        trees = self._trees.with_floor()
        for name in [name for name in self._before if name in self._trees.queues]:
            before, tree = self._before.pop(name), self.tree_of(name)
            if tree in trees:
                self._verdicts.adopt(tree, before)
        self._verdicts.keep(trees)
        if not trees:
            self._sleep()
            self._lanes.clear()
            self._due = now + EVERY
            return []
        for mode in MODES if self.modes else PLAIN:
            self._branch(mode)
        if now >= self._cleaned + SELDOM:
            self._clean_up()
        asleep = not self._worlds
        if self._waiting and asleep:
            self._wake_up()
        elif self._may_sleep():
            self._sleep()
        self._due = now + (EVERY if self._worlds else SELDOM)
        if asleep and not self._worlds:
            return []  # nothing has changed
        return [tree for tree in sorted(trees) if self._compare(tree)]

    def _may_sleep(self) -> bool:
        """Whether nobody has waited for long, and in all worlds the same workloads run as in reality, until the same time."""
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
        before = [news for news in self._uncounted[REAL] if news[0] < self._now or not news[2]]
        for mode in MODES:
            if mode in self._lanes:
                self._uncounted[LANE[mode]] = deque(before)
                self._begin(mode)

    def _play(self, now: Millis) -> None:
        if now <= self._now:
            return
        self._now = now
        for mode, world in self._worlds.items():
            world.careful = not self.modes
            self._play_world(mode, world)
        fed = min(self._fed.values(), default=len(self._feed))
        del self._feed[:fed]
        for mode in self._fed:
            self._fed[mode] -= fed
        self._seen = min((world.now for world in self._worlds.values()), default=now)
        self._tell(self._seen)

    def _tell(self, until: Millis) -> None:
        """Count what has happened until then; while it sleeps, what happens in reality counts in all lanes."""
        for lane, news in self._uncounted.items():
            while news and news[0][0] <= until:
                at, key, started, lost = news.popleft()
                job = self._jobs.get(key)
                if job is None or at < job.submitted:  # it was forgotten; or another one had its name then
                    continue
                for each in (lane,) if self._worlds else (REAL, *(LANE[mode] for mode in self._lanes)):
                    job.starts(each, at) if started else job.stops(each, at, lost)

    def _play_world(self, mode: Mode, world: Counterfactual) -> None:
        while self._fed[mode] < len(self._feed):
            at, fact = self._feed[self._fed[mode]]
            if at > world.now and not world.advance(at, self._now):
                break
            self._fed[mode] += 1
            if not isinstance(fact, Workload):
                world.take_in(fact)
            elif (job := self._jobs.get(fact.key)) is not None and job.workload.uid == fact.uid:
                world.submit(fact)
        else:
            world.advance(self._now, self._now)
        self._uncounted[LANE[mode]].extend(world.news)
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
            self._uncounted[lane] = deque(self._uncounted[REAL])
            self._begin(mode)

    def _begin(self, mode: Mode) -> None:
        """A world that begins with the real state."""
        world = self._worlds[mode] = Counterfactual(self._settings, mode, self._now, self._length, self._ran)
        for item in self._facts.values():
            world.take_in(Put(item))
        self._fed[mode] = len(self._feed)
        for job in self._jobs.values():
            if job.length is None:
                starts_now = job.runs_since == self._now
                world.adopt(at_rest(job.workload) if starts_now else job.workload, job.saved)

    def _clean_up(self) -> None:
        """Forget workloads that are over everywhere, and too old to be compared."""
        self._cleaned = self._now
        played = {key for world in self._worlds.values() for key in world.known()}
        over = [key for key, job in self._jobs.items() if job.length is not None and key not in played]
        excess = len(over) - RETURN_MOST
        for number, key in enumerate(over):
            if number < excess or self._jobs[key].submitted < self._now - LONG:
                self._forget(key)

    def _compare(self, tree: str) -> bool:
        """Whether the tree's mode changed."""

        def within(time: Millis) -> list[WorkloadWaits]:
            since = self._seen - time
            found = [job for job in self._jobs.values() if job.submitted >= since and job.started and job.root == tree]
            return found[-RETURN_MOST:]

        changed = self._verdicts.judge(tree, within, self._now, self._seen)
        if changed:
            self._branch(POLICY)
        return changed

    def _lane(self, mode: Mode) -> int:
        """A mode that is not played is what really happens."""
        return LANE[mode] if mode in self._lanes else REAL
