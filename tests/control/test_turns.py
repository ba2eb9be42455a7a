"""Whose objects the loop works on next: bounded rounds, fair by namespace, in which nothing gets lost or out of order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.test_parts import Tape, an_object, leader, show
from tests.objects import Stored, altered

from gangline.api import names
from gangline.control.controller import Controller
from gangline.control.isolation import time_limit
from gangline.control.isolation.inbox import Inbox
from gangline.control.isolation.turns import HALF_LIFE, LEAST, ROUND, CpuUse, Turns
from gangline.control.kinds import elastic_plan
from gangline.control.kinds.job_planning import JobPlanning
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts.attempts import Attempts
from gangline.control.writes.writer import Writer
from gangline.engine import Engine
from gangline.engine.model import Decision
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Synced, Upsert
from gangline.kube.resources import Json, Resource, key_of, namespace_of
from gangline.objects import view


class Time:
    """CPU time and wall-clock time, which pass only when a test says so."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.wall = 0.0

    def turns(self) -> Turns:
        return Turns(CpuUse(lambda: self.wall), lambda: self.cpu)


class Part:
    """A part with keys to work on, each of which costs what its namespace says."""

    def __init__(self, time: Time, turns: Turns, costs: dict[str, float]) -> None:
        self.time, self.turns, self.costs = time, turns, costs
        self.keys: set[str] = set()
        self.done: list[str] = []

    def act(self) -> list[str]:
        ready, self.keys = sorted(self.keys), set()
        done: list[str] = []
        for key in self.turns.each(ready, self.keys.update):
            self.time.cpu += self.costs[namespace_of(key)]
            done.append(key)
        self.done += done
        return done


def keys(namespace: str, number: int) -> set[str]:
    return {f"{namespace}/{each:04}" for each in range(number)}


def rounds_until(namespace: str, part: Part) -> int:
    """The number of rounds until all objects of the namespace had their turn."""
    rounds = 0
    while any(namespace_of(key) == namespace for key in part.keys):
        part.turns.begin()
        part.act()
        rounds += 1
    return rounds


@pytest.mark.parametrize("cost", [0.02, 0.2, 0.5])
def test_objects_that_cost_much_delay_nobody_else(cost: float) -> None:
    time = Time()
    costs = {"mallory": cost, "alice": 0.0002}

    def rounds(others: int) -> int:
        part = Part(time, time.turns(), costs)
        part.keys = keys("alice", 50) | keys("mallory", others)
        return rounds_until("alice", part)

    assert rounds(0) == 1
    assert rounds(200) <= 2, "one object of mallory's may come first"


def test_a_round_ends_and_the_rest_has_its_turn_in_later_ones() -> None:
    time = Time()
    part = Part(time, time.turns(), {"a": 0.1})
    part.keys = keys("a", 10)
    lengths: list[int] = []
    while part.keys:
        part.turns.begin()
        before = time.cpu
        lengths.append(len(part.act()))
        assert time.cpu - before <= ROUND + 0.1
        assert part.turns.waiting == ({"a"} if part.keys else set())
    assert lengths == [3, 3, 3, 1]
    assert part.done == sorted(keys("a", 10))


def test_each_part_gets_its_least_however_much_those_before_it_have_used() -> None:
    time = Time()
    turns = time.turns()
    first, last = Part(time, turns, {"a": 0.1}), Part(time, turns, {"b": 0.001})
    first.keys, last.keys = keys("a", 100), keys("b", 100)
    turns.begin()
    first.act()
    assert len(last.act()) == pytest.approx(LEAST / 0.001, abs=1)


