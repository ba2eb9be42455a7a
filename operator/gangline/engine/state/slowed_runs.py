"""Running workloads that slow one another down on cards and nodes: what company has cost each so far, and when each will end.

A forecast says how long a workload runs alone. Beside others it does less in the same time (`interference.work_paths`), and it is
as fast as alone again once they are expected to have ended. Workloads that are connected by company, directly or through others,
are a *circle*, and their ends are computed together. In a circle of more than `MOST` workloads nobody's end is foreseen: each
goes on as fast as it is now.

What is known of the past are the starts of those that run. A companion that leaves takes its part of the story along, so what
it has cost the others until then is noted (`model.SlowedRun`). Ends depend on facts alone, not on the time at which they are
computed.

Nothing is followed unless a placement policy looks at interference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from gangline.engine.cards.card_amounts import kinds_in, name_of
from gangline.engine.interference.pair_speeds import PairSpeeds
from gangline.engine.interference.work_paths import ENDLESS, RunAhead, WorkPath, play
from gangline.engine.model import Device, Millis, RuntimeForecast, SlowedRun
from gangline.engine.model.runtime import NEVER, TICK
from gangline.engine.occupancy.node_ledger import HOSTS, NodeLedger, Placed
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.change_log import ChangeLog
from gangline.engine.topology.policy_filter import KIND_MARK

#: workloads of a circle whose ends are foreseen
MOST: Final = 16
#: the source of forecasts that come from the pace of the run itself, as it is in its company
OWN_PACE: Final = "Progress"
#: ended runs of which it is remembered what they had lost
_ENDED: Final = 1_000
#: The log of changed workloads starts over at this length.
_LOG_LENGTH: Final = 10_000

#: a host and one of its cards; without a card, the node as a whole
Seat: TypeAlias = tuple[str, str]
#: how many pods of each kind of work a workload has at each of its seats
Seats: TypeAlias = Mapping[Seat, Mapping[str, int]]
#: The work of a workload that has done so much: how much it will have done at its end, and up to which work this answer holds.
WorkOf: TypeAlias = Callable[[WorkloadState, Millis], tuple[float, float]]
#: When a workload is stopped at the latest, whatever it has done.
StopOf: TypeAlias = Callable[[WorkloadState], Millis]


class ExpectedEnd(NamedTuple):
    """When a workload is expected to end, and until when that answer holds if nothing else changes."""

    end: Millis
    until: Millis


class PlannedRun(NamedTuple):
    """A workload that waits, where its pods would sit, and since when."""

    gang: WorkloadState
    placed: Placed
    begins: Millis


@dataclass(frozen=True, slots=True)
class _Seated:
    """A workload whose pods run: since when, and where."""

    uid: str
    begins: Millis
    seats: Seats


class SlowedRuns:
    def __init__(
        self,
        ledger: NodeLedger,
        gangs: Mapping[str, WorkloadState],
        forecasts: Mapping[str, RuntimeForecast],
        speeds: Callable[[], PairSpeeds],
    ) -> None:
        self._ledger, self._gangs, self._forecasts, self._speeds = ledger, gangs, forecasts, speeds
        #: whether some policy looks at interference
        self.on = False
        #: workloads that came, left or changed since `follow`
        self._moved: dict[str, None] = {}
        self._seated: dict[str, _Seated] = {}
        self._there: dict[Seat, dict[str, Mapping[str, int]]] = {}
        self._lost: dict[str, SlowedRun] = {}
        #: by uid, oldest first: what those had lost that have ended
        self._ended: dict[str, Millis] = {}
        #: workloads whose expected ends may be other ones
        self.log: ChangeLog[str] = ChangeLog(_LOG_LENGTH)

    # --- facts --------------------------------------------------------------------------------------------------------

    def turn(self, *, on: bool) -> None:
        """Begin, or cease, to follow workloads."""
        if on == self.on:
            return
        self.on = on
        self._moved = dict.fromkeys(self._gangs) if on else {}
        if not on:
            self._seated.clear()
            self._there.clear()
            self._lost.clear()
        self.log.start_over()

    def put(self, fact: SlowedRun) -> None:
        """An earlier process has followed a workload. What this one has noted since precedes it."""
        gang, known = self._gangs.get(fact.workload), self._lost.get(fact.workload)
        if gang is None or gang.uid != fact.uid or (known is not None and known.at >= fact.at):
            return
        self._lost[fact.workload] = fact
        self.log.extend(sorted(self.concerned((fact.workload,))))

    def note(self, key: str) -> None:
        """A workload came, left or changed."""
        if self.on:
            self._moved[key] = None

    def facts(self) -> list[SlowedRun]:
        """What another process has to know to follow workloads as this one does."""
        return [fact for key, fact in self._lost.items() if key in self._seated]

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def follow(self, now: Millis) -> None:
        """Process what has changed. What a companion that has left has cost the others is noted as of now."""
        if not self._moved:
            return
        moved, self._moved = self._moved, {}
        seated = {key: self._seat_of(key) for key in moved}
        news = self.concerned(moved) | self.concerned(self._met(each.seats for each in seated.values() if each))
        left = [key for key, new in seated.items() if self._leaves(self._seated.get(key), new)]
        companions = {other for key in left for other in self._companions(key)}
        # those to whom a workload moves: it has not been their company since its start
        joined = self._met(
            new.seats for key in left if (new := seated[key]) is not None and new.begins == self._seated[key].begins
        )
        changed = sorted({*left, *companions, *joined})
        lost = [(self._seated[key].uid, key, self._lost_until(key, now)) for key in changed]
        for key, new in seated.items():
            if (old := self._seated.get(key)) is not None:
                self._remove(key, old)
            if new is not None:
                self._add(key, new)
        for uid, key, millis in lost:
            stays = (there := self._seated.get(key)) is not None and there.uid == uid
            if stays and (millis >= 1 or key in joined):
                self._lost[key] = SlowedRun(key, uid, now, round(millis))
            elif not stays and millis >= 1:
                self._ended[uid] = round(millis)
        while len(self._ended) > _ENDED:
            del self._ended[next(iter(self._ended))]
        for key, new in seated.items():
            if (fact := self._lost.get(key)) is not None and (new is None or new.uid != fact.uid):
                del self._lost[key]
        self.log.extend(sorted(news | self.concerned((*moved, *companions))))

    @staticmethod
    def _leaves(old: _Seated | None, new: _Seated | None) -> bool:
        return old is not None and (new is None or new.uid != old.uid or new.seats != old.seats)

    def _seat_of(self, key: str) -> _Seated | None:
        gang = self._gangs.get(key)
        if gang is None or not gang.holds or not gang.admitted or gang.evicting:
            return None
        seats = seats_of(self._ledger.placed(key))
        return _Seated(gang.uid, gang.quota.admitted_at, seats) if seats else None

    def _add(self, key: str, seated: _Seated) -> None:
        self._seated[key] = seated
        for seat, kinds in seated.seats.items():
            self._there.setdefault(seat, {})[key] = kinds

    def _remove(self, key: str, seated: _Seated) -> None:
        del self._seated[key]
        for seat in seated.seats:
            there = self._there[seat]
            del there[key]
            if not there:
                del self._there[seat]

    def changed_since(self, seen: int, now: Millis) -> tuple[int, list[str]]:
        """Follow up to now. The end of the log, and the workloads whose expected ends may be other ones since it was `seen`."""
        self.follow(now)
        changed = self.log.since(seen)
        return self.log.end, sorted(self._seated if changed is None else set(changed))

    # --- company ------------------------------------------------------------------------------------------------------

    def concerned(self, keys: Iterable[str]) -> set[str]:
        """These workloads, and those whose ends depend on theirs."""
        found: set[str] = set()
        done: set[str] = set()
        for key in keys:
            if key not in done:
                circle, whole = self._circle(key)
                found |= circle
                done |= circle if whole else {key}
        return found

    def _companions(self, key: str) -> set[str]:
        """The others that share a card with a workload, or a node on which they are known to slow each other down."""
        seated = self._seated.get(key)
        return self._met((seated.seats,)) - {key} if seated is not None else set()

    def _met(self, places: Iterable[Seats]) -> set[str]:
        """The workloads that those who sit there have as company."""
        found: set[str] = set()
        for seats in places:
            for seat, mine in seats.items():
                there = self._there.get(seat, {})
                found.update(other for other, theirs in there.items() if seat[1] or self._meet(mine, theirs))
        return found

    def _meet(self, mine: Iterable[str], theirs: Collection[str]) -> bool:
        speeds = self._speeds()
        return speeds.has_nodes and any(speeds.meet_on_node(one, other) for one in mine for other in theirs)

    def _circle(self, key: str) -> tuple[set[str], bool]:
        """The circle of a workload. Of a larger one than `MOST`, the workload and its companions, and False."""
        found, border = {key}, [key]
        while border:
            new = self._companions(border.pop()) - found
            found |= new
            border += new
            if len(found) > MOST:
                return {key, *self._companions(key)}, False
        return found, True

    def _speed(self, key: str, there: Collection[str]) -> float:
        """The speed of a workload beside these, as a part of its speed alone. It is as fast as its slowest pod."""
        speeds, slowest = self._speeds(), 1.0
        for seat, mine in self._seated[key].seats.items():
            kinds = Counter(mine)
            for other, theirs in self._there[seat].items():
                if other != key and other in there:
                    kinds.update(theirs)
            if kinds.total() < 2:
                continue
            found: list[float] = []
            if not seat[1]:
                found = (
                    [speeds.slowdown_on_node(kind, dict(sorted(kinds.items()))) for kind in mine]
                    if speeds.has_nodes
                    else []
                )
            elif (device := self._device(seat)) is not None:
                found = [
                    speeds.slowdown_on_card(kind, sorted((kinds - Counter((kind,))).elements()), device)
                    for kind in mine
                ]
            slowest = max([slowest, *found])
        return 1 / slowest

    def _device(self, seat: Seat) -> Device | None:
        host, card = seat
        devices = (device for node in self._ledger.nodes_at(host) for device in self._ledger.cards.devices(node))
        return next((device for device in devices if name_of(device.uuid) == card), None)

    # --- the past -----------------------------------------------------------------------------------------------------

    def _noted(self, key: str) -> tuple[Millis, float]:
        """Up to when it is noted what company has cost a workload, and how much that is."""
        seated, fact = self._seated[key], self._lost.get(key)
        if fact is None or fact.uid != seated.uid or fact.at <= seated.begins:
            return seated.begins, 0.0
        return fact.at, float(min(max(0, fact.lost), fact.at - seated.begins))

    def _lost_until(self, key: str, now: Millis) -> float:
        """What company has cost a workload until now, in milliseconds of work."""
        at, lost = self._noted(key)
        arrivals = sorted((self._seated[other].begins, other) for other in self._companions(key))
        there = {key}
        for begins, other in arrivals:
            if begins > at:
                until = min(begins, now)
                lost += max(0, until - at) * (1 - self._speed(key, there))
                at = max(at, until)
            if begins < now:
                there.add(other)
        return lost + max(0, now - at) * (1 - self._speed(key, there))

    def lost(self, workload: str, now: Millis) -> Millis:
        """What company has cost a running workload until now: it has done so much less than it would have done alone."""
        self.follow(now)
        return round(self._lost_until(workload, now)) if workload in self._seated else 0

    def lost_by_end(self, uid: str, now: Millis) -> Millis:
        """The same of a run that has ended lately."""
        self.follow(now)
        return self._ended.get(uid, 0)

    # --- the future ---------------------------------------------------------------------------------------------------

    def expected(self, gang: WorkloadState, now: Millis, work_of: WorkOf, stop_of: StopOf) -> Mapping[str, ExpectedEnd]:
        """When a workload and those whose ends are computed with it are expected to end, by key; nothing where it has no company
        and had none.
        """
        if gang.key not in self._seated:
            return {}
        circle, whole = self._circle(gang.key)
        if len(circle) == 1 and gang.key not in self._lost and self._speed(gang.key, circle) == 1.0:
            return {}
        return self._ends(circle, whole, now, work_of, stop_of)

    def expected_if_begun(
        self, run: PlannedRun, now: Millis, work_of: WorkOf, stop_of: StopOf, beside: Iterable[PlannedRun] = ()
    ) -> Mapping[str, ExpectedEnd]:
        """The same as if a workload that waits began there, and those `beside` as they are planned."""
        key, planned = run.gang.key, [*beside, run]
        joined: set[str] = set()
        seated: list[tuple[str, _Seated]] = []
        try:
            for each in planned:
                seats = seats_of(each.placed)
                if each is run:
                    joined = self.concerned(self._met((seats,)))
                seated.append((each.gang.key, _Seated(each.gang.uid, each.begins, seats)))
                self._add(*seated[-1])
            circle, whole = self._circle(key)
            if len(circle) == 1 and self._speed(key, circle) == 1.0:
                return {}
            return self._ends(circle if whole else {key, *joined}, whole, now, work_of, stop_of)
        finally:
            for each in seated:
                self._remove(*each)

    def _ends(
        self, keys: Collection[str], whole: bool, now: Millis, work_of: WorkOf, stop_of: StopOf
    ) -> dict[str, ExpectedEnd]:
        """The expected ends of workloads: of a `whole` circle together, else of each with the companions that it has."""
        runs: dict[str, RunAhead] = {}
        until: dict[str, float] = {}
        origin = self._last_change(keys, now)
        for key in sorted(keys):
            gang, seated = self._gangs[key], self._seated[key]
            done, since = 0.0, seated.begins
            if seated.begins <= now:
                since = origin if whole else self._last_change((key, *self._companions(key)), now)
                done = since - seated.begins - self._counted(key, since)
            elapsed = max(0.0, now - seated.begins - self._counted(key, now)) if seated.begins <= now else 0.0
            work, until[key] = work_of(gang, round(elapsed))
            runs[key] = RunAhead(key, since, done, work, self._stop(gang, seated.begins, now, stop_of))
        if whole:
            paths = play(runs.values(), lambda there: {key: self._counted_speed(key, there) for key in there})
        else:
            paths = {key: self._path_beside(run) for key, run in runs.items()}
        return {key: _expected_end(paths[key], run, until[key], now) for key, run in runs.items()}

    def _path_beside(self, run: RunAhead) -> WorkPath:
        """The path of a workload whose companions stay; those that begin later come then."""
        others = self._companions(run.key)
        coming = [other for other in others if self._seated[other].begins > run.since]
        there = others.difference(coming)
        beside = [RunAhead(other, self._seated[other].begins, 0.0, ENDLESS) for other in coming]
        return play(
            (run, *beside),
            lambda now: (
                dict.fromkeys(now, 1.0) | {run.key: self._counted_speed(run.key, there.union(now))}
                if run.key in now
                else dict.fromkeys(now, 1.0)
            ),
        )[run.key]

    def _last_change(self, keys: Iterable[str], now: Millis) -> Millis:
        """The last instant at which somebody came to these workloads, or left them, as far as that is known."""
        return max((at for key in keys if (at := self._noted(key)[0]) <= now), default=now)

    def _by_own_pace(self, key: str) -> bool:
        """Whether the forecast is made from the run's own pace, so that it counts company already."""
        forecast = self._forecasts.get(key)
        return forecast is not None and forecast.source == OWN_PACE

    def _counted(self, key: str, now: Millis) -> float:
        return 0.0 if self._by_own_pace(key) else self._lost_until(key, now)

    def _counted_speed(self, key: str, there: Collection[str]) -> float:
        return 1.0 if self._by_own_pace(key) else self._speed(key, there)

    @staticmethod
    def _stop(gang: WorkloadState, begins: Millis, now: Millis, stop_of: StopOf) -> float:
        """When a workload is stopped: a limit of its time is not longer in company."""
        left, stop = gang.workload.execution_left, stop_of(gang)
        if left is None:
            return stop
        ends = begins + max(0, left)
        return min(stop, ends if ends > now else now + TICK)


def _expected_end(path: WorkPath, run: RunAhead, until: float, now: Millis) -> ExpectedEnd:
    end, again = path.end(run.work), path.end(until)
    stop = NEVER if run.stop == ENDLESS else round(run.stop)
    return ExpectedEnd(min(stop, NEVER if end is None else end), NEVER if again is None else max(now + 1, again))


def seats_of(placed: Placed) -> dict[Seat, dict[str, int]]:
    """Where pods of known classes sit, by what placements take of hosts."""
    found: dict[Seat, dict[str, int]] = {}
    for (flavor, leaf), amounts in placed:
        if flavor != HOSTS:
            continue
        for card, kinds in kinds_in(amounts).items():
            found[leaf[0], card] = kinds
        kinds = {name: number for name, number in amounts.items() if name.startswith(KIND_MARK)}
        if kinds:
            found[leaf[0], ""] = kinds
    return found
