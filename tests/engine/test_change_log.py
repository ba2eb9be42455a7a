"""The log by which several readers catch up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangline.engine.text.change_log import ChangeLog


def test_a_reader_hears_of_everything_once() -> None:
    log: ChangeLog[str] = ChangeLog(longest=10)
    assert log.since(ChangeLog.UNREAD) is None, "who has never looked has to look at everything"
    seen = log.end
    assert log.since(seen) == []
    log.extend("ab")
    log.append("c")
    assert log.since(seen) == ["a", "b", "c"]
    assert log.since(log.end) == []


def test_who_had_not_caught_up_when_it_started_over_looks_at_everything() -> None:
    log: ChangeLog[int] = ChangeLog(longest=2)
    log.append(1)
    seen = log.end
    log.append(2)
    assert log.since(seen) == [2]
    log.append(3)
    assert log.since(seen) is None
    assert log.since(log.end) == []


def test_starting_over_is_heard_of_by_those_that_had_caught_up() -> None:
    log: ChangeLog[int] = ChangeLog(longest=10)
    log.append(1)
    seen = log.end
    log.start_over()
    assert log.since(seen) is None
    assert log.since(log.end) == []


@given(st.lists(st.one_of(st.integers(0, 9), st.just("look"), st.just("over")), max_size=60), st.integers(1, 8))
def test_a_reader_always_knows_what_there_is(steps: list[int | str], longest: int) -> None:
    """What is kept up to date by the log equals what is looked up anew."""
    log: ChangeLog[int] = ChangeLog(longest)
    there: dict[int, int] = {}
    known: dict[int, int] = {}
    seen = ChangeLog.UNREAD
    for number, step in enumerate([*steps, "look"]):
        if isinstance(step, int):
            there[step] = number
            log.append(step)
        elif step == "over":
            there.clear()
            log.start_over()
        else:
            news = log.since(seen)
            known = dict(there) if news is None else known | {key: there[key] for key in news}
            seen = log.end
            assert known == there
