"""How freely gangs may be stopped, by what was lost lately."""

from __future__ import annotations

import pytest
from tests.engine.world import GPU, START, World, cluster_queue, gang

from gangline.engine.backfill.loss_budget import DAY, THRIFT, Losses
from gangline.engine.model import LocalQueue


def test_it_is_full_at_first_and_pays_for_all_that_are_stopped() -> None:
    world = World(cluster_queue("q", 8), LocalQueue("team", "q", "q"), gang("a", 4))
    world.decide()
    store = world.engine._store  # pyright: ignore[reportPrivateUsage]
    queue, holder, began = store.queues["q"], store.gangs["team/a"], store.gangs["team/a"].admitted_at
    losses = Losses()

    def freedom(now: int) -> float:
        return losses.freedom(queue, GPU, 0.1, now)

    assert holder.holds and began > START
    losses.note([holder], began + DAY)  # nobody asked yet: nothing is counted
    assert freedom(began) == 1.0
    losses.note([holder], began + DAY // 10)  # it declares no checkpoints: half of all for a tenth of the day is lost
    assert freedom(began) == pytest.approx(0.5)
    assert freedom(began + DAY // 4) == pytest.approx(0.75), "it fills in a day"
    losses.note([holder], began + 9 * DAY)
    assert freedom(began + DAY // 4) == THRIFT
    assert freedom(began + DAY + DAY // 4) == THRIFT, "what was lost comes first, but no more than a day's budget of it"
    assert freedom(began + 2 * DAY + DAY // 4) == 1.0


def test_without_a_budget_to_speak_of_it_is_always_thrifty() -> None:
    world = World(cluster_queue("q", 8), LocalQueue("team", "q", "q"))
    world.decide()
    queue = world.engine._store.queues["q"]  # pyright: ignore[reportPrivateUsage]
    assert Losses().freedom(queue, GPU, 0.0, START) == THRIFT
