"""A history: what happens to a cluster, step by step, and what users would see of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tests.engine.histories.configuration import RACK, Configuration
from tests.engine.histories.events import Events
from tests.engine.histories.text import brief, moment

from gangline.engine.simulation.outlook import outlook

STEPS: Final = 60
#: how likely it is, and what happens
Event: TypeAlias = tuple[int, Callable[[], None]]


class History(Events):
    """The history of this theme and number."""

    def __init__(self, theme: str, number: int) -> None:
        super().__init__(Configuration(theme, number))

    def live(self) -> list[str]:
        for step in range(STEPS):
            self.now += 1000 * self.one_of((1, 1, 1, 5, 30, 120, 1000))
            self.log.append(f"--- {step} at {moment(self.now)}")
            for _ in range(self.between(1, 4)):
                self.something()
            if self.drawn.theme in ("planning", "backfill"):
                self.finish_those_at_their_end()
            self.decide_and_carry_out()
            if self.chance(0.7):
                self.let_go()
            self.bind()
            self.decide_and_carry_out()
            if step % 5 == 4:
                self.nothing_is_missed()
                self.ask()
            if step % 23 == 22:
                self.look_ahead()
        return self.log

    def something(self) -> None:
        likely = self.usual() if self.drawn.theme == "backfill" else [*self.usual(), *self.unusual()]
        draw = self.random.random() * sum(weight for weight, _ in likely)
        for weight, happens in likely:
            draw -= weight
            if draw < 0:
                happens()
                return

    def usual(self) -> list[Event]:
        return [(10, self.submit), (3, self.finish_one), (2, self.forecast_anew)]

    def unusual(self) -> list[Event]:
        events = [
            (1, self.delete_one),
            (1, self.change_workload),
            (1, self.change_queue),
            (1, self.stop_queue),
            (1, self.delete_queue),
            (1, self.operator_dies),
            (2, self.answer_checks),
        ]
        if self.drawn.settings.pods_ready is not None:
            events += [(4, self.pods_ready)]
        if self.drawn.on_nodes:
            events += [(5, self.node_trouble), (3, self.node_back), (1, self.foreign_pod), (2, self.pod_trouble)]
        return events

    def nothing_is_missed(self) -> None:
        """A new engine with the same facts starts nothing more, once this one has nothing left to decide."""
        due = self.engine.next_wakeup(self.now)
        if due is None or due > self.now:
            missed = [each.workload for each in self.engine.missed_starts(self.now)]
            assert not missed, f"{missed} would start after a restart"

    # --- what users ask -----------------------------------------------------------------------------------------------

    def ask(self) -> None:
        engine, store = self.engine, self.engine._store
        for name in sorted(store.queues):
            active, inadmissible = engine.active(name), engine.inadmissible(name)
            self.log.append(
                f"  queue {name}: {brief(engine.pending(name))} active {brief(active)} {brief(inadmissible)}"
            )
            self.log.append(f"    {brief(engine.queue_status(name))} ({len(active)}, {len(inadmissible)})")
            self.log.append(f"    holds {brief(engine.usage(name))}")
        for key in sorted(self.workloads):
            if explanation := engine.explain(key):
                self.log.append(f"  why {key}: {brief(explanation)}")
            if domains := engine.domains_of(key, RACK):
                self.log.append(f"  domains of {key}: {brief(sorted(domains))}")
        for name in sorted(self.drawn.nodes):
            if reason := store.health.why_unusable(name):
                self.log.append(f"  node {name}: {reason} {store.health.leaving(name)}")
        self.log.append(f"  delays {brief(engine.head_delay_seconds())} starts {brief(engine.head_starts())}")
        changed = sorted(engine.drain_changed_queues()), sorted(engine.drain_changed_local_queues())
        self.log.append(f"  changed {brief(changed)} available {brief(engine.snapshot().available)}")
        for key in sorted(self.workloads)[:3]:
            story = [(each.before and each.before.value, each.after.value, each.cause) for each in engine.story(key)]
            self.log.append(f"  story {key}: {brief(story)}")

    def look_ahead(self) -> None:
        clock: Callable[[], float] = lambda: 0.0  # noqa: E731
        found = outlook(
            self.engine.facts(),
            self.drawn.settings,
            self.now,
            courses=self.one_of((1, 2)),
            horizon=3_000_000,
            clock=clock,
        )
        for key, expected in sorted(found.starts.items()):
            self.log.append(f"  expected {key}: {brief(expected)}")
        for stretch in found.stretches:
            self.log.append(f"  {brief(stretch)}")
