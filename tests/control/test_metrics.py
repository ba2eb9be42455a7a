"""Labels of metrics: their values come and go with the ClusterQueues, and people's texts are none."""

from __future__ import annotations

from gangline.control.operator_metrics import Metrics
from gangline.engine import Engine


async def test_the_series_of_a_deleted_queue_are_removed():
    metrics, engine = Metrics(), Engine()
    for queue in ("stays", "goes"):
        metrics.reserved(queue, 1, admitted=True)
        metrics.admitted(queue, 1)
        metrics.recovered(queue, {"total": 1.0})
        metrics.evicted({"status": {"admission": {"clusterQueue": queue}}}, "Preempted", "Some")
    metrics.queues(engine, ["stays", "goes"])
    before = await metrics.text()
    assert before.count(b'"stays"') == before.count(b'"goes"') > 11
    metrics.queues(engine, ["stays"])
    after = await metrics.text()
    assert b'"goes"' not in after
    assert after.count(b'"stays"') == before.count(b'"stays"')


async def test_names_that_are_written_to_a_status_by_hand_make_no_series_that_last():
    metrics, engine = Metrics(), Engine()
    for number in range(1000):
        metrics.evicted({"status": {"admission": {"clusterQueue": f"made-up-{number}"}}}, "Preempted")
    metrics.queues(engine, ["real"])
    assert b"made-up" not in await metrics.text()
    metrics.evicted({"status": {}}, "Preempted")
    metrics.queues(engine, ["real"])
    assert b'cluster_queue="",reason="Preempted"' in await metrics.text()