def test_who_is_alone_gets_all_there_is() -> None:
    """An honest tenant with 5,000 jobs at the start of an operator: each round is filled."""
    time = Time()
    part = Part(time, time.turns(), {"a": 0.0002})
    part.keys = keys("a", 5000)
    assert rounds_until("a", part) == -(-5000 * 0.0002 // ROUND)


def test_use_is_forgotten_and_the_namespaces_that_used_most_are_shown() -> None:
    time = Time()
    use = CpuUse(lambda: time.wall)
    use.charge("a", 1.0)
    time.wall += 2 * HALF_LIFE
    use.charge("b", 0.5)
    assert use.score("a") < use.score("b")
    assert list(use.most(1)) == ["b"]
    assert use.most(2)["a"] == pytest.approx(use.most(2)["b"] / 2)
    time.wall += 1000 * HALF_LIFE
    use.charge("c", 0.001)
    assert use.most(10).keys() == {"c"}, "what was used long ago takes no memory"
    assert use.total == pytest.approx(1.501)


def test_a_core_in_constant_use_is_shown_as_one() -> None:
    time = Time()
    use = CpuUse(lambda: time.wall)
    for _ in range(3000):
        time.wall += 0.1
        use.charge("a", 0.1)
    assert use.most(1)["a"] == pytest.approx(1.0, rel=0.01)


def test_keys_are_kept_if_a_part_fails() -> None:
    turns, kept = Time().turns(), set[str]()
    with pytest.raises(KeyError):
        for key in turns.each(["a/1", "a/2", "a/3"], kept.update):
            raise KeyError(key)
    assert kept == {"a/2", "a/3"}


# --- the inbox ---


def obj(resource: Resource, namespace: str, name: str, version: int, uid: str = "u") -> Stored:
    meta: Json = {"name": name, "uid": f"{uid}-{name}", "resourceVersion": str(version)}
    if namespace:
        meta["namespace"] = namespace
    return view(resource, {"metadata": meta})


def a_job(namespace: str, name: str, version: int = 1, uid: str = "u") -> tuple[Resource, Event]:
    return kube.JOBS, Upsert(obj(kube.JOBS, namespace, name, version, uid))


def name_of(event: Event) -> str:
    if isinstance(event, Upsert):
        return f"{key_of(event.obj)}@{event.obj['metadata']['resourceVersion']}"
    return f"-{event.key}" if isinstance(event, Removed) else "synced"


def read(time: Time, inbox: Inbox, turns: Turns, cost: Callable[[str], float] = lambda name: 0.0) -> list[str]:
    """One round."""
    turns.begin()
    heard: list[str] = []
    for _, event in inbox.events():
        time.cpu += cost(name_of(event))
        heard.append(name_of(event))
    return heard


def made() -> tuple[Time, Turns, Inbox]:
    time = Time()
    turns = time.turns()
    return time, turns, Inbox(turns)


def test_events_without_a_namespace_are_read_first_and_others_in_their_order() -> None:
    time, turns, inbox = made()
    inbox.put(*a_job("b", "1"))
    inbox.put(kube.PODS, Removed("b/p", "u"))
    inbox.put(*a_job("a", "1"))
    inbox.put(*a_job("b", "2"))
    inbox.put(kube.NODES, Upsert(obj(kube.NODES, "", "n", 7)))
    assert read(time, inbox, turns) == ["n@7", "a/1@1", "b/1@1", "-b/p", "b/2@1"]
    assert not inbox


def test_events_that_cost_much_delay_those_of_no_other_namespace() -> None:
    time, turns, inbox = made()
    for number in range(200):
        inbox.put(*a_job("mallory", f"{number:03}"))
    cost = lambda name: 0.1 if name.startswith("mallory") else 0.0001  # noqa: E731
    read(time, inbox, turns, cost)
    for number in range(20):
        inbox.put(*a_job("zoe", str(number)))
    assert sum(name.startswith("zoe") for name in read(time, inbox, turns, cost)) == 20
    assert inbox.lagging() == ["mallory"]


def test_a_mark_is_passed_when_all_before_it_are_read_whoever_writes_meanwhile() -> None:
    time, turns, inbox = made()
    cost = lambda name: 0.2  # noqa: E731
    for number in range(10):
        inbox.put(*a_job("a", str(number)))
    mark, seen, version = inbox.mark(), list[str](), 1
    while not inbox.has_read(mark):
        seen += read(time, inbox, turns, cost)
        version += 1
        for number in range(10):  # somebody changes all of them faster than they can be read
            inbox.put(*a_job("a", str(number), version))
        assert len(seen) < 100
    assert {name.partition("@")[0] for name in seen} == {f"a/{number}" for number in range(10)}


def test_synced_comes_after_everything_that_was_listed() -> None:
    time, turns, inbox = made()
    for number in range(5):
        inbox.put(*a_job("a", str(number)))
    inbox.put(kube.JOBS, Synced())
    inbox.put(*a_job("b", "later"))
    heard: list[str] = []
    while inbox:
        heard += read(time, inbox, turns, lambda name: 0.2)
    assert heard.index("synced") > max(heard.index(f"a/{number}@1") for number in range(5))


def laggard() -> tuple[Time, Turns, Inbox]:
    """A namespace with more events than one turn takes."""
    time, turns, inbox = made()
    for number in range(200):
        inbox.put(*a_job("a", f"{number:03}"))
    read(time, inbox, turns, lambda name: 1.0)
    assert inbox.lagging() == ["a"]
    return time, turns, inbox


def test_a_tenant_that_writes_faster_than_can_be_read_fills_no_memory() -> None:
    time, turns, inbox = laggard()
    for version in range(2, 1000):
        inbox.put(*a_job("a", "150", version))
    inbox.put(kube.JOBS, Removed("a/151", "u-151", {"large": "object"}))
    inbox.put(*a_job("a", "151", 3, uid="new"))
    heard: list[str] = []
    while inbox:
        heard += read(time, inbox, turns)
    assert [name for name in heard if "150" in name] == ["a/150@999"]
    assert [name for name in heard if "151" in name] == ["-a/151", "a/151@3"]
    assert len(heard) == len(set(heard)) < 200


EVENTS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.booleans(), st.integers(0, 2)), max_size=60
)


