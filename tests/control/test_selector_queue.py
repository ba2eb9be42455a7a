"""The questions about CEL selectors: nobody waits for them in the loop, and no namespace for those of another."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson
import pytest
from tests.control.test_minimal_objects import operator
from tests.control.test_request_rules import DRIVER, resource_slice, stored
from tests.control.test_selector_process import children

from gangline.api.read.counting.device_claims import Devices
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.api.selecting import DeviceGroup, UnavailableError, Verdict
from gangline.control.feed import request_rules, selector_queue
from gangline.control.feed.request_rules import RequestRules
from gangline.control.feed.selector_process import SelectorProcess
from gangline.control.feed.selector_queue import SelectorQueue
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert

Json = dict[str, Any]
ONE = DeviceGroup(DRIVER, orjson.dumps([{"name": "a"}]))


class Slow:
    """A process that answers only when it is let: `let` answers one question. `cost`: CPU milliseconds of each."""

    def __init__(self, cost: float = 1.0) -> None:
        self.spent, self._cost = 0.0, cost
        self.asked: list[str] = []
        self._turns = threading.Semaphore(0)
        self.trouble = ""
        self.ended = False

    def let(self, answers: int = 1) -> None:
        self._turns.release(answers)

    def _answer(self, expression: str) -> None:
        self.asked.append(expression)
        if not self._turns.acquire(timeout=30) or self.ended:
            raise UnavailableError("it was ended")
        if self.trouble:
            raise UnavailableError(self.trouble)
        self.spent = self._cost

    def fault(self, expression: str) -> str:
        self._answer(expression)
        return "" if expression != "bad" else "it is bad"

    def judge(self, expression: str, groups: Sequence[DeviceGroup]) -> Sequence[tuple[Verdict, ...]]:
        self._answer(f"{expression} {len(groups)}")
        return [(True,) * len(orjson.loads(each.devices)) for each in groups]

    def kill(self) -> None:
        self.ended = True
        self.let(100)

    def close(self) -> None:
        self.kill()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def queue(slow: Slow) -> Iterator[SelectorQueue]:
    found = SelectorQueue(slow, clock=Clock())
    yield found
    found.close()


def soon(holds: Callable[[], object]) -> Any:
    """What it returns once that is true: another thread makes it so."""
    for _ in range(3000):
        if found := holds():
            return found
        threading.Event().wait(0.01)
    raise AssertionError("it does not come true")


def known(queue: SelectorQueue, namespace: str, expression: str) -> Callable[[], object]:
    def ask() -> object:
        try:
            return (queue.of(namespace).fault(expression),)
        except UnavailableError:
            return None

    return ask


def ask_for(queue: SelectorQueue, namespace: str, *expressions: str) -> None:
    for expression in expressions:
        with pytest.raises(UnavailableError, match="are being evaluated"):
            queue.of(namespace).fault(expression)


def test_what_is_not_known_is_unavailable_at_once_and_known_later(queue: SelectorQueue, slow: Slow) -> None:
    ask_for(queue, "a", "true", "bad", "true")
    with pytest.raises(UnavailableError, match="are being evaluated"):
        queue.of("a").judge("true", [ONE])
    slow.let(3)
    assert soon(known(queue, "a", "true")) == ("",)
    assert soon(known(queue, "a", "bad")) == ("it is bad",)
    assert soon(queue.take_answered)
    soon(lambda: len(slow.asked) == 3)

    def judged() -> Any:
        try:
            return queue.of("a").judge("true", [ONE])
        except UnavailableError:
            return None

    assert soon(judged) == [(True,)]
    assert slow.asked == ["true", "bad", "true 1"], "each was asked once"
    assert queue.of("a").judge("true", []) == []


def test_another_namespace_is_answered_while_512_selectors_wait(queue: SelectorQueue, slow: Slow) -> None:
    ask_for(queue, "greedy", *(f"{n} == 0" for n in range(512)))
    soon(lambda: slow.asked)
    ask_for(queue, "modest", "true")
    slow.let(2)
    assert soon(known(queue, "modest", "true")) == ("",)
    assert "true" in slow.asked[:3] and len(slow.asked) <= 3


def test_a_namespace_without_cpu_time_waits_for_its_own(queue: SelectorQueue, slow: Slow) -> None:
    clock: Clock = queue._clock  # type: ignore[assignment]
    slow._cost = selector_queue.BURST
    ask_for(queue, "greedy", "first", "second")
    slow.let()
    soon(queue.take_answered)
    with pytest.raises(UnavailableError, match="take more than 200 ms of CPU time per second"):
        queue.of("greedy").fault("second")
    slow._cost = 1.0
    ask_for(queue, "modest", "true")
    slow.let()
    assert soon(known(queue, "modest", "true")) == ("",)
    assert slow.asked == ["first", "true"]
    clock.now += 1.0
    slow.let()
    assert soon(known(queue, "greedy", "second")) == ("",), "it has CPU time again"


def test_many_slices_are_many_questions(queue: SelectorQueue, slow: Slow) -> None:
    groups = [DeviceGroup(DRIVER, b'[{"name":"%d"}]' % n) for n in range(40)]
    with pytest.raises(UnavailableError):
        queue.of("a").judge("true", groups)
    slow.let()
    found = soon(lambda: len(slow.asked) > 1 and queue.of("a").judge("true", groups))
    assert [row is not None for row in found] == [True] * 16 + [False] * 24
    slow.let(2)
    soon(lambda: len(slow.asked) == 3)
    assert slow.asked == ["true 16", "true 16", "true 8"]


def test_what_cannot_be_asked_is_asked_again(queue: SelectorQueue, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_queue, "_RETRY", 0.0)
    slow.trouble = "no such file"
    ask_for(queue, "a", "true")
    slow.let()
    soon(lambda: queue._trouble)
    with pytest.raises(UnavailableError, match="no such file"):
        queue.of("a").fault("true")
    slow.trouble = ""
    slow.let()
    assert soon(known(queue, "a", "true")) == ("",)


def test_questions_and_answers_are_bounded(queue: SelectorQueue, monkeypatch: pytest.MonkeyPatch, slow: Slow) -> None:
    monkeypatch.setattr(selector_queue, "_MOST_QUESTIONS", 8)
    monkeypatch.setattr(selector_queue, "_MOST_ANSWERS", 4)
    ask_for(queue, "a", *(f"{n} == 0" for n in range(100)))
    assert len(queue._askers["a"].questions) == 8
    slow.let(8)
    soon(lambda: not queue._askers["a"].questions)
    assert len(queue._askers["a"].faults) == 4


def test_a_namespace_that_asks_no_more_is_forgotten(queue: SelectorQueue, slow: Slow) -> None:
    clock: Clock = queue._clock  # type: ignore[assignment]
    ask_for(queue, "a", "true")
    slow.let()
    soon(lambda: queue._askers["a"].faults)
    clock.now += 120
    ask_for(queue, "b", "true")
    slow.let()
    soon(lambda: "a" not in queue._askers)


def test_the_thread_ends_with_the_questions_and_with_the_queue(queue: SelectorQueue, slow: Slow) -> None:
    before = threading.active_count()
    ask_for(queue, "a", "true")
    assert threading.active_count() == before + 1
    slow.let()
    soon(lambda: threading.active_count() == before)
    ask_for(queue, "a", "other")
    assert threading.active_count() == before + 1
    queue.close()
    assert threading.active_count() == before
    with pytest.raises(UnavailableError):
        queue.of("a").fault("one more")
    assert threading.active_count() == before


def test_the_process_ends_with_the_queue_in_the_middle_of_an_answer() -> None:
    before, threads = children(), threading.active_count()
    queue = SelectorQueue(SelectorProcess(command=["sleep", "60"], pause=0.0))
    ask_for(queue, "a", "true")
    soon(lambda: children() - before)
    queue.close()
    assert children() == before
    assert threading.active_count() == threads


async def test_the_loop_that_asked_is_woken() -> None:
    woken, slow = asyncio.Event(), Slow()
    queue = SelectorQueue(slow, wake=woken.set)
    ask_for(queue, "a", "true")
    assert not woken.is_set()
    slow.let()
    await asyncio.wait_for(woken.wait(), 30)
    assert queue.take_answered() and not queue.take_answered()
    assert queue.of("a").fault("true") == ""
    queue.close()


# --- the rules of requests --------------------------------------------------------------------------------------------


def claim_template(name: str, namespace: str, *selectors: str) -> Json:
    rows = [{"cel": {"expression": text}} for text in selectors]
    asked = {"name": "r", "exactly": {"deviceClassName": "a", "selectors": rows}}
    return stored("ResourceClaimTemplate", name, namespace, spec={"spec": {"devices": {"requests": [asked]}}})


def test_a_changed_slice_is_counted_anew_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round looks up a bounded number of verdicts, and the namespaces take turns."""
    monkeypatch.setattr(request_rules, "_MOST_WORK", 40)

    class Plain(Slow):
        def of(self, namespace: str) -> Plain:
            return self

        def _answer(self, expression: str) -> None:
            self.asked.append(expression)

    judge = Plain()
    rules = RequestRules(ResourceRules(devices=Devices({"a": "cpu"})), judge)
    rules.put(kube.DEVICE_CLASSES, "a", {"metadata": {"name": "a"}, "spec": {}})
    for n in range(10):
        rules.put(kube.RESOURCE_SLICES, f"s{n}", resource_slice(f"s{n}", "1"))
    for namespace, count in (("greedy", 30), ("modest", 1)):
        for n in range(count):
            template = claim_template(f"t{n}", namespace, f"{n} == 0", "true")
            rules.put(kube.RESOURCE_CLAIM_TEMPLATES, f"{namespace}/t{n}", template)
        of = rules.of(namespace)
        for claim in of.claims.values():
            of.supply.charge(claim, of.resources.devices)
    rules.take_changed()
    rules.put(kube.RESOURCE_SLICES, "s0", None)
    counted: list[str] = []
    recharge = request_rules.DeviceSupply.work
    monkeypatch.setattr(
        request_rules.DeviceSupply, "work", lambda self, claim: counted.append(claim) or recharge(self, claim)
    )
    rounds = 0
    for rounds in itertools.count(1):
        rules.take_changed()
        assert len(counted) <= 3 * rounds
        if rounds == 2:
            assert rules._stale.keys() == {"greedy"}, "the other namespace was counted at once"
        if not rules.unfinished:
            break
    assert len(counted) == 31 and rounds > 5


