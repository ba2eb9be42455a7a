"""What the operator's parts have in common: who hears of what, what each has yet to look at, and a part that fails."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import a_pod
from tests.objects import Stored, as_stored

from gangline.control.controller import Controller
from gangline.control.decisions.carrying_out import Decisions
from gangline.control.feed.pod_index import PodIndex
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts import changed_keys
from gangline.control.parts.changed_keys import ChangedKeys
from gangline.control.parts.messages import Messages, OwnPaceEnded, Recovered
from gangline.control.parts.part import Part
from gangline.control.writes.writer import Writer
from gangline.engine import Engine, IsolatedEngine, model
from gangline.kube import resources as kube
from gangline.kube.reflector import Synced, Upsert
from gangline.kube.resources import Json, Resource


class Tape:
    """In place of the event recorder."""

    def record(self, *args: Any, **named: Any) -> None:
        pass


def an_object(resource: Resource, name: str, **body: Any) -> Stored:
    meta: Json = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    if resource.namespaced:
        meta["namespace"] = "ns"
    return as_stored({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **body})


def a_workload(name: str, created: str) -> Stored:
    container = {"name": "c", "resources": {"requests": {"cpu": "4"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    workload = an_object(kube.WORKLOADS, name, spec={"queueName": "lq", "podSets": [pod_set]})
    workload["metadata"]["creationTimestamp"] = created
    return workload


def leader(engine: Engine) -> Controller:
    """A leader of one ClusterQueue with room for one workload, whose writes never leave."""
    controller = Controller(None, Writer(None, gate=lambda: False), engine, Tape(), Metrics())  # type: ignore[arg-type]
    flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    for obj in (
        an_object(kube.NAMESPACES, "ns"),
        an_object(kube.RESOURCE_FLAVORS, "f", spec={}),
        an_object(kube.CLUSTER_QUEUES, "cq", spec={"namespaceSelector": {}, "resourceGroups": groups}),
        an_object(kube.LOCAL_QUEUES, "lq", spec={"clusterQueue": "cq"}),
    ):
        show(controller, obj)
    controller.sink(kube.PODS)(Synced())
    controller.absorb()
    controller.lead()
    return controller


def show(controller: Controller, obj: Stored) -> None:
    controller.sink(kube.BY_KIND[obj["kind"]])(Upsert(obj))
    controller.absorb()


@pytest.mark.parametrize("engine", [Engine, IsolatedEngine])
async def test_a_decision_that_cannot_be_carried_out_holds_no_quota(
    engine: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = leader(engine())
    carried_out: list[str] = []

    def carry_out(self: Decisions, decision: model.Decision) -> None:
        assert isinstance(decision, model.Admit)
        if decision.workload == "ns/broken":
            raise KeyError("spec")
        carried_out.append(decision.workload)

    monkeypatch.setattr(Decisions, "carry_out", carry_out)
    show(controller, a_workload("broken", "2026-01-01T00:00:02Z"))
    controller.act()
    assert (kube.WORKLOADS, "ns/broken") in controller.quarantine
    assert controller.engine.queue_status("cq").reserving == 0, "it was taken back at once"
    show(controller, a_workload("sound", "2026-01-01T00:00:01Z"))
    controller.act()
    assert carried_out == ["ns/sound"]
    assert controller.engine.queue_status("cq").reserving == 1


async def test_a_part_that_fails_does_not_keep_the_others_from_acting(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = leader(IsolatedEngine())
    acted: list[str] = []
    for part in controller.parts:

        def act(now: int, name: str = part.name) -> None:
            acted.append(name)
            raise RuntimeError("not today")

        monkeypatch.setattr(part, "act", act)
    controller.act()
    acting = [part.name for part in controller.parts if type(part).act is not Part.act]
    assert acted == acting and len(acted) < len(controller.parts), "what does nothing is not called"
    assert len({part.name for part in controller.parts}) == len(controller.parts), "each has a name of its own"


def test_messages_go_to_those_who_subscribed_in_their_order() -> None:
    messages, heard = Messages(), list[str]()
    messages.subscribe(OwnPaceEnded, lambda message: heard.append(f"first {message.workload}"))
    messages.subscribe(OwnPaceEnded, lambda message: heard.append("second"))
    messages.publish(OwnPaceEnded("ns/w"))
    messages.publish(Recovered({}, "nobody listens"))
    assert heard == ["first ns/w", "second"]


def test_each_reader_has_its_own_set_and_one_set_may_have_two_sources() -> None:
    pods, nodes = ChangedKeys[str](), ChangedKeys[str]()
    one, other = pods.subscribe(worth=lambda key: True), pods.subscribe(worth=lambda key: True)
    nodes.feed(other)
    pods.update(("a", "b"))
    nodes.add("c")
    assert one.take() == {"a", "b"} and not one
    assert other.take(lambda key: key != "b") == {"a", "c"}
    assert set(other) == {"b"}, "what is not ready is still waited for"


def test_a_set_that_nobody_empties_keeps_only_what_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_keys, "LEAST", 10)
    there = set(range(15))
    keys: ChangedKeys[int] = ChangedKeys()
    waiting = keys.subscribe(worth=there.__contains__)
    for key in range(1000):
        keys.add(key)
        assert len(waiting) <= 30
    assert there <= set(waiting)


def test_a_pod_that_turns_out_to_be_of_a_placed_gang_takes_no_room_twice() -> None:
    changes: list[model.Change] = []
    pods = PodIndex(changes.append, lambda workload: {})
    pod = a_pod("p", workload="", **{"kueue.x-k8s.io/tas": "true"})
    pod["spec"]["containers"] = [{"resources": {"requests": {"cpu": "1"}}}]
    pods.upsert(pod)
    assert [type(change) for change in changes] == [model.Put]
    pod["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "w"}
    pods.upsert(pod)
    assert changes[1:] == [model.Gone(model.ForeignPod, "ns/p")]
