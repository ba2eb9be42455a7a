"""The record of lost nodes that a Workload carries."""

from __future__ import annotations

import json

import pytest

from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import REPLACE, REQUEUE, RESTART, RecordedSwap, SwapRecord
from gangline.engine.model import SWAP_WINDOW

T = 1_700_000_000_000


def swap(how: str = REPLACE, *lost: str, at: int = T, **known: object) -> RecordedSwap:
    return RecordedSwap(how, "NotReady", lost or ("a",), at - 2000, at, **known)  # type: ignore[arg-type]


def annotated(record: SwapRecord) -> dict[str, str]:
    return {names.RECOVERY: swap_record.write(record)}


def test_a_record_survives_being_written():
    record = SwapRecord().with_loss(swap(RESTART, "a", "b", kept=("c",)))
    closed = record.with_current(swap(RESTART, "a", "b", created=T + 900, running=T + 1500, to=("d", "e")))
    for each in (SwapRecord(), record, closed):
        assert swap_record.read(annotated(each)) == each


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"attempt": "x"}', '{"log": [{"how": "Replace"}]}', '{"log": 7}']
)
def test_what_cannot_be_read_is_no_record(text):
    assert swap_record.read({names.RECOVERY: text}) == SwapRecord()


def test_a_replacement_is_no_new_attempt_and_a_restart_is_one():
    assert SwapRecord().with_loss(swap(REPLACE)).attempt == 0
    assert SwapRecord().with_loss(swap(RESTART)).attempt == 1
    assert SwapRecord(attempt=4).with_loss(swap(REQUEUE)).attempt == 4


def test_the_same_decision_counts_once():
    once = SwapRecord().with_loss(swap(RESTART))
    assert once.with_loss(swap(RESTART)) is once
    assert once.with_loss(swap(RESTART, at=T - 1)) is once


def test_a_second_loss_before_the_gang_has_recovered_is_the_same_swap():
    first = SwapRecord().with_loss(swap(REPLACE, "a", kept=("b", "c")))
    both = first.with_loss(swap(RESTART, "b", "a", at=T + 5000))
    [grown] = both.log
    assert (both.attempt, both.swaps) == (1, 2), "a was counted already"
    assert (grown.how, grown.lost, grown.kept) == (RESTART, ("a", "b"), ("c",))
    assert (grown.detected, grown.decided) == (T - 2000, T), "it lasts since the first loss"
    assert both.with_loss(swap(REPLACE, "c", at=T + 6000)).log[0].how == RESTART
    assert both.log[0].open


def test_each_lost_node_has_its_own_time():
    first = SwapRecord().with_loss(swap(REPLACE, "a"))
    [grown] = first.with_loss(swap(REPLACE, "b", at=T + 5000)).log
    assert [grown.left_at(node) for node in ("a", "b", "c")] == [T, T + 5000, None]
    [again] = first.with_loss(swap(REPLACE, "a", at=T + 9000)).log
    assert again.left_at("a") == T + 9000, "it came back, and failed again"
    assert swap_record.read(annotated(SwapRecord(log=(grown,)))).log == (grown,)


def test_a_single_pod_is_not_mended_while_all_of_it_starts_again():
    record = SwapRecord().with_loss(swap(RESTART, "a")).with_loss(swap(REPLACE, "b", at=T + 1))
    assert (record.attempt, record.log[0].how) == (2, RESTART)
    queued = SwapRecord().with_loss(swap(REQUEUE, "a")).with_loss(swap(REPLACE, "b", at=T + 1))
    assert (queued.attempt, queued.log[0].how) == (0, REQUEUE)


def test_decisions_that_come_late_or_by_another_clock_are_not_lost():
    record = SwapRecord().with_loss(swap(REPLACE, "a", at=T + 5000))
    late = record.with_loss(swap(REPLACE, "b"))
    assert (late.log[0].lost, late.at) == (("a", "b"), T + 5000)
    over = late.with_current(swap(REPLACE, "a", "b", running=T + 9000))
    assert over.with_loss(swap(REPLACE, "b", at=T + 4000)) is over, "that one is over"


def test_replacements_are_dated_as_far_back_as_budgets_count():
    record, times = SwapRecord(), [T + 60_000 * number for number in range(100)]
    for number, at in enumerate(times):
        record = record.with_loss(swap(REPLACE, f"n{number}", at=at))
    assert record.replaced == tuple((at, 1) for at in times if at > times[-1] - SWAP_WINDOW)
    assert swap_record.read(annotated(record)) == record
    dense = SwapRecord()
    for number in range(200):
        dense = dense.with_loss(swap(REPLACE, f"n{number}", at=T + number))
    assert sum(count for _, count in dense.replaced) == 200
    assert len(dense.replaced) == swap_record.MOST_DATES
    assert SwapRecord().with_loss(swap(REQUEUE, "a")).replaced == (), "nothing was replaced under it"


def test_no_lost_node_is_forgotten_while_the_swap_is_under_way():
    names_of_many = tuple(f"n{number}" for number in range(200))
    record = SwapRecord().with_loss(swap(REPLACE, *names_of_many))
    assert record.avoid == names_of_many
    closed = record.with_current(swap(REPLACE, *names_of_many, running=T + 1))
    assert len(closed.log[0].lost) == swap_record.MOST_NODES


def test_nodes_are_avoided_until_the_gang_runs_again():
    record = SwapRecord().with_loss(swap(REPLACE, "a"))
    assert record.avoid == ("a",)
    closed = record.with_current(swap(REPLACE, "a", running=T + 1))
    assert (closed.avoid, closed.current) == ((), None)
    again = closed.with_loss(swap(REPLACE, "b", at=T + 100))
    assert (again.avoid, again.swaps, len(again.log)) == (("b",), 2, 2)


def test_only_the_latest_swaps_are_kept():
    record = SwapRecord()
    for number in range(20):
        record = record.with_loss(swap(REPLACE, f"n{number}", at=T + number)).with_current(
            swap(REPLACE, f"n{number}", at=T + number, running=T + number)
        )
    assert record.swaps == 20
    assert [each.lost[0] for each in record.log] == [f"n{number}" for number in range(12, 20)]


def test_stages_are_what_each_one_took():
    done = swap(created=T + 700, running=T + 1500)
    assert done.stages() == {"decided": 2.0, "created": 0.7, "running": 0.8, "total": 3.5}
    assert swap().stages() == {"decided": 2.0}
    odd = swap(created=T - 500, running=T + 100)  # clocks of two machines
    assert odd.stages()["created"] == 0.0


def test_whole_domains():
    text = json.dumps({"slice": {"by": "pool", "count": 2}})
    assert swap_record.whole_domains({names.WHOLE_DOMAINS: text}) == {"slice": ("pool", 2)}
    assert swap_record.whole_domains({names.WHOLE_DOMAINS: '{"slice": 3}'}) == {}
    assert swap_record.whole_domains({}) == {}
