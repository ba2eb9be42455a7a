"""One state per workload: what may follow what, who may change it, and the story of it in events."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang
from tests.engine.histories.history import History

import gangline.engine
from gangline.engine.isolated_engine import IsolatedEngine
from gangline.engine.model import Admission, Gone, PreemptionPolicy, Put, Settings, Workload, WriteFailed
from gangline.engine.queues.states import ALLOWED, HOLDING, NEEDS, Journal, LifecycleState, TransitionError
from gangline.engine.queues.workload_parts import (
    OWNERS,
    AttemptHistory,
    BackfillRecord,
    LifecycleRecord,
    NodesHeld,
    QuotaHeld,
)
from gangline.engine.queues.workload_state import Bucket, WorkloadState

ROOT = Path(gangline.engine.__path__[0])
#: methods that change a collection
MODIFYING = {"add", "append", "clear", "discard", "extend", "insert", "pop", "remove", "setdefault", "update"}
#: what the engine calls a workload
NAMES_OF_WORKLOADS = {"gang", "head", "victim", "holder", "candidate", "sibling", "old", "other", "preemptor"}
PARTS = {
    "quota": QuotaHeld,
    "nodes": NodesHeld,
    "backfill": BackfillRecord,
    "attempts": AttemptHistory,
    "lifecycle": LifecycleRecord,
}
#: attributes that `WorkloadState.enter` alone assigns, and the journal's marks
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


def waiting() -> WorkloadState:
    made = WorkloadState(gang("w"), Settings(), Journal())
    made.bucket = Bucket()
    made.enter(LifecycleState.PENDING)
    return made


def test_what_the_table_does_not_have_is_refused() -> None:
    made = waiting()
    for state in set(ALLOWED) - ALLOWED[LifecycleState.PENDING] - {LifecycleState.PENDING}:
        with pytest.raises(TransitionError, match="team/w"):
            made.enter(state)
    assert made.state is LifecycleState.PENDING


@pytest.mark.parametrize("state", NEEDS)
@pytest.mark.parametrize(("quota", "bucket"), [(False, False), (False, True), (True, False), (True, True)])
def test_a_state_is_entered_with_its_facts_only(state: LifecycleState, quota: bool, bucket: bool) -> None:
    made = WorkloadState(gang("w"), Settings(), Journal())
    if quota:
        made.quota.hold_without_queue(Admission("q", ()))
    made.bucket = Bucket() if bucket else None
    before = next(before for before, after in ALLOWED.items() if state in after)
    made._state = before
    if NEEDS[state] == (quota, bucket):
        made.enter(state)
        assert made._state is state
    else:
        with pytest.raises(TransitionError, match=r"team/w: .* needs other facts"):
            made.enter(state)
        assert made._state is before, "nothing has changed"


def test_the_tables_name_the_same_states() -> None:
    assert NEEDS.keys() | {LifecycleState.MOVING} == ALLOWED.keys()
    assert {state for state, needs in NEEDS.items() if needs.quota} == HOLDING


def test_the_way_between_two_states_leads_where_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[LifecycleState] = set()
    enter = WorkloadState.enter

    def noted(self: WorkloadState, state: LifecycleState, cause: str = "", decision: str = "") -> None:
        if self._state is LifecycleState.MOVING:
            seen.add(state)
        enter(self, state, cause, decision)

    monkeypatch.setattr(WorkloadState, "enter", noted)
    History("fair", 2).live()
    assert seen - {LifecycleState.MOVING} == ALLOWED[LifecycleState.MOVING]


def assignments(source: str) -> Iterator[tuple[int, str, str]]:
    """The attributes that a module assigns or modifies in place: line, the object's expression, attribute. A local name of a part
    (`held = gang.quota`) counts as that part.
    """
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        names: dict[str, str] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                names.update({each.id: ast.unparse(node.value) for each in node.targets if isinstance(each, ast.Name)})
        for node in ast.walk(function):
            target: ast.AST | None = None
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                target = node
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MODIFYING:
                target = node.func.value
            if isinstance(target, ast.Attribute):
                receiver = ast.unparse(target.value)
                yield node.lineno, names.get(receiver, receiver), target.attr


def violations(module: str, source: str) -> list[str]:
    """The assignments in a module of the engine to what another package, or `WorkloadState` alone, writes."""
    package, _, file = module.partition("/")
    found: list[str] = []
    for line, receiver, name in assignments(source):
        part = receiver.rpartition(".")[2]
        of_part = part in OWNERS and name in PARTS[part].__slots__
        of_state = name in WorkloadState.__slots__ and part in NAMES_OF_WORKLOADS
        if (
            (of_part and package != OWNERS[part])
            or (of_state and package != "queues")
            or (
                name in STATE and file != "workload_state.py" and not (file == "states.py" and name.startswith("noted"))
            )
        ):
            found.append(f"{module}:{line}: {receiver}.{name}")
    return found


def test_each_part_of_a_workload_is_written_by_its_package_alone() -> None:
    modules = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.rglob("*.py")}
    assert [each for module, source in modules.items() for each in violations(module, source)] == []


@pytest.mark.parametrize(
    "statement",
    [
        "gang.quota.usage = {}",
        "del gang.quota.admission",
        "attempt.gang.nodes.healed |= nodes",
        "held = gang.backfill; held.holds_back = False",
        "gang.attempts.last_reason, other = reason, None",
        "gang.quota.cells.append(cell)",
        "victim.queue = None",
        "gang._state = state",
        "gang.noted_cause = cause",
    ],
)
def test_an_assignment_by_another_package_would_be_found(statement: str) -> None:
    source = f"def change(gang, victim, attempt):\n    {statement}\n"
    assert [each.rpartition(":")[0] for each in violations("preemption/victims.py", source)] == [
        "preemption/victims.py:2"
    ]


def test_every_part_has_one_owner_that_exists() -> None:
    made = WorkloadState(gang("w"), Settings(), Journal())
    assert {name: type(getattr(made, name)) for name in OWNERS} == PARTS
    assert all((ROOT / owner).is_dir() for owner in OWNERS.values())


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
    journal, made = Journal(3), waiting()
    for turn in range(50):
        journal.note(made, f"cause {turn}")
    remembered = [entry.cause for entry in journal.story("team/w")]
    assert len(remembered) <= 6 and remembered[-1] == "cause 49"
    journal.end(7)
    assert {entry.at for entry in journal.story("team/w")} == {None, 7}, "who decides nothing does not know the time"
    assert GPU in made.requests()
