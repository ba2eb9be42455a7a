"""One state per workload: what may follow what, who may change it, and the story that is told of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang

import gangline.engine
from gangline.engine.isolated_engine import IsolatedEngine
from gangline.engine.model import Gone, PreemptionPolicy, Put, Settings, Workload, WriteFailed
from gangline.engine.queues.states import ALLOWED, HOLDING, Journal, LifecycleState, TransitionError
from gangline.engine.queues.workload_state import WorkloadState

ROOT = Path(gangline.engine.__path__[0])
#: attributes that `WorkloadState.enter` alone assigns
STATE = {"_state", "admitted", "evicting", "inadmissible_alone", "noted", "noted_cause", "noted_row"}


def story(world: EngineWorld, name: str) -> list[str]:
    return [entry.after.value for entry in world.engine.story(f"team/{name}")]


def test_the_table_has_every_state_and_nothing_follows_the_end() -> None:
    assert ALLOWED.keys() == set(LifecycleState) - {LifecycleState.HELD_BACK}
    assert not ALLOWED[LifecycleState.FINISHED]
    for state, following in ALLOWED.items():
        assert state not in following
        if state in HOLDING:
            assert LifecycleState.FINISHED not in following, "its quota is released first"


def test_what_the_table_does_not_have_is_refused() -> None:
    made = WorkloadState(gang("w"), Settings(), Journal())
    made.enter(LifecycleState.PENDING)
    for state in set(ALLOWED) - ALLOWED[LifecycleState.PENDING] - {LifecycleState.PENDING}:
        with pytest.raises(TransitionError, match="team/w"):
            made.enter(state)
    assert made.state is LifecycleState.PENDING


def test_nobody_else_assigns_a_state() -> None:
    for path in ROOT.rglob("*.py"):
        if path.name == "workload_state.py":
            continue
        allowed = {"noted", "noted_cause", "noted_row"} if path.name == "states.py" else set()
        for node in ast.walk(ast.parse(path.read_text())):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AugAssign)
                else []
            )
            flat = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Attribute)]
            assert not {each.attr for each in flat} & (STATE - allowed), f"{path.name}:{node.lineno}"


def test_the_life_of_a_preempted_workload() -> None:
    world = EngineWorld(cluster_queue("q", 8, preemption=PreemptionPolicy(within_cluster_queue="LowerPriority")))
    world.put(gang("low1", 8))
    world.decide()
    world.put(gang("high2", 8, priority=10))
    world.decide()
    assert story(world, "low1") == ["Pending", "QuotaReserved", "Admitted", "Evicting"]
    world.complete_evictions()
    world.decide()
    assert story(world, "low1")[4:] in (["Pending", "Inadmissible"], ["Inadmissible"])
    entries = world.engine.story("team/low1")
    evicted = next(entry for entry in entries if entry.after is LifecycleState.EVICTING)
    assert evicted.decision == "Preempt" and "team/high2" in evicted.cause
    assert all(entry.at is not None for entry in entries)
    assert [entry.at for entry in entries] == sorted(entry.at or 0 for entry in entries)
    assert world.engine.story("team/high2")[-1].after is LifecycleState.ADMITTED


def test_waiting_without_change_adds_nothing() -> None:
    world = EngineWorld(cluster_queue("q", 8))
    world.put(gang("a1", 8), gang("b2", 8))
    world.decide()
    before = world.engine.story("team/b2")
    for _ in range(3):
        world.put(gang("c3", 8))
        world.decide()
    assert world.engine.story("team/b2") == before
    assert "insufficient unused quota" in before[-1].cause


def test_a_refused_write_is_part_of_the_story() -> None:
    world = EngineWorld(cluster_queue("q", 8))
    world.engine.observe(Put(gang("a1", 8)))
    world.engine.decide(world.now)
    world.engine.observe(WriteFailed("team/a1"))
    world.engine.decide(world.now)
    assert story(world, "a1") == ["Pending", "QuotaReserved", "Admitted", "Pending", "QuotaReserved", "Admitted"]


def test_the_end_is_told_and_so_is_the_next_of_the_same_name() -> None:
    world = EngineWorld(cluster_queue("q", 8))
    world.put(gang("a1", 8))
    world.decide()
    world.engine.observe(Gone(Workload, "team/a1"))
    assert story(world, "a1")[-1] == "Finished"
    world.engine.decide(world.now)
    world.put(gang("a1", 4))
    assert story(world, "a1")[-2:] == ["Finished", "Pending"]


def test_a_story_survives_an_engine_that_is_built_anew() -> None:
    engine = IsolatedEngine(Settings(pods_ready=None))
    world = EngineWorld()
    world.engine = engine
    world.put(cluster_queue("q", 8), gang("a1", 8))
    world.decide()
    before = engine.story("team/a1")
    engine._rebuild()
    assert engine.story("team/a1") == before


def test_only_so_much_is_remembered() -> None:
    journal, made = Journal(3), WorkloadState(gang("w"), Settings(), Journal())
    made.enter(LifecycleState.PENDING)
    for turn in range(50):
        journal.note(made, f"cause {turn}")
    remembered = [entry.cause for entry in journal.story("team/w")]
    assert len(remembered) <= 6 and remembered[-1] == "cause 49"
    journal.end(7)
    assert {entry.at for entry in journal.story("team/w")} == {None, 7}, "who decides nothing does not know the time"
    assert GPU in made.requests()
