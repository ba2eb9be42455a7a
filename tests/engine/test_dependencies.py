"""Workloads that wait for others: out of the queue until their own fact says that they need not wait, and simulated like that."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang
from tests.engine.test_outlook import in_minutes, look, world
from tests.examples import examples

from gangline.engine.model import Awaited, Backfill, Dependencies, Gone, ReportPending

AFTER = ("job first to succeed",)


def known(name: str, *awaited: Awaited, message: str = "Waits for job first", **fields: Any) -> Dependencies:
    return Dependencies(f"team/{name}", message, "job first has to succeed.", awaited=awaited, **fields)


def reports(made: EngineWorld) -> list[tuple[str, str, str]]:
    found = [each for each in made.decide() if isinstance(each, ReportPending)]
    return [(each.workload, each.explanation.reason, each.explanation.message) for each in found]


def test_it_is_in_no_queue_and_blocks_none() -> None:
    made = EngineWorld(cluster_queue("q", 8, strategy="StrictFIFO"))
    made.put(gang("waits1", 8, waits_for=AFTER), gang("next2", 8))
    made.decide()
    assert made.running() == ["next2"]
    assert made.engine.pending("q") == []
    made.finish("next2")
    made.decide()
    assert made.running() == []
    made.change("waits1", waits_for=())
    made.decide()
    assert made.running() == ["waits1"]


def test_it_makes_no_reservation() -> None:
    made = EngineWorld(cluster_queue("q", 8, backfill=Backfill()))
    made.put(gang("holds1", 6))
    made.decide()
    made.put(gang("waits2", 8, priority=9, waits_for=AFTER), gang("small3", 2))
    made.decide()
    assert made.running() == ["holds1", "small3"]


def test_its_reason_is_what_is_known_of_the_others_and_is_reported_when_that_changes() -> None:
    made = EngineWorld(cluster_queue("q", 8), gang("waits1", 8, waits_for=AFTER))
    assert reports(made) == [("team/waits1", "WaitingForDependencies", "Waits for job first to succeed")]
    made.put(known("waits1", message="Waits for job first to succeed: it starts"))
    assert reports(made) == [("team/waits1", "WaitingForDependencies", "Waits for job first to succeed: it starts")]
    assert reports(made) == []
    made.put(known("waits1", message="job first can't succeed any more: it has failed", never=True))
    [(_, reason, message)] = reports(made)
    assert (reason, message) == ("DependencyNeverSatisfied", "job first can't succeed any more: it has failed")
    explanation = made.engine.explain("team/waits1")
    assert explanation is not None and explanation.needs == "job first has to succeed."
    made.engine.observe(Gone(Dependencies, "team/waits1"))
    made.change("waits1", waits_for=())
    made.decide()
    assert made.running() == ["waits1"]


def test_a_preempted_workload_does_not_wait_again() -> None:
    """Its fact says so: what was met is recorded with it."""
    made = EngineWorld(cluster_queue("q", 8), gang("waits1", 8))
    made.decide()
    made.put(known("waits1", Awaited("team/first", runs=False)))
    made.change(
        "waits1", admission=None, admitted=False, reserved_at=0, admitted_at=0, evicted="Preempted", requeued=True
    )
    made.decide()
    assert made.running() == ["waits1"]


def test_in_a_simulation_it_starts_after_those_that_it_waits_for() -> None:
    first, second, third = (
        gang("a1", 2),
        gang("b2", 2, waits_for=("job a1 to succeed",)),
        gang("c3", 2, waits_for=AFTER),
    )
    made = world((first, 60), (second, 30), (third, 10))
    made.put(known("b2", Awaited("team/a1", runs=False)), known("c3", Awaited("team/b2", runs=False)))
    seen = look(made)
    assert in_minutes(made, seen, "b2") == (60.0, 60.0)
    assert in_minutes(made, seen, "c3") == (90.0, 90.0)
    assert seen.starts["team/c3"].because == "after team/b2 ends"


def test_in_a_simulation_all_of_them_have_to_be_so_and_a_start_is_enough_for_one_that_waits_for_it() -> None:
    made = world((gang("a1", 8), 60), (gang("b2", 4), 30), (gang("c3", 4, waits_for=AFTER), 10))
    made.put(known("c3", Awaited("team/b2", runs=True)))
    assert in_minutes(made, look(made), "c3") == (60.0, 60.0), "with b2, which waits for a1's quota"
    made.put(known("c3", Awaited("team/b2", runs=True), Awaited("team/b2", runs=False)))
    assert in_minutes(made, look(made), "c3") == (90.0, 90.0)


def test_in_a_simulation_nothing_says_when_one_will_fail() -> None:
    made = world((gang("a1", 2), 60), (gang("b2", 2, waits_for=("job a1 to fail",)), 30))
    made.put(known("b2"))
    assert "team/b2" not in look(made).starts


STEPS = st.lists(
    st.tuples(st.sampled_from(["submit", "free", "wait", "finish", "decide"]), st.integers(0, 5), st.integers(1, 8)),
    max_size=30,
)


@given(STEPS, st.sampled_from(["StrictFIFO", "BestEffortFIFO"]))
@examples(80)
def test_nothing_starts_while_its_fact_says_that_it_waits_and_nothing_waits_for_it(
    steps: list[tuple[str, int, int]], strategy: str
) -> None:
    made = EngineWorld(cluster_queue("q", 8, strategy=strategy))
    for step, number, gpus in steps:
        name = f"w{number}"
        known_one = made.workloads.get(f"team/{name}")
        if step == "submit" and known_one is None:
            made.put(gang(name, gpus, waits_for=AFTER))
        elif step in ("free", "wait") and known_one is not None and known_one.admission is None:
            made.change(name, waits_for=AFTER if step == "wait" else ())
        elif step == "finish" and known_one is not None:
            made.finish(name)
        made.decide()
        assert all(not each.waits_for for each in made.workloads.values() if each.admission is not None)
        waiting = [each for each in made.workloads.values() if each.admission is None]
        assert set(made.engine.pending("q")) == {each.key for each in waiting if not each.waits_for}
        free = 8 - sum(each.pod_sets[0].requests[GPU] for each in made.workloads.values() if each.admission is not None)
        ready = sorted((each for each in waiting if not each.waits_for), key=lambda each: each.created)
        first = ready[:1] if strategy == "StrictFIFO" else ready
        assert all(each.pod_sets[0].requests[GPU] > free for each in first), "those that wait keep nobody from starting"
