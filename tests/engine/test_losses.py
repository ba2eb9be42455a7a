"""What may be lost in the long run."""

from __future__ import annotations

from tests.engine.world import GPU, START, World, cluster_queue, gang

from gangline.engine.losses import KEPT, Losses
from gangline.engine.model import LocalQueue

HOUR = 3_600_000


def test_it_fills_with_time_and_pays_for_all_that_are_stopped() -> None:
    world = World(cluster_queue("q", 8), LocalQueue("team", "q", "q"), gang("a", 4))
    world.decide()
    store = world.engine._store  # pyright: ignore[reportPrivateUsage]
    queue, holder, began = store.queues["q"], store.gangs["team/a"], store.gangs["team/a"].admitted_at
    losses = Losses()

    def left(now: int) -> int:
        return losses.left(queue, GPU, 0.01, now)

    assert holder.holds and began > START
    assert left(began) == 0, "empty at first"
    assert left(began + 100 * HOUR) == 8 * HOUR, "a hundredth of what eight could do"
    losses.note([holder], began + 100 * HOUR)  # it declares no checkpoints: all it did is lost, 400 hours
    assert left(began + 100 * HOUR) == 0
    assert left(began + 4_999 * HOUR) == 0, "what was lost before comes first"
    assert left(began + 5_001 * HOUR) > 0
    assert left(began + 50_000 * HOUR) == round(0.01 * 8 * KEPT), "and a week's worth is the most"
