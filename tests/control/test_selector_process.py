"""The process that evaluates selectors: it answers as this one does, and what an expression may cost is bounded."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pytest

from gangline.api.selecting import DeviceGroup, LocalJudge, UnavailableError
from gangline.control.feed import selector_process
from gangline.control.feed.selector_process import PAUSE, SelectorProcess

GROUPS = [
    DeviceGroup(
        "gpu.example.com", orjson.dumps([{"name": "a", "attributes": {"index": {"int": n}}} for n in range(3)])
    ),
    DeviceGroup("nic.example.com", orjson.dumps([{"name": "b", "attributes": {"index": {"bytes": "?"}}}])),
]


def nested(first: str, next_: str, last: str, depth: int = 24) -> str:
    """`next_`: made of the value before, {v}."""
    values = [first, *(next_.replace("{v}", f"v{i}") for i in range(depth - 1))]
    return (
        "".join(f"cel.bind(v{i}, {each}, " for i, each in enumerate(values))
        + last.replace("{v}", f"v{depth - 1}")
        + ")" * depth
    )


#: 4^24 comparisons, and a text of 6^23 characters
SLOW = nested("[1]", "[{v}, {v}, {v}, {v}]", "{v} == {v}")
LARGE = nested("device.driver + device.driver", "{v} + {v} + {v} + {v} + {v} + {v}", "{v}.size() > 0")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def judge(clock: Clock) -> Iterator[SelectorProcess]:
    found = SelectorProcess(clock)
    yield found
    found.close()


def children() -> set[int]:
    listed = [each.read_text() for each in Path(f"/proc/{os.getpid()}/task").glob("*/children")]
    return {int(pid) for text in listed for pid in text.split()}


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.example.com'].index > 0",
        "device.driver == 'gpu.example.com'",
        "device.driver",
        "nothing",
        "'\\u00e9\\u2603' == device.driver",
        "x" * 20_000,
    ],
)
def test_it_says_what_this_process_would_say(judge: SelectorProcess, expression: str) -> None:
    here = LocalJudge()
    assert judge.fault(expression) == here.fault(expression)
    assert judge.judge(expression, GROUPS) == here.judge(expression, GROUPS)
    assert judge.judge(expression, []) == []


@pytest.mark.parametrize("expression", [SLOW, LARGE])
def test_what_costs_too_much_ends_the_process_once(judge: SelectorProcess, clock: Clock, expression: str) -> None:
    assert LocalJudge().fault(expression) == ""
    words = "evaluating it takes too much time or memory"
    assert judge.judge(expression, GROUPS) == [(words,) * 3, (words,)]
    assert judge.fault(expression) == words, "it is known"
    assert judge.judge(expression, GROUPS[1:]) == [(words,)]
    with pytest.raises(UnavailableError, match="another CEL selector took too much"):
        judge.fault("true")
    clock.now += PAUSE / 2
    assert judge.paused == PAUSE / 2
    clock.now += PAUSE / 2
    assert judge.judge("true", GROUPS[:1]) == [(True, True, True)]


def test_one_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(selector_process, "PATIENCE", 0.2)
    judge = SelectorProcess(clock, [sys.executable, "-c", "import time; time.sleep(60)"])
    assert judge.fault("true") == "evaluating it takes too much time or memory"
    assert judge.paused


def test_one_that_cannot_be_started_is_tried_again(clock: Clock) -> None:
    judge = SelectorProcess(clock, ["/no/such/program"])
    for _ in range(2):
        with pytest.raises(UnavailableError, match="No such file"):
            judge.fault("true")
    assert not judge.paused


def test_it_is_started_when_it_is_needed_and_ends_with_its_owner(clock: Clock) -> None:
    before = children()
    judge = SelectorProcess(clock)
    assert children() == before
    assert judge.fault("true") == ""
    [child] = children() - before
    assert judge.fault("false") == ""
    os.kill(child, 9)  # as it ends when nothing was asked for a while
    time.sleep(0.2)
    assert judge.fault("true && true") == ""
    [other] = children() - before
    assert other != child
    del judge
    gc.collect()
    assert children() == before


def test_an_interrupted_question_is_not_answered_later(judge: SelectorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(process: object, question: bytes) -> None:
        raise TimeoutError("the time for this object is over")

    assert judge.fault("true") == ""
    exchange = judge._exchange
    monkeypatch.setattr(judge, "_exchange", interrupted)
    with pytest.raises(UnavailableError):
        judge.fault("nothing")
    monkeypatch.setattr(judge, "_exchange", exchange)
    assert judge.fault("false") == ""


def test_only_so_many_bad_ones_are_remembered(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(selector_process, "_MOST_BAD", 2)
    asked: list[bytes] = []

    class Failing(SelectorProcess):
        def _exchange(self, process: object, question: bytes) -> bytes | None:
            asked.append(question)
            return None

    judge: SelectorProcess = Failing(clock, ["true"])
    names: Sequence[str] = ["a", "b", "c", "a"]
    for name in names:
        judge.fault(name)
        clock.now += PAUSE
    assert len(asked) == len(names)
    judge.fault("c")
    assert len(asked) == len(names)


def test_a_process_that_is_ended_while_it_starts_is_not_waited_for() -> None:
    process = SelectorProcess(command=["sleep", "60"])
    process.kill()
    with pytest.raises(UnavailableError, match="was ended"):
        process.fault("true")
