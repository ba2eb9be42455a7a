"""The floor: modes of queues, counterfactuals, and when a tree leaves its policy and returns."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.builders.engine import GPU, START, cluster_queue, gang

from gangline.engine import MODES, PLAIN, POLICY, Comparison, Floor, Mode, PolicyFallback, has_floor, under
from gangline.engine.floor.floor import EVERY
from gangline.engine.floor.verdicts import AWAY, DAY, DWELL, FLOOR_LEAST, FLOOR_MOST, LONG, PATIENCE, SPELL
from gangline.engine.floor.waits import ALIKE, LANE, REAL, Figures, Lengths, WorkloadWaits, draw, without_each_spell
from gangline.engine.floor.world import Counterfactual
from gangline.engine.model import (
    Admission,
    Backfill,
    CheckpointPreemption,
    ClusterQueue,
    Cohort,
    Flavor,
    Gone,
    LocalQueue,
    Millis,
    Ordering,
    PodSetAssignment,
    Put,
    RuntimeForecast,
    Settings,
    Workload,
)

SETTINGS = Settings(pods_ready=None)
MINUTE = 60_000
HOUR = 60 * MINUTE
TREE = "ClusterQueue/q"


def policied() -> ClusterQueue:
    return cluster_queue("q", 1, ordering=Ordering("ShortestFirst"), backfill=Backfill())


def test_a_queue_in_a_mode() -> None:
    queue = replace(policied(), strategy="StrictFIFO")
    assert under(queue, POLICY) is queue
    best_effort, easy = under(queue, "BestEffort"), under(queue, "Easy")
    assert (best_effort.ordering, best_effort.backfill, best_effort.strategy) == (None, None, "BestEffortFIFO")
    assert (easy.ordering, easy.backfill) == (None, Backfill()), "nothing is evicted"
    assert best_effort.fallen_back == "BestEffort" and easy.fallen_back == "Easy"
    refused = replace(queue, floor=False)
    assert under(refused, "Easy") is refused
    shares = replace(queue, ordering=Ordering("FairShare"))
    assert under(shares, "BestEffort").ordering == Ordering("FairShare"), "it uses no forecasts"
    assert not has_floor(cluster_queue("q")), "there is nothing to fall back from"
    assert not has_floor(replace(shares, backfill=None))
    assert has_floor(replace(queue, backfill=None))
    assert not has_floor(replace(queue, ordering=None, backfill=Backfill(depth=0)))


# --- a counterfactual -------------------------------------------------------------------------------------------------


def world(mode: Mode, lengths: dict[str, Millis], ran: Millis | None = None) -> Counterfactual:
    made = Counterfactual(SETTINGS, mode, START, lambda key, least: lengths.get(key), lambda key: ran)
    for item in (Flavor("a100"), policied(), LocalQueue("team", "q", "q")):
        made.take_in(Put(item))
    return made


def forecast(name: str, minutes: float) -> Put:
    return Put(RuntimeForecast(f"team/{name}", ((0.5, round(minutes * MINUTE)), (0.9, round(2 * minutes * MINUTE)))))


def running(workload: Workload, since: Millis) -> Workload:
    admission = Admission("q", (PodSetAssignment("main", 1, {GPU: "a100"}, {GPU: 1}),))
    return replace(workload, admission=admission, reserved_at=since, admitted=True, admitted_at=since)


def starts(made: Counterfactual) -> list[tuple[int, str]]:
    return [((at - START) // MINUTE, key.removeprefix("team/")) for at, key, started, _ in made.news if started]


def test_the_same_arrivals_in_two_worlds() -> None:
    lengths = {"team/g0": 10 * MINUTE, "team/g1": 30 * MINUTE, "team/g2": 5 * MINUTE}
    orders: dict[Mode, list[str]] = {"BestEffort": ["g0", "g1", "g2"], POLICY: ["g0", "g2", "g1"]}
    for mode, order in orders.items():
        made = world(mode, lengths)
        for name, minutes in (("g0", 10), ("g1", 30), ("g2", 5)):
            made.take_in(forecast(name, minutes))
            made.submit(gang(name, created=START))
            made.advance(made.now + 1)
        made.advance(START + 60 * MINUTE)
        assert [key for _, key in starts(made)] == order
        assert not made.knows("team/g2"), "it has ended"


def test_what_came_out_precedes_what_was_drawn_and_evicted_work_that_is_saved_is_not_repeated() -> None:
    lengths: dict[str, Millis] = {"team/g0": 60 * MINUTE, "team/g1": MINUTE}
    made = world("BestEffort", lengths)
    made.submit(gang("g0", created=START))
    made.submit(gang("g1", created=START + 1))
    made.advance(START + 20 * MINUTE)
    assert starts(made) == [(0, "g0")]
    lengths["team/g0"] = 20 * MINUTE
    made.came_out("team/g0")
    made.advance(START + 30 * MINUTE)
    assert starts(made) == [(0, "g0"), (20, "g1")]
    lengths["team/g2"] = 10 * MINUTE
    made.submit(gang("g2", created=START))
    made.advance(made.now + 1)
    lengths["team/g2"] = 50 * MINUTE  # it really runs longer than was drawn: it is not taken for ended
    made.advance(START + 45 * MINUTE)
    assert made.knows("team/g2")
    made.remove("team/g2")
    assert not made.knows("team/g2")


@pytest.mark.parametrize(("careful", "hours"), [(False, 12), (True, 48)])
def test_a_world_waits_for_what_comes_out_and_longer_while_policies_are_followed(careful: bool, hours: int) -> None:
    """In reality the run has not begun yet, and it is drawn to take ten minutes."""
    made = world("BestEffort", {"team/g0": 10 * MINUTE}, ran=0)
    made.careful = careful
    made.submit(gang("g0", created=START))
    for now in (START + hours * HOUR, START + hours * HOUR + 10 * MINUTE):
        assert made.knows("team/g0")
        assert not made.advance(now, now)
    made.advance(now + MINUTE, now + MINUTE)
    assert not made.knows("team/g0")


def test_what_has_ended_in_a_world_does_not_run_there_again_when_it_really_starts_later() -> None:
    made = world("BestEffort", {"team/g0": 5 * MINUTE})
    waiting = gang("g0", created=START)
    made.submit(waiting)
    made.advance(START + 10 * MINUTE)
    for at, fact in (
        (12, running(waiting, made.now)),
        (14, replace(waiting, evicted="Preempted", preemptions=1)),
    ):
        made.submit(fact)
        made.advance(START + at * MINUTE)
    assert starts(made) == [(0, "g0")] and not made.knows("team/g0")
    made.remove("team/g0")  # its name is free
    made.submit(gang("g0", created=START + 20 * MINUTE))
    assert made.knows("team/g0")


def test_a_world_that_begins_forecasts_of_an_evicted_workload_what_is_left() -> None:
    made = world("Easy", {})
    made.take_in(forecast("g0", 60))
    made.adopt(gang("g0", created=START, checkpoint_seconds=600.0), 40 * MINUTE)
    (known_forecast,) = made.engine._store.forecasts.values()  # pyright: ignore[reportPrivateUsage]
    assert known_forecast.quantiles[0][1] < 60 * MINUTE, "it saved 40 minutes"


def test_a_workload_that_is_created_anew_under_its_name_is_another_one() -> None:
    floor = Reality(Floor(SETTINGS)).floor
    first = gang("g0", created=START)
    for number, workload in enumerate((first, replace(first, uid="another", created=START + MINUTE))):
        floor.observe(Put(workload), START + number * MINUTE)
    floor.advance(START + 2 * MINUTE)
    (job,) = floor._jobs.values()  # pyright: ignore[reportPrivateUsage]
    assert (job.workload.uid, job.submitted) == ("another", START + MINUTE)
    assert all(each.knows("team/g0") for each in floor._worlds.values())  # pyright: ignore[reportPrivateUsage]
    floor.observe(Put(replace(first, uid="a third", active=False)), START + 3 * MINUTE)
    assert not floor._jobs and not floor._waiting, "it does not wait"  # pyright: ignore[reportPrivateUsage]


def test_news_of_a_workload_from_before_it_was_created_anew_are_not_told_of_its_successor() -> None:
    floor = Reality(Floor(SETTINGS)).floor
    first = gang("g0", created=START)
    floor.observe(Put(running(first, START)), START)
    floor.observe(Put(replace(first, uid="another", created=START + MINUTE)), START + MINUTE)
    floor._uncounted[LANE["Easy"]].append((START, "team/g0", False, HOUR))  # pyright: ignore[reportPrivateUsage]
    floor.advance(START + 2 * MINUTE)
    (job,) = floor._jobs.values()  # pyright: ignore[reportPrivateUsage]
    assert job.wait(LANE["Easy"], START + MINUTE) == job.wait(REAL, START + MINUTE) == 0


def test_a_workload_that_starts_in_the_instant_in_which_worlds_begin_has_saved_its_work_in_them() -> None:
    floor = Floor(SETTINGS)
    evicted = gang("g0", created=START, checkpoint_seconds=600.0)
    for item in (Flavor("a100"), policied(), LocalQueue("team", "q", "q"), running(evicted, START)):
        floor.observe(Put(item), START)
    for at, fact in ((HOUR, replace(evicted, evicted="Preempted")), (2 * HOUR, running(evicted, START + 2 * HOUR))):
        floor.observe(Put(fact), START + at)
    floor.observe(Put(gang("g1", created=START + HOUR)), START + 2 * HOUR)
    floor.advance(START + 2 * HOUR)
    saved = [each._saved for each in floor._worlds.values()]  # pyright: ignore[reportPrivateUsage]
    assert saved == [{"team/g0": HOUR}] * 2


# --- lengths ----------------------------------------------------------------------------------------------------------


def test_a_draw_is_a_length_of_runs_that_lasted_longer_and_what_still_runs_says_how_long_it_lasted() -> None:
    ended = [(length, True) for length in (10, 20, 30, 40)]
    assert [draw(ended, 0, level) for level in (0.25, 0.5, 0.98)] == [10, 20, 40]
    assert draw(ended, 20, 0.5) == 30
    assert draw(ended, 40, 0.5) is None
    assert draw([(10, True), (20, False)], 0, 0.5) == 10
    assert draw([(10, True), (20, False)], 0, 0.6) is None, "it is longer than any that ended"
    assert draw([(5, False), (10, True), (20, True)], 0, 0.5) == 10
    assert draw([(15, False), (10, True), (20, True)], 0, 0.6) == 20, "one of three, then the only one left"


def known(
    jobs: dict[str, WorkloadWaits], lengths: Lengths, name: str, gpus: int, expected: float | None, ran: Millis | None
) -> str:
    """A workload that has started, and has ended after `ran`."""
    job = jobs[f"team/{name}"] = WorkloadWaits(gang(name, gpus), TREE, START)
    if expected is not None:
        put = forecast(name, expected).item
        assert isinstance(put, RuntimeForecast)
        lengths.put_forecast(put)
    job.level = 0.5
    job.runs_since, job.length = (START, None) if ran is None else (None, ran)
    lengths.started(f"team/{name}")
    return f"team/{name}"


def test_lengths_are_drawn_from_workloads_of_the_same_size_and_forecast() -> None:
    jobs: dict[str, WorkloadWaits] = {}
    lengths = Lengths(jobs)

    def drawn(name: str, gpus: int, expected: float | None) -> float:
        key = known(jobs, lengths, name, gpus, expected, None)
        jobs[key].runs_since = None
        found = lengths.length(key, 0, START)
        lengths.forget(key)
        assert found is not None
        return found / MINUTE

    for number in range(ALIKE):
        known(jobs, lengths, f"a{number}", 1, 600, MINUTE)  # forecasts say hours, but it is a minute
        known(jobs, lengths, f"b{number}", 1, 1, 3 * MINUTE)
        known(jobs, lengths, f"c{number}", 32, 600, 90 * MINUTE)
        known(jobs, lengths, f"d{number}", 1, None, 7 * MINUTE)
    assert drawn("x1", 1, 600) == 1
    assert drawn("x2", 1, 2) == 3
    assert drawn("x3", 30, 600) == 90
    assert drawn("x4", 1, None) == 7


def test_a_draw_stays_until_the_run_has_lasted_longer() -> None:
    jobs: dict[str, WorkloadWaits] = {}
    lengths = Lengths(jobs)
    key = known(jobs, lengths, "x", 1, 10, None)
    assert lengths.length(key, 0, START) == 10 * MINUTE, "nothing is alike: the forecast has to do"
    for number in range(ALIKE):
        known(jobs, lengths, f"a{number}", 1, 10, (15 + number) * MINUTE)
    assert lengths.length(key, 0, START + 5 * MINUTE) == 10 * MINUTE
    assert lengths.length(key, 0, START + 10 * MINUTE) == 29 * MINUTE
    assert lengths.ran(key, START + 10 * MINUTE) == 10 * MINUTE
    jobs[key].length = 12 * MINUTE
    lengths.ended(key)
    assert lengths.length(key, 0, START + 20 * MINUTE) == 12 * MINUTE
    assert lengths.ran(key, START + 20 * MINUTE) is None
    assert lengths.length("team/nobody", 0, START) is None


def test_no_draw_exceeds_the_maximum_execution_time() -> None:
    jobs: dict[str, WorkloadWaits] = {}
    lengths = Lengths(jobs)
    for number in range(ALIKE):
        known(jobs, lengths, f"a{number}", 1, 10, 60 * MINUTE)
    jobs["team/x"] = WorkloadWaits(gang("x", max_execution_seconds=1200), TREE, START)
    assert lengths.length("team/x", 0, START) == 20 * MINUTE
    jobs["team/y"] = WorkloadWaits(gang("y"), TREE, START)
    assert lengths.length("team/y", 0, START) == 60 * MINUTE


# --- waits ------------------------------------------------------------------------------------------------------------


def test_waits_by_lane() -> None:
    job = WorkloadWaits(gang("g"), TREE, START)
    job.since[REAL] = job.since[LANE["Easy"]] = START
    job.starts(REAL, START + 5)
    assert (job.wait(REAL, START + 100), job.wait(LANE["Easy"], START + 100)) == (5, 100)
    job.stops(REAL, START + 10, lost=3)
    assert job.wait(REAL, START + 12) == 10, "waited 5, lost 3, and waits again since 2"


def test_spells_are_left_out_one_by_one_beginning_with_that_which_decides() -> None:
    jobs: list[WorkloadWaits] = []
    for spell, (real, easy) in enumerate([(5, 5), (90, 10), (20, 10), (10, 80)]):
        for number in range(3):
            job = WorkloadWaits(gang(f"g{spell}{number}"), TREE, spell * SPELL + number)
            job.waited[REAL], job.waited[LANE["Easy"]] = real, easy
            jobs.append(job)
    found = list(without_each_spell(jobs, REAL, LANE["Easy"], START, SPELL))
    spells = [jobs[at : at + 3] for at in range(0, 12, 3)]
    assert found == [[job for job in jobs if job not in spells[spell]] for spell in (1, 3, 2, 0)]


def compared(**by_mode: tuple[float, float]) -> Comparison:
    named: dict[Mode, Figures] = {mode: Figures(500, by_mode[mode][0] * 1e6, by_mode[mode][1] * 1e6) for mode in MODES}
    return Comparison(START, named)


def test_the_better_plain_mode_is_measured_by_its_mean_and_then_by_its_tail() -> None:
    found = compared(Policy=(1, 10), BestEffort=(1, 20), Easy=(1.04, 10))
    assert found.plain == "Easy"
    assert found.cost("BestEffort") == pytest.approx(2, rel=0.05)
    found = compared(Policy=(0.5, 30), BestEffort=(1, 20), Easy=(1.5, 10))
    assert found.plain == "BestEffort"
    assert found.cost("BestEffort") == 1
    assert found.cost("Policy") == pytest.approx(1.5, rel=0.05), "its tail is what it costs"
    nothing = compared(Policy=(0, 0.001), BestEffort=(0, 0), Easy=(0, 0))
    assert nothing.cost("Policy") < 1.05, "seconds do not matter"


# --- the floor --------------------------------------------------------------------------------------------------------


class Reality:
    """One GPU, and workloads that really start in the order of their forecasts, one after the other."""

    def __init__(self, floor: Floor, queue: ClusterQueue | None = None) -> None:
        self.floor = floor
        self.now = START
        self.count = 0
        for item in (Flavor("a100"), queue or policied(), LocalQueue("team", "q", "q")):
            floor.observe(Put(item), self.now)
        floor.advance(self.now)

    def rush(self, count: int, *, lie: bool) -> list[str]:
        """So many workloads at once, one in ten long; with a lie, these are forecast to be the shortest."""
        waiting: list[tuple[float, int, Workload]] = []
        for number in range(self.count, self.count + count):
            name, long = f"g{number}", number % 10 == 0
            length = 60.0 if long else 1.0
            expected = (0.5 if long else 30.0) if lie else length
            workload = gang(name, created=self.now)
            self.floor.observe(forecast(name, expected), self.now)
            self.floor.observe(Put(workload), self.now)
            waiting.append((expected, round(length * MINUTE), workload))
        self.count += count
        changed: list[str] = []
        for _, length, workload in sorted(waiting, key=lambda each: each[0]):
            self.floor.observe(Put(running(workload, self.now)), self.now)
            changed += self.floor.advance(self.now)
            self.now += length
            changed += self.floor.advance(self.now)
            self.floor.observe(Gone(Workload, workload.key), self.now)
        return changed


def test_a_tree_leaves_a_policy_that_costs_more_and_returns_later_each_time() -> None:
    reality = Reality(Floor(SETTINGS))
    assert [tree for _ in range(6) for tree in reality.rush(50, lie=True)] == [TREE]
    floor = reality.floor
    assert floor.modes[TREE] == "BestEffort"
    assert [queue.fallen_back for queue in floor.under_floor()] == ["BestEffort"]
    fallback = floor.fallen_back()["q"]
    assert fallback.mode == floor.modes[TREE] and START < fallback.since <= reality.now
    assert re.fullmatch(
        r"the policy is on trial: half of the forecasts were off by a factor of 30 or more, and few workloads save checkpoints; "
        r"\d+ workloads would have waited .* under their policy, .* under best effort",
        fallback.why,
    )
    assert floor.comparisons[TREE].cost(POLICY) > 1.05
    reality.now += LONG + DAY  # what was is too old to count
    floor.advance(reality.now)
    assert [tree for _ in range(9) for tree in reality.rush(50, lie=False)] == [TREE]
    assert floor.mode_of("q") == POLICY and not floor.fallen_back()


class Judged:
    """A floor, and workloads of which their waits are given in minutes."""

    def __init__(self, *, saves: bool = False, expected: float | None = None, mode: Mode = POLICY) -> None:
        """`expected`: the forecast of each workload, of which every one takes 30 minutes."""
        queue = replace(policied(), backfill=Backfill(checkpoint_preemption=CheckpointPreemption()))
        before = {} if mode == POLICY else {"q": PolicyFallback(mode, START - AWAY - DWELL)}
        self.floor = Reality(Floor(SETTINGS, before), queue).floor
        self.saves, self.expected = saves, expected
        self.count = 0

    def rush(self, at: Millis, policy: float, best_effort: float, easy: float, count: int = FLOOR_LEAST) -> None:
        """So many workloads waited for so long in each mode."""
        for _ in range(count):
            name, self.count = f"g{self.count}", self.count + 1
            workload = gang(name, checkpoint_seconds=600.0 if self.saves else None)
            job = WorkloadWaits(workload, TREE, START + at, started=True)
            waits: dict[Mode, float] = {POLICY: policy, "BestEffort": best_effort, "Easy": easy}
            for mode, minutes in waits.items():
                job.waited[LANE[mode]] = round(minutes * MINUTE)
            job.waited[REAL] = job.waited[LANE[self.mode]]
            job.length = 30 * MINUTE
            self.floor._jobs[workload.key] = job  # pyright: ignore[reportPrivateUsage]
            if self.expected is not None:
                self.floor.observe(forecast(name, self.expected), self.floor._now)  # pyright: ignore[reportPrivateUsage]
            self.floor._lengths.started(workload.key)  # pyright: ignore[reportPrivateUsage]

    @property
    def mode(self) -> Mode:
        return self.floor.mode_of("q")

    def changes(self, after: Millis = PATIENCE) -> bool:
        self.floor._now += after  # pyright: ignore[reportPrivateUsage]
        return self.floor._compare(TREE)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("expected", [12, None, 45])
def test_a_policy_that_lives_on_nothing_is_not_followed_before_it_has_proved_itself(expected: float | None) -> None:
    judged = Judged(expected=expected)
    judged.rush(0, 10, 30, 30, FLOOR_LEAST - 1)
    assert not judged.changes(), "it is too early"
    judged.rush(0, 10, 30, 30, 1)
    assert judged.changes() and judged.mode == "BestEffort", "a rush proves nothing"


def test_a_policy_that_has_proved_itself_on_more_than_one_day_is_followed_as_long_as_it_does() -> None:
    judged = Judged(expected=12, mode="BestEffort")
    judged.rush(0, 10, 30, 30)
    judged.rush(SPELL, 10, 30, 30)
    assert not judged.changes(), "chance may decide a day"
    judged.rush(DAY, 10, 30, 30, 5)
    assert not judged.changes(), "without the first day there is too little"
    judged.rush(2 * DAY, 10, 30, 30)
    assert judged.changes() and judged.mode == POLICY
    assert not judged.changes()
    judged.rush(2 * DAY, 28, 30, 30)
    assert not judged.changes(), "it still costs less"
    judged.rush(2 * DAY, 90, 30, 30)
    assert judged.changes() and judged.mode == "BestEffort", "one day must not speak against it"


def test_best_effort_is_not_left_for_easy_on_the_evidence_of_one_day() -> None:
    judged = Judged(expected=12, mode="BestEffort")
    judged.rush(0, 40, 30, 10)
    judged.rush(SPELL, 40, 30, 10)
    assert not judged.changes()
    judged.rush(DAY, 40, 30, 10)
    assert judged.changes() and judged.mode == "Easy"


def test_a_plain_mode_is_left_on_the_evidence_of_four_weeks_and_questioned_every_few_hours() -> None:
    judged = Judged(expected=12, mode="BestEffort")
    judged.rush(0, 35, 30, 30)
    for day in (14, 15):
        judged.rush(day * DAY, 10, 30, 30)
    judged.floor._seen = START + 15 * DAY  # pyright: ignore[reportPrivateUsage]
    assert not judged.changes(), "it was worse two weeks ago"
    judged.floor._seen = START + LONG + DAY  # pyright: ignore[reportPrivateUsage]
    judged.rush(LONG - DAY, 10, 30, 30)
    assert not judged.changes(), "this week there is one day alone"
    judged.rush(LONG, 10, 30, 30)
    assert not judged.changes(PATIENCE - 1)
    assert judged.changes(1) and judged.mode == POLICY


def test_where_a_comparison_covers_less_than_four_days_a_quarter_of_them_is_left_out() -> None:
    judged = Judged(expected=12, mode="BestEffort")
    for quarter in range(4):
        judged.rush(quarter * HOUR, 10, 30, 30, FLOOR_MOST // 4)
    judged.floor._seen = START + 4 * HOUR  # pyright: ignore[reportPrivateUsage]
    assert judged.changes() and judged.mode == POLICY


@pytest.mark.parametrize(("saves", "expected"), [(True, None), (True, 12), (False, 30), (False, 25)])
def test_a_policy_that_lives_on_saved_work_or_true_forecasts_is_not_left_on_the_evidence_of_one_rush(
    saves: bool, expected: float | None
) -> None:
    judged = Judged(saves=saves, expected=expected)
    judged.rush(0, 50, 30, 30)
    judged.rush(SPELL, 10, 10, 10)
    assert not judged.changes() and judged.floor.comparisons[TREE].cost(POLICY) > 1.4
    judged.rush(2 * SPELL, 30, 20, 20)
    assert judged.changes() and judged.mode == "BestEffort"
    assert "prove" not in judged.floor.fallen_back()["q"].why


@pytest.mark.parametrize(
    ("policy", "plain", "long", "left"),
    [(20, 30, 100, False), (33, 30, 60, False), (40, 30, 0, True)],
    ids=["the tail is longer", "the mean, too, by a seventh", "the mean by a third"],
)
@pytest.mark.parametrize("saves", [True, False])
def test_such_a_policy_is_judged_by_its_mean(saves: bool, policy: float, plain: float, long: float, left: bool) -> None:
    judged = Judged(saves=saves, expected=30)
    for spell in range(5):
        if long:
            judged.rush(spell * SPELL, long, plain, plain, 5)
        judged.rush(spell * SPELL, policy, plain, plain, FLOOR_LEAST - 5)
    judged.rush(5 * SPELL, policy, plain, plain, FLOOR_LEAST)
    assert judged.changes() is left
    assert judged.floor.comparisons[TREE].cost(POLICY) > 1.25


def test_such_a_policy_is_not_left_on_the_evidence_of_the_end_of_a_rush_alone() -> None:
    """In the beginning best effort let others wait, whose waits have paid for what the policy costs in the end."""
    judged = Judged(saves=True)
    judged.rush(0, 10, 60, 60, FLOOR_MOST)
    for spell in range(3):
        judged.rush(DAY + spell * SPELL, 60, 10, 10, FLOOR_MOST // 3)
    assert not judged.changes()
    comparison = judged.floor.comparisons[TREE]
    assert comparison.by_mode[POLICY].mean > 5 * comparison.by_mode["BestEffort"].mean, "of the newest ones"
    for spell in range(3):
        judged.rush(2 * DAY + spell * SPELL, 60, 10, 10, FLOOR_MOST // 3)
    assert judged.changes() and judged.mode == "BestEffort"


def test_honest_forecasts_are_followed() -> None:
    reality = Reality(Floor(SETTINGS))
    assert [tree for _ in range(6) for tree in reality.rush(50, lie=False)] == []
    comparison = reality.floor.comparisons[TREE]
    assert comparison.by_mode[POLICY].mean < 0.6 * comparison.by_mode["BestEffort"].mean


def test_a_floor_begun_anew_stays_in_its_mode_until_there_is_evidence() -> None:
    since = START - 1
    reality = Reality(Floor(SETTINGS, {"q": PolicyFallback("Easy", since, "long ago")}))
    assert reality.floor.fallen_back() == {"q": PolicyFallback("Easy", since, "long ago")}
    assert reality.rush(FLOOR_LEAST - 10, lie=False) == []
    assert reality.floor.mode_of("q") == "Easy"
    reality.now += AWAY + DWELL + EVERY
    assert [tree for _ in range(6) for tree in reality.rush(50, lie=False)] == [TREE]
    assert reality.floor.mode_of("q") == POLICY


def test_a_cohort_is_one_tree_and_queues_without_a_floor_are_left_alone() -> None:
    floor = Floor(SETTINGS, {name: PolicyFallback("BestEffort", START) for name in "acx"})
    for item in (
        Cohort("pool", "root"),
        replace(policied(), name="a", cohort="pool"),
        replace(policied(), name="b", cohort="root"),
        replace(policied(), name="c", floor=False),
    ):
        floor.observe(Put(item), START)
    floor.advance(START)
    assert {floor.tree_of("a"), floor.tree_of("b")} == {"Cohort/root"}
    assert set(floor.fallen_back()) == {"a", "b"}
    assert floor.mode_of("c") == POLICY
    floor.observe(Gone(ClusterQueue, "a"), START)
    floor.observe(Put(replace(policied(), name="b", cohort="root", floor=False)), START)
    floor.advance(START + EVERY)
    assert floor.fallen_back() == {} and floor.modes == {}


@pytest.mark.parametrize("change", [{"active": False}, {"on_hold": True}])
def test_a_workload_that_is_deactivated_while_it_runs_ends_in_the_worlds_too(change: dict[str, bool]) -> None:
    """It used to go on in them for ever."""
    floor = Floor(SETTINGS)
    for item in (Flavor("a100"), policied(), LocalQueue("team", "q", "q")):
        floor.observe(Put(item), START)
    workload = gang("g0", created=START)
    floor.observe(Put(workload), START)
    floor.advance(START + MINUTE)
    floor.observe(Put(running(workload, START + MINUTE)), START + MINUTE)
    floor.advance(START + 10 * MINUTE)
    worlds = list(floor._worlds.values())
    assert worlds and all(each.knows("team/g0") for each in worlds)
    floor.observe(Put(replace(running(workload, START + MINUTE), **change)), START + 11 * MINUTE)
    assert floor._jobs["team/g0"].runs_since is not None, "its pods are still being stopped"
    floor.observe(Put(replace(workload, **change)), START + 12 * MINUTE)
    floor.advance(START + 3 * HOUR)
    assert floor._jobs["team/g0"].length == 11 * MINUTE
    assert not any(each.knows("team/g0") for each in floor._worlds.values())
    floor.observe(Put(workload), START + 4 * HOUR)
    assert floor._jobs["team/g0"].submitted == START + 4 * HOUR, "it waits from its activation on"
    assert floor._jobs["team/g0"].length is None


def test_workloads_that_are_withdrawn_count_for_nothing() -> None:
    floor = Floor(SETTINGS)
    for item in (Flavor("a100"), policied(), LocalQueue("team", "q", "q"), gang("g0", created=START)):
        floor.observe(Put(item), START)
    floor.advance(START)
    floor.advance(START + MINUTE)
    floor.observe(Gone(Workload, "team/g0"), START + MINUTE)
    floor.observe(Put(replace(gang("g1", created=START), active=False)), START + MINUTE)
    assert not floor._jobs  # pyright: ignore[reportPrivateUsage]
    assert not any(each.knows("team/g0") for each in floor._worlds.values())  # pyright: ignore[reportPrivateUsage]


def test_a_workload_that_is_deactivated_by_the_engine_is_over_in_the_worlds_too() -> None:
    """One GPU: `a` is deactivated after its maximum execution time, its pods take half a minute to end, and `b` starts.

    In the worlds `a` used to start again and again, and `b` to wait for ever.
    """
    floor = Floor(SETTINGS)
    for item in (Flavor("a100"), policied(), LocalQueue("team", "q", "q")):
        floor.observe(Put(item), START)
    floor.advance(START)
    a, b = gang("a", created=START, max_execution_seconds=600), gang("b", created=START + 1)
    for fact in (a, b, running(a, START + 1)):
        floor.observe(Put(fact), START + 1)
    floor.advance(START + MINUTE)
    assert len(floor._worlds) == 2
    evicted, stopped = replace(a, active=False, evicted="Deactivated"), START + 10 * MINUTE + 30_000
    floor.observe(Put(running(evicted, START + 1)), START + 10 * MINUTE)
    floor.observe(Put(evicted), stopped)
    floor.observe(Put(running(b, stopped)), stopped)
    now = START + 25 * HOUR
    floor.advance(now)
    job = floor._jobs["team/a"]
    assert job.length == stopped - START - 1
    waits = [floor._jobs["team/b"].wait(LANE[mode], now) for mode in PLAIN]
    assert all(9 * MINUTE < wait < 11 * MINUTE for wait in waits), waits
    assert all(job.wait(LANE[mode], now) < MINUTE for mode in PLAIN), "it does not wait again"


def test_a_workload_that_is_deactivated_in_a_world_alone_is_over_there() -> None:
    made = world("BestEffort", {"team/a": HOUR, "team/b": MINUTE})
    made.submit(gang("a", created=START, max_execution_seconds=600))
    made.submit(gang("b", created=START + 1))
    made.advance(START + 2 * HOUR)
    assert starts(made) == [(0, "a"), (10, "b")]
    assert not made.knows("team/a")
    assert [news for news in made.news if not news[2]] == [], "it neither stops nor waits again"
    made.remove("team/a")  # its name is free
    made.submit(gang("a", created=START + 2 * HOUR))
    assert made.knows("team/a")


def test_the_maximum_execution_time_is_that_of_all_runs_in_a_world_too() -> None:
    """`low` runs for six of its ten minutes before `high` preempts it: it is stopped for good after four more."""
    lengths = {"team/low": HOUR, "team/high": MINUTE, "team/last": MINUTE}
    made = world("BestEffort", lengths)
    lower = replace(policied().preemption, within_cluster_queue="LowerPriority")
    made.take_in(Put(replace(policied(), preemption=lower)))
    made.submit(gang("low", created=START, max_execution_seconds=600))
    made.advance(START + 6 * MINUTE)
    made.submit(gang("high", created=START + 6 * MINUTE, priority=1))
    made.submit(gang("last", created=START + 6 * MINUTE, priority=-1))
    made.advance(START + 2 * HOUR)
    assert starts(made) == [(0, "low"), (6, "high"), (7, "low"), (11, "last")]
