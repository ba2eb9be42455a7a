"""The pending queue by itself: order, shapes set aside, return."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import gang
from tests.examples import examples

from gangline.engine.model import Settings
from gangline.engine.queues import workload_state
from gangline.engine.queues.pending_queue import PendingQueue
from gangline.engine.queues.states import Journal, LifecycleState
from gangline.engine.queues.workload_state import WorkloadState

SETTINGS = Settings()


def waiting(name: str, gpus: int = 1, **fields: object) -> WorkloadState:
    return WorkloadState(gang(name, gpus, **fields), SETTINGS, Journal())


def names(gangs: list[WorkloadState]) -> list[str]:
    return [each.workload.name for each in gangs]


def filled(*gangs: WorkloadState) -> PendingQueue:
    queue = PendingQueue()
    for each in gangs:
        queue.arrive(each)
    return queue


def test_priority_then_age_then_uid() -> None:
    queue = filled(
        waiting("w2"), waiting("w1"), waiting("w3", priority=1), waiting("b1", created=0), waiting("a1", created=0)
    )
    assert names(queue.in_heap()) == ["w3", "a1", "b1", "w1", "w2"]
    assert names([popped for _ in range(5) if (popped := queue.pop())]) == ["w3", "a1", "b1", "w1", "w2"]


def test_a_sticky_preemptor_goes_before_higher_priorities() -> None:
    first = waiting("w1")
    queue = filled(first, waiting("w2", priority=9))
    queue.preemptor = first
    assert names(queue.in_heap()) == ["w1", "w2"]
    assert queue.head() is first
    queue.configure(strict=True, hashing=False, usage_of=None)
    assert names(queue.in_heap()) == ["w2", "w1"]


def test_a_shape_is_set_aside_as_one_and_so_are_late_arrivals() -> None:
    queue = filled(*(waiting(f"w{n}", 4) for n in range(1, 4)), waiting("w9", 2))
    head = queue.pop()
    assert head is not None
    queue.take_out(head)
    assert queue.mark_inadmissible(head)
    assert (names(queue.in_heap()), names(queue.inadmissible())) == (["w9"], ["w1", "w2", "w3"])
    queue.arrive(waiting("w4", 4))
    assert queue.active == 1
    assert queue.flush(lambda _: True)
    assert names(queue.in_heap()) == ["w1", "w2", "w3", "w4", "w9"]
    assert not queue.flush(lambda _: True)


def test_who_may_not_try_stays_aside() -> None:
    queue = PendingQueue()
    late, early = waiting("w1"), waiting("w2")
    queue.set_alone_inadmissible(late)
    queue.set_alone_inadmissible(early)
    queue.flush(lambda each: each is early)
    assert (names(queue.in_heap()), names(queue.inadmissible())) == (["w2"], ["w1"])


def test_the_local_queue_that_used_least_goes_first() -> None:
    used = {"team/a": 5.0, "team/b": 1.0}
    queue = PendingQueue()
    queue.configure(strict=False, hashing=True, usage_of=lambda key: used[key])
    for each in (waiting("w1", queue="a", priority=9), waiting("w2", queue="b"), waiting("w3", queue="b")):
        queue.arrive(each)
    assert names(queue.in_heap()) == ["w2", "w3", "w1"]
    used["team/b"] = 6.0
    assert names(queue.in_heap()) == ["w1", "w2", "w3"]
    head = queue.pop()
    assert head is not None
    assert head.workload.name == "w1"


operations = st.lists(
    st.tuples(st.sampled_from(("arrive", "pop", "report", "leave", "flush")), st.integers(0, 11)), max_size=60
)


@given(operations=operations)
@examples(150)
def test_it_is_always_the_sorted_list_of_those_not_aside(operations: list[tuple[str, int]]) -> None:
    """Against the plainest model there is: a set of gangs and a set of shapes."""
    gangs = [waiting(f"w{n}", 1 + n % 4, priority=n % 3) for n in range(12)]
    queue, inside, inadmissible = PendingQueue(), set[int](), set[int]()

    def shape(n: int) -> int:
        return 100 * (n % 4) + n % 3

    for operation, n in operations:
        in_flight = next((k for k, each in enumerate(gangs) if queue.in_flight is each), None)
        if operation == "arrive" and n not in inside and in_flight != n:
            queue.arrive(gangs[n])
            inside.add(n)
        elif operation == "leave" and n in inside:
            queue.take_out(gangs[n])
            inside.discard(n)
        elif operation == "flush":
            queue.flush(lambda _: True)
            inadmissible.clear()
        elif operation in ("pop", "report") and in_flight is None:
            head = queue.pop()
            if head is not None:
                k = gangs.index(head)
                queue.take_out(head)
                inside.discard(k)
                if operation == "report":
                    queue.mark_inadmissible(head)
                    inside.add(k)
                    inadmissible.add(shape(k))
        active = [k for k in inside if shape(k) not in inadmissible]
        expected = sorted(active, key=lambda k: (-gangs[k].priority, gangs[k].since, gangs[k].uid))
        assert names(queue.in_heap()) == [f"w{k}" for k in expected]
        assert queue.active == len(expected)
        assert queue.head() is (gangs[expected[0]] if expected else None)
        assert queue.total() == len(inside)


def test_what_is_kept_of_shapes_goes_with_their_workloads() -> None:
    """Whoever changes a job again and again, or deletes and creates it, leaves nothing behind in the queue."""
    queue = PendingQueue()
    queue.configure(strict=False, hashing=True, usage_of=lambda _: 0.0)
    first = waiting("first", priority=9)
    queue.arrive(first)
    for number in range(100):
        gang = waiting(f"w{number}", 2 + number, queue=f"q{number}")
        queue.arrive(gang)
        if number % 2:
            queue.take_out(gang, LifecycleState.NOMINATED)
            queue.in_flight = gang
            queue.mark_inadmissible(gang)
        queue.take_out(gang)
        assert queue.head() is first
    assert len(queue._inadmissible_shapes) < 50
    assert (len(queue._mates), len(queue._lanes)) == (1, 1)
    queue.configure(strict=True, hashing=False, usage_of=None)
    for number in range(100):
        gang = waiting(f"w{number}", 2 + number)
        queue.arrive(gang)
        queue.take_out(gang)
    assert queue.head() is first
    assert len(queue._lanes[""].heap) < 50


def test_workloads_that_ask_for_the_same_have_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_state, "_MOST_KNOWN", 3)
    alike = [waiting(f"alike-{number}", 8) for number in range(5)]
    assert len({id(each.shape) for each in alike}) == 1
    others = [waiting("more", 16), waiting("urgent", 8, priority=5), *(waiting(f"j{n}", n) for n in range(1, 8))]
    assert alike[0].shape not in {each.shape for each in others}
    assert waiting("late", 8).shape is alike[0].shape, "known again after others were forgotten"
