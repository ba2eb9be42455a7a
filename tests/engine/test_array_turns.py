"""Arrays with a limit: how many of their tasks hold quota at a time, in which order, and what the others cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import EngineWorld, cluster_queue, gang
from tests.examples import examples

from gangline.engine.model import ArrayLimit, PreemptionPolicy, ReportPending, Workload, WriteFailed
from gangline.engine.simulation.outlook import Course


def task(index: int, limit: int = 2, array: str = "sweep", **fields: Any) -> Workload:
    return gang(f"{array}-{index}", array=ArrayLimit(array, limit, index), **fields)


def world(*tasks: Workload, gpus: int = 8, **fields: Any) -> EngineWorld:
    here = EngineWorld(cluster_queue("q", gpus, **fields))
    here.put(*tasks)
    return here


def test_tasks_of_the_same_second_go_in_the_order_of_their_numbers() -> None:
    here = world(*(task(n) for n in (10, 9, 2)))
    here.decide()
    assert sorted(here.running()) == ["sweep-2", "sweep-9"]


def test_no_more_tasks_hold_quota_than_the_limit_says_and_the_next_ones_follow_in_order() -> None:
    here = world(*(task(n) for n in range(5)))
    here.decide()
    assert here.running() == ["sweep-0", "sweep-1"]
    here.finish("sweep-0")
    here.decide()
    assert here.running() == ["sweep-1", "sweep-2"]
    here.delete("sweep-1")
    here.delete("sweep-3")  # it waited
    here.decide()
    assert here.running() == ["sweep-2", "sweep-4"]
    assert here.decide() == []
    assert here.engine.next_wakeup(here.now) is None


def test_tasks_above_the_limit_are_in_no_queue_and_say_so_once() -> None:
    here = world(*(task(n) for n in range(4)), gang("other9"), gpus=3, strategy="StrictFIFO")
    reports = [each for each in here.decide() if isinstance(each, ReportPending)]
    assert here.running() == ["other9", "sweep-0", "sweep-1"], "a StrictFIFO queue is not blocked by them"
    assert here.engine.pending("q") == [] and here.engine.state_of("team/sweep-2") == "Unqueued"
    assert [(each.workload, each.explanation.reason, each.explanation.message) for each in reports] == [
        (f"team/sweep-{n}", "WaitingForArrayTasks", "At most 2 tasks of array sweep run at a time") for n in (2, 3)
    ]
    found = here.engine.explain("team/sweep-3")
    assert found is not None and found.needs == "2 of 2 tasks of array sweep run: one must end."
    here.finish("sweep-0")
    assert [each for each in here.decide() if isinstance(each, ReportPending)] == [], "the reason has not changed"


def test_tasks_that_wait_for_quota_have_their_turn_and_are_named() -> None:
    here = world(*(task(n, 3) for n in range(5)), gpus=1)
    here.decide()
    assert here.running() == ["sweep-0"] and here.engine.pending("q") == ["team/sweep-1", "team/sweep-2"]
    found = here.engine.explain("team/sweep-4")
    assert found is not None and found.needs == "1 of 3 tasks of array sweep run, 2 are next: one must end."


def test_arrays_of_other_names_and_namespaces_count_for_themselves() -> None:
    here = world(*(task(n, 1) for n in range(2)), *(task(n, 1, "eval") for n in range(2)))
    here.decide()
    assert here.running() == ["eval-0", "sweep-0"]


def test_a_task_of_higher_priority_is_the_next_one() -> None:
    here = world(*(task(n, 1) for n in range(3)), task(3, 1, priority=5))
    here.decide()
    assert here.running() == ["sweep-3"]


def test_another_limit_counts_at_once_and_stops_nobody() -> None:
    here = world(*(task(n) for n in range(5)))
    here.decide()
    for n in (2, 3, 4):
        here.change(f"sweep-{n}", array=ArrayLimit("sweep", 4))
    here.decide()
    assert len(here.running()) == 4, "what those that run say does not count"
    here.change("sweep-4", array=ArrayLimit("sweep", 1))
    here.finish("sweep-0")
    here.decide()
    assert len(here.running()) == 3, "none is stopped, and none starts"
    here.change("sweep-4", array=None)
    here.decide()
    assert "sweep-4" in here.running(), "without a limit it waits for nobody"


def test_a_task_that_takes_its_turn_back_lets_another_go() -> None:
    here = world(*(task(n, 1) for n in range(3)), gpus=0)
    here.decide()
    assert here.engine.pending("q") == ["team/sweep-0"]
    here.change("sweep-0", gates=("gangline.io/hold",))
    here.decide()
    assert here.engine.pending("q") == ["team/sweep-1"], "it cannot start now, and takes no turn"
    here.change("sweep-0", gates=())
    here.decide()
    assert here.engine.pending("q") == ["team/sweep-0"], "it is the older one"
    here.change("sweep-0", violation="too large")
    here.decide()
    assert "team/sweep-1" in here.engine.active("q") + here.engine.inadmissible("q")


def test_a_preempted_task_has_its_turn_before_younger_ones() -> None:
    here = world(*(task(n) for n in range(4)), gpus=2, preemption=PreemptionPolicy("LowerPriority"))
    here.decide()
    here.put(gang("urgent9", 1, priority=9))
    here.decide()
    assert here.evicted() == ["sweep-0"]
    here.complete_evictions()
    here.decide()
    assert here.running() == ["sweep-1", "urgent9"] and here.engine.pending("q") == ["team/sweep-0"]


def test_a_write_that_failed_gives_the_turn_back_to_whom_it_belongs() -> None:
    here = world(*(task(n, 1) for n in range(2)))
    here.decide(lost=["team/sweep-0"])
    here.engine.observe(WriteFailed("team/sweep-0"))
    here.decide()
    assert here.running() == ["sweep-0"]


def test_turns_follow_from_the_facts_alone_in_any_order() -> None:
    here = world(*(task(n, 3) for n in range(6)), gpus=1)
    here.decide()
    assert here.engine.rebuilt().snapshot() == here.engine.snapshot()
    here.restart()
    here.decide()
    assert here.running() == ["sweep-0"] and here.engine.pending("q") == ["team/sweep-1", "team/sweep-2"]
    assert here.engine.missed_starts(here.now) == []


def test_the_outlook_knows_the_limit() -> None:
    here = world(*(task(n, 1, max_execution_seconds=60) for n in range(3)))
    here.decide()
    course = Course(here.engine.facts(), here.engine.settings, here.now, lambda uid: 1.0)
    starts = course.play_for(600_000).starts
    assert [starts[f"team/sweep-{n}"] - starts["team/sweep-1"] for n in (1, 2)] == [0, 60_000]


@pytest.mark.parametrize("count", [200, 400])
def test_each_end_lets_one_task_try_whatever_the_size_of_the_array(count: int) -> None:
    here = world(*(task(n) for n in range(count)))
    here.decide()
    before = here.engine.attempts
    for n in range(50):
        here.finish(f"sweep-{n}")
        here.decide()
    assert here.engine.attempts - before == 50


@given(st.lists(st.tuples(st.sampled_from("psfdlh"), st.integers(0, 7), st.integers(1, 4)), max_size=40))
@examples(30)
def test_whatever_happens_the_limit_holds_and_nobody_is_forgotten(steps: list[tuple[str, int, int]]) -> None:
    here = world(gpus=5)
    for what, n, limit in steps:
        known = here.workloads.get(f"team/sweep-{n}")
        if what == "p" or known is None:
            here.put(task(n, 3))
        elif what == "s":
            here.change(f"sweep-{n}", priority=limit)
        elif what == "f" and known.admission is not None:
            here.finish(f"sweep-{n}")
        elif what == "d":
            here.delete(f"sweep-{n}")
        elif what == "h":
            here.change(f"sweep-{n}", gates=() if known.gates else ("gate",))
        elif what == "l" and known.admission is None:
            here.change(f"sweep-{n}", array=ArrayLimit("sweep", limit))
        held = set(here.running())
        for _ in range(4):  # a start may leave a task with a higher limit than its own, which another one may use
            here.decide()
        waiting = [each for each in here.workloads.values() if each.admission is None and not each.gates]
        least = min((each.array.limit for each in waiting if each.array is not None), default=5)
        new = set(here.running()) - held
        limits = [each.array.limit for each in here.workloads.values() if each.name in new and each.array is not None]
        assert len(here.running()) <= max(limits, default=len(held)), "the last that started was within its own limit"
        assert not waiting or len(here.running()) >= min(least, 5)
        assert here.engine.rebuilt().snapshot() == here.engine.snapshot()