async def test_a_workload_waits_with_a_reason_and_is_counted_when_the_answer_is_there() -> None:
    controller = operator()
    slow = Slow()
    [feed] = [part for part in controller.parts if part.name == "inventory"]
    selectors = SelectorQueue(slow, wake=controller.wake)
    feed._selectors = selectors  # type: ignore[attr-defined]
    rules = RequestRules(ResourceRules(devices=Devices({"a": "cpu"})), selectors)
    controller.mirror.rules = rules
    sink = {
        kind: controller.sink(kind) for kind in (kube.DEVICE_CLASSES, kube.RESOURCE_CLAIM_TEMPLATES, kube.WORKLOADS)
    }
    device_class = stored("DeviceClass", "a", spec={})
    del device_class["metadata"]["namespace"]
    device_class["metadata"]["creationTimestamp"] = "2026-11-24T10:00:00Z"
    rules.put(kube.RESOURCE_SLICES, "s", resource_slice("s", "1"))
    sink[kube.DEVICE_CLASSES](Upsert(device_class))
    sink[kube.RESOURCE_CLAIM_TEMPLATES](Upsert(claim_template("t", "ns", "true")))
    template = {
        "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}
    }
    body = stored(
        "Workload", "w", "ns", spec={"queueName": "a", "podSets": [{"name": "main", "count": 1, "template": template}]}
    )
    sink[kube.WORKLOADS](Upsert(body))
    controller.absorb()
    controller.act()
    value = controller.mirror.workload_value("ns/w")
    assert value is not None and "its CEL selectors are being evaluated" in value.violation
    assert rules.postponed
    slow.let(10)
    for _ in range(3000):
        controller.absorb()
        value = controller.mirror.workload_value("ns/w")
        if value is not None and not value.violation:
            break
        await asyncio.sleep(0.01)
    assert value is not None and value.violation == ""
    assert value.pod_sets[0].counted == {"cpu": 1}
    assert not rules.postponed
    await feed.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "CEL selectors"]
