"""Parts that reconcile: keys in turn, one write at a time, pauses after refusals, errors that stop nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.context import a_context

from gangline.control.isolation.quarantine import Quarantine
from gangline.control.kernel.reconciler import SOON, Reconciler
from gangline.control.parts.changed_keys import KeySet
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, Forbidden
from gangline.kube.resources import Json, ObjectKey


class Answers:
    """In place of `Writes`: keeps what was sent; the test answers it."""

    def __init__(self) -> None:
        self.sent: list[tuple[ObjectKey, Json]] = []
        self.slots: list[str] = []
        self.callbacks: list[tuple[Callable[[Any], None], Callable[[ApiError], None]]] = []

    def send(self, key: ObjectKey, verb: str, body: Json, *, slot: str, done: Any, failed: Any, **_: Any) -> None:
        self.sent.append((key, body))
        self.slots.append(slot)
        self.callbacks.append((done, failed))

    @staticmethod
    def expected(error: ApiError) -> bool:
        return isinstance(error, Conflict)

    def succeed(self, answer: Any = None) -> None:
        self.callbacks.pop(0)[0](answer)

    def refuse(self, error: ApiError) -> None:
        self.callbacks.pop(0)[1](error)


class Labeller(Reconciler[str]):
    """Writes a label to each Workload, once it has received it."""

    name = "labeller"
    doing = "labelling it"

    def __init__(self, answers: Answers) -> None:
        self.woken = 0
        self.reconciled: list[str] = []
        self.reported: list[tuple[str, str]] = []
        self.deadlines: dict[str, int] = {}
        self.put_back: set[str] = set()
        quarantine = Quarantine(lambda subject, obj, what: self.reported.append((subject[1], what)))
        context = a_context(writes=answers, quarantine=quarantine, wake=self._count)
        super().__init__(context, KeySet[str](lambda key: True))

    def _count(self) -> None:
        self.woken += 1

    def note(self, *keys: str) -> None:
        self._changed.update(keys)

    def _gather(self, now: int) -> None:
        self._changed.update(key for key, time in self.deadlines.items() if time <= now)

    def _times(self) -> Iterable[int]:
        return self.deadlines.values()

    def _reconcile(self, key: str, now: int) -> None:
        self.deadlines.pop(key, None)
        self.reconciled.append(key)
        if key in self.put_back:
            self._changed.add(key)
            return
        if key.endswith("broken"):
            raise ValueError("spec: nobody can read this")
        if not key.endswith("fine"):
            self._send(key, ObjectKey.parse(kube.WORKLOADS, key), "patch", {"metadata": {"labels": {"seen": "yes"}}})


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def part(answers: Answers) -> Labeller:
    return Labeller(answers)


async def test_a_key_with_a_write_in_flight_waits_for_the_answer_and_is_then_looked_at_again(
    part: Labeller, answers: Answers
) -> None:
    part.note("ns/a")
    part.act(0)
    part.note("ns/a", "ns/b")
    part.act(0)
    assert part.reconciled == ["ns/a", "ns/b"], "ns/a waits"
    answers.succeed()
    assert part.woken == 1
    part.act(0)
    assert part.reconciled == ["ns/a", "ns/b", "ns/a"]
    assert answers.slots == ["labeller"] * 3, "no other part's write can replace one of these"


async def test_an_expected_refusal_is_tried_again_at_once_and_another_one_after_a_pause(
    part: Labeller, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda after, call, *args: pauses.append((after, call, args)))
    part.note("ns/a")
    part.act(0)
    answers.refuse(Conflict(409, "Conflict", "changed"))
    part.act(0)
    assert part.reconciled == ["ns/a", "ns/a"] and pauses == []
    for seconds in (1.0, 2.0, 4.0):
        answers.refuse(Forbidden(403, "Forbidden", "no"))
        part.note("ns/a", "ns/fine")
        part.act(0)
        assert part.reconciled[-1] == "ns/fine", "others go on"
        after, call, args = pauses.pop()
        assert after == seconds
        call(*args)
        part.act(0)
        assert part.reconciled[-1] == "ns/a"
    answers.succeed()
    part.act(0)
    answers.refuse(Forbidden(403, "Forbidden", "no"))
    assert pauses[0][0] == 1.0, "a success forgives"


async def test_an_object_that_cannot_be_handled_stops_no_other(part: Labeller, answers: Answers) -> None:
    part.note("ns/a", "ns/broken", "ns/c")
    part.act(0)
    assert part.reconciled == ["ns/a", "ns/broken", "ns/c"]
    assert part.reported == [("ns/broken", "spec: nobody can read this")]
    part.note("ns/broken")
    part.act(0)
    assert part.reconciled == ["ns/a", "ns/broken", "ns/c"], "it pauses"


async def test_a_time_that_has_come_for_a_key_that_waits_does_not_keep_the_loop_awake(
    part: Labeller, answers: Answers
) -> None:
    part.note("ns/a")
    part.act(0)
    part.deadlines |= {"ns/a": 5, "ns/b": 20}
    part.act(1)
    assert part.due == 5
    part.act(10)
    assert part.reconciled == ["ns/a"], "its write is in flight"
    assert part.due == 20, "its answer wakes the loop, the time has done so"
    answers.succeed()
    part.act(11)
    assert part.reconciled == ["ns/a", "ns/a"] and part.due == 20


async def test_a_key_that_waits_for_another_part_s_write_is_looked_at_again_soon(part: Labeller) -> None:
    part.note("a/fine", "b/fine")
    part.act(1000)
    assert part.due is None, "nothing waits"
    part.put_back = {"b/fine"}
    part.note("a/fine", "b/fine")
    part.act(2000)
    assert part.due == 2000 + SOON
    part.deadlines["a/fine"] = 2100
    part.act(2050)
    assert part.due == 2100, "what comes first"
    part.put_back = set()
    part.act(2200)
    assert part.due is None


async def test_a_key_whose_own_write_is_in_flight_needs_no_time(part: Labeller, answers: Answers) -> None:
    part.note("a/x")
    part.act(1000)
    part.note("a/x")
    part.act(1001)
    assert part.due is None
    answers.succeed()
    assert part.woken == 1
