"""The record of lost nodes that a Workload carries."""

from __future__ import annotations

import json

import pytest

from gangline.api import names, recovery
from gangline.api.recovery import REPLACE, REQUEUE, RESTART, Record, Swap

T = 1_700_000_000_000


def swap(how: str = REPLACE, *lost: str, at: int = T, **known: object) -> Swap:
    return Swap(how, "NotReady", lost or ("a",), at - 2000, at, **known)  # type: ignore[arg-type]


def annotated(record: Record) -> dict[str, str]:
    return {names.RECOVERY: recovery.write(record)}


def test_a_record_survives_being_written():
    record = Record().with_loss(swap(RESTART, "a", "b", kept=("c",)))
    closed = record.with_current(swap(RESTART, "a", "b", created=T + 900, running=T + 1500, to=("d", "e")))
    for each in (Record(), record, closed):
        assert recovery.read(annotated(each)) == each


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"attempt": "x"}', '{"log": [{"how": "Replace"}]}', '{"log": 7}']
)
def test_what_cannot_be_read_is_no_record(text):
    assert recovery.read({names.RECOVERY: text}) == Record()


def test_a_replacement_is_no_new_attempt_and_a_restart_is_one():
    assert Record().with_loss(swap(REPLACE)).attempt == 0
    assert Record().with_loss(swap(RESTART)).attempt == 1
    assert Record(attempt=4).with_loss(swap(REQUEUE)).attempt == 4


def test_the_same_decision_counts_once():
    once = Record().with_loss(swap(RESTART))
    assert once.with_loss(swap(RESTART)) is once
    assert once.with_loss(swap(RESTART, at=T - 1)) is once


def test_a_second_loss_before_the_gang_has_recovered_is_the_same_swap():
    first = Record().with_loss(swap(REPLACE, "a", kept=("b", "c")))
    both = first.with_loss(swap(RESTART, "b", "a", at=T + 5000))
    [grown] = both.log
    assert (both.attempt, both.swaps) == (1, 2), "a was counted already"
    assert (grown.how, grown.lost, grown.kept) == (RESTART, ("a", "b"), ("c",))
    assert (grown.detected, grown.decided) == (T - 2000, T), "it lasts since the first loss"
    assert both.with_loss(swap(REPLACE, "c", at=T + 6000)).log[0].how == RESTART


def test_nodes_are_avoided_until_the_gang_runs_again():
    record = Record().with_loss(swap(REPLACE, "a"))
    assert record.avoid == ("a",)
    closed = record.with_current(swap(REPLACE, "a", running=T + 1))
    assert (closed.avoid, closed.current) == ((), None)
    again = closed.with_loss(swap(REPLACE, "b", at=T + 100))
    assert (again.avoid, again.swaps, len(again.log)) == (("b",), 2, 2)


def test_only_the_latest_swaps_are_kept():
    record = Record()
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
    assert recovery.whole_domains({names.WHOLE_DOMAINS: text}) == {"slice": ("pool", 2)}
    assert recovery.whole_domains({names.WHOLE_DOMAINS: '{"slice": 3}'}) == {}
    assert recovery.whole_domains({}) == {}
