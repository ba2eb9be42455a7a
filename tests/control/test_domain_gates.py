"""Pods of jobs that take whole domains: which of them are told where to go, and that all of them go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from tests.control.gang_pods import Json, a_pod

from gangline.control.gates import domain_gates
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.writes.outgoing import Write
from gangline.control.writes.writer import Writer
from gangline.engine import Engine, model

POOL = "cloud.google.com/gke-nodepool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def waiting(name: str = "p", **spec: Any) -> Json:
    pod = a_pod(name, "", phase="Pending")
    pod["spec"] |= {"schedulingGates": [{"name": "other"}, dict(domain_gates.GATE)], **spec}
    return pod


def released(pod: Json, domains: tuple[str, ...] | None = ("b", "a")) -> Json:
    store = PodIndex(lambda change: None, lambda workload: {})
    store.upsert(pod)
    [(found, body)] = domain_gates.released(
        store.at_domain_gate(), lambda workload: {"main": POOL}, lambda workload, label: domains
    )
    assert found.manifest["metadata"] == pod["metadata"]
    assert body["metadata"] == {"resourceVersion": "1"}
    assert body["spec"]["schedulingGates"] == [{"name": "other"}]
    return body["spec"]


def test_a_first_pod_is_told_the_domains_of_its_gang() -> None:
    assert released(waiting())["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": POOL, "operator": "In", "values": ["a", "b"]}]}
    ]


def test_what_jobset_and_the_user_said_stands() -> None:
    own = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}
    affinity = {"podAffinity": {"x": 1}, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [own]}}}
    told = released(waiting(affinity=affinity))["affinity"]
    assert told["podAffinity"] == {"x": 1}
    [term] = told["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [row["key"] for row in term["matchExpressions"]] == ["zone", POOL]


def test_a_pod_that_follows_another_just_goes() -> None:
    assert "affinity" not in released(waiting(nodeSelector={POOL: "a"}))


def test_where_nodes_do_not_bound_the_gang_any_domain_will_do() -> None:
    assert "affinity" not in released(waiting(), None)


def test_first_pods_wait_while_their_gang_has_too_few_domains_and_others_follow() -> None:
    store = PodIndex(lambda change: None, lambda workload: {})
    store.upsert(waiting("first"))
    store.upsert(waiting("second", nodeSelector={POOL: "a"}))
    [(found, body)] = domain_gates.released(
        store.at_domain_gate(), lambda workload: {"main": POOL}, lambda workload, label: ()
    )
    assert found.name == "second"
    assert "affinity" not in body["spec"]


def test_only_pods_with_the_gate_wait_and_none_that_is_told_to_go() -> None:
    store = PodIndex(lambda change: None, lambda workload: {})
    store.upsert(a_pod("free"))
    store.upsert(waiting("p"))
    store.upsert(waiting("q"))
    free = waiting("p")
    free["spec"]["schedulingGates"] = []
    store.upsert(free)
    store.remove("ns/q")
    going = waiting("r")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    store.upsert(going)
    assert domain_gates.released(store.at_domain_gate(), lambda workload: {}, lambda workload, label: ()) == []


def test_a_pod_whose_workload_is_not_known_is_not_kept() -> None:
    store = PodIndex(lambda change: None, lambda workload: {})
    store.upsert(waiting())
    [(_, body)] = domain_gates.released(store.at_domain_gate(), lambda workload: {}, lambda workload, label: ("a",))
    assert "affinity" not in body["spec"]


# --- gangs that stop --------------------------------------------------------------------------------------------------

RUNS = model.Workload("u", "ns", "w", "lq", (), admission=model.Admission("cq", ()), admitted=True)


@dataclass
class World:
    """One Workload and one pod of it that waits. The engine holds nothing for it: any domain will do."""

    workload: model.Workload | None
    written: list[Write] = field(default_factory=list[Write])

    def workload_value(self, key: str) -> model.Workload | None:
        return self.workload if key == "ns/w" else None

    def domains_of(self, workload: str, label: str) -> None:
        return None

    def pending(self, target: object) -> bool:
        return False

    def submit(self, write: Write) -> None:
        self.written.append(write)


@pytest.mark.parametrize(
    ("workload", "goes"),
    [
        (RUNS, True),
        (None, True),  # it is not known
        (replace(RUNS, evicted=True), False),
        (replace(RUNS, admission=None, admitted=False), False),  # its quota was released already
        (replace(RUNS, admitted=False), False),
        (replace(RUNS, finished=True), False),
    ],
)
def test_no_pod_of_a_gang_that_stops_loses_its_gate(workload: model.Workload | None, goes: bool) -> None:
    """It would be bound before its Job has it deleted, and its place may be another's by then."""
    world, store = World(workload), PodIndex(lambda change: None, lambda workload: {})
    store.upsert(waiting())
    gates = domain_gates.DomainGates(cast(Mirror, world), store, cast(Writer, world), cast(Engine, world), lambda: None)
    gates.act(0)
    assert [write.key.name for write in world.written] == (["p"] if goes else [])