@given(EVENTS)
def test_whatever_happens_events_of_one_object_stay_in_order_and_the_last_one_arrives(
    script: list[tuple[str, str, bool, int]],
) -> None:
    time, turns, inbox = made()
    truth: dict[str, int] = {}
    delivered: dict[str, int] = {}
    uids = Counter[str]()

    def take(rounds: int) -> None:
        for _ in range(rounds):
            turns.begin()
            for _, event in inbox.events():
                time.cpu += 0.3
                if isinstance(event, Upsert):
                    version = int(event.obj["metadata"]["resourceVersion"])
                    assert version > delivered.get(key_of(event.obj), 0)
                    delivered[key_of(event.obj)] = version
                elif isinstance(event, Removed):
                    delivered.pop(event.key, None)

    for version, (namespace, name, removed, rounds) in enumerate(script, 1):
        key = f"{namespace}/{name}"
        if removed and key in truth:
            del truth[key]
            inbox.put(kube.JOBS, Removed(key, f"u{uids[key]}-{name}"))
            uids[key] += 1
        elif not removed:
            truth[key] = version
            inbox.put(*a_job(namespace, name, version, f"u{uids[key]}"))
        take(rounds)
    take(len(script) + 1)
    assert delivered == truth
    assert not inbox


# --- the loop ---


