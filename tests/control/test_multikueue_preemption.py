"""Orchestrated preemption: of the copies of a workload, one at a time has others preempted for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.control import test_multikueue as usual
from tests.control import test_multikueue_elastic as elastic
from tests.control.test_multikueue import ADMITTED, EMPTY, NOW, condition, copy, lost, there, view, workload
from tests.control.test_multikueue_part import START, Room, Worker

from gangline.api import names
from gangline.api.read import conditions, configuration
from gangline.api.read.configuration.multikueue import MultiKueueSettings
from gangline.control.checks.multikueue.clusters import clusters as clusters_module
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.copies import Copy
from gangline.control.checks.multikueue.plan import planning
from gangline.control.checks.multikueue.plan.preemption import ALONE
from gangline.control.checks.multikueue.plan.steps import (
    Chain,
    ClusterView,
    Family,
    OpenGate,
    Send,
    Step,
    View,
    Wait,
    Withdraw,
)
from gangline.kube import resources as kube
from gangline.kube.resources import Json

ON = MultiKueueSettings(orchestrates=True)
GATED = (names.MULTIKUEUE_GATE,)


def blocked(second: int = 0) -> Json:
    return condition(names.BLOCKED_ON_GATES, at=f"2026-01-31T12:00:{second:02}Z")


def gate(position: str, at: int = NOW) -> Json:
    return {
        "name": names.MULTIKUEUE_GATE,
        "position": position,
        "lastTransitionTime": conditions.timestamp(at),
    }


def gated(*rows: Json, gates: tuple[Json, ...] = (), **more: Any) -> ClusterView:
    return ClusterView(True, copy=copy(*rows, gated=True, gates=gates), **more)


def asked(**clusters: ClusterView) -> View:
    names_ = sorted({"a", "b", *clusters})
    seen = view(workload(nominatedClusterNames=names_), None, **clusters)
    return replace(seen, settings=ON, listed=names_)


def planned(**clusters: ClusterView) -> list[Step]:
    return planning.plan(asked(**clusters))


def test_copies_are_created_with_a_closed_gate_in_the_place_of_those_here() -> None:
    assert planned() == [Send("a", GATED), Send("b", GATED)]
    here = workload()
    here["spec"]["preemptionGates"] = [{"name": "budget"}]
    sent = copies.workload_body(here, "origin", kube.WORKLOADS, GATED)
    assert sent["spec"]["preemptionGates"] == [{"name": names.MULTIKUEUE_GATE}]
    as_here = copies.workload_body(here, "origin", kube.WORKLOADS)
    assert as_here["spec"]["preemptionGates"] == [{"name": "budget"}], "without the feature"


def test_gates_differ_here_and_there_without_being_replaced() -> None:
    here = asked(a=gated(), b=gated())
    here.workload["spec"] = {**here.workload["spec"], "preemptionGates": [{"name": "budget"}]}
    assert not [step for step in planning.plan(here) if isinstance(step, Withdraw)]


def test_a_workload_that_follows_its_family_has_its_cluster_and_is_not_gated() -> None:
    follower = replace(asked(), family=Family(complete=True, leads=False, cluster="a"))
    follower.workload["status"]["nominatedClusterNames"] = ["a"]
    assert planning.plan(follower) == [Send("a", ())]


def test_the_copy_that_was_held_up_first_is_let_through_alone() -> None:
    steps = planned(a=gated(blocked(2)), b=gated(blocked(1)), c=gated())
    assert [(step.cluster) for step in steps if isinstance(step, OpenGate)] == ["b"]


def test_the_next_one_waits_for_five_minutes() -> None:
    just = gated(blocked(1), gates=(gate("Open", NOW - 1000),))
    assert planned(a=gated(blocked(2)), b=just) == [Wait(NOW - 1000 + ALONE)]
    had = gated(blocked(1), gates=(gate("Open", NOW - ALONE),))
    [step] = planned(a=gated(blocked(2)), b=had)
    assert isinstance(step, OpenGate) and step.cluster == "a"
    both = [gated(blocked(1), gates=(gate("Open", NOW - age),)) for age in (ALONE, 5000)]
    assert planned(a=both[0], b=both[1], c=gated(blocked(3))) == [Wait(NOW - 5000 + ALONE)], "the last opening counts"
    assert planned(a=gated(), b=just) == [], "nobody waits"


def test_an_eviction_there_closes_the_gate_again() -> None:
    closed = gated(blocked(1), gates=(gate("Closed"),))
    [step] = planned(a=closed, b=gated())
    assert isinstance(step, OpenGate) and step.cluster == "a"


def test_a_write_in_flight_may_be_an_opening() -> None:
    assert planned(a=gated(blocked(2)), b=gated(blocked(1), busy=True, in_flight=True)) == []


def test_a_cluster_that_refuses_the_opening_is_passed_over() -> None:
    [step] = planned(a=gated(blocked(2)), b=gated(blocked(1), busy=True))
    assert isinstance(step, OpenGate) and step.cluster == "a"


@pytest.mark.parametrize(
    "other",
    [
        lost(1),
        EMPTY,
        there(blocked(1)),  # Kueue would try for ever to open a gate that is not there
        ClusterView(True, copy=copy(blocked(1), gated=True, leaving=True)),
    ],
)
def test_only_what_has_the_gate_is_opened(other: ClusterView) -> None:
    steps = planned(a=gated(blocked(2)), b=other)
    assert [step.cluster for step in steps if isinstance(step, OpenGate)] == ["a"]


def test_a_time_to_come_holds_nobody_up() -> None:
    odd = gated(blocked(1), gates=(gate("Open", NOW + 10**9),))
    [step] = planned(a=gated(blocked(2)), b=odd)
    assert isinstance(step, OpenGate) and step.cluster == "a"


def test_without_the_gate_nothing_is_opened() -> None:
    off = replace(asked(a=gated(blocked(2)), b=gated(blocked(1))), settings=MultiKueueSettings())
    assert planning.plan(off) == []
    assert planning.plan(replace(asked(), settings=MultiKueueSettings())) == [Send("a"), Send("b")]


def test_once_admitted_nobody_preempts_any_more() -> None:
    steps = planned(a=gated(blocked(2)), b=gated(ADMITTED))
    assert not [step for step in steps if isinstance(step, OpenGate)]


def test_the_feature_gate_is_read() -> None:
    for on in (False, True):
        given = {"featureGates": {"MultiKueueOrchestratedPreemption": on}}
        assert configuration.load(given).multikueue.orchestrates == on
    assert not configuration.load({}).multikueue.orchestrates


@pytest.mark.parametrize(
    "gates",
    [
        [{"position": "Open"}],
        [{"name": names.MULTIKUEUE_GATE, "position": "Open", "lastTransitionTime": "rubbish"}],
        [{"name": names.MULTIKUEUE_GATE, "position": "Open"}],
    ],
)
def test_what_a_worker_writes_may_be_nonsense(gates: list[Json]) -> None:
    meta = {"name": "wl", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    obj = {"metadata": meta, "spec": {"preemptionGates": [{"name": names.MULTIKUEUE_GATE}]}}
    _, read = copies.read_workload({**obj, "status": {"preemptionGates": gates}})
    assert read.gated and read.open_since() in (None, 0)


class Patched(Worker):
    """Keeps patches, and answers as a worker would."""

    patches: list[tuple[str, Json]]

    async def patch(self, resource: Any, namespace: str, name: str, body: Json, **more: Any) -> Json:
        self.patches = [*getattr(self, "patches", []), (more.get("subresource", ""), body)]
        return self.held(body["status"]["preemptionGates"])

    def held(self, gates: list[Json]) -> Json:
        meta = {"name": "wl", "namespace": "team", "uid": "there", "resourceVersion": "8"}
        spec = {**workload()["spec"], "preemptionGates": [{"name": names.MULTIKUEUE_GATE}]}
        spec.pop("active")
        return {"metadata": meta, "spec": spec, "status": {"conditions": [blocked(1)], "preemptionGates": gates}}


@pytest.fixture
async def orchestrated(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    monkeypatch.setattr(clusters_module, "RemoteCluster", Patched)
    Worker.made = {}
    room = Room(replace(ON, gc_interval=0))
    room.part.lead()
    yield room
    await room.part.close()


async def test_one_gate_is_opened_and_then_the_next(orchestrated: Room) -> None:
    room = orchestrated
    room.act()
    room.act()
    workers = {name: worker for name, worker in Worker.made.items() if isinstance(worker, Patched)}
    for worker in workers.values():
        assert await worker.carry_out() == ["create Workload"]
        worker.store.answered(kube.WORKLOADS, worker.held([gate("Closed", START)]))
    room.act()
    assert {name: len(each.sent) for name, each in workers.items()} == {"a": 1, "b": 0}
    await workers["a"].carry_out()
    [(subresource, body)] = workers["a"].patches
    assert subresource == "status"
    assert body["status"]["preemptionGates"] == [gate("Open", START)]
    room.act(START + 1)
    assert workers["b"].sent == [] and room.part.due == START + ALONE
    room.act(START + ALONE)
    await workers["b"].carry_out()
    assert len(workers["b"].patches) == 1


def test_the_next_slice_of_an_elastic_job_is_gated_and_let_through_in_its_cluster() -> None:
    def slice_planned(copy: Copy | None) -> list[Step]:
        runs = elastic.there(copy, elastic.remote(2, "old"))
        seen = usual.view(elastic.a_slice(6, clusterName="a"), elastic.job(6, active=2), a=runs)
        return planning.plan(replace(seen, chain=Chain(replaces=elastic.OLD), settings=ON))

    assert slice_planned(None) == [Send("a", GATED)]
    [step] = slice_planned(elastic.copy(6, blocked(1), gated=True))
    assert isinstance(step, OpenGate) and step.cluster == "a"
