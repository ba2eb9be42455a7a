"""The floor in the operator: what its process receives, what follows from its verdict, and what a restart finds."""

from __future__ import annotations

import asyncio
import io
import pickle
from typing import Any

import pytest
from tests.builders.engine import START, cluster_queue, gang
from tests.objects import Stored

from gangline.api.admission.findings import AdmissionFacts
from gangline.api.admission.of_queues import queuepolicy
from gangline.api.read import policy_reader
from gangline.control.feed.mirror import Mirror
from gangline.control.floor import floor_watch
from gangline.control.floor.floor_process import Beginning, FloorProcess, FloorVerdict, Turn, serve
from gangline.control.floor.floor_watch import PAUSE, FloorWatch
from gangline.control.parts.messages import FactObserved, Messages
from gangline.control.writes.status import policy_status
from gangline.engine import FLOOR_LEAST, POLICY, Engine, PolicyFallback, model
from gangline.kube import resources as kube

Json = dict[str, Any]


def policy(status: Json | None = None, **spec: Any) -> Stored:
    metadata = {"name": "p", "uid": "p", "generation": 1, "resourceVersion": "1"}
    chosen = {"clusterQueues": {"names": ["q"]}, "backfill": {}, "order": {"key": "ShortestFirst"}}
    return Stored({"metadata": metadata, "spec": {**chosen, **spec}, "status": status or {}})


def queue(strategy: str = "StrictFIFO") -> Stored:
    return Stored(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "q", "uid": "q", "resourceVersion": "1"},
            "spec": {"queueingStrategy": strategy},
        }
    )


class Player:
    """Instead of the process."""

    def __init__(self, beginning: Beginning) -> None:
        self.beginning = beginning
        self.turns: list[Turn] = []
        self.ended = False
        self.answer: FloorVerdict | Exception = FloorVerdict({}, {})

    def turn(self, turn: Turn) -> FloorVerdict:
        self.turns.append(turn)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def end(self) -> None:
        self.ended = True


class WatchedFloor:
    def __init__(self, *policies: Json) -> None:
        self.clock = 0.0
        self.players: list[Player] = []
        self.engine, messages = Engine(), Messages()

        def observe(change: model.Change) -> None:
            self.engine.observe(change)
            messages.publish(FactObserved(change))

        self.mirror = Mirror(observe=observe)
        self.watch = FloorWatch(
            self.engine,
            self.mirror,
            messages,
            now=lambda: START + round(self.clock * 1000),
            wake=lambda: None,
            clock=lambda: self.clock,
            play=self._play,
        )
        for each in policies:
            self.mirror.upsert(kube.QUEUE_POLICIES, each)
        self.mirror.upsert(kube.CLUSTER_QUEUES, queue())
        self.watch.lead()

    def _play(self, beginning: Beginning) -> Player:
        self.players.append(Player(beginning))
        return self.players[-1]

    def crowd(self, count: int = FLOOR_LEAST) -> None:
        self.mirror.objects[kube.WORKLOADS].update({f"ml/w{n}": {} for n in range(count)})

    def pass_(self, seconds: float = 61.0) -> None:
        async def round_() -> None:
            self.watch.act(START + round(self.clock * 1000))
            while self.watch._task is not None:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.001)
            self.watch.act(START + round(self.clock * 1000))

        self.clock += seconds
        asyncio.run(round_())

    @property
    def queue(self) -> model.ClusterQueue:
        self.engine.snapshot()
        return self.engine._store.cluster_queues["q"]  # pyright: ignore[reportPrivateUsage]


def facts(turn: Turn) -> list[model.ClusterQueue]:
    return [
        change.item
        for _, change in turn.facts
        if isinstance(change, model.Put) and isinstance(change.item, model.ClusterQueue)
    ]


def test_a_process_is_started_for_policies_with_a_floor_and_workloads_to_compare() -> None:
    few = WatchedFloor(policy())
    few.pass_()
    assert not few.players
    refused = WatchedFloor(policy(floor="Off"))
    refused.crowd()
    refused.pass_()
    assert not refused.players
    world = WatchedFloor(policy())
    world.crowd()
    world.pass_()
    [player] = world.players
    assert [each.name for each in facts(player.turns[0])] == ["q"]
    world.mirror.observe(model.Put(gang("g")))
    world.mirror.observe(model.WriteFailed("team/g"))
    world.pass_()
    assert [change for _, change in player.turns[1].facts] == [model.Put(gang("g"))], "each fact once"
    world.mirror.upsert(
        kube.QUEUE_POLICIES, policy(floor="Off") | {"metadata": {**policy()["metadata"], "resourceVersion": "2"}}
    )
    world.pass_()
    assert player.ended


