"""Run times in company: runs that slow one another down, in backfill, in expected starts, and after a restart."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.bench.interference import SIMULATION
from tests.builders.engine import GPU, START, EngineWorld, gang, group
from tests.engine.test_card_admission import cards, host, seats
from tests.engine.test_interference import pair, policy, work
from tests.engine.test_placement_policy import HOSTS, POOL
from tests.examples import examples

from gangline.engine import Engine, EventKind, SimulatedRun, Simulation, outlook
from gangline.engine.interference.work_paths import RunAhead, play
from gangline.engine.model import (
    Backfill,
    ClusterQueue,
    CompanySpeed,
    Device,
    Flavor,
    JobProfile,
    LocalQueue,
    Millis,
    NodeCards,
    PodSet,
    PreemptionPolicy,
    Put,
    RuntimeForecast,
    Settings,
    Share,
    SlowedRun,
    Workload,
)
from gangline.engine.state.slowed_runs import MOST, SlowedRuns
from gangline.forecast.pairs import pair_file

MINUTE = 60_000
HALF = JobProfile("a", (CompanySpeed("a", speed=0.5),))

# --- paths of work ------------------------------------------------------------------------------------------------------

DAYS = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), min_size=1, max_size=7)
PAIRS = st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.floats(0.1, 1.0), min_size=0, max_size=49)


def played(day: list[tuple[int, int]], speeds: Mapping[tuple[int, int], float]) -> dict[str, tuple[float, float]]:
    """By key: when it ends, and the work that it has done by then."""

    def of(there: Collection[str]) -> dict[str, float]:
        return {
            key: 1 / (1 + sum(1 / speeds.get((int(key), int(other)), 1.0) - 1 for other in there if other != key))
            for key in there
        }

    runs = [RunAhead(str(number), since, 0.0, length) for number, (since, length) in enumerate(day)]
    paths = play(runs, of)
    return {
        run.key: (paths[run.key].reaches(run.work), paths[run.key].done_at(paths[run.key].reaches(run.work)))
        for run in runs
    }


@given(DAYS)
@examples(50)
def test_at_full_speed_every_run_ends_as_if_it_were_alone(day: list[tuple[int, int]]) -> None:
    assert [end for end, _ in played(day, {}).values()] == [since + length for since, length in day]


@given(DAYS, PAIRS, st.integers(0, 6), st.integers(0, 6), st.floats(0.1, 1.0))
@examples(100)
def test_a_lower_speed_makes_no_end_earlier_and_no_work_is_lost(
    day: list[tuple[int, int]], speeds: dict[tuple[int, int], float], mine: int, other: int, part: float
) -> None:
    before = played(day, speeds)
    after = played(day, {**speeds, (mine, other): part * speeds.get((mine, other), 1.0)})
    for number, (since, length) in enumerate(day):
        end, done = before[str(number)]
        assert done == pytest.approx(length) and end >= since + length - 1e-6
        assert after[str(number)][0] >= end - 1e-6


# --- expected ends ------------------------------------------------------------------------------------------------------


def forecast(name: str, minutes: float, source: str = "Model") -> RuntimeForecast:
    millis = round(minutes * MINUTE)
    return RuntimeForecast(f"team/{name}", ((0.5, millis), (0.9, millis)), source, 9)


def exclusive(name: str, count: int, **fields: Any) -> Workload:
    shares = (Share(count=count, exclusive=True, resource=GPU),)
    return gang(name, pod_sets=(PodSet("main", 1, {GPU: count}, shares=shares),), **fields)


def shared(*items: Any, count: int = 1, **fields: Any) -> EngineWorld:
    """A host with so many cards, whose queue has backfill, and two pods of class a are half as fast together."""
    fields = {"policy": policy(cap=4.0, gain=1.0), "backfill": Backfill(), **fields}
    queue = ClusterQueue(
        "q",
        groups=(group({"plain": {GPU: 1000}}),),
        placement=fields["policy"],
        backfill=fields["backfill"],
        preemption=PreemptionPolicy(within_cluster_queue="LowerPriority"),
    )
    return EngineWorld(Flavor("plain", POOL), HOSTS, queue, host("n0"), cards("n0", count), *items)


def minutes(cluster: EngineWorld, name: str) -> float:
    """When a holder is expected to end, in minutes since the world began."""
    timeline = cluster.engine._scheduler.backfill.timeline
    timeline.sync(cluster.now)
    return round((timeline.end_of(f"team/{name}") - START - 1_001_000) / MINUTE, 3)


def blocked(*items: Any, count: int = 1, **fields: Any) -> EngineWorld:
    """`w1` runs for an hour, and a head waits for all cards."""
    cluster = shared(HALF, forecast("w1", 60), work("w1", "a"), *items, count=count, **fields)
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", count))
    cluster.decide()
    return cluster


def planned(cluster: EngineWorld) -> float:
    start = cluster.engine.reservations()["team/head2"]
    assert start is not None
    return round((start - START - 1_001_000) / MINUTE, 3)


def test_two_that_run_beside_each_other_end_later_and_the_head_is_planned_so() -> None:
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 30), work("w1", "a"), work("w2", "a"))
    cluster.decide()
    assert seats(cluster, "w1") == seats(cluster, "w2")
    cluster.put(forecast("head2", 60), exclusive("head2", 1))
    cluster.decide()
    # both at half speed until w2 is done at 60; w1 has 30 left then
    assert (minutes(cluster, "w2"), minutes(cluster, "w1"), planned(cluster)) == (60, 90, 90)


def test_unknown_pairs_and_queues_without_the_policy_change_nothing() -> None:
    for rules, known in ((policy(unknown="Share"), ()), (replace(policy(), interference=None), (HALF,))):
        runs = (forecast("w1", 60), forecast("w2", 30), work("w1", "a"), work("w2", "a"))
        cluster = shared(*known, *runs, policy=rules)
        cluster.decide()
        cluster.put(forecast("head2", 60), exclusive("head2", 1))
        cluster.decide()
        assert cluster.running() == ["w1", "w2"]
        assert (minutes(cluster, "w2"), minutes(cluster, "w1")) == (30, 60)


def test_a_limit_is_not_longer_in_company() -> None:
    limited = replace(work("w2", "a"), max_execution_seconds=40 * 60)
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 30), work("w1", "a"), limited)
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", 1))
    cluster.decide()
    assert (minutes(cluster, "w2"), minutes(cluster, "w1")) == (40, 80)


def test_a_forecast_by_the_own_pace_counts_company_already() -> None:
    cluster = shared(HALF, forecast("w1", 60, "Progress"), forecast("w2", 30), work("w1", "a"), work("w2", "a"))
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", 1))
    cluster.decide()
    assert (minutes(cluster, "w1"), minutes(cluster, "w2")) == (60, 60)


def test_a_candidate_that_would_make_its_companion_too_late_for_the_head_waits() -> None:
    cluster = blocked(forecast("w3", 20))
    assert planned(cluster) == 60
    cluster.put(work("w3", "a"))  # alone it would be done at 20; it is at 40, and w1 at 80
    cluster.decide()
    assert cluster.running() == ["w1"] and planned(cluster) == 60
    cluster.put(
        forecast("w4", 20), work("w4", "b"), pair("b", "a", 0.5), JobProfile("a", (CompanySpeed("b", speed=1.0),))
    )
    cluster.decide()
    assert cluster.running() == ["w1", "w4"], "it slows nobody, and is done at 40"
    assert planned(cluster) == 60


def test_a_candidate_that_would_be_too_slow_itself_waits() -> None:
    fast = (pair("b", "a", 0.3), JobProfile("a", (CompanySpeed("b", speed=1.0),)))
    cluster = blocked(*fast, forecast("w3", 20))
    cluster.put(work("w3", "b"))
    cluster.decide()
    assert cluster.running() == ["w1"], "alone it would be done at 20; it is at 67"


def test_a_companion_may_end_later_where_the_head_fits_beside_it() -> None:
    cluster = shared(HALF, forecast("w1", 60), work("w1", "a"), forecast("w0", 60), exclusive("w0", 1), count=2)
    cluster.decide()
    cluster.put(forecast("head2", 60), replace(exclusive("head2", 1)))
    cluster.put(forecast("w3", 20), work("w3", "a"))
    cluster.decide()
    assert cluster.running() == ["w0", "w1", "w3"] and planned(cluster) == 60, "the card of w0 is enough"


def test_what_a_companion_has_cost_is_known_when_it_has_left_and_after_a_restart() -> None:
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 30), work("w1", "a"), work("w2", "a"))
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", 1))
    cluster.now += 20 * MINUTE - 1000
    cluster.finish("w2")
    cluster.decide()
    assert minutes(cluster, "w1") == 70, "ten minutes of work are lost"
    assert cluster.engine.lost_to_company_by_end("uid-w2", cluster.now) == 10 * MINUTE
    facts = cluster.engine.slowed_runs()
    assert facts == [SlowedRun("team/w1", "uid-w1", cluster.now, 10 * MINUTE)]
    assert Put(facts[0]) in list(cluster.engine.facts())
    cluster.restart()
    cluster.put(facts[0], SlowedRun("team/w1", "another", cluster.now, 5), SlowedRun("team/nobody", "x", 1, 1))
    cluster.decide()
    assert minutes(cluster, "w1") == 70 and cluster.engine.slowed_runs() == facts


def test_company_on_the_node_counts_beside_company_on_the_card() -> None:
    """They are two bottlenecks, of which the narrower one counts."""
    on_node = (pair("a", "b", 0.5, on_node=True), pair("b", "a", 0.8, on_node=True))
    cluster = shared(*on_node, forecast("w1", 60), forecast("w2", 60), work("w1", "a"), work("w2", "b"), count=2)
    cluster.decide()
    assert seats(cluster, "w1") != seats(cluster, "w2")
    cluster.put(forecast("head2", 60), exclusive("head2", 2))
    cluster.decide()
    # w2 is done after 60 / 0.8 minutes, in which w1 has done a half of that
    assert (minutes(cluster, "w2"), minutes(cluster, "w1"), planned(cluster)) == (75, 97.5, 97.5)


def test_what_is_learned_of_a_pair_moves_the_ends_of_those_that_run() -> None:
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 30), work("w1", "a"), work("w2", "a"))
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", 1))
    cluster.decide()
    cluster.put(JobProfile("a", (CompanySpeed("a", speed=0.75),)))
    cluster.decide()
    assert (minutes(cluster, "w2"), minutes(cluster, "w1"), planned(cluster)) == (40, 70, 70)


def test_without_the_policy_ends_are_as_before_again() -> None:
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 30), work("w1", "a"), work("w2", "a"))
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", 1))
    cluster.decide()
    assert planned(cluster) == 90
    config = cluster.engine._store.cluster_queues["q"]
    cluster.put(replace(config, placement=replace(policy(), interference=None)))
    cluster.decide()
    assert planned(cluster) == 60 and cluster.engine.slowed_runs() == []
    cluster.put(config)
    cluster.decide()
    assert planned(cluster) == 90


def test_who_moves_to_another_card_was_not_company_there_before() -> None:
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 60), work("w1", "a"), work("w2", "a"), count=2)
    cluster.put(forecast("w3", 30), work("w3", "a"))
    cluster.decide()
    (alone,) = (
        name
        for name in ("w1", "w2", "w3")
        if [seats(cluster, each) for each in ("w1", "w2", "w3")].count(seats(cluster, name)) == 1
    )
    assert alone == "w2"
    cluster.put(forecast("head4", 60), exclusive("head4", 2))
    cluster.now += 20 * MINUTE - 2000
    cluster.decide()
    cluster.change("w3", admission=cluster.workloads["team/w2"].admission)
    cluster.decide()
    # w3 has done 10 of its 30 minutes beside w1, and does the others beside w2
    assert (minutes(cluster, "w1"), minutes(cluster, "w3"), minutes(cluster, "w2")) == (70, 60, 80)
    facts = {fact.workload: fact.lost for fact in cluster.engine.slowed_runs()}
    assert facts == {"team/w1": 10 * MINUTE, "team/w3": 10 * MINUTE, "team/w2": 0}


def test_in_a_circle_of_many_nobodys_end_is_foreseen() -> None:
    """All together on one card: each goes on as fast as it is now. They have not all started in one decision."""
    speeds = JobProfile("a", (CompanySpeed("a", speed=0.99),))
    cluster = shared(speeds, *(work(f"w{n}", "a", milli=1) for n in range(MOST + 1)))
    cluster.put(*(forecast(f"w{n}", 10 * (n + 1)) for n in range(MOST + 1)))
    cluster.decide()
    cluster.put(forecast("head99", 60), exclusive("head99", 1))
    cluster.decide()
    assert len(cluster.running()) == MOST + 1
    slowdown = 1 + MOST * (1 / 0.99 - 1)
    for number in (0, MOST):
        assert minutes(cluster, f"w{number}") == pytest.approx(10 * (number + 1) * slowdown, abs=0.05)
    cluster.finish("w0")
    cluster.decide()
    assert minutes(cluster, f"w{MOST}") < 10 * (MOST + 1) * slowdown - 1


def test_an_overdue_candidate_is_one_that_has_done_its_work() -> None:
    """Its company makes it slower, as was known when it was let in: it is not stopped for that."""
    slows = (pair("b", "a", 0.5), JobProfile("a", (CompanySpeed("b", speed=1.0),)))
    cluster = blocked(*slows, forecast("w3", 20), backfill=Backfill(revoke="Overdue"))
    cluster.put(work("w3", "b"))
    cluster.decide()
    assert cluster.running() == ["w1", "w3"]
    revoking, w3 = cluster.engine._scheduler.backfill._revoking, cluster.engine._store.gangs["team/w3"]
    assert revoking.overdue_at(w3) - w3.started_at == 40 * MINUTE
    cluster.now += 50 * MINUTE
    cluster.decide()
    assert revoking.overdue_at(w3) - w3.started_at == 40 * MINUTE, "it stays overdue"


def test_whom_another_one_joins_later_is_overdue_later() -> None:
    slows = (JobProfile("b", (CompanySpeed("c", speed=0.5), CompanySpeed("a", speed=1.0))),)
    fast = (JobProfile("a", (CompanySpeed("b", speed=1.0), CompanySpeed("c", speed=1.0))),)
    slow = (JobProfile("c", (CompanySpeed("a", speed=1.0), CompanySpeed("b", speed=1.0))),)
    cluster = blocked(*slows, *fast, *slow, forecast("w3", 20), backfill=Backfill(revoke="Overdue"))
    cluster.put(work("w3", "b"))
    cluster.decide()
    (reservation,) = cluster.engine._scheduler.backfill.timeline.reservations
    revoking = cluster.engine._scheduler.backfill._revoking

    def overdue() -> list[float]:
        return sorted(round((when - START - 1_001_000) / MINUTE, 1) for when, _ in revoking._passed_by(reservation))

    assert cluster.running() == ["w1", "w3"] and overdue() == [20]
    cluster.put(forecast("w4", 10), work("w4", "c"))
    cluster.decide()
    assert cluster.running() == ["w1", "w3", "w4"] and overdue() == [10.1, 25]
    cluster.now += 5 * MINUTE
    cluster.finish("w4")
    cluster.decide()
    assert overdue() == [22.5]


def test_expected_starts_count_company() -> None:
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 30), work("w1", "a"), work("w2", "a"))
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", 1))
    cluster.decide()
    seen = outlook(
        list(cluster.engine.facts()), Settings(pods_ready=None), cluster.now, courses=1, seconds=0.0, clock=lambda: 0.0
    )
    assert round((seen.starts["team/head2"].p50 - START - 1_001_000) / MINUTE, 3) == 90
    cluster.now += 20 * MINUTE
    cluster.finish("w2")
    cluster.decide()
    seen = outlook(
        list(cluster.engine.facts()), Settings(pods_ready=None), cluster.now, courses=1, seconds=0.0, clock=lambda: 0.0
    )
    assert 70 <= (seen.starts["team/head2"].p50 - START - 1_001_000) / MINUTE < 70.1


def test_what_company_has_cost_a_victim_is_not_taken_for_work_that_it_has_saved() -> None:
    """Both do 20 minutes of work in 40, and save them; for the 40 that are left of each they need 80 together."""
    saving = {"checkpoint_seconds": 1200.0, "priority": 0}
    runs = (replace(work("w1", "a"), **saving), replace(work("w2", "a"), **saving))
    cluster = shared(HALF, forecast("w1", 60), forecast("w2", 60), *runs, backfill=None)
    cluster.decide()
    cluster.now += 40 * MINUTE
    cluster.put(forecast("high3", 30), replace(exclusive("high3", 1), priority=5))
    cluster.put(forecast("last4", 5), replace(exclusive("last4", 1), priority=-1))
    seen = outlook(
        list(cluster.engine.facts()), Settings(pods_ready=None), cluster.now, courses=1, seconds=0.0, clock=lambda: 0.0
    )
    assert (seen.starts["team/last4"].p50 - cluster.now) / MINUTE == pytest.approx(30 + 80, abs=0.1)


DEEP = Backfill(depth=3)


def two_heads(*items: Any, **fields: Any) -> EngineWorld:
    """`w1` runs for an hour on one card and `w0` for half an hour on the other. `head2` will take both beside `w1`."""
    running = (forecast("w1", 60), work("w1", "a"), forecast("w0", 30), exclusive("w0", 1))
    cluster = shared(HALF, *running, count=2, backfill=DEEP, **fields)
    cluster.decide()
    cluster.put(forecast("head2", 20), work("head2", "a", 2, milli=600), *items)
    cluster.decide()
    return cluster


def starts(cluster: EngineWorld) -> dict[str, float]:
    """When each reserved workload is planned to start, in minutes since the world began."""
    found = cluster.engine.reservations().items()
    return {key.removeprefix("team/"): round((start - START - 1_001_000) / MINUTE, 3) for key, start in found if start}


def test_the_plan_of_a_later_head_counts_how_much_an_earlier_one_slows_those_whom_it_joins() -> None:
    cluster = two_heads(forecast("head3", 60), exclusive("head3", 2))
    # head2 takes 40 minutes beside w1, which has done 20 of its other 30 then, and ends ten minutes later
    assert starts(cluster) == {"head2": 30, "head3": 80}
    cluster.put(JobProfile("a", (CompanySpeed("a", speed=0.8),)))
    cluster.decide()
    # head2 takes 25 minutes; w1 has done 20 of its other 30
    assert starts(cluster) == {"head2": 30, "head3": 65}
    cluster.change("head2", active=False)
    cluster.decide()
    assert starts(cluster) == {"head3": 60}


def test_a_later_head_that_would_start_before_an_earlier_one_does_not_make_others_too_late_for_it() -> None:
    runs = (forecast("w1", 60), work("w1", "a"), forecast("w0", 30), exclusive("w0", 1))
    cluster = shared(HALF, *runs, count=2, backfill=DEEP)
    cluster.decide()
    cluster.put(forecast("head2", 60), exclusive("head2", 2))
    cluster.put(forecast("head3", 15), work("head3", "a", 2, milli=600))
    cluster.decide()
    # beside w1 from 30 on it would be done at 60, but w1 would end at 75
    assert starts(cluster) == {"head2": 60, "head3": 120}


def test_a_head_that_another_one_joins_is_planned_to_end_later() -> None:
    running = (forecast("w0", 30), exclusive("w0", 1), forecast("w1", 40), exclusive("w1", 1))
    cluster = shared(HALF, *running, count=2, backfill=DEEP)
    cluster.decide()
    cluster.put(forecast("head2", 60), work("head2", "a", milli=300))
    cluster.put(forecast("head3", 20), work("head3", "a", 2, milli=600))
    cluster.put(forecast("head4", 60), exclusive("head4", 2))
    cluster.decide()
    # head2 has done 10 of its 60 minutes when head3 joins it, and 30 when that ends at 80
    assert starts(cluster) == {"head2": 30, "head3": 40, "head4": 110}


# --- measured pairs, played -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlayedJob:
    at: int  # minutes
    minutes: int
    #: a class of trainings; "" = it takes its cards for itself
    kind: str = ""
    cards: int = 1
    #: it runs for this part of its forecast
    part: float = 1.0


class Played(Simulation):
    """Jobs on so many cards, which `slots` pods may share, as fast together as was measured. Forecasts say how long each takes
    alone at most.
    """

    def __init__(
        self,
        jobs: Iterable[PlayedJob],
        profiles: Mapping[str, JobProfile],
        count: int,
        slots: int = 2,
        backfill: Backfill | None = None,
    ) -> None:
        super().__init__(Engine(Settings(pods_ready=None)), START)
        self._jobs, self._profiles = list(jobs), profiles
        self._left: dict[str, float] = {}
        self._speed: dict[str, float] = {}
        self._updated = START
        #: what was expected while they ran, and when they ended: of those that had company
        self.expected: list[tuple[str, Millis, Millis]] = []
        self.ended_at: dict[str, Millis] = {}
        rules = policy(cap=3.0, gain=1.1)
        queue = ClusterQueue(
            "q", groups=(group({"plain": {GPU: 1000}}),), placement=rules, backfill=backfill or Backfill()
        )
        devices = tuple(
            Device("n0", f"GPU-{n}", n, "v100", memory=1 << 20, resource=GPU, slots=slots) for n in range(count)
        )
        for item in (
            Flavor("plain", POOL),
            HOSTS,
            queue,
            LocalQueue("team", "q", "q"),
            host("n0"),
            NodeCards("n0", devices),
            *profiles.values(),
        ):
            self.observe(Put(item))
        for number, job in enumerate(self._jobs):
            self.schedule(START + job.at * MINUTE, EventKind.ARRIVAL, number)

    def happens(self, kind: Any, number: int) -> None:
        job, name = self._jobs[number], f"w{number}"
        self.learn(Put(forecast(name, job.minutes)))
        shape = exclusive(name, job.cards) if not job.kind else work(name, job.kind, job.cards, milli=100)
        self.put(replace(shape, created=self.now))
        self._left[f"team/{name}"] = job.part * job.minutes * MINUTE - 10  # losses are noted in whole milliseconds

    def cards_of(self, key: str) -> list[str]:
        """The cards of a run, one for each pod."""
        admission = self.workloads[key].admission
        assert admission is not None and admission.pod_sets[0].topology is not None
        return [seat.card for domain in admission.pod_sets[0].topology.domains for pod in domain.cards for seat in pod]

    def _kind(self, key: str) -> str:
        return self._jobs[int(key.removeprefix("team/w"))].kind

    def _together(self, mine: str, kinds: list[str]) -> float:
        """The speed of a pod on a card with pods of these classes, itself among them: what each other costs adds up."""
        speeds = {each.beside: each.speed for each in self._profiles[mine].pairs}
        return 1 / (1 + sum(1 / speeds[other] - 1 for other in kinds) - (1 / speeds[mine] - 1))

    def process_due(self) -> None:
        self._advance()
        super().process_due()

    def _advance(self) -> None:
        for key in self.runs:
            self._left[key] -= (self.now - self._updated) * self._speed.get(key, 1.0)
        self._updated = self.now

    def length(self, workload: Workload, run: SimulatedRun) -> Millis:
        return self.now - run.began + math.ceil(self._left[workload.key] / self._speed.get(workload.key, 1.0) - 1e-3)

    def decide(self) -> None:
        super().decide()
        there: dict[str, list[str]] = {}
        seated = {key: self.cards_of(key) for key in self.runs if self._kind(key)}
        for key, mine in seated.items():
            for card in mine:
                there.setdefault(card, []).append(self._kind(key))
        for key, mine in seated.items():
            speed = min(self._together(self._kind(key), there[card]) for card in mine)
            if speed != self._speed.get(key, 1.0):
                self._speed[key] = speed
                self.plan_end(key)
        timeline = self.engine._scheduler.backfill.timeline
        if timeline.reservations:
            timeline.sync(self.now)
            self.expected += [(key, self.now, timeline.end_of(key)) for key in self.runs if self._kind(key)]

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        self.ended_at[workload.key] = self.now

    def error(self) -> float:
        """The mean absolute error of expected ends, in minutes."""
        errors = [abs(self.ended_at[key] - expected) / MINUTE for key, _, expected in self.expected]
        return sum(errors) / len(errors)

    def lateness(self) -> list[float]:
        """By how many minutes each head started after its first plan."""
        return [
            (head.started - head.planned) / MINUTE for head in self.engine.head_starts() if head.planned is not None
        ]


def v100() -> dict[str, JobProfile]:
    """Four of the trainings that were measured on V100, some of which suffer much."""
    read = pair_file.read(SIMULATION).profiles
    able = [name for name, each in sorted(read.items()) if any(alone.gpu == "v100" for alone in each.alone)][::6][:4]
    return {
        name: JobProfile(name, tuple(each for each in read[name].pairs if each.gpu == "v100" and each.beside in able))
        for name in able
    }


def day(kinds: list[str]) -> list[PlayedJob]:
    """Trainings that come every few minutes, and now and then a job for all three cards."""
    found = [PlayedJob(4 * n, 20 + (37 * n) % 90, kinds[(7 * n + n // 3) % len(kinds)]) for n in range(24)]
    return [*found, PlayedJob(9, 30, cards=3), PlayedJob(61, 20, cards=3)]


LAW = "no head is delayed by what was let in before it"


@pytest.mark.parametrize("candidates", ["QueueOrder", "ShortestFirst"])
@pytest.mark.parametrize("depth", [1, 4])
def test_no_head_is_late_where_several_share_cards_gangs_connect_them_and_runs_end_early(
    candidates: str, depth: int
) -> None:
    profiles = v100()
    jobs = [
        replace(job, cards=2 if job.kind and number % 4 == 0 else job.cards, part=1 - (number % 5) / 8)
        for number, job in enumerate(day(sorted(profiles)))
    ]
    played = Played(jobs, profiles, 3, slots=3, backfill=Backfill(candidates=candidates, depth=depth))
    played.play()
    assert len(played.ended_at) == len(jobs) and len(played.lateness()) >= 5
    assert max(played.lateness()) <= 0.001, LAW


def test_with_measured_pairs_expected_ends_are_true_and_no_head_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = v100()
    jobs = day(sorted(profiles))
    ours = Played(jobs, profiles, 3)
    ours.play()
    assert len(ours.ended_at) == len(jobs) and len(ours.lateness()) >= 5
    assert max(ours.lateness()) <= 0.001, LAW
    monkeypatch.setattr(SlowedRuns, "turn", lambda self, *, on: None)
    without = Played(jobs, profiles, 3)
    without.play()
    assert max(without.lateness()) > 1
    assert ours.error() < without.error() / 2, (ours.error(), without.error())
