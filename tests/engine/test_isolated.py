"""What goes wrong with one object costs that object alone: exceptions are thrown into the engine wherever it works."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang
from tests.engine.node_world import TPU, node, plain
from tests.engine.node_world import queue as tpu_queue
from tests.examples import examples

from gangline.engine.cycle import tree_cycle
from gangline.engine.isolated_engine import EngineFault, IsolatedEngine
from gangline.engine.model import Admit, Decision, Flavor, Gone, Settings, Workload, WriteFailed
from gangline.engine.recovery import healing
from gangline.engine.state import lifecycle, store, workload_intake


class IsolatedWorld(EngineWorld):
    """A world whose engine isolates; `faults` are those that it reported."""

    def __init__(self, *items: Any) -> None:
        super().__init__()
        self.faults: list[EngineFault] = []
        self.engine = IsolatedEngine(Settings(pods_ready=None), self.faults.append)
        self.put(Flavor("a100"), *items)

    def admitted(self, decisions: list[Decision]) -> list[str]:
        return sorted(each.workload for each in decisions if isinstance(each, Admit))


@contextmanager
def breaking(owner: Any, name: str, when: Callable[..., bool], error: Callable[[], Exception]) -> Iterator[None]:
    """The function raises where `when` says so of its arguments, half way through or before it began."""
    original = getattr(owner, name)

    def broken(self: Any, *args: Any, **named: Any) -> Any:
        if when(*args):
            raise error()
        return original(self, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, broken)
        yield


def of(bad: str) -> Callable[..., bool]:
    return lambda subject, *_: bad in (getattr(subject, "name", ""), getattr(subject, "key", "").rpartition("/")[2])


ERRORS = [lambda: KeyError("spec"), lambda: RecursionError("too deep"), MemoryError]


@pytest.mark.parametrize("error", ERRORS, ids=["KeyError", "RecursionError", "MemoryError"])
def test_a_workload_that_cannot_be_scheduled_keeps_nobody_else_waiting(error: Callable[[], Exception]) -> None:
    world = IsolatedWorld(cluster_queue("q", 8), gang("w1"), gang("bad"), gang("w2"))
    with breaking(tree_cycle.TreeCycle, "_nominate", of("bad"), error):
        assert world.admitted(world.decide()) == ["team/w1", "team/w2"]
        assert [fault.key for fault in world.faults] == ["team/bad"]
        assert world.decide() == []
        assert len(world.faults) == 1, "it is said once"
    assert world.engine.usage("q") == {"a100": {GPU: 2}}
    world.change("bad", priority=1)
    assert world.admitted(world.decide()) == ["team/bad"]


def test_a_workload_that_holds_quota_keeps_it_when_it_cannot_be_reviewed() -> None:
    world = IsolatedWorld(cluster_queue("q", 8), gang("bad", 6))
    world.decide()
    world.put(gang("w1", 4))
    with breaking(lifecycle.Lifecycle, "_judge", of("bad"), ERRORS[0]):
        world.change("bad", pods_ready=True)
        assert world.admitted(world.decide()) == []
        world.put(gang("w2", 2))
        assert world.admitted(world.decide()) == ["team/w2"]
        assert [fault.key for fault in world.faults] == ["team/bad"]
    assert world.engine.usage("q") == {"a100": {GPU: 8}}
    world.finish("bad")
    assert world.admitted(world.decide()) == ["team/w1"]


def test_a_fact_that_cannot_be_taken_in_is_left_out_until_it_changes() -> None:
    world = IsolatedWorld(cluster_queue("q", 8))
    with breaking(workload_intake.WorkloadIntake, "put", of("bad"), ERRORS[0]):
        world.put(gang("bad"), gang("w1"))
        assert world.admitted(world.decide()) == ["team/w1"]
        world.put(world.workloads["team/bad"])
        assert len(world.faults) == 1, "the same again is not tried again"
    world.change("bad", priority=1)
    assert world.admitted(world.decide()) == ["team/bad"]


def test_a_fact_that_is_left_out_can_go() -> None:
    world = IsolatedWorld(cluster_queue("q", 8))
    with breaking(workload_intake.WorkloadIntake, "put", of("bad"), ERRORS[0]):
        world.put(gang("bad"))
        world.delete("bad")
    world.put(gang("bad"))
    assert world.admitted(world.decide()) == ["team/bad"]


def test_what_was_decided_and_not_yet_written_is_remembered_when_the_engine_is_built_anew() -> None:
    world = IsolatedWorld(cluster_queue("q", 8), gang("w1", 6))
    assert world.admitted(world.decide(lost=["team/w1"])) == ["team/w1"]
    with breaking(tree_cycle.TreeCycle, "_nominate", of("bad"), ERRORS[0]):
        world.put(gang("bad"), gang("w2", 4))
        assert world.admitted(world.decide()) == []
    assert [fault.key for fault in world.faults] == ["team/bad"]
    world.engine.observe(WriteFailed("team/w1"))
    assert world.engine.usage("q") == {}


def test_what_a_failed_round_assumed_is_forgotten() -> None:
    """w1 is reserved before the round fails, and nobody got the decision: it must not hold quota for ever."""
    world = IsolatedWorld(cluster_queue("a", 8), cluster_queue("b", 8), gang("w1", queue="a"), gang("bad", queue="b"))
    failed: list[bool] = []

    def once(attempt: Any) -> bool:
        if attempt.gang.key != "team/bad" or failed:
            return False
        failed.append(True)
        return True

    with breaking(tree_cycle.TreeCycle, "_process", once, ERRORS[0]):
        assert world.admitted(world.decide()) == ["team/w1"]
    world.finish("w1")
    assert world.engine.usage("a") == {}


def test_without_anybody_to_blame_deciding_rests_and_goes_on() -> None:
    world = IsolatedWorld(cluster_queue("q", 8), gang("w1"))
    with breaking(store.Store, "settle", lambda: True, ERRORS[0]):
        assert world.decide() == []
    assert [fault.key for fault in world.faults] == [""]
    assert world.engine.next_wakeup(world.now) == world.now + 1000
    world.now -= 900
    assert world.decide() == [], "it rests"
    assert world.admitted(world.decide()) == ["team/w1"]


def test_a_gang_that_cannot_be_healed_leaves_the_others_alone() -> None:
    world = IsolatedWorld(Flavor("tpu", node_labels={"accelerator": "v6e"}), tpu_queue(16))
    world.put(*(node(f"n{number}") for number in range(4)), plain("bad", 1), plain("w1", 1))
    world.decide()
    with (
        breaking(healing.Healing, "_heal", of("bad"), ERRORS[0]),
        breaking(healing.Healing, "_damaged", lambda: False, ERRORS[0]),
    ):
        for name in ("n0", "n1", "n2", "n3"):
            world.put(node(name, ready=False, conditions={"Ready": ("False", world.now)}))
        for _ in range(5):
            world.decide()
    assert {fault.key for fault in world.faults} <= {"team/bad"}
    assert world.engine.usage("q") == {"tpu": {TPU: 8}}


@given(st.integers(0, 10_000))
@examples(30)
def test_whatever_fails_quota_is_kept_and_everybody_else_is_served(seed: int) -> None:
    """Random lives; now and then something raises for one of the workloads. In the end, all others have run."""
    draw = random.Random(seed)
    world = IsolatedWorld(cluster_queue("a", 6, cohort="c"), cluster_queue("b", 6, cohort="c"))
    places = [(tree_cycle.TreeCycle, "_nominate"), (tree_cycle.TreeCycle, "_process"), (lifecycle.Lifecycle, "_judge")]
    places += [(workload_intake.WorkloadIntake, "put"), (workload_intake.WorkloadIntake, "_settle")]
    owner, name = draw.choice(places)

    def bad(subject: Any, *_: Any) -> bool:
        key = getattr(subject, "key", "") or getattr(getattr(subject, "gang", None), "key", "")
        bare = (
            owner is workload_intake.WorkloadIntake and world.engine._store.frozen
        )  # with what it takes to hold quota all goes well
        return "bad" in key and not bare and draw.random() < 0.5

    done: set[str] = set()
    with breaking(owner, name, bad, draw.choice(ERRORS)):
        for number in range(30):
            kind = draw.choice(("bad", "good", "good"))
            world.put(gang(f"{kind}{number}", draw.randint(1, 4), draw.choice("ab"), priority=draw.randint(0, 2)))
            world.decide()
            held = sum(world.engine.usage(queue).get("a100", {}).get(GPU, 0) for queue in "ab")
            assert held <= 12
            truly = sum(
                each.admission.pod_sets[0].usage[GPU] for each in world.workloads.values() if each.admission is not None
            )
            assert truly <= 12, "the quota was granted twice"
            running = [each for each in world.workloads.values() if each.admitted and not each.evicted]
            for each in running:
                if draw.random() < 0.6:
                    world.finish(each.name)
                    done.add(each.name)
            world.complete_evictions()
        for _ in range(60):
            world.decide()
            world.now += 1000
            for each in list(world.workloads.values()):
                if each.admitted:
                    world.finish(each.name)
                    done.add(each.name)
            world.complete_evictions()
    left = [name for name in world.workloads if "good" in name]
    assert left == []
    world.engine.observe(Gone(Workload, "team/nobody"))
    assert all("bad" in fault.key or not fault.key for fault in world.faults)


def test_the_engine_itself_hides_nothing() -> None:
    """Tests and replays use the plain engine: there, a failure is a failure."""
    world = EngineWorld(cluster_queue("q", 8), gang("bad"))
    with breaking(tree_cycle.TreeCycle, "_nominate", of("bad"), ERRORS[0]), pytest.raises(Exception, match="team/bad"):
        world.decide()
