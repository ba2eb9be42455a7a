"""Soft windows: others may use the nodes until somebody whom the window is for needs them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.engine import START, of
from tests.engine.node_world import NodeWorld, node, plain, queue
from tests.engine.test_windows import BEGIN, END, HOUR, MINUTE, Played, at, why, window

from gangline.engine import Engine, EventKind, SimulatedRun, outlook
from gangline.engine.model import (
    Admit,
    Deadline,
    Evict,
    Gone,
    Millis,
    Put,
    QuotaAhead,
    QuotaStep,
    Recall,
    ReservedWindow,
    RuntimeForecast,
    Settings,
    Submitter,
    Warn,
    Workload,
)

OURS = frozenset({"ours"})


def soft(*nodes: str, **fields: object) -> ReservedWindow:
    return window(*nodes, **{"soft": True, "cluster_queues": OURS, "notice": 10 * MINUTE, **fields})


def world(*items: object, nodes: int = 2) -> NodeWorld:
    names = [f"n{number}" for number in range(nodes)]
    return NodeWorld(*(node(name) for name in names), queue(100), queue(100, "ours"), *items)


def warned(decisions: Sequence[object]) -> list[str]:
    return [each.about.removeprefix("team/") for each in decisions if isinstance(each, Warn)]


def gone(made: NodeWorld, name: str) -> None:
    """The pods of an evicted workload have ended."""
    made.change(name, admission=None, admitted=False, reserved_at=0, requeued=True)


# --- while nobody needs the nodes -------------------------------------------------------------------------------------


def test_others_start_before_the_window_and_in_it_and_nobody_is_stopped() -> None:
    made = world(soft("n0", "n1"), plain("w1", 1))
    assert of(made.decide(), Admit) == ["w1"]
    made.bind()
    assert at(made, BEGIN).decide() == []
    made.put(plain("w2", 1))
    assert of(at(made, BEGIN + MINUTE).decide(), Admit) == ["w2"]
    assert at(made, END).decide() == []


def test_one_whom_the_window_is_for_and_who_fits_elsewhere_recalls_nobody() -> None:
    made = world(soft("n0"), plain("w1", 1))
    made.decide()
    at(made, BEGIN).decide()
    made.put(plain("w2", 1, queue="ours"))
    decisions = made.decide()
    assert (of(decisions, Admit), warned(decisions)) == (["w2"], [])
    assert made.engine.recalls() == {}


# --- recalls ----------------------------------------------------------------------------------------------------------


def test_others_are_told_and_leave_after_the_notice_and_the_one_in_need_starts() -> None:
    made = world(soft("n0", "n1"), plain("w1", 2))
    made.decide()
    made.bind()
    at(made, BEGIN).decide()
    made.put(plain("w2", 1, queue="ours"))
    assert made.decide() and made.engine.next_wakeup(made.now) == made.now  # it is tried before anybody is recalled
    (said,) = [each for each in made.decide() if isinstance(each, Warn)]
    until = made.engine.recalls()["team/w1"].until
    assert until == made.now + 10 * MINUTE  # a whole second
    assert said.message.startswith("Save by 2026-01-01 03:10 UTC, when the workload is stopped. ")
    assert "reservation 'weekly' keeps them for team/w2" in said.message
    assert made.engine.next_wakeup(made.now) == until
    stopped = [each for each in at(made, until).decide() if isinstance(each, Evict)]
    assert [(each.workload, each.reason) for each in stopped] == [("team/w1", "Reservation")]
    gone(made, "w1")
    assert of(made.decide(), Admit) == ["w2"]
    assert made.engine.recalls() == {}


def test_nobody_is_recalled_for_one_who_may_not_start_since_its_quota_falls() -> None:
    made = world(soft("n0"), plain("w1", 1), nodes=1)
    made.decide()
    made.bind()
    at(made, BEGIN).decide()
    fall = QuotaStep(BEGIN + HOUR, queue(0, "ours").groups)
    made.put(QuotaAhead("ours", "plan", (fall,), Deadline(10 * MINUTE, MINUTE)), plain("w2", 1, queue="ours"))
    made.decide()
    made.decide()
    assert made.engine.recalls() == {}


def test_only_as_many_leave_as_are_needed_the_newest_first() -> None:
    made = world(soft("n0", "n1", "n2"), *(plain(f"w{n}", 1) for n in range(1, 4)), nodes=3)
    made.decide()
    made.bind()
    at(made, BEGIN).decide()
    made.put(plain("w9", 1, queue="ours"))
    made.decide()
    made.decide()
    assert len(made.engine.recalls()) == 1
    made.put(plain("w8", 1, queue="ours"))
    made.decide()
    made.decide()
    assert len(made.engine.recalls()) == 2


def test_nobody_else_takes_the_place_of_who_left() -> None:
    """Those who were recalled are older: without the mark they would start again where they were."""
    made = world(soft("n0"), plain("w1", 1), plain("w2", 1), nodes=1)
    made.decide()
    at(made, BEGIN).decide()
    made.put(plain("w3", 1, queue="ours"))
    made.decide()
    made.decide()
    assert of(at(made, BEGIN + 20 * MINUTE).decide(), Evict) == ["w1"]
    gone(made, "w1")
    assert of(made.decide(), Admit) == ["w3"]
    made.finish("w3")
    made.decide()
    assert of(made.decide(), Admit) == [] and made.running() == ["w1"]


def test_before_the_window_others_are_told_so_early_that_they_have_left_when_it_begins() -> None:
    made = world(soft("n0"), plain("w1", 1), nodes=1)
    made.decide()
    made.put(plain("w2", 1, queue="ours"))
    made.decide()
    made.bind()
    assert warned(at(made, BEGIN - 11 * MINUTE).decide()) == []
    assert made.engine.next_wakeup(made.now) == BEGIN - 10 * MINUTE
    assert warned(at(made, BEGIN - 10 * MINUTE).decide()) == ["w1"]
    assert made.engine.recalls()["team/w1"].until == BEGIN
    assert of(at(made, BEGIN).decide(), Evict) == ["w1"]


def test_a_recall_ends_with_its_cause() -> None:
    made = world(soft("n0"), plain("w1", 1), nodes=1)
    made.decide()
    at(made, BEGIN).decide()
    made.put(plain("w2", 1, queue="ours"))
    made.decide()
    made.decide()
    assert [*made.engine.recalls()] == ["team/w1"]
    made.delete("w2")
    made.decide()
    assert made.engine.recalls() == {}
    assert of(at(made, BEGIN + HOUR).decide(), Evict) == []


def test_a_workload_that_would_not_fit_even_so_recalls_nobody() -> None:
    made = world(soft("n0"), plain("w1", 1), plain("w2", 3, queue="ours"), nodes=2)
    made.decide()
    assert warned(at(made, BEGIN).decide()) == []
    assert made.engine.recalls() == {}
    assert of(at(made, BEGIN + HOUR).decide(), Evict) == []


def test_a_new_engine_keeps_the_deadline() -> None:
    made = world(soft("n0"), plain("w1", 1), nodes=1)
    made.decide()
    at(made, BEGIN).decide()
    made.put(plain("w2", 1, queue="ours"))
    made.decide()
    made.decide()
    known = dict(made.engine.recalls())
    engine = Engine(Settings(pods_ready=None))
    for fact in made.engine.facts():
        engine.observe(fact)
    assert warned(engine.decide(made.now + 5 * MINUTE)) == []
    assert dict(engine.recalls()) == known
    assert of(engine.decide(known["team/w1"].until), Evict) == ["w1"]


def test_expected_starts_know_that_others_will_leave() -> None:
    made = world(soft("n0"), plain("w1", 1), nodes=1)
    made.decide()
    at(made, BEGIN).decide()
    made.put(plain("w2", 1, queue="ours"))
    for name in ("w1", "w2"):
        long = Put(RuntimeForecast(f"team/{name}", ((0.1, 20 * HOUR), (0.9, 20 * HOUR)), "Model", 12))
        made.engine.observe(long)
    made.decide()
    made.decide()
    (recall,) = made.engine.recalls().values()
    seen = outlook(made.engine.facts(), made.engine.settings, made.now, clock=time.perf_counter)
    assert (seen.starts["team/w2"].p50, seen.starts["team/w2"].p90) == (recall.until, recall.until)
    assert "The workload starts once team/w1 left nodes of a reservation, by 2026-01-01 03:1" in why(made, "w2")


def test_a_recall_of_nobody_is_forgotten() -> None:
    made = world(soft("n0"))
    made.engine.observe(Put(Recall("team/w9", "weekly", BEGIN, "team/w8")))
    made.decide()
    assert made.engine.recalls() == {}


# --- users ------------------------------------------------------------------------------------------------------------


def test_a_window_for_a_user_is_for_workloads_of_that_user() -> None:
    made = NodeWorld(node("n0"), node("n1"), queue(100), window("n0", "n1", users=frozenset({"mira"})))
    at(made, BEGIN)
    made.put(plain("w1", 1), plain("w2", 1))
    made.engine.observe(Put(Submitter("team/w2", "mira")))
    assert of(made.decide(), Admit) == ["w2"]
    made.engine.observe(Put(Submitter("team/w1", "mira")))
    assert of(made.decide(), Admit) == ["w1"]
    made.bind()
    made.engine.observe(Gone(Submitter, "team/w1"))
    assert of(made.decide(), Evict) == ["w1"]


def test_a_soft_window_for_a_user_recalls_others_for_that_user() -> None:
    made = NodeWorld(node("n0"), queue(100), soft("n0", cluster_queues=frozenset(), users=frozenset({"mira"})))
    made.put(plain("w1", 1))
    made.decide()
    at(made, BEGIN).decide()
    made.put(plain("w2", 1), plain("w3", 1))
    made.engine.observe(Put(Submitter("team/w3", "mira")))
    made.decide()
    made.decide()
    assert [each.by for each in made.engine.recalls().values()] == ["team/w3"]


# --- random histories -------------------------------------------------------------------------------------------------


class PlayedSoft(Played):
    """Jobs arrive one after the other. Noted is who was stopped in vain: without a deadline that has come, or so that the one in
    need did not start at once; and whose deadline moved.
    """

    def __init__(
        self, lengths: dict[str, Millis], windows: list[ReservedWindow], nodes: int, *, backfill: bool
    ) -> None:
        super().__init__(lengths, windows, nodes, backfill=backfill)
        self.arrivals: list[Workload] = []
        #: the operator is killed after so many instants, again and again; 0 = never
        self.killed_every = 0
        self.instants = 0
        self.stopped_in_vain: list[str] = []
        self.moved: list[str] = []
        self.recalled: dict[str, Recall] = {}
        #: who is to start at this instant, since others were stopped for it
        self.expected: dict[str, str] = {}

    def arrive(self, at: Millis, job: Workload) -> None:
        self.arrivals.append(replace(job, created=at))
        self.schedule(at, EventKind.ARRIVAL, len(self.arrivals) - 1)

    def happens(self, kind: EventKind, number: int) -> None:
        self.put(self.arrivals[number])

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        super().stopped(workload, run, reason)
        hard = [each for each in self.windows if not each.soft and each.begin <= self.now < each.end]
        if reason != "Reservation" or hard:
            return
        recall = self.engine.recalls().get(workload.key) or self.recalled.get(workload.key)
        if recall is None or recall.until > self.now:
            self.stopped_in_vain.append(f"{workload.key} at {self.now}: {recall}")
        else:
            self.expected[recall.by] = workload.key

    def settled(self) -> None:
        super().settled()
        for key, victim in self.expected.items():
            if key in self.workloads and key not in self.runs:
                self.stopped_in_vain.append(f"{victim} at {self.now} for {key}")
        self.expected.clear()
        for key, recall in self.engine.recalls().items():
            before = self.recalled.get(key)
            if before is not None and before.until != recall.until:
                self.moved.append(f"{before} became {recall}")
        self.recalled = dict(self.engine.recalls())
        self.instants += 1
        if self.killed_every and self.instants % self.killed_every == 0:
            engine = Engine(Settings(pods_ready=None))
            for fact in self.engine.facts():
                engine.observe(fact)
            self.engine = engine
            self.ask_again()


@st.composite
def soft_histories(draw: st.DrawFn) -> PlayedSoft:
    nodes = draw(st.integers(1, 4))
    names = [f"n{number}" for number in range(nodes)]
    windows: list[ReservedWindow] = []
    for number in range(draw(st.integers(1, 3))):
        begin = START + draw(st.integers(-30, 200)) * MINUTE
        chosen = frozenset(draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
        fields = {"notice": draw(st.integers(0, 30)) * MINUTE, "soft": draw(st.sampled_from((True, True, False)))}
        end = begin + draw(st.integers(1, 300)) * MINUTE
        windows.append(ReservedWindow(f"w{number}", f"w{number}", begin, end, chosen, cluster_queues=OURS, **fields))
    lengths: dict[str, Millis] = {}
    jobs: list[Workload] = []
    for number in range(draw(st.integers(1, 8))):
        name = f"j{number}"
        lengths[name] = draw(st.integers(1, 300)) * MINUTE
        owner = draw(st.sampled_from(("q", "q", "ours")))
        jobs.append(plain(name, draw(st.integers(1, nodes)), queue=owner))
    played = PlayedSoft(lengths, windows, nodes, backfill=draw(st.booleans()))
    played.killed_every = draw(st.integers(0, 3))
    for job in jobs:
        arrives = START + draw(st.integers(0, 300)) * MINUTE
        played.arrive(arrives, job)
    return played


@settings(max_examples=80, deadline=None)
@given(soft_histories())
def test_nobody_leaves_a_soft_window_without_need_and_every_recall_lets_somebody_start(played: PlayedSoft) -> None:
    played.play()
    assert not played.stopped_in_vain
    assert not played.moved
    assert not played.intruders
    assert not played.missed
    assert not played.workloads, "all jobs ran in the end"