def test_a_verdict_changes_the_queue_and_its_status_and_a_restart_goes_on_from_there() -> None:
    world = WatchedFloor(policy())
    world.crowd()
    world.pass_()
    assert world.queue.ordering is not None
    world.players[0].answer = FloorVerdict({"q": PolicyFallback("BestEffort", START, "it is too slow")}, {}, 1.5)
    world.pass_()
    found = world.queue
    assert (found.ordering, found.backfill, found.fallen_back) == (None, None, "BestEffort")
    assert found.strategy == "BestEffortFIFO" and world.watch.cpu == 1.5
    world.pass_()
    [fact] = facts(world.players[0].turns[-1])
    assert (fact.fallen_back, fact.strategy) == ("", "StrictFIFO"), "the process plays the policy as it is configured"
    assert fact.ordering is not None and fact.backfill is not None

    chosen = policy_status.SelectedQueues(("q",))
    status = policy_status.status(policy(), chosen, now=0, fallen_back=world.watch.fallen_back)
    row = {"clusterQueue": "q", "mode": "BestEffort", "since": "2026-01-01T00:00:00Z", "message": "it is too slow"}
    assert status["fallenBack"] == [row]
    assert status["conditions"][0]["message"].startswith("In force for 1 ClusterQueue(s); 1 of them follow")
    again = WatchedFloor(policy(status))
    assert again.queue.fallen_back == "BestEffort", "before the first decision"
    again.crowd()
    again.pass_()
    assert again.players[0].beginning.fallen_back == {"q": PolicyFallback("BestEffort", START, "it is too slow")}
    again.players[0].answer = FloorVerdict({}, {})
    again.pass_()
    assert again.queue.fallen_back == "" and again.queue.ordering is not None
    back = policy_status.status(policy(status), chosen, now=0, fallen_back=again.watch.fallen_back)
    assert "fallenBack" not in back


@pytest.mark.parametrize(
    "status", [{"fallenBack": 7}, {"fallenBack": [3, {"mode": "x"}]}, {"fallenBack": [{"mode": "Easy"}]}]
)
def test_a_strange_status_is_no_mode(status: Json) -> None:
    assert WatchedFloor(policy(status)).watch.mode_of("q") == POLICY


def test_a_time_that_is_none_does_not_keep_an_operator_from_leading() -> None:
    row = {"clusterQueue": "q", "mode": "Easy", "since": "noon"}
    assert WatchedFloor(policy({"fallenBack": [row]})).watch.mode_of("q") == POLICY


def test_a_failed_process_begins_again_later_and_the_queue_stays_as_it_is() -> None:
    world = WatchedFloor(policy())
    world.crowd()
    world.pass_()
    world.players[0].answer = FloorVerdict({"q": PolicyFallback("Easy", START)}, {})
    world.pass_()
    world.players[0].answer = EOFError("it died")
    world.pass_()
    assert world.players[0].ended and world.queue.fallen_back == "Easy"
    world.pass_()
    assert len(world.players) == 1, "not at once"
    world.pass_(PAUSE)
    assert len(world.players) == 2 and world.players[1].beginning.fallen_back == {"q": PolicyFallback("Easy", START)}


def test_what_is_too_much_is_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor_watch, "MOST_FACTS", 2)
    world = WatchedFloor(policy())
    world.crowd()
    world.pass_()
    for number in range(3):
        world.mirror.observe(model.Put(gang(f"g{number}")))
    assert world.players[0].ended
    monkeypatch.setattr(floor_watch, "MOST_WORKLOADS", FLOOR_LEAST)
    crowded = WatchedFloor(policy())
    crowded.crowd(FLOOR_LEAST + 1)
    crowded.pass_()
    assert not crowded.players


def test_messages_of_the_process() -> None:
    item = model.Put(cluster_queue("q", backfill=model.Backfill()))
    beginning = Beginning(model.Settings(), {"q": PolicyFallback("Easy", START)})
    requests, answers = io.BytesIO(), io.BytesIO()
    for message in (beginning, Turn([(START, item)], START), Turn([], START + 1)):
        pickle.dump(message, requests)
    requests.seek(0)
    serve(requests, answers)
    answers.seek(0)
    assert [pickle.load(answers).fallen_back for _ in range(2)] == [{"q": PolicyFallback("Easy", START)}] * 2
    process = FloorProcess(beginning)
    try:
        assert process.turn(Turn([(START, item)], START)).fallen_back == {"q": PolicyFallback("Easy", START)}
    finally:
        process.end()
    with pytest.raises((OSError, EOFError, ValueError)):
        process.turn(Turn([], START))


def test_the_field() -> None:
    assert policy_reader.floor(policy()) and policy_reader.floor(None)
    assert not policy_reader.floor(policy(floor="Off"))
    with pytest.raises(policy_reader.ParseError):
        policy_reader.floor(policy(floor="Perhaps"))
    assert queuepolicy.warn(policy(floor="Off")) == []
    idle = policy(floor="Off", backfill={"depth": 0}, order={"key": "FairShare"})
    assert [warning.split(":")[0] for warning in queuepolicy.warn(idle)] == ["spec.floor"]
    assert queuepolicy.validate(idle, None, AdmissionFacts()) == []
