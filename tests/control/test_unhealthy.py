"""Nodes that failed a placed gang, as Kueue notes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.control.gang_pods import Json, T, a_node, a_pod

from gangline.control.mirror.pod import Pod, read_pod
from gangline.control.recovery import unhealthy_nodes
from gangline.engine import model


def gang(*hosts: str, **changes: Any) -> model.Workload:
    domains = tuple(model.Domain((host,), 1) for host in hosts)
    topology = model.TopologyAssignment(("kubernetes.io/hostname",), domains)
    assignment = model.PodSetAssignment("main", len(hosts), {}, {}, topology=topology)
    admission = model.Admission("cq", (assignment,))
    return replace(model.Workload("u", "ns", "w", "lq", (), admission=admission, admitted=True), **changes)


def pods(*found: Json) -> list[Pod]:
    return [read_pod(each, "ns/w") for each in found]


def failed(workload: model.Workload, *found: Json, **nodes: Json) -> tuple[str, ...]:
    return unhealthy_nodes.failed_hosts(workload, pods(*found), nodes.get)


def test_a_node_that_is_gone_counts_at_once() -> None:
    assert failed(gang("n1", "n2"), a_pod("p", "n2"), n1=a_node("n1")) == ("n2",)


def test_one_that_is_not_ready_counts_when_its_pods_are_going() -> None:
    down = a_node("n1", ready="False")
    assert failed(gang("n1"), a_pod("p", "n1"), n1=down) == ()
    assert failed(gang("n1"), a_pod("p", "n1", due=T), n1=down) == ("n1",)
    assert failed(gang("n1"), n1=down) == ("n1",)


def test_so_does_one_that_keeps_pods_away() -> None:
    assert failed(gang("n1"), n1=a_node("n1", taint="maintenance")) == ("n1",)
    assert failed(gang("n1"), n1=a_node("n1")) == ()


def test_what_is_noted_is_noted_once_and_only_of_gangs_that_run() -> None:
    assert failed(gang("n1", "n2", unhealthy_nodes=("n1",))) == ("n2",)
    for change in ({"admitted": False}, {"evicted": "Preempted"}, {"finished": True}):
        assert failed(gang("n1", **change)) == ()


def test_placements_above_the_host_are_not_concerned() -> None:
    workload = gang("n1")
    assert workload.admission is not None
    racks = model.TopologyAssignment(("rack",), (model.Domain(("n1",), 1),))
    assignment = replace(workload.admission.pod_sets[0], topology=racks)
    assert failed(replace(workload, admission=model.Admission("cq", (assignment,)))) == ()


def test_the_status_lists_at_most_eight() -> None:
    status: Json = {"unhealthyNodes": [{"name": "a"}]}
    unhealthy_nodes.note(["a", *(f"n{i}" for i in range(9))])(status, T)
    assert [row["name"] for row in status["unhealthyNodes"]] == ["a", *(f"n{i}" for i in range(7))]
