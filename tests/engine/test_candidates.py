"""Candidates that are remembered between preemptors are those that would be found anew."""

from __future__ import annotations

import random
from functools import partial

import pytest
from tests.builders.engine import EngineWorld, cluster_queue, cohort, gang, of

from gangline.engine.model import FIXES, Preempt, PreemptionPolicy, Quota, Settings, VictimPolicy
from gangline.engine.preemption.preemptor import Candidates, Key, classic_victims

POLICIES = (
    PreemptionPolicy("LowerPriority", "Any"),
    PreemptionPolicy("LowerOrNewerEqualPriority", "LowerPriority", "LowerPriority", 1),
    PreemptionPolicy("LowerPriority", "Any", "LowerPriority", 0),
    PreemptionPolicy("Never", "LowerPriority"),
)


class Forgetful(dict[Key, Candidates]):
    def __setitem__(self, key: Key, value: Candidates) -> None:
        pass


def world(dice: random.Random, fixes: frozenset[str]) -> EngineWorld:
    protected = VictimPolicy(min_runtime_seconds=3.0)
    queues = [
        cluster_queue(
            f"q{number}",
            Quota(dice.randint(1, 6), borrowing_limit=dice.choice([None, None, 4])),
            dice.choice(("top", "left", "left", "right")),
            preemption=dice.choice(POLICIES),
            victims=protected if dice.random() < 0.1 else None,
        )
        for number in range(8)
    ]
    cohorts = cohort("top", 2), cohort("left", 0, "top"), cohort("right", 3, "top")
    return EngineWorld(*cohorts, *queues, settings=Settings(pods_ready=None, fixes={"*": fixes}))


def history(seed: int, fixes: frozenset[str], *, memory: str = "usual") -> list[str]:
    """What was decided, round by round."""
    dice = random.Random(seed)
    found = world(dice, fixes)
    preemptor = found.engine._scheduler._preemptor
    if memory == "none":
        preemptor._find = partial(classic_victims, known=Forgetful())
    elif memory == "endless":
        preemptor._find = partial(classic_victims, known={})  # which nobody clears
    decided: list[str] = []
    for number in range(60):
        found.put(
            *(
                gang(f"w{number * 4 + i}", dice.randint(1, 6), f"q{dice.randrange(8)}", priority=dice.randint(0, 2))
                for i in range(dice.randrange(5))
            )
        )
        running = found.running()
        for name in dice.sample(running, min(len(running), dice.randrange(3))):
            found.finish(name)
        if dice.random() < 0.6:
            found.complete_evictions()
        decided += map(repr, found.decide())
    return decided


@pytest.mark.parametrize("fixes", [frozenset[str](), frozenset(FIXES)], ids=["as Kueue", "with fixes"])
@pytest.mark.parametrize("seed", range(6))
def test_remembering_decides_nothing(seed: int, fixes: frozenset[str]) -> None:
    decided = history(seed, fixes)
    assert decided == history(seed, fixes, memory="none")
    assert any(text.startswith(Preempt.__name__) for text in decided)


def test_what_is_remembered_must_be_forgotten_in_time() -> None:
    """Else the histories above would tell nothing."""
    none = frozenset[str]()
    assert any(history(seed, none, memory="endless") != history(seed, none, memory="none") for seed in range(8))


@pytest.mark.parametrize("change", [{"priority": 1}, {"boost": -9}])
def test_a_holder_whose_priority_drops_makes_room_for_who_could_not_preempt_it_before(change: dict[str, int]) -> None:
    settings = Settings(gates={"PriorityBoost": True})
    queue = cluster_queue("q", 4, preemption=PreemptionPolicy("LowerPriority"))
    found = EngineWorld(queue, gang("w1", 4, priority=10), settings=settings)
    found.decide()
    found.put(gang("w2", 4, priority=5))
    assert of(found.decide(), Preempt) == []
    found.change("w1", **change)
    assert of(found.decide(), Preempt) == ["w1"]


def test_holders_of_equal_priority_are_not_looked_at_one_by_one() -> None:
    queue = cluster_queue("q0", Quota(60), preemption=PreemptionPolicy("LowerPriority", "Any"))
    found = EngineWorld(queue, *(gang(f"w{number}", 1, "q0") for number in range(60)))
    found.decide()
    assert len(found.running()) == 60
    ledger = found.engine._store.node_ledger
    before = ledger.looks
    found.put(gang("late", 1, "q0"))
    assert of(found.decide(), Preempt) == []
    assert ledger.looks - before < 10
