"""A lower bound of a gang's start, by counting: cheap to update, and nearly always exact.

Per pod set it counts how many pods each leaf of the topology will take, and from when on; per resource, when enough quota will
have been released. Both look at one thing at a time, so a gang can never start before, but it may have to wait for more:
`timeline` asks the world of that moment.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gangline.engine.model import Millis
from gangline.engine.occupancy.fitting import PodRequests
from gangline.engine.occupancy.node_ledger import Spot
from gangline.engine.queues.cluster_queue import ClusterQueueState, pods_asked
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import FlavorResource
from gangline.engine.text.change_log import ChangeLog
from gangline.engine.topology.placement import placed_on
from gangline.engine.topology.placement_request import asks
from gangline.engine.topology.seating import counted
from gangline.engine.topology.topologies import Topologies
from gangline.engine.topology.topology_ledger import Leaf, TopologyLedger

#: The log of changed spots starts over at this length.
_LOG_LENGTH = 20_000


@dataclass(slots=True)
class SpotStay:
    """What a holder uses of a spot until it leaves."""

    end: Millis
    amounts: Mapping[str, int]


class Stays:
    """The stays by spot, and a log of the spots where they changed."""

    def __init__(self) -> None:
        self.at: dict[Spot, dict[str, SpotStay]] = {}
        self.log: ChangeLog[Spot] = ChangeLog(_LOG_LENGTH)

    def put(self, key: str, where: Mapping[Spot, Mapping[str, int]], end: Millis) -> None:
        for spot, amounts in where.items():
            self.at.setdefault(spot, {})[key] = SpotStay(end, amounts)
        self.log.extend(where)

    def drop(self, key: str, where: Iterable[Spot]) -> None:
        for spot in where:
            here = self.at[spot]
            del here[key]
            if not here:
                del self.at[spot]
        self.log.extend(where)


@dataclass(slots=True, eq=False)
class _Part:
    """One pod set: when, leaf by leaf, its pods find room."""

    ledger: TopologyLedger
    pod_requests: PodRequests
    count: int
    by_spot: dict[Spot, list[Millis]] = field(default_factory=dict[Spot, "list[Millis]"])
    #: of all spots, sorted
    times: list[Millis] = field(default_factory=list["Millis"])

    @property
    def flavor(self) -> str:
        """The flavor in the form that the part's spots use."""
        return self.ledger.spot_flavor

    def leaf(self, spot: Spot) -> Leaf | None:
        """The leaf of this spot; None if it is not of this part's flavor, or is gone."""
        flavor, key = spot
        return self.ledger.leaf(key) if flavor == self.flavor else None

    def count_all(self, at: Mapping[Spot, Mapping[str, SpotStay]]) -> None:
        self.by_spot = {}
        for leaf in self.ledger.leaves():
            spot = (self.flavor, leaf.key)
            found = self._times(leaf.idle, at.get(spot, _NOTHING).values())
            if found:
                self.by_spot[spot] = found
        self.times = sorted(time for found in self.by_spot.values() for time in found)

    def count_again(self, spot: Spot, stays: Mapping[str, SpotStay]) -> None:
        for time in self.by_spot.pop(spot, ()):
            del self.times[bisect_right(self.times, time) - 1]
        leaf = self.leaf(spot)
        if leaf is None:
            return
        found = self._times(leaf.idle, stays.values())
        if found:
            self.by_spot[spot] = found
            for time in found:
                insort(self.times, time)

    def _times(self, idle: Mapping[str, int], stays: Collection[SpotStay]) -> list[Millis]:
        """The times at which the first pod finds room, the second one, …; 0 = now."""
        pod_requests, most = self.pod_requests, self.count
        free = [idle.get(resource, 0) for resource, _ in pod_requests]
        if stays:
            free = [
                amount - sum([stay.amounts.get(resource, 0) for stay in stays])
                for amount, (resource, _) in zip(free, pod_requests, strict=True)
            ]
        found = max(0, min([amount // each for amount, (_, each) in zip(free, pod_requests, strict=True)]))
        if found >= most:
            return [0] * most
        times: list[Millis] = [0] * found
        for stay in stays if len(stays) < 2 else sorted(stays, key=_end):
            amounts = stay.amounts
            free = [amount + amounts.get(resource, 0) for amount, (resource, _) in zip(free, pod_requests, strict=True)]
            fitting = min([amount // each for amount, (_, each) in zip(free, pod_requests, strict=True)])
            if fitting > found:
                times += [stay.end] * (min(most, fitting) - found)
                found = fitting
                if found >= most:
                    break
        return times

    def pods_now(self, idle: Mapping[str, int], stays: Iterable[SpotStay]) -> int:
        """How many pods find room now on a leaf with these stays; leaving ones (end 0) do not count."""
        staying = [stay.amounts for stay in stays if stay.end > 0]
        fitting = self.count
        for resource, each in self.pod_requests:
            free = idle.get(resource, 0) - sum([amounts.get(resource, 0) for amounts in staying])
            fitting = min(fitting, free // each)
        return max(0, fitting)

    def pods_without(
        self, gone: frozenset[str], spots: Iterable[Spot], at: Mapping[Spot, Mapping[str, SpotStay]]
    ) -> int:
        """How many pods would find room now if these had left; `spots` are their spots."""
        total = bisect_right(self.times, 0)
        for spot in spots:
            leaf = self.leaf(spot)
            if leaf is None:
                continue
            left = [stay for key, stay in at.get(spot, _NOTHING).items() if key not in gone]
            total += self.pods_now(leaf.idle, left) - bisect_right(self.by_spot.get(spot, _NO_TIMES), 0)
        return total

    def pods_beside(
        self, moment: Millis, spots: Mapping[Spot, Mapping[str, int]], at: Mapping[Spot, Mapping[str, SpotStay]]
    ) -> int:
        """How many pods would find room at a moment if another workload took this of these spots, and stayed."""
        total = bisect_right(self.times, moment)
        for spot, amounts in spots.items():
            leaf = self.leaf(spot)
            if leaf is None:
                continue
            more = [*at.get(spot, _NOTHING).values(), SpotStay(_NEVER, amounts)]
            total -= bisect_right(self.by_spot.get(spot, _NO_TIMES), moment)
            total += bisect_right(self._times(leaf.idle, more), moment)
        return total


class _Leaving:
    """How many pods of one part would find room now, as holders leave one after the other."""

    __slots__ = ("_at", "_gone", "_here", "_part", "pods")

    def __init__(self, part: _Part, at: Mapping[Spot, Mapping[str, SpotStay]]) -> None:
        self._part = part
        self._at = at
        self._gone: set[str] = set()
        #: of the spots that a holder left
        self._here: dict[Spot, int] = {}
        self.pods = bisect_right(part.times, 0)

    def leave(self, key: str, spots: Iterable[Spot]) -> None:
        part, gone = self._part, self._gone
        gone.add(key)
        for spot in spots:
            leaf = part.leaf(spot)
            if leaf is None:
                continue
            before = self._here.get(spot)
            if before is None:
                before = bisect_right(part.by_spot.get(spot, _NO_TIMES), 0)
            left = [stay for other, stay in self._at.get(spot, _NOTHING).items() if other not in gone]
            self._here[spot] = part.pods_now(leaf.idle, left)
            self.pods += self._here[spot] - before


class TimelineOutlook:
    """The outlook of one gang in one queue. It gives 0 for what it cannot count: several flavors to choose from."""

    def __init__(self, gang: WorkloadState, queue: ClusterQueueState, topologies: Topologies) -> None:
        self._parts: list[_Part] = []
        self.needs: dict[FlavorResource, int] = {}
        #: the end of the log of spots that was processed
        self._counted = ChangeLog.UNREAD
        for demand, count in zip(gang.demands, pods_asked(gang, queue), strict=True):
            flavors: set[str] = set()
            for resource, amount in demand.pod_set.counted.items():
                group = queue.group_of.get(resource)
                if group is not None and len(group.options) == 1:
                    fr = (group.options[0].name, resource)
                    self.needs[fr] = self.needs.get(fr, 0) + amount * count
                    flavors.add(group.options[0].name)
            placed = placed_on(demand.pod_set, sorted(flavors), topologies, queue.placement)
            ledger = topologies.ledger(placed) if placed is not None else None
            if ledger is not None and count and (asks(demand.pod_set) or queue.only_topologies):
                if queue.delays_topology:
                    continue
                shares = demand.pod_set.shares if queue.placement is not None else ()
                self._parts.append(_Part(ledger, counted(ledger, demand.pod_set, shares), count))

    def places(self, stays: Stays) -> Millis:
        """The earliest time with room for all its pods; 0 = perhaps now. Beyond all times: never."""
        self._catch_up(stays)
        latest = 0
        for part in self._parts:
            if len(part.times) < part.count:
                return _NEVER
            latest = max(latest, part.times[part.count - 1])
        return latest

    def might_fit_without(self, gone: Mapping[str, Iterable[Spot]], stays: Stays) -> bool:
        """Whether, by counting, there could be room now if these had left."""
        self._catch_up(stays)
        keys = frozenset(gone)
        spots = sorted({spot for where in gone.values() for spot in where})
        return all(part.pods_without(keys, spots, stays.at) >= part.count for part in self._parts)

    def fewest_without(self, going: Iterable[tuple[str, Iterable[Spot]]], stays: Stays) -> int | None:
        """How many of these have to leave, in their order, until there could be room now, by counting; None: all are too
        few.
        """
        self._catch_up(stays)
        parts = [(_Leaving(part, stays.at), part.count) for part in self._parts]
        missing = [(leaving, count) for leaving, count in parts if leaving.pods < count]
        if not missing:
            return 0
        for number, (key, spots) in enumerate(going, start=1):
            for leaving, _ in missing:
                leaving.leave(key, spots)
            missing = [(leaving, count) for leaving, count in missing if leaving.pods < count]
            if not missing:
                return number
        return None

    def fits_beside(self, moment: Millis, spots: Mapping[Spot, Mapping[str, int]], stays: Stays) -> bool:
        """Whether, by counting, there could be room at a moment if another workload took this as well."""
        self._catch_up(stays)
        return all(part.pods_beside(moment, spots, stays.at) >= part.count for part in self._parts)

    def _catch_up(self, stays: Stays) -> None:
        changed = stays.log.since(self._counted)
        if changed is None:
            for part in self._parts:
                part.count_all(stays.at)
        elif changed:
            spots = sorted(set(changed))
            for part in self._parts:
                for spot in spots:
                    part.count_again(spot, stays.at.get(spot, _NOTHING))
        self._counted = stays.log.end


def enough_quota(
    needs: Mapping[FlavorResource, int],
    queue: ClusterQueueState,
    releases: Sequence[tuple[Millis, str]],
    usage: Callable[[str], Mapping[FlavorResource, int]],
) -> Millis:
    """The earliest time with enough quota released, by the present cells of `queue`; 0 = perhaps now."""
    latest = 0
    for fr, amount in needs.items():
        missing = amount - queue.cell(fr).available()
        if missing <= 0:
            continue
        for end, key in releases:
            missing -= usage(key).get(fr, 0)
            if missing <= 0:
                latest = max(latest, end)
                break
        else:
            return _NEVER
    return latest


def fewest_releases(
    needs: Mapping[FlavorResource, int], queue: ClusterQueueState, releases: Sequence[Mapping[FlavorResource, int]]
) -> int | None:
    """How many of these have to leave, in their order, until there is enough quota now; None: all are too few."""
    fewest = 0
    for fr, amount in needs.items():
        missing, number = amount - queue.cell(fr).available(), 0
        while missing > 0:
            if number == len(releases):
                return None
            missing -= releases[number].get(fr, 0)
            number += 1
        fewest = max(fewest, number)
    return fewest


def _end(stay: SpotStay) -> Millis:
    return stay.end


_NEVER: Millis = 1 << 62
_NOTHING: Mapping[str, SpotStay] = {}
_NO_TIMES: list[Millis] = []
