"""Random histories that two worlds live through alike: what one decides the other has to decide as well."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.builders.engine import EngineWorld

from gangline.engine.model import Decision, Evict, Preempt, Settings, Warn, Workload, WriteFailed


class Twins(RuleBasedStateMachine):
    """What operators do: their writes get lost, they die. Subclasses say what else happens, and begin with `live`."""

    def live(self, *items: Any, settings: Settings) -> None:
        self.world = EngineWorld(*items, settings=settings)
        self.twin = EngineWorld(*items, settings=settings)
        self.count = 0
        self.finished: list[str] = []

    def both(self, what: str, *arguments: Any, **fields: Any) -> None:
        for world in (self.world, self.twin):
            getattr(world, what)(*arguments, **fields)

    def pass_time(self, seconds: int) -> None:
        for world in (self.world, self.twin):
            world.now += seconds * 1000

    @property
    def all(self) -> list[Workload]:
        return list(self.world.workloads.values())

    def done(self, name: str) -> None:
        assert name not in self.finished
        self.finished.append(name)
        self.both("finish", name)

    @rule()
    def evictions_complete(self) -> None:
        self.both("complete_evictions")

    @rule()
    def operator_dies(self) -> None:
        self.both("restart")

    @rule(room=st.none() | st.integers(0, 3))
    def decide(self, room: int | None) -> None:
        self.carry_out(self.decisions(room))

    @rule(data=st.data())
    def decide_and_lose_writes(self, data: st.DataObject) -> None:
        decisions = self.decisions(None)
        about = sorted({each.workload for each in decisions if not isinstance(each, Warn)})
        self.carry_out(decisions, lost=data.draw(st.sets(st.sampled_from(about))) if about else frozenset())

    def decisions(self, room: int | None = None) -> list[Decision]:
        self.pass_time(1)
        decisions = self.world.engine.decide(self.world.now, room)
        assert decisions == self.twin.engine.decide(self.twin.now, room), "the same history, another decision"
        out = [each.workload for each in decisions if isinstance(each, Evict | Preempt)]
        assert len(out) == len(set(out)), "one gang, two fates"
        self.check(decisions)
        return decisions

    def check(self, decisions: Sequence[Decision]) -> None:
        """What more must hold of decisions before they are carried out."""

    def carry_out(self, decisions: Sequence[Decision], lost: AbstractSet[str] = frozenset()) -> None:
        for world in (self.world, self.twin):
            for decision in decisions:
                if isinstance(decision, Warn):
                    continue
                if decision.workload in lost:
                    world.engine.observe(WriteFailed(decision.workload))
                else:
                    world.write(decision)

    @invariant()
    def kept_up_to_date_is_as_good_as_new(self) -> None:
        if hasattr(self, "world"):
            assert self.world.engine.snapshot() == self.world.engine.rebuilt().snapshot()