class Planned:
    """In place of the plan of a job: notes it, and costs CPU time in one namespace."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.names: list[str] = []

    def __call__(self, view: Any, lookups: Any) -> list[Any]:
        key = key_of(view.job)
        self.names.append(key)
        self.time.cpu += 0.4 if key.startswith("mallory/") else 0.0005
        return []

    def of(self, namespace: str) -> list[str]:
        return [name for name in self.names if namespace_of(name) == namespace]


def a_queued_job(namespace: str, name: str) -> Stored:
    job = an_object(kube.JOBS, name, spec={"suspend": True, "template": {"spec": {}}})
    job["metadata"] |= {"namespace": namespace, "uid": f"{namespace}-{name}", "labels": {names.QUEUE_NAME: "lq"}}
    job["metadata"]["creationTimestamp"] = "2026-11-28T09:00:01Z"
    return job


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> tuple[Controller, Planned]:
    """A process that has 200 jobs of mallory, whose plans cost much, and 20 of zoe, and does not lead yet."""
    planned = Planned(Time())
    monkeypatch.setattr(elastic_plan, "plan", planned)
    controller = Controller(None, Writer(None, gate=lambda: False), Engine(), Tape(), Metrics())  # type: ignore[arg-type]
    controller.quarantine.turns.cpu = lambda: planned.time.cpu
    for namespace, number in (("mallory", 200), ("zoe", 20)):
        for each in range(number):
            controller.sink(kube.JOBS)(Upsert(a_queued_job(namespace, f"{each:03}")))
    while not controller.absorb():
        pass
    return controller, planned


async def test_a_new_leader_plans_the_jobs_of_others_before_those_that_cost_much(
    loop: tuple[Controller, Planned],
) -> None:
    controller, planned = loop
    controller.lead()
    for _ in range(2):
        controller.absorb()
        controller.act()
    assert len(planned.of("zoe")) == 20
    assert 1 <= len(planned.of("mallory")) <= 2
    assert controller.waiting() == {"mallory"}
    for _ in range(200):
        controller.absorb()
        controller.act()
    assert planned.of("mallory") == sorted({f"mallory/{number:03}" for number in range(200)}), "each once, in order"
    assert not controller.waiting()


async def test_an_older_job_of_a_namespace_is_planned_before_a_newer_one(loop: tuple[Controller, Planned]) -> None:
    controller, planned = loop
    older = a_queued_job("mallory", "the-last-by-name")
    older["metadata"]["creationTimestamp"] = "2026-11-28T09:00:00Z"
    show(controller, older)
    controller.lead()
    controller.act()
    assert planned.of("mallory")[0] == "mallory/the-last-by-name"


async def test_the_loop_goes_on_with_what_a_round_left_and_lets_others_run_in_between(
    loop: tuple[Controller, Planned],
) -> None:
    controller, planned = loop
    controller.lead()
    running = asyncio.ensure_future(controller.run())
    turns_of_others = 0
    while len(planned.of("mallory")) < 20:
        await asyncio.sleep(0)
        turns_of_others += 1
        assert turns_of_others < 10**6
    running.cancel()
    assert turns_of_others >= 20, "the loop breathes after each of these rounds"


async def test_work_that_took_too_long_is_done_again_only_when_its_object_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def plan(view: Any, lookups: Any) -> list[Any]:
        tried.append(view.job["metadata"]["resourceVersion"])
        if len(tried) < 3:
            raise time_limit.TookTooLongError("working on it took more than 0.5 s of CPU time")
        return []

    monkeypatch.setattr(elastic_plan, "plan", plan)
    controller = leader(Engine())
    job = a_queued_job("ns", "large")
    show(controller, job)
    for _ in range(3):
        controller.act()
        controller.mirror.changes.jobs.add((kube.JOBS, "ns/large"))
        for part in controller.parts:
            if isinstance(part, JobPlanning):
                part._attempts = Attempts(part._again)  # as if its pause were over
    assert tried == ["1"]
    assert (kube.JOBS, "ns/large") in controller.quarantine
    for version in ("2", "3"):
        show(controller, altered(job, metadata={**job["metadata"], "resourceVersion": version}))
        for part in controller.parts:
            if isinstance(part, JobPlanning):
                part._attempts = Attempts(part._again)
        controller.act()
    assert tried == ["1", "2", "3"]
    assert (kube.JOBS, "ns/large") not in controller.quarantine


@pytest.mark.parametrize("left", [False, True])
async def test_after_a_long_decision_that_goes_on_others_get_as_much_time(
    left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes and requests are tasks of the same loop: they would get one step between two decisions."""
    controller = leader(Engine())
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    def long_decision(now: int, room: int | None = None) -> list[Decision]:
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            pass
        return []

    monkeypatch.setattr("gangline.control.controller.asyncio.sleep", sleep)
    monkeypatch.setattr(controller.engine, "decide", long_decision)
    monkeypatch.setattr(controller.engine, "next_wakeup", lambda now: now)
    controller.act()
    if left:
        monkeypatch.setattr(controller, "_is_left", lambda: True)
    await controller._woken()
    assert len(slept) == 1 and slept[0] >= 0.03
